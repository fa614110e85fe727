//! Validation: does a value fit its schema, and if not, which words does the API server use?
//!
//! In: a value, perhaps the value it replaces, and a schema. Out: field errors; an empty list means that the value fits.
//! The order of errors follows the object's own order of fields. Paths are built only for errors, and only the parts of the
//! schema that the value touches are looked at.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Number, Value};

use crate::{
    Additional, ErrorKind, FieldError, ListType, Schema, Type,
    correlate::{OldItems, old_field},
    format, gofmt,
    path::Path,
};

/// Validates a value against everything in the schema but its CEL rules.
///
/// ```
/// use k8s_schema::{Schema, validate};
/// use serde_json::json;
///
/// let schema = Schema::from_crd(&json!({"type": "object", "properties": {
///     "size": {"type": "integer", "minimum": 1},
/// }})).unwrap();
/// assert!(validate(&json!({"size": 1}), &schema).is_empty());
/// let errors = validate(&json!({"size": 0}), &schema);
/// assert_eq!(
///     errors[0].to_string(),
///     "size: Invalid value: 0: size in body should be greater than or equal to 1",
/// );
/// ```
#[must_use]
pub fn validate(value: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = schema_errors(value, None, schema, None);
    invariants(value, None, schema, &mut errors);
    errors
}

/// Validates a value that replaces `old`: what was wrong before and is unchanged does not count, so that an object can
/// still be updated after its schema became stricter.
#[must_use]
pub fn validate_update(value: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = schema_errors(value, Some(old), schema, None);
    invariants(value, Some(old), schema, &mut errors);
    errors
}

/// Embedded metadata, and keys of lists that are there once; what was wrong with the lists before does not count.
fn invariants(value: &Value, old: Option<&Value>, schema: &Schema, errors: &mut Vec<FieldError>) {
    embedded(value, schema, &Path::Root, false, errors);
    let mut old_lists = Vec::new();
    if let Some(old) = old {
        lists(old, schema, &Path::Root, &mut old_lists);
    }
    if old_lists.is_empty() {
        lists(value, schema, &Path::Root, errors);
    }
}

/// Validates everything: the schema, and then its CEL rules unless the object is too broken to evaluate them.
#[must_use]
pub fn validate_all(value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    validate_after(Vec::new(), value, old, schema)
}

/// The same after errors of another kind, of the metadata, were found: they count when rules are to be checked.
#[must_use]
pub fn validate_after(
    found: Vec<FieldError>,
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
) -> Vec<FieldError> {
    let mut errors = found;
    errors.extend(schema_errors(value, old, schema, None));
    validate_beyond(errors, value, old, schema)
}

/// What is judged even of an object that is not held against its schema, since it says that it is of another kind: embedded metadata, keys of lists,
/// and CEL rules unless errors that were `found` so far make it too broken to evaluate them.
#[must_use]
pub fn validate_beyond(
    found: Vec<FieldError>,
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
) -> Vec<FieldError> {
    let mut errors = found;
    invariants(value, old, schema, &mut errors);
    if !schema.memo.has_rules(schema) {
        return errors;
    }
    let blocking = errors.iter().any(|e| {
        matches!(
            e.kind,
            ErrorKind::NotSupported
                | ErrorKind::Required
                | ErrorKind::TooLong
                | ErrorKind::TooMany
                | ErrorKind::TypeInvalid
        )
    });
    if blocking {
        errors.push(FieldError::invalid(
            "<nil>",
            Value::Null,
            "some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ));
    } else {
        errors.extend(crate::validate_rules(value, old, schema));
    }
    errors
}

/// What the schema alone says, with field names below `base`.
pub(crate) fn schema_errors(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    base: Option<&str>,
) -> Vec<FieldError> {
    let validator = Validator { base };
    let found = validator.node(value, old, schema, &Path::Root).errors;
    let mut seen = BTreeSet::new();
    found.into_iter().filter(|f| seen.insert(f.message.clone())).map(|f| f.error).collect()
}

struct Validator<'a> {
    base: Option<&'a str>,
}

/// The outcome of one node. `matches` counts checks that were made; it picks the alternative of an `anyOf` or `oneOf` whose
/// errors are worth reporting.
#[derive(Default)]
struct Outcome {
    errors: Vec<Found>,
    matches: u64,
}

struct Found {
    /// The validator's own words, which tell repeated errors apart.
    message: String,
    error: FieldError,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.errors.extend(other.errors);
        self.matches += other.matches;
    }

    fn valid(&self) -> bool {
        self.errors.is_empty()
    }
}

impl Validator<'_> {
    fn node(&self, value: &Value, old: Option<&Value>, schema: &Schema, path: &Path<'_>) -> Outcome {
        let mut out = Outcome::default();
        if value.is_null() {
            self.null(schema, path, &mut out);
        } else {
            self.present(value, old, schema, path, &mut out);
        }
        if !out.valid() && old.is_some_and(|old| old == value) {
            out.errors.clear();
        }
        out
    }

    fn null(&self, schema: &Schema, path: &Path<'_>, out: &mut Outcome) {
        if (schema.int_or_string || schema.ty != Type::Any) && !schema.nullable {
            out.errors.push(self.wrong_type(path, type_names(schema), "null"));
        } else {
            out.matches += 1;
        }
        if !schema.enums.is_empty() {
            out.errors.push(self.not_in_enum(&Value::Null, schema, path));
        }
    }

    fn present(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        path: &Path<'_>,
        out: &mut Outcome,
    ) {
        let format = format::effective(schema);
        if schema.int_or_string || schema.ty != Type::Any || format.is_some() {
            match self.type_error(value, schema, format, path) {
                Some(found) => out.errors.push(found),
                None => out.matches += 1,
            }
            out.matches += 1;
        }
        self.junctors(value, old, schema, path, out);
        out.matches += 2;
        match value {
            Value::String(text) => {
                out.errors.extend(self.string_error(text, schema, path));
                out.matches += 1;
                if let Some(format) = format.filter(|f| format::known(f)) {
                    if format::check(format, text) == Some(false) {
                        out.errors.push(self.wrong_type(path, format, text));
                    }
                    out.matches += 1;
                }
            }
            Value::Number(number) => {
                self.number(number, schema, path, out);
                out.matches += 2;
            }
            Value::Array(items) => {
                self.array(items, old, schema, path, out);
                out.matches += 2;
            }
            _ => {}
        }
        if !schema.enums.is_empty() && !schema.enums.iter().any(|e| same_enum_value(value, e)) {
            out.errors.push(self.not_in_enum(value, schema, path));
        }
        out.matches += 1;
        if let Value::Object(map) = value {
            self.object(map, old, schema, path, out);
            out.matches += 1;
        }
        out.matches += 1;
    }

    fn type_error(
        &self,
        value: &Value,
        schema: &Schema,
        format: Option<&str>,
        path: &Path<'_>,
    ) -> Option<Found> {
        let (name, value_format) = json_type(value);
        let wants = |ty: Type| {
            schema.ty == ty || (schema.int_or_string && matches!(ty, Type::Integer | Type::String))
        };
        let wants_own = Type::from_name(name).is_some_and(wants);
        let float_as_int = name == "number" && wants(Type::Integer) && value.as_f64().is_some_and(is_whole);
        let int_as_float = name == "integer" && wants(Type::Number);
        let textual = matches!(name, "string" | "array");
        if let Some(format) = format {
            if !(textual || wants_own || format == value_format || float_as_int || int_as_float) {
                return Some(self.wrong_type(path, format, value_format));
            }
            if textual && !wants(Type::Number) && !wants(Type::Integer) {
                return None;
            }
        }
        if wants_own || float_as_int || int_as_float {
            return None;
        }
        Some(self.wrong_type(path, type_names(schema), name))
    }

    fn junctors(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        path: &Path<'_>,
        out: &mut Outcome,
    ) {
        if !schema.any_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut success = None;
            for alternative in &schema.any_of {
                let result = self.node(value, old, alternative, path);
                if result.valid() {
                    success = Some(result);
                    break;
                }
                if best.as_ref().is_none_or(|b| result.matches > b.matches) {
                    best = Some(result);
                }
            }
            match success {
                Some(result) => out.merge(result),
                None => {
                    out.errors.push(self.composite(path, "must validate at least one schema (anyOf)"));
                    out.merge(best.unwrap_or_default());
                }
            }
        }
        if !schema.one_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut first = None;
            let mut n_valid = 0_usize;
            for alternative in &schema.one_of {
                let result = self.node(value, old, alternative, path);
                if result.valid() {
                    n_valid += 1;
                    best = None;
                    first.get_or_insert(result);
                } else if n_valid == 0 && best.as_ref().is_none_or(|b| result.matches > b.matches) {
                    best = Some(result);
                }
            }
            let text = "must validate one and only one schema (oneOf).";
            match n_valid {
                1 => out.merge(first.unwrap_or_default()),
                0 => {
                    out.errors.push(self.composite(path, &format!("{text} Found none valid")));
                    out.merge(best.unwrap_or_default());
                }
                n => out.errors.push(self.composite(path, &format!("{text} Found {n} valid alternatives"))),
            }
        }
        if !schema.all_of.is_empty() {
            let mut n_valid = 0_usize;
            for part in &schema.all_of {
                let result = self.node(value, old, part, path);
                n_valid += usize::from(result.valid());
                out.merge(result);
            }
            if n_valid != schema.all_of.len() {
                let more = if n_valid == 0 { ". None validated" } else { "" };
                out.errors
                    .push(self.composite(path, &format!("must validate all the schemas (allOf){more}")));
            }
        }
        if let Some(not) = &schema.not
            && self.node(value, None, not, path).valid()
        {
            out.errors.push(self.composite(path, "must not validate the schema (not)"));
        }
    }

    fn string_error(&self, text: &str, schema: &Schema, path: &Path<'_>) -> Option<Found> {
        if schema.max_length.is_some() || schema.min_length.is_some() {
            let n_chars = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if let Some(max) = schema.max_length.filter(|max| n_chars > *max) {
                let message = format!("{} in body should be at most {max} chars long", path.dotted());
                return Some(Found { message, error: FieldError::too_long(self.name(path), max) });
            }
            if let Some(min) = schema.min_length.filter(|min| n_chars < *min) {
                return Some(self.invalid(path, text, &format!("should be at least {min} chars long")));
            }
        }
        let pattern = schema.pattern.as_ref().filter(|p| !p.source().is_empty())?;
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => None,
            Ok(_) => Some(self.invalid(path, text, &format!("should match '{}'", pattern.source()))),
            Err(why) => {
                let detail = format!("should match '{}, but pattern is invalid: {why}'", pattern.source());
                Some(self.invalid(path, text, &detail))
            }
        }
    }

    fn number(&self, number: &Number, schema: &Schema, path: &Path<'_>, out: &mut Outcome) {
        let ty = if schema.int_or_string { Type::Any } else { schema.ty };
        let format = match (ty, schema.format.as_deref()) {
            (Type::Integer, Some(f @ ("int32" | "int64")))
            | (Type::Number, Some(f @ ("float" | "double"))) => f,
            _ => "",
        };
        let int = number.as_i64();
        let float = number.as_f64().unwrap_or(f64::NAN);
        out.errors.extend(self.out_of_range(int, float, ty, format, "Checked", path));
        let shown = Value::Number(number.clone());

        if let Some(factor) = schema.multiple_of {
            let bad_bound = self.out_of_range(None, factor, ty, format, "MultipleOf", path);
            let exact = int.filter(|_| bad_bound.is_none());
            out.errors.extend(bad_bound);
            out.errors.extend(self.multiple_of_error(exact, float, factor, &shown, path));
        }
        if let Some(min) = schema.minimum {
            let bad_bound = self.out_of_range(None, min, ty, format, "Minimum boundary", path);
            let exact = int.filter(|_| bad_bound.is_none());
            out.errors.extend(bad_bound);
            let (below, bound) = match exact {
                Some(n) => (n.cmp(&saturate(min)), saturate(min).to_string()),
                None => (float.total_cmp(&min), gofmt::float(min)),
            };
            if below.is_lt() || (schema.exclusive_minimum && below.is_eq()) {
                let words =
                    if schema.exclusive_minimum { "greater than" } else { "greater than or equal to" };
                out.errors.push(self.invalid(path, shown.clone(), &format!("should be {words} {bound}")));
            }
        }
        if let Some(max) = schema.maximum {
            let bad_bound = self.out_of_range(None, max, ty, format, "Maximum boundary", path);
            let exact = int.filter(|_| bad_bound.is_none());
            out.errors.extend(bad_bound);
            let (above, bound) = match exact {
                Some(n) => (n.cmp(&saturate(max)), saturate(max).to_string()),
                None => (float.total_cmp(&max), gofmt::float(max)),
            };
            if above.is_gt() || (schema.exclusive_maximum && above.is_eq()) {
                let words = if schema.exclusive_maximum { "less than" } else { "less than or equal to" };
                out.errors.push(self.invalid(path, shown, &format!("should be {words} {bound}")));
            }
        }
    }

    fn multiple_of_error(
        &self,
        int: Option<i64>,
        float: f64,
        factor: f64,
        shown: &Value,
        path: &Path<'_>,
    ) -> Option<Found> {
        let whole = int.map(|n| (n, saturate(factor)));
        let (positive, text) = match whole {
            Some((_, factor)) => (factor > 0, factor.to_string()),
            None => (factor > 0.0, gofmt::float(factor)),
        };
        if !positive {
            let message =
                format!("factor MultipleOf declared for {} must be positive: {text}", path.dotted());
            let value = whole.map_or_else(|| Value::from(factor), |(_, factor)| Value::from(factor));
            return Some(Found { error: FieldError::invalid(self.name(path), value, &message), message });
        }
        let divides = match whole {
            Some((n, factor)) => n % factor == 0,
            None if factor < 1.0 => is_whole(1.0 / factor * float),
            None => is_whole(float / factor),
        };
        (!divides).then(|| self.invalid(path, shown.clone(), &format!("should be a multiple of {text}")))
    }

    /// A number that does not fit the declared type and format; bounds are checked as well.
    fn out_of_range(
        &self,
        int: Option<i64>,
        float: f64,
        ty: Type,
        format: &str,
        what: &str,
        path: &Path<'_>,
    ) -> Option<Found> {
        let fits = match (ty, format) {
            (Type::Integer, "int32") => match int {
                Some(n) => i32::try_from(n).is_ok(),
                None => float.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&float),
            },
            (Type::Integer, _) => {
                int.is_some() || (float.fract() == 0.0 && (-INT_LIMIT..INT_LIMIT).contains(&float))
            }
            (Type::Number, "float") => float.is_finite() && float.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        if fits {
            return None;
        }
        let with =
            if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
        let message = format!("{what} value must be of type {} {with} in {}", ty.name(), path.dotted());
        Some(Found { error: FieldError::invalid(self.base_name(), "", &message), message })
    }

    fn array(
        &self,
        items: &[Value],
        old: Option<&Value>,
        schema: &Schema,
        path: &Path<'_>,
        out: &mut Outcome,
    ) {
        if let Some(item_schema) = schema.items.as_deref() {
            let old_items = OldItems::new(old, schema);
            for (i, item) in items.iter().enumerate() {
                out.merge(self.node(item, old_items.of(item), item_schema, &path.index(i)));
            }
        }
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items.filter(|min| size < *min) {
            out.errors.push(self.invalid(path, size, &format!("should have at least {min} items")));
        }
        if let Some(max) = schema.max_items.filter(|max| size > *max) {
            let message = format!("{} in body should have at most {max} items", path.dotted());
            out.errors.push(Found { message, error: FieldError::too_many(self.name(path), size, max) });
        }
        if schema.unique_items {
            let mut seen = BTreeSet::new();
            if !items.iter().all(|item| seen.insert(gofmt::json(item))) {
                out.errors.push(self.invalid(path, "", "shouldn't contain duplicates"));
            }
        }
    }

    fn object(
        &self,
        map: &Map<String, Value>,
        old: Option<&Value>,
        schema: &Schema,
        path: &Path<'_>,
        out: &mut Outcome,
    ) {
        let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties.filter(|min| size < *min) {
            out.errors.push(self.invalid(path, size, &format!("should have at least {min} properties")));
        }
        if let Some(max) = schema.max_properties.filter(|max| size > *max) {
            let message = format!("{} in body should have at most {max} properties", path.dotted());
            out.errors.push(Found { message, error: FieldError::too_many(self.name(path), size, max) });
        }
        match &schema.additional {
            Some(Additional::Allowed(false)) => {
                for key in map.keys().filter(|key| !schema.properties.contains_key(*key)) {
                    let message = format!("{}.{key} in body is a forbidden property", path.dotted());
                    let error = FieldError::invalid(self.name(path), key.as_str(), &message);
                    out.errors.push(Found { message, error });
                }
            }
            Some(Additional::Schema(child)) => {
                for (key, item) in map.iter().filter(|(key, _)| !schema.properties.contains_key(*key)) {
                    out.merge(self.node(item, old_field(old, key), child, &path.key(key)));
                }
            }
            _ => {}
        }
        for (key, item) in map {
            if let Some(child) = schema.properties.get(key) {
                // Type and version of the root are never taken as unchanged.
                let is_type = matches!(path, Path::Root) && matches!(key.as_str(), "kind" | "apiVersion");
                let old_item = old_field(old, key).filter(|_| !is_type);
                out.merge(self.node(item, old_item, child, &path.child(key)));
            }
        }
        for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
            let place = path.child(name);
            let message = format!("{} in body is required", place.dotted());
            out.errors.push(Found { message, error: FieldError::required(self.name(&place), "") });
        }
    }

    fn invalid(&self, path: &Path<'_>, value: impl Into<Value>, detail: &str) -> Found {
        let message = format!("{} in body {detail}", path.dotted());
        Found { error: FieldError::invalid(self.name(path), value, &message), message }
    }

    fn wrong_type(&self, path: &Path<'_>, wanted: &str, got: &str) -> Found {
        let message = format!("{} in body must be of type {wanted}: {}", path.dotted(), gofmt::quote(got));
        Found { error: FieldError::type_invalid(self.name(path), got, &message), message }
    }

    fn not_in_enum(&self, value: &Value, schema: &Schema, path: &Path<'_>) -> Found {
        let names = schema.enums.iter().map(|e| match e {
            Value::String(text) => text.clone(),
            other => gofmt::json(other),
        });
        let error = FieldError::not_supported(self.name(path), value.clone(), names);
        let values: Vec<String> = schema.enums.iter().map(gofmt::plain).collect();
        Found { message: format!("{} in body should be one of [{}]", path.dotted(), values.join(" ")), error }
    }

    /// An error about several schemas at once: it names the place in its text, not as its field.
    fn composite(&self, path: &Path<'_>, what: &str) -> Found {
        let message = format!("{} {what}", gofmt::quote(&path.dotted()));
        Found { error: FieldError::invalid(self.base_name(), "", &message), message }
    }

    fn base_name(&self) -> String {
        self.base.unwrap_or("<nil>").to_owned()
    }

    /// The field's name: the base, then the path within the value.
    fn name(&self, path: &Path<'_>) -> String {
        let dotted = path.dotted();
        let name = dotted.strip_prefix('.').unwrap_or(&dotted);
        match (self.base, name) {
            (_, "") => self.base_name(),
            (None, name) => name.to_owned(),
            (Some(base), name) => format!("{base}.{name}"),
        }
    }
}

fn type_names(schema: &Schema) -> &'static str {
    if schema.int_or_string { "integer,string" } else { schema.ty.name() }
}

/// The type of a value and the format that goes with it.
fn json_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(n) if n.as_i64().is_some() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    }
}

/// The first float beyond the integers of 64 bits.
const INT_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// Whether a float stands for an integer: within the range that JSON keeps exactly, and whole up to rounding errors.
fn is_whole(v: f64) -> bool {
    const MAX: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !v.is_finite() || v.abs() > MAX {
        return false;
    }
    let truncated = v.trunc();
    if truncated == v {
        return true;
    }
    // Negative values have no unsigned counterpart and are only taken if exactly whole.
    v > 0.0 && truncated != 0.0 && (v - truncated).abs() / (v + truncated) < EPSILON
}

/// A float as the integer that it is cut off to.
#[expect(clippy::cast_possible_truncation, reason = "cutting off and saturating is what is wanted here")]
fn saturate(v: f64) -> i64 {
    v as i64
}

/// Numbers in an enumeration are compared after conversion to the type of the listed value.
fn same_enum_value(value: &Value, listed: &Value) -> bool {
    match (value, listed) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            (None, Some(b)) => a.as_f64().is_some_and(|a| saturate(a) == b),
            _ => a.as_f64() == b.as_f64(),
        },
        (a, b) => a == b,
    }
}

/// Embedded resources must say what they are.
pub(crate) fn embedded(
    value: &Value,
    schema: &Schema,
    path: &Path<'_>,
    root: bool,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::Object(map) => {
            if root || schema.embedded_resource {
                type_meta(map, path, errors);
            }
            for (key, item) in map {
                if let Some(child) = schema.properties.get(key) {
                    embedded(item, child, &path.child(key), false, errors);
                } else if let Some(Additional::Schema(child)) = &schema.additional {
                    embedded(item, child, &path.key(key), false, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for (i, item) in items.iter().enumerate() {
                    embedded(item, schema, &path.index(i), false, errors);
                }
            }
        }
        _ => {}
    }
}

fn type_meta(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let field = path.child(name).field();
        match map.get(name) {
            None => errors.push(FieldError::required(field, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(field, text.as_str(), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid(field, text.as_str(), detail));
                }
            }
            Some(Value::String(text)) => {
                errors.extend(kind_error(text).map(|e| FieldError::invalid(field, text.as_str(), e)))
            }
            Some(other) => errors.push(FieldError::invalid(field, other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = map.get("metadata").filter(|m| !m.is_object() && !m.is_null()) {
        let got = match metadata {
            Value::Array(_) => "array",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            _ => "string",
        };
        let detail = format!("json: cannot unmarshal {got} into Go value of type v1.ObjectMeta");
        errors.push(FieldError::invalid(path.child("metadata").field(), metadata.clone(), detail));
    }
}

/// A kind is a DNS label that may have capitals.
fn kind_error(kind: &str) -> Option<String> {
    let lower = kind.to_lowercase();
    let bytes = lower.as_bytes();
    let mut reasons = Vec::new();
    if bytes.len() > 63 {
        reasons.push("must be no more than 63 bytes".to_owned());
    }
    let label = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
    if !label {
        reasons.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    (!reasons.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", reasons.join(",")))
}

/// Lists of type set and map hold nothing twice.
fn lists(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                if let Some(child) = schema.properties.get(key) {
                    lists(item, child, &path.child(key), errors);
                } else if let Some(Additional::Schema(child)) = &schema.additional {
                    lists(item, child, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                Some(ListType::Set) => {
                    for i in repeated(items.iter()) {
                        if let Some(item) = items.get(i) {
                            errors.push(FieldError::duplicate(path.index(i).field(), item.clone()));
                        }
                    }
                }
                Some(ListType::Map) => list_map(items, schema, path, errors),
                Some(ListType::Atomic) | None => {}
            }
            if let Some(child) = schema.items.as_deref() {
                for (i, item) in items.iter().enumerate() {
                    lists(item, child, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn list_map(items: &[Value], schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((i, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i).field(), item.clone(), detail));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let fields = schema.list_map_keys.iter().filter_map(|k| Some((k.clone(), item.get(k)?.clone())));
            Value::Object(fields.collect())
        })
        .collect();
    for i in repeated(keys.iter()) {
        if let Some(key) = keys.get(i) {
            errors.push(FieldError::duplicate(path.index(i).field(), key.clone()));
        }
    }
}

/// The place of the second appearance of each value that is there more than once.
fn repeated<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    let mut places = Vec::new();
    for (i, value) in values.enumerate() {
        // An integer and a float are never the same entry.
        let is_float = value.as_number().is_some_and(|n| n.as_i64().is_none());
        let key = format!("{}{}", gofmt::json(value), if is_float { "f" } else { "" });
        match seen.get_mut(&key) {
            None => {
                seen.insert(key, false);
            }
            Some(reported) => {
                if !std::mem::replace(reported, true) {
                    places.push(i);
                }
            }
        }
    }
    places
}
