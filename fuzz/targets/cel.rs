//! Any text as a CEL expression over an object. It ends within its budget.
#![no_main]

use k8s_schema::condition;
use serde_json::{Value, json};
use std::sync::LazyLock;

static POD: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "metadata": {"name": "a", "labels": {"app": "web"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}], "n": 3, "x": 1.5, "on": true},
    })
});

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = condition(text, &[("object", &*POD), ("oldObject", &Value::Null)]);
});
