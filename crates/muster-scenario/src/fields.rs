//! Reading an object field by field, so that every mistake is told with its path and what may stand there.
//!
//! In: a JSON value (YAML becomes one). Out: its fields, or a [`Problem`]. A field that nobody asked for is a mistake too, for an
//! expectation that is misspelt would otherwise hold for ever.

use serde_json::{Map, Value};
use std::fmt;

/// What is wrong in a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `expect.pods.default/a-0.phase`; empty for the whole.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, message } = self;
        if path.is_empty() { write!(f, "{message}") } else { write!(f, "{path}: {message}") }
    }
}

impl std::error::Error for Problem {}

pub type Read<T> = Result<T, Problem>;

pub fn problem<T>(path: &str, message: impl Into<String>) -> Read<T> {
    Err(Problem { path: path.to_string(), message: message.into() })
}

/// The fields of one object. Null and absent are the same.
pub struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

/// The path of a field within an object at a path.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

/// What a value is, in the words of a message.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value, path: &str) -> Read<Self> {
        match value {
            Value::Object(map) => Ok(Self { path: path.to_string(), map, known: Vec::new() }),
            other => problem(path, format!("this is {}; write a mapping", kind(other))),
        }
    }

    pub fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn wrong<T>(&self, key: &str, value: &Value, wanted: &str) -> Read<T> {
        problem(&self.path(key), format!("this is {}; write {wanted}", kind(value)))
    }

    pub fn text(&mut self, key: &'static str) -> Read<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            // `name: 1` is a number in YAML, and nobody means one.
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => self.wrong(key, other, "text"),
        }
    }

    pub fn flag(&mut self, key: &'static str) -> Read<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => self.wrong(key, other, "true or false"),
        }
    }

    /// A whole number that is not negative and at most `most`.
    pub fn count(&mut self, key: &'static str, most: u32) -> Read<Option<u32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= most) {
            Some(n) => Ok(Some(n)),
            None => problem(&self.path(key), format!("write a whole number from 0 to {most}")),
        }
    }

    pub fn integer(&mut self, key: &'static str) -> Read<Option<i64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_i64() {
            Some(n) => Ok(Some(n)),
            None => self.wrong(key, value, "a whole number"),
        }
    }

    /// A number in thousandths.
    pub fn milli(&mut self, key: &'static str) -> Read<Option<i64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match milli(value) {
            Some(n) => Ok(Some(n)),
            None => self.wrong(key, value, "a number"),
        }
    }

    pub fn list(&mut self, key: &'static str) -> Read<&'a [Value]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => self.wrong(key, other, "a list"),
        }
    }

    /// A list of texts; one text alone is a list of one.
    pub fn texts(&mut self, key: &'static str) -> Read<Option<Vec<String>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        texts(value, &self.path(key)).map(Some)
    }

    pub fn entries(&mut self, key: &'static str) -> Read<Vec<(&'a String, &'a Value)>> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Object(map)) => Ok(map.iter().collect()),
            Some(other) => self.wrong(key, other, "a mapping"),
        }
    }

    /// Everything was asked for that is there.
    pub fn finish(mut self) -> Read<()> {
        for key in self.map.keys() {
            if !self.known.contains(&key.as_str()) {
                self.known.sort_unstable();
                self.known.dedup();
                let known = self.known.join(", ");
                return problem(
                    &self.path(key),
                    format!("there is no such field; the fields here are {known}"),
                );
            }
        }
        Ok(())
    }
}

/// A number in thousandths, from a JSON number. Too many decimals are rounded.
pub fn milli(value: &Value) -> Option<i64> {
    let number = value.as_f64().filter(|n| n.is_finite())?;
    let scaled = (number * 1000.0).round();
    // Beyond 2^53 a float has no thousandths left to speak of.
    (scaled.abs() < 9e15).then_some(scaled as i64)
}

pub fn texts(value: &Value, path: &str) -> Read<Vec<String>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    items
        .iter()
        .enumerate()
        .map(|(i, item)| match item {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            other => problem(&format!("{path}[{i}]"), format!("this is {}; write text", kind(other))),
        })
        .collect()
}
