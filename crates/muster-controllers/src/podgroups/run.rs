//! Writes the statuses of pod groups.

use std::sync::Arc;

use muster_runtime::api::{ApiError, Patch};
use muster_runtime::common::PodGroup;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::{Context, Key};
use serde_json::Value;

use super::plan;
use crate::accounts::Accounts;

pub(crate) async fn work(cx: &Context, accounts: &Accounts, queue: Arc<Queue<Key>>) {
    queue::work("podgroups", queue, 4, cx.cancel.clone(), |key| look(cx, accounts, key)).await;
}

async fn look(cx: &Context, accounts: &Accounts, key: Key) -> Result<Next, ApiError> {
    if patch(cx, accounts, &key).is_none() {
        return Ok(Next::Idle);
    }
    accounts.pace.turn().await;
    // Much may have happened while others had their turns; what is written is what is so now.
    let Some(body) = patch(cx, accounts, &key) else { return Ok(Next::Idle) };
    match cx.api.patch::<PodGroup>(&key, "status", Patch::Merge, &body).await {
        Ok(group) => accounts.groups.enter(group),
        Err(error) if error.not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(Next::Idle)
}

fn patch(cx: &Context, accounts: &Accounts, key: &Key) -> Option<Value> {
    let group = accounts.groups.get(key).filter(|group| !group.metadata.deleting())?;
    let entry = accounts.group(key)?;
    plan::patch(&group, &entry.tally, entry.preemptible, cx.clock.now())
}
