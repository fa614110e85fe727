//! Reading and writing `metadata` on untyped objects. Total functions: an object of any shape gives an answer.

use serde_json::{Map, Value};

/// A string inside `metadata`; empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Whether deletion has begun.
pub fn terminating(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<String> {
    strings(object.get("metadata").and_then(|m| m.get("finalizers")))
}

/// The strings of a list; anything else in it is passed over.
pub fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_string))
        .collect()
}

/// `metadata` for writing; made if absent. An object that is no JSON object becomes one.
pub fn edit(object: &mut Value) -> &mut Map<String, Value> {
    member(object, "metadata")
}

/// The member of that name as a JSON object for writing; made if absent or of another type.
pub fn member<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let map = object.as_object_mut().expect("it was made an object above");
    let slot = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("it was made an object above")
}

/// Sets or, when empty, removes `metadata.finalizers`.
pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        edit(object).remove("finalizers");
    } else {
        edit(object).insert("finalizers".into(), finalizers.into());
    }
}

/// Walks `a.b.c`.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|s| !s.is_empty()).try_fold(object, |v, step| v.get(step))
}

/// A string at `a.b.c`; empty when absent.
pub fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Sets the value at `a.b.c`, making the objects on the way.
pub fn set_at(object: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            if !object.is_object() {
                *object = Value::Object(Map::new());
            }
            if let Some(map) = object.as_object_mut() {
                map.insert(path.into(), value);
            }
        }
        Some((head, rest)) => {
            if !object.is_object() {
                *object = Value::Object(Map::new());
            }
            if let Some(map) = object.as_object_mut() {
                set_at(map.entry(head).or_insert(Value::Null), rest, value);
            }
        }
    }
}
