use muster_generate::{Sizes, apply, changes, cluster, consequences};
use muster_model::*;
use std::collections::{BTreeMap, BTreeSet};

fn presets() -> [(&'static str, Sizes, u64); 3] {
    [("tiny", Sizes::tiny(), 400), ("small", Sizes::small(), 400), ("medium", Sizes::medium(), 20)]
}

#[test]
fn a_seed_is_a_cluster() {
    for (name, sizes, _) in presets() {
        for seed in 0..5 {
            assert_eq!(cluster(seed, &sizes), cluster(seed, &sizes), "{name} {seed}");
            assert_ne!(cluster(seed, &sizes), cluster(seed + 100, &sizes), "{name} {seed}");
            let made = cluster(seed, &sizes);
            assert_eq!(changes(seed, &made, 50), changes(seed, &made, 50), "{name} {seed}");
        }
    }
}

/// Counts again, independently of how it was made.
#[track_caller]
fn check_fits(cluster: &Cluster, what: &str) {
    let nodes: BTreeMap<&Name, &Node> = cluster.nodes.iter().map(|node| (&node.name, &**node)).collect();
    let mut used: BTreeMap<(&Name, &Resource), i128> = BTreeMap::new();
    let mut shared: BTreeMap<(&Name, &Name), i128> = BTreeMap::new();
    let mut indices: BTreeSet<(&Name, u32)> = BTreeSet::new();
    let mut zones: BTreeMap<(&Name, u32, &Resource), i128> = BTreeMap::new();
    let mut names: BTreeSet<&Key> = BTreeSet::new();
    for pod in &cluster.pods {
        assert!(names.insert(&pod.key), "{what}: {} twice", pod.key);
        if !pod.state.holds_room() {
            continue;
        }
        let Some(name) = &pod.node else { panic!("{what}: {} runs nowhere", pod.key) };
        let Some(node) = nodes.get(name) else { continue };
        for (resource, amount) in pod.shape.requests.iter() {
            *used.entry((&node.name, resource)).or_default() += i128::from(amount);
        }
        if let Some(share) = pod.shape.gpu_share {
            assert_eq!(pod.gpu_groups.len(), share.devices as usize, "{what}: {}", pod.key);
            let memory = node.gpus.memory.unwrap_or(100);
            for group in &pod.gpu_groups {
                let size = match share.size {
                    ShareSize::Portion(portion) => i128::from(portion) * i128::from(memory),
                    ShareSize::Memory(memory) => i128::from(memory) * 1000,
                };
                if !shared.contains_key(&(&node.name, group)) {
                    *used.entry((&node.name, &Resource::Gpu)).or_default() += 1000;
                }
                *shared.entry((&node.name, group)).or_default() += size;
            }
        }
        for gpu in &pod.gpus {
            assert!(indices.insert((&node.name, *gpu)), "{what}: gpu {gpu} of {name} twice");
        }
        for zone in &pod.zones {
            for (resource, amount) in zone.amounts.iter() {
                *zones.entry((&node.name, zone.zone, resource)).or_default() += i128::from(amount);
            }
        }
    }
    for ((name, resource), used) in used {
        let has = nodes[name].allocatable.get(resource);
        assert!(used <= i128::from(has), "{what}: {name} {resource} {used} > {has}");
    }
    for ((name, group), used) in shared {
        let has = i128::from(nodes[name].gpus.memory.unwrap_or(100)) * 1000;
        assert!(used <= has, "{what}: {name} {group} {used} > {has}");
    }
    for ((name, zone, resource), used) in zones {
        let has = nodes[name].numa.as_ref().unwrap().zones[zone as usize].allocatable.get(resource);
        assert!(used <= i128::from(has), "{what}: {name} zone {zone} {resource} {used} > {has}");
    }
}

#[test]
fn what_runs_fits() {
    for (name, sizes, n_seeds) in presets() {
        for seed in 0..n_seeds {
            check_fits(&cluster(seed, &sizes), &format!("{name} {seed}"));
        }
    }
}

#[test]
fn what_runs_still_fits_after_changes() {
    for (name, sizes, n_seeds) in presets() {
        for seed in 0..n_seeds.min(60) {
            let mut cluster = cluster(seed, &sizes);
            let changes = changes(seed, &cluster, 80);
            apply(&mut cluster, changes);
            check_fits(&cluster, &format!("{name} {seed}"));
        }
    }
}

/// In how many of the small clusters something holds.
fn frequency(holds: impl Fn(&Cluster) -> bool) -> usize {
    (0..200).filter(|seed| holds(&cluster(*seed, &Sizes::small()))).count()
}

type Test = Box<dyn Fn(&Cluster) -> bool>;

#[test]
fn every_oddity_occurs_and_none_is_everywhere() {
    fn pods(test: fn(&Pod) -> bool) -> Test {
        Box::new(move |c| c.pods.iter().any(|pod| test(pod)))
    }
    fn nodes(test: fn(&Node) -> bool) -> Test {
        Box::new(move |c| c.nodes.iter().any(|node| test(node)))
    }
    fn gangs(test: fn(&Gang) -> bool) -> Test {
        Box::new(move |c| c.gangs.iter().any(|gang| test(gang)))
    }
    let oddities: Vec<(&str, Test)> = vec![
        ("running share", pods(|p| p.state == PodState::Running && !p.gpu_groups.is_empty())),
        ("running by index", pods(|p| p.state == PodState::Running && !p.gpus.is_empty())),
        ("running in a zone", pods(|p| p.state == PodState::Running && !p.zones.is_empty())),
        ("gated", pods(|p| p.state == PodState::Gated)),
        ("releasing", pods(|p| p.state == PodState::Releasing)),
        ("stuck", pods(|p| p.state == PodState::Stuck)),
        ("succeeded", pods(|p| p.state == PodState::Succeeded)),
        ("mig", pods(|p| p.shape.extra_gpu_charge > 0)),
        (
            "memory share",
            pods(|p| matches!(p.shape.gpu_share, Some(s) if matches!(s.size, ShareSize::Memory(_)))),
        ),
        ("port", pods(|p| !p.shape.ports.is_empty())),
        ("affinity", pods(|p| !p.shape.pods.affinity.is_empty())),
        ("running anti-affinity", pods(|p| p.node.is_some() && !p.shape.pods.anti_affinity.is_empty())),
        ("spread", pods(|p| !p.shape.pods.spread.is_empty())),
        ("claim", pods(|p| !p.shape.claims.is_empty())),
        ("volume", pods(|p| !p.shape.volumes.is_empty())),
        ("foreign", pods(|p| p.gang.is_none())),
        ("absurd", pods(|p| p.shape.requests.get(&Resource::Cpu) == i64::MAX)),
        ("cordoned", nodes(|n| n.conditions.unschedulable)),
        ("tainted", nodes(|n| !n.taints.is_empty())),
        ("links", nodes(|n| n.gpus.links.is_some())),
        ("numa", nodes(|n| n.numa.is_some())),
        ("mig node", nodes(|n| n.gpus.mig == MigStrategy::Mixed)),
        ("nested", gangs(|g| g.groups.len() > 2)),
        ("three levels", gangs(|g| g.groups.iter().any(|group| group.parent == Some(1)))),
        ("some children", gangs(|g| matches!(g.groups[0].min, Min::Children(Some(_))))),
        (
            "required",
            gangs(|g| g.groups.iter().any(|x| x.topology.as_ref().is_some_and(|t| t.required.is_some()))),
        ),
        ("fixed", gangs(|g| g.preemptibility == Preemptibility::NonPreemptible)),
        ("stale", gangs(|g| g.stale_since.is_some())),
        ("delay", gangs(|g| g.preemption_delay > Span::ZERO)),
        ("no such queue", gangs(|g| &*g.queue == "no-such-queue")),
        (
            "deep queue",
            Box::new(|c| {
                let parent = |q: &Name| c.queues.iter().find(|x| x.name == *q).and_then(|x| x.parent.clone());
                c.queues
                    .iter()
                    .any(|q| parent(&q.name).and_then(|p| parent(&p)).and_then(|p| parent(&p)).is_some())
            }),
        ),
        ("no topology", Box::new(|c| c.topologies.is_empty())),
        ("orphan queue", Box::new(|c| c.queues.iter().any(|q| q.parent.as_deref() == Some("nobody")))),
    ];
    for (what, holds) in oddities {
        let n = frequency(holds);
        assert!((2..200).contains(&n), "{what} in {n} of 200");
    }
}

#[test]
fn decisions_change_what_they_say() {
    let cluster = muster_generate::bench::filled(2, 50);
    let mut after = cluster.clone();
    apply(&mut after, muster_generate::bench::arrival("new", "team", 1, 1, false));
    let (evicted, bound) = (after.pods[0].clone(), after.pods[8].clone());
    let placement = Placement { node: "node-00001".into(), gpus: vec![7], ..Placement::default() };
    let (gang, action) = (bound.gang.clone().unwrap(), Action::Allocate);
    let decisions = Decisions {
        binds: vec![Bind { pod: bound.key.clone(), gang: gang.clone(), action, placement }],
        evictions: vec![Evict {
            pod: evicted.key.clone(),
            gang: evicted.gang.clone().unwrap(),
            action: Action::Preempt,
            by: Some(gang),
            moved: false,
            forced: false,
        }],
        ..Decisions::default()
    };
    let changes = consequences(&after, &decisions);
    apply(&mut after, changes);
    assert_eq!(after.pods[0].state, PodState::Releasing);
    assert_eq!((after.pods[8].state, after.pods[8].gpus.as_slice()), (PodState::Bound, &[7][..]));
    assert_eq!(after.pods[8].node.as_deref(), Some("node-00001"));
    assert_eq!((after.gangs[0].last_eviction, after.gangs[1].last_start), (Some(after.now), Some(after.now)));
    assert_eq!(after.pods[1], cluster.pods[1]);
}
