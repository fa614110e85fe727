//! JSON to [`Schema`], without judgement about the whole: only what cannot be read is refused.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{Additional, FieldError, ListType, MapType, Pattern, Rule, Schema, Type, path::Path};

/// Deepest schema that is read; JSON readers stop at the same depth.
const MAX_DEPTH: usize = 128;

/// Reads a schema whose place in its document is `place`.
///
/// Also tells whether keywords were seen that cannot be part of a structural schema at all.
pub(super) fn schema(value: &Value, place: &str) -> Result<(Schema, bool), Vec<FieldError>> {
    let mut reader = Reader { errors: Vec::new(), unsupported: false };
    let schema = reader.node(value, &Path::Base(place), 0);
    if reader.errors.is_empty() { Ok((schema, reader.unsupported)) } else { Err(reader.errors) }
}

struct Reader {
    errors: Vec<FieldError>,
    unsupported: bool,
}

impl Reader {
    fn wrong(&mut self, path: &Path<'_>, value: &Value, wanted: &str) {
        self.errors.push(FieldError::type_invalid(path.field(), value.clone(), format!("must be {wanted}")));
    }

    fn node(&mut self, value: &Value, path: &Path<'_>, depth: usize) -> Schema {
        let mut schema = Schema::default();
        let Value::Object(map) = value else {
            self.wrong(path, value, "an object");
            return schema;
        };
        if depth > MAX_DEPTH {
            self.errors.push(FieldError::forbidden(
                path.field(),
                format!("must not be nested deeper than {MAX_DEPTH}"),
            ));
            return schema;
        }
        for (name, value) in map {
            if !value.is_null() {
                self.entry(&mut schema, name, value, &path.child(name), depth);
            }
        }
        schema
    }

    fn entry(&mut self, schema: &mut Schema, name: &str, value: &Value, path: &Path<'_>, depth: usize) {
        match name {
            "type" => schema.ty = self.ty(value, path),
            "format" => schema.format = self.text(value, path),
            "title" => schema.title = self.text(value, path),
            "description" => schema.description = self.text(value, path),
            "nullable" => schema.nullable = self.flag(value, path),
            "properties" => {
                for (key, child) in self.object(value, path) {
                    let child = self.node(child, &path.key(key), depth + 1);
                    schema.properties.insert(key.clone(), Arc::new(child));
                }
            }
            "additionalProperties" => {
                schema.additional = Some(match value {
                    Value::Bool(allowed) => Additional::Allowed(*allowed),
                    other => Additional::Schema(Arc::new(self.node(other, path, depth + 1))),
                });
            }
            // A list of item schemas is refused later, with the words for it.
            "items" if value.is_array() => self.unsupported = true,
            "items" => schema.items = Some(Arc::new(self.node(value, path, depth + 1))),
            "required" => schema.required = self.texts(value, path),
            "enum" => schema.enums = self.list(value, path).to_vec(),
            "default" => schema.default = Some(value.clone()),
            "example" => schema.example = Some(value.clone()),
            "externalDocs" => schema.external_docs = Some(value.clone()),
            "minimum" => schema.minimum = self.number(value, path),
            "maximum" => schema.maximum = self.number(value, path),
            "multipleOf" => schema.multiple_of = self.number(value, path),
            "exclusiveMinimum" => schema.exclusive_minimum = self.flag(value, path),
            "exclusiveMaximum" => schema.exclusive_maximum = self.flag(value, path),
            "minLength" => schema.min_length = self.count(value, path),
            "maxLength" => schema.max_length = self.count(value, path),
            "minItems" => schema.min_items = self.count(value, path),
            "maxItems" => schema.max_items = self.count(value, path),
            "minProperties" => schema.min_properties = self.count(value, path),
            "maxProperties" => schema.max_properties = self.count(value, path),
            "uniqueItems" => schema.unique_items = self.flag(value, path),
            "pattern" => schema.pattern = self.text(value, path).map(Pattern::new),
            "allOf" => schema.all_of = self.schemas(value, path, depth),
            "anyOf" => schema.any_of = self.schemas(value, path, depth),
            "oneOf" => schema.one_of = self.schemas(value, path, depth),
            "not" => schema.not = Some(Arc::new(self.node(value, path, depth + 1))),
            "x-kubernetes-preserve-unknown-fields" => {
                schema.preserve_unknown = self.flag(value, path);
                self.unsupported |= !schema.preserve_unknown;
            }
            "x-kubernetes-embedded-resource" => schema.embedded_resource = self.flag(value, path),
            "x-kubernetes-int-or-string" => schema.int_or_string = self.flag(value, path),
            "x-kubernetes-list-map-keys" => schema.list_map_keys = self.texts(value, path),
            "x-kubernetes-list-type" => {
                schema.list_type = match self.text(value, path).as_deref() {
                    Some("atomic") => Some(ListType::Atomic),
                    Some("set") => Some(ListType::Set),
                    Some("map") => Some(ListType::Map),
                    // Refused later, with the words for it.
                    _ => None,
                }
            }
            "x-kubernetes-map-type" => {
                schema.map_type = match self.text(value, path).as_deref() {
                    Some("atomic") => Some(MapType::Atomic),
                    Some("granular") => Some(MapType::Granular),
                    _ => None,
                }
            }
            "x-kubernetes-validations" => {
                schema.rules = self
                    .list(value, path)
                    .iter()
                    .enumerate()
                    .map(|(i, rule)| self.rule(rule, &path.index(i)))
                    .collect();
            }
            "x-kubernetes-patch-strategy" => schema.patch_strategy = self.text(value, path),
            "x-kubernetes-patch-merge-key" => schema.patch_merge_key = self.text(value, path),
            "id" | "$ref" | "$schema" => self.unsupported |= value != "",
            "patternProperties" | "definitions" | "dependencies" => {
                self.unsupported |= value.as_object().is_some_and(|map| !map.is_empty());
            }
            "additionalItems" => self.unsupported = true,
            _ => {}
        }
    }

    fn rule(&mut self, value: &Value, path: &Path<'_>) -> Rule {
        let mut rule = Rule::default();
        for (name, value) in self.object(value, path) {
            let path = path.child(name);
            if value.is_null() {
                continue;
            }
            match name.as_str() {
                "rule" => rule.rule = self.text(value, &path).unwrap_or_default(),
                "message" => rule.message = self.text(value, &path),
                "messageExpression" => rule.message_expression = self.text(value, &path),
                "reason" => rule.reason = self.text(value, &path),
                "fieldPath" => rule.field_path = self.text(value, &path),
                "optionalOldSelf" => rule.optional_old_self = Some(self.flag(value, &path)),
                _ => {}
            }
        }
        rule
    }

    fn ty(&mut self, value: &Value, path: &Path<'_>) -> Type {
        let Some(name) = self.text(value, path) else { return Type::Any };
        Type::from_name(&name).unwrap_or_else(|| {
            let supported = ["array", "boolean", "integer", "number", "object", "string"];
            self.errors.push(FieldError::not_supported(path.field(), name.as_str(), supported));
            if matches!(path, Path::Child(Path::Base(_), _)) {
                self.errors.push(FieldError::invalid(
                    path.field(),
                    name.as_str(),
                    "must be object at the root",
                ));
            }
            if name == "null" {
                let detail = "type cannot be set to null, use nullable as an alternative";
                self.errors.push(FieldError::forbidden(path.field(), detail));
            }
            Type::Any
        })
    }

    fn schemas(&mut self, value: &Value, path: &Path<'_>, depth: usize) -> Vec<Arc<Schema>> {
        let list = self.list(value, path);
        list.iter()
            .enumerate()
            .map(|(i, child)| Arc::new(self.node(child, &path.index(i), depth + 1)))
            .collect()
    }

    fn object<'v>(
        &mut self,
        value: &'v Value,
        path: &Path<'_>,
    ) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
        if !value.is_object() {
            self.wrong(path, value, "an object");
        }
        value.as_object().into_iter().flat_map(Map::iter)
    }

    fn list<'v>(&mut self, value: &'v Value, path: &Path<'_>) -> &'v [Value] {
        match value {
            Value::Array(items) => items,
            other => {
                self.wrong(path, other, "a list");
                &[]
            }
        }
    }

    fn texts(&mut self, value: &Value, path: &Path<'_>) -> Vec<String> {
        let items = self.list(value, path);
        items.iter().enumerate().filter_map(|(i, item)| self.text(item, &path.index(i))).collect()
    }

    fn text(&mut self, value: &Value, path: &Path<'_>) -> Option<String> {
        match value {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            other => {
                self.wrong(path, other, "a string");
                None
            }
        }
    }

    fn flag(&mut self, value: &Value, path: &Path<'_>) -> bool {
        value.as_bool().unwrap_or_else(|| {
            self.wrong(path, value, "a boolean");
            false
        })
    }

    fn number(&mut self, value: &Value, path: &Path<'_>) -> Option<f64> {
        let number = value.as_f64();
        if number.is_none() {
            self.wrong(path, value, "a number");
        }
        number
    }

    fn count(&mut self, value: &Value, path: &Path<'_>) -> Option<i64> {
        let count = value.as_i64();
        if count.is_none() {
            self.wrong(path, value, "an integer");
        }
        count
    }
}
