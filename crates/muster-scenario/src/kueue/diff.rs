//! What came out against what is expected.
//!
//! Objects of which the document names some fields must have these; maps whose keys are names (of workloads, flavors, domains) must have the same
//! keys. Quantities are compared as amounts, lists of keys in any order.

use serde_json::{Map, Value};

/// Fields whose values are words or remarks.
const WORDS: &[&str] = &["conditions", "events", "usageNote"];

pub(super) fn differences(op: &str, expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let Value::Object(expected) = expected else { return vec!["expect: write a mapping".into()] };
    for (key, expected) in expected {
        if WORDS.contains(&key.as_str()) {
            continue;
        }
        let actual = actual.get(key).unwrap_or(&Value::Null);
        compare(op, key, key, expected, actual, &mut found);
    }
    found
}

/// What the conditions say, for those who want to know whether the words are the same too.
pub(super) fn conditions(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if expected.get("conditions").is_none() {
        return found;
    }
    let none = Value::Null;
    compare(
        "schedule",
        "conditions",
        "conditions",
        expected.get("conditions").unwrap_or(&none),
        actual.get("conditions").unwrap_or(&none),
        &mut found,
    );
    found
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Maps by name: nothing may be missing, and nothing may be added.
fn is_named(key: &str) -> bool {
    matches!(
        key,
        "admitted"
            | "reassigned"
            | "preempted"
            | "evicted"
            | "finished"
            | "queues"
            | "flavors"
            | "resourceUsage"
            | "requests"
            | "usage"
            | "reserved"
            | "conditions"
    )
}

fn amount(resource: &str, value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => {
            Some(muster_translate::kueue::amount(resource, text.parse::<k8s_quantity::Quantity>().ok()?))
        }
        _ => None,
    }
}

/// Usage that is nothing is the same as none.
fn without_zeros(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter_map(|(key, value)| match value {
            Value::Object(inner) => {
                let inner = without_zeros(inner);
                (!inner.is_empty()).then(|| (key.clone(), Value::Object(inner)))
            }
            Value::Number(n) if n.as_i64() == Some(0) => None,
            other => Some((key.clone(), other.clone())),
        })
        .collect()
}

fn compare(op: &str, path: &str, key: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    if is_empty(expected) && is_empty(actual) {
        return;
    }
    match (expected, actual) {
        (Value::Object(e), Value::Object(a))
            if key == "usage" && matches!(op, "assignFlavors" | "quotaTree") =>
        {
            let (e, a) = (without_zeros(e), without_zeros(a));
            if e != a {
                found.push(format!(
                    "{path}: expected {}, got {}",
                    Value::Object(e.clone()),
                    Value::Object(a.clone())
                ));
            }
        }
        (Value::Object(e), Value::Object(a)) if matches!(key, "requests" | "resourceUsage") => {
            let read = |map: &Map<String, Value>| -> Vec<(String, Option<i64>)> {
                map.iter().map(|(k, v)| (k.clone(), v.as_i64().or_else(|| amount(k, v)))).collect()
            };
            if read(e) != read(a) {
                found.push(format!("{path}: expected {expected}, got {actual}"));
            }
        }
        (Value::Object(e), Value::Object(a)) => {
            if is_named(key) || op == "tasAssign" {
                for extra in a.keys().filter(|k| !e.contains_key(*k) && !is_empty(&a[*k])) {
                    found.push(format!("{path}.{extra}: not expected, got {}", a[extra]));
                }
            }
            for (k, e) in e {
                if is_named(key) && !a.contains_key(k) {
                    found.push(format!("{path}.{k}: expected {e}, got nothing"));
                    continue;
                }
                compare(op, &format!("{path}.{k}"), k, e, a.get(k).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(e), Value::Array(a)) => {
            let keys = matches!(
                key,
                "pending"
                    | "inadmissible"
                    | "workloads"
                    | "admittedAfterFirstCycle"
                    | "preemptedAfterFirstCycle"
                    | "reasons"
                    | "inactiveClusterQueues"
            );
            if keys {
                let sorted = |list: &[Value]| {
                    let mut texts: Vec<String> = list.iter().map(ToString::to_string).collect();
                    texts.sort();
                    texts
                };
                if sorted(e) != sorted(a) {
                    found.push(format!("{path}: expected {expected}, got {actual}"));
                }
            } else if e.len() != a.len() || key == "order" {
                if e != a {
                    found.push(format!("{path}: expected {expected}, got {actual}"));
                }
            } else {
                for (i, (e, a)) in e.iter().zip(a).enumerate() {
                    compare(op, &format!("{path}[{i}]"), key, e, a, found);
                }
            }
        }
        (e, a) if e == a => {}
        _ => found.push(format!("{path}: expected {expected}, got {actual}")),
    }
}
