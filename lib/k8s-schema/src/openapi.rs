//! Publishing: a schema as an OpenAPI v3 document, the way clients read it from an API server.

use serde_json::{Map, Value, json};

use crate::{Additional, Rule, Schema};

impl Schema {
    /// The OpenAPI v3 form of this schema, with its `x-kubernetes-...` extensions.
    ///
    /// Reading the result with [`Schema::from_crd`] gives the same schema back.
    ///
    /// ```
    /// use k8s_schema::{Schema, Type};
    /// use serde_json::json;
    ///
    /// let schema = Schema { ty: Type::Integer, minimum: Some(1.0), ..Schema::default() };
    /// assert_eq!(schema.to_openapi(), json!({"type": "integer", "minimum": 1}));
    /// ```
    #[must_use]
    pub fn to_openapi(&self) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| {
            out.insert(name.to_owned(), value);
        };
        for (name, value) in &self.extensions {
            put(name, value.clone());
        }
        let texts = [
            ("title", &self.title),
            ("description", &self.description),
            ("format", &self.format),
            ("x-kubernetes-patch-strategy", &self.patch_strategy),
            ("x-kubernetes-patch-merge-key", &self.patch_merge_key),
        ];
        for (name, text) in texts {
            if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
                put(name, json!(text));
            }
        }
        if !self.ty.name().is_empty() {
            put("type", json!(self.ty.name()));
        }
        let flags = [
            ("nullable", self.nullable),
            ("uniqueItems", self.unique_items),
            ("exclusiveMinimum", self.exclusive_minimum),
            ("exclusiveMaximum", self.exclusive_maximum),
            ("x-kubernetes-preserve-unknown-fields", self.preserve_unknown),
            ("x-kubernetes-embedded-resource", self.embedded_resource),
            ("x-kubernetes-int-or-string", self.int_or_string),
        ];
        for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
            put(name, Value::Bool(true));
        }
        let numbers =
            [("minimum", self.minimum), ("maximum", self.maximum), ("multipleOf", self.multiple_of)];
        for (name, number) in numbers {
            if let Some(number) = number {
                put(name, number_value(number));
            }
        }
        let counts = [
            ("minLength", self.min_length),
            ("maxLength", self.max_length),
            ("minItems", self.min_items),
            ("maxItems", self.max_items),
            ("minProperties", self.min_properties),
            ("maxProperties", self.max_properties),
        ];
        for (name, count) in counts {
            if let Some(count) = count {
                put(name, json!(count));
            }
        }
        if let Some(pattern) = &self.pattern {
            put("pattern", json!(pattern.source()));
        }
        for (name, value) in
            [("default", &self.default), ("example", &self.example), ("externalDocs", &self.external_docs)]
        {
            if let Some(value) = value {
                put(name, value.clone());
            }
        }
        if !self.enums.is_empty() {
            put("enum", Value::Array(self.enums.clone()));
        }
        if !self.required.is_empty() {
            put("required", json!(self.required));
        }
        if !self.properties.is_empty() {
            let properties = self.properties.iter().map(|(name, child)| (name.clone(), child.to_openapi()));
            put("properties", Value::Object(properties.collect()));
        }
        match &self.additional {
            Some(Additional::Schema(child)) => put("additionalProperties", child.to_openapi()),
            Some(Additional::Allowed(allowed)) => put("additionalProperties", Value::Bool(*allowed)),
            None => {}
        }
        if let Some(items) = &self.items {
            put("items", items.to_openapi());
        }
        for (name, list) in [("allOf", &self.all_of), ("anyOf", &self.any_of), ("oneOf", &self.one_of)] {
            if !list.is_empty() {
                put(name, list.iter().map(|child| child.to_openapi()).collect());
            }
        }
        if let Some(not) = &self.not {
            put("not", not.to_openapi());
        }
        if let Some(list_type) = self.list_type {
            put("x-kubernetes-list-type", json!(list_type.name()));
        }
        if !self.list_map_keys.is_empty() {
            put("x-kubernetes-list-map-keys", json!(self.list_map_keys));
        }
        if let Some(map_type) = self.map_type {
            put("x-kubernetes-map-type", json!(map_type.name()));
        }
        if !self.rules.is_empty() {
            put("x-kubernetes-validations", self.rules.iter().map(rule_value).collect());
        }
        Value::Object(out)
    }
}

/// One entry of `x-kubernetes-validations`.
pub(crate) fn rule_value(rule: &Rule) -> Value {
    let mut out = Map::new();
    out.insert("rule".to_owned(), json!(rule.rule));
    let texts = [
        ("message", &rule.message),
        ("messageExpression", &rule.message_expression),
        ("reason", &rule.reason),
        ("fieldPath", &rule.field_path),
    ];
    for (name, text) in texts {
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            out.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(optional) = rule.optional_old_self {
        out.insert("optionalOldSelf".to_owned(), json!(optional));
    }
    Value::Object(out)
}

/// Whole numbers are published without a fraction.
fn number_value(number: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "the range and the missing fraction are checked")]
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}
