//! `scheduling.k8s.io/v1alpha1`, served by Kubernetes 1.35: the Workload, which lists its pod groups.
//!
//! A pod names its group with `spec.workloadRef` ([`WorkloadReference`]).

use super::{BasicSchedulingPolicy, GangSchedulingPolicy, TypedLocalObjectReference};
use crate::common::{ObjectMeta, Rest};
use muster_api_derive::Api;

/// The pod groups of an application and how each is scheduled. It has no status.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "scheduling.k8s.io", version = "v1alpha1", plural = "workloads")]
pub struct Workload {
    pub metadata: ObjectMeta,
    pub spec: WorkloadSpec,
    pub rest: Rest,
}

/// What cannot change once it is set.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WorkloadSpec {
    pub controller_ref: Option<TypedLocalObjectReference>,
    #[api(len(1..=8), list(map("name")))]
    pub pod_groups: Vec<PodGroup>,
    pub rest: Rest,
}

/// One group of pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroup {
    #[api(dns_label)]
    pub name: String,
    pub policy: PodGroupPolicy,
    pub rest: Rest,
}

/// Exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupPolicy {
    pub basic: Option<BasicSchedulingPolicy>,
    pub gang: Option<GangSchedulingPolicy>,
    pub rest: Rest,
}

/// A pod's `spec.workloadRef`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WorkloadReference {
    pub name: String,
    pub pod_group: String,
    /// Tells copies of a group apart; each copy is a gang of its own.
    pub pod_group_replica_key: Option<String>,
    pub rest: Rest,
}
