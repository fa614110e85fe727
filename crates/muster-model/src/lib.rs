//! The words that every room shares: what a cluster is, what may be asked of it, and what was decided.
//!
//! In: nothing; these are plain values. Front ends (`muster-translate`) make them from Kubernetes objects, the engine reads
//! them and answers with [`Decisions`]. Names are shared strings ([`Name`]), amounts are integers in the unit of their
//! [`Resource`], times are milliseconds since the epoch ([`Time`]).
//!
//! *Invariant:* no I/O, no serde, no Kubernetes types, no clock. A value says what is so, never how to fetch it.
//!
//! Where to start: [`Cluster`] holds everything; [`Gang`], [`Queue`] and [`Node`] are the three things it is about;
//! [`Policy`] chooses whose rules apply; [`Decisions`] is what comes out.

mod name;
mod resource;

mod gang;
mod node;
mod queue;

mod device;
mod pod;
mod shape;
mod topology;
mod volume;

mod cluster;
mod decision;
mod policy;
mod reason;

pub mod volcano;

pub use cluster::{Change, Cluster, Diagnostic};
pub use decision::{Bind, Decisions, Evict, GangPhase, Pipeline, Placement, ZoneUse};
pub use device::{
    Allocation, Claim, ClaimUse, Device, DeviceAlternative, DeviceCount, DeviceName, DeviceReach,
    DeviceRequest,
};
pub use gang::{Gang, Grace, Group, Min, Preemptibility, TopologyRule};
pub use name::{Key, Labels, Name, Span, Time, own_name};
pub use node::{
    Conditions, Gpus, Links, MigStrategy, Node, Numa, NumaPolicy, NumaScope, Taint, TaintEffect, Zone,
};
pub use pod::{Pod, PodState};
pub use policy::{Action, Dialect, GpuOrder, MinRuntimeRule, Policy, Pool, Reach, Strategy};
pub use queue::{Bound, Queue, Reclaim, Share};
pub use reason::{NodeReason, Reason, Refusal, Remedy, Tally};
pub use resource::{Amounts, GPU, Resource};
pub use shape::{
    AffinityTerm, Expr, GpuShare, HostPort, LabelSelector, NodeRule, NodeTerm, Op, PodRules, Shape,
    ShareSize, SpreadRule, Toleration,
};
pub use topology::{Domain, Level, Topology};
pub use volume::{VolumeNeed, VolumeUse};
