//! Pods of Grove: a group per PodGang, a sub-group per group of the gang.
//!
//! Grove's own controllers make PodGangs; a pod whose PodGang is not there is left to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_runtime::common::Pod;
use serde_json::Value;

use super::numbers::{at, count, text};
use crate::chain::{Owner, Reference};
use crate::group::{
    Ask, Grouping, GroupingError, Leave, MOST_GROUPS, Min, Subgroup, Subject, Topology, Want, Wish, World,
    plain, pod_name,
};
use crate::keys;

/// PodGangs of the pod's namespace.
pub fn reference(gang: &str) -> Reference {
    Reference {
        api_version: "scheduler.grove.io/v1alpha1".into(),
        kind: "PodGang".into(),
        name: gang.to_owned(),
        uid: String::new(),
    }
}

pub fn group(
    pod: &Pod,
    chain: &[Arc<Owner>],
    gang: &str,
    world: &World<'_>,
) -> Result<Grouping, GroupingError> {
    let wanted = reference(gang);
    let gang = match world.also.iter().find(|(reference, _)| *reference == wanted) {
        None => return Err(GroupingError::Missing(Want::Object(wanted))),
        Some((_, None)) => return Err(GroupingError::LeftAlone(Leave::NoPodGang(gang.to_owned()))),
        Some((_, Some(gang))) => gang,
    };
    let mut subject = Subject::owner(gang);
    for owner in chain.iter().filter(|owner| super::is_skipped(owner.group(), &owner.kind)) {
        subject.inherit(owner);
    }
    let ask = Ask { pod, chain: &[], subject, world };
    let mut grouping = plain(&ask, &super::rule("scheduler.grove.io", "PodGang"));
    if let Some(class) = text(&gang.spec, &["priorityClassName"]) {
        grouping.priority_class = Wish { value: class.to_owned(), of_workload: true };
    }
    shape(&ask, &mut grouping)?;
    Ok(grouping)
}

fn shape(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let object = ask.subject.shown();
    let spec = ask.subject.spec;
    let named = ["grove.io/topology-name", keys::TOPOLOGY];
    let topology = named.iter().find_map(|key| ask.subject.annotation(key)).unwrap_or_default().to_owned();
    if let Some(own) = pack(grouping, &object, spec, &topology) {
        grouping.topology = own;
    }

    let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
    for config in list(spec, "topologyConstraintGroupConfigs") {
        let Some(name) = text(config, &["name"]) else { continue };
        let members: Vec<&str> = list(config, "podGroupNames").iter().filter_map(Value::as_str).collect();
        if members.is_empty() {
            continue;
        }
        parents.extend(members.into_iter().map(|member| (member, name)));
        let topology = pack(grouping, &object, config, &topology).unwrap_or_default();
        grouping.subgroups.push(Subgroup { min: Min::All, topology, ..Subgroup::leaf(name, 0) });
    }

    let groups = list(spec, "podgroups");
    let n_groups = groups.len() + grouping.subgroups.len();
    if n_groups > MOST_GROUPS {
        return Err(GroupingError::TooManyGroups {
            object,
            field: "spec.podgroups".into(),
            n: n_groups as i64,
        });
    }
    let pod = &ask.pod.metadata;
    let clique = pod.labels.get(keys::PODCLIQUE);
    let mut total = 0_i64;
    let mut by_label = None;
    for (i, group) in groups.iter().enumerate() {
        let prefix = format!("spec.podgroups[{i}]");
        let Some(name) = text(group, &["name"]) else {
            return Err(GroupingError::NoField {
                object,
                field: format!("{prefix}.name"),
                fix: "name it".into(),
            });
        };
        let min =
            count(&object, &prefix, group, &["minReplicas"])?.filter(|min| *min > 0).ok_or_else(|| {
                GroupingError::NoField {
                    object: object.clone(),
                    field: format!("{prefix}.minReplicas"),
                    fix: "write at least 1".into(),
                }
            })?;
        total = total.saturating_add(min);
        let topology = pack(grouping, &object, group, &topology).unwrap_or_default();
        let parent = parents.get(name).map(|parent| (*parent).to_owned());
        grouping.subgroups.push(Subgroup { parent, topology, ..Subgroup::leaf(name, min) });
        // A gang speaks of its own namespace only, whatever it writes.
        let refers = |reference: &Value| {
            text(reference, &["name"]) == Some(pod.name.as_str())
                && text(reference, &["namespace"]).is_none_or(|namespace| namespace == pod.namespace)
        };
        if grouping.subgroup.is_none() && list(group, "podReferences").iter().any(refers) {
            grouping.subgroup = Some(name.to_owned());
        }
        if clique.is_some_and(|clique| clique == name) {
            by_label = Some(name.to_owned());
        }
    }
    // A parent of nobody would be a group of pods, and has none.
    let used: BTreeSet<String> = grouping.subgroups.iter().filter_map(|group| group.parent.clone()).collect();
    grouping.subgroups.retain(|group| group.min != Min::All || used.contains(&group.name));
    // References are filled in as pods come; the label is there from the start.
    grouping.subgroup = grouping.subgroup.take().or(by_label);
    grouping.min = Min::Members(total);
    Ok(())
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    at(value, &[field]).as_array().map_or(&[], Vec::as_slice)
}

/// Where it wants to be packed; a level without a topology is noted and ignored.
fn pack(grouping: &mut Grouping, object: &str, value: &Value, topology: &str) -> Option<Topology> {
    let level =
        |level| text(value, &["topologyConstraint", "packConstraint", level]).unwrap_or_default().to_owned();
    let found = Topology {
        topology: topology.to_owned(),
        required: level("required"),
        preferred: level("preferred"),
    };
    if found.has_no_level() {
        return None;
    }
    if topology.is_empty() {
        let note = format!(
            "{object} wants to be packed and names no topology: that wish is ignored. Add the annotation {}",
            keys::TOPOLOGY
        );
        if !grouping.notes.contains(&note) {
            grouping.note(note);
        }
        return None;
    }
    Some(found)
}

/// A pod of Grove that does not say which gang it is of.
pub fn without_label(ask: &Ask<'_>, _: &mut Grouping) -> Result<(), GroupingError> {
    Err(GroupingError::NoLabel {
        object: pod_name(ask.pod),
        label: keys::PODGANG,
        fix: "let Grove create the pod, or restore the label".into(),
    })
}
