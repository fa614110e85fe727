//! Hot path: sets of ids as bitsets. Set algebra works on whole words; iteration skips empty words and goes in order
//! of the ids.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

use fixedbitset::FixedBitSet;

use crate::Id;

/// A set of ids. One bit per id up to the largest one inserted, so ids must not come from outside.
///
/// Two sets are equal when they hold the same ids, whatever room they have.
///
/// ```
/// use dense::{IdSet, define_id};
/// define_id!(struct NodeId);
///
/// let ready: IdSet<NodeId> = [1, 2, 3].map(NodeId::new).into_iter().collect();
/// let full: IdSet<NodeId> = [3, 70].map(NodeId::new).into_iter().collect();
/// let usable = ready.and_not(&full);
/// assert_eq!(usable.iter().collect::<Vec<_>>(), [1, 2].map(NodeId::new));
/// assert_eq!(usable.first(), Some(NodeId::new(1)));
/// assert_eq!(ready.or(&full).count(), 4);
/// ```
#[derive(Clone)]
pub struct IdSet<I> {
    bits: FixedBitSet,
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id> IdSet<I> {
    /// Empty, with no room.
    pub const fn new() -> Self {
        IdSet { bits: FixedBitSet::new(), ids: PhantomData }
    }

    /// Empty, with room for the ids `0..n`.
    pub fn with_room(n: usize) -> Self {
        FixedBitSet::with_capacity(n).into()
    }

    /// The ids `0..n`.
    pub fn full(n: usize) -> Self {
        let mut bits = FixedBitSet::with_capacity(n);
        bits.insert_range(..);
        bits.into()
    }

    /// Adds an id; tells whether it was absent.
    #[inline]
    pub fn insert(&mut self, id: I) -> bool {
        let was_absent = !self.contains(id);
        self.bits.grow_and_insert(id.index());
        was_absent
    }

    /// Takes an id out; tells whether it was present.
    #[inline]
    pub fn remove(&mut self, id: I) -> bool {
        let was_present = self.contains(id);
        if was_present {
            self.bits.remove(id.index());
        }
        was_present
    }

    /// Adds an id or takes it out.
    #[inline]
    pub fn set(&mut self, id: I, present: bool) {
        if present {
            self.insert(id);
        } else {
            self.remove(id);
        }
    }

    /// Whether the id is in the set.
    #[inline]
    pub fn contains(&self, id: I) -> bool {
        self.bits.contains(id.index())
    }

    /// Takes all ids out and keeps the room.
    pub fn clear(&mut self) {
        self.bits.clear();
    }

    /// How many ids there are.
    pub fn count(&self) -> usize {
        self.bits.count_ones(..)
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.bits.is_clear()
    }

    /// The smallest id.
    pub fn first(&self) -> Option<I> {
        self.bits.minimum().map(I::from_index)
    }

    /// The largest id.
    pub fn last(&self) -> Option<I> {
        self.bits.maximum().map(I::from_index)
    }

    /// The smallest id that is not below `from`: where a search that goes round continues.
    pub fn first_from(&self, from: I) -> Option<I> {
        let words = self.bits.as_slice();
        let word_bits = usize::BITS as usize;
        let start = from.index() / word_bits;
        let mut keep = usize::MAX << (from.index() % word_bits);
        for (word_idx, word) in words.iter().enumerate().skip(start) {
            let word = word & keep;
            if word != 0 {
                return Some(I::from_index(word_idx * word_bits + word.trailing_zeros() as usize));
            }
            keep = usize::MAX;
        }
        None
    }

    /// The ids, from small to large.
    pub fn iter(&self) -> Iter<'_, I> {
        Iter { ones: self.bits.ones(), ids: PhantomData }
    }

    /// The ids that are in both sets, from small to large, without a set in between.
    pub fn iter_and<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = I> + 'a {
        self.bits.intersection(&other.bits).map(I::from_index)
    }

    /// Keeps the ids that are also in `other`.
    pub fn intersect_with(&mut self, other: &Self) {
        self.bits.intersect_with(&other.bits);
    }

    /// Adds the ids of `other`.
    pub fn union_with(&mut self, other: &Self) {
        self.bits.union_with(&other.bits);
    }

    /// Takes the ids of `other` out.
    pub fn difference_with(&mut self, other: &Self) {
        self.bits.difference_with(&other.bits);
    }

    /// The ids in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.intersect_with(other);
        result
    }

    /// The ids in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.union_with(other);
        result
    }

    /// The ids in this set that are not in the other.
    #[must_use]
    pub fn and_not(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.difference_with(other);
        result
    }

    /// How many ids are in both sets, without a set in between.
    pub fn count_and(&self, other: &Self) -> usize {
        self.bits.intersection_count(&other.bits)
    }

    /// Whether no id is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.bits.is_disjoint(&other.bits)
    }

    /// Whether every id of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.bits.is_subset(&other.bits)
    }

    /// Keeps the ids for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(I) -> bool) {
        let word_bits = usize::BITS as usize;
        for (word_idx, word) in self.bits.as_mut_slice().iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !keep(I::from_index(word_idx * word_bits + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// The words up to the last one that is not zero: the same for equal sets.
    fn words(&self) -> &[usize] {
        let words = self.bits.as_slice();
        let n_used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        &words[..n_used]
    }
}

/// The ids of an [`IdSet`], from small to large.
pub struct Iter<'a, I> {
    ones: fixedbitset::Ones<'a>,
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id> Iterator for Iter<'_, I> {
    type Item = I;

    #[inline]
    fn next(&mut self) -> Option<I> {
        self.ones.next().map(I::from_index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ones.size_hint()
    }
}

impl<I: Id> DoubleEndedIterator for Iter<'_, I> {
    fn next_back(&mut self) -> Option<I> {
        self.ones.next_back().map(I::from_index)
    }
}

impl<'a, I: Id> IntoIterator for &'a IdSet<I> {
    type Item = I;
    type IntoIter = Iter<'a, I>;
    fn into_iter(self) -> Iter<'a, I> {
        self.iter()
    }
}

impl<I: Id> PartialEq for IdSet<I> {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl<I: Id> Eq for IdSet<I> {}

impl<I: Id> Hash for IdSet<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

impl<I> Default for IdSet<I> {
    fn default() -> Self {
        FixedBitSet::new().into()
    }
}

impl<I> From<FixedBitSet> for IdSet<I> {
    fn from(bits: FixedBitSet) -> Self {
        IdSet { bits, ids: PhantomData }
    }
}

impl<I: Id> FromIterator<I> for IdSet<I> {
    fn from_iter<It: IntoIterator<Item = I>>(ids: It) -> Self {
        let mut set = IdSet::new();
        set.extend(ids);
        set
    }
}

impl<I: Id> Extend<I> for IdSet<I> {
    fn extend<It: IntoIterator<Item = I>>(&mut self, ids: It) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl<I: Id> fmt::Debug for IdSet<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
