//! Backfill: pods that ask for nothing get a place, wherever the filters let them in.

use super::Session;
use crate::ids::{NodeId, PodId};
use crate::state::St;
use muster_model::Action;
use muster_model::volcano::Phase;

impl Session<'_> {
    pub fn backfill(&mut self) {
        for (job, pod) in self.modest_pods() {
            // Whatever plugins there are, a node has so many places for pods and no more.
            let fits = |n: &NodeId| self.fits_now(pod, *n) && self.predicate(pod, *n).is_ok();
            let fitting: Vec<NodeId> = self.nodes.iter().copied().filter(fits).collect();
            let Some(node) = self.best(pod, None, &fitting) else { continue };
            let mark = self.st.mark();
            if !self.put(pod, node, true) {
                self.st.roll_back(mark);
                continue;
            }
            if !self.job_ready(job) {
                self.hold(mark);
                continue;
            }
            self.commit(mark, Action::Backfill, None);
            // Whatever of the job had a place in mind gets it now.
            for pod in self.jobs[job].tasks.clone() {
                if self.status(pod) == St::Allocated && !self.st.pods.row(pod).committed {
                    self.decide(pod, Action::Backfill, None);
                }
            }
        }
    }

    /// Pods that ask for nothing, in turn: queue by queue, job by job.
    fn modest_pods(&self) -> Vec<(usize, PodId)> {
        let mut jobs: Vec<usize> = (0..self.jobs.len())
            .filter(|job| self.jobs[*job].has_best_effort)
            .filter(|job| self.jobs[*job].phase != Phase::Pending && self.is_valid(*job))
            .collect();
        let order = |a: &usize, b: &usize| {
            let (qa, qb) = (self.jobs[*a].queue, self.jobs[*b].queue);
            if qa != qb { self.queue_before(qa, qb) } else { self.job_before(*a, *b) }
        };
        let mut heap = super::heap::Heap::default();
        for job in jobs.drain(..) {
            heap.push(job, order);
        }
        let mut pods = Vec::new();
        while let Some(job) = heap.pop(order) {
            for pod in &self.jobs[job].tasks {
                let may = self.allowed_above(self.jobs[job].queue, *pod);
                if may && self.status(*pod) == St::Pending && self.is_best_effort(*pod) {
                    pods.push((job, *pod));
                }
            }
        }
        pods
    }
}
