//! What a node's silence means.
//!
//! In: a node, how long it has been silent, its pods, the time. Out: conditions, taints, pods to evict and when.
//! Must stay true: only the taints of this controller are touched; a pod goes no earlier than it tolerates.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::{later, stamp, until, whole};
use crate::fit;
use crate::kubelet::node::DRAIN;
use crate::object::{Node, Pod, Taint, condition};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Notes that the simulation cordoned the node, so that it may undo it.
pub const DRAINED: &str = "sim.muster.dev/drained";

/// A patch of the conditions of a node that has fallen silent.
pub fn silence(node: &Node, now: Timestamp) -> Option<Value> {
    let rows: Vec<Value> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
        .into_iter()
        .filter(|kind| condition(&node.status.conditions, kind).is_none_or(|c| c.status != "Unknown"))
        .map(|kind| {
            json!({
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": stamp(now),
            })
        })
        .collect();
    (!rows.is_empty()).then(|| json!({"status": {"conditions": rows}}))
}

/// The taints that a node should have, or `None` when they are right.
pub fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let ready = condition(&node.status.conditions, "Ready").map(|c| c.status.as_str());
    let mut wanted: Vec<(&str, &str)> = match ready {
        Some("True") => Vec::new(),
        Some("Unknown") => vec![(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
        Some(_) => vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
        // A node that has said nothing yet gets no pods, and has none to lose.
        None => vec![(NOT_READY, "NoSchedule")],
    };
    if node.spec.unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let ours = |t: &Taint| matches!(t.key.as_str(), NOT_READY | UNREACHABLE | UNSCHEDULABLE);
    let mut taints: Vec<Taint> = node
        .spec
        .taints
        .iter()
        .filter(|t| !ours(t) || wanted.contains(&(t.key.as_str(), t.effect.as_str())))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|t| t.key == key && t.effect == effect) {
            taints.push(Taint {
                key: key.into(),
                value: String::new(),
                effect: effect.into(),
                time_added: Some(whole(now)),
            });
        }
    }
    (taints != node.spec.taints).then_some(taints)
}

/// When a pod must leave a node with these taints: `None` if never.
pub fn must_leave(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Timestamp> {
    let mut leave: Option<Timestamp> = None;
    for taint in taints.iter().filter(|t| t.effect == "NoExecute") {
        let tolerating: Vec<_> = pod.spec.tolerations.iter().filter(|t| fit::tolerates(t, taint)).collect();
        if tolerating.is_empty() {
            return Some(now);
        }
        let shortest = tolerating.iter().filter_map(|t| t.toleration_seconds).min();
        if let Some(seconds) = shortest {
            let since = taint.time_added.unwrap_or(now);
            let at = later(since, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
            leave = Some(leave.map_or(at, |l| l.min(at)));
        }
    }
    leave
}

/// Which pods leave now, and when the next one must.
pub fn evictions(node: &Node, pods: &[Arc<Pod>], now: Timestamp) -> (Vec<Arc<Pod>>, Option<Duration>) {
    let mut leaving = Vec::new();
    let mut wake: Option<Duration> = None;
    for pod in pods.iter().filter(|p| !p.metadata.deleting() && !p.finished()) {
        match must_leave(pod, &node.spec.taints, now) {
            Some(at) if at <= now => leaving.push(pod.clone()),
            Some(at) => {
                let wait = until(now, at);
                wake = Some(wake.map_or(wait, |w| w.min(wait)));
            }
            None => {}
        }
    }
    (leaving, wake)
}

/// Pods that no kubelet will ever end: their node is out of service for good.
pub fn stranded(node: &Node, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let out = node.spec.taints.iter().any(|t| t.key == OUT_OF_SERVICE);
    let ready = condition(&node.status.conditions, "Ready").is_some_and(|c| c.status == "True");
    if !out || ready {
        return Vec::new();
    }
    pods.iter().filter(|p| p.metadata.deleting()).cloned().collect()
}

/// Draining by annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drain {
    Nothing,
    /// Cordon the node and note that we did.
    Begin,
    /// Evict what is still there.
    GoOn,
    /// The annotation is gone: take the cordon away.
    End,
}

pub fn drain(node: &Node) -> Drain {
    let asked = node.metadata.annotation(DRAIN).is_some_and(|v| v != "false");
    let begun = node.metadata.annotations.contains_key(DRAINED);
    match (asked, begun) {
        (true, false) => Drain::Begin,
        (true, true) => Drain::GoOn,
        (false, true) => Drain::End,
        (false, false) => Drain::Nothing,
    }
}

/// Pods that a drain evicts: not those of daemon sets, which would come back, nor those that ended.
pub fn drainable(pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let daemon = |p: &Pod| p.metadata.controller().is_some_and(|o| o.kind == "DaemonSet");
    pods.iter().filter(|p| p.active() && !daemon(p)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn node(ready: &str, unschedulable: bool, taints: Value) -> Node {
        let conditions =
            if ready.is_empty() { json!([]) } else { json!([{"type": "Ready", "status": ready}]) };
        serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "spec": {"unschedulable": unschedulable, "taints": taints},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[track_caller]
    fn check_taints(node: &Node, expected: Option<&str>) {
        let shown = taints(node, at(0)).map(|taints| {
            let all: Vec<String> = taints
                .iter()
                .map(|t| format!("{}:{}", t.key.trim_start_matches("node.kubernetes.io/"), t.effect))
                .collect();
            all.join(" ")
        });
        assert_eq!(shown.as_deref(), expected);
    }

    #[test]
    fn taints_follow_conditions() {
        let own = json!([{"key": "own", "effect": "NoSchedule"}]);
        check_taints(&node("True", false, json!([])), None);
        check_taints(&node("True", false, own.clone()), None);
        check_taints(
            &node("False", false, own),
            Some("own:NoSchedule not-ready:NoSchedule not-ready:NoExecute"),
        );
        check_taints(
            &node("Unknown", false, json!([])),
            Some("unreachable:NoSchedule unreachable:NoExecute"),
        );
        check_taints(&node("", false, json!([])), Some("not-ready:NoSchedule"));
        let stale =
            json!([{"key": UNREACHABLE, "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"}]);
        check_taints(&node("True", false, stale), Some(""));
        check_taints(&node("True", true, json!([])), Some("unschedulable:NoSchedule"));
        check_taints(&node("True", false, json!([{"key": UNSCHEDULABLE, "effect": "NoSchedule"}])), Some(""));
    }

    #[track_caller]
    fn check_leave(tolerations: Value, expected: Option<i64>) {
        let pod: Pod = serde_json::from_value(json!({"spec": {"tolerations": tolerations}})).unwrap();
        let taint = Taint {
            key: UNREACHABLE.into(),
            effect: "NoExecute".into(),
            time_added: Some(at(-100)),
            ..Taint::default()
        };
        assert_eq!(must_leave(&pod, &[taint], at(0)), expected.map(at));
    }

    #[test]
    fn pods_leave_when_they_no_longer_tolerate() {
        check_leave(json!([]), Some(0));
        check_leave(json!([{"operator": "Exists"}]), None);
        check_leave(json!([{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}]), Some(200));
        check_leave(json!([{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 30}]), Some(-70));
        check_leave(json!([{"key": NOT_READY, "operator": "Exists"}]), Some(0));
        check_leave(
            json!([{"operator": "Exists", "tolerationSeconds": 500}, {"operator": "Exists", "tolerationSeconds": 200}]),
            Some(100),
        );
    }

    #[test]
    fn silence_is_said_once() {
        let live = node("True", false, json!([]));
        assert_eq!(silence(&live, at(0)).unwrap()["status"]["conditions"].as_array().unwrap().len(), 4);
        let mut silent = live;
        silent.status.conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .map(|kind| crate::object::Condition {
                kind: kind.into(),
                status: "Unknown".into(),
                ..Default::default()
            })
            .to_vec();
        assert_eq!(silence(&silent, at(0)), None);
    }

    #[test]
    fn drains() {
        let mut n = node("True", false, json!([]));
        assert_eq!(drain(&n), Drain::Nothing);
        n.metadata.annotations.insert(DRAIN.into(), "true".into());
        assert_eq!(drain(&n), Drain::Begin);
        n.metadata.annotations.insert(DRAINED.into(), "true".into());
        assert_eq!(drain(&n), Drain::GoOn);
        n.metadata.annotations.remove(DRAIN);
        assert_eq!(drain(&n), Drain::End);
    }
}
