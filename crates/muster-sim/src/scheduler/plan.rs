//! Which pod goes where.
//!
//! In: nodes with what is taken on them, and pods to place. Out: for each pod a node or the reasons why none will do.
//! Must stay true: no node is given more than it has; a pod of higher priority comes first; equal pods are tried from
//! where the last of them fitted, because what was full before only gets fuller until something is freed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::fit::{self, Amounts};
use crate::object::{Key, Node, Object, Pod};

/// A node and what is taken on it.
#[derive(Debug, Clone, Default)]
pub struct Place {
    pub node: Arc<Node>,
    pub allocatable: Amounts,
    pub used: Amounts,
    pub ports: HashSet<(String, i32)>,
}

impl Place {
    pub fn new(node: Arc<Node>) -> Self {
        Place {
            allocatable: Amounts::read(&node.status.allocatable),
            node,
            used: Amounts::default(),
            ports: HashSet::new(),
        }
    }
}

/// Where a pod goes, or why it stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Bind(Key, String),
    Wait(Key, String),
}

/// Whether this scheduler is to place the pod now.
pub fn waits_for_us(pod: &Pod) -> bool {
    matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler")
        && pod.spec.node_name.is_empty()
        && pod.spec.scheduling_gates.is_empty()
        && !pod.metadata.deleting()
        && !pod.finished()
}

/// From which place on each class of equal pods is to be tried. Valid as long as nothing is freed and no node changes.
pub type Begin = HashMap<String, usize>;

/// Places pods, and enters in the places what they take.
pub fn plan(places: &mut [&mut Place], begin: &mut Begin, mut pods: Vec<Arc<Pod>>) -> Vec<Decision> {
    pods.sort_by_cached_key(|p| (std::cmp::Reverse(p.spec.priority), p.metadata.created(), p.key()));
    let mut refused: HashMap<String, String> = HashMap::new();
    let mut decisions = Vec::with_capacity(pods.len());
    for pod in pods {
        let key = pod.key();
        let asked = fit::requests(&pod);
        let ports = fit::host_ports(&pod);
        let class = class_of(&pod, &asked, &ports);
        if let Some(message) = refused.get(&class) {
            decisions.push(Decision::Wait(key, message.clone()));
            continue;
        }
        let from = begin.get(&class).copied().unwrap_or(0);
        let found =
            (from..places.len()).find(|i| places.get(*i).is_some_and(|p| fits(p, &pod, &asked, &ports)));
        match found.and_then(|i| places.get_mut(i).map(|p| (i, p))) {
            Some((i, place)) => {
                place.used.add(&asked);
                place.ports.extend(ports);
                decisions.push(Decision::Bind(key, place.node.metadata.name.clone()));
                begin.insert(class, i);
            }
            None => {
                let message = message(places, &pod, &asked, &ports);
                decisions.push(Decision::Wait(key, message.clone()));
                refused.insert(class, message);
            }
        }
    }
    decisions
}

/// Pods of one class are alike in all that decides where they fit.
fn class_of(pod: &Pod, asked: &Amounts, ports: &[(String, i32)]) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        asked.0, ports, pod.spec.node_selector, pod.spec.affinity, pod.spec.tolerations
    )
}

/// Whether the pod fits the node: the same as no reason why not, but the cheap question first and no words.
fn fits(place: &Place, pod: &Pod, asked: &Amounts, ports: &[(String, i32)]) -> bool {
    fit::enough(asked, &place.allocatable, &place.used) && why_not(place, pod, asked, ports).is_empty()
}

/// Why the pod does not fit the node; empty when it does.
fn why_not(place: &Place, pod: &Pod, asked: &Amounts, ports: &[(String, i32)]) -> Vec<String> {
    let node = &place.node;
    if node.metadata.deleting() {
        return vec!["node(s) were being deleted".into()];
    }
    if node.spec.unschedulable
        && fit::repelled_by(&pod.spec.tolerations, &[fit::unschedulable_taint()]).is_some()
    {
        return vec!["node(s) were unschedulable".into()];
    }
    if !fit::may_go_to(pod, node) {
        return vec!["node(s) didn't match Pod's node affinity/selector".into()];
    }
    if let Some(taint) = fit::repelled_by(&pod.spec.tolerations, &node.spec.taints) {
        return vec![format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value)];
    }
    if ports.iter().any(|port| place.ports.contains(port)) {
        return vec!["node(s) didn't have free ports for the requested pod ports".into()];
    }
    fit::short_of(asked, &place.allocatable, &place.used)
        .into_iter()
        .map(
            |(name, _, _)| {
                if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") }
            },
        )
        .collect()
}

/// The words of kube-scheduler: how many nodes there are, and how many fell to each reason.
fn message(places: &[&mut Place], pod: &Pod, asked: &Amounts, ports: &[(String, i32)]) -> String {
    if places.is_empty() {
        return "no nodes available to schedule pods".into();
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for place in places {
        for reason in why_not(place, pod, asked, ports) {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let mut parts: Vec<String> = reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    parts.sort();
    format!("0/{} nodes are available: {}.", places.len(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn place(name: &str, cpu: i64, spec: Value) -> Place {
        Place::new(Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": spec,
                "status": {"allocatable": {"cpu": cpu.to_string(), "pods": "3"}},
            }))
            .unwrap(),
        ))
    }

    fn pod(name: &str, cpu: i64, mut spec: Value) -> Arc<Pod> {
        spec["containers"] = json!([{"resources": {"requests": {"cpu": cpu.to_string()}}}]);
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}))
                .unwrap(),
        )
    }

    #[track_caller]
    fn check(mut places: Vec<Place>, pods: Vec<Arc<Pod>>, expected: &str) {
        let shown: Vec<String> = plan(&mut places.iter_mut().collect::<Vec<_>>(), &mut Begin::new(), pods)
            .into_iter()
            .map(|d| match d {
                Decision::Bind(key, node) => format!("{}->{node}", key.name),
                Decision::Wait(key, message) => format!("{}: {message}", key.name),
            })
            .collect();
        assert_eq!(shown.join("; "), expected);
    }

    #[test]
    fn first_fit() {
        check(
            vec![place("a", 2, json!({})), place("b", 4, json!({}))],
            vec![
                pod("p1", 2, json!({})),
                pod("p2", 1, json!({})),
                pod("p3", 3, json!({})),
                pod("p4", 1, json!({})),
            ],
            "p1->a; p2->b; p3->b; p4: 0/2 nodes are available: 2 Insufficient cpu.",
        );
        check(
            vec![place("a", 1, json!({}))],
            vec![pod("low", 1, json!({})), pod("vip", 1, json!({"priority": 10}))],
            "vip->a; low: 0/1 nodes are available: 1 Insufficient cpu.",
        );
        check(vec![], vec![pod("p", 1, json!({}))], "p: no nodes available to schedule pods");
        check(
            vec![place("a", 9, json!({}))],
            (0..4).map(|i| pod(&format!("p{i}"), 1, json!({}))).collect(),
            "p0->a; p1->a; p2->a; p3: 0/1 nodes are available: 1 Too many pods.",
        );
    }

    #[test]
    fn constraints() {
        let nodes = || {
            vec![
                place("a", 9, json!({"unschedulable": true})),
                place("b", 9, json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})),
                place("c", 9, json!({})),
            ]
        };
        check(nodes(), vec![pod("p", 1, json!({}))], "p->c");
        check(nodes(), vec![pod("p", 1, json!({"tolerations": [{"operator": "Exists"}]}))], "p->a");
        check(
            nodes(),
            vec![pod("p", 1, json!({"nodeSelector": {"kubernetes.io/hostname": "x"}}))],
            "p: 0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector.",
        );
        check(
            nodes(),
            vec![pod("p", 99, json!({}))],
            "p: 0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {k: v}, 1 node(s) were unschedulable.",
        );
    }

    #[test]
    fn ports_are_taken_once() {
        let with_port = |name: &str| {
            let mut pod = (*pod(name, 1, json!({}))).clone();
            pod.spec.containers[0].ports = vec![crate::object::Port { host_port: 80, ..Default::default() }];
            Arc::new(pod)
        };
        check(
            vec![place("a", 9, json!({})), place("b", 9, json!({}))],
            vec![with_port("p"), with_port("q"), with_port("r")],
            "p->a; q->b; r: 0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.",
        );
    }

    #[test]
    fn whose_pods_these_are() {
        let ours = |spec: Value| waits_for_us(&serde_json::from_value(json!({"spec": spec})).unwrap());
        assert!(ours(json!({})));
        assert!(ours(json!({"schedulerName": "default-scheduler"})));
        assert!(!ours(json!({"schedulerName": "kai-scheduler"})));
        assert!(!ours(json!({"nodeName": "n"})));
        assert!(!ours(json!({"schedulingGates": [{"name": "g"}]})));
    }

    proptest! {
        /// No node is given more than it has, and no pod waits that some node has room for.
        #[test]
        fn never_overcommits(nodes in prop::collection::vec(0i64..8, 1..6), pods in prop::collection::vec(1i64..5, 0..20)) {
            let mut places: Vec<Place> =
                nodes.iter().enumerate().map(|(i, cpu)| place(&format!("n{i}"), *cpu, json!({}))).collect();
            let all: Vec<Arc<Pod>> = pods.iter().enumerate().map(|(i, cpu)| pod(&format!("p{i}"), *cpu, json!({}))).collect();
            let decisions = plan(&mut places.iter_mut().collect::<Vec<_>>(), &mut Begin::new(), all.clone());
            for place in &places {
                prop_assert!(place.used.get("cpu") <= place.allocatable.get("cpu"));
                prop_assert!(place.used.get("pods") <= 3);
            }
            for decision in decisions {
                if let Decision::Wait(key, _) = decision {
                    let pod = all.iter().find(|p| p.metadata.name == key.name).unwrap();
                    let asked = fit::requests(pod);
                    let fits = places.iter().any(|p| fit::short_of(&asked, &p.allocatable, &p.used).is_empty());
                    prop_assert!(!fits);
                }
            }
        }
    }
}
