//! JSON patch, RFC 6902, as the API server has it.
//!
//! In: an object and operations. Out: the object changed, or a refusal. It is laxer than the RFC: a member that is not there is replaced and copied like
//! one that is null, and an index may count from the end. Must stay true: a patch copies no more than [`MAX_COPIED`] bytes, however often it copies the
//! whole into itself.

use serde_json::{Map, Value};

/// How much a patch may copy, in bytes of JSON.
const MAX_COPIED: usize = 3 << 20;

/// An operation that cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {at} of the patch does not apply")]
pub struct JsonPatchError {
    /// Which one, counted from 0.
    pub at: usize,
}

/// Does the operations one after the other. The object is of no use if one fails.
///
/// # Errors
/// When an operation makes no sense, or not here.
pub fn json_patch(object: &mut Value, operations: &[Map<String, Value>]) -> Result<(), JsonPatchError> {
    let mut copied = 0;
    for (at, operation) in operations.iter().enumerate() {
        perform(object, operation, &mut copied).ok_or(JsonPatchError { at })?;
    }
    Ok(())
}

fn perform(object: &mut Value, operation: &Map<String, Value>, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name)?.as_str();
    let value = || operation.get("value").cloned().unwrap_or_default();
    let path = text("path");
    match text("op")? {
        "add" => add(object, path?, value()),
        "remove" => remove(object, path?),
        "replace" if path?.is_empty() => {
            let value = value();
            (value.is_object() || value.is_array()).then(|| *object = value)
        }
        "replace" => {
            let (container, key) = find(object, path?)?;
            match container {
                Value::Object(members) => {
                    members.insert(key, value());
                }
                Value::Array(items) => {
                    let at = index(&key, items.len()).filter(|at| *at < items.len())?;
                    *items.get_mut(at)? = value();
                }
                _ => return None,
            }
            Some(())
        }
        "move" => {
            let from = text("from")?;
            let value = look(object, from)?;
            remove(object, from)?;
            add(object, path?, value)
        }
        "copy" => {
            let value = look(object, text("from")?)?;
            *copied += value.to_string().len();
            if *copied > MAX_COPIED {
                return None;
            }
            add(object, path?, value)
        }
        "test" => {
            let path = path?;
            let found = if path.is_empty() { object.clone() } else { look(object, path)? };
            (found == value()).then_some(())
        }
        _ => None,
    }
}

/// What holds the last step of a path, and that step.
fn find<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps: Vec<String> =
        path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop()?;
    let mut at = object;
    for step in steps {
        at = match at {
            Value::Object(members) => members.get_mut(&step)?,
            Value::Array(items) => {
                let n = index(&step, items.len())?;
                items.get_mut(n)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then_some((at, last))
}

/// A place in a list of `len`, maybe counted from its end.
fn index(step: &str, len: usize) -> Option<usize> {
    let at: i64 = step.parse().ok()?;
    if at >= 0 { usize::try_from(at).ok() } else { len.checked_sub(usize::try_from(at.checked_neg()?).ok()?) }
}

/// The value at a path; null for a member that is not there.
fn look(object: &mut Value, path: &str) -> Option<Value> {
    let (container, key) = find(object, path)?;
    match container {
        Value::Object(members) => Some(members.get(&key).cloned().unwrap_or_default()),
        Value::Array(items) => items.get(index(&key, items.len())?).cloned(),
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (container, key) = find(object, path)?;
    match container {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1).filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<()> {
    let (container, key) = find(object, path)?;
    match container {
        Value::Object(members) => members.remove(&key).map(|_| ()),
        Value::Array(items) => {
            let at = index(&key, items.len()).filter(|at| *at < items.len())?;
            items.remove(at);
            Some(())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(operations: Value, expected: Option<Value>) {
        let mut object = json!({"a": {"b": 1, "x/y~z": 2}, "l": [1, 2, 3], "n": null});
        let operations: Vec<Map<String, Value>> = serde_json::from_value(operations).unwrap();
        let done = json_patch(&mut object, &operations);
        assert_eq!(done.ok().map(|()| object), expected);
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Option<Value> {
        let mut object = json!({"a": {"b": 1, "x/y~z": 2}, "l": [1, 2, 3], "n": null});
        change(&mut object);
        Some(object)
    }

    #[test]
    fn operations() {
        check(json!([]), changed(|_| {}));
        check(json!([{"op": "add", "path": "/a/c", "value": 3}]), changed(|o| o["a"]["c"] = 3.into()));
        check(json!([{"op": "add", "path": "/l/-", "value": 4}]), changed(|o| o["l"] = json!([1, 2, 3, 4])));
        check(json!([{"op": "add", "path": "/l/1", "value": 4}]), changed(|o| o["l"] = json!([1, 4, 2, 3])));
        check(json!([{"op": "add", "path": "/l/-1", "value": 4}]), changed(|o| o["l"] = json!([1, 2, 3, 4])));
        check(json!([{"op": "add", "path": "/l/4", "value": 4}]), None);
        check(json!([{"op": "add", "path": "/no/where", "value": 4}]), None);
        check(json!([{"op": "remove", "path": "/a/x~1y~0z"}]), changed(|o| o["a"] = json!({"b": 1})));
        check(json!([{"op": "remove", "path": "/l/-1"}]), changed(|o| o["l"] = json!([1, 2])));
        check(json!([{"op": "remove", "path": "/none"}]), None);
        // What is not there is replaced all the same, and copied as null.
        check(json!([{"op": "replace", "path": "/none", "value": 1}]), changed(|o| o["none"] = 1.into()));
        check(json!([{"op": "replace", "path": "/l/3", "value": 1}]), None);
        check(json!([{"op": "copy", "from": "/none", "path": "/m"}]), changed(|o| o["m"] = Value::Null));
        check(json!([{"op": "move", "from": "/none", "path": "/m"}]), None);
        check(json!([{"op": "move", "from": "/a/b", "path": "/m"}]), {
            let moved = json!({"a": {"x/y~z": 2}, "l": [1, 2, 3], "n": null, "m": 1});
            Some(moved)
        });
        check(json!([{"op": "test", "path": "/none"}]), changed(|_| {}));
        check(json!([{"op": "test", "path": "/a/b", "value": 1}]), changed(|_| {}));
        check(json!([{"op": "test", "path": "/a/b", "value": 2}]), None);
        check(json!([{"op": "replace", "path": "", "value": {"z": 1}}]), Some(json!({"z": 1})));
        check(json!([{"op": "nothing", "path": "/a"}]), None);
        check(json!([{"path": "/a"}]), None);
    }

    #[test]
    fn copying_into_itself_ends() {
        let copy = |to: &str| json!({"op": "copy", "from": "/a", "path": format!("/a/{to}")});
        let twice = [copy("b"), copy("c")];
        let operations: Vec<Map<String, Value>> =
            serde_json::from_value(Value::Array(twice.iter().cycle().take(64).cloned().collect())).unwrap();
        let mut object = json!({"a": {"text": "x".repeat(100)}});
        assert!(json_patch(&mut object, &operations).is_err());
    }
}
