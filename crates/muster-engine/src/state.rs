//! The state: everything the engine knows, and the one way to change where a pod is.
//!
//! A pod's *spot* is its state and place. [`State::move_pod`] takes the effects of the old spot back and adds those of the new one: on the
//! node, the shared GPUs, the queue tree, the gang's counts and the neighbours' rules. The effects are exact inverses, so the undo log is
//! a list of former spots, and rolling back is moving pods back.
//!
//! *Invariant:* what nodes, queues and gangs hold is the sum of the effects of all spots, whatever happened before.

use crate::claims::{ClaimRow, Given};
use crate::classes::Classes;
use crate::company::{Company, GuestId};
use crate::devices::DeviceTable;
use crate::gangs::Gangs;
use crate::ids::{ClassId, GangId, NodeId, PodId, QueueId};
use crate::nodes::{CPU_DIM, FreeIndex, GPU_DIM, MEMORY_DIM, Nodes};
use crate::numa::{Take, Zones};
use crate::order::Standing;
use crate::queues::{Queues, Trio};
use crate::shares::{Hold, SharedGpu};
use crate::topology::Topologies;
use dense::{IdSet, IdVec, Mark, UndoLog};
use indexmap::IndexMap;
use muster_model::{Key, Name, Pod, PodState, Policy, Time, ZoneUse};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of a pod, with those that only a cycle in progress knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum St {
    Gated,
    Pending,
    /// Given a place in this cycle.
    Allocated,
    /// Promised a place that is being released.
    Pipelined,
    Binding,
    Bound,
    Running,
    Releasing,
    Stuck,
    Succeeded,
    /// Only known where it matters: Volcano counts them.
    Failed,
}

impl St {
    pub const COUNT: usize = 11;
    /// Holding a place or a promise, and keeping it.
    pub const ACTIVE: [Self; 5] =
        [Self::Allocated, Self::Pipelined, Self::Binding, Self::Bound, Self::Running];

    pub fn is_active(self) -> bool {
        Self::ACTIVE.contains(&self)
    }
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    pub st: St,
    /// Evicted by a trial that is not decided yet.
    pub on_trial: bool,
    pub node: Option<NodeId>,
    pub extra: Option<Arc<Extra>>,
}

/// What few pods hold besides amounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra {
    pub gpu_groups: SmallVec<[Name; 1]>,
    /// Whole GPUs by index.
    pub gpus: u64,
    pub zones: Vec<Take>,
    /// Devices that this placement gives to claims.
    pub devices: Vec<Given>,
}

impl Spot {
    pub fn waiting() -> Self {
        Self { st: St::Pending, on_trial: false, node: None, extra: None }
    }
}

pub struct PodRow {
    pub model: Arc<Pod>,
    pub class: ClassId,
    pub gang: Option<GangId>,
    pub leaf: u32,
    /// Place among the pods of its leaf.
    index: u32,
    pub guest: GuestId,
    pub spot: Spot,
    /// Where it was when the cycle began.
    pub origin: Spot,
    /// Decided in this cycle.
    pub committed: bool,
    /// The place or promise that it was given in this cycle.
    pub decided: Option<Spot>,
}

#[derive(Default)]
pub struct Pods {
    ids: IndexMap<Key, PodId, FxBuildHasher>,
    rows: IdVec<PodId, Option<PodRow>>,
    free: Vec<PodId>,
}

impl Pods {
    pub fn row(&self, id: PodId) -> &PodRow {
        self.rows[id].as_ref().expect("ids are handed out for rows that exist")
    }

    fn row_mut(&mut self, id: PodId) -> &mut PodRow {
        self.rows[id].as_mut().expect("ids are handed out for rows that exist")
    }

    pub fn get(&self, key: &Key) -> Option<PodId> {
        self.ids.get(key).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (PodId, &PodRow)> {
        self.rows.iter().filter_map(|(id, row)| Some((id, row.as_ref()?)))
    }

    pub fn set_index(&mut self, id: PodId, index: u32) {
        self.row_mut(id).index = index;
    }

    pub fn set_committed(&mut self, id: PodId) {
        let row = self.row_mut(id);
        row.committed = true;
        row.decided = row.origin.node.is_none().then(|| row.spot.clone());
    }

    pub fn withdraw(&mut self, id: PodId) {
        let row = self.row_mut(id);
        row.committed = false;
        row.decided = None;
    }

    pub fn may_be_placed(&self, id: PodId, released: bool) -> bool {
        let spot = &self.row(id).spot;
        spot.st == St::Pending || (released && spot.st == St::Releasing && spot.on_trial)
    }

    /// The order within a leaf: leaders, then by priority (none last), age and uid.
    pub fn placed_before(&self, a: PodId, b: PodId) -> Ordering {
        let (a, b) = (&self.row(a).model, &self.row(b).model);
        a.rank
            .cmp(&b.rank)
            .then_with(|| b.task_priority.cmp(&a.task_priority))
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.uid.cmp(&b.uid))
            .then_with(|| a.key.cmp(&b.key))
    }
}

/// What others gave up in this cycle for a gang.
#[derive(Default)]
pub struct Favour {
    /// An action was for it that may evict for good.
    pub cost: bool,
    /// Gangs that were moved so that it, or one whose promises it took over, finds room.
    pub moved: BTreeSet<GangId>,
}

pub struct State {
    pub policy: Policy,
    pub now: Time,
    pub nodes: Nodes,
    pub classes: Classes,
    pub pods: Pods,
    pub gangs: Gangs,
    pub queues: Queues,
    pub topologies: Topologies,
    pub company: Company,
    pub devices: DeviceTable,
    pub claims: BTreeMap<Key, ClaimRow>,
    /// How often pods may be evicted, and what namespaces may ask for; Volcano's plugins look at these.
    pub budgets: BTreeMap<Key, Arc<muster_model::volcano::DisruptionBudget>>,
    pub allowances: BTreeMap<Key, Arc<muster_model::volcano::NamespaceQuota>>,
    /// Volumes that only one pod may use, and how many do.
    pub volume_users: BTreeMap<Key, u32>,
    pub log: UndoLog<(PodId, Spot)>,
    /// Gangs with pods that wait.
    pub waiting: IdSet<GangId>,
    pub by_gpu: FreeIndex,
    /// The same order, only nodes with an idle GPU.
    pub by_idle_gpu: FreeIndex,
    pub by_cpu: FreeIndex,
    pub by_cpu_with_gpus: FreeIndex,
    /// The smallest and the largest GPU memory in the cluster, in MiB.
    pub gpu_memory: (Option<i64>, Option<i64>),
    /// What there is to divide: capacity of usable nodes less what other schedulers' pods hold.
    pub total: Trio,
    /// The same for trees that have nodes of their own; these are not in `total`.
    pub of_pools: BTreeMap<muster_model::Dialect, Trio>,
    /// Pods that were promised a place.
    pub promised: indexmap::IndexSet<PodId, FxBuildHasher>,
    /// Who waits and who could lose pods, in order.
    pub standing: Standing,
    /// A pod that needs company was placed in this cycle: nobody whom it may have joined is sent away again.
    pub company_made: bool,
    /// Gangs for which others were evicted or moved in this cycle.
    pub favoured: BTreeMap<GangId, Favour>,
    /// Changes with every decision; what failed before fails again while it stands still.
    pub epoch: u64,
    /// What was free at an epoch.
    free: Option<(u64, Trio)>,
    /// Gangs that live by Volcano's rules.
    pub volcano_gangs: IdSet<GangId>,
    /// Sums over every resource, for dialects that look at more than CPU, memory and GPUs: kept while there are gangs of such a dialect.
    pub books: Option<Box<Books>>,
}

/// What gangs and queues hold of every resource, by dimension, and what is requested on nodes as kube-scheduler counts it.
#[derive(Default)]
pub struct Books {
    pub gangs: IdVec<GangId, Vec<i128>>,
    pub queues: IdVec<QueueId, Vec<i128>>,
    pub nodes: IdVec<NodeId, Requested>,
}

/// What pods ask for on a node: those that are there or were promised a place, without those that a trial evicted.
#[derive(Clone, Default)]
pub struct Requested {
    pub amounts: Vec<i128>,
    /// CPU and memory, where pods that ask for nothing count a little.
    pub at_least: [i128; 2],
}

impl Books {
    fn add(sums: &mut Vec<i128>, need: &[(u32, i64)], sign: i64) {
        for (dim, amount) in need {
            let dim = *dim as usize;
            if sums.len() <= dim {
                sums.resize(dim + 1, 0);
            }
            sums[dim] += i128::from(*amount) * i128::from(sign);
        }
    }
}

/// So much may be kept of pods that are gone, however few pods there are.
const FORGOTTEN: usize = 64;

impl State {
    pub fn new(policy: Policy) -> Self {
        Self {
            queues: Queues::new(policy.full_hierarchy, &policy.trees),
            policy,
            now: Time(0),
            nodes: Nodes::default(),
            classes: Classes::default(),
            pods: Pods::default(),
            gangs: Gangs::default(),
            topologies: Topologies::default(),
            // KAI and Volcano give required affinity of placed pods no weight in scores.
            company: Company::with_hard_affinity_weight(0),
            devices: DeviceTable::new(),
            claims: BTreeMap::new(),
            budgets: BTreeMap::new(),
            allowances: BTreeMap::new(),
            volume_users: BTreeMap::new(),
            log: UndoLog::new(),
            waiting: IdSet::new(),
            by_gpu: FreeIndex::default(),
            by_idle_gpu: FreeIndex::default(),
            by_cpu: FreeIndex::default(),
            by_cpu_with_gpus: FreeIndex::default(),
            gpu_memory: (None, None),
            total: [0; 3],
            of_pools: BTreeMap::new(),
            promised: indexmap::IndexSet::default(),
            standing: Standing::default(),
            company_made: false,
            favoured: BTreeMap::new(),
            epoch: 0,
            free: None,
            volcano_gangs: IdSet::new(),
            books: None,
        }
    }

    /// What a pod costs its queue: on its node, or anywhere by the given GPU memory.
    pub fn charge(&self, class: ClassId, memory: Option<i64>) -> Trio {
        let class = &self.classes.rows[class];
        let mut charge = class.charge;
        if let Some(share) = class.share {
            charge[2] += Classes::memory_charge(share, memory);
        }
        charge
    }

    /// What a waiting pod asks its queue for: a share in memory counts as on the smallest GPU.
    pub fn demand(&self, class: ClassId) -> Trio {
        self.charge(class, self.gpu_memory.0)
    }

    pub fn demand_of(&self, pods: &[PodId]) -> Trio {
        pods.iter().fold([0; 3], |sum, p| crate::queues::plus(&sum, &self.demand(self.pods.row(*p).class)))
    }

    /// Puts a pod somewhere else, on the record.
    pub fn move_pod(&mut self, id: PodId, spot: Spot) {
        self.affect(id, -1);
        let old = std::mem::replace(&mut self.pods.row_mut(id).spot, spot);
        self.log.record((id, old));
        self.affect(id, 1);
    }

    fn move_back(&mut self, id: PodId, spot: Spot) {
        self.affect(id, -1);
        self.pods.row_mut(id).spot = spot;
        self.affect(id, 1);
    }

    /// Puts a gang's pods in the order in which they are placed.
    pub fn sort_gang(&mut self, gang: GangId) {
        self.gangs.rows[gang].sort(&mut self.pods);
    }

    /// Takes the effects of a pod away while something that they depend on changes; [`State::lower`] puts them back.
    pub fn lift(&mut self, id: PodId) {
        self.affect(id, -1);
    }

    pub fn lower(&mut self, id: PodId) {
        self.affect(id, 1);
    }

    pub fn mark(&mut self) -> Mark {
        self.log.mark()
    }

    /// Undoes everything since the mark, and keeps the mark.
    pub fn rewind(&mut self, mark: &Mark) {
        let mut entries = Vec::new();
        self.log.rewind(mark, |entry| entries.push(entry));
        for (id, spot) in entries {
            self.move_back(id, spot);
        }
    }

    /// Undoes everything since the mark.
    pub fn roll_back(&mut self, mark: Mark) {
        self.rewind(&mark);
        self.log.commit(mark);
    }

    /// The pods that changed since the mark, each once, in the order of the first change.
    pub fn changed_since(&self, mark: &Mark) -> Vec<PodId> {
        let mut seen = indexmap::IndexSet::<PodId, FxBuildHasher>::default();
        seen.extend(self.log.since(mark).iter().map(|(id, _)| *id));
        seen.into_iter().collect()
    }

    /// The gangs of some pods, each once.
    pub fn gangs_of<'a>(&self, pods: impl IntoIterator<Item = &'a PodId>) -> Vec<GangId> {
        let mut gangs: Vec<GangId> = pods.into_iter().filter_map(|p| self.pods.row(*p).gang).collect();
        gangs.sort_unstable();
        gangs.dedup();
        gangs
    }

    /// How many of some pods there are of each class, in the order of the first.
    pub fn classes_of(&self, pods: &[PodId]) -> Vec<(ClassId, i64)> {
        let mut classes: Vec<(ClassId, i64)> = Vec::new();
        for pod in pods {
            let class = self.pods.row(*pod).class;
            match classes.iter_mut().find(|(c, _)| *c == class) {
                Some((_, n)) => *n += 1,
                None => classes.push((class, 1)),
            }
        }
        classes
    }

    /// Makes sure that it is known which nodes these pods are allowed on.
    pub fn settle_rules(&mut self, pods: &[PodId]) {
        for (class, _) in self.classes_of(pods) {
            self.classes.settle(self.classes.rows[class].rule, &self.nodes);
        }
    }

    /// Adds (or takes back) the effects of a pod's present spot.
    fn affect(&mut self, id: PodId, sign: i64) {
        let row = self.pods.rows[id].as_ref().expect("ids are handed out for rows that exist");
        let Spot { st, on_trial, node, ref extra } = row.spot;
        let (class, gang, leaf, guest, index) =
            (row.class, row.gang, row.leaf as usize, row.guest, row.index);
        let extra = extra.clone();
        let on_node = matches!(
            st,
            St::Allocated | St::Pipelined | St::Binding | St::Bound | St::Running | St::Releasing | St::Stuck
        );
        if let Some(node) = node.filter(|_| on_node) {
            self.affect_place(class, guest, node, st, on_trial, extra.as_deref(), sign);
        }
        if st == St::Pipelined {
            if sign > 0 {
                self.promised.insert(id);
            } else {
                self.promised.swap_remove(&id);
            }
            // A pod that is moved is promised one place and releases another.
            let origin = &self.pods.row(id).origin;
            if let Some(old) = origin.node {
                let extra = origin.extra.clone();
                self.affect_place(class, guest, old, St::Releasing, true, extra.as_deref(), sign);
            }
        }
        if self.books.is_some() {
            self.affect_books(id, sign);
        }
        // What another dialect's pods hold is to this one's queues what other schedulers' pods hold.
        let is_foreign = gang.is_none_or(|gang| self.volcano_gangs.contains(gang) && !self.volcano_counts());
        if is_foreign && let Some(node) = node.filter(|_| on_node) {
            let charge = self.charge(class, self.nodes.gpu_memory(node));
            let foreign = &mut self.nodes.rows[node].foreign;
            for (sum, amount) in foreign.iter_mut().zip(charge) {
                *sum += amount * i128::from(sign);
            }
        }
        let Some(gang) = gang else { return };
        let gang_row = &mut self.gangs.rows[gang];
        gang_row.moves = gang_row.moves.wrapping_add(1);
        if let Some(group) = gang_row.groups.get_mut(leaf) {
            let count = &mut group.counts[st as usize];
            *count = if sign > 0 { *count + 1 } else { count.saturating_sub(1) };
            let may_wait = st == St::Pending || (st == St::Releasing && on_trial);
            let at = index as usize;
            if may_wait && sign > 0 {
                group.first_waiting = group.first_waiting.min(at);
            } else if may_wait && group.first_waiting == at {
                group.first_waiting += 1;
            }
        }
        let (queue, firm) = (gang_row.queue, !gang_row.preemptible());
        if st == St::Pending {
            gang_row.n_pending =
                if sign > 0 { gang_row.n_pending + 1 } else { gang_row.n_pending.saturating_sub(1) };
            let waits = gang_row.n_pending > 0;
            self.waiting.set(gang, waits);
        }
        let Some(queue) = queue else { return };
        if st.is_active() {
            let memory = node.and_then(|n| self.nodes.gpu_memory(n));
            let charge = self.charge(class, memory);
            self.queues.add_allocated(queue, &charge, firm, i128::from(sign));
        } else if st == St::Pending {
            let demand = self.demand(class);
            self.queues.add_asked(queue, &demand, i128::from(sign));
        }
    }

    /// Whether what Volcano's gangs hold counts in a queue of KAI's tree.
    pub fn volcano_counts(&self) -> bool {
        self.queues.is_under(muster_model::Dialect::Volcano)
    }

    /// What Volcano's tree may have at most and what is held of that, by dimension, where it is under queues with bounds.
    pub fn volcano_bounds(&self) -> Vec<(usize, (i128, i128))> {
        let Some(parent) = self.queues.above(muster_model::Dialect::Volcano) else { return Vec::new() };
        let mut bounds: BTreeMap<usize, (i128, i128)> = BTreeMap::new();
        for up in &self.queues.rows[parent].path {
            let row = &self.queues.rows[*up];
            for r in [CPU_DIM, MEMORY_DIM, GPU_DIM] {
                let muster_model::Bound::At(most) = row.share(r).most() else { continue };
                let (most, held) = (i128::from(most), row.sums.allocated[r]);
                let tightest = bounds.entry(r).or_insert((most, held));
                if most - held < tightest.0 - tightest.1 {
                    *tightest = (most, held);
                }
            }
        }
        bounds.into_iter().collect()
    }

    /// Adds (or takes back) what the books have of a pod's present spot.
    fn affect_books(&mut self, id: PodId, sign: i64) {
        let Some(books) = &mut self.books else { return };
        let row = self.pods.row(id);
        let Spot { st, on_trial, node, .. } = row.spot;
        let class = &self.classes.rows[row.class];
        if let Some(gang) = row.gang.filter(|_| st.is_active()) {
            Books::add(books.gangs.ensure(gang), &class.need, sign);
            if let Some(queue) = self.gangs.rows[gang].queue {
                Books::add(books.queues.ensure(queue), &class.need, sign);
            }
        }
        let stays = st.is_active() || st == St::Stuck || (st == St::Releasing && !on_trial);
        if let Some(node) = node.filter(|_| stays) {
            let seen = books.nodes.ensure(node);
            Books::add(&mut seen.amounts, &class.need, sign);
            for (sum, amount) in seen.at_least.iter_mut().zip(class.at_least) {
                *sum += i128::from(amount) * i128::from(sign);
            }
        }
    }

    /// The books are opened with the first gang of Volcano's and closed with the last, so that who has none pays nothing for them.
    fn open_or_close_books(&mut self) {
        if self.volcano_gangs.is_empty() {
            self.books = None;
        } else if self.books.is_none() {
            self.books = Some(Box::default());
            let pods: Vec<PodId> = self.pods.iter().map(|(id, _)| id).collect();
            for pod in pods {
                self.affect_books(pod, 1);
            }
        }
    }

    /// What a pod in this state means for a node.
    #[expect(clippy::too_many_arguments, reason = "the parts of one spot")]
    fn affect_place(
        &mut self,
        class: ClassId,
        guest: GuestId,
        node: NodeId,
        st: St,
        on_trial: bool,
        extra: Option<&Extra>,
        sign: i64,
    ) {
        let (idle, releasing, hold) = match st {
            St::Releasing => (-1, 1, Hold::Releasing),
            St::Pipelined => (0, -1, Hold::Promised),
            _ => (-1, 0, Hold::Active),
        };
        let row = &self.classes.rows[class];
        let (has_claims, exclusive) = (row.has_claims, row.has_ports || row.has_attachments);
        let legacy_mig = row.shape.legacy_mig;
        self.nodes.charge(node, &row.need, idle * sign, releasing * sign);
        if let Some(share) = row.share {
            self.affect_shares(node, share, hold, extra, sign);
        }
        if let Some(extra) = extra {
            self.affect_extra(node, st, on_trial, extra, sign);
        }
        // A victim on trial has left as far as its neighbours are concerned; one that was already going is still there.
        let stays = !(st == St::Releasing && on_trial);
        if has_claims {
            let shape = self.classes.rows[class].shape.clone();
            self.affect_claims(&shape, extra.map_or(&[][..], |e| &e.devices), stays, sign);
        }
        if legacy_mig {
            let n = &mut self.nodes.rows[node].n_legacy_mig;
            *n = if sign > 0 { *n + 1 } else { n.saturating_sub(1) };
        }
        if !stays {
            return;
        }
        if sign > 0 {
            self.company.add(guest, node);
            if st == St::Releasing {
                self.company.leave(guest, node);
            }
        } else {
            if st == St::Releasing {
                self.company.stay(guest, node);
            }
            self.company.remove(guest, node);
        }
        if exclusive {
            self.affect_exclusive(node, class, sign);
        }
    }

    fn affect_shares(
        &mut self,
        node: NodeId,
        share: muster_model::GpuShare,
        hold: Hold,
        extra: Option<&Extra>,
        sign: i64,
    ) {
        let amount = Classes::share_amount(share, self.nodes.gpu_size(node));
        for id in extra.map_or(&[][..], |e| &e.gpu_groups) {
            let shared = &mut self.nodes.rows[node].shared;
            let at = match shared.iter().position(|g| g.id == *id) {
                Some(at) => at,
                None => {
                    shared.push(SharedGpu::new(id.clone()));
                    shared.len() - 1
                }
            };
            let before = shared[at].takes();
            shared[at].change(hold, amount, sign);
            let after = shared[at].takes();
            if shared[at].is_unused() {
                shared.remove(at);
            }
            self.nodes.charge_gpus(node, after.0 - before.0, after.1 - before.1);
        }
    }

    /// Ports and volumes: what a node can give to one pod only, or to few.
    fn affect_exclusive(&mut self, node: NodeId, class: ClassId, sign: i64) {
        let holders = &mut self.nodes.rows[node].exclusive;
        if sign > 0 {
            holders.push(class);
        } else if let Some(at) = holders.iter().rposition(|c| *c == class) {
            holders.remove(at);
        }
        let shape = self.classes.rows[class].shape.clone();
        for volume in shape.volumes.iter().filter(|v| v.one_pod) {
            let users = self.volume_users.entry(volume.claim.clone()).or_insert(0);
            *users = if sign > 0 { *users + 1 } else { users.saturating_sub(1) };
            if *users == 0 {
                self.volume_users.remove(&volume.claim);
            }
        }
    }

    fn affect_extra(&mut self, node: NodeId, st: St, on_trial: bool, extra: &Extra, sign: i64) {
        if extra.gpus != 0 && st != St::Pipelined {
            let free = &mut self.nodes.rows[node].free_gpus;
            *free = if sign > 0 { *free & !extra.gpus } else { *free | extra.gpus };
        }
        // A victim on trial no longer counts in its zones; one that was already going holds them until it is gone.
        let holds = !(st == St::Releasing && on_trial);
        if let Some(zones) = self.nodes.rows[node].zones.as_mut().filter(|_| holds) {
            if sign > 0 {
                zones.hold(&extra.zones);
            } else {
                zones.release(&extra.zones);
            }
        }
    }

    /// Adds a pod of the cluster, replacing what was known of it.
    pub fn put_pod(&mut self, model: Arc<Pod>) {
        // What it leaves is forgotten only when it has not come back to it.
        let left = self.take_out(&model.key);
        self.enter(model);
        self.forget_if_gone(left);
    }

    fn enter(&mut self, model: Arc<Pod>) {
        let st = match model.state {
            PodState::Gated => St::Gated,
            PodState::Pending => St::Pending,
            PodState::Binding => St::Binding,
            PodState::Bound => St::Bound,
            PodState::Running => St::Running,
            PodState::Releasing => St::Releasing,
            PodState::Stuck => St::Stuck,
            PodState::Succeeded => St::Succeeded,
            PodState::Failed if model.volcano.is_some() => St::Failed,
            PodState::Failed => return,
        };
        let class = self.classes.intern(&model.shape, &mut self.nodes);
        let guest = self.company.register(&model.key.namespace, &model.labels, &model.shape);
        let node = model.node.as_ref().filter(|_| model.state.holds_room()).map(|n| self.nodes.intern(n));
        let gang = model.gang.as_ref().map(|key| self.gangs.intern(key));
        let spot = Spot { st, on_trial: false, node, extra: self.extra_of(&model) };
        let row = PodRow {
            class,
            gang,
            leaf: u32::MAX,
            index: 0,
            guest,
            origin: spot.clone(),
            spot,
            committed: false,
            decided: None,
            model: model.clone(),
        };
        let id = match self.pods.free.pop() {
            Some(id) => {
                self.pods.rows[id] = Some(row);
                id
            }
            None => self.pods.rows.push(Some(row)),
        };
        self.pods.ids.insert(model.key.clone(), id);
        if let Some(gang) = gang {
            self.join(id, gang);
            self.standing.gang_changed(gang);
        }
        if let Some(node) = node {
            self.nodes.rows[node].pods.push(id);
        }
        self.affect(id, 1);
    }

    fn extra_of(&mut self, model: &Pod) -> Option<Arc<Extra>> {
        let bits = model.gpus.iter().filter(|i| **i < 64).fold(0_u64, |mask, i| mask | 1 << i);
        let zones: Vec<_> = model
            .zones
            .iter()
            .map(|ZoneUse { zone, amounts }| {
                let mut amounts: Vec<_> = amounts.iter().map(|(r, a)| (self.nodes.dim(r), a)).collect();
                amounts.sort_unstable();
                Take { zone: *zone, amounts }
            })
            .collect();
        if model.gpu_groups.is_empty() && bits == 0 && zones.is_empty() {
            return None;
        }
        Some(Arc::new(Extra {
            gpu_groups: model.gpu_groups.iter().cloned().collect(),
            gpus: bits,
            zones,
            devices: Vec::new(),
        }))
    }

    fn join(&mut self, id: PodId, gang: GangId) {
        let row = &mut self.gangs.rows[gang];
        let name = self.pods.row(id).model.group.clone();
        match row.leaf_named(name.as_deref()) {
            Some(leaf) => {
                row.groups[leaf].pods.push(id);
                row.unsorted = true;
                let pod = self.pods.row_mut(id);
                pod.leaf = leaf as u32;
                pod.index = (row.groups[leaf].pods.len() - 1) as u32;
            }
            None => {
                row.strays.push(id);
                self.pods.row_mut(id).leaf = u32::MAX;
            }
        }
    }

    pub fn drop_pod(&mut self, key: &Key) {
        let left = self.take_out(key);
        self.forget_if_gone(left);
    }

    fn forget_if_gone(&mut self, (gang, node): (Option<GangId>, Option<NodeId>)) {
        if let Some(gang) = gang {
            self.gangs.forget_if_gone(gang);
        }
        if let Some(node) = node {
            self.nodes.forget_if_gone(node);
        }
    }

    /// Takes a pod out, and says whose it was and where.
    fn take_out(&mut self, key: &Key) -> (Option<GangId>, Option<NodeId>) {
        let Some(id) = self.pods.ids.swap_remove(key) else { return (None, None) };
        self.affect(id, -1);
        let Some(row) = self.pods.rows[id].take() else { return (None, None) };
        if let Some(gang) = row.gang {
            self.standing.gang_changed(gang);
            let gang = &mut self.gangs.rows[gang];
            match gang.groups.get_mut(row.leaf as usize) {
                Some(group) => {
                    group.pods.retain(|p| *p != id);
                    gang.unsorted = true;
                }
                None => gang.strays.retain(|p| *p != id),
            }
        }
        if let Some(node) = row.origin.node {
            self.nodes.rows[node].pods.retain(|p| *p != id);
        }
        self.pods.free.push(id);
        (row.gang, row.origin.node)
    }

    /// Replaces what a gang is, keeping its pods.
    pub fn put_gang(&mut self, key: &Key, model: Option<Arc<muster_model::Gang>>) {
        let id = match (self.gangs.get(key), &model) {
            (Some(id), _) => id,
            (None, Some(_)) => self.gangs.intern(key),
            (None, None) => return,
        };
        self.standing.gang_changed(id);
        let row = &self.gangs.rows[id];
        let pods: Vec<PodId> = row.pods().chain(row.strays.iter().copied()).collect();
        for pod in &pods {
            self.affect(*pod, -1);
        }
        let queue = model.as_ref().map(|m| self.queues.intern(&m.queue));
        let row = &mut self.gangs.rows[id];
        row.strays.clear();
        row.set_model(model);
        row.queue = queue;
        let is_volcano = row.is_volcano();
        let other_dialect = is_volcano != self.volcano_gangs.contains(id);
        self.volcano_gangs.set(id, is_volcano);
        for pod in pods {
            self.join(pod, id);
            self.affect(pod, 1);
        }
        if other_dialect {
            self.open_or_close_books();
        }
        self.gangs.forget_if_gone(id);
    }

    /// Replaces what a node is, keeping its pods.
    pub fn put_node(&mut self, name: &Name, model: Option<Arc<muster_model::Node>>) {
        let id = match (self.nodes.get(name), &model) {
            (Some(id), _) => id,
            (None, Some(_)) => self.nodes.intern(name),
            (None, None) => return,
        };
        let pods = self.nodes.rows[id].pods.clone();
        for pod in &pods {
            self.affect(*pod, -1);
        }
        let (old, new) = (self.nodes.rows[id].model.clone(), model.clone());
        let memory = self.nodes.gpu_memory(id);
        self.nodes.set_model(id, model);
        if memory != self.nodes.gpu_memory(id) {
            self.standing.dissolve();
        }
        self.classes.node_changed(id, new.as_deref());
        match &new {
            Some(node) => {
                self.company.put_node(id, &node.name, &node.labels, &node.taints);
                if self.policy.numa
                    && let Some(numa) = &node.numa
                {
                    let nodes = &mut self.nodes;
                    let dim = |r: &muster_model::Resource| Some(nodes.dim(r));
                    let zones = if self.policy.trust_reported_zones {
                        Zones::reported(numa, dim)
                    } else {
                        Zones::empty(numa, dim)
                    };
                    self.nodes.rows[id].zones = Some(zones);
                }
            }
            None => self.company.drop_node(id),
        }
        let labels = |n: &Option<Arc<muster_model::Node>>| n.as_ref().map(|n| n.labels.clone());
        if labels(&old) != labels(&new) {
            self.topologies.nodes_changed();
        }
        for pod in pods {
            self.affect(pod, 1);
        }
        self.nodes.forget_if_gone(id);
    }

    /// What pods were like that are long gone is forgotten once there is more of that than of pods: what is kept, and what a change of a node costs,
    /// follows from the cluster as it is and not from its past. Between cycles only, and as rarely as it takes long.
    pub fn forget_the_past(&mut self) {
        let n_pods = self.pods.ids.len();
        if self.classes.rows.len() > 2 * n_pods + FORGOTTEN {
            let used: IdSet<ClassId> = self.pods.iter().map(|(_, row)| row.class).collect();
            let ids = self.classes.forget(|id| used.contains(id));
            let new = |class: &mut ClassId| *class = ids[*class].expect("classes of pods are kept");
            self.pods.rows.values_mut().flatten().for_each(|row| new(&mut row.class));
            self.nodes.rows.values_mut().flat_map(|row| &mut row.exclusive).for_each(new);
            self.topologies.forget_fits();
        }
        // Building anew goes through the nodes, too.
        if self.company.n_guests() > 2 * n_pods + self.nodes.rows.len() + FORGOTTEN {
            let used: IdSet<GuestId> = self.pods.iter().map(|(_, row)| row.guest).collect();
            let ids = self.company.forget(|id| used.contains(id));
            for row in self.pods.rows.values_mut().flatten() {
                row.guest = ids[row.guest].expect("guests of pods are kept");
            }
        }
    }

    /// How much is kept of each kind.
    pub fn tables(&self) -> crate::figures::Tables {
        crate::figures::Tables {
            gangs: self.gangs.rows.len(),
            pods: self.pods.rows.len(),
            nodes: self.nodes.rows.len(),
            classes: self.classes.rows.len(),
            rules: self.classes.n_rules(),
            guests: self.company.n_guests(),
            claims: self.claims.len(),
        }
    }

    /// Makes what the cycle decided the new state of the cluster, as far as this engine knows it: a bound pod is binding, an evicted one is
    /// releasing, a promise is forgotten.
    pub fn settle(&mut self, changed: &[PodId]) {
        for id in changed.iter().copied() {
            let row = self.pods.row(id);
            let mut spot = row.spot.clone();
            match spot.st {
                St::Allocated => spot.st = St::Binding,
                // Moved pods leave their old place; pods that waited go on waiting.
                St::Pipelined if row.origin.node.is_some() => {
                    spot = Spot { st: St::Releasing, ..row.origin.clone() };
                }
                St::Pipelined => spot = Spot::waiting(),
                _ => {}
            }
            spot.on_trial = false;
            self.move_back(id, spot.clone());
            let row = self.pods.row_mut(id);
            let (old, new) = (row.origin.node, spot.node);
            row.origin = spot;
            row.committed = false;
            row.decided = None;
            if let Some(gang) = row.gang {
                self.standing.gang_changed(gang);
            }
            if old != new {
                if let Some(node) = old {
                    self.nodes.rows[node].pods.retain(|p| *p != id);
                }
                if let Some(node) = new {
                    self.nodes.rows[node].pods.push(id);
                }
            }
        }
    }

    /// What is idle or coming in the cluster, parts of shared GPUs included. Outside of trials: it is counted once for every decision.
    pub fn free(&mut self) -> Trio {
        if let Some((_, free)) = self.free.filter(|(epoch, _)| *epoch == self.epoch) {
            return free;
        }
        let mut free: Trio = [0; 3];
        for node in self.nodes.known() {
            for dim in [CPU_DIM, MEMORY_DIM] {
                free[dim] += i128::from(self.nodes.coming(node, dim).max(0));
            }
            free[GPU_DIM] += i128::from(self.nodes.gpus_left(node).max(0));
        }
        self.free = Some((self.epoch, free));
        free
    }
}
