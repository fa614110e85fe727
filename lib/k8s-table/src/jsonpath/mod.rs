//! The JSONPath dialect of Kubernetes, as printer columns and `kubectl -o jsonpath` use it.
//!
//! In: the text of a path or template, and any JSON. Out: the values found, or text. It is not the JSONPath of the
//! RFC; what follows is how the dialect behaves, odd corners included:
//!
//! * `.a.b` and `['a']` name fields. A dot in a name is escaped, in brackets too: `.metadata.labels['app\.io/x']`.
//! * `[0]`, `[-1]`, `[1:3]`, `[::2]`, `[*]`; an index out of range is an error, not an empty result.
//! * `..name` looks at every depth; `*` takes every field; `[0,2]` and `['a','b']` are unions.
//! * `[?(@.type=="Ready")]` filters a list by `==`, `!=`, `<`, `<=`, `>`, `>=`, or by presence: `[?(@.ready)]`.
//!   Only values of one type compare, and a whole number is not of the type of a fraction.
//! * A field that is missing gives no value, and no error.
//!
//! Everything is bounded: the length of a path, the number of values visited, and the size of the text.

mod eval;
mod parse;
mod print;
mod template;

use serde_json::Value;

pub(crate) use print::{go_float, text_of};
pub use template::Template;

/// A parsed path.
///
/// ```
/// use k8s_table::JsonPath;
/// use serde_json::json;
///
/// let path = JsonPath::parse(".status.conditions[?(@.type==\"Ready\")].status")?;
/// let object = json!({"status": {"conditions": [
///     {"type": "Synced", "status": "False"},
///     {"type": "Ready", "status": "True"},
/// ]}});
/// assert_eq!(path.find(&object)?, [&json!("True")]);
/// # Ok::<(), k8s_table::JsonPathError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a path or template could not be read, or not be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    /// The text breaks the grammar.
    #[error("invalid jsonpath at byte {at}: {problem}")]
    Syntax {
        /// Where.
        at: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The text is longer than any path needs to be.
    #[error("jsonpath is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// An index or filter met something else than a list.
    #[error("value is not a list")]
    NotAList,
    /// An index or slice lies outside of the list.
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        /// The first index that is outside.
        index: i64,
        /// The length of the list.
        length: usize,
    },
    /// A slice that goes backwards.
    #[error("slice from {from} to {to} with step {step} does not go forward")]
    BadSlice {
        /// First index.
        from: i64,
        /// Index after the last.
        to: i64,
        /// Distance.
        step: i64,
    },
    /// A filter compares values that have no order.
    #[error("incompatible types for comparison")]
    Incomparable,
    /// One side of a filter found several values.
    #[error("can only compare one element at a time")]
    ManyValues,
    /// A filter has an operator that does not exist.
    #[error("unrecognized filter operator {0}")]
    UnknownOperator(String),
    /// A word that means nothing here.
    #[error("unrecognized identifier {0}")]
    UnknownIdentifier(String),
    /// More values were visited, or more text produced, than is sensible.
    #[error("result is too large")]
    TooLarge,
}

impl JsonPath {
    /// Reads a path as a custom resource definition writes it, without braces: `.spec.replicas`.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::path(text).map(|steps| JsonPath { steps })
    }

    /// Reads a path as people type it on a command line: braces around it and the first dot may be there or not.
    pub fn parse_relaxed(text: &str) -> Result<Self, JsonPathError> {
        let text = text.trim();
        let bare = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text).trim();
        if bare.starts_with(['.', '[', '@', '$']) {
            JsonPath::parse(bare)
        } else {
            JsonPath::parse(&format!(".{bare}"))
        }
    }

    /// The values that the path leads to, in order. Literals in the path are found as such.
    pub fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<&'a Value>, JsonPathError> {
        eval::Evaluator::new().follow(&self.steps, vec![object])
    }
}

/// One step from values to values.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// All fields of a map or elements of a list.
    Wildcard,
    /// The values themselves and everything in them that is not an empty or plain value.
    Recursive,
    Slice {
        from: Option<i64>,
        to: SliceEnd,
        step: Option<i64>,
    },
    Union(Vec<Vec<Step>>),
    Filter {
        left: Vec<Step>,
        /// Not checked when it is read, since the server does not either.
        operator: String,
        right: Vec<Step>,
    },
    Exists(Vec<Step>),
    /// Quoted text, in place of all the values so far.
    Text(Value),
    /// A number or truth value, in place of each of the values so far.
    Constant(Value),
    /// A word; `range` and `end` have a meaning in a template.
    Identifier(String),
}

/// Where a slice ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SliceEnd {
    /// `[n]` and `[]`: just after where it starts.
    Single,
    /// `[n:]`.
    Open,
    /// `[:n]`.
    At(i64),
}
