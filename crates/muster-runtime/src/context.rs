//! What every service is given.
//!
//! In: a client. Out: a [`Context`] that services clone. A service is a function `start(&Context, Options)` that puts its
//! observers on the stores it needs and returns its future; once all services of a process are started, [`Context::watch`]
//! begins to fill the stores. Must stay true: observers are in place before the first list comes in.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::client::Client;
use crate::clock::Clock;
use crate::events::Events;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::stores::Stores;

/// Every store is listed again this often, although watches tell everything: at most for so long anything goes wrong that went by in silence.
/// Not more often, for a list of a hundred thousand pods is work for both sides.
pub const RESYNC: Duration = Duration::from_secs(30 * 60);

#[derive(Clone)]
pub struct Context {
    pub api: Api,
    pub clock: Clock,
    pub events: Events,
    pub stores: Stores,
    pub metrics: Metrics,
    /// Where services say whether they are ready and alive.
    pub health: Health,
    pub cancel: CancellationToken,
}

impl Context {
    /// A context, and the task that writes its events.
    pub fn new(
        client: impl Into<Client>,
        program: &'static str,
        clock: Clock,
        cancel: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        Context::reporting(client, program, clock, cancel, Metrics::default(), Health::default())
    }

    /// A context that counts and reports where others do already.
    pub fn reporting(
        client: impl Into<Client>,
        program: &'static str,
        clock: Clock,
        cancel: CancellationToken,
        metrics: Metrics,
        health: Health,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let api = Api::new(client, program).counted(metrics.clone());
        let (events, write_events) = Events::start(api.clone(), clock, cancel.clone());
        let stores = Stores::new(api.clone(), RESYNC, cancel.clone());
        let events = events.named(program, program);
        (Context { api, clock, events, stores, metrics, health, cancel }, write_events)
    }

    /// The same context under the name of a service: on its events and on what it writes.
    pub fn named(&self, service: &'static str) -> Self {
        Context { api: self.api.named(service), events: self.events.named(service, service), ..self.clone() }
    }

    /// Starts the watches of every store that was asked for.
    pub fn watch(&self, tasks: &mut JoinSet<()>) {
        for watch in self.stores.take_watches() {
            tasks.spawn(watch);
        }
    }

    /// Waits for stores; `None` when cancelled before.
    pub async fn synced(&self, all: impl IntoIterator<Item = impl Future<Output = ()>>) -> Option<()> {
        self.cancel.run_until_cancelled(futures::future::join_all(all)).await.map(|_| ())
    }
}
