//! Classes: pods that ask for the same thing. Filters run per class and node, never per pod.
//!
//! A class is interned by the value of its shape. What of it decides about nodes without looking at what is free there (selectors,
//! taints, MIG mode, volumes) is a *rule*, shared by classes that differ in amounts only; the set of nodes that a rule allows is
//! computed once and kept current as nodes change.

use crate::ids::{ClassId, NodeId};
use crate::nodes::{CPU_DIM, GPU_DIM, MEMORY_DIM, MOST, Need, Nodes, amount_of};
use dense::{Id, IdSet, IdVec, Interner, define_id};
use muster_model::{
    GPU, GpuShare, MigStrategy, Name, Node, NodeReason, NodeRule, Shape, ShareSize, TaintEffect, Toleration,
    VolumeNeed, VolumeUse,
};
use std::sync::Arc;

define_id! {
    /// What decides about nodes regardless of what is free there.
    pub struct RuleId;
}

pub struct Class {
    pub shape: Arc<Shape>,
    pub need: Need,
    pub share: Option<GpuShare>,
    pub rule: RuleId,
    /// CPU, memory and GPU charged to queues; a share in memory is not in it.
    pub charge: [i128; 3],
    /// Asks for no GPU of any kind.
    pub cpu_only: bool,
    /// A free place on a node depends on more than amounts: ports, claims, attachable volumes.
    pub has_ports: bool,
    pub has_claims: bool,
    pub has_attachments: bool,
    pub asks_mig: bool,
    /// By dimension, for nodes with NUMA zones: the pod, and its containers one by one.
    pub by_dim: Vec<i64>,
    pub containers_by_dim: Vec<Vec<i64>>,
    /// CPU and memory as kube-scheduler's scores count them: a container that asks for nothing counts a little.
    pub at_least: [i64; 2],
}

/// The part of a shape that a rule is about.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RuleKey {
    node: NodeRule,
    tolerations: Vec<Toleration>,
    volumes: Vec<VolumeUse>,
    only_node: Option<Name>,
    gpu: GpuKind,
    missing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum GpuKind {
    None,
    Whole,
    Share,
    MemoryShare,
    Mig,
}

#[derive(Default)]
pub struct Classes {
    by_shape: Interner<ClassId, Arc<Shape>>,
    pub rows: IdVec<ClassId, Class>,
    rules: Interner<RuleId, RuleKey>,
    allowed: IdVec<RuleId, Option<IdSet<NodeId>>>,
}

impl Classes {
    pub fn intern(&mut self, shape: &Arc<Shape>, nodes: &mut Nodes) -> ClassId {
        if let Some(id) = self.by_shape.get(shape) {
            return id;
        }
        let id = self.by_shape.intern(shape.clone());
        let amounts: Vec<_> = shape.requests.iter().map(|(r, a)| (r.clone(), a)).collect();
        let need: Need = amounts
            .into_iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(r, amount)| (nodes.dim(&r) as u32, amount.min(MOST)))
            .collect();
        let of = |dim: usize| i128::from(amount_of(&need, dim).unwrap_or(0));
        let asks_mig = shape.requests.iter().any(|(r, _)| r.mig_parts().is_some());
        let gpu = match shape.gpu_share.map(|s| s.size) {
            Some(ShareSize::Portion(_)) => GpuKind::Share,
            Some(ShareSize::Memory(_)) => GpuKind::MemoryShare,
            None if of(GPU_DIM) > 0 => GpuKind::Whole,
            None if asks_mig => GpuKind::Mig,
            None => GpuKind::None,
        };
        let portion = match shape.gpu_share {
            Some(GpuShare { size: ShareSize::Portion(part), devices }) => {
                i128::from(part.max(0)) * i128::from(devices)
            }
            _ => 0,
        };
        let charge =
            [of(CPU_DIM), of(MEMORY_DIM), of(GPU_DIM) + portion + i128::from(shape.extra_gpu_charge.max(0))];
        let rule = self.rules.intern(RuleKey {
            node: NodeRule { preferred: Vec::new(), ..shape.node.clone() },
            tolerations: shape.tolerations.clone(),
            volumes: shape.volumes.clone(),
            only_node: shape.only_node.clone(),
            gpu,
            missing: !shape.missing.is_empty(),
        });
        self.allowed.ensure(rule);
        let mut dense = |amounts: &muster_model::Amounts| {
            let mut by_dim = Vec::new();
            for (resource, amount) in amounts.iter() {
                let dim = nodes.dim(resource);
                if by_dim.len() <= dim {
                    by_dim.resize(dim + 1, 0);
                }
                by_dim[dim] = amount;
            }
            by_dim
        };
        let at_least = [(CPU_DIM, 100), (MEMORY_DIM, 200 << 20)].map(|(dim, little)| {
            let resource =
                if dim == CPU_DIM { muster_model::Resource::Cpu } else { muster_model::Resource::Memory };
            let whole = amount_of(&need, dim).unwrap_or(0);
            let silent = match shape.containers.len() {
                0 => i64::from(whole == 0),
                _ => shape.containers.iter().filter(|c| c.get(&resource) == 0).count() as i64,
            };
            whole.saturating_add(silent.saturating_mul(little)).min(MOST)
        });
        let row = Class {
            at_least,
            by_dim: dense(&shape.requests),
            containers_by_dim: shape.containers.iter().map(&mut dense).collect(),
            need,
            share: shape.gpu_share,
            rule,
            charge,
            cpu_only: gpu == GpuKind::None && shape.extra_gpu_charge == 0,
            has_ports: !shape.ports.is_empty(),
            has_claims: !shape.claims.is_empty(),
            has_attachments: shape.volumes.iter().any(|v| v.driver.is_some() || v.one_pod),
            asks_mig,
            shape: shape.clone(),
        };
        self.rows.push(row);
        id
    }

    /// Forgets the classes that are not to be kept, with the rules that only they had. Everyone else gets a new id, which is given by the old one;
    /// nothing else changes.
    pub fn forget(&mut self, keep: impl Fn(ClassId) -> bool) -> IdVec<ClassId, Option<ClassId>> {
        let Self { rows, rules, mut allowed, .. } = std::mem::take(self);
        let mut again = |row: Class| {
            let rule = self.rules.intern_ref(&rules[row.rule]);
            // The first class of a rule brings its nodes along.
            let nodes = allowed[row.rule].take();
            let kept = self.allowed.ensure(rule);
            *kept = kept.take().or(nodes);
            let id = self.by_shape.intern(row.shape.clone());
            self.rows.push(Class { rule, ..row });
            id
        };
        let rows = rows.into_vec().into_iter().enumerate();
        rows.map(|(i, row)| keep(ClassId::from_index(i)).then(|| again(row))).collect()
    }

    /// How many rules there are.
    pub fn n_rules(&self) -> usize {
        self.rules.len()
    }

    /// Makes sure that the rule's set of nodes is there.
    pub fn settle(&mut self, rule: RuleId, nodes: &Nodes) {
        if self.allowed[rule].is_some() {
            return;
        }
        let key = &self.rules[rule];
        let set = nodes
            .known()
            .filter(|id| nodes.rows[*id].model.as_ref().is_some_and(|n| refuses(key, n).is_none()))
            .collect();
        self.allowed[rule] = Some(set);
    }

    /// The nodes that a rule allows; settle it first.
    pub fn allowed(&self, rule: RuleId) -> Option<&IdSet<NodeId>> {
        self.allowed.get(rule).and_then(Option::as_ref)
    }

    /// A node appeared, changed or went.
    pub fn node_changed(&mut self, id: NodeId, node: Option<&Node>) {
        for (rule, set) in self.allowed.iter_mut() {
            if let Some(set) = set {
                set.set(id, node.is_some_and(|n| refuses(&self.rules[rule], n).is_none()));
            }
        }
    }

    /// Why the rule does not allow this node.
    pub fn why_not(&self, rule: RuleId, node: &Node) -> Option<NodeReason> {
        refuses(&self.rules[rule], node)
    }

    /// The same where some reasons do not count.
    pub fn why_not_but(
        &self,
        rule: RuleId,
        node: &Node,
        counts: impl Fn(&NodeReason) -> bool,
    ) -> Option<NodeReason> {
        reasons(&self.rules[rule], node).find(counts)
    }

    /// What a share takes of one GPU of this size, in thousandths of a MiB.
    pub fn share_amount(share: GpuShare, size: i64) -> i64 {
        let amount = match share.size {
            ShareSize::Portion(part) => i128::from(part) * i128::from(size) / i128::from(GPU),
            ShareSize::Memory(mib) => i128::from(mib) * 1000,
        };
        amount.clamp(0, i128::from(MOST)) as i64
    }

    /// What a share in memory costs a queue on GPUs of this many MiB: rounded up to hundredths of a GPU; a whole one where nobody knows.
    pub fn memory_charge(share: GpuShare, memory: Option<i64>) -> i128 {
        let ShareSize::Memory(mib) = share.size else { return 0 };
        let each = match memory.filter(|m| *m > 0).map(i128::from) {
            Some(memory) => ((i128::from(mib.max(0)) * 100 + memory - 1) / memory * 10).min(i128::from(GPU)),
            None => i128::from(GPU),
        };
        each * i128::from(share.devices)
    }
}

fn refuses(key: &RuleKey, node: &Node) -> Option<NodeReason> {
    reasons(key, node).next()
}

/// Everything that a rule has against a node, worked out one by one.
fn reasons<'a>(key: &'a RuleKey, node: &'a Node) -> impl Iterator<Item = NodeReason> + 'a {
    let checks: [fn(&RuleKey, &Node) -> Option<NodeReason>; 5] =
        [condition_refuses, affinity_refuses, taints_refuse, gpus_refuse, volumes_refuse];
    checks.into_iter().filter_map(move |check| check(key, node))
}

fn condition_refuses(_: &RuleKey, node: &Node) -> Option<NodeReason> {
    (!node.conditions.usable()).then_some(NodeReason::NotUsable)
}

fn affinity_refuses(key: &RuleKey, node: &Node) -> Option<NodeReason> {
    let refused = key.only_node.as_ref().is_some_and(|only| *only != node.name)
        || !key.node.allows(&node.name, &node.labels);
    refused.then_some(NodeReason::NodeAffinity)
}

fn taints_refuse(key: &RuleKey, node: &Node) -> Option<NodeReason> {
    let bad = node.taints.iter().find(|t| {
        t.effect != TaintEffect::PreferNoSchedule && !key.tolerations.iter().any(|tol| tol.covers(t))
    });
    bad.map(|taint| NodeReason::Taint { key: taint.key.clone() })
}

fn gpus_refuse(key: &RuleKey, node: &Node) -> Option<NodeReason> {
    let gpus = &node.gpus;
    let wrong_mode = match key.gpu {
        GpuKind::None => false,
        GpuKind::Whole => gpus.mig == MigStrategy::Mixed,
        GpuKind::Share | GpuKind::MemoryShare => gpus.mig != MigStrategy::None || gpus.dra,
        GpuKind::Mig => gpus.mig != MigStrategy::Mixed,
    };
    if wrong_mode {
        return Some(NodeReason::MigMode);
    }
    if key.gpu == GpuKind::MemoryShare && gpus.memory.is_none() {
        return Some(NodeReason::GpuMemoryUnknown);
    }
    None
}

fn volumes_refuse(key: &RuleKey, node: &Node) -> Option<NodeReason> {
    if key.missing || !key.volumes.iter().all(|v| reachable(&v.need, node)) {
        return Some(NodeReason::Volume);
    }
    None
}

fn reachable(need: &VolumeNeed, node: &Node) -> bool {
    let any = |terms: &[muster_model::NodeTerm]| {
        terms.is_empty() || terms.iter().any(|t| t.holds(&node.name, &node.labels))
    };
    match need {
        VolumeNeed::Bound { reachable } => any(reachable),
        VolumeNeed::WaitsForPod { provisioned, free } => {
            provisioned.as_ref().is_some_and(|terms| any(terms)) || free.iter().any(|terms| any(terms))
        }
        VolumeNeed::Unbound => false,
    }
}
