//! What a gang should be, and what is true of it.
//!
//! In: the set, the gang's cliques with their pods, the topology, what the backend sees. Out: the labels, annotations and
//! spec of the PodGang, and its status. Must stay true: `podReferences` is written even when empty, sorted, and names only
//! pods that stay; `Initialized` never goes back; conditions of others stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_runtime::common::Pod;
use muster_runtime::object::{Strings, condition as condition_in, is_true};
use serde_json::{Value, json};

use crate::backend::{Seen, said_by_set};
use crate::conditions::{Wanted, merged};
use crate::keys::{self, component, condition};
use crate::levels::Topology;
use crate::names;
use crate::object::{PodClique, PodCliqueSet, PodGang, condition_status, holds, label, list};
use crate::settings::{BackendName, Options};
use crate::shape::{Gang, owned};

/// A clique of the gang and its pods.
pub struct Member {
    pub name: String,
    pub min: i64,
    /// `None` while it is not there.
    pub clique: Option<Arc<PodClique>>,
    pub pods: Vec<Arc<Pod>>,
}

/// What the PodGang should say.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    pub labels: Strings,
    pub annotations: Strings,
    pub spec: Value,
}

/// What a gang of a set should be, with the pods that its groups have. `pods` gives the names of a clique's pods.
pub fn want(
    set: &PodCliqueSet,
    gang: &Gang<'_>,
    topology: &Topology<'_>,
    options: &Options,
    pods: &dyn Fn(&str) -> Vec<String>,
) -> Want {
    let namespace = &set.metadata.namespace;
    let template = &set.spec.template;
    let groups: Vec<Value> = gang
        .cliques
        .iter()
        .map(|clique| {
            let name = clique.name();
            let mut names = pods(&name);
            names.sort();
            let references: Vec<Value> =
                names.iter().map(|pod| json!({"namespace": namespace, "name": pod})).collect();
            let mut group = json!({
                "name": name,
                "minReplicas": clique.template.spec.min_available(),
                "podReferences": references,
            });
            if let Some(constraint) = topology.translate(clique.template.topology_constraint.as_ref()) {
                group["topologyConstraint"] = constraint;
            }
            group
        })
        .collect();
    let mut spec = json!({"podgroups": groups});
    // A scaled gang has its group's constraint; without one, that of the set.
    let own = match gang.scaled {
        Some((group, _)) => group.topology_constraint.as_ref().or(template.topology_constraint.as_ref()),
        None => template.topology_constraint.as_ref(),
    };
    if let Some(constraint) = topology.translate(own) {
        spec["topologyConstraint"] = constraint;
    }
    let configs = group_configs(set, gang, topology);
    if !configs.is_empty() {
        spec["topologyConstraintGroupConfigs"] = json!(configs);
    }
    let class = set.priority_class();
    if !class.is_empty() {
        spec["priorityClassName"] = json!(class);
    }
    let is_packed = spec.get("topologyConstraint").is_some()
        || spec.get("topologyConstraintGroupConfigs").is_some()
        || groups_are_packed(&spec);
    let (labels, annotations) = metadata(set, gang, is_packed.then_some(topology), options);
    Want { labels, annotations, spec }
}

fn groups_are_packed(spec: &Value) -> bool {
    list(spec, &["podgroups"]).iter().any(|group| group.get("topologyConstraint").is_some())
}

/// One for each replica of a group in the base gang whose group wants to be packed.
fn group_configs(set: &PodCliqueSet, gang: &Gang<'_>, topology: &Topology<'_>) -> Vec<Value> {
    if gang.scaled.is_some() {
        return Vec::new();
    }
    let mut configs = Vec::new();
    for group in &set.spec.template.pod_clique_scaling_groups {
        let Some(constraint) = topology.translate(group.topology_constraint.as_ref()) else { continue };
        let group_name = names::group(&set.metadata.name, gang.replica, &group.name);
        for index in 0..group.min_available() {
            let members: Vec<String> =
                set.grouped(gang.replica, group, index).map(|clique| clique.name()).collect();
            configs.push(json!({
                "name": names::group_replica(&group_name, index),
                "podGroupNames": members,
                "topologyConstraint": constraint,
            }));
        }
    }
    configs
}

fn metadata(
    set: &PodCliqueSet,
    gang: &Gang<'_>,
    packed: Option<&Topology<'_>>,
    options: &Options,
) -> (Strings, Strings) {
    let mirrored = |map: &Strings| -> Strings {
        map.iter()
            .filter(|(key, _)| !key.starts_with(keys::PREFIX) && *key != keys::LAST_APPLIED)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let mut labels = mirrored(&set.metadata.labels);
    labels.extend(owned(&set.metadata.name, component::GANG, &gang.name));
    labels.insert(keys::SET_REPLICA.into(), gang.replica.to_string());
    if let Some((group, index)) = gang.scaled {
        labels.insert(keys::GROUP.into(), names::group(&set.metadata.name, gang.replica, &group.name));
        labels.insert(keys::GROUP_REPLICA.into(), index.to_string());
        labels.insert(keys::BASE_PODGANG.into(), names::replica(&set.metadata.name, gang.replica));
    }
    let backend = set.backend(options);
    let scheduler = options.pod_scheduler(set.scheduler_name());
    labels.insert(keys::SCHEDULER_BACKEND.into(), backend.to_string());
    labels.insert(keys::SCHEDULER_NAME.into(), scheduler.to_owned());
    let mut annotations = mirrored(&set.metadata.annotations);
    if let Some(binding) = packed.and_then(Topology::binding) {
        annotations.insert(keys::TOPOLOGY_NAME.into(), binding.metadata.name.clone());
    }
    if backend == BackendName::Kai {
        // Pods are put into groups by us; a grouper that looks at the gang must leave it alone.
        annotations.insert(keys::kai::SKIP.into(), "true".into());
    }
    if backend == BackendName::Muster {
        annotations.insert(keys::kai::SKIP.into(), "true".into());
        // The engine sees the gang alone, so the gang says what its cliques say.
        if let Ok(Some(queue)) = said_by_set(set, keys::kai::QUEUE) {
            labels.insert(keys::kai::QUEUE.into(), queue);
        }
    }
    (labels, annotations)
}

/// The merge patch that makes a PodGang what it should be; `None` when it is. Keys of Grove's that others put there stay,
/// other keys that the set no longer has go.
pub fn patch(gang: &PodGang, raw_spec: &Value, want: &Want) -> Option<Value> {
    let mut patch = json!({});
    for (field, have, want) in [
        ("labels", &gang.metadata.labels, &want.labels),
        ("annotations", &gang.metadata.annotations, &want.annotations),
    ] {
        for (key, value) in want {
            if have.get(key) != Some(value) {
                patch["metadata"][field][key] = json!(value);
            }
        }
        let is_ours_to_drop = |key: &str| {
            key == keys::TOPOLOGY_NAME || !(key.starts_with(keys::PREFIX) || keys::kai::STAMPS.contains(&key))
        };
        for key in have.keys().filter(|key| !want.contains_key(key) && is_ours_to_drop(key)) {
            patch["metadata"][field][key] = Value::Null;
        }
    }
    if let Some(spec) = muster_runtime::json::merge_patch(raw_spec, &want.spec) {
        patch["spec"] = spec;
    }
    // What others reserve for the gang is theirs.
    if let Some(spec) = patch.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("reuseReservationRef");
        if spec.is_empty() {
            patch.as_object_mut()?.remove("spec");
        }
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// The spec of a PodGang as JSON, as far as we write it.
pub fn spec_of(gang: &PodGang) -> Value {
    let constraint = |of: &Option<crate::object::GangConstraint>| {
        let (required, preferred) = of.as_ref()?.levels();
        let mut pack = json!({});
        if !required.is_empty() {
            pack["required"] = json!(required);
        }
        if !preferred.is_empty() {
            pack["preferred"] = json!(preferred);
        }
        Some(json!({"packConstraint": pack}))
    };
    let spec = &gang.spec;
    let groups: Vec<Value> = spec
        .podgroups
        .iter()
        .map(|group| {
            let references: Vec<Value> = group
                .pod_references
                .iter()
                .map(|pod| json!({"namespace": pod.namespace, "name": pod.name}))
                .collect();
            let mut out =
                json!({"name": group.name, "minReplicas": group.min_replicas, "podReferences": references});
            if let Some(constraint) = constraint(&group.topology_constraint) {
                out["topologyConstraint"] = constraint;
            }
            out
        })
        .collect();
    let mut out = json!({"podgroups": groups});
    if let Some(constraint) = constraint(&spec.topology_constraint) {
        out["topologyConstraint"] = constraint;
    }
    if !spec.topology_constraint_group_configs.is_empty() {
        let configs: Vec<Value> = spec
            .topology_constraint_group_configs
            .iter()
            .map(|config| {
                let mut out = json!({"name": config.name, "podGroupNames": config.pod_group_names});
                if let Some(constraint) = constraint(&config.topology_constraint) {
                    out["topologyConstraint"] = constraint;
                }
                out
            })
            .collect();
        out["topologyConstraintGroupConfigs"] = json!(configs);
    }
    if !spec.priority_class_name.is_empty() {
        out["priorityClassName"] = json!(spec.priority_class_name);
    }
    out
}

/// The pods of a clique that a gang counts on: those that stay and say that they are of it.
pub fn counted<'a>(pods: &'a [Arc<Pod>], gang: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
    pods.iter().filter(move |pod| {
        !pod.metadata.deleting()
            && label(&pod.metadata, keys::PODGANG) == gang
            && pod.status.phase != "Failed"
    })
}

/// Whether every clique is there with as many pods as it wants.
pub fn is_complete(members: &[Member], gang: &str) -> bool {
    members.iter().all(|member| {
        member.clique.as_ref().is_some_and(|clique| {
            !clique.metadata.deleting() && counted(&member.pods, gang).count() as i64 >= clique.wanted()
        })
    })
}

/// How far the groups of a gang are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    scheduled: i64,
    ready: i64,
    succeeded: i64,
    disrupted: bool,
}

fn tally(member: &Member, gang: &str) -> Tally {
    let mut tally = Tally::default();
    for pod in counted(&member.pods, gang) {
        if pod.status.phase == "Succeeded" {
            tally.succeeded += 1;
            continue;
        }
        tally.scheduled += i64::from(pod.is_bound());
        tally.ready += i64::from(is_true(&pod.status.conditions, "Ready"));
    }
    tally.disrupted = member.pods.iter().any(|pod| is_true(&pod.status.conditions, "DisruptionTarget"));
    tally
}

/// Why a scheduler has not placed the first pod that it has spoken of.
fn said_by_pods<'a>(members: &'a [Member], gang: &'a str) -> Option<&'a str> {
    members.iter().flat_map(|member| counted(&member.pods, gang)).filter(|pod| !pod.is_bound()).find_map(
        |pod| {
            let said = condition_in(&pod.status.conditions, "PodScheduled")?;
            (said.status == "False" && said.reason == "Unschedulable").then_some(said.message.as_str())
        },
    )
}

/// The status of a gang. `seen` is what its backend made of it, if a backend of this process has it.
pub fn status(
    gang: &PodGang,
    members: &[Member],
    seen: Option<&Seen>,
    score: Option<f64>,
    now: Timestamp,
) -> Value {
    let name = &gang.metadata.name;
    let complete = is_complete(members, name);
    let was_initialized = holds(&gang.status, condition::INITIALIZED);
    let tallies: Vec<(&Member, Tally)> = members.iter().map(|member| (member, tally(member, name))).collect();
    let short_of = |count: &dyn Fn(&Tally) -> i64| -> Vec<String> {
        tallies
            .iter()
            .filter(|(member, tally)| count(tally) + tally.succeeded < member.min)
            .map(|(member, tally)| format!("{} {}/{}", member.name, count(tally), member.min))
            .collect()
    };
    let unplaced = short_of(&|tally| tally.scheduled);
    let unready = short_of(&|tally| tally.ready);
    let is_there = !members.is_empty();
    let over = |kind: &str| {
        is_there
            && members
                .iter()
                .all(|member| member.clique.as_ref().is_some_and(|clique| holds(&clique.status, kind)))
    };
    let completed = over(condition::COMPLETED);
    let failed = members
        .iter()
        .any(|member| member.clique.as_ref().is_some_and(|clique| holds(&clique.status, condition::FAILED)));
    let scheduled = is_there && unplaced.is_empty();
    let ready = is_there && unready.is_empty();
    let phase = if completed {
        "Succeeded"
    } else if failed {
        "Failed"
    } else if ready {
        "Running"
    } else if scheduled {
        "Starting"
    } else {
        "Pending"
    };

    let mut wanted = vec![if complete || was_initialized {
        Wanted::new(condition::INITIALIZED, true, "PodGangPodsCreated", "all pods exist")
    } else {
        Wanted::new(
            condition::INITIALIZED,
            false,
            "PodGangPodsCreationPending",
            "pods are still being created",
        )
    }];
    if let Some(seen) = seen {
        wanted.push(seen.accepted());
    }
    let waiting = seen.and_then(|seen| seen.waiting.as_ref());
    wanted.push(if scheduled {
        Wanted::new(condition::SCHEDULED, true, "MinimumScheduled", "every group has its minimum on nodes")
    } else {
        let mut message = format!("waiting for nodes: {}", unplaced.join(", "));
        let mut reason = "WaitingForNodes";
        if let Some(waiting) = waiting {
            reason = waiting.reason;
            message = format!("{message}; {}", waiting.message);
        } else if let Some(why) = said_by_pods(members, name) {
            // A scheduler that says nothing of the gang may have said it of a pod.
            reason = "Unschedulable";
            message = format!("{message}; {why}");
        }
        Wanted::new(condition::SCHEDULED, false, reason, message)
    });
    wanted.push(if ready {
        Wanted::new(condition::READY, true, "MinimumReady", "every group has its minimum ready")
    } else {
        Wanted::new(condition::READY, false, "MinimumNotReady", format!("not ready: {}", unready.join(", ")))
    });
    let breached: Vec<&str> = members
        .iter()
        .filter(|member| {
            member.clique.as_ref().is_some_and(|clique| {
                holds(&clique.status, condition::BREACHED) && holds(&clique.status, condition::WAS_THERE)
            })
        })
        .map(|member| member.name.as_str())
        .collect();
    wanted.push(if breached.is_empty() {
        Wanted::new(condition::UNHEALTHY, false, "Healthy", "")
    } else {
        let message = format!("below their minimum: {}", breached.join(", "));
        Wanted::new(condition::UNHEALTHY, true, "MinAvailableBreached", message)
    });
    let disrupted: Vec<&str> =
        tallies.iter().filter(|(_, tally)| tally.disrupted).map(|(member, _)| member.name.as_str()).collect();
    let was_disrupted = !condition_status(&gang.status, condition::DISRUPTION).is_empty();
    if !disrupted.is_empty() {
        let message = format!("pods are being taken from {}", disrupted.join(", "));
        wanted.push(Wanted::new(condition::DISRUPTION, true, "PodsDisrupted", message));
    } else if was_disrupted {
        wanted.push(Wanted::new(condition::DISRUPTION, false, "Undisturbed", ""));
    }
    let has_completed = !condition_status(&gang.status, condition::COMPLETED).is_empty();
    if completed {
        wanted.push(Wanted::new(
            condition::COMPLETED,
            true,
            "AllCliquesCompleted",
            "all pods came to a good end",
        ));
    } else if has_completed {
        wanted.push(Wanted::new(condition::COMPLETED, false, "Running", ""));
    }
    let mut status = gang.status.as_object().cloned().unwrap_or_default();
    status.insert("phase".into(), json!(phase));
    status.insert("conditions".into(), merged(&gang.status, &wanted, now));
    match score.filter(|_| scheduled).and_then(serde_json::Number::from_f64) {
        Some(score) => status.insert("placementScore".into(), Value::Number(score)),
        None => status.remove("placementScore"),
    };
    Value::Object(status)
}

/// What the set says of its gangs.
pub fn summary(gangs: &[Arc<PodGang>]) -> Value {
    let by_name: BTreeMap<&str, &PodGang> =
        gangs.iter().map(|gang| (gang.metadata.name.as_str(), &**gang)).collect();
    let all: Vec<Value> = by_name
        .iter()
        .map(|(name, gang)| {
            let phase = crate::object::text(&gang.status, &["phase"]);
            // The conditions of thousands of gangs would not fit into one object.
            let mut out = json!({"name": name, "phase": if phase.is_empty() { "Pending" } else { phase }});
            if gangs.len() <= MOST_WITH_CONDITIONS {
                out["conditions"] = json!(list(&gang.status, &["conditions"]));
            }
            out
        })
        .collect();
    json!(all)
}

const MOST_WITH_CONDITIONS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::tests::{binding, constraint};
    use crate::shape::tests::{WL2, set};

    fn wants(set: &PodCliqueSet, topology: &Topology<'_>) -> Vec<(String, Want)> {
        set.gangs(0, &|_| None)
            .iter()
            .map(|gang| (gang.name.clone(), want(set, gang, topology, &Options::default(), &|_| Vec::new())))
            .collect()
    }

    #[test]
    fn the_documents_gang() {
        let mut set = set("ml-training x2; master 1/1; workers 4/3");
        for clique in &mut set.spec.template.cliques {
            clique.spec.pod_spec["schedulerName"] = json!("kai-scheduler");
            clique.spec.pod_spec["priorityClassName"] = json!("high-priority");
        }
        set.metadata.namespace = "ml-workspace".into();
        let gang = &set.gangs(0, &|_| None)[0];
        let pods = |clique: &str| match clique {
            "ml-training-0-master" => vec!["ml-training-0-master-xyz".to_owned()],
            _ => vec!["ml-training-0-workers-def".to_owned(), "ml-training-0-workers-abc".to_owned()],
        };
        let want = want(&set, gang, &Topology::Unneeded, &Options::default(), &pods);
        assert_eq!(
            want.spec,
            json!({
                "priorityClassName": "high-priority",
                "podgroups": [
                    {"name": "ml-training-0-master", "minReplicas": 1, "podReferences": [
                        {"namespace": "ml-workspace", "name": "ml-training-0-master-xyz"}]},
                    {"name": "ml-training-0-workers", "minReplicas": 3, "podReferences": [
                        {"namespace": "ml-workspace", "name": "ml-training-0-workers-abc"},
                        {"namespace": "ml-workspace", "name": "ml-training-0-workers-def"}]},
                ],
            })
        );
        for (key, value) in [
            ("app.kubernetes.io/managed-by", "grove-operator"),
            ("app.kubernetes.io/part-of", "ml-training"),
            ("app.kubernetes.io/component", "podgang"),
            ("grove.io/scheduler-backend", "kai"),
            ("grove.io/scheduler-name", "kai-scheduler"),
        ] {
            assert_eq!(want.labels.get(key).map(String::as_str), Some(value), "{key}");
        }
    }

    #[test]
    fn empty_references_are_written() {
        let set = set(WL2);
        let (_, want) = &wants(&set, &Topology::Unneeded)[0];
        assert_eq!(want.spec["podgroups"][0]["podReferences"], json!([]));
    }

    /// Constraints at set, group, clique; out: what base gang, its group configs, first clique, and scaled gang say.
    #[track_caller]
    fn check_topology(levels: [&str; 3], expected: &str) {
        let binding = binding();
        let mut set = set(WL2);
        let read = |text: &str| {
            (!text.is_empty()).then(|| {
                let (required, preferred) = text.split_once('/').unwrap_or((text, ""));
                constraint(required, preferred)
            })
        };
        set.spec.template.topology_constraint = read(levels[0]);
        set.spec.template.pod_clique_scaling_groups[0].topology_constraint = read(levels[1]);
        set.spec.template.cliques[1].topology_constraint = read(levels[2]);
        let topology = Topology::of(&set, &Options::default(), |_| Some(&binding));
        let show = |value: &Value| {
            let level = |field: &str| {
                let key = crate::object::text(value, &["topologyConstraint", "packConstraint", field]);
                key.trim_start_matches("example.com/").to_owned()
            };
            format!("{}/{}", level("required"), level("preferred"))
        };
        let shown: Vec<String> = wants(&set, &topology)
            .iter()
            .map(|(name, want)| {
                let configs = list(&want.spec, &["topologyConstraintGroupConfigs"]);
                let configs: Vec<String> = configs
                    .iter()
                    .map(|c| {
                        format!(
                            " {}={}({})",
                            c["name"].as_str().unwrap(),
                            show(c),
                            list(c, &["podGroupNames"]).len()
                        )
                    })
                    .collect();
                let b = list(&want.spec, &["podgroups"])
                    .iter()
                    .find(|g| g["name"].as_str().unwrap().ends_with("pc-b"))
                    .map(show);
                let named = want.annotations.get(keys::TOPOLOGY_NAME).map_or("", String::as_str);
                format!("{name}={}{} b={} {named}", show(&want.spec), configs.concat(), b.unwrap())
            })
            .collect();
        assert_eq!(shown.join(", "), expected);
    }

    #[test]
    fn constraints_at_three_levels() {
        check_topology(["", "", ""], "wl-0=/ b=/ , wl-0-sg-x-0=/ b=/ ");
        check_topology(["block", "", ""], "wl-0=block/ b=/ dc, wl-0-sg-x-0=block/ b=/ dc");
        check_topology(
            ["block", "rack", ""],
            "wl-0=block/ wl-0-sg-x-0=rack/(2) b=/ dc, wl-0-sg-x-0=rack/ b=/ dc",
        );
        check_topology(
            ["block/rack", "/host", "host"],
            "wl-0=block/rack wl-0-sg-x-0=/host(2) b=host/ dc, wl-0-sg-x-0=/host b=host/ dc",
        );
        check_topology(["", "", "host"], "wl-0=/ b=host/ dc, wl-0-sg-x-0=/ b=host/ dc");
        check_topology(["row", "rack", ""], "wl-0=/ wl-0-sg-x-0=rack/(2) b=/ dc, wl-0-sg-x-0=rack/ b=/ dc");
    }

    #[test]
    fn without_a_binding_constraints_go() {
        let mut set = set(WL2);
        set.spec.template.topology_constraint = Some(constraint("rack", ""));
        let (_, want) = &wants(&set, &Topology::Missing("dc"))[0];
        assert!(
            want.spec.get("topologyConstraint").is_none()
                && !want.annotations.contains_key(keys::TOPOLOGY_NAME)
        );
    }

    fn live(want: &Want) -> PodGang {
        serde_json::from_value(json!({
            "metadata": {"name": "wl-0", "labels": want.labels, "annotations": want.annotations}, "spec": want.spec,
        }))
        .unwrap()
    }

    #[test]
    fn patches_only_what_differs() {
        let mut set = set(WL2);
        set.metadata.labels.insert("team".into(), "a".into());
        set.metadata.annotations.insert(keys::LAST_APPLIED.into(), "x".into());
        set.metadata.annotations.insert("grove.io/reconcile-trigger".into(), "1".into());
        let binding = binding();
        set.spec.template.topology_constraint = Some(constraint("block", "rack"));
        set.spec.template.pod_clique_scaling_groups[0].topology_constraint = Some(constraint("", "host"));
        let topology = Topology::Known(&binding);
        let (_, want) = wants(&set, &topology).remove(0);
        assert!(
            !want.annotations.contains_key(keys::LAST_APPLIED)
                && !want.annotations.contains_key(keys::TRIGGER)
        );
        let mut gang = live(&want);
        assert_eq!(patch(&gang, &spec_of(&gang), &want), None, "what is right is not written");
        gang.metadata.labels.insert("stale".into(), "x".into());
        gang.metadata.labels.insert("grove.io/theirs".into(), "x".into());
        gang.metadata.labels.insert(keys::SCHEDULER_NAME.into(), "old".into());
        gang.spec.podgroups[0].min_replicas = 7;
        let patch = patch(&gang, &spec_of(&gang), &want).unwrap();
        assert_eq!(
            patch["metadata"],
            json!({"labels": {"stale": null, "grove.io/scheduler-name": "default-scheduler"}})
        );
        assert_eq!(patch["spec"]["podgroups"][0]["minReplicas"], 1);
    }

    /// Members as `min clique-state pods...`, pods as `p` pending, `s` scheduled, `r` ready, `d` done, `f` failed, `x`
    /// leaving; clique-state `-` absent, else how many pods it wants.
    fn member(text: &str) -> Member {
        let mut words = text.split_whitespace();
        let min = words.next().unwrap().parse().unwrap();
        let wanted = words.next().unwrap();
        let pods = words
            .next()
            .unwrap_or("")
            .chars()
            .enumerate()
            .map(|(i, state)| {
                let ready = if state == 'r' { "True" } else { "False" };
                let mut pod: Pod = serde_json::from_value(json!({
                    "metadata": {"name": format!("p{i}"), "labels": {keys::PODGANG: "g"}},
                    "spec": {"nodeName": if "srd".contains(state) { "n" } else { "" }},
                    "status": {
                        "phase": match state { 'd' => "Succeeded", 'f' => "Failed", 'p' => "Pending", _ => "Running" },
                        "conditions": [{"type": "Ready", "status": ready}],
                    },
                }))
                .unwrap();
                if state == 'x' {
                    pod.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
                }
                Arc::new(pod)
            })
            .collect();
        let clique = (wanted != "-").then(|| {
            let completed = words.next() == Some("done");
            let status = if completed {
                json!({"conditions": [{"type": "Completed", "status": "True"}]})
            } else {
                json!({})
            };
            Arc::new(
                serde_json::from_value(
                    json!({"spec": {"replicas": wanted.parse::<i64>().unwrap()}, "status": status}),
                )
                .unwrap(),
            )
        });
        Member { name: "c".into(), min, clique, pods }
    }

    #[track_caller]
    fn check_status(members: &str, expected: &str) {
        let gang: PodGang = serde_json::from_value(json!({"metadata": {"name": "g"}})).unwrap();
        let all: Vec<Member> = members.split(',').map(member).collect();
        let status = status(&gang, &all, None, None, Timestamp::UNIX_EPOCH);
        let on: Vec<&str> = list(&status, &["conditions"])
            .iter()
            .filter(|c| c["status"] == "True")
            .map(|c| c["type"].as_str().unwrap())
            .collect();
        assert_eq!(format!("{} {}", status["phase"].as_str().unwrap(), on.join("+")), expected, "{members}");
    }

    #[test]
    fn phases_and_conditions() {
        check_status("1 -", "Pending ");
        check_status("1 2 p", "Pending ");
        check_status("1 2 pp", "Pending Initialized");
        check_status("1 2 px", "Pending ");
        check_status("1 2 sp", "Starting Initialized+Scheduled");
        check_status("1 2 rp", "Running Initialized+Scheduled+Ready");
        check_status("1 1 r,2 3 srp", "Starting Initialized+Scheduled");
        check_status("1 1 r,2 3 rrp", "Running Initialized+Scheduled+Ready");
        check_status("1 1 r,2 3 rpp", "Pending Initialized");
        check_status("4 4 rrrr,1 1 p", "Pending Initialized");
        check_status("2 2 dr", "Running Initialized+Scheduled+Ready");
        check_status("2 2 dd done", "Succeeded Initialized+Scheduled+Ready+Completed");
        check_status("2 2 dd done,1 1 r", "Running Initialized+Scheduled+Ready");
        check_status("2 2 fs", "Pending ");
    }

    #[test]
    fn initialized_never_goes_back_and_strangers_stay() {
        let gang: PodGang = serde_json::from_value(json!({"metadata": {"name": "g"}, "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Theirs", "status": "True"},
            ],
        }}))
        .unwrap();
        let status = status(&gang, &[member("1 2 p")], None, None, Timestamp::UNIX_EPOCH);
        assert!(holds(&status, condition::INITIALIZED) && holds(&status, "Theirs"));
        assert_eq!(status["phase"], "Pending");
    }
}
