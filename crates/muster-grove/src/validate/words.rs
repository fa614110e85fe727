//! The forms of names, labels and variables.

use muster_runtime::object::Strings;

use super::{Findings, quote};

/// Lower-case letters, digits and `-`, starting and ending with a letter or digit.
pub fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && !text.is_empty() && text.split('.').all(is_label)
}

fn is_name_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// A key of a label or annotation.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(&prefix.to_ascii_lowercase()) && is_name_part(name),
        None => is_name_part(text),
    }
}

pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// A name that an environment variable can have: printable ASCII without `=`.
pub fn is_variable(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| (c.is_ascii_graphic() || c == ' ') && c != '=')
}

pub(super) fn labels(field: &str, labels: &Strings, findings: &mut Findings) {
    for (key, value) in labels {
        if !is_key(key) {
            findings.refuse(
                format!("{field}[{key}]"),
                "is no label key; write [prefix/]name of letters, digits, -, _ and .",
            );
        }
        if !is_label_value(value) {
            let message =
                format!("{} is no label value; write at most 63 letters, digits, -, _ and .", quote(value));
            findings.refuse(format!("{field}[{key}]"), message);
        }
    }
}

pub(super) fn annotations(field: &str, annotations: &Strings, findings: &mut Findings) {
    for key in annotations.keys().filter(|key| !is_key(key)) {
        findings.refuse(
            format!("{field}[{key}]"),
            "is no annotation key; write [prefix/]name of letters, digits, -, _ and .",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (text, label, subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            ("1a", true, true),
            ("a.b", false, true),
            ("A", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("", false, false),
            ("a..b", false, false),
        ] {
            assert_eq!((is_label(text), is_subdomain(text)), (label, subdomain), "{text}");
        }
        assert!(!is_label(&"a".repeat(64)));
        assert!(
            is_key("example.com/a_B.c") && is_key("a") && !is_key("/a") && !is_key("a/b/c") && !is_key("")
        );
        assert!(is_label_value("") && is_label_value("A.b_c") && !is_label_value("a b"));
        assert!(is_variable("A_b.1") && !is_variable("") && !is_variable("a=b") && !is_variable("é"));
    }
}
