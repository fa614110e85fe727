//! How far our CRDs cover upstream's.
//!
//! In: two lists of CRDs as JSON values. Out: a [`Report`] of every path that upstream has and we lack, every
//! keyword that differs, and what of this is an intended deviation. Pure.
//!
//! What must stay true:
//! - everything in a CRD is compared except descriptions and the metadata of the CRD itself; a keyword that
//!   this code has never heard of is compared too;
//! - a field of ours that upstream lacks is a difference, since a server with our CRDs would keep it;
//! - an open object covers what lies beneath it only where upstream has a pod spec, a pod template, a
//!   resource claim template or an affinity, recognised by their shape and not by their place.

use crate::deviation::{DEVIATIONS, Deviation};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// CRDs, versions and paths that upstream has and we lack.
    pub missing: Vec<Finding>,
    /// Keywords that differ, and paths of ours that upstream lacks.
    pub differ: Vec<Finding>,
    /// Findings that are intended.
    pub allowed: Vec<(Finding, Deviation)>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Name of the CRD.
    pub crd: String,
    /// Version and path: `v1beta2 spec.resourceGroups[].flavors`. Empty for the CRD as a whole.
    pub path: String,
    /// The keyword: `required`, `enum`, `default`; `missing` and `extra` for a path as a whole.
    pub what: String,
    /// Both sides, where that helps.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.crd)?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        write!(f, ": {}", self.what)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.missing {
            writeln!(f, "missing  {finding}")?;
        }
        for finding in &self.differ {
            writeln!(f, "differs  {finding}")?;
        }
        for (finding, deviation) in &self.allowed {
            writeln!(f, "allowed  {finding} ({})", deviation.why)?;
        }
        writeln!(
            f,
            "{} missing, {} differ, {} allowed",
            self.missing.len(),
            self.differ.len(),
            self.allowed.len()
        )
    }
}

/// Compares our CRDs with upstream's. CRDs of ours that upstream does not have at all are not looked at.
pub fn compare(ours: &[Value], upstream: &[Value]) -> Report {
    let ours: BTreeMap<String, &Value> = ours.iter().map(|crd| (name_of(crd), crd)).collect();
    let mut findings = Findings::default();
    for theirs in upstream {
        findings.crd = name_of(theirs);
        match ours.get(&findings.crd) {
            Some(mine) => compare_crd(mine, theirs, &mut findings),
            None => findings.push("", "missing", String::new()),
        }
    }
    let (mut report, mut used) = (Report::default(), BTreeSet::new());
    for finding in findings.all {
        let deviation =
            DEVIATIONS.iter().enumerate().find(|(_, d)| d.covers(&finding.crd, &finding.path, &finding.what));
        match deviation {
            Some((idx, deviation)) => {
                used.insert(idx);
                report.allowed.push((finding, *deviation));
            }
            None if finding.what == "missing" => report.missing.push(finding),
            None => report.differ.push(finding),
        }
    }
    for (idx, deviation) in DEVIATIONS.iter().enumerate() {
        let relevant =
            upstream.iter().any(|crd| deviation.covers(&name_of(crd), deviation.path, deviation.what));
        if relevant && !used.contains(&idx) {
            report.differ.push(Finding {
                crd: deviation.crd.to_owned(),
                path: deviation.path.to_owned(),
                what: deviation.what.to_owned(),
                detail: "listed as a deviation, but there is no such difference".to_owned(),
            });
        }
    }
    report
}

#[derive(Default)]
struct Findings {
    crd: String,
    all: Vec<Finding>,
}

impl Findings {
    fn push(&mut self, path: &str, what: &str, detail: String) {
        self.all.push(Finding {
            crd: self.crd.clone(),
            path: path.to_owned(),
            what: what.to_owned(),
            detail,
        });
    }

    fn same(&mut self, path: &str, what: &str, mine: &Value, theirs: &Value) {
        if !same_value(mine, theirs) {
            self.push(path, what, format!("upstream {}, ours {}", brief(theirs), brief(mine)));
        }
    }
}

impl Findings {
    /// For lists whose order means nothing; no list is the same as an empty one.
    fn same_set(&mut self, path: &str, what: &str, mine: &Value, theirs: &Value) {
        let empty = Vec::new();
        let (mine, theirs) = (mine.as_array().unwrap_or(&empty), theirs.as_array().unwrap_or(&empty));
        let without = |a: &[Value], b: &[Value]| -> Vec<Value> {
            a.iter().filter(|x| !b.iter().any(|y| same_value(x, y))).cloned().collect()
        };
        let (only_mine, only_theirs) = (without(mine, theirs), without(theirs, mine));
        let mut detail = Vec::new();
        if !only_theirs.is_empty() {
            detail.push(format!("only upstream {}", brief(&Value::Array(only_theirs))));
        }
        if !only_mine.is_empty() {
            detail.push(format!("only ours {}", brief(&Value::Array(only_mine))));
        }
        if !detail.is_empty() {
            self.push(path, what, detail.join(", "));
        }
    }
}

fn name_of(crd: &Value) -> String {
    crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("(a CRD without a name)").to_owned()
}

fn compare_crd(mine: &Value, theirs: &Value, out: &mut Findings) {
    for (what, pointer) in [
        ("group", "/spec/group"),
        ("scope", "/spec/scope"),
        ("kind", "/spec/names/kind"),
        ("listKind", "/spec/names/listKind"),
        ("plural", "/spec/names/plural"),
        ("singular", "/spec/names/singular"),
        ("preserveUnknownFields", "/spec/preserveUnknownFields"),
    ] {
        out.same("", what, at(mine, pointer), at(theirs, pointer));
    }
    for (what, pointer) in
        [("shortNames", "/spec/names/shortNames"), ("categories", "/spec/names/categories")]
    {
        out.same_set("", what, at(mine, pointer), at(theirs, pointer));
    }
    let mine = by_name(at(mine, "/spec/versions"), "name");
    let theirs = by_name(at(theirs, "/spec/versions"), "name");
    for (name, theirs) in &theirs {
        match mine.get(name) {
            Some(mine) => compare_version(name, mine, theirs, out),
            None => out.push(name, "missing", String::new()),
        }
    }
    for name in mine.keys().filter(|name| !theirs.contains_key(*name)) {
        out.push(name, "extra", String::new());
    }
}

fn compare_version(version: &str, mine: &Value, theirs: &Value, out: &mut Findings) {
    for what in ["served", "storage"] {
        out.same(version, what, &mine[what], &theirs[what]);
    }
    let flag = |v: &Value| Value::Bool(v.as_bool().unwrap_or(false));
    out.same(version, "deprecated", &flag(&mine["deprecated"]), &flag(&theirs["deprecated"]));
    out.same(version, "deprecationWarning", &mine["deprecationWarning"], &theirs["deprecationWarning"]);
    for what in ["status", "scale"] {
        out.same(version, what, &mine["subresources"][what], &theirs["subresources"][what]);
    }
    out.same_set(version, "selectableFields", &mine["selectableFields"], &theirs["selectableFields"]);

    let columns = |v: &Value| by_name(&v["additionalPrinterColumns"], "name");
    let (my_columns, their_columns) = (columns(mine), columns(theirs));
    for (name, theirs) in &their_columns {
        let path = format!("{version} column {name}");
        let Some(mine) = my_columns.get(name) else {
            out.push(&path, "missing", String::new());
            continue;
        };
        for what in ["type", "jsonPath", "format"] {
            out.same(&path, what, &mine[what], &theirs[what]);
        }
        let priority = |v: &Value| Value::from(v["priority"].as_i64().unwrap_or(0));
        out.same(&path, "priority", &priority(mine), &priority(theirs));
    }
    for name in my_columns.keys().filter(|name| !their_columns.contains_key(*name)) {
        out.push(&format!("{version} column {name}"), "extra", String::new());
    }
    let schema = |v: &Value| v.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
    compare_schema(version, "", &schema(mine), &schema(theirs), out);
}

/// Keywords that hold schemas or texts, and so are not compared as values.
const NOT_VALUES: [&str; 5] = ["description", "properties", "items", "additionalProperties", "required"];

fn compare_schema(version: &str, path: &str, mine: &Value, theirs: &Value, out: &mut Findings) {
    if is_open(mine) && may_be_open(theirs) {
        return;
    }
    let full = format!("{version} {path}");
    let full = full.trim_end();
    let empty = Map::new();
    let (mine, theirs) = (mine.as_object().unwrap_or(&empty), theirs.as_object().unwrap_or(&empty));

    let keywords: BTreeSet<&String> = mine.keys().chain(theirs.keys()).collect();
    for keyword in keywords.into_iter().filter(|k| !NOT_VALUES.contains(&k.as_str())) {
        let (mine, theirs) =
            (mine.get(keyword).unwrap_or(&Value::Null), theirs.get(keyword).unwrap_or(&Value::Null));
        match keyword.as_str() {
            "enum" | "x-kubernetes-validations" | "x-kubernetes-list-map-keys" => {
                out.same_set(full, keyword, mine, theirs)
            }
            _ => out.same(full, keyword, mine, theirs),
        }
    }

    let required = |v: &Map<String, Value>| -> BTreeSet<String> {
        let names = v.get("required").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (my_required, their_required) = (required(mine), required(theirs));
    for name in their_required.symmetric_difference(&my_required) {
        let who =
            if their_required.contains(name) { "upstream requires it" } else { "only ours requires it" };
        out.push(&format!("{version} {}", join(path, name)), "required", who.to_owned());
    }

    let properties =
        |v: &Map<String, Value>| v.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let (my_properties, their_properties) = (properties(mine), properties(theirs));
    for (name, theirs) in &their_properties {
        let path = join(path, name);
        match my_properties.get(name) {
            Some(mine) => compare_schema(version, &path, mine, theirs, out),
            None => out.push(&format!("{version} {path}"), "missing", String::new()),
        }
    }
    for name in my_properties.keys().filter(|name| !their_properties.contains_key(*name)) {
        out.push(&format!("{version} {}", join(path, name)), "extra", String::new());
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        let path = format!("{path}{mark}");
        match (mine.get(keyword), theirs.get(keyword)) {
            (None, None) => {}
            (Some(mine), Some(theirs)) => compare_schema(version, &path, mine, theirs, out),
            (None, Some(_)) => out.push(&format!("{version} {path}"), "missing", String::new()),
            (Some(_), None) => out.push(&format!("{version} {path}"), "extra", String::new()),
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_open(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true && schema.get("properties").is_none()
}

/// Whether upstream has here what we may leave open: a pod spec, a pod template, a claim template or an
/// affinity.
fn may_be_open(schema: &Value) -> bool {
    is_pod_spec(schema) || is_affinity(schema) || is_pod_template(schema) || is_claim_template(schema)
}

fn has(schema: &Value, name: &str) -> bool {
    schema["properties"].get(name).is_some()
}

fn only(schema: &Value, names: &[&str]) -> bool {
    schema["properties"].as_object().is_some_and(|p| p.keys().all(|k| names.contains(&k.as_str())))
}

fn is_pod_spec(schema: &Value) -> bool {
    ["containers", "initContainers", "restartPolicy", "nodeSelector"].iter().all(|name| has(schema, name))
}

fn is_pod_template(schema: &Value) -> bool {
    only(schema, &["metadata", "spec"]) && is_pod_spec(&schema["properties"]["spec"])
}

fn is_affinity(schema: &Value) -> bool {
    let parts = ["nodeAffinity", "podAffinity", "podAntiAffinity"];
    only(schema, &parts) && parts.iter().all(|name| has(schema, name))
}

fn is_claim_template(schema: &Value) -> bool {
    let spec = &schema["properties"]["spec"];
    only(schema, &["metadata", "spec"])
        && only(spec, &["devices"])
        && has(&spec["properties"]["devices"], "requests")
}

fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn by_name(list: &Value, key: &str) -> BTreeMap<String, Value> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| Some((item[key].as_str()?.to_owned(), item.clone()))).collect()
}

/// Equality in which `1` and `1.0` are the same number.
fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same_value(v, w)))
        }
        _ => a == b,
    }
}

fn brief(value: &Value) -> String {
    let text = match value {
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    };
    if text.chars().count() > 300 { text.chars().take(300).chain("…".chars()).collect() } else { text }
}

/// Indents the continuation lines of quoted YAML scalars.
///
/// Go's YAML reader, and so kubectl, accepts continuation lines that are indented no further than their key;
/// the YAML standard and our reader do not. One of upstream's CRDs is written that way. The value stays the
/// same, because leading blanks of a continuation line are not part of it.
pub fn indent_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut open: Option<char> = None;
    for line in text.split_inclusive('\n') {
        match open {
            Some(quote) => {
                let body = line.trim_start();
                if !body.is_empty() {
                    out.push_str(&" ".repeat(line.len() - body.len() + 4));
                }
                out.push_str(body);
                if body.is_empty() {
                    out.push('\n');
                }
                if closes(body, quote) {
                    open = None;
                }
            }
            None => {
                out.push_str(line);
                open = opens(line);
            }
        }
    }
    out
}

/// The quote that a line opens and does not close.
fn opens(line: &str) -> Option<char> {
    let value = line.trim_start().trim_start_matches("- ");
    let value = match value.split_once(": ") {
        Some((key, value)) if !key.contains(['\'', '"', '#']) => value,
        _ => value,
    };
    let mut chars = value.trim_start().chars();
    let quote = chars.next().filter(|c| matches!(c, '\'' | '"'))?;
    (!closes(chars.as_str(), quote)).then_some(quote)
}

/// Whether a quoted scalar ends in this text. A doubled `'` and an escaped `"` do not end it.
fn closes(text: &str, quote: char) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if quote == '"' && c == '\\' {
            chars.next();
        } else if c == quote {
            if quote == '\'' && chars.peek() == Some(&'\'') {
                chars.next();
            } else {
                return true;
            }
        }
    }
    false
}
