//! The labels and annotations that grouping reads and writes, each named once.

/// On a pod: the PodGroup that it belongs to.
pub const GROUP: &str = "pod-group-name";
/// On a pod (label): its sub-group of that PodGroup.
pub const SUBGROUP: &str = "kai.scheduler/subgroup-name";
/// On a pod or an owner: "true" keeps the grouper away.
pub const SKIP: &str = "kai.scheduler/skip-podgrouper";
/// On a PodGroup: who it was made for, as YAML.
pub const TOP_OWNER: &str = "kai.scheduler/top-owner-metadata";

/// On a PodGroup: how many pods it needs in all to be done, for those whose pods end. When fewer are left than the minimum, these are
/// enough.
pub const MEMBERS: &str = "muster.dev/members";

pub const QUEUE: &str = "kai.scheduler/queue";
pub const NODE_POOL: &str = "kai.scheduler/node-pool";
pub const PROJECT: &str = "project";
pub const USER: &str = "user";
pub const PRIORITY: &str = "priorityClassName";
pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
pub const STALENESS_GRACE: &str = "kai.scheduler/staleness-grace-period";
pub const MIN_MEMBER: &str = "kai.scheduler/batch-min-member";

pub const TOPOLOGY: &str = "kai.scheduler/topology";
pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
pub const SEGMENT_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
pub const SEGMENT_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";

/// The labels of Grove's pods.
pub const PODGANG: &str = "grove.io/podgang";
pub const PODCLIQUE: &str = "grove.io/podclique";

/// A pod that a kubelet runs from a file; no scheduler places it.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// What `kubectl apply` keeps on the objects it applied. On any other object it would mislead `kubectl apply`.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// KAI's priority classes, the defaults by kind of workload.
pub const TRAIN: &str = "train";
pub const BUILD: &str = "build";
pub const INFERENCE: &str = "inference";
