//! Topologies: which node labels, from coarse to fine, say how near two nodes are.

use crate::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub name: Name,
    /// Coarse to fine. Rules refer to the label, or to the alias, which front ends resolve.
    pub levels: Vec<Level>,
    /// Domains that are listed instead of read from labels. Parents come before children. A topology has levels or domains.
    pub domains: Vec<Domain>,
}

/// A set of nodes that are near each other, and how near: the lower the tier, the nearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub name: Name,
    pub tier: i64,
    pub tier_name: Option<Name>,
    /// Index in [`Topology::domains`].
    pub parent: Option<u32>,
    /// Its own nodes and those of the domains below it.
    pub nodes: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub label: Name,
    pub alias: Option<Name>,
}
