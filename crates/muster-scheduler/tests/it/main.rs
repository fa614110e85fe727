//! The scheduler against the embedded server and simulated nodes, in one process on virtual time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod cluster;
mod gangs;
mod volcano;
