//! The status of queues: what they and those below them ask for and hold, who is below them, and what is odd about them.
//!
//! | condition | true when |
//! |---|---|
//! | `Orphan` | the parent that it names does not exist, or the way up leads back to it |
//! | `OverQuota` | it holds more than its quota of a resource |
//!
//! A condition is written once it has been true, and kept true from then on.

pub mod plan;
pub mod run;
