//! The auditor: recomputes from the model alone whether decisions keep every promise, slowly and plainly.
//!
//! In: the cluster before a cycle, the policy, and what was decided. Out: every rule that the decisions break; none is the only good
//! answer. What was wrong before and is not made worse is not held against the decisions.
//!
//! *Invariant:* nothing of the engine is used here, so that an error there cannot hide here.
//! *Invariant:* where the order of decisions matters and is not known, the doubt is in favour of the decisions.
//!
//! Not checked: whether a reclaim was fair (that needs the fair shares), whether a better placement existed, and which free volume
//! a waiting claim will get. Cost: near linear in pods, nodes and distinct rules.

mod finding;

mod devices;
mod gangs;
mod queues;
mod room;
mod rules;
mod victims;
mod volcano;

#[cfg(test)]
mod tests;

pub use finding::{Finding, When};

use muster_model::volcano::{Hook, PluginKind};
use muster_model::{
    Action, Cluster, Decisions, Dialect, Evict, Gang, Key, Min, Name, Node, Placement, Pod, PodState, Policy,
    Reach,
};
use std::collections::BTreeMap;

/// Everything that is wrong with what was decided.
pub fn audit(before: &Cluster, policy: &Policy, decisions: &Decisions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let world = World::read(before, policy, decisions, &mut findings);
    for when in [When::Now, When::Later] {
        let scene = Scene::look(&world, when);
        if scene.fresh.is_empty() {
            continue;
        }
        // Room is the same for all, whoever placed the pods.
        room::check(&world, &scene, &mut findings);
        let scene = if filters_apply(policy) { scene } else { scene.of_kai(&world) };
        if !scene.fresh.is_empty() {
            devices::check(&world, &scene, &mut findings);
            rules::check(&world, &scene, &mut findings);
        }
    }
    pools(&world, &mut findings);
    gangs::check(&world, &mut findings);
    queues::check(&world, &mut findings);
    victims::check(&world, &mut findings);
    volcano::check(&world, &mut findings);
    findings
}

/// Everyone goes to nodes of its own tree's pool, and to nobody else's.
fn pools(world: &World<'_>, findings: &mut Vec<Finding>) {
    let pool_of = |tree: Dialect| match world.policy.trees.get(&tree) {
        Some(Reach::Nodes { label, values }) => Some((label, values)),
        _ => None,
    };
    let trees = [Dialect::Kai, Dialect::Volcano, Dialect::T9k, Dialect::Koordinator, Dialect::Kubernetes];
    for (pod, fate) in world.fate.iter().enumerate() {
        let (Fate::Bound(place) | Fate::Promised(place) | Fate::Moved(_, place), Some(gang)) =
            (fate, world.gang_of[pod])
        else {
            continue;
        };
        let Some(queue) = world.queues.get(&*world.gang(gang).queue) else { continue };
        let own = world.cluster.queues[*queue].dialect();
        let node = world.node(place.node);
        let is_in = |tree: Dialect| {
            pool_of(tree).map(|(label, values)| node.labels.get(label).is_some_and(|v| values.contains(v)))
        };
        let right = is_in(own).unwrap_or_else(|| trees.iter().all(|other| is_in(*other) != Some(true)));
        if !right {
            let (pod, node) = (world.pod(pod).key.clone(), node.name.clone());
            findings.push(Finding::OutsidePool { pod, node });
        }
    }
}

/// Whether nodes are filtered by what pods say about them: under Volcano that is a plugin, and may be off.
fn filters_apply(policy: &Policy) -> bool {
    let Some(conf) = &policy.volcano else { return true };
    conf.tiers.iter().flatten().any(|plugin| {
        matches!(plugin.kind, PluginKind::Predicates(filters) if filters.all())
            && plugin.enabled.has(Hook::Predicate)
    })
}

/// The cluster with its names resolved, and what was decided about each pod.
struct World<'a> {
    cluster: &'a Cluster,
    policy: &'a Policy,
    decisions: &'a Decisions,
    nodes: BTreeMap<&'a str, usize>,
    gangs: BTreeMap<&'a Key, usize>,
    queues: BTreeMap<&'a str, usize>,
    /// By pod; an object that a later one of the same name replaces is absent.
    fate: Vec<Fate<'a>>,
    /// By pod: its gang, and its leaf group in it.
    gang_of: Vec<Option<usize>>,
    leaf_of: Vec<Option<usize>>,
    /// By gang.
    members: Vec<Vec<usize>>,
    /// By node: who held room there before the cycle.
    old_seats: Vec<Vec<usize>>,
}

/// What was decided about a pod.
#[derive(Clone, Copy)]
enum Fate<'a> {
    Absent,
    Rest,
    Bound(Place<'a>),
    Promised(Place<'a>),
    Lost(&'a Evict),
    Moved(&'a Evict, Place<'a>),
}

/// A place that was decided.
#[derive(Clone, Copy)]
struct Place<'a> {
    node: usize,
    placement: &'a Placement,
}

impl<'a> World<'a> {
    fn read(
        cluster: &'a Cluster,
        policy: &'a Policy,
        decisions: &'a Decisions,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let nodes: BTreeMap<&str, usize> =
            cluster.nodes.iter().enumerate().map(|(i, node)| (&*node.name, i)).collect();
        let gangs: BTreeMap<&Key, usize> =
            cluster.gangs.iter().enumerate().map(|(i, gang)| (&gang.key, i)).collect();
        let queues: BTreeMap<&str, usize> =
            cluster.queues.iter().enumerate().map(|(i, queue)| (&*queue.name, i)).collect();
        let pods: BTreeMap<&Key, usize> =
            cluster.pods.iter().enumerate().map(|(i, pod)| (&pod.key, i)).collect();

        let mut fate = vec![Fate::Absent; cluster.pods.len()];
        for pod in pods.values() {
            fate[*pod] = Fate::Rest;
        }
        let leaves: Vec<Leaves<'a>> = cluster.gangs.iter().map(|gang| Leaves::of(gang)).collect();
        let mut gang_of = vec![None; cluster.pods.len()];
        let mut leaf_of = vec![None; cluster.pods.len()];
        let mut members = vec![Vec::new(); cluster.gangs.len()];
        for (i, pod) in cluster.pods.iter().enumerate() {
            let gang = pod.gang.as_ref().and_then(|key| gangs.get(key)).copied();
            if let Some(gang) = gang.filter(|_| !matches!(fate[i], Fate::Absent)) {
                gang_of[i] = Some(gang);
                leaf_of[i] = leaves[gang].find(pod);
                members[gang].push(i);
            }
        }
        let old_seats = vec![Vec::new(); cluster.nodes.len()];
        let mut world = Self {
            cluster,
            policy,
            decisions,
            nodes,
            gangs,
            queues,
            fate,
            gang_of,
            leaf_of,
            members,
            old_seats,
        };
        for pod in pods.values() {
            if let Some(node) = world.old_node(*pod) {
                world.old_seats[node].push(*pod);
            }
        }
        world.decide(&pods, findings);
        world
    }

    /// Notes each decision on its pod, as far as it makes sense.
    fn decide(&mut self, pods: &BTreeMap<&'a Key, usize>, findings: &mut Vec<Finding>) {
        for bind in &self.decisions.binds {
            let Some(pod) = self.known(pods, &bind.pod, &bind.gang, findings) else { continue };
            self.action(pod, bind.action, bind.action != Action::EvictStaleGangs, findings);
            let Some(place) = self.place(pod, &bind.placement, findings) else { continue };
            let state = self.cluster.pods[pod].state;
            if !matches!(self.fate[pod], Fate::Rest) {
                findings.push(Finding::DecidedTwice { pod: bind.pod.clone() });
            } else if state != PodState::Pending {
                findings.push(Finding::NotWaiting { pod: bind.pod.clone(), state });
            } else {
                self.fate[pod] = Fate::Bound(place);
            }
        }
        for evict in &self.decisions.evictions {
            let Some(pod) = self.known(pods, &evict.pod, &evict.gang, findings) else { continue };
            self.action(pod, evict.action, evict.action != Action::Allocate, findings);
            let state = self.cluster.pods[pod].state;
            if !matches!(self.fate[pod], Fate::Rest) {
                findings.push(Finding::DecidedTwice { pod: evict.pod.clone() });
            } else if !state.stays() {
                findings.push(Finding::NotRunning { pod: evict.pod.clone(), state });
            } else {
                self.fate[pod] = Fate::Lost(evict);
            }
        }
        for pipeline in &self.decisions.pipelined {
            let Some(pod) = self.known(pods, &pipeline.pod, &pipeline.gang, findings) else { continue };
            self.action(pod, pipeline.action, pipeline.action != Action::EvictStaleGangs, findings);
            let Some(place) = self.place(pod, &pipeline.placement, findings) else { continue };
            let state = self.cluster.pods[pod].state;
            match self.fate[pod] {
                Fate::Lost(evict) => {
                    if !evict.moved {
                        findings.push(Finding::MovedFlag { pod: pipeline.pod.clone(), moved: false });
                    }
                    self.fate[pod] = Fate::Moved(evict, place);
                }
                Fate::Rest if state == PodState::Pending => self.fate[pod] = Fate::Promised(place),
                Fate::Rest => findings.push(Finding::NotWaiting { pod: pipeline.pod.clone(), state }),
                _ => findings.push(Finding::DecidedTwice { pod: pipeline.pod.clone() }),
            }
        }
        for fate in &self.fate {
            if let Fate::Lost(evict) = fate
                && evict.moved
            {
                findings.push(Finding::MovedFlag { pod: evict.pod.clone(), moved: true });
            }
        }
        for key in &self.decisions.newly_stale {
            if !self.gangs.contains_key(key) {
                findings.push(Finding::UnknownGang { gang: key.clone() });
            }
        }
    }

    /// The pod of a decision, if it exists and is of the gang that the decision says.
    fn known(
        &self,
        pods: &BTreeMap<&'a Key, usize>,
        pod: &Key,
        gang: &Key,
        findings: &mut Vec<Finding>,
    ) -> Option<usize> {
        let Some(i) = pods.get(pod).copied() else {
            findings.push(Finding::UnknownPod { pod: pod.clone() });
            return None;
        };
        if self.cluster.pods[i].gang.as_ref() != Some(gang) {
            findings.push(Finding::WrongGang { pod: pod.clone(), gang: gang.clone() });
            return None;
        }
        if self.gang_of[i].is_none() {
            findings.push(Finding::UnknownGang { gang: gang.clone() });
            return None;
        }
        Some(i)
    }

    /// Whether a gang lives by Volcano's rules.
    fn is_volcano(&self, gang: usize) -> bool {
        self.gang(gang).dialect() == Dialect::Volcano
    }

    fn action(&self, pod: usize, action: Action, fitting: bool, findings: &mut Vec<Finding>) {
        let actions = match (self.gang_of[pod], &self.policy.volcano) {
            (Some(gang), Some(conf)) if self.is_volcano(gang) => &conf.actions,
            _ => &self.policy.actions,
        };
        if !fitting || !actions.contains(&action) {
            findings.push(Finding::WrongAction { pod: self.cluster.pods[pod].key.clone(), action });
        }
    }

    fn place(&self, pod: usize, placement: &'a Placement, findings: &mut Vec<Finding>) -> Option<Place<'a>> {
        let node = self.nodes.get(&*placement.node).copied();
        if node.is_none() {
            let pod = self.cluster.pods[pod].key.clone();
            findings.push(Finding::UnknownNode { pod, node: placement.node.clone() });
        }
        node.map(|node| Place { node, placement })
    }

    fn pod(&self, pod: usize) -> &'a Pod {
        &self.cluster.pods[pod]
    }

    fn node(&self, node: usize) -> &'a Node {
        &self.cluster.nodes[node]
    }

    fn gang(&self, gang: usize) -> &'a Gang {
        &self.cluster.gangs[gang]
    }

    /// The node where the pod was before the cycle, if it held room there.
    fn old_node(&self, pod: usize) -> Option<usize> {
        let held = self.pod(pod);
        let name = held.node.as_ref().filter(|_| held.state.holds_room())?;
        self.nodes.get(&**name).copied()
    }
}

/// The leaf groups of a gang by name.
struct Leaves<'a> {
    by_name: BTreeMap<&'a str, usize>,
}

impl<'a> Leaves<'a> {
    fn of(gang: &'a Gang) -> Self {
        let leaves = gang.groups.iter().enumerate().filter(|(_, group)| matches!(group.min, Min::Pods(_)));
        Self { by_name: leaves.map(|(i, group)| (&*group.name, i)).collect() }
    }

    fn find(&self, pod: &Pod) -> Option<usize> {
        match &pod.group {
            Some(name) => self.by_name.get(&**name).copied(),
            None if self.by_name.len() == 1 => self.by_name.values().next().copied(),
            None => None,
        }
    }
}

/// Who is where, at one of two moments.
struct Scene<'a> {
    when: When,
    /// By node.
    seats: Vec<Vec<Seat<'a>>>,
    /// By pod.
    node_of: Vec<Option<usize>>,
    /// Pods whose place was decided in this cycle and has to be checked at this moment.
    fresh: Vec<(usize, Place<'a>)>,
}

/// A pod on a node.
#[derive(Clone, Copy)]
struct Seat<'a> {
    pod: usize,
    /// `None` for a place that it had before.
    placement: Option<&'a Placement>,
    fresh: bool,
}

impl<'a> Scene<'a> {
    fn look(world: &World<'a>, when: When) -> Self {
        let mut seats = vec![Vec::new(); world.cluster.nodes.len()];
        let mut node_of = vec![None; world.cluster.pods.len()];
        let mut fresh = Vec::new();
        for (pod, fate) in world.fate.iter().enumerate() {
            let old = world.old_node(pod);
            let leaves = world.pod(pod).state == PodState::Releasing;
            let seat = match (*fate, when) {
                (Fate::Absent, _) => None,
                (Fate::Rest | Fate::Promised(_), When::Now) => old.map(|node| (node, None, false)),
                (Fate::Lost(_) | Fate::Moved(..), When::Now) => old.map(|node| (node, None, false)),
                (Fate::Bound(place), _) => Some((place.node, Some(place.placement), when == When::Now)),
                (Fate::Rest, When::Later) => old.filter(|_| !leaves).map(|node| (node, None, false)),
                (Fate::Lost(_), When::Later) => None,
                (Fate::Promised(place) | Fate::Moved(_, place), When::Later) => {
                    Some((place.node, Some(place.placement), true))
                }
            };
            if let Some((node, placement, is_fresh)) = seat {
                seats[node].push(Seat { pod, placement, fresh: is_fresh });
                node_of[pod] = Some(node);
                if let Some(placement) = placement.filter(|_| is_fresh) {
                    fresh.push((pod, Place { node, placement }));
                }
            }
        }
        Self { when, seats, node_of, fresh }
    }

    /// The same where pods of Volcano's gangs are taken to be in the right place: nobody filtered nodes for them.
    fn of_kai(mut self, world: &World<'a>) -> Self {
        let is_kai = |pod: usize| world.gang_of[pod].is_none_or(|gang| !world.is_volcano(gang));
        for seat in self.seats.iter_mut().flatten() {
            seat.fresh &= is_kai(seat.pod);
        }
        self.fresh.retain(|(pod, _)| is_kai(*pod));
        self
    }
}

impl<'a> Seat<'a> {
    fn gpu_groups(self, pod: &'a Pod) -> &'a [Name] {
        self.placement.map_or(&pod.gpu_groups, |placement| &placement.gpu_groups)
    }

    fn gpus(self, pod: &'a Pod) -> &'a [u32] {
        self.placement.map_or(&pod.gpus, |placement| &placement.gpus)
    }

    fn zones(self, pod: &'a Pod) -> &'a [muster_model::ZoneUse] {
        self.placement.map_or(&pod.zones, |placement| &placement.zones)
    }
}
