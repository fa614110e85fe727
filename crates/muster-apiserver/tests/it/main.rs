//! The server in process, with no socket: behaviour that needs more than one request, and laws.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how a test fails")]

mod api;
mod bookkeeping;
mod collection;
mod custom;
mod durable;
mod hostile;
mod kill;
mod races;
mod watching;
mod webhooks;
