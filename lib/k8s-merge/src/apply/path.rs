//! Paths to fields, and their text.
//!
//! In: member names of `fieldsV1` such as `f:spec` or `k:{"name":"web"}`. Out: typed steps with a total order, and both
//! notations, the stored one and the one of messages (`.spec.containers[name="web"]`). Must stay true: reading what was
//! written gives the same step, and steps sort as the API server sorts them: fields, keys, values, indexes.

use crate::go_format::{self, Quoted};
use serde_json::{Number, Value};
use std::cmp::Ordering;
use std::fmt;

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// `f:name`: a member of an object.
    Field(String),
    /// `k:{"name":"web"}`: the element of a list that has these key fields, sorted by name.
    Key(Vec<(String, Literal)>),
    /// `v:"web"`: the element of a list that is this value.
    Value(Literal),
    /// `i:3`: the element of a list at this position.
    Index(i64),
}

/// A path from the root of an object to one of its fields. The empty path is the object itself.
///
/// ```
/// use k8s_merge::apply::{Path, PathElement};
///
/// let path = Path::from_iter(["f:spec", "f:containers", r#"k:{"name":"web"}"#, "f:image"]
///     .map(|text| PathElement::parse(text).expect("well formed").expect("of a known sort")));
/// assert_eq!(path.to_string(), r#".spec.containers[name="web"].image"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

/// A JSON value inside a path. Numbers are equal when they are numerically equal: `80` is `80.0`.
#[derive(Clone, Debug)]
pub struct Literal(pub Value);

/// Why the text of a [`PathElement`] cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// There is no sort in front.
    #[error("missing colon: {0}")]
    Colon(String),
    /// What follows the sort is not what it must be.
    #[error("malformed path element: {0}")]
    Malformed(String),
}

impl PathElement {
    /// Reads the stored notation. `Ok(None)` is an element of a sort that this version does not know; readers skip those.
    pub fn parse(text: &str) -> Result<Option<Self>, PathError> {
        let malformed = || PathError::Malformed(text.to_owned());
        let (sort, rest) = text
            .split_once(':')
            .filter(|(sort, _)| sort.len() == 1)
            .ok_or_else(|| PathError::Colon(text.to_owned()))?;
        Ok(Some(match sort {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(Literal(serde_json::from_str(rest).map_err(|_| malformed())?)),
            "k" => {
                let fields: serde_json::Map<String, Value> =
                    serde_json::from_str(rest).map_err(|_| malformed())?;
                Self::key(fields.into_iter().map(|(name, value)| (name, Literal(value))))
            }
            "i" => Self::Index(rest.parse().map_err(|_| malformed())?),
            _ => return Ok(None),
        }))
    }

    /// An element of a list by its key fields, given in any order.
    pub fn key(fields: impl IntoIterator<Item = (String, Literal)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    /// The stored notation.
    #[must_use]
    pub fn stored(&self) -> String {
        let mut out = String::with_capacity(32);
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                stored_key(fields.iter().map(|(name, value)| (name.as_str(), &value.0)), &mut out);
            }
            Self::Value(value) => stored_value(&value.0, &mut out),
            Self::Index(at) => {
                out.push_str("i:");
                out.push_str(&at.to_string());
            }
        }
        out
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

impl FromIterator<PathElement> for Path {
    fn from_iter<I: IntoIterator<Item = PathElement>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl Path {
    /// A path of member names: `Path::fields(["spec", "replicas"])`.
    pub fn fields<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().map(|name| PathElement::Field(name.to_owned())).collect()
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Null => f.write_str("null"),
            Value::String(text) => write!(f, "{}", Quoted(text)),
            value @ (Value::Bool(_) | Value::Number(_)) => write!(f, "{}", go_format::Plain(value)),
            Value::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { "," } else { "" }, Literal(item.clone()))?;
                }
                f.write_str("]")
            }
            Value::Object(members) => {
                members.iter().try_for_each(|(name, member)| write!(f, "{name}={}", Literal(member.clone())))
            }
        }
    }
}

impl From<&str> for Literal {
    fn from(text: &str) -> Self {
        Self(Value::from(text))
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// Adds the stored notation of an element with these key fields.
pub(super) fn stored_key<'a>(fields: impl Iterator<Item = (&'a str, &'a Value)>, out: &mut String) {
    out.push_str("k:{");
    for (i, (name, value)) in fields.enumerate() {
        if i > 0 {
            out.push(',');
        }
        go_format::json_string(name, false, out);
        out.push(':');
        go_format::json(value, out);
    }
    out.push('}');
}

/// Adds the stored notation of an element that is this value.
pub(super) fn stored_value(value: &Value, out: &mut String) {
    out.push_str("v:");
    go_format::json(value, out);
}

/// A total order over JSON values: numbers, strings, booleans, lists, objects, null.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differing = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let sorted = |members: &serde_json::Map<String, Value>| {
                let mut names: Vec<String> = members.keys().cloned().collect();
                names.sort_unstable();
                names
            };
            let (names, others) = (sorted(a), sorted(b));
            for (name, other) in names.iter().zip(&others) {
                let order = name.cmp(other).then_with(|| match (a.get(name), b.get(other)) {
                    (Some(a), Some(b)) => compare(a, b),
                    _ => Ordering::Equal,
                });
                if order.is_ne() {
                    return order;
                }
            }
            names.len().cmp(&others.len())
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same, numbers being compared by what they amount to.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    a == b || compare(a, b).is_eq()
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Compares exactly. Going through floats would make `2^53` equal to `2^53 + 1` in one direction only, and sets need a total order.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // One of them has a fraction or is beyond all integers, so that no two different numbers become the same float.
        _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
    }
}

fn whole(n: &Number) -> Option<i128> {
    // 2^126, well beyond any integer that JSON values hold, and within what the result holds.
    const BEYOND: f64 = 85_070_591_730_234_615_865_843_651_857_942_052_864.0;
    if let Some(n) = n.as_i64() {
        return Some(n.into());
    }
    if let Some(n) = n.as_u64() {
        return Some(n.into());
    }
    let float = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < BEYOND)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^126")]
    Some(float as i128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(stored: &str, printed: &str) {
        let element = PathElement::parse(stored).unwrap().unwrap();
        assert_eq!(element.stored(), stored);
        assert_eq!(element.to_string(), printed);
    }

    #[test]
    fn both_notations() {
        check("f:spec", ".spec");
        check("f:", ".");
        check("f:a:b/c", ".a:b/c");
        check(r#"k:{"name":"web"}"#, r#"[name="web"]"#);
        check(r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#);
        check(r#"v:"a""#, r#"[="a"]"#);
        check("v:1", "[=1]");
        check("v:1.5", "[=1.5]");
        check("v:true", "[=true]");
        check("v:null", "[=null]");
        check("v:[1,2]", "[=[1,2]]");
        check("i:3", "[3]");
        check(r#"v:"\u003cb\u003e""#, r#"[="<b>"]"#);
    }

    #[test]
    fn keys_are_sorted_and_numbers_written_short() {
        let element = PathElement::parse(r#"k:{"protocol":"TCP","containerPort":80.0}"#).unwrap().unwrap();
        assert_eq!(element.stored(), r#"k:{"containerPort":80,"protocol":"TCP"}"#);
    }

    #[test]
    fn malformed_elements_are_refused_and_unknown_ones_skipped() {
        assert_eq!(PathElement::parse("x:1"), Ok(None));
        for text in ["", "f", "spec", "ff:x"] {
            assert_eq!(PathElement::parse(text), Err(PathError::Colon(text.into())));
        }
        for text in ["k:", "k:1", "k:{", "v:", "v:{", "i:", "i:x"] {
            assert_eq!(PathElement::parse(text), Err(PathError::Malformed(text.into())));
        }
    }

    #[test]
    fn steps_are_ordered_by_sort_then_by_value() {
        let ordered = [
            "f:a",
            "f:b",
            r#"k:{"name":"a"}"#,
            r#"k:{"name":"a","port":9}"#,
            r#"k:{"name":"a","port":10}"#,
            r#"k:{"port":1}"#,
            "v:-1",
            "v:0.5",
            "v:9",
            "v:10",
            r#"v:"10""#,
            r#"v:"9""#,
            "v:false",
            "v:true",
            "v:[1]",
            r#"v:{"a":1}"#,
            "v:null",
            "i:2",
            "i:10",
        ];
        let parsed: Vec<_> = ordered.iter().map(|text| PathElement::parse(text).unwrap().unwrap()).collect();
        assert!(parsed.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn numbers_are_equal_by_what_they_amount_to() {
        assert!(equal(&json!(80), &json!(80.0)));
        assert!(equal(&json!({"a": [1.0]}), &json!({"a": [1]})));
        assert!(!equal(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992.0)));
        assert!(!equal(&json!(u64::MAX), &json!(18_446_744_073_709_551_616.0)));
        assert!(!equal(&json!(1), &json!("1")));
    }
}
