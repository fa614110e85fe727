//! What every service stands on.
//!
//! In: a `kube::Client`. Out: requests to an API server ([`Api`]), collections that are watched ([`Store`], [`Stores`],
//! and [`follow`](mod@follow) for those who keep their own books), queues of keys to look at ([`queue`]), events for people
//! ([`events`]), leases, and one [`Clock`].
//!
//! *Invariant:* no policy: nothing here knows what a gang or a queue of pods is. *Invariant:* all time is tokio's, so a
//! paused runtime makes it virtual. *Invariant:* every request ends; what retries says so.

pub mod api;
pub mod clock;
pub mod common;
pub mod events;
pub mod follow;
pub mod json;
pub mod object;
pub mod queue;
pub mod store;

mod context;
mod stores;

pub use api::{Api, ApiError};
pub use clock::Clock;
pub use context::Context;
pub use events::Events;
pub use object::{Key, Object};
pub use store::Store;
pub use stores::Stores;
