//! What the simulation reads of Kubernetes objects.
//!
//! In: the JSON of an object. Out: a slim struct with the fields that some component looks at; the rest is skipped
//! while decoding, so that ten thousand pods stay small. Templates are kept as JSON, because a typed template would
//! lose the fields that this crate does not know.
//! Must stay true: decoding never fails on a field that is absent, and these types are never written back whole.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Label and annotation maps.
pub type Strings = BTreeMap<String, String>;

/// Where a kind lives in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The URL path of a collection (empty `name`), an object or a subresource (`sub`).
    pub fn path(&self, namespace: &str, name: &str, sub: &str) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(self.plural);
        for part in [name, sub] {
            if !part.is_empty() {
                path.push('/');
                path.push_str(part);
            }
        }
        path
    }
}

/// A kind that the simulation watches.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    const RESOURCE: Resource;
    fn meta(&self) -> &Meta;

    fn key(&self) -> Key {
        Key { namespace: self.meta().namespace.clone(), name: self.meta().name.clone() }
    }
}

/// Namespace and name; the namespace is empty for cluster-wide kinds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub labels: Strings,
    pub annotations: Strings,
    #[serde(deserialize_with = "tight")]
    pub owner_references: Vec<OwnerRef>,
    #[serde(deserialize_with = "tight")]
    pub finalizers: Vec<String>,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// The owner that controls this object, if it has one.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references.iter().find(|o| o.controller)
    }

    pub fn controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|o| o.uid == uid)
    }

    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub fn created(&self) -> Timestamp {
        self.creation_timestamp.unwrap_or(Timestamp::MIN)
    }

    /// Resource versions compare as numbers; one that is no number counts as the oldest.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

/// The owner reference that makes `owner` the controller of a new object.
pub fn controller_ref<T: Object>(owner: &T) -> Value {
    json!({
        "apiVersion": T::RESOURCE.api_version(),
        "kind": T::RESOURCE.kind,
        "name": owner.meta().name,
        "uid": owner.meta().uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: Strings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    pub key: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// An empty selector matches everything; a requirement with an unknown operator matches nothing.
    pub fn matches(&self, labels: &Strings) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }

    /// The query-string form, as the scale subresource shows it.
    pub fn to_query(&self) -> String {
        let mut parts: Vec<String> = self.match_labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        for r in &self.match_expressions {
            parts.push(match r.operator.as_str() {
                "In" => format!("{} in ({})", r.key, r.values.join(",")),
                "NotIn" => format!("{} notin ({})", r.key, r.values.join(",")),
                "DoesNotExist" => format!("!{}", r.key),
                _ => r.key.clone(),
            });
        }
        parts.join(",")
    }
}

impl Requirement {
    /// The rules of label selectors; `Gt` and `Lt` are those of node affinity.
    pub fn matches(&self, labels: &Strings) -> bool {
        let found = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => found.is_some_and(|v| self.values.contains(v)),
            "NotIn" => found.is_none_or(|v| !self.values.contains(v)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" | "Lt" => {
                let number = |s: &String| s.parse::<i64>().ok();
                match (found.and_then(number), self.values.first().and_then(number)) {
                    (Some(have), Some(want)) if self.operator == "Gt" => have > want,
                    (Some(have), Some(want)) => have < want,
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// A whole number or a percentage, as in `maxSurge`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    Int(i64),
    Text(String),
}

impl IntOrPercent {
    /// The number meant for a total; percentages round up or down. What cannot be read counts as zero.
    pub fn of(&self, total: i64, round_up: bool) -> i64 {
        match self {
            IntOrPercent::Int(n) => *n,
            IntOrPercent::Text(text) => match text.strip_suffix('%').map(str::parse::<i64>) {
                Some(Ok(percent)) => {
                    let scaled = i128::from(percent) * i128::from(total);
                    let whole = scaled.div_euclid(100) + i128::from(round_up && scaled.rem_euclid(100) != 0);
                    i64::try_from(whole).unwrap_or(i64::MAX)
                }
                _ => text.parse().unwrap_or(0),
            },
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Timestamp>,
}

pub fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.kind == kind)
}

pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|c| c.status == "True")
}

/// Quantities are texts, but a server may hand a number through as it was written.
pub fn quantities<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Strings, D::Error> {
    let raw: Option<BTreeMap<String, Value>> = Deserialize::deserialize(from)?;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(raw.unwrap_or_default().into_iter().map(|(name, value)| (name, text(value))).collect())
}

/// A list without spare room: a decoder grows a list to four or eight places for one element, and ten thousand pods
/// have many lists of one element.
pub fn tight<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut list: Vec<T> = Deserialize::deserialize(from)?;
    list.shrink_to_fit();
    Ok(list)
}

/// Declares a slim kind: where it lives, and how its metadata is reached.
macro_rules! kinds {
    ($($type:ident = $group:literal $version:literal $kind:literal $plural:literal;)*) => {$(
        impl Object for $type {
            const RESOURCE: Resource =
                Resource { group: $group, version: $version, kind: $kind, plural: $plural };
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    )*};
}
pub(crate) use kinds;

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
    pub scheduler_name: String,
    pub priority: i32,
    pub restart_policy: String,
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
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
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
    pub restart_policy: String,
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
    pub protocol: String,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub reason: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    pub start_time: Option<Timestamp>,
    #[serde(deserialize_with = "tight")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "tight")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "tight")]
    pub init_container_statuses: Vec<ContainerStatus>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Strings {
        text.split_terminator(',')
            .filter_map(|p| p.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }

    #[track_caller]
    fn check_requirement(operator: &str, values: &[&str], have: &str, expected: bool) {
        let requirement = Requirement {
            key: "k".into(),
            operator: operator.into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        assert_eq!(requirement.matches(&labels(have)), expected, "{operator} {values:?} on {have}");
    }

    #[test]
    fn requirements() {
        check_requirement("In", &["a", "b"], "k=b", true);
        check_requirement("In", &["a", "b"], "k=c", false);
        check_requirement("In", &["a"], "", false);
        check_requirement("NotIn", &["a"], "", true);
        check_requirement("NotIn", &["a"], "k=a", false);
        check_requirement("Exists", &[], "k=", true);
        check_requirement("DoesNotExist", &[], "j=1", true);
        check_requirement("Gt", &["5"], "k=6", true);
        check_requirement("Gt", &["5"], "k=5", false);
        check_requirement("Lt", &["5"], "k=x", false);
        check_requirement("Sideways", &["5"], "k=5", false);
    }

    #[track_caller]
    fn check_percent(text: &str, total: i64, round_up: bool, expected: i64) {
        assert_eq!(IntOrPercent::Text(text.into()).of(total, round_up), expected, "{text} of {total}");
    }

    #[test]
    fn percentages() {
        check_percent("25%", 10, true, 3);
        check_percent("25%", 10, false, 2);
        check_percent("100%", 7, false, 7);
        check_percent("0%", 7, true, 0);
        check_percent("9223372036854775807%", i64::MAX, true, i64::MAX);
        check_percent("junk", 7, true, 0);
        assert_eq!(IntOrPercent::Int(4).of(100, true), 4);
    }

    #[test]
    fn paths() {
        assert_eq!(Pod::RESOURCE.path("a", "b", "status"), "/api/v1/namespaces/a/pods/b/status");
        assert_eq!(ReplicaSet::RESOURCE.path("", "", ""), "/apis/apps/v1/replicasets");
        assert_eq!(Node::RESOURCE.path("", "n", ""), "/api/v1/nodes/n");
    }
}
