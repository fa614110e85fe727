//! Gangs that live by Volcano's rules: what holds whichever plugins are on, and what those that are on promise.
//!
//! Orders, shares and victims go by plugins that may be anything, and are not judged.

use super::{Fate, Finding, World};
use muster_model::volcano::{Conf, Hook, PluginKind};
use muster_model::{Action, Dialect, PodState, Resource, own_name};
use std::collections::BTreeMap;

pub(super) fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    victims(world, findings);
    let Some(conf) = &world.policy.volcano else { return };
    let votes = |hook: Hook, kind: fn(&PluginKind) -> bool| {
        conf.tiers.iter().flatten().any(|plugin| plugin.enabled.has(hook) && kind(&plugin.kind))
    };
    if votes(Hook::JobReady, |kind| matches!(kind, PluginKind::Gang)) {
        minimums(world, findings);
    }
    let bounded = votes(Hook::Allocatable, |kind| matches!(kind, PluginKind::Capacity(_)));
    if bounded && !has_gang_actions(conf) {
        capabilities(world, votes(Hook::Hierarchy, |kind| matches!(kind, PluginKind::Capacity(_))), findings);
    }
}

fn has_gang_actions(conf: &Conf) -> bool {
    use muster_model::Action::{GangPreempt, GangReclaim};
    conf.actions.iter().any(|action| matches!(action, GangPreempt | GangReclaim))
}

/// Nobody takes from those who live by other rules.
fn victims(world: &World<'_>, findings: &mut Vec<Finding>) {
    for (pod, fate) in world.fate.iter().enumerate() {
        let (Fate::Lost(evict) | Fate::Moved(evict, _), Some(victim)) = (fate, world.gang_of[pod]) else {
            continue;
        };
        let by = evict.by.as_ref().and_then(|by| world.gangs.get(by));
        if let Some(by) = by.filter(|by| world.gang(**by).dialect() != world.gang(victim).dialect()) {
            let (pod, by) = (world.pod(pod).key.clone(), world.gang(*by).key.clone());
            findings.push(Finding::OtherDialect { pod, by });
        } else if let Some(by) = by
            && world.is_volcano(victim)
            && matches!(evict.action, Action::Reclaim | Action::GangReclaim)
        {
            let pod = &world.pod(pod).key;
            super::victims::too_early(world, world.gang(victim), world.gang(*by), pod, findings);
        }
    }
}

/// A gang of which a pod is bound has its minimum: what is over counts, and pods that ask for nothing need no place to count.
fn minimums(world: &World<'_>, findings: &mut Vec<Finding>) {
    for (gang, members) in world.members.iter().enumerate() {
        let gang = world.gang(gang);
        let Some(group) = &gang.volcano else { continue };
        if !members.iter().any(|pod| matches!(world.fate[*pod], Fate::Bound(_))) {
            continue;
        }
        let counts = |pod: &&usize| match world.fate[**pod] {
            Fate::Absent => false,
            // Who is evicted may have been there when the others were bound.
            Fate::Bound(_) | Fate::Lost(_) | Fate::Moved(..) => true,
            Fate::Rest | Fate::Promised(_) => {
                let pod = world.pod(**pod);
                let modest = || pod.shape.requests.iter().all(|(r, n)| *r == Resource::Pods || n == 0);
                match pod.state {
                    PodState::Pending | PodState::Gated => modest(),
                    PodState::Succeeded => true,
                    state => state.stays(),
                }
            }
        };
        let have = u32::try_from(members.iter().filter(counts).count()).unwrap_or(u32::MAX);
        if have < group.min_member {
            let (gang, need) = (gang.key.clone(), group.min_member);
            findings.push(Finding::BelowMinimum { gang, group: "".into(), have, need });
        }
    }
}

/// A queue and, in a tree, those above it.
fn line<'w>(world: &'w World<'_>, queue: usize, in_tree: bool) -> Vec<usize> {
    let mut line = vec![queue];
    let named = |name: &str| {
        let all = world.cluster.queues.iter().enumerate();
        let of_tree = all.filter(|(_, queue)| queue.dialect() == Dialect::Volcano);
        of_tree.filter(|(_, queue)| own_name(&queue.name) == name).map(|(i, _)| i).next_back()
    };
    while let Some(last) = line.last().filter(|_| in_tree) {
        let last: &'w muster_model::Queue = &world.cluster.queues[*last];
        let parent = last.parent.as_deref().map_or("root", own_name);
        match named(parent).filter(|parent| !line.contains(parent)) {
            Some(parent) => line.push(parent),
            None => break,
        }
    }
    line
}

/// What was decided took no queue over what it can have at most, nor one above it in a tree.
fn capabilities(world: &World<'_>, in_tree: bool, findings: &mut Vec<Finding>) {
    let lines: BTreeMap<usize, Vec<usize>> = world
        .queues
        .values()
        .filter(|queue| world.cluster.queues[**queue].dialect() == Dialect::Volcano)
        .map(|queue| (*queue, line(world, *queue, in_tree)))
        .collect();
    // By queue and resource: held before, held afterwards, and newly given.
    let mut sums: BTreeMap<(usize, &Resource), (i128, i128, bool)> = BTreeMap::new();
    for (gang, members) in world.members.iter().enumerate() {
        let gang = world.gang(gang);
        let queue = world.queues.get(&*gang.queue).copied();
        let Some(queue) = queue.filter(|_| gang.dialect() == Dialect::Volcano) else { continue };
        for pod in members {
            let fate = world.fate[*pod];
            let pod = world.pod(*pod);
            let before = pod.state.stays();
            let given = matches!(fate, Fate::Bound(_) | Fate::Promised(_));
            let after = given || (before && matches!(fate, Fate::Rest));
            for (resource, amount) in pod.shape.requests.iter() {
                for up in lines.get(&queue).into_iter().flatten() {
                    let sum = sums.entry((*up, resource)).or_default();
                    sum.0 += if before { i128::from(amount) } else { 0 };
                    sum.1 += if after { i128::from(amount) } else { 0 };
                    sum.2 |= given && amount > 0;
                }
            }
        }
    }
    for ((queue, resource), (before, after, given)) in sums {
        let queue = &world.cluster.queues[queue];
        let Some(facts) = &queue.volcano else { continue };
        // Nothing of CPU and memory is no bound, and pods are not counted.
        let limit = facts.capability.get(resource);
        if *resource != Resource::Pods && limit > 0 && given && after > before && after > i128::from(limit) {
            let (queue, resource) = (queue.name.clone(), resource.clone());
            findings.push(Finding::OverLimit { queue, resource, before, after, limit });
        }
    }
}
