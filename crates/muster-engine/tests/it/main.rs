//! The laws of the engine: what must be true of its decisions whatever the cluster is.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

mod hostile;
mod lives;
mod oracle;
mod shares;
mod world;
