//! Enqueue: gangs are let in, one of each queue in turn, as far as the plugins allow.

use super::Session;
use super::heap::Heap;
use muster_model::volcano::{Hook, Phase};

impl Session<'_> {
    pub fn enqueue(&mut self) {
        let mut queues: Heap<usize> = Heap::default();
        let mut jobs: Vec<Option<Heap<usize>>> = (0..self.queues.len()).map(|_| None).collect();
        for job in 0..self.jobs.len() {
            let queue = self.jobs[job].queue;
            if jobs[queue].is_none() {
                queues.push(queue, |a, b| self.queue_before(*a, *b));
            }
            let line = jobs[queue].get_or_insert_default();
            if self.jobs[job].phase == Phase::Pending {
                line.push(job, |a, b| self.job_before(*a, *b));
            }
        }
        while let Some(queue) = queues.pop(|a, b| self.queue_before(*a, *b)) {
            let Some(line) = &mut jobs[queue] else { continue };
            let Some(job) = line.pop(|a, b| self.job_before(*a, *b)) else { continue };
            if self.jobs[job].model.min_resources.is_none() || self.enqueueable(job) {
                if self.voters(Hook::JobEnqueued).flatten().next().is_some() {
                    self.note_enqueued(job);
                }
                self.jobs[job].phase = Phase::Inqueue;
            } else {
                let reason = self.why_not_let_in(job);
                self.note(job, reason);
            }
            queues.push(queue, |a, b| self.queue_before(*a, *b));
        }
    }
}
