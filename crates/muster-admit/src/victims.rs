//! Victims: the fewest workloads that have to go so that another fits, found by taking them away in order and putting back whom it turns out
//! not to need.
//!
//! In: who wants in, what it needs, and what may be taken from whom. Out: targets with the cause of each, or none. Whatever is tried is undone.
//!
//! *Invariant:* a set of targets is enough, and no target of it could stay.
//! Hot path: with many workloads admitted, candidates are sorted as they are asked for, not all at once.

use crate::assign::{Assignment, Possibility};
use crate::fair;
use crate::ids::{FlavorId, PairId, TreeId, Usage, WorkloadId};
use crate::order::{Candidate, compare_candidates};
use crate::reason::Cause;
use crate::spec::Reclaim;
use crate::state::State;
use muster_model::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub id: WorkloadId,
    pub cause: Cause,
}

/// Who wants in, and what it needs.
pub struct Search<'a> {
    pub id: WorkloadId,
    pub queue: TreeId,
    /// Pairs that somebody has to go for.
    pub need: Vec<PairId>,
    pub usage: Usage,
    /// What has to be placed as well.
    pub asks: Vec<(usize, FlavorId)>,
    pub assignment: Option<&'a Assignment>,
    pub replaced: Option<&'a crate::assign::Replaced>,
}

/// Whether preemption would make room for one flavor and resource, and how high it would borrow then.
pub fn simulate(
    state: &mut State,
    id: WorkloadId,
    queue: TreeId,
    pair: PairId,
    amount: i64,
) -> (Possibility, u32) {
    let search = Search {
        id,
        queue,
        need: vec![pair],
        usage: vec![(pair, amount)],
        asks: Vec::new(),
        assignment: None,
        replaced: None,
    };
    let targets = search.targets(state);
    if targets.is_empty() {
        return (Possibility::NoCandidates, state.tree.lowest_fit(queue, pair, amount).0);
    }
    targets.iter().for_each(|t| state.release(t.id));
    let borrows = state.tree.lowest_fit(queue, pair, amount).0;
    targets.iter().for_each(|t| state.hold(t.id));
    let own = targets.iter().any(|t| state.wl(t.id).queue == Some(queue));
    (if own { Possibility::Preempt } else { Possibility::Reclaim }, borrows)
}

impl Search<'_> {
    /// Who has to go.
    pub fn targets(&self, state: &mut State) -> Vec<Target> {
        match state.settings.fair_sharing.clone() {
            Some(sharing) => fair::targets(self, state, &sharing),
            None => self.classical(state),
        }
    }

    /// Whether it fits now.
    pub fn fits(&self, state: &State, borrowing: bool) -> bool {
        let quota = self.usage.iter().all(|&(pair, amount)| {
            (borrowing || !state.tree.borrows_with(self.queue, pair, amount))
                && amount <= state.tree.available(self.queue, pair)
        });
        quota
            && match self.assignment {
                Some(assignment) if !self.asks.is_empty() => {
                    state.find_places(self.id, assignment, &self.asks, self.replaced, false).is_ok()
                }
                _ => true,
            }
    }

    /// Whether a policy lets it preempt a workload of that priority and time.
    pub fn may(&self, state: &State, policy: Reclaim, other: WorkloadId) -> bool {
        let (own, other) = (state.wl(self.id), state.wl(other));
        match policy {
            Reclaim::Never | Reclaim::Unset => false,
            Reclaim::LowerPriority => other.priority < own.priority,
            Reclaim::LowerOrNewerEqual => {
                other.priority < own.priority || (other.priority == own.priority && own.since < other.since)
            }
            Reclaim::Any => true,
        }
    }

    /// Whether a workload uses anything that is needed.
    pub fn uses(&self, state: &State, other: WorkloadId) -> bool {
        let Some(hold) = &state.wl(other).hold else { return false };
        hold.usage.iter().any(|(pair, _)| self.need.contains(pair))
    }

    pub fn candidate(&self, state: &State, id: WorkloadId) -> Candidate {
        candidate(state, id, self.queue)
    }

    fn classical(&self, state: &mut State) -> Vec<Target> {
        let policy = state.queues[self.queue].spec.preemption;
        let mut found: Vec<Found> = Vec::new();
        if policy.within_queue != Reclaim::Never {
            self.collect(state, self.queue, None, Kind::Own, policy.within_queue, &mut found);
        }
        let n_own = found.len();
        let mut n_hierarchical = 0;
        if policy.within_cohort != Reclaim::Never {
            n_hierarchical = self.collect_above(state, &mut found);
        }
        let n_others = found.len() - n_own;
        if found.is_empty() {
            return Vec::new();
        }
        let forbidden = policy.while_borrowing.is_none();
        let under_nominal = self.need.iter().all(|&pair| {
            let cell = state.tree.cell(self.queue, pair);
            cell.usage < cell.nominal
        });
        let attempts: &[bool] = if n_others == 0 || (forbidden && !under_nominal) {
            &[true]
        } else if forbidden && n_hierarchical == 0 {
            &[false, true]
        } else {
            &[true, false]
        };
        for &borrowing in attempts {
            if let Some(targets) = self.attempt(state, &found, borrowing) {
                return targets;
            }
        }
        Vec::new()
    }

    /// Takes candidates away in order until it fits, then puts back whom it can.
    fn attempt(&self, state: &mut State, found: &[Found], borrowing: bool) -> Option<Vec<Target>> {
        let mut heap: BinaryHeap<&Found> = found.iter().collect();
        let mut targets: Vec<Target> = Vec::new();
        let mut fits = false;
        while let Some(next) = heap.pop() {
            if !self.is_valid(state, next, borrowing) {
                continue;
            }
            state.release(next.id);
            targets.push(Target { id: next.id, cause: next.kind.cause() });
            if self.fits(state, borrowing) {
                fits = true;
                break;
            }
        }
        if fits {
            self.fill_back(state, &mut targets, borrowing);
        }
        targets.iter().for_each(|t| state.hold(t.id));
        fits.then_some(targets)
    }

    /// Puts back, from the second last, whoever is not needed after all.
    pub fn fill_back(&self, state: &mut State, targets: &mut Vec<Target>, borrowing: bool) {
        for i in (0..targets.len().saturating_sub(1)).rev() {
            state.hold(targets[i].id);
            if self.fits(state, borrowing) {
                targets.swap_remove(i);
            } else {
                state.release(targets[i].id);
            }
        }
    }

    /// Taking others away may have made a candidate's queue one that no longer borrows.
    fn is_valid(&self, state: &State, found: &Found, borrowing: bool) -> bool {
        let Some(meet) = found.meet else { return true };
        if borrowing && found.kind == Kind::NotBorrowing {
            return false;
        }
        let Some(queue) = state.wl(found.id).queue else { return false };
        if state.tree.within_quota(queue, &self.need) {
            return false;
        }
        state
            .tree
            .above(queue)
            .take_while(|node| *node != meet)
            .all(|node| !state.tree.within_quota(node, &self.need))
    }

    fn collect(
        &self,
        state: &State,
        queue: TreeId,
        meet: Option<TreeId>,
        kind: Kind,
        policy: Reclaim,
        found: &mut Vec<Found>,
    ) {
        let borrow = state.queues[self.queue].spec.preemption.while_borrowing;
        let own = state.wl(self.id).priority;
        for &id in &state.queues[queue].members {
            if !self.uses(state, id) || !self.may(state, policy, id) {
                continue;
            }
            let mut kind = kind;
            if kind == Kind::Priority {
                let its = state.wl(id).priority;
                kind = match borrow {
                    Some(b) if its < own && b.up_to.is_none_or(|most| its <= i64::from(most)) => {
                        Kind::Borrowing
                    }
                    _ => Kind::NotBorrowing,
                };
            }
            found.push(Found { id, kind, meet, key: self.candidate(state, id) });
        }
    }

    /// Workloads of others that exceed their quota, from one's nearest relatives to the farthest. Those in trees that would have to give because
    /// the request fits the quota on this side come first; how many these are is returned.
    fn collect_above(&self, state: &State, found: &mut Vec<Found>) -> usize {
        let policy = state.queues[self.queue].spec.preemption.within_cohort;
        let (mut advantage, mut remaining) = state.tree.fits_quota(self.queue, &self.usage);
        let mut below = self.queue;
        let mut n_hierarchical = 0;
        for node in state.tree.above(self.queue) {
            let kind = if advantage { Kind::Hierarchical } else { Kind::Priority };
            let before = found.len();
            let mut open = vec![node];
            while let Some(at) = open.pop() {
                for &cohort in &state.tree.nodes[at].cohorts {
                    if cohort != below && !state.tree.within_quota(cohort, &self.need) {
                        open.push(cohort);
                    }
                }
                for &queue in &state.tree.nodes[at].queues {
                    if queue != self.queue && !state.tree.within_quota(queue, &self.need) {
                        self.collect(state, queue, Some(node), kind, policy, found);
                    }
                }
            }
            if advantage {
                n_hierarchical += found.len() - before;
            }
            let (fits, rest) = state.tree.fits_quota(node, &remaining);
            remaining = rest;
            advantage |= fits;
            below = node;
        }
        n_hierarchical
    }
}

/// A workload as a candidate for preemption by a queue.
pub fn candidate(state: &State, id: WorkloadId, by: TreeId) -> Candidate {
    let wl = state.wl(id);
    let own_queue = wl.queue == Some(by);
    let by_usage = own_queue && state.settings.usage_sharing.is_some() && state.queues[by].spec.by_usage;
    Candidate {
        evicted: wl.spec.evicted.is_some(),
        own_queue,
        usage: by_usage.then(|| (wl.local.name.clone(), state.local_usage(&wl.local))),
        priority: wl.priority,
        since: wl.hold.as_ref().map_or(Time(i64::MAX), |h| h.since),
        uid: wl.spec.uid.clone(),
    }
}

/// By what right a candidate is one; those before others go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The preemptor is nearer to the quota.
    Hierarchical,
    /// Not told apart yet.
    Priority,
    Borrowing,
    /// Only if the preemptor will not borrow.
    NotBorrowing,
    Own,
}

impl Kind {
    fn cause(self) -> Cause {
        match self {
            Self::Own => Cause::InQueue,
            Self::Hierarchical | Self::NotBorrowing | Self::Priority => Cause::Reclaim,
            Self::Borrowing => Cause::ReclaimWhileBorrowing,
        }
    }

    /// Lists are gone through one after the other.
    fn list(self) -> u8 {
        match self {
            Self::Hierarchical => 0,
            Self::Priority | Self::Borrowing | Self::NotBorrowing => 1,
            Self::Own => 2,
        }
    }
}

struct Found {
    id: WorkloadId,
    kind: Kind,
    /// Where its ancestors meet the preemptor's; `None`: it is of the same queue.
    meet: Option<TreeId>,
    key: Candidate,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Found {}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    /// The greatest goes first: a heap hands that out.
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self, other);
        b.key
            .evicted
            .cmp(&a.key.evicted)
            .then(a.kind.list().cmp(&b.kind.list()))
            .then_with(|| compare_candidates(&a.key, &b.key))
            .then(a.id.cmp(&b.id))
            .reverse()
    }
}
