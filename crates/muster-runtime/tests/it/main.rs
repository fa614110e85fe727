//! The runtime against servers: near and far, leases on paused time, connections and probes over real sockets.

#![expect(clippy::unwrap_used, reason = "that is how tests fail")]

mod client;
mod connect;
mod follow;
mod health;
mod lease;
mod store;
