//! Every kind of every API group that Muster speaks, and who writes it.
//!
//! In: nothing. Out: [`KINDS`], and from it the ClusterRoles for people: readers, users, queue administrators and whoever
//! runs the platform. Must stay true: the list is that of `muster-api` and Kubernetes' own gang API (a test compares them);
//! what only programs write, nobody is given to write; whoever is given a role for the cluster can look at it with `muster`.

use serde_json::{Value, json};

/// Who writes objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Whoever runs workloads in a namespace.
    User,
    /// Whoever divides a cluster among teams.
    QueueAdmin,
    /// Whoever runs the cluster.
    Platform,
    /// Programs only.
    Program,
}

/// A kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// Whether it has the scale subresource.
    pub scale: bool,
    pub writer: Writer,
}

const fn own(group: &'static str, plural: &'static str, writer: Writer) -> Kind {
    Kind { group, plural, namespaced: true, scale: false, writer }
}

const fn scaled(group: &'static str, plural: &'static str, writer: Writer) -> Kind {
    Kind { group, plural, namespaced: true, scale: true, writer }
}

const fn wide(group: &'static str, plural: &'static str, writer: Writer) -> Kind {
    Kind { group, plural, namespaced: false, scale: false, writer }
}

use Writer::{Platform, Program, QueueAdmin, User};

pub const KINDS: &[Kind] = &[
    scaled("grove.io", "podcliquesets", User),
    // Made from a PodCliqueSet; people scale them and leave the rest alone.
    scaled("grove.io", "podcliques", Program),
    scaled("grove.io", "podcliquescalinggroups", Program),
    wide("grove.io", "clustertopologybindings", Platform),
    own("scheduler.grove.io", "podgangs", Program),
    own("scheduling.run.ai", "podgroups", User),
    wide("scheduling.run.ai", "queues", QueueAdmin),
    own("scheduling.run.ai", "bindrequests", Program),
    wide("kai.scheduler", "topologies", Platform),
    wide("kai.scheduler", "schedulingshards", Platform),
    wide("kai.scheduler", "configs", Platform),
    wide("kueue.x-k8s.io", "clusterqueues", QueueAdmin),
    own("kueue.x-k8s.io", "localqueues", QueueAdmin),
    wide("kueue.x-k8s.io", "cohorts", QueueAdmin),
    wide("kueue.x-k8s.io", "resourceflavors", QueueAdmin),
    own("kueue.x-k8s.io", "workloads", Program),
    wide("kueue.x-k8s.io", "workloadpriorityclasses", QueueAdmin),
    wide("kueue.x-k8s.io", "admissionchecks", QueueAdmin),
    wide("kueue.x-k8s.io", "topologies", Platform),
    wide("kueue.x-k8s.io", "multikueueconfigs", Platform),
    wide("kueue.x-k8s.io", "multikueueclusters", Platform),
    wide("kueue.x-k8s.io", "provisioningrequestconfigs", Platform),
    own("batch.volcano.sh", "jobs", User),
    own("batch.volcano.sh", "cronjobs", User),
    own("scheduling.volcano.sh", "podgroups", User),
    wide("scheduling.volcano.sh", "queues", QueueAdmin),
    own("flow.volcano.sh", "jobflows", User),
    own("flow.volcano.sh", "jobtemplates", User),
    own("bus.volcano.sh", "commands", User),
    wide("topology.volcano.sh", "hypernodes", Platform),
    wide("nodeinfo.volcano.sh", "numatopologies", Program),
    own("config.volcano.sh", "colocationconfigurations", Platform),
    wide("shard.volcano.sh", "nodeshards", Platform),
    own("scheduling.sigs.k8s.io", "podgroups", User),
    own("scheduling.sigs.k8s.io", "elasticquotas", QueueAdmin),
    wide("scheduling.koordinator.sh", "reservations", Platform),
    wide("scheduling.koordinator.sh", "devices", Program),
    wide("scheduling.koordinator.sh", "podmigrationjobs", Platform),
    wide("scheduling.koordinator.sh", "clusternetworktopologies", Platform),
    own("scheduling.koordinator.sh", "scheduleexplanations", Program),
    own("quota.koordinator.sh", "elasticquotaprofiles", QueueAdmin),
    wide("config.koordinator.sh", "clustercolocationprofiles", Platform),
    wide("topology.node.k8s.io", "noderesourcetopologies", Program),
    own("scheduler.tensorstack.dev", "podgroups", User),
    own("scheduler.tensorstack.dev", "queues", QueueAdmin),
    own("batch.tensorstack.dev", "genericjobs", User),
    own("batch.tensorstack.dev", "pytorchtrainingjobs", User),
    own("batch.tensorstack.dev", "tensorflowtrainingjobs", User),
    own("batch.tensorstack.dev", "xgboosttrainingjobs", User),
    own("batch.tensorstack.dev", "mpijobs", User),
    own("batch.tensorstack.dev", "colossalaijobs", User),
    own("batch.tensorstack.dev", "deepspeedjobs", User),
    own("batch.tensorstack.dev", "beamjobs", User),
    // Kubernetes' own gang API: built in, never a CRD.
    own("scheduling.k8s.io", "workloads", User),
    own("scheduling.k8s.io", "podgroups", User),
];

/// Kinds of namespaces among them that `muster get`, `top`, `explain` and `snapshot` list.
const LISTED: &[(&str, &str)] = &[
    ("scheduling.run.ai", "podgroups"),
    ("scheduling.run.ai", "bindrequests"),
    ("scheduler.grove.io", "podgangs"),
    ("scheduling.volcano.sh", "podgroups"),
    ("scheduler.tensorstack.dev", "podgroups"),
    ("scheduler.tensorstack.dev", "queues"),
    ("scheduling.sigs.k8s.io", "podgroups"),
    ("scheduling.sigs.k8s.io", "elasticquotas"),
    ("scheduling.k8s.io", "podgroups"),
    ("scheduling.k8s.io", "workloads"),
    ("kueue.x-k8s.io", "localqueues"),
    ("kueue.x-k8s.io", "workloads"),
];

/// And what they list of Kubernetes' own kinds.
const LOOKED_AT: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "pods",
            "nodes",
            "namespaces",
            "configmaps",
            "persistentvolumes",
            "persistentvolumeclaims",
            "resourcequotas",
            "limitranges",
        ],
    ),
    ("policy", &["poddisruptionbudgets"]),
    ("storage.k8s.io", &["storageclasses", "csinodes"]),
    ("resource.k8s.io", &["resourceclaims", "resourceslices", "deviceclasses"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
    // Which scheduler names are answered to.
    ("coordination.k8s.io", &["leases"]),
];

/// What `muster doctor` looks at besides.
const EXAMINED: &[(&str, &[&str])] = &[
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("admissionregistration.k8s.io", &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]),
    ("", &["services"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("apps", &["deployments"]),
];

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

/// The ClusterRoles for people.
pub fn roles(labels: &Value) -> Vec<Value> {
    let role = |name: &str, aggregate: &[&str], rules: Vec<Value>| {
        let mut labels = labels.clone();
        for target in aggregate {
            labels[format!("rbac.authorization.k8s.io/aggregate-to-{target}")] = json!("true");
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": rules,
        })
    };
    let namespaced = |k: &Kind| k.namespaced;
    let user = |k: &Kind| k.writer == User;
    let local_queue = |k: &Kind| k.writer == QueueAdmin && k.namespaced;

    let mut edit = rules(user, WRITE);
    edit.extend(rules_of(KINDS.iter().filter(|k| k.scale), "/scale", &["get", "update", "patch"]));
    let listed = |k: &Kind| !k.namespaced || LISTED.contains(&(k.group, k.plural));
    let mut cluster_view = rules(listed, READ);
    cluster_view.extend(read(LOOKED_AT));
    let mut queue_admin = rules(|_| true, READ);
    queue_admin.extend(read(LOOKED_AT));
    queue_admin.extend(rules(|k| k.writer == QueueAdmin, WRITE));
    let mut platform = rules(|_| true, READ);
    platform.extend(read(LOOKED_AT).chain(read(EXAMINED)));
    platform.extend(rules(|k| matches!(k.writer, QueueAdmin | Platform), WRITE));

    vec![
        // Part of Kubernetes' own view, edit and admin, so that whoever has those has these.
        role("muster-view", &["view"], rules(namespaced, READ)),
        role("muster-edit", &["edit"], edit),
        role("muster-admin", &["admin"], rules(local_queue, WRITE)),
        // Given on purpose, by a ClusterRoleBinding: cluster-wide kinds have no namespace to be given in.
        role("muster-cluster-view", &[], cluster_view),
        role("muster-queue-admin", &[], queue_admin),
        role("muster-platform-admin", &[], platform),
    ]
}

fn rules(wanted: impl Fn(&Kind) -> bool, verbs: &[&str]) -> Vec<Value> {
    rules_of(KINDS.iter().filter(|k| wanted(k)), "", verbs)
}

fn read(kinds: &'static [(&str, &[&str])]) -> impl Iterator<Item = Value> {
    kinds
        .iter()
        .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": READ}))
}

/// One rule per API group.
fn rules_of<'a>(kinds: impl Iterator<Item = &'a Kind>, sub: &str, verbs: &[&str]) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for kind in kinds {
        let resource = format!("{}{sub}", kind.plural);
        match groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, resources)) => resources.push(resource),
            None => groups.push((kind.group, vec![resource])),
        }
    }
    let rule = |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    groups.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind that has a CRD is here, with its scope and its subresources, and no other.
    #[test]
    fn the_kinds_are_those_of_the_crds() {
        let mut ours: Vec<String> = KINDS
            .iter()
            .filter(|k| k.group != "scheduling.k8s.io")
            .map(|k| format!("{}/{} {} {}", k.group, k.plural, k.namespaced, k.scale))
            .collect();
        let mut theirs: Vec<String> = muster_api::crd::crds(None)
            .iter()
            .map(|crd| {
                let spec = &crd["spec"];
                let text = |v: &Value| v.as_str().unwrap().to_owned();
                let scale = spec["versions"][0]["subresources"].get("scale").is_some();
                format!(
                    "{}/{} {} {scale}",
                    text(&spec["group"]),
                    text(&spec["names"]["plural"]),
                    spec["scope"] == "Namespaced"
                )
            })
            .collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
    }

    #[track_caller]
    fn check(role: &str, verb: &str, group: &str, resource: &str, expected: bool) {
        let roles = roles(&json!({}));
        let role = roles.iter().find(|r| r["metadata"]["name"] == role).unwrap();
        let has = |v: &Value, wanted: &str| v.as_array().unwrap().iter().any(|x| x == wanted);
        let found =
            role["rules"].as_array().unwrap().iter().any(|r| {
                has(&r["apiGroups"], group) && has(&r["resources"], resource) && has(&r["verbs"], verb)
            });
        assert_eq!(found, expected, "{verb} {group}/{resource}");
    }

    #[test]
    fn people() {
        check("muster-edit", "create", "batch.volcano.sh", "jobs", true);
        check("muster-edit", "create", "scheduling.run.ai", "bindrequests", false);
        check("muster-edit", "update", "grove.io", "podcliques/scale", true);
        check("muster-edit", "create", "grove.io", "podcliques", false);
        check("muster-edit", "create", "kueue.x-k8s.io", "localqueues", false);
        check("muster-admin", "create", "kueue.x-k8s.io", "localqueues", true);
        check("muster-admin", "create", "kueue.x-k8s.io", "clusterqueues", false);
        check("muster-view", "list", "scheduling.k8s.io", "workloads", true);
        check("muster-view", "create", "scheduling.k8s.io", "workloads", false);
        for role in ["muster-cluster-view", "muster-queue-admin", "muster-platform-admin"] {
            for (group, plural) in LISTED {
                assert!(KINDS.iter().any(|k| (k.group, k.plural) == (group, plural) && k.namespaced));
                check(role, "list", group, plural, true);
            }
            for (group, kinds) in LOOKED_AT {
                kinds.iter().for_each(|plural| check(role, "list", group, plural, true));
            }
            check(role, "list", "scheduling.run.ai", "queues", true);
            check(role, "list", "", "secrets", false);
            check(role, "delete", "", "pods", false);
        }
        for (group, kinds) in EXAMINED {
            for plural in *kinds {
                check("muster-platform-admin", "list", group, plural, true);
                check("muster-platform-admin", "patch", group, plural, false);
                check("muster-cluster-view", "list", group, plural, false);
            }
        }
        check("muster-cluster-view", "list", "batch.volcano.sh", "jobs", false);
        check("muster-cluster-view", "create", "scheduling.run.ai", "queues", false);
        check("muster-queue-admin", "delete", "scheduling.run.ai", "queues", true);
        check("muster-queue-admin", "create", "kai.scheduler", "configs", false);
        check("muster-platform-admin", "create", "kai.scheduler", "configs", true);
        check("muster-platform-admin", "create", "scheduling.run.ai", "bindrequests", false);
    }
}
