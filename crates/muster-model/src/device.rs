//! Devices of dynamic resource allocation (DRA): slices, claims and their allocation.
//!
//! Device selectors are expressions of another language; front ends evaluate them, so that here a request is a set of devices.

use crate::{Key, Name, NodeTerm};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName {
    pub driver: Name,
    pub pool: Name,
    pub device: Name,
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: DeviceName,
    pub reach: DeviceReach,
    /// Its attributes as comparable text, by qualified name; for constraints that several devices agree in one.
    pub attributes: BTreeMap<Name, Name>,
    /// What it takes from counters that its pool shares between devices: (counter set and counter, amount).
    pub counters: Vec<(Name, i64)>,
    /// What its pool has in all of each of those counters. A counter without a total here bounds nothing.
    pub counter_totals: Vec<(Name, i64)>,
    /// Charged to queues as a GPU.
    pub gpu: bool,
    /// Tainted so that nothing new may be placed on it.
    pub no_schedule: bool,
}

/// From which nodes a device can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceReach {
    Node(Name),
    Nodes(Vec<NodeTerm>),
    Everywhere,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub key: Key,
    pub requests: Vec<DeviceRequest>,
    /// Each: the requests concerned (none: all) and the attribute in which their devices must agree.
    pub same: Vec<(Vec<Name>, Name)>,
    pub allocation: Option<Allocation>,
    /// Pods (by uid) that hold it.
    pub reserved_for: Vec<Name>,
    /// Made for one pod from a template.
    pub of_pod: Option<Name>,
    /// The queue it is labelled with, for claims that several pods share.
    pub queue: Option<Name>,
    /// What is wrong with it, if it can never be allocated.
    pub defect: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// (request, device).
    pub devices: Vec<(Name, DeviceName)>,
    /// Where it can be used; no terms: everywhere.
    pub nodes: Vec<NodeTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    pub name: Name,
    /// The first that can be had is taken; most requests have one.
    pub alternatives: Vec<DeviceAlternative>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAlternative {
    /// Empty for a request without alternatives.
    pub name: Name,
    /// Every device that the class and the selectors accept, sorted by name.
    pub candidates: Arc<[DeviceName]>,
    pub count: DeviceCount,
    /// Looks at devices without holding them.
    pub admin: bool,
    /// Charged to queues as GPUs.
    pub gpu: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceCount {
    Exactly(u32),
    /// All that the node can reach, at least one.
    All,
}

/// A pod's use of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimUse {
    /// Its name within the pod.
    pub name: Name,
    pub claim: Key,
}
