//! Reconcilers: what gangs and queues ask for and hold, and capacity for those that wait.
//!
//! In: pods, pod groups, queues, nodes as a cluster's API shows them. Out: the statuses of pod groups and queues
//! ([`status`], and of other systems' [`dialects`]), and whatever makes an autoscaler bring nodes for fractions of GPUs and for whole gangs ([`scale`]).
//! Each service is `start(&Context, Options)`: observers are in place when it returns, and its future works until cancelled.
//!
//! *Invariant:* no decision about placing is made here. *Invariant:* statuses yield to scheduling: their number per second is
//! bounded, and smaller while pods are being placed. *Invariant:* everything kept in memory can be counted again from the
//! cluster, so that a restart writes nothing that is already there.

pub mod status;

pub mod accounts;
pub mod podgroups;
pub mod queues;

pub mod dialects;
pub mod scale;

pub mod amounts;
pub mod request;

mod conditions;
mod optional;
mod pace;

pub use optional::Optional;
pub use pace::{Pace, Rates};
