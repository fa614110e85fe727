//! Pods: what they are a part of, where they are, and in which state.

use crate::{Key, Labels, Name, Shape, Time, ZoneUse, volcano};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub key: Key,
    pub uid: Name,
    /// `None`: another scheduler's pod; it only takes room.
    pub gang: Option<Key>,
    /// The leaf group; `None`: the gang's only leaf.
    pub group: Option<Name>,
    pub created: Time,
    pub state: PodState,
    /// Where it is or is about to be; for a waiting pod `None`.
    pub node: Option<Name>,
    /// What it asks for; shared by pods that ask for the same, which makes them one class.
    pub shape: Arc<Shape>,
    /// What other pods' affinity rules see of it.
    pub labels: Arc<Labels>,
    /// Its place in its group: leaders (masters, launchers, heads) before the rest. Lower is first.
    pub rank: u8,
    /// Asked for by its owner: higher first, none last.
    pub task_priority: Option<i64>,
    /// The shared GPUs that it holds, by id; one per device.
    pub gpu_groups: Vec<Name>,
    /// The indices of the GPUs that it holds, where known.
    pub gpus: Vec<u32>,
    /// Where in the node it runs, where known.
    pub zones: Vec<ZoneUse>,
    /// A node that was promised to it before.
    pub nominated: Option<Name>,
    /// Of a pod of a Volcano PodGroup: what else it says.
    pub volcano: Option<Arc<volcano::Task>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodState {
    /// Held back by a scheduling gate.
    Gated,
    Pending,
    /// Promised to a node, not yet bound.
    Binding,
    Bound,
    Running,
    /// Told to terminate; its room will be free soon.
    Releasing,
    /// Told to terminate long ago and still there; its room must not be counted on.
    Stuck,
    Succeeded,
    Failed,
}

impl PodState {
    /// Holds room on a node.
    pub fn holds_room(self) -> bool {
        matches!(self, Self::Binding | Self::Bound | Self::Running | Self::Releasing | Self::Stuck)
    }

    /// Holds room on a node and is going to keep it.
    pub fn stays(self) -> bool {
        matches!(self, Self::Binding | Self::Bound | Self::Running)
    }
}
