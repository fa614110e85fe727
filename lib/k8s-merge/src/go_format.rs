//! Prints JSON values the way Go prints them.
//!
//! In: JSON values. Out: text. The messages of the API server embed values in Go's notation, and tools match on those
//! messages; the member names inside `fieldsV1` are JSON as Go writes it. Must stay true: any value prints, and finite floats
//! print with the fewest digits that read back as the same number.

use serde_json::{Number, Value};
use std::fmt::{self, Write as _};

/// Go's `%v`: `map[a:1 b:[x y]]`.
pub(crate) struct Plain<'a>(pub &'a Value);

/// Go's `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) struct Syntax<'a>(pub &'a Value);

/// Go's `%q`.
pub(crate) struct Quoted<'a>(pub &'a str);

/// A value as Go's `%v` prints it.
#[must_use]
pub fn go_text(value: &Value) -> String {
    Plain(value).to_string()
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Number(n) => f.write_str(&number(n, -4)),
            Value::String(s) => f.write_str(s),
            Value::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { " " } else { "" }, Plain(item))?;
                }
                f.write_str("]")
            }
            Value::Object(members) => {
                f.write_str("map[")?;
                for (i, (name, member)) in sorted(members).into_iter().enumerate() {
                    write!(f, "{}{name}:{}", if i > 0 { " " } else { "" }, Plain(member))?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::String(s) => write!(f, "{}", Quoted(s)),
            Value::Bool(_) | Value::Number(_) => write!(f, "{}", Plain(self.0)),
            Value::Array(items) => {
                f.write_str("[]interface {}{")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, Syntax(item))?;
                }
                f.write_str("}")
            }
            Value::Object(members) => {
                f.write_str("map[string]interface {}{")?;
                for (i, (name, member)) in sorted(members).into_iter().enumerate() {
                    write!(f, "{}{}:{}", if i > 0 { ", " } else { "" }, Quoted(name), Syntax(member))?;
                }
                f.write_str("}")
            }
        }
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{b}' => f.write_str("\\v")?,
                c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// The Go type that holds this value, as `%T` prints it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Appends `value` as Go's JSON encoder writes it inside a path element: numbers without a needless fraction, and `<`, `>`
/// and `&` escaped.
pub(crate) fn json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n, -6)),
        Value::String(s) => json_string(s, true, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                json(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (name, member)) in sorted(members).into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                json_string(name, true, out);
                out.push(':');
                json(member, out);
            }
            out.push('}');
        }
    }
}

/// Appends a JSON string; `html` escapes what Go escapes for the sake of web pages.
pub(crate) fn json_string(text: &str, html: bool, out: &mut String) {
    out.push('"');
    json_escaped(text, html, out);
    out.push('"');
}

/// The same without quotes.
pub(crate) fn json_escaped(text: &str, html: bool, out: &mut String) {
    // Of what is looked for, only the two separators take more than a byte; they begin with the last one here.
    let is_special = |byte: u8| match byte {
        b'"' | b'\\' | ..b' ' => true,
        b'<' | b'>' | b'&' | 0xe2 => html,
        _ => false,
    };
    let mut rest = text;
    while let Some(at) = rest.bytes().position(is_special) {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = special.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(c @ (..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}')) => escape(c, out),
            Some(c) => out.push(c),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
}

fn escape(c: char, out: &mut String) {
    write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail");
}

/// A number in the fewest digits. Floats switch to exponents below `10^low` and from `10^21` on.
fn number(n: &Number, low: i32) -> String {
    match n.as_f64() {
        Some(float) if n.is_f64() => {
            let size = float.abs();
            if float != 0.0 && (size < 10f64.powi(low) || size >= 1e21) {
                // Go writes the sign of the exponent, and at least two digits of it.
                let text = format!("{float:e}");
                match text.split_once('e') {
                    Some((digits, power)) => match power.strip_prefix('-') {
                        Some(power) => format!("{digits}e-{power:0>2}"),
                        None => format!("{digits}e+{power:0>2}"),
                    },
                    None => text,
                }
            } else {
                // Adding zero turns minus zero into zero.
                format!("{}", float + 0.0)
            }
        }
        _ => n.to_string(),
    }
}

/// Go prints maps in the order of their keys, whatever order ours keeps.
fn sorted(members: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = members.iter().collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[track_caller]
    fn check(value: &Value, plain: &str, syntax: &str, encoded: &str) {
        let mut text = String::new();
        json(value, &mut text);
        assert_eq!(
            (Plain(value).to_string(), Syntax(value).to_string(), text),
            (plain.to_owned(), syntax.to_owned(), encoded.to_owned())
        );
    }

    #[test]
    fn values_print_as_go_prints_them() {
        check(&value!(null), "<nil>", "interface {}(nil)", "null");
        check(&value!(true), "true", "true", "true");
        check(&value!(-3), "-3", "-3", "-3");
        check(&value!(80.0), "80", "80", "80");
        check(&value!(0.5), "0.5", "0.5", "0.5");
        check(&value!(1e21), "1e+21", "1e+21", "1e+21");
        check(&value!(0.00001), "1e-05", "1e-05", "0.00001");
        check(&value!(1e-7), "1e-07", "1e-07", "1e-07");
        check(&value!("a\"<\u{7}"), "a\"<\u{7}", r#""a\"<\a""#, r#""a\"\u003c\u0007""#);
        check(
            &value!({"b": ["x", 1], "a": {}}),
            "map[a:map[] b:[x 1]]",
            r#"map[string]interface {}{"a":map[string]interface {}{}, "b":[]interface {}{"x", 1}}"#,
            r#"{"a":{},"b":["x",1]}"#,
        );
    }
}
