//! The record of field managers as text, read only as far as a write is about it.
//!
//! In: the text of `metadata.managedFields`, and writes of some members of its object, or an object that is being made. Out: the same text brought
//! up to date. Must stay true: the outcome is that of [`update`](super::update()) on the whole objects. What a write costs depends on what it changes: most managers of a pod
//! own parts of its spec, and a new status leaves them as they are.

use super::Request;
use super::creation::{self, Except};
use super::fields::FieldSet;
use super::managers::{Manager, Operation, ReadError};
use super::typed::{Type, check, compare};
use super::update::{MAX_UPDATERS, NOT_OWNED, hand_over, has_uid, writer};
use crate::Shape;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// What `metadata.managedFields` says.
///
/// ```
/// use k8s_merge::{Untyped, apply::{FieldSet, Record, Request}};
/// use serde_json::json;
///
/// let mut record = Record::read(r#"[{"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
///     "fieldsV1": {"f:data": {"f:color": {}}}}]"#)?;
/// let request = Request {
///     manager: "clock", api_version: "v1", subresource: Some("status"), now: "2026-01-01T00:00:00Z", force: false,
///     ignored: FieldSet::EMPTY,
/// };
/// record.attribute(&["f:status"], &json!({}), &json!({"status": {"time": 1}}), Untyped, &request);
/// let mut text = String::new();
/// record.print(&mut text);
/// assert!(text.contains(r#""fieldsV1":{"f:data": {"f:color": {}}}"#), "left as it was: {text}");
/// assert!(text.contains(r#""fieldsV1":{"f:status":{".":{},"f:time":{}}},"manager":"clock""#), "{text}");
/// # Ok::<(), k8s_merge::apply::ReadError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Record {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Without its fields while these are text.
    manager: Manager,
    fields: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    fields_type: Cow<'a, str>,
    #[serde(borrow, default, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

impl Record {
    /// Reads the list. It has to be as [`update`](super::update()) leaves it: with one entry for each manager.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let written: Vec<Written<'_>> = serde_json::from_str(text).map_err(|_| ReadError::Malformed)?;
        let entry = |written: Written<'_>| {
            let operation = match &*written.operation {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ReadError::Operation),
            };
            if written.fields_type != "FieldsV1" {
                return Err(ReadError::Malformed);
            }
            let optional =
                |text: Option<Cow<'_, str>>| text.map(Cow::into_owned).filter(|text| !text.is_empty());
            let manager = Manager {
                name: written.manager.into_owned(),
                operation,
                api_version: written.api_version.into_owned(),
                subresource: optional(written.subresource),
                time: optional(written.time),
                fields: FieldSet::new(),
            };
            Ok(Entry { manager, fields: written.fields.map(|fields| fields.get().into()) })
        };
        Ok(Self { entries: written.into_iter().map(entry).collect::<Result<_, _>>()? })
    }

    /// The record of an object that is being made, of which its maker owns what is not in `blank`. `None` if it takes an
    /// [`update`](super::update()) to tell: the object brings a record of its own, or `blank` has more to compare with than objects and empty lists.
    pub fn of_new<S: Shape>(
        blank: Option<&Value>,
        new: &Value,
        shape: S,
        request: &Request<'_>,
    ) -> Option<Self> {
        let is_recorded =
            |object: &Value| object.get("metadata").is_some_and(|m| m.get("managedFields").is_some());
        if is_recorded(new) || blank.is_some_and(|blank| is_recorded(blank) || has_uid(blank)) {
            return None;
        }
        let of = Type::Known(shape);
        if blank.is_some_and(|blank| check(of, blank, true).is_err()) || check(of, new, true).is_err() {
            return Some(Self::default());
        }
        let nothing = Value::Object(Map::new());
        let except = Except { ignored: request.ignored, unowned: &NOT_OWNED };
        let mut fields = String::with_capacity(1 << 10);
        let is_any = creation::print(of, blank.unwrap_or(&nothing), new, except, &mut fields).ok()?;
        let who = writer(request, Operation::Update);
        let manager = Manager {
            name: who.name,
            operation: who.operation,
            api_version: who.api_version,
            subresource: who.subresource,
            time: Some(request.now.to_owned()),
            fields: FieldSet::new(),
        };
        let entry = Entry { manager, fields: Some(fields.into()) };
        Some(Self { entries: is_any.then_some(entry).into_iter().collect() })
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records a write that is not an apply. `before` and `after` hold the members that may differ, with their metadata; every field that may
    /// differ is on a path with one of the `steps`, as `fieldsV1` spells them.
    pub fn attribute<S: Shape>(
        &mut self,
        steps: &[&str],
        before: &Value,
        after: &Value,
        shape: S,
        request: &Request<'_>,
    ) {
        if self.is_empty() && has_uid(before) {
            return;
        }
        let of = Type::Known(shape);
        if check(of, after, true).is_err() {
            self.entries.clear();
            return;
        }
        let changes = compare(of, before, after).without(request.ignored);
        let who = writer(request, Operation::Update);
        // Old updaters are merged when there are too many, and that is about all of them.
        let is_full = self.entries.len() >= MAX_UPDATERS;
        let (theirs, others): (Vec<Entry>, Vec<Entry>) = self.entries.drain(..).partition(|entry| {
            let is_near = |fields: &str| steps.iter().any(|step| fields.contains(step));
            is_full || entry.fields.as_deref().is_none_or(is_near) || entry.manager.identity() == who
        });
        let mut managers: Vec<Manager> = theirs.into_iter().map(Entry::into_manager).collect();
        hand_over(changes, &mut managers, request);
        self.entries = others;
        self.entries.extend(managers.into_iter().map(|manager| Entry { manager, fields: None }));
    }

    /// Adds the list to `out`, in the order of the API server.
    pub fn print(&self, out: &mut String) {
        let mut sorted: Vec<&Entry> = self.entries.iter().collect();
        sorted.sort_by(|a, b| a.manager.place().cmp(&b.manager.place()));
        out.push('[');
        for (n, entry) in sorted.into_iter().enumerate() {
            out.push_str(if n > 0 { "," } else { "" });
            entry.print(out);
        }
        out.push(']');
    }
}

impl Entry {
    fn into_manager(self) -> Manager {
        let fields = self.fields.and_then(|text| serde_json::from_str(&text).ok());
        Manager { fields: fields.unwrap_or(self.manager.fields), ..self.manager }
    }

    fn print(&self, out: &mut String) {
        let text = |name: &str, value: &str, out: &mut String| {
            if !value.is_empty() {
                out.push_str(name);
                crate::go_format::json_string(value, false, out);
            }
        };
        let manager = &self.manager;
        out.push_str("{\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
        match &self.fields {
            Some(fields) => out.push_str(fields),
            None => manager.fields.print(out),
        }
        text(",\"manager\":", &manager.name, out);
        text(",\"operation\":", manager.operation.as_str(), out);
        text(",\"apiVersion\":", &manager.api_version, out);
        text(",\"subresource\":", manager.subresource.as_deref().unwrap_or_default(), out);
        text(",\"time\":", manager.time.as_deref().unwrap_or_default(), out);
        out.push('}');
    }
}
