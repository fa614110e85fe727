//! The other rooms as this one uses them: objects and settings to the model, and the auditor.

use muster_model::{Cluster, Decisions, Diagnostic, Policy, Time};
use muster_translate::Settings;
use serde_json::Value;

pub fn cluster(objects: &[Value], policy: &Policy, now: Time) -> (Cluster, Vec<Diagnostic>) {
    muster_translate::cluster(objects, &Settings { now, pool: policy.pool.clone(), ..Settings::default() })
}

pub fn policy(settings: &Value) -> (Policy, Vec<Diagnostic>) {
    if settings.is_null() {
        return (Policy::default(), Vec::new());
    }
    muster_translate::kai::policy(settings)
}

/// What the auditor has against the decisions, in words.
pub fn audit(before: &Cluster, policy: &Policy, decisions: &Decisions) -> Vec<String> {
    muster_engine::audit::audit(before, policy, decisions).iter().map(ToString::to_string).collect()
}
