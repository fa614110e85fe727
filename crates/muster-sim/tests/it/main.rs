//! The simulation on the embedded API server, in process, on paused time.
//!
//! Each test is a story: objects go in, and a state must come about. Nothing here waits for a time on the wall.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod chaos;
mod cluster;
mod controllers;
mod faults;
mod nodes;
mod pods;
