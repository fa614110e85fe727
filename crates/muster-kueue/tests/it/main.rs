//! Kueue on the embedded server, with simulated nodes, on paused time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod breadth;
mod cluster;
mod stories;
