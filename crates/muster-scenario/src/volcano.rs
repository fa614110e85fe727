//! Volcano's cases: one session on a cluster, and what must have come of it.
//!
//! In: a document with `dialect: volcano`. Out: what came out, in the form of the document's `expect`, and how that differs from it; where
//! several outcomes count (`expect_any`), one of them must hold. Cases of kind `probe` ask single functions of plugins ([`probe`]).

mod probe;
mod short;

use crate::case::DEFAULT_NOW;
use muster_engine::Engine;
use muster_model::volcano::Phase;
use muster_model::{Cluster, Decisions, Key, PodState, Resource};
use muster_translate::Settings;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What came out of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In the form of `expect`.
    pub actual: Value,
    /// How it differs from what is expected.
    pub differences: Vec<String>,
    /// What made no sense in the objects and settings.
    pub notes: Vec<String>,
}

/// Runs a case. `Err`: it cannot be run, and why.
pub fn run(case: &Value) -> Result<Outcome, String> {
    let probes = case.get("expect").and_then(|expect| expect.get("probes")).and_then(Value::as_array);
    let is_probe = case.get("kind").and_then(Value::as_str) == Some("probe");
    let probes = probes.filter(|_| is_probe);
    if is_probe && probes.is_none_or(Vec::is_empty) {
        return Err("a probe is advisory, and this one asks nothing: write expect.probes".into());
    }
    let now = match case.get("now").and_then(Value::as_str) {
        Some(text) => crate::case::time(text, "now").map_err(|problem| problem.to_string())?,
        None => DEFAULT_NOW,
    };
    let names = ["default-scheduler", "volcano"];
    let settings = Settings {
        now,
        scheduler_names: names.map(Into::into).to_vec(),
        volcano: names.map(Into::into).to_vec(),
        ..Settings::default()
    };
    let mut objects = case.get("objects").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(cluster) = case.get("cluster") {
        objects.extend(short::expand(cluster).map_err(|problem| problem.to_string())?);
    }
    if let Some(probes) = probes {
        let is_queue = |object: &&Value| object["kind"] == "Queue";
        let queue = objects.iter().find(is_queue).and_then(|queue| queue["metadata"]["name"].as_str());
        let more = probe::more_objects(probes, queue.unwrap_or("default"));
        objects.extend(more);
    }
    let (cluster, mut notes) = muster_translate::cluster(&objects, &settings);
    let (policy, found) = match case.get("config") {
        Some(config) => muster_translate::volcano::policy(config),
        None => muster_translate::volcano::tiers(case),
    };
    notes.extend(found);
    let (mut engine, found) = Engine::build(cluster.clone(), policy.clone());
    notes.extend(found);
    if let Some(probes) = probes {
        let (actual, differences) = probe::run(&mut engine, probes, &objects, now)?;
        if !differences.is_empty() {
            return Err(format!("probes are advisory; this one differs: {}", differences.join("; ")));
        }
        let notes = notes.iter().map(ToString::to_string).collect();
        return Ok(Outcome { actual, differences, notes });
    }
    let decisions = engine.cycle(now);
    let mut differences: Vec<String> = muster_engine::audit::audit(&cluster, &policy, &decisions)
        .iter()
        .map(|finding| format!("audit: {finding}"))
        .collect();
    let end = End::of(&cluster, &decisions);
    let expected: Vec<&Value> = match case.get("expect_any").and_then(Value::as_array) {
        Some(any) if !any.is_empty() => any.iter().collect(),
        _ => case.get("expect").into_iter().collect(),
    };
    let mut fewest: Option<Vec<String>> = None;
    for expect in expected {
        let found = end.differences(expect);
        if fewest.as_ref().is_none_or(|f| found.len() < f.len()) {
            fewest = Some(found);
        }
    }
    differences.extend(fewest.unwrap_or_else(|| vec!["nothing is expected, so nothing can fail".into()]));
    Ok(Outcome { actual: end.json(), differences, notes: notes.iter().map(ToString::to_string).collect() })
}

/// How everything stands when the session closes.
struct End {
    binds: BTreeMap<String, String>,
    evictions: Vec<String>,
    /// By group: the nodes that its pods were promised.
    promises: BTreeMap<String, BTreeSet<String>>,
    phases: BTreeMap<String, Phase>,
    /// By group: how many pods there are in each state.
    states: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// By group: CPU and memory of pods that hold a place.
    allocated: BTreeMap<String, (i64, i64)>,
    by_domain: Vec<u64>,
}

impl End {
    fn of(cluster: &Cluster, decisions: &Decisions) -> Self {
        let mut fates: BTreeMap<&Key, &'static str> = BTreeMap::new();
        fates.extend(decisions.binds.iter().map(|b| (&b.pod, "Binding")));
        fates.extend(decisions.held.iter().map(|b| (&b.pod, "Allocated")));
        fates.extend(decisions.pipelined.iter().map(|b| (&b.pod, "Pipelined")));
        fates.extend(decisions.evictions.iter().map(|e| (&e.pod, "Releasing")));
        let mut states: BTreeMap<String, BTreeMap<&'static str, u64>> =
            cluster.gangs.iter().map(|gang| (gang.key.own().to_string(), BTreeMap::new())).collect();
        let mut allocated: BTreeMap<String, (i64, i64)> =
            cluster.gangs.iter().map(|gang| (gang.key.own().to_string(), (0, 0))).collect();
        for pod in &cluster.pods {
            let Some(gang) = &pod.gang else { continue };
            let state = fates.get(&pod.key).copied().unwrap_or(match pod.state {
                PodState::Gated | PodState::Pending => "Pending",
                PodState::Binding => "Binding",
                PodState::Bound => "Bound",
                PodState::Running => "Running",
                PodState::Releasing | PodState::Stuck => "Releasing",
                PodState::Succeeded => "Succeeded",
                PodState::Failed => "Failed",
            });
            *states.entry(gang.own().to_string()).or_default().entry(state).or_default() += 1;
            if ["Binding", "Bound", "Running", "Allocated"].contains(&state) {
                let sum = allocated.entry(gang.own().to_string()).or_default();
                sum.0 += pod.shape.requests.get(&Resource::Cpu);
                sum.1 += pod.shape.requests.get(&Resource::Memory);
            }
        }
        let mut promises: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for promise in &decisions.pipelined {
            promises
                .entry(promise.gang.own().to_string())
                .or_default()
                .insert(promise.placement.node.to_string());
        }
        let mut phases: BTreeMap<String, Phase> = cluster
            .gangs
            .iter()
            .filter_map(|gang| Some((gang.key.own().to_string(), gang.volcano.as_ref()?.phase)))
            .collect();
        phases.extend(decisions.phases.iter().map(|p| (p.gang.own().to_string(), p.phase)));
        let domains = cluster.topologies.iter().flat_map(|t| &t.domains);
        let lowest = domains.clone().map(|d| d.tier).min();
        let mut by_domain: Vec<u64> = domains
            .filter(|d| Some(d.tier) == lowest)
            .map(|d| decisions.binds.iter().filter(|b| d.nodes.contains(&b.placement.node)).count() as u64)
            .filter(|n| *n > 0)
            .collect();
        by_domain.sort_unstable();
        let mut evictions: Vec<String> = decisions.evictions.iter().map(|e| e.pod.to_string()).collect();
        evictions.sort();
        let binds = decisions.binds.iter();
        Self {
            binds: binds.map(|b| (b.pod.to_string(), b.placement.node.to_string())).collect(),
            evictions,
            promises,
            phases,
            states,
            allocated,
            by_domain,
        }
    }

    fn json(&self) -> Value {
        let allocated: Map<String, Value> = self
            .allocated
            .iter()
            .map(|(gang, (cpu, memory))| (gang.clone(), json!({"milli_cpu": cpu, "memory_bytes": memory})))
            .collect();
        let phases: Map<String, Value> =
            self.phases.iter().map(|(gang, phase)| (gang.clone(), json!(phase.name()))).collect();
        json!({
            "bind": self.binds,
            "bind_count": self.binds.len(),
            "bind_per_hypernode": self.by_domain,
            "evict": self.evictions,
            "evict_count": self.evictions.len(),
            "pipelined": self.promises,
            "podgroup_phase": phases,
            "task_status": self.states,
            "job_allocated": allocated,
        })
    }

    fn differences(&self, expect: &Value) -> Vec<String> {
        let actual = self.json();
        let mut found = Vec::new();
        let Value::Object(expect) = expect else { return vec!["expect must be a mapping".into()] };
        for (field, want) in expect {
            if want.is_null() {
                continue;
            }
            match field.as_str() {
                "bind" | "bind_count" | "bind_per_hypernode" | "evict_count" => {
                    if actual[field] != *want {
                        found.push(format!("{field}: expected {want}, got {}", actual[field]));
                    }
                }
                "evict" => {
                    let mut names: Vec<&str> =
                        want.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                    names.sort_unstable();
                    if names != self.evictions {
                        found.push(format!("evict: expected {names:?}, got {:?}", self.evictions));
                    }
                }
                "pipelined" => {
                    for (gang, nodes) in want.as_object().into_iter().flatten() {
                        let nodes: Vec<&str> =
                            nodes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                        let got = self.promises.get(gang);
                        let good = got.is_some_and(|got| got.iter().all(|n| nodes.contains(&n.as_str())));
                        if !good {
                            let got: Vec<&String> = got.into_iter().flatten().collect();
                            found.push(format!("pipelined: {gang} expected on {nodes:?}, got {got:?}"));
                        }
                    }
                }
                "podgroup_phase" | "job_allocated" | "task_status" => {
                    for (gang, want) in want.as_object().into_iter().flatten() {
                        let got = &actual[field][gang];
                        if !same(want, got) {
                            found.push(format!("{field}: {gang} expected {want}, got {got}"));
                        }
                    }
                }
                "probes" => {}
                other => {
                    found.push(format!("{other}: nothing of this name can be expected of a Volcano case"))
                }
            }
        }
        found
    }
}

/// Equal, where a count of zero is as good as none and numbers are numbers however they are written.
fn same(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let keys: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
            let zero = json!(0);
            keys.into_iter().all(|key| same(want.get(key).unwrap_or(&zero), got.get(key).unwrap_or(&zero)))
        }
        (Value::Number(want), Value::Number(got)) => want.as_f64() == got.as_f64(),
        _ => want == got,
    }
}
