//! What a case expects. Whatever is not named is free.

use crate::fields::{Fields, Problem, Read, join, kind, problem, texts};
use muster_model::Resource;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Where a pod stands when a scenario is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Waited at the start and holds a node now.
    Bound,
    /// Held a node at the start and does now.
    Running,
    Pending,
    /// Promised a node whose room is still being released.
    Pipelined,
    /// Told to terminate.
    Evicted,
    Failed,
    Succeeded,
}

impl Phase {
    pub const ALL: [Self; 7] = [
        Self::Bound,
        Self::Running,
        Self::Pending,
        Self::Pipelined,
        Self::Evicted,
        Self::Failed,
        Self::Succeeded,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Running => "running",
            Self::Pending => "pending",
            Self::Pipelined => "pipelined",
            Self::Evicted => "evicted",
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
        }
    }

    fn parse(text: &str, path: &str) -> Read<Self> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|p| p.name()).collect();
            Problem {
                path: path.to_string(),
                message: format!("{text:?} is no phase; the phases are {}", names.join(", ")),
            }
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// By `namespace/name`.
    pub pods: BTreeMap<String, PodExpect>,
    /// By name, or `namespace/name`.
    pub groups: BTreeMap<String, GroupExpect>,
    pub queues: BTreeMap<String, QueueExpect>,
    pub nodes: BTreeMap<String, NodeExpect>,
    pub limits: Limits,
    /// Exact numbers over all cycles.
    pub total_binds: Option<u32>,
    pub total_evicted: Option<u32>,
    pub total_pipelined: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodExpect {
    pub phase: Option<Phase>,
    pub node: Option<String>,
    pub was_evicted: Option<bool>,
    pub already_terminating: Option<bool>,
    /// Pods of one node with equal hints share a GPU, with different hints do not.
    pub gpu_hint: Option<Vec<String>>,
    pub zones: Option<Vec<u32>>,
    /// Thousandths of a GPU.
    pub gpus_required: Option<i64>,
    pub gpus_accepted: Option<i64>,
}

/// How many pods are in each phase. A phase that is not named is not asserted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub phases: BTreeMap<Phase, u32>,
    pub was_evicted: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupExpect {
    pub counts: Counts,
    /// Every pod of the group is in this phase.
    pub all: Option<Phase>,
    pub nodes: Option<Vec<String>>,
    pub gpus_required: Option<i64>,
    pub gpus_accepted: Option<i64>,
    pub milli_cpu_required: Option<i64>,
    pub memory_required: Option<i64>,
    pub sub_groups: BTreeMap<String, GroupExpect>,
    pub why: Vec<WhyExpect>,
}

/// Something that must be among the reasons for which a gang waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyExpect {
    /// Some reason or remedy says this; capital letters do not matter.
    Says(String),
    /// Some reason has these fields, as `muster explain -o json` prints them.
    Has(Map<String, Value>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueExpect {
    /// Of all gangs of the queue and the queues below it.
    pub counts: Counts,
    /// What its placed pods hold, by resource, in the unit of the model; a pod that is going does not count.
    pub used: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeExpect {
    /// Thousandths of a GPU; a shared GPU counts whole once in use.
    pub idle_gpus: Option<i64>,
    pub releasing_gpus: Option<i64>,
    /// By zone index: what is left, by resource, in the unit of the model.
    pub zones: BTreeMap<u32, BTreeMap<String, i64>>,
    /// How many placed pods it has.
    pub pods: Option<u32>,
}

/// The most that may happen in any one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub binds: Option<u32>,
    pub evictions: Option<u32>,
    pub pipelined: Option<u32>,
}

const MANY: u32 = u32::MAX;

impl Expect {
    pub fn read(value: &Value) -> Read<Self> {
        let mut fields = Fields::of(value, "expect")?;
        let mut expect = Self::default();
        for (name, value) in fields.entries("pods")? {
            let key = if name.contains('/') { name.clone() } else { format!("default/{name}") };
            let path = join("expect.pods", name);
            if expect.pods.insert(key, PodExpect::read(value, &path)?).is_some() {
                return problem(&path, "this pod is named twice, with and without its namespace");
            }
        }
        // Cases in JSON say groups, as KAI does; people say gangs.
        for table in ["groups", "gangs"] {
            for (name, value) in fields.entries(table)? {
                let path = join(&format!("expect.{table}"), name);
                if expect.groups.insert(name.clone(), GroupExpect::read(value, &path)?).is_some() {
                    return problem(&path, "this gang is named twice, under groups and under gangs");
                }
            }
        }
        for (name, value) in fields.entries("queues")? {
            expect.queues.insert(name.clone(), QueueExpect::read(value, &join("expect.queues", name))?);
        }
        for (name, value) in fields.entries("nodes")? {
            expect.nodes.insert(name.clone(), NodeExpect::read(value, &join("expect.nodes", name))?);
        }
        if let Some(value) = fields.get("limits") {
            let mut limits = Fields::of(value, "expect.limits")?;
            expect.limits = Limits {
                binds: limits.count("maxBindsPerCycle", MANY)?,
                evictions: limits.count("maxEvictionsPerCycle", MANY)?,
                pipelined: limits.count("maxPipelinedPerCycle", MANY)?,
            };
            limits.finish()?;
        }
        if let Some(value) = fields.get("totals") {
            let mut totals = Fields::of(value, "expect.totals")?;
            expect.total_binds = totals.count("bound", MANY)?;
            expect.total_evicted = totals.count("evicted", MANY)?;
            expect.total_pipelined = totals.count("pipelined", MANY)?;
            totals.finish()?;
        }
        // Remarks of whoever wrote the case.
        fields.get("notes");
        fields.finish()?;
        Ok(expect)
    }

    /// Whether anything at all is asserted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether reasons are asked for.
    pub fn asks_why(&self) -> bool {
        self.groups.values().any(|g| !g.why.is_empty())
    }
}

impl PodExpect {
    /// `pending`, `bound on node-0`, or a mapping.
    fn read(value: &Value, path: &str) -> Read<Self> {
        if let Value::String(text) = value {
            let (phase, node) = match text.split_once(" on ") {
                Some((phase, node)) => (phase.trim(), Some(node.trim().to_string())),
                None => (text.trim(), None),
            };
            return Ok(Self { phase: Some(Phase::parse(phase, path)?), node, ..Self::default() });
        }
        let mut fields = Fields::of(value, path)?;
        let phase = fields.text("phase")?.map(|p| Phase::parse(&p, &fields.path("phase"))).transpose()?;
        let zones = match fields.get("numaZones") {
            None => None,
            Some(value) => {
                let zones: Option<Vec<u32>> = value.as_array().and_then(|items| {
                    items.iter().map(|z| z.as_u64().and_then(|z| u32::try_from(z).ok())).collect()
                });
                let Some(zones) = zones else {
                    return problem(
                        &fields.path("numaZones"),
                        "write a list of zone numbers, such as [0, 1]",
                    );
                };
                Some(zones)
            }
        };
        let pod = Self {
            phase,
            node: fields.text("node")?,
            was_evicted: fields.flag("wasEvicted")?,
            already_terminating: fields.flag("alreadyTerminating")?,
            gpu_hint: fields.texts("gpuGroupHint")?,
            zones,
            gpus_required: fields.milli("gpusRequired")?,
            gpus_accepted: fields.milli("gpusAccepted")?,
        };
        fields.finish()?;
        Ok(pod)
    }
}

impl Counts {
    fn read(fields: &mut Fields<'_>) -> Read<Self> {
        let mut counts = Self::default();
        for phase in Phase::ALL {
            if let Some(n) = fields.count(phase.name(), MANY)? {
                counts.phases.insert(phase, n);
            }
        }
        counts.was_evicted = fields.count("wasEvicted", MANY)?;
        Ok(counts)
    }
}

impl GroupExpect {
    /// `pending`, or a mapping.
    fn read(value: &Value, path: &str) -> Read<Self> {
        if let Value::String(text) = value {
            return Ok(Self { all: Some(Phase::parse(text.trim(), path)?), ..Self::default() });
        }
        let mut fields = Fields::of(value, path)?;
        let mut group = Self {
            counts: Counts::read(&mut fields)?,
            all: None,
            nodes: fields.texts("nodes")?,
            gpus_required: fields.milli("gpusRequired")?,
            gpus_accepted: fields.milli("gpusAccepted")?,
            milli_cpu_required: fields.integer("milliCpuRequired")?,
            memory_required: fields.integer("memoryRequired")?,
            sub_groups: BTreeMap::new(),
            why: Vec::new(),
        };
        for (name, value) in fields.entries("subGroups")? {
            let path = join(&fields.path("subGroups"), name);
            group.sub_groups.insert(name.clone(), Self::read(value, &path)?);
        }
        if let Some(value) = fields.get("why") {
            group.why = read_why(value, &fields.path("why"))?;
        }
        fields.finish()?;
        Ok(group)
    }
}

/// One or several of: text that a reason must say, or a mapping of fields that it must have.
fn read_why(value: &Value, path: &str) -> Read<Vec<WhyExpect>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut why = Vec::new();
    for (i, item) in items.iter().enumerate() {
        why.push(match item {
            Value::String(text) => WhyExpect::Says(text.clone()),
            Value::Object(map) if map.contains_key("reason") => WhyExpect::Has(map.clone()),
            Value::Object(_) => {
                return problem(
                    &format!("{path}[{i}]"),
                    "say which reason: {reason: OverLimit, queue: …}; `muster explain -o json` prints them",
                );
            }
            other => {
                return problem(
                    &format!("{path}[{i}]"),
                    format!("this is {}; write part of a reason's text, or {{reason: …}}", kind(other)),
                );
            }
        });
    }
    Ok(why)
}

impl QueueExpect {
    fn read(value: &Value, path: &str) -> Read<Self> {
        let mut fields = Fields::of(value, path)?;
        let counts = Counts::read(&mut fields)?;
        let mut used = BTreeMap::new();
        for (resource, amount) in fields.entries("used")? {
            let path = join(&fields.path("used"), resource);
            used.insert(resource.clone(), amount_of(resource, amount, &path)?);
        }
        fields.finish()?;
        Ok(Self { counts, used })
    }
}

impl NodeExpect {
    fn read(value: &Value, path: &str) -> Read<Self> {
        let mut fields = Fields::of(value, path)?;
        let mut node = Self {
            idle_gpus: fields.milli("idleGPUs")?,
            releasing_gpus: fields.milli("releasingGPUs")?,
            zones: BTreeMap::new(),
            pods: fields.count("pods", MANY)?,
        };
        for (zone, value) in fields.entries("numaZonesAvailable")? {
            let path = join(&fields.path("numaZonesAvailable"), zone);
            let Ok(zone) = zone.parse::<u32>() else {
                return problem(&path, "a zone is named by its number");
            };
            let Value::Object(map) = value else {
                return problem(
                    &path,
                    format!("this is {}; write resources, such as {{cpu: 4}}", kind(value)),
                );
            };
            let mut left = BTreeMap::new();
            for (resource, amount) in map {
                left.insert(resource.clone(), amount_of(resource, amount, &join(&path, resource))?);
            }
            node.zones.insert(zone, left);
        }
        fields.finish()?;
        Ok(node)
    }
}

/// A quantity in the model's unit for the resource: milli-cores, thousandths of a GPU, bytes or whole units.
pub fn amount_of(resource: &str, value: &Value, path: &str) -> Read<i64> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            return problem(path, format!("this is {}; write a quantity, such as 8 or 64Gi", kind(other)));
        }
    };
    let quantity: k8s_quantity::Quantity = match text.parse() {
        Ok(quantity) => quantity,
        Err(_) => {
            return problem(path, format!("{text:?} is no quantity; write one such as 8, 500m or 64Gi"));
        }
    };
    Ok(match crate::words::resource_named(resource) {
        Resource::Cpu | Resource::Gpu => quantity.milli_value(),
        _ => quantity.value(),
    })
}

/// Names of a symmetry: a list of lists.
pub fn read_sets(fields: &mut Fields<'_>, key: &'static str) -> Read<Vec<Vec<String>>> {
    let path = fields.path(key);
    fields.list(key)?.iter().enumerate().map(|(i, set)| texts(set, &format!("{path}[{i}]"))).collect()
}
