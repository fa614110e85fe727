//! The binder on the embedded API server with simulated kubelets, in process, on paused time; and once on a real one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod cluster;
mod faults;
mod gang;
mod plain;
mod real;
mod reservations;
mod service;
mod speed;
mod steps;
