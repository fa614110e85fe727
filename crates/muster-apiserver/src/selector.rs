//! Label and field selectors of list, watch and deletecollection. In: the query text. Out: a test on labels or fields.
//!
//! The label grammar is apimachinery's `labels.Parse`: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`,
//! `a>1`, `a<1`, joined by commas. The field grammar is `a=b`, `a==b`, `a!=b` with `\\`, `\,` and `\=` as escapes.

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The label is there and is one of the values.
    In(String, Vec<String>),
    /// The label is absent or none of the values.
    NotIn(String, Vec<String>),
    /// The label is there.
    Exists(String),
    /// The label is absent.
    Absent(String),
    /// The label is an integer above the bound.
    Above(String, i64),
    /// The label is an integer below the bound.
    Below(String, i64),
}

/// A parsed label selector: all requirements must hold. The empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub Vec<Requirement>);

impl Labels {
    /// Whether all requirements hold; `value` looks a label up.
    pub fn matches<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        let number = |k: &str| value(k).and_then(|v| v.parse::<i64>().ok());
        let is_one_of = |v: &str, vs: &[String]| vs.iter().any(|w| w == v);
        self.0.iter().all(|r| match r {
            Requirement::In(k, vs) => value(k).is_some_and(|v| is_one_of(v, vs)),
            Requirement::NotIn(k, vs) => value(k).is_none_or(|v| !is_one_of(v, vs)),
            Requirement::Exists(k) => value(k).is_some(),
            Requirement::Absent(k) => value(k).is_none(),
            Requirement::Above(k, n) => number(k).is_some_and(|v| v > *n),
            Requirement::Below(k, n) => number(k).is_some_and(|v| v < *n),
        })
    }

    /// From a `metav1.LabelSelector` (matchLabels, matchExpressions), as webhooks and budgets carry it.
    pub fn from_object(selector: &serde_json::Value) -> Result<Labels, String> {
        let mut all = Vec::new();
        if let Some(map) = selector.get("matchLabels").and_then(|m| m.as_object()) {
            for (k, v) in map {
                all.push(Requirement::In(k.clone(), vec![v.as_str().unwrap_or_default().to_string()]));
            }
        }
        for e in selector.get("matchExpressions").and_then(|m| m.as_array()).into_iter().flatten() {
            let key = e.get("key").and_then(|k| k.as_str()).unwrap_or_default().to_string();
            let values: Vec<String> = e
                .get("values")
                .and_then(|v| v.as_array())
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_string))
                .collect();
            all.push(match e.get("operator").and_then(|o| o.as_str()).unwrap_or_default() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::Absent(key),
                other => return Err(format!("\"{other}\" is not a valid label selector operator")),
            });
        }
        Ok(Labels(all))
    }
}

#[derive(Debug, PartialEq, Clone)]
enum Token {
    Word(String),
    Punct(&'static str),
}

fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            ' ' | '\t' | '\r' | '\n' => {
                chars.next();
            }
            '(' | ')' | ',' | '>' | '<' => {
                chars.next();
                tokens.push(Token::Punct(match c {
                    '(' => "(",
                    ')' => ")",
                    ',' => ",",
                    '>' => ">",
                    _ => "<",
                }));
            }
            '=' => {
                chars.next();
                if chars.peek() == Some(&'=') {
                    chars.next();
                }
                tokens.push(Token::Punct("="));
            }
            '!' => {
                chars.next();
                if chars.peek() == Some(&'=') {
                    chars.next();
                    tokens.push(Token::Punct("!="));
                } else {
                    tokens.push(Token::Punct("!"));
                }
            }
            _ => {
                let mut word = String::new();
                while let Some(&c) = chars.peek() {
                    if " \t\r\n(),><=!".contains(c) {
                        break;
                    }
                    word.push(c);
                    chars.next();
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    tokens
}

/// Reads the `labelSelector` query parameter.
pub fn parse_labels(text: &str) -> Result<Labels, String> {
    let tokens = lex(text);
    let mut at = 0;
    let mut all = Vec::new();
    let unable = |why: String| format!("unable to parse requirement: {why}");
    if tokens.is_empty() {
        return Ok(Labels::default());
    }
    loop {
        let negated = tokens.get(at) == Some(&Token::Punct("!"));
        if negated {
            at += 1;
        }
        let key = match tokens.get(at) {
            Some(Token::Word(w)) => w.clone(),
            Some(Token::Punct(p)) => {
                return Err(unable(format!("found '{p}', expected: identifier")));
            }
            None => return Err(unable("found '', expected: identifier".into())),
        };
        check_key(&key).map_err(unable)?;
        at += 1;
        match tokens.get(at) {
            None | Some(Token::Punct(",")) => {
                all.push(if negated { Requirement::Absent(key) } else { Requirement::Exists(key) });
            }
            Some(other) if negated => {
                return Err(unable(format!("found '{}', expected: ',' or 'end of string'", show(other))));
            }
            Some(Token::Word(op)) if op == "in" || op == "notin" => {
                let positive = op == "in";
                at += 1;
                if tokens.get(at) != Some(&Token::Punct("(")) {
                    return Err(unable(format!(
                        "found '{}' expected: '('",
                        tokens.get(at).map_or(String::new(), show)
                    )));
                }
                at += 1;
                let mut values = Vec::new();
                let mut pending = String::new();
                loop {
                    match tokens.get(at) {
                        Some(Token::Word(w)) => pending = w.clone(),
                        Some(Token::Punct(",")) => values.push(std::mem::take(&mut pending)),
                        Some(Token::Punct(")")) => {
                            values.push(pending);
                            break;
                        }
                        other => {
                            let found = other.map_or(String::new(), show);
                            return Err(unable(format!("found '{found}', expected: ',', ')' or identifier")));
                        }
                    }
                    at += 1;
                }
                at += 1;
                for v in &values {
                    check_value(&key, v).map_err(unable)?;
                }
                values.sort();
                values.dedup();
                all.push(if positive {
                    Requirement::In(key, values)
                } else {
                    Requirement::NotIn(key, values)
                });
            }
            Some(Token::Punct(op @ ("=" | "!=" | ">" | "<"))) => {
                let op = *op;
                at += 1;
                let value = match tokens.get(at) {
                    Some(Token::Word(w)) => {
                        at += 1;
                        w.clone()
                    }
                    None | Some(Token::Punct(",")) => String::new(),
                    Some(other) => {
                        return Err(unable(format!("found '{}', expected: identifier", show(other))));
                    }
                };
                check_value(&key, &value).map_err(unable)?;
                let bound = || {
                    value.parse::<i64>().map_err(|_| {
                        unable(format!("for 'Gt', 'Lt' operators, the value must be an integer: \"{value}\""))
                    })
                };
                all.push(match op {
                    "=" => Requirement::In(key, vec![value]),
                    "!=" => Requirement::NotIn(key, vec![value]),
                    ">" => Requirement::Above(key, bound()?),
                    _ => Requirement::Below(key, bound()?),
                });
            }
            Some(other) => {
                return Err(unable(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    show(other)
                )));
            }
        }
        match tokens.get(at) {
            None => return Ok(Labels(all)),
            Some(Token::Punct(",")) => at += 1,
            Some(other) => {
                return Err(unable(format!("found '{}', expected: ',' or 'end of string'", show(other))));
            }
        }
    }
}

fn show(token: &Token) -> String {
    match token {
        Token::Word(w) => w.clone(),
        Token::Punct(p) => (*p).to_string(),
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((p, n)) => (Some(p), n),
        None => (None, key),
    };
    let word = |s: &str| {
        s.len() <= 63
            && s.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && s.starts_with(|c: char| c.is_ascii_alphanumeric())
            && s.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let subdomain = |s: &str| {
        !s.is_empty()
            && s.len() <= 253
            && s.split('.').all(|l| {
                !l.is_empty()
                    && l.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                    && !l.starts_with('-')
                    && !l.ends_with('-')
            })
    };
    if word(name) && prefix.is_none_or(subdomain) {
        return Ok(());
    }
    Err(format!(
        "<nil>: Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    let ok = value.is_empty()
        || (value.len() <= 63
            && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && value.starts_with(|c: char| c.is_ascii_alphanumeric())
            && value.ends_with(|c: char| c.is_ascii_alphanumeric()));
    if ok {
        return Ok(());
    }
    Err(format!(
        "values[0][{key}]: Invalid value: \"{value}\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    ))
}

/// One requirement on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Field label, such as `spec.nodeName`.
    pub field: String,
    /// The wanted value.
    pub value: String,
    /// False for `!=`.
    pub equal: bool,
}

/// A parsed field selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<FieldRequirement>);

impl Fields {
    /// Whether all requirements hold; `value` looks a field up.
    pub fn matches<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| (value(&r.field).unwrap_or_default() == r.value) == r.equal)
    }

    /// The one name that the selector asks for, if it does.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }
}

/// Reads the `fieldSelector` query parameter.
pub fn parse_fields(text: &str) -> Result<Fields, String> {
    let mut terms = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let last = terms.last_mut().expect("terms starts with one entry and only grows");
                last.push('\\');
                if let Some(next) = chars.next() {
                    last.push(next);
                }
            }
            ',' => terms.push(String::new()),
            _ => terms.last_mut().expect("terms starts with one entry and only grows").push(c),
        }
    }
    let mut all = Vec::new();
    for term in terms.iter().filter(|t| !t.is_empty()) {
        let (field, equal, raw) = split_term(term)
            .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
        let value = unescape(raw).map_err(|why| format!("invalid field selector: {why} in '{raw}'"))?;
        all.push(FieldRequirement { field: field.to_string(), value, equal });
    }
    Ok(Fields(all))
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (i, c) in term.char_indices() {
        let rest = &term[i..];
        if c == '\\' {
            continue;
        }
        if let Some(v) = rest.strip_prefix("!=") {
            return Some((&term[..i], false, v));
        }
        if let Some(v) = rest.strip_prefix("==") {
            return Some((&term[..i], true, v));
        }
        if let Some(v) = rest.strip_prefix('=') {
            return Some((&term[..i], true, v));
        }
    }
    None
}

fn unescape(raw: &str) -> Result<String, &'static str> {
    let mut out = String::new();
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(n @ ('\\' | ',' | '=')) => out.push(n),
                _ => return Err("invalid escape sequence"),
            },
            ',' | '=' => return Err("unescaped character"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[track_caller]
    fn check(selector: &str, labels: &str, expected: bool) {
        let labels: BTreeMap<String, String> = labels
            .split_whitespace()
            .map(|p| p.split_once('=').map_or((p.into(), String::new()), |(k, v)| (k.into(), v.into())))
            .collect();
        let value = |k: &str| labels.get(k).map(String::as_str);
        assert_eq!(parse_labels(selector).unwrap().matches(value), expected, "{selector} on {labels:?}");
    }

    #[test]
    fn label_selectors() {
        check("", "", true);
        check("a=b", "a=b", true);
        check("a==b", "a=b", true);
        check("a=b", "a=c", false);
        check("a!=b", "", true);
        check("a!=b", "a=b", false);
        check("a in (b, c)", "a=c", true);
        check("a notin (b,c)", "a=c", false);
        check("a notin (b,c)", "", true);
        check("a", "a=", true);
        check("!a", "a=", false);
        check("!a", "", true);
        check("a>3", "a=4", true);
        check("a<3", "a=4", false);
        check("a>3", "a=x", false);
        check("x.y/z=1,b", "x.y/z=1 b=", true);
        check("a in (,x)", "a=", true);
        check("a=", "a=", true);
        for bad in
            ["a=b c", "=b", "a in b", "a in (b", "!a=b", "a,,b", "/a", "a/b/c", "a>b", "-a", "a=-b", ","]
        {
            assert!(parse_labels(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selectors() {
        let value = |f: &str| match f {
            "metadata.name" => Some("a,b"),
            "spec.nodeName" => Some(""),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            (r"metadata.name=a\,b", true),
            (r"metadata.name!=a\,b", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("spec.nodeName==x", false),
        ] {
            assert_eq!(parse_fields(text).unwrap().matches(value), expected, "{text}");
        }
        for bad in ["a", r"a=\x", "a=b=c"] {
            assert!(parse_fields(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parse_labels(&text);
            let _ = parse_fields(&text);
        }

        #[test]
        fn equality_selects_exactly_its_value(k in "[a-z]{1,5}", v in "[a-z0-9]{0,5}", w in "[a-z0-9]{0,5}") {
            let value = |key: &str| (key == k).then_some(w.as_str());
            prop_assert_eq!(parse_labels(&format!("{k}={v}")).unwrap().matches(value), v == w);
            prop_assert_eq!(parse_labels(&format!("{k}!={v}")).unwrap().matches(value), v != w);
        }
    }
}
