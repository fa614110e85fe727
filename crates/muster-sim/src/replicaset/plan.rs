//! What a ReplicaSet needs.
//!
//! In: the ReplicaSet, its pods, pods of its siblings, the time. Out: a number to create, pods to delete in order, the
//! status. Must stay true: never both creates and deletes; what goes first is what is missed least.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::stamp;
use crate::object::{Pod, ReplicaSet};

/// No more than this many pods are created or deleted in one go.
pub const BURST: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub create: usize,
    pub delete: Vec<Arc<Pod>>,
    /// Look again then: a pod becomes available by the passing of time.
    pub wake: Option<Duration>,
}

pub fn plan(set: &ReplicaSet, pods: &[Arc<Pod>], siblings: &[Arc<Pod>], now: Timestamp) -> Plan {
    let active: Vec<Arc<Pod>> = pods.iter().filter(|p| p.active()).cloned().collect();
    let want = usize::try_from(set.replicas()).unwrap_or(0);
    let mut plan = Plan { create: 0, delete: Vec::new(), wake: next_available(set, &active, now) };
    if set.metadata.deleting() {
        return plan;
    }
    if active.len() < want {
        plan.create = (want - active.len()).min(BURST);
    } else if active.len() > want {
        let n = (active.len() - want).min(BURST);
        plan.delete = least_missed(active, siblings, now).into_iter().take(n).collect();
    }
    plan
}

/// Pods in the order in which they are to go: unassigned, pending, unready, cheap to delete, crowded, young.
pub fn least_missed(mut pods: Vec<Arc<Pod>>, siblings: &[Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
    let mut crowd: HashMap<&str, usize> = HashMap::new();
    for pod in siblings.iter().filter(|p| p.active() && !p.spec.node_name.is_empty()) {
        *crowd.entry(pod.spec.node_name.as_str()).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let phase = match pod.status.phase.as_str() {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let cost: i32 = pod
            .metadata
            .annotation("controller.kubernetes.io/pod-deletion-cost")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        // Ages are compared by their order of magnitude, so that which of two like-aged pods goes is left to chance.
        let magnitude = |since: Option<Timestamp>| {
            since.map_or(0, |s| u64::try_from(now.duration_since(s).as_secs()).unwrap_or(0).max(1).ilog2())
        };
        (
            !pod.spec.node_name.is_empty(),
            phase,
            pod.ready(),
            cost,
            Reverse(crowd.get(pod.spec.node_name.as_str()).copied().unwrap_or(0)),
            magnitude(pod.ready_since()),
            Reverse(pod.restarts()),
            magnitude(pod.metadata.creation_timestamp),
            pod.metadata.uid.clone(),
        )
    });
    pods
}

/// The status that follows from the pods. `failure`: why creating or deleting did not work.
pub fn status(set: &ReplicaSet, pods: &[Arc<Pod>], failure: Option<(&str, &str)>, now: Timestamp) -> Value {
    let template_labels = set.spec.template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let fully_labeled = |pod: &Pod| {
        template_labels.as_object().is_some_and(|labels| {
            labels.iter().all(|(k, v)| pod.metadata.labels.get(k).map(String::as_str) == v.as_str())
        })
    };
    let active: Vec<&Arc<Pod>> = pods.iter().filter(|p| p.active()).collect();
    let count = |test: &dyn Fn(&Pod) -> bool| active.iter().filter(|p| test(p)).count();
    let mut status = json!({
        "replicas": active.len(),
        "fullyLabeledReplicas": count(&fully_labeled),
        "readyReplicas": count(&|p| p.ready()),
        "availableReplicas": count(&|p| p.available(set.spec.min_ready_seconds, now)),
        "terminatingReplicas": pods.iter().filter(|p| p.metadata.deleting() && !p.finished()).count(),
        "observedGeneration": set.metadata.generation,
    });
    if let Some((reason, message)) = failure {
        let old = set.status.pointer("/conditions/0/lastTransitionTime").cloned();
        status["conditions"] = json!([{
            "type": "ReplicaFailure",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": old.unwrap_or_else(|| json!(stamp(now))),
        }]);
    }
    status
}

fn next_available(set: &ReplicaSet, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    next_available_pod(active, set.spec.min_ready_seconds, now)
}

/// When the next ready pod becomes available.
pub fn next_available_pod(pods: &[Arc<Pod>], min_ready: i64, now: Timestamp) -> Option<Duration> {
    if min_ready <= 0 {
        return None;
    }
    let wait = Duration::from_secs(u64::try_from(min_ready).unwrap_or(0));
    let next = pods
        .iter()
        .filter(|p| !p.available(min_ready, now))
        .filter_map(|p| p.ready_since())
        .map(|since| crate::clock::until(now, crate::clock::later(since, wait)))
        .min()?;
    // Times in objects are whole seconds; a look a little later sees the whole of the last one.
    Some(next + Duration::from_millis(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    /// `name phase node ready cost age`, where `-` is nothing.
    fn pod(text: &str) -> Arc<Pod> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let get = |i: usize| parts.get(i).copied().filter(|p| *p != "-").unwrap_or("");
        let age: i64 = get(5).parse().unwrap_or(100);
        let since = Timestamp::from_second(1_800_000_000 - age).unwrap();
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": get(0), "uid": get(0)},
            "spec": {"nodeName": get(2)},
            "status": {"phase": get(1)},
        }))
        .unwrap();
        pod.metadata.creation_timestamp = Some(since);
        if get(3) == "ready" {
            pod.status.conditions = vec![crate::object::PodCondition {
                kind: "Ready".into(),
                status: "True".into(),
                last_transition_time: Some(since),
            }];
        }
        if !get(4).is_empty() {
            pod.metadata
                .annotations
                .insert("controller.kubernetes.io/pod-deletion-cost".into(), get(4).into());
        }
        if get(6) == "gone" {
            pod.metadata.deletion_timestamp = Some(since);
        }
        Arc::new(pod)
    }

    #[track_caller]
    fn check(replicas: i64, pods: &[&str], expected: &str) {
        let set = ReplicaSet {
            spec: crate::object::ReplicaSetSpec { replicas: Some(replicas), ..Default::default() },
            ..Default::default()
        };
        let pods: Vec<Arc<Pod>> = pods.iter().map(|t| pod(t)).collect();
        let plan = plan(&set, &pods, &pods, now());
        let names: Vec<&str> = plan.delete.iter().map(|p| p.metadata.name.as_str()).collect();
        let shown = match (plan.create, names.is_empty()) {
            (0, true) => "nothing".to_owned(),
            (n, true) => format!("+{n}"),
            (_, false) => format!("-{}", names.join(" -")),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn creates_and_deletes() {
        check(3, &[], "+3");
        check(3, &["a Running n ready", "b Succeeded n", "c Running n ready - - gone"], "+2");
        check(1, &["a Running n ready"], "nothing");
        check(2000, &[], "+500");
        check(-5, &["a Running n"], "-a");
        check(0, &["a Failed n"], "nothing");
    }

    #[test]
    fn what_is_missed_least_goes_first() {
        check(1, &["a Running n ready", "b Pending -"], "-b");
        check(1, &["a Running n ready", "b Pending m"], "-b");
        check(1, &["a Running n ready", "b Running n -"], "-b");
        check(1, &["a Running n ready 5", "b Running n ready 1"], "-b");
        check(2, &["a Running n ready", "b Running m ready", "c Running m ready"], "-b");
        check(1, &["a Running n ready - 1000", "b Running m ready - 10"], "-b");
    }

    #[test]
    fn status_counts() {
        let mut set = ReplicaSet::default();
        set.spec.min_ready_seconds = 50;
        set.spec.template = json!({"metadata": {"labels": {"a": "b"}}});
        let pods = [
            pod("a Running n ready - 100"),
            pod("b Running n ready - 10"),
            pod("c Pending - -"),
            pod("d Failed n"),
            pod("e Running n ready - 100 gone"),
        ];
        let got = status(&set, &pods, None, now());
        assert_eq!(got["replicas"], 3);
        assert_eq!(got["readyReplicas"], 2);
        assert_eq!(got["availableReplicas"], 1);
        assert_eq!(got["fullyLabeledReplicas"], 0);
        assert_eq!(got["terminatingReplicas"], 1);
        assert_eq!(next_available(&set, &pods, now()), Some(Duration::from_millis(40_010)));
        let failed = status(&set, &pods, Some(("FailedCreate", "no room")), now());
        assert_eq!(failed["conditions"][0]["reason"], "FailedCreate");
    }
}
