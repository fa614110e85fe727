//! Pods and the templates of pods.
//!
//! Left out, and so accepted: the inner fields of volume sources other than emptyDir, hostPath, secret, configMap,
//! projected, downwardAPI, persistentVolumeClaim, ephemeral, csi, nfs and image; seccomp and AppArmor profiles; sysctls;
//! the rules for windows pods; transitions of container states.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::{Value, json};

use super::{
    check::{Below, Check},
    meta,
    resources::{self, Place},
    scheduling, text,
};
use crate::{
    defaults::resources::qos_class,
    json::{at, at_mut, copy_field, flag, has, int, list, list_mut, remove, set, text},
};

/// A new pod.
pub(super) fn create(check: &mut Check, pod: &Value) {
    pod_spec_and_annotations(check, pod);
    if !list(pod, "spec.ephemeralContainers").is_empty() {
        check.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !text(pod, "spec.nodeName").is_empty() && !list(pod, "spec.schedulingGates").is_empty() {
        check.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
}

/// A changed pod.
pub(super) fn update(check: &mut Check, new: &Value, old: &Value) {
    pod_spec_and_annotations(check, new);
    for part in ["containers", "initContainers"] {
        let path = format!("spec.{part}");
        let containers = list(new, &path);
        if containers.len() != list(old, &path).len() {
            check.forbidden(&path, "pod updates may not add or remove containers");
            return;
        }
    }
    let deadline = |pod: &Value| int(pod, "spec.activeDeadlineSeconds");
    let path = "spec.activeDeadlineSeconds";
    match (deadline(new), deadline(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            check.invalid(path, new, "must be between 0 and 2147483647, inclusive");
            return;
        }
        (Some(new), Some(old)) if old < new => {
            check.invalid(path, new, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            check.invalid(path, Value::Null, "must not update from a positive integer to nil value")
        }
        _ => {}
    }
    scheduling::only_added_tolerations(check, new, old);
    scheduling::only_deleted_gates(check, new, old);
    if at(new, "spec") == at(old, "spec") {
        return;
    }
    let mut masked = at(new, "spec").clone();
    let old_spec = at(old, "spec");
    mask_images(&mut masked, old_spec);
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_field(&mut masked, old_spec, field);
    }
    if int(old_spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0)
        && int(&masked, "terminationGracePeriodSeconds") == Some(1)
    {
        copy_field(&mut masked, old_spec, "terminationGracePeriodSeconds");
    }
    if !list(old_spec, "schedulingGates").is_empty() {
        scheduling::gated_mutations(check, &mut masked, old_spec);
    }
    if masked != *old_spec {
        check.forbidden(
            "spec",
            format!(
                "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                 `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                 `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n{}",
                difference(&masked, old_spec)
            ),
        );
    }
}

/// A changed status.
pub(super) fn status(check: &mut Check, new: &Value, old: &Value) {
    for (idx, condition) in list(new, "status.conditions").iter().enumerate() {
        if int(condition, "observedGeneration").is_some_and(|generation| generation < 0) {
            check.invalid(
                format_args!("status.conditions[{idx}].observedGeneration"),
                at(condition, "observedGeneration").clone(),
                "must be a non-negative integer",
            );
        }
    }
    let nominated = text(new, "status.nominatedNodeName");
    if nominated != text(old, "status.nominatedNodeName") && !nominated.is_empty() {
        check.format("status.nominatedNodeName", nominated, text::dns_subdomain(nominated));
        // A status never comes with another spec, so that of either will do.
        if !text(new, "spec.nodeName").is_empty() {
            check.forbidden(
                "status.nominatedNodeName",
                "may not be set on pods that are already bound to a node",
            );
        }
    }
    check.immutable(new, old, "status.qosClass");
    for (list_path, label) in [("status.podIPs", "pod"), ("status.hostIPs", "host")] {
        for (idx, entry) in list(new, list_path).iter().enumerate() {
            let ip = text(entry, "ip");
            if ip.parse::<std::net::IpAddr>().is_err() && !ip.is_empty() {
                let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                check.invalid(format_args!("{list_path}[{idx}]"), ip, detail);
            }
        }
        if list(new, list_path).len() > 2 && label == "pod" {
            check.invalid(
                list_path,
                at(new, list_path).clone(),
                "may specify no more than one IP for each IP family",
            );
        }
    }
}

/// A pod with more debug containers than before.
pub(super) fn ephemeral_update(check: &mut Check, new: &Value, old: &Value) {
    pod_spec_and_annotations(check, new);
    if meta::is_mirror(old) {
        check.forbidden("", "static pods do not support ephemeral containers");
        return;
    }
    let path = "spec.ephemeralContainers";
    for container in list(old, path) {
        let name = text(container, "name");
        match list(new, path).iter().find(|new| text(new, "name") == name) {
            None => {
                check.forbidden(path, format!("existing ephemeral containers {name:?} may not be removed\n"))
            }
            Some(new) if new != container => check.forbidden(
                path,
                format!(
                    "existing ephemeral containers {name:?} may not be changed\n{}",
                    difference(new, container)
                ),
            ),
            Some(_) => {}
        }
    }
}

/// A pod whose containers ask for other amounts of processor or memory.
pub(super) fn resize(check: &mut Check, new: &Value, old: &Value) {
    pod_spec_and_annotations(check, new);
    if meta::is_mirror(old) {
        check.forbidden("", "static pods cannot be resized");
        return;
    }
    if text(old, "spec.os.name") == "windows" {
        check.forbidden("", "windows pods cannot be resized");
        return;
    }
    let class = text(old, "status.qosClass");
    if !class.is_empty() && class != qos_class(new) {
        check.invalid("spec", class, "Pod QOS Class may not change as a result of resizing");
    }
    let mut masked = at(new, "spec").clone();
    let old_spec = at(old, "spec");
    for part in ["containers", "initContainers"] {
        let names = |spec: &Value| -> Vec<String> {
            list(spec, part).iter().map(|container| text(container, "name").to_owned()).collect()
        };
        if names(&masked).len() != names(old_spec).len() {
            check.forbidden(
                format_args!("spec.{part}"),
                format!("{part} may not be added or removed on resize"),
            );
            return;
        }
        if names(&masked) != names(old_spec) {
            check.forbidden(
                format_args!("spec.{part}"),
                format!("{part} may not be renamed or reordered on resize"),
            );
            return;
        }
        for (container, old_container) in list_mut(&mut masked, part).zip(list(old_spec, part)) {
            mask_amounts(container, old_container);
        }
    }
    mask_amounts(&mut masked, old_spec);
    if masked != *old_spec {
        check.forbidden("spec", "only cpu and memory resources are mutable");
    }
}

/// A template: its labels, annotations and spec.
pub(super) fn template(check: &mut Check, template: &Value, path: &str) {
    meta::template(check, template, path);
    spec(check, template, &format!("{path}.spec"), false);
    if !list(template, "spec.ephemeralContainers").is_empty() {
        check.forbidden(
            format_args!("{path}.spec.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn pod_spec_and_annotations(check: &mut Check, pod: &Value) {
    if let Some(cost) = at(pod, "metadata.annotations").get("controller.kubernetes.io/pod-deletion-cost") {
        let cost = cost.as_str().unwrap_or_default();
        let is_plain = cost.parse::<i32>().is_ok_and(|number| number.to_string() == cost);
        if !is_plain {
            check.invalid(
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]",
                cost,
                "must be a 32bit integer",
            );
        }
    }
    spec(check, pod, "spec", true);
    for part in ["containers", "initContainers"] {
        for (idx, container) in list(at(pod, "spec"), part).iter().enumerate() {
            let image = text(container, "image");
            if image.trim().len() != image.len() {
                let path = format!("spec.{part}[{idx}].image");
                check.invalid(&path, image, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// The spec in `holder`, which is a pod or a template.
fn spec(check: &mut Check, holder: &Value, path: &str, is_pod: bool) {
    let spec = at(holder, "spec");
    let child = |name| Below(path, name);
    if !has(spec, "terminationGracePeriodSeconds") {
        check.required(child("terminationGracePeriodSeconds"), "");
    }
    let volumes = volumes(check, spec, text(holder, "metadata.name"), child("volumes"));
    let claims = resource_claims(check, spec, child("resourceClaims"));
    containers(check, spec, &volumes, &claims, path);
    resources::pod_level(check, holder, spec, path);
    host_network(check, spec, path, is_pod);
    check.one_of(child("restartPolicy"), text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    check.one_of(
        child("dnsPolicy"),
        text(spec, "dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    if text(spec, "dnsPolicy") == "None" {
        if !has(spec, "dnsConfig") {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            check.required(child("dnsConfig"), detail);
        } else if list(spec, "dnsConfig.nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            check.required(child("dnsConfig.nameservers"), detail);
        }
    }
    check.labels(at(spec, "nodeSelector"), child("nodeSelector"));
    security_context(check, at(spec, "securityContext"), child("securityContext"));
    scheduling::affinity(check, at(spec, "affinity"), child("affinity"));
    for (idx, gate) in list(spec, "readinessGates").iter().enumerate() {
        let name = text(gate, "conditionType");
        check.format(
            format_args!("{}[{idx}].conditionType", child("readinessGates")),
            name,
            text::label_key(name),
        );
    }
    scheduling::gates(check, spec, child("schedulingGates"));
    scheduling::spread(check, spec, child("topologySpreadConstraints"));
    names(check, spec, path);
    if at(spec, "hostUsers") == &Value::Bool(false) {
        for (field, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if flag(spec, field) {
                check.forbidden(child(shown), "when `hostUsers` is false");
            }
        }
    }
    if let Some(seconds) =
        int(spec, "activeDeadlineSeconds").filter(|s| !(1..=i64::from(i32::MAX)).contains(s))
    {
        check.invalid(child("activeDeadlineSeconds"), seconds, "must be between 1 and 2147483647, inclusive");
    }
    scheduling::tolerations(check, spec, child("tolerations"));
    for (idx, alias) in list(spec, "hostAliases").iter().enumerate() {
        let base = format!("{}[{idx}]", child("hostAliases"));
        if text(alias, "ip").parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            check.invalid(format_args!("{base}.ip"), text(alias, "ip"), detail);
        }
        for (host_idx, host) in list(alias, "hostnames").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            check.format(format_args!("{base}.hostnames[{host_idx}]"), host, text::dns_subdomain(host));
        }
    }
    check.one_of_or_empty(
        child("preemptionPolicy"),
        text(spec, "preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
    if has(spec, "overhead") {
        let overhead = json!({ "limits": at(spec, "overhead") });
        resources::requirements(check, &overhead, Place::Container, &BTreeSet::new(), child("overhead"));
    }
    if has(spec, "os") {
        match text(spec, "os.name") {
            "" => check.required(child("os.name"), ""),
            "linux" | "windows" => {}
            other => check.unsupported(child("os"), other, &["linux", "windows"]),
        }
    }
    scheduling::group(check, spec, path);
}

fn names(check: &mut Check, spec: &Value, path: &str) {
    for field in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            check.format(format_args!("{path}.{field}"), name, text::dns_subdomain(name));
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            check.format(format_args!("{path}.{field}"), name, text::dns_label(name));
        }
    }
    let name = text(spec, "hostnameOverride");
    if !name.is_empty() {
        let at_name = format!("{path}.hostnameOverride");
        if flag(spec, "setHostnameAsFQDN") {
            check.forbidden(&at_name, "may not be specified when setHostnameAsFQDN is true");
        }
        if flag(spec, "hostNetwork") {
            check.forbidden(&at_name, "may not be specified when hostNetwork is true");
        }
        if name.len() > 64 {
            check.too_long(&at_name, 64);
        }
        check.format(&at_name, name, text::dns_subdomain(name));
    }
}

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Checks the volumes and returns the names and kinds of the good ones.
fn volumes<'a>(
    check: &mut Check,
    spec: &'a Value,
    pod_name: &str,
    path: impl Display + Copy,
) -> BTreeMap<&'a str, &'a Value> {
    let mut good: BTreeMap<&str, &Value> = BTreeMap::new();
    let all = list(spec, "volumes");
    let made: BTreeSet<String> = all
        .iter()
        .filter(|volume| has(volume, "ephemeral") && !pod_name.is_empty())
        .map(|volume| format!("{pod_name}-{}", text(volume, "name")))
        .collect();
    for (idx, volume) in all.iter().enumerate() {
        let base = format!("{path}[{idx}]");
        let before = check.errors.len();
        volume_source(check, volume, &base);
        let name = text(volume, "name");
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else {
            check.format(format_args!("{base}.name"), name, text::dns_label(name));
        }
        if good.contains_key(name) {
            check.duplicate(format_args!("{base}.name"), name);
        }
        if check.errors.len() == before {
            good.insert(name, volume);
        }
        let claim = text(volume, "persistentVolumeClaim.claimName");
        if made.contains(claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            check.invalid(format_args!("{base}.persistentVolumeClaim.claimName"), claim, detail);
        }
    }
    good
}

fn volume_source(check: &mut Check, volume: &Value, path: &str) {
    let mut sources: Vec<(&String, &Value)> = volume
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| *key != "name" && !value.is_null())
        .collect();
    // An empty directory is the one that all others exclude.
    sources.sort_by_key(|(key, _)| key.as_str() != "emptyDir");
    if sources.is_empty() {
        check.required(path, "must specify a volume type");
    }
    for (idx, (key, source)) in sources.into_iter().enumerate() {
        let base = format!("{path}.{key}");
        if idx > 0 {
            check.forbidden(&base, "may not specify more than 1 volume type");
            continue;
        }
        let mut need = |field: &str| {
            if text(source, field).is_empty() {
                check.required(format_args!("{base}.{field}"), "");
            }
        };
        match key.as_str() {
            "hostPath" => need("path"),
            "secret" => need("secretName"),
            "configMap" => need("name"),
            "persistentVolumeClaim" => need("claimName"),
            "csi" => need("driver"),
            "image" => need("reference"),
            "nfs" => {
                need("server");
                need("path");
                if !text(source, "path").starts_with('/') {
                    check.invalid(
                        format_args!("{base}.path"),
                        text(source, "path"),
                        "must be an absolute path",
                    );
                }
            }
            "ephemeral" => {
                if has(source, "volumeClaimTemplate") {
                    let claim = at(source, "volumeClaimTemplate.spec");
                    super::core::claim_spec(check, claim, &format!("{base}.volumeClaimTemplate.spec"));
                } else {
                    check.required(format_args!("{base}.volumeClaimTemplate"), "");
                }
            }
            "emptyDir"
                if crate::normal::quantity(at(source, "sizeLimit"))
                    .is_some_and(|size| size < k8s_quantity::Quantity::ZERO) =>
            {
                check.forbidden(
                    format_args!("{base}.sizeLimit"),
                    "SizeLimit field must be a valid resource quantity",
                );
            }
            _ => {}
        }
        if int(source, "defaultMode").is_some_and(|mode| !(0..=0o777).contains(&mode)) {
            check.invalid(format_args!("{base}.defaultMode"), at(source, "defaultMode").clone(), FILE_MODE);
        }
        if matches!(key.as_str(), "secret" | "configMap") {
            for (item_idx, item) in list(source, "items").iter().enumerate() {
                let item_path = format!("{base}.items[{item_idx}]");
                for field in ["key", "path"] {
                    if text(item, field).is_empty() {
                        check.required(format_args!("{item_path}.{field}"), "");
                    }
                }
                descending(check, text(item, "path"), &format!("{item_path}.path"));
                if int(item, "mode").is_some_and(|mode| !(0..=0o777).contains(&mode)) {
                    check.invalid(format_args!("{item_path}.mode"), at(item, "mode").clone(), FILE_MODE);
                }
            }
        }
        if key == "hostPath" {
            no_backsteps(check, text(source, "path"), &format!("{base}.path"));
            let kinds = [
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ];
            let kind = text(source, "type");
            if !kinds.contains(&kind) {
                check.unsupported(format_args!("{base}.type"), kind, &kinds);
            }
        }
    }
}

fn descending(check: &mut Check, target: &str, path: impl Display + Copy) {
    if target.starts_with('/') {
        check.invalid(path, target, "must be a relative path");
    }
    no_backsteps(check, target, path);
}

fn no_backsteps(check: &mut Check, target: &str, path: impl Display + Copy) {
    if target.split('/').any(|part| part == "..") {
        check.invalid(path, target, "must not contain '..'");
    }
}

fn resource_claims<'a>(check: &mut Check, spec: &'a Value, path: impl Display + Copy) -> BTreeSet<&'a str> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let base = format!("{path}[{idx}]");
        let name = text(claim, "name");
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else if names.contains(&name) {
            check.duplicate(format_args!("{base}.name"), name);
        } else {
            check.format(format_args!("{base}.name"), name, text::dns_label(name));
            names.insert(name);
        }
        let (by_name, by_template) =
            (has(claim, "resourceClaimName"), has(claim, "resourceClaimTemplateName"));
        if by_name && by_template {
            let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
            check.invalid(&base, claim.clone(), detail);
        }
        if !by_name && !by_template {
            let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            check.invalid(&base, claim.clone(), detail);
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if has(claim, field) {
                let name = text(claim, field);
                check.format(format_args!("{base}.{field}"), name, text::dns_subdomain(name));
            }
        }
    }
    names
}

/// What a container needs to know of its pod.
struct Surroundings<'a> {
    volumes: &'a BTreeMap<&'a str, &'a Value>,
    claims: &'a BTreeSet<&'a str>,
    grace: Option<i64>,
    restart_policy: &'a str,
}

fn containers(
    check: &mut Check,
    spec: &Value,
    volumes: &BTreeMap<&str, &Value>,
    claims: &BTreeSet<&str>,
    path: &str,
) {
    let around = Surroundings {
        volumes,
        claims,
        grace: int(spec, "terminationGracePeriodSeconds"),
        restart_policy: text(spec, "restartPolicy"),
    };
    let regular = list(spec, "containers");
    if regular.is_empty() {
        check.required(format_args!("{path}.containers"), "");
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut host_ports: BTreeSet<String> = BTreeSet::new();
    for (idx, container) in regular.iter().enumerate() {
        let base = format!("{path}.containers[{idx}]");
        container_common(check, container, &around, &base);
        unique_name(check, container, &mut names, &base);
        lifecycle_and_probes(check, container, &around, &base);
        restart_rules(check, container, &base);
        unique_host_ports(check, container, &mut host_ports, &base);
    }
    for (idx, container) in list(spec, "initContainers").iter().enumerate() {
        let base = format!("{path}.initContainers[{idx}]");
        container_common(check, container, &around, &base);
        restart_rules(check, container, &base);
        unique_name(check, container, &mut names, &base);
        unique_host_ports(check, container, &mut BTreeSet::new(), &base);
        if text(container, "restartPolicy") == "Always" {
            lifecycle_and_probes(check, container, &around, &base);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, field) {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    check.forbidden(format_args!("{base}.{field}"), detail);
                }
            }
        }
    }
    for (idx, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let base = format!("{path}.ephemeralContainers[{idx}]");
        container_common(check, container, &around, &base);
        let target = text(container, "targetContainerName");
        let is_there = names.contains(&target);
        unique_name(check, container, &mut names, &base);
        if !target.is_empty() && !is_there {
            check.not_found(format_args!("{base}.targetContainerName"), target);
        }
        for field in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
            if has(container, field) {
                check.forbidden(format_args!("{base}.{field}"), "cannot be set for an Ephemeral Container");
            }
        }
        if at(container, "resources").as_object().is_some_and(|map| !map.is_empty()) {
            check.forbidden(format_args!("{base}.resources"), "cannot be set for an Ephemeral Container");
        }
    }
}

fn unique_name<'a>(check: &mut Check, container: &'a Value, names: &mut BTreeSet<&'a str>, path: &str) {
    let name = text(container, "name");
    if names.contains(&name) {
        check.duplicate(format_args!("{path}.name"), name);
    } else if !name.is_empty() {
        names.insert(name);
    }
}

fn unique_host_ports(check: &mut Check, container: &Value, seen: &mut BTreeSet<String>, path: &str) {
    for (idx, port) in list(container, "ports").iter().enumerate() {
        let Some(number) = int(port, "hostPort").filter(|number| *number != 0) else { continue };
        let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if seen.contains(&key) {
            check.duplicate(format_args!("{path}.ports[{idx}].hostPort"), key);
        } else {
            seen.insert(key);
        }
    }
}

fn container_common(check: &mut Check, container: &Value, around: &Surroundings<'_>, path: &str) {
    let child = |name| Below(path, name);
    let name = text(container, "name");
    if name.is_empty() {
        check.required(child("name"), "");
    } else {
        check.format(child("name"), name, text::dns_label(name));
    }
    if text(container, "image").is_empty() {
        check.required(child("image"), "");
    }
    check.one_of(
        child("terminationMessagePolicy"),
        text(container, "terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(check, container, child("ports"));
    env(check, container, path);
    mounts(check, container, around.volumes, path);
    check.one_of(
        child("imagePullPolicy"),
        text(container, "imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    resources::requirements(
        check,
        at(container, "resources"),
        Place::Container,
        around.claims,
        child("resources"),
    );
    resize_policies(check, container, around.restart_policy, child("resizePolicy"));
    let context = at(container, "securityContext");
    security_context(check, context, child("securityContext"));
    if flag(context, "privileged") && at(context, "allowPrivilegeEscalation") == &Value::Bool(false) {
        check.invalid(
            child("securityContext"),
            context.clone(),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        );
    }
}

fn ports(check: &mut Check, container: &Value, path: impl Display) {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (idx, port) in list(container, "ports").iter().enumerate() {
        let base = format_args!("{path}[{idx}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let messages = text::port_name(name);
            if !messages.is_empty() {
                check.format(format_args!("{base}.name"), name, messages);
            } else if names.contains(&name) {
                check.duplicate(format_args!("{base}.name"), name);
            } else {
                names.insert(name);
            }
        }
        match int(port, "containerPort").unwrap_or(0) {
            0 => check.required(format_args!("{base}.containerPort"), ""),
            number => number_format(check, format_args!("{base}.containerPort"), number),
        }
        match int(port, "hostPort").unwrap_or(0) {
            0 => {}
            number => number_format(check, format_args!("{base}.hostPort"), number),
        }
        check.one_of(format_args!("{base}.protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn number_format(check: &mut Check, path: impl Display, port: i64) {
    for message in text::port_number(port) {
        check.invalid(&path, port, message);
    }
}

/// A port by number or by name.
pub(super) fn port_or_name(check: &mut Check, port: &Value, path: &str) {
    match port {
        Value::String(name) => check.format(path, name, text::port_name(name)),
        _ => number_format(check, path, port.as_i64().unwrap_or(0)),
    }
}

fn env(check: &mut Check, container: &Value, path: &str) {
    for (idx, variable) in list(container, "env").iter().enumerate() {
        let base = format_args!("{path}.env[{idx}]");
        let name = text(variable, "name");
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        } else {
            check.format(format_args!("{base}.name"), name, text::env_name(name));
        }
        let from = at(variable, "valueFrom");
        if from.is_null() {
            continue;
        }
        let from_path = format!("{base}.valueFrom");
        let n_sources = from.as_object().map_or(0, |map| map.values().filter(|v| !v.is_null()).count());
        if n_sources == 0 {
            check.invalid(
                &from_path,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            );
        } else if !text(variable, "value").is_empty() {
            check.invalid(&from_path, "", "may not be specified when `value` is not empty");
        } else if n_sources > 1 {
            check.invalid(&from_path, "", "may not have more than one field specified at a time");
        }
        if has(from, "fieldRef") {
            field_path(check, text(from, "fieldRef.fieldPath"), &format!("{from_path}.fieldRef"));
        }
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if !has(from, source) {
                continue;
            }
            let (name, key) = (text(at(from, source), "name"), text(at(from, source), "key"));
            check.format(format_args!("{from_path}.{source}.name"), name, text::dns_subdomain(name));
            if key.is_empty() {
                check.required(format_args!("{from_path}.{source}.key"), "");
            } else {
                check.format(format_args!("{from_path}.{source}.key"), key, text::config_key(key));
            }
        }
        if has(from, "resourceFieldRef") {
            let resource = text(from, "resourceFieldRef.resource");
            let at_resource = format!("{from_path}.resourceFieldRef.resource");
            let known = [
                "limits.cpu",
                "limits.ephemeral-storage",
                "limits.memory",
                "requests.cpu",
                "requests.ephemeral-storage",
                "requests.memory",
            ];
            let is_huge =
                resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
            if resource.is_empty() {
                check.required(&at_resource, "");
            } else if !known.contains(&resource) && !is_huge {
                check.unsupported(&at_resource, resource, &known);
            }
        }
    }
    for (idx, source) in list(container, "envFrom").iter().enumerate() {
        let base = format!("{path}.envFrom[{idx}]");
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            check.format(format_args!("{base}.prefix"), prefix, text::env_name(prefix));
        }
        let kinds: Vec<&str> =
            ["configMapRef", "secretRef"].into_iter().filter(|kind| has(source, kind)).collect();
        for kind in &kinds {
            let name = text(at(source, kind), "name");
            if name.is_empty() {
                check.required(format_args!("{base}.{kind}.name"), "");
            } else {
                check.format(format_args!("{base}.{kind}.name"), name, text::dns_subdomain(name));
            }
        }
        match kinds.len() {
            0 => check.invalid(
                format_args!("{path}.envFrom"),
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => {
                let detail = "may not have more than one field specified at a time";
                check.invalid(format_args!("{path}.envFrom"), "", detail);
            }
        }
    }
}

fn field_path(check: &mut Check, field: &str, path: &str) {
    const KNOWN: &[&str] = &[
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    const CONVERTIBLE: &[&str] = &[
        "metadata.annotations",
        "metadata.labels",
        "spec.host",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    ];
    let at_field = format!("{path}.fieldPath");
    let subscript = field.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    if field.is_empty() {
        check.required(&at_field, "");
    } else if let Some((map, key)) = subscript {
        match map {
            "metadata.annotations" => check.format(path, key, text::label_key(&key.to_lowercase())),
            "metadata.labels" => check.format(path, key, text::label_key(key)),
            _ => check.invalid(path, field, "does not support subscript"),
        }
    } else if !KNOWN.contains(&field) && !CONVERTIBLE.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        check.invalid(&at_field, field, detail);
    } else if !KNOWN.contains(&field) {
        check.unsupported(&at_field, field, KNOWN);
    }
}

fn mounts(check: &mut Check, container: &Value, volumes: &BTreeMap<&str, &Value>, path: &str) {
    let devices = list(container, "volumeDevices");
    let device_names: BTreeSet<&str> = devices.iter().map(|device| text(device, "name")).collect();
    let device_paths: BTreeSet<&str> = devices.iter().map(|device| text(device, "devicePath")).collect();
    let mut paths: BTreeSet<&str> = BTreeSet::new();
    for (idx, mount) in list(container, "volumeMounts").iter().enumerate() {
        let base = format_args!("{path}.volumeMounts[{idx}]");
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        }
        if !volumes.contains_key(name) {
            check.not_found(format_args!("{base}.name"), name);
        }
        if target.is_empty() {
            check.required(format_args!("{base}.mountPath"), "");
        }
        if paths.contains(&target) {
            check.invalid(format_args!("{base}.mountPath"), target, "must be unique");
        }
        paths.insert(target);
        if device_names.contains(name) {
            check.invalid(format_args!("{base}.name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            check.invalid(format_args!("{base}.mountPath"), target, detail);
        }
        let (sub, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        descending(check, sub, format_args!("{path}.volumeMounts.subPath"));
        descending(check, expression, format_args!("{path}.volumeMounts.subPathExpr"));
        if !sub.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            check.invalid(format_args!("{base}.subPathExpr"), expression, detail);
        }
        check.one_of_or_empty(
            format_args!("{path}.volumeMounts.mountPropagation"),
            text(mount, "mountPropagation"),
            &["Bidirectional", "HostToContainer", "None"],
        );
    }
    let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for (idx, device) in devices.iter().enumerate() {
        let base = format!("{path}.volumeDevices[{idx}]");
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            check.required(format_args!("{base}.name"), "");
        }
        if !name.is_empty() && !names.insert(name) {
            check.invalid(format_args!("{base}.name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => check.not_found(format_args!("{base}.name"), name),
            Some(volume) if !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") => {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                check.invalid(format_args!("{base}.name"), name, detail);
            }
            Some(_) => {}
        }
        if target.is_empty() {
            check.required(format_args!("{base}.devicePath"), "");
        }
        if !targets.insert(target) {
            check.invalid(format_args!("{base}.devicePath"), target, "must be unique");
        }
    }
}

fn resize_policies(check: &mut Check, container: &Value, restart_policy: &str, path: impl Display + Copy) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (idx, policy) in list(container, "resizePolicy").iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if seen.contains(&resource) {
            check.duplicate(format_args!("{path}[{idx}]"), resource);
        }
        seen.insert(resource);
        check.one_of(path, resource, &["cpu", "memory"]);
        check.one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if restart_policy == "Never" && restart != "NotRequired" {
            check.invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_rules(check: &mut Check, container: &Value, path: &str) {
    let rules = list(container, "restartPolicyRules");
    let policy = text(container, "restartPolicy");
    if policy.is_empty() {
        if !rules.is_empty() {
            let detail = "must specify restartPolicy when restart rules are used";
            check.required(format_args!("{path}.restartPolicy"), detail);
        }
    } else {
        check.one_of(format_args!("{path}.restartPolicy"), policy, &["Always", "Never", "OnFailure"]);
    }
    if rules.len() > 20 {
        check.too_many(format_args!("{path}.restartPolicyRules"), rules.len(), 20);
    }
    for (idx, rule) in rules.iter().enumerate() {
        let base = format!("{path}.restartPolicyRules[{idx}]");
        let action = text(rule, "action");
        if !["Restart", "RestartAllContainers"].contains(&action) {
            check.unsupported(format_args!("{base}.action"), action, &["Restart", "RestartAllContainers"]);
        }
        if has(rule, "exitCodes") {
            let operator = text(rule, "exitCodes.operator");
            if !["In", "NotIn"].contains(&operator) {
                check.unsupported(format_args!("{base}.exitCodes.operator"), operator, &["In", "NotIn"]);
            }
        } else {
            check.required(format_args!("{base}.exitCodes"), "must be specified");
        }
    }
}

fn lifecycle_and_probes(check: &mut Check, container: &Value, around: &Surroundings<'_>, path: &str) {
    for hook in ["postStart", "preStop"] {
        let handler = at(at(container, "lifecycle"), hook);
        if !handler.is_null() {
            let base = format!("{path}.lifecycle.{hook}");
            self::handler(check, handler, &["exec", "httpGet", "tcpSocket", "sleep"], around.grace, &base);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, kind);
        if probe.is_null() {
            continue;
        }
        let base = format!("{path}.{kind}");
        handler(check, probe, &["exec", "httpGet", "tcpSocket", "grpc"], around.grace, &base);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            check.not_negative(probe, field, &base);
        }
        let grace = int(probe, "terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
            check.invalid(
                format_args!("{base}.terminationGracePeriodSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if kind == "readinessProbe" {
            if let Some(seconds) = grace {
                let detail = "must not be set for readinessProbes";
                check.invalid(format_args!("{base}.terminationGracePeriodSeconds"), seconds, detail);
            }
        } else {
            let threshold = int(probe, "successThreshold").unwrap_or(0);
            if threshold != 1 {
                check.invalid(format_args!("{base}.successThreshold"), threshold, "must be 1");
            }
        }
    }
}

fn handler(check: &mut Check, handler: &Value, kinds: &[&str], grace: Option<i64>, path: &str) {
    let mut n_handlers = 0;
    for kind in kinds {
        let action = at(handler, kind);
        if action.is_null() {
            continue;
        }
        let base = format!("{path}.{kind}");
        n_handlers += 1;
        if n_handlers > 1 {
            check.forbidden(&base, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" if list(action, "command").is_empty() => {
                check.required(format_args!("{base}.command"), "")
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    check.required(format_args!("{base}.path"), "");
                }
                port_or_name(check, at(action, "port"), &format!("{base}.port"));
                let scheme = text(action, "scheme");
                if !["HTTP", "HTTPS"].contains(&scheme) {
                    check.unsupported(format_args!("{base}.scheme"), scheme, &["HTTP", "HTTPS"]);
                }
            }
            "tcpSocket" | "grpc" => port_or_name(check, at(action, "port"), &format!("{base}.port")),
            "sleep" => {
                let seconds = int(action, "seconds").unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    check.invalid(&base, seconds, detail);
                }
            }
            _ => {}
        }
    }
    if n_handlers == 0 {
        check.required(path, "must specify a handler type");
    }
}

fn security_context(check: &mut Check, context: &Value, path: impl Display) {
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = int(context, field).filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            check.invalid(format_args!("{path}.{field}"), id, "must be between 0 and 2147483647, inclusive");
        }
    }
    for (idx, group) in list(context, "supplementalGroups").iter().enumerate() {
        if let Some(id) = group.as_i64().filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            let detail = "must be between 0 and 2147483647, inclusive";
            check.invalid(format_args!("{path}.supplementalGroups[{idx}]"), id, detail);
        }
    }
    check.one_of_or_empty(
        format_args!("{path}.fsGroupChangePolicy"),
        text(context, "fsGroupChangePolicy"),
        &["Always", "OnRootMismatch"],
    );
}

fn host_network(check: &mut Check, spec: &Value, path: &str, is_pod: bool) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (idx, container) in list(spec, "containers").iter().enumerate() {
        for (port_idx, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or(0);
            if (is_pod || host != 0) && host != int(port, "containerPort").unwrap_or(0) {
                let at_port = format!("{path}.containers[{idx}].ports[{port_idx}].hostPort");
                check.invalid(&at_port, host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn mask_images(spec: &mut Value, old: &Value) {
    for part in ["containers", "initContainers"] {
        for (container, old) in list_mut(spec, part).zip(list(old, part)) {
            copy_field(container, old, "image");
        }
    }
}

fn mask_amounts(holder: &mut Value, old: &Value) {
    if at(old, "resources").is_null() && at(holder, "resources").is_null() {
        return;
    }
    for part in ["limits", "requests"] {
        for resource in ["cpu", "memory"] {
            let path = format!("resources.{part}");
            match at(old, &path).get(resource).cloned() {
                Some(amount) => {
                    if let Some(amounts) = at_mut(holder, &path) {
                        set(amounts, resource, amount);
                    }
                }
                None => {
                    if let Some(amounts) = at_mut(holder, &path) {
                        remove(amounts, resource);
                    }
                }
            }
        }
    }
    // What is left of a list that was not there before is nothing.
    for part in ["limits", "requests"] {
        let path = format!("resources.{part}");
        if at(old, &path).is_null()
            && at(holder, &path).as_object().is_some_and(serde_json::Map::is_empty)
            && let Some(resources) = at_mut(holder, "resources")
        {
            remove(resources, part);
        }
    }
}

/// The fields that differ, old and new, one per line.
fn difference(new: &Value, old: &Value) -> String {
    let keys: std::collections::BTreeSet<&String> =
        new.as_object().into_iter().chain(old.as_object()).flat_map(serde_json::Map::keys).collect();
    let mut lines = Vec::new();
    for key in keys {
        let (new, old) = (at(new, key), at(old, key));
        if new != old {
            lines.push(format!("- {key}: {old}\n+ {key}: {new}"));
        }
    }
    lines.join("\n")
}
