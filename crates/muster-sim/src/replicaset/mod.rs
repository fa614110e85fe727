//! ReplicaSets: as many pods as asked for.
//!
//! `plan` says how many to create, which to delete and what the status is; `run` does it.

pub mod plan;
pub mod run;
