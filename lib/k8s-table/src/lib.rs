//! kubectl-style tables, ages, JSONPath printer columns and the columns of the built-in kinds.
//!
//! Objects come in as plain JSON, and `now` is always a parameter, so the same input gives the same table. Nothing
//! is trusted about the shape of an object: a field that is missing or of the wrong type prints as an empty one
//! would, and no input makes this crate panic.
//!
//! * [`Table`] with its [`Column`]s and [`Cell`]s: text as kubectl prints it, or the JSON of a `meta.k8s.io/v1` Table.
//! * [`builtin`]: the columns and rows of Pods, Nodes and the other kinds that the API server itself knows.
//! * [`PrinterColumns`]: the columns that a custom resource definition asks for.
//! * [`JsonPath`] and [`Template`]: the JSONPath dialect of Kubernetes.
//! * [`human_duration`] and [`age`]: `5m30s`, `3d4h`, `2y40d`.
//!
//! ```
//! use k8s_table::{Render, Row, Table, builtin};
//! use serde_json::json;
//!
//! let now = "2026-01-02T03:04:05Z".parse()?;
//! let node = json!({
//!     "metadata": {"name": "node-a", "creationTimestamp": "2026-01-01T00:00:00Z"},
//!     "status": {
//!         "conditions": [{"type": "Ready", "status": "True"}],
//!         "nodeInfo": {"kubeletVersion": "v1.36.3"},
//!     },
//! });
//! let mut table = Table::new(builtin::columns("", "Node"));
//! table.rows.extend(builtin::row("", "Node", &node, now).map(Row::from));
//! assert_eq!(
//!     table.render(Render::default()),
//!     "NAME     STATUS   ROLES    AGE   VERSION\n\
//!      node-a   Ready    <none>   27h   v1.36.3\n",
//! );
//! # Ok::<(), jiff::Error>(())
//! ```

mod age;
mod jsonpath;
mod printer_columns;
mod table;

pub mod builtin;

pub use age::{age, age_of, human_duration, parse_time, short_human_duration};
pub use jsonpath::{JsonPath, JsonPathError, Template};
pub use printer_columns::{PrinterColumns, printer_columns};
pub use table::{Cell, Column, Render, Row, RowCondition, Table, partial_object_metadata};
