//! Laws of Volcano's dialect, on small random clusters: gangs start whole, queues stay within what they can have, nothing depends on the order of
//! the input, and keeping nodes in order decides what scanning them decides.

use muster_engine::{Engine, audit};
use muster_model::volcano::{
    CapacityConf, Conf, Filters, Group as Facts, Hook, Hooks, Leaf, Packing, Phase, Plugin, PluginKind,
    Queue as QueueFacts, Shard, SubGroup, Task, Weights,
};
use muster_model::{
    Action, AffinityTerm, Cluster, Conditions, Decisions, Dialect, Expr, Gang, Gpus, Group, Key,
    LabelSelector, Min, Name, Node, Op, Pod, PodState, Policy, Preemptibility, Queue, Reach, Resource, Shape,
    Span, Time,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const NOW: Time = Time(1_000_000_000);

#[derive(Clone, Debug)]
pub(crate) struct Job {
    queue: usize,
    min: u32,
    pods: u32,
    cpu: i64,
    priority: i32,
    /// Where its first pods run.
    on: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) nodes: Vec<i64>,
    pub(crate) capability: Vec<i64>,
    pub(crate) jobs: Vec<Job>,
}

pub(crate) fn world() -> impl Strategy<Value = World> {
    let job =
        (0_usize..3, 0_u32..4, 1_u32..5, 1_i64..4, 0_i32..3, proptest::collection::vec(0_usize..4, 0..3))
            .prop_map(|(queue, min, pods, cpu, priority, on)| Job {
                queue,
                min: min.min(pods),
                pods,
                cpu,
                priority,
                on,
            });
    (
        proptest::collection::vec(1_i64..9, 1..5),
        proptest::collection::vec(2_i64..20, 3),
        proptest::collection::vec(job, 1..7),
    )
        .prop_map(|(nodes, capability, jobs)| World { nodes, capability, jobs })
}

pub(crate) fn name(prefix: &str, i: usize) -> Name {
    format!("{prefix}{i}").into()
}

/// A node `n<i>` that has so much, and nothing else to it.
pub(crate) fn node(i: usize, amounts: [(Resource, i64); 3]) -> Arc<Node> {
    Arc::new(Node {
        name: name("n", i),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        conditions: Conditions::default(),
        allocatable: amounts.into_iter().collect(),
        gpus: Gpus::default(),
        numa: None,
        attach_limits: BTreeMap::new(),
        images: BTreeMap::new(),
        load: None,
    })
}

pub(crate) fn cluster(world: &World) -> Cluster {
    let mut cluster = Cluster { now: NOW, ..Cluster::default() };
    for (i, cpu) in world.nodes.iter().enumerate() {
        let amounts = [(Resource::Cpu, cpu * 1000), (Resource::Memory, 64 << 30), (Resource::Pods, 110)];
        cluster.nodes.push(node(i, amounts));
    }
    for (i, cpu) in world.capability.iter().enumerate() {
        let facts = QueueFacts {
            weight: 1,
            open: true,
            reclaimable: true,
            deserved: [(Resource::Cpu, cpu * 500)].into_iter().collect(),
            capability: [(Resource::Cpu, cpu * 1000)].into_iter().collect(),
            ..QueueFacts::default()
        };
        cluster.queues.push(Arc::new(Queue {
            name: name("q", i),
            uid: name("q", i),
            display: None,
            parent: None,
            priority: 0,
            created: Time(i as i64),
            shares: BTreeMap::new(),
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
            reclaim: muster_model::Reclaim::default(),
            usage: BTreeMap::new(),
            tree: muster_model::Dialect::Volcano,
            volcano: Some(Arc::new(facts)),
        }));
    }
    let mut free: Vec<i64> = world.nodes.iter().map(|cpu| cpu * 1000).collect();
    let mut left: Vec<i64> = world.capability.iter().map(|cpu| cpu * 1000).collect();
    for (i, job) in world.jobs.iter().enumerate() {
        let key = Key::new("ns", name("j", i));
        let facts = Facts {
            phase: Phase::Inqueue,
            min_member: job.min,
            sub_groups: vec![SubGroup { id: "".into(), policy: None, index: 0 }],
            leaves: vec![Leaf { group: 0, sub: 0, role: "".into() }],
            ..Facts::default()
        };
        cluster.gangs.push(Arc::new(Gang {
            key: key.clone(),
            uid: name("j", i),
            queue: name("q", job.queue),
            priority: job.priority,
            preemptibility: Preemptibility::Preemptible,
            created: Time(i as i64),
            groups: vec![Group {
                name: "default".into(),
                parent: None,
                min: Min::Pods(job.min),
                topology: None,
            }],
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: Span::ZERO,
            staleness_grace: None,
            declared_end: None,
            volcano: Some(Arc::new(facts)),
        }));
        let shape = Arc::new(Shape {
            requests: [(Resource::Cpu, job.cpu * 1000), (Resource::Pods, 1)].into_iter().collect(),
            ..Shape::default()
        });
        for p in 0..job.pods {
            let place = job.on.get(p as usize).map(|n| n % world.nodes.len());
            // What runs fits, on its node and in its queue.
            let node = place.filter(|n| free[*n] >= job.cpu * 1000 && left[job.queue] >= job.cpu * 1000);
            if let Some(n) = node {
                free[n] -= job.cpu * 1000;
                left[job.queue] -= job.cpu * 1000;
            }
            let own = Name::from(format!("j{i}-{p}"));
            cluster.pods.push(Arc::new(Pod {
                key: Key::new("ns", own.clone()),
                uid: own,
                gang: Some(key.clone()),
                group: None,
                created: Time(100 + i64::from(p)),
                state: if node.is_some() { PodState::Running } else { PodState::Pending },
                node: node.map(|n| name("n", n)),
                shape: shape.clone(),
                labels: Arc::new(BTreeMap::new()),
                rank: 0,
                task_priority: None,
                gpu_groups: Vec::new(),
                gpus: Vec::new(),
                zones: Vec::new(),
                nominated: None,
                volcano: Some(Arc::new(Task {
                    role: "".into(),
                    priority: i64::from(job.priority),
                    pod_priority: 0,
                    index: None,
                    preemptable: true,
                    never_preempts: false,
                    revocable: false,
                    cooldown_until: None,
                    critical: false,
                    started: None,
                    devices: Vec::new(),
                    fit: None,
                    fit_weights: None,
                    images: Vec::new(),
                })),
            }));
        }
    }
    cluster
}

pub(crate) fn policy(actions: &[Action], gang_protects: bool) -> Policy {
    let hooks = [
        Hook::JobOrder,
        Hook::TaskOrder,
        Hook::QueueOrder,
        Hook::JobReady,
        Hook::JobPipelined,
        Hook::JobStarving,
        Hook::JobEnqueued,
        Hook::Overused,
        Hook::Allocatable,
        Hook::Preemptive,
        Hook::Preemptable,
        Hook::Reclaimable,
        Hook::Predicate,
        Hook::NodeOrder,
    ];
    let all: Hooks = hooks.into_iter().collect();
    let on = |kind: PluginKind| Plugin { kind, enabled: all };
    let gang = if gang_protects { all } else { all.without(Hook::Preemptable).without(Hook::Reclaimable) };
    let tiers = vec![
        vec![on(PluginKind::Priority), Plugin { kind: PluginKind::Gang, enabled: gang }],
        vec![
            on(PluginKind::Predicates(Filters::default())),
            on(PluginKind::Capacity(CapacityConf::default())),
            on(PluginKind::NodeOrder(Weights::default())),
            on(PluginKind::Binpack(Packing::default())),
        ],
    ];
    Policy {
        actions: Vec::new(),
        quotas: false,
        volcano: Some(Arc::new(Conf { actions: actions.to_vec(), tiers, ..Conf::default() })),
        ..Policy::default()
    }
}

fn decide(cluster: Cluster, policy: &Policy) -> Decisions {
    Engine::build(cluster, policy.clone()).0.cycle(NOW)
}

pub(crate) const ALL: [Action; 5] =
    [Action::Enqueue, Action::Allocate, Action::Preempt, Action::Reclaim, Action::Backfill];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A gang has its minimum, or nothing of it is bound.
    #[test]
    fn gangs_start_whole(world in world()) {
        let cluster = cluster(&world);
        let policy = policy(&ALL, true);
        let decisions = decide(cluster.clone(), &policy);
        prop_assert_eq!(audit::audit(&cluster, &policy, &decisions), vec![]);
        for gang in &cluster.gangs {
            let of = |p: &&Arc<Pod>| p.gang.as_ref() == Some(&gang.key);
            let ran = cluster.pods.iter().filter(of).filter(|p| p.state == PodState::Running).count();
            let bound = decisions.binds.iter().filter(|b| b.gang == gang.key).count();
            let min = gang.volcano.as_ref().map_or(0, |v| v.min_member) as usize;
            prop_assert!(bound == 0 || ran + bound >= min, "{}: {ran} ran, {bound} bound, {min} needed", gang.key);
        }
    }

    /// What a queue holds, promises included and evictions taken off, is never more than it can have.
    #[test]
    fn queues_stay_within_their_capability(world in world()) {
        let cluster = cluster(&world);
        let decisions = decide(cluster.clone(), &policy(&ALL, false));
        for queue in &cluster.queues {
            let Some(facts) = &queue.volcano else { continue };
            let cap = facts.capability.get(&Resource::Cpu);
            let in_queue = |pod: &Pod| {
                cluster.gangs.iter().any(|g| Some(&g.key) == pod.gang.as_ref() && g.queue == queue.name)
            };
            let cpu = |key: &Key| {
                let pod = cluster.pods.iter().find(|p| p.key == *key);
                pod.filter(|p| in_queue(p)).map_or(0, |p| p.shape.requests.get(&Resource::Cpu))
            };
            let mut held: i64 =
                cluster.pods.iter().filter(|p| p.state == PodState::Running).map(|p| cpu(&p.key)).sum();
            held += decisions.binds.iter().map(|b| cpu(&b.pod)).sum::<i64>();
            held += decisions.pipelined.iter().map(|b| cpu(&b.pod)).sum::<i64>();
            held -= decisions.evictions.iter().map(|e| cpu(&e.pod)).sum::<i64>();
            prop_assert!(held <= cap, "{}: {held} of {cap}", queue.name);
        }
    }

    /// The order in which objects are told does not matter.
    #[test]
    fn the_order_of_the_input_does_not_matter(world in world()) {
        let policy = policy(&ALL, false);
        let one = cluster(&world);
        let mut other = one.clone();
        other.nodes.reverse();
        other.pods.reverse();
        other.gangs.reverse();
        other.queues.reverse();
        prop_assert_eq!(decide(one, &policy), decide(other, &policy));
    }

    /// A soft shard of all nodes changes nothing but how the best node is found; whatever is the matter with some nodes, and whichever of them are
    /// Volcano's.
    #[test]
    fn keeping_nodes_in_order_decides_what_scanning_them_decides(
        world in world(),
        marks in proptest::collection::vec(0_usize..5, 4),
        node_affinity in any::<bool>(),
        apart in any::<bool>(),
    ) {
        let mut cluster = cluster(&world);
        for (node, mark) in cluster.nodes.iter_mut().zip(marks) {
            let node = Arc::make_mut(node);
            match mark {
                1 => node.conditions.pressure = true,
                2 => node.conditions.unschedulable = true,
                3 => node.conditions.ready = false,
                _ => {}
            }
            if mark < 4 {
                node.labels.insert("pool".into(), "red".into());
            }
        }
        for pod in cluster.pods.iter_mut().step_by(2) {
            let shape = Arc::make_mut(&mut Arc::make_mut(pod).shape);
            shape.node.all = vec![Expr { key: "pool".into(), op: Op::In(vec!["red".into()]) }];
        }
        let mut ordered = policy(&ALL, false);
        if apart {
            let reach = Reach::Nodes { label: "pool".into(), values: vec!["red".into()] };
            ordered.trees.insert(Dialect::Volcano, reach);
        }
        let mut conf = Conf::clone(ordered.volcano.as_ref().unwrap());
        for plugin in conf.tiers.iter_mut().flatten() {
            if let PluginKind::Predicates(filters) = &mut plugin.kind {
                filters.node_affinity = node_affinity;
            }
        }
        ordered.volcano = Some(Arc::new(conf.clone()));
        let nodes = (0..world.nodes.len()).map(|i| name("n", i)).collect();
        conf.shard = Some(Shard { hard: false, nodes });
        let scanned = Policy { volcano: Some(Arc::new(conf)), ..ordered.clone() };
        prop_assert_eq!(decide(cluster.clone(), &ordered), decide(cluster, &scanned));
    }

    /// With gang protection nobody falls below its minimum by preemption or reclaim. All plugins are in one tier: a later tier could take what
    /// gang spares.
    #[test]
    fn protected_gangs_keep_their_minimum(world in world()) {
        let cluster = cluster(&world);
        let mut policy = policy(&ALL, true);
        let mut conf = Conf::clone(policy.volcano.as_ref().unwrap());
        conf.tiers = vec![conf.tiers.into_iter().flatten().collect()];
        policy.volcano = Some(Arc::new(conf));
        let decisions = decide(cluster.clone(), &policy);
        for gang in &cluster.gangs {
            let of = |p: &&Arc<Pod>| p.gang.as_ref() == Some(&gang.key);
            let ran = cluster.pods.iter().filter(of).filter(|p| p.state == PodState::Running).count();
            let bound = decisions.binds.iter().filter(|b| b.gang == gang.key).count();
            let lost = decisions.evictions.iter().filter(|e| e.gang == gang.key).count();
            let min = gang.volcano.as_ref().map_or(0, |v| v.min_member) as usize;
            prop_assert!(
                lost == 0 || ran + bound - lost >= min,
                "{}: {ran} ran, {bound} bound, {lost} lost, {min} needed",
                gang.key
            );
        }
    }
}

/// A pod has a place in mind while its gang waits for another to be freed. Who needs the company of that pod is not bound beside it: nobody knows
/// whether it will come.
#[test]
fn company_that_is_only_in_mind_is_not_there() {
    let job = |cpu, pods, on: &[usize]| Job { queue: 0, min: pods, pods, cpu, priority: 0, on: on.to_vec() };
    let jobs = vec![job(3, 1, &[1]), job(3, 2, &[]), job(1, 1, &[])];
    let mut cluster = cluster(&World { nodes: vec![4, 3], capability: vec![20; 3], jobs });
    let host = Name::from("kubernetes.io/hostname");
    for node in &mut cluster.nodes {
        let name = node.name.clone();
        Arc::make_mut(node).labels.insert(host.clone(), name);
    }
    let [leaving, first, second, friend] = &mut cluster.pods[..] else { panic!("four pods") };
    Arc::make_mut(leaving).state = PodState::Releasing;
    let labels = Arc::new(BTreeMap::from([("team".into(), "a".into())]));
    Arc::make_mut(first).labels = labels.clone();
    Arc::make_mut(second).labels = labels;
    let term = AffinityTerm {
        namespaces: Some(["ns".into()].into()),
        selector: LabelSelector { all: vec![Expr { key: "team".into(), op: Op::In(vec!["a".into()]) }] },
        topology_key: host,
    };
    Arc::make_mut(&mut Arc::make_mut(friend).shape).pods.affinity = vec![term];
    let policy = policy(&[Action::Allocate], false);
    let decisions = decide(cluster.clone(), &policy);
    assert_eq!(audit::audit(&cluster, &policy, &decisions), vec![]);
    assert_eq!(decisions.binds, vec![]);
    assert_eq!(decisions.held.iter().map(|p| p.pod.name.to_string()).collect::<Vec<_>>(), ["j1-0"]);
}
