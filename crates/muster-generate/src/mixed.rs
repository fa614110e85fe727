//! Clusters in which several systems live at once: beside KAI's tree there are queues of Volcano, T9k, Koordinator and Kubernetes, and gangs of
//! each in them, in all the states and with all the oddities that gangs have here.
//!
//! In: a seed, sizes, and what the trees have of the cluster. Out: a cluster as [`crate::cluster`] makes it. Where a tree has nodes of its own, pods
//! ask for those nodes, as translation makes them do.

use crate::random::{Maker, NOW};
use crate::{Rng, Sizes};
use muster_model::volcano::{Group as Facts, Leaf, Phase, Queue as QueueFacts, SubGroup, Task};
use muster_model::{
    Amounts, Bound, Cluster, Dialect, Expr, GPU, Gang, Group, Key, Min, Name, Op, Pod, Preemptibility, Queue,
    Reach, Reclaim, Resource, Shape, Share, Span, Time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the trees have of the cluster, by tree.
pub type Trees = BTreeMap<Dialect, Reach>;

/// The cluster of this seed, with gangs and queues of every system.
pub fn mixed(seed: u64, sizes: &Sizes, trees: &Trees) -> Cluster {
    let rng = Rng::new(seed);
    let mut maker = Maker::new(sizes, trees.clone());
    maker.make(&rng, |maker| maker.other_queues(&mut rng.fork(8)));
    maker.cluster
}

/// What trees may have of a generated cluster: mostly everything, now and then a queue or a pool.
pub fn trees(seed: u64) -> Trees {
    let mut rng = Rng::new(seed).fork(0x7ee5);
    let mut trees = Trees::new();
    match rng.below(10) {
        0..5 => {}
        5 | 6 => {
            for tree in OTHERS {
                if rng.percent(60) {
                    trees.insert(tree, Reach::Under(format!("queue-{:02}", rng.below(3)).into()));
                }
            }
        }
        7 | 8 => {
            let tree = *rng.pick(&[Dialect::Kai, Dialect::Volcano, Dialect::T9k, Dialect::Koordinator]);
            let values = vec![(*rng.pick(&["red", "blue"])).into()];
            trees.insert(tree, Reach::Nodes { label: "pool".into(), values });
        }
        _ => {
            trees.insert(Dialect::Volcano, Reach::Nodes { label: "pool".into(), values: vec!["red".into()] });
            trees.insert(Dialect::T9k, Reach::Under("queue-00".into()));
        }
    }
    trees
}

const OTHERS: [Dialect; 4] = [Dialect::Volcano, Dialect::T9k, Dialect::Koordinator, Dialect::Kubernetes];

/// What names of a system's gangs and queues begin with.
fn prefix(tree: Dialect) -> &'static str {
    match tree {
        Dialect::Kai => "",
        Dialect::Volcano => "volcano/",
        Dialect::T9k => "t9k/",
        Dialect::Koordinator => "koordinator/",
        Dialect::Kubernetes => "kubernetes/",
    }
}

impl Maker<'_> {
    /// Queues of every system but KAI, and the leaves among them as places for gangs.
    fn other_queues(&mut self, rng: &mut Rng) {
        // Those of KAI's tree get their own say about giving back, too.
        for slot in &mut self.cluster.queues {
            Arc::make_mut(slot).reclaim = reclaim(rng);
        }
        let mut made: Vec<Queue> = Vec::new();
        for tree in OTHERS {
            let n = if tree == Dialect::Kubernetes { 1 } else { rng.between((1, 3)) };
            for i in 0..n {
                let name = Name::from(format!("{}q{i}", prefix(tree)));
                let parent = match tree {
                    // The first may have the others below it.
                    Dialect::Koordinator | Dialect::Volcano if i > 0 && rng.percent(40) => {
                        Some(Name::from(format!("{}q0", prefix(tree))))
                    }
                    _ => None,
                };
                let mut queue = self.queue(rng, name, parent);
                queue.tree = tree;
                queue.reclaim = reclaim(rng);
                self.adjust(rng, &mut queue);
                made.push(queue);
            }
            if tree == Dialect::Volcano {
                let mut root = self.queue(rng, "volcano/root".into(), None);
                root.tree = tree;
                root.shares.clear();
                root.volcano = Some(Arc::new(QueueFacts { weight: 1, open: true, ..QueueFacts::default() }));
                made.push(root);
            }
        }
        let parents: BTreeSet<Name> = made.iter().filter_map(|queue| queue.parent.clone()).collect();
        let leaves = made.iter().map(|queue| &queue.name);
        let leaves: Vec<Name> =
            leaves.filter(|name| !parents.contains(*name) && &***name != "volcano/root").cloned().collect();
        self.leaves.extend(leaves);
        self.cluster.queues.extend(made.into_iter().map(Arc::new));
    }

    /// Makes of a queue's random shares what its system would say.
    fn adjust(&self, rng: &mut Rng, queue: &mut Queue) {
        match queue.tree {
            Dialect::Kai => {}
            Dialect::T9k => {
                for share in queue.shares.values_mut() {
                    share.limit = share.quota;
                    share.weight = 1000;
                }
            }
            Dialect::Koordinator => {}
            Dialect::Kubernetes => {
                for share in queue.shares.values_mut() {
                    *share = Share { quota: Bound::Unlimited, weight: 1000, ..Share::default() };
                }
            }
            Dialect::Volcano => {
                let amounts = |bound: fn(&Share) -> Bound| -> Amounts {
                    let all = queue.shares.iter();
                    let bounded = all.filter_map(|(resource, share)| match bound(share) {
                        Bound::At(n) if n > 0 => Some((resource.clone(), n)),
                        _ => None,
                    });
                    bounded.collect()
                };
                let capability = amounts(|share| share.limit);
                let deserved: Amounts = amounts(|share| share.quota)
                    .iter()
                    .map(|(resource, n)| {
                        let most = capability.get(resource);
                        (resource.clone(), if most > 0 { n.min(most) } else { n })
                    })
                    .collect();
                let guarantee: Amounts = if rng.percent(40) {
                    let part = |(resource, n): (&Resource, i64)| {
                        let unit = if *resource == Resource::Gpu { GPU } else { 1 };
                        (resource.clone(), n / 2 / unit * unit)
                    };
                    deserved.iter().map(part).collect()
                } else {
                    Amounts::new()
                };
                queue.volcano = Some(Arc::new(QueueFacts {
                    weight: *rng.pick(&[1, 1, 2, 5]),
                    open: rng.percent(95),
                    reclaimable: rng.percent(85),
                    guarantee,
                    deserved,
                    capability,
                    ..QueueFacts::default()
                }));
            }
        }
    }

    /// Makes a gang of another system of one that is in its queue. Draws nothing for KAI's own.
    pub(crate) fn adopt(&self, rng: &mut Rng, gang: &mut Gang, pods: &mut [Pod]) {
        let named = self.cluster.queues.iter().find(|queue| queue.name == gang.queue);
        let tree = named.map_or(Dialect::Kai, |queue| queue.dialect());
        self.confine(tree, pods);
        if tree == Dialect::Kai {
            return;
        }
        gang.key = Key::new(gang.key.namespace.clone(), format!("{}{}", prefix(tree), gang.key.name));
        for pod in pods.iter_mut() {
            pod.gang = Some(gang.key.clone());
        }
        match tree {
            Dialect::Volcano => as_volcano(rng, gang, pods),
            _ => gang.staleness_grace = Some(muster_model::Grace::Forever),
        }
    }

    /// Lets pods ask for the nodes of their tree.
    fn confine(&self, tree: Dialect, pods: &mut [Pod]) {
        let pool = |tree: &Dialect| match self.trees.get(tree) {
            Some(Reach::Nodes { label, values }) => Some((label.clone(), values.clone())),
            _ => None,
        };
        let rules: Vec<Expr> = match pool(&tree) {
            Some((key, values)) => vec![Expr { key, op: Op::In(values) }],
            None => {
                let pools = self.trees.keys().filter_map(pool);
                pools.map(|(key, values)| Expr { key, op: Op::NotIn(values) }).collect()
            }
        };
        if rules.is_empty() {
            return;
        }
        // Pods of one shape go on sharing it.
        let mut shapes: Vec<(Arc<Shape>, Arc<Shape>)> = Vec::new();
        for pod in pods {
            let known = shapes.iter().find(|(old, _)| Arc::ptr_eq(old, &pod.shape));
            let new = match known {
                Some((_, new)) => new.clone(),
                None => {
                    let mut shape = (*pod.shape).clone();
                    shape.node.all.extend(rules.iter().cloned());
                    let new = Arc::new(shape);
                    shapes.push((pod.shape.clone(), new.clone()));
                    new
                }
            };
            pod.shape = new;
        }
    }
}

fn reclaim(rng: &mut Rng) -> Reclaim {
    Reclaim {
        after: rng.percent(15).then(|| Span::seconds(*rng.pick(&[0, 600, 3000]))),
        forced: rng.percent(10).then_some(true),
    }
}

/// A gang as Volcano's PodGroup makes it: a leaf for each role, and the minimum of all pods besides those of the roles.
fn as_volcano(rng: &mut Rng, gang: &mut Gang, pods: &mut [Pod]) {
    let leaves: Vec<(Name, u32)> = gang
        .groups
        .iter()
        .filter_map(|group| match group.min {
            Min::Pods(n) => Some((group.name.clone(), n)),
            Min::Children(_) | Min::Whole { .. } => None,
        })
        .collect();
    let alone = leaves.len() <= 1;
    let sum: u32 = leaves.iter().map(|(_, n)| n).sum();
    // With less than the roles need in all, the roles' minima do not count.
    let min_member = if alone || rng.percent(70) { sum } else { sum.saturating_sub(1) };
    let roles_count = min_member >= sum;
    let mut facts = Facts {
        phase: *rng.pick(&[Phase::Pending, Phase::Inqueue, Phase::Inqueue, Phase::Running]),
        min_member,
        sub_groups: vec![SubGroup { id: "".into(), policy: None, index: 0 }],
        preemptable: rng.percent(20).then(|| rng.percent(50)),
        ..Facts::default()
    };
    gang.groups.clear();
    if alone {
        facts.leaves.push(Leaf { group: 0, sub: 0, role: "".into() });
        gang.groups.push(Group { name: "".into(), parent: None, min: Min::Pods(min_member), topology: None });
    } else {
        gang.groups.push(Group { name: "".into(), parent: None, min: Min::Children(None), topology: None });
        for (name, min) in &leaves {
            let min = if roles_count { *min } else { 0 };
            facts.roles.insert(name.clone(), min);
            facts.leaves.push(Leaf {
                group: u32::try_from(gang.groups.len()).unwrap_or(u32::MAX),
                sub: 0,
                role: name.clone(),
            });
            gang.groups.push(Group {
                name: name.clone(),
                parent: Some(0),
                min: Min::Pods(min),
                topology: None,
            });
        }
    }
    if rng.percent(60) {
        let mut least = Amounts::new();
        for pod in pods.iter().take(min_member as usize) {
            for (resource, n) in pod.shape.requests.iter().filter(|(r, _)| **r != Resource::Pods) {
                least.add(resource.clone(), n.min(1 << 50));
            }
        }
        facts.min_resources = Some(least);
    }
    gang.preemptibility = Preemptibility::Preemptible;
    gang.preemption_delay = Span::ZERO;
    gang.staleness_grace = None;
    gang.declared_end = None;
    gang.volcano = Some(Arc::new(facts));
    let cooling = rng.percent(10);
    for pod in pods.iter_mut() {
        let role = if alone { "".into() } else { pod.group.clone().unwrap_or_default() };
        if alone {
            pod.group = pod.group.take().filter(|_| rng.percent(5));
        }
        let priority = i64::from(*rng.pick(&[0, 0, 10, 100]));
        pod.volcano = Some(Arc::new(Task {
            role,
            priority,
            pod_priority: priority,
            index: None,
            preemptable: rng.percent(90),
            never_preempts: rng.percent(5),
            revocable: false,
            cooldown_until: cooling.then_some(Time(NOW + 45_000)),
            critical: rng.percent(3),
            started: None,
            devices: Vec::new(),
            fit: None,
            fit_weights: None,
            images: Vec::new(),
        }));
    }
}
