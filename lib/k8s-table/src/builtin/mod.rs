//! The columns and rows of the kinds that the API server itself knows, as kube-apiserver 1.36 prints them.
//!
//! In: a group, a kind, and an object as JSON in any served version. Out: columns, and cells for all of them, the
//! wide ones included. Fields that the server would have defaulted on decoding are taken as defaulted here.
//!
//! A kind that is not built in has a name and an age.
//!
//! ```
//! use k8s_table::{Cell, builtin};
//! use serde_json::json;
//!
//! let config = json!({"metadata": {"name": "settings"}, "data": {"a": "1", "b": "2"}});
//! let names: Vec<_> = builtin::columns("", "ConfigMap").into_iter().map(|column| column.name).collect();
//! assert_eq!(names, ["Name", "Data", "Age"]);
//! let cells = builtin::row("", "ConfigMap", &config, "2026-01-01T00:00:00Z".parse()?).unwrap();
//! assert_eq!(cells, [Cell::from("settings"), Cell::from(2), Cell::from("<unknown>")]);
//! # Ok::<(), jiff::Error>(())
//! ```

mod admission;
mod cluster;
mod network;
mod pod;
mod read;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::Value;

use crate::{Cell, Column, Row, RowCondition, partial_object_metadata};
use read::Object;

/// The columns of a kind. The group of the core API is the empty text.
pub fn columns(group: &str, kind: &str) -> Vec<Column> {
    let specs = find(group, kind).map_or(&[NAME, AGE][..], |known| known.columns);
    let column = |spec: &Spec| Column {
        name: spec.name.to_owned(),
        type_: spec.type_.to_owned(),
        format: spec.format.to_owned(),
        description: describe(spec.name).to_owned(),
        priority: spec.priority,
    };
    specs.iter().map(column).collect()
}

/// The cells of an object, one for each of the [`columns`] of its kind. Nothing when the value is not a JSON object.
pub fn row(group: &str, kind: &str, object: &Value, now: Timestamp) -> Option<Vec<Cell>> {
    object.as_object()?;
    let object = Object { value: object, now };
    Some(match find(group, kind) {
        Some(known) => (known.cells)(object),
        None => vec![object.name(), object.age()],
    })
}

/// A whole row as the API server sends it: cells, the metadata of the object, and whether a pod is over.
pub fn table_row(group: &str, kind: &str, object: &Value, now: Timestamp) -> Option<Row> {
    Some(Row {
        cells: row(group, kind, object, now)?,
        object: partial_object_metadata(object),
        conditions: row_conditions(group, kind, object),
    })
}

/// What holds of the row of an object: a pod that is over is `Completed`.
pub fn row_conditions(group: &str, kind: &str, object: &Value) -> Vec<RowCondition> {
    let phase = object.pointer("/status/phase").and_then(Value::as_str);
    let message = match (group, kind, phase) {
        ("", "Pod", Some("Succeeded")) => "All containers of the pod ended with success.",
        ("", "Pod", Some("Failed")) => "The pod ended, and not with success.",
        _ => return Vec::new(),
    };
    vec![RowCondition {
        type_: "Completed".into(),
        status: "True".into(),
        reason: phase.unwrap_or_default().into(),
        message: message.into(),
    }]
}

/// Whether the kind has columns of its own here.
pub fn is_known(group: &str, kind: &str) -> bool {
    find(group, kind).is_some()
}

/// Group and kind of everything that has columns of its own here.
pub fn known_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    families().flat_map(|family| family.iter().map(|known| (known.group, known.kind)))
}

/// One kind.
struct Known {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Spec],
    cells: fn(Object<'_>) -> Vec<Cell>,
}

/// A column that is known when this is compiled.
struct Spec {
    name: &'static str,
    type_: &'static str,
    format: &'static str,
    priority: i32,
}

const NAME: Spec = Spec { name: "Name", type_: "string", format: "name", priority: 0 };
const AGE: Spec = text("Age");
const CREATED_AT: Spec = Spec { name: "Created At", type_: "date", format: "", priority: 0 };

const fn text(name: &'static str) -> Spec {
    Spec { name, type_: "string", format: "", priority: 0 }
}

const fn wide(name: &'static str) -> Spec {
    Spec { name, type_: "string", format: "", priority: 1 }
}

const fn integer(name: &'static str) -> Spec {
    Spec { name, type_: "integer", format: "", priority: 0 }
}

const fn boolean(name: &'static str) -> Spec {
    Spec { name, type_: "boolean", format: "", priority: 0 }
}

fn families() -> impl Iterator<Item = &'static [Known]> {
    [pod::KINDS, workloads::KINDS, network::KINDS, storage::KINDS, cluster::KINDS, admission::KINDS]
        .into_iter()
}

fn find(group: &str, kind: &str) -> Option<&'static Known> {
    families().flatten().find(|known| known.group == group && known.kind == kind)
}

fn name_and_age(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.age()]
}

fn name_and_creation(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.created_at()]
}

/// What a column says. The same name means the same in every kind, so one sentence each will do.
fn describe(name: &str) -> &'static str {
    match name {
        "Name" => "The name of the object.",
        "Age" => "The time since the object was created.",
        "Created At" => "When the object was created.",
        "Ready" => "How many are ready.",
        "Status" | "State" => "What the object is doing, in one word.",
        "Restarts" => "How often containers were restarted, and when it last happened.",
        "IP" => "The address of the pod.",
        "Node" => "The node it is on.",
        "Nominated Node" => "The node that is being made free for the pod.",
        "Readiness Gates" => "How many of the conditions that the pod asks for hold.",
        "Containers" => "The names of the containers.",
        "Images" => "The images of the containers.",
        "Selector" | "Pod-Selector" | "Node Selector" => "The labels that are selected.",
        "Pod Labels" => "The labels of the pods.",
        "Desired" => "How many are wanted.",
        "Current" => "How many there are.",
        "Up-to-date" => "How many are of the newest template.",
        "Available" => "How many have been ready for long enough.",
        "Min Available" => "How many pods must stay available.",
        "Max Unavailable" => "How many pods may be unavailable.",
        "Allowed Disruptions" => "How many pods may be disrupted now.",
        "Completions" => "How many pods succeeded, of how many wanted.",
        "Duration" => "How long the job ran, or has been running.",
        "Schedule" => "When jobs are started, in cron format.",
        "Timezone" => "The time zone of the schedule.",
        "Suspend" => "Whether new jobs are held back.",
        "Active" => "How many jobs are running.",
        "Last Schedule" => "The time since a job was last started.",
        "Type" => "The type of the object.",
        "Cluster-IP" => "The address inside the cluster.",
        "External-IP" => "The address outside the cluster.",
        "Internal-IP" => "The address inside the cluster network.",
        "Port(s)" | "Ports" => "The open ports.",
        "Hosts" => "The host names that are served.",
        "Address" => "The addresses of the load balancer.",
        "Roles" => "The roles of the node, by its labels.",
        "Version" => "The version of the kubelet.",
        "Last Seen" => "The time since it last happened.",
        "First Seen" => "The time since it first happened.",
        "Reason" => "Why, in one word.",
        "Object" => "What the event is about.",
        "Subobject" => "Which part of the object the event is about.",
        "Source" => "Who reports the event.",
        "Message" => "What happened.",
        "Count" => "How often it happened.",
        "Capacity" => "How much there is to store in.",
        "Access Modes" => "How the volume may be mounted.",
        "Claim" => "The claim that the volume is bound to.",
        "Policy" => "How the pods of the group are scheduled.",
        "Workload" => "The workload that the group belongs to.",
        "Data" => "How many entries there are.",
        "Value" => "The priority; higher goes first.",
        "Holder" => "Who holds the lease.",
        _ => "",
    }
}
