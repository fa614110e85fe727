//! Hypernodes: sets of nodes that are near each other, in a tree with the whole cluster at its top.
//!
//! For a gang that must stay within a tier, the domains that could hold it come tier by tier, the nearest first ([`Session::gradient`]).

use super::Session;
use super::amounts::Res;
use super::score::packed;
use crate::ids::{NodeId, PodId};
use crate::state::{St, State};
use dense::{IdSet, IdVec};
use muster_model::Name;
use muster_model::volcano::{Hook, PluginKind, TopologyConf};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the topology that hypernodes make.
pub const HYPERNODES: &str = "hypernodes";
/// The name of the whole cluster as a hypernode.
pub const TOP: &str = "<cluster-top-hypernode>";

/// More tiers than this are not counted one by one.
const MOST_TIERS: i64 = 64;

/// The whole cluster is the last one.
pub struct Domains {
    pub rows: Vec<Domain>,
    top: usize,
    /// Tiers of the hypernodes that were given, lowest first.
    tiers: Vec<i64>,
    /// By node: the hypernodes that it is in, the lowest tier first.
    homes: IdVec<NodeId, Vec<u32>>,
}

pub struct Domain {
    pub name: Name,
    pub tier: i64,
    tier_name: Option<Name>,
    parent: Option<usize>,
    children: Vec<usize>,
    pub nodes: Arc<[NodeId]>,
    pub set: IdSet<NodeId>,
}

/// Why domains are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Place,
    Evict,
}

impl Domains {
    pub fn build(st: &State, nodes: &[NodeId]) -> Self {
        let model = st.topologies.model(HYPERNODES).cloned();
        let given = model.as_ref().map_or(&[][..], |m| &m.domains);
        let known: IdSet<NodeId> = nodes.iter().copied().collect();
        let mut rows: Vec<Domain> = given
            .iter()
            .enumerate()
            .map(|(i, domain)| {
                let mut nodes: Vec<NodeId> = domain
                    .nodes
                    .iter()
                    .filter_map(|name| st.nodes.get(name))
                    .filter(|n| known.contains(*n))
                    .collect();
                nodes.sort_by_key(|n| st.nodes.rows[*n].rank);
                Domain {
                    name: domain.name.clone(),
                    tier: domain.tier,
                    tier_name: domain.tier_name.clone(),
                    parent: domain.parent.map(|p| p as usize).filter(|p| *p < i),
                    children: Vec::new(),
                    set: nodes.iter().copied().collect(),
                    nodes: nodes.into(),
                }
            })
            .collect();
        let top = rows.len();
        let mut tiers: Vec<i64> = rows.iter().map(|d| d.tier).collect();
        tiers.sort_unstable();
        tiers.dedup();
        rows.push(Domain {
            name: TOP.into(),
            tier: tiers.last().map_or(1, |t| t.saturating_add(1)),
            tier_name: None,
            parent: None,
            children: Vec::new(),
            nodes: nodes.into(),
            set: known,
        });
        for row in rows.iter_mut().take(top) {
            row.parent.get_or_insert(top);
        }
        for i in 0..top {
            if let Some(parent) = rows[i].parent {
                rows[parent].children.push(i);
            }
        }
        let mut order: Vec<usize> = (0..top).collect();
        order.sort_by(|a, b| (rows[*a].tier, &rows[*a].name).cmp(&(rows[*b].tier, &rows[*b].name)));
        let mut homes: IdVec<NodeId, Vec<u32>> = IdVec::new();
        for at in order {
            for node in rows[at].nodes.iter() {
                homes.ensure(*node).push(at as u32);
            }
        }
        Self { rows, top, tiers, homes }
    }

    /// There are no hypernodes.
    pub fn is_flat(&self) -> bool {
        self.top == 0
    }

    pub fn top(&self) -> usize {
        self.top
    }

    pub fn top_tier(&self) -> i64 {
        self.rows[self.top].tier
    }

    pub fn named(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|d| &*d.name == name)
    }

    pub fn tier_named(&self, name: &str) -> Option<i64> {
        self.rows.iter().find(|d| d.tier_name.as_deref() == Some(name)).map(|d| d.tier)
    }

    /// The domain and those around it, from the inside out.
    fn upwards(&self, domain: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(domain), |d| self.rows[*d].parent)
    }

    /// The smallest domain around both.
    pub fn common(&self, a: usize, b: usize) -> usize {
        let around: Vec<usize> = self.upwards(a).collect();
        self.upwards(b).find(|d| around.contains(d)).unwrap_or(self.top)
    }

    /// The smallest domain of a node, by tier; the whole cluster is none.
    pub fn of_node(&self, node: NodeId) -> Option<usize> {
        self.around(node).next()
    }

    /// The hypernodes that a node is in, the lowest tier first.
    fn around(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        self.homes.get(node).into_iter().flatten().map(|d| *d as usize)
    }
}

impl Session<'_> {
    fn topology_conf(&self, hook: Hook) -> Option<&TopologyConf> {
        self.voters(hook).flatten().find_map(|kind| match kind {
            PluginKind::NetworkTopology(conf) => Some(&**conf),
            _ => None,
        })
    }

    /// The domains of jobs whose pods run somewhere: the smallest one around all of them.
    pub fn recover_domains(&mut self) {
        for job in 0..self.jobs.len() {
            if !self.is_hard(job) {
                continue;
            }
            let around = |this: &Self, pods: &[PodId]| {
                let nodes: Vec<NodeId> = pods
                    .iter()
                    .filter(|p| matches!(this.status(**p), St::Bound | St::Binding | St::Running))
                    .filter_map(|p| this.st.pods.row(*p).spot.node)
                    .collect();
                if nodes.is_empty() {
                    return None;
                }
                let holds = |d: &usize| nodes.iter().all(|n| this.domains.rows[*d].set.contains(*n));
                (0..=this.domains.top)
                    .filter(holds)
                    .min_by_key(|d| (this.domains.rows[*d].tier, this.domains.rows[*d].name.clone()))
            };
            let found = around(self, &self.jobs[job].tasks);
            let runs = found.is_some();
            if self.jobs[job].domain.is_none() || !runs {
                self.jobs[job].domain = found;
            }
            for sub in 0..self.jobs[job].subs.len() {
                let found = around(self, &self.jobs[job].subs[sub].tasks);
                self.jobs[job].subs[sub].domain = found;
            }
        }
    }

    /// The domains in which a job may be, by tier.
    pub fn gradient_for_job(&self, job: usize, within: usize, purpose: Purpose) -> Vec<Vec<usize>> {
        let row = &self.jobs[job];
        let (Some(_), Some(limit)) = (self.topology_conf(Hook::HyperNodeGradient), row.limit) else {
            return vec![vec![within]];
        };
        let least = row.model.min_resources.as_ref().map(|amounts| {
            let mut least = Res::default();
            for (resource, amount) in amounts.iter() {
                use dense::Id;
                if let Some(dim) = self.st.nodes.dims.get(resource) {
                    least.add(dim.index(), i128::from(amount));
                }
            }
            least
        });
        self.gradient(within, limit, row.domain, &least.unwrap_or_default(), purpose)
    }

    /// The domains in which a sub-group may be, by tier.
    pub fn gradient_for_sub(
        &self,
        job: usize,
        sub: usize,
        within: usize,
        purpose: Purpose,
    ) -> Vec<Vec<usize>> {
        let s = &self.jobs[job].subs[sub];
        let (Some(_), Some(limit), true) =
            (self.topology_conf(Hook::HyperNodeGradient), s.limit, self.has_policies(job))
        else {
            return vec![vec![within]];
        };
        let mut least = Res::default();
        for pod in s.tasks.iter().filter(|p| self.is_waiting(**p)) {
            least.add_need(self.need(*pod), 1);
        }
        self.gradient(within, limit, s.domain, &least, purpose)
    }

    fn gradient(
        &self,
        within: usize,
        limit: i64,
        allocated: Option<usize>,
        least: &Res,
        purpose: Purpose,
    ) -> Vec<Vec<usize>> {
        let domains = &self.domains;
        let root = match allocated {
            None => within,
            Some(allocated) => {
                let highest =
                    domains.upwards(allocated).take_while(|d| domains.rows[*d].tier <= limit).last();
                let Some(highest) = highest else { return Vec::new() };
                match domains.common(within, highest) {
                    common if common == highest => within,
                    common if common == within => highest,
                    _ => return Vec::new(),
                }
            }
        };
        let mut by_tier: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([root]);
        while let Some(at) = queue.pop_front() {
            let row = &domains.rows[at];
            let is_allocated = allocated == Some(at);
            if row.tier <= limit && (is_allocated || self.could_hold(at, least, purpose)) {
                by_tier.entry(row.tier).or_default().push(at);
            }
            queue.extend(row.children.iter().copied());
        }
        let mut rows: Vec<Vec<usize>> = by_tier.into_values().collect();
        for row in &mut rows {
            row.sort_by(|a, b| domains.rows[*a].name.cmp(&domains.rows[*b].name));
        }
        if purpose == Purpose::Evict {
            rows.reverse();
            let most = self.topology_conf(Hook::HyperNodeGradient).map_or(8, |c| c.most_domains);
            let mut left = most;
            for row in &mut rows {
                row.truncate(left);
                left -= row.len();
            }
            rows.retain(|row| !row.is_empty());
        }
        rows
    }

    fn could_hold(&self, domain: usize, least: &Res, purpose: Purpose) -> bool {
        let nodes = &self.domains.rows[domain].nodes;
        let sum = |what: &dyn Fn(NodeId, usize) -> i64, dim: usize| -> i128 {
            nodes.iter().map(|n| i128::from(what(*n, dim))).sum()
        };
        let table = &self.st.nodes;
        let fits =
            |what: &dyn Fn(NodeId, usize) -> i64| least.names().all(|dim| least.get(dim) <= sum(what, dim));
        match purpose {
            Purpose::Evict => fits(&|n, dim| table.cap(n, dim)),
            Purpose::Place => fits(&|n, dim| table.idle(n, dim)) || fits(&|n, dim| table.coming(n, dim)),
        }
    }

    /// What is used in a domain, promises included, and what it has. Those who are told to go still count.
    fn used_in(&self, domain: usize, dim: usize) -> (i128, i128) {
        let row = &self.domains.rows[domain];
        let mut used = 0;
        let mut cap = 0;
        for node in row.nodes.iter() {
            cap += i128::from(self.st.nodes.cap(*node, dim));
            used += i128::from(self.st.nodes.cap(*node, dim) - self.st.nodes.idle(*node, dim));
        }
        for pod in &self.st.promised {
            if self.st.pods.row(*pod).spot.node.is_some_and(|n| row.set.contains(n)) {
                used += i128::from(crate::nodes::amount_of(self.need(*pod), dim).unwrap_or(0));
            }
        }
        (used, cap)
    }

    /// How good domains are for a sub-group: full ones first, then those with more of its pods.
    pub fn score_domains(&self, job: usize, sub: usize, domains: &[usize]) -> Vec<f64> {
        let Some(conf) = self.topology_conf(Hook::HyperNodeOrder) else { return vec![0.0; domains.len()] };
        let tasks = &self.jobs[job].subs[sub].tasks;
        let mut asked = Res::default();
        for pod in tasks {
            asked.add_need(self.need(*pod), 1);
        }
        let mut scores: Vec<f64> = domains.iter().map(|d| self.pack_domain(conf, *d, &asked)).collect();
        self.break_ties(&mut scores, |i| self.part_in(tasks, domains[i]));
        scores.iter().map(|score| score * 100.0 * conf.weight as f64).collect()
    }

    fn pack_domain(&self, conf: &TopologyConf, domain: usize, asked: &Res) -> f64 {
        packed(&conf.packing, &self.st.nodes, asked, |dim| self.used_in(domain, dim))
    }

    /// Adds something to the best, where there are several of them.
    fn break_ties(&self, scores: &mut [f64], bonus: impl Fn(usize) -> f64) {
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let tied: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] == best).collect();
        if tied.len() > 1 {
            for i in tied {
                scores[i] += bonus(i);
            }
        }
    }

    /// Which part of some pods is in a domain.
    fn part_in(&self, tasks: &[PodId], domain: usize) -> f64 {
        if tasks.is_empty() {
            return 0.0;
        }
        let set = &self.domains.rows[domain].set;
        let there = |p: &&PodId| self.st.pods.row(**p).spot.node.is_some_and(|n| set.contains(n));
        tasks.iter().filter(there).count() as f64 / tasks.len() as f64
    }

    /// How near nodes are to where the pod's sub-group is; for pods without such a rule, how full the domains around them are.
    pub fn score_by_domains(
        &self,
        conf: &TopologyConf,
        pod: PodId,
        near: Option<usize>,
        nodes: &[NodeId],
    ) -> Vec<f64> {
        let scale = 100.0 * conf.weight as f64;
        let domains = &self.domains;
        let (Some(lowest), Some(highest)) = (domains.tiers.first(), domains.tiers.last()) else {
            return vec![0.0; nodes.len()];
        };
        let Some(job) = self.job_of_pod(pod) else { return vec![0.0; nodes.len()] };
        let sub = self.sub_of(job, pod);
        if sub.is_some_and(|s| self.jobs[job].subs[s].has_topology) {
            let Some(near) = near else { return vec![0.0; nodes.len()] };
            let homes: Vec<Option<usize>> = nodes.iter().map(|n| domains.of_node(*n)).collect();
            let highest = domains.top_tier();
            let mut scores: Vec<f64> = homes
                .iter()
                .map(|home| match home {
                    None => 0.0,
                    Some(home) if *home == near => 1.0,
                    Some(home) => {
                        let tier = domains.rows[domains.common(*home, near)].tier;
                        let span = highest.saturating_sub(*lowest);
                        if span == 0 { 1.0 } else { highest.saturating_sub(tier) as f64 / span as f64 }
                    }
                })
                .collect();
            let tasks = sub.map_or(&[][..], |s| &self.jobs[job].subs[s].tasks);
            self.break_ties(&mut scores, |i| homes[i].map_or(0.0, |home| self.part_in(tasks, home)));
            return scores.iter().map(|s| s * scale).collect();
        }
        let Some(fading) = conf.normal_pods else { return vec![0.0; nodes.len()] };
        let asked = Res::of_need(self.need(pod));
        let fading = fading as f64 / 1000.0;
        // Nobody has more tiers than this, and tiers that nobody has would be counted one by one.
        // The whole cluster is the last of them.
        let highest = highest.saturating_add(1).min(lowest.saturating_add(MOST_TIERS));
        let tiers: Vec<(i64, f64)> =
            (*lowest..=highest).map(|tier| (tier, fading.powi((tier - 1).clamp(0, 64) as i32))).collect();
        let all: f64 = tiers.iter().map(|(_, weight)| weight).sum();
        if all <= 0.0 {
            return vec![0.0; nodes.len()];
        }
        let mut known: BTreeMap<usize, f64> = BTreeMap::new();
        let mut scores = Vec::with_capacity(nodes.len());
        for node in nodes {
            let mut sum = 0.0;
            for (tier, weight) in &tiers {
                let home = domains.around(*node).find(|d| domains.rows[*d].tier == *tier);
                let home = home.or((*tier == domains.top_tier()).then_some(domains.top()));
                let full = home
                    .map_or(1.0, |d| *known.entry(d).or_insert_with(|| self.pack_domain(conf, d, &asked)));
                sum += weight * full;
            }
            scores.push(sum / all * scale);
        }
        scores
    }

    pub fn sub_of(&self, job: usize, pod: PodId) -> Option<usize> {
        let leaf = self.st.pods.row(pod).leaf as usize;
        self.jobs[job].subs.iter().position(|s| s.leaves.contains(&leaf))
    }
}
