//! The server in process, with no socket: behaviour that needs more than one request, and laws.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how a test fails")]

mod access;
mod api;
mod bookkeeping;
mod collection;
mod custom;
mod durable;
mod guard;
mod hostile;
mod kill;
mod policies;
mod races;
mod socket;
mod watching;
mod webhooks;
