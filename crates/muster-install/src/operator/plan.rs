//! What the operator wants, and what it says about it.
//!
//! In: the Config, its shards, what is there. Out: the objects to apply and to delete, and the conditions. Must stay true:
//! what a Config or a shard says is done, or said in the condition `Warnings`; nothing is dropped in silence. Only what
//! carries the operator's label and is owned by this very Config is ever deleted, and never a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use muster_runtime::clock::{stamp, whole};
use muster_runtime::object::Meta;
use serde_json::{Map, Value, json};

use super::{CONFIG, Config, GROVE, KUEUE, LISTEN, MANAGED_BY, NETWORK, SchedulingShard, WANTED};
use crate::component::Component;
use crate::monitoring;
use crate::objects::{self, path, split_image};
use crate::settings::{self, HEALTH_PORT, METRICS_PORT, Set, Settings, Shard, WEBHOOK_PORT};

/// What the operator knows besides the Config.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    /// The operator's own image: everything runs from it unless the Config names another.
    pub image: String,
    /// The namespace that the operator runs in: it is there, and not the operator's to make.
    pub namespace: String,
    /// Whether the kinds of the Prometheus operator are served.
    pub monitoring: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Made if absent, and never deleted.
    pub namespaces: Vec<Value>,
    /// Applied in this order.
    pub objects: Vec<Value>,
    /// Names of Deployments by the shard that they serve.
    pub schedulers: BTreeMap<String, String>,
    pub warnings: Vec<String>,
    pub shard_warnings: BTreeMap<String, Vec<String>>,
    /// What the Config needs and the cluster does not have.
    pub missing: Vec<String>,
}

pub fn plan(config: &Config, shards: &[&SchedulingShard], around: &Surroundings) -> Plan {
    let mut warnings = Vec::new();
    let mut settings = settings(&config.spec, around, &mut warnings);
    let wanted = config.metadata.annotation(GROVE).unwrap_or_default();
    settings.sets.extend(grove(wanted, &config.spec, &mut warnings));
    let wanted = config.metadata.annotation(KUEUE).unwrap_or_default();
    if let Some((set, configuration)) = kueue(wanted, &config.spec, &mut warnings) {
        settings.sets.push(set);
        settings.kueue_config = configuration;
    }
    network(config.metadata.annotation(NETWORK).unwrap_or_default(), &mut settings, &mut warnings);
    if let Some(address) = config.metadata.annotation(LISTEN) {
        match address.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => settings.listen = address.to_string(),
            Ok(IpAddr::V6(address)) => settings.listen = format!("[{address}]"),
            Err(_) => warnings.push(format!("annotation {LISTEN} is no address")),
        }
    }
    let (mut schedulers, mut shard_warnings) = (BTreeMap::new(), BTreeMap::new());
    let mut pools: BTreeMap<String, String> = BTreeMap::new();
    settings.shards.clear();
    for shard in shards {
        let mut said = Vec::new();
        let made = scheduler_of(shard, &mut said);
        let name = shard.metadata.name.clone();
        if let Some(first) = pools.get(&made.partition) {
            said.push(format!(
                "has the same partitionLabelValue as shard {first}: only one of the two works at a time"
            ));
        } else {
            pools.insert(made.partition.clone(), name.clone());
        }
        schedulers.insert(name.clone(), made.name.clone());
        shard_warnings.insert(name, said);
        settings.shards.push(made);
    }
    if shards.is_empty() {
        warnings.push("there is no SchedulingShard, so nothing is scheduled".to_owned());
    }
    let mut missing = Vec::new();
    let mut objects = objects::running(&settings);
    if settings.monitoring {
        if around.monitoring {
            objects.extend(monitoring::objects(&settings));
        } else {
            missing
                .push("monitoring.coreos.com/v1 (the Prometheus operator), for spec.prometheus".to_owned());
        }
    }
    for object in &mut objects {
        adopt(object, &config.metadata);
        object["metadata"]["annotations"][WANTED] = json!(sum(object));
    }
    let mut namespaces = objects::namespaces(&settings);
    namespaces.retain(|n| n["metadata"]["name"] != around.namespace.as_str());
    Plan { namespaces, objects, schedulers, warnings, shard_warnings, missing }
}

/// A sum of an object, FNV-1a: what is there and has this sum on it is what was wanted when it was written.
fn sum(object: &Value) -> String {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = object.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{sum:016x}")
}

/// Whether NetworkPolicies are wanted, and where the API server is.
fn network(wanted: &str, settings: &mut Settings, warnings: &mut Vec<String>) {
    match wanted.trim() {
        "" | "true" => {}
        "false" => settings.network_policies = false,
        ports => match ports.split(',').map(|port| port.trim().parse()).collect::<Result<Vec<u16>, _>>() {
            Ok(ports) => settings.api_ports = settings::ports(&ports),
            Err(_) => warnings.push(format!(
                "annotation {NETWORK} is none of true, false and ports with commas between them"
            )),
        },
    }
}

/// Makes an object the Config's, so that it goes when the Config goes.
fn adopt(object: &mut Value, owner: &Meta) {
    object["metadata"]["labels"][MANAGED_BY.0] = json!(MANAGED_BY.1);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kai.scheduler/v1", "kind": "Config", "name": owner.name, "uid": owner.uid, "controller": true,
    }]);
}

/// A service of KAI's Config, and what it is here.
const SERVICES: &[(&str, &str, Component)] = &[
    ("binder", "muster-binder", Component::Binder),
    ("podGrouper", "muster-grouper", Component::Grouper),
    ("podGroupController", "muster-podgroups", Component::Podgroups),
    ("queueController", "muster-queues", Component::Queues),
    ("nodeScaleAdjuster", "muster-scale-adjuster", Component::ScaleAdjuster),
    ("admission", "muster-admission", Component::Admission),
];

/// Grove as one Deployment: what it has is one process's, and `muster run` gives each part a lease of its own.
fn grove(wanted: &str, spec: &Value, warnings: &mut Vec<String>) -> Option<Set> {
    let mut components: Vec<Component> = Vec::new();
    for name in wanted.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "false")) {
        match Component::GROVE.into_iter().find(|component| component.name() == name) {
            Some(component) => components.push(component),
            None if name == "true" => components.extend(Component::GROVE),
            None => {
                let known: Vec<&str> = Component::GROVE.iter().map(|component| component.name()).collect();
                warnings.push(format!(
                    "annotation {GROVE} names {name}, which is none of true, false, {}",
                    known.join(", ")
                ));
            }
        }
    }
    components.sort_unstable();
    components.dedup();
    if components.is_empty() {
        return None;
    }
    let default = Settings::default();
    let known = default.sets.into_iter().find(|set| set.components.contains(&Component::Grove))?;
    let replicas = number(spec.pointer("/global/replicaCount")).unwrap_or(1);
    Some(Set::new(&known.name, &components, replicas, known.resources))
}

/// Kueue as one Deployment, and its configuration.
fn kueue(wanted: &str, spec: &Value, warnings: &mut Vec<String>) -> Option<(Set, Value)> {
    let configuration = match wanted.trim() {
        "" | "false" => return None,
        "true" => json!({}),
        text => match serde_json::from_str::<Value>(text).ok().filter(Value::is_object) {
            Some(configuration) => configuration,
            None => {
                warnings.push(format!(
                    "annotation {KUEUE} is none of true, false and a Configuration of Kueue's as JSON"
                ));
                return None;
            }
        },
    };
    let default = Settings::default();
    let known = default.sets.into_iter().find(|set| set.components.contains(&Component::Kueue))?;
    let replicas = number(spec.pointer("/global/replicaCount")).unwrap_or(1);
    Some((Set::new(&known.name, &known.components, replicas, known.resources), configuration))
}

fn settings(spec: &Value, around: &Surroundings, warnings: &mut Vec<String>) -> Settings {
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).filter(|t| !t.is_empty());
    let yes = |pointer: &str| spec.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
    let given = |pointer: &str| spec.pointer(pointer).filter(|v| !is_nothing(v)).cloned();
    let default = Settings::default();
    let mut pull_secrets: Vec<Value> =
        text("/global/imagesPullSecret").into_iter().map(|n| json!({"name": n})).collect();
    if let Some(more) = spec.pointer("/global/additionalImagePullSecrets").and_then(Value::as_array) {
        pull_secrets.extend(more.iter().filter_map(Value::as_str).map(|n| json!({"name": n})));
    }
    let replicas = number(spec.pointer("/global/replicaCount"));
    let names = text("/global/schedulerName").unwrap_or("kai-scheduler");
    let mut out = Settings {
        namespace: text("/namespace").unwrap_or("kai-scheduler").to_owned(),
        image: around.image.clone(),
        pull_secrets: Value::Array(pull_secrets),
        scheduler_names: names.split(',').map(|n| n.trim().to_owned()).collect(),
        queue_label: text("/global/queueLabelKey").unwrap_or(&default.queue_label).to_owned(),
        node_pool_label: text("/global/nodePoolLabelKey").unwrap_or(&default.node_pool_label).to_owned(),
        reservation_namespace: text("/binder/resourceReservation/namespace")
            .unwrap_or(&default.reservation_namespace)
            .to_owned(),
        reservation_account: text("/binder/resourceReservation/serviceAccountName")
            .unwrap_or(&default.reservation_account)
            .to_owned(),
        scale_namespace: text("/nodeScaleAdjuster/args/nodeScaleNamespace")
            .unwrap_or(&default.scale_namespace)
            .to_owned(),
        monitoring: yes("/prometheus/enabled") || yes("/prometheus/serviceMonitor/enabled"),
        node_selector: given("/global/nodeSelector").unwrap_or_else(|| json!({})),
        tolerations: given("/global/tolerations").unwrap_or_else(|| json!([])),
        affinity: given("/global/affinity").unwrap_or(Value::Null),
        strict_anti_affinity: yes("/global/requireDefaultPodAntiAffinityTerm"),
        // An empty name leaves pods without a class; so does an absent one, as with KAI.
        priority_class: text("/global/priorityClassName").unwrap_or_default().to_owned(),
        security_context: given("/global/securityContext").unwrap_or(Value::Null),
        run_as: default.run_as.filter(|_| !yes("/global/openshift")),
        scrape_interval: text("/prometheus/serviceMonitor/interval")
            .unwrap_or(&default.scrape_interval)
            .to_owned(),
        scrape_timeout: text("/prometheus/serviceMonitor/scrapeTimeout")
            .unwrap_or(&default.scrape_timeout)
            .to_owned(),
        json_logs: yes("/global/jsonLog"),
        sets: Vec::new(),
        ..Settings::default()
    };
    let base = |name: &str, components: &[Component]| {
        let known = default.sets.iter().find(|s| components.iter().all(|c| s.components.contains(c)));
        let resources = known.unwrap_or(&default.scheduler).resources.clone();
        Set::new(name, components, replicas.unwrap_or(1), resources)
    };
    for (field, name, component) in SERVICES {
        if spec.pointer(&format!("/{field}/service/enabled")).and_then(Value::as_bool) == Some(false) {
            continue;
        }
        let mut set = service(spec, field, base(name, &[*component]), around, warnings);
        set.args = flags(spec, *component);
        out.sets.push(set);
    }
    // The binder is a Deployment of its own here, because the Config has settings for it. Schedulers bind by themselves all
    // the same, so they are told what the binder is told.
    out.scheduler = service(spec, "scheduler", base("", &[Component::Scheduler]), around, warnings);
    out.scheduler.args = flags(spec, Component::Binder);
    if spec.pointer("/scheduler/service/enabled").and_then(Value::as_bool) == Some(false) {
        out.scheduler.replicas = 0;
        warnings.push("spec.scheduler.service.enabled is false, so nothing is scheduled".to_owned());
    }
    out.reservation_image = image(
        spec.pointer("/binder/resourceReservation/image"),
        "spec.binder.resourceReservation.image",
        around,
        warnings,
    );
    let scale_image = spec.pointer("/nodeScaleAdjuster/args/scalingPodImage");
    if let Some(image) = image(scale_image, "spec.nodeScaleAdjuster.args.scalingPodImage", around, warnings)
        && let Some(set) = out.sets.iter_mut().find(|s| s.components.contains(&Component::ScaleAdjuster))
    {
        set.args.push(format!("--scale-image={image}"));
    }
    for (pointer, done, why) in NO_EFFECT {
        if spec.pointer(pointer).is_some_and(|value| !done.is(value)) {
            warnings.push(format!("spec{} has no effect: {why}", pointer.replace('/', ".")));
        }
    }
    if yes("/prometheus/enabled") {
        warnings
            .push(format!("spec.prometheus.enabled brings only what a Prometheus reads: {NO_PROMETHEUS}"));
    }
    let exporter = spec.get("numaPlacementExporter").filter(|v| !is_nothing(v));
    if exporter.is_some_and(|v| v.pointer("/service/enabled") != Some(&Value::Bool(false))) {
        warnings.push(
            "spec.numaPlacementExporter has no effect: Muster has no NUMA placement exporter".to_owned(),
        );
    }
    out
}

/// What of the Config becomes flags of a component: where it is, whose it is, the flag. The flags are KAI's own where KAI has
/// one. A process gets such a flag only if the Config says so.
pub const CONFIG_FLAGS: &[(&str, Component, &str)] = &[
    ("/admission/gpuSharing", Component::Admission, "gpu-sharing-enabled"),
    ("/admission/blockNvidiaVisibleDevices", Component::Admission, "block-nvidia-visible-devices"),
    ("/admission/gpuPodRuntimeClassName", Component::Admission, "gpu-fraction-runtime-class-name"),
    ("/admission/gpuFractionRuntimeClassName", Component::Admission, "gpu-fraction-runtime-class-name"),
    ("/admission/queueLabelSelector", Component::Admission, "only-pods-with-queue"),
    ("/global/podLabelSelector", Component::Admission, "pod-label-selector"),
    ("/global/namespaceLabelSelector", Component::Admission, "namespace-label-selector"),
    ("/podGrouper/args/gangScheduleKnative", Component::Grouper, "knative-gang-schedule"),
    (
        "/podGrouper/args/defaultPrioritiesConfigMapName",
        Component::Grouper,
        "default-priorities-configmap-name",
    ),
    (
        "/podGrouper/args/defaultPrioritiesConfigMapNamespace",
        Component::Grouper,
        "default-priorities-configmap-namespace",
    ),
    ("/global/podLabelSelector", Component::Grouper, "pod-label-selector"),
    ("/global/namespaceLabelSelector", Component::Grouper, "namespace-label-selector"),
    ("/binder/maxConcurrentReconciles", Component::Binder, "max-concurrent-binds"),
    ("/binder/volumeBindingTimeoutSeconds", Component::Binder, "volume-binding-timeout-seconds"),
    ("/binder/cdiEnabled", Component::Binder, "cdi-enabled"),
    ("/binder/resourceReservation/appLabel", Component::Binder, "reservation-app-label"),
    ("/binder/resourceReservation/runtimeClassName", Component::Binder, "reservation-runtime-class-name"),
    ("/binder/resourceReservation/allocationTimeout", Component::Binder, "reservation-timeout-seconds"),
    ("/nodeScaleAdjuster/args/nodeScaleServiceAccount", Component::ScaleAdjuster, "scale-service-account"),
    (
        "/nodeScaleAdjuster/args/gpuMemoryToFractionRatio",
        Component::ScaleAdjuster,
        "gpu-memory-to-fraction-ratio",
    ),
];

/// The ConfigMap that the grouper reads priorities from.
const PRIORITIES_FROM: [&str; 2] =
    ["default-priorities-configmap-name", "default-priorities-configmap-namespace"];

/// The flags for a component that the Config asks for. Of two that mean the same, the later one counts.
fn flags(spec: &Value, component: Component) -> Vec<String> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for (pointer, _, flag) in CONFIG_FLAGS.iter().filter(|(_, whose, _)| *whose == component) {
        let text = match spec.pointer(pointer) {
            None | Some(Value::Null | Value::Array(_)) => continue,
            Some(Value::String(text)) => text.clone(),
            // A selector.
            Some(Value::Object(labels)) => {
                let pairs =
                    labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
                pairs.collect::<Vec<_>>().join(",")
            }
            Some(other) => other.to_string(),
        };
        if !text.is_empty() {
            found.insert(flag, text);
        }
    }
    // One says nothing without the other.
    if !PRIORITIES_FROM.iter().all(|flag| found.contains_key(flag)) {
        PRIORITIES_FROM.iter().for_each(|flag| drop(found.remove(flag)));
    }
    found.into_iter().map(|(flag, text)| format!("--{flag}={text}")).collect()
}

/// What is done in any case: a field that asks for just that is not warned of.
#[derive(Debug, Clone, Copy)]
enum Done {
    Nothing,
    Yes,
    Number(u16),
    Text(&'static str),
}

impl Done {
    fn is(self, value: &Value) -> bool {
        match self {
            Done::Nothing => is_nothing(value),
            Done::Yes => value.is_null() || *value == true,
            Done::Number(n) => value.is_null() || *value == n,
            Done::Text(text) => value.is_null() || value == "" || *value == text,
        }
    }
}

const NO_PROMETHEUS: &str = "Muster deploys no Prometheus of its own";
const CALLED: &str = "the configuration is called muster-admission";
const BY_ADMISSION: &str = "webhooks are served by muster-admission";
const QUEUE_METRICS: &str = "metrics of queues carry the queue's name only; where kube-state-metrics exports labels of queues, join by queue_name";
const PORTS: &str =
    "the ports are 8080 for metrics, 8081 for probes, and 9443 for webhooks behind 443 of the Service";
const VALIDATED: &str = "what is created is checked by muster-admission, as a whole or not at all";
const AT_A_TIME: &str = "how many are worked on at a time is fixed";

/// What Muster does without, or does in another way, and why. What concerns only the Go runtime or the client's own limits is left out:
/// there is nothing to be warned of. (A test goes through every field of the CRD.)
const NO_EFFECT: &[(&str, Done, &str)] = &[
    ("/global/vpa/enabled", Done::Nothing, "set resources instead"),
    ("/global/daemonsetsTolerations", Done::Nothing, "Muster has no DaemonSets"),
    ("/binder/plugins", Done::Nothing, "the binder's steps are fixed"),
    ("/binder/metricsPort", Done::Number(METRICS_PORT), PORTS),
    ("/binder/probePort", Done::Number(HEALTH_PORT), PORTS),
    ("/binder/resourceReservation/podResources", Done::Nothing, "the pods ask for what they need"),
    ("/binder/resourceReservation/reservationPodSecurityContext", Done::Nothing, "the pods need none"),
    ("/binder/resourceReservation/reservationContainerSecurityContext", Done::Nothing, "the pods need none"),
    (
        "/binder/resourceReservation/image/pullPolicy",
        Done::Text("IfNotPresent"),
        "the cluster's default holds for such pods",
    ),
    (
        "/nodeScaleAdjuster/args/scalingPodImage/pullPolicy",
        Done::Text("IfNotPresent"),
        "the cluster's default holds for such pods",
    ),
    ("/admission/mutatingWebhookConfigurationName", Done::Text(settings::WEBHOOKS), CALLED),
    ("/admission/validatingWebhookConfigurationName", Done::Text(settings::WEBHOOKS), CALLED),
    ("/admission/webhook/metricsPort", Done::Number(METRICS_PORT), PORTS),
    ("/admission/webhook/probePort", Done::Number(HEALTH_PORT), PORTS),
    ("/admission/webhook/port", Done::Number(443), PORTS),
    ("/admission/webhook/targetPort", Done::Number(WEBHOOK_PORT), PORTS),
    ("/scheduler/schedulerService/type", Done::Text("ClusterIP"), "the Services are of type ClusterIP"),
    ("/scheduler/schedulerService/port", Done::Number(METRICS_PORT), PORTS),
    ("/scheduler/schedulerService/targetPort", Done::Number(METRICS_PORT), PORTS),
    ("/podGrouper/maxConcurrentReconciles", Done::Nothing, AT_A_TIME),
    (
        "/podGrouper/args/genericKartaFallback",
        Done::Nothing,
        "Muster reads no Kartas; such workloads are grouped by their owners",
    ),
    ("/podGroupController/maxConcurrentReconciles", Done::Nothing, AT_A_TIME),
    ("/podGroupController/webhooks/enableValidation", Done::Yes, VALIDATED),
    ("/podGroupController/webhooks/webhookConfigurationNamePrefix", Done::Nothing, CALLED),
    ("/podGroupController/controllerService/webhook", Done::Nothing, BY_ADMISSION),
    ("/queueController/webhooks/enableValidation", Done::Yes, VALIDATED),
    ("/queueController/webhooks/webhookConfigurationNamePrefix", Done::Nothing, CALLED),
    ("/queueController/controllerService/webhook", Done::Nothing, BY_ADMISSION),
    ("/queueController/controllerService/metrics/name", Done::Text("metrics"), "the port is called metrics"),
    ("/queueController/controllerService/metrics/port", Done::Number(METRICS_PORT), PORTS),
    ("/queueController/controllerService/metrics/targetPort", Done::Number(METRICS_PORT), PORTS),
    ("/queueController/metricsNamespace", Done::Text("kai"), "metrics keep KAI's prefix, kai_"),
    ("/queueController/queueLabelToMetricLabel", Done::Nothing, QUEUE_METRICS),
    ("/queueController/queueLabelToDefaultMetricValue", Done::Nothing, QUEUE_METRICS),
    ("/prometheus/instanceName", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/sampleInterval", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/enablePersistentStorage", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/storageSize", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/storageClassName", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/retentionPeriod", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/accountingLabelKey", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/accountingLabelValue", Done::Nothing, NO_PROMETHEUS),
    ("/prometheus/externalPrometheusUrl", Done::Nothing, "usage is not read from Prometheus"),
    ("/prometheus/externalPrometheusHealthProbe", Done::Nothing, "usage is not read from Prometheus"),
    (
        "/prometheus/serviceMonitor/bearerTokenFile",
        Done::Nothing,
        "metrics are served to whoever reaches them, without a token",
    ),
];

/// One service of the Config applied to a set.
fn service(
    spec: &Value,
    field: &str,
    mut set: Set,
    around: &Surroundings,
    warnings: &mut Vec<String>,
) -> Set {
    let at = |rest: &str| spec.pointer(&format!("/{field}/{rest}"));
    if let Some(replicas) = number(at("replicas")) {
        set.replicas = replicas;
    }
    if let Some(resources) = at("service/resources").filter(|v| !is_nothing(v)) {
        set.resources = resources.clone();
    }
    if let Some(affinity) = at("service/affinity").filter(|v| !is_nothing(v)) {
        set.affinity = affinity.clone();
    }
    set.image = image(at("service/image"), &format!("spec.{field}.service.image"), around, warnings);
    set.pull_policy = at("service/image/pullPolicy").and_then(Value::as_str).map(str::to_owned);
    if at("service/podDisruptionBudget/enabled").and_then(Value::as_bool) == Some(false) {
        set.max_unavailable = None;
    } else if let Some(n) = number(at("service/podDisruptionBudget/maxUnavailable")) {
        set.max_unavailable = Some(n);
    }
    if at("vpa/enabled").and_then(Value::as_bool) == Some(true) {
        warnings.push(format!("spec.{field}.vpa has no effect: set resources instead"));
    }
    set
}

/// The images of KAI's own programs, which do not know Muster's command line.
const KAI_IMAGES: &[&str] = &[
    "scheduler",
    "binder",
    "pod-grouper",
    "podgrouper",
    "pod-group-controller",
    "podgroupcontroller",
    "podgroup-controller",
    "queue-controller",
    "queuecontroller",
    "admission",
    "node-scale-adjuster",
    "nodescaleadjuster",
    "resource-reservation",
    "resourcereservation",
    "scalingpod",
];

fn image(
    given: Option<&Value>,
    field: &str,
    around: &Surroundings,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let part = |name: &str| given?.get(name)?.as_str().filter(|t| !t.is_empty());
    let (repository, name, tag) = split_image(&around.image);
    if part("repository").is_none() && part("name").is_none() && part("tag").is_none() {
        return None;
    }
    if let Some(other) = part("name").filter(|n| KAI_IMAGES.contains(n)) {
        warnings.push(format!("{field} names {other}, a program of KAI; {} is used", around.image));
        return None;
    }
    let repository = part("repository").unwrap_or(repository);
    let slash = if repository.is_empty() { "" } else { "/" };
    Some(format!("{repository}{slash}{}:{}", part("name").unwrap_or(name), part("tag").unwrap_or(tag)))
}

fn number(value: Option<&Value>) -> Option<u32> {
    u32::try_from(value?.as_i64()?).ok()
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) | Value::Bool(true) => false,
    }
}

/// The scheduler of a shard. Its configuration file is the shard's own spec, which says most of it.
fn scheduler_of(shard: &SchedulingShard, warnings: &mut Vec<String>) -> Shard {
    let spec = if shard.spec.is_object() { shard.spec.clone() } else { json!({}) };
    let mut args = Vec::new();
    for (key, value) in spec.get("args").and_then(Value::as_object).unwrap_or(&Map::new()) {
        match argument(key) {
            Argument::InFile | Argument::NotNeeded => {}
            Argument::Flag(flag) => args.push(format!("--{flag}={}", value.as_str().unwrap_or_default())),
            Argument::NoEffect => warnings.push(format!("argument {key} has no effect")),
            Argument::Unknown(None) => warnings.push(format!("argument {key} is unknown")),
            Argument::Unknown(Some(near)) => {
                warnings.push(format!("argument {key} is unknown; did you mean {near}?"));
            }
        }
    }
    for (field, why) in [
        ("usageDBConfig", "past usage is not read"),
        ("scenarioSearchBudgets", "searches are bounded by their own budgets"),
    ] {
        if spec.get(field).is_some_and(|v| !is_nothing(v)) {
            warnings.push(format!("spec.{field} has no effect: {why}"));
        }
    }
    let partition = spec.get("partitionLabelValue").and_then(Value::as_str).unwrap_or_default().to_owned();
    Shard { name: scheduler_name(&shard.metadata.name), partition, spec, args }
}

/// A name that can be a label too, and so has at most 63 letters.
fn scheduler_name(shard: &str) -> String {
    let name = format!("muster-scheduler-{shard}");
    if name.len() <= 63 {
        return name;
    }
    let sum = crate::workload::adler32(shard.as_bytes());
    let start: String = name.chars().take(54).collect();
    format!("{}-{sum:08x}", start.trim_end_matches(['-', '.']))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    /// The scheduler reads it from its configuration file.
    InFile,
    /// It becomes this flag.
    Flag(&'static str),
    /// What it asks for is so in any case.
    NotNeeded,
    NoEffect,
    Unknown(Option<&'static str>),
}

/// The arguments of KAI's scheduler.
const ARGUMENTS: &[(&str, Argument)] = &[
    ("max-consolidation-preemptees", Argument::InFile),
    ("allow-consolidating-reclaim", Argument::InFile),
    ("full-hierarchy-fairness", Argument::InFile),
    ("default-staleness-grace-period", Argument::InFile),
    ("partition-label-value", Argument::InFile),
    ("nodepool-label-key", Argument::Flag("node-pool-label-key")),
    ("queue-label-key", Argument::Flag("queue-label-key")),
    ("scheduler-name", Argument::Flag("scheduler-name")),
    ("schedule-period", Argument::NotNeeded),
    ("leader-elect", Argument::NotNeeded),
    ("scheduler-conf", Argument::NotNeeded),
    ("namespace", Argument::NotNeeded),
    ("metrics-namespace", Argument::NotNeeded),
    ("listen-address", Argument::NotNeeded),
    ("qps", Argument::NotNeeded),
    ("burst", Argument::NotNeeded),
    ("v", Argument::NotNeeded),
    ("log-json", Argument::NotNeeded),
    ("detailed-fit-errors", Argument::NotNeeded),
    ("use-scheduling-signatures", Argument::NotNeeded),
    ("num-of-status-recording-workers", Argument::NotNeeded),
    ("resource-reservation-app-label", Argument::NotNeeded),
    ("plugin-server-port", Argument::NotNeeded),
    ("enable-profiler", Argument::NoEffect),
    ("profiler-port", Argument::NoEffect),
    ("pyroscope-address", Argument::NoEffect),
    ("restrict-node-scheduling", Argument::NoEffect),
    ("update-pod-eviction-condition", Argument::NoEffect),
    ("schedule-csi-storage", Argument::NoEffect),
    ("stuck-in-releasing-threshold", Argument::NoEffect),
    ("cpu-worker-node-label-key", Argument::NoEffect),
    ("gpu-worker-node-label-key", Argument::NoEffect),
    ("mig-worker-node-label-key", Argument::NoEffect),
    ("feature-gates", Argument::NoEffect),
];

/// Arguments are found by KAI's spelling, and by the spelling of files (`maxConsolidationPreemptees`).
fn argument(key: &str) -> Argument {
    let bare =
        |text: &str| text.chars().filter(|c| *c != '-').flat_map(char::to_lowercase).collect::<String>();
    let wanted = bare(key);
    match ARGUMENTS.iter().find(|(name, _)| bare(name) == wanted) {
        Some((_, argument)) => *argument,
        None => {
            let near = ARGUMENTS.iter().map(|(name, _)| (distance(&wanted, &bare(name)), *name)).min();
            Argument::Unknown(near.filter(|(d, _)| *d <= 3).map(|(_, name)| name))
        }
    }
}

/// How many letters differ: insertions, deletions and changes. Long keys are not compared in full.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Whether what is there says all that is wanted. What the server filled in, and what it left out because it is empty,
/// makes no difference.
pub fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| match there.get(key) {
                Some(found) => covers(found, value),
                None => is_nothing(value),
            })
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(t, w)| covers(t, w))
        }
        (there, wanted) => there == wanted || (is_nothing(there) && is_nothing(wanted)),
    }
}

/// What is there by the operator's hand and is not wanted any more.
pub fn unwanted<'a>(
    config: &Meta,
    plan: &Plan,
    there: &'a BTreeMap<String, Value>,
) -> Vec<(&'a str, &'a str)> {
    let wanted: BTreeSet<String> = plan.objects.iter().filter_map(path).collect();
    there
        .iter()
        .filter(|(path, object)| {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            !wanted.contains(*path)
                && object["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1
                && object.pointer("/metadata/deletionTimestamp").is_none()
                && owners.into_iter().flatten().any(|o| o["uid"] == config.uid.as_str())
        })
        .map(|(path, object)| {
            (path.as_str(), object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default())
        })
        .collect()
}

/// A condition to be: type, status, reason, message.
type Wanted = (&'static str, bool, &'static str, String);

/// The conditions of the Config.
pub fn config_conditions(plan: &Plan, there: &BTreeMap<String, Value>, failures: &[String]) -> Vec<Wanted> {
    let late = late_deployments(plan, there, |_| true);
    conditions(plan, there, failures, &late, &plan.warnings)
}

/// The conditions of a shard.
pub fn shard_conditions(
    shard: &str,
    plan: &Plan,
    there: &BTreeMap<String, Value>,
    failures: &[String],
) -> Vec<Wanted> {
    let none = Vec::new();
    let scheduler = plan.schedulers.get(shard).map(String::as_str).unwrap_or_default();
    let late = late_deployments(plan, there, |name| name == scheduler);
    conditions(plan, there, failures, &late, plan.shard_warnings.get(shard).unwrap_or(&none))
}

fn conditions(
    plan: &Plan,
    there: &BTreeMap<String, Value>,
    failures: &[String],
    late: &[String],
    warnings: &[String],
) -> Vec<Wanted> {
    let absent: Vec<String> =
        plan.objects.iter().filter_map(path).filter(|path| !there.contains_key(path)).collect();
    let deployed = absent.is_empty() && failures.is_empty();
    let available = late.is_empty() && absent.is_empty();
    let ready = deployed && available && plan.missing.is_empty();
    let or = |good: bool, yes: &str, no: String| if good { yes.to_owned() } else { no };
    let why_not = || {
        if failures.is_empty() { format!("not there yet: {}", few(&absent)) } else { few(failures) }
    };
    vec![
        (
            "Reconciling",
            !deployed,
            "reconciled",
            if deployed { "everything is as the Config says".to_owned() } else { why_not() },
        ),
        ("Deployed", deployed, "deployed", or(deployed, "all objects are there", why_not())),
        (
            "Available",
            available,
            "available",
            or(available, "all Deployments are available", format!("not available: {}", few(late))),
        ),
        (
            "DependenciesFulfilled",
            plan.missing.is_empty(),
            "dependencies_fulfilled",
            or(plan.missing.is_empty(), "nothing is missing", format!("not served: {}", few(&plan.missing))),
        ),
        ("Ready", ready, "ready", or(ready, "ready", "not ready: see the other conditions".to_owned())),
        (
            "Warnings",
            !warnings.is_empty(),
            if warnings.is_empty() { "none" } else { "ignored" },
            or(warnings.is_empty(), "everything that is set has its effect", few(warnings)),
        ),
    ]
}

/// A message has room for a few.
fn few(items: &[String]) -> String {
    const MOST: usize = 10;
    let mut out = items.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
    if items.len() > MOST {
        out.push_str(&format!("; and {} more", items.len() - MOST));
    }
    out
}

fn late_deployments(
    plan: &Plan,
    there: &BTreeMap<String, Value>,
    which: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut late = Vec::new();
    for wanted in plan.objects.iter().filter(|o| o["kind"] == "Deployment") {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        if !which(name) {
            continue;
        }
        let found = path(wanted).and_then(|path| there.get(&path));
        let number =
            |pointer: &str| found.and_then(|f| f.pointer(pointer)).and_then(Value::as_i64).unwrap_or(0);
        let conditions = found.and_then(|f| f.pointer("/status/conditions")).and_then(Value::as_array);
        let available =
            conditions.into_iter().flatten().any(|c| c["type"] == "Available" && c["status"] == "True");
        let seen = number("/status/observedGeneration") >= number("/metadata/generation");
        if !(found.is_some() && seen && available) {
            late.push(format!(
                "{name} ({} of {} replicas)",
                number("/status/availableReplicas"),
                wanted["spec"]["replicas"]
            ));
        }
    }
    late
}

/// The list of conditions with ours in it, or `None` when they are there already. The conditions of others stay.
pub fn merged(old: &Value, wanted: &[Wanted], generation: i64, now: Timestamp) -> Option<Value> {
    let empty = Vec::new();
    let old_list = old.get("conditions").and_then(Value::as_array).unwrap_or(&empty);
    let mut list = old_list.clone();
    for (kind, on, reason, message) in wanted {
        let status = if *on { "True" } else { "False" };
        let mut new = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "observedGeneration": generation, "lastTransitionTime": stamp(whole(now)),
        });
        match list.iter_mut().find(|c| c["type"] == *kind) {
            Some(known) => {
                if known["status"] == status && known["lastTransitionTime"].is_string() {
                    new["lastTransitionTime"] = known["lastTransitionTime"].clone();
                }
                *known = new;
            }
            None => list.push(new),
        }
    }
    (list != *old_list).then_some(Value::Array(list))
}

/// What is said on a Config that does not count.
pub fn not_this_one() -> Vec<Wanted> {
    vec![("Ready", false, "ready", format!("not used: only the Config called {CONFIG} counts"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings { image: "team/muster:1".into(), namespace: "muster-system".into(), monitoring: false }
    }

    fn config(spec: Value) -> Config {
        serde_json::from_value(
            json!({"metadata": {"name": CONFIG, "uid": "u1", "generation": 3}, "spec": spec}),
        )
        .unwrap()
    }

    fn shard(name: &str, spec: Value) -> SchedulingShard {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
    }

    fn planned(spec: Value, shards: &[SchedulingShard]) -> Plan {
        plan(&config(spec), &shards.iter().collect::<Vec<_>>(), &around())
    }

    fn find<'a>(plan: &'a Plan, kind: &str, name: &str) -> &'a Value {
        let mut all = plan.objects.iter();
        all.find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// A field of a Deployment of the plan; `pod` and `main` stand for the long way there.
    #[track_caller]
    fn check(spec: Value, deployment: &str, pointer: &str, expected: Value) {
        let plan = planned(spec, &[shard("default", json!({}))]);
        let pointer = pointer.replace("main", "pod/containers/0").replace("pod", "spec/template/spec");
        let found =
            find(&plan, "Deployment", deployment).pointer(&format!("/{pointer}")).unwrap_or(&Value::Null);
        assert_eq!(*found, expected, "{pointer}");
        assert_eq!(plan.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_config_says_how_things_run() {
        let scheduler = "muster-scheduler-default";
        check(json!({}), scheduler, "metadata/namespace", json!("kai-scheduler"));
        check(json!({"namespace": "x"}), "muster-binder", "metadata/namespace", json!("x"));
        check(json!({}), scheduler, "spec/replicas", json!(1));
        check(json!({"global": {"replicaCount": 3}}), "muster-grouper", "spec/replicas", json!(3));
        check(
            json!({"global": {"replicaCount": 3}, "podGrouper": {"replicas": 2}}),
            "muster-grouper",
            "spec/replicas",
            json!(2),
        );
        check(json!({}), scheduler, "main/image", json!("team/muster:1"));
        check(
            json!({"scheduler": {"service": {"image": {"tag": "2"}}}}),
            scheduler,
            "main/image",
            json!("team/muster:2"),
        );
        check(
            json!({"scheduler": {"service": {"image": {"repository": "r", "name": "m", "pullPolicy": "Always"}}}}),
            scheduler,
            "main/imagePullPolicy",
            json!("Always"),
        );
        check(
            json!({"admission": {"service": {"resources": {"limits": {"cpu": "1"}}}}}),
            "muster-admission",
            "main/resources",
            json!({"limits": {"cpu": "1"}}),
        );
        check(
            json!({"global": {"nodeSelector": {"a": "b"}}}),
            scheduler,
            "pod/nodeSelector",
            json!({"a": "b"}),
        );
        check(
            json!({"global": {"imagesPullSecret": "a", "additionalImagePullSecrets": ["b"]}}),
            scheduler,
            "pod/imagePullSecrets",
            json!([{"name": "a"}, {"name": "b"}]),
        );
        check(
            json!({"global": {"affinity": {"nodeAffinity": {}}}}),
            scheduler,
            "pod/affinity",
            json!({"nodeAffinity": {}}),
        );
    }

    #[track_caller]
    fn check_args(config: Value, shard_spec: Value, expected: &[&str], warnings: &[&str]) {
        let plan = planned(config, &[shard("a", shard_spec)]);
        let deployment = find(&plan, "Deployment", "muster-scheduler-a");
        let args = deployment.pointer("/spec/template/spec/containers/0/args").unwrap();
        for flag in expected {
            assert!(args.as_array().unwrap().iter().any(|a| a == flag), "{flag} in {args}");
        }
        assert_eq!(plan.shard_warnings["a"], warnings);
    }

    #[test]
    fn arguments_become_flags_or_warnings() {
        check_args(
            json!({"global": {"schedulerName": "kai-scheduler, other", "nodePoolLabelKey": "pool"}}),
            json!({"partitionLabelValue": "v100"}),
            &[
                "--components=scheduler",
                "--scheduler-name=kai-scheduler,other",
                "--node-pool-label-key=pool",
                "--partition-label-value=v100",
                "--scheduler-conf=/etc/muster/scheduler.yaml",
            ],
            &[],
        );
        check_args(json!({}), json!({"args": {"queue-label-key": "q"}}), &["--queue-label-key=q"], &[]);
        check_args(
            json!({}),
            json!({"args": {"schedule-period": "1s", "v": "4", "leader-elect": "true"}}),
            &[],
            &[],
        );
        check_args(
            json!({}),
            json!({"args": {"maxConsolidationPreemptees": "3", "restrict-node-scheduling": "true"}}),
            &[],
            &["argument restrict-node-scheduling has no effect"],
        );
        check_args(
            json!({}),
            json!({"args": {"max-consolidation-preemptee": "3", "zzzzzzzz": "1"}}),
            &[],
            &[
                "argument max-consolidation-preemptee is unknown; did you mean max-consolidation-preemptees?",
                "argument zzzzzzzz is unknown",
            ],
        );
        check_args(
            json!({}),
            json!({"usageDBConfig": {"clientType": "prometheus"}}),
            &[],
            &["spec.usageDBConfig has no effect: past usage is not read"],
        );
    }

    #[track_caller]
    fn check_flags(spec: Value, component: Component, expected: &[&str]) {
        assert_eq!(flags(&spec, component), expected);
    }

    #[test]
    fn fields_become_flags() {
        check_flags(
            json!({"admission": {"gpuSharing": false}}),
            Component::Admission,
            &["--gpu-sharing-enabled=false"],
        );
        check_flags(
            json!({"admission": {"gpuPodRuntimeClassName": "a", "gpuFractionRuntimeClassName": "b"}}),
            Component::Admission,
            &["--gpu-fraction-runtime-class-name=b"],
        );
        check_flags(
            json!({"global": {"podLabelSelector": {"a": "b", "c": "d"}}}),
            Component::Grouper,
            &["--pod-label-selector=a=b,c=d"],
        );
        check_flags(
            json!({"global": {"podLabelSelector": {}}, "admission": {"queueLabelSelector": true}}),
            Component::Admission,
            &["--only-pods-with-queue=true"],
        );
        check_flags(
            json!({"podGrouper": {"args": {"defaultPrioritiesConfigMapName": "alone", "gangScheduleKnative": false}}}),
            Component::Grouper,
            &["--knative-gang-schedule=false"],
        );
        check_flags(
            json!({"binder": {"volumeBindingTimeoutSeconds": 7, "resourceReservation": {"appLabel": "x"}}}),
            Component::Binder,
            &["--reservation-app-label=x", "--volume-binding-timeout-seconds=7"],
        );
    }

    #[track_caller]
    fn check_arg(spec: Value, deployment: &str, expected: &str) {
        let plan = planned(spec, &[shard("a", json!({}))]);
        let args =
            find(&plan, "Deployment", deployment).pointer("/spec/template/spec/containers/0/args").unwrap();
        assert!(args.as_array().unwrap().iter().any(|a| a == expected), "{expected} in {args}");
        assert_eq!(plan.warnings, Vec::<String>::new());
    }

    #[test]
    fn fields_change_arguments() {
        check_arg(
            json!({"binder": {"resourceReservation": {"namespace": "r", "serviceAccountName": "s"}}}),
            "muster-binder",
            "--reservation-service-account=s",
        );
        check_arg(
            json!({"nodeScaleAdjuster": {"args": {"scalingPodImage": {"tag": "9"}}}}),
            "muster-scale-adjuster",
            "--scale-image=team/muster:9",
        );
    }

    #[track_caller]
    fn check_warning(spec: Value, expected: &str) {
        let plan = planned(spec, &[shard("a", json!({}))]);
        assert_eq!(plan.warnings, [expected]);
    }

    #[test]
    fn what_has_no_effect_is_said() {
        check_warning(
            json!({"scheduler": {"service": {"image": {"repository": "r", "name": "scheduler", "tag": "v0.17"}}}}),
            "spec.scheduler.service.image names scheduler, a program of KAI; team/muster:1 is used",
        );
        check_warning(
            json!({"binder": {"vpa": {"enabled": true}}}),
            "spec.binder.vpa has no effect: set resources instead",
        );
        check_warning(
            json!({"queueController": {"webhooks": {"enableValidation": false}}}),
            "spec.queueController.webhooks.enableValidation has no effect: what is created is checked by muster-admission, as a whole or not at all",
        );
        check_warning(
            json!({"binder": {"probePort": 9}}),
            "spec.binder.probePort has no effect: the ports are 8080 for metrics, 8081 for probes, and 9443 for webhooks behind 443 of the Service",
        );
        // What is so in any case is nothing to be warned of.
        for quiet in [
            json!({"queueController": {"webhooks": {"enableValidation": true}, "metricsNamespace": "kai"}}),
            json!({"binder": {"probePort": 8081, "metricsPort": 8080}, "global": {"vpa": {"enabled": false}}}),
            json!({"numaPlacementExporter": {"service": {"enabled": false}, "pollInterval": "1s"}}),
        ] {
            assert_eq!(planned(quiet, &[shard("a", json!({}))]).warnings, Vec::<String>::new());
        }
        assert_eq!(
            planned(json!({}), &[]).warnings,
            ["there is no SchedulingShard, so nothing is scheduled"]
        );
    }

    /// What concerns only KAI's own programs: limits of their clients and of the Go runtime, and what says nothing as long as no
    /// autoscaler is asked for.
    const IRRELEVANT: &[&str] =
        &["/k8sClientConfig/", "/scheduler/GOGC", "/vpa/updatePolicy/", "/vpa/resourcePolicy/"];

    /// Every field of a schema that has none below it, with a value or two that nobody would have otherwise.
    fn leaves(schema: &Value, at: &str, out: &mut Vec<(String, Vec<Value>)>) {
        if let Some(fields) = schema["properties"].as_object() {
            return fields.iter().for_each(|(name, field)| leaves(field, &format!("{at}/{name}"), out));
        }
        let values = match schema["type"].as_str() {
            Some("boolean") => vec![json!(true), json!(false)],
            Some("integer") => vec![json!(7)],
            Some("number") => vec![json!(0.5)],
            Some("array") => match schema["items"]["type"].as_str() {
                Some("string") => vec![json!(["x"])],
                _ => vec![json!([{"key": "x"}])],
            },
            Some("object") => vec![json!({"x": "y"})],
            _ => vec![json!("x")],
        };
        out.push((at.to_owned(), values));
    }

    fn set(spec: &mut Value, pointer: &str, value: Value) {
        let mut at = spec;
        for part in pointer.split('/').skip(1) {
            at = &mut at[part];
        }
        *at = value;
    }

    /// Nothing is dropped in silence: each field of the CRD changes what is made, or is warned of, or is known to say nothing here.
    #[test]
    fn every_field_of_a_config_counts_or_is_warned_of() {
        let crds = muster_api::crds(None);
        let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == "Config").unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut all = Vec::new();
        leaves(schema, "", &mut all);
        assert!(all.len() > 150, "{}", all.len());
        // Fields that say nothing without another one.
        let base = json!({
            "prometheus": {"serviceMonitor": {"enabled": true}},
            "podGrouper": {"args": {
                "defaultPrioritiesConfigMapName": "a", "defaultPrioritiesConfigMapNamespace": "b",
            }},
        });
        let around = Surroundings { monitoring: true, ..around() };
        let made = |spec: Value| plan(&config(spec), &[&shard("a", json!({}))], &around);
        let usual = made(base.clone());
        let mut silent = Vec::new();
        let mut irrelevant = BTreeSet::new();
        for (pointer, values) in all {
            let matches = |known: &&str| format!("{pointer}/").contains(*known);
            if let Some(known) = IRRELEVANT.iter().copied().find(|known| matches(known)) {
                irrelevant.insert(known);
                continue;
            }
            let is_heard = |value: Value| {
                let mut spec = base.clone();
                set(&mut spec, &pointer, value);
                let plan = made(spec);
                (&plan.objects, &plan.namespaces) != (&usual.objects, &usual.namespaces)
                    || !plan.warnings.is_empty()
            };
            if !values.into_iter().any(is_heard) {
                silent.push(pointer);
            }
        }
        assert_eq!(silent, Vec::<String>::new());
        assert_eq!(irrelevant, IRRELEVANT.iter().copied().collect(), "what is not in the CRD needs no word");
    }

    #[test]
    fn monitors_are_set_by_the_config() {
        let monitor = json!({"enabled": true, "interval": "5s", "scrapeTimeout": "3s"});
        let spec = json!({"prometheus": {"serviceMonitor": monitor}});
        let with = plan(&config(spec), &[], &Surroundings { monitoring: true, ..around() });
        let endpoint = &find(&with, "ServiceMonitor", "muster")["spec"]["endpoints"][0];
        assert_eq!((&endpoint["interval"], &endpoint["scrapeTimeout"]), (&json!("5s"), &json!("3s")));
    }

    /// On OpenShift the cluster chooses the user.
    #[test]
    fn openshift_chooses_the_user() {
        let user = "pod/securityContext/runAsUser";
        check(json!({"global": {"openshift": false}}), "muster-binder", user, json!(65532));
        check(json!({"global": {"openshift": true}}), "muster-binder", user, Value::Null);
        check(
            json!({"global": {"openshift": true}}),
            "muster-binder",
            "pod/securityContext/fsGroup",
            Value::Null,
        );
    }

    /// In: annotations. Out: whether there are policies, the port of the API server in them, where the binder serves.
    #[track_caller]
    fn check_network(annotations: &[(&str, &str)], port: Option<u16>, listen: &str, n_warnings: usize) {
        let mut config = config(json!({}));
        let pairs = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        config.metadata.annotations = pairs.collect();
        let plan = plan(&config, &[&shard("a", json!({}))], &around());
        let policy = plan
            .objects
            .iter()
            .find(|o| o["kind"] == "NetworkPolicy" && o["metadata"]["name"] == "muster-allow");
        let found = policy.and_then(|p| p["spec"]["egress"][1]["ports"][0]["port"].as_u64());
        assert_eq!(found, port.map(u64::from));
        let args =
            &find(&plan, "Deployment", "muster-binder")["spec"]["template"]["spec"]["containers"][0]["args"];
        assert!(args.to_string().contains(&format!("\"--health-address={listen}:8081\"")), "{args}");
        assert_eq!(plan.warnings.len(), n_warnings, "{:?}", plan.warnings);
    }

    #[test]
    fn annotations_say_what_the_network_is_like() {
        check_network(&[], Some(443), "0.0.0.0", 0);
        check_network(&[(NETWORK, "true")], Some(443), "0.0.0.0", 0);
        check_network(&[(NETWORK, "false")], None, "0.0.0.0", 0);
        check_network(&[(NETWORK, "16443, 443")], Some(16443), "0.0.0.0", 0);
        check_network(&[(NETWORK, "none")], Some(443), "0.0.0.0", 1);
        check_network(&[(LISTEN, "[::]")], Some(443), "[::]", 0);
        check_network(&[(LISTEN, "10.0.0.1")], Some(443), "10.0.0.1", 0);
        check_network(&[(LISTEN, "here")], Some(443), "0.0.0.0", 1);
    }

    /// What was chosen at the installation reaches what the operator makes.
    #[test]
    fn the_operator_is_told_what_was_chosen() {
        let chosen = Settings {
            operator: true,
            listen: "[::]".into(),
            run_as: None,
            priority_class: "mine".into(),
            api_ports: settings::ports(&[16443]),
            ..Settings::default()
        };
        let without = Settings { operator: true, network_policies: false, ..Settings::default() };
        for settings in [chosen, without] {
            let all = objects::objects(&settings);
            let written = all.iter().find(|o| o["kind"] == "Config").unwrap();
            let config: Config = serde_json::from_value(written.clone()).unwrap();
            let plan = plan(&config, &[&shard("default", json!({}))], &around());
            assert_eq!(plan.warnings, Vec::<String>::new());
            let made = |name: &str| find(&plan, "Deployment", name)["spec"]["template"]["spec"].clone();
            let alone = objects::objects(&Settings { operator: false, ..settings });
            let alone = |name: &str| {
                let mut all = alone.iter();
                let found = all.find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == name);
                found.unwrap()["spec"]["template"]["spec"].clone()
            };
            let (with, without) = (made("muster-grove"), alone("muster-grove"));
            for field in ["securityContext", "priorityClassName"] {
                assert_eq!(with[field], without[field], "{field}");
            }
            assert_eq!(with["containers"][0]["args"], without["containers"][0]["args"]);
            let policies =
                plan.objects.iter().filter(|o| o["kind"] == "NetworkPolicy").map(|o| o["spec"].clone());
            let installed = all.iter().filter(|o| o["kind"] == "NetworkPolicy").map(|o| o["spec"].clone());
            assert_eq!(policies.take(2).collect::<Vec<_>>(), installed.collect::<Vec<_>>());
        }
    }

    /// What is wanted no more differs from what is there, although all that is wanted is there.
    #[test]
    fn what_is_taken_out_of_a_config_is_noticed() {
        let before = planned(json!({"global": {"nodeSelector": {"a": "b"}}}), &[shard("a", json!({}))]);
        let after = planned(json!({}), &[shard("a", json!({}))]);
        let (there, wanted) =
            (find(&before, "Deployment", "muster-binder"), find(&after, "Deployment", "muster-binder"));
        assert!(!covers(there, wanted));
        assert!(covers(there, there) && covers(wanted, wanted));
        let same = planned(json!({}), &[shard("a", json!({}))]);
        assert_eq!(find(&same, "Deployment", "muster-binder"), wanted);
    }

    #[test]
    fn each_shard_has_a_scheduler() {
        let shards = [
            shard("a", json!({"partitionLabelValue": "x"})),
            shard("b", json!({"partitionLabelValue": "x"})),
        ];
        let plan = planned(json!({}), &shards);
        for kind in ["Deployment", "ConfigMap", "Service", "PodDisruptionBudget", "ServiceAccount"] {
            find(&plan, kind, "muster-scheduler-a");
            find(&plan, kind, "muster-scheduler-b");
        }
        assert_eq!(plan.shard_warnings["a"].len(), 0);
        assert_eq!(plan.shard_warnings["b"].len(), 1, "both have one partition");
        let conf = &find(&plan, "ConfigMap", "muster-scheduler-a")["data"]["scheduler.yaml"];
        assert!(conf.as_str().unwrap().contains("partitionLabelValue"), "{conf}");
        let long = "x".repeat(80);
        assert!(scheduler_name(&long).len() <= 63);
        assert_ne!(scheduler_name(&long), scheduler_name(&format!("{long}y")));
    }

    /// A scheduler binds by itself, also where no binder runs.
    #[test]
    fn a_scheduler_may_bind() {
        let plan = planned(json!({"binder": {"service": {"enabled": false}}}), &[shard("a", json!({}))]);
        let request = |resource, namespace| crate::access::Request {
            verb: "create",
            group: "",
            resource,
            namespace,
            name: "",
        };
        let may =
            |request| crate::access::allows(&plan.objects, "kai-scheduler", "muster-scheduler-a", request);
        assert!(may(request("pods/binding", "default")));
        assert!(may(request("configmaps", "default")));
        assert!(may(request("pods", "kai-resource-reservation")));
        assert!(!may(request("pods", "default")));
    }

    #[test]
    fn a_service_that_is_off_is_not_there() {
        let plan =
            planned(json!({"nodeScaleAdjuster": {"service": {"enabled": false}}}), &[shard("a", json!({}))]);
        assert!(!plan.objects.iter().any(|o| o["metadata"]["name"] == "muster-scale-adjuster"));
        let plan = planned(
            json!({"binder": {"service": {"podDisruptionBudget": {"enabled": false}}}}),
            &[shard("a", json!({}))],
        );
        let binder = |o: &&Value| o["metadata"]["name"] == "muster-binder";
        assert!(!plan.objects.iter().filter(binder).any(|o| o["kind"] == "PodDisruptionBudget"));
    }

    /// In: the annotation. Out: what the Deployment of Grove runs, or nothing.
    #[track_caller]
    fn check_grove(annotation: &str, expected: Option<&str>, warnings: &[&str]) {
        let mut config = config(json!({"global": {"replicaCount": 2}}));
        config.metadata.annotations = [(GROVE.to_owned(), annotation.to_owned())].into_iter().collect();
        let plan = plan(&config, &[&shard("a", json!({}))], &around());
        let mut all = plan.objects.iter();
        let deployment = all.find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "muster-grove");
        let args = deployment.map(|d| d.pointer("/spec/template/spec/containers/0/args").unwrap().clone());
        let found = args.map(|args| {
            let all = args.as_array().unwrap().clone();
            all.iter().find_map(|a| a.as_str()?.strip_prefix("--components=").map(str::to_owned)).unwrap()
        });
        assert_eq!(found.as_deref(), expected);
        assert_eq!(plan.warnings, warnings);
        let may = |verb, group, resource| {
            let request = crate::access::Request { verb, group, resource, namespace: "a", name: "" };
            crate::access::allows(&plan.objects, "kai-scheduler", "muster-grove", request)
        };
        let runs = |component: &str| expected.is_some_and(|all| all.split(',').any(|c| c == component));
        assert_eq!(may("create", "grove.io", "podcliques"), runs("grove"));
        assert_eq!(may("create", "scheduling.volcano.sh", "podgroups"), runs("backend-volcano"));
        assert!(!may("create", "", "pods/binding") && !may("get", "", "secrets"));
        if deployment.is_some() {
            assert_eq!(find(&plan, "Deployment", "muster-grove")["spec"]["replicas"], 2);
            find(&plan, "ServiceAccount", "muster-grove");
        }
    }

    #[test]
    fn grove_is_deployed_where_it_is_asked_for() {
        let all = "grove,backend-kai,backend-default,backend-koordinator,backend-volcano,backend-t9k,backend-muster";
        check_grove("true", Some(all), &[]);
        check_grove("", None, &[]);
        check_grove("false", None, &[]);
        check_grove("backend-kai, grove", Some("grove,backend-kai"), &[]);
        check_grove("backend-volcano", Some("backend-volcano"), &[]);
        check_grove(
            "grove,backend-x",
            Some("grove"),
            &[
                "annotation muster.dev/grove names backend-x, which is none of true, false, grove, backend-kai, \
               backend-default, backend-koordinator, backend-volcano, backend-t9k, backend-muster",
            ],
        );
    }

    #[test]
    fn kueue_is_deployed_where_it_is_asked_for() {
        let planned = |annotation: &str| {
            let mut config = config(json!({"global": {"replicaCount": 3}}));
            config.metadata.annotations = [(KUEUE.to_owned(), annotation.to_owned())].into_iter().collect();
            plan(&config, &[&shard("a", json!({}))], &around())
        };
        let has = |plan: &Plan| plan.objects.iter().any(|o| o["metadata"]["name"] == "muster-kueue");
        assert!(!has(&planned("")) && !has(&planned("false")) && !has(&planned("what?")));
        assert_eq!(planned("what?").warnings.len(), 1);
        for (annotation, expected) in [
            ("true", "{}"),
            (r#"{"manageJobsWithoutQueueName": true}"#, r#"{"manageJobsWithoutQueueName":true}"#),
        ] {
            let plan = planned(annotation);
            assert_eq!(plan.warnings, Vec::<String>::new());
            let file = &find(&plan, "ConfigMap", "muster-kueue")["data"]["kueue.yaml"];
            assert!(file.as_str().unwrap().ends_with(&format!("\n{expected}\n")), "{file}");
            assert_eq!(find(&plan, "Deployment", "muster-kueue")["spec"]["replicas"], 3);
            for name in ["muster-kueue", "muster-admission"] {
                let deployment = find(&plan, "Deployment", name);
                let args = deployment.pointer("/spec/template/spec/containers/0/args").unwrap();
                let args = args.as_array().unwrap();
                assert!(args.contains(&json!("--kueue-config=/etc/muster-kueue/kueue.yaml")), "{args:?}");
            }
        }
    }

    /// What is installed with the operator runs what is installed without it.
    #[test]
    fn the_operator_deploys_grove_when_it_is_installed() {
        let settings = Settings { operator: true, ..Settings::default() };
        let all = objects::objects(&settings);
        let written = all.iter().find(|o| o["kind"] == "Config").unwrap();
        let config: Config = serde_json::from_value(written.clone()).unwrap();
        let plan = plan(&config, &[&shard("default", json!({}))], &around());
        find(&plan, "Deployment", "muster-grove");
    }

    #[test]
    fn prometheus_is_a_dependency() {
        let spec = json!({"prometheus": {"serviceMonitor": {"enabled": true}}});
        let without = planned(spec.clone(), &[]);
        assert_eq!(without.missing.len(), 1);
        let with = plan(&config(spec), &[], &Surroundings { monitoring: true, ..around() });
        assert!(with.missing.is_empty());
        find(&with, "ServiceMonitor", "muster");
    }

    #[track_caller]
    fn check_covers(there: Value, wanted: Value, expected: bool) {
        assert_eq!(covers(&there, &wanted), expected, "{there} {wanted}");
    }

    #[test]
    fn what_is_there_and_what_is_wanted() {
        check_covers(json!({"a": 1, "b": 2}), json!({"a": 1}), true);
        check_covers(json!({"a": 1}), json!({"a": 2}), false);
        check_covers(json!({}), json!({"a": {}, "b": [], "c": null, "d": ""}), true);
        check_covers(json!({}), json!({"a": 0}), false);
        check_covers(json!({"a": [{"x": 1, "y": 2}]}), json!({"a": [{"x": 1}]}), true);
        check_covers(json!({"a": [1, 2]}), json!({"a": [1]}), false);
    }

    fn as_there(plan: &Plan, up: bool) -> BTreeMap<String, Value> {
        let mut there = BTreeMap::new();
        for object in &plan.objects {
            let mut object = object.clone();
            if object["kind"] == "Deployment" && up {
                object["status"] = json!({"conditions": [{"type": "Available", "status": "True"}]});
            }
            there.insert(path(&object).unwrap(), object);
        }
        there
    }

    fn shown(conditions: &[Wanted]) -> String {
        let on = conditions.iter().filter(|c| c.1).map(|c| c.0);
        on.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn conditions_say_how_far_it_is() {
        let plan = planned(json!({}), &[shard("a", json!({"args": {"nonsense": "1"}}))]);
        let none = BTreeMap::new();
        assert_eq!(shown(&config_conditions(&plan, &none, &[])), "Reconciling DependenciesFulfilled");
        let down = as_there(&plan, false);
        assert_eq!(shown(&config_conditions(&plan, &down, &[])), "Deployed DependenciesFulfilled");
        let up = as_there(&plan, true);
        assert_eq!(
            shown(&config_conditions(&plan, &up, &[])),
            "Deployed Available DependenciesFulfilled Ready"
        );
        assert_eq!(
            shown(&shard_conditions("a", &plan, &up, &[])),
            "Deployed Available DependenciesFulfilled Ready Warnings"
        );
        let failed = config_conditions(&plan, &up, &["no".to_owned()]);
        assert_eq!(shown(&failed), "Reconciling Available DependenciesFulfilled");
    }

    #[test]
    fn conditions_are_written_when_they_change() {
        let at = |s: i64| Timestamp::from_second(1_800_000_000 + s).unwrap();
        let wanted = |on: bool| vec![("Ready", on, "ready", "m".to_owned())];
        let first = merged(&json!({}), &wanted(true), 1, at(0)).unwrap();
        let old = json!({"conditions": first});
        assert_eq!(merged(&old, &wanted(true), 1, at(60)), None);
        let next = merged(&old, &wanted(true), 2, at(60)).unwrap();
        assert_eq!(next[0]["lastTransitionTime"], first[0]["lastTransitionTime"], "the status is the same");
        let next = merged(&old, &wanted(false), 2, at(60)).unwrap();
        assert_ne!(next[0]["lastTransitionTime"], first[0]["lastTransitionTime"]);
        let others = json!({"conditions": [{"type": "Other"}]});
        assert_eq!(merged(&others, &wanted(true), 1, at(0)).unwrap()[0], json!({"type": "Other"}));
    }

    #[test]
    fn only_what_is_ours_is_deleted() {
        let config = config(json!({}));
        let before = plan(&config, &[&shard("a", json!({})), &shard("b", json!({}))], &around());
        let after = plan(&config, &[&shard("a", json!({}))], &around());
        let mut there = as_there(&before, true);
        assert!(unwanted(&config.metadata, &before, &there).is_empty());
        let gone = unwanted(&config.metadata, &after, &there);
        assert!(
            !gone.is_empty() && gone.iter().all(|(path, _)| path.contains("muster-scheduler-b")),
            "{gone:?}"
        );
        // Another Config's, or without the label: not ours to delete.
        for object in there.values_mut() {
            object["metadata"]["ownerReferences"][0]["uid"] = json!("other");
        }
        assert!(unwanted(&config.metadata, &after, &there).is_empty());
    }

    #[test]
    fn strange_values_do_no_harm() {
        for junk in [
            json!(null),
            json!(3),
            json!("x"),
            json!([]),
            json!({"global": 5, "binder": [], "admission": {"service": "x"}}),
        ] {
            let plan = planned(junk.clone(), &[shard("a", junk)]);
            assert!(plan.objects.iter().all(|o| path(o).is_some()));
        }
    }
}
