//! Kueue's own performance scenario under virtual time, and what admission costs when many are admitted already.
//!
//! `cargo run --release -p muster-admit --example bench -- [baseline|large|tas|preempt|growth]`. Prints a line per run: workloads, cycles,
//! engine CPU time, virtual makespan. A run in which anything is left over, or in which quota is exceeded, fails.

use muster_admit::spec::{
    ClusterQueue, Flavor, FlavorQuotas, Fungibility, LocalQueue, Node, PodSet, Preemption, Quota, Reclaim,
    ResourceGroup, Stop, Strategy, Topology, TopologyRequest, Weight, Workload,
};
use muster_admit::{Settings, State};
use muster_model::{Key, LabelSelector, Name, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A class of workloads: how many a queue gets, how often, what they ask for and for how long they run.
struct Class {
    count: usize,
    every_ms: i64,
    runtime_ms: i64,
    priority: i32,
    /// CPUs of one pod, and pods.
    cpus: i64,
    pods: i32,
    /// The topology asked for, if any: required or preferred, and the level.
    place: Option<(bool, &'static str)>,
}

struct Shape {
    name: &'static str,
    cohorts: usize,
    queues: usize,
    nominal: i64,
    borrowing: i64,
    classes: Vec<Class>,
    /// Racks and nodes of each.
    nodes: Option<(usize, usize)>,
}

fn class(count: usize, every_ms: i64, runtime_ms: i64, priority: i32, cpus: i64) -> Class {
    Class { count, every_ms, runtime_ms, priority, cpus, pods: 1, place: None }
}

/// 5 cohorts of 6 queues of 500 workloads.
fn baseline() -> Shape {
    Shape {
        name: "baseline",
        cohorts: 5,
        queues: 6,
        nominal: 20,
        borrowing: 100,
        classes: vec![
            class(350, 100, 200, 50, 1),
            class(100, 500, 500, 100, 5),
            class(50, 1200, 1000, 200, 20),
        ],
        nodes: None,
    }
}

/// 10 cohorts of 100 queues of 50 workloads, 80.5 unit-seconds for each queue.
fn large() -> Shape {
    Shape {
        name: "large-scale",
        cohorts: 10,
        queues: 100,
        nominal: 20,
        borrowing: 100,
        classes: vec![class(35, 100, 100, 50, 1), class(10, 500, 140, 100, 5), class(5, 1200, 700, 200, 20)],
        nodes: None,
    }
}

/// The baseline on 640 nodes in 10 racks, with pods that must or should be together.
fn tas() -> Shape {
    let set = |count, every_ms, runtime_ms, priority, pods, required, level| Class {
        count,
        every_ms,
        runtime_ms,
        priority,
        cpus: 1,
        pods,
        place: Some((required, level)),
    };
    let rack = "cloud.provider.com/rack";
    Shape {
        name: "tas",
        cohorts: 5,
        queues: 6,
        nominal: 20,
        borrowing: 100,
        classes: vec![
            set(175, 100, 200, 50, 1, true, rack),
            set(175, 100, 200, 50, 1, false, rack),
            set(50, 500, 500, 100, 5, true, rack),
            set(50, 500, 500, 100, 5, false, rack),
            set(25, 1200, 1000, 200, 20, true, rack),
            set(25, 1200, 1000, 200, 20, false, rack),
        ],
        nodes: Some((10, 64)),
    }
}

/// One cohort of ten queues that share a line of `n` workloads of one kind.
fn deep(n: usize) -> Shape {
    Shape {
        name: "growth",
        cohorts: 1,
        queues: 10,
        nominal: 20,
        borrowing: 1000,
        classes: vec![class(n / 10, 1, 1000, 0, 1)],
        nodes: None,
    }
}

fn main() -> ExitCode {
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|o| name.starts_with(o));
    let mut good = true;
    for shape in [baseline(), large(), tas()] {
        if wanted(shape.name) {
            good &= run(&shape);
        }
    }
    if wanted("growth") {
        for n in [1_000, 10_000, 100_000] {
            good &= run(&deep(n));
        }
    }
    if wanted("preempt") {
        good &= preempt(10_000);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn queue(name: &str, cohort: &str, nominal: i64, borrowing: i64) -> ClusterQueue {
    let quota = Quota {
        resource: "cpu".into(),
        nominal: nominal * 1000,
        borrowing: Some(borrowing * 1000),
        lending: None,
    };
    ClusterQueue {
        name: name.into(),
        cohort: Some(cohort.into()),
        groups: vec![ResourceGroup {
            resources: vec!["cpu".into()],
            flavors: vec![FlavorQuotas { flavor: "rf".into(), quotas: vec![quota] }],
        }],
        strategy: Strategy::BestEffort,
        namespaces: LabelSelector::default(),
        fungibility: Fungibility::default(),
        preemption: Preemption {
            within_queue: Reclaim::LowerPriority,
            within_cohort: Reclaim::Any,
            while_borrowing: None,
        },
        checks: Vec::new(),
        stop: Stop::None,
        weight: Weight::default(),
        by_usage: false,
        concurrent: None,
    }
}

fn workload(name: String, local: &Name, at: i64, class: &Class) -> Workload {
    let mut workload = Workload::new(Key::new("ns", name));
    workload.uid = workload.key.name.clone();
    workload.queue = local.clone();
    workload.priority = class.priority;
    workload.created = Time(at);
    let requests: BTreeMap<Name, i64> = [("cpu".into(), class.cpus * 1000)].into();
    workload.pod_sets = vec![PodSet {
        name: "main".into(),
        count: class.pods,
        raw: requests.clone(),
        requests,
        topology: class.place.map(|(required, level)| TopologyRequest {
            required: required.then(|| level.into()),
            preferred: (!required).then(|| level.into()),
            ..TopologyRequest::default()
        }),
        ..PodSet::default()
    }];
    workload
}

fn world(shape: &Shape) -> State {
    let mut state = State::new(Settings::default());
    let topology = shape.nodes.map(|_| Name::from("default"));
    state.flavor_specs.insert("rf".into(), Flavor { name: "rf".into(), topology, ..Flavor::default() });
    state.namespaces.insert("ns".into(), BTreeMap::new());
    if let Some((racks, each)) = shape.nodes {
        let levels: Vec<Name> =
            ["cloud.provider.com/block", "cloud.provider.com/rack", "kubernetes.io/hostname"]
                .iter()
                .map(|l| (*l).into())
                .collect();
        state
            .topologies
            .insert("default".into(), Topology { name: "default".into(), levels: levels.clone() });
        for i in 0..racks * each {
            let name: Name = format!("n{i}").into();
            let values = ["b0".into(), format!("r{}", i / each).into(), name.clone()];
            state.nodes.insert(
                name.clone(),
                Node {
                    labels: levels.iter().cloned().zip(values).collect(),
                    name,
                    taints: Vec::new(),
                    usable: true,
                    allocatable: [("cpu".into(), 96_000), ("pods".into(), 110)].into(),
                },
            );
        }
    }
    for c in 0..shape.cohorts {
        for q in 0..shape.queues {
            let name = format!("cq-{c}-{q}");
            state.queue_specs.insert(
                (&*name).into(),
                queue(&name, &format!("cohort-{c}"), shape.nominal, shape.borrowing),
            );
            let key = Key::new("ns", &*name);
            state.local_queues.insert(
                key.clone(),
                LocalQueue {
                    key,
                    cluster_queue: (&*name).into(),
                    stop: Stop::None,
                    weight: Weight::default(),
                },
            );
        }
    }
    state.touch();
    state
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// It is done; only if it still is what was started then.
    Done(Key, i64),
    Arrives(usize),
}

/// CPU time of this thread, so that others on the machine do not count; wall time where the system does not tell.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]
fn clock(start: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]
fn start() -> Instant {
    Instant::now()
}

fn run(shape: &Shape) -> bool {
    let mut state = world(shape);
    let mut arrivals: Vec<(i64, Workload, i64)> = Vec::new();
    for c in 0..shape.cohorts {
        for q in 0..shape.queues {
            let local: Name = format!("cq-{c}-{q}").into();
            for (k, class) in shape.classes.iter().enumerate() {
                for i in 0..class.count {
                    let at = class.every_ms * i64::try_from(i).unwrap_or(0);
                    let made = workload(format!("w-{c}-{q}-{k}-{i}"), &local, at, class);
                    arrivals.push((at, made, class.runtime_ms));
                }
            }
        }
    }
    let n = arrivals.len();
    let runtimes: BTreeMap<Key, i64> = arrivals.iter().map(|(_, w, r)| (w.key.clone(), *r)).collect();
    let mut events: BinaryHeap<Reverse<(i64, Event)>> =
        arrivals.iter().enumerate().map(|(i, (at, ..))| Reverse((*at, Event::Arrives(i)))).collect();
    let mut arrivals: Vec<Option<Workload>> = arrivals.into_iter().map(|(_, w, _)| Some(w)).collect();
    let mut started: BTreeMap<Key, i64> = BTreeMap::new();
    let (mut cycles, mut done, mut evicted, mut waited, mut now) = (0_u64, 0_usize, 0_usize, 0_i64, 0_i64);
    let epoch = start();
    let begin = clock(epoch);
    state.settle(Time(0));
    while let Some(Reverse((at, event))) = events.pop() {
        now = at;
        let mut batch = vec![event];
        while events.peek().is_some_and(|Reverse((next, _))| *next == at) {
            batch.extend(events.pop().map(|Reverse((_, e))| e));
        }
        let mut woken = BTreeSet::new();
        for event in batch {
            match event {
                Event::Arrives(i) => {
                    if let Some(workload) = arrivals[i].take() {
                        state.put_workload(workload, Time(at));
                    }
                }
                Event::Done(key, since) if started.get(&key) == Some(&since) => {
                    let queue = state.by_key.get(&key).and_then(|id| state.wl(*id).queue);
                    state.drop_workload(&key);
                    started.remove(&key);
                    woken.extend(queue.map(|q| state.tree.nodes[q].root));
                    done += 1;
                }
                Event::Done(..) => {}
            }
        }
        for root in woken {
            state.wake(root, Time(at));
        }
        // To the fixed point: whoever was preempted goes at once and queues up again.
        loop {
            let cycle = state.cycle(Time(at));
            cycles += 1;
            for admitted in &cycle.admitted {
                waited += at - state.wl(state.by_key[&admitted.key]).spec.created.0;
                let runtime = runtimes[&admitted.key];
                started.insert(admitted.key.clone(), at);
                events.push(Reverse((at + runtime, Event::Done(admitted.key.clone(), at))));
            }
            for preempted in &cycle.preempted {
                let id = state.by_key[&preempted.key];
                let mut spec = state.wl(id).spec.clone();
                let queue = state.wl(id).queue;
                spec.reservation = None;
                spec.evicted = None;
                started.remove(&preempted.key);
                state.put_workload(spec, Time(at));
                evicted += 1;
                if let Some(queue) = queue {
                    state.wake(queue, Time(at));
                }
            }
            if !cycle.progress {
                break;
            }
        }
    }
    let spent = clock(epoch).saturating_sub(begin);
    let over = state.tree.cohort_ids().any(|c| {
        (0..state.tree.n_pairs()).any(|p| {
            let cell = state.tree.cell(c, muster_admit::ids::PairId::new(u32::try_from(p).unwrap_or(0)));
            cell.usage > cell.subtree
        })
    });
    let per = spent.as_secs_f64() * 1e6 / n as f64;
    println!(
        "{:<12} {n:>7} workloads  {cycles:>7} cycles  {:>8.3} s  {per:>6.1} µs each  {evicted:>5} preempted  makespan {:>6.1} s  waited {:>6.1} s",
        shape.name,
        spent.as_secs_f64(),
        now as f64 / 1000.0,
        waited as f64 / n as f64 / 1000.0,
    );
    let good = done == n && !over;
    if !good {
        println!("FAILED: {done} of {n} done, over quota: {over}");
    }
    good
}

/// One workload that has to preempt, in a cohort where `n` others run.
fn preempt(n: usize) -> bool {
    let shape = Shape { nominal: i64::try_from(n).unwrap_or(0) / 10, borrowing: 100_000, ..deep(n) };
    let mut state = world(&shape);
    state.settle(Time(0));
    // Nine queues take everything, so that the last has to take its own back.
    let small = class(0, 0, 0, 0, 1);
    for i in 0..n {
        let local: Name = format!("cq-0-{}", i % 9).into();
        state.put_workload(workload(format!("w{i}"), &local, i64::try_from(i).unwrap_or(0), &small), Time(0));
    }
    let mut admitted = 0;
    while state.cycle(Time(1)).admitted.iter().map(|_| admitted += 1).count() > 0 {}
    let big = class(0, 0, 0, 1, 100);
    let mut worst = Duration::ZERO;
    let mut victims = 0;
    for i in 0..5 {
        let key = Key::new("ns", format!("big{i}"));
        state.put_workload(workload(format!("big{i}"), &"cq-0-9".into(), 5, &big), Time(2));
        let epoch = start();
        let begin = clock(epoch);
        let cycle = state.cycle(Time(2));
        worst = worst.max(clock(epoch).saturating_sub(begin));
        victims = victims.max(cycle.preempted.len());
        state.drop_workload(&key);
    }
    println!(
        "preemption   {admitted:>7} admitted   {victims:>7} victims {:>8.1} ms",
        worst.as_secs_f64() * 1000.0
    );
    admitted == n && victims == 100
}
