//! Admission against the embedded server, over HTTPS on loopback, on the wall clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod admission;
mod cluster;
mod kueue;
mod listener;
