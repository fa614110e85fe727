//! Kueue's conversion: what becomes what, and that nothing is lost on the way there and back.

use crate::generate::{Dice, damage, object, schemas};
use muster_api::kueue::convert::{
    ConvertError, KEPT_FOR_V1BETA1, KEPT_FOR_V1BETA2, KINDS, to_v1beta1, to_v1beta2,
};
use muster_api::{System, crds};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static SCHEMAS: LazyLock<Vec<(String, String, Value)>> =
    LazyLock::new(|| schemas(&crds(Some(&[System::Kueue]))));

static STRUCTURAL: LazyLock<BTreeMap<(String, String), k8s_schema::Schema>> = LazyLock::new(|| {
    let read = |schema| k8s_schema::Schema::from_crd(schema).unwrap();
    SCHEMAS.iter().map(|(version, kind, schema)| ((version.clone(), kind.clone()), read(schema))).collect()
});

type Conversion = fn(&mut Value) -> Result<(), ConvertError>;

fn queue(version: &str, kind: &str, body: Value) -> Value {
    let mut out =
        json!({"apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": kind, "metadata": {"name": "x"}});
    for (key, value) in body.as_object().unwrap() {
        out[key] = value.clone();
    }
    out
}

fn without_annotations(mut object: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("annotations");
    object
}

/// Converts a v1beta1 body forward, and back again.
#[track_caller]
fn check_forward(kind: &str, old: Value, new: Value) {
    let original = queue("v1beta1", kind, old);
    let mut converted = original.clone();
    to_v1beta2(&mut converted).unwrap();
    assert_eq!(without_annotations(converted.clone()), queue("v1beta2", kind, new));
    to_v1beta1(&mut converted).unwrap();
    assert_eq!(converted, original);
}

/// Converts a v1beta2 body backward, and forward again.
#[track_caller]
fn check_backward(kind: &str, new: Value, old: Value) {
    let original = queue("v1beta2", kind, new);
    let mut converted = original.clone();
    to_v1beta1(&mut converted).unwrap();
    assert_eq!(without_annotations(converted.clone()), queue("v1beta1", kind, old));
    to_v1beta2(&mut converted).unwrap();
    assert_eq!(converted, original);
}

/// As both of the above: the two bodies say the same, and nothing needs to be kept.
#[track_caller]
fn check_both(kind: &str, old: Value, new: Value) {
    check_forward(kind, old.clone(), new.clone());
    check_backward(kind, new, old.clone());
    let mut converted = queue("v1beta1", kind, old);
    to_v1beta2(&mut converted).unwrap();
    assert_eq!(converted["metadata"], json!({"name": "x"}));
}

#[test]
fn cluster_queues() {
    let kind = "ClusterQueue";
    check_both(kind, json!({"spec": {"cohort": "c"}}), json!({"spec": {"cohortName": "c"}}));
    check_forward(
        kind,
        json!({"spec": {"admissionChecks": ["a", "b"]}}),
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}}),
    );
    let strategy = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}}});
    check_both(kind, strategy.clone(), strategy);
    check_forward(
        kind,
        json!({"spec": {"admissionChecks": [], "admissionChecksStrategy": {}}}),
        json!({"spec": {}}),
    );
    check_forward(
        kind,
        json!({"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}}),
        json!({"spec": {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}}}),
    );
    let fungibility = json!({"spec": {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}});
    check_both(kind, fungibility.clone(), fungibility);
    check_forward(
        kind,
        json!({"status": {
            "pendingWorkloadsStatus": {"lastChangeTime": "2026-01-01T00:00:00Z"},
            "fairSharing": {"weightedShare": 3, "admissionFairSharingStatus": {"consumedResources": {}}},
        }}),
        json!({"status": {"fairSharing": {"weightedShare": 3}}}),
    );
    check_backward(
        kind,
        json!({"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}}}),
        json!({"spec": {}}),
    );
}

#[test]
fn local_queues_cohorts_and_checks() {
    let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "3"}]}]);
    check_both(
        "LocalQueue",
        json!({"status": {"flavorUsage": usage}}),
        json!({"status": {"flavorsUsage": usage}}),
    );
    check_forward("LocalQueue", json!({"status": {"flavors": [{"name": "f"}]}}), json!({"status": {}}));
    check_forward(
        "Cohort",
        json!({"spec": {"parentName": "p"}, "status": {"fairSharing": {"admissionFairSharingStatus": {}}}}),
        json!({"spec": {"parentName": "p"}, "status": {"fairSharing": {}}}),
    );
    check_forward(
        "AdmissionCheck",
        json!({"spec": {"controllerName": "c", "retryDelayMinutes": 15}}),
        json!({"spec": {"controllerName": "c"}}),
    );
    check_both("WorkloadPriorityClass", json!({"value": 7}), json!({"value": 7}));
}

#[test]
fn clusters() {
    let config = json!({"location": "secret", "locationType": "Secret"});
    check_both(
        "MultiKueueCluster",
        json!({"spec": {"kubeConfig": config}}),
        json!({"spec": {"clusterSource": {"kubeConfig": config}}}),
    );
    check_backward(
        "MultiKueueCluster",
        json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}}),
        json!({"spec": {"clusterProfileRef": {"name": "p"}, "kubeConfig": {"location": "", "locationType": "Secret"}}}),
    );
    check_backward(
        "MultiKueueConfig",
        json!({"spec": {"clusters": ["a"], "quotaManagement": "Automated"}}),
        json!({"spec": {"clusters": ["a"]}}),
    );
}

#[test]
fn workloads() {
    let kind = "Workload";
    for (source, group, class) in [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ] {
        check_both(
            kind,
            json!({"spec": {"priorityClassName": "p", "priorityClassSource": source}}),
            json!({"spec": {"priorityClassRef": {"group": group, "kind": class, "name": "p"}}}),
        );
    }
    check_forward(
        kind,
        json!({"spec": {"priorityClassName": "p", "priorityClassSource": ""}}),
        json!({"spec": {}}),
    );
    check_both(
        kind,
        json!({"status": {"accumulatedPastExexcutionTimeSeconds": 9}}),
        json!({"status": {"accumulatedPastExecutionTimeSeconds": 9}}),
    );
    check_backward(
        kind,
        json!({
            "spec": {"preemptionGates": [{"name": "g"}], "podSets": [
                {"name": "a", "topologyRequest": {"required": "rack", "podsetSliceRequiredTopologyConstraints": []}},
            ]},
            "status": {"preemptionGates": [{"name": "g", "position": "Open"}]},
        }),
        json!({
            "spec": {"podSets": [{"name": "a", "topologyRequest": {"required": "rack"}}]},
            "status": {},
        }),
    );
}

fn assignment(topology: Value) -> Value {
    json!({"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": topology}]}}})
}

#[test]
fn topology_assignments() {
    #[track_caller]
    fn check(levels: &[&str], domains: Value, slices: Value) {
        check_both(
            "Workload",
            assignment(json!({"levels": levels, "domains": domains})),
            assignment(json!({"levels": levels, "slices": slices})),
        );
    }
    check(&["host"], json!([]), json!([]));
    check(
        &["host"],
        json!([{"values": ["n1"], "count": 4}]),
        json!([{"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 4}}]),
    );
    check(
        &["rack", "host"],
        json!([
            {"values": ["r", "pool-1-x"], "count": 1},
            {"values": ["r", "pool-22-x"], "count": 2},
        ]),
        json!([{
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "r"},
                {"individual": {"prefix": "pool-", "roots": ["1", "22"], "suffix": "-x"}},
            ],
            "podCounts": {"individual": [1, 2]},
        }]),
    );
    // Nothing in common, and a value that is all prefix.
    check(
        &["host"],
        json!([{"values": ["a"], "count": 1}, {"values": ["b"], "count": 1}]),
        json!([{
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
            "podCounts": {"universal": 1},
        }]),
    );
    check(
        &["host"],
        json!([{"values": ["aa"], "count": 1}, {"values": ["aaa"], "count": 1}]),
        json!([{
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"prefix": "aa", "roots": ["", "a"]}}],
            "podCounts": {"universal": 1},
        }]),
    );
}

#[test]
fn an_assignment_that_cannot_be_written_is_kept() {
    let nothing = json!({"status": {"admission": {"podSetAssignments": [{"name": "main"}]}}});
    for wrong in [
        json!({"levels": ["a", "b"], "domains": [{"values": ["only one"], "count": 1}]}),
        json!({"levels": ["a"], "domains": [{"values": [3], "count": 1}]}),
        json!({"levels": ["a"], "domains": "none"}),
        json!(null),
    ] {
        check_forward("Workload", assignment(wrong), nothing.clone());
    }
    let slice = |count: u64| json!({"domainCount": count, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 1}});
    for wrong in [
        json!({"levels": ["a"], "slices": [slice(4_000_000_000)]}),
        json!({"levels": ["a"], "slices": [slice(u64::MAX)]}),
        json!({"levels": ["a"], "slices": [{"domainCount": 2, "podCounts": {"individual": [1]}, "valuesPerLevel": []}]}),
    ] {
        check_backward("Workload", assignment(wrong), nothing.clone());
    }
    // A long prefix and many roots: a small object that would unfold to gigabytes.
    let roots: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let bomb = json!({"levels": ["a"], "slices": [{
        "domainCount": roots.len(),
        "valuesPerLevel": [{"individual": {"prefix": "x".repeat(100_000), "roots": roots}}],
        "podCounts": {"universal": 1},
    }]});
    check_backward("Workload", assignment(bomb), nothing);
}

#[test]
fn many_domains_become_several_slices() {
    let domains: Vec<Value> =
        (0..100_001).map(|n| json!({"values": [format!("n{n}")], "count": 1})).collect();
    let mut object =
        queue("v1beta1", "Workload", assignment(json!({"levels": ["host"], "domains": domains})));
    let original = object.clone();
    to_v1beta2(&mut object).unwrap();
    let slices = &object["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["slices"];
    assert_eq!(slices.as_array().unwrap().len(), 2);
    to_v1beta1(&mut object).unwrap();
    assert!(object == original);
}

#[test]
fn a_change_made_in_the_other_version_wins() {
    let mut object =
        queue("v1beta1", "ClusterQueue", json!({"spec": {"admissionChecks": ["a"], "cohort": "c"}}));
    to_v1beta2(&mut object).unwrap();
    assert!(object["metadata"]["annotations"][KEPT_FOR_V1BETA1].is_string());
    object["spec"]["admissionChecksStrategy"]["admissionChecks"] = json!([{"name": "b"}]);
    to_v1beta1(&mut object).unwrap();
    // Not `admissionChecks: [a]` beside it: the two places belong together.
    assert_eq!(
        object,
        queue(
            "v1beta1",
            "ClusterQueue",
            json!({
                "spec": {"cohort": "c", "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}},
            })
        )
    );
}

#[test]
fn what_was_kept_survives_changes_elsewhere() {
    let policy = json!({"migration": {"mode": "TryPreferredFlavors"}});
    let mut object = queue("v1beta2", "ClusterQueue", json!({"spec": {"concurrentAdmissionPolicy": policy}}));
    to_v1beta1(&mut object).unwrap();
    assert!(object["metadata"]["annotations"][KEPT_FOR_V1BETA2].is_string());
    object["spec"]["cohort"] = json!("new");
    to_v1beta2(&mut object).unwrap();
    assert_eq!(
        object,
        queue(
            "v1beta2",
            "ClusterQueue",
            json!({"spec": {"cohortName": "new", "concurrentAdmissionPolicy": policy}})
        )
    );
}

#[test]
fn odd_metadata_comes_back() {
    for metadata in [
        None,
        Some(json!({})),
        Some(json!({"annotations": {}})),
        Some(json!({"annotations": null})),
        Some(json!({"name": "x", "annotations": {}})),
        Some(json!({"annotations": {"a": "b"}})),
        Some(json!("text")),
    ] {
        let mut object = queue("v1beta1", "AdmissionCheck", json!({"spec": {"retryDelayMinutes": 1}}));
        match &metadata {
            Some(metadata) => object["metadata"] = metadata.clone(),
            None => drop(object.as_object_mut().unwrap().remove("metadata")),
        }
        let original = object.clone();
        to_v1beta2(&mut object).unwrap();
        to_v1beta1(&mut object).unwrap();
        assert_eq!(object, original);
    }
}

#[test]
fn a_damaged_annotation_is_dropped() {
    for text in ["", "[", "{}", "[{\"at\": \"/spec\"}]", "[{\"at\": \"\", \"is\": 1}]"] {
        let mut object = queue("v1beta1", "Cohort", json!({"spec": {"parentName": "p"}}));
        object["metadata"]["annotations"] = json!({KEPT_FOR_V1BETA2: text});
        to_v1beta2(&mut object).unwrap();
        assert_eq!(object, queue("v1beta2", "Cohort", json!({"spec": {"parentName": "p"}})));
    }
}

#[test]
fn what_is_not_kueues_is_refused_and_left_alone() {
    #[track_caller]
    fn check(object: Value, error: ConvertError) {
        let mut after = object.clone();
        assert_eq!(to_v1beta2(&mut after), Err(error));
        assert_eq!(after, object);
    }
    check(json!(3), ConvertError::NotAnObject);
    check(json!({"kind": "Workload"}), ConvertError::NotAnObject);
    check(
        json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Flavor"}),
        ConvertError::OtherKind("Flavor".to_owned()),
    );
    check(
        json!({"apiVersion": "batch/v1", "kind": "Workload"}),
        ConvertError::OtherVersion("batch/v1".to_owned()),
    );
}

#[test]
fn every_kind_is_known() {
    let mut kinds: Vec<&str> = SCHEMAS.iter().map(|(_, kind, _)| kind.as_str()).collect();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, KINDS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn there_and_back_is_the_same(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        for (api_version, kind, schema) in SCHEMAS.iter() {
            let mut original = object(&mut dice, api_version, kind, schema);
            if seed % 2 == 1 {
                damage(&mut dice, &mut original);
            }
            let (there, back): (Conversion, Conversion) = if api_version.ends_with("v1beta1") {
                (to_v1beta2, to_v1beta1)
            } else {
                (to_v1beta1, to_v1beta2)
            };
            let mut converted = original.clone();
            there(&mut converted).unwrap();
            let once = converted.clone();
            there(&mut converted).unwrap();
            prop_assert_eq!(&converted, &once, "converting twice to the same version");
            back(&mut converted).unwrap();
            prop_assert_eq!(&converted, &original);
            // And again from the other side, where the annotation is part of the object.
            let mut again = once.clone();
            back(&mut again).unwrap();
            there(&mut again).unwrap();
            prop_assert_eq!(&again, &once);
        }
    }

    /// Every field of the other version that this one lacks is gone, renamed or kept in the annotation.
    #[test]
    fn the_result_has_only_fields_of_its_version(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        for (api_version, kind, schema) in SCHEMAS.iter() {
            let mut converted = object(&mut dice, api_version, kind, schema);
            let to = if api_version.ends_with("v1beta1") { to_v1beta2 } else { to_v1beta1 };
            to(&mut converted).unwrap();
            let target = &STRUCTURAL[&(converted["apiVersion"].as_str().unwrap().to_owned(), kind.clone())];
            let mut unknown = k8s_schema::prune(&mut converted, target);
            unknown.retain(|path| !path.contains("fromTheFuture"));
            prop_assert!(unknown.is_empty(), "{} {}: {:?}", api_version, kind, unknown);
        }
    }

    #[test]
    fn topologies_there_and_back(
        n_levels in 1usize..4,
        hosts in proptest::collection::vec(("[a-c]{0,3}", "[a-cé]{0,4}", 1u32..3), 0..8),
    ) {
        let levels: Vec<String> = (0..n_levels).map(|n| format!("level-{n}")).collect();
        let domains: Vec<Value> = hosts.iter().map(|(a, b, count)| {
            let values: Vec<String> = (0..n_levels).map(|n| if n % 2 == 0 { format!("{a}{b}") } else { a.clone() }).collect();
            json!({"values": values, "count": count})
        }).collect();
        let original = queue("v1beta1", "Workload", assignment(json!({"levels": levels, "domains": domains})));
        let mut object = original.clone();
        to_v1beta2(&mut object).unwrap();
        // Equal domains fold into a slice that lists nothing, which cannot be told from a mistake: that alone
        // is kept.
        let equal = domains.len() > 1 && domains.iter().all(|d| d == &domains[0]);
        prop_assert_eq!(object["metadata"].get("annotations").is_some(), equal, "{}", object);
        to_v1beta1(&mut object).unwrap();
        prop_assert_eq!(object, original);
    }
}
