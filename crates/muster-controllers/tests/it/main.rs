//! The controllers on the embedded server, on virtual time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod cluster;
mod dialects;
mod scale;
mod status;
