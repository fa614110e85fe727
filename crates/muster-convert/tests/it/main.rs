//! Workloads there and back, and what is said to be lost on the way.

#![expect(clippy::unwrap_used, reason = "that is how tests fail")]

use muster_convert::{ConvertError, Converted, Dialect, convert};
use proptest::prelude::*;
use serde_json::{Value, json};

fn pod(image: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}}]})
}

/// A set of `name replicas/min` cliques.
fn set(cliques: &str) -> Value {
    let clique = |text: &str| {
        let (name, size) = text.trim().split_once(' ').unwrap();
        let (replicas, min) = size.split_once('/').unwrap();
        json!({"name": name, "spec": {
            "replicas": replicas.parse::<i64>().unwrap(), "minAvailable": min.parse::<i64>().unwrap(),
            "roleName": name, "podSpec": pod(name)}})
    };
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "ml", "namespace": "ns", "labels": {"kai.scheduler/queue": "team"}},
        "spec": {"replicas": 1, "template": {"priorityClassName": "high", "cliques": cliques.split(';').map(clique).collect::<Vec<_>>()}},
    })
}

fn to(objects: &[Value], dialect: Dialect) -> Converted {
    convert(objects, dialect).unwrap()
}

/// Roles as `name pods/min`, whatever the kind.
fn roles(made: &Converted) -> String {
    let back = to(&made.objects, Dialect::PodCliqueSet);
    let cliques = back.objects[0]["spec"]["template"]["cliques"].as_array().unwrap().clone();
    let shown: Vec<String> = cliques
        .iter()
        .map(|clique| {
            format!(
                "{} {}/{}",
                clique["name"].as_str().unwrap(),
                clique["spec"]["replicas"],
                clique["spec"]["minAvailable"]
            )
        })
        .collect();
    shown.join("; ")
}

#[test]
fn there_and_back_keeps_what_each_can_hold() {
    for (dialect, expected, n_warnings) in [
        (Dialect::PodCliqueSet, "master 1/1; workers 4/3", 0),
        (Dialect::VolcanoJob, "master 1/1; workers 4/3", 0),
        (Dialect::Kai, "master 1/1; workers 4/3", 0),
        // It makes no pods, and that is said.
        (Dialect::Kueue, "master 1/1; workers 4/3", 1),
        // All pods of a job are needed.
        (Dialect::JobSet, "master 1/1; workers 4/4", 1),
        (Dialect::LeaderWorkerSet, "leader 1/1; worker 4/4", 3),
    ] {
        let made = to(&[set("master 1/1; workers 4/3")], dialect);
        assert_eq!(roles(&made), expected, "{dialect}: {made:?}");
        assert_eq!(made.warnings.len(), n_warnings, "{dialect}: {:?}", made.warnings);
        let text = serde_json::to_string(&made.objects).unwrap();
        for word in ["team", "high", "workers", "ns"] {
            let is_lost =
                (dialect == Dialect::LeaderWorkerSet || dialect == Dialect::JobSet) && word == "high";
            assert!(text.contains(word) || is_lost, "{dialect} lacks {word}: {text}");
        }
    }
}

#[test]
fn what_a_pod_group_becomes() {
    let made = to(&[set("master 1/1; workers 2/1")], Dialect::Kai);
    let group = &made.objects[0];
    assert_eq!(
        group["spec"],
        json!({"minMember": 2, "queue": "team", "priorityClassName": "high", "subGroups": [
            {"name": "master", "minMember": 1}, {"name": "workers", "minMember": 1}]})
    );
    assert_eq!(made.objects.len(), 4);
    let pod = &made.objects[3];
    assert_eq!(pod["metadata"]["name"], "ml-workers-1");
    assert_eq!(pod["metadata"]["annotations"]["pod-group-name"], "ml");
    assert_eq!(pod["metadata"]["labels"]["kai.scheduler/subgroup-name"], "workers");
    assert_eq!(pod["spec"]["schedulerName"], "kai-scheduler");
}

#[test]
fn copies_order_and_groups() {
    let mut object = set("a 1/1; b 2/2; c 3/3");
    object["spec"]["replicas"] = json!(2);
    object["spec"]["template"]["cliqueStartupType"] = json!("CliqueStartupTypeInOrder");
    object["spec"]["template"]["podCliqueScalingGroups"] =
        json!([{"name": "sg", "replicas": 3, "minAvailable": 1, "cliqueNames": ["b", "c"]}]);
    let made = to(&[object.clone()], Dialect::VolcanoJob);
    assert_eq!(made.objects.len(), 2);
    assert_eq!(made.objects[1]["metadata"]["name"], "ml-1");
    let task = |index: usize| &made.objects[0]["spec"]["tasks"][index];
    assert_eq!((&task(1)["replicas"], &task(1)["minAvailable"]), (&json!(6), &json!(2)));
    assert_eq!(task(2)["dependsOn"], json!({"name": ["b"]}));
    assert_eq!(made.objects[0]["spec"]["minAvailable"], 6);
    assert!(made.warnings.iter().any(|w| w.contains("group sg")), "{:?}", made.warnings);

    let back = to(&[object], Dialect::PodCliqueSet);
    let template = &back.objects[0]["spec"]["template"];
    assert_eq!(template["cliqueStartupType"], "CliqueStartupTypeExplicit");
    assert_eq!(template["cliques"][2]["spec"]["startsAfter"], json!(["b"]));
    assert_eq!(template["podCliqueScalingGroups"][0]["replicas"], 3);
    assert!(back.warnings.is_empty(), "{:?}", back.warnings);
}

#[test]
fn a_job_set_of_many_jobs_is_a_scaling_group() {
    let object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "js", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "rules": []}, "successPolicy": {"operator": "All"},
            "replicatedJobs": [
                {"name": "driver", "template": {"spec": {"template": {"spec": pod("d")}}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 4, "template": {"spec": pod("w")}}},
                 "dependsOn": [{"name": "driver", "status": "Complete"}]},
            ],
        },
    });
    let made = to(&[object], Dialect::PodCliqueSet);
    let set = &made.objects[0];
    let template = &set["spec"]["template"];
    assert_eq!(set["metadata"]["labels"]["kai.scheduler/queue"], "q");
    assert_eq!(
        template["podCliqueScalingGroups"],
        json!([{"name": "workers-jobs", "cliqueNames": ["workers"], "replicas": 2, "minAvailable": 2}])
    );
    assert_eq!(template["cliques"][0]["annotations"]["grove.io/backoff-limit"], "3");
    let lost: Vec<&str> = made.warnings.iter().map(|w| w.split(": ").nth(1).unwrap()).collect();
    assert_eq!(lost, ["spec.successPolicy", "spec.failurePolicy.rules", "spec.replicatedJobs[1].dependsOn"]);
}

#[test]
fn a_leader_and_its_workers() {
    let object = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "lws"},
        "spec": {"replicas": 3, "startupPolicy": "LeaderReady",
                 "leaderWorkerTemplate": {"size": 4, "leaderTemplate": {"spec": pod("l")}, "workerTemplate": {"spec": pod("w")}}},
    });
    let made = to(std::slice::from_ref(&object), Dialect::PodCliqueSet);
    assert_eq!(made.objects[0]["spec"]["replicas"], 3);
    assert_eq!(roles(&made), "leader 1/1; worker 3/3");
    assert_eq!(made.objects[0]["spec"]["template"]["cliques"][1]["spec"]["startsAfter"], json!(["leader"]));
    let back = to(&made.objects, Dialect::LeaderWorkerSet);
    let mut found = back.objects[0].clone();
    found["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(found["spec"], object["spec"]);
    let error = convert(&[set("a 2/2; b 2/2")], Dialect::LeaderWorkerSet).unwrap_err();
    assert!(matches!(error, ConvertError::Senseless { .. }), "{error}");
}

#[test]
fn topologies_are_kept_where_they_can_be() {
    let mut object = set("a 2/2; b 2/2");
    object["spec"]["template"]["topologyConstraint"] =
        json!({"topologyName": "dc", "pack": {"required": "block"}});
    object["spec"]["template"]["cliques"][0]["topologyConstraint"] =
        json!({"pack": {"required": "rack", "preferred": "host"}});
    let made = to(&[object.clone()], Dialect::Kai);
    assert_eq!(
        made.objects[0]["spec"]["topologyConstraint"],
        json!({"topology": "dc", "requiredTopologyLevel": "block"})
    );
    assert_eq!(
        made.objects[0]["spec"]["subGroups"][0]["topologyConstraint"]["preferredTopologyLevel"],
        "host"
    );
    let made = to(&[object.clone()], Dialect::Kueue);
    assert_eq!(made.objects[0]["spec"]["podSets"][0]["topologyRequest"], json!({"required": "rack"}));
    assert_eq!(made.objects[0]["spec"]["podSets"][1]["topologyRequest"], json!({"required": "block"}));
    assert!(made.warnings.iter().any(|w| w.contains("no longer for the whole")));
    let made = to(&[object], Dialect::VolcanoJob);
    assert_eq!(
        made.warnings.iter().filter(|w| w.contains("packed together")).count(),
        2,
        "{:?}",
        made.warnings
    );
}

#[test]
fn a_lower_minimum_of_the_whole_is_spoken_of() {
    let job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"minAvailable": 2, "plugins": {"svc": []}, "policies": [{"event": "PodEvicted", "action": "RestartJob"}], "maxRetry": 5,
                 "tasks": [{"name": "w", "replicas": 3, "template": {"spec": pod("w")}}, {"name": "p", "replicas": 1, "template": {"spec": pod("p")}}]},
    });
    let made = to(std::slice::from_ref(&job), Dialect::PodCliqueSet);
    assert_eq!(made.warnings.len(), 3, "{:?}", made.warnings);
    assert_eq!(to(&[job], Dialect::VolcanoJob).objects[0]["spec"]["minAvailable"], 2);
}

#[test]
fn what_cannot_be_read_is_named() {
    let check = |objects: &[Value], expected: &str| {
        let error = convert(objects, Dialect::JobSet).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&[json!({"apiVersion": "v1", "kind": "Service"})], "Service is no workload");
    check(&[json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet"})], "spec.template.cliques");
    let group =
        json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"}});
    check(&[group], "has no pods here");
    let lone = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"pod-group-name": "g"}}});
    check(&[lone], "it is not here");
    let mut many = set("a 3/3");
    many["spec"]["replicas"] = json!(1_000_000);
    check(&[many], "more than");
}

#[test]
fn others_are_handed_on() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    let made = to(&[service.clone(), set("a 1/1")], Dialect::JobSet);
    assert_eq!(made.objects[0], service);
    assert_eq!(made.objects[1]["kind"], "JobSet");
}

#[test]
fn samples_are_converted() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples");
    if !folder.is_dir() {
        println!("skipped: no ../shared/samples");
        return;
    }
    let mut n = 0;
    for sub in ["grove", "seeds", "kueue"] {
        for entry in std::fs::read_dir(folder.join(sub)).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let Ok(objects) = serde_saphyr::from_multiple::<Value>(&text) else { continue };
            for object in objects {
                let is_work = ["PodCliqueSet", "JobSet"].contains(&object["kind"].as_str().unwrap_or(""))
                    || object["apiVersion"] == "batch.volcano.sh/v1alpha1" && object["kind"] == "Job";
                if !is_work {
                    continue;
                }
                n += 1;
                for dialect in Dialect::ALL {
                    match convert(std::slice::from_ref(&object), dialect) {
                        Ok(made) => assert!(!made.objects.is_empty()),
                        Err(ConvertError::Senseless { .. }) => {}
                        Err(error) => panic!("{dialect}: {error}: {object}"),
                    }
                }
            }
        }
    }
    assert!(n >= 15, "{n}");
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[a-z/]{0,6}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let keys = prop::sample::select(vec![
            "name",
            "replicas",
            "minAvailable",
            "template",
            "spec",
            "cliques",
            "tasks",
            "podSets",
            "replicatedJobs",
            "subGroups",
            "parent",
            "labels",
            "annotations",
            "metadata",
            "podSpec",
            "startsAfter",
            "leaderWorkerTemplate",
            "workerTemplate",
            "size",
            "count",
            "podCliqueScalingGroups",
            "cliqueNames",
            "topologyConstraint",
            "pack",
            "required",
            "dependsOn",
            "parallelism",
            "minMember",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..6)
                .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics(spec in anything(), metadata in anything(), kind in 0_usize..6) {
        let (version, kind) = [
            ("grove.io/v1alpha1", "PodCliqueSet"), ("batch.volcano.sh/v1alpha1", "Job"), ("kueue.x-k8s.io/v1beta1", "Workload"),
            ("jobset.x-k8s.io/v1alpha2", "JobSet"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
            ("scheduling.run.ai/v2alpha2", "PodGroup"),
        ][kind];
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {"pod-group-name": ""}}, "spec": spec});
        for dialect in Dialect::ALL {
            let _ = convert(std::slice::from_ref(&object), dialect);
            let _ = convert(&[object.clone(), pod.clone()], dialect);
        }
    }
}
