//! The queue tree: what each queue holds, asks for and deserves, and which of two queues goes first.
//!
//! In: queues and, from pods, what is held and asked for. Out: fair shares, checks against limits and quotas, an order.
//! Amounts are CPU, memory and GPUs, in this order, as wide integers: no sum of inputs wraps around.
//!
//! *Invariant:* what a queue holds is what its leaves hold; every change walks the path from the leaf to the root.

use crate::divide::{Claimant, allocatable_share, divide};
use crate::ids::QueueId;
use dense::IdVec;
use indexmap::IndexMap;
use muster_model::{Bound, Dialect, GPU, Name, Queue, Reach, Reason, Resource, Span};
use rustc_hash::FxBuildHasher;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// CPU, memory and GPUs.
pub type Trio = [i128; 3];

pub const RESOURCES: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Gpu];
/// Shares are rounded to whole GPUs, milli-cores and bytes.
const UNITS: Trio = [1, 1, GPU as i128];

#[derive(Default)]
pub struct Queues {
    ids: IndexMap<Name, QueueId, FxBuildHasher>,
    pub rows: IdVec<QueueId, Row>,
    pub roots: Vec<QueueId>,
    stale: bool,
    full_hierarchy: bool,
    /// Trees of which a queue of KAI's is the parent.
    under: BTreeMap<Dialect, Name>,
}

pub struct Row {
    pub name: Name,
    pub model: Option<Arc<Queue>>,
    pub children: Vec<QueueId>,
    /// From the queue itself to its root; empty if the chain is broken.
    pub path: Vec<QueueId>,
    own: Sums,
    pub sums: Sums,
    pub fair: Trio,
    /// What it may hold before others may take from it; `None`: everything.
    pub allocatable: [Option<i128>; 3],
    /// What it deserves; `None`: everything.
    quota: [Option<i128>; 3],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Held by pods that stay.
    pub allocated: Trio,
    /// The part of it that can never be preempted.
    pub firm: Trio,
    /// Asked for by waiting pods.
    pub asked: Trio,
}

pub fn plus(a: &Trio, b: &Trio) -> Trio {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

pub fn minus(a: &Trio, b: &Trio) -> Trio {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// In every resource at most the bound.
fn within(a: &Trio, bound: &[Option<i128>; 3]) -> bool {
    a.iter().zip(bound).all(|(a, b)| b.is_none_or(|b| *a <= b))
}

impl Queues {
    pub fn new(full_hierarchy: bool, trees: &BTreeMap<Dialect, Reach>) -> Self {
        let under = trees.iter().filter_map(|(tree, reach)| match reach {
            Reach::Under(parent) if *tree != Dialect::Kai => Some((*tree, parent.clone())),
            _ => None,
        });
        Self { full_hierarchy, under: under.collect(), ..Self::default() }
    }

    /// Whether what a tree holds counts in a queue of KAI's.
    pub fn is_under(&self, tree: Dialect) -> bool {
        self.under.contains_key(&tree)
    }

    pub fn intern(&mut self, name: &Name) -> QueueId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.rows.push(Row {
            name: name.clone(),
            model: None,
            children: Vec::new(),
            path: Vec::new(),
            own: Sums::default(),
            sums: Sums::default(),
            fair: [0; 3],
            allocatable: [Some(0); 3],
            quota: [Some(0); 3],
        });
        self.ids.insert(name.clone(), id);
        self.stale = true;
        id
    }

    pub fn set_model(&mut self, id: QueueId, model: Option<Arc<Queue>>) {
        let row = &mut self.rows[id];
        row.model = model;
        row.quota = [0, 1, 2].map(|r| match row.share(r).quota {
            Bound::At(quota) => Some(i128::from(quota)),
            Bound::Unlimited => None,
        });
        self.stale = true;
    }

    /// Rebuilds the tree after queues changed: paths, children, sums. A queue whose chain of parents breaks or runs in a circle has no path, and
    /// nothing in it is scheduled. True if there was anything to do.
    pub fn refresh(&mut self) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let parents: IdVec<QueueId, Option<QueueId>> = self.rows.map(|_, row| {
            let parent = row.model.as_ref()?.parent.as_ref()?;
            self.ids.get(parent).copied()
        });
        let ids: Vec<QueueId> = self.rows.ids().collect();
        let n = ids.len();
        for row in self.rows.values_mut() {
            row.children.clear();
            row.path.clear();
            row.sums = Sums::default();
        }
        self.roots.clear();
        for id in ids.iter().copied() {
            let path = if self.rows[id].is_volcano() {
                // Another tree, which its own rules walk; all that it holds counts in the queue that it is under.
                let mut path = self.path_above(Dialect::Volcano, &parents, n);
                if !path.is_empty() {
                    path.insert(0, id);
                }
                path
            } else if self.full_hierarchy || self.rows[id].tree() != Dialect::Kai {
                self.path_of(id, &parents, n)
            } else {
                // One bottomless parent for all; queues without a parent are the parents that it replaces.
                let row = &self.rows[id];
                match &row.model {
                    Some(model) if model.parent.is_some() => vec![id],
                    _ => Vec::new(),
                }
            };
            match path.get(1) {
                Some(parent) => self.rows[*parent].children.push(id),
                None if !path.is_empty() => self.roots.push(id),
                None => {}
            }
            self.rows[id].path = path;
        }
        let mut by_age: Vec<(QueueId, Vec<QueueId>)> = Vec::new();
        for id in ids.iter().copied() {
            let children = std::mem::take(&mut self.rows[id].children);
            if children.len() > 1 {
                by_age.push((id, children));
            } else {
                self.rows[id].children = children;
            }
        }
        for (id, mut children) in by_age {
            children.sort_by(|a, b| self.by_age(*a, *b));
            self.rows[id].children = children;
        }
        let mut roots = std::mem::take(&mut self.roots);
        roots.sort_by(|a, b| self.by_age(*a, *b));
        self.roots = roots;
        for id in ids {
            let own = self.rows[id].own;
            for up in self.rows[id].path.clone() {
                let sums = &mut self.rows[up].sums;
                sums.allocated = plus(&sums.allocated, &own.allocated);
                sums.firm = plus(&sums.firm, &own.firm);
                sums.asked = plus(&sums.asked, &own.asked);
            }
        }
        true
    }

    fn path_of(&self, id: QueueId, parents: &IdVec<QueueId, Option<QueueId>>, n: usize) -> Vec<QueueId> {
        let mut path = Vec::new();
        let mut at = id;
        loop {
            let Some(model) = self.rows[at].model.as_ref().filter(|m| m.volcano.is_none()) else {
                return Vec::new();
            };
            path.push(at);
            if model.parent.is_none() {
                if self.under.contains_key(&self.rows[id].tree()) {
                    let above = self.path_above(self.rows[id].tree(), parents, n);
                    if above.is_empty() {
                        return Vec::new();
                    }
                    path.extend(above);
                }
                return path;
            }
            let Some(parent) = parents[at] else { return Vec::new() };
            // Longer than any real tree, so it runs in a circle or is not meant well.
            if path.len() > n.min(256) {
                return Vec::new();
            }
            at = parent;
        }
    }

    /// The queue of KAI's that a tree is under, up to its root; empty if it is under none, or under one that is not there.
    fn path_above(&self, tree: Dialect, parents: &IdVec<QueueId, Option<QueueId>>, n: usize) -> Vec<QueueId> {
        let parent = self.under.get(&tree).and_then(|name| self.ids.get(name).copied());
        match parent.filter(|id| self.rows[*id].tree() == Dialect::Kai) {
            Some(id) if self.full_hierarchy => self.path_of(id, parents, n),
            Some(id) if self.rows[id].model.as_ref().is_some_and(|m| m.parent.is_some()) => vec![id],
            _ => Vec::new(),
        }
    }

    /// The queue that a tree is said to be under, as one that is not there.
    pub fn missing_above(&self, tree: Dialect) -> Option<Reason> {
        self.under.get(&tree).map(|queue| Reason::QueueMissing { queue: queue.clone() })
    }

    /// The queue of KAI's that a tree is under.
    pub fn above(&self, tree: Dialect) -> Option<QueueId> {
        let id = self.ids.get(self.under.get(&tree)?).copied()?;
        (!self.rows[id].path.is_empty() && self.rows[id].tree() == Dialect::Kai).then_some(id)
    }

    /// Whether some queue lets others wait before they take from it.
    pub fn let_wait(&self) -> bool {
        let mut delays = self.rows.values().filter_map(|row| row.model.as_ref()?.reclaim.after);
        delays.any(|after| after > Span::ZERO)
    }

    /// How long others must have waited before they may take from a queue, and whether whoever has to go is given no time.
    pub fn gives_back(&self, id: QueueId) -> (Span, bool) {
        let (mut after, mut forced) = (None, None);
        let mut at = Some(id);
        // By their names, since not every tree keeps paths; deeper than anyone means it is in a circle.
        for _ in 0..64 {
            let Some(model) = at.and_then(|id| self.rows[id].model.as_ref()) else { break };
            after = after.or(model.reclaim.after);
            forced = forced.or(model.reclaim.forced);
            at = model.parent.as_ref().and_then(|name| self.ids.get(name).copied());
        }
        (after.unwrap_or(Span::ZERO), forced.unwrap_or(false))
    }

    /// The older first.
    pub fn compare_age(&self, a: QueueId, b: QueueId) -> Ordering {
        self.by_age(a, b)
    }

    fn by_age(&self, a: QueueId, b: QueueId) -> Ordering {
        let key =
            |id: QueueId| self.rows[id].model.as_ref().map(|m| (m.created, m.uid.clone(), m.name.clone()));
        key(a).cmp(&key(b))
    }

    /// A queue that may hold gangs: it exists, hangs from a root, and has no children.
    pub fn is_sound_leaf(&self, id: QueueId) -> bool {
        let row = &self.rows[id];
        !row.path.is_empty() && row.children.is_empty() && !row.is_volcano()
    }

    pub fn add_allocated(&mut self, id: QueueId, amount: &Trio, firm: bool, sign: i128) {
        let delta = [amount[0] * sign, amount[1] * sign, amount[2] * sign];
        let own = &mut self.rows[id].own;
        own.allocated = plus(&own.allocated, &delta);
        if firm {
            own.firm = plus(&own.firm, &delta);
        }
        for i in 0..self.rows[id].path.len() {
            let up = self.rows[id].path[i];
            let sums = &mut self.rows[up].sums;
            sums.allocated = plus(&sums.allocated, &delta);
            if firm {
                sums.firm = plus(&sums.firm, &delta);
            }
        }
    }

    pub fn add_asked(&mut self, id: QueueId, amount: &Trio, sign: i128) {
        let delta = [amount[0] * sign, amount[1] * sign, amount[2] * sign];
        let own = &mut self.rows[id].own;
        own.asked = plus(&own.asked, &delta);
        for i in 0..self.rows[id].path.len() {
            let up = self.rows[id].path[i];
            let sums = &mut self.rows[up].sums;
            sums.asked = plus(&sums.asked, &delta);
        }
    }

    /// Divides among the queues of each tree, level by level, what the tree has: the whole, or the nodes of its own, less what other trees hold
    /// of the same.
    pub fn set_fair_shares(&mut self, total: &Trio, of_pools: &BTreeMap<Dialect, Trio>, usage_weight: i64) {
        let mut roots = self.roots.clone();
        roots.sort_by_key(|id| self.rows[*id].tree());
        let rows = &self.rows;
        let trees: Vec<Vec<QueueId>> =
            roots.chunk_by(|a, b| rows[*a].tree() == rows[*b].tree()).map(<[QueueId]>::to_vec).collect();
        let held: Vec<(Dialect, Trio)> = trees
            .iter()
            .map(|roots| {
                let sum = roots.iter().fold([0; 3], |sum, id| plus(&sum, &self.rows[*id].sums.allocated));
                (self.rows[roots[0]].tree(), sum)
            })
            .collect();
        for (roots, (tree, _)) in trees.iter().zip(&held) {
            let own = match of_pools.get(tree) {
                Some(own) => *own,
                None => {
                    let others =
                        held.iter().filter(|(other, _)| other != tree && !of_pools.contains_key(other));
                    others.fold(*total, |left, (_, held)| minus(&left, held)).map(|left| left.max(0))
                }
            };
            self.divide_level(&own, roots, usage_weight);
        }
    }

    fn divide_level(&mut self, total: &Trio, level: &[QueueId], usage_weight: i64) {
        for r in 0..3 {
            let claimants: Vec<Claimant> = level
                .iter()
                .enumerate()
                .map(|(rank, id)| {
                    let row = &self.rows[*id];
                    let request = row.sums.allocated[r] + row.sums.asked[r];
                    let share = row.share(r);
                    Claimant {
                        quota: share.quota,
                        requestable: share.most().cap(request),
                        weight: share.weight,
                        priority: row.model.as_ref().map_or(0, |m| m.priority),
                        usage: row
                            .model
                            .as_ref()
                            .and_then(|m| m.usage.get(&RESOURCES[r]))
                            .copied()
                            .unwrap_or(0),
                        age_rank: rank as u32,
                    }
                })
                .collect();
            let division = divide(total[r], UNITS[r], usage_weight, &claimants);
            for (id, fair) in level.iter().zip(division.fair) {
                let row = &mut self.rows[*id];
                let share = row.share(r);
                row.fair[r] = fair;
                row.allocatable[r] = allocatable_share(share.quota, share.most(), fair);
            }
        }
        for id in level {
            let children = self.rows[*id].children.clone();
            if !children.is_empty() {
                let fair = self.rows[*id].fair;
                self.divide_level(&fair, &children, usage_weight);
            }
        }
    }

    /// The first queue from the leaf up that would exceed its limit.
    pub fn over_limit(&self, id: QueueId, asked: &Trio) -> Option<Reason> {
        self.beyond_limit(id, asked, &[0; 3])
    }

    /// The same where what is asked for is among what is held already.
    pub fn exceeds_limit(&self, id: QueueId, asked: &Trio) -> Option<Reason> {
        self.beyond_limit(id, asked, asked)
    }

    fn beyond_limit(&self, id: QueueId, asked: &Trio, counted: &Trio) -> Option<Reason> {
        self.rows[id].path.iter().find_map(|up| {
            let row = &self.rows[*up];
            let used = minus(&row.sums.allocated, counted);
            (0..3).find_map(|r| match row.share(r).most() {
                Bound::At(limit) if asked[r] > 0 && used[r] + asked[r] > i128::from(limit) => {
                    Some(Reason::OverLimit {
                        queue: row.name.clone(),
                        resource: RESOURCES[r].clone(),
                        used: used[r],
                        asked: asked[r],
                        limit: i128::from(limit),
                    })
                }
                _ => None,
            })
        })
    }

    /// The first queue from the leaf up in which work that cannot be preempted would exceed the quota.
    pub fn over_quota(&self, id: QueueId, asked: &Trio) -> Option<Reason> {
        self.beyond_quota(id, asked, &[0; 3])
    }

    /// The same where what is asked for is among what is held already.
    pub fn exceeds_quota(&self, id: QueueId, asked: &Trio) -> Option<Reason> {
        self.beyond_quota(id, asked, asked)
    }

    fn beyond_quota(&self, id: QueueId, asked: &Trio, counted: &Trio) -> Option<Reason> {
        self.rows[id].path.iter().find_map(|up| {
            let row = &self.rows[*up];
            let used = minus(&row.sums.firm, counted);
            (0..3).find_map(|r| match row.share(r).quota {
                Bound::At(quota) if asked[r] > 0 && used[r] + asked[r] > i128::from(quota) => {
                    Some(Reason::OverQuota {
                        queue: row.name.clone(),
                        resource: RESOURCES[r].clone(),
                        used: used[r],
                        asked: asked[r],
                        quota: i128::from(quota),
                    })
                }
                _ => None,
            })
        })
    }

    /// Which of two queues goes first, each with what its best gang asks for and what its victims would give back.
    pub fn compare(&self, total: &Trio, a: (QueueId, &Trio, &Trio), b: (QueueId, &Trio, &Trio)) -> Ordering {
        let (l, r) = (&self.rows[a.0], &self.rows[b.0]);
        let (l_with, r_with) = (plus(&l.sums.allocated, a.1), plus(&r.sums.allocated, b.1));
        let over = |row: &Row| row.fair.iter().zip(&row.sums.allocated).all(|(fair, held)| fair < held);
        let priority = Row::priority;
        let created = |row: &Row| row.model.as_ref().map(|m| (m.created, m.uid.clone()));
        // Whoever is below its fair share goes first, then whoever stays within its quota, then the queue of higher priority.
        over(l)
            .cmp(&over(r))
            .then_with(|| within(&r_with, &r.quota()).cmp(&within(&l_with, &l.quota())))
            .then_with(|| priority(r).cmp(&priority(l)))
            .then_with(|| {
                l.uses_what_it_has_no_share_of(&l_with).cmp(&r.uses_what_it_has_no_share_of(&r_with))
            })
            .then_with(|| {
                let (l_left, r_left) = (minus(&l_with, a.2), minus(&r_with, b.2));
                l.dominant_share(&l_left, total).total_cmp(&r.dominant_share(&r_left, total))
            })
            .then_with(|| {
                let share = |row: &Row| row.dominant_share(&row.sums.allocated, total);
                share(l).total_cmp(&share(r))
            })
            .then_with(|| smaller(&l.allocatable, &r.allocatable))
            .then_with(|| created(l).cmp(&created(r)))
    }

    /// The two ancestors just below the lowest common one; the queues themselves if one is above the other.
    pub fn level(&self, a: QueueId, b: QueueId) -> (QueueId, QueueId) {
        let (pa, pb) = (&self.rows[a].path, &self.rows[b].path);
        let mut pair = (a, b);
        for (x, y) in pa.iter().rev().zip(pb.iter().rev()) {
            pair = (*x, *y);
            if x != y {
                break;
            }
        }
        pair
    }
}

/// A queue whose share is smaller or equal everywhere, and smaller somewhere, goes first.
fn smaller(a: &[Option<i128>; 3], b: &[Option<i128>; 3]) -> Ordering {
    let le = |a: &Option<i128>, b: &Option<i128>| match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    };
    let all = |a: &[Option<i128>; 3], b: &[Option<i128>; 3]| a.iter().zip(b).all(|(a, b)| le(a, b));
    match (all(a, b), all(b, a)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

impl Row {
    /// The system whose tree it is of.
    pub fn tree(&self) -> Dialect {
        self.model.as_ref().map_or(Dialect::Kai, |m| m.dialect())
    }

    pub fn priority(&self) -> i32 {
        self.model.as_ref().map_or(0, |m| m.priority)
    }

    /// A queue of Volcano's tree.
    pub fn is_volcano(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.volcano.is_some())
    }

    pub fn share(&self, r: usize) -> muster_model::Share {
        self.model.as_ref().and_then(|m| m.shares.get(&RESOURCES[r])).copied().unwrap_or_default()
    }

    pub fn quota(&self) -> [Option<i128>; 3] {
        self.quota
    }

    fn uses_what_it_has_no_share_of(&self, held: &Trio) -> bool {
        self.allocatable.iter().zip(held).any(|(share, held)| *share == Some(0) && *held > 0)
    }

    /// The largest part of its share that it holds, over the resources. The ratio only orders queues, so a float will do.
    fn dominant_share(&self, held: &Trio, total: &Trio) -> f64 {
        let mut largest = 0.0_f64;
        for r in 0..3 {
            let share = self.allocatable[r].unwrap_or(total[r]);
            let ratio = if share > 0 {
                held[r] as f64 / share as f64
            } else {
                // Holding what one has no share of weighs a thousand times as much as the amount itself.
                (held[r] as f64 / UNITS[r] as f64) * 1000.0
            };
            if held[r] != 0 {
                largest = largest.max(ratio);
            }
        }
        largest
    }
}
