//! The stores of a process: each kind is watched once, however many components read it.
//!
//! In: a client. Out: a [`Store`] of any kind that is asked for, and the watches that fill them. Must stay true:
//! observers are all in place before the first list comes in, since watches start only when they are taken.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Scope};
use crate::object::Object;
use crate::store::Store;

#[derive(Clone)]
pub struct Stores {
    api: Api,
    resync: Duration,
    cancel: CancellationToken,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    stores: HashMap<TypeId, Box<dyn Any + Send>>,
    watches: Vec<BoxFuture<'static, ()>>,
}

impl Stores {
    /// Every store is listed again each `resync`, so that even a watch that loses an event in silence is set right.
    pub fn new(api: Api, resync: Duration, cancel: CancellationToken) -> Self {
        Stores { api, resync, cancel, known: Arc::default() }
    }

    /// The store of a kind, made when first asked for.
    pub fn of<T: Object>(&self) -> Arc<Store<T>> {
        self.within(Scope::default())
    }

    /// The store of a kind in one namespace; a kind has one scope for all.
    pub fn within<T: Object>(&self, scope: Scope) -> Arc<Store<T>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known.stores.get(&TypeId::of::<T>())
            && let Some(store) = store.downcast_ref::<Arc<Store<T>>>()
        {
            return store.clone();
        }
        let store = Store::<T>::new(self.api.clone(), scope);
        known.stores.insert(TypeId::of::<T>(), Box::new(store.clone()));
        known.watches.push(Box::pin(store.clone().run(self.resync, self.cancel.clone())));
        store
    }

    /// The watches of every store that was asked for since the last time.
    pub fn take_watches(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner).watches)
    }
}
