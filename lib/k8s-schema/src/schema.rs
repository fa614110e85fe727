//! The schema type: one node describes one value, its children describe the fields or items below it.
//!
//! The same type serves custom resources, whose schemas are read by [`Schema::from_crd`](crate::Schema::from_crd), and
//! built-in kinds, whose schemas are written in code. Children are behind `Arc`, so a type such as `ObjectMeta` or
//! `PodSpec` is built once and shared. A schema is never changed after it is in use: the compiled form of patterns and
//! rules is kept inside it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, OnceLock},
};

use serde_json::Value;

use crate::rules::{Compiled, Plan};

/// Describes one value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    /// The JSON type; [`Type::Any`] accepts every type.
    pub ty: Type,
    /// A format such as `int32`, `date-time` or `byte`.
    pub format: Option<String>,
    /// A short name for readers.
    pub title: Option<String>,
    /// Prose for readers.
    pub description: Option<String>,
    /// Whether `null` is a value of its own.
    pub nullable: bool,
    /// The declared fields of an object.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// What is said of the fields that `properties` does not name.
    pub additional: Option<Additional>,
    /// The items of an array.
    pub items: Option<Arc<Schema>>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The permitted values; empty permits all.
    pub enums: Vec<Value>,
    /// The value of this field where it is absent.
    pub default: Option<Value>,
    /// Smallest number.
    pub minimum: Option<f64>,
    /// Whether `minimum` itself is refused.
    pub exclusive_minimum: bool,
    /// Largest number.
    pub maximum: Option<f64>,
    /// Whether `maximum` itself is refused.
    pub exclusive_maximum: bool,
    /// A number must be a multiple of this.
    pub multiple_of: Option<f64>,
    /// Fewest characters of a string.
    pub min_length: Option<i64>,
    /// Most characters of a string.
    pub max_length: Option<i64>,
    /// A regular expression that must match somewhere in a string.
    pub pattern: Option<Pattern>,
    /// Fewest items of an array.
    pub min_items: Option<i64>,
    /// Most items of an array.
    pub max_items: Option<i64>,
    /// Whether the items of an array must differ.
    pub unique_items: bool,
    /// Fewest fields of an object.
    pub min_properties: Option<i64>,
    /// Most fields of an object.
    pub max_properties: Option<i64>,
    /// Every one of these must hold as well.
    pub all_of: Vec<Arc<Schema>>,
    /// At least one of these must hold as well.
    pub any_of: Vec<Arc<Schema>>,
    /// Exactly one of these must hold as well.
    pub one_of: Vec<Arc<Schema>>,
    /// This must not hold.
    pub not: Option<Arc<Schema>>,
    /// Keep fields that are not declared (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// The object is a whole Kubernetes object (`x-kubernetes-embedded-resource`).
    pub embedded_resource: bool,
    /// The value is an integer or a string (`x-kubernetes-int-or-string`).
    pub int_or_string: bool,
    /// How the items of an array are told apart (`x-kubernetes-list-type`).
    pub list_type: Option<ListType>,
    /// The fields that name an item of a list of type map (`x-kubernetes-list-map-keys`).
    pub list_map_keys: Vec<String>,
    /// Whether an object is owned field by field (`x-kubernetes-map-type`).
    pub map_type: Option<MapType>,
    /// Validation rules in CEL (`x-kubernetes-validations`).
    pub rules: Vec<Rule>,
    /// `x-kubernetes-patch-strategy` of a built-in list or map: `merge`, `replace`, `retainKeys` or `merge,retainKeys`.
    pub patch_strategy: Option<String>,
    /// `x-kubernetes-patch-merge-key` of a built-in list.
    pub patch_merge_key: Option<String>,
    /// An example value for readers.
    pub example: Option<Value>,
    /// A link for readers: `{description, url}`.
    pub external_docs: Option<Value>,
    /// Further `x-...` entries that are only published, never interpreted.
    pub extensions: BTreeMap<String, Value>,
    /// What is worked out from the fields above at first use. Start it with `Memo::default()`.
    pub memo: Memo,
}

/// The JSON type of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Type {
    /// Every type.
    #[default]
    Any,
    /// A map from names to values.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}

impl Type {
    /// The OpenAPI name; empty for [`Type::Any`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of that OpenAPI name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "" => Self::Any,
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }
}

/// What `additionalProperties` says.
#[derive(Debug, Clone, PartialEq)]
pub enum Additional {
    /// Every field that is not declared has this schema.
    Schema(Arc<Schema>),
    /// Fields that are not declared are permitted, or not, without a schema.
    Allowed(bool),
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListType {
    /// The list is one value.
    Atomic,
    /// Each item is itself its name and may be there once.
    Set,
    /// Items are objects named by `list_map_keys`.
    Map,
}

impl ListType {
    /// The spelling in `x-kubernetes-list-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Set => "set",
            Self::Map => "map",
        }
    }
}

/// How an object is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapType {
    /// Field by field.
    Granular,
    /// As one value.
    Atomic,
}

impl MapType {
    /// The spelling in `x-kubernetes-map-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Granular => "granular",
            Self::Atomic => "atomic",
        }
    }
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// The CEL expression that must be true.
    pub rule: String,
    /// What to say when it is not.
    pub message: Option<String>,
    /// A CEL expression that makes the message.
    pub message_expression: Option<String>,
    /// `FieldValueInvalid` (the default), `FieldValueForbidden`, `FieldValueRequired` or `FieldValueDuplicate`.
    pub reason: Option<String>,
    /// A JSON path, relative to the rule's place, of the field to blame.
    pub field_path: Option<String>,
    /// Whether `oldSelf` is optional, so that a transition rule also runs when there is no old value.
    pub optional_old_self: Option<bool>,
    /// What is worked out from the fields above at first use. Start it with `RuleMemo::default()`.
    pub memo: RuleMemo,
}

/// The compiled form of a rule.
#[derive(Debug, Clone, Default)]
pub struct RuleMemo {
    pub(crate) compiled: OnceLock<Arc<Compiled>>,
}

impl Rule {
    /// A rule with a fixed message.
    pub fn new(rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self { rule: rule.into(), message: Some(message.into()), ..Self::default() }
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let key = |r: &Self| {
            (
                r.rule.clone(),
                r.message.clone(),
                r.message_expression.clone(),
                r.reason.clone(),
                r.field_path.clone(),
                r.optional_old_self,
            )
        };
        key(self) == key(other)
    }
}

/// A regular expression in RE2 syntax, compiled at first use and at most once.
#[derive(Debug, Clone, Default)]
pub struct Pattern {
    source: String,
    compiled: OnceLock<Result<regex::Regex, String>>,
}

impl Pattern {
    /// A pattern with this source text; it is not compiled yet.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// The text it was made of.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The compiled expression, or why there is none.
    pub fn regex(&self) -> Result<&regex::Regex, &str> {
        self.compiled.get_or_init(|| crate::pattern::compile(&self.source)).as_ref().map_err(String::as_str)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// What is worked out once per schema node; equal to every other memo, because it is made of the other fields.
#[derive(Debug, Clone, Default)]
pub struct Memo {
    pub(crate) plan: OnceLock<Plan>,
}

impl Memo {
    fn plan(&self, schema: &Schema) -> &Plan {
        self.plan.get_or_init(|| Plan::new(schema))
    }

    /// The fields of an object that have a default.
    pub(crate) fn defaulted(&self, schema: &Schema) -> &[String] {
        &self.plan(schema).defaulted
    }

    /// Whether there are CEL rules here or anywhere below.
    pub(crate) fn has_rules(&self, schema: &Schema) -> bool {
        self.plan(schema).has_rules
    }
}

/// Metadata as CEL rules see it at the root of every object.
pub(crate) static META: LazyLock<Schema> = LazyLock::new(crate::rules::meta_schema);

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Schema {
    /// A schema that says only the type.
    #[must_use]
    pub fn of(ty: Type) -> Self {
        Self { ty, ..Self::default() }
    }

    /// The schema of the field `name`: declared, or by `additionalProperties`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        })
    }
}
