//! Carries out placements.
//!
//! In: an [`Assignment`]: which pod goes to which node, and what it gets there. Out: the pod is bound, or a
//! [`BindError`] that says whether trying again can help. Two ways, one code path: *inline*, a scheduler calls a
//! [`Binder`]; *service*, [`start`] watches BindRequests. [`reservations`] keeps the pods that hold shared GPUs.
//!
//! Most pods need one request: the Binding. The others (parts of GPUs, volumes that wait for their first consumer,
//! device claims) need [`steps`] first; for these there is always a BindRequest, so that a crash forgets nothing.
//!
//! *Invariant:* every step looks before it acts, so running it again changes nothing; a step that ran can be undone.
//! *Invariant:* the Binding comes last: a bound pod has everything. *Invariant:* no decision is made here: what cannot
//! be carried out is given back with the reason.

pub mod assignment;
pub mod error;
pub mod reservations;
pub mod service;
pub mod steps;

mod binder;
mod binding;
mod evict;
mod options;

pub use assignment::{Assignment, Malformed, Received};
pub use binder::Binder;
pub use error::{BindError, Bound};
pub use evict::evict;
pub use options::{Options, Reservation};
pub use service::start;
