//! The scheduler as a service: watches to decisions to bindings.
//!
//! In: a cluster, by a client, and a policy. Out: pods on nodes, and reasons for those that wait.
//! [`ingest`] follows what scheduling looks at and decodes it; [`core`] holds what is known, asks the engine, and takes for granted what
//! was decided; [`publish`] carries it out; [`service`] runs the cycle. Gangs of several systems are treated in one cycle, each by its own rules; what
//! Volcano's groups say is in `volcano`, its configuration file is followed by `config`. [`hold`] keeps places for pods to come.
//!
//! *Invariant:* no policy: what is decided is the engine's, this carries values there and back. *Invariant:* state lives in the
//! cluster only; after a crash everything is found again.

mod config;
pub mod core;
pub mod hold;
pub mod ingest;
mod measure;
pub mod publish;
pub mod record;
pub mod service;
mod slim;
mod volcano;
mod words;

pub use hold::{Hold, HoldSet, Holds};
pub use publish::{BindMode, Limits};
pub use service::{Options, start, start_with};
