//! What a cycle decided: binds, evictions, promises, and for everyone who waits, why.

use crate::{Action, Amounts, DeviceName, Key, Name, Refusal, volcano};

/// The outcome of one cycle. The order of each list is the order in which it was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    pub binds: Vec<Bind>,
    pub evictions: Vec<Evict>,
    pub pipelined: Vec<Pipeline>,
    /// Gangs that have pods waiting, and why. Sorted by gang.
    pub refusals: Vec<Refusal>,
    /// Gangs that fell below their minimum and have no start of staleness on record yet.
    pub newly_stale: Vec<Key>,
    /// Gangs that have a start of staleness on record and have their minimum again.
    pub recovered: Vec<Key>,
    /// Pods that have a place in mind and do not get it, because the rest of their gang has none yet. Nothing comes of it but an explanation.
    pub held: Vec<Pipeline>,
    /// How far the gangs of Volcano have come by the end of the cycle, where that is not what they say. Sorted by gang.
    pub phases: Vec<GangPhase>,
}

/// How far a gang has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangPhase {
    pub gang: Key,
    pub phase: volcano::Phase,
    /// The domain that its pods are in.
    pub domain: Option<Name>,
}

/// A pod gets a node now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    pub pod: Key,
    pub gang: Key,
    pub action: Action,
    pub placement: Placement,
}

/// A pod is promised a node whose room is still being released. Nothing is bound yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    pub pod: Key,
    pub gang: Key,
    pub action: Action,
    pub placement: Placement,
}

/// Where a pod goes, down to the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub node: Name,
    /// Ids of the shared GPUs, one per device. An id that no pod on the node has yet opens a GPU.
    pub gpu_groups: Vec<Name>,
    /// For a share of a GPU: how much of each, in thousandths.
    pub gpu_portion: Option<i64>,
    /// Indices of whole GPUs, where the node's links are known.
    pub gpus: Vec<u32>,
    pub zones: Vec<ZoneUse>,
    /// (claim, request, device) for claims that this placement allocates.
    pub devices: Vec<(Key, Name, DeviceName)>,
}

/// What a pod takes from one NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneUse {
    /// Index in [`crate::Numa::zones`].
    pub zone: u32,
    pub amounts: Amounts,
}

/// A pod must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    pub pod: Key,
    pub gang: Key,
    pub action: Action,
    /// For whom; `None` for a gang that is evicted for its own sake.
    pub by: Option<Key>,
    /// It is also in `pipelined`: moved, not lost.
    pub moved: bool,
    /// It is given no time to end.
    pub forced: bool,
}
