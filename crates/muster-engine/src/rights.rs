//! Who may take from whom: which gangs may be victims of which, and whether a set of victims is fair.
//!
//! The rules are KAI's: preemption within a queue by strict priority; reclaim between queues by fair shares, judged at the two ancestors just
//! below the lowest common one; a minimum runtime that protects what started lately. Queues of T9k's tree take from queues of lower priority
//! and from nobody else; in Koordinator's and Kubernetes' there is preemption within a queue only. Nobody takes from another tree, unless both are
//! judged as queues of KAI's tree that they are under; and only KAI's gangs are moved. A queue may say how long others must have waited before
//! they take from it.

use crate::ids::{GangId, PodId, QueueId};
use crate::queues::{Trio, plus};
use crate::state::{St, State};
use indexmap::IndexMap;
use muster_model::{Action, Dialect, Gang, MinRuntimeRule, Span, Time};
use rustc_hash::FxBuildHasher;
use std::collections::BTreeSet;

/// What each queue held before a search began.
pub type Before = Vec<Trio>;

impl State {
    /// A pod that was running when the cycle began and has not been touched since, or one that was given a place or a promise in this cycle,
    /// which is then taken back.
    pub fn is_evictable(&self, pod: PodId) -> bool {
        let row = self.pods.row(pod);
        match row.spot.st {
            St::Binding | St::Bound | St::Running => row.spot.st == row.origin.st,
            St::Allocated | St::Pipelined => row.committed && row.origin.node.is_none() && !self.company_made,
            _ => false,
        }
    }

    /// Whether a gang that could lose pods may lose them to this one; the search decides whether it must. `protection`: see
    /// [`State::protection`].
    pub fn is_candidate(&self, action: Action, protection: Span, taker: GangId, victim: GangId) -> bool {
        let (t, v) = (&self.gangs.rows[taker], &self.gangs.rows[victim]);
        if taker == victim {
            return false;
        }
        // Others were moved or lost their places for it in this cycle; to take it over, one would have to have had the same right, and
        // not be one of them.
        if let Some(favour) = self.favoured.get(&victim) {
            let was_moved = |p: PodId| {
                let row = self.pods.row(p);
                row.spot.st == St::Pipelined && row.origin.node.is_some()
            };
            if favour.cost || !t.preemptible() || t.pods().any(was_moved) {
                return false;
            }
        }
        match action {
            Action::Consolidate | Action::Allocate => true,
            Action::Preempt if v.priority() >= t.priority() => false,
            Action::Preempt | Action::Reclaim => {
                self.protected_for(victim, protection) <= self.now || v.elastic_state() == 2
            }
            _ => false,
        }
    }

    /// How long after its start a gang of this queue is safe from that one.
    pub fn protection(&self, action: Action, taker: QueueId, victim: QueueId) -> Span {
        let path = &self.queues.rows[victim].path;
        match action {
            Action::Preempt => path
                .iter()
                .find_map(|q| self.queues.rows[*q].model.as_ref()?.preempt_min_runtime)
                .unwrap_or(self.policy.preempt_min_runtime),
            Action::Reclaim => {
                let from = match self.policy.min_runtime_rule {
                    MinRuntimeRule::Queue => victim,
                    MinRuntimeRule::BelowCommonAncestor => self.queues.level(taker, victim).1,
                };
                let at = path.iter().position(|q| *q == from).unwrap_or(0);
                path[at.min(path.len())..]
                    .iter()
                    .find_map(|q| self.queues.rows[*q].model.as_ref()?.reclaim_min_runtime)
                    .unwrap_or(self.policy.reclaim_min_runtime)
            }
            _ => Span::ZERO,
        }
    }

    /// Whether anything of a queue may go to a gang of another one.
    pub fn is_candidate_queue(&self, action: Action, taker: QueueId, victim: QueueId, need: &Trio) -> bool {
        let tree = self.queues.rows[taker].tree();
        let same = tree == self.queues.rows[victim].tree();
        match action {
            Action::Allocate => same,
            Action::Consolidate => same && tree == Dialect::Kai,
            Action::Preempt => taker == victim && tree != Dialect::T9k,
            Action::Reclaim => {
                taker != victim
                    && match self.judged_by(taker, victim) {
                        Some(Dialect::Kai) => !self.policy.quotas || self.may_lose_to(taker, victim, need),
                        Some(Dialect::T9k) => {
                            self.queues.rows[victim].priority() < self.queues.rows[taker].priority()
                        }
                        Some(Dialect::Koordinator | Dialect::Kubernetes | Dialect::Volcano) | None => false,
                    }
            }
            _ => false,
        }
    }

    /// Whose rules say whether a queue may take from another: those of the tree in which their ways part.
    fn judged_by(&self, taker: QueueId, victim: QueueId) -> Option<Dialect> {
        let (r, v) = self.queues.level(taker, victim);
        let tree = self.queues.rows[r].tree();
        (tree == self.queues.rows[v].tree()).then_some(tree)
    }

    /// A queue takes from another by fair shares, and not by rank alone.
    fn goes_by_shares(&self, taker: QueueId, victim: QueueId) -> bool {
        self.policy.quotas && self.judged_by(taker, victim) == Some(Dialect::Kai)
    }

    /// From when on a gang may take from a queue that lets others wait for it.
    pub fn may_take_from(&self, taker: GangId, victim: QueueId) -> Time {
        let (after, _) = self.queues.gives_back(victim);
        match &self.gangs.rows[taker].model {
            Some(model) if after > Span::ZERO => waits_since(model) + after,
            _ => Time(i64::MIN),
        }
    }

    /// Whether a gang that loses pods by this action is given no time to end.
    pub fn forces(&self, action: Action, gang: GangId) -> bool {
        matches!(action, Action::Reclaim | Action::GangReclaim)
            && self.gangs.rows[gang].queue.is_some_and(|queue| self.queues.gives_back(queue).1)
    }

    /// Whether a queue may lose anything for good, as things stand: the first loss is judged by what it holds now, whoever it is.
    pub fn may_lose_for_good(&self, action: Action, taker: QueueId, victim: QueueId, need: &Trio) -> bool {
        if action != Action::Reclaim || !self.goes_by_shares(taker, victim) {
            return true;
        }
        let (r, v) = self.queues.level(taker, victim);
        let held = |q: QueueId| self.queues.rows[q].sums.allocated;
        self.may_take(r, v, need, &held(r), &held(v))
    }

    /// Whether a queue has anything that the reclaimer may ask for.
    fn may_lose_to(&self, taker: QueueId, victim: QueueId, need: &Trio) -> bool {
        let (r, v) = self.queues.level(taker, victim);
        let (r, v) = (&self.queues.rows[r], &self.queues.rows[v]);
        let with = plus(&r.sums.allocated, need);
        let quota = r.quota();
        let over_quota = (0..3).any(|i| quota[i].is_some_and(|q| with[i] > q));
        if over_quota {
            return (0..3).any(|i| v.allocatable[i].is_some_and(|a| v.sums.allocated[i] > a));
        }
        let quota = v.quota();
        let above = (0..3).any(|i| need[i] > 0 && quota[i].is_some_and(|q| v.sums.allocated[i] > q));
        let below = (0..3).any(|i| need[i] > 0 && quota[i].is_some_and(|q| v.sums.allocated[i] < q));
        above || !below
    }

    /// Whether a reclaimer may look for victims: its queue stays within its fair share, and firm work within its quota.
    pub fn can_reclaim(&self, gang: GangId, need: &Trio) -> bool {
        let row = &self.gangs.rows[gang];
        let Some(queue) = row.queue else { return false };
        let q = &self.queues.rows[queue];
        let only_within = matches!(q.tree(), Dialect::Koordinator | Dialect::Kubernetes | Dialect::Volcano);
        if only_within && !self.queues.is_under(q.tree()) {
            return false;
        }
        if !self.policy.quotas {
            return true;
        }
        let quota = q.quota();
        (0..3).all(|i| q.sums.allocated[i] + need[i] <= q.fair[i])
            && (row.preemptible()
                || (0..3).all(|i| quota[i].is_none_or(|quota| q.sums.firm[i] + need[i] <= quota)))
    }

    /// Until when a gang is safe from a queue.
    fn protected_until(&self, action: Action, taker: QueueId, victim: GangId) -> Time {
        match self.gangs.rows[victim].queue {
            Some(queue) => self.protected_for(victim, self.protection(action, taker, queue)),
            None => Time(i64::MIN),
        }
    }

    fn protected_for(&self, gang: GangId, span: Span) -> Time {
        let start = self.gangs.rows[gang].model.as_ref().and_then(|m| m.last_start);
        match start {
            Some(start) if span > Span::ZERO => start + span,
            _ => Time(i64::MIN),
        }
    }

    /// Whether the victims of a trial that stands may be taken. `pods` are all that were evicted for it, moved ones included.
    pub fn is_just(
        &self,
        action: Action,
        taker: GangId,
        need: &Trio,
        pods: &[PodId],
        before: &Before,
    ) -> bool {
        let moved = |p: &PodId| self.pods.row(*p).spot.st.is_active();
        let Some(queue) = self.gangs.rows[taker].queue else { return false };
        if !self.moves_few(action, taker, pods) {
            return false;
        }
        let until = |g: GangId| self.protected_until(action, queue, g);
        match action {
            Action::Consolidate => pods.iter().all(moved),
            Action::Preempt => self.respects_protection(pods, until),
            Action::Reclaim => {
                (!self.policy.quotas || self.is_fair(taker, queue, need, pods, before))
                    && self.respects_protection(pods, until)
            }
            _ => true,
        }
    }

    /// Whether no more gangs would have been moved for the taker in this cycle than may be, those included that were moved for promises which
    /// it takes over.
    fn moves_few(&self, action: Action, taker: GangId, pods: &[PodId]) -> bool {
        let Some(most) = self.policy.max_consolidation_victims else { return true };
        let moves = action == Action::Consolidate;
        if !moves && self.favoured.is_empty() {
            return true;
        }
        let mut moved: BTreeSet<GangId> = BTreeSet::new();
        moved.extend(self.favoured.get(&taker).iter().flat_map(|favour| &favour.moved));
        for pod in pods {
            let row = self.pods.row(*pod);
            let Some(gang) = row.gang else { continue };
            if row.origin.node.is_some() {
                moved.extend(moves.then_some(gang));
            } else if !row.spot.st.is_active() {
                moved.extend(self.favoured.get(&gang).iter().flat_map(|favour| &favour.moved));
            }
        }
        moved.len() <= most as usize
    }

    /// A gang that is still protected keeps its minimum where it is: being moved is an interruption too.
    fn respects_protection(&self, pods: &[PodId], until: impl Fn(GangId) -> Time) -> bool {
        let gangs = self.gangs_of(pods);
        let gone: BTreeSet<PodId> = pods.iter().copied().collect();
        gangs
            .into_iter()
            .filter(|g| until(*g) > self.now)
            .all(|g| self.gangs.rows[g].whole_without(0, &self.pods, &|p| gone.contains(&p)))
    }

    fn is_fair(
        &self,
        taker: GangId,
        taker_queue: QueueId,
        need: &Trio,
        pods: &[PodId],
        before: &Before,
    ) -> bool {
        let firm = !self.gangs.rows[taker].preemptible();
        let held = |q: QueueId| before[dense::Id::index(q)];
        // Units of loss by queue: pods above the minimum one by one, the rest of a gang as one.
        let mut by_gang: IndexMap<GangId, Vec<PodId>, FxBuildHasher> = IndexMap::default();
        for pod in pods {
            if let Some(gang) = self.pods.row(*pod).gang {
                by_gang.entry(gang).or_default().push(*pod);
            }
        }
        let mut by_queue: IndexMap<QueueId, Vec<Trio>, FxBuildHasher> = IndexMap::default();
        let mut involved = [need[0] > 0, need[1] > 0, need[2] > 0];
        for (gang, pods) in &by_gang {
            let row = &self.gangs.rows[*gang];
            let Some(queue) = row.queue else { continue };
            let units = by_queue.entry(queue).or_default();
            let core = (row.n_needed(0) as usize).min(pods.len());
            let lost = |pods: &[PodId]| -> Option<Trio> {
                let lost: Vec<Trio> = pods
                    .iter()
                    .filter(|p| {
                        !(self.policy.consolidating_reclaim && self.pods.row(**p).spot.st.is_active())
                    })
                    .map(|p| {
                        let row = self.pods.row(*p);
                        let memory = row.origin.node.and_then(|n| self.nodes.gpu_memory(n));
                        self.charge(row.class, memory)
                    })
                    .collect();
                (!lost.is_empty()).then(|| lost.iter().fold([0; 3], |sum, c| plus(&sum, c)))
            };
            units.extend(pods[core..].iter().filter_map(|p| lost(std::slice::from_ref(p))));
            units.extend(lost(&pods[..core]));
        }
        let mut remaining: IndexMap<QueueId, Trio, FxBuildHasher> = IndexMap::default();
        by_queue.retain(|queue, _| self.goes_by_shares(taker_queue, *queue));
        if by_queue.is_empty() && self.queues.rows[taker_queue].tree() != Dialect::Kai {
            return true;
        }
        for (queue, units) in &by_queue {
            let (r, v) = self.queues.level(taker_queue, *queue);
            for unit in units {
                let left = *remaining.entry(v).or_insert_with(|| held(v));
                if !self.may_take(r, v, need, &held(r), &left) {
                    return false;
                }
                for (i, amount) in unit.iter().enumerate() {
                    involved[i] |= *amount > 0;
                }
                for up in &self.queues.rows[*queue].path {
                    let left = remaining.entry(*up).or_insert_with(|| held(*up));
                    *left = crate::queues::minus(left, unit);
                }
            }
        }
        self.stays_within_bounds(taker_queue, need, firm, &involved, &remaining, before)
    }

    /// How many GPUs a queue has too many, if GPUs are all that it has too much of: then it loses nothing once they are gone. `None`: there is no
    /// telling.
    pub fn gpus_to_spare(&self, taker: QueueId, judged: QueueId, need: &Trio) -> Option<i128> {
        if !self.goes_by_shares(taker, judged) {
            return None;
        }
        let r = self.queues.level(taker, judged).0;
        let (r, v) = (&self.queues.rows[r], &self.queues.rows[judged]);
        let (mine, theirs) = (r.quota(), v.quota());
        let within_quota = (0..3).all(|i| mine[i].is_none_or(|q| r.sums.allocated[i] + need[i] <= q));
        let line = |i: usize| match (v.allocatable[i], theirs[i].filter(|_| within_quota)) {
            (Some(a), Some(q)) => Some(a.min(q)),
            (a, q) => a.or(q),
        };
        let spare = |i: usize| line(i).map(|line| v.sums.allocated[i] - line);
        if (0..2).any(|i| spare(i).is_some_and(|spare| spare > 0)) {
            return None;
        }
        spare(2).map(|spare| spare.max(0))
    }

    /// One more unit may be taken from a queue that still holds `left`.
    fn may_take(&self, r: QueueId, v: QueueId, need: &Trio, held: &Trio, left: &Trio) -> bool {
        let (r, v) = (&self.queues.rows[r], &self.queues.rows[v]);
        let above_share = (0..3).any(|i| v.allocatable[i].is_some_and(|a| left[i] > a));
        if above_share {
            return true;
        }
        let (mine, theirs) = (r.quota(), v.quota());
        (0..3).all(|i| mine[i].is_none_or(|q| held[i] + need[i] <= q))
            && (0..3).any(|i| theirs[i].is_some_and(|q| left[i] > q))
    }

    /// On every level, the reclaimer must not end up more saturated than a sibling that it took from.
    fn stays_within_bounds(
        &self,
        taker: QueueId,
        need: &Trio,
        firm: bool,
        involved: &[bool; 3],
        remaining: &IndexMap<QueueId, Trio, FxBuildHasher>,
        before: &Before,
    ) -> bool {
        for up in &self.queues.rows[taker].path {
            let row = &self.queues.rows[*up];
            if row.tree() != Dialect::Kai {
                continue;
            }
            let left = remaining.get(up).copied().unwrap_or(before[dense::Id::index(*up)]);
            let with = plus(&left, need);
            let parent = row.path.get(1);
            for (sibling, s_left) in remaining {
                let s = &self.queues.rows[*sibling];
                if sibling == up || s.path.get(1) != parent {
                    continue;
                }
                for i in (0..3).filter(|i| involved[*i]) {
                    let (fair, s_fair) = (row.fair[i], s.fair[i]);
                    if s_fair <= 0 || with[i] <= fair {
                        continue;
                    }
                    // with / fair * multiplier >= s_left / s_fair, without dividing.
                    let mine = with[i] as f64 / (fair.max(0) as f64);
                    let theirs = s_left[i] as f64 / s_fair as f64;
                    if mine * (self.policy.saturation_multiplier as f64 / 1000.0) >= theirs {
                        return false;
                    }
                }
            }
            if firm {
                let quota = row.quota();
                if (0..3).any(|i| need[i] > 0 && quota[i].is_some_and(|q| row.sums.firm[i] > q)) {
                    return false;
                }
            }
        }
        true
    }
}

/// Since when a gang has waited for what it waits for.
pub fn waits_since(model: &Gang) -> Time {
    model.last_eviction.map_or(model.created, |evicted| evicted.max(model.created))
}
