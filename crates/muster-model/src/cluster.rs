//! The cluster as one value, and changes to it.

use crate::{Claim, Device, DeviceName, Gang, Key, Name, Node, Pod, Queue, Time, Topology, volcano};
use std::fmt;
use std::sync::Arc;

/// Everything that a decision may depend on, at one moment. Order within the lists carries no meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub now: Time,
    pub nodes: Vec<Arc<Node>>,
    pub pods: Vec<Arc<Pod>>,
    pub gangs: Vec<Arc<Gang>>,
    pub queues: Vec<Arc<Queue>>,
    pub topologies: Vec<Arc<Topology>>,
    pub devices: Vec<Arc<Device>>,
    pub claims: Vec<Arc<Claim>>,
    pub budgets: Vec<Arc<volcano::DisruptionBudget>>,
    pub quotas: Vec<Arc<volcano::NamespaceQuota>>,
}

/// One change. Putting an object that exists replaces it; dropping one that does not exist is no error, for events come late and twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    PutNode(Arc<Node>),
    DropNode(Name),
    PutPod(Arc<Pod>),
    DropPod(Key),
    PutGang(Arc<Gang>),
    DropGang(Key),
    PutQueue(Arc<Queue>),
    DropQueue(Name),
    PutTopology(Arc<Topology>),
    DropTopology(Name),
    PutDevice(Arc<Device>),
    DropDevice(DeviceName),
    PutClaim(Arc<Claim>),
    DropClaim(Key),
    PutBudget(Arc<volcano::DisruptionBudget>),
    DropBudget(Key),
    PutQuota(Arc<volcano::NamespaceQuota>),
    DropQuota(Key),
}

impl Cluster {
    /// The changes that make this cluster from an empty one.
    pub fn into_changes(self) -> Vec<Change> {
        let mut changes = Vec::new();
        changes.extend(self.queues.into_iter().map(Change::PutQueue));
        changes.extend(self.topologies.into_iter().map(Change::PutTopology));
        changes.extend(self.nodes.into_iter().map(Change::PutNode));
        changes.extend(self.devices.into_iter().map(Change::PutDevice));
        changes.extend(self.claims.into_iter().map(Change::PutClaim));
        changes.extend(self.budgets.into_iter().map(Change::PutBudget));
        changes.extend(self.quotas.into_iter().map(Change::PutQuota));
        changes.extend(self.gangs.into_iter().map(Change::PutGang));
        changes.extend(self.pods.into_iter().map(Change::PutPod));
        changes
    }
}

/// Something wrong with an input object. What is not wrong with it is used all the same, unless `message` says that it is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// Kind and name: `Queue research`, `Pod default/a-0`.
    pub object: String,
    /// The path of the field; empty for the object as a whole.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, message } = self;
        if field.is_empty() {
            write!(f, "{object}: {message}")
        } else {
            write!(f, "{object}: {field}: {message}")
        }
    }
}
