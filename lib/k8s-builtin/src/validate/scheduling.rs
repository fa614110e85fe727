//! What a pod says to the scheduler: affinity, tolerations, spreading, gates and its gang.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::{Value, json};

use super::{check::Check, text};
use crate::json::{at, copy_field, entries, has, int, list, remove, set, text};

/// Affinity to nodes and to other pods.
pub(super) fn affinity(check: &mut Check, affinity: &Value, path: impl Display + Copy) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = at(affinity, "nodeAffinity");
    if has(node, required) {
        node_selector(check, at(node, required), &format!("{path}.nodeAffinity.{required}"));
    }
    for (idx, term) in list(node, preferred).iter().enumerate() {
        let base = format!("{path}.nodeAffinity.{preferred}[{idx}]");
        weight(check, term, &base);
        node_term(check, at(term, "preference"), &format!("{base}.preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (idx, term) in list(at(affinity, kind), required).iter().enumerate() {
            pod_term(check, term, &format!("{path}.{kind}.{required}[{idx}]"));
        }
        for (idx, term) in list(at(affinity, kind), preferred).iter().enumerate() {
            let base = format!("{path}.{kind}.{preferred}[{idx}]");
            weight(check, term, &base);
            pod_term(check, at(term, "podAffinityTerm"), &format!("{base}.podAffinityTerm"));
        }
    }
}

/// A selector of nodes: terms of which one must match.
pub(super) fn node_selector(check: &mut Check, selector: &Value, path: &str) {
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        check.required(format_args!("{path}.nodeSelectorTerms"), "must have at least one node selector term");
    }
    for (idx, term) in terms.iter().enumerate() {
        node_term(check, term, &format!("{path}.nodeSelectorTerms[{idx}]"), true);
    }
}

/// Tolerations of taints.
pub(super) fn tolerations(check: &mut Check, spec: &Value, path: impl Display) {
    for (idx, toleration) in list(spec, "tolerations").iter().enumerate() {
        let base = format_args!("{path}[{idx}]");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            check.format(format_args!("{base}.key"), key, text::label_key(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            check.invalid(format_args!("{base}.operator"), operator, detail);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            check.invalid(format_args!("{base}.effect"), effect, detail);
        }
        let at_operator = format_args!("{base}.operator");
        match operator {
            "Equal" | "" => {
                let messages = text::label_value(value);
                if !messages.is_empty() {
                    check.invalid(at_operator, value, messages.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                check.invalid(at_operator, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            // Comparisons are behind a gate that is off.
            "Lt" | "Gt" => check.unsupported(at_operator, operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => check.unsupported(at_operator, operator, &["Equal", "Exists"]),
        }
        check.one_of_or_empty(format_args!("{base}.effect"), effect, TAINT_EFFECTS);
    }
}

/// What a taint does.
pub(super) const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Gates that hold a pod back.
pub(super) fn gates(check: &mut Check, spec: &Value, path: impl Display + Copy) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (idx, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        check.format(format_args!("{path}[{idx}]"), name, text::label_key(name));
        if seen.contains(&name) {
            check.duplicate(format_args!("{path}[{idx}]"), name);
        }
        seen.insert(name);
    }
}

/// Spreading over domains.
pub(super) fn spread(check: &mut Check, spec: &Value, path: impl Display + Copy) {
    let constraints = list(spec, "topologySpreadConstraints");
    let last: BTreeMap<(&str, &str), usize> = constraints
        .iter()
        .enumerate()
        .map(|(idx, constraint)| {
            ((text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable")), idx)
        })
        .collect();
    for (idx, constraint) in constraints.iter().enumerate() {
        let base = format!("{path}[{idx}]");
        let skew = int(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            check.invalid(format_args!("{base}.maxSkew"), skew, "must be greater than zero");
        }
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            check.required(format_args!("{base}.topologyKey"), "can not be empty");
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            check.unsupported(
                format_args!("{base}.whenUnsatisfiable"),
                action,
                &["DoNotSchedule", "ScheduleAnyway"],
            );
        }
        if last.get(&(key, action)).is_some_and(|last| *last > idx) {
            check.duplicate(
                format_args!("{base}.{{topologyKey, whenUnsatisfiable}}"),
                format!("{{{key}, {action}}}"),
            );
        }
        if let Some(domains) = int(constraint, "minDomains") {
            let at_domains = format!("{base}.minDomains");
            if domains <= 0 {
                check.invalid(&at_domains, domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                check.invalid(&at_domains, domains, detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            check.one_of_or_empty(
                format_args!("{base}.{field}"),
                text(constraint, field),
                &["Honor", "Ignore"],
            );
        }
        label_keys(check, constraint, &base);
        check.selector(at(constraint, "labelSelector"), &format!("{base}.labelSelector"));
    }
}

/// The gang of the pod: `schedulingGroup` of 1.36, `workloadRef` of 1.35.
pub(super) fn group(check: &mut Check, spec: &Value, path: &str) {
    let group = at(spec, "schedulingGroup");
    if !group.is_null() {
        let base = format!("{path}.schedulingGroup.podGroupName");
        match at(group, "podGroupName").as_str() {
            None => check.invalid(&base, Value::Null, "must specify one of: `podGroupName`"),
            Some(name) => check.format(&base, name, text::dns_subdomain(name)),
        }
    }
    let workload = at(spec, "workloadRef");
    if !workload.is_null() {
        let base = format!("{path}.workloadRef");
        let name = text(workload, "name");
        check.format(format_args!("{base}.name"), name, text::dns_subdomain(name));
        let group = text(workload, "podGroup");
        check.format(format_args!("{base}.podGroup"), group, text::dns_label(group));
        let key = text(workload, "podGroupReplicaKey");
        if !key.is_empty() {
            check.format(format_args!("{base}.podGroupReplicaKey"), key, text::dns_label(key));
        }
    }
}

/// A changed pod keeps its tolerations, and may get more.
pub(super) fn only_added_tolerations(check: &mut Check, new: &Value, old: &Value) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, "tolerationSeconds");
        toleration.to_string()
    };
    let kept: BTreeSet<String> = list(new, "spec.tolerations").iter().map(without_seconds).collect();
    let is_lost = |toleration: &Value| !kept.contains(&without_seconds(toleration));
    if list(old, "spec.tolerations").iter().any(is_lost) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        check.forbidden("spec.tolerations", detail);
    }
}

/// A changed pod may lose gates, but not get any.
pub(super) fn only_deleted_gates(check: &mut Check, new: &Value, old: &Value) {
    let known: BTreeSet<&str> =
        list(old, "spec.schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    for (idx, gate) in list(new, "spec.schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(&name) {
            check.forbidden(
                format_args!("spec.schedulingGates[{idx}].name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            );
        }
    }
}

/// While a pod is gated its node selector and node affinity may become narrower. Allowed changes are undone in `masked`.
pub(super) fn gated_mutations(check: &mut Check, masked: &mut Value, old: &Value) {
    if at(masked, "nodeSelector") != at(old, "nodeSelector") {
        let is_narrower = entries(old, "nodeSelector")
            .all(|(key, value)| at(masked, "nodeSelector").get(key) == Some(value));
        if !is_narrower {
            check.invalid(
                "spec.nodeSelector",
                at(masked, "nodeSelector").clone(),
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        copy_field(masked, old, "nodeSelector");
    }
    let old_affinity = at(old, "affinity.nodeAffinity").clone();
    if *at(masked, "affinity.nodeAffinity") == old_affinity {
        return;
    }
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let path = format!("spec.affinity.nodeAffinity.{required}");
    let old_terms = list(at(&old_affinity, required), "nodeSelectorTerms");
    let new_terms = list(at(at(masked, "affinity.nodeAffinity"), required), "nodeSelectorTerms");
    if has(&old_affinity, required) {
        let at_terms = format!("{path}.nodeSelectorTerms");
        if old_terms.len() != new_terms.len() {
            let value = Value::Array(new_terms.to_vec());
            check.invalid(
                &at_terms,
                value,
                "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
            );
        } else {
            for (idx, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
                let keeps = |field: &str| {
                    let kept: BTreeSet<String> = list(new, field).iter().map(ToString::to_string).collect();
                    list(old, field).iter().all(|requirement| kept.contains(&requirement.to_string()))
                };
                if !(keeps("matchExpressions") && keeps("matchFields")) {
                    let detail = "only additions are allowed (no mutations or deletions)";
                    check.invalid(format_args!("{at_terms}[{idx}]"), new.clone(), detail);
                }
            }
        }
    }
    let is_otherwise_empty =
        |affinity: &Value| !has(affinity, "podAffinity") && !has(affinity, "podAntiAffinity");
    if !has(old, "affinity") && is_otherwise_empty(at(masked, "affinity")) {
        remove(masked, "affinity");
        return;
    }
    if !has(masked, "affinity") {
        set(masked, "affinity", json!({}));
    }
    if let Some(affinity) = masked.get_mut("affinity") {
        copy_field(affinity, at(old, "affinity"), "nodeAffinity");
    }
}

fn weight(check: &mut Check, term: &Value, path: &str) {
    let weight = int(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        check.invalid(format_args!("{path}.weight"), weight, "must be in the range 1-100");
    }
}

fn node_term(check: &mut Check, term: &Value, path: &str, check_values: bool) {
    for (idx, requirement) in list(term, "matchExpressions").iter().enumerate() {
        let base = format!("{path}.matchExpressions[{idx}]");
        let values = list(requirement, "values");
        let operator = text(requirement, "operator");
        let at_values = format!("{base}.values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                check.required(&at_values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                check.forbidden(
                    &at_values,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "Gt" | "Lt" if values.len() != 1 => {
                check.required(&at_values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => check.invalid(format_args!("{base}.operator"), operator, "not a valid selector operator"),
        }
        let key = text(requirement, "key");
        check.format(format_args!("{base}.key"), key, text::label_key(key));
        for (value_idx, value) in values.iter().enumerate().filter(|_| check_values) {
            let value = value.as_str().unwrap_or_default();
            check.format(format_args!("{at_values}[{value_idx}]"), value, text::label_value(value));
        }
    }
    for (idx, requirement) in list(term, "matchFields").iter().enumerate() {
        let base = format!("{path}.matchFields[{idx}]");
        let values = list(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.len() != 1 => check.required(
                format_args!("{base}.values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            operator => {
                check.invalid(format_args!("{base}.operator"), operator, "not a valid selector operator")
            }
        }
        let key = text(requirement, "key");
        if key == "metadata.name" {
            for (value_idx, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                check.format(format_args!("{base}.values[{value_idx}]"), value, text::dns_subdomain(value));
            }
        } else {
            check.invalid(format_args!("{base}.key"), key, "not a valid field selector key");
        }
    }
}

fn pod_term(check: &mut Check, term: &Value, path: &str) {
    check.selector(at(term, "labelSelector"), &format!("{path}.labelSelector"));
    check.selector(at(term, "namespaceSelector"), &format!("{path}.namespaceSelector"));
    for name in list(term, "namespaces").iter().filter_map(Value::as_str) {
        check.format(format_args!("{path}.namespace"), name, text::dns_label(name));
    }
    label_keys(check, term, path);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        check.required(format_args!("{path}.topologyKey"), "can not be empty");
    }
    check.format(format_args!("{path}.topologyKey"), key, text::label_key(key));
}

fn label_keys(check: &mut Check, term: &Value, path: &str) {
    let mismatched: BTreeSet<&str> =
        list(term, "mismatchLabelKeys").iter().filter_map(Value::as_str).collect();
    let matched: BTreeMap<&str, usize> = list(term, "matchLabelKeys")
        .iter()
        .enumerate()
        .filter_map(|(idx, key)| Some((key.as_str()?, idx)))
        .collect();
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = list(term, field);
        if keys.is_empty() {
            continue;
        }
        if !has(term, "labelSelector") {
            check.forbidden(format!("{path}.{field}"), "must not be specified when labelSelector is not set");
            continue;
        }
        for (idx, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            check.format(format_args!("{path}.{field}[{idx}]"), key, text::label_key(key));
        }
    }
    // Preparation merged each key into the selector once, so a second requirement on it is the user's own.
    let selector = at(term, "labelSelector");
    let mut known: BTreeSet<&str> = entries(selector, "matchLabels").map(|(key, _)| key.as_str()).collect();
    for requirement in list(selector, "matchExpressions") {
        let key = text(requirement, "key");
        if let Some(idx) = matched.get(key).filter(|_| known.contains(key)) {
            check.invalid(
                format_args!("{path}[{idx}]"),
                key,
                "exists in both matchLabelKeys and labelSelector",
            );
        }
        known.insert(key);
    }
    for (key, idx) in &matched {
        if mismatched.contains(key) {
            check.invalid(
                format_args!("{path}.matchLabelKeys[{idx}]"),
                *key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            );
        }
    }
}
