//! A first-fit scheduler for plain pods.
//!
//! It is here so that the simulation is a whole cluster by itself. Muster's own engine replaces it: nothing else in
//! this crate depends on this folder.

pub mod plan;
pub mod run;
