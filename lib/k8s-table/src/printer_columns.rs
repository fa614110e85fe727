//! The columns that a custom resource definition asks for. In: its `additionalPrinterColumns` and an object. Out: the
//! cells, as the API server computes them.

use jiff::Timestamp;
use serde_json::Value;

use crate::jsonpath::text_of;
use crate::{Cell, Column, JsonPath, age, parse_time};

/// The columns of one version of a custom resource, ready for use on many objects.
///
/// The name always comes first. A definition without columns gets the age. A column whose path cannot be read ends
/// the list: the columns before it stay, those after it are dropped, as the API server does.
///
/// ```
/// use k8s_table::{Cell, PrinterColumns};
/// use serde_json::json;
///
/// let columns = PrinterColumns::parse(&[
///     json!({"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}),
///     json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
/// ]);
/// let object = json!({
///     "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
///     "spec": {"replicas": 3},
/// });
/// let cells = columns.row(&object, "2026-01-01T00:05:30Z".parse()?);
/// assert_eq!(cells, [Cell::from("web"), Cell::from(3), Cell::from("5m30s")]);
/// # Ok::<(), jiff::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PrinterColumns {
    columns: Vec<Column>,
    /// One for each column but the first.
    paths: Vec<JsonPath>,
}

impl PrinterColumns {
    /// Reads `additionalPrinterColumns`.
    pub fn parse(crd_columns: &[Value]) -> Self {
        let name = Column {
            name: "Name".into(),
            type_: "string".into(),
            format: "name".into(),
            description: "The name of the object.".into(),
            priority: 0,
        };
        let mut result = PrinterColumns { columns: vec![name], paths: Vec::new() };
        if crd_columns.is_empty() {
            let age = Column {
                name: "Age".into(),
                type_: "date".into(),
                description: "The time since the object was created.".into(),
                ..Column::default()
            };
            result.columns.push(age);
            result.paths.extend(JsonPath::parse(".metadata.creationTimestamp"));
        }
        for crd_column in crd_columns {
            let text = |field: &str| crd_column.get(field).and_then(Value::as_str).unwrap_or_default();
            let json_path = text("jsonPath");
            let Ok(path) = JsonPath::parse(json_path) else { break };
            let described = Some(text("description")).filter(|text| !text.is_empty()).map(str::to_owned);
            let priority = crd_column.get("priority").and_then(Value::as_i64);
            result.columns.push(Column {
                name: text("name").to_owned(),
                type_: text("type").to_owned(),
                format: text("format").to_owned(),
                description: described.unwrap_or_else(|| {
                    format!("Custom resource definition column (in JSONPath format): {json_path}")
                }),
                priority: priority.and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
            });
            result.paths.push(path);
        }
        result
    }

    /// The columns, the name first.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The cells of one object, one for each column.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Cell> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let rest = self.columns.iter().skip(1).zip(&self.paths);
        let cells = rest.map(|(column, path)| cell(&column.type_, path, object, now));
        std::iter::once(Cell::from(name)).chain(cells).collect()
    }
}

/// The cells of one object under `additionalPrinterColumns`. For many objects, keep a [`PrinterColumns`].
pub fn printer_columns(crd_columns: &[Value], object: &Value, now: Timestamp) -> Vec<Cell> {
    PrinterColumns::parse(crd_columns).row(object, now)
}

/// The server shows the first value that a path finds, and only in its declared type.
fn cell(type_: &str, path: &JsonPath, object: &Value, now: Timestamp) -> Cell {
    let found = path.find(object).unwrap_or_default();
    let Some(value) = found.first() else { return Cell::Null };
    match (type_, value) {
        ("string", Value::Null) => Cell::from("<no value>"),
        ("string", value) => text_of(value).map_or(Cell::Null, Cell::String),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Cell::Integer(integer),
            // The cast saturates.
            (None, Some(float)) => Cell::Integer(float as i64),
            (None, None) => Cell::Null,
        },
        ("number", Value::Number(number)) => number.as_f64().map_or(Cell::Null, Cell::Number),
        ("boolean", Value::Bool(flag)) => Cell::Boolean(*flag),
        ("date", Value::String(text)) if text.is_empty() || text == "null" => Cell::from("<unknown>"),
        ("date", Value::String(text)) if text.starts_with("0001-01-01T00:00:00Z") => Cell::from("<unknown>"),
        ("date", Value::String(text)) => match parse_time(text) {
            Some(time) => Cell::String(age(Some(time), now)),
            None => Cell::from("<invalid>"),
        },
        _ => Cell::Null,
    }
}
