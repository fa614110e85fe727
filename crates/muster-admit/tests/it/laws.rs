//! What must hold whatever comes: quota, minimal victims, no trace of what was tried, order under strict queueing, fair shares, and that steps and
//! one run come to the same.

use crate::world::{add_queue, build, cluster_queue, empty, group, jobs, plans, quotas, workload};
use muster_admit::assign::{How, Mode};
use muster_admit::ids::PairId;
use muster_admit::spec::{Cohort, Preemption, Reclaim, Strategy as Queueing, Weight};
use muster_admit::victims::Search;
use muster_admit::{FairSharing, Settings, State};
use muster_model::{Key, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn pairs(state: &State) -> Vec<PairId> {
    (0..state.tree.n_pairs()).map(|i| PairId::new(u32::try_from(i).unwrap())).collect()
}

/// All usage, node by node.
fn usage(state: &State) -> Vec<i64> {
    let nodes = state.tree.queue_ids().chain(state.tree.cohort_ids());
    nodes
        .flat_map(|n| pairs(state).into_iter().map(move |p| (n, p)))
        .map(|(n, p)| state.tree.cell(n, p).usage)
        .collect()
}

/// Nobody uses more than there is: roots not more than all below them have, queues not more than they may borrow.
fn check_quota(state: &State) {
    for pair in pairs(state) {
        for node in state.tree.queue_ids().chain(state.tree.cohort_ids()) {
            let cell = state.tree.cell(node, pair);
            let name = &state.tree.nodes[node].name;
            assert!(cell.usage >= 0, "{name}: {cell:?}");
            match state.tree.parent(node) {
                None => assert!(cell.usage <= cell.subtree, "{name}: {cell:?}"),
                Some(_) => {
                    let most = cell.borrowing.map_or(i64::MAX, |b| cell.subtree + b);
                    assert!(cell.usage <= most, "{name}: {cell:?}");
                }
            }
        }
    }
}

/// What is charged is what workloads hold, and nothing else.
fn check_charges(state: &State) {
    for queue in state.tree.queue_ids() {
        for pair in pairs(state) {
            let held: i64 = state.queues[queue]
                .members
                .iter()
                .filter_map(|id| state.wl(*id).hold.as_ref())
                .flat_map(|h| &h.usage)
                .filter(|(p, _)| *p == pair)
                .map(|(_, amount)| *amount)
                .sum();
            assert_eq!(held, state.tree.cell(queue, pair).usage);
        }
    }
}

/// Lets those go who were told to: they hold nothing, and queue up again.
fn release_evicted(state: &mut State, now: Time) {
    let keys: Vec<Key> = state.by_key.keys().cloned().collect();
    for key in keys {
        let wl = state.wl(state.by_key[&key]);
        if wl.spec.evicted.is_some() && wl.hold.is_some() {
            let mut spec = wl.spec.clone();
            let queue = wl.queue.unwrap();
            spec.reservation = None;
            spec.evicted = None;
            state.put_workload(spec, now);
            state.wake(queue, now);
        }
    }
}

fn finish_one(state: &mut State, now: Time) {
    let running = state.by_key.iter().find(|(_, id)| state.wl(**id).hold.is_some());
    if let Some((key, id)) = running.map(|(k, id)| (k.clone(), *id)) {
        let queue = state.wl(id).queue.unwrap();
        state.drop_workload(&key);
        state.wake(queue, now);
    }
}

fn reservations(state: &State) -> BTreeMap<Key, String> {
    let held = state.by_key.iter().filter(|(_, id)| state.wl(**id).hold.is_some());
    held.map(|(key, id)| (key.clone(), format!("{:?}", state.wl(*id).spec.reservation))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn quota_is_never_exceeded(plan in plans()) {
        let mut state = build(&plan);
        for (i, job) in jobs(&plan).into_iter().enumerate() {
            let now = Time(i64::try_from(i).unwrap() * 1000);
            state.put_workload(job, now);
            state.cycle(now);
            check_quota(&state);
            check_charges(&state);
            if i % 3 == 0 {
                release_evicted(&mut state, now);
            }
            if i % 5 == 4 {
                finish_one(&mut state, now);
            }
            check_quota(&state);
        }
    }

    #[test]
    fn victims_are_enough_and_none_could_stay(plan in plans()) {
        let mut state = build(&plan);
        let mut all = jobs(&plan);
        let last = all.pop().unwrap();
        for job in all {
            state.put_workload(job, Time(0));
        }
        state.run(Time(1));
        let id = state.put_workload(last, Time(2));
        let Some(queue) = state.wl(id).queue else { return Ok(()) };
        let before = usage(&state);
        let assignment = state.assign(id, queue, How::default());
        let targets = if assignment.mode() == Mode::Preempt {
            state.victims_for(id, queue, &assignment, None)
        } else {
            Vec::new()
        };
        // Whatever was tried left no trace.
        prop_assert_eq!(usage(&state), before);
        if targets.is_empty() {
            return Ok(());
        }
        let search = Search {
            id,
            queue,
            need: assignment.need(&state.ids),
            usage: assignment.usage.clone(),
            asks: Vec::new(),
            assignment: None,
            replaced: None,
        };
        // Whether it may borrow is chosen by the search: for one of the two answers the set is enough and minimal.
        let mut right = false;
        for borrowing in [true, false] {
            targets.iter().for_each(|t| state.release(t.id));
            let enough = search.fits(&state, borrowing);
            let mut minimal = true;
            for target in &targets {
                state.hold(target.id);
                minimal &= !search.fits(&state, borrowing);
                state.release(target.id);
            }
            targets.iter().for_each(|t| state.hold(t.id));
            right |= enough && minimal;
        }
        prop_assert!(right, "{targets:?}");
    }

    #[test]
    fn one_run_comes_to_what_steps_come_to(plan in plans()) {
        let (mut at_once, mut stepwise) = (build(&plan), build(&plan));
        for job in jobs(&plan) {
            at_once.put_workload(job.clone(), Time(0));
            stepwise.put_workload(job, Time(0));
        }
        at_once.run(Time(1));
        // Step by step, with everything that is derived built anew in between.
        for _ in 0..1000 {
            if !stepwise.cycle(Time(1)).progress {
                break;
            }
            if plan.jobs.len() % 2 == 0 {
                let lines: Vec<_> = stepwise.tree.queue_ids().map(|q| stepwise.queues[q].line.parked().count()).collect();
                if lines.iter().all(|n| *n == 0) {
                    stepwise.touch();
                    stepwise.settle(Time(1));
                }
            }
        }
        prop_assert_eq!(reservations(&at_once), reservations(&stepwise));
        // And nothing moves afterwards.
        prop_assert!(!at_once.run(Time(1)).progress);
    }

    #[test]
    fn nobody_is_overtaken_in_a_strict_queue(sizes in proptest::collection::vec((1..6_i64, 0..3_i32), 1..20)) {
        let mut state = empty(Settings::default(), &["a"]);
        let mut queue = cluster_queue("q", None, vec![quotas("a", 5, None, None)]);
        queue.strategy = Queueing::Strict;
        add_queue(&mut state, queue);
        for (i, (cpus, priority)) in sizes.iter().enumerate() {
            let created = i64::try_from(i).unwrap() * 1000;
            state.put_workload(workload(&format!("w{i:02}"), "q", *priority, created, *cpus, 1), Time(0));
        }
        let mut expected: Vec<(i32, usize)> = sizes.iter().enumerate().map(|(i, (_, p))| (-*p, i)).collect();
        expected.sort_unstable();
        let mut order = Vec::new();
        for step in 0..1000 {
            let now = Time(step);
            let run = state.run(now);
            order.extend(run.admitted.into_iter().map(|a| a.key.name.to_string()));
            if state.by_key.is_empty() {
                break;
            }
            finish_one(&mut state, now);
        }
        // Everyone got in, by priority and then by age, whatever its size.
        let expected: Vec<String> = expected.iter().map(|(_, i)| format!("w{i:02}")).collect();
        prop_assert_eq!(order, expected);
    }

    /// In trees of cohorts of any depth, with quotas and limits on every level.
    #[test]
    fn quota_holds_in_deep_trees(
        cohorts in proptest::collection::vec((0..6_usize, 0..6_i64, proptest::option::of(0..5_i64), proptest::option::of(0..5_i64)), 1..7),
        plan in plans(),
    ) {
        let mut state = build(&plan);
        state.cohort_specs.clear();
        for (i, (parent, nominal, borrowing, lending)) in cohorts.iter().enumerate() {
            // Parents come first, so there is no circle.
            let parent = (i > 0).then(|| format!("c{}", parent % i).into());
            let bounds = |limit: &Option<i64>| limit.filter(|_| parent.is_some());
            let lending = bounds(lending).map(|l| l.min(*nominal));
            let groups = group(vec![quotas("a", *nominal, bounds(borrowing), lending)]);
            let name: muster_model::Name = format!("c{i}").into();
            state.cohort_specs.insert(name.clone(), Cohort { name, parent, groups, weight: Weight::default() });
        }
        for (i, queue) in state.queue_specs.values_mut().enumerate() {
            queue.cohort = Some(format!("c{}", (i * 7 + 3) % cohorts.len()).into());
        }
        state.touch();
        state.settle(Time(0));
        let mut n_admitted = 0;
        for (i, job) in jobs(&plan).into_iter().enumerate() {
            let now = Time(i64::try_from(i).unwrap() * 1000);
            state.put_workload(job, now);
            n_admitted += state.run(now).admitted.len();
            check_quota(&state);
            check_charges(&state);
            if i % 3 == 2 {
                release_evicted(&mut state, now);
            }
            if i % 4 == 3 {
                finish_one(&mut state, now);
            }
            check_quota(&state);
        }
        let room: i64 = state.tree.queue_ids().chain(state.tree.cohort_ids())
            .flat_map(|n| pairs(&state).into_iter().map(move |p| (n, p)))
            .map(|(n, p)| state.tree.cell(n, p).subtree).sum();
        prop_assert!(n_admitted == 0 || room > 0, "nothing comes of nothing");
    }

    /// In a cohort of strict queues, whatever others borrow, everyone who asks for no more than its own queue's quota gets in as long as others
    /// come to an end, and nobody overtakes whoever is before it in its queue.
    #[test]
    fn nobody_starves_in_a_cohort_of_strict_queues(
        quotas_of in proptest::collection::vec(1..6_i64, 2..4),
        sizes in proptest::collection::vec((0..4_usize, 1..6_i64, 0..3_i32), 1..24),
    ) {
        let mut state = empty(Settings::default(), &["a"]);
        state.cohort_specs.insert("c".into(), Cohort {
            name: "c".into(), parent: None, groups: Vec::new(), weight: Weight::default(),
        });
        for (i, quota) in quotas_of.iter().enumerate() {
            let mut queue = cluster_queue(&format!("q{i}"), Some("c"), vec![quotas("a", *quota, None, None)]);
            queue.strategy = Queueing::Strict;
            queue.preemption = Preemption { within_cohort: Reclaim::Any, ..Preemption::default() };
            add_queue(&mut state, queue);
        }
        let mut expected: Vec<Vec<(i32, usize)>> = vec![Vec::new(); quotas_of.len()];
        for (i, (queue, cpus, priority)) in sizes.iter().enumerate() {
            let queue = queue % quotas_of.len();
            let cpus = (*cpus).min(quotas_of[queue]);
            let created = i64::try_from(i).unwrap() * 1000;
            state.put_workload(workload(&format!("w{i:02}"), &format!("q{queue}"), *priority, created, cpus, 1), Time(0));
            expected[queue].push((-*priority, i));
        }
        let mut first: Vec<String> = Vec::new();
        for step in 0..2000 {
            let now = Time(step);
            let run = state.run(now);
            for admitted in run.admitted {
                let name = admitted.key.name.to_string();
                if !first.contains(&name) {
                    first.push(name);
                }
            }
            check_quota(&state);
            release_evicted(&mut state, now);
            if state.by_key.is_empty() {
                break;
            }
            finish_one(&mut state, now);
        }
        prop_assert!(state.by_key.is_empty(), "{:?} never got in", state.by_key.keys().collect::<Vec<_>>());
        for queue in &mut expected {
            queue.sort_unstable();
            let names: Vec<String> = queue.iter().map(|(_, i)| format!("w{i:02}")).collect();
            let got: Vec<&String> = first.iter().filter(|name| names.contains(name)).collect();
            prop_assert_eq!(got, names.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn shares_converge_to_weights(weights in proptest::collection::vec(1..4_i64, 2..5), pool in 6..30_i64, late in any::<bool>()) {
        let settings = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
        let mut state = empty(settings, &["a"]);
        state.cohort_specs.insert("c".into(), Cohort {
            name: "c".into(), parent: None, groups: group(vec![quotas("a", pool, None, None)]), weight: Weight::default(),
        });
        for (i, weight) in weights.iter().enumerate() {
            let mut queue = cluster_queue(&format!("q{i}"), Some("c"), vec![quotas("a", 0, None, None)]);
            queue.weight = Weight(weight * 1_000_000_000);
            queue.preemption = Preemption { within_cohort: Reclaim::Any, ..Preemption::default() };
            add_queue(&mut state, queue);
        }
        state.settle(Time(0));
        let fill = |state: &mut State, i: usize| {
            for k in 0..pool {
                state.put_workload(workload(&format!("q{i}-{k:02}"), &format!("q{i}"), 0, k, 1, 1), Time(0));
            }
        };
        // One queue has everything before the others come, or all come at once.
        fill(&mut state, 0);
        if late {
            state.run(Time(0));
        }
        (1..weights.len()).for_each(|i| fill(&mut state, i));
        for step in 1..200 {
            let moved = state.run(Time(step));
            release_evicted(&mut state, Time(step));
            if moved.preempted.is_empty() && moved.admitted.is_empty() {
                break;
            }
        }
        let used: Vec<i64> = (0..weights.len())
            .map(|i| state.tree.cell(state.tree.queue(&format!("q{i}")).unwrap(), PairId::new(0)).usage / 1000)
            .collect();
        // Nobody could take one more from another and still have less of a share than that has now.
        for (i, (mine, own)) in used.iter().zip(&weights).enumerate() {
            for (its, other) in used.iter().zip(&weights) {
                prop_assert!((mine + 1) * other >= its * own, "q{i}: {used:?} by {weights:?}");
            }
        }
        prop_assert_eq!(used.iter().sum::<i64>(), pool);
    }
}

/// A queue of equals is parked as one and woken as one.
#[test]
fn equals_are_parked_together_and_come_back() {
    let mut state = empty(Settings::default(), &["a"]);
    add_queue(&mut state, cluster_queue("q", None, vec![quotas("a", 1, None, None)]));
    for i in 0..5 {
        state.put_workload(workload(&format!("w{i}"), "q", 0, i, 1, 1), Time(0));
    }
    let run = state.run(Time(0));
    assert_eq!(run.admitted.len(), 1);
    let queue = state.tree.queue("q").unwrap();
    assert_eq!(state.queues[queue].line.parked().count(), 4);
    finish_one(&mut state, Time(1));
    assert_eq!(state.queues[queue].line.parked().count(), 0);
    assert_eq!(state.run(Time(1)).admitted.len(), 1);
}

/// Cohorts that are their own ancestors disable what hangs on them, and nothing else.
#[test]
fn a_circle_of_cohorts_is_cut_off() {
    let mut state = empty(Settings::default(), &["a"]);
    for (name, parent) in [("x", "y"), ("y", "x")] {
        state.cohort_specs.insert(
            name.into(),
            Cohort {
                name: name.into(),
                parent: Some(parent.into()),
                groups: Vec::new(),
                weight: Weight::default(),
            },
        );
    }
    add_queue(&mut state, cluster_queue("bad", Some("x"), vec![quotas("a", 5, None, None)]));
    add_queue(&mut state, cluster_queue("good", Some("z"), vec![quotas("a", 5, None, None)]));
    for name in ["bad", "good"] {
        state.put_workload(workload(name, name, 0, 0, 1, 1), Time(0));
    }
    let admitted: Vec<_> = state.run(Time(0)).admitted.into_iter().map(|a| a.key.name.to_string()).collect();
    assert_eq!(admitted, ["good"]);
}
