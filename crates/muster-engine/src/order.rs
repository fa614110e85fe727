//! Whose turn it is: gangs of many queues in one line, queue by queue down the tree.
//!
//! In: gangs with what they ask for (or, for victims, what they hold). Out: one after the other, the order taken anew after every change,
//! since what a queue holds decides its turn. Victims come in the reverse order, and what was taken from a queue already counts as
//! gone when its turn is compared.

use crate::ids::{GangId, PodId, QueueId};
use crate::queues::{Trio, plus};
use crate::state::State;
use dense::{IdSet, IdVec};
use indexmap::IndexMap;
use muster_model::Dialect;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::Arc;

type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

#[derive(Clone)]
pub struct Lineup {
    victims: bool,
    leaves: Map<QueueId, Leaf>,
    /// Queues that have someone in line below them, by parent.
    children: Map<QueueId, Vec<QueueId>>,
    roots: Vec<QueueId>,
}

#[derive(Clone, Default)]
struct Leaf {
    /// The next one last.
    line: Vec<Entry>,
    /// What the victims that left the line held.
    popped: Trio,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub gang: GangId,
    /// What it asks for, or holds.
    pub amount: Trio,
    elastic: u8,
    /// Of a victim: the pods that it still has.
    pub left: Arc<[PodId]>,
}

impl Lineup {
    pub fn new(victims: bool) -> Self {
        Self { victims, leaves: Map::default(), children: Map::default(), roots: Vec::new() }
    }

    /// Adds many at once.
    pub fn extend(&mut self, state: &State, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            if let Some(queue) = state.gangs.rows[entry.gang].queue {
                self.leaves.entry(queue).or_default().line.push(entry);
            }
        }
        let victims = self.victims;
        let queues: Vec<QueueId> = self.leaves.keys().copied().collect();
        for queue in queues {
            if let Some(leaf) = self.leaves.get_mut(&queue) {
                leaf.line.sort_by(|a, b| in_line(state, victims, b, a));
            }
            self.link(state, queue);
        }
    }

    /// Takes over a line that is in order already.
    pub fn add_sorted(&mut self, state: &State, queue: QueueId, line: Vec<Entry>) {
        if !line.is_empty() {
            self.leaves.entry(queue).or_default().line = line;
            self.link(state, queue);
        }
    }

    /// Everyone in line, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.leaves.values().flat_map(|leaf| leaf.line.iter())
    }

    /// Only the first of every queue stay in line.
    pub fn keep_first(&mut self, depth: usize) {
        for leaf in self.leaves.values_mut() {
            let n = leaf.line.len();
            leaf.line.drain(..n.saturating_sub(depth));
        }
    }

    pub fn push(&mut self, state: &State, entry: Entry) {
        let Some(queue) = state.gangs.rows[entry.gang].queue else { return };
        let victims = self.victims;
        let line = &mut self.leaves.entry(queue).or_default().line;
        let at = line.partition_point(|other| in_line(state, victims, other, &entry) == Ordering::Greater);
        line.insert(at, entry);
        self.link(state, queue);
    }

    fn link(&mut self, state: &State, queue: QueueId) {
        let path = &state.queues.rows[queue].path;
        for pair in path.windows(2) {
            let children = self.children.entry(pair[1]).or_default();
            if children.contains(&pair[0]) {
                return;
            }
            children.push(pair[0]);
        }
        if let Some(root) = path.last()
            && !self.roots.contains(root)
        {
            self.roots.push(*root);
        }
    }

    fn unlink(&mut self, state: &State, queue: QueueId) {
        let path = &state.queues.rows[queue].path;
        for pair in path.windows(2) {
            if let Some(children) = self.children.get_mut(&pair[1]) {
                children.retain(|c| *c != pair[0]);
                if !children.is_empty() {
                    return;
                }
                self.children.swap_remove(&pair[1]);
            }
        }
        if let Some(root) = path.last() {
            self.roots.retain(|r| r != root);
        }
    }

    pub fn pop(&mut self, state: &State) -> Option<Entry> {
        let (_, queue) = self.best(state, &self.roots)?;
        let leaf = self.leaves.get_mut(&queue)?;
        let entry = leaf.line.pop()?;
        if self.victims {
            leaf.popped = plus(&leaf.popped, &entry.amount);
        }
        if leaf.line.is_empty() {
            self.unlink(state, queue);
        }
        Some(entry)
    }

    /// The best of some sibling queues, with the leaf whose turn it is there.
    fn best(&self, state: &State, level: &[QueueId]) -> Option<(QueueId, QueueId)> {
        let mut best: Option<(QueueId, QueueId)> = None;
        for queue in level.iter().copied() {
            let leaf = match self.children.get(&queue) {
                Some(children) => match self.best(state, children) {
                    Some((_, leaf)) => leaf,
                    None => continue,
                },
                None => queue,
            };
            let better = match best {
                None => true,
                Some(other) => {
                    let order = self.compare(state, (queue, leaf), other);
                    order == if self.victims { Ordering::Greater } else { Ordering::Less }
                }
            };
            if better {
                best = Some((queue, leaf));
            }
        }
        best
    }

    fn compare(&self, state: &State, a: (QueueId, QueueId), b: (QueueId, QueueId)) -> Ordering {
        let weigh = |leaf: QueueId| -> (Trio, Trio) {
            let Some(row) = self.leaves.get(&leaf) else { return Default::default() };
            let next = row.line.last().map_or([0; 3], |e| e.amount);
            if self.victims { ([0; 3], plus(&row.popped, &next)) } else { (next, [0; 3]) }
        };
        let ((a_asks, a_gives), (b_asks, b_gives)) = (weigh(a.1), weigh(b.1));
        if !state.policy.quotas {
            // Without quotas, queues are only names: the older one first.
            return state.queues.compare_age(a.0, b.0);
        }
        // Where queues only bound, the next of each is compared as if they stood in one line.
        let tree = |queue: QueueId| state.queues.rows[queue].tree();
        if matches!(tree(a.0), Dialect::Koordinator | Dialect::Kubernetes) && tree(a.0) == tree(b.0) {
            let next = |leaf: QueueId| self.leaves.get(&leaf).and_then(|leaf| leaf.line.last());
            if let (Some(a), Some(b)) = (next(a.1), next(b.1)) {
                return in_line(state, false, a, b);
            }
        }
        state.queues.compare(&state.total, (a.0, &a_asks, &a_gives), (b.0, &b_asks, &b_gives))
    }
}

impl Entry {
    /// A gang that wants to place these pods.
    pub fn asking(state: &State, gang: GangId, pods: &[PodId]) -> Self {
        let elastic = state.gangs.rows[gang].elastic_state();
        Self { gang, amount: state.demand_of(pods), elastic, left: Arc::from([]) }
    }

    /// A gang that may lose these pods.
    pub fn holding(state: &State, gang: GangId, left: Arc<[PodId]>) -> Self {
        let amount = left.iter().fold([0; 3], |sum, p| {
            let row = state.pods.row(*p);
            let memory = row.spot.node.and_then(|n| state.nodes.gpu_memory(n));
            plus(&sum, &state.charge(row.class, memory))
        });
        let row = &state.gangs.rows[gang];
        let elastic = if left.len() == row.pods().count() {
            row.elastic_state_of(&|g| g.pods.len() as u32)
        } else {
            let mut sorted: Vec<PodId> = left.to_vec();
            sorted.sort_unstable();
            let still = |p: &&PodId| sorted.binary_search(p).is_ok();
            row.elastic_state_of(&|g| g.pods.iter().filter(still).count() as u32)
        };
        Self { gang, amount, elastic, left }
    }
}

/// With more gangs than this to put in line anew, everyone is.
const FEW: usize = 64;

/// Lines that are kept in order from cycle to cycle: who waits, and who could lose pods, by queue.
#[derive(Default)]
pub struct Standing {
    pub waiting: Map<QueueId, Vec<Entry>>,
    pub victims: Map<QueueId, Vec<Entry>>,
    /// The queue in whose lines a gang stands.
    at: IdVec<GangId, Option<QueueId>>,
    /// Gangs that are not what they were when they took their place.
    changed: IdSet<GangId>,
    /// Whether anyone stands anywhere.
    built: bool,
}

impl Standing {
    /// This gang stands elsewhere now, or nowhere; [`State::line_up`] finds out where.
    pub fn gang_changed(&mut self, gang: GangId) {
        self.changed.insert(gang);
    }

    /// What everyone's place depends on changed: which queues there are, what a GPU has.
    pub fn dissolve(&mut self) {
        self.built = false;
    }
}

impl State {
    /// Brings the lines up to date.
    pub fn line_up(&mut self) {
        let mut changed = std::mem::take(&mut self.standing.changed);
        if !self.standing.built || changed.count() > FEW {
            self.line_up_all();
        } else if !changed.is_empty() {
            let mut queues: Vec<QueueId> = changed.iter().filter_map(|g| *self.standing.at.get(g)?).collect();
            queues.sort_unstable();
            queues.dedup();
            for queue in queues {
                for lines in [&mut self.standing.waiting, &mut self.standing.victims] {
                    if let Some(line) = lines.get_mut(&queue) {
                        line.retain(|e| !changed.contains(e.gang));
                    }
                }
            }
            for gang in changed.iter() {
                self.stand(gang, true);
            }
        }
        changed.clear();
        self.standing.changed = changed;
    }

    fn line_up_all(&mut self) {
        self.standing = Standing { built: true, ..Standing::default() };
        for gang in self.gangs.rows.ids() {
            self.stand(gang, false);
        }
        let mut standing = std::mem::take(&mut self.standing);
        for line in standing.waiting.values_mut() {
            line.sort_by(|a, b| in_line(self, false, b, a));
        }
        for line in standing.victims.values_mut() {
            line.sort_by(|a, b| in_line(self, true, b, a));
        }
        self.standing = standing;
    }

    fn stand(&mut self, gang: GangId, in_order: bool) {
        let row = &self.gangs.rows[gang];
        let queue = row.queue.filter(|q| self.queues.is_sound_leaf(*q) && !row.is_volcano());
        *self.standing.at.ensure(gang) = queue;
        let Some(queue) = queue else { return };
        if row.n_pending > 0 {
            let entry = Entry::asking(self, gang, &row.to_place(&self.pods, false));
            self.insert(queue, false, entry, in_order);
        }
        if let Some(left) = self.to_lose(gang) {
            let entry = Entry::holding(self, gang, left);
            self.insert(queue, true, entry, in_order);
        }
    }

    /// The pods that a gang could lose. A gang that was moved in this cycle is left alone: what would stay of it could not be told.
    fn to_lose(&self, gang: GangId) -> Option<Arc<[PodId]>> {
        let row = &self.gangs.rows[gang];
        let mut left: SmallVec<[PodId; 64]> = SmallVec::new();
        for pod in row.pods().filter(|_| row.preemptible()) {
            if self.is_evictable(pod) {
                left.push(pod);
            } else if self.pods.row(pod).spot.st.is_active() {
                return None;
            }
        }
        (!left.is_empty()).then(|| Arc::from(&left[..]))
    }

    fn insert(&mut self, queue: QueueId, victims: bool, entry: Entry, in_order: bool) {
        let lines = if victims { &mut self.standing.victims } else { &mut self.standing.waiting };
        let line = lines.entry(queue).or_default();
        if !in_order {
            line.push(entry);
            return;
        }
        let mut line = std::mem::take(line);
        let at = line.partition_point(|other| in_line(self, victims, other, &entry) == Ordering::Greater);
        line.insert(at, entry);
        let lines = if victims { &mut self.standing.victims } else { &mut self.standing.waiting };
        lines.insert(queue, line);
    }
}

/// The order within a leaf queue: priority, then those that lack pods, then age.
fn in_line(state: &State, victims: bool, a: &Entry, b: &Entry) -> Ordering {
    let (ra, rb) = (&state.gangs.rows[a.gang], &state.gangs.rows[b.gang]);
    let age = |row: &crate::gangs::Row| row.model.as_ref().map(|m| m.created);
    let order = rb
        .priority()
        .cmp(&ra.priority())
        .then_with(|| a.elastic.cmp(&b.elastic))
        .then_with(|| age(ra).cmp(&age(rb)))
        .then_with(|| {
            let uid = |row: &crate::gangs::Row| row.model.as_ref().map(|m| m.uid.clone());
            uid(ra).cmp(&uid(rb))
        })
        .then_with(|| ra.key.cmp(&rb.key));
    if victims { order.reverse() } else { order }
}
