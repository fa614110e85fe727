//! Who may lose pods: the plugins' candidates, cut by tier, and the order in which they lose.
//!
//! Within a tier every plugin that votes must agree on a pod. A tier in which nobody is left says nothing, and the next one is asked: being
//! spared in an earlier tier is no veto.

use super::Session;
use super::amounts::Res;
use super::heap::Heap;
use crate::ids::PodId;
use muster_model::volcano::{Hook, PluginKind};
use std::cmp::Ordering;
use std::collections::BTreeMap;

impl Session<'_> {
    fn by_tier(
        &self,
        plugins: impl Fn(&muster_model::volcano::Plugin) -> bool,
        vote: impl Fn(&PluginKind) -> Option<Vec<PodId>>,
    ) -> Vec<PodId> {
        for tier in &self.conf.tiers {
            let mut agreed: Option<Vec<PodId>> = None;
            for plugin in tier.iter().filter(|p| plugins(p)) {
                let Some(victims) = vote(&plugin.kind) else { continue };
                if victims.is_empty() {
                    agreed = None;
                    break;
                }
                agreed = match agreed {
                    None => Some(victims),
                    Some(mut agreed) => {
                        agreed.retain(|p| victims.contains(p));
                        Some(agreed).filter(|a| !a.is_empty())
                    }
                };
            }
            if let Some(agreed) = agreed {
                return agreed;
            }
        }
        Vec::new()
    }

    /// Those that a pod may preempt.
    pub fn preemptable(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let keep = |f: &dyn Fn(PodId) -> bool| candidates.iter().copied().filter(|p| f(*p)).collect();
        self.by_tier(
            |p| p.enabled.has(Hook::Preemptable),
            |kind| match kind {
                PluginKind::Gang => Some(self.beyond_minimum(candidates)),
                PluginKind::Priority => Some(keep(&|p| self.is_lower(taker, p))),
                PluginKind::Conformance => Some(keep(&|p| !self.task(p).is_some_and(|t| t.critical))),
                PluginKind::Drf => Some(self.spared_by_share(taker, candidates)),
                PluginKind::Cdp => Some(keep(&|p| !self.is_cooling_down(p))),
                PluginKind::Pdb => Some(self.within_budgets(candidates)),
                PluginKind::Tdm(_) => Some(self.spared_by_tdm(taker, candidates)),
                _ => None,
            },
        )
    }

    /// Those that a pod may take from other queues.
    pub fn reclaimable(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        let Some(job) = self.job_of_pod(taker) else { return Vec::new() };
        let queue = self.jobs[job].queue;
        let asked = Res::of_need(self.need(taker));
        let keep = |f: &dyn Fn(PodId) -> bool| candidates.iter().copied().filter(|p| f(*p)).collect();
        self.by_tier(
            |p| p.enabled.has(Hook::Reclaimable),
            |kind| match kind {
                PluginKind::Gang => Some(self.beyond_minimum(candidates)),
                PluginKind::Conformance => Some(keep(&|p| !self.task(p).is_some_and(|t| t.critical))),
                PluginKind::Proportion => Some(self.spared_by_proportion(&asked, candidates)),
                PluginKind::Capacity(conf) => {
                    self.spared_by_capacity(queue, &asked, candidates, conf.ancestor_reclaim_level)
                }
                PluginKind::Drf if self.fair.is_tree() => Some(self.spared_in_tree(taker, candidates)),
                PluginKind::Cdp => Some(keep(&|p| !self.is_cooling_down(p))),
                PluginKind::Pdb => Some(self.within_budgets(candidates)),
                _ => None,
            },
        )
    }

    /// Those that a gang may take, whatever its minimum: bundles see to that.
    pub fn evictable_by_gang(
        &self,
        job: usize,
        asked: &Res,
        candidates: &[PodId],
        reclaim: bool,
    ) -> Vec<PodId> {
        let queue = self.jobs[job].queue;
        let keep = |f: &dyn Fn(PodId) -> bool| candidates.iter().copied().filter(|p| f(*p)).collect();
        let lower = |p: PodId| {
            self.job_of_pod(p).is_some_and(|victim| self.jobs[victim].priority < self.jobs[job].priority)
        };
        self.by_tier(
            |_| true,
            |kind| match kind {
                PluginKind::Gang => Some(candidates.to_vec()),
                // Between queues priority is no matter, and everybody may go.
                PluginKind::Priority if reclaim => Some(candidates.to_vec()),
                PluginKind::Priority => Some(keep(&lower)),
                PluginKind::Conformance => Some(keep(&|p| !self.task(p).is_some_and(|t| t.critical))),
                PluginKind::Capacity(conf) if reclaim => {
                    self.spared_by_capacity(queue, asked, candidates, conf.ancestor_reclaim_level)
                }
                _ => None,
            },
        )
    }

    /// Pods that their jobs have beyond their minimum, counting as they go.
    fn beyond_minimum(&self, candidates: &[PodId]) -> Vec<PodId> {
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        let mut victims = Vec::new();
        for pod in candidates {
            let Some(job) = self.job_of_pod(*pod) else { continue };
            let n = left.entry(job).or_insert_with(|| self.n_ready(job));
            if *n > self.jobs[job].model.min_member {
                *n -= 1;
                victims.push(*pod);
            }
        }
        victims
    }

    fn is_lower(&self, taker: PodId, victim: PodId) -> bool {
        let (Some(a), Some(b)) = (self.job_of_pod(taker), self.job_of_pod(victim)) else { return false };
        if a != b {
            return self.jobs[b].priority < self.jobs[a].priority;
        }
        match (self.task(taker), self.task(victim)) {
            (Some(taker), Some(victim)) => victim.priority < taker.priority,
            _ => false,
        }
    }

    fn is_cooling_down(&self, pod: PodId) -> bool {
        self.task(pod).and_then(|t| t.cooldown_until).is_some_and(|until| until > self.st.now)
    }

    /// Pods that disruption budgets allow to go, counting as they go. Pods without labels are left out, as upstream does.
    pub fn within_budgets(&self, candidates: &[PodId]) -> Vec<PodId> {
        let mut left: Vec<(&muster_model::volcano::DisruptionBudget, i64)> =
            self.st.budgets.values().map(|b| (&**b, b.allowed)).collect();
        let mut victims = Vec::new();
        for pod in candidates {
            let model = &self.st.pods.row(*pod).model;
            if model.labels.is_empty() {
                continue;
            }
            let mut fine = true;
            for (budget, left) in &mut left {
                if budget.key.namespace != model.key.namespace
                    || budget.selector.all.is_empty()
                    || !budget.selector.matches(&model.labels)
                {
                    continue;
                }
                *left -= 1;
                fine &= *left >= 0;
            }
            if fine {
                victims.push(*pod);
            }
        }
        victims
    }

    /// Pods that may be taken back, off ordinary nodes, as far as their jobs' budgets allow.
    fn spared_by_tdm(&self, taker: PodId, candidates: &[PodId]) -> Vec<PodId> {
        if self.task(taker).is_some_and(|t| t.preemptable) {
            return Vec::new();
        }
        let ordinary = |p: &&PodId| {
            self.task(**p).is_some_and(|t| t.preemptable)
                && self.st.pods.row(**p).spot.node.is_some_and(|n| self.zone_of(n).is_none())
        };
        let candidates: Vec<PodId> = candidates.iter().filter(ordinary).copied().collect();
        self.within_job_budgets(&candidates)
    }

    /// Pods that may go by what their jobs say about disruptions; one of each job where they say nothing.
    pub fn within_job_budgets(&self, candidates: &[PodId]) -> Vec<PodId> {
        let mut by_job: BTreeMap<usize, Vec<PodId>> = BTreeMap::new();
        for pod in candidates {
            if let Some(job) = self.job_of_pod(*pod) {
                by_job.entry(job).or_default().push(*pod);
            }
        }
        let mut victims = Vec::new();
        for (job, pods) in by_job {
            let row = &self.jobs[job];
            let running = self.count(job, crate::state::St::Running);
            let budget = row.model.budget;
            let most = match (budget.max_unavailable, budget.min_available) {
                (Some(most), _) => {
                    let gone = row.n_tasks.saturating_sub(running);
                    most.of(row.n_tasks).saturating_sub(gone)
                }
                (None, Some(least)) => running.saturating_sub(least.of(row.n_tasks)),
                (None, None) => 1,
            };
            victims.extend(pods.into_iter().take(most as usize));
        }
        victims
    }

    /// Whether one pod loses before another.
    fn loses_before(&self, a: PodId, b: PodId, taker: usize) -> bool {
        let (Some(l), Some(r)) = (self.job_of_pod(a), self.job_of_pod(b)) else {
            return self.job_of_pod(a).is_none() && self.job_of_pod(b).is_some();
        };
        if l == r {
            return self.compare_tasks(a, b) == Ordering::Greater;
        }
        let (lq, rq) = (self.jobs[l].queue, self.jobs[r].queue);
        if lq != rq {
            return self.queue_loses_before(lq, rq, self.jobs[taker].queue);
        }
        // The age of jobs does not matter here; the pod that would be placed last goes first, whosever it is.
        let by_job = self.compare_jobs(r, l);
        by_job.then_with(|| self.compare_tasks(b, a)) == Ordering::Less
    }

    /// Pods in the order in which they lose to a job.
    pub fn in_victim_order(&self, pods: &[PodId], taker: usize) -> Vec<PodId> {
        let before = |a: &PodId, b: &PodId| self.loses_before(*a, *b, taker);
        let mut heap = Heap::default();
        for pod in pods {
            heap.push(*pod, before);
        }
        std::iter::from_fn(|| heap.pop(before)).collect()
    }
}
