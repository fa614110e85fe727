//! The values that callers hold: errors, and the shape that merging asks for.

use std::sync::Arc;

use k8s_merge::{Kind, ListMerge, Shape};
use k8s_schema::{
    Additional, FieldError, ListType, Pattern, Rule, Schema, Type, aggregate, default, prune, validate,
    validate_all, validate_beyond, validate_rules,
};
use serde_json::{Value, json};

#[track_caller]
fn check(error: FieldError, text: &str, reason: &str) {
    assert_eq!(error.to_string(), text);
    assert_eq!(error.reason(), reason);
    let body = text.split_once(": ").unwrap().1;
    assert_eq!(error.to_cause(), json!({"reason": reason, "message": body, "field": error.field}));
}

#[test]
fn errors_have_the_words_of_apimachinery() {
    check(FieldError::invalid("a", "x", "bad"), "a: Invalid value: \"x\": bad", "FieldValueInvalid");
    check(FieldError::invalid("a", 1.5, ""), "a: Invalid value: 1.5", "FieldValueInvalid");
    check(FieldError::invalid("a", 2_000_000.0, ""), "a: Invalid value: 2e+06", "FieldValueInvalid");
    check(
        FieldError::invalid("a", json!({"b": "<"}), ""),
        "a: Invalid value: {\"b\":\"\\u003c\"}",
        "FieldValueInvalid",
    );
    check(FieldError::invalid("a", Value::Null, ""), "a: Invalid value: null", "FieldValueInvalid");
    check(
        FieldError::invalid("a", "\u{7}\u{200b}é", ""),
        "a: Invalid value: \"\\a\\u200bé\"",
        "FieldValueInvalid",
    );
    check(FieldError::required("a.b", "why"), "a.b: Required value: why", "FieldValueRequired");
    check(FieldError::required("a.b", ""), "a.b: Required value", "FieldValueRequired");
    check(FieldError::duplicate("a[1]", "x"), "a[1]: Duplicate value: \"x\"", "FieldValueDuplicate");
    check(FieldError::forbidden("a", "no"), "a: Forbidden: no", "FieldValueForbidden");
    check(FieldError::not_found("a", "x"), "a: Not found: \"x\"", "FieldValueNotFound");
    check(
        FieldError::not_supported("a", "x", ["A", "B"]),
        "a: Unsupported value: \"x\": supported values: \"A\", \"B\"",
        "FieldValueNotSupported",
    );
    check(FieldError::too_long("a", 63), "a: Too long: may not be more than 63 bytes", "FieldValueTooLong");
    check(FieldError::too_long("a", 1), "a: Too long: may not be more than 1 byte", "FieldValueTooLong");
    check(FieldError::too_many("a", 5, 3), "a: Too many: 5: must have at most 3 items", "FieldValueTooMany");
    check(FieldError::too_many("a", 5, 1), "a: Too many: 5: must have at most 1 item", "FieldValueTooMany");
    check(FieldError::internal("a", "oops"), "a: Internal error: oops", "InternalError");
    check(FieldError::type_invalid("a", "x", "bad"), "a: Invalid value: \"x\": bad", "FieldValueTypeInvalid");
}

#[test]
fn several_errors_become_one_message() {
    let error = |field: &str| FieldError::required(field, "");
    assert_eq!(aggregate(&[]), None);
    assert_eq!(aggregate(&[error("a")]).unwrap(), "a: Required value");
    assert_eq!(aggregate(&[error("a"), error("a")]).unwrap(), "a: Required value");
    assert_eq!(
        aggregate(&[error("b"), error("a"), error("b")]).unwrap(),
        "[b: Required value, a: Required value]"
    );
}

/// A built-in kind: the schema is made in code, and its metadata is described in full.
fn pod() -> Schema {
    let text = Arc::new(Schema::of(Type::String));
    let labels =
        Schema { ty: Type::Object, additional: Some(Additional::Schema(text.clone())), ..Schema::default() };
    let metadata = Schema {
        ty: Type::Object,
        properties: [("name".to_owned(), text.clone()), ("labels".to_owned(), Arc::new(labels))].into(),
        ..Schema::default()
    };
    let container = Schema {
        ty: Type::Object,
        properties: [
            (
                "name".to_owned(),
                Arc::new(Schema { pattern: Some(Pattern::new("^[a-z]+$")), ..Schema::of(Type::String) }),
            ),
            ("image".to_owned(), text),
        ]
        .into(),
        required: vec!["name".to_owned()],
        ..Schema::default()
    };
    let containers = Schema {
        ty: Type::Array,
        items: Some(Arc::new(container)),
        list_type: Some(ListType::Map),
        list_map_keys: vec!["name".to_owned()],
        patch_strategy: Some("merge".to_owned()),
        patch_merge_key: Some("name".to_owned()),
        ..Schema::default()
    };
    let spec = Schema {
        ty: Type::Object,
        properties: [("containers".to_owned(), Arc::new(containers))].into(),
        rules: vec![Rule::new("size(self.containers) > 0", "a pod needs a container")],
        ..Schema::default()
    };
    Schema {
        ty: Type::Object,
        properties: [("metadata".to_owned(), Arc::new(metadata)), ("spec".to_owned(), Arc::new(spec))].into(),
        ..Schema::default()
    }
}

#[test]
fn built_in_kinds_are_served_as_well() {
    let schema = pod();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"x": "y"}, "colour": 1},
        "spec": {"containers": [{"name": "A"}, {"name": "A", "ports": []}]},
    });
    assert_eq!(prune(&mut object, &schema), ["metadata.colour", "spec.containers[1].ports"]);
    let mut texts: Vec<String> = validate(&object, &schema).iter().map(ToString::to_string).collect();
    texts.sort();
    assert_eq!(
        texts,
        [
            "spec.containers[0].name: Invalid value: \"A\": spec.containers[0].name in body should match '^[a-z]+$'",
            "spec.containers[1].name: Invalid value: \"A\": spec.containers[1].name in body should match '^[a-z]+$'",
            "spec.containers[1]: Duplicate value: {\"name\":\"A\"}",
        ]
    );
    let errors = validate_rules(&json!({"spec": {"containers": []}}), None, &schema);
    assert_eq!(aggregate(&errors).unwrap(), "spec: Invalid value: a pod needs a container");
}

#[test]
fn merging_sees_the_shape() {
    let schema = pod();
    let containers = (&schema).field("spec").unwrap().field("containers").unwrap();
    assert_eq!((containers.kind(), containers.list()), (Kind::List, ListMerge::Map));
    let mut keys = Vec::new();
    containers.list_keys(&mut |key| keys.push(key.to_owned()));
    assert_eq!(keys, ["name"]);
    assert_eq!(containers.patch(), k8s_merge::Patch::Merge { key: Some("name".to_owned()) });
    let labels = (&schema).field("metadata").unwrap().field("labels").unwrap();
    assert_eq!((labels.kind(), labels.field("any").unwrap().kind()), (Kind::Map, Kind::Scalar));
}

/// What merging asks is answered alike by a schema and by the document it publishes.
#[test]
fn the_published_document_has_the_same_shape() {
    fn same(a: &Schema, b: k8s_merge::OpenApi<'_>) {
        assert_eq!(
            (a.kind(), a.list(), a.patch(), a.scalar(), a.atomic()),
            (b.kind(), b.list(), b.patch(), b.scalar(), b.atomic()),
            "{a:?}"
        );
        for (name, child) in &a.properties {
            same(child, b.field(name).unwrap());
        }
        if let Some(items) = &a.items {
            same(items, b.item().unwrap());
        }
    }
    let crd = json!({"type": "object", "properties": {
        "a": {"x-kubernetes-int-or-string": true},
        "b": {"x-kubernetes-preserve-unknown-fields": true},
        "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "d": {"type": "object"},
        "e": {"type": "object", "additionalProperties": {"type": "string"}},
        "f": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "g": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"h": {"type": "boolean"}}},
    }});
    for schema in [pod(), Schema::from_crd(&crd).unwrap()] {
        same(&schema, k8s_merge::OpenApi(&schema.to_openapi()));
    }
}

#[test]
fn rules_wait_until_the_object_is_whole() {
    let schema = Schema::from_crd(&json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "x-kubernetes-validations": [{"rule": "self.a > 1"}]}))
    .unwrap();
    let errors = validate_all(&json!({}), None, &schema);
    assert_eq!(
        aggregate(&errors).unwrap(),
        "[a: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was \
         invalid; correct the existing errors to complete validation]"
    );
    assert_eq!(
        aggregate(&validate_all(&json!({"a": 1}), None, &schema)).unwrap(),
        "<nil>: Invalid value: failed rule: self.a > 1"
    );
    assert!(validate_all(&json!({"a": 2}), None, &schema).is_empty());
    assert!(
        validate_all(&json!({"a": 1}), Some(&json!({"a": 1})), &schema).is_empty(),
        "unchanged is not judged again"
    );
}

#[test]
fn what_is_of_another_kind_is_judged_by_its_keys_and_rules() {
    let list = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let schema = Schema::from_crd(
        &json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "l": list},
        "x-kubernetes-validations": [{"rule": "!has(self.l) || self.l.size() < 2", "message": "too many"}]}),
    )
    .unwrap();
    let twice = json!({"l": ["x", "x"]});
    assert_eq!(
        aggregate(&validate_beyond(Vec::new(), &twice, None, &schema)).unwrap(),
        "[l[1]: Duplicate value: \"x\", <nil>: Invalid value: too many]"
    );
    assert!(validate_beyond(Vec::new(), &twice, Some(&twice), &schema).is_empty(), "as it was");
}

#[test]
fn schemas_are_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Schema>();
    shared::<FieldError>();
    let schema = Arc::new(pod());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let schema = schema.clone();
            std::thread::spawn(move || {
                validate_rules(&json!({"spec": {"containers": []}}), None, &schema).len()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 1);
    }
}

#[test]
fn small_objects_are_cheap_with_large_schemas() {
    let wide = |depth: usize| {
        let mut child = json!({"type": "string", "default": "x"});
        for level in 0..depth {
            let mut properties = serde_json::Map::new();
            for i in 0..8 {
                properties.insert(format!("f{level}{i}"), child.clone());
            }
            child = json!({"type": "object", "properties": properties});
        }
        child
    };
    let schema = Schema::from_crd(&json!({"type": "object", "properties": {"spec": wide(5)}})).unwrap();
    let object = json!({"spec": {"f40": {"f30": {}}}});
    let start = std::time::Instant::now();
    for _ in 0..2_000 {
        let mut object = object.clone();
        prune(&mut object, &schema);
        default(&mut object, &schema);
        assert!(validate_all(&object, None, &schema).is_empty());
    }
    // The schema has 37 000 nodes: looking at all of them each time would take minutes.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
