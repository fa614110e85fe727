//! Which pod of a StatefulSet comes or goes next.
//!
//! In: the set, its pods, the names of its current and its newest revision. Out: ordinals to create, pods to delete,
//! the status. Must stay true: in order, nothing is created before its predecessor is available and nothing is deleted
//! before its successors are gone; an update goes from the highest ordinal down to the partition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::StatefulSet;
use crate::object::Pod;
use crate::replicaset::plan::next_available_pod;
use crate::revisions::REVISION_LABEL;

/// More than a burst of parallel creates needs.
const BURST: i64 = 500;

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make the pod of this ordinal from the newest template (`true`) or the current one.
    Create {
        ordinal: i64,
        newest: bool,
    },
    Delete(Arc<Pod>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub status: Value,
    pub wake: Option<Duration>,
}

/// The number at the end of a pod's name, if it is one of the set's.
pub fn ordinal_of(set: &str, pod: &str) -> Option<i64> {
    let text = pod.strip_prefix(set)?.strip_prefix('-')?;
    (text == "0" || !text.starts_with('0')).then(|| text.parse().ok()).flatten().filter(|n| *n >= 0)
}

pub fn plan(set: &StatefulSet, pods: &[Arc<Pod>], current: &str, newest: &str, now: Timestamp) -> Plan {
    let by_ordinal: BTreeMap<i64, &Arc<Pod>> =
        pods.iter().filter_map(|p| Some((ordinal_of(&set.metadata.name, &p.metadata.name)?, p))).collect();
    let status = status(set, &by_ordinal, current, newest, now);
    let actions =
        if set.metadata.deleting() { Vec::new() } else { actions(set, &by_ordinal, current, newest, now) };
    Plan { actions, status, wake: next_available_pod(pods, set.spec.min_ready_seconds, now) }
}

fn actions(
    set: &StatefulSet,
    pods: &BTreeMap<i64, &Arc<Pod>>,
    current: &str,
    newest: &str,
    now: Timestamp,
) -> Vec<Action> {
    let in_order = set.spec.pod_management_policy != "Parallel";
    let start = set.spec.ordinals.start.max(0);
    let end = start.saturating_add(set.replicas());
    let available = |p: &Pod| p.status.phase == "Running" && p.available(set.spec.min_ready_seconds, now);
    let mut actions = Vec::new();

    for ordinal in start..end.min(start.saturating_add(BURST * 20)) {
        match pods.get(&ordinal) {
            None => {
                actions.push(Action::Create { ordinal, newest: from_newest(set, ordinal, current, newest) });
                if in_order || actions.len() >= 500 {
                    return actions;
                }
            }
            Some(pod) if pod.finished() && !pod.metadata.deleting() => {
                // A pod that ended is replaced under its own name.
                actions.push(Action::Delete((*pod).clone()));
                if in_order {
                    return actions;
                }
            }
            Some(pod) if in_order && (pod.metadata.deleting() || !available(pod)) => return actions,
            Some(_) => {}
        }
    }

    let condemned: Vec<&Arc<Pod>> =
        pods.range(..start).chain(pods.range(end..)).map(|(_, p)| *p).rev().collect();
    if in_order {
        // Highest first, one at a time; the first that is unwell may go before the rest.
        if let Some(pod) = condemned.first() {
            if !pod.metadata.deleting() {
                actions.push(Action::Delete((*pod).clone()));
            }
            return actions;
        }
    } else {
        let leaving = condemned.iter().filter(|p| !p.metadata.deleting());
        actions.extend(leaving.map(|p| Action::Delete((*p).clone())));
    }
    if !actions.is_empty() || set.spec.update_strategy.kind == "OnDelete" {
        return actions;
    }

    let rolling = &set.spec.update_strategy.rolling_update;
    let partition = rolling.partition.unwrap_or(0).max(0).saturating_add(start);
    let may_miss = rolling.max_unavailable.as_ref().map_or(1, |m| m.of(set.replicas(), true)).max(1);
    let mut missing =
        i64::try_from(pods.range(start..end).filter(|(_, p)| p.metadata.deleting() || !available(p)).count())
            .unwrap_or(i64::MAX);
    for (_, pod) in pods.range(partition.min(end)..end).rev() {
        let stale = revision_of(pod) != newest;
        if stale && !pod.metadata.deleting() {
            let unwell = !available(pod);
            if missing >= may_miss && !unwell {
                break;
            }
            actions.push(Action::Delete((*pod).clone()));
            if !unwell {
                missing += 1;
            }
        }
        if missing >= may_miss {
            break;
        }
    }
    actions
}

fn revision_of(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str)
}

/// Below the partition, and below what has not been updated yet, a pod comes back as it was.
fn from_newest(set: &StatefulSet, ordinal: i64, current: &str, newest: &str) -> bool {
    if current == newest {
        return true;
    }
    let start = set.spec.ordinals.start.max(0);
    match set.spec.update_strategy.rolling_update.partition {
        Some(partition) if partition > 0 => ordinal >= start.saturating_add(partition),
        _ => ordinal >= start.saturating_add(set.number("currentReplicas")),
    }
}

fn status(
    set: &StatefulSet,
    pods: &BTreeMap<i64, &Arc<Pod>>,
    current: &str,
    newest: &str,
    now: Timestamp,
) -> Value {
    let count = |test: &dyn Fn(&Pod) -> bool| {
        i64::try_from(pods.values().filter(|p| test(p)).count()).unwrap_or(i64::MAX)
    };
    let running_ready = |p: &Pod| p.status.phase == "Running" && p.ready();
    let ready = count(&running_ready);
    let mut of_current = count(&|p| !p.metadata.deleting() && revision_of(p) == current);
    let updated = count(&|p| !p.metadata.deleting() && revision_of(p) == newest);
    let replicas = count(&|p| !p.finished());
    let mut current = current;
    let rolling = set.spec.update_strategy.kind != "OnDelete";
    if rolling && updated == replicas && ready == replicas && updated == set.replicas() {
        current = newest;
        of_current = updated;
    }
    let mut status = Map::new();
    status.insert("observedGeneration".into(), json!(set.metadata.generation));
    status.insert("replicas".into(), json!(replicas));
    status.insert("readyReplicas".into(), json!(ready));
    status.insert(
        "availableReplicas".into(),
        json!(count(&|p| running_ready(p) && p.available(set.spec.min_ready_seconds, now))),
    );
    status.insert("currentReplicas".into(), json!(of_current));
    status.insert("updatedReplicas".into(), json!(updated));
    status.insert("currentRevision".into(), json!(current));
    status.insert("updateRevision".into(), json!(newest));
    if let Some(collisions) = set.status.get("collisionCount") {
        status.insert("collisionCount".into(), collisions.clone());
    }
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ordinal:state[:revision]`, state one of ready, pending, failed, leaving.
    fn pod(text: &str) -> Arc<Pod> {
        let parts: Vec<&str> = text.split(':').collect();
        let state = parts[1];
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": format!("s-{}", parts[0]),
                "labels": {REVISION_LABEL: parts.get(2).copied().unwrap_or("v1")},
            },
            "status": {
                "phase": match state { "pending" => "Pending", "failed" => "Failed", _ => "Running" },
                "conditions": [{
                    "type": "Ready",
                    "status": if matches!(state, "ready" | "leaving") { "True" } else { "False" },
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .unwrap();
        if state == "leaving" {
            pod.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        }
        Arc::new(pod)
    }

    fn set(spec: Value) -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap()
    }

    fn now() -> Timestamp {
        "2026-02-01T00:00:00Z".parse().unwrap()
    }

    #[track_caller]
    fn check(set: &StatefulSet, pods: &str, newest: &str, expected: &str) -> Value {
        let pods: Vec<Arc<Pod>> = pods.split_whitespace().map(pod).collect();
        let plan = plan(set, &pods, "v1", newest, now());
        let shown: Vec<String> = plan
            .actions
            .iter()
            .map(|a| match a {
                Action::Create { ordinal, newest } => {
                    format!("+{ordinal}{}", if *newest { "" } else { "(old)" })
                }
                Action::Delete(pod) => format!("-{}", pod.metadata.name.trim_start_matches("s-")),
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
        plan.status
    }

    #[test]
    fn in_order() {
        let s = set(json!({"replicas": 3}));
        check(&s, "", "v1", "+0");
        check(&s, "0:pending", "v1", "");
        check(&s, "0:ready", "v1", "+1");
        check(&s, "0:ready 1:leaving", "v1", "");
        check(&s, "0:failed", "v1", "-0");
        check(&s, "0:ready 1:ready 2:ready 3:ready 4:ready", "v1", "-4");
        check(&s, "0:ready 1:ready 2:ready 3:ready 4:leaving", "v1", "");
        check(&s, "0:ready 1:pending 2:ready 3:ready", "v1", "");
    }

    #[test]
    fn in_parallel() {
        let s = set(json!({"replicas": 3, "podManagementPolicy": "Parallel"}));
        check(&s, "", "v1", "+0 +1 +2");
        check(&s, "1:pending", "v1", "+0 +2");
        check(&s, "0:ready 1:ready 2:ready 3:ready 4:ready", "v1", "-4 -3");
    }

    #[test]
    fn starts_at_its_first_ordinal() {
        let s = set(json!({"replicas": 2, "ordinals": {"start": 5}, "podManagementPolicy": "Parallel"}));
        check(&s, "4:ready 5:ready", "v1", "+6 -4");
    }

    #[test]
    fn rolling_update() {
        let s = set(json!({"replicas": 3}));
        check(&s, "0:ready 1:ready 2:ready", "v2", "-2");
        check(&s, "0:ready 1:ready 2:pending:v2", "v2", "");
        check(&s, "0:ready 1:ready 2:ready:v2", "v2", "-1");
        let status = check(&s, "0:ready:v2 1:ready:v2 2:ready:v2", "v2", "");
        assert_eq!(status["currentRevision"], "v2");
        let s = set(json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}}));
        let status = check(&s, "0:ready 1:ready 2:ready:v2", "v2", "");
        assert_eq!(status["currentRevision"], "v1");
        check(&s, "1:ready 2:ready:v2", "v2", "+0(old)");
        let s = set(json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}));
        check(&s, "0:ready 1:ready 2:ready", "v2", "-2 -1");
        let s = set(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}}));
        check(&s, "0:ready 1:ready 2:ready", "v2", "");
    }

    #[test]
    fn counts() {
        let s = set(json!({"replicas": 3}));
        let status = check(&s, "0:ready 1:ready:v2 2:pending:v2", "v2", "");
        assert_eq!(status["replicas"], 3);
        assert_eq!(status["readyReplicas"], 2);
        assert_eq!(status["currentReplicas"], 1);
        assert_eq!(status["updatedReplicas"], 2);
    }

    #[test]
    fn ordinals() {
        for (pod, expected) in [
            ("s-0", Some(0)),
            ("s-12", Some(12)),
            ("s-01", None),
            ("s-", None),
            ("x-1", None),
            ("s-1-2", None),
            ("s--1", None),
        ] {
            assert_eq!(ordinal_of("s", pod), expected, "{pod}");
        }
    }
}
