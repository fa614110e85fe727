//! Generated lives: nothing that the auditor objects to, whatever happens and however the engine came to know of it.

use crate::world::{Tale, anew, live, live_mixed, policy, released_claims, watched};
use muster_engine::Engine;
use muster_generate::{Rng, Sizes, apply, cluster, consequences};
use muster_model::{Change, Cluster, Decisions, Gang, Grace, Key, Min, PodState, Policy, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A part of what `examples/soak.rs` does for longer.
#[track_caller]
fn check_lives(seeds: impl Iterator<Item = u64>, sizes: &Sizes, cycles: u32) -> Tale {
    let mut tale = Tale::default();
    for seed in seeds {
        match live(seed, sizes, cycles) {
            Ok(more) => tale.join(&more),
            Err(story) => panic!("{story}"),
        }
    }
    tale
}

#[test]
fn small_lives_are_sound() {
    let tale = check_lives(5_000_000..5_000_400, &Sizes::small(), 8);
    let Tale { binds, evictions, promises, refusals } = tale;
    assert!(binds > 2500 && evictions > 600 && promises > 1500 && refusals > 15_000, "{tale:?}");
}

#[test]
fn medium_lives_are_sound() {
    let tale = check_lives(6_000_000..6_000_006, &Sizes::medium(), 4);
    let Tale { binds, evictions, promises, refusals } = tale;
    assert!(binds > 300 && evictions > 50 && promises > 100 && refusals > 1500, "{tale:?}");
}

/// The same where KAI's, Volcano's, T9k's, Koordinator's and Kubernetes' own gangs live at once, in trees that share, divide or span the cluster.
#[test]
fn lives_of_many_systems_are_sound() {
    let mut tale = Tale::default();
    for seed in 7_000_000..7_000_300 {
        match live_mixed(seed, &Sizes::small(), 8) {
            Ok(more) => tale.join(&more),
            Err(story) => panic!("{story}"),
        }
    }
    let Tale { binds, evictions, promises, refusals } = tale;
    assert!(binds > 1500 && evictions > 300 && promises > 500 && refusals > 8_000, "{tale:?}");
}

/// Objects come in any order, pods before their gangs and queues before their parents.
#[test]
fn the_order_of_objects_does_not_matter() {
    let mut tale = Tale::default();
    for seed in 0..150 {
        let (world, policy) = (cluster(seed, &Sizes::small()), policy(seed));
        let first = Engine::build(world.clone(), policy.clone()).0.cycle(world.now);
        let mut rng = Rng::new(seed).fork(3);
        for _ in 0..2 {
            let mut changes = world.clone().into_changes();
            rng.shuffle(&mut changes);
            let mut engine = Engine::new(policy.clone());
            engine.apply(changes);
            assert_eq!(engine.cycle(world.now), first, "seed {seed}");
        }
        tale.add(&first);
    }
    assert!(tale.binds > 500 && tale.evictions > 100 && tale.promises > 100, "{tale:?}");
}

/// Whether the pods that stay make the group whole.
fn whole(gang: &Gang, group: usize, have: &BTreeMap<&str, u32>) -> bool {
    let children = || (0..gang.groups.len()).filter(|i| gang.groups[*i].parent == Some(group as u32));
    match gang.groups[group].min {
        Min::Pods(min) => have.get(&*gang.groups[group].name).copied().unwrap_or(0) >= min,
        Min::Children(need) => {
            let n_whole = children().filter(|child| whole(gang, *child, have)).count();
            n_whole >= need.map_or(children().count(), |n| n as usize)
        }
        Min::Whole { pods } => {
            let total: u32 = have.values().sum();
            children().all(|child| whole(gang, child, have)) && total >= pods
        }
    }
}

/// Gangs that hold room with fewer pods than they need.
fn broken(world: &Cluster) -> BTreeSet<Key> {
    let mut staying: BTreeMap<&Key, BTreeMap<&str, u32>> = BTreeMap::new();
    let gangs: BTreeMap<&Key, &Gang> = world.gangs.iter().map(|gang| (&gang.key, &**gang)).collect();
    for pod in world.pods.iter().filter(|pod| pod.state.stays()) {
        let Some(gang) = pod.gang.as_ref().and_then(|key| gangs.get(key)) else { continue };
        let only =
            || gang.groups.iter().find(|group| matches!(group.min, Min::Pods(_))).map(|group| &group.name);
        if let Some(leaf) = pod.group.as_ref().or_else(only) {
            *staying.entry(&gang.key).or_default().entry(leaf).or_default() += 1;
        }
    }
    staying
        .into_iter()
        .filter(|(key, have)| !whole(gangs[key], 0, have))
        .map(|(key, _)| key.clone())
        .collect()
}

/// All that was decided happens at once: the evicted are gone and come back as new pods, and so are those who were leaving already.
/// Gangs that are whole again are no longer stale.
fn settle(world: &mut Cluster, decisions: &Decisions) {
    let mut changes = Vec::new();
    for pod in world.pods.iter().filter(|pod| matches!(pod.state, PodState::Releasing | PodState::Stuck)) {
        changes.extend(released_claims(world, pod));
        changes.push(Change::PutPod(Arc::new(anew(pod))));
    }
    apply(world, changes);
    let after = consequences(world, decisions);
    let mut changes = Vec::new();
    for change in after {
        if let Change::PutPod(pod) = &change
            && pod.state == PodState::Releasing
        {
            changes.extend(released_claims(world, pod));
            changes.push(Change::PutPod(Arc::new(anew(pod))));
        } else {
            changes.push(change);
        }
    }
    apply(world, changes);
    let broken = broken(world);
    for gang in &mut world.gangs {
        if gang.stale_since.is_some() && !broken.contains(&gang.key) {
            Arc::make_mut(gang).stale_since = None;
        }
    }
    world.now = world.now + Span::seconds(61);
}

/// The process dies between two binds: some happened, the others never do. A gang that was cut in two is completed or given up.
#[test]
fn dying_between_binds_leaves_nothing_half_done() {
    const ENOUGH: u32 = 4;
    let (mut n_cut, mut n_completed, mut n_given_up) = (0, 0, 0);
    for seed in 0..250 {
        let mut world = cluster(seed, &Sizes::small());
        for gang in &mut world.gangs {
            Arc::make_mut(gang).staleness_grace = None;
        }
        let policy = Policy { staleness_grace: Grace::For(Span::seconds(60)), ..policy(seed) };
        let decisions = Engine::build(world.clone(), policy.clone()).0.cycle(world.now);
        let was_broken = broken(&world);
        let mut rng = Rng::new(seed).fork(5);
        let part = Decisions {
            binds: decisions.binds[..rng.index(decisions.binds.len() + 1)].to_vec(),
            evictions: decisions.evictions[..rng.index(decisions.evictions.len() + 1)].to_vec(),
            ..Decisions::default()
        };
        let changes = consequences(&world, &part);
        apply(&mut world, changes);
        let finished: BTreeSet<&Key> = decisions.binds.iter().map(|bind| &bind.gang).collect();
        let mut cut: BTreeSet<Key> = broken(&world).difference(&was_broken).cloned().collect();
        // Those who lost pods are the auditor's concern; here are those who got some.
        cut.retain(|key| finished.contains(key));
        n_cut += cut.len();
        for cycle in 0..ENOUGH {
            let (mut engine, _) = Engine::build(world.clone(), policy.clone());
            let decisions = watched(&mut engine, &world, &policy)
                .unwrap_or_else(|story| panic!("seed {seed}, cycle {cycle} after dying: {story}"));
            settle(&mut world, &decisions);
            let still = broken(&world);
            let healed: Vec<Key> = cut.difference(&still).cloned().collect();
            for key in healed {
                let runs = world.pods.iter().any(|pod| pod.gang.as_ref() == Some(&key) && pod.state.stays());
                if runs {
                    n_completed += 1;
                } else {
                    n_given_up += 1;
                }
                cut.remove(&key);
            }
        }
        assert!(cut.is_empty(), "seed {seed}: {cut:?} stay below their minimum");
    }
    assert!(n_cut > 50 && n_completed > 20 && n_given_up > 0, "{n_cut} {n_completed} {n_given_up}");
}
