//! Volumes, as far as they say where a pod may run.

use crate::{Key, Name, NodeTerm};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeUse {
    pub claim: Key,
    pub need: VolumeNeed,
    /// The CSI driver, where its attachments per node are limited.
    pub driver: Option<Name>,
    /// Only one pod in the cluster may use it.
    pub one_pod: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeNeed {
    /// Bound to a volume that can be reached from nodes for which one of these terms holds; no terms: from everywhere.
    Bound { reachable: Vec<NodeTerm> },
    /// To be bound once the pod has a node: by provisioning on nodes for which one of these terms holds (none: anywhere), or to one of
    /// the free volumes, each with its own terms.
    WaitsForPod { provisioned: Option<Vec<NodeTerm>>, free: Vec<Vec<NodeTerm>> },
    /// Not bound, and nothing that the scheduler does will bind it.
    Unbound,
}
