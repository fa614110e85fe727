//! Muster's admission inside the embedded server, as `muster up` has it.
//!
//! Must stay true: the same rules as the webhooks'; names that it makes up come from a counter, so that a run can be repeated.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_apiserver::admission::{Hook, Operation, Review};
use muster_apiserver::status::ApiError;
use muster_webhook::{Asked, Reviewer, Verdict};
use serde_json::Value;

#[derive(Default)]
pub struct Admission {
    reviewer: OnceLock<Reviewer>,
    n_asked: AtomicU64,
}

impl Admission {
    /// From now on requests are judged.
    pub fn begin(&self, reviewer: Reviewer) {
        // A second start finds the first one's reviewer, which does the same.
        let _ = self.reviewer.set(reviewer);
    }

    fn judge(
        &self,
        review: &mut Review,
        object: &Value,
        mutating: bool,
    ) -> Result<Option<Verdict>, ApiError> {
        let Some(reviewer) = self.reviewer.get() else { return Ok(None) };
        let operation = match review.operation {
            Operation::Create => muster_webhook::Operation::Create,
            Operation::Update => muster_webhook::Operation::Update,
            Operation::Delete => muster_webhook::Operation::Delete,
        };
        let (served, part) = (review.served.clone(), review.subresource.clone());
        let mut last = None;
        for hook in
            muster_webhook::Hook::passed(&served.group, &served.plural, part.as_deref(), operation, mutating)
        {
            let n = self.n_asked.fetch_add(1, Ordering::Relaxed);
            let uid = format!("{n:08x}-0000-4000-8000-000000000000");
            let asked = Asked {
                operation,
                namespace: &review.namespace,
                name: &review.name,
                uid: &uid,
                object,
                old: review.old.as_deref().unwrap_or(&Value::Null),
            };
            let verdict = reviewer.judge(hook, &asked);
            if !verdict.errors.is_empty() {
                return Err(ApiError::new(422, "Invalid", verdict.refusal()));
            }
            last = Some(verdict);
        }
        Ok(last)
    }
}

impl Hook for Admission {
    fn sees_bookkeeping(&self) -> bool {
        false
    }

    fn mutate(&self, review: &mut Review, object: &mut Value) -> Result<(), ApiError> {
        if let Some(verdict) = self.judge(review, object, true)? {
            json_patch::patch(object, &verdict.patch)
                .map_err(|error| ApiError::internal(format!("admission: {error}")))?;
        }
        Ok(())
    }

    fn validate(&self, review: &mut Review, object: &Value) -> Result<(), ApiError> {
        self.judge(review, object, false).map(drop)
    }
}
