//! Grove, `grove.io/v1alpha1`: cliques of pods that are scaled, started and placed together.
//!
//! A PodCliqueSet is what users write. The controllers make PodCliques and PodCliqueScalingGroups of it, and
//! a PodGang ([`crate::podgang`]) for the scheduler. A ClusterTopologyBinding names the levels that topology
//! constraints speak of.
//!
//! Where this differs from upstream on purpose: [`crate::deviation::DEVIATIONS`].

use crate::common::autoscaling::MetricSpec;
use crate::common::meta::Condition;
use crate::common::{
    Duration, Labels, ObjectMeta, PodSpec, ResourceClaimTemplateSpec, Rest, Time, string_enum,
};
use muster_api_derive::Api;

/// An application of cliques: groups of pods with a role each, which start, scale and are placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "grove.io",
    version = "v1alpha1",
    plural = "podcliquesets",
    short("pcs"),
    status,
    scale(".spec.replicas", ".status.replicas", ".status.hpaPodSelector"),
    column("Ready", ".status.ready" as string),
    column("Replicas", ".spec.replicas" as integer),
    column("Available", ".status.availableReplicas" as integer),
    column("Updated", ".status.updatedReplicas" as integer),
    column("PCLQs-Updated", ".status.updateProgress.updatedPodCliquesCount" as integer),
    column("PCLQs-Total", ".status.updateProgress.totalPodCliquesCount" as integer),
    column("PCSGs-Updated", ".status.updateProgress.updatedPodCliqueScalingGroupsCount" as integer),
    column("PCSGs-Total", ".status.updateProgress.totalPodCliqueScalingGroupsCount" as integer),
    column("Age", ".metadata.creationTimestamp" as date)
)]
#[api(optional_old_rule(
    "oldSelf.hasValue() || !has(self.spec.template.topologyConstraint) || \
        !has(self.spec.template.topologyConstraint.packDomain)",
    "packDomain is deprecated and cannot be used on new workloads; use pack.required",
    reason = "FieldValueForbidden",
    path = ".spec.template.topologyConstraint.packDomain",
))]
#[api(optional_old_rule(
    "oldSelf.hasValue() || !has(self.spec.template.cliques) || self.spec.template.cliques.all(c, \
        !has(c.topologyConstraint) || !has(c.topologyConstraint.packDomain))",
    "packDomain is deprecated and cannot be used on new workloads; use pack.required",
    reason = "FieldValueForbidden",
    path = ".spec.template.cliques",
))]
#[api(optional_old_rule(
    "oldSelf.hasValue() || !has(self.spec.template.podCliqueScalingGroups) || \
        self.spec.template.podCliqueScalingGroups.all(g, !has(g.topologyConstraint) || \
        !has(g.topologyConstraint.packDomain))",
    "packDomain is deprecated and cannot be used on new workloads; use pack.required",
    reason = "FieldValueForbidden",
    path = ".spec.template.podCliqueScalingGroups",
))]
pub struct PodCliqueSet {
    pub metadata: ObjectMeta,
    pub spec: PodCliqueSetSpec,
    pub status: Option<PodCliqueSetStatus>,
    pub rest: Rest,
}

/// How many copies of the application there are, and what each is made of.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueSetSpec {
    /// Copies of the whole template; each is a gang of its own.
    #[api(default = 0)]
    pub replicas: Option<i32>,
    /// What one copy is made of.
    pub template: PodCliqueSetTemplateSpec,
    /// How a change of the template reaches running pods.
    pub update_strategy: Option<UpdateStrategy>,
    pub rest: Rest,
}

/// What one copy of the application is made of.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueSetTemplateSpec {
    /// In which order cliques start.
    #[api(default = "CliqueStartupTypeAnyOrder")]
    pub clique_startup_type: Option<CliqueStartupType>,
    /// The cliques; their names cannot change.
    #[api(list(map("name")))]
    pub cliques: Vec<PodCliqueTemplateSpec>,
    /// The service under which the pods of a copy find each other.
    pub headless_service_config: Option<HeadlessServiceConfig>,
    /// Cliques that scale as one.
    pub pod_clique_scaling_groups: Option<Vec<PodCliqueScalingGroupConfig>>,
    /// Priority class of the gang.
    pub priority_class_name: Option<String>,
    /// Claims that pods can share, by the name that `resourceSharing` uses.
    pub resource_claim_templates: Option<Vec<ResourceClaimTemplateConfig>>,
    /// Which claims the cliques and scaling groups of a copy share.
    pub resource_sharing: Option<Vec<SetResourceSharing>>,
    /// How long a copy may be below its minimum before it is torn down and made anew; four hours unless given.
    pub termination_delay: Option<Duration>,
    /// Where each copy must be placed together.
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

string_enum! {
    /// In which order cliques start: all at once, one after the other as listed, or as `startsAfter` says.
    pub enum CliqueStartupType {
        AnyOrder = "CliqueStartupTypeAnyOrder",
        InOrder = "CliqueStartupTypeInOrder",
        Explicit = "CliqueStartupTypeExplicit",
    }
}

/// A clique: its name and what its pods are.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueTemplateSpec {
    /// Becomes a part of the names of its pods.
    pub name: String,
    pub annotations: Option<Labels>,
    pub labels: Option<Labels>,
    pub resource_sharing: Option<Vec<ResourceSharing>>,
    /// What the pods are, and how many.
    pub spec: PodCliqueSpec,
    /// Where the pods of this clique must be placed together; never wider than the constraint around it.
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

/// A claim that pods of a clique share.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceSharing {
    pub name: String,
    pub namespace: Option<String>,
    /// Whether all replicas share one claim, or the pods of each replica have their own.
    pub scope: ResourceSharingScope,
    pub rest: Rest,
}

string_enum! {
    /// How far one claim is shared.
    pub enum ResourceSharingScope { AllReplicas, PerReplica }
}

/// Pods of one role, and how many of them there must be.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueSpec {
    /// How many pods.
    pub replicas: i32,
    /// How many of them the gang needs: fewer are never placed, and fewer running for too long ends the gang.
    /// All of them unless given.
    pub min_available: Option<i32>,
    /// How the clique scales by itself; not for cliques of a scaling group.
    pub auto_scaling_config: Option<AutoScalingConfig>,
    /// What the pods run; `schedulerName` chooses the scheduler for the whole set.
    pub pod_spec: PodSpec,
    /// What the pods do, for people and metrics; the name of the clique unless given.
    pub role_name: Option<String>,
    /// Cliques whose pods must be ready first; only with `CliqueStartupTypeExplicit`.
    pub starts_after: Option<Vec<String>>,
    pub rest: Rest,
}

/// The bounds of automatic scaling, and what it goes by.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AutoScalingConfig {
    /// The fewest replicas; what was written in `replicas` unless given.
    pub min_replicas: Option<i32>,
    /// The most replicas.
    pub max_replicas: i32,
    /// What to scale by.
    #[api(list(atomic))]
    pub metrics: Option<Vec<MetricSpec>>,
    pub rest: Rest,
}

/// Where pods are placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "has(self.pack) || has(self.packDomain)",
    "topologyConstraint must specify pack or deprecated packDomain",
    reason = "FieldValueRequired",
    path = ".pack",
))]
#[api(rule(
    "!(has(self.packDomain) && has(self.pack) && has(self.pack.required))",
    "must not set both pack.required and deprecated packDomain",
    path = ".pack.required",
))]
pub struct TopologyConstraint {
    /// The domains to pack into.
    pub pack: Option<TopologyPackConstraint>,
    /// Former spelling of `pack.required`; refused on new objects.
    #[api(pattern = "^[a-z][a-z0-9-]*$", len(1..=63))]
    pub pack_domain: Option<String>,
    /// The ClusterTopologyBinding that names the domains; that of the level above unless given.
    pub topology_name: Option<String>,
    pub rest: Rest,
}

/// The domains to pack into, by the names of the topology's levels.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "has(self.required) || has(self.preferred)",
    "pack must specify at least one of required or preferred",
    reason = "FieldValueRequired",
))]
pub struct TopologyPackConstraint {
    /// All pods in one such domain, if that can be had.
    #[api(pattern = "^[a-z][a-z0-9-]*$", len(1..=63))]
    pub preferred: Option<String>,
    /// All pods in one such domain, or none is placed.
    #[api(pattern = "^[a-z][a-z0-9-]*$", len(1..=63))]
    pub required: Option<String>,
    pub rest: Rest,
}

/// The service under which pods find each other.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct HeadlessServiceConfig {
    /// Whether pods can be found before they are ready.
    #[api(default = true)]
    pub publish_not_ready_addresses: bool,
    pub rest: Rest,
}

/// Cliques that scale as one: a replica of the group is a full set of their pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueScalingGroupConfig {
    pub name: String,
    /// How many sets of pods.
    #[api(default = 1)]
    pub replicas: Option<i32>,
    /// How many sets the gang needs. Sets beyond it are gangs of their own.
    #[api(default = 1)]
    pub min_available: Option<i32>,
    pub annotations: Option<Labels>,
    /// The cliques; each is in one group at most.
    pub clique_names: Vec<String>,
    pub resource_sharing: Option<Vec<ScalingGroupResourceSharing>>,
    /// How the group scales by itself.
    pub scale_config: Option<AutoScalingConfig>,
    /// Where each set must be placed together.
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

/// A claim that the cliques of a scaling group share.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ScalingGroupResourceSharing {
    pub name: String,
    pub namespace: Option<String>,
    pub filter: Option<ScalingGroupSharingFilter>,
    pub scope: ResourceSharingScope,
    pub rest: Rest,
}

/// Which cliques share; all of the group unless given.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ScalingGroupSharingFilter {
    pub child_clique_names: Option<Vec<String>>,
    pub rest: Rest,
}

/// A claim that pods can share, and its name here.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceClaimTemplateConfig {
    pub name: String,
    pub template_spec: ResourceClaimTemplateSpec,
    pub rest: Rest,
}

/// A claim that the cliques and scaling groups of a copy share.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SetResourceSharing {
    pub name: String,
    pub namespace: Option<String>,
    pub filter: Option<SetSharingFilter>,
    pub scope: ResourceSharingScope,
    pub rest: Rest,
}

/// Which cliques and groups share; all of the copy unless given.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SetSharingFilter {
    pub child_clique_names: Option<Vec<String>>,
    pub child_scaling_group_names: Option<Vec<String>>,
    pub rest: Rest,
}

/// How a change of the template reaches running pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UpdateStrategy {
    #[api(default = "RollingRecreate")]
    pub r#type: Option<UpdateStrategyType>,
    pub rest: Rest,
}

string_enum! {
    /// One replica after the other, or whenever somebody deletes a pod.
    pub enum UpdateStrategyType { RollingRecreate, OnDelete }
}

/// What became of the copies.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueSetStatus {
    pub replicas: Option<i32>,
    /// Copies in which every clique has its minimum.
    #[api(default = 0)]
    pub available_replicas: i32,
    pub conditions: Option<Vec<Condition>>,
    /// Hash of the template that is being rolled out.
    pub current_generation_hash: Option<String>,
    pub hpa_pod_selector: Option<String>,
    /// What went wrong most recently.
    pub last_errors: Option<Vec<LastError>>,
    pub observed_generation: Option<i64>,
    /// The gangs of all copies.
    pub pod_gang_statuses: Option<Vec<PodGangStatus>>,
    /// How far a roll-out is.
    pub update_progress: Option<PodCliqueSetUpdateProgress>,
    /// Copies that run the current template.
    #[api(default = 0)]
    pub updated_replicas: i32,
    /// Available and wanted replicas, as `kubectl get` shows them: `1/2`.
    pub ready: Option<String>,
    pub rest: Rest,
}

/// Something that went wrong, and when.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LastError {
    pub code: String,
    pub description: String,
    pub observed_at: Time,
    pub rest: Rest,
}

/// State of one gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGangStatus {
    pub name: String,
    pub conditions: Option<Vec<Condition>>,
    pub phase: PodGangPhase,
    pub rest: Rest,
}

string_enum! {
    /// Where a gang is in its life.
    pub enum PodGangPhase { Pending, Starting, Running, Failed, Succeeded }
}

/// How far a roll-out over the copies is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueSetUpdateProgress {
    pub currently_updating: Option<Vec<PodCliqueSetReplicaUpdateProgress>>,
    #[api(default = 0)]
    pub total_pod_clique_scaling_groups_count: Option<i32>,
    #[api(default = 0)]
    pub total_pod_cliques_count: Option<i32>,
    pub update_ended_at: Option<Time>,
    pub update_started_at: Option<Time>,
    #[api(default = 0)]
    pub updated_pod_clique_scaling_groups_count: Option<i32>,
    #[api(default = 0)]
    pub updated_pod_cliques_count: Option<i32>,
    pub rest: Rest,
}

/// How far the roll-out in one copy is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueSetReplicaUpdateProgress {
    pub replica_index: i32,
    pub update_ended_at: Option<Time>,
    pub update_started_at: Option<Time>,
    pub rest: Rest,
}

/// Pods of one role in one copy of an application. Made by the controller; edit the PodCliqueSet instead.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "grove.io",
    version = "v1alpha1",
    plural = "podcliques",
    short("pclq"),
    status,
    scale(".spec.replicas", ".status.replicas", ".status.hpaPodSelector"),
    column("MinAvail", ".spec.minAvailable" as integer),
    column("Replicas", ".spec.replicas" as integer),
    column("Ready", ".status.readyReplicas" as integer),
    column("Scheduled", ".status.scheduledReplicas" as integer),
    column("Updated", ".status.updatedReplicas" as integer),
    column("Gated", ".status.scheduleGatedReplicas" as integer, wide),
    column("MinBreached", ".status.conditions[?(@.type==\"MinAvailableBreached\")].status" as string, wide),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct PodClique {
    pub metadata: ObjectMeta,
    pub spec: PodCliqueSpec,
    pub status: Option<PodCliqueStatus>,
    pub rest: Rest,
}

/// What became of the pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueStatus {
    pub replicas: Option<i32>,
    pub conditions: Option<Vec<Condition>>,
    pub current_pod_clique_set_generation_hash: Option<String>,
    pub current_pod_template_hash: Option<String>,
    pub hpa_pod_selector: Option<String>,
    pub last_errors: Option<Vec<LastError>>,
    pub observed_generation: Option<i64>,
    /// Pods that are ready.
    #[api(default = 0)]
    pub ready_replicas: i32,
    /// Pods that wait for their gang to be complete.
    #[api(default = 0)]
    pub schedule_gated_replicas: i32,
    /// Pods that have a node.
    #[api(default = 0)]
    pub scheduled_replicas: i32,
    pub update_progress: Option<PodCliqueUpdateProgress>,
    /// Pods that run the current template.
    #[api(default = 0)]
    pub updated_replicas: i32,
    pub rest: Rest,
}

/// How far a roll-out over the pods is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueUpdateProgress {
    pub pod_clique_set_generation_hash: String,
    pub pod_template_hash: String,
    pub ready_pods_selected_to_update: Option<PodsSelectedToUpdate>,
    pub update_ended_at: Option<Time>,
    pub update_started_at: Option<Time>,
    pub rest: Rest,
}

/// The ready pod that is being replaced, and those that were.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodsSelectedToUpdate {
    pub completed: Option<Vec<String>>,
    pub current: String,
    pub rest: Rest,
}

/// Cliques that scale as one, in one copy of an application. Made by the controller; scale it with `kubectl
/// scale`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "grove.io",
    version = "v1alpha1",
    plural = "podcliquescalinggroups",
    short("pcsg"),
    status,
    scale(".spec.replicas", ".status.replicas", ".status.selector"),
    column("MinAvail", ".spec.minAvailable" as integer),
    column("Replicas", ".spec.replicas" as integer),
    column("Available", ".status.availableReplicas" as integer),
    column("Scheduled", ".status.scheduledReplicas" as integer),
    column("Updated", ".status.updatedReplicas" as integer),
    column("PCLQs-Updated", ".status.updateProgress.updatedPodCliquesCount" as integer),
    column("PCLQs-Total", ".status.updateProgress.totalPodCliquesCount" as integer),
    column("MinBreached", ".status.conditions[?(@.type==\"MinAvailableBreached\")].status" as string, wide),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct PodCliqueScalingGroup {
    pub metadata: ObjectMeta,
    pub spec: PodCliqueScalingGroupSpec,
    pub status: Option<PodCliqueScalingGroupStatus>,
    pub rest: Rest,
}

/// How many sets of pods there are, and of which cliques.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueScalingGroupSpec {
    /// How many sets.
    #[api(default = 1)]
    pub replicas: i32,
    /// How many sets the gang needs.
    #[api(default = 1)]
    pub min_available: Option<i32>,
    /// The cliques of each set.
    pub clique_names: Vec<String>,
    pub rest: Rest,
}

/// What became of the sets.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueScalingGroupStatus {
    pub replicas: Option<i32>,
    /// Sets in which every clique has its minimum ready.
    #[api(default = 0)]
    pub available_replicas: i32,
    pub conditions: Option<Vec<Condition>>,
    pub current_pod_clique_set_generation_hash: Option<String>,
    pub last_errors: Option<Vec<LastError>>,
    pub observed_generation: Option<i64>,
    /// Sets in which every clique has its minimum placed.
    #[api(default = 0)]
    pub scheduled_replicas: i32,
    pub selector: Option<String>,
    pub update_progress: Option<PodCliqueScalingGroupUpdateProgress>,
    #[api(default = 0)]
    pub updated_replicas: i32,
    pub rest: Rest,
}

/// How far a roll-out over the sets is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodCliqueScalingGroupUpdateProgress {
    pub pod_clique_set_generation_hash: String,
    pub ready_replica_indices_selected_to_update: Option<ReplicasSelectedToUpdate>,
    #[api(default = 0)]
    pub total_pod_cliques_count: Option<i32>,
    pub update_ended_at: Option<Time>,
    pub update_started_at: Time,
    #[api(default = 0)]
    pub updated_pod_cliques_count: Option<i32>,
    pub rest: Rest,
}

/// The set that is being replaced, and those that were.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReplicasSelectedToUpdate {
    pub completed: Option<Vec<i32>>,
    pub current: i32,
    pub rest: Rest,
}

/// The levels of the cluster's topology, by name, from the widest to the narrowest.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "grove.io",
    version = "v1alpha1",
    plural = "clustertopologybindings",
    short("ct"),
    cluster,
    status,
    column("Domains", ".spec.levels[*].domain" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct ClusterTopologyBinding {
    pub metadata: ObjectMeta,
    pub spec: ClusterTopologyBindingSpec,
    pub status: Option<ClusterTopologyBindingStatus>,
    pub rest: Rest,
}

/// The levels, and the topology objects of other schedulers that mirror them.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterTopologyBindingSpec {
    /// From the widest to the narrowest: region, zone, block, rack, host.
    #[api(len(1..))]
    pub levels: Vec<TopologyLevel>,
    /// Topology objects that exist already for other schedulers; the rest are made.
    pub scheduler_topology_bindings: Option<Vec<SchedulerTopologyBinding>>,
    pub rest: Rest,
}

/// A level: its name, and the node label that tells its domains apart.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyLevel {
    /// The node label.
    #[api(
        pattern = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$",
        len(1..=63),
    )]
    pub key: String,
    /// The name that topology constraints use: `rack`.
    #[api(pattern = "^[a-z][a-z0-9-]*$", len(1..=63))]
    pub domain: String,
    pub rest: Rest,
}

/// The topology object of a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulerTopologyBinding {
    pub scheduler_name: String,
    pub topology_reference: String,
    pub rest: Rest,
}

/// Whether the schedulers' topology objects agree.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterTopologyBindingStatus {
    pub conditions: Option<Vec<Condition>>,
    pub observed_generation: Option<i64>,
    pub scheduler_topology_statuses: Option<Vec<SchedulerTopologyStatus>>,
    pub rest: Rest,
}

/// Whether one scheduler's topology object agrees.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulerTopologyStatus {
    pub in_sync: bool,
    pub message: Option<String>,
    pub scheduler_backend_topology_observed_generation: Option<i64>,
    pub scheduler_name: String,
    pub topology_reference: String,
    pub rest: Rest,
}
