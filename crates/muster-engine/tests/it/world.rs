//! A cluster that lives on between cycles: what was decided happens, other things happen beside it, and the engine hears of all of it as changes.
//!
//! After every cycle the auditor looks at the decisions, and an engine that is built anew from the same cluster must decide the same.

use muster_engine::Engine;
use muster_engine::audit::audit;
use muster_generate::{Sizes, changes, cluster};
use muster_model::{
    Action, Bound, Change, Cluster, Decisions, GpuOrder, Grace, Key, Pod, PodState, Policy, Span, Strategy,
    Time,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// A policy of this seed.
pub fn policy(seed: u64) -> Policy {
    let mut dice = Dice::new(seed ^ 0x5eed);
    let strategy = |n| match n {
        0 => None,
        1 => Some(Strategy::Spread),
        _ => Some(Strategy::Binpack),
    };
    Policy {
        gpu_strategy: strategy(dice.roll(5)),
        cpu_strategy: strategy(dice.roll(5)),
        gpu_order: match dice.roll(4) {
            0 => None,
            1 => Some(GpuOrder::Spread),
            _ => Some(GpuOrder::Pack),
        },
        max_consolidation_victims: [None, Some(0), Some(2), Some(16)][dice.roll(4) as usize],
        consolidating_reclaim: dice.roll(4) > 0,
        staleness_grace: [Grace::Forever, Grace::For(Span::ZERO), Grace::For(Span::seconds(60))]
            [dice.roll(3) as usize],
        usage_weight: [0, 500, 1000][dice.roll(3) as usize],
        numa: dice.roll(3) == 0,
        quotas: dice.roll(10) > 0,
        gang_search_budget: Some(300),
        action_search_budget: Some(2_000),
        ..Policy::default()
    }
}

/// Lives through some cycles and says what was wrong, if anything.
pub fn live(seed: u64, sizes: &Sizes, cycles: u32) -> Result<Tale, String> {
    let mut world = cluster(seed, sizes);
    let policy = policy(seed);
    let mut tale = Tale::default();
    let (mut engine, _) = Engine::build(world.clone(), policy.clone());
    for cycle in 0..cycles {
        let now = world.now;
        let decisions = engine.cycle(now);
        let at = |what: &str| format!("seed {seed}, cycle {cycle}: {what}");
        let findings = audit(&world, &policy, &decisions);
        if let Some(finding) = findings.first() {
            let mut all: Vec<String> = findings.iter().take(5).map(|f| format!("  {f}")).collect();
            all.extend(decisions.evictions.iter().map(|e| {
                format!(
                    "  evict {} of {} by {:?} {:?} moved {}",
                    e.pod,
                    e.gang,
                    e.by.as_ref().map(Key::to_string),
                    e.action,
                    e.moved
                )
            }));
            all.extend(
                decisions
                    .pipelined
                    .iter()
                    .map(|p| format!("  promise {} {:?} {}", p.pod, p.action, p.placement.node)),
            );
            all.extend(
                decisions
                    .binds
                    .iter()
                    .map(|b| format!("  bind {} {:?} {}", b.pod, b.action, b.placement.node)),
            );
            let text = finding.to_string();
            all.extend(
                world.pods.iter().filter(|p| p.node.as_ref().is_some_and(|n| text.contains(&**n))).map(|p| {
                    format!(
                        "  there {} {:?} {:?} {} {:?} {:?} {:?}",
                        p.key,
                        p.state,
                        p.node,
                        p.shape.requests,
                        p.shape.gpu_share,
                        p.gpu_groups,
                        p.gang.is_some()
                    )
                }),
            );
            all.extend(
                decisions
                    .binds
                    .iter()
                    .filter(|b| text.contains(&*b.placement.node))
                    .map(|b| format!("  binds {} {:?}", b.pod, b.placement)),
            );
            all.extend(world.gangs.iter().filter(|g| text.contains(&*g.key.name)).map(|g| {
                format!(
                    "  gang {} {:?} {:?}",
                    g.key,
                    g.preemptibility,
                    g.groups.iter().map(|g| (g.name.clone(), g.parent, g.min)).collect::<Vec<_>>()
                )
            }));
            all.extend(
                world
                    .pods
                    .iter()
                    .filter(|p| p.gang.as_ref().is_some_and(|g| text.contains(&*g.name)))
                    .map(|p| format!("  member {} {:?} {:?} {:?}", p.key, p.group, p.state, p.node)),
            );
            return Err(at(&format!("{finding} (and {} more)\n{}", findings.len() - 1, all.join("\n"))));
        }
        let (mut fresh, _) = Engine::build(world.clone(), policy.clone());
        let again = fresh.cycle(now);
        if again != decisions {
            return Err(at(&difference(&decisions, &again)));
        }
        tale.add(&decisions);
        let happened = happen(&world, &decisions, seed.wrapping_add(u64::from(cycle)));
        for change in &happened {
            apply(&mut world, change);
        }
        engine.apply(happened);
        let more = changes(seed.wrapping_mul(31).wrapping_add(u64::from(cycle)), &world, 3);
        for change in &more {
            apply(&mut world, change);
        }
        engine.apply(more);
        world.now = now + Span::seconds(30);
    }
    Ok(tale)
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
    fn add(&mut self, decisions: &Decisions) {
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

fn difference(a: &Decisions, b: &Decisions) -> String {
    if a.binds != b.binds {
        return format!("binds by changes {:?}, built anew {:?}", a.binds, b.binds);
    }
    if a.evictions != b.evictions {
        return format!("evictions by changes {:?}, built anew {:?}", a.evictions, b.evictions);
    }
    if a.pipelined != b.pipelined {
        return format!("promises by changes {:?}, built anew {:?}", a.pipelined, b.pipelined);
    }
    let differs = a.refusals.iter().zip(&b.refusals).find(|(x, y)| x != y);
    format!("refusals differ ({} and {}): {differs:?}", a.refusals.len(), b.refusals.len())
}

/// What becomes of decisions: bound pods run, evicted ones go at once or linger, and come back as new pods.
pub fn happen(world: &Cluster, decisions: &Decisions, seed: u64) -> Vec<Change> {
    let mut dice = Dice::new(seed);
    let pods: BTreeMap<&Key, &Arc<Pod>> = world.pods.iter().map(|p| (&p.key, p)).collect();
    let mut out = Vec::new();
    for bind in &decisions.binds {
        if let Some(pod) = pods.get(&bind.pod) {
            let placement = &bind.placement;
            out.push(Change::PutPod(Arc::new(Pod {
                state: [PodState::Running, PodState::Bound][dice.roll(2) as usize],
                node: Some(placement.node.clone()),
                gpu_groups: placement.gpu_groups.clone(),
                gpus: placement.gpus.clone(),
                zones: placement.zones.clone(),
                ..Pod::clone(pod)
            })));
        }
    }
    for evict in &decisions.evictions {
        if let Some(pod) = pods.get(&evict.pod) {
            out.push(if dice.roll(3) == 0 {
                Change::PutPod(Arc::new(Pod { state: PodState::Releasing, ..Pod::clone(pod) }))
            } else {
                Change::PutPod(Arc::new(Pod {
                    state: PodState::Pending,
                    node: None,
                    gpu_groups: Vec::new(),
                    gpus: Vec::new(),
                    zones: Vec::new(),
                    ..Pod::clone(pod)
                }))
            });
        }
    }
    out
}

/// The same change to the cluster as a value.
pub fn apply(world: &mut Cluster, change: &Change) {
    fn put<T, K: PartialEq>(list: &mut Vec<Arc<T>>, item: &Arc<T>, key: impl Fn(&T) -> K) {
        match list.iter_mut().find(|other| key(other) == key(item)) {
            Some(other) => *other = item.clone(),
            None => list.push(item.clone()),
        }
    }
    match change {
        Change::PutNode(n) => put(&mut world.nodes, n, |n| n.name.clone()),
        Change::DropNode(name) => world.nodes.retain(|n| n.name != *name),
        Change::PutPod(p) => put(&mut world.pods, p, |p| p.key.clone()),
        Change::DropPod(key) => world.pods.retain(|p| p.key != *key),
        Change::PutGang(g) => put(&mut world.gangs, g, |g| g.key.clone()),
        Change::DropGang(key) => world.gangs.retain(|g| g.key != *key),
        Change::PutQueue(q) => put(&mut world.queues, q, |q| q.name.clone()),
        Change::DropQueue(name) => world.queues.retain(|q| q.name != *name),
        Change::PutTopology(t) => put(&mut world.topologies, t, |t| t.name.clone()),
        Change::DropTopology(name) => world.topologies.retain(|t| t.name != *name),
        Change::PutDevice(d) => put(&mut world.devices, d, |d| d.name.clone()),
        Change::DropDevice(name) => world.devices.retain(|d| d.name != *name),
        Change::PutClaim(c) => put(&mut world.claims, c, |c| c.key.clone()),
        Change::DropClaim(key) => world.claims.retain(|c| c.key != *key),
    }
}

/// Only allocate.
pub fn allocating() -> Policy {
    Policy { actions: vec![Action::Allocate], ..Policy::default() }
}

/// Nothing bounded.
pub fn unlimited(bound: Bound) -> bool {
    bound == Bound::Unlimited
}

pub const NOON: Time = Time(1_767_268_800_000);
