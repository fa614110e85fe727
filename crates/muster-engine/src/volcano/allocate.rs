//! Allocate: gangs get places, queue by queue in the order of the day. A gang is bound once it is ready; until then its places stay in the session.

use super::Session;
use super::domains::Purpose;
use super::filter::Unfit;
use super::heap::Heap;
use crate::ids::{NodeId, PodId};
use crate::place::Failure;
use crate::state::{Spot, St};
use muster_model::volcano::Phase;
use muster_model::{Action, Name};
use std::collections::{BTreeMap, VecDeque};

/// What is left to place of a job: by sub-group, pods in order.
#[derive(Clone, Default)]
pub struct Worksheet {
    /// Sub-groups in line, the required ones first.
    pub subs: Vec<usize>,
    pub tasks: BTreeMap<usize, VecDeque<PodId>>,
}

/// Where a trial put pods.
type Plan = Vec<(PodId, Spot)>;

/// A domain that would do for a job: what goes where, what is left to place, and the domains that its sub-groups would be in.
struct Trial {
    domain: usize,
    plan: Plan,
    sheet: Worksheet,
    subs: Vec<Option<usize>>,
}

impl Session<'_> {
    pub fn allocate(&mut self) {
        let mut queues: Heap<usize> = Heap::default();
        let mut lines: Vec<Option<Heap<usize>>> = (0..self.queues.len()).map(|_| None).collect();
        let mut sheets: Vec<Option<Worksheet>> = Vec::with_capacity(self.jobs.len());
        for job in 0..self.jobs.len() {
            sheets.push(None);
            if self.jobs[job].phase == Phase::Pending {
                if self.enqueue_configured {
                    continue;
                }
                self.jobs[job].phase = Phase::Inqueue;
            }
            // Hot: most jobs have what they asked for.
            if self.st.gangs.rows[self.jobs[job].gang].n_pending == 0 || !self.is_valid(job) {
                continue;
            }
            let sheet = self.worksheet(job);
            if sheet.subs.is_empty() {
                continue;
            }
            sheets[job] = Some(sheet);
            let queue = self.jobs[job].queue;
            if lines[queue].is_none() {
                queues.push(queue, |a, b| self.queue_before(*a, *b));
            }
            lines[queue].get_or_insert_default().push(job, |a, b| self.job_before(*a, *b));
        }
        while let Some(queue) = queues.pop(|a, b| self.queue_before(*a, *b)) {
            if self.overused(queue) {
                continue;
            }
            let Some(line) = &mut lines[queue] else { continue };
            let Some(job) = line.pop(|a, b| self.job_before(*a, *b)) else { continue };
            let Some(mut sheet) = sheets[job].take() else { continue };
            let again = if self.is_hard(job) || self.has_policies(job) {
                self.allocate_job(job, &mut sheet)
            } else {
                self.allocate_plain(job, &mut sheet)
            };
            sheets[job] = Some(sheet);
            if again && let Some(line) = &mut lines[queue] {
                line.push(job, |a, b| self.job_before(*a, *b));
            }
            queues.push(queue, |a, b| self.queue_before(*a, *b));
        }
    }

    /// What is left to place of a job. Pods that ask for nothing are left to backfill.
    pub fn worksheet(&self, job: usize) -> Worksheet {
        let row = &self.jobs[job];
        let mut ready: BTreeMap<Option<usize>, u32> = BTreeMap::new();
        let mut open: Vec<usize> = Vec::new();
        for sub in 0..row.subs.len() {
            if self.sub_ready(job, sub) {
                *ready.entry(row.subs[sub].policy).or_default() += 1;
            } else {
                open.push(sub);
            }
        }
        let mut heap = Heap::default();
        for sub in open {
            heap.push(sub, |a, b| self.sub_before(job, *a, *b));
        }
        let mut required: Vec<usize> = Vec::new();
        while let Some(sub) = heap.pop(|a, b| self.sub_before(job, *a, *b)) {
            let policy = row.subs[sub].policy;
            let min = policy.and_then(|p| row.model.policies.get(p)).map_or(0, |p| p.min_groups);
            let n = ready.entry(policy).or_default();
            if *n < min {
                *n += 1;
                required.push(sub);
            }
        }
        let mut sheet = Worksheet::default();
        let mut heap = Heap::default();
        let before = |a: &usize, b: &usize| match (required.contains(a), required.contains(b)) {
            (true, false) => true,
            (false, true) => false,
            _ => self.sub_before(job, *a, *b),
        };
        for (sub, s) in row.subs.iter().enumerate() {
            let tasks: VecDeque<PodId> = s
                .tasks
                .iter()
                .copied()
                .filter(|p| self.status(*p) == St::Pending && !self.is_best_effort(*p))
                .collect();
            if !tasks.is_empty() {
                sheet.tasks.insert(sub, tasks);
                heap.push(sub, before);
            }
        }
        sheet.subs = std::iter::from_fn(|| heap.pop(before)).collect();
        sheet
    }

    /// A job without hypernodes and sub-groups. Says whether it has more to place.
    fn allocate_plain(&mut self, job: usize, sheet: &mut Worksheet) -> bool {
        let Some(tasks) = sheet.tasks.get_mut(&0) else { return false };
        let mark = self.st.mark();
        let top = self.domains.top();
        if !self.place_tasks(job, 0, tasks, top) {
            self.st.log.commit(mark);
            return false;
        }
        if self.job_ready(job) {
            self.commit(mark, Action::Allocate, None);
            return !tasks.is_empty();
        }
        self.hold(mark);
        false
    }

    /// A job with hypernodes or sub-groups: tier by tier, every domain is tried and the best one kept.
    fn allocate_job(&mut self, job: usize, sheet: &mut Worksheet) -> bool {
        if sheet.subs.is_empty() {
            return false;
        }
        let gradients = self.gradient_for_job(job, self.domains.top(), Purpose::Place);
        for row in gradients {
            let mut best: Option<(f64, Trial)> = None;
            for domain in row {
                self.jobs[job].failed.clear();
                let mut trial = sheet.clone();
                let before: Vec<Option<usize>> = self.jobs[job].subs.iter().map(|s| s.domain).collect();
                let mark = self.st.mark();
                let score = self.try_domain(job, &mut trial, domain);
                let after: Vec<Option<usize>> = self.jobs[job].subs.iter().map(|s| s.domain).collect();
                for (sub, domain) in self.jobs[job].subs.iter_mut().zip(before) {
                    sub.domain = domain;
                }
                let plan = self.plan_since(&mark);
                let good = !plan.is_empty() && (self.job_ready(job) || self.job_pipelined(job));
                self.st.roll_back(mark);
                if good && best.as_ref().is_none_or(|(top, _)| score > *top) {
                    best = Some((score, Trial { domain, plan, sheet: trial, subs: after }));
                }
            }
            let Some((_, Trial { domain, plan, sheet: trial, subs })) = best else { continue };
            let mark = self.st.mark();
            for (pod, spot) in plan {
                self.st.move_pod(pod, spot);
            }
            *sheet = trial;
            if !self.job_ready(job) {
                self.hold(mark);
                return false;
            }
            self.commit(mark, Action::Allocate, None);
            let job_row = &self.jobs[job];
            if job_row.limit.is_some() {
                let domain = job_row.domain.map_or(domain, |old| self.domains.common(old, domain));
                self.jobs[job].domain = Some(domain);
            }
            for (sub, domain) in self.jobs[job].subs.iter_mut().zip(subs) {
                sub.domain = domain;
            }
            return !sheet.subs.is_empty();
        }
        false
    }

    fn plan_since(&self, mark: &dense::Mark) -> Plan {
        let changed = self.st.changed_since(mark);
        changed.into_iter().map(|p| (p, self.st.pods.row(p).spot.clone())).collect()
    }

    /// Places the sub-groups of a job in a domain until the job is ready; the score of it all.
    fn try_domain(&mut self, job: usize, sheet: &mut Worksheet, domain: usize) -> f64 {
        let mut score = 0.0;
        let mut line: VecDeque<usize> = std::mem::take(&mut sheet.subs).into();
        while let Some(sub) = line.pop_front() {
            let Some(mut tasks) = sheet.tasks.remove(&sub) else { continue };
            let placed = self.allocate_sub(job, sub, &mut tasks, domain);
            let more = !tasks.is_empty();
            sheet.tasks.insert(sub, tasks);
            if let Some(own) = placed {
                score += own;
                if more {
                    // Those that have enough come after those that have not.
                    let at = line.iter().position(|other| self.sub_before(job, sub, *other));
                    line.insert(at.unwrap_or(line.len()), sub);
                }
                if self.job_ready(job) {
                    break;
                }
            }
        }
        sheet.subs = line.into();
        score
    }

    /// Places one sub-group within a domain: in the best of its own domains, tier by tier.
    fn allocate_sub(
        &mut self,
        job: usize,
        sub: usize,
        tasks: &mut VecDeque<PodId>,
        within: usize,
    ) -> Option<f64> {
        if tasks.is_empty() {
            return None;
        }
        let gradients = self.gradient_for_sub(job, sub, within, Purpose::Place);
        for row in gradients {
            let mut found: Vec<(usize, Plan, VecDeque<PodId>)> = Vec::new();
            for domain in row {
                self.jobs[job].failed.retain(|(s, _)| *s != sub);
                let mut trial = tasks.clone();
                let mark = self.st.mark();
                let placed = self.place_tasks(job, sub, &mut trial, domain);
                let plan = self.plan_since(&mark);
                self.st.roll_back(mark);
                if placed && !plan.is_empty() {
                    found.push((domain, plan, trial));
                }
            }
            if found.is_empty() {
                continue;
            }
            let domains: Vec<usize> = found.iter().map(|(d, ..)| *d).collect();
            let scores = self.score_domains(job, sub, &domains);
            let mut best = 0;
            for (i, score) in scores.iter().enumerate() {
                if *score > scores[best] {
                    best = i;
                }
            }
            let (domain, plan, left) = found.swap_remove(best);
            for (pod, spot) in plan {
                self.st.move_pod(pod, spot);
            }
            *tasks = left;
            let s = &mut self.jobs[job].subs[sub];
            s.domain = Some(s.domain.map_or(domain, |old| self.domains.common(old, domain)));
            return Some(scores[best]);
        }
        None
    }

    /// Places pods of a sub-group one by one within a domain, until it is ready. `false`: nothing is left of it.
    pub fn place_tasks(
        &mut self,
        job: usize,
        sub: usize,
        tasks: &mut VecDeque<PodId>,
        domain: usize,
    ) -> bool {
        let queue = self.jobs[job].queue;
        let nodes = self.domains.rows[domain].nodes.clone();
        if nodes.is_empty() {
            return false;
        }
        let mark = self.st.mark();
        let mut near = self.jobs[job].subs[sub].domain;
        let has_topology = self.jobs[job].subs[sub].has_topology;
        let everywhere = domain == self.domains.top() && !has_topology;
        // Nodes that refused a role refuse it again.
        let mut refused: BTreeMap<Name, dense::IdSet<NodeId>> = BTreeMap::new();
        while let Some(pod) = tasks.pop_front() {
            if !self.allocatable(queue, pod) {
                if !self.has_reason(job) {
                    let reason = self.why_no_more(queue, pod);
                    self.note(job, reason);
                }
                continue;
            }
            let role = self.task(pod).map(|t| t.role.clone()).unwrap_or_default();
            if !role.is_empty() && self.jobs[job].failed.contains(&(sub, role.clone())) {
                continue;
            }
            let ranked = if everywhere && refused.is_empty() { self.best_ranked(pod) } else { None };
            let found = match ranked {
                Some(found) => found,
                None => self.node_for(pod, &nodes, near, &role, &mut refused),
            };
            match found {
                None => {
                    let placed = self.count(job, St::Allocated);
                    let gang = self.jobs[job].gang;
                    self.ledger.failures.insert(gang, Failure::NoNode { pod, placed });
                    self.jobs[job].failed.insert((sub, role));
                    if self.may_go_on(job, sub) {
                        continue;
                    }
                    break;
                }
                Some(node) => {
                    let now = self.fits_now(pod, node);
                    if !self.put(pod, node, now) {
                        continue;
                    }
                    if has_topology && let Some(home) = self.domains.of_node(node) {
                        near = Some(near.map_or(home, |near| self.domains.common(home, near)));
                    }
                }
            }
            if self.sub_ready(job, sub) {
                break;
            }
        }
        if self.sub_ready(job, sub) || self.sub_pipelined(job, sub) {
            self.st.log.commit(mark);
            return true;
        }
        self.st.roll_back(mark);
        false
    }

    /// The best node for a pod among some: where there is room now, or where there will be.
    fn node_for(
        &self,
        pod: PodId,
        nodes: &[NodeId],
        near: Option<usize>,
        role: &Name,
        refused: &mut BTreeMap<Name, dense::IdSet<NodeId>>,
    ) -> Option<NodeId> {
        // A node that was promised before is tried first.
        if let Some(nominated) = &self.st.pods.row(pod).model.nominated
            && let Some(node) = self.st.nodes.get(nominated)
            && nodes.contains(&node)
            && self.fits_soon(pod, node)
            && self.predicate(pod, node).is_ok()
        {
            return Some(node);
        }
        let known = refused.get(role).filter(|_| !role.is_empty());
        let mut fitting: Vec<NodeId> = Vec::new();
        let mut bad: Vec<NodeId> = Vec::new();
        for node in nodes {
            if known.is_some_and(|set| set.contains(*node)) {
                continue;
            }
            let fits: Result<(), Unfit> =
                if self.fits_soon(pod, *node) { self.predicate(pod, *node) } else { Err(Unfit::ForNow) };
            if fits.is_ok() { fitting.push(*node) } else { bad.push(*node) }
        }
        if !role.is_empty() {
            refused.entry(role.clone()).or_default().extend(bad);
        }
        self.best_by_room(pod, near, &fitting)
    }

    /// The best of the first class of nodes that has any: with room now, in this scheduler's own share first.
    pub fn best_by_room(&self, pod: PodId, near: Option<usize>, fitting: &[NodeId]) -> Option<NodeId> {
        let own = |n: &NodeId| self.shard.as_ref().is_none_or(|s| s.contains(*n));
        for now in [true, false] {
            for ours in [true, false] {
                let class: Vec<NodeId> = fitting
                    .iter()
                    .copied()
                    .filter(|n| own(n) == ours && self.fits_now(pod, *n) == now)
                    .collect();
                if !class.is_empty() {
                    return self.best(pod, near, &class);
                }
            }
        }
        None
    }
}
