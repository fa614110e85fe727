//! What a node says about its NUMA zones, `topology.node.k8s.io` v1alpha1 and v1alpha2.

use crate::common::{ObjectMeta, Quantity, Rest};
use muster_api_derive::Api;

/// NUMA zones of the node with the same name, and what is free in them.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "topology.node.k8s.io",
    version = "v1alpha2",
    plural = "noderesourcetopologies",
    short("node-res-topo"),
    cluster,
    approved = "https://github.com/kubernetes/enhancements/pull/1870"
)]
pub struct NodeResourceTopology {
    pub metadata: ObjectMeta,
    pub attributes: Option<Vec<AttributeInfo>>,
    pub topology_policies: Option<Vec<String>>,
    pub zones: Vec<Zone>,
    pub rest: Rest,
}

/// Something to know about a node or zone.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AttributeInfo {
    pub name: String,
    pub value: String,
    pub rest: Rest,
}

/// A zone, and what it has.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Zone {
    pub name: String,
    pub r#type: String,
    pub attributes: Option<Vec<AttributeInfo>>,
    pub costs: Option<Vec<CostInfo>>,
    pub parent: Option<String>,
    pub resources: Option<Vec<ResourceInfo>>,
    pub rest: Rest,
}

/// How far away another zone is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CostInfo {
    pub name: String,
    pub value: i64,
    pub rest: Rest,
}

/// What a zone has of a resource, and what is free.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceInfo {
    pub name: String,
    pub allocatable: Quantity,
    pub available: Quantity,
    pub capacity: Quantity,
    pub rest: Rest,
}

/// NUMA zones of the node with the same name, and what is free in them; the older version.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "topology.node.k8s.io",
    version = "v1alpha1",
    kind = "NodeResourceTopology",
    plural = "noderesourcetopologies",
    short("node-res-topo"),
    cluster,
    not_stored,
    approved = "https://github.com/kubernetes/enhancements/pull/1870"
)]
pub struct NodeResourceTopologyV1alpha1 {
    pub metadata: ObjectMeta,
    pub topology_policies: Vec<String>,
    pub zones: Vec<Zone>,
    pub rest: Rest,
}
