//! Absurd input: every object says whatever its types can say. There is an answer all the same: no panic, no hang, and whoever is well formed is
//! not held up by those who are not.

use crate::small::{NOON, amounts, asking, gang, leaf, node, one_gpu, pod, queue};
use muster_engine::Engine;
use muster_engine::audit::audit;
use muster_generate::{Rng, Sizes, apply, cluster, consequences};
use muster_model::{
    Action, Allocation, Bound, Change, Claim, ClaimUse, Cluster, Decisions, Device, DeviceAlternative,
    DeviceCount, DeviceName, DeviceReach, DeviceRequest, Expr, GPU, GpuShare, Gpus, Grace, Group, HostPort,
    Key, Level, Links, MigStrategy, Min, Name, NodeTerm, Numa, NumaPolicy, NumaScope, Op, PodState, Policy,
    Resource, Shape, Share, ShareSize, Span, SpreadRule, Taint, TaintEffect, Time, Toleration, Topology,
    TopologyRule, VolumeNeed, VolumeUse, Zone, ZoneUse,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Room for a few, someone who runs, and a gang that asks for nothing special and has its node for itself.
fn plain() -> Cluster {
    let mut reserved = node("reserved", amounts(10_000, 1 << 30, 2 * GPU, 10));
    reserved.labels.insert("for".into(), "good".into());
    let taint = Taint { key: "for".into(), value: "good".into(), effect: TaintEffect::NoSchedule };
    reserved.taints.push(taint);
    let here = Expr { key: "for".into(), op: Op::In(vec!["good".into()]) };
    let good = |name: &str| {
        let mut shape = one_gpu();
        shape.node.all.push(here.clone());
        shape.tolerations.push(Toleration { key: Some("for".into()), value: None, effect: None });
        pod(name, "good", shape)
    };
    let mut runner = pod("runner-0", "runner", one_gpu());
    runner.state = PodState::Running;
    runner.node = Some("node".into());
    Cluster {
        now: NOON,
        nodes: vec![Arc::new(reserved), Arc::new(node("node", amounts(10_000, 1 << 30, 2 * GPU, 10)))],
        queues: vec![Arc::new(queue("root", None)), Arc::new(queue("team", Some("root")))],
        gangs: vec![Arc::new(gang("good", vec![leaf(2)])), Arc::new(gang("runner", vec![leaf(1)]))],
        pods: vec![Arc::new(good("good-0")), Arc::new(good("good-1")), Arc::new(runner)],
        ..Cluster::default()
    }
}

fn policies() -> Vec<Policy> {
    let quick = Policy { gang_search_budget: Some(50), action_search_budget: Some(200), ..Policy::default() };
    vec![
        Policy { numa: true, usage_weight: 1000, ..quick.clone() },
        Policy { quotas: false, gpu_strategy: None, cpu_strategy: None, gpu_order: None, ..quick },
    ]
}

/// Whatever the engine and the auditor have to say. Two cycles, the first one's outcome applied in between.
fn answers(cluster: &Cluster, policy: &Policy) -> Decisions {
    let (mut engine, _) = Engine::build(cluster.clone(), policy.clone());
    let decisions = engine.cycle(cluster.now);
    audit(cluster, policy, &decisions);
    for gang in &cluster.gangs {
        engine.explain(&gang.key, cluster.now);
    }
    let mut after = cluster.clone();
    let changes = consequences(cluster, &decisions);
    apply(&mut after, changes.clone());
    engine.apply(changes);
    engine.cycle(after.now + Span::seconds(60));
    for gang in &cluster.gangs {
        engine.explain(&gang.key, after.now);
    }
    // Everything goes again.
    engine.apply(cluster.pods.iter().map(|pod| Change::DropPod(pod.key.clone())));
    engine.apply(cluster.nodes.iter().map(|node| Change::DropNode(node.name.clone())));
    engine.apply(cluster.claims.iter().map(|claim| Change::DropClaim(claim.key.clone())));
    engine.apply(cluster.devices.iter().map(|device| Change::DropDevice(device.name.clone())));
    engine.apply(cluster.queues.iter().map(|queue| Change::DropQueue(queue.name.clone())));
    engine.apply(cluster.topologies.iter().map(|topology| Change::DropTopology(topology.name.clone())));
    engine.apply(cluster.gangs.iter().map(|gang| Change::DropGang(gang.key.clone())));
    assert_eq!(engine.cycle(after.now), Decisions::default(), "nothing is left");
    decisions
}

/// Every policy gives an answer, and the good gang gets its place.
#[track_caller]
fn check(what: &str, spoil: impl Fn(&mut Cluster)) {
    for policy in policies() {
        let mut cluster = plain();
        spoil(&mut cluster);
        let decisions = answers(&cluster, &policy);
        let good = decisions.binds.iter().filter(|bind| &*bind.gang.name == "good").count();
        assert_eq!(good, 2, "{what}: {:?}", decisions.refusals);
    }
}

/// One more gang of two pods of this shape.
fn shaped(shape: Shape) -> impl Fn(&mut Cluster) {
    move |cluster| {
        cluster.gangs.push(Arc::new(gang("odd", vec![leaf(2)])));
        for i in 0..2 {
            cluster.pods.push(Arc::new(pod(&format!("odd-{i}"), "odd", shape.clone())));
        }
        // And one that is already there.
        cluster.gangs.push(Arc::new(gang("odd-runner", vec![leaf(1)])));
        let mut runner = pod("odd-runner-0", "odd-runner", shape.clone());
        runner.state = PodState::Running;
        runner.node = Some("node".into());
        cluster.pods.push(Arc::new(runner));
    }
}

const EXTREMES: [i64; 9] =
    [i64::MIN, i64::MIN + 1, -1_000_000_007, -1, 0, 1, 1_000_000_000, i64::MAX - 1, i64::MAX];

#[test]
fn absurd_requests() {
    for n in EXTREMES {
        for resource in
            [Resource::Cpu, Resource::Memory, Resource::Gpu, Resource::Pods, Resource::Other("x.io/x".into())]
        {
            check(&format!("{resource}={n}"), shaped(asking([(resource, n)].into_iter().collect())));
        }
        check(&format!("all={n}"), shaped(asking(amounts(n, n, n, n))));
        check(&format!("charge={n}"), shaped(Shape { extra_gpu_charge: n, ..one_gpu() }));
        check(
            &format!("containers={n}"),
            shaped(Shape { containers: vec![amounts(n, n, n, 0); 3], pinned: true, ..one_gpu() }),
        );
    }
}

#[test]
fn absurd_capacities() {
    for n in EXTREMES {
        for memory in [None, Some(n)] {
            for mig in [MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed] {
                check(&format!("capacity={n} memory={memory:?} {mig:?}"), |cluster| {
                    shaped(one_gpu())(cluster);
                    for i in 0..20 {
                        let mut amounts = amounts(n, n, n, n);
                        amounts.set(Resource::Other("nvidia.com/mig-1g.5gb".into()), n);
                        amounts.set(Resource::Other("nvidia.com/mig-99999999999999999999g.5gb".into()), n);
                        let mut node = node(&format!("odd-{i}"), amounts.clone());
                        node.gpus = Gpus { memory, mig, ..Gpus::default() };
                        node.numa = Some(Numa {
                            policy: NumaPolicy::SingleNode,
                            scope: NumaScope::Container,
                            zones: vec![
                                Zone {
                                    name: "z".into(),
                                    allocatable: amounts.clone(),
                                    available: amounts
                                };
                                3
                            ],
                        });
                        node.attach_limits.insert("csi".into(), 0);
                        cluster.nodes.push(Arc::new(node));
                    }
                });
            }
        }
    }
}

#[test]
fn absurd_shares() {
    for n in EXTREMES {
        for size in [ShareSize::Portion(n), ShareSize::Memory(n)] {
            for devices in [0, 1, 2, u32::MAX] {
                for gpus in [0, GPU] {
                    let shape = Shape {
                        gpu_share: Some(GpuShare { size, devices }),
                        ..asking(amounts(1, 1, gpus, 1))
                    };
                    check(&format!("{size:?} of {devices}, {gpus}"), |cluster| {
                        shaped(shape.clone())(cluster);
                        // One who already holds absurdly many of them, and nodes that have none, or an unknown size.
                        let mut holder = pod("holder", "odd-runner", shape.clone());
                        holder.state = PodState::Running;
                        holder.node = Some("node".into());
                        holder.gpu_groups = (0..100).map(|i| format!("g{}", i % 50).into()).collect();
                        holder.gpus = vec![0, 0, 63, 64, u32::MAX];
                        cluster.pods.push(Arc::new(holder));
                        let mut none = node("none", amounts(1000, 1 << 30, 0, 10));
                        none.gpus.memory = Some(0);
                        cluster.nodes.push(Arc::new(none));
                        let mut unknown = node("unknown", amounts(1000, 1 << 30, 8 * GPU, 10));
                        unknown.gpus.memory = None;
                        cluster.nodes.push(Arc::new(unknown));
                    });
                }
            }
        }
    }
}

#[test]
fn circles_and_chains_of_queues() {
    let put = |cluster: &mut Cluster, name: &str, parent: &str| {
        cluster.queues.push(Arc::new(queue(name, Some(parent))));
    };
    let work_in = |cluster: &mut Cluster, name: &str| {
        shaped(one_gpu())(cluster);
        for gang in &mut cluster.gangs[2..] {
            Arc::make_mut(gang).queue = name.into();
        }
    };
    check("own parent", |cluster| {
        put(cluster, "odd", "odd");
        work_in(cluster, "odd");
    });
    for n in [2, 3, 1000] {
        check("ring", |cluster| {
            for i in 0..n {
                put(cluster, &format!("odd-{i}"), &format!("odd-{}", (i + 1) % n));
            }
            work_in(cluster, "odd-1");
        });
        check("tail into a ring", |cluster| {
            for i in 0..n {
                put(cluster, &format!("odd-{i}"), &format!("odd-{}", (i + 1) % n));
            }
            put(cluster, "tail", "odd-0");
            put(cluster, "tail-of-tail", "tail");
            work_in(cluster, "tail-of-tail");
        });
    }
    check("missing, empty and odd names", |cluster| {
        put(cluster, "odd", "nobody");
        put(cluster, "", "");
        put(cluster, "\0\u{202e}", "odd");
        work_in(cluster, "\0\u{202e}");
    });
    check("a parent with work", |cluster| work_in(cluster, "root"));
}

#[test]
fn a_long_chain_of_queues() {
    check("chain", |cluster| {
        shaped(one_gpu())(cluster);
        for i in 0..100_000 {
            let parent = if i == 0 { "root".into() } else { format!("odd-{}", i - 1) };
            cluster.queues.push(Arc::new(queue(&format!("odd-{i}"), Some(&parent))));
        }
        for gang in &mut cluster.gangs[2..] {
            Arc::make_mut(gang).queue = "odd-99999".into();
        }
    });
}

#[test]
fn absurd_bounds_of_queues() {
    for n in EXTREMES {
        for bound in [Bound::At(n), Bound::Unlimited] {
            let share = Share {
                guarantee: n,
                quota: bound,
                limit: bound,
                weight: n,
                borrowing: bound,
                lending: bound,
            };
            for (priority, span) in [(i32::MIN, Span(i64::MIN)), (i32::MAX, Span(i64::MAX))] {
                check(&format!("{bound:?} weight {n} priority {priority}"), |cluster| {
                    shaped(one_gpu())(cluster);
                    for i in 0..5 {
                        let mut odd = queue(&format!("odd-{i}"), Some(if i < 2 { "root" } else { "odd-1" }));
                        for resource in [Resource::Cpu, Resource::Memory, Resource::Gpu] {
                            odd.shares.insert(resource.clone(), share);
                            odd.usage.insert(resource, n);
                        }
                        odd.priority = priority;
                        odd.created = Time(n);
                        odd.preempt_min_runtime = Some(span);
                        odd.reclaim_min_runtime = Some(span);
                        cluster.queues.push(Arc::new(odd));
                    }
                    for (i, gang) in cluster.gangs[2..].iter_mut().enumerate() {
                        Arc::make_mut(gang).queue = format!("odd-{}", 3 + i).into();
                    }
                });
            }
        }
    }
}

fn group(name: &str, parent: Option<u32>, min: Min) -> Group {
    Group { name: name.into(), parent, min, topology: None }
}

#[test]
fn groups_that_are_no_tree() {
    let all = Min::Children(None);
    let few = Min::Pods(1);
    let trees: Vec<(&str, Vec<Group>)> = vec![
        ("none", vec![]),
        ("own parent", vec![group("a", Some(0), few)]),
        ("own parent, inner", vec![group("a", Some(0), all)]),
        (
            "out of range",
            vec![group("a", None, all), group("b", Some(u32::MAX), few), group("c", Some(0), few)],
        ),
        ("forward", vec![group("a", None, all), group("b", Some(2), few), group("c", Some(1), few)]),
        (
            "forward, under the root",
            vec![group("a", None, all), group("b", Some(2), few), group("c", Some(0), all)],
        ),
        ("two roots", vec![group("a", None, all), group("b", None, few), group("c", Some(0), few)]),
        (
            "a leaf with children",
            vec![group("a", None, few), group("b", Some(0), few), group("c", Some(1), few)],
        ),
        ("an inner group without", vec![group("a", None, all), group("b", Some(0), all)]),
        ("one name", vec![group("a", None, all), group("a", Some(0), few), group("a", Some(0), few)]),
        ("no such number", vec![group("a", None, Min::Children(Some(u32::MAX))), group("b", Some(0), few)]),
        ("no children needed", vec![group("a", None, Min::Children(Some(0))), group("b", Some(0), few)]),
        ("all the pods there are", vec![group("a", None, Min::Pods(u32::MAX))]),
        (
            "all the pods there are, twice",
            vec![
                group("x", None, all),
                group("a", Some(0), Min::Pods(u32::MAX)),
                group("b", Some(0), Min::Pods(u32::MAX)),
            ],
        ),
        ("no pods", vec![group("a", None, Min::Pods(0))]),
    ];
    for (what, groups) in trees {
        for named in [None, Some("a"), Some("b"), Some("c"), Some("nobody")] {
            check(what, |cluster| {
                shaped(one_gpu())(cluster);
                for gang in &mut cluster.gangs[2..] {
                    Arc::make_mut(gang).groups = groups.clone();
                }
                for pod in &mut cluster.pods[3..] {
                    Arc::make_mut(pod).group = named.map(Into::into);
                }
            });
        }
    }
}

#[test]
fn deep_and_wide_trees_of_groups() {
    for n in [1_000, 100_000] {
        for wide in [false, true] {
            check(&format!("{n} groups, wide {wide}"), |cluster| {
                shaped(one_gpu())(cluster);
                let groups = (0..n).map(|i: u32| {
                    let parent = if wide { 0 } else { i.saturating_sub(1) };
                    let leaf = if wide { i > 0 } else { i + 1 == n };
                    let min = if leaf { Min::Pods(u32::from(i + 1 == n)) } else { Min::Children(None) };
                    group(&format!("g{i}"), (i > 0).then_some(parent), min)
                });
                let groups: Vec<Group> = groups.collect();
                for gang in &mut cluster.gangs[2..] {
                    Arc::make_mut(gang).groups.clone_from(&groups);
                }
                for pod in &mut cluster.pods[3..] {
                    Arc::make_mut(pod).group = Some(format!("g{}", n - 1).into());
                }
            });
        }
    }
}

#[test]
fn absurd_times_and_priorities() {
    for t in [i64::MIN, -1, 0, i64::MAX] {
        for now in [i64::MIN, 0, i64::MAX] {
            for priority in [i32::MIN, i32::MAX] {
                check(&format!("times {t}, now {now}"), |cluster| {
                    cluster.now = Time(now);
                    shaped(one_gpu())(cluster);
                    for gang in &mut cluster.gangs[2..] {
                        let gang = Arc::make_mut(gang);
                        gang.created = Time(t);
                        gang.last_start = Some(Time(t));
                        gang.last_eviction = Some(Time(t));
                        gang.stale_since = Some(Time(t));
                        gang.declared_end = Some(Time(t));
                        gang.preemption_delay = Span(t);
                        gang.staleness_grace = Some(Grace::For(Span(t)));
                        gang.priority = priority;
                    }
                    for pod in &mut cluster.pods[3..] {
                        let pod = Arc::make_mut(pod);
                        pod.created = Time(t);
                        pod.task_priority = Some(t);
                        pod.rank = u8::MAX;
                    }
                });
            }
        }
    }
}

#[test]
fn what_does_not_exist() {
    let nowhere = || Shape {
        claims: vec![ClaimUse { name: "c".into(), claim: Key::new("default", "nobody") }],
        volumes: vec![VolumeUse {
            claim: Key::new("", ""),
            need: VolumeNeed::Bound { reachable: vec![NodeTerm::default()] },
            driver: Some("csi".into()),
            one_pod: true,
        }],
        missing: vec!["".into()],
        only_node: Some("nobody".into()),
        legacy_mig: true,
        ..one_gpu()
    };
    check("claims, volumes, nodes", shaped(nowhere()));
    for states in
        [PodState::Gated, PodState::Pending, PodState::Running, PodState::Stuck, PodState::Succeeded]
    {
        for at in [None, Some("nobody"), Some("node")] {
            check(&format!("{states:?} at {at:?}"), |cluster| {
                for (i, (of, group)) in
                    [("nobody", None), ("runner", Some("nobody")), ("runner", None)].iter().enumerate()
                {
                    let mut odd = pod(&format!("odd-{i}"), of, one_gpu());
                    odd.group = group.map(Into::into);
                    odd.state = states;
                    odd.node = at.map(Into::into);
                    odd.nominated = Some("nobody".into());
                    odd.gpu_groups = vec!["nobody".into()];
                    odd.gpus = vec![u32::MAX];
                    odd.zones = vec![ZoneUse { zone: u32::MAX, amounts: amounts(i64::MAX, i64::MIN, 1, 1) }];
                    cluster.pods.push(Arc::new(odd));
                }
            });
        }
    }
    check("topologies and levels", |cluster| {
        shaped(one_gpu())(cluster);
        cluster.topologies.push(Arc::new(Topology {
            name: "empty".into(),
            levels: Vec::new(),
            domains: Vec::new(),
        }));
        let twice = Level { label: "host".into(), alias: None };
        cluster.topologies.push(Arc::new(Topology {
            name: "twice".into(),
            levels: vec![twice.clone(), twice],
            domains: Vec::new(),
        }));
        for (i, (topology, required, preferred)) in [
            ("nobody", Some("host"), None),
            ("empty", Some("host"), None),
            ("empty", None, None),
            ("empty", None, Some("host")),
            ("twice", Some("host"), Some("host")),
            ("twice", Some("nobody"), Some("host")),
            ("twice", Some("host"), Some("nobody")),
        ]
        .into_iter()
        .enumerate()
        {
            let mut odd = gang(&format!("ruled-{i}"), vec![leaf(1)]);
            odd.groups[0].topology = Some(TopologyRule {
                topology: topology.into(),
                required: required.map(Into::into),
                preferred: preferred.map(Into::into),
            });
            cluster.gangs.push(Arc::new(odd));
            cluster.pods.push(Arc::new(pod(&format!("ruled-{i}"), &format!("ruled-{i}"), one_gpu())));
        }
    });
}

#[test]
fn the_same_key_twice() {
    check("everything twice", |cluster| {
        shaped(one_gpu())(cluster);
        // The second of each is different, and wins.
        let mut nodes = cluster.nodes.clone();
        for node in &mut nodes {
            Arc::make_mut(node).allocatable.add(Resource::Cpu, 1);
        }
        cluster.nodes.extend(nodes);
        cluster.queues.extend(cluster.queues.clone());
        let mut gangs = cluster.gangs[1..].to_vec();
        for gang in &mut gangs {
            Arc::make_mut(gang).groups = vec![group("other", None, Min::Pods(1))];
        }
        cluster.gangs.extend(gangs);
        let mut pods = cluster.pods[2..].to_vec();
        for pod in &mut pods {
            let pod = Arc::make_mut(pod);
            pod.gang = Some(Key::new("default", "odd"));
            pod.state = PodState::Pending;
            pod.node = None;
        }
        cluster.pods.extend(pods);
    });
}

#[test]
fn a_hundred_thousand_labels() {
    check("labels", |cluster| {
        shaped(one_gpu())(cluster);
        let many: BTreeMap<Name, Name> =
            (0..100_000).map(|i| (format!("label-{i}").into(), format!("{i}").into())).collect();
        for node in &mut cluster.nodes {
            Arc::make_mut(node).labels.extend(many.clone());
        }
        let labels = Arc::new(many);
        let selector = muster_model::LabelSelector {
            all: (0..1000).map(|i| Expr { key: format!("label-{i}").into(), op: Op::Exists }).collect(),
        };
        for pod in &mut cluster.pods[3..] {
            let pod = Arc::make_mut(pod);
            pod.labels = labels.clone();
            let shape = Arc::make_mut(&mut pod.shape);
            shape.node.all =
                (0..100_000).map(|i| Expr { key: format!("label-{i}").into(), op: Op::Above(-1) }).collect();
            shape.node.preferred = vec![(i32::MAX, NodeTerm::default()), (i32::MIN, NodeTerm::default())];
            let term = muster_model::AffinityTerm {
                namespaces: Some(Vec::new()),
                selector: selector.clone(),
                topology_key: "label-7".into(),
            };
            shape.pods.preferred = vec![(i32::MAX, term.clone()), (i32::MIN, term.clone())];
            shape.pods.affinity = vec![term];
            for max_skew in [i32::MIN, 0, i32::MAX] {
                shape.pods.spread.push(SpreadRule {
                    topology_key: "label-8".into(),
                    max_skew,
                    required: max_skew > 0,
                    selector: selector.clone(),
                    namespace: "default".into(),
                    min_domains: Some(max_skew),
                    honour_node_rules: true,
                    honour_taints: true,
                });
            }
        }
    });
}

#[test]
fn absurd_devices_and_links() {
    let name = |i: u32| DeviceName { driver: "d".into(), pool: "p".into(), device: format!("{i}").into() };
    for count in
        [DeviceCount::Exactly(0), DeviceCount::Exactly(1), DeviceCount::Exactly(u32::MAX), DeviceCount::All]
    {
        for n in [i64::MIN, 0, 1, i64::MAX] {
            check(&format!("{count:?} of counters {n}"), |cluster| {
                for i in 0..40 {
                    cluster.devices.push(Arc::new(Device {
                        name: name(i),
                        reach: [
                            DeviceReach::Everywhere,
                            DeviceReach::Node("nobody".into()),
                            DeviceReach::Nodes(vec![]),
                        ][i as usize % 3]
                            .clone(),
                        attributes: [("a".into(), format!("{}", i % 7).into())].into(),
                        counters: vec![("c".into(), n), ("c".into(), n)],
                        counter_totals: vec![("c".into(), n)],
                        gpu: true,
                        no_schedule: false,
                    }));
                }
                let alternative = DeviceAlternative {
                    name: "".into(),
                    candidates: (0..80).chain(0..80).map(name).collect(),
                    count,
                    admin: false,
                    gpu: true,
                };
                let request = DeviceRequest { name: "r".into(), alternatives: vec![alternative.clone(); 3] };
                let none = DeviceRequest { name: "none".into(), alternatives: Vec::new() };
                let given = (0..90).map(|i| ("r".into(), name(i))).collect();
                let allocation = Allocation { devices: given, nodes: vec![NodeTerm::default()] };
                for (i, (requests, allocation)) in [
                    (vec![request.clone(); 4], None),
                    (vec![request.clone(), none], None),
                    (vec![], None),
                    (vec![request], Some(allocation)),
                ]
                .into_iter()
                .enumerate()
                {
                    let key = Key::new("default", format!("claim-{i}"));
                    cluster.claims.push(Arc::new(Claim {
                        key: key.clone(),
                        requests,
                        same: vec![(vec![], "a".into()), (vec!["nobody".into()], "nothing".into())],
                        allocation,
                        reserved_for: vec!["nobody".into(); 500],
                        of_pod: None,
                        queue: None,
                        defect: None,
                    }));
                    let used = ClaimUse { name: "c".into(), claim: key };
                    let shape = Shape { claims: vec![used.clone(), used], ..one_gpu() };
                    cluster.gangs.push(Arc::new(gang(&format!("odd-{i}"), vec![leaf(1)])));
                    cluster.pods.push(Arc::new(pod(&format!("odd-{i}"), &format!("odd-{i}"), shape)));
                }
            });
        }
    }
    for gpus in [0, 1, 64, 65, u32::MAX] {
        check(&format!("links between {gpus}"), |cluster| {
            shaped(asking(amounts(1, 1, 2 * GPU, 1)))(cluster);
            let mut odd = node("odd", amounts(1000, 1 << 30, 8 * GPU, 100));
            let tiers = vec![vec![u64::MAX, u64::MAX, 0, 1], vec![], vec![0b1010, 1 << 63]];
            odd.gpus.links = Some(Links { gpus, tiers });
            cluster.nodes.push(Arc::new(odd));
        });
    }
}

#[test]
fn ports_without_end() {
    let port = |i: u16| HostPort { address: "0.0.0.0".into(), protocol: "TCP".into(), port: i };
    check("ports", shaped(Shape { ports: (0..=u16::MAX).map(port).collect(), ..one_gpu() }));
    check("one port often", shaped(Shape { ports: vec![port(1); 100_000], ..one_gpu() }));
}

/// Puts absurd values into random fields.
fn scramble(rng: &mut Rng, cluster: &mut Cluster) {
    let odd = |rng: &mut Rng| *rng.pick(&EXTREMES);
    let odd32 = |rng: &mut Rng| *rng.pick(&[i32::MIN, -1, 0, 1, i32::MAX]);
    let resource =
        |rng: &mut Rng| rng.pick(&[Resource::Cpu, Resource::Memory, Resource::Gpu, Resource::Pods]).clone();
    for node in &mut cluster.nodes {
        if !rng.percent(30) {
            continue;
        }
        let node = Arc::make_mut(node);
        match rng.below(5) {
            0 | 1 => node.allocatable.set(resource(rng), odd(rng)),
            2 => node.gpus.memory = Some(odd(rng)),
            3 => {
                for zone in node.numa.iter_mut().flat_map(|numa| &mut numa.zones) {
                    zone.allocatable.set(resource(rng), odd(rng));
                    zone.available.set(resource(rng), odd(rng));
                }
            }
            _ => node.gpus.links = Some(Links { gpus: 3, tiers: vec![vec![rng.number(), rng.number()]] }),
        }
    }
    for pod in &mut cluster.pods {
        if !rng.percent(30) {
            continue;
        }
        let pod = Arc::make_mut(pod);
        let shape = Arc::make_mut(&mut pod.shape);
        match rng.below(8) {
            0..3 => shape.requests.set(resource(rng), odd(rng)),
            3 => shape.extra_gpu_charge = odd(rng),
            4 => {
                let size =
                    if rng.percent(50) { ShareSize::Portion(odd(rng)) } else { ShareSize::Memory(odd(rng)) };
                shape.gpu_share = Some(GpuShare { size, devices: *rng.pick(&[0, 1, 3, u32::MAX]) });
            }
            5 => pod.gpus = vec![rng.below(70) as u32, u32::MAX],
            6 => {
                pod.state = *rng.pick(&[
                    PodState::Gated,
                    PodState::Pending,
                    PodState::Binding,
                    PodState::Running,
                    PodState::Releasing,
                    PodState::Stuck,
                    PodState::Succeeded,
                ]);
            }
            _ => {
                pod.zones =
                    vec![ZoneUse { zone: rng.below(3) as u32, amounts: amounts(odd(rng), odd(rng), 0, 0) }]
            }
        }
    }
    for gang in &mut cluster.gangs {
        if !rng.percent(30) {
            continue;
        }
        let gang = Arc::make_mut(gang);
        match rng.below(6) {
            0 => gang.priority = odd32(rng),
            1 => gang.created = Time(odd(rng)),
            2 => gang.stale_since = Some(Time(odd(rng))),
            3 => gang.preemption_delay = Span(odd(rng)),
            4 => {
                let at = rng.index(gang.groups.len());
                gang.groups[at].parent = Some(rng.below(4) as u32);
            }
            _ => {
                let at = rng.index(gang.groups.len());
                gang.groups[at].min = *rng.pick(&[
                    Min::Pods(0),
                    Min::Pods(u32::MAX),
                    Min::Children(None),
                    Min::Children(Some(0)),
                    Min::Children(Some(u32::MAX)),
                ]);
            }
        }
    }
    let names: Vec<Name> = cluster.queues.iter().map(|queue| queue.name.clone()).collect();
    for queue in &mut cluster.queues {
        if !rng.percent(30) {
            continue;
        }
        let queue = Arc::make_mut(queue);
        match rng.below(4) {
            0 => queue.parent = Some(rng.pick(&names).clone()),
            1 => queue.priority = odd32(rng),
            2 => {
                queue.usage.insert(resource(rng), odd(rng));
            }
            _ => {
                let share = queue.shares.entry(resource(rng)).or_default();
                share.quota = Bound::At(odd(rng));
                share.limit = Bound::At(odd(rng));
                share.weight = odd(rng);
            }
        }
    }
}

#[test]
fn scrambled_clusters() {
    for seed in 0..300 {
        let mut cluster = cluster(seed, &Sizes::small());
        scramble(&mut Rng::new(seed).fork(7), &mut cluster);
        for policy in policies() {
            let answer = std::panic::catch_unwind(|| answers(&cluster, &policy));
            assert!(answer.is_ok(), "seed {seed}, quotas {}", policy.quotas);
        }
    }
}

/// An action more than once, or none at all.
#[test]
fn odd_policies() {
    let cluster = plain();
    let often = Policy { actions: [Action::Allocate, Action::Preempt].repeat(20), ..Policy::default() };
    answers(&cluster, &often);
    answers(&cluster, &Policy { actions: Vec::new(), ..Policy::default() });
    for n in EXTREMES {
        let odd = Policy {
            usage_weight: n,
            saturation_multiplier: n,
            preempt_min_runtime: Span(n),
            reclaim_min_runtime: Span(n),
            staleness_grace: Grace::For(Span(n)),
            max_consolidation_victims: Some(u32::MAX),
            gang_search_budget: Some(0),
            action_search_budget: Some(0),
            queue_depth: [(Action::Allocate, 0), (Action::Reclaim, usize::MAX)].into(),
            seed: u64::MAX,
            ..Policy::default()
        };
        for seed in 0..5 {
            answers(&muster_generate::cluster(seed, &Sizes::small()), &odd);
        }
        answers(&cluster, &odd);
    }
}
