//! The engine: a cluster and a policy in, decisions with reasons out.
//!
//! [`Engine::apply`] takes changes, [`Engine::cycle`] decides. Same input, same output, to the byte: there is no clock, no I/O and no
//! randomness here; time and seed are inputs.
//!
//! *Invariant:* applying changes one by one, in any grouping, leaves the same state as building from the final cluster.
//! *Invariant:* every tentative step goes through an undo log; what is not committed leaves no trace.
//!
//! Reading order: `engine`, `cycle`, then `place` (a node for a pod) and `solve` (victims for a gang), then what they stand on.

mod engine;

mod cycle;
mod place;
mod rights;
mod solve;

mod explain;
mod figures;
mod order;

mod claims;
mod classes;
mod gangs;
mod ids;
mod nodes;
mod queues;
mod shares;
mod state;
mod topology;

mod volcano;

pub mod audit;
pub mod company;
pub mod devices;
pub mod divide;
pub mod links;
pub mod numa;

pub use engine::Engine;
pub use figures::{Figures, QueueFigures, Tables};
pub use volcano::probe::{Answer, Question};
