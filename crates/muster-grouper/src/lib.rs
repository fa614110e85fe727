//! The pod grouper: pods that belong together get one PodGroup.
//!
//! In: pods that name one of our schedulers, and the objects that own them, of whatever kind. Out: a PodGroup per gang,
//! and on each pod the annotation that names it (and the label of its sub-group, where the gang has some). [`group()`] is
//! the pure heart, for whoever wants to know the group of a pod; [`start`] is the service.
//!
//! *Invariant:* the service writes a PodGroup before it writes to a pod that belongs to it; a pod that is told at its creation
//! ([`Foresight`]) waits for its group like any other. *Invariant:* one create per gang and one patch
//! per pod; what is right already is not written. *Invariant:* a kind that owns no pod of ours costs nothing.
//! *Absent on purpose:* decisions on placement, and any knowledge of which kinds are installed.

pub mod chain;
pub mod defaults;
pub mod group;
pub mod keys;
pub mod kinds;
pub mod plan;

mod owners;
mod run;

pub use chain::{Owner, Reference};
pub use defaults::Defaults;
pub use group::{Grouping, GroupingError, Leave, Want, World, group};
pub use run::{Foresight, Member, start, start_with_foresight};

use muster_runtime::object::Strings;

/// The settings of the grouper; the defaults are KAI's.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Pods that name one of these as their scheduler are grouped.
    pub scheduler_names: Vec<String>,
    /// The label that names the queue.
    pub queue_label: String,
    /// The label that names the pool of nodes.
    pub node_pool_label: String,
    /// The queue of workloads that name none.
    pub default_queue: String,
    /// The pods of a Knative revision are one gang.
    pub knative_gang: bool,
    /// The ConfigMap (namespace, name) with defaults by kind of workload, under the key `types`.
    pub default_priorities: Option<(String, String)>,
    /// Pods whose group older versions of KAI made per pod stay in it.
    pub search_legacy_pod_groups: bool,
    /// Only pods with all these labels.
    pub pod_labels: Strings,
    /// Only pods in namespaces with all these labels.
    pub namespace_labels: Strings,
    /// How many pods are worked on at a time.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            scheduler_names: vec!["kai-scheduler".into(), "muster-scheduler".into()],
            queue_label: keys::QUEUE.into(),
            node_pool_label: keys::NODE_POOL.into(),
            default_queue: "default-queue".into(),
            knative_gang: true,
            default_priorities: None,
            search_legacy_pod_groups: false,
            pod_labels: Strings::new(),
            namespace_labels: Strings::new(),
            workers: 32,
        }
    }
}
