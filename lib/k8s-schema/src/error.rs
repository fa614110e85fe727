//! Field errors: what is wrong with one field of an object, in the words of the Kubernetes API server.
//!
//! A [`FieldError`] is a value. Its `Display` is the text that `apimachinery` prints for the same error, including the
//! Go spelling of strings and floats, so that a client that matches on messages sees what it knows.

use std::fmt;

use serde_json::{Value, json};

use crate::gofmt;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct FieldError {
    /// Dotted path of the field, such as `spec.template.containers[0].name`. `<nil>` is the root of an object.
    pub field: String,
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The refused value; `None` prints no value at all.
    pub value: Option<Value>,
    /// More words about the failure; may be empty.
    pub detail: String,
}

/// The closed list of failures that a field error can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// A value that is looked up does not exist.
    NotFound,
    /// A required value is absent.
    Required,
    /// A value that must be unique is there twice.
    Duplicate,
    /// A malformed value.
    Invalid,
    /// A value outside of an enumeration.
    NotSupported,
    /// A well-formed value that is not permitted here.
    Forbidden,
    /// A string is too long.
    TooLong,
    /// A string is too short.
    TooShort,
    /// A list or map has too many entries.
    TooMany,
    /// A list or map has too few entries.
    TooFew,
    /// A failure that the user did not cause.
    Internal,
    /// The JSON type is not the declared one.
    TypeInvalid,
}

impl ErrorKind {
    /// The machine-readable reason, as in `status.details.causes[].reason`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The words that open the message.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the message of this kind of error shows the refused value.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl FieldError {
    fn new(
        field: impl Into<String>,
        kind: ErrorKind,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), kind, value, detail: detail.into() }
    }

    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, ErrorKind::Invalid, Some(value.into()), detail)
    }

    /// A value whose JSON type is not the declared one.
    pub fn type_invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(field, ErrorKind::TypeInvalid, Some(value.into()), detail)
    }

    /// An absent value.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, ErrorKind::Required, Some(Value::String(String::new())), detail)
    }

    /// A value that is there twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, ErrorKind::Duplicate, Some(value.into()), "")
    }

    /// A value that is not permitted.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, ErrorKind::Forbidden, Some(Value::String(String::new())), detail)
    }

    /// A value that names something that does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, ErrorKind::NotFound, Some(value.into()), "")
    }

    /// A value outside of `supported`, which the message lists in the given order.
    pub fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let names: Vec<String> = supported.into_iter().map(|s| gofmt::quote(s.as_ref())).collect();
        let detail =
            if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        Self::new(field, ErrorKind::NotSupported, Some(value.into()), detail)
    }

    /// A string of more than `max` bytes; a negative `max` is not named.
    pub fn too_long(field: impl Into<String>, max: i64) -> Self {
        let detail = match max {
            1 => "may not be more than 1 byte".to_owned(),
            0.. => format!("may not be more than {max} bytes"),
            _ => "value is too long".to_owned(),
        };
        Self::new(field, ErrorKind::TooLong, Some(Value::String("<value omitted>".to_owned())), detail)
    }

    /// A list or map of more than `max` entries; a negative `actual` or `max` is not named.
    pub fn too_many(field: impl Into<String>, actual: i64, max: i64) -> Self {
        let detail = match max {
            1 => "must have at most 1 item".to_owned(),
            0.. => format!("must have at most {max} items"),
            _ => "has too many items".to_owned(),
        };
        Self::new(field, ErrorKind::TooMany, (actual >= 0).then(|| json!(actual)), detail)
    }

    /// A failure that the user did not cause.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, ErrorKind::Internal, None, detail)
    }

    /// The machine-readable reason, as in `status.details.causes[].reason`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    /// The message without the field's name.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.kind.title().to_owned();
        if let (true, Some(value)) = (self.kind.shows_value(), &self.value) {
            text.push_str(": ");
            text.push_str(&gofmt::bad_value(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// The `status.details.causes` entry of this error.
    #[must_use]
    pub fn to_cause(&self) -> Value {
        json!({ "reason": self.reason(), "message": self.body(), "field": self.field })
    }
}

/// Joins errors into one message: repeated messages once, a single one plain, several as `[a, b]`. `None` if there are none.
#[must_use]
pub fn aggregate(errors: &[FieldError]) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    let texts: Vec<String> =
        errors.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
