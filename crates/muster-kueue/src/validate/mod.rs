//! What may be written: the rules of Kueue's kinds, and of jobs and pods that wait in queues.
//!
//! In: an object and the object before (null on create). Out: [`Findings`]. Rules that Kueue's CRDs say themselves are not said again: all there are
//! of topologies and priority classes. Must stay true:
//! an update is judged by what it changes, so that an object from before a rule can always be updated and deleted; no input panics.

pub mod job;
pub mod pod;
pub mod queue;
pub mod workload;

use std::fmt;

pub use muster_runtime::findings::{FieldError, Findings};
use serde_json::Value;

/// A value that is wrong, as Kubernetes says it.
pub(crate) fn invalid(
    findings: &mut Findings,
    field: impl Into<String>,
    value: &Value,
    why: impl fmt::Display,
) {
    findings.refuse(field, format!("Invalid value: {}: {why}", short(value)));
}

/// Judges an object by what it changes.
pub(crate) fn changed(object: &Value, old: &Value, rules: impl Fn(&Value, &mut Findings)) -> Findings {
    let mut now = Findings::default();
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return now;
    }
    rules(object, &mut now);
    if !old.is_null() {
        let mut before = Findings::default();
        rules(old, &mut before);
        return now.since(&before);
    }
    now
}

/// A value inside a message, not longer than one can read.
fn short(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    let cut: String = text.chars().take(MOST).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { text }
}

/// A name as labels of DNS have them, with dots between.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    !name.is_empty() && name.len() <= 253 && name.split('.').all(part)
}

/// The value of a label.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || (!value.contains('/') && is_label_key(value))
}

/// A key of a label.
pub(crate) fn is_label_key(key: &str) -> bool {
    let name = match key.split_once('/') {
        Some((prefix, name)) if is_subdomain(prefix) => name,
        Some(_) => return false,
        None => key,
    };
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    !name.is_empty()
        && name.len() <= 63
        && name.chars().all(inner)
        && end(name.chars().next())
        && end(name.chars().last())
}
