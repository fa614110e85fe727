//! The short form of a Volcano cluster: `cluster: {nodes, queues, jobs, hypernodes}` becomes ordinary manifests.
//!
//! ```yaml
//! cluster:
//!   nodes: [{name: n1, cpu: 4}]                              # memory 64Gi, 110 pods
//!   queues: [{name: q, weight: 1, deserved: {cpu: 2}}]       # what a Queue's spec has; open, weight 1
//!   jobs: [{name: j, queue: q, min: 2, pods: 3, cpu: 1, on: n1, priority: 10}]
//!   hypernodes: [{name: rack, tier: 1, nodes: [n1]}, {name: spine, tier: 2, children: [rack]}]
//! ```
//!
//! A job's pods wait, or run where `on` says; several groups of pods go under `roles: {name: {pods, cpu, ...}}`. What is not known here is said to
//! the reader, never ignored.

use crate::fields::{Fields, Read, problem};
use serde_json::{Map, Value, json};

pub fn expand(cluster: &Value) -> Read<Vec<Value>> {
    let mut fields = Fields::of(cluster, "cluster")?;
    let mut objects = Vec::new();
    for (i, node) in fields.list("nodes")?.iter().enumerate() {
        objects.push(self::node(node, &format!("cluster.nodes[{i}]"))?);
    }
    for (i, queue) in fields.list("queues")?.iter().enumerate() {
        objects.push(self::queue(queue, i, &format!("cluster.queues[{i}]"))?);
    }
    for (i, domain) in fields.list("hypernodes")?.iter().enumerate() {
        objects.push(hypernode(domain, &format!("cluster.hypernodes[{i}]"))?);
    }
    for (i, job) in fields.list("jobs")?.iter().enumerate() {
        objects.extend(self::job(job, i, &format!("cluster.jobs[{i}]"))?);
    }
    fields.finish()?;
    Ok(objects)
}

fn name(fields: &mut Fields<'_>, at: &str) -> Read<String> {
    match fields.text("name")? {
        Some(name) => Ok(name),
        None => problem(at, "has no name"),
    }
}

/// Numbers and text alike.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn node(value: &Value, at: &str) -> Read<Value> {
    let mut fields = Fields::of(value, at)?;
    let name = name(&mut fields, at)?;
    let mut amounts = Map::new();
    for (field, resource, default) in [
        ("cpu", "cpu", "64"),
        ("memory", "memory", "64Gi"),
        ("pods", "pods", "110"),
        ("gpu", "nvidia.com/gpu", "0"),
    ] {
        let amount = fields.get(field).map_or_else(|| default.to_owned(), plain);
        if amount != "0" {
            amounts.insert(resource.into(), json!(amount));
        }
    }
    let labels = fields.get("labels").cloned().unwrap_or_else(|| json!({}));
    let taints = fields.get("taints").cloned().unwrap_or_else(|| json!([]));
    fields.finish()?;
    Ok(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints}, "status": {"allocatable": amounts}}))
}

fn queue(value: &Value, number: usize, at: &str) -> Read<Value> {
    let mut fields = Fields::of(value, at)?;
    let name = name(&mut fields, at)?;
    let mut spec = Map::new();
    spec.insert("weight".into(), json!(1));
    for field in
        ["weight", "deserved", "capability", "guarantee", "parent", "priority", "reclaimable", "affinity"]
    {
        if let Some(given) = fields.get(field) {
            let given = if field == "guarantee" { json!({"resource": given}) } else { given.clone() };
            spec.insert(field.into(), given);
        }
    }
    let state = fields.text("state")?.unwrap_or_else(|| "Open".to_owned());
    let annotations = fields.get("annotations").cloned().unwrap_or_else(|| json!({}));
    fields.finish()?;
    Ok(json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": name, "annotations": annotations, "creationTimestamp": age(number)},
        "spec": spec, "status": {"state": state}}))
}

fn hypernode(value: &Value, at: &str) -> Read<Value> {
    let mut fields = Fields::of(value, at)?;
    let name = name(&mut fields, at)?;
    let tier = fields.get("tier").cloned().unwrap_or_else(|| json!(1));
    let member = |kind: &str, name: String| json!({"type": kind, "selector": {"exactMatch": {"name": name}}});
    let mut members: Vec<Value> = Vec::new();
    members.extend(fields.texts("nodes")?.unwrap_or_default().into_iter().map(|n| member("Node", n)));
    members.extend(fields.texts("children")?.unwrap_or_default().into_iter().map(|n| member("HyperNode", n)));
    fields.finish()?;
    Ok(json!({"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name},
        "spec": {"tier": tier, "members": members}}))
}

/// Everything is as old as its place in the list says: the first is the oldest.
fn age(number: usize) -> String {
    format!("2025-01-01T{:02}:{:02}:{:02}Z", number / 3600 % 24, number / 60 % 60, number % 60)
}

fn job(value: &Value, number: usize, at: &str) -> Read<Vec<Value>> {
    let mut fields = Fields::of(value, at)?;
    let name = name(&mut fields, at)?;
    let namespace = fields.text("namespace")?.unwrap_or_else(|| "ns".to_owned());
    let mut spec = Map::new();
    spec.insert("queue".into(), json!(fields.text("queue")?.unwrap_or_else(|| "q".to_owned())));
    spec.insert("minMember".into(), fields.get("min").cloned().unwrap_or_else(|| json!(1)));
    for field in ["minResources", "minTaskMember", "networkTopology", "subGroupPolicy"] {
        if let Some(given) = fields.get(field) {
            spec.insert(field.into(), given.clone());
        }
    }
    let mut objects = Vec::new();
    if let Some(priority) = fields.get("priority") {
        let class = format!("p{priority}");
        spec.insert("priorityClassName".into(), json!(class));
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": class}, "value": priority}));
    }
    let phase = fields.text("phase")?.unwrap_or_else(|| "Inqueue".to_owned());
    let annotations = fields.get("annotations").cloned().unwrap_or_else(|| json!({}));
    let created = age(1000 + number);
    objects.push(json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "creationTimestamp": created},
        "spec": spec, "status": {"phase": phase}}));
    let pod = |fields: &mut Fields<'_>, role: &str, prefix: &str| {
        pods(fields, &name, &namespace, role, prefix, number)
    };
    match fields.get("roles") {
        Some(Value::Object(roles)) => {
            for (role, given) in roles {
                let mut own = Fields::of(given, &format!("{at}.roles.{role}"))?;
                objects.extend(pod(&mut own, role, &format!("{name}-{role}"))?);
                own.finish()?;
            }
        }
        Some(_) => return problem(at, "roles must be a mapping of names to pods"),
        None => objects.extend(pod(&mut fields, "", &name)?),
    }
    fields.finish()?;
    Ok(objects)
}

fn pods(
    fields: &mut Fields<'_>,
    job: &str,
    namespace: &str,
    role: &str,
    prefix: &str,
    number: usize,
) -> Read<Vec<Value>> {
    let n = fields.count("pods", 10_000)?.unwrap_or(1);
    let mut requests = Map::new();
    for (field, resource) in [("cpu", "cpu"), ("memory", "memory"), ("gpu", "nvidia.com/gpu")] {
        if let Some(amount) = fields.get(field) {
            requests.insert(resource.into(), json!(plain(amount)));
        }
    }
    // One node for all, or one for each; pods beyond the list wait.
    let on: Vec<String> = match fields.get("on") {
        Some(Value::String(node)) => vec![node.clone(); n as usize],
        Some(Value::Array(nodes)) => nodes.iter().map(plain).collect(),
        _ => Vec::new(),
    };
    let priority = fields.get("podPriority").cloned();
    let labels = fields.get("labels").cloned().unwrap_or_else(|| json!({}));
    let extra = fields.get("podAnnotations").cloned().unwrap_or_else(|| json!({}));
    let spec = fields.get("spec").cloned().unwrap_or_else(|| json!({}));
    let mut made = Vec::new();
    for i in 0..n {
        let mut annotations = extra.as_object().cloned().unwrap_or_default();
        annotations.insert("scheduling.k8s.io/group-name".into(), json!(job));
        if !role.is_empty() {
            annotations.insert("volcano.sh/task-spec".into(), json!(role));
        }
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        spec.insert("containers".into(), json!([{"name": "c", "resources": {"requests": requests}}]));
        let node = on.get(i as usize);
        if let Some(node) = node {
            spec.insert("nodeName".into(), json!(node));
        }
        if let Some(priority) = &priority {
            spec.insert("priority".into(), priority.clone());
        }
        let phase = if node.is_some() { "Running" } else { "Pending" };
        made.push(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{prefix}-{i}"), "namespace": namespace, "annotations": annotations,
                "labels": labels, "creationTimestamp": age(2000 + number * 20 + i as usize)},
            "spec": spec, "status": {"phase": phase}}));
    }
    Ok(made)
}
