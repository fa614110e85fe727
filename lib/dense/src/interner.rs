//! Names to ids and back. In: keys, in any order and as often as one likes. Out: one id per different key, counted
//! from zero in the order of first sight, so that the same input always gives the same ids.

use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::marker::PhantomData;
use core::ops::Index;

use indexmap::{Equivalent, IndexSet};
use rustc_hash::FxBuildHasher;

use crate::Id;

/// Gives each different key an id. Ids are never given back.
///
/// The hash is fast and has no random seed. Someone who picks the keys can make them collide, so put a bound on how
/// many keys an outsider may have interned.
///
/// ```
/// use dense::{Interner, define_id};
/// define_id!(struct LabelId);
///
/// let mut labels: Interner<LabelId, String> = Interner::new();
/// let zone = labels.intern("zone".to_owned());
/// assert_eq!(labels.intern_ref("zone"), zone);
/// assert_eq!(labels.get("rack"), None);
/// assert_eq!(labels[zone], "zone");
/// ```
#[derive(Clone)]
pub struct Interner<I, K> {
    keys: IndexSet<K, FxBuildHasher>,
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id, K: Hash + Eq> Interner<I, K> {
    /// Empty.
    pub const fn new() -> Self {
        Interner { keys: IndexSet::with_hasher(FxBuildHasher), ids: PhantomData }
    }

    /// Empty, with room for `n` keys.
    pub fn with_capacity(n: usize) -> Self {
        Interner { keys: IndexSet::with_capacity_and_hasher(n, FxBuildHasher), ids: PhantomData }
    }

    /// The id of a key, a new one at first sight.
    pub fn intern(&mut self, key: K) -> I {
        I::from_index(self.keys.insert_full(key).0)
    }

    /// The id of a borrowed key, which is copied at first sight only.
    pub fn intern_ref<Q>(&mut self, key: &Q) -> I
    where
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
        K: Borrow<Q>,
    {
        match self.keys.get_index_of(key) {
            Some(index) => I::from_index(index),
            None => self.intern(key.to_owned()),
        }
    }

    /// The id of a key that was seen before.
    pub fn get<Q>(&self, key: &Q) -> Option<I>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.keys.get_index_of(key).map(I::from_index)
    }

    /// The key of an id, if this interner gave it out.
    pub fn resolve(&self, id: I) -> Option<&K> {
        self.keys.get_index(id.index())
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, K> {
        (0..self.keys.len()).map(I::from_index)
    }

    /// Ids with their keys, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &K)> + ExactSizeIterator {
        self.keys.iter().enumerate().map(|(index, key)| (I::from_index(index), key))
    }
}

impl<I: Id, K: Hash + Eq> Index<I> for Interner<I, K> {
    type Output = K;
    fn index(&self, id: I) -> &K {
        &self.keys[id.index()]
    }
}

impl<I, K> Default for Interner<I, K> {
    fn default() -> Self {
        Interner { keys: IndexSet::with_hasher(FxBuildHasher), ids: PhantomData }
    }
}

impl<I: Id, K: Hash + Eq> FromIterator<K> for Interner<I, K> {
    fn from_iter<It: IntoIterator<Item = K>>(keys: It) -> Self {
        Interner { keys: keys.into_iter().collect(), ids: PhantomData }
    }
}

impl<I: Id, K: Hash + Eq + fmt::Debug> fmt::Debug for Interner<I, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
