//! Placement: a node for a pod, places for a gang. Hot path: `cargo xtask bench engine` guards it.
//!
//! In: pods to place, and the area where they may go. Out: moves on the record, or none and the reason. A pod goes to the node with the
//! highest score; equal scores go by name. Most pods need no score to be computed: their order of nodes is kept in an index, and the
//! first one that fits is it.

use crate::classes::{Class, Classes};
use crate::ids::{ClassId, GangId, NodeId, PodId};
use crate::links;
use crate::nodes::{CPU_DIM, FreeIndex, GPU_DIM, Need, Nodes, PODS_DIM, amount_of};
use crate::numa::{self, Ask, Take};
use crate::queues::Trio;
use crate::state::{Extra, Spot, St, State};
use crate::topology::{Area, Load};
use muster_model::{GPU, GpuOrder, GpuShare, Name, NodeReason, Reason, Resource, ShareSize, Strategy};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::Arc;

/// Whether pods may be bound, or only promised what is being released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Allocate,
    PromiseOnly,
}

/// Why a gang was not placed. What takes long to compute is left to [`crate::explain`].
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Of the queue or the topology.
    Known(Reason),
    /// No node for this pod; so many of the gang had one.
    NoNode { pod: PodId, placed: u32 },
}

/// How a pod fits on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Soon,
    Now,
}

/// Scores, in millionths of a point; each kind outweighs the next.
const POINT: i128 = 1_000_000;
const NOMINATED: i128 = 10_000_000 * POINT;
const COMPANY: i128 = 1_000_000 * POINT;
const DOMAIN: i128 = 100_000 * POINT;
const SHARED_GPU: i128 = 10_000 * POINT;
const AVAILABLE: i128 = 1_000 * POINT;
const NUMA: i128 = 100 * POINT;
const CPU_NODE: i128 = 10 * POINT;
const PACKED: i128 = 9 * POINT;

/// Areas up to this size are searched node by node; larger ones through the index.
const SMALL_AREA: usize = 512;

impl State {
    /// What the pods of a gang would cost its queue too much, if anything: a limit on the way up, or for work that cannot be preempted a quota.
    pub fn over_capacity(&self, gang: GangId, pods: &[PodId]) -> Option<Reason> {
        if !self.policy.quotas {
            return None;
        }
        let row = &self.gangs.rows[gang];
        let queue = row.queue?;
        // Shares in memory count as on the largest GPU here; the nodes that are chosen have the last word.
        let asked = pods.iter().fold([0; 3], |sum: Trio, p| {
            crate::queues::plus(&sum, &self.charge(self.pods.row(*p).class, self.gpu_memory.1))
        });
        self.queues
            .over_limit(queue, &asked)
            .or_else(|| if row.preemptible() { None } else { self.queues.over_quota(queue, &asked) })
    }

    /// Places these pods of a gang, all or none.
    pub fn place(&mut self, gang: GangId, pods: &[PodId], mode: Mode) -> Result<(), Failure> {
        if let Some(reason) = self.over_capacity(gang, pods) {
            return Err(Failure::Known(reason));
        }
        let mark = self.mark();
        let mut placed = 0;
        let mut outcome = self.place_group(gang, 0, pods, &Area::default(), mode, &mut placed);
        if outcome.is_ok()
            && let Some(reason) = self.over_capacity_as_placed(gang, pods)
        {
            outcome = Err(Failure::Known(reason));
        }
        if outcome.is_err() {
            self.rewind(&mark);
        }
        self.log.commit(mark);
        outcome
    }

    /// The same question once the pods have their nodes, where shares in memory may have come out dearer than on the largest GPU.
    fn over_capacity_as_placed(&self, gang: GangId, pods: &[PodId]) -> Option<Reason> {
        let by_memory = |p: &PodId| {
            let share = self.classes.rows[self.pods.row(*p).class].share;
            share.is_some_and(|share| matches!(share.size, ShareSize::Memory(_)))
        };
        if !self.policy.quotas || !pods.iter().any(by_memory) {
            return None;
        }
        let row = &self.gangs.rows[gang];
        let queue = row.queue?;
        let placed = pods.iter().fold([0; 3], |sum: Trio, p| {
            let pod = self.pods.row(*p);
            let memory = pod.spot.node.and_then(|n| self.nodes.gpu_memory(n));
            crate::queues::plus(&sum, &self.charge(pod.class, memory))
        });
        self.queues
            .exceeds_limit(queue, &placed)
            .or_else(|| if row.preemptible() { None } else { self.queues.exceeds_quota(queue, &placed) })
    }

    fn place_group(
        &mut self,
        gang: GangId,
        group: usize,
        pods: &[PodId],
        within: &Area,
        mode: Mode,
        placed: &mut u32,
    ) -> Result<(), Failure> {
        let Some(rule) =
            self.gangs.rows[gang].model.as_ref().and_then(|m| m.groups.get(group)?.topology.clone())
        else {
            return self.place_inside(gang, group, pods, within, mode, placed);
        };
        // The best area nearly always does; the others are looked for when it does not.
        let mut areas = self.areas(gang, group, &rule, pods, within, true).map_err(Failure::Known)?;
        let mark = self.mark();
        let before = *placed;
        let mut outcome = Err(Failure::NoNode { pod: pods[0], placed: before });
        let mut best = before;
        let mut next = 0;
        while let Some(area) = areas.get(next).cloned() {
            next += 1;
            *placed = before;
            outcome = self.place_inside(gang, group, pods, &area, mode, placed);
            if outcome.is_ok() {
                break;
            }
            best = best.max(*placed);
            self.rewind(&mark);
            if next == 1 {
                areas = self.areas(gang, group, &rule, pods, within, false).unwrap_or_default();
            }
        }
        self.log.commit(mark);
        if outcome.is_err() {
            *placed = best;
        }
        outcome
    }

    fn areas(
        &mut self,
        gang: GangId,
        group: usize,
        rule: &muster_model::TopologyRule,
        pods: &[PodId],
        within: &Area,
        only_best: bool,
    ) -> Result<Vec<Area>, Reason> {
        let active = self.active_nodes(gang, group);
        let load: Vec<(ClassId, Need, i64)> = self
            .classes_of(pods)
            .into_iter()
            .map(|(class, n)| (class, self.classes.rows[class].need.clone(), n))
            .collect();
        for (class, _, _) in &load {
            self.classes.settle(self.classes.rows[*class].rule, &self.nodes);
        }
        // Not only as many as are asked for: the counts are kept, and the next group may ask for more.
        let classes = &self.classes;
        let count =
            |nodes: &Nodes, class: ClassId, node: NodeId| count_soon(classes, nodes, class, node, 1 << 40);
        let result = self.topologies.areas(
            &self.nodes,
            rule,
            &Load { classes: &load, count: &count },
            within,
            &active,
            only_best,
        );
        result.map_err(|reason| match reason {
            Reason::NoDomain { topology, level, domains, best, best_fits, need, .. } => Reason::NoDomain {
                group: self.group_name(gang, group),
                topology,
                level,
                domains,
                best,
                best_fits,
                need,
            },
            other => other,
        })
    }

    pub fn group_name(&self, gang: GangId, group: usize) -> Name {
        let model = self.gangs.rows[gang].model.as_ref();
        model.and_then(|m| Some(m.groups.get(group)?.name.clone())).unwrap_or_else(|| Name::from(""))
    }

    /// Nodes of the group's pods that keep their place.
    fn active_nodes(&self, gang: GangId, group: usize) -> Vec<NodeId> {
        let row = &self.gangs.rows[gang];
        let g = &row.groups[group];
        let mut nodes: Vec<NodeId> = g
            .pods
            .iter()
            .filter(|p| self.pods.row(**p).spot.st.is_active())
            .filter_map(|p| self.pods.row(*p).spot.node)
            .collect();
        for child in &g.children {
            nodes.extend(self.active_nodes(gang, *child));
        }
        nodes
    }

    fn place_inside(
        &mut self,
        gang: GangId,
        group: usize,
        pods: &[PodId],
        area: &Area,
        mode: Mode,
        placed: &mut u32,
    ) -> Result<(), Failure> {
        let row = &self.gangs.rows[gang];
        if row.groups[group].is_leaf() {
            for pod in pods {
                if !self.place_pod(*pod, area, mode) {
                    return Err(Failure::NoNode { pod: *pod, placed: *placed });
                }
                *placed += 1;
            }
            return Ok(());
        }
        // Children in the order in which their first pod comes.
        let mut parts: Vec<(usize, Vec<PodId>)> = Vec::new();
        for pod in pods {
            let child = self.child_towards(gang, group, self.pods.row(*pod).leaf as usize);
            match parts.iter_mut().find(|(c, _)| *c == child) {
                Some((_, part)) => part.push(*pod),
                None => parts.push((child, vec![*pod])),
            }
        }
        for (child, part) in parts {
            self.place_group(gang, child, &part, area, mode, placed)?;
        }
        Ok(())
    }

    /// The child of a group on the way to a leaf.
    fn child_towards(&self, gang: GangId, group: usize, leaf: usize) -> usize {
        let groups = &self.gangs.rows[gang].groups;
        let mut at = leaf;
        while let Some(parent) = groups[at].parent.filter(|p| *p != group) {
            at = parent;
        }
        at
    }

    fn place_pod(&mut self, pod: PodId, area: &Area, mode: Mode) -> bool {
        let class = self.pods.row(pod).class;
        let rule = self.classes.rows[class].rule;
        self.classes.settle(rule, &self.nodes);
        let Some((node, fit)) = self.best_node(pod, area) else { return false };
        let now = fit == Fit::Now && mode == Mode::Allocate && self.has_company_now(pod, node, &[]);
        let Some((now, extra)) = self.take_devices(pod, node, now) else { return false };
        let st = if now { St::Allocated } else { St::Pipelined };
        let row = self.pods.row(pod);
        // A victim that finds its own place again was never evicted, and a place that was given in this cycle is not taken back.
        let former = match &row.decided {
            Some(decided) if row.committed && row.spot.on_trial => Some(decided),
            _ => (row.spot.st == St::Releasing).then_some(&row.origin),
        };
        let again = |former: &&Spot| {
            former.node == Some(node) && same_place(former.extra.as_deref(), extra.as_deref())
        };
        let spot = match former.filter(again) {
            Some(former) => former.clone(),
            None => Spot { st, on_trial: false, node: Some(node), extra },
        };
        self.move_pod(pod, spot);
        true
    }

    /// Whether the company that a pod requires is there, and not only promised to come, nor among those who may yet be taken back.
    pub fn has_company_now(&mut self, pod: PodId, node: NodeId, unsure: &[PodId]) -> bool {
        let row = self.pods.row(pod);
        let is_sure = self.promised.is_empty() && unsure.is_empty();
        if is_sure || self.classes.rows[row.class].shape.pods.affinity.is_empty() {
            return true;
        }
        let guest = row.guest;
        let coming: Vec<_> = self
            .promised
            .iter()
            .chain(unsure)
            .filter_map(|p| {
                let row = self.pods.row(*p);
                Some((row.guest, row.spot.node?))
            })
            .collect();
        for (other, at) in &coming {
            self.company.remove(*other, *at);
        }
        let there = self.company.filter(guest, node) != Err(NodeReason::PodAffinity);
        for (other, at) in &coming {
            self.company.add(*other, *at);
        }
        there
    }

    /// Whether a pod may be on a node now, while those who were moved in this cycle are still where they were: a trial takes them for gone.
    pub fn bears_who_leaves(&mut self, pod: PodId, node: NodeId) -> bool {
        let moved: Vec<_> = self
            .promised
            .iter()
            .filter_map(|p| {
                let row = self.pods.row(*p);
                Some((row.guest, row.origin.node?))
            })
            .collect();
        if moved.is_empty() {
            return true;
        }
        let row = self.pods.row(pod);
        let (guest, class) = (row.guest, &self.classes.rows[row.class]);
        let exclusive = class.has_ports || class.has_attachments || class.has_claims || self.policy.numa;
        if exclusive && moved.iter().any(|(_, at)| *at == node) {
            return false;
        }
        if self.company.is_silent(guest) {
            return true;
        }
        for (other, at) in &moved {
            self.company.add(*other, *at);
        }
        let bears = self.company.filter(guest, node).is_ok();
        for (other, at) in &moved {
            self.company.remove(*other, *at);
        }
        bears
    }

    /// The best node of an area for a pod, and whether it fits there now.
    fn best_node(&mut self, pod: PodId, area: &Area) -> Option<(NodeId, Fit)> {
        let row = self.pods.row(pod);
        let class = &self.classes.rows[row.class];
        let by_order = class.share.is_none()
            && !class.has_claims
            && row.model.nominated.is_none()
            && area.bonus.is_none()
            && self.company.is_indifferent(row.guest)
            && !self.policy.numa;
        match &area.members {
            Some(members) if members.list.len() <= SMALL_AREA || !by_order => {
                self.best_by_score(pod, &members.list, area)
            }
            None if !by_order => {
                let all: Vec<NodeId> = self.classes.allowed(class.rule)?.iter().collect();
                self.best_by_score(pod, &all, area)
            }
            _ => self.best_by_order(pod, area),
        }
    }

    fn best_by_order(&mut self, pod: PodId, area: &Area) -> Option<(NodeId, Fit)> {
        let class = self.pods.row(pod).class;
        if self.classes.rows[class].cpu_only {
            self.refresh_cpu_indexes();
        } else {
            self.refresh_gpu_indexes();
        }
        let class = &self.classes.rows[class];
        let allowed = self.classes.allowed(class.rule)?;
        let members = area.members.as_deref();
        let indexes: SmallVec<[(&FreeIndex, i64); 2]> = if class.cpu_only {
            let from = least_key(self.policy.cpu_strategy, &class.need, CPU_DIM);
            SmallVec::from_slice(&[(&self.by_cpu, from), (&self.by_cpu_with_gpus, from)])
        } else {
            SmallVec::from_slice(&[(&self.by_gpu, least_key(self.policy.gpu_strategy, &class.need, GPU_DIM))])
        };
        let inside = |node: &NodeId| allowed.contains(*node) && members.is_none_or(|m| m.set.contains(*node));
        if !class.cpu_only && amount_of(&class.need, GPU_DIM).is_some() {
            // What is there now comes first, whatever is coming elsewhere.
            let from = indexes[0].1;
            let now = self.by_idle_gpu.from(from).filter(inside);
            if let Some(node) = now.into_iter().find(|n| self.fit(pod, class, *n) == Some(Fit::Now)) {
                return Some((node, Fit::Now));
            }
            let soon =
                self.by_gpu.from(from).filter(inside).find_map(|n| Some((n, self.fit(pod, class, n)?)));
            return soon;
        }
        let mut soon = None;
        for (index, from) in indexes {
            for node in index.from(from).filter(inside) {
                match self.fit(pod, class, node) {
                    Some(Fit::Now) => return Some((node, Fit::Now)),
                    Some(Fit::Soon) if soon.is_none() => soon = Some((node, Fit::Soon)),
                    _ => {}
                }
            }
        }
        soon
    }

    fn refresh_gpu_indexes(&mut self) {
        let strategy = self.policy.gpu_strategy;
        self.by_gpu.refresh(&self.nodes, |nodes, id| gpu_key(nodes, id, strategy));
        self.by_idle_gpu.refresh(&self.nodes, |nodes, id| idle_gpu_key(nodes, id, strategy));
    }

    fn refresh_cpu_indexes(&mut self) {
        let strategy = self.policy.cpu_strategy;
        self.by_cpu.refresh(&self.nodes, |nodes, id| cpu_key(nodes, id, strategy, false));
        self.by_cpu_with_gpus.refresh(&self.nodes, |nodes, id| cpu_key(nodes, id, strategy, true));
    }

    /// Builds the orders of nodes anew, or reads what changed, and lets the journal be cleared.
    pub fn settle_indexes(&mut self, ranks_changed: bool) {
        if ranks_changed || !self.by_gpu.is_built() {
            let (gpu, cpu) = (self.policy.gpu_strategy, self.policy.cpu_strategy);
            self.by_gpu.build(&self.nodes, |nodes, id| gpu_key(nodes, id, gpu));
            self.by_idle_gpu.build(&self.nodes, |nodes, id| idle_gpu_key(nodes, id, gpu));
            self.by_cpu.build(&self.nodes, |nodes, id| cpu_key(nodes, id, cpu, false));
            self.by_cpu_with_gpus.build(&self.nodes, |nodes, id| cpu_key(nodes, id, cpu, true));
        } else {
            self.refresh_gpu_indexes();
            self.refresh_cpu_indexes();
        }
        self.nodes.journal.clear();
        self.by_gpu.rewind();
        self.by_idle_gpu.rewind();
        self.by_cpu.rewind();
        self.by_cpu_with_gpus.rewind();
        self.topologies.forget_fits();
    }

    fn best_by_score(&self, pod: PodId, nodes: &[NodeId], area: &Area) -> Option<(NodeId, Fit)> {
        let row = self.pods.row(pod);
        let class = &self.classes.rows[row.class];
        let allowed = self.classes.allowed(class.rule)?;
        let fitting: Vec<(NodeId, Fit)> = nodes
            .iter()
            .filter(|n| allowed.contains(**n))
            .filter_map(|n| Some((*n, self.fit(pod, class, *n)?)))
            .collect();
        let strategy = if class.cpu_only { self.policy.cpu_strategy } else { self.policy.gpu_strategy };
        let left = |n: NodeId| {
            if class.cpu_only { self.nodes.coming(n, CPU_DIM) } else { self.nodes.gpus_left(n) }
        };
        let (least, most) = fitting.iter().fold((i64::MAX, i64::MIN), |(lo, hi), (n, _)| {
            let left = left(*n);
            (lo.min(left), hi.max(left))
        });
        let score = |(n, fit): (NodeId, Fit)| {
            let bonus = area.bonus.as_ref().and_then(|b| b.get(&n)).copied().unwrap_or(0);
            self.score(pod, class, n, fit)
                + i128::from(bonus) * DOMAIN
                + placed_score(strategy, left(n), least, most, &self.nodes, n, class)
        };
        let rank = |n: NodeId| self.nodes.rows[n].rank;
        fitting
            .into_iter()
            .map(|(n, fit)| (score((n, fit)), Reverse(rank(n)), n, fit))
            .max_by_key(|(score, rank, _, _)| (*score, *rank))
            .map(|(_, _, n, fit)| (n, fit))
    }

    /// All scores but that of the strategy, which depends on the other candidates.
    fn score(&self, pod: PodId, class: &Class, node: NodeId, fit: Fit) -> i128 {
        let row = self.pods.row(pod);
        let mut score = 0;
        if row.model.nominated.as_ref().is_some_and(|n| *n == self.nodes.rows[node].name) {
            score += NOMINATED;
        }
        if !self.company.is_indifferent(row.guest) {
            score += i128::from(self.company.score(row.guest, node)) * COMPANY;
        }
        if let Some(share) = class.share
            && self.policy.prefer_shared_gpus
        {
            let size = self.nodes.gpu_size(node);
            let amount = Classes::share_amount(share, size);
            let spare = self.nodes.coming(node, GPU_DIM) >= GPU;
            let shared = &self.nodes.rows[node].shared;
            if shared.iter().any(|g| (spare || g.counts_apart()) && g.left_soon(size) >= amount) {
                score += SHARED_GPU;
            }
        }
        if fit == Fit::Now {
            score += AVAILABLE;
        }
        if self.policy.numa {
            let span = self.numa_place(class, node).map_or(0, |placed| placed.span);
            score += i128::from(numa::score(span, 100)) * NUMA / 100;
        }
        if class.cpu_only && !self.nodes.has_gpus(node) {
            score += CPU_NODE;
        }
        score
    }

    fn numa_place(&self, class: &Class, node: NodeId) -> Option<numa::Placed> {
        match &self.nodes.rows[node].zones {
            None => Some(numa::Placed { takes: Vec::new(), span: 1 }),
            Some(zones) => numa::place(
                zones,
                &Ask {
                    pinned: class.shape.pinned,
                    pod: &class.by_dim,
                    containers: &class.containers_by_dim,
                    init: &[],
                },
            )
            .ok(),
        }
    }

    /// Whether a pod fits on a node that its rule allows.
    fn fit(&self, pod: PodId, class: &Class, node: NodeId) -> Option<Fit> {
        if !self.nodes.fits_soon(node, &class.need) {
            return None;
        }
        let mut fit = if self.nodes.fits_now(node, &class.need) { Fit::Now } else { Fit::Soon };
        if let Some(share) = class.share {
            fit = fit.min(self.share_fit(node, share)?);
        }
        if self.refused(pod, class, node).is_some() {
            return None;
        }
        Some(fit)
    }

    /// What stands against a pod on a node besides amounts.
    pub fn refused(&self, pod: PodId, class: &Class, node: NodeId) -> Option<NodeReason> {
        let row = self.pods.row(pod);
        if !self.company.is_silent(row.guest)
            && let Err(reason) = self.company.filter(row.guest, node)
        {
            return Some(reason);
        }
        if class.asks_mig && self.nodes.rows[node].n_legacy_mig > 0 {
            return Some(NodeReason::MigMode);
        }
        if (class.has_ports || class.has_attachments)
            && let Some(reason) = self.exclusive_refused(class, node)
        {
            return Some(reason);
        }
        if self.policy.numa && self.numa_place(class, node).is_none() {
            return Some(NodeReason::Numa);
        }
        if let Some(share) = class.share
            && self.policy.quotas
            && matches!(share.size, ShareSize::Memory(_))
            && self.over_capacity_on(row.gang, row.class, node)
        {
            return Some(NodeReason::GpuShare);
        }
        if class.has_claims && self.claims_fit(pod, node).is_none() {
            return Some(NodeReason::Device);
        }
        None
    }

    /// A share in memory costs what it is worth on this node.
    fn over_capacity_on(&self, gang: Option<GangId>, class: ClassId, node: NodeId) -> bool {
        let Some(gang) = gang else { return false };
        let row = &self.gangs.rows[gang];
        let Some(queue) = row.queue else { return false };
        let charge = self.charge(class, self.nodes.gpu_memory(node));
        self.queues.over_limit(queue, &charge).is_some()
            || (!row.preemptible() && self.queues.over_quota(queue, &charge).is_some())
    }

    pub fn exclusive_refused(&self, class: &Class, node: NodeId) -> Option<NodeReason> {
        let row = &self.nodes.rows[node];
        let here = || row.exclusive.iter().map(|c| &self.classes.rows[*c].shape);
        let clash = |port: &muster_model::HostPort| here().any(|s| s.ports.iter().any(|p| p.clashes(port)));
        if class.shape.ports.iter().any(clash) {
            return Some(NodeReason::HostPort);
        }
        if class.shape.volumes.iter().any(|v| v.one_pod && self.volume_users.contains_key(&v.claim)) {
            return Some(NodeReason::Volume);
        }
        for (driver, limit) in row.model.as_ref().map(|m| &m.attach_limits)?.iter() {
            let mut claims: Vec<&muster_model::Key> = here()
                .chain(std::iter::once(&class.shape))
                .flat_map(|s| s.volumes.iter())
                .filter(|v| v.driver.as_ref() == Some(driver))
                .map(|v| &v.claim)
                .collect();
            claims.sort_unstable();
            claims.dedup();
            if claims.len() > *limit as usize {
                return Some(NodeReason::AttachLimit);
            }
        }
        None
    }

    /// Whether the node has enough GPUs with a share of this size free.
    fn share_fit(&self, node: NodeId, share: GpuShare) -> Option<Fit> {
        let size = self.nodes.gpu_size(node);
        let amount = Classes::share_amount(share, size);
        if amount > size {
            return None;
        }
        let shared = &self.nodes.rows[node].shared;
        let wanted = i64::from(share.devices.max(1));
        // GPUs that are released wholly are among those that are coming.
        let soon = shared.iter().filter(|g| g.counts_apart() && g.left_soon(size) >= amount).count() as i64;
        let whole = self.nodes.coming(node, GPU_DIM).max(0) / GPU;
        if soon + whole < wanted {
            return None;
        }
        // Every GPU that is opened is held by a reservation pod, which needs a place beside the pod itself.
        let by_id = shared.iter().filter(|g| !g.counts_apart()).count() as i64;
        let fresh = (whole - by_id).max(0);
        let opened = match self.policy.gpu_order {
            Some(GpuOrder::Spread) => fresh.min(wanted),
            _ => (wanted - soon - by_id.min(whole)).clamp(0, wanted),
        };
        if self.nodes.coming(node, PODS_DIM) <= opened {
            return None;
        }
        // One that is only promised becomes one in use with an idle GPU, and those are counted below.
        let free_now = |g: &&crate::shares::SharedGpu| {
            g.holders > 0 && g.left_now(size).min(g.left_soon(size)) >= amount
        };
        let now = shared.iter().filter(free_now).count() as i64;
        Some(if now + self.nodes.idle(node, GPU_DIM).max(0) / GPU >= wanted { Fit::Now } else { Fit::Soon })
    }

    pub fn share_is_refused(&self, node: NodeId, share: GpuShare) -> bool {
        self.share_fit(node, share).is_none()
    }

    /// Picks devices for a pod on its node: shared GPUs, whole GPUs by their links, NUMA zones, claimed devices. Says whether all of it is
    /// there now.
    pub fn take_devices(
        &mut self,
        pod: PodId,
        node: NodeId,
        now: bool,
    ) -> Option<(bool, Option<Arc<Extra>>)> {
        let row = self.pods.row(pod);
        let class = &self.classes.rows[row.class];
        let mut extra = Extra::default();
        let mut now = now;
        if let Some(share) = class.share {
            let (groups, all_now) = self.choose_shared(pod, node, share)?;
            now &= all_now;
            extra.gpu_groups = groups;
        } else if let Some(links) = self.nodes.rows[node].model.as_ref().and_then(|m| m.gpus.links.as_ref()) {
            let wanted = amount_of(&class.need, GPU_DIM).unwrap_or(0) / GPU;
            if wanted > 0 && now {
                extra.gpus =
                    links::choose(links, self.nodes.rows[node].free_gpus, wanted as u32).unwrap_or(0);
            }
        }
        if self.policy.numa {
            let takes: Vec<Take> = self.numa_place(class, node)?.takes;
            extra.zones = takes;
        }
        if class.has_claims {
            extra.devices = self.claims_fit(pod, node)?;
        }
        let extra = (extra != Extra::default()).then(|| Arc::new(extra));
        Some((now, extra))
    }

    fn choose_shared(
        &self,
        pod: PodId,
        node: NodeId,
        share: GpuShare,
    ) -> Option<(SmallVec<[Name; 1]>, bool)> {
        let size = self.nodes.gpu_size(node);
        let amount = Classes::share_amount(share, size);
        let shared = &self.nodes.rows[node].shared;
        // GPUs in use, and whole ones: (how much of it is used, its id, whether it takes a whole GPU from those idle or coming, whether its
        // room is there now; if that is unknown, it takes an idle GPU).
        let mut choices: Vec<(i64, Option<&Name>, bool, Option<bool>)> = shared
            .iter()
            .filter(|g| g.left_soon(size) >= amount)
            .map(|g| {
                let now = (g.holders > 0).then(|| g.left_now(size) >= amount);
                (size - g.left_soon(size), Some(&g.id), !g.counts_apart(), now)
            })
            .collect();
        let mut idle = self.nodes.idle(node, GPU_DIM).max(0) / GPU;
        let mut whole = self.nodes.coming(node, GPU_DIM).max(0) / GPU;
        // GPUs that are released wholly are offered by their id already.
        let by_id = shared.iter().filter(|g| !g.counts_apart()).count() as i64;
        choices.extend((0..(whole - by_id).clamp(0, 64)).map(|_| (0, None, true, None)));
        match self.policy.gpu_order {
            Some(GpuOrder::Pack) => {
                choices.sort_by(|a, b| {
                    b.0.cmp(&a.0).then(a.1.is_none().cmp(&b.1.is_none())).then(a.1.cmp(&b.1))
                });
            }
            Some(GpuOrder::Spread) => {
                choices.sort_by(|a, b| {
                    a.0.cmp(&b.0).then(a.1.is_some().cmp(&b.1.is_some())).then(a.1.cmp(&b.1))
                });
            }
            None => choices.sort_by(|a, b| a.1.is_none().cmp(&b.1.is_none()).then(a.1.cmp(&b.1))),
        }
        let wanted = share.devices.max(1) as usize;
        let uid = &self.pods.row(pod).model.uid;
        let here = digest(&self.nodes.rows[node].name);
        let mut opened = 0;
        let mut number = 0;
        let mut all_now = true;
        let mut groups: SmallVec<[Name; 1]> = SmallVec::new();
        for (_, id, takes_whole, now) in choices {
            if groups.len() == wanted {
                break;
            }
            if takes_whole {
                if whole == 0 {
                    continue;
                }
                whole -= 1;
            }
            all_now &= now.unwrap_or_else(|| {
                idle -= 1;
                idle >= 0
            });
            groups.push(match id {
                Some(id) => id.clone(),
                None => {
                    opened += 1;
                    // Unique by the pod that opens the GPU and its node; one that it opened before, here or where it was to run then, may still
                    // be in use by others.
                    loop {
                        number += 1;
                        let id = Name::from(format!("{uid}-{here:08x}-{number}"));
                        if !shared.iter().any(|g| g.id == id) {
                            break id;
                        }
                    }
                }
            });
        }
        if groups.len() < wanted {
            return None;
        }
        // Every GPU that is opened is held by a reservation pod, which needs a place too.
        let places = self.nodes.coming(node, PODS_DIM);
        (places > opened).then_some((groups, all_now))
    }
}

/// A short number for a name, the same in every process (FNV-1a).
fn digest(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Whether two places on one node are the same. Which whole GPUs they are is left out: a promise does not say.
fn same_place(a: Option<&Extra>, b: Option<&Extra>) -> bool {
    let key = |e: Option<&Extra>| {
        e.map(|e| {
            let mut groups: Vec<Name> = e.gpu_groups.to_vec();
            groups.sort();
            (groups, e.zones.clone(), e.devices.clone())
        })
        .unwrap_or_default()
    };
    key(a) == key(b)
}

/// How many pods of a class fit on a node by amounts, in what is idle or coming.
pub fn count_soon(classes: &Classes, nodes: &Nodes, class: ClassId, node: NodeId, most: i64) -> i64 {
    let row = &classes.rows[class];
    if !classes.allowed(row.rule).is_some_and(|set| set.contains(node)) {
        return 0;
    }
    let mut n = nodes.count_soon(node, &row.need, most);
    if let Some(share) = row.share {
        let size = nodes.gpu_size(node);
        let amount = Classes::share_amount(share, size).max(1);
        let shared = &nodes.rows[node].shared;
        let in_use: i64 =
            shared.iter().filter(|g| g.counts_apart()).map(|g| g.left_soon(size).max(0) / amount).sum();
        let whole = nodes.coming(node, GPU_DIM).max(0) / GPU;
        let parts = in_use.saturating_add(whole.saturating_mul(size / amount));
        n = n.min(parts / i64::from(share.devices.max(1)));
    }
    n
}

/// Where the index of nodes by GPUs puts a node: what a strategy likes comes first.
fn gpu_key(nodes: &Nodes, id: NodeId, strategy: Option<Strategy>) -> Option<i64> {
    nodes.rows[id].model.as_ref()?;
    Some(match strategy {
        None => 0,
        Some(Strategy::Binpack) => nodes.gpus_left(id),
        Some(Strategy::Spread) => -ratio(nodes.gpus_left(id), nodes.cap(id, GPU_DIM)),
    })
}

fn idle_gpu_key(nodes: &Nodes, id: NodeId, strategy: Option<Strategy>) -> Option<i64> {
    if nodes.idle(id, GPU_DIM) < GPU { None } else { gpu_key(nodes, id, strategy) }
}

fn cpu_key(nodes: &Nodes, id: NodeId, strategy: Option<Strategy>, with_gpus: bool) -> Option<i64> {
    nodes.rows[id].model.as_ref()?;
    if nodes.has_gpus(id) != with_gpus {
        return None;
    }
    Some(match strategy {
        None => 0,
        Some(Strategy::Binpack) => nodes.coming(id, CPU_DIM),
        Some(Strategy::Spread) => -ratio(nodes.coming(id, CPU_DIM), nodes.cap(id, CPU_DIM)),
    })
}

/// The first key at which a node can have enough.
fn least_key(strategy: Option<Strategy>, need: &Need, dim: usize) -> i64 {
    match strategy {
        Some(Strategy::Binpack) => amount_of(need, dim).unwrap_or(i64::MIN),
        _ => i64::MIN,
    }
}

/// Parts of a billion.
fn ratio(part: i64, whole: i64) -> i64 {
    (i128::from(part) * 1_000_000_000 / i128::from(whole.max(1))).clamp(-1 << 62, 1 << 62) as i64
}

fn placed_score(
    strategy: Option<Strategy>,
    left: i64,
    least: i64,
    most: i64,
    nodes: &Nodes,
    node: NodeId,
    class: &Class,
) -> i128 {
    match strategy {
        None => 0,
        Some(Strategy::Binpack) if most <= least => 0,
        Some(Strategy::Binpack) => {
            PACKED * (i128::from(most) - i128::from(left)) / (i128::from(most) - i128::from(least))
        }
        Some(Strategy::Spread) => {
            let dim = if class.cpu_only { CPU_DIM } else { GPU_DIM };
            POINT * i128::from(ratio(left, nodes.cap(node, dim))) / 1_000_000_000
        }
    }
}

/// The name of a dimension, for reasons.
pub fn resource_of(nodes: &Nodes, dim: u32) -> Resource {
    use dense::Id;
    nodes.dims.resolve(crate::ids::DimId::from_index(dim as usize)).cloned().unwrap_or(Resource::Pods)
}
