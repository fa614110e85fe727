//! Writes the statuses of queues.

use std::sync::Arc;

use muster_runtime::api::{ApiError, Patch};
use muster_runtime::common;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::{Context, Key};
use serde_json::Value;

use super::plan;
use crate::accounts::Accounts;

pub(crate) async fn work(cx: &Context, accounts: &Accounts, queue: Arc<Queue<String>>) {
    queue::work("queues", queue, 2, cx.cancel.clone(), |name| look(cx, accounts, name)).await;
}

async fn look(cx: &Context, accounts: &Accounts, name: String) -> Result<Next, ApiError> {
    if patch(cx, accounts, &name).is_none() {
        return Ok(Next::Idle);
    }
    accounts.pace.turn().await;
    // Much may have happened while others had their turns; what is written is what is so now.
    let Some(body) = patch(cx, accounts, &name) else { return Ok(Next::Idle) };
    match cx.api.patch::<common::Queue>(&Key::new("", name), "status", Patch::Merge, &body).await {
        Ok(queue) => accounts.queues.enter(queue),
        Err(error) if error.not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(Next::Idle)
}

fn patch(cx: &Context, accounts: &Accounts, name: &str) -> Option<Value> {
    let queue = accounts.queues.get(&Key::new("", name)).filter(|queue| !queue.metadata.deleting())?;
    plan::patch(&queue, &accounts.queue(name), cx.clock.now())
}
