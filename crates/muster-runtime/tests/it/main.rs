//! The runtime against servers: leases on paused time, connections and probes over real sockets.

#![expect(clippy::unwrap_used, reason = "that is how tests fail")]

mod connect;
mod health;
mod lease;
