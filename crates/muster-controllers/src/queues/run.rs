//! Writes the statuses of queues.

use std::sync::Arc;

use muster_runtime::api::{ApiError, Patch};
use muster_runtime::common;
use muster_runtime::metrics;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::{Context, Key};
use serde_json::Value;

use super::plan;
use crate::accounts::Accounts;

pub(crate) async fn work(cx: &Context, accounts: &Accounts, queue: Arc<Queue<String>>) {
    queue::work("queues", queue, 2, cx.cancel.clone(), |name| look(cx, accounts, name)).await;
}

async fn look(cx: &Context, accounts: &Accounts, name: String) -> Result<Next, ApiError> {
    show(&cx.metrics.queues, accounts, &name);
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

/// What the queue may have and what it has, as metrics.
fn show(families: &metrics::Queues, accounts: &Accounts, name: &str) {
    let all = [
        &families.info,
        &families.deserved_gpus,
        &families.quota_cpu,
        &families.quota_memory,
        &families.allocated_gpus,
        &families.allocated_cpu,
        &families.allocated_memory,
    ];
    let Some(queue) = accounts.queues.get(&Key::new("", name)) else {
        all.iter().for_each(|family| family.retain(|[kept]| **kept != *name));
        return;
    };
    // KAI counts CPU in thousandths of cores and memory in megabytes; a negative number is no limit.
    let quota = |resource: &str, unit: f64| {
        let quota = queue.spec.get("resources").and_then(|all| all[resource]["quota"].as_f64());
        quota.map_or(0.0, |quota| if quota < 0.0 { -1.0 } else { quota * unit })
    };
    let held = accounts.queue(name).sums.allocated;
    let number = |quantity: k8s_quantity::Quantity| quantity.milli_value() as f64 / 1e3;
    let values = [
        1.0,
        quota("gpu", 1.0),
        quota("cpu", 1e-3),
        quota("memory", 1e6),
        // Of every vendor, slices of them and devices: what a quota counts as GPUs.
        number(held.gpus()),
        number(held.get("cpu")),
        number(held.get("memory")),
    ];
    for (family, value) in all.iter().zip(values) {
        family.of([name]).set(value);
    }
}

fn patch(cx: &Context, accounts: &Accounts, name: &str) -> Option<Value> {
    let queue = accounts.queues.get(&Key::new("", name)).filter(|queue| !queue.metadata.deleting())?;
    plan::patch(&queue, &accounts.queue(name), cx.clock.now())
}
