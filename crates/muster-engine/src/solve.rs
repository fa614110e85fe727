//! The search for victims: which pods must go, so that a gang can come.
//!
//! In: a gang that waits, and gangs that may lose pods to it. Out: a trial that stands (victims evicted or moved, the gang promised their
//! places), or nothing changed.
//!
//! Victims are added batch by batch in the order of their turn. How many pods of the gang can be served is found by doubling and bisecting; the
//! victims of every success are kept for the next, larger try. Two ways to choose among the batches so far are tried, one after the other:
//! those of one node, then those of the nodes that need the fewest. What cannot work by arithmetic alone is never tried.

use crate::classes::{Class, Classes};
use crate::ids::{ClassId, GangId, NodeId, PodId, QueueId};
use crate::nodes::{CPU_DIM, GPU_DIM, amount_of};
use crate::order::{Entry, Lineup};
use crate::place::{Mode, count_soon};
use crate::queues::{Trio, plus};
use crate::rights::Before;
use crate::state::{Spot, St, State};
use dense::Id;
use indexmap::{IndexMap, IndexSet};
use muster_model::{Action, GPU};
use rustc_hash::{FxBuildHasher, FxHasher};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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
    /// Who could lose pods to the gang, in the order of their turn.
    line: Lineup,
    before: Before,
    /// Fingerprints of trials that failed.
    failed: BTreeSet<(u64, u64)>,
    tried: u64,
    /// Pods that were moved on trial, and how many may be.
    spent: u64,
    budget: u64,
}

/// Pods that would go together.
struct Batch {
    pods: Vec<PodId>,
    /// The batch of the same gang before this one: who loses its core has lost its surplus.
    before: Option<usize>,
}

/// The batches that touch a node.
type ByNode = Map<NodeId, SmallVec<[usize; 4]>>;

/// A batch and all that must go before it.
fn with_earlier(batches: &[Batch], index: usize) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(Some(index), |i| batches[*i].before)
}

impl State {
    /// Looks for victims for a gang, among those that stand in line. `budget` is how many pods may be moved on trial; how many were is returned too.
    pub fn search(&mut self, action: Action, gang: GangId, budget: u64) -> (Found, u64) {
        let pods = self.gangs.rows[gang].to_place(&self.pods, false);
        let nothing = |candidates, tried, spent| (Found::Nothing { candidates, tried }, spent);
        if pods.is_empty() {
            return nothing(0, 0, 0);
        }
        self.settle_rules(&pods);
        let need = self.demand_of(&pods);
        let free = self.free();
        let (candidates, for_good) = self.candidates(action, gang, &need, &pods);
        let n_candidates = candidates.iter().map(|(_, entries)| entries.len() as u32).sum();
        if n_candidates == 0 || !self.could_be_just(&pods, &need, &free, &for_good) {
            return nothing(n_candidates, 0, 0);
        }
        let mut line = Lineup::new(true);
        for (queue, entries) in candidates {
            line.add_sorted(self, queue, entries.into_iter().cloned().collect());
        }
        let before = self.queues.rows.values().map(|row| row.sums.allocated).collect();
        let failed = BTreeSet::new();
        let mut search =
            Search { state: self, action, gang, line, before, failed, tried: 0, spent: 0, budget };
        if !search.could_ever_fit(&pods) {
            return nothing(n_candidates, search.tried, search.spent);
        }
        for way in [Way::OneNode, Way::ManyNodes] {
            if search.solve(way, &pods) {
                return (Found::Solution, search.spent);
            }
            if search.is_spent() {
                return (Found::Unknown { tried: search.tried }, search.spent);
            }
        }
        nothing(n_candidates, search.tried, search.spent)
    }

    /// Those in line who may lose pods to the gang, by queue, and what of theirs may be lost for good.
    fn candidates(
        &self,
        action: Action,
        gang: GangId,
        need: &Trio,
        pods: &[PodId],
    ) -> (Vec<(QueueId, Vec<&Entry>)>, Trio) {
        let mut candidates = Vec::new();
        let mut for_good = [0; 3];
        let Some(taker) = self.gangs.rows[gang].queue else { return (candidates, for_good) };
        let most = self.policy.max_consolidation_victims.filter(|_| action == Action::Consolidate);
        let useful = most.map(|most| self.useful_to_move(gang, pods, most as usize));
        // By the queue that is judged: what its gangs hold, and the most GPUs that one of them does.
        let mut losses: Map<QueueId, (Trio, i128)> = Map::default();
        for (queue, entries) in &self.standing.victims {
            if !self.is_candidate_queue(action, taker, *queue, need) {
                continue;
            }
            let loses = action != Action::Consolidate && self.may_lose_for_good(action, taker, *queue, need);
            // Who can neither be lost nor moved is of no use.
            if action == Action::Reclaim && !loses && !self.policy.consolidating_reclaim {
                continue;
            }
            if action == Action::Reclaim && self.may_take_from(gang, *queue) > self.now {
                continue;
            }
            let protection = self.protection(action, taker, *queue);
            let entries: Vec<&Entry> = entries
                .iter()
                .filter(|e| useful.as_ref().is_none_or(|set| set.contains(&e.gang)))
                .filter(|e| self.is_candidate(action, protection, gang, e.gang))
                // Since it took its place in line, somebody may have come to need its company.
                .filter(|e| !self.company_made || e.left.iter().all(|p| self.is_evictable(*p)))
                .collect();
            if loses {
                let judged = self.queues.level(taker, *queue).1;
                let (sum, most) = losses.entry(judged).or_default();
                for entry in &entries {
                    *sum = plus(sum, &entry.amount);
                    *most = (*most).max(entry.amount[GPU_DIM]);
                }
            }
            candidates.push((*queue, entries));
        }
        for (judged, (mut sum, most)) in losses {
            if action == Action::Reclaim
                && let Some(spare) = self.gpus_to_spare(taker, judged, need)
            {
                // It loses as long as it has too much, so the last to go may take it below.
                sum[GPU_DIM] = sum[GPU_DIM].min(spare + most);
            }
            for_good = plus(&for_good, &sum);
        }
        (candidates, for_good)
    }

    /// Moving pods makes no room: what is asked for must be free, or be lost by somebody who may lose it.
    fn could_be_just(&self, pods: &[PodId], need: &Trio, free: &Trio, for_good: &Trio) -> bool {
        // MIG slices and claimed devices are charged as GPUs and are none.
        let plain = |p: &PodId| self.classes.rows[self.pods.row(*p).class].shape.extra_gpu_charge == 0;
        let plain = pods.iter().all(plain);
        (0..3).filter(|r| plain || *r != GPU_DIM).all(|r| need[r] <= free[r] + for_good[r])
    }

    /// The gangs whose moving could make room for one more pod on some node, those first where the least is missing.
    fn useful_to_move(&self, gang: GangId, pods: &[PodId], most: usize) -> Set<GangId> {
        // (What is missing for one more pod, the node, and of which resource.)
        let mut nodes: Vec<(i64, u32, NodeId, usize)> = Vec::new();
        for (class, _) in self.classes_of(pods) {
            let row = &self.classes.rows[class];
            let Some(allowed) = self.classes.allowed(row.rule) else { continue };
            for node in allowed.iter() {
                let (dim, wanted, left) = match row.share {
                    Some(share) => {
                        let size = self.nodes.gpu_size(node);
                        let part = Classes::share_amount(share, size).saturating_mul(GPU) / size;
                        (
                            GPU_DIM,
                            part.saturating_mul(i64::from(share.devices.max(1))),
                            self.nodes.gpus_left(node),
                        )
                    }
                    None => {
                        let dim = if row.cpu_only { CPU_DIM } else { GPU_DIM };
                        let wanted = amount_of(&row.need, dim).unwrap_or(GPU);
                        (dim, wanted, self.nodes.coming(node, dim))
                    }
                };
                let fitting = left.max(0) / wanted.max(1);
                let missing = wanted.saturating_mul(fitting.saturating_add(1)).saturating_sub(left);
                if missing <= self.nodes.cap(node, dim) - left {
                    nodes.push((missing, self.nodes.rows[node].rank, node, dim));
                }
            }
        }
        nodes.sort_unstable();
        let mut useful: Set<GangId> = Set::default();
        for (missing, _, node, dim) in nodes {
            let mut held: Vec<(i128, GangId)> = self.nodes.rows[node]
                .pods
                .iter()
                .filter(|p| self.is_evictable(**p))
                .filter_map(|p| {
                    let pod = self.pods.row(*p);
                    let charge = self.charge(pod.class, self.nodes.gpu_memory(node));
                    Some((charge[dim], pod.gang.filter(|g| *g != gang && self.gangs.rows[*g].preemptible())?))
                })
                .filter(|(amount, _)| *amount > 0)
                .collect();
            held.sort_by(|a, b| {
                a.0.cmp(&b.0).then_with(|| self.gangs.rows[a.1].key.cmp(&self.gangs.rows[b.1].key))
            });
            // The smallest pod that is enough, or the smallest ones together.
            let one = held.iter().find(|(amount, _)| *amount >= i128::from(missing)).copied();
            let mut sum = 0;
            let chosen: Vec<GangId> = match one {
                Some((_, gang)) => vec![gang],
                None => held
                    .iter()
                    .take_while(|(amount, _)| {
                        let enough = sum >= i128::from(missing);
                        sum += amount;
                        !enough
                    })
                    .map(|(_, gang)| *gang)
                    .collect(),
            };
            for gang in chosen {
                if useful.len() == most {
                    return useful;
                }
                useful.insert(gang);
            }
        }
        useful
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
}

impl Search<'_> {
    fn is_spent(&self) -> bool {
        self.spent >= self.budget
    }

    /// With every candidate gone, would there be room? If not, no choice of victims can help. Both questions only overestimate.
    fn could_ever_fit(&mut self, pods: &[PodId]) -> bool {
        let all = || self.line.entries().flat_map(|e| e.left.iter().copied());
        let mut clearing = Clearing::new(self.state, pods);
        clearing.free(self.state, all());
        if !clearing.has_room(self.state, self.gang) {
            return false;
        }
        // Who needs company, or an even spread, may be worse off when everybody else is gone.
        let rules = |class: ClassId| &self.state.classes.rows[class].shape.pods;
        let alone = clearing.classes.iter().all(|(class, _)| !rules(*class).need_others());
        // Arithmetic is exact for pods of one class without a rule about places.
        let model = self.state.gangs.rows[self.gang].model.as_ref();
        let simple = clearing.classes.len() == 1
            && !clearing.anything
            && model.is_some_and(|m| m.groups.iter().all(|g| g.topology.is_none()));
        if !alone || simple || self.action == Action::Consolidate {
            return true;
        }
        let all: Vec<PodId> = all().take(MOST_AT_ONCE + 1).collect();
        if all.len() > MOST_AT_ONCE {
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
                    if self.is_spent() {
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
        let mut line = self.line.clone();
        let mut room = Room::new(self.state, pods, self.action);
        let kept_pods: Vec<PodId> = kept.iter().copied().collect();
        room.free(self.state, &kept_pods);
        let base = room;
        let mut all = base.clone();
        let mut batches: Vec<Batch> = Vec::new();
        let mut latest: Map<GangId, usize> = Map::default();
        let mut by_node: ByNode = Map::default();
        while let Some(entry) = line.pop(self.state) {
            if self.is_spent() {
                return None;
            }
            self.state.sort_gang(entry.gang);
            let mut left: SmallVec<[PodId; 16]> = SmallVec::from_slice(&entry.left);
            left.sort_unstable();
            let (batch, more) = self.state.gangs.rows[entry.gang]
                .to_evict(&|p| left.binary_search(&p).is_ok(), &|p| {
                    self.state.pods.row(p).origin.node.is_some()
                });
            if batch.is_empty() {
                continue;
            }
            let is_new = !batch.iter().any(|p| kept.contains(p));
            if more || !is_new {
                let gone: Set<PodId> = if is_new { batch.iter().copied().collect() } else { kept.clone() };
                let rest: Arc<[PodId]> = entry.left.iter().copied().filter(|p| !gone.contains(p)).collect();
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
            let mut nodes: SmallVec<[NodeId; 8]> =
                batch.iter().filter_map(|p| self.state.pods.row(*p).spot.node).collect();
            nodes.sort_by_key(|n| self.state.nodes.rows[*n].rank);
            nodes.dedup();
            for node in &nodes {
                by_node.entry(*node).or_default().push(index);
            }
            let before = latest.insert(entry.gang, index);
            batches.push(Batch { pods: batch, before });
            if !all.has() {
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
        by_node: &ByNode,
        nodes: &[NodeId],
    ) -> Option<Set<PodId>> {
        for node in nodes {
            let chosen = by_node.get(node)?;
            let chosen: Set<usize> = chosen.iter().flat_map(|b| with_earlier(batches, *b)).collect();
            let victims: Vec<PodId> = chosen.iter().flat_map(|b| batches[*b].pods.iter().copied()).collect();
            let mut room = base.clone();
            room.free(self.state, &victims);
            if !room.has() {
                continue;
            }
            let all: Set<PodId> = kept.iter().copied().chain(victims).collect();
            let found = self.attempt(pods, need, all);
            if found.is_some() {
                return found;
            }
            if self.is_spent() {
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
        by_node: &ByNode,
    ) -> Option<Set<PodId>> {
        let mut nodes: Vec<(i128, usize, NodeId)> = by_node
            .iter()
            .enumerate()
            .map(|(seen, (node, list))| {
                let freed: i128 = list
                    .iter()
                    .flat_map(|b| batches[*b].pods.iter())
                    .filter(|p| self.state.pods.row(**p).spot.node == Some(*node))
                    .map(|p| self.state.charge(self.state.pods.row(*p).class, None)[2])
                    .sum();
                (i128::from(self.state.nodes.gpus_left(*node)) + freed, seen, *node)
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
        while taken < nodes.len() && !room.has() {
            take(&mut room, &mut chosen, self.state, nodes[taken].2);
            taken += 1;
        }
        let mut step = 1;
        loop {
            if !room.has() || self.is_spent() {
                return None;
            }
            let victims: Set<PodId> = kept
                .iter()
                .copied()
                .chain(chosen.iter().flat_map(|b| batches[*b].pods.iter().copied()))
                .collect();
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
        self.spent += (victims.len() * 2 + pods.len()) as u64;
        let mark = self.state.mark();
        for pod in &victims {
            self.state.evict_on_trial(*pod);
        }
        let gangs = self.state.gangs_of(&victims);
        let mut line = Lineup::new(false);
        let again: Vec<Entry> = gangs
            .iter()
            .filter(|g| **g != self.gang)
            .map(|g| {
                let again = self.state.gangs.rows[*g].to_place(&self.state.pods, true);
                Entry::asking(self.state, *g, &again)
            })
            .collect();
        let mine = Entry::asking(self.state, self.gang, pods);
        // Others who wait in the same queues are not served here, but they stand in line, and who is next in a queue decides its turn.
        let mut queues: Vec<_> = again
            .iter()
            .chain(std::iter::once(&mine))
            .filter_map(|e| self.state.gangs.rows[e.gang].queue)
            .collect();
        queues.sort_unstable();
        queues.dedup();
        for queue in queues {
            if let Some(waiting) = self.state.standing.waiting.get(&queue) {
                let others =
                    waiting.iter().filter(|e| e.gang != self.gang && gangs.binary_search(&e.gang).is_err());
                line.add_sorted(self.state, queue, others.cloned().collect());
            }
        }
        let mut to_serve = again.len() + 1;
        for entry in again.into_iter().chain(std::iter::once(mine)) {
            line.push(self.state, entry);
        }
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
                let row = self.state.pods.row(*p);
                let back = row.decided.as_ref() == Some(&row.spot) || row.spot == row.origin;
                !back || row.spot.on_trial
            })
            .collect();
        let list: Vec<PodId> = taken.iter().copied().collect();
        // Taking back what was given in this cycle frees nothing that was not free before: who came first keeps it.
        let frees = list.is_empty() || list.iter().any(|p| self.state.pods.row(*p).origin.node.is_some());
        if served && frees && self.state.is_just(self.action, self.gang, need, &list, &self.before) {
            self.state.log.commit(mark);
            // Who is taken at all is kept whole for the next try, pods that were left where they are included.
            let gangs: Set<Option<GangId>> = taken.iter().map(|p| self.state.pods.row(*p).gang).collect();
            return Some(
                victims.into_iter().filter(|p| gangs.contains(&self.state.pods.row(*p).gang)).collect(),
            );
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

/// How many of a gang's pods there would be room for, by arithmetic alone, as victims are added one by one. Never too few.
#[derive(Clone)]
struct Room {
    classes: Vec<ClassRoom>,
    /// Victims are only moved, so they need room again.
    victims_return: bool,
    /// What victims give back, by node.
    freed: Map<NodeId, Freed>,
    /// Shares of GPUs do not add up like amounts; then anything is possible.
    anything: bool,
}

/// What a node would get back, by dimension.
#[derive(Clone, Default)]
struct Freed {
    amounts: SmallVec<[i64; 4]>,
    /// More is being added, and the totals of classes are without this node.
    open: bool,
}

#[derive(Clone)]
struct ClassRoom {
    class: ClassId,
    /// By pods of the gang, and by victims that return and take at least as much each.
    wanted: i64,
    total: i64,
}

/// Beyond any gang.
const MOST: i64 = 1 << 40;
/// So many pods are evicted at once to see whether anything would help; with more, the search itself is as quick.
const MOST_AT_ONCE: usize = 4_096;

impl Room {
    /// For pods whose rules are settled.
    fn new(state: &State, pods: &[PodId], action: Action) -> Self {
        let mut anything = false;
        let classes = state
            .classes_of(pods)
            .into_iter()
            .map(|(class, wanted)| {
                let row = &state.classes.rows[class];
                anything |= row.share.is_some() || row.has_claims;
                let count = |n| count_soon(&state.classes, &state.nodes, class, n, MOST);
                let total = state.classes.allowed(row.rule).map_or(0, |set| set.iter().map(count).sum());
                ClassRoom { class, wanted, total }
            })
            .collect();
        let victims_return = action == Action::Consolidate;
        Self { classes, victims_return, freed: Map::default(), anything }
    }

    /// These pods would leave.
    fn free(&mut self, state: &State, pods: &[PodId]) {
        if self.anything {
            return;
        }
        // Pods of one gang are often together, so the node before is often the node.
        let mut touched: SmallVec<[usize; 8]> = SmallVec::new();
        let mut last: Option<(NodeId, usize)> = None;
        for pod in pods {
            let row = state.pods.row(*pod);
            let Some(node) = row.spot.node else { continue };
            let class = &state.classes.rows[row.class];
            self.anything |= class.share.is_some() || class.has_claims;
            let at = match last.filter(|(n, _)| *n == node) {
                Some((_, at)) => at,
                None => {
                    let entry = self.freed.entry(node);
                    let at = entry.index();
                    entry.or_default();
                    at
                }
            };
            last = Some((node, at));
            let freed = &mut self.freed[at];
            if !std::mem::replace(&mut freed.open, true) {
                touched.push(at);
                for c in &mut self.classes {
                    c.total -= with_freed(state, c, node, &freed.amounts);
                }
            }
            for c in self.classes.iter_mut().filter(|_| self.victims_return) {
                c.wanted += i64::from(takes_as_much(class, &state.classes.rows[c.class]));
            }
            for (dim, amount) in &class.need {
                let dim = *dim as usize;
                if freed.amounts.len() <= dim {
                    freed.amounts.resize(dim + 1, 0);
                }
                freed.amounts[dim] = freed.amounts[dim].saturating_add(*amount);
            }
        }
        for at in touched {
            let Some((node, freed)) = self.freed.get_index_mut(at) else { continue };
            freed.open = false;
            for c in &mut self.classes {
                c.total += with_freed(state, c, *node, &freed.amounts);
            }
        }
    }

    fn has(&self) -> bool {
        self.anything || self.classes.iter().all(|c| c.total >= c.wanted)
    }
}

/// How many pods of a class a node could take.
fn with_freed(state: &State, c: &ClassRoom, node: NodeId, freed: &[i64]) -> i64 {
    let row = &state.classes.rows[c.class];
    if !state.classes.allowed(row.rule).is_some_and(|set| set.contains(node)) {
        return 0;
    }
    row.need.iter().fold(MOST, |n, (dim, amount)| {
        let free = state.nodes.coming(node, *dim as usize) + freed.get(*dim as usize).copied().unwrap_or(0);
        n.min(free.max(0) / amount)
    })
}

/// Whether a pod of one class, wherever it is, takes a place where one of the other could be.
fn takes_as_much(class: &Class, other: &Class) -> bool {
    let enough = |(dim, amount): &(u32, i64)| amount_of(&class.need, *dim as usize) >= Some(*amount);
    class.rule == other.rule && other.need.iter().all(enough)
}

/// What every node could hold of a gang if many others left at once, by arithmetic alone. Never too little.
pub struct Clearing {
    /// What is to be placed: classes, and how many pods of each.
    classes: Vec<(ClassId, i64)>,
    /// The dimensions that matter, and what is free of them on each node in turn.
    dims: SmallVec<[u32; 4]>,
    free: Vec<i64>,
    /// Shares of GPUs do not add up like amounts; then anything is possible.
    anything: bool,
}

impl Clearing {
    /// For pods whose rules are settled.
    pub fn new(state: &State, pods: &[PodId]) -> Self {
        let classes = state.classes_of(pods);
        let rows = || classes.iter().map(|(class, _)| &state.classes.rows[*class]);
        let mut dims: SmallVec<[u32; 4]> = rows().flat_map(|c| c.need.iter().map(|(dim, _)| *dim)).collect();
        dims.sort_unstable();
        dims.dedup();
        let anything = rows().any(|c| c.share.is_some() || c.has_claims);
        let mut free = Vec::with_capacity(state.nodes.rows.len() * dims.len());
        for node in state.nodes.rows.ids() {
            for dim in &dims {
                free.push(state.nodes.coming(node, *dim as usize));
            }
        }
        Self { classes, dims, free, anything }
    }

    /// These pods would leave.
    pub fn free(&mut self, state: &State, pods: impl Iterator<Item = PodId>) {
        // Neighbours in the list are often alike.
        let mut last: Option<ClassId> = None;
        let mut gives: SmallVec<[i64; 4]> = SmallVec::new();
        for pod in pods {
            let row = state.pods.row(pod);
            let Some(node) = row.spot.node else { continue };
            if last != Some(row.class) {
                last = Some(row.class);
                let class = &state.classes.rows[row.class];
                self.anything |= class.share.is_some() || class.has_claims;
                gives.clear();
                gives.extend(self.dims.iter().map(|d| amount_of(&class.need, *d as usize).unwrap_or(0)));
            }
            let n = self.dims.len();
            for (free, given) in self.free[node.index() * n..][..n].iter_mut().zip(&gives) {
                *free = free.saturating_add(*given);
            }
        }
    }

    /// Whether all of the gang's pods would have room, and where all of it must share a domain, in one domain.
    pub fn has_room(&self, state: &State, gang: GangId) -> bool {
        if self.anything {
            return true;
        }
        let enough = |(class, wanted): &(ClassId, i64)| {
            let mut left = *wanted;
            self.counts(state, *class).any(|(_, n)| {
                left -= n.min(*wanted);
                left <= 0
            })
        };
        self.classes.iter().all(enough) && self.has_domain(state, gang)
    }

    /// How many pods of a class the nodes could take, those that could take any.
    fn counts(&self, state: &State, class: ClassId) -> impl Iterator<Item = (NodeId, i64)> {
        let row = &state.classes.rows[class];
        let needs: SmallVec<[(usize, i64); 4]> = row
            .need
            .iter()
            .filter_map(|(dim, amount)| Some((self.dims.iter().position(|d| d == dim)?, *amount)))
            .collect();
        let allowed = state.classes.allowed(row.rule).into_iter().flat_map(|set| set.iter());
        allowed
            .map(move |node| {
                let free = &self.free[node.index() * self.dims.len()..];
                (node, needs.iter().fold(MOST, |n, (at, amount)| n.min(free[*at].max(0) / amount)))
            })
            .filter(|(_, n)| *n > 0)
    }

    fn has_domain(&self, state: &State, gang: GangId) -> bool {
        let model = state.gangs.rows[gang].model.as_ref();
        let rule = model.and_then(|m| m.groups.first()?.topology.as_ref());
        let ([(class, wanted)], Some(rule)) = (&self.classes[..], rule) else { return true };
        let Some(required) = &rule.required else { return true };
        let Some(domain_of) = state.topologies.domains(&rule.topology, required) else { return false };
        let mut sums: Map<u32, i64> = Map::default();
        self.counts(state, *class).any(|(node, n)| {
            domain_of(node).is_some_and(|domain| {
                let sum = sums.entry(domain).or_default();
                *sum += n.min(*wanted);
                *sum >= *wanted
            })
        })
    }
}
