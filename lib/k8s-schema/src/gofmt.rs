//! How Go prints values: quoted strings, floats and JSON. Error messages of the API server are made of these.

use std::fmt::Write as _;

use serde_json::Value;

/// A string as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c < ' ' || c == '\u{7f}' => push(&mut out, format_args!("\\x{:02x}", u32::from(c))),
            c if printable(c) => out.push(c),
            c if u32::from(c) < 0x1_0000 => push(&mut out, format_args!("\\u{:04x}", u32::from(c))),
            c => push(&mut out, format_args!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// A float as `%v` prints it: the shortest digits that read back, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn float(v: f64) -> String {
    exponent_form(v, -4, 6)
}

/// A number as `%v` prints it.
pub(crate) fn number(n: &serde_json::Number) -> String {
    match n.as_i64() {
        Some(i) => i.to_string(),
        None => float(n.as_f64().unwrap_or(f64::NAN)),
    }
}

/// The value in a field error: scalars as `%v`, strings as `%q`, everything else as JSON.
pub(crate) fn bad_value(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        Value::Number(n) => number(n),
        other => json(other),
    }
}

/// JSON as Go writes it: keys sorted, `<`, `>`, `&` and the line separators escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

/// A value as `%v` prints what JSON decodes to: `map[a:1 b:[x y]]`, `<nil>`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => number(n),
        Value::String(s) => s.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(k, _)| k.as_str());
            let entries: Vec<String> =
                entries.into_iter().map(|(k, v)| format!("{k}:{}", plain(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => match n.as_i64() {
            Some(i) => push(out, format_args!("{i}")),
            None => out.push_str(&json_float(n.as_f64().unwrap_or_default())),
        },
        Value::String(s) => write_json_string(out, s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(k, _)| (rule_field(map, k), k.as_str()));
            out.push('{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json_string(out, key);
                out.push(':');
                write_json(out, item);
            }
            out.push('}');
        }
    }
}

/// Go prints maps by key but structs by declaration. The only struct that errors show is a validation rule.
fn rule_field(map: &serde_json::Map<String, Value>, key: &str) -> usize {
    const FIELDS: [&str; 6] =
        ["Rule", "Message", "MessageExpression", "Reason", "FieldPath", "OptionalOldSelf"];
    let is_rule = map.len() == FIELDS.len() && FIELDS.iter().all(|field| map.contains_key(*field));
    FIELDS.iter().position(|field| is_rule && *field == key).unwrap_or(0)
}

fn write_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => push(out, format_args!("\\u{:04x}", u32::from(c))),
            c if c < ' ' => push(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A float in Go's JSON: an exponent below 1e-6 and from 1e21 on, without a leading zero in it.
fn json_float(v: f64) -> String {
    let text = exponent_form(v, -6, 21);
    match text.split_once("e-0") {
        Some((digits, power)) => format!("{digits}e-{power}"),
        None => text,
    }
}

/// Shortest digits, in exponent form when the decimal exponent is below `low` or not below `high`.
fn exponent_form(v: f64, low: i32, high: i32) -> String {
    if v.is_nan() {
        return "NaN".to_owned();
    }
    if v.is_infinite() {
        return if v > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{v:e}");
    let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if v == 0.0 || (low..high).contains(&power) {
        return format!("{v}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

/// Close to Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the plain space.
fn printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace() || invisible(c))
}

fn invisible(c: char) -> bool {
    matches!(u32::from(c), 0xad | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb
        | 0xe000..=0xf8ff | 0xfdd0..=0xfdef | 0xfffe | 0xffff | 0xe0000..=0xe007f | 0xf0000..)
}

fn push(out: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(args);
}
