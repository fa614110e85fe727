//! Columns of custom resources.

use k8s_table::{Cell, PrinterColumns, printer_columns};
use serde_json::{Value, json};

use crate::now;

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-11-15T09:54:30Z"},
        "spec": {"replicas": 3, "ratio": 0.5, "big": 1e30, "paused": true, "text": "5", "nothing": null},
        "list": ["a", "b"],
        "map": {"b": 1, "a": "<"},
        "times": {"zero": "0001-01-01T00:00:00Z", "empty": "", "bad": "yesterday", "later": "2026-11-15T11:00:00Z"},
    })
}

#[test]
fn cells() {
    #[track_caller]
    fn check(type_: &str, path: &str, expected: Cell) {
        let cells =
            printer_columns(&[json!({"name": "X", "type": type_, "jsonPath": path})], &object(), now());
        assert_eq!(cells, [Cell::from("web"), expected], "{type_} {path}");
    }
    check("string", ".spec.text", "5".into());
    check("string", ".spec.replicas", "3".into());
    check("string", ".spec.ratio", "0.5".into());
    check("string", ".spec.paused", "true".into());
    check("string", ".spec.nothing", "<no value>".into());
    check("string", ".spec.missing", Cell::Null);
    check("string", ".list", r#"["a","b"]"#.into());
    // Only the first of several values is shown.
    check("string", ".list[*]", "a".into());
    check("string", ".list[7]", Cell::Null);
    check("string", ".map", r#"{"a":"\u003c","b":1}"#.into());
    check("string", "spec.text", Cell::Null);

    check("integer", ".spec.replicas", 3.into());
    check("integer", ".spec.ratio", 0.into());
    check("integer", ".spec.big", i64::MAX.into());
    check("integer", ".spec.text", Cell::Null);
    check("number", ".spec.replicas", Cell::Number(3.0));
    check("number", ".spec.ratio", Cell::Number(0.5));
    check("number", ".spec.text", Cell::Null);
    check("boolean", ".spec.paused", true.into());
    check("boolean", ".spec.text", Cell::Null);
    check("date", ".metadata.creationTimestamp", "5m30s".into());
    check("date", ".times.zero", "<unknown>".into());
    check("date", ".times.empty", "<unknown>".into());
    check("date", ".times.bad", "<invalid>".into());
    check("date", ".times.later", "<invalid>".into());
    check("date", ".times.missing", Cell::Null);
    check("date", ".spec.replicas", Cell::Null);
    check("other", ".spec.text", Cell::Null);
}

#[test]
fn columns() {
    #[track_caller]
    fn check(crd_columns: Value, expected: &[(&str, &str, &str, i32)]) {
        let columns = PrinterColumns::parse(crd_columns.as_array().unwrap());
        let got: Vec<_> =
            columns.columns().iter().map(|c| (&*c.name, &*c.type_, &*c.format, c.priority)).collect();
        assert_eq!(got, expected);
        assert_eq!(columns.row(&object(), now()).len(), expected.len());
    }
    let name = ("Name", "string", "name", 0);
    check(json!([]), &[name, ("Age", "date", "", 0)]);
    check(
        json!([{"name": "Size", "type": "integer", "format": "int32", "priority": 1, "jsonPath": ".spec.replicas"}]),
        &[name, ("Size", "integer", "int32", 1)],
    );
    // A path that cannot be read ends the list.
    check(
        json!([
            {"name": "A", "type": "string", "jsonPath": ".a"},
            {"name": "B", "type": "string", "jsonPath": ".b["},
            {"name": "C", "type": "string", "jsonPath": ".c"},
        ]),
        &[name, ("A", "string", "", 0)],
    );
    check(json!([7, {"priority": 1e40}]), &[name, ("", "", "", 0), ("", "", "", 0)]);

    let described = PrinterColumns::parse(&[
        json!({"name": "A", "jsonPath": ".a"}),
        json!({"name": "B", "jsonPath": ".b", "description": "the b"}),
    ]);
    let texts: Vec<_> = described.columns().iter().skip(1).map(|c| &*c.description).collect();
    assert_eq!(texts, ["Custom resource definition column (in JSONPath format): .a", "the b"]);
}

#[test]
fn default_columns() {
    assert_eq!(printer_columns(&[], &object(), now()), [Cell::from("web"), Cell::from("5m30s")]);
    assert_eq!(printer_columns(&[], &json!(5), now()), [Cell::from(""), Cell::Null]);
}
