//! Starts everything: who is looked at when, and the writes that plans ask for.
//!
//! Must stay true: every write is for a difference and for the version that was looked at; a failure comes back after a wait.

use std::sync::Arc;
use std::time::Duration;

use muster_runtime::api::{Delete, Patch, Scope};
use muster_runtime::json::merge_patch;
use muster_runtime::object::Object;
use muster_runtime::queue::{Next, work};
use muster_runtime::{Api, ApiError, Clock, Context, Key, RESYNC, Store, Stores};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::brain::time;
use crate::desk::{Desk, InUse};
use crate::jobs::Job;
use crate::jobs::plan::{Action, View, World, failed_to_start, plan};
use crate::object::{
    BatchJob, ClusterQueue, LocalQueue, ManagedPod, PlacedPod, Workload, at, condition, holds, list, text,
    time as time_at,
};
use crate::podset::set_name;
use crate::room::Room;
use crate::settings::Settings;
use crate::ungate::{self, Member};
use crate::workload::{self, Seen};
use crate::{keys, measure, pods, queues};

/// A node that is not ready for so long has failed.
const NOT_READY: Duration = Duration::from_secs(30);

/// Workloads and jobs looked at side by side.
const AT_A_TIME: usize = 16;

/// Starts Kueue: queues, workloads and the jobs that wait in them. `room` is asked where a place is required. Little is watched before the cluster
/// has a queue, nothing before it has Kueue's kinds, nor while Kueue itself runs there.
pub fn start(
    cx: &Context,
    settings: Settings,
    room: Arc<dyn Room>,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let cx = cx.named("kueue");
    async move {
        if cx.cancel.run_until_cancelled(may_begin(&cx)).await.is_none() {
            return;
        }
        let stores = Stores::new(cx.api.clone(), RESYNC, cx.cancel.clone());
        let desk = Desk::new(cx, &stores, settings, room);
        let mut watches = JoinSet::new();
        for watch in stores.take_watches() {
            watches.spawn(watch);
        }
        serve(desk).await;
    }
}

/// Where the server says which of Kueue's kinds it has.
pub const KIND_LIST: &str = "/apis/kueue.x-k8s.io/v1beta2";
/// How often it is asked whether the kinds are served.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The lease by which Kueue's own processes agree who of them works.
const THEIR_LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io";
/// A lease that was not renewed for so long is nobody's.
const STALE: Duration = Duration::from_secs(60);

/// Waits until the cluster has Kueue's kinds, and nobody else keeps them.
async fn may_begin(cx: &Context) {
    let mut said = false;
    loop {
        if is_served(cx).await {
            if !kept_by_others(&cx.api, cx.clock).await {
                return first_queue(cx).await;
            }
            if !said {
                tracing::warn!("Kueue itself runs in this cluster; its queues are left to it until it stops");
                said = true;
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn is_served(cx: &Context) -> bool {
    let found = cx.api.get_path(KIND_LIST).await;
    let names = found.iter().flat_map(|kinds| list(kinds, &["resources"])).map(|kind| text(kind, &["name"]));
    let names: Vec<&str> = names.collect();
    ["workloads", "clusterqueues", "localqueues", "resourceflavors"].iter().all(|name| names.contains(name))
}

/// Waits until there is a queue: without one nobody waits, and jobs and nodes need not be followed.
async fn first_queue(cx: &Context) {
    fn seen<T: Object>(cx: &Context, first: &Arc<Notify>) -> impl Future<Output = ()> + use<T> {
        let store = Store::<T>::new(cx.api.clone(), Scope::default());
        let first = first.clone();
        store.observe(move |_| first.notify_one());
        store.run(RESYNC, cx.cancel.clone())
    }
    let first = Arc::new(Notify::new());
    tokio::select! {
        () = first.notified() => {}
        () = seen::<ClusterQueue>(cx, &first) => {}
        () = seen::<LocalQueue>(cx, &first) => {}
    }
}

/// Whether Kueue itself runs in the cluster, and keeps its queues.
pub async fn kept_by_others(api: &Api, clock: Clock) -> bool {
    let Ok(lease) = api.get_path(THEIR_LEASE).await else { return false };
    let renewed: Option<jiff::Timestamp> = text(&lease, &["spec", "renewTime"]).parse().ok();
    !text(&lease, &["spec", "holderIdentity"]).is_empty()
        && renewed.is_some_and(|at| muster_runtime::clock::until(at, clock.now()) < STALE)
}

async fn serve(desk: Arc<Desk>) {
    let cx = desk.cx.clone();
    let cancel = || cx.cancel.clone();
    let room = desk.follow_room();
    let rest = async {
        // A cluster may not have the kinds yet; they are waited for.
        if desk.prepare().await.is_none() {
            return;
        }
        let q = desk.queues.clone();
        let turns = desk.turns();
        let workloads =
            work("kueue-workloads", q.workloads, AT_A_TIME, cancel(), |key| desk.look_workload(key));
        let jobs =
            work("kueue-jobs", q.jobs, AT_A_TIME, cancel(), |key| desk.look_job(&desk.stores.jobs, key));
        let cluster_queues =
            work("kueue-cluster-queues", q.cluster_queues, 4, cancel(), |name| desk.look_cluster_queue(name));
        let local_queues =
            work("kueue-local-queues", q.local_queues, 4, cancel(), |key| desk.look_local_queue(key));
        let pods = work("kueue-pods", q.pods, AT_A_TIME, cancel(), |key| desk.look_pods(key));
        let ungate = work("kueue-ungate", q.ungate, 4, cancel(), |key| desk.look_ungate(key));
        let cohorts = work("kueue-cohorts", q.cohorts, 1, cancel(), |name| desk.look_cohort(name));
        let usage = desk.sample_usage();
        let in_use = work("kueue-in-use", q.in_use, 2, cancel(), |what| desk.look_in_use(what));
        tokio::join!(
            turns,
            workloads,
            jobs,
            pods,
            ungate,
            cluster_queues,
            local_queues,
            cohorts,
            in_use,
            usage
        );
    };
    tokio::join!(room, rest);
}

impl Desk {
    async fn look_workload(&self, key: Key) -> Result<Next, ApiError> {
        let Some(workload) = self.stores.workloads.get(&key) else { return Ok(Next::Idle) };
        let local = self.stores.local_queues.get(&Key::new(key.namespace.clone(), workload.queue()));
        let named = local.as_ref().map(|q| text(q.spec(), &["clusterQueue"]).to_owned());
        let named = Some(workload.cluster_queue().to_owned()).filter(|n| !n.is_empty()).or(named);
        let cluster = named.and_then(|name| self.stores.cluster_queues.get(&Key::new("", name)));
        let (told, requests, is_cluster_active) = {
            let brain = self.brain();
            let name = cluster.as_ref().map_or("", |q| q.metadata.name.as_str());
            (brain.told(&key).cloned(), brain.requests(&key), brain.inactive(name).is_none())
        };
        let (lost, look_again) = self.lost_nodes(&workload);
        let plan = workload::plan(&Seen {
            workload: &workload,
            local: local.as_deref(),
            cluster: cluster.as_deref(),
            is_cluster_active,
            told: told.as_ref(),
            requests,
            is_kept: self.keeps(&workload),
            lost: &lost,
            settings: &self.settings,
            now: self.cx.clock.now(),
        });
        if let Some(patch) = &plan.patch {
            self.patch_workload(&workload, patch.clone()).await?;
        }
        if let Some(status) = &plan.status {
            let store = &self.stores.workloads;
            store.write_status(&self.cx.api, &workload, workload.status(), status).await?;
        }
        if plan.delete {
            self.delete_workload(&key, &workload.metadata.uid).await?;
        }
        for (warning, reason, message) in plan.events {
            if warning {
                self.cx.events.warning(&*workload, reason, message);
            } else {
                self.cx.events.normal(&*workload, reason, message);
            }
        }
        if plan.delete_owner {
            self.delete_owners(&workload).await?;
        }
        let after = plan.after.into_iter().chain(look_again).min();
        Ok(after.map_or(Next::Idle, Next::After))
    }

    async fn delete_owners(&self, workload: &Workload) -> Result<(), ApiError> {
        for owner in &workload.metadata.owner_references {
            let key = Key::new(workload.metadata.namespace.clone(), owner.name.clone());
            let delete = Delete { uid: &owner.uid, propagation: Some("Background"), ..Delete::default() };
            let done = match owner.kind.as_str() {
                "Job" => self.cx.api.delete::<BatchJob>(&key, delete).await.map(drop),
                "Pod" => self.cx.api.delete::<ManagedPod>(&key, delete).await.map(drop),
                _ => Ok(()),
            };
            match done {
                Err(error) if !error.not_found() && !error.conflict() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Nodes that a workload was placed on and that failed, and when to look again at those that may.
    fn lost_nodes(&self, workload: &Workload) -> (Vec<String>, Option<Duration>) {
        let mut lost = std::collections::BTreeSet::new();
        let mut again = None;
        let now = self.cx.clock.now();
        for assigned in list(workload.status(), &["admission", "podSetAssignments"]) {
            let places = at(assigned, &["topologyAssignment"]);
            if !workload.is_admitted() || !places.is_object() {
                continue;
            }
            let places = muster_translate::kueue::assignment(places);
            if places.levels.last().is_none_or(|level| &**level != "kubernetes.io/hostname") {
                continue;
            }
            for host in places.domains.iter().filter_map(|(values, _)| values.last()) {
                match self.stores.nodes.get(&Key::new("", &**host)) {
                    None => drop(lost.insert(host.to_string())),
                    Some(node) if holds(node.status(), "Ready") => {}
                    Some(node) => {
                        let since = condition(node.status(), "Ready")
                            .and_then(|c| time_at(c, &["lastTransitionTime"]))
                            .unwrap_or(now);
                        let left =
                            muster_runtime::clock::until(now, muster_runtime::clock::later(since, NOT_READY));
                        if left.is_zero() {
                            lost.insert(host.to_string());
                        } else {
                            again = Some(again.map_or(left, |known: Duration| known.min(left)));
                        }
                    }
                }
            }
        }
        (lost.into_iter().collect(), again)
    }

    /// Whether the owner of a workload is here, and is looked after.
    fn keeps(&self, workload: &Workload) -> bool {
        let namespace = &workload.metadata.namespace;
        workload.metadata.owner_references.iter().any(|owner| {
            let key = Key::new(namespace.clone(), owner.name.clone());
            match owner.kind.as_str() {
                "Job" => self.stores.jobs.get(&key).is_some_and(|job| job.metadata.uid == owner.uid),
                "Pod" => self.stores.pods.get(&key).is_some_and(|pod| pod.metadata.uid == owner.uid),
                _ => false,
            }
        })
    }

    pub(crate) async fn patch_workload(&self, workload: &Workload, mut patch: Value) -> Result<(), ApiError> {
        patch["metadata"]["resourceVersion"] = json!(workload.metadata.resource_version);
        let key = workload.key();
        match self.cx.api.patch::<Workload>(&key, "", Patch::Merge, &patch).await {
            // The last finalizer of something that is going takes it along.
            Ok(written) if written.metadata.is_last() => {
                self.stores.workloads.remove(&key, &written.metadata.uid);
                Ok(())
            }
            Ok(written) => {
                self.stores.workloads.enter(written);
                Ok(())
            }
            Err(error) if error.not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn let_workload_go(&self, workload: &Workload) -> Result<(), ApiError> {
        let left: Vec<&String> = workload.metadata.finalizers.iter().filter(|f| *f != keys::IN_USE).collect();
        self.patch_workload(workload, json!({"metadata": {"finalizers": left}})).await
    }

    pub(crate) async fn delete_workload(&self, key: &Key, uid: &str) -> Result<(), ApiError> {
        let delete = Delete { uid, propagation: Some("Background"), ..Delete::default() };
        match self.cx.api.delete::<Workload>(key, delete).await {
            Ok(Some(going)) => self.stores.workloads.enter(going),
            Ok(None) => self.stores.workloads.remove(key, uid),
            Err(error) if error.not_found() => self.stores.workloads.remove(key, uid),
            Err(error) if error.conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(crate) async fn create_workload(&self, namespace: &str, body: &Value) -> Result<bool, ApiError> {
        match self.cx.api.create::<Workload>(namespace, body).await {
            Ok(made) => {
                self.stores.workloads.enter(made);
                Ok(true)
            }
            Err(error) if error.already_exists() => {
                let key = Key::new(namespace, text(body, &["metadata", "name"]));
                if let Ok(found) = self.cx.api.get::<Workload>(&key).await {
                    self.stores.workloads.enter(found);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn look_job<J: Job>(&self, store: &Store<J>, key: Key) -> Result<Next, ApiError> {
        let Some(job) = store.get(&key) else { return Ok(Next::Idle) };
        if !self.settings.has(J::FRAMEWORK) || self.is_below(&*job) {
            return Ok(Next::Idle);
        }
        let owned = self.stores.workloads.owned_by(&job.meta().uid);
        let mut view = View::of(&*job);
        let namespace = &view.metadata.namespace;
        let is_meant =
            if view.queue.is_empty() { self.manages(namespace) } else { self.is_managed(namespace) };
        if !is_meant && owned.is_empty() {
            return Ok(Next::Idle);
        }
        if view.queue.is_empty() {
            view.queue = self.default_queue(&key.namespace).unwrap_or_default();
        }
        let actions = {
            let flavor = |name: &str| self.flavor(name);
            let priority = |of: (&str, &str), name: &str| self.priority(of, name);
            let now = self.cx.clock.now();
            plan(
                &view,
                &owned,
                &World { settings: &self.settings, now, flavor: &flavor, priority: &priority },
            )
        };
        for action in actions {
            self.act(store, &job, &owned, action).await?;
        }
        Ok(Next::Idle)
    }

    /// Whether a job without a queue is managed all the same.
    fn manages(&self, namespace: &str) -> bool {
        self.settings.managed.without_queue && self.is_managed(namespace)
    }

    /// Whether jobs of a namespace are managed if they name a queue: all whose labels do not say otherwise.
    fn is_managed(&self, namespace: &str) -> bool {
        let namespace = self.stores.namespaces.get(&Key::new("", namespace));
        namespace.is_none_or(|ns| self.settings.managed.namespaces.matches(&ns.metadata.labels))
    }

    fn default_queue(&self, namespace: &str) -> Option<String> {
        let key = Key::new(namespace, keys::DEFAULT_QUEUE);
        self.stores.local_queues.get(&key).map(|_| keys::DEFAULT_QUEUE.to_owned())
    }

    /// Whether a job belongs to another that waits in a queue itself.
    fn is_below<J: Job>(&self, job: &J) -> bool {
        let Some(owner) = job.meta().controller() else { return false };
        let key = Key::new(job.meta().namespace.clone(), owner.name.clone());
        owner.kind == "Job"
            && owner.api_version == "batch/v1"
            && self.stores.jobs.get(&key).is_some_and(|owner| owner.metadata.labels.contains_key(keys::QUEUE))
    }

    async fn act<J: Job>(
        &self,
        store: &Store<J>,
        job: &J,
        owned: &[Arc<Workload>],
        action: Action,
    ) -> Result<(), ApiError> {
        let workload = |name: &str| owned.iter().find(|w| w.metadata.name == name);
        match action {
            Action::CreateWorkload(body) => {
                self.create_workload(&job.meta().namespace, &body).await?;
            }
            Action::DeleteWorkload { name, uid } => {
                if let Some(known) = workload(&name) {
                    self.let_workload_go(known).await?;
                }
                self.delete_workload(&Key::new(job.meta().namespace.clone(), name), &uid).await?;
            }
            Action::LetGo { name } => {
                if let Some(known) = workload(&name) {
                    self.let_workload_go(known).await?;
                }
            }
            Action::PatchWorkload { name, patch } => {
                if let Some(known) = workload(&name) {
                    self.patch_workload(known, patch).await?;
                }
            }
            Action::WorkloadStatus { name, status } => {
                if let Some(known) = workload(&name) {
                    let store = &self.stores.workloads;
                    store.write_status(&self.cx.api, known, known.status(), &status).await?;
                }
            }
            Action::Start(infos) => match job.started(&infos) {
                Ok(new) => self.patch_job(store, job, &new).await?,
                Err(clash) => {
                    for known in owned {
                        let action = failed_to_start(known, &clash, self.cx.clock.now());
                        if let Action::WorkloadStatus { status, .. } = action {
                            let store = &self.stores.workloads;
                            store.write_status(&self.cx.api, known, known.status(), &status).await?;
                        }
                    }
                }
            },
            Action::Suspend => self.patch_job(store, job, &job.stopped(&[])).await?,
            Action::Restore(sets) => self.patch_job(store, job, &job.stopped(&sets)).await?,
            Action::Settle(status) => store.send_status(&self.cx.api, job, json!({"status": status})).await?,
            Action::Event { warning, reason, message } => {
                if warning {
                    self.cx.events.warning(job, reason, message);
                } else {
                    self.cx.events.normal(job, reason, message);
                }
            }
        }
        Ok(())
    }

    async fn patch_job<J: Job>(&self, store: &Store<J>, job: &J, new: &Value) -> Result<(), ApiError> {
        let Some(mut patch) = merge_patch(job.body(), new) else { return Ok(()) };
        patch["metadata"]["resourceVersion"] = json!(job.meta().resource_version);
        match self.cx.api.patch::<J>(&job.key(), "", Patch::Merge, &patch).await {
            Ok(written) => {
                store.enter(written);
                Ok(())
            }
            Err(error) if error.not_found() => Ok(()),
            Err(error) => {
                if error.code() == 422 {
                    self.cx.events.warning(job, "Refused", error.message());
                }
                Err(error)
            }
        }
    }

    async fn look_pods(&self, key: Key) -> Result<Next, ApiError> {
        let pods = self.members(&key);
        let workload = self.stores.workloads.get(&key);
        let is_meant = !pods.is_empty() && self.is_managed(&key.namespace);
        if !self.settings.has("pod") || (!is_meant && workload.is_none()) {
            return Ok(Next::Idle);
        }
        let actions = {
            let flavor = |name: &str| self.flavor(name);
            let priority = |of: (&str, &str), name: &str| self.priority(of, name);
            let now = self.cx.clock.now();
            let group = pods::Group { key: &key, pods: &pods, workload: workload.as_deref() };
            pods::plan(&group, &World { settings: &self.settings, now, flavor: &flavor, priority: &priority })
        };
        for action in actions {
            self.act_on_pods(&key, &pods, workload.as_deref(), action).await?;
        }
        Ok(Next::Idle)
    }

    async fn act_on_pods(
        &self,
        key: &Key,
        pods: &[Arc<ManagedPod>],
        workload: Option<&Workload>,
        action: pods::Action,
    ) -> Result<(), ApiError> {
        use pods::Action;
        let pod = |name: &str| pods.iter().find(|p| p.metadata.name == name);
        match action {
            Action::CreateWorkload(body) => {
                self.create_workload(&key.namespace, &body).await?;
            }
            Action::DeleteWorkload => {
                if let Some(workload) = workload {
                    self.delete_workload(key, &workload.metadata.uid).await?;
                }
            }
            Action::LetGo => {
                if let Some(workload) = workload {
                    self.let_workload_go(workload).await?;
                }
            }
            Action::PatchWorkload(patch) => {
                if let Some(workload) = workload {
                    self.patch_workload(workload, patch).await?;
                }
            }
            Action::WorkloadStatus(status) => {
                if let Some(workload) = workload {
                    let store = &self.stores.workloads;
                    store.write_status(&self.cx.api, workload, workload.status(), &status).await?;
                }
            }
            Action::PatchPod { name, patch } => {
                if let Some(pod) = pod(&name) {
                    self.patch_pod(&self.stores.pods, &**pod, patch).await?;
                }
            }
            Action::DeletePod { name, uid, reason, message } => {
                if let Some(pod) = pod(&name) {
                    self.end_pod(pod, &uid, &reason, &message).await?;
                }
            }
            Action::Finalize { name } => {
                if let Some(pod) = pod(&name) {
                    // It may have been written to since it was looked at.
                    let Some(pod) = self.stores.pods.get(&pod.key()) else { return Ok(()) };
                    let left: Vec<&String> =
                        pod.metadata.finalizers.iter().filter(|f| *f != keys::MANAGED).collect();
                    let patch = json!({"metadata": {"finalizers": left}});
                    self.patch_pod(&self.stores.pods, &*pod, patch).await?;
                }
            }
            Action::Event { name, warning, reason, message } => {
                if let Some(pod) = pod(&name) {
                    if warning {
                        self.cx.events.warning(&**pod, reason, message);
                    } else {
                        self.cx.events.normal(&**pod, reason, message);
                    }
                }
            }
        }
        Ok(())
    }

    async fn patch_pod<T: Object>(
        &self,
        store: &Store<T>,
        pod: &T,
        mut patch: Value,
    ) -> Result<(), ApiError> {
        patch["metadata"]["resourceVersion"] = json!(pod.meta().resource_version);
        match self.cx.api.patch::<T>(&pod.key(), "", Patch::Merge, &patch).await {
            Ok(written) if written.meta().is_last() => {
                store.remove(&pod.key(), &written.meta().uid);
            }
            Ok(written) => store.enter(written),
            Err(error) if error.not_found() => store.remove(&pod.key(), &pod.meta().uid),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Says on the pod why it ends, and ends it.
    async fn end_pod(
        &self,
        pod: &ManagedPod,
        uid: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), ApiError> {
        if !holds(pod.status(), "TerminationTarget") {
            let mut draft =
                crate::status::Draft::new(pod.status(), pod.metadata.generation, self.cx.clock.now());
            draft.condition("TerminationTarget", true, reason, message);
            self.stores.pods.write_status(&self.cx.api, pod, pod.status(), &draft.status).await?;
        }
        let delete = Delete { uid, ..Delete::default() };
        match self.cx.api.delete::<ManagedPod>(&pod.key(), delete).await {
            Ok(Some(going)) => self.stores.pods.enter(going),
            Ok(None) => self.stores.pods.remove(&pod.key(), uid),
            Err(error) if error.not_found() => self.stores.pods.remove(&pod.key(), uid),
            Err(error) if error.conflict() => {}
            Err(error) => return Err(error),
        }
        self.cx.events.normal(pod, "Stopped", message);
        Ok(())
    }

    /// Tells pods that wait for their domain where to go.
    async fn look_ungate(&self, key: Key) -> Result<Next, ApiError> {
        let Some(workload) = self.stores.workloads.get(&key) else { return Ok(Next::Idle) };
        if !workload.is_admitted() || workload.is_evicted() || workload.is_finished() {
            return Ok(Next::Idle);
        }
        let pods: Vec<Arc<PlacedPod>> = self
            .stores
            .placed
            .in_namespace(&key.namespace)
            .into_iter()
            .filter(|pod| pod.metadata.annotation(keys::WORKLOAD) == Some(&key.name))
            .collect();
        for assigned in list(workload.status(), &["admission", "podSetAssignments"]) {
            let places = at(assigned, &["topologyAssignment"]);
            if !places.is_object() {
                continue;
            }
            let name = set_name(assigned);
            let set = workload.pod_sets().iter().find(|set| set_name(set) == name);
            let request = set.map_or(&Value::Null, |set| at(set, &["topologyRequest"]));
            let ours: Vec<&Arc<PlacedPod>> = pods
                .iter()
                .filter(|pod| pod.metadata.labels.get(keys::POD_SET).is_some_and(|set| set == name))
                .collect();
            let members: Vec<Member> = ours.iter().map(|pod| Member::of(pod)).collect();
            let places = muster_translate::kueue::assignment(places);
            for (pod, domain) in ungate::domains(&places, request, &members) {
                let Some(pod) = ours.iter().find(|p| p.metadata.name == pod) else { continue };
                let gates: Vec<&Value> = list(pod.spec(), &["schedulingGates"])
                    .iter()
                    .filter(|g| text(g, &["name"]) != keys::TOPOLOGY_GATE)
                    .collect();
                let patch = json!({"spec": {"nodeSelector": domain, "schedulingGates": gates}});
                self.patch_pod(&self.stores.placed, &***pod, patch).await?;
            }
        }
        Ok(Next::Idle)
    }

    async fn look_cluster_queue(&self, name: String) -> Result<Next, ApiError> {
        let Some(queue) = self.stores.cluster_queues.get(&Key::new("", name.clone())) else {
            measure::without_cluster_queue(&self.cx.metrics.kueue, &name);
            return Ok(Next::Idle);
        };
        let now = self.cx.clock.now();
        let status = {
            let mut brain = self.brain();
            let Some(facts) = brain.cluster_queue(&name, time(now)) else { return Ok(Next::Idle) };
            if facts.share.is_some()
                && let cohort = text(queue.spec(), &["cohortName"])
                && !cohort.is_empty()
            {
                self.queues.cohorts.add(cohort.to_owned());
            }
            let inactive = brain.inactive(&name);
            measure::cluster_queue(&self.cx.metrics.kueue, &queue, &facts, inactive.is_none());
            queues::cluster_queue(&queue, &facts, inactive, now)
        };
        let store = &self.stores.cluster_queues;
        store.write_status(&self.cx.api, &queue, queue.status(), &status).await?;
        if queue.metadata.deleting() {
            self.queues.in_use.add(InUse::ClusterQueue(name));
        }
        Ok(Next::Idle)
    }

    async fn look_local_queue(&self, key: Key) -> Result<Next, ApiError> {
        let Some(queue) = self.stores.local_queues.get(&key) else {
            measure::without_local_queue(&self.cx.metrics.kueue, &key);
            return Ok(Next::Idle);
        };
        let now = self.cx.clock.now();
        let status = {
            let mut brain = self.brain();
            let Some(facts) = brain.local_queue(&key, time(now)) else { return Ok(Next::Idle) };
            measure::local_queue(&self.cx.metrics.kueue, &key, &facts);
            let cluster = text(queue.spec(), &["clusterQueue"]);
            let is = brain.knows(cluster).then(|| brain.inactive(cluster).is_none());
            queues::local_queue(&queue, &facts, is, now)
        };
        let store = &self.stores.local_queues;
        store.write_status(&self.cx.api, &queue, queue.status(), &status).await?;
        Ok(Next::Idle)
    }

    /// Where local queues take turns by what they used: counts that, from time to time.
    async fn sample_usage(&self) {
        let Some(sharing) = &self.settings.admit.usage_sharing else { return };
        let every =
            Duration::from_millis(u64::try_from(sharing.sampling.0).unwrap_or(0)).max(Duration::from_secs(1));
        let work = async {
            loop {
                tokio::time::sleep(every).await;
                let now = self.cx.clock.now();
                let used = self.brain().sample_usage(time(now));
                for (key, consumed) in used {
                    let Some(queue) = self.stores.local_queues.get(&key) else { continue };
                    let mut draft = crate::status::Draft::new(queue.status(), queue.metadata.generation, now);
                    draft.set(
                        "fairSharing",
                        json!({"weightedShare": 0, "admissionFairSharingStatus": {
                            "consumedResources": consumed, "lastUpdate": muster_runtime::clock::stamp(now)}}),
                    );
                    let store = &self.stores.local_queues;
                    let done = store.write_status(&self.cx.api, &queue, queue.status(), &draft.status).await;
                    if let Err(error) = done {
                        tracing::debug!(queue = %key, %error, "usage was not written");
                    }
                }
                // Whose turn it is may have changed.
                self.wake_turn();
            }
        };
        self.cx.cancel.run_until_cancelled(work).await;
    }

    async fn look_cohort(&self, name: String) -> Result<Next, ApiError> {
        let Some(cohort) = self.stores.cohorts.get(&Key::new("", name.clone())) else {
            return Ok(Next::Idle);
        };
        let share = self.brain().cohort_share(&name, time(self.cx.clock.now()));
        let Some(share) = share else { return Ok(Next::Idle) };
        if let Ok(share) = u32::try_from(share) {
            self.cx.metrics.kueue.cohort_share.of([&name]).set(f64::from(share));
        }
        let mut status = cohort.status().clone();
        status["fairSharing"] = json!({"weightedShare": share});
        let store = &self.stores.cohorts;
        store.write_status(&self.cx.api, &cohort, cohort.status(), &status).await?;
        let parent = text(cohort.spec(), &["parentName"]);
        if !parent.is_empty() {
            self.queues.cohorts.add(parent.to_owned());
        }
        Ok(Next::Idle)
    }

    /// Keeps what is in use from being deleted, and lets it go when it is not.
    async fn look_in_use(&self, what: InUse) -> Result<Next, ApiError> {
        let s = &self.stores;
        let queues = || s.cluster_queues.all().into_iter();
        match what {
            InUse::ClusterQueue(name) => {
                let used = s.workloads.all().iter().any(|w| !w.is_finished() && w.cluster_queue() == name);
                self.keep(&s.cluster_queues, &name, used).await
            }
            InUse::Flavor(name) => {
                let names = |queue: Arc<ClusterQueue>| {
                    list(queue.spec(), &["resourceGroups"])
                        .iter()
                        .flat_map(|group| list(group, &["flavors"]))
                        .any(|flavor| text(flavor, &["name"]) == name)
                };
                let used = queues().any(names);
                self.keep(&s.flavors, &name, used).await?;
                if let Some(flavor) = s.flavors.get(&Key::new("", name)) {
                    let topology = text(flavor.spec(), &["topologyName"]);
                    if !topology.is_empty() {
                        self.queues.in_use.add(InUse::Topology(topology.to_owned()));
                    }
                }
                Ok(Next::Idle)
            }
            InUse::Check(name) => {
                let names = |queue: Arc<ClusterQueue>| {
                    list(queue.spec(), &["admissionChecksStrategy", "admissionChecks"])
                        .iter()
                        .any(|check| text(check, &["name"]) == name)
                };
                let used = queues().any(names);
                self.keep(&s.checks, &name, used).await
            }
            InUse::Topology(name) => {
                let used =
                    s.flavors.all().iter().any(|flavor| text(flavor.spec(), &["topologyName"]) == name);
                self.keep(&s.topologies, &name, used).await
            }
        }
    }

    async fn keep<T: Object>(&self, store: &Store<T>, name: &str, used: bool) -> Result<Next, ApiError> {
        let key = Key::new("", name);
        let Some(object) = store.get(&key) else { return Ok(Next::Idle) };
        let meta = object.meta();
        let Some(finalizers) = queues::finalizers(meta, used) else { return Ok(Next::Idle) };
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}});
        match self.cx.api.patch::<T>(&key, "", Patch::Merge, &patch).await {
            Ok(written) if written.meta().is_last() => {
                store.remove(&key, &written.meta().uid);
            }
            Ok(written) => store.enter(written),
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(Next::Idle)
    }
}

/// The kinds of jobs that are looked after here, by the names that a configuration gives them.
pub const FRAMEWORKS: &[&str] = &[<BatchJob as Job>::FRAMEWORK, "pod"];
