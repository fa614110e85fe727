//! Collects field errors.
//!
//! Validation reads like the rules it enforces: a [`Check`] is passed down, each rule adds to it. Paths are texts such
//! as `spec.containers[0].name`; nearly all objects are good, so they are put together only where something is wrong.

use k8s_schema::FieldError;
use serde_json::Value;

use std::fmt::{self, Display};

use super::text;
use crate::json;

/// The path of a field of what is at a path.
#[derive(Clone, Copy)]
pub(crate) struct Below<P>(pub(crate) P, pub(crate) &'static str);

impl<P: Display> Display for Below<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The errors found so far.
#[derive(Debug, Default)]
pub(crate) struct Check {
    pub(crate) errors: Vec<FieldError>,
}

/// No more errors are kept than this: a hostile object could have one in every few bytes of it.
const MOST_ERRORS: usize = 1000;

impl Check {
    /// Adds an error, unless there are too many to be of use.
    pub(crate) fn push(&mut self, error: FieldError) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(error);
        }
    }

    pub(crate) fn invalid(&mut self, path: impl Display, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(path.to_string(), value, detail));
    }

    pub(crate) fn required(&mut self, path: impl Display, detail: impl Into<String>) {
        self.push(FieldError::required(path.to_string(), detail));
    }

    pub(crate) fn forbidden(&mut self, path: impl Display, detail: impl Into<String>) {
        self.push(FieldError::forbidden(path.to_string(), detail));
    }

    pub(crate) fn duplicate(&mut self, path: impl Display, value: impl Into<Value>) {
        self.push(FieldError::duplicate(path.to_string(), value));
    }

    pub(crate) fn not_found(&mut self, path: impl Display, value: impl Into<Value>) {
        self.push(FieldError::not_found(path.to_string(), value));
    }

    pub(crate) fn unsupported(&mut self, path: impl Display, value: impl Into<Value>, supported: &[&str]) {
        self.push(FieldError::not_supported(path.to_string(), value, supported));
    }

    pub(crate) fn too_long(&mut self, path: impl Display, max: i64) {
        self.push(FieldError::too_long(path.to_string(), max));
    }

    pub(crate) fn too_many(&mut self, path: impl Display, actual: usize, max: i64) {
        self.push(FieldError::too_many(path.to_string(), i64::try_from(actual).unwrap_or(i64::MAX), max));
    }

    /// One error per message of a format.
    pub(crate) fn format(&mut self, path: impl Display, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(&path, value, message);
        }
    }

    /// A text that must be one of a few; empty is "required".
    pub(crate) fn one_of(&mut self, path: impl Display, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else {
            self.one_of_or_empty(path, value, supported);
        }
    }

    /// A text that must be one of a few, or empty.
    pub(crate) fn one_of_or_empty(&mut self, path: impl Display, value: &str, supported: &[&str]) {
        if !value.is_empty() && !supported.contains(&value) {
            self.unsupported(path, value, supported);
        }
    }

    /// A number in a field of `value` that may not be negative.
    pub(crate) fn not_negative(&mut self, value: &Value, field: &str, base: &str) {
        if let Some(number) = json::int(value, field).filter(|number| *number < 0) {
            let path = if base.is_empty() { field.to_owned() } else { format!("{base}.{field}") };
            self.invalid(&path, number, "must be greater than or equal to 0");
        }
    }

    /// A field that must be as it was.
    pub(crate) fn immutable(&mut self, new: &Value, old: &Value, path: &str) {
        let (new, old) = (json::at(new, path), json::at(old, path));
        if new != old {
            self.invalid(path, new.clone(), "field is immutable");
        }
    }

    /// The labels in a map.
    pub(crate) fn labels(&mut self, labels: &Value, path: impl Display + Copy) {
        for (key, value) in labels.as_object().into_iter().flatten() {
            self.format(path, key, text::label_key(key));
            if let Some(value) = value.as_str() {
                self.format(path, value, text::label_value(value));
            }
        }
    }

    /// A label selector.
    pub(crate) fn selector(&mut self, selector: &Value, path: &str) {
        self.labels(json::at(selector, "matchLabels"), &format!("{path}.matchLabels"));
        for (idx, requirement) in json::list(selector, "matchExpressions").iter().enumerate() {
            let base = format!("{path}.matchExpressions[{idx}]");
            let values = json::list(requirement, "values");
            let operator = json::text(requirement, "operator");
            match operator {
                "In" | "NotIn" if values.is_empty() => self.required(
                    format_args!("{base}.values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ),
                "Exists" | "DoesNotExist" if !values.is_empty() => self.forbidden(
                    format_args!("{base}.values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                _ => self.invalid(format_args!("{base}.operator"), operator, "not a valid selector operator"),
            }
            let key = json::text(requirement, "key");
            self.format(format_args!("{base}.key"), key, text::label_key(key));
            for (value_idx, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                self.format(format_args!("{base}.values[{value_idx}]"), value, text::label_value(value));
            }
        }
    }
}

/// Whether a label selector matches labels; nothing if it is malformed. An absent selector matches nothing, an empty one
/// everything.
pub(crate) fn selector_matches(selector: &Value, labels: &Value) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    let exact = json::entries(selector, "matchLabels").all(|(key, value)| labels.get(key) == Some(value));
    let mut all = exact;
    for requirement in json::list(selector, "matchExpressions") {
        let value = labels.get(json::text(requirement, "key"));
        let values = json::list(requirement, "values");
        all &= match json::text(requirement, "operator") {
            "In" => value.is_some_and(|value| values.contains(value)),
            "NotIn" => value.is_none_or(|value| !values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => return None,
        };
    }
    Some(all)
}
