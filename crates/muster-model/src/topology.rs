//! Topologies: which node labels, from coarse to fine, say how near two nodes are.

use crate::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub name: Name,
    /// Coarse to fine. Rules refer to the label, or to the alias, which front ends resolve.
    pub levels: Vec<Level>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    pub label: Name,
    pub alias: Option<Name>,
}
