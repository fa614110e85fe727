//! Muster's admission inside the embedded server, as `muster up` has it.
//!
//! Must stay true: the same rules as the webhooks'; names that it makes up come from a counter, so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use muster_apiserver::admission::{Bookkeeping, Hook, Operation, Review};
use muster_apiserver::status::ApiError;
use muster_webhook::{Door, Passing, Reviewer, Verdict};
use serde_json::Value;

pub struct Admission {
    door: Door,
}

impl Default for Admission {
    fn default() -> Self {
        let n_asked = AtomicU64::new(0);
        let uid =
            move || format!("{:08x}-0000-4000-8000-000000000000", n_asked.fetch_add(1, Ordering::Relaxed));
        Admission { door: Door::new(uid) }
    }
}

impl Admission {
    /// From now on requests are judged.
    pub fn begin(&self, reviewer: Reviewer) {
        self.door.open(reviewer);
    }
}

fn passing(review: &Review) -> Passing<'_> {
    Passing {
        group: &review.served.group,
        plural: &review.served.plural,
        part: review.subresource.as_deref(),
        operation: match review.operation {
            Operation::Create => muster_webhook::Operation::Create,
            Operation::Update => muster_webhook::Operation::Update,
            Operation::Delete => muster_webhook::Operation::Delete,
        },
        namespace: &review.namespace,
        name: &review.name,
        old: review.old.as_deref().unwrap_or(&Value::Null),
    }
}

fn refused(verdict: &Verdict) -> Result<(), ApiError> {
    if verdict.allows() { Ok(()) } else { Err(ApiError::new(422, "Invalid", verdict.refusal())) }
}

impl Hook for Admission {
    fn sees(&self, what: Bookkeeping) -> bool {
        what == Bookkeeping::Labels && self.door.is_open()
    }

    fn mutate(&self, review: &mut Review, object: &mut Value) -> Result<(), ApiError> {
        refused(&self.door.change(&passing(review), object))
    }

    fn validate(&self, review: &mut Review, object: &Value) -> Result<(), ApiError> {
        refused(&self.door.judge(&passing(review), object))
    }
}
