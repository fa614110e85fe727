//! What the cluster is told about decisions, as text and as KAI's condition.

use crate::core::Eviction;
use muster_model::{Action, NodeReason, Reason, Refusal, Resource, Tally};
use muster_scenario::words;
use serde_json::{Value, json};

/// Longer messages help nobody, and the API server refuses them at some point.
const LONGEST: usize = 900;

/// Why a lone pod waits: where no node will do, in the words of kube-scheduler, which people and programs know.
pub fn pod_waits(refusal: &Refusal) -> String {
    match refusal.reasons.first() {
        Some(Reason::NoNode { tally, .. }) => {
            let nodes: u64 = tally.iter().map(|t| u64::from(t.nodes)).sum();
            let mut counts: Vec<String> = tally
                .iter()
                .map(|Tally { reason, nodes, .. }| format!("{nodes} {}", known_as(reason)))
                .collect();
            counts.sort();
            let all = if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
            cut(format!("0/{nodes} nodes are available{all}."))
        }
        _ => waits(refusal),
    }
}

/// The same in Volcano's words.
pub fn pod_of_volcano_waits(refusal: &Refusal) -> String {
    pod_waits(refusal).replacen("nodes are available", "nodes are unavailable", 1)
}

/// What Volcano says of a gang, and why it is so.
pub fn with_headline(headline: &str, refusal: &Refusal) -> String {
    let why = words::lines(refusal);
    cut(if why.is_empty() { headline.to_owned() } else { format!("{headline}; {}", why.join("; ")) })
}

/// What kube-scheduler says about a node that will not do.
fn known_as(reason: &NodeReason) -> String {
    match reason {
        NodeReason::NotUsable => "node(s) were unschedulable".into(),
        NodeReason::OtherPool => "node(s) belong to another node pool".into(),
        NodeReason::NodeAffinity => "node(s) didn't match Pod's node affinity/selector".into(),
        NodeReason::Taint { key } => format!("node(s) had untolerated taint {{{key}}}"),
        NodeReason::HostPort => "node(s) didn't have free ports for the requested pod ports".into(),
        NodeReason::PodAffinity => "node(s) didn't match pod affinity rules".into(),
        NodeReason::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules".into(),
        NodeReason::TopologySpread => "node(s) didn't match pod topology spread constraints".into(),
        NodeReason::Volume => "node(s) had volume node affinity conflict".into(),
        NodeReason::AttachLimit => "node(s) exceed max volume count".into(),
        NodeReason::Device => "cannot allocate all claims".into(),
        NodeReason::Numa => "cannot align the request with the node's NUMA zones".into(),
        NodeReason::MigMode => "node(s) had another MIG mode".into(),
        NodeReason::GpuMemoryUnknown => "node(s) didn't say how much memory their GPUs have".into(),
        NodeReason::GpuShare => "node(s) had no GPU with such a share free".into(),
        NodeReason::Taken => "node(s) were needed for other pods of the gang".into(),
        NodeReason::Short { resource, .. } | NodeReason::TooBig { resource, .. } => match resource {
            Resource::Pods => "Too many pods".into(),
            Resource::Gpu => "Insufficient nvidia.com/gpu".into(),
            other => format!("Insufficient {other}"),
        },
    }
}

/// Why a gang waits, in one line.
pub fn waits(refusal: &Refusal) -> String {
    cut(words::lines(refusal).join("; "))
}

fn cut(mut text: String) -> String {
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
        Action::GangPreempt => "a gang of higher priority in its queue needs the room",
        Action::GangReclaim => {
            "its queue has more than it deserves, and a gang of another queue asks for its own"
        }
        Action::Shuffle => "it runs where it should not",
        Action::Allocate | Action::Enqueue | Action::Backfill => "its place is needed",
    };
    let moved = if eviction.moved { "; it has another place" } else { "" };
    match &eviction.by {
        Some(by) => format!("evicted by {} for {}: {what}{moved}", eviction.action.name(), by.own()),
        None => format!("evicted by {}: {what}{moved}", eviction.action.name()),
    }
}

/// The entry of a PodGroup's `status.schedulingConditions`.
pub fn scheduling_condition(refusal: &Refusal, pool: &str, now: &str, transition: u64) -> Value {
    let reasons: Vec<Value> = refusal
        .reasons
        .iter()
        .map(|reason| json!({"reason": kai_reason(reason), "message": words::reason(reason)}))
        .collect();
    json!({
        "type": "UnschedulableOnNodePool",
        "nodePool": pool,
        "status": "True",
        "reason": refusal.reasons.first().map_or("PodSchedulingErrors", kai_reason),
        "message": waits(refusal),
        "reasons": reasons,
        "lastTransitionTime": now,
        "transitionID": transition.to_string(),
    })
}

/// KAI's word for a reason.
fn kai_reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::QueueMissing { .. } | Reason::QueueNotLeaf { .. } | Reason::QueueClosed { .. } => {
            "QueueDoesNotExist"
        }
        Reason::OverLimit { .. } => "OverLimit",
        Reason::OverQuota { .. } => "NonPreemptibleOverQuota",
        Reason::PreemptionDelay { .. } => "PreemptionDelayNotElapsed",
        _ => "PodSchedulingErrors",
    }
}
