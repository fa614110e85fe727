//! Watches over nodes: silence, taints, evictions, drains, and pods whose node is gone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::plan::{DRAINED, Drain, drain, drainable, evictions, silence, stranded, taints};
use crate::api::{ApiError, Delete, Patch, Scope};
use crate::clock::{later, stamp, until};
use crate::context::Context;
use crate::kubelet::run::{LEASE_NAMESPACE, Lease, lease_period};
use crate::object::{Key, Node, Object, Pod, condition};
use crate::queue::{Next, Queue, work};

/// A pod whose node is not there is left for this long, in case the node is only late.
const QUARANTINE: Duration = Duration::from_secs(40);
/// In a cluster of at most so many nodes, each gets an event when it is first seen.
const MOST_GREETED: usize = 100;
/// A drain that a budget held up is tried again after this long.
const DRAIN_AGAIN: Duration = Duration::from_secs(5);

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let leases = cx.store_in::<Lease>(Scope { namespace: LEASE_NAMESPACE.into(), ..Scope::default() });
    let queue = Queue::new();
    {
        let queue = queue.clone();
        cx.nodes.observe(move |change| {
            if let Some(node) = change.latest() {
                queue.add(node.metadata.name.clone());
            }
        });
    }
    {
        let queue = queue.clone();
        cx.pods.observe(move |change| {
            // A pod that comes to a node, or begins to go, may be one to evict or to clear away.
            let Some(new) = change.new else { return };
            let seen = change.old.is_some_and(|old| {
                old.spec.node_name == new.spec.node_name && old.metadata.deleting() == new.metadata.deleting()
            });
            if !new.spec.node_name.is_empty() && !seen {
                queue.add(new.spec.node_name.clone());
            }
        });
    }
    let cx = cx.named("node-controller");
    async move {
        if cx.synced([cx.nodes.synced()]).await.is_none()
            || cx.synced([cx.pods.synced()]).await.is_none()
            || cx.synced([leases.synced()]).await.is_none()
        {
            return;
        }
        let watch = Watch { cx: &cx, leases: &leases, heard: Mutex::default() };
        for key in cx.nodes.keys() {
            queue.add(key.name);
        }
        work("node-lifecycle", queue, 16, cx.cancel.clone(), |name| watch.look(name)).await;
    }
}

struct Watch<'a> {
    cx: &'a Context,
    leases: &'a crate::store::Store<Lease>,
    /// The last sign of life of each node and when it was noticed, or when a missing node was first missed.
    heard: Mutex<HashMap<String, (String, Timestamp)>>,
}

impl Watch<'_> {
    async fn look(&self, name: String) -> Result<Next, ApiError> {
        let now = self.cx.clock.now();
        let key = Key::new("", name.clone());
        let Some(node) = self.cx.nodes.get(&key) else { return self.node_gone(&name, now).await };
        let mut next = self.hear(&key, &node, now).await?;
        let node = self.cx.nodes.get(&key).unwrap_or(node);
        if let Some(taints) = taints(&node, now) {
            let patch = json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": taints},
            });
            match self.cx.api.patch::<Node>(&key, "", Patch::Merge, &patch).await {
                Ok(answer) => self.cx.nodes.enter(answer),
                Err(error) if error.not_found() => return Ok(Next::Idle),
                Err(error) => return Err(error),
            }
        }
        let node = self.cx.nodes.get(&key).unwrap_or(node);
        let pods = self.cx.pods_on(&name);
        let (leaving, wake) = evictions(&node, &pods, now);
        for pod in leaving {
            let message = "Taint manager: deleting due to NoExecute taint";
            self.disrupt(&pod, "DeletionByTaintManager", message).await?;
            self.cx.events.normal(
                &*pod,
                "TaintManagerEviction",
                format!("Marking for deletion Pod {}", pod.key()),
            );
            self.delete(&pod, None).await?;
        }
        next = next.or(wake.map_or(Next::Idle, Next::After));
        for pod in stranded(&node, &pods) {
            self.delete(&pod, Some(0)).await?;
        }
        Ok(next.or(self.drain(&key, &node, &pods).await?))
    }

    /// Notes signs of life, and marks the node when there were none for too long.
    async fn hear(&self, key: &Key, node: &Node, now: Timestamp) -> Result<Next, ApiError> {
        let lease = self.leases.get(&Key::new(LEASE_NAMESPACE, key.name.clone()));
        let beat = condition(&node.status.conditions, "Ready")
            .filter(|c| c.status != "Unknown")
            .and_then(|c| c.last_heartbeat_time)
            .map(stamp)
            .unwrap_or_default();
        let sign = format!("{} {beat}", lease.as_ref().map_or("", |l| &l.spec.renew_time));
        let (since, is_new) = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            match heard.get(&key.name) {
                Some((old, since)) if *old == sign => (*since, false),
                _ => (now, heard.insert(key.name.clone(), (sign, now)).is_none()),
            }
        };
        // Nobody reads this of a thousand nodes.
        if is_new && self.cx.nodes.len() <= MOST_GREETED {
            let message = format!("Node {0} event: Registered Node {0} in Controller", key.name);
            self.cx.events.normal(node, "RegisteredNode", message);
        }
        let period = lease_period(self.cx.nodes.len());
        let grace = self.cx.options.node_grace.max(period * 5 / 2);
        let due = later(since, grace);
        if due > now {
            return Ok(Next::After(until(now, due)));
        }
        if let Some(patch) = silence(node, now) {
            let answer: Node = self.cx.api.patch(key, "status", Patch::Strategic, &patch).await?;
            self.cx.nodes.enter(answer);
            self.cx.events.normal(
                node,
                "NodeNotReady",
                format!("Node {} status is now: NodeNotReady", key.name),
            );
            for pod in self.cx.pods_on(&key.name).iter().filter(|p| p.ready()) {
                let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [{
                    "type": "Ready", "status": "False", "reason": "NodeNotReady",
                    "message": "the node is not ready", "lastTransitionTime": stamp(now),
                }]}});
                match self.cx.api.patch::<Pod>(&pod.key(), "status", Patch::Strategic, &patch).await {
                    Ok(answer) => self.cx.pods.enter(answer),
                    Err(error) if error.not_found() || error.conflict() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // A lease does not wake this loop, so a node that may come back is looked at now and then.
        Ok(Next::After(Duration::from_secs(5)))
    }

    async fn drain(&self, key: &Key, node: &Node, pods: &[std::sync::Arc<Pod>]) -> Result<Next, ApiError> {
        match drain(node) {
            Drain::Nothing => Ok(Next::Idle),
            Drain::Begin => {
                let patch =
                    json!({"metadata": {"annotations": {DRAINED: "true"}}, "spec": {"unschedulable": true}});
                self.cx.nodes.enter(self.cx.api.patch(key, "", Patch::Merge, &patch).await?);
                Ok(Next::After(Duration::ZERO))
            }
            Drain::End => {
                let patch =
                    json!({"metadata": {"annotations": {DRAINED: null}}, "spec": {"unschedulable": null}});
                self.cx.nodes.enter(self.cx.api.patch(key, "", Patch::Merge, &patch).await?);
                Ok(Next::Idle)
            }
            Drain::GoOn => {
                let mut held_up = false;
                for pod in drainable(pods) {
                    let body = json!({
                        "apiVersion": "policy/v1",
                        "kind": "Eviction",
                        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
                    });
                    match self.cx.api.create_sub::<Pod>(&pod.key(), "eviction", &body).await {
                        Ok(()) => {}
                        Err(error) if error.not_found() => {}
                        // A disruption budget says: not now.
                        Err(error) if error.code() == 429 => held_up = true,
                        Err(error) => return Err(error),
                    }
                }
                Ok(if held_up { Next::After(DRAIN_AGAIN) } else { Next::Idle })
            }
        }
    }

    /// The node is not there: its pods are cleared away once that is certain.
    async fn node_gone(&self, name: &str, now: Timestamp) -> Result<Next, ApiError> {
        let pods = self.cx.pods_on(name);
        if pods.is_empty() {
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
            return Ok(Next::Idle);
        }
        let missed = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            match heard.get(name) {
                Some((sign, since)) if sign == "missing" => *since,
                _ => {
                    heard.insert(name.to_owned(), ("missing".to_owned(), now));
                    now
                }
            }
        };
        let due = later(missed, QUARANTINE);
        if due > now {
            return Ok(Next::After(until(now, due)));
        }
        match self.cx.api.get::<Node>(&Key::new("", name)).await {
            Err(error) if error.not_found() => {}
            Ok(node) => {
                self.cx.nodes.enter(node);
                return Ok(Next::Idle);
            }
            Err(error) => return Err(error),
        }
        for pod in pods {
            if !pod.finished() {
                let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {
                    "phase": "Failed",
                    "conditions": [{
                        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                        "message": "PodGC: node no longer exists", "lastTransitionTime": stamp(now),
                    }],
                }});
                match self.cx.api.patch::<Pod>(&pod.key(), "status", Patch::Strategic, &patch).await {
                    Ok(answer) => self.cx.pods.enter(answer),
                    Err(error) if error.not_found() || error.conflict() => continue,
                    Err(error) => return Err(error),
                }
            }
            self.delete(&pod, Some(0)).await?;
        }
        Ok(Next::Idle)
    }

    async fn disrupt(&self, pod: &Pod, reason: &str, message: &str) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": stamp(self.cx.clock.now()),
        }]}});
        match self.cx.api.patch::<Pod>(&pod.key(), "status", Patch::Strategic, &patch).await {
            Ok(answer) => {
                self.cx.pods.enter(answer);
                Ok(())
            }
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, pod: &Pod, grace_seconds: Option<i64>) -> Result<(), ApiError> {
        let delete = Delete { uid: &pod.metadata.uid, grace_seconds, propagation: None };
        match self.cx.api.delete::<Pod>(&pod.key(), delete).await {
            Err(error) if !error.not_found() && !error.conflict() => Err(error),
            _ => Ok(()),
        }
    }
}
