//! Writes the statuses of pod groups.

use std::sync::Arc;
use std::time::Duration;

use muster_runtime::api::{ApiError, Patch};
use muster_runtime::common::PodGroup;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::{Context, Key};
use serde_json::Value;

use super::plan;
use crate::accounts::Accounts;

pub(crate) async fn work(
    cx: &Context,
    accounts: &Accounts,
    queue: Arc<Queue<Key>>,
    still: Duration,
    longest: Duration,
) {
    let look = |key| look(cx, accounts, key, still, longest);
    queue::work("podgroups", queue, 4, cx.cancel.clone(), look).await;
}

async fn look(
    cx: &Context,
    accounts: &Accounts,
    key: Key,
    still: Duration,
    longest: Duration,
) -> Result<Next, ApiError> {
    if patch(cx, accounts, &key).is_none() {
        accounts.told(&key);
        return Ok(Next::Idle);
    }
    // Of a gang that is just being placed, only the end matters.
    let (still_for, untold_for) = accounts.waited(&key);
    if accounts.pace.is_busy() && still_for < still && untold_for < longest {
        return Ok(Next::After(still.saturating_sub(still_for).min(longest.saturating_sub(untold_for))));
    }
    accounts.pace.turn().await;
    // Much may have happened while others had their turns; what is written is what is so now.
    let Some(body) = patch(cx, accounts, &key) else { return Ok(Next::Idle) };
    accounts.told(&key);
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
