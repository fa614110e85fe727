//! Defaulting: absent fields get the value that the schema names.
//!
//! In: an object and the schema of its kind. Out: the object with defaults filled in. A `null` where the schema does not
//! permit one counts as absent: it gives way to the default or, where there is none, goes away. The work is proportional
//! to the object and the fields declared beside the fields it has, never to the whole schema.

use std::sync::Arc;

use serde_json::Value;

use crate::{Additional, Schema};

/// Fills in defaults. Running it twice changes nothing more.
///
/// ```
/// use k8s_schema::{Schema, default};
/// use serde_json::json;
///
/// let schema = Schema::from_crd(&json!({"type": "object", "properties": {
///     "spec": {"type": "object", "default": {}, "properties": {"size": {"type": "integer", "default": 1}}},
/// }})).unwrap();
/// let mut object = json!({});
/// default(&mut object, &schema);
/// assert_eq!(object, json!({"spec": {"size": 1}}));
/// ```
pub fn default(value: &mut Value, schema: &Schema) {
    drop_nulls(value, schema);
    fill(value, schema);
}

/// Removes fields that are `null` although their schema neither permits `null` nor has a default.
fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|key, item| match schema.property(key) {
            Some(child) if item.is_null() => child.nullable || child.default.is_some(),
            Some(child) => {
                drop_nulls(item, child);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                items.iter_mut().for_each(|item| drop_nulls(item, schema));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for name in schema.memo.defaulted(schema) {
                let Some(child) = schema.properties.get(name) else { continue };
                let Some(default) = &child.default else { continue };
                let absent = map.get(name).is_none_or(|item| item.is_null() && !child.nullable);
                if absent {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, item) in map.iter_mut() {
                if let Some(child) = schema.properties.get(key) {
                    fill(item, child);
                } else if let Some(Additional::Schema(child)) = &schema.additional {
                    fill_entry(item, child);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill_entry(item, schema));
            }
        }
        _ => {}
    }
}

fn fill_entry(item: &mut Value, schema: &Arc<Schema>) {
    if let (true, false, Some(default)) = (item.is_null(), schema.nullable, &schema.default) {
        *item = default.clone();
    }
    fill(item, schema);
}
