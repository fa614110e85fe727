//! The binder on the embedded API server with simulated kubelets, in process, on paused time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod cluster;
mod faults;
mod gang;
mod plain;
mod reservations;
mod service;
mod speed;
mod steps;
