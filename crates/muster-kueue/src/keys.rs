//! Names that Kueue gave to labels, annotations, gates, finalizers and conditions.

/// Which queue a job goes through: a label.
pub const QUEUE: &str = "kueue.x-k8s.io/queue-name";
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
pub const MAX_EXEC_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
pub const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
pub const GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
pub const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
pub const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
pub const COMPLETIONS_FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Annotations with this prefix are parameters of a provisioning request.
pub const PROVISIONING_PREFIX: &str = "provreq.kueue.x-k8s.io/";

pub const REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
pub const PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
pub const UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
pub const SLICE_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
pub const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
pub const SLICE_LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
pub const POD_SET_GROUP: &str = "kueue.x-k8s.io/podset-group-name";
pub const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// Holds a plain pod back until its workload is admitted.
pub const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";
/// Holds a pod back until its domain is known.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// A label of pods that are kept here, and the finalizer on them.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
pub const CLUSTER_QUEUE: &str = "kueue.x-k8s.io/cluster-queue-name";
pub const LOCAL_QUEUE: &str = "kueue.x-k8s.io/local-queue-name";
pub const GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
pub const GROUP_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
pub const GROUP_FAST: &str = "kueue.x-k8s.io/pod-group-fast-admission";
pub const GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
pub const GROUP_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
pub const GROUP_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
pub const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
pub const SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Which workload a pod belongs to: an annotation.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
pub const IS_GROUP: &str = "kueue.x-k8s.io/is-group-workload";
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";

/// What is in use stays until it is not.
pub const IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

/// The priority classes that a workload may name.
pub const WORKLOAD_PRIORITY: (&str, &str) = ("kueue.x-k8s.io", "WorkloadPriorityClass");
pub const POD_PRIORITY: (&str, &str) = ("scheduling.k8s.io", "PriorityClass");

/// The queue of jobs that name none, where a namespace has one of this name.
pub const DEFAULT_QUEUE: &str = "default";

pub mod condition {
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    pub const ADMITTED: &str = "Admitted";
    pub const PODS_READY: &str = "PodsReady";
    pub const EVICTED: &str = "Evicted";
    pub const PREEMPTED: &str = "Preempted";
    pub const REQUEUED: &str = "Requeued";
    pub const FINISHED: &str = "Finished";
    pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
    pub const ACTIVE: &str = "Active";
}

pub mod evicted {
    pub const PREEMPTED: &str = "Preempted";
    pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
    pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
    pub const NODE_FAILURES: &str = "NodeFailures";
    pub const DEACTIVATED: &str = "Deactivated";
}
