//! All objects of an installation, in the order in which they are applied.
//!
//! In: [`Settings`]. Out: objects as JSON, and the way out: what any installation may have made, backwards. Must stay true: an
//! object comes after everything that it needs (its namespace, its account, its roles), and its identity depends on the settings
//! alone, so that applying twice changes nothing; what others may have made under the same name ([`is_shared`]) is told apart by a
//! mark. CustomResourceDefinitions are not among them: `muster crds` has those.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::component::Component;
use crate::operator::{CONFIG, GROVE, KUEUE, LISTEN, NETWORK};
use crate::settings::{CERTIFICATES, Set, Settings, WEBHOOKS, resources};
use crate::workload::{self, labels};
use crate::{groups, monitoring};

/// Everything that an installation applies, in order.
pub fn objects(settings: &Settings) -> Vec<Value> {
    let operator = operator_set();
    let mut out = namespaces(settings);
    out.extend(groups::roles(&labels("people")));
    out.extend(priority_classes());
    out.extend(default_queues(settings.default_quota));
    if settings.operator {
        out.extend(workload::quota(settings));
        out.push(workload::account(settings, &operator));
        out.extend(workload::roles(settings, Component::Operator));
        out.extend(workload::bindings(settings, &operator));
        if settings.network_policies {
            out.extend(workload::network_policies(settings, &[]));
        }
        out.extend(config(settings));
        out.extend(workload::deployed(settings, &operator));
    } else {
        out.extend(running(settings));
    }
    if settings.monitoring {
        out.extend(monitoring::objects(settings));
    }
    out
}

/// What runs, and what it needs to run: the part that the operator makes too.
pub(crate) fn running(settings: &Settings) -> Vec<Value> {
    let schedulers: Vec<Set> = settings
        .shards
        .iter()
        .map(|shard| Set { name: shard.name.clone(), ..settings.scheduler.clone() })
        .collect();
    let sets: Vec<&Set> = schedulers.iter().chain(&settings.sets).collect();
    let mut out: Vec<Value> = workload::quota(settings).into_iter().collect();
    out.extend(sets.iter().map(|set| workload::account(settings, set)));
    for component in Component::ALL {
        if sets.iter().any(|set| workload::roles_of(set).contains(&component)) {
            out.extend(workload::roles(settings, component));
        }
    }
    out.extend(sets.iter().flat_map(|set| workload::bindings(settings, set)));
    out.extend(workload::reservations(settings));
    if settings.network_policies {
        out.extend(workload::network_policies(settings, &sets));
    }
    if settings.has_kueue() {
        out.push(workload::kueue_configuration(settings));
    }
    out.extend(settings.shards.iter().flat_map(|shard| workload::shard(settings, shard)));
    out.extend(settings.sets.iter().flat_map(|set| workload::deployed(settings, set)));
    out
}

/// What an uninstallation looks for, in order, whichever way Muster was installed in these namespaces: with the operator or without,
/// with monitoring or without. First the webhooks, so that nothing waits for a server that is gone; then what the operator works
/// from, so that it makes nothing anew; then the rest backwards.
pub fn objects_to_delete(settings: &Settings) -> Vec<Value> {
    let any = |operator| Settings {
        operator,
        monitoring: true,
        network_policies: true,
        priority_class: Settings::default().priority_class,
        ..settings.clone()
    };
    let mut out = rewritten(settings);
    out.extend(config(settings));
    let forth = objects(&any(false)).into_iter().chain(objects(&any(true)));
    let mut known: BTreeSet<String> = out.iter().filter_map(path).collect();
    let forth: Vec<Value> = forth.filter(|object| path(object).is_some_and(|at| known.insert(at))).collect();
    out.extend(forth.into_iter().rev());
    out
}

/// What stops work once nobody answers, and the Deployment that writes it anew: what must go before others delete the rest.
pub fn webhooks(settings: &Settings) -> Vec<Value> {
    let admission = Settings { operator: false, ..settings.clone() };
    let admission = objects(&admission)
        .into_iter()
        .filter(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == WEBHOOKS);
    rewritten(settings).into_iter().filter(|o| o["kind"] != "Secret").chain(admission).collect()
}

/// What Muster's own processes write: one that has not ended yet may write it again after it was deleted.
pub fn rewritten(settings: &Settings) -> Vec<Value> {
    let mut out: Vec<Value> = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
        .into_iter()
        .map(|kind| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": WEBHOOKS},
            })
        })
        .collect();
    out.push(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": CERTIFICATES, "namespace": settings.namespace},
    }));
    out
}

/// The label of what an installation did not find and so made, among what others may have made under the same name. It is set when
/// the object is created and never on one that is there: without it an installation changes nothing of the object, and an
/// uninstallation leaves it. The manifests do not have it: whoever applies those cannot tell the two apart.
pub const CREATED_BY: (&str, &str) = ("muster.dev/created-by", "muster");

/// Whether somebody else may have made this under the same name: a namespace may be full of other people's work, a Config and its
/// shards may be KAI's, and so may be the account of the pods that hold shared GPUs.
pub fn is_shared(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("Namespace" | "Config" | "SchedulingShard"))
        || object["metadata"]["labels"]["app.kubernetes.io/component"] == workload::RESERVATION
}

/// The object with the mark of an installation.
pub fn marked(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["labels"][CREATED_BY.0] = json!(CREATED_BY.1);
    object
}

/// Whether an installation made it.
pub fn is_marked(found: &Value) -> bool {
    found["metadata"]["labels"][CREATED_BY.0] == CREATED_BY.1
}

fn operator_set() -> Set {
    Set::new("muster-operator", &[Component::Operator], 1, resources("20m", "64Mi", "256Mi"))
}

/// The namespace that Muster runs in, and those of the pods that it makes itself.
pub(crate) fn namespaces(settings: &Settings) -> Vec<Value> {
    let namespace = |name: &str, level: &str| {
        let mut labels = labels("namespace");
        labels["pod-security.kubernetes.io/enforce"] = json!(level);
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    };
    vec![
        namespace(&settings.namespace, "restricted"),
        // A pod there holds a GPU for others, and looks at the device.
        namespace(&settings.reservation_namespace, "baseline"),
        namespace(&settings.scale_namespace, "baseline"),
    ]
}

/// KAI's four: name, value, meaning.
pub const PRIORITY_CLASSES: [(&str, i64, &str); 4] = [
    ("train", 50, "Training: preemptible. The default of most workloads."),
    ("build-preemptible", 75, "Interactive work that may be preempted."),
    ("build", 100, "Interactive work: not preemptible, within quota only."),
    ("inference", 125, "Serving: not preemptible, within quota only."),
];

/// The classes that queues and pod groups go by. 100 and more is not preemptible.
pub fn priority_classes() -> Vec<Value> {
    PRIORITY_CLASSES
        .iter()
        .map(|(name, value, description)| {
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name, "labels": labels("priority")},
                "value": value, "globalDefault": false, "description": description,
            })
        })
        .collect()
}

/// The two queues that pods without a queue go to. `quota` holds for every resource; -1 is unlimited.
pub fn default_queues(quota: i64) -> Vec<Value> {
    let share = json!({"quota": quota, "overQuotaWeight": 1, "limit": -1});
    let queue = |name: &str, parent: Option<&str>| {
        let mut queue = json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
            "metadata": {"name": name, "labels": labels("queue")},
            "spec": {"resources": {"cpu": share, "memory": share, "gpu": share}},
        });
        if let Some(parent) = parent {
            queue["spec"]["parentQueue"] = json!(parent);
        }
        queue
    };
    vec![queue("default-parent-queue", None), queue("default-queue", Some("default-parent-queue"))]
}

/// What the operator works from: the settings as a Config and SchedulingShards.
fn config(settings: &Settings) -> Vec<Value> {
    let (repository, name, tag) = split_image(&settings.image);
    let components = settings.sets.iter().flat_map(|set| &set.components);
    let grove: Vec<&str> =
        components.filter(|c| Component::GROVE.contains(c)).map(|component| component.name()).collect();
    let kueue = match &settings.kueue_config {
        _ if !settings.has_kueue() => "false".to_owned(),
        config if config.as_object().is_some_and(|map| !map.is_empty()) => config.to_string(),
        _ => "true".to_owned(),
    };
    let default = Settings::default();
    let mut annotations = json!({GROVE: grove.join(","), KUEUE: kueue});
    if !settings.network_policies {
        annotations[NETWORK] = json!("false");
    } else if settings.api_ports != default.api_ports {
        let ports = settings.api_ports.as_array().into_iter().flatten().map(|port| port["port"].to_string());
        annotations[NETWORK] = json!(ports.collect::<Vec<_>>().join(","));
    }
    if settings.listen != default.listen {
        annotations[LISTEN] = json!(settings.listen);
    }
    let mut out = vec![json!({
        "apiVersion": "kai.scheduler/v1", "kind": "Config",
        "metadata": {"name": CONFIG, "labels": labels("operator"), "annotations": annotations},
        "spec": {
            "namespace": settings.namespace,
            "global": {
                "schedulerName": settings.scheduler_names.join(","),
                "queueLabelKey": settings.queue_label,
                "nodePoolLabelKey": settings.node_pool_label,
                "replicaCount": settings.scheduler.replicas,
                "jsonLog": settings.json_logs,
                "priorityClassName": settings.priority_class,
            },
            "scheduler": {"service": {"image": {
                "repository": repository, "name": name, "tag": tag, "pullPolicy": settings.pull_policy,
            }}},
            "binder": {"resourceReservation": {"namespace": settings.reservation_namespace}},
            "nodeScaleAdjuster": {"args": {"nodeScaleNamespace": settings.scale_namespace}},
        },
    })];
    if settings.run_as.is_none() {
        out[0]["spec"]["global"]["openshift"] = json!(true);
    }
    for shard in &settings.shards {
        let mut spec = if shard.spec.is_object() { shard.spec.clone() } else { json!({}) };
        if !shard.partition.is_empty() {
            spec["partitionLabelValue"] = json!(shard.partition);
        }
        // The operator names the scheduler of a shard after it.
        let name = match shard.name.strip_prefix("muster-scheduler") {
            Some("") => "default",
            Some(rest) => rest.trim_start_matches('-'),
            None => &shard.name,
        };
        out.push(json!({
            "apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard",
            "metadata": {"name": name, "labels": labels("operator")},
            "spec": spec,
        }));
    }
    out
}

/// `registry/team/muster:1` as repository, name and tag.
pub(crate) fn split_image(image: &str) -> (&str, &str, &str) {
    let (repository, rest) = image.rsplit_once('/').unwrap_or(("", image));
    let (name, tag) = rest.split_once(':').unwrap_or((rest, "latest"));
    (repository, name, tag)
}

/// Plurals of the kinds that are applied, and whether they live in a namespace.
pub(crate) const APPLIED: &[(&str, &str, &str, bool)] = &[
    ("v1", "Namespace", "namespaces", false),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "ResourceQuota", "resourcequotas", true),
    ("v1", "Service", "services", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("batch/v1", "Job", "jobs", true),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    ("scheduling.run.ai/v2", "Queue", "queues", false),
    ("kai.scheduler/v1", "Config", "configs", false),
    ("kai.scheduler/v1", "SchedulingShard", "schedulingshards", false),
    ("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors", true),
    ("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules", true),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    ),
];

/// Where an object lives in the API; `None` for a kind that no installation has.
pub fn path(object: &Value) -> Option<String> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let (_, _, plural, namespaced) = APPLIED.iter().find(|(v, k, ..)| *v == version && *k == kind)?;
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let name = object.pointer("/metadata/name")?.as_str()?;
    if *namespaced {
        let namespace = object.pointer("/metadata/namespace")?.as_str()?;
        Some(format!("{root}/{version}/namespaces/{namespace}/{plural}/{name}"))
    } else {
        Some(format!("{root}/{version}/{plural}/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many() -> Vec<Settings> {
        let default = Settings::default;
        let mut two = default().with_replicas(1);
        two.shards.push(crate::Shard {
            name: "muster-scheduler-a".into(),
            partition: "a".into(),
            spec: json!({"placementStrategy": {"gpu": "spread"}}),
            args: vec![],
        });
        vec![
            default(),
            Settings { monitoring: true, ..default() },
            Settings { operator: true, monitoring: true, ..default() },
            Settings { network_policies: false, strict_anti_affinity: true, ..default() },
            Settings { priority_class: String::new(), run_as: None, take_over: true, ..default() },
            two,
        ]
    }

    #[test]
    fn every_object_has_a_place_of_its_own() {
        for settings in many() {
            let all = objects(&settings);
            let paths: Vec<String> = all.iter().map(|o| path(o).unwrap_or_else(|| panic!("{o}"))).collect();
            let unique: BTreeSet<&String> = paths.iter().collect();
            assert_eq!(unique.len(), paths.len(), "{paths:#?}");
        }
    }

    /// Namespaces, accounts, roles and configuration come before what uses them.
    #[track_caller]
    fn check_order<'a>(all: impl IntoIterator<Item = &'a Value>) {
        let mut there: BTreeSet<String> = BTreeSet::new();
        for object in all {
            let text = |p: &str| object.pointer(p).and_then(Value::as_str).map(str::to_owned);
            let mut needs: Vec<String> = Vec::new();
            let namespace = text("/metadata/namespace");
            needs.extend(namespace.iter().map(|ns| format!("/api/v1/namespaces/{ns}")));
            if let (Some(account), Some(ns)) = (text("/spec/template/spec/serviceAccountName"), &namespace) {
                needs.push(format!("/api/v1/namespaces/{ns}/serviceaccounts/{account}"));
            }
            if let (Some(kind), Some(name)) = (text("/roleRef/kind"), text("/roleRef/name")) {
                let rbac = "/apis/rbac.authorization.k8s.io/v1";
                needs.push(match (kind.as_str(), &namespace) {
                    ("Role", Some(ns)) => format!("{rbac}/namespaces/{ns}/roles/{name}"),
                    _ => format!("{rbac}/clusterroles/{name}"),
                });
            }
            if let Some(parent) = text("/spec/parentQueue") {
                needs.push(format!("/apis/scheduling.run.ai/v2/queues/{parent}"));
            }
            for need in needs {
                assert!(there.contains(&need), "{need} comes too late for {object}");
            }
            there.insert(path(object).unwrap());
        }
    }

    #[test]
    fn nothing_comes_before_what_it_needs() {
        for settings in many() {
            check_order(&objects(&settings));
        }
    }

    /// Whatever was chosen at the installation, the way out needs the namespaces alone to find it.
    #[test]
    fn what_is_installed_is_deleted_backwards() {
        for settings in many() {
            let chosen = Settings { shards: settings.shards.clone(), ..Settings::default() };
            let back = objects_to_delete(&chosen);
            let paths: Vec<String> = back.iter().map(|o| path(o).unwrap_or_else(|| panic!("{o}"))).collect();
            let unique: BTreeSet<&String> = paths.iter().collect();
            assert_eq!(unique.len(), paths.len(), "{paths:#?}");
            let at = |object: &Value| {
                let wanted = path(object).unwrap();
                paths.iter().position(|p| *p == wanted).unwrap_or_else(|| panic!("{wanted} stays behind"))
            };
            objects(&settings).iter().for_each(|object| assert!(at(object) >= rewritten(&chosen).len()));
            let early = rewritten(&chosen).len() + 1 + chosen.shards.len();
            assert!(back[early - 1]["kind"] == "SchedulingShard" && back[early]["kind"] == "Deployment");
            check_order(back[early..].iter().rev());
            assert_eq!(back[0]["kind"], "MutatingWebhookConfiguration");
        }
    }

    /// The mark says what an installation found absent, so nothing has it before that is known, and only what others may have too.
    #[test]
    fn only_what_others_may_have_is_marked() {
        for settings in many() {
            for object in objects(&settings) {
                let kind = object["kind"].as_str().unwrap();
                let of_reservations = object["metadata"]["name"] == settings.reservation_account.as_str();
                let shared = matches!(kind, "Namespace" | "Config" | "SchedulingShard") || of_reservations;
                assert_eq!(is_shared(&object), shared, "{object}");
                assert!(!is_marked(&object) && is_marked(&marked(&object)), "{object}");
                assert_eq!(path(&marked(&object)), path(&object));
            }
        }
    }

    #[track_caller]
    fn check_image(image: &str, expected: (&str, &str, &str)) {
        assert_eq!(split_image(image), expected);
    }

    #[test]
    fn images() {
        check_image("muster:1.2", ("", "muster", "1.2"));
        check_image("registry:5000/team/muster:1.2", ("registry:5000/team", "muster", "1.2"));
        check_image("team/muster", ("team", "muster", "latest"));
    }
}
