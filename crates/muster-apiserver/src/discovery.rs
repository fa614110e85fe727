//! Discovery documents, plain and aggregated. In: the registry. Out: JSON. Pure.

use crate::registry::{Registry, Served, Subresource, api_version};
use serde_json::{Value, json};

/// `/api`.
pub fn legacy_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub fn groups(registry: &Registry) -> Value {
    let all: Vec<Value> =
        registry.groups.iter().filter(|(g, _)| !g.is_empty()).map(|(g, vs)| group_entry(g, vs)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
}

/// `/apis/GROUP`.
pub fn group(registry: &Registry, name: &str) -> Option<Value> {
    let (g, vs) = registry.groups.iter().find(|(g, _)| g == name && !g.is_empty())?;
    let mut entry = group_entry(g, vs);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

fn group_entry(group: &str, versions: &[String]) -> Value {
    let entry = |v: &String| json!({"groupVersion": api_version(group, v), "version": v});
    json!({
        "name": group,
        "versions": versions.iter().map(entry).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(entry),
    })
}

/// `/api/v1`, `/apis/GROUP/VERSION`.
pub fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let (_, versions) = registry.groups.iter().find(|(g, _)| g == group)?;
    if !versions.iter().any(|v| v == version) {
        return None;
    }
    let mut list = Vec::new();
    for k in registry.in_version(group, version) {
        let mut entry = json!({
            "name": k.plural, "singularName": k.singular, "namespaced": k.namespaced, "kind": k.kind,
            "verbs": k.verbs,
        });
        if !k.short_names.is_empty() {
            entry["shortNames"] = json!(k.short_names);
        }
        if !k.categories.is_empty() {
            entry["categories"] = json!(k.categories);
        }
        if k.verbs.iter().any(|v| v == "watch") {
            entry["storageVersionHash"] = storage_version_hash(k).into();
        }
        list.push(entry);
        for s in &k.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", k.plural, s.name), "singularName": "", "namespaced": k.namespaced,
                "kind": s.kind, "verbs": s.verbs,
            });
            if elsewhere(s, k) {
                entry["group"] = s.group.as_str().into();
                entry["version"] = s.version.as_str().into();
            }
            list.push(entry);
        }
    }
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": list});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

fn elsewhere(s: &Subresource, k: &Served) -> bool {
    !s.version.is_empty() && (s.group != k.group || s.version != k.version)
}

/// The start of a digest of the stored group, version and kind: clients see by it that the storage version has changed.
fn storage_version_hash(k: &Served) -> String {
    use base64::Engine;
    let (group, version) = crate::registry::split_api_version(&k.storage_api_version);
    // Kubernetes still stores CRDs in the version they began with.
    let version = if k.is("apiextensions.k8s.io", "customresourcedefinitions") { "v1beta1" } else { version };
    let digest =
        ring::digest::digest(&ring::digest::SHA256, format!("{group}/{version}/{}", k.kind).as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// `/api` and `/apis` in aggregated form; `version` is that of the discovery API.
pub fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let items: Vec<Value> = registry
        .groups
        .iter()
        .filter(|(g, _)| g.is_empty() == core)
        .map(|(g, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|v| {
                    let resources: Vec<Value> =
                        registry.in_version(g, v).map(|k| aggregated_resource(k)).collect();
                    json!({"version": v, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": g}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
}

fn aggregated_resource(k: &Served) -> Value {
    // Built-in kinds leave group and version of their own out; custom kinds write them down.
    let custom = matches!(k.source, crate::registry::Source::Custom(_));
    let own = |kind: &str| {
        if custom {
            json!({"group": k.group, "version": k.version, "kind": kind})
        } else {
            json!({"group": "", "version": "", "kind": kind})
        }
    };
    let mut entry = json!({
        "resource": k.plural, "responseKind": own(&k.kind),
        "scope": if k.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": k.singular, "verbs": k.verbs,
    });
    if !k.short_names.is_empty() {
        entry["shortNames"] = json!(k.short_names);
    }
    if !k.categories.is_empty() {
        entry["categories"] = json!(k.categories);
    }
    let subresources: Vec<Value> = k
        .subresources
        .iter()
        .map(|s| {
            let kind = if elsewhere(s, k) {
                json!({"group": s.group, "version": s.version, "kind": s.kind})
            } else {
                own(&s.kind)
            };
            json!({"subresource": s.name, "responseKind": kind, "verbs": s.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}
