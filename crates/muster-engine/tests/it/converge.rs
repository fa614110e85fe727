//! Where clusters come to rest that are left alone, whoever's queues they are and whoever else is there: shares are what weights and quotas say,
//! what was borrowed is given back, and nobody loses more than it must. All pods ask for one GPU, so that room is never in the wrong place.

use crate::volcano::{ALL, name, node, policy};
use muster_engine::divide::{Claimant, divide};
use muster_engine::{Engine, audit};
use muster_model::volcano::{Group as Facts, Leaf, Phase, Queue as QueueFacts, SubGroup, Task};
use muster_model::{
    Bound, Cluster, Decisions, Dialect, GPU, Gang, Group, Key, Min, Name, Pod, PodState, Policy,
    Preemptibility, Queue, Reclaim, Resource, Shape, Share, Span, Time,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: Time = Time(1_000_000_000);
const PER_NODE: i64 = 4;

/// A queue: what it deserves in GPUs, its weight, and its rank.
#[derive(Clone, Copy, Debug)]
struct Claim {
    quota: i64,
    weight: i64,
    priority: i32,
}

struct World {
    cluster: Cluster,
    free: i64,
}

impl World {
    fn of(n_nodes: usize) -> Self {
        let mut cluster = Cluster { now: NOW, ..Cluster::default() };
        for i in 0..n_nodes {
            let amounts = [(Resource::Cpu, 64_000), (Resource::Gpu, PER_NODE * GPU), (Resource::Pods, 110)];
            cluster.nodes.push(node(i, amounts));
        }
        Self { free: PER_NODE * n_nodes as i64, cluster }
    }

    fn queue(&mut self, tree: Dialect, i: usize, claim: Claim, facts: Option<QueueFacts>) -> Name {
        let own = name(tree_prefix(tree), i);
        let limit = if tree == Dialect::T9k { Bound::At(claim.quota * GPU) } else { Bound::Unlimited };
        let gpu = Share {
            quota: Bound::At(claim.quota * GPU),
            limit,
            weight: claim.weight * 1000,
            ..Share::default()
        };
        let free = Share { quota: Bound::Unlimited, weight: 1000, ..Share::default() };
        self.cluster.queues.push(Arc::new(Queue {
            name: own.clone(),
            uid: own.clone(),
            display: None,
            parent: None,
            priority: claim.priority,
            created: Time(i as i64),
            shares: [(Resource::Gpu, gpu), (Resource::Cpu, free), (Resource::Memory, free)].into(),
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
            reclaim: Reclaim::default(),
            usage: BTreeMap::new(),
            tree,
            volcano: facts.map(Arc::new),
        }));
        own
    }

    /// A gang of so many pods, running as far as there is room if it runs at all.
    fn gang(&mut self, queue: &Name, own: &str, pods: u32, min: u32, runs: bool) {
        let tree = self.cluster.queues.iter().find(|q| q.name == *queue).map(|q| q.dialect());
        let is_volcano = tree == Some(Dialect::Volcano);
        let key = Key::new("ns", own);
        let facts = Facts {
            phase: if runs { Phase::Running } else { Phase::Inqueue },
            min_member: min,
            sub_groups: vec![SubGroup { id: "".into(), policy: None, index: 0 }],
            leaves: vec![Leaf { group: 0, sub: 0, role: "".into() }],
            ..Facts::default()
        };
        let runs = runs && self.free >= i64::from(min);
        self.cluster.gangs.push(Arc::new(Gang {
            key: key.clone(),
            uid: own.into(),
            queue: queue.clone(),
            priority: 50,
            preemptibility: Preemptibility::Preemptible,
            created: Time(self.cluster.gangs.len() as i64),
            groups: vec![Group { name: "".into(), parent: None, min: Min::Pods(min), topology: None }],
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: Span::ZERO,
            staleness_grace: None,
            declared_end: None,
            volcano: is_volcano.then(|| Arc::new(facts)),
        }));
        let shape = Arc::new(Shape {
            requests: [(Resource::Gpu, GPU), (Resource::Pods, 1)].into_iter().collect(),
            ..Shape::default()
        });
        for i in 0..pods {
            let pod = Name::from(format!("{own}-{i}"));
            let seat = runs && self.free > 0;
            let total = PER_NODE * self.cluster.nodes.len() as i64;
            let node = seat.then(|| name("n", ((total - self.free) / PER_NODE) as usize));
            self.free -= i64::from(seat);
            self.cluster.pods.push(Arc::new(Pod {
                key: Key::new("ns", pod.clone()),
                uid: pod,
                gang: Some(key.clone()),
                group: None,
                created: Time(i64::from(i)),
                state: if seat { PodState::Running } else { PodState::Pending },
                node,
                shape: shape.clone(),
                labels: Arc::new(BTreeMap::new()),
                rank: 0,
                task_priority: None,
                gpu_groups: Vec::new(),
                gpus: Vec::new(),
                zones: Vec::new(),
                nominated: None,
                volcano: is_volcano.then(|| {
                    Arc::new(Task {
                        role: "".into(),
                        priority: 1,
                        pod_priority: 0,
                        index: None,
                        preemptable: true,
                        never_preempts: false,
                        revocable: false,
                        cooldown_until: None,
                        critical: false,
                        started: None,
                        devices: Vec::new(),
                        fit: None,
                        fit_weights: None,
                        images: Vec::new(),
                    })
                }),
            }));
        }
    }

    /// What a queue holds, in GPUs.
    fn held(&self, queue: &Name) -> i64 {
        let of = |pod: &&Arc<Pod>| {
            let gang = self.cluster.gangs.iter().find(|gang| Some(&gang.key) == pod.gang.as_ref());
            gang.is_some_and(|gang| gang.queue == *queue)
        };
        self.cluster.pods.iter().filter(of).filter(|pod| pod.state == PodState::Running).count() as i64
    }

    /// What decisions come to once everyone has gone who has to, and comes back as who waits.
    fn happen(&mut self, decisions: &Decisions) {
        for slot in &mut self.cluster.pods {
            let pod = Arc::make_mut(slot);
            if let Some(bind) = decisions.binds.iter().find(|bind| bind.pod == pod.key) {
                pod.state = PodState::Running;
                pod.node = Some(bind.placement.node.clone());
            }
            if decisions.evictions.iter().any(|evict| evict.pod == pod.key) {
                pod.state = PodState::Pending;
                pod.node = None;
            }
        }
    }

    /// Lives on until nothing happens any more; how many lost their places on the way. `each` looks at every cycle.
    fn settle(
        &mut self,
        policy: &Policy,
        mut each: impl FnMut(&Self, &Decisions) -> Result<(), TestCaseError>,
    ) -> Result<usize, TestCaseError> {
        let mut lost = 0;
        for _ in 0..100 {
            let decisions = Engine::build(self.cluster.clone(), policy.clone()).0.cycle(NOW);
            prop_assert_eq!(audit::audit(&self.cluster, policy, &decisions), vec![]);
            each(self, &decisions)?;
            if decisions.binds.is_empty() && decisions.evictions.is_empty() {
                return Ok(lost);
            }
            lost += decisions.evictions.len();
            self.happen(&decisions);
        }
        Err(TestCaseError::fail("never comes to rest"))
    }
}

fn tree_prefix(tree: Dialect) -> &'static str {
    match tree {
        Dialect::Kai => "k",
        Dialect::Volcano => "volcano/v",
        Dialect::T9k => "t9k/t",
        Dialect::Koordinator => "koordinator/o",
        Dialect::Kubernetes => "kubernetes/u",
    }
}

fn nothing(_: &World, _: &Decisions) -> Result<(), TestCaseError> {
    Ok(())
}

/// KAI's actions and Volcano's, with capacity.
fn of_both() -> Policy {
    Policy { volcano: policy(&ALL, false).volcano, ..Policy::default() }
}

fn claims() -> impl Strategy<Value = Vec<Claim>> {
    let claim = (0_i64..5, 1_i64..5).prop_map(|(quota, weight)| Claim { quota, weight, priority: 100 });
    proptest::collection::vec(claim, 2..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Queues that want everything come to hold their fair shares of what other systems leave, whoever had it before.
    #[test]
    fn fair_shares_are_reached(claims in claims(), n_nodes in 1_usize..5, others in 0_u32..4, greedy in 0_usize..4) {
        let mut world = World::of(n_nodes);
        let total = world.free;
        // Somebody of another tree, and one of Volcano's, who keep what they have.
        let t9k = world.queue(Dialect::T9k, 0, Claim { quota: 2, weight: 0, priority: 1 }, None);
        world.gang(&t9k, "other", others.min(2), others.min(2), true);
        let volcano = world.queue(Dialect::Volcano, 0, Claim { quota: 1, weight: 1, priority: 0 }, Some(QueueFacts {
            weight: 1, open: true, ..QueueFacts::default()
        }));
        if others > 2 {
            world.gang(&volcano, "foreign", 1, 1, true);
        }
        let left = world.free;
        let names: Vec<Name> = claims.iter().enumerate().map(|(i, claim)| world.queue(Dialect::Kai, i, *claim, None)).collect();
        let first = greedy % names.len();
        for k in 0..total {
            world.gang(&names[first], &format!("g{first}-{k}"), 1, 1, true);
        }
        for (i, queue) in names.iter().enumerate().filter(|(i, _)| *i != first) {
            for k in 0..total {
                world.gang(queue, &format!("g{i}-{k}"), 1, 1, false);
            }
        }
        world.settle(&of_both(), nothing)?;
        let claimants: Vec<Claimant> = claims.iter().zip(0..).map(|(claim, age_rank)| Claimant {
            quota: Bound::At(claim.quota * GPU),
            requestable: i128::from(total * GPU),
            weight: claim.weight * 1000,
            priority: 100,
            usage: 0,
            age_rank,
        }).collect();
        let fair = divide(i128::from(left * GPU), i128::from(GPU), 0, &claimants).fair;
        let held: Vec<i64> = names.iter().map(|queue| world.held(queue)).collect();
        prop_assert_eq!(held.iter().sum::<i64>(), left, "nothing is idle that somebody wants");
        let promised: i64 = claims.iter().map(|claim| claim.quota).sum();
        if promised <= left {
            let fair: Vec<i64> = fair.iter().map(|fair| (fair / i128::from(GPU)) as i64).collect();
            prop_assert_eq!(held, fair, "{:?}", claims);
        }
    }

    /// A gang that asks for no more than its queue's quota starts, and costs others no more than it needs.
    #[test]
    fn a_quota_is_given_back_in_whole_gangs(own in 1_u32..8, more in 0_u32..4, n_nodes in 2_usize..5, in_use in 0_i64..20) {
        let mut world = World::of(n_nodes);
        let total = world.free;
        let own = i64::from(own).min(total);
        let borrower = world.queue(Dialect::Kai, 0, Claim { quota: total - own, weight: 1, priority: 100 }, None);
        let owner = world.queue(Dialect::Kai, 1, Claim { quota: own, weight: 1, priority: 100 }, None);
        for k in 0..in_use.min(total) {
            world.gang(&borrower, &format!("b{k}"), 1, 1, true);
        }
        let free = world.free;
        world.gang(&owner, "claim", own as u32, own as u32, false);
        let lost = world.settle(&of_both(), nothing)?;
        prop_assert_eq!(world.held(&owner), own);
        prop_assert_eq!(lost as i64, (own - free).max(0));
        // Beyond its quota it may not push anybody out who is within. (Not at once: a smaller gang that fits what is idle would take it first.)
        world.gang(&owner, "more", more, more, false);
        prop_assert_eq!(world.settle(&of_both(), nothing)?, 0);
    }

    /// Volcano's queues get back what they deserve from queues that have more, as far as those may be reclaimed from, and never from what is
    /// guaranteed to them.
    #[test]
    fn volcano_gives_back_what_is_deserved(
        parts in proptest::collection::vec((0_i64..6, 0_i64..3, any::<bool>()), 2..4),
        n_nodes in 1_usize..4,
    ) {
        let mut world = World::of(n_nodes);
        let total = world.free;
        let mut left = total;
        let mut queues: Vec<(Name, i64, i64, bool)> = Vec::new();
        for (i, (deserved, guarantee, reclaimable)) in parts.iter().enumerate() {
            // The first has everything at the beginning.
            let deserved = (*deserved).min(left);
            let guarantee = (*guarantee).min(deserved);
            left -= deserved;
            let amounts = |n: i64| [(Resource::Gpu, n * GPU)].into_iter().filter(|(_, n)| *n > 0).collect();
            let facts = QueueFacts {
                weight: 1, open: true, reclaimable: *reclaimable,
                deserved: amounts(deserved), guarantee: amounts(guarantee), ..QueueFacts::default()
            };
            let claim = Claim { quota: deserved, weight: 1, priority: 0 };
            let queue = world.queue(Dialect::Volcano, i, claim, Some(facts));
            queues.push((queue, deserved, guarantee, *reclaimable));
        }
        for (i, (queue, ..)) in queues.iter().enumerate() {
            for k in 0..total {
                world.gang(queue, &format!("j{i}-{k}"), 1, 1, i == 0);
            }
        }
        let guarded = queues.clone();
        world.settle(&of_both(), |world, decisions| {
            for (queue, _, guarantee, reclaimable) in &guarded {
                let gone = decisions.evictions.iter().filter(|evict| {
                    world.cluster.gangs.iter().any(|gang| gang.key == evict.gang && gang.queue == *queue)
                }).count() as i64;
                prop_assert!(gone == 0 || *reclaimable, "{queue} may not be reclaimed from");
                prop_assert!(gone == 0 || world.held(queue) - gone >= *guarantee, "{queue} keeps its guarantee");
            }
            Ok(())
        })?;
        let gives = queues[0].3;
        for (queue, deserved, ..) in queues.iter().filter(|_| gives) {
            prop_assert!(world.held(queue) >= *deserved, "{queue} has {} of {deserved}", world.held(queue));
        }
        prop_assert!(gives || world.held(&queues[0].0) == total);
    }

    /// In T9k's tree nobody of a higher rank waits while somebody of a lower one holds what it could use.
    #[test]
    fn rank_decides_among_t9k_queues(ranks in proptest::collection::vec((1_i64..6, 0_i32..3), 2..4), n_nodes in 1_usize..4) {
        let mut world = World::of(n_nodes);
        let total = world.free;
        let mut queues: Vec<(Name, i64, i32)> = Vec::new();
        for (i, (quota, priority)) in ranks.iter().enumerate() {
            let claim = Claim { quota: *quota, weight: 0, priority: *priority };
            queues.push((world.queue(Dialect::T9k, i, claim, None), *quota, *priority));
        }
        for (i, (queue, quota, _)) in queues.iter().enumerate() {
            for k in 0..total {
                world.gang(queue, &format!("t{i}-{k}"), 1, 1, i == 0 && k < *quota);
            }
        }
        world.settle(&of_both(), nothing)?;
        for (queue, quota, rank) in &queues {
            let held = world.held(queue);
            prop_assert!(held <= *quota);
            let lower = queues.iter().filter(|(_, _, other)| other < rank);
            let theirs: i64 = lower.map(|(other, ..)| world.held(other)).sum();
            prop_assert!(held == (*quota).min(total) || theirs == 0, "{queue} waits below its quota, and {theirs} are held below it");
        }
    }
}
