//! The gang: pods that are placed together or not at all, as a tree of groups.

use crate::{Dialect, Key, Name, Span, Time, volcano};
use std::sync::Arc;

/// A set of pods that makes sense only together. A plain pod is a gang of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    pub key: Key,
    /// Breaks ties between gangs of one age, so it must be stable; unique in the cluster.
    pub uid: Name,
    pub queue: Name,
    pub priority: i32,
    pub preemptibility: Preemptibility,
    pub created: Time,
    /// Parents before children; the first is the root. Never empty. A gang without inner groups has one group, a leaf.
    pub groups: Vec<Group>,
    /// When its pods were first bound since it last had none; minimum runtimes count from here.
    pub last_start: Option<Time>,
    /// When one of its pods was last evicted; the preemption delay counts from here or from its creation.
    pub last_eviction: Option<Time>,
    /// Since when it has had fewer pods than its minimum.
    pub stale_since: Option<Time>,
    /// How long it waits before it may cause evictions.
    pub preemption_delay: Span,
    /// How long it may stay below its minimum; `None`: the policy's default.
    pub staleness_grace: Option<Grace>,
    /// When it will be over by its own declaration; only used to say when others may hope to start.
    pub declared_end: Option<Time>,
    /// Of a Volcano PodGroup: what else it says.
    pub volcano: Option<Arc<volcano::Group>>,
}

impl Gang {
    /// Whose rules it lives by.
    pub fn dialect(&self) -> Dialect {
        if self.volcano.is_some() { Dialect::Volcano } else { Dialect::Kai }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    For(Span),
    Forever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preemptibility {
    Preemptible,
    /// Never a victim; in return it must stay within its queues' quota.
    NonPreemptible,
}

/// One group of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: Name,
    /// Index in [`Gang::groups`]; `None` for the root only.
    pub parent: Option<u32>,
    pub min: Min,
    pub topology: Option<TopologyRule>,
}

/// How much of a group must run for the gang to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Min {
    /// A leaf: this many pods. What is beyond is elastic.
    Pods(u32),
    /// An inner group: this many of its children; `None`: all of them.
    Children(Option<u32>),
    /// An inner group: all of its children, and this many pods in all of them together.
    Whole { pods: u32 },
}

/// Where the pods of a group have to be, or would rather be, together. Levels are node label keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopologyRule {
    pub topology: Name,
    pub required: Option<Name>,
    pub preferred: Option<Name>,
}
