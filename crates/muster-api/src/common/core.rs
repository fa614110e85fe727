//! Kubernetes' core structs that CRDs embed outside pod specs: tolerations, taints, security contexts, volume
//! claims.

use super::meta::{LabelSelector, LabelSelectorRequirement};
use super::{ResourceList, Rest, Time};
use muster_api_derive::Api;

/// Nodes that match any of the terms.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct NodeSelector {
    #[api(list(atomic))]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
    pub rest: Rest,
}

/// Conditions on a node, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct NodeSelectorTerm {
    #[api(list(atomic))]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
    #[api(list(atomic))]
    pub match_fields: Option<Vec<LabelSelectorRequirement>>,
    pub rest: Rest,
}

/// What a container asks for, and what it may use at most.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceRequirements {
    #[api(list(map("name")))]
    pub claims: Option<Vec<ResourceClaim>>,
    pub limits: Option<ResourceList>,
    pub requests: Option<ResourceList>,
    pub rest: Rest,
}

/// A claim of the pod that a container uses.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceClaim {
    pub name: String,
    pub request: Option<String>,
    pub rest: Rest,
}

/// With which rights a container runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SecurityContext {
    pub allow_privilege_escalation: Option<bool>,
    pub app_armor_profile: Option<SecurityProfile>,
    pub capabilities: Option<Capabilities>,
    pub privileged: Option<bool>,
    pub proc_mount: Option<String>,
    pub read_only_root_filesystem: Option<bool>,
    pub run_as_group: Option<i64>,
    pub run_as_non_root: Option<bool>,
    pub run_as_user: Option<i64>,
    pub se_linux_options: Option<SeLinuxOptions>,
    pub seccomp_profile: Option<SecurityProfile>,
    pub windows_options: Option<WindowsSecurityContextOptions>,
    pub rest: Rest,
}

/// An AppArmor or seccomp profile.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SecurityProfile {
    pub r#type: String,
    pub localhost_profile: Option<String>,
    pub rest: Rest,
}

/// Linux capabilities to add and to drop.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Capabilities {
    #[api(list(atomic))]
    pub add: Option<Vec<String>>,
    #[api(list(atomic))]
    pub drop: Option<Vec<String>>,
    pub rest: Rest,
}

/// The SELinux context of a process.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SeLinuxOptions {
    pub r#type: Option<String>,
    pub level: Option<String>,
    pub role: Option<String>,
    pub user: Option<String>,
    pub rest: Rest,
}

/// What only Windows containers need.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WindowsSecurityContextOptions {
    pub gmsa_credential_spec: Option<String>,
    pub gmsa_credential_spec_name: Option<String>,
    pub host_process: Option<bool>,
    pub run_as_user_name: Option<String>,
    pub rest: Rest,
}

/// With which rights the containers of a pod run.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodSecurityContext {
    pub app_armor_profile: Option<SecurityProfile>,
    pub fs_group: Option<i64>,
    pub fs_group_change_policy: Option<String>,
    pub run_as_group: Option<i64>,
    pub run_as_non_root: Option<bool>,
    pub run_as_user: Option<i64>,
    pub se_linux_change_policy: Option<String>,
    pub se_linux_options: Option<SeLinuxOptions>,
    pub seccomp_profile: Option<SecurityProfile>,
    #[api(list(atomic))]
    pub supplemental_groups: Option<Vec<i64>>,
    pub supplemental_groups_policy: Option<String>,
    #[api(list(atomic))]
    pub sysctls: Option<Vec<Sysctl>>,
    pub windows_options: Option<WindowsSecurityContextOptions>,
    pub rest: Rest,
}

/// A kernel parameter to set.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Sysctl {
    pub name: String,
    pub value: String,
    pub rest: Rest,
}

/// A taint that pods put up with.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Toleration {
    /// The taint's key; absent with `Exists` means every taint.
    pub key: Option<String>,
    /// The effect that is tolerated; absent means all.
    pub effect: Option<String>,
    /// `Equal` (the default) or `Exists`.
    pub operator: Option<String>,
    /// For `NoExecute`: how long a pod stays after the taint appears.
    pub toleration_seconds: Option<i64>,
    pub value: Option<String>,
    pub rest: Rest,
}

/// A mark that keeps away pods which do not tolerate it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Taint {
    pub key: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    pub time_added: Option<Time>,
    pub value: Option<String>,
    pub rest: Rest,
}

/// The storage that a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PersistentVolumeClaimSpec {
    #[api(list(atomic))]
    pub access_modes: Option<Vec<String>>,
    pub data_source: Option<TypedLocalObjectReference>,
    pub data_source_ref: Option<TypedObjectReference>,
    pub resources: Option<VolumeResourceRequirements>,
    pub selector: Option<LabelSelector>,
    pub storage_class_name: Option<String>,
    pub volume_attributes_class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub volume_name: Option<String>,
    pub rest: Rest,
}

/// An object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct TypedLocalObjectReference {
    pub name: String,
    pub api_group: Option<String>,
    pub kind: String,
    pub rest: Rest,
}

/// An object, possibly in another namespace.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TypedObjectReference {
    pub name: String,
    pub namespace: Option<String>,
    pub api_group: Option<String>,
    pub kind: String,
    pub rest: Rest,
}

/// How much storage is asked for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct VolumeResourceRequirements {
    pub limits: Option<ResourceList>,
    pub requests: Option<ResourceList>,
    pub rest: Rest,
}
