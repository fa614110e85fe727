//! Volcano's network topology, `topology.volcano.sh/v1alpha1`: the HyperNode.

use crate::common::meta::{Condition, LabelSelector};
use crate::common::{ObjectMeta, Rest, string_enum};
use muster_api_derive::Api;

/// A part of the network in which nodes are equally close: a switch, a rack, a block.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "topology.volcano.sh",
    version = "v1alpha1",
    plural = "hypernodes",
    short("hn"),
    cluster,
    status,
    column("Tier", ".spec.tier" as string),
    column("TierName", ".spec.tierName" as string),
    column("NodeCount", ".status.nodeCount" as integer),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct HyperNode {
    pub metadata: ObjectMeta,
    pub spec: Option<HyperNodeSpec>,
    pub status: Option<HyperNodeStatus>,
    pub rest: Rest,
}

/// Its tier, and the nodes or hyper nodes in it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct HyperNodeSpec {
    #[api(len(1..))]
    pub members: Option<Vec<MemberSpec>>,
    /// The lower, the closer are the members.
    #[api(range(0..), unformatted)]
    pub tier: i64,
    #[api(len(..=253))]
    pub tier_name: Option<String>,
    pub rest: Rest,
}

/// Nodes, or hyper nodes of a lower tier.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MemberSpec {
    pub r#type: MemberType,
    pub selector: Option<MemberSelector>,
    pub rest: Rest,
}

string_enum! {
    /// Nodes or hyper nodes.
    pub enum MemberType { Node, HyperNode }
}

/// Which ones: exactly one of the three ways.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(rule(
    "has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)",
    "Either ExactMatch or RegexMatch or LabelMatch must be specified",
))]
#[api(rule(
    "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) \
        <= 1",
    "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
))]
pub struct MemberSelector {
    pub exact_match: Option<ExactMatch>,
    pub label_match: Option<LabelSelector>,
    pub regex_match: Option<RegexMatch>,
    pub rest: Rest,
}

/// By name.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ExactMatch {
    #[api(dns_subdomain, len(1..))]
    pub name: String,
    pub rest: Rest,
}

/// By a pattern of names.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct RegexMatch {
    #[api(len(1..))]
    pub pattern: String,
    pub rest: Rest,
}

/// How many nodes are in it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct HyperNodeStatus {
    pub conditions: Option<Vec<Condition>>,
    #[api(range(0..))]
    pub node_count: Option<i64>,
    pub rest: Rest,
}
