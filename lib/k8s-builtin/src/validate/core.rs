//! The core group besides pods: services, nodes, namespaces, configuration, quotas, limits, volumes and claims.

use std::collections::BTreeSet;

use k8s_quantity::Quantity;
use serde_json::{Value, json};

use super::{
    check::Check,
    pod,
    resources::{self, Place},
    scheduling, text,
};
use crate::{
    defaults::resources::amounts,
    json::{at, entries, flag, has, int, list, text},
    normal,
};

/// Data of one config map or secret may have this many bytes.
const DATA_LIMIT: usize = 1 << 20;

const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Keys and size of a config map.
pub(super) fn config_map(check: &mut Check, map: &Value) {
    let mut size = 0_usize;
    for field in ["data", "binaryData"] {
        for (key, value) in entries(map, field) {
            check.format(format_args!("{field}[{key}]"), key, text::config_key(key));
            if field == "data" && at(map, "binaryData").get(key).is_some() {
                check.invalid(
                    format_args!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                );
            }
            size = size.saturating_add(value.as_str().map_or(0, str::len));
        }
    }
    if size > DATA_LIMIT {
        check.too_long("", 1 << 20);
    }
}

/// Keys, size and the parts that the type asks for.
pub(super) fn secret(check: &mut Check, secret: &Value) {
    let mut size = 0_usize;
    for (key, value) in entries(secret, "data") {
        check.format(format_args!("data[{key}]"), key, text::config_key(key));
        size = size.saturating_add(value.as_str().map_or(0, |text| text.len() / 4 * 3));
    }
    if size > DATA_LIMIT {
        check.too_long("data", 1 << 20);
    }
    let has_key = |key: &str| at(secret, "data").get(key).is_some();
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has_key(key)) {
            check.required(format_args!("data[{key}]"), "");
        }
    };
    match text(secret, "type") {
        "kubernetes.io/dockercfg" => need(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => need(&[".dockerconfigjson"]),
        "kubernetes.io/basic-auth" if !has_key("username") && !has_key("password") => {
            need(&["username", "password"])
        }
        "kubernetes.io/ssh-auth" => need(&["ssh-privatekey"]),
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if at(secret, "metadata.annotations")
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                check.required(format_args!("metadata.annotations[{name}]"), "");
            }
        }
        _ => {}
    }
}

/// What may not change in a config map or a secret.
pub(super) fn data_update(check: &mut Check, new: &Value, old: &Value) {
    if !flag(old, "immutable") {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !flag(new, "immutable") {
        check.forbidden("immutable", detail);
    }
    for field in ["data", "binaryData"] {
        if at(new, field) != at(old, field) {
            check.forbidden(field, detail);
        }
    }
}

/// A service; `old` on an update.
pub(super) fn service(check: &mut Check, service: &Value, old: Option<&Value>) {
    let spec = at(service, "spec");
    let kind = text(spec, "type");
    let ports = list(spec, "ports");
    let is_headless = text(spec, "clusterIP") == "None";
    if let Some(old) = old {
        service_update(check, service, old);
    }
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        check.required("spec.ports", "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            check.invalid("spec.clusterIPs[0]", "None", detail);
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if has(spec, field) {
                    check.forbidden(format_args!("spec.{field}"), "may not be set for ExternalName services");
                }
            }
            let name = text(spec, "externalName").trim_end_matches('.');
            if name.is_empty() {
                check.required("spec.externalName", "");
            } else {
                check.format("spec.externalName", name, text::dns_subdomain(name));
            }
        }
        _ => {}
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, port) in ports.iter().enumerate() {
        service_port(check, port, ports.len() > 1, &mut names, &format!("spec.ports[{idx}]"));
    }
    check.labels(at(spec, "selector"), "spec.selector");
    check.one_of("spec.sessionAffinity", text(spec, "sessionAffinity"), &["ClientIP", "None"]);
    if let Some(seconds) = int(spec, "sessionAffinityConfig.clientIP.timeoutSeconds")
        && !(1..=86400).contains(&seconds)
    {
        let detail = "must be greater than 0 and less than 86400";
        check.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, detail);
    }
    service_addresses(check, spec, kind);
    for (idx, ip) in list(spec, "externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if ip.parse::<std::net::IpAddr>().is_err() {
            check.invalid(format_args!("spec.externalIPs[{idx}]"), ip, IP);
        }
    }
    check.one_of("spec.type", kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    service_port_numbers(check, ports, kind);
    if has(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        check.forbidden("spec.allocateLoadBalancerNodePorts", detail);
    }
    let policy = text(spec, "externalTrafficPolicy");
    let is_reachable = matches!(kind, "LoadBalancer" | "NodePort") || !list(spec, "externalIPs").is_empty();
    if !is_reachable && !policy.is_empty() {
        check.invalid(
            "spec.externalTrafficPolicy",
            policy,
            "may only be set for externally-accessible services",
        );
    } else if is_reachable {
        check.one_of("spec.externalTrafficPolicy", policy, &["Cluster", "Local"]);
    }
    check.one_of_or_empty(
        "spec.internalTrafficPolicy",
        text(spec, "internalTrafficPolicy"),
        &["Cluster", "Local"],
    );
    check.one_of_or_empty(
        "spec.trafficDistribution",
        text(spec, "trafficDistribution"),
        &["PreferClose", "PreferSameNode", "PreferSameZone"],
    );
}

fn service_port<'a>(
    check: &mut Check,
    port: &'a Value,
    needs_name: bool,
    names: &mut BTreeSet<&'a str>,
    path: &str,
) {
    let name = text(port, "name");
    if needs_name && name.is_empty() {
        check.required(format_args!("{path}.name"), "");
    } else if !name.is_empty() {
        check.format(format_args!("{path}.name"), name, text::dns_label(name));
        if names.contains(&name) {
            check.duplicate(format_args!("{path}.name"), name);
        } else {
            names.insert(name);
        }
    }
    let number = int(port, "port").unwrap_or(0);
    for message in text::port_number(number) {
        check.invalid(format_args!("{path}.port"), number, message);
    }
    check.one_of(format_args!("{path}.protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    pod::port_or_name(check, at(port, "targetPort"), &format!("{path}.targetPort"));
    let protocol = text(port, "appProtocol");
    if !protocol.is_empty() {
        check.format(format_args!("{path}.appProtocol"), protocol, text::label_key(protocol));
    }
}

fn service_port_numbers(check: &mut Check, ports: &[Value], kind: &str) {
    let mut node_ports: BTreeSet<(&str, i64)> = BTreeSet::new();
    let mut seen: BTreeSet<(&str, i64)> = BTreeSet::new();
    for (idx, port) in ports.iter().enumerate() {
        let protocol = text(port, "protocol");
        let number = int(port, "nodePort").unwrap_or(0);
        if number != 0 {
            let path = format!("spec.ports[{idx}].nodePort");
            if kind == "ClusterIP" {
                check.forbidden(&path, "may not be used when `type` is 'ClusterIP'");
            }
            if node_ports.contains(&(protocol, number)) {
                check.duplicate(&path, number);
            }
            node_ports.insert((protocol, number));
        }
        let key = (protocol, int(port, "port").unwrap_or(0));
        if seen.contains(&key) {
            let shown = json!({"Name": "", "Protocol": key.0, "AppProtocol": null, "Port": key.1, "TargetPort": 0, "NodePort": 0});
            check.duplicate(format_args!("spec.ports[{idx}]"), shown);
        }
        seen.insert(key);
    }
}

fn service_addresses(check: &mut Check, spec: &Value, kind: &str) {
    if kind == "ExternalName" {
        return;
    }
    let address = text(spec, "clusterIP");
    let addresses = list(spec, "clusterIPs");
    let shown = at(spec, "clusterIPs").clone();
    match (address.is_empty(), addresses.first().and_then(Value::as_str)) {
        (false, None) => check.required("spec.clusterIPs", ""),
        (false, Some(first)) if first != address => {
            check.invalid("spec.clusterIPs", shown.clone(), "first value must match `clusterIP`");
        }
        (true, Some(_)) => {
            check.invalid(
                "spec.clusterIPs",
                shown.clone(),
                "must be empty when `clusterIP` is not specified",
            );
        }
        _ => {}
    }
    let mut families: BTreeSet<&str> = BTreeSet::new();
    for (idx, family) in list(spec, "ipFamilies").iter().enumerate() {
        let path = format!("spec.ipFamilies[{idx}]");
        let family = family.as_str().unwrap_or_default();
        check.one_of(&path, family, &["IPv4", "IPv6"]);
        if !families.insert(family) {
            check.duplicate(&path, family);
        }
    }
    check.one_of_or_empty(
        "spec.ipFamilyPolicy",
        text(spec, "ipFamilyPolicy"),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    for (idx, ip) in addresses.iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if idx == 0 && ip == "None" {
            if addresses.len() > 1 {
                check.invalid("spec.clusterIPs", shown.clone(), "'None' must be the first and only value");
            }
        } else if ip.parse::<std::net::IpAddr>().is_err() {
            check.invalid(format_args!("spec.clusterIPs[{idx}]"), ip, IP);
        }
    }
    if addresses.len() > 2 {
        check.invalid("spec.clusterIPs", shown, "may only hold up to 2 values");
    }
}

fn service_update(check: &mut Check, new: &Value, old: &Value) {
    let is_external = |service: &Value| text(service, "spec.type") == "ExternalName";
    if is_external(new) || is_external(old) {
        return;
    }
    let (new_ips, old_ips) = (list(new, "spec.clusterIPs"), list(old, "spec.clusterIPs"));
    let shown = at(new, "spec.clusterIPs").clone();
    if let (Some(old_first), first) = (old_ips.first(), new_ips.first()) {
        match first {
            None => check.invalid("spec.clusterIPs[0]", shown, "primary clusterIP can not be unset"),
            Some(first) if first != old_first => {
                check.invalid("spec.clusterIPs[0]", shown, "may not change once set");
            }
            Some(_) => {}
        }
    }
    let class = |service: &Value| at(service, "spec.loadBalancerClass").clone();
    let is_balancer = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    if is_balancer(new) && is_balancer(old) && class(new) != class(old) {
        check.invalid("spec.loadBalancerClass", class(new), "may not change once set");
    }
}

/// A node; `old` on an update.
pub(super) fn node(check: &mut Check, node: &Value, old: Option<&Value>) {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (idx, taint) in list(node, "spec.taints").iter().enumerate() {
        // The reference server also blames the metadata.
        let base = format!("metadata.taints[{idx}]");
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        check.format(format_args!("{base}.key"), key, text::label_key(key));
        let messages = text::label_value(text(taint, "value"));
        if !messages.is_empty() {
            check.invalid(format_args!("{base}.value"), text(taint, "value"), messages.join(";"));
        }
        check.one_of(format_args!("{base}.effect"), effect, scheduling::TAINT_EFFECTS);
        if seen.contains(&(key, effect)) {
            check.duplicate(&base, taint.clone());
            if let Some(error) = check.errors.last_mut() {
                error.detail = "taints must be unique by key and effect pair".to_owned();
            }
        }
        seen.insert((key, effect));
    }
    for part in ["capacity", "allocatable"] {
        for (resource, value) in entries(at(node, "status"), part) {
            resources::amount(check, resource, value, &format!("status.{part}.{resource}"));
        }
    }
    let mut addresses: BTreeSet<String> = BTreeSet::new();
    for (idx, address) in list(node, "status.addresses").iter().enumerate() {
        if !addresses.insert(address.to_string()) && old.is_some() {
            check.duplicate(format_args!("status.addresses[{idx}]"), address.clone());
        }
    }
    let Some(old) = old else { return };
    if !list(old, "spec.podCIDRs").is_empty() && at(node, "spec.podCIDRs") != at(old, "spec.podCIDRs") {
        check.forbidden("spec.podCIDRs", "node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = text(old, "spec.providerID");
    if !provider.is_empty() && provider != text(node, "spec.providerID") {
        check
            .forbidden("spec.providerID", "node updates may not change providerID except from \"\" to valid");
    }
}

/// The status of a namespace follows its deletion.
pub(super) fn namespace_status(check: &mut Check, namespace: &Value) {
    let phase = text(namespace, "status.phase");
    if has(namespace, "metadata.deletionTimestamp") {
        if phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            check.invalid("status.Phase", phase, detail);
        }
    } else if phase != "Active" {
        check.invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty");
    }
}

/// A quota: names, amounts and scopes.
pub(super) fn quota(check: &mut Check, quota: &Value) {
    let hard: Vec<&str> = entries(quota, "spec.hard").map(|(name, _)| name.as_str()).collect();
    for (name, value) in entries(quota, "spec.hard") {
        let path = format!("spec.hard[{name}]");
        resources::name(check, name, Place::Quota, &path);
        resources::amount(check, name, value, &path);
    }
    // The whole list is shown in each error, so each is told once.
    let shown = at(quota, "spec.scopes").clone();
    let scopes: Vec<&str> = list(quota, "spec.scopes").iter().filter_map(Value::as_str).collect();
    if scopes.iter().any(|scope| !is_scope(scope)) {
        check.invalid("spec.scopes", shown.clone(), "unsupported scope");
    }
    let misfits = |scope: &str| hard.iter().any(|name| resources::is_quota(name) && !scope_fits(scope, name));
    let mut kinds: BTreeSet<&str> = scopes.iter().copied().collect();
    kinds.retain(|scope| is_scope(scope));
    if kinds.iter().any(|scope| misfits(scope)) {
        check.invalid("spec.scopes", shown.clone(), "unsupported scope applied to resource");
    }
    if conflicting(&scopes) {
        check.invalid("spec.scopes", shown, "conflicting scopes");
    }
    let base = "spec.scopeSelector.matchExpressions";
    let mut selected_kinds: BTreeSet<&str> = list(quota, base).iter().map(|r| text(r, "scopeName")).collect();
    selected_kinds.retain(|scope| is_scope(scope));
    if selected_kinds.iter().any(|scope| misfits(scope)) {
        check.invalid(base, at(quota, "spec.scopeSelector").clone(), "unsupported scope applied to resource");
    }
    let mut selected: Vec<&str> = Vec::new();
    for requirement in list(quota, base) {
        let scope = text(requirement, "scopeName");
        let operator = text(requirement, "operator");
        let values = list(requirement, "values");
        if !is_scope(scope) {
            check.invalid(format_args!("{base}.scopeName"), scope, "unsupported scope");
        }
        let must_exist = !matches!(scope, "PriorityClass" | "VolumeAttributesClass") && is_scope(scope);
        if must_exist && operator != "Exists" {
            check.invalid(
                format_args!("{base}.operator"),
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => check.required(
                format_args!("{base}.values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => check.invalid(
                format_args!("{base}.values"),
                values.to_vec(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => check.invalid(format_args!("{base}.operator"), operator, "not a valid selector operator"),
        }
        selected.push(scope);
    }
    if conflicting(&selected) {
        check.invalid(base, at(quota, "spec.scopes").clone(), "conflicting scopes");
    }
}

/// What a quota is said to have and use.
pub(super) fn quota_status(check: &mut Check, quota: &Value) {
    for part in ["hard", "used"] {
        for (name, value) in entries(at(quota, "status"), part) {
            let path = format!("status.{part}[{name}]");
            resources::name(check, name, Place::Quota, &path);
            resources::amount(check, name, value, &path);
        }
    }
}

fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    let is_compute = matches!(
        resource,
        "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
    );
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || is_compute,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn conflicting(scopes: &[&str]) -> bool {
    let both = |a, b| scopes.contains(&a) && scopes.contains(&b);
    both("BestEffort", "NotBestEffort") || both("Terminating", "NotTerminating")
}

/// What may not change in a quota.
pub(super) fn quota_update(check: &mut Check, new: &Value, old: &Value) {
    let sorted = |quota: &Value| {
        let mut scopes: Vec<String> = list(quota, "spec.scopes").iter().map(ToString::to_string).collect();
        scopes.sort();
        scopes
    };
    if sorted(new) != sorted(old) {
        check.invalid("spec.scopes", at(new, "spec.scopes").clone(), "field is immutable");
    }
}

/// A limit range: bounds and defaults agree.
pub(super) fn limit_range(check: &mut Check, range: &Value) {
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for (idx, item) in list(range, "spec.limits").iter().enumerate() {
        let base = format!("spec.limits[{idx}]");
        let kind = text(item, "type");
        let at_type = format!("{base}.type");
        let messages = text::label_key(kind);
        if !messages.is_empty() {
            check.format(&at_type, kind, messages);
        } else if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            check.invalid(&at_type, kind, "must be a standard limit type or fully qualified");
        }
        if kinds.contains(&kind) {
            check.duplicate(&at_type, kind);
        }
        kinds.insert(kind);
        let place = if matches!(kind, "Pod" | "Container") { Place::Container } else { Place::Any };
        for part in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            for (name, _) in entries(item, part) {
                resources::name(check, name, place, &format!("{base}.{part}[{name}]"));
            }
        }
        if kind == "Pod" {
            for part in ["default", "defaultRequest"] {
                if entries(item, part).next().is_some() {
                    check.forbidden(
                        format_args!("{base}.{part}"),
                        "may not be specified when `type` is 'Pod'",
                    );
                }
            }
        }
        if kind == "PersistentVolumeClaim" && !has(item, "min.storage") && !has(item, "max.storage") {
            check.required(
                format_args!("{base}.limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        limit_amounts(check, item, &base);
    }
}

fn limit_amounts(check: &mut Check, item: &Value, base: &str) {
    let (min, max) = (amounts(item, "min"), amounts(item, "max"));
    let (default, request) = (amounts(item, "default"), amounts(item, "defaultRequest"));
    let ratio = amounts(item, "maxLimitRequestRatio");
    let names: std::collections::BTreeSet<&String> = min
        .keys()
        .chain(max.keys())
        .chain(default.keys())
        .chain(request.keys())
        .chain(ratio.keys())
        .collect();
    for name in names {
        let mut above = |low: Option<&Quantity>,
                         high: Option<&Quantity>,
                         part: &str,
                         blamed: Option<&Quantity>,
                         words: [&str; 2]| {
            if let (Some(low), Some(high), Some(blamed)) = (low, high, blamed)
                && low > high
            {
                let detail = format!("{} {low} is greater than {} {high}", words[0], words[1]);
                check.invalid(format_args!("{base}.{part}[{name}]"), blamed.to_string(), detail);
            }
        };
        let (min, max) = (min.get(name), max.get(name));
        let (default, request) = (default.get(name), request.get(name));
        above(min, max, "min", min, ["min value", "max value"]);
        above(min, request, "defaultRequest", request, ["min value", "default request value"]);
        above(request, max, "defaultRequest", request, ["default request value", "max value"]);
        above(request, default, "defaultRequest", request, ["default request value", "default limit value"]);
        above(min, default, "default", min, ["min value", "default value"]);
        above(default, max, "default", max, ["default value", "max value"]);
        if let Some(ratio) = ratio.get(name).filter(|ratio| **ratio < Quantity::from_milli(1000)) {
            let path = format!("{base}.maxLimitRequestRatio[{name}]");
            check.invalid(&path, ratio.to_string(), format!("ratio {ratio} is less than 1"));
        }
        if let (Some(default), Some(request)) = (default, request)
            && !resources::is_overcommit_allowed(name)
            && default != request
        {
            check.invalid(
                format_args!("{base}.defaultRequest[{name}]"),
                request.to_string(),
                format!("default value {default} must equal to defaultRequest value {request} in {name}"),
            );
        }
    }
}

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The spec of a claim, of its own or in a template.
pub(super) fn claim_spec(check: &mut Check, spec: &Value, path: &str) {
    access_modes(check, spec, path, "at least 1 access mode is required");
    check.selector(at(spec, "selector"), &format!("{path}.selector"));
    let size_path = format!("{path}.resources[storage]");
    match at(spec, "resources.requests").get("storage") {
        None => check.required(&size_path, ""),
        Some(size) => {
            if normal::quantity(size).is_some_and(|size| size <= Quantity::ZERO) {
                let shown = size.as_str().map_or_else(|| size.clone(), Value::from);
                check.invalid(&size_path, shown, "must be greater than zero");
            }
        }
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            check.format(format_args!("{path}.{field}"), name, text::dns_subdomain(name));
        }
    }
    check.one_of_or_empty(
        format_args!("{path}.volumeMode"),
        text(spec, "volumeMode"),
        &["Block", "Filesystem"],
    );
    for field in ["dataSource", "dataSourceRef"] {
        let source = at(spec, field);
        if source.is_null() {
            continue;
        }
        for part in ["name", "kind"] {
            if text(source, part).is_empty() {
                check.required(format_args!("{path}.{field}.{part}"), "");
            }
        }
        if text(source, "apiGroup").is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            check.invalid(format_args!("{path}.{field}"), text(source, "kind"), detail);
        }
    }
}

fn access_modes(check: &mut Check, spec: &Value, path: &str, missing: &str) {
    let modes = list(spec, "accessModes");
    let at_modes = format!("{path}.accessModes");
    if modes.is_empty() {
        check.required(&at_modes, missing);
    }
    let (mut has_single, mut has_other) = (false, false);
    for mode in modes.iter().filter_map(Value::as_str) {
        if !ACCESS_MODES.contains(&mode) {
            check.unsupported(&at_modes, mode, ACCESS_MODES);
        } else if mode == "ReadWriteOncePod" {
            has_single = true;
        } else {
            has_other = true;
        }
    }
    if has_single && has_other {
        check.forbidden(&at_modes, "may not use ReadWriteOncePod with other access modes");
    }
}

/// What may not change in a claim.
pub(super) fn claim_update(check: &mut Check, new: &Value, old: &Value) {
    let mut masked = at(new, "spec").clone();
    let mut before = at(old, "spec").clone();
    if text(&before, "volumeName").is_empty() {
        crate::json::copy_field(&mut before, &masked.clone(), "volumeName");
    }
    if !has(&before, "storageClassName") {
        crate::json::copy_field(&mut masked, &before.clone(), "storageClassName");
    }
    if text(new, "status.phase") == "Bound" {
        crate::json::copy_field(&mut masked, &before.clone(), "volumeAttributesClassName");
        if let Some(requests) = crate::json::at_mut(&mut masked, "resources.requests") {
            crate::json::copy_field(requests, at(&before, "resources.requests"), "storage");
        }
    }
    if masked != before {
        check.forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
        );
    }
    let size = |claim: &Value, path: &str| normal::quantity(at(claim, path)).unwrap_or_default();
    let new_size = size(new, "spec.resources.requests.storage");
    if new_size < size(old, "spec.resources.requests.storage")
        && new_size <= size(old, "status.capacity.storage")
    {
        check.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity");
    }
    if at(new, "spec.volumeMode") != at(old, "spec.volumeMode") {
        check.invalid("volumeMode", at(new, "spec.volumeMode").clone(), "field is immutable");
    }
}

/// The fields of a persistent volume that are no source.
const VOLUME_FIELDS: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// A persistent volume.
pub(super) fn volume(check: &mut Check, volume: &Value) {
    let spec = at(volume, "spec");
    access_modes(check, spec, "spec", "");
    if entries(spec, "capacity").next().is_none() {
        check.required("spec.capacity", "");
    }
    if !has(spec, "capacity.storage") || entries(spec, "capacity").count() > 1 {
        check.unsupported("spec.capacity", at(spec, "capacity").clone(), &["storage"]);
    }
    for (name, value) in entries(spec, "capacity") {
        if normal::quantity(value).is_some_and(|size| size <= Quantity::ZERO) {
            check.invalid(format_args!("spec.capacity[{name}]"), value.clone(), "must be greater than zero");
        }
    }
    check.one_of_or_empty(
        "spec.persistentVolumeReclaimPolicy",
        text(spec, "persistentVolumeReclaimPolicy"),
        &["Delete", "Recycle", "Retain"],
    );
    if has(spec, "nodeAffinity") {
        if has(spec, "nodeAffinity.required") {
            scheduling::node_selector(check, at(spec, "nodeAffinity.required"), "spec.nodeAffinity.required");
        } else {
            check.required("spec.nodeAffinity.required", "must specify required node constraints");
        }
    }
    let sources: Vec<&String> = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !VOLUME_FIELDS.contains(&key.as_str()) && !value.is_null())
        .map(|(key, _)| key)
        .collect();
    if sources.is_empty() {
        check.required("spec", "must specify a volume type");
    }
    for source in sources.iter().skip(1) {
        check.forbidden(format_args!("spec.{source}"), "may not specify more than 1 volume type");
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            check.format(format_args!("spec.{field}"), name, text::dns_subdomain(name));
        }
    }
    check.one_of_or_empty("spec.volumeMode", text(spec, "volumeMode"), &["Block", "Filesystem"]);
}

/// What may not change in a persistent volume.
pub(super) fn volume_update(check: &mut Check, new: &Value, old: &Value) {
    let source = |volume: &Value| -> serde_json::Map<String, Value> {
        let keep = |(key, value): (&String, &Value)| {
            (!VOLUME_FIELDS.contains(&key.as_str())).then(|| (key.clone(), value.clone()))
        };
        at(volume, "spec").as_object().into_iter().flatten().filter_map(keep).collect()
    };
    if source(new) != source(old) {
        check.forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation\n",
        );
    }
    check.immutable(new, old, "spec.volumeMode");
}

/// Endpoints: addresses and ports.
pub(super) fn endpoints(check: &mut Check, endpoints: &Value) {
    for (idx, subset) in list(endpoints, "subsets").iter().enumerate() {
        let base = format!("subsets[{idx}]");
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            check.required(&base, "must specify `addresses` or `notReadyAddresses`");
        }
        for part in ["addresses", "notReadyAddresses"] {
            for (address_idx, address) in list(subset, part).iter().enumerate() {
                if text(address, "ip").parse::<std::net::IpAddr>().is_err() {
                    check.invalid(format_args!("{base}.{part}[{address_idx}].ip"), text(address, "ip"), IP);
                }
            }
        }
        let ports = list(subset, "ports");
        for (port_idx, port) in ports.iter().enumerate() {
            let at_port = format!("{base}.ports[{port_idx}]");
            if ports.len() > 1 && text(port, "name").is_empty() {
                check.required(format_args!("{at_port}.name"), "");
            }
            let number = int(port, "port").unwrap_or(0);
            for message in text::port_number(number) {
                check.invalid(format_args!("{at_port}.port"), number, message);
            }
            check.one_of(format_args!("{at_port}.protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
        }
    }
}

/// An event that a client of `events.k8s.io` creates, in its stored form.
pub(super) fn new_event(check: &mut Check, event: &Value) {
    self::event(check, event);
    if !has(event, "eventTime") {
        check.required("eventTime", "");
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        check.invalid("type", "", format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if has(event, field) {
            check.invalid(field, "", "needs to be unset");
        }
    }
    if int(event, "count").unwrap_or(0) != 0 {
        check.invalid("count", "", "needs to be unset");
    }
    if !text(event, "source.component").is_empty() || !text(event, "source.host").is_empty() {
        check.invalid("source", "", "needs to be unset");
    }
}

/// A core event.
pub(super) fn event(check: &mut Check, event: &Value) {
    let namespace = text(event, "metadata.namespace");
    let involved = text(event, "involvedObject.namespace");
    let path = "involvedObject.namespace";
    let detail = "does not match event.namespace";
    if !has(event, "eventTime") {
        let is_wrong = if involved.is_empty() {
            !namespace.is_empty() && namespace != "default"
        } else {
            namespace != involved
        };
        if is_wrong {
            check.invalid(path, involved, detail);
        }
        return;
    }
    if involved.is_empty() && namespace != "default" && namespace != "kube-system" {
        check.invalid(path, involved, detail);
    }
    let controller = text(event, "reportingComponent");
    if controller.is_empty() {
        check.required("reportingComponent", "");
    }
    check.format("reportingComponent", controller, text::label_key(controller));
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)] {
        let value = text(event, field);
        if value.is_empty() && field != "message" {
            check.required(field, "");
        }
        if value.len() > limit {
            check.invalid(field, "", format!("can have at most {limit} characters"));
        }
    }
}

/// The binding of a pod to a node.
pub(super) fn binding(check: &mut Check, binding: &Value) {
    let kind = text(binding, "target.kind");
    if !kind.is_empty() && kind != "Node" {
        check.unsupported("target.kind", kind, &["Node", "<empty>"]);
    }
    if text(binding, "target.name").is_empty() {
        check.required("target.name", "");
    }
}
