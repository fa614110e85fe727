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
