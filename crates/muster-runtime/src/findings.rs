//! What rules find in one object: errors with the field and what to write instead, and warnings.
//!
//! In: findings one by one. Out: the list that whoever judges objects hands on. Must stay true: however much is wrong, the list can be read.

use std::fmt;

/// One thing that is wrong, and how to put it right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// Such as `spec.template.cliques[0].name`.
    pub field: String,
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What is to be said of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    pub errors: Vec<FieldError>,
    /// `field: message`.
    pub warnings: Vec<String>,
}

/// More would fill a terminal and say nothing new.
pub const MOST_FINDINGS: usize = 20;

impl Findings {
    pub fn allows(&self) -> bool {
        self.errors.is_empty()
    }

    pub fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.errors.len() < MOST_FINDINGS {
            self.errors.push(FieldError { field: field.into(), message: message.into() });
        }
    }

    pub fn warn(&mut self, field: impl fmt::Display, message: impl fmt::Display) {
        if self.warnings.len() < MOST_FINDINGS {
            self.warnings.push(format!("{field}: {message}"));
        }
    }

    /// What this says that `before` did not. An update is judged by what it changes: an object that was let in under other rules must
    /// stay updatable, or its finalizers could never be removed.
    #[must_use]
    pub fn since(mut self, before: &Findings) -> Findings {
        self.errors.retain(|error| !before.errors.contains(error));
        self.warnings.retain(|warning| !before.warnings.contains(warning));
        self
    }
}
