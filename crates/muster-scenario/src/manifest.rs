//! Manifests as people keep them: several YAML documents in a file, JSON, lists.
//!
//! In: text. Out: one JSON value per object. Values only; what an object means is for `muster-translate` to say.

use serde_json::Value;

/// Every document of a text, JSON or YAML; documents that say nothing are left out.
pub fn manifests(text: &str) -> Result<Vec<Value>, String> {
    // JSON is YAML too, but is read an order of magnitude faster as itself, and a snapshot of a cluster is large.
    if text.trim_start().starts_with(['{', '[']) {
        let stream: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(documents) = stream {
            return Ok(documents);
        }
    }
    // The reader's own limits are made for untrusted input of a few megabytes; a cluster may be larger.
    // A node called `n` is no boolean, whatever YAML 1.1 says.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(documents.into_iter().filter(|d| !d.is_null()).collect())
}

/// The objects of a text: documents, with lists taken apart.
pub fn objects_of(text: &str) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    for document in manifests(text)? {
        match document {
            Value::Array(items) => items.into_iter().for_each(|item| flatten(item, &mut objects)),
            one => flatten(one, &mut objects),
        }
    }
    if let Some(other) = objects.iter().find(|o| !o.is_object()) {
        return Err(format!("a manifest is a mapping; this is {}", crate::fields::kind(other)));
    }
    Ok(objects)
}

/// Adds an object, or the items of a list.
pub fn flatten(object: Value, into: &mut Vec<Value>) {
    let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
        && object.get("items").is_some_and(Value::is_array);
    match object {
        Value::Object(mut map) if is_list => {
            let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
            // The items of a typed list (`PodList`) may leave out what the list says already.
            let item_kind = kind.strip_suffix("List").filter(|k| !k.is_empty()).map(str::to_string);
            let version = map.get("apiVersion").cloned();
            let Some(Value::Array(items)) = map.remove("items") else { return };
            for mut item in items {
                if let (Value::Object(fields), Some(kind)) = (&mut item, &item_kind) {
                    fields.entry("kind").or_insert_with(|| Value::String(kind.clone()));
                    if let Some(version) = &version {
                        fields.entry("apiVersion").or_insert_with(|| version.clone());
                    }
                }
                into.push(item);
            }
        }
        one => into.push(one),
    }
}
