//! Kueue's configuration, as far as admission is concerned.

use super::Context;
use super::requests::transformations;
use crate::read::{At, Object};
use muster_admit::{FairSharing, FairStrategy, Settings, UsageSharing};
use muster_model::{Diagnostic, Span};
use serde_json::Value;

/// Settings, and what workloads are read with. In: a configuration, or the same with `fairSharing.enabled` and `featureGates` beside each other.
pub fn settings(config: &Value) -> (Settings, Context, Vec<Diagnostic>) {
    let object = Object::new("Configuration", config);
    let mut settings = Settings::default();
    let fair = object.get("fairSharing");
    if fair.exists() && fair.get("enabled").bool().or_else(|| fair.get("enable").bool()).unwrap_or(true) {
        settings.fair_sharing = Some(fair_sharing(fair));
    }
    let usage = object.get("admissionFairSharing");
    if usage.exists() && usage.get("enabled").bool().unwrap_or(true) {
        settings.usage_sharing = Some(UsageSharing {
            half_life: usage.get("usageHalfLifeTime").duration().unwrap_or(Span::ZERO),
            sampling: usage.get("usageSamplingInterval").duration().unwrap_or(Span::seconds(300)),
            weights: usage
                .get("resourceWeights")
                .entries()
                .filter_map(|(name, at)| {
                    Some((name.into(), i64::try_from(at.nano()? / 1_000_000).unwrap_or(i64::MAX)))
                })
                .collect(),
        });
    }
    let ready = object.get("waitForPodsReady");
    settings.block_until_ready = ready.get("blockAdmission").bool().unwrap_or(false);
    settings.by_eviction_time = ready.get("requeuingStrategy").get("timestamp").str() != Some("Creation");
    let resources = object.get("resources");
    settings.ignore_undeclared = resources.get("quotaCheckStrategy").str() == Some("IgnoreUndeclared");
    for (name, at) in object.get("featureGates").entries() {
        if let Some(on) = at.bool() {
            // Many gates choose between ways to do the same, and have none here.
            settings.gates.set(name, on);
        }
    }
    let mut context = Context {
        excluded: resources.get("excludeResourcePrefixes").names().iter().map(ToString::to_string).collect(),
        transformations: transformations(resources.get("transformations")),
        ..Context::default()
    };
    context.transformations.extend(transformations(object.get("resourceTransformations")));
    (settings, context, object.into_diagnostics())
}

fn fair_sharing(at: At<'_>) -> FairSharing {
    let strategies: Vec<FairStrategy> = at
        .get("preemptionStrategies")
        .list()
        .filter_map(|at| match at.str()? {
            "LessThanOrEqualToFinalShare" => Some(FairStrategy::AtMostFinal),
            "LessThanInitialShare" => Some(FairStrategy::LessThanInitial),
            _ => {
                at.report("must be LessThanOrEqualToFinalShare or LessThanInitialShare; it is ignored");
                None
            }
        })
        .collect();
    if strategies.is_empty() { FairSharing::default() } else { FairSharing { strategies } }
}
