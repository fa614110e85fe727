//! Preempt and reclaim: pods of starving gangs take places from others, node by node. What is taken counts only if the gang can start by it.

use super::Session;
use super::heap::Heap;
use crate::ids::{NodeId, PodId};
use crate::nodes::Need;
use crate::state::St;
use muster_model::Action;
use muster_model::volcano::Phase;
use std::collections::VecDeque;

/// What could be lost on a node, for those who try everything first.
struct Candidate {
    node: NodeId,
    victims: Vec<PodId>,
}

impl Session<'_> {
    /// Pods of a job that wait for a place.
    fn pending(&self, job: usize) -> VecDeque<PodId> {
        self.jobs[job].tasks.iter().copied().filter(|p| self.status(*p) == St::Pending).collect()
    }

    fn takes_part(&self, job: usize) -> bool {
        self.jobs[job].phase != Phase::Pending && self.is_valid(job)
    }

    pub fn preempt(&mut self) {
        let mut lines: Vec<Heap<usize>> = (0..self.queues.len()).map(|_| Heap::default()).collect();
        let mut waiting: Vec<VecDeque<PodId>> = vec![VecDeque::new(); self.jobs.len()];
        let mut starving = Vec::new();
        for (job, own) in waiting.iter_mut().enumerate() {
            let row = &self.jobs[job];
            let has_topology = row.has_topology || row.subs.iter().any(|s| s.has_topology);
            if !self.takes_part(job) || has_topology || !self.starving(job) {
                continue;
            }
            let queue = row.queue;
            lines[queue].push(job, |a, b| self.job_before(*a, *b));
            *own = self.pending(job);
            starving.push(job);
        }
        for (queue, mut line) in lines.into_iter().enumerate() {
            while let Some(job) = line.pop(|a, b| self.job_before(*a, *b)) {
                let mark = self.st.mark();
                let mut assigned = false;
                while self.starving(job) {
                    let Some(pod) = waiting[job].pop_front() else { break };
                    assigned = self.preempt_for(pod, |this, victim| {
                        this.job_of_pod(victim).is_some_and(|v| v != job && this.jobs[v].queue == queue)
                    });
                }
                if !self.job_pipelined(job) {
                    self.st.roll_back(mark);
                    continue;
                }
                self.commit(mark, Action::Preempt, Some(job));
                if assigned {
                    line.push(job, |a, b| self.job_before(*a, *b));
                }
            }
            let here: Vec<usize> =
                starving.iter().copied().filter(|j| self.jobs[*j].queue == queue).collect();
            for job in here {
                for pod in self.pending(job) {
                    let mark = self.st.mark();
                    let assigned = self.preempt_for(pod, |this, victim| this.job_of_pod(victim) == Some(job));
                    self.commit(mark, Action::Preempt, Some(job));
                    if !assigned {
                        break;
                    }
                }
            }
        }
    }

    fn preempt_for(&mut self, pod: PodId, of: impl Fn(&Self, PodId) -> bool) -> bool {
        if self.task(pod).is_some_and(|t| t.never_preempts) || self.waits_for_promise(pod) {
            return false;
        }
        let nodes: Vec<NodeId> =
            self.nodes.iter().copied().filter(|n| self.predicate_for_taking(pod, *n)).collect();
        if self.conf.preempt.topology_aware {
            return self.preempt_by_trial(pod, &nodes, of);
        }
        let scores = self.scores(pod, None, &nodes);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        let rank = |i: usize| self.st.nodes.rows[nodes[i]].rank;
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then_with(|| rank(*a).cmp(&rank(*b))));
        let Some(job) = self.job_of_pod(pod) else { return false };
        let queue = self.jobs[job].queue;
        for i in order {
            let node = nodes[i];
            let candidates = self.candidates_on(pod, node, &of);
            let victims = self.preemptable(pod, &self.in_victim_order(&candidates, job));
            if !self.would_fit(pod, node, &victims) {
                continue;
            }
            let mark = self.st.mark();
            let enough = |this: &Self| {
                this.allocatable(queue, pod) && this.fits_soon(pod, node) && this.predicate(pod, node).is_ok()
            };
            for victim in self.in_victim_order(&victims, job) {
                if enough(self) {
                    break;
                }
                self.send_away(victim);
            }
            if enough(self) && self.put(pod, node, false) {
                self.st.log.commit(mark);
                return true;
            }
            self.st.roll_back(mark);
        }
        false
    }

    /// A pod that was promised a node waits for it while those who leave for it are still there.
    fn waits_for_promise(&self, pod: PodId) -> bool {
        let row = self.st.pods.row(pod);
        let Some(node) = row.model.nominated.as_ref() else { return false };
        let Some(node) = self.st.nodes.get(node).filter(|n| self.st.nodes.rows[*n].model.is_some()) else {
            return true;
        };
        match self.predicate(pod, node) {
            Ok(()) => true,
            Err(super::filter::Unfit::Never) => false,
            Err(super::filter::Unfit::ForNow) => {
                let own = self.task(pod).map_or(0, |t| t.pod_priority);
                self.pods_on(node).into_iter().any(|p| {
                    matches!(self.st.pods.row(p).origin.st, St::Releasing)
                        && self.task(p).is_some_and(|t| t.pod_priority < own)
                })
            }
        }
    }

    fn candidates_on(&self, taker: PodId, node: NodeId, of: &impl Fn(&Self, PodId) -> bool) -> Vec<PodId> {
        let modest = self.is_best_effort(taker);
        self.pods_on(node)
            .into_iter()
            .filter(|p| matches!(self.status(*p), St::Bound | St::Running))
            .filter(|p| !modest || self.is_best_effort(*p))
            .filter(|p| self.task(*p).is_some_and(|t| t.preemptable))
            .filter(|p| of(self, *p))
            .collect()
    }

    /// Whether a pod fits if all of these go.
    fn would_fit(&self, pod: PodId, node: NodeId, victims: &[PodId]) -> bool {
        let need: &Need = self.need(pod);
        need.iter().all(|(dim, amount)| {
            let freed: i64 = victims
                .iter()
                .map(|v| crate::nodes::amount_of(self.need(*v), *dim as usize).unwrap_or(0))
                .sum();
            self.st.nodes.coming(node, *dim as usize) + freed >= *amount
        })
    }

    /// As kube-scheduler does it: on every node, everyone who may go goes on trial, and whoever need not go comes back; the best node wins.
    fn preempt_by_trial(&mut self, pod: PodId, nodes: &[NodeId], of: impl Fn(&Self, PodId) -> bool) -> bool {
        let Some(job) = self.job_of_pod(pod) else { return false };
        let queue = self.jobs[job].queue;
        let conf = self.conf.preempt;
        let wanted = (nodes.len() * conf.min_candidates_percentage as usize / 100)
            .max(conf.min_candidates as usize)
            .min(conf.max_candidates as usize)
            .min(nodes.len());
        let mut found: Vec<Candidate> = Vec::new();
        for node in nodes.iter().copied() {
            let candidates = self.candidates_on(pod, node, &of);
            let victims = self.preemptable(pod, &self.in_victim_order(&candidates, job));
            if !self.would_fit(pod, node, &victims) {
                continue;
            }
            let mark = self.st.mark();
            for victim in &victims {
                self.send_away(*victim);
            }
            let fits = |this: &Self| {
                this.allocatable(queue, pod) && this.fits_soon(pod, node) && this.predicate(pod, node).is_ok()
            };
            if !fits(self) {
                self.st.roll_back(mark);
                continue;
            }
            // The most important come back first.
            let mut order = victims.clone();
            order.sort_by(|a, b| self.more_important(*a, *b));
            let mut lost: Vec<PodId> = Vec::new();
            for victim in order {
                let origin = self.st.pods.row(victim).origin.clone();
                self.st.move_pod(victim, origin);
                if !fits(self) {
                    self.send_away(victim);
                    lost.push(victim);
                }
            }
            self.st.roll_back(mark);
            found.push(Candidate { node, victims: lost });
            if found.len() >= wanted.max(1) && found.iter().any(|c| c.victims.is_empty()) {
                break;
            }
        }
        let Some(best) = self.best_candidate(&found) else { return false };
        let Candidate { node, victims } = &found[best];
        let mark = self.st.mark();
        for victim in victims {
            self.send_away(*victim);
        }
        if self.put(pod, *node, false) {
            self.st.log.commit(mark);
            return true;
        }
        self.st.roll_back(mark);
        false
    }

    fn more_important(&self, a: PodId, b: PodId) -> std::cmp::Ordering {
        let key = |p: PodId| {
            let task = self.task(p);
            let started = task.and_then(|t| t.started).unwrap_or(muster_model::Time(i64::MAX));
            (std::cmp::Reverse(task.map_or(0, |t| t.pod_priority)), started)
        };
        key(a).cmp(&key(b)).then_with(|| self.st.pods.row(a).model.key.cmp(&self.st.pods.row(b).model.key))
    }

    /// The lowest priority among the most important victims, then the smallest sum of priorities, the fewest victims, the latest start.
    fn best_candidate(&self, found: &[Candidate]) -> Option<usize> {
        let priority = |p: &PodId| self.task(*p).map_or(0, |t| t.pod_priority);
        let key = |c: &Candidate| {
            let highest = c.victims.iter().map(priority).max();
            let sum: i128 = c.victims.iter().map(|p| i128::from(priority(p)) + (1 << 31)).sum();
            let first = c
                .victims
                .iter()
                .filter(|p| Some(priority(p)) == highest)
                .filter_map(|p| self.task(*p).and_then(|t| t.started))
                .min();
            (highest, sum, c.victims.len(), std::cmp::Reverse(first), self.st.nodes.rows[c.node].rank)
        };
        (0..found.len()).min_by(|a, b| key(&found[*a]).cmp(&key(&found[*b])))
    }

    pub fn reclaim(&mut self) {
        let mut queues: Heap<usize> = Heap::default();
        let mut seen = vec![false; self.queues.len()];
        let mut lines: Vec<Heap<usize>> = (0..self.queues.len()).map(|_| Heap::default()).collect();
        let mut waiting: Vec<VecDeque<PodId>> = vec![VecDeque::new(); self.jobs.len()];
        for (job, own) in waiting.iter_mut().enumerate() {
            if !self.takes_part(job) {
                continue;
            }
            let queue = self.jobs[job].queue;
            if !std::mem::replace(&mut seen[queue], true) {
                queues.push(queue, |a, b| self.queue_before(*a, *b));
            }
            if self.starving(job) {
                lines[queue].push(job, |a, b| self.job_before(*a, *b));
                *own = self.pending(job);
            }
        }
        while let Some(queue) = queues.pop(|a, b| self.queue_before(*a, *b)) {
            if self.overused(queue) {
                continue;
            }
            let Some(job) = lines[queue].pop(|a, b| self.job_before(*a, *b)) else { continue };
            let mark = self.st.mark();
            while self.starving(job) {
                let Some(pod) = waiting[job].pop_front() else { break };
                if self.task(pod).is_some_and(|t| t.never_preempts) || !self.preemptive(queue, &[pod]) {
                    continue;
                }
                self.reclaim_for(pod, job, queue);
            }
            if self.job_pipelined(job) {
                self.commit(mark, Action::Reclaim, Some(job));
            } else {
                self.st.roll_back(mark);
            }
            queues.push(queue, |a, b| self.queue_before(*a, *b));
        }
    }

    /// Whether a job has waited as long as a queue lets others wait before they take from it.
    pub fn may_ask(&self, job: usize, victim: usize) -> bool {
        self.st.may_take_from(self.jobs[job].gang, self.queues[victim].id) <= self.st.now
    }

    fn reclaim_for(&mut self, pod: PodId, job: usize, queue: usize) {
        for node in self.nodes.clone() {
            if !self.predicate_for_taking(pod, node) {
                continue;
            }
            let reclaimees: Vec<PodId> = self
                .pods_on(node)
                .into_iter()
                .filter(|p| self.status(*p) == St::Running && self.task(*p).is_some_and(|t| t.preemptable))
                .filter(|p| {
                    self.job_of_pod(*p).is_some_and(|v| {
                        let other = self.jobs[v].queue;
                        other != queue && self.queues[other].vc.reclaimable && self.may_ask(job, other)
                    })
                })
                .collect();
            if reclaimees.is_empty() {
                continue;
            }
            let victims = self.reclaimable(pod, &self.in_victim_order(&reclaimees, job));
            if !self.would_fit(pod, node, &victims) {
                continue;
            }
            let mark = self.st.mark();
            for victim in self.in_victim_order(&victims, job) {
                if self.fits_soon(pod, node) {
                    break;
                }
                self.send_away(victim);
            }
            // What evicting these did not mend, promising does not either.
            let good = self.fits_soon(pod, node)
                && self.allowed_above(queue, pod)
                && self.predicate(pod, node).is_ok();
            if good && self.put(pod, node, false) {
                self.st.log.commit(mark);
                return;
            }
            self.st.roll_back(mark);
        }
    }
}
