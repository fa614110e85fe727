//! What admission says of one object.
//!
//! In: errors, warnings and changes as rules find them. Out: a [`Verdict`]. Must stay true: an error names the field and
//! what to write instead; a verdict with errors carries no change that anybody makes.

use std::fmt;

pub use muster_runtime::findings::FieldError;
use muster_runtime::findings::{Findings, MOST_FINDINGS};
use serde_json::Value;

/// Errors refuse the request, warnings reach the person who sent it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
    /// The object as it is to be, where the rules change it.
    pub made: Option<Value>,
}

impl Verdict {
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

    /// Says what the rules make of an object.
    pub(crate) fn make(&mut self, of: &Value, made: Value) {
        self.made = Some(made).filter(|made| made != of);
    }

    /// The same as a patch of the object that was judged, which is how a server that asks over the wire is told.
    pub fn patch_of(&self, object: &Value) -> json_patch::Patch {
        self.made.as_ref().map(|made| json_patch::diff(object, made)).unwrap_or_default()
    }

    /// What another hook found, after this; it saw the object as this made it.
    pub(crate) fn add(&mut self, next: Verdict) {
        self.errors.extend(next.errors);
        self.warnings.extend(next.warnings);
        if next.made.is_some() {
            self.made = next.made;
        }
    }

    /// What this says that `before` did not. An update is judged by what it changes: an object that was let in under other
    /// rules must stay updatable, or its finalizers could never be removed.
    #[must_use]
    pub fn since(mut self, before: &Verdict) -> Verdict {
        self.errors.retain(|error| !before.errors.contains(error));
        self.warnings.retain(|warning| !before.warnings.contains(warning));
        self
    }

    /// The errors as one text, as Kubernetes joins several.
    pub fn refusal(&self) -> String {
        match self.errors.as_slice() {
            [one] => one.to_string(),
            many => {
                let texts: Vec<String> = many.iter().map(FieldError::to_string).collect();
                format!("[{}]", texts.join(", "))
            }
        }
    }
}

impl From<Findings> for Verdict {
    fn from(findings: Findings) -> Self {
        Verdict { errors: findings.errors, warnings: findings.warnings, ..Verdict::default() }
    }
}

/// A text of the user's inside a message: quoted, escaped, and not longer than one can read.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 60;
    let short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_it_once() {
        let mut before = Verdict::default();
        before.refuse("spec.a", "old");
        before.warn("spec.w", "old");
        let mut now = before.clone();
        now.refuse("spec.b", "new");
        assert_eq!(now.refusal(), "[spec.a: old, spec.b: new]");
        let news = now.since(&before);
        assert_eq!(news.refusal(), "spec.b: new");
        assert_eq!(news.warnings, Vec::<String>::new());
    }

    #[test]
    fn quotes() {
        assert_eq!(quote("a\"b\n"), r#""a\"b\n""#);
        assert_eq!(quote(&"é".repeat(100)).chars().count(), 63);
    }

    #[test]
    fn stays_short() {
        let mut verdict = Verdict::default();
        for n in 0..1000 {
            verdict.warn(n, "x");
            verdict.refuse(n.to_string(), "x");
        }
        assert_eq!((verdict.warnings.len(), verdict.errors.len()), (MOST_FINDINGS, MOST_FINDINGS));
    }
}
