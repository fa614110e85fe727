//! The auditor: looks only at what is really in the API server, event by event and past every fault.
//!
//! In: the server's own watches of pods, nodes, pod groups and queues, in process. Out: findings. Must stay true: it uses nothing of the
//! scheduler; a finding is something that must never be, whoever was killed and whatever was lost.
//!
//! What a scheduler cannot have known yet is no fault of its own: for a while after a node or a queue shrank ([`EXCUSED`]) it may be
//! too full.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_quantity::Quantity;
use muster_runtime::Api;
use muster_runtime::follow::{Collection, Seen, follow};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::front::Journal;

/// Longer than any watch is behind: a connection that is dead and does not say so (5 minutes), a request that hangs, a list after that.
pub const EXCUSED: Duration = Duration::from_secs(400);

/// One GPU, in thousandths.
const GPU: i64 = 1000;
/// Memory of one GPU in MiB, as the nodes of the world have it.
const GPU_MEMORY: i64 = 81_920;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
    pub phase: String,
    pub deleting: bool,
    pub scheduler: String,
    pub group: String,
    pub queue: String,
    pub fixed: bool,
    pub cpu: i64,
    pub memory: i64,
    /// Whole GPUs in thousandths; none for parts, which a reservation holds.
    pub gpus: i64,
    /// Of each shared GPU, in thousandths.
    pub part: i64,
    pub shared: BTreeSet<String>,
}

impl Pod {
    fn read(value: &Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let number = |pointer: &str| text(pointer).parse::<f64>().ok();
        let mut pod = Pod {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            node: text("/spec/nodeName"),
            phase: text("/status/phase"),
            deleting: value.pointer("/metadata/deletionTimestamp").is_some(),
            scheduler: text("/spec/schedulerName"),
            group: text("/metadata/annotations/pod-group-name"),
            queue: text("/metadata/labels/kai.scheduler~1queue"),
            fixed: matches!(text("/metadata/labels/priorityClassName").as_str(), "build" | "inference"),
            ..Pod::default()
        };
        for container in value.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten() {
            let of = |resource: &str| {
                let asked = &container["resources"]["requests"][resource];
                let most = &container["resources"]["limits"][resource];
                if asked.is_null() { quantity(most) } else { quantity(asked) }
            };
            pod.cpu += of("cpu");
            pod.memory += of("memory");
            pod.gpus += of("nvidia.com/gpu");
        }
        let fraction =
            number("/metadata/annotations/gpu-fraction").map(|share| (share * 1000.0).round() as i64);
        let memory = number("/metadata/annotations/gpu-memory").map(|mib| (mib as i64) * GPU / GPU_MEMORY);
        pod.part = fraction.or(memory).unwrap_or(0);
        for (label, group) in
            value.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten()
        {
            if label == "runai-gpu-group" || label.starts_with("runai-gpu-group/") {
                pod.shared.insert(group.as_str().unwrap_or_default().to_owned());
            }
        }
        pod
    }

    /// Holds room on its node.
    pub fn holds(&self) -> bool {
        !self.node.is_empty() && !self.is_over()
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Counts toward the minimum of its gang.
    pub fn counts(&self) -> bool {
        (self.holds() && !self.deleting) || self.phase == "Succeeded"
    }

    pub fn reserves(&self) -> bool {
        self.namespace == "kai-resource-reservation"
    }

    /// GPUs that its queue pays for.
    pub fn charged(&self) -> i64 {
        if self.part > 0 {
            self.part * i64::try_from(self.shared.len().max(1)).unwrap_or(1)
        } else {
            self.gpus
        }
    }
}

/// In thousandths.
pub fn quantity(value: &Value) -> i64 {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => return 0,
        other => other.to_string(),
    };
    text.parse::<Quantity>().map_or(0, Quantity::milli_value)
}

#[derive(Debug, Clone, Default)]
struct Node {
    cpu: i64,
    memory: i64,
    gpus: i64,
    pods: i64,
}

#[derive(Debug, Clone, Default)]
struct Queue {
    parent: String,
    quota: i64,
    limit: i64,
}

#[derive(Debug, Clone, Default)]
pub struct Group {
    pub min: i64,
    pub queue: String,
    /// Minimum by name of the group within.
    pub subs: BTreeMap<String, i64>,
}

#[derive(Default)]
struct Books {
    pods: BTreeMap<(String, String), Pod>,
    nodes: BTreeMap<String, Node>,
    queues: BTreeMap<String, Queue>,
    groups: BTreeMap<String, Group>,
    /// Since when a gang has some of its pods and fewer than its minimum.
    partial: BTreeMap<String, Duration>,
    /// When the room on a node, or the limit of a queue, last shrank.
    excuses: BTreeMap<String, Duration>,
    findings: Vec<String>,
    n_bound: u64,
    n_whole: u64,
    n_partial: u64,
    longest_partial: Duration,
}

/// What was seen so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub bound: u64,
    /// How often a gang got its minimum, and how often one lost it.
    pub whole: u64,
    pub partial: u64,
}

#[derive(Clone)]
pub struct Auditor {
    books: Arc<Mutex<Books>>,
    journal: Journal,
}

impl Auditor {
    /// Begins to look; `cancel` ends it.
    pub fn start(api: &Api, journal: &Journal, cancel: &CancellationToken) -> Self {
        let auditor = Auditor { books: Arc::default(), journal: journal.clone() };
        let paths = [
            ("nodes", "/api/v1/nodes"),
            ("queues", "/apis/scheduling.run.ai/v2/queues"),
            ("groups", "/apis/scheduling.run.ai/v2alpha2/podgroups"),
            ("pods", "/api/v1/pods"),
        ];
        for (kind, path) in paths {
            let this = auditor.clone();
            let sink = move |seen: Seen<'_>| {
                let now = this.journal.now();
                this.with(|books| match seen {
                    Seen::Put { text, .. } => {
                        books.put(kind, &serde_json::from_str(text).unwrap_or(Value::Null), now);
                    }
                    Seen::Gone { key, .. } => books.gone(kind, &key.namespace, &key.name, now),
                    Seen::Synced | Seen::Absent => {}
                });
            };
            let never = Duration::from_secs(1_000_000);
            tokio::spawn(follow(api.clone(), Collection::new(path), never, cancel.clone(), sink));
        }
        auditor
    }

    fn with<R>(&self, look: impl FnOnce(&mut Books) -> R) -> R {
        look(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something is about to shrink: see [`EXCUSED`].
    pub fn excuse(&self, what: &str) {
        let now = self.journal.now();
        self.with(|books| books.excuses.insert(what.to_owned(), now));
    }

    pub fn take_findings(&self) -> Vec<String> {
        self.with(|books| std::mem::take(&mut books.findings))
    }

    pub fn counts(&self) -> Counts {
        self.with(|books| Counts { bound: books.n_bound, whole: books.n_whole, partial: books.n_partial })
    }

    pub fn pods(&self) -> Vec<Pod> {
        self.with(|books| books.pods.values().cloned().collect())
    }

    pub fn groups(&self) -> BTreeMap<String, Group> {
        self.with(|books| books.groups.clone())
    }

    /// Gangs that have been partial for longer than this.
    pub fn partial_for(&self, longest: Duration) -> Vec<String> {
        let now = self.journal.now();
        self.with(|books| {
            let long = books.partial.iter().filter(|(_, since)| now.saturating_sub(**since) > longest);
            long.map(|(group, since)| books.describe(group, *since, now)).collect()
        })
    }

    /// The longest time that a gang was partial before it was whole or gone.
    pub fn longest_partial(&self) -> Duration {
        self.with(|books| books.longest_partial)
    }

    /// What each queue's pods hold, in thousandths of GPUs: queue, all, not preemptible.
    pub fn charged(&self) -> BTreeMap<String, (i64, i64)> {
        self.with(|books| {
            books.queues.keys().map(|queue| (queue.clone(), books.charged(queue, true))).collect()
        })
    }
}

impl Books {
    fn put(&mut self, kind: &str, value: &Value, now: Duration) {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match kind {
            "nodes" => {
                let of = |resource: &str| quantity(&value["status"]["allocatable"][resource]);
                let (cpu, memory, gpus, pods) = (of("cpu"), of("memory"), of("nvidia.com/gpu"), of("pods"));
                self.nodes.insert(name, Node { cpu, memory, gpus, pods });
            }
            "queues" => {
                let gpu = &value["spec"]["resources"]["gpu"];
                let of = |field: &str| {
                    gpu[field].as_f64().map_or(-1, |n| if n < 0.0 { -1 } else { (n * 1000.0) as i64 })
                };
                let parent = value["spec"]["parentQueue"].as_str().unwrap_or_default().to_owned();
                self.queues.insert(name, Queue { parent, quota: of("quota"), limit: of("limit") });
            }
            "groups" => {
                let subs = value["spec"]["subGroups"].as_array().into_iter().flatten();
                let subs = subs
                    .map(|s| {
                        (
                            s["name"].as_str().unwrap_or_default().to_owned(),
                            s["minMember"].as_i64().unwrap_or(1),
                        )
                    })
                    .collect();
                let group = Group {
                    min: value["spec"]["minMember"].as_i64().unwrap_or(1),
                    queue: value["spec"]["queue"].as_str().unwrap_or_default().to_owned(),
                    subs,
                };
                self.groups.insert(name.clone(), group);
                self.look_at_gang(&name, now);
            }
            _ => self.put_pod(Pod::read(value), value, now),
        }
    }

    fn put_pod(&mut self, pod: Pod, value: &Value, now: Duration) {
        let key = (pod.namespace.clone(), pod.name.clone());
        let old = self.pods.insert(key, pod.clone()).filter(|old| old.uid == pod.uid);
        let was = old.as_ref().map_or("", |old| old.node.as_str());
        if !was.is_empty() && was != pod.node {
            self.findings.push(format!("pod {} was moved from {was} to {:?}", pod.name, pod.node));
        }
        let new = was.is_empty() && pod.holds();
        let ours = pod.reserves() || crate::process::SCHEDULER_NAMES.contains(&pod.scheduler.as_str());
        if new && ours {
            self.n_bound += u64::from(!pod.reserves());
            self.check_room(&pod, now);
            self.check_queues(&pod, now);
        }
        if old.as_ref().is_none_or(|old| old.shared != pod.shared || old.node != pod.node) {
            self.check_shares(&pod);
        }
        let rejected = value["status"]["reason"].as_str().unwrap_or_default();
        if pod.phase == "Failed"
            && old.as_ref().is_some_and(|old| old.phase != "Failed")
            && rejected.starts_with("OutOf")
        {
            self.rejected(&pod, rejected, value["status"]["message"].as_str().unwrap_or_default(), now);
        }
        self.look_at_gang(&pod.group, now);
        if let Some(old) = old.filter(|old| old.group != pod.group) {
            self.look_at_gang(&old.group, now);
        }
    }

    fn gone(&mut self, kind: &str, namespace: &str, name: &str, now: Duration) {
        match kind {
            "nodes" => drop(self.nodes.remove(name)),
            "queues" => drop(self.queues.remove(name)),
            "groups" => {
                self.groups.remove(name);
                self.partial.remove(name);
            }
            _ => {
                if let Some(pod) = self.pods.remove(&(namespace.to_owned(), name.to_owned())) {
                    self.look_at_gang(&pod.group, now);
                }
            }
        }
    }

    fn is_excused(&self, what: &str, now: Duration) -> bool {
        self.excuses.get(what).is_some_and(|since| now.saturating_sub(*since) < EXCUSED)
    }

    /// A pod got a node: it must have had room for it.
    fn check_room(&mut self, pod: &Pod, now: Duration) {
        if self.is_excused(&pod.node, now) || (pod.reserves() && self.is_excused("reservations", now)) {
            return;
        }
        let Some(node) = self.nodes.get(&pod.node) else {
            self.findings.push(format!("pod {} was bound to {}, which does not exist", pod.name, pod.node));
            return;
        };
        let here: Vec<&Pod> = self.pods.values().filter(|p| p.node == pod.node && p.holds()).collect();
        let sum = |of: fn(&Pod) -> i64| here.iter().map(|p| of(p)).sum::<i64>();
        // What a reservation asks for besides the GPU (a thousandth of a CPU, a few MiB) is not foreseen when its user is placed.
        let proper = |of: fn(&Pod) -> i64| here.iter().filter(|p| !p.reserves()).map(|p| of(p)).sum::<i64>();
        let n_pods = i64::try_from(here.len()).unwrap_or(i64::MAX) * 1000;
        // Whoever asks for none of something that ran short on its node before takes none of it.
        let used = [
            ("cpu", pod.cpu, proper(|p| p.cpu), node.cpu),
            ("memory", pod.memory, proper(|p| p.memory), node.memory),
            ("GPUs", pod.gpus, sum(|p| p.gpus), node.gpus),
            ("pods", 1, n_pods, node.pods),
        ];
        for (what, own, used, room) in used {
            if own > 0 && used > room {
                let all: Vec<String> = here
                    .iter()
                    .map(|p| {
                        format!(
                            "{}{} {} gpu {}",
                            p.name,
                            if p.deleting { " (going)" } else { "" },
                            p.phase,
                            p.gpus
                        )
                    })
                    .collect();
                self.findings.push(format!(
                    "pod {} was bound to {}, which has {room} thousandths of {what} and {used} in use: {}",
                    pod.name,
                    pod.node,
                    all.join(", ")
                ));
            }
        }
    }

    /// The kubelet found no room for it.
    fn rejected(&mut self, pod: &Pod, reason: &str, message: &str, now: Duration) {
        // Kubelets are behind as well: what was deleted at once may still be there.
        if self.is_excused(&pod.node, now) || self.is_excused("kubelets", now) {
            return;
        }
        self.findings.push(format!(
            "pod {} was refused by the kubelet of {}: {reason}: {message}",
            pod.name, pod.node
        ));
    }

    /// The parts of a shared GPU are no more than the whole.
    fn check_shares(&mut self, pod: &Pod) {
        if pod.part == 0 || !pod.holds() {
            return;
        }
        for group in &pod.shared {
            let users: Vec<&Pod> =
                self.pods.values().filter(|p| p.part > 0 && p.holds() && p.shared.contains(group)).collect();
            let used: i64 = users.iter().map(|p| p.part).sum();
            let nodes: BTreeSet<&str> = users.iter().map(|p| p.node.as_str()).collect();
            if used > GPU || nodes.len() > 1 {
                let names: Vec<String> =
                    users.iter().map(|p| format!("{} {} on {}", p.name, p.part, p.node)).collect();
                self.findings
                    .push(format!("shared GPU {group} has {used} thousandths in use: {}", names.join(", ")));
            }
        }
    }

    /// The queue that pays for a pod: its group's, or the one that it names.
    fn queue_of<'a>(&'a self, pod: &'a Pod) -> &'a str {
        match self.groups.get(&pod.group) {
            Some(group) => &group.queue,
            None if pod.queue.is_empty() => "default-queue",
            None => &pod.queue,
        }
    }

    fn ancestors(&self, queue: &str) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut at = queue.to_owned();
        while let Some(queue) = self.queues.get(&at).filter(|_| all.len() < 8) {
            all.push(std::mem::replace(&mut at, queue.parent.clone()));
        }
        all
    }

    /// What the pods of a queue and of those below it hold: all, and those that cannot be preempted.
    fn charged(&self, queue: &str, going_too: bool) -> (i64, i64) {
        let all = self.holders(queue).filter(|pod| going_too || !pod.deleting);
        all.fold((0, 0), |(sum, fixed), pod| {
            (sum + pod.charged(), fixed + if pod.fixed { pod.charged() } else { 0 })
        })
    }

    /// The pods of a queue and of those below it that hold something.
    fn holders(&self, queue: &str) -> impl Iterator<Item = &Pod> {
        // Pods that ask autoscalers for a GPU are in no group, and come and go for as long as somebody waits.
        let counts = |p: &&Pod| p.holds() && !p.reserves() && p.namespace != "kai-scale-adjust";
        let is_below = move |p: &&Pod| self.ancestors(self.queue_of(p)).iter().any(|q| q == queue);
        self.pods.values().filter(counts).filter(is_below)
    }

    /// Who holds what of a queue, for whoever reads a finding.
    fn told(&self, queue: &str) -> String {
        let told = |pod: &Pod| {
            let preemptible = if pod.fixed { "" } else { ", preemptible" };
            format!("{} {} on {}{preemptible}", pod.name, pod.charged(), pod.node)
        };
        self.holders(queue).filter(|pod| !pod.deleting).map(told).collect::<Vec<_>>().join("; ")
    }

    /// A pod got a node: no queue above it may be beyond its limit, nor beyond its quota by pods that cannot be preempted.
    fn check_queues(&mut self, pod: &Pod, now: Duration) {
        if pod.charged() == 0 || pod.reserves() || self.is_excused("podgroups", now) {
            return;
        }
        for name in self.ancestors(self.queue_of(pod)) {
            if self.is_excused(&name, now) {
                continue;
            }
            let Some(queue) = self.queues.get(&name).cloned() else { continue };
            let (all, fixed) = self.charged(&name, false);
            if queue.limit >= 0 && all > queue.limit {
                self.findings.push(format!(
                    "pod {} brought queue {name} to {all}, its limit is {}: {}",
                    pod.name,
                    queue.limit,
                    self.told(&name)
                ));
            }
            if queue.quota >= 0 && pod.fixed && fixed > queue.quota {
                self.findings.push(format!(
                    "pod {} brought queue {name} to {fixed} by pods that cannot be preempted, its quota is {}: {}",
                    pod.name,
                    queue.quota,
                    self.told(&name)
                ));
            }
        }
    }

    fn look_at_gang(&mut self, name: &str, now: Duration) {
        let Some(group) = self.groups.get(name) else {
            self.partial.remove(name);
            return;
        };
        let members: Vec<&Pod> = self.pods.values().filter(|p| p.group == name && !name.is_empty()).collect();
        // By KAI's rules a gang of which some have succeeded is not stale, and what is made again of it waits: see `run::incomplete`.
        let ends = members.iter().any(|p| p.phase == "Succeeded");
        let some = !ends && members.iter().any(|p| p.holds() && !p.deleting);
        let n = i64::try_from(members.iter().filter(|p| p.counts()).count()).unwrap_or(i64::MAX);
        if some && n < group.min {
            if !self.partial.contains_key(name) {
                self.n_partial += 1;
                self.partial.insert(name.to_owned(), now);
            }
        } else if let Some(since) = self.partial.remove(name) {
            self.longest_partial = self.longest_partial.max(now.saturating_sub(since));
            self.n_whole += u64::from(some);
        }
    }

    fn describe(&self, group: &str, since: Duration, now: Duration) -> String {
        let members = self.pods.values().filter(|p| p.group == group);
        let all: Vec<String> = members
            .map(|p| {
                format!("{} {:?} {}{}", p.name, p.node, p.phase, if p.deleting { " (going)" } else { "" })
            })
            .collect();
        let min = self.groups.get(group).map_or(0, |g| g.min);
        let seconds = now.saturating_sub(since).as_secs();
        format!("gang {group} has had fewer than its minimum of {min} for {seconds} s: {}", all.join(", "))
    }
}
