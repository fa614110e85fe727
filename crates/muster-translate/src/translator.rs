//! Objects one by one, in any order, to changes of the cluster.
//!
//! Every object is decoded once, when it is put, into what scheduling needs of it (its facts). What the model holds is then made
//! from the facts of several objects: a pod from its Pod, its BindRequest, its volumes and so on. [`Translator::drain`] remakes
//! what any of its parts may have changed, and yields what has become different.
//!
//! *Invariant:* the changes so far, applied to an empty cluster, are the cluster of the objects that are there now.

use crate::device::{self, Inventory};
use crate::dialects::{self, Dialects, Touched};
use crate::gang::{self, GangFacts, PodGroup, PriorityClass};
use crate::node::{self, NodeFacts};
use crate::numa::{self, ZoneRecord, Zones};
use crate::pod::{self, ClaimRef, Phase, PodFacts, Refs, Shared, TermPlace};
use crate::read::{Object, title};
use crate::volume::{self, Storage};
use crate::{Settings, links, podgang, queue, volcano};
use muster_model::volcano::{DisruptionBudget, NamespaceQuota};
use muster_model::{
    Allocation, Amounts, Change, Claim, ClaimUse, Device, DeviceName, Diagnostic, Dialect, Expr, Gang, Key,
    Labels, Links, Name, Node, NodeTerm, Op, Placement, Pod, Queue, Reach, Resource, Shape, Time, Topology,
    ZoneUse, own_name,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of the ConfigMaps that say how GPUs are joined.
const GPU_TOPOLOGY: &str = "gpu-topology";

/// Holds what it was given, and knows what has changed since the last time it was asked.
#[derive(Debug, Default)]
pub struct Translator {
    settings: Settings,
    shared: Shared,
    diagnostics: Vec<Diagnostic>,

    // What objects say.
    nodes: BTreeMap<Name, NodeFacts>,
    pods: BTreeMap<Key, PodFacts>,
    pod_groups: BTreeMap<Key, PodGroup>,
    queues: BTreeMap<Name, Arc<Queue>>,
    topologies: BTreeMap<Name, Topology>,
    priority_classes: BTreeMap<Name, PriorityClass>,
    bind_requests: BindRequests,
    storage: Storage,
    attach_limits: BTreeMap<Name, BTreeMap<Name, u32>>,
    zones: BTreeMap<Name, Zones>,
    namespaces: BTreeMap<Name, Labels>,
    config_maps: BTreeSet<Key>,
    links: BTreeMap<Key, BTreeMap<Name, Links>>,
    inventory: Inventory,
    device_classes: BTreeMap<Name, device::ClassFacts>,
    claims: BTreeMap<Key, device::ClaimFacts>,
    /// `None`: another shard's.
    volcano_groups: BTreeMap<Key, Option<volcano::GroupFacts>>,
    n_volcano_pods: usize,
    /// Pods of Volcano's that name no group, by the one that is made for them.
    volcano_groupless: BTreeMap<Key, BTreeSet<Key>>,
    hyper_nodes: BTreeMap<Name, volcano::HyperNodeFacts>,
    budgets: BTreeMap<Key, Arc<DisruptionBudget>>,
    quotas: BTreeMap<Key, Arc<NamespaceQuota>>,
    dialects: Dialects,

    // What was decided and is not yet to be seen in the objects.
    assumed: BTreeMap<Key, Assumed>,
    nominated: BTreeMap<Key, Name>,

    // Which pods look at which kind of other objects.
    using: BTreeMap<Need, BTreeSet<Key>>,
    users: BTreeMap<Ref, BTreeSet<Key>>,
    // Who holds shared GPUs for others, by the GPU's id; and who shares them, by node and id.
    reservations: BTreeMap<Name, BTreeSet<Key>>,
    sharers: BTreeMap<(Name, Name), BTreeSet<Key>>,
    // Groups of which some pods have succeeded.
    ending: BTreeMap<Key, Ending>,

    // What has to be made anew.
    stale: Stale,
    // What was handed out.
    made: Made,
    /// The last changes gave nobody room, and asked for none.
    quiet: bool,
}

/// An object that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ref {
    PodGroup(Key),
    VolumeClaim(Key),
    ResourceClaim(Key),
    ConfigMap(Key),
}

impl Ref {
    fn resource_claim(self) -> Option<Key> {
        match self {
            Self::ResourceClaim(key) => Some(key),
            _ => None,
        }
    }
}

/// What pods depend on without naming it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Whether ConfigMaps are known at all.
    ConfigMaps,
    Namespaces,
    /// Zones and existence of nodes; pods with a BindRequest look at them too.
    Nodes,
    /// Pods that are told to terminate: time changes them.
    Clock,
}

/// What has to be made anew. Whatever concerns many is only marked, and spread once when all is in.
#[derive(Debug, Default)]
struct Stale {
    nodes: BTreeSet<Name>,
    pods: BTreeSet<Key>,
    gangs: BTreeSet<Key>,
    queues: BTreeSet<Name>,
    topologies: BTreeSet<Name>,
    claims: BTreeSet<Key>,
    volumes: BTreeSet<Name>,
    storage_classes: bool,
    priority_classes: bool,
    all_nodes: bool,
    all_claims: bool,
    hyper_nodes: bool,
    budgets: BTreeSet<Key>,
    quotas: BTreeSet<Key>,
    needs: BTreeSet<Need>,
}

#[derive(Debug, Default)]
struct Made {
    nodes: BTreeMap<Name, Arc<Node>>,
    pods: BTreeMap<Key, Arc<Pod>>,
    gangs: BTreeMap<Key, Arc<Gang>>,
    queues: BTreeMap<Name, Arc<Queue>>,
    topologies: BTreeMap<Name, Arc<Topology>>,
    devices: BTreeMap<DeviceName, Arc<Device>>,
    claims: BTreeMap<Key, Arc<Claim>>,
    budgets: BTreeMap<Key, Arc<DisruptionBudget>>,
    quotas: BTreeMap<Key, Arc<NamespaceQuota>>,
}

/// A group of which some pods have succeeded.
#[derive(Debug, Default)]
struct Ending {
    n_succeeded: u32,
    /// Those of its pods that have no node.
    waiting: BTreeSet<Key>,
}

/// What is taken for granted about a pod, for the pod of this uid only.
#[derive(Debug)]
struct Assumed {
    uid: Name,
    fate: Fate,
}

#[derive(Debug)]
enum Fate {
    Placed(BindRequest),
    Leaves,
    /// It waits, and is not to be placed: what was decided of it has just been refused.
    HeldBack,
}

/// BindRequests by their own names, and by their pods'.
#[derive(Debug, Default)]
struct BindRequests {
    all: BTreeMap<Key, (Key, BindRequest)>,
    of_pods: BTreeMap<Key, BTreeSet<Key>>,
    /// Those that failed and are tried again without end, with their uids.
    hopeless: BTreeMap<Key, Name>,
}

impl BindRequests {
    fn insert(&mut self, name: Key, pod: Key, request: BindRequest) {
        self.of_pods.entry(pod.clone()).or_default().insert(name.clone());
        self.all.insert(name, (pod, request));
    }

    /// The pod that it was for.
    fn remove(&mut self, name: &Key) -> Option<Key> {
        self.hopeless.remove(name);
        let (pod, _) = self.all.remove(name)?;
        if let Some(names) = self.of_pods.get_mut(&pod) {
            names.remove(name);
            if names.is_empty() {
                self.of_pods.remove(&pod);
            }
        }
        Some(pod)
    }

    fn of_pod(&self, pod: &Key) -> impl Iterator<Item = &BindRequest> {
        let names = self.of_pods.get(pod).into_iter().flatten();
        names.filter_map(|name| self.all.get(name).map(|(_, request)| request))
    }
}

/// What a BindRequest says, while it holds.
#[derive(Clone, Debug, PartialEq)]
struct BindRequest {
    node: Name,
    /// Devices that were promised, by the pod's names for its claims.
    claims: BTreeMap<Name, Allocation>,
    gpu_groups: Vec<Name>,
    zones: Option<ZoneRecord>,
}

impl Translator {
    pub fn new(settings: Settings) -> Self {
        let mut translator = Self { settings, ..Self::default() };
        if translator.settings.implicit_default_queue {
            translator.stale.queues.insert(translator.settings.default_queue.clone());
        }
        translator
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Moves the clock: pods that were told to terminate become stuck by it.
    pub fn set_now(&mut self, now: Time) {
        if self.settings.now != now {
            self.settings.now = now;
            self.stale.needs.insert(Need::Clock);
        }
    }

    /// Takes for granted that a pod is about to be where a decision puts it, until its object says that it is somewhere, or
    /// it is [forgotten](Self::forget).
    pub fn assume_placed(&mut self, pod: &Key, placement: &Placement) {
        let Some(facts) = self.pods.get(pod) else { return };
        let mut claims: BTreeMap<Name, Allocation> = BTreeMap::new();
        for (claim, request, device) in &placement.devices {
            if let Some(name) = facts.name_of_claim(claim) {
                let allocation = claims.entry(name.clone()).or_insert_with(|| Allocation {
                    devices: Vec::new(),
                    nodes: vec![on_node(&placement.node)],
                });
                allocation.devices.push((request.clone(), device.clone()));
            }
        }
        let zones = self.zones.get(&placement.node);
        let request = BindRequest {
            node: placement.node.clone(),
            claims,
            gpu_groups: placement.gpu_groups.clone(),
            zones: zones.map(|zones| {
                let named = |used: &ZoneUse| Some((zones.name(used.zone)?, used.amounts.clone()));
                placement.zones.iter().filter_map(named).collect()
            }),
        };
        self.assume(pod, Fate::Placed(request));
    }

    /// Takes for granted that a pod is about to go, until its object says so, or it is [forgotten](Self::forget).
    pub fn assume_leaving(&mut self, pod: &Key) {
        self.assume(pod, Fate::Leaves);
    }

    /// Takes for granted that a pod that waits is no good for the moment, as if a gate held it: a gang that needs it is not placed in part. Until
    /// it has a node, or it is [forgotten](Self::forget).
    pub fn hold_back(&mut self, pod: &Key) {
        self.assume(pod, Fate::HeldBack);
    }

    fn assume(&mut self, pod: &Key, fate: Fate) {
        if let Some(facts) = self.pods.get(pod) {
            self.assumed.insert(pod.clone(), Assumed { uid: facts.uid.clone(), fate });
            self.stale.pods.insert(pod.clone());
        }
    }

    /// Takes nothing for granted about a pod any more.
    pub fn forget(&mut self, pod: &Key) {
        if self.assumed.remove(pod).is_some() {
            self.stale.pods.insert(pod.clone());
        }
    }

    /// Bind requests that have failed and that their binder tries again without end, as nothing says how often: each one's own key and uid,
    /// of pods that wait and are this scheduler's by name and shard. Such a pod counts as placed as long as the request is there, for the
    /// binder may succeed at any time: who wants to place it elsewhere has to delete the request first.
    pub fn hopeless_requests(&self) -> impl Iterator<Item = (Key, Name)> + '_ {
        let waits = |request: &Key| {
            let pod = self.bind_requests.all.get(request).and_then(|(pod, _)| self.pods.get(pod));
            pod.is_some_and(|pod| pod.waits() && self.is_here(pod))
        };
        let all = self.bind_requests.hopeless.iter().filter(move |(request, _)| waits(request));
        all.map(|(request, uid)| (request.clone(), uid.clone()))
    }

    /// A pod as it was last handed out.
    pub fn made_pod(&self, key: &Key) -> Option<&Arc<Pod>> {
        self.made.pods.get(key)
    }

    /// A gang as it was last handed out.
    pub fn made_gang(&self, key: &Key) -> Option<&Arc<Gang>> {
        self.made.gangs.get(key)
    }

    /// The pods of a gang as they were last handed out.
    pub fn made_pods_of(&self, gang: &Key) -> impl Iterator<Item = &Arc<Pod>> {
        let named = self.dialects.named_by_pods(gang).into_iter();
        let named =
            named.flat_map(|group| self.users.get(&Ref::PodGroup(group)).into_iter().flatten().cloned());
        let lone = (!self.pod_groups.contains_key(gang)).then(|| beside(gang));
        named.chain(lone).filter_map(|key| self.made.pods.get(&key))
    }

    /// Some queue protects its gangs for a while after they start.
    pub fn has_min_runtimes(&self) -> bool {
        let protects = |queue: &Arc<Queue>| {
            [queue.preempt_min_runtime, queue.reclaim_min_runtime]
                .into_iter()
                .flatten()
                .any(|span| span > muster_model::Span::ZERO)
        };
        self.made.queues.values().any(protects)
    }

    /// Everything that was handed out, as one value.
    pub fn made_cluster(&self) -> muster_model::Cluster {
        muster_model::Cluster {
            now: self.settings.now,
            nodes: self.made.nodes.values().cloned().collect(),
            pods: self.made.pods.values().cloned().collect(),
            gangs: self.made.gangs.values().cloned().collect(),
            queues: self.made.queues.values().cloned().collect(),
            topologies: self.made.topologies.values().cloned().collect(),
            devices: self.made.devices.values().cloned().collect(),
            claims: self.made.claims.values().cloned().collect(),
            budgets: self.made.budgets.values().cloned().collect(),
            quotas: self.made.quotas.values().cloned().collect(),
        }
    }

    /// The nodes that pods were promised; earlier promises no longer count.
    pub fn nominate(&mut self, promises: impl IntoIterator<Item = (Key, Name)>) {
        let promises: BTreeMap<Key, Name> = promises.into_iter().collect();
        if promises == self.nominated {
            return;
        }
        self.stale.pods.extend(self.nominated.keys().chain(promises.keys()).cloned());
        self.nominated = promises;
    }

    /// What a placement says about a pod's claims and zones, in the form of a BindRequest's `resourceClaimAllocations` and
    /// `predictedNUMAZones`.
    pub fn placement_fields(&self, pod: &Key, placement: &Placement) -> (Vec<(Name, Value)>, Option<Value>) {
        let mut claims: BTreeMap<Name, &Key> = BTreeMap::new();
        let mut devices: BTreeMap<&Key, Vec<(Name, DeviceName)>> = BTreeMap::new();
        let facts = self.pods.get(pod);
        for (claim, request, device) in &placement.devices {
            if let Some(name) = facts.and_then(|facts| facts.name_of_claim(claim)) {
                claims.insert(name.clone(), claim);
                devices.entry(claim).or_default().push((request.clone(), device.clone()));
            }
        }
        let reach = |device: &DeviceName| self.inventory.device(device).map(|device| device.reach);
        let allocations = claims.into_iter().map(|(name, claim)| {
            let given = devices.remove(claim).unwrap_or_default();
            let allocation = match self.claims.get(claim) {
                Some(facts) => facts.allocation_json(&given, &placement.node, reach, &self.device_classes),
                // It was deleted since.
                None => {
                    let results = given.iter().map(|(request, device)| device::result_json(request, device));
                    let results: Vec<Value> = results.collect();
                    json!({"devices": {"results": results}, "nodeSelector": device::only_on(&placement.node)})
                }
            };
            (name, allocation)
        });
        let zones = self.zones.get(&placement.node).filter(|_| !placement.zones.is_empty());
        let zones = zones.map(|zones| numa::record_json(&placement.zones, zones));
        (allocations.collect(), zones)
    }

    /// Takes an object in place of the one with its name, if there is one. Lists are taken item by item, unknown kinds not at all.
    pub fn put(&mut self, value: &Value) {
        self.take(value, true);
    }

    /// Forgets an object; only its kind and name are read.
    pub fn delete(&mut self, value: &Value) {
        self.take(value, false);
    }

    fn take(&mut self, value: &Value, present: bool) {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("");
        let kind = text("kind");
        if kind.ends_with("List")
            && let Some(items) = value.get("items").and_then(Value::as_array)
        {
            for item in items {
                let nested = item.get("items").is_some();
                if !nested {
                    self.take(item, present);
                }
            }
            return;
        }
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        if let Some(kind) = Kind::of(group, version, kind) {
            self.take_as(kind, value, present);
        }
    }

    /// Takes an object that is known to be of a kind, whether or not it says so.
    pub fn put_as(&mut self, kind: Kind, value: &Value) {
        self.take_as(kind, value, true);
    }

    /// Forgets an object by its name.
    pub fn delete_as(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.take_as(kind, &json!({"metadata": {"namespace": namespace, "name": name}}), false);
    }

    fn take_as(&mut self, kind: Kind, value: &Value, present: bool) {
        let object = Object::new(kind.name(), value);
        if object.name().is_empty() {
            self.diagnostics.push(Diagnostic {
                object: title(kind.name(), value),
                field: "metadata.name".to_owned(),
                message: "is absent; the object is left out until it has one".to_owned(),
            });
            return;
        }
        if present {
            self.put_kind(kind, &object, value);
        } else {
            self.drop_kind(kind, &object);
        }
        self.diagnostics.extend(object.into_diagnostics());
    }

    fn put_kind(&mut self, kind: Kind, object: &Object<'_>, value: &Value) {
        let name: Name = object.name().into();
        let in_pool = self.settings.in_pool(object);
        match kind {
            Kind::Node if in_pool => {
                let facts = node::node(object);
                if self.nodes.insert(name.clone(), facts).is_none() {
                    self.stale.needs.insert(Need::Nodes);
                }
                self.stale.nodes.insert(name);
            }
            Kind::Queue if in_pool => {
                self.queues.insert(name.clone(), Arc::new(queue::queue(object)));
                self.stale.queues.insert(name);
            }
            // It may have been in the pool before.
            Kind::Node | Kind::Queue => self.drop_kind(kind, object),
            Kind::Pod => {
                let facts = pod::pod(object, &self.settings, &mut self.shared);
                self.note_start(&facts.key, Some(&facts));
                self.drop_pod(&facts.key);
                // What was taken for granted has come to be, or concerns another pod.
                if self.assumed.get(&facts.key).is_some_and(|assumed| assumed.is_settled_by(&facts)) {
                    self.assumed.remove(&facts.key);
                }
                self.keep_pod(facts);
            }
            Kind::PodGroup => {
                let group = gang::pod_group(object, &self.settings);
                let key = object.key();
                self.pod_groups.insert(key.clone(), group);
                self.touch_group(key);
            }
            Kind::PodGang => {
                let metadata = object.key();
                let key = podgang::key(&metadata.namespace, &metadata.name);
                match podgang::pod_gang(object.root().raw().unwrap_or(&Value::Null), &self.settings) {
                    Some((group, found)) => {
                        self.diagnostics.extend(found);
                        self.pod_groups.insert(key.clone(), group);
                    }
                    None => drop(self.pod_groups.remove(&key)),
                }
                self.touch_group(key);
            }
            Kind::Topology => {
                let topology = gang::topology(object);
                if self.topologies.get(&name) != Some(&topology) {
                    self.topologies.insert(name.clone(), topology);
                    self.stale.topologies.insert(name);
                }
            }
            Kind::PriorityClass => {
                let class = gang::priority_class(object);
                if self.priority_classes.insert(name, class) != Some(class) {
                    self.stale.priority_classes = true;
                }
            }
            Kind::BindRequest => {
                let before = self.bind_requests.remove(&object.key());
                self.stale.pods.extend(before);
                // KAI names the request after the pod; the field is for those who do not.
                let pod = object.get("spec").get("podName").word().unwrap_or(object.name());
                let pod = Key::new(object.namespace(), pod);
                if let Some((request, hopeless)) = bind_request(object) {
                    self.bind_requests.hopeless.extend(hopeless.map(|uid| (object.key(), uid)));
                    self.bind_requests.insert(object.key(), pod.clone(), request);
                    self.stale.pods.insert(pod);
                }
            }
            Kind::PersistentVolumeClaim => {
                let key = object.key();
                self.storage.claims.insert(key.clone(), volume::claim(object));
                self.touch(&Ref::VolumeClaim(key));
            }
            Kind::PersistentVolume => {
                self.storage.put_volume(name.clone(), volume::volume(object));
                self.stale.volumes.insert(name);
            }
            Kind::StorageClass => {
                self.storage.classes.insert(name, volume::class(object));
                self.stale.storage_classes = true;
            }
            Kind::CsiNode => {
                self.attach_limits.insert(name.clone(), node::attach_limits(object));
                self.stale.nodes.insert(name);
            }
            Kind::NodeResourceTopology => {
                self.zones.insert(name.clone(), numa::zones(object));
                self.stale.nodes.insert(name);
                self.stale.needs.insert(Need::Nodes);
            }
            Kind::Namespace => {
                self.namespaces.insert(name, object.get("metadata").get("labels").labels());
                self.stale.needs.insert(Need::Namespaces);
            }
            Kind::ConfigMap => {
                let key = object.key();
                if &*key.name == GPU_TOPOLOGY {
                    let (links, problems) = links::of_config_map(value);
                    for (field, problem) in problems {
                        object.report(&field, problem);
                    }
                    self.links.insert(key.clone(), links);
                    self.stale.all_nodes = true;
                }
                if self.config_maps.insert(key.clone()) {
                    self.touch_config_map(key);
                }
            }
            Kind::ResourceSlice => {
                let nodes = self.inventory.put(name, device::slice(object));
                self.stale.nodes.extend(nodes);
            }
            Kind::DeviceClass => {
                let class = device::class(object);
                if self.device_classes.get(&name) != Some(&class) {
                    self.device_classes.insert(name, class);
                    self.stale.all_claims = true;
                }
            }
            Kind::VolcanoPodGroup => {
                let key = volcano::gang_key(object);
                self.volcano_groups.insert(key.clone(), in_pool.then(|| volcano::pod_group(object)));
                self.touch_group(key);
                self.stale.queues.extend(volcano::implicit_queues());
            }
            Kind::VolcanoQueue => {
                let queue = volcano::queue(object);
                self.stale.queues.insert(queue.name.clone());
                self.queues.insert(queue.name.clone(), Arc::new(queue));
            }
            Kind::HyperNode => {
                self.hyper_nodes.insert(name, volcano::hyper_node(object));
                self.stale.hyper_nodes = true;
            }
            Kind::PodDisruptionBudget => {
                let key = object.key();
                self.budgets.insert(key.clone(), Arc::new(volcano::disruption_budget(object)));
                self.stale.budgets.insert(key);
            }
            Kind::ResourceQuota => {
                let key = object.key();
                self.quotas.insert(key.clone(), Arc::new(volcano::namespace_quota(object)));
                self.stale.quotas.insert(key);
            }
            Kind::T9kPodGroup
            | Kind::T9kQueue
            | Kind::KoordinatorPodGroup
            | Kind::ElasticQuota
            | Kind::KubernetesPodGroup
            | Kind::Workload => self.take_of_dialect(kind, object, true),
            Kind::ResourceClaim => {
                let key = object.key();
                self.claims.insert(key.clone(), device::claim(object, &self.settings.queue_label));
                self.touch(&Ref::ResourceClaim(key.clone()));
                self.stale.claims.insert(key);
            }
        }
    }

    fn drop_kind(&mut self, kind: Kind, object: &Object<'_>) {
        let name = object.name();
        match kind {
            Kind::Node => {
                if self.nodes.remove(name).is_some() {
                    self.stale.needs.insert(Need::Nodes);
                }
                self.stale.nodes.insert(name.into());
            }
            Kind::Queue => {
                self.queues.remove(name);
                self.stale.queues.insert(name.into());
            }
            Kind::Pod => {
                self.note_start(&object.key(), None);
                self.drop_pod(&object.key());
                self.assumed.remove(&object.key());
            }
            Kind::PodGroup => {
                let key = object.key();
                self.pod_groups.remove(&key);
                self.touch_group(key);
            }
            Kind::PodGang => {
                let metadata = object.key();
                let key = podgang::key(&metadata.namespace, &metadata.name);
                self.pod_groups.remove(&key);
                self.touch_group(key);
            }
            Kind::Topology => {
                self.topologies.remove(name);
                self.stale.topologies.insert(name.into());
            }
            Kind::PriorityClass => {
                self.priority_classes.remove(name);
                self.stale.priority_classes = true;
            }
            Kind::BindRequest => {
                let pod = self.bind_requests.remove(&object.key());
                self.stale.pods.extend(pod);
            }
            Kind::PersistentVolumeClaim => {
                let key = object.key();
                self.storage.claims.remove(&key);
                self.touch(&Ref::VolumeClaim(key));
            }
            Kind::PersistentVolume => {
                self.storage.remove_volume(name);
                self.stale.volumes.insert(name.into());
            }
            Kind::StorageClass => {
                self.storage.classes.remove(name);
                self.stale.storage_classes = true;
            }
            Kind::CsiNode => {
                self.attach_limits.remove(name);
                self.stale.nodes.insert(name.into());
            }
            Kind::NodeResourceTopology => {
                self.zones.remove(name);
                self.stale.nodes.insert(name.into());
                self.stale.needs.insert(Need::Nodes);
            }
            Kind::Namespace => {
                self.namespaces.remove(name);
                self.stale.needs.insert(Need::Namespaces);
            }
            Kind::ConfigMap => {
                let key = object.key();
                if self.links.remove(&key).is_some() {
                    self.stale.all_nodes = true;
                }
                if self.config_maps.remove(&key) {
                    self.touch_config_map(key);
                }
            }
            Kind::ResourceSlice => {
                let nodes = self.inventory.remove(name);
                self.stale.nodes.extend(nodes);
            }
            Kind::DeviceClass => {
                self.device_classes.remove(name);
                self.stale.all_claims = true;
            }
            Kind::VolcanoPodGroup => {
                let key = volcano::gang_key(object);
                self.volcano_groups.remove(&key);
                self.touch_group(key);
                self.stale.queues.extend(volcano::implicit_queues());
            }
            Kind::VolcanoQueue => {
                let name = volcano::queue_name(name);
                self.queues.remove(&name);
                self.stale.queues.insert(name);
            }
            Kind::HyperNode => {
                self.hyper_nodes.remove(name);
                self.stale.hyper_nodes = true;
            }
            Kind::PodDisruptionBudget => {
                let key = object.key();
                self.budgets.remove(&key);
                self.stale.budgets.insert(key);
            }
            Kind::ResourceQuota => {
                let key = object.key();
                self.quotas.remove(&key);
                self.stale.quotas.insert(key);
            }
            Kind::T9kPodGroup
            | Kind::T9kQueue
            | Kind::KoordinatorPodGroup
            | Kind::ElasticQuota
            | Kind::KubernetesPodGroup
            | Kind::Workload => self.take_of_dialect(kind, object, false),
            Kind::ResourceClaim => {
                let key = object.key();
                self.claims.remove(&key);
                self.touch(&Ref::ResourceClaim(key.clone()));
                self.stale.claims.insert(key);
            }
        }
    }

    /// An object of one of the small dialects.
    fn take_of_dialect(&mut self, kind: Kind, object: &Object<'_>, present: bool) {
        let kind = match kind {
            Kind::T9kPodGroup => dialects::Kind::T9kPodGroup,
            Kind::T9kQueue => dialects::Kind::T9kQueue,
            Kind::KoordinatorPodGroup => dialects::Kind::KoordinatorPodGroup,
            Kind::ElasticQuota => dialects::Kind::ElasticQuota,
            Kind::KubernetesPodGroup => dialects::Kind::PodGroup,
            Kind::Workload => dialects::Kind::Workload,
            _ => return,
        };
        let Touched { gangs, groups, begins, queues, topologies, all } =
            self.dialects.take(kind, object, present, &self.settings);
        self.stale.gangs.extend(gangs);
        for group in groups {
            self.touch_group(group);
        }
        if let Some(start) = begins {
            let beginning = format!("{}/", start.name);
            let from = Ref::PodGroup(Key::new(start.namespace.clone(), &*beginning));
            let of_workload = |object: &Ref| match object {
                Ref::PodGroup(key) if key.namespace == start.namespace => {
                    key.name.starts_with(&*beginning).then(|| key.clone())
                }
                _ => None,
            };
            let named: Vec<Key> =
                self.users.range(from..).map_while(|(object, _)| of_workload(object)).collect();
            for group in named {
                self.touch_group(group);
            }
        }
        self.stale.queues.extend(queues);
        self.stale.topologies.extend(topologies);
        // Gangs and pods say the name of their queue, or none; either way they are of another now.
        if let Some(dialect) = all {
            self.stale.queues.extend(self.dialects.queue_names(dialect));
            self.stale.gangs.extend(self.dialects.gangs(dialect));
            let theirs =
                self.pods.values().filter(|pod| pod.member.as_ref().is_some_and(|m| m.dialect() == dialect));
            for pod in theirs {
                self.stale.pods.insert(pod.key.clone());
                if pod.group.is_none() {
                    self.stale.gangs.insert(pod.key.clone());
                    self.stale.gangs.insert(aside(&pod.key));
                }
            }
        }
    }

    fn keep_pod(&mut self, facts: PodFacts) {
        for need in needs(&facts) {
            self.using.entry(need).or_default().insert(facts.key.clone());
        }
        for object in refs(&facts) {
            let users = self.users.entry(object.clone()).or_default();
            users.insert(facts.key.clone());
            if users.len() == 1 {
                self.touch_named(object);
            }
        }
        for group in held_for_others(&facts) {
            self.reservations.entry(group.clone()).or_default().insert(facts.key.clone());
        }
        self.touch_pod(&facts, true);
        self.note_ending(&facts, true);
        let made_for = facts.made_group.as_ref().and(facts.group.clone());
        let key = facts.key.clone();
        let before = made_for.as_ref().and_then(|group| self.is_volcano_group_here(group));
        self.pods.insert(key.clone(), facts);
        if let Some(group) = made_for {
            self.volcano_groupless.entry(group.clone()).or_default().insert(key);
            self.touch_moved(group, before);
        }
    }

    fn drop_pod(&mut self, key: &Key) {
        let made_for = |pod: &PodFacts| pod.made_group.as_ref().and(pod.group.clone());
        let made_for = self.pods.get(key).and_then(made_for);
        let before = made_for.as_ref().and_then(|group| self.is_volcano_group_here(group));
        let Some(facts) = self.pods.remove(key) else { return };
        for users in self.using.values_mut() {
            users.remove(key);
        }
        for object in refs(&facts) {
            if let Some(users) = self.users.get_mut(&object) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(&object);
                    self.touch_named(object);
                }
            }
        }
        for group in held_for_others(&facts) {
            leave(&mut self.reservations, group, key);
        }
        self.touch_pod(&facts, false);
        self.note_ending(&facts, false);
        if let Some(group) = made_for {
            leave(&mut self.volcano_groupless, &group, key);
            self.touch_moved(group, before);
        }
    }

    /// The pod that a group of Volcano's is made for came or went: if it is of another shard now, so are all its pods.
    fn touch_moved(&mut self, group: Key, before: Option<bool>) {
        if self.is_volcano_group_here(&group) != before {
            self.touch(&Ref::PodGroup(group));
        }
    }

    /// A pod changes, or goes. A group that does not say when it started did so with the first of its pods that run; to look at all of them
    /// for each would take too long.
    fn note_start(&mut self, key: &Key, now: Option<&PodFacts>) {
        // The gangs of the other systems, and lone pods', are made anew with every pod.
        fn of(pod: &PodFacts) -> Option<(&Key, Time)> {
            Some((
                pod.group.as_ref().filter(|_| pod.member.is_none() && pod.volcano.is_none())?,
                pod.start()?,
            ))
        }
        let (was, is) = (self.pods.get(key).and_then(of), now.and_then(of));
        if was == is {
            return;
        }
        let made = |group: &Key| self.made.gangs.get(group).and_then(|gang| gang.last_start);
        let lost = was.filter(|(group, start)| made(group) == Some(*start));
        let gained = is.filter(|(group, start)| made(group).is_none_or(|first| *start < first));
        let groups: Vec<Key> = lost.into_iter().chain(gained).map(|(group, _)| group.clone()).collect();
        self.stale.gangs.extend(groups);
    }

    /// Counts a pod that came or went among those of its group that have succeeded, or that wait after others have.
    fn note_ending(&mut self, facts: &PodFacts, came: bool) {
        let Some(group) = &facts.group else { return };
        let succeeded = facts.phase == Phase::Succeeded;
        if succeeded && came && !self.ending.contains_key(group) {
            let members = self.users.get(&Ref::PodGroup(group.clone())).into_iter().flatten();
            let waits = |key: &&Key| self.pods.get(*key).is_some_and(PodFacts::waits);
            let waiting = members.filter(waits).cloned().collect();
            self.ending.insert(group.clone(), Ending { n_succeeded: 0, waiting });
        }
        let Some(ending) = self.ending.get_mut(group) else { return };
        match (succeeded, came) {
            (true, true) => ending.n_succeeded += 1,
            (true, false) => ending.n_succeeded = ending.n_succeeded.saturating_sub(1),
            (false, true) if facts.waits() => drop(ending.waiting.insert(facts.key.clone())),
            (false, _) => drop(ending.waiting.remove(&facts.key)),
        }
        if ending.n_succeeded == 0 {
            self.ending.remove(group);
        }
        if matches!(self.pod_groups.get(group), Some(PodGroup::Gang(facts)) if facts.ends()) {
            self.stale.gangs.insert(group.clone());
        }
    }

    fn touch_pod(&mut self, facts: &PodFacts, came: bool) {
        if facts.member.is_some() {
            let was_here = self.dialects.is_here(facts);
            let gangs = self.dialects.note_pod(facts, came);
            if let [before, after] = gangs.as_slice()
                && (before != after || was_here != self.dialects.is_here(facts))
            {
                for gang in [before, after] {
                    let named = self.dialects.named_by_pods(gang);
                    named.into_iter().for_each(|group| self.touch(&Ref::PodGroup(group)));
                }
            }
            self.stale.gangs.extend(gangs);
            self.stale.queues.extend(self.dialects.brought_by(facts));
        }
        self.stale.claims.extend(refs(facts).into_iter().filter_map(Ref::resource_claim));
        self.stale.pods.insert(facts.key.clone());
        // Which sub-groups and roles a Volcano group has is said by its pods.
        if facts.volcano.is_some() {
            self.stale.gangs.extend(facts.group.clone());
            self.n_volcano_pods =
                if came { self.n_volcano_pods + 1 } else { self.n_volcano_pods.saturating_sub(1) };
            if self.n_volcano_pods <= 1 {
                self.stale.queues.extend(volcano::implicit_queues());
            }
        }
        if facts.alone.is_some() {
            self.stale.gangs.insert(facts.key.clone());
            self.stale.gangs.insert(aside(&facts.key));
        }
    }

    /// An object that pods name came, went or changed.
    fn touch(&mut self, object: &Ref) {
        if let Some(users) = self.users.get(object) {
            self.stale.pods.extend(users.iter().cloned());
        }
    }

    /// The first pod that names a group came, or the last went: a lone pod of that name steps aside, or back.
    fn touch_named(&mut self, object: Ref) {
        if let Ref::PodGroup(key) = object
            && self.pods.get(&key).is_some_and(|pod| pod.group.is_none())
        {
            self.stale.gangs.insert(aside(&key));
            self.stale.gangs.insert(key.clone());
            self.stale.pods.insert(key);
        }
    }

    /// The first and the last ConfigMap say whether ConfigMaps are known at all.
    fn touch_config_map(&mut self, key: Key) {
        self.touch(&Ref::ConfigMap(key));
        if self.config_maps.len() <= 1 {
            self.stale.needs.insert(Need::ConfigMaps);
        }
    }

    /// A PodGroup came, went or changed: so did its gang, and that of a pod of the same name, and what its pods belong to.
    fn touch_group(&mut self, key: Key) {
        self.touch(&Ref::PodGroup(key.clone()));
        self.stale.pods.insert(key.clone());
        self.stale.gangs.insert(aside(&key));
        self.stale.gangs.insert(key);
    }

    /// Spreads what concerns many.
    fn spread(&self, stale: &mut Stale) {
        for need in &stale.needs {
            stale.pods.extend(self.using.get(need).into_iter().flatten().cloned());
            if *need == Need::Nodes {
                stale.pods.extend(self.bind_requests.of_pods.keys().cloned());
            }
        }
        if stale.storage_classes || !stale.volumes.is_empty() {
            for claim in self.storage.lookers(&stale.volumes) {
                let users = self.users.get(&Ref::VolumeClaim(claim.clone()));
                stale.pods.extend(users.into_iter().flatten().cloned());
            }
        }
        if stale.priority_classes {
            stale.gangs.extend(self.volcano_groups.keys().cloned());
            stale.gangs.extend(self.volcano_groupless.keys().cloned());
            for dialect in [Dialect::Koordinator, Dialect::Kubernetes] {
                stale.gangs.extend(self.dialects.gangs(dialect));
            }
            // Some gangs are there by what pods say alone: those of a Workload.
            stale.gangs.extend(self.pods.values().filter_map(|pod| self.dialects.gang_of(pod)));
        }
        if stale.priority_classes || !stale.topologies.is_empty() {
            let concerns = |facts: &GangFacts| stale.priority_classes || facts.has_topology();
            for (key, group) in &self.pod_groups {
                if matches!(group, PodGroup::Gang(facts) if concerns(facts)) {
                    stale.gangs.insert(key.clone());
                }
            }
            for (key, pod) in &self.pods {
                if pod.alone.as_ref().is_some_and(|facts| concerns(facts)) {
                    stale.gangs.insert(key.clone());
                    stale.gangs.insert(aside(key));
                }
            }
        }
        // Devices may have been promised to a pod before its claim says so.
        for refs in stale.pods.iter().filter_map(|key| self.pods.get(key)).map(refs) {
            stale.claims.extend(refs.into_iter().filter_map(Ref::resource_claim));
        }
        if stale.all_nodes {
            stale.nodes.extend(self.nodes.keys().cloned());
        }
        if stale.all_claims {
            stale.claims.extend(self.claims.keys().cloned());
        }
    }

    /// What has changed since the last time, and what was found to be wrong.
    pub fn drain(&mut self) -> (Vec<Change>, Vec<Diagnostic>) {
        let mut changes = Vec::new();
        let mut stale = std::mem::take(&mut self.stale);
        self.spread(&mut stale);
        // Whose a pod is, is said by several objects; what quotas may use is divided once all are in.
        if self.dialects.counts_pods() {
            for key in &stale.pods {
                let here = self.pods.get(key).is_some_and(|pod| self.is_here(pod));
                self.dialects.count(key, here);
            }
        }
        let nodes_changed = !stale.nodes.is_empty();
        let (nodes, trees) = (&self.nodes, &self.settings.trees);
        let capacity = || {
            let mut sum = Amounts::new();
            let own = nodes.values().filter(|facts| {
                trees.is_empty() || Reach::allows(trees, Dialect::Koordinator, &facts.node.labels)
            });
            own.for_each(|facts| sum.add_all(&facts.node.allocatable));
            sum
        };
        stale.queues.extend(self.dialects.divide(capacity, nodes_changed));
        let has_volcano = self.n_volcano_pods > 0 || !self.volcano_groups.is_empty();
        for name in stale.queues {
            let implicit = self.settings.implicit_default_queue && name == self.settings.default_queue;
            let queue = self.queues.get(&name).cloned().or_else(|| self.dialects.queue(&name).map(Arc::new));
            let queue = queue.or_else(|| implicit.then(|| Arc::new(queue::unlimited(&name))));
            let queue = queue.or_else(|| {
                let implicit = self.settings.implicit_default_queue && has_volcano;
                implicit.then(|| volcano::implicit_queue(&name)).flatten().map(Arc::new)
            });
            update(&mut self.made.queues, name, queue, Change::PutQueue, Change::DropQueue, &mut changes);
        }
        if stale.hyper_nodes || (!self.hyper_nodes.is_empty() && !stale.nodes.is_empty()) {
            stale.topologies.insert(volcano::HYPERNODES.into());
        }
        for name in stale.topologies {
            let topology = if &*name == volcano::HYPERNODES {
                volcano::hypernodes(&self.hyper_nodes, self.nodes.values().map(|facts| &facts.node))
                    .map(Arc::new)
            } else {
                let topology = self.topologies.get(&name).cloned();
                topology.or_else(|| self.dialects.topology(&name)).map(Arc::new)
            };
            update(
                &mut self.made.topologies,
                name,
                topology,
                Change::PutTopology,
                Change::DropTopology,
                &mut changes,
            );
        }
        let gpu_nodes = if stale.nodes.is_empty() { BTreeSet::new() } else { self.inventory.gpu_nodes() };
        for name in stale.nodes {
            let node = self.node(&name, &gpu_nodes).map(Arc::new);
            update(&mut self.made.nodes, name, node, Change::PutNode, Change::DropNode, &mut changes);
        }
        let (devices, answered_anew) = self.inventory.refresh();
        for name in devices {
            let device = self.inventory.device(&name).map(Arc::new);
            update(&mut self.made.devices, name, device, Change::PutDevice, Change::DropDevice, &mut changes);
        }
        if answered_anew {
            stale.claims.extend(self.claims.keys().cloned());
        }
        for key in stale.claims {
            let claim = self.claim(&key).map(Arc::new);
            update(&mut self.made.claims, key, claim, Change::PutClaim, Change::DropClaim, &mut changes);
        }
        self.inventory.tidy(self.claims.len());
        // Where there is nothing of Volcano's, nobody looks at these.
        let n_before = changes.len();
        for key in stale.budgets {
            let budget = self.budgets.get(&key).cloned();
            update(&mut self.made.budgets, key, budget, Change::PutBudget, Change::DropBudget, &mut changes);
        }
        for key in stale.quotas {
            let quota = self.quotas.get(&key).cloned();
            update(&mut self.made.quotas, key, quota, Change::PutQuota, Change::DropQuota, &mut changes);
        }
        let mut n_quiet = if has_volcano { 0 } else { changes.len() - n_before };
        for key in stale.gangs {
            let gang = self.gang(&key).map(Arc::new);
            let before = self.made.gangs.get(&key);
            let quiet = before.zip(gang.as_ref()).is_some_and(|(old, new)| has_only_started(old, new));
            let n = changes.len();
            update(&mut self.made.gangs, key, gang, Change::PutGang, Change::DropGang, &mut changes);
            n_quiet += if quiet { changes.len() - n } else { 0 };
        }
        let mut shared = std::mem::take(&mut self.shared);
        // Those who hold a GPU for others come last: what they hold depends on whether anybody shares it.
        let reserves = |key: &Key| self.pods.get(key).is_some_and(|facts| facts.reserved > 0);
        let (mut last, mut first): (BTreeSet<Key>, BTreeSet<Key>) =
            stale.pods.into_iter().partition(reserves);
        while let Some(key) = first.pop_first().or_else(|| last.pop_first()) {
            let (pod, found) = self
                .pod(&key, &mut shared)
                .map_or((None, Vec::new()), |(pod, found)| (Some(Arc::new(pod)), found));
            self.diagnostics.extend(found);
            let before = self.made.pods.get(&key);
            let quiet = before.zip(pod.as_ref()).is_some_and(|(old, new)| is_only_further(old, new));
            let (was, is) = (shares(before), shares(pod.as_ref()));
            if was != is {
                for share in &was {
                    leave(&mut self.sharers, share, &key);
                }
                for share in &is {
                    self.sharers.entry(share.clone()).or_default().insert(key.clone());
                }
                let holders = was.iter().chain(&is).filter_map(|(_, group)| self.reservations.get(group));
                last.extend(holders.flatten().cloned());
            }
            let n = changes.len();
            update(&mut self.made.pods, key, pod, Change::PutPod, Change::DropPod, &mut changes);
            n_quiet += if quiet { changes.len() - n } else { 0 };
        }
        self.quiet = n_quiet == changes.len();
        self.shared = shared;
        (changes, std::mem::take(&mut self.diagnostics))
    }

    /// Whether the changes that were last drained cannot lead to a new decision: pods have only come further on their way (from bound to
    /// running, say), or nothing changed at all.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    fn claim(&mut self, key: &Key) -> Option<Claim> {
        let facts = self.claims.get(key)?;
        let (mut claim, problems) = self.inventory.resolve(facts, &self.device_classes);
        if claim.allocation.is_none()
            && let Some((allocation, uid)) = self.promised(key)
        {
            claim.allocation = Some(allocation);
            claim.reserved_for.push(uid);
            claim.reserved_for.sort();
            claim.reserved_for.dedup();
        }
        self.diagnostics.extend(problems.into_iter().map(|message| Diagnostic {
            object: format!("ResourceClaim {key}"),
            field: "spec.devices".to_owned(),
            message,
        }));
        Some(claim)
    }

    /// The devices that a bind request promises for a claim, and to which pod.
    fn promised(&self, claim: &Key) -> Option<(Allocation, Name)> {
        let users = self.users.get(&Ref::ResourceClaim(claim.clone()))?;
        users.iter().find_map(|key| {
            let pod = self.pods.get(key)?;
            let request = self.bind_request(key)?;
            Some((request.claims.get(pod.name_of_claim(claim)?)?.clone(), pod.uid.clone()))
        })
    }

    /// The bind request that speaks for a pod. One for a node that is not there binds nothing.
    fn bind_request(&self, pod: &Key) -> Option<&BindRequest> {
        let assumed = self.assumed.get(pod).and_then(|assumed| match &assumed.fate {
            Fate::Placed(request) => Some(request),
            Fate::Leaves | Fate::HeldBack => None,
        });
        let mut requests = assumed.into_iter().chain(self.bind_requests.of_pod(pod));
        requests.find(|request| self.nodes.contains_key(&request.node))
    }

    fn node(&self, name: &Name, gpu_nodes: &BTreeSet<Name>) -> Option<Node> {
        let facts = self.nodes.get(name)?;
        let links = self.links.values().find_map(|nodes| nodes.get(name));
        Some(node::assemble(
            facts,
            self.zones.get(name),
            self.attach_limits.get(name),
            gpu_nodes.contains(name),
            links,
        ))
    }

    fn gang(&self, key: &Key) -> Option<Gang> {
        let mut gang = self.unstarted_gang(key)?;
        // Volcano protects nobody for having started lately.
        if gang.last_start.is_none() && gang.volcano.is_none() {
            gang.last_start = self.first_start(key);
        }
        Some(gang)
    }

    /// When the first of a gang's pods that run was given its node.
    fn first_start(&self, gang: &Key) -> Option<Time> {
        let named = self.dialects.named_by_pods(gang).into_iter();
        let named =
            named.flat_map(|group| self.users.get(&Ref::PodGroup(group)).into_iter().flatten().cloned());
        let lone = (!self.pod_groups.contains_key(gang)).then(|| beside(gang));
        let pods = named.chain(lone).filter_map(|key| self.pods.get(&key));
        let started = pods.filter_map(|pod| Some((pod.start()?, pod)));
        started.filter(|(_, pod)| self.gang_key(pod).as_ref() == Some(gang)).map(|(start, _)| start).min()
    }

    /// The gang as its own objects have it.
    fn unstarted_gang(&self, key: &Key) -> Option<Gang> {
        if key.name.starts_with(volcano::PREFIX) {
            let group = self.volcano_group(key)?;
            let pods = self.users.get(&Ref::PodGroup(key.clone())).into_iter().flatten();
            let facts = pods.filter_map(|pod| self.pods.get(pod));
            let said = facts.filter_map(|pod| Some((&*pod.labels, &pod.volcano.as_ref()?.role)));
            return Some(group.resolve(said, &self.priority_classes));
        }
        if dialects::is_of(key).is_some() {
            let pods_of = |group: Key| {
                let pods = self.users.get(&Ref::PodGroup(group)).into_iter().flatten();
                pods.filter_map(|pod| self.pods.get(pod)).collect::<Vec<_>>()
            };
            let parts: Vec<Vec<&PodFacts>> =
                self.dialects.named_by_pods(key).into_iter().map(pods_of).collect();
            return self.dialects.gang(key, &parts, &self.priority_classes);
        }
        if let Some(group) = self.pod_groups.get(key) {
            let PodGroup::Gang(facts) = group else { return None };
            let mut gang = facts.resolve(&self.priority_classes, &self.topologies, &self.settings);
            // Only then does it matter; otherwise the gang would change whenever one of its pods ends.
            if let Some(ending) = self.ending.get(key).filter(|ending| !ending.waiting.is_empty()) {
                facts.lower(&mut gang, ending.n_succeeded);
            }
            return Some(gang);
        }
        let pod = self.pods.get(&beside(key))?;
        let facts = pod.alone.as_ref()?;
        // What is over is no gang any more; clusters keep such pods by the thousand.
        if pod.is_over() || self.gang_key(pod).as_ref() != Some(key) {
            return None;
        }
        if let Some(gang) = self.dialects.gang_of_one(key, pod, &self.priority_classes) {
            return Some(gang);
        }
        let mut gang = facts.resolve(&self.priority_classes, &self.topologies, &self.settings);
        gang.key = key.clone();
        Some(gang)
    }

    /// The pod group of a gang of Volcano's in this shard: as somebody made it, or as Volcano's controller would for the first of its pods.
    fn volcano_group(&self, gang: &Key) -> Option<&volcano::GroupFacts> {
        match self.volcano_groups.get(gang) {
            Some(group) => group.as_ref(),
            None => self.first_groupless(gang).filter(|pod| pod.in_pool)?.made_group.as_deref(),
        }
    }

    /// Whether a group of Volcano's is this shard's; `None`: there is none.
    fn is_volcano_group_here(&self, gang: &Key) -> Option<bool> {
        let made = self.volcano_groups.get(gang).map(Option::is_some);
        made.or_else(|| self.first_groupless(gang).map(|pod| pod.in_pool))
    }

    /// The first of the pods that name no group and that Volcano's controller would put into this one.
    fn first_groupless(&self, gang: &Key) -> Option<&PodFacts> {
        self.pods.get(self.volcano_groupless.get(gang)?.first()?)
    }

    /// Whether a pod is for this scheduler to place, by the scheduler's name and by shard: that of its group, so that no gang is split, or
    /// its own where it has none. Those that are not only take room.
    fn is_here(&self, pod: &PodFacts) -> bool {
        let by_group = || {
            let group = pod.group.as_ref()?;
            match () {
                () if pod.member.is_some() => self.dialects.is_here(pod),
                () if pod.volcano.is_some() => self.is_volcano_group_here(group),
                () => self.pod_groups.get(group).map(PodGroup::is_here),
            }
        };
        pod.ours && by_group().unwrap_or(pod.in_pool)
    }

    /// Whether a group has this name, or will have by what pods say.
    fn is_named(&self, key: &Key) -> bool {
        self.pod_groups.contains_key(key) || self.users.contains_key(&Ref::PodGroup(key.clone()))
    }

    /// The gang of a pod that is for this scheduler to place. A pod without a group is a gang by its own name, unless a group has that
    /// name or pods name one that is yet to come.
    fn gang_key(&self, pod: &PodFacts) -> Option<Key> {
        if pod.awaits_group || !self.is_here(pod) {
            return None;
        }
        Some(match &pod.group {
            Some(group) => self.dialects.gang_of(pod).unwrap_or_else(|| group.clone()),
            None if self.is_named(&pod.key) => aside(&pod.key),
            None => pod.key.clone(),
        })
    }

    fn pod(&self, key: &Key, shared: &mut Shared) -> Option<(Pod, Vec<Diagnostic>)> {
        let facts = self.pods.get(key)?;
        let mut found = Found { pod: key, diagnostics: Vec::new() };
        let request = self.bind_request(key);
        let mut state = facts.state(request.is_some(), &self.settings);
        match self.assumed.get(key).map(|assumed| &assumed.fate) {
            Some(Fate::Leaves) if state.stays() => state = muster_model::PodState::Releasing,
            Some(Fate::HeldBack) if state == muster_model::PodState::Pending => {
                state = muster_model::PodState::Gated;
            }
            _ => {}
        }
        let node = facts.node.as_ref().or_else(|| request.map(|request| &request.node));

        let gang = self.gang_key(facts);
        let (group, stray) = self.membership(facts, gang.as_ref(), &mut found);
        let record = facts
            .zones_observed
            .as_ref()
            .or_else(|| request.and_then(|request| request.zones.as_ref()))
            .or(facts.zones_predicted.as_ref());
        let zones = match (record, node) {
            (Some(record), Some(node)) => {
                let (zones, unknown) = numa::resolve(record, self.zones.get(node));
                for zone in unknown {
                    found.say(
                        "metadata.annotations",
                        format!("zone {zone} is none of node {node}; it is ignored"),
                    );
                }
                zones
            }
            _ => Vec::new(),
        };
        // What a pod without a node says of shared GPUs is of an attempt that may be over.
        let gpu_groups = match request.filter(|request| !request.gpu_groups.is_empty()) {
            Some(request) if facts.gpu_groups.is_empty() || facts.node.is_none() => {
                request.gpu_groups.clone()
            }
            _ => facts.gpu_groups.clone(),
        };
        let held = self.held_for_nobody(facts, state);
        if held > 0 && state.stays() {
            // It is going to be deleted, since nobody needs it.
            state = muster_model::PodState::Releasing;
        }
        let waiting = matches!(state, muster_model::PodState::Gated | muster_model::PodState::Pending);
        let is_here = self.is_here(facts);
        let (only, hindrance) = if is_here { self.dialects.rules(facts) } else { (&[][..], None) };
        let stray = stray.or(hindrance);
        let shape = match (&facts.refs, stray) {
            (None, None) if held == 0 && only.is_empty() => Arc::clone(&facts.shape),
            (refs, stray) => {
                let mut shape = Shape::clone(&facts.shape);
                shape.node.all.extend_from_slice(only);
                if held > 0 {
                    shape.requests.set(Resource::Gpu, held);
                }
                if let Some(refs) = refs {
                    self.resolve(facts, refs, &mut shape, &mut found);
                }
                shape.missing.extend(stray.filter(|_| waiting));
                shared.shapes.intern(shape)
            }
        };
        let pod = Pod {
            key: facts.key.clone(),
            uid: facts.uid.clone(),
            gang,
            group,
            created: facts.created,
            state,
            node: if waiting { None } else { node.cloned() },
            shape,
            labels: Arc::clone(&facts.labels),
            rank: facts.rank,
            task_priority: facts.task_priority,
            gpu_groups,
            gpus: Vec::new(),
            zones,
            nominated: self.nominated.get(key).or(facts.nominated.as_ref()).cloned(),
            volcano: if is_here { self.task(facts) } else { None },
        };
        Some((pod, found.diagnostics))
    }

    /// What a pod holds for others who are not there (any more, or yet): its GPU is taken until it is gone. While somebody shares the
    /// GPU, the shares are what counts.
    fn held_for_nobody(&self, facts: &PodFacts, state: muster_model::PodState) -> i64 {
        let Some(node) = facts.node.as_ref().filter(|_| facts.reserved > 0 && state.holds_room()) else {
            return 0;
        };
        let is_shared = |group: &Name| self.sharers.contains_key(&(node.clone(), group.clone()));
        if facts.gpu_groups.iter().any(is_shared) { 0 } else { facts.reserved }
    }

    /// What a pod says to Volcano, with the devices that its claims ask for.
    fn task(&self, facts: &PodFacts) -> Option<Arc<muster_model::volcano::Task>> {
        let task = facts.volcano.as_ref()?;
        let claims = facts.refs.iter().flat_map(|refs| &refs.claims);
        let mut devices = Vec::new();
        for (_, wanted) in claims {
            let ClaimRef::Named { claim, .. } = wanted else { continue };
            let key = Key::new(facts.key.namespace.clone(), claim.clone());
            if let Some(claim) = self.claims.get(&key) {
                devices.extend(claim.by_class().into_iter().map(|(class, n)| (key.clone(), class, n)));
            }
        }
        if devices.is_empty() {
            return Some(Arc::clone(task));
        }
        Some(Arc::new(muster_model::volcano::Task { devices, ..muster_model::volcano::Task::clone(task) }))
    }

    /// The leaf group that a pod is in, and what is missing if it is in none.
    fn membership(
        &self,
        pod: &PodFacts,
        gang: Option<&Key>,
        found: &mut Found<'_>,
    ) -> (Option<Name>, Option<Name>) {
        let Some(gang) = gang.filter(|_| pod.group.is_some()) else { return (None, None) };
        if pod.member.is_some() {
            return match self.dialects.leaf_of(pod, gang) {
                Ok(leaf) => (leaf, None),
                Err(dialects::GroupMissing) => {
                    if !pod.is_over() {
                        let name = dialects::shown(&gang.name);
                        let message =
                            format!("the group {name} that it names is not there; the pod waits until it is");
                        found.say("", message);
                    }
                    (None, None)
                }
            };
        }
        if let (Some(task), Some(group)) = (&pod.volcano, self.volcano_group(gang)) {
            return (Some(group.leaf_of(&pod.labels, &task.role)), None);
        }
        let facts = match self.pod_groups.get(gang) {
            Some(PodGroup::Gang(facts)) if !facts.is_flat() => facts,
            Some(_) => return (None, None),
            None => {
                // What is over outlives its group.
                if !pod.is_over() {
                    let message =
                        format!("PodGroup {} is not there; the pod waits until it is", own_name(&gang.name));
                    found.say("metadata.annotations[pod-group-name]", message);
                }
                return (None, None);
            }
        };
        match &pod.subgroup {
            Some(name) if facts.has_leaf(name) => (Some(name.clone()), None),
            None if facts.only_leaf() => (None, None),
            named => {
                let name = named.clone().unwrap_or_else(|| "".into());
                let shown = if name.is_empty() { "nothing" } else { &*name };
                if !pod.is_over() {
                    let message = format!(
                        "names {shown}, which is no leaf of PodGroup {}; the pod waits until it is",
                        gang.name
                    );
                    found.say("metadata.labels[kai.scheduler/subgroup-name]", message);
                }
                let missing =
                    format!("a leaf of PodGroup {} to belong to; its label names {shown}", gang.name);
                (Some(name), Some(missing.into()))
            }
        }
    }

    /// Fills in what the pod refers to, and names what is not there.
    fn resolve(&self, facts: &PodFacts, refs: &Refs, shape: &mut Shape, found: &mut Found<'_>) {
        for volume in &refs.volumes {
            match self.storage.resolve(volume, &facts.key, &facts.uid) {
                Ok(used) => shape.volumes.push(used),
                Err(missing) => shape.missing.push(missing),
            }
        }
        for (name, claim) in &refs.claims {
            match claim {
                ClaimRef::NotMade => {
                    shape.missing.push(format!("the ResourceClaim for {name}, made from its template").into())
                }
                ClaimRef::Named { claim, of_template } => {
                    let key = Key::new(facts.key.namespace.clone(), claim.clone());
                    match self.claims.get(&key) {
                        None => shape.missing.push(format!("ResourceClaim {key}").into()),
                        Some(claim) if *of_template && !claim.is_of_pod(&facts.uid) => {
                            shape.missing.push(
                                format!("ResourceClaim {key} of this pod; the one there is another's").into(),
                            );
                        }
                        Some(claim) => {
                            shape.extra_gpu_charge =
                                shape.extra_gpu_charge.saturating_add(claim.gpu_charge());
                            shape.claims.push(ClaimUse { name: name.clone(), claim: key });
                        }
                    }
                }
            }
        }
        // Where no ConfigMaps are delivered at all, nothing can be said about them.
        if !self.config_maps.is_empty() {
            for name in &refs.config_maps {
                let key = Key::new(facts.key.namespace.clone(), name.clone());
                if !self.config_maps.contains(&key) {
                    shape.missing.push(format!("ConfigMap {key}").into());
                }
            }
        }
        for (place, selector) in &refs.namespaces {
            let rules = &mut shape.pods;
            let term = match place {
                TermPlace::Affinity(i) => rules.affinity.get_mut(*i),
                TermPlace::AntiAffinity(i) => rules.anti_affinity.get_mut(*i),
                TermPlace::Preferred(i) => rules.preferred.get_mut(*i).map(|(_, term)| term),
            };
            let Some(namespaces) = term.and_then(|term| term.namespaces.as_mut()) else { continue };
            if self.namespaces.is_empty() {
                found.say(
                    "spec.affinity",
                    "selects namespaces by label, and no Namespace objects are there to select from",
                );
            }
            let chosen = self.namespaces.iter().filter(|(_, labels)| selector.matches(labels));
            namespaces.extend(chosen.map(|(name, _)| name.clone()));
            namespaces.sort();
            namespaces.dedup();
        }
    }
}

impl Assumed {
    fn is_settled_by(&self, pod: &PodFacts) -> bool {
        let come_true = match self.fate {
            Fate::Placed(_) | Fate::HeldBack => pod.node.is_some(),
            Fate::Leaves => pod.deleted.is_some(),
        };
        come_true || pod.is_over() || self.uid != pod.uid
    }
}

fn on_node(name: &Name) -> NodeTerm {
    let is = Expr { key: "metadata.name".into(), op: Op::In(vec![name.clone()]) };
    NodeTerm { labels: Vec::new(), names: vec![is] }
}

/// The pod holds what it held, where it held it, and is only further in its life.
fn is_only_further(old: &Pod, new: &Pod) -> bool {
    // How far Volcano's pods are decides on the phase of their group.
    old.volcano.is_none()
        && old.state.stays()
        && new.state.stays()
        && old.node == new.node
        && old.gang == new.gang
        && old.group == new.group
        && old.gpu_groups == new.gpu_groups
        && Arc::ptr_eq(&old.shape, &new.shape)
        && old.labels == new.labels
        && old.zones == new.zones
}

/// The gang is protected from now on, and nothing else is new: nobody can take more than before.
fn has_only_started(old: &Gang, new: &Gang) -> bool {
    old.last_start.is_none() && new.last_start.is_some() && Gang { last_start: None, ..new.clone() } == *old
}

/// The shared GPUs that a pod counts as a holder of, by node and id.
fn shares(pod: Option<&Arc<Pod>>) -> Vec<(Name, Name)> {
    let holds = |pod: &&Arc<Pod>| pod.shape.gpu_share.is_some() && pod.state.holds_room();
    let Some((pod, node)) = pod.filter(holds).and_then(|pod| Some((pod, pod.node.as_ref()?))) else {
        return Vec::new();
    };
    pod.gpu_groups.iter().map(|group| (node.clone(), group.clone())).collect()
}

/// The shared GPUs that a pod holds for others.
fn held_for_others(facts: &PodFacts) -> &[Name] {
    if facts.reserved > 0 { &facts.gpu_groups } else { &[] }
}

fn leave<K: Ord>(all: &mut BTreeMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
    if let Some(keys) = all.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            all.remove(of);
        }
    }
}

/// Replaces what was made under a name, and says so if it is different.
fn update<K: Ord + Clone, T: PartialEq>(
    made: &mut BTreeMap<K, Arc<T>>,
    key: K,
    now: Option<Arc<T>>,
    put: impl FnOnce(Arc<T>) -> Change,
    gone: impl FnOnce(K) -> Change,
    changes: &mut Vec<Change>,
) {
    match now {
        Some(value) => {
            if made.get(&key) != Some(&value) {
                made.insert(key, Arc::clone(&value));
                changes.push(put(value));
            }
        }
        None => {
            if made.remove(&key).is_some() {
                changes.push(gone(key));
            }
        }
    }
}

/// Diagnostics about a pod that come from other objects.
struct Found<'a> {
    pod: &'a Key,
    diagnostics: Vec<Diagnostic>,
}

impl Found<'_> {
    fn say(&mut self, field: &str, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic {
            object: format!("Pod {}", self.pod),
            field: field.to_owned(),
            message: message.into(),
        });
    }
}

/// The gang of a lone pod whose own name is a PodGroup's, there or yet to come. No object can have such a name.
fn aside(key: &Key) -> Key {
    Key::new(key.namespace.clone(), format!("pod/{}", key.name))
}

/// The pod of such a gang.
fn beside(key: &Key) -> Key {
    match key.name.strip_prefix("pod/") {
        Some(name) => Key::new(key.namespace.clone(), name),
        None => key.clone(),
    }
}

/// The objects that a pod names.
fn refs(facts: &PodFacts) -> Vec<Ref> {
    let named = |name: &Name| Key::new(facts.key.namespace.clone(), name.clone());
    let mut all: Vec<Ref> = facts.group.iter().cloned().map(Ref::PodGroup).collect();
    if let Some(refs) = &facts.refs {
        all.extend(refs.volumes.iter().map(|volume| Ref::VolumeClaim(named(&volume.claim))));
        all.extend(refs.config_maps.iter().map(|name| Ref::ConfigMap(named(name))));
        all.extend(refs.claims.iter().filter_map(|(_, claim)| match claim {
            ClaimRef::Named { claim, .. } => Some(Ref::ResourceClaim(named(claim))),
            ClaimRef::NotMade => None,
        }));
    }
    all
}

fn needs(facts: &PodFacts) -> Vec<Need> {
    let has = |test: fn(&Refs) -> bool| facts.refs.as_deref().is_some_and(test);
    [
        (Need::ConfigMaps, has(|refs| !refs.config_maps.is_empty())),
        (Need::Namespaces, has(|refs| !refs.namespaces.is_empty())),
        (Need::Nodes, facts.zones_observed.is_some() || facts.zones_predicted.is_some()),
        (Need::Clock, facts.deleted.is_some()),
    ]
    .into_iter()
    .filter_map(|(need, has)| has.then_some(need))
    .collect()
}

/// A request, and its uid if it has failed and is tried again without end. `None`: it has failed for good, and its pod waits again.
fn bind_request(object: &Object<'_>) -> Option<(BindRequest, Option<Name>)> {
    let spec = object.get("spec");
    let status = object.get("status");
    let mut hopeless = None;
    if status.get("phase").str() == Some("Failed") {
        let attempts = status.get("failedAttempts").int().unwrap_or(0);
        match spec.get("backoffLimit").int() {
            Some(limit) if attempts >= limit => return None,
            Some(_) => {}
            // Binders go on with such a request, so the pod may yet be on its node. One that is about to go need not be deleted.
            None => {
                let metadata = object.get("metadata");
                let leaves = metadata.get("deletionTimestamp").exists();
                hopeless = metadata.get("uid").name().filter(|_| !leaves);
            }
        }
    }
    let node = spec.get("selectedNode").name()?;
    let zones = spec.get("predictedNUMAZones");
    let promised = spec.get("resourceClaimAllocations").list();
    let claims = promised
        .filter_map(|at| Some((at.get("name").name()?, device::allocation(at.get("allocation"))?)))
        .collect();
    let gpu_groups = spec.get("selectedGPUGroups").names();
    let zones = zones.exists().then(|| numa::record(zones));
    Some((BindRequest { node, claims, gpu_groups, zones }, hopeless))
}

/// The kinds that scheduling looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Node,
    Pod,
    PodGroup,
    PodGang,
    Queue,
    Topology,
    PriorityClass,
    BindRequest,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    NodeResourceTopology,
    Namespace,
    ConfigMap,
    ResourceSlice,
    DeviceClass,
    ResourceClaim,
    VolcanoPodGroup,
    VolcanoQueue,
    HyperNode,
    PodDisruptionBudget,
    ResourceQuota,
    T9kPodGroup,
    T9kQueue,
    KoordinatorPodGroup,
    ElasticQuota,
    /// `scheduling.k8s.io/v1alpha2`.
    KubernetesPodGroup,
    /// `scheduling.k8s.io/v1alpha1`, whose gangs are inside.
    Workload,
}

impl Kind {
    fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        if group.is_empty() && version != "v1" {
            return None;
        }
        Some(match (group, kind) {
            ("", "Node") => Self::Node,
            ("", "Pod") => Self::Pod,
            ("", "Namespace") => Self::Namespace,
            ("", "ConfigMap") => Self::ConfigMap,
            ("", "PersistentVolumeClaim") => Self::PersistentVolumeClaim,
            ("", "PersistentVolume") => Self::PersistentVolume,
            ("storage.k8s.io", "StorageClass") => Self::StorageClass,
            ("storage.k8s.io", "CSINode") => Self::CsiNode,
            ("scheduling.k8s.io", "PriorityClass") => Self::PriorityClass,
            ("scheduling.run.ai", "Queue") => Self::Queue,
            ("scheduling.run.ai", "PodGroup") => Self::PodGroup,
            ("scheduler.grove.io", "PodGang") => Self::PodGang,
            ("scheduling.run.ai", "BindRequest") => Self::BindRequest,
            ("kai.scheduler", "Topology") if version.starts_with("v1") => Self::Topology,
            ("topology.node.k8s.io", "NodeResourceTopology") => Self::NodeResourceTopology,
            ("resource.k8s.io", "ResourceSlice") => Self::ResourceSlice,
            ("resource.k8s.io", "DeviceClass") => Self::DeviceClass,
            ("resource.k8s.io", "ResourceClaim") => Self::ResourceClaim,
            ("scheduling.volcano.sh", "PodGroup") => Self::VolcanoPodGroup,
            ("scheduling.volcano.sh", "Queue") => Self::VolcanoQueue,
            ("topology.volcano.sh", "HyperNode") => Self::HyperNode,
            ("policy", "PodDisruptionBudget") => Self::PodDisruptionBudget,
            ("", "ResourceQuota") => Self::ResourceQuota,
            ("scheduler.tensorstack.dev", "PodGroup") => Self::T9kPodGroup,
            ("scheduler.tensorstack.dev", "Queue") => Self::T9kQueue,
            ("scheduling.sigs.k8s.io", "PodGroup") => Self::KoordinatorPodGroup,
            ("scheduling.sigs.k8s.io", "ElasticQuota") => Self::ElasticQuota,
            ("scheduling.k8s.io", "PodGroup") => Self::KubernetesPodGroup,
            ("scheduling.k8s.io", "Workload") if version == "v1alpha1" => Self::Workload,
            _ => return None,
        })
    }

    /// Every kind, what others refer to before those who refer to it.
    pub const ALL: [Self; 29] = [
        Self::Namespace,
        Self::PriorityClass,
        Self::Queue,
        Self::Topology,
        Self::Node,
        Self::NodeResourceTopology,
        Self::CsiNode,
        Self::StorageClass,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::ConfigMap,
        Self::DeviceClass,
        Self::ResourceSlice,
        Self::ResourceClaim,
        Self::VolcanoQueue,
        Self::HyperNode,
        Self::PodDisruptionBudget,
        Self::ResourceQuota,
        Self::T9kQueue,
        Self::ElasticQuota,
        Self::PodGroup,
        Self::PodGang,
        Self::VolcanoPodGroup,
        Self::T9kPodGroup,
        Self::KoordinatorPodGroup,
        Self::KubernetesPodGroup,
        Self::Workload,
        Self::BindRequest,
        Self::Pod,
    ];

    /// A name that no other kind has: its own, with the group where several systems have a kind of this name.
    pub fn id(self) -> String {
        let shared = |other: &Self| *other != self && other.name() == self.name();
        match self {
            Self::PodGroup | Self::Queue => self.name().to_owned(),
            kind if Self::ALL.iter().any(shared) => format!("{}.{}", kind.name(), kind.resource().0),
            kind => kind.name().to_owned(),
        }
    }

    /// Where objects of this kind are in the API: the group and version to ask for, and the plural.
    pub fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Node => ("", "v1", "nodes"),
            Self::Pod => ("", "v1", "pods"),
            Self::Namespace => ("", "v1", "namespaces"),
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::PersistentVolumeClaim => ("", "v1", "persistentvolumeclaims"),
            Self::PersistentVolume => ("", "v1", "persistentvolumes"),
            Self::StorageClass => ("storage.k8s.io", "v1", "storageclasses"),
            Self::CsiNode => ("storage.k8s.io", "v1", "csinodes"),
            Self::PriorityClass => ("scheduling.k8s.io", "v1", "priorityclasses"),
            Self::Queue => ("scheduling.run.ai", "v2", "queues"),
            Self::PodGroup => ("scheduling.run.ai", "v2alpha2", "podgroups"),
            Self::PodGang => ("scheduler.grove.io", "v1alpha1", "podgangs"),
            Self::BindRequest => ("scheduling.run.ai", "v1alpha2", "bindrequests"),
            Self::Topology => ("kai.scheduler", "v1alpha1", "topologies"),
            Self::NodeResourceTopology => ("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies"),
            Self::ResourceSlice => ("resource.k8s.io", "v1", "resourceslices"),
            Self::DeviceClass => ("resource.k8s.io", "v1", "deviceclasses"),
            Self::ResourceClaim => ("resource.k8s.io", "v1", "resourceclaims"),
            Self::VolcanoPodGroup => ("scheduling.volcano.sh", "v1beta1", "podgroups"),
            Self::VolcanoQueue => ("scheduling.volcano.sh", "v1beta1", "queues"),
            Self::HyperNode => ("topology.volcano.sh", "v1alpha1", "hypernodes"),
            Self::PodDisruptionBudget => ("policy", "v1", "poddisruptionbudgets"),
            Self::ResourceQuota => ("", "v1", "resourcequotas"),
            Self::T9kPodGroup => ("scheduler.tensorstack.dev", "v1beta1", "podgroups"),
            Self::T9kQueue => ("scheduler.tensorstack.dev", "v1beta1", "queues"),
            Self::KoordinatorPodGroup => ("scheduling.sigs.k8s.io", "v1alpha1", "podgroups"),
            Self::ElasticQuota => ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas"),
            Self::KubernetesPodGroup => ("scheduling.k8s.io", "v1alpha2", "podgroups"),
            Self::Workload => ("scheduling.k8s.io", "v1alpha1", "workloads"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
            Self::PodGang => "PodGang",
            Self::Queue => "Queue",
            Self::Topology => "Topology",
            Self::PriorityClass => "PriorityClass",
            Self::BindRequest => "BindRequest",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::PersistentVolume => "PersistentVolume",
            Self::StorageClass => "StorageClass",
            Self::CsiNode => "CSINode",
            Self::NodeResourceTopology => "NodeResourceTopology",
            Self::Namespace => "Namespace",
            Self::ConfigMap => "ConfigMap",
            Self::ResourceSlice => "ResourceSlice",
            Self::DeviceClass => "DeviceClass",
            Self::ResourceClaim => "ResourceClaim",
            Self::VolcanoPodGroup => "PodGroup",
            Self::VolcanoQueue => "Queue",
            Self::HyperNode => "HyperNode",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::ResourceQuota => "ResourceQuota",
            Self::T9kPodGroup | Self::KoordinatorPodGroup | Self::KubernetesPodGroup => "PodGroup",
            Self::T9kQueue => "Queue",
            Self::ElasticQuota => "ElasticQuota",
            Self::Workload => "Workload",
        }
    }
}
