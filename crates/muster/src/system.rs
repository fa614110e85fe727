//! Whose a gang or a queue is, and what its system calls it.
//!
//! In: names as the model has them (`volcano/train`), and pods as JSON. Out: the system, the name that people gave, the object that says what
//! the gang needs. Must stay true: these are the names that `muster-translate` makes.

use crate::view::key_of;
use muster_model::{Dialect, Key, Name};
use muster_scheduler::record::Setup;
use muster_translate::{Kind, POD_GANG, Settings};
use serde_json::Value;

/// What the names of the gangs of each kind begin with in the model, and the word for the system.
const SYSTEMS: [(Kind, &str, &str); 6] = [
    (Kind::VolcanoPodGroup, "volcano/", "volcano"),
    (Kind::T9kPodGroup, "t9k/", "t9k"),
    (Kind::KoordinatorPodGroup, "koordinator/", "koordinator"),
    (Kind::KubernetesPodGroup, "kubernetes/", "kubernetes"),
    (Kind::PodGang, POD_GANG, "grove"),
    (Kind::PodGroup, "", "kai"),
];

/// Every kind of object that a gang can be made by, KAI's last.
pub fn group_kinds() -> impl Iterator<Item = Kind> {
    SYSTEMS.into_iter().map(|(kind, _, _)| kind)
}

/// The gang that such an object makes by itself.
pub fn gang_of(kind: Kind, object: &Value) -> Key {
    let Key { namespace, name } = key_of(object);
    Key::new(namespace, format!("{}{name}", prefix(kind)))
}

fn prefix(kind: Kind) -> &'static str {
    SYSTEMS.iter().find(|(own, _, _)| *own == kind).map_or("", |(_, prefix, _)| prefix)
}

/// The word for the system of a gang or a queue, and its name there. KAI's have no mark.
pub fn of_name(name: &str) -> (&'static str, &str) {
    let found = SYSTEMS.iter().find_map(|(_, prefix, word)| Some((*word, name.strip_prefix(prefix)?)));
    found.unwrap_or(("kai", name))
}

/// The word for a tree of queues.
pub fn word(tree: Dialect) -> &'static str {
    match tree {
        Dialect::Kai => "kai",
        Dialect::Volcano => "volcano",
        Dialect::T9k => "t9k",
        Dialect::Koordinator => "koordinator",
        Dialect::Kubernetes => "kubernetes",
    }
}

/// A queue as `kubectl` names it.
pub fn queue_for_kubectl(tree: Dialect, name: &str) -> String {
    let (_, own) = of_name(name);
    let kind = match tree {
        Dialect::Volcano => "queue.scheduling.volcano.sh",
        Dialect::T9k => "queue.scheduler.tensorstack.dev",
        Dialect::Koordinator => "elasticquota.scheduling.sigs.k8s.io",
        Dialect::Kai | Dialect::Kubernetes => "queue.scheduling.run.ai",
    };
    format!("{kind} {own}")
}

/// The group that a pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As the model has it, if it stands by itself: Koordinator's may stand together.
    pub gang: Key,
    /// What makes it, with its API group.
    pub kind: &'static str,
    /// As the pod has it.
    pub name: String,
    /// Where the pod says so.
    pub field: &'static str,
}

/// The names of the systems' own fields, in the order in which they are looked at.
const IN_VOLCANO: [&str; 2] = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
const IN_KOORDINATOR: [&str; 2] =
    ["pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name"];
const IN_KOORDINATORS_ANNOTATION: &str = "gang.scheduling.koordinator.sh/name";
const IN_T9K: &str = "scheduler.tensorstack.dev/group-name";
const IN_KAI: &str = "pod-group-name";
const IN_GROVE: &str = "grove.io/podgang";

/// Whose rules the pods of a scheduler name live by.
pub fn dialect(setup: &Setup, scheduler: &str) -> Dialect {
    let volcano: Vec<Name> = setup.volcano.iter().map(|name| name.as_str().into()).collect();
    Settings { volcano, ..Settings::default() }.dialect(scheduler)
}

/// The group that a pod names, by the rules of its scheduler's system.
pub fn group_of_pod(pod: &Value, dialect: Dialect) -> Option<Named> {
    let meta = &pod["metadata"];
    let filled = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let label = |key: &str| filled(&meta["labels"][key]);
    let annotation = |key: &str| filled(&meta["annotations"][key]);
    let namespace = key_of(pod).namespace;
    let named = |kind: Kind, title: &'static str, name: String, field: &'static str| Named {
        gang: Key::new(namespace.clone(), format!("{}{name}", prefix(kind))),
        kind: title,
        name,
        field,
    };
    match dialect {
        Dialect::Volcano => IN_VOLCANO.iter().find_map(|key| {
            Some(named(Kind::VolcanoPodGroup, "PodGroup (scheduling.volcano.sh)", annotation(key)?, key))
        }),
        Dialect::T9k => {
            Some(named(Kind::T9kPodGroup, "PodGroup (scheduler.tensorstack.dev)", label(IN_T9K)?, IN_T9K))
        }
        Dialect::Koordinator => {
            let kind = Kind::KoordinatorPodGroup;
            let by_label = IN_KOORDINATOR
                .iter()
                .find_map(|key| Some(named(kind, "PodGroup (scheduling.sigs.k8s.io)", label(key)?, key)));
            by_label.or_else(|| {
                let name = annotation(IN_KOORDINATORS_ANNOTATION)?;
                Some(named(kind, "gang that pods say themselves", name, IN_KOORDINATORS_ANNOTATION))
            })
        }
        Dialect::Kai | Dialect::Kubernetes => {
            if let Some(name) = annotation(IN_KAI) {
                return Some(named(Kind::PodGroup, "PodGroup (scheduling.run.ai)", name, IN_KAI));
            }
            let kubernetes = Kind::KubernetesPodGroup;
            if let Some(name) = filled(&pod["spec"]["schedulingGroup"]["podGroupName"]) {
                let title = "PodGroup (scheduling.k8s.io)";
                return Some(named(kubernetes, title, name, "spec.schedulingGroup.podGroupName"));
            }
            let reference = &pod["spec"]["workloadRef"];
            if let (Some(workload), Some(group)) =
                (filled(&reference["name"]), filled(&reference["podGroup"]))
            {
                let replica = filled(&reference["podGroupReplicaKey"]);
                let name = [Some(workload), Some(group), replica].into_iter().flatten().collect::<Vec<_>>();
                let title = "Workload (scheduling.k8s.io)";
                return Some(named(kubernetes, title, name.join("/"), "spec.workloadRef"));
            }
            Some(named(Kind::PodGang, "PodGang (scheduler.grove.io)", label(IN_GROVE)?, IN_GROVE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(scheduler: &str, meta: Value, spec: Value, expected: &str) {
        let mut pod = json!({"metadata": meta, "spec": spec});
        pod["metadata"]["namespace"] = json!("n");
        let named = group_of_pod(&pod, dialect(&Setup::default(), scheduler));
        let said = named.map(|n| format!("{} is {} {} by {}", n.gang, n.kind, n.name, n.field));
        assert_eq!(said.unwrap_or_default(), expected);
    }

    #[test]
    fn a_pod_names_the_group_of_its_system() {
        let by = |key: &str| json!({"annotations": {key: "g"}});
        let label = |key: &str| json!({"labels": {key: "g"}});
        check(
            "volcano",
            by("scheduling.k8s.io/group-name"),
            json!({}),
            "n/volcano/g is PodGroup (scheduling.volcano.sh) g by scheduling.k8s.io/group-name",
        );
        check("kai-scheduler", by("scheduling.k8s.io/group-name"), json!({}), "");
        check(
            "t9k-scheduler",
            label(IN_T9K),
            json!({}),
            "n/t9k/g is PodGroup (scheduler.tensorstack.dev) g by scheduler.tensorstack.dev/group-name",
        );
        check(
            "koord-scheduler",
            by(IN_KOORDINATORS_ANNOTATION),
            json!({}),
            "n/koordinator/g is gang that pods say themselves g by gang.scheduling.koordinator.sh/name",
        );
        check(
            "kai-scheduler",
            by(IN_KAI),
            json!({}),
            "n/g is PodGroup (scheduling.run.ai) g by pod-group-name",
        );
        check(
            "muster-scheduler",
            json!({}),
            json!({"workloadRef": {"name": "w", "podGroup": "a", "podGroupReplicaKey": "1"}}),
            "n/kubernetes/w/a/1 is Workload (scheduling.k8s.io) w/a/1 by spec.workloadRef",
        );
        check(
            "muster-scheduler",
            label(IN_GROVE),
            json!({}),
            "n/podgang/g is PodGang (scheduler.grove.io) g by grove.io/podgang",
        );
        check("muster-scheduler", json!({}), json!({}), "");
    }

    #[test]
    fn names_say_their_system() {
        assert_eq!(of_name("volcano/train"), ("volcano", "train"));
        assert_eq!(of_name("podgang/train-0"), ("grove", "train-0"));
        assert_eq!(of_name("train"), ("kai", "train"));
    }
}
