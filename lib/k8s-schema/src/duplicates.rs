//! Duplicate fields: JSON permits a name twice in one object and readers keep the last; strict field validation reports it.
//!
//! In: the text of a request. Out: the dotted paths of fields that are there more than once, each once, in order. Nesting is
//! bounded by the limit of the JSON reader.

use std::collections::BTreeSet;

use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The text is not JSON.
#[derive(Debug, thiserror::Error)]
#[error("malformed JSON")]
pub struct MalformedJson(#[from] serde_json::Error);

/// The dotted paths of fields that a JSON text holds more than once, as in `duplicate field "spec.a"`.
///
/// ```
/// let text = br#"{"spec": {"a": 1, "a": 2}, "list": [{"b": 1, "b": 1}]}"#;
/// assert_eq!(k8s_schema::duplicate_keys(text).unwrap(), ["spec.a", "list[0].b"]);
/// ```
pub fn duplicate_keys(json: &[u8]) -> Result<Vec<String>, MalformedJson> {
    let mut found = Found { path: String::new(), fields: Vec::new() };
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.deserialize_any(Node(&mut found))?;
    reader.end()?;
    Ok(found.fields)
}

/// Whether a JSON text has no more names than the value that was read from it: then none of its fields is there twice. Nearly all texts are like that,
/// and this takes a small part of the time of reading one again.
///
/// ```
/// use k8s_schema::is_each_field_once;
///
/// for (text, expected) in [(r#"{"a": {"b": ":"}}"#, true), (r#"{"a": 1, "a": 2}"#, false)] {
///     assert_eq!(is_each_field_once(text.as_bytes(), &serde_json::from_str(text).unwrap()), expected);
/// }
/// ```
#[must_use]
pub fn is_each_field_once(json: &[u8], read: &Value) -> bool {
    n_names(json) == n_members(read)
}

/// Every name is followed by a colon, and no other colon stands outside of texts.
fn n_names(json: &[u8]) -> usize {
    let mut bytes = json.iter();
    let mut n = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => n += 1,
            b'"' => skip_text(&mut bytes),
            _ => {}
        }
    }
    n
}

fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

fn n_members(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len() + members.values().map(n_members).sum::<usize>(),
        Value::Array(items) => items.iter().map(n_members).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

struct Found {
    path: String,
    fields: Vec<String>,
}

struct Node<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let len = self.0.path.len();
        let mut index = 0_usize;
        loop {
            self.0.path.push_str(&format!("[{index}]"));
            let next = items.next_element_seed(Node(self.0))?;
            self.0.path.truncate(len);
            if next.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let len = self.0.path.len();
        let mut seen = BTreeSet::new();
        let mut reported = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if len > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            if seen.contains(&key) && reported.insert(key.clone()) {
                self.0.fields.push(self.0.path.clone());
            }
            seen.insert(key);
            entries.next_value_seed(Node(self.0))?;
            self.0.path.truncate(len);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{duplicate_keys, is_each_field_once};

    #[track_caller]
    fn check(json: &str, expected: &[&str]) {
        assert_eq!(duplicate_keys(json.as_bytes()).unwrap(), expected, "{json}");
        let read = serde_json::from_str(json).unwrap();
        assert_eq!(is_each_field_once(json.as_bytes(), &read), expected.is_empty(), "{json}");
    }

    #[test]
    fn finds_duplicates() {
        check("{}", &[]);
        check("1.5", &[]);
        check(r#"{"a":1,"b":null}"#, &[]);
        check(r#"{"a":1,"a":2,"a":3}"#, &["a"]);
        check(r#"{"a":{"b":1,"b":"x"}}"#, &["a.b"]);
        check(r#"{"a":[true,{"b":1,"b":-2}]}"#, &["a[1].b"]);
        check(r#"{"a":1,"\u0061":2}"#, &["a"]);
        check(r#"{"a\":\\":"\\\":","b:":[":"]}"#, &[]);
        check(r#"{"a":{"x":1},"a":{"y":1,"y":2}}"#, &["a", "a.y"]);
    }

    #[test]
    fn refuses_what_is_not_json() {
        for bad in ["", "{", "{}{}", "[1,]", "\u{0}"] {
            assert!(duplicate_keys(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(duplicate_keys("[".repeat(100_000).as_bytes()).is_err());
    }
}
