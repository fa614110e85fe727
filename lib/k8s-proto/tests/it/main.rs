//! The decoder against Go: every pair of `pairs.txt` is an object as Go's protobuf serializer writes it, in base64, and
//! what `encoding/json` prints for the same object.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_proto::{MAX_DEPTH, ProtoError, decode};
use proptest::prelude::*;
use serde_json::{Value, json};

const PAIRS: &str = include_str!("pairs.txt");

fn pairs(text: &str) -> impl Iterator<Item = (Vec<u8>, Value)> {
    text.lines().map(|line| {
        let (body, object) = line.split_once(' ').unwrap();
        (STANDARD.decode(body).unwrap(), serde_json::from_str(object).unwrap())
    })
}

/// Where two values part, as a path.
fn difference(path: &str, seen: &Value, expected: &Value) -> Option<String> {
    match (seen, expected) {
        (Value::Object(seen), Value::Object(expected)) => {
            let keys = seen.keys().chain(expected.keys().filter(|key| !seen.contains_key(*key)));
            keys.into_iter().find_map(|key| match (seen.get(key), expected.get(key)) {
                (Some(seen), Some(expected)) => difference(&format!("{path}.{key}"), seen, expected),
                (seen, expected) => Some(format!("{path}.{key}: {seen:?} is not {expected:?}")),
            })
        }
        (Value::Array(seen), Value::Array(expected)) if seen.len() == expected.len() => {
            let mut items = seen.iter().zip(expected).enumerate();
            items.find_map(|(n, (seen, expected))| difference(&format!("{path}[{n}]"), seen, expected))
        }
        _ if seen == expected => None,
        _ => Some(format!("{path}: {seen} is not {expected}")),
    }
}

#[track_caller]
fn check_pairs(text: &str) -> usize {
    let mut n_pairs = 0;
    let mut failures = Vec::new();
    for (body, expected) in pairs(text) {
        n_pairs += 1;
        let name = format!("{} {}", expected["apiVersion"], expected["kind"]);
        match decode(&body) {
            Ok(seen) => failures.extend(difference(&name, &seen, &expected)),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    let n_failures = failures.len();
    failures.truncate(20);
    assert_eq!(n_failures, 0, "of {n_pairs}:\n{}", failures.join("\n"));
    n_pairs
}

#[test]
fn equals_go() {
    assert!(check_pairs(PAIRS) >= 50);
}

fn field(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = varint(u64::from(number) << 3 | 2);
    bytes.extend(varint(payload.len() as u64));
    bytes.extend(payload);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw)].concat()
}

#[track_caller]
fn check(body: &[u8], expected: Value) {
    assert_eq!(decode(body).unwrap(), expected);
}

#[track_caller]
fn check_refused(body: &[u8], expected: &str) {
    assert_eq!(decode(body).unwrap_err().to_string(), expected);
}

#[test]
fn absent_fields_are_those_of_an_empty_go_object() {
    check(&body("v1", "ConfigMap", b""), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
    check(
        &body("apps/v1", "DeleteOptions", b"\x08\0"),
        json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}),
    );
    check(
        &body("apps/v1", "Deployment", b""),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {},
            "spec": {"selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}},
        }),
    );
}

#[test]
fn fields_that_are_there_twice() {
    let named = |name: &[u8]| field(1, &field(1, name));
    let metadata = |name: &str, label: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"a": label}}});
    let label = |value: &[u8]| field(1, &field(11, &[field(1, b"a"), field(2, value)].concat()));
    let raw = [named(b"one"), label(b"x"), named(b"two"), label(b"y")].concat();
    check(&body("v1", "ConfigMap", &raw), metadata("two", "y"));
}

#[test]
fn fields_that_no_table_knows() {
    let raw = [field(1, &field(1, b"x")), field(999, b"?"), varint(500 << 3), varint(7)].concat();
    check(
        &body("v1", "ConfigMap", &raw),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}),
    );
}

#[test]
fn maps_of_bytes() {
    let raw =
        [field(2, &field(1, b"empty")), field(2, &[field(1, b"k"), field(2, b"\xff\0")].concat())].concat();
    check(
        &body("v1", "Secret", &raw),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"empty": "", "k": "/wA="}}),
    );
}

#[test]
fn lists_of_numbers_packed_or_not() {
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {}, "status": {},
        "spec": {"containers": null, "securityContext": {"supplementalGroups": [1, 300, -1]}},
    });
    let numbers = [varint(1), varint(300), varint(u64::MAX)];
    let plain: Vec<u8> =
        numbers.iter().flat_map(|number| [varint(4 << 3), number.clone()].concat()).collect();
    let packed = field(4, &numbers.concat());
    for groups in [plain, packed] {
        check(&body("v1", "Pod", &field(2, &field(14, &groups))), expected.clone());
    }
}

#[test]
fn embedded_objects_in_either_form() {
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let item = |raw: &[u8]| field(2, &field(1, raw));
    let raw =
        [item(&body("v1", "ConfigMap", b"")), item(config_map.to_string().as_bytes()), item(b"")].concat();
    check(
        &body("v1", "List", &raw),
        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [config_map, config_map, null]}),
    );
    check_refused(&body("v1", "List", &item(b"{")), "List.items: the embedded value is not JSON");
}

#[test]
fn envelopes() {
    let with = |number, text: &[u8]| {
        [body("v1", "ConfigMap", br#"{"data":{"a":"b"}}"#), field(number, text)].concat()
    };
    check(
        &with(4, b"application/json"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}),
    );
    check_refused(
        &with(4, b"text/plain"),
        "the protobuf envelope holds content type \"text/plain\", which is not supported",
    );
    check_refused(
        &with(3, b"gzip"),
        "the protobuf envelope holds content encoding \"gzip\", which is not supported",
    );
    check_refused(b"", "the body is not kubernetes protobuf: it does not start with the bytes \"k8s\\0\"");
    check_refused(b"{}", "the body is not kubernetes protobuf: it does not start with the bytes \"k8s\\0\"");
    check_refused(b"k8s\0", "the protobuf envelope names no kind");
    check_refused(
        &body("example.org/v1", "Widget", b""),
        "no protobuf message is known for kind \"Widget\" in version \"example.org/v1\"",
    );
}

#[test]
fn malformed_fields() {
    let config_map = |raw: &[u8]| body("v1", "ConfigMap", raw);
    check_refused(&config_map(b"\x0a\x05"), "the protobuf body ends within a field");
    check_refused(&config_map(&field(1, &field(1, b"\xff"))), "ObjectMeta.name: the string is not UTF-8");
    check_refused(&config_map(b"\x08\x01"), "ConfigMap.metadata: the wire type does not suit the field");
    check_refused(
        &config_map(&field(1, &field(7, b""))),
        "ObjectMeta.generation: the wire type does not suit the field",
    );
    check_refused(&config_map(b"\x00\x01"), "the protobuf body holds the illegal field tag 0");
}

/// A custom resource definition whose schema holds `depth` schemas, one within the other.
fn nested_schema(depth: usize) -> Vec<u8> {
    let mut schema = Vec::new();
    for _ in 0..depth {
        // JSONSchemaProps.not
        schema = field(28, &schema);
    }
    let version = field(4, &field(1, &schema));
    body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, &field(7, &version)))
}

#[test]
fn depth_is_bounded() {
    let value = decode(&nested_schema(MAX_DEPTH - 6)).unwrap();
    let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(schema.to_string().matches("not").count(), MAX_DEPTH - 6);
    for depth in [MAX_DEPTH, 5_000] {
        assert!(matches!(decode(&nested_schema(depth)), Err(ProtoError::TooDeep)), "{depth}");
    }
    let mut list = body("v1", "List", b"");
    for _ in 0..1_000 {
        list = body("v1", "List", &field(2, &field(1, &list)));
    }
    assert!(matches!(decode(&list), Err(ProtoError::TooDeep)));
}

#[test]
fn size_is_in_proportion() {
    // Each item takes two bytes here but stands for a whole pod template of empty fields.
    let items = field(2, b"").repeat(50_000);
    assert!(matches!(decode(&body("v1", "PodTemplateList", &items)), Err(ProtoError::TooLarge { .. })));
    // A list of as many finalizers is fine: its strings are there on the wire.
    let finalizers = field(1, &field(14, b"a/b").repeat(100_000));
    let value = decode(&body("v1", "ConfigMap", &finalizers)).unwrap();
    assert_eq!(value["metadata"]["finalizers"].as_array().map(Vec::len), Some(100_000));
}

#[test]
fn truncated_bodies_are_refused_or_shorter() {
    for (body, expected) in pairs(PAIRS) {
        for length in 0..body.len() {
            // A cut between two fields leaves a body that is whole; any other is refused.
            if let Ok(value) = decode(&body[..length]) {
                assert_eq!(value["kind"], expected["kind"]);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), n in 0usize..KINDS.len()) {
        let _ = decode(&bytes);
        let _ = decode(&[b"k8s\0", bytes.as_slice()].concat());
        let (api_version, kind) = KINDS[n];
        let _ = decode(&body(api_version, kind, &bytes));
    }

    #[test]
    fn no_damage_panics(n in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let all: Vec<_> = pairs(PAIRS).collect();
        let mut body = n.get(&all).0.clone();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(value) = decode(&body) {
            prop_assert!(value["kind"].is_string() && value["apiVersion"].is_string());
        }
    }
}

const KINDS: &[(&str, &str)] = &[
    ("v1", "Pod"),
    ("v1", "List"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("authorization.k8s.io/v1", "SubjectAccessReview"),
    ("coordination.k8s.io/v1", "Lease"),
];
