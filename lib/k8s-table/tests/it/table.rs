//! Rendering and JSON of tables.

use k8s_table::{Cell, Column, Render, Row, RowCondition, Table, partial_object_metadata};
use serde_json::{Value, json};

fn column(name: &str, priority: i32) -> Column {
    Column { name: name.into(), type_: "string".into(), priority, ..Column::default() }
}

fn table(columns: &[(&str, i32)], rows: &[&[&str]]) -> Table {
    let mut table = Table::new(columns.iter().map(|(name, priority)| column(name, *priority)).collect());
    let row = |cells: &&[&str]| Row::from(cells.iter().map(|text| Cell::from(*text)).collect::<Vec<_>>());
    table.rows = rows.iter().map(row).collect();
    table
}

#[test]
fn text() {
    #[track_caller]
    fn check(table: &Table, options: Render, expected: &str) {
        assert_eq!(table.render(options), expected);
    }
    let plain = Render::default();
    let pods =
        table(&[("Name", 0), ("Ready", 0), ("Node", 1)], &[&["web-0", "1/1", "n1"], &["a", "0/1", ""]]);
    check(&pods, plain, "NAME    READY\nweb-0   1/1\na       0/1\n");
    check(&pods, Render { wide: true, ..plain }, "NAME    READY   NODE\nweb-0   1/1     n1\na       0/1\n");
    check(&pods, Render { no_headers: true, ..plain }, "web-0   1/1\na       0/1\n");
    check(&table(&[("Name", 0)], &[]), plain, "");
    // The least width of a column is six.
    check(&table(&[("A", 0), ("B", 0)], &[&["x", "y"]]), plain, "A     B\nx     y\n");
    // Wide characters take two places.
    check(&table(&[("Name", 0), ("X", 0)], &[&["日本語", "y"]]), plain, "NAME     X\n日本語   y\n");
    // Fewer and more cells than columns.
    check(&table(&[("Name", 0), ("X", 0)], &[&["a"], &["a", "b", "c"]]), plain, "NAME   X\na\na      b\n");
    // A cell cannot break out of its line, nor move the cursor.
    check(
        &table(&[("M", 0)], &[&["one\ntwo"], &["\u{1b}[2J\u{9b}\t\u{7f}"]]),
        plain,
        "M\none...\n^[[2J\\u009b ^?\n",
    );
}

#[test]
fn cells() {
    #[track_caller]
    fn check(cell: Cell, text: &str, json: Value) {
        assert_eq!((cell.to_string().as_str(), cell.to_json()), (text, json));
    }
    check(Cell::Null, "", Value::Null);
    check(Cell::from("x"), "x", json!("x"));
    check(Cell::from(7), "7", json!(7));
    check(Cell::from(true), "true", json!(true));
    check(Cell::Number(2.0), "2", json!(2));
    check(Cell::Number(0.25), "0.25", json!(0.25));
    check(Cell::Number(1234567.5), "1.2345675e+06", json!(1234567.5));
    check(Cell::Number(0.00001), "1e-05", json!(0.00001));
}

#[test]
fn meta_table() {
    let mut table = table(&[("Name", 0), ("Node", 1)], &[&["a", "n"]]);
    table.metadata.insert("resourceVersion".into(), json!("7"));
    let pod = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"secret": true}});
    table.rows[0].object = partial_object_metadata(&pod);
    table.rows[0].conditions = vec![RowCondition {
        type_: "Completed".into(),
        status: "True".into(),
        reason: "Succeeded".into(),
        message: "m".into(),
    }];
    table.rows.push(Row::from(vec![Cell::from("b"), Cell::Null]));
    let expected = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "", "description": "", "priority": 0},
            {"name": "Node", "type": "string", "format": "", "description": "", "priority": 1},
        ],
        "rows": [
            {
                "cells": ["a", "n"],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"name": "a", "namespace": "ns"},
                },
                "conditions": [
                    {"type": "Completed", "status": "True", "reason": "Succeeded", "message": "m"},
                ],
            },
            {"cells": ["b", null], "object": null},
        ],
    });
    assert_eq!(table.to_meta_table(), expected);

    table.add_namespace_column();
    assert_eq!(table.render(Render::default()), "NAMESPACE   NAME\nns          a\n            b\n");
}
