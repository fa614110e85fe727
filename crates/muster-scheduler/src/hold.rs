//! Places held for pods to come: an admission layer asks whether a workload would fit before it lets it start.
//!
//! In: pods as they will be started. Out: a yes, and the place is held by a gang that stands in for them; or a no, and why. When the real pods are
//! there ([`WORKLOAD`] says whose they are), the stand-ins make way and the pods are told to go where these were. Must stay true: nobody is evicted or moved for
//! a stand-in, and no stand-in for anybody; what is neither taken nor given back stays held. No stand-in is ever written to the cluster: after a restart
//! the admission layer asks again.

use crate::ingest::Input;
use muster_model::{Key, Name};
use muster_translate::Settings;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

/// The annotation of a pod that names the workload whose place it takes.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// What names of stand-ins begin with; no object has such a name.
pub const PREFIX: &str = "hold/";
/// Longer than anybody waits: stand-ins never cause evictions.
const NEVER: &str = "876000h";

/// Pods to come.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The workload.
    pub name: Key,
    pub uid: String,
    pub sets: Vec<HoldSet>,
}

/// Pods of one template.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldSet {
    pub count: u32,
    /// As they will be started: labels, annotations and spec of a pod.
    pub template: Value,
}

/// No more pods than this are stood in for: an answer must not cost more than the question is worth.
const MOST_PODS: usize = 100_000;

/// What is asked: the ends that an admission layer and a scheduler hold.
#[derive(Clone, Default)]
pub struct Holds(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inputs: Mutex<Option<UnboundedSender<Input>>>,
    asking: Mutex<BTreeMap<Key, oneshot::Sender<Result<(), String>>>>,
    cycles: watch::Sender<u64>,
}

impl std::fmt::Debug for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holds")
    }
}

impl Holds {
    /// Asks for a place, which is held if there is one. Asked again for the same workload, the answer replaces the one before.
    pub async fn hold(&self, hold: Hold) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        lock(&self.0.asking).insert(hold.name.clone(), answer);
        self.send(Input::Hold(hold));
        answered.await.unwrap_or_else(|_| Err("the scheduler does not run, or was asked again".into()))
    }

    /// The place is no longer wanted. Nothing happens if none is held.
    pub fn give_back(&self, workload: &Key) {
        lock(&self.0.asking).remove(workload);
        self.send(Input::GiveBack(workload.clone()));
    }

    /// Waits until there may be more room than before.
    pub async fn changed(&self) {
        let mut cycles = self.0.cycles.subscribe();
        // The sender lives as long as this does.
        let _ = cycles.changed().await;
    }

    /// A scheduler answers from now on.
    pub(crate) fn attach(&self, inputs: UnboundedSender<Input>) {
        *lock(&self.0.inputs) = Some(inputs);
    }

    /// A cycle is over: these were answered.
    pub(crate) fn answer(&self, answers: Vec<(Key, Result<(), String>)>, changed: bool) {
        for (workload, answer) in answers {
            if let Some(asked) = lock(&self.0.asking).remove(&workload) {
                // Whoever asked may have given up.
                let _ = asked.send(answer);
            }
        }
        if changed {
            self.0.cycles.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    fn send(&self, input: Input) {
        if let Some(inputs) = &*lock(&self.0.inputs) {
            // The receiver goes away only when everything ends.
            let _ = inputs.send(input);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gang that stands in for a workload's pods.
pub fn gang_of(workload: &Key) -> Key {
    Key::new(workload.namespace.clone(), format!("{PREFIX}{}", workload.name))
}

pub fn is_stand_in(gang: &Key) -> bool {
    gang.name.starts_with(PREFIX)
}

/// The queues that stand-ins are in: beside all others, without bounds.
pub fn queues(settings: &Settings) -> [Value; 2] {
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let resources = json!({"gpu": unlimited, "cpu": unlimited, "memory": unlimited});
    let mut queues = [
        json!({"metadata": {"name": format!("{PREFIX}root")}, "spec": {"resources": resources}}),
        json!({"metadata": {"name": format!("{PREFIX}queue")},
            "spec": {"parentQueue": format!("{PREFIX}root"), "resources": resources}}),
    ];
    for queue in &mut queues {
        pool(queue, settings);
    }
    queues
}

/// The group and the pods that stand in for a workload.
pub fn objects(hold: &Hold, settings: &Settings) -> (Value, Vec<Value>) {
    let Key { namespace, name } = &gang_of(&hold.name);
    let scheduler: Name = settings
        .scheduler_names
        .iter()
        .find(|name| settings.dialect(name) == muster_model::Dialect::Kai)
        .cloned()
        .unwrap_or_else(|| "kai-scheduler".into());
    let mut pods = Vec::new();
    for set in &hold.sets {
        for _ in 0..(set.count as usize).min(MOST_PODS.saturating_sub(pods.len())) {
            let n = pods.len();
            let mut pod = json!({
                "metadata": {"namespace": &**namespace, "name": format!("{name}/{n}"), "uid": format!("{PREFIX}{}/{n}", hold.uid)},
                "spec": set.template["spec"],
                "status": {"phase": "Pending"},
            });
            for part in ["labels", "annotations"] {
                if set.template["metadata"][part].is_object() {
                    pod["metadata"][part] = set.template["metadata"][part].clone();
                }
            }
            pod["metadata"]["annotations"]["pod-group-name"] = json!(&**name);
            pod["spec"]["schedulerName"] = json!(&*scheduler);
            // What holds pods back before they are admitted does not matter here.
            if let Some(spec) = pod["spec"].as_object_mut() {
                spec.remove("schedulingGates");
                spec.remove("nodeName");
            }
            pods.push(pod);
        }
    }
    let mut group = json!({
        "metadata": {"namespace": &**namespace, "name": &**name, "uid": format!("{PREFIX}{}", hold.uid)},
        "spec": {
            "minMember": pods.len(),
            "queue": format!("{PREFIX}queue"),
            "preemptibility": "non-preemptible",
            "preemptionDelay": NEVER,
        },
    });
    pool(&mut group, settings);
    (group, pods)
}

/// Says that an object is of the pool that this scheduler looks after.
fn pool(object: &mut Value, settings: &Settings) {
    if let Some(value) = &settings.pool.value {
        let label = settings.pool.label.as_ref().unwrap_or(&settings.node_pool_label);
        object["metadata"]["labels"][&**label] = json!(&**value);
    }
}
