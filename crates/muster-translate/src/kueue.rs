//! Kueue's objects, and the nodes, pods, namespaces and limit ranges that it looks at, to the values of the admission layer.
//!
//! In: objects as JSON. Out: an [`Item`] for each kind that counts, and a [`Diagnostic`] for whatever makes no sense. Defaults of the API are
//! applied here: no preemption, borrow before the next flavor, the next flavor before preemption, a weight of one.
//!
//! *Invariant:* no input fails. What cannot be read is left out and named.

mod requests;
mod settings;
pub mod words;
mod workload;

pub use requests::{LimitRanges, Transformation};
pub use settings::settings;
pub use workload::assignment;

use crate::read::{At, Object};
use crate::{node, pod, select};
use muster_admit::spec::{
    BorrowingPreemption, Check, CheckRule, ClusterQueue, Cohort, ConcurrentPolicy, Flavor, FlavorQuotas,
    Fungibility, LocalQueue, Node, OtherPod, Preemption, Quota, Reclaim, ResourceGroup, Stop, Strategy,
    Topology, Weight, Workload,
};
use muster_model::{Diagnostic, Key, Labels, Name};
use serde_json::Value;
use std::collections::BTreeMap;

/// One object, as far as admission is concerned.
#[derive(Clone, Debug)]
pub enum Item {
    ClusterQueue(Box<ClusterQueue>),
    Cohort(Cohort),
    LocalQueue(LocalQueue),
    Flavor(Flavor),
    Topology(Topology),
    Check(Check),
    Node(Node),
    Pod(OtherPod),
    Namespace(Name, Labels),
    Workload(Box<Workload>),
}

/// What reading a workload takes besides the workload.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub transformations: Vec<Transformation>,
    /// Resources whose names begin so are not counted.
    pub excluded: Vec<String>,
    pub limits: LimitRanges,
}

/// Reads one object; `None` for kinds that admission does not look at, and for pods that take nothing.
pub fn object(value: &Value, context: &Context) -> (Option<Item>, Vec<Diagnostic>) {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("");
    macro_rules! read {
        ($kind:literal, $read:expr) => {{
            let object = Object::new($kind, value);
            let item = $read(&object);
            (item, object.into_diagnostics())
        }};
    }
    match kind {
        "ClusterQueue" => read!("ClusterQueue", |o| Some(Item::ClusterQueue(Box::new(cluster_queue(o))))),
        "Cohort" => read!("Cohort", |o| Some(Item::Cohort(cohort(o)))),
        "LocalQueue" => read!("LocalQueue", |o| Some(Item::LocalQueue(local_queue(o)))),
        "ResourceFlavor" => read!("ResourceFlavor", |o| Some(Item::Flavor(flavor(o)))),
        "Topology" => read!("Topology", |o| Some(Item::Topology(topology(o)))),
        "AdmissionCheck" => read!("AdmissionCheck", |o| Some(Item::Check(check(o)))),
        "Node" => read!("Node", |o| Some(Item::Node(read_node(o)))),
        "Pod" => read!("Pod", |o| other_pod(o).map(Item::Pod)),
        "Namespace" => read!("Namespace", |o: &Object<'_>| Some(Item::Namespace(
            o.name().into(),
            o.get("metadata").get("labels").labels()
        ))),
        "Workload" => {
            read!("Workload", |o| Some(Item::Workload(Box::new(workload::workload(o, context)))))
        }
        _ => (None, Vec::new()),
    }
}

/// The name of a namespaced object; cases may leave the namespace out, and then there is none.
pub(crate) fn key(object: &Object<'_>) -> Key {
    let namespace = object.get("metadata").get("namespace").str().unwrap_or("");
    Key::new(namespace, object.name())
}

/// An amount in Kueue's units: thousandths of a CPU, whole units of everything else.
pub fn amount(resource: &str, quantity: k8s_quantity::Quantity) -> i64 {
    if resource == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// A resource list.
pub(crate) fn amounts(at: At<'_>) -> BTreeMap<Name, i64> {
    at.entries().filter_map(|(name, at)| Some((name.into(), amount(name, at.quantity()?)))).collect()
}

fn groups(list: At<'_>) -> Vec<ResourceGroup> {
    let quota = |at: At<'_>| {
        let resource = at.get("name").name()?;
        let read = |field: &str| at.get(field).quantity().map(|q| amount(&resource, q));
        Some(Quota {
            nominal: read("nominalQuota").unwrap_or(0),
            borrowing: read("borrowingLimit"),
            lending: read("lendingLimit"),
            resource,
        })
    };
    let flavor = |at: At<'_>| {
        Some(FlavorQuotas {
            flavor: at.get("name").name()?,
            quotas: at.get("resources").list().filter_map(quota).collect(),
        })
    };
    list.list()
        .map(|group| ResourceGroup {
            resources: group.get("coveredResources").names(),
            flavors: group.get("flavors").list().filter_map(flavor).collect(),
        })
        .collect()
}

fn weight(at: At<'_>) -> Weight {
    let weight = at.get("weight").quantity();
    weight.map_or_else(Weight::default, |q| Weight(i64::try_from(q.nano()).unwrap_or(i64::MAX).max(0)))
}

/// One of the words that a field may have; a word that is none of them counts as absent.
fn word<T: Copy>(at: At<'_>, words: &[(&str, T)], or: T) -> T {
    let Some(text) = at.word() else { return or };
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => *value,
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            at.report(format!("{} is not known; write one of {}", at.quoted(), known.join(", ")));
            or
        }
    }
}

const STOPS: &[(&str, Stop)] =
    &[("None", Stop::None), ("Hold", Stop::Hold), ("HoldAndDrain", Stop::HoldAndDrain)];

fn cluster_queue(object: &Object<'_>) -> ClusterQueue {
    let spec = object.get("spec");
    let fungibility = spec.get("flavorFungibility");
    let search = |field: &str, or: bool| {
        // `Borrow` and `Preempt` are what the older version calls it.
        let words =
            [("MayStopSearch", false), ("Borrow", false), ("Preempt", false), ("TryNextFlavor", true)];
        word(fungibility.get(field), &words, or)
    };
    let preemption = spec.get("preemption");
    let borrow = preemption.get("borrowWithinCohort");
    let while_borrowing = word(borrow.get("policy"), &[("Never", false), ("LowerPriority", true)], false)
        .then(|| {
            let most = borrow.get("maxPriorityThreshold").int();
            BorrowingPreemption {
                up_to: most.map(|m| i32::try_from(m).unwrap_or(if m < 0 { i32::MIN } else { i32::MAX })),
            }
        });
    let checks = spec.get("admissionChecksStrategy").get("admissionChecks").list().filter_map(|at| {
        Some(CheckRule { check: at.get("name").name()?, on_flavors: at.get("onFlavors").names() })
    });
    let older = spec.get("admissionChecks").names().into_iter();
    let concurrent = spec.get("concurrentAdmissionPolicy");
    ClusterQueue {
        name: object.name().into(),
        cohort: spec.get("cohortName").name().or_else(|| spec.get("cohort").name()),
        groups: groups(spec.get("resourceGroups")),
        strategy: word(
            spec.get("queueingStrategy"),
            &[("StrictFIFO", Strategy::Strict), ("BestEffortFIFO", Strategy::BestEffort)],
            Strategy::BestEffort,
        ),
        namespaces: select::labels(spec.get("namespaceSelector")),
        fungibility: Fungibility {
            next_before_borrowing: search("whenCanBorrow", false),
            stop_at_preemption: !search("whenCanPreempt", true),
            preempt_over_borrow: word(
                fungibility.get("preference"),
                &[("BorrowingOverPreemption", false), ("PreemptionOverBorrowing", true)],
                false,
            ),
        },
        preemption: Preemption {
            within_queue: word(
                preemption.get("withinClusterQueue"),
                &[
                    ("Never", Reclaim::Never),
                    ("LowerPriority", Reclaim::LowerPriority),
                    ("LowerOrNewerEqualPriority", Reclaim::LowerOrNewerEqual),
                ],
                Reclaim::Never,
            ),
            within_cohort: word(
                preemption.get("reclaimWithinCohort"),
                &[
                    ("Never", Reclaim::Never),
                    ("LowerPriority", Reclaim::LowerPriority),
                    ("Any", Reclaim::Any),
                ],
                if preemption.exists() { Reclaim::Unset } else { Reclaim::Never },
            ),
            while_borrowing,
        },
        checks: checks.chain(older.map(|check| CheckRule { check, on_flavors: Vec::new() })).collect(),
        stop: word(spec.get("stopPolicy"), STOPS, Stop::None),
        weight: weight(spec.get("fairSharing")),
        by_usage: spec.get("admissionScope").get("admissionMode").str()
            == Some("UsageBasedAdmissionFairSharing"),
        concurrent: concurrent.exists().then(|| {
            let migration = concurrent.get("migration");
            ConcurrentPolicy {
                retain_first: migration.get("mode").str() == Some("RetainFirstAdmission"),
                last_acceptable: migration.get("constraints").get("lastAcceptableFlavorName").name(),
            }
        }),
    }
}

fn cohort(object: &Object<'_>) -> Cohort {
    let spec = object.get("spec");
    Cohort {
        name: object.name().into(),
        parent: spec.get("parentName").name().or_else(|| spec.get("parent").name()),
        groups: groups(spec.get("resourceGroups")),
        weight: weight(spec.get("fairSharing")),
    }
}

fn local_queue(object: &Object<'_>) -> LocalQueue {
    let spec = object.get("spec");
    LocalQueue {
        key: key(object),
        cluster_queue: spec.get("clusterQueue").name().unwrap_or_default(),
        stop: word(spec.get("stopPolicy"), STOPS, Stop::None),
        weight: weight(spec.get("fairSharing")),
    }
}

fn flavor(object: &Object<'_>) -> Flavor {
    let spec = object.get("spec");
    Flavor {
        name: object.name().into(),
        labels: spec.get("nodeLabels").labels(),
        taints: node::taints(spec.get("nodeTaints")),
        tolerations: pod::tolerations(spec.get("tolerations")),
        topology: spec.get("topologyName").name(),
    }
}

fn topology(object: &Object<'_>) -> Topology {
    let levels = object.get("spec").get("levels").list().filter_map(|at| at.get("nodeLabel").name());
    Topology { name: object.name().into(), levels: levels.collect() }
}

fn check(object: &Object<'_>) -> Check {
    let conditions = object.get("status").get("conditions");
    Check {
        name: object.name().into(),
        controller: object.get("spec").get("controllerName").name().unwrap_or_default(),
        active: condition(conditions, "Active").is_some_and(|at| at.get("status").str() == Some("True")),
    }
}

/// A condition by its type.
pub(crate) fn condition<'a>(conditions: At<'a>, kind: &str) -> Option<At<'a>> {
    conditions.list().find(|at| at.get("type").str() == Some(kind))
}

fn read_node(object: &Object<'_>) -> Node {
    let status = object.get("status");
    let spec = object.get("spec");
    let ready =
        condition(status.get("conditions"), "Ready").is_some_and(|at| at.get("status").str() == Some("True"));
    Node {
        name: object.name().into(),
        labels: object.get("metadata").get("labels").labels(),
        taints: node::taints(spec.get("taints")),
        usable: ready && !spec.get("unschedulable").bool().unwrap_or(false),
        allocatable: amounts(status.get("allocatable")),
    }
}

/// A pod that no admission accounts for and that takes room on a node.
fn other_pod(object: &Object<'_>) -> Option<OtherPod> {
    let spec = object.get("spec");
    let node = spec.get("nodeName").name()?;
    let over = matches!(object.get("status").get("phase").str(), Some("Succeeded" | "Failed"));
    let placed = object.label("kueue.x-k8s.io/podset").is_some()
        && object.annotation("kueue.x-k8s.io/workload").is_some();
    (!over && !placed).then(|| OtherPod { key: key(object), node, requests: requests::raw(spec) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> (Item, Vec<String>) {
        let (item, diagnostics) = object(&value, &Context::default());
        (item.unwrap(), diagnostics.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn defaults_of_a_cluster_queue() {
        let (item, notes) = read(json!({"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [
                {"name": "cpu", "nominalQuota": "1500m", "lendingLimit": 1}]}]}]}}));
        let Item::ClusterQueue(queue) = item else { panic!("{item:?}") };
        assert_eq!(queue.groups[0].flavors[0].quotas[0].nominal, 1500);
        assert_eq!(queue.groups[0].flavors[0].quotas[0].lending, Some(1000));
        assert_eq!(queue.preemption, Preemption::default());
        assert_eq!(queue.fungibility, Fungibility::default());
        assert_eq!(queue.weight, Weight::default());
        // Without a selector nobody may use it.
        assert!(!queue.namespaces.matches(&Labels::new()));
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn a_word_that_is_none_is_named() {
        let (_, notes) = read(json!({"kind": "ClusterQueue", "metadata": {"name": "q"},
            "spec": {"queueingStrategy": "LIFO"}}));
        let told = r#"ClusterQueue q: spec.queueingStrategy: "LIFO" is not known; write one of StrictFIFO, BestEffortFIFO"#;
        assert_eq!(notes, [told]);
    }

    #[test]
    fn places_are_read_from_their_compressed_form() {
        let places = assignment(&json!({"levels": ["kubernetes.io/hostname"], "slices": [
            {"domainCount": 2, "podCounts": {"individual": [3, 1]},
             "valuesPerLevel": [{"individual": {"prefix": "x", "suffix": "-z", "roots": ["1", "2"]}}]},
            {"domainCount": 1, "podCounts": {"universal": 5}, "valuesPerLevel": [{"universal": "y"}]},
            {"domainCount": 1_000_000_000_000_i64, "podCounts": {}, "valuesPerLevel": [{"individual": {"roots": []}}]}]}));
        let written: Vec<(String, i32)> = places.domains.iter().map(|(v, n)| (v.join("/"), *n)).collect();
        assert_eq!(written, [("x1-z".into(), 3), ("x2-z".into(), 1), ("y".into(), 5)]);
    }

    #[test]
    fn requests_are_transformed_and_limits_are_kept() {
        let (_, mut context, _) = settings(&json!({"resources": {
            "excludeResourcePrefixes": ["internal/"],
            "transformations": [{"input": "cpu", "strategy": "Retain", "outputs": {"credits": "2"}},
                                {"input": "gpu", "strategy": "Replace", "outputs": {"credits": "500m"}}]}}));
        context.limits.put(&json!({"kind": "LimitRange", "metadata": {"namespace": "ns"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "defaultRequest": {"memory": "1Gi"}}]}}));
        let value = json!({"kind": "Workload", "metadata": {"namespace": "ns", "name": "w"}, "spec": {"podSets": [
            {"name": "main", "count": 2, "template": {"spec": {"containers": [
                {"resources": {"requests": {"cpu": "1500m", "gpu": 3, "internal/x": 1}}}]}}}]}});
        let (Some(Item::Workload(workload)), _) = object(&value, &context) else { panic!() };
        let set = &workload.pod_sets[0];
        let of = |name: &str| set.requests.get(name).copied();
        assert_eq!(
            (of("cpu"), of("credits"), of("gpu"), of("internal/x")),
            (Some(1500), Some(5), None, None)
        );
        assert_eq!(set.raw.get("gpu"), Some(&3));
        assert_eq!(set.raw.get("memory"), Some(&(1 << 30)));
        let why = workload.invalid.as_deref().unwrap();
        assert!(why.contains("containers[0]") && why.contains("above the limitRange max"), "{why}");
    }

    #[test]
    fn nothing_makes_it_fail() {
        for kind in [
            "ClusterQueue",
            "Cohort",
            "LocalQueue",
            "ResourceFlavor",
            "Topology",
            "AdmissionCheck",
            "Node",
            "Workload",
        ] {
            for spec in [
                json!(null),
                json!([]),
                json!("x"),
                json!({"podSets": [5, {"count": -3}], "levels": [1], "resourceGroups": {}}),
            ] {
                let value = json!({"kind": kind, "metadata": {"name": "x"}, "spec": spec, "status": spec});
                assert!(object(&value, &Context::default()).0.is_some());
            }
        }
        assert!(object(&json!({"kind": "Pod"}), &Context::default()).0.is_none());
        assert!(object(&json!(3), &Context::default()).0.is_none());
    }
}
