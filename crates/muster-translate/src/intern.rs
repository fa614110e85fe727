//! Equal values are kept once: a hundred thousand pods have a few dozen shapes and label sets.

use indexmap::IndexSet;
use std::hash::Hash;
use std::sync::Arc;

/// Equal values in, the same `Arc` out. What nobody else holds any more is swept away as the set grows.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    set: IndexSet<Arc<T>>,
    sweep_at: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { set: IndexSet::new(), sweep_at: 1024 }
    }
}

impl<T: Hash + Eq> Interner<T> {
    pub(crate) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.set.get(&value) {
            return Arc::clone(known);
        }
        if self.set.len() >= self.sweep_at {
            self.set.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = (self.set.len() * 2).max(1024);
        }
        let value = Arc::new(value);
        self.set.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share() {
        let mut interner = Interner::default();
        let a = interner.intern("x".to_owned());
        assert!(Arc::ptr_eq(&a, &interner.intern("x".to_owned())));
        assert!(!Arc::ptr_eq(&a, &interner.intern("y".to_owned())));
    }

    #[test]
    fn what_is_dropped_is_swept() {
        let mut interner = Interner::default();
        for i in 0..10_000 {
            interner.intern(i);
        }
        assert!(interner.set.len() <= 1024);
    }
}
