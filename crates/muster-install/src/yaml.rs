//! JSON values as YAML for people: block style, the usual order of keys, long texts as blocks.
//!
//! In: a value. Out: text that reads back as the same value. Must stay true: only texts that no YAML reader can take for
//! anything else go without quotes. Written here, since the order of keys and the place of quotes matter to the chart.

use serde_json::{Map, Value};

/// Documents, each with its `---`.
pub fn documents(values: &[Value]) -> String {
    values.iter().map(|value| format!("---\n{}", document(value))).collect()
}

/// One document.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0, false);
    out
}

/// What people look for first.
const FIRST: [&str; 6] = ["apiVersion", "kind", "type", "metadata", "name", "namespace"];

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| (FIRST.iter().position(|f| f == key).unwrap_or(FIRST.len()), *key));
    entries
}

/// `inline`: the cursor stands behind `- `, where the first line needs no indentation.
fn write(out: &mut String, value: &Value, depth: usize, inline: bool) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (i, (key, value)) in sorted(map).into_iter().enumerate() {
                if i > 0 || !inline {
                    indent(out, depth);
                }
                out.push_str(&scalar(key));
                out.push(':');
                after(out, value, depth);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 || !inline {
                    indent(out, depth);
                }
                out.push('-');
                match item {
                    Value::Object(map) if !map.is_empty() => {
                        out.push(' ');
                        write(out, item, depth + 1, true);
                    }
                    Value::Array(list) if !list.is_empty() => {
                        out.push(' ');
                        write(out, item, depth + 1, true);
                    }
                    _ => after(out, item, depth),
                }
            }
        }
        other => {
            out.push_str(&flat(other));
            out.push('\n');
        }
    }
}

/// A value behind a key or a dash.
fn after(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write(out, value, depth + 1, false);
        }
        // A list may stand at the depth of its key.
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write(out, value, depth, false);
        }
        Value::String(text) if is_block(text) => {
            out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
                if !line.is_empty() {
                    indent(out, depth + 1);
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        other => {
            out.push(' ');
            out.push_str(&flat(other));
            out.push('\n');
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Texts of several lines that a block keeps as they are.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !body.ends_with('\n')
        && !body.starts_with([' ', '\n', '\t'])
        && body
            .chars()
            .all(|c| c == '\n' || (!c.is_control() && c != '\u{feff}' && c != '\u{2028}' && c != '\u{2029}'))
        && body.split('\n').all(|line| !line.trim().is_empty() || line.is_empty())
}

fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// A text without quotes where it can be nothing else, else as a JSON string, which YAML reads too.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { Value::String(text.to_owned()).to_string() }
}

/// What some YAML reader takes for something else than text.
const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: Value, expected: &str) {
        let text = document(&value);
        assert_eq!(text, expected);
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn documents_read_well_and_read_back() {
        check(json!({"b": 1, "a": "x", "kind": "K"}), "kind: K\na: x\nb: 1\n");
        check(json!({"a": {}, "b": [], "c": null, "d": true}), "a: {}\nb: []\nc: null\nd: true\n");
        check(json!({"a": ["x", 1, {"name": "m", "k": [1]}]}), "a:\n- x\n- 1\n- name: m\n  k:\n  - 1\n");
        check(json!({"a": [["x"], []]}), "a:\n- - x\n- []\n");
        check(
            json!({"a": "true", "b": "1", "c": "y", "d": ""}),
            "a: \"true\"\nb: \"1\"\nc: \"y\"\nd: \"\"\n",
        );
        check(json!({"a": "--x=y", "b": "a: b", "c": "~"}), "a: \"--x=y\"\nb: \"a: b\"\nc: \"~\"\n");
        check(json!({"a": "one\n\n  two\n"}), "a: |\n  one\n\n    two\n");
        check(json!({"a": {"b": "one\ntwo"}}), "a:\n  b: |-\n    one\n    two\n");
        check(json!({"a": " one\ntwo"}), "a: \" one\\ntwo\"\n");
        check(json!({"a": "one\ntwo\n\n"}), "a: \"one\\ntwo\\n\\n\"\n");
    }

    #[test]
    fn all_objects_read_back() {
        let settings = crate::Settings { monitoring: true, ..crate::Settings::default() };
        for object in crate::objects(&settings) {
            let back: Value = serde_saphyr::from_str(&document(&object)).unwrap();
            assert_eq!(back, object);
        }
    }
}
