//! Queues: only whole lines of parents, only leaves, and no limit or quota crossed by what was decided.

use super::{Fate, Finding, World};
use muster_model::{
    Bound, Dialect, GPU, Gang, Node, Placement, Pod, Preemptibility, Reach, Resource, Share, ShareSize,
};
use std::collections::{BTreeMap, BTreeSet};

/// What queues count.
const COUNTED: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Gpu];

type Usage = [i128; 3];

pub(super) fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let of_kai = world.cluster.queues.iter().filter(|queue| queue.dialect() == Dialect::Kai);
    let parents: BTreeSet<&str> = of_kai.filter_map(|queue| queue.parent.as_deref()).collect();
    let mut books: BTreeMap<usize, Book> = BTreeMap::new();
    for (gang, members) in world.members.iter().enumerate() {
        let is_volcano = world.is_volcano(gang);
        if is_volcano && above(world, Dialect::Volcano).is_none() {
            continue;
        }
        let gang = world.gang(gang);
        let placed = members.iter().any(|pod| matches!(world.fate[*pod], Fate::Bound(_) | Fate::Promised(_)));
        let line = line(world, &gang.queue);
        if placed {
            let (key, queue) = (gang.key.clone(), gang.queue.clone());
            if line.is_none() {
                findings.push(Finding::QueueMissing { gang: key, queue });
            } else if !is_volcano && world.policy.full_hierarchy && parents.contains(&*gang.queue) {
                findings.push(Finding::QueueNotLeaf { gang: key, queue });
            }
        }
        let mut book = Book::default();
        for pod in members {
            book.enter(world, gang, *pod);
        }
        // What Volcano's own queues may have is judged by Volcano's rules.
        let counted = line.iter().flatten();
        for queue in counted.filter(|queue| world.cluster.queues[**queue].dialect() != Dialect::Volcano) {
            books.entry(*queue).or_default().add(&book);
        }
    }
    if world.policy.quotas {
        for (queue, book) in books {
            book.check(world, queue, findings);
        }
    }
}

/// The queue and its ancestors, nearest first; `None` if one of them is missing or they hang in a circle.
pub(super) fn line(world: &World<'_>, queue: &str) -> Option<Vec<usize>> {
    let mut line = vec![world.queues.get(queue).copied()?];
    let mut parent = world.cluster.queues[line[0]].parent.as_ref();
    if !world.policy.full_hierarchy && world.cluster.queues[line[0]].dialect() == Dialect::Kai {
        // All parents stand for one without bounds, and a queue without a parent does not take part.
        return parent.map(|_| line);
    }
    let tree = world.cluster.queues[line[0]].dialect();
    // Volcano's queues hang from one root that need not be there.
    let at_top = |queue: usize| tree == Dialect::Volcano || world.cluster.queues[queue].parent.is_none();
    let mut over = above(world, tree).filter(|_| tree != Dialect::Kai);
    if tree == Dialect::Volcano {
        parent = None;
    }
    loop {
        let last = line.last().copied()?;
        let next = match parent {
            Some(name) => world.queues.get(&**name).copied()?,
            None if at_top(last) && over.is_some() => {
                let name = over.take()?;
                let queue = world.queues.get(&**name).copied()?;
                if world.cluster.queues[queue].dialect() != Dialect::Kai {
                    return None;
                }
                if !world.policy.full_hierarchy {
                    let hangs = world.cluster.queues[queue].parent.is_some();
                    line.push(queue);
                    return hangs.then_some(line);
                }
                queue
            }
            None => return Some(line),
        };
        if line.len() > world.queues.len() {
            return None;
        }
        line.push(next);
        parent = world.cluster.queues[next].parent.as_ref();
    }
}

/// The queue that the policy puts a tree under.
pub(super) fn above<'w>(world: &'w World<'_>, tree: Dialect) -> Option<&'w muster_model::Name> {
    match world.policy.trees.get(&tree) {
        Some(Reach::Under(queue)) if tree != Dialect::Kai => Some(queue),
        _ => None,
    }
}

/// The trees of the two queues just below the lowest one that both are in, or of their roots.
pub(super) fn parting(world: &World<'_>, a: &str, b: &str) -> Option<(Dialect, Dialect)> {
    let (a, b) = (line(world, a)?, line(world, b)?);
    let tree = |line: &[usize], other: &[usize]| {
        let common = line.iter().position(|queue| other.contains(queue)).unwrap_or(line.len());
        world.cluster.queues[line[common.saturating_sub(1)]].dialect()
    };
    Some((tree(&a, &b), tree(&b, &a)))
}

/// What a queue holds.
#[derive(Clone, Copy, Default)]
struct Book {
    all: Account,
    /// The part that cannot be preempted.
    fixed: Account,
}

#[derive(Clone, Copy, Default)]
struct Account {
    before: Usage,
    after: Usage,
    /// What the decisions newly place; moved pods are not new.
    asked: Usage,
}

impl Book {
    fn enter(&mut self, world: &World<'_>, gang: &Gang, index: usize) {
        let pod = world.pod(index);
        let old =
            || pod.node.as_ref().and_then(|name| world.nodes.get(&**name)).map(|node| world.node(*node));
        let mut account = Account::default();
        if pod.state.stays() {
            account.before = charge(pod, old(), None);
        }
        match world.fate[index] {
            Fate::Rest => account.after = account.before,
            Fate::Bound(place) | Fate::Promised(place) => {
                account.after = charge(pod, Some(world.node(place.node)), Some(place.placement));
                account.asked = account.after;
            }
            Fate::Moved(_, place) => {
                account.after = charge(pod, Some(world.node(place.node)), Some(place.placement));
            }
            Fate::Absent | Fate::Lost(_) => {}
        }
        self.all.add(&account);
        if gang.preemptibility == Preemptibility::NonPreemptible {
            self.fixed.add(&account);
        }
    }

    fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.fixed.add(&other.fixed);
    }

    fn check(&self, world: &World<'_>, queue: usize, findings: &mut Vec<Finding>) {
        let queue = &world.cluster.queues[queue];
        for (i, resource) in COUNTED.iter().enumerate() {
            let Some(share) = queue.shares.get(resource) else { continue };
            let (queue, resource) = (queue.name.clone(), resource.clone());
            if let Some((limit, before, after)) = self.all.crossed(i, most(share)) {
                let (queue, resource) = (queue.clone(), resource.clone());
                findings.push(Finding::OverLimit { queue, resource, before, after, limit });
            }
            if let Some((quota, before, after)) = self.fixed.crossed(i, share.quota) {
                findings.push(Finding::OverQuota { queue, resource, before, after, quota });
            }
        }
    }
}

impl Account {
    fn add(&mut self, other: &Self) {
        for i in 0..COUNTED.len() {
            self.before[i] += other.before[i];
            self.after[i] += other.after[i];
            self.asked[i] += other.asked[i];
        }
    }

    /// The bound and both sums, if the decisions took the resource over the bound, or further over it.
    fn crossed(&self, resource: usize, bound: Bound) -> Option<(i64, i128, i128)> {
        let Bound::At(bound) = bound else { return None };
        let (before, after) = (self.before[resource], self.after[resource]);
        let grew = self.asked[resource] > 0 && after > before;
        (grew && after > i128::from(bound)).then_some((bound, before, after))
    }
}

/// The limit, or what is deserved and may be borrowed if that is less.
fn most(share: &Share) -> Bound {
    let borrowed = match (share.quota, share.borrowing) {
        (Bound::At(quota), Bound::At(more)) => Bound::At(quota.max(0).saturating_add(more.max(0))),
        _ => Bound::Unlimited,
    };
    match (share.limit, borrowed) {
        (Bound::At(limit), Bound::At(borrowed)) => Bound::At(limit.min(borrowed)),
        (Bound::At(one), _) | (_, Bound::At(one)) => Bound::At(one),
        _ => Bound::Unlimited,
    }
}

/// What a queue is charged for a pod on a node.
fn charge(pod: &Pod, node: Option<&Node>, placement: Option<&Placement>) -> Usage {
    let shape = &pod.shape;
    let amount = |resource| i128::from(shape.requests.get(resource).max(0));
    let shared = shape.gpu_share.map_or(0, |share| {
        let portion = match share.size {
            ShareSize::Portion(portion) => portion.max(0),
            ShareSize::Memory(memory) => {
                let stated = placement.and_then(|placement| placement.gpu_portion);
                stated.unwrap_or_else(|| memory_portion(memory, node.and_then(|node| node.gpus.memory)))
            }
        };
        i128::from(portion) * i128::from(share.devices)
    });
    let gpu = amount(&Resource::Gpu) + shared + i128::from(shape.extra_gpu_charge.max(0));
    [amount(&Resource::Cpu), amount(&Resource::Memory), gpu]
}

/// Memory as a part of a GPU, rounded up to hundredths; a whole GPU where its memory is not known.
fn memory_portion(memory: i64, of: Option<i64>) -> i64 {
    let Some(of) = of.filter(|of| *of > 0) else { return GPU };
    let hundredths = (i128::from(memory.max(0)) * 100).div_euclid(i128::from(of))
        + i128::from((i128::from(memory.max(0)) * 100).rem_euclid(i128::from(of)) > 0);
    i64::try_from(hundredths * 10).unwrap_or(GPU).min(GPU)
}
