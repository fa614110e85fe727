//! Structural form: every field has one declared type, and logical junctors only narrow what is declared outside of them.

use crate::{Additional, FieldError, Schema, Type, path::Path};

/// What keeps the schema from being structural, sorted by message.
pub(super) fn errors(schema: &Schema, place: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let root = Path::Base(place);
    invariants(schema, Level::Root, &root, &mut errors);
    junctors_complete(schema, Some(schema), &root, &root, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(s: &Schema, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let required = |name: &str, detail: &str| FieldError::required(path.child(name).field(), detail);
    let forbidden = |name: &str, detail: &str| FieldError::forbidden(path.child(name).field(), detail);

    if s.ty == Type::Array && s.items.is_none() {
        errors.push(required("items", "must be specified"));
    }
    if let Some(items) = &s.items {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, child) in &s.properties {
        invariants(child, Level::Field, &path.child("properties").key(name), errors);
    }
    if let Some(additional) = &s.additional {
        if level == Level::Root {
            errors.push(forbidden("additionalProperties", "must not be used at the root"));
        }
        if let Additional::Schema(child) = additional {
            invariants(child, Level::Field, &path.child("additionalProperties"), errors);
        }
    }
    let must_be_false = "must be false if x-kubernetes-int-or-string is true";
    if s.int_or_string && s.preserve_unknown {
        let field = path.child("x-kubernetes-preserve-unknown-fields").field();
        errors.push(FieldError::invalid(field, true, must_be_false));
    }
    if s.int_or_string && s.embedded_resource {
        let field = path.child("x-kubernetes-embedded-resource").field();
        errors.push(FieldError::invalid(field, true, must_be_false));
    }

    let plain_choice = is_int_or_string_choice(s);
    let nested_choice = s.all_of.first().is_some_and(|first| is_int_or_string_choice(first));
    value_validations(s, plain_choice, nested_choice, path, errors);

    let resource = level == Level::Root || s.embedded_resource;
    if s.embedded_resource && s.ty != Type::Object {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match s.ty {
            Type::Any => required("type", detail),
            ty => FieldError::invalid(path.child("type").field(), ty.name(), detail),
        });
    } else if s.ty == Type::Any && !s.int_or_string && !s.preserve_unknown {
        errors.push(required(
            "type",
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if s.embedded_resource && s.additional.is_some() {
        errors.push(forbidden(
            "additionalProperties",
            "must not be used if x-kubernetes-embedded-resource is set",
        ));
    }
    if level == Level::Root && !matches!(s.ty, Type::Any | Type::Object) {
        errors.push(FieldError::invalid(
            path.child("type").field(),
            s.ty.name(),
            "must be object at the root",
        ));
    }
    for name in ["kind", "apiVersion"] {
        if let Some(child) = s.properties.get(name).filter(|child| resource && child.ty != Type::String) {
            let field = path.child("properties").key(name).child("type").field();
            errors.push(FieldError::invalid(field, child.ty.name(), "must be string"));
        }
    }
    if let Some(metadata) = s.properties.get("metadata") {
        let properties = path.child("properties");
        let place = properties.key("metadata");
        if resource && metadata.ty != Type::Object {
            errors.push(FieldError::invalid(
                place.child("type").field(),
                metadata.ty.name(),
                "must be object",
            ));
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(place.field(), detail));
        }
    }
    if s.embedded_resource && !s.preserve_unknown && s.properties.is_empty() {
        errors.push(required(
            "properties",
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn restricts_names_only(metadata: &Schema) -> bool {
    let names_only = metadata.properties.keys().all(|name| name == "name" || name == "generateName");
    let rest = Schema {
        ty: Type::Any,
        default: None,
        properties: if names_only { Default::default() } else { metadata.properties.clone() },
        ..metadata.clone()
    };
    rest == Schema::default()
}

/// The usual way to write int-or-string: a choice between the two types, and nothing else.
fn is_int_or_string_choice(s: &Schema) -> bool {
    match s.any_of.as_slice() {
        [a, b] => **a == Schema::of(Type::Integer) && **b == Schema::of(Type::String),
        _ => false,
    }
}

fn value_validations(
    s: &Schema,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (i, child) in s.any_of.iter().enumerate() {
            nested(child, false, &path.child("anyOf").index(i), errors);
        }
    }
    for (i, child) in s.all_of.iter().enumerate() {
        nested(child, skip_first_all_of && i == 0, &path.child("allOf").index(i), errors);
    }
    for (i, child) in s.one_of.iter().enumerate() {
        nested(child, false, &path.child("oneOf").index(i), errors);
    }
    if let Some(not) = &s.not {
        nested(not, false, &path.child("not"), errors);
    }
    if let Some(pattern) = s.pattern.as_ref().filter(|p| !p.source().is_empty())
        && let Err(why) = pattern.regex()
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.child("pattern").field(), pattern.source(), detail));
    }
}

/// A schema under a logical junctor may only narrow values.
fn nested(s: &Schema, skip_any_of: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    value_validations(s, skip_any_of, false, path, errors);
    if let Some(items) = &s.items {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, child) in &s.properties {
        nested(child, false, &path.child("properties").key(name), errors);
    }
    let empty = "must be empty to be structural";
    let undefined = "must be undefined to be structural";
    let off = "must be false to be structural";
    let additional = matches!(s.additional, Some(Additional::Schema(_) | Additional::Allowed(true)));
    let checks = [
        ("type", s.ty != Type::Any, empty),
        ("additionalProperties", additional, undefined),
        ("default", s.default.is_some(), undefined),
        ("title", s.title.is_some(), empty),
        ("description", s.description.is_some(), empty),
        ("nullable", s.nullable, off),
        ("x-kubernetes-preserve-unknown-fields", s.preserve_unknown, off),
        ("x-kubernetes-embedded-resource", s.embedded_resource, off),
        ("x-kubernetes-int-or-string", s.int_or_string, off),
        ("x-kubernetes-list-map-keys", !s.list_map_keys.is_empty(), empty),
        ("x-kubernetes-list-type", s.list_type.is_some(), undefined),
        ("x-kubernetes-map-type", s.map_type.is_some(), undefined),
        ("x-kubernetes-validations", !s.rules.is_empty(), empty),
    ];
    for (name, _, detail) in checks.into_iter().filter(|(_, set, _)| *set) {
        errors.push(FieldError::forbidden(path.child(name).field(), detail));
    }
    if s.properties.contains_key("metadata") {
        let field = path.child("properties").key("metadata").field();
        errors.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// What a junctor speaks of must be declared outside of it. `own` is the declaration at this place, if there is one.
fn junctors_complete(
    v: &Schema,
    own: Option<&Schema>,
    own_path: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = &v.not {
        complete(not, own, own_path, &path.child("not"), errors);
    }
    for (name, list) in [("allOf", &v.all_of), ("anyOf", &v.any_of), ("oneOf", &v.one_of)] {
        for (i, child) in list.iter().enumerate() {
            complete(child, own, own_path, &path.child(name).index(i), errors);
        }
    }
}

fn complete(
    v: &Schema,
    own: Option<&Schema>,
    own_path: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(own) = own else {
        let detail = format!("because it is defined in {}", path.field());
        errors.push(FieldError::required(own_path.field(), detail));
        return;
    };
    junctors_complete(v, Some(own), own_path, path, errors);
    if let Some(items) = &v.items {
        complete(items, own.items.as_deref(), &own_path.child("items"), &path.child("items"), errors);
    }
    for (name, child) in &v.properties {
        let own_child = own.properties.get(name).map(AsRef::as_ref);
        let own_place = own_path.child("properties");
        let place = path.child("properties");
        complete(child, own_child, &own_place.key(name), &place.key(name), errors);
    }
}
