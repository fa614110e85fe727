//! PodCliqueSets: what users write.
//!
//! `plan` says which objects a set should have, `update` rolls changes out over its replicas, `terminate` tears replicas down
//! that are below their minimum for too long, `status` says how the set is; `run` does it.

pub mod plan;
pub mod run;
pub mod status;
pub mod terminate;
pub mod update;
