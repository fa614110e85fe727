//! Real CRDs: every schema is accepted, quickly, and every rule runs.

use std::{fs, path::Path, time::Instant};

use k8s_schema::{Additional, Schema, Type, default, prune, validate_all, validate_rules};
use serde_json::{Map, Value};

/// Every CRD version of the folder beside the workspace: its name and schema. Empty if there is no such folder.
fn crds() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/crds");
    if !folder.exists() {
        println!("skipped: no ../shared");
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "yaml") {
                let text = fs::read_to_string(&path).unwrap();
                let read = |text: &str| {
                    let options = serde_saphyr::options! { budget: None };
                    serde_saphyr::from_multiple_with_options::<Value>(text, options)
                };
                let documents = read(&text)
                    .or_else(|_| read(&indent_quoted(&text)))
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                for crd in documents.iter().filter(|d| d["kind"] == "CustomResourceDefinition") {
                    for version in crd["spec"]["versions"].as_array().unwrap() {
                        let name = format!("{} {}", crd["metadata"]["name"], version["name"]);
                        found.push((name, version["schema"]["openAPIV3Schema"].clone()));
                    }
                }
            }
        }
    }
    found
}

/// Some generators do not indent the further lines of a quoted text, which strict YAML readers refuse.
fn indent_quoted(text: &str) -> String {
    let mut out = String::new();
    let mut open = false;
    for line in text.lines() {
        out.push_str(if open { "  " } else { "" });
        out.push_str(line);
        out.push('\n');
        let starts = line.contains(": '") || line.trim_start().starts_with("- '");
        if (open || starts) && line.matches('\'').count() % 2 == 1 {
            open = !open;
        }
    }
    out
}

#[test]
fn real_crds_are_accepted_and_published_unchanged() {
    for (name, json) in crds() {
        let start = Instant::now();
        let schema = Schema::from_crd(&json).unwrap_or_else(|e| panic!("{name}: {e:#?}"));
        let took = start.elapsed();
        assert!(took.as_secs() < 5, "{name} took {took:?}");
        println!("{name}: {took:?}");
        let again = Schema::from_crd(&schema.to_openapi()).unwrap();
        assert!(again == schema, "{name} changed on the way through OpenAPI");
    }
}

/// A value that has every field of the schema, with two items in each list.
fn full(schema: &Schema, depth: usize) -> Value {
    if let Some(default) = &schema.default {
        return default.clone();
    }
    if let Some(first) = schema.enums.first() {
        return first.clone();
    }
    match schema.ty {
        Type::Object => {
            let mut map = Map::new();
            for (name, child) in schema.properties.iter().filter(|_| depth < 12) {
                map.insert(name.clone(), full(child, depth + 1));
            }
            if let Some(Additional::Schema(child)) = &schema.additional {
                map.insert("a".to_owned(), full(child, depth + 1));
            }
            Value::Object(map)
        }
        Type::Array => match &schema.items {
            Some(items) if depth < 12 => vec![full(items, depth + 1), full(items, depth + 1)].into(),
            _ => Value::Array(Vec::new()),
        },
        Type::Integer => 1.into(),
        Type::Number => 1.5.into(),
        Type::Boolean => true.into(),
        Type::String => match schema.format.as_deref() {
            Some("date-time") => "2024-01-01T00:00:00Z".into(),
            Some("duration") => "1h".into(),
            _ => "a".into(),
        },
        Type::Any if schema.int_or_string => 1.into(),
        Type::Any => Value::Null,
    }
}

/// Evaluating a rule may find it false, but must not fail for want of a function, an overload or a field.
#[test]
fn real_rules_run() {
    let mut n_errors = 0;
    for (name, json) in crds() {
        let schema = Schema::from_crd(&json).unwrap();
        let value = full(&schema, 0);
        for old in [None, Some(&value)] {
            for error in validate_rules(&value, old, &schema) {
                let text = error.to_string();
                for bad in ["overload", "no such", "compile", "evaluating rule", "cost"] {
                    assert!(!text.contains(bad), "{name}: {text}");
                }
                n_errors += 1;
            }
        }
        let mut changed = value.clone();
        default(&mut changed, &schema);
        assert!(prune(&mut changed, &schema).is_empty(), "{name}");
        let _ = validate_all(&changed, Some(&value), &schema);
    }
    println!("{n_errors} rules were false");
}
