//! Capacity for what waits.
//!
//! Autoscalers bring nodes for pods that are marked unschedulable, one pod at a time, and count only what is in a pod's
//! requests. Two things they cannot see are shown to them here:
//!
//! - *fractions of GPUs*, which stand in annotations: for those that wait, small pods that ask for whole GPUs are made in a
//!   namespace of their own, as many as the fractions need together;
//! - *whole gangs*, where the autoscaler speaks ProvisioningRequest: one request per gang that waits, for its minimum, all or
//!   nothing. Once an autoscaler has taken it, its pods are marked as consumers of it, so that the same capacity is not asked for
//!   twice; the marks go with it.
//!
//! Nothing of this happens for pods that nobody has marked unschedulable, nor while a gang waits for its queue or for its time,
//! which no node changes.

pub mod fractions;
pub mod gangs;
pub mod run;
pub mod shortfall;

use std::time::Duration;

use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::object::{Condition, Meta, Strings, condition};
use serde::Deserialize;
use serde_json::Value;

pub use run::start;

#[derive(Debug, Clone)]
pub struct Options {
    /// Whose pods are looked after.
    pub scheduler_names: Vec<String>,
    /// Where scaling pods are made.
    pub namespace: String,
    pub service_account: String,
    /// What scaling pods run: it must end by itself, at once.
    pub image: String,
    pub command: Vec<String>,
    /// How long nothing new is asked for after a scaling pod has served. New nodes need that long until their GPUs are seen.
    pub cooldown: Duration,
    /// What a request for GPU memory counts as, in thousandths of a GPU: on which GPU it will be is not known.
    pub memory_share: i64,
    /// Whether to make ProvisioningRequests where the API is served.
    pub gang_requests: bool,
    pub provisioning_class: String,
    pub provisioning_parameters: Strings,
    /// How long a gang must have waited.
    pub gang_wait: Duration,
    /// How long after a failure a request is made anew.
    pub retry: Duration,
    /// How many requests there may be at a time; autoscalers work on them one after the other.
    pub most_requests: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            scheduler_names: vec!["muster-scheduler".to_owned(), "kai-scheduler".to_owned()],
            namespace: "kai-scale-adjust".to_owned(),
            service_account: "default".to_owned(),
            image: "muster".to_owned(),
            command: vec!["muster".to_owned(), "--version".to_owned()],
            cooldown: Duration::from_secs(60),
            memory_share: 100,
            gang_requests: true,
            provisioning_class: "best-effort-atomic-scale-up.autoscaling.x-k8s.io".to_owned(),
            provisioning_parameters: Strings::new(),
            gang_wait: Duration::from_secs(10),
            retry: Duration::from_secs(300),
            most_requests: 50,
        }
    }
}

/// Cluster Autoscaler's request for capacity.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProvisioningRequest {
    pub metadata: Meta,
    pub spec: Value,
    pub status: RequestStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RequestStatus {
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    pub metadata: Meta,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: Meta,
}

muster_runtime::kinds! {
    ProvisioningRequest = "autoscaling.x-k8s.io" "v1" "ProvisioningRequest" "provisioningrequests";
    PodTemplate = "" "v1" "PodTemplate" "podtemplates";
    Namespace = "" "v1" "Namespace" "namespaces";
}

/// The mark on a pod that a scheduler has given up on for now.
fn unschedulable(pod: &Pod) -> Option<&Condition> {
    condition(&pod.status.conditions, "PodScheduled")
        .filter(|c| c.status == "False" && c.reason == "Unschedulable")
}

/// It waits for a node and will take one.
fn waits(pod: &Pod) -> bool {
    !pod.is_bound() && !pod.is_over() && !pod.metadata.deleting()
}

/// Whether nodes would help a gang, as far as its scheduler says why it waits: not if it waits for its queue, or for its time.
fn room_would_help(group: &PodGroup) -> bool {
    let other = ["QueueDoesNotExist", "OverLimit", "NonPreemptibleOverQuota", "PreemptionDelayNotElapsed"];
    let conditions = group.status.get("schedulingConditions").and_then(Value::as_array);
    let last = conditions.and_then(|conditions| conditions.last());
    last.and_then(|condition| condition["reason"].as_str()).is_none_or(|reason| !other.contains(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_waits_for_its_queue_or_its_time_asks_for_nothing() {
        let check = |status: Value, expected: bool| {
            let group: PodGroup = serde_json::from_value(json!({"status": status})).unwrap();
            assert_eq!(room_would_help(&group), expected, "{status}");
        };
        check(json!({}), true);
        check(json!({"schedulingConditions": []}), true);
        check(json!({"schedulingConditions": [{"reason": "OverLimit"}]}), false);
        check(json!({"schedulingConditions": [{"reason": "NonPreemptibleOverQuota"}]}), false);
        check(
            json!({"schedulingConditions": [{"reason": "OverLimit"}, {"reason": "PodSchedulingErrors"}]}),
            true,
        );
        check(json!({"schedulingConditions": "nonsense"}), true);
    }
}
