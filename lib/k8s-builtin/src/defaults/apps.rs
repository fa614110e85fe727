//! Computed defaults of the kinds that make pods, and of autoscalers.

use serde_json::{Value, json};

use crate::json::{
    at, at_mut, child, entries, has, list, list_mut, set, set_default, set_default_text, text,
};

/// Labels, and for replication controllers the selector, default to the labels of the template.
pub(super) fn labels_from_template(object: &mut Value, with_selector: bool) {
    let labels = at(object, "spec.template.metadata.labels").clone();
    if !labels.is_object() {
        return;
    }
    if entries(object, "metadata.labels").next().is_none()
        && let Some(meta) = child(object, "metadata")
    {
        set(meta, "labels", labels.clone());
    }
    if with_selector
        && entries(object, "spec.selector").next().is_none()
        && let Some(spec) = child(object, "spec")
    {
        set(spec, "selector", labels);
    }
}

pub(super) fn rolling_update(strategy: &mut Value) {
    set_default_text(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
    }
}

pub(super) fn stateful_set_update(strategy: &mut Value) {
    if text(strategy, "type").is_empty() {
        set_default_text(strategy, "type", "RollingUpdate");
        set_default(strategy, "rollingUpdate", json!({}));
    }
}

pub(super) fn claim_templates(spec: &mut Value) {
    for claim in list_mut(spec, "volumeClaimTemplates") {
        set(claim, "apiVersion", "v1");
        set(claim, "kind", "PersistentVolumeClaim");
    }
}

pub(super) fn job(job: &mut Value) {
    labels_from_template(job, false);
    let Some(spec) = at_mut(job, "spec") else { return };
    if !has(spec, "completions") && !has(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let backoff_limit = if has(spec, "backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_default(spec, "backoffLimit", backoff_limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replacement);
    set_default(spec, "manualSelector", false);
}

pub(super) fn autoscaler(hpa: &mut Value) {
    let Some(spec) = at_mut(hpa, "spec") else { return };
    if list(spec, "metrics").is_empty() {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        set(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    let Some(behavior) = at_mut(spec, "behavior").filter(|behavior| behavior.is_object()) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    for (direction, policies, window) in
        [("scaleUp", json!([pods, percent]), Some(0)), ("scaleDown", json!([percent]), None)]
    {
        let Some(rules) = child(behavior, direction) else { continue };
        set_default(rules, "selectPolicy", "Max");
        set_default(rules, "policies", policies);
        if let Some(window) = window {
            set_default(rules, "stabilizationWindowSeconds", window);
        }
    }
}
