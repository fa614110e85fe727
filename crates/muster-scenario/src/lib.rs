//! Scenarios: a cluster, some cycles and what must come out. Read, run, compared, reported.
//!
//! In: scenario files (the user's YAML, or cases as lines of JSON), which become [`Case`] values. [`play`] runs a case on the engine
//! and gives an [`Outcome`]; [`compare`] holds it against what the case expects, up to the symmetries that the case declares;
//! [`actual`] writes the outcome in the form of an expectation. [`Suite`] does all of this for files and folders, which is what
//! `muster test` runs. [`words`] says reasons and remedies, for people and as JSON.
//!
//! *Invariant:* the same files give the same report. Only `files` reads from disk; nothing reads a clock.

mod case;
mod expect;
mod fields;
mod shorthand;

mod front;
mod play;

mod actual;
mod compare;

mod files;
mod manifest;
mod report;
mod suite;

pub mod kueue;
pub mod volcano;
pub mod words;

pub use actual::{actual, cycles_json};
pub use case::{Case, DEFAULT_NOW, Evicted, Symmetry, cases_of, is_scenario};
pub use compare::{Mismatch, compare};
pub use expect::{Counts, Expect, GroupExpect, Limits, NodeExpect, Phase, PodExpect, QueueExpect, WhyExpect};
pub use fields::Problem;
pub use files::{FileError, object_files, read_text, scenario_files};
pub use manifest::{flatten, manifests, objects_of};
pub use play::{
    CycleOutcome, Decided, GangOutcome, Moment, NodeOutcome, Outcome, Place, PlayError, PodOutcome, Setup,
    next_cluster, play, play_with, setup,
};
pub use report::{Report, Verdict, Written};
pub use suite::{FileCount, Options, Suite};
