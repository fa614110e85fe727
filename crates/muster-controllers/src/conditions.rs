//! Conditions beside those of others.
//!
//! In: the list that an object has, and the conditions that one controller wants in it. Out: the new list. Must stay true: what
//! others wrote stays as it is; a condition that still says the same keeps its time.

use jiff::Timestamp;
use muster_runtime::clock::stamp;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) kind: &'static str,
    pub(crate) holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Wanted {
    fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }

    fn is_said_by(&self, condition: &Value) -> bool {
        let says =
            |field: &str, text: &str| condition.get(field).and_then(Value::as_str).unwrap_or("") == text;
        says("status", self.status()) && says("reason", self.reason) && says("message", &self.message)
    }
}

/// The list with the wanted conditions in it, or `None` when it says them all already.
pub(crate) fn merged(old: Option<&Value>, wanted: &[Wanted], now: Timestamp) -> Option<Value> {
    let mut list: Vec<Value> = old.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut changed = false;
    for wanted in wanted {
        let is_it = |c: &&mut Value| c.get("type").and_then(Value::as_str) == Some(wanted.kind);
        let known = list.iter_mut().find(is_it);
        if known.as_ref().is_some_and(|c| wanted.is_said_by(c)) {
            continue;
        }
        changed = true;
        let since = known
            .as_ref()
            .filter(|c| c.get("status").and_then(Value::as_str) == Some(wanted.status()))
            .and_then(|c| c.get("lastTransitionTime")?.as_str().map(str::to_owned))
            .unwrap_or_else(|| stamp(now));
        let new = json!({
            "type": wanted.kind,
            "status": wanted.status(),
            "reason": wanted.reason,
            "message": wanted.message,
            "lastTransitionTime": since,
        });
        match known {
            Some(known) => *known = new,
            None => list.push(new),
        }
    }
    changed.then_some(Value::Array(list))
}

/// The condition of a kind in a list.
pub(crate) fn find<'a>(list: Option<&'a Value>, kind: &str) -> Option<&'a Value> {
    let mut all = list.and_then(Value::as_array).into_iter().flatten();
    all.find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

pub(crate) fn holds(list: Option<&Value>, kind: &str) -> bool {
    find(list, kind).and_then(|c| c.get("status")?.as_str()) == Some("True")
}

/// Whether somebody else's conditions are in the list.
pub(crate) fn has_others(list: Option<&Value>, own: &[&str]) -> bool {
    let mut all = list.and_then(Value::as_array).into_iter().flatten();
    all.any(|c| c.get("type").and_then(Value::as_str).is_none_or(|kind| !own.contains(&kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(holds: bool, message: &str) -> Wanted {
        Wanted { kind: "Mine", holds, reason: "R", message: message.into() }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn others_stay_and_times_hold() {
        let other = json!({"type": "Other", "status": "True", "extra": 1});
        let first = merged(Some(&json!([other])), &[wanted(true, "a")], now()).unwrap();
        assert_eq!(first[0], other);
        assert_eq!(first[1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(merged(Some(&first), &[wanted(true, "a")], now()), None);
        let later: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let second = merged(Some(&first), &[wanted(true, "b")], later).unwrap();
        assert_eq!(second[1]["lastTransitionTime"], "2026-01-01T00:00:00Z", "it held all along");
        let third = merged(Some(&second), &[wanted(false, "b")], later).unwrap();
        assert_eq!(third[1]["lastTransitionTime"], "2026-01-02T00:00:00Z");
        assert!(has_others(Some(&third), &["Mine"]) && !has_others(Some(&third), &["Mine", "Other"]));
        assert!(holds(Some(&second), "Mine") && !holds(Some(&third), "Mine") && !holds(None, "Mine"));
    }

    #[test]
    fn junk_is_replaced() {
        assert!(merged(Some(&json!("junk")), &[wanted(true, "")], now()).is_some());
        assert!(has_others(Some(&json!([5])), &["Mine"]));
    }
}
