//! When a BindRequest is tried, and what is written about it.
//!
//! In: the request, and how the last attempt ended. Out: what to do, and the status. Must stay true: after as many
//! failures as `backoffLimit` says, or one that no further attempt can mend, `failedAttempts` is at least `backoffLimit`:
//! that is how a scheduler knows that the pod is to be decided anew.

use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::Object;
use muster_runtime::clock::{later, until};
use muster_runtime::common::BindRequest;
use serde_json::{Value, json};

use crate::assignment::{Assignment, INLINE, Malformed};
use crate::error::BindError;

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(60);
/// Reasons are for people; the API takes longer ones, but nobody reads them.
const LONGEST_REASON: usize = 1024;

#[derive(Debug, PartialEq)]
pub enum Todo {
    Nothing,
    /// Somebody else is at it.
    Wait(Duration),
    Attempt(Box<Assignment>),
    /// It makes no sense, and no attempt will change that.
    Refuse(Malformed),
}

/// `owner`: who binds by itself in this process; `courtesy`: how long others are left alone.
pub fn todo(request: &BindRequest, owner: &str, courtesy: Duration, now: Timestamp) -> Todo {
    if request.metadata.deleting() || is_over(request) {
        return Todo::Nothing;
    }
    if let Some(other) = request.metadata.annotation(INLINE).filter(|other| *other != owner) {
        let left = until(now, later(request.metadata.created(), courtesy));
        if !left.is_zero() {
            tracing::debug!(request = %request.key(), other, ?left, "left to a scheduler that binds by itself");
            return Todo::Wait(left);
        }
    }
    match Assignment::from_bind_request(request) {
        Ok(assignment) => Todo::Attempt(Box::new(assignment)),
        Err(malformed) => Todo::Refuse(malformed),
    }
}

/// It succeeded, or failed as often as it may.
fn is_over(request: &BindRequest) -> bool {
    has_succeeded(request) || has_failed(request)
}

pub fn has_succeeded(request: &BindRequest) -> bool {
    phase(request) == "Succeeded"
}

/// As often as it may.
pub fn has_failed(request: &BindRequest) -> bool {
    phase(request) == "Failed"
        && (limit(request).is_some_and(|limit| attempts(request) >= limit) || is_final(request))
}

/// A failure without a limit is tried for ever, unless it was final; that is said in the reason.
fn is_final(request: &BindRequest) -> bool {
    reason(request).starts_with(FINAL)
}

const FINAL: &str = "cannot be bound: ";

/// The reason of a failure, without what only says that it is the last.
pub fn cause(request: &BindRequest) -> &str {
    reason(request).trim_start_matches(FINAL)
}

fn phase(request: &BindRequest) -> &str {
    request.status.get("phase").and_then(Value::as_str).unwrap_or_default()
}

pub fn reason(request: &BindRequest) -> &str {
    request.status.get("reason").and_then(Value::as_str).unwrap_or_default()
}

pub fn attempts(request: &BindRequest) -> i64 {
    request.status.get("failedAttempts").and_then(Value::as_i64).unwrap_or(0).max(0)
}

fn limit(request: &BindRequest) -> Option<i64> {
    request.spec.get("backoffLimit").and_then(Value::as_i64)
}

/// What to write after a failure, and when to try again.
#[derive(Debug, PartialEq)]
pub struct Failure {
    pub status: Value,
    pub again: Option<Duration>,
}

pub fn failed(request: &BindRequest, error: &BindError) -> Failure {
    let before = attempts(request);
    let limit = limit(request);
    let mut after = before.saturating_add(1);
    let mut text = error.to_string();
    if !error.retryable() {
        after = after.max(limit.unwrap_or(0));
        text.insert_str(0, FINAL);
    }
    let over = !error.retryable() || limit.is_some_and(|limit| after >= limit);
    let backoff = Duration::from_secs(1_u64 << before.clamp(0, 6)).min(LONGEST);
    let again = (!over).then(|| backoff.max(error.after().unwrap_or_default()));
    let after = i32::try_from(after).unwrap_or(i32::MAX);
    Failure { status: json!({"phase": "Failed", "reason": shortened(text), "failedAttempts": after}), again }
}

/// What to write when a scheduler that binds by itself gives up: it decides anew, so nobody else is to try.
pub fn given_up(limit: Option<i32>, error: &BindError) -> Value {
    let reason = shortened(format!("{FINAL}{error}"));
    json!({"phase": "Failed", "reason": reason, "failedAttempts": limit.unwrap_or(1).max(1)})
}

fn shortened(text: String) -> String {
    if text.len() <= LONGEST_REASON {
        return text;
    }
    text.chars().take(LONGEST_REASON - 4).collect::<String>() + " ..."
}

/// What to write after success; what earlier failures left stays, save their reason.
pub fn succeeded(request: &BindRequest) -> Value {
    let mut status = json!({"phase": "Succeeded"});
    if !reason(request).is_empty() {
        status["reason"] = Value::Null;
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(spec: Value, status: Value) -> BindRequest {
        let mut all = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": status});
        all["spec"]["selectedNode"] = json!("n");
        serde_json::from_value(all).unwrap()
    }

    const COURTESY: Duration = Duration::from_secs(180);

    #[track_caller]
    fn check_todo(spec: Value, status: Value, expected: &str) {
        let shown = match todo(&request(spec, status), "", COURTESY, Timestamp::UNIX_EPOCH) {
            Todo::Nothing => "nothing",
            Todo::Wait(_) => "wait",
            Todo::Attempt(_) => "attempt",
            Todo::Refuse(_) => "refuse",
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn when_to_try() {
        check_todo(json!({}), json!({}), "attempt");
        check_todo(json!({}), json!({"phase": "Pending"}), "attempt");
        check_todo(json!({}), json!({"phase": "Succeeded"}), "nothing");
        check_todo(json!({}), json!({"phase": "Failed", "failedAttempts": 7}), "attempt");
        check_todo(json!({}), json!({"phase": "Failed", "reason": "cannot be bound: x"}), "nothing");
        check_todo(json!({"backoffLimit": 3}), json!({"phase": "Failed", "failedAttempts": 2}), "attempt");
        check_todo(json!({"backoffLimit": 3}), json!({"phase": "Failed", "failedAttempts": 3}), "nothing");
        check_todo(json!({"receivedResourceType": "Fraction"}), json!({}), "refuse");
    }

    #[track_caller]
    fn check_courtesy(owner: &str, age: i64, expected: &str) {
        let mut request = request(json!({}), json!({}));
        request.metadata.annotations.insert(INLINE.into(), "muster".into());
        request.metadata.creation_timestamp = Some(Timestamp::UNIX_EPOCH);
        let now = Timestamp::from_second(age).unwrap();
        let shown = match todo(&request, owner, COURTESY, now) {
            Todo::Wait(left) => format!("wait {} s", left.as_secs()),
            Todo::Attempt(_) => "attempt".into(),
            other => format!("{other:?}"),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn whose_request_it_is() {
        check_courtesy("muster", 0, "attempt");
        check_courtesy("", 10, "wait 170 s");
        check_courtesy("other", 179, "wait 1 s");
        check_courtesy("other", 180, "attempt");
    }

    #[track_caller]
    fn check_failed(spec: Value, n_before: i64, error: BindError, expected: &str) {
        let before = request(spec, json!({"phase": "Failed", "failedAttempts": n_before}));
        let failure = failed(&before, &error);
        let again = failure.again.map_or("never".to_owned(), |wait| format!("{} s", wait.as_secs()));
        let shown = format!("{} failures, again: {again}", failure.status["failedAttempts"]);
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_failures_cost() {
        let busy = || BindError::retry("busy");
        let bad = || BindError::refused("bad");
        let none = json!({});
        check_failed(none.clone(), 0, busy(), "1 failures, again: 1 s");
        check_failed(none.clone(), 1, busy(), "2 failures, again: 2 s");
        check_failed(none.clone(), 5, busy(), "6 failures, again: 32 s");
        check_failed(none.clone(), 500, busy(), "501 failures, again: 60 s");
        check_failed(none.clone(), i64::MAX, busy(), "2147483647 failures, again: 60 s");
        check_failed(none.clone(), 0, bad(), "1 failures, again: never");
        let three = json!({"backoffLimit": 3});
        check_failed(three.clone(), 0, busy(), "1 failures, again: 1 s");
        check_failed(three.clone(), 1, busy(), "2 failures, again: 2 s");
        check_failed(three.clone(), 2, busy(), "3 failures, again: never");
        check_failed(three.clone(), 0, bad(), "3 failures, again: never");
        check_failed(json!({"backoffLimit": 0}), 0, busy(), "1 failures, again: never");
        let asked = BindError::Retry { text: "busy".into(), after: Some(Duration::from_secs(9)) };
        check_failed(none, 0, asked, "1 failures, again: 9 s");
        check_failed(three, 0, BindError::Elsewhere { node: "m".into() }, "3 failures, again: never");
    }

    #[test]
    fn reasons_have_an_end() {
        let failure = failed(&request(json!({}), json!({})), &BindError::retry("é".repeat(5000)));
        assert!(failure.status["reason"].as_str().unwrap().chars().count() <= LONGEST_REASON);
    }
}
