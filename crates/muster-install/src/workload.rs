//! A set of components as objects: its account, what it may do, its Deployment, Service and budget.
//!
//! In: settings and a [`Set`]. Out: objects. Must stay true: a container runs as nobody in particular, writes nothing to its
//! file system and has no capabilities; every Deployment can be drained.

use serde_json::{Value, json};

use crate::access::{self, Place};
use crate::component::Component;
use crate::settings::{
    CONF_DIR, CONF_FILE, HEALTH_PORT, KUEUE, KUEUE_DIR, KUEUE_FILE, METRICS_PORT, Set, Settings, Shard,
    WEBHOOK_PORT,
};

/// Every flag of `muster run` that the manifests use; the operator passes on those of [`CONFIG_FLAGS`](crate::operator::CONFIG_FLAGS), too. The command
/// line has each of them: its tests look here.
pub const FLAGS: &[&str] = &[
    "components",
    "scheduler-name",
    "node-pool-label-key",
    "partition-label-value",
    "queue-label-key",
    "scheduler-conf",
    "kueue-config",
    "namespace",
    "reservation-namespace",
    "reservation-service-account",
    "reservation-image",
    "scale-namespace",
    "scale-image",
    "take-over",
    "operator-image",
    "metrics-address",
    "health-address",
    "webhook-address",
    "log-json",
];

/// The labels that every object has.
pub fn labels(component: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "muster",
        "app.kubernetes.io/part-of": "muster",
        "app.kubernetes.io/component": component,
    })
}

/// What selects the pods of a set.
fn selector(set: &Set) -> Value {
    json!({"app.kubernetes.io/name": "muster", "app.kubernetes.io/instance": set.name})
}

fn pod_labels(set: &Set) -> Value {
    let mut labels = labels(&set.name);
    labels["app.kubernetes.io/instance"] = json!(set.name);
    labels
}

/// The account of a set. It is mounted in the pods of the Deployment only.
pub fn account(settings: &Settings, set: &Set) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": set.name, "namespace": settings.namespace, "labels": labels(&set.name)},
        "automountServiceAccountToken": false,
    })
}

/// The roles of a component: one for the cluster, and one in each namespace where it may do more.
pub fn roles(settings: &Settings, component: Component) -> Vec<Value> {
    access::access(component)
        .into_iter()
        .map(|(place, mut rules)| {
            if settings.take_over && component == Component::Scheduler && place == Place::Cluster {
                rules.push(access::taking_over());
            }
            let mut role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": if place == Place::Cluster { "ClusterRole" } else { "Role" },
                "metadata": {"name": role_name(component), "labels": labels(component.name())},
                "rules": access::render(&rules),
            });
            if let Some(namespace) = place.namespace(settings) {
                role["metadata"]["namespace"] = json!(namespace);
            }
            role
        })
        .collect()
}

fn role_name(component: Component) -> String {
    format!("muster-{component}")
}

/// The components whose roles a set needs: its own, and the binder's for a scheduler, which binds by itself.
pub fn roles_of(set: &Set) -> Vec<Component> {
    let mut out = set.components.clone();
    if out.contains(&Component::Scheduler) && !out.contains(&Component::Binder) {
        out.push(Component::Binder);
    }
    out
}

/// The bindings that give a set's account the roles of its components.
pub fn bindings(settings: &Settings, set: &Set) -> Vec<Value> {
    let mut out = Vec::new();
    for component in roles_of(set) {
        for (place, _) in access::access(component) {
            let cluster = place == Place::Cluster;
            let mut binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": if cluster { "ClusterRoleBinding" } else { "RoleBinding" },
                "metadata": {"name": format!("{}:{component}", set.name), "labels": labels(&set.name)},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": if cluster { "ClusterRole" } else { "Role" },
                    "name": role_name(component),
                },
                "subjects": [{"kind": "ServiceAccount", "name": set.name, "namespace": settings.namespace}],
            });
            if let Some(namespace) = place.namespace(settings) {
                binding["metadata"]["namespace"] = json!(namespace);
            }
            out.push(binding);
        }
    }
    out
}

/// The component of what the pods that hold shared GPUs need.
pub const RESERVATION: &str = "reservation";

/// What the pods that hold shared GPUs need: an account that may write on its own pod which GPU it sees.
pub fn reservations(settings: &Settings) -> Vec<Value> {
    let (name, namespace) = (&settings.reservation_account, &settings.reservation_namespace);
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels(RESERVATION)});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
    ]
}

/// The Deployment of a set, its Service and its budget.
pub fn deployed(settings: &Settings, set: &Set) -> Vec<Value> {
    let mut out = vec![service(settings, set)];
    out.extend(budget(settings, set));
    out.push(deployment(settings, set, &last_of_each(arguments(settings, set)), None));
    out
}

/// The scheduler of a shard: its configuration, and what any set has.
pub fn shard(settings: &Settings, shard: &Shard) -> Vec<Value> {
    let mut set = Set { name: shard.name.clone(), ..settings.scheduler.clone() };
    if settings.take_over {
        // Several would take from each other.
        set.replicas = set.replicas.min(1);
    }
    let mut arguments = arguments(settings, &set);
    arguments.extend([
        format!("--partition-label-value={}", shard.partition),
        format!("--scheduler-conf={CONF_DIR}/{CONF_FILE}"),
    ]);
    arguments.extend(shard.args.iter().cloned());
    let conf = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": shard.name, "namespace": settings.namespace, "labels": labels(&shard.name)},
        "data": {CONF_FILE: configuration(shard)},
    });
    let mut out = vec![conf, service(settings, &set)];
    out.extend(budget(settings, &set));
    out.push(deployment(settings, &set, &last_of_each(arguments), Some(shard)));
    out
}

/// The scheduler's configuration file: the SchedulingShard itself, which the scheduler reads as it is. In the chart the spec
/// is a hole that is filled with JSON, which is YAML.
fn configuration(shard: &Shard) -> String {
    let spec = match &shard.spec {
        Value::String(hole) => hole.clone(),
        spec => spec.to_string(),
    };
    format!("apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nspec: {spec}\n")
}

/// Kueue's configuration, for whoever keeps its workloads and for admission.
pub fn kueue_configuration(settings: &Settings) -> Value {
    let config = match &settings.kueue_config {
        Value::String(hole) => hole.clone(),
        config => config.to_string(),
    };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": KUEUE, "namespace": settings.namespace, "labels": labels(KUEUE)},
        "data": {KUEUE_FILE: format!("# A Configuration of config.kueue.x-k8s.io; JSON is YAML.\n{config}\n")},
    })
}

/// Whether a set reads Kueue's configuration.
fn reads_kueue(settings: &Settings, set: &Set) -> bool {
    let reads = |component: &Component| matches!(component, Component::Kueue | Component::Admission);
    settings.has_kueue() && set.components.iter().any(reads)
}

/// A change of the configuration must restart whoever reads it, so its sum is a part of the pod. Adler-32, because Helm's
/// templates have it too.
fn sum(config: &Value) -> String {
    match config {
        Value::String(hole) => format!("{hole}sum"),
        spec => adler32(spec.to_string().as_bytes()).to_string(),
    }
}

pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    (b << 16) | a
}

fn arguments(settings: &Settings, set: &Set) -> Vec<String> {
    let names: Vec<&str> = set.components.iter().map(|c| c.name()).collect();
    let has = |component| set.components.contains(&component);
    let mut out = vec!["run".to_owned(), format!("--components={}", names.join(","))];
    out.push("--namespace=$(POD_NAMESPACE)".to_owned());
    out.push(format!("--metrics-address={}:{METRICS_PORT}", settings.listen));
    out.push(format!("--health-address={}:{HEALTH_PORT}", settings.listen));
    if settings.json_logs {
        out.push("--log-json".to_owned());
    }
    // Who deals with pods must know which ones; and whose pods count says whose queues are kept.
    if set.components.iter().any(|c| *c != Component::Operator) {
        out.push(format!("--scheduler-name={}", settings.scheduler_names.join(",")));
        out.push(format!("--queue-label-key={}", settings.queue_label));
        out.push(format!("--node-pool-label-key={}", settings.node_pool_label));
    }
    if has(Component::Binder) || has(Component::Scheduler) {
        let image = settings.reservation_image.as_ref().unwrap_or(&settings.image);
        out.push(format!("--reservation-namespace={}", settings.reservation_namespace));
        out.push(format!("--reservation-service-account={}", settings.reservation_account));
        out.push(format!("--reservation-image={image}"));
    }
    if has(Component::ScaleAdjuster) {
        out.push(format!("--scale-namespace={}", settings.scale_namespace));
        out.push(format!("--scale-image={}", settings.image));
    }
    if has(Component::Scheduler) && settings.take_over {
        out.push("--take-over".to_owned());
    }
    if has(Component::Operator) {
        out.push(format!("--operator-image={}", settings.image));
    }
    if reads_kueue(settings, set) {
        out.push(format!("--kueue-config={KUEUE_DIR}/{KUEUE_FILE}"));
    }
    if has(Component::Admission) {
        out.push(format!("--webhook-address={}:{WEBHOOK_PORT}", settings.listen));
    }
    out.extend(set.args.iter().cloned());
    out
}

/// A flag that is given twice counts as it was given last.
fn last_of_each(arguments: Vec<String>) -> Vec<String> {
    let flag = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let mut out: Vec<String> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match out.iter_mut().find(|known| flag(known) == flag(&argument)) {
            Some(known) => *known = argument,
            None => out.push(argument),
        }
    }
    out
}

fn deployment(settings: &Settings, set: &Set, arguments: &[String], shard: Option<&Shard>) -> Value {
    let mut ports = vec![
        json!({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}),
        json!({"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}),
    ];
    if set.components.contains(&Component::Admission) {
        ports.push(json!({"name": "webhook", "containerPort": WEBHOOK_PORT, "protocol": "TCP"}));
    }
    let (mut mounts, mut volumes) = (vec![tmp_mount()], vec![tmp()]);
    let mut annotations = json!({"kubectl.kubernetes.io/default-container": "muster"});
    if let Some(shard) = shard {
        mounts.push(json!({"name": "conf", "mountPath": CONF_DIR, "readOnly": true}));
        volumes.push(json!({"name": "conf", "configMap": {"name": shard.name}}));
        annotations["muster.dev/conf"] = json!(sum(&shard.spec));
    }
    if reads_kueue(settings, set) {
        mounts.push(json!({"name": "kueue", "mountPath": KUEUE_DIR, "readOnly": true}));
        volumes.push(json!({"name": "kueue", "configMap": {"name": KUEUE}}));
        annotations["muster.dev/kueue-conf"] = json!(sum(&settings.kueue_config));
    }
    let probe = |path: &str, seconds: i64, failures: i64| {
        json!({
            "httpGet": {"path": path, "port": "health"},
            "periodSeconds": seconds, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    // A pod that can answer the API server: it listens, has its certificate and is registered.
    let ready = if set.components == [Component::Admission] {
        let mut probe = probe("/readyz", 2, 3);
        probe["httpGet"] = json!({"path": "/readyz", "port": "webhook", "scheme": "HTTPS"});
        probe
    } else {
        probe("/readyz", 5, 2)
    };
    let container = json!({
        "name": "muster",
        "image": set.image.as_ref().unwrap_or(&settings.image),
        "imagePullPolicy": set.pull_policy.as_ref().unwrap_or(&settings.pull_policy),
        "args": arguments,
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            // Who holds a lease.
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "ports": ports,
        // Lists of a large cluster take a while to come in; until then it lives and is not ready.
        "startupProbe": probe("/healthz", 2, 60),
        "livenessProbe": probe("/healthz", 10, 3),
        "readinessProbe": ready,
        "resources": set.resources,
        "volumeMounts": mounts,
        "securityContext": container_security(settings),
    });
    let given = [&set.affinity, &settings.affinity].into_iter().find(|a| !a.is_null());
    let affinity = given.cloned().unwrap_or_else(|| anti_affinity(set, settings.strict_anti_affinity));
    // A new one first: it waits for the lease, which the old one gives up as it ends. Where each must have a host of its own there
    // may be none left for a new one until an old one has gone.
    let (surge, unavailable) = if given.is_none() && settings.strict_anti_affinity { (0, 1) } else { (1, 0) };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": set.name, "namespace": settings.namespace, "labels": pod_labels(set)},
        "spec": {
            "replicas": set.replicas,
            "selector": {"matchLabels": selector(set)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
            "template": {
                "metadata": {"labels": pod_labels(set), "annotations": annotations},
                "spec": {
                    "serviceAccountName": set.name,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "imagePullSecrets": settings.pull_secrets,
                    "priorityClassName": settings.priority_class,
                    "nodeSelector": settings.node_selector,
                    "tolerations": settings.tolerations,
                    "affinity": affinity,
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "topology.kubernetes.io/zone",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": selector(set)},
                    }],
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": pod_security(settings),
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    })
}

/// The only place that may be written to: memory, gone with the pod.
pub(crate) fn tmp() -> Value {
    json!({"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}})
}

pub(crate) fn tmp_mount() -> Value {
    json!({"name": "tmp", "mountPath": "/tmp"})
}

pub(crate) fn pod_security(settings: &Settings) -> Value {
    let mut out = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    if let Some(user) = settings.run_as {
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            out[field] = json!(user);
        }
    }
    out
}

pub(crate) fn container_security(settings: &Settings) -> Value {
    match &settings.security_context {
        Value::Null => json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }),
        other => other.clone(),
    }
}

fn anti_affinity(set: &Set, strict: bool) -> Value {
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": selector(set)}});
    if strict {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    } else {
        json!({"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}],
        }})
    }
}

fn service(settings: &Settings, set: &Set) -> Value {
    let mut ports = vec![json!({
        "name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP",
    })];
    if set.components.contains(&Component::Admission) {
        ports.push(json!({"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"}));
    }
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": set.name, "namespace": settings.namespace, "labels": pod_labels(set)},
        "spec": {"type": "ClusterIP", "selector": selector(set), "ports": ports},
    })
}

/// By what may be missing rather than by what must be there: that can be drained with one replica too.
fn budget(settings: &Settings, set: &Set) -> Option<Value> {
    let max_unavailable = set.max_unavailable?;
    Some(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": set.name, "namespace": settings.namespace, "labels": labels(&set.name)},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": selector(set)}},
    }))
}

/// More pods of Muster's than anybody runs.
const MOST_PODS: u32 = 1000;

/// Some clusters (GKE) let the critical priority classes into a namespace only where a quota speaks of them.
pub fn quota(settings: &Settings) -> Option<Value> {
    (!settings.priority_class.is_empty()).then(|| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "muster-priority", "namespace": settings.namespace, "labels": labels("quota")},
            "spec": {
                "hard": {"pods": MOST_PODS.to_string()},
                "scopeSelector": {"matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": [settings.priority_class]},
                ]},
            },
        })
    })
}

/// Nothing in and nothing out, save what every process needs, and the webhooks.
pub fn network_policies(settings: &Settings, sets: &[&Set]) -> Vec<Value> {
    let policy = |name: &str, pods: Value, spec: Value| {
        let mut spec = spec;
        spec["podSelector"] = json!({"matchLabels": pods});
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": settings.namespace, "labels": labels("network")},
            "spec": spec,
        })
    };
    let port = |port: u16, protocol: &str| json!({"port": port, "protocol": protocol});
    let all = json!({"app.kubernetes.io/name": "muster"});
    let mut out = vec![
        policy("muster-deny", all.clone(), json!({"policyTypes": ["Ingress", "Egress"]})),
        policy(
            "muster-allow",
            all,
            json!({
                "policyTypes": ["Ingress", "Egress"],
                // Metrics for whoever collects them, probes for the kubelet.
                "ingress": [{"ports": [port(METRICS_PORT, "TCP"), port(HEALTH_PORT, "TCP")]}],
                // Names, and the API server: it is no pod, so it cannot be selected, and its port is mostly 443 before and
                // 6443 after its Service is resolved.
                "egress": [
                    {"ports": [port(53, "UDP"), port(53, "TCP")]},
                    {"ports": settings.api_ports},
                ],
            }),
        ),
    ];
    for set in sets.iter().filter(|s| s.components.contains(&Component::Admission)) {
        out.push(policy(
            &set.name,
            selector(set),
            json!({
                "policyTypes": ["Ingress"],
                // The API server calls from an address that no selector describes.
                "ingress": [{"ports": [port(WEBHOOK_PORT, "TCP")]}],
            }),
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        // The example of RFC 1950's best known description.
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        assert_eq!(adler32(b""), 1);
    }

    #[test]
    fn the_last_of_each_flag_counts() {
        let given = ["run", "--a=1", "--b", "--a=2"].map(str::to_owned).to_vec();
        assert_eq!(last_of_each(given), ["run", "--a=2", "--b"]);
    }

    #[track_caller]
    fn check(settings: &Settings, name: &str, pointer: &str, expected: Value) {
        let all = crate::objects(settings);
        let found = all.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == name);
        let pointer = pointer.replace("main", "/spec/template/spec/containers/0");
        assert_eq!(found.unwrap().pointer(&pointer).unwrap_or(&Value::Null), &expected, "{name} {pointer}");
    }

    #[test]
    fn what_a_cluster_may_ask_for_differently() {
        let scheduler = "muster-scheduler";
        let user = |settings: &Settings, expected: Value| {
            for field in ["runAsUser", "runAsGroup", "fsGroup"] {
                let at = format!("/spec/template/spec/securityContext/{field}");
                check(settings, scheduler, &at, expected.clone());
            }
        };
        user(&Settings::default(), json!(65532));
        user(&Settings { run_as: None, ..Settings::default() }, Value::Null);

        let six = Settings { listen: "[::]".into(), ..Settings::default() };
        check(&six, "muster-admission", "main/args/3", json!("--metrics-address=[::]:8080"));
        check(&six, "muster-admission", "main/args/4", json!("--health-address=[::]:8081"));
        let text = serde_json::to_string(&crate::objects(&six)).unwrap();
        assert!(!text.contains("0.0.0.0") && text.contains("--webhook-address=[::]:9443"));

        let policies = network_policies(
            &Settings { api_ports: crate::settings::ports(&[16443]), ..Settings::default() },
            &[],
        );
        let out = &policies[1]["spec"]["egress"][1]["ports"];
        assert_eq!(*out, json!([{"port": 16443, "protocol": "TCP"}]));
    }

    /// With as many replicas as hosts there is no host for one more.
    #[test]
    fn a_rollout_needs_no_host_that_is_not_there() {
        let surge = "/spec/strategy/rollingUpdate";
        check(&Settings::default(), "muster-grove", surge, json!({"maxSurge": 1, "maxUnavailable": 0}));
        let strict = Settings { strict_anti_affinity: true, ..Settings::default() };
        check(&strict, "muster-grove", surge, json!({"maxSurge": 0, "maxUnavailable": 1}));
    }

    #[test]
    fn admission_is_ready_when_it_can_be_asked() {
        let probe = "main/readinessProbe/httpGet";
        let asked = json!({"path": "/readyz", "port": "webhook", "scheme": "HTTPS"});
        check(&Settings::default(), "muster-admission", probe, asked);
        let page = json!({"path": "/readyz", "port": "health"});
        check(&Settings::default(), "muster-grove", probe, page.clone());
        // Together with others, what they say counts too.
        let mut together = Settings::default();
        together.sets[1].components.push(Component::Grouper);
        check(&together, "muster-admission", probe, page);
    }

    /// Two schedulers that both take names over would take them from each other.
    #[test]
    fn one_scheduler_takes_over() {
        let settings = Settings { take_over: true, ..Settings::default() };
        check(&settings, "muster-scheduler", "/spec/replicas", json!(1));
        check(&settings, "muster-grove", "/spec/replicas", json!(2));
        check(&Settings::default(), "muster-scheduler", "/spec/replicas", json!(2));
        check(&settings.with_replicas(0), "muster-scheduler", "/spec/replicas", json!(0));
    }

    /// Without the names it would keep the queues of every system there is.
    #[test]
    fn who_keeps_queues_is_told_whose() {
        let settings = Settings { scheduler_names: vec!["a".into(), "b".into()], ..Settings::default() };
        for component in Component::ALL {
            let set = Set { components: vec![component], ..settings.scheduler.clone() };
            let told = arguments(&settings, &set).contains(&"--scheduler-name=a,b".to_owned());
            assert_eq!(told, component != Component::Operator, "{component}");
        }
    }

    #[test]
    fn a_quota_lets_the_priority_class_in() {
        let quota = |class: &str| {
            let settings = Settings { priority_class: class.into(), ..Settings::default() };
            quota(&settings).map(|q| q["spec"]["scopeSelector"]["matchExpressions"][0]["values"].clone())
        };
        assert_eq!(quota("system-cluster-critical"), Some(json!(["system-cluster-critical"])));
        assert_eq!(quota(""), None);
    }

    #[test]
    fn every_flag_is_listed() {
        let settings = Settings { take_over: true, ..Settings::default() };
        let all = Set { components: Component::ALL.to_vec(), ..settings.scheduler.clone() };
        let mut used: Vec<String> = arguments(&settings, &all);
        for object in shard(&settings, &settings.shards[0]) {
            let args = object.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
            used.extend(args.into_iter().flatten().filter_map(|a| a.as_str().map(str::to_owned)));
        }
        let mut flags: Vec<&str> = used
            .iter()
            .filter_map(|a| a.strip_prefix("--"))
            .map(|a| a.split_once('=').map_or(a, |(flag, _)| flag))
            .collect();
        flags.sort_unstable();
        flags.dedup();
        let mut listed: Vec<&str> = FLAGS.to_vec();
        listed.sort_unstable();
        assert_eq!(flags, listed);
    }
}
