//! Answers in table and metadata form. In: objects of a kind. Out: a `meta.k8s.io` Table or PartialObjectMetadata.

use crate::registry::{Served, Source};
use jiff::Timestamp;
use k8s_table::{PrinterColumns, Table};
use serde_json::Value;

/// How much of each object a table row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// From the `includeObject` parameter.
    pub fn parse(text: &str) -> Include {
        match text {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }
}

/// A Table of some objects. `header` leaves the column definitions out when false: only the first event of a watch
/// carries them.
pub fn table(
    served: &Served,
    objects: &[Value],
    include: Include,
    now: Timestamp,
    list_metadata: Value,
    header: bool,
) -> Value {
    let mut table = match &served.source {
        Source::Builtin(k) => {
            let mut table = Table::new(k8s_table::builtin::columns(k.group, k.kind));
            let row = |o| k8s_table::builtin::table_row(k.group, k.kind, o, now).unwrap_or_default();
            table.rows = objects.iter().map(row).collect();
            table
        }
        Source::Custom(custom) => {
            let columns = custom.version(&served.version).map(|v| v.columns.as_slice()).unwrap_or_default();
            let columns = PrinterColumns::parse(columns);
            let mut table = Table::new(columns.columns().to_vec());
            table.rows = objects.iter().map(|o| columns.row(o, now).into()).collect();
            table
        }
    };
    for (row, object) in table.rows.iter_mut().zip(objects) {
        row.object = match include {
            Include::None => Value::Null,
            Include::Metadata => partial(object),
            Include::Object => object.clone(),
        };
    }
    if !header {
        table.columns.clear();
    }
    table.metadata = list_metadata.as_object().cloned().unwrap_or_default();
    table.to_meta_table()
}

/// Only the metadata of an object.
pub fn partial(object: &Value) -> Value {
    k8s_table::partial_object_metadata(object)
}
