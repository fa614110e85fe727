//! The desk: what is watched, what is to be looked at, and the turns in which decisions are made and written down.
//!
//! In: a cluster. Out: writes to it. A turn takes in what changed, decides, and writes every decision down before the next turn begins, so that no
//! decision is made on books that others are being written into. Must stay true: a decision that could not be written is taken back; nothing is
//! decided before everything is listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use muster_runtime::api::Scope;
use muster_runtime::common::PriorityClass;
use muster_runtime::object::Object;
use muster_runtime::queue::Queue;
use muster_runtime::store::Change;
use muster_runtime::{ApiError, Context, Key, RESYNC, Store};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::admission::admission;
use crate::brain::{Brain, Decision, Kind, time};
use crate::keys::condition as kind;
use crate::object::{
    AdmissionCheck, BatchJob, ClusterQueue, Cohort, LimitRange, LocalQueue, ManagedPod, Namespace, Node,
    PlacedPod, ResourceFlavor, RoomPod, Topology, Workload, WorkloadPriorityClass, condition, text,
    time as when,
};
use crate::podset;
use crate::room::{Answer, Ask, AskSet, Room};
use crate::settings::Settings;
use crate::status::Draft;

/// Statuses of queues are written so long after a change, so that a burst is one write.
const STATUS_AFTER: Duration = Duration::from_millis(200);
/// Requests under way at a time for one turn.
const AT_A_TIME: usize = 32;

pub(crate) struct Stores {
    pub cluster_queues: Arc<Store<ClusterQueue>>,
    pub local_queues: Arc<Store<LocalQueue>>,
    pub cohorts: Arc<Store<Cohort>>,
    pub flavors: Arc<Store<ResourceFlavor>>,
    pub checks: Arc<Store<AdmissionCheck>>,
    pub topologies: Arc<Store<Topology>>,
    pub workloads: Arc<Store<Workload>>,
    pub classes: Arc<Store<WorkloadPriorityClass>>,
    pub pod_classes: Arc<Store<PriorityClass>>,
    pub namespaces: Arc<Store<Namespace>>,
    pub limits: Arc<Store<LimitRange>>,
    pub nodes: Arc<Store<Node>>,
    pub jobs: Arc<Store<BatchJob>>,
    /// Plain pods that wait in queues.
    pub pods: Arc<Store<ManagedPod>>,
    /// Pods of workloads whose domains are chosen here.
    pub placed: Arc<Store<PlacedPod>>,
    /// All pods, as far as they take room; filled once there is a topology.
    pub room: Arc<Store<RoomPod>>,
}

/// What is in use, and kept by a finalizer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum InUse {
    ClusterQueue(String),
    Flavor(String),
    Check(String),
    Topology(String),
}

#[derive(Clone)]
pub(crate) struct Queues {
    pub workloads: Arc<Queue<Key>>,
    pub jobs: Arc<Queue<Key>>,
    /// Groups of pods, by the name of their workload.
    pub pods: Arc<Queue<Key>>,
    /// Workloads with pods that wait for their domain.
    pub ungate: Arc<Queue<Key>>,
    pub cluster_queues: Arc<Queue<String>>,
    pub local_queues: Arc<Queue<Key>>,
    pub cohorts: Arc<Queue<String>>,
    pub in_use: Arc<Queue<InUse>>,
}

pub(crate) struct Desk {
    pub cx: Context,
    pub settings: Arc<Settings>,
    pub room: Arc<dyn Room>,
    pub stores: Stores,
    pub queues: Queues,
    brain: Mutex<Brain>,
    dirty: Mutex<BTreeSet<(Kind, Key)>>,
    turn: Notify,
    topologies_seen: Notify,
    /// The pods of each group, by the name of its workload.
    groups: Mutex<BTreeMap<Key, BTreeSet<Key>>>,
}

impl Desk {
    /// `of`: the stores that this desk fills.
    pub fn new(
        cx: Context,
        of: &muster_runtime::Stores,
        settings: Settings,
        room: Arc<dyn Room>,
    ) -> Arc<Self> {
        let select = |label: &str| Scope { query: format!("labelSelector={label}"), ..Scope::default() };
        let stores = Stores {
            cluster_queues: of.of(),
            local_queues: of.of(),
            cohorts: of.of(),
            flavors: of.of(),
            checks: of.of(),
            topologies: of.of(),
            workloads: of.of(),
            classes: of.of(),
            pod_classes: of.of(),
            namespaces: of.of(),
            limits: of.of(),
            nodes: of.of(),
            jobs: of.of(),
            pods: of.within(select("kueue.x-k8s.io%2Fmanaged%3Dtrue")),
            placed: of.within(select("kueue.x-k8s.io%2Fpodset")),
            room: Store::new(cx.api.clone(), Scope::default()),
        };
        let queues = Queues {
            workloads: Queue::new(),
            jobs: Queue::new(),
            pods: Queue::new(),
            ungate: Queue::new(),
            cluster_queues: Queue::new(),
            local_queues: Queue::new(),
            cohorts: Queue::new(),
            in_use: Queue::new(),
        };
        let desk = Arc::new(Desk {
            brain: Mutex::new(Brain::new(&settings)),
            settings: Arc::new(settings),
            room,
            stores,
            queues,
            dirty: Mutex::default(),
            turn: Notify::new(),
            topologies_seen: Notify::new(),
            groups: Mutex::default(),
            cx,
        });
        desk.observe();
        desk
    }

    pub fn brain(&self) -> MutexGuard<'_, Brain> {
        self.brain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something changed that decisions hang on.
    fn note(&self, kind: Kind, key: Key) {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).insert((kind, key));
        self.turn.notify_one();
    }

    /// Decides again although nothing changed.
    pub fn wake_turn(&self) {
        self.turn.notify_one();
    }

    /// Puts observers on everything. The desk keeps the stores, so observers must not keep the desk.
    fn observe(self: &Arc<Self>) {
        fn on<T: Object>(
            desk: &Arc<Desk>,
            store: &Store<T>,
            act: impl Fn(&Desk, &Change<'_, T>) + Send + Sync + 'static,
        ) {
            let weak = Arc::downgrade(desk);
            store.observe(move |change| {
                if let Some(desk) = weak.upgrade() {
                    act(&desk, change);
                }
            });
        }
        fn noted<T: Object>(desk: &Arc<Desk>, store: &Store<T>, kind: Kind) {
            on(desk, store, move |desk, change| {
                if let Some(object) = change.latest() {
                    desk.note(kind, object.key());
                }
            });
        }
        let stores = &self.stores;
        noted(self, &stores.namespaces, Kind::Namespace);
        noted(self, &stores.limits, Kind::LimitRange);
        on(self, &stores.nodes, |desk, change| {
            let Some(node) = change.latest() else { return };
            desk.note(Kind::Node, node.key());
            let ready = |node: &Arc<Node>| crate::object::holds(node.status(), "Ready");
            if change.old.is_some() && change.old.map(ready) != change.new.map(ready) {
                desk.wake_placed();
            }
        });
        noted(self, &stores.room, Kind::Pod);
        on(self, &stores.cohorts, |desk, change| {
            let Some(cohort) = change.latest() else { return };
            desk.note(Kind::Cohort, cohort.key());
            desk.queues.cohorts.add_after(cohort.metadata.name.clone(), STATUS_AFTER);
        });
        on(self, &stores.flavors, |desk, change| {
            let Some(flavor) = change.latest() else { return };
            desk.note(Kind::Flavor, flavor.key());
            desk.queues.in_use.add(InUse::Flavor(flavor.metadata.name.clone()));
            // Jobs may wait for it to be started.
            if change.old.is_none() {
                desk.stores.jobs.keys().into_iter().for_each(|key| desk.queues.jobs.add(key));
            }
        });
        on(self, &stores.topologies, |desk, change| {
            let Some(topology) = change.latest() else { return };
            desk.note(Kind::Topology, topology.key());
            desk.queues.in_use.add(InUse::Topology(topology.metadata.name.clone()));
            desk.topologies_seen.notify_one();
        });
        on(self, &stores.checks, |desk, change| {
            let Some(check) = change.latest() else { return };
            desk.note(Kind::Check, check.key());
            desk.queues.in_use.add(InUse::Check(check.metadata.name.clone()));
        });
        on(self, &stores.cluster_queues, Desk::cluster_queue_changed);
        on(self, &stores.local_queues, Desk::local_queue_changed);
        on(self, &stores.workloads, Desk::workload_changed);
        on(self, &stores.jobs, |desk, change| {
            if let Some(job) = change.latest() {
                desk.queues.jobs.add(job.key());
                if change.new.is_none() {
                    desk.wake_owned(&job.metadata.uid);
                }
            }
        });
        on(self, &stores.pods, |desk, change| {
            desk.pod_changed(change);
        });
        on(self, &stores.placed, |desk, change| {
            if let Some(pod) = change.latest()
                && let Some(workload) = pod.metadata.annotation(crate::keys::WORKLOAD)
            {
                desk.queues.ungate.add(Key::new(pod.metadata.namespace.clone(), workload));
            }
        });
    }

    fn pod_changed(&self, change: &Change<'_, ManagedPod>) {
        let group = |pod: &Arc<ManagedPod>| crate::pods::group_key(pod);
        let (old, new) = (change.old.map(group), change.new.map(group));
        let Some(pod) = change.latest().map(|pod| pod.key()) else { return };
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old.filter(|old| new.as_ref() != Some(old)) {
            if let Some(members) = groups.get_mut(&old) {
                members.remove(&pod);
                if members.is_empty() {
                    groups.remove(&old);
                    // Its workload is let go with the last of them.
                    self.queues.workloads.add(old.clone());
                }
            }
            self.queues.pods.add(old);
        }
        if let Some(new) = new {
            groups.entry(new.clone()).or_default().insert(pod);
            self.queues.pods.add(new);
        }
    }

    /// The pods of a group, by name.
    pub fn members(&self, group: &Key) -> Vec<Arc<ManagedPod>> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = groups.get(group).into_iter().flatten();
        keys.filter_map(|key| self.stores.pods.get(key)).collect()
    }

    /// Workloads that were placed may have lost a node.
    fn wake_placed(&self) {
        for workload in self.stores.workloads.all() {
            let sets = crate::object::list(workload.status(), &["admission", "podSetAssignments"]);
            if sets.iter().any(|set| set.get("topologyAssignment").is_some()) && !workload.is_finished() {
                self.queues.workloads.add(workload.key());
            }
        }
    }

    /// Workloads whose owner is gone are let go.
    fn wake_owned(&self, uid: &str) {
        for workload in self.stores.workloads.owned_by(uid) {
            self.queues.workloads.add(workload.key());
        }
    }

    fn cluster_queue_changed(&self, change: &Change<'_, ClusterQueue>) {
        let Some(queue) = change.latest() else { return };
        let name = &queue.metadata.name;
        self.queues.cluster_queues.add_after(name.clone(), STATUS_AFTER);
        if let (Some(old), Some(new)) = (change.old, change.new)
            && old.metadata.generation == new.metadata.generation
            && old.metadata.deleting() == new.metadata.deleting()
        {
            return;
        }
        self.note(Kind::ClusterQueue, queue.key());
        self.queues.in_use.add(InUse::ClusterQueue(name.clone()));
        for side in change.sides() {
            self.wake_parts(side);
        }
        self.wake_queue(name);
    }

    /// What a queue names may be in use, or no longer.
    fn wake_parts(&self, queue: &ClusterQueue) {
        let spec = queue.spec();
        for group in crate::object::list(spec, &["resourceGroups"]) {
            for flavor in crate::object::list(group, &["flavors"]) {
                self.queues.in_use.add(InUse::Flavor(text(flavor, &["name"]).to_owned()));
            }
        }
        for check in crate::object::list(spec, &["admissionChecksStrategy", "admissionChecks"]) {
            self.queues.in_use.add(InUse::Check(text(check, &["name"]).to_owned()));
        }
    }

    /// Everything in the local queues of a cluster queue is looked at again.
    pub fn wake_queue(&self, name: &str) {
        for local in self.stores.local_queues.all() {
            if text(local.spec(), &["clusterQueue"]) == name {
                self.queues.local_queues.add_after(local.key(), STATUS_AFTER);
                self.wake_local(&local.key());
            }
        }
        for workload in self.stores.workloads.all().iter().filter(|w| w.cluster_queue() == name) {
            self.queues.workloads.add(workload.key());
        }
    }

    fn wake_local(&self, local: &Key) {
        for workload in self.stores.workloads.in_namespace(&local.namespace) {
            if workload.queue() == local.name {
                self.queues.workloads.add(workload.key());
            }
        }
    }

    fn local_queue_changed(&self, change: &Change<'_, LocalQueue>) {
        let Some(queue) = change.latest() else { return };
        self.queues.local_queues.add_after(queue.key(), STATUS_AFTER);
        if let (Some(old), Some(new)) = (change.old, change.new)
            && old.metadata.generation == new.metadata.generation
            && old.metadata.deleting() == new.metadata.deleting()
        {
            return;
        }
        self.note(Kind::LocalQueue, queue.key());
        self.wake_local(&queue.key());
    }

    fn workload_changed(&self, change: &Change<'_, Workload>) {
        let Some(workload) = change.latest() else { return };
        let key = workload.key();
        self.note(Kind::Workload, key.clone());
        if let (Some(old), Some(new)) = (change.old, change.new) {
            crate::measure::workload(&self.cx.metrics.kueue, old, new, self.cx.clock.now());
        }
        if change.new.is_some() {
            self.queues.workloads.add(key.clone());
        } else {
            self.room.give_back(&key);
        }
        for owner in &workload.metadata.owner_references {
            let owner_key = Key::new(key.namespace.clone(), owner.name.clone());
            match owner.kind.as_str() {
                "Job" => self.queues.jobs.add(owner_key),
                "Pod" => self.queues.pods.add(key.clone()),
                _ => {}
            }
        }
        for side in change.sides() {
            let local = Key::new(key.namespace.clone(), side.queue());
            let told = side.cluster_queue();
            let cluster = if told.is_empty() {
                self.stores.local_queues.get(&local).map(|q| text(q.spec(), &["clusterQueue"]).to_owned())
            } else {
                Some(told.to_owned())
            };
            if let Some(cluster) = cluster {
                self.queues.cluster_queues.add_after(cluster, STATUS_AFTER);
            }
            self.queues.local_queues.add_after(local, STATUS_AFTER);
        }
        let assigned = |w: &Arc<Workload>| w.status().pointer("/admission/podSetAssignments").cloned();
        if change.old.and_then(assigned) != change.new.and_then(assigned) {
            self.queues.ungate.add(key);
        }
    }

    /// Follows all pods once a topology makes that matter.
    pub async fn follow_room(&self) {
        let wait = async {
            while self.stores.topologies.is_empty() {
                self.topologies_seen.notified().await;
            }
        };
        if self.cx.cancel.run_until_cancelled(wait).await.is_some() {
            self.stores.room.clone().run(RESYNC, self.cx.cancel.clone()).await;
        }
    }

    /// Waits until everything is listed.
    pub async fn prepare(&self) -> Option<()> {
        let s = &self.stores;
        let all: Vec<futures::future::BoxFuture<'_, ()>> = vec![
            Box::pin(s.cluster_queues.synced()),
            Box::pin(s.local_queues.synced()),
            Box::pin(s.cohorts.synced()),
            Box::pin(s.flavors.synced()),
            Box::pin(s.checks.synced()),
            Box::pin(s.topologies.synced()),
            Box::pin(s.workloads.synced()),
            Box::pin(s.classes.synced()),
            Box::pin(s.pod_classes.synced()),
            Box::pin(s.namespaces.synced()),
            Box::pin(s.limits.synced()),
            Box::pin(s.nodes.synced()),
            Box::pin(s.jobs.synced()),
            Box::pin(s.pods.synced()),
            Box::pin(s.placed.synced()),
        ];
        self.cx.synced(all).await
    }

    /// Turns until cancelled.
    pub async fn turns(&self) {
        let work = async {
            loop {
                self.take_turn().await;
                let room = async {
                    self.room.changed().await;
                    self.brain().retry_rooms(time(self.cx.clock.now()));
                };
                let again = async {
                    if self.brain().has_refused() {
                        tokio::time::sleep(ASK_AGAIN).await;
                        self.brain().retry_rooms(time(self.cx.clock.now()));
                    } else {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    () = self.turn.notified() => {}
                    () = room => {}
                    () = again => {}
                }
            }
        };
        self.cx.cancel.run_until_cancelled(work).await;
    }

    /// Takes in what changed, decides, and writes down, until nothing is left to decide.
    async fn take_turn(&self) {
        // A topology without the pods on its nodes would be thought empty.
        if !self.stores.topologies.is_empty() {
            self.stores.room.synced().await;
        }
        loop {
            let dirty = std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
            let now = time(self.cx.clock.now());
            let begun = tokio::time::Instant::now();
            let (decisions, news, flips) = {
                let mut brain = self.brain();
                let inactive = brain.inactive_queues();
                self.take_in(&mut brain, dirty, now);
                let decisions = brain.decide(now);
                let after = brain.inactive_queues();
                let flips: Vec<String> =
                    inactive.symmetric_difference(&after).map(ToString::to_string).collect();
                (decisions, brain.take_news(), flips)
            };
            if !decisions.is_empty() || !news.is_empty() {
                let has_admitted = decisions.iter().any(|d| matches!(d, Decision::Admit { .. }));
                let result = if has_admitted { "success" } else { "inadmissible" };
                self.cx.metrics.kueue.attempts.of([result]).inc();
                self.cx.metrics.kueue.attempt.of([result]).took(begun.elapsed());
            }
            for key in news {
                self.queues.workloads.add(key);
            }
            for queue in flips {
                self.queues.cluster_queues.add_after(queue.clone(), STATUS_AFTER);
                self.wake_queue(&queue);
            }
            let is_over = decisions.is_empty();
            futures::stream::iter(decisions)
                .for_each_concurrent(AT_A_TIME, |decision| self.carry_out(decision))
                .await;
            if is_over && self.dirty.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                return;
            }
        }
    }

    fn take_in(&self, brain: &mut Brain, dirty: BTreeSet<(Kind, Key)>, now: muster_model::Time) {
        fn body<T: Object>(store: &Store<T>, key: &Key, of: impl Fn(&T) -> &Value) -> Option<Value> {
            store.get(key).map(|object| of(&object).clone())
        }
        let s = &self.stores;
        let mut again: BTreeSet<String> = BTreeSet::new();
        let take = |brain: &mut Brain, kind: Kind, key: &Key| {
            let found = match kind {
                Kind::Namespace => body(&s.namespaces, key, |o| &o.body),
                Kind::LimitRange => body(&s.limits, key, |o| &o.body),
                Kind::Topology => body(&s.topologies, key, |o| &o.body),
                Kind::Flavor => body(&s.flavors, key, |o| &o.body),
                Kind::Check => body(&s.checks, key, |o| &o.body),
                Kind::Cohort => body(&s.cohorts, key, |o| &o.body),
                Kind::ClusterQueue => body(&s.cluster_queues, key, |o| &o.body),
                Kind::LocalQueue => body(&s.local_queues, key, |o| &o.body),
                Kind::Node => body(&s.nodes, key, |o| &o.body),
                Kind::Pod => body(&s.room, key, |o| &o.body),
                Kind::Workload => body(&s.workloads, key, |o| &o.body),
            };
            match found {
                Some(body) => brain.put(kind, &body, now),
                None => brain.drop(kind, key, now),
            }
        };
        for (kind, key) in &dirty {
            again.extend(take(brain, *kind, key));
        }
        for namespace in again {
            for workload in s.workloads.in_namespace(&namespace) {
                take(brain, Kind::Workload, &workload.key());
            }
        }
    }

    async fn carry_out(&self, decision: Decision) {
        match decision {
            Decision::Admit { key, reservation, again } => self.admit(key, &reservation, again).await,
            Decision::Preempt { key, cause, message, by_queue } => {
                let words = message.clone();
                self.evict(&key, move |draft| {
                    draft.evict("Preempted", &message, cause);
                    draft.condition(kind::PREEMPTED, true, cause, &message);
                })
                .await;
                if let Some(workload) = self.stores.workloads.get(&key) {
                    self.cx.metrics.kueue.preempted.of([&*by_queue, cause]).inc();
                    self.cx.events.normal(&*workload, "Preempted", words);
                }
            }
            Decision::Evict { key, reason, message } => {
                self.evict(&key, move |draft| draft.evict(reason, &message, "")).await;
            }
            Decision::Replaced { old, new } => {
                let words =
                    format!("Replaced to accommodate a workload {new} due to workload slice aggregation");
                self.evict(&old, move |draft| {
                    draft.condition(kind::FINISHED, true, "WorkloadSliceReplaced", &words);
                })
                .await;
            }
        }
    }

    /// Changes the status of a workload that has quota. If that fails, the books are set right by what the cluster says.
    async fn evict(&self, key: &Key, change: impl Fn(&mut Draft)) {
        let Some(workload) = self.stores.workloads.get(key) else { return };
        let mut draft = Draft::new(workload.status(), workload.metadata.generation, self.cx.clock.now());
        change(&mut draft);
        let store = &self.stores.workloads;
        if let Err(error) =
            store.write_status(&self.cx.api, &workload, workload.status(), &draft.status).await
        {
            tracing::debug!(workload = %key, %error, "an eviction was not written");
            tokio::time::sleep(pause(&error)).await;
            self.note(Kind::Workload, key.clone());
        }
    }

    async fn admit(&self, key: Key, reservation: &muster_admit::spec::Reservation, again: bool) {
        let Some(workload) = self.stores.workloads.get(&key) else {
            self.brain().take_back(&key, time(self.cx.clock.now()));
            return;
        };
        let given = admission(reservation);
        if self.settings.require_placement && !again {
            match self.ask(&workload, &given).await {
                Answer::Held => {}
                Answer::Refused(why) => {
                    tracing::debug!(workload = %key, why, "there is quota, and no place");
                    self.brain().refuse_room(&key, &why, time(self.cx.clock.now()));
                    self.turn.notify_one();
                    return;
                }
            }
        }
        let now = self.cx.clock.now();
        let mut draft = Draft::new(workload.status(), workload.metadata.generation, now);
        if again {
            draft.set("admission", given);
            draft.remove("unhealthyNodes");
            if reservation.admitted && !workload.is_admitted() {
                draft.admit();
            }
        } else {
            draft.reserve(given, &reservation.cluster_queue, reservation.admitted);
        }
        let store = &self.stores.workloads;
        match store.write_status(&self.cx.api, &workload, workload.status(), &draft.status).await {
            Ok(()) => {
                if !again {
                    self.say_admitted(&workload, reservation, now);
                }
            }
            Err(error) => {
                tracing::debug!(workload = %key, %error, "an admission was not written");
                self.room.give_back(&key);
                let now = time(self.cx.clock.now());
                if matches!(error.code(), 400 | 403 | 422) {
                    // It would be refused again; it steps aside, and is tried later.
                    let why = format!("the API server refused the admission: {}", error.message());
                    self.brain().refuse_room(&key, &why, now);
                    return;
                }
                self.brain().take_back(&key, now);
                tokio::time::sleep(pause(&error)).await;
                // The watch tells what the server has.
                self.note(Kind::Workload, key);
            }
        }
    }

    fn say_admitted(
        &self,
        workload: &Workload,
        reservation: &muster_admit::spec::Reservation,
        now: jiff::Timestamp,
    ) {
        let queue = &reservation.cluster_queue;
        let since = condition(workload.status(), kind::REQUEUED)
            .and_then(|c| when(c, &["lastTransitionTime"]))
            .unwrap_or(workload.metadata.created());
        let waited = muster_runtime::clock::until(since, now).as_secs();
        let words = format!("Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s");
        self.cx.events.normal(workload, "QuotaReserved", words);
        if reservation.admitted {
            let words = format!("Admitted by ClusterQueue {queue}, wait time since reservation was 0s");
            self.cx.events.normal(workload, "Admitted", words);
        }
    }

    /// Asks whether the pods of a workload would have a place.
    async fn ask(&self, workload: &Workload, given: &Value) -> Answer {
        let mut admitted = workload.clone();
        if !admitted.body["status"].is_object() {
            admitted.body["status"] = json!({});
        }
        admitted.body["status"]["admission"] = given.clone();
        let infos = match podset::infos(&admitted, |name| self.flavor(name)) {
            Ok(infos) => infos,
            Err(clash) => return Answer::Refused(clash.to_string()),
        };
        let sets = admitted
            .pod_sets()
            .iter()
            .zip(&infos)
            .filter_map(|(set, info)| {
                let mut info = info.clone();
                // The gate is for the domain, which is asked about here.
                info.gates.clear();
                let template = podset::with(&set["template"], &info).ok()?;
                Some(AskSet { name: info.name, count: info.count, template })
            })
            .collect();
        let ask = Ask {
            workload: workload.key(),
            uid: workload.metadata.uid.clone(),
            priority: crate::object::int(workload.spec(), &["priority"]).unwrap_or(0),
            sets,
        };
        self.room.hold(ask).await
    }

    /// The spec of a flavor.
    pub fn flavor(&self, name: &str) -> Option<Value> {
        self.stores.flavors.get(&Key::new("", name)).map(|flavor| flavor.spec().clone())
    }

    /// The value of a priority class; an empty name means the one for all.
    pub fn priority(&self, of: (&str, &str), name: &str) -> Option<(String, i64)> {
        if of == crate::keys::WORKLOAD_PRIORITY {
            let class = self.stores.classes.get(&Key::new("", name))?;
            return Some((name.to_owned(), class.body["value"].as_i64().unwrap_or(0)));
        }
        if name.is_empty() {
            let all = self.stores.pod_classes.all();
            let class = all.iter().filter(|c| c.global_default).min_by_key(|c| c.value)?;
            return Some((class.metadata.name.clone(), class.value));
        }
        let class = self.stores.pod_classes.get(&Key::new("", name))?;
        Some((name.to_owned(), class.value))
    }
}

/// How long to wait after a write that failed: another writer is done at once, a server that is not well is not.
fn pause(error: &ApiError) -> Duration {
    if error.conflict() { Duration::from_millis(10) } else { Duration::from_secs(1) }
}

/// Whoever had no room is tried again after this long, whatever happened.
const ASK_AGAIN: Duration = Duration::from_secs(10);
