//! Koordinator: elastic quotas form trees in which children have no more than their parents, pods are on leaves only, and classes of
//! service go with priorities.
//!
//! In: a request and the quotas there are. Out: a verdict. Must stay true: no chain of parents, however long or circular, makes this
//! loop; what is not known is not complained about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_quantity::Quantity;
use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::share::quantity;
use crate::verdict::{Verdict, quote};
use crate::world::{Other, OtherKind, World};

const PARENT: &str = "quota.scheduling.koordinator.sh/parent";
const TREE: &str = "quota.scheduling.koordinator.sh/tree-id";
const NAME: &str = "quota.scheduling.koordinator.sh/name";
const QOS: &str = "koordinator.sh/qosClass";
const ROOT: &str = "koordinator-root-quota";
const BUILT_IN: [&str; 3] = [ROOT, "koordinator-system-quota", "koordinator-default-quota"];

type Amounts = BTreeMap<String, Quantity>;

pub fn quota(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    let quotas = world.others(OtherKind::ElasticQuota);
    let quotas = quotas.as_deref().unwrap_or_default();
    match asked.operation {
        Operation::Create => judge(asked.object, asked.name, quotas),
        Operation::Update => {
            let mut verdict =
                judge(asked.object, asked.name, quotas).since(&judge(asked.old, asked.name, quotas));
            if label(asked.old, TREE) != label(asked.object, TREE) {
                verdict.refuse(
                    format!("metadata.labels[{TREE}]"),
                    "a quota stays in its tree; delete it and create it in the other one",
                );
            }
            verdict
        }
        Operation::Delete => deletion(asked.name, quotas),
        Operation::Connect => Verdict::default(),
    }
}

fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

fn parent_of(quota: &Other) -> &str {
    quota.metadata.labels.get(PARENT).map(String::as_str).unwrap_or_default()
}

fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

fn judge(quota: &Value, name: &str, quotas: &[Arc<Other>]) -> Verdict {
    let mut verdict = Verdict::default();
    for list in ["min", "max"] {
        for (resource, value) in quota["spec"][list].as_object().into_iter().flatten() {
            let field = format!("spec.{list}[{resource}]");
            match quantity(value) {
                None => verdict.refuse(field, "is no quantity; write one like 2, 500m or 16Gi"),
                Some(amount) if amount < Quantity::ZERO => {
                    verdict.refuse(field, "is negative; write 0 or more")
                }
                Some(_) => {}
            }
        }
    }
    let (min, max) = (amounts(&quota["spec"]["min"]), amounts(&quota["spec"]["max"]));
    for (resource, least) in &min {
        let field = format!("spec.min[{resource}]");
        match max.get(resource) {
            None => verdict.refuse(field, format!("has no bound; write spec.max[{resource}] too")),
            Some(most) if least > most => {
                verdict.refuse(field, format!("{least} is more than the maximum of {most}"));
            }
            Some(_) => {}
        }
    }
    let parent = label(quota, PARENT);
    if !parent.is_empty() && parent != ROOT {
        below(quota, name, parent, (&min, &max), quotas, &mut verdict);
    }
    // At the first level nobody has promised anything yet.
    let of_children = sum_of_minimums(
        quotas.iter().filter(|other| parent_of(other) == name && other.metadata.name != name),
    );
    if name != ROOT {
        for (resource, sum) in &of_children {
            let own = min.get(resource).copied().unwrap_or(Quantity::ZERO);
            if *sum > own {
                verdict.refuse(
                    format!("spec.min[{resource}]"),
                    format!("{own} is less than the {sum} that the quotas below have together"),
                );
            }
        }
    }
    verdict
}

fn sum_of_minimums<'a>(quotas: impl Iterator<Item = &'a Arc<Other>>) -> Amounts {
    let mut sums = Amounts::new();
    for quota in quotas {
        for (resource, amount) in amounts(&quota.spec["min"]) {
            *sums.entry(resource).or_insert(Quantity::ZERO) += amount;
        }
    }
    sums
}

/// A quota below another one.
fn below(
    quota: &Value,
    name: &str,
    parent: &str,
    (min, max): (&Amounts, &Amounts),
    quotas: &[Arc<Other>],
    verdict: &mut Verdict,
) {
    let field = format!("metadata.labels[{PARENT}]");
    let find = |name: &str| quotas.iter().find(|quota| quota.metadata.name == name);
    let Some(above) = find(parent) else {
        verdict.refuse(field, format!("there is no quota {}; create it first", quote(parent)));
        return;
    };
    let mut seen: BTreeSet<&str> = [name].into();
    let mut at = parent;
    while !at.is_empty() && at != ROOT {
        if !seen.insert(at) {
            if at == name {
                verdict.refuse(field, "would make a ring; choose a quota that is not below this one");
                return;
            }
            break;
        }
        at = find(at).map(|quota| parent_of(quota)).unwrap_or_default();
    }
    let tree = above.metadata.labels.get(TREE).map(String::as_str).unwrap_or_default();
    if label(quota, TREE) != tree {
        verdict.refuse(
            format!("metadata.labels[{TREE}]"),
            format!(
                "must be that of the parent, {}",
                if tree.is_empty() { "none".to_owned() } else { quote(tree) }
            ),
        );
    }
    let of_parent: BTreeSet<String> = amounts(&above.spec["max"]).into_keys().collect();
    let own: BTreeSet<String> = max.keys().cloned().collect();
    if own != of_parent {
        let listed = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        verdict.refuse(
            "spec.max",
            format!(
                "names {}, but the parent's names {}; both must name the same",
                listed(&own),
                listed(&of_parent)
            ),
        );
    }
    let siblings = quotas.iter().filter(|other| parent_of(other) == parent && other.metadata.name != name);
    let mut sums = sum_of_minimums(siblings);
    for (resource, amount) in min {
        *sums.entry(resource.clone()).or_insert(Quantity::ZERO) += *amount;
    }
    let has = amounts(&above.spec["min"]);
    for resource in min.keys() {
        let (sum, has) = (sums.get(resource), has.get(resource).copied().unwrap_or(Quantity::ZERO));
        if let Some(sum) = sum.filter(|sum| **sum > has) {
            verdict.refuse(
                format!("spec.min[{resource}]"),
                format!("the quotas below {} would have {sum} together, more than its {has}", quote(parent)),
            );
        }
    }
}

fn deletion(name: &str, quotas: &[Arc<Other>]) -> Verdict {
    let mut verdict = Verdict::default();
    if BUILT_IN.contains(&name) {
        verdict.refuse("metadata.name", "is one of Koordinator's own quotas, which stay");
    }
    let below: Vec<&str> = quotas
        .iter()
        .filter(|quota| parent_of(quota) == name)
        .map(|quota| quota.metadata.name.as_str())
        .take(5)
        .collect();
    if !below.is_empty() {
        verdict
            .refuse("metadata.name", format!("has quotas below it; delete them first: {}", below.join(", ")));
    }
    verdict
}

pub fn pod(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    if asked.operation != Operation::Create {
        return Verdict::default();
    }
    let mut verdict = Verdict::default();
    let pod = asked.object;
    let named = label(pod, NAME);
    if !named.is_empty()
        && let Some(quotas) = world.others(OtherKind::ElasticQuota)
    {
        let field = format!("metadata.labels[{NAME}]");
        if quotas.iter().any(|quota| parent_of(quota) == named) {
            verdict.refuse(field, format!("{} has quotas below it; name one of those", quote(named)));
        } else if !quotas.iter().any(|quota| quota.metadata.name == named) && !BUILT_IN.contains(&named) {
            verdict
                .warn(field, format_args!("there is no quota {}; the default quota is used", quote(named)));
        }
    }
    service(pod, &mut verdict);
    verdict
}

/// Koordinator's bands of priorities.
fn band(pod: &Value) -> &'static str {
    let by_value = match pod["spec"]["priority"].as_i64() {
        Some(9000..=9999) => "prod",
        Some(7000..=7999) => "mid",
        Some(5000..=5999) => "batch",
        Some(3000..=3999) => "free",
        _ => "",
    };
    if !by_value.is_empty() {
        return by_value;
    }
    match pod["spec"]["priorityClassName"].as_str().unwrap_or_default() {
        "koord-prod" => "prod",
        "koord-mid" => "mid",
        "koord-batch" => "batch",
        "koord-free" => "free",
        _ => "none",
    }
}

/// Which class of service goes with which priority, and what it may ask for.
fn service(pod: &Value, verdict: &mut Verdict) {
    let class = label(pod, QOS);
    let field = format!("metadata.labels[{QOS}]");
    let band = band(pod);
    let forbidden = match class {
        "BE" => matches!(band, "prod" | "none"),
        "LSR" => band != "prod",
        _ => false,
    };
    if forbidden {
        verdict.refuse(
            &field,
            format!(
                "{class} does not go with the priority {band}; write a priorityClassName such as {}",
                match class {
                    "BE" => "koord-batch",
                    _ => "koord-prod",
                }
            ),
        );
    }
    for (i, container) in pod["spec"]["containers"].as_array().into_iter().flatten().enumerate() {
        let requests = &container["resources"]["requests"];
        let path = format!("spec.containers[{i}].resources.requests");
        if matches!(class, "LSR" | "LSE")
            && let Some(cpu) = quantity(&requests["cpu"])
            && cpu.nano() % 1_000_000_000 != 0
        {
            verdict.refuse(format!("{path}[cpu]"), format!("{class} has whole cores; {cpu} is none"));
        }
        for name in ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"] {
            if !requests[name].is_null() && class != "BE" {
                verdict.refuse(
                    format!("{path}[{name}]"),
                    format!("is for the class BE; write the label {QOS}: BE"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::Given;

    fn quota_object(name: &str, parent: &str, min: i64, max: i64) -> Value {
        json!({"metadata": {"name": name, "labels": {PARENT: parent}}, "spec": {"min": {"cpu": min}, "max": {"cpu": max}}})
    }

    fn world() -> Given {
        let quotas = [("top", "", 10, 20), ("a", "top", 4, 20), ("b", "top", 4, 20), ("leaf", "a", 1, 5)];
        let quotas = quotas.map(|(name, parent, min, max)| {
            Arc::new(serde_json::from_value(quota_object(name, parent, min, max)).unwrap())
        });
        Given { others: [(OtherKind::ElasticQuota, quotas.to_vec())].into(), ..Given::default() }
    }

    #[track_caller]
    fn check(operation: Operation, name: &str, object: Value, old: Value, expected: Option<&str>) {
        let asked = Asked { operation, namespace: "n", name, uid: "u", object: &object, old: &old };
        let verdict = quota(&asked, &world());
        assert_eq!(verdict.errors.first().map(|error| error.message.as_str()), expected, "{verdict:?}");
    }

    #[test]
    fn quotas() {
        let create = |object: Value, expected: Option<&str>| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            check(Operation::Create, &name, object, Value::Null, expected);
        };
        create(quota_object("c", "top", 2, 20), None);
        create(
            quota_object("c", "top", 3, 20),
            Some("the quotas below \"top\" would have 11 together, more than its 10"),
        );
        create(quota_object("c", "", 300, 300), None);
        create(quota_object("c", ROOT, 300, 300), None);
        create(quota_object("c", "top", 5, 4), Some("5 is more than the maximum of 4"));
        create(quota_object("c", "gone", 1, 2), Some("there is no quota \"gone\"; create it first"));
        create(quota_object("c", "", -1, 2), Some("is negative; write 0 or more"));
        let mut odd = quota_object("c", "top", 1, 2);
        odd["spec"]["max"]["memory"] = json!("1Gi");
        create(odd.clone(), Some("names cpu, memory, but the parent's names cpu; both must name the same"));
        odd["spec"] = json!({"min": {"cpu": 1}});
        create(odd, Some("has no bound; write spec.max[cpu] too"));
        check(
            Operation::Update,
            "top",
            quota_object("top", "leaf", 10, 20),
            quota_object("top", "", 10, 20),
            Some("would make a ring; choose a quota that is not below this one"),
        );
        check(
            Operation::Update,
            "top",
            quota_object("top", "", 7, 20),
            quota_object("top", "", 10, 20),
            Some("7 is less than the 8 that the quotas below have together"),
        );
        let mut moved = quota_object("b", "top", 4, 20);
        moved["metadata"]["labels"][TREE] = json!("t");
        check(
            Operation::Update,
            "b",
            moved,
            quota_object("b", "top", 4, 20),
            Some("must be that of the parent, none"),
        );
    }

    #[test]
    fn deletions() {
        check(
            Operation::Delete,
            "a",
            Value::Null,
            Value::Null,
            Some("has quotas below it; delete them first: leaf"),
        );
        check(Operation::Delete, "leaf", Value::Null, Value::Null, None);
        check(
            Operation::Delete,
            ROOT,
            Value::Null,
            Value::Null,
            Some("is one of Koordinator's own quotas, which stay"),
        );
    }

    #[track_caller]
    fn check_pod(labels: Value, spec: Value, n_errors: usize, n_warnings: usize) {
        let object = json!({"metadata": {"labels": labels}, "spec": spec});
        let asked = Asked {
            operation: Operation::Create,
            namespace: "n",
            name: "p",
            uid: "u",
            object: &object,
            old: &Value::Null,
        };
        let verdict = pod(&asked, &world());
        assert_eq!((verdict.errors.len(), verdict.warnings.len()), (n_errors, n_warnings), "{verdict:?}");
    }

    #[test]
    fn pods() {
        check_pod(json!({}), json!({}), 0, 0);
        check_pod(json!({NAME: "leaf"}), json!({}), 0, 0);
        check_pod(json!({NAME: "a"}), json!({}), 1, 0);
        check_pod(json!({NAME: "gone"}), json!({}), 0, 1);
        check_pod(json!({QOS: "BE"}), json!({"priority": 5500}), 0, 0);
        check_pod(json!({QOS: "BE"}), json!({"priority": 9500}), 1, 0);
        check_pod(json!({QOS: "BE"}), json!({}), 1, 0);
        check_pod(json!({QOS: "LSR"}), json!({"priorityClassName": "koord-prod"}), 0, 0);
        check_pod(json!({QOS: "LSR"}), json!({"priorityClassName": "koord-batch"}), 1, 0);
        let half = json!({"priorityClassName": "koord-prod", "containers": [{"resources": {"requests": {"cpu": "500m"}}}]});
        check_pod(json!({QOS: "LSR"}), half, 1, 0);
        check_pod(
            json!({}),
            json!({"containers": [{"resources": {"requests": {"kubernetes.io/batch-cpu": 1000}}}]}),
            1,
            0,
        );
    }
}
