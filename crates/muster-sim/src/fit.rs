//! Does a pod fit a node: what it asks for, what it tolerates, where it may go.
//!
//! In: slim pods and nodes. Out: amounts, and typed reasons why not. The kubelet's admission and the daemon set
//! controller ask here.
//! Must stay true: amounts are integers (CPU in thousandths, the rest in units, rounded up) and never overflow.

use std::collections::BTreeMap;

use k8s_quantity::Quantity;

use crate::object::{Container, Node, NodeSelectorTerm, Pod, Strings, Taint, Toleration};

/// Amounts by resource name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(pub BTreeMap<String, i64>);

impl Amounts {
    /// Reads quantities; one that cannot be read counts as nothing (the server does not let it in).
    pub fn read(quantities: &Strings) -> Self {
        Amounts(quantities.iter().map(|(name, text)| (name.clone(), amount(name, text))).collect())
    }

    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn set(&mut self, name: &str, value: i64) {
        self.0.insert(name.to_owned(), value);
    }

    pub fn add(&mut self, other: &Amounts) {
        for (name, value) in &other.0 {
            let sum = self.0.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_add(*value);
        }
    }

    pub fn sub(&mut self, other: &Amounts) {
        for (name, value) in &other.0 {
            let sum = self.0.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_sub(*value);
        }
    }

    fn raise(&mut self, other: &Amounts) {
        for (name, value) in &other.0 {
            let most = self.0.entry(name.clone()).or_insert(0);
            *most = (*most).max(*value);
        }
    }
}

fn amount(name: &str, text: &str) -> i64 {
    let Ok(quantity) = text.parse::<Quantity>() else { return 0 };
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// What a pod takes on its node: its containers and sidecars together, or its greediest init container if that is
/// more; pod-level requests replace the sum; overhead and one pod slot on top.
pub fn requests(pod: &Pod) -> Amounts {
    let mut total = Amounts::default();
    for container in &pod.spec.containers {
        total.add(&asked(container));
    }
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for container in &pod.spec.init_containers {
        let own = asked(container);
        if container.restart_policy == "Always" {
            sidecars.add(&own);
            total.add(&own);
            peak.raise(&sidecars);
        } else {
            let mut during = sidecars.clone();
            during.add(&own);
            peak.raise(&during);
        }
    }
    total.raise(&peak);
    for (name, text) in &pod.spec.resources.requests {
        total.set(name, amount(name, text));
    }
    total.add(&Amounts::read(&pod.spec.overhead));
    total.set("pods", 1);
    total
}

/// A container's requests; a limit without a request is a request.
fn asked(container: &Container) -> Amounts {
    let mut own = Amounts::read(&container.resources.limits);
    own.0.extend(Amounts::read(&container.resources.requests).0);
    own
}

/// The resources that are short, in order of name, as (name, asked, free).
pub fn short_of(asked: &Amounts, allocatable: &Amounts, used: &Amounts) -> Vec<(String, i64, i64)> {
    let mut short: Vec<(String, i64, i64)> = Vec::new();
    for (name, want) in &asked.0 {
        let free = allocatable.get(name).saturating_sub(used.get(name));
        if *want > 0 && *want > free {
            short.push((name.clone(), *want, free));
        }
    }
    short
}

/// Whether nothing is short.
pub fn enough(asked: &Amounts, allocatable: &Amounts, used: &Amounts) -> bool {
    asked
        .0
        .iter()
        .all(|(name, want)| *want <= 0 || *want <= allocatable.get(name).saturating_sub(used.get(name)))
}

/// Node selector and required node affinity.
pub fn may_go_to(pod: &Pod, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    if !pod.spec.node_selector.iter().all(|(k, v)| labels.get(k) == Some(v)) {
        return false;
    }
    match &pod.spec.affinity.node_affinity.required {
        None => true,
        Some(selector) => selector.node_selector_terms.iter().any(|term| term_matches(term, node)),
    }
}

/// A term without any requirement matches nothing.
fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return false;
    }
    let fields: Strings = [("metadata.name".to_owned(), node.metadata.name.clone())].into();
    term.match_expressions.iter().all(|r| r.matches(&node.metadata.labels))
        && term.match_fields.iter().all(|r| r.matches(&fields))
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => !toleration.key.is_empty() && toleration.value == taint.value,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_requests(spec: serde_json::Value, expected: &str) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let shown: Vec<String> = requests(&pod).0.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(shown.join(" "), expected);
    }

    fn c(cpu: &str) -> serde_json::Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> serde_json::Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn what_pods_take() {
        check_requests(json!({"containers": [{}]}), "pods=1");
        check_requests(json!({"containers": [c("500m"), c("1")]}), "cpu=1500 pods=1");
        check_requests(
            json!({"containers": [c("1")], "initContainers": [c("3"), c("2")]}),
            "cpu=3000 pods=1",
        );
        check_requests(
            json!({"containers": [c("1")], "initContainers": [sidecar("1"), c("3")]}),
            "cpu=4000 pods=1",
        );
        check_requests(
            json!({"containers": [c("3")], "initContainers": [c("3"), sidecar("1")]}),
            "cpu=4000 pods=1",
        );
        check_requests(json!({"containers": [c("1")], "overhead": {"cpu": "250m"}}), "cpu=1250 pods=1");
        check_requests(
            json!({"containers": [c("1")], "resources": {"requests": {"cpu": "5"}}}),
            "cpu=5000 pods=1",
        );
        check_requests(
            json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "memory": "1Gi"}}}]}),
            "memory=1073741824 nvidia.com/gpu=2 pods=1",
        );
        check_requests(
            json!({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}),
            "cpu=1000 pods=1",
        );
        check_requests(json!({"containers": [c("junk")]}), "cpu=0 pods=1");
    }

    #[track_caller]
    fn check_taint(toleration: serde_json::Value, taint: &str, expected: bool) {
        let toleration: Toleration = serde_json::from_value(toleration).unwrap();
        let (rest, effect) = taint.split_once(':').unwrap();
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        let taint = Taint { key: key.into(), value: value.into(), effect: effect.into(), time_added: None };
        assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?} {taint:?}");
    }

    #[test]
    fn tolerations() {
        check_taint(json!({"operator": "Exists"}), "a=b:NoSchedule", true);
        check_taint(json!({"key": "a", "operator": "Exists"}), "a=b:NoSchedule", true);
        check_taint(json!({"key": "a", "operator": "Exists"}), "c:NoSchedule", false);
        check_taint(json!({"key": "a", "value": "b"}), "a=b:NoSchedule", true);
        check_taint(json!({"key": "a", "value": "x"}), "a=b:NoSchedule", false);
        check_taint(json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}), "a:NoSchedule", false);
        check_taint(json!({}), "a:NoSchedule", false);
    }

    #[track_caller]
    fn check_place(spec: serde_json::Value, expected: bool) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "rank": "7"}}}))
                .unwrap();
        assert_eq!(may_go_to(&pod, &node), expected, "{spec}");
    }

    fn terms(terms: serde_json::Value) -> serde_json::Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn node_affinity() {
        check_place(json!({}), true);
        check_place(json!({"nodeSelector": {"zone": "a"}}), true);
        check_place(json!({"nodeSelector": {"zone": "b"}}), false);
        check_place(
            terms(json!([{"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["5"]}]}])),
            true,
        );
        check_place(
            terms(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}])),
            false,
        );
        check_place(
            terms(json!([
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ])),
            true,
        );
        check_place(terms(json!([{}])), false);
        check_place(terms(json!([])), false);
    }

    proptest! {
        #[test]
        fn amounts_never_overflow(a in any::<i64>(), b in any::<i64>()) {
            let mut sum = Amounts([("cpu".to_owned(), a)].into());
            sum.add(&Amounts([("cpu".to_owned(), b)].into()));
            sum.sub(&Amounts([("cpu".to_owned(), a)].into()));
            let _ = short_of(&sum, &Amounts([("cpu".to_owned(), b)].into()), &Amounts([("cpu".to_owned(), a)].into()));
        }
    }
}
