//! One clean and one broken decision for each rule.

use super::audit;
use muster_model::*;
use std::sync::Arc;

/// A small cluster and what was decided about it. Pods are named `<gang>-<number>`, everything is in namespace `d`.
#[derive(Clone)]
struct Case {
    cluster: Cluster,
    policy: Policy,
    decisions: Decisions,
}

/// Milliseconds at which every case plays.
const NOW: i64 = 1_000_000;

fn key(name: &str) -> Key {
    Key::new("d", name)
}

/// Queue `q` and `other` below `root`, without bounds.
fn case() -> Case {
    let cluster = Cluster { now: Time(NOW), ..Cluster::default() };
    let case = Case { cluster, policy: Policy::default(), decisions: Decisions::default() };
    case.queue("root", None, |_| ()).queue("q", Some("root"), |_| ()).queue("other", Some("root"), |_| ())
}

/// Asks for whole GPUs, a core and a GB.
fn gpus(n: i64) -> Shape {
    let requests = [
        (Resource::Cpu, 1000),
        (Resource::Memory, 1_000_000_000),
        (Resource::Pods, 1),
        (Resource::Gpu, n * GPU),
    ];
    Shape { requests: requests.into_iter().collect(), ..Shape::default() }
}

fn share(size: ShareSize, devices: u32) -> Shape {
    Shape { gpu_share: Some(GpuShare { size, devices }), ..gpus(0) }
}

fn expr(key: &str, op: Op) -> Expr {
    Expr { key: key.into(), op }
}

fn is(key: &str, value: &str) -> Expr {
    expr(key, Op::In(vec![value.into()]))
}

fn company(key: &str, value: &str, topology_key: &str) -> AffinityTerm {
    let selector = LabelSelector { all: vec![is(key, value)] };
    AffinityTerm { namespaces: Some(vec!["d".into()]), selector, topology_key: topology_key.into() }
}

impl Case {
    fn node(self, name: &str, n_gpus: i64, change: impl FnOnce(&mut Node)) -> Self {
        let amounts = [
            (Resource::Cpu, 64_000),
            (Resource::Memory, 1 << 40),
            (Resource::Pods, 110),
            (Resource::Gpu, n_gpus * GPU),
        ];
        let mut node = Node {
            name: name.into(),
            labels: [("host".into(), name.into())].into(),
            taints: Vec::new(),
            conditions: Conditions::default(),
            allocatable: amounts.into_iter().collect(),
            gpus: Gpus { memory: Some(40_000), ..Gpus::default() },
            numa: None,
            attach_limits: Default::default(),
            images: [].into(),
            load: None,
        };
        change(&mut node);
        let mut case = self;
        case.cluster.nodes.push(Arc::new(node));
        case
    }

    fn queue(mut self, name: &str, parent: Option<&str>, change: impl FnOnce(&mut Queue)) -> Self {
        let mut queue = Queue {
            name: name.into(),
            uid: name.into(),
            display: None,
            parent: parent.map(Into::into),
            priority: 100,
            created: Time(0),
            shares: Default::default(),
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
            reclaim: muster_model::Reclaim::default(),
            usage: Default::default(),
            tree: muster_model::Dialect::Kai,
            volcano: None,
        };
        change(&mut queue);
        self.cluster.queues.push(Arc::new(queue));
        self
    }

    fn gang(mut self, name: &str, min: u32, change: impl FnOnce(&mut Gang)) -> Self {
        let root = Group { name: "default".into(), parent: None, min: Min::Pods(min), topology: None };
        let mut gang = Gang {
            key: key(name),
            uid: name.into(),
            queue: "q".into(),
            priority: 50,
            preemptibility: Preemptibility::Preemptible,
            created: Time(0),
            groups: vec![root],
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: Span::ZERO,
            staleness_grace: None,
            declared_end: None,
            volcano: None,
        };
        change(&mut gang);
        self.cluster.gangs.push(Arc::new(gang));
        self
    }

    fn pod_with(
        mut self,
        name: &str,
        state: PodState,
        node: Option<&str>,
        shape: Shape,
        change: impl FnOnce(&mut Pod),
    ) -> Self {
        let gang = name.rsplit_once('-').unwrap().0;
        let mut pod = Pod {
            key: key(name),
            uid: name.into(),
            gang: Some(key(gang)),
            group: None,
            created: Time(0),
            state,
            node: node.map(Into::into),
            shape: Arc::new(shape),
            labels: Arc::new([("gang".into(), gang.into())].into()),
            rank: 0,
            task_priority: None,
            gpu_groups: Vec::new(),
            gpus: Vec::new(),
            zones: Vec::new(),
            nominated: None,
            volcano: None,
        };
        change(&mut pod);
        self.cluster.pods.push(Arc::new(pod));
        self
    }

    fn waits(self, name: &str, shape: Shape) -> Self {
        self.pod_with(name, PodState::Pending, None, shape, |_| ())
    }

    fn runs(self, name: &str, node: &str, shape: Shape) -> Self {
        self.pod_with(name, PodState::Running, Some(node), shape, |_| ())
    }

    fn place(
        self,
        name: &str,
        node: &str,
        change: impl FnOnce(&mut Placement),
    ) -> (Self, Key, Key, Placement) {
        let gang = name.rsplit_once('-').unwrap().0;
        let mut placement = Placement { node: node.into(), ..Placement::default() };
        change(&mut placement);
        (self, key(name), key(gang), placement)
    }

    fn bind_with(self, name: &str, node: &str, change: impl FnOnce(&mut Placement)) -> Self {
        let (mut case, pod, gang, placement) = self.place(name, node, change);
        case.decisions.binds.push(Bind { pod, gang, action: Action::Allocate, placement });
        case
    }

    fn bind(self, name: &str, node: &str) -> Self {
        self.bind_with(name, node, |_| ())
    }

    fn promise_with(self, name: &str, node: &str, change: impl FnOnce(&mut Placement)) -> Self {
        let (mut case, pod, gang, placement) = self.place(name, node, change);
        case.decisions.pipelined.push(Pipeline { pod, gang, action: Action::Preempt, placement });
        case
    }

    fn promise(self, name: &str, node: &str) -> Self {
        self.promise_with(name, node, |_| ())
    }

    fn evict(mut self, name: &str, action: Action, by: Option<&str>, moved: bool) -> Self {
        let gang = key(name.rsplit_once('-').unwrap().0);
        self.decisions.evictions.push(Evict {
            pod: key(name),
            gang,
            action,
            by: by.map(key),
            moved,
            forced: false,
        });
        self
    }

    fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    fn claim(mut self, name: &str, candidates: &[&str], count: u32, change: impl FnOnce(&mut Claim)) -> Self {
        let alternative = DeviceAlternative {
            name: "".into(),
            candidates: candidates.iter().map(|name| device_name(name)).collect(),
            count: DeviceCount::Exactly(count),
            admin: false,
            gpu: false,
        };
        let request = DeviceRequest { name: "r".into(), alternatives: vec![alternative] };
        let mut claim = Claim {
            key: key(name),
            requests: vec![request],
            same: Vec::new(),
            allocation: None,
            reserved_for: Vec::new(),
            of_pod: None,
            queue: None,
            defect: None,
        };
        change(&mut claim);
        self.cluster.claims.push(Arc::new(claim));
        self
    }

    fn device(mut self, name: &str, node: &str, attribute: &str) -> Self {
        self.cluster.devices.push(Arc::new(Device {
            name: device_name(name),
            reach: DeviceReach::Node(node.into()),
            attributes: [("rack".into(), attribute.into())].into(),
            counters: vec![("slots".into(), 1)],
            counter_totals: vec![("slots".into(), 3)],
            gpu: false,
            no_schedule: false,
        }));
        self
    }

    /// A topology of racks and hosts.
    fn racks(mut self) -> Self {
        let level = |label: &str| Level { label: label.into(), alias: None };
        self.cluster.topologies.push(Arc::new(Topology {
            name: "t".into(),
            levels: vec![level("rack"), level("host")],
            domains: Vec::new(),
        }));
        self
    }
}

fn device_name(name: &str) -> DeviceName {
    DeviceName { driver: "dr".into(), pool: "p".into(), device: name.into() }
}

fn rack(name: &'static str) -> impl FnOnce(&mut Node) {
    move |node| {
        node.labels.insert("rack".into(), name.into());
    }
}

#[track_caller]
fn check(case: Case, expected: &[&str]) {
    let findings = audit(&case.cluster, &case.policy, &case.decisions);
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[track_caller]
fn clean(case: Case) {
    check(case, &[]);
}

/// A node with 8 GPUs, a gang of one that waits.
fn one(shape: Shape) -> Case {
    case().node("a", 8, |_| ()).gang("g", 1, |_| ()).waits("g-0", shape)
}

#[test]
fn names() {
    clean(one(gpus(1)).bind("g-0", "a"));
    check(one(gpus(1)).bind("g-1", "a"), &["pod d/g-1 does not exist"]);
    check(one(gpus(1)).bind("g-0", "b"), &["pod d/g-0 goes to node b, which does not exist"]);
    let wrong = |change: fn(&mut Bind)| {
        let mut case = one(gpus(1)).bind("g-0", "a");
        change(&mut case.decisions.binds[0]);
        case
    };
    check(wrong(|bind| bind.gang = key("h")), &["pod d/g-0 is not of gang d/h"]);
    check(
        wrong(|bind| bind.action = Action::EvictStaleGangs),
        &["pod d/g-0 is decided by stalegangeviction, which may not do so"],
    );
    let off = wrong(|_| ()).policy(|policy| policy.actions = vec![Action::Reclaim]);
    check(off, &["pod d/g-0 is decided by allocate, which may not do so"]);
    check(one(gpus(1)).bind("g-0", "a").bind("g-0", "a"), &["pod d/g-0 is decided twice"]);
    check(one(gpus(1)).bind("g-0", "a").promise("g-0", "a"), &["pod d/g-0 is decided twice"]);
    let foreign =
        case().node("a", 8, |_| ()).pod_with("g-0", PodState::Pending, None, gpus(1), |p| p.gang = None);
    check(foreign.bind("g-0", "a"), &["pod d/g-0 is not of gang d/g"]);
    let lost = case().node("a", 8, |_| ()).waits("g-0", gpus(1)).bind("g-0", "a");
    check(lost, &["gang d/g does not exist"]);
    let mut stale = case();
    stale.decisions.newly_stale.push(key("g"));
    check(stale, &["gang d/g does not exist"]);
}

#[test]
fn states() {
    let at = |state, node| {
        case().node("a", 8, |_| ()).gang("g", 1, |_| ()).pod_with("g-0", state, node, gpus(1), |_| ())
    };
    let said = "pod d/g-0 gets a place but does not wait: ";
    check(at(PodState::Gated, None).bind("g-0", "a"), &[&format!("{said}Gated")]);
    check(at(PodState::Running, Some("a")).bind("g-0", "a"), &[&format!("{said}Running")]);
    check(at(PodState::Releasing, Some("a")).promise("g-0", "a"), &[&format!("{said}Releasing")]);
    let evicted = at(PodState::Releasing, Some("a")).evict("g-0", Action::Preempt, Some("h"), false);
    check(evicted, &["pod d/g-0 is evicted but holds no place: Releasing"]);
}

#[test]
fn amounts() {
    let two =
        |n| case().node("a", 8, |_| ()).gang("g", 1, |_| ()).runs("g-0", "a", gpus(4)).waits("g-1", gpus(n));
    clean(two(4).bind("g-1", "a"));
    check(two(5).bind("g-1", "a"), &["node a has gpu=8000 and 9000 is used after the binds"]);
    let leaving = |state| {
        case().node("a", 8, |_| ()).gang("f", 1, |_| ()).gang("g", 1, |_| ()).waits("g-0", gpus(8)).pod_with(
            "f-0",
            state,
            Some("a"),
            gpus(1),
            |_| (),
        )
    };
    clean(leaving(PodState::Releasing).promise("g-0", "a"));
    check(
        leaving(PodState::Releasing).bind("g-0", "a"),
        &["node a has gpu=8000 and 9000 is used after the binds"],
    );
    check(
        leaving(PodState::Stuck).promise("g-0", "a"),
        &["node a has gpu=8000 and 9000 is used once room is released"],
    );
    clean(leaving(PodState::Succeeded).bind("g-0", "a"));
    let slots = |n| one(gpus(1)).node("b", 8, move |node| node.allocatable.set(Resource::Pods, n));
    clean(slots(1).bind("g-0", "b"));
    check(slots(0).bind("g-0", "b"), &["pod d/g-0 asks for pods, of which node b has none"]);
    let no_gpu = case().node("a", 0, |_| ()).gang("g", 1, |_| ()).waits("g-0", gpus(1));
    check(no_gpu.bind("g-0", "a"), &["pod d/g-0 asks for gpu, of which node a has none"]);
    // Too full before, and nothing of that kind added.
    let full = case().node("a", 1, |_| ()).gang("g", 1, |_| ()).runs("g-0", "a", gpus(2));
    clean(full.waits("g-1", gpus(0)).bind("g-1", "a"));
}

#[test]
fn shared_gpus() {
    let half = || share(ShareSize::Portion(500), 1);
    let base = |n_gpus, old: i64| {
        let case = case().node("a", n_gpus, |_| ()).gang("g", 1, |_| ());
        let shape = share(ShareSize::Portion(old), 1);
        case.pod_with("g-0", PodState::Running, Some("a"), shape, |p| p.gpu_groups = vec!["x".into()])
            .waits("g-1", half())
    };
    let to = |case: Case, groups: &'static [&'static str]| {
        case.bind_with("g-1", "a", |p| {
            p.gpu_groups = groups.iter().map(|g| Name::from(*g)).collect();
            p.gpu_portion = Some(500);
        })
    };
    clean(to(base(1, 500), &["x"]));
    clean(to(base(2, 600), &["y"]));
    check(
        to(base(1, 600), &["x"]),
        &["shared gpu x of node a has 40000000/1000 MiB and 44000000 is used after the binds"],
    );
    check(to(base(1, 600), &["y"]), &["node a has gpu=1000 and 2000 is used after the binds"]);
    check(to(base(2, 500), &[]), &["pod d/g-1 wants shares of 1 gpus and gets 0"]);
    let portion = base(1, 500).bind_with("g-1", "a", |p| p.gpu_groups = vec!["x".into()]);
    check(portion, &["the gpu portion of pod d/g-1 is not said"]);

    let two = |groups: [&'static str; 2]| {
        one(share(ShareSize::Portion(500), 2)).bind_with("g-0", "a", move |p| {
            p.gpu_groups = groups.iter().map(|g| Name::from(*g)).collect();
            p.gpu_portion = Some(500);
        })
    };
    clean(two(["x", "y"]));
    check(two(["x", "x"]), &["pod d/g-0 wants shares of 2 gpus and gets 1"]);

    let memory = |portion: i64, memory: Option<i64>| {
        case()
            .node("a", 1, |node| node.gpus.memory = memory)
            .gang("g", 1, |_| ())
            .waits("g-0", share(ShareSize::Memory(10_000), 1))
            .bind_with("g-0", "a", |p| {
                p.gpu_groups = vec!["x".into()];
                p.gpu_portion = Some(portion);
            })
    };
    clean(memory(250, Some(40_000)));
    check(memory(240, Some(40_000)), &["pod d/g-0 gets 240/1000 of a gpu, which is not what it asks for"]);
    check(memory(250, None), &["pod d/g-0 may not be on node a: GpuMemoryUnknown"]);
}

#[test]
fn mig_and_dra_nodes() {
    let mig: fn() -> Shape = || {
        let mut shape = gpus(0);
        shape.requests.set(Resource::Other("nvidia.com/mig-1g.5gb".into()), 1);
        shape
    };
    let on = |strategy, shape: Shape| {
        let share = shape.gpu_share.is_some();
        case()
            .node("a", 8, |node| {
                node.gpus.mig = strategy;
                node.allocatable.set(Resource::Other("nvidia.com/mig-1g.5gb".into()), 7);
            })
            .gang("g", 1, |_| ())
            .waits("g-0", shape)
            .bind_with("g-0", "a", |p| {
                if share {
                    p.gpu_groups = vec!["x".into()];
                    p.gpu_portion = Some(500);
                }
            })
    };
    let half = || share(ShareSize::Portion(500), 1);
    let no: &[&str] = &["pod d/g-0 may not be on node a: MigMode"];
    clean(on(MigStrategy::None, half()));
    check(on(MigStrategy::None, mig()), no);
    clean(on(MigStrategy::Single, gpus(1)));
    check(on(MigStrategy::Single, mig()), no);
    check(on(MigStrategy::Single, half()), no);
    clean(on(MigStrategy::Mixed, mig()));
    clean(on(MigStrategy::Mixed, gpus(0)));
    check(on(MigStrategy::Mixed, gpus(1)), no);
    let mut dra = on(MigStrategy::None, half());
    Arc::make_mut(&mut dra.cluster.nodes[0]).gpus.dra = true;
    check(dra, &["pod d/g-0 may not be on node a: GpuShare"]);
}

#[test]
fn whole_gpus() {
    let at = |held: &'static [u32], taken: u32| {
        case()
            .node("a", 4, |node| node.gpus.links = Some(Links { gpus: 4, tiers: vec![vec![3, 12]] }))
            .gang("g", 1, |_| ())
            .pod_with("g-0", PodState::Running, Some("a"), gpus(1), |p| p.gpus = vec![taken])
            .waits("g-1", gpus(2))
            .bind_with("g-1", "a", |p| p.gpus = held.to_vec())
    };
    clean(at(&[0, 1], 2));
    check(at(&[0, 1], 1), &["gpu 1 of node a is held by d/g-0 and by d/g-1 after the binds"]);
    check(at(&[0, 4], 2), &["pod d/g-1 gets gpu 4 of node a, which has 4"]);
    check(at(&[0], 2), &["pod d/g-1 wants 2 gpus and gets 1"]);
    check(at(&[0, 0], 2), &["gpu 0 of node a is held by d/g-1 and by d/g-1 after the binds"]);
}

#[test]
fn numa_zones() {
    let cpus = |n: i64| -> Amounts { [(Resource::Cpu, n)].into_iter().collect() };
    let zone = |zone, n| ZoneUse { zone, amounts: cpus(n) };
    let at = |old: i64, held: Vec<ZoneUse>| {
        let zones = ["z0", "z1"].map(|name| Zone {
            name: name.into(),
            allocatable: cpus(2000),
            available: cpus(500),
        });
        let numa = Numa { policy: NumaPolicy::SingleNode, scope: NumaScope::Pod, zones: zones.into() };
        let pinned = Shape { pinned: true, ..gpus(0) };
        case()
            .policy(|policy| policy.numa = true)
            .node("a", 0, |node| node.numa = Some(numa))
            .gang("g", 1, |_| ())
            .pod_with("g-0", PodState::Running, Some("a"), gpus(0), |p| p.zones = vec![zone(0, old)])
            .waits("g-1", pinned)
            .bind_with("g-1", "a", |p| p.zones = held)
    };
    clean(at(1000, vec![zone(0, 1000)]));
    check(at(1500, vec![zone(0, 1000)]), &["zone 0 of node a has cpu=2000 and 2500 is used after the binds"]);
    clean(at(1500, vec![zone(0, 1000)]).policy(|policy| policy.numa = false));
    check(
        at(1000, vec![zone(0, 1000)]).policy(|policy| policy.trust_reported_zones = true),
        &["zone 0 of node a has cpu=500 and 1000 is used after the binds"],
    );
    check(at(0, vec![zone(2, 1000)]), &["pod d/g-1 gets zone 2 of node a, which does not exist"]);
    check(
        at(0, vec![zone(0, 500), zone(1, 500)]),
        &["pod d/g-1 is spread over 2 zones of node a, which allows one"],
    );
    check(at(0, vec![]), &["pod d/g-1 asks for cpu=1000 and the zones of node a give 0"]);
    check(at(0, vec![zone(0, 1500)]), &["pod d/g-1 asks for cpu=1000 and the zones of node a give 1500"]);
}

#[test]
fn node_rules() {
    let at = |change: fn(&mut Node), shape: Shape| {
        case().node("a", 8, change).gang("g", 1, |_| ()).waits("g-0", shape).bind("g-0", "a")
    };
    let no = |reason: &str| format!("pod d/g-0 may not be on node a: {reason}");
    check(at(|node| node.conditions.unschedulable = true, gpus(1)), &[&no("NotUsable")]);
    check(at(|node| node.conditions.ready = false, gpus(1)), &[&no("NotUsable")]);

    let rule = |value: &str| NodeRule { all: vec![is("host", value)], ..NodeRule::default() };
    clean(at(|_| (), Shape { node: rule("a"), ..gpus(1) }));
    check(at(|_| (), Shape { node: rule("b"), ..gpus(1) }), &[&no("NodeAffinity")]);

    let tainted: fn(&mut Node) = |node| {
        node.taints.push(Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule });
    };
    let toleration = Toleration { key: Some("k".into()), value: None, effect: None };
    clean(at(tainted, Shape { tolerations: vec![toleration], ..gpus(1) }));
    check(at(tainted, gpus(1)), &[&no("Taint { key: \"k\" }")]);
    clean(at(
        |node| {
            node.taints.push(Taint {
                key: "k".into(),
                value: "v".into(),
                effect: TaintEffect::PreferNoSchedule,
            });
        },
        gpus(1),
    ));

    let pool = |value: Option<&str>| Pool { label: Some("pool".into()), value: value.map(Into::into) };
    clean(at(|_| (), gpus(1)).policy(|policy| policy.pool = pool(None)));
    check(at(|_| (), gpus(1)).policy(|policy| policy.pool = pool(Some("x"))), &[&no("OtherPool")]);

    let missing = Shape { missing: vec!["ConfigMap d/c".into()], ..gpus(1) };
    check(at(|_| (), missing), &["pod d/g-0 gets a place though ConfigMap d/c does not exist"]);
    clean(at(|_| (), Shape { only_node: Some("a".into()), ..gpus(1) }));
    let only = Shape { only_node: Some("b".into()), ..gpus(1) };
    check(at(|_| (), only), &["pod d/g-0 is for node b and goes to node a"]);
}

#[test]
fn ports() {
    let port = |address: &str, port| Shape {
        ports: vec![HostPort { address: address.into(), protocol: "TCP".into(), port }],
        ..gpus(0)
    };
    let at = |other: Shape, evict: bool| {
        let case = case()
            .node("a", 0, |_| ())
            .gang("g", 1, |gang| gang.priority = 60)
            .gang("f", 1, |_| ())
            .waits("g-0", port("0.0.0.0", 80))
            .runs("f-0", "a", other);
        if evict {
            case.evict("f-0", Action::Preempt, Some("g"), false).promise("g-0", "a")
        } else {
            case.bind("g-0", "a")
        }
    };
    clean(at(port("10.0.0.1", 81), false));
    check(
        at(port("10.0.0.1", 80), false),
        &["pod d/g-0 may not be on node a because of pod d/f-0: HostPort"],
    );
    clean(at(port("10.0.0.1", 80), true));
}

#[test]
fn volumes() {
    let at = |need: VolumeNeed, limit: u32, one_pod: bool| {
        let uses =
            |claim: &str, need| VolumeUse { claim: key(claim), need, driver: Some("csi".into()), one_pod };
        let old = Shape { volumes: vec![uses("v", VolumeNeed::Bound { reachable: vec![] })], ..gpus(0) };
        let claim = if one_pod { "v" } else { "w" };
        let new = Shape { volumes: vec![uses(claim, need)], ..gpus(0) };
        case()
            .node("a", 0, |node| {
                node.attach_limits.insert("csi".into(), limit);
            })
            .gang("g", 1, |_| ())
            .runs("g-0", "a", old)
            .waits("g-1", new)
            .bind("g-1", "a")
    };
    let here = |value: &str| NodeTerm { labels: vec![is("host", value)], names: vec![] };
    let bound = |value: &str| VolumeNeed::Bound { reachable: vec![here(value)] };
    let waits = |provisioned: Option<&str>, free: Option<&str>| VolumeNeed::WaitsForPod {
        provisioned: provisioned.map(|value| vec![here(value)]),
        free: free.into_iter().map(|value| vec![here(value)]).collect(),
    };
    let no: &[&str] = &["pod d/g-1 may not be on node a: Volume"];
    clean(at(bound("a"), 2, false));
    check(at(bound("b"), 2, false), no);
    clean(at(waits(Some("a"), None), 2, false));
    clean(at(waits(None, Some("a")), 2, false));
    check(at(waits(None, Some("b")), 2, false), no);
    check(at(VolumeNeed::Unbound, 2, false), no);
    check(at(bound("a"), 1, false), &["pod d/g-1 may not be on node a: AttachLimit"]);
    check(at(bound("a"), 2, true), &["volume claim d/v is for one pod and used by d/g-0 and d/g-1"]);
}

/// Racks `1` (nodes a, b) and `2` (node c).
fn three_nodes() -> Case {
    case().node("a", 8, rack("1")).node("b", 8, rack("1")).node("c", 8, rack("2"))
}

#[test]
fn required_company() {
    let with = |gang: &str| {
        let rules = PodRules { affinity: vec![company("gang", gang, "rack")], ..PodRules::default() };
        Shape { pods: rules, ..gpus(0) }
    };
    let near = |node: &str| {
        three_nodes()
            .gang("f", 1, |_| ())
            .gang("g", 1, |_| ())
            .runs("f-0", "a", gpus(0))
            .waits("g-0", with("f"))
            .bind("g-0", node)
    };
    clean(near("b"));
    check(near("c"), &["pod d/g-0 may not be on node c: PodAffinity"]);
    let leaving = three_nodes()
        .gang("f", 1, |_| ())
        .gang("g", 1, |_| ())
        .pod_with("f-0", PodState::Releasing, Some("a"), gpus(0), |_| ())
        .waits("g-0", with("f"));
    clean(leaving.clone().promise("g-0", "b"));
    // A promise is made anew in the next cycle; until then the company may come or go.
    clean(leaving.promise("g-0", "c"));
    // Its own company opens one place, and only one.
    let own = |second: &str| {
        let case = three_nodes().gang("g", 2, |_| ()).waits("g-0", with("g")).waits("g-1", with("g"));
        case.bind("g-0", "a").bind("g-1", second)
    };
    clean(own("b"));
    check(own("c"), &["pod d/g-1 may not be on node c: PodAffinity"]);
    let late =
        three_nodes().gang("g", 1, |_| ()).runs("g-0", "a", gpus(0)).waits("g-1", with("g")).bind("g-1", "c");
    check(late, &["pod d/g-1 may not be on node c: PodAffinity"]);
}

#[test]
fn forbidden_company() {
    let apart = |gang: &str| {
        let rules = PodRules { anti_affinity: vec![company("gang", gang, "rack")], ..PodRules::default() };
        Shape { pods: rules, ..gpus(0) }
    };
    let beside = |old: Shape, new: Shape, node: &str| {
        three_nodes()
            .gang("f", 1, |_| ())
            .gang("g", 1, |_| ())
            .runs("f-0", "a", old)
            .waits("g-0", new)
            .bind("g-0", node)
    };
    let no: &[&str] = &["pod d/g-0 may not be on node b because of pod d/f-0: PodAntiAffinity"];
    clean(beside(gpus(0), apart("f"), "c"));
    check(beside(gpus(0), apart("f"), "b"), no);
    clean(beside(apart("g"), gpus(0), "c"));
    check(beside(apart("g"), gpus(0), "b"), no);
    // After the one it cannot bear has left.
    let gone = three_nodes()
        .gang("f", 1, |_| ())
        .gang("g", 1, |gang| gang.priority = 60)
        .runs("f-0", "a", apart("g"))
        .waits("g-0", gpus(0))
        .evict("f-0", Action::Preempt, Some("g"), false);
    clean(gone.promise("g-0", "b"));
    let both = three_nodes().gang("g", 2, |_| ()).waits("g-0", apart("g")).waits("g-1", apart("g"));
    clean(both.clone().bind("g-0", "a").bind("g-1", "c"));
    check(
        both.bind("g-0", "a").bind("g-1", "b"),
        &[
            "pod d/g-0 may not be on node a because of pod d/g-1: PodAntiAffinity",
            "pod d/g-1 may not be on node b because of pod d/g-0: PodAntiAffinity",
        ],
    );
}

#[test]
fn spreading() {
    let rule = SpreadRule {
        topology_key: "rack".into(),
        max_skew: 1,
        required: true,
        selector: LabelSelector { all: vec![is("gang", "g")] },
        namespace: "d".into(),
        min_domains: None,
        honour_node_rules: true,
        honour_taints: false,
    };
    let at = |rule: &SpreadRule, node: &str| {
        let shape = Shape { pods: PodRules { spread: vec![rule.clone()], ..PodRules::default() }, ..gpus(0) };
        three_nodes().gang("g", 1, |_| ()).runs("g-0", "a", gpus(0)).waits("g-1", shape).bind("g-1", node)
    };
    clean(at(&rule, "c"));
    check(at(&rule, "b"), &["pod d/g-1 may not be on node b: TopologySpread"]);
    clean(at(&SpreadRule { required: false, ..rule.clone() }, "b"));
    clean(at(&SpreadRule { max_skew: 2, ..rule.clone() }, "b"));
    let no_label = SpreadRule { topology_key: "zone".into(), ..rule };
    check(at(&no_label, "c"), &["pod d/g-1 may not be on node c: TopologySpread"]);
}

#[test]
fn gangs_are_bound_whole() {
    let two = |running: bool| {
        let case = case().node("a", 8, |_| ()).gang("g", 2, |_| ()).waits("g-0", gpus(1));
        if running { case.runs("g-1", "a", gpus(1)) } else { case.waits("g-1", gpus(1)) }
    };
    clean(two(false).bind("g-0", "a").bind("g-1", "a"));
    clean(two(true).bind("g-0", "a"));
    check(two(false).bind("g-0", "a"), &["gang d/g is bound with 1 of 2 in group default"]);
    check(
        two(false).bind("g-0", "a").promise("g-1", "a"),
        &["gang d/g is bound with 1 of 2 in group default"],
    );
    clean(two(false).promise("g-0", "a"));
}

fn tree(root: Option<u32>) -> impl FnOnce(&mut Gang) {
    move |gang| {
        let leaf = |name: &str, min| Group {
            name: name.into(),
            parent: Some(0),
            min: Min::Pods(min),
            topology: None,
        };
        let root = Group { name: "root".into(), parent: None, min: Min::Children(root), topology: None };
        gang.groups = vec![root, leaf("x", 1), leaf("y", 2)];
    }
}

#[test]
fn trees_are_bound_whole() {
    let at = |min_children, binds: &[(&str, &str)]| {
        let mut case = case().node("a", 8, |_| ()).gang("g", 0, tree(min_children));
        for (pod, group) in [("g-0", "x"), ("g-1", "y"), ("g-2", "y"), ("g-3", "none")] {
            case = case.pod_with(pod, PodState::Pending, None, gpus(1), |p| p.group = Some(group.into()));
        }
        for (pod, node) in binds {
            case = case.bind(pod, node);
        }
        case
    };
    clean(at(None, &[("g-0", "a"), ("g-1", "a"), ("g-2", "a")]));
    clean(at(Some(1), &[("g-0", "a")]));
    check(at(None, &[("g-0", "a")]), &["gang d/g is bound with 1 of 2 in group root"]);
    check(at(Some(1), &[("g-0", "a"), ("g-1", "a")]), &["gang d/g is bound with 1 of 2 in group y"]);
    check(at(Some(3), &[("g-0", "a")]), &["gang d/g is bound with 1 of 3 in group root"]);
    check(at(Some(1), &[("g-0", "a"), ("g-3", "a")]), &["pod d/g-3 is in no leaf group of gang d/g"]);
    let mut broken = at(Some(1), &[("g-0", "a")]);
    Arc::make_mut(&mut broken.cluster.gangs[0]).groups[1].parent = Some(2);
    check(broken, &["the groups of gang d/g do not form a tree"]);
}

#[test]
fn required_topology() {
    let near = |topology: &str, level: &str| TopologyRule {
        topology: topology.into(),
        required: Some(level.into()),
        preferred: None,
    };
    let at = |rule: TopologyRule, nodes: [&str; 2]| {
        three_nodes()
            .racks()
            .node("d", 8, |_| ())
            .gang("g", 2, move |gang| gang.groups[0].topology = Some(rule))
            .waits("g-0", gpus(1))
            .waits("g-1", gpus(1))
            .bind("g-0", nodes[0])
            .bind("g-1", nodes[1])
    };
    clean(at(near("t", "rack"), ["a", "b"]));
    check(at(near("t", "rack"), ["a", "c"]), &["group default of gang d/g is in 2 domains of rack"]);
    check(at(near("t", "host"), ["a", "b"]), &["group default of gang d/g is in 2 domains of host"]);
    check(
        at(near("t", "rack"), ["a", "d"]),
        &["group default of gang d/g is on node d, outside its topology"],
    );
    check(at(near("u", "rack"), ["a", "b"]), &["gang d/g is placed though topology u does not exist"]);
    check(at(near("t", "zone"), ["a", "b"]), &["gang d/g is placed though topology t has no level zone"]);
    let joins = |node: &str| {
        three_nodes()
            .racks()
            .gang("g", 1, |gang| gang.groups[0].topology = Some(near("t", "rack")))
            .runs("g-0", "a", gpus(1))
            .waits("g-1", gpus(1))
            .bind("g-1", node)
    };
    clean(joins("b"));
    check(joins("c"), &["group default of gang d/g is in 2 domains of rack"]);
}

fn bounds(limit: i64, quota: i64) -> Share {
    Share { limit: Bound::At(limit), quota: Bound::At(quota), ..Share::default() }
}

#[test]
fn queue_limits() {
    let at = |limit: i64, of: &str, running: i64| {
        let mut case = case();
        for queue in case.cluster.queues.iter_mut().filter(|queue| &*queue.name == of) {
            Arc::make_mut(queue).shares.insert(Resource::Gpu, bounds(limit, 0));
        }
        case.node("a", 8, |_| ())
            .gang("f", 1, |gang| gang.queue = "other".into())
            .gang("g", 1, |_| ())
            .runs("f-0", "a", gpus(running))
            .waits("g-0", gpus(2))
            .waits("g-1", gpus(0))
    };
    clean(at(2000, "q", 3).bind("g-0", "a"));
    check(at(1000, "q", 3).bind("g-0", "a"), &["queue q goes from gpu=0 to 2000, over its limit 1000"]);
    clean(at(5000, "root", 3).bind("g-0", "a"));
    check(
        at(4000, "root", 3).bind("g-0", "a"),
        &["queue root goes from gpu=3000 to 5000, over its limit 4000"],
    );
    check(
        at(4000, "root", 3).promise("g-0", "a"),
        &["queue root goes from gpu=3000 to 5000, over its limit 4000"],
    );
    // Over its limit before; a pod without GPUs does not make it worse.
    clean(at(2000, "root", 3).bind("g-1", "a"));
    clean(at(1000, "q", 3).bind("g-0", "a").policy(|policy| policy.quotas = false));
}

#[test]
fn quota_of_what_cannot_be_preempted() {
    let at = |quota: i64, fixed: bool| {
        let mut case = case();
        for queue in case.cluster.queues.iter_mut().filter(|queue| &*queue.name == "root") {
            let share = Share { quota: Bound::At(quota), ..Share::default() };
            Arc::make_mut(queue).shares.insert(Resource::Gpu, share);
        }
        case.node("a", 8, |_| ())
            .gang("g", 1, move |gang| {
                if fixed {
                    gang.preemptibility = Preemptibility::NonPreemptible;
                }
            })
            .waits("g-0", share(ShareSize::Portion(500), 2))
            .bind_with("g-0", "a", |p| {
                p.gpu_groups = vec!["x".into(), "y".into()];
                p.gpu_portion = Some(500);
            })
    };
    clean(at(1000, true));
    clean(at(900, false));
    check(
        at(900, true),
        &["work of queue root that cannot be preempted goes from gpu=0 to 1000, over its quota 900"],
    );
}

#[test]
fn queue_trees() {
    let at = |queue: &'static str| {
        case()
            .queue("orphan", Some("nobody"), |_| ())
            .queue("c1", Some("c2"), |_| ())
            .queue("c2", Some("c1"), |_| ())
            .node("a", 8, |_| ())
            .gang("g", 1, move |gang| gang.queue = queue.into())
            .waits("g-0", gpus(1))
            .bind("g-0", "a")
    };
    let no = |queue: &str| format!("gang d/g is placed though queue {queue} has no whole line of parents");
    clean(at("q"));
    check(at("absent"), &[&no("absent")]);
    check(at("orphan"), &[&no("orphan")]);
    check(at("c1"), &[&no("c1")]);
    check(at("root"), &["gang d/g is placed though queue root is not a leaf"]);
    clean(at("orphan").policy(|policy| policy.full_hierarchy = false));
    check(at("root").policy(|policy| policy.full_hierarchy = false), &[&no("root")]);
}

/// Gang `f` runs on all of node `a`, gang `g` wants it.
fn contest(victim: impl FnOnce(&mut Gang), winner: impl FnOnce(&mut Gang)) -> Case {
    case()
        .node("a", 2, |_| ())
        .node("b", 2, |_| ())
        .gang("f", 2, victim)
        .gang("g", 1, winner)
        .runs("f-0", "a", gpus(1))
        .runs("f-1", "a", gpus(1))
        .waits("g-0", gpus(2))
}

fn take(case: Case, action: Action) -> Case {
    case.evict("f-0", action, Some("g"), false).evict("f-1", action, Some("g"), false).promise("g-0", "a")
}

#[test]
fn preemption() {
    let at = |priority: i32, queue: &'static str| {
        let case = contest(
            |_| (),
            move |gang| {
                gang.priority = priority;
                gang.queue = queue.into();
            },
        );
        take(case, Action::Preempt)
    };
    clean(at(51, "q"));
    check(
        at(50, "q"),
        &[
            "pod d/f-0 of priority 50 is preempted for priority 50",
            "pod d/f-1 of priority 50 is preempted for priority 50",
        ],
    );
    check(
        at(51, "other"),
        &[
            "pod d/f-0 of queue q is preempted by queue other",
            "pod d/f-1 of queue q is preempted by queue other",
        ],
    );
    let fixed =
        contest(|gang| gang.preemptibility = Preemptibility::NonPreemptible, |gang| gang.priority = 51);
    check(
        take(fixed, Action::Preempt),
        &["pod d/f-0 of gang d/f may not be evicted", "pod d/f-1 of gang d/f may not be evicted"],
    );
    let delayed = |delay| {
        let case = contest(
            |_| (),
            move |gang| {
                gang.priority = 51;
                gang.preemption_delay = Span(delay);
            },
        );
        take(case, Action::Preempt)
    };
    clean(delayed(NOW));
    check(delayed(NOW + 1), &["gang d/g causes evictions before its delay ends at 1000001"]);
}

#[test]
fn reclaim() {
    clean(take(contest(|_| (), |gang| gang.queue = "other".into()), Action::Reclaim));
    check(
        take(contest(|_| (), |_| ()), Action::Reclaim),
        &["pod d/f-0 is reclaimed within queue q", "pod d/f-1 is reclaimed within queue q"],
    );
}

#[test]
fn beneficiaries() {
    let higher = || contest(|_| (), |gang| gang.priority = 51);
    let evict =
        |by| higher().evict("f-0", Action::Preempt, by, false).evict("f-1", Action::Preempt, by, false);
    check(
        evict(None).promise("g-0", "a"),
        &["pod d/f-0 is evicted for nobody", "pod d/f-1 is evicted for nobody"],
    );
    check(evict(Some("g")), &["pods were evicted for gang d/g, which got nothing"]);
    check(
        evict(Some("f")).promise("g-0", "b"),
        &[
            "pod d/f-0 may not be evicted for gang d/f",
            "pod d/f-1 may not be evicted for gang d/f",
            "pods were evicted for gang d/f, which got nothing",
        ],
    );
}

#[test]
fn moves() {
    let evict = |moved, winner: fn(&mut Gang)| {
        contest(|_| (), winner).evict("f-0", Action::Consolidate, Some("g"), moved).evict(
            "f-1",
            Action::Consolidate,
            Some("g"),
            moved,
        )
    };
    let whole = |case: Case| case.promise("f-0", "b").promise("f-1", "b").promise("g-0", "a");
    clean(whole(evict(true, |_| ())));
    check(
        evict(true, |_| ()).promise("f-0", "b").promise("g-0", "a"),
        &[
            "pod d/f-1 is said to be moved and has no new place",
            "gang d/f keeps 1 pods after evictions, with 1 of 2 in group default",
        ],
    );
    check(
        evict(false, |_| ()).promise("g-0", "a"),
        &[
            "pod d/f-0 is evicted by consolidation and gets no new place",
            "pod d/f-1 is evicted by consolidation and gets no new place",
        ],
    );
    check(
        take(contest(|_| (), |gang| gang.queue = "other".into()), Action::Reclaim)
            .promise("f-0", "b")
            .promise("f-1", "b"),
        &[
            "pod d/f-0 has a new place and is said to be lost",
            "pod d/f-1 has a new place and is said to be lost",
        ],
    );
    let fixed = evict(true, |gang| gang.preemptibility = Preemptibility::NonPreemptible);
    check(whole(fixed), &["gang d/g cannot be preempted and so may not move others"]);
    let none = whole(evict(true, |_| ())).policy(|policy| policy.max_consolidation_victims = Some(0));
    check(none, &["1 gangs are moved for gang d/g, over 0"]);
    // The new place is as full as any other.
    let onto = contest(|_| (), |_| ()).gang("h", 1, |_| ()).runs("h-0", "b", gpus(1));
    let onto = onto.evict("f-0", Action::Consolidate, Some("g"), true);
    let onto = whole(onto.evict("f-1", Action::Consolidate, Some("g"), true));
    check(onto, &["node b has gpu=2000 and 3000 is used once room is released"]);
}

#[test]
fn minimum_runtime() {
    let at = |start: i64, elastic: bool, action| {
        let mut case = contest(
            move |gang| {
                gang.last_start = Some(Time(start));
                gang.groups[0].min = Min::Pods(if elastic { 1 } else { 2 });
            },
            move |gang| {
                gang.priority = 51;
                if action == Action::Reclaim {
                    gang.queue = "other".into();
                }
            },
        );
        for queue in case.cluster.queues.iter_mut().filter(|queue| &*queue.name == "root") {
            Arc::make_mut(queue).preempt_min_runtime = Some(Span(100));
            Arc::make_mut(queue).reclaim_min_runtime = Some(Span(50));
        }
        Arc::make_mut(&mut case.cluster.pods[2]).shape = Arc::new(gpus(1));
        if elastic {
            case.evict("f-1", action, Some("g"), false).promise("g-0", "a")
        } else {
            take(case, action)
        }
    };
    let no =
        |until: i64| format!("gang d/f is interrupted within its minimum runtime, which ends at {until}");
    clean(at(NOW - 100, false, Action::Preempt));
    check(at(NOW - 99, false, Action::Preempt), &[&no(NOW + 1)]);
    clean(at(NOW - 99, true, Action::Preempt));
    clean(at(NOW - 50, false, Action::Reclaim));
    check(at(NOW - 49, false, Action::Reclaim), &[&no(NOW + 1)]);

    // The queue's own word is above the common ancestor's only where the rule says so.
    let ruled = |rule| {
        let mut case = at(NOW - 60, false, Action::Reclaim)
            .queue("far", None, |queue| queue.reclaim_min_runtime = Some(Span(10)))
            .queue("deep", Some("far"), |queue| queue.reclaim_min_runtime = Some(Span(1000)))
            .policy(|policy| policy.min_runtime_rule = rule);
        Arc::make_mut(&mut case.cluster.gangs[0]).queue = "deep".into();
        case
    };
    clean(ruled(MinRuntimeRule::BelowCommonAncestor));
    check(ruled(MinRuntimeRule::Queue), &[&no(NOW + 940)]);
}

/// One group of gang `f` needs a pod and runs two, the other needs two and runs these; `f` has just started.
#[test]
fn minimum_runtime_of_who_waits_for_its_minimum() {
    let at = |states: [PodState; 2], evicted: &[&str], promised: &[&str]| {
        let mut case = case().node("a", 4, |_| ()).node("b", 4, |_| ()).gang("f", 0, |gang| {
            tree(None)(gang);
            gang.last_start = Some(Time(NOW));
        });
        case.policy.preempt_min_runtime = Span(50);
        let [third, fourth] = states;
        let pods = [
            ("f-0", "x", PodState::Running),
            ("f-1", "x", PodState::Running),
            ("f-2", "y", third),
            ("f-3", "y", fourth),
            ("f-4", "x", PodState::Pending),
        ];
        for (pod, group, state) in pods {
            let node = state.holds_room().then_some("a");
            case = case.pod_with(pod, state, node, gpus(1), |p| p.group = Some(group.into()));
        }
        case = case.gang("g", 1, |gang| gang.priority = 51).waits("g-0", gpus(1)).promise("g-0", "a");
        case = promised.iter().fold(case, |case, pod| case.promise(pod, "b"));
        evicted.iter().fold(case, |case, pod| case.evict(pod, Action::Preempt, Some("g"), false))
    };
    let no = &["gang d/f is interrupted within its minimum runtime, which ends at 1000050"];
    let (all, some) = ([PodState::Running; 2], [PodState::Running, PodState::Pending]);
    // What is beyond the minimum may go, also of a gang that is only promised its minimum.
    clean(at(all, &["f-1"], &[]));
    clean(at(some, &["f-1"], &["f-3"]));
    check(at(some, &["f-1"], &[]), no);
    check(at(some, &["f-1"], &["f-4"]), no);
    check(at(some, &["f-0", "f-1"], &["f-3"]), no);
    // A promise does not stand in for who was part of the minimum.
    check(
        at(all, &["f-0", "f-1"], &["f-4"]),
        &["gang d/f keeps 2 pods after evictions, with 1 of 2 in group root", no[0]],
    );
}

#[test]
fn stale_gangs() {
    let at = |min: u32, change: fn(&mut Gang)| {
        let case = case().node("a", 8, |_| ()).gang("f", min, move |gang| {
            gang.stale_since = Some(Time(NOW - 60_000));
            change(gang);
        });
        case.runs("f-0", "a", gpus(1)).runs("f-1", "a", gpus(1))
    };
    let evict = |case: Case| {
        let case = case.evict("f-0", Action::EvictStaleGangs, None, false);
        case.evict("f-1", Action::EvictStaleGangs, None, false)
    };
    clean(evict(at(3, |_| ())));
    clean(evict(at(3, |gang| gang.preemptibility = Preemptibility::NonPreemptible)));
    check(evict(at(2, |_| ())), &["gang d/f is evicted as stale and has its minimum"]);
    check(
        evict(at(3, |gang| gang.stale_since = None)),
        &["gang d/f is evicted as stale before its grace ends at 1060000"],
    );
    clean(
        evict(at(3, |gang| gang.stale_since = None)).policy(|p| p.staleness_grace = Grace::For(Span::ZERO)),
    );
    check(
        evict(at(3, |gang| gang.staleness_grace = Some(Grace::Forever))),
        &["gang d/f is evicted as stale and has endless grace"],
    );
    let succeeded = at(3, |_| ()).pod_with("f-2", PodState::Succeeded, None, gpus(1), |_| ());
    check(evict(succeeded), &["gang d/f is evicted as stale after pods of it succeeded"]);
    check(
        at(3, |_| ()).evict("f-0", Action::EvictStaleGangs, None, false),
        &["1 pods of stale gang d/f are not evicted"],
    );
    // Who is in none of its groups is no part of it.
    let stray = |state| {
        let named = |pod: &mut Pod| pod.group = Some("other".into());
        at(3, |_| ()).pod_with("f-2", state, Some("a"), gpus(1), named)
    };
    clean(evict(stray(PodState::Running)));
    clean(evict(stray(PodState::Succeeded)));
    let by = at(3, |_| ()).gang("g", 1, |_| ()).waits("g-0", gpus(1)).bind("g-0", "a");
    let by = by.evict("f-0", Action::EvictStaleGangs, Some("g"), false);
    check(
        by.evict("f-1", Action::EvictStaleGangs, None, false),
        &["pod d/f-0 may not be evicted for gang d/g"],
    );
}

#[test]
fn victims_keep_their_minimum_or_nothing() {
    let at = |min: u32, evicted: &[&str]| {
        let mut case = contest(move |gang| gang.groups[0].min = Min::Pods(min), |gang| gang.priority = 51);
        Arc::make_mut(&mut case.cluster.pods[2]).shape = Arc::new(gpus(1));
        for pod in evicted {
            case = case.evict(pod, Action::Preempt, Some("g"), false);
        }
        case.promise("g-0", "a")
    };
    clean(at(1, &["f-0"]));
    clean(at(2, &["f-0", "f-1"]));
    check(at(2, &["f-0"]), &["gang d/f keeps 1 pods after evictions, with 1 of 2 in group default"]);
    // It was below its minimum before.
    clean(at(3, &["f-0"]));
    let subtree = |min_children, evicted: &[&str]| {
        let mut case = case().node("a", 4, |_| ()).gang("f", 0, tree(min_children));
        for (pod, group) in [("f-0", "x"), ("f-1", "y"), ("f-2", "y")] {
            case =
                case.pod_with(pod, PodState::Running, Some("a"), gpus(1), |p| p.group = Some(group.into()));
        }
        case = case.gang("g", 1, |gang| gang.priority = 51).waits("g-0", gpus(1)).promise("g-0", "a");
        evicted.iter().fold(case, |case, pod| case.evict(pod, Action::Preempt, Some("g"), false))
    };
    clean(subtree(Some(1), &["f-1", "f-2"]));
    check(
        subtree(None, &["f-1", "f-2"]),
        &["gang d/f keeps 1 pods after evictions, with 1 of 2 in group root"],
    );
    check(subtree(Some(1), &["f-1"]), &["gang d/f keeps 1 pods after evictions, with 1 of 2 in group y"]);
}

#[test]
fn claims() {
    let asks = || Shape { claims: vec![ClaimUse { name: "c".into(), claim: key("c") }], ..gpus(0) };
    let at = |candidates: &[&str], count: u32, given: &'static [&'static str], change: fn(&mut Claim)| {
        case()
            .node("a", 0, |_| ())
            .node("b", 0, |_| ())
            .device("1", "a", "x")
            .device("2", "a", "x")
            .device("3", "a", "y")
            .device("4", "b", "x")
            .claim("c", candidates, count, change)
            .gang("g", 1, |_| ())
            .waits("g-0", asks())
            .bind_with("g-0", "a", |p| {
                p.devices = given.iter().map(|name| (key("c"), "r".into(), device_name(name))).collect();
            })
    };
    let all: &[&str] = &["1", "2", "3", "4"];
    let wrong = |got: usize| format!("the {got} devices for request r of claim d/c are not what it asks for");
    clean(at(all, 2, &["1", "2"], |_| ()));
    check(at(all, 2, &["1"], |_| ()), &[&wrong(1)]);
    check(at(&["1"], 1, &["2"], |_| ()), &[&wrong(1)]);
    check(
        at(all, 2, &["1", "1"], |_| ()),
        &[&wrong(2), "device dr/p/1 is held by claims d/c and d/c after the binds"],
    );
    check(at(all, 2, &["1", "4"], |_| ()), &["pod d/g-0 needs device dr/p/4, which node a cannot reach"]);
    check(at(all, 1, &[], |_| ()), &["pod d/g-0 gets a place and its claim d/c no devices"]);
    let every: fn(&mut Claim) = |claim| claim.requests[0].alternatives[0].count = DeviceCount::All;
    clean(at(all, 0, &["1", "2", "3"], every));
    check(at(all, 0, &["1", "2"], every), &[&wrong(2)]);
    check(
        at(&["1", "2", "3", "5"], 4, &["1", "2", "3", "5"], |_| ()).device("5", "a", "x"),
        &["pool dr/p has slots=3 and 4 is used after the binds"],
    );
    let same: fn(&mut Claim) = |claim| claim.same = vec![(vec![], "rack".into())];
    clean(at(all, 2, &["1", "2"], same));
    check(at(all, 2, &["1", "3"], same), &["the devices of claim d/c differ in rack"]);
    check(
        at(all, 1, &["1"], |claim| claim.defect = Some("no class".into())),
        &["pod d/g-0 needs claim d/c, which is absent or defective"],
    );
    check(at(&["1", "9"], 1, &["9"], |_| ()), &["claim d/c gets device dr/p/9, which is absent or closed"]);
    let gpu: fn(&mut Claim) = |claim| claim.requests[0].alternatives[0].gpu = true;
    check(at(all, 1, &["1"], gpu), &["pod d/g-0 shares claim d/c, which is not of its queue"]);
    clean(at(all, 1, &["1"], |claim| {
        claim.requests[0].alternatives[0].gpu = true;
        claim.queue = Some("q".into());
    }));
    let allocated: fn(&mut Claim) = |claim| {
        let devices = vec![("r".into(), device_name("1"))];
        claim.allocation = Some(Allocation { devices, nodes: vec![] });
    };
    clean(at(all, 1, &[], allocated));
    check(at(all, 1, &["2"], allocated), &["claim d/c is allocated twice"]);
    let elsewhere: fn(&mut Claim) = |claim| {
        let devices = vec![("r".into(), device_name("1"))];
        let nodes = vec![NodeTerm { labels: vec![is("host", "b")], names: vec![] }];
        claim.allocation = Some(Allocation { devices, nodes });
    };
    check(at(all, 1, &[], elsewhere), &["pod d/g-0 needs device dr/p/1, which node a cannot reach"]);
    let crowd: fn(&mut Claim) = |claim| {
        claim.allocation = Some(Allocation { devices: vec![("r".into(), device_name("1"))], nodes: vec![] });
        claim.reserved_for = (0..256).map(|i| format!("u{i}").into()).collect();
    };
    check(at(all, 1, &[], crowd), &["claim d/c has 257 users, more than it can hold"]);
}

#[test]
fn devices_are_held_once() {
    let uses =
        |claim: &str| Shape { claims: vec![ClaimUse { name: "c".into(), claim: key(claim) }], ..gpus(0) };
    let at = |admin: bool| {
        case()
            .node("a", 0, |_| ())
            .device("1", "a", "x")
            .claim("c", &["1"], 1, |claim| {
                let devices = vec![("r".into(), device_name("1"))];
                claim.allocation = Some(Allocation { devices, nodes: vec![] });
                claim.of_pod = Some("f-0".into());
            })
            .claim("e", &["1"], 1, move |claim| claim.requests[0].alternatives[0].admin = admin)
            .gang("f", 1, |_| ())
            .gang("g", 1, |gang| gang.priority = 51)
            .runs("f-0", "a", uses("c"))
            .waits("g-0", uses("e"))
    };
    let give = |p: &mut Placement| p.devices = vec![(key("e"), "r".into(), device_name("1"))];
    check(
        at(false).bind_with("g-0", "a", give),
        &["device dr/p/1 is held by claims d/c and d/e after the binds"],
    );
    clean(at(true).bind_with("g-0", "a", give));
    clean(at(false).evict("f-0", Action::Preempt, Some("g"), false).promise_with("g-0", "a", give));
    check(
        at(false).promise_with("g-0", "a", give),
        &["device dr/p/1 is held by claims d/c and d/e once room is released"],
    );
}

/// Decisions that place what the oracle says can be placed.
fn decide(cluster: &Cluster, packing: &muster_generate::oracle::Packing) -> Decisions {
    let bind = |(pod, node): &(Key, Name)| {
        let placed = cluster.pods.iter().find(|p| p.key == *pod).unwrap();
        let placement = Placement { node: node.clone(), ..Placement::default() };
        Bind { pod: pod.clone(), gang: placed.gang.clone().unwrap(), action: Action::Allocate, placement }
    };
    Decisions { binds: packing.seats.iter().map(bind).collect(), ..Decisions::default() }
}

/// Two searches for the truth that share no code agree.
#[test]
fn what_the_oracle_places_is_clean() {
    use muster_generate::{Sizes, cluster, oracle};
    let mut n_binds = 0;
    let mut n_declined = 0;
    for seed in 0..400 {
        let cluster = cluster(seed, &Sizes::tiny());
        let shares = |gang: &&Arc<Gang>| {
            let mut of = cluster.pods.iter().filter(|pod| pod.gang.as_ref() == Some(&gang.key));
            of.any(|pod| pod.shape.gpu_share.is_some())
        };
        // The oracle declines these.
        let in_all = |gang: &&Arc<Gang>| gang.groups.iter().any(|g| matches!(g.min, Min::Whole { .. }));
        // Which GPU a share goes to is not in the oracle's answer.
        let gangs: Vec<Key> = cluster
            .gangs
            .iter()
            .filter(|gang| !shares(gang) && !in_all(gang))
            .map(|g| g.key.clone())
            .collect();
        let policy = Policy::default();
        let Ok(packing) = oracle::most_gangs(&cluster, &policy, &gangs, oracle::BUDGET) else {
            n_declined += 1;
            continue;
        };
        let decisions = decide(&cluster, &packing);
        n_binds += decisions.binds.len();
        let findings: Vec<String> =
            audit(&cluster, &policy, &decisions).iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "seed {seed}: {findings:#?}");
    }
    assert!(n_binds > 400, "{n_binds} binds");
    assert!(n_declined < 20, "{n_declined} declined");
}

#[test]
fn nothing_decided_is_nothing_wrong() {
    use muster_generate::{Sizes, cluster};
    for seed in 0..100 {
        let cluster = cluster(seed, &Sizes::small());
        assert_eq!(audit(&cluster, &Policy::default(), &Decisions::default()), [], "seed {seed}");
    }
}

/// Whatever is decided, the auditor answers, and it answers the same twice.
#[test]
fn random_decisions_are_survived() {
    use muster_generate::{Rng, Sizes, cluster};
    let actions =
        [Action::Allocate, Action::Consolidate, Action::Reclaim, Action::Preempt, Action::EvictStaleGangs];
    for seed in 0..300 {
        let cluster = cluster(seed, &Sizes::small());
        let mut rng = Rng::new(seed);
        let mut decisions = Decisions::default();
        for pod in &cluster.pods {
            let gang = pod.gang.clone().unwrap_or_else(|| key("none"));
            let action = *rng.pick(&actions);
            let placement = Placement {
                node: rng.pick(&cluster.nodes).name.clone(),
                gpu_groups: vec![(*rng.pick(&["x", "y"])).into()],
                gpu_portion: rng.percent(50).then_some(500),
                gpus: vec![rng.below(10) as u32],
                zones: vec![ZoneUse { zone: rng.below(3) as u32, amounts: pod.shape.requests.clone() }],
                devices: cluster
                    .devices
                    .first()
                    .map(|d| (key("c"), "r".into(), d.name.clone()))
                    .into_iter()
                    .collect(),
            };
            if rng.percent(40) {
                let pod = pod.key.clone();
                decisions.binds.push(Bind { pod, gang: gang.clone(), action, placement: placement.clone() });
            }
            if rng.percent(30) {
                let by = rng.percent(80).then(|| rng.pick(&cluster.gangs).key.clone());
                let (pod, moved) = (pod.key.clone(), rng.percent(50));
                decisions.evictions.push(Evict { pod, gang: gang.clone(), action, by, moved, forced: false });
            }
            if rng.percent(30) {
                decisions.pipelined.push(Pipeline { pod: pod.key.clone(), gang, action, placement });
            }
        }
        let policy =
            Policy { numa: rng.percent(50), trust_reported_zones: rng.percent(50), ..Policy::default() };
        let findings = audit(&cluster, &policy, &decisions);
        assert!(!findings.is_empty(), "seed {seed}");
        assert_eq!(findings, audit(&cluster, &policy, &decisions), "seed {seed}");
    }
}
