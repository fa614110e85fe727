//! Found values as text, in the spelling of the Go programs that people compare it with: plain values bare, lists and
//! maps as compact JSON with sorted keys.

use serde_json::Value;

use super::JsonPathError;

/// The most text one result may have. Well above the size of any object that an API server stores.
pub(super) const MAX_TEXT: usize = 16 * 1024 * 1024;
/// The deepest nesting printed; a parsed object has at most 128 levels.
const MAX_DEPTH: usize = 512;

/// One value as text.
pub(crate) fn text_of(value: &Value) -> Result<String, JsonPathError> {
    let mut text = String::new();
    match value {
        Value::String(plain) => text.push_str(plain),
        Value::Number(number) => push_number(&mut text, number, go_float),
        other => push_json(&mut text, other, 0)?,
    }
    Ok(text)
}

/// A fraction as Go prints it: the shortest digits that read back, with an exponent from a million on.
pub(crate) fn go_float(number: f64) -> String {
    match digits_and_exponent(number) {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        _ => number.to_string(),
    }
}

/// A fraction in the JSON that Go writes, where the exponent comes in much later.
fn go_json_float(number: f64) -> String {
    match digits_and_exponent(number) {
        Some((digits, exponent)) if !(-6..21).contains(&exponent) => format!("{digits}e{exponent:+}"),
        _ => number.to_string(),
    }
}

fn digits_and_exponent(number: f64) -> Option<(String, i32)> {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e')?;
    Some((digits.to_owned(), exponent.parse().ok()?))
}

fn push_number(text: &mut String, number: &serde_json::Number, print_float: fn(f64) -> String) {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => text.push_str(&integer.to_string()),
        (None, Some(float)) => text.push_str(&print_float(float)),
        (None, None) => text.push_str(&number.to_string()),
    }
}

fn push_json(text: &mut String, value: &Value, depth: usize) -> Result<(), JsonPathError> {
    if depth > MAX_DEPTH || text.len() > MAX_TEXT {
        return Err(JsonPathError::TooLarge);
    }
    match value {
        Value::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                push_json(text, item, depth + 1)?;
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| name.as_str());
            text.push('{');
            for (place, (name, field)) in sorted.into_iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                push_json_string(text, name);
                text.push(':');
                push_json(text, field, depth + 1)?;
            }
            text.push('}');
        }
        Value::String(string) => push_json_string(text, string),
        Value::Number(number) => push_number(text, number, go_json_float),
        plain => text.push_str(&plain.to_string()),
    }
    Ok(())
}

/// JSON text in which no character means anything to a browser.
fn push_json_string(text: &mut String, string: &str) {
    for c in Value::from(string).to_string().chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            c => text.push(c),
        }
    }
}
