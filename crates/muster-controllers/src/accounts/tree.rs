//! The tree of queues with sums.
//!
//! In: which group belongs to which queue and what it asks for, and which queue is below which. Out: for each queue the sum over
//! itself and everything below it, and which sums a change has changed.
//! Must stay true: sums are what counting everything anew would give. A queue counts for itself and once for each queue on its
//! way up, so that even parents in a circle have sums and no walk is endless. A change costs the length of the way up; only a
//! queue that moves costs what is below it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use muster_runtime::Key;

use crate::amounts::Amounts;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    pub requested: Amounts,
    pub allocated: Amounts,
    /// What gangs hold that may not be preempted.
    pub fixed: Amounts,
}

impl Sums {
    pub fn add(&mut self, other: &Sums) {
        self.requested.add_all(&other.requested);
        self.allocated.add_all(&other.allocated);
        self.fixed.add_all(&other.fixed);
    }

    pub fn take(&mut self, other: &Sums) {
        self.requested.take_all(&other.requested);
        self.allocated.take_all(&other.allocated);
        self.fixed.take_all(&other.fixed);
    }

    pub fn is_empty(&self) -> bool {
        self.requested.is_empty() && self.allocated.is_empty() && self.fixed.is_empty()
    }
}

#[derive(Default)]
pub struct Tree {
    queues: HashMap<String, Queue>,
    groups: HashMap<Key, (String, Sums)>,
}

/// A queue that exists, or one that a group or a child names.
#[derive(Default)]
struct Queue {
    exists: bool,
    parent: String,
    children: BTreeSet<String>,
    own: Sums,
    n_groups: usize,
    total: Sums,
}

impl Tree {
    /// Puts a group into a queue. Out: the queues whose sums changed.
    pub fn put_group(&mut self, key: &Key, queue: &str, sums: Sums) -> BTreeSet<String> {
        if let Some((old_queue, old)) = self.groups.get(key)
            && old_queue == queue
            && *old == sums
        {
            return BTreeSet::new();
        }
        let mut changed = self.drop_group(key);
        let entry = self.queues.entry(queue.to_owned()).or_default();
        entry.own.add(&sums);
        entry.n_groups += 1;
        if !sums.is_empty() {
            changed.extend(self.charge(queue, &sums, Sums::add));
        }
        self.groups.insert(key.clone(), (queue.to_owned(), sums));
        changed
    }

    pub fn drop_group(&mut self, key: &Key) -> BTreeSet<String> {
        let Some((queue, sums)) = self.groups.remove(key) else { return BTreeSet::new() };
        let changed = if sums.is_empty() { BTreeSet::new() } else { self.charge(&queue, &sums, Sums::take) };
        if let Some(entry) = self.queues.get_mut(&queue) {
            entry.own.take(&sums);
            entry.n_groups -= 1;
        }
        self.forget(&queue);
        changed
    }

    /// Enters a queue, or that it has another parent. Out: the queues whose sums or children changed.
    pub fn put_queue(&mut self, name: &str, parent: &str) -> BTreeSet<String> {
        let entry = self.queues.entry(name.to_owned()).or_default();
        let came = !std::mem::replace(&mut entry.exists, true);
        let moved = entry.parent != parent;
        let old_parent = entry.parent.clone();
        let mut changed = BTreeSet::new();
        if came || moved {
            changed.insert(name.to_owned());
            changed.extend([old_parent, parent.to_owned()]);
        }
        if came {
            // Whoever named it as a parent was an orphan until now.
            changed.extend(self.children(name));
        }
        if moved {
            changed.extend(self.rehang(name, parent));
        }
        changed.remove("");
        changed
    }

    pub fn drop_queue(&mut self, name: &str) -> BTreeSet<String> {
        let Some(entry) = self.queues.get_mut(name) else { return BTreeSet::new() };
        if !std::mem::replace(&mut entry.exists, false) {
            return BTreeSet::new();
        }
        let parent = entry.parent.clone();
        let mut changed: BTreeSet<String> = self.children(name).into_iter().collect();
        changed.insert(parent);
        changed.extend(self.rehang(name, ""));
        self.forget(name);
        changed.remove("");
        changed
    }

    pub fn exists(&self, name: &str) -> bool {
        self.queues.get(name).is_some_and(|q| q.exists)
    }

    pub fn total(&self, name: &str) -> Sums {
        self.queues.get(name).map(|q| q.total.clone()).unwrap_or_default()
    }

    /// The queues right below one, in order of name.
    pub fn children(&self, name: &str) -> Vec<String> {
        let children = self.queues.get(name).into_iter().flat_map(|q| &q.children);
        children.filter(|child| self.exists(child)).cloned().collect()
    }

    /// Whether the way up leads back to where it began.
    pub fn in_circle(&self, name: &str) -> bool {
        let way = self.way_up(name);
        way.last().and_then(|last| self.queues.get(last)).is_some_and(|last| last.parent == name)
    }

    /// A queue and those above it, each once.
    fn way_up(&self, name: &str) -> Vec<String> {
        let mut way = Vec::new();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut at = name;
        while !at.is_empty() && seen.insert(at) {
            way.push(at.to_owned());
            at = self.queues.get(at).map_or("", |q| q.parent.as_str());
        }
        way
    }

    fn charge(&mut self, name: &str, sums: &Sums, how: fn(&mut Sums, &Sums)) -> BTreeSet<String> {
        let way = self.way_up(name);
        for name in &way {
            how(&mut self.queues.entry(name.clone()).or_default().total, sums);
        }
        way.into_iter().collect()
    }

    /// Hangs a queue below another, with everything below it. Out: the queues whose sums, or whose place, may have changed.
    fn rehang(&mut self, name: &str, parent: &str) -> BTreeSet<String> {
        let below = self.below(name);
        let owns: BTreeMap<String, Sums> = below
            .iter()
            .filter_map(|q| Some((q.clone(), self.queues.get(q)?.own.clone())))
            .filter(|(_, own)| !own.is_empty())
            .collect();
        let mut changed: BTreeSet<String> = below.into_iter().collect();
        for (queue, own) in &owns {
            changed.extend(self.charge(queue, own, Sums::take));
        }
        let old = match self.queues.get_mut(name) {
            Some(entry) => std::mem::replace(&mut entry.parent, parent.to_owned()),
            None => String::new(),
        };
        if let Some(entry) = self.queues.get_mut(&old) {
            entry.children.remove(name);
        }
        if !parent.is_empty() {
            self.queues.entry(parent.to_owned()).or_default().children.insert(name.to_owned());
        }
        for (queue, own) in &owns {
            changed.extend(self.charge(queue, own, Sums::add));
        }
        // In a circle, what is below is also above, and everybody in it is told.
        changed.extend(self.below(name));
        self.forget(&old);
        changed
    }

    /// A queue and all whose way up leads through it.
    fn below(&self, name: &str) -> Vec<String> {
        let mut found = vec![name.to_owned()];
        let mut seen: HashSet<String> = found.iter().cloned().collect();
        let mut next = 0;
        while let Some(at) = found.get(next).cloned() {
            next += 1;
            for child in self.queues.get(&at).into_iter().flat_map(|q| &q.children) {
                if seen.insert(child.clone()) {
                    found.push(child.clone());
                }
            }
        }
        found
    }

    /// Lets go of a queue that does not exist and that nobody names.
    fn forget(&mut self, name: &str) {
        let idle = |q: &Queue| !q.exists && q.n_groups == 0 && q.children.is_empty() && q.parent.is_empty();
        if self.queues.get(name).is_some_and(idle) {
            self.queues.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_quantity::Quantity;
    use proptest::prelude::*;

    use super::*;

    fn sums(cpu: i64) -> Sums {
        let mut amounts = Amounts::new();
        amounts.add("cpu", Quantity::from_milli(cpu));
        let mut fixed = Amounts::new();
        fixed.add("cpu", Quantity::from_milli(cpu % 3));
        Sums { requested: amounts.clone(), allocated: amounts, fixed }
    }

    fn shown(changed: BTreeSet<String>) -> String {
        changed.into_iter().collect::<Vec<_>>().join(" ")
    }

    fn cpu(tree: &Tree, queue: &str) -> i64 {
        tree.total(queue).allocated.get("cpu").milli_value()
    }

    #[test]
    fn a_change_goes_up_and_nowhere_else() {
        let mut tree = Tree::default();
        for (queue, parent) in [("root", ""), ("a", "root"), ("b", "root"), ("a1", "a")] {
            tree.put_queue(queue, parent);
        }
        let (one, two) = (Key::new("n", "one"), Key::new("n", "two"));
        assert_eq!(shown(tree.put_group(&one, "a1", sums(5))), "a a1 root");
        assert_eq!(shown(tree.put_group(&one, "a1", sums(5))), "", "nothing new");
        assert_eq!(shown(tree.put_group(&two, "b", sums(2))), "b root");
        assert_eq!([cpu(&tree, "root"), cpu(&tree, "a"), cpu(&tree, "b")], [7, 5, 2]);
        assert_eq!(shown(tree.put_queue("a", "b")), "a a1 b root");
        assert_eq!([cpu(&tree, "root"), cpu(&tree, "a"), cpu(&tree, "b")], [7, 5, 7]);
        assert_eq!(tree.children("root"), ["b"]);
        assert_eq!(shown(tree.drop_group(&one)), "a a1 b root");
        assert_eq!(cpu(&tree, "root"), 2);
    }

    #[test]
    fn orphans_find_their_parents() {
        let mut tree = Tree::default();
        tree.put_group(&Key::new("n", "g"), "child", sums(4));
        assert_eq!(shown(tree.put_queue("child", "late")), "child late");
        assert!(!tree.exists("late"));
        assert_eq!(shown(tree.put_queue("late", "")), "child late", "the child is no orphan any more");
        assert_eq!(cpu(&tree, "late"), 4);
        assert_eq!(shown(tree.drop_queue("late")), "child late");
        assert!(!tree.exists("late"));
        tree.drop_queue("child");
        tree.drop_group(&Key::new("n", "g"));
        assert!(tree.queues.is_empty(), "nobody names any queue any more");
    }

    #[test]
    fn circles_have_sums_and_end() {
        let mut tree = Tree::default();
        tree.put_queue("a", "b");
        tree.put_queue("b", "c");
        assert_eq!(shown(tree.put_queue("c", "a")), "a b c", "all in the circle are told");
        tree.put_queue("d", "a");
        tree.put_queue("self", "self");
        tree.put_group(&Key::new("n", "g"), "a", sums(3));
        tree.put_group(&Key::new("n", "h"), "self", sums(3));
        assert_eq!([cpu(&tree, "a"), cpu(&tree, "b"), cpu(&tree, "c"), cpu(&tree, "d")], [3, 3, 3, 0]);
        assert_eq!(cpu(&tree, "self"), 3);
        assert!(tree.in_circle("a") && tree.in_circle("self") && !tree.in_circle("d"));
        tree.put_queue("c", "");
        assert_eq!([cpu(&tree, "a"), cpu(&tree, "b"), cpu(&tree, "c")], [3, 3, 3]);
        assert!(!tree.in_circle("a"));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Group(u8, u8, i64),
        NoGroup(u8),
        Queue(u8, Option<u8>),
        NoQueue(u8),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..8, 0u8..6, 0i64..10).prop_map(|(g, q, n)| Step::Group(g, q, n)),
            1 => (0u8..8).prop_map(Step::NoGroup),
            3 => (0u8..6, prop::option::of(0u8..6)).prop_map(|(q, p)| Step::Queue(q, p)),
            1 => (0u8..6).prop_map(Step::NoQueue),
        ]
    }

    proptest! {
        /// Sums equal a count from scratch after any changes, and every queue that differs was named as changed.
        #[test]
        fn sums_are_what_counting_anew_gives(steps in prop::collection::vec(steps(), 0..60)) {
            let name = |q: u8| format!("q{q}");
            let mut tree = Tree::default();
            let mut groups: BTreeMap<u8, (u8, i64)> = BTreeMap::new();
            let mut queues: BTreeMap<u8, Option<u8>> = BTreeMap::new();
            for step in steps {
                let before: Vec<(Sums, Vec<String>)> =
                    (0..6).map(|q| (tree.total(&name(q)), tree.children(&name(q)))).collect();
                let changed = match step {
                    Step::Group(g, q, n) => {
                        groups.insert(g, (q, n));
                        tree.put_group(&Key::new("n", g.to_string()), &name(q), sums(n))
                    }
                    Step::NoGroup(g) => {
                        groups.remove(&g);
                        tree.drop_group(&Key::new("n", g.to_string()))
                    }
                    Step::Queue(q, p) => {
                        queues.insert(q, p);
                        tree.put_queue(&name(q), &p.map(name).unwrap_or_default())
                    }
                    Step::NoQueue(q) => {
                        queues.remove(&q);
                        tree.drop_queue(&name(q))
                    }
                };
                for q in 0..6_u8 {
                    let mut expected = Sums::default();
                    for (queue, n) in groups.values() {
                        let mut seen = BTreeSet::new();
                        let mut at = Some(*queue);
                        while let Some(queue) = at && seen.insert(queue) {
                            at = queues.get(&queue).copied().flatten();
                        }
                        if seen.contains(&q) {
                            expected.add(&sums(*n));
                        }
                    }
                    prop_assert_eq!(&tree.total(&name(q)), &expected);
                    let children: Vec<String> =
                        queues.iter().filter(|(_, p)| **p == Some(q)).map(|(c, _)| name(*c)).collect();
                    prop_assert_eq!(&tree.children(&name(q)), &children);
                    if before[usize::from(q)] != (expected, children) {
                        prop_assert!(changed.contains(&name(q)), "q{} changed in silence", q);
                    }
                }
            }
        }
    }
}
