//! What may be written: the rules of sets, cliques, groups and topology bindings, on create and on update.
//!
//! In: an object, the object before, and what is known of the cluster. Out: [`Findings`], errors with the field and what to
//! write instead, and warnings. Must stay true: an update is judged by what it changes, so that an object from before a rule
//! can always be updated and deleted; an object that is going is not judged at all; no input panics.

pub mod binding;
pub mod constraint;
pub mod part;
pub mod protect;
pub mod set;
pub mod sharing;
pub mod words;

use std::fmt;

use crate::object::ClusterTopologyBinding;
use crate::settings::Options;

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
const MOST_FINDINGS: usize = 20;

impl Findings {
    pub fn allows(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.errors.len() < MOST_FINDINGS {
            self.errors.push(FieldError { field: field.into(), message: message.into() });
        }
    }

    pub(crate) fn warn(&mut self, field: impl fmt::Display, message: impl fmt::Display) {
        if self.warnings.len() < MOST_FINDINGS {
            self.warnings.push(format!("{field}: {message}"));
        }
    }

    /// What this says that `before` did not.
    #[must_use]
    pub fn since(mut self, before: &Findings) -> Findings {
        self.errors.retain(|error| !before.errors.contains(error));
        self.warnings.retain(|warning| !before.warnings.contains(warning));
        self
    }
}

/// What is known of a topology binding.
pub enum Known<T> {
    /// Nobody looked.
    Unknown,
    Missing,
    There(T),
}

/// What rules may ask of the cluster.
pub struct World<'a> {
    pub options: &'a Options,
    pub binding: &'a dyn Fn(&str) -> Known<ClusterTopologyBinding>,
}

/// A text of the user's inside a message: quoted, escaped, and not longer than one can read.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 60;
    let short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}
