//! Hot path: a vector indexed by ids. Indexing costs what indexing a `Vec` costs; the id type is gone after
//! compilation.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use crate::Id;

/// One `T` for each of the ids `0..len`.
///
/// ```
/// use dense::{IdVec, define_id};
/// define_id!(struct NodeId);
///
/// let mut names: IdVec<NodeId, &str> = IdVec::new();
/// let a = names.push("a");
/// let b = names.push("b");
/// assert_eq!(names[a], "a");
/// assert_eq!(names.iter().collect::<Vec<_>>(), [(a, &"a"), (b, &"b")]);
/// assert_eq!(names.get(NodeId::new(2)), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// Empty.
    pub const fn new() -> Self {
        IdVec { items: Vec::new(), ids: PhantomData }
    }

    /// Empty, with room for `n` items.
    pub fn with_capacity(n: usize) -> Self {
        Vec::with_capacity(n).into()
    }

    /// `n` copies of one item.
    pub fn from_elem(item: T, n: usize) -> Self
    where
        T: Clone,
    {
        vec![item; n].into()
    }

    /// `n` items, each made from its id.
    pub fn from_fn(n: usize, make: impl FnMut(I) -> T) -> Self {
        (0..n).map(I::from_index).map(make).collect()
    }

    /// How many items there are; also the index of [`next_id`](Self::next_id).
    #[inline]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Appends an item and gives its id.
    #[inline]
    pub fn push(&mut self, item: T) -> I {
        let id = self.next_id();
        self.items.push(item);
        id
    }

    /// Takes the last item away. Its id will be given out again.
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop()
    }

    /// The id that the next [`push`](Self::push) gives out.
    #[inline]
    pub fn next_id(&self) -> I {
        I::from_index(self.items.len())
    }

    /// The item of an id, if there is one.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// The item of an id, if there is one.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.index())
    }

    /// The item of an id, after growing the vector with defaults so that there is one. The memory used is in
    /// proportion to the id, so it must not come from outside.
    pub fn ensure(&mut self, id: I) -> &mut T
    where
        T: Default,
    {
        if id.index() >= self.items.len() {
            self.items.resize_with(id.index() + 1, T::default);
        }
        &mut self.items[id.index()]
    }

    /// Grows with copies of `item`, or shrinks, to `n` items.
    pub fn resize(&mut self, n: usize, item: T)
    where
        T: Clone,
    {
        self.items.resize(n, item);
    }

    /// Drops the items from index `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.items.truncate(n);
    }

    /// Drops all items and keeps the memory.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Sets every item.
    pub fn fill(&mut self, item: T)
    where
        T: Clone,
    {
        self.items.fill(item);
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    /// Ids with their items, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    /// Ids with their items, in order.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (I, &mut T)> + ExactSizeIterator {
        self.items.iter_mut().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    /// The items, in order of their ids.
    pub fn values(&self) -> core::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// The items, in order of their ids.
    pub fn values_mut(&mut self) -> core::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// The items as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// The items as a slice.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items
    }

    /// The items alone.
    pub fn into_vec(self) -> Vec<T> {
        self.items
    }

    /// A vector over the same ids with other items.
    pub fn map<U>(&self, mut make: impl FnMut(I, &T) -> U) -> IdVec<I, U> {
        self.iter().map(|(id, item)| make(id, item)).collect()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;
    #[inline]
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(items: Vec<T>) -> Self {
        IdVec { items, ids: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(items: It) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<I, T> Extend<T> for IdVec<I, T> {
    fn extend<It: IntoIterator<Item = T>>(&mut self, items: It) {
        self.items.extend(items);
    }
}

impl<I, T> IntoIterator for IdVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<I: Id, T: fmt::Debug> fmt::Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
