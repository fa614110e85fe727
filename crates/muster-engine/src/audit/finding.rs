//! What can be wrong with decisions, one variant per rule, with the objects and the numbers.

use muster_model::{Action, DeviceName, Key, Name, NodeReason, PodState, Resource, Time};
use std::fmt;

/// Against which state a rule was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Right after the binds: whoever was told to leave is still there.
    Now,
    /// When everyone who was told to leave has left and every promised pod has its place.
    Later,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    // Who is named, and how often.
    UnknownPod {
        pod: Key,
    },
    UnknownNode {
        pod: Key,
        node: Name,
    },
    UnknownGang {
        gang: Key,
    },
    /// The decision says one gang, the pod is of another, or of none: another scheduler's pod.
    WrongGang {
        pod: Key,
        gang: Key,
    },
    /// The pod's group is no leaf of its gang.
    UnknownGroup {
        pod: Key,
        gang: Key,
    },
    /// The groups of the gang do not form a tree.
    BrokenTree {
        gang: Key,
    },
    DecidedTwice {
        pod: Key,
    },
    /// Bound or promised, though it does not wait for a place.
    NotWaiting {
        pod: Key,
        state: PodState,
    },
    /// Evicted, though it holds no place that it was going to keep.
    NotRunning {
        pod: Key,
        state: PodState,
    },
    /// The action is not among the policy's, or never decides such a thing.
    WrongAction {
        pod: Key,
        action: Action,
    },
    /// `moved` and the list of promises disagree.
    MovedFlag {
        pod: Key,
        moved: bool,
    },

    // Room on nodes.
    OverCapacity {
        node: Name,
        resource: Resource,
        used: i128,
        allocatable: i64,
        when: When,
    },
    /// The node has none of it at all.
    NotOffered {
        pod: Key,
        node: Name,
        resource: Resource,
    },
    /// Tenants of a shared GPU have more than its memory, both in thousandths of a MiB.
    SharedGpuOverfull {
        node: Name,
        group: Name,
        used: i128,
        memory: i128,
        when: When,
    },
    /// The pod wants shares of so many GPUs and got another number of different ones.
    WrongShares {
        pod: Key,
        wanted: u32,
        got: usize,
    },
    /// The share does not cover what the pod asked for, in thousandths of a GPU.
    WrongPortion {
        pod: Key,
        portion: Option<i64>,
    },
    WrongGpuCount {
        pod: Key,
        wanted: i64,
        got: usize,
    },
    UnknownGpu {
        pod: Key,
        node: Name,
        gpu: u32,
        gpus: i64,
    },
    GpuHeldTwice {
        node: Name,
        gpu: u32,
        pods: [Key; 2],
        when: When,
    },
    UnknownZone {
        pod: Key,
        node: Name,
        zone: u32,
    },
    ZoneOverCapacity {
        node: Name,
        zone: u32,
        resource: Resource,
        used: i128,
        allocatable: i64,
        when: When,
    },
    /// The node's kubelet wants everything in one zone.
    ZonesSpanned {
        pod: Key,
        node: Name,
        zones: usize,
    },
    /// Zones hold more of the pod than it asks for, or nothing of a pod that must be aligned.
    WrongZones {
        pod: Key,
        node: Name,
        resource: Resource,
        wanted: i64,
        got: i128,
    },

    // Devices and claims.
    ClaimUnusable {
        pod: Key,
        claim: Key,
    },
    ClaimUnallocated {
        pod: Key,
        claim: Key,
    },
    ClaimAllocatedTwice {
        claim: Key,
    },
    ClaimOfOtherQueue {
        pod: Key,
        claim: Key,
    },
    ClaimFull {
        claim: Key,
        users: usize,
    },
    /// The devices given for a request are not what one of its alternatives asks for.
    WrongDevices {
        claim: Key,
        request: Name,
        got: usize,
    },
    DeviceUnreachable {
        pod: Key,
        node: Name,
        device: DeviceName,
    },
    /// It does not exist, or lets nothing new in.
    DeviceUnusable {
        claim: Key,
        device: DeviceName,
    },
    DeviceHeldTwice {
        device: DeviceName,
        claims: [Key; 2],
        when: When,
    },
    DevicesDisagree {
        claim: Key,
        attribute: Name,
    },
    /// Devices in use take more of a counter that their pool shares than it has.
    CounterOver {
        driver: Name,
        pool: Name,
        counter: Name,
        used: i128,
        total: i64,
        when: When,
    },

    // What a pod says about nodes and other pods.
    /// The node may not have this pod; `other` is whom it clashes with.
    Forbidden {
        pod: Key,
        node: Name,
        reason: NodeReason,
        other: Option<Key>,
    },
    Missing {
        pod: Key,
        what: Name,
    },
    OnlyNode {
        pod: Key,
        node: Name,
        only: Name,
    },
    /// A volume for one pod is used by two.
    VolumeShared {
        claim: Key,
        pods: [Key; 2],
    },

    // Gangs.
    /// Pods were bound, and this group has fewer than it needs: pods for a leaf, children for an inner group.
    BelowMinimum {
        gang: Key,
        group: Name,
        have: u32,
        need: u32,
    },
    TopologyUnknown {
        gang: Key,
        topology: Name,
        level: Option<Name>,
    },
    /// Pods of the group are in more than one domain of its required level.
    DomainsSpanned {
        gang: Key,
        group: Name,
        level: Name,
        domains: Vec<Name>,
    },
    /// The node lacks a label of the topology, so it is in no domain.
    OutsideTopology {
        gang: Key,
        group: Name,
        node: Name,
    },

    // Queues.
    /// The queue or one above it does not exist, or they hang in a circle.
    QueueMissing {
        gang: Key,
        queue: Name,
    },
    QueueNotLeaf {
        gang: Key,
        queue: Name,
    },
    OverLimit {
        queue: Name,
        resource: Resource,
        before: i128,
        after: i128,
        limit: i64,
    },
    /// What cannot be preempted exceeds the quota.
    OverQuota {
        queue: Name,
        resource: Resource,
        before: i128,
        after: i128,
        quota: i64,
    },

    // Victims.
    NotPreemptible {
        pod: Key,
        gang: Key,
    },
    /// An eviction for nobody, or for the victim itself, or a stale gang evicted for somebody.
    WrongBeneficiary {
        pod: Key,
        by: Option<Key>,
    },
    /// Others were evicted for a gang that got nothing.
    EvictedForNothing {
        by: Key,
    },
    /// The victim lives by other rules than whoever takes its place.
    OtherDialect {
        pod: Key,
        by: Key,
    },
    /// The node is of another tree's pool, or not of the pool of the pod's own.
    OutsidePool {
        pod: Key,
        node: Name,
    },
    /// The victim's queue lets others wait longer before they take from it.
    TooEarlyFrom {
        pod: Key,
        by: Key,
        until: Time,
    },
    /// Preemption across queues.
    OtherQueue {
        pod: Key,
        victim: Name,
        preemptor: Name,
    },
    /// Reclaim within one queue.
    SameQueue {
        pod: Key,
        queue: Name,
    },
    /// Preemption of work that is not strictly less important.
    NotLower {
        pod: Key,
        victim: i32,
        preemptor: i32,
    },
    /// Consolidation loses a pod instead of moving it.
    Lost {
        pod: Key,
    },
    /// Work that cannot be preempted may not move others.
    MoverNotPreemptible {
        by: Key,
    },
    TooManyMoved {
        by: Key,
        gangs: usize,
        most: u32,
    },
    /// It caused evictions before its delay was over.
    TooEarly {
        by: Key,
        until: Time,
    },
    Protected {
        gang: Key,
        until: Time,
    },
    /// The gang has its minimum, so it is not stale.
    NotStale {
        gang: Key,
    },
    /// It is below its minimum, but not for long enough; `None`: it may be so for ever.
    InGrace {
        gang: Key,
        until: Option<Time>,
    },
    HasSucceeded {
        gang: Key,
    },
    /// Some pods of a stale gang were left.
    StaleLeft {
        gang: Key,
        left: u32,
    },
    /// Evictions took the gang below its minimum and left some of it.
    LeftBelowMinimum {
        gang: Key,
        group: Name,
        have: u32,
        need: u32,
        left: u32,
    },
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now => "after the binds",
            Self::Later => "once room is released",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPod { pod } => write!(f, "pod {pod} does not exist"),
            Self::UnknownNode { pod, node } => {
                write!(f, "pod {pod} goes to node {node}, which does not exist")
            }
            Self::UnknownGang { gang } => write!(f, "gang {gang} does not exist"),
            Self::WrongGang { pod, gang } => write!(f, "pod {pod} is not of gang {gang}"),
            Self::UnknownGroup { pod, gang } => write!(f, "pod {pod} is in no leaf group of gang {gang}"),
            Self::BrokenTree { gang } => write!(f, "the groups of gang {gang} do not form a tree"),
            Self::DecidedTwice { pod } => write!(f, "pod {pod} is decided twice"),
            Self::NotWaiting { pod, state } => {
                write!(f, "pod {pod} gets a place but does not wait: {state:?}")
            }
            Self::NotRunning { pod, state } => {
                write!(f, "pod {pod} is evicted but holds no place: {state:?}")
            }
            Self::WrongAction { pod, action } => {
                write!(f, "pod {pod} is decided by {}, which may not do so", action.name())
            }
            Self::MovedFlag { pod, moved: true } => {
                write!(f, "pod {pod} is said to be moved and has no new place")
            }
            Self::MovedFlag { pod, moved: false } => {
                write!(f, "pod {pod} has a new place and is said to be lost")
            }
            Self::OverCapacity { node, resource, used, allocatable, when } => {
                write!(f, "node {node} has {resource}={allocatable} and {used} is used {when}")
            }
            Self::NotOffered { pod, node, resource } => {
                write!(f, "pod {pod} asks for {resource}, of which node {node} has none")
            }
            Self::SharedGpuOverfull { node, group, used, memory, when } => {
                write!(f, "shared gpu {group} of node {node} has {memory}/1000 MiB and {used} is used {when}")
            }
            Self::WrongShares { pod, wanted, got } => {
                write!(f, "pod {pod} wants shares of {wanted} gpus and gets {got}")
            }
            Self::WrongPortion { pod, portion: Some(portion) } => {
                write!(f, "pod {pod} gets {portion}/1000 of a gpu, which is not what it asks for")
            }
            Self::WrongPortion { pod, portion: None } => {
                write!(f, "the gpu portion of pod {pod} is not said")
            }
            Self::WrongGpuCount { pod, wanted, got } => {
                write!(f, "pod {pod} wants {wanted} gpus and gets {got}")
            }
            Self::UnknownGpu { pod, node, gpu, gpus } => {
                write!(f, "pod {pod} gets gpu {gpu} of node {node}, which has {gpus}")
            }
            Self::GpuHeldTwice { node, gpu, pods: [a, b], when } => {
                write!(f, "gpu {gpu} of node {node} is held by {a} and by {b} {when}")
            }
            Self::UnknownZone { pod, node, zone } => {
                write!(f, "pod {pod} gets zone {zone} of node {node}, which does not exist")
            }
            Self::ZoneOverCapacity { node, zone, resource, used, allocatable, when } => {
                write!(f, "zone {zone} of node {node} has {resource}={allocatable} and {used} is used {when}")
            }
            Self::ZonesSpanned { pod, node, zones } => {
                write!(f, "pod {pod} is spread over {zones} zones of node {node}, which allows one")
            }
            Self::WrongZones { pod, node, resource, wanted, got } => {
                write!(f, "pod {pod} asks for {resource}={wanted} and the zones of node {node} give {got}")
            }
            Self::ClaimUnusable { pod, claim } => {
                write!(f, "pod {pod} needs claim {claim}, which is absent or defective")
            }
            Self::ClaimUnallocated { pod, claim } => {
                write!(f, "pod {pod} gets a place and its claim {claim} no devices")
            }
            Self::ClaimAllocatedTwice { claim } => write!(f, "claim {claim} is allocated twice"),
            Self::ClaimOfOtherQueue { pod, claim } => {
                write!(f, "pod {pod} shares claim {claim}, which is not of its queue")
            }
            Self::ClaimFull { claim, users } => {
                write!(f, "claim {claim} has {users} users, more than it can hold")
            }
            Self::WrongDevices { claim, request, got } => {
                write!(f, "the {got} devices for request {request} of claim {claim} are not what it asks for")
            }
            Self::DeviceUnreachable { pod, node, device } => {
                write!(f, "pod {pod} needs device {device}, which node {node} cannot reach")
            }
            Self::DeviceUnusable { claim, device } => {
                write!(f, "claim {claim} gets device {device}, which is absent or closed")
            }
            Self::DeviceHeldTwice { device, claims: [a, b], when } => {
                write!(f, "device {device} is held by claims {a} and {b} {when}")
            }
            Self::DevicesDisagree { claim, attribute } => {
                write!(f, "the devices of claim {claim} differ in {attribute}")
            }
            Self::CounterOver { driver, pool, counter, used, total, when } => {
                write!(f, "pool {driver}/{pool} has {counter}={total} and {used} is used {when}")
            }
            Self::Forbidden { pod, node, reason, other: None } => {
                write!(f, "pod {pod} may not be on node {node}: {reason:?}")
            }
            Self::Forbidden { pod, node, reason, other: Some(other) } => {
                write!(f, "pod {pod} may not be on node {node} because of pod {other}: {reason:?}")
            }
            Self::Missing { pod, what } => write!(f, "pod {pod} gets a place though {what} does not exist"),
            Self::OnlyNode { pod, node, only } => {
                write!(f, "pod {pod} is for node {only} and goes to node {node}")
            }
            Self::VolumeShared { claim, pods: [a, b] } => {
                write!(f, "volume claim {claim} is for one pod and used by {a} and {b}")
            }
            Self::BelowMinimum { gang, group, have, need } => {
                write!(f, "gang {gang} is bound with {have} of {need} in group {group}")
            }
            Self::TopologyUnknown { gang, topology, level: None } => {
                write!(f, "gang {gang} is placed though topology {topology} does not exist")
            }
            Self::TopologyUnknown { gang, topology, level: Some(level) } => {
                write!(f, "gang {gang} is placed though topology {topology} has no level {level}")
            }
            Self::DomainsSpanned { gang, group, level, domains } => {
                write!(f, "group {group} of gang {gang} is in {} domains of {level}", domains.len())
            }
            Self::OutsideTopology { gang, group, node } => {
                write!(f, "group {group} of gang {gang} is on node {node}, outside its topology")
            }
            Self::QueueMissing { gang, queue } => {
                write!(f, "gang {gang} is placed though queue {queue} has no whole line of parents")
            }
            Self::QueueNotLeaf { gang, queue } => {
                write!(f, "gang {gang} is placed though queue {queue} is not a leaf")
            }
            Self::OverLimit { queue, resource, before, after, limit } => {
                write!(f, "queue {queue} goes from {resource}={before} to {after}, over its limit {limit}")
            }
            Self::OverQuota { queue, resource, before, after, quota } => write!(
                f,
                "work of queue {queue} that cannot be preempted goes from {resource}={before} to {after}, over its \
                 quota {quota}"
            ),
            Self::NotPreemptible { pod, gang } => write!(f, "pod {pod} of gang {gang} may not be evicted"),
            Self::WrongBeneficiary { pod, by: Some(by) } => {
                write!(f, "pod {pod} may not be evicted for gang {by}")
            }
            Self::WrongBeneficiary { pod, by: None } => write!(f, "pod {pod} is evicted for nobody"),
            Self::EvictedForNothing { by } => write!(f, "pods were evicted for gang {by}, which got nothing"),
            Self::OtherDialect { pod, by } => {
                write!(f, "pod {pod} is evicted for gang {by}, which lives by other rules")
            }
            Self::OutsidePool { pod, node } => {
                write!(f, "pod {pod} goes to node {node}, which is not for its tree of queues")
            }
            Self::TooEarlyFrom { pod, by, until } => {
                write!(
                    f,
                    "pod {pod} is reclaimed for gang {by}, which may take from its queue at {} only",
                    until.0
                )
            }
            Self::OtherQueue { pod, victim, preemptor } => {
                write!(f, "pod {pod} of queue {victim} is preempted by queue {preemptor}")
            }
            Self::SameQueue { pod, queue } => write!(f, "pod {pod} is reclaimed within queue {queue}"),
            Self::NotLower { pod, victim, preemptor } => {
                write!(f, "pod {pod} of priority {victim} is preempted for priority {preemptor}")
            }
            Self::Lost { pod } => write!(f, "pod {pod} is evicted by consolidation and gets no new place"),
            Self::MoverNotPreemptible { by } => {
                write!(f, "gang {by} cannot be preempted and so may not move others")
            }
            Self::TooManyMoved { by, gangs, most } => {
                write!(f, "{gangs} gangs are moved for gang {by}, over {most}")
            }
            Self::TooEarly { by, until } => {
                write!(f, "gang {by} causes evictions before its delay ends at {}", until.0)
            }
            Self::Protected { gang, until } => {
                write!(f, "gang {gang} is interrupted within its minimum runtime, which ends at {}", until.0)
            }
            Self::NotStale { gang } => write!(f, "gang {gang} is evicted as stale and has its minimum"),
            Self::InGrace { gang, until: Some(until) } => {
                write!(f, "gang {gang} is evicted as stale before its grace ends at {}", until.0)
            }
            Self::InGrace { gang, until: None } => {
                write!(f, "gang {gang} is evicted as stale and has endless grace")
            }
            Self::HasSucceeded { gang } => {
                write!(f, "gang {gang} is evicted as stale after pods of it succeeded")
            }
            Self::StaleLeft { gang, left } => write!(f, "{left} pods of stale gang {gang} are not evicted"),
            Self::LeftBelowMinimum { gang, group, have, need, left } => write!(
                f,
                "gang {gang} keeps {left} pods after evictions, with {have} of {need} in group {group}"
            ),
        }
    }
}
