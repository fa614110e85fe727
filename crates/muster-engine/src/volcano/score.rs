//! Which of several nodes is best for a pod: the sum of the plugins' scores, on upstream's scale. Hot path: the benchmark of gang shapes
//! guards it.
//!
//! Scores are floats as upstream's are; they order nodes and are used for nothing else.

use super::Session;
use super::amounts::Res;
use crate::ids::{NodeId, PodId};
use crate::nodes::{CPU_DIM, GPU_DIM, MEMORY_DIM, Nodes, amount_of};
use crate::state::St;
use dense::Id;
use muster_model::volcano::{FitType, Hook, Load, Packing, PluginKind, Shadow, StrategyConf, Weights};
use muster_model::{Name, Resource, TaintEffect};

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
        if weights.image_locality != 0 && self.looks_at_images(pod) {
            add(weights.image_locality, &mut nodes.iter().map(|n| self.image_score(pod, *n)));
        }
        if weights.spread != 0 && self.st.company.likes_to_spread(row.guest) {
            add(weights.spread, &mut self.st.company.spread_scores(row.guest, nodes).into_iter());
        }
        sums
    }

    /// Counts the nodes that have each image, where anybody asks for that.
    pub fn count_images(&mut self) {
        let looks = |kind: &PluginKind| matches!(kind, PluginKind::NodeOrder(w) if w.image_locality != 0);
        if self.plugin(looks).is_none() {
            return;
        }
        for node in &self.nodes {
            let images = self.st.nodes.rows[*node].model.iter().flat_map(|model| model.images.keys());
            for image in images {
                *self.images.entry(image.clone()).or_default() += 1;
            }
        }
    }

    /// Whether any node has an image of the pod's.
    pub fn looks_at_images(&self, pod: PodId) -> bool {
        let images = self.task(pod).map_or(&[][..], |task| &task.images);
        !self.images.is_empty() && images.iter().any(|image| self.images.contains_key(image))
    }

    /// How much of what a pod's containers need has not to be fetched, in hundredths: what is on many nodes counts more, so that pods do not all go
    /// where an image is.
    fn image_score(&self, pod: PodId, node: NodeId) -> i64 {
        const LEAST: i64 = 23 << 20;
        const MOST_EACH: i64 = 1000 << 20;
        let (Some(task), Some(model)) = (self.task(pod), &self.st.nodes.rows[node].model) else { return 0 };
        let spread =
            |image: &Name| f64::from(*self.images.get(image).unwrap_or(&0)) / self.nodes.len() as f64;
        let here = task
            .images
            .iter()
            .filter_map(|image| Some((*model.images.get(image)? as f64 * spread(image)) as i64));
        let most = MOST_EACH.saturating_mul(task.images.len().max(1) as i64);
        let sum = here.fold(0_i64, i64::saturating_add).clamp(LEAST, most);
        100 * (sum - LEAST) / (most - LEAST)
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
        let own_weights = self.task(pod).and_then(|t| t.fit_weights.as_ref());
        for (dim, asked) in need.iter() {
            let dim = *dim as usize;
            let Some(resource) = self.st.nodes.dims.iter().find(|(id, _)| id.index() == dim).map(|(_, r)| r)
            else {
                continue;
            };
            let configured = strategy_of(conf, resource);
            // A pod that says how much each resource counts names all that count.
            let (fit, weight) = match (own_weights, configured) {
                (None, None) => continue,
                (None, Some(configured)) => configured,
                (Some(own), configured) => {
                    let Some((_, weight)) = own.iter().find(|(name, _)| resource_named(name) == *resource)
                    else {
                        continue;
                    };
                    (configured.map_or(FitType::LeastAllocated, |(fit, _)| fit), *weight)
                }
            };
            weights += weight;
            let cap = self.st.nodes.cap(node, dim);
            let used = cap - self.st.nodes.idle(node, dim) + asked;
            if cap == 0 {
                continue;
            }
            if used > cap {
                sum = 0.0;
                break;
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
        let shadow = self.shadow(&conf.shadow, node, load);
        let free = |percent: i64, shadow: f64| (100_000 - percent) as f64 / 1000.0 - 100.0 * shadow;
        (free(load.cpu, shadow[0]) * conf.cpu_weight as f64
            + free(load.memory, shadow[1]) * conf.memory_weight as f64)
            / weights as f64
            * conf.weight as f64
    }

    /// Which part of a node's CPU and memory the pods will use that were placed there since its load was measured; as much as is free at most.
    fn shadow(&self, conf: &Shadow, node: NodeId, load: Load) -> [f64; 2] {
        let here =
            |pod: &PodId| self.st.pods.row(*pod).spot.node == Some(node) && self.status(*pod).is_active();
        let lately = |pod: &PodId| self.status(*pod) == St::Binding;
        let before = &self.st.nodes.rows[node].pods;
        let now = self.placed.get(node).map_or(&[][..], Vec::as_slice);
        let new = || before.iter().filter(|p| lately(p)).chain(now).copied().filter(here);
        let dims = [(CPU_DIM, conf.modest_cpu, load.cpu), (MEMORY_DIM, conf.modest_memory, load.memory)];
        dims.map(|(dim, modest, percent)| {
            let cap = self.st.nodes.cap(node, dim);
            if cap <= 0 {
                return 0.0;
            }
            let expected = |pod: PodId| match self.is_best_effort(pod) {
                true => modest as f64,
                false => amount_of(self.need(pod), dim).unwrap_or(0) as f64 * conf.ratio as f64 / 1000.0,
            };
            // Load is in thousandths of a percent, the threshold in thousandths.
            let risk = if percent >= conf.risk_threshold * 100 { conf.risk_factor } else { 1000 };
            let sum: f64 = new().map(expected).sum::<f64>() * risk as f64 / 1000.0;
            (sum / cap as f64).min((100_000 - percent).max(0) as f64 / 100_000.0)
        })
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

/// What a strategy says of a resource: by its name, or by the longest beginning of it.
fn strategy_of(conf: &StrategyConf, resource: &Resource) -> Option<(FitType, i64)> {
    let by_name = conf.resources.iter().find(|(name, _)| resource_named(name) == *resource);
    let by_prefix = || {
        let full = resource_name(resource);
        let prefix = |name: &str| {
            name.strip_suffix('*').filter(|p| !p.is_empty() && full.starts_with(*p)).map(str::len)
        };
        let fitting = conf.resources.iter().filter_map(|given| Some((prefix(given.0)?, given)));
        fitting.max_by_key(|(length, _)| *length).map(|(_, given)| given)
    };
    by_name.or_else(by_prefix).map(|(_, given)| *given)
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
