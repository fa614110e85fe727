//! Everything of Muster that runs in a cluster, as values.
//!
//! In: [`Settings`]. Out: [`objects`], the manifests in the order in which they are applied; [`objects_to_delete`], what
//! any of them made, backwards; [`chart`](helm::chart), a Helm chart whose default rendering is the manifests; and the [`operator`], which makes
//! the same objects from a `kai.scheduler/v1` Config and its SchedulingShards. *Invariant:* one function makes the objects of
//! all three. *Invariant:* a component may do what its list in [`access`] says and no more. *Invariant:* nothing but
//! [`operator::run`] does I/O, save `helm::write_chart`, which writes files.

pub mod component;
pub mod settings;

pub mod access;
pub mod groups;

mod monitoring;
mod objects;
mod workload;

pub mod helm;
pub mod operator;
pub mod yaml;

pub use component::Component;
pub use monitoring::METRICS;
pub use objects::{
    CREATED_BY, default_queues, is_marked, is_shared, marked, objects, objects_to_delete, path,
    priority_classes, rewritten, webhooks,
};
pub use settings::{Set, Settings, Shard};
pub use workload::FLAGS;
