//! The line of a cluster queue: who is next, and who steps aside until something changes.
//!
//! Workloads that ask for the same form a class. A class that cannot be admitted is shut as a whole, and opened again as a whole, so that a deep
//! line of equals costs one look and not one for each.
//!
//! *Invariant:* a workload is in at most one place: in line, or parked. What is in a shut class counts as parked.
//! Hot path: one `pop` per queue and cycle.

use crate::ids::WorkloadId;
use muster_model::{Name, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The place in line: by priority, by time, by uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub priority: Reverse<i64>,
    pub since: Time,
    pub uid: Name,
    pub id: WorkloadId,
}

/// Workloads of one local queue that ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassKey {
    /// Local queues are told apart only where they take turns.
    pub local: u32,
    pub hash: u64,
}

#[derive(Clone, Debug, Default)]
struct Class {
    waiting: BTreeSet<Rank>,
    parked: BTreeSet<Rank>,
    shut: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Line {
    classes: BTreeMap<ClassKey, Class>,
    /// The first of every open class, by local queue.
    heads: BTreeMap<u32, BTreeSet<(Rank, ClassKey)>>,
    /// Classes with anything parked in them.
    aside: BTreeSet<ClassKey>,
    /// A workload that others were preempted for goes first.
    sticky: Option<(WorkloadId, ClassKey)>,
    n_waiting: usize,
}

impl Line {
    fn unlist(&mut self, key: ClassKey) {
        let Some(class) = self.classes.get(&key) else { return };
        if let (Some(first), Some(heads)) = (class.waiting.first(), self.heads.get_mut(&key.local)) {
            heads.remove(&(first.clone(), key));
            if heads.is_empty() {
                self.heads.remove(&key.local);
            }
        }
    }

    fn list(&mut self, key: ClassKey) {
        let Some(class) = self.classes.get(&key) else { return };
        if class.shut {
            return;
        }
        if let Some(first) = class.waiting.first() {
            self.heads.entry(key.local).or_default().insert((first.clone(), key));
        }
    }

    fn tidy(&mut self, key: ClassKey) {
        let Some(class) = self.classes.get(&key) else { return };
        if class.parked.is_empty() && !class.shut {
            self.aside.remove(&key);
            if class.waiting.is_empty() {
                self.classes.remove(&key);
            }
        } else {
            self.aside.insert(key);
        }
    }

    /// Puts a workload in line; it is parked at once if its like was found to be hopeless.
    pub fn push(&mut self, rank: Rank, key: ClassKey) {
        self.unlist(key);
        if self.classes.entry(key).or_default().waiting.insert(rank) {
            self.n_waiting += 1;
        }
        self.list(key);
    }

    /// Puts a workload aside.
    pub fn park(&mut self, rank: Rank, key: ClassKey) {
        self.classes.entry(key).or_default().parked.insert(rank);
        self.aside.insert(key);
    }

    pub fn remove(&mut self, rank: &Rank, key: ClassKey) {
        self.unlist(key);
        if let Some(class) = self.classes.get_mut(&key) {
            if class.waiting.remove(rank) {
                self.n_waiting -= 1;
            }
            class.parked.remove(rank);
        }
        self.list(key);
        self.tidy(key);
        if self.sticky.is_some_and(|(id, _)| id == rank.id) {
            self.sticky = None;
        }
    }

    /// Parks everything that asks for the same, and what will come.
    pub fn shut(&mut self, key: ClassKey) {
        // The same is hopeless for every local queue.
        let alike: Vec<ClassKey> =
            self.classes.keys().filter(|k| k.hash == key.hash).copied().chain([key]).collect();
        for key in alike {
            self.unlist(key);
            self.classes.entry(key).or_default().shut = true;
            self.aside.insert(key);
        }
    }

    /// Puts back in line whatever is parked, but for those that must still wait. Whether there was any.
    pub fn flush(&mut self, may: impl Fn(&Rank) -> bool) -> bool {
        let mut any = false;
        for key in std::mem::take(&mut self.aside) {
            let Some(class) = self.classes.get_mut(&key) else { continue };
            if !class.shut {
                // Its head is listed, and may change.
                self.unlist(key);
            }
            let Some(class) = self.classes.get_mut(&key) else { continue };
            any |= class.shut && !class.waiting.is_empty();
            class.shut = false;
            for rank in std::mem::take(&mut class.parked) {
                if may(&rank) {
                    any = true;
                    self.n_waiting += usize::from(class.waiting.insert(rank));
                } else {
                    class.parked.insert(rank);
                }
            }
            self.list(key);
            self.tidy(key);
        }
        any
    }

    /// Takes out who is next: of the local queue that used least, where they take turns.
    pub fn pop(&mut self, usage: impl Fn(u32) -> f64) -> Option<(Rank, ClassKey)> {
        let sticky = self.sticky;
        let first = |heads: &BTreeSet<(Rank, ClassKey)>, local: u32, classes: &BTreeMap<ClassKey, Class>| {
            if let Some((id, key)) = sticky
                && key.local == local
                && let Some(class) = classes.get(&key).filter(|c| !c.shut)
                && let Some(rank) = class.waiting.iter().find(|r| r.id == id)
            {
                return Some((true, rank.clone(), key));
            }
            heads.first().map(|(rank, key)| (false, rank.clone(), *key))
        };
        let mut best: Option<(f64, bool, Rank, ClassKey)> = None;
        for (&local, heads) in &self.heads {
            let Some((is_sticky, rank, key)) = first(heads, local, &self.classes) else { continue };
            let used = if self.heads.len() > 1 { usage(local) } else { 0.0 };
            let better = best.as_ref().is_none_or(|(known, sticks, other, _)| {
                used.total_cmp(known).then(sticks.cmp(&is_sticky)).then_with(|| rank.cmp(other)).is_lt()
            });
            if better {
                best = Some((used, is_sticky, rank, key));
            }
        }
        let (_, _, rank, key) = best?;
        self.unlist(key);
        if let Some(class) = self.classes.get_mut(&key) {
            class.waiting.remove(&rank);
            self.n_waiting -= 1;
        }
        self.list(key);
        self.tidy(key);
        Some((rank, key))
    }

    pub fn set_sticky(&mut self, id: WorkloadId, key: ClassKey) {
        self.sticky = Some((id, key));
    }

    pub fn clear_sticky(&mut self, id: WorkloadId) {
        if self.sticky.is_some_and(|(known, _)| known == id) {
            self.sticky = None;
        }
    }

    pub fn is_sticky(&self, id: WorkloadId) -> bool {
        self.sticky.is_some_and(|(known, _)| known == id)
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Those in line, in no order that matters.
    pub fn waiting(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.classes.values().filter(|c| !c.shut).flat_map(|c| &c.waiting).map(|r| r.id)
    }

    pub fn parked(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.classes
            .values()
            .flat_map(|c| c.parked.iter().chain(c.waiting.iter().filter(|_| c.shut)))
            .map(|r| r.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(id: u32, priority: i64) -> Rank {
        Rank {
            priority: Reverse(priority),
            since: Time(0),
            uid: id.to_string().into(),
            id: WorkloadId::new(id),
        }
    }

    const A: ClassKey = ClassKey { local: 0, hash: 1 };
    const B: ClassKey = ClassKey { local: 0, hash: 2 };

    #[test]
    fn a_shut_class_is_parked_with_all_that_comes_later() {
        let mut line = Line::default();
        line.push(rank(1, 5), A);
        line.push(rank(2, 5), A);
        line.push(rank(3, 1), B);
        let (head, key) = line.pop(|_| 0.0).unwrap();
        assert_eq!(head.id, WorkloadId::new(1));
        line.park(head, key);
        line.shut(key);
        line.push(rank(4, 9), A);
        assert_eq!(line.waiting().collect::<Vec<_>>(), [WorkloadId::new(3)]);
        assert_eq!(line.parked().count(), 3);
        assert!(line.flush(|r| r.id != WorkloadId::new(2)));
        assert_eq!(line.pop(|_| 0.0).unwrap().0.id, WorkloadId::new(4));
        // Number 2 was in line, only its class was shut: a flush opens it.
        assert_eq!(line.parked().count(), 0);
        assert!(!line.flush(|_| true));
    }

    #[test]
    fn the_sticky_one_is_first_and_turns_come_before_that() {
        let other = ClassKey { local: 1, hash: 1 };
        let mut line = Line::default();
        line.push(rank(1, 5), A);
        line.push(rank(2, 1), A);
        line.push(rank(3, 9), other);
        line.set_sticky(WorkloadId::new(2), A);
        let usage = |local| if local == 0 { 1.0 } else { 2.0 };
        assert_eq!(line.pop(usage).unwrap().0.id, WorkloadId::new(2));
        assert_eq!(line.pop(usage).unwrap().0.id, WorkloadId::new(1));
        assert_eq!(line.pop(usage).unwrap().0.id, WorkloadId::new(3));
        assert!(line.pop(usage).is_none());
    }
}
