//! Which pods of a clique come, go and are let go of, and what is true of the clique.
//!
//! In: the clique, its set, its pods, its gang. Out: indexes to make, pods to delete, to free of their gate and to mark
//! anew, and the status. Must stay true: no pod is made before its gang is there; a gate is lifted only when the gang is
//! complete, its scheduler knows of it, the pod is one of its references, and the base gang has its nodes; a pod that came
//! to a good end is not made again; a ready pod is replaced only after the status says which one.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::clock::{later, stamp, until};
use muster_runtime::common::Pod;
use muster_runtime::object::{Meta, Selector, Strings, is_true};
use serde_json::{Map, Value, json};

use crate::backend::{HELD, Marks, backend_of};
use crate::claims;
use crate::conditions::{Wanted, merged};
use crate::hash;
use crate::keys::{self, condition};
use crate::object::{
    PodClique, PodGang, condition as find_condition, condition_status, holds, index, label, list, number,
    text,
};
use crate::room::Domains;
use crate::settings::BackendName;
use crate::shape::Clique;

/// So many pods are made before the clique is looked at again.
const BURST: usize = 2000;
/// How many pods that are meant to end may fail, unless the clique says otherwise.
const BACKOFF_LIMIT: i64 = 6;
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(360);

pub struct Seen<'a> {
    pub shape: Clique<'a>,
    pub clique: &'a PodClique,
    pub pods: &'a [Arc<Pod>],
    /// Its gang, if that is there and stays.
    pub gang: Option<&'a PodGang>,
    /// The base gang, if the clique's gang is a scaled one and the base is there.
    pub base: Option<&'a PodGang>,
    /// The gate names that are ours.
    pub gates: &'a [&'a str],
    /// What every pod must carry.
    pub marks: &'a Marks,
    pub now: Timestamp,
}

#[derive(Debug, Default)]
pub struct Plan {
    /// Indexes of pods to make.
    pub create: Vec<i64>,
    pub delete: Vec<Arc<Pod>>,
    pub ungate: Vec<Arc<Pod>>,
    /// The node labels that they are bound to as they are freed.
    pub domain: Strings,
    /// Pods with the merge patch that puts their marks right.
    pub mark: Vec<(Arc<Pod>, Value)>,
    pub status: Value,
    pub wake: Option<Duration>,
    /// All pods lost their nodes: worth an event.
    pub lost_all: bool,
}

/// The pods of a clique by what they are.
#[derive(Default)]
struct Sorted<'a> {
    /// They stay, and have not ended.
    live: Vec<&'a Arc<Pod>>,
    succeeded: Vec<&'a Arc<Pod>>,
    /// Failed by their own doing, and kept to be counted.
    failed: Vec<&'a Arc<Pod>>,
    /// They ended, and make room for others.
    spent: Vec<&'a Arc<Pod>>,
}

fn sort<'a>(clique: &PodClique, pods: &'a [Arc<Pod>]) -> Sorted<'a> {
    let finite = clique.spec.is_finite();
    let mut sorted = Sorted::default();
    for pod in pods.iter().filter(|pod| !pod.metadata.deleting()) {
        let disrupted = is_true(&pod.status.conditions, "DisruptionTarget");
        match pod.status.phase.as_str() {
            "Succeeded" if finite => sorted.succeeded.push(pod),
            "Failed" if finite && !disrupted => sorted.failed.push(pod),
            "Succeeded" | "Failed" => sorted.spent.push(pod),
            _ => sorted.live.push(pod),
        }
    }
    sorted
}

pub fn plan(seen: &Seen<'_>) -> Plan {
    let clique = seen.clique;
    let sorted = sort(clique, seen.pods);
    let hash = label(&clique.metadata, keys::TEMPLATE_HASH);
    let is_stale = |pod: &Pod| !hash::is_current(&pod.metadata, &clique.metadata, hash);
    let failed_out = sorted.failed.len() as i64 > backoff_limit(&clique.metadata);
    let mut plan = Plan::default();
    if !clique.metadata.deleting() {
        plan.delete.extend(sorted.spent.iter().map(|pod| (*pod).clone()));
        counts(seen, &sorted, failed_out, &is_stale, &mut plan);
        take_back(seen, &sorted, &mut plan);
        gates(seen, &sorted, &mut plan);
        marks(seen, &sorted, &mut plan);
    }
    let progress = update(seen, &sorted, &is_stale, &mut plan);
    plan.status = status(seen, &sorted, failed_out, progress, &is_stale);
    let scheduled = number(&plan.status, "scheduledReplicas");
    plan.lost_all = number(&clique.status, "scheduledReplicas") > 0
        && scheduled == 0
        && clique.wanted() > 0
        && sorted.failed.is_empty()
        && !holds(&plan.status, condition::COMPLETED);
    plan
}

pub fn backoff_limit(meta: &Meta) -> i64 {
    let said = meta.annotation(keys::BACKOFF_LIMIT).and_then(|text| text.parse().ok());
    said.filter(|limit| *limit >= 0).unwrap_or(BACKOFF_LIMIT)
}

/// Pods to make or to delete, so that there are as many as wanted.
fn counts(
    seen: &Seen<'_>,
    sorted: &Sorted<'_>,
    failed_out: bool,
    is_stale: &dyn Fn(&Pod) -> bool,
    plan: &mut Plan,
) {
    let wanted = seen.clique.wanted();
    let there = (sorted.live.len() + sorted.succeeded.len()) as i64;
    if there > wanted {
        let n_excess = usize::try_from(there - wanted).unwrap_or(0);
        let mut candidates: Vec<&Arc<Pod>> = sorted.live.iter().chain(&sorted.succeeded).copied().collect();
        let by_index = claims::is_tied_to_index(&seen.shape);
        candidates.sort_by_cached_key(|pod| {
            let own_index = index(&pod.metadata, keys::POD_INDEX).unwrap_or(i64::MAX);
            // A claim belongs to an index, so the pods that stay must be those whose claims stay.
            let tied = if by_index { -own_index } else { 0 };
            let phase = match pod.status.phase.as_str() {
                "" | "Pending" => 0,
                "Running" => 2,
                "Succeeded" => 3,
                _ => 1,
            };
            (
                tied,
                pod.is_bound(),
                phase,
                is_true(&pod.status.conditions, "Ready"),
                !is_stale(pod),
                std::cmp::Reverse(pod.metadata.created()),
                std::cmp::Reverse(pod.metadata.name.clone()),
            )
        });
        plan.delete.extend(candidates.into_iter().take(n_excess).cloned());
        return;
    }
    if there == wanted || seen.gang.is_none() || failed_out {
        return;
    }
    let wait = backoff(&sorted.failed, seen.now);
    if !wait.is_zero() {
        plan.wake = Some(wait);
        return;
    }
    let taken: BTreeSet<i64> = sorted
        .live
        .iter()
        .chain(&sorted.succeeded)
        .filter_map(|pod| index(&pod.metadata, keys::POD_INDEX))
        .collect();
    let n_missing = usize::try_from(wanted - there).unwrap_or(0).min(BURST);
    plan.create.extend((0..).filter(|index| !taken.contains(index)).take(n_missing));
}

/// A gate cannot be put back on a pod: of a gang that is held again, the pods that were let go and found no node make room for ones
/// that are born with it.
fn take_back(seen: &Seen<'_>, sorted: &Sorted<'_>, plan: &mut Plan) {
    let said = seen.gang.and_then(|gang| find_condition(&gang.status, condition::ACCEPTED));
    if !said.is_some_and(|said| said.status == "False" && said.reason == HELD) {
        return;
    }
    let going: HashSet<String> = plan.delete.iter().map(|pod| pod.metadata.uid.clone()).collect();
    let loose = sorted
        .live
        .iter()
        .filter(|pod| !pod.is_bound() && !is_gated(pod, seen.gates) && !going.contains(&pod.metadata.uid));
    plan.delete.extend(loose.map(|pod| (*pod).clone()));
}

/// How long a clique whose pods fail waits before the next try.
fn backoff(failed: &[&Arc<Pod>], now: Timestamp) -> Duration {
    let ended = |pod: &Pod| {
        let times = pod.status.conditions.iter().filter_map(|c| c.last_transition_time);
        times.max().unwrap_or_else(|| pod.metadata.created())
    };
    let Some(last) = failed.iter().map(|pod| ended(pod)).max() else { return Duration::ZERO };
    let doublings = u32::try_from(failed.len() - 1).unwrap_or(u32::MAX).min(10);
    let wait = (FIRST_BACKOFF * 2_u32.pow(doublings)).min(LONGEST_BACKOFF);
    until(now, later(last, wait))
}

/// Whether the pods that a gang lists may be scheduled.
pub fn may_start(gang: &PodGang, is_scaled: bool, base: Option<&PodGang>) -> bool {
    holds(&gang.status, condition::INITIALIZED)
        && is_accepted(gang)
        && (!is_scaled || base.is_some_and(|base| holds(&base.status, condition::SCHEDULED)))
}

/// Whether the scheduler that the gang is for now knows of it; another may have known before.
fn is_accepted(gang: &PodGang) -> bool {
    let said = find_condition(&gang.status, condition::ACCEPTED).filter(|c| c.status == "True");
    said.is_some_and(|said| {
        let by = said.message.split_whitespace().next().and_then(BackendName::read);
        by.is_some() && by == backend_of(gang)
    })
}

pub fn is_gated(pod: &Pod, gates: &[&str]) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| gates.contains(&text(gate, &["name"])))
}

fn gates(seen: &Seen<'_>, sorted: &Sorted<'_>, plan: &mut Plan) {
    let Some(gang) = seen.gang else { return };
    let meta = &seen.clique.metadata;
    let is_scaled = meta.labels.contains_key(keys::BASE_PODGANG);
    if !may_start(gang, is_scaled, seen.base) || !sorted.live.iter().any(|pod| is_gated(pod, seen.gates)) {
        return;
    }
    let groups = gang.spec.podgroups.iter().filter(|group| group.name == meta.name);
    let listed: HashSet<&str> =
        groups.flat_map(|group| &group.pod_references).map(|pod| pod.name.as_str()).collect();
    let free = sorted
        .live
        .iter()
        .filter(|pod| is_gated(pod, seen.gates) && listed.contains(pod.metadata.name.as_str()))
        .filter(|pod| !plan.delete.iter().any(|gone| gone.metadata.uid == pod.metadata.uid));
    plan.ungate = free.map(|pod| (*pod).clone()).collect();
    let chosen =
        gang.metadata.annotation(keys::DOMAINS).and_then(|said| serde_json::from_str::<Domains>(said).ok());
    plan.domain = chosen.and_then(|mut all| all.remove(&meta.name)).unwrap_or_default();
}

/// The patch that frees a pod of our gates, and of ours only; a pod that is gated may still be bound to nodes with certain labels.
pub fn ungate_patch(pod: &Pod, gates: &[&str], domain: &Strings) -> Value {
    let ours: Vec<Value> = pod
        .spec
        .scheduling_gates
        .iter()
        .map(|gate| text(gate, &["name"]))
        .filter(|name| gates.contains(name))
        .map(|name| json!({"$patch": "delete", "name": name}))
        .collect();
    let mut patch = json!({"metadata": {"uid": pod.metadata.uid}, "spec": {"schedulingGates": ours}});
    let unsaid = domain.iter().filter(|(key, _)| !pod.spec.node_selector.contains_key(key));
    for (key, value) in unsaid {
        patch["spec"]["nodeSelector"][key] = json!(value);
    }
    patch
}

fn marks(seen: &Seen<'_>, sorted: &Sorted<'_>, plan: &mut Plan) {
    if seen.gang.is_none() {
        return;
    }
    for pod in &sorted.live {
        let mut patch = json!({});
        for (key, value) in &seen.marks.labels {
            if pod.metadata.labels.get(key) != Some(value) {
                patch["metadata"]["labels"][*key] = json!(value);
            }
        }
        for (key, value) in &seen.marks.annotations {
            if pod.metadata.annotations.get(key) != Some(value) {
                patch["metadata"]["annotations"][*key] = json!(value);
            }
        }
        if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
            plan.mark.push(((*pod).clone(), patch));
        }
    }
}

/// Whether the set is rolling out a change in this replica now.
pub fn is_selected(set_status: &Value, replica: i64) -> bool {
    list(set_status, &["updateProgress", "currentlyUpdating"]).iter().any(|one| {
        number(one, "replicaIndex") == replica
            && one.get("replicaIndex").is_some()
            && text(one, &["updateEndedAt"]).is_empty()
    })
}

/// The progress of a roll-out, and what it deletes.
fn update(
    seen: &Seen<'_>,
    sorted: &Sorted<'_>,
    is_stale: &dyn Fn(&Pod) -> bool,
    plan: &mut Plan,
) -> Option<Value> {
    let clique = seen.clique;
    let set = seen.shape.set;
    let hash = label(&clique.metadata, keys::TEMPLATE_HASH);
    let old = clique.status.get("updateProgress").filter(|progress| progress.is_object()).cloned();
    let known = text(&clique.status, &["currentPodTemplateHash"]);
    let stale: Vec<&&Arc<Pod>> = sorted.live.iter().filter(|pod| is_stale(pod)).collect();
    let fresh = |ended: bool| {
        let mut progress = json!({
            "updateStartedAt": stamp(seen.now),
            "podCliqueSetGenerationHash": text(&set.status, &["currentGenerationHash"]),
            "podTemplateHash": hash,
        });
        if ended {
            progress["updateEndedAt"] = json!(stamp(seen.now));
        }
        progress
    };
    let is_of = |progress: &Value| text(progress, &["podTemplateHash"]) == hash;
    if !set.rolls() {
        // Whoever deletes a pod rolls it; for the record, the roll-out is over as soon as it is known.
        let is_news = !known.is_empty() && known != hash && hash::is_ours(known);
        return match old {
            Some(old) if is_of(&old) => Some(old),
            _ if is_news && !stale.is_empty() => Some(fresh(true)),
            other => other,
        };
    }
    if stale.is_empty() {
        let mut progress = old?;
        if text(&progress, &["updateEndedAt"]).is_empty() && is_of(&progress) {
            let ready = sorted.live.iter().filter(|pod| is_true(&pod.status.conditions, "Ready")).count();
            if (ready + sorted.succeeded.len()) as i64 >= clique.spec.min_available().min(clique.wanted()) {
                finish(&mut progress, seen.now);
            }
        }
        return Some(progress);
    }
    let is_turn = seen.shape.within.is_none() && is_selected(&set.status, seen.shape.replica);
    if !is_turn || clique.metadata.deleting() {
        return old;
    }
    let running = old.filter(|progress| is_of(progress) && text(progress, &["updateEndedAt"]).is_empty());
    let Some(mut progress) = running else { return Some(fresh(false)) };

    let is_ready = |pod: &Pod| is_true(&pod.status.conditions, "Ready");
    let going: HashSet<String> = plan.delete.iter().map(|pod| pod.metadata.uid.clone()).collect();
    let unready = stale.iter().filter(|pod| !is_ready(pod) && !going.contains(&pod.metadata.uid));
    plan.delete.extend(unready.map(|pod| (**pod).clone()));

    let selected = progress.get("readyPodsSelectedToUpdate").cloned().unwrap_or(Value::Null);
    let current = text(&selected, &["current"]).to_owned();
    if let Some(pod) = stale.iter().find(|pod| pod.metadata.name == current) {
        if !plan.delete.iter().any(|gone| gone.metadata.uid == pod.metadata.uid) {
            plan.delete.push((**pod).clone());
        }
        return Some(progress);
    }
    let mut completed: Vec<Value> = list(&selected, &["completed"]).to_vec();
    if !current.is_empty() {
        completed.push(json!(current));
    }
    let n_new_ready = sorted.live.iter().filter(|pod| !is_stale(pod) && is_ready(pod)).count();
    let n_ready = sorted.live.iter().filter(|pod| is_ready(pod)).count() as i64;
    let oldest = stale
        .iter()
        .filter(|pod| is_ready(pod))
        .min_by_key(|pod| (pod.metadata.created(), pod.metadata.name.clone()));
    if let Some(next) = oldest
        // Whoever was replaced has a successor that is ready; those that were scaled away need none.
        && n_new_ready as i64 >= (completed.len() as i64).min(clique.wanted() - stale.len() as i64)
        && n_ready >= clique.spec.min_available()
    {
        let mut selected = json!({"current": next.metadata.name});
        if !completed.is_empty() {
            selected["completed"] = json!(completed);
        }
        progress["readyPodsSelectedToUpdate"] = selected;
    }
    Some(progress)
}

fn finish(progress: &mut Value, now: Timestamp) {
    progress["updateEndedAt"] = json!(stamp(now));
    let selected = progress.get("readyPodsSelectedToUpdate").cloned().unwrap_or(Value::Null);
    let current = text(&selected, &["current"]);
    if !current.is_empty() {
        let mut completed: Vec<Value> = list(&selected, &["completed"]).to_vec();
        if !completed.iter().any(|name| name.as_str() == Some(current)) {
            completed.push(json!(current));
        }
        progress["readyPodsSelectedToUpdate"] = json!({"current": current, "completed": completed});
    }
}

fn status(
    seen: &Seen<'_>,
    sorted: &Sorted<'_>,
    failed_out: bool,
    progress: Option<Value>,
    is_stale: &dyn Fn(&Pod) -> bool,
) -> Value {
    let clique = seen.clique;
    let meta = &clique.metadata;
    let min = clique.spec.min_available();
    let count = |test: &dyn Fn(&Pod) -> bool| sorted.live.iter().filter(|pod| test(pod)).count() as i64;
    let n_done = sorted.succeeded.len() as i64;
    let n_scheduled = count(&|pod| pod.is_bound());
    let n_ready = count(&|pod| is_true(&pod.status.conditions, "Ready"));
    let n_gated = count(&|pod| !pod.spec.scheduling_gates.is_empty());
    let n_stale = count(&|pod| is_stale(pod));
    let n_bad = count(&|pod| pod.is_bound() && is_bad(pod));
    let n_there = sorted.live.len() as i64 + n_done;
    let is_updating = progress
        .as_ref()
        .is_some_and(|progress| text(progress, &["updateEndedAt"]).is_empty() && seen.shape.set.rolls());
    // Pods that failed and are tried again, or never again, are no loss of nodes: the clique says for itself what became of
    // them, and making the gang anew would forget how often it was tried.
    let n_tried = if sorted.failed.is_empty() { 0 } else { (clique.wanted() - n_there).max(0) };
    // A clique that was scaled below its minimum on purpose is judged by what it was scaled to.
    let needed = min.min(clique.wanted().max(1));

    let mut wanted = Vec::new();
    let is_scheduled = n_scheduled + n_done >= needed;
    wanted.push(if is_scheduled {
        let message = format!("{n_scheduled} pods have nodes, {needed} are needed");
        Wanted::new(condition::CLIQUE_SCHEDULED, true, "SufficientScheduledPods", message)
    } else {
        let message = format!("{n_scheduled} pods have nodes, {needed} are needed");
        Wanted::new(condition::CLIQUE_SCHEDULED, false, "InsufficientScheduledPods", message)
    });
    wanted.push(if is_updating {
        Wanted::unknown(condition::BREACHED, "UpdateInProgress", "pods are being replaced")
    } else if n_scheduled + n_done + n_tried < needed {
        let message = format!("{n_scheduled} pods have nodes, {needed} are needed");
        Wanted::new(condition::BREACHED, true, "ScheduledReplicasBelowMinAvailable", message)
    } else if n_scheduled - n_bad + n_done + n_tried < needed {
        let message = format!("{} pods are well, {needed} are needed", n_scheduled - n_bad);
        Wanted::new(condition::BREACHED, true, "InsufficientReadyPods", message)
    } else {
        let message = format!("{} pods are well, {needed} are needed", n_scheduled - n_bad);
        Wanted::new(condition::BREACHED, false, "SufficientReadyPods", message)
    });
    let is_available = n_ready + n_done >= min;
    wanted.push(Wanted::new(
        condition::AVAILABLE,
        is_available,
        if is_available { "MinimumReady" } else { "MinimumNotReady" },
        "",
    ));
    if is_scheduled || holds(&clique.status, condition::WAS_THERE) {
        wanted.push(Wanted::new(condition::WAS_THERE, true, "MinimumWasScheduled", ""));
    }
    if clique.spec.is_finite() {
        let is_over = clique.wanted() > 0 && n_done >= clique.wanted();
        if is_over || !condition_status(&clique.status, condition::COMPLETED).is_empty() {
            let (reason, message) = if is_over {
                ("AllPodsSucceeded", format!("{n_done} pods came to a good end"))
            } else {
                ("Running", format!("{n_done} of {} pods came to a good end", clique.wanted()))
            };
            wanted.push(Wanted::new(condition::COMPLETED, is_over, reason, message));
        }
        if failed_out || !condition_status(&clique.status, condition::FAILED).is_empty() {
            let message = format!("{} pods failed, {} may", sorted.failed.len(), backoff_limit(meta));
            let reason = if failed_out { "BackoffLimitExceeded" } else { "WithinBackoffLimit" };
            wanted.push(Wanted::new(condition::FAILED, failed_out, reason, message));
        }
    }

    let mut status: Map<String, Value> = clique.status.as_object().cloned().unwrap_or_default();
    status.remove("lastErrors");
    let mut put = |field: &str, value: Value| status.insert(field.to_owned(), value);
    put("observedGeneration", json!(meta.generation));
    put("replicas", json!(n_there));
    put("readyReplicas", json!(n_ready));
    put("scheduledReplicas", json!(n_scheduled + n_done));
    put("scheduleGatedReplicas", json!(n_gated));
    put("updatedReplicas", json!(n_there - n_stale));
    put("hpaPodSelector", json!(selector(meta)));
    put("conditions", merged(&clique.status, &wanted, seen.now));
    let hash = label(meta, keys::TEMPLATE_HASH);
    let known = text(&clique.status, &["currentPodTemplateHash"]);
    if n_stale == 0 || known.is_empty() {
        put("currentPodTemplateHash", json!(hash));
        let generation = text(&seen.shape.set.status, &["currentGenerationHash"]);
        if !generation.is_empty() && hash == hash::template(seen.shape.template) {
            put("currentPodCliqueSetGenerationHash", json!(generation));
        }
    }
    match progress {
        Some(progress) => put("updateProgress", progress),
        None => status.remove("updateProgress"),
    };
    Value::Object(status)
}

/// The pods of the clique, as the scale subresource says it.
pub fn selector(meta: &Meta) -> String {
    let match_labels = [(keys::PODCLIQUE.to_owned(), meta.name.clone())].into();
    Selector { match_labels, ..Selector::default() }.to_query()
}

/// A pod that does not work: it crashed and is not ready again, or it started and does not become ready. A pod that has not
/// started yet is not bad.
fn is_bad(pod: &Pod) -> bool {
    if is_true(&pod.status.conditions, "Ready") {
        return false;
    }
    pod.status.container_statuses.iter().any(|container| {
        let crashed = container.last_state.terminated.as_ref().is_some_and(|end| end.exit_code != 0);
        crashed || (container.started == Some(true) && !container.ready)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::PodCliqueSet;
    use crate::shape::tests::set;

    fn now() -> Timestamp {
        "2026-02-01T00:00:00Z".parse().unwrap()
    }

    /// A pod as `index state[*][!]`: state `g` gated, `p` pending, `s` on a node, `r` ready, `u` started and unready, `c`
    /// crashed, `d` done, `f` failed, `x` leaving; `*` of an old template, `!` not among the gang's references.
    fn pod(text: &str, clique: &PodClique) -> Arc<Pod> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap();
        let (number, rest) = text.split_at(digits);
        let state = rest.chars().next().unwrap();
        let hash = if rest.contains('*') { "old" } else { label(&clique.metadata, keys::TEMPLATE_HASH) };
        let container = match state {
            'u' => json!([{"ready": false, "started": true}]),
            'c' => json!([{"ready": false, "started": false, "lastState": {"terminated": {"exitCode": 1}}}]),
            _ => json!([]),
        };
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": format!("p{number}"), "uid": format!("u{number}{rest}"),
                "labels": {keys::POD_INDEX: number, keys::TEMPLATE_HASH: hash},
                "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", number.parse::<u32>().unwrap() % 60),
            },
            "spec": {
                "nodeName": if "srucd".contains(state) { "n" } else { "" },
                "schedulingGates": if state == 'g' { json!([{"name": keys::GATE}, {"name": "foreign"}]) } else { json!([]) },
            },
            "status": {
                "phase": match state { 'd' => "Succeeded", 'f' => "Failed", 'g' | 'p' => "Pending", _ => "Running" },
                "conditions": [{"type": "Ready", "status": if state == 'r' { "True" } else { "False" },
                                "lastTransitionTime": "2026-01-31T23:59:55Z"}],
                "containerStatuses": container,
            },
        }))
        .unwrap();
        if state == 'x' {
            pod.metadata.deletion_timestamp = Some(now());
        }
        Arc::new(pod)
    }

    struct Case {
        set: PodCliqueSet,
        clique: PodClique,
        gang: Option<PodGang>,
        base: Option<PodGang>,
    }

    const OPEN: [&str; 2] = [condition::INITIALIZED, condition::ACCEPTED];

    fn gang(on: &[&str]) -> PodGang {
        let conditions: Vec<Value> =
            on.iter().map(|kind| json!({"type": kind, "status": "True", "message": "kai"})).collect();
        let labels = json!({keys::SCHEDULER_BACKEND: "kai"});
        let metadata = json!({"name": "p-0", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    /// One clique of this size, with an open gang.
    fn case(replicas: i64, min: i64) -> Case {
        let set = set(&format!("p x1; a {replicas}/{min}"));
        let shape = set.standalone(0).next().unwrap();
        let clique = serde_json::from_value(json!({
            "metadata": {"name": shape.name(), "namespace": "ns", "labels": shape.labels(), "generation": 4},
            "spec": {"replicas": replicas, "minAvailable": min, "podSpec": shape.template.spec.pod_spec},
        }))
        .unwrap();
        Case { clique, gang: Some(gang(&OPEN)), base: None, set }
    }

    impl Case {
        fn look(&mut self, pods: &str) -> Plan {
            let pods_here: Vec<Arc<Pod>> =
                pods.split_whitespace().map(|text| pod(text, &self.clique)).collect();
            if let Some(gang) = &mut self.gang {
                let listed = pods.split_whitespace().filter(|text| !text.ends_with('!'));
                let references: Vec<Value> =
                    listed.map(|text| json!({"name": pod(text, &self.clique).metadata.name})).collect();
                let group = json!({"name": self.clique.metadata.name, "podReferences": references});
                gang.spec = serde_json::from_value(json!({"podgroups": [group]})).unwrap();
            }
            plan(&Seen {
                shape: self.set.find_clique(&self.clique.metadata).unwrap(),
                clique: &self.clique,
                pods: &pods_here,
                gang: self.gang.as_ref(),
                base: self.base.as_ref(),
                gates: &[keys::GATE, keys::GATE_TODAY],
                marks: &Marks::default(),
                now: now(),
            })
        }

        #[track_caller]
        fn check(&mut self, pods: &str, expected: &str) -> Value {
            let plan = self.look(pods);
            let mut shown: Vec<String> = plan.create.iter().map(|index| format!("+{index}")).collect();
            let short = |pod: &Arc<Pod>| pod.metadata.name.trim_start_matches('p').to_owned();
            shown.extend(plan.delete.iter().map(|pod| format!("-{}", short(pod))));
            shown.extend(plan.ungate.iter().map(|pod| format!("^{}", short(pod))));
            shown.extend(plan.wake.iter().map(|wake| format!("~{}", wake.as_secs())));
            assert_eq!(shown.join(" "), expected, "{pods}");
            plan.status
        }
    }

    #[test]
    fn as_many_as_wanted() {
        let mut c = case(3, 2);
        c.check("", "+0 +1 +2");
        c.check("0r 2r", "+1");
        c.check("0r 1r 2r", "");
        c.check("0r 1x 2r", "+1");
        c.check("0f 1r 2r", "+0 -0");
        c.check("0d 1r 2r", "+0 -0");
        c.gang = None;
        c.check("0r", "");
    }

    #[test]
    fn who_goes_first() {
        let mut c = case(1, 1);
        c.check("0r 1r", "-1");
        c.check("0r* 1r", "-0");
        c.check("0p 1r", "-0");
        c.check("0r 1s", "-1");
        c.check("0g 1p 2s 3r", "-1 -0 -2");
    }

    #[test]
    fn with_claims_of_their_own_the_highest_go() {
        let mut c = case(1, 1);
        c.set.spec.template.cliques[0].resource_sharing =
            vec![serde_json::from_value(json!({"name": "x", "scope": "PerReplica"})).unwrap()];
        c.check("0p 1r", "-1");
    }

    #[test]
    fn gates() {
        let mut c = case(2, 1);
        c.check("0g 1g", "^0 ^1");
        c.check("0g 1g!", "^0");
        c.check("0g 1r", "^0");
        for on in [&[][..], &OPEN[..1], &OPEN[1..]] {
            c.gang = Some(gang(on));
            c.check("0g 1g", "");
        }
        let mut moved = gang(&OPEN);
        moved.metadata.labels.insert(keys::SCHEDULER_BACKEND.into(), "volcano".into());
        c.gang = Some(moved);
        c.check("0g 1g", "");
        c.gang = Some(gang(&OPEN));
        c.clique.metadata.labels.insert(keys::BASE_PODGANG.into(), "base".into());
        c.check("0g 1g", "");
        c.base = Some(gang(&OPEN));
        c.check("0g 1g", "");
        c.base = Some(gang(&[condition::SCHEDULED]));
        c.check("0g 1g", "^0 ^1");
    }

    #[test]
    fn only_our_gate_is_lifted() {
        let c = case(1, 1);
        let patch = ungate_patch(&pod("0g", &c.clique), &[keys::GATE, keys::GATE_TODAY], &Strings::new());
        assert_eq!(
            patch["spec"],
            json!({"schedulingGates": [{"$patch": "delete", "name": "grove.io/podgang"}]})
        );
    }

    #[test]
    fn wrong_marks_are_put_right() {
        let mut c = case(1, 1);
        let marks = Marks { labels: vec![], annotations: vec![("pod-group-name", "g".to_owned())] };
        let pods = [pod("0r", &c.clique)];
        c.gang = Some(gang(&OPEN));
        let shape = c.set.find_clique(&c.clique.metadata).unwrap();
        let seen = Seen {
            shape,
            clique: &c.clique,
            pods: &pods,
            gang: c.gang.as_ref(),
            base: None,
            gates: &[],
            marks: &marks,
            now: now(),
        };
        let plan = plan(&seen);
        assert_eq!(plan.mark[0].1, json!({"metadata": {"annotations": {"pod-group-name": "g"}}}));
    }

    fn breach(status: &Value) -> String {
        let c = crate::object::condition(status, condition::BREACHED).unwrap();
        format!("{} {}", c.status, c.reason)
    }

    #[test]
    fn breaches() {
        let mut c = case(3, 2);
        assert_eq!(breach(&c.check("0g 1g 2g!", "^0 ^1")), "True ScheduledReplicasBelowMinAvailable");
        assert_eq!(breach(&c.check("0r 1s 2s", "")), "False SufficientReadyPods");
        assert_eq!(breach(&c.check("0r 1u 2u", "")), "True InsufficientReadyPods");
        assert_eq!(breach(&c.check("0r 1r 2c", "")), "False SufficientReadyPods");
        assert_eq!(breach(&c.check("0r 1c 2c", "")), "True InsufficientReadyPods");
        assert_eq!(breach(&c.check("0r 1r", "+2")), "False SufficientReadyPods");
        assert_eq!(breach(&c.check("0r 1x 2x", "+1 +2")), "True ScheduledReplicasBelowMinAvailable");
    }

    #[test]
    fn counts_and_conditions() {
        let mut c = case(4, 2);
        let status = c.check("0r 1s 2g! 3r*", "");
        for (field, expected) in [
            ("replicas", 4),
            ("readyReplicas", 2),
            ("scheduledReplicas", 3),
            ("scheduleGatedReplicas", 1),
            ("updatedReplicas", 3),
            ("observedGeneration", 4),
        ] {
            assert_eq!(status[field], expected, "{field}");
        }
        assert_eq!(status["hpaPodSelector"], "grove.io/podclique=p-0-a");
        assert!(holds(&status, condition::AVAILABLE) && holds(&status, condition::WAS_THERE));
        let status = case(4, 2).check("0g! 1g! 2g! 3g!", "");
        assert!(condition_status(&status, condition::WAS_THERE).is_empty(), "never there, never lost");
        c.clique.status = c.look("0r 1r 2r 3r").status;
        let plan = c.look("0p 1p 2p 3p");
        assert!(plan.lost_all && holds(&plan.status, condition::WAS_THERE));
    }

    #[test]
    fn a_status_said_twice_is_the_same() {
        let mut c = case(3, 2);
        let once = c.look("0r 1s 2g").status;
        c.clique.status = once.clone();
        assert_eq!(c.look("0r 1s 2g").status, once);
    }

    fn finite(replicas: i64) -> Case {
        let mut c = case(replicas, replicas);
        c.clique.spec.pod_spec["restartPolicy"] = json!("Never");
        c
    }

    #[test]
    fn coming_to_an_end() {
        let mut c = finite(2);
        let status = c.check("0d 1r", "");
        assert!(holds(&status, condition::AVAILABLE) && !holds(&status, condition::BREACHED));
        assert!(condition_status(&status, condition::COMPLETED).is_empty());
        let status = c.check("0d 1d", "");
        assert!(holds(&status, condition::COMPLETED) && !holds(&status, condition::BREACHED));
        assert_eq!((status["replicas"].as_i64(), status["readyReplicas"].as_i64()), (Some(2), Some(0)));
        c.clique.status = status;
        assert!(!c.look("0d 1d").lost_all);
    }

    #[test]
    fn failures_are_tried_again_after_a_while() {
        let mut c = finite(2);
        c.check("0f 1r", "~5");
        c.check("0f 0f 1r", "~15");
        let mut late = finite(2);
        late.clique.metadata.annotations.insert(keys::BACKOFF_LIMIT.into(), "1".into());
        let status = late.check("0f 0f 1r", "");
        assert!(holds(&status, condition::FAILED) && !holds(&status, condition::BREACHED));
        let status = late.check("0f 1r", "~5");
        assert!(condition_status(&status, condition::FAILED).is_empty());
    }

    /// Rolls until nothing is done any more; out: what happened at each step.
    #[test]
    fn rolls_one_ready_pod_after_the_other() {
        let mut c = case(3, 2);
        c.check("0r* 1r* 2s*", "");
        c.set.status = json!({"updateProgress": {"currentlyUpdating": [{"replicaIndex": 1}]}});
        c.check("0r* 1r* 2s*", "");
        c.set.status = json!({"updateProgress": {"currentlyUpdating": [{"replicaIndex": 0}]}});
        c.clique.status = c.check("0r* 1r* 2s*", "");
        assert_eq!(breach(&c.clique.status), "Unknown UpdateInProgress");
        c.clique.status = c.check("0r* 1r* 2s*", "-2");
        assert_eq!(c.clique.status["updateProgress"]["readyPodsSelectedToUpdate"]["current"], "p0");
        c.clique.status = c.check("0r* 1r* 2s", "-0");
        c.clique.status = c.check("0s 1r* 2s", "");
        c.clique.status = c.check("0s 1r* 2r", "");
        assert_eq!(
            c.clique.status["updateProgress"]["readyPodsSelectedToUpdate"]["current"], "p1",
            "one came back, one may go"
        );
        c.clique.status = c.check("0s 1r* 2r", "-1");
        c.clique.status = c.check("0r 1r 2r", "");
        let progress = &c.clique.status["updateProgress"];
        assert_eq!(progress["updateEndedAt"], "2026-02-01T00:00:00Z");
        assert_eq!(progress["readyPodsSelectedToUpdate"]["completed"], json!(["p0", "p1"]));
        assert_eq!(breach(&c.clique.status), "False SufficientReadyPods");
    }

    #[test]
    fn waits_for_the_replacement() {
        let mut c = case(2, 2);
        c.set.status = json!({"updateProgress": {"currentlyUpdating": [{"replicaIndex": 0}]}});
        c.clique.status = c.check("0r* 1r*", "");
        c.clique.status = c.check("0r* 1r*", "");
        c.clique.status = c.check("0r* 1r*", "-0");
        c.clique.status = c.check("1r*", "+0");
        c.clique.status = c.check("0p 1r*", "");
        c.clique.status = c.check("0p 1r*", "");
        c.clique.status = c.check("0r 1r*", "");
        c.clique.status = c.check("0r 1r*", "-1");
    }

    #[test]
    fn on_delete_rolls_nothing() {
        let mut c = case(2, 1);
        c.set.spec.update_strategy.kind = "OnDelete".into();
        c.clique.status = json!({"currentPodTemplateHash": hash::template(&Default::default())});
        let status = c.check("0r* 1r", "");
        let progress = &status["updateProgress"];
        assert_eq!(progress["updateStartedAt"], progress["updateEndedAt"]);
        assert_eq!(status["updatedReplicas"], 1);
        assert_eq!(breach(&status), "False SufficientReadyPods");
    }

    #[test]
    fn adopted_pods_are_not_stale() {
        let mut c = case(2, 1);
        let hash = label(&c.clique.metadata, keys::TEMPLATE_HASH).to_owned();
        c.clique.metadata.annotations.insert(keys::ADOPTED_HASH.into(), format!("old={hash}"));
        assert_eq!(c.check("0r* 1r*", "")["updatedReplicas"], 2);
    }
}
