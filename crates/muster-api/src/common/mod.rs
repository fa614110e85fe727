//! What the API groups share: how values are kept as written, objects that stay open, and Kubernetes' own
//! structs that CRDs embed.
//!
//! In: JSON of any server. Out: the same JSON. Nothing here interprets; `parse` and `typed` read a value on
//! request and say why they cannot.
//!
//! What must stay true: a value read and written back is the same value. A quantity written as `1` is not
//! rewritten to `"1"`, a time keeps its digits, an unknown field stays in [`Rest`], an absent list is not an
//! empty list.

pub mod autoscaling;
pub mod core;
pub mod device;
pub mod meta;

pub use self::core::{Taint, Toleration};
pub use meta::{Condition, LabelSelector, LabelSelectorRequirement, ObjectReference};

use crate::schema::{Describe, Shape};
use k8s_openapi::jiff::Timestamp;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

pub use kube::core::ObjectMeta;
pub use serde_json::Number;

/// The fields of an object that its type does not name.
pub type Rest = BTreeMap<String, Value>;
/// Labels, annotations and other maps of strings.
pub type Labels = BTreeMap<String, String>;
/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// An amount of a resource in the form in which it was written: text (`500m`) or a bare number (`2`).
///
/// Equality is that of the form; [`Quantity::parse`] gives the value.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    Text(String),
    Number(Number),
}

impl Quantity {
    /// The value, exactly, or why the text is not a quantity.
    pub fn parse(&self) -> Result<k8s_quantity::Quantity, k8s_quantity::ParseError> {
        match self {
            Quantity::Text(text) => text.parse(),
            Quantity::Number(number) => number.to_string().parse(),
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Quantity::Text("0".to_owned())
    }
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Quantity::Text(text.to_owned())
    }
}

impl From<i64> for Quantity {
    fn from(number: i64) -> Self {
        Quantity::Number(number.into())
    }
}

impl From<k8s_quantity::Quantity> for Quantity {
    fn from(quantity: k8s_quantity::Quantity) -> Self {
        Quantity::Text(quantity.to_string())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Text(text) => f.write_str(text),
            Quantity::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Describe for Quantity {
    const SHAPE: Shape = Shape::Quantity;
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Quantity::Text(text) => serializer.serialize_str(text),
            Quantity::Number(number) => number.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Quantity::Text(text)),
            Value::Number(number) => Ok(Quantity::Number(number)),
            other => Err(D::Error::custom(format_args!(
                "a quantity is a string or a number, not {}",
                kind_of(&other)
            ))),
        }
    }
}

/// A port, a percentage or a count: an integer or a string, in the form in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    Int(i64),
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(number) => write!(f, "{number}"),
            IntOrString::String(text) => f.write_str(text),
        }
    }
}

impl Describe for IntOrString {
    const SHAPE: Shape = Shape::IntOrString;
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(number) => serializer.serialize_i64(*number),
            IntOrString::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(IntOrString::String(text)),
            Value::Number(number) => {
                let whole =
                    number.as_i64().ok_or_else(|| D::Error::custom("expected a whole number or a string"))?;
                Ok(IntOrString::Int(whole))
            }
            other => Err(D::Error::custom(format_args!(
                "expected an integer or a string, not {}",
                kind_of(&other)
            ))),
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A moment, in the RFC 3339 text in which it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub String);

impl Time {
    /// The moment, or nothing if the text is no RFC 3339 time.
    pub fn instant(&self) -> Option<Timestamp> {
        self.0.parse().ok()
    }
}

impl From<Timestamp> for Time {
    /// Whole seconds in UTC, the precision of Kubernetes' times.
    fn from(at: Timestamp) -> Self {
        Time(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }
}

impl Describe for Time {
    const SHAPE: Shape = Shape::DateTime;
}

/// A length of time in Go's form (`1h30m`, `250ms`, `0`), as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration(pub String);

impl Duration {
    /// The length, or nothing if the text is not a duration that fits. A negative duration is not one of ours.
    pub fn parse(&self) -> Option<std::time::Duration> {
        let mut text = self.0.strip_prefix('+').unwrap_or(&self.0);
        if text == "0" {
            return Some(std::time::Duration::ZERO);
        }
        let mut nanos: u128 = 0;
        if text.is_empty() {
            return None;
        }
        while !text.is_empty() {
            let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let (whole, after) = text.split_at(n_digits);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return None;
            }
            // The longer unit names come first, so that "ms" is not read as minutes.
            let units: [(&str, u128); 8] = [
                ("ns", 1),
                ("us", 1_000),
                ("µs", 1_000),
                ("μs", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("m", 60_000_000_000),
                ("h", 3_600_000_000_000),
            ];
            let (unit, after) = units.iter().find_map(|(name, n)| Some((*n, after.strip_prefix(name)?)))?;
            let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            nanos = nanos.checked_add(whole.checked_mul(unit)?)?;
            // Nanoseconds are the finest unit and an hour has 13 digits of them: more fraction digits say
            // nothing.
            let fraction = fraction.get(..fraction.len().min(15))?;
            if !fraction.is_empty() {
                let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
                nanos = nanos.checked_add(fraction.parse::<u128>().ok()?.checked_mul(unit)? / scale)?;
            }
            text = after;
        }
        Some(std::time::Duration::from_nanos(u64::try_from(nanos).ok()?))
    }
}

impl From<std::time::Duration> for Duration {
    fn from(length: std::time::Duration) -> Self {
        if length.subsec_nanos() == 0 {
            Duration(format!("{}s", length.as_secs()))
        } else {
            Duration(format!("{}ns", length.as_nanos()))
        }
    }
}

impl Describe for Duration {
    const SHAPE: Shape = Shape::Text;
}

/// An object of which every field is kept and none is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Open(pub Map<String, Value>);

impl Describe for Open {
    const SHAPE: Shape = Shape::Open;
}

macro_rules! open_object {
    ($($(#[$doc:meta])* $name:ident => $typed:ty;)*) => { $(
        $(#[$doc])*
        ///
        /// Kept as an open object, so that a field that is newer than this program is not lost.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Map<String, Value>);

        impl $name {
            /// The object as Kubernetes' type, without the fields that this type does not know.
            pub fn typed(&self) -> Result<$typed, serde_json::Error> {
                read_map(&self.0)
            }

            /// The open form of Kubernetes' type.
            pub fn from_typed(typed: &$typed) -> Self {
                match serde_json::to_value(typed) {
                    Ok(Value::Object(map)) => $name(map),
                    _ => $name::default(),
                }
            }
        }

        impl Describe for $name {
            const SHAPE: Shape = Shape::Open;
        }
    )* };
}

fn read_map<T: DeserializeOwned>(map: &Map<String, Value>) -> Result<T, serde_json::Error> {
    T::deserialize(map)
}

open_object! {
    /// What a pod runs and where it may run.
    PodSpec => k8s_openapi::api::core::v1::PodSpec;
    /// Metadata and spec of the pods to make.
    PodTemplate => k8s_openapi::api::core::v1::PodTemplateSpec;
    /// Node and pod affinity.
    Affinity => k8s_openapi::api::core::v1::Affinity;
    /// Metadata and spec of the resource claims to make.
    ResourceClaimTemplateSpec => k8s_openapi::api::resource::v1::ResourceClaimTemplateSpec;
}

/// Declares an enum of strings that keeps a value it does not know.
///
/// `pub enum` lists the values that the schema admits. `pub open enum` names the well-known values of a field
/// whose schema admits any string. A variant's text is its name unless `= "text"` says otherwise.
macro_rules! string_enum {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident $(= $text:literal)?),* $(,)? }) => {
        string_enum!(@common $(#[$doc])* $name { $($(#[$vdoc])* $variant $(= $text)?),* });
        impl $crate::schema::Describe for $name {
            const SHAPE: $crate::schema::Shape =
                $crate::schema::Shape::Enum(&[$(string_enum!(@text $variant $($text)?)),*]);
        }
    };
    ($(#[$doc:meta])* pub open enum $name:ident { $($(#[$vdoc:meta])* $variant:ident $(= $text:literal)?),* $(,)? }) => {
        string_enum!(@common $(#[$doc])* $name { $($(#[$vdoc])* $variant $(= $text)?),* });
        impl $crate::schema::Describe for $name {
            const SHAPE: $crate::schema::Shape = $crate::schema::Shape::Text;
        }
    };
    (@text $variant:ident) => { stringify!($variant) };
    (@text $variant:ident $text:literal) => { $text };
    (@common $(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $(= $text:literal)?),* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
            /// A value that is newer than this program, or wrong.
            Other(String),
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => string_enum!(@text $variant $($text)?),)*
                    $name::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $(if text == string_enum!(@text $variant $($text)?) { return $name::$variant; })*
                $name::Other(text.to_owned())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::from("")
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok($name::from(<std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?.as_ref()))
            }
        }
    };
}
pub(crate) use string_enum;
