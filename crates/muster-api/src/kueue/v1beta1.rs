//! Kueue, `kueue.x-k8s.io/v1beta1`: the older version, still served.
//!
//! What is the same in both versions lives in [`super::v1beta2`] and is re-exported here.

use crate::common::core::{Taint, Toleration};
use crate::common::meta::{Condition, LabelSelector};
use crate::common::{Labels, ObjectMeta, PodTemplate, ResourceList, Rest, Time, string_enum};
pub use crate::kueue::v1beta2::{
    CheckState, ClusterProfileReference, ClusterQueuePreemption, FairSharing, FlavorFungibilityPreference,
    FlavorQuotas, FlavorUsage, LocalQueueFairSharingStatus, LocalQueueFlavorUsage, LocalQueueSpec,
    LocationType, PodSetMergePolicy, PodSetRequest, ProvisioningRequestNodeSelector,
    ProvisioningRequestRetryStrategy, QueueingStrategy, ReclaimablePod, RequeueState, ResourceFlavorSpec,
    StopPolicy, TopologyLevel, WorkloadSchedulingStatsEviction,
};
use muster_api_derive::Api;

/// A pool of quota that local queues draw from.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "clusterqueues",
    short("cq"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    status,
    column("Cohort", ".spec.cohort" as string),
    column("Strategy", ".spec.queueingStrategy" as string, wide),
    column("Pending Workloads", ".status.pendingWorkloads" as integer),
    column("Admitted Workloads", ".status.admittedWorkloads" as integer, wide)
)]
pub struct ClusterQueue {
    pub metadata: ObjectMeta,
    pub spec: Option<ClusterQueueSpec>,
    pub status: Option<ClusterQueueStatus>,
    pub rest: Rest,
}

/// How much of what there is, who may use it, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "!has(self.cohort) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, \
        f.resources.all(r, !has(r.borrowingLimit)))) : true",
    "borrowingLimit must be nil when cohort is empty",
))]
pub struct ClusterQueueSpec {
    /// Checks for all flavors; v1beta2 has only `admissionChecksStrategy`. Not both.
    #[api(items(len(..=316)))]
    pub admission_checks: Option<Vec<String>>,
    /// Checks that must pass before a workload is admitted.
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    pub admission_scope: Option<AdmissionScope>,
    /// The cohort in which unused quota is lent and borrowed; `cohortName` in v1beta2.
    #[api(dns_subdomain)]
    pub cohort: Option<String>,
    pub fair_sharing: Option<FairSharing>,
    #[api(default_json = "{}")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Namespaces that may use the queue: absent means none, empty means all.
    pub namespace_selector: Option<LabelSelector>,
    #[api(default_json = "{}")]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Whether a workload that does not fit holds back those behind it.
    #[api(default = "BestEffortFIFO")]
    pub queueing_strategy: Option<QueueingStrategy>,
    /// Quotas, by groups of resources that come from the same flavors. A resource and a flavor are in one
    /// group at most.
    #[api(len(..=16), list(atomic))]
    pub resource_groups: Option<Vec<ResourceGroup>>,
    #[api(default = "None")]
    pub stop_policy: Option<StopPolicy>,
    pub rest: Rest,
}

/// Checks that must pass before a workload is admitted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionChecksStrategy {
    pub admission_checks: Option<Vec<AdmissionCheckStrategyRule>>,
    pub rest: Rest,
}

/// A check, and the flavors for which it counts.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckStrategyRule {
    #[api(len(..=316))]
    pub name: String,
    #[api(items(dns_subdomain))]
    pub on_flavors: Option<Vec<String>>,
    pub rest: Rest,
}

/// How the local queues of a queue take turns.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionScope {
    pub admission_mode: String,
    pub rest: Rest,
}

/// When to try the next flavor instead of borrowing or preempting.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == \
        'TryNextFlavor')",
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
))]
pub struct FlavorFungibility {
    pub preference: Option<FlavorFungibilityPreference>,
    #[api(default = "MayStopSearch")]
    pub when_can_borrow: Option<WhenCanBorrow>,
    #[api(default = "TryNextFlavor")]
    pub when_can_preempt: Option<WhenCanPreempt>,
    pub rest: Rest,
}

string_enum! {
    /// Stop at this flavor (`Borrow` is the old word for it), or try the next.
    pub enum WhenCanBorrow { MayStopSearch, TryNextFlavor, Borrow }
}

string_enum! {
    /// Stop at this flavor (`Preempt` is the old word for it), or try the next.
    pub enum WhenCanPreempt { MayStopSearch, TryNextFlavor, Preempt }
}

/// Resources that come from the same flavors.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
    "flavors must have the same number of resources as the coveredResources",
))]
pub struct ResourceGroup {
    /// The resources; every flavor has a quota for each, in this order.
    #[api(len(1..=64))]
    pub covered_resources: Vec<String>,
    #[api(len(1..=64), list(map("name")))]
    pub flavors: Vec<FlavorQuotas>,
    pub rest: Rest,
}

/// What is reserved and used, and how many wait.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterQueueStatus {
    pub admitted_workloads: Option<i32>,
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
    #[api(len(..=64), list(map("name")))]
    pub flavors_reservation: Option<Vec<FlavorUsage>>,
    #[api(len(..=64), list(map("name")))]
    pub flavors_usage: Option<Vec<FlavorUsage>>,
    pub pending_workloads: Option<i32>,
    pub pending_workloads_status: Option<ClusterQueuePendingWorkloadsStatus>,
    pub reserving_workloads: Option<i32>,
    pub rest: Rest,
}

/// The first of those that wait.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterQueuePendingWorkloadsStatus {
    #[api(list(atomic))]
    pub cluster_queue_pending_workload: Option<Vec<ClusterQueuePendingWorkload>>,
    pub last_change_time: Time,
    pub rest: Rest,
}

/// A workload that waits.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterQueuePendingWorkload {
    pub name: String,
    pub namespace: String,
    pub rest: Rest,
}

/// Where the jobs of a namespace queue up: a door to a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "localqueues",
    short("queue", "queues", "lq"),
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    status,
    column("ClusterQueue", ".spec.clusterQueue" as string),
    column("Pending Workloads", ".status.pendingWorkloads" as integer),
    column("Admitted Workloads", ".status.admittedWorkloads" as integer)
)]
pub struct LocalQueue {
    pub metadata: ObjectMeta,
    pub spec: Option<LocalQueueSpec>,
    pub status: Option<LocalQueueStatus>,
    pub rest: Rest,
}

/// What this namespace holds of the pool, and how many wait.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueStatus {
    pub admitted_workloads: Option<i32>,
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
    /// What admitted workloads hold; `flavorsUsage` in v1beta2.
    #[api(len(..=64), list(map("name")))]
    pub flavor_usage: Option<Vec<LocalQueueFlavorUsage>>,
    #[api(len(..=64), list(map("name")))]
    pub flavors: Option<Vec<LocalQueueFlavorStatus>>,
    #[api(len(..=64), list(map("name")))]
    pub flavors_reservation: Option<Vec<LocalQueueFlavorUsage>>,
    pub pending_workloads: Option<i32>,
    pub reserving_workloads: Option<i32>,
    pub rest: Rest,
}

/// A flavor that the queue can use.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueFlavorStatus {
    #[api(dns_subdomain)]
    pub name: String,
    #[api(len(..=8), map(atomic))]
    pub node_labels: Option<Labels>,
    #[api(len(..=8), list(atomic))]
    pub node_taints: Option<Vec<Taint>>,
    #[api(len(..=64), list(set))]
    pub resources: Option<Vec<String>>,
    pub topology: Option<TopologyInfo>,
    pub rest: Rest,
}

/// The topology of a flavor.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyInfo {
    #[api(dns_subdomain)]
    pub name: String,
    #[api(len(1..=16), list(atomic))]
    pub levels: Vec<String>,
    pub rest: Rest,
}

/// Queues that lend and borrow unused quota; cohorts form a tree.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "cohorts",
    short("co"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    status
)]
pub struct Cohort {
    pub metadata: ObjectMeta,
    pub spec: Option<CohortSpec>,
    pub status: Option<CohortStatus>,
    pub rest: Rest,
}

/// Its place in the tree, and quota that belongs to all of it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CohortSpec {
    pub fair_sharing: Option<FairSharing>,
    #[api(dns_subdomain)]
    pub parent_name: Option<String>,
    #[api(len(..=16), list(atomic))]
    pub resource_groups: Option<Vec<ResourceGroup>>,
    pub rest: Rest,
}

/// How much of its fair share is used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CohortStatus {
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
    pub rest: Rest,
}

/// A sort of node: which nodes, and what pods need to run there.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "resourceflavors",
    short("flavor", "flavors", "rf"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead."
)]
pub struct ResourceFlavor {
    pub metadata: ObjectMeta,
    pub spec: Option<ResourceFlavorSpec>,
    pub rest: Rest,
}

/// A job in the queue: its pods, its priority, and the quota that it holds.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "workloads",
    short("kwl", "kueueworkload", "kueueworkloads"),
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    status,
    column("Queue", ".spec.queueName" as string),
    column("Reserved in", ".status.admission.clusterQueue" as string),
    column("Admitted", ".status.conditions[?(@.type=='Admitted')].status" as string),
    column("Finished", ".status.conditions[?(@.type=='Finished')].status" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
#[api(rule(
    "has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == \
        'QuotaReserved' && c.status == 'True') && has(self.status.admission) ? size(self.spec.podSets) == \
        size(self.status.admission.podSetAssignments) : true",
    "podSetAssignments must have the same number of podSets as the spec",
))]
#[api(rule(
    "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassSource) && \
        has(self.spec.priorityClassSource)) ? (oldSelf.spec.priorityClassSource == \
        self.spec.priorityClassSource) : true",
    "priorityClassSource is immutable while workload quota reserved",
))]
#[api(rule(
    "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassSource) && \
        has(self.spec.priorityClassSource) && (self.spec.priorityClassSource != \
        'kueue.x-k8s.io/workloadpriorityclass') && has(oldSelf.spec.priorityClassName) && \
        has(self.spec.priorityClassName)) ? (oldSelf.spec.priorityClassName == self.spec.priorityClassName) \
        : true",
    "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal \
        to kueue.x-k8s.io/workloadpriorityclass",
))]
#[api(rule(
    "((has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'QuotaReserved' && c.status == 'True')) && (has(self.status) && \
        has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && \
        c.status == 'True'))) ? ((has(oldSelf.spec.queueName) == has(self.spec.queueName)) && \
        (!has(oldSelf.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName)) : true",
    "queueName is immutable while workload quota reserved",
))]
#[api(rule(
    "((has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'Admitted' && c.status == 'True')) && (has(self.status) && has(self.status.conditions) && \
        self.status.conditions.exists(c, c.type == 'Admitted' && c.status == \
        'True')))?((has(oldSelf.spec.maximumExecutionTimeSeconds)?\
        oldSelf.spec.maximumExecutionTimeSeconds:0) ==  (has(self.spec.maximumExecutionTimeSeconds)?\
        self.spec.maximumExecutionTimeSeconds:0)):true",
    "maximumExecutionTimeSeconds is immutable while workload quota reserved",
))]
pub struct Workload {
    pub metadata: ObjectMeta,
    pub spec: Option<WorkloadSpec>,
    pub status: Option<WorkloadStatus>,
    pub rest: Rest,
}

/// What is to run.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "has(self.priorityClassName) ? has(self.priority) : true",
    "priority should not be nil when priorityClassName is set",
))]
pub struct WorkloadSpec {
    #[api(default = true)]
    pub active: Option<bool>,
    #[api(range(1..))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// The pods, in sets of equal pods.
    #[api(len(1..=18), list(map("name")))]
    pub pod_sets: Vec<PodSet>,
    pub priority: Option<i32>,
    /// The class that the priority comes from; `priorityClassRef` in v1beta2.
    #[api(dns_subdomain)]
    pub priority_class_name: Option<String>,
    /// Which sort of class it is.
    #[api(default = "")]
    pub priority_class_source: Option<PriorityClassSource>,
    /// The LocalQueue; cannot change while quota is reserved.
    #[api(dns_subdomain)]
    pub queue_name: Option<String>,
    pub rest: Rest,
}

/// Equal pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "has(self.minCount) ? self.minCount <= self.count : true",
    "minCount should be positive and less or equal to count",
))]
pub struct PodSet {
    #[api(default = "main", dns_label)]
    pub name: Option<String>,
    /// How many pods.
    #[api(default = 1, range(0..))]
    pub count: i32,
    #[api(range(1..))]
    pub min_count: Option<i32>,
    pub template: PodTemplate,
    pub topology_request: Option<PodSetTopologyRequest>,
    pub rest: Rest,
}

/// Where pods must be placed together: at most one of `required`, `preferred` and `unconstrained`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetTopologyRequest {
    pub pod_index_label: Option<String>,
    pub pod_set_group_name: Option<String>,
    pub pod_set_slice_required_topology: Option<String>,
    #[api(range(1..))]
    pub pod_set_slice_size: Option<i32>,
    pub preferred: Option<String>,
    pub required: Option<String>,
    pub sub_group_count: Option<i32>,
    pub sub_group_index_label: Option<String>,
    pub unconstrained: Option<bool>,
    pub rest: Rest,
}

string_enum! {
    /// Which sort of class a priority comes from.
    pub enum PriorityClassSource {
        KueueXK8sIoWorkloadpriorityclass = "kueue.x-k8s.io/workloadpriorityclass",
        SchedulingK8sIoPriorityclass = "scheduling.k8s.io/priorityclass",
        Unset = "",
    }
}

/// What the workload holds, and why it waits.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
    "clusterName is immutable once set",
))]
#[api(rule(
    "!has(self.clusterName) || (!has(self.nominatedClusterNames) || (has(self.nominatedClusterNames) && \
        size(self.nominatedClusterNames) == 0))",
    "clusterName and nominatedClusterNames are mutually exclusive",
))]
pub struct WorkloadStatus {
    /// How long it ran before its last admission; v1beta2 spells it right.
    pub accumulated_past_exexcution_time_seconds: Option<i32>,
    pub admission: Option<Admission>,
    #[api(len(..=8), list(map("name")))]
    pub admission_checks: Option<Vec<AdmissionCheckState>>,
    pub cluster_name: Option<String>,
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    #[api(len(..=20), list(atomic))]
    pub nominated_cluster_names: Option<Vec<String>>,
    #[api(len(..=18), list(map("name")))]
    pub reclaimable_pods: Option<Vec<ReclaimablePod>>,
    pub requeue_state: Option<RequeueState>,
    #[api(len(..=18), list(map("name")))]
    pub resource_requests: Option<Vec<PodSetRequest>>,
    pub scheduling_stats: Option<SchedulingStats>,
    pub unhealthy_nodes: Option<Vec<UnhealthyNode>>,
    pub rest: Rest,
}

/// The quota that is reserved, set of pods by set of pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Admission {
    #[api(dns_subdomain)]
    pub cluster_queue: String,
    #[api(len(..=18), list(map("name")))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
    pub rest: Rest,
}

/// The quota that is reserved for one set of pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetAssignment {
    #[api(default = "main", dns_label)]
    pub name: String,
    #[api(range(0..))]
    pub count: Option<i32>,
    pub delayed_topology_request: Option<String>,
    #[api(items(dns_subdomain))]
    pub flavors: Option<Labels>,
    pub resource_usage: Option<ResourceList>,
    pub topology_assignment: Option<TopologyAssignment>,
    pub rest: Rest,
}

/// How many pods go to which domain.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyAssignment {
    pub domains: Vec<TopologyDomainAssignment>,
    #[api(len(1..=16), list(atomic))]
    pub levels: Vec<String>,
    pub rest: Rest,
}

/// How many pods go to one domain.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyDomainAssignment {
    #[api(range(1..))]
    pub count: i32,
    #[api(len(1..=16), list(atomic))]
    pub values: Vec<String>,
    pub rest: Rest,
}

/// State of one check.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckState {
    #[api(len(..=316))]
    pub name: String,
    pub last_transition_time: Time,
    #[api(len(..=32768))]
    pub message: String,
    #[api(len(..=18), list(atomic))]
    pub pod_set_updates: Option<Vec<PodSetUpdate>>,
    #[api(range(0..))]
    pub requeue_after_seconds: Option<i32>,
    #[api(range(0..))]
    pub retry_count: Option<i32>,
    pub state: CheckState,
    pub rest: Rest,
}

/// What a check adds to the pods of one set.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetUpdate {
    #[api(dns_label)]
    pub name: String,
    pub annotations: Option<Labels>,
    pub labels: Option<Labels>,
    pub node_selector: Option<Labels>,
    #[api(len(..=8))]
    #[api(rule(
        "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
    ))]
    #[api(rule(
        "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    ))]
    #[api(rule(
        "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
        "supported toleration values: 'Equal'(default), 'Exists'",
    ))]
    #[api(rule(
        "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
        "a value must be empty when 'operator' is 'Exists'",
    ))]
    #[api(rule(
        "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    ))]
    pub tolerations: Option<Vec<Toleration>>,
    pub rest: Rest,
}

/// How often the workload was evicted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulingStats {
    #[api(list(map("reason", "underlyingCause")))]
    pub evictions: Option<Vec<WorkloadSchedulingStatsEviction>>,
    pub rest: Rest,
}

/// A node that failed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UnhealthyNode {
    pub name: String,
    pub rest: Rest,
}

/// A priority for workloads that has no say over pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "workloadpriorityclasses",
    short("wpc"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    column("Value", ".value" as integer)
)]
pub struct WorkloadPriorityClass {
    pub metadata: ObjectMeta,
    pub description: Option<String>,
    /// Higher goes first.
    pub value: i32,
    pub rest: Rest,
}

/// Something outside Kueue that must agree before workloads are admitted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "admissionchecks",
    short("ac"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    status
)]
pub struct AdmissionCheck {
    pub metadata: ObjectMeta,
    pub spec: Option<AdmissionCheckSpec>,
    pub status: Option<AdmissionCheckStatus>,
    pub rest: Rest,
}

/// Who checks, and with which parameters.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckSpec {
    #[api(rule("self == oldSelf", "field is immutable"))]
    pub controller_name: String,
    pub parameters: Option<AdmissionCheckParametersReference>,
    /// Has no effect any more.
    #[api(default = 15)]
    pub retry_delay_minutes: Option<i64>,
    pub rest: Rest,
}

/// The object that holds the parameters.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckParametersReference {
    #[api(dns_label)]
    pub name: String,
    #[api(dns_subdomain)]
    pub api_group: String,
    #[api(pattern = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$", len(..=63))]
    pub kind: String,
    pub rest: Rest,
}

/// Whether the check can be used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckStatus {
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}

/// The levels of the nodes' topology, from the widest to the narrowest.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "topologies",
    short("topo"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead."
)]
pub struct Topology {
    pub metadata: ObjectMeta,
    pub spec: Option<TopologySpec>,
    pub rest: Rest,
}

/// The levels.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologySpec {
    #[api(len(1..=16), list(atomic))]
    #[api(rule("self == oldSelf", "field is immutable"))]
    #[api(rule("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0", "must be unique"))]
    #[api(rule(
        "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - \
            1].nodeLabel == 'kubernetes.io/hostname'",
        "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    ))]
    pub levels: Vec<TopologyLevel>,
    pub rest: Rest,
}

/// Clusters that workloads can be sent to.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "multikueueconfigs",
    short("mkconf"),
    cluster,
    not_stored
)]
pub struct MultiKueueConfig {
    pub metadata: ObjectMeta,
    pub spec: Option<MultiKueueConfigSpec>,
    pub rest: Rest,
}

/// The clusters.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MultiKueueConfigSpec {
    #[api(len(1..=20), list(set))]
    pub clusters: Vec<String>,
    pub rest: Rest,
}

/// A cluster that workloads can be sent to.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "multikueueclusters",
    short("mkc"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead.",
    status,
    column("Connected", ".status.conditions[?(@.type=='Active')].status" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct MultiKueueCluster {
    pub metadata: ObjectMeta,
    pub spec: Option<MultiKueueClusterSpec>,
    pub status: Option<MultiKueueClusterStatus>,
    pub rest: Rest,
}

/// How the cluster is reached: a kubeconfig, or a cluster profile.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MultiKueueClusterSpec {
    pub cluster_profile_ref: Option<ClusterProfileReference>,
    pub kube_config: KubeConfig,
    pub rest: Rest,
}

/// A kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct KubeConfig {
    pub location: String,
    #[api(default = "Secret")]
    pub location_type: LocationType,
    pub rest: Rest,
}

/// Whether the cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MultiKueueClusterStatus {
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}

/// How capacity is asked for before workloads are admitted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta1",
    plural = "provisioningrequestconfigs",
    short("prc"),
    cluster,
    not_stored,
    deprecated = "This version is deprecated. Use v1beta2 instead."
)]
pub struct ProvisioningRequestConfig {
    pub metadata: ObjectMeta,
    pub spec: Option<ProvisioningRequestConfigSpec>,
    pub rest: Rest,
}

/// What is asked for, and what happens if it is refused.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ProvisioningRequestConfigSpec {
    #[api(len(..=100), list(set))]
    pub managed_resources: Option<Vec<String>>,
    #[api(len(..=100), items(len(..=255)))]
    pub parameters: Option<Labels>,
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    #[api(dns_subdomain)]
    pub provisioning_class_name: String,
    #[api(default_json = r#"{"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800}"#)]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    pub rest: Rest,
}

/// What pods get when capacity was provided.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ProvisioningRequestPodSetUpdates {
    #[api(len(..=8))]
    pub node_selector: Option<Vec<ProvisioningRequestNodeSelector>>,
    pub rest: Rest,
}
