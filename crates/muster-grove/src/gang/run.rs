//! Keeps gangs: their pods, their scheduler's resources, their status.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use muster_runtime::api::Patch;
use muster_runtime::object::Object;
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
use crate::keys::{self, condition};
use crate::levels::Topology;
use crate::mirror::Kept;
use crate::object::{PodCliqueSet, PodGang, condition as condition_of, holds, text};
use crate::room::{Group, Pack, asks, fits};
use crate::set::plan::{contains, live};
use crate::settings::BackendName;

/// References of one gang are written at most this often.
const WRITES: Duration = Duration::from_secs(1);
/// And by so much more seldom, at most, while it is large and incomplete.
const MORE: Duration = Duration::from_secs(9);
/// Whether there is room for a gang is looked at this often.
const HELD: Duration = Duration::from_secs(2);
/// One gang at a time is let go; the next one waits until its minimum has nodes, or for this long.
const LETTING_GO: Duration = Duration::from_secs(30);
/// A gang that was let go and of which nothing has a node for so long is held again, should its room be gone.
const HELD_AGAIN: Duration = Duration::from_secs(60);
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
        if seen.as_ref().is_some_and(|seen| seen.held.is_some()) {
            next = next.or(Next::After(HELD));
            // Where its pods are to be was written on it.
            if let Some(latest) = self.gangs.get(&key) {
                gang = latest;
            }
        }
        if seen.as_ref().is_some_and(|seen| seen.unplaced) {
            next = next.or(Next::After(HELD_AGAIN));
        }
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
        let begun = Instant::now();
        let there = self.backend_resources(&*backend, gang).await;
        let world = World { options: &self.options, set, topology: binding, gang_api: api };
        match backend.emit(gang, &there, &world) {
            Ok(emission) => {
                let hold = emission.hold;
                seen.losses = emission.losses;
                self.keep(gang, emission.resources, &there).await?;
                let there = self.backend_resources(&*backend, gang).await;
                seen.waiting = backend.observe(&there);
                if hold {
                    seen.held = self.hold(gang, set).await?;
                    seen.unplaced = seen.held.is_none() && !holds(&gang.status, condition::SCHEDULED);
                }
            }
            Err(error) => seen.error = Some(error.to_string()),
        }
        self.count_hand_over(gang, &seen, begun.elapsed());
        Ok(Some(seen))
    }

    /// Why the pods of a gang whose scheduler cannot be told of the whole must wait; `None` when all of them have room, or some have
    /// nodes already. One that was let go is held again when none of it found a node and its room is gone.
    async fn hold(
        &self,
        gang: &Arc<PodGang>,
        set: Option<&PodCliqueSet>,
    ) -> Result<Option<String>, ApiError> {
        let key = gang.key();
        let was_let_go = holds(&gang.status, condition::ACCEPTED);
        if holds(&gang.status, condition::SCHEDULED) || (was_let_go && is_anywhere(gang)) {
            self.let_go_of(&key);
            return Ok(None);
        }
        if !holds(&gang.status, condition::INITIALIZED) {
            return Ok(Some("its pods are being made".to_owned()));
        }
        if was_let_go && self.let_go_since(gang) < HELD_AGAIN {
            // It had room, and its scheduler has not placed all of it yet.
            return Ok(None);
        }
        let Some(set) = set else { return Ok(None) };
        let groups = self.groups.owned_by(&set.metadata.uid);
        let specs: HashMap<String, Value> = match set.find_gang(&gang.metadata, &live(&groups)) {
            Some(shape) => {
                let of = |clique: &crate::shape::Clique<'_>| {
                    (clique.name(), clique.template.spec.pod_spec.clone())
                };
                shape.cliques.iter().map(of).collect()
            }
            None => return Ok(None),
        };
        if !was_let_go && let Some(other) = self.others_turn(&key) {
            return Ok(Some(format!("{other} is being placed")));
        }
        let (groups, packs) = needs(gang, &specs);
        let sites = self.ledger.sites(&self.cx).await;
        if was_let_go && self.ledger.n_placed(&key) > 0 {
            // What has a node may run already, and is not taken back.
            return Ok(None);
        }
        let domains = match fits(&sites, &groups, &packs) {
            Ok(domains) => domains,
            Err(why) => {
                self.let_go_of(&key);
                return Ok(Some(why));
            }
        };
        if was_let_go {
            return Ok(None);
        }
        if !domains.is_empty() {
            let body = json!({"metadata": {"annotations": {keys::DOMAINS: json!(domains).to_string()}}});
            match self.cx.api.patch::<PodGang>(&key, "", Patch::Merge, &body).await {
                Ok(patched) => self.gangs.enter(patched),
                Err(error) if error.not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let mut turn = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = Some((key, Instant::now()));
        Ok(None)
    }

    /// For how long a gang has been let go.
    fn let_go_since(&self, gang: &PodGang) -> Duration {
        let since = condition_of(&gang.status, condition::ACCEPTED).and_then(|c| c.last_transition_time);
        since.map_or(Duration::ZERO, |since| muster_runtime::clock::until(since, self.cx.clock.now()))
    }

    /// The gang that was let go and has no nodes yet.
    fn others_turn(&self, key: &Key) -> Option<Key> {
        let turn = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        let (other, since) = turn.as_ref()?;
        let still = self.gangs.get(other).is_some_and(|gang| !holds(&gang.status, condition::SCHEDULED));
        (other != key && still && since.elapsed() < LETTING_GO).then(|| other.clone())
    }

    fn let_go_of(&self, key: &Key) {
        let mut turn = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.as_ref().is_some_and(|(other, _)| other == key) {
            *turn = None;
        }
    }

    fn count_hand_over(&self, gang: &PodGang, seen: &Seen, took: Duration) {
        let Some(name) = seen.backend.map(BackendName::as_str) else { return };
        let grove = &self.cx.metrics.grove;
        grove.hand_over.of([name]).took(took);
        let was = condition_of(&gang.status, condition::ACCEPTED);
        if seen.error.is_some() {
            grove.errors.of([name]).inc();
        } else if was.as_ref().is_none_or(|was| was.status != "True") {
            let since = muster_runtime::clock::until(gang.metadata.created(), self.cx.clock.now());
            grove.ready_after.of([name]).took(since);
            if !seen.losses.is_empty() {
                grove.losses.of([name]).inc();
            }
        }
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

/// Whether some pod of a gang has a node; its phase and its conditions say so only of all.
fn is_anywhere(gang: &PodGang) -> bool {
    matches!(text(&gang.status, &["phase"]), "Starting" | "Running" | "Succeeded" | "Failed")
}

/// The minima of a gang, and what must be together, from the widest to the narrowest.
fn needs(gang: &PodGang, specs: &HashMap<String, Value>) -> (Vec<Group>, Vec<Pack>) {
    let spec = &gang.spec;
    let groups: Vec<Group> = spec
        .podgroups
        .iter()
        .map(|group| {
            let pod = specs.get(&group.name).cloned().unwrap_or_default();
            Group { name: group.name.clone(), n_pods: group.min_replicas, asks: asks(&pod), spec: pod }
        })
        .collect();
    let required = |of: &Option<crate::object::GangConstraint>| -> Option<String> {
        of.as_ref().map(|of| of.levels().0.to_owned()).filter(|key| !key.is_empty())
    };
    let mut packs: Vec<Pack> = Vec::new();
    if let Some(key) = required(&spec.topology_constraint) {
        packs.push(Pack { key, groups: spec.podgroups.iter().map(|group| group.name.clone()).collect() });
    }
    for config in &spec.topology_constraint_group_configs {
        if let Some(key) = required(&config.topology_constraint) {
            packs.push(Pack { key, groups: config.pod_group_names.iter().cloned().collect() });
        }
    }
    for group in &spec.podgroups {
        if let Some(key) = required(&group.topology_constraint) {
            packs.push(Pack { key, groups: [group.name.clone()].into() });
        }
    }
    (groups, packs)
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

/// Lists whose every element is ours.
const OUR_LISTS: [&str; 2] = ["subGroups", "subGroupPolicy"];

fn is_nothing(value: Option<&Value>) -> bool {
    value.is_none_or(|v| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty))
}

/// Whether an element of a list says something that it should not say any more.
fn elements_have_more(have: &Value, want: &Value) -> bool {
    OUR_LISTS.iter().any(|field| {
        let elements = |spec: &Value| spec.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let (have, want) = (elements(have), elements(want));
        have.len() != want.len()
            || have.iter().zip(&want).any(|(have, want)| {
                let said =
                    have.as_object().into_iter().flatten().filter(|(_, value)| !is_nothing(Some(value)));
                said.into_iter().any(|(key, value)| match (value, want.get(key)) {
                    (_, wanted) if is_nothing(wanted) => true,
                    (Value::Object(have), Some(Value::Object(want))) => {
                        have.keys().any(|key| is_nothing(want.get(key)))
                    }
                    _ => false,
                })
            })
    })
}

fn has_more(have: &Value, want: &Value) -> bool {
    if elements_have_more(have, want) {
        return true;
    }
    OURS.iter().any(|field| {
        let empty = is_nothing;
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
        let group = |more: Value| {
            let mut group = json!({"name": "a", "minMember": 1});
            group.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"subGroups": [group]})
        };
        for gone in [
            json!({"parent": "p"}),
            json!({"topologyConstraint": {"requiredTopologyLevel": "r", "topology": "t"}}),
        ] {
            check(group(gone), group(json!({})), json!({"spec": group(json!({}))}));
        }
        check(
            group(json!({"topologyConstraint": {"requiredTopologyLevel": "r", "topology": "t"}})),
            group(json!({"topologyConstraint": {"topology": "t"}})),
            json!({"spec": group(json!({"topologyConstraint": {"topology": "t"}}))}),
        );
    }
}
