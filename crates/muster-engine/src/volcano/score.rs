//! Which of several nodes is best for a pod: the sum of the plugins' scores, on upstream's scale. Hot path: the benchmark of gang shapes
//! guards it.
//!
//! Scores are floats as upstream's are; they order nodes and are used for nothing else.

use super::Session;
use super::amounts::Res;
use crate::ids::{NodeId, PodId};
use crate::nodes::{CPU_DIM, GPU_DIM, MEMORY_DIM, Nodes, amount_of};
use dense::Id;
use muster_model::volcano::{FitType, Hook, Packing, PluginKind, StrategyConf, Weights};
use muster_model::{Resource, TaintEffect};

impl Session<'_> {
    /// The best of some nodes: the highest score, then the first by name.
    pub fn best(&self, pod: PodId, near: Option<usize>, nodes: &[NodeId]) -> Option<NodeId> {
        if nodes.len() <= 1 {
            return nodes.first().copied();
        }
        let scores = self.scores(pod, near, nodes);
        let rank = |n: &NodeId| self.st.nodes.rows[*n].rank;
        nodes
            .iter()
            .zip(&scores)
            .min_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| rank(a).cmp(&rank(b))))
            .map(|(node, _)| *node)
    }

    pub fn scores(&self, pod: PodId, near: Option<usize>, nodes: &[NodeId]) -> Vec<f64> {
        let mut sums = vec![0.0; nodes.len()];
        let mut add = |scores: &mut dyn Iterator<Item = f64>| {
            for (sum, score) in sums.iter_mut().zip(scores) {
                *sum += score;
            }
        };
        for kind in self.voters(Hook::NodeOrder).flatten() {
            match kind {
                PluginKind::NodeOrder(weights) => add(&mut self.kube_scores(weights, pod, nodes).into_iter()),
                PluginKind::Binpack(conf) => {
                    let asked = Res::of_need(self.need(pod));
                    add(&mut nodes.iter().map(|n| self.binpack(conf, &asked, *n)));
                }
                PluginKind::ResourceStrategyFit(conf) => {
                    add(&mut nodes.iter().map(|n| self.strategy_fit(conf, pod, *n)));
                }
                PluginKind::NetworkTopology(conf) => {
                    add(&mut self.score_by_domains(conf, pod, near, nodes).into_iter());
                }
                PluginKind::NodeGroup { preferred_order, .. } => {
                    add(&mut nodes.iter().map(|n| self.node_group_score(pod, *n, *preferred_order)));
                }
                PluginKind::Tdm(conf) => {
                    let good = |n: &NodeId| {
                        self.task(pod).is_some_and(|t| t.revocable)
                            && self.zone_of(*n).is_some_and(|zone| self.zone_is_active(conf, zone))
                    };
                    add(&mut nodes.iter().map(|n| if good(n) { 100.0 } else { 0.0 }));
                }
                PluginKind::Usage(conf) => {
                    add(&mut nodes.iter().map(|n| self.usage_score(conf, *n)));
                }
                PluginKind::TaskTopology { weight } => {
                    add(&mut nodes.iter().map(|n| self.bucket_score(pod, *n) * *weight as f64));
                }
                _ => {}
            }
        }
        sums
    }

    fn kube_scores(&self, weights: &Weights, pod: PodId, nodes: &[NodeId]) -> Vec<f64> {
        let row = self.st.pods.row(pod);
        let class = &self.st.classes.rows[row.class];
        let mut sums = vec![0.0; nodes.len()];
        let mut add = |weight: i64, scores: &mut dyn Iterator<Item = i64>| {
            for (sum, score) in sums.iter_mut().zip(scores) {
                *sum += score as f64 * weight as f64;
            }
        };
        if weights.least_requested != 0 {
            add(weights.least_requested, &mut nodes.iter().map(|n| self.requested_score(pod, *n, false)));
        }
        if weights.most_requested != 0 {
            add(weights.most_requested, &mut nodes.iter().map(|n| self.requested_score(pod, *n, true)));
        }
        if weights.balanced != 0 && !self.is_best_effort(pod) {
            add(weights.balanced, &mut nodes.iter().map(|n| self.balanced_score(pod, *n)));
        }
        if weights.node_affinity != 0 && !class.shape.node.preferred.is_empty() {
            let raw: Vec<i64> = nodes.iter().map(|n| self.affinity_score(pod, *n)).collect();
            let most = raw.iter().copied().max().unwrap_or(0);
            add(
                weights.node_affinity,
                &mut raw.into_iter().map(|s| if most > 0 { 100 * s / most } else { s }),
            );
        }
        if weights.taint_toleration != 0 {
            let raw: Vec<i64> = nodes.iter().map(|n| self.intolerable(pod, *n)).collect();
            let most = raw.iter().copied().max().unwrap_or(0);
            let score = |n: i64| if most == 0 { 100 } else { 100 - 100 * n / most };
            add(weights.taint_toleration, &mut raw.into_iter().map(score));
        }
        if weights.pod_affinity != 0 && !self.st.company.is_indifferent(row.guest) {
            let raw: Vec<i64> = nodes.iter().map(|n| self.st.company.score(row.guest, *n)).collect();
            let least = raw.iter().copied().min().unwrap_or(0);
            let most = raw.iter().copied().max().unwrap_or(0);
            let score = |s: i64| if most > least { 100 * (s - least) / (most - least) } else { 0 };
            add(weights.pod_affinity, &mut raw.into_iter().map(score));
        }
        if weights.spread != 0 && self.st.company.likes_to_spread(row.guest) {
            add(weights.spread, &mut self.st.company.spread_scores(row.guest, nodes).into_iter());
        }
        sums
    }

    /// What is requested on a node, as kube-scheduler counts it: of every resource, and of CPU and memory with the little that silent pods count.
    fn requested(&self, node: NodeId) -> Option<&crate::state::Requested> {
        match &self.frozen {
            Some(frozen) => frozen.get(node),
            None => self.st.books.as_ref()?.nodes.get(node),
        }
    }

    /// How much of a node is or would be requested, in hundredths.
    fn requested_score(&self, pod: PodId, node: NodeId, most: bool) -> i64 {
        let class = &self.st.classes.rows[self.st.pods.row(pod).class];
        let seen = self.requested(node);
        let mut sum = 0;
        let mut n = 0;
        for (i, dim) in [CPU_DIM, MEMORY_DIM].into_iter().enumerate() {
            let cap = i128::from(self.st.nodes.cap(node, dim));
            if cap == 0 {
                continue;
            }
            n += 1;
            let asked = seen.map_or(0, |s| s.at_least[i]) + i128::from(class.at_least[i]);
            if asked > cap {
                continue;
            }
            sum += if most { asked * 100 / cap } else { (cap - asked) * 100 / cap };
        }
        if n == 0 { 0 } else { (sum / n) as i64 }
    }

    /// How evenly a node's resources are used with the pod, against without it.
    fn balanced_score(&self, pod: PodId, node: NodeId) -> i64 {
        let need = self.need(pod);
        let seen = self.requested(node);
        let mut with = [0.0_f64; 3];
        let mut without = [0.0_f64; 3];
        let mut n = 0;
        for dim in [CPU_DIM, MEMORY_DIM, GPU_DIM] {
            let cap = self.st.nodes.cap(node, dim);
            let asked = amount_of(need, dim).unwrap_or(0);
            if cap == 0 || (dim == GPU_DIM && asked == 0) {
                continue;
            }
            let used = seen.and_then(|s| s.amounts.get(dim)).copied().unwrap_or(0);
            let part = |amount: i128| (amount as f64 / cap as f64).min(1.0);
            with[n] = part(used + i128::from(asked));
            without[n] = part(used);
            n += 1;
        }
        let evenness = |parts: &[f64]| {
            let deviation = match parts {
                [a, b] => ((a - b) / 2.0).abs(),
                [] | [_] => 0.0,
                parts => {
                    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
                    (parts.iter().map(|p| (p - mean) * (p - mean)).sum::<f64>() / parts.len() as f64).sqrt()
                }
            };
            ((1.0 - deviation) * 100.0) as i64
        };
        let (with, without) = (evenness(&with[..n]), evenness(&without[..n]));
        50 + (50 + with - without) / 2
    }

    fn affinity_score(&self, pod: PodId, node: NodeId) -> i64 {
        let class = &self.st.classes.rows[self.st.pods.row(pod).class];
        let Some(model) = &self.st.nodes.rows[node].model else { return 0 };
        let holds = |(_, term): &&(i32, muster_model::NodeTerm)| term.holds(&model.name, &model.labels);
        class.shape.node.preferred.iter().filter(holds).map(|(weight, _)| i64::from(*weight)).sum()
    }

    fn intolerable(&self, pod: PodId, node: NodeId) -> i64 {
        let class = &self.st.classes.rows[self.st.pods.row(pod).class];
        let Some(model) = &self.st.nodes.rows[node].model else { return 0 };
        let bad = |t: &&muster_model::Taint| {
            t.effect == TaintEffect::PreferNoSchedule
                && !class.shape.tolerations.iter().any(|tol| tol.covers(t))
        };
        model.taints.iter().filter(bad).count() as i64
    }

    fn binpack(&self, conf: &Packing, asked: &Res, node: NodeId) -> f64 {
        let used = |dim: usize| {
            let cap = self.st.nodes.cap(node, dim);
            (i128::from(cap - self.st.nodes.idle(node, dim)), i128::from(cap))
        };
        packed(conf, &self.st.nodes, asked, used) * 100.0 * conf.weight as f64
    }

    fn strategy_fit(&self, conf: &StrategyConf, pod: PodId, node: NodeId) -> f64 {
        let need = self.need(pod);
        let mut sum = 0.0;
        let mut weights = 0;
        let own = self.task(pod).and_then(|t| t.fit);
        for (dim, asked) in need.iter() {
            let dim = *dim as usize;
            let Some(resource) = self.st.nodes.dims.iter().find(|(id, _)| id.index() == dim).map(|(_, r)| r)
            else {
                continue;
            };
            let Some((fit, weight)) = conf.resources.iter().find_map(|(name, given)| {
                let matches = match name.strip_suffix('*') {
                    Some(prefix) => resource_name(resource).starts_with(prefix),
                    None => resource_named(name) == *resource,
                };
                matches.then_some(*given)
            }) else {
                continue;
            };
            weights += weight;
            let cap = self.st.nodes.cap(node, dim);
            let used = cap - self.st.nodes.idle(node, dim) + asked;
            if cap == 0 || used > cap {
                continue;
            }
            let part = match own.unwrap_or(fit) {
                FitType::MostAllocated => used as f64 / cap as f64,
                FitType::LeastAllocated => (cap - used) as f64 / cap as f64,
            };
            sum += part * weight as f64;
        }
        let mut score = if weights > 0 { sum / weights as f64 * 100.0 * conf.weight as f64 } else { 0.0 };
        if let Some((weight, scarce)) = &conf.scarce {
            score += self.scarce_score(scarce, pod, node) * *weight as f64;
        }
        score
    }

    /// Nodes without scarce resources are better for those who do not ask for them.
    fn scarce_score(
        &self,
        scarce: &std::collections::BTreeMap<muster_model::Name, i64>,
        pod: PodId,
        node: NodeId,
    ) -> f64 {
        let need = self.need(pod);
        // A node that lacks what is asked for altogether is no better for lacking what is scarce.
        if need.iter().any(|(dim, _)| self.st.nodes.cap(node, *dim as usize) == 0) {
            return 0.0;
        }
        let mut all = 0;
        let mut absent = 0;
        for (name, weight) in scarce {
            let dim = self.st.nodes.dims.get(&resource_named(name)).map(|d| d.index());
            if dim.is_some_and(|dim| amount_of(need, dim).is_some()) {
                return 0.0;
            }
            all += weight;
            if dim.is_none_or(|dim| self.st.nodes.cap(node, dim) == 0) {
                absent += weight;
            }
        }
        if all == 0 { 0.0 } else { 100.0 * absent as f64 / all as f64 }
    }

    fn usage_score(&self, conf: &muster_model::volcano::UsageConf, node: NodeId) -> f64 {
        let load = self.st.nodes.rows[node].model.as_ref().and_then(|n| n.load);
        // Old measurements say nothing.
        let fresh = load.filter(|load| self.st.now - load.at <= super::moments::FRESH);
        let Some(load) = fresh else { return 0.0 };
        let weights = conf.cpu_weight + conf.memory_weight;
        if weights <= 0 {
            return 0.0;
        }
        let free = |percent: i64| (100_000 - percent) as f64 / 1000.0;
        (free(load.cpu) * conf.cpu_weight as f64 + free(load.memory) * conf.memory_weight as f64)
            / weights as f64
            * conf.weight as f64
    }

    /// Which part of the roles that a pod wants near itself is on a node, in hundredths.
    fn bucket_score(&self, pod: PodId, node: NodeId) -> f64 {
        let (Some(job), Some(task)) = (self.job_of_pod(pod), self.task(pod)) else { return 0.0 };
        let row = &self.jobs[job];
        let near: Vec<&muster_model::Name> =
            row.model.affinity.together.iter().filter(|set| set.contains(&task.role)).flatten().collect();
        let here = row
            .tasks
            .iter()
            .filter(|p| self.st.pods.row(**p).spot.node == Some(node) && **p != pod)
            .filter(|p| self.task(**p).is_some_and(|t| near.contains(&&t.role)))
            .count();
        let apart = |set: &&Vec<muster_model::Name>| set.contains(&task.role);
        let away: Vec<&muster_model::Name> =
            row.model.affinity.apart.iter().filter(apart).flatten().collect();
        let against = row
            .tasks
            .iter()
            .filter(|p| self.st.pods.row(**p).spot.node == Some(node) && **p != pod)
            .filter(|p| self.task(**p).is_some_and(|t| away.contains(&&t.role)))
            .count();
        (here as f64 - against as f64) * 100.0 / (row.n_tasks.max(1) as f64)
    }
}

/// The resource that a Kubernetes name means.
pub fn resource_named(name: &str) -> Resource {
    match name {
        "cpu" => Resource::Cpu,
        "memory" => Resource::Memory,
        "pods" => Resource::Pods,
        name if name.ends_with("gpu") => Resource::Gpu,
        name => Resource::Other(name.into()),
    }
}

fn resource_name(resource: &Resource) -> String {
    match resource {
        Resource::Gpu => "nvidia.com/gpu".into(),
        other => other.to_string(),
    }
}

/// How full something would be, from 0 to 1, over the resources that have a weight; 0 if it would be too full in any.
pub fn packed(conf: &Packing, nodes: &Nodes, asked: &Res, used: impl Fn(usize) -> (i128, i128)) -> f64 {
    let mut sum = 0.0;
    let mut weights = 0;
    for dim in asked.names() {
        let weight = match dim {
            CPU_DIM => conf.cpu,
            MEMORY_DIM => conf.memory,
            dim => {
                let Some(resource) = nodes.dims.resolve(crate::ids::DimId::from_index(dim)) else { continue };
                match conf.others.iter().find(|(name, _)| resource_named(name) == *resource) {
                    Some((_, weight)) => *weight,
                    None => continue,
                }
            }
        };
        if weight == 0 {
            continue;
        }
        weights += weight;
        let (used, cap) = used(dim);
        let with = used + asked.get(dim);
        if cap == 0 {
            continue;
        }
        if with > cap {
            return 0.0;
        }
        sum += with as f64 * weight as f64 / cap as f64;
    }
    if weights > 0 { sum / weights as f64 } else { 0.0 }
}
