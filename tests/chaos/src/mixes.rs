//! The founding benchmark: gangs of 64 pods with a GPU each, and others of all sizes, whose pods come in any order on a cluster that
//! has not room for all. Each gang is placed whole or not at all, and none waits for ever.
//!
//! In: a seed. Out: what happened in a [`Mix`]. The scheduler's core is told what an API server would tell it, in random gulps and
//! late, and its decisions are carried out here. Must stay true: after every cycle each gang holds nothing or its minimum (but
//! for one whose pods are being moved together, which has it again in a moment); when
//! nothing more is placed, no gang that waits fits into what is free; in the end every gang has run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_model::{Span, Time};
use muster_runtime::Key;
use muster_scheduler::core::{Core, Output};
use muster_scheduler::ingest::Input;
use muster_scheduler::record::{Setup, advance};
use muster_translate::Kind;
use serde_json::{Value, json};

use crate::random::Random;

/// What happened in one or many mixes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub mixes: u64,
    pub gangs: u64,
    /// Gangs of 64 with one GPU per pod.
    pub of_64: u64,
    /// How often a gang was placed whole.
    pub whole: u64,
    /// How often one was placed in part.
    pub partial: u64,
    /// Gangs that never ran.
    pub deadlocks: u64,
    /// How often a gang that would have fitted was left waiting.
    pub missed: u64,
    /// Gangs that made way for others and ran again.
    pub evicted: u64,
    /// Gangs of which some pods went elsewhere to make room.
    pub moved: u64,
    pub cycles: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.mixes += other.mixes;
        self.gangs += other.gangs;
        self.of_64 += other.of_64;
        self.whole += other.whole;
        self.partial += other.partial;
        self.deadlocks += other.deadlocks;
        self.missed += other.missed;
        self.evicted += other.evicted;
        self.moved += other.moved;
        self.cycles += other.cycles;
    }
}

impl Tally {
    pub fn is_good(&self) -> bool {
        self.partial == 0 && self.deadlocks == 0 && self.missed == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { mixes, gangs, of_64, whole, partial, deadlocks, missed, evicted, moved, cycles } = self;
        write!(
            f,
            "{mixes} mixes, {gangs} gangs ({of_64} of 64 x 1 GPU), placed whole {whole} times, partial {partial}, deadlocks {deadlocks}, \
             left waiting though they fit {missed}, made way and ran again {evicted}, moved together {moved}, {cycles} cycles"
        )
    }
}

/// Runs `n` mixes, the first with this seed. What is wrong is said with the seed that does it again.
pub fn run(seed: u64, n: u64, mut tell: impl FnMut(u64, &Tally)) -> (Tally, Vec<String>) {
    let mut all = Tally::default();
    let mut wrong = Vec::new();
    for seed in seed..seed.saturating_add(n) {
        let mut mix = Mix::new(seed);
        mix.play();
        wrong.extend(mix.wrong.iter().map(|what| format!("mix {seed}: {what}")));
        all += mix.tally;
        tell(seed, &all);
    }
    (all, wrong)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nobody has been told of it.
    Unheard,
    Waiting,
    /// On this node; whether the scheduler has heard so.
    Placed {
        node: usize,
        told: bool,
    },
}

struct Pod {
    standing: Standing,
    /// How often it was made.
    life: u32,
}

struct Gang {
    name: String,
    queue: &'static str,
    gpus: u32,
    pods: Vec<Pod>,
    heard: bool,
    /// When it ends, once it runs.
    ends: Option<i64>,
    /// Some of its pods make room by going elsewhere: consolidation, which leaves it in part for a moment.
    moves: bool,
    over: bool,
}

impl Gang {
    fn placed(&self) -> usize {
        self.pods.iter().filter(|pod| matches!(pod.standing, Standing::Placed { .. })).count()
    }

    fn is_complete(&self) -> bool {
        self.heard && self.pods.iter().all(|pod| pod.standing != Standing::Unheard)
    }
}

/// Something that the scheduler has not been told yet.
#[derive(Debug, Clone, Copy)]
enum News {
    Group(usize),
    Pod(usize, usize),
}

struct Mix {
    random: Random,
    core: Core,
    now: i64,
    /// Free GPUs.
    nodes: Vec<u32>,
    gangs: Vec<Gang>,
    news: Vec<News>,
    by_name: BTreeMap<String, usize>,
    tally: Tally,
    wrong: Vec<String>,
}

const NAMESPACE: &str = "mix";
const SCHEDULER: &str = "kai-scheduler";

impl Mix {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let setup = Setup::default();
        let (settings, policy, _) = setup.read();
        let mut core = Core::new(settings, policy, Span::seconds(30));
        let mut inputs = vec![Input::Put(Kind::Namespace, json!({"metadata": {"name": NAMESPACE}}))];
        // From one gang of 64 to three.
        let n_nodes = random.between(8, 24);
        let mut nodes = Vec::new();
        for n in 0..n_nodes {
            let gpus = if random.chance(80) { 8 } else { 4 };
            nodes.push(gpus);
            inputs.push(Input::Put(Kind::Node, node(&format!("n{n}"), gpus)));
        }
        let total: u32 = nodes.iter().sum();
        let halves = i64::from(total / 2);
        for (name, quota) in [("left", halves), ("right", halves)] {
            let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
            let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
            inputs.push(Input::Put(
                Kind::Queue,
                json!({"metadata": {"name": name}, "spec": {"resources": {"cpu": any, "memory": any, "gpu": gpu}}}),
            ));
        }
        inputs.extend(Kind::ALL.into_iter().map(Input::Known));
        core.take(inputs, Time(0));

        let mut gangs = Vec::new();
        let one_queue = random.chance(50);
        let mut add = |random: &mut Random, size: u64, gpus: u32| {
            let queue = if one_queue || random.chance(50) { "left" } else { "right" };
            let pods = (0..size).map(|_| Pod { standing: Standing::Unheard, life: 0 }).collect();
            let name = format!("g{}", gangs.len());
            gangs.push(Gang { name, queue, gpus, pods, heard: false, ends: None, moves: false, over: false });
        };
        if total >= 64 {
            for _ in 0..random.between(2, 5) {
                add(&mut random, 64, 1);
            }
        }
        for _ in 0..random.between(1, 6) {
            let gpus = *random.of(&[1_u32, 1, 2, 4]).unwrap_or(&1);
            let most = u64::from(nodes.iter().map(|free| free / gpus).sum::<u32>()).min(48);
            let size = random.between(1, most.max(1));
            add(&mut random, size, gpus);
        }
        let mut news: Vec<News> = Vec::new();
        for (g, gang) in gangs.iter().enumerate() {
            news.push(News::Group(g));
            news.extend((0..gang.pods.len()).map(|p| News::Pod(g, p)));
        }
        random.shuffle(&mut news);
        let by_name = gangs.iter().enumerate().map(|(g, gang)| (gang.name.clone(), g)).collect();
        let of_64 = gangs.iter().filter(|gang| gang.pods.len() == 64 && gang.gpus == 1).count();
        let tally = Tally { mixes: 1, gangs: gangs.len() as u64, of_64: of_64 as u64, ..Tally::default() };
        Mix { random, core, now: 0, nodes, gangs, news, by_name, tally, wrong: Vec::new() }
    }

    fn play(&mut self) {
        // Far more cycles than any mix needs.
        for _ in 0..5_000 {
            let inputs = self.gulp();
            let quiet = inputs.is_empty();
            self.now += i64::try_from(self.random.between(1, 40)).unwrap_or(1);
            let output = advance(&mut self.core, inputs, Time(self.now));
            self.tally.cycles += 1;
            let idle = output
                .as_ref()
                .is_none_or(|output| output.placements.is_empty() && output.evictions.is_empty());
            if let Some(output) = output {
                self.carry_out(&output);
            }
            if !self.wrong.is_empty() {
                return;
            }
            if self.gangs.iter().all(|gang| gang.over) {
                return;
            }
            // A promise that nobody confirms for half a minute would be given back, so time does not go on before all is told.
            if quiet && idle && self.news.is_empty() {
                self.check_waiting();
                // Nothing happens until somebody ends.
                let next = self.gangs.iter().filter_map(|gang| gang.ends).min();
                match next {
                    Some(at) => self.now = self.now.max(at),
                    None => break,
                }
            }
            self.end_those_who_are_done();
        }
        let left: Vec<&str> =
            self.gangs.iter().filter(|gang| !gang.over).map(|gang| gang.name.as_str()).collect();
        self.tally.deadlocks += left.len() as u64;
        if !left.is_empty() {
            self.wrong.push(format!("never ended: {}", left.join(", ")));
        }
    }

    /// Some of what the scheduler has not been told.
    fn gulp(&mut self) -> Vec<Input> {
        let most = *self.random.of(&[1_u64, 8, 64, 500]).unwrap_or(&8);
        let n = usize::try_from(self.random.between(0, most)).unwrap_or(0).min(self.news.len());
        let told: Vec<News> = self.news.drain(..n).collect();
        told.into_iter().filter_map(|news| self.input(news)).collect()
    }

    fn input(&mut self, news: News) -> Option<Input> {
        match news {
            News::Group(g) => {
                let gang = self.gangs.get_mut(g)?;
                gang.heard = true;
                if gang.over {
                    return Some(Input::Gone(Kind::PodGroup, Key::new(NAMESPACE, &gang.name)));
                }
                let spec = json!({"minMember": gang.pods.len(), "queue": gang.queue});
                Some(Input::Put(
                    Kind::PodGroup,
                    json!({"metadata": {"namespace": NAMESPACE, "name": gang.name, "uid": format!("u-{}", gang.name)}, "spec": spec}),
                ))
            }
            News::Pod(g, p) => {
                let gang = self.gangs.get_mut(g)?;
                let name = format!("{}-{p}", gang.name);
                if gang.over {
                    return Some(Input::Gone(Kind::Pod, Key::new(NAMESPACE, &name)));
                }
                let (group, gpus) = (gang.name.clone(), gang.gpus);
                let pod = gang.pods.get_mut(p)?;
                let node = match &mut pod.standing {
                    Standing::Unheard => {
                        pod.standing = Standing::Waiting;
                        None
                    }
                    Standing::Waiting => None,
                    Standing::Placed { node, told } => {
                        *told = true;
                        Some(format!("n{node}"))
                    }
                };
                Some(Input::Put(Kind::Pod, pod_object(&name, pod.life, &group, gpus, node)))
            }
        }
    }

    fn carry_out(&mut self, output: &Output) {
        for eviction in &output.evictions {
            // Whoever has ended meanwhile is gone anyway.
            let Some((g, p)) = self.find(&eviction.pod.name).filter(|(g, _)| !self.gangs[*g].over) else {
                continue;
            };
            let gpus = self.gangs[g].gpus;
            self.gangs[g].moves |= eviction.moved;
            let pod = &mut self.gangs[g].pods[p];
            if let Standing::Placed { node, .. } = pod.standing {
                self.nodes[node] += gpus;
            }
            // It is gone, and made again.
            pod.standing = Standing::Waiting;
            pod.life += 1;
            self.gangs[g].ends = None;
            let at = usize::try_from(self.random.between(0, self.news.len() as u64)).unwrap_or(0);
            self.news.insert(at, News::Pod(g, p));
        }
        for placement in &output.placements {
            for placed in &placement.pods {
                let Some((g, p)) = self.find(&placed.pod.name) else { continue };
                let node = placed.placement.node.strip_prefix('n').and_then(|n| n.parse::<usize>().ok());
                let gpus = self.gangs[g].gpus;
                let Some((node, free)) = node.and_then(|n| Some((n, self.nodes.get_mut(n)?))) else {
                    self.wrong.push(format!("{} was placed on {}", placed.pod.name, placed.placement.node));
                    continue;
                };
                match free.checked_sub(gpus) {
                    Some(rest) => *free = rest,
                    None => self
                        .wrong
                        .push(format!("{} was placed on n{node}, which has no room", placed.pod.name)),
                }
                if self.gangs[g].pods[p].standing != Standing::Waiting {
                    self.wrong.push(format!("{} was placed twice", placed.pod.name));
                }
                self.gangs[g].pods[p].standing = Standing::Placed { node, told: false };
                // The API server says so in a while, in whatever order.
                let at = usize::try_from(self.random.between(0, self.news.len() as u64)).unwrap_or(0);
                self.news.insert(at, News::Pod(g, p));
            }
        }
        for g in 0..self.gangs.len() {
            let gang = &mut self.gangs[g];
            let (placed, all) = (gang.placed(), gang.pods.len());
            if gang.over {
                continue;
            }
            gang.moves &= placed != all;
            if placed != 0 && placed != all && !gang.moves {
                self.tally.partial += 1;
                self.wrong.push(format!(
                    "{} has {placed} of {all} pods placed after cycle {}",
                    gang.name, self.tally.cycles
                ));
            }
            if placed == all && gang.ends.is_none() {
                self.tally.whole += 1;
                gang.ends = Some(self.now + i64::try_from(self.random.between(500, 60_000)).unwrap_or(500));
            }
        }
        let gangs = |moved: bool| {
            let all = output.evictions.iter().filter(|e| e.moved == moved).map(|e| &*e.gang.key.name);
            all.collect::<BTreeSet<&str>>().len() as u64
        };
        self.tally.evicted += gangs(false);
        self.tally.moved += gangs(true);
    }

    fn find(&self, pod: &str) -> Option<(usize, usize)> {
        let (gang, p) = pod.rsplit_once('-')?;
        let (g, p) = (*self.by_name.get(gang)?, p.parse().ok()?);
        self.gangs.get(g)?.pods.get(p)?;
        Some((g, p))
    }

    /// Nothing was placed, and nothing is new: no gang that waits may fit into what is free.
    fn check_waiting(&mut self) {
        for gang in self.gangs.iter().filter(|gang| !gang.over && gang.is_complete() && gang.placed() == 0) {
            let room: usize = self.nodes.iter().map(|free| (free / gang.gpus) as usize).sum();
            if room >= gang.pods.len() {
                self.tally.missed += 1;
                let of = gang.gpus;
                self.wrong.push(format!(
                    "{} waits with {} pods of {of} GPUs, and {room} fit",
                    gang.name,
                    gang.pods.len()
                ));
            }
        }
    }

    fn end_those_who_are_done(&mut self) {
        for g in 0..self.gangs.len() {
            let gang = &mut self.gangs[g];
            let told =
                gang.pods.iter().all(|pod| matches!(pod.standing, Standing::Placed { told: true, .. }));
            if gang.over || !told || gang.ends.is_none_or(|at| at > self.now) {
                continue;
            }
            gang.over = true;
            gang.ends = None;
            for p in 0..gang.pods.len() {
                if let Standing::Placed { node, .. } = gang.pods[p].standing {
                    self.nodes[node] += gang.gpus;
                }
                self.news.push(News::Pod(g, p));
            }
            self.news.push(News::Group(g));
            let begin = self.news.len().saturating_sub(gang.pods.len() + 1);
            self.random.shuffle(&mut self.news[begin..]);
        }
    }
}

fn node(name: &str, gpus: u32) -> Value {
    json!({"metadata": {"name": name}, "status": {
        "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()},
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
}

fn pod_object(name: &str, life: u32, group: &str, gpus: u32, node: Option<String>) -> Value {
    let resources = json!({"nvidia.com/gpu": gpus.to_string()});
    let mut pod = json!({
        "metadata": {"namespace": NAMESPACE, "name": name, "uid": format!("u-{name}-{life}"), "annotations": {"pod-group-name": group}},
        "spec": {"schedulerName": SCHEDULER, "containers": [{"name": "c", "resources": {"requests": resources, "limits": resources}}]},
        "status": {"phase": "Pending"},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
    }
    pod
}
