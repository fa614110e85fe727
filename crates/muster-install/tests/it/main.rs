//! The manifests and the operator against the embedded API server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails says so by panicking")]

mod accepted;
mod cluster;
mod generated;
mod operated;
