//! The objects of a store, by key and by controller.
//!
//! In: objects as they come and go. Out: the object of a key, those of a controller, and all of them in the order of their keys. Nearly every look is
//! for one object of tens of thousands: it is found by a hash, which looks at one key, where an ordered map looks at seventeen, each of them somewhere
//! else in memory. Whoever wants many objects in order pays for the order.
//!
//! What stays true: an object is under the controller that it names itself, or among the orphans of its namespace. Names are not kept beside objects, which
//! say them already.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::object::{Key, Object};

pub(crate) struct Objects<T> {
    /// By namespace, then by name.
    rows: HashMap<String, HashSet<Row<T>>>,
    /// Keys by controller uid.
    owned: HashMap<String, BTreeSet<Key>>,
    /// Keys of objects without a controller.
    orphans: BTreeSet<Key>,
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Objects { rows: HashMap::new(), owned: HashMap::new(), orphans: BTreeSet::new() }
    }
}

impl<T: Object> Objects<T> {
    pub fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.rows.get(&key.namespace)?.get(key.name.as_str()).map(|row| &row.0)
    }

    pub fn len(&self) -> usize {
        self.rows.values().map(HashSet::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        // A namespace whose last object went is forgotten.
        self.rows.is_empty()
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.rows.values().flatten().map(|row| &row.0)
    }

    /// All objects, in the order of their keys.
    pub fn sorted(&self) -> Vec<Arc<T>> {
        sorted(self.iter())
    }

    /// The objects of a namespace, in the order of their keys.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        sorted(self.rows.get(namespace).into_iter().flatten().map(|row| &row.0))
    }

    /// The objects that the owner with this uid controls, in the order of their keys.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<T>> {
        self.owned.get(uid).into_iter().flatten().filter_map(|key| self.get(key))
    }

    /// The objects of a namespace that nobody controls, in the order of their keys.
    pub fn orphans_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        let from = self.orphans.range(Key::new(namespace, "")..);
        from.take_while(move |key| key.namespace == namespace).filter_map(|key| self.get(key))
    }

    /// Puts an object in its place; out comes the one that was there.
    pub fn insert(&mut self, object: Arc<T>) -> Option<Arc<T>> {
        let namespace = &object.meta().namespace;
        if !self.rows.contains_key(namespace) {
            self.rows.insert(namespace.clone(), HashSet::new());
        }
        let old = self.rows.get_mut(namespace)?.replace(Row(object.clone())).map(|row| row.0);
        // Nearly every change leaves the controller as it is.
        if old.as_deref().is_none_or(|old| controller_uid(old) != controller_uid(&*object)) {
            if let Some(old) = &old {
                self.unlink(old);
            }
            match controller_uid(&*object) {
                Some(uid) => self.owned.entry(uid.to_owned()).or_default().insert(object.key()),
                None => self.orphans.insert(object.key()),
            };
        }
        old
    }

    pub fn remove(&mut self, key: &Key) -> Option<Arc<T>> {
        let rows = self.rows.get_mut(&key.namespace)?;
        let old = rows.take(key.name.as_str())?.0;
        if rows.is_empty() {
            self.rows.remove(&key.namespace);
        }
        self.unlink(&old);
        Some(old)
    }

    fn unlink(&mut self, old: &Arc<T>) {
        let key = old.key();
        match controller_uid(&**old) {
            Some(uid) => {
                if let Some(keys) = self.owned.get_mut(uid) {
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.owned.remove(uid);
                    }
                }
            }
            None => {
                self.orphans.remove(&key);
            }
        }
    }
}

fn controller_uid<T: Object>(object: &T) -> Option<&str> {
    object.meta().controller().map(|owner| owner.uid.as_str())
}

fn sorted<'a, T: Object>(objects: impl Iterator<Item = &'a Arc<T>>) -> Vec<Arc<T>> {
    fn place<T: Object>(object: &Arc<T>) -> (&str, &str) {
        (&object.meta().namespace, &object.meta().name)
    }
    let mut objects: Vec<Arc<T>> = objects.cloned().collect();
    objects.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
    objects
}

/// An object as its name says: within a namespace, one name, one row.
struct Row<T>(Arc<T>);

impl<T: Object> Borrow<str> for Row<T> {
    fn borrow(&self) -> &str {
        &self.0.meta().name
    }
}

impl<T: Object> Hash for Row<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.meta().name.hash(state);
    }
}

impl<T: Object> PartialEq for Row<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.meta().name == other.0.meta().name
    }
}

impl<T: Object> Eq for Row<T> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::{Pod, pod};

    proptest! {
        /// Whatever comes and goes, and whoever owns it: it is the ordered map that it stands for.
        #[test]
        fn it_is_an_ordered_map(steps in prop::collection::vec((0..6_u8, 0..4_u8), 0..60)) {
            let mut objects = Objects::<Pod>::default();
            let mut expected: BTreeMap<Key, (u64, String)> = BTreeMap::new();
            for (n, (name, owner)) in (1..).zip(steps) {
                let key = Key::new("ns", name.to_string());
                let (had, has) = if owner == 3 {
                    (expected.remove(&key), objects.remove(&key))
                } else {
                    let owner = ["", "o", "p"][usize::from(owner)];
                    let object = Arc::new(pod(&key.name, &key.name, n, owner));
                    (expected.insert(key, (n, owner.to_owned())), objects.insert(object))
                };
                prop_assert_eq!(has.map(|o| o.meta().version()), had.map(|h| h.0));
            }
            let versions = |objects: Vec<&Arc<Pod>>| objects.iter().map(|o| o.meta().version()).collect::<Vec<_>>();
            let of = |owner: &str| expected.values().filter(|e| e.1 == owner).map(|e| e.0).collect::<Vec<_>>();
            let sorted = objects.sorted();
            prop_assert_eq!(objects.len(), expected.len());
            prop_assert_eq!(objects.is_empty(), expected.is_empty());
            prop_assert_eq!(versions(objects.in_namespace("ns").iter().collect()), versions(sorted.iter().collect()));
            prop_assert!(objects.in_namespace("other").is_empty());
            prop_assert_eq!(versions(sorted.iter().collect()), expected.values().map(|e| e.0).collect::<Vec<_>>());
            prop_assert_eq!(versions(objects.owned_by("o").collect()), of("o"));
            prop_assert_eq!(versions(objects.owned_by("p").collect()), of("p"));
            prop_assert_eq!(versions(objects.orphans_in("ns").collect()), of(""));
            for (key, (version, _)) in &expected {
                prop_assert_eq!(objects.get(key).map(|o| o.meta().version()), Some(*version));
            }
        }
    }
}
