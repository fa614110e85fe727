//! PodGangs: what schedulers are told of a set.
//!
//! `plan` says what a gang should be and what is true of it; `run` keeps it so and hands it to its backend.

pub mod plan;
pub mod run;
pub mod score;
