//! When a cycle is worth running although nothing has changed.

use crate::small::{NOON, amounts, gang, leaf, node, one_gpu, pod, queue};
use muster_engine::Engine;
use muster_model::{Action, Cluster, GPU, Gang, Grace, PodState, Policy, Span};
use std::sync::Arc;

fn after(seconds: i64) -> Span {
    Span::seconds(seconds)
}

/// A gang of two, of which one runs and the other is in this state, or is not there.
fn half_there(other: Option<PodState>, change: impl FnOnce(&mut Gang)) -> Cluster {
    let mut gang = gang("half", vec![leaf(2)]);
    change(&mut gang);
    let mut cluster = Cluster {
        now: NOON,
        nodes: vec![Arc::new(node("node", amounts(10_000, 1 << 30, GPU, 10)))],
        queues: vec![Arc::new(queue("team", None))],
        gangs: vec![Arc::new(gang)],
        ..Cluster::default()
    };
    for (name, state) in [("first", Some(PodState::Running)), ("second", other)] {
        let Some(state) = state else { continue };
        let mut pod = pod(name, "half", one_gpu());
        pod.state = state;
        pod.node = (state == PodState::Running).then(|| "node".into());
        cluster.pods.push(Arc::new(pod));
    }
    cluster
}

/// How long after noon the next moment is, as a cycle at noon leaves things; and a cycle just before it decides what the one at noon did.
#[track_caller]
fn check(cluster: Cluster, policy: &Policy, expected: Option<Span>) {
    let mut engine = Engine::build(cluster.clone(), policy.clone()).0;
    let first = engine.cycle(NOON);
    let next = engine.next_moment(NOON);
    assert_eq!(next.map(|moment| moment - NOON), expected);
    let Some(next) = next else { return };
    let cycle = |now| Engine::build(cluster.clone(), policy.clone()).0.cycle(now);
    assert_eq!(cycle(next + Span(-1)).evictions, first.evictions);
    assert_ne!(cycle(next), first, "something is due");
}

#[test]
fn a_gang_below_its_minimum_is_due_when_its_grace_ends() {
    let policy = Policy { staleness_grace: Grace::For(after(60)), ..Policy::default() };
    let since = |ago: i64| move |gang: &mut Gang| gang.stale_since = Some(NOON + after(-ago));
    // Nothing waits in the cluster, and still.
    check(half_there(None, since(20)), &policy, Some(after(40)));
    check(half_there(Some(PodState::Gated), since(59)), &policy, Some(after(1)));
    check(half_there(Some(PodState::Pending), since(20)), &policy, Some(after(40)));
    // It is whole again, or done for, or nobody minds.
    check(half_there(Some(PodState::Releasing), since(20)), &policy, None);
    check(half_there(Some(PodState::Succeeded), since(20)), &policy, None);
    check(half_there(None, since(80)), &policy, None);
    let forever = Policy { staleness_grace: Grace::Forever, ..policy.clone() };
    check(half_there(None, since(20)), &forever, None);
    let never = Policy { actions: vec![Action::Allocate], ..policy };
    check(half_there(None, since(20)), &never, None);
}

/// The record that a gang fell below its minimum is written after the cycle that saw it, and may be lost.
#[test]
fn a_gang_whose_record_is_yet_to_come_is_due_a_grace_from_now() {
    let policy = Policy { staleness_grace: Grace::For(after(60)), ..Policy::default() };
    let mut engine = Engine::build(half_there(None, |_| ()), policy).0;
    assert_eq!(engine.cycle(NOON).newly_stale.len(), 1);
    assert_eq!(engine.next_moment(NOON), Some(NOON + after(60)));
}

/// Protections end for nobody while nobody waits.
#[test]
fn what_only_those_who_wait_look_at_is_no_moment_without_them() {
    let policy =
        Policy { preempt_min_runtime: after(300), staleness_grace: Grace::Forever, ..Policy::default() };
    let started = |gang: &mut Gang| gang.last_start = Some(NOON);
    let moment = |cluster| {
        let mut engine = Engine::build(cluster, policy.clone()).0;
        engine.cycle(NOON);
        engine.next_moment(NOON)
    };
    assert_eq!(moment(half_there(None, started)), None);
    assert_eq!(moment(half_there(Some(PodState::Pending), started)), Some(NOON + after(300)));
}
