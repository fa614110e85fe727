//! The embedded API server: what `kubectl` and `kube` talk to in `muster up` and in tests.
//!
//! A library first: [`ApiServer`] is a tower service, so a client can use it in process, on paused time, with no port. A
//! socket second: [`http::listen`] puts TLS and a bearer token in front of it. It is never what a production user runs.
//!
//! How a request goes: `path` says what it names, `registry` what is served there, `query` and `negotiate` how; then `read`,
//! `watch`, `write`, `delete` or `sub` answers it. A write passes `strategy` (the kind's own rules), `admission` and
//! `webhook` before it reaches the `store`. `gc` does in the background what follows from deletions.
//!
//! Not enforced here, on purpose: RBAC objects are stored and never consulted; whoever has the token may do everything.

pub mod admission;
mod apart;
mod bootstrap;
pub mod clock;
pub mod crd;
mod delete;
mod discovery;
mod gc;
pub mod http;
pub mod identity;
mod meta;
pub mod negotiate;
mod openapi;
pub mod path;
pub mod query;
mod read;
mod recent;
pub mod registry;
mod reply;
pub mod selector;
mod server;
mod service;
mod services;
mod settle;
pub mod status;
pub mod store;
mod strategy;
mod sub;
mod table;
mod watch;
mod webhook;
mod write;

pub use clock::Clock;
pub use k8s_builtin::KubeVersion;
pub use reply::Body;
pub use server::{ApiServer, Converter, Options};
