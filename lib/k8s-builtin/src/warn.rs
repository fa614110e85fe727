//! Warnings: what the reference server tells a client about an object that it accepts all the same.
//!
//! In: an object as [`crate::validate_create`] or [`crate::validate_update`] accepted it, and the one before it. Out: texts, in the reference server's
//! order. Left out: whether a TLS key belongs to its certificate, networks in an unusual form, and the kinds that only administrators of storage and of
//! admission write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_quantity::Quantity;
use serde_json::Value;

use crate::Kind;
use crate::json::{at, entries, has, int, list, text};
use crate::validate::text::{dns_label, label_value};

/// What is said about an object that was created, or that took the place of `old`.
#[must_use]
pub fn warnings(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let is_new = old.is_none();
    let moved = old.is_none_or(|old| int(old, "metadata.generation") != int(object, "metadata.generation"));
    let mut said = Said::default();
    match (kind.group, kind.kind) {
        // Pods are written so often that updates are not looked at.
        ("", "Pod") if is_new => {
            said.name(object, "the Pod's hostname");
            said.pod(object, "");
        }
        ("", "PodTemplate") if moved => said.pod(at(object, "template"), "template."),
        ("apps", "Deployment" | "ReplicaSet") | ("", "ReplicationController") => {
            if is_new {
                said.name(object, "Pod names and hostnames");
            }
            if moved {
                said.pod(at(object, "spec.template"), "spec.template.");
            }
        }
        ("apps", "DaemonSet") if moved => said.pod(at(object, "spec.template"), "spec.template."),
        ("apps", "StatefulSet") => {
            if moved {
                said.pod(at(object, "spec.template"), "spec.template.");
            }
            let inner = if is_new { "" } else { ".Spec" };
            for (n, claim) in list(object, "spec.volumeClaimTemplates").iter().enumerate() {
                said.claim(at(claim, "spec"), &format!("spec.volumeClaimTemplates[{n}]{inner}"));
            }
            if int(object, "spec.revisionHistoryLimit").is_some_and(|limit| limit < 0) {
                said.0.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
            }
        }
        ("batch", "Job") => {
            if is_new {
                said.name(object, "Pod names and hostnames");
            }
            if moved {
                said.job(at(object, "spec"), "spec");
            }
        }
        ("batch", "CronJob") => {
            if is_new {
                said.name(object, "Pod names and hostnames");
            }
            if moved {
                said.job(at(object, "spec.jobTemplate.spec"), "spec.jobTemplate.spec");
            }
            if !is_new && text(object, "spec.schedule").contains("TZ") {
                said.0.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".into());
            }
        }
        ("", "Service") => said.service(object),
        ("", "Secret") => said.secret(object),
        ("", "Node") => {
            if has(object, "spec.configSource") {
                said.0.push("spec.configSource: the feature is removed".into());
            }
            if !text(object, "spec.externalID").is_empty() {
                said.0.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
            }
        }
        ("", "ServiceAccount") => {
            const KEY: &str = "kubernetes.io/enforce-mountable-secrets";
            let has = |object: &Value| at(object, "metadata.annotations").get(KEY).is_some();
            if has(object) && !old.is_some_and(has) {
                said.say(
                    format_args!("metadata.annotations[{KEY}]"),
                    "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
                );
            }
        }
        ("", "PersistentVolumeClaim") => {
            said.annotation(object, "", "volume.beta.kubernetes.io/storage-class", CLASS_ANNOTATION);
            said.claim(at(object, "spec"), "spec");
        }
        ("", "PersistentVolume") => said.volume(object),
        ("", "ResourceQuota") if is_new => said.quota(object),
        ("networking.k8s.io", "Ingress")
            if is_new
                && at(object, "metadata.annotations").get(INGRESS_CLASS).is_some()
                && !has(object, "spec.ingressClassName") =>
        {
            said.0.push(format!(
                "annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"
            ));
        }
        _ => {}
    }
    said.0
}

const CLASS_ANNOTATION: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// Labels of nodes, and annotations, that have been replaced.
const OLD_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const OLD_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

fn old_label(label: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == label).map(|(_, why)| *why)
}

#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn say(&mut self, field: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.0.push(format!("{field}: {what}"));
    }

    fn name(&mut self, object: &Value, used_in: &str) {
        let problems = dns_label(text(object, "metadata.name"));
        if !problems.is_empty() {
            self.say(
                "metadata.name",
                format_args!(
                    "this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{}]",
                    problems.join(" ")
                ),
            );
        }
    }

    fn annotation(&mut self, object: &Value, base: &str, key: &str, why: &str) {
        if at(object, "metadata.annotations").get(key).is_some() {
            self.say(format_args!("{base}metadata.annotations[{key}]"), why);
        }
    }

    fn job(&mut self, spec: &Value, base: &str) {
        let number = |field| int(spec, field).unwrap_or(0);
        if text(spec, "completionMode") == "Indexed"
            && number("completions") > 100_000
            && number("parallelism") > 10_000
        {
            self.say(base, "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail");
        }
        self.pod(at(spec, "template"), &format!("{base}.template."));
    }

    /// A pod or a template of one; `base` is where it is, with a dot at its end unless it is everything.
    fn pod(&mut self, pod: &Value, base: &str) {
        let spec = at(pod, "spec");
        self.places(spec, base);
        for (key, why) in OLD_ANNOTATIONS.into_iter().filter(|_| has(pod, "metadata.annotations")) {
            self.annotation(pod, base, key, why);
        }
        for (n, volume) in list(spec, "volumes").iter().enumerate() {
            let at_volume = format_args!("{base}spec.volumes[{n}]");
            // A volume has two members, a name and a source; there are more sources than that.
            for (member, _) in volume.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
            {
                if let Some((source, why)) = OLD_VOLUMES.iter().find(|(source, _)| source == member) {
                    // The path alone is spelled so.
                    let source = if *source == "storageos" { "storageOS" } else { source };
                    self.say(format_args!("{at_volume}.{source}"), why);
                }
            }
            if has(volume, "ephemeral.volumeClaimTemplate") {
                let claim = at(volume, "ephemeral.volumeClaimTemplate.spec");
                self.claim(claim, &format!("{at_volume}.ephemeral.volumeClaimTemplate.spec"));
            }
        }
        for volume in list(spec, "volumes") {
            self.paths(volume);
        }
        self.twice(list(spec, "hostAliases"), "ip", format_args!("{base}spec.hostAliases"));
        let secrets = list(spec, "imagePullSecrets");
        self.twice(secrets, "name", format_args!("{base}spec.imagePullSecrets"));
        for (n, _) in secrets.iter().enumerate().filter(|(_, secret)| text(secret, "name").is_empty()) {
            self.say(format_args!("{base}spec.imagePullSecrets[{n}].name"), "invalid empty name \"\"");
        }
        for resource in ["memory", "ephemeral-storage"] {
            self.whole(at(spec, "overhead"), resource, format_args!("{base}spec.overhead"));
        }
        if !has(spec, "securityContext.seccompProfile") {
            self.annotation(pod, base, "seccomp.security.alpha.kubernetes.io/pod", SECCOMP);
        }
        let containers = containers(spec, base);
        for (container, path) in &containers {
            self.container(pod, container, path, base);
        }
        self.ports(&containers);
        if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
            let field = format!("{base}spec.terminationGracePeriodSeconds");
            self.say(field, "must be >= 0; negative values are invalid and will be treated as 1");
        }
        for kind in ["podAffinity", "podAntiAffinity"].into_iter().filter(|_| has(spec, "affinity")) {
            for (when, inner) in [("required", ""), ("preferred", "podAffinityTerm.")] {
                let field = format!("affinity.{kind}.{when}DuringSchedulingIgnoredDuringExecution");
                for (n, term) in list(spec, &field).iter().enumerate() {
                    if !has(term, &format!("{inner}labelSelector")) {
                        self.say(format_args!("{base}spec.{field}[{n}].{inner}labelSelector"), NO_SELECTOR);
                    }
                }
            }
        }
        for (n, server) in list(spec, "dnsConfig.nameservers").iter().enumerate() {
            self.address(server, &format!("{base}spec.dnsConfig.nameservers[{n}]"));
        }
        for (n, alias) in list(spec, "hostAliases").iter().enumerate() {
            self.address(at(alias, "ip"), &format!("{base}spec.hostAliases[{n}].ip"));
        }
    }

    /// Where a pod may go: labels of nodes that have been replaced.
    fn places(&mut self, spec: &Value, base: &str) {
        for (label, _) in entries(spec, "nodeSelector") {
            if let Some(why) = old_label(label) {
                self.say(format_args!("{base}spec.nodeSelector[{label}]"), why);
            }
        }
        let required =
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        for (n, term) in list(spec, required).iter().enumerate() {
            self.node_term(term, false, &format!("{base}spec.{required}[{n}]"));
        }
        let preferred = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        for (n, term) in list(spec, preferred).iter().enumerate() {
            self.node_term(at(term, "preference"), true, &format!("{base}spec.{preferred}[{n}].preference"));
        }
        for (n, spread) in list(spec, "topologySpreadConstraints").iter().enumerate() {
            let field = format!("{base}spec.topologySpreadConstraints[{n}]");
            let key = text(spread, "topologyKey");
            if let Some(why) = old_label(key) {
                self.say(format_args!("{field}.topologyKey"), format_args!("{key} is {why}"));
            }
            if !has(spread, "labelSelector") {
                self.say(format_args!("{field}.labelSelector"), NO_SELECTOR);
            }
        }
    }

    fn node_term(&mut self, term: &Value, with_values: bool, path: &str) {
        for (n, rule) in list(term, "matchExpressions").iter().enumerate() {
            let key = text(rule, "key");
            if let Some(why) = old_label(key) {
                self.say(format_args!("{path}.matchExpressions[{n}].key"), format_args!("{key} is {why}"));
            }
            let values = list(rule, "values").iter().enumerate().filter(|_| with_values);
            for (m, value) in values {
                let value = value.as_str().unwrap_or_default();
                for problem in label_value(value) {
                    let field = format!("{path}.matchExpressions[{n}].values[{m}]");
                    self.say(field, format_args!("{value} is invalid, {problem}"));
                }
            }
        }
    }

    /// Items of a list that share what should be their own.
    fn twice(&mut self, items: &[Value], key: &str, path: impl std::fmt::Display) {
        let mut seen = BTreeSet::new();
        for (n, item) in items.iter().enumerate() {
            if !seen.insert(text(item, key)) {
                self.say(
                    format_args!("{path}[{n}].{key}"),
                    format_args!("duplicate {key} {:?}", text(item, key)),
                );
            }
        }
    }

    /// Bytes come in whole numbers.
    fn whole(&mut self, amounts: &Value, resource: &str, path: impl std::fmt::Display) {
        let amount = amounts.get(resource).and_then(Value::as_str).and_then(|t| t.parse::<Quantity>().ok());
        if let Some(amount) = amount.filter(|amount| amount.milli_value() % 1000 != 0) {
            let what = format!("fractional byte value \"{amount}\" is invalid, must be an integer");
            self.say(format_args!("{path}[{resource}]"), what);
        }
    }

    fn claim(&mut self, spec: &Value, path: &str) {
        for which in ["requests", "limits"] {
            self.whole(at(at(spec, "resources"), which), "storage", format_args!("{path}.resources.{which}"));
        }
    }

    fn container(&mut self, pod: &Value, container: &Value, path: &str, base: &str) {
        let name = text(container, "name");
        let is_annotated = has(pod, "metadata.annotations");
        if is_annotated && !has(container, "securityContext.seccompProfile") {
            self.annotation(
                pod,
                base,
                &format!("container.seccomp.security.alpha.kubernetes.io/{name}"),
                SECCOMP,
            );
        }
        if is_annotated
            && !base.is_empty()
            && !has(container, "securityContext.appArmorProfile")
            && !has(pod, "spec.securityContext.appArmorProfile")
        {
            let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
            self.annotation(
                pod,
                base,
                &key,
                "deprecated since v1.30; use the \"appArmorProfile\" field instead",
            );
        }
        for resource in ["memory", "ephemeral-storage"] {
            for which in ["limits", "requests"] {
                let amounts = at(at(container, "resources"), which);
                self.whole(amounts, resource, format_args!("{path}.resources.{which}"));
            }
        }
        let mut seen = BTreeSet::new();
        for (n, variable) in list(container, "env").iter().enumerate() {
            let (name, value) = (text(variable, "name"), text(variable, "value"));
            if seen.insert(name) {
                continue;
            }
            // A later value may build on the earlier one.
            let earlier = format!("$({name})");
            if has(variable, "valueFrom") || value == earlier || !value.contains(&earlier) {
                let what =
                    format!("hides previous definition of {name:?}, which may be dropped when using apply");
                self.say(format_args!("{path}.env[{n}]"), what);
            }
        }
    }

    fn ports(&mut self, containers: &[(&Value, String)]) {
        let number = |port: &Value, field: &str| int(port, field).unwrap_or(0);
        let mut seen: BTreeMap<(i64, &str), Vec<(&Value, String)>> = BTreeMap::new();
        let all = || {
            containers.iter().flat_map(|(container, path)| {
                let ports = list(container, "ports").iter().enumerate();
                ports.map(move |(n, port)| (port, format!("{path}.ports[{n}]")))
            })
        };
        for (port, path) in all() {
            let (ip, host) = (text(port, "hostIP"), number(port, "hostPort"));
            if !ip.is_empty() && host == 0 {
                let shown = format!(
                    "{{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                    text(port, "name"),
                    number(port, "containerPort"),
                    text(port, "protocol")
                );
                self.say(&path, format_args!("hostIP set without hostPort: {shown}"));
            }
            let others = seen.entry((number(port, "containerPort"), text(port, "protocol"))).or_default();
            for (other, there) in others.iter() {
                let (other_ip, other_host) = (text(other, "hostIP"), number(other, "hostPort"));
                let how = if (ip, host) == (other_ip, other_host) {
                    "duplicate"
                } else if host == 0 || other_host == 0 {
                    "overlapping"
                } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                self.say(&path, format_args!("{how} port definition with {there}"));
            }
            others.push((port, path));
        }
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for (port, path) in all().filter(|(port, _)| !text(port, "name").is_empty()) {
            let name = text(port, "name");
            match names.get(name) {
                Some(first) => self.say(
                    path,
                    format_args!(
                        "duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                    ),
                ),
                None => {
                    names.insert(name, path);
                }
            }
        }
    }

    /// Files of one volume that would be in each other's place.
    fn paths(&mut self, volume: &Value) {
        let name = text(volume, "name");
        for (field, kind, key) in [
            ("configMap", "ConfigMap", Some("name")),
            ("secret", "Secret", Some("secretName")),
            ("downwardAPI", "DownwardAPI", None),
        ] {
            let source = at(volume, field);
            let found = files(source, Origin { kind: "", name: None });
            let what = Origin { kind, name: key.map(|key| text(source, key)) };
            self.meetings(name, what, &found.collect::<Vec<_>>());
        }
        if !has(volume, "projected") {
            return;
        }
        let mut found = Vec::new();
        for source in list(volume, "projected.sources") {
            if source.as_object().is_none_or(|source| source.values().all(Value::is_null)) {
                self.0.push(format!("volume {name:?} (Projected) has no sources provided"));
            }
            for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
                let inner = at(source, field);
                found.extend(files(inner, Origin { kind, name: Some(text(inner, "name")) }));
            }
            found.extend(files(at(source, "downwardAPI"), Origin { kind: "DownwardAPI", name: None }));
            if has(source, "serviceAccountToken") {
                let path = text(source, "serviceAccountToken.path").trim_end_matches('/');
                found.push(File { path, origin: Origin { kind: "ServiceAccountToken", name: None } });
            }
        }
        self.meetings(name, Origin { kind: "Projected", name: None }, &found);
    }

    /// Files of a volume that are in each other's place.
    fn meetings(&mut self, volume: &str, what: Origin<'_>, found: &[File<'_>]) {
        for (n, file) in found.iter().enumerate() {
            for other in found.iter().take(n).filter(|other| do_meet(other.path, file.path)) {
                self.say(
                    format_args!("volume {volume:?} ({what})"),
                    format_args!("overlapping paths: {file} with {other}"),
                );
            }
        }
    }

    fn service(&mut self, service: &Value) {
        let spec = at(service, "spec");
        let kind = text(spec, "type");
        let headless = kind == "ClusterIP" && text(spec, "clusterIP") == "None";
        let external = list(spec, "externalIPs");
        if at(service, "metadata.annotations").get("service.kubernetes.io/topology-aware-hints").is_some() {
            self.0.push("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead".into());
        }
        if !matches!(text(spec, "clusterIP"), "" | "None") {
            for (n, address) in list(spec, "clusterIPs").iter().enumerate() {
                self.address(address, &format!("spec.clusterIPs[{n}]"));
            }
        }
        if headless {
            for (field, is_set) in [
                ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
                ("externalIPs", !external.is_empty()),
                ("SessionAffinity", text(spec, "sessionAffinity") != "None"),
            ] {
                if is_set {
                    self.0.push(format!("spec.{field} is ignored for headless services"));
                }
            }
        }
        for (n, address) in external.iter().enumerate() {
            self.address(address, &format!("spec.externalIPs[{n}]"));
        }
        if !external.is_empty() && !headless && kind != "ExternalName" {
            self.0.push(
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters".into(),
            );
        }
        self.address(at(spec, "loadBalancerIP"), "spec.loadBalancerIP");
        if kind == "ExternalName" && !external.is_empty() {
            self.0.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
        }
        if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
            self.0.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
        }
        if text(spec, "trafficDistribution") == "PreferClose" {
            self.say("spec.trafficDistribution", "\"PreferClose\" is deprecated; use \"PreferSameZone\"");
        }
    }

    /// A TLS secret should hold PEM. The text is base64, and so is the beginning of a PEM block.
    fn secret(&mut self, secret: &Value) {
        if text(secret, "type") != "kubernetes.io/tls" {
            return;
        }
        let is_pem = |key: &str| {
            let value = at(secret, "data").get(key).and_then(Value::as_str).unwrap_or_default();
            value.starts_with("LS0tLS1CRUdJTi")
        };
        if !is_pem("tls.crt") {
            self.0.push("tls: failed to find any PEM data in certificate input".into());
        } else if !is_pem("tls.key") {
            self.0.push("tls: failed to find any PEM data in key input".into());
        }
    }

    fn volume(&mut self, volume: &Value) {
        self.annotation(volume, "", "volume.beta.kubernetes.io/storage-class", CLASS_ANNOTATION);
        let mount = "deprecated since v1.31; use \"mountOptions\" attribute instead";
        self.annotation(volume, "", "volume.beta.kubernetes.io/mount-options", mount);
        let spec = at(volume, "spec");
        if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
            self.say("spec.persistentVolumeReclaimPolicy", "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.");
        }
        for (n, term) in list(spec, "nodeAffinity.required.nodeSelectorTerms").iter().enumerate() {
            self.node_term(term, false, &format!("spec.nodeAffinity.required.nodeSelectorTerms[{n}]"));
        }
    }

    fn quota(&mut self, quota: &Value) {
        let hard = at(quota, "spec.hard");
        let amount = |name: &str| hard.get(name)?.as_str()?.parse::<Quantity>().ok();
        for resource in ["cpu", "memory", "ephemeral-storage"] {
            let limits = format!("limits.{resource}");
            let mut requests = format!("requests.{resource}");
            if amount(&requests).is_none() && resource != "ephemeral-storage" {
                requests = resource.to_owned();
            }
            if let (Some(request), Some(limit)) = (amount(&requests), amount(&limits))
                && request > limit
            {
                self.0.push(format!(
                    "ResourceQuota {requests} ({request}) should be less than {limits} ({limit})"
                ));
            }
        }
    }

    /// An address in a form that is accepted and better avoided.
    fn address(&mut self, address: &Value, path: &str) {
        let Some(text) = address.as_str() else { return };
        if let Ok(IpAddr::V6(six)) = text.parse::<IpAddr>() {
            if let Some(four) = six.to_ipv4_mapped() {
                self.say(path, format_args!("non-standard IP address {text:?} is invalid: use \"{four}\""));
            } else if six.to_string() != text {
                self.say(
                    path,
                    format_args!("IPv6 address {text:?} should be in RFC 5952 canonical format (\"{six}\")"),
                );
            }
        } else if text.parse::<Ipv4Addr>().is_err() && text.parse::<Ipv6Addr>().is_err() {
            let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
            if let Some([a, b, c, d]) = parts.as_deref() {
                let four = Ipv4Addr::new(*a, *b, *c, *d);
                self.say(path, format_args!("non-standard IP address {text:?} is invalid: use \"{four}\""));
            }
        }
    }
}

const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// All containers with their paths, in the order in which the reference server visits them.
fn containers<'a>(spec: &'a Value, base: &str) -> Vec<(&'a Value, String)> {
    let mut found = Vec::new();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for (n, container) in list(spec, field).iter().enumerate() {
            found.push((container, format!("{base}spec.{field}[{n}]")));
        }
    }
    found
}

/// A file of a volume.
#[derive(Clone, Copy)]
struct File<'a> {
    path: &'a str,
    origin: Origin<'a>,
}

/// Where a file comes from; without a kind there is no need to say it.
#[derive(Clone, Copy)]
struct Origin<'a> {
    kind: &'static str,
    name: Option<&'a str>,
}

impl Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{} {name:?}", self.kind),
            None => f.write_str(self.kind),
        }
    }
}

impl Display for File<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let File { path, origin } = self;
        if origin.kind.is_empty() { write!(f, "{path:?}") } else { write!(f, "{path:?} ({origin})") }
    }
}

fn files<'a>(source: &'a Value, origin: Origin<'a>) -> impl Iterator<Item = File<'a>> {
    let path = |item| text(item, "path").trim_end_matches('/');
    list(source, "items").iter().map(move |item| File { path: path(item), origin })
}

/// Whether one of two paths is inside the other, or they are one.
fn do_meet(one: &str, two: &str) -> bool {
    let is_inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    !one.is_empty() && !two.is_empty() && (is_inside(one, two) || is_inside(two, one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(kind: &str, object: Value, expected: &[&str]) {
        let kind = crate::kinds(crate::KubeVersion::V1_36).iter().find(|k| k.kind == kind).unwrap();
        assert_eq!(warnings(kind, &object, None), expected);
    }

    #[test]
    fn pods() {
        let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
        check("Pod", pod(json!({"containers": [{"name": "c"}]})), &[]);
        check(
            "Pod",
            json!({"metadata": {"name": "a.b"}}),
            &[
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
            ],
        );
        let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}]);
        check(
            "Pod",
            pod(json!({"containers": [{"name": "c", "env": env}]})),
            &[
                "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
            ],
        );
        let port = |n: i64| json!({"containerPort": 80, "protocol": "TCP", "hostPort": n});
        check(
            "Pod",
            pod(
                json!({"initContainers": [{"ports": [port(0)]}], "containers": [{"ports": [port(0), port(7)]}]}),
            ),
            &[
                "spec.containers[0].ports[0]: duplicate port definition with spec.initContainers[0].ports[0]",
                "spec.containers[0].ports[1]: overlapping port definition with spec.initContainers[0].ports[0]",
                "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
            ],
        );
        check(
            "Pod",
            pod(json!({"containers": [{"resources": {"limits": {"memory": "100m", "cpu": "100m"}}}]})),
            &[
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ],
        );
        let items =
            json!([{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}, {"key": "c", "path": "xy"}]);
        check(
            "Pod",
            pod(json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]})),
            &["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"x/y\" with \"x\""],
        );
    }

    #[test]
    fn templates_only_when_they_move() {
        let job = |generation: i64| {
            json!({"metadata": {"name": "j", "generation": generation}, "spec": {"template": {"spec": {
            "nodeSelector": {"beta.kubernetes.io/os": "linux"}}}}})
        };
        let said = "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead";
        check("Job", job(1), &[said]);
        let kind = crate::kinds(crate::KubeVersion::V1_36).iter().find(|k| k.kind == "Job").unwrap();
        assert_eq!(warnings(kind, &job(2), Some(&job(2))), [""; 0]);
        assert_eq!(warnings(kind, &job(2), Some(&job(1))), [said]);
    }

    #[test]
    fn services_and_others() {
        let service =
            json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP"}});
        check("Service", service, &["spec.SessionAffinity is ignored for headless services"]);
        let service = json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "externalIPs": ["1.2.3.04", "2001:0::1"]}});
        check(
            "Service",
            service,
            &[
                "spec.externalIPs[0]: non-standard IP address \"1.2.3.04\" is invalid: use \"1.2.3.4\"",
                "spec.externalIPs[1]: IPv6 address \"2001:0::1\" should be in RFC 5952 canonical format (\"2001::1\")",
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            ],
        );
        let quota = json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1", "requests.memory": "1Gi", "limits.memory": "2Gi"}}});
        check("ResourceQuota", quota, &["ResourceQuota cpu (2) should be less than limits.cpu (1)"]);
    }
}
