//! The gang: pods that are placed together or not at all, as a tree of groups.

use crate::{Dialect, Key, Name, Span, Time, volcano};
use std::sync::Arc;

/// A set of pods that makes sense only together. A plain pod is a gang of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    pub key: Key,
    /// Breaks ties between gangs of one age, so it must be stable; unique in the cluster.
    pub uid: Name,
    pub queue: Name,
    pub priority: i32,
    pub preemptibility: Preemptibility,
    pub created: Time,
    /// Parents before children; the first is the root. Never empty. A gang without inner groups has one group, a leaf.
    pub groups: Vec<Group>,
    /// When its pods were first bound since it last had none; minimum runtimes count from here.
    pub last_start: Option<Time>,
    /// When one of its pods was last evicted; the preemption delay counts from here or from its creation.
    pub last_eviction: Option<Time>,
    /// Since when it has had fewer pods than its minimum.
    pub stale_since: Option<Time>,
    /// How long it waits before it may cause evictions.
    pub preemption_delay: Span,
    /// How long it may stay below its minimum; `None`: the policy's default.
    pub staleness_grace: Option<Grace>,
    /// When it will be over by its own declaration; only used to say when others may hope to start.
    pub declared_end: Option<Time>,
    /// Of a Volcano PodGroup: what else it says.
    pub volcano: Option<Arc<volcano::Group>>,
}

impl Gang {
    /// Whose rules it lives by.
    pub fn dialect(&self) -> Dialect {
        if self.volcano.is_some() { Dialect::Volcano } else { Dialect::Kai }
    }

    /// The fewest pods that it lacks of its minimum. In: how many it has of each leaf, by the index of its group.
    pub fn missing(&self, pods: impl Fn(usize) -> u32) -> u32 {
        // What each group's children lack, and have.
        let mut below: Vec<(Vec<u32>, u32)> = vec![(Vec::new(), 0); self.groups.len()];
        let mut of_root = 0;
        for (i, group) in self.groups.iter().enumerate().rev() {
            let (mut lacks, has) = std::mem::take(&mut below[i]);
            lacks.sort_unstable();
            let sum = |lacks: &[u32]| lacks.iter().fold(0_u32, |sum, n| sum.saturating_add(*n));
            let (lack, has) = match group.min {
                Min::Pods(min) => (min.saturating_sub(pods(i)), pods(i)),
                Min::Children(None) => (sum(&lacks), has),
                // Those that lack least are enough.
                Min::Children(Some(n)) => (sum(&lacks[..lacks.len().min(n as usize)]), has),
                Min::Whole { pods } => (sum(&lacks).max(pods.saturating_sub(has)), has),
            };
            match group.parent.and_then(|parent| below.get_mut(parent as usize)) {
                Some((lacks, in_all)) => {
                    lacks.push(lack);
                    *in_all = in_all.saturating_add(has);
                }
                None => of_root = lack,
            }
        }
        of_root
    }

    /// The index of the leaf of this name; of the only leaf, if there is no name.
    pub fn leaf(&self, name: Option<&Name>) -> Option<usize> {
        let is_leaf = |group: &Group| matches!(group.min, Min::Pods(_));
        let wanted = |group: &Group| is_leaf(group) && name.is_none_or(|name| group.name == *name);
        self.groups.iter().position(wanted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    For(Span),
    Forever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preemptibility {
    Preemptible,
    /// Never a victim; in return it must stay within its queues' quota.
    NonPreemptible,
}

/// One group of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: Name,
    /// Index in [`Gang::groups`]; `None` for the root only.
    pub parent: Option<u32>,
    pub min: Min,
    pub topology: Option<TopologyRule>,
}

/// How much of a group must run for the gang to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Min {
    /// A leaf: this many pods. What is beyond is elastic.
    Pods(u32),
    /// An inner group: this many of its children; `None`: all of them.
    Children(Option<u32>),
    /// An inner group: all of its children, and this many pods in all of them together.
    Whole { pods: u32 },
}

/// Where the pods of a group have to be, or would rather be, together. Levels are node label keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopologyRule {
    pub topology: Name,
    pub required: Option<Name>,
    pub preferred: Option<Name>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    fn gang(groups: &[(&str, Option<u32>, Min)]) -> Gang {
        let group = |(name, parent, min): &(&str, Option<u32>, Min)| Group {
            name: (*name).into(),
            parent: *parent,
            min: *min,
            topology: None,
        };
        Gang {
            key: Key::new("ns", "g"),
            uid: "u".into(),
            queue: "q".into(),
            priority: 0,
            preemptibility: Preemptibility::Preemptible,
            created: Time(0),
            groups: groups.iter().map(group).collect(),
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: Span::ZERO,
            staleness_grace: None,
            declared_end: None,
            volcano: None,
        }
    }

    #[track_caller]
    fn check(gang: &Gang, pods: &[u32], expected: u32) {
        assert_eq!(gang.missing(|leaf| pods[leaf]), expected);
    }

    #[test]
    fn what_a_gang_lacks() {
        let one = gang(&[("", None, Min::Pods(3))]);
        check(&one, &[0], 3);
        check(&one, &[5], 0);
        let leaf = |name, min| (name, Some(0), Min::Pods(min));
        let all = gang(&[("", None, Min::Children(None)), leaf("a", 1), leaf("b", 4)]);
        check(&all, &[0, 0, 2], 3);
        check(&all, &[0, 9, 4], 0);
        // Two of three: those that lack least.
        let some = gang(&[("", None, Min::Children(Some(2))), leaf("a", 1), leaf("b", 4), leaf("c", 2)]);
        check(&some, &[0, 0, 0, 0], 3);
        check(&some, &[0, 0, 4, 0], 1);
        // All children, and some more, whose does not matter.
        let whole = gang(&[("", None, Min::Whole { pods: 6 }), leaf("a", 1), leaf("b", 2)]);
        check(&whole, &[0, 0, 0], 6);
        check(&whole, &[0, 5, 1], 1);
        check(&whole, &[0, 1, 5], 0);
        let deep = gang(&[
            ("", None, Min::Children(None)),
            ("x", Some(0), Min::Children(Some(1))),
            ("y", Some(1), Min::Pods(2)),
            ("z", Some(1), Min::Pods(3)),
            leaf("w", 1),
        ]);
        check(&deep, &[0, 0, 0, 0, 0], 3);
        check(&deep, &[0, 0, 0, 3, 0], 1);
        assert_eq!(deep.leaf(Some(&"z".into())), Some(3));
        assert_eq!(one.leaf(None), Some(0));
    }
}
