//! Keeps DaemonSets.

use std::time::Duration;

use serde_json::{Value, json};

use super::DaemonSet;
use super::plan::{plan, tie_to_node};
use crate::api::ApiError;
use crate::context::Context;
use crate::object::{ControllerRevision, Key, Object, Pod};
use crate::podcontrol::{
    claim, create_pods, delete_pods, pod_from_template, set_label, wake_by_pods, wake_by_self,
};
use crate::queue::{Next, Queue, work};
use crate::revisions::{REVISION_LABEL, ensure, trim};
use crate::store::Store;

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let sets = cx.store::<DaemonSet>();
    let revisions = cx.store::<ControllerRevision>();
    let queue = Queue::new();
    wake_by_self(&sets, &queue);
    wake_by_pods(cx, &sets, &queue, Duration::ZERO, |set, pod| {
        !set.spec.selector.is_empty() && set.spec.selector.matches(&pod.metadata.labels)
    });
    {
        let (queue, sets) = (queue.clone(), sets.clone());
        cx.nodes.observe(move |change| {
            // Heartbeats change nothing that matters here.
            let same = matches!((change.old, change.new), (Some(a), Some(b))
                if a.metadata.labels == b.metadata.labels && a.spec == b.spec && a.metadata.deleting() == b.metadata.deleting());
            if !same {
                for key in sets.keys() {
                    queue.add(key);
                }
            }
        });
    }
    let cx = cx.named("daemonset-controller");
    async move {
        if cx.synced([cx.pods.synced()]).await.is_none()
            || cx.synced([cx.nodes.synced()]).await.is_none()
            || cx.synced([sets.synced()]).await.is_none()
            || cx.synced([revisions.synced()]).await.is_none()
        {
            return;
        }
        work("daemonset", queue, 4, cx.cancel.clone(), |key| look(&cx, &sets, &revisions, key)).await;
    }
}

async fn look(
    cx: &Context,
    sets: &Store<DaemonSet>,
    revisions: &Store<ControllerRevision>,
    key: Key,
) -> Result<Next, ApiError> {
    let Some(set) = sets.get(&key) else { return Ok(Next::Idle) };
    let pods = claim(cx, &cx.pods, &*set, &set.spec.selector).await?;
    let collisions = set.status.get("collisionCount").and_then(Value::as_i64).unwrap_or(0);
    let newest = ensure(cx, revisions, &*set, &set.spec.template, collisions).await?;
    let hash = newest
        .metadata
        .name
        .strip_prefix(&format!("{}-", set.metadata.name))
        .unwrap_or(&newest.metadata.name);
    let mut pod = pod_from_template(&*set, &set.spec.template);
    set_label(&mut pod, REVISION_LABEL, hash);
    let template: Pod = serde_json::from_value(json!({"spec": pod["spec"]})).unwrap_or_default();
    let plan = plan(&set, &template, &cx.nodes.all(), &pods, hash, cx.clock.now());
    if set.spec.update_strategy.rolling_update.max_surge.as_ref().is_some_and(|s| s.of(100, true) > 0) {
        cx.events.warning(
            &*set,
            "NotSimulated",
            "maxSurge is not simulated; pods are replaced one at a time",
        );
    }
    delete_pods(cx, &*set, &plan.delete).await?;
    let new: Vec<Value> = plan
        .create_on
        .iter()
        .map(|node| {
            let mut pod = pod.clone();
            tie_to_node(&mut pod, node);
            pod
        })
        .collect();
    create_pods(cx, &*set, new).await?;
    sets.write_status(&cx.api, &*set, &set.status, &plan.status).await?;
    let prefix = format!("{}-", set.metadata.name);
    let mut in_use: Vec<String> = vec![newest.key().name];
    in_use.extend(
        pods.iter().filter_map(|p| p.metadata.labels.get(REVISION_LABEL)).map(|h| format!("{prefix}{h}")),
    );
    let in_use: Vec<&str> = in_use.iter().map(String::as_str).collect();
    trim(cx, revisions, &*set, &in_use, set.spec.revision_history_limit.unwrap_or(10)).await?;
    Ok(plan.wake.map_or(Next::Idle, Next::After))
}
