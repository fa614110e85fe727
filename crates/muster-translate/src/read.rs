//! Reading JSON that others wrote: what has the wrong type is reported and treated as absent.
//!
//! In: one object as JSON. Out: its fields, and a [`Diagnostic`] for each that cannot be used. A place in the object is an
//! [`At`], which is two pointers; the path of a field is only worked out when there is something to say about it.
//!
//! *Invariant:* no input makes this fail, and one object yields at most [`MOST`] diagnostics, however wrong it is.

use crate::text;
use k8s_quantity::Quantity;
use muster_model::{Diagnostic, Key, Labels, Name, Span, Time};
use serde_json::Value;
use std::cell::RefCell;

/// More than this about one object helps nobody, and hostile input could ask for millions.
const MOST: usize = 20;
/// Text of the input that is repeated in a message is cut here.
const MOST_QUOTED: usize = 60;

/// One object, and what is wrong with it.
pub(crate) struct Object<'a> {
    kind: &'static str,
    root: &'a Value,
    found: RefCell<Vec<Diagnostic>>,
}

/// A place in an object; there may be nothing there.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    value: Option<&'a Value>,
    /// The nearest place above that exists, to name an absent field.
    object: &'a Object<'a>,
}

impl<'a> Object<'a> {
    pub(crate) fn new(kind: &'static str, root: &'a Value) -> Self {
        Self { kind, root, found: RefCell::new(Vec::new()) }
    }

    pub(crate) fn root(&'a self) -> At<'a> {
        At { value: Some(self.root), object: self }
    }

    pub(crate) fn get(&'a self, key: &str) -> At<'a> {
        self.root().get(key)
    }

    pub(crate) fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.found.into_inner()
    }

    /// Says something about a field that may be absent, by its path.
    pub(crate) fn report(&self, field: &str, message: impl Into<String>) {
        let mut found = self.found.borrow_mut();
        if found.len() < MOST {
            found.push(Diagnostic {
                object: title(self.kind, self.root),
                field: field.to_owned(),
                message: message.into(),
            });
        }
    }

    pub(crate) fn namespace(&self) -> &'a str {
        let namespace = self.root.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("");
        if namespace.is_empty() { "default" } else { namespace }
    }

    /// Its name; every object that is kept has one.
    pub(crate) fn name(&self) -> &'a str {
        self.root.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("")
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    pub(crate) fn label(&self, key: &str) -> Option<&'a str> {
        self.root.get("metadata")?.get("labels")?.get(key)?.as_str()
    }

    /// An annotation; an empty one counts as absent.
    pub(crate) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.root.get("metadata")?.get("annotations")?.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    /// Its uid, or what is as good as one: names are unique too.
    pub(crate) fn uid(&self, or: impl FnOnce() -> String) -> Name {
        match self.root.pointer("/metadata/uid").and_then(Value::as_str) {
            Some(uid) if !uid.is_empty() => uid.into(),
            _ => or().into(),
        }
    }

    pub(crate) fn created(&'a self) -> Time {
        self.get("metadata").get("creationTimestamp").time().unwrap_or_default()
    }
}

impl<'a> At<'a> {
    pub(crate) fn get(self, key: &str) -> At<'a> {
        let value = match self.value {
            Some(Value::Object(map)) => map.get(key).filter(|value| !value.is_null()),
            None | Some(Value::Null) => None,
            Some(_) => {
                self.report("must be an object of named fields; it is ignored");
                None
            }
        };
        At { value, object: self.object }
    }

    pub(crate) fn exists(self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    pub(crate) fn raw(self) -> Option<&'a Value> {
        self.value.filter(|value| !value.is_null())
    }

    pub(crate) fn str(self) -> Option<&'a str> {
        match self.raw()? {
            Value::String(text) => Some(text),
            _ => {
                self.report("must be text; it is ignored");
                None
            }
        }
    }

    /// Text that says something.
    pub(crate) fn word(self) -> Option<&'a str> {
        self.str().filter(|text| !text.is_empty())
    }

    pub(crate) fn name(self) -> Option<Name> {
        self.word().map(Name::from)
    }

    pub(crate) fn bool(self) -> Option<bool> {
        match self.raw()? {
            Value::Bool(yes) => Some(*yes),
            _ => {
                self.report("must be true or false; it is ignored");
                None
            }
        }
    }

    pub(crate) fn int(self) -> Option<i64> {
        let whole = match self.raw()? {
            Value::Number(number) => number.as_i64().or_else(|| {
                let exact = decimal(number)?;
                // `3.0` is whole, and what is too large holds at the ends of the range.
                (exact.nano() % 1_000_000_000 == 0).then(|| exact.value())
            }),
            _ => None,
        };
        if whole.is_none() {
            self.report("must be a whole number; it is ignored");
        }
        whole
    }

    /// A count that cannot be negative; what is too large for a counter holds at its end.
    pub(crate) fn count(self) -> Option<u32> {
        let number = self.int()?;
        match u32::try_from(number) {
            Ok(count) => Some(count),
            Err(_) if number < 0 => {
                self.report(format!("{number} is negative; write 0 or more"));
                None
            }
            Err(_) => {
                self.report(format!("{number} is more than any cluster has; {} is used", u32::MAX));
                Some(u32::MAX)
            }
        }
    }

    /// A number that may have a fraction, in billionths.
    pub(crate) fn nano(self) -> Option<i128> {
        let nano = match self.raw()? {
            Value::Number(number) => decimal(number).map(Quantity::nano),
            _ => None,
        };
        if nano.is_none() {
            self.report("must be a number; it is ignored");
        }
        nano
    }

    pub(crate) fn list(self) -> impl Iterator<Item = At<'a>> {
        let items: &[Value] = match self.raw() {
            Some(Value::Array(items)) => items,
            None => &[],
            Some(_) => {
                self.report("must be a list; it is ignored");
                &[]
            }
        };
        items.iter().map(move |value| At { value: Some(value), object: self.object })
    }

    pub(crate) fn entries(self) -> impl Iterator<Item = (&'a str, At<'a>)> {
        let map = match self.raw() {
            Some(Value::Object(map)) => Some(map),
            None => None,
            Some(_) => {
                self.report("must be an object of named fields; it is ignored");
                None
            }
        };
        map.into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(move |(key, value)| (key.as_str(), At { value: Some(value), object: self.object }))
    }

    pub(crate) fn names(self) -> Vec<Name> {
        self.list().filter_map(|item| item.str().map(Name::from)).collect()
    }

    pub(crate) fn labels(self) -> Labels {
        self.entries().filter_map(|(key, value)| Some((key.into(), value.str()?.into()))).collect()
    }

    pub(crate) fn quantity(self) -> Option<Quantity> {
        let parsed = match self.raw()? {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.to_string().parse().ok(),
            _ => None,
        };
        if parsed.is_none() {
            self.report(format!("{} is no quantity; write one like 2, 500m or 16Gi", self.quoted()));
        }
        parsed
    }

    pub(crate) fn time(self) -> Option<Time> {
        let text = self.word()?;
        let time = text::time(text);
        if time.is_none() {
            self.report(format!("{} is no time; write one like 2026-01-31T12:00:00Z", self.quoted()));
        }
        time
    }

    pub(crate) fn duration(self) -> Option<Span> {
        let text = self.word()?;
        let span = text::duration(text);
        if span.is_none() {
            self.report(format!("{} is no length of time; write one like 90s or 1h30m", self.quoted()));
        }
        span
    }

    /// Says something about this place.
    pub(crate) fn report(self, message: impl Into<String>) {
        if self.object.found.borrow().len() < MOST {
            let path = self.value.map(|value| path_to(self.object.root, value)).unwrap_or_default();
            self.object.report(&path, message);
        }
    }

    /// The value as it was written, for messages.
    pub(crate) fn quoted(self) -> String {
        match self.value {
            Some(Value::String(text)) => quote(text),
            Some(Value::Array(_)) => "a list".to_owned(),
            Some(Value::Object(_)) => "an object".to_owned(),
            Some(value) => value.to_string(),
            None => "nothing".to_owned(),
        }
    }
}

/// The number as it was written, without going through floats.
fn decimal(number: &serde_json::Number) -> Option<Quantity> {
    number.to_string().parse().ok()
}

/// Text of the input in quotes, not longer than a line.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// How an object is named in diagnostics.
pub(crate) fn title(kind: &str, root: &Value) -> String {
    let field =
        |name: &str| root.get("metadata").and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or("");
    let name = match field("name") {
        "" => "without a name",
        name => name,
    };
    match field("namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Finds a value by its address, without recursion: objects may be nested deeper than the stack is.
fn path_to(root: &Value, target: &Value) -> String {
    // Each entry: the value, the index of its parent in this list, and the step from there.
    enum Step<'a> {
        Root,
        Key(&'a str),
        Index(usize),
    }
    let mut seen: Vec<(&Value, usize, Step<'_>)> = vec![(root, 0, Step::Root)];
    let mut next = 0;
    while let Some((value, ..)) = seen.get(next) {
        if std::ptr::eq(*value, target) {
            break;
        }
        match value {
            Value::Object(map) => seen.extend(map.iter().map(|(key, value)| (value, next, Step::Key(key)))),
            Value::Array(items) => {
                seen.extend(items.iter().enumerate().map(|(i, value)| (value, next, Step::Index(i))));
            }
            _ => {}
        }
        next += 1;
    }
    let mut steps = Vec::new();
    let mut at = next;
    while let Some((_, parent, step)) = seen.get(at) {
        match step {
            Step::Root => break,
            Step::Key(key) => {
                steps.push(if key.contains(['.', '/']) { format!("[{key}]") } else { format!(".{key}") })
            }
            Step::Index(i) => steps.push(format!("[{i}]")),
        }
        at = *parent;
    }
    steps.reverse();
    let path = steps.concat();
    path.strip_prefix('.').map_or_else(|| path.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_of_the_wrong_type_is_named_by_its_path() {
        let value = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"l": [1, {"x.y/z": true}]}});
        let object = Object::new("Pod", &value);
        let places: Vec<_> = object.get("spec").get("l").list().collect();
        assert_eq!(places[1].get("x.y/z").str(), None);
        assert_eq!(places[0].get("deeper").int(), None);
        let found: Vec<_> = object.into_diagnostics().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "Pod n/a: spec.l[1][x.y/z]: must be text; it is ignored",
                "Pod n/a: spec.l[0]: must be an object of named fields; it is ignored"
            ]
        );
    }

    #[test]
    fn null_is_absent() {
        let value = json!({"spec": null});
        let object = Object::new("Node", &value);
        assert!(!object.get("spec").exists());
        assert_eq!(object.get("spec").get("x").int(), None);
        assert!(object.into_diagnostics().is_empty());
    }

    #[test]
    fn diagnostics_of_one_object_are_bounded() {
        let value = json!({"labels": (0..1000).map(|i| (i.to_string(), json!(i))).collect::<serde_json::Map<_, _>>()});
        let object = Object::new("Node", &value);
        assert!(object.get("labels").labels().is_empty());
        assert_eq!(object.into_diagnostics().len(), MOST);
    }

    #[test]
    fn counts_hold_at_their_end() {
        let value = json!({"a": 1_000_000_000_000_000_000_i64, "b": -1, "c": 3.0, "d": 1.5, "e": 1e300});
        let object = Object::new("PodGroup", &value);
        let read = |key| object.get(key).count();
        assert_eq!(
            (read("a"), read("b"), read("c"), read("d"), read("e")),
            (Some(u32::MAX), None, Some(3), None, Some(u32::MAX))
        );
    }
}
