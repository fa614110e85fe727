//! Gangs stay whole: nothing is bound below a minimum, and what must be near is near.

use super::{Fate, Finding, World};
use muster_model::{Gang, Min, Name, Node, Topology};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let topologies: BTreeMap<&str, &Topology> =
        world.cluster.topologies.iter().map(|topology| (&*topology.name, &**topology)).collect();
    for (gang, members) in world.members.iter().enumerate().filter(|(gang, _)| !world.is_volcano(*gang)) {
        let placed =
            |pod: &&usize| matches!(world.fate[**pod], Fate::Bound(_) | Fate::Promised(_) | Fate::Moved(..));
        if !members.iter().any(|pod| placed(&pod)) {
            continue;
        }
        let key = &world.gang(gang).key;
        let Some(tree) = Tree::of(world.gang(gang)) else {
            findings.push(Finding::BrokenTree { gang: key.clone() });
            continue;
        };
        for pod in members.iter().filter(placed).filter(|pod| world.leaf_of[**pod].is_none()) {
            findings.push(Finding::UnknownGroup { pod: world.pod(*pod).key.clone(), gang: key.clone() });
        }
        minimum(world, gang, &tree, findings);
        topology(world, gang, &tree, &topologies, findings);
    }
}

/// The groups of a gang, known to be a tree whose parents come before their children.
pub(super) struct Tree<'a> {
    gang: &'a Gang,
}

impl<'a> Tree<'a> {
    pub(super) fn of(gang: &'a Gang) -> Option<Self> {
        let fits = |(i, parent): (usize, Option<u32>)| match parent {
            None => i == 0,
            Some(parent) => (parent as usize) < i,
        };
        let whole = !gang.groups.is_empty() && gang.groups.iter().map(|g| g.parent).enumerate().all(fits);
        whole.then_some(Self { gang })
    }

    /// Pods of each group, of the whole subtree, from the pods of the leaves.
    pub(super) fn sums(&self, mut pods: Vec<u32>) -> Vec<u32> {
        for i in (1..self.gang.groups.len()).rev() {
            if let Some(parent) = self.gang.groups[i].parent {
                pods[parent as usize] += pods[i];
            }
        }
        pods
    }

    /// For each group what it has and what it needs: pods for a leaf, satisfied children for an inner group. `pods`: of each group, of
    /// the whole subtree.
    pub(super) fn standing(&self, pods: &[u32]) -> Vec<(u32, u32)> {
        let groups = &self.gang.groups;
        let mut children = vec![0_u32; groups.len()];
        let mut satisfied = vec![0_u32; groups.len()];
        let mut standing = vec![(0, 0); groups.len()];
        for i in (0..groups.len()).rev() {
            standing[i] = match groups[i].min {
                Min::Pods(need) => (pods[i], need),
                Min::Children(need) => (satisfied[i], need.unwrap_or(children[i])),
                // Whatever is short: a child, or pods in all.
                Min::Whole { .. } if satisfied[i] < children[i] => (satisfied[i], children[i]),
                Min::Whole { pods: need } => (pods[i], need),
            };
            if let Some(parent) = groups[i].parent {
                children[parent as usize] += 1;
                satisfied[parent as usize] += u32::from(standing[i].0 >= standing[i].1);
            }
        }
        standing
    }

    /// The group and everything above it.
    fn upwards(&self, leaf: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(leaf), |group| {
            self.gang.groups[*group].parent.map(|parent| parent as usize)
        })
    }
}

/// Counts the pods of each leaf for which the predicate holds.
pub(super) fn count(world: &World<'_>, gang: usize, mut counts: impl FnMut(usize) -> bool) -> Vec<u32> {
    let mut pods = vec![0; world.gang(gang).groups.len()];
    for pod in &world.members[gang] {
        if let Some(leaf) = world.leaf_of[*pod].filter(|_| counts(*pod)) {
            pods[leaf] += 1;
        }
    }
    pods
}

/// Every group that got a pod bound, and everything above it, has its minimum without counting on promises. Pods that are leaving
/// still count, as they do for whoever decides what to bind; pods that were just evicted do not, unless they are only moved.
fn minimum(world: &World<'_>, gang: usize, tree: &Tree<'_>, findings: &mut Vec<Finding>) {
    let bound = |pod: &&usize| matches!(world.fate[**pod], Fate::Bound(_));
    let touched: BTreeSet<usize> =
        world.members[gang].iter().filter(bound).filter_map(|pod| world.leaf_of[*pod]).collect();
    let pods = tree.sums(count(world, gang, |pod| match world.fate[pod] {
        Fate::Bound(_) | Fate::Moved(..) => true,
        Fate::Rest => world.pod(pod).state.holds_room(),
        Fate::Absent | Fate::Promised(_) | Fate::Lost(_) => false,
    }));
    let standing = tree.standing(&pods);
    let groups: BTreeSet<usize> = touched.into_iter().flat_map(|leaf| tree.upwards(leaf)).collect();
    for group in groups {
        let (have, need) = standing[group];
        if have < need {
            let (gang, group) = (tree.gang.key.clone(), tree.gang.groups[group].name.clone());
            findings.push(Finding::BelowMinimum { gang, group, have, need });
        }
    }
}

fn topology(
    world: &World<'_>,
    gang: usize,
    tree: &Tree<'_>,
    topologies: &BTreeMap<&str, &Topology>,
    findings: &mut Vec<Finding>,
) {
    let key = &tree.gang.key;
    for (i, group) in tree.gang.groups.iter().enumerate() {
        let Some(rule) = &group.topology else { continue };
        if rule.required.is_none() && rule.preferred.is_none() {
            continue;
        }
        let unknown = |level: Option<&Name>| Finding::TopologyUnknown {
            gang: key.clone(),
            topology: rule.topology.clone(),
            level: level.cloned(),
        };
        // Whoever asks for a level that is not there is not placed, unless the group got nobody.
        let below: Vec<usize> = members_below(world, gang, tree, i);
        let place = |pod: usize| match world.fate[pod] {
            Fate::Bound(place) | Fate::Promised(place) | Fate::Moved(_, place) => Some((place.node, true)),
            Fate::Rest => {
                world.old_node(pod).filter(|_| world.pod(pod).state.stays()).map(|node| (node, false))
            }
            Fate::Absent | Fate::Lost(_) => None,
        };
        let places: Vec<(usize, bool)> = below.into_iter().filter_map(place).collect();
        if !places.iter().any(|(_, fresh)| *fresh) {
            continue;
        }
        let Some(topology) = topologies.get(&*rule.topology) else {
            findings.push(unknown(None));
            continue;
        };
        let depth = |level: &Name| topology.levels.iter().position(|l| l.label == *level);
        for level in rule.required.iter().chain(&rule.preferred).filter(|level| depth(level).is_none()) {
            findings.push(unknown(Some(level)));
        }
        let Some((level, depth)) = rule.required.as_ref().and_then(|level| Some((level, depth(level)?)))
        else {
            continue;
        };
        let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
        for (node, fresh) in places {
            match domain(world.node(node), topology, depth) {
                Some(domain) if fresh => new.insert(domain),
                Some(domain) => old.insert(domain),
                None if fresh => {
                    let (gang, group) = (key.clone(), group.name.clone());
                    findings.push(Finding::OutsideTopology {
                        gang,
                        group,
                        node: world.node(node).name.clone(),
                    });
                    false
                }
                None => false,
            };
        }
        if new.len() > 1 || !(old.is_empty() || new.is_subset(&old)) {
            findings.push(Finding::DomainsSpanned {
                gang: key.clone(),
                group: group.name.clone(),
                level: level.clone(),
                domains: old.union(&new).map(|domain| domain.join(".").into()).collect(),
            });
        }
    }
}

fn members_below(world: &World<'_>, gang: usize, tree: &Tree<'_>, group: usize) -> Vec<usize> {
    // Parents come before children, so one pass knows who is below.
    let mut below = vec![false; tree.gang.groups.len()];
    below[group] = true;
    for i in group + 1..below.len() {
        below[i] = tree.gang.groups[i].parent.is_some_and(|parent| below[parent as usize]);
    }
    let inside = |pod: &usize| world.leaf_of[*pod].is_some_and(|leaf| below[leaf]);
    world.members[gang].iter().copied().filter(inside).collect()
}

/// The labels from the coarsest level down to this one. A node that lacks a label of any level is in no domain.
fn domain<'a>(node: &'a Node, topology: &Topology, depth: usize) -> Option<Vec<&'a str>> {
    let labels: Option<Vec<&str>> =
        topology.levels.iter().map(|level| node.labels.get(&level.label).map(|value| &**value)).collect();
    labels.map(|mut labels| {
        labels.truncate(depth + 1);
        labels
    })
}
