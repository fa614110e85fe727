//! The slim kinds that several services read, so that one process watches each of them once.
//!
//! In: the JSON of an object. Out: the fields that some service looks at. A service that needs a field adds it here;
//! templates and rules that are only handed on stay JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::object::{Condition, Meta, Strings, Unread, Word, quantities, tight};

crate::kinds! {
    Pod = "" "v1" "Pod" "pods";
    Node = "" "v1" "Node" "nodes";
    PodGroup = "scheduling.run.ai" "v2alpha2" "PodGroup" "podgroups";
    Queue = "scheduling.run.ai" "v2" "Queue" "queues";
    BindRequest = "scheduling.run.ai" "v1alpha2" "BindRequest" "bindrequests";
    PriorityClass = "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses";
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub scheduler_name: Word,
    pub node_name: String,
    pub priority_class_name: String,
    pub restart_policy: Word,
    /// The gang of the pod in Kubernetes' own API: since 1.36, and as 1.35 spelled it.
    pub scheduling_group: Option<Value>,
    pub workload_ref: Option<Value>,
    /// Of the whole pod.
    pub resources: Resources,
    #[serde(deserialize_with = "tight")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "tight")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "quantities")]
    pub overhead: Strings,
    #[serde(deserialize_with = "tight")]
    pub resource_claims: Vec<Value>,
    #[serde(deserialize_with = "tight")]
    pub scheduling_gates: Vec<Value>,
    pub tolerations: Option<Unread>,
    pub node_selector: Strings,
    pub affinity: Option<Unread>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    pub restart_policy: Word,
    pub resources: Resources,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "quantities")]
    pub requests: Strings,
    #[serde(deserialize_with = "quantities")]
    pub limits: Strings,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Word,
    pub nominated_node_name: String,
    #[serde(deserialize_with = "tight")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "tight")]
    pub resource_claim_statuses: Vec<Value>,
    #[serde(deserialize_with = "tight")]
    pub container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub ready: bool,
    pub started: Option<bool>,
    pub last_state: ContainerState,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub terminated: Option<ContainerEnd>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEnd {
    pub exit_code: i64,
}

impl Pod {
    /// It has run, and will not run again.
    pub fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn is_bound(&self) -> bool {
        !self.spec.node_name.is_empty()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Meta,
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "quantities")]
    pub allocatable: Strings,
}

/// KAI's pod group. Spec and status stay JSON: each service reads its own part.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodGroup {
    pub metadata: Meta,
    pub spec: BTreeMap<String, Value>,
    pub status: BTreeMap<String, Value>,
}

/// KAI's queue.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Queue {
    pub metadata: Meta,
    pub spec: BTreeMap<String, Value>,
    pub status: BTreeMap<String, Value>,
}

/// KAI's bind request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BindRequest {
    pub metadata: Meta,
    pub spec: BTreeMap<String, Value>,
    pub status: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    pub metadata: Meta,
    pub value: i64,
    pub global_default: bool,
}
