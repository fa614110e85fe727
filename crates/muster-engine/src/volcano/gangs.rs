//! Gang preempt and gang reclaim: a starving gang looks for a domain where enough can be taken for all of it at once.
//!
//! Victims come in bundles: what a gang can spare, or all that it has in the domain. Bundles are added until the gang could fit, then its placement is
//! tried; only a placement that lets the gang start is kept.

use super::Session;
use super::amounts::Res;
use super::domains::Purpose;
use crate::ids::{NodeId, PodId};
use crate::state::St;
use muster_model::volcano::{GangConf, Phase};
use muster_model::{Action, Name};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

struct Bundle {
    job: usize,
    /// Everything that the job has here goes, and the job with it.
    whole: bool,
    pods: Vec<PodId>,
}

impl Session<'_> {
    pub fn gang_preempt(&mut self) {
        let conf = self.conf.gang_preempt;
        self.take_as_gang(false, conf, Action::GangPreempt);
    }

    pub fn gang_reclaim(&mut self) {
        let conf = self.conf.gang_reclaim;
        self.take_as_gang(true, conf, Action::GangReclaim);
    }

    fn take_as_gang(&mut self, reclaim: bool, conf: GangConf, action: Action) {
        let mut queues = super::heap::Heap::default();
        let mut lines: Vec<Option<super::heap::Heap<usize>>> = (0..self.queues.len()).map(|_| None).collect();
        for job in 0..self.jobs.len() {
            if self.jobs[job].phase == Phase::Pending || !self.is_valid(job) {
                continue;
            }
            let queue = self.jobs[job].queue;
            if lines[queue].is_none() {
                queues.push(queue, |a, b| self.queue_before(*a, *b));
            }
            let line = lines[queue].get_or_insert_default();
            if self.starving(job) {
                line.push(job, |a, b| self.job_before(*a, *b));
            }
        }
        while let Some(queue) = queues.pop(|a, b| self.queue_before(*a, *b)) {
            if reclaim && self.overused(queue) {
                continue;
            }
            let Some(mut line) = lines[queue].take() else { continue };
            while let Some(job) = line.pop(|a, b| self.job_before(*a, *b)) {
                let mark = self.st.mark();
                self.take_in_domains(job, queue, reclaim, conf);
                if self.job_pipelined(job) {
                    self.commit(mark, action, Some(job));
                } else {
                    self.st.roll_back(mark);
                }
            }
        }
    }

    fn take_in_domains(&mut self, job: usize, queue: usize, reclaim: bool, conf: GangConf) {
        let sheet = self.worksheet(job);
        let was_ready = self.job_ready(job);
        let mut pending: Vec<PodId> = Vec::new();
        for sub in &sheet.subs {
            pending.extend(sheet.tasks.get(sub).into_iter().flatten());
            if was_ready {
                break;
            }
        }
        if pending.is_empty() || (reclaim && !self.preemptive(queue, &pending)) {
            return;
        }
        let mut need = Res::default();
        for pod in &pending {
            need.add_need(self.need(*pod), 1);
        }
        let mut domains: Vec<usize> =
            self.gradient_for_job(job, self.domains.top(), Purpose::Evict).into_iter().flatten().collect();
        if domains.is_empty() && !self.is_hard(job) {
            domains.push(self.domains.top());
        }
        domains.truncate(conf.max_domains.max(1));
        for domain in domains {
            if !self.starving(job) {
                return;
            }
            let bundles = self.bundles(job, domain, &need, reclaim, conf.allow_whole);
            let nodes = self.domains.rows[domain].nodes.clone();
            let mut room = Res::default();
            for node in nodes.iter() {
                for dim in 0..self.st.nodes.dims.len() {
                    room.add(dim, i128::from(self.idle_and_releasing(*node, dim)));
                }
            }
            let mut victims: Vec<PodId> = Vec::new();
            for bundle in bundles {
                for pod in &bundle.pods {
                    room.add_need(self.need(*pod), 1);
                }
                victims.extend(&bundle.pods);
                if !need.fits(&room) {
                    continue;
                }
                let mark = self.st.mark();
                for victim in &victims {
                    self.send_away(*victim);
                }
                if self.place_gang(job, domain, was_ready) {
                    self.st.log.commit(mark);
                    return;
                }
                self.st.roll_back(mark);
            }
        }
    }

    /// Promises are not taken off here.
    fn idle_and_releasing(&self, node: NodeId, dim: usize) -> i64 {
        let idle = self.st.nodes.idle(node, dim);
        let releasing: i64 = self
            .pods_on(node)
            .into_iter()
            .filter(|p| matches!(self.status(*p), St::Releasing | St::Stuck))
            .map(|p| crate::nodes::amount_of(self.need(p), dim).unwrap_or(0))
            .sum();
        idle + releasing
    }

    /// Promises places to the sub-groups of a job in a domain until it can start.
    fn place_gang(&mut self, job: usize, domain: usize, was_ready: bool) -> bool {
        let sheet = self.worksheet(job);
        for sub in sheet.subs {
            let Some(tasks) = sheet.tasks.get(&sub).filter(|t| !t.is_empty()) else { continue };
            let tasks: Vec<PodId> = tasks.iter().copied().collect();
            let rows = if self.is_hard(job) {
                self.gradient_for_sub(job, sub, domain, Purpose::Evict)
            } else {
                vec![vec![domain]]
            };
            let placed = rows.into_iter().flatten().any(|at| self.promise_all(job, sub, &tasks, at));
            if !placed {
                return false;
            }
            if was_ready || self.job_pipelined(job) {
                break;
            }
        }
        self.job_pipelined(job)
    }

    fn promise_all(&mut self, job: usize, sub: usize, tasks: &[PodId], domain: usize) -> bool {
        let queue = self.jobs[job].queue;
        let nodes = self.domains.rows[domain].nodes.clone();
        let mark = self.st.mark();
        for pod in tasks {
            let fitting: Vec<NodeId> = nodes
                .iter()
                .copied()
                .filter(|n| self.fits_soon(*pod, *n) && self.predicate(*pod, *n).is_ok())
                .collect();
            let good = self.allocatable(queue, *pod)
                && self
                    .best_by_room(*pod, self.jobs[job].subs[sub].domain, &fitting)
                    .is_some_and(|node| self.put(*pod, node, false));
            if !good {
                self.st.roll_back(mark);
                return false;
            }
        }
        if self.sub_ready(job, sub) || self.sub_pipelined(job, sub) {
            self.st.log.commit(mark);
            return true;
        }
        self.st.roll_back(mark);
        false
    }

    /// What could be taken in a domain, in the order in which it is taken.
    fn bundles(
        &self,
        taker: usize,
        domain: usize,
        need: &Res,
        reclaim: bool,
        allow_whole: bool,
    ) -> Vec<Bundle> {
        let mut by_job: BTreeMap<usize, Vec<PodId>> = BTreeMap::new();
        for node in self.domains.rows[domain].nodes.iter() {
            for pod in self.pods_on(*node) {
                let st = self.status(pod);
                let takeable =
                    if reclaim { st == St::Running } else { matches!(st, St::Bound | St::Running) };
                if !takeable || !self.task(pod).is_some_and(|t| t.preemptable) {
                    continue;
                }
                let Some(job) = self.job_of_pod(pod) else { continue };
                let (own, other) = (&self.jobs[taker], &self.jobs[job]);
                let fair = if reclaim {
                    own.queue != other.queue
                        && self.queues[other.queue].vc.reclaimable
                        && self.may_ask(taker, other.queue)
                } else {
                    own.queue == other.queue && other.priority < own.priority && job != taker
                };
                if fair && other.model.preemptable.unwrap_or(true) {
                    by_job.entry(job).or_default().push(pod);
                }
            }
        }
        let mut bundles: Vec<Bundle> = Vec::new();
        for (job, pods) in by_job {
            bundles.extend(self.split(job, pods));
        }
        self.sort_bundles(&mut bundles, taker, need, reclaim);
        let all: Vec<PodId> = bundles.iter().flat_map(|b| b.pods.iter().copied()).collect();
        let allowed: BTreeSet<PodId> =
            self.evictable_by_gang(taker, need, &all, reclaim).into_iter().collect();
        for bundle in &mut bundles {
            let n = bundle.pods.len();
            bundle.pods.retain(|p| allowed.contains(p));
            if bundle.whole && (bundle.pods.len() < n || !allow_whole) {
                bundle.pods.clear();
            }
        }
        bundles.retain(|b| !b.pods.is_empty());
        self.sort_bundles(&mut bundles, taker, need, reclaim);
        bundles
    }

    /// Splits a job's pods into those that it can spare and the rest, the least important first.
    fn split(&self, job: usize, mut pods: Vec<PodId>) -> Vec<Bundle> {
        let row = &self.jobs[job];
        let uid = |p: PodId| self.st.pods.row(p).model.uid.clone();
        pods.sort_by_key(|p| (self.task(*p).map_or(0, |t| t.priority), uid(*p)));
        let mut spare = i64::from(self.n_ready(job)) - i64::from(row.model.min_member);
        if spare < 0 {
            return vec![Bundle { job, whole: false, pods }];
        }
        let held = [St::Bound, St::Binding, St::Running, St::Allocated, St::Succeeded];
        let mut roles: BTreeMap<Name, i64> = BTreeMap::new();
        if row.roles_count {
            let counts = self.by_role(job, &held, true);
            for (role, min) in &row.model.roles {
                let n = counts.get(role).copied().unwrap_or(0);
                roles.insert(role.clone(), i64::from(n) - i64::from(*min));
            }
        }
        let has_groups = row.model.policies.iter().any(|p| p.min_groups > 0);
        let mut broken: BTreeSet<usize> =
            (0..row.subs.len()).filter(|s| !self.sub_is_ready(job, *s)).collect();
        let mut groups: BTreeMap<Option<usize>, i64> = BTreeMap::new();
        for (i, sub) in row.subs.iter().enumerate() {
            if !broken.contains(&i) {
                *groups.entry(sub.policy).or_default() += 1;
            }
        }
        for (i, policy) in row.model.policies.iter().enumerate() {
            *groups.entry(Some(i)).or_default() -= i64::from(policy.min_groups);
        }
        let (mut safe, mut whole) = (Vec::new(), Vec::new());
        for pod in pods {
            let role = self.task(pod).map(|t| t.role.clone()).unwrap_or_default();
            let role_spares = roles.get(&role).is_none_or(|n| *n > 0);
            let sub = self.sub_of(job, pod);
            let policy = sub.and_then(|s| row.subs[s].policy);
            let group_spares = !has_groups
                || sub.is_some_and(|s| broken.contains(&s) || groups.get(&policy).copied().unwrap_or(0) > 0);
            if spare > 0 && role_spares && group_spares {
                spare -= 1;
                if let Some(n) = roles.get_mut(&role) {
                    *n -= 1;
                }
                if let Some(s) = sub.filter(|_| has_groups)
                    && broken.insert(s)
                {
                    *groups.entry(policy).or_default() -= 1;
                }
                safe.push(pod);
            } else {
                whole.push(pod);
            }
        }
        let bundle = |pods: Vec<PodId>, whole: bool| Bundle { job, whole, pods };
        [bundle(safe, false), bundle(whole, true)].into_iter().filter(|b| !b.pods.is_empty()).collect()
    }

    /// Those that can be spared first, then by whose turn it is to lose, then by what is gained for what is lost.
    fn sort_bundles(&self, bundles: &mut [Bundle], taker: usize, need: &Res, reclaim: bool) {
        let queue = self.jobs[taker].queue;
        let roi: Vec<(usize, bool, f64)> =
            bundles.iter().map(|b| (b.job, b.whole, self.gain(b, need))).collect();
        let gain = |b: &Bundle| {
            let found = roi.iter().find(|(job, whole, _)| *job == b.job && *whole == b.whole);
            found.map_or(0.0, |(_, _, gain)| *gain)
        };
        let before = |a: &Bundle, b: &Bundle| -> Ordering {
            let by_owner = || {
                let (l, r) = (&self.jobs[a.job], &self.jobs[b.job]);
                if reclaim {
                    if l.queue == r.queue {
                        return Ordering::Equal;
                    }
                    let (lr, rl) = (
                        self.queue_loses_before(l.queue, r.queue, queue),
                        self.queue_loses_before(r.queue, l.queue, queue),
                    );
                    return rl.cmp(&lr);
                }
                if a.job == b.job {
                    return Ordering::Equal;
                }
                self.job_before(a.job, b.job).cmp(&self.job_before(b.job, a.job))
            };
            let first = |b: &Bundle| b.pods.first().map(|p| self.st.pods.row(*p).model.uid.clone());
            a.whole
                .cmp(&b.whole)
                .then_with(by_owner)
                .then_with(|| gain(b).total_cmp(&gain(a)))
                .then_with(|| self.jobs[a.job].key.cmp(&self.jobs[b.job].key))
                .then_with(|| first(a).cmp(&first(b)))
        };
        // Insertion, since whose turn it is need not be an order.
        for i in 1..bundles.len() {
            let mut at = i;
            while at > 0 && before(&bundles[at], &bundles[at - 1]) == Ordering::Less {
                bundles.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    /// What a bundle gives of what is needed, for what its job loses.
    fn gain(&self, bundle: &Bundle, need: &Res) -> f64 {
        if !bundle.whole {
            return f64::INFINITY;
        }
        let sum = |pods: &[PodId]| {
            let mut sum = Res::default();
            for pod in pods {
                sum.add_need(self.need(*pod), 1);
            }
            sum
        };
        let (local, global) = (sum(&bundle.pods), sum(&self.jobs[bundle.job].tasks));
        let score = |res: &Res, capped: bool| -> f64 {
            need.names()
                .map(|dim| {
                    let n = need.get(dim);
                    let v = if capped { res.get(dim).min(n) } else { res.get(dim) };
                    v as f64 / n as f64
                })
                .sum()
        };
        let lost = score(&global, false);
        if lost == 0.0 { f64::INFINITY } else { score(&local, true) / lost }
    }
}
