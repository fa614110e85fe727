//! The kubelets of all nodes, at work: watches in, patches out.
//!
//! In: the pod and node stores. Out: pod statuses, final deletes, node statuses, leases, events.
//! Must stay true: one write per change of a pod, at most `WRITERS` in flight; a silent node writes nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinSet;

use super::behaviour::Behaviour;
use super::devices::Books;
use super::pod::Life;
use super::{mounts, node as node_plan, status};
use crate::api::{ApiError, Delete, Patch};
use crate::clock::{micro_stamp, until};
use crate::context::Context;
use crate::fleet::{gpu_uuid, node_address};
use crate::object::{Key, Meta, Node, Object, Pod, Resource, condition, kinds};
use crate::queue::{Next, Queue, work};

/// Enough to keep a server busy, few enough not to flood it.
const WRITERS: usize = 32;
/// The kubelets of a cluster are many programs, and a controller is one: where all share a few cores, pods that are told to run must not wait behind
/// those that are being made.
const TASKS: usize = 4;
/// A kubelet reports its node's status at least this often.
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// A kubelet renews its lease this often, unless there are so many that this would be more than `LEASES_PER_SECOND`.
const LEASE_EVERY: Duration = Duration::from_secs(10);
const LEASES_PER_SECOND: usize = 20;
const HEARTBEAT_TICK: Duration = Duration::from_millis(500);
/// The annotation by which a GPU reservation pod says which device it holds.
pub const RESERVED_DEVICE: &str = "run.ai/reserve_for_gpu_index";

/// What a lease says; the lifecycle controller watches it.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
#[serde(default)]
pub struct Lease {
    pub metadata: Meta,
    pub spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub renew_time: String,
    pub lease_duration_seconds: i64,
}

kinds! {
    Lease = "coordination.k8s.io" "v1" "Lease" "leases";
}

pub const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASES: Resource = Lease::RESOURCE;

/// Starts the kubelets. The observers are in place when this returns; the future does the work.
pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let pods = Queue::new();
    let nodes = Queue::new();
    let cx = cx.program("kubelet", "kubelet");
    let kubelet = Arc::new(Kubelet { cx: cx.clone(), state: Mutex::new(Memory::default()) });
    {
        let pods = pods.clone();
        cx.pods.observe(move |change| {
            if let Some(pod) = change.latest()
                && !pod.spec.node_name.is_empty()
            {
                pods.add(pod.key());
            }
        });
    }
    {
        let (pods, nodes, cx) = (pods.clone(), nodes.clone(), cx.clone());
        cx.nodes.clone().observe(move |change| {
            let Some(node) = change.latest() else { return };
            nodes.add(node.metadata.name.clone());
            let silent = |n: Option<&Arc<Node>>| n.is_none_or(|n| node_plan::failed(n));
            let broken = |n: Option<&Arc<Node>>| {
                n.and_then(|n| n.metadata.annotation(node_plan::UNHEALTHY_GPUS).map(str::to_owned))
            };
            if let (Some(old), Some(new)) = (change.old, change.new) {
                report_node(&cx, old, new);
            }
            let returns = silent(change.old) && !silent(change.new);
            if returns || broken(change.old) != broken(change.new) {
                for pod in cx.pods_on(&node.metadata.name) {
                    pods.add(pod.key());
                }
            }
        });
    }
    async move {
        if cx.synced([cx.pods.synced()]).await.is_none() || cx.synced([cx.nodes.synced()]).await.is_none() {
            return;
        }
        kubelet.read_addresses();
        let mut pod_work = JoinSet::new();
        for _ in 0..TASKS {
            let (kubelet, pods, cancel) = (kubelet.clone(), pods.clone(), cx.cancel.clone());
            pod_work.spawn(async move {
                work("kubelet", pods, WRITERS / TASKS, cancel, |key| kubelet.look_at_pod(key)).await;
            });
        }
        let node_work =
            work("node-status", nodes, WRITERS, cx.cancel.clone(), |name| kubelet.look_at_node(name));
        tokio::join!(pod_work.join_all(), node_work, kubelet.heartbeats());
    }
}

struct Kubelet {
    cx: Context,
    state: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    pods: HashMap<Key, Entry>,
    /// What the pods of each node hold.
    nodes: HashMap<String, Books>,
    /// Failed attempts by owner and completion index, for pods that fail so many times and then succeed.
    attempts: HashMap<(String, String), u32>,
    next_pod_address: u32,
    next_node_address: usize,
    node_addresses: BTreeSet<String>,
    secrets: mounts::Known,
}

/// A pod that was taken on.
struct Entry {
    uid: Box<str>,
    node: Box<str>,
    /// What it does; `None` while nothing is due, because its status says all of it.
    course: Option<Box<Course>>,
}

struct Course {
    life: Life,
    behaviour: Behaviour,
    /// The life moved on since the status was last written.
    dirty: bool,
    /// The final delete was accepted; what is left waits for finalizers.
    removed: bool,
}

impl Entry {
    fn new(pod: &Pod, course: Box<Course>) -> Self {
        let (uid, node) = (pod.metadata.uid.as_str().into(), pod.spec.node_name.as_str().into());
        Entry { uid, node, course: Some(course) }
    }

    fn removed(&self) -> bool {
        self.course.as_ref().is_some_and(|course| course.removed)
    }
}

/// What to do about a pod, decided under the lock and done outside it.
struct Plan {
    status: Option<serde_json::Value>,
    remove: bool,
    device: Option<String>,
    wake: Option<Timestamp>,
    ended: bool,
}

impl Plan {
    /// Nothing is to be done, now or later.
    fn settles(&self) -> bool {
        self.status.is_none() && self.device.is_none() && self.wake.is_none() && !self.remove && !self.ended
    }
}

impl Kubelet {
    async fn look_at_pod(&self, key: Key) -> Result<Next, ApiError> {
        let now = self.cx.clock.now();
        let Some(pod) = self.cx.pods.get(&key) else {
            self.forget(&key);
            return Ok(Next::Idle);
        };
        if pod.spec.node_name.is_empty() {
            return Ok(Next::Idle);
        }
        let Some(node) = self.cx.nodes.get(&Key::new("", pod.spec.node_name.clone())) else {
            return Ok(Next::Idle);
        };
        if node_plan::failed(&node) {
            return Ok(Next::Idle);
        }
        if let Some(missing) = self.missing_secret(&key, &pod).await? {
            let message = format!("MountVolume.SetUp failed: secret \"{}\" not found", missing.name);
            self.cx.events.on_host(&pod.spec.node_name, &*pod, true, "FailedMount", message);
            return Ok(Next::After(mounts::AGAIN));
        }
        let plan = self.plan(&key, &pod, &node, now);
        let result = self.carry_out(&key, &pod, &plan).await;
        match result {
            Err(error) if error.not_found() => {
                self.cx.pods.remove(&key, &pod.metadata.uid);
                self.forget(&key);
                Ok(Next::Idle)
            }
            // Another pod has this name now; the watch will bring it.
            Err(error) if error.conflict() => {
                self.forget_uid(&key, &pod.metadata.uid);
                Ok(Next::After(Duration::from_millis(100)))
            }
            Err(error) => Err(error),
            Ok(()) => Ok(plan.wake.map_or(Next::Idle, |at| Next::After(until(self.cx.clock.now(), at)))),
        }
    }

    /// A secret that a pod mounts and that is not there. Whatever has begun to run has what it needs, and what is going needs nothing.
    async fn missing_secret(&self, key: &Key, pod: &Pod) -> Result<Option<Key>, ApiError> {
        let has_begun = pod.metadata.deleting()
            || pod.finished()
            || !pod.status.container_statuses.is_empty()
            || !pod.status.init_container_statuses.is_empty();
        if has_begun || self.lock().pods.contains_key(key) {
            return Ok(None);
        }
        loop {
            let asked = self.lock().secrets.to_ask(pod);
            match asked {
                Ok(None) => return Ok(None),
                Err(missing) => return Ok(Some(missing)),
                Ok(Some(secret)) => {
                    let is_there = mounts::is_there(&self.cx.api, &secret).await?;
                    self.lock().secrets.learn(secret, is_there);
                }
            }
        }
    }

    /// Decides, and moves the memory on.
    fn plan(&self, key: &Key, pod: &Pod, node: &Node, now: Timestamp) -> Plan {
        let nothing = Plan { status: None, remove: false, device: None, wake: None, ended: false };
        let mut memory = self.lock();
        if memory.pods.get(key).is_some_and(|e| *e.uid != *pod.metadata.uid) {
            memory.forget(key);
        }
        if pod.finished() && !memory.pods.get(key).is_some_and(Entry::removed) {
            memory.release(&pod.spec.node_name, &pod.metadata.uid);
            return Plan { remove: pod.metadata.deleting(), ..nothing };
        }
        let known = memory.pods.get_mut(key).map(|entry| entry.course.take());
        let mut course = match known {
            Some(Some(course)) => course,
            Some(None) => Box::new(self.take_up(&mut memory, pod, node, now)),
            None => Box::new(self.take_on(&mut memory, pod, node, now)),
        };
        if course.removed {
            memory.follow(key, pod, course);
            return nothing;
        }
        let progress = course.life.advance(pod, &course.behaviour, &self.cx.options.rules, now);
        course.dirty |= progress.changed;
        // While the node was silent its pods were marked unready by others.
        course.dirty |= pod.ready() != course.life.ready.0;
        let unhealthy = broken_devices(node, &course.life);
        // So may the health of its devices, but only once they are reported at all.
        course.dirty |= pod
            .status
            .container_statuses
            .iter()
            .flat_map(|c| &c.allocated_resources_status)
            .flat_map(|d| &d.resources)
            .any(|d| (d.health == "Unhealthy") != unhealthy.contains(&d.id));
        self.report(pod, &progress);
        // Nobody reads the last status of a pod that is about to vanish, unless something holds it back.
        let last_words = !pod.metadata.finalizers.is_empty() || pod.spec.restart_policy != "Always";
        let write = course.dirty && (!progress.remove || last_words);
        let host_ip =
            node.status.addresses.iter().find(|a| a.kind == "InternalIP").map_or("", |a| &a.address);
        let reserves = self.cx.options.reservation_namespaces.contains(&key.namespace)
            && !pod.metadata.annotations.contains_key(RESERVED_DEVICE)
            && course.life.initialized.is_some();
        let device = course.life.devices.iter().flat_map(|(_, ids)| ids).next().filter(|_| reserves);
        let plan = Plan {
            status: write.then(|| status::patch(pod, &course.life, host_ip, &unhealthy)),
            remove: progress.remove,
            device: device.cloned(),
            wake: progress.wake,
            ended: course.life.at_rest(),
        };
        memory.follow(key, pod, course);
        if plan.settles() {
            memory.settle(key);
        }
        plan
    }

    /// Another look at a pod that needed none for a while: its status says how it is, and nothing was due since.
    fn take_up(&self, memory: &mut Memory, pod: &Pod, node: &Node, now: Timestamp) -> Course {
        let (behaviour, _) = Behaviour::of(pod);
        let resumed = Life::resume(pod, now);
        let dirty = resumed.is_none();
        let mut life = resumed.unwrap_or_else(|| Life::begin(pod, memory.pod_address(), now));
        life.skip_to(now);
        // An older server does not keep devices in a status.
        let books = memory.nodes.get(&pod.spec.node_name);
        life.devices = books.map(|books| books.devices_of(node, &pod.metadata.uid)).unwrap_or_default();
        life.earlier_attempts = memory.earlier_attempts(&behaviour, pod);
        Course { life, behaviour, dirty, removed: false }
    }

    /// The first look at a pod.
    fn take_on(&self, memory: &mut Memory, pod: &Pod, node: &Node, now: Timestamp) -> Course {
        let (behaviour, problems) = Behaviour::of(pod);
        let events = &self.cx.events;
        for problem in problems {
            events.on_host(&pod.spec.node_name, pod, true, "UnknownSimulation", problem);
        }
        let resumed = Life::resume(pod, now);
        let mut life = match resumed.clone() {
            Some(life) => life,
            None => Life::begin(pod, memory.pod_address(), now),
        };
        life.earlier_attempts = memory.earlier_attempts(&behaviour, pod);
        let books = &mut memory.nodes.entry(pod.spec.node_name.clone()).or_default();
        match books.admit(node, pod, resumed.as_ref().map(|l| &l.devices)) {
            Ok(devices) => life.devices = devices,
            Err(refusal) => {
                events.on_host(&pod.spec.node_name, pod, true, "FailedAdmission", refusal.message.clone());
                life.reject(refusal.reason, refusal.message);
            }
        }
        Course { life, behaviour, dirty: resumed.is_none(), removed: false }
    }

    async fn carry_out(&self, key: &Key, pod: &Pod, plan: &Plan) -> Result<(), ApiError> {
        // Whoever hears that the pod is over may send the next one at once, so what it held is let go before a word is said.
        if plan.remove || plan.ended {
            self.lock().release(&pod.spec.node_name, &pod.metadata.uid);
        }
        if let Some(patch) = &plan.status {
            let answer: Pod = self.cx.api.patch(key, "status", Patch::Strategic, patch).await?;
            self.cx.pods.enter(answer);
            let mut memory = self.lock();
            if let Some(course) = memory.pods.get_mut(key).and_then(|entry| entry.course.as_mut()) {
                course.dirty = false;
            }
            if plan.ended && !plan.remove {
                memory.end(key, pod);
            }
        }
        if let Some(device) = &plan.device {
            let patch = json!({"metadata": {"annotations": {RESERVED_DEVICE: device}}});
            self.cx.pods.enter(self.cx.api.patch(key, "", Patch::Merge, &patch).await?);
        }
        if plan.remove {
            let delete = Delete { uid: &pod.metadata.uid, grace_seconds: Some(0), propagation: None };
            self.cx.api.delete::<Pod>(key, delete).await?;
            let mut memory = self.lock();
            memory.end(key, pod);
            if !pod.metadata.finalizers.is_empty() {
                let (behaviour, _) = Behaviour::of(pod);
                let life = Life::begin(pod, String::new(), self.cx.clock.now());
                memory.follow(key, pod, Box::new(Course { life, behaviour, dirty: false, removed: true }));
            }
        }
        Ok(())
    }

    fn report(&self, pod: &Pod, progress: &super::pod::Progress) {
        let events = &self.cx.events;
        let host = &pod.spec.node_name;
        let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        for container in all.filter(|c| progress.started.contains(&c.name)) {
            let pulled = format!("Container image \"{}\" already present on machine", container.image);
            events.on_host(host, pod, false, "Pulled", pulled);
            events.on_host(host, pod, false, "Created", format!("Created container: {}", container.name));
            events.on_host(host, pod, false, "Started", format!("Started container {}", container.name));
        }
        for name in &progress.backing_off {
            let message = format!("Back-off restarting failed container {name} in pod {}", pod.metadata.name);
            events.on_host(host, pod, true, "BackOff", message);
        }
        if progress.remove && progress.changed {
            for container in &pod.spec.containers {
                events.on_host(host, pod, false, "Killing", format!("Stopping container {}", container.name));
            }
        }
    }

    async fn look_at_node(&self, name: String) -> Result<Next, ApiError> {
        let key = Key::new("", name);
        let Some(node) = self.cx.nodes.get(&key) else { return Ok(Next::Idle) };
        if node_plan::failed(&node) || node.metadata.deleting() {
            return Ok(Next::Idle);
        }
        self.write_node(&key, &node, false).await?;
        Ok(Next::Idle)
    }

    async fn write_node(&self, key: &Key, node: &Node, heartbeat: bool) -> Result<(), ApiError> {
        let shape = &self.cx.options.default_shape;
        let metadata = node_plan::metadata_patch(node, shape);
        let has_address = node.status.addresses.iter().any(|a| a.kind == "InternalIP");
        let address = if has_address { String::new() } else { self.lock().node_address() };
        let version = &self.cx.options.kubelet_version;
        let status = node_plan::status_patch(node, shape, version, &address, self.cx.clock.now(), heartbeat);
        if let Some(patch) = metadata {
            self.cx.nodes.enter(self.cx.api.patch(key, "", Patch::Merge, &patch).await?);
        }
        if let Some(patch) = status {
            self.cx.nodes.enter(self.cx.api.patch(key, "status", Patch::Strategic, &patch).await?);
        }
        Ok(())
    }

    /// Renews leases and statuses of all live nodes, spread evenly over their periods.
    async fn heartbeats(&self) {
        let mut tick = 0_u64;
        loop {
            let names: Vec<Key> = self.cx.nodes.keys();
            let n_slots = |period: Duration| (period.as_millis() / HEARTBEAT_TICK.as_millis()).max(1) as u64;
            let lease_period = lease_period(names.len());
            let (lease_slots, status_slots) = (n_slots(lease_period), n_slots(STATUS_EVERY));
            let due: Vec<(Key, bool, bool)> = names
                .into_iter()
                .enumerate()
                .filter_map(|(i, key)| {
                    let i = i as u64;
                    let lease = i % lease_slots == tick % lease_slots;
                    // The first statuses were written when the node was first seen.
                    let status = tick >= status_slots && i % status_slots == tick % status_slots;
                    (lease || status).then_some((key, lease, status))
                })
                .collect();
            let beats = futures::stream::iter(due).map(|(key, lease, status)| async move {
                let Some(node) = self.cx.nodes.get(&key) else { return };
                if node_plan::failed(&node) || node.metadata.deleting() {
                    return;
                }
                if lease && let Err(error) = self.renew_lease(&node, lease_period).await {
                    tracing::debug!(node = %key, %error, "a lease was not renewed");
                }
                if status && let Err(error) = self.write_node(&key, &node, true).await {
                    tracing::debug!(node = %key, %error, "a heartbeat was not written");
                }
            });
            use futures::StreamExt;
            let round = beats.buffer_unordered(WRITERS).collect::<Vec<()>>();
            if self.cx.cancel.run_until_cancelled(round).await.is_none() {
                return;
            }
            tick += 1;
            if self.cx.cancel.run_until_cancelled(tokio::time::sleep(HEARTBEAT_TICK)).await.is_none() {
                return;
            }
        }
    }

    async fn renew_lease(&self, node: &Node, period: Duration) -> Result<(), ApiError> {
        let name = &node.metadata.name;
        let spec = json!({
            "holderIdentity": name,
            "leaseDurationSeconds": period.as_secs() * 4,
            "renewTime": micro_stamp(self.cx.clock.now()),
        });
        let path = LEASES.path(LEASE_NAMESPACE, name, "");
        match self.cx.api.patch_path(&path, Patch::Merge, &json!({"spec": spec})).await {
            Err(error) if error.not_found() => {
                let lease = json!({
                    "apiVersion": LEASES.api_version(),
                    "kind": LEASES.kind,
                    "metadata": {
                        "name": name,
                        "namespace": LEASE_NAMESPACE,
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid},
                        ],
                    },
                    "spec": spec,
                });
                self.cx.api.create_path(&LEASES.path(LEASE_NAMESPACE, "", ""), &lease).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    /// Addresses in use from before a restart are not given out again.
    fn read_addresses(&self) {
        let mut memory = self.lock();
        for pod in self.cx.pods.all() {
            if let Ok(ip) = pod.status.pod_ip.parse::<std::net::Ipv4Addr>()
                && ip.octets()[0] == 10
                && ip.octets()[1] < 128
            {
                memory.next_pod_address = memory.next_pod_address.max(u32::from(ip) & 0x7f_ffff);
            }
        }
        for node in self.cx.nodes.all() {
            memory.node_addresses.extend(node.status.addresses.iter().map(|a| a.address.clone()));
        }
        memory.next_node_address = self.cx.options.fleet.n_nodes();
    }

    fn forget(&self, key: &Key) {
        self.lock().forget(key);
    }

    fn forget_uid(&self, key: &Key, uid: &str) {
        let mut memory = self.lock();
        if memory.pods.get(key).is_some_and(|e| *e.uid == *uid) {
            memory.forget(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// A pod is gone: give back what it held.
    fn forget(&mut self, key: &Key) {
        if let Some(entry) = self.pods.remove(key) {
            self.release(&entry.node, &entry.uid);
        }
    }

    /// A pod is over: its life need not be kept.
    fn end(&mut self, key: &Key, pod: &Pod) {
        self.release(&pod.spec.node_name, &pod.metadata.uid);
        if let Some(course) = self.pods.remove(key).and_then(|entry| entry.course)
            && course.behaviour.counts_attempts()
            && !pod.metadata.deleting()
            && course.life.end.as_ref().is_some_and(|e| !e.succeeded)
            && let Some(place) = attempt_place(pod)
        {
            let failed = self.attempts.entry(place).or_insert(0);
            *failed =
                failed.saturating_add(course.life.mains.iter().map(|r| r.restarts).max().unwrap_or(0) + 1);
        }
    }

    /// Remembers what a pod does.
    fn follow(&mut self, key: &Key, pod: &Pod, course: Box<Course>) {
        match self.pods.get_mut(key) {
            Some(entry) if *entry.uid == *pod.metadata.uid => entry.course = Some(course),
            _ => {
                self.pods.insert(key.clone(), Entry::new(pod, course));
            }
        }
    }

    /// Nothing is due for a pod: its status is enough to go on from.
    fn settle(&mut self, key: &Key) {
        if let Some(entry) = self.pods.get_mut(key)
            && entry.course.as_ref().is_some_and(|course| !course.dirty && !course.removed)
        {
            entry.course = None;
        }
    }

    fn earlier_attempts(&self, behaviour: &Behaviour, pod: &Pod) -> u32 {
        let place = if behaviour.counts_attempts() { attempt_place(pod) } else { None };
        place.and_then(|place| self.attempts.get(&place).copied()).unwrap_or(0)
    }

    fn release(&mut self, node: &str, uid: &str) {
        if let Some(books) = self.nodes.get_mut(node) {
            books.release(uid);
        }
    }

    fn pod_address(&mut self) -> String {
        self.next_pod_address = (self.next_pod_address % 0x7f_fffe) + 1;
        let [_, b, c, d] = self.next_pod_address.to_be_bytes();
        format!("10.{b}.{c}.{d}")
    }

    fn node_address(&mut self) -> String {
        loop {
            let address = node_address(self.next_node_address);
            self.next_node_address += 1;
            if self.node_addresses.insert(address.clone()) {
                return address;
            }
        }
    }
}

/// Events about what a kubelet notices of its own node.
fn report_node(cx: &Context, old: &Node, new: &Node) {
    let tell = |reason: &'static str| {
        let message = format!("Node {} status is now: {reason}", new.metadata.name);
        cx.events.on_host(&new.metadata.name, new, false, reason, message);
    };
    if old.spec.unschedulable != new.spec.unschedulable {
        tell(if new.spec.unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" });
    }
    let ready = |n: &Node| condition(&n.status.conditions, "Ready").map(|c| c.status.clone());
    match (ready(old).as_deref(), ready(new).as_deref()) {
        (Some("False" | "Unknown"), Some("True")) => tell("NodeReady"),
        (Some("True"), Some("False")) => tell("NodeNotReady"),
        _ => {}
    }
}

/// The identifiers of those of a pod's devices that are broken.
fn broken_devices(node: &Node, life: &Life) -> BTreeSet<String> {
    if life.devices.is_empty() {
        return BTreeSet::new();
    }
    node_plan::unhealthy_gpus(node).into_iter().map(|slot| gpu_uuid(&node.metadata.name, slot)).collect()
}

/// Pods that stand in the same place of the same owner share their attempts.
fn attempt_place(pod: &Pod) -> Option<(String, String)> {
    let owner = pod.metadata.controller()?.uid.clone();
    let index = pod.metadata.annotation("batch.kubernetes.io/job-completion-index").unwrap_or_default();
    Some((owner, index.to_owned()))
}

/// How often a lease is renewed when there are `n_nodes` of them.
pub fn lease_period(n_nodes: usize) -> Duration {
    let spread = Duration::from_secs(n_nodes.div_ceil(LEASES_PER_SECOND) as u64);
    LEASE_EVERY.max(spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_renewed_at_a_bounded_rate() {
        assert_eq!(lease_period(4).as_secs(), 10);
        assert_eq!(lease_period(200).as_secs(), 10);
        assert_eq!(lease_period(1000).as_secs(), 50);
    }

    #[test]
    fn pod_addresses_stay_below_the_nodes() {
        let mut memory = Memory::default();
        assert_eq!(memory.pod_address(), "10.0.0.1");
        memory.next_pod_address = 0x7f_fffd;
        assert_eq!(memory.pod_address(), "10.127.255.254");
        assert_eq!(memory.pod_address(), "10.0.0.1");
    }
}
