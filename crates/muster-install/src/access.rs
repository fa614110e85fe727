//! What each component may do: the least that it needs.
//!
//! In: a component. Out: its [`Access`], from which roles, bindings and the table in docs/install.md are made; and
//! [`allows`], which answers whether a request is covered by rendered roles. Must stay true: no wildcards, no Secret
//! outside the component's own namespace, and no verb that the component's code does not use, or Kubernetes does not ask for
//! when it looks at what the code writes.

use serde_json::{Value, json};

use crate::component::Component;
use crate::settings::{CERTIFICATES, Settings, WEBHOOKS};

/// One rule of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub group: &'static str,
    pub resources: Vec<&'static str>,
    pub verbs: Vec<&'static str>,
    /// Only objects of these names; empty means all.
    pub names: Vec<String>,
}

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Everywhere.
    Cluster,
    /// The namespace that Muster runs in.
    Own,
    /// The namespace of the pods that hold shared GPUs.
    Reservations,
    /// The namespace of the pods that ask for nodes.
    Scaling,
}

impl Place {
    pub fn namespace(self, settings: &Settings) -> Option<&str> {
        match self {
            Place::Cluster => None,
            Place::Own => Some(&settings.namespace),
            Place::Reservations => Some(&settings.reservation_namespace),
            Place::Scaling => Some(&settings.scale_namespace),
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Place::Cluster => "everywhere",
            Place::Own => "own namespace",
            Place::Reservations => "reservation namespace",
            Place::Scaling => "scaling namespace",
        }
    }
}

const READ: &[&str] = &["get", "list", "watch"];

fn rule(group: &'static str, resources: &[&'static str], verbs: &[&'static str]) -> Rule {
    Rule { group, resources: resources.to_vec(), verbs: verbs.to_vec(), names: Vec::new() }
}

fn named(group: &'static str, resources: &[&'static str], verbs: &[&'static str], name: &str) -> Rule {
    Rule { names: vec![name.to_owned()], ..rule(group, resources, verbs) }
}

/// Everything that a component may do, by place.
pub fn access(component: Component) -> Vec<(Place, Vec<Rule>)> {
    let mut out = match component {
        Component::Scheduler => vec![(Place::Cluster, scheduler())],
        Component::Binder => vec![
            (Place::Cluster, binder()),
            (Place::Reservations, vec![rule("", &["pods"], &["create", "delete", "patch"])]),
        ],
        Component::Grouper => vec![(Place::Cluster, grouper())],
        Component::Podgroups => vec![(
            Place::Cluster,
            [
                counted(),
                of_others(),
                vec![rule("scheduling.run.ai", &["podgroups/status"], &["patch"]), events()],
            ]
            .concat(),
        )],
        Component::Queues => vec![(
            Place::Cluster,
            [
                counted(),
                of_others(),
                vec![rule("scheduling.run.ai", &["queues/status"], &["patch"]), events()],
            ]
            .concat(),
        )],
        Component::ScaleAdjuster => vec![
            (
                Place::Cluster,
                vec![
                    rule("", &["pods", "nodes", "namespaces"], READ),
                    rule("scheduling.run.ai", &["podgroups"], READ),
                    holds_back("scheduling.run.ai", &["podgroups/finalizers"]),
                    // An autoscaler finds what it made room for by an annotation on the pods.
                    rule("", &["pods"], &["patch"]),
                    rule("", &["podtemplates"], &["get", "list", "watch", "create", "patch", "delete"]),
                    rule(
                        "autoscaling.x-k8s.io",
                        &["provisioningrequests"],
                        &["get", "list", "watch", "create", "patch", "delete"],
                    ),
                    events(),
                ],
            ),
            (
                Place::Scaling,
                vec![
                    rule("", &["pods"], &["create", "delete", "patch"]),
                    rule("", &["pods/status"], &["patch"]),
                ],
            ),
        ],
        Component::Admission => vec![
            (
                Place::Cluster,
                vec![
                    rule("", &["namespaces"], READ),
                    rule("scheduling.run.ai", &["queues"], READ),
                    rule("scheduling.volcano.sh", &["queues"], READ),
                    rule("scheduler.tensorstack.dev", &["queues"], READ),
                    rule("scheduling.sigs.k8s.io", &["elasticquotas"], READ),
                    rule("kueue.x-k8s.io", &["localqueues"], READ),
                    lease_of_kueue(),
                    rule("scheduling.k8s.io", &["priorityclasses"], READ),
                    rule(
                        "grove.io",
                        &["podcliquesets", "podcliques", "podcliquescalinggroups", "clustertopologybindings"],
                        READ,
                    ),
                    rule("node.k8s.io", &["runtimeclasses"], READ),
                    // A creation cannot be limited to a name.
                    rule(
                        "admissionregistration.k8s.io",
                        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                        &["create"],
                    ),
                    named(
                        "admissionregistration.k8s.io",
                        &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                        &["get", "patch"],
                        WEBHOOKS,
                    ),
                ],
            ),
            (
                Place::Own,
                vec![
                    rule("", &["secrets"], &["create"]),
                    named("", &["secrets"], &["get", "update"], CERTIFICATES),
                ],
            ),
        ],
        Component::Operator => vec![(Place::Cluster, operator())],
        Component::Kueue => vec![(Place::Cluster, kueue())],
        Component::Grove => vec![(Place::Cluster, grove())],
        Component::BackendKai => vec![(Place::Cluster, backend("scheduling.run.ai", &["podgroups"]))],
        Component::BackendDefault => {
            let mut rules = backend("scheduling.k8s.io", &["workloads", "podgroups"]);
            // What Kubernetes' own scheduler cannot be told is held until it has room, and where that is is written on the gang.
            rules.push(rule("", &["nodes", "pods"], READ));
            rules.push(rule("scheduler.grove.io", &["podgangs"], &["patch"]));
            vec![(Place::Cluster, rules)]
        }
        Component::BackendKoordinator => {
            vec![(Place::Cluster, backend("scheduling.sigs.k8s.io", &["podgroups"]))]
        }
        Component::BackendVolcano => vec![(Place::Cluster, backend("scheduling.volcano.sh", &["podgroups"]))],
        Component::BackendT9k => vec![(Place::Cluster, backend("scheduler.tensorstack.dev", &["podgroups"]))],
        Component::BackendMuster => vec![(Place::Cluster, backend("", &[]))],
    };
    // One holder at a time, and a way to say so.
    let lease = rule("coordination.k8s.io", &["leases"], &["get", "create", "patch"]);
    match out.iter_mut().find(|(place, _)| *place == Place::Own) {
        Some((_, rules)) => rules.push(lease),
        None => out.push((Place::Own, vec![lease])),
    }
    out
}

fn events() -> Rule {
    rule("", &["events"], &["create", "patch"])
}

/// What is counted in the statuses of groups and queues.
fn counted() -> Vec<Rule> {
    vec![
        rule("", &["pods", "nodes"], READ),
        rule("resource.k8s.io", &["resourceclaims"], READ),
        rule("scheduling.k8s.io", &["priorityclasses"], READ),
        rule("scheduling.run.ai", &["podgroups", "queues"], READ),
    ]
}

/// Groups and queues of other systems, whose statuses are kept too. Koordinator's have theirs in the object.
fn of_others() -> Vec<Rule> {
    vec![
        rule("scheduler.tensorstack.dev", &["podgroups", "queues"], READ),
        rule("scheduler.tensorstack.dev", &["podgroups/status", "queues/status"], &["patch"]),
        rule("scheduling.sigs.k8s.io", &["podgroups", "elasticquotas"], &["get", "list", "watch", "patch"]),
        rule("scheduling.volcano.sh", &["podgroups", "queues"], READ),
        rule("scheduling.volcano.sh", &["queues/status"], &["patch"]),
        rule("scheduling.k8s.io", &["podgroups"], READ),
        rule("scheduling.k8s.io", &["podgroups/status"], &["patch"]),
    ]
}

fn scheduler() -> Vec<Rule> {
    vec![
        rule(
            "",
            &[
                "pods",
                "nodes",
                "namespaces",
                "configmaps",
                "persistentvolumes",
                "persistentvolumeclaims",
                "resourcequotas",
            ],
            READ,
        ),
        rule("policy", &["poddisruptionbudgets"], READ),
        rule("storage.k8s.io", &["storageclasses", "csinodes"], READ),
        rule("resource.k8s.io", &["resourceclaims", "resourceslices", "deviceclasses"], READ),
        rule("scheduling.k8s.io", &["priorityclasses", "podgroups", "workloads"], READ),
        rule("scheduling.volcano.sh", &["podgroups", "queues"], READ),
        rule("topology.volcano.sh", &["hypernodes"], READ),
        rule("scheduler.tensorstack.dev", &["podgroups", "queues"], READ),
        rule("scheduling.sigs.k8s.io", &["podgroups", "elasticquotas"], READ),
        rule("scheduling.run.ai", &["podgroups", "queues", "bindrequests"], READ),
        rule("kai.scheduler", &["topologies"], READ),
        rule("scheduler.grove.io", &["podgangs"], READ),
        rule("topology.node.k8s.io", &["noderesourcetopologies"], READ),
        // What it decides.
        rule("", &["pods/binding"], &["create"]),
        rule("", &["pods"], &["patch", "delete"]),
        rule("scheduling.run.ai", &["bindrequests"], &["create", "patch", "delete"]),
        // Whether another scheduler answers to a name of ours: its lease says so, wherever it is.
        rule("coordination.k8s.io", &["leases"], &["get", "list"]),
        // What it says about it.
        rule("", &["pods/status"], &["patch"]),
        rule("scheduling.run.ai", &["podgroups", "podgroups/status"], &["patch"]),
        // Volcano's groups have their status in the object; pods that name none are given one, which inherits from their owner.
        rule("scheduling.volcano.sh", &["podgroups"], &["create", "patch"]),
        rule("apps", &["replicasets", "statefulsets", "daemonsets"], &["get"]),
        rule("batch", &["jobs"], &["get"]),
        events(),
    ]
}

fn binder() -> Vec<Rule> {
    vec![
        rule("", &["pods", "nodes", "persistentvolumes", "persistentvolumeclaims", "configmaps"], READ),
        rule("storage.k8s.io", &["storageclasses"], READ),
        rule("resource.k8s.io", &["resourceclaims"], READ),
        rule("scheduling.run.ai", &["bindrequests"], READ),
        rule("", &["pods/binding"], &["create"]),
        rule("", &["pods"], &["patch", "delete"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["persistentvolumes", "persistentvolumeclaims"], &["patch"]),
        rule("", &["configmaps"], &["create", "patch", "delete"]),
        rule("resource.k8s.io", &["resourceclaims"], &["create", "patch", "delete"]),
        rule("resource.k8s.io", &["resourceclaims/status"], &["patch"]),
        // No request goes there: since 1.36 Kubernetes asks for it, in the whole cluster and with the verb of the request, when
        // a status write changes which devices a claim has or who has it.
        rule("resource.k8s.io", &["resourceclaims/binding"], &["patch"]),
        rule("scheduling.run.ai", &["bindrequests"], &["create", "delete"]),
        rule("scheduling.run.ai", &["bindrequests/status"], &["patch"]),
        events(),
    ]
}

fn grouper() -> Vec<Rule> {
    let mut rules = vec![
        rule("", &["pods", "configmaps", "namespaces"], READ),
        rule("", &["pods"], &["patch"]),
        rule("scheduling.k8s.io", &["priorityclasses"], READ),
        // Groups are never deleted. But where Kubernetes enforces permissions on owner references, only who may delete an object may
        // change its owner, and a workload that is made anew takes over the group of the old one.
        rule("scheduling.run.ai", &["podgroups"], &["get", "list", "watch", "create", "patch", "delete"]),
        events(),
    ];
    rules.extend(OWNERS.iter().map(|(group, kinds)| rule(group, kinds, READ)));
    rules
}

/// The kinds that own pods, directly or not. The owner of a kind that is not here is not read: its pods are grouped by
/// what they say themselves.
pub const OWNERS: &[(&str, &[&str])] = &[
    ("apps", &["deployments", "replicasets", "statefulsets", "daemonsets"]),
    ("batch", &["jobs", "cronjobs"]),
    ("jobset.x-k8s.io", &["jobsets"]),
    (
        "kubeflow.org",
        &["pytorchjobs", "tfjobs", "xgboostjobs", "jaxjobs", "mpijobs", "notebooks", "scheduledworkflows"],
    ),
    ("trainer.kubeflow.org", &["trainjobs"]),
    ("ray.io", &["rayclusters", "rayjobs", "rayservices"]),
    ("leaderworkerset.x-k8s.io", &["leaderworkersets"]),
    ("serving.knative.dev", &["services", "configurations", "revisions"]),
    ("argoproj.io", &["workflows"]),
    ("tekton.dev", &["pipelineruns", "taskruns"]),
    ("sparkoperator.k8s.io", &["sparkapplications"]),
    ("machinelearning.seldon.io", &["seldondeployments"]),
    ("kubevirt.io", &["virtualmachineinstances"]),
    ("workspace.devfile.io", &["devworkspaces"]),
    ("amlarc.azureml.com", &["amljobs"]),
    ("egx.nvidia.io", &["spotrequests"]),
    ("nvidia.com", &["dynamographdeployments"]),
    (
        "run.ai",
        &[
            "runaijobs",
            "trainingworkloads",
            "interactiveworkloads",
            "distributedworkloads",
            "inferenceworkloads",
            "distributedinferenceworkloads",
        ],
    ),
    ("grove.io", &["podcliquesets", "podcliques", "podcliquescalinggroups", "podgangsets"]),
    ("scheduler.grove.io", &["podgangs"]),
    ("batch.volcano.sh", &["jobs", "cronjobs"]),
    (
        "batch.tensorstack.dev",
        &[
            "genericjobs",
            "pytorchtrainingjobs",
            "tensorflowtrainingjobs",
            "xgboosttrainingjobs",
            "mpijobs",
            "colossalaijobs",
            "deepspeedjobs",
            "beamjobs",
        ],
    ),
];

/// The kinds that backends write, by group.
const GANG_KINDS: &[(&str, &[&str])] = &[
    ("scheduling.run.ai", &["podgroups"]),
    ("scheduling.k8s.io", &["workloads", "podgroups"]),
    ("scheduling.sigs.k8s.io", &["podgroups"]),
    ("scheduling.volcano.sh", &["podgroups"]),
    ("scheduler.tensorstack.dev", &["podgroups"]),
];

fn grove() -> Vec<Rule> {
    let keep = &["get", "list", "watch", "create", "patch", "delete"];
    let mut rules = vec![
        rule("grove.io", &["podcliquesets", "clustertopologybindings"], &["get", "list", "watch", "patch"]),
        rule("grove.io", &["podcliques", "podcliquescalinggroups"], keep),
        rule(
            "grove.io",
            &[
                "podcliquesets/status",
                "podcliques/status",
                "podcliquescalinggroups/status",
                "clustertopologybindings/status",
            ],
            &["patch"],
        ),
        // See `holds_back`.
        holds_back(
            "grove.io",
            &[
                "podcliquesets/finalizers",
                "podcliques/finalizers",
                "podcliquescalinggroups/finalizers",
                "clustertopologybindings/finalizers",
            ],
        ),
        rule("scheduler.grove.io", &["podgangs"], keep),
        rule("scheduler.grove.io", &["podgangs/status"], &["patch"]),
        rule("", &["pods", "services", "serviceaccounts"], keep),
        // Pods of a set may look at each other, and nobody can hand out what they do not have.
        rule("", &["pods/status"], READ),
        rule("", &["nodes"], READ),
        // What lets the containers of a clique start; it is made and never read.
        rule("", &["secrets"], &["create"]),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], keep),
        rule("autoscaling", &["horizontalpodautoscalers"], keep),
        rule("resource.k8s.io", &["resourceclaims"], keep),
        rule("resource.k8s.io", &["resourceclaimtemplates"], &["get"]),
        rule("resource.nvidia.com", &["computedomains"], keep),
        rule("kai.scheduler", &["topologies"], keep),
        events(),
    ];
    rules.extend(GANG_KINDS.iter().map(|(group, kinds)| rule(group, kinds, READ)));
    rules
}

/// An owner that is kept until what it owns has gone (`blockOwnerDeletion`): where Kubernetes enforces permissions on owner references,
/// as OpenShift does, only who may set the owner's finalizers may say so. No request goes there.
fn holds_back(group: &'static str, owners: &[&'static str]) -> Rule {
    rule(group, owners, &["update"])
}

/// Whether Kueue itself runs: nothing is done while it does.
fn lease_of_kueue() -> Rule {
    named("coordination.k8s.io", &["leases"], &["get"], "c1f6bfd2.kueue.x-k8s.io")
}

fn kueue() -> Vec<Rule> {
    let group = "kueue.x-k8s.io";
    vec![
        rule(group, &["localqueues", "cohorts", "workloadpriorityclasses"], READ),
        // What is in use is kept by a finalizer.
        rule(
            group,
            &["clusterqueues", "resourceflavors", "admissionchecks", "topologies"],
            &["get", "list", "watch", "patch"],
        ),
        rule(group, &["workloads"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(
            group,
            &["clusterqueues/status", "localqueues/status", "cohorts/status", "workloads/status"],
            &["patch"],
        ),
        rule("", &["namespaces", "limitranges", "nodes"], READ),
        rule("scheduling.k8s.io", &["priorityclasses"], READ),
        // Jobs are suspended and started, pods are let go and ended; both are deleted where that was asked for.
        rule("batch", &["jobs"], &["get", "list", "watch", "patch", "delete"]),
        rule("batch", &["jobs/status"], &["patch"]),
        rule("", &["pods"], &["get", "list", "watch", "patch", "delete"]),
        rule("", &["pods/status"], &["patch"]),
        holds_back("batch", &["jobs/finalizers"]),
        holds_back("", &["pods/finalizers"]),
        lease_of_kueue(),
        events(),
    ]
}

fn backend(group: &'static str, kinds: &[&'static str]) -> Vec<Rule> {
    let mut rules = vec![
        rule("grove.io", &["podcliquesets", "clustertopologybindings"], READ),
        rule("scheduler.grove.io", &["podgangs"], READ),
        rule("scheduler.grove.io", &["podgangs/status"], &["patch"]),
        events(),
    ];
    if !kinds.is_empty() {
        rules.push(rule(group, kinds, &["get", "list", "watch", "create", "patch", "delete"]));
        rules.push(holds_back("scheduler.grove.io", &["podgangs/finalizers"]));
    }
    rules
}

fn operator() -> Vec<Rule> {
    let keep = &["get", "list", "watch", "create", "patch", "delete"];
    let mut rules = vec![
        rule("kai.scheduler", &["configs", "schedulingshards"], READ),
        rule("kai.scheduler", &["configs/status", "schedulingshards/status"], &["patch"]),
        rule("", &["namespaces"], &["get", "create"]),
        rule("", &["serviceaccounts", "services", "configmaps", "resourcequotas"], keep),
        rule("apps", &["deployments"], keep),
        rule("policy", &["poddisruptionbudgets"], keep),
        rule("networking.k8s.io", &["networkpolicies"], keep),
        rule(
            "rbac.authorization.k8s.io",
            &["clusterroles", "clusterrolebindings", "roles", "rolebindings"],
            keep,
        ),
        rule("monitoring.coreos.com", &["servicemonitors", "prometheusrules"], keep),
        events(),
    ];
    // Nobody can hand out what they do not have themselves, so the operator has what all the others have.
    for component in Component::ALL.into_iter().filter(|c| *c != Component::Operator) {
        for (_, more) in access(component) {
            for new in more {
                if !rules.contains(&new) {
                    rules.push(new);
                }
            }
        }
    }
    rules
}

/// What a scheduler may do besides when it takes names over: the leases of others are in the namespaces of others.
pub fn taking_over() -> Rule {
    rule("coordination.k8s.io", &["leases"], &["create", "patch"])
}

/// What the last act of the chart may do: take the webhooks away, and before that who would write them anew.
pub fn leaving() -> Vec<(Place, Vec<Rule>)> {
    let configurations = &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    vec![
        (
            Place::Cluster,
            vec![named("admissionregistration.k8s.io", configurations, &["get", "delete"], WEBHOOKS)],
        ),
        (
            Place::Own,
            vec![
                named("apps", &["deployments"], &["get", "delete"], WEBHOOKS),
                rule("", &["pods"], &["list"]),
            ],
        ),
    ]
}

/// The rules as a role writes them: those with the same verbs, group and names are one.
pub fn render(rules: &[Rule]) -> Vec<Value> {
    let mut merged: Vec<Rule> = Vec::new();
    for rule in rules {
        match merged
            .iter_mut()
            .find(|m| (m.group, &m.verbs, &m.names) == (rule.group, &rule.verbs, &rule.names))
        {
            Some(same) => {
                for resource in &rule.resources {
                    if !same.resources.contains(resource) {
                        same.resources.push(resource);
                    }
                }
            }
            None => merged.push(rule.clone()),
        }
    }
    merged.iter().map(Rule::render).collect()
}

impl Rule {
    fn render(&self) -> Value {
        let mut value = json!({"apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs});
        if !self.names.is_empty() {
            value["resourceNames"] = json!(self.names);
        }
        value
    }
}

/// A request, as the authorizer sees it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    /// `pods`, `pods/status`.
    pub resource: &'a str,
    /// Empty for requests that concern all namespaces or none.
    pub namespace: &'a str,
    /// Empty when the request names no object.
    pub name: &'a str,
}

/// Whether roles and bindings among these objects let a service account do this, by the rules of RBAC.
pub fn allows(objects: &[Value], account_namespace: &str, account: &str, request: Request<'_>) -> bool {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let bound = |binding: &&Value| {
        let subjects = binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
        subjects.iter().any(|s| {
            s["kind"] == "ServiceAccount" && s["name"] == account && s["namespace"] == account_namespace
        })
    };
    let holds = |binding: &&Value| {
        binding["kind"] == "ClusterRoleBinding"
            || (binding["kind"] == "RoleBinding"
                && !request.namespace.is_empty()
                && text(binding, "/metadata/namespace") == request.namespace)
    };
    objects.iter().filter(holds).filter(bound).any(|binding| {
        let kind = text(binding, "/roleRef/kind");
        let namespace = if kind == "Role" { text(binding, "/metadata/namespace") } else { String::new() };
        objects
            .iter()
            .filter(|o| {
                o["kind"] == kind.as_str()
                    && o["metadata"]["name"] == binding["roleRef"]["name"]
                    && text(o, "/metadata/namespace") == namespace
            })
            .flat_map(|role| role["rules"].as_array().map(Vec::as_slice).unwrap_or_default())
            .any(|rule| covers(rule, request))
    })
}

fn covers(rule: &Value, request: Request<'_>) -> bool {
    let has = |field: &str, wanted: &str| {
        rule[field].as_array().is_some_and(|list| list.iter().any(|v| v == wanted || v == "*"))
    };
    has("verbs", request.verb)
        && has("apiGroups", request.group)
        && has("resources", request.resource)
        && (rule.get("resourceNames").is_none()
            || rule["resourceNames"].as_array().is_some_and(|n| n.iter().any(|v| v == request.name)))
}

/// The table of docs/install.md.
pub fn table() -> String {
    let mut out = String::from("| component | where | group | resources | may |\n|---|---|---|---|---|\n");
    for component in Component::ALL {
        // The operator's own part; that it also has everything else is said in words.
        let others: Vec<Rule> = match component {
            Component::Operator => {
                let rest = Component::ALL.into_iter().filter(|c| *c != Component::Operator);
                rest.flat_map(access).flat_map(|(_, rules)| rules).collect()
            }
            _ => Vec::new(),
        };
        for (place, rules) in access(component) {
            let own: Vec<Rule> = rules.into_iter().filter(|r| !others.contains(r)).collect();
            for rule in render(&own) {
                let list = |field: &str| {
                    let items = rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
                    items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
                };
                let group = match list("apiGroups") {
                    core if core.is_empty() => "core".to_owned(),
                    group => group,
                };
                let mut resources = list("resources");
                let names = list("resourceNames");
                if !names.is_empty() {
                    resources.push_str(&format!(" (only `{names}`)"));
                }
                out.push_str(&format!(
                    "| {component} | {} | {group} | {resources} | {} |\n",
                    place.words(),
                    list("verbs")
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects;

    #[test]
    fn nothing_is_a_wildcard_and_secrets_stay_at_home() {
        for component in Component::ALL {
            for (place, rules) in access(component) {
                for rule in rules {
                    assert!(
                        !rule.verbs.contains(&"*") && !rule.resources.contains(&"*") && rule.group != "*"
                    );
                    let secrets = rule.resources.contains(&"secrets");
                    // Grove makes secrets in the namespaces of sets, and reads none.
                    let only_makes = component == Component::Grove && rule.verbs == ["create"];
                    assert!(
                        !secrets || place == Place::Own || component == Component::Operator || only_makes,
                        "{component}"
                    );
                    let reads_secrets = secrets && rule.verbs.iter().any(|v| READ.contains(v));
                    assert!(
                        !reads_secrets || !rule.names.is_empty(),
                        "{component} reads Secrets by name only"
                    );
                }
            }
        }
    }

    /// `account verb group/resource namespace/name`.
    #[track_caller]
    fn check(text: &str, expected: bool) {
        let objects = objects(&Settings::default());
        let parts: Vec<&str> = text.split(' ').collect();
        let (group, resource) = parts[2].split_once(':').unwrap();
        let (namespace, name) = parts[3].split_once('/').unwrap();
        let request = Request { verb: parts[1], group, resource, namespace, name };
        assert_eq!(allows(&objects, "muster-system", parts[0], request), expected, "{text}");
    }

    #[test]
    fn who_may_do_what() {
        check("muster-scheduler create :pods/binding a/p", true);
        check("muster-scheduler list :pods /", true);
        check("muster-scheduler patch coordination.k8s.io:leases muster-system/x", true);
        check("muster-scheduler patch coordination.k8s.io:leases kube-system/x", false);
        check("muster-scheduler get coordination.k8s.io:leases kube-system/kube-scheduler", true);
        check("muster-scheduler create :pods kai-resource-reservation/x", true);
        check("muster-scheduler create :pods a/x", false);
        check("muster-scheduler get :secrets muster-system/muster-admission-certificates", false);
        check("muster-controllers patch scheduling.run.ai:queues/status /q", true);
        check("muster-controllers patch scheduling.run.ai:queues /q", false);
        check("muster-controllers create :pods/binding a/p", false);
        check("muster-controllers create :pods kai-scale-adjust/p", true);
        check("muster-controllers create :namespaces /x", false);
        check("muster-scheduler create :namespaces /x", false);
        check("muster-scheduler create :serviceaccounts kai-resource-reservation/x", false);
        check("muster-admission get :secrets muster-system/muster-admission-certificates", true);
        check("muster-admission get :secrets muster-system/other", false);
        check(
            "muster-admission patch admissionregistration.k8s.io:mutatingwebhookconfigurations /muster-admission",
            true,
        );
        check(
            "muster-admission patch admissionregistration.k8s.io:mutatingwebhookconfigurations /other",
            false,
        );
        check("muster-grove create grove.io:podcliques a/p", true);
        check("muster-grove create :secrets a/s", true);
        check("muster-grove get :secrets a/s", false);
        check("muster-grove patch scheduler.grove.io:podgangs/status a/g", true);
        check("muster-grove create scheduling.volcano.sh:podgroups a/g", true);
        check("muster-kueue create kueue.x-k8s.io:workloads a/w", true);
        check("muster-kueue patch kueue.x-k8s.io:workloads/status a/w", true);
        check("muster-kueue patch kueue.x-k8s.io:clusterqueues /q", true);
        check("muster-kueue create kueue.x-k8s.io:clusterqueues /q", false);
        check("muster-kueue patch kueue.x-k8s.io:localqueues a/q", false);
        check("muster-kueue patch batch:jobs a/j", true);
        check("muster-kueue create batch:jobs a/j", false);
        check("muster-kueue create :pods a/p", false);
        check("muster-kueue get coordination.k8s.io:leases kueue-system/c1f6bfd2.kueue.x-k8s.io", true);
        check("muster-kueue get coordination.k8s.io:leases kube-system/kube-scheduler", false);
        check("muster-admission list kueue.x-k8s.io:localqueues /", true);
        check("muster-admission patch kueue.x-k8s.io:localqueues a/q", false);
        check("muster-admission list grove.io:podcliquesets /", true);
        check("nobody list :pods /", false);
    }

    /// What the code of each component asks for besides its leases and events, as `verbs group:resources`, and where if not everywhere.
    const ASKS: &[(Component, &[&str])] = &[
        (
            Component::Scheduler,
            &[
                "list,watch :pods,nodes,namespaces,configmaps,persistentvolumes,persistentvolumeclaims,resourcequotas",
                "list,watch policy:poddisruptionbudgets",
                "list,watch storage.k8s.io:storageclasses,csinodes",
                "list,watch resource.k8s.io:resourceclaims,resourceslices,deviceclasses",
                "list,watch scheduling.k8s.io:priorityclasses,podgroups,workloads",
                "list,watch scheduling.volcano.sh:podgroups,queues",
                "list,watch topology.volcano.sh:hypernodes",
                "list,watch scheduler.tensorstack.dev:podgroups,queues",
                "list,watch scheduling.sigs.k8s.io:podgroups,elasticquotas",
                "list,watch scheduling.run.ai:podgroups,queues,bindrequests",
                "list,watch kai.scheduler:topologies",
                "list,watch scheduler.grove.io:podgangs",
                "list,watch topology.node.k8s.io:noderesourcetopologies",
                "create :pods/binding",
                "get,patch,delete :pods",
                "patch :pods/status",
                "get,create,delete scheduling.run.ai:bindrequests",
                "patch scheduling.run.ai:podgroups,podgroups/status",
                "create,patch scheduling.volcano.sh:podgroups",
                "get apps:replicasets,statefulsets,daemonsets",
                "get batch:jobs",
                "get,list coordination.k8s.io:leases",
            ],
        ),
        (
            Component::Binder,
            &[
                "list,watch :nodes,configmaps,pods",
                "list,watch scheduling.run.ai:bindrequests",
                "get :pods,nodes,configmaps,persistentvolumes,persistentvolumeclaims",
                "create :pods/binding",
                "patch :pods,pods/status,persistentvolumes,persistentvolumeclaims",
                "get storage.k8s.io:storageclasses",
                "create,patch,delete :configmaps",
                "get,create,patch,delete resource.k8s.io:resourceclaims",
                "patch resource.k8s.io:resourceclaims/status,resourceclaims/binding",
                "get,create,delete scheduling.run.ai:bindrequests",
                "patch scheduling.run.ai:bindrequests/status",
                "create,patch,delete :pods @reservation namespace",
            ],
        ),
        (
            Component::Grouper,
            &[
                "list,watch :pods,configmaps,namespaces",
                "list,watch scheduling.k8s.io:priorityclasses",
                "get,list,watch,create,patch,delete scheduling.run.ai:podgroups",
                "patch :pods",
                "get,list,watch apps:replicasets",
            ],
        ),
        (
            Component::Podgroups,
            &[
                "list,watch :pods,nodes",
                "list,watch scheduling.run.ai:podgroups,queues",
                "patch scheduling.run.ai:podgroups/status",
                "patch scheduling.sigs.k8s.io:podgroups",
                "patch scheduler.tensorstack.dev:podgroups/status",
                "patch scheduling.k8s.io:podgroups/status",
            ],
        ),
        (
            Component::Queues,
            &[
                "list,watch :pods,nodes",
                "list,watch scheduling.run.ai:podgroups,queues",
                "patch scheduling.run.ai:queues/status",
                "patch scheduling.sigs.k8s.io:elasticquotas",
                "patch scheduling.volcano.sh:queues/status",
                "patch scheduler.tensorstack.dev:queues/status",
            ],
        ),
        (
            Component::ScaleAdjuster,
            &[
                "list,watch :pods",
                "list,watch scheduling.run.ai:podgroups",
                "update scheduling.run.ai:podgroups/finalizers",
                // The annotation that says for whose pods room was made.
                "get,patch :pods",
                "create,delete :podtemplates",
                "get,list,watch,create,delete autoscaling.x-k8s.io:provisioningrequests",
                "create,delete :pods @scaling namespace",
                "patch :pods/status @scaling namespace",
            ],
        ),
        (
            Component::Admission,
            &[
                "list,watch :namespaces",
                "list,watch scheduling.run.ai:queues",
                "list,watch kueue.x-k8s.io:localqueues",
                "list,watch scheduling.k8s.io:priorityclasses",
                "list,watch node.k8s.io:runtimeclasses",
                "list,watch grove.io:podcliquesets,podcliques,podcliquescalinggroups,clustertopologybindings",
                "create admissionregistration.k8s.io:mutatingwebhookconfigurations,validatingwebhookconfigurations",
                "get,patch admissionregistration.k8s.io:mutatingwebhookconfigurations,validatingwebhookconfigurations =muster-admission",
                "create :secrets @own namespace",
                "get,update :secrets @own namespace =muster-admission-certificates",
            ],
        ),
        (
            Component::Operator,
            &[
                "list,watch kai.scheduler:configs,schedulingshards",
                "patch kai.scheduler:configs/status,schedulingshards/status",
                "get,create :namespaces",
                "get,list,create,patch,delete :serviceaccounts,services,configmaps,resourcequotas",
                "get,list,create,patch,delete apps:deployments",
                "get,list,create,patch,delete policy:poddisruptionbudgets",
                "get,list,create,patch,delete networking.k8s.io:networkpolicies",
                "get,list,create,patch,delete rbac.authorization.k8s.io:clusterroles,clusterrolebindings,roles,rolebindings",
                "get,list,create,patch,delete monitoring.coreos.com:servicemonitors,prometheusrules",
            ],
        ),
        (
            Component::Kueue,
            &[
                "list,watch kueue.x-k8s.io:localqueues,cohorts,workloadpriorityclasses,clusterqueues,resourceflavors",
                "list,watch kueue.x-k8s.io:admissionchecks,topologies",
                "patch kueue.x-k8s.io:clusterqueues,resourceflavors,admissionchecks,topologies",
                "get,list,watch,create,patch,delete kueue.x-k8s.io:workloads",
                "patch kueue.x-k8s.io:workloads/status,clusterqueues/status,localqueues/status,cohorts/status",
                "list,watch,patch,delete batch:jobs",
                "list,watch,patch,delete :pods",
                "update batch:jobs/finalizers",
                "update :pods/finalizers",
            ],
        ),
        (
            Component::Grove,
            &[
                "get,list,watch,patch grove.io:podcliquesets,clustertopologybindings",
                "get,list,watch,create,patch,delete grove.io:podcliques,podcliquescalinggroups",
                "patch grove.io:podcliquesets/status,podcliques/status,podcliquescalinggroups/status",
                "update grove.io:podcliquesets/finalizers,podcliques/finalizers",
                "update grove.io:podcliquescalinggroups/finalizers,clustertopologybindings/finalizers",
                "get,list,watch,create,patch,delete scheduler.grove.io:podgangs",
                "get,list,watch,create,patch,delete :pods,services,serviceaccounts",
                "create :secrets",
                "get,create,patch,delete rbac.authorization.k8s.io:roles,rolebindings",
                "get,create,patch,delete autoscaling:horizontalpodautoscalers",
                "get,create,patch,delete resource.k8s.io:resourceclaims",
                "get resource.k8s.io:resourceclaimtemplates",
                "get,create,delete kai.scheduler:topologies",
            ],
        ),
        (
            Component::BackendKai,
            &[
                "get,list,watch,create,patch,delete scheduling.run.ai:podgroups",
                "update scheduler.grove.io:podgangs/finalizers",
            ],
        ),
        (
            Component::BackendDefault,
            &[
                "get,list,watch,create,patch,delete scheduling.k8s.io:workloads,podgroups",
                "list,watch :nodes,pods",
                "patch scheduler.grove.io:podgangs",
                "update scheduler.grove.io:podgangs/finalizers",
            ],
        ),
        (
            Component::BackendKoordinator,
            &[
                "get,list,watch,create,patch,delete scheduling.sigs.k8s.io:podgroups",
                "update scheduler.grove.io:podgangs/finalizers",
            ],
        ),
        (
            Component::BackendVolcano,
            &[
                "get,list,watch,create,patch,delete scheduling.volcano.sh:podgroups",
                "update scheduler.grove.io:podgangs/finalizers",
            ],
        ),
        (
            Component::BackendT9k,
            &[
                "get,list,watch,create,patch,delete scheduler.tensorstack.dev:podgroups",
                "update scheduler.grove.io:podgangs/finalizers",
            ],
        ),
        (Component::BackendMuster, &["list,watch scheduler.grove.io:podgangs"]),
    ];

    /// What its own roles let a component do, without those that others in its process have.
    fn may(component: Component, place: Place, request: Request<'_>) -> bool {
        let here = |(other, _): &(Place, Vec<Rule>)| *other == place || *other == Place::Cluster;
        let rules = access(component).into_iter().filter(here).flat_map(|(_, rules)| rules);
        rules.into_iter().any(|rule| covers(&rule.render(), request))
    }

    #[test]
    fn every_component_may_do_what_its_code_does() {
        assert_eq!(ASKS.iter().map(|(component, _)| *component).collect::<Vec<_>>(), Component::ALL);
        let own = ["get,create,patch coordination.k8s.io:leases @own namespace"];
        for (component, asks) in ASKS {
            for ask in asks.iter().chain(&own) {
                let (ask, name) = ask.split_once(" =").unwrap_or((ask, ""));
                let (ask, place) = ask.split_once(" @").unwrap_or((ask, "everywhere"));
                let places = [Place::Cluster, Place::Own, Place::Reservations, Place::Scaling];
                let place = places.into_iter().find(|p| p.words() == place).unwrap();
                let (verbs, what) = ask.split_once(' ').unwrap();
                let (group, resources) = what.split_once(':').unwrap();
                for resource in resources.split(',') {
                    for verb in verbs.split(',') {
                        let request = Request { verb, group, resource, namespace: "", name };
                        assert!(may(*component, place, request), "{component}: {request:?}");
                    }
                }
            }
        }
        // Events come of whatever a component says.
        for component in Component::ALL {
            let event = Request { verb: "create", group: "", resource: "events", namespace: "a", name: "" };
            let silent = component == Component::Admission;
            assert_eq!(may(component, Place::Cluster, event), !silent, "{component}");
        }
    }

    /// Namespaces and their accounts come from the installation. What asks for them where they are gone is refused, says so and asks
    /// again: a right to make any namespace or account of the cluster is too much for that.
    #[test]
    fn only_who_keeps_an_installation_makes_namespaces_and_accounts() {
        for component in Component::ALL {
            for (resource, makers) in [
                ("namespaces", &[Component::Operator][..]),
                // The pods of a set have an account that is made with it.
                ("serviceaccounts", &[Component::Operator, Component::Grove]),
            ] {
                for place in [Place::Cluster, Place::Own, Place::Reservations, Place::Scaling] {
                    let request = Request { verb: "create", group: "", resource, namespace: "", name: "" };
                    let expected = makers.contains(&component);
                    assert_eq!(may(component, place, request), expected, "{component} {resource}");
                }
            }
        }
    }

    /// RBAC lets nobody hand out more than they have: every rule of every other component must be the operator's too.
    #[test]
    fn the_operator_has_what_it_hands_out() {
        let settings = Settings { operator: true, ..Settings::default() };
        let all = objects(&settings);
        for component in Component::ALL {
            for (place, rules) in access(component) {
                for rule in rules {
                    for resource in &rule.resources {
                        for verb in &rule.verbs {
                            let request = Request {
                                verb,
                                group: rule.group,
                                resource,
                                namespace: place.namespace(&settings).unwrap_or_default(),
                                name: rule.names.first().map(String::as_str).unwrap_or_default(),
                            };
                            assert!(
                                allows(&all, "muster-system", "muster-operator", request),
                                "{component}: {request:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
