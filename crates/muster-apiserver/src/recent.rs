//! What was written last, parsed. In: objects as they were stored, by revision. Out: the same, for as long as they are among the newest.
//!
//! Objects are stored as text, which is small and quick to hand out; but a pod is written half a dozen times within a second or two, and
//! every write looks at what is there. Must stay true: a revision means one object in one state, so nothing here can be out of date; and whoever
//! changes how a state is read clears it.

use crate::store::Revision;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// A parsed pod takes some thirty kilobytes, so these are a few megabytes: enough for what is written again at once.
const KEPT: usize = 192;

type Slot = Option<(Revision, Arc<Value>)>;

/// The newest objects.
pub struct Recent {
    slots: Mutex<Vec<Slot>>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { slots: Mutex::new(vec![None; KEPT]) }
    }
}

impl Recent {
    /// The object that was written at this revision, if it is still here.
    pub fn get(&self, revision: Revision) -> Option<Arc<Value>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, object) = slots.get(slot(revision))?.as_ref()?;
        (*at == revision).then(|| object.clone())
    }

    /// Keeps an object that was written, and forgets the state that it replaces.
    pub fn put(&self, revision: Revision, object: Arc<Value>, replaced: Option<Revision>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let old = replaced.and_then(|old| {
            let slot = slots.get_mut(slot(old))?;
            slot.take_if(|(at, _)| *at == old)
        });
        let new = slots.get_mut(slot(revision)).and_then(|slot| slot.replace((revision, object)));
        drop(slots);
        // Large trees are taken down outside the lock.
        drop((old, new));
    }

    /// Forgets everything: what a stored object looks like has changed with the schema of its kind.
    pub fn clear(&self) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *slots, vec![None; KEPT]);
        drop(slots);
        drop(old);
    }
}

fn slot(revision: Revision) -> usize {
    (revision % KEPT as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_stays_until_it_is_replaced_or_old() {
        let recent = Recent::default();
        recent.put(5, Arc::new(json!("five")), None);
        assert_eq!(recent.get(5).as_deref(), Some(&json!("five")));
        recent.put(6, Arc::new(json!("six")), Some(5));
        assert_eq!(recent.get(5), None, "replaced");
        recent.put(6 + KEPT as u64, Arc::new(json!("later")), Some(1));
        assert_eq!(recent.get(6), None, "old");
        assert_eq!(recent.get(6 + KEPT as u64).as_deref(), Some(&json!("later")));
    }
}
