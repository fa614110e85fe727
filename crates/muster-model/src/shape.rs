//! What a pod asks of a node. Pods of one shape are interchangeable for placement and form one class.

use crate::{Amounts, ClaimUse, Labels, Name, VolumeUse};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The effective request: containers, sidecars, init containers and overhead already combined; one of
    /// [`crate::Resource::Pods`]; whole GPUs under [`crate::Resource::Gpu`]. Shared GPUs are in `gpu_share` only.
    pub requests: Amounts,
    /// A part of a GPU, or several parts of several.
    pub gpu_share: Option<GpuShare>,
    /// What a queue is charged for it, beyond CPU, memory and whole GPUs: thousandths of a GPU for MIG slices and DRA devices.
    pub extra_gpu_charge: i64,
    /// The requests of each container, for kubelets that align containers one by one; empty where one container asks for everything.
    pub containers: Vec<Amounts>,
    /// Guaranteed quality of service with whole CPUs: its CPU and memory are pinned to NUMA zones.
    pub pinned: bool,
    /// Its MIG devices are named in an annotation instead of its requests (an old form): it cannot be placed, and nobody can tell what is left of
    /// MIG on its node.
    pub legacy_mig: bool,
    pub node: NodeRule,
    pub tolerations: Vec<Toleration>,
    pub ports: Vec<HostPort>,
    pub pods: PodRules,
    pub volumes: Vec<VolumeUse>,
    pub claims: Vec<ClaimUse>,
    /// What it refers to and does not exist (a ConfigMap, a claim): no node will do until it does.
    pub missing: Vec<Name>,
    /// It may only run where this pool's nodes are, by name; used for pods that must not be placed by this scheduler at all.
    pub only_node: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuShare {
    pub size: ShareSize,
    /// How many GPUs it wants a share of.
    pub devices: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShareSize {
    /// Thousandths of a GPU.
    Portion(i64),
    /// MiB.
    Memory(i64),
}

/// Which nodes are allowed at all, and which are liked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeRule {
    /// Every one must hold (node selector).
    pub all: Vec<Expr>,
    /// If there are any, one term must hold (required node affinity). A term without expressions never holds.
    pub any: Option<Vec<NodeTerm>>,
    /// Liked terms with their weights.
    pub preferred: Vec<(i32, NodeTerm)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    pub labels: Vec<Expr>,
    /// Over the node's name.
    pub names: Vec<Expr>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expr {
    pub key: Name,
    pub op: Op,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    In(Vec<Name>),
    NotIn(Vec<Name>),
    Exists,
    Absent,
    /// The label is a number greater than this.
    Above(i64),
    Below(i64),
    /// Written in a way that nothing can satisfy.
    Never,
}

impl Expr {
    pub fn holds(&self, value: Option<&str>) -> bool {
        let among = |names: &[Name]| value.is_some_and(|v| names.iter().any(|n| &**n == v));
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.op {
            Op::In(names) => among(names),
            Op::NotIn(names) => !among(names),
            Op::Exists => value.is_some(),
            Op::Absent => value.is_none(),
            Op::Above(than) => number().is_some_and(|n| n > *than),
            Op::Below(than) => number().is_some_and(|n| n < *than),
            Op::Never => false,
        }
    }
}

impl NodeTerm {
    pub fn holds(&self, name: &str, labels: &Labels) -> bool {
        !(self.labels.is_empty() && self.names.is_empty())
            && self.labels.iter().all(|e| e.holds(labels.get(&e.key).map(|v| &**v)))
            && self.names.iter().all(|e| e.holds(Some(name)))
    }
}

impl NodeRule {
    /// Whether the node is allowed; liking is not asked.
    pub fn allows(&self, name: &str, labels: &Labels) -> bool {
        self.all.iter().all(|e| e.holds(labels.get(&e.key).map(|v| &**v)))
            && self.any.as_ref().is_none_or(|terms| terms.iter().any(|t| t.holds(name, labels)))
    }

    pub fn is_open(&self) -> bool {
        self.all.is_empty() && self.any.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// `None`: every key.
    pub key: Option<Name>,
    /// `None`: every value.
    pub value: Option<Name>,
    /// `None`: every effect.
    pub effect: Option<crate::TaintEffect>,
}

impl Toleration {
    pub fn covers(&self, taint: &crate::Taint) -> bool {
        self.key.as_ref().is_none_or(|k| *k == taint.key)
            && self.value.as_ref().is_none_or(|v| *v == taint.value)
            && self.effect.is_none_or(|e| e == taint.effect)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// `0.0.0.0` stands for every address.
    pub address: Name,
    pub protocol: Name,
    pub port: u16,
}

impl HostPort {
    pub fn clashes(&self, other: &Self) -> bool {
        let any = |a: &str| a == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (any(&self.address) || any(&other.address) || self.address == other.address)
    }
}

/// What a pod says about other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRules {
    pub affinity: Vec<AffinityTerm>,
    pub anti_affinity: Vec<AffinityTerm>,
    /// Liked (positive) and disliked (negative) company.
    pub preferred: Vec<(i32, AffinityTerm)>,
    pub spread: Vec<SpreadRule>,
}

impl PodRules {
    /// Whether a place may become good or bad by who comes and goes: it requires company, or an even spread.
    pub fn need_others(&self) -> bool {
        !self.affinity.is_empty() || !self.spread.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred.is_empty()
            && self.spread.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// Among pods of these namespaces; `None`: of all. Namespace selectors are resolved by the front end.
    pub namespaces: Option<Vec<Name>>,
    pub selector: LabelSelector,
    /// Nodes with one value of this label are one place.
    pub topology_key: Name,
}

/// Every expression must hold. A selector that selects nothing has one expression with [`Op::Never`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    pub all: Vec<Expr>,
}

impl LabelSelector {
    pub fn matches(&self, labels: &Labels) -> bool {
        self.all.iter().all(|e| e.holds(labels.get(&e.key).map(|v| &**v)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadRule {
    pub topology_key: Name,
    pub max_skew: i32,
    /// `false`: only liked.
    pub required: bool,
    pub selector: LabelSelector,
    pub namespace: Name,
    pub min_domains: Option<i32>,
    /// Nodes that the pod's node rules exclude do not count as places.
    pub honour_node_rules: bool,
    /// Nodes whose taints the pod does not tolerate do not count as places.
    pub honour_taints: bool,
}
