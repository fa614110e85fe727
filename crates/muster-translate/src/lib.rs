//! Kubernetes objects to the model, and schedulers' settings to its policy.
//!
//! In: objects as JSON, of every kind that scheduling looks at; other kinds are ignored. Out: a [`Cluster`], or the
//! [`muster_model::Change`]s to one, and a [`Diagnostic`] for whatever in the input makes no sense. [`cluster`] takes a whole
//! snapshot; [`Translator`] takes one object after the other, as watches deliver them. [`kai::policy`] reads settings.
//!
//! ```
//! use muster_translate::{Settings, cluster};
//! use serde_json::json;
//!
//! let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
//!     "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "many"}}});
//! let (cluster, diagnostics) = cluster(&[node], &Settings::default());
//! assert_eq!(cluster.nodes.len(), 1);
//! assert_eq!(
//!     diagnostics[0].to_string(),
//!     r#"Node a: status.allocatable[nvidia.com/gpu]: "many" is no quantity; write one like 2, 500m or 16Gi"#,
//! );
//! ```
//!
//! # What must stay true
//!
//! - No input fails, panics or costs more than in proportion to its size. What cannot be used is left out and named.
//! - The same objects give the same cluster, whatever the order in which they came.
//! - Pods that ask for the same share one [`muster_model::Shape`].
//!
//! *Invariant:* no I/O, no clock, no client types.

pub mod kai;
pub mod koordinator;
pub mod kueue;
pub mod volcano;

mod settings;
mod translator;

mod dialects;
mod gang;
mod node;
mod pod;
mod podgang;
mod policies;
mod queue;
mod request;

mod t9k;
mod workload;

mod cel;
mod device;

mod links;
mod numa;
mod volume;

mod intern;
mod read;
mod select;
mod text;

pub use podgang::POD_GANG;
pub use settings::Settings;
pub use translator::{Kind, Translator};

use muster_model::{Change, Cluster, Diagnostic};
use serde_json::Value;
use std::collections::BTreeMap;

/// A whole snapshot at once. Lists in the result are sorted by name.
pub fn cluster(objects: &[Value], settings: &Settings) -> (Cluster, Vec<Diagnostic>) {
    let mut translator = Translator::new(settings.clone());
    for object in objects {
        translator.put(object);
    }
    let (changes, mut diagnostics) = translator.drain();
    diagnostics.sort();
    diagnostics.dedup();
    let mut cluster = Cluster { now: settings.now, ..Cluster::default() };
    apply(&mut cluster, changes);
    (cluster, diagnostics)
}

/// Applies changes to a cluster, whose lists come out sorted by name.
pub fn apply(cluster: &mut Cluster, changes: Vec<Change>) {
    let taken = std::mem::take(cluster);
    let mut nodes: BTreeMap<_, _> = taken.nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
    let mut pods: BTreeMap<_, _> = taken.pods.into_iter().map(|p| (p.key.clone(), p)).collect();
    let mut gangs: BTreeMap<_, _> = taken.gangs.into_iter().map(|g| (g.key.clone(), g)).collect();
    let mut queues: BTreeMap<_, _> = taken.queues.into_iter().map(|q| (q.name.clone(), q)).collect();
    let mut topologies: BTreeMap<_, _> = taken.topologies.into_iter().map(|t| (t.name.clone(), t)).collect();
    let mut devices: BTreeMap<_, _> = taken.devices.into_iter().map(|d| (d.name.clone(), d)).collect();
    let mut claims: BTreeMap<_, _> = taken.claims.into_iter().map(|c| (c.key.clone(), c)).collect();
    let mut budgets: BTreeMap<_, _> = taken.budgets.into_iter().map(|b| (b.key.clone(), b)).collect();
    let mut quotas: BTreeMap<_, _> = taken.quotas.into_iter().map(|q| (q.key.clone(), q)).collect();
    for change in changes {
        match change {
            Change::PutNode(node) => drop(nodes.insert(node.name.clone(), node)),
            Change::DropNode(name) => drop(nodes.remove(&name)),
            Change::PutPod(pod) => drop(pods.insert(pod.key.clone(), pod)),
            Change::DropPod(key) => drop(pods.remove(&key)),
            Change::PutGang(gang) => drop(gangs.insert(gang.key.clone(), gang)),
            Change::DropGang(key) => drop(gangs.remove(&key)),
            Change::PutQueue(queue) => drop(queues.insert(queue.name.clone(), queue)),
            Change::DropQueue(name) => drop(queues.remove(&name)),
            Change::PutTopology(topology) => drop(topologies.insert(topology.name.clone(), topology)),
            Change::DropTopology(name) => drop(topologies.remove(&name)),
            Change::PutDevice(device) => drop(devices.insert(device.name.clone(), device)),
            Change::DropDevice(name) => drop(devices.remove(&name)),
            Change::PutClaim(claim) => drop(claims.insert(claim.key.clone(), claim)),
            Change::DropClaim(key) => drop(claims.remove(&key)),
            Change::PutBudget(budget) => drop(budgets.insert(budget.key.clone(), budget)),
            Change::DropBudget(key) => drop(budgets.remove(&key)),
            Change::PutQuota(quota) => drop(quotas.insert(quota.key.clone(), quota)),
            Change::DropQuota(key) => drop(quotas.remove(&key)),
        }
    }
    *cluster = Cluster {
        now: taken.now,
        nodes: nodes.into_values().collect(),
        pods: pods.into_values().collect(),
        gangs: gangs.into_values().collect(),
        queues: queues.into_values().collect(),
        topologies: topologies.into_values().collect(),
        devices: devices.into_values().collect(),
        claims: claims.into_values().collect(),
        budgets: budgets.into_values().collect(),
        quotas: quotas.into_values().collect(),
    };
}
