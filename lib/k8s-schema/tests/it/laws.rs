//! Laws that hold for every schema and value.

use k8s_schema::{
    Schema, default, duplicate_keys, prune, validate, validate_all, validate_rules, validate_update,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMES: &[&str] = &["a", "b", "c", "metadata", "kind"];

/// Structural schemas with fields of a few names.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..4_i64, 0..4_i64)
            .prop_map(|(min, max)| json!({"type": "string", "minLength": min, "maxLength": max})),
        Just(json!({"type": "string", "default": "x"})),
        Just(json!({"type": "string", "enum": ["x", "y"], "nullable": true})),
        (-3..3_i64).prop_map(|min| json!({"type": "integer", "minimum": min})),
        Just(json!({"type": "integer", "default": 7, "x-kubernetes-validations": [{"rule": "self > 3"}]})),
        Just(json!({"type": "number", "nullable": true, "default": 1.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let fields = prop::collection::btree_map(prop::sample::select(&["a", "b", "c"][..]), inner.clone(), 1..4);
        prop_oneof![
            (fields.clone(), any::<bool>(), prop::sample::subsequence(vec!["a", "b"], 0..2)).prop_map(
                |(fields, keep, required)| {
                    let mut schema = json!({"type": "object", "properties": fields, "required": required});
                    if keep {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    schema
                }
            ),
            fields.prop_map(|fields| json!({"type": "object", "properties": fields, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "maxItems": 3})),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9..9_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[a-zé\u{0}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(NAMES), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn with(field: Value) -> Schema {
    Schema::from_crd(&json!({"type": "object", "properties": {"a": field}}))
        .unwrap_or_else(|e| panic!("{e:?}"))
}

/// Any JSON with schema keywords in it, for the reader.
fn scribble() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(
        &[
            "object", "array", "string", "integer", "map", "set", "atomic", "(", "^a$", "self.a", "self ==",
            "true", "date", ".a",
        ][..],
    );
    let leaf = prop_oneof![
        words.prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        (-2..5_i64).prop_map(Value::from),
        Just(Value::Null),
    ];
    let keys = prop::sample::select(
        &[
            "type",
            "properties",
            "items",
            "additionalProperties",
            "required",
            "enum",
            "default",
            "pattern",
            "minimum",
            "maxItems",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "nullable",
            "format",
            "a",
            "metadata",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
            "x-kubernetes-validations",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            "rule",
            "message",
            "fieldPath",
            "$ref",
        ][..],
    );
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn pruning_twice_finds_nothing_more(field in schema(), inner in value()) {
        let schema = with(field);
        let mut object = json!({"a": inner, "b": 1, "kind": "K"});
        prune(&mut object, &schema);
        let once = object.clone();
        prop_assert_eq!(prune(&mut object, &schema), Vec::<String>::new());
        prop_assert_eq!(object, once);
    }

    #[test]
    fn defaulting_twice_changes_nothing_more(field in schema(), inner in value()) {
        let schema = with(field);
        let mut object = json!({"a": inner});
        default(&mut object, &schema);
        let once = object.clone();
        default(&mut object, &schema);
        prop_assert_eq!(object, once);
    }

    #[test]
    fn defaults_are_never_unknown(field in schema()) {
        let schema = with(field);
        let mut object = json!({});
        default(&mut object, &schema);
        prop_assert_eq!(prune(&mut object, &schema), Vec::<String>::new());
    }

    #[test]
    fn an_unchanged_object_is_never_refused_by_its_schema(field in schema(), inner in value()) {
        let schema = with(field);
        let object = json!({"a": inner});
        prop_assert_eq!(validate_update(&object, &object, &schema), Vec::new());
        let failed = validate_rules(&object, Some(&object), &schema);
        prop_assert!(failed.iter().all(|e| !e.detail.starts_with("failed rule")), "{:?}", failed);
    }

    #[test]
    fn a_valid_object_is_a_valid_update(field in schema(), inner in value(), old in value()) {
        let schema = with(field);
        let object = json!({"a": inner});
        if validate(&object, &schema).is_empty() {
            prop_assert_eq!(validate_update(&object, &json!({"a": old}), &schema), Vec::new());
        }
    }

    #[test]
    fn publishing_and_reading_gives_the_schema_back(field in schema()) {
        let schema = with(field);
        prop_assert!(Schema::from_crd(&schema.to_openapi()).unwrap() == schema);
        prop_assert!(Schema::from_openapi(&schema.to_openapi()).unwrap() == schema);
    }

    #[test]
    fn nothing_panics(json in scribble(), object in value(), old in value()) {
        if let Ok(schema) = Schema::from_openapi(&json) {
            let mut pruned = object.clone();
            prune(&mut pruned, &schema);
            default(&mut pruned, &schema);
            let _ = validate_all(&object, Some(&old), &schema);
            let _ = validate_all(&object, None, &schema);
        }
        if let Err(errors) = Schema::from_crd(&json) {
            prop_assert!(!errors.is_empty());
            let _ = k8s_schema::aggregate(&errors);
        }
    }

    #[test]
    fn what_a_map_wrote_has_no_duplicates(object in value()) {
        prop_assert_eq!(duplicate_keys(object.to_string().as_bytes()).unwrap(), Vec::<String>::new());
    }
}
