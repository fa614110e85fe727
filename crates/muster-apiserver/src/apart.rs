//! An object taken apart for a write of its bookkeeping: what such a write may change is parsed, and the rest stays text.
//!
//! In: a stored object of a kind whose parts can be judged one by one. Out: the same object with another status, other finalizers or a node. A
//! pod is written half a dozen times in its life, and but for the first time its spec is neither looked at nor changed. Must stay true: what
//! is not written stays as it is, to the byte.

use crate::meta;
use crate::registry::Served;
use crate::server::{BEFORE_REVISION, add_member, facts_of_metadata, open_text};
use crate::store::{Draft, Facts, Stored};
use crate::strategy;
use k8s_merge::apply::Record;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// A stored object, in parts.
pub struct Apart {
    /// `apiVersion`, `kind`, `metadata` without the record of field managers, and `status` where it is asked for.
    pub members: Value,
    /// The record of field managers.
    pub record: Record,
    /// Every other member.
    rest: Vec<(String, Box<RawValue>)>,
    with_status: bool,
    facts: Arc<Facts>,
}

impl Apart {
    /// Takes a stored object apart, with or without its status; `None` if it cannot be read.
    pub fn of(stored: &Stored, served: &Served, with_status: bool) -> Option<Apart> {
        let mut from = serde_json::Deserializer::from_str(&stored.text);
        let Top { mut members, record, rest } = TopSeed { with_status }.deserialize(&mut from).ok()?;
        members.insert("apiVersion".into(), served.storage_api_version.as_str().into());
        members.insert("kind".into(), served.kind.as_str().into());
        let record = match record {
            Some(text) => Record::read(text.get()).ok()?,
            None => Record::default(),
        };
        Some(Apart {
            members: Value::Object(members),
            record,
            rest,
            with_status,
            facts: stored.facts.clone(),
        })
    }

    /// A member that was left as text, parsed.
    pub fn read(&self, name: &str) -> Option<Value> {
        self.rest.iter().find(|(n, _)| n == name).and_then(|(_, text)| serde_json::from_str(text.get()).ok())
    }

    /// Puts a value in the place of a member that was left as text.
    pub fn write(&mut self, name: &str, value: &Value) {
        let Ok(text) = serde_json::value::to_raw_value(value) else { return };
        match self.rest.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = text,
            None => self.rest.push((name.to_string(), text)),
        }
    }

    /// The object in one piece, to be shown to somebody.
    pub fn whole(&self) -> Value {
        let mut whole = self.members.clone();
        for (name, text) in &self.rest {
            whole[name.as_str()] = serde_json::from_str(text.get()).unwrap_or_default();
        }
        show_record(&self.record, &mut whole);
        whole
    }

    /// The stored form. `node` is where the pod is from now on.
    pub fn draft(&self, served: &Served, node: Option<&str>) -> Draft {
        let metadata = self.members.get("metadata").and_then(Value::as_object);
        let (mut text, record) = open_text(metadata, &self.record);
        for (name, raw) in &self.rest {
            add_member(&mut text, name, raw);
        }
        if let Some(status) = self.members.get("status") {
            add_member(&mut text, "status", status);
        }
        text.push(b'}');
        let text = String::from_utf8(text).expect("serde_json and the record write UTF-8");
        let mut facts = self.facts(served, node);
        facts.record = from_the_end(&text, record);
        Draft::new(BEFORE_REVISION, text, facts)
    }

    fn facts(&self, served: &Served, node: Option<&str>) -> Facts {
        let mut facts = facts_of_metadata(&self.members);
        facts.fields = strategy::selectable(served, |label| match label.split_once('.') {
            Some(("spec", "nodeName")) if node.is_some() => node.map(str::to_string),
            Some(("spec", _)) => self.facts.field(label).map(str::to_string),
            Some(("status", _)) if !self.with_status => self.facts.field(label).map(str::to_string),
            _ => strategy::field(served, &self.members, label),
        });
        facts
    }
}

/// Puts a record of field managers into its object, to be shown to somebody.
pub fn show_record(record: &Record, object: &mut Value) {
    if record.is_empty() {
        return;
    }
    let mut text = String::new();
    record.print(&mut text);
    let list = serde_json::from_str(&text).unwrap_or_default();
    meta::edit(object).insert("managedFields".into(), list);
}

/// Adds a record of field managers to the text of its object's metadata.
pub fn add_record(text: &mut Vec<u8>, record: &Record) {
    if record.is_empty() {
        return;
    }
    let mut list = String::with_capacity(2 << 10);
    record.print(&mut list);
    text.extend_from_slice(b",\"managedFields\":");
    text.extend_from_slice(list.as_bytes());
}

/// A place in a text, counted from its end: the revision that the store will put before the text changes nothing about it.
pub fn from_the_end(text: &str, place: Range<usize>) -> Option<(u32, u32)> {
    let from_end = |at: usize| u32::try_from(text.len() - at).ok();
    if place.is_empty() { None } else { from_end(place.start).zip(from_end(place.end)) }
}

/// The members of a stored object: those that bookkeeping is about, and the text of the others.
struct Top {
    members: Map<String, Value>,
    record: Option<Box<RawValue>>,
    rest: Vec<(String, Box<RawValue>)>,
}

struct TopSeed {
    with_status: bool,
}

impl<'de> DeserializeSeed<'de> for TopSeed {
    type Value = Top;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Top, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopSeed {
    type Value = Top;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top, A::Error> {
        let mut top = Top { members: Map::new(), record: None, rest: Vec::new() };
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "metadata" => {
                    let metadata = map.next_value_seed(Metadata { record: &mut top.record })?;
                    top.members.insert(name, Value::Object(metadata));
                }
                "status" if self.with_status => {
                    top.members.insert(name, map.next_value()?);
                }
                _ => top.rest.push((name, map.next_value()?)),
            }
        }
        Ok(top)
    }
}

/// Metadata without its record, which goes elsewhere as text.
struct Metadata<'a> {
    record: &'a mut Option<Box<RawValue>>,
}

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "managedFields" {
                *self.record = Some(map.next_value()?);
            } else {
                members.insert(name, map.next_value()?);
            }
        }
        Ok(members)
    }
}
