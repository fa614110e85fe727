//! `scheduler.grove.io/v1alpha1` PodGang: a gang of Grove's that is Muster's own to place.
//!
//! In: a PodGang that names Muster as its backend. Out: what a PodGroup that says the same would give. Its groups are the leaves,
//! groups that are packed together hang below one of their own, and everything is needed. Must stay true: PodGangs of other backends
//! are nothing here, since those have a resource of their own; a gang's name is no name that an object can have, so that no PodGroup
//! is ever taken for it.

use crate::Settings;
use crate::gang::{self, PodGroup};
use crate::read::Object;
use muster_model::{Key, Name};
use serde_json::{Map, Value, json};

/// The beginning of the name of such a gang; what follows is the name of its PodGang.
pub const POD_GANG: &str = "podgang/";

const BACKEND: &str = "grove.io/scheduler-backend";
const SCHEDULER: &str = "grove.io/scheduler-name";
const TOPOLOGY: &str = "grove.io/topology-name";
const GANG_OF: &str = "grove.io/podgang";
const GROUP_OF: &str = "grove.io/podclique";
const SKIP_GROUPER: &str = "kai.scheduler/skip-podgrouper";

/// The key of the gang of a PodGang.
pub(crate) fn key(namespace: &str, name: &str) -> Key {
    Key::new(namespace, format!("{POD_GANG}{name}"))
}

/// The gang of a pod that names no PodGroup, and the group of it that the pod is in. A pod that a grouper may still put into a
/// PodGroup is not taken: there may be no backend that looks after it.
pub(crate) fn of_pod(object: &Object<'_>) -> Option<(Key, Name)> {
    let named = |label: &str| object.label(label).filter(|name| !name.is_empty());
    let (gang, group) = (named(GANG_OF)?, named(GROUP_OF)?);
    let key = key(&object.key().namespace, gang);
    (object.annotation(SKIP_GROUPER) == Some("true")).then(|| (key, group.into()))
}

/// `None`: another backend's.
pub(crate) fn pod_gang(
    value: &Value,
    settings: &Settings,
) -> Option<(PodGroup, Vec<muster_model::Diagnostic>)> {
    let label = |key: &str| value.pointer("/metadata/labels")?.get(key)?.as_str();
    let is_ours = match label(BACKEND) {
        Some(backend) => backend == "muster",
        None => label(SCHEDULER) == Some("muster-scheduler"),
    };
    if !is_ours {
        return None;
    }
    let group = as_pod_group(value, settings);
    let object = Object::new("PodGang", &group);
    let made = gang::pod_group(&object, settings);
    Some((made, object.into_diagnostics()))
}

/// The PodGroup that says what a PodGang says.
fn as_pod_group(value: &Value, settings: &Settings) -> Value {
    let text = |value: &Value, pointer: &str| -> Option<String> {
        value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let said = |key: &str| {
        let of = |field: &str| value.get("metadata")?.get(field)?.get(key)?.as_str().map(str::to_owned);
        of("labels").or_else(|| of("annotations")).filter(|text| !text.is_empty())
    };
    let topology = said(TOPOLOGY).or_else(|| said("kai.scheduler/topology")).unwrap_or_default();
    let constraint = |at: &Value| {
        let level = |name: &str| text(at, &format!("/topologyConstraint/packConstraint/{name}"));
        let mut rule = Map::new();
        rule.extend(level("required").map(|key| ("requiredTopologyLevel".to_owned(), json!(key))));
        rule.extend(level("preferred").map(|key| ("preferredTopologyLevel".to_owned(), json!(key))));
        if !rule.is_empty() {
            rule.insert("topology".to_owned(), json!(topology));
        }
        Value::Object(rule)
    };
    let spec = value.get("spec").unwrap_or(&Value::Null);
    let list = |at: &Value, field: &str| at.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let configs: Vec<Value> = list(spec, "topologyConstraintGroupConfigs")
        .into_iter()
        .filter(|config| !list(config, "podGroupNames").is_empty())
        .collect();
    let mut groups: Vec<Value> = Vec::new();
    for config in &configs {
        groups.push(json!({
            "name": config.get("name"),
            "minSubGroup": list(config, "podGroupNames").len(),
            "topologyConstraint": constraint(config),
        }));
    }
    for group in list(spec, "podgroups") {
        let name = group.get("name").cloned().unwrap_or(Value::Null);
        let mut leaf = json!({
            "name": name,
            "minMember": group.get("minReplicas").and_then(Value::as_i64).unwrap_or(0),
            "topologyConstraint": constraint(&group),
        });
        let parent = configs.iter().find(|config| list(config, "podGroupNames").contains(&name));
        if let Some(parent) = parent.and_then(|config| config.get("name")) {
            leaf["parent"] = parent.clone();
        }
        groups.push(leaf);
    }
    let mut metadata = value.get("metadata").cloned().unwrap_or_default();
    if let Some(name) = text(value, "/metadata/name") {
        metadata["name"] = json!(format!("{POD_GANG}{name}"));
    }
    let queue = said(&settings.queue_label).unwrap_or_else(|| settings.default_queue.to_string());
    json!({
        "metadata": metadata,
        "spec": {
            "queue": queue,
            "priorityClassName": spec.get("priorityClassName").cloned().unwrap_or_default(),
            "subGroups": groups,
            "topologyConstraint": constraint(spec),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gang(labels: Value, spec: Value) -> Value {
        json!({"metadata": {"name": "set-0", "namespace": "ns", "uid": "u", "labels": labels,
                            "annotations": {"grove.io/topology-name": "dc"}}, "spec": spec})
    }

    #[test]
    fn groups_become_leaves() {
        let spec = json!({
            "priorityClassName": "high",
            "topologyConstraint": {"packConstraint": {"required": "zone"}},
            "topologyConstraintGroupConfigs": [
                {"name": "set-0-sg-0", "podGroupNames": ["b", "c"], "topologyConstraint": {"packConstraint": {"preferred": "rack"}}},
                {"name": "empty", "podGroupNames": []},
            ],
            "podgroups": [
                {"name": "a", "minReplicas": 1, "podReferences": []},
                {"name": "b", "minReplicas": 2, "podReferences": []},
                {"name": "c", "minReplicas": 3, "podReferences": []},
            ],
        });
        let labels = json!({"grove.io/scheduler-backend": "muster", "kai.scheduler/queue": "team"});
        let group = as_pod_group(&gang(labels, spec), &Settings::default());
        assert_eq!(
            group["spec"],
            json!({
                "queue": "team", "priorityClassName": "high",
                "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "zone"},
                "subGroups": [
                    {"name": "set-0-sg-0", "minSubGroup": 2, "topologyConstraint": {"topology": "dc", "preferredTopologyLevel": "rack"}},
                    {"name": "a", "minMember": 1, "topologyConstraint": {}},
                    {"name": "b", "minMember": 2, "topologyConstraint": {}, "parent": "set-0-sg-0"},
                    {"name": "c", "minMember": 3, "topologyConstraint": {}, "parent": "set-0-sg-0"},
                ],
            })
        );
        assert_eq!(group["metadata"]["name"], "podgang/set-0");
    }

    #[test]
    fn only_those_that_are_ours() {
        let spec = json!({"podgroups": [{"name": "a", "minReplicas": 1, "podReferences": []}]});
        for (labels, expected) in [
            (json!({"grove.io/scheduler-backend": "muster"}), true),
            (json!({"grove.io/scheduler-name": "muster-scheduler"}), true),
            (
                json!({"grove.io/scheduler-backend": "kai", "grove.io/scheduler-name": "muster-scheduler"}),
                false,
            ),
            (json!({}), false),
        ] {
            let made = pod_gang(&gang(labels.clone(), spec.clone()), &Settings::default());
            assert_eq!(made.is_some(), expected, "{labels}");
            if let Some((group, diagnostics)) = made {
                assert!(matches!(group, PodGroup::Gang(_)) && diagnostics.is_empty(), "{diagnostics:?}");
            }
        }
    }

    #[test]
    fn pods_name_it_by_their_labels() {
        let pod = |skip: &str| {
            json!({"metadata": {"name": "p", "namespace": "ns", "annotations": {SKIP_GROUPER: skip},
                                "labels": {GANG_OF: "set-0", GROUP_OF: "set-0-a"}}})
        };
        let value = pod("true");
        let found = of_pod(&Object::new("Pod", &value));
        assert_eq!(found, Some((Key::new("ns", "podgang/set-0"), "set-0-a".into())));
        let value = pod("");
        assert_eq!(of_pod(&Object::new("Pod", &value)), None);
    }

    #[test]
    fn nonsense_is_nothing() {
        for spec in [json!(null), json!(5), json!({"podgroups": 3}), json!({"podgroups": [5, {"name": 3}]})] {
            let _ = pod_gang(&gang(json!({BACKEND: "muster"}), spec), &Settings::default());
        }
        assert!(pod_gang(&json!([1]), &Settings::default()).is_none());
    }
}
