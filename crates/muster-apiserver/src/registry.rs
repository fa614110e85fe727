//! What is served. In: the built-in kinds and the established CRDs. Out: a served kind for a path, and the ordered list
//! that discovery and OpenAPI are made from.
//!
//! Invariant: a registry never changes; a CRD that comes, changes or goes makes a new one. So a request sees one
//! consistent set of kinds from start to end.

use crate::crd::Custom;
use crate::status::GroupResource;
use crate::store::Table;
use k8s_builtin::{Kind, KubeVersion};
use k8s_schema::Schema;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A subresource as discovery shows it.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, `binding` ...
    pub name: String,
    /// Kind of its body, with its own group and version when they differ from the parent's.
    pub group: String,
    /// See `group`.
    pub version: String,
    /// See `group`.
    pub kind: String,
    /// Allowed verbs.
    pub verbs: Vec<String>,
}

/// Where a served kind comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Built into Kubernetes.
    Builtin(&'static Kind),
    /// Defined by a CRD.
    Custom(Arc<Custom>),
}

/// One kind in one version.
#[derive(Clone, Debug)]
pub struct Served {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Where its objects are stored.
    pub table: Table,
    /// Version in which they are stored, as `apiVersion`.
    pub storage_api_version: String,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Its schema in this version.
    pub schema: Arc<Schema>,
    /// The same as server-side apply sees it: with the metadata that a custom kind does not describe itself.
    pub typed: Arc<Schema>,
    /// Where it comes from.
    pub source: Source,
}

impl Served {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The `apiVersion` in which the object of this revision is stored.
    pub fn stored_api_version(&self, revision: crate::store::Revision) -> Cow<'_, str> {
        match &self.source {
            Source::Custom(custom) if !custom.earlier.is_empty() => {
                Cow::Owned(api_version(&self.group, custom.stored_as(revision)))
            }
            Source::Custom(_) | Source::Builtin(_) => Cow::Borrowed(&self.storage_api_version),
        }
    }

    /// Whether the object of this revision is stored as it is served in this version.
    pub fn is_stored_as_served(&self, revision: crate::store::Revision) -> bool {
        let is_of_today = match &self.source {
            Source::Custom(custom) => custom.is_of_today(revision),
            Source::Builtin(_) => true,
        };
        // Some kinds are stored in another group, too.
        is_of_today && split_api_version(&self.storage_api_version) == (&*self.group, &*self.version)
    }

    /// For error texts.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    /// Whether `status` is written on its own.
    pub fn has_status(&self) -> bool {
        self.subresources.iter().any(|s| s.name == "status")
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether it is the kind of that group and plural name.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether objects are stored at all; reviews and bindings are only posted.
    pub fn is_stored(&self) -> bool {
        self.verbs.iter().any(|v| v == "get")
    }
}

/// `v1` for core, `group/version` elsewhere.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_string() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// `pods`, `deployments.apps`.
pub fn table_name(group: &str, plural: &str) -> Table {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

/// All kinds served at one moment.
#[derive(Debug, Default)]
pub struct Registry {
    /// Groups in discovery order, each with its versions in order of preference.
    pub groups: Vec<(String, Vec<String>)>,
    /// Kinds in discovery order within their group and version.
    pub kinds: Vec<Arc<Served>>,
    by_path: BTreeMap<(String, String, String), Arc<Served>>,
    by_table: BTreeMap<Table, Arc<Served>>,
}

impl Registry {
    /// Built-in kinds of a Kubernetes version and the established CRDs.
    pub fn new(version: KubeVersion, customs: &[Arc<Custom>]) -> Registry {
        let mut kinds: Vec<Arc<Served>> =
            k8s_builtin::kinds(version).iter().map(|k| Arc::new(from_builtin(k))).collect();
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for k in &kinds {
            match groups.iter_mut().find(|(g, _)| *g == k.group) {
                Some((_, versions)) if versions.contains(&k.version) => {}
                Some((_, versions)) => versions.push(k.version.clone()),
                None => groups.push((k.group.clone(), vec![k.version.clone()])),
            }
        }
        let n_builtin = groups.len();
        let mut defined: Vec<Served> = customs.iter().flat_map(Custom::served).collect();
        defined.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
        for served in &defined {
            match groups.iter_mut().find(|(g, _)| *g == served.group) {
                Some((_, versions)) if versions.contains(&served.version) => {}
                Some((_, versions)) => versions.push(served.version.clone()),
                None => groups.push((served.group.clone(), vec![served.version.clone()])),
            }
        }
        groups[n_builtin..].sort();
        for (_, versions) in &mut groups[n_builtin..] {
            versions.sort_by_key(|v| std::cmp::Reverse(version_order(v)));
        }
        kinds.extend(defined.into_iter().map(Arc::new));
        let by_path = kinds
            .iter()
            .map(|k| ((k.group.clone(), k.version.clone(), k.plural.clone()), k.clone()))
            .collect();
        // A table's kind is the one in the storage version, where that is served.
        let mut by_table: BTreeMap<Table, Arc<Served>> = BTreeMap::new();
        for k in &kinds {
            if k.api_version() == k.storage_api_version || !by_table.contains_key(&k.table) {
                by_table.insert(k.table.clone(), k.clone());
            }
        }
        Registry { groups, kinds, by_path, by_table }
    }

    /// The kind at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_path.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// The kind of that name in a group and version.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.kinds.iter().find(|k| k.group == group && k.version == version && k.kind == kind)
    }

    /// The kind stored in a table, in its storage version where that is served.
    pub fn find_table(&self, table: &str) -> Option<&Arc<Served>> {
        self.by_table.get(table)
    }

    /// Whether the group is one of Kubernetes' own.
    pub fn is_builtin_group(&self, group: &str) -> bool {
        self.kinds.iter().any(|k| k.group == group && matches!(k.source, Source::Builtin(_)))
    }

    /// Kinds of one group and version, in discovery order.
    pub fn in_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Served>> {
        self.kinds.iter().filter(move |k| k.group == group && k.version == version)
    }
}

/// Kubernetes' order of versions: stable over beta over alpha, higher numbers first, anything else last by name.
/// The greatest is the preferred one.
fn version_order(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let other = || (0, 0, 0, std::cmp::Reverse(version.to_string()));
    let Some(rest) = version.strip_prefix('v') else { return other() };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, tail) = rest.split_at(digits);
    let Ok(major) = major.parse::<u32>() else { return other() };
    let (level, minor) = if tail.is_empty() {
        (3, "0")
    } else if let Some(n) = tail.strip_prefix("beta") {
        (2, n)
    } else if let Some(n) = tail.strip_prefix("alpha") {
        (1, n)
    } else {
        return other();
    };
    match minor.parse::<u32>() {
        Ok(minor) => (level, major, minor, std::cmp::Reverse(String::new())),
        Err(_) => other(),
    }
}

fn from_builtin(k: &'static Kind) -> Served {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
    Served {
        group: k.group.to_string(),
        version: k.version.to_string(),
        kind: k.kind.to_string(),
        list_kind: format!("{}List", k.kind),
        plural: k.plural.to_string(),
        singular: k.singular.to_string(),
        short_names: owned(&k.short_names),
        categories: owned(&k.categories),
        namespaced: k.namespaced,
        table: table_name(k.storage_group, k.plural),
        storage_api_version: api_version(k.storage_group, k.storage_version),
        verbs: owned(&k.verbs),
        subresources: k
            .subresources
            .iter()
            .map(|s| Subresource {
                name: s.name.to_string(),
                group: s.gvk.group.to_string(),
                version: s.gvk.version.to_string(),
                kind: s.gvk.kind.to_string(),
                verbs: owned(&s.verbs),
            })
            .collect(),
        schema: k.schema.clone(),
        typed: k.schema.clone(),
        source: Source::Builtin(k),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_kubernetes_does() {
        let mut versions =
            ["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "v1beta1", "v11alpha2", "v2beta1", "bar"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_order(v)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1beta1", "v11alpha2", "v1alpha1", "bar", "foo"]
        );
    }
}
