//! Pruning: fields that a schema does not declare are removed, as the API server does before it stores an object.
//!
//! In: an object and the schema of its kind. Out: the object without undeclared fields, and the names of what was removed.
//! The type, version and metadata of an object are not described by custom resource schemas and always stay.

use serde_json::Value;

use crate::{Additional, Schema};

/// Removes undeclared fields and returns their dotted paths, sorted, as in `unknown field "spec.foo"`.
///
/// `apiVersion`, `kind` and `metadata` stay at the root and in embedded resources. Metadata is looked into only where the
/// schema describes it in full, which only schemas of built-in kinds do.
///
/// ```
/// use k8s_schema::{Schema, prune};
/// use serde_json::json;
///
/// let schema = Schema::from_crd(&json!({"type": "object", "properties": {
///     "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
/// }})).unwrap();
/// let mut object = json!({"kind": "Box", "spec": {"size": 1, "colour": "red"}});
/// assert_eq!(prune(&mut object, &schema), ["spec.colour"]);
/// assert_eq!(object, json!({"kind": "Box", "spec": {"size": 1}}));
/// ```
pub fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.node(value, Some(schema), true);
    pruner.removed.sort();
    pruner.removed
}

/// Prunes a value that is not the root of an object, such as a default.
pub(crate) fn prune_value(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.node(value, Some(schema), false);
    pruner.removed.sort();
    pruner.removed
}

struct Pruner {
    path: String,
    removed: Vec<String>,
}

impl Pruner {
    /// A node without a schema loses all its fields, however deep; items of lists stay.
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool) {
        if let Some(schema) = schema.filter(|s| s.preserve_unknown) {
            self.preserved(value, schema, root);
            return;
        }
        match value {
            Value::Object(map) => {
                let Some(schema) = schema else {
                    for (key, _) in std::mem::take(map) {
                        self.remove(&key);
                    }
                    return;
                };
                let mut unknown = Vec::new();
                for (key, item) in map.iter_mut() {
                    if (root || schema.embedded_resource) && is_meta(key) {
                        self.meta(key, item, schema, root);
                    } else if let Some(child) = schema.properties.get(key) {
                        self.below_key(key, |p| p.node(item, Some(child), false));
                    } else if let Some(additional) = &schema.additional {
                        self.below_key(key, |p| p.node(item, schema_of(additional), false));
                    } else {
                        unknown.push(key.clone());
                    }
                }
                for key in unknown {
                    map.remove(&key);
                    self.remove(&key);
                }
            }
            Value::Array(items) => {
                let item_schema = schema.and_then(|s| s.items.as_deref());
                for (i, item) in items.iter_mut().enumerate() {
                    self.below_index(i, |p| p.node(item, item_schema, false));
                }
            }
            _ => {}
        }
    }

    /// A node that keeps what it does not know; pruning starts again below what it does know.
    fn preserved(&mut self, value: &mut Value, schema: &Schema, root: bool) {
        match value {
            Value::Object(map) => {
                for (key, item) in map.iter_mut() {
                    if (root || schema.embedded_resource) && is_meta(key) {
                        self.meta(key, item, schema, root);
                    } else if let Some(child) = schema.properties.get(key) {
                        self.below_key(key, |p| p.node(item, Some(child), false));
                    } else if let Some(additional) = &schema.additional {
                        self.below_key(key, |p| p.node(item, schema_of(additional), false));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items.as_deref() {
                    for (i, item) in items.iter_mut().enumerate() {
                        self.below_index(i, |p| p.preserved(item, schema, false));
                    }
                }
            }
            _ => {}
        }
    }

    /// Root metadata of a custom resource may only restrict names; more than that means a built-in kind.
    fn meta(&mut self, key: &str, value: &mut Value, schema: &Schema, root: bool) {
        let described = schema.properties.get(key).filter(|meta| {
            root && key == "metadata" && meta.properties.keys().any(|k| k != "name" && k != "generateName")
        });
        if let Some(meta) = described {
            self.below_key(key, |p| p.node(value, Some(meta), false));
        }
    }

    fn below_key(&mut self, key: &str, work: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        work(self);
        self.path.truncate(len);
    }

    fn below_index(&mut self, index: usize, work: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        work(self);
        self.path.truncate(len);
    }

    fn remove(&mut self, key: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.removed.push(format!("{}{dot}{key}", self.path));
    }
}

fn schema_of(additional: &Additional) -> Option<&Schema> {
    match additional {
        Additional::Schema(schema) => Some(schema),
        Additional::Allowed(_) => None,
    }
}

fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}
