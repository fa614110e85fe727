//! Any text as a selector of labels and of fields: what is read can be asked about any object.
#![no_main]

use muster_apiserver::selector::{Labels, parse_fields, parse_labels};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let value = |key: &str| (key.len() % 2 == 0).then_some("value");
    if let Ok(labels) = parse_labels(text) {
        labels.matches(value);
    }
    if let Ok(fields) = parse_fields(text) {
        fields.matches(value);
    }
    if let Ok(object) = serde_json::from_str::<Value>(text) {
        let _ = Labels::from_object(&object);
    }
});
