//! Keeps cliques: makes pods, frees them, deletes them.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::clock::until;
use muster_runtime::common::Pod;
use muster_runtime::json::same_but_zeros;
use muster_runtime::object::{Object, controller_ref, is_true};
use muster_runtime::queue::Next;
use muster_runtime::{ApiError, Key};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::{Plan, Seen, plan, ungate_patch};
use super::pods::pod;
use crate::backend::{Marks, Place, backend_of};
use crate::claims;
use crate::desk::Desk;
use crate::keys::{self, component, condition};
use crate::names;
use crate::object::{PodClique, PodGang, condition_status, holds, made, number};
use crate::set::plan::claim_actions;
use crate::settings::StartStep;
use crate::shape::{Clique, owned};

/// Requests under way at a time for one clique.
const AT_ONCE: usize = 64;
/// The secret that lets containers start is made again after this long, should they still wait.
const OPEN_AGAIN: Duration = Duration::from_secs(60);
/// Counts of one clique are written at most this often.
const STATUS: Duration = Duration::from_secs(1);

impl Desk {
    pub(crate) async fn look_clique(&self, key: Key) -> Result<Next, ApiError> {
        let Some(clique) = self.cliques.get(&key) else {
            self.status_written.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(Next::Idle);
        };
        if clique.metadata.deleting() {
            self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(&clique.metadata.uid);
            self.release(&self.cliques, &*clique).await?;
            return Ok(Next::Idle);
        }
        let Some(set) = self.set_of(&clique.metadata).filter(|set| !set.metadata.deleting()) else {
            return Ok(Next::Idle);
        };
        let Some(shape) = set.find_clique(&clique.metadata) else { return Ok(Next::Idle) };
        let find = |label: &str| -> Option<Arc<PodGang>> {
            let name = clique.metadata.labels.get(label)?;
            let gang = self.gangs.get(&Key::new(key.namespace.clone(), name.clone()))?;
            (!gang.metadata.deleting()).then_some(gang)
        };
        let (gang, base) = (find(keys::PODGANG), find(keys::BASE_PODGANG));
        let gang_api = self.gang_api().await;
        let mut there = Vec::new();
        let mut backend = None;
        if let Some(gang) = &gang {
            backend = backend_of(gang).and_then(|name| self.backend(name)).cloned();
            if let Some(backend) = &backend {
                there = self.backend_resources(&**backend, gang).await;
            }
        }
        let place = gang.as_ref().map(|gang| Place {
            gang,
            clique: &clique.metadata.name,
            there: &there,
            options: &self.options,
            gang_api,
        });
        let marks = match (&backend, &place) {
            (Some(backend), Some(place)) => backend.marks(place),
            _ => Marks::default(),
        };
        let pods = self.pods.owned_by(&clique.metadata.uid);
        let gates = [keys::GATE, keys::GATE_TODAY, self.options.gate.as_str()];
        let plan = plan(&Seen {
            shape,
            clique: &clique,
            pods: &pods,
            // A gang that no backend of ours knows gets no pods: they would carry the wrong marks.
            gang: gang.as_deref().filter(|_| backend.is_some()),
            base: base.as_deref(),
            gates: &gates,
            marks: &marks,
            now: self.cx.clock.now(),
        });
        if plan.lost_all {
            self.cx.events.warning(&*clique, "AllScheduledReplicasLost", "no pod has a node any more");
        }
        let body = |index: i64| {
            let (backend, place) = (backend.as_ref()?, place.as_ref()?);
            Some(pod(&shape, &clique, &**backend, place, index))
        };
        let done = self.carry_out(&clique, &shape, &plan, &body, &gates, &pods).await;
        let next = match done {
            Ok(next) => next,
            Err(error) => {
                if !error.conflict() {
                    let message = format!("pods cannot be kept as wanted: {}", error.message());
                    self.cx.events.warning(&*clique, "FailedSync", message);
                }
                self.note_error(&self.cliques, &*clique, &clique.status, "ERR_SYNC_PODS", &error).await;
                return Err(error);
            }
        };
        let next = plan.wake.map_or(next, |wake| next.or(Next::After(wake)));
        // What was just done changes the counts; the pods themselves wake the clique again.
        if !plan.create.is_empty() || !plan.ungate.is_empty() {
            return Ok(next);
        }
        if let Some(wait) =
            self.status_turn(&key, &clique, &plan.status, pods.iter().any(|pod| pod.is_bound()))
        {
            return Ok(next.or(Next::After(wait)));
        }
        self.cliques.write_status(&self.cx.api, &*clique, &clique.status, &plan.status).await?;
        Ok(next)
    }

    /// How long a status can wait; `None` when it is to be written now. Counts that move are written once in a while;
    /// what others act on is written at once. A clique in the making is spoken of when something of it is placed.
    fn status_turn(&self, key: &Key, clique: &PodClique, new: &Value, placed: bool) -> Option<Duration> {
        let old = &clique.status;
        if same_but_zeros(old, new) {
            return None;
        }
        if !old.is_object() && !placed {
            let age = until(clique.metadata.created(), self.cx.clock.now());
            if age < STATUS {
                return Some(STATUS - age);
            }
        }
        let acted_on = [
            condition::CLIQUE_SCHEDULED,
            condition::BREACHED,
            condition::AVAILABLE,
            condition::COMPLETED,
            condition::FAILED,
        ];
        let is_urgent =
            acted_on.iter().any(|kind| condition_status(old, kind) != condition_status(new, kind))
                || old.get("updateProgress") != new.get("updateProgress")
                || number(old, "observedGeneration") != number(new, "observedGeneration")
                || old.get("lastErrors").is_some();
        let now = Instant::now();
        let mut written = self.status_written.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_urgent && let Some(last) = written.get(key) {
            let since = now.saturating_duration_since(*last);
            if since < STATUS {
                return Some(STATUS - since);
            }
        }
        written.insert(key.clone(), now);
        None
    }

    async fn carry_out(
        &self,
        clique: &PodClique,
        shape: &Clique<'_>,
        plan: &Plan,
        body: &(dyn Fn(i64) -> Option<Value> + Sync),
        gates: &[&str],
        pods: &[Arc<Pod>],
    ) -> Result<Next, ApiError> {
        let mut next = Next::Idle;
        let name = &clique.metadata.name;
        if !shape.template.resource_sharing.is_empty()
            && let Some(mirror) = self.mirror(made::CLAIM).await
        {
            let wanted = claims::of_clique(shape.set, shape.template, name, clique.wanted());
            let there = mirror.owned_by(&clique.metadata.uid);
            next = next.or(self.act(clique, claim_actions(shape.set, &wanted, &there)).await?);
        }
        next = next.or(self.open_start(clique, shape, pods).await?);
        for batch in plan.delete.chunks(AT_ONCE) {
            for result in join_all(batch.iter().map(|pod| self.delete_pod(pod))).await {
                result?;
            }
        }
        let mut rest = plan.create.as_slice();
        let mut size = 1;
        while !rest.is_empty() {
            // When the first is refused, nine hundred are not tried; and no more of them are held in memory than are under way.
            let (now, later) = rest.split_at(size.min(rest.len()));
            let batch: Vec<Value> = now.iter().filter_map(|index| body(*index)).collect();
            rest = later;
            size = (size * 2).min(AT_ONCE);
            for result in join_all(batch.iter().map(|pod| self.create_pod(clique, pod))).await {
                result?;
            }
        }
        for batch in plan.ungate.chunks(AT_ONCE) {
            let patches =
                batch.iter().map(|pod| (pod, Patch::Strategic, ungate_patch(pod, gates, &plan.domain)));
            self.patch_pods(patches).await?;
        }
        for batch in plan.mark.chunks(AT_ONCE) {
            self.patch_pods(batch.iter().map(|(pod, patch)| (pod, Patch::Merge, patch.clone()))).await?;
        }
        Ok(next)
    }

    async fn create_pod(&self, clique: &PodClique, pod: &Value) -> Result<(), ApiError> {
        let created: Pod = self.cx.api.create(&clique.metadata.namespace, pod).await?;
        self.pods.enter(created);
        Ok(())
    }

    async fn delete_pod(&self, pod: &Pod) -> Result<(), ApiError> {
        let key = pod.key();
        let uid = &pod.metadata.uid;
        match self.cx.api.delete::<Pod>(&key, Delete { uid, ..Delete::default() }).await {
            Ok(Some(going))
                if going.metadata.deleting() && going.metadata.deletion_grace_period_seconds != Some(0) =>
            {
                self.pods.enter(going);
            }
            Ok(_) => self.pods.remove(&key, uid),
            // A conflict may be another pod of the same name, or a writer that was first: the watch tells which.
            Err(error) if error.not_found() => self.pods.remove(&key, uid),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn patch_pods<'a>(
        &self,
        patches: impl Iterator<Item = (&'a Arc<Pod>, Patch, Value)>,
    ) -> Result<(), ApiError> {
        let one = |(pod, kind, body): (&'a Arc<Pod>, Patch, Value)| async move {
            match self.cx.api.patch::<Pod>(&pod.key(), "", kind, &body).await {
                Ok(patched) => self.pods.enter(patched),
                Err(error) if error.not_found() => {}
                Err(error) => return Err(error),
            }
            Ok(())
        };
        for result in join_all(patches.map(one)).await {
            result?;
        }
        Ok(())
    }

    /// Lets the containers of a clique start once those before it are ready.
    async fn open_start(
        &self,
        clique: &PodClique,
        shape: &Clique<'_>,
        pods: &[Arc<Pod>],
    ) -> Result<Next, ApiError> {
        if self.options.start_step != StartStep::Secret {
            return Ok(Next::Idle);
        }
        let parents = shape.starts_after();
        if parents.is_empty() {
            return Ok(Next::Idle);
        }
        let namespace = &clique.metadata.namespace;
        let is_ready = |(name, min): &(String, i64)| {
            self.cliques.get(&Key::new(namespace.clone(), name.clone())).is_some_and(|parent| {
                number(&parent.status, "readyReplicas") >= *min || holds(&parent.status, condition::COMPLETED)
            })
        };
        if !parents.iter().all(is_ready) {
            return Ok(Next::Idle);
        }
        // Secrets are made and never read: nobody should need the right to read those of all namespaces. Whoever took one
        // away is outdone as long as somebody waits for it.
        let is_waited_for =
            pods.iter().any(|pod| pod.is_bound() && !is_true(&pod.status.conditions, "Ready"));
        let uid = &clique.metadata.uid;
        {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            match opened.get(uid) {
                Some(last) if !is_waited_for || now.saturating_duration_since(*last) < OPEN_AGAIN => {
                    return Ok(Next::Idle);
                }
                _ => {}
            }
            opened.insert(uid.clone(), now);
        }
        let name = names::start_secret(uid);
        let after: Vec<String> = parents.into_iter().map(|(name, _)| name).collect();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": owned(&shape.set.metadata.name, component::START, &clique.metadata.name),
                "ownerReferences": [controller_ref(clique)],
            },
            "stringData": {"after": after.join(",")},
        });
        match self.cx.api.create_path(&made::SECRET.path(namespace, "", ""), &body).await {
            Err(error) if !error.already_exists() => {
                self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
                Err(error)
            }
            _ => Ok(Next::After(OPEN_AGAIN)),
        }
    }
}
