//! A very bad day, again and again: seeded chaos on a whole cluster in one process, and an auditor of what is really bound.
//!
//! In: a seed. Out: nothing, if all is well; else the seed, the step and what is wrong. [`world`] is the cluster, with processes
//! ([`process`]) that can be killed; [`steps`] is what happens to it, [`work`] what users submit; [`audit`] looks at every event at the
//! server, [`rest`] at what is left when the faults are over; [`run`] puts these together. [`mixes`] is the founding benchmark: gangs of
//! 64 that are placed whole or not at all. [`turns`] make one seed one
//! course. [`soak`] is the same chaos on the wall clock, with an eye on memory.
//!
//! *Invariant:* the auditor uses nothing of the scheduler but, at rest, a fresh engine that must find nothing to do.

pub mod admission;
pub mod audit;
pub mod front;
pub mod mixes;
pub mod process;
pub mod random;
pub mod rest;
pub mod run;
pub mod soak;
pub mod steps;
pub mod turns;
pub mod work;
pub mod world;
