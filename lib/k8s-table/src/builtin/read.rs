//! Reading fields of an object whose shape is not known. A path of field names goes in; what is missing, null or of
//! another type comes out as empty.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{Cell, age_of, parse_time};

/// An object, or a part of one, and the time it is looked at.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub(super) value: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Object<'a> {
    /// The field at a path of names with dots in between.
    pub(super) fn get(self, path: &str) -> Option<&'a Value> {
        path.split('.').try_fold(self.value, |value, name| value.get(name)).filter(|value| !value.is_null())
    }

    pub(super) fn has(self, path: &str) -> bool {
        self.get(path).is_some()
    }

    /// Text that is there, if empty.
    pub(super) fn text_if_set(self, path: &str) -> Option<&'a str> {
        self.get(path)?.as_str()
    }

    pub(super) fn text(self, path: &str) -> &'a str {
        self.text_if_set(path).unwrap_or_default()
    }

    /// Text, or something else when it is missing or empty.
    pub(super) fn text_or(self, path: &str, other: &'a str) -> &'a str {
        self.text_if_set(path).filter(|text| !text.is_empty()).unwrap_or(other)
    }

    pub(super) fn integer_if_set(self, path: &str) -> Option<i64> {
        self.get(path)?.as_i64()
    }

    pub(super) fn integer(self, path: &str) -> i64 {
        self.integer_if_set(path).unwrap_or(0)
    }

    pub(super) fn flag(self, path: &str) -> bool {
        self.flag_or(path, false)
    }

    pub(super) fn flag_or(self, path: &str, other: bool) -> bool {
        self.get(path).and_then(Value::as_bool).unwrap_or(other)
    }

    /// The elements of a list.
    pub(super) fn list(self, path: &str) -> impl DoubleEndedIterator<Item = Object<'a>> + ExactSizeIterator {
        let items = self.get(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let now = self.now;
        items.iter().map(move |value| Object { value, now })
    }

    /// The texts in a list.
    pub(super) fn texts(self, path: &str) -> Vec<&'a str> {
        self.list(path).filter_map(|item| item.value.as_str()).collect()
    }

    pub(super) fn map(self, path: &str) -> Option<&'a Map<String, Value>> {
        self.get(path)?.as_object()
    }

    pub(super) fn map_len(self, path: &str) -> usize {
        self.map(path).map_or(0, Map::len)
    }

    pub(super) fn time(self, path: &str) -> Option<Timestamp> {
        parse_time(self.text(path))
    }

    pub(super) fn age_at(self, path: &str) -> String {
        age_of(self.get(path), self.now)
    }

    /// The condition of a type; the last one when there are several.
    pub(super) fn condition(self, type_: &str) -> Option<Object<'a>> {
        self.list("status.conditions").rfind(|condition| condition.text("type") == type_)
    }

    pub(super) fn annotation(self, name: &str) -> Option<&'a str> {
        self.map("metadata.annotations")?.get(name)?.as_str()
    }

    pub(super) fn is_deleted(self) -> bool {
        self.has("metadata.deletionTimestamp")
    }

    pub(super) fn name(self) -> Cell {
        self.cell("metadata.name")
    }

    pub(super) fn age(self) -> Cell {
        self.age_at("metadata.creationTimestamp").into()
    }

    pub(super) fn created_at(self) -> Cell {
        match self.time("metadata.creationTimestamp") {
            Some(time) => {
                Timestamp::from_second(time.as_second()).map_or(Cell::Null, |time| time.to_string().into())
            }
            None => Cell::from("0001-01-01T00:00:00Z"),
        }
    }

    pub(super) fn cell(self, path: &str) -> Cell {
        self.text(path).into()
    }

    pub(super) fn cell_or(self, path: &str, other: &str) -> Cell {
        self.text_if_set(path).unwrap_or(other).into()
    }

    pub(super) fn integer_cell(self, path: &str) -> Cell {
        self.integer(path).into()
    }

    /// How many elements a list has.
    pub(super) fn count_cell(self, path: &str) -> Cell {
        count(self.list(path).len())
    }

    /// Names and images of the containers of a pod template.
    pub(super) fn containers(self, path: &str) -> [Cell; 2] {
        let join = |field: &str| {
            let texts: Vec<_> = self.list(path).map(|container| container.text(field)).collect();
            Cell::from(texts.join(","))
        };
        [join("name"), join("image")]
    }

    /// A quantity as the server stores it; a missing one is zero.
    pub(super) fn quantity(self, path: &str) -> String {
        self.get(path).map_or_else(|| "0".to_owned(), quantity)
    }
}

pub(super) fn count(n: usize) -> Cell {
    i64::try_from(n).unwrap_or(i64::MAX).into()
}

/// A quantity as the server stores it. One that it would refuse stays as it is.
pub(super) fn quantity(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    k8s_quantity::stored_text(&text).unwrap_or(text)
}

/// Labels as `a=1,b=2`, or `<none>`.
pub(super) fn labels(labels: Option<&Map<String, Value>>) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut pairs: Vec<_> = labels.into_iter().flatten().map(|(k, v)| (k.clone(), text(v))).collect();
    pairs.sort_unstable();
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

/// A label selector in the form that `-l` takes, or nothing when its expressions are not valid.
pub(super) fn selector(selector: Option<Object<'_>>) -> Option<String> {
    let Some(selector) = selector else { return Some(String::new()) };
    let mut requirements: Vec<(String, String)> = Vec::new();
    for (key, value) in selector.map("matchLabels").into_iter().flatten() {
        requirements.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.list("matchExpressions") {
        let key = expression.text("key");
        let mut values = expression.texts("values");
        values.sort_unstable();
        let joined = values.join(",");
        let text = match (expression.text("operator"), values.is_empty()) {
            ("In", false) => format!("{key} in ({joined})"),
            ("NotIn", false) => format!("{key} notin ({joined})"),
            ("Exists", true) => key.to_owned(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key.to_owned(), text));
    }
    requirements.sort_by(|a, b| a.0.cmp(&b.0));
    Some(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

/// A label selector with a word for none.
pub(super) fn selector_cell(object: Object<'_>, path: &str) -> Cell {
    let part = object.get(path).map(|value| Object { value, now: object.now });
    match selector(part) {
        Some(text) if text.is_empty() => Cell::from("<none>"),
        Some(text) => text.into(),
        None => Cell::from("<error>"),
    }
}

/// The first few of a list, and how many more there are.
pub(super) fn first_few(list: &[String], n_shown: usize) -> String {
    let text = list.get(..n_shown).unwrap_or(list).join(",");
    match list.len().checked_sub(n_shown) {
        None | Some(0) => text,
        Some(n_more) => format!("{text} + {n_more} more..."),
    }
}
