//! The admission layer: which workloads may start, with which flavors and where, by quota, order and fairness.
//!
//! In: queues, cohorts, flavors, nodes and workloads as plain values ([`spec`]), and the time. Out: decisions ([`Cycle`]): who is admitted with
//! what, who has to go for whom, who waits and why ([`reason`]). It follows Kueue's rules; [`Settings`] chooses among them.
//!
//! Reading order: [`spec`] (what goes in), [`tree`] (quota), [`assign`] (flavors), [`place`] (topologies), [`victims`] and [`fair`] (preemption),
//! [`line`] (who is next), [`state`] (who holds what), [`cycle`] (all of it together).
//!
//! *Invariant:* same input, same output. Time is an input, maps are ordered, ties are broken by names. What is tried is undone exactly.
//! *Absent on purpose:* clocks, I/O, threads, serialisation, Kubernetes objects, words for people.

pub mod ids;
pub mod spec;

pub mod settings;
pub mod tree;

mod share;

pub mod assign;
pub mod place;

pub mod order;
pub mod reduce;
pub mod victims;

pub mod fair;
pub mod ledger;
pub mod line;

pub mod cycle;
pub mod reason;
pub mod state;

pub use cycle::{Admitted, Cycle, Preempted, Recomputed, Waiting};
pub use settings::{FairSharing, FairStrategy, Gates, Settings, UsageSharing};
pub use share::Share;
pub use state::State;
