//! Gangs as the engine sees them: the tree of groups, its pods by state, and what to place or evict next.
//!
//! *Invariant:* the counts of a leaf equal what its pods' states say; the state table keeps them.

use crate::ids::{GangId, PodId, QueueId};
use crate::state::{Pods, St};
use dense::IdVec;
use indexmap::IndexMap;
use muster_model::{Gang, Key, Min, Preemptibility};
use rustc_hash::FxBuildHasher;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
pub struct Gangs {
    ids: IndexMap<Key, GangId, FxBuildHasher>,
    /// Those of gangs that are forgotten know no gang and no pod; they go to whoever comes next.
    pub rows: IdVec<GangId, Row>,
    free: Vec<GangId>,
}

pub struct Row {
    pub key: Key,
    pub model: Option<Arc<Gang>>,
    pub queue: Option<QueueId>,
    pub groups: Vec<Group>,
    /// Pods that name this gang and no leaf of it; they wait for a gang that has one.
    pub strays: Vec<PodId>,
    pub n_pending: u32,
    /// Changes whenever one of its pods moves: what was worked out from where they are holds until then.
    pub moves: u32,
    /// Leaves whose pods are not in order.
    pub unsorted: bool,
    /// The model says since when it is stale; here because every gang is asked in every cycle.
    pub stale_on_record: bool,
}

pub struct Group {
    pub parent: Option<usize>,
    pub children: Vec<usize>,
    pub min: Min,
    /// Of a leaf: its pods in the order in which they are placed.
    pub pods: Vec<PodId>,
    pub counts: [u32; St::COUNT],
    /// No pod before this one may be placed.
    pub first_waiting: usize,
}

impl Gangs {
    pub fn intern(&mut self, key: &Key) -> GangId {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let row = Row {
            key: key.clone(),
            model: None,
            queue: None,
            groups: Vec::new(),
            strays: Vec::new(),
            n_pending: 0,
            moves: 0,
            unsorted: false,
            stale_on_record: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.rows[id] = row;
                id
            }
            None => self.rows.push(row),
        };
        self.ids.insert(key.clone(), id);
        id
    }

    /// Gives back the row of a gang that nothing is known of any more: neither what it is, nor a pod.
    pub fn forget_if_gone(&mut self, id: GangId) {
        let row = &self.rows[id];
        let is_gone = row.model.is_none() && row.groups.is_empty() && row.strays.is_empty();
        if is_gone && self.ids.get(&row.key) == Some(&id) {
            self.ids.swap_remove(&row.key);
            self.free.push(id);
        }
    }

    pub fn get(&self, key: &Key) -> Option<GangId> {
        self.ids.get(key).copied()
    }
}

impl Row {
    pub fn set_model(&mut self, model: Option<Arc<Gang>>) {
        self.groups = match &model {
            None => Vec::new(),
            // Deeper than anyone means it, and deeper than it is safe to go: such a gang is never ready.
            Some(gang) if depth(gang) > 64 => Vec::new(),
            Some(gang) => {
                let mut groups: Vec<Group> = gang
                    .groups
                    .iter()
                    .enumerate()
                    .map(|(i, g)| Group {
                        // A parent that does not come before its child is a defect of the front end; such a group hangs from nothing.
                        parent: g.parent.map(|p| p as usize).filter(|p| *p < i),
                        children: Vec::new(),
                        min: g.min,
                        pods: Vec::new(),
                        counts: [0; St::COUNT],
                        first_waiting: 0,
                    })
                    .collect();
                for i in 0..groups.len() {
                    if let Some(parent) = groups[i].parent {
                        groups[parent].children.push(i);
                    }
                }
                groups
            }
        };
        self.stale_on_record = model.as_ref().is_some_and(|gang| gang.stale_since.is_some());
        self.model = model;
    }

    /// The leaf of this name, or the only one.
    pub fn leaf_named(&self, name: Option<&str>) -> Option<usize> {
        let model = self.model.as_ref()?;
        let leaf = |i: &usize| self.groups.get(*i).is_some_and(Group::is_leaf);
        match name {
            Some(name) => (0..model.groups.len()).find(|i| leaf(i) && &*model.groups[*i].name == name),
            None => {
                let mut leaves = (0..self.groups.len()).filter(|i| leaf(i));
                let first = leaves.next()?;
                leaves.next().is_none().then_some(first)
            }
        }
    }

    pub fn preemptible(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.preemptibility == Preemptibility::Preemptible)
    }

    /// It lives by Volcano's rules.
    pub fn is_volcano(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.volcano.is_some())
    }

    pub fn priority(&self) -> i32 {
        self.model.as_ref().map_or(0, |m| m.priority)
    }

    pub fn leaves(&self) -> impl Iterator<Item = (usize, &Group)> {
        self.groups.iter().enumerate().filter(|(_, g)| g.is_leaf())
    }

    pub fn pods(&self) -> impl Iterator<Item = PodId> + '_ {
        self.groups.iter().flat_map(|g| g.pods.iter().copied())
    }

    /// Pods that hold a place or a promise and keep it.
    pub fn n_active(&self) -> u32 {
        self.leaves().map(|(_, g)| g.active()).sum()
    }

    /// How much of the gang is needed, in pods.
    pub fn n_needed(&self, group: usize) -> u32 {
        let Some(g) = self.groups.get(group) else { return 0 };
        match g.min {
            Min::Pods(n) => n,
            Min::Children(k) => {
                let mut mins: Vec<u32> = g.children.iter().map(|c| self.n_needed(*c)).collect();
                mins.sort_unstable();
                let k = k.map_or(mins.len(), |k| k as usize);
                mins.iter().take(k).fold(0_u32, |sum, n| sum.saturating_add(*n))
            }
            Min::Whole { pods } => {
                let of_children = g.children.iter().map(|c| self.n_needed(*c));
                of_children.fold(0_u32, u32::saturating_add).max(pods)
            }
        }
    }

    /// Pods of a group and of everything below it, as `count` reads them.
    pub fn below(&self, group: usize, count: &impl Fn(&Group) -> u32) -> u32 {
        let g = &self.groups[group];
        match g.min {
            Min::Pods(_) => count(g),
            _ => g.children.iter().fold(0, |sum: u32, c| sum.saturating_add(self.below(*c, count))),
        }
    }

    /// Whether a group that needs so many pods in all has them, as `count` reads them; one that needs none has them.
    pub fn has_total(&self, group: usize, count: &impl Fn(&Group) -> u32) -> bool {
        match self.groups[group].min {
            Min::Whole { pods } => self.below(group, count) >= pods,
            _ => true,
        }
    }

    /// Whether the counts, as `count` reads them, make the group whole.
    fn whole(&self, group: usize, count: &impl Fn(&Group) -> u32) -> bool {
        let g = &self.groups[group];
        match g.min {
            Min::Pods(n) => count(g) >= n,
            Min::Children(k) => {
                let need = k.map_or(g.children.len(), |k| k as usize);
                g.children.iter().filter(|c| self.whole(**c, count)).count() >= need
            }
            Min::Whole { .. } => {
                g.children.iter().all(|c| self.whole(*c, count)) && self.has_total(group, count)
            }
        }
    }

    /// Enough pods keep a place or a promise.
    pub fn satisfied(&self, group: usize) -> bool {
        self.groups.get(group).is_some() && self.whole(group, &Group::active)
    }

    /// Enough pods of a group keep a place, not counting those that `gone` names.
    pub fn whole_without(&self, group: usize, pods: &Pods, gone: &impl Fn(PodId) -> bool) -> bool {
        self.groups.get(group).is_some()
            && self.whole(group, &|g| {
                g.pods.iter().filter(|p| pods.row(**p).spot.st.is_active() && !gone(**p)).count() as u32
            })
    }

    /// The group and those around it, from the inside out.
    pub fn upwards(&self, group: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(group), |at| self.groups.get(*at)?.parent)
    }

    /// Enough pods exist and are free of gates.
    pub fn ready(&self) -> bool {
        !self.groups.is_empty() && self.whole(0, &|g| g.active() + g.count(St::Pending))
    }

    /// Enough pods have a place, even if they are about to lose it.
    pub fn has_minimum_in_use(&self) -> bool {
        !self.groups.is_empty()
            && self.whole(0, &|g| g.active() + g.count(St::Releasing) + g.count(St::Stuck))
    }

    /// Below its minimum, at it, or above it.
    pub fn elastic_state(&self) -> u8 {
        self.elastic_state_of(&Group::active)
    }

    pub fn elastic_state_of(&self, count: &impl Fn(&Group) -> u32) -> u8 {
        let mut above = false;
        for (_, g) in self.leaves() {
            let Min::Pods(min) = g.min else { continue };
            match count(g).cmp(&min) {
                Ordering::Less => return 0,
                Ordering::Greater => above = true,
                Ordering::Equal => {}
            }
        }
        for (i, g) in self.groups.iter().enumerate() {
            let Min::Whole { pods } = g.min else { continue };
            match self.below(i, count).cmp(&pods) {
                Ordering::Less => return 0,
                Ordering::Equal => above = false,
                Ordering::Greater => {}
            }
        }
        1 + u8::from(above)
    }

    /// The pods to place next, in order: what the gang lacks to be whole, or one more where it is elastic. `released` also offers pods that a trial
    /// has evicted.
    pub fn to_place(&self, pods: &Pods, released: bool) -> Vec<PodId> {
        self.to_place_without(pods, released, &[])
    }

    /// The same, without some groups that the gang can do without.
    pub fn to_place_without(&self, pods: &Pods, released: bool, without: &[usize]) -> Vec<PodId> {
        let mut out = Vec::new();
        if !self.groups.is_empty() {
            self.pick(0, pods, released, without, &mut out);
        }
        out
    }

    /// The innermost group around this one (or itself) that its parent can do without, and that is not among `without`.
    pub fn dispensable(&self, group: usize, without: &[usize]) -> Option<usize> {
        let mut at = group;
        loop {
            let parent = self.groups.get(at)?.parent?;
            let g = &self.groups[parent];
            let optional = matches!(g.min, Min::Children(Some(k)) if (k as usize) < g.children.len());
            if optional && !without.contains(&at) {
                return Some(at);
            }
            at = parent;
        }
    }

    fn pick(&self, group: usize, pods: &Pods, released: bool, without: &[usize], out: &mut Vec<PodId>) {
        let g = &self.groups[group];
        match g.min {
            Min::Pods(min) => {
                let lacking = min.saturating_sub(g.active()) as usize;
                let wanted = lacking.max(1);
                let before = out.len();
                let waiting = || g.pods[g.first_waiting.min(g.pods.len())..].iter().copied();
                if released {
                    // Who was there before comes before those who never were.
                    let back =
                        waiting().filter(|p| pods.may_be_placed(*p, true) && !pods.may_be_placed(*p, false));
                    out.extend(back.take(wanted));
                }
                let left = wanted - (out.len() - before);
                out.extend(waiting().filter(|p| pods.may_be_placed(*p, false)).take(left));
                if out.len() - before < lacking {
                    // A part of the minimum is of no use.
                    out.truncate(before);
                }
            }
            Min::Children(k) => {
                let mut order = self.children_in_order(group);
                let need = k.map_or(order.len(), |k| k as usize);
                order.retain(|c| !without.contains(c));
                let n_satisfied = order.iter().filter(|c| self.satisfied(**c)).count();
                if n_satisfied < need {
                    // Only as many children as are lacking, of those that can become whole.
                    let can = |c: &usize| {
                        !self.satisfied(*c)
                            && self.whole(*c, &|g| {
                                g.active()
                                    + g.pods.iter().filter(|p| pods.may_be_placed(**p, released)).count()
                                        as u32
                            })
                    };
                    let mut lacking: Vec<usize> = order.iter().copied().filter(can).collect();
                    if released {
                        // Those whose pods were there before come before those who would need others.
                        let back =
                            |p: &&PodId| pods.may_be_placed(**p, true) && !pods.may_be_placed(**p, false);
                        let there = |g: &Group| g.active() + g.pods.iter().filter(back).count() as u32;
                        lacking.sort_by_key(|c| !self.whole(*c, &there));
                    }
                    lacking.truncate(need - n_satisfied);
                    if lacking.len() < need - n_satisfied {
                        return;
                    }
                    let start = out.len();
                    for child in lacking {
                        let before = out.len();
                        self.pick(child, pods, released, without, out);
                        if out.len() == before {
                            out.truncate(start);
                            return;
                        }
                    }
                } else {
                    self.pick_one_more(order, pods, released, without, out);
                }
            }
            Min::Whole { pods: total } => {
                let order = self.children_in_order(group);
                if self.satisfied(group) {
                    self.pick_one_more(order, pods, released, without, out);
                    return;
                }
                let start = out.len();
                for child in order.iter().filter(|c| !self.satisfied(**c)) {
                    let before = out.len();
                    self.pick(*child, pods, released, without, out);
                    if out.len() == before {
                        out.truncate(start);
                        return;
                    }
                }
                // What the children's own minimums leave open is filled up with whoever is there.
                let have = self.below(group, &Group::active) as usize + (out.len() - start);
                let mut lacking = (total as usize).saturating_sub(have);
                let mut picked: BTreeSet<PodId> = out.iter().skip(start).copied().collect();
                let mut by_leaf: BTreeMap<usize, u32> = BTreeMap::new();
                for pod in &picked {
                    *by_leaf.entry(pods.row(*pod).leaf as usize).or_default() += 1;
                }
                // Not with a part of somebody's minimum.
                let is_open = |p: &PodId| {
                    let leaf = pods.row(*p).leaf as usize;
                    let more = by_leaf.get(&leaf).copied().unwrap_or(0);
                    self.groups.get(leaf).is_some_and(|g| match g.min {
                        Min::Pods(min) => g.active() + more >= min,
                        Min::Children(_) | Min::Whole { .. } => false,
                    })
                };
                let mut spare: Vec<PodId> = order
                    .iter()
                    .flat_map(|child| self.pods_below(*child))
                    .filter(|p| pods.may_be_placed(*p, released) && !picked.contains(p) && is_open(p))
                    .collect();
                if released {
                    // Who was there before comes before those who never were.
                    spare.sort_by_key(|p| pods.may_be_placed(*p, false));
                }
                // Groups that the gang could do without come in whole or not at all.
                let short = spare.len() < lacking;
                let optional = if short { self.optional_below(group, &picked, without) } else { Vec::new() };
                for child in optional {
                    if spare.len() >= lacking {
                        break;
                    }
                    let before = out.len();
                    self.pick(child, pods, released, without, out);
                    lacking = lacking.saturating_sub(out.len() - before);
                    picked.extend(out.iter().skip(before).copied());
                }
                spare.retain(|p| !picked.contains(p));
                if spare.len() < lacking {
                    out.truncate(start);
                    return;
                }
                out.extend(spare.into_iter().take(lacking));
            }
        }
    }

    fn pick_one_more(
        &self,
        order: Vec<usize>,
        pods: &Pods,
        released: bool,
        without: &[usize],
        out: &mut Vec<PodId>,
    ) {
        for child in order {
            let before = out.len();
            self.pick(child, pods, released, without, out);
            if out.len() > before {
                return;
            }
        }
    }

    /// The outermost groups below this one of which nothing is there or picked.
    fn optional_below(&self, group: usize, picked: &BTreeSet<PodId>, without: &[usize]) -> Vec<usize> {
        let mut found = Vec::new();
        for child in self.children_in_order(group) {
            if self.satisfied(child) || self.pods_below(child).iter().any(|p| picked.contains(p)) {
                found.extend(self.optional_below(child, picked, without));
            } else if !without.contains(&child) {
                found.push(child);
            }
        }
        found
    }

    fn pods_below(&self, group: usize) -> Vec<PodId> {
        let g = &self.groups[group];
        let mut all = g.pods.clone();
        all.extend(g.children.iter().flat_map(|c| self.pods_below(*c)));
        all
    }

    /// Children in the order in which they are served: those that lack pods first, required ones before optional ones, the emptier first.
    pub fn children_in_order(&self, group: usize) -> Vec<usize> {
        let mut order = self.groups[group].children.clone();
        let name = |i: usize| self.model.as_ref().map(|m| m.groups[i].name.clone());
        order.sort_by(|a, b| {
            let threshold = |i: usize| u64::from(self.threshold(i));
            let active = |i: usize| u64::from(self.progress(i));
            let (ta, tb, aa, ab) = (threshold(*a), threshold(*b), active(*a), active(*b));
            self.satisfied(*a)
                .cmp(&self.satisfied(*b))
                .then_with(|| (ta == 0).cmp(&(tb == 0)))
                .then_with(|| (aa * tb.max(1)).cmp(&(ab * ta.max(1))))
                .then_with(|| aa.cmp(&ab))
                .then_with(|| name(*a).cmp(&name(*b)))
        });
        order
    }

    fn threshold(&self, group: usize) -> u32 {
        let g = &self.groups[group];
        match g.min {
            Min::Pods(n) => n,
            Min::Children(k) => k.unwrap_or(g.children.len() as u32),
            Min::Whole { .. } => g.children.len() as u32,
        }
    }

    fn progress(&self, group: usize) -> u32 {
        let g = &self.groups[group];
        match g.min {
            Min::Pods(_) => g.active(),
            Min::Children(_) | Min::Whole { .. } => {
                g.children.iter().filter(|c| self.satisfied(**c)).count() as u32
            }
        }
    }

    /// The pods to evict next, of those that `left` still holds; and whether more would be left afterwards. First one pod of an elastic
    /// surplus, then a whole surplus group, then everything.
    /// Who was only given a place in this cycle (not `there`) goes before those who have one.
    pub fn to_evict(
        &self,
        left: &impl Fn(PodId) -> bool,
        there: &impl Fn(PodId) -> bool,
    ) -> (Vec<PodId>, bool) {
        let total: usize = self.pods().filter(|p| left(*p)).count();
        if self.groups.is_empty() || total == 0 {
            return (Vec::new(), false);
        }
        if let Some(batch) = self.surplus(0, left, there) {
            let more = batch.len() < total;
            return (batch, more);
        }
        (self.all_left(0, left), false)
    }

    fn surplus(
        &self,
        group: usize,
        left: &impl Fn(PodId) -> bool,
        there: &impl Fn(PodId) -> bool,
    ) -> Option<Vec<PodId>> {
        let g = &self.groups[group];
        let n_left = |g: &Group| g.pods.iter().filter(|p| left(**p)).count() as u32;
        match g.min {
            Min::Pods(min) => (n_left(g) > min).then(|| {
                let last = |keep: &dyn Fn(PodId) -> bool| {
                    g.pods.iter().rev().copied().find(|p| left(*p) && keep(*p))
                };
                last(&|p| !there(p)).or_else(|| last(&|_| true)).into_iter().collect()
            }),
            Min::Children(k) => {
                let mut order = self.children_in_order(group);
                order.reverse();
                // Pods above a leaf's minimum go first, wherever they are.
                if let Some(batch) = order
                    .iter()
                    .find_map(|c| self.whole(*c, &n_left).then(|| self.surplus(*c, left, there)).flatten())
                {
                    return Some(batch);
                }
                let need = k.map_or(order.len(), |k| k as usize);
                let whole: Vec<usize> = order.iter().copied().filter(|c| self.whole(*c, &n_left)).collect();
                // Remains of a child that is not whole are of no use to anyone.
                let broken = order
                    .iter()
                    .copied()
                    .filter(|c| !whole.contains(c))
                    .map(|c| self.all_left(c, left))
                    .find(|batch| !batch.is_empty());
                if whole.len() >= need && broken.is_some() {
                    return broken;
                }
                if whole.len() > need {
                    // Who only comes goes first, then who is whole only together with those who come.
                    let n_there =
                        |g: &Group| g.pods.iter().filter(|p| left(**p) && there(**p)).count() as u32;
                    return whole
                        .into_iter()
                        .map(|child| (self.whole(child, &n_there), self.all_left(child, left)))
                        .filter(|(_, batch)| !batch.is_empty())
                        .min_by_key(|(firm, batch)| (batch.iter().any(|p| there(*p)), *firm))
                        .map(|(_, batch)| batch);
                }
                None
            }
            Min::Whole { pods } if self.below(group, &n_left) > pods && self.whole(group, &n_left) => {
                // A group that could be spared may be too much for the number.
                let spare = (self.below(group, &n_left) - pods) as usize;
                let order = self.children_in_order(group).into_iter().rev();
                order
                    .into_iter()
                    .find_map(|c| self.surplus(c, left, there).filter(|batch| batch.len() <= spare))
            }
            Min::Whole { .. } => None,
        }
    }

    fn all_left(&self, group: usize, left: &impl Fn(PodId) -> bool) -> Vec<PodId> {
        let g = &self.groups[group];
        let mut all: Vec<PodId> = g.pods.iter().rev().copied().filter(|p| left(*p)).collect();
        for child in self.children_in_order(group).into_iter().rev() {
            all.extend(self.all_left(child, left));
        }
        all
    }

    /// Puts the pods of every leaf in the order in which they are placed.
    pub fn sort(&mut self, pods: &mut Pods) {
        if !std::mem::take(&mut self.unsorted) {
            return;
        }
        for g in &mut self.groups {
            g.pods.sort_by(|a, b| pods.placed_before(*a, *b));
            for (i, pod) in g.pods.iter().enumerate() {
                pods.set_index(*pod, i as u32);
            }
            g.first_waiting = 0;
        }
    }
}

/// How deep the tree of groups is.
fn depth(gang: &Gang) -> usize {
    let mut depths: Vec<usize> = Vec::with_capacity(gang.groups.len());
    for (i, group) in gang.groups.iter().enumerate() {
        let parent = group.parent.map(|p| p as usize).filter(|p| *p < i);
        depths.push(parent.map_or(1, |p| depths[p] + 1));
    }
    depths.into_iter().max().unwrap_or(0)
}

impl Group {
    pub fn is_leaf(&self) -> bool {
        matches!(self.min, Min::Pods(_))
    }

    pub fn count(&self, st: St) -> u32 {
        self.counts[st as usize]
    }

    /// Pods that hold a place or a promise and keep it.
    pub fn active(&self) -> u32 {
        St::ACTIVE.iter().map(|st| self.count(*st)).sum()
    }
}
