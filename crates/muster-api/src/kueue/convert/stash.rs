//! What one version of an object says and the other cannot, kept in an annotation.
//!
//! In: two objects of the same version, one as conversion there and back would leave it and one as it was.
//! Out: the list of places where they differ; and that list applied again.
//!
//! What must stay true: `restore(back, difference(back, original))` makes `back` equal to `original`. Places
//! that belong together ([`family`]) are restored all or not at all, and only while each still has the value
//! that it had after the conversion.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A place that conversion there and back would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// JSON pointer of the place.
    at: String,
    /// What the conversion leaves there; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    is: Option<Value>,
    /// What was there; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    was: Option<Value>,
}

/// Reads a field that is there, null included, as `Some`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Every place where two objects differ. Metadata is the same in both versions and is not looked at; what
/// [`put`] changes in it, it keeps itself.
pub fn difference(back: &Value, original: &Value) -> Vec<Kept> {
    let mut out = Vec::new();
    let (Value::Object(back), Value::Object(original)) = (back, original) else { return out };
    let keys: BTreeSet<&String> = back.keys().chain(original.keys()).collect();
    for key in keys.into_iter().filter(|key| *key != "metadata") {
        compare(format!("/{}", escape(key)), back.get(key), original.get(key), &mut out);
    }
    out
}

fn compare(at: String, is: Option<&Value>, was: Option<&Value>, out: &mut Vec<Kept>) {
    match (is, was) {
        (Some(Value::Object(is)), Some(Value::Object(was))) => {
            let keys: BTreeSet<&String> = is.keys().chain(was.keys()).collect();
            for key in keys {
                compare(format!("{at}/{}", escape(key)), is.get(key), was.get(key), out);
            }
        }
        (Some(Value::Array(is)), Some(Value::Array(was))) if is.len() == was.len() => {
            for (idx, (is, was)) in is.iter().zip(was).enumerate() {
                compare(format!("{at}/{idx}"), Some(is), Some(was), out);
            }
        }
        _ if is == was => {}
        _ => out.push(Kept { at, is: is.cloned(), was: was.cloned() }),
    }
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Places that say one thing together: half of them restored would be a contradiction.
const FAMILIES: [(&str, &[&str]); 3] = [
    ("admission checks", &["/spec/admissionChecks", "/spec/admissionChecksStrategy"]),
    ("priority class", &["/spec/priorityClassName", "/spec/priorityClassSource", "/spec/priorityClassRef"]),
    ("cluster source", &["/spec/kubeConfig", "/spec/clusterProfileRef", "/spec/clusterSource"]),
];

fn family(at: &str) -> &str {
    let below = |top: &str| at.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    FAMILIES.iter().find(|(_, tops)| tops.iter().any(|top| below(top))).map_or(at, |(name, _)| name)
}

/// Puts back what was kept, where nobody has changed it since.
pub fn restore(object: &mut Value, kept: &[Kept]) {
    let mut families: BTreeMap<&str, Vec<&Kept>> = BTreeMap::new();
    for place in kept {
        families.entry(family(&place.at)).or_default().push(place);
    }
    for places in families.values() {
        let unchanged =
            places.iter().all(|p| object.pointer(&p.at) == p.is.as_ref() && parent_exists(object, p));
        if unchanged {
            for place in places {
                write(object, place);
            }
        }
    }
}

fn split(at: &str) -> Option<(&str, String)> {
    let (parent, last) = at.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn parent_exists(object: &Value, place: &Kept) -> bool {
    match split(&place.at) {
        // A list keeps its length: only a place that is there can be written.
        Some((parent, _)) => match object.pointer(parent) {
            Some(Value::Object(_)) => true,
            Some(Value::Array(_)) => place.is.is_some() && place.was.is_some(),
            _ => false,
        },
        None => false,
    }
}

fn write(object: &mut Value, place: &Kept) {
    let Some((parent, last)) = split(&place.at) else { return };
    match (object.pointer_mut(parent), &place.was) {
        (Some(Value::Object(parent)), Some(was)) => {
            parent.insert(last, was.clone());
        }
        (Some(Value::Object(parent)), None) => {
            parent.remove(&last);
        }
        (Some(Value::Array(parent)), Some(was)) => {
            if let Some(element) = last.parse::<usize>().ok().and_then(|idx| parent.get_mut(idx)) {
                *element = was.clone();
            }
        }
        _ => {}
    }
}

/// Takes the annotation off the object. One that is not ours to read is dropped.
pub fn take(object: &mut Value, annotation: &str) -> Vec<Kept> {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return Vec::new() };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return Vec::new() };
    let Some(text) = annotations.remove(annotation) else { return Vec::new() };
    // `put` made what it needed to hold the annotation; where something else stood there, the list says so.
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    if metadata.is_empty()
        && let Value::Object(object) = object
    {
        object.remove("metadata");
    }
    text.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Writes the annotation, if there is something to keep.
pub fn put(object: &mut Value, annotation: &str, mut kept: Vec<Kept>) {
    if kept.is_empty() {
        return;
    }
    // `take` leaves neither an empty annotations map nor an empty metadata behind, so whatever else stands
    // there now has to be kept too.
    let Value::Object(object) = object else { return };
    let metadata = object.get("metadata").and_then(Value::as_object);
    let annotations = metadata.and_then(|m| m.get("annotations"));
    if annotations.and_then(Value::as_object).is_none_or(Map::is_empty) {
        let bare = metadata.is_none_or(|m| m.keys().all(|key| key == "annotations"));
        let (at, was) = if bare {
            ("/metadata", object.get("metadata").cloned())
        } else {
            ("/metadata/annotations", annotations.cloned())
        };
        if was.is_some() {
            kept.push(Kept { at: at.to_owned(), is: None, was });
        }
    }
    let Ok(text) = serde_json::to_string(&kept) else { return };
    let annotations = child(child(object, "metadata"), "annotations");
    annotations.insert(annotation.to_owned(), Value::String(text));
}

/// The object in a field, made if there is none.
fn child<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let slot = parent.entry(field).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object just now"),
    }
}
