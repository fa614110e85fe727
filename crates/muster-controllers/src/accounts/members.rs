//! Which pods are members of which group.
//!
//! In: every pod that comes or changes. Out: the pods of a group. Must stay true: a name may be kept that is no member any more,
//! until somebody asks; none is ever missing. So it does not matter in which order changes are told.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_runtime::common::Pod;
use muster_runtime::{Key, Store};

use super::plan::group_name;

#[derive(Default)]
pub struct Members(HashMap<Key, BTreeSet<String>>);

impl Members {
    /// Notes a pod. Out: its group, and how many members that may have.
    pub fn note(&mut self, pod: &Pod) -> Option<(Key, usize)> {
        let key = group_of(pod)?;
        let names = self.0.entry(key.clone()).or_default();
        if !names.contains(&pod.metadata.name) {
            names.insert(pod.metadata.name.clone());
        }
        Some((key, names.len()))
    }

    /// The pods of a group, in order of name.
    pub fn of(&mut self, group: &Key, pods: &Store<Pod>) -> Vec<Arc<Pod>> {
        let Some(names) = self.0.get_mut(group) else { return Vec::new() };
        let mut found = Vec::with_capacity(names.len());
        names.retain(|name| {
            let pod = pods.get(&Key::new(group.namespace.as_str(), name.as_str()));
            match pod.filter(|pod| group_name(&pod.metadata.annotations) == Some(&group.name)) {
                Some(pod) => {
                    found.push(pod);
                    true
                }
                None => false,
            }
        });
        if names.is_empty() {
            self.0.remove(group);
        }
        found
    }
}

/// The group that a pod is a member of.
pub fn group_of(pod: &Pod) -> Option<Key> {
    let name = group_name(&pod.metadata.annotations)?;
    Some(Key::new(pod.metadata.namespace.as_str(), name))
}
