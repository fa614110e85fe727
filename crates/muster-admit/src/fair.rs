//! Fair sharing: whoever borrows most, by its weight, gives first; and whose turn it is among those who ask.
//!
//! In both the tree is gone through from the root, at every cohort to the child with the highest share (to take) or the lowest (to give).

use crate::ids::{TreeId, Usage, WorkloadId};
use crate::order::compare_candidates;
use crate::reason::Cause;
use crate::settings::{FairSharing, FairStrategy};
use crate::share::Share;
use crate::spec::Reclaim;
use crate::state::State;
use crate::victims::{Search, Target};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Who has to go so that a workload fits, by shares.
pub fn targets(search: &Search<'_>, state: &mut State, sharing: &FairSharing) -> Vec<Target> {
    let candidates = candidates(search, state);
    if candidates.is_empty() {
        return Vec::new();
    }
    // Shares are compared as if the workload was in already.
    state.tree.add(search.queue, &search.usage);
    let mut targets = Vec::new();
    let first = sharing.strategies.first().copied().unwrap_or(FairStrategy::AtMostFinal);
    let (mut fits, left) = first_pass(search, state, candidates, first, &mut targets);
    if !fits && sharing.strategies.len() > 1 {
        fits = second_pass(search, state, left, &mut targets);
    }
    state.tree.remove(search.queue, &search.usage);
    if fits {
        search.fill_back(state, &mut targets, true);
    }
    targets.iter().for_each(|t| state.hold(t.id));
    if fits { targets } else { Vec::new() }
}

/// By queue, in the order in which they go.
type Candidates = BTreeMap<TreeId, VecDeque<WorkloadId>>;

fn candidates(search: &Search<'_>, state: &State) -> Candidates {
    let policy = state.queues[search.queue].spec.preemption;
    let mut found: Vec<(crate::order::Candidate, WorkloadId, TreeId)> = Vec::new();
    let mut collect = |queue: TreeId, policy: Reclaim| {
        for &id in &state.queues[queue].members {
            if search.may(state, policy, id) && search.uses(state, id) {
                found.push((search.candidate(state, id), id, queue));
            }
        }
    };
    if policy.within_queue != Reclaim::Never {
        collect(search.queue, policy.within_queue);
    }
    if policy.within_cohort != Reclaim::Never && state.tree.parent(search.queue).is_some() {
        let root = state.tree.nodes[search.queue].root;
        for queue in state.tree.queues_below(root) {
            let borrows = search.need.iter().any(|pair| state.tree.borrows(queue, *pair));
            if queue != search.queue && borrows {
                collect(queue, policy.within_cohort);
            }
        }
    }
    found.sort_by(|a, b| compare_candidates(&a.0, &b.0).then(a.1.cmp(&b.1)));
    let mut by_queue = Candidates::new();
    for (_, id, queue) in found {
        by_queue.entry(queue).or_default().push_back(id);
    }
    by_queue
}

/// Goes to queues with candidates, the one that borrows most first.
struct Descent {
    candidates: Candidates,
    /// Cohorts above the preemptor.
    own: BTreeSet<TreeId>,
    /// What will never have a candidate again.
    pruned: BTreeSet<TreeId>,
}

impl Descent {
    fn new(search: &Search<'_>, state: &State, candidates: Candidates) -> Self {
        Self { candidates, own: state.tree.above(search.queue).collect(), pruned: BTreeSet::new() }
    }

    fn has(&self, queue: TreeId) -> bool {
        self.candidates.get(&queue).is_some_and(|c| !c.is_empty())
    }

    fn pop(&mut self, queue: TreeId) -> Option<WorkloadId> {
        self.candidates.get_mut(&queue)?.pop_front()
    }

    fn next(&mut self, search: &Search<'_>, state: &State) -> Option<TreeId> {
        if state.tree.parent(search.queue).is_none() {
            return self.has(search.queue).then_some(search.queue);
        }
        let root = state.tree.nodes[search.queue].root;
        while !self.pruned.contains(&root) {
            if let Some(queue) = self.descend(search, state, root) {
                return Some(queue);
            }
        }
        None
    }

    /// From the root to the queue; `None`: something was pruned on the way, and one has to start again.
    fn descend(&mut self, search: &Search<'_>, state: &State, root: TreeId) -> Option<TreeId> {
        let tree = &state.tree;
        let mut at = root;
        loop {
            let mut queue: Option<(Share, TreeId)> = None;
            for &child in &tree.nodes[at].queues {
                if self.pruned.contains(&child) {
                    continue;
                }
                let share = tree.share(child);
                if (!share.is_borrowing() && child != search.queue) || !self.has(child) {
                    self.pruned.insert(child);
                    continue;
                }
                let better = queue.as_ref().is_none_or(|(most, known)| {
                    share > *most
                        || (share == *most
                            && self.head(state, search, child) < self.head(state, search, *known))
                });
                if better {
                    queue = Some((share, child));
                }
            }
            let mut cohort: Option<(Share, TreeId)> = None;
            for &child in &tree.nodes[at].cohorts {
                if self.pruned.contains(&child) {
                    continue;
                }
                let share = tree.share(child);
                if !share.is_borrowing() && !self.own.contains(&child) {
                    self.pruned.insert(child);
                } else if cohort.as_ref().is_none_or(|(most, _)| share >= *most) {
                    cohort = Some((share, child));
                }
            }
            match (queue, cohort) {
                (None, None) => {
                    self.pruned.insert(at);
                    return None;
                }
                (Some((share, queue)), Some((most, _))) if share > most => return Some(queue),
                (Some((_, queue)), None) => return Some(queue),
                (_, Some((_, cohort))) => at = cohort,
            }
        }
    }

    /// What decides between queues of equal share: whose first candidate goes first.
    fn head(&self, state: &State, search: &Search<'_>, queue: TreeId) -> Head {
        let id = self.candidates.get(&queue).and_then(|c| c.front());
        Head(id.map(|id| search.candidate(state, *id)))
    }
}

struct Head(Option<crate::order::Candidate>);

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(std::cmp::Ordering::Equal)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(compare_candidates(self.0.as_ref()?, other.0.as_ref()?))
    }
}

/// The nodes right below where two queues meet, on either side.
fn sides(state: &State, own: TreeId, other: TreeId) -> (TreeId, TreeId) {
    let tree = &state.tree;
    let (mut a, mut b) = (own, other);
    while tree.nodes[a].depth > tree.nodes[b].depth {
        a = tree.parent(a).unwrap_or(a);
    }
    while tree.nodes[b].depth > tree.nodes[a].depth {
        b = tree.parent(b).unwrap_or(b);
    }
    while let (Some(x), Some(y)) = (tree.parent(a), tree.parent(b)) {
        if x == y {
            break;
        }
        (a, b) = (x, y);
    }
    (a, b)
}

fn fits(search: &Search<'_>, state: &mut State) -> bool {
    state.tree.remove(search.queue, &search.usage);
    let fits = search.fits(state, true);
    state.tree.add(search.queue, &search.usage);
    fits
}

/// Whether it fits after all that was taken, and who was spared by the strategy.
fn first_pass(
    search: &Search<'_>,
    state: &mut State,
    candidates: Candidates,
    strategy: FairStrategy,
    targets: &mut Vec<Target>,
) -> (bool, Candidates) {
    let mut descent = Descent::new(search, state, candidates);
    let mut spared = Candidates::new();
    // What is its own by quota it may have back from whoever borrows, however little.
    let entitled = state.settings.gates.preempt_within_nominal
        && search.need.iter().all(|pair| !state.tree.borrows(search.queue, *pair));
    while let Some(queue) = descent.next(search, state) {
        let mut taken = None;
        if queue == search.queue || entitled {
            let cause = if queue == search.queue { Cause::InQueue } else { Cause::Reclaim };
            taken = descent.pop(queue).map(|id| (id, cause));
        } else {
            let (own, other) = sides(state, search.queue, queue);
            let (mine, before) = (state.tree.share(own), state.tree.share(other));
            while let Some(id) = descent.pop(queue) {
                let passes = match strategy {
                    FairStrategy::AtMostFinal => {
                        let usage: Usage = usage_of(state, id);
                        state.tree.remove(queue, &usage);
                        let after = state.tree.share(other);
                        state.tree.add(queue, &usage);
                        mine <= after
                    }
                    FairStrategy::LessThanInitial => mine < before,
                };
                if passes {
                    taken = Some((id, Cause::FairSharing));
                    break;
                }
                spared.entry(queue).or_default().push_back(id);
            }
        }
        let Some((id, cause)) = taken else { continue };
        state.release(id);
        targets.push(Target { id, cause });
        if fits(search, state) {
            return (true, Candidates::new());
        }
    }
    (false, spared)
}

/// At most one of each queue, while that has a greater share.
fn second_pass(
    search: &Search<'_>,
    state: &mut State,
    candidates: Candidates,
    targets: &mut Vec<Target>,
) -> bool {
    let mut descent = Descent::new(search, state, candidates);
    while let Some(queue) = descent.next(search, state) {
        let (own, other) = sides(state, search.queue, queue);
        let passes = state.tree.share(own) < state.tree.share(other);
        let first = descent.pop(queue);
        descent.pruned.insert(queue);
        if let Some(id) = first.filter(|_| passes) {
            state.release(id);
            targets.push(Target { id, cause: Cause::FairSharing });
            if fits(search, state) {
                return true;
            }
        }
    }
    false
}

fn usage_of(state: &State, id: WorkloadId) -> Usage {
    state.wl(id).hold.as_ref().map_or_else(Usage::new, |h| h.usage.clone())
}

/// A head of a cycle, as far as shares are concerned.
pub struct Contender {
    pub queue: TreeId,
    pub usage: Usage,
    pub priority: i64,
    pub since: muster_model::Time,
}

/// Whose turn it is, by shares: what is compared at every cohort on the way to the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    borrowing: bool,
    share: Share,
}

/// Hands out heads of a cycle: at every cohort the one whose side would have the lowest share with it.
pub struct Tournament {
    contenders: Vec<Option<Contender>>,
    /// By contender, for its queue and every cohort above but the root.
    standings: Vec<Vec<Standing>>,
    by_queue: BTreeMap<TreeId, usize>,
    roots: VecDeque<TreeId>,
}

impl Tournament {
    pub fn new(contenders: Vec<Contender>, state: &mut State) -> Self {
        let by_queue = contenders.iter().enumerate().map(|(i, c)| (c.queue, i)).collect();
        let roots: BTreeSet<TreeId> = contenders.iter().map(|c| state.tree.nodes[c.queue].root).collect();
        let mut tournament = Self {
            standings: vec![Vec::new(); contenders.len()],
            contenders: contenders.into_iter().map(Some).collect(),
            by_queue,
            roots: roots.into_iter().collect(),
        };
        for i in 0..tournament.contenders.len() {
            tournament.stand(i, state);
        }
        tournament
    }

    fn stand(&mut self, i: usize, state: &mut State) {
        let Some(contender) = &self.contenders[i] else { return };
        let first = state.settings.gates.non_borrowing_first;
        state.tree.add(contender.queue, &contender.usage);
        let path = std::iter::once(contender.queue).chain(state.tree.above(contender.queue));
        self.standings[i] = path
            .filter(|node| state.tree.parent(*node).is_some())
            .map(|node| Standing {
                borrowing: first && state.tree.borrows_on_any(node, &contender.usage),
                share: state.tree.share(node),
            })
            .collect();
        state.tree.remove(contender.queue, &contender.usage);
    }

    /// Usage below a queue's root changed: its relatives stand differently.
    pub fn changed(&mut self, queue: TreeId, state: &mut State) {
        if state.tree.nodes[queue].depth <= 1 {
            // Right below the root only the queue itself is affected, and it is out.
            return;
        }
        let root = state.tree.nodes[queue].root;
        for i in 0..self.contenders.len() {
            let related = self.contenders[i].as_ref().is_some_and(|c| state.tree.nodes[c.queue].root == root);
            if related {
                self.stand(i, state);
            }
        }
    }

    pub fn next(&mut self, state: &State) -> Option<usize> {
        while let Some(&root) = self.roots.front() {
            if let Some(winner) = self.winner(root, state) {
                self.contenders[winner] = None;
                return Some(winner);
            }
            self.roots.pop_front();
        }
        None
    }

    /// Cohorts are gone through from below, without recursion: trees may be deeper than the stack.
    fn winner(&self, root: TreeId, state: &State) -> Option<usize> {
        let of_queue =
            |queue: &TreeId| self.by_queue.get(queue).copied().filter(|i| self.contenders[*i].is_some());
        if state.tree.is_queue(root) {
            return of_queue(&root);
        }
        let mut order = vec![root];
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            order.extend(&state.tree.nodes[node].cohorts);
        }
        let mut winners: BTreeMap<TreeId, usize> = BTreeMap::new();
        for &node in order.iter().rev() {
            let below = &state.tree.nodes[node];
            let depth = below.depth as usize;
            let key = |i: usize| {
                let contender = self.contenders[i].as_ref()?;
                let level = state.tree.nodes[contender.queue].depth as usize - depth - 1;
                let priority = if state.settings.gates.priority_sorting { contender.priority } else { 0 };
                Some((self.standings[i].get(level).copied()?, Reverse(priority), contender.since))
            };
            let cohorts = below.cohorts.iter().filter_map(|c| winners.get(c).copied());
            let mut best: Option<usize> = None;
            for i in cohorts.chain(below.queues.iter().filter_map(of_queue)) {
                if best.is_none_or(|known| key(i) < key(known)) {
                    best = Some(i);
                }
            }
            if let Some(best) = best {
                winners.insert(node, best);
            }
        }
        winners.get(&root).copied()
    }
}
