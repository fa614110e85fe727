//! Votes by tier: who goes first, who is let in, who is ready, who may have more.
//!
//! Orders: the first plugin that prefers one decides. Permission: one rejection is enough; a tier in which somebody permits ends the walk.

use super::Session;
use crate::ids::PodId;
use crate::state::St;
use muster_model::volcano::{Hook, PluginKind};
use std::cmp::Ordering;

/// What a plugin thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    Permit,
    Abstain,
    Reject,
}

impl Session<'_> {
    fn permitted(&self, hook: Hook, vote: impl Fn(&Self, &PluginKind) -> Vote) -> bool {
        for tier in self.voters(hook) {
            let mut permitted = false;
            for kind in tier {
                match vote(self, kind) {
                    Vote::Reject => return false,
                    Vote::Permit => permitted = true,
                    Vote::Abstain => {}
                }
            }
            if permitted {
                return true;
            }
        }
        true
    }

    fn all_agree(&self, hook: Hook, says: impl Fn(&Self, &PluginKind) -> bool) -> bool {
        self.voters(hook).all(|mut tier| tier.all(|kind| says(self, kind)))
    }

    /// Whether one queue comes before another.
    pub fn queue_before(&self, a: usize, b: usize) -> bool {
        for tier in self.voters(Hook::QueueOrder) {
            for kind in tier {
                let order = match kind {
                    PluginKind::Proportion => self.compare_by_proportion(a, b),
                    PluginKind::Capacity(_) => self.compare_by_capacity(a, b),
                    PluginKind::Drf if self.fair.is_tree() => self.compare_in_tree(a, b),
                    _ => Ordering::Equal,
                };
                if order != Ordering::Equal {
                    return order == Ordering::Less;
                }
            }
        }
        let key = |q: usize| {
            let row = &self.queues[q];
            (row.model.created, row.model.uid.clone(), row.name.clone())
        };
        key(a) < key(b)
    }

    /// Whether one queue loses before another to a third.
    pub fn queue_loses_before(&self, a: usize, b: usize, taker: usize) -> bool {
        for plugin in self.conf.tiers.iter().flatten() {
            if let PluginKind::Capacity(_) = plugin.kind {
                match self.compare_nearness(a, b, taker) {
                    Ordering::Equal => {}
                    order => return order == Ordering::Less,
                }
            }
        }
        !self.queue_before(a, b)
    }

    /// Whether one job comes before another.
    pub fn job_before(&self, a: usize, b: usize) -> bool {
        let (l, r) = (&self.jobs[a], &self.jobs[b]);
        match self.compare_jobs(a, b) {
            Ordering::Equal => l.rank < r.rank,
            order => order == Ordering::Less,
        }
    }

    /// What the plugins think of two jobs.
    pub fn compare_jobs(&self, a: usize, b: usize) -> Ordering {
        let (l, r) = (&self.jobs[a], &self.jobs[b]);
        for kind in &self.job_order {
            let order = match kind {
                PluginKind::Priority => r.priority.cmp(&l.priority),
                PluginKind::Gang => self.standing(a).is_ready.cmp(&self.standing(b).is_ready),
                PluginKind::Drf => self.compare_shares(a, b),
                PluginKind::Sla { waiting } => {
                    let due = |job: &super::Job| {
                        let waiting = job.model.waiting.or(*waiting)?;
                        Some(job.created + waiting)
                    };
                    match (due(l), due(r)) {
                        (Some(l), Some(r)) => l.cmp(&r),
                        (Some(_), None) => Ordering::Less,
                        (None, Some(_)) => Ordering::Greater,
                        (None, None) => Ordering::Equal,
                    }
                }
                PluginKind::Tdm(_) => {
                    let preemptable = |job: &super::Job| job.model.preemptable.unwrap_or(false);
                    preemptable(l).cmp(&preemptable(r))
                }
                _ => Ordering::Equal,
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }

    /// Whether one sub-group of a job comes before another.
    pub fn sub_before(&self, job: usize, a: usize, b: usize) -> bool {
        let (l, r) = (&self.jobs[job].subs[a], &self.jobs[job].subs[b]);
        for tier in self.voters(Hook::SubJobOrder) {
            for kind in tier {
                let order = match kind {
                    PluginKind::Priority => r.priority.cmp(&l.priority),
                    PluginKind::Gang => self.sub_is_ready(job, a).cmp(&self.sub_is_ready(job, b)),
                    _ => Ordering::Equal,
                };
                if order != Ordering::Equal {
                    return order == Ordering::Less;
                }
            }
        }
        (l.index, &l.id) < (r.index, &r.id)
    }

    pub fn job_ready(&self, job: usize) -> bool {
        self.all_agree(Hook::JobReady, |this, kind| !matches!(kind, PluginKind::Gang) || this.gang_ready(job))
    }

    pub fn job_pipelined(&self, job: usize) -> bool {
        self.permitted(Hook::JobPipelined, |this, kind| match kind {
            PluginKind::Gang if this.gang_promised(job) => Vote::Permit,
            PluginKind::Gang => Vote::Reject,
            PluginKind::Sla { waiting } => this.overdue(job, *waiting),
            PluginKind::Tdm(_) if this.gang_promised(job) => Vote::Permit,
            PluginKind::Tdm(_) => Vote::Reject,
            _ => Vote::Abstain,
        })
    }

    /// A job that has waited for too long is let through.
    pub fn overdue(&self, job: usize, default: Option<muster_model::Span>) -> Vote {
        let row = &self.jobs[job];
        match row.model.waiting.or(default) {
            Some(waiting) if self.st.now - row.created >= waiting => Vote::Permit,
            _ => Vote::Abstain,
        }
    }

    pub fn sub_ready(&self, job: usize, sub: usize) -> bool {
        if !self.has_policies(job) {
            return self.job_ready(job);
        }
        let gang =
            |this: &Self, kind: &PluginKind| !matches!(kind, PluginKind::Gang) || this.sub_is_ready(job, sub);
        self.all_agree(Hook::SubJobReady, gang)
    }

    pub fn sub_pipelined(&self, job: usize, sub: usize) -> bool {
        if !self.has_policies(job) {
            return self.job_pipelined(job);
        }
        self.permitted(Hook::SubJobPipelined, |this, kind| match kind {
            PluginKind::Gang if this.sub_is_promised(job, sub) => Vote::Permit,
            PluginKind::Gang => Vote::Reject,
            _ => Vote::Abstain,
        })
    }

    /// Whether a job lacks enough to take from others. Where nobody votes, nobody starves.
    pub fn starving(&self, job: usize) -> bool {
        for tier in self.voters(Hook::JobStarving) {
            let mut seen = false;
            for kind in tier {
                let starves = match kind {
                    PluginKind::Gang => self.lacks_members(job),
                    PluginKind::Priority => {
                        self.n_ready(job) + self.count(job, St::Pipelined) < self.jobs[job].n_tasks
                    }
                    PluginKind::Tdm(_) => {
                        !self.jobs[job].model.preemptable.unwrap_or(false)
                            && self.jobs[job].tasks.iter().any(|p| self.is_waiting(*p))
                    }
                    _ => continue,
                };
                seen = true;
                if !starves {
                    return false;
                }
            }
            if seen {
                return true;
            }
        }
        false
    }

    pub fn enqueueable(&self, job: usize) -> bool {
        self.permitted(Hook::JobEnqueued, |this, kind| match kind {
            PluginKind::Overcommit { factor } => this.fits_overcommitted(job, *factor),
            PluginKind::Proportion => this.may_enqueue_by_proportion(job),
            PluginKind::Capacity(_) => this.may_enqueue_by_capacity(job),
            PluginKind::ResourceQuota => this.within_namespace_quota(job),
            PluginKind::Sla { waiting } => this.overdue(job, *waiting),
            _ => Vote::Abstain,
        })
    }

    pub fn overused(&self, queue: usize) -> bool {
        self.voters(Hook::Overused).any(|mut tier| {
            tier.any(|kind| matches!(kind, PluginKind::Proportion) && self.has_its_share(queue))
        })
    }

    /// Whether the queue of KAI's that the tree is under, and those above it, have room for a pod.
    pub fn allowed_above(&self, queue: usize, pod: PodId) -> bool {
        self.over_limit_above(queue, pod).is_none()
    }

    pub fn over_limit_above(&self, queue: usize, pod: PodId) -> Option<muster_model::Reason> {
        if !self.st.volcano_counts() {
            return None;
        }
        let id = self.queues[queue].id;
        match self.st.queues.rows[id].path.get(1) {
            Some(above) => self.st.queues.over_limit(*above, &self.st.demand(self.st.pods.row(pod).class)),
            None => self.st.queues.missing_above(muster_model::Dialect::Volcano),
        }
    }

    pub fn allocatable(&self, queue: usize, pod: PodId) -> bool {
        self.allowed_above(queue, pod)
            && self.all_agree(Hook::Allocatable, |this, kind| match kind {
                PluginKind::Proportion => this.may_have_by_proportion(queue, &[pod]),
                PluginKind::Capacity(_) => this.may_have_by_capacity(queue, pod),
                _ => true,
            })
    }

    /// Whether a queue may take from others for these pods.
    pub fn preemptive(&self, queue: usize, pods: &[PodId]) -> bool {
        self.all_agree(Hook::Preemptive, |this, kind| match kind {
            PluginKind::Proportion => this.may_have_by_proportion(queue, pods),
            PluginKind::Capacity(conf) => this.may_take_by_capacity(queue, pods, conf.ancestor_reclaim_level),
            _ => true,
        })
    }
}
