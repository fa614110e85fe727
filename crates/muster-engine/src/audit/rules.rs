//! What pods say about nodes and about each other: selectors, taints, ports, volumes, company, spreading.

use super::{Finding, Place, Scene, World};
use muster_model::{
    AffinityTerm, Conditions, Expr, Key, Labels, Name, Node, NodeReason, NodeTerm, Op, Pod, PodState, Pool,
    SpreadRule, TaintEffect, VolumeNeed,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn check(world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for (pod, place) in &scene.fresh {
        alone(world, world.pod(*pod), *place, findings);
    }
    for seats in 0..scene.seats.len() {
        ports(world, scene, seats, findings);
        attachments(world, scene, seats, findings);
    }
    lone_volumes(world, scene, findings);
    let labels = LabelIndex::read(world, &scene.node_of);
    affinity(world, scene, findings);
    anti_affinity(world, scene, &labels, findings);
    spread(world, scene, &labels, findings);
}

fn forbidden(pod: &Pod, node: &Node, reason: NodeReason, other: Option<&Pod>) -> Finding {
    Finding::Forbidden {
        pod: pod.key.clone(),
        node: node.name.clone(),
        reason,
        other: other.map(|other| other.key.clone()),
    }
}

/// Rules that ask nothing of other pods.
fn alone(world: &World<'_>, pod: &Pod, place: Place<'_>, findings: &mut Vec<Finding>) {
    let (node, shape) = (world.node(place.node), &pod.shape);
    // To Volcano, taints say what matters of a node's pressure.
    let told = Conditions { pressure: node.conditions.pressure && pod.volcano.is_none(), ..node.conditions };
    if !told.usable() {
        findings.push(forbidden(pod, node, NodeReason::NotUsable, None));
    }
    if !in_pool(&world.policy.pool, &node.labels) {
        findings.push(forbidden(pod, node, NodeReason::OtherPool, None));
    }
    if !shape.node.allows(&node.name, &node.labels) {
        findings.push(forbidden(pod, node, NodeReason::NodeAffinity, None));
    }
    if let Some(key) = untolerated(pod, node) {
        findings.push(forbidden(pod, node, NodeReason::Taint { key: key.clone() }, None));
    }
    for what in &shape.missing {
        findings.push(Finding::Missing { pod: pod.key.clone(), what: what.clone() });
    }
    if let Some(only) = shape.only_node.as_ref().filter(|only| **only != node.name) {
        let (pod, node) = (pod.key.clone(), node.name.clone());
        findings.push(Finding::OnlyNode { pod, node, only: only.clone() });
    }
    let one_of =
        |terms: &[NodeTerm]| terms.is_empty() || terms.iter().any(|t| t.holds(&node.name, &node.labels));
    for volume in &shape.volumes {
        let reachable = match &volume.need {
            VolumeNeed::Bound { reachable } => one_of(reachable),
            VolumeNeed::WaitsForPod { provisioned, free } => {
                provisioned.as_ref().is_some_and(|terms| one_of(terms))
                    || free.iter().any(|terms| one_of(terms))
            }
            VolumeNeed::Unbound => false,
        };
        if !reachable {
            findings.push(forbidden(pod, node, NodeReason::Volume, None));
        }
    }
}

fn in_pool(pool: &Pool, labels: &Labels) -> bool {
    pool.label.as_ref().is_none_or(|label| labels.get(label) == pool.value.as_ref())
}

/// The key of a taint that keeps the pod away.
fn untolerated<'n>(pod: &Pod, node: &'n Node) -> Option<&'n Name> {
    let keeps_away = |effect| matches!(effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
    let taint = node.taints.iter().find(|taint| {
        keeps_away(taint.effect) && !pod.shape.tolerations.iter().any(|toleration| toleration.covers(taint))
    });
    taint.map(|taint| &taint.key)
}

fn ports(world: &World<'_>, scene: &Scene<'_>, node: usize, findings: &mut Vec<Finding>) {
    let seats = &scene.seats[node];
    if !seats.iter().any(|seat| seat.fresh && !world.pod(seat.pod).shape.ports.is_empty()) {
        return;
    }
    let mut taken: BTreeMap<(u16, &str), Vec<usize>> = BTreeMap::new();
    for seat in seats {
        for port in &world.pod(seat.pod).shape.ports {
            taken.entry((port.port, &port.protocol)).or_default().push(seat.pod);
        }
    }
    for seat in seats.iter().filter(|seat| seat.fresh) {
        let pod = world.pod(seat.pod);
        let clash = pod.shape.ports.iter().find_map(|port| {
            let others = taken.get(&(port.port, &*port.protocol)).into_iter().flatten();
            others.copied().find(|other| {
                *other != seat.pod && world.pod(*other).shape.ports.iter().any(|theirs| theirs.clashes(port))
            })
        });
        if let Some(other) = clash {
            findings.push(forbidden(pod, world.node(node), NodeReason::HostPort, Some(world.pod(other))));
        }
    }
}

fn attachments(world: &World<'_>, scene: &Scene<'_>, node: usize, findings: &mut Vec<Finding>) {
    let limits = &world.node(node).attach_limits;
    if limits.is_empty() || !scene.seats[node].iter().any(|seat| seat.fresh) {
        return;
    }
    let mut attached: BTreeMap<&Name, BTreeSet<&Key>> = BTreeMap::new();
    for seat in &scene.seats[node] {
        for volume in &world.pod(seat.pod).shape.volumes {
            if let Some(driver) = &volume.driver {
                attached.entry(driver).or_default().insert(&volume.claim);
            }
        }
    }
    for seat in scene.seats[node].iter().filter(|seat| seat.fresh) {
        let pod = world.pod(seat.pod);
        let over = pod.shape.volumes.iter().filter_map(|volume| volume.driver.as_ref()).any(|driver| {
            let n_attached = attached.get(driver).map_or(0, BTreeSet::len);
            limits.get(driver).is_some_and(|limit| n_attached > *limit as usize)
        });
        if over {
            findings.push(forbidden(pod, world.node(node), NodeReason::AttachLimit, None));
        }
    }
}

fn lone_volumes(world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let mut user: BTreeMap<&Key, usize> = BTreeMap::new();
    for fresh in [false, true] {
        for seat in scene.seats.iter().flatten().filter(|seat| seat.fresh == fresh) {
            for volume in world.pod(seat.pod).shape.volumes.iter().filter(|volume| volume.one_pod) {
                if let Some(other) = user.insert(&volume.claim, seat.pod)
                    && fresh
                    && other != seat.pod
                {
                    let pods = [world.pod(other).key.clone(), world.pod(seat.pod).key.clone()];
                    findings.push(Finding::VolumeShared { claim: volume.claim.clone(), pods });
                }
            }
        }
    }
}

/// The pods of a scene by label, so that a selector need not look at all of them.
struct LabelIndex<'a> {
    by_label: BTreeMap<(&'a str, &'a str), Vec<usize>>,
    all: Vec<usize>,
}

impl<'a> LabelIndex<'a> {
    fn read(world: &World<'a>, node_of: &[Option<usize>]) -> Self {
        let mut index = Self { by_label: BTreeMap::new(), all: Vec::new() };
        for (pod, node) in node_of.iter().enumerate() {
            if node.is_some() {
                index.all.push(pod);
                for (key, value) in world.pod(pod).labels.iter() {
                    index.by_label.entry((key, value)).or_default().push(pod);
                }
            }
        }
        index
    }

    /// Pods that may satisfy the expressions; each at most once.
    fn candidates(&self, all: &[Expr]) -> Vec<usize> {
        for expr in all {
            if let Op::In(values) = &expr.op {
                let values: BTreeSet<&Name> = values.iter().collect();
                let lists = values.into_iter().filter_map(|value| self.by_label.get(&(&*expr.key, &**value)));
                return lists.flatten().copied().collect();
            }
        }
        self.all.clone()
    }
}

fn among(namespaces: &Option<Vec<Name>>, pod: &Pod) -> bool {
    namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(&pod.key.namespace))
}

fn selects(term: &AffinityTerm, pod: &Pod) -> bool {
    among(&term.namespaces, pod) && term.selector.matches(&pod.labels)
}

/// What tells one term from another, in an order of its own.
type TermKey<'a> = (&'a Option<Vec<Name>>, &'a [Expr], &'a str);

fn term_key(term: &AffinityTerm) -> TermKey<'_> {
    (&term.namespaces, &term.selector.all, &term.topology_key)
}

fn value<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.labels.get(key).map(|value| &**value)
}

/// The terms that some newcomers share, and the newcomers.
type Holders<'a> = (&'a [AffinityTerm], Vec<(usize, Place<'a>)>);

/// Required company. As in Kubernetes, a pod counts if it matches every term; and if no such pod is anywhere, one that would be its
/// own company may open a place. Also as there, whoever was told to leave is company as long as it is there.
fn affinity(world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let mut holders: BTreeMap<Vec<TermKey<'_>>, Holders<'_>> = BTreeMap::new();
    for (pod, place) in &scene.fresh {
        let terms = &world.pod(*pod).shape.pods.affinity;
        // A promise is made anew in the next cycle; until then the company may come or go.
        if !terms.is_empty() && matches!(world.fate[*pod], super::Fate::Bound(_)) {
            let key = terms.iter().map(term_key).collect();
            holders.entry(key).or_insert_with(|| (terms, Vec::new())).1.push((*pod, *place));
        }
    }
    if holders.is_empty() {
        return;
    }
    let mut node_of = scene.node_of.clone();
    for (pod, node) in node_of.iter_mut().enumerate() {
        if node.is_none() {
            *node = world.old_node(pod);
        }
    }
    let labels = LabelIndex::read(world, &node_of);
    let fresh: BTreeSet<usize> = scene.fresh.iter().map(|(pod, _)| *pod).collect();
    for (terms, holders) in holders.into_values() {
        let Some(first) = terms.first() else { continue };
        let mut matching = labels.candidates(&first.selector.all);
        matching.retain(|pod| terms.iter().all(|term| selects(term, world.pod(*pod))));
        let holds: BTreeSet<usize> = holders.iter().map(|(pod, _)| *pod).collect();
        // Who is sent away in this cycle, or is in no place that the terms speak of, is nobody that a newcomer has to join.
        let in_a_place = |pod: usize| {
            let node = node_of[pod].map(|node| world.node(node));
            node.is_some_and(|node| terms.iter().any(|term| value(node, &term.topology_key).is_some()))
        };
        let anyone_before = matching.iter().any(|pod| {
            !fresh.contains(pod) && matches!(world.fate[*pod], super::Fate::Rest) && in_a_place(*pod)
        });
        for term in terms {
            // Places that have company without the holders themselves.
            let mut places: BTreeSet<&str> = BTreeSet::new();
            for pod in matching.iter().filter(|pod| !holds.contains(pod)) {
                let node = node_of[*pod].map(|node| world.node(node));
                places.extend(node.and_then(|node| value(node, &term.topology_key)));
            }
            let mut opened: Option<&str> = None;
            for (pod, place) in &holders {
                let (pod, node) = (world.pod(*pod), world.node(place.node));
                let here = value(node, &term.topology_key);
                let opens = here.is_some()
                    && !anyone_before
                    && terms.iter().all(|term| selects(term, pod))
                    && opened.is_none_or(|opened| Some(opened) == here);
                if here.is_some_and(|here| places.contains(here)) {
                    continue;
                }
                if opens {
                    opened = here;
                } else {
                    findings.push(forbidden(pod, node, NodeReason::PodAffinity, None));
                }
            }
        }
    }
}

/// Forbidden company, in both directions: what the newcomers say, and what is said about them by those who are there.
fn anti_affinity(world: &World<'_>, scene: &Scene<'_>, labels: &LabelIndex<'_>, findings: &mut Vec<Finding>) {
    let mut sayers: BTreeMap<TermKey<'_>, (&AffinityTerm, Vec<usize>)> = BTreeMap::new();
    for pod in &labels.all {
        for term in &world.pod(*pod).shape.pods.anti_affinity {
            sayers.entry(term_key(term)).or_insert_with(|| (term, Vec::new())).1.push(*pod);
        }
    }
    let fresh: BTreeSet<usize> = scene.fresh.iter().map(|(pod, _)| *pod).collect();
    let mut reported: BTreeSet<usize> = BTreeSet::new();
    for (term, sayers) in sayers.into_values() {
        let mut matching = labels.candidates(&term.selector.all);
        matching.retain(|pod| selects(term, world.pod(*pod)));
        let place =
            |pod: usize| scene.node_of[pod].and_then(|node| value(world.node(node), &term.topology_key));
        // The first two of each place are enough to find one who is not the pod itself.
        let first_two = |pods: &[usize]| {
            let mut at: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for pod in pods {
                if let Some(here) = place(*pod) {
                    let list = at.entry(here).or_default();
                    if list.len() < 2 {
                        list.push(*pod);
                    }
                }
            }
            at
        };
        let (said_at, matched_at) = (first_two(&sayers), first_two(&matching));
        for (pods, against) in [(&sayers, &matched_at), (&matching, &said_at)] {
            for pod in pods.iter().filter(|pod| fresh.contains(pod)) {
                let others = place(*pod).and_then(|here| against.get(here)).into_iter().flatten();
                let Some(other) = others.copied().find(|other| other != pod) else { continue };
                if reported.insert(*pod)
                    && let Some(node) = scene.node_of[*pod]
                {
                    let (pod, other) = (world.pod(*pod), world.pod(other));
                    findings.push(forbidden(pod, world.node(node), NodeReason::PodAntiAffinity, Some(other)));
                }
            }
        }
    }
}

/// Required spreading. Decisions were made one after the other, in an order that is not known here: so the fullest place is counted
/// without those who leave or do not care, and the emptiest with everyone who was or will be there.
fn spread(world: &World<'_>, scene: &Scene<'_>, labels: &LabelIndex<'_>, findings: &mut Vec<Finding>) {
    // Pods of one shape count alike; the address only tells shapes apart and orders nothing that is seen.
    let mut known: BTreeMap<(usize, usize), BTreeMap<&str, SpreadCount>> = BTreeMap::new();
    // A promise is made anew in the next cycle; until then others may come or go.
    for (pod, place) in
        scene.fresh.iter().filter(|(pod, _)| matches!(world.fate[*pod], super::Fate::Bound(_)))
    {
        let (pod, node) = (world.pod(*pod), world.node(place.node));
        let rules: Vec<&SpreadRule> = pod.shape.pods.spread.iter().filter(|rule| rule.required).collect();
        for (i, rule) in rules.iter().enumerate() {
            let Some(here) = value(node, &rule.topology_key) else {
                findings.push(forbidden(pod, node, NodeReason::TopologySpread, None));
                continue;
            };
            let counts = known
                .entry((Arc::as_ptr(&pod.shape) as usize, i))
                .or_insert_with(|| spread_counts(world, scene, labels, pod, &rules, rule));
            let Some(count) = counts.get(here) else { continue };
            let few_places = rule.min_domains.is_some_and(|least| (counts.len() as i64) < i64::from(least));
            let least = if few_places { 0 } else { counts.values().map(|c| c.most).min().unwrap_or(0) };
            if count.least - least > i64::from(rule.max_skew) {
                findings.push(forbidden(pod, node, NodeReason::TopologySpread, None));
            }
        }
    }
}

/// How many matching pods a place has, at least and at most.
#[derive(Default)]
struct SpreadCount {
    least: i64,
    most: i64,
}

fn spread_counts<'a>(
    world: &World<'a>,
    scene: &Scene<'_>,
    labels: &LabelIndex<'_>,
    pod: &Pod,
    rules: &[&SpreadRule],
    rule: &SpreadRule,
) -> BTreeMap<&'a str, SpreadCount> {
    let eligible = |node: &Node| {
        rules.iter().all(|rule| node.labels.contains_key(&rule.topology_key))
            && (!rule.honour_node_rules || pod.shape.node.allows(&node.name, &node.labels))
            && (!rule.honour_taints || untolerated(pod, node).is_none())
    };
    let mut counts: BTreeMap<&str, SpreadCount> = BTreeMap::new();
    for node in world.cluster.nodes.iter().filter(|node| eligible(node)) {
        if let Some(here) = value(node, &rule.topology_key) {
            counts.entry(here).or_default();
        }
    }
    let matches = |other: &Pod| other.key.namespace == rule.namespace && rule.selector.matches(&other.labels);
    for other in labels.candidates(&rule.selector.all) {
        let them = world.pod(other);
        let Some(node) = scene.node_of[other].map(|node| world.node(node)) else { continue };
        if !matches(them) || them.state == PodState::Releasing || !eligible(node) {
            continue;
        }
        if let Some(count) = value(node, &rule.topology_key).and_then(|here| counts.get_mut(here)) {
            let leaves = matches!(world.fate[other], super::Fate::Lost(_) | super::Fate::Moved(..))
                && scene.when == super::When::Now;
            let cares = them.shape.pods.spread.contains(rule) || them.state != PodState::Pending;
            count.least += i64::from(!leaves && cares);
            count.most += 1;
        }
    }
    // Those who go and those who come, whom this moment does not show.
    for (other, fate) in world.fate.iter().enumerate() {
        let elsewhere = match (fate, scene.when) {
            (super::Fate::Promised(place) | super::Fate::Moved(_, place), super::When::Now) => {
                Some(place.node)
            }
            (super::Fate::Lost(_) | super::Fate::Moved(..), super::When::Later) => world.old_node(other),
            _ => None,
        };
        let node = elsewhere.map(|node| world.node(node)).filter(|node| eligible(node));
        if let Some(node) = node.filter(|_| matches(world.pod(other)))
            && let Some(count) = value(node, &rule.topology_key).and_then(|here| counts.get_mut(here))
        {
            count.most += 1;
        }
    }
    counts
}
