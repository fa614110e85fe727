//! What merging has to know about a type.
//!
//! In: nothing; this is the question a merge asks of a schema. Out: answers about one node of the schema and handles to its
//! children. [`OpenApi`] answers from an OpenAPI document in JSON; [`Untyped`] answers for objects that have no schema.
//! What must stay true: a shape is a cheap handle (`Copy`), and a schema that refers to itself is fine, because a merge walks
//! the shape only as deep as the objects go.

use serde_json::Value;

/// The type of one node of an object, as far as merging is concerned.
///
/// Implemented by handles into a schema, such as `&Schema`.
pub trait Shape: Copy {
    /// Which sort of value stands here.
    fn kind(self) -> Kind;

    /// For [`Kind::Struct`], the declared member `name`; for [`Kind::Map`], the type of its values. `None` says that
    /// the schema does not describe this member: it is then merged as [`Untyped`].
    fn field(self, name: &str) -> Option<Self>;

    /// The type of the elements of a list.
    fn item(self) -> Option<Self>;

    /// How the elements of a list are told apart (`x-kubernetes-list-type`). Where a schema does not say, but has the list
    /// merged by strategic merge patch, Kubernetes tells them apart by the key of that.
    fn list(self) -> ListMerge {
        ListMerge::Atomic
    }

    /// Calls `visit` with each key field of a [`ListMerge::Map`] list (`x-kubernetes-list-map-keys`).
    fn list_keys(self, visit: &mut dyn FnMut(&str)) {
        let _ = visit;
    }

    /// Whether this struct or map is replaced as a whole (`x-kubernetes-map-type: atomic`). For [`Kind::Unknown`] it says
    /// that the value, whatever it is, has a single owner.
    fn atomic(self) -> bool {
        false
    }

    /// The default of this field. Only asked of key fields of lists: `protocol` of a container port is part of the key, and
    /// means `TCP` when absent.
    fn default(self) -> Option<Value> {
        None
    }

    /// How strategic merge patch treats this field (`x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`).
    fn patch(self) -> Patch {
        Patch::Unset
    }

    /// Whether a configuration may have no members here but the declared ones.
    fn closed(self) -> bool {
        false
    }

    /// Which scalars are accepted where [`kind`](Shape::kind) is [`Kind::Scalar`]. Quantities and int-or-strings are
    /// [`Scalar::Any`], since clients may write them as numbers.
    fn scalar(self) -> Scalar {
        Scalar::Any
    }
}

/// The sort of value that a [`Shape`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string, number or boolean; see [`Scalar`].
    Scalar,
    /// An object with declared members.
    Struct,
    /// An object with free keys and one type of values.
    Map,
    /// A list.
    List,
    /// Anything: what stands there is merged by what it looks like.
    Unknown,
}

/// Which scalars a field accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scalar {
    /// Any scalar, as for `x-kubernetes-int-or-string`.
    #[default]
    Any,
    /// Strings only.
    String,
    /// Integers and floats.
    Number,
    /// `true` and `false`.
    Boolean,
}

/// How the elements of a list are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListMerge {
    /// They are not: the list is replaced as a whole.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By their key fields.
    Map,
}

/// How strategic merge patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Patch {
    /// Nothing is said: objects are merged, lists are replaced.
    #[default]
    Unset,
    /// Replaced as a whole.
    Replace,
    /// Objects are merged. Lists of objects are merged by `key`, lists of scalars as sets.
    Merge {
        /// The field that identifies an element.
        key: Option<String>,
    },
    /// Objects are merged, then members the patch does not name under `$retainKeys` are dropped.
    RetainKeys,
    /// A list merged like [`Patch::Merge`] whose elements are treated like [`Patch::RetainKeys`].
    MergeRetainKeys {
        /// The field that identifies an element.
        key: Option<String>,
    },
}

impl Patch {
    /// Reads the values of `x-kubernetes-patch-strategy` (such as `merge,retainKeys`) and `x-kubernetes-patch-merge-key`.
    #[must_use]
    pub fn new(strategy: Option<&str>, key: Option<&str>) -> Self {
        let has = |word: &str| strategy.is_some_and(|s| s.split(',').any(|part| part.trim() == word));
        let key = key.filter(|k| !k.is_empty()).map(str::to_owned);
        match (has("merge"), has("retainKeys"), has("replace")) {
            (true, true, _) => Self::MergeRetainKeys { key },
            (true, false, _) => Self::Merge { key },
            (false, true, _) => Self::RetainKeys,
            (false, false, true) => Self::Replace,
            (false, false, false) => Self::Unset,
        }
    }

    /// Whether lists are merged, and by which key.
    pub(crate) fn merges(&self) -> Option<Option<&str>> {
        match self {
            Self::Merge { key } | Self::MergeRetainKeys { key } => Some(key.as_deref()),
            Self::Unset | Self::Replace | Self::RetainKeys => None,
        }
    }
}

/// The shape of an object without a schema: objects are merged member by member, lists are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untyped;

impl Shape for Untyped {
    fn kind(self) -> Kind {
        Kind::Unknown
    }

    fn field(self, _name: &str) -> Option<Self> {
        None
    }

    fn item(self) -> Option<Self> {
        None
    }
}

/// The shape told by an OpenAPI v3 schema in JSON, with references already resolved.
///
/// ```
/// use k8s_merge::{Kind, ListMerge, OpenApi, Shape};
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {
///     "ports": {
///         "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
///         "items": {"type": "object", "properties": {"port": {"type": "integer"}}},
///     },
/// }});
/// let ports = OpenApi(&schema).field("ports").expect("declared above");
/// assert_eq!(ports.kind(), Kind::List);
/// assert_eq!(ports.list(), ListMerge::Map);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OpenApi<'a>(pub &'a Value);

impl<'a> OpenApi<'a> {
    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn flag(self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl Shape for OpenApi<'_> {
    fn kind(self) -> Kind {
        if self.flag("x-kubernetes-int-or-string") {
            return Kind::Scalar;
        }
        match self.text("type") {
            Some("string" | "integer" | "number" | "boolean") => Kind::Scalar,
            Some("array") => Kind::List,
            _ if self.0.get("properties").is_some() => Kind::Struct,
            Some("object") => Kind::Map,
            _ => Kind::Unknown,
        }
    }

    fn field(self, name: &str) -> Option<Self> {
        match self.0.get("properties") {
            Some(declared) => declared.get(name),
            None => self.0.get("additionalProperties").filter(|of| of.is_object()),
        }
        .map(Self)
    }

    fn item(self) -> Option<Self> {
        self.0.get("items").map(Self)
    }

    fn list(self) -> ListMerge {
        match self.text("x-kubernetes-list-type") {
            Some("set") => ListMerge::Set,
            Some("map") => ListMerge::Map,
            Some(_) => ListMerge::Atomic,
            // Lists that strategic merge patch merges are merged by apply as well.
            None => match self.patch() {
                Patch::Merge { key: Some(_) } | Patch::MergeRetainKeys { key: Some(_) } => ListMerge::Map,
                Patch::Merge { key: None } | Patch::MergeRetainKeys { key: None } => ListMerge::Set,
                Patch::Unset | Patch::Replace | Patch::RetainKeys => ListMerge::Atomic,
            },
        }
    }

    fn list_keys(self, visit: &mut dyn FnMut(&str)) {
        match (self.0.get("x-kubernetes-list-map-keys"), self.text("x-kubernetes-patch-merge-key")) {
            (Some(Value::Array(keys)), _) => keys.iter().filter_map(Value::as_str).for_each(visit),
            (None, Some(key)) => visit(key),
            _ => {}
        }
    }

    fn atomic(self) -> bool {
        self.text("x-kubernetes-map-type") == Some("atomic")
    }

    fn default(self) -> Option<Value> {
        self.0.get("default").cloned()
    }

    fn patch(self) -> Patch {
        Patch::new(self.text("x-kubernetes-patch-strategy"), self.text("x-kubernetes-patch-merge-key"))
    }

    fn scalar(self) -> Scalar {
        match self.text("type") {
            _ if self.flag("x-kubernetes-int-or-string") => Scalar::Any,
            // A string with a format may be written in another way: `int-or-string`, and `quantity` as a number.
            Some("string") if self.text("format").is_none_or(|f| f.is_empty() || f == "byte") => {
                Scalar::String
            }
            Some("integer" | "number") => Scalar::Number,
            Some("boolean") => Scalar::Boolean,
            _ => Scalar::Any,
        }
    }
}
