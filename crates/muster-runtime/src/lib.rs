//! What every service stands on.
//!
//! In: a [`Client`]. Out: requests to an API server ([`Api`]), collections that are watched ([`Store`], [`Stores`],
//! and [`follow`](mod@follow) for those who keep their own books), queues of keys to look at ([`queue`]), events for people
//! ([`events`]), leases ([`lease`]), and one [`Clock`]; and what a process needs around them: a way to connect ([`connect`](mod@connect)),
//! probes ([`health`]), [`metrics`] and [`logs`].
//!
//! *Invariant:* no policy: nothing here knows what a gang or a queue of pods is. *Invariant:* all time is tokio's, so a
//! paused runtime makes it virtual. *Invariant:* every request ends; what retries says so.

pub mod api;
pub mod client;
pub mod clock;
pub mod common;
pub mod connect;
pub mod events;
pub mod findings;
pub mod follow;
pub mod health;
pub mod json;
pub mod lease;
pub mod logs;
pub mod metrics;
pub mod object;
pub mod queue;
pub mod spelling;
pub mod store;

mod context;
mod objects;
mod stores;
mod strings;
mod word;

pub use api::{Api, ApiError};
pub use client::Client;
pub use clock::Clock;
pub use connect::{Connect, connect};
pub use context::{Context, RESYNC};
pub use events::Events;
pub use health::Health;
pub use metrics::Metrics;
pub use object::{Key, Object};
pub use store::Store;
pub use stores::Stores;
