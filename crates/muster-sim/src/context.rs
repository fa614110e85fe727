//! What every component is given: the API, the clock, the stores, the options.
//!
//! In: a client and options. Out: a [`Context`] that components clone. Must stay true: a store is watched once, however
//! many components read it; observers are all in place before the first list comes in.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::Options;
use crate::Stores;
use crate::api::{Api, Scope};
use crate::clock::Clock;
use crate::events::Events;
use crate::object::{Key, Node, Object, Pod};
use crate::store::Store;

#[derive(Clone)]
pub struct Context {
    pub api: Api,
    pub clock: Clock,
    pub events: Events,
    pub cancel: CancellationToken,
    pub options: Arc<Options>,
    pub pods: Arc<Store<Pod>>,
    pub nodes: Arc<Store<Node>>,
    bound: Arc<Mutex<HashMap<String, BTreeSet<Key>>>>,
    stores: Stores,
}

impl Context {
    pub fn new(
        api: Api,
        clock: Clock,
        events: Events,
        options: Arc<Options>,
        cancel: CancellationToken,
    ) -> Self {
        let api = api.named("kube-controller-manager");
        let stores = Stores::new(api.clone(), options.resync, cancel.clone());
        let (pods, nodes) = (stores.of(), stores.of());
        let bound = index_by_node(&pods);
        Context { api, clock, events, cancel, options, pods, nodes, bound, stores }
    }

    /// The same context, whose events come from this component.
    pub fn named(&self, component: &'static str) -> Self {
        Context { events: self.events.named("kube-controller-manager", component), ..self.clone() }
    }

    /// The same context for a program of its own, whose name is on its events and on what it writes.
    pub fn program(&self, name: &'static str, component: &'static str) -> Self {
        Context { api: self.api.named(name), events: self.events.named(name, component), ..self.clone() }
    }

    /// The pods that are bound to a node.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let keys =
            self.bound.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned().unwrap_or_default();
        keys.iter().filter_map(|key| self.pods.get(key)).filter(|p| p.spec.node_name == node).collect()
    }

    /// The store of a kind, made when first asked for.
    pub fn store<T: Object>(&self) -> Arc<Store<T>> {
        self.store_in(Scope::default())
    }

    /// The store of a kind in one namespace; a kind has one scope for all.
    pub fn store_in<T: Object>(&self, scope: Scope) -> Arc<Store<T>> {
        self.stores.within(scope)
    }

    /// The watches of every store that was asked for.
    pub fn take_watches(&self) -> Vec<BoxFuture<'static, ()>> {
        self.stores.take_watches()
    }

    /// Waits for stores; `None` when cancelled before.
    pub async fn synced(&self, all: impl IntoIterator<Item = impl Future<Output = ()>>) -> Option<()> {
        self.cancel.run_until_cancelled(futures::future::join_all(all)).await.map(|_| ())
    }
}

/// Keeps the names of the pods of each node.
fn index_by_node(pods: &Arc<Store<Pod>>) -> Arc<Mutex<HashMap<String, BTreeSet<Key>>>> {
    let bound: Arc<Mutex<HashMap<String, BTreeSet<Key>>>> = Arc::default();
    let index = bound.clone();
    pods.observe(move |change| {
        let node = |pod: Option<&Arc<Pod>>| pod.map_or("", |p| p.spec.node_name.as_str()).to_owned();
        let (old, new) = (node(change.old), node(change.new));
        if old == new {
            return;
        }
        let Some(key) = change.latest().map(|p| p.key()) else { return };
        let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = index.get_mut(&old) {
            keys.remove(&key);
            if keys.is_empty() {
                index.remove(&old);
            }
        }
        if !new.is_empty() {
            index.entry(new).or_default().insert(key);
        }
    });
    bound
}
