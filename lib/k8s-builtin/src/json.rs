//! Reading and changing JSON objects by path, without ever failing.
//!
//! In: a [`Value`] of any shape. Out: what is there, or nothing. A value of the wrong type reads as absent.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at a dotted path of object fields; `null` if it is not there.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    steps(path).try_fold(value, |value, key| value.get(key)).unwrap_or(&NULL)
}

/// The names of a dotted path. They are short: looking at each byte takes less than the search that long texts are worth.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let path = rest?;
        let dot = path.bytes().position(|byte| byte == b'.');
        rest = dot.and_then(|dot| path.get(dot + 1..));
        dot.map_or(Some(path), |dot| path.get(..dot))
    })
}

/// The text at a path; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The whole number at a path.
pub(crate) fn int(value: &Value, path: &str) -> Option<i64> {
    at(value, path).as_i64()
}

/// Whether the value at a path is `true`.
pub(crate) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).as_bool().unwrap_or_default()
}

/// The items of the list at a path; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The entries of the map at a path; empty if there is none.
pub(crate) fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(value, path).as_object().into_iter().flatten()
}

/// Whether a field is there and not `null`.
pub(crate) fn has(value: &Value, path: &str) -> bool {
    !at(value, path).is_null()
}

/// The value at a dotted path, if every step is there.
pub(crate) fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    if path.is_empty() {
        return Some(value);
    }
    steps(path).try_fold(value, |value, key| value.get_mut(key))
}

/// The items of the list at a path, to change them.
pub(crate) fn list_mut<'a>(value: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    at_mut(value, path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a field of an object unless it is there and not `null`. Does nothing to what is no object.
pub(crate) fn set_default(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), default.into());
    }
}

/// Like [`set_default`], but an empty text also counts as absent, and is never put in.
pub(crate) fn set_default_text(value: &mut Value, key: &str, default: &str) {
    let is_absent =
        text(value, key).is_empty() && value.get(key).is_none_or(|v| v.is_null() || v.is_string());
    if is_absent && !default.is_empty() {
        set(value, key, default);
    }
}

/// Sets a field of an object. Does nothing to what is no object.
pub(crate) fn set(value: &mut Value, key: &str, to: impl Into<Value>) {
    if let Some(map) = value.as_object_mut() {
        map.insert(key.to_owned(), to.into());
    }
}

/// Removes a field of an object.
pub(crate) fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut().and_then(|map| map.remove(key))
}

/// The object in a field, made if it is absent. Nothing if `value` or what is in the field is no object.
pub(crate) fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let field = value.as_object_mut()?.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = Value::Object(Map::new());
    }
    field.is_object().then_some(field)
}

/// Puts the field of `from` into `to`, or removes it there if `from` has none.
pub(crate) fn copy_field(to: &mut Value, from: &Value, key: &str) {
    match from.get(key) {
        Some(field) => set(to, key, field.clone()),
        None => {
            remove(to, key);
        }
    }
}
