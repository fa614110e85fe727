//! What admission says of one object.
//!
//! In: errors, warnings and changes as rules find them. Out: a [`Verdict`]. Must stay true: an error names the field and
//! what to write instead; a verdict with errors carries no patch that anybody applies.

use std::fmt;

pub use muster_runtime::findings::FieldError;
use muster_runtime::findings::{Findings, MOST_FINDINGS};

/// Errors refuse the request, warnings reach the person who sent it, the patch changes the object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
    pub patch: json_patch::Patch,
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

    /// What another hook found, after this.
    pub(crate) fn add(&mut self, next: Verdict) {
        self.errors.extend(next.errors);
        self.warnings.extend(next.warnings);
        // Each patch is for the object as the one before left it, so they are one patch in this order.
        self.patch.0.extend(next.patch.0);
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
