//! The other rooms as this one uses them: objects and settings to the model, and the auditor.

use muster_model::{Cluster, Decisions, Diagnostic, Policy, Time};
use muster_translate::Settings;
use serde_json::Value;

pub fn cluster(objects: &[Value], policy: &Policy, now: Time) -> (Cluster, Vec<Diagnostic>) {
    // Whoever's objects a case holds, its pods are placed; T9k's and Koordinator's live by their own rules on the same mechanism.
    let names = ["kai-scheduler", "muster-scheduler", "t9k-scheduler", "koord-scheduler", "volcano"];
    let scheduler_names = names.map(Into::into).to_vec();
    let volcano = vec!["volcano".into()];
    let settings = Settings {
        now,
        pool: policy.pool.clone(),
        trees: policy.trees.clone(),
        scheduler_names,
        volcano,
        ..Settings::default()
    };
    muster_translate::cluster(objects, &settings)
}

pub fn policy(settings: &Value) -> (Policy, Vec<Diagnostic>) {
    if settings.is_null() {
        return (Policy::default(), Vec::new());
    }
    muster_translate::kai::policy(settings)
}

/// Volcano's configuration; nothing means its own default.
pub fn volcano(config: &Value) -> (muster_model::volcano::Conf, Vec<Diagnostic>) {
    let empty = Value::Object(serde_json::Map::new());
    muster_translate::volcano::conf::read(if config.is_null() { &empty } else { config })
}

/// What the auditor has against the decisions, in words.
pub fn audit(before: &Cluster, policy: &Policy, decisions: &Decisions) -> Vec<String> {
    muster_engine::audit::audit(before, policy, decisions).iter().map(ToString::to_string).collect()
}
