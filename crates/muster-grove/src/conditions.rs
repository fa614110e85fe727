//! Conditions beside those of others.
//!
//! In: the list that an object has, and the conditions that one controller wants in it. Out: the new list. Must stay true: what
//! others wrote stays as it is; a condition that keeps its status keeps its time.

use jiff::Timestamp;
use muster_runtime::clock::stamp;
use serde_json::{Value, json};

use crate::object::{list, text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Wanted {
    pub fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Wanted { kind, status: if holds { "True" } else { "False" }, reason, message: message.into() }
    }

    pub fn unknown(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Wanted { kind, status: "Unknown", reason, message: message.into() }
    }
}

/// The conditions of a status with the wanted ones among them, in the order in which they came.
pub fn merged(status: &Value, wanted: &[Wanted], now: Timestamp) -> Value {
    let mut conditions: Vec<Value> = list(status, &["conditions"]).to_vec();
    for wanted in wanted {
        let known = conditions.iter_mut().find(|c| text(c, &["type"]) == wanted.kind);
        let since = known
            .as_ref()
            .filter(|c| text(c, &["status"]) == wanted.status)
            .map(|c| text(c, &["lastTransitionTime"]).to_owned())
            .filter(|since| !since.is_empty())
            .unwrap_or_else(|| stamp(now));
        let new = json!({
            "type": wanted.kind,
            "status": wanted.status,
            "reason": wanted.reason,
            "message": wanted.message,
            "lastTransitionTime": since,
        });
        match known {
            // Fields that we do not know, such as observedGeneration, stay.
            Some(known) => {
                if let (Some(known), Value::Object(new)) = (known.as_object_mut(), new) {
                    known.extend(new);
                }
            }
            None => conditions.push(new),
        }
    }
    Value::Array(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_times_and_strangers() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let status = json!({"conditions": [
            {"type": "Theirs", "status": "True"},
            {"type": "A", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3},
            {"type": "B", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]});
        let wanted = [
            Wanted::new("A", true, "Yes", "new words"),
            Wanted::new("B", false, "No", ""),
            Wanted::unknown("C", "Who", ""),
        ];
        let out = merged(&status, &wanted, now);
        assert_eq!(
            out,
            json!([
                {"type": "Theirs", "status": "True"},
                {"type": "A", "status": "True", "reason": "Yes", "message": "new words",
                 "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3},
                {"type": "B", "status": "False", "reason": "No", "message": "", "lastTransitionTime": "2026-01-02T00:00:00Z"},
                {"type": "C", "status": "Unknown", "reason": "Who", "message": "", "lastTransitionTime": "2026-01-02T00:00:00Z"},
            ])
        );
        assert_eq!(
            merged(&json!({"conditions": out}), &wanted, Timestamp::UNIX_EPOCH),
            out,
            "said twice, written once"
        );
    }
}
