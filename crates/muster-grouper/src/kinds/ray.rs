//! Ray: one group per RayCluster, RayJob or RayService. The head, a sub-group per group of workers, and for a RayJob one that the pod which
//! submits the job is in.

use std::sync::Arc;

use serde_json::Value;

use super::numbers::{MOST, at, count, text};
use crate::chain::{Owner, Reference};
use crate::group::{Ask, Grouping, GroupingError, MOST_GROUPS, Min, Subgroup, Topology, Want, Wish};
use crate::keys;

const PRIORITY: &str = "ray.io/priority-class-name";
const GROUP: &str = "ray.io/group";
const HEAD: &str = "headgroup";
/// Where pods of a RayJob are that are not its cluster's. Nobody waits for them: they come when the cluster runs.
const SUBMITTER: &str = "submitter";

/// Where the status of a RayJob or a RayService names its cluster; of several, the first counts.
const CLUSTER_NAMES: [&[&str]; 3] = [
    &["rayClusterName"],
    &["activeServiceStatus", "rayClusterName"],
    &["pendingServiceStatus", "rayClusterName"],
];

/// A status with nothing but the name of the cluster.
pub fn names_only(status: &Value) -> Value {
    match CLUSTER_NAMES.iter().find_map(|path| text(status, path)) {
        Some(name) => serde_json::json!({"rayClusterName": name}),
        None => Value::Null,
    }
}

pub fn shape(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let cluster = cluster(ask)?;
    let object = ask.subject.shown();
    let spec = &cluster.spec;
    let wish = topology(grouping, &object, at(spec, &["headGroupSpec"]), HEAD);
    grouping.subgroups.push(Subgroup { topology: wish, ..Subgroup::leaf(HEAD, 1) });
    let mut min = 1_i64;
    let scales = at(spec, &["enableInTreeAutoscaling"]) == &Value::Bool(true);
    let groups = at(spec, &["workerGroupSpecs"]).as_array().map_or(&[][..], Vec::as_slice);
    if groups.len() >= MOST_GROUPS {
        let field = "spec.workerGroupSpecs".into();
        return Err(GroupingError::TooManyGroups { object, field, n: groups.len() as i64 + 1 });
    }
    for (i, group) in groups.iter().enumerate() {
        let prefix = format!("spec.workerGroupSpecs[{i}]");
        // The spelling of KubeRay, and the one of the documents.
        let suspended = ["suspend", "suspended"].iter().any(|key| at(group, &[key]) == &Value::Bool(true));
        if suspended {
            continue;
        }
        let wanted = count(&object, &prefix, group, &["replicas"])?.unwrap_or(0);
        let least = count(&object, &prefix, group, &["minReplicas"])?.unwrap_or(0);
        let most = count(&object, &prefix, group, &["maxReplicas"])?.unwrap_or(MOST);
        // KubeRay keeps a group within its bounds, whatever is wanted.
        let replicas = wanted.min(most).max(least);
        if replicas == 0 && !scales {
            continue;
        }
        let hosts = count(&object, &prefix, group, &["numOfHosts"])?.unwrap_or(1);
        // An autoscaler writes what it would like to have into `replicas`: were that the minimum, the pods that run would be too few.
        let needed = if scales || least > 0 { least } else { replicas };
        let pods = needed.saturating_mul(hosts).min(MOST);
        min = min.saturating_add(pods).min(MOST);
        let name = text(group, &["groupName"]).map_or_else(|| format!("worker-group-{i}"), str::to_owned);
        let wish = topology(grouping, &object, group, &name);
        grouping.subgroups.push(Subgroup { topology: wish, ..Subgroup::leaf(&name, pods) });
    }
    grouping.min = Min::Members(min);
    if let Some(class) = ask.subject.labels.get(PRIORITY).filter(|class| !class.is_empty()) {
        grouping.priority_class = Wish { value: class.clone(), of_workload: true };
    }
    let is_job = ask.subject.kind == "RayJob";
    if is_job && grouping.subgroups.iter().all(|group| group.name != SUBMITTER) {
        grouping.subgroups.push(Subgroup::leaf(SUBMITTER, 0));
    }
    let own = ask.pod.metadata.labels.get(GROUP).map(String::as_str).or(is_job.then_some(SUBMITTER));
    let known = |own: &&str| grouping.subgroups.iter().any(|group| group.name == *own);
    grouping.subgroup = own.filter(known).map(str::to_owned);
    Ok(())
}

/// The RayCluster itself, the one in the chain, or the one that the status names.
fn cluster(ask: &Ask<'_>) -> Result<Arc<Owner>, GroupingError> {
    if let Some(found) =
        ask.chain.iter().rev().find(|owner| owner.kind == "RayCluster" && owner.group() == "ray.io")
    {
        return Ok(found.clone());
    }
    let Some(name) = CLUSTER_NAMES.iter().find_map(|path| text(ask.subject.status, path)) else {
        return Err(GroupingError::NotReady {
            object: ask.subject.shown(),
            why: "its status names no RayCluster yet. If this stays so, see whether the Ray operator runs"
                .into(),
        });
    };
    let wanted = Reference {
        api_version: ask.subject.api_version.to_owned(),
        kind: "RayCluster".into(),
        name: name.to_owned(),
        uid: String::new(),
    };
    match ask.world.also.iter().find(|(reference, _)| *reference == wanted) {
        None => Err(GroupingError::Missing(Want::Object(wanted))),
        Some((_, Some(found))) => Ok(found.clone()),
        Some((_, None)) => Err(GroupingError::NotReady {
            object: ask.subject.shown(),
            why: format!("the RayCluster {name}, which its status names, is not there"),
        }),
    }
}

/// The wish of a group's template. A level without a topology is noted and ignored.
fn topology(grouping: &mut Grouping, object: &str, group: &Value, name: &str) -> Topology {
    let found = Topology::of(|key| text(group, &["template", "metadata", "annotations", key]));
    if found.has_no_level() {
        return Topology::default();
    }
    if found.topology.is_empty() {
        grouping.note(format!(
            "the template of group {name} of {object} names a topology level and no topology: the level is ignored. Add the annotation {}",
            keys::TOPOLOGY,
        ));
        return Topology::default();
    }
    found
}
