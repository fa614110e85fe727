//! OpenAPI v3 documents, as far as kubectl needs them: `explain`, the check that a kind takes `fieldValidation` and
//! `dryRun`, and the merge keys of client-side apply. In: the registry. Out: one document per group and version.

use crate::registry::{Registry, Served, Source, api_version};
use crate::reply::{Content, Reply};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rendered documents by path, such as `api/v1`; emptied whenever the registry changes.
pub type Cache = BTreeMap<String, Arc<str>>;

/// Path of a group and version below `/openapi/v3/`.
pub fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v2`: a document without content, in the protobuf form that kubectl reads. Everything is in version 3; kubectl
/// only looks here for kinds that version 3 does not have, and then says that the kind is unknown.
pub fn version_2() -> Reply {
    // Two fields of the document: `swagger` (1) and `info` (2), the latter with `title` (1) and `version` (2).
    const DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x0d\x0a\x06muster\x12\x03 v3";
    Reply {
        content_type: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        content: Content::Whole(Bytes::from_static(DOCUMENT)),
        ..Reply::text(200, String::new())
    }
}

/// `/openapi/v3`.
pub fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in &registry.groups {
        for version in versions {
            let path = document_path(group, version);
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
        }
    }
    json!({"paths": paths})
}

/// The document of one group and version.
pub fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Arc<Served>> = registry.in_version(group, version).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut schemas = Map::new();
    let mut paths = Map::new();
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    for k in kinds {
        let name = schema_name(k);
        let gvk = json!({"group": k.group, "version": k.version, "kind": k.kind});
        let mut schema = k.schema.to_openapi();
        if matches!(k.source, Source::Builtin(_)) {
            name_types(&mut schema, &mut schemas, true);
        }
        schema["x-kubernetes-group-version-kind"] = json!([gvk]);
        let reference = json!({"$ref": format!("#/components/schemas/{name}")});
        schemas.insert(
            format!("{name}List"),
            json!({
                "type": "object", "required": ["items"],
                "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "items": {"type": "array", "items": reference},
                },
                "x-kubernetes-group-version-kind": [{"group": k.group, "version": k.version, "kind": k.list_kind}],
            }),
        );
        schemas.insert(name.clone(), schema);
        let collection = if k.namespaced {
            format!("{root}/namespaces/{{namespace}}/{}", k.plural)
        } else {
            format!("{root}/{}", k.plural)
        };
        let mut on_collection = Map::new();
        let mut on_item = Map::new();
        for verb in &k.verbs {
            let (method, item) = match verb.as_str() {
                "create" => ("post", false),
                "list" => ("get", false),
                "deletecollection" => ("delete", false),
                "get" => ("get", true),
                "update" => ("put", true),
                "patch" => ("patch", true),
                "delete" => ("delete", true),
                _ => continue,
            };
            let op = operation(k, verb, &gvk, &reference);
            if item { &mut on_item } else { &mut on_collection }.insert(method.into(), op);
        }
        if !on_collection.is_empty() {
            paths.insert(collection.clone(), Value::Object(on_collection));
        }
        if !on_item.is_empty() {
            paths.insert(format!("{collection}/{{name}}"), Value::Object(on_item));
        }
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("muster {}", api_version(group, version))},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// Moves every type that has a name of its own into `schemas` and leaves a reference: `kubectl explain` shows the name, and
/// a pod's spec is written once however many kinds have one. `root` is the kind itself, which stays where it is.
fn name_types(schema: &mut Value, schemas: &mut Map<String, Value>, root: bool) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|v| name_types(v, schemas, false)),
        Value::Object(map) => {
            let title = map.remove("title").and_then(|t| t.as_str().map(str::to_string));
            let Some(title) = title.filter(|_| !root) else {
                map.values_mut().for_each(|v| name_types(v, schemas, false));
                return;
            };
            // What is said of the field stays with the field; what is said of the type goes with the type.
            let mut field = Map::new();
            for key in [
                "default",
                "description",
                "x-kubernetes-patch-strategy",
                "x-kubernetes-patch-merge-key",
                "nullable",
            ] {
                if let Some(value) = map.remove(key) {
                    field.insert(key.into(), value);
                }
            }
            if !schemas.contains_key(&title) {
                // Reserved first: the name is known before what lies beneath it is looked at.
                schemas.insert(title.clone(), Value::Null);
                let mut body = std::mem::take(map);
                body.values_mut().for_each(|v| name_types(v, schemas, false));
                schemas.insert(title.clone(), Value::Object(body));
            }
            let reference = json!({"$ref": format!("#/components/schemas/{title}")});
            *schema = if field.is_empty() {
                reference
            } else {
                field.insert("allOf".into(), json!([reference]));
                Value::Object(field)
            };
        }
        _ => {}
    }
}

fn operation(k: &Served, verb: &str, gvk: &Value, reference: &Value) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let names: &[&str] = match verb {
        "create" | "update" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "delete" | "deletecollection" => {
            &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"]
        }
        "list" => &["allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "watch"],
        _ => &[],
    };
    let action = match verb {
        "create" => "post",
        "update" => "put",
        other => other,
    };
    let body = json!({"content": {"application/json": {"schema": reference}}});
    let mut op = json!({
        "operationId": format!("{verb}{}{}", k.version, k.kind),
        "parameters": names.iter().map(|n| parameter(n)).collect::<Vec<_>>(),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
    });
    if matches!(verb, "create" | "update" | "patch") {
        op["requestBody"] = body;
    }
    op
}

/// `io.k8s.batch.v1.Job`-like names: the group reversed, then version and kind.
fn schema_name(k: &Served) -> String {
    let mut parts: Vec<&str> = if k.group.is_empty() { vec!["core"] } else { k.group.split('.').collect() };
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), k.version, k.kind)
}
