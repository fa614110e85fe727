//! The kinds that Grove's controllers read, with the fields that they look at.
//!
//! In: JSON of the API server. Out: slim objects; pod specs, statuses and claims stay JSON, since they are handed on.
//! Must stay true: decoding never fails on a field that is absent; numbers that nobody wrote have Grove's defaults here, so
//! that objects made without webhooks are read like those made with them.

use jiff::Timestamp;
use muster_runtime::object::{Condition, Meta, Resource, Strings};
use serde::Deserialize;
use serde_json::Value;

muster_runtime::kinds! {
    PodCliqueSet = "grove.io" "v1alpha1" "PodCliqueSet" "podcliquesets";
    PodClique = "grove.io" "v1alpha1" "PodClique" "podcliques";
    PodCliqueScalingGroup = "grove.io" "v1alpha1" "PodCliqueScalingGroup" "podcliquescalinggroups";
    ClusterTopologyBinding = "grove.io" "v1alpha1" "ClusterTopologyBinding" "clustertopologybindings";
    PodGang = "scheduler.grove.io" "v1alpha1" "PodGang" "podgangs";
}

/// Kinds that are made and never looked into much.
pub mod made {
    use super::Resource;

    const fn kind(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Resource {
        Resource { group, version, kind, plural }
    }

    pub const POD: Resource = kind("", "v1", "Pod", "pods");
    pub const SERVICE: Resource = kind("", "v1", "Service", "services");
    pub const SERVICE_ACCOUNT: Resource = kind("", "v1", "ServiceAccount", "serviceaccounts");
    pub const SECRET: Resource = kind("", "v1", "Secret", "secrets");
    pub const ROLE: Resource = kind("rbac.authorization.k8s.io", "v1", "Role", "roles");
    pub const ROLE_BINDING: Resource = kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
    pub const HPA: Resource =
        kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    pub const CLAIM: Resource = kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims");
    pub const COMPUTE_DOMAIN: Resource =
        kind("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains");
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodCliqueSet {
    pub metadata: Meta,
    pub spec: SetSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetSpec {
    pub replicas: Option<i64>,
    pub template: SetTemplate,
    pub update_strategy: UpdateStrategy,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct UpdateStrategy {
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SetTemplate {
    pub clique_startup_type: String,
    pub cliques: Vec<CliqueTemplate>,
    pub headless_service_config: Option<HeadlessService>,
    pub pod_clique_scaling_groups: Vec<GroupConfig>,
    pub priority_class_name: String,
    pub resource_claim_templates: Vec<ClaimTemplate>,
    pub resource_sharing: Vec<Sharing>,
    pub termination_delay: String,
    pub topology_constraint: Option<TopologyConstraint>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CliqueTemplate {
    pub name: String,
    pub labels: Strings,
    pub annotations: Strings,
    pub spec: CliqueSpec,
    pub resource_sharing: Vec<Sharing>,
    pub topology_constraint: Option<TopologyConstraint>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CliqueSpec {
    pub role_name: String,
    pub replicas: i64,
    pub min_available: Option<i64>,
    pub pod_spec: Value,
    pub starts_after: Vec<String>,
    pub auto_scaling_config: Option<Scaling>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scaling {
    pub min_replicas: Option<i64>,
    pub max_replicas: i64,
    pub metrics: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeadlessService {
    pub publish_not_ready_addresses: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupConfig {
    pub name: String,
    pub replicas: Option<i64>,
    pub min_available: Option<i64>,
    pub annotations: Strings,
    pub clique_names: Vec<String>,
    pub resource_sharing: Vec<Sharing>,
    pub scale_config: Option<Scaling>,
    pub topology_constraint: Option<TopologyConstraint>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimTemplate {
    pub name: String,
    pub template_spec: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sharing {
    pub name: String,
    pub namespace: String,
    pub scope: String,
    pub filter: Option<SharingFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SharingFilter {
    pub child_clique_names: Vec<String>,
    pub child_scaling_group_names: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyConstraint {
    pub topology_name: String,
    pub pack: Option<Pack>,
    pub pack_domain: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pack {
    pub required: String,
    pub preferred: String,
}

impl TopologyConstraint {
    /// The domain that must hold all; the deprecated spelling counts.
    pub fn required(&self) -> &str {
        let required = self.pack.as_ref().map_or("", |pack| pack.required.as_str());
        if required.is_empty() { &self.pack_domain } else { required }
    }

    pub fn preferred(&self) -> &str {
        self.pack.as_ref().map_or("", |pack| pack.preferred.as_str())
    }
}

/// More replicas of a set, or of a group, than any cluster has nodes for. Whoever writes more gets this many.
const MOST_SETS: i64 = 20_000;
const MOST_GROUPS: i64 = 5_000;
/// More pods than a clique can have in one cluster.
pub const MOST_PODS: i64 = 150_000;

impl PodCliqueSet {
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(0).clamp(0, MOST_SETS)
    }

    pub fn rolls(&self) -> bool {
        self.spec.update_strategy.kind != "OnDelete"
    }
}

impl CliqueSpec {
    /// Zero means one: nobody wants a clique of nothing.
    pub fn replicas(&self) -> i64 {
        if self.replicas <= 0 { 1 } else { self.replicas.min(MOST_PODS) }
    }

    pub fn min_available(&self) -> i64 {
        self.min_available.filter(|min| *min > 0).unwrap_or_else(|| self.replicas())
    }

    /// Its pods are meant to come to an end.
    pub fn is_finite(&self) -> bool {
        matches!(text(&self.pod_spec, &["restartPolicy"]), "Never" | "OnFailure")
    }
}

impl GroupConfig {
    pub fn replicas(&self) -> i64 {
        self.replicas.unwrap_or(1).clamp(0, MOST_GROUPS)
    }

    pub fn min_available(&self) -> i64 {
        self.min_available.unwrap_or(1).clamp(1, MOST_GROUPS)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodClique {
    pub metadata: Meta,
    pub spec: CliqueSpec,
    pub status: Value,
}

impl PodClique {
    /// How many pods it wants now. Unlike in a template, zero is what somebody scaled it to.
    pub fn wanted(&self) -> i64 {
        self.spec.replicas.clamp(0, MOST_PODS)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodCliqueScalingGroup {
    pub metadata: Meta,
    pub spec: GroupSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    pub replicas: Option<i64>,
    pub min_available: Option<i64>,
    pub clique_names: Vec<String>,
}

impl GroupSpec {
    pub fn replicas(&self) -> i64 {
        self.replicas.unwrap_or(1).clamp(0, MOST_GROUPS)
    }

    pub fn min_available(&self) -> i64 {
        self.min_available.unwrap_or(1).clamp(1, MOST_GROUPS)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClusterTopologyBinding {
    pub metadata: Meta,
    pub spec: BindingSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingSpec {
    pub levels: Vec<Level>,
    pub scheduler_topology_bindings: Vec<SchedulerTopology>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Level {
    pub domain: String,
    pub key: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerTopology {
    pub scheduler_name: String,
    pub topology_reference: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodGang {
    pub metadata: Meta,
    pub spec: GangSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangSpec {
    pub podgroups: Vec<GangGroup>,
    pub priority_class_name: String,
    pub topology_constraint: Option<GangConstraint>,
    pub topology_constraint_group_configs: Vec<GangGroupConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangGroup {
    pub name: String,
    pub min_replicas: i64,
    pub pod_references: Vec<PodReference>,
    pub topology_constraint: Option<GangConstraint>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodReference {
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangConstraint {
    pub pack_constraint: Option<Pack>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangGroupConfig {
    pub name: String,
    pub pod_group_names: Vec<String>,
    pub topology_constraint: Option<GangConstraint>,
}

impl GangConstraint {
    /// Required and preferred node labels; empty for none.
    pub fn levels(&self) -> (&str, &str) {
        self.pack_constraint
            .as_ref()
            .map_or(("", ""), |pack| (pack.required.as_str(), pack.preferred.as_str()))
    }
}

impl PodGang {
    pub fn min_total(&self) -> i64 {
        self.spec.podgroups.iter().fold(0, |sum, group| sum.saturating_add(group.min_replicas.max(0)))
    }
}

/// A number of a status.
pub fn number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

/// A text at a path; empty when it is not there.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter().try_fold(value, |at, step| at.get(step)).and_then(Value::as_str).unwrap_or("")
}

/// A list at a path; empty when it is not there.
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    path.iter().try_fold(value, |at, step| at.get(step)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A condition of a status.
pub fn condition(status: &Value, kind: &str) -> Option<Condition> {
    let found = list(status, &["conditions"]).iter().find(|c| text(c, &["type"]) == kind)?;
    serde_json::from_value(found.clone()).ok()
}

/// The status of a condition: `True`, `False`, `Unknown`, or empty when nobody said.
pub fn condition_status<'a>(status: &'a Value, kind: &str) -> &'a str {
    list(status, &["conditions"])
        .iter()
        .find(|c| text(c, &["type"]) == kind)
        .map_or("", |c| text(c, &["status"]))
}

pub fn holds(status: &Value, kind: &str) -> bool {
    condition_status(status, kind) == "True"
}

/// Since when a condition holds.
pub fn holds_since(status: &Value, kind: &str) -> Option<Timestamp> {
    condition(status, kind).filter(|c| c.status == "True")?.last_transition_time
}

/// An index that a label says.
pub fn index(meta: &Meta, label: &str) -> Option<i64> {
    meta.labels.get(label)?.parse().ok().filter(|index| *index >= 0)
}

pub fn label<'a>(meta: &'a Meta, label: &str) -> &'a str {
    meta.labels.get(label).map_or("", String::as_str)
}
