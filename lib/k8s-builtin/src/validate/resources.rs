//! Amounts: which resources may be named where, and how requests and limits relate.

use std::collections::BTreeSet;
use std::fmt::Display;

use k8s_quantity::Quantity;
use k8s_schema::FieldError;
use serde_json::Value;

use super::{check::Check, text};
use crate::{
    defaults::resources::{amounts, of_containers},
    json::{at, entries, has, list, text},
    normal,
};

const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const QUOTA_AMOUNTS: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Where a resource is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Container,
    Pod,
    Quota,
    Any,
}

/// The name of a resource.
pub(super) fn name(check: &mut Check, name: &str, place: Place, path: impl Display + Copy) {
    let messages = text::label_key(name);
    let is_malformed = !messages.is_empty();
    check.format(path, name, messages);
    let is_plain = !name.contains('/');
    let mut is_refused = is_malformed;
    if !is_malformed && is_plain && !is_standard(name) {
        check.invalid(path, name, "must be a standard resource type or fully qualified");
        is_refused = true;
    }
    let is_pod_level = matches!(name, "cpu" | "memory") || is_huge_pages(name);
    match place {
        Place::Container if is_plain && !is_pod_level && name != "ephemeral-storage" => {
            check.invalid(path, name, "must be a standard resource for containers");
        }
        Place::Container if !is_native(name) && !is_extended(name) => {
            check.invalid(path, name, "doesn't follow extended resource name standard");
        }
        Place::Pod if !is_refused && !is_pod_level => {
            check.unsupported(path, name, &["cpu", "hugepages-", "memory"]);
        }
        Place::Quota if is_plain && !is_quota(name) => {
            check.invalid(path, name, "must be a standard resource for quota");
        }
        _ => {}
    }
}

/// The amount of a resource: not negative, and whole where only whole ones exist.
pub(super) fn amount(check: &mut Check, name: &str, value: &Value, path: impl Display + Copy) {
    let Some(quantity) = normal::quantity(value) else { return };
    if quantity < Quantity::ZERO {
        check.invalid(path, quantity.to_string(), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity != quantity.round_up(0) {
        check.invalid(path, value.clone(), "must be an integer");
    }
}

/// Requests and limits of a container or a pod.
pub(super) fn requirements(
    check: &mut Check,
    resources: &Value,
    place: Place,
    claim_names: &BTreeSet<&str>,
    path: impl Display + Copy,
) {
    let (mut has_huge_pages, mut has_compute) = (false, false);
    for part in ["limits", "requests"] {
        for (resource, value) in entries(resources, part) {
            let at_key = format_args!("{path}.{part}[{resource}]");
            name(check, resource, place, at_key);
            amount(check, resource, value, at_key);
            let quantity = normal::quantity(value).unwrap_or_default();
            if part == "requests" {
                request_against_limit(check, resources, resource, quantity, path);
            }
            has_compute |= resource == "cpu" || resource == "memory";
            if is_huge_pages(resource) {
                has_huge_pages = true;
                if !is_multiple_of_page(resource, quantity) {
                    let detail = format!("{quantity} is not positive integer multiple of {resource}");
                    check.invalid(at_key, quantity.to_string(), detail);
                }
            }
        }
    }
    if has_huge_pages && !has_compute {
        check.forbidden(path, "HugePages require cpu or memory");
    }
    claims(check, resources, claim_names, path);
}

/// Resources of the pod as a whole against those of its containers.
pub(super) fn pod_level(check: &mut Check, pod: &Value, spec: &Value, path: &str) {
    let resources = at(spec, "resources");
    if resources.is_null() {
        return;
    }
    let base = format!("{path}.resources");
    if text(spec, "os.name") == "windows" {
        check.forbidden(&base, "may not be set for a windows pod");
        return;
    }
    if has(resources, "claims") {
        check.forbidden(format_args!("{base}.claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(check, resources, Place::Pod, &BTreeSet::new(), &base);
    let (requests, limits) = (amounts(resources, "requests"), amounts(resources, "limits"));
    for (resource, needed) in of_containers(pod, "requests") {
        if let Some(given) = requests.get(&resource).filter(|given| needed > **given) {
            let detail = format!("must be greater than or equal to aggregate container requests of {needed}");
            check.invalid(format_args!("{base}.requests[{resource}]"), given.to_string(), detail);
        }
    }
    for (idx, container) in list(spec, "containers").iter().enumerate() {
        for (resource, limit) in amounts(container, "resources.limits") {
            if let Some(given) = limits.get(&resource).filter(|given| limit > **given) {
                check.invalid(
                    format_args!("{base}.containers[{idx}][{resource}].limits"),
                    limit.to_string(),
                    format!("must be less than or equal to pod limits of {given}"),
                );
            }
        }
    }
}

/// Whether more may be limited than exists.
pub(super) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether the name is one of those a quota knows.
pub(super) fn is_quota(name: &str) -> bool {
    QUOTA_AMOUNTS.contains(&name) || COUNTED.contains(&name) || is_quota_huge_pages(name)
}

fn request_against_limit(
    check: &mut Check,
    resources: &Value,
    resource: &str,
    request: Quantity,
    path: impl Display + Copy,
) {
    let limit = at(resources, "limits").get(resource).and_then(normal::quantity);
    match limit {
        Some(limit) if request != limit && !is_overcommit_allowed(resource) => check.invalid(
            format_args!("{path}.requests"),
            request.to_string(),
            format!("must be equal to {resource} limit of {limit}"),
        ),
        Some(limit) if request > limit => check.invalid(
            format_args!("{path}.requests"),
            request.to_string(),
            format!("must be less than or equal to {resource} limit of {limit}"),
        ),
        None if !is_overcommit_allowed(resource) => {
            check.required(
                format_args!("{path}.limits"),
                "Limit must be set for non overcommitable resources",
            );
        }
        _ => {}
    }
}

fn claims(check: &mut Check, resources: &Value, claim_names: &BTreeSet<&str>, path: impl Display + Copy) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut in_parts: BTreeSet<&str> = BTreeSet::new();
    for (idx, claim) in list(resources, "claims").iter().enumerate() {
        let base = format!("{path}.claims[{idx}]");
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            check.required(&base, "");
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if !request.is_empty() {
            check.format(format_args!("{base}.request"), request, text::dns_label(request));
        }
        if seen.contains(name) || request.is_empty() && in_parts.contains(name) {
            check.duplicate(&base, name);
        } else if seen.contains(&key) {
            check.duplicate(&base, key.as_str());
        }
        if !request.is_empty() {
            in_parts.insert(name);
        }
        seen.insert(key);
        if !claim_names.contains(name) {
            let known: Vec<&str> = claim_names.iter().copied().take(MOST_NAMES).collect();
            let list = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{list}");
            check.push(FieldError { detail, ..FieldError::not_found(base, name) });
        }
    }
}

/// A message lists no more names than this.
const MOST_NAMES: usize = 32;

fn is_standard(name: &str) -> bool {
    QUOTA_AMOUNTS.contains(&name) || COUNTED.contains(&name) || name == "storage" || is_quota_huge_pages(name)
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && text::label_key(&["requests.", name].concat()).is_empty()
}

fn is_multiple_of_page(name: &str, amount: Quantity) -> bool {
    let page: Option<Quantity> = name.strip_prefix("hugepages-").and_then(|size| size.parse().ok());
    match page.map(Quantity::value) {
        Some(page) if page > 0 => amount.value() % page == 0,
        _ => false,
    }
}
