//! What the cluster is told about decisions, as text and as KAI's condition.

use crate::core::Eviction;
use muster_model::{Action, Reason, Refusal};
use muster_scenario::words;
use serde_json::{Value, json};

/// Longer messages help nobody, and the API server refuses them at some point.
const LONGEST: usize = 900;

/// Why a gang waits, in one line.
pub fn waits(refusal: &Refusal) -> String {
    let mut text = words::lines(refusal).join("; ");
    if text.len() > LONGEST {
        let cut = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push_str(" ...");
    }
    text
}

/// Why a pod must go.
pub fn eviction(eviction: &Eviction) -> String {
    let what = match eviction.action {
        Action::Consolidate => "moved so that others fit",
        Action::Reclaim => "its queue has more than its fair share, and another queue asks for its own",
        Action::Preempt => "work of higher priority in its queue needs the room",
        Action::EvictStaleGangs => "its gang has run below its minimum for too long",
        Action::Allocate => "its place is needed",
    };
    let moved = if eviction.moved { "; it has another place" } else { "" };
    match &eviction.by {
        Some(by) => format!("evicted by {} for {by}: {what}{moved}", eviction.action.name()),
        None => format!("evicted by {}: {what}{moved}", eviction.action.name()),
    }
}

/// The entry of a PodGroup's `status.schedulingConditions`.
pub fn scheduling_condition(refusal: &Refusal, pool: &str, now: &str) -> Value {
    let reasons: Vec<Value> = refusal
        .reasons
        .iter()
        .map(|reason| json!({"reason": kai_reason(reason), "message": words::reason(reason)}))
        .collect();
    json!({
        "type": "UnschedulableOnNodePool",
        "nodePool": if pool.is_empty() { "default" } else { pool },
        "status": "True",
        "reason": refusal.reasons.first().map_or("PodSchedulingErrors", kai_reason),
        "message": waits(refusal),
        "reasons": reasons,
        "lastTransitionTime": now,
        "transitionID": "0",
    })
}

/// KAI's word for a reason.
fn kai_reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::QueueMissing { .. } | Reason::QueueNotLeaf { .. } => "QueueDoesNotExist",
        Reason::OverLimit { .. } => "OverLimit",
        Reason::OverQuota { .. } => "NonPreemptibleOverQuota",
        Reason::PreemptionDelay { .. } => "PreemptionDelayNotElapsed",
        _ => "PodSchedulingErrors",
    }
}
