//! The grouper on the embedded server, with the simulated controllers that make pods, on paused time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod cluster;
mod groups;
