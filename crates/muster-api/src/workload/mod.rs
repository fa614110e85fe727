//! Kubernetes' own gang API, `scheduling.k8s.io`.
//!
//! The API server has these kinds built in, behind feature gates: v1alpha1 in 1.35, v1alpha2 in 1.36, never
//! both. So there are types for both and a CRD for neither, and whoever writes them asks the server first
//! which one it serves.

pub mod v1alpha1;
pub mod v1alpha2;

use crate::common::Rest;
use muster_api_derive::Api;

/// The object that a Workload was made for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TypedLocalObjectReference {
    /// Group of the object; absent means the core group.
    pub api_group: Option<String>,
    pub kind: String,
    pub name: String,
    pub rest: Rest,
}

/// Pods are placed one by one, as if there were no group.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct BasicSchedulingPolicy {
    pub rest: Rest,
}

/// Pods are placed only if enough of them can be.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct GangSchedulingPolicy {
    /// How many pods must be placeable together; not a number of replicas.
    #[api(range(1..))]
    pub min_count: i32,
    pub rest: Rest,
}
