//! What the simulation reads of Kubernetes objects.
//!
//! In: the JSON of an object. Out: a slim struct with the fields that some component looks at; the rest is skipped
//! while decoding, so that ten thousand pods stay small. Templates are kept as JSON, because a typed template would
//! lose the fields that this crate does not know.
//! Must stay true: decoding never fails on a field that is absent, and these types are never written back whole.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use muster_runtime::kinds;
pub use muster_runtime::object::*;

kinds! {
    Pod = "" "v1" "Pod" "pods";
    Node = "" "v1" "Node" "nodes";
    Namespace = "" "v1" "Namespace" "namespaces";
    ReplicaSet = "apps" "v1" "ReplicaSet" "replicasets";
    ControllerRevision = "apps" "v1" "ControllerRevision" "controllerrevisions";
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
    pub node_name: String,
    pub scheduler_name: Word,
    pub priority: i32,
    pub restart_policy: Word,
    pub active_deadline_seconds: Option<i64>,
    pub node_selector: Strings,
    pub affinity: Affinity,
    #[serde(deserialize_with = "tight")]
    pub tolerations: Vec<Toleration>,
    pub scheduling_gates: Vec<Named>,
    pub readiness_gates: Vec<ReadinessGate>,
    #[serde(deserialize_with = "tight")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "tight")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "quantities")]
    pub overhead: Strings,
    pub resources: Resources,
    pub host_network: bool,
    #[serde(deserialize_with = "tight")]
    pub volumes: Vec<crate::kubelet::mounts::Volume>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    pub condition_type: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    pub node_affinity: NodeAffinity,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    pub match_expressions: Vec<Requirement>,
    pub match_fields: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: Word,
    pub operator: Word,
    pub value: Word,
    pub effect: Word,
    pub toleration_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    pub image: String,
    #[serde(deserialize_with = "tight")]
    pub command: Vec<String>,
    #[serde(deserialize_with = "tight")]
    pub args: Vec<String>,
    pub restart_policy: Word,
    pub resources: Resources,
    #[serde(deserialize_with = "tight")]
    pub ports: Vec<Port>,
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
pub struct Port {
    pub host_port: i32,
    pub protocol: Word,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Word,
    pub reason: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    pub start_time: Option<Timestamp>,
    #[serde(deserialize_with = "tight")]
    pub conditions: Vec<PodCondition>,
    #[serde(deserialize_with = "tight")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "tight")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// What is read of a pod's conditions; a pod has five of them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: Word,
    pub status: Word,
    pub last_transition_time: Option<Timestamp>,
}

impl Says for PodCondition {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn status(&self) -> &str {
        &self.status
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: String,
    pub ready: bool,
    pub restart_count: u32,
    pub state: ContainerState,
    pub last_state: ContainerState,
    #[serde(deserialize_with = "tight")]
    pub allocated_resources_status: Vec<DeviceStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceStatus {
    pub name: String,
    pub resources: Vec<DeviceHealth>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeviceHealth {
    #[serde(rename = "resourceID")]
    pub id: String,
    pub health: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub waiting: Option<Waiting>,
    pub running: Option<Running>,
    pub terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    pub started_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i32,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

impl Pod {
    /// Succeeded or failed: it will never run again.
    pub fn finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Neither finished nor being deleted: what workload controllers count.
    pub fn active(&self) -> bool {
        !self.finished() && !self.metadata.deleting()
    }

    pub fn ready(&self) -> bool {
        is_true(&self.status.conditions, "Ready")
    }

    /// When it became ready, if it is.
    pub fn ready_since(&self) -> Option<Timestamp> {
        condition(&self.status.conditions, "Ready").filter(|c| c.status == "True")?.last_transition_time
    }

    /// Ready for at least `min_ready` seconds.
    pub fn available(&self, min_ready: i64, now: Timestamp) -> bool {
        self.ready()
            && (min_ready <= 0
                || self.ready_since().is_some_and(|since| now.duration_since(since).as_secs() >= min_ready))
    }

    pub fn restarts(&self) -> u32 {
        self.status.container_statuses.iter().fold(0, |sum, c| sum.saturating_add(c.restart_count))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Meta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    #[serde(deserialize_with = "tight")]
    pub taints: Vec<Taint>,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "quantities")]
    pub capacity: Strings,
    #[serde(deserialize_with = "quantities")]
    pub allocatable: Strings,
    #[serde(deserialize_with = "tight")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "tight")]
    pub addresses: Vec<Address>,
    pub node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Address {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    pub kubelet_version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: Meta,
    pub status: Phase,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Phase {
    pub phase: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    pub metadata: Meta,
    pub spec: ReplicaSetSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    pub replicas: Option<i64>,
    pub min_ready_seconds: i64,
    pub selector: Selector,
    pub template: Value,
}

impl ReplicaSet {
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    pub fn count(&self, field: &str) -> i64 {
        self.status.get(field).and_then(Value::as_i64).unwrap_or(0)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ControllerRevision {
    pub metadata: Meta,
    pub data: Value,
    pub revision: i64,
}
