//! The users' format: what it means, and what is said about mistakes.

use muster_model::{Bound, GpuShare, Min, PodState, Preemptibility, Resource, ShareSize};
use muster_scenario::{Case, DEFAULT_NOW, Phase, cases_of, manifests, objects_of, setup};
use proptest::prelude::*;
use serde_json::{Value, json};

fn yaml(text: &str) -> Value {
    manifests(text).unwrap().remove(0)
}

fn case(text: &str) -> Case {
    cases_of(&yaml(text), "file").unwrap_or_else(|e| panic!("{e}")).remove(0)
}

/// A case around a cluster.
fn cluster(text: &str) -> muster_model::Cluster {
    let case = case(&format!("name: x\nexpect: {{totals: {{evicted: 0}}}}\ncluster: {text}\n"));
    let setup = setup(&case).unwrap();
    assert!(setup.diagnostics.is_empty(), "{:?}", setup.diagnostics);
    setup.cluster
}

#[track_caller]
fn check_problem(text: &str, says: &str) {
    let problem = cases_of(&yaml(text), "file").unwrap_err().to_string();
    assert!(problem.contains(says), "{says:?} is not in {problem:?}");
}

#[test]
fn mistakes_are_told_with_their_path() {
    let expect = "expect: {totals: {evicted: 0}}";
    check_problem("expect: {gangs: {a: bound}}", "name: say in a few words");
    check_problem("name: x", "expect: say what must come out");
    check_problem("name: x\nexpect: {gangs: {a: boundd}}", "expect.gangs.a: \"boundd\" is no phase");
    check_problem("name: x\nexpect: {gangs: {a: {bond: 1}}}", "expect.gangs.a.bond: there is no such field");
    check_problem("name: x\nexpect: {pods: {a: {phase: 1}}}", "expect.pods.a.phase: \"1\" is no phase");
    check_problem(
        "name: x\nexpect: {gangs: {a: {why: {queue: q}}}}",
        "expect.gangs.a.why[0]: say which reason",
    );
    check_problem("name: x\nexpect: {pods: {a: bound, default/a: bound}}", "named twice");
    check_problem(&format!("name: x\n{expect}\nactions: [alocate]"), "\"alocate\" is no action");
    check_problem(&format!("name: x\n{expect}\ncycles: -1"), "cycles: write a whole number from 0 to 1000");
    check_problem(&format!("name: x\n{expect}\nnow: noon"), "\"noon\" is no time");
    check_problem(&format!("name: x\n{expect}\ndialect: slurm"), "\"slurm\" is no dialect");
    check_problem(
        &format!("name: x\n{expect}\ncluster: {{nodes: [{{gpu: 8}}]}}"),
        "cluster.nodes[0].name: name the node",
    );
    check_problem(
        &format!("name: x\n{expect}\ncluster: {{gangs: [{{name: a}}]}}"),
        "cluster.gangs[0].queue: name the queue",
    );
    check_problem(
        &format!("name: x\n{expect}\ncluster: {{queues: [{{name: a}}, {{name: b}}], gangs: [{{name: g}}]}}"),
        "name the queue: a, b",
    );
    check_problem(
        &format!("name: x\n{expect}\ncluster: {{queues: [{{name: q}}], gangs: [{{name: a, gpu: 1.5}}]}}"),
        "cluster.gangs[0].gpu: write a whole number of GPUs, or a fraction",
    );
    check_problem(
        &format!("name: x\n{expect}\ncluster: {{nodes: [{{name: n, taints: spot}}]}}"),
        "\"spot\" has no effect",
    );
    check_problem(
        &format!("name: x\n{expect}\ncluster: {{queues: [{{name: q, gpu: many}}]}}"),
        "cluster.queues[0].gpu: \"many\" is no quantity",
    );
    check_problem(
        &format!("name: x\n{expect}\npolicy: {{gpuPlacment: pack}}"),
        "policy.gpuPlacment: there is no such field",
    );
    check_problem("cases: [{name: x}]", "cases[0] (\"x\"): expect");
}

#[test]
fn what_stands_beside_cases_is_shared() {
    let text = "
cluster:
  nodes: [{name: n}]
  queues: [{name: q}]
cycles: 3
cases:
  - name: first
    cluster: {gangs: [{name: g}]}
    expect: {gangs: {g: bound}}
  - name: second
    cycles: 1
    cluster: {nodes: [{name: m}]}
    expect: {nodes: {m: {pods: 0}}}
";
    let cases = cases_of(&yaml(text), "file").unwrap();
    let kinds = |case: &Case, kind: &str| case.objects.iter().filter(|o| o["kind"] == kind).count();
    let [first, second] = cases.as_slice() else { panic!("{cases:?}") };
    assert_eq!((first.id.as_str(), first.cycles), ("file/first", 3));
    assert_eq!((kinds(first, "Node"), kinds(first, "Pod")), (1, 1));
    assert_eq!((second.cycles, kinds(second, "Node"), kinds(second, "Pod")), (1, 2, 0));
    assert!(first.expect.nodes.is_empty(), "expectations are a case's own");
}

#[test]
fn defaults_are_as_documented() {
    let case = case("name: x\nexpect: {pods: {a-0: bound on n}}");
    assert_eq!((case.now, case.cycles, case.stable_cycles), (DEFAULT_NOW, 1, 0));
    assert!(!case.evicted.recreate, "one cycle is compared as it ended");
    let pod = &case.expect.pods["default/a-0"];
    assert_eq!((pod.phase, pod.node.as_deref()), (Some(Phase::Bound), Some("n")));
    let noon: jiff::Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    assert_eq!(DEFAULT_NOW.0, noon.as_millisecond());
}

#[test]
fn nodes_in_short_hand() {
    let cluster = cluster(
        "{nodes: [{name: n, count: 2, gpu: 8, gpuMemory: 40000, taints: ['spot=yes:NoSchedule'], labels: {rack: 1}}]}",
    );
    let [n0, n1] = cluster.nodes.as_slice() else { panic!() };
    assert_eq!((&*n0.name, &*n1.name), ("n-0", "n-1"));
    assert_eq!(n0.allocatable.get(&Resource::Gpu), 8000);
    assert_eq!(n0.allocatable.get(&Resource::Cpu), 64_000);
    assert_eq!(n0.gpus.memory, Some(40_000));
    assert_eq!(&*n0.taints[0].key, "spot");
    assert_eq!(n0.labels.get("rack").map(|l| &**l), Some("1"));
}

#[test]
fn queues_in_short_hand() {
    let cluster = cluster(
        "{queues: [{name: a}, {name: b, parent: a, priority: 7, gpu: 4, cpu: {limit: 2500m}, memory: {quota: unlimited, weight: 3}}]}",
    );
    let b = &cluster.queues[1];
    assert_eq!((b.parent.as_deref(), b.priority), (Some("a"), 7));
    let gpu = b.shares[&Resource::Gpu];
    assert_eq!((gpu.quota, gpu.limit, gpu.weight), (Bound::At(4000), Bound::Unlimited, 1000));
    let cpu = b.shares[&Resource::Cpu];
    assert_eq!((cpu.quota, cpu.limit), (Bound::At(0), Bound::At(2500)));
    let memory = b.shares[&Resource::Memory];
    assert_eq!((memory.quota, memory.limit, memory.weight), (Bound::Unlimited, Bound::Unlimited, 3000));
}

#[test]
fn gangs_in_short_hand() {
    let cluster = cluster(
        "{nodes: [{name: n, gpu: 4}], queues: [{name: q}], gangs: [
            {name: old, pods: 3, min: 2, gpu: 1, on: [n, n], priority: 100},
            {name: half, gpu: 0.5, gpuDevices: 2, age: 1h, preemptible: false},
            {name: tree, groups: [{name: a, pods: 2}, {name: b, pods: 1, gpuMemory: 1000}]}]}",
    );
    let gang = |name: &str| cluster.gangs.iter().find(|g| *g.key.name == *name).unwrap();
    let pod = |name: &str| cluster.pods.iter().find(|p| *p.key.name == *name).unwrap();
    let old = gang("old");
    assert_eq!((old.priority, old.preemptibility), (100, Preemptibility::NonPreemptible));
    assert_eq!(old.groups[0].min, Min::Pods(2));
    assert_eq!(old.last_start, Some(muster_model::Time(DEFAULT_NOW.0 - 60_000)));
    assert_eq!((pod("old-1").state, pod("old-2").state), (PodState::Running, PodState::Pending));
    let half = gang("half");
    assert_eq!(half.preemptibility, Preemptibility::NonPreemptible);
    assert_eq!(half.created.0, DEFAULT_NOW.0 - 3_600_000);
    assert!(old.created < gang("tree").created, "the first in the file is the oldest");
    assert_eq!(pod("half-0").shape.gpu_share, Some(GpuShare { size: ShareSize::Portion(500), devices: 2 }));
    assert_eq!(gang("tree").groups.len(), 3);
    assert_eq!(pod("tree-b-0").group.as_deref(), Some("b"));
    assert_eq!(pod("tree-b-0").shape.gpu_share, Some(GpuShare { size: ShareSize::Memory(1000), devices: 1 }));
}

#[test]
fn manifests_come_in_many_forms() {
    #[track_caller]
    fn check(text: &str, kinds: &[&str]) {
        let objects = objects_of(text).unwrap();
        let got: Vec<&str> = objects.iter().map(|o| o["kind"].as_str().unwrap()).collect();
        assert_eq!(got, kinds);
    }
    check("kind: Pod\n---\n---\nkind: Node\n", &["Pod", "Node"]);
    check("kind: List\nitems:\n- kind: Pod\n- kind: Node\n", &["Pod", "Node"]);
    check(r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {}}]}"#, &["Pod"]);
    check(r#"{"kind": "Pod"} {"kind": "Node"}"#, &["Pod", "Node"]);
    check("- kind: Pod\n- kind: Node\n", &["Pod", "Node"]);
    check("# nothing\n", &[]);
    assert!(objects_of("just text").unwrap_err().contains("a manifest is a mapping"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "name",
        "expect",
        "cases",
        "cluster",
        "nodes",
        "queues",
        "gangs",
        "groups",
        "pods",
        "phase",
        "node",
        "why",
        "gpu",
        "cpu",
        "memory",
        "count",
        "on",
        "objects",
        "kind",
        "items",
        "metadata",
        "symmetry",
        "cycles",
        "totals",
        "evicted",
        "topologies",
        "levels",
        "labels",
        "taints",
        "policy",
        "files",
        "now",
        "used",
        "limits",
        "quota",
        "shares",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..2000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9/. :=-]{0,8}".prop_map(Value::from),
        Just(json!("bound")),
        Just(json!("1e308Gi")),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(String::from), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever somebody writes is a case or a problem with a message, never a panic.
    #[test]
    fn nothing_that_is_written_panics(mut value in any_json()) {
        if let Value::Object(map) = &mut value {
            map.entry("name").or_insert(json!("x"));
            map.entry("expect").or_insert(json!({"totals": {"evicted": 0}}));
        }
        match cases_of(&value, "file") {
            Ok(cases) => for case in cases {
                let _ = setup(&case);
            },
            Err(problem) => prop_assert!(!problem.message.is_empty()),
        }
    }
}
