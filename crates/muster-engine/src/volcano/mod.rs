//! Volcano's rules on the engine's mechanisms: its actions, and the votes of its plugins.
//!
//! A cycle opens a [`Session`]: the state with what Volcano adds to gangs, pods and queues. The actions (`enqueue`, `allocate`, `backfill`,
//! `evict` with preempt and reclaim, `gangs` with their gang forms, `shuffle`) ask plugins by tier (`votes`, `victims`) and move pods through the
//! state's own undo log, which is Volcano's statement. What is committed goes into the ledger as for any other dialect.
//!
//! | modules | what they do |
//! |---|---|
//! | `jobs` | gangs as jobs: roles, sub-groups, what is ready, promised, starving, valid |
//! | `quotas`, `fair` | proportion and capacity; dominant-resource fairness, flat and in a tree |
//! | `probe` | single questions to plugins, for who tests them |
//! | `filter`, `score`, `ranked`, `domains` | predicates; node scores, and nodes in their order; hypernodes |
//!
//! *Invariant:* where Volcano leaves a choice to chance, names decide.

mod amounts;
mod domains;
mod fair;
mod filter;
mod heap;
mod jobs;
pub mod moments;
pub mod probe;
mod quotas;
mod ranked;
mod score;
mod victims;
mod votes;

mod allocate;
mod backfill;
mod enqueue;
mod evict;
mod gangs;
mod shuffle;

use crate::cycle::Ledger;
use crate::ids::{GangId, NodeId, PodId, QueueId};
use crate::state::{Spot, St, State};
use amounts::Res;
use dense::{IdVec, Mark};
use domains::Domains;
use fair::Fair;
use jobs::Job;
use muster_model::volcano::{Conf, Hook, Phase, Plugin, PluginKind, Task};
use muster_model::{Action, Bind, Dialect, Evict, GangPhase, Name, Pipeline, Reason, own_name};
use quotas::Quotas;
use ranked::Ranked;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs Volcano's actions once, over the gangs that live by its rules.
pub fn run(state: &mut State, ledger: &mut Ledger) {
    let Some(conf) = state.policy.volcano.clone().filter(|_| !state.volcano_gangs.is_empty()) else { return };
    let mut session = Session::open(state, ledger, conf.clone());
    for action in conf.actions.iter().copied() {
        match action {
            Action::Enqueue => session.enqueue(),
            Action::Allocate => session.allocate(),
            Action::Backfill => session.backfill(),
            Action::Preempt => session.preempt(),
            Action::Reclaim => session.reclaim(),
            Action::GangPreempt => session.gang_preempt(),
            Action::GangReclaim => session.gang_reclaim(),
            Action::Shuffle => session.shuffle(),
            Action::Consolidate | Action::EvictStaleGangs => {}
        }
    }
    session.close();
}

pub struct Session<'a> {
    st: &'a mut State,
    ledger: &'a mut Ledger,
    conf: Arc<Conf>,
    /// In the order of their keys.
    jobs: Vec<Job>,
    job_of: IdVec<GangId, Option<usize>>,
    /// What a pod's own object says; pods of no job have none.
    tasks: IdVec<PodId, Option<Arc<Task>>>,
    queues: Vec<QueueRow>,
    queue_of: IdVec<QueueId, Option<usize>>,
    /// What all nodes have.
    total: Res,
    nodes: Vec<NodeId>,
    quotas: Quotas,
    fair: Fair,
    domains: Domains,
    /// What was requested on nodes when the session began, where nobody keeps it up to date.
    frozen: Option<IdVec<NodeId, crate::state::Requested>>,
    enqueue_configured: bool,
    /// By node: pods that were put there in this session, some of them perhaps taken back; kept where a plugin guesses what load they bring.
    placed: IdVec<NodeId, Vec<PodId>>,
    guesses_load: bool,
    /// By queue: the queue whose groups of nodes count for it, itself or one above.
    groups_from: Vec<usize>,
    /// The plugins that say whose turn it is among jobs, in order.
    job_order: Vec<PluginKind>,
    /// On how many nodes there is an image.
    images: BTreeMap<Name, u32>,
    /// Pods that were given a place in mind, and whose gangs are not whole.
    held: Vec<PodId>,
    /// Every other node may be used too, but only when these will not do.
    shard: Option<dense::IdSet<NodeId>>,
    ranked: Ranked,
}

pub struct QueueRow {
    pub id: QueueId,
    pub name: Name,
    pub model: Arc<muster_model::Queue>,
    pub vc: Arc<muster_model::volcano::Queue>,
}

impl<'a> Session<'a> {
    fn open(st: &'a mut State, ledger: &'a mut Ledger, conf: Arc<Conf>) -> Self {
        let mut queues: Vec<QueueRow> = Vec::new();
        let mut queue_of: IdVec<QueueId, Option<usize>> = IdVec::from_elem(None, st.queues.rows.len());
        for (id, row) in st.queues.rows.iter() {
            let Some((model, vc)) = row.model.as_ref().and_then(|m| Some((m, m.volcano.clone()?))) else {
                continue;
            };
            queues.push(QueueRow { id, name: row.name.clone(), model: model.clone(), vc });
        }
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        for (i, queue) in queues.iter().enumerate() {
            queue_of[queue.id] = Some(i);
        }
        let mut nodes: Vec<NodeId> = st.nodes.known().collect();
        nodes.sort_by_key(|n| st.nodes.rows[*n].rank);
        let shard = conf.shard.as_ref().map(|shard| {
            nodes.iter().copied().filter(|n| shard.nodes.contains(&st.nodes.rows[*n].name)).collect()
        });
        if let (Some(own), Some(true)) = (&shard, conf.shard.as_ref().map(|s| s.hard)) {
            let own: &dense::IdSet<NodeId> = own;
            nodes.retain(|n| own.contains(*n));
        }
        if st.policy.has_pools() {
            let models = &st.nodes.rows;
            let may = |n: &NodeId| {
                let labels = models[*n].model.as_ref().map(|model| &model.labels);
                labels.is_some_and(|labels| st.policy.may_use(Dialect::Volcano, labels))
            };
            nodes.retain(may);
        }
        let mut total = Res::default();
        let all: Vec<NodeId> = if st.policy.has_pools() { nodes.clone() } else { st.nodes.known().collect() };
        for node in all {
            for dim in 0..st.nodes.dims.len() {
                total.add(dim, i128::from(st.nodes.cap(node, dim)));
            }
        }
        for (dim, (most, _)) in st.volcano_bounds() {
            total.set(dim, total.get(dim).min(most));
        }
        let domains = Domains::build(st, &nodes);
        let enqueue_configured = conf.actions.contains(&Action::Enqueue);
        let mut session = Self {
            st,
            ledger,
            jobs: Vec::new(),
            job_of: IdVec::new(),
            tasks: IdVec::new(),
            queues,
            queue_of,
            total,
            nodes,
            quotas: Quotas::default(),
            fair: Fair::default(),
            domains,
            frozen: None,
            enqueue_configured,
            placed: IdVec::new(),
            guesses_load: conf.tiers.iter().flatten().any(|p| matches!(p.kind, PluginKind::Usage(_))),
            groups_from: Vec::new(),
            job_order: Vec::new(),
            images: BTreeMap::new(),
            held: Vec::new(),
            ranked: Ranked::default(),
            shard: shard.filter(|_| conf.shard.as_ref().is_some_and(|s| !s.hard)),
            conf,
        };
        session.job_order = session.voters(Hook::JobOrder).flatten().cloned().collect();
        session.groups_from = session.whose_node_groups();
        session.count_images();
        session.read_jobs();
        session.recover_domains();
        session.open_quotas();
        session.open_fair();
        if session.plugin(|kind| matches!(kind, PluginKind::Predicates(_))).is_none() {
            session.frozen = session.st.books.as_ref().map(|books| books.nodes.clone());
        }
        session
    }

    /// The first plugin that fits, wherever it is.
    fn plugin(&self, fits: impl Fn(&PluginKind) -> bool) -> Option<&Plugin> {
        self.conf.tiers.iter().flatten().find(|plugin| fits(&plugin.kind))
    }

    /// The plugins that may vote on something, by tier.
    fn voters(&self, hook: Hook) -> impl Iterator<Item = impl Iterator<Item = &PluginKind>> {
        self.conf
            .tiers
            .iter()
            .map(move |tier| tier.iter().filter(move |p| p.enabled.has(hook)).map(|p| &p.kind))
    }

    fn task(&self, pod: PodId) -> Option<&Arc<Task>> {
        self.tasks.get(pod).and_then(Option::as_ref)
    }

    fn job_of_pod(&self, pod: PodId) -> Option<usize> {
        self.st.pods.row(pod).gang.and_then(|gang| self.job_of.get(gang).copied().flatten())
    }

    fn status(&self, pod: PodId) -> St {
        self.st.pods.row(pod).spot.st
    }

    /// What a pod asks for.
    fn need(&self, pod: PodId) -> &crate::nodes::Need {
        &self.st.classes.rows[self.st.pods.row(pod).class].need
    }

    /// A pod that asks for nothing but to be.
    fn is_best_effort(&self, pod: PodId) -> bool {
        self.need(pod).iter().all(|(dim, _)| *dim as usize == crate::nodes::PODS_DIM)
    }

    fn fits_now(&self, pod: PodId, node: NodeId) -> bool {
        self.st.nodes.fits_now(node, self.need(pod))
    }

    fn fits_soon(&self, pod: PodId, node: NodeId) -> bool {
        self.st.nodes.fits_soon(node, self.need(pod))
    }

    /// Puts a pod on a node, on the record: now if there is room, or as a promise. `false`: its devices are not there.
    fn put(&mut self, pod: PodId, node: NodeId, now: bool) -> bool {
        let share = self.st.classes.rows[self.st.pods.row(pod).class].share;
        if share.is_some_and(|share| self.st.share_is_refused(node, share)) {
            return false;
        }
        let now = now && {
            let unsure = self.held_by_others(pod);
            self.st.has_company_now(pod, node, &unsure) && self.st.bears_who_leaves(pod, node)
        };
        let (now, extra) = match self.st.take_devices(pod, node, now) {
            Some(taken) => taken,
            // Where no plugin looks at claims, they hold nobody up.
            None if self.frozen.is_some() => (now, None),
            None => return false,
        };
        let st = if now { St::Allocated } else { St::Pipelined };
        self.st.move_pod(pod, Spot { st, on_trial: false, node: Some(node), extra });
        if self.guesses_load {
            let placed = self.placed.ensure(node);
            if !placed.contains(&pod) {
                placed.push(pod);
            }
        }
        true
    }

    /// Pods of other gangs that have a place in mind only.
    fn held_by_others(&self, pod: PodId) -> Vec<PodId> {
        let row = self.st.pods.row(pod);
        // Nobody else is asked who else is there.
        if self.st.classes.rows[row.class].shape.pods.affinity.is_empty() {
            return Vec::new();
        }
        let own = row.gang;
        let in_mind = |p: &PodId| {
            let row = self.st.pods.row(*p);
            row.gang != own && row.spot.st == St::Allocated && !row.committed
        };
        let mut pods: Vec<PodId> = self.held.iter().copied().filter(in_mind).collect();
        pods.sort_unstable();
        pods.dedup();
        pods
    }

    /// Tells a pod to go, on the record.
    fn send_away(&mut self, pod: PodId) {
        let spot = Spot { st: St::Releasing, on_trial: true, ..self.st.pods.row(pod).spot.clone() };
        self.st.move_pod(pod, spot);
    }

    /// Makes a trial a decision: places become binds, evictions evictions.
    fn commit(&mut self, mark: Mark, action: Action, by: Option<usize>) {
        let changed = self.st.changed_since(&mark);
        self.st.log.commit(mark);
        self.st.epoch += 1;
        for pod in changed {
            self.decide(pod, action, by);
        }
    }

    fn decide(&mut self, pod: PodId, action: Action, by: Option<usize>) {
        let row = self.st.pods.row(pod);
        let Some(gang) = row.gang.map(|g| self.st.gangs.rows[g].key.clone()) else { return };
        let key = row.model.key.clone();
        match row.spot.st {
            St::Allocated if !row.committed => {
                let placement = self.st.placement(pod);
                self.ledger.decisions.binds.push(Bind { pod: key, gang, action, placement });
            }
            St::Pipelined if !row.committed => {
                let placement = self.st.placement(pod);
                self.ledger.decisions.pipelined.push(Pipeline { pod: key, gang, action, placement });
            }
            St::Releasing if row.spot.on_trial && !row.committed => {
                let by = by.map(|job| self.jobs[job].key.clone());
                let forced = row.gang.is_some_and(|gang| self.st.forces(action, gang));
                let evict = Evict { pod: key, gang, action, by, moved: false, forced };
                self.ledger.decisions.evictions.push(evict);
            }
            _ => return,
        }
        self.st.pods.set_committed(pod);
        self.ledger.changed.push(pod);
    }

    /// Ends a trial whose outcome stays in the session and is never carried out.
    fn hold(&mut self, mark: Mark) {
        self.held.extend(self.st.changed_since(&mark));
        self.st.log.commit(mark);
    }

    fn has_reason(&self, job: usize) -> bool {
        self.ledger.searches.contains_key(&self.jobs[job].gang)
    }

    /// Remembers why a gang waits; the first reason counts.
    fn note(&mut self, job: usize, reason: Option<Reason>) {
        if let Some(reason) = reason.filter(|_| !self.has_reason(job)) {
            self.ledger.searches.insert(self.jobs[job].gang, vec![reason]);
        }
    }

    /// What holds up a gang that no action got to placing.
    fn why_passed_over(&self, job: usize) -> Option<Reason> {
        let row = &self.jobs[job];
        let pod = row.tasks.iter().copied().find(|p| self.status(*p) == St::Pending)?;
        if !self.is_valid(job) {
            return self.incomplete(job);
        }
        let overused = || self.overused(row.queue).then(|| self.beyond_share(row.queue, pod)).flatten();
        self.queue_defect(row.queue).or_else(overused)
    }

    /// Says how far everyone has come, and forgets what only the session knew.
    fn close(mut self) {
        let mut phases = Vec::new();
        for i in 0..self.jobs.len() {
            let gang = self.jobs[i].gang;
            if self.st.waiting.contains(gang) && !self.ledger.failures.contains_key(&gang) {
                let reason = if self.has_reason(i) { None } else { self.why_passed_over(i) };
                self.note(i, reason);
            }
            let phase = self.closing_phase(i);
            let job = &self.jobs[i];
            if phase != job.model.phase || job.domain != job.given_domain {
                let domain = job.domain.map(|d| self.domains.rows[d].name.clone());
                phases.push(GangPhase { gang: job.key.clone(), phase, domain });
            }
        }
        phases.sort_by(|a, b| a.gang.cmp(&b.gang));
        self.ledger.decisions.phases = phases;
        let mut held = std::mem::take(&mut self.held);
        held.sort_by(|a, b| self.st.pods.row(*a).model.key.cmp(&self.st.pods.row(*b).model.key));
        held.dedup();
        for pod in held {
            let row = self.st.pods.row(pod);
            if row.committed {
                continue;
            }
            let Some(gang) = row.gang.map(|g| self.st.gangs.rows[g].key.clone()) else { continue };
            let key = row.model.key.clone();
            let st = row.spot.st;
            if !matches!(st, St::Allocated | St::Pipelined) {
                continue;
            }
            let placement = self.st.placement(pod);
            let promise = Pipeline { pod: key, gang, action: Action::Allocate, placement };
            if st == St::Allocated {
                self.ledger.decisions.held.push(promise);
                self.st.move_pod(pod, Spot::waiting());
            } else {
                self.ledger.decisions.pipelined.push(promise);
                self.ledger.changed.push(pod);
            }
        }
    }

    /// The phase of a gang when the session closes.
    fn closing_phase(&self, job: usize) -> Phase {
        let row = &self.jobs[job];
        let count = |st: St| self.count(job, st);
        let running = count(St::Running);
        let has_gang = self.plugin(|kind| matches!(kind, PluginKind::Gang)).is_some();
        // What lacks pods altogether is not unschedulable but incomplete.
        let unschedulable = has_gang && row.n_tasks > 0 && !self.is_ready(job) && self.is_valid(job);
        if running > 0 && unschedulable {
            return Phase::Unknown;
        }
        let over = count(St::Succeeded) + count(St::Failed);
        let going = row
            .tasks
            .iter()
            .filter(|p| matches!(self.status(**p), St::Releasing | St::Stuck))
            .filter(|p| self.st.pods.row(**p).spot.node.is_some())
            .count() as u32;
        let scheduled = running + count(St::Bound) + over + going;
        if scheduled >= row.model.min_member {
            return if over == scheduled { Phase::Completed } else { Phase::Running };
        }
        if row.phase == Phase::Inqueue { Phase::Inqueue } else { Phase::Pending }
    }

    /// Queues by the names that Volcano knows them by, for those who walk trees.
    fn queue_named(&self) -> BTreeMap<&str, usize> {
        self.queues.iter().enumerate().map(|(i, q)| (own_name(&q.name), i)).collect()
    }
}
