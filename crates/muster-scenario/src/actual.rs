//! What came out, in the form in which a case says what it expects, and complete: every pod, gang, queue and node.

use crate::expect::Phase;
use crate::play::{CycleOutcome, Moment, Outcome, PodOutcome};
use crate::words::amount_json;
use muster_model::{Key, Resource};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The outcome at the comparison, and what every cycle did, stable cycles included.
pub fn actual(outcome: &Outcome) -> Value {
    let Some(moment) = outcome.moments.first() else {
        return json!({"cycles": cycles_json(&outcome.cycles)});
    };
    let pods: Map<String, Value> =
        moment.pods.iter().map(|(name, pod)| (name.clone(), pod_json(pod))).collect();
    let evicted: usize = outcome.cycles.iter().map(|c| c.decisions.evictions.len()).sum();
    json!({
        "pods": pods,
        "groups": groups_json(moment),
        "nodes": nodes_json(moment),
        "totals": {"evicted": evicted},
        "cycles": cycles_json(&outcome.cycles),
    })
}

fn pod_json(pod: &PodOutcome) -> Value {
    let mut map = Map::new();
    map.insert("phase".into(), json!(pod.phase.name()));
    if let Some(node) = &pod.node {
        map.insert("node".into(), json!(&**node));
    }
    if pod.was_evicted && pod.phase != Phase::Evicted {
        map.insert("wasEvicted".into(), json!(true));
    }
    if pod.already_terminating {
        map.insert("alreadyTerminating".into(), json!(true));
    }
    if !pod.gpu_groups.is_empty() {
        map.insert("gpuGroupHint".into(), json!(pod.gpu_groups.iter().map(|g| &**g).collect::<Vec<_>>()));
    }
    map.insert("numaZones".into(), json!(pod.zone_numbers()));
    map.insert("gpusRequired".into(), amount_json(&Resource::Gpu, pod.gpus_required.into()));
    map.insert("gpusAccepted".into(), amount_json(&Resource::Gpu, pod.gpus_accepted.into()));
    Value::Object(map)
}

fn groups_json(moment: &Moment) -> Value {
    let mut members: BTreeMap<&Key, Vec<&PodOutcome>> =
        moment.gangs.keys().map(|k| (k, Vec::new())).collect();
    for pod in moment.pods.values() {
        if let Some(gang) = &pod.gang {
            members.entry(gang).or_default().push(pod);
        }
    }
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    for key in members.keys() {
        *names.entry(&*key.name).or_default() += 1;
    }
    let mut groups = Map::new();
    for (key, pods) in &members {
        // By name, as KAI does; only where two namespaces use one name is the namespace needed.
        let name = if names.get(&*key.name) == Some(&1) { key.name.to_string() } else { key.to_string() };
        let mut value = counts_json(pods);
        let sum = |f: fn(&PodOutcome) -> i64| pods.iter().map(|p| i128::from(f(p))).sum::<i128>();
        value.insert("gpusRequired".into(), amount_json(&Resource::Gpu, sum(|p| p.gpus_required)));
        value.insert("gpusAccepted".into(), amount_json(&Resource::Gpu, sum(|p| p.gpus_accepted)));
        let cpu = sum(|p| p.shape.requests.get(&Resource::Cpu));
        let memory = sum(|p| p.shape.requests.get(&Resource::Memory));
        value.insert("milliCpuRequired".into(), json!(i64::try_from(cpu).unwrap_or(i64::MAX)));
        value.insert("memoryRequired".into(), json!(i64::try_from(memory).unwrap_or(i64::MAX)));
        let mut parts: BTreeMap<&str, Vec<&PodOutcome>> = BTreeMap::new();
        for pod in pods {
            if let Some(group) = &pod.group {
                parts.entry(group).or_default().push(pod);
            }
        }
        if !parts.is_empty() {
            let parts: Map<String, Value> =
                parts.iter().map(|(n, pods)| (n.to_string(), Value::Object(counts_json(pods)))).collect();
            value.insert("subGroups".into(), Value::Object(parts));
        }
        groups.insert(name, Value::Object(value));
    }
    Value::Object(groups)
}

fn counts_json(pods: &[&PodOutcome]) -> Map<String, Value> {
    let mut map = Map::new();
    for phase in Phase::ALL {
        let n = pods.iter().filter(|p| p.phase == phase).count();
        // Finished pods are the exception: they are counted where there are any.
        if n > 0 || !matches!(phase, Phase::Failed | Phase::Succeeded) {
            map.insert(phase.name().into(), json!(n));
        }
    }
    let moved = pods.iter().filter(|p| p.was_evicted && p.phase != Phase::Evicted).count();
    if moved > 0 {
        map.insert("wasEvicted".into(), json!(moved));
    }
    let nodes: BTreeSet<&str> = pods
        .iter()
        .filter(|p| !matches!(p.phase, Phase::Pending | Phase::Failed | Phase::Succeeded))
        .filter_map(|p| p.node.as_deref())
        .collect();
    map.insert("nodes".into(), json!(nodes));
    map
}

fn nodes_json(moment: &Moment) -> Value {
    let nodes: Map<String, Value> = moment
        .nodes
        .iter()
        .map(|(name, node)| {
            let mut value = json!({
                "idleGPUs": amount_json(&Resource::Gpu, node.idle_gpus.into()),
                "releasingGPUs": amount_json(&Resource::Gpu, node.releasing_gpus.into()),
            });
            if !node.zones.is_empty() {
                let zones: Map<String, Value> = node
                    .zones
                    .iter()
                    .enumerate()
                    .map(|(i, zone)| {
                        let left: Map<String, Value> =
                            zone.iter().map(|(r, n)| (resource_key(r), json!(quantity(r, *n)))).collect();
                        (i.to_string(), Value::Object(left))
                    })
                    .collect();
                value["numaZonesAvailable"] = Value::Object(zones);
            }
            (name.clone(), value)
        })
        .collect();
    Value::Object(nodes)
}

/// Zones name resources as Kubernetes does.
fn resource_key(resource: &Resource) -> String {
    match resource {
        Resource::Gpu => "nvidia.com/gpu".into(),
        other => other.to_string(),
    }
}

/// An amount as a Kubernetes quantity.
fn quantity(resource: &Resource, n: i64) -> String {
    match resource {
        Resource::Cpu | Resource::Gpu if n % 1000 == 0 => (n / 1000).to_string(),
        Resource::Cpu | Resource::Gpu => format!("{n}m"),
        _ => n.to_string(),
    }
}

/// Binds, evictions and promises of each cycle; what did not happen is left out.
pub fn cycles_json(cycles: &[CycleOutcome]) -> Value {
    let cycles: Vec<Value> = cycles
        .iter()
        .map(|cycle| {
            let decisions = &cycle.decisions;
            let mut map = Map::new();
            if !decisions.binds.is_empty() {
                let binds: Map<String, Value> =
                    decisions.binds.iter().map(|b| (b.pod.to_string(), json!(&*b.placement.node))).collect();
                map.insert("binds".into(), Value::Object(binds));
            }
            if !decisions.evictions.is_empty() {
                let evictions: Vec<Value> = decisions
                    .evictions
                    .iter()
                    .map(|e| json!({"pod": e.pod.to_string(), "action": e.action.name()}))
                    .collect();
                map.insert("evictions".into(), json!(evictions));
            }
            if !decisions.pipelined.is_empty() {
                let promises: Map<String, Value> = decisions
                    .pipelined
                    .iter()
                    .map(|p| (p.pod.to_string(), json!(&*p.placement.node)))
                    .collect();
                map.insert("pipelined".into(), Value::Object(promises));
            }
            Value::Object(map)
        })
        .collect();
    json!(cycles)
}
