//! Cluster queues, local queues, cohorts, flavors and admission checks.

use std::collections::BTreeSet;

use k8s_quantity::Quantity;
use serde_json::Value;

use super::{Findings, changed, invalid, is_label_key, is_subdomain};
use crate::object::{at, list, text};

const MOST_FLAVORS: usize = 256;
const MOST_RESOURCES: usize = 256;
const MOST_PAIRS: usize = 512;

pub fn cluster_queue(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        let spec = at(object, &["spec"]);
        let cohort = text(spec, &["cohortName"]);
        if !cohort.is_empty() && !is_subdomain(cohort) {
            invalid(
                out,
                "spec.cohortName",
                at(spec, &["cohortName"]),
                "is no name; write lower case letters, digits, '-' and '.'",
            );
        }
        groups(spec, !cohort.is_empty(), true, out);
        preemption(spec, out);
        fungibility(spec, out);
        checks(spec, out);
        concurrent(spec, out);
        weight(spec, out);
        selector(at(spec, &["namespaceSelector"]), "spec.namespaceSelector", out);
    });
    let policy = |object| at(object, &["spec", "concurrentAdmissionPolicy"]);
    if old.is_object() && policy(object) != policy(old) {
        invalid(&mut out, "spec.concurrentAdmissionPolicy", policy(object), "field is immutable");
    }
    out
}

/// An admission check: what it asks for is its controller's business.
pub fn check(object: &Value, old: &Value) -> Findings {
    changed(object, old, |object, out| {
        let controller = text(object, &["spec", "controllerName"]);
        if matches!(controller, "kueue.x-k8s.io/multikueue" | "kueue.x-k8s.io/provisioning-request") {
            out.warn(
                "spec.controllerName",
                format_args!(
                    "nobody here keeps checks of {controller}: workloads of queues that name this check wait until somebody sets its state"
                ),
            );
        }
    })
}

pub fn cohort(object: &Value, old: &Value) -> Findings {
    changed(object, old, |object, out| {
        let spec = at(object, &["spec"]);
        let parent = text(spec, &["parentName"]);
        if !parent.is_empty() && !is_subdomain(parent) {
            invalid(out, "spec.parentName", at(spec, &["parentName"]), "is no name");
        }
        if !parent.is_empty() && parent == text(object, &["metadata", "name"]) {
            invalid(
                out,
                "spec.parentName",
                at(spec, &["parentName"]),
                "a cohort cannot be its own parent; name another, or none",
            );
        }
        groups(spec, !parent.is_empty(), false, out);
        weight(spec, out);
    })
}

pub fn local_queue(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        let queue = text(object, &["spec", "clusterQueue"]);
        if !is_subdomain(queue) {
            invalid(
                out,
                "spec.clusterQueue",
                at(object, &["spec", "clusterQueue"]),
                "is no name of a ClusterQueue",
            );
        }
    });
    let queue = |object: &Value| text(object, &["spec", "clusterQueue"]).to_owned();
    if old.is_object() && queue(old) != queue(object) {
        invalid(&mut out, "spec.clusterQueue", at(object, &["spec", "clusterQueue"]), "field is immutable");
    }
    out
}

pub fn flavor(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        let spec = at(object, &["spec"]);
        let labels = at(spec, &["nodeLabels"]).as_object();
        for key in labels.into_iter().flat_map(serde_json::Map::keys) {
            if !is_label_key(key) {
                invalid(out, "spec.nodeLabels", &Value::String(key.clone()), "is no key of a label");
            }
        }
        if !text(spec, &["topologyName"]).is_empty() && labels.is_none_or(serde_json::Map::is_empty) {
            out.refuse("spec.nodeLabels", "Required value: at least one label is needed with a topologyName");
        }
        for (i, taint) in list(spec, &["nodeTaints"]).iter().enumerate() {
            let field = format!("spec.nodeTaints[{i}]");
            if !is_label_key(text(taint, &["key"])) {
                invalid(out, format!("{field}.key"), at(taint, &["key"]), "is no key of a label");
            }
            if !matches!(text(taint, &["effect"]), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
                let why = "supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"";
                out.refuse(
                    format!("{field}.effect"),
                    format!("Unsupported value: {}: {why}", at(taint, &["effect"])),
                );
            }
        }
        for (i, toleration) in list(spec, &["tolerations"]).iter().enumerate() {
            tolerates(toleration, &format!("spec.tolerations[{i}]"), out);
        }
    });
    let topology = |object: &Value| text(object, &["spec", "topologyName"]).to_owned();
    if old.is_object() && !topology(old).is_empty() && topology(old) != topology(object) {
        invalid(&mut out, "spec.topologyName", at(object, &["spec", "topologyName"]), "field is immutable");
    }
    out
}

pub(super) fn tolerates(toleration: &Value, field: &str, out: &mut Findings) {
    let (key, operator, value) =
        (text(toleration, &["key"]), text(toleration, &["operator"]), text(toleration, &["value"]));
    if !key.is_empty() && !is_label_key(key) {
        invalid(out, format!("{field}.key"), at(toleration, &["key"]), "is no key of a label");
    }
    if key.is_empty() && operator != "Exists" {
        invalid(
            out,
            format!("{field}.operator"),
            at(toleration, &["operator"]),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        );
    }
    if operator == "Exists" && !value.is_empty() {
        invalid(
            out,
            format!("{field}.value"),
            at(toleration, &["value"]),
            "value must be empty when `operator` is 'Exists'",
        );
    }
    if !matches!(operator, "" | "Exists" | "Equal") {
        let why = "supported values: \"Equal\", \"Exists\"";
        out.refuse(format!("{field}.operator"), format!("Unsupported value: {operator:?}: {why}"));
    }
}

/// Quota, of a queue or of a cohort; limits are for those with somebody above them.
fn groups(spec: &Value, has_parent: bool, is_queue: bool, out: &mut Findings) {
    let (mut flavors_seen, mut resources_seen) = (BTreeSet::new(), BTreeSet::new());
    let mut n_flavors = 0;
    for (i, group) in list(spec, &["resourceGroups"]).iter().enumerate() {
        let field = format!("spec.resourceGroups[{i}]");
        let covered: Vec<&str> =
            list(group, &["coveredResources"]).iter().filter_map(Value::as_str).collect();
        for (j, name) in covered.iter().enumerate() {
            let field = format!("{field}.coveredResources[{j}]");
            if !is_label_key(name) {
                invalid(out, field, &Value::String((*name).to_owned()), "is no name of a resource");
            } else if !resources_seen.insert(*name) {
                out.refuse(field, format!("Duplicate value: {name:?}"));
            }
        }
        let flavors = list(group, &["flavors"]);
        n_flavors += flavors.len();
        if covered.len().saturating_mul(flavors.len()) > MOST_PAIRS {
            out.refuse(
                format!("{field}.flavors"),
                format!("Too many: must have at most {MOST_PAIRS} pairs of flavors and resources"),
            );
        }
        for (j, flavor) in flavors.iter().enumerate() {
            let field = format!("{field}.flavors[{j}]");
            let name = text(flavor, &["name"]);
            if !is_subdomain(name) {
                invalid(out, format!("{field}.name"), at(flavor, &["name"]), "is no name");
            } else if !flavors_seen.insert(name) {
                out.refuse(format!("{field}.name"), format!("Duplicate value: {name:?}"));
            }
            quotas(flavor, &field, &covered, has_parent, is_queue, out);
        }
    }
    if n_flavors > MOST_FLAVORS {
        out.refuse(
            "spec.resourceGroups",
            format!("Too many: {n_flavors}: must have at most {MOST_FLAVORS} flavors"),
        );
    }
    if resources_seen.len() > MOST_RESOURCES {
        out.refuse("spec.resourceGroups", format!("Too many: must have at most {MOST_RESOURCES} resources"));
    }
}

fn quotas(
    flavor: &Value,
    field: &str,
    covered: &[&str],
    has_parent: bool,
    is_queue: bool,
    out: &mut Findings,
) {
    let resources = list(flavor, &["resources"]);
    for (k, resource) in resources.iter().enumerate() {
        let field = format!("{field}.resources[{k}]");
        let name = text(resource, &["name"]);
        if covered.get(k).is_some_and(|wanted| *wanted != name) || k >= covered.len() {
            invalid(
                out,
                format!("{field}.name"),
                at(resource, &["name"]),
                "must match the name in coveredResources at the same place",
            );
        }
        let amount = |what: &str| -> Option<Quantity> {
            let value = at(resource, &[what]);
            match value {
                Value::String(text) => text.parse().ok(),
                Value::Number(number) => number.to_string().parse().ok(),
                _ => None,
            }
        };
        for what in ["nominalQuota", "borrowingLimit", "lendingLimit"] {
            if amount(what).is_some_and(|q| q.nano() < 0) {
                invalid(
                    out,
                    format!("{field}.{what}"),
                    at(resource, &[what]),
                    "must be greater than or equal to 0",
                );
            }
        }
        for what in ["borrowingLimit", "lendingLimit"] {
            if !has_parent && !at(resource, &[what]).is_null() {
                let of = if is_queue { "cohortName" } else { "parentName" };
                invalid(
                    out,
                    format!("{field}.{what}"),
                    at(resource, &[what]),
                    format!("must be nil when {of} is empty"),
                );
            }
        }
        if is_queue
            && let (Some(nominal), Some(lending)) = (amount("nominalQuota"), amount("lendingLimit"))
            && lending > nominal
        {
            invalid(
                out,
                format!("{field}.lendingLimit"),
                at(resource, &["lendingLimit"]),
                "must be less than or equal to the nominalQuota",
            );
        }
    }
}

fn preemption(spec: &Value, out: &mut Findings) {
    let never = |path: &[&str]| matches!(text(spec, path), "" | "Never");
    if never(&["preemption", "reclaimWithinCohort"])
        && !never(&["preemption", "borrowWithinCohort", "policy"])
    {
        invalid(
            out,
            "spec.preemption",
            at(spec, &["preemption", "borrowWithinCohort", "policy"]),
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        );
    }
}

fn fungibility(spec: &Value, out: &mut Findings) {
    let preference = at(spec, &["flavorFungibility", "preference"]);
    let next = |field: &str| text(spec, &["flavorFungibility", field]) == "TryNextFlavor";
    let means = next("whenCanBorrow") && next("whenCanPreempt");
    if !preference.is_null() && !means {
        invalid(
            out,
            "spec.flavorFungibility.preference",
            preference,
            "has a meaning only when whenCanBorrow and whenCanPreempt are TryNextFlavor",
        );
    }
}

fn checks(spec: &Value, out: &mut Findings) {
    let flavors: BTreeSet<&str> = list(spec, &["resourceGroups"])
        .iter()
        .flat_map(|group| list(group, &["flavors"]))
        .map(|flavor| text(flavor, &["name"]))
        .collect();
    let rules = list(spec, &["admissionChecksStrategy", "admissionChecks"]);
    for (i, rule) in rules.iter().enumerate() {
        for (j, flavor) in list(rule, &["onFlavors"]).iter().enumerate() {
            if flavor.as_str().is_some_and(|name| !flavors.contains(name)) {
                let field = format!("spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{j}]");
                invalid(out, field, flavor, "must be a flavor of this queue");
            }
        }
    }
}

fn concurrent(spec: &Value, out: &mut Findings) {
    let policy = at(spec, &["concurrentAdmissionPolicy"]);
    if policy.is_null() {
        return;
    }
    let field = "spec.concurrentAdmissionPolicy";
    let groups = list(spec, &["resourceGroups"]);
    if groups.len() != 1 {
        invalid(out, field, policy, "needs exactly one resource group");
    }
    if groups.iter().map(|g| list(g, &["flavors"]).len()).sum::<usize>() > 16 {
        invalid(out, field, policy, "must have at most 16 flavors");
    }
    if text(spec, &["queueingStrategy"]) == "StrictFIFO" {
        invalid(out, field, policy, "needs the queueing strategy BestEffortFIFO");
    }
    let retains = text(policy, &["migration", "mode"]) == "RetainFirstAdmission";
    if retains && !at(policy, &["migration", "constraints"]).is_null() {
        invalid(
            out,
            format!("{field}.migration.constraints"),
            at(policy, &["migration", "constraints"]),
            "is for TryPreferredFlavors only",
        );
    }
    let last = at(policy, &["migration", "constraints", "lastAcceptableFlavorName"]);
    let mut flavors = groups.iter().flat_map(|group| list(group, &["flavors"]));
    if last.as_str().is_some_and(|name| !flavors.any(|flavor| text(flavor, &["name"]) == name)) {
        let field = format!("{field}.migration.constraints.lastAcceptableFlavorName");
        invalid(out, field, last, "must be a flavor of this queue");
    }
}

fn weight(spec: &Value, out: &mut Findings) {
    let value = at(spec, &["fairSharing", "weight"]);
    let read = match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    let Some(weight) = read else { return };
    if weight.nano() < 0 {
        invalid(out, "spec.fairSharing.weight", value, "must be greater than or equal to 0");
    } else if weight.nano() == 1 {
        invalid(out, "spec.fairSharing.weight", value, "when not 0, it must be greater than 10^-9");
    }
}

/// A selector of labels.
fn selector(selector: &Value, field: &str, out: &mut Findings) {
    for (i, rule) in list(selector, &["matchExpressions"]).iter().enumerate() {
        let field = format!("{field}.matchExpressions[{i}]");
        if !is_label_key(text(rule, &["key"])) {
            invalid(out, format!("{field}.key"), at(rule, &["key"]), "is no key of a label");
        }
        let has = !list(rule, &["values"]).is_empty();
        match text(rule, &["operator"]) {
            "In" | "NotIn" if !has => {
                out.refuse(
                    format!("{field}.values"),
                    "Required value: must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "Exists" | "DoesNotExist" if has => {
                out.refuse(
                    format!("{field}.values"),
                    "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => invalid(
                out,
                format!("{field}.operator"),
                at(rule, &["operator"]),
                "not a valid selector operator",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn queue(spec: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": spec})
    }

    fn quota(more: Value) -> Value {
        let mut resource = json!({"name": "cpu", "nominalQuota": 5});
        for (key, value) in more.as_object().unwrap() {
            resource[key] = value.clone();
        }
        json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}]})
    }

    #[track_caller]
    fn check(spec: Value, expected: &str) {
        let found = cluster_queue(&queue(spec), &Value::Null);
        let texts: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.join("; "), expected);
    }

    #[test]
    fn quotas_of_a_queue() {
        check(json!({}), "");
        check(quota(json!({})), "");
        check(
            quota(json!({"borrowingLimit": 1})),
            "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: 1: must be nil when cohortName is empty",
        );
        let mut cohort = quota(json!({"borrowingLimit": 1, "lendingLimit": "6"}));
        cohort["cohortName"] = json!("all");
        check(
            cohort,
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"6\": must be less than or equal to the nominalQuota",
        );
        check(
            quota(json!({"nominalQuota": "-1"})),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: \"-1\": must be greater than or equal to 0",
        );
        check(
            quota(json!({"name": "memory"})),
            "spec.resourceGroups[0].flavors[0].resources[0].name: Invalid value: \"memory\": must match the name in coveredResources at the same place",
        );
        check(
            json!({"cohortName": "All Of Us"}),
            "spec.cohortName: Invalid value: \"All Of Us\": is no name; write lower case letters, digits, '-' and '.'",
        );
    }

    #[test]
    fn one_resource_in_two_groups() {
        let one = &quota(json!({}))["resourceGroups"][0];
        check(
            json!({"resourceGroups": [one, one]}),
            "spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\"; \
             spec.resourceGroups[1].flavors[0].name: Duplicate value: \"f\"",
        );
    }

    #[test]
    fn rules_of_a_queue() {
        check(
            json!({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}),
            "spec.preemption: Invalid value: \"LowerPriority\": reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        );
        check(
            json!({"flavorFungibility": {"preference": "PreemptionOverBorrowing"}}),
            "spec.flavorFungibility.preference: Invalid value: \"PreemptionOverBorrowing\": has a meaning only when whenCanBorrow and whenCanPreempt are TryNextFlavor",
        );
        check(
            json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["x"]}]}}),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Invalid value: \"x\": must be a flavor of this queue",
        );
        check(
            json!({"fairSharing": {"weight": "1n"}}),
            "spec.fairSharing.weight: Invalid value: \"1n\": when not 0, it must be greater than 10^-9",
        );
        check(
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "spec.namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        );
        check(
            json!({"concurrentAdmissionPolicy": {}, "queueingStrategy": "StrictFIFO"}),
            "spec.concurrentAdmissionPolicy: Invalid value: {}: needs exactly one resource group; \
             spec.concurrentAdmissionPolicy: Invalid value: {}: needs the queueing strategy BestEffortFIFO",
        );
    }

    #[test]
    fn an_update_is_judged_by_what_it_changes() {
        let old = queue(quota(json!({"borrowingLimit": 1})));
        assert!(cluster_queue(&old, &old).allows());
        let mut going = queue(quota(json!({"borrowingLimit": 1})));
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(cluster_queue(&going, &Value::Null).allows());
    }

    #[test]
    fn how_admission_runs_side_by_side_is_decided_once() {
        let with = |policy: Value| {
            let mut spec = quota(json!({}));
            spec["concurrentAdmissionPolicy"] = policy;
            queue(spec)
        };
        let last = |name: &str| {
            with(
                json!({"migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": name}}}),
            )
        };
        assert!(cluster_queue(&last("f"), &Value::Null).allows());
        let refused = |object: &Value, old: &Value| cluster_queue(object, old).errors[0].field.clone();
        assert_eq!(
            refused(&last("g"), &Value::Null),
            "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName"
        );
        assert_eq!(refused(&last("f"), &with(Value::Null)), "spec.concurrentAdmissionPolicy");
        let named = |name: &str| json!({"spec": {"controllerName": name}});
        assert_eq!(super::check(&named("example.com/budget"), &Value::Null), Findings::default());
        assert_eq!(super::check(&named("kueue.x-k8s.io/multikueue"), &Value::Null).warnings.len(), 1);
    }

    #[test]
    fn others() {
        let parent = json!({"metadata": {"name": "c"}, "spec": {"parentName": "c"}});
        assert_eq!(cohort(&parent, &Value::Null).errors.len(), 1);
        let local = |queue: &str| json!({"spec": {"clusterQueue": queue}});
        assert!(local_queue(&local("a"), &Value::Null).allows());
        assert!(!local_queue(&local("b"), &local("a")).allows());
        assert!(!local_queue(&local("_"), &Value::Null).allows());
        let of = |spec: Value| json!({"spec": spec});
        assert!(flavor(&of(json!({"nodeLabels": {"a": "b"}, "topologyName": "t"})), &Value::Null).allows());
        assert!(!flavor(&of(json!({"topologyName": "t"})), &Value::Null).allows());
        assert!(
            !flavor(&of(json!({"nodeTaints": [{"key": "a", "effect": "Sometimes"}]})), &Value::Null).allows()
        );
        assert!(!flavor(&of(json!({"tolerations": [{"value": "x"}]})), &Value::Null).allows());
        let topology = |name: &str| of(json!({"nodeLabels": {"a": "b"}, "topologyName": name}));
        assert!(!flavor(&topology("u"), &topology("t")).allows());
    }
}
