//! What a workload needs besides a decision: checks, stops, timeouts, execution time, deactivation, retention.
//!
//! In: a workload, its queues, why it waits, and the time. Out: a [`Plan`]: the new status or spec, what to tell people, and when to look again. One
//! thing at a time: a plan that changes something is followed by another. The words are Kueue's. Must stay true: what has quota and must not have it
//! is evicted first, and keeps its quota until it has stopped.

use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::clock::{later, stamp, until};
use serde_json::{Value, json};

use crate::brain::Told;
use crate::keys::{self, condition as kind, evicted};
use crate::object::{ClusterQueue, LocalQueue, Workload, condition, int, list, text, time, why_not};
use crate::settings::Settings;
use crate::status::Draft;

/// What is known.
pub struct Seen<'a> {
    pub workload: &'a Workload,
    pub local: Option<&'a LocalQueue>,
    pub cluster: Option<&'a ClusterQueue>,
    /// The cluster queue takes workloads in.
    pub is_cluster_active: bool,
    /// Why it waits.
    pub told: Option<&'a Told>,
    /// What it asks for, for its status.
    pub requests: Option<Value>,
    /// Somebody who runs here keeps its job.
    pub is_kept: bool,
    /// Nodes that failed under it.
    pub lost: &'a [String],
    pub settings: &'a Settings,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The whole new status.
    pub status: Option<Value>,
    /// A merge patch of the object.
    pub patch: Option<Value>,
    pub delete: bool,
    /// Its job is deleted, and it goes along.
    pub delete_owner: bool,
    pub events: Vec<(bool, &'static str, String)>,
    pub after: Option<Duration>,
}

impl Plan {
    fn status(draft: Draft) -> Self {
        Plan { status: Some(draft.status), ..Plan::default() }
    }

    fn told(mut self, warning: bool, reason: &'static str, message: impl Into<String>) -> Self {
        self.events.push((warning, reason, message.into()));
        self
    }

    fn later(after: Duration) -> Self {
        Plan { after: Some(after), ..Plan::default() }
    }

    /// Nothing is written.
    pub fn is_quiet(&self) -> bool {
        self.status.is_none() && self.patch.is_none() && !self.delete && !self.delete_owner
    }
}

pub fn plan(seen: &Seen<'_>) -> Plan {
    let workload = seen.workload;
    if workload.metadata.deleting() {
        return let_go(seen);
    }
    if workload.is_finished() {
        return retire(seen);
    }
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, seen.now);
    if workload.is_active() {
        if workload.holds(kind::DEACTIVATION_TARGET) {
            return Plan { patch: Some(json!({"spec": {"active": false}})), ..Plan::default() };
        }
        if let Some(plan) = requeue(seen, &mut draft) {
            return plan;
        }
    } else if let Some(plan) = deactivate(seen, &mut draft).or_else(|| give_up(seen)) {
        return plan;
    }
    if let Some(plan) = restart(seen, &mut draft) {
        return plan;
    }
    if let Some(plan) = sync_checks(seen, &mut draft) {
        return plan;
    }
    if !workload.is_admitted() && workload.has_quota() && !workload.is_evicted() && has_passed(workload) {
        draft.admit();
        let since =
            condition(workload.status(), kind::QUOTA_RESERVED).and_then(|c| time(c, &["lastTransitionTime"]));
        let waited = since.map_or(0, |since| until(since, seen.now).as_secs());
        let words = format!(
            "Admitted by ClusterQueue {}, wait time since reservation was {waited}s",
            workload.cluster_queue()
        );
        return Plan::status(draft).told(false, "Admitted", words);
    }
    if workload.has_quota() { keep(seen, draft) } else { wait(seen, draft) }
}

fn let_go(seen: &Seen<'_>) -> Plan {
    let meta = &seen.workload.metadata;
    if seen.is_kept || !meta.finalizers.iter().any(|f| f == keys::IN_USE) {
        return Plan::default();
    }
    let left: Vec<&String> = meta.finalizers.iter().filter(|f| *f != keys::IN_USE).collect();
    Plan { patch: Some(json!({"metadata": {"finalizers": left}})), ..Plan::default() }
}

/// A workload that is over is deleted after a while, where that is wanted.
fn retire(seen: &Seen<'_>) -> Plan {
    let Some(keep) = seen.settings.after_finished else { return Plan::default() };
    let since =
        condition(seen.workload.status(), kind::FINISHED).and_then(|c| time(c, &["lastTransitionTime"]));
    let end = later(since.unwrap_or(seen.now), keep);
    let left = until(seen.now, end);
    if !left.is_zero() {
        return Plan::later(left);
    }
    let plan = Plan { delete: true, ..Plan::default() };
    plan.told(false, "Deleted", "Deleted finished workload due to elapsed retention")
}

/// Whoever was held back is let in again when its time has come.
fn requeue(seen: &Seen<'_>, draft: &mut Draft) -> Option<Plan> {
    let status = seen.workload.status();
    match why_not(status, kind::REQUEUED)? {
        reason if reason.starts_with(evicted::DEACTIVATED) => {
            draft.condition(kind::REQUEUED, true, "Reactivated", "The workload was reactivated");
        }
        evicted::PODS_READY_TIMEOUT | evicted::ADMISSION_CHECK => {
            let at = time(status, &["requeueState", "requeueAt"]);
            let left = at.map_or(Duration::ZERO, |at| until(seen.now, at));
            if !left.is_zero() {
                return Some(Plan::later(left));
            }
            if let Some(Value::Object(state)) = draft.status.get_mut("requeueState") {
                state.remove("requeueAt");
            }
            draft.condition(kind::REQUEUED, true, "BackoffFinished", "The workload backoff was finished");
        }
        _ => return None,
    }
    Some(Plan::status(draft.clone()))
}

fn deactivate(seen: &Seen<'_>, draft: &mut Draft) -> Option<Plan> {
    let before = seen.workload.status();
    let target = condition(before, kind::DEACTIVATION_TARGET);
    let (mut reason, mut message) =
        (evicted::DEACTIVATED.to_owned(), "The workload is deactivated".to_owned());
    let mut news = Vec::new();
    if !seen.workload.is_evicted() {
        if let Some(target) = target {
            reason = format!("{reason}DueTo{}", text(target, &["reason"]));
            message = format!("{message} due to {}", text(target, &["message"]));
        }
        draft.evict(&reason, &message, "");
        if seen.workload.has_quota() {
            news.push((false, "EvictedDueToDeactivated", message.clone()));
        }
    }
    draft.without(kind::DEACTIVATION_TARGET);
    draft.remove("requeueState");
    draft.reset_checks();
    if draft.status == *before {
        return None;
    }
    let mut plan = Plan::status(draft.clone());
    plan.events = news;
    Some(plan)
}

/// The job of a workload that we deactivated is deleted after a while, where that is wanted.
fn give_up(seen: &Seen<'_>) -> Option<Plan> {
    let keep = seen.settings.after_deactivated?;
    let by_us = condition(seen.workload.status(), kind::EVICTED)
        .filter(|c| text(c, &["status"]) == "True" && text(c, &["reason"]).starts_with("DeactivatedDueTo"))?;
    let end = later(time(by_us, &["lastTransitionTime"]).unwrap_or(seen.now), keep);
    let left = until(seen.now, end);
    if !left.is_zero() {
        return Some(Plan::later(left));
    }
    let plan = Plan { delete_owner: true, ..Plan::default() };
    Some(plan.told(false, "Deleted", "Deleted owner of a deactivated workload due to elapsed retention"))
}

fn stop_policy(spec: &Value) -> &str {
    match text(spec, &["stopPolicy"]) {
        "" => "None",
        policy => policy,
    }
}

/// A queue that was stopped goes on.
fn restart(seen: &Seen<'_>, draft: &mut Draft) -> Option<Plan> {
    let why = why_not(seen.workload.status(), kind::REQUEUED)?;
    let goes_on = |spec: Option<&Value>| spec.is_some_and(|spec| stop_policy(spec) == "None");
    let (reason, message) = match why {
        evicted::LOCAL_QUEUE_STOPPED if goes_on(seen.local.map(LocalQueue::spec)) => {
            ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped")
        }
        evicted::CLUSTER_QUEUE_STOPPED if goes_on(seen.cluster.map(ClusterQueue::spec)) => {
            ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped")
        }
        _ => return None,
    };
    draft.condition(kind::REQUEUED, true, reason, message);
    Some(Plan::status(draft.clone()))
}

/// The checks that a workload has to pass: before it has flavors those of all flavors, then those of its own.
fn checks_of(workload: &Workload, queue: &ClusterQueue) -> Vec<String> {
    let given: Vec<&str> = list(workload.status(), &["admission", "podSetAssignments"])
        .iter()
        .filter_map(|a| a.get("flavors")?.as_object())
        .flat_map(|flavors| flavors.values())
        .filter_map(Value::as_str)
        .collect();
    let applies = |rule: &&Value| {
        let flavors = list(rule, &["onFlavors"]);
        flavors.is_empty() || flavors.iter().filter_map(Value::as_str).any(|flavor| given.contains(&flavor))
    };
    let mut names: Vec<String> = list(queue.spec(), &["admissionChecksStrategy", "admissionChecks"])
        .iter()
        .filter(applies)
        .map(|rule| text(rule, &["name"]).to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn sync_checks(seen: &Seen<'_>, draft: &mut Draft) -> Option<Plan> {
    let wanted = checks_of(seen.workload, seen.cluster?);
    let known = list(seen.workload.status(), &["admissionChecks"]);
    let mut states: Vec<Value> =
        known.iter().filter(|c| wanted.iter().any(|name| text(c, &["name"]) == name)).cloned().collect();
    for name in &wanted {
        if !states.iter().any(|c| text(c, &["name"]) == name) {
            states.push(json!({
                "name": name, "state": "Pending", "message": "", "lastTransitionTime": stamp(seen.now),
            }));
        }
    }
    states.sort_by(|a, b| text(a, &["name"]).cmp(text(b, &["name"])));
    let names =
        |list: &[Value]| -> Vec<String> { list.iter().map(|c| text(c, &["name"]).to_owned()).collect() };
    let mut before = names(known);
    before.sort();
    if before == names(&states) {
        return None;
    }
    if states.is_empty() {
        draft.remove("admissionChecks");
    } else {
        draft.set("admissionChecks", Value::Array(states));
    }
    Some(Plan::status(draft.clone()))
}

/// Whether nothing stands between quota and admission.
fn has_passed(workload: &Workload) -> bool {
    let status = workload.status();
    list(status, &["admissionChecks"]).iter().all(|c| text(c, &["state"]) == "Ready")
        && list(status, &["admission", "podSetAssignments"])
            .iter()
            .all(|a| text(a, &["delayedTopologyRequest"]) != "Pending")
}

fn evict(mut draft: Draft, reason: &'static str, event: &'static str, message: &str, cause: &str) -> Plan {
    draft.evict(reason, message, cause);
    Plan::status(draft).told(false, event, message)
}

/// A workload with quota: must it go?
fn keep(seen: &Seen<'_>, mut draft: Draft) -> Plan {
    let workload = seen.workload;
    if workload.is_evicted() {
        // Where nobody keeps its pods, nothing has to stop.
        if workload.metadata.owner_references.is_empty() {
            draft.end_eviction();
            return Plan::status(draft);
        }
        return Plan::default();
    }
    if let Some(plan) = on_lost_nodes(seen, &mut draft) {
        return plan;
    }
    let of_state = |state: &str| -> Vec<&Value> {
        list(workload.status(), &["admissionChecks"])
            .iter()
            .filter(|c| text(c, &["state"]) == state)
            .collect()
    };
    let rejected = of_state("Rejected");
    if let Some(first) = rejected.first() {
        let names: Vec<&str> = rejected.iter().map(|c| text(c, &["name"])).collect();
        let message = format!("Admission check(s): {}, were rejected", names.join(","));
        draft.condition(kind::DEACTIVATION_TARGET, true, evicted::ADMISSION_CHECK, &message);
        let words = format!(
            "Deactivating workload because AdmissionCheck for {} was Rejected: {}",
            text(first, &["name"]),
            text(first, &["message"])
        );
        return Plan::status(draft).told(true, "AdmissionCheckRejected", words);
    }
    if !of_state("Retry").is_empty() {
        let words = "At least one admission check is false";
        return evict(draft, evicted::ADMISSION_CHECK, "EvictedDueToAdmissionCheck", words, "");
    }
    if let Some(plan) = on_stop(seen, &mut draft) {
        return plan;
    }
    let ready = match on_slow_start(seen, &mut draft) {
        Ok(plan) => return plan,
        Err(after) => after,
    };
    let run = match on_long_run(seen, &mut draft) {
        Ok(plan) => return plan,
        Err(after) => after,
    };
    Plan { after: ready.into_iter().chain(run).min(), ..Plan::default() }
}

/// More lost nodes than this are not written down: then all of it starts anew.
const MOST_LOST: usize = 8;

/// Nodes that failed are written down; whoever decides finds others, or lets the workload go.
fn on_lost_nodes(seen: &Seen<'_>, draft: &mut Draft) -> Option<Plan> {
    if seen.lost.is_empty() || !seen.workload.is_admitted() {
        return None;
    }
    if seen.lost.len() > MOST_LOST {
        let words = format!("Workload was evicted as too many nodes failed: {}", seen.lost.len());
        return Some(evict(draft.clone(), evicted::NODE_FAILURES, "EvictedDueToNodeFailures", &words, ""));
    }
    let nodes: Vec<Value> = seen.lost.iter().map(|name| json!({"name": name})).collect();
    if list(seen.workload.status(), &["unhealthyNodes"]) == nodes {
        return None;
    }
    draft.set("unhealthyNodes", Value::Array(nodes));
    Some(Plan::status(draft.clone()))
}

fn on_stop(seen: &Seen<'_>, draft: &mut Draft) -> Option<Plan> {
    let workload = seen.workload;
    let admitted = workload.is_admitted();
    let local = seen.local.map_or("None", |q| stop_policy(q.spec()));
    let cluster = seen.cluster.map_or("None", |q| stop_policy(q.spec()));
    if admitted {
        if local == "HoldAndDrain" {
            let (reason, event) = (evicted::LOCAL_QUEUE_STOPPED, "EvictedDueToLocalQueueStopped");
            return Some(evict(draft.clone(), reason, event, "The LocalQueue is stopped", ""));
        }
        if cluster == "HoldAndDrain" {
            let (reason, event) = (evicted::CLUSTER_QUEUE_STOPPED, "EvictedDueToClusterQueueStopped");
            return Some(evict(draft.clone(), reason, event, "The ClusterQueue is stopped", ""));
        }
        return None;
    }
    let (queue, cluster_name) = (workload.queue(), workload.cluster_queue());
    let is_gone = |meta: Option<&muster_runtime::object::Meta>| meta.is_none_or(|meta| meta.deleting());
    let words = if is_gone(seen.local.map(|q| &q.metadata)) {
        ("Misconfigured", format!("LocalQueue {queue} is terminating or missing"))
    } else if local != "None" {
        ("Suspended", format!("LocalQueue {queue} is stopped"))
    } else if is_gone(seen.cluster.map(|q| &q.metadata)) {
        ("Misconfigured", format!("ClusterQueue {cluster_name} is terminating or missing"))
    } else if cluster != "None" {
        ("Suspended", format!("ClusterQueue {cluster_name} is stopped"))
    } else {
        return None;
    };
    draft.release(words.0, &words.1);
    Some(Plan::status(draft.clone()))
}

/// Pods that do not get ready in time. `Err`: when to look again.
fn on_slow_start(seen: &Seen<'_>, draft: &mut Draft) -> Result<Plan, Option<Duration>> {
    let workload = seen.workload;
    let Some(rule) = &seen.settings.pods_ready else { return Err(None) };
    if !workload.is_active() || !workload.is_admitted() {
        return Err(None);
    }
    let status = workload.status();
    let since = |kind: &str| condition(status, kind).and_then(|c| time(c, &["lastTransitionTime"]));
    let (began, limit, cause) = match condition(status, kind::PODS_READY) {
        Some(c) if text(c, &["status"]) == "True" => return Err(None),
        Some(c) if text(c, &["reason"]) == "WaitForRecovery" => {
            if rule.recovery.is_zero() {
                return Err(None);
            }
            (since(kind::PODS_READY), rule.recovery, "WaitForRecovery")
        }
        _ => (since(kind::ADMITTED), rule.timeout, "WaitForStart"),
    };
    let end = later(began.unwrap_or(seen.now), limit);
    let left = until(seen.now, end);
    if !left.is_zero() {
        return Err(Some(left));
    }
    let count = int(status, &["requeueState", "count"]).unwrap_or(0).saturating_add(1);
    if rule.most.is_some_and(|most| count > most) {
        let words = "exceeding the maximum number of re-queuing retries";
        draft.condition(kind::DEACTIVATION_TARGET, true, "RequeuingLimitExceeded", words);
        return Ok(Plan::status(draft.clone()));
    }
    let exponent = u32::try_from(count - 1).unwrap_or(u32::MAX).min(30);
    let wait = rule.base.saturating_mul(1_u32 << exponent).min(rule.longest);
    draft.set("requeueState", json!({"count": count, "requeueAt": stamp(later(seen.now, wait))}));
    let meta = &workload.metadata;
    let words = format!("Exceeded the PodsReady timeout {}/{}", meta.namespace, meta.name);
    Ok(evict(draft.clone(), evicted::PODS_READY_TIMEOUT, "EvictedDueToPodsReadyTimeout", &words, cause))
}

/// Work that runs longer than it may. `Err`: when to look again.
fn on_long_run(seen: &Seen<'_>, draft: &mut Draft) -> Result<Plan, Option<Duration>> {
    let workload = seen.workload;
    let Some(most) = int(workload.spec(), &["maximumExecutionTimeSeconds"]) else { return Err(None) };
    let admitted = condition(workload.status(), kind::ADMITTED).filter(|_| workload.is_admitted());
    let Some(since) = admitted.and_then(|c| time(c, &["lastTransitionTime"])) else { return Err(None) };
    let before = int(workload.status(), &["accumulatedPastExecutionTimeSeconds"]).unwrap_or(0);
    let left = u64::try_from(most.saturating_sub(before)).unwrap_or(0);
    let left = until(seen.now, later(since, Duration::from_secs(left)));
    if !left.is_zero() {
        return Err(Some(left));
    }
    let words = "exceeding the maximum execution time";
    draft.condition(kind::DEACTIVATION_TARGET, true, "MaximumExecutionTimeExceeded", words);
    draft.remove("accumulatedPastExecutionTimeSeconds");
    let plan = Plan::status(draft.clone());
    Ok(plan.told(
        true,
        "MaximumExecutionTimeExceeded",
        format!("The maximum execution time ({most}s) exceeded"),
    ))
}

/// A workload without quota: why does it wait?
fn wait(seen: &Seen<'_>, mut draft: Draft) -> Plan {
    let workload = seen.workload;
    if !workload.is_active() {
        return Plan::default();
    }
    let queue = workload.queue();
    let mut news = None;
    let (reason, message) = match (seen.local, seen.cluster) {
        (None, _) => ("Misconfigured", format!("LocalQueue {queue} doesn't exist")),
        (Some(local), _) if stop_policy(local.spec()) != "None" => {
            ("Suspended", format!("LocalQueue {queue} is inactive"))
        }
        (Some(local), None) => {
            let name = text(local.spec(), &["clusterQueue"]);
            ("Misconfigured", format!("ClusterQueue {name} doesn't exist"))
        }
        (_, Some(cluster)) if !seen.is_cluster_active => {
            ("Suspended", format!("ClusterQueue {} is inactive", cluster.metadata.name))
        }
        _ => match seen.told {
            Some(told) => {
                news = Some(told.message.clone());
                (told.reason, told.message.clone())
            }
            None => return Plan::default(),
        },
    };
    if let Some(requests) = &seen.requests {
        draft.set("resourceRequests", requests.clone());
    }
    draft.release(reason, &message);
    if draft.status == *workload.status() {
        return Plan::default();
    }
    let plan = Plan::status(draft);
    match news {
        Some(message) => plan.told(true, "Pending", message),
        None => plan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::holds;
    use muster_runtime::object::{Meta, OwnerRef};

    const NOW: &str = "2026-01-01T01:00:00Z";

    struct Case {
        workload: Workload,
        local: Option<LocalQueue>,
        cluster: Option<ClusterQueue>,
        active: bool,
        told: Option<Told>,
        settings: Settings,
        kept: bool,
        lost: Vec<String>,
    }

    /// A workload: its conditions as `Type`, `!Type`, with `:Reason` and `@minutes` ago.
    fn case(conditions: &str) -> Case {
        let now: Timestamp = NOW.parse().unwrap();
        let conditions: Vec<Value> = conditions
            .split_whitespace()
            .map(|word| {
                let (word, ago) = word.split_once('@').unwrap_or((word, "0"));
                let (name, reason) = word.split_once(':').unwrap_or((word, "R"));
                let since = now - jiff::SignedDuration::from_mins(ago.parse().unwrap());
                let is = if name.starts_with('!') { "False" } else { "True" };
                json!({"type": name.trim_start_matches('!'), "status": is, "reason": reason, "message": "m",
                       "lastTransitionTime": stamp(since)})
            })
            .collect();
        let admission =
            json!({"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}}]});
        let mut status = json!({"conditions": conditions});
        if holds(&status, kind::QUOTA_RESERVED) {
            status["admission"] = admission;
        }
        let owner = OwnerRef {
            kind: "Job".into(),
            name: "j".into(),
            uid: "u".into(),
            controller: true,
            ..OwnerRef::default()
        };
        let metadata = Meta {
            name: "w".into(),
            namespace: "ns".into(),
            owner_references: vec![owner],
            finalizers: vec![keys::IN_USE.into()],
            ..Meta::default()
        };
        Case {
            workload: Workload { metadata, body: json!({"spec": {"queueName": "lq"}, "status": status}) },
            local: Some(LocalQueue { body: json!({"spec": {"clusterQueue": "cq"}}), ..Default::default() }),
            cluster: Some(ClusterQueue {
                metadata: Meta { name: "cq".into(), ..Meta::default() },
                body: json!({"spec": {}}),
            }),
            active: true,
            told: None,
            settings: Settings::default(),
            kept: true,
            lost: Vec::new(),
        }
    }

    impl Case {
        fn plan(&self) -> Plan {
            plan(&Seen {
                workload: &self.workload,
                local: self.local.as_ref(),
                cluster: self.cluster.as_ref(),
                is_cluster_active: self.active,
                told: self.told.as_ref(),
                requests: None,
                is_kept: self.kept,
                lost: &self.lost,
                settings: &self.settings,
                now: NOW.parse().unwrap(),
            })
        }

        /// What the plan changes: conditions that are other than before, or `patch`, `delete`, `after Ns`.
        fn shown(&self) -> String {
            let plan = self.plan();
            let mut out: Vec<String> = Vec::new();
            if let Some(status) = &plan.status {
                let before = self.workload.status();
                for c in list(status, &["conditions"]) {
                    if condition(before, text(c, &["type"])) != Some(c) {
                        let is = if text(c, &["status"]) == "True" { "" } else { "!" };
                        out.push(format!("{is}{}:{}", text(c, &["type"]), text(c, &["reason"])));
                    }
                }
                for field in ["admission", "requeueState", "admissionChecks", "unhealthyNodes"] {
                    if before.get(field) != status.get(field) {
                        out.push(format!(
                            "{field}={}",
                            status.get(field).map_or("none".into(), Value::to_string)
                        ));
                    }
                }
            }
            out.extend(plan.patch.map(|patch| patch.to_string()));
            out.extend(plan.delete.then(|| "delete".to_owned()));
            out.extend(plan.delete_owner.then(|| "delete owner".to_owned()));
            out.extend(plan.after.map(|after| format!("after {}s", after.as_secs())));
            out.join(" ")
        }
    }

    #[track_caller]
    fn check(case: &Case, expected: &str) {
        assert_eq!(case.shown(), expected);
    }

    #[test]
    fn nothing_to_do() {
        check(&case(""), "");
        check(&case("QuotaReserved Admitted PodsReady"), "");
        check(&case("Finished"), "");
    }

    #[test]
    fn why_it_waits() {
        let mut waiting = case("");
        waiting.told = Some(Told { reason: "WaitingForQuota", message: "m".into() });
        check(&waiting, "!QuotaReserved:WaitingForQuota");
        waiting.active = false;
        check(&waiting, "!QuotaReserved:Suspended");
        waiting.cluster = None;
        check(&waiting, "!QuotaReserved:Misconfigured");
        waiting.local = Some(LocalQueue {
            body: json!({"spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}),
            ..Default::default()
        });
        check(&waiting, "!QuotaReserved:Suspended");
        waiting.local = None;
        check(&waiting, "!QuotaReserved:Misconfigured");
        let message = waiting.plan().status.unwrap()["conditions"][0]["message"].clone();
        assert_eq!(message, "LocalQueue lq doesn't exist");
    }

    #[test]
    fn checks() {
        let with = |states: Value, conditions: &str| {
            let mut case = case(conditions);
            case.cluster = Some(ClusterQueue {
                metadata: Meta { name: "cq".into(), ..Meta::default() },
                body: json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [
                    {"name": "a"}, {"name": "other", "onFlavors": ["g"]}]}}}),
            });
            if !states.is_null() {
                case.workload.body["status"]["admissionChecks"] = states;
            }
            case
        };
        let state = |state: &str| json!([{"name": "a", "state": state, "message": "no"}]);
        let before = with(Value::Null, "");
        let begun = before.plan().status.unwrap();
        let names: Vec<&str> =
            list(&begun, &["admissionChecks"]).iter().map(|c| text(c, &["name"])).collect();
        assert_eq!(names, ["a"]);
        assert_eq!(begun["admissionChecks"][0]["state"], "Pending");
        check(&with(state("Pending"), "QuotaReserved"), "");
        check(&with(state("Ready"), "QuotaReserved"), "Admitted:Admitted");
        check(&with(state("Rejected"), "QuotaReserved"), "DeactivationTarget:AdmissionCheck");
        let retry = with(state("Retry"), "QuotaReserved").shown();
        assert!(retry.starts_with("Evicted:AdmissionCheck admissionChecks="), "{retry}");
        // Checks that no longer apply are forgotten.
        let stale = json!([{"name": "a", "state": "Ready"}, {"name": "z", "state": "Pending"}]);
        check(&with(stale, "QuotaReserved"), r#"admissionChecks=[{"name":"a","state":"Ready"}]"#);
    }

    #[test]
    fn checks_that_want_to_be_asked_later() {
        let mut later = case("Evicted:AdmissionCheck !Requeued:AdmissionCheck");
        later.workload.body["status"]["requeueState"] = json!({"requeueAt": "2026-01-01T01:00:30Z"});
        check(&later, "after 30s");
        later.workload.body["status"]["requeueState"] = json!({"requeueAt": "2026-01-01T00:59:30Z"});
        check(&later, "Requeued:BackoffFinished requeueState={}");
    }

    #[test]
    fn stops() {
        let stopped = |policy: &str, conditions: &str| {
            let mut case = case(conditions);
            case.cluster.as_mut().unwrap().body = json!({"spec": {"stopPolicy": policy}});
            case
        };
        check(&stopped("Hold", "QuotaReserved Admitted PodsReady"), "");
        check(&stopped("HoldAndDrain", "QuotaReserved Admitted PodsReady"), "Evicted:ClusterQueueStopped");
        let checks = json!([{"name": "a", "state": "Pending"}]);
        let mut held = stopped("Hold", "QuotaReserved");
        held.workload.body["status"]["admissionChecks"] = checks;
        held.cluster.as_mut().unwrap().body["spec"]["admissionChecksStrategy"] =
            json!({"admissionChecks": [{"name": "a"}]});
        check(&held, "!QuotaReserved:Suspended admission=none");
        check(&stopped("None", "!Requeued:ClusterQueueStopped"), "Requeued:ClusterQueueRestarted");
        check(&stopped("Hold", "!Requeued:ClusterQueueStopped"), "");
        let mut local = case("QuotaReserved Admitted PodsReady");
        local.local.as_mut().unwrap().body["spec"]["stopPolicy"] = json!("HoldAndDrain");
        check(&local, "Evicted:LocalQueueStopped");
        check(&case("!Requeued:LocalQueueStopped"), "Requeued:LocalQueueRestarted");
    }

    #[test]
    fn pods_that_are_not_ready() {
        check(&case("QuotaReserved Admitted@10 !PodsReady:WaitForStart"), "after 1200s");
        let late = case("QuotaReserved Admitted@31 !PodsReady:WaitForStart");
        check(
            &late,
            r#"Evicted:PodsReadyTimeout requeueState={"count":1,"requeueAt":"2026-01-01T01:01:00Z"}"#,
        );
        let words = condition(&late.plan().status.unwrap(), kind::EVICTED).unwrap()["message"].clone();
        assert_eq!(words, "Exceeded the PodsReady timeout ns/w");
        let mut often = case("QuotaReserved Admitted@31 !PodsReady:WaitForStart");
        often.workload.body["status"]["requeueState"] = json!({"count": 3});
        check(
            &often,
            r#"Evicted:PodsReadyTimeout requeueState={"count":4,"requeueAt":"2026-01-01T01:08:00Z"}"#,
        );
        often.settings.pods_ready = Some(crate::settings::PodsReady { most: Some(3), ..Default::default() });
        check(&often, "DeactivationTarget:RequeuingLimitExceeded");
        // One that was ready before has its own time.
        check(&case("QuotaReserved Admitted@99 !PodsReady:WaitForRecovery@10"), "after 1200s");
        let mut never = case("QuotaReserved Admitted@99 !PodsReady:WaitForStart");
        never.settings.pods_ready = None;
        check(&never, "");
        let mut far = case("QuotaReserved Admitted@31 !PodsReady:WaitForStart");
        far.workload.body["status"]["requeueState"] = json!({"count": 4_000_000_000_i64});
        assert!(far.shown().ends_with(r#""requeueAt":"2026-01-01T02:00:00Z"}"#), "{}", far.shown());
    }

    #[test]
    fn work_that_runs_too_long() {
        let mut long = case("QuotaReserved Admitted@10 PodsReady");
        long.workload.body["spec"]["maximumExecutionTimeSeconds"] = json!(900);
        check(&long, "after 300s");
        long.workload.body["status"]["accumulatedPastExecutionTimeSeconds"] = json!(301);
        check(&long, "DeactivationTarget:MaximumExecutionTimeExceeded");
    }

    #[test]
    fn deactivation() {
        check(&case("QuotaReserved Admitted PodsReady DeactivationTarget:X"), r#"{"spec":{"active":false}}"#);
        let mut off = case("QuotaReserved Admitted PodsReady DeactivationTarget:X");
        off.workload.body["spec"]["active"] = json!(false);
        check(&off, "Evicted:DeactivatedDueToX");
        assert_eq!(condition(&off.plan().status.unwrap(), kind::DEACTIVATION_TARGET), None);
        let mut plain = case("QuotaReserved Admitted PodsReady");
        plain.workload.body["spec"]["active"] = json!(false);
        check(&plain, "Evicted:Deactivated");
        let mut done = case("Evicted:Deactivated !Requeued:Deactivated !QuotaReserved");
        done.workload.body["spec"]["active"] = json!(false);
        check(&done, "");
        check(
            &case("Evicted:Deactivated !Requeued:DeactivatedDueToX !QuotaReserved"),
            "Requeued:Reactivated",
        );
    }

    #[test]
    fn nodes_that_failed() {
        let mut lost = case("QuotaReserved Admitted PodsReady");
        lost.lost = vec!["n1".into()];
        check(&lost, r#"unhealthyNodes=[{"name":"n1"}]"#);
        lost.workload.body["status"]["unhealthyNodes"] = json!([{"name": "n1"}]);
        check(&lost, "");
        lost.lost = (0..9).map(|i| format!("n{i}")).collect();
        check(&lost, "Evicted:NodeFailures unhealthyNodes=none");
    }

    #[test]
    fn jobs_that_were_given_up() {
        let mut off = case(
            "!QuotaReserved Evicted:DeactivatedDueToRequeuingLimitExceeded@10 !Requeued:DeactivatedDueToX",
        );
        off.workload.body["spec"]["active"] = json!(false);
        check(&off, "");
        off.settings.after_deactivated = Some(Duration::from_secs(900));
        check(&off, "after 300s");
        off.settings.after_deactivated = Some(Duration::from_secs(60));
        check(&off, "delete owner");
    }

    #[test]
    fn ends() {
        let mut finished = case("Finished@10");
        finished.settings.after_finished = Some(Duration::from_secs(900));
        check(&finished, "after 300s");
        finished.settings.after_finished = Some(Duration::from_secs(60));
        check(&finished, "delete");
        let mut going = case("Finished");
        going.workload.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
        check(&going, "");
        going.kept = false;
        check(&going, r#"{"metadata":{"finalizers":[]}}"#);
        // Nobody keeps its pods, so nothing has to stop.
        let mut alone = case("QuotaReserved Admitted Evicted:Preempted");
        check(&alone, "");
        alone.workload.metadata.owner_references.clear();
        check(&alone, "!QuotaReserved:Pending !Admitted:NoReservation Requeued:Preempted admission=none");
    }
}
