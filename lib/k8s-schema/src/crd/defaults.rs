//! Defaults must fit: no unknown fields, valid by their own schema, and accepted by the rules below them.

use crate::{FieldError, Schema, path::Path, prune::prune_value, rules::rules_below, validate};

/// What is wrong with the defaults of a schema.
pub(super) fn errors(schema: &Schema, place: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(schema, true, false, &Path::Base(place), &mut errors);
    errors
}

fn node(schema: &Schema, root: bool, inside_meta: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let resource = root || schema.embedded_resource;
    let inside_meta = inside_meta && !schema.embedded_resource;
    if let Some(default) = &schema.default {
        let place = path.child("default");
        let name = place.field();
        if !inside_meta {
            let mut pruned = default.clone();
            if !prune_value(&mut pruned, schema).is_empty() {
                errors.push(FieldError::invalid(
                    name.clone(),
                    default.clone(),
                    "must not have unknown fields",
                ));
            }
        }
        let mut found = Vec::new();
        validate::embedded(default, schema, &Path::Base(&name), resource && !inside_meta, &mut found);
        if found.is_empty() {
            found = validate::schema_errors(default, None, schema, Some(&name));
        }
        if found.is_empty() {
            found = rules_below(default, Some(default), schema, &Path::Base(&name), resource);
        }
        if found.is_empty() {
            found = rules_below(default, None, schema, &Path::Base(&name), resource);
        }
        errors.extend(found);
    }
    if let Some(items) = &schema.items {
        node(items, false, inside_meta, &path.child("items"), errors);
    }
    for (key, child) in &schema.properties {
        let meta = resource && matches!(key.as_str(), "metadata" | "apiVersion" | "kind");
        node(child, false, inside_meta || meta, &path.child("properties").key(key), errors);
    }
}
