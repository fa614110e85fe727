//! What each node of the JSON says for itself: keywords that are not supported, list and map types, and rules.
//!
//! This looks at the JSON, because a [`Schema`] cannot hold what is refused here, and at the schema beside it for rules.

use serde_json::{Value, json};

use crate::{Additional, FieldError, Rule, Schema, Type, cel::value::Typed, path::Path, rules};

/// What is wrong with the nodes of a schema: first the keywords, then the rules. Rules are compiled only if `with_rules`.
pub(super) fn errors(json: &Value, schema: &Schema, place: &str, with_rules: bool) -> Vec<FieldError> {
    let mut checker = Checker { schema_errors: Vec::new(), rule_errors: Vec::new() };
    let context =
        Context { with_rules, root: true, inside_meta: false, no_defaults: None, uncorrelated: None };
    checker.node(json, schema, &Path::Base(place), &context);
    checker.schema_errors.append(&mut checker.rule_errors);
    checker.schema_errors
}

struct Checker {
    schema_errors: Vec<FieldError>,
    rule_errors: Vec<FieldError>,
}

#[derive(Clone)]
struct Context {
    with_rules: bool,
    root: bool,
    inside_meta: bool,
    /// Why defaults are refused here.
    no_defaults: Option<String>,
    /// The nearest place above whose old value cannot be told.
    uncorrelated: Option<String>,
}

impl Checker {
    fn forbid(&mut self, path: &Path<'_>, detail: &str) {
        self.schema_errors.push(FieldError::forbidden(path.field(), detail));
    }

    fn require(&mut self, path: &Path<'_>, detail: &str) {
        self.schema_errors.push(FieldError::required(path.field(), detail));
    }

    fn refuse(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: &str) {
        self.schema_errors.push(FieldError::invalid(path.field(), value, detail));
    }

    fn node(&mut self, json: &Value, schema: &Schema, path: &Path<'_>, context: &Context) {
        let before = self.schema_errors.len();
        self.keywords(json, schema, path, context);
        self.children(json, schema, path, context);
        self.extensions(json, schema, path);
        self.rules_form(schema, path);
        if context.with_rules && self.schema_errors.len() == before {
            self.rules(schema, path, context);
        }
    }

    /// Keywords of OpenAPI that custom resources cannot use.
    fn keywords(&mut self, json: &Value, schema: &Schema, path: &Path<'_>, context: &Context) {
        if let (Some(_), Some(reason)) = (&schema.default, &context.no_defaults) {
            self.forbid(&path.child("default"), &format!("must not be set {reason}"));
        }
        let filled = |name: &str| match json.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(map)) => !map.is_empty() || name == "dependencies",
            Some(_) => true,
        };
        let refused = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
        for name in refused {
            // An empty `$ref` is still a reference.
            if filled(name) || (name == "$ref" && json.get(name).is_some_and(Value::is_string)) {
                self.forbid(&path.child(name), &format!("{name} is not supported"));
            }
        }
        if json.get("items").is_some_and(Value::is_array) {
            self.forbid(&path.child("items"), "items must be a schema object and not an array");
        }
        if context.inside_meta && schema.embedded_resource {
            self.forbid(
                &path.child("x-kubernetes-embedded-resource"),
                "must not be used inside of resource meta",
            );
        }
        if schema.unique_items {
            self.forbid(
                &path.child("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
    }

    fn children(&mut self, json: &Value, schema: &Schema, path: &Path<'_>, context: &Context) {
        let below = Context { root: false, ..context.clone() };
        let nothing = Value::Null;
        let child_json = |name: &str| json.get(name).unwrap_or(&nothing);
        if let Some(additional) = &schema.additional {
            let place = path.child("additionalProperties");
            if !schema.properties.is_empty() && !matches!(additional, Additional::Allowed(true)) {
                self.forbid(&place, "additionalProperties and properties are mutual exclusive");
            }
            if let Additional::Schema(child) = additional {
                let mut context = below.clone();
                if context.inside_meta {
                    context.no_defaults =
                        Some("inside additionalProperties applying to object metadata".to_owned());
                }
                self.node(child_json("additionalProperties"), child, &place, &context);
            }
        }
        let properties = path.child("properties");
        for (name, child) in &schema.properties {
            let mut inner = below.clone();
            let is_meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
            if is_meta && (context.root || schema.embedded_resource) {
                inner.inside_meta = true;
                if context.root {
                    inner.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.node(
                child_json("properties").get(name).unwrap_or(&nothing),
                child,
                &properties.key(name),
                &inner,
            );
        }
        let junctor = Context { with_rules: false, ..below.clone() };
        for (name, list) in [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)]
        {
            for (i, child) in list.iter().enumerate() {
                self.node(
                    child_json(name).get(i).unwrap_or(&nothing),
                    child,
                    &path.child(name).index(i),
                    &junctor,
                );
            }
        }
        if let Some(child) = &schema.not {
            self.node(child_json("not"), child, &path.child("not"), &junctor);
        }
        if let Some(child) = &schema.items {
            let mut context = below;
            if json.get("x-kubernetes-list-type").and_then(Value::as_str) != Some("map") {
                context.uncorrelated.get_or_insert_with(|| path.field());
            }
            self.node(child_json("items"), child, &path.child("items"), &context);
        }
    }

    /// List and map types, and what they ask of the items.
    fn extensions(&mut self, json: &Value, schema: &Schema, path: &Path<'_>) {
        const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
        const MAP_TYPE: &str = "x-kubernetes-map-type";
        const LIST_TYPE: &str = "x-kubernetes-list-type";
        const MAP_KEYS: &str = "x-kubernetes-list-map-keys";
        if json.get(PRESERVE) == Some(&Value::Bool(false)) {
            self.refuse(&path.child(PRESERVE), false, "must be true or undefined");
        }
        let map_type = json.get(MAP_TYPE).and_then(Value::as_str);
        let list_type = json.get(LIST_TYPE).and_then(Value::as_str);
        if map_type.is_some() {
            self.must_be(schema, Type::Object, "must be object if x-kubernetes-map-type is specified", path);
        }
        if let Some(other) = map_type.filter(|t| !matches!(*t, "atomic" | "granular")) {
            let field = path.child(MAP_TYPE).field();
            self.schema_errors.push(FieldError::not_supported(field, other, ["atomic", "granular"]));
        }
        let items_json = json.get("items");
        if list_type.is_some() && schema.ty != Type::Array {
            self.must_be(schema, Type::Array, "must be array if x-kubernetes-list-type is specified", path);
        } else if let (Some("set"), Some(items)) = (list_type, &schema.items) {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let said = |name: &str| items_json.and_then(|i| i.get(name)).and_then(Value::as_str);
            let items_list_type = said(LIST_TYPE);
            let shown = items_list_type.map_or(Value::Null, Value::from);
            let place = path.child("items");
            match items.ty {
                Type::Array if items_list_type.is_some_and(|t| t != "atomic") => {
                    self.refuse(&place.child(LIST_TYPE), shown, detail);
                }
                Type::Object if said(MAP_TYPE) != Some("atomic") => {
                    self.refuse(&place.child(MAP_TYPE), shown, detail);
                }
                _ => {}
            }
        }
        if let Some(other) = list_type.filter(|t| !matches!(*t, "atomic" | "set" | "map")) {
            let field = path.child(LIST_TYPE).field();
            self.schema_errors.push(FieldError::not_supported(field, other, ["atomic", "set", "map"]));
        }
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            _ if schema.list_map_keys.is_empty() => {}
            None => self.require(&path.child(LIST_TYPE), detail),
            Some("map") => {}
            Some(other) => self.refuse(&path.child(LIST_TYPE), other, detail),
        }
        if list_type == Some("map") {
            if schema.list_map_keys.is_empty() {
                self.require(&path.child(MAP_KEYS), "must not be empty if x-kubernetes-list-type is map");
            }
            match (&schema.items, items_json) {
                (Some(items), _) => self.list_map_items(schema, items, path),
                (None, Some(list)) => self.refuse(
                    &path.child("items"),
                    list.clone(),
                    "must only have a single schema if x-kubernetes-list-type is map",
                ),
                (None, None) => {
                    self.require(&path.child("items"), "must have a schema if x-kubernetes-list-type is map");
                }
            }
        }
        if let (Some(kind @ ("set" | "map")), Some(items)) = (list_type, &schema.items) {
            if items.nullable {
                let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
                self.forbid(&path.child("items").child("nullable"), &detail);
            }
            if kind == "map" {
                self.list_map_keys(schema, items, path);
            }
        }
    }

    fn must_be(&mut self, schema: &Schema, wanted: Type, detail: &str, path: &Path<'_>) {
        let place = path.child("type");
        match schema.ty {
            ty if ty == wanted => {}
            Type::Any => self.require(&place, detail),
            ty => self.refuse(&place, ty.name(), detail),
        }
    }

    fn list_map_items(&mut self, schema: &Schema, items: &Schema, path: &Path<'_>) {
        let place = path.child("items");
        if items.ty != Type::Object {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.refuse(&place.child("type"), items.ty.name(), detail);
            return;
        }
        let keys_place = path.child("x-kubernetes-list-map-keys");
        for (i, key) in schema.list_map_keys.iter().enumerate() {
            match items.properties.get(key).map(|child| child.ty) {
                Some(Type::Array | Type::Object) => {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let properties = place.child("properties");
                    self.refuse(&properties.key(key).child("type"), items.ty.name(), detail);
                }
                Some(_) => {}
                None => {
                    self.refuse(
                        &keys_place,
                        json!(schema.list_map_keys),
                        "entries must all be names of item properties",
                    );
                }
            }
            if schema.list_map_keys.iter().take(i).any(|earlier| earlier == key) {
                self.refuse(&keys_place, json!(schema.list_map_keys), "must not contain duplicate entries");
            }
        }
    }

    /// Keys tell items apart, so they must be there.
    fn list_map_keys(&mut self, schema: &Schema, items: &Schema, path: &Path<'_>) {
        let items_place = path.child("items");
        let properties = items_place.child("properties");
        for key in &schema.list_map_keys {
            let Some(child) = items.properties.get(key) else { continue };
            let place = properties.key(key);
            if !items.required.contains(key) && child.default.is_none() {
                self.require(
                    &place.child("default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                );
            }
            if child.nullable {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbid(&place.child("nullable"), detail);
            }
        }
    }

    /// The form of rules, apart from their expressions.
    fn rules_form(&mut self, schema: &Schema, path: &Path<'_>) {
        let list = path.child("x-kubernetes-validations");
        for (i, rule) in schema.rules.iter().enumerate() {
            let place = list.index(i);
            let message = rule.message.as_deref().unwrap_or_default();
            let breaks = |text: &str| text.contains(['\n', '\r']);
            if rule.rule.trim().is_empty() {
                self.require(&place.child("rule"), "rule is not specified");
            } else if !message.is_empty() && message.trim().is_empty() {
                self.refuse(&place.child("message"), message, "must be non-empty if specified");
            } else if breaks(message.trim()) {
                self.refuse(&place.child("message"), message, "must not contain line breaks");
            } else if breaks(rule.rule.trim()) && message.is_empty() {
                self.require(
                    &place.child("message"),
                    "message must be specified if rule contains line breaks",
                );
            }
            if rule.message_expression.as_deref().is_some_and(|m| m.trim().is_empty()) {
                self.require(
                    &place.child("messageExpression"),
                    "messageExpression must be non-empty if specified",
                );
            }
            let reasons =
                ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
            if let Some(other) = rule.reason.as_deref().filter(|r| !reasons.contains(r)) {
                let field = place.child("reason").field();
                self.schema_errors.push(FieldError::not_supported(field, other, reasons));
            }
            if let Some(text) = rule.field_path.as_deref() {
                let place = place.child("fieldPath");
                if text.trim().is_empty() {
                    self.refuse(&place, text, "must be non-empty if specified");
                }
                if breaks(text) {
                    self.refuse(&place, text, "must not contain line breaks");
                }
                if rules::resolve_field_path(text, schema).is_none() {
                    self.refuse(&place, text, "must be a valid path");
                }
            }
        }
    }

    /// The expressions of rules.
    fn rules(&mut self, schema: &Schema, path: &Path<'_>, context: &Context) {
        let list = path.child("x-kubernetes-validations");
        for (i, rule) in schema.rules.iter().enumerate() {
            let place = list.index(i);
            let compiled = rule.compile(Typed::new(schema, context.root));
            if let Err(why) = &compiled.rule {
                let field = place.child("rule").field();
                self.rule_errors.push(FieldError::invalid(field, shown(rule), why.as_str()));
            }
            if let Some(Err(why)) = &compiled.message {
                let field = place.child("messageExpression").field();
                self.rule_errors.push(FieldError::invalid(field, shown(rule), why.as_str()));
            }
            if compiled.uses_old_self {
                if let Some(above) = &context.uncorrelated {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                    );
                    self.rule_errors.push(FieldError::invalid(
                        place.child("rule").field(),
                        rule.rule.as_str(),
                        detail,
                    ));
                }
            } else if let (Some(set), Ok(_)) = (rule.optional_old_self, &compiled.rule) {
                let detail = "may not be set if oldSelf is not used in rule";
                self.rule_errors.push(FieldError::invalid(
                    place.child("optionalOldSelf").field(),
                    set,
                    detail,
                ));
            }
        }
    }
}

/// A rule as error messages show it.
fn shown(rule: &Rule) -> Value {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    json!({
        "Rule": rule.rule,
        "Message": text(&rule.message),
        "MessageExpression": text(&rule.message_expression),
        "Reason": rule.reason,
        "FieldPath": text(&rule.field_path),
        "OptionalOldSelf": rule.optional_old_self,
    })
}
