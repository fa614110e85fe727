//! The kinds that are watched, and how to read into them.
//!
//! In: the JSON of an object. Out: its metadata, and its body as JSON, since most of it is only handed on: to the translation, into a workload, or
//! back into a patch. Must stay true: reading what is not there gives nothing, and never fails.

use jiff::Timestamp;
use muster_runtime::object::Meta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

macro_rules! bodies {
    ($($(#[$doc:meta])* $type:ident = $group:literal $version:literal $kind:literal $plural:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Default, PartialEq)]
            pub struct $type {
                pub metadata: Meta,
                /// All of it, with `kind` and `apiVersion`, without `managedFields`.
                pub body: Value,
            }

            impl $type {
                pub fn spec(&self) -> &Value {
                    &self.body["spec"]
                }

                pub fn status(&self) -> &Value {
                    &self.body["status"]
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    let (mut metadata, mut body) = read(from, &<$type as muster_runtime::Object>::RESOURCE)?;
                    match stringify!($type) {
                        "RoomPod" => trim(&mut metadata, &mut body),
                        "Node" => trim_node(&mut metadata, &mut body),
                        _ => {}
                    }
                    Ok($type { metadata, body })
                }
            }
        )*
        muster_runtime::kinds! { $($type = $group $version $kind $plural;)* }
    };
}

bodies! {
    ClusterQueue = "kueue.x-k8s.io" "v1beta2" "ClusterQueue" "clusterqueues";
    LocalQueue = "kueue.x-k8s.io" "v1beta2" "LocalQueue" "localqueues";
    Cohort = "kueue.x-k8s.io" "v1beta2" "Cohort" "cohorts";
    ResourceFlavor = "kueue.x-k8s.io" "v1beta2" "ResourceFlavor" "resourceflavors";
    AdmissionCheck = "kueue.x-k8s.io" "v1beta2" "AdmissionCheck" "admissionchecks";
    Topology = "kueue.x-k8s.io" "v1beta2" "Topology" "topologies";
    WorkloadPriorityClass = "kueue.x-k8s.io" "v1beta2" "WorkloadPriorityClass" "workloadpriorityclasses";
    Workload = "kueue.x-k8s.io" "v1beta2" "Workload" "workloads";
    Namespace = "" "v1" "Namespace" "namespaces";
    LimitRange = "" "v1" "LimitRange" "limitranges";
    Node = "" "v1" "Node" "nodes";
    /// A pod that is kept here; other pods are seen as far as they take room ([`muster_runtime::common::Pod`]).
    ManagedPod = "" "v1" "Pod" "pods";
    /// A pod of a workload, whoever keeps it.
    PlacedPod = "" "v1" "Pod" "pods";
    /// Any pod, as far as it takes room: the rest is left out.
    RoomPod = "" "v1" "Pod" "pods";
    BatchJob = "batch" "v1" "Job" "jobs";
}

fn read<'de, D: Deserializer<'de>>(
    from: D,
    resource: &muster_runtime::object::Resource,
) -> Result<(Meta, Value), D::Error> {
    let mut body = Value::deserialize(from)?;
    let Some(object) = body.as_object_mut() else {
        return Err(serde::de::Error::custom("an object was expected"));
    };
    // Items of a list do not say what they are.
    object.insert("apiVersion".into(), resource.api_version().into());
    object.insert("kind".into(), resource.kind.into());
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let metadata = if metadata.is_null() {
        Meta::default()
    } else {
        Meta::deserialize(metadata).map_err(serde::de::Error::custom)?
    };
    Ok((metadata, body))
}

/// Leaves of a pod only what says how much room it takes and where.
fn trim(metadata: &mut Meta, body: &mut Value) {
    metadata.annotations.retain(|key, _| key == crate::keys::WORKLOAD);
    metadata.labels.retain(|key, _| key == crate::keys::POD_SET);
    metadata.owner_references = Vec::new();
    let mut keep = |path: &str, names: &[&str]| {
        if let Some(Value::Object(map)) = body.pointer_mut(path) {
            map.retain(|key, _| names.contains(&key.as_str()));
        }
    };
    keep("/metadata", &["name", "namespace", "labels", "annotations"]);
    keep("/metadata/labels", &[crate::keys::POD_SET]);
    keep("/metadata/annotations", &[crate::keys::WORKLOAD]);
    keep("/spec", &["nodeName", "containers", "initContainers", "overhead", "resources"]);
    keep("/status", &["phase"]);
    for list in ["/spec/containers", "/spec/initContainers"] {
        let containers = body.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.retain(|key, _| matches!(key.as_str(), "resources" | "restartPolicy"));
        }
    }
}

/// Leaves of a node only what says where it is, what it has, and whether it is well.
fn trim_node(metadata: &mut Meta, body: &mut Value) {
    metadata.annotations.clear();
    let mut keep = |path: &str, names: &[&str]| {
        if let Some(Value::Object(map)) = body.pointer_mut(path) {
            map.retain(|key, _| names.contains(&key.as_str()));
        }
    };
    keep("/metadata", &["name", "labels"]);
    keep("/spec", &["taints", "unschedulable"]);
    keep("/status", &["allocatable", "conditions"]);
    if let Some(Value::Array(conditions)) = body.pointer_mut("/status/conditions") {
        conditions.retain(|c| text(c, &["type"]) == "Ready");
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            // A heartbeat is no news.
            condition.retain(|key, _| matches!(key.as_str(), "type" | "status" | "lastTransitionTime"));
        }
    }
}

/// What is at a path, or null.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, field| value.get(field).unwrap_or(&Value::Null))
}

/// The text at a path, or none at all.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

pub fn int(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

pub fn time(value: &Value, path: &[&str]) -> Option<Timestamp> {
    at(value, path).as_str()?.parse().ok()
}

/// A condition by its type.
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(status, &["conditions"]).iter().find(|c| text(c, &["type"]) == kind)
}

pub fn holds(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|c| text(c, &["status"]) == "True")
}

/// The reason of a condition that is known to be false.
pub fn why_not<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    condition(status, kind).filter(|c| text(c, &["status"]) == "False").map(|c| text(c, &["reason"]))
}

impl Workload {
    pub fn queue(&self) -> &str {
        text(&self.body, &["spec", "queueName"])
    }

    pub fn is_active(&self) -> bool {
        at(&self.body, &["spec", "active"]).as_bool().unwrap_or(true)
    }

    pub fn holds(&self, kind: &str) -> bool {
        holds(self.status(), kind)
    }

    pub fn has_quota(&self) -> bool {
        self.holds(crate::keys::condition::QUOTA_RESERVED)
    }

    pub fn is_admitted(&self) -> bool {
        self.holds(crate::keys::condition::ADMITTED)
    }

    pub fn is_finished(&self) -> bool {
        self.holds(crate::keys::condition::FINISHED)
    }

    pub fn is_evicted(&self) -> bool {
        self.holds(crate::keys::condition::EVICTED)
    }

    pub fn pod_sets(&self) -> &[Value] {
        list(&self.body, &["spec", "podSets"])
    }

    /// The cluster queue that it has quota of.
    pub fn cluster_queue(&self) -> &str {
        text(&self.body, &["status", "admission", "clusterQueue"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_a_list_is_told_what_it_is() {
        let queue: LocalQueue = serde_json::from_str(
            r#"{"metadata": {"name": "q", "namespace": "ns", "managedFields": [{}]}, "spec": {"clusterQueue": "c"}}"#,
        )
        .unwrap();
        assert_eq!(queue.metadata.name, "q");
        assert_eq!(queue.body["kind"], "LocalQueue");
        assert_eq!(queue.body["apiVersion"], "kueue.x-k8s.io/v1beta2");
        assert_eq!(queue.body["metadata"].get("managedFields"), None);
        assert_eq!(text(queue.spec(), &["clusterQueue"]), "c");
        assert!(serde_json::from_str::<LocalQueue>("[]").is_err());
        let empty: LocalQueue = serde_json::from_str("{}").unwrap();
        assert_eq!(empty.spec(), &Value::Null);
    }
}
