//! Devices of dynamic resource allocation: ResourceSlices, DeviceClasses and ResourceClaims, in all the versions of `resource.k8s.io`
//! that have structured parameters.
//!
//! Selectors are evaluated here: a request of the model is the set of devices that it would take. A device whose taints a request
//! does not tolerate is not in that set, so the model's own mark for tainted devices stays unset.

use crate::cel::Selector;
use crate::read::{At, Object};
use crate::select;
use muster_model::{
    Allocation, Claim, Device, DeviceAlternative, DeviceCount, DeviceName, DeviceReach, DeviceRequest, Expr,
    GPU, Name, Op,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The device's own domain, or one that an attribute names: `(domain, name)`.
pub(crate) type Qualified = (Name, Name);

/// A device with all that selectors can ask about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeviceFacts {
    pub(crate) device: Device,
    pub(crate) attributes: BTreeMap<Qualified, Attribute>,
    /// As written, and in nano-units.
    pub(crate) capacity: BTreeMap<Qualified, (Name, i128)>,
    pub(crate) taints: Vec<DeviceTaint>,
    /// Several claims may have a part of it.
    pub(crate) shareable: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Int(i64),
    Bool(bool),
    Text(Name),
    Version(Name),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceTaint {
    key: Name,
    value: Name,
    effect: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceToleration {
    key: Option<Name>,
    value: Option<Name>,
    effect: Option<Name>,
}

impl DeviceToleration {
    fn covers(&self, taint: &DeviceTaint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
    }
}

/// Driver and pool.
pub(crate) type PoolKey = (Name, Name);

/// A ResourceSlice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceFacts {
    pub(crate) pool: PoolKey,
    generation: i64,
    /// The node that it is of, if it is of one.
    pub(crate) node: Option<Name>,
    pub(crate) devices: Vec<DeviceFacts>,
    /// By counter set and counter.
    totals: BTreeMap<Name, i64>,
}

impl SliceFacts {
    /// Devices that are charged as GPUs.
    pub(crate) fn has_gpus(&self) -> bool {
        !self.devices.is_empty() && is_gpu(&self.pool.0)
    }
}

/// KAI knows GPUs by the name of their driver or class.
fn is_gpu(name: &str) -> bool {
    name.contains("gpu")
}

pub(crate) fn slice(object: &Object<'_>) -> SliceFacts {
    let spec = object.get("spec");
    let driver: Name = spec.get("driver").str().unwrap_or("").into();
    let pool: Name = spec.get("pool").get("name").str().unwrap_or("").into();
    let totals = spec
        .get("sharedCounters")
        .list()
        .flat_map(|set| counters(set.get("name"), set.get("counters")))
        .collect();
    let of_slice = reach(spec);
    let per_device = spec.get("perDeviceNodeSelection").bool().unwrap_or(false);
    let mut names = BTreeSet::new();
    let mut devices = Vec::new();
    for at in spec.get("devices").list() {
        // The first beta version had the rest below `basic`.
        let body = if at.get("basic").exists() { at.get("basic") } else { at };
        let Some(name) = at.get("name").name() else {
            at.report("has no name; the device is left out");
            continue;
        };
        if !names.insert(name.clone()) {
            at.report("has a name that another device has; the device is left out");
            continue;
        }
        let reach = match if per_device { reach(body) } else { of_slice.clone() } {
            Some(reach) => reach,
            None => {
                at.report("says not from which nodes it can be used; the device is left out");
                continue;
            }
        };
        devices.push(device(
            body,
            DeviceName { driver: driver.clone(), pool: pool.clone(), device: name },
            reach,
        ));
    }
    SliceFacts {
        generation: spec.get("pool").get("generation").int().unwrap_or(0),
        node: spec.get("nodeName").name(),
        pool: (driver, pool),
        devices,
        totals,
    }
}

fn reach(at: At<'_>) -> Option<DeviceReach> {
    if let Some(node) = at.get("nodeName").name() {
        return Some(DeviceReach::Node(node));
    }
    if at.get("nodeSelector").exists() {
        return Some(DeviceReach::Nodes(select::node_terms(at.get("nodeSelector"))));
    }
    (at.get("allNodes").bool() == Some(true)).then_some(DeviceReach::Everywhere)
}

fn device(at: At<'_>, name: DeviceName, reach: DeviceReach) -> DeviceFacts {
    let qualified = |text: &str| match text.split_once('/') {
        Some((domain, name)) => (domain.into(), name.into()),
        None => (name.driver.clone(), text.into()),
    };
    let mut attributes = BTreeMap::new();
    for (key, at) in at.get("attributes").entries() {
        let value = if let Some(number) = at.get("int").int() {
            Attribute::Int(number)
        } else if let Some(yes) = at.get("bool").bool() {
            Attribute::Bool(yes)
        } else if let Some(text) = at.get("string").str() {
            Attribute::Text(text.into())
        } else if let Some(text) = at.get("version").str() {
            Attribute::Version(text.into())
        } else {
            at.report("must have one of int, bool, string, version; the attribute is left out");
            continue;
        };
        attributes.insert(qualified(key), value);
    }
    let mut capacity = BTreeMap::new();
    for (key, at) in at.get("capacity").entries() {
        // The oldest form is the bare quantity.
        let at = if at.raw().is_some_and(|raw| raw.is_object()) { at.get("value") } else { at };
        if let Some(quantity) = at.quantity() {
            capacity.insert(qualified(key), (quantity.to_string().into(), quantity.nano()));
        }
    }
    let shown = attributes
        .iter()
        .map(|((domain, name), value)| {
            // Values of different types are never equal.
            let text = match value {
                Attribute::Int(number) => format!("int {number}"),
                Attribute::Bool(yes) => format!("bool {yes}"),
                Attribute::Text(text) => format!("string {text}"),
                Attribute::Version(text) => format!("version {text}"),
            };
            (Name::from(format!("{domain}/{name}")), Name::from(text))
        })
        .collect();
    let mut taken: Vec<(Name, i64)> = at
        .get("consumesCounters")
        .list()
        .flat_map(|set| counters(set.get("counterSet"), set.get("counters")))
        .collect();
    taken.sort();
    let taints = at
        .get("taints")
        .list()
        .map(|taint| DeviceTaint {
            key: taint.get("key").str().unwrap_or("").into(),
            value: taint.get("value").str().unwrap_or("").into(),
            effect: taint.get("effect").str().unwrap_or("").into(),
        })
        .filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"))
        .collect();
    DeviceFacts {
        device: Device {
            gpu: is_gpu(&name.driver),
            name,
            reach,
            attributes: shown,
            counters: taken,
            counter_totals: Vec::new(),
            no_schedule: false,
        },
        attributes,
        capacity,
        taints,
        shareable: at.get("allowMultipleAllocations").bool().unwrap_or(false),
    }
}

/// Counters of one set, in whole units.
fn counters(set: At<'_>, counters: At<'_>) -> Vec<(Name, i64)> {
    let set = set.str().unwrap_or("");
    counters
        .entries()
        .filter_map(|(name, at)| {
            let quantity = at.get("value").quantity()?;
            Some((Name::from(format!("{set}/{name}")), quantity.value()))
        })
        .collect()
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassFacts {
    selectors: Vec<Name>,
    /// What drivers are told of devices that are given by it.
    config: Vec<Configuration>,
}

/// What a driver is told, as it was written; for some requests, or (none) for all.
#[derive(Clone, Debug, PartialEq)]
struct Configuration {
    requests: Vec<Name>,
    body: Map<String, Value>,
}

pub(crate) fn class(object: &Object<'_>) -> ClassFacts {
    let spec = object.get("spec");
    ClassFacts { selectors: selectors(spec.get("selectors")), config: config(spec.get("config")) }
}

fn config(list: At<'_>) -> Vec<Configuration> {
    list.list()
        .filter_map(|at| {
            let mut body = at.raw()?.as_object()?.clone();
            body.remove("requests");
            Some(Configuration { requests: at.get("requests").names(), body })
        })
        .collect()
}

impl Configuration {
    /// As it stands in an allocation.
    fn given(&self, source: &str, requests: &[&str]) -> Value {
        let mut all = self.body.clone();
        all.insert("source".into(), source.into());
        if !requests.is_empty() {
            all.insert("requests".into(), json!(requests));
        }
        Value::Object(all)
    }
}

fn selectors(list: At<'_>) -> Vec<Name> {
    list.list()
        .map(|at| {
            at.get("cel").get("expression").name().unwrap_or_else(|| {
                at.report("has no CEL expression; it selects nothing");
                "false".into()
            })
        })
        .collect()
}

/// A ResourceClaim whose requests are not yet sets of devices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimFacts {
    claim: Claim,
    wants: Vec<Vec<Want>>,
    config: Vec<Configuration>,
}

/// What one alternative of a request asks for.
#[derive(Clone, Debug, PartialEq)]
struct Want {
    class: Name,
    selectors: Vec<Name>,
    capacity: BTreeMap<Name, i128>,
    tolerations: Vec<DeviceToleration>,
    /// The same as written, which goes with the devices that are given.
    tolerations_as_written: Option<Value>,
}

/// What selects devices, without the class's name: equal questions are answered once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Query {
    selectors: Vec<Name>,
    capacity: BTreeMap<Name, i128>,
    tolerations: Vec<DeviceToleration>,
}

impl ClaimFacts {
    /// What a pod that uses it is charged, in thousandths of a GPU.
    pub(crate) fn gpu_charge(&self) -> i64 {
        let n = match &self.claim.allocation {
            Some(allocation) => {
                let is_charged = |request: &str, device: &DeviceName| {
                    let name = request.split_once('/').map_or(request, |(name, _)| name);
                    is_gpu(&device.driver)
                        || self
                            .claim
                            .requests
                            .iter()
                            .any(|r| &*r.name == name && r.alternatives.iter().any(|a| a.gpu))
                };
                allocation.devices.iter().filter(|(request, device)| is_charged(request, device)).count()
            }
            None => {
                // Which alternative it will be is not known, and KAI charges none.
                let single = self.claim.requests.iter().filter_map(|request| match &*request.alternatives {
                    [only] if only.gpu && !only.admin => Some(only),
                    _ => None,
                });
                single
                    .map(|only| match only.count {
                        DeviceCount::Exactly(n) => n as usize,
                        DeviceCount::All => 0,
                    })
                    .sum()
            }
        };
        i64::try_from(n).unwrap_or(i64::MAX).saturating_mul(GPU)
    }

    /// How many devices of each class it asks for, as far as that is said.
    pub(crate) fn by_class(&self) -> Vec<(Name, i64)> {
        let firsts = self.claim.requests.iter().zip(&self.wants);
        let counts = firsts.filter_map(|(request, wants)| {
            let count = match request.alternatives.first()?.count {
                DeviceCount::Exactly(n) => i64::from(n),
                DeviceCount::All => return None,
            };
            Some((wants.first()?.class.clone(), count))
        });
        let mut sums: BTreeMap<Name, i64> = BTreeMap::new();
        for (class, count) in counts {
            *sums.entry(class).or_default() += count;
        }
        sums.into_iter().collect()
    }

    pub(crate) fn is_of_pod(&self, uid: &Name) -> bool {
        self.claim.of_pod.as_ref() == Some(uid)
    }

    /// The AllocationResult that gives it devices, each with the request that it is for. In: what is given, to a pod on
    /// which node, and from where each device can be used, as far as that is known.
    pub(crate) fn allocation_json(
        &self,
        given: &[(Name, DeviceName)],
        node: &Name,
        reach: impl Fn(&DeviceName) -> Option<DeviceReach>,
        classes: &BTreeMap<Name, ClassFacts>,
    ) -> Value {
        let results = given.iter().map(|(request, device)| {
            let mut result = result_json(request, device);
            if let Some((alternative, want)) = self.asked_by(request) {
                if alternative.admin {
                    result["adminAccess"] = json!(true);
                }
                if let Some(tolerations) = &want.tolerations_as_written {
                    result["tolerations"] = tolerations.clone();
                }
            }
            result
        });
        let mut devices = json!({"results": results.collect::<Vec<_>>()});
        let config = self.config_json(given, classes);
        if !config.is_empty() {
            devices["config"] = json!(config);
        }
        let mut allocation = json!({"devices": devices});
        let reaches = given.iter().map(|(_, device)| reach(device));
        if let Some(selector) = selector_json(reaches, node) {
            allocation["nodeSelector"] = selector;
        }
        allocation
    }

    /// What drivers are told: that of each class once, with the requests that were served by it, then the claim's own.
    fn config_json(&self, given: &[(Name, DeviceName)], classes: &BTreeMap<Name, ClassFacts>) -> Vec<Value> {
        let mut served: Vec<&Name> = Vec::new();
        for (request, _) in given {
            if !served.contains(&request) {
                served.push(request);
            }
        }
        let mut by_class: Vec<(&Name, Vec<&str>)> = Vec::new();
        for request in &served {
            let Some((_, want)) = self.asked_by(request) else { continue };
            match by_class.iter_mut().find(|(class, _)| **class == want.class) {
                Some((_, requests)) => requests.push(&***request),
                None => by_class.push((&want.class, vec![&***request])),
            }
        }
        let of_classes = by_class.iter().flat_map(|(class, requests)| {
            let config = classes.get(*class).into_iter().flat_map(|class| &class.config);
            config.map(|config| config.given("FromClass", requests))
        });
        // The name of a request stands for all of its alternatives.
        let is_of = |request: &Name, name: &Name| {
            request == name || request.split_once('/').is_some_and(|(parent, _)| parent == &**name)
        };
        let is_served = |name: &Name| served.iter().any(|request| is_of(request, name));
        let of_claim =
            self.config.iter().filter(|c| c.requests.is_empty() || c.requests.iter().any(is_served));
        let of_claim = of_claim.map(|config| {
            config.given("FromClaim", &config.requests.iter().map(|name| &**name).collect::<Vec<_>>())
        });
        of_classes.chain(of_claim).collect()
    }

    /// What the request of a device that was given asked for: `request`, or `request/alternative`.
    fn asked_by(&self, request: &str) -> Option<(&DeviceAlternative, &Want)> {
        let (name, alternative) = request.split_once('/').unwrap_or((request, ""));
        let at = self.claim.requests.iter().position(|r| &*r.name == name)?;
        let alternatives = self.claim.requests.get(at)?.alternatives.iter();
        alternatives.zip(self.wants.get(at)?).find(|(asked, _)| &*asked.name == alternative)
    }
}

/// A device of which no more is known than that a request got it.
pub(crate) fn result_json(request: &str, device: &DeviceName) -> Value {
    json!({
        "request": request,
        "driver": &*device.driver,
        "pool": &*device.pool,
        "device": &*device.device,
    })
}

pub(crate) fn only_on(node: &str) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({"nodeSelectorTerms": [{"matchFields": [field]}]})
}

/// From where all devices can be used: one term with what each of them asks for; `None` if that is everywhere. Where it cannot be
/// said in one term it is the node that was chosen.
fn selector_json(reaches: impl Iterator<Item = Option<DeviceReach>>, node: &Name) -> Option<Value> {
    let (mut labels, mut fields): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for reach in reaches {
        let term = match reach {
            Some(DeviceReach::Everywhere) => continue,
            Some(DeviceReach::Nodes(mut terms)) if terms.len() == 1 => terms.remove(0),
            Some(DeviceReach::Nodes(_) | DeviceReach::Node(_)) | None => return Some(only_on(node)),
        };
        for (exprs, all) in [(&term.labels, &mut labels), (&term.names, &mut fields)] {
            for expr in exprs {
                let Some(expr) = expr_json(expr) else { return Some(only_on(node)) };
                if !all.contains(&expr) {
                    all.push(expr);
                }
            }
        }
    }
    let mut term = Map::new();
    for (name, all) in [("matchExpressions", labels), ("matchFields", fields)] {
        if !all.is_empty() {
            term.insert(name.into(), json!(all));
        }
    }
    (!term.is_empty()).then(|| json!({"nodeSelectorTerms": [term]}))
}

/// `None` for one that nothing satisfies.
fn expr_json(expr: &Expr) -> Option<Value> {
    let texts = |names: &[Name]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let (operator, values) = match &expr.op {
        Op::In(names) => ("In", texts(names)),
        Op::NotIn(names) => ("NotIn", texts(names)),
        Op::Exists => ("Exists", vec![]),
        Op::Absent => ("DoesNotExist", vec![]),
        Op::Above(than) => ("Gt", vec![than.to_string()]),
        Op::Below(than) => ("Lt", vec![than.to_string()]),
        Op::Never => return None,
    };
    let mut json = json!({"key": &*expr.key, "operator": operator});
    if !values.is_empty() {
        json["values"] = json!(values);
    }
    Some(json)
}

pub(crate) fn claim(object: &Object<'_>, queue_label: &str) -> ClaimFacts {
    let devices = object.get("spec").get("devices");
    let mut defect = None;
    let mut requests = Vec::new();
    let mut wants = Vec::new();
    for at in devices.get("requests").list() {
        let alternatives: Vec<(DeviceAlternative, Want)> = if at.get("firstAvailable").exists() {
            at.get("firstAvailable")
                .list()
                .map(|sub| alternative(sub, sub.get("name").str().unwrap_or(""), &mut defect))
                .collect()
        } else {
            // Up to the first beta version the fields were in the request itself.
            let body = if at.get("exactly").exists() { at.get("exactly") } else { at };
            vec![alternative(body, "", &mut defect)]
        };
        let (alternatives, asked) = alternatives.into_iter().unzip();
        requests.push(DeviceRequest { name: at.get("name").str().unwrap_or("").into(), alternatives });
        wants.push(asked);
    }
    let mut same = Vec::new();
    for at in devices.get("constraints").list() {
        match at.get("matchAttribute").name() {
            Some(attribute) => same.push((at.get("requests").names(), attribute)),
            None => {
                at.report("only matchAttribute is understood; the claim is not allocated until then");
                defect = Some("a constraint other than matchAttribute".into());
            }
        }
    }
    let status = object.get("status");
    let allocation = allocation(status.get("allocation"));
    let mut reserved_for: Vec<Name> =
        status.get("reservedFor").list().filter_map(|at| at.get("uid").name()).collect();
    reserved_for.sort();
    reserved_for.dedup();
    let mut owners = object.get("metadata").get("ownerReferences").list();
    let of_pod =
        owners.find(|owner| owner.get("kind").str() == Some("Pod")).and_then(|owner| owner.get("uid").name());
    ClaimFacts {
        claim: Claim {
            key: object.key(),
            requests,
            same,
            allocation,
            reserved_for,
            of_pod,
            queue: object.label(queue_label).filter(|queue| !queue.is_empty()).map(Name::from),
            defect,
        },
        wants,
        config: config(devices.get("config")),
    }
}

/// Which devices were given, and where they can be used.
pub(crate) fn allocation(at: At<'_>) -> Option<Allocation> {
    if !at.exists() {
        return None;
    }
    let results = at.get("devices").get("results").list();
    let devices = results
        .map(|at| {
            let text = |field: &str| Name::from(at.get(field).str().unwrap_or(""));
            (
                text("request"),
                DeviceName { driver: text("driver"), pool: text("pool"), device: text("device") },
            )
        })
        .collect();
    Some(Allocation { devices, nodes: select::node_terms(at.get("nodeSelector")) })
}

fn alternative(at: At<'_>, name: &str, defect: &mut Option<Name>) -> (DeviceAlternative, Want) {
    let class: Name = at.get("deviceClassName").str().unwrap_or("").into();
    let mode = at.get("allocationMode");
    let count = match mode.word().unwrap_or("ExactCount") {
        "ExactCount" => DeviceCount::Exactly(at.get("count").count().unwrap_or(1).max(1)),
        "All" => DeviceCount::All,
        _ => {
            mode.report("must be ExactCount or All; the claim is not allocated until then");
            *defect = Some("an allocation mode that is not known".into());
            DeviceCount::Exactly(1)
        }
    };
    let tolerations: Vec<DeviceToleration> = at
        .get("tolerations")
        .list()
        .map(|t| DeviceToleration {
            key: t.get("key").name(),
            value: (t.get("operator").str() != Some("Exists"))
                .then(|| t.get("value").str().unwrap_or("").into()),
            effect: t.get("effect").name(),
        })
        .collect();
    let capacity = at
        .get("capacity")
        .get("requests")
        .entries()
        .filter_map(|(name, at)| Some((name.into(), at.quantity()?.nano())))
        .collect();
    let alternative = DeviceAlternative {
        name: name.into(),
        candidates: Arc::new([]),
        count,
        admin: at.get("adminAccess").bool().unwrap_or(false),
        gpu: is_gpu(&class),
    };
    let selectors = selectors(at.get("selectors"));
    let tolerations_as_written = at.get("tolerations").raw().filter(|_| !tolerations.is_empty()).cloned();
    (alternative, Want { class, selectors, capacity, tolerations, tolerations_as_written })
}

/// The devices there are, and which of them each question selects.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    slices: BTreeMap<Name, SliceFacts>,
    pools: BTreeMap<PoolKey, BTreeSet<Name>>,
    stale: BTreeSet<PoolKey>,
    /// The devices of the newest generation of each pool.
    present: BTreeMap<PoolKey, BTreeMap<DeviceName, DeviceFacts>>,
    answers: BTreeMap<Query, Answer>,
    /// Answers were thrown away that claims still hold.
    forgot: bool,
}

#[derive(Debug, Default)]
struct Answer {
    selected: BTreeSet<DeviceName>,
    shared: Arc<[DeviceName]>,
    /// The first thing that went wrong, if any did.
    problem: Option<String>,
}

impl Inventory {
    /// The nodes that may be another kind of node by it.
    pub(crate) fn put(&mut self, name: Name, facts: SliceFacts) -> Vec<Name> {
        if self.slices.get(&name) == Some(&facts) {
            return Vec::new();
        }
        let mut nodes = self.remove(&name);
        nodes.extend(facts.node.clone());
        self.pools.entry(facts.pool.clone()).or_default().insert(name.clone());
        self.stale.insert(facts.pool.clone());
        self.slices.insert(name, facts);
        nodes
    }

    pub(crate) fn remove(&mut self, name: &str) -> Vec<Name> {
        let Some(facts) = self.slices.remove(name) else { return Vec::new() };
        if let Some(names) = self.pools.get_mut(&facts.pool) {
            names.remove(name);
            if names.is_empty() {
                self.pools.remove(&facts.pool);
            }
        }
        self.stale.insert(facts.pool);
        facts.node.into_iter().collect()
    }

    /// Slices by node, for those that have GPUs.
    pub(crate) fn gpu_nodes(&self) -> BTreeSet<Name> {
        self.slices.values().filter(|slice| slice.has_gpus()).filter_map(|slice| slice.node.clone()).collect()
    }

    /// Works out what has changed: the devices to look at again, and whether any question has another answer.
    pub(crate) fn refresh(&mut self) -> (BTreeSet<DeviceName>, bool) {
        let mut touched = BTreeSet::new();
        if self.stale.is_empty() {
            return (touched, false);
        }
        let mut answered_anew = std::mem::take(&mut self.forgot);
        let selectors = Selectors::of(self.answers.keys());
        for pool in std::mem::take(&mut self.stale) {
            let before = self.present.remove(&pool).unwrap_or_default();
            let now = self.devices_of(&pool);
            touched.extend(before.keys().chain(now.keys()).cloned());
            for (query, answer) in &mut self.answers {
                let mut changed = false;
                for name in before.keys() {
                    changed |= answer.selected.remove(name);
                }
                for (name, facts) in &now {
                    if selectors.select(query, facts, &mut answer.problem) {
                        changed = true;
                        answer.selected.insert(name.clone());
                    }
                }
                if changed {
                    answer.shared = answer.selected.iter().cloned().collect();
                    answered_anew = true;
                }
            }
            if !now.is_empty() {
                self.present.insert(pool, now);
            }
        }
        (touched, answered_anew)
    }

    pub(crate) fn device(&self, name: &DeviceName) -> Option<Device> {
        let pool = self.present.get(&(name.driver.clone(), name.pool.clone()))?;
        pool.get(name).map(|facts| facts.device.clone())
    }

    /// Only the newest generation of a pool counts, with the counters of all its slices.
    fn devices_of(&self, pool: &PoolKey) -> BTreeMap<DeviceName, DeviceFacts> {
        let slices = || self.pools.get(pool).into_iter().flatten().filter_map(|name| self.slices.get(name));
        let newest = slices().map(|slice| slice.generation).max();
        let current = || slices().filter(|slice| Some(slice.generation) == newest);
        let totals: BTreeMap<&Name, i64> =
            current().flat_map(|slice| slice.totals.iter().map(|(name, total)| (name, *total))).collect();
        let mut devices = BTreeMap::new();
        for facts in current().flat_map(|slice| &slice.devices) {
            let mut facts = facts.clone();
            let counted = facts.device.counters.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
            facts.device.counter_totals = counted
                .into_iter()
                // A counter that the pool does not have is one of which there is nothing.
                .map(|name| (name.clone(), totals.get(&name).copied().unwrap_or(0)))
                .collect();
            devices.entry(facts.device.name.clone()).or_insert(facts);
        }
        devices
    }

    /// The claim with its sets of devices, and what is wrong with it.
    pub(crate) fn resolve(
        &mut self,
        facts: &ClaimFacts,
        classes: &BTreeMap<Name, ClassFacts>,
    ) -> (Claim, Vec<String>) {
        let mut claim = facts.claim.clone();
        let mut problems = Vec::new();
        for (request, wants) in claim.requests.iter_mut().zip(&facts.wants) {
            for (alternative, want) in request.alternatives.iter_mut().zip(wants) {
                let Some(class) = classes.get(&want.class) else {
                    let problem = format!("DeviceClass {} is not there", want.class);
                    claim.defect.get_or_insert_with(|| problem.as_str().into());
                    problems.push(problem);
                    continue;
                };
                let query = Query {
                    selectors: class.selectors.iter().chain(&want.selectors).cloned().collect(),
                    capacity: want.capacity.clone(),
                    tolerations: want.tolerations.clone(),
                };
                match self.answer(query) {
                    Ok(answer) => {
                        alternative.candidates = Arc::clone(&answer.shared);
                        problems.extend(answer.problem.clone());
                    }
                    Err(problem) => {
                        claim.defect.get_or_insert_with(|| problem.as_str().into());
                        problems.push(problem);
                    }
                }
            }
        }
        problems.sort();
        problems.dedup();
        (claim, problems)
    }

    fn answer(&mut self, query: Query) -> Result<&Answer, String> {
        if !self.answers.contains_key(&query) {
            let selectors = Selectors::of(std::iter::once(&query));
            if let Some(problem) = selectors.broken(&query) {
                return Err(problem);
            }
            let mut answer = Answer::default();
            for facts in self.present.values().flat_map(BTreeMap::values) {
                if selectors.select(&query, facts, &mut answer.problem) {
                    answer.selected.insert(facts.device.name.clone());
                }
            }
            answer.shared = answer.selected.iter().cloned().collect();
            self.answers.insert(query.clone(), answer);
        }
        self.answers.get(&query).ok_or_else(String::new)
    }

    /// Forgets questions that nobody asks any more, now and then.
    pub(crate) fn tidy(&mut self, n_claims: usize) {
        if self.answers.len() > 64 + 4 * n_claims {
            self.answers.clear();
            self.forgot = true;
        }
    }
}

/// Expressions, read once.
struct Selectors(BTreeMap<Name, Result<Selector, String>>);

impl Selectors {
    fn of<'a>(queries: impl Iterator<Item = &'a Query>) -> Self {
        let mut read: BTreeMap<Name, Result<Selector, String>> = BTreeMap::new();
        for text in queries.flat_map(|query| &query.selectors) {
            if !read.contains_key(text) {
                read.insert(text.clone(), Selector::new(text));
            }
        }
        Self(read)
    }

    /// Why the question can never be answered.
    fn broken(&self, query: &Query) -> Option<String> {
        query.selectors.iter().find_map(|text| match self.0.get(text) {
            Some(Err(problem)) => Some(format!("selector {} {problem}", crate::read::quote(text))),
            _ => None,
        })
    }

    fn select(&self, query: &Query, facts: &DeviceFacts, problem: &mut Option<String>) -> bool {
        let tolerated = facts.taints.iter().all(|taint| query.tolerations.iter().any(|t| t.covers(taint)));
        let large_enough = query.capacity.iter().all(|(name, asked)| {
            let (domain, bare) = name.split_once('/').unwrap_or((&facts.device.name.driver, name));
            facts.capacity.get(&(domain.into(), bare.into())).is_some_and(|(_, has)| has >= asked)
        });
        tolerated
            && large_enough
            && query.selectors.iter().all(|text| match self.0.get(text) {
                Some(Ok(selector)) => selector.selects(facts).unwrap_or_else(|error| {
                    // The device is passed over, as the node would be by Kubernetes.
                    problem.get_or_insert_with(|| {
                        format!(
                            "selector {} cannot be answered for a device: {error}",
                            crate::read::quote(text)
                        )
                    });
                    false
                }),
                _ => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(slices: &[Value]) -> Inventory {
        let mut inventory = Inventory::default();
        for (i, spec) in slices.iter().enumerate() {
            let value = json!({"metadata": {"name": format!("s{i}")}, "spec": spec});
            inventory.put(format!("s{i}").into(), slice(&Object::new("ResourceSlice", &value)));
        }
        inventory.refresh();
        inventory
    }

    fn two_gpus() -> Value {
        json!({"driver": "gpu.x.io", "nodeName": "n", "pool": {"name": "p", "generation": 1}, "devices": [
            {"name": "a", "attributes": {"model": {"string": "big"}}, "capacity": {"memory": {"value": "80Gi"}}},
            {"name": "b", "attributes": {"model": {"string": "small"}}, "capacity": {"memory": {"value": "40Gi"}},
                "taints": [{"key": "broken", "effect": "NoSchedule"}]},
        ]})
    }

    fn classes() -> BTreeMap<Name, ClassFacts> {
        let big = json!({"spec": {"selectors": [{"cel": {"expression": "device.attributes['gpu.x.io'].model == 'big'"}}]}});
        [("any".into(), ClassFacts::default()), ("gpu-big".into(), class(&Object::new("DeviceClass", &big)))]
            .into()
    }

    fn read(spec: Value, status: Value) -> ClaimFacts {
        let value = json!({"metadata": {"name": "c", "namespace": "n", "labels": {"q": "team"}}, "spec": {"devices": spec}, "status": status});
        claim(&Object::new("ResourceClaim", &value), "q")
    }

    /// Candidates of the first request's alternatives.
    #[track_caller]
    fn check(request: Value, expected: &[&[&str]], defect: bool) {
        let facts = read(json!({"requests": [request]}), json!(null));
        let (claim, _) = inventory(&[two_gpus()]).resolve(&facts, &classes());
        let names: Vec<Vec<&str>> = claim.requests[0]
            .alternatives
            .iter()
            .map(|a| a.candidates.iter().map(|d| &*d.device).collect())
            .collect();
        assert_eq!(names, expected, "{request}");
        assert_eq!(claim.defect.is_some(), defect, "{:?}", claim.defect);
    }

    #[test]
    fn requests_become_sets_of_devices() {
        let all = json!([{"operator": "Exists"}]);
        check(json!({"name": "r", "exactly": {"deviceClassName": "any"}}), &[&["a"]], false);
        check(
            json!({"name": "r", "exactly": {"deviceClassName": "any", "tolerations": all}}),
            &[&["a", "b"]],
            false,
        );
        check(json!({"name": "r", "deviceClassName": "any"}), &[&["a"]], false);
        check(json!({"name": "r", "exactly": {"deviceClassName": "gpu-big"}}), &[&["a"]], false);
        check(json!({"name": "r", "exactly": {"deviceClassName": "gone"}}), &[&[]], true);
        let narrowed = json!([{"cel": {"expression": "device.attributes['gpu.x.io'].model == 'small'"}}]);
        check(
            json!({"name": "r", "exactly": {"deviceClassName": "gpu-big", "selectors": narrowed}}),
            &[&[]],
            false,
        );
        check(
            json!({"name": "r", "exactly": {"deviceClassName": "any", "selectors": [{"cel": {"expression": "(("}}]}}),
            &[&[]],
            true,
        );
        check(
            json!({"name": "r", "exactly": {"deviceClassName": "any", "selectors": [{"cel": {"expression": "device.driver.nothing"}}]}}),
            &[&[]],
            false,
        );
        let roomy = json!({"requests": {"memory": "60Gi"}});
        check(
            json!({"name": "r", "exactly": {"deviceClassName": "any", "tolerations": all, "capacity": roomy}}),
            &[&["a"]],
            false,
        );
        check(
            json!({"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "gpu-big"}, {"name": "y", "deviceClassName": "any"}]}),
            &[&["a"], &["a"]],
            false,
        );
        check(
            json!({"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "Some"}}),
            &[&["a"]],
            true,
        );
    }

    /// What is written for a claim whose requests got devices: `request=device`, of devices that reach so far.
    #[track_caller]
    fn check_allocation(spec: Value, given: &[&str], reach: &DeviceReach, expected: Value) {
        let given: Vec<(Name, DeviceName)> = given
            .iter()
            .map(|text| {
                let (request, device) = text.split_once('=').unwrap();
                (request.into(), DeviceName { driver: "d".into(), pool: "p".into(), device: device.into() })
            })
            .collect();
        let told = json!({"spec": {"config": [{"opaque": {"driver": "d", "parameters": {"mode": "fast"}}}]}});
        let classes = [
            ("told".into(), class(&Object::new("DeviceClass", &told))),
            ("any".into(), ClassFacts::default()),
        ]
        .into();
        let written =
            read(spec, json!(null)).allocation_json(&given, &"n".into(), |_| Some(reach.clone()), &classes);
        assert_eq!(written, expected);
    }

    #[test]
    fn what_is_written_of_an_allocation() {
        let result = |request: &str, device: &str| json!({"request": request, "driver": "d", "pool": "p", "device": device});
        let of = |name: &str, class: &str| json!({"name": name, "exactly": {"deviceClassName": class}});
        check_allocation(
            json!({"requests": [of("r", "any")]}),
            &["r=a"],
            &DeviceReach::Everywhere,
            json!({"devices": {"results": [result("r", "a")]}}),
        );
        // Drivers are told what the class says, once for all requests of it, and what the claim says.
        let fast = json!({"driver": "d", "parameters": {"mode": "fast"}});
        let own = |name: &str| json!({"opaque": {"driver": "d", "parameters": name}, "requests": [name]});
        let alternatives = json!({"name": "u", "firstAvailable": [
            {"name": "x", "deviceClassName": "any"}, {"name": "y", "deviceClassName": "told"}]});
        check_allocation(
            json!({
                "requests": [of("r", "told"), of("s", "any"), of("t", "told"), alternatives],
                "config": [own("s"), own("u"), own("u/x"), {"opaque": {"driver": "e"}}],
            }),
            &["r=a", "r=b", "s=c", "t=d", "u/y=e"],
            &DeviceReach::Node("n".into()),
            json!({
                "devices": {
                    "results": [result("r", "a"), result("r", "b"), result("s", "c"), result("t", "d"), result("u/y", "e")],
                    "config": [
                        {"source": "FromClass", "requests": ["r", "t", "u/y"], "opaque": fast},
                        {"source": "FromClaim", "requests": ["s"], "opaque": {"driver": "d", "parameters": "s"}},
                        {"source": "FromClaim", "requests": ["u"], "opaque": {"driver": "d", "parameters": "u"}},
                        {"source": "FromClaim", "opaque": {"driver": "e"}},
                    ],
                },
                "nodeSelector": only_on("n"),
            }),
        );
        // Who only looks says so, and what is tolerated stays so.
        let tolerations = json!([{"key": "broken", "operator": "Exists"}]);
        let exactly = json!({"deviceClassName": "any", "adminAccess": true, "tolerations": tolerations});
        let mut looked_at = result("r", "a");
        looked_at["adminAccess"] = json!(true);
        looked_at["tolerations"] = tolerations;
        let racks = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}]});
        let selector = json!({"s": racks});
        let terms = select::node_terms(Object::new("x", &selector).get("s"));
        check_allocation(
            json!({"requests": [{"name": "r", "exactly": exactly}]}),
            &["r=a"],
            &DeviceReach::Nodes(terms),
            json!({"devices": {"results": [looked_at]}, "nodeSelector": racks}),
        );
    }

    /// The same by whole objects: class, slice and claim are looked up by their names.
    #[test]
    fn a_placement_says_what_drivers_are_told() {
        let mut translator = crate::Translator::new(crate::Settings {
            scheduler_names: vec!["s".into()],
            ..crate::Settings::default()
        });
        let api = "resource.k8s.io/v1";
        for object in [
            json!({"apiVersion": api, "kind": "DeviceClass", "metadata": {"name": "told"}, "spec": {"config": [{"opaque": {"driver": "d"}}]}}),
            json!({"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": "s"},
                "spec": {"driver": "d", "allNodes": true, "pool": {"name": "p"}, "devices": [{"name": "a"}]}}),
            json!({"apiVersion": api, "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "told"}}]}}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "n", "uid": "u"}, "spec": {
                "schedulerName": "s", "containers": [{"name": "c"}], "resourceClaims": [{"name": "own", "resourceClaimName": "c"}]}}),
        ] {
            translator.put(&object);
        }
        translator.drain();
        let device = DeviceName { driver: "d".into(), pool: "p".into(), device: "a".into() };
        let placement = muster_model::Placement {
            node: "node".into(),
            devices: vec![(muster_model::Key::new("n", "c"), "r".into(), device.clone())],
            ..Default::default()
        };
        let (claims, _) = translator.placement_fields(&muster_model::Key::new("n", "x"), &placement);
        let config = json!([{"source": "FromClass", "requests": ["r"], "opaque": {"driver": "d"}}]);
        let expected = json!({"devices": {"results": [result_json("r", &device)], "config": config}});
        assert_eq!(claims, [("own".into(), expected)]);
    }

    #[track_caller]
    fn check_charge(spec: Value, status: Value, expected: i64) {
        assert_eq!(read(spec.clone(), status).gpu_charge(), expected, "{spec}");
    }

    #[test]
    fn gpus_are_charged_by_the_name_of_class_or_driver() {
        let request = |class: &str, more: Value| {
            let mut exactly = json!({"deviceClassName": class});
            exactly.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"requests": [{"name": "r", "exactly": exactly}]})
        };
        check_charge(request("gpu.nvidia.com", json!({})), json!(null), 1000);
        check_charge(request("gpu.nvidia.com", json!({"count": 3})), json!(null), 3000);
        check_charge(request("nic.x.io", json!({"count": 3})), json!(null), 0);
        check_charge(request("gpu.nvidia.com", json!({"allocationMode": "All"})), json!(null), 0);
        check_charge(request("gpu.nvidia.com", json!({"adminAccess": true})), json!(null), 0);
        let results = json!({"allocation": {"devices": {"results": [
            {"request": "r", "driver": "gpu.x.io", "pool": "p", "device": "a"},
            {"request": "s", "driver": "nic.x.io", "pool": "p", "device": "b"},
        ]}}});
        check_charge(request("gpu.nvidia.com", json!({"allocationMode": "All"})), results.clone(), 1000);
        check_charge(request("any", json!({})), results, 1000);
    }

    #[test]
    fn the_newest_generation_of_a_pool_counts() {
        let of = |generation: i64, device: &str| json!({"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": generation}, "devices": [{"name": device}]});
        let name = |device: &str| DeviceName { driver: "d".into(), pool: "p".into(), device: device.into() };
        let mut inventory = inventory(&[of(1, "old"), of(2, "new")]);
        assert!(inventory.device(&name("new")).is_some() && inventory.device(&name("old")).is_none());
        inventory.remove("s1");
        let (touched, _) = inventory.refresh();
        assert_eq!(touched, [name("new"), name("old")].into());
        assert!(inventory.device(&name("new")).is_none() && inventory.device(&name("old")).is_some());
    }

    #[test]
    fn devices_share_counters_across_slices() {
        let counters = json!({"driver": "d", "nodeName": "n", "pool": {"name": "p"},
            "sharedCounters": [{"name": "gpu0", "counters": {"memory": {"value": "80"}}}]});
        let devices = json!({"driver": "d", "nodeName": "n", "pool": {"name": "p"},
            "devices": [{"name": "half", "consumesCounters": [{"counterSet": "gpu0", "counters": {"memory": {"value": "40"}, "slices": {"value": "3"}}}]}]});
        let name = DeviceName { driver: "d".into(), pool: "p".into(), device: "half".into() };
        let device = inventory(&[counters, devices]).device(&name).unwrap();
        assert_eq!(device.counters, [("gpu0/memory".into(), 40), ("gpu0/slices".into(), 3)]);
        assert_eq!(device.counter_totals, [("gpu0/memory".into(), 80), ("gpu0/slices".into(), 0)]);
    }

    #[test]
    fn forms_of_all_versions() {
        let beta = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "allNodes": true,
            "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}, "capacity": {"m": "1Gi"}}}]}});
        let object = Object::new("ResourceSlice", &beta);
        let facts = slice(&object);
        assert_eq!(facts.devices[0].device.reach, DeviceReach::Everywhere);
        assert_eq!(facts.devices[0].device.attributes[&Name::from("d/x")], "int 1".into());
        assert_eq!(facts.devices[0].capacity.len(), 1);
        let each = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "perDeviceNodeSelection": true,
            "devices": [{"name": "a", "nodeName": "n1"}, {"name": "b"}, {"name": "a", "nodeName": "n1"}]}});
        let object = Object::new("ResourceSlice", &each);
        assert_eq!(slice(&object).devices.len(), 1);
        assert_eq!(object.into_diagnostics().len(), 2);
    }

    #[test]
    fn claims() {
        let facts = read(
            json!({"requests": [], "constraints": [{"requests": ["a"], "matchAttribute": "x.io/numa"}]}),
            json!({"reservedFor": [{"resource": "pods", "uid": "u2"}, {"uid": "u1"}],
                "allocation": {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}),
        );
        assert_eq!(facts.claim.same, [(vec!["a".into()], "x.io/numa".into())]);
        assert_eq!(facts.claim.reserved_for, ["u1".into(), "u2".into()]);
        assert_eq!(facts.claim.queue.as_deref(), Some("team"));
        assert_eq!(facts.claim.allocation.unwrap().nodes.len(), 1);
        assert!(
            read(json!({"constraints": [{"distinctAttribute": "x"}]}), json!(null)).claim.defect.is_some()
        );
    }
}
