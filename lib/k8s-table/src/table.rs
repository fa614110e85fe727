//! Tables. In: columns, and rows of cells. Out: aligned text as kubectl prints it, or the JSON of a
//! `meta.k8s.io/v1` Table as the API server sends it.

use std::fmt::Write as _;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::jsonpath::go_float;

/// Columns and rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What the cells of each row mean.
    pub columns: Vec<Column>,
    /// The rows. A row may have fewer cells than there are columns; cells past the columns are not shown.
    pub rows: Vec<Row>,
    /// The list metadata of the table's JSON: `resourceVersion`, `continue`, `remainingItemCount`.
    pub metadata: serde_json::Map<String, Value>,
}

/// One column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The name, which text shows in capitals.
    pub name: String,
    /// The OpenAPI type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: String,
    /// The OpenAPI format; `name` marks the column that holds the object's name.
    pub format: String,
    /// What the column says.
    pub description: String,
    /// Zero for columns that are always shown; others show in wide output.
    pub priority: i32,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The cells, in the order of the columns.
    pub cells: Vec<Cell>,
    /// What the row is about, for a client that wants to know; null for none.
    pub object: Value,
    /// What holds of the row as a whole.
    pub conditions: Vec<RowCondition>,
}

/// Something that holds of a row as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCondition {
    /// `Completed` is the one that exists.
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// Nothing to say.
    #[default]
    Null,
    /// Text.
    String(String),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

/// How to turn a table into text. The default is what `kubectl get` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Render {
    /// Show the columns of every priority.
    pub wide: bool,
    /// Leave the line of column names out.
    pub no_headers: bool,
}

/// The least width of a column, and the blanks after its widest cell.
const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;

impl Table {
    /// A table with no rows yet.
    pub fn new(columns: Vec<Column>) -> Self {
        Table { columns, ..Table::default() }
    }

    /// The table as text: capital headers, columns three blanks apart, no blanks at the end of a line. A table
    /// without rows is the empty text.
    ///
    /// A cell ends at its first line break, which shows as `...`; other control characters are made visible, so that
    /// an object cannot steer the terminal.
    pub fn render(&self, options: Render) -> String {
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|idx| options.wide || self.columns.get(*idx).is_some_and(|column| column.priority == 0))
            .collect();
        if self.rows.is_empty() {
            return String::new();
        }
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        if !options.no_headers {
            let header =
                |idx: &usize| self.columns.get(*idx).map(|column| printable(&column.name.to_uppercase()));
            lines.push(shown.iter().filter_map(header).collect());
        }
        for row in &self.rows {
            let cell = |idx: &usize| row.cells.get(*idx).map(|cell| printable(&cell.to_string()));
            lines.push(shown.iter().map(|idx| cell(idx).unwrap_or_default()).collect());
        }
        let mut widths = vec![0; shown.len()];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.width().max(*width);
            }
        }
        let mut text = String::new();
        for line in &lines {
            // Blanks are owed, not written, so that none are left at the end of the line.
            let mut owed = 0;
            for (cell, width) in line.iter().zip(&widths) {
                let full = (width + PADDING).max(MIN_WIDTH);
                if !cell.is_empty() {
                    text.extend(std::iter::repeat_n(' ', owed));
                    text.push_str(cell);
                    owed = 0;
                }
                owed += full - cell.width();
            }
            let kept = text.trim_end_matches(' ').len();
            text.truncate(kept);
            text.push('\n');
        }
        text
    }

    /// The table as the JSON of a `meta.k8s.io/v1` Table.
    pub fn to_meta_table(&self) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": self.metadata,
            "columnDefinitions": self.columns.iter().map(Column::to_json).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        })
    }

    /// Puts a column with the namespace of each row's object in front, as kubectl does over all namespaces.
    pub fn add_namespace_column(&mut self) {
        self.columns
            .insert(0, Column { name: "Namespace".into(), type_: "string".into(), ..Column::default() });
        for row in &mut self.rows {
            let namespace = row.object.pointer("/metadata/namespace").and_then(Value::as_str);
            row.cells.insert(0, namespace.map_or(Cell::Null, Cell::from));
        }
    }
}

impl Column {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.type_,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

impl Row {
    fn to_json(&self) -> Value {
        let cells: Vec<Value> = self.cells.iter().map(Cell::to_json).collect();
        let mut row = json!({"cells": cells, "object": self.object});
        if !self.conditions.is_empty() {
            let condition = |c: &RowCondition| json!({"type": c.type_, "status": c.status, "reason": c.reason, "message": c.message});
            row["conditions"] = self.conditions.iter().map(condition).collect();
        }
        row
    }
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Self {
        Row { cells, ..Row::default() }
    }
}

impl Cell {
    /// The cell as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Cell::Null => Value::Null,
            Cell::String(text) => Value::from(text.as_str()),
            Cell::Integer(number) => Value::from(*number),
            // A whole number has no decimal point on the wire, whatever it was computed from.
            Cell::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Value::from(*number as i64)
            }
            Cell::Number(number) => Value::from(*number),
            Cell::Boolean(flag) => Value::from(*flag),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Null => Ok(()),
            Cell::String(text) => f.write_str(text),
            Cell::Integer(number) => write!(f, "{number}"),
            Cell::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => write!(f, "{number:.0}"),
            Cell::Number(number) => f.write_str(&go_float(*number)),
            Cell::Boolean(flag) => write!(f, "{flag}"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::String(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::String(text)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Cell::Integer(number)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Cell::Boolean(flag)
    }
}

/// What a Table holds of an object when the client asks for metadata alone, which is the default.
pub fn partial_object_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// One line with no character that moves the cursor.
fn printable(text: &str) -> String {
    let line = text.split(['\n', '\r', '\u{c}']).next().unwrap_or_default();
    let mut result = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => result.push(' '),
            // Caret notation: escape is `^[`.
            '\0'..='\x1f' => result.extend(['^', char::from(c as u8 + b'@')]),
            '\x7f' => result.push_str("^?"),
            // The second set of control characters, in which some terminals also see escape sequences.
            '\u{80}'..='\u{9f}' => {
                let _ = write!(result, "\\u{:04x}", c as u32);
            }
            c => result.push(c),
        }
    }
    if line.len() < text.len() {
        result.push_str("...");
    }
    result
}
