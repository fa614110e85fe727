//! Grove: sets of cliques become gangs, gangs become the resources of any scheduler, and status flows back.
//!
//! In: PodCliqueSets, and ClusterTopologyBindings. Out: PodCliques, PodCliqueScalingGroups, PodGangs, pods, and what stands
//! around them (services, accounts, autoscalers, claims); for each PodGang the resource that its scheduler reads; and the status
//! of all of these. [`start`] is the service; [`defaults`](mod@defaults) and [`validate`](mod@validate) are what admission asks.
//!
//! | module | what it does |
//! |---|---|
//! | `shape`, `names`, `keys` | which cliques and gangs a set has, and what they are called |
//! | `bodies`, `claims`, `clique::pods` | the objects, as JSON |
//! | `set`, `group`, `clique`, `gang`, `topology` | a controller each: `plan` is pure, `run` is thin |
//! | `backend` | how a gang is said to a scheduler |
//! | `room`, `ledger` | whether a gang could be placed whole, where its scheduler cannot be told that it is one |
//! | `config` | a configuration file of Grove's operator, as options |
//!
//! *Invariant:* PodGangs are made whatever the scheduler. *Invariant:* a pod is born gated, and freed when its gang is
//! complete, its scheduler knows of it, and its turn has come. *Invariant:* what an object belongs to is said by labels and
//! owners; names are made and never taken apart. *Invariant:* state lives in the cluster only; every write is made for a
//! difference, and status that others wrote stays. *Absent on purpose:* decisions on placement.

pub mod action;
pub mod backend;
pub mod bodies;
pub mod claims;
pub mod clique;
pub mod conditions;
pub mod config;
pub mod defaults;
pub mod duration;
pub mod gang;
pub mod group;
pub mod hash;
pub mod keys;
pub mod levels;
pub mod mirror;
pub mod names;
pub mod object;
pub mod room;
pub mod set;
pub mod settings;
pub mod shape;
pub mod topology;
pub mod validate;

mod desk;
mod ledger;
mod run;

pub use run::start;
pub use settings::{BackendName, GroupNames, Options, StartStep};
