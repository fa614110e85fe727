//! A cluster that lives on between cycles: what was decided happens, other things happen beside it, and the engine hears of all of it as changes.
//!
//! After every cycle the auditor looks at the decisions, and an engine that is built anew from the same cluster must decide the same.

use muster_engine::Engine;
use muster_engine::audit::{Finding, audit};
use muster_generate::{Rng, Sizes, apply, changes_among, cluster, consequences, mixed};
use muster_model::volcano::{CapacityConf, Conf, Filters, Hook, Hooks, Packing, Plugin, PluginKind, Weights};
use muster_model::{
    Action, Change, Claim, Cluster, Decisions, GpuOrder, Grace, Key, Name, Pod, PodState, Policy, Queue,
    Shape, Span, Strategy,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A policy of this seed.
pub fn policy(seed: u64) -> Policy {
    let mut rng = Rng::new(seed).fork(0x5eed);
    let strategies = [
        None,
        Some(Strategy::Spread),
        Some(Strategy::Binpack),
        Some(Strategy::Binpack),
        Some(Strategy::Binpack),
    ];
    let orders = [None, Some(GpuOrder::Spread), Some(GpuOrder::Pack), Some(GpuOrder::Pack)];
    let graces = [Grace::Forever, Grace::For(Span::ZERO), Grace::For(Span::seconds(60))];
    Policy {
        gpu_strategy: *rng.pick(&strategies),
        cpu_strategy: *rng.pick(&strategies),
        gpu_order: *rng.pick(&orders),
        max_consolidation_victims: *rng.pick(&[None, Some(0), Some(2), Some(16)]),
        consolidating_reclaim: rng.percent(75),
        staleness_grace: *rng.pick(&graces),
        usage_weight: *rng.pick(&[0, 500, 1000]),
        numa: rng.percent(33),
        quotas: rng.percent(90),
        gang_search_budget: Some(300),
        action_search_budget: Some(2_000),
        ..Policy::default()
    }
}

/// A policy of this seed for clusters in which several systems live: Volcano's plugins and actions besides, and what the trees have.
pub fn policy_of_many(seed: u64) -> Policy {
    let mut rng = Rng::new(seed).fork(0x0a11);
    let hooks = [
        Hook::JobOrder,
        Hook::TaskOrder,
        Hook::QueueOrder,
        Hook::JobReady,
        Hook::SubJobReady,
        Hook::JobPipelined,
        Hook::SubJobPipelined,
        Hook::JobStarving,
        Hook::JobEnqueued,
        Hook::Overused,
        Hook::Allocatable,
        Hook::Preemptive,
        Hook::Preemptable,
        Hook::Reclaimable,
        Hook::Predicate,
        Hook::NodeOrder,
        Hook::Victim,
    ];
    let all: Hooks = hooks.into_iter().collect();
    let on = |kind: PluginKind| Plugin { kind, enabled: all };
    let gang = if rng.percent(50) { all } else { all.without(Hook::Preemptable).without(Hook::Reclaimable) };
    let quotas = match rng.below(4) {
        0 => on(PluginKind::Proportion),
        1 => {
            let conf = CapacityConf { ancestor_reclaim_level: 1, ..CapacityConf::default() };
            Plugin { kind: PluginKind::Capacity(conf), enabled: all.with(Hook::Hierarchy) }
        }
        _ => on(PluginKind::Capacity(CapacityConf::default())),
    };
    let mut first = vec![on(PluginKind::Priority), Plugin { kind: PluginKind::Gang, enabled: gang }];
    let mut second = vec![on(PluginKind::Predicates(Filters::default())), quotas];
    if rng.percent(50) {
        first.push(on(PluginKind::Conformance));
    }
    if rng.percent(50) {
        second.push(on(PluginKind::Drf));
    }
    if rng.percent(50) {
        second.push(on(PluginKind::Overcommit { factor: 1200 }));
    }
    if rng.percent(30) {
        second.push(on(PluginKind::Cdp));
    }
    if rng.percent(70) {
        second.push(on(PluginKind::NodeOrder(Weights::default())));
    }
    if rng.percent(50) {
        second.push(on(PluginKind::Binpack(Packing::default())));
    }
    use Action::{Allocate, Backfill, Enqueue, GangPreempt, GangReclaim, Preempt, Reclaim};
    let lists: [&[Action]; 5] = [
        &[Enqueue, Allocate, Backfill],
        &[Enqueue, Allocate, Preempt, Reclaim, Backfill],
        &[Allocate, Reclaim, Preempt, Backfill],
        &[Enqueue, Allocate, Backfill, GangPreempt, GangReclaim],
        &[Reclaim, Allocate, Preempt],
    ];
    let conf = Conf { actions: rng.pick(&lists).to_vec(), tiers: vec![first, second], ..Conf::default() };
    Policy { volcano: Some(Arc::new(conf)), trees: muster_generate::trees(seed), ..policy(seed) }
}

/// Lives through some cycles. Says what happened, or what was wrong, with a seed and a story.
pub fn live(seed: u64, sizes: &Sizes, cycles: u32) -> Result<Tale, String> {
    live_in(cluster(seed, sizes), seed, &policy(seed), cycles)
}

/// The same where several systems live.
pub fn live_mixed(seed: u64, sizes: &Sizes, cycles: u32) -> Result<Tale, String> {
    let policy = policy_of_many(seed);
    live_in(mixed(seed, sizes, &policy.trees), seed, &policy, cycles).map_err(|what| format!("mixed {what}"))
}

fn live_in(mut world: Cluster, seed: u64, policy: &Policy, cycles: u32) -> Result<Tale, String> {
    let mut tale = Tale::default();
    let (mut engine, _) = Engine::build(world.clone(), policy.clone());
    for cycle in 0..cycles {
        let decisions = watched(&mut engine, &world, policy)
            .map_err(|story| format!("seed {seed}, cycle {cycle}: {story}"))?;
        tale.add(&decisions);
        let mut rng = Rng::new(seed).fork(u64::from(cycle));
        let happened = happen(&world, &decisions, &mut rng);
        apply(&mut world, happened.clone());
        engine.apply(happened);
        let more = changes_among(rng.number(), &world, 3, &policy.trees);
        apply(&mut world, more.clone());
        engine.apply(more);
        world.now = world.now + Span::seconds(30);
    }
    Ok(tale)
}

/// A cycle whose decisions the auditor finds nothing wrong with, and which an engine that was built anew decides as well.
pub fn watched(engine: &mut Engine, world: &Cluster, policy: &Policy) -> Result<Decisions, String> {
    let decisions = engine.cycle(world.now);
    let findings = audit(world, policy, &decisions);
    if !findings.is_empty() {
        return Err(story(world, &decisions, &findings));
    }
    let again = Engine::build(world.clone(), policy.clone()).0.cycle(world.now);
    if again != decisions {
        return Err(difference(&decisions, &again));
    }
    Ok(decisions)
}

/// How much happened, so that nobody celebrates tests of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tale {
    pub binds: usize,
    pub evictions: usize,
    pub promises: usize,
    pub refusals: usize,
}

impl Tale {
    pub fn add(&mut self, decisions: &Decisions) {
        self.binds += decisions.binds.len();
        self.evictions += decisions.evictions.len();
        self.promises += decisions.pipelined.len();
        self.refusals += decisions.refusals.len();
    }

    pub fn join(&mut self, other: &Self) {
        self.binds += other.binds;
        self.evictions += other.evictions;
        self.promises += other.promises;
        self.refusals += other.refusals;
    }
}

/// What was found, what was decided about the objects that are named, and who else is concerned.
fn story(world: &Cluster, decisions: &Decisions, findings: &[Finding]) -> String {
    const LINES: usize = 60;
    let texts: Vec<String> = findings.iter().take(5).map(Finding::to_string).collect();
    let named: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || "-./_".contains(c))))
        .map(|word| word.trim_end_matches('.'))
        .collect();
    let is_named = |key: &Key| named.contains(key.to_string().as_str());
    // A queue answers for the gangs in it and below it.
    let in_named_queue: BTreeSet<&Key> = world
        .gangs
        .iter()
        .filter(|gang| line_of(world, &gang.queue).any(|queue| named.contains(&*queue.name)))
        .map(|gang| &gang.key)
        .collect();
    let is_concerned = |gang: &Key| is_named(gang) || in_named_queue.contains(gang);
    let mut lines: Vec<String> = Vec::new();
    for evict in &decisions.evictions {
        let by = evict.by.as_ref();
        if is_named(&evict.pod) || is_concerned(&evict.gang) || by.is_some_and(is_concerned) {
            let by = by.map_or_else(|| "nobody".into(), Key::to_string);
            let moved = if evict.moved { ", moved" } else { "" };
            lines.push(format!(
                "{}: evict {} of {} for {by}{moved}",
                evict.action.name(),
                evict.pod,
                evict.gang
            ));
        }
    }
    let placed = decisions.binds.iter().map(|b| ("bind", &b.pod, &b.gang, b.action, &b.placement));
    let promised = decisions.pipelined.iter().map(|p| ("promise", &p.pod, &p.gang, p.action, &p.placement));
    for (what, pod, gang, action, place) in placed.chain(promised) {
        if is_named(pod) || is_concerned(gang) || named.contains(&*place.node) {
            let (node, groups, gpus) = (&place.node, &place.gpu_groups, &place.gpus);
            lines.push(format!("{}: {what} {pod} of {gang} to {node} {groups:?} {gpus:?}", action.name()));
        }
    }
    for gang in world.gangs.iter().filter(|gang| is_named(&gang.key)) {
        let groups: Vec<_> = gang.groups.iter().map(|g| (&*g.name, g.parent, g.min)).collect();
        lines.push(format!("{} in {}: {:?} {groups:?}", gang.key, gang.queue, gang.preemptibility));
    }
    for queue in world.queues.iter().filter(|queue| named.contains(&*queue.name)) {
        lines.push(format!("{} under {:?}: {:?}", queue.name, queue.parent, queue.shares));
    }
    for pod in &world.pods {
        let here = pod.state.holds_room() && pod.node.as_ref().is_some_and(|node| named.contains(&**node));
        let member = |gang: &Key| is_named(gang) || (pod.state.stays() && in_named_queue.contains(gang));
        if here || is_named(&pod.key) || pod.gang.as_ref().is_some_and(member) {
            let Pod { key, state, group, node, gpu_groups, shape, .. } = &**pod;
            let Shape { requests, gpu_share, extra_gpu_charge, .. } = &**shape;
            lines.push(format!(
                "{key}: {state:?} {group:?} at {node:?} {gpu_groups:?} asks {requests} {gpu_share:?} {extra_gpu_charge}"
            ));
        }
    }
    let left_out = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    if left_out > 0 {
        lines.push(format!("and {left_out} more"));
    }
    let (found, about) = (texts.join("\n  "), lines.join("\n    "));
    format!("{} findings\n  {found}\n    {about}", findings.len())
}

/// The queue and those above it.
fn line_of<'a>(world: &'a Cluster, queue: &'a Name) -> impl Iterator<Item = &'a Queue> {
    let find = |name: &Name| world.queues.iter().find(|queue| queue.name == *name).map(|queue| &**queue);
    let above = move |queue: &&'a Queue| queue.parent.as_ref().and_then(find);
    std::iter::successors(find(queue), above).take(world.queues.len())
}

fn difference(a: &Decisions, b: &Decisions) -> String {
    fn first<T: PartialEq + std::fmt::Debug>(what: &str, a: &[T], b: &[T]) -> Option<String> {
        let at = (0..a.len().max(b.len())).find(|i| a.get(*i) != b.get(*i))?;
        let (x, y) = (a.get(at), b.get(at));
        let (n, m) = (a.len(), b.len());
        Some(format!("{what} {at} (of {n} and {m}) differs:\n  by changes {x:?}\n  built anew {y:?}"))
    }
    first("eviction", &a.evictions, &b.evictions)
        .or_else(|| first("bind", &a.binds, &b.binds))
        .or_else(|| first("promise", &a.pipelined, &b.pipelined))
        .or_else(|| first("refusal", &a.refusals, &b.refusals))
        .or_else(|| first("newly stale", &a.newly_stale, &b.newly_stale))
        .unwrap_or_default()
}

/// What becomes of decisions: bound pods run sooner or later, evicted ones linger, or are gone and come back as new pods.
fn happen(world: &Cluster, decisions: &Decisions, rng: &mut Rng) -> Vec<Change> {
    let mut out = Vec::new();
    for change in consequences(world, decisions) {
        match change {
            Change::PutPod(pod) if pod.state == PodState::Bound && rng.percent(50) => {
                out.push(Change::PutPod(Arc::new(Pod { state: PodState::Running, ..Pod::clone(&pod) })));
            }
            Change::PutPod(pod) if pod.state == PodState::Releasing && rng.percent(67) => {
                out.extend(released_claims(world, &pod));
                out.push(Change::PutPod(Arc::new(anew(&pod))));
            }
            other => out.push(other),
        }
    }
    out
}

/// The pod as its owner makes it again: nowhere.
pub fn anew(pod: &Pod) -> Pod {
    Pod {
        state: PodState::Pending,
        node: None,
        gpu_groups: Vec::new(),
        gpus: Vec::new(),
        zones: Vec::new(),
        ..pod.clone()
    }
}

/// A pod that is gone holds its claims no longer, and a claim that nobody holds is free.
pub fn released_claims(world: &Cluster, pod: &Pod) -> Vec<Change> {
    let used: BTreeSet<&Key> = pod.shape.claims.iter().map(|used| &used.claim).collect();
    let claims = world.claims.iter().filter(|claim| used.contains(&claim.key));
    claims
        .map(|claim| {
            let reserved_for: Vec<Name> =
                claim.reserved_for.iter().filter(|uid| **uid != pod.uid).cloned().collect();
            let allocation = claim.allocation.clone().filter(|_| !reserved_for.is_empty());
            Change::PutClaim(Arc::new(Claim { reserved_for, allocation, ..Claim::clone(claim) }))
        })
        .collect()
}
