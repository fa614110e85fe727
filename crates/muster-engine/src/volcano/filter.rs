//! Which nodes a pod may have: the filters that plugins bring. Whether there is room is asked apart.

use super::Session;
use crate::ids::{NodeId, PodId};
use crate::nodes::PODS_DIM;
use crate::state::St;
use muster_model::NodeReason;
use muster_model::volcano::{Filters, Hook, PluginKind};

/// Why a node will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Evicting others may help.
    ForNow,
    /// Nothing on the node will help.
    Never,
}

impl Session<'_> {
    /// Everything that is against a pod on a node besides room.
    pub fn predicate(&self, pod: PodId, node: NodeId) -> Result<(), Unfit> {
        for tier in self.voters(Hook::Predicate) {
            for kind in tier {
                match kind {
                    PluginKind::Predicates(filters) => self.ordinary_filters(*filters, pod, node)?,
                    PluginKind::Tdm(conf) => {
                        if let Some(zone) = self.zone_of(node)
                            && !(self.zone_is_active(conf, zone)
                                && self.task(pod).is_some_and(|t| t.revocable))
                        {
                            return Err(Unfit::Never);
                        }
                    }
                    PluginKind::NodeGroup { strict, .. } if !self.node_group_allows(pod, node, *strict) => {
                        return Err(Unfit::Never);
                    }
                    PluginKind::Usage(conf) => {
                        let load = self.st.nodes.rows[node].model.as_ref().and_then(|n| n.load);
                        // Old measurements say nothing.
                        let fresh = load.filter(|l| self.st.now - l.at <= super::moments::FRESH);
                        if let Some(load) = fresh
                            && (conf.cpu_threshold.is_some_and(|t| load.cpu > t)
                                || conf.memory_threshold.is_some_and(|t| load.memory > t))
                        {
                            return Err(Unfit::Never);
                        }
                    }
                    PluginKind::ResourceStrategyFit(conf) if !self.leaves_reserved(conf, pod, node) => {
                        return Err(Unfit::ForNow);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// For those who evict: what eviction may mend is no obstacle.
    pub fn predicate_for_taking(&self, pod: PodId, node: NodeId) -> bool {
        self.predicate(pod, node) != Err(Unfit::Never)
    }

    fn ordinary_filters(&self, filters: Filters, pod: PodId, node: NodeId) -> Result<(), Unfit> {
        let row = self.st.pods.row(pod);
        let class = &self.st.classes.rows[row.class];
        let n = &self.st.nodes.rows[node];
        let Some(model) = &n.model else { return Err(Unfit::Never) };
        let counts = |reason: &NodeReason| match reason {
            NodeReason::NodeAffinity => filters.node_affinity,
            NodeReason::Taint { .. } => filters.taints,
            NodeReason::Volume => filters.volumes || !class.shape.missing.is_empty(),
            // Taints say what matters of a node's condition.
            NodeReason::NotUsable => model.conditions.unschedulable || !model.conditions.ready,
            _ => true,
        };
        if self.st.classes.why_not_but(class.rule, model, counts).is_some() {
            return Err(Unfit::Never);
        }
        let seen = self.st.books.as_ref().and_then(|b| b.nodes.get(node));
        let n_pods = seen.and_then(|s| s.amounts.get(PODS_DIM)).copied().unwrap_or(0);
        if i128::from(self.st.nodes.cap(node, PODS_DIM)) <= n_pods {
            return Err(Unfit::ForNow);
        }
        if !self.st.company.is_silent(row.guest) {
            match self.st.company.filter(row.guest, node) {
                Err(NodeReason::PodAffinity) if filters.pod_affinity => return Err(Unfit::Never),
                Err(NodeReason::PodAntiAffinity) if filters.pod_affinity => return Err(Unfit::ForNow),
                Err(NodeReason::TopologySpread) if filters.spread => {
                    let has_keys = class
                        .shape
                        .pods
                        .spread
                        .iter()
                        .filter(|s| s.required)
                        .all(|s| model.labels.contains_key(&s.topology_key));
                    return Err(if has_keys { Unfit::ForNow } else { Unfit::Never });
                }
                _ => {}
            }
        }
        if class.has_ports || class.has_attachments {
            match self.st.exclusive_refused(class, node) {
                Some(NodeReason::HostPort) if !filters.node_ports => {}
                None => {}
                Some(_) => return Err(Unfit::ForNow),
            }
        }
        if class.has_claims && self.st.claims_fit(pod, node).is_none() {
            return Err(Unfit::ForNow);
        }
        if class.share.is_some_and(|share| self.st.share_is_refused(node, share)) {
            return Err(Unfit::ForNow);
        }
        Ok(())
    }

    /// The zone that a node may be taken back in.
    pub fn zone_of(&self, node: NodeId) -> Option<&str> {
        let model = self.st.nodes.rows[node].model.as_ref()?;
        model.labels.get("volcano.sh/revocable-zone").map(|zone| &**zone).filter(|zone| !zone.is_empty())
    }

    /// Whether the clock is within a zone's hours.
    pub fn zone_is_active(&self, conf: &muster_model::volcano::TdmConf, zone: &str) -> bool {
        const DAY: i64 = 24 * 3_600_000;
        let Some((from, to)) = conf.zones.get(zone) else { return false };
        let now = self.st.now.0.rem_euclid(DAY);
        if from < to { (*from..*to).contains(&now) } else { now >= *from || now < *to }
    }

    fn node_group(&self, node: NodeId) -> Option<&muster_model::Name> {
        self.st.nodes.rows[node].model.as_ref()?.labels.get("volcano.sh/nodegroup-name")
    }

    fn node_groups_of(&self, pod: PodId) -> Option<&muster_model::volcano::NodeGroups> {
        let job = self.job_of_pod(pod)?;
        let from = *self.groups_from.get(self.jobs[job].queue)?;
        self.queues[from].vc.node_groups.as_ref()
    }

    /// For each queue the one whose groups of nodes count: its own, or where it names none and the plugin looks at the tree, those of the nearest
    /// queue above that does.
    pub fn whose_node_groups(&self) -> Vec<usize> {
        let own = 0..self.queues.len();
        let nodegroup = self.plugin(|kind| matches!(kind, PluginKind::NodeGroup { .. }));
        if !nodegroup.is_some_and(|plugin| plugin.enabled.has(Hook::Hierarchy)) {
            return own.collect();
        }
        let by_name = self.queue_named();
        let above = |queue: &usize| {
            let parent = self.queues[*queue]
                .model
                .parent
                .as_ref()
                .map_or("root", |parent| muster_model::own_name(parent));
            by_name.get(parent).copied().filter(|parent| parent != queue)
        };
        let line = |queue: usize| std::iter::successors(Some(queue), above).take(self.queues.len());
        let says = |queue: &usize| self.queues[*queue].vc.node_groups.is_some();
        own.map(|queue| line(queue).find(says).unwrap_or(queue)).collect()
    }

    fn node_group_allows(&self, pod: PodId, node: NodeId, strict: bool) -> bool {
        let groups = self.node_groups_of(pod);
        let Some(group) = self.node_group(node) else { return !strict && groups.is_none() };
        let Some(groups) = groups else { return false };
        if groups.required_anti.contains(group) || !self.within_group_limit(pod, group) {
            return false;
        }
        groups.required.contains(group)
            || groups.preferred.contains(group)
            || groups.preferred_anti.contains(group)
    }

    /// Whether a queue may have one more pod of a group of nodes.
    fn within_group_limit(&self, pod: PodId, group: &muster_model::Name) -> bool {
        use dense::Id;
        let Some(queue) = self.job_of_pod(pod).map(|job| self.jobs[job].queue) else { return true };
        let Some(limits) = self.queues[queue].vc.group_limits.get(group) else { return true };
        let mut held = super::amounts::Res::of_need(self.need(pod));
        for job in self.jobs.iter().filter(|job| job.queue == queue) {
            for other in job.tasks.iter().filter(|other| self.status(**other).is_active()) {
                let node = self.st.pods.row(*other).spot.node;
                if node.and_then(|node| self.node_group(node)) == Some(group) {
                    held.add_need(self.need(*other), 1);
                }
            }
        }
        limits.iter().all(|(resource, limit)| {
            let dim = self.st.nodes.dims.get(resource).map(|dim| dim.index());
            dim.is_none_or(|dim| {
                let asked = crate::nodes::amount_of(self.need(pod), dim).unwrap_or(0);
                asked == 0 || held.get(dim) <= i128::from(limit)
            })
        })
    }

    pub fn node_group_score(&self, pod: PodId, node: NodeId, in_order: bool) -> f64 {
        let (Some(group), Some(groups)) = (self.node_group(node), self.node_groups_of(pod)) else {
            return 0.0;
        };
        let mut score = 0.0;
        if groups.required.contains(group) {
            score += 100.0;
        } else if let Some(at) = groups.preferred.iter().position(|g| g == group) {
            let n = groups.preferred.len() as f64;
            score += if in_order { 50.0 * (n - at as f64) / n } else { 50.0 };
        } else if groups.preferred_anti.contains(group) {
            score -= 1.0;
        }
        score
    }

    /// Whether what is kept for those who ask for scarce resources stays free.
    fn leaves_reserved(&self, conf: &muster_model::volcano::StrategyConf, pod: PodId, node: NodeId) -> bool {
        use dense::Id;
        let need = self.need(pod);
        for (scarce, per_unit) in &conf.reserved {
            let resource = super::score::resource_named(scarce);
            let Some(dim) = self.st.nodes.dims.get(&resource).map(|d| d.index()) else { continue };
            if crate::nodes::amount_of(need, dim).is_some() || self.st.nodes.cap(node, dim) == 0 {
                continue;
            }
            let unit = if resource == muster_model::Resource::Gpu { muster_model::GPU } else { 1 };
            let idle = self.st.nodes.idle(node, dim).max(0) / unit;
            for (resource, amount) in per_unit.iter() {
                let Some(dim) = self.st.nodes.dims.get(resource).map(|d| d.index()) else { continue };
                let asked = crate::nodes::amount_of(need, dim).unwrap_or(0);
                let kept = i128::from(idle) * i128::from(amount);
                if i128::from(self.st.nodes.idle(node, dim)) - i128::from(asked) < kept {
                    return false;
                }
            }
        }
        true
    }

    /// Pods on a node that are not over.
    pub fn pods_on(&self, node: NodeId) -> Vec<PodId> {
        let mut pods: Vec<PodId> = self.st.nodes.rows[node]
            .pods
            .iter()
            .copied()
            .filter(|p| self.st.pods.row(*p).spot.node == Some(node))
            .filter(|p| !matches!(self.status(*p), St::Succeeded | St::Failed))
            .collect();
        pods.sort_by(|a, b| self.st.pods.row(*a).model.key.cmp(&self.st.pods.row(*b).model.key));
        pods
    }
}
