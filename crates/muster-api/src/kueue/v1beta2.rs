//! Kueue, `kueue.x-k8s.io/v1beta2`: the stored version, and the home of what both versions share.

use crate::common::core::{Taint, Toleration};
use crate::common::meta::{Condition, LabelSelector};
use crate::common::{Labels, ObjectMeta, PodTemplate, Quantity, ResourceList, Rest, Time, string_enum};
use crate::schema::LABEL_KEY;
use muster_api_derive::Api;

/// A pool of quota that local queues draw from.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "clusterqueues",
    short("cq"),
    cluster,
    status,
    column("Cohort", ".spec.cohortName" as string),
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
    "!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, \
        f.resources.all(r, !has(r.borrowingLimit)))) : true",
    "borrowingLimit must be nil when cohort is empty",
))]
pub struct ClusterQueueSpec {
    /// Checks that must pass before a workload is admitted.
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether its local queues take turns by what they have used.
    pub admission_scope: Option<AdmissionScope>,
    /// The cohort in which unused quota is lent and borrowed.
    #[api(dns_subdomain)]
    pub cohort_name: Option<String>,
    /// Whether a workload may be tried on several flavors at once.
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
    /// Its weight among those that borrow from the same cohort.
    pub fair_sharing: Option<FairSharing>,
    /// When to try the next flavor instead of borrowing or preempting.
    #[api(default_json = "{}")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Namespaces that may use the queue: absent means none, empty means all.
    pub namespace_selector: Option<LabelSelector>,
    /// From whom a pending workload may take.
    #[api(default_json = "{}")]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Whether a workload that does not fit holds back those behind it.
    #[api(default = "BestEffortFIFO")]
    pub queueing_strategy: Option<QueueingStrategy>,
    /// Quotas, by groups of resources that come from the same flavors. A resource and a flavor are in one
    /// group at most.
    #[api(len(..=16), list(atomic))]
    pub resource_groups: Option<Vec<ResourceGroup>>,
    /// Whether the queue admits, and what happens to what runs.
    #[api(default = "None")]
    pub stop_policy: Option<StopPolicy>,
    pub rest: Rest,
}

/// Checks that must pass before a workload is admitted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionChecksStrategy {
    #[api(len(1..=64), list(map("name")))]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
    pub rest: Rest,
}

/// A check, and the flavors for which it counts.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckStrategyRule {
    #[api(len(1..=316))]
    pub name: String,
    /// Flavors of the queue; absent means all.
    #[api(len(..=64), list(set), items(dns_subdomain))]
    pub on_flavors: Option<Vec<String>>,
    pub rest: Rest,
}

/// How the local queues of a queue take turns.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionScope {
    pub admission_mode: AdmissionMode,
    pub rest: Rest,
}

string_enum! {
    /// Whether local queues take turns by what they have used.
    pub enum AdmissionMode { UsageBasedAdmissionFairSharing, NoAdmissionFairSharing }
}

/// How a workload is tried on several flavors at once.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ConcurrentAdmissionPolicy {
    pub migration: ConcurrentAdmissionMigration,
    pub rest: Rest,
}

/// When an admitted workload moves to a better flavor.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ConcurrentAdmissionMigration {
    pub constraints: Option<MigrationConstraints>,
    #[api(len(..=253))]
    pub mode: MigrationMode,
    pub rest: Rest,
}

/// How far a workload may move.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MigrationConstraints {
    #[api(dns_subdomain)]
    pub last_acceptable_flavor_name: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// Whether an admitted workload still tries for better flavors.
    pub enum MigrationMode { TryPreferredFlavors, RetainFirstAdmission }
}

/// Weight in sharing what is borrowed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct FairSharing {
    /// Twice the weight may borrow twice as much; 0 means the last in line.
    #[api(default = 1)]
    pub weight: Option<Quantity>,
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
    /// Which of the two is better, if both are to go on searching.
    pub preference: Option<FlavorFungibilityPreference>,
    /// What to do at a flavor that fits by borrowing.
    #[api(default = "MayStopSearch")]
    pub when_can_borrow: Option<WhenCanBorrow>,
    /// What to do at a flavor that fits by preempting.
    #[api(default = "TryNextFlavor")]
    pub when_can_preempt: Option<WhenCanPreempt>,
    pub rest: Rest,
}

string_enum! {
    /// Whether borrowing is better than preempting.
    pub enum FlavorFungibilityPreference { BorrowingOverPreemption, PreemptionOverBorrowing }
}

string_enum! {
    /// Stop at this flavor, or try the next.
    pub enum WhenCanBorrow { MayStopSearch, TryNextFlavor }
}

string_enum! {
    /// Stop at this flavor, or try the next.
    pub enum WhenCanPreempt { MayStopSearch, TryNextFlavor }
}

/// From whom a pending workload may take.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  \
        self.borrowWithinCohort.policy != 'Never')",
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
))]
pub struct ClusterQueuePreemption {
    /// From others while the taker would borrow itself.
    #[api(default_json = "{}")]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// From workloads of the cohort that borrow this queue's quota.
    #[api(default = "Never")]
    pub reclaim_within_cohort: Option<ReclaimWithinCohort>,
    /// From workloads of the same queue.
    #[api(default = "Never")]
    pub within_cluster_queue: Option<WithinClusterQueue>,
    pub rest: Rest,
}

/// Whether a workload that would borrow may take from others.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct BorrowWithinCohort {
    /// Only workloads of at most this priority are taken from.
    pub max_priority_threshold: Option<i32>,
    #[api(default = "Never")]
    pub policy: Option<BorrowWithinCohortPolicy>,
    pub rest: Rest,
}

string_enum! {
    /// Whom a borrowing workload may take from.
    pub enum BorrowWithinCohortPolicy { Never, LowerPriority }
}

string_enum! {
    /// Whom a queue may reclaim its quota from.
    pub enum ReclaimWithinCohort { Never, LowerPriority, Any }
}

string_enum! {
    /// Whom a workload may take from in its own queue.
    pub enum WithinClusterQueue { Never, LowerPriority, LowerOrNewerEqualPriority }
}

string_enum! {
    /// Strictly in order, or past those that do not fit.
    pub enum QueueingStrategy { StrictFIFO, BestEffortFIFO }
}

/// Resources that come from the same flavors.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
    "flavors must have the same number of resources as the coveredResources",
))]
pub struct ResourceGroup {
    /// The resources; every flavor has a quota for each, in this order.
    #[api(len(1..=64), list(atomic))]
    pub covered_resources: Vec<String>,
    /// The flavors, in the order in which they are tried.
    #[api(len(1..=64), list(map("name")))]
    pub flavors: Vec<FlavorQuotas>,
    pub rest: Rest,
}

/// A flavor with its quotas.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct FlavorQuotas {
    /// The ResourceFlavor.
    #[api(dns_subdomain)]
    pub name: String,
    /// A quota for each covered resource, in the same order.
    #[api(len(1..=64), list(map("name")))]
    pub resources: Vec<ResourceQuota>,
    pub rest: Rest,
}

/// Quota for one resource of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceQuota {
    pub name: String,
    /// The most that it may borrow beyond it; absent means as much as there is. Needs a cohort.
    pub borrowing_limit: Option<Quantity>,
    /// The most that it lends when unused; absent means all. Needs a cohort.
    pub lending_limit: Option<Quantity>,
    /// What the queue has of its own.
    pub nominal_quota: Quantity,
    pub rest: Rest,
}

string_enum! {
    /// Goes on; admits no more (`Hold`); or admits no more and evicts what runs (`HoldAndDrain`).
    pub enum StopPolicy { None, Hold, HoldAndDrain }
}

/// What is reserved and used, and how many wait.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterQueueStatus {
    /// Workloads that are admitted and have not finished.
    pub admitted_workloads: Option<i32>,
    #[api(len(..=16), list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub fair_sharing: Option<FairSharingStatus>,
    /// What workloads with reserved quota hold.
    #[api(len(..=64), list(map("name")))]
    pub flavors_reservation: Option<Vec<FlavorUsage>>,
    /// What admitted workloads hold.
    #[api(len(..=64), list(map("name")))]
    pub flavors_usage: Option<Vec<FlavorUsage>>,
    /// Workloads that wait.
    pub pending_workloads: Option<i32>,
    /// Workloads with reserved quota.
    pub reserving_workloads: Option<i32>,
    pub rest: Rest,
}

/// How much of its fair share is used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct FairSharingStatus {
    /// What is borrowed relative to what could be, over the weight; higher means later in line.
    pub weighted_share: i64,
    pub rest: Rest,
}

/// What is held of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct FlavorUsage {
    #[api(dns_subdomain)]
    pub name: String,
    #[api(len(..=64), list(map("name")))]
    pub resources: Vec<ResourceUsage>,
    pub rest: Rest,
}

/// What is held of one resource.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceUsage {
    pub name: String,
    /// The part of it that is borrowed.
    pub borrowed: Option<Quantity>,
    pub total: Option<Quantity>,
    pub rest: Rest,
}

/// Where the jobs of a namespace queue up: a door to a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "localqueues",
    short("queue", "queues", "lq"),
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

/// The pool that is drawn from.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueSpec {
    /// The ClusterQueue; cannot change.
    #[api(dns_subdomain)]
    #[api(rule("self == oldSelf", "field is immutable"))]
    pub cluster_queue: Option<String>,
    /// Its weight when local queues take turns by what they have used.
    pub fair_sharing: Option<FairSharing>,
    /// Whether the queue admits, and what happens to what runs.
    #[api(default = "None")]
    pub stop_policy: Option<StopPolicy>,
    pub rest: Rest,
}

/// What this namespace holds of the pool, and how many wait.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueStatus {
    pub admitted_workloads: Option<i32>,
    #[api(len(..=16), list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
    #[api(len(..=64), list(map("name")))]
    pub flavors_reservation: Option<Vec<LocalQueueFlavorUsage>>,
    #[api(len(..=64), list(map("name")))]
    pub flavors_usage: Option<Vec<LocalQueueFlavorUsage>>,
    pub pending_workloads: Option<i32>,
    pub reserving_workloads: Option<i32>,
    pub rest: Rest,
}

/// How much of its fair share is used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueFairSharingStatus {
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
    pub weighted_share: i64,
    pub rest: Rest,
}

/// What was used in the past, and until when that is counted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionFairSharingStatus {
    pub consumed_resources: ResourceList,
    pub last_update: Time,
    pub rest: Rest,
}

/// What is held of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueFlavorUsage {
    #[api(dns_subdomain)]
    pub name: String,
    #[api(len(..=64), list(map("name")))]
    pub resources: Vec<LocalQueueResourceUsage>,
    pub rest: Rest,
}

/// What is held of one resource.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LocalQueueResourceUsage {
    pub name: String,
    pub total: Option<Quantity>,
    pub rest: Rest,
}

/// Queues that lend and borrow unused quota; cohorts form a tree.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "kueue.x-k8s.io", version = "v1beta2", plural = "cohorts", short("co"), cluster, status)]
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
    /// The cohort above; absent at the top.
    #[api(dns_subdomain)]
    pub parent_name: Option<String>,
    /// Quota for the members to share, beyond their own.
    #[api(len(..=16), list(atomic))]
    pub resource_groups: Option<Vec<ResourceGroup>>,
    pub rest: Rest,
}

/// How much of its fair share is used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CohortStatus {
    pub fair_sharing: Option<FairSharingStatus>,
    pub rest: Rest,
}

/// A sort of node: which nodes, and what pods need to run there.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "resourceflavors",
    short("flavor", "flavors", "rf"),
    cluster
)]
pub struct ResourceFlavor {
    pub metadata: ObjectMeta,
    pub spec: Option<ResourceFlavorSpec>,
    pub rest: Rest,
}

/// Labels and taints of the nodes, and tolerations for the pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "!has(self.topologyName) || self.nodeLabels.size() >= 1",
    "at least one nodeLabel is required when topology is set",
))]
#[api(rule(
    "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
    "topologyName is immutable when topologyName is set",
))]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes; admitted pods get them as node selector.
    #[api(len(..=8), map(atomic))]
    pub node_labels: Option<Labels>,
    /// Taints of the nodes, which a workload must tolerate to use the flavor.
    #[api(len(..=8), list(atomic))]
    #[api(rule(
        "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    ))]
    pub node_taints: Option<Vec<Taint>>,
    /// Tolerations that admitted pods get.
    #[api(len(..=8), list(atomic))]
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
    /// The Topology for placement by racks and blocks; cannot change.
    #[api(dns_subdomain)]
    pub topology_name: Option<String>,
    pub rest: Rest,
}

/// A job in the queue: its pods, its priority, and the quota that it holds.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "workloads",
    short("kwl", "kueueworkload", "kueueworkloads"),
    status,
    selectable(".status.admission.clusterQueue"),
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
        c.type == 'QuotaReserved' && c.status == 'True')) ? (!has(oldSelf.spec.priorityClassRef) && \
        !has(self.spec.priorityClassRef)) || (has(oldSelf.spec.priorityClassRef) && \
        has(self.spec.priorityClassRef)) : true",
    "priorityClassRef is immutable while workload quota reserved",
))]
#[api(rule(
    "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassRef) && \
        has(self.spec.priorityClassRef)) ? oldSelf.spec.priorityClassRef.group == \
        self.spec.priorityClassRef.group : true",
    "priorityClassRef.group is immutable while workload quota reserved",
))]
#[api(rule(
    "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassRef) && \
        has(self.spec.priorityClassRef)) ? oldSelf.spec.priorityClassRef.kind == \
        self.spec.priorityClassRef.kind : true",
    "priorityClassRef.kind is immutable while workload quota reserved",
))]
#[api(rule(
    "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
        c.type == 'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.priorityClassRef) && \
        has(self.spec.priorityClassRef) && self.spec.priorityClassRef.group == 'scheduling.k8s.io' && \
        self.spec.priorityClassRef.kind == 'PriorityClass') ? oldSelf.spec.priorityClassRef.name == \
        self.spec.priorityClassRef.name : true",
    "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota \
        reserved",
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
    "!has(self.priorityClassRef) || has(self.priority)",
    "priority should not be nil when priorityClassRef is set",
))]
pub struct WorkloadSpec {
    /// Whether the workload may run; false evicts it.
    #[api(default = true)]
    pub active: Option<bool>,
    /// How long it may run.
    #[api(range(1..))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// The pods, in sets of equal pods.
    #[api(len(1..=18), list(map("name")))]
    pub pod_sets: Option<Vec<PodSet>>,
    /// Who has to agree before the workload preempts others.
    #[api(len(..=8), list(map("name")))]
    pub preemption_gates: Option<Vec<PreemptionGate>>,
    /// The priority; required with a class.
    pub priority: Option<i32>,
    /// Where the priority comes from.
    pub priority_class_ref: Option<PriorityClassRef>,
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
    pub count: Option<i32>,
    /// With how few pods the job could start, if it can be started with less.
    #[api(range(1..))]
    pub min_count: Option<i32>,
    /// What the pods are.
    pub template: PodTemplate,
    /// Where the pods must be placed together.
    pub topology_request: Option<PodSetTopologyRequest>,
    pub rest: Rest,
}

/// Where pods must be placed together: at most one of `required`, `preferred` and `unconstrained`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetTopologyRequest {
    #[api(len(..=317))]
    pub pod_index_label: Option<String>,
    /// Pod sets with the same name are placed together.
    #[api(len(..=256))]
    pub pod_set_group_name: Option<String>,
    /// Pods in slices, each in one domain of this level.
    #[api(len(..=63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// How many pods a slice has.
    #[api(range(1..))]
    pub pod_set_slice_size: Option<i32>,
    #[api(len(..=3), list(atomic))]
    pub podset_slice_required_topology_constraints: Option<Vec<PodSetSliceTopologyConstraint>>,
    /// All pods in one domain of this level, or else of the levels above.
    #[api(len(..=63))]
    pub preferred: Option<String>,
    /// All pods in one domain of this level.
    #[api(len(..=63))]
    pub required: Option<String>,
    #[api(range(0..))]
    pub sub_group_count: Option<i32>,
    #[api(len(..=317))]
    pub sub_group_index_label: Option<String>,
    /// Anywhere that there is room, with topology taken into account.
    pub unconstrained: Option<bool>,
    pub rest: Rest,
}

/// One level of slices within slices.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetSliceTopologyConstraint {
    #[api(range(1..))]
    pub size: i32,
    #[api(len(1..=63))]
    pub topology: String,
    pub rest: Rest,
}

/// Somebody who has to agree before the workload preempts others.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PreemptionGate {
    #[api(len(1..=63))]
    pub name: String,
    pub rest: Rest,
}

/// A WorkloadPriorityClass or a PriorityClass.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "(self.group == 'scheduling.k8s.io') ? self.kind == 'PriorityClass' : true",
    "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
))]
#[api(rule(
    "(self.group == 'kueue.x-k8s.io') ? self.kind == 'WorkloadPriorityClass' : true",
    "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
))]
pub struct PriorityClassRef {
    #[api(dns_subdomain, len(1..))]
    pub name: String,
    pub group: PriorityClassGroup,
    pub kind: PriorityClassKind,
    pub rest: Rest,
}

string_enum! {
    /// API group of a priority class.
    pub enum PriorityClassGroup { KueueXK8sIo = "kueue.x-k8s.io", SchedulingK8sIo = "scheduling.k8s.io" }
}

string_enum! {
    /// Kind of a priority class.
    pub enum PriorityClassKind { WorkloadPriorityClass, PriorityClass }
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
    /// How long it ran before its last admission.
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// The quota that is reserved.
    pub admission: Option<Admission>,
    /// State of the checks of the queue.
    #[api(len(..=8), list(map("name")))]
    pub admission_checks: Option<Vec<AdmissionCheckState>>,
    /// The cluster that runs the workload.
    #[api(len(..=256))]
    pub cluster_name: Option<String>,
    #[api(len(..=16), list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    /// Clusters that are being tried.
    #[api(len(..=20), list(atomic), items(len(..=256)))]
    pub nominated_cluster_names: Option<Vec<String>>,
    #[api(len(..=8), list(map("name")))]
    pub preemption_gates: Option<Vec<PreemptionGateState>>,
    /// Pods that have finished and whose quota others may use.
    #[api(len(..=18), list(map("name")))]
    pub reclaimable_pods: Option<Vec<ReclaimablePod>>,
    /// When and how often it was put back into the queue.
    pub requeue_state: Option<RequeueState>,
    /// What the pods ask for, while nothing is reserved.
    #[api(len(..=18), list(map("name")))]
    pub resource_requests: Option<Vec<PodSetRequest>>,
    /// How often it was evicted, and why.
    pub scheduling_stats: Option<SchedulingStats>,
    /// Nodes that failed under the workload.
    #[api(len(..=8), list(map("name")))]
    pub unhealthy_nodes: Option<Vec<UnhealthyNode>>,
    pub rest: Rest,
}

/// The quota that is reserved, set of pods by set of pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Admission {
    #[api(dns_subdomain)]
    pub cluster_queue: Option<String>,
    #[api(len(..=18), list(map("name")))]
    pub pod_set_assignments: Option<Vec<PodSetAssignment>>,
    pub rest: Rest,
}

/// The quota that is reserved for one set of pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetAssignment {
    #[api(default = "main", dns_label)]
    pub name: Option<String>,
    #[api(range(0..))]
    pub count: Option<i32>,
    #[api(len(..=7))]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
    /// Flavor of each resource.
    #[api(items(dns_subdomain))]
    pub flavors: Option<Labels>,
    /// What all pods of the set take.
    pub resource_usage: Option<ResourceList>,
    /// Where the pods go.
    pub topology_assignment: Option<TopologyAssignment>,
    pub rest: Rest,
}

string_enum! {
    /// Whether places are assigned only after the checks.
    pub enum DelayedTopologyRequestState { Pending, Ready }
}

/// How many pods go to which domain, folded into slices.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))",
    "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
))]
pub struct TopologyAssignment {
    /// Node labels of the levels, from the widest to the narrowest.
    #[api(len(1..=16), list(atomic), items(len(..=317)))]
    pub levels: Vec<String>,
    /// The domains, in runs that have much in common.
    #[api(len(..=1000), list(atomic))]
    pub slices: Vec<TopologyAssignmentSlice>,
    pub rest: Rest,
}

/// A run of domains.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
    "podCounts.individual must have length equal to domainCount",
))]
#[api(rule(
    "self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)",
    "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this \
        TopologyAssignmentSlice",
))]
pub struct TopologyAssignmentSlice {
    #[api(range(1..))]
    pub domain_count: i32,
    pub pod_counts: SlicePodCounts,
    #[api(len(1..=16), list(atomic))]
    pub values_per_level: Vec<SliceLevelValues>,
    pub rest: Rest,
}

/// Pods in each domain: one number for all, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "[has(self.universal),has(self.individual)].filter(x,x==true).size() == 1",
    "exactly one of the fields in [universal individual] must be set",
))]
pub struct SlicePodCounts {
    #[api(len(1..=100000), list(atomic), items(range(1..)))]
    pub individual: Option<Vec<i32>>,
    #[api(range(1..))]
    pub universal: Option<i32>,
    pub rest: Rest,
}

/// Values of one level: one for all domains, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "has(self.universal) != has(self.individual)",
    "exactly one of the fields in [universal individual] must be set",
))]
pub struct SliceLevelValues {
    pub individual: Option<SliceIndividualValues>,
    #[api(len(..=63))]
    pub universal: Option<String>,
    pub rest: Rest,
}

/// A value for each domain: prefix, root and suffix joined.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SliceIndividualValues {
    #[api(len(..=63))]
    pub prefix: Option<String>,
    #[api(len(1..=100000), list(atomic), items(len(..=63)))]
    pub roots: Vec<String>,
    #[api(len(..=63))]
    pub suffix: Option<String>,
    pub rest: Rest,
}

/// State of one check.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckState {
    #[api(len(1..=316))]
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
    #[api(len(..=8), list(atomic))]
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

string_enum! {
    /// How a check stands. `Retry` and `Rejected` evict the workload.
    pub enum CheckState { Pending, Ready, Retry, Rejected }
}

/// Whether a gate is open.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PreemptionGateState {
    #[api(len(1..=63))]
    pub name: String,
    pub last_transition_time: Time,
    pub position: GatePosition,
    pub rest: Rest,
}

string_enum! {
    /// Whether a gate lets preemption through.
    pub enum GatePosition { Closed, Open }
}

/// How many pods of a set have finished.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReclaimablePod {
    #[api(dns_label)]
    pub name: String,
    #[api(range(0..))]
    pub count: i32,
    pub rest: Rest,
}

/// How often the workload was put back, and when it may be admitted again.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct RequeueState {
    #[api(range(0..))]
    pub count: Option<i32>,
    pub requeue_at: Option<Time>,
    pub rest: Rest,
}

/// What the pods of one set ask for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSetRequest {
    #[api(dns_label)]
    pub name: String,
    pub resources: Option<ResourceList>,
    pub rest: Rest,
}

/// How often the workload was evicted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulingStats {
    #[api(len(..=256), list(map("reason", "underlyingCause")))]
    pub evictions: Option<Vec<WorkloadSchedulingStatsEviction>>,
    pub rest: Rest,
}

/// Evictions for one reason.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WorkloadSchedulingStatsEviction {
    #[api(range(0..))]
    pub count: i32,
    #[api(len(..=316))]
    pub reason: String,
    #[api(len(..=316))]
    pub underlying_cause: String,
    pub rest: Rest,
}

/// A node that failed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UnhealthyNode {
    #[api(len(..=63))]
    pub name: String,
    pub rest: Rest,
}

/// A priority for workloads that has no say over pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "workloadpriorityclasses",
    short("wpc"),
    cluster,
    column("Value", ".value" as integer)
)]
pub struct WorkloadPriorityClass {
    pub metadata: ObjectMeta,
    /// When to use the class.
    #[api(len(..=2048))]
    pub description: Option<String>,
    /// Higher goes first.
    pub value: i32,
    pub rest: Rest,
}

/// Something outside Kueue that must agree before workloads are admitted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "admissionchecks",
    short("ac"),
    cluster,
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
    /// The controller that answers for the check; cannot change.
    #[api(len(1..=253))]
    #[api(rule("self == oldSelf", "field is immutable"))]
    pub controller_name: String,
    pub parameters: Option<AdmissionCheckParametersReference>,
    pub rest: Rest,
}

/// The object that holds the parameters.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckParametersReference {
    #[api(dns_label, len(1..))]
    pub name: String,
    #[api(dns_subdomain, len(1..))]
    pub api_group: String,
    #[api(pattern = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$", len(1..=63))]
    pub kind: String,
    pub rest: Rest,
}

/// Whether the check can be used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionCheckStatus {
    #[api(len(..=16), list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}

/// The levels of the nodes' topology, from the widest to the narrowest.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "kueue.x-k8s.io", version = "v1beta2", plural = "topologies", short("topo"), cluster)]
pub struct Topology {
    pub metadata: ObjectMeta,
    pub spec: Option<TopologySpec>,
    pub rest: Rest,
}

/// The levels.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologySpec {
    /// From the widest to the narrowest; `kubernetes.io/hostname` can only be the last.
    #[api(len(1..=16), list(atomic))]
    #[api(rule(
        "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' && \
            oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
        "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after \
            the change",
    ))]
    #[api(rule("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0", "must be unique"))]
    #[api(rule(
        "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - \
            1].nodeLabel == 'kubernetes.io/hostname'",
        "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    ))]
    pub levels: Vec<TopologyLevel>,
    pub rest: Rest,
}

/// A level.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyLevel {
    /// The node label that tells its domains apart.
    #[api(label_key, len(1..))]
    pub node_label: String,
    pub rest: Rest,
}

/// Clusters that workloads can be sent to.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "kueue.x-k8s.io", version = "v1beta2", plural = "multikueueconfigs", short("mkconf"), cluster)]
pub struct MultiKueueConfig {
    pub metadata: ObjectMeta,
    pub spec: Option<MultiKueueConfigSpec>,
    pub rest: Rest,
}

/// The clusters.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters, the preferred first.
    #[api(len(1..=20), list(atomic), items(len(..=256)))]
    #[api(rule("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0", "must be unique"))]
    pub clusters: Vec<String>,
    pub quota_management: Option<QuotaManagement>,
    pub rest: Rest,
}

string_enum! {
    /// Whether the quota here follows the clusters'.
    pub enum QuotaManagement { Manual, Automated }
}

/// A cluster that workloads can be sent to.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "multikueueclusters",
    short("mkc"),
    cluster,
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

/// How the cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MultiKueueClusterSpec {
    /// How the cluster is reached: exactly one of the two ways.
    pub cluster_source: ClusterSource,
    pub rest: Rest,
}

/// A kubeconfig or a cluster profile.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1",
    "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
))]
pub struct ClusterSource {
    pub cluster_profile_ref: Option<ClusterProfileReference>,
    pub kube_config: Option<KubeConfig>,
    pub rest: Rest,
}

/// A cluster profile.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterProfileReference {
    #[api(len(1..=256))]
    pub name: String,
    pub rest: Rest,
}

/// A kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct KubeConfig {
    /// Name of the secret in Kueue's namespace, or path of the file.
    #[api(len(1..=256))]
    pub location: String,
    #[api(default = "Secret")]
    pub location_type: Option<LocationType>,
    pub rest: Rest,
}

string_enum! {
    /// Whether a kubeconfig is in a secret or in a file.
    pub enum LocationType { Secret, Path }
}

/// Whether the cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MultiKueueClusterStatus {
    #[api(len(..=16), list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}

/// How capacity is asked for before workloads are admitted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    plural = "provisioningrequestconfigs",
    short("prc"),
    cluster
)]
pub struct ProvisioningRequestConfig {
    pub metadata: ObjectMeta,
    pub spec: Option<ProvisioningRequestConfigSpec>,
    pub rest: Rest,
}

/// What is asked for, and what happens if it is refused.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ProvisioningRequestConfigSpec {
    /// Resources for which capacity is asked for; absent means all.
    #[api(len(..=100), list(set))]
    pub managed_resources: Option<Vec<String>>,
    #[api(len(..=100), items(len(..=255)))]
    pub parameters: Option<Labels>,
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Class of the ProvisioningRequests.
    #[api(dns_subdomain, len(1..))]
    pub provisioning_class_name: String,
    /// How often to ask again.
    #[api(default_json = r#"{"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800}"#)]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    pub rest: Rest,
}

string_enum! {
    /// Which sets of pods are asked for as one.
    pub enum PodSetMergePolicy { IdenticalPodTemplates, IdenticalWorkloadSchedulingRequirements }
}

/// What pods get when capacity was provided.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ProvisioningRequestPodSetUpdates {
    #[api(len(..=8), list(map("key")))]
    pub node_selector: Option<Vec<ProvisioningRequestNodeSelector>>,
    pub rest: Rest,
}

/// A node selector whose value comes with the capacity.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ProvisioningRequestNodeSelector {
    #[api(pattern = LABEL_KEY, len(1..=317))]
    pub key: String,
    #[api(len(1..=32768))]
    pub value_from_provisioning_class_detail: String,
    pub rest: Rest,
}

/// How often to ask again, and at which intervals.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ProvisioningRequestRetryStrategy {
    #[api(default = 60)]
    pub backoff_base_seconds: Option<i32>,
    #[api(default = 3)]
    pub backoff_limit_count: Option<i32>,
    #[api(default = 1800)]
    pub backoff_max_seconds: Option<i32>,
    pub rest: Rest,
}
