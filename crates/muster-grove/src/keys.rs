//! The labels, annotations, gates, finalizers and condition types of Grove, each named once.
//!
//! Where the founding documents and today's Grove have different words, both are here: the documents' word is the one that
//! is written, today's is written beside it or accepted.

/// On everything that is made for a set.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const OPERATOR: &str = "grove-operator";
/// The set that an object belongs to.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
pub const NAME: &str = "app.kubernetes.io/name";
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// Values of [`COMPONENT`].
pub mod component {
    pub const SERVICE: &str = "pcs-headless-service";
    pub const ROLE: &str = "pod-role";
    pub const ROLE_BINDING: &str = "pod-role-binding";
    pub const SERVICE_ACCOUNT: &str = "pod-service-account";
    pub const GROUP: &str = "pcs-podcliquescalinggroup";
    pub const HPA: &str = "pcs-hpa";
    pub const GANG: &str = "podgang";
    pub const CLIQUE: &str = "pcs-podclique";
    pub const GROUP_CLIQUE: &str = "pcsg-podclique";
    pub const CLAIM: &str = "resource-claim";
    pub const COMPUTE_DOMAIN: &str = "pcs-computedomain";
    /// The secret whose presence lets the containers of a clique start.
    pub const START: &str = "pclq-start";
}

pub const PODCLIQUE: &str = "grove.io/podclique";
pub const PODGANG: &str = "grove.io/podgang";
/// Only on what belongs to a scaled gang: the gang that must be placed first.
pub const BASE_PODGANG: &str = "grove.io/base-podgang";
pub const SET_REPLICA: &str = "grove.io/podcliqueset-replica-index";
pub const GROUP: &str = "grove.io/podcliquescalinggroup";
pub const GROUP_REPLICA: &str = "grove.io/podcliquescalinggroup-replica-index";
pub const POD_INDEX: &str = "grove.io/podclique-pod-index";
pub const TEMPLATE_HASH: &str = "grove.io/pod-template-hash";
/// On a PodGang: its backend, in the documents' words (`kai`).
pub const SCHEDULER_BACKEND: &str = "grove.io/scheduler-backend";
/// On a PodGang: its scheduler, in today's words (`kai-scheduler`).
pub const SCHEDULER_NAME: &str = "grove.io/scheduler-name";
/// Annotation on set, group or clique; label on compute domains.
pub const MNNVL_GROUP: &str = "grove.io/mnnvl-group";
pub const MNNVL_NONE: &str = "none";

/// On a PodGang: the ClusterTopologyBinding whose node labels its constraints use.
pub const TOPOLOGY_NAME: &str = "grove.io/topology-name";
/// On a set: "true" lets anybody change what belongs to it.
pub const UNPROTECTED: &str = "grove.io/disable-managed-resource-protection";
/// On a set: a change of it makes the controller look again.
pub const TRIGGER: &str = "grove.io/reconcile-trigger";
/// On a clique that another program made: the hash that this program had given its template, and ours for the same
/// template, as `theirs=ours`.
pub const ADOPTED_HASH: &str = "grove.io/adopted-template-hash";
/// On a PodGang whose scheduler cannot be told of its constraints: the node labels that the pods of each group are bound to when they are
/// freed, as JSON.
pub const DOMAINS: &str = "grove.io/chosen-domains";
/// On a clique: how many pods that are meant to end may fail before the clique has failed.
pub const BACKOFF_LIMIT: &str = "grove.io/backoff-limit";

/// The gate that pods are born with; today's name is lifted as well, and can be chosen.
pub const GATE: &str = "grove.io/podgang";
pub const GATE_TODAY: &str = "grove.io/podgang-pending-creation";

/// Finalizers of today's Grove. We need none, and take away those of an operator that is gone.
pub const FINALIZERS: [&str; 4] = [
    "grove.io/podcliqueset.grove.io",
    "grove.io/podclique.grove.io",
    "grove.io/podcliquescalinggroup.grove.io",
    "grove.io/computedomain-finalizer",
];

/// Keys with this beginning belong to Grove and are not mirrored from sets to gangs.
pub const PREFIX: &str = "grove.io/";
/// What `kubectl apply` keeps on the objects it applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// KAI's keys.
pub mod kai {
    pub const QUEUE: &str = "kai.scheduler/queue";
    pub const NODE_POOL: &str = "kai.scheduler/node-pool";
    pub const TOPOLOGY: &str = "kai.scheduler/topology";
    pub const SKIP: &str = "kai.scheduler/skip-podgrouper";
    pub const TOP_OWNER: &str = "kai.scheduler/top-owner-metadata";
    pub const SUBGROUP: &str = "kai.scheduler/subgroup-name";
    /// What a scheduler notes on a gang; ours writes it on the PodGang itself.
    pub const STAMPS: [&str; 3] = [
        "kai.scheduler/last-start-timestamp",
        "kai.scheduler/last-eviction-timestamp",
        "kai.scheduler/stale-podgroup-timestamp",
    ];
    /// On a pod: its PodGroup.
    pub const GROUP: &str = "pod-group-name";
}

/// Condition types.
pub mod condition {
    /// Of cliques and groups.
    pub const BREACHED: &str = "MinAvailableBreached";
    /// Of cliques: the minimum has nodes.
    pub const CLIQUE_SCHEDULED: &str = "PodCliqueScheduled";
    /// Of groups: a termination of the set's replica is under way because of it.
    pub const TERMINATING: &str = "GangTerminationInProgress";
    /// Of sets.
    pub const LEVELS_UNAVAILABLE: &str = "TopologyLevelsUnavailable";
    /// Of ClusterTopologyBindings.
    pub const DRIFT: &str = "SchedulerTopologyDrift";
    /// Ours, of cliques and groups: the minimum was there once, so that losing it is a loss.
    pub const WAS_THERE: &str = "WasAvailable";
    /// Ours, of cliques: the minimum is ready or has come to a good end.
    pub const AVAILABLE: &str = "Available";
    /// Ours, of cliques, groups, gangs and sets that run to an end.
    pub const COMPLETED: &str = "Completed";
    /// Ours, of the same: too many pods failed.
    pub const FAILED: &str = "Failed";

    /// Of gangs.
    pub const INITIALIZED: &str = "Initialized";
    pub const SCHEDULED: &str = "Scheduled";
    pub const READY: &str = "Ready";
    pub const UNHEALTHY: &str = "Unhealthy";
    pub const DISRUPTION: &str = "DisruptionTarget";
    /// Ours, of gangs: the backend has told its scheduler; without it the pods stay gated.
    pub const ACCEPTED: &str = "BackendAccepted";
}
