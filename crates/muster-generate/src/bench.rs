//! Clusters of known shape for benchmarks: no chance in them, only numbers.
//!
//! Every node has 8 cores per GPU, at least 64, and more memory than anyone asks for, so GPUs decide. The functions at the end have the shapes
//! and sizes of KAI's published scale tests; their arguments scale them.

use muster_model::{
    Bound, Change, Cluster, Conditions, GPU, Gang, Gpus, Group, Key, Labels, Level, Min, Name, Node, Pod,
    PodState, Preemptibility, Queue, Resource, Shape, Share, Span, Time, Topology, TopologyRule,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When all of these play, in milliseconds.
pub const NOW: i64 = 1_767_225_600_000;

/// The topology of every benchmark cluster, and its levels from coarse to fine.
pub const TOPOLOGY: &str = "racks";
pub const LEVELS: [&str; 3] = ["zone", "rack", "kubernetes.io/hostname"];

/// So many gangs alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jobs {
    pub gangs: u32,
    /// All of them needed.
    pub pods: u32,
    /// For each pod.
    pub gpus: i64,
}

/// An empty cluster, and gangs that wait in one queue. Pods want a GPU each and differ from gang to gang in CPU, in so many ways.
pub fn gangs(
    nodes: u32,
    gpus_per_node: i64,
    n_gangs: u32,
    gang_size: u32,
    distinct_shapes: u32,
    racks: u32,
    required_rack: bool,
) -> Cluster {
    let mut cluster = empty(nodes, gpus_per_node, racks);
    queues(&mut cluster, &[("team", Bound::Unlimited)]);
    let shapes: Vec<Arc<Shape>> =
        (0..distinct_shapes.max(1)).map(|i| shape(1, 1000 + i64::from(i))).collect();
    for i in 0..n_gangs {
        let shape = &shapes[i as usize % shapes.len()];
        let mut new = gang(&format!("gang-{i:06}"), "team", gang_size, i);
        if required_rack {
            new.groups[0].topology = Some(near(Some(LEVELS[1]), None));
        }
        add(&mut cluster, new, gang_size, shape, |_| None);
    }
    cluster
}

/// A cluster of 8-GPU nodes where so many percent of the GPUs of each node run pods of one GPU, gangs of 8 each. Nobody waits.
pub fn filled(nodes: u32, percent: u32) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited), ("other", Bound::Unlimited)]);
    let n_slots = u64::from(nodes) * 8;
    let n_pods = (n_slots * u64::from(percent.min(100)) / 100) as u32;
    let shape = shape(1, 1000);
    let mut slots = Slots { next: 0, nodes, per_node: 8 };
    for i in 0..n_pods / 8 {
        // Round robin over nodes, so that each is equally full.
        let new = running(gang(&format!("run-{i:06}"), ["team", "other"][i as usize % 2], 8, i));
        add(&mut cluster, new, 8, &shape, |_| slots.next_spread());
    }
    cluster
}

/// What makes a gang appear in one of these clusters: itself and its waiting pods.
pub fn arrival(name: &str, queue: &str, pods: u32, gpus: i64, required_rack: bool) -> Vec<Change> {
    let mut cluster = Cluster::default();
    let mut new = gang(name, queue, pods, 0);
    new.created = Time(NOW);
    if required_rack {
        new.groups[0].topology = Some(near(Some(LEVELS[1]), None));
    }
    add(&mut cluster, new, pods, &shape(gpus, 1000), |_| None);
    cluster.into_changes()
}

/// A cluster that queue `greedy` fills beyond its quota of nothing, and jobs of queue `owner`, to which all of it belongs.
/// Victims are packed node by node until they are all seated or the cluster is full.
pub fn reclaim(nodes: u32, victims: Jobs, reclaimers: Jobs) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    let total = i64::from(nodes) * 8 * GPU;
    queues(&mut cluster, &[("greedy", Bound::At(0)), ("owner", Bound::At(total))]);
    seat_all(&mut cluster, "greedy", victims, nodes);
    wait_all(&mut cluster, "owner", reclaimers);
    cluster
}

/// Every node has half of its GPUs in use by pods of one GPU that may move, and gangs wait that want whole nodes: as many as would fit
/// if the rest moved together.
pub fn fragmented(nodes: u32) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited)]);
    let shape = shape(1, 1000);
    for node in 0..nodes {
        for i in 0..4 {
            let number = node * 4 + i;
            let new = running(gang(&format!("run-{number:06}"), "team", 1, number));
            add(&mut cluster, new, 1, &shape, |_| Some(node));
        }
    }
    let n_whole = nodes / 2;
    wait_all(&mut cluster, "team", Jobs { gangs: n_whole.div_ceil(2), pods: 2.min(n_whole), gpus: 8 });
    cluster
}

/// KAI: fill 500 nodes with 4000 jobs of one GPU; a number of jobs that can never run may wait among them.
pub fn fill(nodes: u32, hopeless: u32) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited), ("hopeless", Bound::Unlimited)]);
    wait_all(&mut cluster, "team", Jobs { gangs: nodes * 8, pods: 1, gpus: 1 });
    wait_all(&mut cluster, "hopeless", Jobs { gangs: hopeless, pods: 1, gpus: 64 });
    cluster
}

/// KAI: one gang of a pod per node over three levels of topology, which it prefers or does not care about.
pub fn one_large_gang(nodes: u32, preferred: bool) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited)]);
    let mut new = gang("large", "team", nodes, 0);
    if preferred {
        new.groups[0].topology = Some(near(None, Some(LEVELS[1])));
    }
    add(&mut cluster, new, nodes, &shape(8, 1000), |_| None);
    cluster
}

/// KAI: a full cluster, and a gang of ten whole nodes of the queue that holds it all, so nobody may be evicted for it.
pub fn hopeless_gang(nodes: u32) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited)]);
    seat_all(&mut cluster, "team", Jobs { gangs: nodes * 8, pods: 1, gpus: 1 }, nodes);
    wait_all(&mut cluster, "team", Jobs { gangs: 1, pods: 10, gpus: 8 });
    cluster
}

/// KAI: 4000 victims of one GPU, and one job of one GPU, or 4000 of them.
pub fn reclaim_singles(nodes: u32, n_reclaimers: u32) -> Cluster {
    let victims = Jobs { gangs: nodes * 8, pods: 1, gpus: 1 };
    reclaim(nodes, victims, Jobs { gangs: n_reclaimers, pods: 1, gpus: 1 })
}

/// KAI: one job of half the cluster, in whole nodes, from victims of one GPU.
pub fn reclaim_half(nodes: u32) -> Cluster {
    let victims = Jobs { gangs: nodes * 8, pods: 1, gpus: 1 };
    reclaim(nodes, victims, Jobs { gangs: 1, pods: nodes / 2, gpus: 8 })
}

/// KAI: one job of the whole cluster from victims of a node each.
pub fn reclaim_all(nodes: u32) -> Cluster {
    reclaim(nodes, Jobs { gangs: nodes, pods: 1, gpus: 8 }, Jobs { gangs: 1, pods: nodes, gpus: 8 })
}

/// KAI: 50 jobs of 10 whole nodes each, from victims of one GPU.
pub fn reclaim_distributed(nodes: u32) -> Cluster {
    let victims = Jobs { gangs: nodes * 8, pods: 1, gpus: 1 };
    reclaim(nodes, victims, Jobs { gangs: nodes / 10, pods: 10, gpus: 8 })
}

/// KAI: a third of the GPUs of each node in use, and jobs of 10 pods of 6 GPUs, for which others must move together.
pub fn consolidation(nodes: u32, n_jobs: u32) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited)]);
    let shape = shape(1, 1000);
    for node in 0..nodes {
        for i in 0..3 {
            let number = node * 3 + i;
            let new = running(gang(&format!("run-{number:06}"), "team", 1, number));
            add(&mut cluster, new, 1, &shape, |_| Some(node));
        }
    }
    wait_all(&mut cluster, "team", Jobs { gangs: n_jobs, pods: 10, gpus: 6 });
    cluster
}

/// KAI: a burst of communication tests, about this many pods in gangs of 2, 4, 8 and so on up to 64 whole nodes, over an idle cluster.
pub fn burst(nodes: u32, pods: u32) -> Cluster {
    let mut cluster = empty(nodes, 8, nodes.div_ceil(16));
    queues(&mut cluster, &[("team", Bound::Unlimited)]);
    let shape = shape(8, 1000);
    let mut left = pods;
    for (i, size) in [2, 4, 8, 16, 32, 64].into_iter().cycle().enumerate() {
        let size: u32 = size.min(left);
        if size == 0 {
            break;
        }
        left -= size;
        let new = gang(&format!("burst-{i:06}"), "team", size, i as u32);
        add(&mut cluster, new, size, &shape, |_| None);
    }
    cluster
}

/// Nodes without anything on them, in racks, in zones of eight racks.
pub fn empty(nodes: u32, gpus_per_node: i64, racks: u32) -> Cluster {
    let racks = racks.clamp(1, nodes.max(1));
    let per_rack = nodes.div_ceil(racks).max(1);
    let level = |label: &str| Level { label: label.into(), alias: None };
    let names: Vec<Name> = (0..racks).map(|rack| format!("rack-{rack:04}").into()).collect();
    let zones: Vec<Name> = (0..racks.div_ceil(8)).map(|zone| format!("zone-{zone:03}").into()).collect();
    let node = |i: u32| {
        let name = node_name(i);
        let rack = i / per_rack;
        let labels: Labels = [
            (LEVELS[0].into(), zones[rack as usize / 8].clone()),
            (LEVELS[1].into(), names[rack as usize].clone()),
            (LEVELS[2].into(), name.clone()),
        ]
        .into();
        let amounts = [
            (Resource::Cpu, 8_000 * gpus_per_node.max(8)),
            (Resource::Memory, 1 << 40),
            (Resource::Pods, 110),
            (Resource::Gpu, gpus_per_node * GPU),
        ];
        Arc::new(Node {
            name,
            labels,
            taints: Vec::new(),
            conditions: Conditions::default(),
            allocatable: amounts.into_iter().collect(),
            gpus: Gpus { memory: Some(80_000), ..Gpus::default() },
            numa: None,
            attach_limits: BTreeMap::new(),
            images: BTreeMap::new(),
            load: None,
        })
    };
    Cluster {
        now: Time(NOW),
        nodes: (0..nodes).map(node).collect(),
        topologies: vec![Arc::new(Topology {
            name: TOPOLOGY.into(),
            levels: LEVELS.map(level).to_vec(),
            domains: Vec::new(),
        })],
        ..Cluster::default()
    }
}

/// Leaf queues below one root, each with its quota of GPUs; nothing is limited.
pub fn queues(cluster: &mut Cluster, leaves: &[(&str, Bound)]) {
    let queue = |name: &str, parent: Option<&str>, gpu: Bound, i: usize| {
        let share = |quota| Share { quota, weight: 1000, ..Share::default() };
        let shares = [
            (Resource::Cpu, share(Bound::Unlimited)),
            (Resource::Memory, share(Bound::Unlimited)),
            (Resource::Gpu, share(gpu)),
        ];
        Arc::new(Queue {
            name: name.into(),
            uid: name.into(),
            display: None,
            parent: parent.map(Into::into),
            priority: 100,
            created: Time(NOW - 1_000_000_000 + i as i64),
            shares: shares.into(),
            preempt_min_runtime: None,
            reclaim_min_runtime: None,
            reclaim: muster_model::Reclaim::default(),
            usage: BTreeMap::new(),
            tree: muster_model::Dialect::Kai,
            volcano: None,
        })
    };
    cluster.queues.push(queue("root", None, Bound::Unlimited, 0));
    cluster
        .queues
        .extend(leaves.iter().enumerate().map(|(i, (name, gpu))| queue(name, Some("root"), *gpu, i + 1)));
}

fn node_name(i: u32) -> Name {
    format!("node-{i:05}").into()
}

fn shape(gpus: i64, cpu: i64) -> Arc<Shape> {
    let requests =
        [(Resource::Cpu, cpu), (Resource::Memory, 1 << 30), (Resource::Pods, 1), (Resource::Gpu, gpus * GPU)];
    Arc::new(Shape { requests: requests.into_iter().collect(), ..Shape::default() })
}

fn near(required: Option<&str>, preferred: Option<&str>) -> TopologyRule {
    TopologyRule {
        topology: TOPOLOGY.into(),
        required: required.map(Into::into),
        preferred: preferred.map(Into::into),
    }
}

/// A preemptible gang that needs all its pods. Those with lower numbers are older.
fn gang(name: &str, queue: &str, size: u32, number: u32) -> Gang {
    let root = Group { name: "default".into(), parent: None, min: Min::Pods(size), topology: None };
    Gang {
        key: Key::new("default", name),
        uid: name.into(),
        queue: queue.into(),
        priority: 50,
        preemptibility: Preemptibility::Preemptible,
        created: Time(NOW - 100_000_000 + i64::from(number) * 100),
        groups: vec![root],
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: Span::ZERO,
        staleness_grace: None,
        declared_end: None,
        volcano: None,
    }
}

/// A gang whose pods all wait.
pub fn add_gang(cluster: &mut Cluster, name: &str, queue: &str, size: u32, number: u32, shape: &Arc<Shape>) {
    add(cluster, gang(name, queue, size, number), size, shape, |_| None);
}

fn running(gang: Gang) -> Gang {
    Gang { last_start: Some(gang.created), ..gang }
}

/// Adds a gang with its pods; a pod for which there is a node runs there.
fn add(
    cluster: &mut Cluster,
    gang: Gang,
    n_pods: u32,
    shape: &Arc<Shape>,
    mut node: impl FnMut(u32) -> Option<u32>,
) {
    let labels: Arc<Labels> = Arc::new([("gang".into(), gang.key.name.clone())].into());
    for i in 0..n_pods {
        let name = Name::from(format!("{}-{i}", gang.key.name));
        let node = node(i);
        cluster.pods.push(Arc::new(Pod {
            key: Key { namespace: gang.key.namespace.clone(), name: name.clone() },
            uid: name,
            gang: Some(gang.key.clone()),
            group: None,
            created: gang.created,
            state: if node.is_some() { PodState::Running } else { PodState::Pending },
            node: node.map(node_name),
            shape: shape.clone(),
            labels: labels.clone(),
            rank: 0,
            task_priority: None,
            gpu_groups: Vec::new(),
            gpus: Vec::new(),
            zones: Vec::new(),
            nominated: None,
            volcano: None,
        }));
    }
    cluster.gangs.push(Arc::new(gang));
}

fn wait_all(cluster: &mut Cluster, queue: &str, jobs: Jobs) {
    let shape = shape(jobs.gpus, 1000);
    for i in 0..jobs.gangs {
        let new = gang(&format!("{queue}-wait-{i:06}"), queue, jobs.pods, 500_000 + i);
        add(cluster, new, jobs.pods, &shape, |_| None);
    }
}

/// Seats jobs node by node; whatever finds no room is left out.
fn seat_all(cluster: &mut Cluster, queue: &str, jobs: Jobs, nodes: u32) {
    let per_node = (8 / jobs.gpus.max(1)).max(0) as u32;
    let mut slots = Slots { next: 0, nodes, per_node };
    let shape = shape(jobs.gpus, 1000);
    for i in 0..jobs.gangs {
        if slots.left() < u64::from(jobs.pods) {
            break;
        }
        let new = running(gang(&format!("{queue}-run-{i:06}"), queue, jobs.pods, i));
        add(cluster, new, jobs.pods, &shape, |_| slots.next_packed());
    }
}

/// Places of equal size on equal nodes, given out one by one.
struct Slots {
    next: u64,
    nodes: u32,
    per_node: u32,
}

impl Slots {
    fn left(&self) -> u64 {
        (u64::from(self.nodes) * u64::from(self.per_node)).saturating_sub(self.next)
    }

    fn take(&mut self) -> Option<u64> {
        (self.left() > 0).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn next_packed(&mut self) -> Option<u32> {
        self.take().map(|slot| (slot / u64::from(self.per_node)) as u32)
    }

    fn next_spread(&mut self) -> Option<u32> {
        self.take().map(|slot| (slot % u64::from(self.nodes)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    /// How many nodes, running and waiting pods, and gangs; after checking that what runs fits.
    #[track_caller]
    fn check(cluster: &Cluster, expected: [usize; 4]) {
        assert!(Room::beside(cluster).is_sound());
        let n_running = cluster.pods.iter().filter(|pod| pod.state == PodState::Running).count();
        let known: std::collections::BTreeSet<&Key> = cluster.pods.iter().map(|pod| &pod.key).collect();
        assert_eq!(known.len(), cluster.pods.len(), "every pod has a name of its own");
        let n_waiting = cluster.pods.len() - n_running;
        assert_eq!([cluster.nodes.len(), n_running, n_waiting, cluster.gangs.len()], expected);
    }

    #[test]
    fn they_have_the_sizes_asked_for() {
        check(&gangs(100, 8, 50, 8, 3, 10, true), [100, 0, 400, 50]);
        check(&filled(100, 70), [100, 560, 0, 70]);
        check(&filled(100, 100), [100, 800, 0, 100]);
        check(&fragmented(20), [20, 80, 10, 85]);
        check(&fill(50, 40), [50, 0, 440, 440]);
        check(&one_large_gang(64, true), [64, 0, 64, 1]);
        check(&hopeless_gang(20), [20, 160, 10, 161]);
        check(&reclaim_singles(20, 3), [20, 160, 3, 163]);
        check(&reclaim_half(20), [20, 160, 10, 161]);
        check(&reclaim_all(20), [20, 20, 20, 21]);
        check(&reclaim_distributed(20), [20, 160, 20, 162]);
        check(&consolidation(20, 2), [20, 60, 20, 62]);
        check(&burst(64, 1000), [64, 0, 1000, 48]);
        check(
            &reclaim(2, Jobs { gangs: 9, pods: 2, gpus: 3 }, Jobs { gangs: 1, pods: 1, gpus: 8 }),
            [2, 4, 1, 3],
        );
    }

    #[test]
    fn gangs_share_shapes_and_racks_are_even() {
        let cluster = gangs(100, 8, 10, 2, 3, 10, false);
        let mut shapes: Vec<*const Shape> = cluster.pods.iter().map(|pod| Arc::as_ptr(&pod.shape)).collect();
        shapes.sort();
        shapes.dedup();
        assert_eq!(shapes.len(), 3);
        let in_first =
            cluster.nodes.iter().filter(|node| node.labels.get("rack") == Some(&"rack-0000".into()));
        assert_eq!(in_first.count(), 10);
    }

    #[test]
    fn an_arrival_is_a_gang_and_its_pods() {
        assert_eq!(arrival("new", "team", 8, 1, true).len(), 9);
    }
}
