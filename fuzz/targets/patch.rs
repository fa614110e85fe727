//! Any object and any patch of each kind. In: one JSON text per line: the object, the patch. Laws: a merge patch twice is a merge patch once; what
//! one manager applied, it may apply again without a conflict and without a change, if anybody owns anything: what nobody owns is taken over when the
//! next one applies, and an empty list is nobody's.
#![no_main]

use k8s_merge::apply::{self, FieldSet, Request};
use k8s_merge::{OpenApi, json_patch, merge_patch, strategic_merge};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Lists by key, lists as sets, objects that are replaced whole, and numbers.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let named = |strategy: &str| {
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-patch-strategy": strategy, "x-kubernetes-patch-merge-key": "name",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
        })
    };
    json!({"type": "object", "properties": {
        "a": named("merge"),
        "b": named("merge,retainKeys"),
        "c": {"type": "array", "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge", "items": {"type": "string"}},
        "d": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "e": {"type": "integer"},
        "f": {"type": "object", "properties": {"a": named("merge"), "g": {"type": "string"}}},
    }})
});

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Some((object, patch)) = text.split_once('\n') else { return };
    let (Ok(object), Ok(patch)) = (serde_json::from_str::<Value>(object), serde_json::from_str::<Value>(patch)) else {
        return;
    };

    let mut once = object.clone();
    merge_patch(&mut once, &patch);
    let mut twice = once.clone();
    merge_patch(&mut twice, &patch);
    assert_eq!(once, twice, "a merge patch twice");

    let _ = strategic_merge(&mut object.clone(), &patch, OpenApi(&SCHEMA));

    if let Ok(operations) = serde_json::from_value::<Vec<Map<String, Value>>>(patch.clone()) {
        let _ = json_patch(&mut object.clone(), &operations);
    }

    let request = Request {
        manager: "fuzz",
        api_version: "v1",
        subresource: None,
        now: "2026-01-01T00:00:00Z",
        force: false,
        ignored: FieldSet::EMPTY,
    };
    if let Ok(live) = apply::apply(Some(&object), &patch, OpenApi(&SCHEMA), &request)
        && live.pointer("/metadata/managedFields").is_some()
    {
        let again = apply::apply(Some(&live), &patch, OpenApi(&SCHEMA), &request);
        assert_eq!(again.as_ref(), Ok(&live), "applied again");
    }
});
