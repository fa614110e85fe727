//! Random changes to a cluster: work comes and goes, pods move on in life, nodes and queues change.
//!
//! In: a seed, a cluster, a number. Out: changes that can be applied in order; now and then one is about something that is gone, as
//! events that come late are. Nobody is ever given room that is not there.

use crate::mixed::Trees;
use crate::random::Maker;
use crate::room::Room;
use crate::{Rng, Sizes};
use muster_model::{Bound, Change, Cluster, Key, Pod, PodState, Queue, Resource, Time};
use std::sync::Arc;

/// This many changes or a few more: a gang comes and goes together with its pods.
pub fn changes(seed: u64, cluster: &Cluster, n: usize) -> Vec<Change> {
    changes_among(seed, cluster, n, &Trees::new())
}

/// The same where trees of queues have nodes of their own.
pub fn changes_among(seed: u64, cluster: &Cluster, n: usize, trees: &Trees) -> Vec<Change> {
    let mut rng = Rng::new(seed).fork(99);
    let mut now = cluster.clone();
    let mut changes = Vec::new();
    let mut n_new = 0;
    while changes.len() < n {
        let step = match rng.below(100) {
            0..25 => {
                n_new += 1;
                come(&mut rng, &mut now, seed, n_new, trees)
            }
            25..40 => go(&mut rng, &mut now),
            40..75 => live(&mut rng, &mut now),
            75..88 => node(&mut rng, &mut now),
            88..95 => queue(&mut rng, &mut now),
            95..98 => regard(&mut rng, &mut now),
            _ => late(&mut rng),
        };
        // An empty cluster has little to change; whatever happens, something does.
        let nothing = step.is_empty();
        changes.extend(step);
        if nothing {
            changes.extend(late(&mut rng));
        }
    }
    changes
}

/// A new gang, waiting or already running where there is room.
fn come(rng: &mut Rng, now: &mut Cluster, seed: u64, number: u32, trees: &Trees) -> Vec<Change> {
    let sizes = if now.nodes.len() <= 5 { Sizes::tiny() } else { Sizes::small() };
    let mut room = Room::beside(now);
    let (n_gangs, n_pods, n_claims) = (now.gangs.len(), now.pods.len(), now.claims.len());
    let mut maker = Maker::resume(now, &sizes, trees.clone(), format!("new-{}-", seed % 1000));
    maker.gang(rng, number, &mut room);
    *now = maker.cluster;
    let claims = now.claims[n_claims..].iter().cloned().map(Change::PutClaim);
    let gangs = now.gangs[n_gangs..].iter().cloned().map(Change::PutGang);
    let pods = now.pods[n_pods..].iter().cloned().map(Change::PutPod);
    let mut changes: Vec<Change> = claims.chain(gangs).chain(pods).collect();
    // Pods are often heard of before their gang.
    if rng.percent(20) {
        changes.reverse();
    }
    changes
}

/// A gang goes with all its pods, or one pod alone.
fn go(rng: &mut Rng, now: &mut Cluster) -> Vec<Change> {
    if now.gangs.is_empty() {
        return Vec::new();
    }
    if rng.percent(40) && !now.pods.is_empty() {
        let pod = now.pods.remove(rng.index(now.pods.len()));
        return vec![Change::DropPod(pod.key.clone())];
    }
    let gang = now.gangs.remove(rng.index(now.gangs.len()));
    let (gone, kept) =
        std::mem::take(&mut now.pods).into_iter().partition(|pod| pod.gang.as_ref() == Some(&gang.key));
    now.pods = kept;
    let gone: Vec<Arc<Pod>> = gone;
    let mut changes: Vec<Change> = gone.iter().map(|pod| Change::DropPod(pod.key.clone())).collect();
    changes.push(Change::DropGang(gang.key.clone()));
    changes
}

/// A pod moves on in life, never to where it would need room.
fn live(rng: &mut Rng, now: &mut Cluster) -> Vec<Change> {
    if now.pods.is_empty() {
        return Vec::new();
    }
    let at = rng.index(now.pods.len());
    let pod = Arc::make_mut(&mut now.pods[at]);
    pod.state = match pod.state {
        PodState::Gated => PodState::Pending,
        PodState::Binding => PodState::Bound,
        PodState::Bound => PodState::Running,
        PodState::Running => *rng.pick(&[
            PodState::Releasing,
            PodState::Releasing,
            PodState::Releasing,
            PodState::Succeeded,
            PodState::Failed,
        ]),
        PodState::Releasing => *rng.pick(&[PodState::Stuck, PodState::Failed, PodState::Releasing]),
        PodState::Stuck => PodState::Failed,
        other => other,
    };
    vec![Change::PutPod(now.pods[at].clone())]
}

fn node(rng: &mut Rng, now: &mut Cluster) -> Vec<Change> {
    if now.nodes.is_empty() {
        return Vec::new();
    }
    let at = rng.index(now.nodes.len());
    match rng.below(10) {
        0 => {
            let node = now.nodes.remove(at);
            // Its pods are told of later, or never: until then they are on a node that nobody knows.
            vec![Change::DropNode(node.name.clone())]
        }
        1..4 => {
            let mut node = (*now.nodes[at]).clone();
            node.name = format!("{}-twin-{}", node.name, rng.below(1000)).into();
            node.labels.insert("kubernetes.io/hostname".into(), node.name.clone());
            let node = Arc::new(node);
            now.nodes.push(node.clone());
            now.nodes.sort_by(|a, b| a.name.cmp(&b.name));
            now.nodes.dedup_by(|a, b| a.name == b.name);
            vec![Change::PutNode(node)]
        }
        4..7 => {
            let node = Arc::make_mut(&mut now.nodes[at]);
            node.conditions.unschedulable = !node.conditions.unschedulable;
            vec![Change::PutNode(now.nodes[at].clone())]
        }
        7 => {
            // A larger machine; a smaller one might not hold what it holds.
            let node = Arc::make_mut(&mut now.nodes[at]);
            node.allocatable.add(Resource::Cpu, 4000);
            vec![Change::PutNode(now.nodes[at].clone())]
        }
        _ => {
            let node = Arc::make_mut(&mut now.nodes[at]);
            let colour = *rng.pick(&["red", "blue"]);
            node.labels.insert("pool".into(), colour.into());
            vec![Change::PutNode(now.nodes[at].clone())]
        }
    }
}

fn queue(rng: &mut Rng, now: &mut Cluster) -> Vec<Change> {
    if now.queues.is_empty() {
        return Vec::new();
    }
    let at = rng.index(now.queues.len());
    if rng.percent(10) {
        let queue = now.queues.remove(at);
        return vec![Change::DropQueue(queue.name.clone())];
    }
    if rng.percent(20) {
        let mut queue: Queue = (*now.queues[at]).clone();
        queue.name = format!("queue-late-{}", rng.below(100)).into();
        queue.uid = format!("uid-{}", queue.name).into();
        let queue = Arc::new(queue);
        now.queues.retain(|other| other.name != queue.name);
        now.queues.push(queue.clone());
        return vec![Change::PutQueue(queue)];
    }
    let queue = Arc::make_mut(&mut now.queues[at]);
    match rng.below(3) {
        0 => queue.priority = *rng.pick(&[50, 100, 200]),
        1 => {
            let share = queue.shares.entry(Resource::Gpu).or_default();
            share.limit = *rng.pick(&[Bound::Unlimited, Bound::At(0), Bound::At(4000), Bound::At(16_000)]);
        }
        _ => {
            let share = queue.shares.entry(Resource::Gpu).or_default();
            share.quota = *rng.pick(&[Bound::Unlimited, Bound::At(0), Bound::At(4000), Bound::At(16_000)]);
            share.weight = *rng.pick(&[0, 1000, 3000]);
        }
    }
    vec![Change::PutQueue(now.queues[at].clone())]
}

/// A gang becomes more or less important, or a topology changes.
fn regard(rng: &mut Rng, now: &mut Cluster) -> Vec<Change> {
    if rng.percent(20) && !now.topologies.is_empty() {
        let topology = now.topologies.remove(rng.index(now.topologies.len()));
        return vec![Change::DropTopology(topology.name.clone()), Change::PutTopology(topology)];
    }
    if now.gangs.is_empty() {
        return Vec::new();
    }
    let at = rng.index(now.gangs.len());
    let gang = Arc::make_mut(&mut now.gangs[at]);
    gang.priority = *rng.pick(&[0, 50, 75]);
    gang.stale_since = rng.percent(20).then_some(Time(now.now.0 - 1000));
    vec![Change::PutGang(now.gangs[at].clone())]
}

/// Something about an object that is long gone.
fn late(rng: &mut Rng) -> Vec<Change> {
    let key = Key::new("default", format!("gone-{}", rng.below(10)));
    vec![match rng.below(4) {
        0 => Change::DropPod(key),
        1 => Change::DropGang(key),
        2 => Change::DropNode("gone".into()),
        _ => Change::DropQueue("gone".into()),
    }]
}
