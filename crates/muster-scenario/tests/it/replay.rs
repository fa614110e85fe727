//! Upstream's own course of every worked case, put in place of the engine: running and comparing must find nothing to object to, and
//! must object when the course is changed. Skipped where the specification folder (`../shared`) is absent.

use muster_model::{
    Action, Amounts, Bind, Cluster, Decisions, Evict, Key, Name, Pipeline, Placement, Pod, Resource, ZoneUse,
};
use muster_scenario::{Case, Decided, Mismatch, Symmetry, cases_of, compare, play_with, setup};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/scenarios/kai");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: no ../shared");
    None
}

/// Every worked case, with what upstream did.
pub fn worked_cases() -> Vec<(Case, Value)> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "jsonl")) {
        let text = String::from_utf8(std::fs::read(file).unwrap()).unwrap();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let case = cases_of(&value, "").unwrap_or_else(|e| panic!("{}: {e}", value["id"])).remove(0);
            cases.push((case, value));
        }
    }
    cases
}

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap();
    Key::new(namespace, name)
}

fn action(name: &str) -> Action {
    [Action::Allocate, Action::Consolidate, Action::Reclaim, Action::Preempt, Action::EvictStaleGangs]
        .into_iter()
        .find(|a| a.name() == name)
        .unwrap()
}

/// Where upstream put a pod, with the GPUs and zones that it wrote down, if any.
fn placement(case: &Value, pod: &Pod, node: &str) -> Placement {
    let name = pod.key.to_string();
    let gpus = case["observed"]["pods"][&name]["gpus"].as_array();
    let hints = case["expect"]["pods"][&name]["gpuGroupHint"].as_array();
    let zones = case["expect"]["pods"][&name]["numaZones"].as_array();
    // Each zone gives its part; which part nobody asserts.
    let cpu = pod.shape.requests.get(&Resource::Cpu) / zones.map_or(1, |z| z.len().max(1) as i64);
    Placement {
        node: node.into(),
        // What is observed has names of its own for GPUs; a hint has the name that the objects use.
        gpu_groups: hints.or(gpus).into_iter().flatten().map(|g| Name::from(g.as_str().unwrap())).collect(),
        zones: zones
            .into_iter()
            .flatten()
            .map(|z| ZoneUse {
                zone: u32::try_from(z.as_u64().unwrap()).unwrap(),
                amounts: Amounts::from_iter([(Resource::Cpu, cpu)]),
            })
            .collect(),
        ..Placement::default()
    }
}

/// What upstream decided in one cycle. After the comparison it decided nothing: that is what stable means.
fn observed(case: &Value, cycle: u32, cluster: &Cluster) -> Decisions {
    let mut decisions = Decisions::default();
    let cycle = &case["observed"]["cycles"][cycle as usize];
    let pod = |name: &str| cluster.pods.iter().find(|p| p.key == key(name)).unwrap();
    for (name, node) in cycle["binds"].as_object().into_iter().flatten() {
        let pod = pod(name);
        decisions.binds.push(Bind {
            pod: pod.key.clone(),
            gang: pod.gang.clone().unwrap(),
            action: Action::Allocate,
            placement: placement(case, pod, node.as_str().unwrap()),
        });
    }
    for (name, node) in cycle["pipelined"].as_object().into_iter().flatten() {
        let pod = pod(name);
        decisions.pipelined.push(Pipeline {
            pod: pod.key.clone(),
            gang: pod.gang.clone().unwrap(),
            action: Action::Allocate,
            placement: placement(case, pod, node.as_str().unwrap()),
        });
    }
    for eviction in cycle["evictions"].as_array().into_iter().flatten() {
        let pod = pod(eviction["pod"].as_str().unwrap());
        decisions.evictions.push(Evict {
            pod: pod.key.clone(),
            gang: pod.gang.clone().unwrap(),
            action: action(eviction["action"].as_str().unwrap()),
            by: None,
            moved: decisions.pipelined.iter().any(|p| p.pod == pod.key),
            forced: false,
        });
    }
    decisions
}

/// What differs when the case takes upstream's course, changed by `change`.
fn replayed(case: &Case, value: &Value, change: &dyn Fn(u32, &mut Decisions)) -> Vec<Mismatch> {
    let outcome = play_with(case, false, &mut |cycle, cluster, _, _| {
        let mut decisions = observed(value, cycle, cluster);
        change(cycle, &mut decisions);
        Decided { decisions, ..Decided::default() }
    });
    let mut outcome = outcome.unwrap();
    // The course leaves out what nobody asserted (devices, shares), so the auditor cannot judge it.
    outcome.cycles.iter_mut().for_each(|c| c.findings.clear());
    compare(case, &outcome)
}

#[test]
fn upstreams_own_course_is_as_expected() {
    let mut wrong = Vec::new();
    for (case, value) in worked_cases() {
        let differences = replayed(&case, &value, &|_, _| {});
        if !differences.is_empty() {
            let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
            wrong.push(format!("{}\n    {}", case.id, lines.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_lost_decision_is_noticed() {
    let mut unnoticed = Vec::new();
    for (case, value) in worked_cases() {
        let first = &value["observed"]["cycles"][0];
        // Pods that nobody asserts may do as they like, and a cycle may be made up for by the next.
        let asserted = |name: &str| value["expect"]["pods"].get(name).is_some();
        let bound = first["binds"].as_object().is_some_and(|b| b.keys().any(|k| asserted(k)));
        if bound && case.cycles == 1 && replayed(&case, &value, &|_, d| d.binds.clear()).is_empty() {
            unnoticed.push(format!("{}: no binds", case.id));
        }
        let evictions = first["evictions"].as_array();
        let evicted = evictions.is_some_and(|e| e.iter().any(|e| asserted(e["pod"].as_str().unwrap())));
        if evicted && case.cycles == 1 && replayed(&case, &value, &|_, d| d.evictions.clear()).is_empty() {
            unnoticed.push(format!("{}: no evictions", case.id));
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[test]
fn unrest_in_a_stable_cycle_is_noticed() {
    for (case, value) in worked_cases() {
        let evict_something = |cycle: u32, decisions: &mut Decisions| {
            let named = value["expect"]["pods"].as_object().unwrap();
            let placed = named.iter().find(|(_, p)| p["phase"] == "running" || p["phase"] == "bound");
            if let (true, Some((name, _))) = (cycle == case.cycles, placed) {
                let (pod, gang) = (key(name), Key::new("default", "any"));
                decisions.evictions.push(Evict {
                    pod,
                    gang,
                    action: Action::Reclaim,
                    by: None,
                    moved: false,
                    forced: false,
                });
            }
        };
        let placed = case.expect.pods.values().any(|p| {
            matches!(p.phase, Some(muster_scenario::Phase::Running | muster_scenario::Phase::Bound))
        });
        if case.stable_cycles > 0 && placed {
            let differences = replayed(&case, &value, &evict_something);
            assert!(differences.iter().any(|d| d.what.contains("stable")), "{}: {differences:?}", case.id);
        }
    }
}

/// Each name of a set becomes the next one of it.
fn rotation(sets: &[Vec<String>]) -> BTreeMap<String, String> {
    sets.iter().flat_map(|set| set.iter().cloned().zip(set.iter().cycle().skip(1).cloned())).collect()
}

#[test]
fn symmetric_pods_and_nodes_may_swap_roles() {
    let mut tried = 0;
    for (case, value) in worked_cases() {
        let start = setup(&case).unwrap().cluster;
        let where_is =
            |name: &String| start.pods.iter().find(|p| p.key == key(name)).and_then(|p| p.node.clone());
        let free = |set: &&Vec<String>| {
            set.iter().all(|n| start.pods.iter().all(|p| p.node.as_deref() != Some(n.as_str())))
        };
        let together = |set: &&Vec<String>| set.iter().all(|p| where_is(p) == where_is(&set[0]));
        let nodes: Vec<Vec<String>> = case.symmetry.nodes.iter().filter(free).cloned().collect();
        let pods: Vec<Vec<String>> = case.symmetry.pods.iter().filter(together).cloned().collect();
        if nodes.is_empty() && pods.is_empty() {
            continue;
        }
        tried += 1;
        let (nodes, pods) = (rotation(&nodes), rotation(&pods));
        let swap_node = |node: &mut Name| {
            if let Some(next) = nodes.get(&**node) {
                *node = next.as_str().into();
            }
        };
        let swap_pod = |pod: &mut Key| {
            if let Some(next) = pods.get(&pod.to_string()) {
                *pod = key(next);
            }
        };
        let change = |_: u32, decisions: &mut Decisions| {
            decisions
                .binds
                .iter_mut()
                .for_each(|b| (swap_pod(&mut b.pod), swap_node(&mut b.placement.node)).1);
            decisions
                .pipelined
                .iter_mut()
                .for_each(|p| (swap_pod(&mut p.pod), swap_node(&mut p.placement.node)).1);
            decisions.evictions.iter_mut().for_each(|e| swap_pod(&mut e.pod));
        };
        let differences = replayed(&case, &value, &change);
        assert!(differences.is_empty(), "{}: {differences:#?}", case.id);
        let strict = Case { symmetry: Symmetry::default(), ..case.clone() };
        let noticed = !replayed(&strict, &value, &change).is_empty();
        println!("{}: {}", case.id, if noticed { "told apart by name" } else { "no name asserted" });
    }
    assert!(tried > 30 || folder().is_none(), "{tried}");
}
