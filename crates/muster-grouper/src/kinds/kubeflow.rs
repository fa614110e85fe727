//! Kubeflow's training jobs: as many pods as all roles have together, unless the job says how many are enough.

use serde_json::Value;

use super::numbers::{at, count, text};
use super::segments::{Worker, size};
use crate::group::{Ask, Grouping, GroupingError, Min, Subgroup, Want};
use crate::keys;

const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
const JOB_NAME: &str = "training.kubeflow.org/job-name";
const JOB_ROLE: &str = "training.kubeflow.org/job-role";

pub fn tensorflow(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    flat(ask, grouping, "tfReplicaSpecs", &[])
}

pub fn xgboost(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    flat(ask, grouping, "xgbReplicaSpecs", &["Master", "Worker"])
}

pub fn jax(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    flat(ask, grouping, "jaxReplicaSpecs", &["Worker"])
}

/// With `WaitForWorkersReady` the launcher comes after the workers: until it is there, nobody waits for it.
pub fn mpi(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    const ROLES: &str = "mpiReplicaSpecs";
    flat(ask, grouping, ROLES, &["Launcher", "Worker"])?;
    if text(ask.subject.spec, &["launcherCreationPolicy"]) != Some("WaitForWorkersReady") {
        return Ok(());
    }
    let peers = ask.world.peers.ok_or(GroupingError::Missing(Want::Peers))?;
    let launcher = |labels: &muster_runtime::object::Strings| {
        labels.get(JOB_ROLE).is_some_and(|role| role == "launcher")
            && labels.get(JOB_NAME).is_none_or(|name| name == ask.subject.name)
    };
    let there = launcher(&ask.pod.metadata.labels)
        || peers.iter().any(|pod| !pod.metadata.deleting() && launcher(&pod.metadata.labels));
    if !there && let Min::Members(all) = grouping.min {
        let launchers =
            count(&ask.subject.shown(), "spec", ask.subject.spec, &[ROLES, "Launcher", "replicas"])?
                .unwrap_or(1);
        grouping.min = Min::Members((all - launchers).max(0));
    }
    Ok(())
}

/// A sub-group of masters and one of workers, which may be cut into segments.
pub fn pytorch(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let object = ask.subject.shown();
    let spec = ask.subject.spec;
    let roles = roles(ask, "pytorchReplicaSpecs", &[])?;
    let min = match min_available(ask)? {
        Some(min) => min,
        None => match count(&object, "spec", spec, &["elasticPolicy", "minReplicas"])? {
            Some(min) => min,
            None => total(&object, "pytorchReplicaSpecs", roles)?,
        },
    };
    grouping.min = Min::Members(min);

    let role = ask.pod.metadata.labels.get(REPLICA_TYPE).map(|role| role.to_ascii_lowercase());
    let masters = match roles.get("Master") {
        Some(master) => replicas(&object, "pytorchReplicaSpecs", "Master", master)?,
        None => 0,
    };
    if masters > 0 {
        grouping.subgroups.push(Subgroup::leaf("master", masters));
    }
    let Some(worker) = roles.get("Worker") else {
        grouping.subgroup = role.filter(|role| role == "master" && masters > 0);
        return Ok(());
    };
    let n_workers = replicas(&object, "pytorchReplicaSpecs", "Worker", worker)?;
    let worker_min = (min - masters).max(0);
    let is_worker = role.as_deref() == Some("worker");
    let template = Worker { template: at(worker, &["template"]), is_pod: is_worker };
    let segment = template
        .annotation(ask, keys::SEGMENT_SIZE)
        .filter(|_| n_workers > 0)
        .map(str::to_owned)
        .and_then(|written| size(grouping, &object, &written, 1, super::numbers::MOST, n_workers));
    let index = ask.pod.metadata.labels.get(REPLICA_INDEX).and_then(|index| index.parse::<i64>().ok());
    let Some(segment) = segment else {
        grouping.subgroups.push(Subgroup::leaf("worker", worker_min));
        let known = ["master", "worker"];
        grouping.subgroup =
            role.filter(|role| known.contains(&role.as_str()) && (role != "master" || masters > 0));
        return Ok(());
    };

    let topology = template.topology(ask);
    grouping.subgroups.push(Subgroup { min: Min::All, ..Subgroup::leaf("worker", 0) });
    let n_segments = n_workers / segment + i64::from(n_workers % segment != 0);
    for i in 0..n_segments {
        // The first segments carry the minimum; what is beyond it may come later, or not.
        let here = (worker_min - i * segment).clamp(0, segment.min(n_workers - i * segment));
        grouping.subgroups.push(Subgroup {
            parent: Some("worker".into()),
            topology: topology.clone(),
            ..Subgroup::leaf(&format!("worker-{i}"), here)
        });
    }
    grouping.subgroup = match role.as_deref() {
        Some("master") if masters > 0 => Some("master".into()),
        Some("worker") => match index {
            Some(index) if (0..n_workers).contains(&index) => Some(format!("worker-{}", index / segment)),
            _ => {
                return Err(GroupingError::NoLabel {
                    object: crate::group::pod_name(ask.pod),
                    label: REPLICA_INDEX,
                    fix: format!("segments need the index of each worker, from 0 to {}", n_workers - 1),
                });
            }
        },
        _ => None,
    };
    Ok(())
}

/// One group without sub-groups.
fn flat(
    ask: &Ask<'_>,
    grouping: &mut Grouping,
    field: &'static str,
    needed: &[&str],
) -> Result<(), GroupingError> {
    let all = roles(ask, field, needed).and_then(|roles| total(&ask.subject.shown(), field, roles));
    let min = match min_available(ask)? {
        Some(min) => min,
        None => all.clone()?,
    };
    grouping.min = Min::Members(min);
    if let Ok(all) = all {
        grouping.ends_after(all);
    }
    Ok(())
}

fn min_available(ask: &Ask<'_>) -> Result<Option<i64>, GroupingError> {
    let path = ["runPolicy", "schedulingPolicy", "minAvailable"];
    count(&ask.subject.shown(), "spec", ask.subject.spec, &path)
}

fn roles<'a>(
    ask: &Ask<'a>,
    field: &str,
    needed: &[&str],
) -> Result<&'a serde_json::Map<String, Value>, GroupingError> {
    let missing = |field: String, fix: &str| GroupingError::NoField {
        object: ask.subject.shown(),
        field,
        fix: fix.into(),
    };
    let spec: &'a Value = ask.subject.spec;
    let roles = at(spec, &[field]).as_object().filter(|roles| !roles.is_empty());
    let roles = roles.ok_or_else(|| missing(format!("spec.{field}"), "add its replica specs"))?;
    match needed.iter().find(|role| !roles.contains_key(**role)) {
        Some(role) => {
            Err(missing(format!("spec.{field}.{role}"), "add this replica spec, which is required"))
        }
        None => Ok(roles),
    }
}

fn total(object: &str, field: &str, roles: &serde_json::Map<String, Value>) -> Result<i64, GroupingError> {
    let mut total = 0;
    for (role, spec) in roles {
        let n = replicas(object, field, role, spec)?;
        if n == 0 {
            return Err(GroupingError::BadField {
                object: object.to_owned(),
                field: format!("spec.{field}.{role}.replicas"),
                value: "0".into(),
                fix: "write at least 1, or remove the replica spec".into(),
            });
        }
        total += n;
    }
    Ok(total)
}

/// The replicas of a role; the controller takes one for granted.
fn replicas(object: &str, field: &str, role: &str, spec: &Value) -> Result<i64, GroupingError> {
    Ok(count(object, &format!("spec.{field}.{role}"), spec, &["replicas"])?.unwrap_or(1))
}
