//! Clusters that `muster_generate::bench` does not have: full ones that refuse a gang, each for another reason, and gangs whose pods ask
//! for more than amounts.
//!
//! Those that refuse have nodes of 8 GPUs in racks of 16, and one gang waits in queue `taker`.

use muster_generate::bench;
use muster_model::{
    Action, AffinityTerm, Bound, Change, Cluster, Expr, GPU, Gang, GpuShare, Key, LabelSelector, Name, Op,
    Pod, PodState, Policy, Preemptibility, Resource, Shape, ShareSize, TopologyRule, volcano,
};
use std::sync::Arc;

/// Why nobody makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuse {
    /// The taker's queue has its fair share already; the victims are of other queues that have theirs.
    TakerHasItsShare,
    /// Others are over their quota, but none of their work can be preempted.
    VictimsAreFirm,
    /// Everyone may be asked, and nobody is over quota, so every trial is found unjust.
    NobodyHasTooMuch,
    /// Everyone has a little too much: less in all than the gang asks for.
    LittleTooMuch,
    /// Everyone is over quota, but a pod that cannot be preempted sits on every node, and the gang wants whole nodes.
    NoWholeNode,
    /// Enough whole nodes could be freed, but not in one rack.
    NoRack,
}

/// The cluster before the gang arrives, and the gang.
pub fn refusing(nodes: u32, why: Refuse) -> (Cluster, Vec<Change>) {
    let mut cluster = bench::empty(nodes, 8, nodes.div_ceil(16));
    let total = i64::from(nodes) * 8 * GPU;
    let fourth = Bound::At(total / 4);
    let greedy = Bound::At(0);
    match why {
        Refuse::TakerHasItsShare => {
            bench::queues(&mut cluster, &[("taker", fourth), ("a", fourth), ("b", fourth), ("c", fourth)]);
        }
        Refuse::NobodyHasTooMuch => bench::queues(
            &mut cluster,
            &[("taker", Bound::At(80 * GPU)), ("a", fourth), ("b", fourth), ("c", fourth), ("d", fourth)],
        ),
        Refuse::LittleTooMuch => {
            let less = Bound::At(total / 4 - 4 * GPU);
            bench::queues(
                &mut cluster,
                &[("taker", Bound::At(80 * GPU)), ("a", less), ("b", less), ("c", less), ("d", less)],
            );
        }
        Refuse::VictimsAreFirm | Refuse::NoWholeNode | Refuse::NoRack => bench::queues(
            &mut cluster,
            &[("taker", Bound::At(total)), ("a", greedy), ("b", greedy), ("c", greedy), ("d", greedy)],
        ),
    }
    let holders: &[&str] = match why {
        Refuse::TakerHasItsShare => &["taker", "a", "b", "c"],
        _ => &["a", "b", "c", "d"],
    };
    for node in 0..nodes {
        let mut left = 8;
        let pinned = match why {
            Refuse::NoWholeNode => true,
            // Five nodes of each rack could be freed.
            Refuse::NoRack => node % 16 >= 5,
            _ => false,
        };
        if pinned {
            run(&mut cluster, &format!("firm-{node:06}"), "a", Preemptibility::NonPreemptible, 1, node);
            left -= 1;
        }
        let queue = holders[node as usize % holders.len()];
        let kind = match why {
            Refuse::VictimsAreFirm => Preemptibility::NonPreemptible,
            _ => Preemptibility::Preemptible,
        };
        run(&mut cluster, &format!("run-{node:06}"), queue, kind, left, node);
    }
    let mut arrival = bench::arrival("late", "taker", 10, 8, false);
    if why == Refuse::NoRack {
        want(&mut arrival, Near::Required(bench::LEVELS[1]));
    }
    (cluster, arrival)
}

/// How near the pods of a gang must be, or had better be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    Anywhere,
    Required(&'static str),
    Preferred(&'static str),
}

/// Makes the gang of an arrival want its pods near each other.
pub fn want(arrival: &mut [Change], near: Near) {
    let (required, preferred) = match near {
        Near::Anywhere => return,
        Near::Required(level) => (Some(level.into()), None),
        Near::Preferred(level) => (None, Some(level.into())),
    };
    let rule = TopologyRule { topology: bench::TOPOLOGY.into(), required, preferred };
    for change in arrival {
        if let Change::PutGang(gang) = change {
            let gang = Arc::make_mut(gang);
            gang.groups[0].topology = Some(rule.clone());
        }
    }
}

/// A gang of pods of one GPU that runs on one node.
fn run(cluster: &mut Cluster, name: &str, queue: &str, preemptibility: Preemptibility, pods: u32, node: u32) {
    let node = cluster.nodes[node as usize].name.clone();
    for change in bench::arrival(name, queue, pods, 1, false) {
        match change {
            Change::PutGang(gang) => {
                let last_start = Some(gang.created);
                cluster.gangs.push(Arc::new(Gang { preemptibility, last_start, ..(*gang).clone() }));
            }
            Change::PutPod(pod) => cluster.pods.push(Arc::new(placed(&pod, node.clone()))),
            _ => {}
        }
    }
}

/// The pod as it is when it runs.
pub fn placed(pod: &Pod, node: Name) -> Pod {
    Pod { state: PodState::Running, node: Some(node), ..pod.clone() }
}

/// Takes the gangs that wait out of a cluster, with their pods: what is there before they arrive, and their arrival.
pub fn split(cluster: Cluster) -> (Cluster, Vec<Change>) {
    let waits = |pod: &Pod| pod.state == PodState::Pending;
    let gangs: std::collections::BTreeSet<Key> =
        cluster.pods.iter().filter(|pod| waits(pod)).filter_map(|pod| pod.gang.clone()).collect();
    let (late_gangs, gangs_before) = cluster.gangs.into_iter().partition(|gang| gangs.contains(&gang.key));
    let (late_pods, pods_before) = cluster
        .pods
        .into_iter()
        .partition(|pod: &Arc<Pod>| pod.gang.as_ref().is_some_and(|gang| gangs.contains(gang)));
    let late = Cluster { gangs: late_gangs, pods: late_pods, ..Cluster::default() };
    (Cluster { gangs: gangs_before, pods: pods_before, ..cluster }, late.into_changes())
}

/// How many GPUs the pods of some changes ask for.
pub fn gpus_asked(changes: &[Change]) -> i64 {
    let pods = changes.iter().filter_map(|change| match change {
        Change::PutPod(pod) => Some(pod.shape.requests.get(&Resource::Gpu)),
        _ => None,
    });
    pods.sum::<i64>() / GPU
}

/// Gives the first pod of every gang a core more than the others: a leader and its workers.
pub fn with_leaders(cluster: Cluster) -> Cluster {
    reshape(cluster, |pod, shape| {
        if pod.key.name.ends_with("-0") {
            shape.requests.add(Resource::Cpu, 1000);
        }
    })
}

/// Every pod wants half a GPU instead of a whole one.
pub fn in_halves(cluster: Cluster) -> Cluster {
    reshape(cluster, |_, shape| {
        shape.requests.set(Resource::Gpu, 0);
        shape.gpu_share = Some(GpuShare { size: ShareSize::Portion(GPU / 2), devices: 1 });
    })
}

/// No two pods of a gang may be on one node.
pub fn apart(cluster: Cluster) -> Cluster {
    reshape(cluster, |pod, shape| {
        let gang = pod.labels.get("gang").cloned().into_iter().collect();
        shape.pods.anti_affinity = vec![AffinityTerm {
            namespaces: None,
            selector: LabelSelector { all: vec![Expr { key: "gang".into(), op: Op::In(gang) }] },
            topology_key: bench::LEVELS[2].into(),
        }];
    })
}

/// Changes what pods ask for; those of one gang that ask for the same go on sharing it.
fn reshape(cluster: Cluster, change: impl Fn(&Pod, &mut Shape)) -> Cluster {
    let mut last: Vec<(Option<Key>, Arc<Shape>)> = Vec::new();
    let pods = cluster.pods.iter().map(|pod| {
        let mut shape = (*pod.shape).clone();
        change(pod, &mut shape);
        last.retain(|(gang, _)| *gang == pod.gang);
        let shared = last.iter().find(|(_, known)| **known == shape).map(|(_, known)| known.clone());
        let shape = shared.unwrap_or_else(|| {
            let shape = Arc::new(shape);
            last.push((pod.gang.clone(), shape.clone()));
            shape
        });
        Arc::new(Pod { shape, ..(**pod).clone() })
    });
    Cluster { pods: pods.collect(), ..cluster }
}

/// Empty nodes of 32 cores, jobs of one-core pods that need all of them, and Volcano's default plugins with binpack.
pub fn volcano(nodes: u32, jobs: u32, pods: u32) -> (Cluster, Policy) {
    let mut cluster = bench::empty(nodes, 0, nodes.div_ceil(16));
    cluster.topologies.clear();
    for node in &mut cluster.nodes {
        let amounts = [(Resource::Cpu, 32_000), (Resource::Memory, 256 << 30), (Resource::Pods, 110)];
        Arc::make_mut(node).allocatable = amounts.into_iter().collect();
    }
    bench::queues(&mut cluster, &[]);
    let queue = cluster.queues.pop().map(|queue| {
        let facts = volcano::Queue { weight: 1, open: true, reclaimable: true, ..volcano::Queue::default() };
        Arc::new(muster_model::Queue {
            name: "default".into(),
            volcano: Some(Arc::new(facts)),
            ..(*queue).clone()
        })
    });
    cluster.queues.extend(queue);
    let requests = [(Resource::Cpu, 1000), (Resource::Memory, 1 << 30), (Resource::Pods, 1)];
    let shape = Arc::new(Shape { requests: requests.into_iter().collect(), ..Shape::default() });
    let task = Arc::new(volcano::Task {
        role: "worker".into(),
        priority: 1,
        pod_priority: 0,
        index: None,
        preemptable: true,
        never_preempts: false,
        revocable: false,
        cooldown_until: None,
        critical: false,
        started: None,
        devices: Vec::new(),
        fit: None,
        fit_weights: None,
        images: Vec::new(),
    });
    for job in 0..jobs {
        bench::add_gang(&mut cluster, &format!("job-{job:05}"), "default", pods, job, &shape);
    }
    for gang in &mut cluster.gangs {
        let facts = volcano::Group {
            phase: volcano::Phase::Pending,
            min_member: pods,
            roles: [("worker".into(), pods)].into(),
            min_resources: Some([(Resource::Cpu, 1000), (Resource::Memory, 1 << 30)].into_iter().collect()),
            sub_groups: vec![volcano::SubGroup { id: "".into(), policy: None, index: 0 }],
            leaves: vec![volcano::Leaf { group: 0, sub: 0, role: "worker".into() }],
            ..volcano::Group::default()
        };
        Arc::make_mut(gang).volcano = Some(Arc::new(facts));
    }
    for pod in &mut cluster.pods {
        Arc::make_mut(pod).volcano = Some(task.clone());
    }
    (cluster, volcano_policy())
}

/// A gang of Volcano's that has come to run.
pub fn running(mut gang: Arc<Gang>) -> Change {
    if let Some(facts) = &mut Arc::make_mut(&mut gang).volcano {
        Arc::make_mut(facts).phase = volcano::Phase::Running;
    }
    Change::PutGang(gang)
}

fn volcano_policy() -> Policy {
    use volcano::{Filters, Hook, Hooks, Packing, Plugin, PluginKind, Weights};
    let hooks = [
        Hook::JobOrder,
        Hook::TaskOrder,
        Hook::QueueOrder,
        Hook::JobReady,
        Hook::JobPipelined,
        Hook::JobStarving,
        Hook::JobEnqueued,
        Hook::Overused,
        Hook::Allocatable,
        Hook::Preemptive,
        Hook::Preemptable,
        Hook::Reclaimable,
        Hook::Predicate,
        Hook::NodeOrder,
    ];
    let enabled: Hooks = hooks.into_iter().collect();
    let on = |kind: PluginKind| Plugin { kind, enabled };
    let tiers = vec![
        vec![on(PluginKind::Priority), on(PluginKind::Gang), on(PluginKind::Conformance)],
        vec![
            on(PluginKind::Overcommit { factor: 1200 }),
            on(PluginKind::Drf),
            on(PluginKind::Predicates(Filters::default())),
            on(PluginKind::Proportion),
            on(PluginKind::NodeOrder(Weights::default())),
            on(PluginKind::Binpack(Packing::default())),
        ],
    ];
    Policy {
        actions: Vec::new(),
        quotas: false,
        volcano: Some(Arc::new(volcano::Conf {
            actions: vec![Action::Enqueue, Action::Allocate, Action::Backfill],
            tiers,
            ..volcano::Conf::default()
        })),
        ..Policy::default()
    }
}
