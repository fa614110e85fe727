//! Makes the answers of two servers comparable.
//!
//! In: JSON that a server answered. Out: the same with everything replaced that must differ between two runs: uids,
//! resource versions, times, generated names, addresses, ages, continue tokens and the name of the run's namespace.
//! Invariant: two runs on one server come out equal; and nothing else is touched, since what is hidden here is not tested.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

/// The field managers that requests of the table name; the first is their user agent.
const MANAGERS: [&str; 5] = ["muster-e2e", "alice", "bob", "carol", "dave"];

/// `value` without what two runs cannot share. `run` is the namespace of the run.
pub fn normal(value: &Value, run: &str) -> Value {
    match value {
        Value::String(text) => Value::String(normal_text(text, run)),
        Value::Array(items) => Value::Array(items.iter().map(|item| normal(item, run)).collect()),
        Value::Object(object) => Value::Object(normal_object(object, run)),
        other => other.clone(),
    }
}

/// The differences between two values, one line each: where, what the one has, what the other has.
pub fn differences(left: &Value, right: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", left, right, &mut found);
    found
}

fn normal_object(object: &Map<String, Value>, run: &str) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in object {
        let value = match (key.as_str(), value) {
            ("resourceVersion", Value::String(v)) if !v.is_empty() => "<version>".into(),
            ("continue", Value::String(v)) if !v.is_empty() => "<continue>".into(),
            ("managedFields", Value::Array(entries)) => sorted_entries(entries, run),
            ("name", Value::String(name)) => match object.get("generateName").and_then(Value::as_str) {
                Some(prefix) if name.len() == prefix.len() + 5 && name.starts_with(prefix) => {
                    format!("{}<generated>", normal_text(prefix, run)).into()
                }
                _ => normal_text(name, run).into(),
            },
            _ => normal(value, run),
        };
        out.insert(normal_text(key, run), value);
    }
    if out.get("managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        out.remove("managedFields");
    }
    match object.get("kind").and_then(Value::as_str) {
        Some("Table") => normal_table(&mut out),
        Some("Status") => sort_causes(&mut out),
        Some("APIResourceList") => hide_hashes_of_the_run(&mut out),
        _ => {}
    }
    out
}

/// A text that two runs cannot share. Most texts have none; a look for the part that is always there, in one that is long enough, finds most of them
/// without the pattern, which is slow.
struct Accident {
    shortest: usize,
    always: &'static str,
    pattern: Regex,
    to: &'static str,
}

fn normal_text(text: &str, run: &str) -> String {
    static ACCIDENTS: LazyLock<Vec<Accident>> = LazyLock::new(|| {
        [
            (36, "-", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
            (20, "-", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
            (21, "kube-api", r"kube-api-access-[a-z0-9]{5}\b", "kube-api-access-<generated>"),
            // The end is a hash over the pod template as Go prints it.
            (15, "ReplicaSet", r#"(ReplicaSet "[a-z]+-)[a-z0-9]+"#, "${1}<hash>"),
            (11, "127.0.0.1", r"^127\.0\.0\.1:\d+$", "<server>"),
            (8, "10.", r"^10\.\d+\.\d+\.\d+$", "<address>"),
            (18, "resource version", r"(resource version: \d+, current: )\d+", "${1}<version>"),
            (
                19,
                "ResourceVersion",
                r"(the ResourceVersion in (?:record|the precondition) \()\d+",
                "${1}<version>",
            ),
            // A field that may not change is repeated as the Go value that it is inside the server; so is what a pod may not change.
            (
                19,
                "field is immutable",
                r"(?s)Invalid value: \{.*?\}: field is immutable",
                "Invalid value: <object>: field is immutable",
            ),
            (
                19,
                "pod updates",
                r"(?s)(pod updates may not change fields other than [^\n]*)\n.*",
                "${1}\n<changes>",
            ),
            // A refused patch repeats the whole object in no particular order.
            (15, "Invalid value", r#"(?s)Invalid value: "\{.*\}": "#, r#"Invalid value: "<object>": "#),
            // Of several things that are wrong with what is applied, the order of a map decides which are found.
            (
                19,
                "field not declared",
                r"(?s)(failed to create typed patch object \([^)]*\)): .*field not declared in schema.*",
                "${1}: <undeclared field>",
            ),
        ]
        .into_iter()
        .filter_map(|(shortest, always, pattern, to)| {
            Some(Accident { shortest, always, pattern: Regex::new(pattern).ok()?, to })
        })
        .collect()
    });
    let mut text = text.replace(run, "<run>");
    for Accident { shortest, always, pattern, to } in ACCIDENTS.iter() {
        if text.len() >= *shortest && text.contains(always) && pattern.is_match(&text) {
            text = pattern.replace_all(&text, *to).into_owned();
        }
    }
    // What does not fit a type is found in the order of a map.
    if let Some((head, errors)) = text.split_once("): errors:\n")
        && head.starts_with("failed to create typed patch object")
    {
        let mut errors: Vec<&str> = errors.lines().collect();
        errors.sort_unstable();
        text = format!("{head}): errors:\n{}", errors.join("\n"));
    }
    text
}

/// Servers order the entries by time, in whole seconds, so their order depends on how fast the run was.
/// What the servers' own controllers are called is no part of the interface, so only the requests' managers are compared.
fn sorted_entries(entries: &[Value], run: &str) -> Value {
    let of_a_request =
        |entry: &&Value| entry["manager"].as_str().is_some_and(|name| MANAGERS.contains(&name));
    let mut entries: Vec<Value> =
        entries.iter().filter(of_a_request).map(|entry| normal(entry, run)).collect();
    entries.sort_by_key(|entry| {
        ["manager", "operation", "subresource", "apiVersion"]
            .map(|key| entry[key].as_str().unwrap_or("").to_owned())
    });
    Value::Array(entries)
}

/// Hides the cells of the column `Age` and what the columns are said to mean: those are sentences of Kubernetes' own
/// documentation. No rows and a list of no rows are the same to every reader.
fn normal_table(table: &mut Map<String, Value>) {
    let mut age = None;
    let columns = table.get_mut("columnDefinitions").and_then(Value::as_array_mut);
    for (n, column) in columns.into_iter().flatten().enumerate() {
        if column["name"] == "Age" {
            age = Some(n);
        }
        if let Some(description) = column.get_mut("description") {
            *description = "<description>".into();
        }
    }
    let rows = table.entry("rows").or_insert(Value::Null);
    if rows.is_null() {
        *rows = Value::Array(Vec::new());
    }
    for row in rows.as_array_mut().into_iter().flatten() {
        if let Some(cell) = age.and_then(|age| row.get_mut("cells")?.get_mut(age)) {
            *cell = "<age>".into();
        }
    }
}

/// The schema validation of custom resources finds its causes in a random order, and the message joins them in that order.
fn sort_causes(status: &mut Map<String, Value>) {
    let causes =
        status.get_mut("details").and_then(|details| details.get_mut("causes")).and_then(Value::as_array_mut);
    let Some(causes) = causes else { return };
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or("").to_owned();
    causes.sort_by_key(|cause| ["field", "message", "reason"].map(|key| text(cause, key)));
    // Kubernetes checks some fields more than once, and names what it finds as often.
    causes.dedup();
    if causes.len() == 1 {
        return;
    }
    let mut said: Vec<String> =
        causes.iter().map(|c| format!("{}: {}", text(c, "field"), text(c, "message"))).collect();
    // The longest first, since one may be a part of another.
    said.sort_by_key(|cause| std::cmp::Reverse(cause.len()));
    if let Some(Value::String(message)) = status.get_mut("message") {
        for cause in said {
            *message = message.replacen(&cause, "<cause>", 1);
        }
    }
}

/// The hash of a resource's storage version is made of its group, which names the run.
fn hide_hashes_of_the_run(list: &mut Map<String, Value>) {
    let of_the_run =
        list.get("groupVersion").and_then(Value::as_str).is_some_and(|group| group.contains("<run>"));
    let Some(resources) = list.get_mut("resources").and_then(Value::as_array_mut).filter(|_| of_the_run)
    else {
        return;
    };
    for resource in resources {
        if let Some(hash) = resource.get_mut("storageVersionHash") {
            *hash = "<hash>".into();
        }
    }
}

fn compare(at: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) => {
            let mut keys: Vec<&String> = l.keys().chain(r.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (l.get(key), r.get(key)) {
                    (Some(l), Some(r)) => compare(&at, l, r, found),
                    (Some(l), None) => found.push(format!("{at}: {} | absent", short(l))),
                    (None, Some(r)) => found.push(format!("{at}: absent | {}", short(r))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(l), Value::Array(r)) => match (by_name(l), by_name(r)) {
            // Items with names are told apart by them: one more or less must not make all that follow look different.
            (Some(left), Some(right)) => {
                let order = |items: &[Value], others: &Map<String, Value>| -> Vec<String> {
                    let names = items.iter().filter_map(|item| item["name"].as_str());
                    names.filter(|name| others.contains_key(*name)).map(str::to_owned).collect()
                };
                let (l, r) = (order(l, &right), order(r, &left));
                if l != r {
                    found.push(format!("{at}: in the order {} | {}", l.join(" "), r.join(" ")));
                }
                compare(at, &Value::Object(left), &Value::Object(right), found);
            }
            _ => {
                if l.len() != r.len() {
                    found.push(format!("{at}: {} items | {} items", l.len(), r.len()));
                }
                for n in 0..l.len().max(r.len()) {
                    let at = format!("{at}/{n}");
                    match (l.get(n), r.get(n)) {
                        (Some(l), Some(r)) => compare(&at, l, r, found),
                        (Some(l), None) => found.push(format!("{at}: {} | absent", short(l))),
                        (None, Some(r)) => found.push(format!("{at}: absent | {}", short(r))),
                        (None, None) => {}
                    }
                }
            }
        },
        (l, r) if l != r => found.push(format!("{at}: {} | {}", short(l), short(r))),
        _ => {}
    }
}

/// The items of a list by their names, if each has one of its own.
fn by_name(items: &[Value]) -> Option<Map<String, Value>> {
    let mut named = Map::new();
    for item in items {
        named.insert(item.get("name")?.as_str()?.to_owned(), item.clone());
    }
    (named.len() == items.len() && !items.is_empty()).then_some(named)
}

/// Long values are cut: a difference is read by a person.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(&text)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(input: Value, expected: Value) {
        assert_eq!(normal(&input, "run-7"), expected);
    }

    #[test]
    fn hides_what_two_runs_cannot_share() {
        check(json!({"resourceVersion": "12"}), json!({"resourceVersion": "<version>"}));
        check(json!({"resourceVersion": ""}), json!({"resourceVersion": ""}));
        check(json!({"uid": "0f0e0d0c-0001-0002-0003-0123456789ab"}), json!({"uid": "<uid>"}));
        check(
            json!({"f:k:{\"uid\":\"0f0e0d0c-0001-0002-0003-0123456789ab\"}": {}}),
            json!({"f:k:{\"uid\":\"<uid>\"}": {}}),
        );
        check(json!("2026-01-02T03:04:05Z"), json!("<time>"));
        check(json!("2026-01-02T03:04:05.123456Z"), json!("<time>"));
        check(json!("namespaces \"run-7\" not found"), json!("namespaces \"<run>\" not found"));
        check(
            json!({"generateName": "a-", "name": "a-x1y2z"}),
            json!({"generateName": "a-", "name": "a-<generated>"}),
        );
        check(json!({"generateName": "a-", "name": "b"}), json!({"generateName": "a-", "name": "b"}));
        check(json!({"clusterIPs": ["10.0.3.4"]}), json!({"clusterIPs": ["<address>"]}));
        check(json!({"clusterIP": "None"}), json!({"clusterIP": "None"}));
    }

    #[test]
    fn orders_managers_by_name() {
        check(
            json!({"managedFields": [{"manager": "bob"}, {"manager": "scheduler"}, {"manager": "alice", "operation": "Update"}]}),
            json!({"managedFields": [{"manager": "alice", "operation": "Update"}, {"manager": "bob"}]}),
        );
    }

    #[test]
    fn hides_only_the_age_of_a_row() {
        check(json!({"kind": "Table", "rows": null}), json!({"kind": "Table", "rows": []}));
        let table = |age: &str, description: &str| {
            let columns = json!([{"name": "Name", "description": description}, {"name": "Age"}]);
            json!({"kind": "Table", "columnDefinitions": columns, "rows": [{"cells": ["a", age]}]})
        };
        check(table("3s", "its name"), table("<age>", "<description>"));
    }

    #[test]
    fn orders_the_causes_of_a_refusal() {
        let status = |message: &str, fields: [&str; 2]| {
            let causes = fields.map(|field| json!({"field": field, "message": "Required value"}));
            json!({"kind": "Status", "message": message, "details": {"causes": causes}})
        };
        check(
            status("W is invalid: [b: Required value, a: Required value]", ["b", "a"]),
            status("W is invalid: [<cause>, <cause>]", ["a", "b"]),
        );
    }

    #[test]
    fn says_where_two_values_differ() {
        let left = json!({"a": [1, 2], "b/c": "x", "same": true});
        let right = json!({"a": [1], "b/c": "y", "same": true, "new": {}});
        assert_eq!(
            differences(&left, &right),
            ["/a: 2 items | 1 items", "/a/1: 2 | absent", "/b~1c: \"x\" | \"y\"", "/new: absent | {}"]
        );
        assert_eq!(differences(&left, &left), [""; 0]);
        let list =
            |names: &[&str]| json!(names.iter().map(|n| json!({"name": n, "x": 1})).collect::<Vec<_>>());
        assert_eq!(differences(&list(&["a", "b"]), &list(&["b"])), ["/a: {\"name\":\"a\",\"x\":1} | absent"]);
        assert_eq!(differences(&list(&["a", "b"]), &list(&["b", "a"])), [": in the order a b | b a"]);
    }
}
