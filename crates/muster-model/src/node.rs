//! Nodes: what they have, who they let in, and the devices inside.

use crate::{Amounts, Labels, Name, volcano};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Name,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub conditions: Conditions,
    /// What pods may have; whole GPUs under [`crate::Resource::Gpu`].
    pub allocatable: Amounts,
    pub gpus: Gpus,
    pub numa: Option<Numa>,
    /// How many volumes of each CSI driver it can attach.
    pub attach_limits: BTreeMap<Name, u32>,
    /// Images of containers that it has already, with their sizes in bytes.
    pub images: BTreeMap<Name, i64>,
    /// What was measured of it, where somebody measures.
    pub load: Option<volcano::Load>,
}

/// Conditions that keep pods away. The healthy state is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conditions {
    pub ready: bool,
    /// Cordoned.
    pub unschedulable: bool,
    /// Memory, disk, process or network trouble.
    pub pressure: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { ready: true, unschedulable: false, pressure: false }
    }
}

impl Conditions {
    /// Whether its capacity counts at all.
    pub fn usable(self) -> bool {
        self.ready && !self.unschedulable && !self.pressure
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    pub key: Name,
    pub value: Name,
    pub effect: TaintEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// The GPUs of a node beyond their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    /// Memory of each, in MiB; `None`: unknown, so requests by memory cannot be answered here.
    pub memory: Option<i64>,
    pub mig: MigStrategy,
    /// Served by a DRA driver: shares by annotation are refused here.
    pub dra: bool,
    pub links: Option<Links>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MigStrategy {
    #[default]
    None,
    /// Every GPU is cut alike and counts as a whole GPU.
    Single,
    /// Profiles are resources of their own.
    Mixed,
}

/// How the GPUs of a node are joined, as sets of device indices (bit i is GPU i), the fastest joins first. A GPU may be in one set of
/// each tier at most. At most 64 GPUs; larger nodes have no links here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Links {
    /// How many devices there are.
    pub gpus: u32,
    /// Tiers, the fastest first (NVLink before PCIe switches), each a list of disjoint sets.
    pub tiers: Vec<Vec<u64>>,
}

/// What the kubelet's topology manager does on a node, and its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numa {
    pub policy: NumaPolicy,
    pub scope: NumaScope,
    /// In the order of the node's report; an index here is a zone's number.
    pub zones: Vec<Zone>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumaPolicy {
    None,
    BestEffort,
    Restricted,
    SingleNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumaScope {
    Container,
    Pod,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    pub name: Name,
    pub allocatable: Amounts,
    /// As reported; the engine rebuilds what is available from what it knows of the pods, unless told to trust this.
    pub available: Amounts,
}
