//! Keeps the statuses of budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Budget;
use super::plan::status;
use crate::api::ApiError;
use crate::context::Context;
use crate::deployment::Deployment;
use crate::object::{Key, Object, Pod, ReplicaSet};
use crate::podcontrol::wake_by_self;
use crate::queue::{Next, Queue, work};
use crate::statefulset::StatefulSet;
use crate::store::Store;

struct Owners {
    replica_sets: Arc<Store<ReplicaSet>>,
    stateful_sets: Arc<Store<StatefulSet>>,
    deployments: Arc<Store<Deployment>>,
}

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let budgets = cx.store::<Budget>();
    let owners = Owners { replica_sets: cx.store(), stateful_sets: cx.store(), deployments: cx.store() };
    let queue = Queue::new();
    wake_by_self(&budgets, &queue);
    {
        let (queue, budgets) = (queue.clone(), budgets.clone());
        cx.pods.observe(move |change| {
            if budgets.is_empty() {
                return;
            }
            for pod in change.sides() {
                for budget in budgets.in_namespace(&pod.metadata.namespace) {
                    if budget.spec.selector.as_ref().is_some_and(|s| s.matches(&pod.metadata.labels)) {
                        queue.add(budget.key());
                    }
                }
            }
        });
    }
    let cx = cx.clone();
    async move {
        if cx.synced([cx.pods.synced()]).await.is_none()
            || cx.synced([budgets.synced()]).await.is_none()
            || cx.synced([owners.replica_sets.synced()]).await.is_none()
            || cx.synced([owners.stateful_sets.synced()]).await.is_none()
            || cx.synced([owners.deployments.synced()]).await.is_none()
        {
            return;
        }
        work("pdb", queue, 4, cx.cancel.clone(), |key| look(&cx, &budgets, &owners, key)).await;
    }
}

async fn look(cx: &Context, budgets: &Store<Budget>, owners: &Owners, key: Key) -> Result<Next, ApiError> {
    let Some(budget) = budgets.get(&key) else { return Ok(Next::Idle) };
    let pods: Vec<Arc<Pod>> = match &budget.spec.selector {
        // No selector selects nothing; an empty one everything.
        None => Vec::new(),
        Some(selector) => {
            let mut pods = cx.pods.in_namespace(&key.namespace);
            pods.retain(|p| selector.matches(&p.metadata.labels));
            pods
        }
    };
    let wanted = owners.wanted(&pods);
    let (new, wake) = status(&budget, &pods, wanted, cx.clock.now());
    budgets.write_status(&cx.api, &*budget, &budget.status, &new).await?;
    Ok(wake.map_or(Next::Idle, Next::After))
}

impl Owners {
    /// The sum of what the pods' owners want; a pod without a known owner counts as one.
    fn wanted(&self, pods: &[Arc<Pod>]) -> i64 {
        let mut by_owner: BTreeMap<String, i64> = BTreeMap::new();
        let mut single = 0;
        for pod in pods.iter().filter(|p| !p.finished()) {
            let Some(owner) = pod.metadata.controller() else {
                single += 1;
                continue;
            };
            let key = Key::new(pod.metadata.namespace.clone(), owner.name.clone());
            let known = match owner.kind.as_str() {
                "ReplicaSet" => self.replica_sets.get(&key).map(|set| match set.metadata.controller() {
                    Some(d) => {
                        let deployment =
                            self.deployments.get(&Key::new(key.namespace.clone(), d.name.clone()));
                        (d.uid.clone(), deployment.map_or(set.replicas(), |d| d.replicas()))
                    }
                    None => (set.metadata.uid.clone(), set.replicas()),
                }),
                "StatefulSet" => self.stateful_sets.get(&key).map(|s| (s.metadata.uid.clone(), s.replicas())),
                _ => None,
            };
            match known {
                Some((uid, replicas)) => {
                    by_owner.insert(uid, replicas);
                }
                None => single += 1,
            }
        }
        by_owner.values().sum::<i64>() + single
    }
}
