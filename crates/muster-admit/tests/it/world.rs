//! Generated worlds: a few queues in a tree of cohorts, and workloads that want more than there is.

use muster_admit::spec::{
    BorrowingPreemption, ClusterQueue, Cohort, Flavor, FlavorQuotas, Fungibility, LocalQueue, PodSet,
    Preemption, Quota, Reclaim, ResourceGroup, Stop, Strategy as Queueing, Weight, Workload,
};
use muster_admit::{FairSharing, Settings, State};
use muster_model::{Key, LabelSelector, Name, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a queue of a generated world is like.
#[derive(Clone, Debug)]
pub struct QueueShape {
    pub cohort: usize,
    pub nominal: i64,
    pub borrowing: Option<i64>,
    pub lending: Option<i64>,
    pub strict: bool,
    pub within_queue: u8,
    pub within_cohort: u8,
    pub while_borrowing: bool,
    pub two_flavors: bool,
    pub next_before_borrowing: bool,
}

/// A workload: the queue, priority, CPUs, pods, and whether fewer pods will do.
#[derive(Clone, Debug)]
pub struct Job {
    pub queue: usize,
    pub priority: i32,
    pub cpus: i64,
    pub pods: i32,
    pub partial: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub fair: bool,
    pub pool: i64,
    pub queues: Vec<QueueShape>,
    pub jobs: Vec<Job>,
}

pub fn plans() -> impl Strategy<Value = Plan> {
    let queue = (
        (0..3_usize, 0..6_i64, proptest::option::of(0..5_i64), proptest::option::of(0..5_i64)),
        (any::<bool>(), 0..3_u8, 0..3_u8, any::<bool>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(|((cohort, nominal, borrowing, lending), flags)| QueueShape {
            cohort,
            nominal,
            borrowing,
            lending: lending.map(|l| l.min(nominal)),
            strict: flags.0,
            within_queue: flags.1,
            within_cohort: flags.2,
            while_borrowing: flags.3,
            two_flavors: flags.4,
            next_before_borrowing: flags.5,
        });
    let job = (0..5_usize, -2..3_i32, 1..4_i64, 1..3_i32, any::<bool>())
        .prop_map(|(queue, priority, cpus, pods, partial)| Job { queue, priority, cpus, pods, partial });
    (any::<bool>(), 0..6_i64, proptest::collection::vec(queue, 1..5), proptest::collection::vec(job, 1..24))
        .prop_map(|(fair, pool, queues, jobs)| Plan { fair, pool, queues, jobs })
}

pub fn quotas(flavor: &str, nominal: i64, borrowing: Option<i64>, lending: Option<i64>) -> FlavorQuotas {
    let milli = |amount: i64| amount * 1000;
    FlavorQuotas {
        flavor: flavor.into(),
        quotas: vec![Quota {
            resource: "cpu".into(),
            nominal: milli(nominal),
            borrowing: borrowing.map(milli),
            lending: lending.map(milli),
        }],
    }
}

pub fn group(flavors: Vec<FlavorQuotas>) -> Vec<ResourceGroup> {
    vec![ResourceGroup { resources: vec!["cpu".into()], flavors }]
}

pub fn cluster_queue(name: &str, cohort: Option<&str>, flavors: Vec<FlavorQuotas>) -> ClusterQueue {
    ClusterQueue {
        name: name.into(),
        cohort: cohort.map(Into::into),
        groups: group(flavors),
        strategy: Queueing::BestEffort,
        namespaces: LabelSelector::default(),
        fungibility: Fungibility::default(),
        preemption: Preemption::default(),
        checks: Vec::new(),
        stop: Stop::None,
        weight: Weight::default(),
        by_usage: false,
        concurrent: None,
    }
}

pub fn empty(settings: Settings, flavors: &[&str]) -> State {
    let mut state = State::new(settings);
    for name in flavors {
        state.flavor_specs.insert((*name).into(), Flavor { name: (*name).into(), ..Flavor::default() });
    }
    state.namespaces.insert("n".into(), BTreeMap::new());
    state
}

pub fn add_queue(state: &mut State, queue: ClusterQueue) {
    let key = Key::new("n", queue.name.clone());
    let cluster_queue = queue.name.clone();
    state
        .local_queues
        .insert(key.clone(), LocalQueue { key, cluster_queue, stop: Stop::None, weight: Weight::default() });
    state.queue_specs.insert(queue.name.clone(), queue);
    state.touch();
}

pub fn workload(name: &str, queue: &str, priority: i32, created: i64, cpus: i64, pods: i32) -> Workload {
    let mut workload = Workload::new(Key::new("n", name));
    workload.uid = name.into();
    workload.queue = queue.into();
    workload.priority = priority;
    workload.created = Time(created);
    let requests: BTreeMap<Name, i64> = [("cpu".into(), cpus * 1000)].into();
    workload.pod_sets = vec![PodSet {
        name: "main".into(),
        count: pods,
        raw: requests.clone(),
        requests,
        ..PodSet::default()
    }];
    workload
}

fn reclaim(n: u8) -> Reclaim {
    match n {
        0 => Reclaim::Never,
        1 => Reclaim::LowerPriority,
        _ => Reclaim::Any,
    }
}

/// The queues of a plan, without its workloads.
pub fn build(plan: &Plan) -> State {
    let settings = Settings { fair_sharing: plan.fair.then(FairSharing::default), ..Settings::default() };
    let mut state = empty(settings, &["a", "b"]);
    // Two cohorts below a root that has a pool of its own.
    let cohort = |name: &str, parent: Option<&str>, groups| Cohort {
        name: name.into(),
        parent: parent.map(Into::into),
        groups,
        weight: Weight::default(),
    };
    let pool = group(vec![quotas("a", plan.pool, None, None)]);
    for cohort in
        [cohort("c0", None, pool), cohort("c1", Some("c0"), Vec::new()), cohort("c2", Some("c0"), Vec::new())]
    {
        state.cohort_specs.insert(cohort.name.clone(), cohort);
    }
    for (i, shape) in plan.queues.iter().enumerate() {
        let mut flavors = vec![quotas("a", shape.nominal, shape.borrowing, shape.lending)];
        if shape.two_flavors {
            flavors.push(quotas("b", 2, shape.borrowing, None));
        }
        let mut queue = cluster_queue(&format!("q{i}"), Some(&format!("c{}", shape.cohort)), flavors);
        queue.strategy = if shape.strict { Queueing::Strict } else { Queueing::BestEffort };
        queue.fungibility.next_before_borrowing = shape.next_before_borrowing;
        let within_cohort = reclaim(shape.within_cohort);
        queue.preemption = Preemption {
            within_queue: match shape.within_queue {
                2 => Reclaim::LowerOrNewerEqual,
                n => reclaim(n),
            },
            within_cohort,
            while_borrowing: (shape.while_borrowing && within_cohort != Reclaim::Never)
                .then(BorrowingPreemption::default),
        };
        add_queue(&mut state, queue);
    }
    state.settle(Time(0));
    state
}

/// The workloads of a plan, in the order in which they come.
pub fn jobs(plan: &Plan) -> Vec<Workload> {
    plan.jobs
        .iter()
        .enumerate()
        .map(|(i, job)| {
            let queue = format!("q{}", job.queue % plan.queues.len());
            let created = i64::try_from(i).unwrap() * 1000;
            let mut made = workload(&format!("w{i:02}"), &queue, job.priority, created, job.cpus, job.pods);
            if job.partial {
                made.pod_sets[0].min_count = Some(1);
            }
            made
        })
        .collect()
}
