//! Device selectors: expressions of the Common Expression Language over one `device`.
//!
//! In: an expression and devices. Out: whether each is selected. The language is that of `k8s-schema`, which runs validation
//! rules: a device becomes a JSON object, and the expression a rule over it that gives the fields their Kubernetes types again. A
//! rule is compiled once for all devices with the same attributes.
//!
//! *Invariant:* no expression overflows the stack or runs for long; length is bounded here, depth and work by `k8s-schema`.

use crate::device::{Attribute, DeviceFacts};
use k8s_quantity::{Format, Quantity};
use k8s_schema::{Schema, validate_rules};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What the API server allows.
const MOST_BYTES: usize = 10 * 1024;
/// Brackets within brackets.
const MOST_DEPTH: usize = 100;
/// How many forms of devices a rule is kept compiled for.
const MOST_FORMS: usize = 64;
/// What a rule says of a device that it does not select.
const REFUSED: &str = "not selected";

/// An expression that can be asked about devices.
pub(crate) struct Selector {
    expression: String,
    /// Text in the expression; a domain of attributes that is named and not there is empty rather than an error.
    words: BTreeSet<String>,
    /// By the form of devices: which attributes they have, and of which types.
    compiled: RefCell<BTreeMap<String, Result<Schema, String>>>,
}

impl Selector {
    pub(crate) fn new(expression: &str) -> Result<Self, String> {
        if expression.len() > MOST_BYTES {
            return Err(format!("is longer than {MOST_BYTES} bytes"));
        }
        let words = scan(expression)?;
        let expression = without_bindings(expression, MOST_DEPTH);
        let selector = Self { expression, words, compiled: RefCell::default() };
        // A device without anything shows what is wrong whatever the device.
        let (typed, fields) = selector.typed(None);
        selector.compile(&typed, &fields)?;
        Ok(selector)
    }

    /// Whether the device is selected; an error if the expression cannot say.
    pub(crate) fn selects(&self, device: &DeviceFacts) -> Result<bool, String> {
        let (typed, mut fields) = self.typed(Some(device));
        fields.insert("driver".to_owned(), json!(&*device.device.name.driver));
        fields.insert("shareable".to_owned(), json!(device.shareable));
        let mut compiled = self.compiled.borrow_mut();
        let types: String = fields.values().map(type_name).collect();
        let form = format!("{types} {typed}");
        if !compiled.contains_key(&form) {
            if compiled.len() >= MOST_FORMS {
                compiled.clear();
            }
            let schema = self.compile(&typed, &fields);
            compiled.insert(form.clone(), schema);
        }
        let schema = match compiled.get(&form) {
            Some(Ok(schema)) => schema,
            Some(Err(problem)) => return Err(problem.clone()),
            None => return Err(String::new()),
        };
        match validate_rules(&Value::Object(fields), None, schema).first() {
            None => Ok(true),
            Some(error) if error.detail == REFUSED => Ok(false),
            Some(error) => {
                let text = error.detail.replace(&format!(" evaluating rule: {REFUSED}"), "");
                Err(text.replace(&format!(" for rule: {REFUSED}"), ""))
            }
        }
    }

    /// The device as an expression over plain fields, and those fields.
    fn typed(&self, device: Option<&DeviceFacts>) -> (String, Map<String, Value>) {
        let mut fields = Map::new();
        let mut by_domain: BTreeMap<&str, Vec<String>> =
            self.words.iter().map(|word| (word.as_str(), Vec::new())).collect();
        for (i, ((domain, name), attribute)) in device.iter().flat_map(|d| &d.attributes).enumerate() {
            let field = format!("a{i}");
            let (value, typed) = match attribute {
                Attribute::Int(number) => (json!(number), format!("dyn(self.{field})")),
                Attribute::Bool(yes) => (json!(yes), format!("dyn(self.{field})")),
                Attribute::Version(text) if is_version(text) => {
                    (json!(&**text), format!("dyn(semver(self.{field}))"))
                }
                Attribute::Text(text) | Attribute::Version(text) => {
                    (json!(&**text), format!("dyn(self.{field})"))
                }
            };
            by_domain.entry(domain).or_default().push(format!("{}: {typed}", json!(&**name)));
            fields.insert(field, value);
        }
        let attributes = nested(&by_domain);
        let mut by_domain: BTreeMap<&str, Vec<String>> =
            self.words.iter().map(|word| (word.as_str(), Vec::new())).collect();
        for (i, ((domain, name), (_, nano))) in device.iter().flat_map(|d| &d.capacity).enumerate() {
            let field = format!("c{i}");
            by_domain.entry(domain).or_default().push(format!("{}: quantity(self.{field})", json!(&**name)));
            fields.insert(field, json!(Quantity::from_nano(*nano, Format::DecimalSi).to_string()));
        }
        let capacity = nested(&by_domain);
        let typed = format!(
            "[{{\"driver\": dyn(self.driver), \"attributes\": dyn({attributes}), \"capacity\": dyn({capacity}), \
             \"allowMultipleAllocations\": dyn(self.shareable)}}]"
        );
        (typed, fields)
    }

    fn compile(&self, typed: &str, fields: &Map<String, Value>) -> Result<Schema, String> {
        // The line break ends a comment that the expression may end with.
        let rule = format!("{typed}.all(device, ({}\n))", self.expression);
        let mut properties: Map<String, Value> =
            fields.iter().map(|(name, value)| (name.clone(), json!({"type": type_name(value)}))).collect();
        properties.insert("driver".to_owned(), json!({"type": "string"}));
        properties.insert("shareable".to_owned(), json!({"type": "boolean"}));
        let schema = json!({
            "type": "object",
            "properties": properties,
            "x-kubernetes-validations": [{"rule": rule, "message": REFUSED}],
        });
        Schema::from_crd(&schema).map_err(|errors| {
            let detail = errors.first().map(|error| error.detail.clone()).unwrap_or_default();
            let line = detail.lines().next().unwrap_or_default();
            // What comes before is the place in our rule, which nobody has seen.
            let text = line
                .split_once("<input>:")
                .map_or(line, |(_, rest)| rest.splitn(3, ':').nth(2).unwrap_or(rest));
            format!("is no CEL expression: {}", text.trim())
        })
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        _ => "string",
    }
}

fn nested(by_domain: &BTreeMap<&str, Vec<String>>) -> String {
    let mut text = String::from("{");
    for (i, (domain, entries)) in by_domain.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}: {{{}}}", json!(domain), entries.join(", "));
    }
    text.push('}');
    text
}

/// `1.2.3`, with what may follow. Text that only claims to be a version is compared as text.
fn is_version(text: &str) -> bool {
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(end);
    let number = |part: &str| {
        !part.is_empty()
            && part.len() < 10
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let parts: Vec<&str> = core.split('.').collect();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let tail = rest.is_empty()
        || rest.split('+').enumerate().all(|(i, half)| {
            let half = if i == 0 { half.strip_prefix('-').unwrap_or(half) } else { half };
            (i == 0 && half.is_empty())
                || half.split('.').all(|p| {
                    let plain = i > 0 || !p.bytes().all(|b| b.is_ascii_digit()) || number(p);
                    !p.is_empty() && p.chars().all(word) && plain
                })
        }) && rest.matches('+').count() <= 1;
    parts.len() == 3 && parts.iter().all(|part| number(part)) && tail && rest != "-" && rest != "+"
}

/// Where the text that begins at a quote ends: the byte after its closing quote.
fn after_text(bytes: &[u8], start: usize) -> usize {
    let quote = bytes.get(start).copied().unwrap_or(0);
    let raw = start > 0 && bytes.get(start - 1).is_some_and(|b| matches!(b, b'r' | b'R'));
    let triple = bytes.get(start..start + 3) == Some(&[quote; 3]);
    let mut at = start + if triple { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' && !raw {
            at += 2;
        } else if *byte == quote && (!triple || bytes.get(at..at + 3) == Some(&[quote; 3])) {
            return at + if triple { 3 } else { 1 };
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Checks that brackets close, so that the expression stays within ours, and collects the text between quotes.
fn scan(expression: &str) -> Result<BTreeSet<String>, String> {
    let bytes = expression.as_bytes();
    let mut words = BTreeSet::new();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                let end = after_text(bytes, at);
                let text = expression.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
                words.insert(text.to_owned());
                at = end;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = bytes.iter().skip(at).position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n);
                continue;
            }
            b'(' => open.push(b')'),
            b'[' => open.push(b']'),
            b'{' => open.push(b'}'),
            b')' | b']' | b'}' if open.pop() != Some(*byte) => {
                return Err("has a bracket too many".to_owned());
            }
            _ => {}
        }
        if open.len() > MOST_DEPTH {
            return Err(format!("has more than {MOST_DEPTH} brackets within each other"));
        }
        at += 1;
    }
    if open.is_empty() { Ok(words) } else { Err("has a bracket that is not closed".to_owned()) }
}

/// `cel.bind(x, value, rest)` as a loop over one value, which means the same.
fn without_bindings(expression: &str, depth: usize) -> String {
    const BIND: &str = "cel.bind(";
    let Some(depth) = depth.checked_sub(1) else { return expression.to_owned() };
    let bytes = expression.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if matches!(bytes.get(at), Some(b'"' | b'\'')) {
            at = after_text(bytes, at);
            continue;
        }
        if expression.get(at..).is_some_and(|rest| rest.starts_with(BIND)) {
            let start = at + BIND.len();
            if let Some((arguments, end)) = arguments(expression, start)
                && let [name, value, rest] = &*arguments
            {
                let before = expression.get(..at).unwrap_or_default();
                let (value, rest) = (without_bindings(value, depth), without_bindings(rest, depth));
                let after = without_bindings(expression.get(end..).unwrap_or_default(), depth);
                return format!("{before}[dyn({value})].map({name}, {rest})[0]{after}");
            }
        }
        at += 1;
    }
    expression.to_owned()
}

/// The arguments of a call from after its opening bracket, and the place after its closing one.
fn arguments(expression: &str, start: usize) -> Option<(Vec<&str>, usize)> {
    let bytes = expression.as_bytes();
    let (mut depth, mut from, mut at) = (0_usize, start, start);
    let mut found = Vec::new();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = after_text(bytes, at);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                found.push(expression.get(from..at)?);
                return Some((found, at + 1));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                found.push(expression.get(from..at)?);
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Object;
    use serde_json::json;

    fn gpu() -> DeviceFacts {
        let slice = json!({"metadata": {"name": "s"}, "spec": {
            "driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "p"},
            "devices": [{"name": "d",
                "attributes": {
                    "model": {"string": "h100"}, "index": {"int": 3}, "ecc": {"bool": true},
                    "driverVersion": {"version": "1.2.3"}, "other.io/zone": {"string": "a"},
                },
                "capacity": {"memory": {"value": "80Gi"}},
            }],
        }});
        let object = Object::new("ResourceSlice", &slice);
        let facts = crate::device::slice(&object);
        assert_eq!(object.into_diagnostics(), []);
        facts.devices[0].clone()
    }

    #[track_caller]
    fn check(expression: &str, expected: Result<bool, &str>) {
        let answer = Selector::new(expression).and_then(|selector| selector.selects(&gpu()));
        match expected {
            Ok(selected) => assert_eq!(answer, Ok(selected), "{expression}"),
            Err(part) => {
                let message = answer.unwrap_err();
                assert!(message.contains(part), "{expression}: {message}");
            }
        }
    }

    #[test]
    fn selectors() {
        check("true", Ok(true));
        check(r#"device.driver == "gpu.example.com""#, Ok(true));
        check(r#"device.attributes["gpu.example.com"].model == "h100""#, Ok(true));
        check(r#"device.attributes["gpu.example.com"].model == "a100""#, Ok(false));
        check(r#"device.attributes["gpu.example.com"].index > 2"#, Ok(true));
        check(r#"device.attributes["gpu.example.com"].ecc"#, Ok(true));
        check(r#"device.attributes["other.io"].zone == "a""#, Ok(true));
        check(
            r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.0.0"))"#,
            Ok(true),
        );
        check(
            r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("1.2.3")) == 0"#,
            Ok(true),
        );
        check(r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#, Ok(true));
        check(r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80Gi"))"#, Ok(false));
        check(r#"has(device.attributes["nobody.io"].zone)"#, Ok(false));
        check(r#""model" in device.attributes["gpu.example.com"]"#, Ok(true));
        check(r#"device.attributes["gpu.example.com"].model.matches("^h[0-9]+$")"#, Ok(true));
        check(r#"["h100", "h200"].exists(m, m == device.attributes["gpu.example.com"].model)"#, Ok(true));
        check(r#"!device.allowMultipleAllocations"#, Ok(true));
    }

    #[test]
    fn bindings() {
        check(r#"cel.bind(d, device.attributes["gpu.example.com"], d.model == "h100" && d.ecc)"#, Ok(true));
        check(
            r#"cel.bind(d, device.attributes["gpu.example.com"], cel.bind(m, d.model, m == "a, (b"))"#,
            Ok(false),
        );
        check(r#"cel.bind(a, 1, a == 1) && cel.bind(b, 2, b == 2)"#, Ok(true));
    }

    #[test]
    fn what_cannot_be_answered_is_an_error() {
        check(r#"device.attributes["gpu.example.com"].colour == "red""#, Err("no such key: colour"));
        check("1 + 1", Err("expected type 'bool'"));
        check("device.driver", Err("no such overload"));
        check("device.driver ==", Err("Syntax error"));
        check("", Err("Syntax error"));
        check("nonsense(device)", Err("undeclared reference to 'nonsense'"));
    }

    #[test]
    fn an_expression_stays_within_its_brackets() {
        check("true) || (true", Err("bracket"));
        check("true) || (true // (", Err("bracket"));
        check("(true", Err("bracket"));
        check("true // and so on", Ok(true));
        check(r#"device.driver == ")" || true"#, Ok(true));
    }

    #[test]
    fn hostile_expressions_are_refused() {
        check(&"(".repeat(5000), Err("brackets"));
        check(&"x".repeat(11_000), Err("longer"));
        check(&format!("true{}", " || true".repeat(1000)), Ok(true));
        check(&format!("device{}", ".a".repeat(4000)), Err("no CEL expression"));
        check(&format!("{}true", "false ? true : ".repeat(600)), Err("no CEL expression"));
        let ten = "[0,1,2,3,4,5,6,7,8,9]";
        let loops: String = (0..9).map(|i| format!("{ten}.all(x{i}, ")).collect();
        check(&format!("{loops}true{}", ")".repeat(9)), Err("cost"));
        check("\"unfinished", Err("no CEL expression"));
        check(&"cel.bind(".repeat(90), Err("bracket"));
        check(&format!("{}true{}", "cel.bind(a, 1, ".repeat(90), ")".repeat(90)), Err(""));
        check("é + 'ü", Err("no CEL expression"));
    }

    #[track_caller]
    fn check_version(text: &str, expected: bool) {
        assert_eq!(is_version(text), expected, "{text}");
    }

    #[test]
    fn versions() {
        check_version("1.2.3", true);
        check_version("1.2.3-rc.1+build.5", true);
        check_version("1.2.3+b", true);
        check_version("1.2", false);
        check_version("01.2.3", false);
        check_version("1.2.3-", false);
        check_version("1.2.3-01", false);
        check_version("v1.2.3", false);
        check_version("1.2.3+a+b", false);
    }
}
