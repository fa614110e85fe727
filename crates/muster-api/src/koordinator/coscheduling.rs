//! Gangs and elastic quotas, `scheduling.sigs.k8s.io/v1alpha1`: the scheduler-plugins group that Koordinator
//! serves.

use crate::common::{ObjectMeta, ResourceList, Rest, Time, string_enum};
use muster_api_derive::Api;

/// A gang: pods that are placed together. Gangs can be joined to groups by an annotation.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.sigs.k8s.io",
    version = "v1alpha1",
    plural = "podgroups",
    approved = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
)]
pub struct PodGroup {
    pub metadata: ObjectMeta,
    pub spec: Option<PodGroupSpec>,
    pub status: Option<PodGroupStatus>,
    pub rest: Rest,
}

/// What a gang needs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupSpec {
    /// How many pods must be placed together.
    pub min_member: Option<i32>,
    /// What the gang needs at least; for information.
    pub min_resources: Option<ResourceList>,
    /// How long placed pods wait for the rest.
    pub schedule_timeout_seconds: Option<i32>,
    pub rest: Rest,
}

/// What became of the gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupStatus {
    pub failed: Option<i32>,
    pub occupied_by: Option<String>,
    pub phase: Option<PodGroupPhase>,
    pub running: Option<i32>,
    pub schedule_start_time: Option<Time>,
    pub scheduled: Option<i32>,
    pub succeeded: Option<i32>,
    pub rest: Rest,
}

string_enum! {
    /// Where a gang is in its life.
    pub open enum PodGroupPhase {
        Pending,
        PreScheduling,
        Scheduling,
        Scheduled,
        Running,
        Finished,
        Failed,
        Unknown,
    }
}

/// A node of the quota tree; labels say where in it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.sigs.k8s.io",
    version = "v1alpha1",
    plural = "elasticquotas",
    approved = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"
)]
pub struct ElasticQuota {
    pub metadata: ObjectMeta,
    pub spec: Option<ElasticQuotaSpec>,
    pub status: Option<ElasticQuotaStatus>,
    pub rest: Rest,
}

/// What is guaranteed, and the most.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ElasticQuotaSpec {
    /// The most; a resource that is not named is not bounded.
    pub max: Option<ResourceList>,
    /// What is guaranteed; what is unused of it may be lent.
    pub min: Option<ResourceList>,
    pub rest: Rest,
}

/// What is used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ElasticQuotaStatus {
    pub used: Option<ResourceList>,
    pub rest: Rest,
}
