//! PodCliques: the pods of one role in one replica of a set.
//!
//! `pods` makes a pod, `plan` says which pods come, go and are let go of, `run` does it.

pub mod plan;
pub mod pods;
pub mod run;
