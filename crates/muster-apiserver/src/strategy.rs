//! What each kind does to its objects on the way in, behind one face for built-in and custom kinds.
//!
//! In: an object in the request's version. Out: the object put right, or the refusals. Pure. Order of a write:
//! [`decode`] -> [`default`] -> admission -> field managers -> [`prepare_create`] / [`prepare_update`] -> [`validate_create`] /
//! [`validate_update`] -> store.

use crate::meta;
use crate::query::FieldValidation;
use crate::registry::{Served, Source};
use crate::status::ApiError;
use crate::store::Pairs;
use k8s_schema::FieldError;
use serde_json::Value;
use std::borrow::Cow;

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, where the status has an endpoint of its own.
    Main,
    /// Only the status (and metadata).
    Status,
    /// Only `spec.ephemeralContainers` of a pod.
    Ephemeral,
    /// Only the resources of a pod's containers.
    Resize,
    /// Only the number of replicas, through `/scale`.
    Scale,
}

impl Part {
    /// Its name in paths and field managers.
    pub fn subresource(self) -> Option<&'static str> {
        match self {
            Part::Main => None,
            Part::Status => Some("status"),
            Part::Ephemeral => Some("ephemeralcontainers"),
            Part::Resize => Some("resize"),
            Part::Scale => Some("scale"),
        }
    }
}

/// Checks what decoding into the kind's type would: types of values, then unknown fields as the client asked.
/// Returns warnings for the client.
pub fn decode(
    served: &Served,
    object: &mut Value,
    raw: Option<&[u8]>,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    if let Source::Builtin(kind) = &served.source
        && let Some(problem) = k8s_builtin::decode_error(kind, object)
    {
        return Err(ApiError::bad_request(problem));
    }
    if let Source::Custom(_) = &served.source
        && let Some(problem) = object.get("metadata").and_then(k8s_builtin::metadata_error)
    {
        let (kind, version) = (&served.kind, &served.version);
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {problem}"
        )));
    }
    let mut problems: Vec<String> = Vec::new();
    if validation != FieldValidation::Ignore
        && let Some(raw) = raw
        && let Ok(duplicates) = k8s_schema::duplicate_keys(raw)
    {
        problems.extend(duplicates.iter().map(|d| format!("duplicate field \"{d}\"")));
    }
    let preserve = matches!(&served.source, Source::Custom(c) if c.preserve_unknown);
    if !preserve {
        let mut pruned = Vec::new();
        if let Source::Custom(_) = &served.source
            && let Some(metadata) = object.get_mut("metadata")
            && let Some(schema) =
                k8s_builtin::schema_of(k8s_builtin::KubeVersion::V1_36, "meta.v1.ObjectMeta")
        {
            pruned.extend(prune_below(metadata, &schema, "metadata"));
        }
        pruned.extend(k8s_schema::prune(object, &served.schema));
        if validation != FieldValidation::Ignore {
            problems.extend(pruned.iter().map(|p| format!("unknown field \"{p}\"")));
        }
    }
    if problems.is_empty() {
        return Ok(Vec::new());
    }
    match validation {
        FieldValidation::Strict => Err(strict_error(served, &problems)),
        FieldValidation::Warn => Ok(problems),
        FieldValidation::Ignore => Ok(Vec::new()),
    }
}

/// Prunes a value that is not the root of its object.
fn prune_below(value: &mut Value, schema: &std::sync::Arc<k8s_schema::Schema>, at: &str) -> Vec<String> {
    let mut root = k8s_schema::Schema::of(k8s_schema::Type::Object);
    root.properties.insert(at.to_string(), schema.clone());
    let mut wrapped = serde_json::json!({at: value.take()});
    let pruned = k8s_schema::prune(&mut wrapped, &root);
    *value = wrapped[at].take();
    pruned
}

fn strict_error(served: &Served, problems: &[String]) -> ApiError {
    let text = format!("strict decoding error: {}", problems.join(", "));
    ApiError::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {text}",
        served.kind, served.version, served.kind
    ))
}

/// What field managers are told a new object was made from. Go's empty value of a built-in kind already has the structs
/// that are always written (`spec`, say), so nobody owns those.
pub fn blank(served: &Served) -> Option<Value> {
    match &served.source {
        Source::Builtin(kind) => Some(k8s_builtin::blank(kind)),
        Source::Custom(_) => None,
    }
}

/// Fills in defaults.
pub fn default(served: &Served, object: &mut Value) {
    match &served.source {
        Source::Builtin(kind) => {
            k8s_builtin::default(kind, object);
            if served.is("apiextensions.k8s.io", "customresourcedefinitions") {
                crate::crd::default(object);
            }
        }
        Source::Custom(_) => {
            // Defaults are those of the kind that it says it is.
            if check_custom_kind(served, object).is_none() {
                k8s_schema::default(object, &served.schema);
            }
            // What is empty is not written, here as in all metadata; no managers at all would say that they are to be forgotten.
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, value| name == "managedFields" || !is_empty(value));
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Fills in defaults of the members that are at hand, of a kind that is kept apart.
pub fn default_members(served: &Served, object: &mut Value) {
    match &served.source {
        Source::Builtin(kind) => k8s_builtin::default_members(kind, object),
        Source::Custom(_) => default(served, object),
    }
}

/// Whether objects are stored in the version in which they are served, and their parts can be judged one by one.
pub fn is_kept_apart(served: &Served) -> bool {
    matches!(&served.source, Source::Builtin(kind) if k8s_builtin::is_kept_apart(kind))
        && served.api_version() == served.storage_api_version
}

/// Puts right what a client may not decide when it creates an object.
pub fn prepare_create(served: &Served, object: &mut Value) {
    match &served.source {
        Source::Builtin(kind) => k8s_builtin::prepare_create(kind, object),
        Source::Custom(_) => {
            if served.has_status()
                && let Some(map) = object.as_object_mut()
            {
                map.remove("status");
            }
            meta::edit(object).insert("generation".into(), 1.into());
        }
    }
}

/// Puts right what a client may not change.
pub fn prepare_update(served: &Served, new: &mut Value, old: &Value, part: Part) {
    match (&served.source, part) {
        (Source::Builtin(kind), Part::Main | Part::Scale) => k8s_builtin::prepare_update(kind, new, old),
        (Source::Builtin(kind), Part::Status) => k8s_builtin::prepare_status_update(kind, new, old),
        (_, Part::Ephemeral | Part::Resize) => {
            // Only the pod spec moves; what may move in it is validated.
            copy(new, old, "status");
        }
        (Source::Custom(_), Part::Main | Part::Scale) => {
            if served.has_status() {
                copy(new, old, "status");
            }
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
            let moved = content(new, served.has_status()) != content(old, served.has_status());
            meta::edit(new).insert("generation".into(), (generation + i64::from(moved)).into());
        }
        (Source::Custom(_), Part::Status) => {
            let status = new.get("status").cloned();
            let metadata = new.get("metadata").cloned();
            let mut kept = old.clone();
            if let Some(map) = kept.as_object_mut() {
                match status {
                    Some(status) => map.insert("status".into(), status),
                    None => map.remove("status"),
                };
                // Metadata stays as it was, but for the managers and the resourceVersion the write was based on.
                for field in ["managedFields", "resourceVersion"] {
                    match metadata.as_ref().and_then(|m| m.get(field)) {
                        Some(v) => meta::edit(&mut kept).insert(field.into(), v.clone()),
                        None => meta::edit(&mut kept).remove(field),
                    };
                }
            }
            *new = kept;
        }
    }
}

fn copy(new: &mut Value, old: &Value, field: &str) {
    if let Some(map) = new.as_object_mut() {
        match old.get(field) {
            Some(v) => map.insert(field.into(), v.clone()),
            None => map.remove(field),
        };
    }
}

/// Everything that raises the generation when it changes.
fn content(object: &Value, without_status: bool) -> Vec<(&String, &Value)> {
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(k, _)| !matches!(k.as_str(), "metadata" | "apiVersion" | "kind"))
        .filter(|(k, _)| !(without_status && k.as_str() == "status"))
        .collect()
}

/// The rules for a new object.
pub fn validate_create(served: &Served, object: &Value) -> Vec<FieldError> {
    match &served.source {
        Source::Builtin(kind) => {
            let mut errors = k8s_builtin::validate_create(kind, object);
            if served.is("apiextensions.k8s.io", "customresourcedefinitions")
                && let Err(found) = crate::crd::read(object)
            {
                add_new(&mut errors, found);
            }
            errors
        }
        Source::Custom(_) => {
            if let Some(error) = check_custom_kind(served, object) {
                return k8s_schema::validate_beyond(vec![error], object, None, &served.schema);
            }
            let found = k8s_builtin::validate_custom_meta(object, served.namespaced);
            validate_custom(served, object, None, found)
        }
    }
}

/// What there is to say about an object that is accepted.
pub fn warnings(served: &Served, object: &Value, old: Option<&Value>) -> Vec<String> {
    match &served.source {
        Source::Builtin(kind) => k8s_builtin::warnings(kind, object, old),
        Source::Custom(_) => Vec::new(),
    }
}

/// Adds what is not said already.
fn add_new(errors: &mut Vec<FieldError>, found: Vec<FieldError>) {
    for error in found {
        if !errors.iter().any(|e| e.to_string() == error.to_string()) {
            errors.push(error);
        }
    }
}

/// Whether a new status is judged by the spec as well.
pub fn is_status_judged_by_spec(served: &Served) -> bool {
    served.is("batch", "jobs")
}

/// The rules for a change of some members of a kind that is kept apart; these members are at hand.
pub fn validate_members(served: &Served, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
    match part {
        Part::Main => k8s_builtin::validate_bookkeeping(new, old),
        _ => validate_update(served, new, old, part),
    }
}

/// The rules for a change.
pub fn validate_update(served: &Served, new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
    match (&served.source, part) {
        (Source::Builtin(kind), Part::Main | Part::Scale) => {
            let mut errors = k8s_builtin::validate_update(kind, new, old);
            if served.is("apiextensions.k8s.io", "customresourcedefinitions")
                && let Err(found) = crate::crd::read(new)
            {
                add_new(&mut errors, found);
            }
            errors
        }
        (Source::Builtin(kind), Part::Status) => k8s_builtin::validate_status_update(kind, new, old),
        (Source::Builtin(_), Part::Ephemeral) => k8s_builtin::validate_ephemeral_update(new, old),
        (Source::Builtin(_), Part::Resize) => k8s_builtin::validate_resize(new, old),
        (Source::Custom(_), _) => {
            if let Some(error) = check_custom_kind(served, new) {
                return k8s_schema::validate_beyond(vec![error], new, Some(old), &served.schema);
            }
            let mut found = k8s_builtin::validate_custom_meta(new, served.namespaced);
            add_new(&mut found, k8s_builtin::validate_bookkeeping(new, old));
            validate_custom(served, new, Some(old), found)
        }
    }
}

/// A custom object is decoded whatever kind it says it is.
fn check_custom_kind(served: &Served, object: &Value) -> Option<FieldError> {
    let given = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let wrong = given != served.kind;
    wrong.then(|| FieldError::invalid("kind", given, format!("must be {}", served.kind)))
}

/// What Go says of a value that is not of the type that it should be.
fn accessor_error(path: &str, at: &str, found: &Value, expected: &str, shown: Value) -> FieldError {
    let kind = match found {
        Value::Null => "<nil>",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Object(_) => "map[string]interface {}",
    };
    let text = k8s_merge::go_text(found);
    let detail = format!("{at} accessor error: {text} is of the type {kind}, expected {expected}");
    FieldError::invalid(format!(".{path}"), shown, detail)
}

/// What is at a path; an error where something on the way to it is no object. `shown` is what the field is said to be then.
fn look_up<'a>(object: &'a Value, path: &str, shown: &Value) -> Result<Option<&'a Value>, FieldError> {
    let mut at = object;
    let mut walked = String::new();
    for step in path.split('.') {
        walked = format!("{walked}.{step}");
        at = match at {
            Value::Object(members) => match members.get(step) {
                Some(found) => found,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => {
                return Err(accessor_error(path, &walked, other, "map[string]interface{}", shown.clone()));
            }
        };
    }
    Ok(Some(at))
}

/// What is wrong with a number of replicas.
fn check_replicas(object: &Value, path: &str) -> Result<(), FieldError> {
    let Some(found) = look_up(object, path, &0.into())? else { return Ok(()) };
    let bad = |n: i64, detail: &str| Err(FieldError::invalid(format!(".{path}"), n, detail));
    match found.as_i64() {
        _ if found.is_null() => Ok(()),
        None => Err(accessor_error(path, &format!(".{path}"), found, "int64", 0.into())),
        Some(n) if n < 0 => bad(n, "should be a non-negative integer"),
        Some(n) if n > i64::from(i32::MAX) => bad(n, "should be less than or equal to 2147483647"),
        Some(_) => Ok(()),
    }
}

/// What is wrong with a selector in serialised form: it need only be a text.
fn check_selector(object: &Value, path: &str) -> Result<(), FieldError> {
    let found = look_up(object, path, &"".into())?.filter(|found| !found.is_null() && !found.is_string());
    found.map_or(Ok(()), |found| Err(accessor_error(path, &format!(".{path}"), found, "string", "".into())))
}

/// Schema, scale paths and rules of a custom object, whose metadata has these errors.
fn validate_custom(
    served: &Served,
    object: &Value,
    old: Option<&Value>,
    found: Vec<FieldError>,
) -> Vec<FieldError> {
    let mut errors = k8s_schema::validate_after(found, object, old, &served.schema);
    if let Source::Custom(custom) = &served.source
        && let Some(scale) = custom.version(&served.version).and_then(|v| v.scale.as_ref())
    {
        errors.extend(check_replicas(object, &scale.spec).err());
        errors.extend(check_replicas(object, &scale.status).err());
        errors.extend(scale.selector.as_ref().and_then(|path| check_selector(object, path).err()));
    }
    errors
}

/// Values of the kind's selectable fields, for the store, as `value` has them; a selector takes an absent one for empty.
pub fn selectable(served: &Served, value: impl Fn(&str) -> Option<String>) -> Pairs {
    let labels: Vec<Cow<'static, str>> = match &served.source {
        Source::Builtin(kind) => kind
            .field_labels
            .iter()
            .filter(|l| !l.starts_with("metadata."))
            .map(|l| Cow::Borrowed(*l))
            .collect(),
        Source::Custom(custom) => {
            let paths = custom.version(&served.version).into_iter().flat_map(|v| &v.selectable);
            paths.map(|path| Cow::Owned(path.clone())).collect()
        }
    };
    let set = |label: Cow<'static, str>| {
        let value = value(&label).filter(|value| !value.is_empty())?;
        Some((label, value.into()))
    };
    labels.into_iter().filter_map(set).collect()
}

/// The value of a selectable field.
pub fn field(served: &Served, object: &Value, label: &str) -> Option<String> {
    match &served.source {
        Source::Builtin(kind) => k8s_builtin::field_value(kind, object, label),
        Source::Custom(_) => match meta::at(object, label)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        },
    }
}

/// Whether a field selector may name this field; if not, the refusal.
pub fn check_selectable(served: &Served, field: &str) -> Result<(), String> {
    match &served.source {
        Source::Builtin(kind) => k8s_builtin::field_label(kind, field).map(|_| ()).map_err(|e| e.to_string()),
        Source::Custom(custom) => {
            let own =
                custom.version(&served.version).is_some_and(|v| v.selectable.iter().any(|s| s == field));
            if own || matches!(field, "metadata.name" | "metadata.namespace") {
                Ok(())
            } else {
                Err(format!("field label not supported: {field}"))
            }
        }
    }
}
