//! Everything that is known: queues, flavors, places and workloads, and who holds what.
//!
//! In: values of [`crate::spec`], one by one, in any order. Out: the same with ids, and the two ways to change who holds what: [`State::hold`]
//! and [`State::release`], which undo each other exactly, so that a search tries things out and takes them back.

use crate::ids::{Amounts, FlavorId, Ids, ResourceId, TreeId, Usage, WorkloadId, add_usage};
use crate::ledger::Ledger;
use crate::line::{ClassKey, Line, Rank};
use crate::order;
use crate::place::{LeafId, Places, TopologyAssignment};
use crate::reason::Inactive;
use crate::settings::Settings;
use crate::spec::{
    Check, CheckState, ClusterQueue, Cohort, Delayed, Flavor, LocalQueue, Node, OtherPod, Reservation, Stop,
    Topology, Workload,
};
use crate::tree::Tree;
use dense::{Id, IdVec};
use muster_model::{Key, Labels, Name, Time};
use rustc_hash::FxHasher;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// Resources that come from one flavor together.
#[derive(Clone, Debug)]
pub struct Group {
    pub resources: Vec<ResourceId>,
    pub flavors: Vec<FlavorId>,
}

/// A cluster queue with ids.
#[derive(Clone)]
pub struct Queue {
    pub spec: ClusterQueue,
    pub groups: Vec<Group>,
    pub inactive: Option<Inactive>,
    /// Workloads that hold quota here.
    pub members: BTreeSet<WorkloadId>,
    pub line: Line,
    /// Every flavor has a topology, so every workload here is placed.
    pub only_topology: bool,
    pub multikueue: bool,
    /// Checks that make capacity, by the flavors that they are for; none: for all.
    pub provisioning: Vec<Vec<FlavorId>>,
}

impl Queue {
    /// The group that a resource belongs to; the last, should several claim it.
    pub fn group_of(&self, resource: ResourceId) -> Option<&Group> {
        self.groups.iter().rfind(|g| g.resources.contains(&resource))
    }

    /// Capacity is made only after quota is reserved, so a place is sought only then.
    pub fn provisions(&self, flavor: FlavorId) -> bool {
        self.provisioning.iter().any(|on| on.is_empty() || on.contains(&flavor))
    }
}

/// A set of pods with ids.
#[derive(Clone, Debug)]
pub struct Set {
    pub name: Name,
    /// Without those that are done for good.
    pub count: i32,
    pub min: Option<i32>,
    pub per_pod: Amounts,
    pub raw: Amounts,
}

/// What a set holds.
#[derive(Clone, Debug)]
pub struct HeldSet {
    pub count: i32,
    pub requests: Amounts,
    pub flavors: Vec<(ResourceId, FlavorId)>,
    pub topology: Option<TopologyAssignment>,
    pub delayed: Option<Delayed>,
}

/// Pods in a lowest domain of a flavor.
#[derive(Clone, Debug)]
pub struct PlaceUse {
    pub flavor: FlavorId,
    pub leaf: LeafId,
    pub set: usize,
    pub pods: i64,
}

/// What a workload holds.
#[derive(Clone, Debug)]
pub struct Hold {
    pub queue: TreeId,
    pub sets: Vec<HeldSet>,
    pub usage: Usage,
    pub places: Vec<PlaceUse>,
    pub since: Time,
}

/// The flavors tried last, by set and resource; the search goes on after them.
pub type Bookmark = Vec<Vec<(ResourceId, i32)>>;

/// A workload with ids.
#[derive(Clone)]
pub struct Wl {
    pub spec: Workload,
    pub queue: Option<TreeId>,
    pub local: Key,
    pub sets: Vec<Set>,
    pub priority: i64,
    pub since: Time,
    pub class: ClassKey,
    pub hold: Option<Hold>,
    pub bookmark: Option<Bookmark>,
}

impl Wl {
    pub fn rank(&self, id: WorkloadId) -> Rank {
        Rank { priority: Reverse(self.priority), since: self.since, uid: self.spec.uid.clone(), id }
    }

    /// Whether it has to be looked at although it holds quota.
    pub fn needs_second_pass(&self, settings: &Settings) -> bool {
        if !settings.gates.topology || self.spec.finished || self.spec.evicted.is_some() {
            return false;
        }
        let (Some(hold), Some(reservation)) = (&self.hold, &self.spec.reservation) else { return false };
        let delayed = hold.sets.iter().any(|s| s.delayed == Some(Delayed::Pending))
            && !self.spec.checks.is_empty()
            && self.spec.checks.iter().all(|c| c.state == CheckState::Ready)
            && !reservation.admitted;
        delayed || (settings.gates.replace_nodes && self.lost_a_node())
    }

    /// Whether a node failed that it has pods on.
    pub fn lost_a_node(&self) -> bool {
        !self.spec.unhealthy.is_empty()
            && self.hold.iter().flat_map(|h| &h.sets).filter_map(|s| s.topology.as_ref()).any(|t| {
                t.domains
                    .iter()
                    .any(|(values, _)| values.last().is_some_and(|v| self.spec.unhealthy.contains(v)))
            })
    }
}

#[derive(Clone)]
pub struct State {
    pub settings: Settings,
    pub ids: Ids,
    pub ledger: Ledger,
    pub queue_specs: BTreeMap<Name, ClusterQueue>,
    pub cohort_specs: BTreeMap<Name, Cohort>,
    pub flavor_specs: BTreeMap<Name, Flavor>,
    pub topologies: BTreeMap<Name, Topology>,
    pub nodes: BTreeMap<Name, Node>,
    pub pods: BTreeMap<Key, OtherPod>,
    pub checks: BTreeMap<Name, Check>,
    pub local_queues: BTreeMap<Key, LocalQueue>,
    pub namespaces: BTreeMap<Name, Labels>,

    pub tree: Tree,
    pub queues: IdVec<TreeId, Queue>,
    /// By flavor, for those with a topology that is known.
    pub places: Vec<Option<Places>>,
    /// The same node under another flavor: what is used here is used there.
    twins: Vec<Vec<Vec<(FlavorId, LeafId)>>>,
    pub workloads: IdVec<WorkloadId, Option<Box<Wl>>>,
    pub by_key: BTreeMap<Key, WorkloadId>,
    free_ids: Vec<WorkloadId>,
    /// Local queues by number, for those who take turns.
    pub locals: Vec<Key>,
    local_ids: BTreeMap<Key, u32>,
    /// Workloads that need a second pass.
    pub second: BTreeSet<WorkloadId>,
    /// Workloads that hold quota and whose pods are not ready.
    pub unready: BTreeSet<WorkloadId>,
    dirty: bool,
}

impl State {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ids: Ids::default(),
            ledger: Ledger::default(),
            queue_specs: BTreeMap::new(),
            cohort_specs: BTreeMap::new(),
            flavor_specs: BTreeMap::new(),
            topologies: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            checks: BTreeMap::new(),
            local_queues: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            tree: Tree::default(),
            queues: IdVec::new(),
            places: Vec::new(),
            twins: Vec::new(),
            workloads: IdVec::new(),
            by_key: BTreeMap::new(),
            free_ids: Vec::new(),
            locals: Vec::new(),
            local_ids: BTreeMap::new(),
            second: BTreeSet::new(),
            unready: BTreeSet::new(),
            dirty: true,
        }
    }

    /// Something changed that everything hangs on.
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// Brings everything derived up to date. Whoever was parked is in line again: what kept it out may have changed.
    pub fn settle(&mut self, now: Time) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        self.tree = Tree::build(&self.queue_specs, &self.cohort_specs, &mut self.ids);
        self.build_queues();
        self.build_places();
        self.second.clear();
        self.unready.clear();
        let all: Vec<(WorkloadId, Workload, Option<Bookmark>)> = self
            .workloads
            .iter_mut()
            .filter_map(|(id, wl)| wl.take().map(|wl| (id, wl.spec, wl.bookmark)))
            .collect();
        for (id, spec, bookmark) in all {
            self.enter(id, spec, now);
            if let Some(wl) = &mut self.workloads[id] {
                wl.bookmark = bookmark;
            }
        }
    }

    fn build_queues(&mut self) {
        let ids = &mut self.ids;
        self.queues.clear();
        for spec in self.queue_specs.values() {
            let groups: Vec<Group> = spec
                .groups
                .iter()
                .map(|g| Group {
                    resources: g.resources.iter().map(|r| ids.resource(r)).collect(),
                    flavors: g.flavors.iter().map(|f| ids.flavor(&f.flavor)).collect(),
                })
                .collect();
            let flavors: Vec<&Name> =
                spec.groups.iter().flat_map(|g| &g.flavors).map(|f| &f.flavor).collect();
            let has_topology =
                |name: &Name| self.flavor_specs.get(name).is_some_and(|f| f.topology.is_some());
            let only_topology = self.settings.gates.topology
                && !flavors.is_empty()
                && flavors.iter().all(|f| has_topology(f));
            let controller = |rule: &crate::spec::CheckRule| {
                self.checks.get(&rule.check).map_or("", |c| &*c.controller).to_owned()
            };
            let multikueue = spec.checks.iter().any(|r| controller(r) == "kueue.x-k8s.io/multikueue");
            let provisioning = spec
                .checks
                .iter()
                .filter(|r| controller(r) == "kueue.x-k8s.io/provisioning-request")
                .map(|r| r.on_flavors.iter().map(|f| ids.flavor(f)).collect())
                .collect();
            self.queues.push(Queue {
                inactive: None,
                groups,
                members: BTreeSet::new(),
                line: Line::default(),
                only_topology,
                multikueue,
                provisioning,
                spec: spec.clone(),
            });
        }
        for id in self.tree.queue_ids() {
            let why = self.why_inactive(id);
            self.queues[id].inactive = why;
        }
    }

    fn why_inactive(&self, id: TreeId) -> Option<Inactive> {
        let spec = &self.queues[id].spec;
        if self.tree.nodes[id].cyclic {
            return Some(Inactive::Cycle);
        }
        if spec.stop != Stop::None {
            return Some(Inactive::Stopped);
        }
        let flavors = || spec.groups.iter().flat_map(|g| &g.flavors).map(|f| &f.flavor);
        let some = |names: Vec<Name>| Some(names).filter(|n| !n.is_empty());
        if let Some(missing) =
            some(flavors().filter(|f| !self.flavor_specs.contains_key(*f)).cloned().collect())
        {
            return Some(Inactive::NoFlavor(missing));
        }
        let checks = || spec.checks.iter().map(|r| &r.check);
        if let Some(missing) = some(checks().filter(|c| !self.checks.contains_key(*c)).cloned().collect()) {
            return Some(Inactive::NoCheck(missing));
        }
        let off = checks().filter(|c| self.checks.get(*c).is_some_and(|c| !c.active)).cloned().collect();
        if let Some(off) = some(off) {
            return Some(Inactive::CheckInactive(off));
        }
        if self.settings.gates.topology {
            let unknown = flavors()
                .filter_map(|f| self.flavor_specs.get(f)?.topology.as_ref())
                .filter(|t| !self.topologies.contains_key(*t));
            if let Some(missing) = some(unknown.cloned().collect()) {
                return Some(Inactive::NoTopology(missing));
            }
        }
        None
    }

    fn build_places(&mut self) {
        for name in self.flavor_specs.keys() {
            self.ids.flavor(name);
        }
        self.places.clear();
        self.twins.clear();
        if !self.settings.gates.topology {
            return;
        }
        for (name, flavor) in &self.flavor_specs {
            let Some(topology) = flavor.topology.as_ref().and_then(|t| self.topologies.get(t)) else {
                continue;
            };
            let mut places = Places::build(flavor, topology, self.nodes.values(), &mut self.ids);
            for pod in self.pods.values() {
                for (resource, amount) in &pod.requests {
                    let resource = self.ids.resource(resource);
                    places.take(&pod.node, resource, *amount);
                }
                places.take(&pod.node, Ids::PODS, 1);
            }
            let id = self.ids.flavor(name);
            if self.places.len() <= id.index() {
                self.places.resize_with(id.index() + 1, || None);
            }
            self.places[id.index()] = Some(places);
        }
        if !self.settings.gates.overlapping_flavors {
            return;
        }
        self.twins.resize_with(self.places.len(), Vec::new);
        let mut by_host: BTreeMap<Name, Vec<(FlavorId, LeafId)>> = BTreeMap::new();
        for (i, places) in self.places.iter().enumerate() {
            let Some(places) = places.as_ref().filter(|p| p.is_by_host()) else { continue };
            for (host, leaf) in places.leaves() {
                by_host.entry(host.clone()).or_default().push((FlavorId::from_index(i), leaf));
            }
        }
        for same in by_host.into_values().filter(|s| s.len() > 1) {
            for &(flavor, leaf) in &same {
                let others = same.iter().filter(|(f, _)| *f != flavor).copied().collect();
                let twins = &mut self.twins[flavor.index()];
                if twins.len() <= leaf.index() {
                    twins.resize_with(leaf.index() + 1, Vec::new);
                }
                twins[leaf.index()] = others;
            }
        }
    }

    /// Takes in a pod that no admission accounts for, or a new version of one. Cheap: only free room on its node changes.
    pub fn put_pod(&mut self, pod: OtherPod, now: Time) {
        self.drop_pod(&pod.key, now);
        self.count_pod(&pod, 1);
        self.pods.insert(pod.key.clone(), pod);
    }

    /// A pod is gone, and whoever waited for its room is in line again.
    pub fn drop_pod(&mut self, key: &Key, now: Time) {
        let Some(pod) = self.pods.remove(key) else { return };
        self.count_pod(&pod, -1);
        if !self.dirty {
            self.wake_placed(now);
        }
    }

    fn count_pod(&mut self, pod: &OtherPod, sign: i64) {
        // What is built anew counts all pods anyway.
        if self.dirty {
            return;
        }
        for places in self.places.iter_mut().flatten() {
            for (resource, amount) in &pod.requests {
                let resource = self.ids.resource(resource);
                places.take(&pod.node, resource, amount.saturating_mul(sign));
            }
            places.take(&pod.node, Ids::PODS, sign);
        }
    }

    /// Everything parked in queues whose workloads are placed is in line again.
    fn wake_placed(&mut self, now: Time) {
        let placed =
            |queue: &Queue| queue.groups.iter().flat_map(|g| &g.flavors).any(|f| self.places(*f).is_some());
        let queues: Vec<TreeId> = self.tree.queue_ids().filter(|id| placed(&self.queues[*id])).collect();
        for queue in queues {
            self.wake_queue(queue, now);
        }
    }

    pub fn places(&self, flavor: FlavorId) -> Option<&Places> {
        self.places.get(flavor.index())?.as_ref()
    }

    pub fn wl(&self, id: WorkloadId) -> &Wl {
        self.workloads[id].as_ref().expect("the id is of a workload that is here")
    }

    pub fn wl_mut(&mut self, id: WorkloadId) -> &mut Wl {
        self.workloads[id].as_mut().expect("the id is of a workload that is here")
    }

    /// Takes in a workload, or a new version of one.
    pub fn put_workload(&mut self, spec: Workload, now: Time) -> WorkloadId {
        self.settle(now);
        let id = match self.by_key.get(&spec.key) {
            Some(&id) => {
                self.leave(id);
                id
            }
            None => {
                let id = self.free_ids.pop().unwrap_or_else(|| self.workloads.push(None));
                self.by_key.insert(spec.key.clone(), id);
                id
            }
        };
        self.enter(id, spec, now);
        id
    }

    pub fn drop_workload(&mut self, key: &Key) -> bool {
        let Some(id) = self.by_key.remove(key) else { return false };
        self.leave(id);
        self.free_ids.push(id);
        true
    }

    /// Forgets what a workload holds and where it waits.
    fn leave(&mut self, id: WorkloadId) {
        self.release(id);
        self.second.remove(&id);
        self.unready.remove(&id);
        let Some(wl) = self.workloads[id].take() else { return };
        if let Some(queue) = wl.queue
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.members.remove(&id);
            queue.line.remove(&wl.rank(id), wl.class);
        }
    }

    fn enter(&mut self, id: WorkloadId, spec: Workload, now: Time) {
        let local = Key { namespace: spec.key.namespace.clone(), name: spec.queue.clone() };
        let sets = self.sets(&spec);
        let mut wl = Box::new(Wl {
            priority: order::priority(&spec, &self.settings),
            since: order::queued_since(&spec, &self.settings),
            queue: None,
            class: ClassKey { local: 0, hash: 0 },
            sets,
            hold: None,
            bookmark: None,
            local,
            spec,
        });
        if let Some(reservation) = &wl.spec.reservation
            && !wl.spec.finished
        {
            if let Some(queue) = self.tree.queue(&reservation.cluster_queue) {
                let hold = self.hold_of(&wl.sets, reservation, queue, now);
                wl.queue = Some(queue);
                wl.hold = Some(hold);
            }
        } else if let Some(queue) = self.line_of(&wl) {
            wl.queue = Some(queue);
            wl.class = self.class(&wl, queue);
        }
        let queue = wl.queue;
        let (holds, rank, class) = (wl.hold.is_some(), wl.rank(id), wl.class);
        let ready = wl.spec.pods_ready;
        self.workloads[id] = Some(wl);
        let Some(queue) = queue else { return };
        if holds {
            self.hold(id);
            self.queues[queue].members.insert(id);
            if !ready {
                self.unready.insert(id);
            }
            if self.wl(id).needs_second_pass(&self.settings) {
                self.second.insert(id);
            }
        } else if self.wl(id).spec.held_back || self.backs_off(id, now) {
            self.queues[queue].line.park(rank, class);
        } else {
            self.queues[queue].line.push(rank, class);
        }
    }

    /// Whether it must not be tried yet.
    pub fn backs_off(&self, id: WorkloadId, now: Time) -> bool {
        let spec = &self.wl(id).spec;
        spec.held_back || spec.requeue_at.is_some_and(|at| now < at)
    }

    /// The queue in whose line a workload belongs.
    fn line_of(&self, wl: &Wl) -> Option<TreeId> {
        let spec = &wl.spec;
        let gone = spec.finished || !spec.active || spec.gated;
        if gone || (self.settings.gates.concurrent_admission && spec.is_parent) {
            return None;
        }
        let local = self.local_queues.get(&wl.local).filter(|l| l.stop == Stop::None)?;
        self.tree.queue(&local.cluster_queue)
    }

    fn sets(&mut self, spec: &Workload) -> Vec<Set> {
        let ids = &mut self.ids;
        let mut amounts = |from: &BTreeMap<Name, i64>| -> Amounts {
            from.iter().map(|(name, amount)| (ids.resource(name), *amount)).collect()
        };
        let gone = |set: &Name| {
            if self.settings.gates.reclaimable_pods {
                spec.reclaimable.get(set).copied().unwrap_or(0)
            } else {
                0
            }
        };
        spec.pod_sets
            .iter()
            .map(|set| Set {
                name: set.name.clone(),
                count: set.count.saturating_sub(gone(&set.name)).max(0),
                min: set.min_count,
                per_pod: amounts(&set.requests),
                raw: amounts(&set.raw),
            })
            .collect()
    }

    /// What a reservation comes to.
    pub(crate) fn hold_of(
        &mut self,
        sets: &[Set],
        reservation: &Reservation,
        queue: TreeId,
        now: Time,
    ) -> Hold {
        let mut hold = Hold {
            queue,
            sets: Vec::new(),
            usage: Usage::new(),
            places: Vec::new(),
            since: reservation.since.unwrap_or(now),
        };
        for assigned in &reservation.pod_sets {
            // Pods that are done for good since then hold nothing.
            let now = sets.iter().find(|s| s.name == assigned.name).map_or(assigned.count, |s| s.count);
            let count = now.min(assigned.count).max(0);
            let scale = |amount: i64| {
                if count == assigned.count || assigned.count <= 0 {
                    amount
                } else {
                    amount / i64::from(assigned.count) * i64::from(count)
                }
            };
            let mut held = HeldSet {
                count,
                requests: Vec::new(),
                flavors: Vec::new(),
                topology: assigned.topology.clone(),
                delayed: assigned.delayed,
            };
            for (resource, flavor) in &assigned.flavors {
                held.flavors.push((self.ids.resource(resource), self.ids.flavor(flavor)));
            }
            for (resource, amount) in &assigned.usage {
                let id = self.ids.resource(resource);
                let amount = scale(*amount);
                held.requests.push((id, amount));
                if let Some((_, flavor)) = held.flavors.iter().find(|(r, _)| *r == id) {
                    let pair = self.ids.pair(*flavor, id);
                    add_usage(&mut hold.usage, pair, amount);
                }
            }
            hold.sets.push(held);
        }
        self.find_leaves(sets, &mut hold, reservation);
        hold
    }

    /// Where in the trees of places a hold lies. What is on nodes that are gone lies nowhere.
    fn find_leaves(&self, sets: &[Set], hold: &mut Hold, reservation: &Reservation) {
        for (assigned, held) in reservation.pod_sets.iter().zip(&hold.sets) {
            let Some(topology) = &held.topology else { continue };
            let Some(set) = sets.iter().position(|s| s.name == assigned.name) else { continue };
            let Some((flavor, places)) = held.flavors.iter().find_map(|(_, f)| Some((*f, self.places(*f)?)))
            else {
                continue;
            };
            for (values, pods) in &topology.domains {
                if let Some(leaf) = places.leaf_at(values) {
                    hold.places.push(PlaceUse { flavor, leaf, set, pods: i64::from(*pods) });
                }
            }
        }
    }

    /// What makes workloads equal for admission.
    fn class(&mut self, wl: &Wl, queue: TreeId) -> ClassKey {
        let mut hasher = FxHasher::default();
        wl.priority.hash(&mut hasher);
        wl.spec.allowed_flavors.hash(&mut hasher);
        wl.spec.preemption_gated.hash(&mut hasher);
        wl.spec.replaces.hash(&mut hasher);
        for (set, spec) in wl.sets.iter().zip(&wl.spec.pod_sets) {
            (&set.name, set.count, set.min, &set.per_pod, &set.raw).hash(&mut hasher);
            (&spec.rule, &spec.tolerations, &spec.topology).hash(&mut hasher);
        }
        let by_usage = self.settings.usage_sharing.is_some() && self.queues[queue].spec.by_usage;
        let local = if by_usage { self.local_id(&wl.local) } else { 0 };
        ClassKey { local, hash: hasher.finish() }
    }

    fn local_id(&mut self, key: &Key) -> u32 {
        if let Some(&id) = self.local_ids.get(key) {
            return id;
        }
        let id = u32::try_from(self.locals.len()).unwrap_or(u32::MAX);
        self.locals.push(key.clone());
        self.local_ids.insert(key.clone(), id);
        id
    }

    /// What a local queue used, where that decides.
    pub fn local_usage(&self, key: &Key) -> f64 {
        let Some(sharing) = &self.settings.usage_sharing else { return 0.0 };
        let weight = self.local_queues.get(key).map_or_else(Default::default, |l| l.weight);
        self.ledger.usage(key, weight, sharing)
    }

    /// Charges what a workload holds.
    pub fn hold(&mut self, id: WorkloadId) {
        self.charge(id, 1);
    }

    /// Takes the charge back; the workload keeps its claim.
    pub fn release(&mut self, id: WorkloadId) {
        self.charge(id, -1);
    }

    fn charge(&mut self, id: WorkloadId, sign: i64) {
        let Self { workloads, tree, places, twins, .. } = self;
        let Some(wl) = &workloads[id] else { return };
        let Some(hold) = &wl.hold else { return };
        if sign > 0 {
            tree.add(hold.queue, &hold.usage);
        } else {
            tree.remove(hold.queue, &hold.usage);
        }
        for used in &hold.places {
            let Some(set) = wl.sets.get(used.set) else { continue };
            use_place(places, twins, used.flavor, used.leaf, &set.raw, used.pods * sign);
        }
    }

    /// Charges or takes back places that nobody holds yet.
    pub fn use_places(&mut self, uses: &[PlaceUse], raws: &[Amounts], sign: i64) {
        for used in uses {
            let Some(raw) = raws.get(used.set) else { continue };
            use_place(&mut self.places, &self.twins, used.flavor, used.leaf, raw, used.pods * sign);
        }
    }

    /// Everything parked in the trees of these queues is in line again.
    pub fn wake(&mut self, queue: TreeId, now: Time) {
        if self.tree.nodes[queue].cyclic {
            return;
        }
        let root = self.tree.nodes[queue].root;
        for queue in self.tree.queues_below(root) {
            self.wake_queue(queue, now);
        }
    }

    pub fn wake_queue(&mut self, queue: TreeId, now: Time) -> bool {
        let workloads = &self.workloads;
        let may = |rank: &Rank| {
            workloads[rank.id]
                .as_ref()
                .is_some_and(|wl| !wl.spec.held_back && wl.spec.requeue_at.is_none_or(|at| now >= at))
        };
        self.queues[queue].line.flush(may)
    }
}

fn use_place(
    places: &mut [Option<Places>],
    twins: &[Vec<Vec<(FlavorId, LeafId)>>],
    flavor: FlavorId,
    leaf: LeafId,
    per_pod: &[(ResourceId, i64)],
    pods: i64,
) {
    if let Some(Some(own)) = places.get_mut(flavor.index()) {
        own.use_leaf(leaf, per_pod, pods);
    }
    let others = twins.get(flavor.index()).and_then(|t| t.get(leaf.index()));
    for &(flavor, leaf) in others.into_iter().flatten() {
        if let Some(Some(other)) = places.get_mut(flavor.index()) {
            other.use_leaf(leaf, per_pod, pods);
        }
    }
}
