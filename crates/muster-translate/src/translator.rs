//! Objects one by one, in any order, to changes of the cluster.
//!
//! Every object is decoded once, when it is put, into what scheduling needs of it (its facts). What the model holds is then made
//! from the facts of several objects: a pod from its Pod, its BindRequest, its volumes and so on. [`Translator::drain`] remakes
//! what any of its parts may have changed, and yields what has become different.
//!
//! *Invariant:* the changes so far, applied to an empty cluster, are the cluster of the objects that are there now.

use crate::device::{self, Inventory};
use crate::gang::{self, GangFacts, PodGroup, PriorityClass};
use crate::node::{self, NodeFacts};
use crate::numa::{self, ZoneRecord, Zones};
use crate::pod::{self, ClaimRef, PodFacts, Refs, Shared, TermPlace};
use crate::read::{Object, title};
use crate::volume::{self, Storage};
use crate::{Settings, links, queue};
use muster_model::{
    Change, Claim, ClaimUse, Device, DeviceName, Diagnostic, Gang, Key, Labels, Links, Name, Node, Pod,
    Queue, Shape, Time, Topology,
};
use serde_json::Value;
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

    // Which pods look at which kind of other objects.
    using: BTreeMap<Need, BTreeSet<Key>>,
    members: BTreeMap<Key, BTreeSet<Key>>,
    claimants: BTreeMap<Key, BTreeSet<Key>>,

    // What has to be made anew.
    stale: Stale,
    // What was handed out.
    made: Made,
}

/// Kinds of objects that pods depend on, beyond those with their own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Volumes,
    ConfigMaps,
    Namespaces,
    /// Zones and existence of nodes; pods with a BindRequest look at them too.
    Nodes,
    /// Pods that are told to terminate: time changes them.
    Clock,
}

#[derive(Debug, Default)]
struct Stale {
    nodes: BTreeSet<Name>,
    pods: BTreeSet<Key>,
    gangs: BTreeSet<Key>,
    queues: BTreeSet<Name>,
    topologies: BTreeSet<Name>,
    claims: BTreeSet<Key>,
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
}

/// BindRequests by their own names, and by their pods'.
#[derive(Debug, Default)]
struct BindRequests {
    all: BTreeMap<Key, (Key, BindRequest)>,
    of_pods: BTreeMap<Key, BTreeSet<Key>>,
}

impl BindRequests {
    fn insert(&mut self, name: Key, pod: Key, request: BindRequest) {
        self.of_pods.entry(pod.clone()).or_default().insert(name.clone());
        self.all.insert(name, (pod, request));
    }

    /// The pod that it was for.
    fn remove(&mut self, name: &Key) -> Option<Key> {
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
    gpu_groups: Vec<Name>,
    zones: Option<ZoneRecord>,
}

impl Translator {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Moves the clock: pods that were told to terminate become stuck by it.
    pub fn set_now(&mut self, now: Time) {
        if self.settings.now != now {
            self.settings.now = now;
            self.touch(Need::Clock);
        }
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
        let Some(kind) = Kind::of(group, version, kind) else { return };
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
                    self.touch(Need::Nodes);
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
                self.drop_pod(&facts.key);
                self.keep_pod(facts);
            }
            Kind::PodGroup => {
                let group = gang::pod_group(object, &self.settings);
                let key = object.key();
                self.pod_groups.insert(key.clone(), group);
                self.touch_group(key);
            }
            Kind::Topology => {
                let topology = gang::topology(object);
                if self.topologies.get(&name) != Some(&topology) {
                    self.topologies.insert(name.clone(), topology);
                    self.stale.topologies.insert(name);
                    self.touch_gangs(GangFacts::has_topology);
                }
            }
            Kind::PriorityClass => {
                let class = gang::priority_class(object);
                if self.priority_classes.insert(name, class) != Some(class) {
                    self.touch_gangs(|_| true);
                }
            }
            Kind::BindRequest => {
                let before = self.bind_requests.remove(&object.key());
                self.stale.pods.extend(before);
                // KAI names the request after the pod; the field is for those who do not.
                let pod = object.get("spec").get("podName").word().unwrap_or(object.name());
                let pod = Key::new(object.namespace(), pod);
                if let Some(request) = bind_request(object) {
                    self.bind_requests.insert(object.key(), pod.clone(), request);
                    self.stale.pods.insert(pod);
                }
            }
            Kind::PersistentVolumeClaim => {
                self.storage.claims.insert(object.key(), volume::claim(object));
                self.touch(Need::Volumes);
            }
            Kind::PersistentVolume => {
                self.storage.volumes.insert(name, volume::volume(object));
                self.touch(Need::Volumes);
            }
            Kind::StorageClass => {
                self.storage.classes.insert(name, volume::class(object));
                self.touch(Need::Volumes);
            }
            Kind::CsiNode => {
                self.attach_limits.insert(name.clone(), node::attach_limits(object));
                self.stale.nodes.insert(name);
            }
            Kind::NodeResourceTopology => {
                self.zones.insert(name.clone(), numa::zones(object));
                self.stale.nodes.insert(name);
                self.touch(Need::Nodes);
            }
            Kind::Namespace => {
                self.namespaces.insert(name, object.get("metadata").get("labels").labels());
                self.touch(Need::Namespaces);
            }
            Kind::ConfigMap => {
                let key = object.key();
                if &*key.name == GPU_TOPOLOGY {
                    let (links, problems) = links::of_config_map(value);
                    for (field, problem) in problems {
                        object.report(&field, problem);
                    }
                    self.links.insert(key.clone(), links);
                    self.stale.nodes.extend(self.nodes.keys().cloned());
                }
                if self.config_maps.insert(key) {
                    self.touch(Need::ConfigMaps);
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
                    self.stale.claims.extend(self.claims.keys().cloned());
                }
            }
            Kind::ResourceClaim => {
                let key = object.key();
                self.claims.insert(key.clone(), device::claim(object, &self.settings.queue_label));
                self.touch_claim(key);
            }
        }
    }

    fn drop_kind(&mut self, kind: Kind, object: &Object<'_>) {
        let name = object.name();
        match kind {
            Kind::Node => {
                if self.nodes.remove(name).is_some() {
                    self.touch(Need::Nodes);
                }
                self.stale.nodes.insert(name.into());
            }
            Kind::Queue => {
                self.queues.remove(name);
                self.stale.queues.insert(name.into());
            }
            Kind::Pod => self.drop_pod(&object.key()),
            Kind::PodGroup => {
                let key = object.key();
                self.pod_groups.remove(&key);
                self.touch_group(key);
            }
            Kind::Topology => {
                self.topologies.remove(name);
                self.stale.topologies.insert(name.into());
                self.touch_gangs(GangFacts::has_topology);
            }
            Kind::PriorityClass => {
                self.priority_classes.remove(name);
                self.touch_gangs(|_| true);
            }
            Kind::BindRequest => {
                let pod = self.bind_requests.remove(&object.key());
                self.stale.pods.extend(pod);
            }
            Kind::PersistentVolumeClaim => {
                self.storage.claims.remove(&object.key());
                self.touch(Need::Volumes);
            }
            Kind::PersistentVolume => {
                self.storage.volumes.remove(name);
                self.touch(Need::Volumes);
            }
            Kind::StorageClass => {
                self.storage.classes.remove(name);
                self.touch(Need::Volumes);
            }
            Kind::CsiNode => {
                self.attach_limits.remove(name);
                self.stale.nodes.insert(name.into());
            }
            Kind::NodeResourceTopology => {
                self.zones.remove(name);
                self.stale.nodes.insert(name.into());
                self.touch(Need::Nodes);
            }
            Kind::Namespace => {
                self.namespaces.remove(name);
                self.touch(Need::Namespaces);
            }
            Kind::ConfigMap => {
                let key = object.key();
                if self.links.remove(&key).is_some() {
                    self.stale.nodes.extend(self.nodes.keys().cloned());
                }
                if self.config_maps.remove(&key) {
                    self.touch(Need::ConfigMaps);
                }
            }
            Kind::ResourceSlice => {
                let nodes = self.inventory.remove(name);
                self.stale.nodes.extend(nodes);
            }
            Kind::DeviceClass => {
                self.device_classes.remove(name);
                self.stale.claims.extend(self.claims.keys().cloned());
            }
            Kind::ResourceClaim => {
                let key = object.key();
                self.claims.remove(&key);
                self.touch_claim(key);
            }
        }
    }

    fn keep_pod(&mut self, facts: PodFacts) {
        let key = facts.key.clone();
        for need in needs(&facts) {
            self.using.entry(need).or_default().insert(key.clone());
        }
        if let Some(group) = &facts.group {
            self.members.entry(group.clone()).or_default().insert(key.clone());
        }
        for claim in claims_of(&facts) {
            self.claimants.entry(claim).or_default().insert(key.clone());
        }
        self.stale.pods.insert(key.clone());
        if facts.alone.is_some() {
            self.stale.gangs.insert(key.clone());
            self.stale.gangs.insert(aside(&key));
        }
        self.pods.insert(key, facts);
    }

    fn drop_pod(&mut self, key: &Key) {
        let Some(facts) = self.pods.remove(key) else { return };
        for users in self.using.values_mut() {
            users.remove(key);
        }
        if let Some(group) = &facts.group
            && let Some(members) = self.members.get_mut(group)
        {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(group);
            }
        }
        for claim in claims_of(&facts) {
            if let Some(claimants) = self.claimants.get_mut(&claim) {
                claimants.remove(key);
                if claimants.is_empty() {
                    self.claimants.remove(&claim);
                }
            }
        }
        self.stale.pods.insert(key.clone());
        if facts.alone.is_some() {
            self.stale.gangs.insert(key.clone());
            self.stale.gangs.insert(aside(key));
        }
    }

    fn touch_claim(&mut self, key: Key) {
        if let Some(claimants) = self.claimants.get(&key) {
            self.stale.pods.extend(claimants.iter().cloned());
        }
        self.stale.claims.insert(key);
    }

    fn touch(&mut self, need: Need) {
        if let Some(users) = self.using.get(&need) {
            self.stale.pods.extend(users.iter().cloned());
        }
        if need == Need::Nodes {
            self.stale.pods.extend(self.bind_requests.of_pods.keys().cloned());
        }
    }

    /// A PodGroup came, went or changed: so did its gang, and that of a pod of the same name, and what its pods belong to.
    fn touch_group(&mut self, key: Key) {
        if let Some(members) = self.members.get(&key) {
            self.stale.pods.extend(members.iter().cloned());
        }
        self.stale.pods.insert(key.clone());
        self.stale.gangs.insert(aside(&key));
        self.stale.gangs.insert(key);
    }

    fn touch_gangs(&mut self, which: impl Fn(&GangFacts) -> bool) {
        for (key, group) in &self.pod_groups {
            if let PodGroup::Gang(facts) = group
                && which(facts)
            {
                self.stale.gangs.insert(key.clone());
            }
        }
        for (key, pod) in &self.pods {
            if pod.alone.as_ref().is_some_and(|facts| which(facts)) {
                self.stale.gangs.insert(key.clone());
                self.stale.gangs.insert(aside(key));
            }
        }
    }

    /// What has changed since the last time, and what was found to be wrong.
    pub fn drain(&mut self) -> (Vec<Change>, Vec<Diagnostic>) {
        let mut changes = Vec::new();
        let mut stale = std::mem::take(&mut self.stale);
        for name in stale.queues {
            let queue = self.queues.get(&name).cloned();
            update(&mut self.made.queues, name, queue, Change::PutQueue, Change::DropQueue, &mut changes);
        }
        for name in stale.topologies {
            let topology = self.topologies.get(&name).cloned().map(Arc::new);
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
        for key in stale.gangs {
            let gang = self.gang(&key).map(Arc::new);
            update(&mut self.made.gangs, key, gang, Change::PutGang, Change::DropGang, &mut changes);
        }
        for key in stale.pods {
            let pod = self.pod(&key).map(Arc::new);
            update(&mut self.made.pods, key, pod, Change::PutPod, Change::DropPod, &mut changes);
        }
        (changes, std::mem::take(&mut self.diagnostics))
    }

    fn claim(&mut self, key: &Key) -> Option<Claim> {
        let facts = self.claims.get(key)?;
        let (claim, problems) = self.inventory.resolve(facts, &self.device_classes);
        self.diagnostics.extend(problems.into_iter().map(|message| Diagnostic {
            object: format!("ResourceClaim {key}"),
            field: "spec.devices".to_owned(),
            message,
        }));
        Some(claim)
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
        if let Some(group) = self.pod_groups.get(key) {
            let PodGroup::Gang(facts) = group else { return None };
            return Some(facts.resolve(&self.priority_classes, &self.topologies));
        }
        let pod = self.pods.get(&beside(key))?;
        let facts = pod.alone.as_ref()?;
        if self.gang_key(pod).as_ref() != Some(key) {
            return None;
        }
        let mut gang = facts.resolve(&self.priority_classes, &self.topologies);
        gang.key = key.clone();
        Some(gang)
    }

    /// A pod without a group is a gang by its own name, unless a group has that name.
    fn gang_key(&self, pod: &PodFacts) -> Option<Key> {
        if !pod.ours {
            return None;
        }
        match &pod.group {
            Some(group) => Some(group.clone()),
            None if self.pod_groups.contains_key(&pod.key) => Some(aside(&pod.key)),
            None => Some(pod.key.clone()),
        }
    }

    fn pod(&mut self, key: &Key) -> Option<Pod> {
        let facts = self.pods.get(key)?;
        let mut found = Found { pod: key, diagnostics: Vec::new() };
        // A request for a node that is not there binds nothing.
        let request = self.bind_requests.of_pod(key).find(|request| self.nodes.contains_key(&request.node));
        let state = facts.state(request.is_some(), &self.settings);
        let node = facts.node.as_ref().or_else(|| request.map(|request| &request.node));

        let gang = self.gang_key(facts);
        let mut group = None;
        let mut stray = None;
        if let (Some(gang), true) = (&gang, facts.group.is_some()) {
            match self.pod_groups.get(gang) {
                None => found.say(
                    "metadata.annotations[pod-group-name]",
                    format!("PodGroup {} is not there; the pod waits until it is", gang.name),
                ),
                Some(PodGroup::Gang(facts_of_gang)) if !facts_of_gang.is_flat() => {
                    let named = facts.subgroup.as_ref();
                    let known = named.is_some_and(|name| facts_of_gang.has_leaf(name));
                    if known {
                        group = named.cloned();
                    } else if named.is_some() || !facts_of_gang.only_leaf() {
                        group = Some(named.cloned().unwrap_or_else(|| "".into()));
                        let name = named.map_or("none", |name| name);
                        stray = Some(Name::from(format!(
                            "a sub-group without sub-groups to be in; it names {name}"
                        )));
                        found.say(
                            "metadata.labels[kai.scheduler/subgroup-name]",
                            format!(
                                "names {name}, which is no leaf of PodGroup {}; the pod waits until it is",
                                gang.name
                            ),
                        );
                    }
                }
                Some(_) => {}
            }
        }

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
        let gpu_groups = match request {
            Some(request) if facts.gpu_groups.is_empty() => request.gpu_groups.clone(),
            _ => facts.gpu_groups.clone(),
        };
        let waiting = matches!(state, muster_model::PodState::Gated | muster_model::PodState::Pending);
        let shape = match (&facts.refs, stray) {
            (None, None) => Arc::clone(&facts.shape),
            (refs, stray) => {
                let mut shape = Shape::clone(&facts.shape);
                if let Some(refs) = refs {
                    self.resolve(facts, refs, &mut shape, &mut found);
                }
                shape.missing.extend(stray.filter(|_| waiting));
                self.shared.shapes.intern(shape)
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
            nominated: facts.nominated.clone(),
        };
        self.diagnostics.extend(found.diagnostics);
        Some(pod)
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

/// The gang of a lone pod whose own name is a PodGroup's. No object can have such a name.
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

/// The ResourceClaims that a pod names.
fn claims_of(facts: &PodFacts) -> Vec<Key> {
    let named = facts.refs.iter().flat_map(|refs| &refs.claims).filter_map(|(_, claim)| match claim {
        ClaimRef::Named { claim, .. } => Some(Key::new(facts.key.namespace.clone(), claim.clone())),
        ClaimRef::NotMade => None,
    });
    named.collect()
}

fn needs(facts: &PodFacts) -> Vec<Need> {
    let refs = facts.refs.as_deref();
    let has = |test: fn(&Refs) -> bool| refs.is_some_and(test);
    [
        (Need::Volumes, has(|refs| !refs.volumes.is_empty())),
        (Need::ConfigMaps, has(|refs| !refs.config_maps.is_empty())),
        (Need::Namespaces, has(|refs| !refs.namespaces.is_empty())),
        (Need::Nodes, facts.zones_observed.is_some() || facts.zones_predicted.is_some()),
        (Need::Clock, facts.deleted.is_some()),
    ]
    .into_iter()
    .filter_map(|(need, has)| has.then_some(need))
    .collect()
}

/// `None`: it has failed for good, and its pod waits again.
fn bind_request(object: &Object<'_>) -> Option<BindRequest> {
    let spec = object.get("spec");
    let status = object.get("status");
    if status.get("phase").str() == Some("Failed") {
        let attempts = status.get("failedAttempts").int().unwrap_or(0);
        let limit = spec.get("backoffLimit").int();
        if limit.is_none_or(|limit| attempts >= limit) {
            return None;
        }
    }
    let node = spec.get("selectedNode").name()?;
    let zones = spec.get("predictedNUMAZones");
    Some(BindRequest {
        node,
        gpu_groups: spec.get("selectedGPUGroups").names(),
        zones: zones.exists().then(|| numa::record(zones)),
    })
}

/// The kinds that scheduling looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Pod,
    PodGroup,
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
            ("scheduling.run.ai", "BindRequest") => Self::BindRequest,
            ("kai.scheduler", "Topology") if version.starts_with("v1") => Self::Topology,
            ("topology.node.k8s.io", "NodeResourceTopology") => Self::NodeResourceTopology,
            ("resource.k8s.io", "ResourceSlice") => Self::ResourceSlice,
            ("resource.k8s.io", "DeviceClass") => Self::DeviceClass,
            ("resource.k8s.io", "ResourceClaim") => Self::ResourceClaim,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
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
        }
    }
}
