//! Field names in expressions: names that are not CEL identifiers are spelled with double underscores.

/// Words that an expression cannot use as a name.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Parts of names that are spelled differently.
const SPELLINGS: &[(&str, &str)] =
    &[("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Whether the word is reserved.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// How an expression spells a field; `None` if it cannot.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.peek() == Some(&'_') => {
                chars.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c == '_' || c.is_ascii_alphanumeric() => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}

/// The field that an expression spells this way; `None` if it spells none.
pub(crate) fn unescape(spelled: &str) -> Option<String> {
    if !spelled.contains("__") {
        // Reserved words are no names of variables, but after a dot the plain word will do as well.
        return Some(spelled.to_owned());
    }
    if let Some(word) = spelled.strip_prefix("__").and_then(|s| s.strip_suffix("__"))
        && is_reserved(word)
    {
        return Some(word.to_owned());
    }
    let mut out = String::with_capacity(spelled.len());
    let mut rest = spelled;
    while let Some(c) = rest.chars().next() {
        match SPELLINGS.iter().find(|(_, spelling)| rest.starts_with(spelling)) {
            Some((text, spelling)) => {
                out.push_str(text);
                rest = &rest[spelling.len()..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    (escape(&out).as_deref() == Some(spelled)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[track_caller]
    fn check(name: &str, spelled: &str) {
        assert_eq!(escape(name).as_deref(), Some(spelled));
        assert_eq!(unescape(spelled).as_deref(), Some(name));
    }

    #[test]
    fn spellings() {
        check("name", "name");
        check("a_b", "a_b");
        check("namespace", "__namespace__");
        check("x-y", "x__dash__y");
        check("a.b/c", "a__dot__b__slash__c");
        check("redact__d", "redact__underscores__d");
        check("default", "default");
        for name in ["", "1a", "a b", "$ref"] {
            assert_eq!(escape(name), None, "{name:?}");
        }
        assert_eq!(unescape("namespace").as_deref(), Some("namespace"));
        for spelled in ["a__b", "__namespaces__"] {
            assert_eq!(unescape(spelled), None, "{spelled:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn unescape_undoes_escape(name in "[a-z_./-]{1,12}") {
            if let Some(spelled) = escape(&name) {
                assert_eq!(unescape(&spelled), Some(name));
            }
        }
    }
}
