//! A heap whose order is asked for anew at every step, since what gangs and queues hold decides their turn and changes all the time.

pub struct Heap<T> {
    items: Vec<T>,
}

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<T> Heap<T> {
    /// Adds an item and lets it rise as far as `before` says.
    pub fn push(&mut self, item: T, before: impl Fn(&T, &T) -> bool) {
        self.items.push(item);
        let mut at = self.items.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !before(&self.items[at], &self.items[parent]) {
                break;
            }
            self.items.swap(at, parent);
            at = parent;
        }
    }

    /// Takes the first.
    pub fn pop(&mut self, before: impl Fn(&T, &T) -> bool) -> Option<T> {
        let last = self.items.len().checked_sub(1)?;
        self.items.swap(0, last);
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= last {
                break;
            }
            if child + 1 < last && before(&self.items[child + 1], &self.items[child]) {
                child += 1;
            }
            if !before(&self.items[child], &self.items[at]) {
                break;
            }
            self.items.swap(at, child);
            at = child;
        }
        self.items.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_come_in_order(items in proptest::collection::vec(0_u32..50, 0..40)) {
            let mut heap = Heap::default();
            for item in &items {
                heap.push(*item, |a, b| a < b);
            }
            let mut sorted = items;
            sorted.sort_unstable();
            let popped: Vec<u32> = std::iter::from_fn(|| heap.pop(|a, b| a < b)).collect();
            prop_assert_eq!(popped, sorted);
        }
    }
}
