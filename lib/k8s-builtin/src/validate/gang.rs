//! Priority classes, and the gangs of `scheduling.k8s.io`: `Workload` in 1.35 and 1.36, `PodGroup` in 1.36.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{check::Check, text};
use crate::json::{at, flag, has, int, list, text};

/// The largest priority that a user may define.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// A priority class.
pub(super) fn priority_class(check: &mut Check, class: &Value) {
    let name = text(class, "metadata.name");
    let value = int(class, "value").unwrap_or(0);
    if name.starts_with("system-") {
        let expected = match name {
            "system-cluster-critical" => Some(2_000_000_000),
            "system-node-critical" => Some(2_000_001_000),
            _ => None,
        };
        let problem = match expected {
            None => Some(format!("{name} is not a known system priority class")),
            Some(expected) if expected != value => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            Some(_) if flag(class, "globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            );
            check.forbidden("metadata.name", detail);
        }
    } else if value > HIGHEST_USER_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        check.forbidden("value", detail);
    }
    check.one_of_or_empty(
        "preemptionPolicy",
        text(class, "preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
}

/// What may not change in a priority class.
pub(super) fn priority_class_update(check: &mut Check, new: &Value, old: &Value) {
    if at(new, "value") != at(old, "value") {
        check.forbidden("value", "may not be changed in an update.");
    }
    check.immutable(new, old, "preemptionPolicy");
}

/// A workload of 1.36.
pub(super) fn workload(check: &mut Check, object: &Value) {
    controller_ref(check, object);
    let templates = list(object, "spec.podGroupTemplates");
    let path = "spec.podGroupTemplates";
    if templates.is_empty() {
        check.required(path, "");
    }
    if templates.len() > 8 {
        check.too_many(path, templates.len(), 8);
        return;
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, template) in templates.iter().enumerate() {
        let base = format!("{path}[{idx}]");
        let name = text(template, "name");
        if names.contains(&name) {
            check.duplicate(&base, template.clone());
        }
        names.insert(name);
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else {
            check.format(format_args!("{base}.name"), name, text::dns_label(name));
        }
        group(check, template, &base);
    }
}

/// A workload of 1.35.
pub(super) fn workload_v1alpha1(check: &mut Check, object: &Value) {
    controller_ref(check, object);
    let groups = list(object, "spec.podGroups");
    let path = "spec.podGroups";
    if groups.is_empty() {
        check.required(path, "must have at least one item");
    }
    if groups.len() > 8 {
        check.too_many(path, groups.len(), 8);
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, group) in groups.iter().enumerate() {
        let base = format!("{path}[{idx}]");
        let name = text(group, "name");
        if names.contains(&name) {
            check.duplicate(format_args!("{base}.name"), name);
        }
        names.insert(name);
        check.format(format_args!("{base}.name"), name, text::dns_label(name));
        policy(check, at(group, "policy"), &format!("{base}.policy"));
    }
}

/// What may not change in a workload.
pub(super) fn workload_update(check: &mut Check, new: &Value, old: &Value) {
    for field in ["spec.controllerRef", "spec.podGroupTemplates"] {
        declared_immutable(check, new, old, field);
    }
}

/// What may not change in a workload of 1.35: a reference may still be added.
pub(super) fn workload_v1alpha1_update(check: &mut Check, new: &Value, old: &Value) {
    if has(old, "spec.controllerRef") {
        check.immutable(new, old, "spec.controllerRef");
    }
    check.immutable(new, old, "spec.podGroups");
}

/// A pod group.
pub(super) fn pod_group(check: &mut Check, object: &Value) {
    let spec = at(object, "spec");
    let reference = at(spec, "podGroupTemplateRef");
    if !reference.is_null() {
        let base = "spec.podGroupTemplateRef";
        if has(reference, "workload") {
            let workload = text(reference, "workload.workloadName");
            let template = text(reference, "workload.podGroupTemplateName");
            if workload.is_empty() {
                check.required(format_args!("{base}.workload.workloadName"), "");
            } else {
                check.format(
                    format_args!("{base}.workload.workloadName"),
                    workload,
                    text::dns_subdomain(workload),
                );
            }
            if template.is_empty() {
                check.required(format_args!("{base}.workload.podGroupTemplateName"), "");
            } else {
                check.format(
                    format_args!("{base}.workload.podGroupTemplateName"),
                    template,
                    text::dns_label(template),
                );
            }
        } else {
            check.invalid(base, "", "must specify one of: `workload`");
        }
    }
    if text(spec, "disruptionMode").is_empty() {
        check.required("spec.disruptionMode", "");
    }
    group(check, spec, "spec");
}

/// What may not change in a pod group: everything.
pub(super) fn pod_group_update(check: &mut Check, new: &Value, old: &Value) {
    for field in [
        "podGroupTemplateRef",
        "schedulingPolicy",
        "schedulingConstraints",
        "resourceClaims",
        "disruptionMode",
        "priorityClassName",
        "priority",
    ] {
        declared_immutable(check, new, old, &format!("spec.{field}"));
    }
}

/// The status of a pod group.
pub(super) fn pod_group_status(check: &mut Check, group: &Value) {
    let statuses = list(group, "status.resourceClaimStatuses");
    let path = "status.resourceClaimStatuses";
    if statuses.len() > 4 {
        check.too_many(path, statuses.len(), 4);
    }
    let known: BTreeSet<&str> =
        list(group, "spec.resourceClaims").iter().map(|claim| text(claim, "name")).collect();
    for (idx, status) in statuses.iter().enumerate() {
        let name = text(status, "name");
        if !known.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            check.invalid(format_args!("{path}[{idx}].name"), name, detail);
        }
    }
}

/// What a template and a pod group have in common.
fn group(check: &mut Check, spec: &Value, path: &str) {
    policy(check, at(spec, "schedulingPolicy"), &format!("{path}.schedulingPolicy"));
    let topology = list(spec, "schedulingConstraints.topology");
    let at_topology = format!("{path}.schedulingConstraints.topology");
    if topology.len() > 1 {
        check.too_many(&at_topology, topology.len(), 1);
    }
    for (idx, constraint) in topology.iter().enumerate().take_while(|_| topology.len() <= 1) {
        let key = text(constraint, "key");
        let at_key = format!("{at_topology}[{idx}].key");
        if key.is_empty() {
            check.required(&at_key, "");
        } else {
            check.format(&at_key, key, text::label_key(key));
        }
    }
    claims(check, spec, &format!("{path}.resourceClaims"));
    check.one_of_or_empty(
        format_args!("{path}.disruptionMode"),
        text(spec, "disruptionMode"),
        &["Pod", "PodGroup"],
    );
    let class = text(spec, "priorityClassName");
    if !class.is_empty() {
        check.format(format_args!("{path}.priorityClassName"), class, text::dns_subdomain(class));
    }
    if let Some(priority) = int(spec, "priority").filter(|priority| *priority > HIGHEST_USER_PRIORITY) {
        let detail = format!("must be less than or equal to {HIGHEST_USER_PRIORITY}");
        check.invalid(format_args!("{path}.priority"), priority, detail);
    }
}

fn policy(check: &mut Check, policy: &Value, path: &str) {
    match (has(policy, "basic"), has(policy, "gang")) {
        (false, false) => check.invalid(path, "", "must specify one of: `basic`, `gang`"),
        (true, true) => check.invalid(path, "{basic, gang}", "must specify exactly one of: `basic`, `gang`"),
        _ => {}
    }
    if has(policy, "gang") {
        let at_count = format!("{path}.gang.minCount");
        match int(policy, "gang.minCount").unwrap_or(0) {
            0 => check.required(&at_count, ""),
            count if count < 1 => check.invalid(&at_count, count, "must be greater than or equal to 1"),
            _ => {}
        }
    }
}

fn claims(check: &mut Check, spec: &Value, path: &str) {
    let claims = list(spec, "resourceClaims");
    if claims.len() > 4 {
        check.too_many(path, claims.len(), 4);
        return;
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, claim) in claims.iter().enumerate() {
        let base = format!("{path}[{idx}]");
        let name = text(claim, "name");
        if names.contains(&name) {
            check.duplicate(&base, name);
        }
        names.insert(name);
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else {
            check.format(format_args!("{base}.name"), name, text::dns_label(name));
        }
        let members = ["resourceClaimName", "resourceClaimTemplateName"];
        match members.map(|member| has(claim, member)) {
            [false, false] => check.invalid(
                &base,
                "",
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            [true, true] => check.invalid(
                &base,
                "{resourceClaimName, resourceClaimTemplateName}",
                "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for member in members {
            let name = text(claim, member);
            if has(claim, member) {
                check.format(format_args!("{base}.{member}"), name, text::dns_subdomain(name));
            }
        }
    }
}

fn controller_ref(check: &mut Check, object: &Value) {
    let reference = at(object, "spec.controllerRef");
    if reference.is_null() {
        return;
    }
    let base = "spec.controllerRef";
    let group = text(reference, "apiGroup");
    if !group.is_empty() {
        check.format(format_args!("{base}.apiGroup"), group, text::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            check.required(format_args!("{base}.{field}"), "");
        } else {
            check.format(format_args!("{base}.{field}"), value, text::path_segment(value));
        }
    }
}

/// Rules that upstream declares in its types do not show the refused value.
fn declared_immutable(check: &mut Check, new: &Value, old: &Value, path: &str) {
    if at(new, path) != at(old, path) {
        check.invalid(path, Value::Null, "field is immutable");
    }
}
