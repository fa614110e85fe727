//! Victims: whoever is evicted was allowed to be, for somebody who got something, and what is left of its gang makes sense.

use super::gangs::{Tree, count};
use super::queues::{line, parting};
use super::{Fate, Finding, World};
use muster_model::{
    Action, Dialect, Evict, Gang, Grace, Key, MinRuntimeRule, PodState, Preemptibility, Span, Time,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(world: &World<'_>, findings: &mut Vec<Finding>) {
    let mut victims: BTreeMap<usize, Vec<(usize, &Evict)>> = BTreeMap::new();
    for (pod, fate) in world.fate.iter().enumerate() {
        if let (Fate::Lost(evict) | Fate::Moved(evict, _), Some(gang)) = (fate, world.gang_of[pod])
            && !world.is_volcano(gang)
        {
            victims.entry(gang).or_default().push((pod, evict));
        }
    }
    for (gang, pods) in &victims {
        for (pod, evict) in pods {
            right(world, *gang, *pod, evict, findings);
        }
        if pods.iter().any(|(_, evict)| evict.action == Action::EvictStaleGangs) {
            stale(world, *gang, findings);
        } else {
            left_over(world, *gang, findings);
            protected(world, *gang, pods, findings);
        }
    }
    beneficiaries(world, &victims, findings);
}

/// Whether this pod may be evicted by this action for this gang.
fn right(world: &World<'_>, victim: usize, pod: usize, evict: &Evict, findings: &mut Vec<Finding>) {
    let victim = world.gang(victim);
    let pod = &world.pod(pod).key;
    if evict.action == Action::EvictStaleGangs {
        if evict.by.is_some() {
            findings.push(Finding::WrongBeneficiary { pod: pod.clone(), by: evict.by.clone() });
        }
        return;
    }
    if victim.preemptibility == Preemptibility::NonPreemptible {
        findings.push(Finding::NotPreemptible { pod: pod.clone(), gang: victim.key.clone() });
    }
    let by = evict.by.as_ref().and_then(|by| world.gangs.get(by)).map(|by| world.gang(*by));
    let Some(by) = by.filter(|by| by.key != victim.key) else {
        findings.push(Finding::WrongBeneficiary { pod: pod.clone(), by: evict.by.clone() });
        return;
    };
    let queue_of = |gang: &Gang| Some(&world.cluster.queues[*world.queues.get(&*gang.queue)?]);
    if let (Some(mine), Some(theirs)) = (queue_of(by), queue_of(victim)) {
        // Only KAI's and T9k's queues take from others, and across trees only where both are below queues of one tree.
        let judged = match evict.action {
            Action::Reclaim => parting(world, &by.queue, &victim.queue),
            _ => Some((mine.dialect(), theirs.dialect())),
        };
        let never = judged.is_some_and(|(one, _)| matches!(one, Dialect::Koordinator | Dialect::Kubernetes))
            && evict.action == Action::Reclaim;
        if judged.is_some_and(|(one, other)| one != other) || never {
            findings.push(Finding::OtherQueue {
                pod: pod.clone(),
                victim: victim.queue.clone(),
                preemptor: by.queue.clone(),
            });
        }
        let by_rank = judged == Some((Dialect::T9k, Dialect::T9k));
        if by_rank && theirs.priority >= mine.priority {
            findings.push(Finding::NotLower {
                pod: pod.clone(),
                victim: theirs.priority,
                preemptor: mine.priority,
            });
        }
    }
    if evict.action == Action::Reclaim {
        too_early(world, victim, by, pod, findings);
    }
    match evict.action {
        Action::Preempt => {
            if victim.queue != by.queue {
                findings.push(Finding::OtherQueue {
                    pod: pod.clone(),
                    victim: victim.queue.clone(),
                    preemptor: by.queue.clone(),
                });
            }
            if victim.priority >= by.priority {
                findings.push(Finding::NotLower {
                    pod: pod.clone(),
                    victim: victim.priority,
                    preemptor: by.priority,
                });
            }
        }
        Action::Reclaim if victim.queue == by.queue => {
            findings.push(Finding::SameQueue { pod: pod.clone(), queue: by.queue.clone() });
        }
        Action::Consolidate if !evict.moved => {
            findings.push(Finding::Lost { pod: pod.clone() });
        }
        _ => {}
    }
}

/// Whether the taker has waited as long as the victim's queue, or else one above it, lets others wait.
pub(super) fn too_early(world: &World<'_>, victim: &Gang, by: &Gang, pod: &Key, findings: &mut Vec<Finding>) {
    let mut names: Vec<&muster_model::Name> = vec![&victim.queue];
    let mut after = None;
    while let Some(queue) = names.last().and_then(|name| world.queues.get(&***name)) {
        let queue = &world.cluster.queues[*queue];
        after = after.or(queue.reclaim.after);
        match &queue.parent {
            Some(parent) if !names.contains(&parent) && names.len() < 64 => names.push(parent),
            _ => break,
        }
    }
    let since = by.last_eviction.unwrap_or(by.created).max(by.created);
    let until = since + after.unwrap_or(Span::ZERO);
    if after.is_some_and(|after| after > Span::ZERO) && world.cluster.now < until {
        findings.push(Finding::TooEarlyFrom { pod: pod.clone(), by: by.key.clone(), until });
    }
}

/// A gang that is evicted for its own sake has been below its minimum for too long, and goes as a whole.
fn stale(world: &World<'_>, gang: usize, findings: &mut Vec<Finding>) {
    let (gang_idx, gang) = (gang, world.gang(gang));
    let key = || gang.key.clone();
    if grouped(world, gang_idx).any(|pod| world.pod(pod).state == PodState::Succeeded) {
        findings.push(Finding::HasSucceeded { gang: key() });
    }
    // Pods that are leaving still count. Every leaf is asked, even one that its parent could do without.
    let here = |pod: usize| world.pod(pod).state.holds_room() || matches!(world.fate[pod], Fate::Bound(_));
    let below = Tree::of(gang).is_none_or(|tree| {
        let standing = tree.standing(&tree.sums(count(world, gang_idx, here)));
        standing.iter().any(|(have, need)| have < need)
    });
    if !below {
        findings.push(Finding::NotStale { gang: key() });
    }
    let now = world.cluster.now;
    let until = match gang.staleness_grace.unwrap_or(world.policy.staleness_grace) {
        Grace::For(span) if span >= Span::ZERO => Some(gang.stale_since.unwrap_or(now) + span),
        Grace::For(_) | Grace::Forever => None,
    };
    if until.is_none_or(|until| now < until) {
        findings.push(Finding::InGrace { gang: key(), until });
    }
    let stays = |pod: &usize| match world.fate[*pod] {
        Fate::Rest => world.pod(*pod).state.stays(),
        Fate::Bound(_) | Fate::Moved(..) => true,
        Fate::Absent | Fate::Promised(_) | Fate::Lost(_) => false,
    };
    let left = grouped(world, gang_idx).filter(stays).count();
    if left > 0 {
        findings.push(Finding::StaleLeft { gang: key(), left: u32::try_from(left).unwrap_or(u32::MAX) });
    }
}

/// Pods of the gang that are in one of its groups. Those that name a group that it does not have count for nobody, and nobody evicts them.
fn grouped<'w>(world: &'w World<'_>, gang: usize) -> impl Iterator<Item = usize> + 'w {
    world.members[gang].iter().copied().filter(|pod| world.leaf_of[*pod].is_some())
}

/// Evictions leave a group its minimum, or nothing. One that did not have its minimum had nothing to lose.
fn left_over(world: &World<'_>, gang: usize, findings: &mut Vec<Finding>) {
    let Some(tree) = Tree::of(world.gang(gang)) else { return };
    let had = |pod: usize| world.pod(pod).state.stays() || matches!(world.fate[pod], Fate::Bound(_));
    // A gang that nobody stays of lives on promises alone, those that it was given before included.
    let stays = |pod: usize| had(pod) && matches!(world.fate[pod], Fate::Rest | Fate::Bound(_));
    let on_promises = !grouped(world, gang).any(stays);
    let keeps = |pod: usize| match world.fate[pod] {
        Fate::Lost(_) => false,
        Fate::Promised(_) => on_promises,
        _ => had(pod),
    };
    let before = tree.standing(&tree.sums(count(world, gang, had)));
    let pods = tree.sums(count(world, gang, keeps));
    let after = tree.standing(&pods);
    let broken = |i: &usize| pods[*i] > 0 && before[*i].0 >= before[*i].1 && after[*i].0 < after[*i].1;
    if let Some(group) = (0..after.len()).rev().find(broken) {
        let ((have, need), gang) = (after[group], world.gang(gang));
        let (key, name) = (gang.key.clone(), gang.groups[group].name.clone());
        findings.push(Finding::LeftBelowMinimum { gang: key, group: name, have, need, left: pods[group] });
    }
}

/// Within its minimum runtime a gang may lose what it has beyond its minimum, and nothing else; being moved is an interruption too.
fn protected(world: &World<'_>, gang: usize, pods: &[(usize, &Evict)], findings: &mut Vec<Finding>) {
    let victim = world.gang(gang);
    let Some(start) = victim.last_start else { return };
    let until_of = |evict: &Evict| {
        let by = evict.by.as_ref().and_then(|by| world.gangs.get(by)).map(|by| world.gang(*by))?;
        let span = min_runtime(world, victim, by, evict.action)?;
        Some(start + span).filter(|until| world.cluster.now < *until)
    };
    let Some(until) = pods.iter().filter_map(|(_, evict)| until_of(evict)).max() else { return };
    let enough = Tree::of(victim).is_some_and(|tree| {
        let is_whole =
            |pods: Vec<u32>| tree.standing(&tree.sums(pods)).first().is_some_and(|(have, need)| have >= need);
        // It may have got its minimum in this very cycle.
        let had = |pod: usize| world.pod(pod).state.stays() || matches!(world.fate[pod], Fate::Bound(_));
        // Promises stand in for nobody who was part of a minimum; a gang that had none is judged by the one that it is promised.
        let had_minimum = is_whole(count(world, gang, had));
        is_whole(count(world, gang, |pod| match world.fate[pod] {
            Fate::Rest | Fate::Bound(_) => had(pod),
            // Each action is judged by itself: what another may take is not this one's doing.
            Fate::Lost(evict) | Fate::Moved(evict, _) => until_of(evict).is_none(),
            Fate::Promised(_) => !had_minimum,
            Fate::Absent => false,
        }))
    });
    if !enough {
        findings.push(Finding::Protected { gang: victim.key.clone(), until });
    }
}

/// How long the victim is safe from this action; `None`: the action knows no such protection.
fn min_runtime(world: &World<'_>, victim: &Gang, by: &Gang, action: Action) -> Option<Span> {
    let queues = &world.cluster.queues;
    let line_of = |gang: &Gang| line(world, &gang.queue).unwrap_or_default();
    let own = line_of(victim);
    match action {
        Action::Preempt => {
            let said = own.iter().find_map(|queue| queues[*queue].preempt_min_runtime);
            Some(said.unwrap_or(world.policy.preempt_min_runtime))
        }
        Action::Reclaim => {
            let from = match world.policy.min_runtime_rule {
                MinRuntimeRule::Queue => 0,
                MinRuntimeRule::BelowCommonAncestor => {
                    let theirs: BTreeSet<usize> = line_of(by).into_iter().collect();
                    let common = own.iter().position(|queue| theirs.contains(queue)).unwrap_or(own.len());
                    common.saturating_sub(1)
                }
            };
            let said = own.iter().skip(from).find_map(|queue| queues[*queue].reclaim_min_runtime);
            Some(said.unwrap_or(world.policy.reclaim_min_runtime))
        }
        _ => None,
    }
}

/// Those for whom others were evicted: they were allowed to ask, and got something.
fn beneficiaries(
    world: &World<'_>,
    victims: &BTreeMap<usize, Vec<(usize, &Evict)>>,
    findings: &mut Vec<Finding>,
) {
    let mut moved: BTreeMap<&Key, BTreeSet<usize>> = BTreeMap::new();
    let mut asking: BTreeSet<&Key> = BTreeSet::new();
    for (gang, pods) in victims {
        for (_, evict) in pods {
            let Some(by) = &evict.by else { continue };
            asking.insert(by);
            if evict.action == Action::Consolidate {
                moved.entry(by).or_default().insert(*gang);
            }
        }
    }
    for key in asking {
        let Some(index) = world.gangs.get(key).copied() else { continue };
        let (by, members) = (world.gang(index), &world.members[index]);
        if !members.iter().any(|pod| matches!(world.fate[*pod], Fate::Bound(_) | Fate::Promised(_))) {
            findings.push(Finding::EvictedForNothing { by: key.clone() });
        }
        let until: Time = by.last_eviction.unwrap_or(by.created).max(by.created) + by.preemption_delay;
        if by.preemption_delay > Span::ZERO && world.cluster.now < until {
            findings.push(Finding::TooEarly { by: key.clone(), until });
        }
        let Some(gangs) = moved.get(key) else { continue };
        if by.preemptibility == Preemptibility::NonPreemptible {
            findings.push(Finding::MoverNotPreemptible { by: key.clone() });
        }
        if let Some(most) = world.policy.max_consolidation_victims.filter(|most| gangs.len() > *most as usize)
        {
            findings.push(Finding::TooManyMoved { by: key.clone(), gangs: gangs.len(), most });
        }
    }
}
