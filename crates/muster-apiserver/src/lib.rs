//! The embedded API server: what `kubectl` and `kube` talk to in `muster up` and in tests.
//!
//! A library first: [`ApiServer`] is a tower service, so a client can use it in process, on paused time, with no port. A
//! socket second: [`http::listen`] puts TLS and a bearer token in front of it. It is never what a production user runs.
//!
//! How a request goes: `path` says what it names, `registry` what is served there, `query` and `negotiate` how; then `read`,
//! `watch`, `write`, `delete` or `sub` answers it. A write passes `strategy` (the kind's own rules), `admission` and
//! `webhook` before it reaches the `store`. `gc` does in the background what follows from deletions.
//!
//! Where it was asked for, `guard` stands before requests from outside this process: `access` (RBAC), `fair` (turns), `audit` (the log).
//! Where it was not, roles are stored and never consulted, and whoever has the token may do everything.

pub mod access;
pub mod admission;
mod apart;
pub mod audit;
mod bootstrap;
pub mod clock;
pub mod crd;
mod delete;
mod derived;
mod discovery;
pub mod fair;
mod gc;
mod guard;
pub mod http;
pub mod identity;
mod meta;
pub mod negotiate;
mod openapi;
mod paced;
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
pub use service::Inside;
