//! Volcano's node shards, `shard.volcano.sh/v1alpha1`: which scheduler works on which nodes.

use crate::common::{ObjectMeta, Rest, Time};
use muster_api_derive::Api;

/// The nodes that one scheduler works on.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "shard.volcano.sh",
    version = "v1alpha1",
    plural = "nodeshards",
    short("nsh"),
    cluster,
    status,
    column("AGE", ".metadata.creationTimestamp" as date)
)]
pub struct NodeShard {
    pub metadata: ObjectMeta,
    pub spec: NodeShardSpec,
    pub status: Option<NodeShardStatus>,
    pub rest: Rest,
}

/// Which nodes it should have.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodeShardSpec {
    pub nodes_desired: Vec<String>,
    pub rest: Rest,
}

/// Which nodes it has.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodeShardStatus {
    pub last_update_time: Option<Time>,
    pub nodes_in_use: Option<Vec<String>>,
    pub nodes_to_add: Option<Vec<String>>,
    pub nodes_to_remove: Option<Vec<String>>,
    pub rest: Rest,
}
