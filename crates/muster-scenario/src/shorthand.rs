//! The short hand for clusters: `cluster:` with nodes, queues, topologies and gangs in a line each.
//!
//! In: the mapping under `cluster`. Out: ordinary Kubernetes objects, which then go the way of every manifest; so a short hand can mean
//! nothing that a manifest could not say. Every mistake is told with its path.

use crate::expect::amount_of;
use crate::fields::{Fields, Read, join, kind, milli, problem};
use muster_model::{Span, Time};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// More pods or nodes than this from one line is a slip of the finger.
const MOST: u32 = 100_000;

/// Priority classes that KAI installs, with their values.
const CLASSES: [(&str, i64); 4] =
    [("train", 50), ("interactive-preemptible", 75), ("build", 100), ("inference", 125)];

/// What a cell of the GPU column means.
enum Gpu {
    None,
    Whole(i64),
    /// Thousandths of a GPU, of so many GPUs.
    Fraction(i64, u32),
    /// MiB, of so many GPUs.
    Memory(i64, u32),
}

pub fn expand(cluster: &Value, now: Time) -> Read<Vec<Value>> {
    let mut fields = Fields::of(cluster, "cluster")?;
    let mut objects = Vec::new();
    for (i, node) in fields.list("nodes")?.iter().enumerate() {
        nodes(node, &format!("cluster.nodes[{i}]"), now, &mut objects)?;
    }
    let mut topologies = Vec::new();
    for (i, topology) in fields.list("topologies")?.iter().enumerate() {
        let path = format!("cluster.topologies[{i}]");
        let mut own = Fields::of(topology, &path)?;
        let name = own.text("name")?.unwrap_or_else(|| "default".into());
        let Some(levels) = own.texts("levels")? else {
            return problem(
                &own.path("levels"),
                "list the node labels from coarse to fine, such as [zone, rack]",
            );
        };
        own.finish()?;
        let levels: Vec<Value> = levels.iter().map(|l| json!({"nodeLabel": l})).collect();
        objects.push(json!({
            "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology",
            "metadata": {"name": name}, "spec": {"levels": levels},
        }));
        topologies.push(name);
    }
    let mut queues = Vec::new();
    for (i, value) in fields.list("queues")?.iter().enumerate() {
        let minutes = i64::try_from(i).unwrap_or(0);
        let created = now + Span::seconds(-86_400 + 60 * minutes);
        queues.push(queue(value, &format!("cluster.queues[{i}]"), created, &mut objects)?);
    }
    let gangs = fields.list("gangs")?;
    let mut classes = BTreeSet::new();
    for (i, value) in gangs.iter().enumerate() {
        // The first is the oldest, and the last is a minute old.
        let age = Span::seconds(60 * i64::try_from(gangs.len() - i).unwrap_or(1));
        let mut gang = GangWriter {
            path: format!("cluster.gangs[{i}]"),
            now,
            age,
            queues: &queues,
            topologies: &topologies,
            classes: &mut classes,
            objects: &mut objects,
        };
        gang.write(value)?;
    }
    fields.finish()?;
    for (name, value) in classes {
        objects.push(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value,
        }));
    }
    Ok(objects)
}

fn stamp(at: Time) -> String {
    crate::words::time(at)
}

fn object(value: Option<&Value>, path: &str) -> Read<Map<String, Value>> {
    match value {
        None => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(other) => problem(path, format!("this is {}; write a mapping", kind(other))),
    }
}

/// Labels and annotations: `1` and `true` are texts there.
fn labels(value: Option<&Value>, path: &str) -> Read<Map<String, Value>> {
    let mut map = object(value, path)?;
    for (key, value) in &mut map {
        match value {
            Value::String(_) => {}
            Value::Number(_) | Value::Bool(_) => *value = Value::String(value.to_string()),
            other => return problem(&join(path, key), format!("this is {}; write text", kind(other))),
        }
    }
    Ok(map)
}

/// A quantity as it was written, if it is one.
fn quantity(fields: &mut Fields<'_>, key: &'static str, default: &str) -> Read<String> {
    let path = fields.path(key);
    match fields.get(key) {
        None => Ok(default.to_string()),
        Some(value) => {
            amount_of("memory", value, &path)?;
            Ok(match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
        }
    }
}

/// MiB from a quantity; a plain number is MiB already.
fn mebibytes(value: &Value, path: &str) -> Read<i64> {
    let mib = match value {
        Value::Number(_) => value.as_i64(),
        text => Some(amount_of("memory", text, path)? >> 20),
    };
    match mib.filter(|n| *n > 0) {
        Some(mib) => Ok(mib),
        None => problem(path, "write memory such as 80Gi, or a number of MiB"),
    }
}

fn nodes(value: &Value, path: &str, now: Time, objects: &mut Vec<Value>) -> Read<()> {
    let mut fields = Fields::of(value, path)?;
    let Some(name) = fields.text("name")? else {
        return problem(&fields.path("name"), "name the node; with `count`, its nodes are name-0, name-1, …");
    };
    let names = match fields.count("count", MOST)? {
        None => vec![name],
        Some(n) => (0..n).map(|i| format!("{name}-{i}")).collect(),
    };
    let cpu = quantity(&mut fields, "cpu", "64")?;
    let memory = quantity(&mut fields, "memory", "512Gi")?;
    let pods = fields.count("pods", MOST)?.unwrap_or(110);
    let gpus = fields.count("gpu", 1000)?.unwrap_or(0);
    let gpu_memory = match fields.get("gpuMemory") {
        None => 81_920,
        Some(value) => mebibytes(value, &fields.path("gpuMemory"))?,
    };
    let own_labels = labels(fields.get("labels"), &fields.path("labels"))?;
    let taints = match fields.texts("taints")? {
        None => Vec::new(),
        Some(texts) => texts.iter().map(|t| taint(t, &fields.path("taints"))).collect::<Read<_>>()?,
    };
    let more = object(fields.get("resources"), &fields.path("resources"))?;
    let ready = fields.flag("ready")?.unwrap_or(true);
    let cordoned = fields.flag("unschedulable")?.unwrap_or(false);
    fields.finish()?;

    let mut allocatable = json!({"cpu": cpu, "memory": memory, "pods": pods.to_string()});
    if gpus > 0 {
        allocatable["nvidia.com/gpu"] = json!(gpus.to_string());
    }
    for (resource, amount) in more {
        let amount = match amount {
            Value::String(text) => text,
            other => other.to_string(),
        };
        allocatable[resource] = json!(amount);
    }
    for name in names {
        let mut all = Map::new();
        all.insert("kubernetes.io/hostname".into(), json!(name));
        if gpus > 0 {
            all.insert("nvidia.com/gpu.count".into(), json!(gpus.to_string()));
            all.insert("nvidia.com/gpu.memory".into(), json!(gpu_memory.to_string()));
        }
        all.extend(own_labels.clone());
        let mut spec = json!({});
        if cordoned {
            spec["unschedulable"] = json!(true);
        }
        if !taints.is_empty() {
            spec["taints"] = json!(taints);
        }
        objects.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "uid": name, "labels": all,
                "creationTimestamp": stamp(now + Span::seconds(-30 * 86_400)),
            },
            "spec": spec,
            "status": {
                "capacity": allocatable, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            },
        }));
    }
    Ok(())
}

/// `key=value:NoSchedule`, `key:NoSchedule`.
fn taint(text: &str, path: &str) -> Read<Value> {
    let Some((left, effect)) = text.rsplit_once(':') else {
        return problem(path, format!("{text:?} has no effect; write key=value:NoSchedule"));
    };
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return problem(
            path,
            format!("{effect:?} is no effect; write NoSchedule, PreferNoSchedule or NoExecute"),
        );
    }
    let (key, value) = left.split_once('=').unwrap_or((left, ""));
    Ok(json!({"key": key, "value": value, "effect": effect}))
}

/// Writes a queue; answers its name and whether others may hang from it.
fn queue(value: &Value, path: &str, created: Time, objects: &mut Vec<Value>) -> Read<QueueName> {
    let mut fields = Fields::of(value, path)?;
    let Some(name) = fields.text("name")? else { return problem(&fields.path("name"), "name the queue") };
    let parent = fields.text("parent")?;
    let mut spec = json!({"resources": {}});
    for resource in ["gpu", "cpu", "memory"] {
        let path = fields.path(resource);
        spec["resources"][resource] = share(resource, fields.get(resource), &path)?;
    }
    if let Some(parent) = &parent {
        spec["parentQueue"] = json!(parent);
    }
    if let Some(priority) = fields.integer("priority")? {
        spec["priority"] = json!(priority);
    }
    for key in ["preemptMinRuntime", "reclaimMinRuntime"] {
        if let Some(text) = fields.text(key)? {
            duration(&text, &fields.path(key))?;
            spec[key] = json!(text);
        }
    }
    if let Some(display) = fields.text("displayName")? {
        spec["displayName"] = json!(display);
    }
    let mut annotations = json!({});
    if let Some(text) = fields.text("reclaimDelay")? {
        duration(&text, &fields.path("reclaimDelay"))?;
        annotations["muster.dev/reclaim-delay"] = json!(text);
    }
    if let Some(word) = fields.text("reclaimPolicy")? {
        if !["Graceful", "Forced"].contains(&word.as_str()) {
            return problem(
                &fields.path("reclaimPolicy"),
                format!("{word:?} is not known; write Graceful or Forced"),
            );
        }
        annotations["muster.dev/reclaim-policy"] = json!(word);
    }
    if let Some(factor) = fields.get("borrowingFactor") {
        if !factor.as_f64().is_some_and(|factor| factor >= 1.0) {
            return problem(&fields.path("borrowingFactor"), "write a number of 1 or more");
        }
        annotations["muster.dev/borrowing-factor"] = json!(factor.to_string());
    }
    let own_labels = labels(fields.get("labels"), &fields.path("labels"))?;
    fields.finish()?;
    objects.push(json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {
            "name": name, "uid": name, "labels": own_labels, "annotations": annotations,
            "creationTimestamp": stamp(created),
        },
        "spec": spec,
    }));
    Ok(QueueName { name, parent })
}

struct QueueName {
    name: String,
    parent: Option<String>,
}

/// `8` is a quota; `{quota, limit, weight}` says more; absent is without bounds. In KAI's units: GPUs, milli-cores, megabytes.
fn share(resource: &str, value: Option<&Value>, path: &str) -> Read<Value> {
    let Some(value) = value else { return Ok(json!({"quota": -1, "limit": -1, "overQuotaWeight": 1})) };
    if !value.is_object() {
        return Ok(json!({"quota": bound(resource, value, path)?, "limit": -1, "overQuotaWeight": 1}));
    }
    let mut fields = Fields::of(value, path)?;
    let mut one = |key: &'static str, default: i64| match fields.get(key) {
        None => Ok(json!(default)),
        Some(value) => bound(resource, value, &join(path, key)),
    };
    let (quota, limit) = (one("quota", 0)?, one("limit", -1)?);
    let weight = match fields.get("weight") {
        None => json!(1),
        Some(weight) if milli(weight).is_some_and(|w| w >= 0) => weight.clone(),
        Some(_) => return problem(&join(path, "weight"), "write a number that is not negative"),
    };
    fields.finish()?;
    Ok(json!({"quota": quota, "limit": limit, "overQuotaWeight": weight}))
}

fn bound(resource: &str, value: &Value, path: &str) -> Read<Value> {
    if value == "unlimited" || value.as_i64() == Some(-1) {
        return Ok(json!(-1));
    }
    let amount = amount_of(resource, value, path)?;
    if amount < 0 {
        return problem(path, "write an amount, or `unlimited`");
    }
    Ok(match resource {
        "gpu" => crate::words::amount_json(&muster_model::Resource::Gpu, amount.into()),
        "cpu" => json!(amount),
        _ if amount % 1_000_000 == 0 => json!(amount / 1_000_000),
        _ => json!(amount as f64 / 1e6),
    })
}

/// A length of time such as `90s`, `5m`, `1h30m`.
fn duration(text: &str, path: &str) -> Read<Span> {
    match text.parse::<jiff::SignedDuration>() {
        Ok(length) => Ok(Span(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))),
        Err(_) => problem(path, format!("{text:?} is no length of time; write one such as 90s, 5m or 1h30m")),
    }
}

struct GangWriter<'a> {
    path: String,
    now: Time,
    /// Unless it says otherwise.
    age: Span,
    queues: &'a [QueueName],
    topologies: &'a [String],
    classes: &'a mut BTreeSet<(String, i64)>,
    objects: &'a mut Vec<Value>,
}

/// Pods of one kind: what stands in a gang's line, or in the line of one of its groups.
struct PodLine {
    count: Option<u32>,
    min: Option<u32>,
    gpu: Gpu,
    cpu: String,
    memory: String,
    on: Vec<String>,
    shares: Vec<String>,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    spec: Map<String, Value>,
    limits: bool,
}

impl GangWriter<'_> {
    fn write(&mut self, value: &Value) -> Read<()> {
        let path = self.path.clone();
        let mut fields = Fields::of(value, &path)?;
        let Some(name) = fields.text("name")? else { return problem(&fields.path("name"), "name the gang") };
        let namespace = fields.text("namespace")?.unwrap_or_else(|| "default".into());
        let queue = match fields.text("queue")? {
            Some(queue) => queue,
            None => self.only_queue(&fields.path("queue"))?,
        };
        let class = self.class(&mut fields)?;
        let preemptible = fields.flag("preemptible")?;
        let ago = |fields: &mut Fields<'_>, key: &'static str| -> Read<Option<Span>> {
            let path = fields.path(key);
            fields.text(key)?.map(|text| duration(&text, &path)).transpose()
        };
        let age = ago(&mut fields, "age")?.unwrap_or(self.age);
        let started = ago(&mut fields, "started")?.unwrap_or(Span::seconds(60));
        let stale = ago(&mut fields, "stale")?;
        let terminating = fields.flag("terminating")?.unwrap_or(false);
        let topology = self.topology(fields.get("topology"), &fields.path("topology"))?;
        let min_groups = fields.count("minGroups", MOST)?;
        let line = pod_line(&mut fields)?;
        let groups = fields.list("groups")?;
        fields.finish()?;

        let created = stamp(Time(self.now.0.saturating_sub(age.0)));
        let mut spec = json!({"queue": queue, "priorityClassName": class});
        if let Some(preemptible) = preemptible {
            spec["preemptibility"] = json!(if preemptible { "preemptible" } else { "non-preemptible" });
        }
        if let Some(topology) = topology {
            spec["topologyConstraint"] = topology;
        }
        let about = About {
            gang: &name,
            namespace: &namespace,
            queue: &queue,
            class: &class,
            created: &created,
            terminating: terminating.then(|| stamp(self.now + Span::seconds(-5))),
        };
        let mut pods = Vec::new();
        if groups.is_empty() {
            let count = line.count.or(line.min).unwrap_or(1);
            spec["minMember"] = json!(line.min.unwrap_or(count));
            write_pods(&about, None, count, &line, &mut pods);
        } else {
            if line.count.is_some() || line.min.is_some() {
                return problem(&join(&path, "groups"), "with groups, `pods` and `min` stand in each group");
            }
            let mut sub_groups = Vec::new();
            for (i, group) in groups.iter().enumerate() {
                sub_groups.push(self.group(
                    group,
                    &join(&path, &format!("groups[{i}]")),
                    &about,
                    &mut pods,
                )?);
            }
            spec["subGroups"] = json!(sub_groups);
            if let Some(n) = min_groups {
                spec["minSubGroup"] = json!(n);
            }
        }
        let mut annotations = Map::new();
        if !terminating && pods.iter().any(|p: &Value| p["spec"]["nodeName"].is_string()) {
            let at = stamp(Time(self.now.0.saturating_sub(started.0)));
            annotations.insert("kai.scheduler/last-start-timestamp".into(), json!(at));
        }
        if let Some(stale) = stale {
            let at = stamp(Time(self.now.0.saturating_sub(stale.0)));
            annotations.insert("kai.scheduler/stale-podgroup-timestamp".into(), json!(at));
        }
        self.objects.push(json!({
            "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("{namespace}/{name}"),
                "creationTimestamp": created, "annotations": annotations,
            },
            "spec": spec,
        }));
        self.objects.append(&mut pods);
        Ok(())
    }

    /// The queue of a gang that names none: there must be no doubt which it is.
    fn only_queue(&self, path: &str) -> Read<String> {
        let leaf =
            |q: &&QueueName| !self.queues.iter().any(|other| other.parent.as_deref() == Some(&*q.name));
        let leaves: Vec<&str> = self.queues.iter().filter(leaf).map(|q| &*q.name).collect();
        match leaves.as_slice() {
            [only] => Ok(only.to_string()),
            [] => problem(path, "name the queue, and list it under cluster.queues"),
            many => problem(path, format!("name the queue: {}", many.join(", "))),
        }
    }

    fn class(&mut self, fields: &mut Fields<'_>) -> Read<String> {
        let path = fields.path("priority");
        let (name, value) = match fields.get("priority") {
            None => ("train".to_string(), Some(50)),
            Some(Value::String(name)) => {
                let known = CLASSES.iter().find(|(class, _)| class == name).map(|(_, value)| *value);
                (name.clone(), known)
            }
            Some(number) => match number.as_i64().filter(|n| i32::try_from(*n).is_ok()) {
                Some(n) => (format!("priority-{n}"), Some(n)),
                None => return problem(&path, "write a whole number, or the name of a priority class"),
            },
        };
        // A class of another name is expected among the objects.
        if let Some(value) = value {
            self.classes.insert((name.clone(), value));
        }
        Ok(name)
    }

    fn topology(&self, value: Option<&Value>, path: &str) -> Read<Option<Value>> {
        let Some(value) = value else { return Ok(None) };
        let mut fields = Fields::of(value, path)?;
        let name = match (fields.text("name")?, self.topologies) {
            (Some(name), _) => name,
            (None, [only]) => only.clone(),
            (None, _) => return problem(&join(path, "name"), "name the topology"),
        };
        let mut rule = json!({"topology": name});
        for (key, field) in [("required", "requiredTopologyLevel"), ("preferred", "preferredTopologyLevel")] {
            if let Some(level) = fields.text(key)? {
                rule[field] = json!(level);
            }
        }
        fields.finish()?;
        Ok(Some(rule))
    }

    fn group(&self, value: &Value, path: &str, about: &About<'_>, pods: &mut Vec<Value>) -> Read<Value> {
        let mut fields = Fields::of(value, path)?;
        let Some(name) = fields.text("name")? else { return problem(&fields.path("name"), "name the group") };
        let parent = fields.text("parent")?;
        let min_groups = fields.count("minGroups", MOST)?;
        let topology = self.topology(fields.get("topology"), &fields.path("topology"))?;
        let line = pod_line(&mut fields)?;
        fields.finish()?;
        let mut group = json!({"name": name});
        if let Some(parent) = parent {
            group["parent"] = json!(parent);
        }
        if let Some(topology) = topology {
            group["topologyConstraint"] = topology;
        }
        if let Some(n) = min_groups {
            group["minSubGroup"] = json!(n);
        }
        // An inner group has neither pods nor a minimum of them.
        if let Some(count) = line.count.or(line.min) {
            group["minMember"] = json!(line.min.unwrap_or(count));
            write_pods(about, Some(&name), count, &line, pods);
        }
        Ok(group)
    }
}

/// What all pods of a gang share.
struct About<'a> {
    gang: &'a str,
    namespace: &'a str,
    queue: &'a str,
    class: &'a str,
    created: &'a str,
    /// Since when they are terminating.
    terminating: Option<String>,
}

fn pod_line(fields: &mut Fields<'_>) -> Read<PodLine> {
    let count = fields.count("pods", MOST)?;
    let min = fields.count("min", MOST)?;
    let gpu = gpu(fields)?;
    let cpu = quantity(fields, "cpu", "1")?;
    let memory = quantity(fields, "memory", "1Gi")?;
    let on = fields.texts("on")?.unwrap_or_default();
    let shares = fields.texts("shares")?.unwrap_or_default();
    let labels_of = labels(fields.get("labels"), &fields.path("labels"))?;
    let annotations = labels(fields.get("annotations"), &fields.path("annotations"))?;
    let mut spec = object(fields.get("spec"), &fields.path("spec"))?;
    for key in ["nodeSelector", "tolerations", "affinity", "resourceClaims"] {
        if let Some(value) = fields.get(key) {
            spec.insert(key.into(), value.clone());
        }
    }
    let limits = fields.flag("guaranteed")?.unwrap_or(false);
    Ok(PodLine { count, min, gpu, cpu, memory, on, shares, labels: labels_of, annotations, spec, limits })
}

fn gpu(fields: &mut Fields<'_>) -> Read<Gpu> {
    let path = fields.path("gpu");
    let memory = fields.get("gpuMemory");
    let devices = fields.count("gpuDevices", 1000)?;
    match (fields.get("gpu"), memory) {
        (Some(_), Some(_)) => problem(&path, "ask for GPUs by number or by memory (gpuMemory), not both"),
        (None, None) => Ok(Gpu::None),
        (None, Some(memory)) => {
            Ok(Gpu::Memory(mebibytes(memory, &fields.path("gpuMemory"))?, devices.unwrap_or(1)))
        }
        (Some(value), None) => match milli(value) {
            Some(0) => Ok(Gpu::None),
            Some(n) if n > 0 && n % 1000 == 0 && devices.is_none() => Ok(Gpu::Whole(n / 1000)),
            Some(n) if n > 0 && n < 1000 => Ok(Gpu::Fraction(n, devices.unwrap_or(1))),
            _ => problem(&path, "write a whole number of GPUs, or a fraction of one such as 0.5"),
        },
    }
}

fn write_pods(about: &About<'_>, group: Option<&str>, count: u32, line: &PodLine, pods: &mut Vec<Value>) {
    for i in 0..count {
        let name = match group {
            None => format!("{}-{i}", about.gang),
            Some(group) => format!("{}-{group}-{i}", about.gang),
        };
        pods.push(write_pod(about, group, &name, i as usize, line));
    }
}

fn write_pod(about: &About<'_>, group: Option<&str>, name: &str, i: usize, line: &PodLine) -> Value {
    // One node stands for all pods; a list places its first pods, and the rest wait.
    let node = match line.on.as_slice() {
        [all] => Some(all),
        list => list.get(i),
    };
    let mut labels = line.labels.clone();
    labels.insert("kai.scheduler/queue".into(), json!(about.queue));
    if let Some(group) = group {
        labels.insert("kai.scheduler/subgroup-name".into(), json!(group));
    }
    let mut annotations = line.annotations.clone();
    annotations.insert("pod-group-name".into(), json!(about.gang));
    let mut requests = json!({"cpu": line.cpu, "memory": line.memory});
    let mut limits = json!({});
    let devices = match line.gpu {
        Gpu::None => 0,
        Gpu::Whole(n) => {
            requests["nvidia.com/gpu"] = json!(n.to_string());
            limits["nvidia.com/gpu"] = json!(n.to_string());
            0
        }
        Gpu::Fraction(n, devices) => {
            annotations.insert("gpu-fraction".into(), json!(crate::words::thousandths(n.into())));
            devices
        }
        Gpu::Memory(mib, devices) => {
            annotations.insert("gpu-memory".into(), json!(mib.to_string()));
            devices
        }
    };
    if devices > 1 {
        annotations.insert("gpu-fraction-num-devices".into(), json!(devices.to_string()));
    }
    if line.limits {
        limits = requests.clone();
    }
    if node.is_some() && devices > 0 {
        // Which GPU a running share is on: as the case says, or one of its own.
        let share = match line.shares.as_slice() {
            [all] => all.clone(),
            list => list.get(i).cloned().unwrap_or_else(|| name.to_string()),
        };
        if devices == 1 {
            labels.insert("runai-gpu-group".into(), json!(share));
        } else {
            for device in 0..devices {
                let id = format!("{share}-{device}");
                labels.insert(format!("runai-gpu-group/{id}"), json!(id));
            }
        }
    }
    let mut spec = json!({
        "schedulerName": "kai-scheduler",
        "priorityClassName": about.class,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests, "limits": limits}}],
    });
    for (key, value) in &line.spec {
        spec[key] = value.clone();
    }
    let mut meta = json!({
        "name": name, "namespace": about.namespace, "uid": format!("{}/{name}", about.namespace),
        "creationTimestamp": about.created, "labels": labels, "annotations": annotations,
    });
    let mut phase = "Pending";
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
        phase = "Running";
        if let Some(since) = &about.terminating {
            meta["deletionTimestamp"] = json!(since);
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}})
}
