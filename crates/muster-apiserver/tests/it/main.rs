//! The server in process, with no socket: behaviour that needs more than one request, and laws.

mod api;
mod collection;
mod custom;
mod hostile;
mod races;
mod watching;
mod webhooks;
