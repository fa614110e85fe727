//! Muster's admission inside the embedded server: the same rules as the webhooks', without a request per pod.
//!
//! In: reviews of the server. Out: patches, refusals and warnings by `muster-webhook`'s rules. Must stay true: until the services have
//! started nothing is judged, as with a webhook that is not registered yet.

use muster_apiserver::admission::{Bookkeeping, Hook, Operation, Review};
use muster_apiserver::status::ApiError;
use muster_webhook::{Door, Passing, Reviewer, Verdict};
use serde_json::Value;
use std::borrow::Cow;

pub struct InProcess {
    door: Door,
}

impl Default for InProcess {
    fn default() -> Self {
        InProcess { door: Door::new(|| uuid::Uuid::new_v4().to_string()) }
    }
}

impl InProcess {
    /// From now on requests are judged.
    pub fn begin(&self, reviewer: Reviewer) {
        self.door.open(reviewer);
    }
}

fn passing<'a>(review: &'a Review, old: &'a Value) -> Passing<'a> {
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
        old,
    }
}

fn say(review: &mut Review, verdict: Verdict) -> Result<(), ApiError> {
    if !verdict.allows() {
        let message = format!("admission webhook \"muster\" denied the request: {}", verdict.refusal());
        return Err(ApiError::new(422, "Invalid", message));
    }
    review.warnings.extend(verdict.warnings);
    Ok(())
}

/// The object in the version that the rules are written for, as a server converts it for a webhook.
fn as_judged<'a>(review: &Review, object: &'a Value) -> Cow<'a, Value> {
    if review.served.group == "kueue.x-k8s.io" && review.served.version == "v1beta1" && object.is_object() {
        let mut converted = object.clone();
        // What cannot be converted was refused before, or cannot be stored.
        if muster_api::kueue::convert::to_api_version(&mut converted, "kueue.x-k8s.io/v1beta2").is_ok() {
            return Cow::Owned(converted);
        }
    }
    Cow::Borrowed(object)
}

impl Hook for InProcess {
    fn sees(&self, what: Bookkeeping) -> bool {
        what == Bookkeeping::Labels && self.door.is_open()
    }

    fn mutate(&self, review: &mut Review, object: &mut Value) -> Result<(), ApiError> {
        let old = review.old.clone();
        let passing = passing(review, old.as_deref().unwrap_or(&Value::Null));
        let verdict = self.door.change(&passing, object);
        say(review, verdict)
    }

    fn validate(&self, review: &mut Review, object: &Value) -> Result<(), ApiError> {
        let verdict = {
            let object = as_judged(review, object);
            let old = as_judged(review, review.old.as_deref().unwrap_or(&Value::Null));
            self.door.judge(&passing(review, &old), &object)
        };
        say(review, verdict)
    }
}
