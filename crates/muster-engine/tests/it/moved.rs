//! How many gangs are moved for one: what it takes over from others, who had them moved, counts.

use crate::small::{NOON, amounts, gang, leaf, node, one_gpu, pod, queue};
use muster_engine::Engine;
use muster_engine::audit::audit;
use muster_model::{Action, Cluster, Expr, GPU, Op, PodState, Policy, Resource, Shape};
use std::sync::Arc;

/// Gangs that wait: name, priority, and for each pod how many GPUs it asks for. The first pod is the minimum.
type Waiting<'a> = &'a [(&'a str, i32, &'a [i64])];

fn asking_gpus(n: i64) -> Shape {
    let mut shape = one_gpu();
    shape.requests.set(Resource::Gpu, n * GPU);
    shape
}

fn only_here(n: i64) -> Shape {
    let mut shape = asking_gpus(n);
    shape.node.all.push(Expr { key: "host".into(), op: Op::In(vec!["here".into()]) });
    shape
}

/// A node of four GPUs, where those who wait must be: `runs` has two of them, must be there too and is of low priority; `x` and `y` have one
/// each and could be on the other node, which has room for just them.
fn crowded(waiting: Waiting<'_>) -> Cluster {
    let nodes = [("here", 4), ("there", 2)];
    let mut cluster = Cluster {
        now: NOON,
        nodes: nodes.map(|(name, n)| Arc::new(node(name, amounts(10_000, 1 << 30, n * GPU, 10)))).into(),
        queues: vec![Arc::new(queue("team", None))],
        ..Cluster::default()
    };
    for (name, priority, shape) in
        [("runs", 1, only_here(2)), ("x", 9, asking_gpus(1)), ("y", 9, asking_gpus(1))]
    {
        let mut gang = gang(name, vec![leaf(1)]);
        gang.priority = priority;
        let mut pod = pod(name, name, shape);
        (pod.state, pod.node) = (PodState::Running, Some("here".into()));
        cluster.gangs.push(Arc::new(gang));
        cluster.pods.push(Arc::new(pod));
    }
    for (name, priority, pods) in waiting {
        let mut gang = gang(name, vec![leaf(1)]);
        gang.priority = *priority;
        cluster.gangs.push(Arc::new(gang));
        for (i, gpus) in pods.iter().enumerate() {
            cluster.pods.push(Arc::new(pod(&format!("{name}{i}"), name, only_here(*gpus))));
        }
    }
    cluster
}

/// With at most so many moved for one: who is evicted, `*` if moved, and for whom; and who of those that wait is promised a place.
#[track_caller]
fn check(waiting: Waiting<'_>, most: Option<u32>, actions: &[Action], evicted: &[&str], promised: &[&str]) {
    let cluster = crowded(waiting);
    let policy = Policy { max_consolidation_victims: most, actions: actions.to_vec(), ..Policy::default() };
    let decisions = Engine::build(cluster.clone(), policy.clone()).0.cycle(cluster.now);
    assert_eq!(audit(&cluster, &policy, &decisions), []);
    let mut lines: Vec<String> = decisions
        .evictions
        .iter()
        .map(|e| {
            let by = e.by.as_ref().map_or("nobody", |by| &*by.name);
            format!("{}{} for {by}", e.pod.name, if e.moved { "*" } else { "" })
        })
        .collect();
    lines.sort();
    assert_eq!(lines, evicted);
    let there = |pod: &str| ["runs", "x", "y"].contains(&pod);
    let mut names: Vec<&str> =
        decisions.pipelined.iter().map(|p| &*p.pod.name).filter(|p| !there(p)).collect();
    names.sort_unstable();
    assert_eq!(names, promised);
    assert!(decisions.binds.is_empty(), "nothing is free here");
}

const ALL: [Action; 3] = [Action::Allocate, Action::Consolidate, Action::Preempt];

/// One of each has somebody moved. Who then takes both places had both moved.
#[test]
fn moves_for_several_are_not_taken_over_by_one() {
    let waiting: Waiting<'_> = &[("big", 8, &[4]), ("m", 5, &[1]), ("n", 5, &[1])];
    for most in [Some(2), None] {
        check(waiting, most, &ALL, &["runs for big", "x* for big", "y* for big"], &["big0"]);
    }
    check(waiting, Some(1), &ALL, &["x* for m", "y* for n"], &["m0", "n0"]);
    // One of them is not too many.
    let waiting: Waiting<'_> = &[("big", 8, &[3]), ("m", 5, &[1])];
    check(waiting, Some(1), &ALL, &["runs for big", "x* for big"], &["big0"]);
}

/// Who had somebody moved for one of its pods takes over another's place for the next.
#[test]
fn moves_of_its_own_count_with_those_taken_over() {
    let waiting: Waiting<'_> = &[("big", 8, &[1, 3]), ("m", 5, &[1])];
    for most in [Some(2), None] {
        check(waiting, most, &ALL, &["runs for big", "x* for big", "y* for big"], &["big0", "big1"]);
    }
    check(waiting, Some(1), &ALL, &["x* for big", "y* for m"], &["big0", "m0"]);
}

/// A policy may have gangs moved more than once in a cycle; what one gang may have moved stays the same.
#[test]
fn moves_of_the_whole_cycle_count() {
    let twice = [Action::Allocate, Action::Consolidate, Action::Consolidate];
    let waiting: Waiting<'_> = &[("m", 5, &[1, 1])];
    check(waiting, Some(2), &twice, &["x* for m", "y* for m"], &["m0", "m1"]);
    check(waiting, Some(1), &twice, &["x* for m"], &["m0"]);
}
