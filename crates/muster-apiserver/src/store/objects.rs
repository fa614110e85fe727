//! The objects of a table.
//!
//! In: objects and keys. Out: the object of a key, or all of them in the order of their keys. Nearly every request is about one object, and there are a
//! hundred thousand: it is found by a hash, which looks at one key, where an ordered map looks at seventeen. The order is for lists, and is touched only
//! when an object comes or goes.
//!
//! What stays true: the keys in order are those of the objects.

use super::{Key, Stored};
use std::borrow::Borrow;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound;

#[derive(Clone, Default)]
pub(super) struct Objects {
    rows: HashSet<Row>,
    order: BTreeSet<Key>,
}

/// An object as its key says: one key, one row.
#[derive(Clone)]
struct Row(Stored);

impl Borrow<Key> for Row {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl Hash for Row {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Row {}

impl Objects {
    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.rows.get(key).map(|row| &row.0)
    }

    /// Puts an object in its place; out comes the one that was there.
    pub fn insert(&mut self, object: Stored) -> Option<Stored> {
        let key = object.key.clone();
        let before = self.rows.replace(Row(object));
        if before.is_none() {
            self.order.insert(key);
        }
        before.map(|row| row.0)
    }

    pub fn remove(&mut self, key: &Key) -> Option<Stored> {
        let row = self.rows.take(key)?;
        self.order.remove(key);
        Some(row.0)
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The objects from a key on, in order.
    pub fn from(&self, start: Bound<&Key>) -> impl Iterator<Item = &Stored> {
        self.order.range((start, Bound::Unbounded)).filter_map(|key| self.get(key))
    }

    /// The keys after a key, in order.
    pub fn keys_after(&self, key: &Key) -> impl Iterator<Item = &Key> {
        self.order.range((Bound::Excluded(key), Bound::Unbounded))
    }

    /// All objects in order.
    pub fn iter(&self) -> impl Iterator<Item = &Stored> {
        self.from(Bound::Unbounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Facts;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn object(name: u8, revision: u64) -> Stored {
        let key = Key::new(if name < 4 { "a" } else { "b" }, &name.to_string());
        Stored { key, revision, text: "{}".into(), facts: Arc::new(Facts::default()) }
    }

    proptest! {
        /// Whatever comes and goes, it is the ordered map that it stands for.
        #[test]
        fn it_is_an_ordered_map(steps in prop::collection::vec((0..8_u8, any::<bool>()), 0..40), from in 0..8_u8) {
            let mut got = Objects::default();
            let mut expected: BTreeMap<Key, u64> = BTreeMap::new();
            for (n, (name, is_put)) in (1..).zip(steps) {
                let object = object(name, n);
                let (had, has) = if is_put {
                    (expected.insert(object.key.clone(), n), got.insert(object))
                } else {
                    (expected.remove(&object.key), got.remove(&object.key))
                };
                prop_assert_eq!(has.map(|o| o.revision), had);
            }
            let shown = |o: &Stored| (o.key.clone(), o.revision);
            let from = object(from, 0).key;
            prop_assert_eq!(got.len(), expected.len());
            prop_assert!(got.iter().map(shown).eq(expected.clone()));
            prop_assert!(got.from(Bound::Excluded(&from)).map(shown).eq(
                expected.range((Bound::Excluded(&from), Bound::Unbounded)).map(|(k, v)| (k.clone(), *v))
            ));
            for name in 0..8 {
                let key = object(name, 0).key;
                prop_assert_eq!(got.get(&key).map(|o| o.revision), expected.get(&key).copied());
            }
        }
    }
}
