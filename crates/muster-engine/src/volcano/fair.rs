//! Dominant-resource fairness: a job's share is the largest part of the cluster that it holds of any resource. In a tree of queues, shares are
//! compared level by level.

use super::Session;
use super::amounts::Res;
use crate::ids::PodId;
use crate::state::St;
use muster_model::Name;
use muster_model::volcano::{Hook, PluginKind};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Shares that differ by less are the same.
const CLOSE: f64 = 0.000_001;

#[derive(Default)]
pub struct Fair {
    tree: bool,
    /// By job, in a tree: everything that it asks for.
    requests: Vec<Res>,
}

impl Fair {
    pub fn is_tree(&self) -> bool {
        self.tree
    }
}

/// A node of the tree of queues and jobs.
struct Branch {
    children: BTreeMap<Name, Branch>,
    weight: i64,
    share: f64,
    held: Vec<f64>,
    saturated: bool,
    /// Of a leaf: what its job asks for.
    request: Option<Vec<f64>>,
}

impl Branch {
    fn new(weight: i64) -> Self {
        Self {
            children: BTreeMap::new(),
            weight,
            share: 0.0,
            held: Vec::new(),
            saturated: false,
            request: None,
        }
    }
}

impl Session<'_> {
    pub fn open_fair(&mut self) {
        let Some(plugin) = self.plugin(|kind| matches!(kind, PluginKind::Drf)) else { return };
        self.fair.tree = plugin.enabled.has(Hook::Hierarchy);
        if !self.fair.tree {
            return;
        }
        for job in &self.jobs {
            let mut sum = Res::default();
            for pod in &job.tasks {
                if !matches!(self.st.pods.row(*pod).spot.st, St::Succeeded | St::Failed) {
                    sum.add_need(&self.st.classes.rows[self.st.pods.row(*pod).class].need, 1);
                }
            }
            self.fair.requests.push(sum);
        }
    }

    fn job_held(&self, job: usize) -> Res {
        let gang = self.jobs[job].gang;
        let books = self.st.books.as_ref();
        books.and_then(|b| b.gangs.get(gang)).map_or_else(Res::default, |sums| Res(sums.clone()))
    }

    /// The share of a job as it stands.
    pub fn share_now(&self, job: usize) -> f64 {
        let books = self.st.books.as_ref();
        let sums = books.and_then(|b| b.gangs.get(self.jobs[job].gang)).map_or(&[][..], |sums| sums);
        let parts = sums.iter().enumerate().filter(|(dim, held)| **held > 0 && self.total.get(*dim) > 0);
        parts.map(|(dim, held)| *held as f64 / self.total.get(dim) as f64).fold(0.0, f64::max)
    }

    fn share_of(&self, held: &Res) -> f64 {
        held.names()
            .filter(|dim| self.total.get(*dim) > 0)
            .map(|dim| held.get(dim) as f64 / self.total.get(dim) as f64)
            .fold(0.0, f64::max)
    }

    pub fn compare_shares(&self, a: usize, b: usize) -> Ordering {
        self.standing(a).share.total_cmp(&self.standing(b).share)
    }

    /// Of these pods, those whose jobs would still have as large a share as the taker's.
    pub fn spared_by_share(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let Some(job) = self.job_of_pod(taker) else { return Vec::new() };
        let mut with = self.job_held(job);
        with.add_need(self.need(taker), 1);
        let own = self.share_of(&with);
        let mut held: BTreeMap<usize, Res> = BTreeMap::new();
        let mut victims = Vec::new();
        for pod in candidates {
            let Some(job) = self.job_of_pod(*pod) else { continue };
            let left = held.entry(job).or_insert_with(|| self.job_held(job));
            left.add_need(self.need(*pod), -1);
            let share = self.share_of(left);
            if own < share || (own - share).abs() <= CLOSE {
                victims.push(*pod);
            }
        }
        victims
    }

    /// The tree with some jobs' holdings changed.
    fn fair_tree(&self, changes: &BTreeMap<usize, Res>) -> Branch {
        let mut root = Branch::new(1);
        let dims = self.st.nodes.dims.len();
        let mut all = vec![0.0; dims];
        for (i, job) in self.jobs.iter().enumerate() {
            let mut at = &mut root;
            for (name, weight) in self.queues[job.queue].vc.hierarchy.iter().skip(1) {
                at = at.children.entry(name.clone()).or_insert_with(|| Branch::new(*weight));
                at.weight = *weight;
            }
            let held = changes.get(&i).cloned().unwrap_or_else(|| self.job_held(i));
            let mut leaf = Branch::new(1);
            leaf.held = (0..dims).map(|dim| held.get(dim) as f64).collect();
            for (sum, n) in all.iter_mut().zip(&leaf.held) {
                *sum += n;
            }
            let request = self.fair.requests.get(i).cloned().unwrap_or_default();
            leaf.request = Some((0..dims).map(|dim| request.get(dim) as f64).collect());
            at.children.insert(format!("/{}", job.key).into(), leaf);
        }
        let total: Vec<f64> = (0..dims).map(|dim| self.total.get(dim) as f64).collect();
        let exhausted: Vec<bool> = total.iter().zip(&all).map(|(t, a)| *t > 0.0 && a >= t).collect();
        settle(&mut root, &total, &exhausted, 0);
        root
    }

    /// Compares two queues level by level: the one that is not saturated, then the one with the smaller share for its weight.
    fn compare_paths(&self, root: &Branch, a: usize, b: usize) -> Ordering {
        let path = |q: usize| self.queues[q].vc.hierarchy.iter().skip(1).map(|(name, _)| name);
        let (mut l, mut r) = (root, root);
        for (x, y) in path(a).zip(path(b)) {
            let (Some(left), Some(right)) = (l.children.get(x), r.children.get(y)) else { break };
            (l, r) = (left, right);
            let share = |b: &Branch| b.share / (b.weight.max(1) as f64);
            let order = l.saturated.cmp(&r.saturated).then_with(|| share(l).total_cmp(&share(r)));
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }

    pub fn compare_in_tree(&self, a: usize, b: usize) -> Ordering {
        let root = self.fair_tree(&BTreeMap::new());
        self.compare_paths(&root, a, b)
    }

    /// Of these pods, those that may go to the taker so that its branch is still the smaller one.
    pub fn spared_in_tree(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let Some(job) = self.job_of_pod(taker) else { return Vec::new() };
        let mut changes = BTreeMap::new();
        let mut with = self.job_held(job);
        with.add_need(self.need(taker), 1);
        changes.insert(job, with);
        let mut victims = Vec::new();
        for pod in candidates {
            let Some(victim) = self.job_of_pod(*pod) else { continue };
            let mut trial = changes.clone();
            let left = trial.entry(victim).or_insert_with(|| self.job_held(victim));
            left.add_need(self.need(*pod), -1);
            let root = self.fair_tree(&trial);
            if self.compare_paths(&root, self.jobs[job].queue, self.jobs[victim].queue) == Ordering::Less {
                victims.push(*pod);
            }
        }
        victims
    }
}

fn share(held: &[f64], total: &[f64]) -> f64 {
    held.iter().zip(total).filter(|(_, t)| **t > 0.0).map(|(h, t)| h / t).fold(0.0, f64::max)
}

/// Works out shares from the leaves up. Children that can use more are taken as large as the smallest of them.
fn settle(branch: &mut Branch, total: &[f64], exhausted: &[bool], depth: usize) {
    if let Some(request) = &branch.request {
        branch.share = share(&branch.held, total);
        branch.saturated = branch
            .held
            .iter()
            .zip(request)
            .zip(exhausted)
            .any(|((held, request), exhausted)| *request > 0.0 && (*held >= *request || *exhausted));
        return;
    }
    // Deeper than any real tree; such queues count as empty.
    if depth > 64 {
        return;
    }
    for child in branch.children.values_mut() {
        settle(child, total, exhausted, depth + 1);
    }
    let asks = |b: &&Branch| b.request.is_none() || b.held.iter().any(|n| *n > 0.0);
    let least = branch
        .children
        .values()
        .filter(asks)
        .filter(|c| !c.saturated && c.share > 0.0)
        .map(|c| c.share)
        .fold(1.0, f64::min);
    let mut held = vec![0.0; total.len()];
    for child in branch.children.values() {
        let scale = if child.saturated || child.share == 0.0 { 1.0 } else { least / child.share };
        for (sum, n) in held.iter_mut().zip(&child.held) {
            *sum += n * scale;
        }
    }
    branch.share = share(&held, total);
    branch.held = held;
    branch.saturated = branch.children.values().all(|c| c.saturated);
}
