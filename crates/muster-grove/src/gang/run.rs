//! Keeps gangs: their pods, their scheduler's resources, their status.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use muster_runtime::api::Patch;
use muster_runtime::queue::Next;
use muster_runtime::{ApiError, Key};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::{Member, counted, is_complete, patch, spec_of, status, want};
use super::score::score;
use crate::action::Action;
use crate::backend::{Desired, Seen, World, backend_of, owner};
use crate::conditions::merged;
use crate::desk::Desk;
use crate::keys::condition;
use crate::levels::Topology;
use crate::mirror::Kept;
use crate::object::{PodCliqueSet, PodGang, condition as condition_of};
use crate::set::plan::{contains, live};

/// References of one gang are written at most this often.
const WRITES: Duration = Duration::from_secs(1);
/// And by so much more seldom, at most, while it is large and incomplete.
const MORE: Duration = Duration::from_secs(9);
/// A backend that fails is tried again after this long, unless something changes.
const TRY_AGAIN: Duration = Duration::from_secs(30);

impl Desk {
    pub(crate) async fn look_gang(&self, key: Key) -> Result<Next, ApiError> {
        let Some(mut gang) = self.gangs.get(&key) else {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(Next::Idle);
        };
        if gang.metadata.deleting() {
            return Ok(Next::Idle);
        }
        let set = self.set_of(&gang.metadata).filter(|set| gang.metadata.controlled_by(&set.metadata.uid));
        let binding = set.as_ref().and_then(|set| self.bindings.get(&Key::new("", set.topology_name())));
        let mut next = Next::Idle;
        let mut members: Vec<Member> = Vec::new();
        if self.options.front
            && let Some(set) = &set
        {
            let groups = self.groups.owned_by(&set.metadata.uid);
            let live = live(&groups);
            // Not one that the set wants: the set deletes it.
            let Some(shape) = set.find_gang(&gang.metadata, &live) else { return Ok(Next::Idle) };
            members = shape
                .cliques
                .iter()
                .map(|clique| {
                    let name = clique.name();
                    let object = self.cliques.get(&Key::new(key.namespace.clone(), name.clone()));
                    let pods =
                        object.as_ref().map(|c| self.pods.owned_by(&c.metadata.uid)).unwrap_or_default();
                    Member { name, min: clique.template.spec.min_available(), clique: object, pods }
                })
                .collect();
            let by_name: HashMap<&str, &Member> = members.iter().map(|m| (m.name.as_str(), m)).collect();
            let pods = |clique: &str| -> Vec<String> {
                let member = by_name.get(clique);
                let pods = member.map_or(&[][..], |member| member.pods.as_slice());
                counted(pods, &key.name).map(|pod| pod.metadata.name.clone()).collect()
            };
            let topology = Topology::of(set, &self.options, |_| binding.as_deref());
            let wanted = want(set, &shape, &topology, &self.options, &pods);
            if let Some(body) = patch(&gang, &spec_of(&gang), &wanted) {
                let n_pods = members.iter().map(|member| member.pods.len()).sum();
                match self.turn(&key, is_complete(&members, &key.name), n_pods) {
                    Some(wait) => next = next.or(Next::After(wait)),
                    None => match self.cx.api.patch::<PodGang>(&key, "", Patch::Merge, &body).await {
                        Ok(patched) => {
                            self.gangs.enter(patched);
                            let Some(latest) = self.gangs.get(&key) else { return Ok(Next::Idle) };
                            gang = latest;
                        }
                        Err(error) if error.not_found() => return Ok(Next::Idle),
                        Err(error) => return Err(error),
                    },
                }
            }
        }
        let seen = self.hand_over(&gang, set.as_deref(), binding.as_deref()).await?;
        if let Some(seen) = &seen
            && let Some(error) = &seen.error
        {
            self.cx.events.warning(&*gang, "BackendFailed", error.clone());
            next = next.or(Next::After(TRY_AGAIN));
        }
        if let Some(seen) = &seen
            && !seen.losses.is_empty()
            && condition_of(&gang.status, condition::ACCEPTED).map(|c| c.message)
                != Some(seen.accepted().message)
        {
            self.cx.events.warning(&*gang, "BackendCannotHold", seen.losses.join("; "));
        }
        let now = self.cx.clock.now();
        let new = if self.options.front && set.is_some() {
            // A gang in the making is spoken of when it is made, or when that takes long.
            let complete = is_complete(&members, &key.name);
            let age = muster_runtime::clock::until(gang.metadata.created(), now);
            let is_fine = seen.as_ref().is_none_or(|seen| seen.error.is_none());
            if !complete && is_fine && age < WRITES && !gang.status.is_object() {
                return Ok(next.or(Next::After(WRITES - age)));
            }
            let score = self.score(&gang, &members);
            status(&gang, &members, seen.as_ref(), score, now)
        } else if let Some(seen) = &seen {
            let mut new = gang.status.as_object().cloned().unwrap_or_default();
            new.entry("phase").or_insert_with(|| json!("Pending"));
            new.insert("conditions".into(), merged(&gang.status, &[seen.accepted()], now));
            Value::Object(new)
        } else {
            return Ok(next);
        };
        self.gangs.write_status(&self.cx.api, &*gang, &gang.status, &new).await?;
        Ok(next)
    }

    /// How long a gang must wait with its references; `None` when it may write. Nobody needs the references of a large gang
    /// before it is complete.
    fn turn(&self, key: &Key, complete: bool, n_pods: usize) -> Option<Duration> {
        let more = if complete { Duration::ZERO } else { Duration::from_millis(n_pods as u64).min(MORE) };
        let between = WRITES + more;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(last) = written.get(key) {
            let since = now.saturating_duration_since(*last);
            if since < between {
                return Some(between - since);
            }
        }
        written.insert(key.clone(), now);
        None
    }

    fn score(&self, gang: &PodGang, members: &[Member]) -> Option<f64> {
        if gang.spec.topology_constraint.is_none()
            && gang.spec.topology_constraint_group_configs.is_empty()
            && gang.spec.podgroups.iter().all(|group| group.topology_constraint.is_none())
        {
            return Some(1.0);
        }
        let by_name: HashMap<&str, &Member> = members.iter().map(|m| (m.name.as_str(), m)).collect();
        let nodes = |name: &str| -> Vec<String> {
            let pods = by_name.get(name).map_or(&[][..], |member| member.pods.as_slice());
            let placed = counted(pods, &gang.metadata.name).filter(|pod| pod.is_bound());
            placed.map(|pod| pod.spec.node_name.clone()).collect()
        };
        let label =
            |node: &str, key: &str| self.nodes.get(&Key::new("", node))?.metadata.labels.get(key).cloned();
        score(gang, &nodes, &label)
    }

    /// Tells the scheduler of the gang, and takes back what another backend of ours told its own. Out: what came of it; `None`
    /// when the gang is another process's.
    async fn hand_over(
        &self,
        gang: &Arc<PodGang>,
        set: Option<&PodCliqueSet>,
        binding: Option<&crate::object::ClusterTopologyBinding>,
    ) -> Result<Option<Seen>, ApiError> {
        let name = backend_of(gang);
        let api = self.gang_api().await;
        for other in self.backends.iter().filter(|b| self.options.backends.contains(&b.name())) {
            if Some(other.name()) == name {
                continue;
            }
            for kept in self.backend_resources(&**other, gang).await {
                self.act(&**gang, vec![Action::delete(kept.resource, &kept.metadata)]).await?;
            }
        }
        let Some(name) = name else {
            let error = Some("no backend is known by the gang's labels".to_owned());
            return Ok(self.options.front.then(|| Seen { error, ..Seen::default() }));
        };
        if !self.options.backends.contains(&name) {
            let is_nobodys = self.options.front && !self.options.enabled.contains(&name);
            let error = Some(format!("backend {name} is not enabled"));
            return Ok(is_nobodys.then(|| Seen { backend: Some(name), error, ..Seen::default() }));
        }
        let Some(backend) = self.backend(name).cloned() else { return Ok(None) };
        let mut seen = Seen { backend: Some(name), ..Seen::default() };
        for resource in backend.resources(api) {
            if self.backend_mirror(resource).await.is_none() {
                let what = format!("{}/{}", resource.api_version(), resource.plural);
                seen.error = Some(format!("{what} is not served; install its CRDs"));
                return Ok(Some(seen));
            }
        }
        let there = self.backend_resources(&*backend, gang).await;
        let world = World { options: &self.options, set, topology: binding, gang_api: api };
        match backend.emit(gang, &there, &world) {
            Ok(emission) => {
                seen.losses = emission.losses;
                self.keep(gang, emission.resources, &there).await?;
                let there = self.backend_resources(&*backend, gang).await;
                seen.waiting = backend.observe(&there);
            }
            Err(error) => seen.error = Some(error.to_string()),
        }
        Ok(Some(seen))
    }

    /// Makes the resources of a gang what they should be.
    async fn keep(
        &self,
        gang: &Arc<PodGang>,
        wanted: Vec<Desired>,
        there: &[Arc<Kept>],
    ) -> Result<(), ApiError> {
        for desired in &wanted {
            let kept = there
                .iter()
                .find(|kept| kept.resource == desired.resource && kept.metadata.name == desired.name);
            let Some(kept) = kept else {
                self.create_desired(gang, desired).await?;
                continue;
            };
            if kept.metadata.deleting() {
                continue;
            }
            let Some(patch) = difference(kept, &desired.body) else { continue };
            if desired.immutable && patch.get("spec").is_some() {
                self.act(&**gang, vec![Action::delete(kept.resource, &kept.metadata)]).await?;
                self.create_desired(gang, desired).await?;
                continue;
            }
            let key = Key::new(gang.metadata.namespace.clone(), desired.name.clone());
            self.act(&**gang, vec![Action::Patch { resource: desired.resource, key, body: patch }]).await?;
        }
        for kept in there {
            let is_wanted =
                wanted.iter().any(|d| d.resource == kept.resource && d.name == kept.metadata.name);
            if !is_wanted && !kept.metadata.deleting() {
                self.act(&**gang, vec![Action::delete(kept.resource, &kept.metadata)]).await?;
            }
        }
        Ok(())
    }

    async fn create_desired(&self, gang: &Arc<PodGang>, desired: &Desired) -> Result<(), ApiError> {
        let mut body = desired.body.clone();
        body["apiVersion"] = json!(desired.resource.api_version());
        body["kind"] = json!(desired.resource.kind);
        body["metadata"]["name"] = json!(desired.name);
        body["metadata"]["namespace"] = json!(gang.metadata.namespace);
        body["metadata"]["ownerReferences"] = owner(gang);
        self.create_as(&**gang, desired.resource, body).await?;
        Ok(())
    }
}

/// What of a resource must be changed; labels and annotations of others stay.
pub(crate) fn difference(kept: &Kept, body: &Value) -> Option<Value> {
    let mut patch = json!({});
    for (field, have) in [("labels", &kept.metadata.labels), ("annotations", &kept.metadata.annotations)] {
        let wanted = body.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_object);
        for (key, value) in wanted.into_iter().flatten() {
            if have.get(key).map(String::as_str) != value.as_str() {
                patch["metadata"][field][key] = value.clone();
            }
        }
    }
    let wanted = body.get("spec").unwrap_or(&Value::Null);
    if !contains(&kept.spec, wanted) || has_more(&kept.spec, wanted) {
        let mut spec = wanted.clone();
        // A constraint that went must be said to be gone; a merge patch would keep it.
        if let (Some(spec), Some(have)) = (spec.as_object_mut(), kept.spec.as_object()) {
            for field in OURS.iter().filter(|field| have.contains_key(**field)) {
                match spec.get_mut(*field) {
                    None => {
                        spec.insert((*field).to_owned(), Value::Null);
                    }
                    Some(Value::Object(want)) => {
                        let gone = have.get(*field).and_then(Value::as_object).into_iter().flatten();
                        for (key, _) in gone.filter(|(key, _)| !want.contains_key(*key)).collect::<Vec<_>>() {
                            want.insert(key.clone(), Value::Null);
                        }
                    }
                    Some(_) => {}
                }
            }
        }
        patch["spec"] = spec;
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// Fields of specs that nobody but us writes.
const OURS: [&str; 4] = ["topologyConstraint", "networkTopology", "priorityClassName", "subGroupPolicy"];

fn has_more(have: &Value, want: &Value) -> bool {
    OURS.iter().any(|field| {
        let empty = |value: Option<&Value>| {
            value.is_none_or(|v| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty))
        };
        let (have, want) = (have.get(field), want.get(field));
        if empty(have) {
            return false;
        }
        if empty(want) {
            return true;
        }
        match (have, want) {
            (Some(Value::Object(have)), Some(Value::Object(want))) => {
                have.keys().any(|key| !want.contains_key(key))
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::kai::GROUP;

    #[track_caller]
    fn check(have: Value, want: Value, expected: Value) {
        let kept = Kept {
            resource: GROUP,
            metadata: serde_json::from_value(json!({"labels": {"a": "1", "theirs": "x"}})).unwrap(),
            spec: have,
            status: Value::Null,
            raw: Value::Null,
        };
        let body = json!({"metadata": {"labels": {"a": "1"}}, "spec": want});
        assert_eq!(difference(&kept, &body).unwrap_or(Value::Null), expected);
    }

    #[test]
    fn only_what_differs() {
        check(json!({"minMember": 4, "backoff": 1}), json!({"minMember": 4}), Value::Null);
        check(json!({"minMember": 4}), json!({"minMember": 7}), json!({"spec": {"minMember": 7}}));
        check(
            json!({"minMember": 1, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "r"}}),
            json!({"minMember": 1, "topologyConstraint": {}}),
            json!({"spec": {"minMember": 1, "topologyConstraint": {"topology": null, "requiredTopologyLevel": null}}}),
        );
        check(
            json!({"minMember": 1, "priorityClassName": "p"}),
            json!({"minMember": 1}),
            json!({"spec": {"minMember": 1, "priorityClassName": null}}),
        );
        check(json!({"topologyConstraint": {}}), json!({"topologyConstraint": {}}), Value::Null);
        check(
            json!({"subGroups": [{"name": "a", "minMember": 1, "topologyConstraint": {}}]}),
            json!({"subGroups": [{"name": "a", "minMember": 1}]}),
            Value::Null,
        );
    }
}
