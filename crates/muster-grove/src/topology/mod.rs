//! ClusterTopologyBindings: the levels of a cluster, and the topologies of schedulers that mirror them.
//!
//! `plan` says which topologies to make and what is true of the binding, `run` does it.

pub mod plan;
pub mod run;
