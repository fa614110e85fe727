//! What queues may have: proportion divides the cluster by weight, capacity goes by what queues say that they deserve; overcommit and
//! resource quotas bound what is let in.
//!
//! *Invariant:* what a queue holds is read from the books, so it is right within every trial.

mod why;

use super::amounts::{Caps, Res};
use super::votes::Vote;
use super::{QueueRow, Session};
use crate::ids::PodId;
use crate::nodes::PODS_DIM;
use crate::state::St;
use muster_model::volcano::{Hook, Phase, PluginKind};
use muster_model::{Amounts, Resource, own_name};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Deserved shares are divided in millionths, so that dividing loses nothing that matters.
const FINE: i128 = 1_000_000;
/// Upstream calls two amounts equal that differ by less than a tenth of a unit.
const EPSILON: i128 = FINE / 10;
/// More rounds than this mean that nothing is left to divide but rounding.
const MOST_ROUNDS: usize = 1000;

#[derive(Default)]
pub struct Quotas {
    /// By queue: what it deserves in millionths of a unit.
    deserved: Vec<Option<Vec<i128>>>,
    /// By queue: what it can have at most.
    real: Vec<Caps>,
    tree: Option<Tree>,
    /// By queue: what capacity says that it deserves.
    given: Vec<Res>,
    guarantee: Vec<Res>,
    /// By queue: what was let in and has not got its room yet; what is held beyond the minimum.
    inqueue: Vec<Res>,
    elastic: Vec<Res>,
    /// In the whole cluster.
    all_inqueue: Res,
    /// What was used of the nodes when the session began.
    used: Res,

    /// By namespace: what was let in in this session.
    pending: BTreeMap<muster_model::Name, BTreeMap<muster_model::Name, i128>>,
    /// Minimum of each job.
    least: Vec<Option<Res>>,
    /// What claims ask for: by pod, (claim, dimension, count).
    claimed: bool,
}

/// The tree that queues make by their parents.
struct Tree {
    /// Root first, the queue itself not included.
    ancestors: Vec<Vec<usize>>,
    has_children: Vec<bool>,
    /// Everything hangs from a root, and jobs are in leaves only.
    sound: bool,
    root: Option<usize>,
}

impl Session<'_> {
    pub fn open_quotas(&mut self) {
        let n = self.queues.len();
        let capacity = self.plugin(|kind| matches!(kind, PluginKind::Capacity(_))).cloned();
        let proportion = self.plugin(|kind| matches!(kind, PluginKind::Proportion)).is_some();
        self.quotas.claimed =
            matches!(&capacity, Some(p) if matches!(p.kind, PluginKind::Capacity(c) if c.count_claims));
        let rows: Vec<std::sync::Arc<muster_model::volcano::Queue>> =
            self.queues.iter().map(|q| q.vc.clone()).collect();
        let mut capability: Vec<Caps> = Vec::with_capacity(n);
        for queue in &rows {
            let guarantee = Res::of(self.st, &queue.guarantee);
            let given = Res::of(self.st, &queue.deserved);
            let caps = self.caps(&queue.capability);
            self.quotas.guarantee.push(guarantee);
            self.quotas.given.push(given);
            capability.push(caps);
        }
        self.quotas.inqueue = vec![Res::default(); n];
        self.quotas.elastic = vec![Res::default(); n];
        for job in 0..self.jobs.len() {
            let least = self.jobs[job].model.min_resources.clone().map(|amounts| Res::of(self.st, &amounts));
            self.quotas.least.push(least);
        }
        for job in 0..self.jobs.len() {
            self.count_let_in(job);
        }
        let all: Vec<crate::ids::NodeId> =
            if self.st.policy.has_pools() { self.nodes.clone() } else { self.st.nodes.known().collect() };
        for node in all {
            for dim in 0..self.st.nodes.dims.len() {
                let used = self.st.nodes.cap(node, dim) - self.st.nodes.idle(node, dim);
                self.quotas.used.add(dim, i128::from(used));
            }
        }
        // Under a queue of KAI's the whole is that queue's, and what is used of it is what it holds.
        for (dim, used) in self.st.volcano_bounds() {
            self.quotas.used.set(dim, used.1);
        }
        let tree =
            capacity.as_ref().is_some_and(|p| p.enabled.has(Hook::Hierarchy)).then(|| self.queue_tree());
        match &tree {
            Some(tree) => self.bound_tree(tree, &capability),
            None => self.bound_flat(&capability, capacity.is_some()),
        }
        self.quotas.tree = tree;
        if proportion {
            self.divide();
        }
    }

    /// Bounds by resource; CPU and memory of nothing are no bounds.
    fn caps(&mut self, amounts: &Amounts) -> Caps {
        let mut caps = Caps::unlimited();
        for (resource, amount) in amounts.iter() {
            if amount > 0 || !matches!(resource, Resource::Cpu | Resource::Memory) {
                let dim = self.st.nodes.dim(resource);
                caps.set(dim, Some(i128::from(amount)));
            }
        }
        caps
    }

    /// What is let in and not yet there, and what is there beyond the minimum.
    fn count_let_in(&mut self, job: usize) {
        let row = &self.jobs[job];
        let queue = row.queue;
        let n_allocated: u32 =
            [St::Bound, St::Binding, St::Running, St::Allocated].iter().map(|st| self.count(job, *st)).sum();
        let let_in = match row.phase {
            Phase::Inqueue => true,
            Phase::Running => n_allocated >= row.model.min_member,
            _ => false,
        };
        // Hot: every job is asked about in every session, and most of those that wait hold nothing.
        if n_allocated == 0 && !let_in {
            return;
        }
        let (allocated, gated) = (self.allocated_of(job), self.gated_of(job));
        let Quotas { elastic, inqueue, all_inqueue, least, .. } = &mut self.quotas;
        let least = least[job].as_ref();
        for dim in allocated.names() {
            let beyond = allocated.get(dim) - least.map_or(0, |least| least.get(dim));
            elastic[queue].add(dim, beyond.max(0));
        }
        let Some(least) = least.filter(|_| let_in) else { return };
        for dim in least.names() {
            let rest = (least.get(dim) - allocated.get(dim)).max(0) - gated.get(dim);
            inqueue[queue].add(dim, rest.max(0));
            all_inqueue.add(dim, rest.max(0));
        }
    }

    /// What a job's pods hold, promises not included.
    fn allocated_of(&self, job: usize) -> Res {
        let mut sum = Res::default();
        for pod in &self.jobs[job].tasks {
            if matches!(self.status(*pod), St::Bound | St::Binding | St::Running | St::Allocated) {
                sum.add_need(self.need(*pod), 1);
            }
        }
        sum
    }

    fn gated_of(&self, job: usize) -> Res {
        let mut sum = Res::default();
        for pod in self.jobs[job].tasks.iter().filter(|p| self.status(**p) == St::Gated) {
            sum.add_need(self.need(*pod), 1);
        }
        sum
    }

    /// What a queue holds, promises included.
    pub fn held(&self, queue: usize) -> Res {
        let id = self.queues[queue].id;
        let mut held = self
            .st
            .books
            .as_ref()
            .and_then(|books| books.queues.get(id))
            .map_or_else(Res::default, |sums| Res(sums.clone()));
        if self.quotas.claimed {
            held.add_all(&self.claims_of(queue));
        }
        held
    }

    /// What a queue and everything below it holds.
    fn held_below(&self, queue: usize) -> Res {
        let mut held = self.held(queue);
        if let Some(tree) = &self.quotas.tree {
            for other in (0..self.queues.len()).filter(|q| tree.ancestors[*q].contains(&queue)) {
                held.add_all(&self.held(other));
            }
        }
        held
    }

    /// Devices that the pods of a queue hold by claims, each claim once.
    fn claims_of(&self, queue: usize) -> Res {
        let mut seen = std::collections::BTreeSet::new();
        let mut sum = Res::default();
        for job in self.jobs.iter().filter(|j| j.queue == queue) {
            for pod in job.tasks.iter().filter(|p| self.status(**p).is_active()) {
                self.add_claims(*pod, &mut seen, &mut sum);
            }
        }
        sum
    }

    fn add_claims(
        &self,
        pod: PodId,
        seen: &mut std::collections::BTreeSet<(muster_model::Key, muster_model::Name)>,
        sum: &mut Res,
    ) {
        for (claim, class, count) in self.task(pod).map_or(&[][..], |t| &t.devices) {
            let resource = Resource::Other(format!("deviceclass/{class}").into());
            if let Some(dim) = self.st.nodes.dims.get(&resource)
                && seen.insert((claim.clone(), class.clone()))
            {
                use dense::Id;
                sum.add(dim.index(), i128::from(*count));
            }
        }
    }

    /// What some pods ask their queue for.
    pub fn asked(&self, queue: usize, pods: &[PodId]) -> Res {
        let mut sum = Res::default();
        for pod in pods {
            sum.add_need(self.need(*pod), 1);
        }
        if self.quotas.claimed {
            let mut seen = std::collections::BTreeSet::new();
            let mut old = Res::default();
            for job in self.jobs.iter().filter(|j| j.queue == queue) {
                for pod in job.tasks.iter().filter(|p| self.status(**p).is_active()) {
                    self.add_claims(*pod, &mut seen, &mut old);
                }
            }
            for pod in pods {
                self.add_claims(*pod, &mut seen, &mut sum);
            }
        }
        sum
    }

    /// What is left of the whole when everyone else's guarantee is taken off, as bounds.
    fn rest_of(&self, whole: &Caps, guarantees: &Res, own: &Res) -> Caps {
        let mut caps = Caps::unlimited();
        for dim in 0..self.st.nodes.dims.len() {
            let bound = whole.get(dim).map(|whole| (whole - guarantees.get(dim)).max(0) + own.get(dim));
            caps.set(dim, bound);
        }
        caps
    }

    /// Everything there is, as bounds. Devices of claims are bounded by what queues say only.
    fn whole(&self) -> Caps {
        use dense::Id;
        let mut caps = Caps::unlimited();
        for (id, resource) in self.st.nodes.dims.iter() {
            let of_claims = matches!(resource, Resource::Other(name) if name.contains("deviceclass/"));
            if !of_claims {
                caps.set(id.index(), Some(self.total.get(id.index())));
            }
        }
        caps
    }

    fn bound_flat(&mut self, capability: &[Caps], capped: bool) {
        let mut guarantees = Res::default();
        for guarantee in &self.quotas.guarantee {
            guarantees.add_all(guarantee);
        }
        let whole = self.whole();
        for (queue, capability) in capability.iter().enumerate() {
            let mut real = self.rest_of(&whole, &guarantees, &self.quotas.guarantee[queue]);
            real.tighten(capability);
            if capped {
                let guarantee = self.quotas.guarantee[queue].clone();
                let given = &mut self.quotas.given[queue];
                for (dim, amount) in given.0.iter_mut().enumerate() {
                    if let Some(cap) = real.get(dim) {
                        *amount = (*amount).min(cap);
                    }
                }
                for dim in guarantee.names() {
                    given.set(dim, given.get(dim).max(guarantee.get(dim)));
                }
            }
            self.quotas.real.push(real);
        }
    }

    fn queue_tree(&self) -> Tree {
        let by_name = self.queue_named();
        let root = by_name.get("root").copied();
        let n = self.queues.len();
        let mut tree = Tree {
            ancestors: vec![Vec::new(); n],
            has_children: vec![false; n],
            sound: root.is_some(),
            root,
        };
        for queue in 0..n {
            let mut path = Vec::new();
            let mut at = queue;
            while Some(at) != root {
                let parent = self.queues[at].model.parent.as_ref().map_or("root", |p| own_name(p));
                match by_name.get(parent) {
                    // Deeper than anyone means it, or in a circle.
                    Some(parent) if path.len() <= n.min(64) => {
                        path.push(*parent);
                        at = *parent;
                    }
                    _ => {
                        tree.sound = false;
                        path.clear();
                        break;
                    }
                }
            }
            path.reverse();
            if let Some(parent) = path.last() {
                tree.has_children[*parent] = true;
            }
            tree.ancestors[queue] = path;
        }
        tree.sound &= self.jobs.iter().all(|job| !tree.has_children[job.queue]);
        tree
    }

    /// Bounds from the root down: what a parent has, less what its other children are guaranteed.
    fn bound_tree(&mut self, tree: &Tree, capability: &[Caps]) {
        let n = self.queues.len();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|q| tree.ancestors[*q].len());
        let mut inherited: Vec<Caps> = capability.to_vec();
        self.quotas.real = vec![Caps::unlimited(); n];
        for queue in order {
            let parent = tree.ancestors[queue].last().copied();
            let Some(parent) = parent else {
                if Some(queue) == tree.root {
                    let mut real = self.whole();
                    real.tighten(&capability[queue]);
                    self.quotas.real[queue] = real;
                }
                continue;
            };
            let siblings: Vec<usize> =
                (0..n).filter(|q| tree.ancestors[*q].last() == Some(&parent)).collect();
            let mut guarantees = Res::default();
            for sibling in &siblings {
                guarantees.add_all(&self.quotas.guarantee[*sibling]);
            }
            let above = inherited[parent].clone();
            let own = &mut inherited[queue];
            for dim in 0..above.0.len() {
                if own.get(dim).is_none() {
                    own.set(dim, above.get(dim));
                }
            }
            let mut real =
                self.rest_of(&self.quotas.real[parent], &guarantees, &self.quotas.guarantee[queue]);
            real.tighten(&inherited[queue]);
            self.quotas.real[queue] = real;
        }
        if let Some(root) = tree.root
            && self.quotas.given[root].is_empty()
        {
            let mut sum = Res::default();
            for child in (0..n).filter(|q| tree.ancestors[*q].last() == Some(&root)) {
                sum.add_all(&self.quotas.given[child]);
            }
            self.quotas.given[root] = sum;
        }
    }

    /// Divides the cluster by weight: in rounds, everyone gets a part of what is left, up to what it asks for and may have.
    fn divide(&mut self) {
        let n = self.queues.len();
        let dims = self.st.nodes.dims.len();
        let mut request: Vec<Option<Res>> = vec![None; n];
        for job in 0..self.jobs.len() {
            let queue = self.jobs[job].queue;
            let sum = request[queue].get_or_insert_with(Res::default);
            for pod in &self.jobs[job].tasks {
                let row = self.st.pods.row(*pod);
                if matches!(
                    row.spot.st,
                    St::Bound | St::Binding | St::Running | St::Allocated | St::Pending | St::Gated
                ) {
                    sum.add_need(&self.st.classes.rows[row.class].need, 1);
                }
            }
        }
        let mut remaining: Vec<i128> = (0..dims).map(|dim| self.total.get(dim) * FINE).collect();
        let mut deserved: Vec<Vec<i128>> = vec![vec![0; dims]; n];
        let mut met: Vec<bool> = request.iter().map(Option::is_none).collect();
        for _ in 0..MOST_ROUNDS {
            let weights: i128 =
                (0..n).filter(|q| !met[*q]).map(|q| i128::from(self.queues[q].vc.weight.max(0))).sum();
            if weights == 0 {
                break;
            }
            let old = remaining.clone();
            let mut given = vec![0_i128; dims];
            for (queue, asked) in request.iter().enumerate() {
                let Some(asked) = asked.as_ref().filter(|_| !met[queue]) else { continue };
                let before = deserved[queue].clone();
                let weight = i128::from(self.queues[queue].vc.weight.max(0));
                for (dim, (own, left)) in deserved[queue].iter_mut().zip(&old).enumerate() {
                    let mut share = *own + left.saturating_mul(weight) / weights;
                    if let Some(cap) = self.quotas.real[queue].get(dim) {
                        share = share.min(cap * FINE);
                    }
                    share = share.min(asked.get(dim) * FINE);
                    share = share.max(self.quotas.guarantee[queue].get(dim) * FINE);
                    *own = share;
                }
                let has_all = (0..dims).all(|dim| asked.get(dim) * FINE <= deserved[queue][dim] + EPSILON);
                if has_all || deserved[queue] == before {
                    met[queue] = true;
                }
                for ((sum, now), before) in given.iter_mut().zip(&deserved[queue]).zip(&before) {
                    *sum += now - before;
                }
            }
            for (left, given) in remaining.iter_mut().zip(&given) {
                *left = (*left - given).max(0);
            }
            if remaining.iter().all(|n| *n < EPSILON) || remaining == old {
                break;
            }
        }
        self.quotas.deserved = deserved
            .into_iter()
            .zip(&request)
            .map(|(share, asked)| asked.is_some().then_some(share))
            .collect();
    }

    fn deserved(&self, queue: usize, dim: usize) -> i128 {
        self.quotas.deserved.get(queue).and_then(|d| d.as_ref()?.get(dim).copied()).unwrap_or(0)
    }

    /// The largest part of what it deserves that a queue holds. It only orders queues.
    fn proportion_share(&self, queue: usize) -> f64 {
        let dims = self.quotas.deserved.get(queue).and_then(Option::as_ref).map_or(0, Vec::len);
        (0..dims)
            .filter(|dim| self.deserved(queue, *dim) > 0)
            .map(|dim| self.held_of(queue, dim) as f64 / (self.deserved(queue, dim) as f64 / FINE as f64))
            .fold(0.0, f64::max)
    }

    pub fn compare_by_proportion(&self, a: usize, b: usize) -> Ordering {
        let priority = |q: &QueueRow| q.model.priority;
        priority(&self.queues[b])
            .cmp(&priority(&self.queues[a]))
            .then_with(|| self.proportion_share(a).total_cmp(&self.proportion_share(b)))
    }

    /// The queue has what it deserves, in every resource.
    pub fn has_its_share(&self, queue: usize) -> bool {
        (0..self.st.nodes.dims.len())
            .filter(|dim| *dim != PODS_DIM)
            .all(|dim| self.deserved(queue, dim) <= self.held_of(queue, dim) * FINE + EPSILON)
    }

    /// With these pods, the queue has at most what it deserves of what they ask for.
    pub fn may_have_by_proportion(&self, queue: usize, pods: &[PodId]) -> bool {
        if !self.queues[queue].vc.open {
            return false;
        }
        let fits = |dim: usize, asked: i128| {
            dim == PODS_DIM
                || (self.held_of(queue, dim) + asked) * FINE <= self.deserved(queue, dim) + EPSILON
        };
        // Hot: one pod is asked about for every pod that is placed.
        if let [pod] = pods {
            return self.need(*pod).iter().all(|(dim, amount)| fits(*dim as usize, i128::from(*amount)));
        }
        let asked = self.asked(queue, pods);
        asked.names().all(|dim| fits(dim, asked.get(dim)))
    }

    /// What a queue holds of one resource, without claims.
    fn held_of(&self, queue: usize, dim: usize) -> i128 {
        let books = self.st.books.as_ref();
        let sums = books.and_then(|books| books.queues.get(self.queues[queue].id));
        sums.and_then(|sums| sums.get(dim)).copied().unwrap_or(0)
    }

    pub fn may_enqueue_by_proportion(&self, job: usize) -> Vote {
        let queue = self.jobs[job].queue;
        if !self.queues[queue].vc.open {
            return Vote::Reject;
        }
        self.may_enqueue(job, queue, false)
    }

    fn may_enqueue(&self, job: usize, queue: usize, below: bool) -> Vote {
        let Some(least) = &self.quotas.least[job] else { return Vote::Permit };
        let sum = self.let_in_with(least, queue, below);
        if self.quotas.real[queue].allow(&sum, least) { Vote::Permit } else { Vote::Reject }
    }

    /// What a queue would hold or have let in with one more minimum.
    fn let_in_with(&self, least: &Res, queue: usize, below: bool) -> Res {
        let mut sum = least.plus(&if below { self.held_below(queue) } else { self.held(queue) });
        let among = |q: &usize| {
            *q == queue
                || (below && self.quotas.tree.as_ref().is_some_and(|t| t.ancestors[*q].contains(&queue)))
        };
        for other in (0..self.queues.len()).filter(among) {
            sum.add_all(&self.quotas.inqueue[other]);
            sum.sub_all(&self.quotas.elastic[other]);
        }
        sum
    }

    pub fn may_enqueue_by_capacity(&self, job: usize) -> Vote {
        let queue = self.jobs[job].queue;
        let tree = self.quotas.tree.as_ref();
        if tree.is_some_and(|t| !t.sound || t.has_children[queue]) || !self.queues[queue].vc.open {
            return Vote::Reject;
        }
        let up = tree.map_or(&[][..], |t| &t.ancestors[queue]);
        let all = std::iter::once(queue).chain(up.iter().rev().copied());
        for at in all {
            if self.may_enqueue(job, at, tree.is_some()) == Vote::Reject {
                return Vote::Reject;
            }
        }
        Vote::Permit
    }

    /// A job was let in: its minimum counts from now on.
    pub fn note_enqueued(&mut self, job: usize) {
        let Some(least) = self.quotas.least[job].clone() else { return };
        let rest = least.beyond(&self.gated_of(job));
        let queue = self.jobs[job].queue;
        self.quotas.inqueue[queue].add_all(&rest);
        self.quotas.all_inqueue.add_all(&rest);
        if self.plugin(|kind| matches!(kind, PluginKind::ResourceQuota)).is_none() {
            return;
        }
        let namespace = self.jobs[job].key.namespace.clone();
        for (name, amount) in self.quota_names(job) {
            *self.quotas.pending.entry(namespace.clone()).or_default().entry(name).or_default() += amount;
        }
    }

    pub fn fits_overcommitted(&self, job: usize, factor: i64) -> Vote {
        let Some(least) = &self.quotas.least[job] else { return Vote::Permit };
        let fits = least.names().filter(|dim| *dim != PODS_DIM).all(|dim| {
            let room = self.total.get(dim) * i128::from(factor) - self.quotas.used.get(dim) * 1000;
            (self.quotas.all_inqueue.get(dim) + least.get(dim)) * 1000 <= room
        });
        if fits { Vote::Permit } else { Vote::Reject }
    }

    /// A job's minimum by the names that resource quotas use, in thousandths.
    fn quota_names(&self, job: usize) -> Vec<(muster_model::Name, i128)> {
        let Some(amounts) = &self.jobs[job].model.min_resources else { return Vec::new() };
        let mut names = Vec::new();
        for (resource, amount) in amounts.iter() {
            let milli =
                i128::from(amount) * if matches!(resource, Resource::Cpu | Resource::Gpu) { 1 } else { 1000 };
            let name = match resource {
                Resource::Gpu => "nvidia.com/gpu".to_owned(),
                other => other.to_string(),
            };
            names.push((format!("requests.{name}").into(), milli));
            names.push((name.into(), milli));
        }
        names
    }

    pub fn within_namespace_quota(&self, job: usize) -> Vote {
        let namespace = &self.jobs[job].key.namespace;
        let names = self.quota_names(job);
        let pending = self.quotas.pending.get(namespace);
        for quota in self.st.allowances.values().filter(|q| q.key.namespace == *namespace) {
            for (name, amount) in &names {
                let Some(hard) = quota.hard.get(name) else { continue };
                let used = quota.used.get(name).copied().unwrap_or(0);
                let waiting = pending.and_then(|p| p.get(name)).copied().unwrap_or(0);
                if used + waiting + amount > *hard {
                    return Vote::Reject;
                }
            }
        }
        Vote::Permit
    }

    /// The largest part of what it deserves that a queue holds; without anything deserved it is as good as full.
    fn capacity_share(&self, queue: usize) -> f64 {
        let given = &self.quotas.given[queue];
        if given.is_empty() {
            return 1.0;
        }
        let held = self.held_below(queue);
        given.names().map(|dim| held.get(dim) as f64 / given.get(dim) as f64).fold(0.0, f64::max)
    }

    fn compare_capacity_shares(&self, a: usize, b: usize) -> Ordering {
        let deserves = |q: usize| !self.quotas.given[q].is_empty();
        self.capacity_share(a).total_cmp(&self.capacity_share(b)).then_with(|| deserves(b).cmp(&deserves(a)))
    }

    pub fn compare_by_capacity(&self, a: usize, b: usize) -> Ordering {
        let priority = self.queues[b].model.priority.cmp(&self.queues[a].model.priority);
        if priority != Ordering::Equal {
            return priority;
        }
        let Some(tree) = &self.quotas.tree else { return self.compare_capacity_shares(a, b) };
        match (tree.has_children[a], tree.has_children[b]) {
            (false, true) => return Ordering::Less,
            (true, false) => return Ordering::Greater,
            (true, true) => return self.compare_capacity_shares(a, b),
            (false, false) => {}
        }
        let level = tree.level(a, b);
        let at = |q: usize| tree.ancestors[q].get(level + 1).copied().unwrap_or(q);
        self.compare_capacity_shares(at(a), at(b))
    }

    /// Which of two queues is nearer to a third in the tree; the nearer one loses first.
    pub fn compare_nearness(&self, a: usize, b: usize, taker: usize) -> Ordering {
        let Some(tree) = &self.quotas.tree else { return Ordering::Equal };
        tree.level(b, taker).cmp(&tree.level(a, taker))
    }

    pub fn may_have_by_capacity(&self, queue: usize, pod: PodId) -> bool {
        if !self.queues[queue].vc.open {
            return false;
        }
        let tree = self.quotas.tree.as_ref();
        if tree.is_some_and(|t| !t.sound || t.has_children[queue]) {
            return false;
        }
        // Hot: one pod is asked about for every pod that is placed.
        if tree.is_none() && !self.quotas.claimed {
            let caps = &self.quotas.real[queue];
            return self.need(pod).iter().all(|(dim, amount)| {
                let dim = *dim as usize;
                let sum = self.held_of(queue, dim) + i128::from(*amount);
                dim == PODS_DIM || caps.get(dim).is_none_or(|cap| sum <= cap)
            });
        }
        let asked = self.asked(queue, &[pod]);
        let up = tree.map_or(&[][..], |t| &t.ancestors[queue]);
        std::iter::once(queue).chain(up.iter().copied()).all(|at| {
            let sum = asked.plus(&self.held_below(at));
            self.quotas.real[at].allow(&sum, &asked)
        })
    }

    pub fn may_take_by_capacity(&self, queue: usize, pods: &[PodId], levels: u32) -> bool {
        let tree = self.quotas.tree.as_ref();
        if tree.is_some_and(|t| !t.sound) || !self.queues[queue].vc.open {
            return false;
        }
        let asked = self.asked(queue, pods);
        let sum = asked.plus(&self.held_below(queue));
        if !self.quotas.real[queue].allow(&sum, &asked) {
            return false;
        }
        let below = |at: usize| {
            let sum = asked.plus(&self.held_below(at));
            let given = &self.quotas.given[at];
            asked.names().filter(|dim| *dim != PODS_DIM).any(|dim| sum.get(dim) <= given.get(dim))
        };
        if below(queue) {
            return true;
        }
        let up = tree.map_or(&[][..], |t| &t.ancestors[queue]);
        let root = tree.and_then(|t| t.root);
        up.iter().rev().take(levels as usize).any(|at| Some(*at) != root && below(*at))
    }

    /// Of these pods, in this order, those that their queues can spare by what capacity says.
    pub fn spared_by_capacity(
        &self,
        taker_queue: usize,
        asked: &Res,
        candidates: &[PodId],
        levels: u32,
    ) -> Option<Vec<PodId>> {
        let tree = self.quotas.tree.as_ref();
        if tree.is_some_and(|t| !t.sound) {
            return Some(Vec::new());
        }
        let own = |q: usize| tree.map_or(&[][..], |t| &t.ancestors[q]);
        let root = tree.and_then(|t| t.root);
        let shares_dims = |a: &Res, b: &Res| a.names().any(|dim| dim != PODS_DIM && b.get(dim) > 0);
        let mut held: BTreeMap<usize, Res> = BTreeMap::new();
        let mut victims = Vec::new();
        for pod in candidates {
            let Some(job) = self.job_of_pod(*pod) else { continue };
            let queue = self.jobs[job].queue;
            let need = Res::of_need(self.need(*pod));
            if !shares_dims(&need, asked) {
                continue;
            }
            let has = held.entry(queue).or_insert_with(|| self.held_below(queue)).clone();
            let mut left = has.clone();
            left.sub_all(&need);
            let guarantee = &self.quotas.guarantee[queue];
            if !guarantee.fits(&left) {
                continue;
            }
            let exceeds = |has: &Res, given: &Res| {
                !shares_dims(&need, given)
                    || need
                        .names()
                        .any(|dim| dim != PODS_DIM && given.get(dim) > 0 && has.get(dim) > given.get(dim))
            };
            let given = &self.quotas.given[queue];
            if !exceeds(&has, given) {
                continue;
            }
            if levels > 0 && !shares_dims(&need, given) {
                let shared = own(queue).iter().any(|a| Some(*a) != root && own(taker_queue).contains(a));
                if shared && !shares_dims(asked, &self.quotas.given[taker_queue]) {
                    continue;
                }
            }
            let checked: Vec<usize> = own(queue)
                .iter()
                .rev()
                .take(levels as usize)
                .copied()
                .filter(|a| Some(*a) != root && !own(taker_queue).contains(a))
                .collect();
            let ancestors_exceed = checked.iter().all(|a| {
                let has = held.entry(*a).or_insert_with(|| self.held_below(*a)).clone();
                exceeds(&has, &self.quotas.given[*a])
            });
            if !ancestors_exceed {
                continue;
            }
            for at in checked.iter().chain([&queue]) {
                if let Some(has) = held.get_mut(at) {
                    has.sub_all(&need);
                }
            }
            victims.push(*pod);
        }
        Some(victims)
    }

    /// Of these pods, those that their queues hold beyond what proportion gives them.
    pub fn spared_by_proportion(&self, asked: &Res, candidates: &[PodId]) -> Vec<PodId> {
        let mut held: BTreeMap<usize, Res> = BTreeMap::new();
        let mut victims = Vec::new();
        for pod in candidates {
            let Some(job) = self.job_of_pod(*pod) else { continue };
            let queue = self.jobs[job].queue;
            let has = held.entry(queue).or_insert_with(|| self.held(queue));
            if asked.names().any(|dim| has.get(dim) < asked.get(dim)) {
                continue;
            }
            let within = has
                .names()
                .filter(|dim| *dim != PODS_DIM)
                .all(|dim| has.get(dim) * FINE <= self.deserved(queue, dim) + EPSILON);
            if !within {
                has.sub_all(&Res::of_need(self.need(*pod)));
                victims.push(*pod);
            }
        }
        victims
    }
}

impl Tree {
    /// How many ancestors two queues share, less one.
    fn level(&self, a: usize, b: usize) -> usize {
        let same = self.ancestors[a].iter().zip(&self.ancestors[b]).take_while(|(x, y)| x == y).count();
        same.saturating_sub(1)
    }
}
