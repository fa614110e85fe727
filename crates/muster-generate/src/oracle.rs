//! What can be placed, found by trying everything: slow, and right for tiny clusters.
//!
//! In: a cluster, a policy, gangs that wait. Out: the most of them that can have what they lack of their minimum at the same time, on
//! room that is free now, with nobody evicted; and where their pods would go. It knows amounts, shared GPUs, MIG, taints, node rules,
//! pools, gang trees with a minimum of children, required topology, and queues' limits and quotas. Whatever else a pod asks for makes
//! it decline to answer, and so does a search that gets too long.
//!
//! *Invariant:* an answer is never a guess. Which pods or children of a gang count is free here; an engine that takes the first ones in
//! its own order may find less where they differ.

use crate::room::allowed;
use muster_model::{
    Bound, Cluster, GPU, Gang, Key, Min, Name, Node, Pod, PodState, Policy, Preemptibility, Resource, Shape,
    ShareSize, Topology,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Enough for a handful of nodes and gangs.
pub const BUDGET: u64 = 2_000_000;

/// Gangs that can be placed together, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    pub gangs: Vec<Key>,
    /// Where the pods go that they lack; empty for gangs that lack nothing.
    pub seats: Vec<(Key, Name)>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    BudgetSpent,
    UnknownGang(Key),
    /// Something is asked for that is not known here.
    NotModelled(&'static str),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BudgetSpent => f.write_str("the search got too long"),
            Self::UnknownGang(gang) => write!(f, "gang {gang} does not exist"),
            Self::NotModelled(what) => write!(f, "{what} is not modelled"),
        }
    }
}

impl std::error::Error for NoAnswer {}

/// Where the gang's pods can go, if it can have its minimum at all.
pub fn placement(
    cluster: &Cluster,
    policy: &Policy,
    gang: &Key,
    budget: u64,
) -> Result<Option<Vec<(Key, Name)>>, NoAnswer> {
    let packing = most_gangs(cluster, policy, std::slice::from_ref(gang), budget)?;
    Ok((!packing.gangs.is_empty()).then_some(packing.seats))
}

/// As many of the gangs as can have their minimum at the same time.
pub fn most_gangs(
    cluster: &Cluster,
    policy: &Policy,
    gangs: &[Key],
    budget: u64,
) -> Result<Packing, NoAnswer> {
    let problem = Problem::read(cluster, policy, gangs)?;
    let mut search = Search::start(&problem, budget);
    search.go(Some(Rc::new(Todo { task: Task::Gang(0), rest: None })))?;
    Ok(search.best.unwrap_or_default())
}

/// Nodes are bits.
type NodeSet = u64;

const MAX_NODES: usize = 64;

/// Every pod, group and gang is a step deeper into the search, and the stack has an end.
const MAX_DEPTH: usize = 400;

/// What queues count.
const COUNTED: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Gpu];

/// What does not change during the search.
struct Problem<'a> {
    nodes: Vec<&'a Node>,
    dims: Vec<Resource>,
    gangs: Vec<Candidate<'a>>,
    classes: Vec<Class>,
    /// Nodes that nothing tells apart but their name have the same number.
    alike: Vec<usize>,
    /// Limits on [`COUNTED`], by queue: for everything, and for what cannot be preempted.
    bounds: Vec<[[Bound; 3]; 2]>,
    start: State,
}

/// A gang that wants in.
struct Candidate<'a> {
    gang: &'a Gang,
    /// By group: pods that hold room already, and pods that wait, by class.
    held: Vec<u32>,
    waiting: Vec<BTreeMap<usize, Vec<&'a Pod>>>,
    /// By group: the domains that it has to choose from, if it must be in one.
    domains: Vec<Option<Vec<NodeSet>>>,
    /// Its queue and the ones above; empty: it has no whole line of parents, or its queue is not a leaf.
    line: Vec<usize>,
}

/// Pods that ask for the same.
struct Class {
    shape: Arc<Shape>,
    nodes: NodeSet,
    asks: Vec<i64>,
}

/// What changes during the search.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// By node and dimension.
    free: Vec<Vec<i64>>,
    /// By node: what is left of each shared GPU, in thousandths of a MiB, sorted.
    shared: Vec<Vec<i128>>,
    /// By queue: what is used, of everything and of what cannot be preempted.
    used: Vec<[[i128; 3]; 2]>,
}

impl<'a> Problem<'a> {
    fn read(cluster: &'a Cluster, policy: &Policy, keys: &[Key]) -> Result<Self, NoAnswer> {
        let nodes: Vec<&Node> = cluster.nodes.iter().map(|node| &**node).collect();
        if nodes.len() > MAX_NODES {
            return Err(NoAnswer::NotModelled("a cluster of more than 64 nodes"));
        }
        if policy.numa && nodes.iter().any(|node| node.numa.is_some()) {
            return Err(NoAnswer::NotModelled("NUMA"));
        }
        let seated = |pod: &&Arc<Pod>| pod.state.holds_room() && pod.node.is_some();
        if cluster.pods.iter().filter(seated).any(|pod| !pod.shape.pods.anti_affinity.is_empty()) {
            return Err(NoAnswer::NotModelled("pod anti-affinity"));
        }
        let wanted: BTreeSet<&Key> = keys.iter().collect();
        let mut dims: BTreeSet<Resource> =
            nodes.iter().flat_map(|n| n.allocatable.iter()).map(|(r, _)| r.clone()).collect();
        dims.insert(Resource::Gpu);
        for pod in &cluster.pods {
            dims.extend(pod.shape.requests.iter().map(|(resource, _)| resource.clone()));
        }
        let mut problem = Self {
            nodes,
            dims: dims.into_iter().collect(),
            gangs: Vec::new(),
            classes: Vec::new(),
            alike: Vec::new(),
            bounds: Vec::new(),
            start: State { free: Vec::new(), shared: Vec::new(), used: Vec::new() },
        };
        problem.rooms(cluster);
        problem.queues(cluster, policy);
        for key in wanted {
            let gang = cluster.gangs.iter().find(|gang| gang.key == *key);
            let gang = gang.ok_or_else(|| NoAnswer::UnknownGang(key.clone()))?;
            let candidate = problem.candidate(cluster, policy, gang)?;
            problem.gangs.push(candidate);
        }
        let waiting =
            |c: &Candidate<'_>| c.waiting.iter().flat_map(BTreeMap::values).map(Vec::len).sum::<usize>();
        let depth: usize = problem.gangs.iter().map(|c| 1 + c.gang.groups.len() + waiting(c)).sum();
        if depth > MAX_DEPTH {
            return Err(NoAnswer::NotModelled("more than 400 pods, groups and gangs"));
        }
        problem.tell_apart(cluster);
        Ok(problem)
    }

    fn rooms(&mut self, cluster: &Cluster) {
        let amounts =
            |amounts: &muster_model::Amounts| self.dims.iter().map(|dim| amounts.get(dim)).collect();
        self.start.free = self.nodes.iter().map(|node| amounts(&node.allocatable)).collect();
        self.start.shared = vec![Vec::new(); self.nodes.len()];
        let mut groups: Vec<BTreeMap<Name, i128>> = vec![BTreeMap::new(); self.nodes.len()];
        for pod in cluster.pods.iter().filter(|pod| pod.state.holds_room()) {
            let Some(node) = self.nodes.iter().position(|node| pod.node.as_ref() == Some(&node.name)) else {
                continue;
            };
            for (free, dim) in self.start.free[node].iter_mut().zip(&self.dims) {
                *free = free.saturating_sub(pod.shape.requests.get(dim));
            }
            let size = share_size(self.nodes[node], &pod.shape).map_or(0, |(size, _)| size);
            for group in &pod.gpu_groups {
                *groups[node].entry(group.clone()).or_insert_with(|| gpu_memory(self.nodes[node])) -= size;
            }
        }
        for (node, groups) in groups.into_iter().enumerate() {
            if let Some(gpu) = self.dims.iter().position(|dim| *dim == Resource::Gpu) {
                let free = &mut self.start.free[node][gpu];
                *free = free.saturating_sub(GPU * groups.len() as i64);
            }
            self.start.shared[node] = groups.into_values().collect();
            self.start.shared[node].sort_unstable();
        }
    }

    fn queues(&mut self, cluster: &Cluster, policy: &Policy) {
        for queue in &cluster.queues {
            let bound = |of: fn(&muster_model::Share) -> Bound| {
                COUNTED.map(|resource| {
                    let share = queue.shares.get(&resource).filter(|_| policy.quotas);
                    share.map_or(Bound::Unlimited, of)
                })
            };
            self.bounds.push([bound(|share| share.limit), bound(|share| share.quota)]);
        }
        self.start.used = vec![[[0; 3]; 2]; cluster.queues.len()];
        let gangs: BTreeMap<&Key, &Gang> = cluster.gangs.iter().map(|gang| (&gang.key, &**gang)).collect();
        for pod in cluster.pods.iter().filter(|pod| pod.state.stays()) {
            let Some(gang) = pod.gang.as_ref().and_then(|key| gangs.get(key)) else { continue };
            let node = self.nodes.iter().find(|node| pod.node.as_ref() == Some(&node.name)).copied();
            let charge = charge(&pod.shape, node);
            for queue in line(cluster, policy, &gang.queue) {
                add(&mut self.start.used[queue], gang, charge);
            }
        }
    }

    fn candidate(
        &mut self,
        cluster: &'a Cluster,
        policy: &Policy,
        gang: &'a Gang,
    ) -> Result<Candidate<'a>, NoAnswer> {
        let in_order = |(i, group): (usize, &muster_model::Group)| match group.parent {
            None => i == 0,
            Some(parent) => (parent as usize) < i,
        };
        if !gang.groups.iter().enumerate().all(in_order) {
            return Err(NoAnswer::NotModelled("a gang whose groups are no tree"));
        }
        if gang.groups.iter().any(|group| matches!(group.min, Min::Whole { .. })) {
            return Err(NoAnswer::NotModelled("a minimum of pods in several groups together"));
        }
        let leaves: Vec<usize> =
            (0..gang.groups.len()).filter(|i| matches!(gang.groups[*i].min, Min::Pods(_))).collect();
        let mut held = vec![0; gang.groups.len()];
        let mut waiting = vec![BTreeMap::new(); gang.groups.len()];
        let mut seated: Vec<Vec<usize>> = vec![Vec::new(); gang.groups.len()];
        for pod in cluster.pods.iter().filter(|pod| pod.gang.as_ref() == Some(&gang.key)) {
            let leaf = match &pod.group {
                Some(name) => leaves.iter().find(|leaf| gang.groups[**leaf].name == *name),
                None => leaves.first().filter(|_| leaves.len() == 1),
            };
            let Some(leaf) = leaf.copied() else { continue };
            if pod.state.holds_room() {
                held[leaf] += 1;
                if pod.state.stays() {
                    seated[leaf]
                        .extend(self.nodes.iter().position(|node| pod.node.as_ref() == Some(&node.name)));
                }
            } else if pod.state == PodState::Pending {
                let class = self.class(&pod.shape, policy)?;
                waiting[leaf].entry(class).or_insert_with(Vec::new).push(&**pod);
            }
        }
        for i in (1..gang.groups.len()).rev() {
            if let Some(parent) = gang.groups[i].parent {
                let below = seated[i].clone();
                seated[parent as usize].extend(below);
            }
        }
        let domains = gang.groups.iter().zip(&seated).map(|(group, seated)| {
            let rule =
                group.topology.as_ref().filter(|rule| rule.required.is_some() || rule.preferred.is_some())?;
            Some(self.domains(cluster, rule, seated))
        });
        let domains = domains.collect();
        let leaf_queue = !cluster.queues.iter().any(|queue| queue.parent.as_ref() == Some(&gang.queue));
        let line = if leaf_queue || !policy.full_hierarchy {
            line(cluster, policy, &gang.queue)
        } else {
            Vec::new()
        };
        Ok(Candidate { gang, held, waiting, domains, line })
    }

    /// Domains of the required level; where pods of the group are already, only theirs. A rule that only prefers has one domain:
    /// everything; one that names what does not exist has none.
    fn domains(
        &self,
        cluster: &Cluster,
        rule: &muster_model::TopologyRule,
        seated: &[usize],
    ) -> Vec<NodeSet> {
        let Some(topology) = cluster.topologies.iter().find(|topology| topology.name == rule.topology) else {
            return Vec::new();
        };
        let depth = |level: &Name| topology.levels.iter().position(|l| l.label == *level);
        if rule.preferred.as_ref().is_some_and(|level| depth(level).is_none()) {
            return Vec::new();
        }
        let Some(level) = &rule.required else { return vec![NodeSet::MAX] };
        let Some(depth) = depth(level) else { return Vec::new() };
        let mut domains: BTreeMap<Vec<&Name>, NodeSet> = BTreeMap::new();
        for (i, node) in self.nodes.iter().enumerate() {
            if let Some(path) = path(node, topology) {
                *domains.entry(path[..=depth].to_vec()).or_default() |= 1 << i;
            }
        }
        let taken: Vec<NodeSet> = domains
            .values()
            .copied()
            .filter(|set| seated.iter().any(|node| set & (1 << node) != 0))
            .collect();
        if taken.is_empty() { domains.into_values().collect() } else { taken }
    }

    fn class(&mut self, shape: &Arc<Shape>, policy: &Policy) -> Result<usize, NoAnswer> {
        if let Some(known) = self.classes.iter().position(|class| class.shape == *shape) {
            return Ok(known);
        }
        let hard = shape.pods.spread.iter().any(|rule| rule.required);
        for (asked, what) in [
            (!shape.ports.is_empty(), "a host port"),
            (!shape.volumes.is_empty(), "a volume"),
            (!shape.claims.is_empty(), "a claim"),
            (!shape.pods.affinity.is_empty(), "pod affinity"),
            (!shape.pods.anti_affinity.is_empty(), "pod anti-affinity"),
            (hard, "topology spread"),
        ] {
            if asked {
                return Err(NoAnswer::NotModelled(what));
            }
        }
        let pool = |node: &Node| {
            let label = policy.pool.label.as_ref();
            label.is_none_or(|label| node.labels.get(label) == policy.pool.value.as_ref())
        };
        let known_memory = |node: &Node| {
            let by_memory = shape.gpu_share.is_some_and(|share| matches!(share.size, ShareSize::Memory(_)));
            !by_memory || node.gpus.memory.is_some()
        };
        let mut nodes = 0;
        for (i, node) in self.nodes.iter().enumerate() {
            if allowed(node, shape) && pool(node) && known_memory(node) {
                nodes |= 1 << i;
            }
        }
        let asks = self.dims.iter().map(|dim| shape.requests.get(dim)).collect();
        self.classes.push(Class { shape: shape.clone(), nodes, asks });
        Ok(self.classes.len() - 1)
    }

    /// Numbers nodes by everything that matters here but what is free.
    fn tell_apart(&mut self, cluster: &Cluster) {
        let candidates: BTreeSet<&Key> = self.gangs.iter().map(|candidate| &candidate.gang.key).collect();
        let hosts = |node: &Node| {
            let mut pods = cluster
                .pods
                .iter()
                .filter(|pod| pod.gang.as_ref().is_some_and(|key| candidates.contains(key)));
            pods.any(|pod| pod.node.as_ref() == Some(&node.name))
        };
        let mut known: BTreeMap<Looks, usize> = BTreeMap::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let classes = self.classes.iter().map(|class| class.nodes & (1 << i) != 0).collect();
            let levels = cluster.topologies.iter().flat_map(|topology| &topology.levels);
            // Where a label is the node's own name, any node is as good as another.
            let labels = levels.map(|level| {
                let value = node.labels.get(&level.label).cloned();
                let own = self
                    .nodes
                    .iter()
                    .filter(|other| other.labels.get(&level.label) == value.as_ref())
                    .count()
                    == 1;
                if own && value.is_some() { Some("its own".into()) } else { value }
            });
            let key = (classes, labels.collect(), node.gpus.memory, hosts(node).then(|| node.name.clone()));
            let next = known.len();
            self.alike.push(*known.entry(key).or_insert(next));
        }
    }
}

/// What tells nodes apart: who may go there, where they are, the memory of their GPUs, and their name where it matters.
type Looks = (Vec<bool>, Vec<Option<Name>>, Option<i64>, Option<Name>);

/// What is left to do, the next thing first.
struct Todo {
    task: Task,
    rest: Option<Rc<Todo>>,
}

#[derive(Clone, Copy)]
enum Task {
    /// Take the gang in, or leave it.
    Gang(usize),
    /// The gang is in.
    Placed(usize),
    /// Give a group what it lacks, somewhere within these nodes.
    Group { gang: usize, group: usize, within: NodeSet },
    /// The same with its domain chosen.
    Inside { gang: usize, group: usize, within: NodeSet },
    /// So many more of the children from this one on.
    Children { gang: usize, group: usize, from: usize, need: u32, within: NodeSet },
    /// So many more pods of the leaf, from this class and this node on; `taken` of the class are seated.
    Pods { gang: usize, leaf: usize, need: u32, class: usize, taken: usize, node: usize, within: NodeSet },
}

struct Search<'p, 'a> {
    problem: &'p Problem<'a>,
    state: State,
    gangs: Vec<usize>,
    seats: Vec<(&'a Pod, usize)>,
    best: Option<Packing>,
    /// The most gangs that were in when a state was met before, by the next gang and the state.
    met: BTreeMap<(usize, State), usize>,
    left: u64,
}

/// Whether the search can end: everything is in.
type Done = bool;

impl<'p, 'a> Search<'p, 'a> {
    fn start(problem: &'p Problem<'a>, budget: u64) -> Self {
        Self {
            problem,
            state: problem.start.clone(),
            gangs: Vec::new(),
            seats: Vec::new(),
            best: None,
            met: BTreeMap::new(),
            left: budget,
        }
    }

    /// Does everything that is to do in every way there is.
    fn go(&mut self, todo: Option<Rc<Todo>>) -> Result<Done, NoAnswer> {
        self.left = self.left.checked_sub(1).ok_or(NoAnswer::BudgetSpent)?;
        let Some(todo) = todo else { return Ok(false) };
        let rest = &todo.rest;
        let then = |task: Task, rest: &Option<Rc<Todo>>| Some(Rc::new(Todo { task, rest: rest.clone() }));
        match todo.task {
            Task::Gang(i) => self.gang(i),
            Task::Placed(i) => {
                self.gangs.push(i);
                let done = self.go(rest.clone());
                self.gangs.pop();
                done
            }
            Task::Group { gang, group, within } => {
                let Some(domains) = &self.problem.gangs[gang].domains[group] else {
                    return self.go(then(Task::Inside { gang, group, within }, rest));
                };
                // A rule that names what is not there forbids even what lacks nothing.
                for domain in domains {
                    let within = within & domain;
                    if within != 0 && self.go(then(Task::Inside { gang, group, within }, rest))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Task::Inside { gang, group, within } => {
                let candidate = &self.problem.gangs[gang];
                match candidate.gang.groups[group].min {
                    Min::Pods(min) => {
                        let need = min.saturating_sub(candidate.held[group]);
                        let task =
                            Task::Pods { gang, leaf: group, need, class: 0, taken: 0, node: 0, within };
                        self.go(then(task, rest))
                    }
                    // Such gangs were declined.
                    Min::Whole { .. } => Ok(false),
                    Min::Children(need) => {
                        let children = candidate.children(group).count() as u32;
                        let need = need.unwrap_or(children);
                        self.go(then(Task::Children { gang, group, from: 0, need, within }, rest))
                    }
                }
            }
            Task::Children { need: 0, .. } => self.go(rest.clone()),
            Task::Children { gang, group, from, need, within } => {
                let Some(child) = self.problem.gangs[gang].children(group).nth(from) else {
                    return Ok(false);
                };
                let later = |need| Task::Children { gang, group, from: from + 1, need, within };
                let with = then(Task::Group { gang, group: child, within }, &then(later(need - 1), rest));
                Ok(self.go(with)? || self.go(then(later(need), rest))?)
            }
            Task::Pods { need: 0, .. } => self.go(rest.clone()),
            Task::Pods { gang, leaf, need, class, taken, node, within } => {
                self.pods(gang, leaf, need, (class, taken, node), within, rest)
            }
        }
    }

    fn gang(&mut self, i: usize) -> Result<Done, NoAnswer> {
        let n_gangs = self.problem.gangs.len();
        let n_best = self.best.as_ref().map_or(0, |best| best.gangs.len());
        if self.best.is_some() && self.gangs.len() + (n_gangs - i) <= n_best {
            return Ok(false);
        }
        let Some(candidate) = self.problem.gangs.get(i) else {
            let key = |i: &usize| self.problem.gangs[*i].gang.key.clone();
            let seat =
                |(pod, node): &(&Pod, usize)| (pod.key.clone(), self.problem.nodes[*node].name.clone());
            let gangs = self.gangs.iter().map(key).collect();
            self.best = Some(Packing { gangs, seats: self.seats.iter().map(seat).collect() });
            return Ok(self.gangs.len() == n_gangs);
        };
        let n_in = self.gangs.len();
        let met = self.met.entry((i, canonical(self.problem, &self.state))).or_insert(usize::MAX);
        if *met != usize::MAX && *met >= n_in {
            return Ok(false);
        }
        *met = n_in;
        let next = Some(Rc::new(Todo { task: Task::Gang(i + 1), rest: None }));
        let placed = Some(Rc::new(Todo { task: Task::Placed(i), rest: next.clone() }));
        let root = Task::Group { gang: i, group: 0, within: NodeSet::MAX };
        let may = !candidate.line.is_empty() && !candidate.gang.groups.is_empty();
        Ok(may && self.go(Some(Rc::new(Todo { task: root, rest: placed })))? || self.go(next)?)
    }

    /// Seats one more pod. Pods of a class go to nodes in rising order, for it does not matter which of them is where.
    fn pods(
        &mut self,
        gang: usize,
        leaf: usize,
        need: u32,
        (class, taken, from): (usize, usize, usize),
        within: NodeSet,
        rest: &Option<Rc<Todo>>,
    ) -> Result<Done, NoAnswer> {
        let problem = self.problem;
        let candidate = &problem.gangs[gang];
        let Some((id, pods)) = candidate.waiting[leaf].iter().nth(class) else { return Ok(false) };
        let shape = &problem.classes[*id];
        let task = |task: Task| Some(Rc::new(Todo { task, rest: rest.clone() }));
        let pods_task =
            |need, class, taken, node| Task::Pods { gang, leaf, need, class, taken, node, within };
        if let Some(pod) = pods.get(taken) {
            for node in (from..problem.nodes.len()).filter(|node| shape.nodes & within & (1 << node) != 0) {
                for choice in self.choices(shape, node) {
                    let kept = self.state.clone();
                    if self.seat(candidate, shape, node, &choice) {
                        self.seats.push((pod, node));
                        if self.go(task(pods_task(need - 1, class, taken + 1, node)))? {
                            return Ok(true);
                        }
                        self.seats.pop();
                    }
                    self.state = kept;
                }
            }
        }
        self.go(task(pods_task(need, class + 1, 0, 0)))
    }

    /// Every way to choose shared GPUs on the node: which of the open ones, by index; the rest are opened.
    fn choices(&self, class: &Class, node: usize) -> Vec<Vec<usize>> {
        let Some((size, devices)) = share_size(self.problem.nodes[node], &class.shape) else {
            return vec![Vec::new()];
        };
        let open = &self.state.shared[node];
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for i in (0..open.len()).filter(|i| open[*i] >= size) {
            let more: Vec<Vec<usize>> = choices
                .iter()
                .filter(|choice| choice.len() < devices as usize)
                // Of GPUs that are equally full the first will do, unless it is taken as well.
                .filter(|choice| i == 0 || open[i - 1] != open[i] || choice.contains(&(i - 1)))
                .map(|choice| choice.iter().copied().chain([i]).collect())
                .collect();
            choices.extend(more);
        }
        choices
    }

    /// Takes the room, if there is enough and the queues allow it.
    fn seat(&mut self, candidate: &Candidate<'_>, class: &Class, node: usize, shared: &[usize]) -> bool {
        let problem = self.problem;
        let free = &mut self.state.free[node];
        if class.asks.iter().zip(free.iter()).any(|(ask, free)| *ask > 0 && ask > free) {
            return false;
        }
        for (ask, free) in class.asks.iter().zip(free.iter_mut()) {
            *free = free.saturating_sub(*ask);
        }
        if let Some((size, devices)) = share_size(problem.nodes[node], &class.shape) {
            let memory = gpu_memory(problem.nodes[node]);
            let opened = i64::from(devices) - shared.len() as i64;
            let Some(gpu) = problem.dims.iter().position(|dim| *dim == Resource::Gpu) else { return false };
            if size > memory || (opened > 0 && opened * GPU > free[gpu]) {
                return false;
            }
            free[gpu] -= opened * GPU;
            for i in shared {
                self.state.shared[node][*i] -= size;
            }
            self.state.shared[node].extend((0..opened).map(|_| memory - size));
            self.state.shared[node].sort_unstable();
        }
        let charge = charge(&class.shape, Some(problem.nodes[node]));
        candidate.line.iter().all(|queue| {
            let used = &mut self.state.used[*queue];
            add(used, candidate.gang, charge);
            let within = |kind: usize| {
                (0..COUNTED.len()).all(|i| match problem.bounds[*queue][kind][i] {
                    Bound::At(bound) => charge[i] == 0 || used[kind][i] <= i128::from(bound),
                    Bound::Unlimited => true,
                })
            };
            within(0) && (candidate.gang.preemptibility == Preemptibility::Preemptible || within(1))
        })
    }
}

impl Candidate<'_> {
    fn children(&self, group: usize) -> impl Iterator<Item = usize> {
        let parent = Some(group as u32);
        (0..self.gang.groups.len()).filter(move |i| self.gang.groups[*i].parent == parent)
    }
}

/// The state with nodes that are alike in one order, so that states that differ by such nodes only are one.
fn canonical(problem: &Problem<'_>, state: &State) -> State {
    let mut order: Vec<usize> = (0..state.free.len()).collect();
    order.sort_by(|a, b| {
        let key = |i: &usize| (problem.alike[*i], &state.free[*i], &state.shared[*i]);
        key(a).cmp(&key(b))
    });
    State {
        free: order.iter().map(|i| state.free[*i].clone()).collect(),
        shared: order.iter().map(|i| state.shared[*i].clone()).collect(),
        used: state.used.clone(),
    }
}

/// The labels of all levels; a node that lacks one is outside.
fn path<'n>(node: &'n Node, topology: &Topology) -> Option<Vec<&'n Name>> {
    topology.levels.iter().map(|level| node.labels.get(&level.label)).collect()
}

/// Memory of each GPU, in thousandths of a MiB.
fn gpu_memory(node: &Node) -> i128 {
    i128::from(node.gpus.memory.unwrap_or(100).max(1)) * 1000
}

/// What a share takes of each GPU, and of how many.
fn share_size(node: &Node, shape: &Shape) -> Option<(i128, u32)> {
    let share = shape.gpu_share?;
    let size = match share.size {
        ShareSize::Portion(portion) => i128::from(portion.max(0)) * gpu_memory(node) / 1000,
        ShareSize::Memory(memory) => i128::from(memory.max(0)) * 1000,
    };
    Some((size, share.devices))
}

/// What queues are charged for a pod; memory of a GPU counts as a part of it, rounded up to hundredths.
fn charge(shape: &Shape, node: Option<&Node>) -> [i128; 3] {
    let share = shape.gpu_share.map_or(0, |share| {
        let portion = match (share.size, node.map(gpu_memory)) {
            (ShareSize::Portion(portion), _) => i128::from(portion.max(0)),
            (ShareSize::Memory(memory), Some(of)) => {
                let (part, of) = (i128::from(memory.max(0)) * 1000 * 100, of.max(1));
                ((part + of - 1) / of * 10).min(i128::from(GPU))
            }
            (ShareSize::Memory(_), None) => i128::from(GPU),
        };
        portion * i128::from(share.devices)
    });
    let mut charge = COUNTED.map(|resource| i128::from(shape.requests.get(&resource).max(0)));
    charge[2] += share + i128::from(shape.extra_gpu_charge.max(0));
    charge
}

fn add(used: &mut [[i128; 3]; 2], gang: &Gang, charge: [i128; 3]) {
    let fixed = gang.preemptibility == Preemptibility::NonPreemptible;
    for (kind, counts) in [true, fixed].into_iter().enumerate() {
        for i in (0..COUNTED.len()).filter(|_| counts) {
            used[kind][i] += charge[i];
        }
    }
}

/// The queue and those above it; empty if one is missing or they hang in a circle.
fn line(cluster: &Cluster, policy: &Policy, queue: &Name) -> Vec<usize> {
    let find = |name: &Name| cluster.queues.iter().position(|queue| queue.name == *name);
    let mut line = Vec::new();
    let mut next = Some(queue);
    while let Some(name) = next {
        let (Some(queue), true) = (find(name), line.len() <= cluster.queues.len()) else { return Vec::new() };
        line.push(queue);
        next = cluster.queues[queue].parent.as_ref();
        if !policy.full_hierarchy {
            return if next.is_some() { line } else { Vec::new() };
        }
    }
    line
}

#[cfg(test)]
mod tests;
