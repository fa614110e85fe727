//! Which nodes need a daemon pod, and which pods are too many.
//!
//! In: the set, its template as a pod, the nodes, its pods, the newest revision. Out: nodes to create on, pods to
//! delete, the status. Must stay true: at most one live pod per node, and an update never makes more pods unavailable
//! than allowed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::DaemonSet;
use crate::fit;
use crate::object::{Node, Pod, Toleration};
use crate::replicaset::plan::next_available_pod;
use crate::revisions::REVISION_LABEL;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub create_on: Vec<String>,
    pub delete: Vec<Arc<Pod>>,
    pub status: Value,
    pub wake: Option<Duration>,
}

/// Troubles of a node that a daemon lives through, as key and effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Makes a pod fit for one node only, and tolerant of the node's troubles.
pub fn tie_to_node(pod: &mut Value, node: &str) {
    let spec = &mut pod["spec"];
    for name in ["affinity", "nodeAffinity"] {
        let at =
            if name == "affinity" { &mut spec["affinity"] } else { &mut spec["affinity"]["nodeAffinity"] };
        if !at.is_object() {
            *at = json!({});
        }
    }
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
    });
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in TOLERATED {
        let there =
            tolerations.iter().any(|t| t["key"] == key && t["effect"] == effect && t["operator"] == "Exists");
        if !there {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}

/// The node that a daemon pod is on or meant for.
fn target(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let terms = &pod.spec.affinity.node_affinity.required.as_ref()?.node_selector_terms;
    let field = terms.iter().flat_map(|t| &t.match_fields).find(|f| f.key == "metadata.name")?;
    field.values.first().map(String::as_str)
}

/// Whether a new pod should be on the node, and whether one that is there may stay.
fn eligible(template: &Pod, node: &Node) -> (bool, bool) {
    if !fit::may_go_to(template, node) {
        return (false, false);
    }
    let mut tolerations = template.spec.tolerations.clone();
    tolerations.extend(TOLERATED.iter().map(|(key, effect)| Toleration {
        key: (*key).into(),
        operator: "Exists".into(),
        effect: (*effect).into(),
        ..Toleration::default()
    }));
    let tolerated = |effect: &str| {
        node.spec
            .taints
            .iter()
            .filter(|t| t.effect == effect)
            .all(|taint| tolerations.iter().any(|t| fit::tolerates(t, taint)))
    };
    (tolerated("NoSchedule") && tolerated("NoExecute"), tolerated("NoExecute"))
}

pub fn plan(
    set: &DaemonSet,
    template: &Pod,
    nodes: &[Arc<Node>],
    pods: &[Arc<Pod>],
    newest: &str,
    now: Timestamp,
) -> Plan {
    let mut on_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        if let Some(node) = target(pod) {
            on_node.entry(node).or_default().push(pod);
        }
    }
    let mut create_on = Vec::new();
    let mut delete: Vec<Arc<Pod>> = Vec::new();
    let (mut desired, mut scheduled, mut misscheduled, mut ready, mut available, mut updated) =
        (0, 0, 0, 0, 0, 0);
    let mut stale: Vec<(bool, Arc<Pod>)> = Vec::new();
    for node in nodes.iter().filter(|n| !n.metadata.deleting()) {
        let name = node.metadata.name.as_str();
        let (should_run, may_stay) = eligible(template, node);
        let mut here: Vec<&Arc<Pod>> = on_node.remove(name).unwrap_or_default();
        here.sort_by_key(|p| (p.spec.node_name.is_empty(), p.metadata.created(), p.metadata.name.clone()));
        let failed = here.iter().filter(|p| p.finished() && !p.metadata.deleting());
        delete.extend(failed.map(|p| (*p).clone()));
        let live: Vec<&Arc<Pod>> = here.iter().copied().filter(|p| p.active()).collect();
        desired += i64::from(should_run);
        if !may_stay || (!should_run && live.is_empty()) {
            delete.extend(live.iter().map(|p| (*p).clone()));
            misscheduled += i64::from(!live.is_empty());
            continue;
        }
        delete.extend(live.iter().skip(1).map(|p| (*p).clone()));
        match live.first() {
            None => {
                if here.iter().all(|p| p.finished() || !p.metadata.deleting()) && should_run {
                    create_on.push(name.to_owned());
                }
            }
            Some(pod) => {
                if !should_run {
                    misscheduled += 1;
                    continue;
                }
                scheduled += 1;
                let is_available = pod.available(set.spec.min_ready_seconds, now);
                ready += i64::from(pod.ready());
                available += i64::from(is_available);
                if pod.metadata.labels.get(REVISION_LABEL).map(String::as_str) == Some(newest) {
                    updated += 1;
                } else {
                    stale.push((is_available, (*pod).clone()));
                }
            }
        }
    }
    // Pods whose node is gone.
    delete.extend(on_node.values().flatten().filter(|p| !p.metadata.deleting()).map(|p| (*p).clone()));

    if set.spec.update_strategy.kind != "OnDelete" && !set.metadata.deleting() {
        let rolling = &set.spec.update_strategy.rolling_update;
        let may_miss = rolling.max_unavailable.as_ref().map_or(1, |m| m.of(desired, true)).max(1);
        let mut room = may_miss - (desired - available);
        // What is unavailable already costs nothing.
        stale.sort_by_key(|(available, pod)| (*available, pod.metadata.name.clone()));
        for (is_available, pod) in stale {
            if is_available {
                if room <= 0 {
                    break;
                }
                room -= 1;
            }
            delete.push(pod);
        }
    }
    if set.metadata.deleting() {
        create_on.clear();
        delete.clear();
    }
    let mut status = json!({
        "observedGeneration": set.metadata.generation,
        "currentNumberScheduled": scheduled,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    });
    if let Some(collisions) = set.status.get("collisionCount") {
        status["collisionCount"] = collisions.clone();
    }
    Plan { create_on, delete, status, wake: next_available_pod(pods, set.spec.min_ready_seconds, now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Arc<Node> {
        let (name, taint) = text.split_once('!').unwrap_or((text, ""));
        let mut node: Node =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"role": "x"}}})).unwrap();
        if let Some((key, effect)) = taint.split_once(':') {
            node.spec.taints =
                vec![crate::object::Taint { key: key.into(), effect: effect.into(), ..Default::default() }];
        }
        Arc::new(node)
    }

    /// `name@node:state[:revision]`
    fn pod(text: &str) -> Arc<Pod> {
        let (name, rest) = text.split_once('@').unwrap();
        let parts: Vec<&str> = rest.split(':').collect();
        let ready = parts[1] == "ready";
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {REVISION_LABEL: parts.get(2).copied().unwrap_or("v1")}},
            "spec": {"nodeName": parts[0]},
            "status": {
                "phase": if parts[1] == "failed" { "Failed" } else { "Running" },
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            },
        }))
        .unwrap();
        if parts[1] == "going" {
            pod.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        }
        Arc::new(pod)
    }

    #[track_caller]
    fn check(spec: Value, template: Value, nodes: &str, pods: &str, expected: &str) -> Value {
        let set: DaemonSet = serde_json::from_value(json!({"spec": spec})).unwrap();
        let template: Pod = serde_json::from_value(json!({"spec": template})).unwrap();
        let nodes: Vec<Arc<Node>> = nodes.split_whitespace().map(node).collect();
        let pods: Vec<Arc<Pod>> = pods.split_whitespace().map(pod).collect();
        let plan = plan(&set, &template, &nodes, &pods, "v1", Timestamp::UNIX_EPOCH);
        let mut shown: Vec<String> = plan.create_on.iter().map(|n| format!("+{n}")).collect();
        shown.extend(plan.delete.iter().map(|p| format!("-{}", p.metadata.name)));
        assert_eq!(shown.join(" "), expected);
        plan.status
    }

    #[test]
    fn one_per_node() {
        check(json!({}), json!({}), "a b", "", "+a +b");
        let status = check(json!({}), json!({}), "a b", "p@a:ready", "+b");
        assert_eq!(status["desiredNumberScheduled"], 2);
        assert_eq!(status["numberUnavailable"], 1);
        check(json!({}), json!({}), "a", "p@a:ready q@a:ready", "-q");
        check(json!({}), json!({}), "a", "p@a:failed", "+a -p");
        check(json!({}), json!({}), "a", "p@a:going", "");
        check(json!({}), json!({}), "a", "p@lost:ready", "+a -p");
    }

    #[test]
    fn eligible_nodes() {
        check(json!({}), json!({"nodeSelector": {"role": "y"}}), "a", "p@a:ready", "-p");
        check(json!({}), json!({}), "a!gpu:NoSchedule b", "", "+b");
        check(json!({}), json!({}), "a!gpu:NoSchedule", "p@a:ready", "");
        check(json!({}), json!({}), "a!gpu:NoExecute", "p@a:ready", "-p");
        check(json!({}), json!({}), "a!node.kubernetes.io/unreachable:NoExecute", "", "+a");
        check(json!({}), json!({"tolerations": [{"operator": "Exists"}]}), "a!gpu:NoSchedule", "", "+a");
    }

    #[test]
    fn rolling_update() {
        check(json!({}), json!({}), "a b c", "p@a:ready:v0 q@b:ready:v0 r@c:ready:v0", "-p");
        check(json!({}), json!({}), "a b c", "p@a:run:v1 q@b:ready:v0 r@c:ready:v0", "");
        check(json!({}), json!({}), "a b", "p@a:run:v0 q@b:ready:v0", "-p");
        let two = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}});
        check(two, json!({}), "a b c", "p@a:ready:v0 q@b:ready:v0 r@c:ready:v0", "-p -q");
        let by_hand = json!({"updateStrategy": {"type": "OnDelete"}});
        check(by_hand, json!({}), "a", "p@a:ready:v0", "");
    }

    #[test]
    fn pods_are_tied_to_their_node() {
        let mut pod = json!({"spec": {"tolerations": [{"key": "own"}]}});
        tie_to_node(&mut pod, "n1");
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(target(&pod), Some("n1"));
        assert_eq!(pod.spec.tolerations.len(), 7);
    }
}
