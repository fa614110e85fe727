//! Makes scaling pods and requests for capacity while pods wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_runtime::api::{ApiError, Delete, Patch};
use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::object::Object;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::store::Change;
use muster_runtime::{Context, Key, Store};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Namespace, Options, PodTemplate, ProvisioningRequest, fractions, gangs, room_would_help, unschedulable,
};
use crate::accounts::{Members, group_of};
use crate::optional::Optional;

/// Pods of a gang are marked one after the other; one look for all of them.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// When as many requests are there as may be.
const ASK_AGAIN: Duration = Duration::from_secs(30);

struct Scale {
    cx: Context,
    options: Options,
    pods: Arc<Store<Pod>>,
    groups: Arc<Store<PodGroup>>,
    requests: Arc<Optional<ProvisioningRequest>>,
    /// One key: fractions are counted together.
    fractions: Arc<Queue<()>>,
    gangs: Arc<Queue<Key>>,
    /// Pods that may wait for a fraction; names too many are let go when somebody looks.
    candidates: Mutex<BTreeSet<Key>>,
    /// Kept only while requests can be made.
    members: Mutex<Members>,
    follows_gangs: AtomicBool,
    /// Gangs whose request does not fit what they lack, and since when.
    gaps: Mutex<BTreeMap<Key, Instant>>,
    /// Requests, by uid, of which it was said that nobody answers.
    unanswered: Mutex<BTreeSet<String>>,
    cooled_at: Mutex<Instant>,
}

pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + use<> {
    let cx = cx.named("muster-scale-adjuster");
    let scale = Arc::new(Scale {
        pods: cx.stores.of(),
        groups: cx.stores.of(),
        requests: Optional::new(&cx),
        fractions: Queue::new(),
        gangs: Queue::new(),
        candidates: Mutex::default(),
        members: Mutex::default(),
        follows_gangs: AtomicBool::new(false),
        gaps: Mutex::default(),
        unanswered: Mutex::default(),
        // Whether a scaling pod has served just before a restart is not known, so the first wait is a whole one.
        cooled_at: Mutex::new(Instant::now() + options.cooldown),
        options,
        cx,
    });
    let observer = scale.clone();
    scale.pods.observe(move |change| observer.pod_changed(change));
    let observer = scale.clone();
    scale.groups.observe(move |change| {
        observer.group_changed(change);
    });
    let observer = scale.clone();
    scale.requests.store.observe(move |change| {
        for request in change.sides() {
            if let Some(owner) = request.metadata.controller() {
                let key = Key::new(request.metadata.namespace.as_str(), owner.name.as_str());
                observer.gangs.add_after(key, LOOK_AFTER);
            }
        }
    });
    async move {
        let cx = scale.cx.clone();
        if cx.synced([scale.pods.synced()]).await.is_none()
            || cx.synced([scale.groups.synced()]).await.is_none()
        {
            return;
        }
        let small = queue::work("scale-fractions", scale.fractions.clone(), 1, cx.cancel.clone(), |()| {
            scale.look_at_fractions()
        });
        if scale.options.gang_requests {
            futures::join!(small, scale.requests.clone().run(cx.clone()), scale.follow_gangs());
        } else {
            small.await;
        }
    }
}

impl Scale {
    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let Some(pod) = change.latest() else { return };
        let is_scaling = pod.metadata.namespace == self.options.namespace;
        let may_wait = change.sides().any(|pod| fractions::may_be_stuck(pod, &self.options));
        if may_wait {
            lock(&self.candidates).insert(pod.key());
        }
        if may_wait || is_scaling {
            self.fractions.add_after((), LOOK_AFTER);
        }
        if self.follows() {
            for pod in change.sides() {
                if let Some((group, _)) = lock(&self.members).note(pod)
                    && (matters(change) || change.new.is_none())
                {
                    self.gangs.add_after(group, LOOK_AFTER);
                }
            }
        }
    }

    fn group_changed(&self, change: &Change<'_, PodGroup>) {
        let Some(group) = change.latest() else { return };
        let both = change.old.zip(change.new);
        let as_before = both.is_none_or(|(old, new)| room_would_help(old) == room_would_help(new));
        if !as_before && !lock(&self.candidates).is_empty() {
            self.fractions.add_after((), LOOK_AFTER);
        }
        let same = as_before && both.is_some_and(|(old, new)| old.spec == new.spec);
        if !same && self.follows() {
            self.gangs.add_after(group.key(), LOOK_AFTER);
        }
    }

    fn follows(&self) -> bool {
        self.follows_gangs.load(Ordering::Acquire)
    }

    async fn look_at_fractions(&self) -> Result<Next, ApiError> {
        let stuck: Vec<Arc<Pod>> = {
            let mut candidates = lock(&self.candidates);
            candidates.retain(|key| {
                self.pods.get(key).is_some_and(|pod| fractions::may_be_stuck(&pod, &self.options))
            });
            let pods = candidates.iter().filter_map(|key| self.pods.get(key));
            let stuck = pods.filter(|pod| fractions::is_stuck(pod, &self.options));
            stuck.filter(|pod| self.nodes_would_help(pod)).collect()
        };
        let scaling = self.pods.in_namespace(&self.options.namespace);
        let cooled_at = *lock(&self.cooled_at);
        let cooling = Instant::now() < cooled_at;
        let target = |key: &Key| self.pods.get(key).filter(|pod| self.nodes_would_help(pod));
        // What is refused for one of them is no reason to let the others wait.
        let mut done = Ok(());
        for action in fractions::plan(&stuck, &scaling, target, cooling, &self.options) {
            let acted = match action {
                fractions::Action::Create(body) => self.create_scaling_pod(&body).await,
                fractions::Action::Mark(key) => self.mark(&key).await,
                fractions::Action::Delete(key, uid) => self.delete_scaling_pod(&key, &uid).await,
            };
            done = done.and(acted);
        }
        done?;
        let cooled_at = *lock(&self.cooled_at);
        let left = cooled_at.saturating_duration_since(Instant::now());
        Ok(if stuck.is_empty() || left.is_zero() { Next::Idle } else { Next::After(left) })
    }

    fn nodes_would_help(&self, pod: &Pod) -> bool {
        let group = group_of(pod).and_then(|key| self.groups.get(&key));
        group.is_none_or(|group| room_would_help(&group))
    }

    async fn delete_scaling_pod(&self, key: &Key, uid: &str) -> Result<(), ApiError> {
        let delete = Delete { uid, grace_seconds: Some(0), ..Delete::default() };
        match self.cx.api.delete::<Pod>(key, delete).await {
            Ok(Some(pod)) if pod.metadata.deleting() => self.pods.enter(pod),
            Ok(_) => self.pods.remove(key, uid),
            Err(error) if error.not_found() => self.pods.remove(key, uid),
            Err(error) => return Err(error),
        }
        *lock(&self.cooled_at) = Instant::now() + self.options.cooldown;
        Ok(())
    }

    async fn create_scaling_pod(&self, body: &serde_json::Value) -> Result<(), ApiError> {
        let namespace = &self.options.namespace;
        let made = match self.cx.api.create::<Pod>(namespace, body).await {
            Err(lack) if lack.not_found() => {
                // The namespace is not there yet.
                let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                match self.cx.api.create::<Namespace>("", &space).await {
                    Ok(_) => {}
                    Err(error) if error.already_exists() => {}
                    // Who may not create it says what is not there.
                    Err(error) if error.code() == 403 => return Err(lack),
                    Err(error) => return Err(error),
                }
                self.cx.api.create::<Pod>(namespace, body).await
            }
            made => made,
        };
        match made {
            Ok(pod) => {
                tracing::info!(pod = pod.metadata.name, "asks for a whole GPU");
                let key = pod.key();
                self.pods.enter(pod);
                self.mark(&key).await
            }
            Err(error) if error.already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says that no node has room. The scheduler would say so in a moment, but an autoscaler need not wait for it.
    async fn mark(&self, key: &Key) -> Result<(), ApiError> {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "waits for a node with a whole GPU",
            "lastTransitionTime": muster_runtime::clock::stamp(self.cx.clock.now()),
        });
        let body = json!({"status": {"conditions": [condition]}});
        match self.cx.api.patch::<Pod>(key, "status", Patch::Strategic, &body).await {
            Ok(pod) => self.pods.enter(pod),
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Looks after gangs from the moment that requests can be made.
    async fn follow_gangs(&self) {
        if self.cx.synced([self.requests.arrived()]).await.is_none() {
            return;
        }
        self.follows_gangs.store(true, Ordering::Release);
        for pod in self.pods.all() {
            if let Some((group, _)) = lock(&self.members).note(&pod)
                && unschedulable(&pod).is_some()
            {
                self.gangs.add(group);
            }
        }
        // Gangs that were placed while nobody looked still have theirs.
        for request in self.requests.store.all() {
            if let Some(owner) = request.metadata.controller() {
                self.gangs.add(Key::new(request.metadata.namespace.as_str(), owner.name.as_str()));
            }
        }
        queue::work("scale-gangs", self.gangs.clone(), 2, self.cx.cancel.clone(), |key| {
            self.look_at_gang(key)
        })
        .await;
    }

    async fn look_at_gang(&self, key: Key) -> Result<Next, ApiError> {
        // Before anything else, so that names that are gone are let go even where the group is gone too.
        let pods = lock(&self.members).of(&key, &self.pods);
        let is_ours = |name: &str| self.is_of(&key, name);
        let Some(group) = self.groups.get(&key) else {
            // A group that is gone takes its requests with it: it owns them. What its pods say of them is not.
            lock(&self.gaps).remove(&key);
            self.say(gangs::marks(&pods, None, is_ours)).await?;
            return Ok(Next::Idle);
        };
        let requests = self.requests.store.owned_by(&group.metadata.uid);
        let gap = lock(&self.gaps).get(&key).map_or(Duration::ZERO, Instant::elapsed);
        let plan = gangs::plan(&group, &pods, &requests, is_ours, gap, self.cx.clock.now(), &self.options);
        if plan.in_gap {
            lock(&self.gaps).entry(key.clone()).or_insert_with(Instant::now);
        } else {
            lock(&self.gaps).remove(&key);
        }
        let mut done = self.say(plan.marks).await;
        for request in &plan.delete {
            done = done.and(self.delete(request).await);
        }
        if let Some(request) = &plan.unanswered
            && lock(&self.unanswered).insert(request.metadata.uid.clone())
        {
            let message = format!(
                "no autoscaler has said anything about ProvisioningRequest {}; its pods are left to those that look at pods",
                request.metadata.name
            );
            self.cx.events.warning(&*group, "CapacityRequestUnanswered", message);
        }
        done?;
        if let Some(request) = plan.create {
            let live = self.requests.store.all().iter().filter(|request| gangs::is_live(request)).count();
            if live >= self.options.most_requests {
                return Ok(Next::After(ASK_AGAIN));
            }
            self.create(&group, &request).await?;
            return Ok(Next::After(LOOK_AFTER));
        }
        Ok(plan.again.map_or(Next::Idle, Next::After))
    }

    /// Whether a request of this name is one of the group's, or was.
    fn is_of(&self, group: &Key, request: &str) -> bool {
        match self.requests.store.get(&Key::new(group.namespace.as_str(), request)) {
            Some(there) => {
                let owner = there.metadata.controller();
                owner.is_some_and(|o| o.kind == PodGroup::RESOURCE.kind && o.name == group.name)
            }
            None => gangs::may_have_made(&group.name, request),
        }
    }

    /// Has pods say which request they consume, or that they consume none.
    async fn say(&self, marks: Vec<(Key, Option<String>)>) -> Result<(), ApiError> {
        let mut done = Ok(());
        for (key, name) in marks {
            let body = gangs::mark_body(name.as_deref(), &self.options);
            match self.cx.api.patch::<Pod>(&key, "", Patch::Merge, &body).await {
                Ok(pod) => self.pods.enter(pod),
                Err(error) if error.not_found() => {}
                Err(error) => done = done.and(Err(error)),
            }
        }
        done
    }

    async fn create(&self, group: &PodGroup, request: &gangs::Request) -> Result<(), ApiError> {
        let namespace = &group.metadata.namespace;
        for (at, (pod, _)) in request.pod_sets.iter().enumerate() {
            let path = Pod::RESOURCE.path(&pod.namespace, &pod.name, "");
            let pod = self.cx.api.get_path(&path).await?;
            let body = gangs::template_body(group, &gangs::template_name(&request.name, at), &pod);
            match self.cx.api.create::<PodTemplate>(namespace, &body).await {
                Err(error) if !error.already_exists() => return Err(error),
                _ => {}
            }
        }
        let body = gangs::request_body(group, request, &self.options);
        match self.cx.api.create::<ProvisioningRequest>(namespace, &body).await {
            Ok(made) => {
                let n_pods: i64 = request.pod_sets.iter().map(|(_, n)| n).sum();
                let message =
                    format!("asked for nodes for {n_pods} pods by ProvisioningRequest {}", request.name);
                self.cx.events.normal(group, "CapacityRequested", message);
                self.requests.store.enter(made);
                Ok(())
            }
            Err(error) if error.already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, request: &ProvisioningRequest) -> Result<(), ApiError> {
        let key = request.key();
        lock(&self.unanswered).remove(&request.metadata.uid);
        let delete = Delete { uid: &request.metadata.uid, ..Delete::default() };
        match self.cx.api.delete::<ProvisioningRequest>(&key, delete).await {
            Ok(Some(going)) if going.metadata.deleting() => self.requests.store.enter(going),
            Ok(_) => self.requests.store.remove(&key, &request.metadata.uid),
            Err(error) if error.not_found() || error.conflict() => {
                self.requests.store.remove(&key, &request.metadata.uid);
            }
            Err(error) => return Err(error),
        }
        for name in gangs::templates_of(request) {
            let path = PodTemplate::RESOURCE.path(&key.namespace, &name, "");
            self.cx.api.delete_path(&path, Delete::default()).await?;
        }
        Ok(())
    }
}

/// Whether a change to a pod can change what its gang is missing.
fn matters(change: &Change<'_, Pod>) -> bool {
    let Some((old, new)) = change.old.zip(change.new) else { return true };
    unschedulable(old).is_some() != unschedulable(new).is_some()
        || old.is_bound() != new.is_bound()
        || old.is_over() != new.is_over()
        || old.metadata.deleting() != new.metadata.deleting()
        || group_of(old) != group_of(new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
