//! Gangs, queues and nodes in a row each, whatever made them.
//!
//! In: a snapshot, and what would be decided about it. Out: rows with amounts in the model's units, as values and as JSON. Must stay
//! true: what a queue holds and asks for is counted from the pods, never taken from a status; fair shares are those that the
//! engine decided by.

use crate::live::{Seen, Snapshot};
use crate::system;
use muster_model::{
    Bound, Cluster, Dialect, GPU, Key, Name, Node, Pod, PodState, Preemptibility, Queue, Reason, Resource,
    Share, ShareSize, Time,
};
use muster_scenario::words;
use muster_translate::{Kind, Translator};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// CPU, memory and GPUs.
pub type Trio = [i128; 3];
pub const RESOURCES: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Gpu];
/// The place of GPUs among them.
pub const GPUS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has what it needs, and runs.
    Running,
    /// It has what it needs, and does not run yet.
    Starting,
    /// It has some places, and fewer than it needs.
    Partial,
    Waiting,
    /// Fewer pods exist than it needs.
    Incomplete,
    /// Its pods are held back by scheduling gates.
    Gated,
    /// All its pods are about to go.
    Leaving,
    Succeeded,
    Failed,
    /// There are no pods.
    Empty,
}

#[derive(Clone, Debug)]
pub struct GangRow {
    pub key: Key,
    /// Whose API it was made by.
    pub dialect: &'static str,
    /// What made it: `Job/train`.
    pub owner: Option<String>,
    pub queue: Name,
    pub priority: i32,
    pub preemptible: bool,
    /// Pods that hold a place, that the gang needs, and that there are.
    pub placed: u32,
    pub needed: u32,
    pub total: u32,
    pub gpus: i128,
    pub state: State,
    /// Why it waits: a word, and a sentence.
    pub reason: Option<(String, String)>,
    pub created: Time,
}

impl GangRow {
    pub fn json(&self) -> Value {
        let mut row = json!({
            "namespace": &*self.key.namespace, "name": &*self.key.name, "dialect": self.dialect,
            "queue": &*self.queue, "priority": self.priority, "preemptible": self.preemptible,
            "pods": {"placed": self.placed, "needed": self.needed, "total": self.total},
            "gpus": words::amount_json(&Resource::Gpu, self.gpus),
            "state": format!("{:?}", self.state),
        });
        if let Some(owner) = &self.owner {
            row["owner"] = json!(owner);
        }
        if self.created != Time::default() {
            row["created"] = json!(words::time(self.created));
        }
        if let Some((reason, message)) = &self.reason {
            row["reason"] = json!(reason);
            row["message"] = json!(message);
        }
        row
    }

    pub fn waits(&self) -> bool {
        matches!(self.state, State::Waiting | State::Incomplete | State::Gated | State::Partial)
    }
}

/// The word for a reason.
pub fn word(reason: &Reason) -> String {
    words::reason_json(reason)["reason"].as_str().unwrap_or_default().to_owned()
}

#[derive(Default)]
struct Members {
    placed: u32,
    running: u32,
    gated: u32,
    leaving: u32,
    pending: u32,
    gpus: i128,
}

pub fn gangs(snapshot: &Snapshot, seen: &Seen) -> Vec<GangRow> {
    let memory = gpu_memory(&seen.cluster);
    let mut members: BTreeMap<&Key, Members> = BTreeMap::new();
    for pod in &seen.cluster.pods {
        let Some(gang) = &pod.gang else { continue };
        let own = members.entry(gang).or_default();
        match pod.state {
            PodState::Running => (own.placed, own.running) = (own.placed + 1, own.running + 1),
            PodState::Binding | PodState::Bound => own.placed += 1,
            PodState::Pending => own.pending += 1,
            PodState::Gated => own.gated += 1,
            PodState::Releasing | PodState::Stuck => own.leaving += 1,
            PodState::Succeeded | PodState::Failed => continue,
        }
        own.gpus += charge(pod, &memory)[GPUS];
    }
    let over = over(snapshot);
    let groups: BTreeMap<Key, &Value> = system::group_kinds()
        .flat_map(|kind| snapshot.of(kind).map(move |group| (system::gang_of(kind, group), group)))
        .collect();
    let owners = owners(snapshot, seen, &groups);
    let next: BTreeSet<&Key> = seen.decisions.binds.iter().map(|bind| &bind.gang).collect();
    let row = |gang: &muster_model::Gang| {
        let none = Members::default();
        let own = members.get(&gang.key).unwrap_or(&none);
        let (succeeded, failed) = over.get(&gang.key).copied().unwrap_or_default();
        let needed = words::minimum(gang);
        let refusal = seen.refusals.get(&gang.key);
        let first = refusal.and_then(|r| r.reasons.first());
        let alive = own.placed + own.pending + own.gated + own.leaving;
        let state = if alive == 0 {
            match (succeeded, failed) {
                (0, 0) => State::Empty,
                (_, 0) => State::Succeeded,
                _ => State::Failed,
            }
        } else if own.placed == 0 && own.pending + own.gated == 0 {
            State::Leaving
        } else if own.placed + succeeded >= needed && own.placed > 0 {
            if own.running + succeeded >= needed { State::Running } else { State::Starting }
        } else if own.placed > 0 {
            State::Partial
        } else if own.pending == 0 {
            State::Gated
        } else if matches!(first, Some(Reason::NotReady { .. })) {
            State::Incomplete
        } else {
            State::Waiting
        };
        GangRow {
            key: gang.key.clone(),
            dialect: match system::of_name(&gang.key.name) {
                ("kai", _) if !groups.contains_key(&gang.key) => "pod",
                (system, _) => system,
            },
            owner: owners.get(&gang.key).cloned(),
            queue: gang.queue.clone(),
            priority: gang.priority,
            preemptible: gang.preemptibility == Preemptibility::Preemptible,
            placed: own.placed,
            needed,
            total: alive + succeeded + failed,
            gpus: own.gpus,
            state,
            reason: match first {
                Some(reason) => Some((word(reason), words::reason(reason))),
                None => next
                    .contains(&gang.key)
                    .then(|| ("Next".into(), "there is room; it is bound in the next cycle".into())),
            },
            created: gang.created,
        }
    };
    seen.cluster.gangs.iter().map(|gang| row(gang)).collect()
}

/// The key of an object.
pub fn key_of(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    Key::new(text("namespace"), text("name"))
}

/// What made each gang: the owner of its group, or else of one of its pods.
fn owners(snapshot: &Snapshot, seen: &Seen, groups: &BTreeMap<Key, &Value>) -> BTreeMap<Key, String> {
    let owner = |object: &Value| {
        let owner = object["metadata"]["ownerReferences"].as_array()?.first()?;
        Some(format!("{}/{}", owner["kind"].as_str()?, owner["name"].as_str()?))
    };
    let mut owners: BTreeMap<Key, String> =
        groups.iter().filter_map(|(gang, group)| Some((gang.clone(), owner(group)?))).collect();
    let mut asked: BTreeMap<&Key, &Key> = BTreeMap::new();
    for pod in &seen.cluster.pods {
        if let Some(gang) = pod.gang.as_ref().filter(|gang| !owners.contains_key(*gang)) {
            asked.insert(&pod.key, gang);
        }
    }
    if !asked.is_empty() {
        for pod in snapshot.of(Kind::Pod) {
            if let (Some(gang), Some(owner)) = (asked.get(&key_of(pod)), owner(pod)) {
                owners.entry((*gang).clone()).or_insert(owner);
            }
        }
    }
    owners
}

/// Pods that are over, by gang: how many succeeded and how many failed.
fn over(snapshot: &Snapshot) -> BTreeMap<Key, (u32, u32)> {
    let mut over: BTreeMap<Key, (u32, u32)> = BTreeMap::new();
    let mut dialects: BTreeMap<&str, Dialect> = BTreeMap::new();
    for pod in snapshot.of(Kind::Pod) {
        let succeeded = match pod["status"]["phase"].as_str() {
            Some("Succeeded") => true,
            Some("Failed") => false,
            _ => continue,
        };
        let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
        let dialect =
            *dialects.entry(scheduler).or_insert_with(|| system::dialect(&snapshot.setup, scheduler));
        let Some(named) = system::group_of_pod(pod, dialect) else { continue };
        let (n_succeeded, n_failed) = over.entry(named.gang).or_default();
        *if succeeded { n_succeeded } else { n_failed } += 1;
    }
    over
}

fn gpu_memory(cluster: &Cluster) -> BTreeMap<&Name, i64> {
    cluster.nodes.iter().filter_map(|n| Some((&n.name, n.gpus.memory.filter(|m| *m > 0)?))).collect()
}

/// What a pod costs its queue.
pub fn charge(pod: &Pod, memory: &BTreeMap<&Name, i64>) -> Trio {
    let shape = &pod.shape;
    let mut charge = RESOURCES.map(|resource| i128::from(shape.requests.get(&resource)));
    charge[GPUS] += i128::from(shape.extra_gpu_charge) + i128::from(share(pod, memory));
    charge
}

/// Its shares of GPUs together, in thousandths.
fn share(pod: &Pod, memory: &BTreeMap<&Name, i64>) -> i64 {
    let Some(share) = pod.shape.gpu_share else { return 0 };
    let each = match share.size {
        ShareSize::Portion(portion) => portion,
        ShareSize::Memory(mib) => {
            let node = pod.node.as_ref().and_then(|node| memory.get(node).copied());
            // A pod that waits counts as on the smallest GPU.
            match node.or_else(|| memory.values().min().copied()) {
                Some(memory) => ((mib.max(0).saturating_mul(100) + memory - 1) / memory * 10).min(GPU),
                None => GPU,
            }
        }
    };
    each.saturating_mul(i64::from(share.devices))
}

#[derive(Clone, Debug)]
pub struct QueueRow {
    pub name: Name,
    pub parent: Option<Name>,
    /// Whose rules it lives by.
    pub tree: Dialect,
    /// 0 for roots.
    pub depth: usize,
    pub priority: i32,
    pub shares: [Share; 3],
    pub fair: Trio,
    /// Held by pods that stay, here and below; the part of it that is never preempted; and this with what waiting pods ask for.
    pub allocated: Trio,
    pub firm: Trio,
    pub requested: Trio,
    /// Gangs here and below, and those of them that wait.
    pub gangs: u32,
    pub waiting: u32,
    /// Its parents lead nowhere or back to itself, so nothing in it is scheduled.
    pub broken: Option<String>,
}

impl QueueRow {
    pub fn json(&self) -> Value {
        let mut row = json!({
            "name": &*self.name, "dialect": system::word(self.tree), "depth": self.depth,
            "priority": self.priority, "gangs": self.gangs, "waiting": self.waiting,
        });
        if let Some(parent) = &self.parent {
            row["parent"] = json!(&**parent);
        }
        if let Some(broken) = &self.broken {
            row["broken"] = json!(broken);
        }
        for (r, resource) in RESOURCES.iter().enumerate() {
            let bound = |bound: Bound| match bound {
                Bound::At(n) => words::amount_json(resource, n.into()),
                Bound::Unlimited => json!("unlimited"),
            };
            row[resource.to_string()] = json!({
                "quota": bound(self.shares[r].quota), "limit": bound(self.shares[r].limit),
                "fairShare": words::amount_json(resource, self.fair[r]),
                "allocated": words::amount_json(resource, self.allocated[r]),
                "allocatedNonPreemptible": words::amount_json(resource, self.firm[r]),
                "requested": words::amount_json(resource, self.requested[r]),
            });
        }
        row
    }
}

/// Queues as a tree, parents before children; those that hang from nowhere come last.
pub fn queues(seen: &Seen, rows: &[GangRow]) -> Vec<QueueRow> {
    let cluster = &seen.cluster;
    let all: BTreeMap<&Name, &Queue> = cluster.queues.iter().map(|q| (&q.name, &**q)).collect();
    let tree = Tree::of(&all);
    let gangs: BTreeMap<&Key, &muster_model::Gang> = cluster.gangs.iter().map(|g| (&g.key, &**g)).collect();
    let memory = gpu_memory(cluster);
    let mut sums: BTreeMap<&Name, Sums> = BTreeMap::new();
    for pod in &cluster.pods {
        let Some(gang) = pod.gang.as_ref().and_then(|key| gangs.get(key)) else { continue };
        let charge = charge(pod, &memory);
        for queue in tree.path(&gang.queue) {
            let own = sums.entry(queue).or_default();
            if pod.state.stays() {
                own.allocated = plus(&own.allocated, &charge);
                if gang.preemptibility == Preemptibility::NonPreemptible {
                    own.firm = plus(&own.firm, &charge);
                }
            } else if pod.state == PodState::Pending {
                own.asked = plus(&own.asked, &charge);
            }
        }
    }
    for row in rows {
        for queue in tree.path(&row.queue) {
            let own = sums.entry(queue).or_default();
            own.gangs += 1;
            own.waiting += u32::from(row.waits());
        }
    }
    let mut out = Vec::new();
    let mut emit = |name: &Name, depth: usize, broken: Option<String>| {
        let Some(queue) = all.get(name) else { return };
        let own = sums.get(name).cloned().unwrap_or_default();
        out.push(QueueRow {
            name: name.clone(),
            parent: queue.parent.clone(),
            tree: queue.tree,
            depth,
            priority: queue.priority,
            shares: RESOURCES.map(|r| queue.shares.get(&r).copied().unwrap_or_default()),
            fair: seen.figures.queues.get(name).map(|own| own.fair_share).unwrap_or_default(),
            allocated: own.allocated,
            firm: own.firm,
            requested: plus(&own.allocated, &own.asked),
            gangs: own.gangs,
            waiting: own.waiting,
            broken,
        });
    };
    // Depth first, by name; a level is taken from the back.
    let mut open: Vec<(&Name, usize)> = tree.roots.iter().map(|name| (*name, 0)).collect();
    open.sort_by(|a, b| b.0.cmp(a.0));
    while let Some((name, depth)) = open.pop() {
        emit(name, depth, None);
        let mut children: Vec<(&Name, usize)> =
            tree.children.get(name).into_iter().flatten().map(|child| (*child, depth + 1)).collect();
        children.sort_by(|a, b| b.0.cmp(a.0));
        open.extend(children);
    }
    for (name, why) in &tree.broken {
        emit(name, 0, Some(why.clone()));
    }
    out
}

#[derive(Clone, Default)]
struct Sums {
    allocated: Trio,
    firm: Trio,
    asked: Trio,
    gangs: u32,
    waiting: u32,
}

fn plus(a: &Trio, b: &Trio) -> Trio {
    [a[0].saturating_add(b[0]), a[1].saturating_add(b[1]), a[2].saturating_add(b[2])]
}

/// Parents and children, with every queue whose parents lead to a root.
struct Tree<'a> {
    all: &'a BTreeMap<&'a Name, &'a Queue>,
    roots: Vec<&'a Name>,
    children: BTreeMap<&'a Name, Vec<&'a Name>>,
    broken: BTreeMap<&'a Name, String>,
}

impl<'a> Tree<'a> {
    fn of(all: &'a BTreeMap<&'a Name, &'a Queue>) -> Self {
        let mut tree = Tree { all, roots: Vec::new(), children: BTreeMap::new(), broken: BTreeMap::new() };
        for (name, queue) in all {
            match broken(all, name) {
                Some(why) => drop(tree.broken.insert(name, why)),
                None => match &queue.parent {
                    Some(parent) => tree.children.entry(parent).or_default().push(name),
                    None => tree.roots.push(name),
                },
            }
        }
        tree
    }

    /// From a queue to its root; empty if the way is broken.
    fn path(&self, name: &Name) -> Vec<&'a Name> {
        let mut path = Vec::new();
        let mut at = self.all.get_key_value(name);
        while let Some((name, queue)) = at.filter(|(name, _)| !self.broken.contains_key(*name)) {
            path.push(*name);
            at = queue.parent.as_ref().and_then(|parent| self.all.get_key_value(parent));
        }
        path
    }
}

/// What is wrong with the chain of a queue's parents.
fn broken(all: &BTreeMap<&Name, &Queue>, name: &Name) -> Option<String> {
    let mut at = all.get(name)?;
    let mut met: BTreeSet<&Name> = BTreeSet::from([&at.name]);
    while let Some(parent) = &at.parent {
        let Some(next) = all.get(parent) else {
            return Some(format!("there is no queue {parent}, the parent of {}", at.name));
        };
        if !met.insert(&next.name) {
            return Some(format!("its parents lead back to {parent}"));
        }
        at = next;
    }
    None
}

#[derive(Clone, Debug)]
pub struct NodeRow {
    pub name: Name,
    pub state: &'static str,
    pub pool: Option<String>,
    /// Thousandths: what pods hold, shares as what they are.
    pub gpus_used: i64,
    /// Whole GPUs: all, in use by one pod, shared, free.
    pub gpus: u32,
    pub whole: u32,
    pub shared: u32,
    pub used: [i64; 2],
    pub allocatable: [i64; 2],
    pub pods: u32,
    pub most_pods: i64,
    /// Level and domain, from the widest to the narrowest.
    pub topology: Vec<(String, String)>,
}

impl NodeRow {
    pub fn free(&self) -> u32 {
        self.gpus.saturating_sub(self.whole + self.shared)
    }

    /// One sign per GPU: taken whole, shared, free. Many GPUs are shown in tenths.
    pub fn bar(&self) -> String {
        if self.gpus == 0 {
            return String::new();
        }
        let width = if self.gpus <= 16 { self.gpus } else { 10 };
        let scaled = |n: u32| (n * width).div_ceil(self.gpus).min(width);
        let whole = scaled(self.whole);
        let shared = scaled(self.shared).min(width - whole);
        let signs = [("#", whole), ("+", shared), (".", width - whole - shared)];
        format!("[{}]", signs.map(|(sign, n)| sign.repeat(n as usize)).concat())
    }

    pub fn json(&self) -> Value {
        let amount = |resource: &Resource, n: i64| words::amount_json(resource, n.into());
        let mut row = json!({
            "name": &*self.name, "state": self.state,
            "gpu": {"used": amount(&Resource::Gpu, self.gpus_used), "allocatable": self.gpus, "whole": self.whole,
                "shared": self.shared, "free": self.free()},
            "cpu": {"used": amount(&Resource::Cpu, self.used[0]), "allocatable": amount(&Resource::Cpu, self.allocatable[0])},
            "memory": {"used": self.used[1], "allocatable": self.allocatable[1]},
            "pods": {"used": self.pods, "allocatable": self.most_pods},
            "topology": self.topology.iter().cloned().collect::<BTreeMap<String, String>>(),
        });
        if let Some(pool) = &self.pool {
            row["pool"] = json!(pool);
        }
        row
    }
}

/// Nodes of every pool.
pub fn nodes(snapshot: &Snapshot, seen: &Seen) -> Vec<NodeRow> {
    let label = &snapshot.setup.node_pool_label;
    let pool_of = |node: &Value| node["metadata"]["labels"][label].as_str().map(str::to_owned);
    let pools: BTreeMap<String, Option<String>> = snapshot
        .of(Kind::Node)
        .map(|node| (node["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pool_of(node)))
        .collect();
    let mut rows = nodes_of(&seen.cluster);
    if pools.values().any(|pool| *pool != snapshot.setup.pool) {
        // All other pools at once: without their label, nodes are of none.
        let (mut settings, _, _) = snapshot.setup.read();
        settings.now = snapshot.now();
        settings.pool.value = None;
        let mut translator = Translator::new(settings);
        for node in snapshot.of(Kind::Node).filter(|node| pool_of(node) != snapshot.setup.pool) {
            let mut node = node.clone();
            if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
                labels.remove(label);
            }
            translator.put_as(Kind::Node, &node);
        }
        for kind in [Kind::Topology, Kind::BindRequest, Kind::Pod] {
            snapshot.of(kind).for_each(|object| translator.put_as(kind, object));
        }
        let mut cluster = Cluster::default();
        muster_translate::apply(&mut cluster, translator.drain().0);
        rows.extend(nodes_of(&cluster));
    }
    for row in &mut rows {
        row.pool = pools.get(&*row.name).cloned().flatten();
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

#[derive(Default)]
struct Load {
    whole: i64,
    parts: i64,
    groups: BTreeSet<Name>,
    used: [i64; 2],
    pods: u32,
}

fn nodes_of(cluster: &Cluster) -> Vec<NodeRow> {
    let memory = gpu_memory(cluster);
    let mut loads: BTreeMap<&Name, Load> = BTreeMap::new();
    for pod in cluster.pods.iter().filter(|pod| pod.state.holds_room()) {
        let Some(node) = &pod.node else { continue };
        let load = loads.entry(node).or_default();
        let requests = &pod.shape.requests;
        load.whole = load.whole.saturating_add(requests.get(&Resource::Gpu));
        load.parts = load.parts.saturating_add(share(pod, &memory));
        load.groups.extend(pod.gpu_groups.iter().filter(|_| pod.shape.gpu_share.is_some()).cloned());
        load.used[0] = load.used[0].saturating_add(requests.get(&Resource::Cpu));
        load.used[1] = load.used[1].saturating_add(requests.get(&Resource::Memory));
        load.pods += 1;
    }
    let levels: BTreeMap<&Name, Vec<(&Name, &Name)>> = cluster
        .topologies
        .iter()
        .map(|t| {
            (&t.name, t.levels.iter().map(|l| (l.alias.as_ref().unwrap_or(&l.label), &l.label)).collect())
        })
        .collect();
    let row = |node: &Node| {
        let none = Load::default();
        let load = loads.get(&node.name).unwrap_or(&none);
        let whole = |n: i64| u32::try_from(n.max(0) / GPU).unwrap_or(u32::MAX);
        let mut topology: Vec<(String, String)> = Vec::new();
        for (name, label) in levels.values().flatten() {
            if let Some(domain) = node.labels.get(*label) {
                let level = (name.rsplit('/').next().unwrap_or(name).to_owned(), domain.to_string());
                if !topology.contains(&level) {
                    topology.push(level);
                }
            }
        }
        NodeRow {
            name: node.name.clone(),
            state: match node.conditions {
                c if !c.ready => "NotReady",
                c if c.unschedulable => "Cordoned",
                c if c.pressure => "Pressure",
                _ => "Ready",
            },
            pool: None,
            gpus_used: load.whole.saturating_add(load.parts),
            gpus: whole(node.allocatable.get(&Resource::Gpu)),
            whole: whole(load.whole),
            shared: u32::try_from(load.groups.len()).unwrap_or(u32::MAX),
            used: load.used,
            allocatable: [Resource::Cpu, Resource::Memory].map(|r| node.allocatable.get(&r)),
            pods: load.pods,
            most_pods: node.allocatable.get(&Resource::Pods),
            topology,
        }
    };
    cluster.nodes.iter().map(|node| row(node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER, of_yaml};

    #[test]
    fn a_gang_says_how_far_it_is() {
        let snapshot = of_yaml(CLUSTER);
        let rows = gangs(&snapshot, &snapshot.decide());
        let said: Vec<String> = rows
            .iter()
            .map(|r| {
                let reason = r.reason.as_ref().map_or("-", |(word, _)| word);
                format!(
                    "{} {} {}/{}/{} {:?} {reason}",
                    r.key, r.dialect, r.placed, r.needed, r.total, r.state
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                "ml/run kai 1/1/1 Running -",
                "ml/wait kai 0/2/2 Waiting OverLimit",
                "other/lost kai 0/1/1 Waiting QueueMissing"
            ]
        );
    }

    #[test]
    fn a_queue_holds_what_its_pods_hold() {
        let snapshot = of_yaml(CLUSTER);
        let seen = snapshot.decide();
        let rows = queues(&seen, &gangs(&snapshot, &seen));
        let said: Vec<String> = rows
            .iter()
            .map(|r| {
                let gpu = |n: i128| words::thousandths(n);
                format!(
                    "{} {} held {} of {} asked, fair {}, {} gangs",
                    r.depth,
                    r.name,
                    gpu(r.allocated[GPUS]),
                    gpu(r.requested[GPUS]),
                    gpu(r.fair[GPUS]),
                    r.gangs
                )
            })
            .collect();
        assert!(said.contains(&"0 top held 2 of 6 asked, fair 4, 2 gangs".to_owned()), "{said:?}");
        assert!(said.contains(&"1 team held 2 of 6 asked, fair 4, 2 gangs".to_owned()), "{said:?}");
    }

    #[test]
    fn a_circle_of_queues_comes_to_an_end() {
        let queue = |name: &str, parent: &str| {
            format!(
                "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{parentQueue: {parent}}}\n---\n"
            )
        };
        let text = [queue("a", "b"), queue("b", "a"), queue("c", "gone"), queue("d", "c")].concat();
        let snapshot = of_yaml(&text);
        let rows = queues(&snapshot.decide(), &[]);
        let said: Vec<(&str, Option<&str>)> =
            rows.iter().map(|r| (&*r.name, r.broken.as_deref())).filter(|(_, b)| b.is_some()).collect();
        assert_eq!(
            said,
            [
                ("a", Some("its parents lead back to a")),
                ("b", Some("its parents lead back to b")),
                ("c", Some("there is no queue gone, the parent of c")),
                ("d", Some("there is no queue gone, the parent of c"))
            ]
        );
    }

    #[track_caller]
    fn check_bar(gpus: u32, whole: u32, shared: u32, expected: &str) {
        let row = NodeRow {
            name: "a".into(),
            state: "Ready",
            pool: None,
            gpus_used: 0,
            gpus,
            whole,
            shared,
            used: [0; 2],
            allocatable: [0; 2],
            pods: 0,
            most_pods: 0,
            topology: Vec::new(),
        };
        assert_eq!(row.bar(), expected);
    }

    #[test]
    fn bars() {
        check_bar(0, 0, 0, "");
        check_bar(8, 0, 0, "[........]");
        check_bar(8, 3, 1, "[###+....]");
        check_bar(2, 3, 1, "[##]");
        check_bar(64, 32, 1, "[#####+....]");
    }

    #[test]
    fn a_node_says_what_is_used() {
        let snapshot = of_yaml(CLUSTER);
        let rows = nodes(&snapshot, &snapshot.decide());
        assert_eq!(
            rows.iter().map(|r| (&*r.name, r.whole, r.free(), r.pods)).collect::<Vec<_>>(),
            [("a", 2, 0, 1), ("b", 0, 2, 0)]
        );
        assert_eq!(rows[0].json()["cpu"], json!({"used": 1, "allocatable": 8}));
    }
}
