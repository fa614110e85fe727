//! Any schema of a CRD and any object. In: one JSON text per line: the schema, the object. Laws: pruning and defaulting twice is doing it once.
#![no_main]

use k8s_schema::{Schema, default, duplicate_keys, prune, validate_all};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Some((schema, text)) = text.split_once('\n') else { return };
    let _ = duplicate_keys(text.as_bytes());
    let (Ok(schema), Ok(object)) = (serde_json::from_str::<Value>(schema), serde_json::from_str::<Value>(text)) else {
        return;
    };
    let Ok(schema) = Schema::from_crd(&schema) else { return };
    let mut once = object.clone();
    prune(&mut once, &schema);
    let mut twice = once.clone();
    assert!(prune(&mut twice, &schema).is_empty(), "pruned twice");
    default(&mut once, &schema);
    let mut twice = once.clone();
    default(&mut twice, &schema);
    assert_eq!(once, twice, "defaulted twice");
    let _ = validate_all(&once, Some(&object), &schema);
    let _ = schema.to_openapi();
});
