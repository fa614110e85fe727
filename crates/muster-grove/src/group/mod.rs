//! PodCliqueScalingGroups: cliques that scale as one, in one replica of a set.
//!
//! `plan` says which cliques come and go and what is true of the group, `run` does it.

pub mod plan;
pub mod run;
