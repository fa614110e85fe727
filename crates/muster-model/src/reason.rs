//! Why a gang waits, in numbers, and what would help. Events, `explain` and metrics all render these values.

use crate::{Action, Key, Name, Resource, Time};

/// One waiting gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub gang: Key,
    pub queue: Name,
    /// Pods that hold a place, that wait, and that the gang needs at least.
    pub placed: u32,
    pub waiting: u32,
    pub needed: u32,
    /// The binding constraint first.
    pub reasons: Vec<Reason>,
    /// What would place it, the smallest change first.
    pub remedies: Vec<Remedy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its queue is not there, or hangs from a parent that is not there, or in a circle.
    QueueMissing { queue: Name },
    /// Only leaf queues hold gangs.
    QueueNotLeaf { queue: Name },
    /// Volcano: its queue is closed, or about to be.
    QueueClosed { queue: Name },
    /// Volcano: it is not let in. By what this plugin counts, its minimum is too much beside what is used and let in already.
    NotLetIn { queue: Name, plugin: Name, resource: Resource, used: i128, asked: i128, most: i128 },
    /// Volcano: the queue has what it deserves.
    OverShare { queue: Name, resource: Resource, used: i128, asked: i128, share: i128 },
    /// Fewer pods exist (or are free of gates) than the group needs.
    NotReady { group: Name, have: u32, need: u32 },
    /// The queue (its own or one above) would exceed its limit.
    OverLimit { queue: Name, resource: Resource, used: i128, asked: i128, limit: i128 },
    /// Work that cannot be preempted would exceed the quota.
    OverQuota { queue: Name, resource: Resource, used: i128, asked: i128, quota: i128 },
    /// No node can take the next pod of this group. How many nodes refuse for which reason.
    NoNode { group: Name, placed: u32, need: u32, tally: Vec<Tally> },
    /// No domain of the level can take the group.
    NoDomain {
        group: Name,
        topology: Name,
        level: Name,
        domains: u32,
        best: Option<Name>,
        best_fits: u32,
        need: u32,
    },
    /// The topology or the level does not exist.
    TopologyUnknown { topology: Name, level: Option<Name> },
    /// Something that its pods refer to does not exist.
    Missing { what: Name },
    /// It may not cause evictions yet.
    PreemptionDelay { until: Time },
    /// A search for victims found none; how many gangs were candidates and how many trial placements were made.
    NoVictims { action: Action, candidates: u32, tried: u64 },
    /// The search was ended by its budget; the answer is not known.
    SearchEnded { action: Action, tried: u64 },
    /// It was not looked at in this cycle: its queue is deeper than the policy's bound.
    BeyondQueueDepth { action: Action, depth: u64 },
    /// It waits for room that is being released.
    Pipelined { pods: u32 },
}

/// How many nodes refuse a pod for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    pub reason: NodeReason,
    pub nodes: u32,
    /// A node where the least is missing.
    pub example: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeReason {
    /// Not ready, cordoned, or under pressure.
    NotUsable,
    /// Another pool's node.
    OtherPool,
    /// Its selector or required affinity says no.
    NodeAffinity,
    Taint {
        key: Name,
    },
    HostPort,
    PodAffinity,
    PodAntiAffinity,
    TopologySpread,
    Volume,
    AttachLimit,
    Device,
    Numa,
    MigMode,
    /// GPU memory of the node is not known, so a request by memory cannot be answered.
    GpuMemoryUnknown,
    /// Too little is free; the least that is missing on any such node.
    Short {
        resource: Resource,
        missing: i64,
    },
    /// More than the node has when it is empty; the least that is missing on any such node.
    TooBig {
        resource: Resource,
        missing: i64,
    },
    /// No GPU has a share of this size free.
    GpuShare,
    /// It would do, and is taken by others of the same gang.
    Taken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Raise the queue's limit by this much.
    RaiseLimit {
        queue: Name,
        resource: Resource,
        by: i128,
    },
    RaiseQuota {
        queue: Name,
        resource: Resource,
        by: i128,
    },
    /// This much more in one place (a node, a domain, or anywhere).
    MoreCapacity {
        resource: Resource,
        by: i64,
        within: Option<Name>,
    },
    /// Let go of these gangs.
    Evict {
        gangs: Vec<Key>,
    },
    /// When this gang ends by its own declaration, there is room.
    Wait {
        until: Time,
        gang: Key,
    },
    /// Create more pods of a group.
    MorePods {
        group: Name,
        by: u32,
    },
    /// Create what is missing.
    Create {
        what: Name,
    },
}
