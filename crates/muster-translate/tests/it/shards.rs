//! Which shard a pod is of: its group's, or its own where it has none.

use crate::settings;
use muster_model::{Bound, Cluster, Key, PodState, Resource};
use muster_translate::{Kind, Settings, Translator, apply, cluster};
use serde_json::{Value, json};

const POOL: &str = "kai.scheduler/node-pool";

fn shard(pool: Option<&str>) -> Settings {
    let mut settings = settings();
    settings.pool.value = pool.map(Into::into);
    settings
}

fn object(api: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut whole = json!({"apiVersion": api, "kind": kind, "metadata": {"namespace": "n", "name": name}});
    for (field, value) in rest.as_object().expect("an object") {
        match field.as_str() {
            "labels" | "annotations" | "uid" | "ownerReferences" => whole["metadata"][field] = value.clone(),
            _ => whole[field] = value.clone(),
        }
    }
    whole
}

fn pod(name: &str, scheduler: &str, rest: Value) -> Value {
    let mut pod = object("v1", "Pod", name, rest);
    pod["spec"]["schedulerName"] = json!(scheduler);
    pod
}

/// The object, of the shard `x`.
fn labelled(mut object: Value) -> Value {
    object["metadata"]["labels"][POOL] = json!("x");
    object
}

/// The systems that have groups: the kind of the group, the group, and a pod that names it.
fn systems() -> [(Kind, Value, Value); 7] {
    let t9k = json!({"labels": {"scheduler.tensorstack.dev/group-name": "g"}});
    let koordinator = json!({"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}});
    let of_kubernetes = json!({"spec": {"schedulingGroup": {"podGroupName": "g"}}});
    let of_workload = json!({"spec": {"workloadRef": {"name": "w", "podGroup": "g"}}});
    let of_grove = json!({"labels": {"grove.io/podgang": "g", "grove.io/podclique": "a"},
        "annotations": {"kai.scheduler/skip-podgrouper": "true"}});
    let pod_gang = json!({"labels": {"grove.io/scheduler-backend": "muster"},
        "spec": {"podgroups": [{"name": "a", "minReplicas": 1}]}});
    let gang = json!({"gang": {"minCount": 1}});
    let min = json!({"spec": {"minMember": 1}});
    [
        (
            Kind::PodGroup,
            object("scheduling.run.ai/v2alpha2", "PodGroup", "g", min.clone()),
            pod("p", "kai-scheduler", json!({"annotations": {"pod-group-name": "g"}})),
        ),
        (
            Kind::PodGang,
            object("scheduler.grove.io/v1alpha1", "PodGang", "g", pod_gang),
            pod("p", "kai-scheduler", of_grove),
        ),
        (
            Kind::VolcanoPodGroup,
            object("scheduling.volcano.sh/v1beta1", "PodGroup", "g", min.clone()),
            pod("p", "volcano", json!({"annotations": {"scheduling.k8s.io/group-name": "g"}})),
        ),
        (
            Kind::T9kPodGroup,
            object("scheduler.tensorstack.dev/v1beta1", "PodGroup", "g", min.clone()),
            pod("p", "t9k-scheduler", t9k),
        ),
        (
            Kind::KoordinatorPodGroup,
            object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "g", min),
            pod("p", "koord-scheduler", koordinator),
        ),
        (
            Kind::KubernetesPodGroup,
            object(
                "scheduling.k8s.io/v1alpha2",
                "PodGroup",
                "g",
                json!({"spec": {"schedulingPolicy": gang.clone()}}),
            ),
            pod("p", "kai-scheduler", of_kubernetes),
        ),
        (
            Kind::Workload,
            object(
                "scheduling.k8s.io/v1alpha1",
                "Workload",
                "w",
                json!({"spec": {"podGroups": [{"name": "g", "policy": gang}]}}),
            ),
            pod("p", "kai-scheduler", of_workload),
        ),
    ]
}

/// The pods that have a gang, and whether each such gang is there.
fn placed(cluster: &Cluster) -> Vec<(&str, bool)> {
    let has = |key: &Key| cluster.gangs.iter().any(|gang| gang.key == *key);
    cluster.pods.iter().filter_map(|pod| Some((&*pod.key.name, has(pod.gang.as_ref()?)))).collect()
}

/// Whose pods the default shard and the shard `x` place; all of the gangs are there.
#[track_caller]
fn check(objects: &[Value], by_default: &[&str], by_x: &[&str]) {
    for (pool, expected) in [(None, by_default), (Some("x"), by_x)] {
        let (cluster, _) = cluster(objects, &shard(pool));
        let expected: Vec<(&str, bool)> = expected.iter().map(|name| (*name, true)).collect();
        assert_eq!(placed(&cluster), expected, "in shard {pool:?}");
        let n_gangs = expected.len().min(cluster.gangs.len());
        assert_eq!(cluster.gangs.len(), n_gangs, "in shard {pool:?}");
    }
}

#[test]
fn a_pod_without_a_group_goes_by_its_own_label() {
    for scheduler in ["kai-scheduler", "t9k-scheduler", "koord-scheduler", "volcano"] {
        let pods = [pod("a", scheduler, json!({})), labelled(pod("b", scheduler, json!({})))];
        check(&pods, &["a"], &["b"]);
    }
    check(&[pod("a", "default-scheduler", json!({})), labelled(pod("b", "other", json!({})))], &[], &[]);
    let mut of_y = pod("a", "t9k-scheduler", json!({}));
    of_y["metadata"]["labels"][POOL] = json!("y");
    check(&[of_y], &[], &[]);
}

#[test]
fn the_label_of_pools_can_be_another() {
    let mut settings = shard(Some("x"));
    settings.pool.label = Some("example.com/pool".into());
    let other = pod("b", "t9k-scheduler", json!({"labels": {"example.com/pool": "x"}}));
    let (cluster, _) = cluster(&[labelled(pod("a", "t9k-scheduler", json!({}))), other], &settings);
    assert_eq!(placed(&cluster), [("b", true)]);
}

#[test]
fn a_pod_with_a_group_goes_where_the_group_goes() {
    for (_, group, pod) in systems() {
        check(&[group.clone(), pod.clone()], &["p"], &[]);
        check(&[group.clone(), labelled(pod.clone())], &["p"], &[]);
        check(&[labelled(group.clone()), pod.clone()], &[], &["p"]);
        check(&[labelled(group), labelled(pod)], &[], &["p"]);
    }
}

#[test]
fn of_a_missing_group_one_shard_speaks() {
    for (kind, _, pod) in systems() {
        for (pod, of_x) in [(pod.clone(), false), (labelled(pod), true)] {
            for (pool, here) in [(None, !of_x), (Some("x"), of_x)] {
                let (cluster, found) = cluster(std::slice::from_ref(&pod), &shard(pool));
                assert_eq!(cluster.pods[0].gang.is_some(), here, "{kind:?}");
                assert_eq!(!found.is_empty(), here, "{kind:?}: {found:?}");
            }
        }
    }
}

#[test]
fn a_group_that_changes_its_label_leaves_one_shard_and_enters_the_other() {
    for (kind, group, pod) in systems() {
        for pod_first in [true, false] {
            let mut shards = [None, Some("x")].map(|pool| (Translator::new(shard(pool)), Cluster::default()));
            let mut told = |object: Option<&Value>| {
                shards.each_mut().map(|(translator, cluster)| {
                    match object {
                        Some(object) => translator.put(object),
                        None => {
                            let name = group["metadata"]["name"].as_str().expect("a name");
                            translator.delete_as(kind, "n", name);
                        }
                    }
                    apply(cluster, translator.drain().0);
                    placed(cluster) == [("p", true)]
                })
            };
            if pod_first {
                told(Some(&pod));
                assert_eq!(told(Some(&group)), [true, false], "{kind:?}");
            } else {
                told(Some(&group));
                assert_eq!(told(Some(&pod)), [true, false], "{kind:?}");
            }
            assert_eq!(told(Some(&labelled(group.clone()))), [false, true], "{kind:?}");
            assert_eq!(told(Some(&labelled(pod.clone()))), [false, true], "{kind:?}");
            assert_eq!(told(Some(&group)), [true, false], "{kind:?}");
            // Without a group nothing is placed, in either.
            assert_eq!(told(None), [false, false], "{kind:?}");
            assert_eq!(told(Some(&labelled(group.clone()))), [false, true], "{kind:?}");
        }
    }
}

#[test]
fn a_lone_pod_that_changes_its_label_does_so_too() {
    let mut shards = [None, Some("x")].map(|pool| (Translator::new(shard(pool)), Cluster::default()));
    let mut told = |object: &Value| {
        shards.each_mut().map(|(translator, cluster)| {
            translator.put(object);
            apply(cluster, translator.drain().0);
            (placed(cluster).len(), cluster.gangs.len())
        })
    };
    let plain = pod("p", "t9k-scheduler", json!({}));
    assert_eq!(told(&plain), [(1, 1), (0, 0)]);
    assert_eq!(told(&labelled(plain.clone())), [(0, 0), (1, 1)]);
    assert_eq!(told(&plain), [(1, 1), (0, 0)]);
}

#[test]
fn a_gang_by_annotations_is_not_split() {
    let member = |name: &str| {
        let said = json!({"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"});
        pod(name, "koord-scheduler", json!({"annotations": said}))
    };
    // The first pod's word holds for all.
    check(&[member("a"), labelled(member("b"))], &["a", "b"], &[]);
    check(&[labelled(member("a")), member("b")], &[], &["a", "b"]);
    // Also when it comes last, or goes.
    let mut translator = Translator::new(shard(None));
    let mut cluster = Cluster::default();
    let mut drained = |translator: &mut Translator| {
        apply(&mut cluster, translator.drain().0);
        placed(&cluster).len()
    };
    translator.put(&labelled(member("b")));
    translator.put(&member("c"));
    assert_eq!(drained(&mut translator), 0);
    translator.put(&member("a"));
    assert_eq!(drained(&mut translator), 3);
    translator.delete(&member("a"));
    assert_eq!(drained(&mut translator), 0);
}

#[test]
fn gangs_that_start_together_are_of_one_shard() {
    let group = |name: &str| {
        let said = json!({"gang.scheduling.koordinator.sh/groups": r#"["n/a","n/b"]"#});
        object(
            "scheduling.sigs.k8s.io/v1alpha1",
            "PodGroup",
            name,
            json!({"annotations": said, "spec": {"minMember": 1}}),
        )
    };
    let member = |name: &str, group: &str| {
        pod(name, "koord-scheduler", json!({"labels": {"pod-group.scheduling.sigs.k8s.io": group}}))
    };
    let pods = || vec![member("a0", "a"), member("b0", "b")];
    let with = |groups: &[Value]| [groups, &pods()].concat();
    check(&with(&[group("a"), labelled(group("b"))]), &["a0", "b0"], &[]);
    check(&with(&[labelled(group("a")), group("b")]), &[], &["a0", "b0"]);
}

#[test]
fn pods_of_one_owner_without_a_group_are_not_split() {
    let member =
        |name: &str| pod(name, "volcano", json!({"ownerReferences": [{"controller": true, "uid": "job"}]}));
    check(&[member("a"), labelled(member("b"))], &["a", "b"], &[]);
    check(&[labelled(member("a")), member("b")], &[], &["a", "b"]);
    let mut translator = Translator::new(shard(None));
    let mut cluster = Cluster::default();
    let mut drained = |translator: &mut Translator| {
        apply(&mut cluster, translator.drain().0);
        placed(&cluster).len()
    };
    translator.put(&labelled(member("b")));
    translator.put(&member("c"));
    assert_eq!(drained(&mut translator), 0);
    translator.put(&member("a"));
    assert_eq!(drained(&mut translator), 3);
    translator.delete(&member("a"));
    assert_eq!(drained(&mut translator), 0);
    // Once the group is there, its label counts.
    let group = object(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        "podgroup-job",
        json!({"spec": {"minMember": 1}}),
    );
    translator.put(&group);
    assert_eq!(drained(&mut translator), 2);
    translator.put(&labelled(group));
    assert_eq!(drained(&mut translator), 0);
}

#[test]
fn what_other_shards_run_takes_room_and_nothing_else() {
    let running = |name: &str, scheduler: &str| {
        let mut pod = pod(name, scheduler, json!({"status": {"phase": "Running"}}));
        pod["spec"] = json!({"schedulerName": scheduler, "nodeName": "a",
            "containers": [{"resources": {"requests": {"cpu": "1"}}}]});
        pod
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    let closed =
        object("scheduler.tensorstack.dev/v1beta1", "Queue", "default", json!({"spec": {"closed": true}}));
    for scheduler in ["kai-scheduler", "t9k-scheduler", "koord-scheduler", "volcano"] {
        let waits = labelled(pod("waits", scheduler, json!({})));
        let objects = [
            node.clone(),
            closed.clone(),
            labelled(running("theirs", scheduler)),
            running("other", "z"),
            waits,
        ];
        let (cluster, found) = cluster(&objects, &shard(None));
        assert_eq!(found, [], "{scheduler}");
        assert!(cluster.gangs.is_empty(), "{scheduler}");
        let [other, theirs, waits] = &*cluster.pods else { panic!("three pods") };
        assert_eq!((theirs.state, theirs.node.as_deref()), (PodState::Running, Some("a")));
        assert_eq!(theirs.shape, other.shape, "{scheduler}");
        assert_eq!((&theirs.gang, &theirs.volcano), (&other.gang, &other.volcano));
        assert!(waits.shape.missing.is_empty(), "{scheduler}");
    }
}

#[test]
fn what_other_shards_ask_of_quotas_leaves_ours_alone() {
    let quota = |name: &str| {
        let spec = json!({"min": {"cpu": "1"}, "max": {"cpu": "10"}});
        object("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", name, json!({"spec": spec}))
    };
    let asks = |name: &str, quota: &str, group: Option<&str>| {
        let mut labels = json!({"quota.scheduling.koordinator.sh/name": quota});
        if let Some(group) = group {
            labels["pod-group.scheduling.sigs.k8s.io"] = json!(group);
        }
        let mut pod = pod(name, "koord-scheduler", json!({"labels": labels}));
        pod["spec"]["containers"] = json!([{"resources": {"requests": {"cpu": "8"}}}]);
        pod
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "10"}}});
    let group = object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "g", json!({"spec": {"minMember": 1}}));
    let limit = |cluster: &Cluster| {
        let queue = cluster.queues.iter().find(|queue| &*queue.name == "koordinator/a").expect("the queue");
        queue.shares[&Resource::Cpu].limit
    };
    let mut translator = Translator::new(shard(None));
    let mut cluster = Cluster::default();
    let objects = [node, quota("a"), quota("b"), asks("p", "a", None), labelled(asks("q", "b", None))];
    objects.iter().for_each(|object| translator.put(object));
    apply(&mut cluster, translator.drain().0);
    assert_eq!(limit(&cluster), Bound::At(10_000));
    // The group, and with it its pod, moves from shard to shard.
    let moves = [
        (group.clone(), Bound::At(5000)),
        (labelled(group.clone()), Bound::At(10_000)),
        (group, Bound::At(5000)),
    ];
    translator.put(&asks("r", "b", Some("g")));
    for (group, expected) in moves {
        translator.put(&group);
        apply(&mut cluster, translator.drain().0);
        assert_eq!(limit(&cluster), expected);
    }
}

fn request(name: &str, pod: &str, spec: Value, status: Value) -> Value {
    let mut whole = json!({"podName": pod, "selectedNode": "a"});
    whole.as_object_mut().expect("an object").extend(spec.as_object().cloned().unwrap_or_default());
    let uid = format!("uid-{name}");
    object(
        "scheduling.run.ai/v1alpha2",
        "BindRequest",
        name,
        json!({"uid": uid, "spec": whole, "status": status}),
    )
}

/// The hopeless requests, by name.
#[track_caller]
fn check_hopeless(pool: Option<&str>, objects: &[Value], expected: &[&str]) {
    let mut translator = Translator::new(shard(pool));
    objects.iter().for_each(|object| translator.put(object));
    let found: Vec<_> = translator.hopeless_requests().collect();
    let expected: Vec<_> =
        expected.iter().map(|name| (Key::new("n", *name), format!("uid-{name}").into())).collect();
    assert_eq!(found, expected);
    // They go with the object, or when it says something else.
    for object in objects.iter().filter(|object| object["kind"] == "BindRequest") {
        let mut again = object.clone();
        again["status"] = json!({"phase": "Pending"});
        translator.put(&again);
    }
    assert_eq!(translator.hopeless_requests().count(), 0);
    objects.iter().for_each(|object| translator.put(object));
    assert_eq!(translator.hopeless_requests().count(), expected.len());
    objects.iter().for_each(|object| translator.delete(object));
    assert_eq!(translator.hopeless_requests().count(), 0);
}

#[test]
fn hopeless_requests_are_those_of_pods_that_are_to_be_placed_here() {
    let failed = json!({"phase": "Failed", "failedAttempts": 3});
    let of = |name: &str, pod: &str| request(name, pod, json!({}), failed.clone());
    let lone = pod("p", "kai-scheduler", json!({}));
    check_hopeless(None, &[lone.clone(), of("p", "p"), of("r", "p")], &["p", "r"]);
    check_hopeless(Some("x"), &[lone.clone(), of("p", "p")], &[]);
    check_hopeless(Some("x"), &[labelled(lone.clone()), of("p", "p")], &["p"]);
    check_hopeless(None, &[labelled(lone.clone()), of("p", "p")], &[]);
    check_hopeless(None, &[pod("p", "other", json!({})), of("p", "p")], &[]);
    check_hopeless(None, &[of("p", "p")], &[]);
    // A node that is gone makes it no better.
    check_hopeless(
        None,
        &[lone.clone(), request("p", "p", json!({"selectedNode": "gone"}), failed.clone())],
        &["p"],
    );
    // Whoever goes on for a while may still bind it, and whoever has given up holds nothing.
    let tries = |limit: i64| request("p", "p", json!({"backoffLimit": limit}), failed.clone());
    check_hopeless(None, &[lone.clone(), tries(4)], &[]);
    check_hopeless(None, &[lone.clone(), tries(3)], &[]);
    check_hopeless(None, &[lone.clone(), request("p", "p", json!({}), json!({"phase": "Pending"}))], &[]);
    // It has been deleted, or its pod was bound after all.
    let mut leaves = of("p", "p");
    leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check_hopeless(None, &[lone, leaves], &[]);
    let mut bound = pod("p", "kai-scheduler", json!({}));
    bound["spec"]["nodeName"] = json!("a");
    check_hopeless(None, &[bound, of("p", "p")], &[]);
    // Pods go by their groups here too.
    for (_, group, pod) in systems() {
        check_hopeless(None, &[group.clone(), pod.clone(), of("p", "p")], &["p"]);
        check_hopeless(None, &[labelled(group), pod, of("p", "p")], &[]);
    }
}
