//! T9k's gangs and queues, `scheduler.tensorstack.dev/v1beta1`.

use crate::common::meta::LabelSelector;
use crate::common::{ObjectMeta, ResourceList, Rest, Time};
use crate::schema::LONG_DURATION;
use muster_api_derive::Api;

/// Pods that are scheduled together. Pods join with the label `scheduler.tensorstack.dev/group-name`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduler.tensorstack.dev",
    version = "v1beta1",
    plural = "podgroups",
    status,
    column("MinMember", ".spec.minMember" as integer),
    column("Queue", ".spec.queue" as string),
    column("Priority", ".spec.priority" as integer),
    column("Running", ".status.running" as integer),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct PodGroup {
    pub metadata: ObjectMeta,
    pub spec: Option<PodGroupSpec>,
    pub status: Option<PodGroupStatus>,
    pub rest: Rest,
}

/// What a gang needs before any of its pods is placed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSpec {
    /// How many pods must have joined, and must fit together, before any is placed.
    #[api(range(0..))]
    pub min_member: Option<i32>,
    /// Minimums for each role, all of which must hold besides `minMember`.
    #[api(list(map("name")))]
    pub roles: Option<Vec<Role>>,
    /// The queue that pays for the pods.
    #[api(default = "default")]
    pub queue: Option<String>,
    /// Order inside the queue: higher goes first, then the older.
    #[api(default = 0, range(0..=100))]
    pub priority: Option<i32>,
    /// How pods should be laid out over the topology. The values are not documented.
    pub topology_policy: Option<String>,
    pub rest: Rest,
}

/// A role and how many pods of it the gang needs. Pods name theirs with the label
/// `scheduler.tensorstack.dev/role`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Role {
    pub name: String,
    #[api(range(0..))]
    pub min_member: Option<i32>,
    pub rest: Rest,
}

/// What became of a gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupStatus {
    /// `SufficientGroupMember` and `GroupScheduled`.
    #[api(list(map("type")))]
    pub conditions: Option<Vec<SchedulerCondition>>,
    /// What the pods of the gang hold.
    pub allocated: Option<ResourceList>,
    pub pending: Option<i32>,
    pub running: Option<i32>,
    pub succeeded: Option<i32>,
    pub failed: Option<i32>,
    pub unknown: Option<i32>,
    pub rest: Rest,
}

/// A condition of a pod group or a queue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulerCondition {
    pub r#type: String,
    pub status: Option<String>,
    /// Identifies one change of the condition.
    #[api(rename = "transitionID")]
    pub transition_id: Option<String>,
    pub last_transition_time: Option<Time>,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub rest: Rest,
}

/// A share of the cluster with a ceiling, a priority and a say over who may use it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduler.tensorstack.dev",
    version = "v1beta1",
    plural = "queues",
    short("q"),
    status,
    column("Priority", ".spec.priority" as integer),
    column("Preemptible", ".spec.preemptible" as boolean),
    column("Closed", ".spec.closed" as boolean),
    column("PodGroups", ".status.podGroups.total" as integer),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct Queue {
    pub metadata: ObjectMeta,
    pub spec: Option<QueueSpec>,
    pub status: Option<QueueStatus>,
    pub rest: Rest,
}

/// What a queue may use, and who may use the queue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueSpec {
    /// The ceiling.
    pub quota: Option<QuotaRequirements>,
    /// Queues with a higher priority are served first and may take from preemptible queues with a lower one.
    #[api(default = 0, range(0..=100))]
    pub priority: Option<i32>,
    /// Whether other queues may take from this one; absent means yes.
    pub preemptible: Option<bool>,
    /// A closed queue takes no new work.
    pub closed: Option<bool>,
    /// How long a pod may live, counted from its creation: `1w2d`, `90m`.
    #[api(pattern = LONG_DURATION)]
    pub max_duration: Option<String>,
    /// Name of the profile that limits the size of a workload; an unknown name limits nothing.
    pub resource_shape_profile: Option<String>,
    /// The nodes that the queue may use; absent means all.
    pub node_selector: Option<LabelSelector>,
    /// The namespaces that may use the queue; absent or empty means none.
    pub namespace_selector: Option<LabelSelector>,
    pub rest: Rest,
}

/// The ceiling of a queue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QuotaRequirements {
    /// The most that the requests of the queue's pods may sum up to; limits are not counted.
    pub requests: Option<ResourceList>,
    pub rest: Rest,
}

/// What a queue holds.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueStatus {
    pub allocated: Option<ResourceList>,
    /// `QueueClosed` and `ResourcePressure`.
    #[api(list(map("type")))]
    pub conditions: Option<Vec<SchedulerCondition>>,
    pub pod_groups: Option<PodGroupsInQueue>,
    pub pods: Option<PodsInQueue>,
    pub rest: Rest,
}

/// How many gangs a queue holds.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupsInQueue {
    /// A pod that names a queue and no gang counts as one.
    pub total: Option<i32>,
    pub rest: Rest,
}

/// How many pods a queue holds, by phase.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodsInQueue {
    pub pending: Option<i32>,
    pub running: Option<i32>,
    pub succeeded: Option<i32>,
    pub failed: Option<i32>,
    pub unknown: Option<i32>,
    pub rest: Rest,
}
