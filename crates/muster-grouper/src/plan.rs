//! What to write for a pod: its group, if that is missing or out of date, and then the pod.
//!
//! In: the pod, its [`Grouping`], the PodGroup that is there. Out: at most one write for the group and one for the pod.
//! Must stay true: the queue, the pool and what schedulers and administrators set on a PodGroup are never changed; what
//! only one pod of a group says never changes the group that another pod's words made; planning again after the writes
//! gives nothing.

use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::json::{merge_patch, same_but_zeros};
use muster_runtime::object::Strings;
use serde_json::{Map, Value, json};

use crate::Options;
use crate::group::{Grouping, Topology};
use crate::keys;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub group: Step,
    /// The merge patch for the pod, to be sent once the group is there.
    pub pod: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Nothing,
    Create(Value),
    /// A merge patch.
    Patch(Value),
}

pub fn plan(pod: &Pod, grouping: &Grouping, there: Option<&PodGroup>, options: &Options) -> Plan {
    let group = match there {
        None => Step::Create(grouping.manifest()),
        Some(there) => update(grouping, there, options).map_or(Step::Nothing, Step::Patch),
    };
    Plan { group, pod: membership(pod, grouping) }
}

/// The patch that makes a pod a member.
pub fn membership(pod: &Pod, grouping: &Grouping) -> Option<Value> {
    let mut metadata = Map::new();
    if pod.metadata.annotation(keys::GROUP) != Some(&grouping.name) {
        metadata.insert("annotations".into(), json!({keys::GROUP: grouping.name}));
    }
    let label = pod.metadata.labels.get(keys::SUBGROUP);
    match (&grouping.subgroup, label) {
        (Some(wanted), label) if label != Some(wanted) => {
            metadata.insert("labels".into(), json!({keys::SUBGROUP: wanted}));
        }
        // A sub-group that the group does not have would keep the pod from ever being placed.
        (None, Some(label))
            if !grouping.subgroups.is_empty() && !grouping.subgroups.iter().any(|g| g.name == *label) =>
        {
            metadata.insert("labels".into(), json!({keys::SUBGROUP: null}));
        }
        _ => {}
    }
    if metadata.is_empty() {
        return None;
    }
    // Only this very pod, not a later one of the same name.
    metadata.insert("uid".into(), json!(pod.metadata.uid));
    Some(json!({"metadata": metadata}))
}

/// The patch that brings a PodGroup up to date.
fn update(grouping: &Grouping, there: &PodGroup, options: &Options) -> Option<Value> {
    let mut patch = Map::new();
    let mut metadata = Map::new();
    let keeps = |key: &str| key == options.queue_label || key == options.node_pool_label;
    let mine = |key: &str| key == keys::USER;
    // A Deployment has a group per pod: what controllers note on it all the time is not written to each of them.
    let of_pod = grouping.owner.kind == "Pod" && grouping.owner.api_version == "v1";
    let idle = |key: &str| of_pod && !is_read(key);
    let dropped = Dropped::of(grouping, there);
    let mut labels = added(&grouping.labels, &there.metadata.labels, |key| keeps(key) || idle(key), mine);
    labels.extend(dropped.labels.iter().map(|key| ((*key).to_owned(), Value::Null)));
    let mut annotations = added(&grouping.annotations, &there.metadata.annotations, idle, mine);
    annotations.extend(dropped.annotations.iter().map(|key| ((*key).to_owned(), Value::Null)));
    for (field, news) in [("labels", labels), ("annotations", annotations)] {
        if !news.is_empty() {
            metadata.insert(field.into(), Value::Object(news));
        }
    }
    if !there.metadata.owner_references.iter().any(|owner| owner.uid == grouping.owner.uid) {
        metadata.insert("ownerReferences".into(), json!([grouping.owner_reference()]));
    }
    if !metadata.is_empty() {
        patch.insert("metadata".into(), Value::Object(metadata));
    }
    let spec = spec_change(grouping, there, &dropped);
    if !spec.is_empty() {
        patch.insert("spec".into(), Value::Object(spec));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether anything looks at this key of a PodGroup: ours and KAI's have a prefix, or are among these.
fn is_read(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    matches!(prefix, "kai.scheduler" | "muster.dev")
        || [keys::PRIORITY, keys::PROJECT, keys::USER].contains(&key)
}

/// Entries that are missing or differ. `keeps`: never touched. `first`: whoever wrote it first was right.
fn added(
    wanted: &Strings,
    there: &Strings,
    keeps: impl Fn(&str) -> bool,
    first: impl Fn(&str) -> bool,
) -> Map<String, Value> {
    wanted
        .iter()
        .filter(|(key, value)| match there.get(key) {
            _ if keeps(key) => false,
            None => true,
            Some(_) if first(key) => false,
            Some(old) => old != *value,
        })
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}

/// Wishes that the workload had and has no more: the group still has its copy of them.
struct Dropped {
    labels: Vec<&'static str>,
    annotations: Vec<&'static str>,
}

impl Dropped {
    fn of(grouping: &Grouping, there: &PodGroup) -> Self {
        let gone = |keys: &[&'static str], there: &Strings, wanted: &Strings| {
            keys.iter().copied().filter(|key| there.contains_key(key) && !wanted.contains_key(key)).collect()
        };
        let annotations = [
            keys::PREEMPTION_DELAY,
            keys::STALENESS_GRACE,
            keys::MIN_MEMBER,
            keys::TOPOLOGY,
            keys::TOPOLOGY_REQUIRED,
            keys::TOPOLOGY_PREFERRED,
        ];
        Dropped {
            labels: gone(&[keys::PRIORITY, keys::PREEMPTIBILITY], &there.metadata.labels, &grouping.labels),
            annotations: gone(&annotations, &there.metadata.annotations, &grouping.annotations),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.labels.contains(&key) || self.annotations.contains(&key)
    }
}

fn spec_change(grouping: &Grouping, there: &PodGroup, dropped: &Dropped) -> Map<String, Value> {
    let wanted = grouping.spec();
    let null = Value::Null;
    let mut change = Map::new();
    // Zero is a minimum of its own, so these are compared as they are.
    for field in ["minMember", "minSubGroup"] {
        let (old, new) = (there.spec.get(field).unwrap_or(&null), wanted.get(field).unwrap_or(&null));
        if old != new {
            change.insert(field.into(), new.clone());
        }
    }
    let wishes = [
        ("priorityClassName", keys::PRIORITY, Some(grouping.priority_class.of_workload)),
        (
            "preemptibility",
            keys::PREEMPTIBILITY,
            grouping.preemptibility.as_ref().map(|wish| wish.of_workload),
        ),
        (
            "preemptionDelay",
            keys::PREEMPTION_DELAY,
            grouping.preemption_delay.as_ref().map(|wish| wish.of_workload),
        ),
        (
            "stalenessGracePeriod",
            keys::STALENESS_GRACE,
            grouping.staleness_grace.as_ref().map(|wish| wish.of_workload),
        ),
    ];
    for (field, key, of_workload) in wishes {
        let (old, new) = (there.spec.get(field).unwrap_or(&null), wanted.get(field).unwrap_or(&null));
        // What only a pod wishes, or nobody, leaves what is there.
        let settled = of_workload != Some(true) && !same_but_zeros(old, &null) && !dropped.has(key);
        if !settled && !same_but_zeros(old, new) {
            change.insert(field.into(), new.clone());
        }
    }
    // A topology that somebody gave a group whose workload asks for none is theirs.
    let topology = [keys::TOPOLOGY, keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED];
    let asked_before = topology.iter().any(|key| dropped.has(key));
    if grouping.topology != Topology::default() || asked_before {
        let old = there.spec.get("topologyConstraint").unwrap_or(&null);
        let new = grouping.topology.to_value();
        if !same_but_zeros(old, &new)
            && let Some(new) = merge_patch(old, &new)
        {
            change.insert("topologyConstraint".into(), new);
        }
    }
    let old = there.spec.get("subGroups").unwrap_or(&null);
    let new = subgroups(&wanted, old);
    if !same_but_zeros_list(old, &new) {
        change.insert("subGroups".into(), new);
    }
    change
}

/// The sub-groups that are wanted, with the topologies that somebody gave those that ask for none.
fn subgroups(wanted: &Map<String, Value>, there: &Value) -> Value {
    let Some(Value::Array(wanted)) = wanted.get("subGroups") else { return Value::Null };
    let there = there.as_array().map_or(&[][..], Vec::as_slice);
    let given: std::collections::HashMap<&str, &Value> = there
        .iter()
        .filter_map(|group| Some((group.get("name")?.as_str()?, group.get("topologyConstraint")?)))
        .collect();
    let kept = wanted.iter().map(|group| {
        let mut group = group.clone();
        if let Some(map) = group.as_object_mut()
            && !map.contains_key("topologyConstraint")
            && let Some(given) = map.get("name").and_then(Value::as_str).and_then(|name| given.get(name))
            && !same_but_zeros(given, &Value::Null)
        {
            map.insert("topologyConstraint".into(), (*given).clone());
        }
        group
    });
    kept.collect()
}

/// Lists of sub-groups are the same when each says the same; a minimum of zero is not the same as none.
fn same_but_zeros_list(a: &Value, b: &Value) -> bool {
    let (a, b) = (a.as_array().map_or(&[][..], Vec::as_slice), b.as_array().map_or(&[][..], Vec::as_slice));
    let same_min = |a: &Value, b: &Value| {
        a.get("minMember") == b.get("minMember") && a.get("minSubGroup") == b.get("minSubGroup")
    };
    let same = |a: &Value, b: &Value| a == b || (same_min(a, b) && same_but_zeros(a, b));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{Case, owner, pod};

    /// A Job with some metadata, the PodGroup that is there, and the patch for it.
    #[track_caller]
    fn check(job: &str, there: Value, expected: Value) {
        check_pod("", job, there, expected);
    }

    #[track_caller]
    fn check_pod(pod_text: &str, job: &str, there: Value, expected: Value) {
        let case = Case::default();
        let pod = pod(pod_text);
        let grouping = case.group(&pod, &[owner("batch/v1 Job j", job)]).unwrap();
        let mut full = grouping.manifest();
        // What is given replaces what would have been written; null takes it away.
        lay_over(&mut full, &there);
        let there: PodGroup = serde_json::from_value(full.clone()).unwrap();
        let shown = match plan(&pod, &grouping, Some(&there), &case.options).group {
            Step::Patch(patch) => patch,
            Step::Nothing => Value::Null,
            Step::Create(_) => panic!("it is there"),
        };
        assert_eq!(shown, expected);
        lay_over(&mut full, &shown);
        let there: PodGroup = serde_json::from_value(full).unwrap();
        let again = plan(&pod, &grouping, Some(&there), &case.options).group;
        assert_eq!(again, Step::Nothing, "a second look finds nothing to do");
    }

    fn lay_over(target: &mut Value, patch: &Value) {
        match patch {
            Value::Object(patch) => {
                if !target.is_object() {
                    *target = json!({});
                }
                for (key, value) in patch {
                    if value.is_null() {
                        target.as_object_mut().unwrap().remove(key);
                    } else {
                        lay_over(&mut target[key], value);
                    }
                }
            }
            Value::Null => {}
            value => *target = value.clone(),
        }
    }

    #[test]
    fn what_is_right_stays() {
        check("", json!({}), Value::Null);
        check("", json!({"spec": {"topologyConstraint": {}, "subGroups": []}}), Value::Null);
        check(
            "",
            json!({"metadata": {"labels": {"x": "y"}, "annotations": {"kai.scheduler/stale-podgroup-timestamp": "t"}}}),
            Value::Null,
        );
    }

    #[test]
    fn what_others_own_stays() {
        let queue = "metadata: {labels: {kai.scheduler/queue: new, kai.scheduler/node-pool: new}}";
        check(
            queue,
            json!({"spec": {"queue": "old"}, "metadata": {"labels": {"kai.scheduler/queue": "old", "kai.scheduler/node-pool": null}}}),
            Value::Null,
        );
        check(
            "",
            json!({"spec": {"queue": "old", "markUnschedulable": false, "schedulingBackoff": 1}}),
            Value::Null,
        );
        check(
            "",
            json!({"spec": {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}}),
            Value::Null,
        );
        check("", json!({"spec": {"priorityClassName": "high"}}), Value::Null);
        check_pod(
            "spec: {priorityClassName: build}",
            "",
            json!({"spec": {"priorityClassName": "high"}}),
            Value::Null,
        );
        check_pod(
            "metadata: {labels: {user: b}}",
            "",
            json!({"metadata": {"labels": {"user": "a"}}}),
            Value::Null,
        );
    }

    #[test]
    fn what_the_workload_says_now() {
        let min = "metadata: {annotations: {kai.scheduler/batch-min-member: '4'}}";
        let old = json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": "2"}}, "spec": {"minMember": 2}});
        check(
            min,
            old,
            json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": "4"}}, "spec": {"minMember": 4}}),
        );
        check("", json!({"spec": {"minMember": 0}}), json!({"spec": {"minMember": 1}}));
        check(
            "",
            json!({"spec": {"minMember": null, "minSubGroup": 2}}),
            json!({"spec": {"minMember": 1, "minSubGroup": null}}),
        );
        let class = "metadata: {labels: {priorityClassName: high}}";
        check(
            class,
            json!({"spec": {"priorityClassName": "train"}}),
            json!({"spec": {"priorityClassName": "high"}}),
        );
        check(
            "",
            json!({"metadata": {"labels": {"priorityClassName": "high"}}, "spec": {"priorityClassName": "high"}}),
            json!({"metadata": {"labels": {"priorityClassName": null}}, "spec": {"priorityClassName": "train"}}),
        );
        check(
            "",
            json!({"metadata": {"annotations": {"kai.scheduler/topology": "t"}}, "spec": {"topologyConstraint": {"topology": "t"}}}),
            json!({"metadata": {"annotations": {"kai.scheduler/topology": null}}, "spec": {"topologyConstraint": {"topology": null}}}),
        );
        check(
            "metadata: {annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack}}",
            json!({"spec": {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": null, "preferredTopologyLevel": "zone"}}}),
            json!({"spec": {"topologyConstraint": {"requiredTopologyLevel": "rack", "preferredTopologyLevel": null}}}),
        );
        check(
            "",
            json!({"metadata": {"ownerReferences": []}}),
            json!({"metadata": {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j"}]}}),
        );
        check(
            "",
            json!({"spec": {"subGroups": [{"name": "a", "minMember": 1}]}}),
            json!({"spec": {"subGroups": null}}),
        );
    }

    #[test]
    fn a_group_of_one_pod_is_not_told_what_nobody_reads() {
        let web = |metadata: &str| {
            [
                owner("apps/v1 ReplicaSet r", ""),
                owner("apps/v1 Deployment d", &format!("metadata: {metadata}")),
            ]
        };
        let case = Case::default();
        let pod = pod("");
        let before = web("{labels: {team: a}, annotations: {deployment.kubernetes.io/revision: '1'}}");
        let there = case.group(&pod, &before).unwrap().manifest();
        assert_eq!(there["metadata"]["labels"]["team"], "a", "at first it has all of them");
        let there: PodGroup = serde_json::from_value(there).unwrap();
        let check = |metadata: &str, expected: Step| {
            let grouping = case.group(&pod, &web(metadata)).unwrap();
            assert_eq!(plan(&pod, &grouping, Some(&there), &case.options).group, expected, "{metadata}");
        };
        check("{labels: {team: b}, annotations: {deployment.kubernetes.io/revision: '2'}}", Step::Nothing);
        check(
            "{labels: {kai.scheduler/preemptibility: preemptible}, annotations: {x: other}}",
            Step::Patch(json!({
                "metadata": {"labels": {"kai.scheduler/preemptibility": "preemptible"}},
                "spec": {"preemptibility": "preemptible"},
            })),
        );
    }

    #[test]
    fn pods() {
        let set =
            owner("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet l", "spec: {leaderWorkerTemplate: {size: 2}}");
        let check = |metadata: &str, expected: Value| {
            let pod = pod(&format!("metadata: {metadata}"));
            let grouping = Case::default().group(&pod, std::slice::from_ref(&set)).unwrap();
            let patch = plan(&pod, &grouping, None, &crate::Options::default()).pod;
            assert_eq!(patch.unwrap_or(Value::Null), expected, "{metadata}");
        };
        let index = "leaderworkerset.sigs.k8s.io/worker-index: '0'";
        let owned = "ownerReferences: [{uid: u-l}]";
        check(
            &format!("{{{owned}, labels: {{{index}}}}}"),
            json!({"metadata": {"uid": "u-p", "annotations": {"pod-group-name": "pg-l-u-l"}, "labels": {"kai.scheduler/subgroup-name": "leader"}}}),
        );
        let grouped = "annotations: {pod-group-name: pg-l-u-l}";
        check(
            &format!("{{{owned}, {grouped}, labels: {{{index}, kai.scheduler/subgroup-name: leader}}}}"),
            Value::Null,
        );
        check(
            &format!("{{{owned}, {grouped}, labels: {{{index}, kai.scheduler/subgroup-name: other}}}}"),
            json!({"metadata": {"uid": "u-p", "labels": {"kai.scheduler/subgroup-name": "leader"}}}),
        );
        check(
            &format!(
                "{{{owned}, annotations: {{pod-group-name: other}}, labels: {{{index}, kai.scheduler/subgroup-name: leader}}}}"
            ),
            json!({"metadata": {"uid": "u-p", "annotations": {"pod-group-name": "pg-l-u-l"}}}),
        );
    }
}
