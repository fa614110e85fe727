//! Placement against a placer that tries everything, and against itself with more room.

use muster_engine::Engine;
use muster_generate::oracle::{self, NoAnswer};
use muster_generate::{Rng, Sizes, cluster};
use muster_model::{Action, Cluster, Key, Min, Node, PodState, Policy, Resource, ShareSize, Strategy};
use std::collections::BTreeSet;
use std::sync::Arc;

fn allocating() -> Policy {
    Policy { actions: vec![Action::Allocate], ..Policy::default() }
}

/// Gangs with pods that wait and none that have a place.
fn starters(cluster: &Cluster) -> Vec<Key> {
    let with = |test: fn(PodState) -> bool| -> BTreeSet<&Key> {
        cluster.pods.iter().filter(|pod| test(pod.state)).filter_map(|pod| pod.gang.as_ref()).collect()
    };
    let (waiting, seated) = (with(|state| state == PodState::Pending), with(PodState::holds_room));
    cluster
        .gangs
        .iter()
        // The oracle knows no minimum of several groups together.
        .filter(|gang| !gang.groups.iter().any(|group| matches!(group.min, Min::Whole { .. })))
        .map(|gang| &gang.key)
        .filter(|key| waiting.contains(key) && !seated.contains(key))
        .cloned()
        .collect()
}

/// The cluster with nobody waiting but this gang.
fn alone(cluster: &Cluster, gang: &Key) -> Cluster {
    let mut cluster = cluster.clone();
    cluster.pods.retain(|pod| pod.state != PodState::Pending || pod.gang.as_ref() == Some(gang));
    cluster
}

fn started(cluster: &Cluster, policy: &Policy) -> BTreeSet<Key> {
    let (mut engine, _) = Engine::build(cluster.clone(), policy.clone());
    engine.cycle(cluster.now).binds.into_iter().map(|bind| bind.gang).collect()
}

#[test]
fn a_lone_gang_is_placed_if_it_can_be() {
    let policy = allocating();
    let (mut n_placed, mut n_refused, mut n_declined) = (0, 0, 0);
    let mut missed: Vec<(u64, Key)> = Vec::new();
    for seed in 0..3000 {
        let all = cluster(seed, &Sizes::tiny());
        for key in starters(&all) {
            let cluster = alone(&all, &key);
            let possible = match oracle::placement(&cluster, &policy, &key, oracle::BUDGET) {
                // A gang that needs nothing is content wherever it is not.
                Ok(Some(seats)) if seats.is_empty() => continue,
                Ok(seats) => seats.is_some(),
                Err(NoAnswer::BudgetSpent | NoAnswer::NotModelled(_)) => {
                    n_declined += 1;
                    continue;
                }
                Err(other) => panic!("seed {seed}, {key}: {other}"),
            };
            match (started(&cluster, &policy).contains(&key), possible) {
                (true, true) => n_placed += 1,
                (false, false) => n_refused += 1,
                (false, true) => missed.push((seed, key)),
                (true, false) => panic!("seed {seed}: {key} is placed and cannot be"),
            }
        }
    }
    assert!(n_placed > 2500 && n_refused > 2500 && n_declined == 0, "{n_placed} {n_refused} {n_declined}");
    // A share by memory costs its queue more on smaller GPUs, and nodes are not chosen by what they cost.
    let by_memory =
        |(seed, key): &(u64, Key)| {
            let cluster = cluster(*seed, &Sizes::tiny());
            cluster.pods.iter().filter(|pod| pod.gang.as_ref() == Some(key)).any(|pod| {
                pod.shape.gpu_share.is_some_and(|share| matches!(share.size, ShareSize::Memory(_)))
            })
        };
    let (known, unknown): (Vec<_>, Vec<_>) = missed.into_iter().partition(by_memory);
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(known.len() * 1000 <= n_placed, "{known:?}");
}

#[test]
fn never_more_gangs_than_there_is_room_for() {
    let policy = allocating();
    let (mut n_placed, mut n_possible) = (0, 0);
    for seed in 0..400 {
        let cluster = cluster(seed, &Sizes::tiny());
        let keys = starters(&cluster);
        if keys.len() < 2 {
            continue;
        }
        // Who needs nothing can always be placed, by the oracle's reading.
        let keys: Vec<Key> = keys
            .into_iter()
            .filter(|key| {
                let alone = oracle::placement(&alone(&cluster, key), &policy, key, oracle::BUDGET);
                alone.is_ok_and(|seats| seats.is_some_and(|seats| !seats.is_empty()))
            })
            .collect();
        let Ok(packing) = oracle::most_gangs(&cluster, &policy, &keys, oracle::BUDGET) else { continue };
        let n = started(&cluster, &policy).iter().filter(|key| keys.contains(key)).count();
        assert!(
            n <= packing.gangs.len(),
            "seed {seed}: {n} gangs are placed and {} can be",
            packing.gangs.len()
        );
        n_placed += n;
        n_possible += packing.gangs.len();
    }
    assert!(n_placed * 100 > n_possible * 90 && n_possible > 200, "{n_placed} of {n_possible}");
}

#[test]
fn more_room_never_places_less() {
    let mut n = 0;
    let mut lost = Vec::new();
    for seed in 0..1500 {
        let mut all = cluster(seed, &Sizes::tiny());
        let mut rng = Rng::new(seed).fork(11);
        let strategy = *rng.pick(&[None, Some(Strategy::Binpack), Some(Strategy::Spread)]);
        let policy = Policy { quotas: false, gpu_strategy: strategy, cpu_strategy: strategy, ..allocating() };
        for gang in &mut all.gangs {
            for rule in Arc::make_mut(gang).groups.iter_mut().filter_map(|group| group.topology.as_mut()) {
                rule.preferred = None;
            }
        }
        for key in starters(&all) {
            let before = alone(&all, &key);
            if !started(&before, &policy).contains(&key) {
                continue;
            }
            n += 1;
            let at = rng.index(before.nodes.len());
            let mut grown = before.clone();
            for resource in [Resource::Cpu, Resource::Memory, Resource::Gpu] {
                let node = Arc::make_mut(&mut grown.nodes[at]);
                node.allocatable.add(resource.clone(), node.allocatable.get(&resource));
            }
            let mut joined = before.clone();
            let mut twin = Node::clone(&before.nodes[at]);
            twin.name = "a-twin".into();
            twin.labels.insert("kubernetes.io/hostname".into(), twin.name.clone());
            joined.nodes.push(Arc::new(twin));
            for (what, after) in [("grown", grown), ("joined", joined)] {
                if !started(&after, &policy).contains(&key) {
                    lost.push((seed, key.name.clone(), what));
                }
            }
        }
    }
    assert!(n > 1000, "{n}");
    assert!(lost.is_empty(), "{lost:?}");
}
