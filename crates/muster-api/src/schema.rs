//! Schemas as static data, and how they become JSON.
//!
//! `#[derive(Api)]` fills these values from a struct's fields, doc comments and attributes; [`structural`]
//! turns a [`Shape`] into a structural OpenAPI v3 schema as a CustomResourceDefinition wants it. [`KindInfo`]
//! is all that a CRD version says about a kind beyond its schema.
//!
//! What must stay true: `structural` is the only place that knows the JSON keywords; its output never holds
//! an empty list, an empty description or a keyword that Kubernetes does not allow in a structural schema.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Pattern of a DNS-1123 label: `a`, `a-1`.
pub const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Pattern of a DNS-1123 subdomain: labels joined by dots.
pub const DNS_SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Pattern of a qualified name, the form of a label key: an optional subdomain and `/`, then a name.
pub const LABEL_KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Pattern of a Kubernetes quantity: `1`, `500m`, `1.5Gi`, `2e3`.
pub const QUANTITY: &str = "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$";
/// Pattern of a duration in Prometheus' form, with days, weeks and years: `1w2d`, `90s`.
pub const LONG_DURATION: &str =
    "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$";

/// A type that can say what its JSON looks like.
pub trait Describe {
    const SHAPE: Shape;
}

/// A resource of the API: a type with metadata, served under a group, a version and a plural.
pub trait Kind: Describe {
    const INFO: KindInfo;
}

/// The shape of a JSON value.
#[derive(Debug)]
pub enum Shape {
    Text,
    /// An RFC 3339 date and time.
    DateTime,
    Boolean,
    /// An integer with its format, `int32` or `int64`.
    Integer(&'static str),
    Number,
    Quantity,
    IntOrString,
    /// A string that is one of these.
    Enum(&'static [&'static str]),
    List(&'static Shape),
    Map(&'static Shape),
    Object {
        doc: &'static str,
        properties: &'static [Property],
        marks: &'static [Mark],
    },
    /// An object of which the server keeps every field without looking.
    Open,
    /// The metadata of a kind: an object whose schema the API server supplies.
    Metadata,
}

/// A field of an object.
#[derive(Debug)]
pub struct Property {
    pub name: &'static str,
    pub doc: &'static str,
    pub required: bool,
    pub shape: &'static Shape,
    pub marks: &'static [Mark],
}

/// What a field or struct adds to the schema of its type.
#[derive(Debug)]
pub enum Mark {
    /// A default, as JSON text.
    Default(&'static str),
    Minimum(i64),
    Maximum(i64),
    ExclusiveMinimum,
    MinLength(u64),
    MaxLength(u64),
    MinItems(u64),
    MaxItems(u64),
    MinProperties(u64),
    MaxProperties(u64),
    Pattern(&'static str),
    OneOf(&'static [&'static str]),
    ListType(&'static str),
    ListMap(&'static [&'static str]),
    MapType(&'static str),
    Rule(&'static Rule),
    Nullable,
    Unformatted,
    Untyped,
    /// For the elements of a list or the values of a map.
    Items(&'static [Mark]),
}

/// A CEL rule.
#[derive(Debug)]
pub struct Rule {
    pub rule: &'static str,
    pub message: &'static str,
    pub reason: Option<&'static str>,
    pub field_path: Option<&'static str>,
    pub optional_old_self: bool,
}

/// One served version of a kind.
#[derive(Debug)]
pub struct KindInfo {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    /// Whether this is the version that is stored.
    pub storage: bool,
    /// The warning that users of a deprecated version get.
    pub deprecated: Option<&'static str>,
    /// Value of the `api-approved.kubernetes.io` annotation, which groups under `k8s.io` must carry.
    pub approved: Option<&'static str>,
    /// Whether status is a subresource.
    pub status: bool,
    pub scale: Option<Scale>,
    pub columns: &'static [Column],
    /// JSON paths that field selectors may use.
    pub selectable: &'static [&'static str],
    pub shape: &'static Shape,
    /// Reads an object into its type and writes it back. This is the identity for every object that the
    /// schema accepts, and the quickest way to ask whether an object has the type at all.
    pub reread: fn(Value) -> Result<Value, serde_json::Error>,
}

/// The paths of the scale subresource.
#[derive(Debug)]
pub struct Scale {
    pub spec: &'static str,
    pub status: &'static str,
    pub selector: &'static str,
}

/// A column of `kubectl get`.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `date`, `boolean` or `number`.
    pub kind: &'static str,
    pub path: &'static str,
    /// Shown only with `-o wide`.
    pub wide: bool,
}

/// The structural OpenAPI v3 schema of a shape.
pub fn structural(shape: &Shape) -> Value {
    Value::Object(build(shape))
}

fn build(shape: &Shape) -> Map<String, Value> {
    let typed = |name: &str| Map::from_iter([("type".to_owned(), json!(name))]);
    match shape {
        Shape::Text => typed("string"),
        Shape::DateTime => object([("type", json!("string")), ("format", json!("date-time"))]),
        Shape::Boolean => typed("boolean"),
        Shape::Integer(format) => object([("type", json!("integer")), ("format", json!(format))]),
        Shape::Number => typed("number"),
        Shape::IntOrString => object([
            ("anyOf", json!([{"type": "integer"}, {"type": "string"}])),
            ("x-kubernetes-int-or-string", json!(true)),
        ]),
        Shape::Quantity => object([
            ("anyOf", json!([{"type": "integer"}, {"type": "string"}])),
            ("pattern", json!(QUANTITY)),
            ("x-kubernetes-int-or-string", json!(true)),
        ]),
        Shape::Enum(values) => object([("type", json!("string")), ("enum", json!(values))]),
        Shape::List(items) => object([("type", json!("array")), ("items", structural(items))]),
        Shape::Map(values) => {
            object([("type", json!("object")), ("additionalProperties", structural(values))])
        }
        Shape::Open => {
            object([("type", json!("object")), ("x-kubernetes-preserve-unknown-fields", json!(true))])
        }
        Shape::Metadata => typed("object"),
        Shape::Object { doc, properties, marks } => {
            let mut out = typed("object");
            describe(&mut out, doc);
            let mut required: Vec<&str> = properties.iter().filter(|p| p.required).map(|p| p.name).collect();
            required.sort_unstable();
            if !required.is_empty() {
                out.insert("required".to_owned(), json!(required));
            }
            let properties: Map<String, Value> =
                properties.iter().map(|p| (p.name.to_owned(), Value::Object(property(p)))).collect();
            if !properties.is_empty() {
                out.insert("properties".to_owned(), Value::Object(properties));
            }
            mark_all(&mut out, marks);
            out
        }
    }
}

fn property(property: &Property) -> Map<String, Value> {
    let mut out = build(property.shape);
    describe(&mut out, property.doc);
    mark_all(&mut out, property.marks);
    out
}

fn describe(out: &mut Map<String, Value>, doc: &str) {
    if !doc.is_empty() {
        out.insert("description".to_owned(), json!(doc));
    }
}

fn mark_all(out: &mut Map<String, Value>, marks: &[Mark]) {
    for mark in marks {
        let (keyword, value) = match mark {
            Mark::Default(text) => match serde_json::from_str(text) {
                Ok(value) => ("default", value),
                // A test reads every default, so a text that is not JSON never leaves this repository.
                Err(_) => continue,
            },
            Mark::Minimum(n) => ("minimum", json!(n)),
            Mark::Maximum(n) => ("maximum", json!(n)),
            Mark::ExclusiveMinimum => ("exclusiveMinimum", json!(true)),
            Mark::MinLength(n) => ("minLength", json!(n)),
            Mark::MaxLength(n) => ("maxLength", json!(n)),
            Mark::MinItems(n) => ("minItems", json!(n)),
            Mark::MaxItems(n) => ("maxItems", json!(n)),
            Mark::MinProperties(n) => ("minProperties", json!(n)),
            Mark::MaxProperties(n) => ("maxProperties", json!(n)),
            Mark::Pattern(text) => ("pattern", json!(text)),
            Mark::OneOf(values) => ("enum", json!(values)),
            Mark::ListType(how) => ("x-kubernetes-list-type", json!(how)),
            Mark::MapType(how) => ("x-kubernetes-map-type", json!(how)),
            Mark::Nullable => ("nullable", json!(true)),
            Mark::ListMap(keys) => {
                out.insert("x-kubernetes-list-type".to_owned(), json!("map"));
                ("x-kubernetes-list-map-keys", json!(keys))
            }
            Mark::Unformatted => {
                out.remove("format");
                continue;
            }
            Mark::Untyped => {
                out.remove("type");
                continue;
            }
            Mark::Rule(rule) => {
                if let Value::Array(rules) =
                    out.entry("x-kubernetes-validations").or_insert_with(|| Value::Array(Vec::new()))
                {
                    rules.push(rule.to_json());
                }
                continue;
            }
            Mark::Items(marks) => {
                for keyword in ["items", "additionalProperties"] {
                    if let Some(Value::Object(element)) = out.get_mut(keyword) {
                        mark_all(element, marks);
                    }
                }
                continue;
            }
        };
        out.insert(keyword.to_owned(), value);
    }
}

impl Rule {
    fn to_json(&self) -> Value {
        let mut out = object([("rule", json!(self.rule)), ("message", json!(self.message))]);
        if let Some(reason) = self.reason {
            out.insert("reason".to_owned(), json!(reason));
        }
        if let Some(path) = self.field_path {
            out.insert("fieldPath".to_owned(), json!(path));
        }
        if self.optional_old_self {
            out.insert("optionalOldSelf".to_owned(), json!(true));
        }
        Value::Object(out)
    }
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// `group/version` as objects carry it.
pub fn api_version(info: &KindInfo) -> String {
    format!("{}/{}", info.group, info.version)
}

/// Refuses an object of another group or version; items of a list may leave the field out.
#[doc(hidden)]
pub fn expect_api_version<E: serde::de::Error>(info: &KindInfo, found: Option<String>) -> Result<(), E> {
    match found {
        Some(found) if found != api_version(info) => {
            Err(E::custom(format_args!("apiVersion is {found}, expected {}", api_version(info))))
        }
        _ => Ok(()),
    }
}

/// Refuses an object of another kind.
#[doc(hidden)]
pub fn expect_kind<E: serde::de::Error>(info: &KindInfo, found: Option<String>) -> Result<(), E> {
    match found {
        Some(found) if found != info.kind => {
            Err(E::custom(format_args!("kind is {found}, expected {}", info.kind)))
        }
        _ => Ok(()),
    }
}

macro_rules! describe {
    ($($ty:ty => $shape:expr;)*) => { $(impl Describe for $ty { const SHAPE: Shape = $shape; })* };
}

describe! {
    String => Shape::Text;
    bool => Shape::Boolean;
    i32 => Shape::Integer("int32");
    i64 => Shape::Integer("int64");
    serde_json::Number => Shape::Number;
    kube::core::ObjectMeta => Shape::Metadata;
}

impl<T: Describe> Describe for Option<T> {
    const SHAPE: Shape = T::SHAPE;
}

impl<T: Describe> Describe for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
}

impl<T: Describe> Describe for BTreeMap<String, T> {
    const SHAPE: Shape = Shape::Map(&T::SHAPE);
}
