//! Pods: states, gangs, rules, and what they refer to.

use crate::{pod_of, translate};
use muster_model::{Amounts, Op, PodState, Resource, TaintEffect, VolumeNeed};
use serde_json::{Value, json};
use std::sync::Arc;

fn pod(name: &str, metadata: Value, spec: Value, status: Value) -> Value {
    let mut all = json!({"name": name, "namespace": "n", "uid": format!("uid-{name}")});
    all.as_object_mut().expect("an object").extend(metadata.as_object().cloned().unwrap_or_default());
    let mut whole = json!({"schedulerName": "kai-scheduler"});
    whole.as_object_mut().expect("an object").extend(spec.as_object().cloned().unwrap_or_default());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": all, "spec": whole, "status": status})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn bind_request(pod: &str, spec: Value, status: Value) -> Value {
    let mut whole = json!({"podName": pod, "selectedNode": "a"});
    whole.as_object_mut().expect("an object").extend(spec.as_object().cloned().unwrap_or_default());
    json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
        "metadata": {"name": pod, "namespace": "n"}, "spec": whole, "status": status})
}

#[track_caller]
fn check_state(metadata: Value, spec: Value, phase: &str, more: &[Value], state: PodState, at: Option<&str>) {
    let mut objects = vec![node("a"), pod("p", metadata, spec, json!({"phase": phase}))];
    objects.extend(more.iter().cloned());
    let (cluster, _) = translate(&objects);
    let pod = pod_of(&cluster, "p");
    assert_eq!((pod.state, pod.node.as_deref()), (state, at));
}

#[test]
fn states() {
    use PodState::*;
    let on_a = json!({"nodeName": "a"});
    let deleted = |ago: &str| json!({"deletionTimestamp": ago});
    let (lately, long_ago) = (deleted("2025-12-31T23:59:55Z"), deleted("2025-12-31T23:50:00Z"));
    let gated = json!({"schedulingGates": [{"name": "x"}]});
    let (empty, request) = (json!({}), bind_request("p", json!({}), json!({})));
    check_state(empty.clone(), empty.clone(), "Pending", &[], Pending, None);
    check_state(empty.clone(), empty.clone(), "", &[], Pending, None);
    check_state(empty.clone(), gated.clone(), "Pending", &[], Gated, None);
    check_state(empty.clone(), on_a.clone(), "Pending", &[], Bound, Some("a"));
    check_state(empty.clone(), on_a.clone(), "Running", &[], Running, Some("a"));
    check_state(empty.clone(), on_a.clone(), "Unknown", &[], Running, Some("a"));
    check_state(lately.clone(), on_a.clone(), "Running", &[], Releasing, Some("a"));
    check_state(long_ago.clone(), on_a.clone(), "Running", &[], Stuck, Some("a"));
    check_state(long_ago, on_a.clone(), "Pending", &[], Releasing, Some("a"));
    check_state(lately, empty.clone(), "Pending", &[], Releasing, None);
    check_state(empty.clone(), on_a.clone(), "Succeeded", &[], Succeeded, Some("a"));
    check_state(empty.clone(), on_a, "Failed", &[], Failed, Some("a"));
    check_state(empty.clone(), empty.clone(), "Pending", std::slice::from_ref(&request), Binding, Some("a"));
    check_state(empty.clone(), gated, "Pending", &[request], Binding, Some("a"));
    let failed = |spec: Value, attempts: i64| {
        bind_request("p", spec, json!({"phase": "Failed", "failedAttempts": attempts}))
    };
    // A binder goes on with one that says nothing of an end.
    check_state(empty.clone(), empty.clone(), "Pending", &[failed(json!({}), 1)], Binding, Some("a"));
    check_state(
        empty.clone(),
        empty.clone(),
        "Pending",
        &[failed(json!({"backoffLimit": 3}), 1)],
        Binding,
        Some("a"),
    );
    check_state(
        empty.clone(),
        empty.clone(),
        "Pending",
        &[failed(json!({"backoffLimit": 3}), 3)],
        Pending,
        None,
    );
    let elsewhere = bind_request("p", json!({"selectedNode": "gone"}), json!({}));
    check_state(empty.clone(), empty, "Pending", &[elsewhere], Pending, None);
}

#[test]
fn a_bind_request_says_which_gpus_and_zones() {
    let zones = json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "a"},
        "zones": [{"name": "z0", "type": "Node"}, {"name": "z1", "type": "Node"}]});
    let request = bind_request(
        "p",
        json!({"selectedGPUGroups": ["g1", "g2"], "predictedNUMAZones": [{"zone": "z1", "amount": {"cpu": "2"}}]}),
        json!({}),
    );
    let annotated = |key: &str| json!({"annotations": {key: r#"[{"zone": "z0", "amount": {"cpu": "1"}}]"#}});
    let read = |metadata: Value| {
        let (cluster, found) =
            translate(&[node("a"), zones.clone(), request.clone(), pod("p", metadata, json!({}), json!({}))]);
        assert_eq!(found, []);
        pod_of(&cluster, "p")
    };
    let plain = read(json!({}));
    assert_eq!(plain.gpu_groups, ["g1".into(), "g2".into()]);
    assert_eq!((plain.zones[0].zone, plain.zones[0].amounts.get(&Resource::Cpu)), (1, 2000));
    assert_eq!(read(annotated("kai.scheduler/numa-placement-predicted")).zones[0].zone, 1);
    assert_eq!(read(annotated("kai.scheduler/numa-placement-observed")).zones[0].zone, 0);
}

#[track_caller]
fn check_groups(labels: Value, expected: &[&str]) {
    let (cluster, _) = translate(&[pod("p", json!({"labels": labels}), json!({}), json!({}))]);
    let groups = pod_of(&cluster, "p").gpu_groups.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(groups, expected);
}

#[test]
fn shared_gpus_by_label() {
    check_groups(json!({}), &[]);
    check_groups(json!({"runai-gpu-group": "g"}), &["g"]);
    check_groups(json!({"runai-gpu-group/g2": "g2", "runai-gpu-group/g1": "g1"}), &["g1", "g2"]);
    check_groups(
        json!({"runai-gpu-group": "g1", "runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}),
        &["g1", "g2"],
    );
}

/// A pod that holds a GPU of node a as group g, and others. Out: the GPUs that it holds, and its state.
#[track_caller]
fn check_reservation(phase: &str, metadata: Value, others: &[Value], gpus: i64, state: PodState) {
    let mut meta =
        json!({"name": "r", "namespace": "kai-resource-reservation", "labels": {"runai-gpu-group": "g"}});
    meta.as_object_mut().expect("an object").extend(metadata.as_object().cloned().unwrap_or_default());
    let spec = json!({"nodeName": "a", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    let reservation = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}});
    let mut objects = vec![node("a"), node("b"), reservation];
    objects.extend(others.iter().cloned());
    let (cluster, _) = translate(&objects);
    let pod = cluster.pods.iter().find(|pod| &*pod.key.name == "r").expect("the reservation is there");
    assert_eq!((pod.shape.requests.get(&Resource::Gpu), pod.state), (gpus, state));
}

#[test]
fn a_reservation_holds_its_gpu_unless_its_users_do() {
    use PodState::*;
    let none = || json!({});
    let deleted = |ago: &str| json!({"deletionTimestamp": ago});
    let (lately, long_ago) = (deleted("2025-12-31T23:59:55Z"), deleted("2025-12-31T23:50:00Z"));
    let user = |group: &str, more: Value, node: &str, phase: &str| {
        let mut metadata =
            json!({"labels": {"runai-gpu-group": group}, "annotations": {"gpu-fraction": "0.5"}});
        metadata.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let spec = if node.is_empty() { json!({}) } else { json!({"nodeName": node}) };
        pod("u", metadata, spec, json!({"phase": phase}))
    };
    // Nobody is there: it is about to be deleted, and takes its GPU until it is gone.
    check_reservation("Running", none(), &[], 1000, Releasing);
    check_reservation("Pending", none(), &[], 1000, Releasing);
    check_reservation("Running", lately.clone(), &[], 1000, Releasing);
    check_reservation("Running", long_ago, &[], 1000, Stuck);
    check_reservation("Succeeded", none(), &[], 0, Succeeded);
    check_reservation(
        "Running",
        json!({"labels": {}}),
        &[user("g", none(), "a", "Running")],
        1000,
        Releasing,
    );
    // Somebody is: the share counts.
    check_reservation("Running", none(), &[user("g", none(), "a", "Running")], 0, Running);
    check_reservation("Running", none(), &[user("g", none(), "a", "Pending")], 0, Running);
    check_reservation("Running", lately.clone(), &[user("g", none(), "a", "Running")], 0, Releasing);
    check_reservation("Running", none(), &[user("g", lately, "a", "Running")], 0, Running);
    // Somebody is elsewhere, of another GPU, over, or without a node.
    check_reservation("Running", none(), &[user("g", none(), "b", "Running")], 1000, Releasing);
    check_reservation("Running", none(), &[user("h", none(), "a", "Running")], 1000, Releasing);
    check_reservation("Running", none(), &[user("g", none(), "a", "Succeeded")], 1000, Releasing);
    check_reservation("Running", none(), &[user("g", none(), "", "Pending")], 1000, Releasing);
    // Somebody is on the way: a request speaks for it, whatever the pod still says of an earlier attempt.
    let request = |group: &str| bind_request("u", json!({"selectedGPUGroups": [group]}), json!({}));
    check_reservation("Running", none(), &[user("", none(), "", "Pending"), request("g")], 0, Running);
    check_reservation("Running", none(), &[user("old", none(), "", "Pending"), request("g")], 0, Running);
    check_reservation(
        "Running",
        none(),
        &[user("g", none(), "", "Pending"), request("new")],
        1000,
        Releasing,
    );
}

fn pod_group(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name, "namespace": "n"}, "spec": spec})
}

fn in_group(group: &str, subgroup: Option<&str>) -> Value {
    let labels: serde_json::Map<_, _> =
        subgroup.iter().map(|s| ("kai.scheduler/subgroup-name".into(), json!(s))).collect();
    json!({"annotations": {"pod-group-name": group}, "labels": labels})
}

#[test]
fn pods_find_their_gangs() {
    let (cluster, found) = translate(&[
        pod_group("g", json!({"queue": "q", "minMember": 2})),
        pod("a", in_group("g", None), json!({}), json!({})),
        pod("b", in_group("later", None), json!({}), json!({})),
        pod(
            "c",
            json!({"labels": {"kai.scheduler/queue": "mine"}}),
            json!({"priorityClassName": "x"}),
            json!({}),
        ),
        pod("d", json!({}), json!({"schedulerName": "default-scheduler"}), json!({})),
        pod("g", json!({"labels": {"project": "blue"}}), json!({}), json!({})),
        pod("f", json!({}), json!({}), json!({})),
        pod("later", json!({}), json!({}), json!({})),
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"}, "value": 125}),
    ]);
    let gang_of = |name: &str| pod_of(&cluster, name).gang.as_ref().map(|key| key.name.to_string());
    assert_eq!(gang_of("a").as_deref(), Some("g"));
    assert_eq!(gang_of("b").as_deref(), Some("later"));
    assert_eq!(gang_of("c").as_deref(), Some("c"));
    assert_eq!(gang_of("d"), None);
    assert_eq!(gang_of("g").as_deref(), Some("pod/g"));
    assert_eq!(gang_of("later").as_deref(), Some("pod/later"));
    let gangs: Vec<String> =
        cluster.gangs.iter().map(|g| format!("{} {} {}", g.key.name, g.queue, g.priority)).collect();
    assert_eq!(
        gangs,
        ["c mine 125", "f default-queue 50", "g q 50", "pod/g blue 50", "pod/later default-queue 50"]
    );
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "Pod n/b: metadata.annotations[pod-group-name]: PodGroup later is not there; the pod waits until it is"
        ]
    );
}

/// A group with a minimum of 4, and pods in these phases; those that are Pending have no node. Out: the minimum.
#[track_caller]
fn check_minimum(members: Value, phases: &[&str], expected: u32) {
    let mut group = pod_group("g", json!({"queue": "q", "minMember": 4}));
    group["metadata"]["annotations"] = json!({"muster.dev/members": members});
    let mut objects = vec![group];
    for (i, phase) in phases.iter().enumerate() {
        let spec = if *phase == "Pending" { json!({}) } else { json!({"nodeName": "a"}) };
        objects.push(pod(&format!("p{i}"), in_group("g", None), spec, json!({"phase": phase})));
    }
    for objects in [objects.clone(), objects.into_iter().rev().collect()] {
        let (cluster, _) = translate(&objects);
        assert_eq!(cluster.gangs[0].groups[0].min, muster_model::Min::Pods(expected), "{phases:?}");
    }
}

#[test]
fn those_that_are_left_are_enough() {
    let (done, run, wait) = ("Succeeded", "Running", "Pending");
    check_minimum(json!("4"), &[], 4);
    check_minimum(json!("4"), &[wait, run, run, "Failed"], 4);
    check_minimum(json!("4"), &[done, run, wait, run], 3);
    check_minimum(json!("4"), &[done, done, done, wait], 1);
    check_minimum(json!("4"), &[done, done, "Failed", wait], 2);
    // More than the minimum are left.
    check_minimum(json!("9"), &[done, done, wait], 4);
    check_minimum(json!("5"), &[done, done, wait], 3);
    // Nobody waits: nothing is to be decided.
    check_minimum(json!("4"), &[done, done, run, run], 4);
    check_minimum(json!("4"), &[done, done, done, done, done, wait], 1);
    // Nobody says how many there will be.
    check_minimum(json!(null), &[done, done, wait, run], 4);
    check_minimum(json!("some"), &[done, done, wait, run], 4);
}

#[track_caller]
fn check_subgroup(subgroups: Value, named: Option<&str>, group: Option<&str>, n_diagnostics: usize) {
    let (cluster, found) = translate(&[
        pod_group("g", json!({"subGroups": subgroups})),
        pod("a", in_group("g", named), json!({}), json!({})),
    ]);
    let pod = pod_of(&cluster, "a");
    assert_eq!(pod.group.as_deref(), group);
    assert_eq!((found.len(), pod.shape.missing.len()), (n_diagnostics, n_diagnostics), "{found:?}");
}

#[test]
fn pods_find_their_groups() {
    let two = json!([{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]);
    let one = json!([{"name": "x", "minMember": 1}]);
    check_subgroup(json!([]), None, None, 0);
    check_subgroup(json!([]), Some("x"), None, 0);
    check_subgroup(two.clone(), Some("x"), Some("x"), 0);
    check_subgroup(two.clone(), Some("z"), Some("z"), 1);
    check_subgroup(two, None, Some(""), 1);
    check_subgroup(one.clone(), None, None, 0);
    check_subgroup(one, Some("x"), Some("x"), 0);
    let inner = json!([{"name": "top"}, {"name": "x", "minMember": 1, "parent": "top"}, {"name": "y", "minMember": 1, "parent": "top"}]);
    check_subgroup(inner, Some("top"), Some("top"), 1);
}

fn shape(metadata: Value, spec: Value) -> (Arc<muster_model::Shape>, usize) {
    let (cluster, found) = translate(&[pod("p", metadata, spec, json!({}))]);
    (Arc::clone(&pod_of(&cluster, "p").shape), found.len())
}

#[test]
fn tolerations() {
    let (shape, n) = shape(
        json!({}),
        json!({"tolerations": [
            {"operator": "Exists"}, {"key": "a", "value": "b"}, {"key": "c", "operator": "Exists", "effect": "NoExecute"},
            {"key": "d", "operator": "Near"}, {"key": "e", "effect": "Often"},
        ]}),
    );
    let drawn: Vec<_> =
        shape.tolerations.iter().map(|t| (t.key.as_deref(), t.value.as_deref(), t.effect)).collect();
    assert_eq!(
        drawn,
        [(None, None, None), (Some("a"), Some("b"), None), (Some("c"), None, Some(TaintEffect::NoExecute))]
    );
    assert_eq!(n, 2);
}

#[test]
fn host_ports() {
    let (shape, n) = shape(
        json!({}),
        json!({"containers": [
        {"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}, {"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"hostPort": 70000}]},
    ], "initContainers": [{"ports": [{"hostPort": 1}]}, {"restartPolicy": "Always", "ports": [{"hostPort": 2}]}]}),
    );
    let drawn: Vec<String> =
        shape.ports.iter().map(|p| format!("{}/{}/{}", p.address, p.protocol, p.port)).collect();
    assert_eq!(drawn, ["0.0.0.0/TCP/2", "0.0.0.0/TCP/8081", "10.0.0.1/UDP/53"]);
    assert_eq!(n, 1);
    let (shape, _) = self::shape(
        json!({}),
        json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}),
    );
    assert_eq!(shape.ports[0].port, 80);
}

#[test]
fn node_rules() {
    let (shape, n) = shape(
        json!({}),
        json!({
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}},
                    {"weight": 500, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}},
                    {"weight": 5, "preference": {}},
                ],
            }},
        }),
    );
    let labels = |zone: &str| [("disk".into(), "ssd".into()), ("zone".into(), zone.into())].into();
    assert!(shape.node.allows("n", &labels("a")) && !shape.node.allows("n", &labels("b")));
    assert_eq!((shape.node.preferred.len(), n), (1, 1));
    let nowhere = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}});
    assert!(!self::shape(json!({}), nowhere).0.node.allows("n", &labels("a")));
}

#[test]
fn company() {
    let term = |more: Value| {
        let mut term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"});
        term.as_object_mut().expect("an object").extend(more.as_object().unwrap().clone());
        term
    };
    let spec = json!({
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    term(json!({})), term(json!({"namespaces": ["x"]})), term(json!({"namespaceSelector": {}})),
                    term(json!({"namespaces": ["x"], "namespaceSelector": {"matchLabels": {"team": "a"}}})),
                    term(json!({"matchLabelKeys": ["rev", "absent"], "mismatchLabelKeys": ["tenant"]})),
                ],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": term(json!({}))}],
            },
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 4, "podAffinityTerm": term(json!({}))}]},
        },
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}, "matchLabelKeys": ["rev"], "nodeTaintsPolicy": "Honor", "minDomains": 3},
            {"maxSkew": 0, "topologyKey": "host"},
        ],
    });
    let namespace = |name: &str, team: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}});
    let (cluster, found) = translate(&[
        namespace("t1", "a"),
        namespace("t2", "b"),
        pod("p", json!({"labels": {"rev": "7", "tenant": "me"}}), spec, json!({})),
    ]);
    let shape = Arc::clone(&pod_of(&cluster, "p").shape);
    let among: Vec<Option<Vec<&str>>> = shape
        .pods
        .affinity
        .iter()
        .map(|t| t.namespaces.as_ref().map(|names| names.iter().map(|n| &**n).collect()))
        .collect();
    assert_eq!(among, [Some(vec!["n"]), Some(vec!["x"]), None, Some(vec!["t1", "x"]), Some(vec!["n"])]);
    let exprs = &shape.pods.affinity[4].selector.all;
    assert!(exprs.iter().any(|e| &*e.key == "rev" && e.op == Op::In(vec!["7".into()])));
    assert!(exprs.iter().any(|e| &*e.key == "tenant" && e.op == Op::NotIn(vec!["me".into()])));
    assert_eq!(exprs.len(), 3);
    assert_eq!(shape.pods.preferred.iter().map(|(w, _)| *w).collect::<Vec<_>>(), [3, -4]);
    let [first, second] = &*shape.pods.spread else { panic!("two rules") };
    assert_eq!(
        (first.max_skew, first.required, first.min_domains, first.honour_node_rules, first.honour_taints),
        (2, false, Some(3), true, true)
    );
    assert_eq!(first.selector.all.len(), 1);
    assert_eq!((second.max_skew, second.required, second.honour_taints), (1, true, false));
    assert!(!second.selector.matches(&Default::default()));
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn what_a_pod_refers_to() {
    let spec = json!({
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "configMap": {"name": "conf"}},
            {"name": "o", "configMap": {"name": "maybe", "optional": true}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "part"}}]}},
        ],
        "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "env"}}}], "envFrom": [{"configMapRef": {"name": "runai-sh-1"}}]}],
        "resourceClaims": [{"name": "r", "resourceClaimName": "claim"}, {"name": "t", "resourceClaimTemplateName": "tpl"}],
    });
    let metadata = json!({"annotations": {"runai/shared-gpu-configmap": "runai-sh"}});
    let missing = |more: &[Value]| {
        let mut objects = vec![pod("p", metadata.clone(), spec.clone(), json!({}))];
        objects.extend(more.iter().cloned());
        let (cluster, _) = translate(&objects);
        pod_of(&cluster, "p").shape.missing.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let without_maps = [
        "PersistentVolumeClaim n/data",
        "PersistentVolumeClaim n/p-e",
        "ResourceClaim n/claim",
        "the ResourceClaim for t, made from its template",
    ];
    assert_eq!(missing(&[]), without_maps);
    let config_map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
    let mut with_maps = without_maps.map(String::from).to_vec();
    with_maps.extend(["ConfigMap n/conf".to_owned(), "ConfigMap n/part".to_owned()]);
    assert_eq!(missing(&[config_map("env")]), with_maps);
    let volume_claim = |name: &str, owner: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "n", "ownerReferences": [{"kind": "Pod", "uid": owner}]}, "spec": {"volumeName": "pv"}})
    };
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}});
    let claim = |name: &str, owner: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "n", "ownerReferences": owner},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.x.io", "count": 2}}]}}})
    };
    let status = json!({"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "p-t-abc"}]});
    let (cluster, _) = translate(&[
        pod("p", metadata.clone(), spec.clone(), status),
        volume_claim("data", "else"),
        volume_claim("p-e", "uid-p"),
        volume,
        claim("claim", json!([])),
        claim("p-t-abc", json!([{"kind": "Pod", "uid": "uid-p"}])),
    ]);
    let shape = Arc::clone(&pod_of(&cluster, "p").shape);
    assert_eq!(shape.missing, Vec::<muster_model::Name>::new());
    assert!(shape.volumes.iter().all(|v| v.need == VolumeNeed::Bound { reachable: vec![] }));
    assert_eq!(
        shape.claims.iter().map(|c| (&*c.name, &*c.claim.name)).collect::<Vec<_>>(),
        [("r", "claim"), ("t", "p-t-abc")]
    );
    assert_eq!(shape.extra_gpu_charge, 4000);
}

#[test]
fn devices_are_promised_before_the_claim_says_so() {
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"}});
    let wants = json!({"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]});
    let results = json!([{"request": "x", "driver": "d", "pool": "p", "device": "0"}]);
    let promise =
        json!({"resourceClaimAllocations": [{"name": "r", "allocation": {"devices": {"results": results}}}]});
    let (cluster, _) = translate(&[
        node("a"),
        claim.clone(),
        pod("p", json!({}), wants.clone(), json!({})),
        bind_request("p", promise.clone(), json!({})),
    ]);
    let promised = &cluster.claims[0];
    assert_eq!(promised.allocation.as_ref().map(|a| a.devices.len()), Some(1));
    assert_eq!(promised.reserved_for, ["uid-p".into()]);
    let gone = [claim, pod("p", json!({}), wants, json!({})), bind_request("p", promise, json!({}))];
    assert_eq!(translate(&gone).0.claims[0].allocation, None);
}

#[test]
fn ranks_and_priorities_within_a_gang() {
    let read = |labels: Value| {
        let (cluster, found) = translate(&[pod("p", json!({"labels": labels}), json!({}), json!({}))]);
        let pod = pod_of(&cluster, "p");
        (pod.rank, pod.task_priority, found.len())
    };
    assert_eq!(read(json!({})), (2, None, 0));
    assert_eq!(read(json!({"training.kubeflow.org/replica-type": "Launcher"})), (0, None, 0));
    assert_eq!(read(json!({"training.kubeflow.org/job-role": "master"})), (0, None, 0));
    assert_eq!(read(json!({"ray.io/node-type": "head"})), (1, None, 0));
    assert_eq!(read(json!({"kai.scheduler/task-priority": "-3"})), (2, Some(-3), 0));
    assert_eq!(read(json!({"kai.scheduler/task-priority": "top"})), (2, None, 1));
}

#[test]
fn equal_pods_share_shape_and_labels() {
    let one = |name: &str| {
        pod(
            name,
            json!({"labels": {"app": "x"}}),
            json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "tolerations": [{"operator": "Exists"}]}),
            json!({}),
        )
    };
    let (cluster, _) = translate(&[one("a"), one("b")]);
    assert!(Arc::ptr_eq(&cluster.pods[0].shape, &cluster.pods[1].shape));
    assert!(Arc::ptr_eq(&cluster.pods[0].labels, &cluster.pods[1].labels));
}

#[test]
fn nodes_are_joined_with_what_others_say() {
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.x.io", "nodeName": "a", "pool": {"name": "a"}, "devices": [{"name": "d0"}]}});
    let csi = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "a"},
        "spec": {"drivers": [{"name": "ebs", "allocatable": {"count": 25}}, {"name": "nfs"}]}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpu-topology", "namespace": "kube-system"},
        "data": {"t": "nodes: {a: {gpus: [{id: 0, nvlinks: [1]}, {id: 1}]}}"}});
    let (cluster, found) = translate(&[node("a"), node("b"), slice, csi, map]);
    assert_eq!(found, []);
    let [a, b] = &*cluster.nodes else { panic!("two nodes") };
    assert!(a.gpus.dra && !b.gpus.dra);
    assert_eq!(a.attach_limits, [("ebs".into(), 25)].into());
    assert_eq!(a.gpus.links.as_ref().unwrap().tiers, [vec![0b11]]);
    assert_eq!(b.gpus.links, None);
    assert_eq!(cluster.devices.len(), 1);
    assert!(cluster.devices[0].gpu);
}

#[test]
fn other_pools_are_left_out() {
    let labelled = |mut object: Value| {
        object["metadata"]["labels"] = json!({"kai.scheduler/node-pool": "blue"});
        object
    };
    let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": {"resources": {}}});
    let objects = [
        labelled(node("a")),
        node("b"),
        labelled(queue),
        labelled(pod_group("g", json!({}))),
        pod("p", in_group("g", None), json!({"nodeName": "a"}), json!({"phase": "Running"})),
    ];
    let (cluster, found) = translate(&objects);
    assert_eq!(
        (cluster.nodes.len(), cluster.queues.len(), cluster.gangs.len(), cluster.pods.len()),
        (1, 0, 0, 1)
    );
    assert_eq!(found, []);
    let mut settings = crate::settings();
    settings.pool.value = Some("blue".into());
    let (cluster, _) = muster_translate::cluster(&objects, &settings);
    assert_eq!(
        (cluster.nodes.len(), cluster.queues.len(), cluster.gangs.len(), cluster.pods.len()),
        (1, 1, 1, 1)
    );
}

#[test]
fn objects_without_sense_do_no_harm() {
    // Made by hand: to copy such a value, or to drop it, takes a deep stack.
    let mut too_deep = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    too_deep["spec"] = (0..100_000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let many: serde_json::Map<_, _> = (0..100_000).map(|i| (format!("k{i}"), json!("v"))).collect();
    let hostile = std::mem::ManuallyDrop::new([
        json!(null),
        json!(5),
        json!([]),
        json!({"apiVersion": "v1", "kind": "Pod"}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": 3}),
        too_deep,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "labels": many}, "spec": {"nodeSelector": many}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ü\u{202e}", "labels": [1]}, "status": "x"}),
        json!({"apiVersion": 7, "kind": "Node", "metadata": {"name": "n"}}),
        json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "List", "items": []}, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "l"}}]}),
    ]);
    let (cluster, found) = translate(&*hostile);
    assert_eq!((cluster.nodes.len(), cluster.pods.len()), (2, 2));
    assert!(found.len() >= 4 && found.len() < 100, "{}", found.len());
    assert_eq!(cluster.pods[0].shape.requests, [(Resource::Pods, 1)].into_iter().collect::<Amounts>());
}
