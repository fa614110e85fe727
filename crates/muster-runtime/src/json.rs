//! Small pure functions on JSON: the least merge patch between two values, comparison that ignores zero values, and a
//! stable hash.
//!
//! In and out: values. Must stay true: applying `merge_patch(old, new)` to `old` gives `new` (save nulls inside `new`).

use serde_json::{Map, Value};

/// The merge patch that turns `old` into `new`, or `None` when there is nothing to change.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let before = old.get(key).unwrap_or(&Value::Null);
        if let Some(change) = merge_patch(before, value) {
            patch.insert(key.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// True when both say the same once zeros, empty strings and empty collections are left out. The server leaves many
/// of them out of what it answers, and writing them again would never end.
pub fn same_but_zeros(a: &Value, b: &Value) -> bool {
    without_zeros(a) == without_zeros(b)
}

fn without_zeros(value: &Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Number(n) if n.as_i64() == Some(0) => None,
        Value::String(s) if s.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            Some(Value::Array(items.iter().map(|i| without_zeros(i).unwrap_or(Value::Null)).collect()))
        }
        Value::Object(map) => {
            let kept: Map<String, Value> =
                map.iter().filter_map(|(k, v)| without_zeros(v).map(|v| (k.clone(), v))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        other => Some(other.clone()),
    }
}

/// A short name for a value, made of letters that form no words. Equal values have equal names whatever the order of
/// their keys.
pub fn short_hash(value: &Value, salt: i64) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = 0x811c_9dc5_u32;
    let mut write = |bytes: &[u8]| {
        hash = bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    };
    feed(value, &mut write);
    if salt > 0 {
        write(&salt.to_le_bytes());
    }
    hash.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// Writes a value as bytes that do not depend on the order of keys. Values come from JSON that a server has parsed, so they are not deeper
/// than the server allows.
fn feed(value: &Value, write: &mut impl FnMut(&[u8])) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            write(b"{");
            for key in keys {
                write(key.as_bytes());
                write(b":");
                if let Some(value) = map.get(key) {
                    feed(value, write);
                }
            }
            write(b"}");
        }
        Value::Array(items) => {
            write(b"[");
            for item in items {
                feed(item, write);
                write(b",");
            }
            write(b"]");
        }
        scalar => write(scalar.to_string().as_bytes()),
    }
}

/// A stable 64-bit number for a text, for spreading work and for made-up identifiers.
pub fn stable_u64(text: &str) -> u64 {
    fnv_64(EMPTY, text.as_bytes())
}

/// The same for a value, whatever the order of its keys.
pub fn stable_u64_of(value: &Value) -> u64 {
    let mut hash = EMPTY;
    feed(value, &mut |bytes| hash = fnv_64(hash, bytes));
    hash
}

const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv_64(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let map = target.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                map.remove(key);
            } else {
                apply(map.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0i64..3).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn patch_leads_from_old_to_new(old in values(), new in values()) {
            let mut target = old.clone();
            if let Some(patch) = merge_patch(&old, &new) {
                apply(&mut target, &patch);
            }
            prop_assert_eq!(target, new);
        }

        #[test]
        fn hash_is_stable_and_a_label(value in values()) {
            let name = short_hash(&value, 0);
            prop_assert_eq!(&name, &short_hash(&value.clone(), 0));
            prop_assert!(!name.is_empty() && name.len() <= 10);
        }
    }

    #[test]
    fn zeros_do_not_count() {
        assert!(same_but_zeros(&json!({"a": 0, "b": [], "c": {"d": ""}}), &json!({})));
        assert!(!same_but_zeros(&json!({"a": 0}), &json!({"a": 1})));
        assert!(!same_but_zeros(&json!({"a": [0]}), &json!({"a": []})));
    }
}
