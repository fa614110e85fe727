//! Placement against a placer that tries everything, and against itself with more room.

use crate::world::allocating;
use muster_engine::Engine;
use muster_generate::oracle::{self, NoAnswer};
use muster_generate::{Sizes, cluster};
use muster_model::{Cluster, Gang, Key, PodState, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Gangs with pods that wait and none that have a place.
fn starters(cluster: &Cluster) -> Vec<Key> {
    let with = |test: fn(PodState) -> bool| -> BTreeSet<&Key> {
        cluster.pods.iter().filter(|pod| test(pod.state)).filter_map(|pod| pod.gang.as_ref()).collect()
    };
    let (waiting, seated) = (with(|state| state == PodState::Pending), with(PodState::holds_room));
    cluster
        .gangs
        .iter()
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
                (false, true) => {
                    let (mut engine, _) = Engine::build(cluster.clone(), policy.clone());
                    let d = engine.cycle(cluster.now);
                    println!(
                        "MISS {seed} {key} {:?} {:?}",
                        d.refusals.iter().find(|r| r.gang == key).map(|r| &r.reasons),
                        d.pipelined.len()
                    );
                    println!("  seats {:?}", oracle::placement(&cluster, &policy, &key, oracle::BUDGET));
                    println!("  gang {:?}", cluster.gangs.iter().find(|g| g.key == key));
                    for p in cluster.pods.iter().filter(|p| p.gang.as_ref() == Some(&key)) {
                        println!("  pod {} {:?} {:?} {:?}", p.key, p.group, p.state, p.shape);
                    }
                    missed.push((seed, key))
                }
                (true, false) => panic!("seed {seed}: {key} is placed and cannot be"),
            }
        }
    }
    println!("{n_placed} placed, {n_refused} refused, {n_declined} declined, missed {missed:?}");
    assert!(missed.is_empty());
}
