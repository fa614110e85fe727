//! Which old value belongs to a new one: fields by name, items of lists of type map by their keys, nothing else.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{ListType, Schema, gofmt};

/// The old items of a list, findable by the keys of a new item.
pub(crate) struct OldItems<'a> {
    keys: &'a [String],
    by_key: BTreeMap<String, &'a Value>,
}

impl<'a> OldItems<'a> {
    pub(crate) fn new(old: Option<&'a Value>, schema: &'a Schema) -> Self {
        let keys = schema.list_map_keys.as_slice();
        let mut by_key = BTreeMap::new();
        if let (Some(ListType::Map), Some(Value::Array(items))) = (schema.list_type, old) {
            for item in items {
                if let Some(key) = key_of(item, keys) {
                    by_key.entry(key).or_insert(item);
                }
            }
        }
        Self { keys, by_key }
    }

    /// The old item with the same keys.
    pub(crate) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key_of(item, self.keys)?).copied()
    }
}

/// The old value of a field.
pub(crate) fn old_field<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    old?.as_object()?.get(name)
}

fn key_of(item: &Value, keys: &[String]) -> Option<String> {
    let item = item.as_object()?;
    let mut out = String::new();
    for key in keys {
        match item.get(key) {
            Some(value) => out.push_str(&gofmt::json(value)),
            None => out.push('-'),
        }
        out.push('\n');
    }
    Some(out)
}
