//! Grove's contract with schedulers, `scheduler.grove.io/v1alpha1`: the PodGang.

use crate::common::meta::Condition;
use crate::common::{Number, ObjectMeta, Rest, string_enum};
use muster_api_derive::Api;

/// Pods that are placed all together or not at all. Made by a controller, read by schedulers.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduler.grove.io",
    version = "v1alpha1",
    plural = "podgangs",
    short("pg"),
    status,
    column("Phase", ".status.phase" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct PodGang {
    pub metadata: ObjectMeta,
    pub spec: PodGangSpec,
    pub status: Option<PodGangStatus>,
    pub rest: Rest,
}

/// The groups of the gang, and where they must be placed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGangSpec {
    /// The groups; each must have its minimum for the gang to be placed.
    pub podgroups: Vec<PodGroup>,
    /// Priority class of the gang.
    pub priority_class_name: Option<String>,
    /// A former gang whose place should be taken, if it is free.
    pub reuse_reservation_ref: Option<NamespacedName>,
    /// Where the whole gang must be placed together.
    pub topology_constraint: Option<TopologyConstraint>,
    /// Where several groups must be placed together.
    pub topology_constraint_group_configs: Option<Vec<TopologyConstraintGroupConfig>>,
    pub rest: Rest,
}

/// Pods of one clique.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroup {
    pub name: String,
    /// How many of them the gang needs.
    pub min_replicas: i32,
    /// The pods.
    pub pod_references: Vec<NamespacedName>,
    /// Where the pods of this group must be placed together.
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

/// An object by name and namespace.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NamespacedName {
    pub name: String,
    pub namespace: String,
    pub rest: Rest,
}

/// Where pods are placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyConstraint {
    pub pack_constraint: Option<TopologyPackConstraint>,
    pub rest: Rest,
}

/// The node labels whose domains to pack into.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyPackConstraint {
    /// All pods on nodes with one value of this label, if that can be had.
    pub preferred: Option<String>,
    /// All pods on nodes with one value of this label, or none is placed.
    pub required: Option<String>,
    pub rest: Rest,
}

/// Groups that must be placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyConstraintGroupConfig {
    pub name: String,
    pub pod_group_names: Vec<String>,
    pub topology_constraint: Option<TopologyConstraint>,
    pub rest: Rest,
}

/// What became of the gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGangStatus {
    pub conditions: Option<Vec<Condition>>,
    pub phase: PodGangPhase,
    /// How good the placement is, from 0 to 1.
    pub placement_score: Option<Number>,
    pub rest: Rest,
}

string_enum! {
    /// Where a gang is in its life.
    pub open enum PodGangPhase { Pending, Starting, Running, Failed, Succeeded }
}
