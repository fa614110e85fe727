use super::*;
use crate::bench;
use crate::room::Room;
use crate::{Sizes, cluster};
use muster_model::{GpuShare, Group, Labels, Share, Span, Taint, TaintEffect, Time, TopologyRule};

/// Nodes with so many GPUs, two to a rack, and one queue `team`.
fn nodes(gpus: &[i64]) -> Cluster {
    let mut cluster = bench::empty(gpus.len() as u32, 8, gpus.len().div_ceil(2) as u32);
    for (node, gpus) in cluster.nodes.iter_mut().zip(gpus) {
        Arc::make_mut(node).allocatable.set(Resource::Gpu, gpus * GPU);
    }
    bench::queues(&mut cluster, &[("team", Bound::Unlimited)]);
    cluster
}

fn whole(gpus: i64) -> Shape {
    let requests = [(Resource::Cpu, 1000), (Resource::Pods, 1), (Resource::Gpu, gpus * GPU)];
    Shape { requests: requests.into_iter().collect(), ..Shape::default() }
}

fn share(portion: i64, devices: u32) -> Shape {
    Shape { gpu_share: Some(GpuShare { size: ShareSize::Portion(portion), devices }), ..whole(0) }
}

/// Adds a gang of leaves, each with its name, its minimum, its number of pods, and what they ask for.
fn gang(mut cluster: Cluster, name: &str, min: Option<u32>, leaves: &[(&str, u32, u32, Shape)]) -> Cluster {
    let mut groups =
        vec![Group { name: "root".into(), parent: None, min: Min::Children(min), topology: None }];
    for (leaf, min, n_pods, shape) in leaves {
        groups.push(Group { name: (*leaf).into(), parent: Some(0), min: Min::Pods(*min), topology: None });
        for i in 0..*n_pods {
            let pod = Name::from(format!("{name}-{leaf}-{i}"));
            cluster.pods.push(Arc::new(Pod {
                key: Key::new("default", pod.clone()),
                uid: pod,
                gang: Some(Key::new("default", name)),
                group: Some((*leaf).into()),
                created: Time(0),
                state: PodState::Pending,
                node: None,
                shape: Arc::new(shape.clone()),
                labels: Arc::new(Labels::new()),
                rank: 0,
                task_priority: None,
                gpu_groups: Vec::new(),
                gpus: Vec::new(),
                zones: Vec::new(),
                nominated: None,
                volcano: None,
            }));
        }
    }
    cluster.gangs.push(Arc::new(Gang {
        key: Key::new("default", name),
        uid: name.into(),
        queue: "team".into(),
        priority: 0,
        preemptibility: Preemptibility::Preemptible,
        created: Time(0),
        groups,
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: Span::ZERO,
        staleness_grace: None,
        declared_end: None,
        volcano: None,
    }));
    cluster
}

/// A gang of equal pods, all needed.
fn flat(cluster: Cluster, name: &str, n_pods: u32, shape: Shape) -> Cluster {
    gang(cluster, name, None, &[("leaf", n_pods, n_pods, shape)])
}

fn near(mut cluster: Cluster, group: usize, level: &str) -> Cluster {
    let rule =
        TopologyRule { topology: bench::TOPOLOGY.into(), required: Some(level.into()), preferred: None };
    let gang = Arc::make_mut(cluster.gangs.last_mut().unwrap());
    gang.groups[group].topology = Some(rule);
    cluster
}

/// How many of all gangs can be placed together.
#[track_caller]
fn check(cluster: &Cluster, expected: usize) {
    let keys: Vec<Key> = cluster.gangs.iter().map(|gang| gang.key.clone()).collect();
    let packing = most_gangs(cluster, &Policy::default(), &keys, BUDGET).unwrap();
    assert_eq!(packing.gangs.len(), expected, "{packing:?}");
}

#[test]
fn amounts() {
    check(&flat(nodes(&[4, 4]), "a", 2, whole(4)), 1);
    check(&flat(nodes(&[4, 4]), "a", 3, whole(4)), 0);
    check(&flat(nodes(&[4, 4]), "a", 3, whole(3)), 0);
    check(&flat(nodes(&[4, 4]), "a", 1, whole(5)), 0);
    // Only one of the larger ones leaves room for both smaller ones.
    let three = flat(flat(flat(nodes(&[4, 4]), "a", 2, whole(3)), "b", 1, whole(4)), "c", 1, whole(4));
    check(&three, 2);
    // A first fit of the small ones would spoil the place of the large one.
    let mixed = flat(flat(nodes(&[3, 4]), "a", 3, whole(1)), "b", 1, whole(4));
    check(&mixed, 2);
}

#[test]
fn shared_gpus() {
    check(&flat(nodes(&[1]), "a", 2, share(500, 1)), 1);
    check(&flat(nodes(&[1]), "a", 3, share(500, 1)), 0);
    check(&flat(nodes(&[1]), "a", 1, share(500, 2)), 0);
    check(&flat(nodes(&[2]), "a", 2, share(500, 2)), 1);
    check(&flat(flat(nodes(&[2]), "a", 1, share(500, 1)), "b", 1, whole(1)), 2);
    check(&flat(flat(nodes(&[2]), "a", 3, share(600, 1)), "b", 1, whole(1)), 1);
    // 700 + 300, 600 + 400: found only if the right ones are put together.
    let mut cluster = nodes(&[2]);
    for (name, portion) in [("a", 300), ("b", 400), ("c", 700), ("d", 600)] {
        cluster = flat(cluster, name, 1, share(portion, 1));
    }
    check(&cluster, 4);
}

#[test]
fn topology() {
    let two = || flat(nodes(&[1, 2, 2, 2]), "a", 2, whole(2));
    check(&near(two(), 0, "rack"), 1);
    check(&near(flat(nodes(&[1, 2, 1, 2]), "a", 2, whole(2)), 0, "rack"), 0);
    check(&near(two(), 1, "kubernetes.io/hostname"), 0);
    check(&near(two(), 0, "no-such-level"), 0);
    // Each leaf in a rack of its own choice.
    let leaves = [("x", 2, 2, whole(2)), ("y", 2, 2, whole(2))];
    let tree = || gang(nodes(&[2, 2, 2, 2]), "a", None, &leaves);
    check(&near(near(tree(), 1, "rack"), 2, "rack"), 1);
    check(&near(tree(), 0, "rack"), 0);
    // Where it is already, it stays.
    let mut partly = near(two(), 0, "rack");
    Arc::make_mut(&mut partly.pods[0]).state = PodState::Running;
    Arc::make_mut(&mut partly.pods[0]).node = Some("node-00001".into());
    check(&partly, 0);
    Arc::make_mut(&mut partly.pods[0]).node = Some("node-00003".into());
    check(&partly, 1);
}

#[test]
fn trees() {
    let leaves = [("x", 1, 1, whole(4)), ("y", 2, 2, whole(1))];
    check(&gang(nodes(&[2]), "a", None, &leaves), 0);
    check(&gang(nodes(&[2]), "a", Some(1), &leaves), 1);
    check(&gang(nodes(&[6]), "a", None, &leaves), 1);
    check(&gang(nodes(&[6]), "a", Some(3), &leaves), 0);
    check(&gang(nodes(&[1]), "a", None, &[("x", 1, 5, whole(1))]), 1);
    check(&gang(nodes(&[8]), "a", None, &[("x", 3, 2, whole(1))]), 0);
}

#[test]
fn node_rules_and_queues() {
    let mut tainted = flat(nodes(&[4]), "a", 1, whole(1));
    let taint = Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule };
    Arc::make_mut(&mut tainted.nodes[0]).taints.push(taint);
    check(&tainted, 0);
    let limited = |limit: i64, fixed: bool| {
        let mut cluster = flat(flat(nodes(&[4]), "a", 2, whole(1)), "b", 1, whole(1));
        let share = Share { limit: Bound::At(limit), quota: Bound::At(2000), ..Share::default() };
        Arc::make_mut(&mut cluster.queues[0]).shares.insert(Resource::Gpu, share);
        for gang in cluster.gangs.iter_mut().filter(|_| fixed) {
            Arc::make_mut(gang).preemptibility = Preemptibility::NonPreemptible;
        }
        cluster
    };
    check(&limited(3000, false), 2);
    check(&limited(2000, false), 1);
    check(&limited(0, false), 0);
    check(&limited(3000, true), 1);
    let mut orphan = flat(nodes(&[4]), "a", 1, whole(1));
    orphan.queues.remove(0);
    check(&orphan, 0);
}

#[test]
fn it_declines_rather_than_guesses() {
    let key = Key::new("default", "a");
    let ask = |cluster: &Cluster, budget| placement(cluster, &Policy::default(), &key, budget);
    let one = flat(nodes(&[4]), "a", 1, whole(1));
    assert_eq!(ask(&one, BUDGET), Ok(Some(vec![(Key::new("default", "a-leaf-0"), "node-00000".into())])));
    assert_eq!(ask(&one, 3), Err(NoAnswer::BudgetSpent));
    assert_eq!(ask(&nodes(&[4]), BUDGET), Err(NoAnswer::UnknownGang(key.clone())));
    let deep = flat(nodes(&[4]), "a", 500, whole(1));
    assert_eq!(ask(&deep, BUDGET), Err(NoAnswer::NotModelled("more than 400 pods, groups and gangs")));
    let port = muster_model::HostPort { address: "0.0.0.0".into(), protocol: "TCP".into(), port: 80 };
    let ports = flat(nodes(&[4]), "a", 1, Shape { ports: vec![port], ..whole(1) });
    assert_eq!(ask(&ports, BUDGET), Err(NoAnswer::NotModelled("a host port")));
}

#[test]
fn the_deepest_search_has_stack_enough() {
    let cluster = flat(nodes(&[50; 8]), "a", 397, whole(1));
    let seats = placement(&cluster, &Policy::default(), &Key::new("default", "a"), BUDGET).unwrap();
    assert_eq!(seats.map(|seats| seats.len()), Some(397));
}

/// Seats found are seats: whoever asks for whole GPUs or none fits where the oracle puts it, and as many gangs are placed as a simple
/// first fit places, or more.
#[test]
fn tiny_clusters() {
    let policy = Policy { quotas: false, ..Policy::default() };
    let (mut n_answers, mut n_better) = (0, 0);
    for seed in 0..300 {
        let cluster = cluster(seed, &Sizes::tiny());
        // What the oracle and a first fit by pods both know: no domains, no minimum over several groups.
        let flat = |gang: &&Arc<Gang>| {
            let simple = |group: &Group| group.topology.is_none() && !matches!(group.min, Min::Whole { .. });
            gang.groups.iter().all(simple)
        };
        let waits = |gang: &&Arc<Gang>| {
            let of = |pod: &&Arc<Pod>| pod.gang.as_ref() == Some(&gang.key);
            cluster
                .pods
                .iter()
                .filter(of)
                .all(|p| p.state == PodState::Pending && p.shape.gpu_share.is_none())
        };
        let gangs: Vec<&Arc<Gang>> = cluster.gangs.iter().filter(flat).filter(waits).collect();
        let keys: Vec<Key> = gangs.iter().map(|gang| gang.key.clone()).collect();
        let Ok(packing) = most_gangs(&cluster, &policy, &keys, BUDGET) else { continue };
        n_answers += 1;

        let mut room = Room::beside(&cluster);
        for (pod, node) in &packing.seats {
            let mut pod = (**cluster.pods.iter().find(|p| p.key == *pod).unwrap()).clone();
            let node = cluster.nodes.iter().position(|n| n.name == *node).unwrap();
            assert!(room.seat(node, &mut pod), "seed {seed}: {} does not fit", pod.key);
        }

        let mut room = Room::beside(&cluster);
        let mut n_first_fit = 0;
        for gang in gangs {
            let mut trial = room.clone();
            let mut of = cluster.pods.iter().filter(|pod| pod.gang.as_ref() == Some(&gang.key));
            let all = of.all(|pod| (0..trial.n_nodes()).any(|node| trial.seat(node, &mut (**pod).clone())));
            if all {
                n_first_fit += 1;
                room = trial;
            }
        }
        assert!(packing.gangs.len() >= n_first_fit, "seed {seed}: {} < {n_first_fit}", packing.gangs.len());
        n_better += usize::from(packing.gangs.len() > n_first_fit);
    }
    assert!(n_answers > 290, "{n_answers} answers");
    assert!(n_better > 5, "better than first fit {n_better} times");
}
