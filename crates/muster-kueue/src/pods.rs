//! Plain pods, and groups of them.
//!
//! In: the pods of a group, their workload, and what has to be known besides. Out: [`Action`]s. A pod cannot be suspended: it is born with a gate, which
//! is taken away when its workload is admitted; when that must go, the pod is deleted. Must stay true: a pod is held by its finalizer until it was
//! counted, and the last pods of a group until others took their place, for the group lives as long as they do; no role gets more pods than it
//! asked quota for.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_runtime::Key;
use muster_runtime::json::merge_patch;
use muster_runtime::object::Object;
use serde_json::{Value, json};

use crate::jobs::plan::World;
use crate::keys::{self, condition as kind};
use crate::object::{ManagedPod, Workload, at, condition, holds, int, list, text};
use crate::podset::{self, pod_set, set_name};
use crate::status::Draft;

/// The workload that a pod belongs to: that of its group, or its own.
pub fn group_key(pod: &ManagedPod) -> Key {
    let meta = &pod.metadata;
    let name = match meta.labels.get(keys::GROUP_NAME) {
        Some(group) => group.clone(),
        None => crate::names::workload("", "Pod", &meta.name, &meta.uid),
    };
    Key::new(meta.namespace.clone(), name)
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    CreateWorkload(Value),
    DeleteWorkload,
    /// Takes our finalizer from the workload.
    LetGo,
    PatchWorkload(Value),
    WorkloadStatus(Value),
    /// A merge patch of a pod.
    PatchPod {
        name: String,
        patch: Value,
    },
    /// A condition that says why, and then the end.
    DeletePod {
        name: String,
        uid: String,
        reason: String,
        message: String,
    },
    /// Takes our finalizer from a pod.
    Finalize {
        name: String,
    },
    Event {
        name: String,
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

/// A group of pods, or one pod.
pub struct Group<'a> {
    pub key: &'a Key,
    pub pods: &'a [Arc<ManagedPod>],
    pub workload: Option<&'a Workload>,
}

fn is_over(pod: &ManagedPod) -> bool {
    matches!(text(pod.status(), &["phase"]), "Succeeded" | "Failed")
}

fn succeeded(pod: &ManagedPod) -> bool {
    text(pod.status(), &["phase"]) == "Succeeded"
}

fn is_gated(pod: &ManagedPod) -> bool {
    list(pod.spec(), &["schedulingGates"]).iter().any(|g| text(g, &["name"]) == keys::ADMISSION_GATE)
}

/// It runs, or will.
fn is_alive(pod: &ManagedPod) -> bool {
    !is_over(pod) && !pod.metadata.deleting()
}

/// Something of it may still run. A pod that goes before it had a node never did.
fn may_run(pod: &ManagedPod) -> bool {
    let never = pod.metadata.deleting() && text(pod.spec(), &["nodeName"]).is_empty();
    !is_over(pod) && !is_gated(pod) && !never
}

fn is_held(pod: &ManagedPod) -> bool {
    pod.metadata.finalizers.iter().any(|f| f == keys::MANAGED)
}

fn finalize(pod: &Arc<ManagedPod>) -> Option<Action> {
    is_held(pod).then(|| Action::Finalize { name: pod.metadata.name.clone() })
}

impl Group<'_> {
    fn is_group(&self) -> bool {
        self.pods.iter().any(|pod| pod.metadata.labels.contains_key(keys::GROUP_NAME))
            || self.workload.is_some_and(|w| w.metadata.annotations.contains_key(keys::IS_GROUP))
    }

    fn annotation(&self, name: &str) -> &str {
        self.pods.iter().find_map(|pod| pod.metadata.annotation(name)).unwrap_or_default()
    }

    fn total(&self) -> usize {
        if !self.is_group() {
            return 1;
        }
        self.annotation(keys::GROUP_COUNT).parse().unwrap_or(self.pods.len().max(1))
    }

    fn queue(&self) -> &str {
        self.pods.iter().find_map(|pod| pod.metadata.labels.get(keys::QUEUE)).map_or("", String::as_str)
    }
}

/// The role of a pod in its group: pods of one role ask for the same.
pub fn role(pod: &ManagedPod) -> String {
    match pod.metadata.annotation(keys::ROLE_HASH) {
        Some(role) if !role.is_empty() => role.to_owned(),
        _ => crate::names::role(&role_shape(pod.spec())),
    }
}

/// What pods of one role have in common.
pub fn role_shape(spec: &Value) -> Value {
    let containers = |field: &str| -> Vec<Value> {
        list(spec, &[field])
            .iter()
            .map(|c| json!({"resources": at(c, &["resources", "requests"]), "ports": at(c, &["ports"])}))
            .collect()
    };
    json!({
        "containers": containers("containers"),
        "initContainers": containers("initContainers"),
        "nodeSelector": at(spec, &["nodeSelector"]),
        "affinity": at(spec, &["affinity"]),
        "priority": at(spec, &["priority"]),
        "overhead": at(spec, &["overhead"]),
        "resourceClaims": at(spec, &["resourceClaims"]),
        "runtimeClassName": at(spec, &["runtimeClassName"]),
        "topologySpreadConstraints": at(spec, &["topologySpreadConstraints"]),
    })
}

pub fn plan(group: &Group<'_>, world: &World<'_>) -> Vec<Action> {
    let Some(workload) = group.workload else { return begin(group, world) };
    let ours = workload.metadata.owner_references.iter().all(|owner| owner.kind == "Pod");
    if !ours {
        let name = group.pods.first().map(|pod| pod.metadata.name.clone()).unwrap_or_default();
        let message =
            format!("Workload {} belongs to another owner; choose another name for the group", group.key);
        return vec![Action::Event { name, warning: true, reason: "NameTaken", message }];
    }
    if workload.metadata.deleting() {
        return leave(group, "Workload is deleted");
    }
    if workload.is_finished() {
        let mut actions: Vec<Action> = group.pods.iter().filter_map(finalize).collect();
        if workload.metadata.finalizers.iter().any(|f| f == keys::IN_USE) {
            actions.push(Action::LetGo);
        }
        return actions;
    }
    if let Some(status) = ended(group, workload, world) {
        return vec![Action::WorkloadStatus(status)];
    }
    // Whoever deletes all pods of a group wants none of it.
    if !group.pods.is_empty() && group.pods.iter().all(|p| p.metadata.deleting()) && !workload.is_evicted() {
        let waits_for_others = holds(workload.status(), "WaitingForReplacementPods");
        if !waits_for_others {
            return vec![Action::DeleteWorkload];
        }
    }
    if workload.is_evicted() && workload.has_quota() {
        return evicted(group, workload, world);
    }
    let mut actions = owners(group, workload);
    actions.extend(replaced(group));
    actions.extend(too_many(group, workload));
    if !actions.is_empty() {
        return actions;
    }
    if workload.is_admitted() {
        return run(group, workload, world);
    }
    waiting(group, workload, world)
}

/// There is no workload yet.
fn begin(group: &Group<'_>, world: &World<'_>) -> Vec<Action> {
    let mut actions: Vec<Action> =
        group.pods.iter().filter(|p| p.metadata.deleting() || is_over(p)).filter_map(finalize).collect();
    let alive: Vec<&Arc<ManagedPod>> = group.pods.iter().filter(|p| is_alive(p)).collect();
    if alive.is_empty() {
        return actions;
    }
    let running: Vec<&&Arc<ManagedPod>> = alive.iter().filter(|p| !is_gated(p)).collect();
    if !running.is_empty() {
        let stop = |pod: &&&Arc<ManagedPod>| Action::DeletePod {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            reason: "StoppedByKueue".into(),
            message: "Missing Workload".into(),
        };
        actions.extend(running.iter().map(stop));
        return actions;
    }
    let is_fast = group.annotation(keys::GROUP_FAST) == "true";
    if group.is_group() && alive.len() < group.total() && !is_fast {
        return actions;
    }
    actions.push(Action::CreateWorkload(workload_for(group, &alive, world)));
    actions
}

/// The template of a pod, as it would be without us.
fn template(pod: &ManagedPod) -> Value {
    let meta = &pod.metadata;
    let mut spec = pod.spec().clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nodeName");
        let gates: Vec<Value> = spec
            .get("schedulingGates")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|g| !matches!(text(g, &["name"]), keys::ADMISSION_GATE | keys::TOPOLOGY_GATE))
            .cloned()
            .collect();
        spec.remove("schedulingGates");
        if !gates.is_empty() {
            spec.insert("schedulingGates".into(), json!(gates));
        }
    }
    json!({"metadata": {"labels": meta.labels, "annotations": meta.annotations}, "spec": spec})
}

fn workload_for(group: &Group<'_>, pods: &[&Arc<ManagedPod>], world: &World<'_>) -> Value {
    let mut sets: Vec<Value> = Vec::new();
    if group.is_group() {
        let mut roles: BTreeMap<String, Vec<&Arc<ManagedPod>>> = BTreeMap::new();
        for pod in pods {
            roles.entry(role(pod)).or_default().push(pod);
        }
        let missing = group.total().saturating_sub(pods.len());
        let index = match group.annotation(keys::GROUP_INDEX_LABEL) {
            "" => keys::GROUP_INDEX,
            label => label,
        };
        let n_roles = roles.len();
        for (i, (role, members)) in roles.into_iter().enumerate() {
            let Some(first) = members.first() else { continue };
            // Whoever did not come yet is like the last of those who came.
            let extra = if i + 1 == n_roles { missing } else { 0 };
            let n = i64::try_from(members.len() + extra).unwrap_or(i64::MAX);
            sets.push(pod_set(&role, n, &template(first), None, Some(index)));
        }
    } else if let Some(pod) = pods.first() {
        sets.push(pod_set("main", 1, &template(pod), None, None));
    }
    let mut spec = json!({"podSets": sets, "queueName": group.queue(), "active": true, "priority": 0});
    let label = pods.iter().find_map(|pod| pod.metadata.labels.get(keys::PRIORITY_CLASS));
    let class = pods.iter().map(|pod| text(pod.spec(), &["priorityClassName"])).find(|c| !c.is_empty());
    let found = match (label, class) {
        (Some(label), _) => {
            (world.priority)(keys::WORKLOAD_PRIORITY, label).map(|f| (keys::WORKLOAD_PRIORITY, f))
        }
        (None, class) => {
            (world.priority)(keys::POD_PRIORITY, class.unwrap_or("")).map(|f| (keys::POD_PRIORITY, f))
        }
    };
    if let Some(((class_group, class_kind), (name, value))) = found {
        spec["priority"] = json!(value);
        spec["priorityClassRef"] = json!({"group": class_group, "kind": class_kind, "name": name});
    }
    let mut metadata = json!({
        "name": group.key.name,
        "namespace": group.key.namespace,
        "finalizers": [keys::IN_USE],
        "ownerReferences": pods.iter().map(|pod| owner(pod, !group.is_group())).collect::<Vec<_>>(),
    });
    if group.is_group() {
        metadata["annotations"] = json!({keys::IS_GROUP: "true"});
    } else if let Some(pod) = pods.first() {
        metadata["labels"] = json!({keys::JOB_UID: pod.metadata.uid});
    }
    json!({
        "apiVersion": Workload::RESOURCE.api_version(),
        "kind": Workload::RESOURCE.kind,
        "metadata": metadata,
        "spec": spec,
    })
}

fn owner(pod: &ManagedPod, controls: bool) -> Value {
    let mut owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid});
    if controls {
        owner["controller"] = json!(true);
        owner["blockOwnerDeletion"] = json!(true);
    }
    owner
}

/// The workload is going: so are its pods.
fn leave(group: &Group<'_>, message: &str) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    for pod in group.pods {
        if is_alive(pod) {
            actions.push(Action::DeletePod {
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
                reason: "StoppedByKueue".into(),
                message: message.to_owned(),
            });
        }
        if !may_run(pod) {
            actions.extend(finalize(pod));
        }
    }
    if !group.pods.iter().any(|p| may_run(p)) {
        actions.push(Action::LetGo);
    }
    actions
}

/// The status of a workload whose pods are done.
fn ended(group: &Group<'_>, workload: &Workload, world: &World<'_>) -> Option<Value> {
    if group.pods.is_empty() {
        return None;
    }
    let total = group.total();
    let n = group.pods.iter().filter(|p| succeeded(p)).count();
    let (success, message) = if group.is_group() {
        let unretriable = group.pods.iter().any(|p| p.metadata.annotation(keys::RETRIABLE) == Some("false"));
        let all_over = group.pods.iter().all(|p| is_over(p));
        let serving = group.annotation(keys::GROUP_SERVING) == "true";
        if serving || !(n >= total || (unretriable && all_over)) {
            return None;
        }
        (n >= total, format!("Pods succeeded: {n}/{total}."))
    } else {
        let pod = group.pods.first().filter(|p| is_over(p) && !workload.is_evicted())?;
        let said = text(pod.status(), &["message"]).to_owned();
        let plain = if succeeded(pod) { "Job finished successfully" } else { "Job failed" };
        (succeeded(pod), if said.is_empty() { plain.to_owned() } else { said })
    };
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
    let reason = if success { "Succeeded" } else { "Failed" };
    draft.condition(kind::FINISHED, true, reason, &message);
    Some(draft.status)
}

fn evicted(group: &Group<'_>, workload: &Workload, world: &World<'_>) -> Vec<Action> {
    let said = condition(workload.status(), kind::EVICTED);
    let (reason, message) = said.map_or(("", ""), |c| (text(c, &["reason"]), text(c, &["message"])));
    let mut actions: Vec<Action> = Vec::new();
    for pod in group.pods.iter().filter(|p| is_alive(p) && !is_gated(p)) {
        actions.push(Action::DeletePod {
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            reason: format!("WorkloadEvictedDueTo{reason}"),
            message: message.to_owned(),
        });
    }
    if group.pods.iter().any(|p| may_run(p)) {
        return actions;
    }
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
    if holds(workload.status(), kind::PODS_READY) {
        draft.condition(kind::PODS_READY, false, "WaitForStart", "Not all pods are ready or succeeded");
    }
    draft.end_eviction();
    if group.is_group() {
        if group.pods.iter().filter(|p| is_alive(p)).count() < group.total() {
            draft.condition("WaitingForReplacementPods", true, reason, "Some Failed pods need replacement");
        }
    } else {
        actions.extend(group.pods.iter().filter_map(finalize));
    }
    actions.insert(0, Action::WorkloadStatus(draft.status));
    actions
}

/// Pods that came later own the workload too.
fn owners(group: &Group<'_>, workload: &Workload) -> Vec<Action> {
    let known = &workload.metadata.owner_references;
    let new: Vec<&Arc<ManagedPod>> = group
        .pods
        .iter()
        .filter(|pod| !pod.metadata.deleting() && !known.iter().any(|o| o.uid == pod.metadata.uid))
        .collect();
    if new.is_empty() || !group.is_group() {
        return Vec::new();
    }
    let mut all: Vec<Value> = known
        .iter()
        .map(|o| json!({"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid}))
        .collect();
    all.extend(new.iter().map(|pod| owner(pod, false)));
    vec![Action::PatchWorkload(json!({"metadata": {"ownerReferences": all}}))]
}

/// Pods that ended badly and have others in their place are let go, the oldest first.
fn replaced(group: &Group<'_>) -> Vec<Action> {
    if !group.is_group() {
        return group
            .pods
            .iter()
            .filter(|p| p.metadata.deleting() && !may_run(p))
            .filter_map(finalize)
            .collect();
    }
    let counted = group.pods.iter().filter(|p| is_alive(p) || succeeded(p)).count();
    let gone: Vec<&Arc<ManagedPod>> =
        group.pods.iter().filter(|p| !is_alive(p) && !succeeded(p) && !may_run(p) && is_held(p)).collect();
    let mut gone = gone;
    gone.sort_by_key(|p| (p.metadata.created(), p.metadata.name.clone()));
    let n = (counted + gone.len()).saturating_sub(group.total());
    gone.into_iter().take(n).filter_map(finalize).collect()
}

/// More pods than a group may have: the newest that wait are too many.
fn too_many(group: &Group<'_>, workload: &Workload) -> Vec<Action> {
    if !group.is_group() {
        return Vec::new();
    }
    let mut by_role: BTreeMap<String, Vec<&Arc<ManagedPod>>> = BTreeMap::new();
    for pod in group.pods.iter().filter(|p| is_alive(p) || succeeded(p)) {
        by_role.entry(role(pod)).or_default().push(pod);
    }
    let mut actions = Vec::new();
    for (role, mut pods) in by_role {
        let most =
            workload.pod_sets().iter().find(|set| set_name(set) == role).and_then(|set| int(set, &["count"]));
        let most = usize::try_from(most.unwrap_or(0)).unwrap_or(0);
        // Those who are done stay, then those who run, then those who came first.
        pods.sort_by_key(|p| (!succeeded(p), is_gated(p), p.metadata.created(), p.metadata.name.clone()));
        for pod in pods.into_iter().skip(most).filter(|p| is_gated(p)) {
            actions.push(Action::DeletePod {
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
                reason: "ExcessPodDeleted".into(),
                message: "Excess pod deleted".into(),
            });
            actions.extend(finalize(pod));
        }
    }
    actions
}

/// The workload is admitted: its pods go.
fn run(group: &Group<'_>, workload: &Workload, world: &World<'_>) -> Vec<Action> {
    let infos = match podset::infos(workload, world.flavor) {
        Ok(infos) => infos,
        Err(podset::Clash::NoFlavor(_)) => return Vec::new(),
        Err(clash) => return vec![failed(workload, &clash, world)],
    };
    let mut actions = Vec::new();
    for pod in group.pods.iter().filter(|p| is_alive(p) && is_gated(p)) {
        let name = if group.is_group() { role(pod) } else { "main".to_owned() };
        let Some(info) = infos.iter().find(|info| info.name == name) else { continue };
        let mut info = info.clone();
        // A pod that was born without a gate cannot be given one.
        info.gates.clear();
        let mut new = match podset::with(&pod.body, &info) {
            Ok(new) => new,
            Err(clash) => return vec![failed(workload, &clash, world)],
        };
        let gates: Vec<Value> = list(pod.spec(), &["schedulingGates"])
            .iter()
            .filter(|g| text(g, &["name"]) != keys::ADMISSION_GATE)
            .cloned()
            .collect();
        if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("schedulingGates".into(), json!(gates));
        }
        if let Some(patch) = merge_patch(&pod.body, &new) {
            actions.push(Action::PatchPod { name: pod.metadata.name.clone(), patch });
            let message = format!("Admitted by clusterQueue {}", workload.cluster_queue());
            let name = pod.metadata.name.clone();
            actions.push(Action::Event { name, warning: false, reason: "Started", message });
        }
    }
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
    count(group, workload, &mut draft);
    if draft.status != *workload.status() {
        actions.push(Action::WorkloadStatus(draft.status));
    }
    actions
}

fn failed(workload: &Workload, clash: &podset::Clash, world: &World<'_>) -> Action {
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
    draft.condition(kind::FINISHED, true, "FailedToStart", &clash.to_string());
    Action::WorkloadStatus(draft.status)
}

/// Pods that are done for good, and whether all are ready.
fn count(group: &Group<'_>, workload: &Workload, draft: &mut Draft) {
    if group.is_group() {
        let mut done: BTreeMap<String, i64> = BTreeMap::new();
        for pod in group.pods.iter().filter(|p| succeeded(p)) {
            *done.entry(role(pod)).or_default() += 1;
        }
        let known = |set: &str| {
            let sets = list(workload.status(), &["reclaimablePods"]).iter();
            sets.filter(|r| text(r, &["name"]) == set).find_map(|r| int(r, &["count"])).unwrap_or(0)
        };
        if done.iter().any(|(set, n)| *n > known(set)) {
            let pods: Vec<Value> =
                done.iter().map(|(set, n)| json!({"name": set, "count": (*n).max(known(set))})).collect();
            draft.set("reclaimablePods", json!(pods));
        }
    }
    let ready = |pod: &&Arc<ManagedPod>| succeeded(pod) || (is_alive(pod) && holds(pod.status(), "Ready"));
    let is_ready = group.pods.iter().filter(ready).count() >= group.total();
    let known = condition(workload.status(), kind::PODS_READY);
    let was = known.is_some_and(|c| text(c, &["status"]) == "True");
    let before = known.map_or("", |c| text(c, &["reason"]));
    if is_ready {
        let reason = if matches!(before, "WaitForRecovery" | "Recovered") { "Recovered" } else { "Started" };
        draft.condition(
            kind::PODS_READY,
            true,
            reason,
            "All pods reached readiness and the workload is running",
        );
    } else if was || before == "WaitForRecovery" {
        let words = "At least one pod has failed, waiting for recovery";
        draft.condition(kind::PODS_READY, false, "WaitForRecovery", words);
    } else {
        draft.condition(kind::PODS_READY, false, "WaitForStart", "Not all pods are ready or succeeded");
    }
}

/// The workload waits: perhaps for pods that came in the meantime, perhaps in another queue.
fn waiting(group: &Group<'_>, workload: &Workload, world: &World<'_>) -> Vec<Action> {
    if holds(workload.status(), "WaitingForReplacementPods") {
        let n = group.pods.iter().filter(|p| is_alive(p) || succeeded(p)).count();
        if n >= group.total() {
            let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
            draft.condition("WaitingForReplacementPods", false, "PodsReady", "No pods need replacement");
            return vec![Action::WorkloadStatus(draft.status)];
        }
    }
    let queue = group.queue();
    if !queue.is_empty() && queue != workload.queue() && !workload.has_quota() {
        return vec![Action::PatchWorkload(json!({"spec": {"queueName": queue}}))];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use muster_runtime::object::Meta;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// A pod: `name`, then words: `gated`, `runs`, `ready`, `done`, `failed`, `deleting`.
    fn pod(text: &str) -> Arc<ManagedPod> {
        let (name, words) = text.split_once(' ').unwrap_or((text, ""));
        let has = |word: &str| words.split_whitespace().any(|w| w == word);
        let phase = if has("done") {
            "Succeeded"
        } else if has("failed") {
            "Failed"
        } else if has("runs") || has("ready") {
            "Running"
        } else {
            "Pending"
        };
        let gates = if has("gated") { json!([{"name": keys::ADMISSION_GATE}]) } else { json!([]) };
        let conditions = if has("ready") { json!([{"type": "Ready", "status": "True"}]) } else { json!([]) };
        let strings =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut labels: Vec<(&str, &str)> = vec![(keys::QUEUE, "q"), (keys::MANAGED, "true")];
        let mut annotations: Vec<(&str, &str)> = vec![(keys::ROLE_HASH, "r")];
        if !has("single") {
            labels.push((keys::GROUP_NAME, "g"));
            annotations.push((keys::GROUP_COUNT, "2"));
        }
        let metadata = Meta {
            name: name.into(),
            namespace: "ns".into(),
            uid: name.into(),
            labels: strings(&labels),
            annotations: strings(&annotations),
            finalizers: vec![keys::MANAGED.into()],
            deletion_timestamp: has("deleting").then(|| NOW.parse().unwrap()),
            ..Meta::default()
        };
        let node = if has("runs") || has("ready") { "n" } else { "" };
        let body = json!({
            "metadata": {"name": name, "labels": metadata.labels, "annotations": metadata.annotations},
            "spec": {"nodeName": node, "schedulingGates": gates, "containers": [{"name": "c"}]},
            "status": {"phase": phase, "conditions": conditions},
        });
        Arc::new(ManagedPod { metadata, body })
    }

    fn flavor(_: &str) -> Option<Value> {
        Some(json!({"nodeLabels": {"pool": "p"}}))
    }

    fn priority(_: (&str, &str), _: &str) -> Option<(String, i64)> {
        None
    }

    fn world(settings: &Settings) -> World<'_> {
        World { settings, now: NOW.parse().unwrap(), flavor: &flavor, priority: &priority }
    }

    fn workload(pods: &[&str], conditions: &str) -> Workload {
        let pods: Vec<Arc<ManagedPod>> = pods.iter().map(|p| pod(p)).collect();
        let key = group_key(&pods[0]);
        let group = Group { key: &key, pods: &pods, workload: None };
        let refs: Vec<&Arc<ManagedPod>> = pods.iter().collect();
        let settings = Settings::default();
        let mut body = workload_for(&group, &refs, &world(&settings));
        let conditions = crate::status::tests::conditions(conditions);
        let sets: Vec<Value> = list(&body, &["spec", "podSets"])
            .iter()
            .map(|set| json!({"name": set["name"], "count": set["count"], "flavors": {"cpu": "f"}}))
            .collect();
        body["status"] = json!({"conditions": conditions});
        if holds(&body["status"], kind::QUOTA_RESERVED) {
            body["status"]["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": sets});
        }
        serde_json::from_value(body).unwrap()
    }

    fn short(actions: &[Action]) -> String {
        let one = |action: &Action| match action {
            Action::CreateWorkload(body) => {
                let sets: Vec<String> = list(body, &["spec", "podSets"])
                    .iter()
                    .map(|s| format!("{}×{}", set_name(s), s["count"]))
                    .collect();
                format!("create {}", sets.join("+"))
            }
            Action::DeleteWorkload => "delete workload".into(),
            Action::LetGo => "let go".into(),
            Action::PatchWorkload(_) => "patch".into(),
            Action::WorkloadStatus(status) => {
                let shown: Vec<String> = list(status, &["conditions"])
                    .iter()
                    .map(|c| {
                        format!(
                            "{}{}:{}",
                            if text(c, &["status"]) == "True" { "" } else { "!" },
                            text(c, &["type"]),
                            text(c, &["reason"])
                        )
                    })
                    .collect();
                format!("status({})", shown.join(" "))
            }
            Action::PatchPod { name, .. } => format!("free {name}"),
            Action::DeletePod { name, .. } => format!("end {name}"),
            Action::Finalize { name } => format!("finalize {name}"),
            Action::Event { reason, .. } => format!("({reason})"),
        };
        actions.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(pods: &[&str], workload: Option<Workload>, expected: &str) {
        let pods: Vec<Arc<ManagedPod>> = pods.iter().map(|p| pod(p)).collect();
        let key = group_key(&pods[0]);
        let settings = Settings::default();
        let group = Group { key: &key, pods: &pods, workload: workload.as_ref() };
        assert_eq!(short(&plan(&group, &world(&settings))), expected);
    }

    const TWO: &[&str] = &["a gated", "b gated"];

    #[test]
    fn one_pod() {
        let of = |conditions: &str| Some(workload(&["a single gated"], conditions));
        check(&["a single gated"], None, "create main×1");
        check(&["a single gated"], of(""), "");
        check(&["a single gated"], of("QuotaReserved Admitted !PodsReady:WaitForStart"), "free a (Started)");
        check(&["a single ready"], of("QuotaReserved Admitted PodsReady:Started"), "");
        check(
            &["a single done"],
            of("QuotaReserved Admitted PodsReady:Started"),
            "status(QuotaReserved:R Admitted:R PodsReady:Started Finished:Succeeded)",
        );
        check(&["a single done"], of("Finished"), "finalize a let go");
        check(&["a single runs"], of("QuotaReserved Admitted Evicted:Preempted"), "end a");
        check(
            &["a single failed deleting"],
            of("QuotaReserved Admitted Evicted:Preempted"),
            "status(!QuotaReserved:Pending !Admitted:NoReservation Evicted:Preempted Requeued:Preempted) finalize a",
        );
        check(&["a single gated deleting"], None, "finalize a");
        // A pod that runs without leave does not.
        check(&["a single runs"], None, "end a");
    }

    #[test]
    fn a_group_waits_for_all() {
        check(&["a gated"], None, "");
        check(TWO, None, "create r×2");
        let of = |conditions: &str| Some(workload(TWO, conditions));
        check(TWO, of(""), "");
        check(TWO, of("QuotaReserved Admitted !PodsReady:WaitForStart"), "free a (Started) free b (Started)");
        check(
            &["a ready", "b ready"],
            of("QuotaReserved Admitted !PodsReady:WaitForStart"),
            "status(QuotaReserved:R Admitted:R PodsReady:Started)",
        );
        check(
            &["a done", "b ready"],
            of("QuotaReserved Admitted PodsReady:Started"),
            "status(QuotaReserved:R Admitted:R PodsReady:Started)",
        );
        check(
            &["a done", "b done"],
            of("QuotaReserved Admitted PodsReady:Started"),
            "status(QuotaReserved:R Admitted:R PodsReady:Started Finished:Succeeded)",
        );
        check(&["a done", "b done"], of("Finished"), "finalize a finalize b let go");
    }

    #[test]
    fn a_group_mends_itself() {
        let of = |conditions: &str| Some(workload(TWO, conditions));
        let running = "QuotaReserved Admitted PodsReady:Started";
        check(
            &["a failed", "b ready"],
            of(running),
            "status(QuotaReserved:R Admitted:R !PodsReady:WaitForRecovery)",
        );
        // The new one owns the workload too, and the old one is let go.
        check(&["a failed", "b ready", "c gated"], of(running), "patch finalize a");
        // One too many never runs.
        check(&["a ready", "b ready", "c gated"], of(running), "patch end c finalize c");
    }

    #[test]
    fn a_group_that_must_go_waits_for_others() {
        let of = |conditions: &str| Some(workload(TWO, conditions));
        check(&["a runs", "b runs"], of("QuotaReserved Admitted Evicted:Preempted"), "end a end b");
        check(
            &["a failed deleting", "b failed deleting"],
            of("QuotaReserved Admitted Evicted:Preempted"),
            "status(!QuotaReserved:Pending !Admitted:NoReservation Evicted:Preempted Requeued:Preempted WaitingForReplacementPods:Preempted)",
        );
        let waits = "!QuotaReserved:Pending Evicted:Preempted WaitingForReplacementPods:Preempted";
        check(&["a failed deleting", "b failed deleting"], of(waits), "");
        check(
            &["a gated", "b gated"],
            of(waits),
            "status(!QuotaReserved:Pending Evicted:Preempted !WaitingForReplacementPods:PodsReady)",
        );
        // Whoever deletes them all wants none.
        check(&["a gated deleting", "b gated deleting"], of(""), "delete workload");
    }

    #[test]
    fn names_that_are_taken() {
        let mut other = workload(TWO, "");
        other.metadata.owner_references =
            vec![muster_runtime::object::OwnerRef { kind: "Job".into(), ..Default::default() }];
        check(TWO, Some(other), "(NameTaken)");
    }
}
