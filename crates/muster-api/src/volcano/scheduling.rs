//! Volcano's gangs and queues, `scheduling.volcano.sh/v1beta1`.

use crate::common::meta::LabelSelector;
use crate::common::{ObjectMeta, ResourceList, Rest, Time, string_enum};
use muster_api_derive::Api;
use std::collections::BTreeMap;

/// A gang: pods that are placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.volcano.sh",
    version = "v1beta1",
    plural = "podgroups",
    short("pg", "podgroup-v1beta1"),
    column("STATUS", ".status.phase" as string),
    column("minMember", ".spec.minMember" as integer),
    column("RUNNINGS", ".status.running" as integer),
    column("AGE", ".metadata.creationTimestamp" as date),
    column("QUEUE", ".spec.queue" as string, wide)
)]
pub struct PodGroup {
    pub metadata: ObjectMeta,
    pub spec: Option<PodGroupSpec>,
    pub status: Option<PodGroupStatus>,
    pub rest: Rest,
}

/// What a gang needs, and which queue pays for it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSpec {
    /// How many pods must be placed together.
    #[api(range(0..))]
    pub min_member: Option<i32>,
    /// What must be free before the gang enters the queue.
    pub min_resources: Option<ResourceList>,
    /// How many pods of each task.
    pub min_task_member: Option<BTreeMap<String, i32>>,
    /// How close together the pods must be placed.
    pub network_topology: Option<NetworkTopologySpec>,
    /// Priority of the gang.
    #[api(len(..=253))]
    pub priority_class_name: Option<String>,
    /// The queue that pays for the pods.
    #[api(default = "default", dns_subdomain)]
    pub queue: Option<String>,
    /// Pods in subgroups that are placed together.
    pub sub_group_policy: Option<Vec<SubGroupPolicySpec>>,
    pub rest: Rest,
}

/// How close together pods must be placed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NetworkTopologySpec {
    /// The highest tier of hyper nodes that the pods may span.
    #[api(range(0..), unformatted)]
    pub highest_tier_allowed: Option<i64>,
    /// The same by the tier's name.
    #[api(len(..=253))]
    pub highest_tier_name: Option<String>,
    /// Whether pods wait until they can be placed that close.
    #[api(default = "hard")]
    pub mode: Option<NetworkTopologyMode>,
    pub rest: Rest,
}

string_enum! {
    /// `hard` waits, `soft` does what it can.
    pub enum NetworkTopologyMode { Hard = "hard", Soft = "soft" }
}

/// Pods in subgroups, told apart by labels.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SubGroupPolicySpec {
    #[api(len(..=253))]
    pub name: Option<String>,
    pub label_selector: Option<LabelSelector>,
    #[api(list(atomic))]
    pub match_label_keys: Option<Vec<String>>,
    #[api(default = 0, range(0..))]
    pub min_sub_groups: Option<i32>,
    pub network_topology: Option<NetworkTopologySpec>,
    #[api(default = 1, range(1..))]
    pub sub_group_size: Option<i32>,
    pub rest: Rest,
}

/// What became of the gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupStatus {
    pub conditions: Option<Vec<PodGroupCondition>>,
    #[api(range(0..))]
    pub failed: Option<i32>,
    pub phase: Option<PodGroupPhase>,
    #[api(range(0..))]
    pub running: Option<i32>,
    #[api(range(0..))]
    pub succeeded: Option<i32>,
    pub rest: Rest,
}

/// One aspect of a gang's state.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupCondition {
    pub r#type: Option<String>,
    pub last_transition_time: Option<Time>,
    pub message: Option<String>,
    pub reason: Option<String>,
    pub status: Option<String>,
    #[api(rename = "transitionID")]
    pub transition_id: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// Where a gang is in its life.
    pub enum PodGroupPhase { Pending, Running, Unknown, Inqueue, Completed }
}

/// A share of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.volcano.sh",
    version = "v1beta1",
    plural = "queues",
    short("q", "queue-v1beta1"),
    cluster,
    status,
    column("PARENT", ".spec.parent" as string)
)]
pub struct Queue {
    pub metadata: ObjectMeta,
    pub spec: Option<QueueSpec>,
    pub status: Option<QueueStatus>,
    pub rest: Rest,
}

/// What a queue is entitled to.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueSpec {
    #[api(len(..=253))]
    pub r#type: Option<String>,
    /// Which groups of nodes it uses.
    pub affinity: Option<QueueAffinity>,
    /// The most that it may hold.
    pub capability: Option<ResourceList>,
    /// Whether a gang that does not fit holds back those behind it.
    #[api(default = "traverse")]
    pub dequeue_strategy: Option<DequeueStrategy>,
    /// What it gets when the cluster is contended.
    pub deserved: Option<ResourceList>,
    pub extend_clusters: Option<Vec<ClusterSpec>>,
    /// What is kept free for it.
    pub guarantee: Option<Guarantee>,
    /// The queue above; `root` unless given.
    #[api(dns_subdomain)]
    pub parent: Option<String>,
    /// Queues with a higher priority go first and give back last.
    #[api(range(0..))]
    pub priority: Option<i32>,
    /// Whether other queues may take back what it holds beyond its share.
    pub reclaimable: Option<bool>,
    /// Its part of the cluster relative to other queues.
    #[api(default = 1, range(1..=65535))]
    pub weight: Option<i32>,
    pub rest: Rest,
}

/// Which groups of nodes a queue uses and avoids.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueAffinity {
    pub node_group_affinity: Option<NodeGroupAffinity>,
    pub node_group_anti_affinity: Option<NodeGroupAffinity>,
    pub rest: Rest,
}

/// Groups of nodes that are required or preferred.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodeGroupAffinity {
    pub preferred_during_scheduling_ignored_during_execution: Option<Vec<String>>,
    pub required_during_scheduling_ignored_during_execution: Option<Vec<String>>,
    pub rest: Rest,
}

string_enum! {
    /// Strictly in order, or past those that do not fit.
    pub enum DequeueStrategy { Fifo = "fifo", Traverse = "traverse" }
}

/// A further cluster that the queue may use.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterSpec {
    pub name: Option<String>,
    pub capacity: Option<ResourceList>,
    pub weight: Option<i32>,
    pub rest: Rest,
}

/// What is kept free for a queue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Guarantee {
    pub resource: Option<ResourceList>,
    pub rest: Rest,
}

/// What a queue holds, and how many gangs are in which phase.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueStatus {
    pub allocated: Option<ResourceList>,
    #[api(range(0..))]
    pub completed: Option<i32>,
    #[api(range(0..))]
    pub inqueue: Option<i32>,
    #[api(range(0..))]
    pub pending: Option<i32>,
    pub reservation: Option<QueueReservation>,
    #[api(range(0..))]
    pub running: Option<i32>,
    pub state: Option<QueueState>,
    #[api(range(0..))]
    pub unknown: Option<i32>,
    pub rest: Rest,
}

/// Nodes that are locked for a queue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueReservation {
    pub nodes: Option<Vec<String>>,
    pub resource: Option<ResourceList>,
    pub rest: Rest,
}

string_enum! {
    /// Whether a queue takes gangs.
    pub enum QueueState { Open, Closed, Closing, Unknown }
}
