//! The search for victims: which pods must go, so that a gang can come.
//!
//! In: a gang that waits, and gangs that may lose pods to it. Out: a trial that stands (victims evicted or moved, the gang promised their
//! places), or nothing changed.
//!
//! Victims are added batch by batch in the order of their turn. How many pods of the gang can be served is found by doubling and bisecting; the
//! victims of every success are kept for the next, larger try. Two ways to choose among the batches so far are tried, one after the other:
//! those of one node, then those of the nodes that need the fewest. What cannot work by arithmetic alone is never tried.

use crate::ids::{ClassId, GangId, NodeId, PodId};
use crate::order::{Entry, Lineup};
use crate::place::{Mode, count_soon};
use crate::queues::Trio;
use crate::rights::Before;
use crate::state::{Spot, St, State};
use indexmap::{IndexMap, IndexSet};
use muster_model::Action;
use rustc_hash::{FxBuildHasher, FxHasher};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

type Set<T> = IndexSet<T, FxBuildHasher>;
type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

/// What a search found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The trial stands.
    Solution,
    Nothing {
        candidates: u32,
        tried: u64,
    },
    /// The budget ended the search.
    Unknown {
        tried: u64,
    },
}

/// How batches are chosen from those collected so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Everything that touches one node.
    OneNode,
    /// Everything that touches the nodes that are cheapest to clear.
    ManyNodes,
}

struct Search<'a> {
    state: &'a mut State,
    action: Action,
    gang: GangId,
    candidates: Vec<GangId>,
    before: Before,
    /// Gangs that wait, with what they ask for.
    waiting: Vec<Entry>,
    /// Fingerprints of trials that failed.
    failed: BTreeSet<(u64, u64)>,
    tried: u64,
    budget: u64,
}

/// Pods that would go together.
struct Batch {
    pods: Vec<PodId>,
    /// The batch of the same gang before this one: who loses its core has lost its surplus.
    before: Option<usize>,
}

/// A batch and all that must go before it.
fn with_earlier(batches: &[Batch], index: usize) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(Some(index), |i| batches[*i].before)
}

impl State {
    /// Looks for victims of `candidates` for a gang. `budget` is how many trials may be made.
    pub fn search(&mut self, action: Action, gang: GangId, candidates: Vec<GangId>, budget: u64) -> Found {
        let pods = self.gangs.rows[gang].to_place(&self.pods, false);
        let n_candidates = candidates.len() as u32;
        if pods.is_empty() || candidates.is_empty() {
            return Found::Nothing { candidates: n_candidates, tried: 0 };
        }
        let before = self.queues.rows.values().map(|row| row.sums.allocated).collect();
        let waiting = self
            .waiting
            .iter()
            .filter(|g| self.gangs.rows[*g].queue.is_some_and(|q| self.queues.is_sound_leaf(q)))
            .map(|g| Entry::asking(self, g, &self.gangs.rows[g].to_place(&self.pods, false)))
            .collect();
        let failed = BTreeSet::new();
        let mut search =
            Search { state: self, action, gang, candidates, before, waiting, failed, tried: 0, budget };
        if !search.could_ever_fit(&pods) {
            return Found::Nothing { candidates: n_candidates, tried: search.tried };
        }
        for way in [Way::OneNode, Way::ManyNodes] {
            if search.solve(way, &pods) {
                return Found::Solution;
            }
            if search.tried >= search.budget {
                return Found::Unknown { tried: search.tried };
            }
        }
        Found::Nothing { candidates: n_candidates, tried: search.tried }
    }

    pub fn evict_on_trial(&mut self, pod: PodId) {
        let row = self.pods.row(pod);
        let spot = if row.origin.node.is_none() {
            // Only a decision of this cycle; taken back, it leaves nothing to release.
            Spot { on_trial: true, ..Spot::waiting() }
        } else {
            Spot { st: St::Releasing, on_trial: true, ..row.spot.clone() }
        };
        self.move_pod(pod, spot);
    }

    /// Every pod that the candidates could lose.
    fn evictable_of(&self, gangs: &[GangId]) -> Vec<PodId> {
        gangs.iter().flat_map(|g| self.gangs.rows[*g].pods()).filter(|p| self.is_evictable(*p)).collect()
    }
}

impl Search<'_> {
    /// With every candidate gone, would there be room? If not, no choice of victims can help. Both questions only overestimate.
    fn could_ever_fit(&mut self, pods: &[PodId]) -> bool {
        let all = self.state.evictable_of(&self.candidates);
        let mut room = Room::new(self.state, pods);
        room.free(self.state, &all);
        if !room.has(pods.len()) {
            return false;
        }
        // Who needs company, or an even spread, may be worse off when everybody else is gone.
        let alone = pods.iter().all(|p| {
            let rules = &self.state.classes.rows[self.state.pods.row(*p).class].shape.pods;
            rules.affinity.is_empty() && rules.spread.is_empty()
        });
        if !alone || self.action == Action::Consolidate {
            return true;
        }
        let mark = self.state.mark();
        for pod in all {
            self.state.evict_on_trial(pod);
        }
        let fits = self.state.place(self.gang, pods, Mode::PromiseOnly).is_ok();
        self.state.roll_back(mark);
        fits
    }

    /// Finds how many of the pods can be served, and then serves all of them, or none.
    fn solve(&mut self, way: Way, pods: &[PodId]) -> bool {
        let n = pods.len();
        let mut kept: Set<PodId> = Set::default();
        let (mut lo, mut hi, mut k) = (0, n + 1, 1);
        while lo < n && hi - lo > 1 {
            let mark = self.state.mark();
            match self.probe(way, &pods[..k], &kept) {
                Some(victims) => {
                    // The last try stands as it is: trying the same once more would change nothing.
                    if k == n {
                        if self.is_solution() {
                            self.state.log.commit(mark);
                            return true;
                        }
                        self.state.roll_back(mark);
                        return false;
                    }
                    self.state.roll_back(mark);
                    kept = victims;
                    lo = k;
                    k = if hi > n { (2 * k).min(n) } else { (lo + hi) / 2 };
                }
                None => {
                    self.state.roll_back(mark);
                    if self.tried >= self.budget {
                        return false;
                    }
                    hi = k;
                    k = (lo + hi) / 2;
                }
            }
        }
        if lo == 0 || lo == n {
            return false;
        }
        // What the largest partial success needed may open another way for the whole.
        let mark = self.state.mark();
        if self.probe(way, pods, &kept).is_some() && self.is_solution() {
            self.state.log.commit(mark);
            return true;
        }
        self.state.roll_back(mark);
        false
    }

    fn is_solution(&self) -> bool {
        self.state.gangs.rows[self.gang].satisfied(0)
    }

    /// Looks for victims that make room for these pods. On success the trial stands, and the pods that were evicted or moved are returned.
    fn probe(&mut self, way: Way, pods: &[PodId], kept: &Set<PodId>) -> Option<Set<PodId>> {
        let need = self.state.demand_of(pods);
        if !kept.is_empty()
            && let Some(victims) = self.attempt(pods, &need, kept.clone())
        {
            return Some(victims);
        }
        let mut line = Lineup::new(true);
        let entries: Vec<Entry> = self
            .candidates
            .iter()
            .map(|g| Entry::holding(self.state, *g, self.state.evictable_of(&[*g])))
            .collect();
        line.extend(self.state, entries);
        let mut room = Room::new(self.state, pods);
        let kept_pods: Vec<PodId> = kept.iter().copied().collect();
        room.free(self.state, &kept_pods);
        let base = room;
        let mut all = base.clone();
        let mut batches: Vec<Batch> = Vec::new();
        let mut latest: Map<GangId, usize> = Map::default();
        let mut by_node: Map<NodeId, Vec<usize>> = Map::default();
        while let Some(entry) = line.pop(self.state) {
            if self.tried >= self.budget {
                return None;
            }
            let left: Set<PodId> = entry.left.iter().copied().collect();
            let (batch, more) = self.state.gangs.rows[entry.gang].to_evict(&|p| left.contains(&p));
            if batch.is_empty() {
                continue;
            }
            let is_new = !batch.iter().any(|p| kept.contains(p));
            let gone: Set<PodId> = if is_new { batch.iter().copied().collect() } else { kept.clone() };
            if more || !is_new {
                let rest: Vec<PodId> = entry.left.iter().copied().filter(|p| !gone.contains(p)).collect();
                if !rest.is_empty() && rest.len() < entry.left.len() {
                    let entry = Entry::holding(self.state, entry.gang, rest);
                    line.push(self.state, entry);
                }
            }
            if !is_new {
                continue;
            }
            all.free(self.state, &batch);
            let index = batches.len();
            let mut nodes: Vec<NodeId> =
                batch.iter().filter_map(|p| self.state.pods.row(*p).spot.node).collect();
            nodes.sort_by_key(|n| self.state.nodes.rows[*n].rank);
            nodes.dedup();
            for node in &nodes {
                by_node.entry(*node).or_default().push(index);
            }
            let before = latest.insert(entry.gang, index);
            batches.push(Batch { pods: batch, before });
            if !all.has(pods.len()) {
                continue;
            }
            let victims = match way {
                Way::OneNode => self.try_nodes(pods, &need, kept, &base, &batches, &by_node, &nodes),
                Way::ManyNodes => self.try_prefixes(pods, &need, kept, &base, &batches, &by_node),
            };
            if victims.is_some() {
                return victims;
            }
        }
        None
    }

    /// The batches that touch one of the newest victim's nodes.
    #[expect(clippy::too_many_arguments, reason = "the parts of one probe")]
    fn try_nodes(
        &mut self,
        pods: &[PodId],
        need: &Trio,
        kept: &Set<PodId>,
        base: &Room,
        batches: &[Batch],
        by_node: &Map<NodeId, Vec<usize>>,
        nodes: &[NodeId],
    ) -> Option<Set<PodId>> {
        for node in nodes {
            let chosen = by_node.get(node)?;
            let chosen: Set<usize> = chosen.iter().flat_map(|b| with_earlier(batches, *b)).collect();
            let victims: Vec<PodId> = chosen.iter().flat_map(|b| batches[*b].pods.iter().copied()).collect();
            let mut room = base.clone();
            room.free(self.state, &victims);
            if !room.has(pods.len()) {
                continue;
            }
            let all: Set<PodId> = kept.iter().copied().chain(victims).collect();
            let found = self.attempt(pods, need, all);
            if found.is_some() {
                return found;
            }
            if self.tried >= self.budget {
                return None;
            }
        }
        None
    }

    /// The batches that touch the first nodes, those that would have the least first: as few as could do, then more.
    fn try_prefixes(
        &mut self,
        pods: &[PodId],
        need: &Trio,
        kept: &Set<PodId>,
        base: &Room,
        batches: &[Batch],
        by_node: &Map<NodeId, Vec<usize>>,
    ) -> Option<Set<PodId>> {
        let mut nodes: Vec<(i64, usize, NodeId)> = by_node
            .iter()
            .enumerate()
            .map(|(seen, (node, list))| {
                let freed: i64 = list
                    .iter()
                    .flat_map(|b| batches[*b].pods.iter())
                    .filter(|p| self.state.pods.row(**p).spot.node == Some(*node))
                    .map(|p| self.state.charge(self.state.pods.row(*p).class, None)[2] as i64)
                    .sum();
                (self.state.nodes.gpus_left(*node) + freed, seen, *node)
            })
            .collect();
        nodes.sort_unstable();
        let mut room = base.clone();
        let mut chosen: Set<usize> = Set::default();
        let mut taken = 0;
        let take = |room: &mut Room, chosen: &mut Set<usize>, state: &State, node: NodeId| {
            for batch in by_node[&node].iter().flat_map(|b| with_earlier(batches, *b)) {
                if chosen.insert(batch) {
                    room.free(state, &batches[batch].pods);
                }
            }
        };
        while taken < nodes.len() && !room.has(pods.len()) {
            take(&mut room, &mut chosen, self.state, nodes[taken].2);
            taken += 1;
        }
        let mut step = 1;
        loop {
            if !room.has(pods.len()) || self.tried >= self.budget {
                return None;
            }
            let victims: Set<PodId> =
                kept.iter().copied().chain(chosen.iter().flat_map(|b| batches[*b].pods.iter().copied())).collect();
            let found = self.attempt(pods, need, victims);
            if found.is_some() {
                return found;
            }
            if taken == nodes.len() {
                return None;
            }
            for _ in 0..step {
                if let Some((_, _, node)) = nodes.get(taken) {
                    take(&mut room, &mut chosen, self.state, *node);
                    taken += 1;
                }
            }
            step *= 2;
        }
    }

    /// Evicts these pods on trial, places the gang's pods and then, each in its turn, the victims again. On success the trial stands.
    fn attempt(&mut self, pods: &[PodId], need: &Trio, victims: Set<PodId>) -> Option<Set<PodId>> {
        let print = fingerprint(pods.len(), &victims);
        if self.failed.contains(&print) {
            return None;
        }
        self.tried += 1;
        let mark = self.state.mark();
        for pod in &victims {
            self.state.evict_on_trial(*pod);
        }
        let mut gangs: Vec<GangId> = victims.iter().filter_map(|p| self.state.pods.row(*p).gang).collect();
        gangs.sort_unstable();
        gangs.dedup();
        let mut line = Lineup::new(false);
        let mut entries: Vec<Entry> = std::iter::once(Entry::asking(self.state, self.gang, pods))
            .chain(gangs.iter().filter(|g| **g != self.gang).map(|g| {
                let again = self.state.gangs.rows[*g].to_place(&self.state.pods, true);
                Entry::asking(self.state, *g, &again)
            }))
            .collect();
        // Others who wait in the same queues are not served here, but they stand in line, and who is next in a queue decides its turn.
        let mut queues: Vec<_> = entries.iter().filter_map(|e| self.state.gangs.rows[e.gang].queue).collect();
        queues.sort_unstable();
        queues.dedup();
        let mut to_serve = entries.len();
        let bystanders = self.waiting.iter().filter(|e| {
            let queue = self.state.gangs.rows[e.gang].queue;
            e.gang != self.gang
                && gangs.binary_search(&e.gang).is_err()
                && queue.is_some_and(|q| queues.binary_search(&q).is_ok())
        });
        entries.extend(bystanders.cloned());
        line.extend(self.state, entries);
        let mut served = false;
        while to_serve > 0
            && let Some(entry) = line.pop(self.state)
        {
            if entry.gang != self.gang && gangs.binary_search(&entry.gang).is_err() {
                continue;
            }
            to_serve -= 1;
            if entry.gang == self.gang {
                if self.state.place(self.gang, pods, Mode::PromiseOnly).is_err() {
                    break;
                }
                served = true;
            } else {
                let again = self.state.gangs.rows[entry.gang].to_place(&self.state.pods, true);
                if !again.is_empty() {
                    // A victim that finds no other place is lost; that is what victims are for.
                    let _ = self.state.place(entry.gang, &again, Mode::PromiseOnly);
                }
            }
        }
        let taken: Set<PodId> = victims
            .iter()
            .copied()
            .filter(|p| {
                let spot = &self.state.pods.row(*p).spot;
                matches!(spot.st, St::Releasing | St::Pipelined | St::Allocated) || spot.on_trial
            })
            .collect();
        let list: Vec<PodId> = taken.iter().copied().collect();
        if served && self.state.is_just(self.action, self.gang, need, &list, &self.before) {
            self.state.log.commit(mark);
            // Who is taken at all is kept whole for the next try, pods that were left where they are included.
            let gangs: Set<Option<GangId>> = taken.iter().map(|p| self.state.pods.row(*p).gang).collect();
            return Some(victims.into_iter().filter(|p| gangs.contains(&self.state.pods.row(*p).gang)).collect());
        }
        self.state.roll_back(mark);
        self.failed.insert(print);
        None
    }
}

/// Two independent hashes of a trial: how many pods are to be served, and who would go.
fn fingerprint(n: usize, victims: &Set<PodId>) -> (u64, u64) {
    let mut sorted: Vec<PodId> = victims.iter().copied().collect();
    sorted.sort_unstable();
    let hash = |salt: u64| {
        let mut hasher = FxHasher::default();
        (salt, n, &sorted).hash(&mut hasher);
        hasher.finish()
    };
    (hash(0x9e37_79b9_7f4a_7c15), hash(0xc2b2_ae3d_27d4_eb4f))
}

/// How many of a gang's pods there would be room for, by arithmetic alone. Never too few.
#[derive(Clone)]
struct Room {
    classes: Vec<ClassRoom>,
    /// What victims give back, by node.
    freed: Map<NodeId, Vec<i64>>,
    /// Shares of GPUs do not add up like amounts; then anything is possible.
    anything: bool,
}

#[derive(Clone)]
struct ClassRoom {
    class: ClassId,
    wanted: i64,
    total: i64,
}

/// Beyond any gang.
const MOST: i64 = 1 << 40;

impl Room {
    fn new(state: &mut State, pods: &[PodId]) -> Self {
        let mut classes: Vec<ClassRoom> = Vec::new();
        let mut anything = false;
        for pod in pods {
            let class = state.pods.row(*pod).class;
            match classes.iter_mut().find(|c| c.class == class) {
                Some(c) => c.wanted += 1,
                None => classes.push(ClassRoom { class, wanted: 1, total: 0 }),
            }
        }
        for c in &mut classes {
            let row = &state.classes.rows[c.class];
            anything |= row.share.is_some() || row.has_claims;
            state.classes.settle(state.classes.rows[c.class].rule, &state.nodes);
            let allowed = state.classes.allowed(state.classes.rows[c.class].rule);
            c.total = allowed.map_or(0, |set| {
                set.iter().map(|n| count_soon(&state.classes, &state.nodes, c.class, n, c.wanted)).sum()
            });
        }
        Self { classes, freed: Map::default(), anything }
    }

    /// These pods would leave.
    fn free(&mut self, state: &State, pods: &[PodId]) {
        for pod in pods {
            let row = state.pods.row(*pod);
            let Some(node) = row.spot.node else { continue };
            let class = &state.classes.rows[row.class];
            self.anything |= class.share.is_some() || class.has_claims;
            if self.anything {
                return;
            }
            for c in &mut self.classes {
                c.total -= self.freed.get(&node).map_or_else(
                    || with_freed(state, c, node, &[]),
                    |freed| with_freed(state, c, node, freed),
                );
            }
            let freed = self.freed.entry(node).or_default();
            for (dim, amount) in &class.need {
                let dim = *dim as usize;
                if freed.len() <= dim {
                    freed.resize(dim + 1, 0);
                }
                freed[dim] = freed[dim].saturating_add(*amount);
            }
            let freed = &self.freed[&node];
            for c in &mut self.classes {
                c.total += with_freed(state, c, node, freed);
            }
        }
    }

    fn has(&self, _pods: usize) -> bool {
        self.anything || self.classes.iter().all(|c| c.total >= c.wanted)
    }
}

/// How many pods of a class a node could take, at most as many as are wanted.
fn with_freed(state: &State, c: &ClassRoom, node: NodeId, freed: &[i64]) -> i64 {
    let row = &state.classes.rows[c.class];
    if !state.classes.allowed(row.rule).is_some_and(|set| set.contains(node)) {
        return 0;
    }
    row.need.iter().fold(c.wanted.min(MOST), |n, (dim, amount)| {
        let free = state.nodes.coming(node, *dim as usize) + freed.get(*dim as usize).copied().unwrap_or(0);
        n.min(free.max(0) / amount)
    })
}
