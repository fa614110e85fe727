//! Nodes that fall silent: they are marked, tainted, and their pods are evicted.
//!
//! `plan` holds the rules for conditions, taints, evictions and pods of nodes that are gone; `run` watches leases and
//! does it.

pub mod plan;
pub mod run;
