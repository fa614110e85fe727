//! Whole numbers as owners write them: in fields, and as text in annotations.

use serde_json::Value;

use crate::group::{Grouping, GroupingError};

/// The most that a minimum can be.
pub const MOST: i64 = i32::MAX as i64;

/// What is at a path; null if nothing is.
pub fn at<'a>(mut value: &'a Value, path: &[&str]) -> &'a Value {
    for key in path {
        value = value.get(key).unwrap_or(&Value::Null);
    }
    value
}

pub fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path).as_str().filter(|text| !text.is_empty())
}

/// A number of pods at a path; `None` if nothing is there.
pub fn count(object: &str, prefix: &str, value: &Value, path: &[&str]) -> Result<Option<i64>, GroupingError> {
    let found = at(value, path);
    match found.as_i64() {
        _ if found.is_null() => Ok(None),
        Some(n) if (0..=MOST).contains(&n) => Ok(Some(n)),
        _ => Err(GroupingError::BadField {
            object: object.to_owned(),
            field: format!("{prefix}.{}", path.join(".")),
            value: brief(found),
            fix: format!("write a whole number from 0 to {MOST}"),
        }),
    }
}

/// The start of a value, for messages.
fn brief(value: &Value) -> String {
    let shown = value.to_string();
    if shown.chars().count() > 60 { shown.chars().take(60).chain("...".chars()).collect() } else { shown }
}

/// A number in an annotation. What is none is noted, and `otherwise` is used.
pub fn annotated(
    grouping: &mut Grouping,
    object: &str,
    key: &str,
    value: Option<&str>,
    least: i64,
    otherwise: i64,
) -> i64 {
    let Some(value) = value else { return otherwise };
    match value.trim().parse::<i64>() {
        Ok(n) if (least..=MOST).contains(&n) => n,
        _ => {
            let shown: String = value.chars().take(60).collect();
            grouping.note(format!(
                "annotation {key} of {object} is {shown:?}, which is no whole number from {least} to {MOST}: {otherwise} is used. Write for example {key}: \"8\""
            ));
            otherwise
        }
    }
}
