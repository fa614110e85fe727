//! What goes in: queues, cohorts, flavors, topologies, nodes and workloads as plain values, with names as names.
//!
//! *Invariant:* amounts are milli-units for `cpu` and base units for all other resources; nothing here is defaulted but by `Default`.

use crate::place::TopologyAssignment;
use muster_model::{Key, LabelSelector, Labels, Name, NodeRule, Taint, Time, Toleration};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one resource of one flavor comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    pub resource: Name,
    pub nominal: i64,
    /// How much more than its own it may use; `None`: whatever there is.
    pub borrowing: Option<i64>,
    /// How much of its own others may use; `None`: all.
    pub lending: Option<i64>,
}

/// A flavor within a resource group, and its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    pub flavor: Name,
    pub quotas: Vec<Quota>,
}

/// Resources that always come from one flavor together, and the flavors to try, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    pub resources: Vec<Name>,
    pub flavors: Vec<FlavorQuotas>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing overtakes the first in line.
    Strict,
    /// What cannot start now steps aside.
    #[default]
    BestEffort,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    #[default]
    None,
    Hold,
    HoldAndDrain,
}

/// How to go through the flavors of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fungibility {
    /// Look at the next flavor rather than borrow in this one.
    pub next_before_borrowing: bool,
    /// Take a flavor that needs preemption without looking at the next one.
    pub stop_at_preemption: bool,
    /// Among flavors, rather preempt than borrow.
    pub preempt_over_borrow: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    #[default]
    Never,
    /// Nothing was said: never, but for a queue that shares fairly and looks for victims of its own although it borrows.
    Unset,
    LowerPriority,
    /// Also equals that came later.
    LowerOrNewerEqual,
    Any,
}

/// Whom a queue may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    pub within_queue: Reclaim,
    pub within_cohort: Reclaim,
    /// May preempt in the cohort although it will borrow, workloads of lower priority; up to this priority if one is given.
    pub while_borrowing: Option<BorrowingPreemption>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowingPreemption {
    pub up_to: Option<i32>,
}

/// An admission check that a queue asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRule {
    pub check: Name,
    /// Only for these flavors; empty: for all.
    pub on_flavors: Vec<Name>,
}

/// How variants of one workload, each with its own flavor, move to a better one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConcurrentPolicy {
    /// Whatever was admitted first stays.
    pub retain_first: bool,
    /// No variant moves to a flavor after this one.
    pub last_acceptable: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueue {
    pub name: Name,
    pub cohort: Option<Name>,
    pub groups: Vec<ResourceGroup>,
    pub strategy: Strategy,
    pub namespaces: LabelSelector,
    pub fungibility: Fungibility,
    pub preemption: Preemption,
    pub checks: Vec<CheckRule>,
    pub stop: Stop,
    pub weight: Weight,
    /// Its workloads wait in the order of what their local queues used.
    pub by_usage: bool,
    pub concurrent: Option<ConcurrentPolicy>,
}

/// A share of what is borrowed, in billionths; one by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub i64);

impl Default for Weight {
    fn default() -> Self {
        Self(1_000_000_000)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohort {
    pub name: Name,
    pub parent: Option<Name>,
    pub groups: Vec<ResourceGroup>,
    pub weight: Weight,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueue {
    pub key: Key,
    pub cluster_queue: Name,
    pub stop: Stop,
    pub weight: Weight,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavor {
    pub name: Name,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub tolerations: Vec<Toleration>,
    pub topology: Option<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub name: Name,
    /// Labels of nodes, the widest level first.
    pub levels: Vec<Name>,
}

/// A node as far as topologies are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Name,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Ready, and not cordoned.
    pub usable: bool,
    pub allocatable: BTreeMap<Name, i64>,
}

/// A pod on a node that no admission accounts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPod {
    pub key: Key,
    pub node: Name,
    pub requests: BTreeMap<Name, i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: Name,
    pub controller: Name,
    pub active: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckState {
    #[default]
    Pending,
    Ready,
    Retry,
    Rejected,
}

/// What an admission check adds to the pods of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetUpdate {
    pub pod_set: Name,
    pub node_selector: Labels,
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadCheck {
    pub name: Name,
    pub state: CheckState,
    pub updates: Vec<PodSetUpdate>,
}

/// Where the pods of a set must or should be together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyRequest {
    pub required: Option<Name>,
    pub preferred: Option<Name>,
    pub unconstrained: bool,
    /// Slices, the outermost layer first.
    pub slices: Vec<SliceLayer>,
    /// The layers were written as a list, which may have several.
    pub layered: bool,
    /// Sets of one group are placed together: a leader and its workers.
    pub group: Option<Name>,
}

impl TopologyRequest {
    /// Whether it says anything about topology; a group alone does not.
    pub fn is_explicit(&self) -> bool {
        self.required.is_some() || self.preferred.is_some() || self.unconstrained || !self.slices.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceLayer {
    pub level: Name,
    pub size: Option<i32>,
}

/// Pods that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSet {
    pub name: Name,
    pub count: i32,
    /// Fewer pods than `count`, down to this, will do.
    pub min_count: Option<i32>,
    /// What quota is charged for one pod, after exclusions and transformations.
    pub requests: BTreeMap<Name, i64>,
    /// What one pod takes on a node.
    pub raw: BTreeMap<Name, i64>,
    pub rule: NodeRule,
    pub tolerations: Vec<Toleration>,
    pub topology: Option<TopologyRequest>,
}

/// Whether the place of a set is to be found in a second pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    Pending,
    Ready,
}

/// What a set of pods was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetReservation {
    pub name: Name,
    pub count: i32,
    pub flavors: BTreeMap<Name, Name>,
    pub usage: BTreeMap<Name, i64>,
    pub topology: Option<TopologyAssignment>,
    pub delayed: Option<Delayed>,
}

/// Quota that a workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub cluster_queue: Name,
    pub pod_sets: Vec<PodSetReservation>,
    /// When it was made; `None`: it is being made just now.
    pub since: Option<Time>,
    /// All checks were passed as well.
    pub admitted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub reason: Name,
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub key: Key,
    pub uid: Name,
    pub queue: Name,
    pub priority: i32,
    /// Added to the priority by whoever may.
    pub boost: i32,
    pub created: Time,
    pub active: bool,
    pub pod_sets: Vec<PodSet>,
    pub reservation: Option<Reservation>,
    pub checks: Vec<WorkloadCheck>,
    /// Pods that are done for good, by set.
    pub reclaimable: BTreeMap<Name, i32>,
    pub evicted: Option<Marked>,
    pub preempted: Option<Marked>,
    pub finished: bool,
    /// It must not be tried before then.
    pub requeue_at: Option<Time>,
    /// Its `Requeued` condition is false, or it is on hold: it waits for whoever set that.
    pub held_back: bool,
    /// Somebody must let it in first.
    pub gated: bool,
    /// It must not preempt until a gate is opened.
    pub preemption_gated: bool,
    /// Nodes that failed under it.
    pub unhealthy: Vec<Name>,
    /// It grows another workload, whose place it takes.
    pub replaces: Option<Key>,
    pub elastic: bool,
    /// The parent of this variant, by uid.
    pub variant_of: Option<Name>,
    /// It stands for its variants and is never queued itself.
    pub is_parent: bool,
    /// Only these flavors will do.
    pub allowed_flavors: Option<Vec<Name>>,
    /// It is owned by a single pod, which cannot be moved.
    pub pod_owned: bool,
    pub pods_ready: bool,
    /// Why it may not be admitted whatever the quota, in the words of whoever found out.
    pub invalid: Option<Arc<str>>,
    /// Why its pods have no place although there is quota, in the words of whoever knows the nodes.
    pub no_room: Option<Arc<str>>,
    pub job_uid: Name,
}

impl Workload {
    pub fn new(key: Key) -> Self {
        Self {
            key,
            uid: "".into(),
            queue: "".into(),
            priority: 0,
            boost: 0,
            created: Time(i64::MIN),
            active: true,
            pod_sets: Vec::new(),
            reservation: None,
            checks: Vec::new(),
            reclaimable: BTreeMap::new(),
            evicted: None,
            preempted: None,
            finished: false,
            requeue_at: None,
            held_back: false,
            gated: false,
            preemption_gated: false,
            unhealthy: Vec::new(),
            replaces: None,
            elastic: false,
            variant_of: None,
            is_parent: false,
            allowed_flavors: None,
            pod_owned: false,
            pods_ready: false,
            invalid: None,
            no_room: None,
            job_uid: "".into(),
        }
    }
}
