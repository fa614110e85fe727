//! Grove on the embedded server, with simulated nodes and Muster's own scheduler, on paused time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod cluster;
mod gangs;
mod packs;
mod play;
mod samples;
mod shared;
mod stories;
mod topologies;
mod updates;
mod upstream;
mod walk;
