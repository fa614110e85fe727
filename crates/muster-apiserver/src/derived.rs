//! What is made from whole tables, and made again once one of them has changed. In: names of tables and how to make it. Out: the value, shared.
//!
//! For what every write asks of tables that hardly ever change. Must stay true: whoever was told that a write of such a table happened finds
//! it taken into account.

use crate::store::{Revision, Store, Table};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// A value made from tables.
pub struct Derived<T>(RwLock<Option<Made<T>>>);

struct Made<T> {
    feeds: Vec<watch::Receiver<Revision>>,
    value: Arc<T>,
}

impl<T> Default for Derived<T> {
    fn default() -> Derived<T> {
        Derived(RwLock::default())
    }
}

impl<T> Derived<T> {
    /// The value for the tables as they are now.
    pub fn get(&self, store: &dyn Store, tables: &[&str], make: impl FnOnce() -> T) -> Arc<T> {
        {
            let made = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = made.as_ref()
                && made.feeds.iter().all(|feed| matches!(feed.has_changed(), Ok(false)))
            {
                return made.value.clone();
            }
        }
        // Subscribed before reading: what changes meanwhile is read again next time.
        let feeds = tables.iter().map(|table| store.subscribe(&Table::from(*table))).collect();
        let value = Arc::new(make());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Made { feeds, value: value.clone() });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Draft, Expect, Facts, Key, Memory};

    #[test]
    fn it_is_made_again_when_a_table_has_changed() {
        let (store, derived) = (Memory::default(), Derived::default());
        let count = || *derived.get(&store, &["things", "others"], || store.len("things"));
        let put = |table: &str, name: &str| {
            let draft = Draft::new("{\"r\":", "}", Facts::default());
            store.put(&Table::from(table), &Key::new("", name), Expect::Absent, draft).expect("it is new");
        };
        assert_eq!(count(), 0);
        put("things", "a");
        put("things", "b");
        assert_eq!(count(), 2);
        // It is not even asked for while nothing changes.
        assert_eq!(*derived.get(&store, &["things"], || unreachable!()), 2);
        put("others", "c");
        put("elsewhere", "d");
        assert_eq!(count(), 2);
    }
}
