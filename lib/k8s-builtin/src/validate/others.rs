//! The remaining groups: autoscaling, policy, networking, access control, storage, leases, endpoint slices, device
//! claims, webhooks and custom resource definitions.
//!
//! Left out, and so accepted: expressions in CEL, certificate bundles and requests, the schema of a custom resource
//! (`k8s_schema` reads it), devices of a resource slice, flow control, admission policies.

use std::collections::BTreeSet;

use k8s_quantity::Quantity;
use serde_json::Value;

use super::{check::Check, pod, text, workloads};
use crate::{
    Kind,
    json::{at, flag, has, int, list, text},
    normal,
};

/// A new or changed object of one of these kinds; kinds without rules of their own have none.
pub(super) fn object(check: &mut Check, kind: &Kind, object: &Value, is_new: bool) {
    match (kind.group, kind.kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(check, object, is_new),
        ("policy", "PodDisruptionBudget") => disruption_budget(check, object),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(check, object),
        ("networking.k8s.io", "Ingress") => ingress(check, object),
        ("networking.k8s.io", "IngressClass") => ingress_class(check, object),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => role(check, object, kind.namespaced),
        ("rbac.authorization.k8s.io", _) => role_binding(check, object, kind.namespaced),
        ("storage.k8s.io", "StorageClass") => storage_class(check, object),
        ("storage.k8s.io", "VolumeAttachment") => volume_attachment(check, object),
        ("coordination.k8s.io", "Lease") => lease(check, object),
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice(check, object),
        ("node.k8s.io", "RuntimeClass") => runtime_class(check, object),
        ("resource.k8s.io", "ResourceClaim") => {
            device_claim(check, at(object, "spec.devices"), "spec.devices")
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            device_claim(check, at(object, "spec.spec.devices"), "spec.spec.devices");
        }
        ("resource.k8s.io", "DeviceClass") => selectors(check, at(object, "spec"), "spec"),
        ("resource.k8s.io", "ResourceSlice") => resource_slice(check, object),
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            webhooks(check, object);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(check, object),
        ("apps", "ControllerRevision") => {
            check.not_negative(object, "revision", "");
            if at(object, "data").is_null() {
                check.required("data", "data is mandatory");
            }
        }
        _ => {}
    }
}

/// What may not change.
pub(super) fn update(check: &mut Check, kind: &Kind, new: &Value, old: &Value) {
    match (kind.group, kind.kind) {
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
            if at(new, "roleRef") != at(old, "roleRef") =>
        {
            check.invalid("roleRef", at(new, "roleRef").clone(), "cannot change roleRef");
        }
        ("storage.k8s.io", "StorageClass") => {
            for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                check.immutable(new, old, field);
            }
        }
        ("storage.k8s.io", "VolumeAttachment") => check.immutable(new, old, "spec"),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            check.immutable(new, old, "driverName");
            check.immutable(new, old, "parameters");
        }
        ("storage.k8s.io", "CSIDriver") => {
            check.immutable(new, old, "spec.attachRequired");
            check.immutable(new, old, "spec.volumeLifecycleModes");
        }
        ("discovery.k8s.io", "EndpointSlice") => check.immutable(new, old, "addressType"),
        ("node.k8s.io", "RuntimeClass") => check.immutable(new, old, "handler"),
        ("networking.k8s.io", "IngressClass") => check.immutable(new, old, "spec.controller"),
        ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate") => check.immutable(new, old, "spec"),
        ("resource.k8s.io", "ResourceSlice") => {
            for field in
                ["spec.driver", "spec.pool.name", "spec.nodeName", "spec.nodeSelector", "spec.allNodes"]
            {
                check.immutable(new, old, field);
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition_update(check, new, old),
        ("apps", "ControllerRevision") => check.immutable(new, old, "data"),
        _ => {}
    }
}

/// The size of something that can be scaled.
pub(super) fn scale(check: &mut Check, scale: &Value) {
    check.not_negative(at(scale, "spec"), "replicas", "spec");
}

fn autoscaler(check: &mut Check, hpa: &Value, is_new: bool) {
    let spec = at(hpa, "spec");
    let (min, max) = (int(spec, "minReplicas"), int(spec, "maxReplicas").unwrap_or(0));
    if let Some(min) = min.filter(|min| *min < 1) {
        check.invalid("spec.minReplicas", min, "must be greater than or equal to 1");
    }
    if max == 0 {
        check.required("spec.maxReplicas", "must be set and greater than 0");
    } else if max < 0 {
        check.invalid("spec.maxReplicas", max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        check.invalid("spec.maxReplicas", max, "must be greater than or equal to `minReplicas`");
    }
    cross_reference(check, at(spec, "scaleTargetRef"), "spec.scaleTargetRef");
    let target = text(spec, "scaleTargetRef.apiVersion");
    if is_new && !target.contains('/') && text(spec, "scaleTargetRef.kind") != "ReplicationController" {
        check.invalid("spec.scaleTargetRef.apiVersion", target, "apiVersion must specify API group");
    }
    for (idx, metric) in list(spec, "metrics").iter().enumerate() {
        metric_spec(check, metric, &format!("spec.metrics[{idx}]"));
    }
    let has_outside = list(spec, "metrics").iter().any(|m| matches!(text(m, "type"), "Object" | "External"));
    if min == Some(0) && !has_outside {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        check.forbidden("spec.metrics", detail);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = at(at(spec, "behavior"), direction);
        if rules.is_null() {
            continue;
        }
        let base = format!("spec.behavior.{direction}");
        if let Some(seconds) = int(rules, "stabilizationWindowSeconds") {
            let path = format!("{base}.stabilizationWindowSeconds");
            if seconds < 0 {
                check.invalid(&path, seconds, "must be greater than or equal to zero");
            } else if seconds > 3600 {
                check.invalid(&path, seconds, "must be less than or equal to 3600");
            }
        }
        check.one_of_or_empty(
            format_args!("{base}.selectPolicy"),
            text(rules, "selectPolicy"),
            &["Disabled", "Max", "Min"],
        );
        if list(rules, "policies").is_empty() {
            check.required(format_args!("{base}.policies"), "must specify at least one Policy");
        }
        for (idx, policy) in list(rules, "policies").iter().enumerate() {
            let at_policy = format!("{base}.policies[{idx}]");
            let kind = text(policy, "type");
            if !["Percent", "Pods"].contains(&kind) {
                check.unsupported(format_args!("{at_policy}.type"), kind, &["Percent", "Pods"]);
            }
            for (field, most) in [("value", i64::MAX), ("periodSeconds", 1800)] {
                let number = int(policy, field).unwrap_or(0);
                let path = format!("{at_policy}.{field}");
                if number <= 0 {
                    check.invalid(&path, number, "must be greater than zero");
                } else if number > most {
                    check.invalid(&path, number, format!("must be less than or equal to {most}"));
                }
            }
        }
    }
}

fn cross_reference(check: &mut Check, reference: &Value, path: &str) {
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            check.required(format_args!("{path}.{field}"), "");
        } else {
            check.format(format_args!("{path}.{field}"), value, text::path_segment(value));
        }
    }
}

fn metric_spec(check: &mut Check, metric: &Value, path: &str) {
    const KINDS: &[(&str, &str)] = &[
        ("ContainerResource", "containerResource"),
        ("External", "external"),
        ("Object", "object"),
        ("Pods", "pods"),
        ("Resource", "resource"),
    ];
    let kind = text(metric, "type");
    if kind.is_empty() {
        check.required(format_args!("{path}.type"), "must specify a metric source type");
        return;
    }
    let Some((_, expected)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        check.unsupported(format_args!("{path}.type"), kind, &names);
        return;
    };
    let source = at(metric, expected);
    let base = format!("{path}.{expected}");
    if source.is_null() {
        check.required(&base, "must populate information for the given metric source");
    } else {
        metric_source(check, source, expected, &base);
    }
    for (_, other) in KINDS.iter().filter(|(_, other)| other != expected && has(metric, other)) {
        check.forbidden(format_args!("{path}.{other}"), "must populate the given metric source only");
    }
}

fn metric_source(check: &mut Check, source: &Value, kind: &str, path: &str) {
    let target = at(source, "target");
    let (value, average) = (has(target, "value"), has(target, "averageValue"));
    let utilization = has(target, "averageUtilization");
    let base = format!("{path}.target");
    match kind {
        "resource" | "containerResource" => {
            if text(source, "name").is_empty() {
                check.required(format_args!("{path}.name"), "must specify a resource name");
            }
            if kind == "containerResource" && text(source, "container").is_empty() {
                check.required(format_args!("{path}.container"), "must specify a container");
            }
        }
        _ => {
            let name = text(source, "metric.name");
            if name.is_empty() {
                check.required(format_args!("{path}.metric.name"), "must specify a metric name");
            } else {
                check.format(format_args!("{path}.metric.name"), name, text::path_segment(name));
            }
        }
    }
    if kind == "object" {
        cross_reference(check, at(source, "describedObject"), &format!("{path}.describedObject"));
    }
    let target_type = text(target, "type");
    if target_type.is_empty() {
        check.required(format_args!("{base}.type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&target_type) {
        check.invalid(
            format_args!("{base}.type"),
            target_type,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for field in ["value", "averageValue"] {
        if normal::quantity(at(target, field)).is_some_and(|amount| amount <= Quantity::ZERO) {
            check.invalid(format_args!("{base}.{field}"), at(target, field).clone(), "must be positive");
        }
    }
    if let Some(percent) = int(target, "averageUtilization").filter(|percent| *percent < 1) {
        check.invalid(format_args!("{base}.averageUtilization"), percent, "must be greater than 0");
    }
    match kind {
        "resource" | "containerResource" => match (utilization, average) {
            (false, false) => check.required(
                format_args!("{base}.averageUtilization"),
                "must set either a target raw value or a target utilization",
            ),
            (true, true) => check.forbidden(
                format_args!("{base}.averageValue"),
                "may not set both a target raw value and a target utilization",
            ),
            _ => {}
        },
        "pods" if !average => {
            check
                .required(format_args!("{base}.averageValue"), "must specify a positive target averageValue");
        }
        "object" if !value && !average => {
            check.required(
                format_args!("{base}.averageValue"),
                "must set either a target value or averageValue",
            );
        }
        "external" => match (value, average) {
            (false, false) => check.required(
                format_args!("{base}.averageValue"),
                "must set either a target value for metric or a per-pod target",
            ),
            (true, true) => check.forbidden(
                format_args!("{base}.value"),
                "may not set both a target value for metric and a per-pod target",
            ),
            _ => {}
        },
        _ => {}
    }
}

fn disruption_budget(check: &mut Check, budget: &Value) {
    let spec = at(budget, "spec");
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        check.invalid("spec", spec.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let path = format!("spec.{field}");
        workloads::int_or_percent(check, at(spec, field), &path);
        workloads::at_most_all(check, at(spec, field), &path);
    }
    check.selector(at(spec, "selector"), "spec.selector");
    check.one_of_or_empty(
        "spec.unhealthyPodEvictionPolicy",
        text(spec, "unhealthyPodEvictionPolicy"),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

fn network_policy(check: &mut Check, policy: &Value) {
    let spec = at(policy, "spec");
    check.selector(at(spec, "podSelector"), "spec.podSelector");
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (idx, rule) in list(spec, direction).iter().enumerate() {
            let base = format!("spec.{direction}[{idx}]");
            for (port_idx, port) in list(rule, "ports").iter().enumerate() {
                let at_port = format!("{base}.ports[{port_idx}]");
                check.one_of_or_empty(
                    format_args!("{at_port}.protocol"),
                    text(port, "protocol"),
                    &["TCP", "UDP", "SCTP"],
                );
                if has(port, "port") {
                    pod::port_or_name(check, at(port, "port"), &format!("{at_port}.port"));
                }
                if let Some(end) = int(port, "endPort") {
                    match int(port, "port") {
                        Some(start) if end < start => check.invalid(
                            format_args!("{at_port}.endPort"),
                            start,
                            "must be greater than or equal to `port`",
                        ),
                        Some(_) => {}
                        None => {
                            let detail = "may not be specified when `port` is not specified";
                            check.invalid(format_args!("{at_port}.endPort"), end, detail);
                        }
                    }
                }
            }
            for (peer_idx, peer) in list(rule, peers).iter().enumerate() {
                network_peer(check, peer, &format!("{base}.{peers}[{peer_idx}]"));
            }
        }
    }
    let types = list(spec, "policyTypes");
    if types.len() > 2 {
        let value = at(spec, "policyTypes").clone();
        check.invalid("spec.policyTypes", value, "may not specify more than two policyTypes");
        return;
    }
    for (idx, kind) in types.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        if !["Ingress", "Egress"].contains(&kind) {
            check.unsupported(format_args!("spec.policyTypes[{idx}]"), kind, &["Ingress", "Egress"]);
        }
    }
}

fn network_peer(check: &mut Check, peer: &Value, path: &str) {
    let mut n_peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if has(peer, field) {
            n_peers += 1;
            check.selector(at(peer, field), &format!("{path}.{field}"));
        }
    }
    let block = at(peer, "ipBlock");
    if !block.is_null() {
        n_peers += 1;
        let cidr = text(block, "cidr");
        if cidr.is_empty() {
            check.required(format_args!("{path}.ipBlock.cidr"), "");
        } else if !is_cidr(cidr) {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            check.invalid(format_args!("{path}.ipBlock.cidr"), cidr, detail);
        }
    }
    if n_peers == 0 {
        check.required(path, "must specify a peer");
    } else if n_peers > 1 && !block.is_null() {
        check.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, length)| {
        let bits: Option<u32> = length.parse().ok();
        match address.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(_)) => bits.is_some_and(|bits| bits <= 32),
            Ok(std::net::IpAddr::V6(_)) => bits.is_some_and(|bits| bits <= 128),
            Err(_) => false,
        }
    })
}

fn ingress(check: &mut Check, ingress: &Value) {
    let spec = at(ingress, "spec");
    let rules = list(spec, "rules");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        check.invalid(
            "spec",
            at(spec, "rules").clone(),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if has(spec, "defaultBackend") {
        backend(check, at(spec, "defaultBackend"), "spec.defaultBackend");
    }
    for (idx, rule) in rules.iter().enumerate() {
        let base = format!("spec.rules[{idx}]");
        let host = text(rule, "host");
        if !host.is_empty() {
            if host.parse::<std::net::IpAddr>().is_ok() {
                check.invalid(format_args!("{base}.host"), host, "must be a DNS name, not an IP address");
            }
            let name = host.strip_prefix("*.").unwrap_or(host);
            check.format(format_args!("{base}.host"), host, text::dns_subdomain(name));
        }
        if !has(rule, "http") {
            continue;
        }
        let paths = list(rule, "http.paths");
        if paths.is_empty() {
            check.required(format_args!("{base}.http.paths"), "");
        }
        for (path_idx, path) in paths.iter().enumerate() {
            let at_path = format!("{base}.http.paths[{path_idx}]");
            let route = text(path, "path");
            match text(path, "pathType") {
                "" => {
                    check.required(format_args!("{at_path}.pathType"), "pathType must be specified");
                    continue;
                }
                "Exact" | "Prefix" => {
                    if !route.starts_with('/') {
                        check.invalid(format_args!("{at_path}.path"), route, "must be an absolute path");
                    }
                    for odd in ["//", "/./", "/../", "%2f", "%2F"] {
                        if route.contains(odd) {
                            let detail = format!("must not contain '{odd}'");
                            check.invalid(format_args!("{at_path}.path"), route, detail);
                        }
                    }
                }
                "ImplementationSpecific" => {
                    if !route.is_empty() && !route.starts_with('/') {
                        check.invalid(format_args!("{at_path}.path"), route, "must be an absolute path");
                    }
                }
                other => check.unsupported(
                    format_args!("{at_path}.pathType"),
                    other,
                    &["Exact", "ImplementationSpecific", "Prefix"],
                ),
            }
            backend(check, at(path, "backend"), &format!("{at_path}.backend"));
        }
    }
    for (idx, tls) in list(spec, "tls").iter().enumerate() {
        for (host_idx, host) in list(tls, "hosts").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            let name = host.strip_prefix("*.").unwrap_or(host);
            check.format(format_args!("spec.tls[{idx}].hosts[{host_idx}]"), host, text::dns_subdomain(name));
        }
    }
    let class = text(spec, "ingressClassName");
    if !class.is_empty() {
        check.format("spec.ingressClassName", class, text::dns_subdomain(class));
    }
}

fn backend(check: &mut Check, backend: &Value, path: &str) {
    match (has(backend, "resource"), has(backend, "service")) {
        (true, true) => check.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => check.invalid(path, "", "resource or service backend is required"),
        (true, false) => {}
        (false, true) => {
            let name = text(backend, "service.name");
            if name.is_empty() {
                check.required(format_args!("{path}.service.name"), "");
            } else {
                check.format(format_args!("{path}.service.name"), name, text::dns_label(name));
            }
            let (port_name, number) =
                (text(backend, "service.port.name"), int(backend, "service.port.number"));
            match (port_name.is_empty(), number.filter(|number| *number != 0)) {
                (false, Some(_)) => check.invalid(path, "", "cannot set both port name & port number"),
                (false, None) => {
                    check.format(
                        format_args!("{path}.service.port.name"),
                        port_name,
                        text::port_name(port_name),
                    );
                }
                (true, Some(number)) => {
                    for message in text::port_number(number) {
                        check.invalid(format_args!("{path}.service.port.number"), number, message);
                    }
                }
                (true, None) => check.required(path, "port name or number is required"),
            }
        }
    }
}

fn ingress_class(check: &mut Check, class: &Value) {
    let controller = text(class, "spec.controller");
    if controller.len() > 250 {
        check.too_long("spec.controller", 250);
    }
    match controller.split_once('/') {
        _ if controller.is_empty() => check.required("spec.controller", ""),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            check.format("spec.controller", host, text::dns_subdomain(host));
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            check.invalid("spec.controller", controller, detail);
        }
    }
}

fn role(check: &mut Check, role: &Value, is_namespaced: bool) {
    for (idx, rule) in list(role, "rules").iter().enumerate() {
        let base = format!("rules[{idx}]");
        if list(rule, "verbs").is_empty() {
            check.required(format_args!("{base}.verbs"), "verbs must contain at least one value");
        }
        let urls = at(rule, "nonResourceURLs").clone();
        if !list(rule, "nonResourceURLs").is_empty() {
            let path = format!("{base}.nonResourceURLs");
            if is_namespaced {
                check.invalid(&path, urls.clone(), "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !list(rule, field).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                check.invalid(&path, urls, detail);
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            check.required(
                format_args!("{base}.apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if list(rule, "resources").is_empty() {
            check.required(
                format_args!("{base}.resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
    let aggregation = at(role, "aggregationRule");
    if !aggregation.is_null() && list(aggregation, "clusterRoleSelectors").is_empty() {
        check.required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        );
    }
}

fn role_binding(check: &mut Check, binding: &Value, is_namespaced: bool) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let group = text(binding, "roleRef.apiGroup");
    if group != GROUP {
        check.unsupported("roleRef.apiGroup", group, &[GROUP]);
    }
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = text(binding, "roleRef.kind");
    if !kinds.contains(&kind) {
        check.unsupported("roleRef.kind", kind, kinds);
    }
    let name = text(binding, "roleRef.name");
    if name.is_empty() {
        check.required("roleRef.name", "");
    } else {
        check.format("roleRef.name", name, text::path_segment(name));
    }
    for (idx, subject) in list(binding, "subjects").iter().enumerate() {
        let base = format!("subjects[{idx}]");
        let name = text(subject, "name");
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        }
        let group = text(subject, "apiGroup");
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    check.format(format_args!("{base}.name"), name, text::dns_subdomain(name));
                }
                if !group.is_empty() {
                    check.unsupported(format_args!("{base}.apiGroup"), group, &[""]);
                }
                if !is_namespaced && text(subject, "namespace").is_empty() {
                    check.required(format_args!("{base}.namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    check.unsupported(format_args!("{base}.apiGroup"), group, &[GROUP]);
                }
            }
            other => {
                check.unsupported(format_args!("{base}.kind"), other, &["ServiceAccount", "User", "Group"]);
            }
        }
    }
}

fn storage_class(check: &mut Check, class: &Value) {
    let provisioner = text(class, "provisioner");
    if provisioner.is_empty() {
        check.required("provisioner", "");
    } else {
        check.format("provisioner", provisioner, text::label_key(&provisioner.to_lowercase()));
    }
    check.one_of_or_empty("reclaimPolicy", text(class, "reclaimPolicy"), &["Delete", "Retain"]);
    if text(class, "volumeBindingMode").is_empty() {
        check.required("volumeBindingMode", "");
    }
    check.one_of_or_empty(
        "volumeBindingMode",
        text(class, "volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
}

fn volume_attachment(check: &mut Check, attachment: &Value) {
    if text(attachment, "spec.attacher").is_empty() {
        check.required("spec.attacher", "");
    }
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let source = at(attachment, "spec.source");
    match (has(source, "inlineVolumeSpec"), has(source, "persistentVolumeName")) {
        (false, false) => check.required("spec.source", detail),
        (true, true) => check.forbidden("spec.source", detail),
        _ => {}
    }
    let node = text(attachment, "spec.nodeName");
    check.format("spec.nodeName", node, text::dns_subdomain(node));
}

fn lease(check: &mut Check, lease: &Value) {
    let spec = at(lease, "spec");
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        check.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    if let Some(transitions) = int(spec, "leaseTransitions").filter(|transitions| *transitions < 0) {
        check.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0");
    }
    if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
        check.forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined");
    }
}

fn endpoint_slice(check: &mut Check, slice: &Value) {
    check.one_of("addressType", text(slice, "addressType"), &["FQDN", "IPv4", "IPv6"]);
    let endpoints = list(slice, "endpoints");
    if endpoints.len() > 1000 {
        check.too_many("endpoints", endpoints.len(), 1000);
        return;
    }
    for (idx, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{idx}].addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            check.required(&path, "must contain at least 1 address");
        } else if addresses.len() > 100 {
            check.too_many(&path, addresses.len(), 100);
        }
        for (address_idx, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let at_address = format!("{path}[{address_idx}]");
            match (text(slice, "addressType"), address.parse::<std::net::IpAddr>()) {
                ("IPv4", Ok(ip)) if !ip.is_ipv4() => {
                    check.invalid(&at_address, address, "must be an IPv4 address")
                }
                ("IPv6", Ok(ip)) if !ip.is_ipv6() => {
                    check.invalid(&at_address, address, "must be an IPv6 address")
                }
                ("IPv4" | "IPv6", Err(_)) => {
                    let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                    check.invalid(&at_address, address, detail);
                }
                _ => {}
            }
        }
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, port) in list(slice, "ports").iter().enumerate() {
        let name = text(port, "name");
        if names.contains(&name) {
            check.duplicate(format_args!("ports[{idx}].name"), name);
        }
        names.insert(name);
        check.one_of(format_args!("ports[{idx}].protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn runtime_class(check: &mut Check, class: &Value) {
    let handler = text(class, "handler");
    if handler.is_empty() {
        check.required("handler", "");
    } else {
        check.format("handler", handler, text::dns_label(handler));
    }
    check.labels(at(class, "scheduling.nodeSelector"), "scheduling.nodeSelector");
}

/// What a claim asks for: requests with unique names, each of exactly one form.
fn device_claim(check: &mut Check, devices: &Value, path: &str) {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let requests = list(devices, "requests");
    if requests.len() > 32 {
        check.too_many(format_args!("{path}.requests"), requests.len(), 32);
    }
    for (idx, request) in requests.iter().enumerate() {
        let base = format!("{path}.requests[{idx}]");
        let name = text(request, "name");
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else {
            check.format(format_args!("{base}.name"), name, text::dns_label(name));
        }
        if names.contains(name) {
            check.duplicate(format_args!("{base}.name"), name);
        }
        names.insert(name.to_owned());
        let alternatives = list(request, "firstAvailable");
        match (has(request, "exactly"), !alternatives.is_empty()) {
            (false, false) => {
                check.required(&base, "exactly one of `exactly` or `firstAvailable` is required");
            }
            (true, true) => check.invalid(
                &base,
                Value::Null,
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ),
            (true, false) => device_request(check, at(request, "exactly"), &format!("{base}.exactly")),
            (false, true) => {
                if alternatives.len() > 8 {
                    check.too_many(format_args!("{base}.firstAvailable"), alternatives.len(), 8);
                }
                for (sub_idx, alternative) in alternatives.iter().enumerate() {
                    let at_sub = format!("{base}.firstAvailable[{sub_idx}]");
                    let sub = text(alternative, "name");
                    check.format(format_args!("{at_sub}.name"), sub, text::dns_label(sub));
                    names.insert(format!("{name}/{sub}"));
                    device_request(check, alternative, &at_sub);
                }
            }
        }
    }
    let unknown = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    for part in ["constraints", "config"] {
        for (idx, entry) in list(devices, part).iter().enumerate() {
            for (name_idx, name) in list(entry, "requests").iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                if !names.contains(name) {
                    check.invalid(format_args!("{path}.{part}[{idx}].requests[{name_idx}]"), name, unknown);
                }
            }
            if part == "constraints" && !has(entry, "matchAttribute") && !has(entry, "distinctAttribute") {
                let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple \
                              fields are set";
                check.required(format_args!("{path}.{part}[{idx}]"), detail);
            }
            if part == "config" && !has(entry, "opaque") {
                check.required(format_args!("{path}.{part}[{idx}].opaque"), "");
            }
        }
    }
}

/// The status of a device claim: reserved only when allocated, and allocated once.
pub(super) fn claim_status(check: &mut Check, new: &Value, old: &Value) {
    let reserved = list(new, "status.reservedFor");
    if reserved.len() > 256 {
        check.too_many("status.reservedFor", reserved.len(), 256);
    }
    for (idx, consumer) in reserved.iter().enumerate() {
        for field in ["resource", "name", "uid"] {
            if text(consumer, field).is_empty() {
                check.required(format_args!("status.reservedFor[{idx}].{field}"), "");
            }
        }
    }
    let allocation = at(new, "status.allocation");
    if !reserved.is_empty() && allocation.is_null() {
        check.forbidden("status.reservedFor", "may not be specified when `allocated` is not set");
    }
    if has(old, "status.allocation") && !allocation.is_null() {
        check.immutable(new, old, "status.allocation");
    }
}

fn device_request(check: &mut Check, request: &Value, path: &str) {
    let class = text(request, "deviceClassName");
    if class.is_empty() {
        check.required(format_args!("{path}.deviceClassName"), "");
    } else {
        check.format(format_args!("{path}.deviceClassName"), class, text::dns_subdomain(class));
    }
    selectors(check, request, path);
    let count = int(request, "count").unwrap_or(0);
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            check.invalid(format_args!("{path}.count"), count, detail);
        }
        "ExactCount" if count <= 0 => {
            check.invalid(format_args!("{path}.count"), count, "must be greater than zero")
        }
        "All" | "ExactCount" => {}
        other => check.unsupported(format_args!("{path}.allocationMode"), other, &["All", "ExactCount"]),
    }
}

fn selectors(check: &mut Check, holder: &Value, path: &str) {
    let selectors = list(holder, "selectors");
    if selectors.len() > 32 {
        check.too_many(format_args!("{path}.selectors"), selectors.len(), 32);
    }
    for (idx, selector) in selectors.iter().enumerate() {
        let base = format!("{path}.selectors[{idx}].cel");
        if !has(selector, "cel") {
            check.required(&base, "");
        } else if text(selector, "cel.expression").is_empty() {
            check.required(format_args!("{base}.expression"), "");
        } else if text(selector, "cel.expression").len() > 10 << 10 {
            check.too_long(format_args!("{base}.expression"), 10 << 10);
        }
    }
}

fn resource_slice(check: &mut Check, slice: &Value) {
    let spec = at(slice, "spec");
    let driver = text(spec, "driver");
    if driver.is_empty() {
        check.required("spec.driver", "");
    } else if driver.len() > 63 {
        check.too_long("spec.driver", 63);
    } else {
        check.format("spec.driver", driver, text::dns_subdomain(&driver.to_lowercase()));
    }
    if text(spec, "pool.name").is_empty() {
        check.required("spec.pool.name", "");
    }
    if int(spec, "pool.resourceSliceCount").unwrap_or(0) <= 0 {
        let count = int(spec, "pool.resourceSliceCount").unwrap_or(0);
        check.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero");
    }
    let scopes = [
        !text(spec, "nodeName").is_empty(),
        has(spec, "nodeSelector"),
        flag(spec, "allNodes"),
        flag(spec, "perDeviceNodeSelection"),
    ];
    let names = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`";
    match scopes.iter().filter(|set| **set).count() {
        0 if list(spec, "sharedCounters").is_empty() => {
            check.required("spec", format!("exactly one of {names} is required"));
        }
        0 | 1 => {}
        _ => check.invalid(
            "spec",
            Value::Null,
            format!("exactly one of {names} is required, but multiple fields are set"),
        ),
    }
    let devices = list(spec, "devices");
    if devices.len() > 128 {
        check.too_many("spec.devices", devices.len(), 128);
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (idx, device) in devices.iter().enumerate() {
        let name = text(device, "name");
        let path = format!("spec.devices[{idx}].name");
        check.format(&path, name, text::dns_label(name));
        if seen.contains(&name) {
            check.duplicate(&path, name);
        }
        seen.insert(name);
    }
}

fn webhooks(check: &mut Check, configuration: &Value) {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, hook) in list(configuration, "webhooks").iter().enumerate() {
        let base = format!("webhooks[{idx}]");
        let name = text(hook, "name");
        let messages = text::dns_subdomain(name);
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else if !messages.is_empty() {
            check.invalid(format_args!("{base}.name"), name, messages.join(","));
        } else if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            check.invalid(format_args!("{base}.name"), name, detail);
        }
        if names.contains(&name) {
            check.duplicate(format_args!("{base}.name"), name);
        }
        names.insert(name);
        for (rule_idx, rule) in list(hook, "rules").iter().enumerate() {
            let at_rule = format!("{base}.rules[{rule_idx}]");
            for field in ["operations", "apiGroups", "apiVersions", "resources"] {
                if list(rule, field).is_empty() {
                    check.required(format_args!("{at_rule}.{field}"), "");
                }
            }
            check.one_of_or_empty(
                format_args!("{at_rule}.scope"),
                text(rule, "scope"),
                &["*", "Cluster", "Namespaced"],
            );
        }
        check.one_of_or_empty(
            format_args!("{base}.failurePolicy"),
            text(hook, "failurePolicy"),
            &["Fail", "Ignore"],
        );
        check.one_of_or_empty(
            format_args!("{base}.matchPolicy"),
            text(hook, "matchPolicy"),
            &["Equivalent", "Exact"],
        );
        let effects = text(hook, "sideEffects");
        if effects.is_empty() {
            check.required(format_args!("{base}.sideEffects"), "must specify one of None, NoneOnDryRun");
        } else {
            check.one_of_or_empty(format_args!("{base}.sideEffects"), effects, &["None", "NoneOnDryRun"]);
        }
        if let Some(seconds) = int(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            check.invalid(format_args!("{base}.timeoutSeconds"), seconds, detail);
        }
        for field in ["namespaceSelector", "objectSelector"] {
            check.selector(at(hook, field), &format!("{base}.{field}"));
        }
        let versions = list(hook, "admissionReviewVersions");
        let path = format!("{base}.admissionReviewVersions");
        if versions.is_empty() {
            check.required(&path, "must specify one of v1, v1beta1");
        } else if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
            let value = at(hook, "admissionReviewVersions").clone();
            check.invalid(&path, value, "must include at least one of v1, v1beta1");
        }
        let client = at(hook, "clientConfig");
        match (has(client, "url"), has(client, "service")) {
            (true, true) | (false, false) => check
                .required(format_args!("{base}.clientConfig"), "exactly one of url or service is required"),
            (true, false) => {
                if !text(client, "url").starts_with("https://") {
                    check.invalid(
                        format_args!("{base}.clientConfig.url"),
                        text(client, "url").split("://").next().unwrap_or_default(),
                        "'https' is the only allowed URL scheme; desired format: https://host[/path]",
                    );
                }
            }
            (false, true) => {
                for field in ["name", "namespace"] {
                    if text(at(client, "service"), field).is_empty() {
                        check.required(
                            format_args!("{base}.clientConfig.service.{field}"),
                            format!("service {field} is required"),
                        );
                    }
                }
            }
        }
    }
}

fn definition(check: &mut Check, crd: &Value) {
    let (name, group) = (text(crd, "metadata.name"), text(crd, "spec.group"));
    let plural = text(crd, "spec.names.plural");
    let expected = format!("{plural}.{group}");
    if name != expected {
        check.invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group");
    }
    if group.is_empty() {
        check.required("spec.group", "");
    } else if !text::dns_subdomain(group).is_empty() {
        check.invalid("spec.group", group, text::dns_subdomain(group).join(","));
    } else if !group.contains('.') {
        check.invalid("spec.group", group, "should be a domain with at least one dot");
    }
    check.one_of("spec.scope", text(crd, "spec.scope"), &["Cluster", "Namespaced"]);
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(at(crd, "spec.names"), field);
        let path = format!("spec.names.{field}");
        if value.is_empty() {
            check.required(&path, "");
        } else {
            let messages = text::dns_1035_label(&value.to_lowercase());
            if !messages.is_empty() {
                check.invalid(&path, value, messages.join(","));
            }
        }
    }
    let kind = text(crd, "spec.names.kind");
    if !kind.is_empty() && kind == text(crd, "spec.names.listKind") {
        check.invalid("spec.names.listKind", kind, "kind and listKind may not be the same");
    }
    let versions = list(crd, "spec.versions");
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let (mut n_stored, mut has_twins) = (0, false);
    for (idx, version) in versions.iter().enumerate() {
        let base = format!("spec.versions[{idx}]");
        let name = text(version, "name");
        let messages = text::dns_1035_label(name);
        if !messages.is_empty() {
            check.invalid(format_args!("{base}.name"), name, messages.join(","));
        }
        if seen.contains(&name) && !has_twins {
            has_twins = true;
            check.invalid(
                "spec.versions",
                at(crd, "spec.versions").clone(),
                "must contain unique version names",
            );
        }
        seen.insert(name);
        n_stored += usize::from(flag(version, "storage"));
        if !has(version, "schema.openAPIV3Schema") {
            check.required(format_args!("{base}.schema.openAPIV3Schema"), "");
        }
    }
    if n_stored != 1 {
        let value = at(crd, "spec.versions").clone();
        check.invalid("spec.versions", value, "must have exactly one version marked as storage version");
    }
    check.one_of("spec.conversion.strategy", text(crd, "spec.conversion.strategy"), &["None", "Webhook"]);
    if list(crd, "status.storedVersions").is_empty() {
        let detail = "must have at least one stored version";
        check.invalid("status.storedVersions", at(crd, "status.storedVersions").clone(), detail);
    }
    for (idx, stored) in list(crd, "status.storedVersions").iter().enumerate() {
        let name = stored.as_str().unwrap_or_default();
        if !seen.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                status.storedVersions"
            );
            check.invalid(format_args!("status.storedVersions[{idx}]"), name, detail);
        }
    }
}

fn definition_update(check: &mut Check, new: &Value, old: &Value) {
    let is_established = list(old, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Established" && text(condition, "status") == "True");
    if is_established {
        for field in ["scope", "names.kind"] {
            check.immutable(new, old, &format!("spec.{field}"));
        }
    }
    for field in ["group", "names.plural"] {
        check.immutable(new, old, &format!("spec.{field}"));
    }
}
