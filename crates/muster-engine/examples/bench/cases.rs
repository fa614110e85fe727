//! The benchmarks, by name.

use crate::Effort;
use crate::clusters::{
    Near, Refuse, apart, gpus_asked, in_halves, placed, refusing, split, want, with_leaders,
};
use crate::meter::{Cost, measured, peak_kib, percentile};
use crate::outcome::Outcome;
use muster_engine::{Engine, audit};
use muster_generate::bench::{self, Jobs, NOW};
use muster_model::{Bind, Change, Cluster, Decisions, Gang, Key, Pod, Policy, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub struct Case {
    pub name: String,
    pub about: String,
    pub run: Box<dyn Fn(Effort) -> Outcome>,
}

const SECOND: Duration = Duration::from_secs(1);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn case(name: &str, about: &str, run: impl Fn(Effort) -> Outcome + 'static) -> Case {
    Case { name: name.to_owned(), about: about.to_owned(), run: Box::new(run) }
}

/// The sizes at which growth is measured, in nodes.
const SIZES: [u32; 5] = [100, 300, 1_000, 3_000, 10_000];

pub fn all() -> Vec<Case> {
    let mut cases = vec![
        case("place", "100,000 one-GPU pods in gangs of 8 on 10,000 empty nodes of 16 GPUs", |e| {
            place(e, e.size(10_000), 1, false, Some(SECOND))
        }),
        case("place-shapes", "the same, of 1,000 distinct shapes", |e| {
            place(e, e.size(10_000), 1000, false, Some(SECOND))
        }),
        case("place-rack", "the same, each gang in one rack of 16 nodes", |e| {
            place(e, e.size(10_000), 1, true, Some(SECOND))
        }),
        case("place-leaders", "the same, each gang with a leader of another shape", |e| {
            let nodes = e.size(10_000);
            let gangs = nodes * 10 / 8;
            let make = || with_leaders(bench::gangs(nodes, 16, gangs, 8, 1, nodes.div_ceil(16), true));
            fill(e, &make, gangs * 8, None, None)
        }),
        case("place-halves", "10,000 pods of half a GPU in gangs of 8 on 1,000 nodes", |e| {
            let (nodes, gangs) = (e.size(1000), e.size(1000) * 10 / 8);
            let make = || in_halves(bench::gangs(nodes, 16, gangs, 8, 1, nodes.div_ceil(16), false));
            fill(e, &make, gangs * 8, None, None)
        }),
        case(
            "place-apart",
            "10,000 one-GPU pods in gangs of 8, no two of a gang on one node, 1,000 nodes",
            |e| {
                let (nodes, gangs) = (e.size(1000), e.size(1000) * 10 / 8);
                let make = || apart(bench::gangs(nodes, 16, gangs, 8, 1, nodes.div_ceil(16), false));
                fill(e, &make, gangs * 8, None, None)
            },
        ),
        case("arrive", "a gang of 64 arrives on 10,000 nodes that are 90 % full", |e| {
            arrive(e.size(10_000), e.size(64), e.repetitions(1000), Near::Anywhere, Some(ms(5)))
        }),
        case("arrive-zone", "the same, and all of it must be in one zone of 128 nodes", |e| {
            arrive(
                e.size(10_000),
                e.size(64),
                e.repetitions(1000),
                Near::Required(bench::LEVELS[0]),
                Some(ms(5)),
            )
        }),
        case("arrive-prefer", "a gang of 256 that prefers one rack, where no zone has room for it", |e| {
            let near = Near::Preferred(bench::LEVELS[1]);
            arrive(e.size(10_000), e.size(256), e.repetitions(100), near, None)
        }),
        case("refuse-share", "5,000 full nodes: the taker has its share already", |e| {
            refuse(e, Refuse::TakerHasItsShare)
        }),
        case("refuse-firm", "5,000 full nodes: no victim can be preempted", |e| {
            refuse(e, Refuse::VictimsAreFirm)
        }),
        case("refuse-just", "5,000 full nodes: everyone may be asked, nobody has too much", |e| {
            refuse(e, Refuse::NobodyHasTooMuch)
        }),
        case(
            "refuse-little",
            "5,000 full nodes: four queues have four GPUs too much each, the gang wants 80",
            |e| refuse(e, Refuse::LittleTooMuch),
        ),
        case("refuse-node", "5,000 full nodes: 35,000 victims, but no node can be emptied", |e| {
            refuse(e, Refuse::NoWholeNode)
        }),
        case("refuse-rack", "5,000 full nodes: nodes can be emptied, but not enough in any rack", |e| {
            refuse(e, Refuse::NoRack)
        }),
        case("wait", "1,000 gangs that were refused go on waiting on 5,000 full nodes", |e| {
            wait(e, e.size(5000), e.size(1000))
        }),
        case("reclaim", "2,000 GPUs for one gang of 250 whole nodes, from 1,000 gangs over quota", |e| {
            let victims = Jobs { gangs: e.size(1000), pods: 4, gpus: 1 };
            let takers = Jobs { gangs: 1, pods: e.size(250), gpus: 8 };
            take(e, &|| bench::reclaim(e.size(500), victims, takers), Some(ms(200)), None)
        }),
        case(
            "reclaim-many",
            "2,000 GPUs for 250 gangs of 8 pods of one GPU, from 1,000 gangs over quota",
            |e| {
                let victims = Jobs { gangs: e.size(1000), pods: 4, gpus: 1 };
                let takers = Jobs { gangs: e.size(250), pods: 8, gpus: 1 };
                take(e, &|| bench::reclaim(e.size(500), victims, takers), Some(ms(200)), None)
            },
        ),
        case("consolidate-one", "room for one gang of two whole nodes on 1,000 half-full nodes", move |e| {
            let make = || {
                let (before, late) = split(bench::fragmented(e.size(1000)));
                (before, first_gang(late))
            };
            move_for(e, &any_victims(), Served::All, &make, Some(ms(100)), None)
        }),
        case("consolidate", "room for 250 gangs of two whole nodes on 1,000 half-full nodes", move |e| {
            move_for(
                e,
                &any_victims(),
                Served::All,
                &|| split(bench::fragmented(e.size(1000))),
                Some(ms(100)),
                None,
            )
        }),
        case(
            "consolidate-few",
            "the same, at most 16 gangs moved for each, which is the default",
            move |e| {
                move_for(
                    e,
                    &Policy::default(),
                    Served::Some,
                    &|| split(bench::fragmented(e.size(1000))),
                    Some(ms(100)),
                    None,
                )
            },
        ),
        case("many-gangs", "500 gangs of 8 on 500 empty nodes of 8 GPUs: at least 100,000 pods/s", |e| {
            let nodes = e.size(500);
            let make = || bench::gangs(nodes, 8, nodes, 8, 1, nodes.div_ceil(16), false);
            let mut outcome = fill(e, &make, nodes * 8, None, None);
            outcome.figures[1].target = Some(SECOND * nodes * 8 / 100_000);
            outcome
        }),
        case("kai-fill", "4,000 jobs of one GPU on 500 empty nodes", |e| {
            let nodes = e.size(500);
            fill(e, &|| bench::fill(nodes, 0), nodes * 8, None, Some(ms(397_800)))
        }),
        case("kai-fill-hopeless", "the same, among 400 jobs that can never run", |e| {
            let nodes = e.size(500);
            fill(e, &|| bench::fill(nodes, e.size(400)), nodes * 8, None, Some(ms(398_100)))
        }),
        case("kai-large-preferred", "one gang of 512 whole nodes, a rack preferred", |e| {
            let nodes = e.size(512);
            fill(e, &|| bench::one_large_gang(nodes, true), nodes, None, Some(ms(48_700)))
        }),
        case("kai-large", "one gang of 512 whole nodes, anywhere", |e| {
            let nodes = e.size(512);
            fill(e, &|| bench::one_large_gang(nodes, false), nodes, None, Some(ms(49_400)))
        }),
        case("kai-hopeless", "a gang of 10 whole nodes against 500 full nodes of its own queue", |e| {
            let make = || split(bench::hopeless_gang(e.size(500)));
            refuse_with(e, &make, Some(ms(249_500)), None)
        }),
        case("kai-reclaim-one", "one job of one GPU by reclaim among 4,000 victims", |e| {
            take(e, &|| bench::reclaim_singles(e.size(500), 1), None, Some(ms(13_900)))
        }),
        case("kai-reclaim-4000", "4,000 jobs of one GPU by reclaim from 4,000 victims", |e| {
            let nodes = e.size(500);
            take(e, &|| bench::reclaim_singles(nodes, nodes * 8), None, Some(ms(694_500)))
        }),
        case(
            "kai-reclaim-half",
            "one gang of 250 whole nodes by reclaim from 4,000 victims of one GPU",
            |e| take(e, &|| bench::reclaim_half(e.size(500)), None, Some(ms(102_000))),
        ),
        case(
            "kai-reclaim-all",
            "one gang of 500 whole nodes by reclaim from 500 victims of a node each",
            |e| take(e, &|| bench::reclaim_all(e.size(500)), None, Some(ms(85_000))),
        ),
        case("kai-reclaim-distributed", "50 gangs of 10 whole nodes by reclaim from 4,000 victims", |e| {
            take(e, &|| bench::reclaim_distributed(e.size(500)), None, Some(ms(716_900)))
        }),
        case(
            "kai-consolidate",
            "room for 41 gangs of 10 pods of 6 GPUs on 500 nodes with 3 GPUs in use",
            |e| {
                let make = || split(bench::consolidation(e.size(500), e.size(41)));
                move_for(e, &any_victims(), Served::Some, &make, None, Some(ms(455_700)))
            },
        ),
        case(
            "kai-burst",
            "45,990 pods of a node each in gangs of 2 to 64, 500 nodes, as others finish",
            |e| burst(e.size(500), e.size(45_990), ms(5_098_700)),
        ),
    ];
    for nodes in SIZES {
        cases.push(case(&format!("growth/place/{nodes}"), "10 pods per node in gangs of 8", move |e| {
            place(e, nodes, 1, false, None)
        }));
        cases.push(case(
            &format!("growth/place-rack/{nodes}"),
            "the same, each gang in one rack",
            move |e| place(e, nodes, 1, true, None),
        ));
        cases.push(case(
            &format!("growth/arrive/{nodes}"),
            "a gang of 64 on nodes that are 90 % full",
            move |e| arrive(nodes, 64, e.repetitions(100), Near::Anywhere, None),
        ));
        cases.push(case(
            &format!("growth/reclaim/{nodes}"),
            "a gang of 64 takes from 8 victims per node",
            move |e| {
                let victims = Jobs { gangs: nodes * 8, pods: 1, gpus: 1 };
                let taker = Jobs { gangs: 1, pods: 64, gpus: 1 };
                take(e, &|| bench::reclaim(nodes, victims, taker), None, None)
            },
        ));
    }
    for (jobs, pods) in [(10_000, 1), (500, 20), (20, 500), (1, 10_000)] {
        cases.push(case(
            &format!("volcano/{jobs}x{pods}"),
            "Volcano's rules and default plugins: jobs of one-core pods on 1,000 empty nodes of 32 cores",
            move |e| {
                // Upstream's own scheduler, in memory, places 380 pods a second.
                by_volcano(e, e.size(1000), e.size(jobs), pods.min(e.size(10_000)), Some(ms(26_400)))
            },
        ));
    }
    cases.push(case("volcano/arrive", "Volcano's rules: a job of one pod where 10,000 such jobs are", |e| {
        beside_many(e, e.size(1000), e.size(10_000))
    }));
    cases
}

/// One of Volcano's gangs comes after the other, beside many that have their places.
fn beside_many(effort: Effort, nodes: u32, jobs: u32) -> Outcome {
    let mut outcome = Outcome::default();
    let n = effort.repetitions(50);
    let (mut cluster, policy) = crate::clusters::volcano(nodes, jobs + n as u32, 1);
    let gangs = cluster.gangs.split_off(jobs as usize);
    let pods = cluster.pods.split_off(jobs as usize);
    let there = cluster.gangs.clone();
    let (mut engine, _) = Engine::build(cluster, policy);
    outcome.expect("pods bound", engine.cycle(Time(NOW)).binds.len(), jobs as usize);
    engine.apply(there.into_iter().map(crate::clusters::running));
    let mut costs = Vec::new();
    let mut bound = 0;
    for (gang, pod) in gangs.into_iter().zip(pods) {
        let changes = [Change::PutGang(gang), Change::PutPod(pod)];
        let (decisions, cost) = measured(|| {
            engine.apply(changes);
            engine.cycle(Time(NOW))
        });
        bound += decisions.binds.len();
        costs.push(cost);
    }
    outcome.peak_kib = peak_kib();
    outcome.expect("newcomers bound", bound, n);
    outcome.figure("change to decision, median", percentile(&costs, 50));
    outcome.figure("99th percentile", percentile(&costs, 99));
    outcome
}

/// Volcano's gangs on empty nodes: all of them are bound.
fn by_volcano(effort: Effort, nodes: u32, jobs: u32, pods: u32, theirs: Option<Duration>) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut builds, mut cycles) = (Vec::new(), Vec::new());
    let n = jobs * pods;
    for i in 0..effort.repetitions(3) {
        let (cluster, policy) = crate::clusters::volcano(nodes, jobs, pods);
        let before = cluster.clone();
        let ((mut engine, _), build) = measured(|| Engine::build(cluster, policy.clone()));
        let (decisions, cycle) = measured(|| engine.cycle(Time(NOW)));
        builds.push(build);
        cycles.push(cycle);
        if i == 0 {
            outcome.peak_kib = peak_kib();
            check(&mut outcome, &before, &policy, &decisions);
            outcome.expect("pods bound", decisions.binds.len(), n as usize);
        }
    }
    outcome.figure("build", percentile(&builds, 50));
    let cycle = outcome.figure("cycle", percentile(&cycles, 50));
    // 50,000 pods a second.
    (cycle.target, cycle.theirs, cycle.pods) = (Some(Duration::from_micros(20) * n), theirs, Some(n));
    outcome
}

/// Places gangs of 8 on empty nodes of 16 GPUs, ten pods for each node.
fn place(effort: Effort, nodes: u32, shapes: u32, rack: bool, target: Option<Duration>) -> Outcome {
    let gangs = nodes * 10 / 8;
    let make = || bench::gangs(nodes, 16, gangs, 8, shapes, nodes.div_ceil(16), rack);
    fill(effort, &make, gangs * 8, target, None)
}

/// Builds and decides at once; so many pods are bound and nobody is evicted.
fn fill(
    effort: Effort,
    make: &dyn Fn() -> Cluster,
    pods: u32,
    target: Option<Duration>,
    theirs: Option<Duration>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut builds, mut cycles) = (Vec::new(), Vec::new());
    for i in 0..effort.repetitions(3) {
        let cluster = make();
        let before = cluster.clone();
        let ((mut engine, _), build) = measured(|| Engine::build(cluster, Policy::default()));
        let (decisions, cycle) = measured(|| engine.cycle(Time(NOW)));
        builds.push(build);
        cycles.push(cycle);
        if i == 0 {
            outcome.peak_kib = peak_kib();
            check(&mut outcome, &before, &Policy::default(), &decisions);
            outcome.expect("pods bound", decisions.binds.len(), pods as usize);
            outcome.expect("evictions", decisions.evictions.len(), 0);
        }
    }
    let sums: Vec<Cost> = builds.iter().zip(&cycles).map(|(a, b)| *a + *b).collect();
    outcome.figure("build", percentile(&builds, 50));
    outcome.figure("cycle", percentile(&cycles, 50)).pods = Some(pods);
    let both = outcome.figure("build and cycle", percentile(&sums, 50));
    (both.target, both.theirs, both.pods) = (target, theirs, Some(pods));
    outcome
}

/// The auditor must find nothing wrong.
fn check(outcome: &mut Outcome, before: &Cluster, policy: &Policy, decisions: &Decisions) {
    let findings = audit::audit(before, policy, decisions);
    if let Some(first) = findings.first() {
        outcome.wrong.push(format!("the auditor has {} findings; the first: {first:?}", findings.len()));
    }
}

/// An engine that knows a cluster and has nothing left to do there.
fn warm(outcome: &mut Outcome, cluster: Cluster, policy: Policy) -> Engine {
    let (mut engine, _) = Engine::build(cluster, policy);
    let decisions = engine.cycle(Time(NOW));
    outcome.expect("decisions before anyone arrives", decisions.binds.len() + decisions.evictions.len(), 0);
    engine
}

/// Measures an arrival on a warm engine, from the changes to the decisions.
fn decide(
    outcome: &mut Outcome,
    repetitions: usize,
    policy: &Policy,
    make: &dyn Fn() -> (Cluster, Vec<Change>),
    mut judge: impl FnMut(&mut Outcome, &[Change], &Decisions, &mut Engine),
) -> [Cost; 2] {
    let (mut applies, mut cycles) = (Vec::new(), Vec::new());
    for i in 0..repetitions {
        let (before, late) = make();
        let mut whole = before.clone();
        for change in &late {
            match change {
                Change::PutGang(gang) => whole.gangs.push(gang.clone()),
                Change::PutPod(pod) => whole.pods.push(pod.clone()),
                _ => {}
            }
        }
        let mut engine = warm(outcome, before, policy.clone());
        let arrival = late.clone();
        let (_, apply) = measured(|| engine.apply(arrival));
        let (decisions, cycle) = measured(|| engine.cycle(Time(NOW)));
        applies.push(apply);
        cycles.push(cycle);
        if i == 0 {
            outcome.peak_kib = peak_kib();
            check(outcome, &whole, policy, &decisions);
        }
        judge(outcome, &late, &decisions, &mut engine);
    }
    [percentile(&applies, 50), percentile(&cycles, 50)]
}

/// A gang that cannot be placed: from its arrival to the reasons.
fn refuse(effort: Effort, why: Refuse) -> Outcome {
    refuse_with(effort, &|| refusing(effort.size(5000), why), None, Some(ms(10)))
}

fn refuse_with(
    effort: Effort,
    make: &dyn Fn() -> (Cluster, Vec<Change>),
    theirs: Option<Duration>,
    target: Option<Duration>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut explains = Vec::new();
    let [apply, cycle] = decide(
        &mut outcome,
        effort.repetitions(5),
        &Policy::default(),
        make,
        |outcome, late, decisions, engine| {
            outcome.expect("binds", decisions.binds.len(), 0);
            outcome.expect("evictions", decisions.evictions.len(), 0);
            outcome.expect("promises", decisions.pipelined.len(), 0);
            let late = late.iter().find_map(|change| match change {
                Change::PutGang(gang) => Some(gang.key.clone()),
                _ => None,
            });
            let Some(gang) = late else { return };
            let (refusal, cost) = measured(|| engine.explain(&gang, Time(NOW)));
            explains.push(cost);
            let told = |reasons: &[muster_model::Reason]| !reasons.is_empty();
            if !decisions.refusals.iter().any(|r| r.gang == gang && told(&r.reasons)) {
                outcome.wrong.push("the cycle gives no reason for the refusal".to_owned());
            }
            match refusal {
                Some(refusal) if told(&refusal.reasons) => {
                    outcome.facts = vec![format!("because: {:?}", refusal.reasons)];
                }
                _ => outcome.wrong.push("explain gives no reason for the refusal".to_owned()),
            }
        },
    );
    outcome.wrong.dedup();
    let explain = percentile(&explains, 50);
    outcome.figure("apply and cycle", apply + cycle);
    outcome.figure("explain", explain);
    let all = outcome.figure("all", apply + cycle + explain);
    (all.target, all.theirs) = (target, theirs);
    outcome
}

/// Gangs of a hundred sizes wait, and nobody may lose anything to them: what each further cycle costs.
fn wait(effort: Effort, nodes: u32, gangs: u32) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut cluster, _) = refusing(nodes, Refuse::NobodyHasTooMuch);
    for i in 0..gangs {
        let gpus = [1, 2, 4, 8][i as usize % 4];
        for change in bench::arrival(&format!("late-{i:06}"), "taker", 1 + i % 25, gpus, false) {
            match change {
                Change::PutGang(gang) => cluster.gangs.push(gang),
                Change::PutPod(pod) => cluster.pods.push(pod),
                _ => {}
            }
        }
    }
    let seen = cluster.pods[0].clone();
    let (mut engine, _) = Engine::build(cluster.clone(), Policy::default());
    let (first, cost) = measured(|| engine.cycle(Time(NOW)));
    outcome.peak_kib = peak_kib();
    check(&mut outcome, &cluster, &Policy::default(), &first);
    outcome.expect("gangs refused", first.refusals.len(), gangs as usize);
    outcome.figure("the first cycle", cost);
    let mut again = |label: &'static str, change: Option<Change>, target: Duration| {
        let mut costs = Vec::new();
        for i in 0..effort.repetitions(10) {
            let now = Time(NOW + 1 + i as i64);
            let (decisions, cost) = measured(|| {
                engine.apply(change.clone());
                engine.cycle(now)
            });
            costs.push(cost);
            if decisions != first {
                outcome.wrong.push(format!("{label}: decided differently"));
            }
        }
        outcome.figure(label, percentile(&costs, 50)).target = Some(target);
    };
    again("nothing changed", None, ms(1));
    again("one pod changed", Some(Change::PutPod(seen)), ms(10));
    outcome.wrong.dedup();
    outcome
}

/// Gangs that must take from others, all of them: every GPU that they ask for is freed by evictions, for the cluster is full.
fn take(
    effort: Effort,
    make: &dyn Fn() -> Cluster,
    target: Option<Duration>,
    theirs: Option<Duration>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut counts = (0, 0);
    let make = || split(make());
    let [apply, cycle] = decide(
        &mut outcome,
        effort.repetitions(3),
        &Policy::default(),
        &make,
        |outcome, late, decisions, _| {
            let pods = late.iter().filter(|change| matches!(change, Change::PutPod(_))).count();
            outcome.expect("promises", decisions.pipelined.len(), pods);
            let lost = decisions.evictions.iter().filter(|e| !e.moved).count();
            counts = (pods as u32, lost);
            if lost == 0 {
                outcome.wrong.push("nobody was evicted".to_owned());
            }
            outcome.facts = vec![format!("{} GPUs for {pods} pods, {lost} pods evicted", gpus_asked(late))];
        },
    );
    outcome.wrong.dedup();
    outcome.figure("apply", apply);
    outcome.figure("cycle", cycle).pods = Some(counts.0);
    let both = outcome.figure("apply and cycle", apply + cycle);
    (both.target, both.theirs) = (target, theirs);
    outcome
}

/// KAI's defaults, but consolidation may move any number of gangs.
fn any_victims() -> Policy {
    Policy { max_consolidation_victims: None, ..Policy::default() }
}

/// How many of those who wait must be served; the search for whom to move does not find every way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    All,
    Some,
}

/// Gangs for which others must move together; nobody is lost.
fn move_for(
    effort: Effort,
    policy: &Policy,
    who: Served,
    make: &dyn Fn() -> (Cluster, Vec<Change>),
    target: Option<Duration>,
    theirs: Option<Duration>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let [apply, cycle] =
        decide(&mut outcome, effort.repetitions(3), policy, make, |outcome, late, decisions, _| {
            let pods = late.iter().filter(|change| matches!(change, Change::PutPod(_))).count();
            let moved = decisions.evictions.iter().filter(|e| e.moved).count();
            outcome.expect("victims that are lost", decisions.evictions.len() - moved, 0);
            let served = decisions.pipelined.len() - moved;
            match who {
                Served::All => outcome.expect("promises to gangs that wait", served, pods),
                Served::Some if served == 0 => outcome.wrong.push("nobody was served".to_owned()),
                Served::Some => {}
            }
            outcome.facts = vec![format!("{served} of {pods} pods promised a place, {moved} others moved")];
        });
    outcome.wrong.dedup();
    outcome.figure("apply", apply);
    outcome.figure("cycle", cycle);
    let both = outcome.figure("apply and cycle", apply + cycle);
    (both.target, both.theirs) = (target, theirs);
    outcome
}

/// The first gang of an arrival, alone.
fn first_gang(late: Vec<Change>) -> Vec<Change> {
    let first = late.iter().find_map(|change| match change {
        Change::PutGang(gang) => Some(gang.key.clone()),
        _ => None,
    });
    let of_first = |change: &Change| match change {
        Change::PutGang(gang) => Some(&gang.key) == first.as_ref(),
        Change::PutPod(pod) => pod.gang == first,
        _ => false,
    };
    late.into_iter().filter(of_first).collect()
}

/// The cluster as its API server would know it.
struct Mirror {
    rest: Cluster,
    pods: BTreeMap<Key, Arc<Pod>>,
    gangs: BTreeMap<Key, (Arc<Gang>, Vec<Key>)>,
}

impl Mirror {
    fn of(cluster: Cluster) -> Self {
        let mut mirror = Self { rest: Cluster::default(), pods: BTreeMap::new(), gangs: BTreeMap::new() };
        let Cluster { pods, gangs, .. } = &cluster;
        for gang in gangs {
            mirror.note(&Change::PutGang(gang.clone()));
        }
        for pod in pods {
            mirror.note(&Change::PutPod(pod.clone()));
        }
        mirror.rest = Cluster { pods: Vec::new(), gangs: Vec::new(), ..cluster };
        mirror
    }

    fn note(&mut self, change: &Change) {
        match change {
            Change::PutGang(gang) => {
                let pods = self.gangs.remove(&gang.key).map_or_else(Vec::new, |(_, pods)| pods);
                self.gangs.insert(gang.key.clone(), (gang.clone(), pods));
            }
            Change::PutPod(pod) => {
                let new = self.pods.insert(pod.key.clone(), pod.clone()).is_none();
                if new && let Some((_, pods)) = pod.gang.as_ref().and_then(|gang| self.gangs.get_mut(gang)) {
                    pods.push(pod.key.clone());
                }
            }
            Change::DropPod(key) => drop(self.pods.remove(key)),
            Change::DropGang(key) => drop(self.gangs.remove(key)),
            _ => {}
        }
    }

    /// What the API server says once the binds are done.
    fn started(&self, binds: &[Bind]) -> Vec<Change> {
        let pods = binds.iter().filter_map(|bind| {
            let pod = self.pods.get(&bind.pod)?;
            Some(Change::PutPod(Arc::new(placed(pod, bind.placement.node.clone()))))
        });
        pods.collect()
    }

    /// What it says when a gang is over and its pods are gone.
    fn ended(&self, gang: &Key) -> Vec<Change> {
        let pods = self.gangs.get(gang).map_or(&[][..], |(_, pods)| pods);
        pods.iter().cloned().map(Change::DropPod).chain([Change::DropGang(gang.clone())]).collect()
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            pods: self.pods.values().cloned().collect(),
            gangs: self.gangs.values().map(|(gang, _)| gang.clone()).collect(),
            ..self.rest.clone()
        }
    }
}

/// Gangs arrive one after the other; each runs once it is bound, and as many others end as keep the cluster as full as it was.
fn arrive(nodes: u32, size: u32, n: usize, near: Near, target: Option<Duration>) -> Outcome {
    let mut outcome = Outcome::default();
    let cluster = bench::filled(nodes, 90);
    let mut mirror = Mirror::of(cluster.clone());
    let mut engine = warm(&mut outcome, cluster, Policy::default());
    let mut running: Vec<Key> = mirror.gangs.keys().cloned().collect();
    let (mut arrivals, mut echoes) = (Vec::new(), Vec::new());
    let mut state = 1_u64;
    for i in 0..n {
        let mut arrival = bench::arrival(&format!("late-{i:06}"), "team", size, 1, false);
        want(&mut arrival, near);
        for change in &arrival {
            mirror.note(change);
        }
        let before = (i + 1 == n).then(|| mirror.cluster());
        let (decisions, cost) = measured(|| {
            engine.apply(arrival);
            engine.cycle(Time(NOW + i as i64))
        });
        arrivals.push(cost);
        outcome.expect("pods bound", decisions.binds.len(), size as usize);
        outcome.expect("evictions", decisions.evictions.len(), 0);
        if let Some(before) = before {
            outcome.peak_kib = peak_kib();
            check(&mut outcome, &before, &Policy::default(), &decisions);
        }
        // The world moves on: what was bound runs, and others end.
        let mut changes = mirror.started(&decisions.binds);
        let mut freed = 0;
        while freed < decisions.binds.len() && !running.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let gang = running.swap_remove((state >> 33) as usize % running.len());
            let ended = mirror.ended(&gang);
            freed += ended.len() - 1;
            changes.extend(ended);
        }
        if let Some(first) = decisions.binds.first() {
            running.push(first.gang.clone());
        }
        for change in &changes {
            mirror.note(change);
        }
        let (_, cost) = measured(|| engine.apply(changes));
        echoes.push(cost);
    }
    outcome.wrong.dedup();
    outcome.figure("apply and cycle, p50", percentile(&arrivals, 50)).pods = Some(size);
    outcome.figure("apply and cycle, p99", percentile(&arrivals, 99)).target = target;
    outcome.figure("apply of what followed, p50", percentile(&echoes, 50));
    outcome.fact(format!("{n} gangs of {size}"));
    outcome
}

/// A backlog that is worked off: in every cycle what fits is bound, and is over before the next.
fn burst(nodes: u32, pods: u32, theirs: Duration) -> Outcome {
    let mut outcome = Outcome::default();
    let cluster = bench::burst(nodes, pods);
    let mut mirror = Mirror::of(cluster.clone());
    let ((mut engine, _), mut total) = measured(|| Engine::build(cluster, Policy::default()));
    let (mut bound, mut n_cycles) = (0, 0);
    loop {
        let (decisions, cycle) = measured(|| engine.cycle(Time(NOW)));
        total = total + cycle;
        if decisions.binds.is_empty() {
            break;
        }
        n_cycles += 1;
        bound += decisions.binds.len();
        let mut gangs: Vec<Key> = decisions.binds.iter().map(|bind| bind.gang.clone()).collect();
        gangs.dedup();
        let changes: Vec<Change> = gangs.iter().flat_map(|gang| mirror.ended(gang)).collect();
        for change in &changes {
            mirror.note(change);
        }
        let (_, apply) = measured(|| engine.apply(changes));
        total = total + apply;
    }
    outcome.peak_kib = peak_kib();
    outcome.expect("pods bound", bound, pods as usize);
    outcome.expect("pods left", mirror.pods.len(), 0);
    outcome.fact(format!("{n_cycles} cycles"));
    let all = outcome.figure("build and all cycles", total);
    (all.theirs, all.pods) = (Some(theirs), Some(pods));
    outcome
}
