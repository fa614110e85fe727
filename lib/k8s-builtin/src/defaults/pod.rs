//! Computed defaults of pods, their containers and volumes.

use k8s_quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{
    image,
    resources::{Amounts, amounts, of_containers},
};
use crate::json::{
    at, at_mut, child, entries, flag, has, int, list, list_mut, set, set_default, set_default_text, text,
};

/// A pod, but not the template of one: requests follow limits, and ports of the host follow those of the container.
pub(super) fn pod(pod: &mut Value) {
    let is_host_network = flag(pod, "spec.hostNetwork");
    let Some(spec) = at_mut(pod, "spec") else { return };
    for path in ["containers", "initContainers"] {
        for container in list_mut(spec, path) {
            requests_from_limits(container);
            if is_host_network {
                for port in list_mut(container, "ports") {
                    if int(port, "hostPort").unwrap_or(0) == 0 {
                        let number = at(port, "containerPort").clone();
                        if number.is_number() {
                            set(port, "hostPort", number);
                        }
                    }
                }
            }
        }
    }
    set_default(spec, "enableServiceLinks", true);
}

/// Pod-level resources, after the containers have theirs.
pub(super) fn pod_level(pod: &mut Value) {
    if !has(pod, "spec.resources") {
        return;
    }
    let mut requests = amounts(pod, "spec.resources.requests");
    let mut limits = amounts(pod, "spec.resources.limits");
    if !limits.is_empty() || !requests.is_empty() {
        for (name, amount) in of_containers(pod, "limits") {
            if name.starts_with("hugepages-") && !requests.contains_key(&name) {
                limits.entry(name).or_insert(amount);
            }
        }
    }
    if !limits.is_empty() {
        for (name, amount) in of_containers(pod, "requests") {
            if name == "cpu" || name == "memory" {
                requests.entry(name).or_insert(amount);
            }
        }
        for (name, amount) in &limits {
            if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
                requests.entry(name.clone()).or_insert(*amount);
            }
        }
    }
    if let Some(resources) = at_mut(pod, "spec.resources") {
        put(resources, "requests", &requests);
        put(resources, "limits", &limits);
    }
}

/// A pod or the template of one: it stops within no less than a second, and the old and the new name of the service
/// account say the same.
pub(super) fn spec(spec: &mut Value) {
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        set(spec, "terminationGracePeriodSeconds", 1);
    }
    let name = text(spec, "serviceAccountName").to_owned();
    let old = text(spec, "serviceAccount").to_owned();
    let name = if name.is_empty() { old } else { name };
    if !name.is_empty() {
        set(spec, "serviceAccountName", name.clone());
        set(spec, "serviceAccount", name);
    }
}

pub(super) fn container(container: &mut Value) {
    let policy = image::pull_policy(text(container, "image"));
    set_default_text(container, "imagePullPolicy", policy);
}

pub(super) fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|map| map.keys().all(|key| key == "name")) {
        set(volume, "emptyDir", json!({}));
    }
    let policy = image::pull_policy(text(volume, "image.reference"));
    if let Some(source) = at_mut(volume, "image") {
        set_default_text(source, "pullPolicy", policy);
    }
}

/// The single address and the list of addresses in a status say the same.
pub(super) fn mirror(pod: &mut Value, list_path: &str, single: &str) {
    let Some((parent, name)) = list_path.rsplit_once('.') else { return };
    let first = list(pod, list_path).first().map(|entry| text(entry, "ip").to_owned());
    let only = text(pod, &format!("{parent}.{single}")).to_owned();
    let Some(status) = at_mut(pod, parent) else { return };
    match first {
        // The older field wins where they differ, for clients that know only that one.
        first if !only.is_empty() && first.as_deref() != Some(&only) => {
            set(status, name, json!([{ "ip": only }]));
        }
        Some(first) if !first.is_empty() => set(status, single, first),
        _ => {}
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits: Vec<_> =
        entries(container, "resources.limits").map(|(k, v)| (k.clone(), v.clone())).collect();
    if limits.is_empty() {
        return;
    }
    if let Some(resources) = at_mut(container, "resources")
        && let Some(requests) = child(resources, "requests")
    {
        for (name, amount) in limits {
            set_default(requests, &name, amount);
        }
    }
}

fn put(resources: &mut Value, key: &str, amounts: &Amounts) {
    if amounts.is_empty() {
        return;
    }
    let text = |amount: &Quantity| Value::String(amount.to_string());
    let map: Map<String, Value> = amounts.iter().map(|(name, amount)| (name.clone(), text(amount))).collect();
    set(resources, key, map);
}
