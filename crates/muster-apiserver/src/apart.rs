//! An object taken apart for a write of its bookkeeping: what such a write may change is parsed, and the rest stays text.
//!
//! In: a stored object of a kind whose parts can be judged one by one. Out: the same object with another status, other finalizers or a node. A
//! pod is written half a dozen times in its life, and but for the first time its spec is neither looked at nor changed. Must stay true: what
//! is not written stays as it is, to the byte.

use crate::admission::Bookkeeping;
use crate::meta;
use crate::registry::Served;
use crate::server::{BEFORE_REVISION, add_member, add_metadata, facts_of_metadata, open_text};
use crate::store::{Draft, Facts, Pairs, Stored};
use crate::strategy;
use k8s_merge::apply::Record;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// What a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Metadata,
    Status,
    Both,
}

impl From<Bookkeeping> for Reach {
    fn from(what: Bookkeeping) -> Self {
        match what {
            Bookkeeping::Status => Reach::Status,
            Bookkeeping::Owners | Bookkeeping::Labels => Reach::Metadata,
        }
    }
}

/// A stored object, in parts.
pub struct Apart {
    /// `apiVersion`, `kind`, `metadata` without the record of field managers, and `status` where it is asked for. Of metadata that stays as it is, only
    /// what rules may ask of it.
    pub members: Value,
    /// The record of field managers.
    pub record: Record,
    /// The members of metadata as they are, comma and all, without revision and record; where they stay so.
    metadata: Option<Box<str>>,
    /// Every other member.
    rest: Vec<(String, Box<RawValue>)>,
    with_status: bool,
    facts: Arc<Facts>,
}

impl Apart {
    /// Takes a stored object apart for a write that reaches so far; `None` if it cannot be read.
    pub fn of(stored: &Stored, served: &Served, reach: Reach) -> Option<Apart> {
        let mut from = serde_json::Deserializer::from_str(&stored.text);
        let with_status = reach != Reach::Metadata;
        let metadata = if reach == Reach::Status { metadata_text(stored) } else { None };
        let seed = TopSeed { with_status, in_brief: metadata.is_some() };
        let Top { mut members, record, rest } = seed.deserialize(&mut from).ok()?;
        members.insert("apiVersion".into(), served.storage_api_version.as_str().into());
        members.insert("kind".into(), served.kind.as_str().into());
        let record = match record {
            Some(text) => Record::read(text.get()).ok()?,
            None => Record::default(),
        };
        Some(Apart {
            members: Value::Object(members),
            record,
            metadata: metadata.map(Box::from),
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
        if let Some(text) = &self.metadata {
            let others: Map<String, Value> =
                serde_json::from_str(&format!("{{{}}}", text.trim_start_matches(','))).unwrap_or_default();
            meta::edit(&mut whole).extend(others);
        }
        for (name, text) in &self.rest {
            whole[name.as_str()] = serde_json::from_str(text.get()).unwrap_or_default();
        }
        show_record(&self.record, &mut whole);
        whole
    }

    /// The stored form. `node` is where the pod is from now on.
    pub fn draft(&self, served: &Served, node: Option<&str>) -> Draft {
        let add = |text: &mut Vec<u8>| match &self.metadata {
            Some(known) => {
                text.extend_from_slice(known.as_bytes());
                0..0
            }
            None => add_metadata(text, self.members.get("metadata").and_then(Value::as_object)),
        };
        let (mut text, record) = open_text(add, &self.record);
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
        let mut facts = match &self.metadata {
            Some(_) => Facts { fields: Pairs::default(), record: None, ..(*self.facts).clone() },
            None => facts_of_metadata(&self.members),
        };
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

/// The members of an object's metadata as they are stored, without its revision and its record. `None` where the record is not known to be the last of
/// them.
fn metadata_text(stored: &Stored) -> Option<&str> {
    let (begin, end) = stored.facts.record?;
    let (metadata, record) = stored.text.split_at_checked(stored.text.len().checked_sub(begin as usize)?)?;
    let behind = record.get(begin.checked_sub(end)? as usize..)?;
    let (_, others) = metadata.strip_prefix(BEFORE_REVISION)?.split_once('"')?;
    behind.starts_with('}').then_some(others)
}

/// The members of a stored object: those that bookkeeping is about, and the text of the others.
struct Top {
    members: Map<String, Value>,
    record: Option<Box<RawValue>>,
    rest: Vec<(String, Box<RawValue>)>,
}

struct TopSeed {
    with_status: bool,
    in_brief: bool,
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
                    let metadata =
                        map.next_value_seed(Metadata { record: &mut top.record, in_brief: self.in_brief })?;
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
    /// Without what no rule about a status asks for.
    in_brief: bool,
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
            match name.as_str() {
                "managedFields" => *self.record = Some(map.next_value()?),
                "labels" | "annotations" | "ownerReferences" if self.in_brief => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => drop(members.insert(name, map.next_value()?)),
            }
        }
        Ok(members)
    }
}
