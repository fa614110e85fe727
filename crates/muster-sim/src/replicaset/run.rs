//! Keeps ReplicaSets at their number.

use std::time::Duration;

use super::plan::{plan, status};
use crate::api::ApiError;
use crate::context::Context;
use crate::object::{Key, Object, ReplicaSet};
use crate::podcontrol::{claim, create_pods, delete_pods, pod_from_template, wake_by_pods, wake_by_self};
use crate::queue::{Next, Queue, work};

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let sets = cx.store::<ReplicaSet>();
    let queue = Queue::new();
    wake_by_self(&sets, &queue);
    wake_by_pods(cx, &sets, &queue, Duration::ZERO, |set, pod| {
        !set.spec.selector.is_empty() && set.spec.selector.matches(&pod.metadata.labels)
    });
    let cx = cx.named("replicaset-controller");
    async move {
        if cx.synced([cx.pods.synced()]).await.is_none() || cx.synced([sets.synced()]).await.is_none() {
            return;
        }
        let look = |key: Key| {
            let (cx, sets) = (&cx, &sets);
            async move {
                let Some(set) = sets.get(&key) else { return Ok(Next::Idle) };
                let pods = claim(cx, &cx.pods, &*set, &set.spec.selector).await?;
                // Only a set that shrinks needs to know how crowded its nodes are.
                let shrinks = i64::try_from(pods.len()).unwrap_or(i64::MAX) > set.replicas();
                let siblings = if shrinks { siblings(cx, sets, &set) } else { Vec::new() };
                let plan = plan(&set, &pods, &siblings, cx.clock.now());
                let result = if plan.create > 0 {
                    let pod = pod_from_template(&*set, &set.spec.template);
                    create_pods(cx, &*set, vec![pod; plan.create]).await
                } else {
                    delete_pods(cx, &*set, &plan.delete).await
                };
                let failure = failure(&result, plan.create > 0);
                let pods = cx.pods.owned_by(&set.metadata.uid);
                let new =
                    status(&set, &pods, failure.as_ref().map(|(r, m)| (*r, m.as_str())), cx.clock.now());
                sets.write_status(&cx.api, &*set, &set.status, &new).await?;
                result?;
                Ok(plan.wake.map_or(Next::Idle, Next::After))
            }
        };
        work("replicaset", queue, 16, cx.cancel.clone(), look).await;
    }
}

/// The pods of every ReplicaSet under the same owner: a Deployment's old and new pods crowd the same nodes.
fn siblings(
    cx: &Context,
    sets: &crate::store::Store<ReplicaSet>,
    set: &ReplicaSet,
) -> Vec<std::sync::Arc<crate::object::Pod>> {
    match set.meta().controller() {
        Some(owner) => {
            sets.owned_by(&owner.uid).iter().flat_map(|s| cx.pods.owned_by(&s.metadata.uid)).collect()
        }
        None => cx.pods.owned_by(&set.metadata.uid),
    }
}

fn failure(result: &Result<(), ApiError>, creating: bool) -> Option<(&'static str, String)> {
    let error = result.as_ref().err()?;
    Some((if creating { "FailedCreate" } else { "FailedDelete" }, error.message()))
}
