//! What Volcano's objects and settings say beyond what every dialect says.
//!
//! A gang, a pod or a queue that is Volcano's carries one of these. The engine's `volcano` module reads them; everything else of the
//! engine sees an ordinary gang, pod or queue. Fractions are in thousandths.

use crate::{Action, Amounts, LabelSelector, Name, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The scheduler's configuration: which plugins vote on what, and what they and the actions were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// What a cycle does, in this order.
    pub actions: Vec<Action>,
    /// Plugins by tier, in order; who comes first is asked first.
    pub tiers: Vec<Vec<Plugin>>,
    pub preempt: PreemptConf,
    pub gang_preempt: GangConf,
    pub gang_reclaim: GangConf,
    /// The nodes that this scheduler shares out; `None`: all of them.
    pub shard: Option<Shard>,
}

/// One plugin of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub kind: PluginKind,
    /// What it may vote on.
    pub enabled: Hooks,
}

/// What a plugin can be asked about. JobValid, UnifiedEvictable and VictimQueueOrder cannot be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Hook {
    JobOrder,
    SubJobOrder,
    TaskOrder,
    QueueOrder,
    JobReady,
    SubJobReady,
    JobPipelined,
    SubJobPipelined,
    JobStarving,
    JobEnqueued,
    Overused,
    Allocatable,
    Preemptive,
    Preemptable,
    Reclaimable,
    Predicate,
    NodeOrder,
    BestNode,
    Victim,
    HyperNodeOrder,
    HyperNodeGradient,
    Hierarchy,
    TargetJob,
    ReservedNodes,
    ClusterOrder,
}

/// A set of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks(u32);

impl Hooks {
    #[inline]
    pub fn has(self, hook: Hook) -> bool {
        self.0 >> hook as u8 & 1 == 1
    }

    pub fn with(self, hook: Hook) -> Self {
        Self(self.0 | 1 << hook as u8)
    }

    pub fn without(self, hook: Hook) -> Self {
        Self(self.0 & !(1 << hook as u8))
    }
}

impl FromIterator<Hook> for Hooks {
    fn from_iter<T: IntoIterator<Item = Hook>>(hooks: T) -> Self {
        hooks.into_iter().fold(Self::default(), Self::with)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginKind {
    Gang,
    Priority,
    Conformance,
    Drf,
    Proportion,
    Capacity(CapacityConf),
    Overcommit { factor: i64 },
    Predicates(Filters),
    NodeOrder(Weights),
    Binpack(Packing),
    ResourceStrategyFit(Box<StrategyConf>),
    NodeGroup { strict: bool, preferred_order: bool },
    Tdm(Box<TdmConf>),
    Sla { waiting: Option<Span> },
    Usage(UsageConf),
    Rescheduling(Box<ReschedulingConf>),
    Pdb,
    Cdp,
    ResourceQuota,
    TaskTopology { weight: i64 },
    NumaAware { weight: i64 },
    NetworkTopology(Box<TopologyConf>),
    DeviceShare(DeviceConf),
    Extender,
}

impl PluginKind {
    /// Volcano's name for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gang => "gang",
            Self::Priority => "priority",
            Self::Conformance => "conformance",
            Self::Drf => "drf",
            Self::Proportion => "proportion",
            Self::Capacity(_) => "capacity",
            Self::Overcommit { .. } => "overcommit",
            Self::Predicates(_) => "predicates",
            Self::NodeOrder(_) => "nodeorder",
            Self::Binpack(_) => "binpack",
            Self::ResourceStrategyFit(_) => "resource-strategy-fit",
            Self::NodeGroup { .. } => "nodegroup",
            Self::Tdm(_) => "tdm",
            Self::Sla { .. } => "sla",
            Self::Usage(_) => "usage",
            Self::Rescheduling(_) => "rescheduling",
            Self::Pdb => "pdb",
            Self::Cdp => "cdp",
            Self::ResourceQuota => "resourcequota",
            Self::TaskTopology { .. } => "task-topology",
            Self::NumaAware { .. } => "numa-aware",
            Self::NetworkTopology(_) => "network-topology-aware",
            Self::DeviceShare(_) => "deviceshare",
            Self::Extender => "extender",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityConf {
    /// How many levels of ancestors must be over what they deserve before a queue below them loses anything.
    pub ancestor_reclaim_level: u32,
    /// Devices of claims count, as `deviceclass/<class>`.
    pub count_claims: bool,
}

/// Which of the ordinary filters apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters {
    pub node_affinity: bool,
    pub node_ports: bool,
    pub taints: bool,
    pub pod_affinity: bool,
    pub volumes: bool,
    pub spread: bool,
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            node_affinity: true,
            node_ports: true,
            taints: true,
            pod_affinity: true,
            volumes: true,
            spread: true,
        }
    }
}

impl Filters {
    pub fn all(self) -> bool {
        self == Self::default()
    }
}

/// The weights of kube-scheduler's scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    pub least_requested: i64,
    pub most_requested: i64,
    pub node_affinity: i64,
    pub pod_affinity: i64,
    pub balanced: i64,
    pub taint_toleration: i64,
    pub image_locality: i64,
    pub spread: i64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            least_requested: 1,
            most_requested: 0,
            node_affinity: 2,
            pod_affinity: 2,
            balanced: 1,
            taint_toleration: 3,
            image_locality: 1,
            spread: 2,
        }
    }
}

/// How strongly each resource pulls pods together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    pub weight: i64,
    pub cpu: i64,
    pub memory: i64,
    pub others: BTreeMap<Name, i64>,
}

impl Default for Packing {
    fn default() -> Self {
        Self { weight: 1, cpu: 1, memory: 1, others: BTreeMap::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitType {
    LeastAllocated,
    MostAllocated,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyConf {
    pub weight: i64,
    /// By resource name or prefix (`nvidia.com/*`): what is liked, and how much.
    pub resources: BTreeMap<Name, (FitType, i64)>,
    /// Nodes with these scarce resources are kept for those who ask for them: the weight of the score, and of each resource.
    pub scarce: Option<(i64, BTreeMap<Name, i64>)>,
    /// For each idle unit of a scarce resource, so many milli-cores and bytes are kept for those who ask for it.
    pub reserved: BTreeMap<Name, Amounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TdmConf {
    /// When each zone may be used: milliseconds of the day from and to; to before from runs over midnight.
    pub zones: BTreeMap<Name, (i64, i64)>,
    pub evict_period: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageConf {
    pub weight: i64,
    pub cpu_weight: i64,
    pub memory_weight: i64,
    /// Percent, in thousandths; `None`: no threshold.
    pub cpu_threshold: Option<i64>,
    pub memory_threshold: Option<i64>,
    pub shadow: Shadow,
}

/// How much load pods are expected to bring that were placed after the last measurement. Ratios are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// This part of what they ask for.
    pub ratio: i64,
    /// On a node with at least so much load, so many times as much.
    pub risk_threshold: i64,
    pub risk_factor: i64,
    /// Those that ask for nothing: milli-cores and bytes.
    pub modest_cpu: i64,
    pub modest_memory: i64,
}

impl Default for Shadow {
    fn default() -> Self {
        Self { ratio: 700, risk_threshold: 600, risk_factor: 1200, modest_cpu: 250, modest_memory: 200 << 20 }
    }
}

impl Default for UsageConf {
    fn default() -> Self {
        Self {
            weight: 5,
            cpu_weight: 1,
            memory_weight: 1,
            cpu_threshold: Some(80_000),
            memory_threshold: Some(80_000),
            shadow: Shadow::default(),
        }
    }
}

/// Spreading load by eviction: nodes below all of the first thresholds are roomy, nodes above any of the second are crowded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReschedulingConf {
    pub interval: Span,
    /// Percent, in thousandths, of `cpu` and `memory`.
    pub thresholds: BTreeMap<Name, i64>,
    pub target_thresholds: BTreeMap<Name, i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyConf {
    pub weight: i64,
    pub packing: Packing,
    /// Pods without a topology rule are packed by hypernode too, each tier counting so much (thousandths) of the one below.
    pub normal_pods: Option<i64>,
    /// Gangs that evict look at so many hypernodes.
    pub most_domains: usize,
}

impl Default for TopologyConf {
    fn default() -> Self {
        Self { weight: 1, packing: Packing::default(), normal_pods: Some(800), most_domains: 8 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceConf {
    pub vgpu: bool,
    pub gpu_sharing: bool,
    pub gpu_number: bool,
    pub spread: bool,
    pub weight: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptConf {
    /// Victims are chosen by trying out every node, as kube-scheduler does, instead of in the order of scores.
    pub topology_aware: bool,
    pub min_candidates_percentage: u32,
    pub min_candidates: u32,
    pub max_candidates: u32,
}

impl Default for PreemptConf {
    fn default() -> Self {
        Self { topology_aware: false, min_candidates_percentage: 10, min_candidates: 1, max_candidates: 100 }
    }
}

/// How gangs look for victims in whole domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangConf {
    pub max_domains: usize,
    /// Gangs may be broken up; otherwise they only lose what they can spare.
    pub allow_whole: bool,
}

impl Default for GangConf {
    fn default() -> Self {
        Self { max_domains: 8, allow_whole: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Other nodes are not used at all; otherwise they are second choice.
    pub hard: bool,
    pub nodes: BTreeSet<Name>,
}

/// How far a pod group has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    #[default]
    Pending,
    Inqueue,
    Running,
    Unknown,
    Completed,
}

impl Phase {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Inqueue, Self::Running, Self::Unknown, Self::Completed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Inqueue => "Inqueue",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Completed => "Completed",
        }
    }
}

/// What a PodGroup says. Its leaf groups are the roles of its sub-groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub phase: Phase,
    pub min_member: u32,
    /// The least of each role.
    pub roles: BTreeMap<Name, u32>,
    /// What it asks for before it is let in; `None`: it is let in unasked.
    pub min_resources: Option<Amounts>,
    pub topology: Option<NetworkTopology>,
    pub policies: Vec<SubGroupPolicy>,
    /// The sub-groups that there are pods of; the first is the one of pods that match no policy, if it has a pod.
    pub sub_groups: Vec<SubGroup>,
    /// For each of the gang's groups that is a leaf: its sub-group and role.
    pub leaves: Vec<Leaf>,
    /// Whether its pods may be taken by whole gangs, where it says so; they may if it says nothing.
    pub preemptable: Option<bool>,
    /// Its pods run in zones that may be taken back.
    pub revocable: bool,
    /// How long it may wait before it is let in regardless.
    pub waiting: Option<Span>,
    /// How many of its pods may be missing at once, or must be left.
    pub budget: Budget,
    /// The hypernode that its pods are in.
    pub allocated_domain: Option<Name>,
    pub affinity: TaskTopology,
}

/// A budget of disruptions: a number, or a part of the whole in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    pub min_available: Option<Portion>,
    pub max_unavailable: Option<Portion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    Number(u32),
    Percent(u32),
}

impl Portion {
    /// Rounded up, as Kubernetes does.
    pub fn of(self, whole: u32) -> u32 {
        match self {
            Self::Number(n) => n,
            Self::Percent(percent) => (u64::from(whole) * u64::from(percent)).div_ceil(100) as u32,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkTopology {
    /// Only liked.
    pub soft: bool,
    pub highest: Tier,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Any: the tier of the whole cluster.
    Top,
    At(i64),
    Named(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubGroupPolicy {
    pub name: Name,
    pub size: u32,
    pub min_groups: u32,
    pub topology: Option<NetworkTopology>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubGroup {
    pub id: Name,
    /// Index in [`Group::policies`].
    pub policy: Option<u32>,
    /// A number at the end of what tells it apart, which orders sub-groups of one policy.
    pub index: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Index in the gang's groups.
    pub group: u32,
    /// Index in [`Group::sub_groups`].
    pub sub: u32,
    pub role: Name,
}

/// Which roles belong together on a node, which do not, and in which order they are placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskTopology {
    pub together: Vec<Vec<Name>>,
    pub apart: Vec<Vec<Name>>,
    pub order: Vec<Name>,
}

impl TaskTopology {
    pub fn is_empty(&self) -> bool {
        self.together.is_empty() && self.apart.is_empty() && self.order.is_empty()
    }
}

/// What a pod says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    pub role: Name,
    pub priority: i64,
    /// Its own priority, which victims are compared by; 0 where it has none.
    pub pod_priority: i64,
    /// Its place among the pods of its role; `None`: it has none.
    pub index: Option<i64>,
    pub preemptable: bool,
    /// It never takes from others.
    pub never_preempts: bool,
    /// It runs in zones that may be taken back.
    pub revocable: bool,
    /// Not to be taken before then.
    pub cooldown_until: Option<Time>,
    /// The system needs it, and nobody may take it.
    pub critical: bool,
    pub started: Option<Time>,
    /// What it asks of each device class: (class, count), for quotas on devices. Claims of several pods count once.
    pub devices: Vec<(crate::Key, Name, i64)>,
    /// How a node should be filled by it, and how much each resource counts, where it says so.
    pub fit: Option<FitType>,
    pub fit_weights: Option<BTreeMap<Name, i64>>,
    /// The images of its containers, one for each.
    pub images: Vec<Name>,
}

impl std::hash::Hash for FitType {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (*self as u8).hash(state);
    }
}

/// What a Queue says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub weight: i64,
    /// Whether it takes part at all.
    pub open: bool,
    /// Others may take what it has beyond its share.
    pub reclaimable: bool,
    pub guarantee: Amounts,
    pub deserved: Amounts,
    pub capability: Amounts,
    /// Resources that `capability` and `deserved` name, zero ones too.
    pub named: BTreeSet<Name>,
    /// The path and weights of a queue in dominant-resource fairness.
    pub hierarchy: Vec<(Name, i64)>,
    pub node_groups: Option<NodeGroups>,
    /// The most that it may have of a group of nodes, of the resources that are named.
    pub group_limits: BTreeMap<Name, Amounts>,
}

/// Which groups of nodes a queue may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGroups {
    pub required: Vec<Name>,
    pub preferred: Vec<Name>,
    pub required_anti: Vec<Name>,
    pub preferred_anti: Vec<Name>,
}

/// A PodDisruptionBudget: pods of these may be evicted so often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionBudget {
    pub key: crate::Key,
    pub selector: LabelSelector,
    pub allowed: i64,
}

/// A ResourceQuota: what a namespace may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceQuota {
    pub key: crate::Key,
    /// By Kubernetes' name of the limit (`requests.cpu`), in thousandths.
    pub hard: BTreeMap<Name, i128>,
    pub used: BTreeMap<Name, i128>,
}

/// What a node's load was, measured, in thousandths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub cpu: i64,
    pub memory: i64,
    pub at: Time,
}
