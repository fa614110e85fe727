//! KAI's scheduling objects, `scheduling.run.ai`: PodGroup (v2alpha2), Queue (v2) and BindRequest (v1alpha2).

use crate::common::device::{AllocationResult, DeviceRequest};
use crate::common::{Duration, Number, ObjectMeta, ResourceList, Rest, Time, string_enum};
use crate::schema::DNS_LABEL;
use muster_api_derive::Api;

/// A gang: pods that are placed together, as a tree of subgroups with minimums.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "scheduling.run.ai", version = "v2alpha2", plural = "podgroups", short("pg"), status)]
pub struct PodGroup {
    pub metadata: ObjectMeta,
    pub spec: Option<PodGroupSpec>,
    pub status: Option<PodGroupStatus>,
    pub rest: Rest,
}

/// What a gang needs, and which queue pays for it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSpec {
    /// How many pods must be placed together. Not together with `minSubGroup`.
    #[api(range(0..))]
    pub min_member: Option<i32>,
    /// Whether pods that do not fit are marked so, which wakes autoscalers; yes unless given.
    pub mark_unschedulable: Option<bool>,
    /// How many of the top subgroups must be placed together.
    #[api(range(0..))]
    pub min_sub_group: Option<i32>,
    /// Whether the gang may be preempted; by its priority unless given: below 100 it may.
    pub preemptibility: Option<Preemptibility>,
    /// How long the gang waits before it preempts others.
    pub preemption_delay: Option<Duration>,
    /// Priority inside the queue.
    pub priority_class_name: Option<String>,
    /// The queue that pays for the pods.
    pub queue: Option<String>,
    /// `-1` tries again in every cycle, `1` tries once in each node pool.
    pub scheduling_backoff: Option<i32>,
    /// How long a gang may run below its minimum before it is evicted; negative means for ever.
    pub staleness_grace_period: Option<Duration>,
    /// The subgroups; one without children is made of pods.
    pub sub_groups: Option<Vec<SubGroup>>,
    /// Where the whole gang must be placed together.
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

string_enum! {
    /// Whether a gang may be preempted. One that may not has to fit into its queue's quota.
    pub enum Preemptibility { Preemptible = "preemptible", NonPreemptible = "non-preemptible" }
}

/// A part of a gang: pods, or further subgroups.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SubGroup {
    #[api(pattern = DNS_LABEL, len(1..))]
    pub name: String,
    /// How many pods of a subgroup without children are needed.
    #[api(range(0..))]
    pub min_member: Option<i32>,
    /// How many of the children are needed; all unless given.
    #[api(range(0..))]
    pub min_sub_group: Option<i32>,
    /// The subgroup around this one; absent at the top.
    #[api(pattern = DNS_LABEL)]
    pub parent: Option<String>,
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

/// Where pods are placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyConstraint {
    /// All pods in one domain of this level, if that can be had.
    pub preferred_topology_level: Option<String>,
    /// All pods in one domain of this level, or none is placed.
    pub required_topology_level: Option<String>,
    /// The Topology that names the levels.
    pub topology: Option<String>,
    pub rest: Rest,
}

/// What a gang holds, and why it waits.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupStatus {
    pub conditions: Option<Vec<PodGroupCondition>>,
    pub resources_status: Option<PodGroupResourcesStatus>,
    /// Why the gang does not fit, for each node pool.
    pub scheduling_conditions: Option<Vec<SchedulingCondition>>,
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

/// What the gang asks for and holds.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupResourcesStatus {
    pub allocated: Option<ResourceList>,
    pub allocated_non_preemptible: Option<ResourceList>,
    pub requested: Option<ResourceList>,
    pub rest: Rest,
}

/// Why a gang does not fit in one node pool.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulingCondition {
    pub r#type: Option<String>,
    pub last_transition_time: Option<Time>,
    pub message: Option<String>,
    pub node_pool: Option<String>,
    pub reason: Option<String>,
    pub reasons: Option<Vec<UnschedulableExplanation>>,
    pub status: Option<String>,
    #[api(rename = "transitionID")]
    pub transition_id: Option<String>,
    pub rest: Rest,
}

/// One reason why a gang waits.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UnschedulableExplanation {
    pub details: Option<UnschedulableExplanationDetails>,
    pub message: Option<String>,
    pub reason: Option<String>,
    pub rest: Rest,
}

/// The numbers behind a reason.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UnschedulableExplanationDetails {
    pub queue_details: Option<QuotaDetails>,
    pub rest: Rest,
}

/// A queue's numbers at the time of the refusal.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QuotaDetails {
    pub name: Option<String>,
    pub pod_group_requested_non_preemptible_resources: Option<ResourceList>,
    pub pod_group_requested_resources: Option<ResourceList>,
    pub queue_allocated_non_preemptible_resources: Option<ResourceList>,
    pub queue_allocated_resources: Option<ResourceList>,
    pub queue_deserved_resources: Option<ResourceList>,
    pub queue_requested_resources: Option<ResourceList>,
    pub queue_resource_limits: Option<ResourceList>,
    pub rest: Rest,
}

/// A node of the queue tree: a share of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.run.ai",
    version = "v2",
    plural = "queues",
    cluster,
    status,
    column("Priority", ".spec.priority" as string),
    column("Parent", ".spec.parentQueue" as string),
    column("Children", ".status.childQueues" as string),
    column("DisplayName", ".spec.displayName" as string)
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
    pub display_name: Option<String>,
    /// The queue above; absent at the top.
    pub parent_queue: Option<String>,
    /// How long a gang runs before a gang of the same queue may preempt it; that of the queue above unless
    /// given.
    pub preempt_min_runtime: Option<Duration>,
    /// Queues with a higher priority get what is left over first; 100 unless given.
    #[api(unformatted)]
    pub priority: Option<i64>,
    /// How long a gang runs before another queue may reclaim from it; that of the queue above unless given.
    pub reclaim_min_runtime: Option<Duration>,
    /// Quota, limit and weight for each resource. A resource that is left out has none of either.
    pub resources: Option<QueueResources>,
    pub rest: Rest,
}

/// Entitlements: `cpu` in thousandths of a core, `memory` in millions of bytes, `gpu` in devices.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueResources {
    pub cpu: Option<QueueResource>,
    pub gpu: Option<QueueResource>,
    pub memory: Option<QueueResource>,
    pub rest: Rest,
}

/// Entitlement to one resource.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueResource {
    /// The most that it may hold; `-1` means no bound.
    pub limit: Option<Number>,
    /// Its part of what others leave unused.
    pub over_quota_weight: Option<Number>,
    /// What the queue is guaranteed; `-1` means no bound.
    pub quota: Option<Number>,
    pub rest: Rest,
}

/// What the queue and those below it ask for and hold.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueStatus {
    pub allocated: Option<ResourceList>,
    pub allocated_non_preemptible: Option<ResourceList>,
    pub child_queues: Option<Vec<String>>,
    pub conditions: Option<Vec<QueueCondition>>,
    pub requested: Option<ResourceList>,
    pub rest: Rest,
}

/// One aspect of a queue's state.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueCondition {
    pub r#type: String,
    pub last_probe_time: Option<Time>,
    pub last_transition_time: Option<Time>,
    pub message: Option<String>,
    pub reason: Option<String>,
    pub status: String,
    pub rest: Rest,
}

/// The decision to run a pod on a node, which the binder carries out.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "scheduling.run.ai", version = "v1alpha2", plural = "bindrequests", status)]
pub struct BindRequest {
    pub metadata: ObjectMeta,
    pub spec: Option<BindRequestSpec>,
    pub status: Option<BindRequestStatus>,
    pub rest: Rest,
}

/// Where the pod goes, and what it gets there.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct BindRequestSpec {
    /// How often to try before the request has failed.
    pub backoff_limit: Option<i32>,
    pub extended_resource_claim_allocation: Option<ExtendedResourceClaimAllocation>,
    /// The pod, in the namespace of the request.
    pub pod_name: Option<String>,
    #[api(rename = "predictedNUMAZones")]
    pub predicted_numa_zones: Option<Vec<NumaZoneAmount>>,
    #[api(rename = "receivedGPU")]
    pub received_gpu: Option<ReceivedGpu>,
    /// `Regular`, `Fraction` or `MigInstance`.
    pub received_resource_type: Option<String>,
    pub resource_claim_allocations: Option<Vec<ResourceClaimAllocation>>,
    /// The shared GPUs that the pod joins.
    #[api(rename = "selectedGPUGroups")]
    pub selected_gpu_groups: Option<Vec<String>>,
    /// The node.
    pub selected_node: Option<String>,
    pub rest: Rest,
}

/// Devices that stand behind an extended resource of the pod.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ExtendedResourceClaimAllocation {
    pub allocation: Option<AllocationResult>,
    pub container_mappings: Option<Vec<ContainerExtendedResourceRequest>>,
    pub device_requests: Option<Vec<DeviceRequest>>,
    pub rest: Rest,
}

/// The part of the claim that a container's extended resource stands for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ContainerExtendedResourceRequest {
    pub container_name: String,
    pub request_name: String,
    pub resource_name: String,
    pub rest: Rest,
}

/// What is expected to be taken from one NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NumaZoneAmount {
    pub amount: ResourceList,
    pub zone: String,
    pub rest: Rest,
}

/// How many GPUs the pod gets, and which portion of each.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReceivedGpu {
    #[api(unformatted)]
    pub count: Option<i64>,
    pub portion: Option<String>,
    pub rest: Rest,
}

/// What is allocated to one of the pod's claims.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceClaimAllocation {
    pub name: Option<String>,
    pub allocation: Option<AllocationResult>,
    pub rest: Rest,
}

/// Whether the pod was bound.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct BindRequestStatus {
    pub failed_attempts: Option<i32>,
    pub phase: Option<BindRequestPhase>,
    pub reason: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// How far a bind request is.
    pub open enum BindRequestPhase { Pending, Succeeded, Failed }
}
