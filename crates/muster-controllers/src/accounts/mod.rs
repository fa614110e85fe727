//! What every gang asks for and holds, and the sums of that along the tree of queues.
//!
//! One count serves the statuses of pod groups and of queues: pods are counted once, whoever asks.

pub mod plan;
pub mod run;

mod members;
mod tree;

use muster_runtime::object::Meta;
use serde::Deserialize;
use serde_json::Value;

pub use members::{Members, group_of};
pub use run::Accounts;
pub use tree::{Sums, Tree};

/// The annotation that makes a pod a member of a group of its namespace.
pub const GROUP: &str = "pod-group-name";
/// The label that says in which part of the group.
pub const SUBGROUP: &str = "kai.scheduler/subgroup-name";

/// A claim for devices. Its requests stay JSON: only their classes and counts are looked at.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
}

muster_runtime::kinds! {
    Claim = "resource.k8s.io" "v1" "ResourceClaim" "resourceclaims";
}
