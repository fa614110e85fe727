//! What all controllers of this crate share: the stores they read, the queues they wake, and how actions are done.
//!
//! In: actions. Out: requests, and stores that know of them at once. Must stay true: an object that somebody else owns under a
//! name of ours is never touched, and said to be in the way; what fails does not keep the rest from being done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use muster_runtime::api::{Delete, Patch, Scope};
use muster_runtime::clock::{stamp, until};
use muster_runtime::common::{Node, Pod};
use muster_runtime::object::{Meta, Object, Resource, controller_ref};
use muster_runtime::queue::{Next, Queue};
use muster_runtime::{ApiError, Context, Key, Store};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::action::Action;
use crate::backend::{Backend, GangApi};
use crate::keys;
use crate::ledger::Ledger;
use crate::mirror::{Mirror, Wake};
use crate::object::{
    ClusterTopologyBinding, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, list, made, text,
};
use crate::settings::{BackendName, Options};

pub struct Desk {
    pub cx: Context,
    pub options: Options,
    pub sets: Arc<Store<PodCliqueSet>>,
    pub groups: Arc<Store<PodCliqueScalingGroup>>,
    pub cliques: Arc<Store<PodClique>>,
    pub gangs: Arc<Store<PodGang>>,
    pub bindings: Arc<Store<ClusterTopologyBinding>>,
    pub pods: Arc<Store<Pod>>,
    pub nodes: Arc<Store<Node>>,
    pub queues: Queues,
    /// What is made beside Grove's own kinds.
    made: Vec<Arc<Mirror>>,
    pub backends: Vec<Arc<dyn Backend>>,
    backend_mirrors: Mutex<HashMap<Kind, Arc<Mirror>>>,
    gang_api: OnceCell<GangApi>,
    /// When the references of a gang were last written.
    pub written: Mutex<HashMap<Key, Instant>>,
    /// When the status of a clique was last written.
    pub status_written: Mutex<HashMap<Key, Instant>>,
    /// When the containers of a clique, by its uid, were last told that they may start.
    pub opened: Mutex<HashMap<String, Instant>>,
    /// What is free on nodes; followed only when a gang must be held until it has room.
    pub ledger: Arc<Ledger>,
    /// The gang of those that was last let go.
    pub let_go: Mutex<Option<(Key, Instant)>>,
}

/// Group, version and kind.
type Kind = (&'static str, &'static str, &'static str);

#[derive(Clone)]
pub struct Queues {
    pub sets: Arc<Queue<Key>>,
    pub groups: Arc<Queue<Key>>,
    pub cliques: Arc<Queue<Key>>,
    pub gangs: Arc<Queue<Key>>,
    pub bindings: Arc<Queue<Key>>,
}

impl Default for Queues {
    fn default() -> Self {
        Queues {
            sets: Queue::new(),
            groups: Queue::new(),
            cliques: Queue::new(),
            gangs: Queue::new(),
            bindings: Queue::new(),
        }
    }
}

/// Changes that come together are looked at together.
const SHORT: Duration = Duration::from_millis(30);
/// A stranger's object in our way is looked for again after this long.
const IN_THE_WAY: Duration = Duration::from_secs(30);
const MANAGED: &str = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dgrove-operator";
/// Errors of one kind are written into a status at most this often.
const BETWEEN_ERRORS: Duration = Duration::from_secs(60);
/// Requests under way at a time for one object.
const AT_ONCE: usize = 32;

impl Desk {
    pub fn new(cx: Context, options: Options) -> Arc<Self> {
        let queues = Queues::default();
        let wake = wake_owner(queues.clone());
        let kinds = [
            made::SERVICE,
            made::SERVICE_ACCOUNT,
            made::ROLE,
            made::ROLE_BINDING,
            made::HPA,
            made::CLAIM,
            made::COMPUTE_DOMAIN,
        ];
        let stores = &cx.stores;
        let front = options.front;
        Arc::new(Desk {
            sets: stores.of(),
            groups: watched(&cx, front),
            cliques: watched(&cx, front),
            gangs: stores.of(),
            bindings: stores.of(),
            pods: if front { stores.within(ours()) } else { watched(&cx, false) },
            nodes: watched(&cx, front),
            made: kinds.iter().map(|kind| Mirror::new(*kind, wake.clone())).collect(),
            backends: BackendName::ALL.into_iter().map(|name| Arc::from(crate::backend::of(name))).collect(),
            backend_mirrors: Mutex::default(),
            gang_api: OnceCell::new(),
            written: Mutex::default(),
            status_written: Mutex::default(),
            opened: Mutex::default(),
            ledger: Arc::default(),
            let_go: Mutex::default(),
            queues,
            options,
            cx,
        })
    }

    pub fn backend(&self, name: BackendName) -> Option<&Arc<dyn Backend>> {
        self.backends.iter().find(|backend| backend.name() == name)
    }

    /// The copy of a kind that is made, once it is all here. A kind that is not served is empty.
    pub async fn mirror(&self, resource: Resource) -> Option<Arc<Mirror>> {
        let mirror = self.made.iter().find(|mirror| mirror.resource == resource)?;
        mirror.ready(&self.cx, MANAGED).await.then(|| mirror.clone())
    }

    /// The same of a kind that a backend writes.
    pub async fn backend_mirror(&self, resource: Resource) -> Option<Arc<Mirror>> {
        let mirror = {
            let mut mirrors = self.backend_mirrors.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (resource.group, resource.version, resource.kind);
            let wake = || wake_owner(self.queues.clone());
            mirrors.entry(key).or_insert_with(|| Mirror::new(resource, wake())).clone()
        };
        mirror.ready(&self.cx, MANAGED).await.then_some(mirror)
    }

    /// The resources that the backends of a gang have made for it.
    pub async fn backend_resources(
        &self,
        backend: &dyn Backend,
        gang: &PodGang,
    ) -> Vec<Arc<crate::mirror::Kept>> {
        let mut all = Vec::new();
        for resource in backend.resources(self.gang_api().await) {
            if let Some(mirror) = self.backend_mirror(resource).await {
                all.extend(mirror.owned_by(&gang.metadata.uid));
            }
        }
        all
    }

    /// Which gang API the server has; asked once.
    pub async fn gang_api(&self) -> GangApi {
        let ask = || async {
            for (version, api) in [("v1alpha2", GangApi::V1Alpha2), ("v1alpha1", GangApi::V1Alpha1)] {
                let path = format!("/apis/scheduling.k8s.io/{version}");
                match self.cx.api.get_path(&path).await {
                    Ok(found)
                        if list(&found, &["resources"]).iter().any(|r| text(r, &["name"]) == "workloads") =>
                    {
                        return Ok(api);
                    }
                    Ok(_) => {}
                    Err(error) if matches!(error.code(), 403 | 404) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(GangApi::None)
        };
        // When the server cannot be asked now, the next gang asks again.
        self.gang_api.get_or_try_init(ask).await.copied().unwrap_or(GangApi::None)
    }

    pub fn set_of(&self, meta: &Meta) -> Option<Arc<PodCliqueSet>> {
        let name = meta.labels.get(keys::PART_OF)?;
        self.sets.get(&Key::new(meta.namespace.clone(), name.clone()))
    }

    /// How soon after a change of one of its parts an object is looked at: many parts are taken together.
    pub fn pace(n_parts: i64) -> Duration {
        let more = u64::try_from(n_parts / 20).unwrap_or(0);
        SHORT + Duration::from_millis(more.min(1000))
    }

    pub fn wake_set(&self, key: Key) {
        let n_replicas = self.sets.get(&key).map_or(0, |set| set.replicas());
        self.queues.sets.add_after(key, Self::pace(n_replicas));
    }

    /// Does what a plan says. All is tried; the first failure is returned.
    pub async fn act<O: Object>(&self, owner: &O, actions: Vec<Action>) -> Result<Next, ApiError> {
        let mut next = Next::Idle;
        let mut first_error = None;
        // What must be said before it is done comes first, one by one.
        let (said, done): (Vec<Action>, Vec<Action>) =
            actions.into_iter().partition(|action| matches!(action, Action::PatchStatus { .. }));
        for action in said {
            self.do_one(owner, action).await?;
        }
        let mut rest = done.into_iter();
        loop {
            let batch: Vec<Action> = rest.by_ref().take(AT_ONCE).collect();
            if batch.is_empty() {
                break;
            }
            let results = join_all(batch.into_iter().map(|action| self.do_one(owner, action))).await;
            for result in results {
                match result {
                    Ok(soon) => next = next.or(soon),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            if first_error.is_some() {
                break;
            }
        }
        first_error.map_or(Ok(next), Err)
    }

    async fn do_one<O: Object>(&self, owner: &O, action: Action) -> Result<Next, ApiError> {
        match action {
            Action::Create { resource, body } => self.create(owner, resource, body).await,
            Action::CreateClaim { mut body, template } => {
                let path = format!(
                    "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates/{}",
                    template.namespace, template.name
                );
                match self.cx.api.get_path(&path).await {
                    Ok(found) => {
                        body["spec"] =
                            found.get("spec").and_then(|s| s.get("spec")).cloned().unwrap_or(json!({}));
                        self.create(owner, made::CLAIM, body).await
                    }
                    Err(error) if error.not_found() => {
                        let message = format!(
                            "there is no ResourceClaimTemplate {template}; make it, or add it to resourceClaimTemplates"
                        );
                        self.cx.events.warning(owner, "ResourceClaimTemplateMissing", message);
                        Ok(Next::After(IN_THE_WAY))
                    }
                    Err(error) => Err(error),
                }
            }
            Action::Patch { resource, key, body } => {
                let path = resource.path(&key.namespace, &key.name, "");
                match self.cx.api.patch_path(&path, Patch::Merge, &body).await {
                    Ok(value) => self.enter(resource, value).await,
                    Err(error) if error.not_found() => {}
                    Err(error) => return Err(error),
                }
                Ok(Next::Idle)
            }
            Action::PatchStatus { resource, key, version, mut body } => {
                body["metadata"]["resourceVersion"] = json!(version);
                let path = resource.path(&key.namespace, &key.name, "status");
                match self.cx.api.patch_path(&path, Patch::Merge, &body).await {
                    Ok(value) => self.enter(resource, value).await,
                    Err(error) if error.not_found() => {}
                    Err(error) => return Err(error),
                }
                Ok(Next::Idle)
            }
            Action::Delete { resource, key, uid } => {
                let path = resource.path(&key.namespace, &key.name, "");
                let delete = Delete { uid: &uid, propagation: Some("Background"), ..Delete::default() };
                match self.cx.api.delete_path(&path, delete).await {
                    Ok(_) => {}
                    // Another object has the name by now, or a writer was first: the watch tells which.
                    Err(error) if error.conflict() => return Ok(Next::After(Duration::from_secs(1))),
                    Err(error) => return Err(error),
                }
                self.forget(resource, &key, &uid).await;
                Ok(Next::Idle)
            }
        }
    }

    async fn create<O: Object>(
        &self,
        owner: &O,
        resource: Resource,
        mut body: Value,
    ) -> Result<Next, ApiError> {
        body["apiVersion"] = json!(resource.api_version());
        body["kind"] = json!(resource.kind);
        body["metadata"]["ownerReferences"] = json!([controller_ref(owner)]);
        self.create_as(owner, resource, body).await
    }

    /// Creates a body that names its owner already.
    pub async fn create_as<O: Object>(
        &self,
        owner: &O,
        resource: Resource,
        body: Value,
    ) -> Result<Next, ApiError> {
        let namespace = &owner.meta().namespace;
        match self.cx.api.create_path(&resource.path(namespace, "", ""), &body).await {
            Ok(value) => {
                self.enter(resource, value).await;
                Ok(Next::Idle)
            }
            Err(error) if error.already_exists() => {
                let name = text(&body, &["metadata", "name"]);
                let path = resource.path(namespace, name, "");
                let found = match self.cx.api.get_path(&path).await {
                    Ok(found) => found,
                    Err(error) if error.not_found() => return Ok(Next::After(SHORT)),
                    Err(error) => return Err(error),
                };
                let owners = list(&found, &["metadata", "ownerReferences"]);
                if owners.iter().any(|o| text(o, &["uid"]) == owner.meta().uid) {
                    self.enter(resource, found).await;
                    return Ok(Next::Idle);
                }
                if found.get("metadata").is_some_and(|meta| meta.get("deletionTimestamp").is_some()) {
                    return Ok(Next::After(Duration::from_secs(1)));
                }
                // Left behind by a former owner of the same name: the collector takes it.
                let kinds_match = owners.iter().any(|o| {
                    text(o, &["kind"]) == O::RESOURCE.kind && text(o, &["name"]) == owner.meta().name
                });
                if kinds_match {
                    return Ok(Next::After(Duration::from_secs(1)));
                }
                let message = format!("{} {name} exists and is not ours; rename or delete it", resource.kind);
                self.cx.events.warning(owner, "NameTaken", message);
                Ok(Next::After(IN_THE_WAY))
            }
            Err(error) => Err(error),
        }
    }

    /// Enters what the server said into whichever store keeps it.
    pub async fn enter(&self, resource: Resource, value: Value) {
        fn put<T: Object>(store: &Store<T>, value: Value) {
            match serde_json::from_value(value) {
                Ok(object) => store.enter(object),
                Err(error) => tracing::warn!(%error, "an answer that cannot be read"),
            }
        }
        match (resource.group, resource.kind) {
            ("grove.io", "PodCliqueSet") => put(&self.sets, value),
            ("grove.io", "PodClique") => put(&self.cliques, value),
            ("grove.io", "PodCliqueScalingGroup") => put(&self.groups, value),
            ("scheduler.grove.io", "PodGang") => put(&self.gangs, value),
            ("", "Pod") => put(&self.pods, value),
            _ => {
                if let Some(mirror) = self.mirror_of(resource) {
                    mirror.enter(value);
                }
            }
        }
    }

    fn mirror_of(&self, resource: Resource) -> Option<Arc<Mirror>> {
        if let Some(mirror) = self.made.iter().find(|mirror| mirror.resource == resource) {
            return Some(mirror.clone());
        }
        let mirrors = self.backend_mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        mirrors.get(&(resource.group, resource.version, resource.kind)).cloned()
    }

    /// Enters that an object was deleted; one that waits for finalizers is left to the watch.
    async fn forget(&self, resource: Resource, key: &Key, uid: &str) {
        fn drop<T: Object>(store: &Store<T>, key: &Key, uid: &str) {
            if store.get(key).is_some_and(|o| o.meta().uid == uid && o.meta().finalizers.is_empty()) {
                store.remove(key, uid);
            }
        }
        match (resource.group, resource.kind) {
            ("grove.io", "PodClique") => drop(&self.cliques, key, uid),
            ("grove.io", "PodCliqueScalingGroup") => drop(&self.groups, key, uid),
            ("scheduler.grove.io", "PodGang") => drop(&self.gangs, key, uid),
            _ => {
                if let Some(mirror) = self.mirror_of(resource)
                    && mirror.get(key).is_some_and(|kept| kept.metadata.finalizers.is_empty())
                {
                    mirror.remove(key, uid);
                }
            }
        }
    }

    /// Says in the status what went wrong.
    pub async fn note_error<T: Object>(
        &self,
        store: &Store<T>,
        object: &T,
        old: &Value,
        code: &str,
        error: &ApiError,
    ) {
        // Another writer was first: that is nothing to tell.
        if error.conflict() {
            return;
        }
        let message = error.message();
        let now = self.cx.clock.now();
        // Messages of the server name things that are never the same twice; one in a while is enough.
        let is_recent = |error: &Value| {
            let at: Option<Timestamp> = text(error, &["observedAt"]).parse().ok();
            at.is_some_and(|at| until(at, now) < BETWEEN_ERRORS)
        };
        let known = list(old, &["lastErrors"])
            .iter()
            .any(|e| text(e, &["code"]) == code && (text(e, &["description"]) == message || is_recent(e)));
        if known {
            return;
        }
        let noted = json!([{"code": code, "description": message, "observedAt": stamp(now)}]);
        let mut new = if old.is_object() { old.clone() } else { json!({}) };
        new["lastErrors"] = noted;
        if let Err(error) = store.write_status(&self.cx.api, object, old, &new).await {
            tracing::debug!(%error, "an error could not be noted");
        }
    }

    /// Takes away the finalizers that an operator before us put on an object that is going.
    pub async fn release<T: Object>(&self, store: &Store<T>, object: &T) -> Result<(), ApiError> {
        let meta = object.meta();
        let left: Vec<&String> =
            meta.finalizers.iter().filter(|name| !keys::FINALIZERS.contains(&name.as_str())).collect();
        if left.len() == meta.finalizers.len() {
            return Ok(());
        }
        let body = json!({"metadata": {"finalizers": left, "resourceVersion": meta.resource_version}});
        match self.cx.api.patch::<T>(&object.key(), "", Patch::Merge, &body).await {
            Ok(_) if left.is_empty() => store.remove(&object.key(), &meta.uid),
            Ok(_) => {}
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The store of a kind; of one that a backend by itself has no use for, an empty one that nobody fills.
fn watched<T: Object>(cx: &Context, wanted: bool) -> Arc<Store<T>> {
    if wanted { cx.stores.of() } else { Store::new(cx.api.clone(), Scope::default()) }
}

/// Of pods, only those that we made are read.
fn ours() -> Scope {
    Scope { query: MANAGED.to_owned(), ..Scope::default() }
}

/// Wakes whoever owns an object that we made.
fn wake_owner(queues: Queues) -> Wake {
    Arc::new(move |meta: &Meta| {
        for owner in &meta.owner_references {
            let key = Key::new(meta.namespace.clone(), owner.name.clone());
            match owner.kind.as_str() {
                "PodCliqueSet" => queues.sets.add_after(key, SHORT * 10),
                "PodCliqueScalingGroup" => queues.groups.add_after(key, SHORT * 2),
                "PodClique" => queues.cliques.add_after(key, SHORT * 2),
                "PodGang" => queues.gangs.add_after(key, SHORT),
                "ClusterTopologyBinding" => {
                    queues.bindings.add_after(Key::new("", owner.name.clone()), SHORT);
                }
                _ => {}
            }
        }
    })
}
