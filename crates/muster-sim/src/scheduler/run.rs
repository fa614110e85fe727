//! Places pods as they come.
//!
//! In: pods without a node, nodes. Out: bindings, and a condition and an event on pods that must wait.
//! Must stay true: what is promised to a pod is counted from the decision on, and given back when the binding fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::sync::Notify;

use super::plan::{Begin, Decision, Place, plan, waits_for_us};
use crate::api::{ApiError, Patch};
use crate::clock::stamp;
use crate::context::Context;
use crate::fit::{self, Amounts};
use crate::object::{Key, Node, Object, Pod, condition};

const BINDERS: usize = 32;
const MOST_CLASSES: usize = 4096;
/// A binding that failed is tried again after this long.
const AGAIN: Duration = Duration::from_millis(500);

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let scheduler = Arc::new(Scheduler {
        cx: cx.program("kube-scheduler", "default-scheduler"),
        state: Mutex::new(State::default()),
        wake: Notify::new(),
    });
    {
        let scheduler = scheduler.clone();
        cx.pods.observe(move |change| {
            if scheduler.lock().pod_changed(change.old, change.new) {
                scheduler.wake.notify_one();
            }
        });
    }
    {
        let scheduler = scheduler.clone();
        cx.nodes.observe(move |change| {
            if scheduler.lock().node_changed(change.old, change.new) {
                scheduler.wake.notify_one();
            }
        });
    }
    async move {
        let cx = &scheduler.cx;
        if cx.synced([cx.pods.synced()]).await.is_none() || cx.synced([cx.nodes.synced()]).await.is_none() {
            return;
        }
        while cx.cancel.run_until_cancelled(scheduler.cycle()).await.is_some() {}
    }
}

struct Scheduler {
    cx: Context,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    places: BTreeMap<String, Place>,
    /// What each bound or promised pod takes.
    taken: HashMap<Key, Taken>,
    pending: BTreeSet<Key>,
    /// Pods that were found not to fit, until something is freed.
    waiting: BTreeSet<Key>,
    begin: Begin,
}

struct Taken {
    uid: String,
    node: String,
    asked: Amounts,
    ports: Vec<(String, i32)>,
}

impl Taken {
    fn new(pod: &Pod, node: &str) -> Self {
        Taken {
            uid: pod.metadata.uid.clone(),
            node: node.to_owned(),
            asked: fit::requests(pod),
            ports: fit::host_ports(pod),
        }
    }
}

impl Scheduler {
    /// Waits for something to do, decides, and binds.
    async fn cycle(&self) {
        let decisions = self.decide();
        if decisions.is_empty() {
            self.wake.notified().await;
            return;
        }
        let results = futures::stream::iter(decisions)
            .map(|decision| async move {
                match decision {
                    Decision::Bind(key, node) => self.bind(key, node).await,
                    Decision::Wait(key, message) => self.report(key, message).await,
                }
            })
            .buffer_unordered(BINDERS)
            .collect::<Vec<Result<(), ApiError>>>()
            .await;
        let mut failed = false;
        for error in results.into_iter().filter_map(Result::err) {
            tracing::debug!(%error, "will schedule again");
            failed = true;
        }
        if failed {
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn decide(&self) -> Vec<Decision> {
        let mut state = self.lock();
        let keys: Vec<Key> = state.pending.difference(&state.waiting).cloned().collect();
        let pods: Vec<Arc<Pod>> =
            keys.iter().filter_map(|key| self.cx.pods.get(key)).filter(|p| waits_for_us(p)).collect();
        // What is no longer ours, or no longer there, is not pending.
        let ours: std::collections::HashSet<Key> = pods.iter().map(|p| p.key()).collect();
        for key in keys.iter().filter(|key| !ours.contains(*key)) {
            state.pending.remove(key);
        }
        if pods.is_empty() {
            return Vec::new();
        }
        let State { places, begin, .. } = &mut *state;
        // Pods that differ without end must not be remembered without end.
        if begin.len() > MOST_CLASSES {
            begin.clear();
        }
        let decisions = plan(&mut places.values_mut().collect::<Vec<_>>(), begin, pods.clone());
        let by_key: HashMap<Key, Arc<Pod>> = pods.into_iter().map(|p| (p.key(), p)).collect();
        for decision in &decisions {
            match decision {
                Decision::Bind(key, node) => {
                    if let Some(pod) = by_key.get(key) {
                        // The plan has entered it in the place.
                        state.taken.insert(key.clone(), Taken::new(pod, node));
                        state.pending.remove(key);
                    }
                }
                Decision::Wait(key, _) => {
                    state.waiting.insert(key.clone());
                }
            }
        }
        decisions
    }

    async fn bind(&self, key: Key, node: String) -> Result<(), ApiError> {
        let Some(pod) = self.cx.pods.get(&key) else {
            self.lock().give_back(&key);
            return Ok(());
        };
        let body = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.cx.api.create_sub::<Pod>(&key, "binding", &body).await {
            Ok(()) => {
                let message = format!("Successfully assigned {key} to {node}");
                self.cx.events.normal(&*pod, "Scheduled", message);
                Ok(())
            }
            Err(error) => {
                let mut state = self.lock();
                state.give_back(&key);
                // Gone, or bound by another; if it still waits, the store will say so.
                if !error.not_found() && self.cx.pods.get(&key).is_some_and(|p| waits_for_us(&p)) {
                    state.pending.insert(key);
                }
                if error.not_found() || error.conflict() { Ok(()) } else { Err(error) }
            }
        }
    }

    async fn report(&self, key: Key, message: String) -> Result<(), ApiError> {
        let Some(pod) = self.cx.pods.get(&key) else { return Ok(()) };
        self.cx.events.warning(&*pod, "FailedScheduling", message.clone());
        let old = condition(&pod.status.conditions, "PodScheduled");
        if old.is_some_and(|c| c.status == "False" && c.message == message) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [{
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": old
                .filter(|c| c.status == "False")
                .and_then(|c| c.last_transition_time)
                .map_or_else(|| stamp(self.cx.clock.now()), stamp),
        }]}});
        match self.cx.api.patch::<Pod>(&key, "status", Patch::Strategic, &patch).await {
            Ok(answer) => {
                self.cx.pods.enter(answer);
                Ok(())
            }
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Out: whether there may be something to do.
    fn pod_changed(&mut self, old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>) -> bool {
        let Some(key) = new.or(old).map(|p| p.key()) else { return false };
        let holds = |p: &&Arc<Pod>| !p.spec.node_name.is_empty() && !p.finished();
        match new {
            Some(pod) if waits_for_us(pod) => {
                let same = old.is_some_and(|o| o.metadata.uid == pod.metadata.uid && waits_for_us(o));
                // A promise is not a binding yet; the watch may still show the pod as it was.
                if self.taken.get(&key).is_some_and(|t| t.uid == pod.metadata.uid) {
                    return false;
                }
                if !same || old.is_some_and(|o| o.spec != pod.spec) {
                    self.waiting.remove(&key);
                }
                self.pending.insert(key)
            }
            _ => {
                self.pending.remove(&key);
                self.waiting.remove(&key);
                match new.filter(holds) {
                    Some(pod) => {
                        let known = self.taken.get(&key);
                        if known.is_none_or(|t| t.uid != pod.metadata.uid || t.node != pod.spec.node_name) {
                            self.give_back(&key);
                            self.take(&key, pod, &pod.spec.node_name);
                        }
                        false
                    }
                    None => self.give_back(&key),
                }
            }
        }
    }

    fn node_changed(&mut self, old: Option<&Arc<Node>>, new: Option<&Arc<Node>>) -> bool {
        let Some(node) = new else {
            if let Some(old) = old {
                self.places.remove(&old.metadata.name);
                self.begin.clear();
            }
            return false;
        };
        // Heartbeats change nothing that matters here.
        let same = old.is_some_and(|o| {
            o.spec == node.spec
                && o.metadata.labels == node.metadata.labels
                && o.status.allocatable == node.status.allocatable
                && o.metadata.deleting() == node.metadata.deleting()
        });
        let name = &node.metadata.name;
        if same && self.places.contains_key(name) {
            return false;
        }
        let mut place = Place::new(node.clone());
        match self.places.remove(name) {
            Some(old) => {
                place.used = old.used;
                place.ports = old.ports;
            }
            None => {
                for taken in self.taken.values().filter(|t| t.node == *name) {
                    place.used.add(&taken.asked);
                    place.ports.extend(taken.ports.iter().cloned());
                }
            }
        }
        self.places.insert(name.clone(), place);
        self.waiting.clear();
        self.begin.clear();
        true
    }

    fn take(&mut self, key: &Key, pod: &Pod, node: &str) {
        let taken = Taken::new(pod, node);
        if let Some(place) = self.places.get_mut(node) {
            place.used.add(&taken.asked);
            place.ports.extend(taken.ports.iter().cloned());
        }
        self.taken.insert(key.clone(), taken);
    }

    /// Out: whether anything was freed, which those who wait may use.
    fn give_back(&mut self, key: &Key) -> bool {
        let Some(taken) = self.taken.remove(key) else { return false };
        if let Some(place) = self.places.get_mut(&taken.node) {
            place.used.sub(&taken.asked);
            for port in &taken.ports {
                place.ports.remove(port);
            }
        }
        self.waiting.clear();
        self.begin.clear();
        !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, phase: &str) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name},
                "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "2"}}}]},
                "status": {"phase": phase},
            }))
            .unwrap(),
        )
    }

    fn node(cpu: &str) -> Arc<Node> {
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu}}}),
            )
            .unwrap(),
        )
    }

    #[test]
    fn the_books_balance() {
        let mut state = State::default();
        let used = |state: &State| state.places["n"].used.get("cpu");
        let (bound, done) = (pod("a", "n", "Running"), pod("a", "n", "Succeeded"));
        state.pod_changed(None, Some(&bound));
        state.node_changed(None, Some(&node("4")));
        assert_eq!(used(&state), 2000, "a pod may be seen before its node");
        state.pod_changed(Some(&bound), Some(&bound));
        state.node_changed(Some(&node("4")), Some(&node("8")));
        assert_eq!(used(&state), 2000, "nothing is counted twice");
        let free = pod("b", "", "Pending");
        assert!(state.pod_changed(None, Some(&free)));
        state.waiting.insert(free.key());
        assert!(state.pod_changed(Some(&bound), Some(&done)), "those who wait are tried again");
        assert_eq!(used(&state), 0);
        assert!(state.waiting.is_empty());
        assert!(!state.pod_changed(Some(&done), None));
    }
}
