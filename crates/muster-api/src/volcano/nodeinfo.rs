//! Volcano's view of a node's NUMA layout, `nodeinfo.volcano.sh/v1alpha1`.

use crate::common::{Labels, ObjectMeta, Rest};
use muster_api_derive::Api;
use std::collections::BTreeMap;

/// NUMA layout of the node with the same name.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "nodeinfo.volcano.sh",
    version = "v1alpha1",
    plural = "numatopologies",
    short("numatopo"),
    cluster
)]
pub struct Numatopology {
    pub metadata: ObjectMeta,
    pub spec: Option<NumatopologySpec>,
    pub rest: Rest,
}

/// Zones, and what is free in them.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NumatopologySpec {
    pub cpu_detail: Option<BTreeMap<String, CpuInfo>>,
    pub numares: Option<BTreeMap<String, ResourceInfo>>,
    pub pod_allocations: Option<Vec<PodAllocation>>,
    pub policies: Option<Labels>,
    pub res_reserved: Option<Labels>,
    pub rest: Rest,
}

/// Where a CPU is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CpuInfo {
    #[api(range(0..), unformatted)]
    pub core: Option<i64>,
    #[api(range(0..), unformatted)]
    pub numa: Option<i64>,
    #[api(range(0..), unformatted)]
    pub socket: Option<i64>,
    pub rest: Rest,
}

/// What a zone has, and what can be used of it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceInfo {
    pub allocatable: Option<String>,
    #[api(unformatted)]
    pub capacity: Option<i64>,
    pub rest: Rest,
}

/// What a pod holds of the zones.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodAllocation {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub container_allocations: Option<Vec<ContainerAllocation>>,
    pub uid: Option<String>,
    pub rest: Rest,
}

/// What a container holds of the zones.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ContainerAllocation {
    pub name: Option<String>,
    pub allocations: Option<Labels>,
    pub rest: Rest,
}
