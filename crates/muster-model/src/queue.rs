//! The queue tree: who may use how much.

use crate::{Dialect, Name, Resource, Span, Time, volcano};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub name: Name,
    pub uid: Name,
    /// What people call it.
    pub display: Option<Name>,
    pub parent: Option<Name>,
    pub priority: i32,
    pub created: Time,
    /// By resource. A resource that is absent is neither promised nor bounded.
    pub shares: BTreeMap<Resource, Share>,
    /// How long a gang here is safe from preemption within its queue; `None`: the parent's.
    pub preempt_min_runtime: Option<Span>,
    /// How long a gang here is safe from reclaim by other queues; `None`: the parent's.
    pub reclaim_min_runtime: Option<Span>,
    /// How others get back what it holds beyond what it deserves.
    pub reclaim: Reclaim,
    /// What the queue used of the cluster in the accounting window, in millionths, by resource.
    pub usage: BTreeMap<Resource, i64>,
    /// The system whose tree it is of: shares, victims and turns are a matter among the queues of one tree.
    pub tree: Dialect,
    /// Of a Volcano Queue: what else it says.
    pub volcano: Option<Arc<volcano::Queue>>,
}

impl Queue {
    /// Whose tree it is of.
    pub fn dialect(&self) -> Dialect {
        if self.volcano.is_some() { Dialect::Volcano } else { self.tree }
    }
}

/// How a queue gives back what it has borrowed; what is `None` is as the parent says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// Only who has waited this long may take from it; at once where nobody says anything.
    pub after: Option<Span>,
    /// Whoever has to go is given no time to end; by default pods have their own grace period.
    pub forced: Option<bool>,
}

/// What a queue may have of one resource, in that resource's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Kept free for this queue even when it is idle.
    pub guarantee: i64,
    /// What it deserves.
    pub quota: Bound,
    /// What it never exceeds.
    pub limit: Bound,
    /// Its weight in dividing what nobody deserves, in thousandths.
    pub weight: i64,
    /// How much it may take from its relatives beyond the quota.
    pub borrowing: Bound,
    /// How much of its quota its relatives may take.
    pub lending: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    At(i64),
    Unlimited,
}

impl Bound {
    /// The smaller of the bound and an amount.
    pub fn cap(self, amount: i128) -> i128 {
        match self {
            Self::At(at) => amount.min(i128::from(at)),
            Self::Unlimited => amount,
        }
    }
}

impl Share {
    /// What it never exceeds: its limit, or what it deserves and may borrow.
    pub fn most(&self) -> Bound {
        match (self.quota, self.borrowing) {
            (Bound::At(quota), Bound::At(more)) => {
                self.limit.min(Bound::At(quota.max(0).saturating_add(more.max(0))))
            }
            _ => self.limit,
        }
    }
}

impl Default for Share {
    /// Nothing promised, nothing bounded.
    fn default() -> Self {
        Self {
            guarantee: 0,
            quota: Bound::At(0),
            limit: Bound::Unlimited,
            weight: 0,
            borrowing: Bound::Unlimited,
            lending: Bound::Unlimited,
        }
    }
}
