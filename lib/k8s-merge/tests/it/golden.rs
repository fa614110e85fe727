//! Cases whose results were recorded from the reference implementation: structured-merge-diff and the field manager of
//! Kubernetes 1.36 for apply, its `strategicpatch` for patches.

use crate::{json, schema};
use k8s_merge::apply::{FieldSet, Request, apply, update};
use k8s_merge::{OpenApi, strategic_merge};
use serde_json::Value;

#[test]
fn sequences_of_writes() {
    replay(include_str!("golden/apply.jsonl"));
    replay(include_str!("golden/kubernetes.jsonl"));
}

fn replay(cases: &str) {
    for (at, case) in cases.lines().map(json).enumerate() {
        let kind = case["kind"].as_str().unwrap();
        let version = case["ops"][0]["object"]["apiVersion"].as_str().unwrap();
        let shape = OpenApi(schema(kind));
        let mut live = serde_json::json!({"apiVersion": version, "kind": kind});
        let steps = case["ops"].as_array().unwrap().iter().zip(case["results"].as_array().unwrap());
        for (i, (op, expected)) in steps.enumerate() {
            let now = format!("2026-01-01T00:00:{i:02}Z");
            let ignored =
                op.get("ignored").map(|fields| FieldSet::parse(fields).unwrap()).unwrap_or_default();
            let request = Request {
                manager: op["manager"].as_str().unwrap(),
                api_version: version,
                subresource: op["subresource"].as_str(),
                now: &now,
                force: op["force"] == true,
                ignored: &ignored,
            };
            if op["op"] == "update" {
                live = update(Some(&live), op["object"].clone(), shape, &request);
                assert_eq!(without_blank_metadata(&live), expected["object"], "case {at}, step {i}");
                continue;
            }
            match apply(Some(&live), &op["object"], shape, &request) {
                Ok(merged) => {
                    assert_eq!(merged, expected["object"], "case {at}, step {i}");
                    live = merged;
                }
                Err(error) => {
                    assert_eq!(
                        sorted(&error.to_string()),
                        sorted(expected["error"].as_str().unwrap()),
                        "case {at}, step {i}"
                    );
                }
            }
        }
    }
}

/// The recorded messages list problems and managers in no order.
fn sorted(message: &str) -> Vec<&str> {
    let mut lines: Vec<_> = message.lines().collect();
    lines.sort_unstable();
    lines
}

/// Dropping the record of an object leaves its metadata behind in our form, but not in the recorded one.
fn without_blank_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    if object["metadata"].as_object().is_some_and(serde_json::Map::is_empty) {
        object.as_object_mut().unwrap().remove("metadata");
    }
    object
}

#[test]
fn strategic_patches() {
    for (at, case) in include_str!("golden/strategic.jsonl").lines().map(json).enumerate() {
        let shape = OpenApi(schema(case["kind"].as_str().unwrap()));
        let mut value = case["original"].clone();
        let result = strategic_merge(&mut value, &case["patch"], shape);
        match case["result"]["error"].as_str() {
            Some(message) => assert_eq!(result.unwrap_err().to_string(), message, "case {at}"),
            None => {
                assert_eq!(result, Ok(()), "case {at}");
                assert_eq!(value, case["result"]["object"], "case {at}");
            }
        }
    }
}
