//! Muster's admission inside the embedded server: the same rules as the webhooks', without a request per pod.
//!
//! In: reviews of the server. Out: patches, refusals and warnings by `muster-webhook`'s rules. Must stay true: until the services have
//! started nothing is judged, as with a webhook that is not registered yet.

use muster_apiserver::admission::{Hook, Operation, Review};
use muster_apiserver::status::ApiError;
use muster_webhook::{Asked, Reviewer, Verdict};
use serde_json::Value;
use std::sync::OnceLock;

#[derive(Default)]
pub struct InProcess {
    reviewer: OnceLock<Reviewer>,
}

impl InProcess {
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
            let uid = if mutating { uuid::Uuid::new_v4().to_string() } else { String::new() };
            let asked = Asked {
                operation,
                namespace: &review.namespace,
                name: &review.name,
                uid: &uid,
                object,
                old: review.old.as_deref().unwrap_or(&Value::Null),
            };
            let verdict = reviewer.judge(hook, &asked);
            review.warnings.extend(verdict.warnings.iter().cloned());
            if !verdict.errors.is_empty() {
                let message =
                    format!("admission webhook \"muster\" denied the request: {}", verdict.refusal());
                return Err(ApiError::new(422, "Invalid", message));
            }
            last = Some(verdict);
        }
        Ok(last)
    }
}

impl Hook for InProcess {
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
