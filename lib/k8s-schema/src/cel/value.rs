//! Values during evaluation: JSON that is looked at in place, and what expressions make of it.
//!
//! JSON arrays and objects stay where they are, together with the schema that says how to read them. Scalars become CEL
//! scalars when they are reached: a number field is a double even when it was written `1`, a string with a time format is a
//! time.

use std::{collections::BTreeMap, sync::Arc};

use kube_cel::cel::{
    Value as Cel,
    objects::{Key, Map, OptionalValue},
};
use serde_json::Value as Json;

use super::{
    eval::Failure,
    library::{self, Callee},
    names,
};
use crate::{Additional, ListType, Schema, Type, format, schema::META};

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Val<'a> {
    /// A JSON array or object, or JSON of unknown type.
    Json(&'a Json, Typed<'a>),
    /// A scalar, or what a library function returned.
    Cel(Cel),
    List(Arc<Vec<Val<'a>>>),
    /// A list that is still a set or map after something was added, with the fields that name its items.
    Keyed(Arc<Vec<Val<'a>>>, ListType, &'a [String]),
    Map(Arc<BTreeMap<Key, Val<'a>>>),
    Optional(Option<Arc<Val<'a>>>),
    /// The name of a type.
    Type(String),
}

/// How JSON is to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Typed<'a> {
    pub schema: &'a Schema,
    /// Whether this is a whole object, with type, version and metadata.
    pub resource: bool,
}

impl<'a> Typed<'a> {
    pub(crate) fn new(schema: &'a Schema, root: bool) -> Self {
        Self { schema, resource: root || schema.embedded_resource }
    }

    /// Whether fields are declared one by one, as opposed to the free keys of a map.
    pub(crate) fn is_struct(self) -> bool {
        self.resource || !self.schema.properties.is_empty()
    }

    /// The schema of a field as an expression spells it, and the field's own name.
    pub(crate) fn field(self, spelled: &str) -> Option<(String, Typed<'a>)> {
        if !self.is_struct() {
            return match &self.schema.additional {
                Some(Additional::Schema(child)) => Some((spelled.to_owned(), Typed::new(child, false))),
                _ => None,
            };
        }
        let name = names::unescape(spelled)?;
        let child = self.declared(&name)?;
        Some((name, Typed::new(child, false)))
    }

    /// Type, version and the names in metadata are always there to be asked for.
    fn declared(self, name: &str) -> Option<&'a Schema> {
        let own = self.schema.properties.get(name).map(AsRef::as_ref);
        if !self.resource {
            return own;
        }
        match name {
            "kind" | "apiVersion" => META.properties.get("name").map(AsRef::as_ref),
            "metadata" => {
                let complete =
                    |s: &&Schema| ["name", "generateName"].iter().all(|n| s.properties.contains_key(*n));
                own.filter(complete).or(Some(&META))
            }
            _ => own,
        }
    }

    fn item(self) -> Option<Typed<'a>> {
        self.schema.items.as_deref().map(|s| Typed::new(s, false))
    }
}

impl<'a> Val<'a> {
    pub(crate) fn string(text: impl Into<String>) -> Self {
        Val::Cel(Cel::String(Arc::new(text.into())))
    }

    pub(crate) fn bool(b: bool) -> Self {
        Val::Cel(Cel::Bool(b))
    }

    pub(crate) fn int(i: i64) -> Self {
        Val::Cel(Cel::Int(i))
    }

    pub(crate) fn size_int(n: usize) -> Self {
        Self::int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// JSON of which nobody says what it is.
    pub(crate) fn untyped(json: &Json) -> Val<'static> {
        match json {
            Json::Null => Val::Cel(Cel::Null),
            Json::Bool(b) => Val::bool(*b),
            Json::Number(n) => match n.as_i64() {
                Some(int) => Val::int(int),
                None => Val::Cel(Cel::Float(n.as_f64().unwrap_or(f64::NAN))),
            },
            Json::String(text) => Val::string(text.as_str()),
            Json::Array(items) => Val::List(Arc::new(items.iter().map(Val::untyped).collect())),
            Json::Object(members) => {
                let member = |(name, value): (&String, &Json)| (Key::from(name.clone()), Val::untyped(value));
                Val::Map(Arc::new(members.iter().map(member).collect()))
            }
        }
    }

    /// Reads JSON as its schema says.
    pub(crate) fn read(json: &'a Json, typed: Typed<'a>) -> Result<Self, Failure> {
        let schema = typed.schema;
        let wrong =
            |wanted: &str| Failure::Other(format!("invalid data, expected {wanted}, got {}", go_type(json)));
        if json.is_null() {
            return if schema.nullable {
                Ok(Val::Cel(Cel::Null))
            } else {
                Err(Failure::Other("invalid data, got null for schema with nullable=false".to_owned()))
            };
        }
        if schema.int_or_string {
            return match json {
                Json::String(text) => Ok(Val::string(text.as_str())),
                Json::Number(n) if n.as_i64().is_some() => Ok(Val::int(n.as_i64().unwrap_or_default())),
                _ => Err(Failure::Other(
                    "invalid data, expected XIntOrString value to be either a string or integer".to_owned(),
                )),
            };
        }
        match (schema.ty, json) {
            (Type::Object, Json::Object(_)) | (Type::Array, Json::Array(_)) => Ok(Val::Json(json, typed)),
            (Type::Object, _) => Err(Failure::Other(
                "invalid data, expected a map for the provided schema with type=object".to_owned(),
            )),
            (Type::Array, _) => Err(Failure::Other(
                "invalid data, expected an array for the provided schema with type=array".to_owned(),
            )),
            (Type::String, Json::String(text)) => read_string(text, schema.format.as_deref()),
            (Type::String, _) => Err(wrong("string")),
            (Type::Number, Json::Number(n)) => Ok(Val::Cel(Cel::Float(n.as_f64().unwrap_or(f64::NAN)))),
            (Type::Number, _) => Err(wrong("float")),
            (Type::Integer, Json::Number(n)) => n.as_i64().map(Val::int).ok_or_else(|| wrong("int")),
            (Type::Integer, _) => Err(wrong("int")),
            (Type::Boolean, Json::Bool(b)) => Ok(Val::bool(*b)),
            (Type::Boolean, _) => Err(wrong("bool")),
            // Nothing is known about it: it can be compared as a whole, no more.
            (Type::Any, _) => Ok(Val::Json(json, typed)),
        }
    }

    /// The entries of a list; `None` if it is not one.
    pub(crate) fn items(&self) -> Option<Result<Vec<Val<'a>>, Failure>> {
        match self {
            Val::Json(Json::Array(items), typed) => {
                let item = typed.item()?;
                Some(items.iter().map(|json| Val::read(json, item)).collect())
            }
            Val::List(items) | Val::Keyed(items, ..) => Some(Ok(items.as_ref().clone())),
            Val::Cel(Cel::List(items)) => Some(Ok(items.iter().cloned().map(Val::from_cel).collect())),
            _ => None,
        }
    }

    /// Whether it is a list, without looking at its items.
    pub(crate) fn is_list(&self) -> bool {
        matches!(
            self,
            Val::Json(Json::Array(_), Typed { schema: Schema { items: Some(_), .. }, .. })
                | Val::List(_)
                | Val::Keyed(..)
                | Val::Cel(Cel::List(_))
        )
    }

    /// What it costs to have made this value from JSON: texts are copied.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Val::Cel(Cel::String(text)) => text.len() / 256,
            Val::Cel(Cel::Bytes(bytes)) => bytes.len() / 64,
            _ => 0,
        }
    }

    /// One entry of a list; the outer `None` says that it is not a list.
    pub(crate) fn nth(&self, i: i64) -> Option<Option<Result<Val<'a>, Failure>>> {
        let i = usize::try_from(i).unwrap_or(usize::MAX);
        match self {
            Val::Json(Json::Array(items), typed) => {
                let item = typed.item()?;
                Some(items.get(i).map(|json| Val::read(json, item)))
            }
            Val::List(items) | Val::Keyed(items, ..) => Some(items.get(i).cloned().map(Ok)),
            Val::Cel(Cel::List(items)) => Some(items.get(i).cloned().map(|v| Ok(Val::from_cel(v)))),
            _ => None,
        }
    }

    /// Keys and values of a map; `None` if it is not one.
    pub(crate) fn entries(&self) -> Option<Vec<(Key, Result<Val<'a>, Failure>)>> {
        match self {
            Val::Json(Json::Object(map), typed) => Some(
                map.iter()
                    .filter(|(_, json)| !(json.is_null() && typed.is_struct()))
                    .filter_map(|(name, json)| {
                        let spelled = if typed.is_struct() { names::escape(name)? } else { name.clone() };
                        let (_, child) = typed.field(&spelled)?;
                        Some((Key::from(spelled), Val::read(json, child)))
                    })
                    .collect(),
            ),
            Val::Map(map) => Some(map.iter().map(|(k, v)| (k.clone(), Ok(v.clone()))).collect()),
            Val::Cel(Cel::Map(map)) => {
                let mut entries: Vec<_> =
                    map.map.iter().map(|(k, v)| (k.clone(), Ok(Val::from_cel(v.clone())))).collect();
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                Some(entries)
            }
            _ => None,
        }
    }

    /// How many entries a list or map has.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Val::Json(Json::Array(items), _) => Some(items.len()),
            Val::Json(Json::Object(map), typed) if typed.schema.ty == Type::Object => Some(map.len()),
            Val::List(items) | Val::Keyed(items, ..) => Some(items.len()),
            Val::Map(map) => Some(map.len()),
            Val::Cel(Cel::List(items)) => Some(items.len()),
            Val::Cel(Cel::Map(map)) => Some(map.map.len()),
            _ => None,
        }
    }

    /// The entry of a map or the field of an object; `None` if it is neither.
    pub(crate) fn lookup(&self, key: &Key) -> Option<Option<Result<Val<'a>, Failure>>> {
        match self {
            Val::Json(Json::Object(map), typed) if typed.schema.ty == Type::Object => Some(match key {
                // A field that is null is a field that is not there; an entry of a map is.
                Key::String(spelled) => typed.field(spelled).and_then(|(name, child)| {
                    let json = map.get(&name).filter(|json| !(json.is_null() && typed.is_struct()))?;
                    Some(Val::read(json, child))
                }),
                _ => None,
            }),
            Val::Map(map) => {
                Some(map.get(key).cloned().or_else(|| Some(map.get(&twin(key)?)?.clone())).map(Ok))
            }
            Val::Cel(Cel::Map(map)) => Some(map.get(key).cloned().map(|v| Ok(Val::from_cel(v)))),
            _ => None,
        }
    }

    /// Takes apart what a library function returned.
    pub(crate) fn from_cel(value: Cel) -> Self {
        if let Ok(optional) = <&OptionalValue>::try_from(&value) {
            return Val::Optional(optional.value().map(|v| Arc::new(Val::from_cel(v.clone()))));
        }
        Val::Cel(value)
    }

    /// The value as a library function takes it; `spend` is told the number of values in it.
    pub(crate) fn to_cel(&self, spend: &mut dyn FnMut(usize) -> Result<(), Failure>) -> Result<Cel, Failure> {
        spend(1)?;
        if let Val::Cel(value) = self {
            if let Cel::String(text) = value {
                spend(text.len() / 64)?;
            }
            return Ok(value.clone());
        }
        if let Some(items) = self.items() {
            let items: Result<Vec<Cel>, Failure> = items?.iter().map(|item| item.to_cel(spend)).collect();
            return Ok(Cel::List(Arc::new(items?)));
        }
        if let Some(entries) = self.entries() {
            let pairs = entries.into_iter().map(|(key, value)| Ok((key, value?.to_cel(spend)?)));
            return Ok(Cel::Map(Map { map: Arc::new(pairs.collect::<Result<_, Failure>>()?) }));
        }
        match self {
            Val::Optional(inner) => {
                let optional = match inner {
                    Some(inner) => OptionalValue::of(inner.to_cel(spend)?),
                    None => OptionalValue::none(),
                };
                Ok(Cel::Opaque(Arc::new(optional)))
            }
            Val::Type(name) => Ok(Cel::String(Arc::new(name.clone()))),
            _ => Err(Failure::NoSuchOverload),
        }
    }

    /// How its items are told apart, if it is a list of an object.
    pub(crate) fn list_type(&self) -> Option<(ListType, &'a [String])> {
        match self {
            Val::Json(Json::Array(_), typed) => {
                typed.schema.list_type.map(|t| (t, typed.schema.list_map_keys.as_slice()))
            }
            Val::Keyed(_, list_type, keys) => Some((*list_type, keys)),
            _ => None,
        }
    }

    /// Whether fields that the schema does not declare are the same, where both objects have them.
    pub(crate) fn same_unknown(&self, other: &Val<'_>) -> bool {
        let (Val::Json(Json::Object(a), typed), Val::Json(Json::Object(b), _)) = (self, other) else {
            return true;
        };
        let known = |name: &str| {
            if typed.is_struct() { typed.declared(name).is_some() } else { typed.field(name).is_some() }
        };
        a.iter()
            .filter(|(name, _)| !known(name))
            .all(|(name, value)| b.get(name).is_none_or(|other| other == value))
    }

    /// The name of its type.
    pub(crate) fn type_name(&self) -> String {
        match self {
            Val::Json(Json::Array(_), _) | Val::List(_) | Val::Keyed(..) | Val::Cel(Cel::List(_)) => "list",
            Val::Json(..) | Val::Map(_) | Val::Cel(Cel::Map(_)) => "map",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Cel(value) => match value {
                Cel::Int(_) => "int",
                Cel::UInt(_) => "uint",
                Cel::Float(_) => "double",
                Cel::String(_) => "string",
                Cel::Bytes(_) => "bytes",
                Cel::Bool(_) => "bool",
                Cel::Duration(_) => "google.protobuf.Duration",
                Cel::Timestamp(_) => "google.protobuf.Timestamp",
                Cel::Null => "null_type",
                Cel::Opaque(opaque) => return opaque.runtime_type_name().to_owned(),
                _ => "dyn",
            },
        }
        .to_owned()
    }
}

/// An int key finds the uint entry of the same number, and the other way round.
fn twin(key: &Key) -> Option<Key> {
    match key {
        Key::Int(i) => u64::try_from(*i).ok().map(Key::Uint),
        Key::Uint(u) => i64::try_from(*u).ok().map(Key::Int),
        _ => None,
    }
}

fn read_string<'a>(text: &str, format: Option<&str>) -> Result<Val<'a>, Failure> {
    let made = match format {
        Some("duration") => {
            let nanos = format::parse_duration(text)
                .ok_or_else(|| Failure::Other(format!("Invalid duration {text}: unable to parse")))?;
            duration(nanos)
        }
        Some("date") => timestamp(&format!("{text}T00:00:00Z")),
        Some("date-time") => match timestamp(text) {
            // A time without a zone is taken as UTC.
            Err(_) => timestamp(&format!("{text}Z")),
            made => made,
        },
        Some("byte") => {
            let standard: String = text
                .chars()
                .map(|c| match c {
                    '-' => '+',
                    '_' => '/',
                    c => c,
                })
                .collect();
            library::call(Callee::Namespace("base64"), "decode", vec![Cel::String(Arc::new(standard))])
        }
        _ => return Ok(Val::string(text)),
    };
    made.map(Val::Cel).map_err(|_| {
        Failure::Other(format!("Invalid {} formatted string {text}", format.unwrap_or_default()))
    })
}

/// A duration of so many nanoseconds.
pub(crate) fn duration(nanos: i64) -> Result<Cel, Failure> {
    library::call(Callee::Global, "duration", vec![Cel::String(Arc::new(format!("{nanos}ns")))])
}

fn timestamp(text: &str) -> Result<Cel, Failure> {
    library::call(Callee::Global, "timestamp", vec![Cel::String(Arc::new(text.to_uppercase()))])
}

fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::String(_) => "string",
        Json::Number(n) if n.as_i64().is_some() => "int64",
        Json::Number(_) => "float64",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
