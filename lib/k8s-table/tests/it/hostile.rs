//! Input that means harm: nothing panics, hangs or grows out of proportion.

use k8s_table::{Cell, Column, JsonPath, PrinterColumns, Render, Row, Table, Template, builtin, parse_time};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::now;

/// Field names that the built-in kinds read, so that random objects get deep into them.
fn names() -> impl Strategy<Value = String> {
    proptest::sample::select(
        "metadata name creationTimestamp deletionTimestamp labels annotations ownerReferences controller spec status \
         phase reason conditions type containerStatuses initContainerStatuses containers initContainers restartCount \
         state lastState terminated waiting running finishedAt exitCode signal ready started replicas selector \
         matchLabels matchExpressions key operator values template metrics currentMetrics resource target \
         averageValue addresses subsets ports port ingress loadBalancer hard used series count rules subjects kind \
         restartPolicy readinessGates conditionType capacity storage paramRef"
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    )
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        proptest::sample::select(vec![
            "True",
            "Always",
            "Resource",
            "In",
            "2026-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 96, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((names(), inner), 0..6)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

/// Text near the grammar of paths.
const NEAR_PATH: &str = "(\\.?[a-z*]{0,4}|\\.\\.|\\[[-0-9:,*']{0,5}\\]|\\[\\?\\(@?\\.?[a-z]{0,3}[=<>!]{0,2}[\"'a-z0-9.]{0,4}\\)\\]|[{}\"'\\\\@$ ]|range |end){0,8}";

proptest! {
    #[test]
    fn builtin_rows_take_any_object(object in values()) {
        for (group, kind) in builtin::known_kinds() {
            let row = builtin::table_row(group, kind, &object, now());
            prop_assert_eq!(row.is_some(), object.is_object());
            if let Some(row) = row {
                prop_assert_eq!(row.cells.len(), builtin::columns(group, kind).len());
                let mut table = Table::new(builtin::columns(group, kind));
                table.rows.push(row);
                let text = table.render(Render { wide: true, no_headers: false });
                prop_assert_eq!(text.lines().count(), 2);
                prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
                prop_assert!(text.lines().all(|line| !line.ends_with(' ')));
                table.to_meta_table();
            }
        }
    }

    #[test]
    fn paths_take_any_text(text in ".{0,40}", object in values()) {
        if let Ok(path) = JsonPath::parse(&text) {
            let _ = path.find(&object);
        }
        let _ = JsonPath::parse_relaxed(&text);
        if let Ok(template) = Template::parse(&text) {
            let _ = template.render(&object);
        }
    }

    #[test]
    fn paths_take_text_near_the_grammar(text in NEAR_PATH, object in values()) {
        if let Ok(path) = JsonPath::parse(&text) {
            let _ = path.find(&object);
        }
        if let Ok(template) = Template::parse(&format!("{{{text}}}")) {
            let _ = template.render(&object);
        }
        if let Ok(template) = Template::parse(&text) {
            let _ = template.render(&object);
        }
    }

    #[test]
    fn a_field_by_any_name_is_found(name in "[^\\[\\]{},$@.\\\\\\s*]{1,8}", value in any::<i64>()) {
        let object = Value::Object(Map::from_iter([(name.clone(), Value::from(value))]));
        let path = JsonPath::parse(&format!(".{name}")).unwrap();
        prop_assert_eq!(path.find(&object).unwrap(), [&Value::from(value)]);
    }

    #[test]
    fn slices_are_those_of_a_list(items in proptest::collection::vec(any::<i64>(), 0..8), from in 0..8_usize, to in 0..8_usize) {
        let object = json!({"items": items});
        let path = JsonPath::parse(&format!(".items[{from}:{to}]")).unwrap();
        match items.get(from..to) {
            Some(slice) => {
                let expected: Vec<Value> = slice.iter().copied().map(Value::from).collect();
                prop_assert_eq!(path.find(&object).unwrap(), expected.iter().collect::<Vec<_>>());
            }
            None => prop_assert!(path.find(&object).is_err() || from == to),
        }
    }

    #[test]
    fn printer_columns_take_anything(columns in proptest::collection::vec(values(), 0..4), path in NEAR_PATH,
                                     type_ in "string|integer|number|boolean|date", object in values()) {
        let mut columns = columns;
        columns.insert(0, json!({"name": "X", "type": type_, "jsonPath": path}));
        let columns = PrinterColumns::parse(&columns);
        prop_assert_eq!(columns.row(&object, now()).len(), columns.columns().len());
    }

    #[test]
    fn any_cells_make_straight_lines(rows in proptest::collection::vec(proptest::collection::vec(".{0,10}", 0..5), 1..5)) {
        let columns = (0..3).map(|n| Column { name: format!("c{n}"), ..Column::default() }).collect();
        let mut table = Table::new(columns);
        for cells in &rows {
            table.rows.push(Row::from(cells.iter().map(|text| Cell::from(text.as_str())).collect::<Vec<_>>()));
        }
        let text = table.render(Render::default());
        prop_assert_eq!(text.matches('\n').count(), rows.len() + 1);
    }

    #[test]
    fn any_text_may_be_a_time(text in ".{0,40}", digits in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,12})?(Z|[-+][0-9]{2}:[0-9]{2})") {
        let _ = parse_time(&text);
        let _ = parse_time(&digits);
    }
}

#[test]
fn deep_objects_are_walked_without_recursion() {
    let mut object = json!({"name": "leaf"});
    for _ in 0..100_000 {
        object = Value::Object(Map::from_iter([("a".to_owned(), object)]));
    }
    let path = JsonPath::parse("..name").unwrap();
    assert_eq!(path.find(&object).unwrap(), [&json!("leaf")]);
    assert!(Template::parse("{.a}").unwrap().render(&object).is_err());
    builtin::row("", "Pod", &object, now()).unwrap();
    // Dropping such an object recurses, so it is taken apart by hand.
    while let Value::Object(mut fields) = object {
        object = fields.remove("a").unwrap_or(Value::Null);
    }
}
