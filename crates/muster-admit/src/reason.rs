//! Why a workload waits, or was made to go: values with numbers. Words for them are made elsewhere.

use crate::place::NoPlace;
use muster_model::{Name, Taint};

/// Why a set of pods did not get a flavor, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The queue has no quota for a resource at all.
    NotCovered {
        resource: Name,
    },
    NoSuchFlavor {
        flavor: Name,
    },
    /// Only the flavor that was nominated before is looked at again.
    NotNominated {
        flavor: Name,
        resource: Name,
    },
    /// The variant is for another flavor.
    NotAllowed {
        flavor: Name,
    },
    Untolerated {
        flavor: Name,
        taint: Taint,
    },
    NodeRule {
        flavor: Name,
    },
    /// The flavor has no topology, and one is asked for.
    NoTopology {
        flavor: Name,
    },
    /// The flavor's topology is not known (yet).
    UnknownTopology {
        flavor: Name,
    },
    NoLevel {
        flavor: Name,
    },
    /// The flavor is only for those who ask for a topology.
    OnlyTopology {
        flavor: Name,
    },
    /// A workload grows in the flavor that it has.
    GrowsElsewhere {
        flavor: Name,
        has: Name,
    },
    /// More than there could ever be.
    ExceedsMax {
        resource: Name,
        flavor: Name,
        before: i64,
        asked: i64,
        most: i64,
    },
    /// More than is unused now.
    Short {
        resource: Name,
        flavor: Name,
        by: i64,
    },
    NoPlace(NoPlace),
}

/// What makes a set of pods impossible, whatever the quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    NoTopologies,
    NoTopologyFlavor,
    SeveralTopologyFlavors(Vec<Name>),
    /// An elastic workload cannot be held in one domain.
    ElasticRequired,
}

/// What kind of thing is missing, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    Place,
    Quota,
    /// Quota that there could ever be.
    MaxQuota,
    Flavor,
}

/// Why a workload waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// No flavor will do.
    NoFit(Missing),
    /// It must preempt, and there is nobody to preempt.
    NoVictims,
    /// So many workloads have to go first.
    Preempting(u32),
    /// What others that were preempted leave will do.
    Deferred,
    /// Its victims were taken by another workload.
    Overlap,
    /// Others were faster.
    NoLongerFits,
    /// It may not preempt until a gate is opened.
    Gated,
    /// A variant with a better flavor runs already.
    BetterVariant,
    /// A variant with a worse flavor has to go first.
    Migrating,
    /// Moving to that flavor is not wanted.
    NotAcceptable,
    FailedChecks,
    Inactive(Name),
    NoQueue(Name),
    NoNamespace,
    Namespace,
    Invalid(Name),
    /// Pods of what was admitted before are not ready.
    PodsReady,
    /// A place for the second pass was not found.
    SecondPass,
    /// There is quota, and no place for its pods.
    NoRoom(Name),
    /// The decision could not be written down, and was taken back.
    NotWritten(Name),
}

/// Why a workload was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    InQueue,
    Reclaim,
    ReclaimWhileBorrowing,
    FairSharing,
}

/// Why a workload was evicted otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// No place instead of these nodes.
    NodeFailures(Vec<Name>),
    /// A variant with a better flavor takes over.
    FlavorMigration,
}

/// Why a queue does not take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inactive {
    Stopped,
    NoFlavor(Vec<Name>),
    NoCheck(Vec<Name>),
    CheckInactive(Vec<Name>),
    NoTopology(Vec<Name>),
    /// Its cohorts are their own ancestors.
    Cycle,
}
