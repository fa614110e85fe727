//! The kinds: names, verbs, subresources and schema of every built-in resource, in the order of discovery.
//!
//! In: `kinds/resources.txt` and the type table. Out: [`kinds`] and [`find`]. Everything is read once, at first use.
//! What must stay true: the order of [`kinds`] is the order in which the reference server's discovery lists groups,
//! versions and resources.

use std::sync::{Arc, LazyLock};

use k8s_schema::Schema;
use serde_json::json;

use crate::{
    data::{DataError, FILES, RESOURCES, TypeId, Types},
    schema::Schemas,
};

/// A version of Kubernetes whose kinds are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KubeVersion {
    /// 1.35: `scheduling.k8s.io/v1alpha1` and `pod.spec.workloadRef`.
    V1_35,
    /// 1.36: `scheduling.k8s.io/v1alpha2` and `pod.spec.schedulingGroup`.
    V1_36,
}

impl KubeVersion {
    /// `1.36`.
    #[must_use]
    pub fn minor(self) -> &'static str {
        match self {
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
        }
    }
}

/// Group, version and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `v1`.
    pub version: &'static str,
    /// Such as `Pod`.
    pub kind: &'static str,
}

impl Gvk {
    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// One resource in one version.
#[derive(Debug)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `v1`.
    pub version: &'static str,
    /// Such as `Pod`.
    pub kind: &'static str,
    /// The resource name in a path, such as `pods`.
    pub plural: &'static str,
    /// Such as `pod`.
    pub singular: String,
    /// Such as `po`.
    pub short_names: Vec<&'static str>,
    /// Such as `all`.
    pub categories: Vec<&'static str>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// Subresources, sorted by name.
    pub subresources: Vec<Subresource>,
    /// Whether this version is the stored one.
    pub storage: bool,
    /// Group of the stored form; differs from `group` for `events.k8s.io`.
    pub storage_group: &'static str,
    /// Version of the stored form.
    pub storage_version: &'static str,
    /// Describes a whole object.
    pub schema: Arc<Schema>,
    /// Whether there is a `status` subresource.
    pub has_status: bool,
    /// Whether objects carry `metadata.generation`.
    pub has_generation: bool,
    /// Field labels that a field selector may name.
    pub field_labels: Vec<&'static str>,
    /// The Kubernetes whose kind this is.
    pub kube: KubeVersion,
    pub(crate) type_id: TypeId,
}

/// A path below an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Such as `status`.
    pub name: &'static str,
    /// What is read or written there.
    pub gvk: Gvk,
    /// Verbs, sorted.
    pub verbs: Vec<&'static str>,
}

impl Kind {
    /// Group, version and kind.
    #[must_use]
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group, version: self.version, kind: self.kind }
    }

    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        self.gvk().api_version()
    }

    /// The subresource of that name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub(crate) fn types(&self) -> &'static Types {
        &tables(self.kube).types
    }
}

/// All kinds of that version, in discovery order: the core group first, then the other groups by priority.
#[must_use]
pub fn kinds(version: KubeVersion) -> &'static [Kind] {
    &tables(version).kinds
}

/// The kind of that group, version and plural name.
#[must_use]
pub fn find(version: KubeVersion, group: &str, api_version: &str, plural: &str) -> Option<&'static Kind> {
    kinds(version).iter().find(|k| k.group == group && k.version == api_version && k.plural == plural)
}

/// The kind of that group, version and kind name.
#[must_use]
pub fn find_kind(version: KubeVersion, group: &str, api_version: &str, kind: &str) -> Option<&'static Kind> {
    kinds(version).iter().find(|k| k.group == group && k.version == api_version && k.kind == kind)
}

/// The schema of a type that need not be a resource, by file and name: `meta.v1.DeleteOptions`, `autoscaling.v1.Scale`,
/// `policy.v1.Eviction`.
#[must_use]
pub fn schema_of(version: KubeVersion, type_name: &str) -> Option<Arc<Schema>> {
    let types = &tables(version).types;
    types.by_name(type_name).map(|id| Schemas::new(types).get(id))
}

/// All types of a version.
pub(crate) fn types(version: KubeVersion) -> &'static Types {
    &tables(version).types
}

#[derive(Debug)]
struct Tables {
    types: Types,
    kinds: Vec<Kind>,
}

fn tables(version: KubeVersion) -> &'static Tables {
    static V1_35: LazyLock<Tables> = LazyLock::new(|| load(KubeVersion::V1_35));
    static V1_36: LazyLock<Tables> = LazyLock::new(|| load(KubeVersion::V1_36));
    match version {
        KubeVersion::V1_35 => &V1_35,
        KubeVersion::V1_36 => &V1_36,
    }
}

fn load(version: KubeVersion) -> Tables {
    read(version).expect("the files are part of the program and a test reads all of them")
}

fn read(version: KubeVersion) -> Result<Tables, DataError> {
    let types = Types::read(FILES, version)?;
    let kinds = read_resources(RESOURCES, &types, version)?;
    Ok(Tables { types, kinds })
}

/// Kinds whose registry sets `metadata.generation` and counts it up when the desired state changes.
const WITH_GENERATION: &[&str] = &[
    "CSIDriver",
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "DeviceClass",
    "EndpointSlice",
    "FlowSchema",
    "Ingress",
    "IngressClass",
    "Job",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "NetworkPolicy",
    "Pod",
    "PodDisruptionBudget",
    "PodTemplate",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ReplicaSet",
    "ReplicationController",
    "ResourceSlice",
    "StatefulSet",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

fn read_resources(text: &'static str, types: &Types, version: KubeVersion) -> Result<Vec<Kind>, DataError> {
    let mut schemas = Schemas::new(types);
    let mut kinds: Vec<Kind> = Vec::new();
    let mut open: Option<GroupLine> = None;
    for (line_idx, line) in text.lines().enumerate() {
        let error = |reason: &str| DataError {
            file: "resources".to_owned(),
            line: line_idx + 1,
            reason: format!("{reason}: {line:?}"),
        };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&'static str> = line.split_whitespace().collect();
        let is_here = words.iter().all(|word| word.strip_prefix('@').is_none_or(|v| v == version.minor()));
        let option = |name: &str| -> Vec<&'static str> {
            words
                .iter()
                .find_map(|word| word.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, list)| list.split(',').collect())
                .unwrap_or_default()
        };
        match words.as_slice() {
            ["group", group, api_version, ..] => {
                let storage = option("storage").first().and_then(|gv| gv.split_once('/'));
                open = is_here.then(|| GroupLine {
                    group: core_is_empty(group),
                    version: api_version,
                    types: option("types").first().copied().unwrap_or_default(),
                    storage: storage
                        .map_or((core_is_empty(group), *api_version), |(g, v)| (core_is_empty(g), v)),
                });
            }
            [name, gvk, verb_list, ..] if name.starts_with('/') => {
                let (Some(_), Some(kind)) = (&open, kinds.last_mut()) else {
                    if open.is_some() {
                        return Err(error("a subresource before the first resource"));
                    }
                    continue;
                };
                let gvk = match gvk.split('/').collect::<Vec<_>>().as_slice() {
                    [kind_name] => Gvk { kind: kind_name, ..kind.gvk() },
                    [group, version, kind] => Gvk { group: core_is_empty(group), version, kind },
                    _ => return Err(error("cannot read the kind of a subresource")),
                };
                let name = name.strip_prefix('/').unwrap_or(name);
                kind.has_status |= name == "status";
                kind.subresources.push(Subresource { name, gvk, verbs: verbs(verb_list) });
            }
            [plural, kind, scope, verb_list, ..] => {
                let Some(group) = &open else { continue };
                if !is_here {
                    continue;
                }
                let type_id = types
                    .by_name(&format!("{}.{kind}", group.types))
                    .ok_or_else(|| error("no type for this resource"))?;
                let mut schema = Schema::clone(&schemas.get(type_id));
                schema.extensions.insert(
                    "x-kubernetes-group-version-kind".to_owned(),
                    json!([{ "group": group.group, "version": group.version, "kind": kind }]),
                );
                let mut field_labels = vec!["metadata.name"];
                if *scope == "ns" {
                    field_labels.push("metadata.namespace");
                }
                field_labels.extend(option("fields"));
                kinds.push(Kind {
                    group: group.group,
                    version: group.version,
                    kind,
                    plural,
                    singular: kind.to_lowercase(),
                    short_names: option("short"),
                    categories: option("categories"),
                    namespaced: match *scope {
                        "ns" => true,
                        "cluster" => false,
                        _ => return Err(error("the scope is ns or cluster")),
                    },
                    verbs: verbs(verb_list),
                    subresources: Vec::new(),
                    storage: group.storage == (group.group, group.version),
                    storage_group: group.storage.0,
                    storage_version: group.storage.1,
                    schema: Arc::new(schema),
                    has_status: false,
                    has_generation: WITH_GENERATION.contains(kind),
                    field_labels,
                    type_id,
                    kube: version,
                });
            }
            _ => return Err(error("cannot read this line")),
        }
    }
    Ok(kinds)
}

struct GroupLine {
    group: &'static str,
    version: &'static str,
    types: &'static str,
    storage: (&'static str, &'static str),
}

fn core_is_empty(group: &'static str) -> &'static str {
    if group == "core" { "" } else { group }
}

fn verbs(list: &'static str) -> Vec<&'static str> {
    match list {
        "all" => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "gpu" => vec!["get", "patch", "update"],
        _ => list.split(',').collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_both_versions() {
        for version in [KubeVersion::V1_35, KubeVersion::V1_36] {
            let kinds = kinds(version);
            assert!(kinds.len() > 60, "{}", kinds.len());
            for kind in kinds {
                for key in ["apiVersion", "kind", "metadata"] {
                    assert!(kind.schema.properties.contains_key(key), "{} {key}", kind.kind);
                }
                let has_field = kind.schema.properties.contains_key("status");
                assert!(!kind.has_status || has_field, "{} has /status but no status", kind.kind);
            }
        }
    }

    #[test]
    fn order_is_that_of_discovery() {
        let mut groups: Vec<&str> = kinds(KubeVersion::V1_36).iter().map(|k| k.group).collect();
        groups.dedup();
        assert_eq!(groups.get(..4), Some(["", "apiregistration.k8s.io", "apps", "events.k8s.io"].as_slice()));
        let hpa: Vec<&str> = kinds(KubeVersion::V1_36)
            .iter()
            .filter(|k| k.group == "autoscaling")
            .map(|k| k.version)
            .collect();
        assert_eq!(hpa, ["v2", "v1"]);
    }

    #[test]
    fn pods() {
        let pods = find(KubeVersion::V1_36, "", "v1", "pods").unwrap();
        assert_eq!((pods.singular.as_str(), pods.namespaced, pods.has_status), ("pod", true, true));
        assert_eq!(pods.short_names, ["po"]);
        assert_eq!(pods.subresource("eviction").unwrap().gvk.api_version(), "policy/v1");
        let spec = &pods.schema.properties["spec"];
        let containers = &spec.properties["containers"];
        assert_eq!(containers.list_map_keys, ["name"]);
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        assert_eq!(spec.properties["volumes"].patch_strategy.as_deref(), Some("merge,retainKeys"));
    }

    #[test]
    fn gang_api_by_version() {
        let has = |version, api, plural| find(version, "scheduling.k8s.io", api, plural).is_some();
        assert!(
            has(KubeVersion::V1_36, "v1alpha2", "podgroups")
                && !has(KubeVersion::V1_36, "v1alpha1", "workloads")
        );
        assert!(
            has(KubeVersion::V1_35, "v1alpha1", "workloads")
                && !has(KubeVersion::V1_35, "v1alpha2", "workloads")
        );
    }

    #[test]
    fn storage_forms() {
        let form = |group, version, plural| {
            let kind = find(KubeVersion::V1_36, group, version, plural).unwrap();
            (kind.storage, kind.storage_group, kind.storage_version)
        };
        assert_eq!(form("autoscaling", "v1", "horizontalpodautoscalers"), (false, "autoscaling", "v2"));
        assert_eq!(form("autoscaling", "v2", "horizontalpodautoscalers"), (true, "autoscaling", "v2"));
        assert_eq!(form("events.k8s.io", "v1", "events"), (false, "", "v1"));
    }

    #[test]
    fn types_that_are_no_resources() {
        for name in ["meta.v1.DeleteOptions", "meta.v1.Status", "autoscaling.v1.Scale", "policy.v1.Eviction"]
        {
            assert!(schema_of(KubeVersion::V1_36, name).is_some(), "{name}");
        }
        assert!(schema_of(KubeVersion::V1_36, "core.v1.Nothing").is_none());
    }
}
