//! Why a queue lets a gang not in, or a pod not have more: the votes of these plugins in numbers.

use super::{EPSILON, FINE, Session, Vote};
use crate::ids::PodId;
use crate::nodes::PODS_DIM;
use crate::place::resource_of;
use muster_model::volcano::{Hook, PluginKind};
use muster_model::{Name, Reason, Resource};

impl Session<'_> {
    /// The vote that keeps a gang out.
    pub fn why_not_let_in(&self, job: usize) -> Option<Reason> {
        let rejects = |kind: &PluginKind| match kind {
            PluginKind::Overcommit { factor } => self.fits_overcommitted(job, *factor) == Vote::Reject,
            PluginKind::Proportion => self.may_enqueue_by_proportion(job) == Vote::Reject,
            PluginKind::Capacity(_) => self.may_enqueue_by_capacity(job) == Vote::Reject,
            PluginKind::ResourceQuota => self.within_namespace_quota(job) == Vote::Reject,
            _ => false,
        };
        let kind = self.voters(Hook::JobEnqueued).flatten().find(|kind| rejects(kind))?;
        match kind {
            PluginKind::Overcommit { factor } => self.overcommitted(job, *factor),
            PluginKind::ResourceQuota => self.beyond_namespace_quota(job),
            _ => self.beyond_capability(job, kind.name()),
        }
    }

    fn overcommitted(&self, job: usize, factor: i64) -> Option<Reason> {
        let least = self.quotas.least[job].as_ref()?;
        let dims = least.names().filter(|dim| *dim != PODS_DIM);
        dims.map(|dim| {
            let most = self.total.get(dim) * i128::from(factor) / 1000;
            let used = self.quotas.used.get(dim) + self.quotas.all_inqueue.get(dim);
            self.not_let_in(job, "overcommit", dim, used, least.get(dim), most)
        })
        .find(|reason| matches!(reason, Reason::NotLetIn { used, asked, most, .. } if used + asked > *most))
    }

    fn not_let_in(
        &self,
        job: usize,
        plugin: &str,
        dim: usize,
        used: i128,
        asked: i128,
        most: i128,
    ) -> Reason {
        let queue = self.queues[self.jobs[job].queue].name.clone();
        Reason::NotLetIn { queue, plugin: plugin.into(), resource: self.resource(dim), used, asked, most }
    }

    fn resource(&self, dim: usize) -> Resource {
        resource_of(&self.st.nodes, u32::try_from(dim).unwrap_or(u32::MAX))
    }

    /// What is wrong with a queue as such.
    pub fn queue_defect(&self, queue: usize) -> Option<Reason> {
        let row = &self.queues[queue];
        let name = || row.name.clone();
        if !row.vc.open {
            return Some(Reason::QueueClosed { queue: name() });
        }
        let tree = self.quotas.tree.as_ref()?;
        if tree.has_children[queue] {
            return Some(Reason::QueueNotLeaf { queue: name() });
        }
        (!tree.sound).then(|| Reason::QueueMissing { queue: name() })
    }

    fn beyond_capability(&self, job: usize, plugin: &str) -> Option<Reason> {
        let queue = self.jobs[job].queue;
        if let Some(defect) = self.queue_defect(queue) {
            return Some(defect);
        }
        let least = self.quotas.least[job].as_ref()?;
        let tree = self.quotas.tree.as_ref();
        let up = tree.map_or(&[][..], |t| &t.ancestors[queue]);
        std::iter::once(queue).chain(up.iter().rev().copied()).find_map(|at| {
            let sum = self.let_in_with(least, at, tree.is_some());
            let over = |dim: &usize| {
                *dim != PODS_DIM && self.quotas.real[at].get(*dim).is_some_and(|cap| sum.get(*dim) > cap)
            };
            let dim = least.names().find(over)?;
            Some(Reason::NotLetIn {
                queue: self.queues[at].name.clone(),
                plugin: plugin.into(),
                resource: self.resource(dim),
                used: sum.get(dim) - least.get(dim),
                asked: least.get(dim),
                most: self.quotas.real[at].get(dim)?,
            })
        })
    }

    fn beyond_namespace_quota(&self, job: usize) -> Option<Reason> {
        let namespace = &self.jobs[job].key.namespace;
        let pending = self.quotas.pending.get(namespace);
        let quotas = || self.st.allowances.values().filter(|q| q.key.namespace == *namespace);
        self.quota_names(job).into_iter().find_map(|(name, asked)| {
            let waiting = pending.and_then(|p| p.get(&name)).copied().unwrap_or(0);
            quotas().find_map(|quota| {
                let hard = *quota.hard.get(&name)?;
                let used = quota.used.get(&name).copied().unwrap_or(0) + waiting;
                (used + asked > hard).then(|| {
                    // Quotas are in thousandths, whatever they are of.
                    let whole = |n: i128| n / 1000;
                    Reason::NotLetIn {
                        queue: self.queues[self.jobs[job].queue].name.clone(),
                        plugin: "resourcequota".into(),
                        resource: Resource::Other(name.clone()),
                        used: whole(used),
                        asked: whole(asked),
                        most: whole(hard),
                    }
                })
            })
        })
    }

    /// Why a queue may not have one more pod.
    pub fn why_no_more(&self, queue: usize, pod: PodId) -> Option<Reason> {
        if let Some(reason) = self.over_limit_above(queue, pod) {
            return Some(reason);
        }
        for kind in self.voters(Hook::Allocatable).flatten() {
            let reason = match kind {
                PluginKind::Proportion if !self.may_have_by_proportion(queue, &[pod]) => {
                    self.queue_defect(queue).or_else(|| self.beyond_share(queue, pod))
                }
                PluginKind::Capacity(_) if !self.may_have_by_capacity(queue, pod) => {
                    self.queue_defect(queue).or_else(|| self.over_capability(queue, pod))
                }
                _ => None,
            };
            if reason.is_some() {
                return reason;
            }
        }
        None
    }

    /// A queue that has its share gets nothing more: what it holds, of what the pod asks for.
    pub fn beyond_share(&self, queue: usize, pod: PodId) -> Option<Reason> {
        let need = self.need(pod).iter().filter(|(dim, _)| *dim as usize != PODS_DIM);
        let reasons = need.map(|(dim, amount)| {
            let (dim, asked) = (*dim as usize, i128::from(*amount));
            let (used, share) = (self.held_of(queue, dim), self.deserved(queue, dim));
            let over = (used + asked) * FINE > share + EPSILON;
            let (queue, resource): (Name, Resource) = (self.queues[queue].name.clone(), self.resource(dim));
            (over, Reason::OverShare { queue, resource, used, asked, share: share / FINE })
        });
        let mut reasons: Vec<(bool, Reason)> = reasons.collect();
        reasons.sort_by_key(|(over, _)| !over);
        reasons.into_iter().map(|(_, reason)| reason).next()
    }

    fn over_capability(&self, queue: usize, pod: PodId) -> Option<Reason> {
        let asked = self.asked(queue, &[pod]);
        let tree = self.quotas.tree.as_ref();
        let up = tree.map_or(&[][..], |t| &t.ancestors[queue]);
        std::iter::once(queue).chain(up.iter().rev().copied()).find_map(|at| {
            let held = self.held_below(at);
            let dims = asked.names().filter(|dim| *dim != PODS_DIM);
            dims.filter_map(|dim| Some((dim, self.quotas.real[at].get(dim)?)))
                .find(|(dim, cap)| held.get(*dim) + asked.get(*dim) > *cap)
                .map(|(dim, limit)| Reason::OverLimit {
                    queue: self.queues[at].name.clone(),
                    resource: self.resource(dim),
                    used: held.get(dim),
                    asked: asked.get(dim),
                    limit,
                })
        })
    }
}
