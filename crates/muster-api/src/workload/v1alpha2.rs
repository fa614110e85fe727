//! `scheduling.k8s.io/v1alpha2`, served by Kubernetes 1.36: Workload and PodGroup.
//!
//! A Workload holds templates, a PodGroup is one gang, and a pod names its gang with `spec.schedulingGroup`
//! ([`PodSchedulingGroup`]). Every field of a spec is immutable.

use super::{BasicSchedulingPolicy, GangSchedulingPolicy, TypedLocalObjectReference};
use crate::common::{Condition, ObjectMeta, Rest, string_enum};
use muster_api_derive::Api;

/// Templates of the pod groups of an application.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "scheduling.k8s.io", version = "v1alpha2", plural = "workloads")]
pub struct Workload {
    pub metadata: ObjectMeta,
    pub spec: WorkloadSpec,
    pub rest: Rest,
}

/// What cannot change once the Workload exists.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WorkloadSpec {
    pub controller_ref: Option<TypedLocalObjectReference>,
    #[api(len(1..=8), list(map("name")))]
    pub pod_group_templates: Vec<PodGroupTemplate>,
    pub rest: Rest,
}

/// What a PodGroup made from this template is like.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupTemplate {
    #[api(dns_label)]
    pub name: String,
    pub scheduling_policy: PodGroupSchedulingPolicy,
    pub scheduling_constraints: Option<PodGroupSchedulingConstraints>,
    #[api(len(..=4), list(map("name")))]
    pub resource_claims: Option<Vec<PodGroupResourceClaim>>,
    pub disruption_mode: Option<DisruptionMode>,
    #[api(dns_subdomain)]
    pub priority_class_name: Option<String>,
    #[api(range(..=1000000000))]
    pub priority: Option<i32>,
    pub rest: Rest,
}

/// Exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSchedulingPolicy {
    pub basic: Option<BasicSchedulingPolicy>,
    pub gang: Option<GangSchedulingPolicy>,
    pub rest: Rest,
}

/// Where the pods of the group must land together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSchedulingConstraints {
    #[api(len(..=1), list(atomic))]
    pub topology: Option<Vec<TopologyConstraint>>,
    pub rest: Rest,
}

/// All pods on nodes with one value of this node label.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyConstraint {
    pub key: String,
    pub rest: Rest,
}

/// A claim that all pods of the group share: exactly one of the two names.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupResourceClaim {
    #[api(dns_label)]
    pub name: String,
    pub resource_claim_name: Option<String>,
    pub resource_claim_template_name: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// Whether preemption may take single pods or takes the whole group.
    pub enum DisruptionMode { Pod, PodGroup }
}

/// One gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "scheduling.k8s.io", version = "v1alpha2", plural = "podgroups", status)]
pub struct PodGroup {
    pub metadata: ObjectMeta,
    pub spec: PodGroupSpec,
    pub status: Option<PodGroupStatus>,
    pub rest: Rest,
}

/// What cannot change once the PodGroup exists.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSpec {
    /// The template that the group was made from; without one the group stands alone.
    pub pod_group_template_ref: Option<PodGroupTemplateReference>,
    pub scheduling_policy: PodGroupSchedulingPolicy,
    pub scheduling_constraints: Option<PodGroupSchedulingConstraints>,
    #[api(len(..=4), list(map("name")))]
    pub resource_claims: Option<Vec<PodGroupResourceClaim>>,
    #[api(default = "Pod")]
    pub disruption_mode: Option<DisruptionMode>,
    #[api(dns_subdomain)]
    pub priority_class_name: Option<String>,
    #[api(range(..=1000000000))]
    pub priority: Option<i32>,
    pub rest: Rest,
}

/// Where the template of a group is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupTemplateReference {
    pub workload: Option<WorkloadPodGroupTemplateReference>,
    pub rest: Rest,
}

/// A template of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WorkloadPodGroupTemplateReference {
    pub workload_name: String,
    pub pod_group_template_name: String,
    pub rest: Rest,
}

/// What became of a gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupStatus {
    /// `PodGroupScheduled` and `DisruptionTarget`.
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    #[api(len(..=4), list(map("name")))]
    pub resource_claim_statuses: Option<Vec<PodGroupResourceClaimStatus>>,
    pub rest: Rest,
}

/// The claim that was made for an entry of `spec.resourceClaims`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupResourceClaimStatus {
    pub name: String,
    pub resource_claim_name: Option<String>,
    pub rest: Rest,
}

/// A pod's `spec.schedulingGroup`.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSchedulingGroup {
    pub pod_group_name: String,
    pub rest: Rest,
}
