//! The formats of names, keys and values, and the words in which the reference server refuses them.
//!
//! In: a text. Out: messages, none if the text is well-formed. Nothing here names a field.

/// A lower case label: letters, digits and `-`.
pub(crate) fn dns_label(text: &str) -> Vec<String> {
    let mut messages = longer_than(text, 63);
    if !is_label(text) {
        messages.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
            )
        });
    }
    messages
}

/// Labels joined by dots.
pub(crate) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut messages = longer_than(text, 253);
    if !is_subdomain(text) {
        messages.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{LABEL}(\\.{LABEL})*')"
        ));
    }
    messages
}

/// A label that starts with a letter.
pub(crate) fn dns_1035_label(text: &str) -> Vec<String> {
    let mut messages = longer_than(text, 63);
    if !(is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        messages.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
             is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    messages
}

/// A key of a label: a name, with an optional domain and slash before it.
pub(crate) fn label_key(text: &str) -> Vec<String> {
    const FORMAT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                          alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                          is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut messages = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                messages
                    .extend(dns_subdomain_in_bytes(prefix).into_iter().map(|m| format!("prefix part {m}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {FORMAT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        messages.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified(name) {
        messages.push(format!("name part {FORMAT}"));
    }
    messages
}

/// A value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if text.len() > 63 {
        messages.push("must be no more than 63 bytes".to_owned());
    }
    if !(text.is_empty() || is_qualified(text)) {
        messages.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    messages
}

/// A key in a config map or a secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut messages = longer_than(text, 253);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        messages.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// A name of an environment variable.
pub(crate) fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if text.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

/// A name of a port.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut messages = longer_than(text, 15);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

/// A number of a port.
pub(crate) fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

/// A number followed by `%`.
pub(crate) fn percent(text: &str) -> Vec<String> {
    let is_percent =
        text.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if is_percent {
        return Vec::new();
    }
    vec![
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for \
         validation is '[0-9]+%')"
            .to_owned(),
    ]
}

/// A name that is one segment of a path.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    match text {
        "." | ".." => vec![format!("may not be '{text}'")],
        _ => ["/", "%"]
            .into_iter()
            .filter(|illegal| text.contains(*illegal))
            .map(|illegal| format!("may not contain '{illegal}'"))
            .collect(),
    }
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

fn longer_than(text: &str, max: usize) -> Vec<String> {
    if text.len() > max { vec![format!("must be no more than {max} characters")] } else { Vec::new() }
}

/// Keys of labels count bytes in their words; names of objects count characters.
fn dns_subdomain_in_bytes(text: &str) -> Vec<String> {
    dns_subdomain(text)
        .into_iter()
        .map(|m| m.replace("no more than 253 characters", "no more than 253 bytes"))
        .collect()
}

fn is_label(text: &str) -> bool {
    let is_end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.as_bytes().first().is_some_and(is_end)
        && text.as_bytes().last().is_some_and(is_end)
        && text.bytes().all(|b| is_end(&b) || b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let is_end = |b: &u8| b.is_ascii_alphanumeric();
    text.as_bytes().first().is_some_and(is_end)
        && text.as_bytes().last().is_some_and(is_end)
        && text.bytes().all(|b| is_end(&b) || b"-_.".contains(&b))
}
