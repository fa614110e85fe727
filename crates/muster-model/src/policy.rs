//! Whose rules apply, and how: everything about a decision that is not the cluster itself.

use crate::{Grace, Name, Span, volcano};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What a cycle does with gangs of KAI's dialect, in this order.
    pub actions: Vec<Action>,
    /// How nodes are chosen for pods that ask for GPUs, and for the others; `None`: placement does not care.
    pub gpu_strategy: Option<Strategy>,
    pub cpu_strategy: Option<Strategy>,
    /// Which GPU of a node a share goes to; `None`: the first that fits.
    pub gpu_order: Option<GpuOrder>,
    /// Among nodes, one where a share fits on a GPU in use is better than one where a GPU must be opened.
    pub prefer_shared_gpus: bool,
    /// At most this many gangs may be moved to make room for one; `None`: no bound, 0: never.
    pub max_consolidation_victims: Option<u32>,
    /// A victim of reclaim that finds another place is moved, and costs its queue nothing.
    pub consolidating_reclaim: bool,
    /// How long a gang may stay below its minimum.
    pub staleness_grace: Grace,
    /// Queues, quotas, limits and fair shares apply.
    pub quotas: bool,
    /// How strongly past usage weighs against a queue, in thousandths; 0: not at all.
    pub usage_weight: i64,
    /// Reclaim is refused when the reclaimer would be this much (in thousandths) as saturated as its victim; at least 1000.
    pub saturation_multiplier: i64,
    pub preempt_min_runtime: Span,
    pub reclaim_min_runtime: Span,
    pub min_runtime_rule: MinRuntimeRule,
    /// At most this many gangs of each queue are looked at, by action.
    pub queue_depth: BTreeMap<Action, usize>,
    /// How many pods a search for victims may move on trial: for one gang, and for one action in a cycle. `None`: no bound.
    pub gang_search_budget: Option<u64>,
    pub action_search_budget: Option<u64>,
    /// NUMA zones are modelled.
    pub numa: bool,
    /// Zones' reported availability is believed, instead of counting what the known pods hold.
    pub trust_reported_zones: bool,
    /// `false`: all parents are replaced by one without bounds.
    pub full_hierarchy: bool,
    pub pool: Pool,
    /// Volcano's actions and plugins, and what they were told; gangs of that dialect wait where there are none. A cycle runs them after KAI's,
    /// on what those left.
    pub volcano: Option<Arc<volcano::Conf>>,
    /// What the trees of queues divide among them, where that is not simply the cluster less what others hold.
    pub trees: BTreeMap<Dialect, Reach>,
    /// Breaks what nothing else breaks.
    pub seed: u64,
}

/// What a tree of queues has of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What this queue of KAI's tree has: the tree's roots are that queue's children, and what they hold counts there and above.
    Under(Name),
    /// The nodes where this label has one of these values; nobody else's gangs go there.
    Nodes { label: Name, values: Vec<Name> },
}

impl Reach {
    /// Whether the gangs of a tree may go to a node with these labels: to their own pool, or where there is none, to nobody's.
    pub fn allows(trees: &BTreeMap<Dialect, Self>, tree: Dialect, labels: &crate::Labels) -> bool {
        match trees.get(&tree) {
            Some(own @ Self::Nodes { .. }) => own.has(labels),
            _ => !trees.values().any(|other| other.has(labels)),
        }
    }

    /// Whether a node with these labels is in this pool.
    pub fn has(&self, labels: &crate::Labels) -> bool {
        match self {
            Self::Under(_) => false,
            Self::Nodes { label, values } => labels.get(label).is_some_and(|value| values.contains(value)),
        }
    }
}

impl Policy {
    /// See [`Reach::allows`].
    pub fn may_use(&self, tree: Dialect, labels: &crate::Labels) -> bool {
        Reach::allows(&self.trees, tree, labels)
    }

    /// Some trees have nodes of their own.
    pub fn has_pools(&self) -> bool {
        self.trees.values().any(|reach| matches!(reach, Reach::Nodes { .. }))
    }
}

/// Whose rules a gang lives by, and whose tree a queue is of. A dialect's queues, victims and shares are its own gangs only; everybody's pods
/// hold their room on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    Kai,
    Volcano,
    /// KAI's mechanism, but a queue's quota is its ceiling, and queues take from queues of lower priority only.
    T9k,
    /// KAI's mechanism, but in order of priority whatever the queue, and nobody takes from another queue.
    Koordinator,
    /// The same, with one queue for all.
    Kubernetes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    Allocate,
    Consolidate,
    Reclaim,
    Preempt,
    EvictStaleGangs,
    /// Volcano: gangs are let in, as far as their queues have room.
    Enqueue,
    /// Volcano: pods that ask for nothing get a place.
    Backfill,
    /// Volcano: gangs take from gangs of lower priority in their queue, domain by domain.
    GangPreempt,
    /// Volcano: gangs take from other queues, domain by domain.
    GangReclaim,
    /// Volcano: pods that are in the wrong place are evicted.
    Shuffle,
}

impl Action {
    /// KAI's or Volcano's name for it, which scenario files and configurations use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Consolidate => "consolidation",
            Self::Reclaim => "reclaim",
            Self::Preempt => "preempt",
            Self::EvictStaleGangs => "stalegangeviction",
            Self::Enqueue => "enqueue",
            Self::Backfill => "backfill",
            Self::GangPreempt => "gangpreempt",
            Self::GangReclaim => "gangreclaim",
            Self::Shuffle => "shuffle",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    Binpack,
    Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuOrder {
    Pack,
    Spread,
}

/// Where the minimum runtime against reclaim is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MinRuntimeRule {
    /// From the victim's ancestor just below the lowest common ancestor with the reclaimer, upwards.
    BelowCommonAncestor,
    /// From the victim's own queue, upwards.
    Queue,
}

/// Which part of the cluster this scheduler looks after: nodes, queues and gangs with this label, or without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    pub label: Option<Name>,
    pub value: Option<Name>,
}

impl Default for Policy {
    /// KAI's defaults.
    fn default() -> Self {
        Self {
            actions: vec![
                Action::Allocate,
                Action::Consolidate,
                Action::Reclaim,
                Action::Preempt,
                Action::EvictStaleGangs,
            ],
            gpu_strategy: Some(Strategy::Binpack),
            cpu_strategy: Some(Strategy::Binpack),
            gpu_order: Some(GpuOrder::Pack),
            prefer_shared_gpus: true,
            max_consolidation_victims: Some(16),
            consolidating_reclaim: true,
            staleness_grace: Grace::For(Span::seconds(60)),
            quotas: true,
            usage_weight: 0,
            saturation_multiplier: 1000,
            preempt_min_runtime: Span::ZERO,
            reclaim_min_runtime: Span::ZERO,
            min_runtime_rule: MinRuntimeRule::BelowCommonAncestor,
            queue_depth: BTreeMap::new(),
            gang_search_budget: Some(1_000_000),
            action_search_budget: Some(10_000_000),
            numa: false,
            trust_reported_zones: false,
            full_hierarchy: true,
            pool: Pool::default(),
            volcano: None,
            trees: BTreeMap::new(),
            seed: 0,
        }
    }
}
