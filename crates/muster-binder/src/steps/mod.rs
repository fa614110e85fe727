//! What must be prepared for a pod before its Binding.
//!
//! In: an assignment and the pod. Out: the steps, in order ([`plan`], pure); each step's file says how it is carried out
//! and how it is undone. Must stay true: carrying out a step looks at the cluster first and leaves alone what is already
//! so; undoing takes back only what this assignment brought; undoing a step that never ran does nothing.

pub mod claims;
pub mod config_maps;
pub mod mark;
pub mod reserve;
pub mod volumes;

use std::time::Duration;

use muster_runtime::Api;
use muster_runtime::object::{Meta, tight};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::assignment::Assignment;
use crate::binder::Locks;
use crate::error::BindError;
use crate::options::Options;

/// The pod, with what steps look at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: String,
    #[serde(deserialize_with = "tight")]
    pub containers: Vec<Value>,
    #[serde(deserialize_with = "tight")]
    pub init_containers: Vec<Value>,
    #[serde(deserialize_with = "tight")]
    pub volumes: Vec<Value>,
    #[serde(deserialize_with = "tight")]
    pub tolerations: Vec<Value>,
    #[serde(deserialize_with = "tight")]
    pub resource_claims: Vec<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    #[serde(deserialize_with = "tight")]
    pub resource_claim_statuses: Vec<Value>,
    pub extended_resource_claim_status: Option<Value>,
}

muster_runtime::kinds! {
    Pod = "" "v1" "Pod" "pods";
}

/// One thing to prepare.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The pod says which shared GPUs it uses. First of all, so that nobody gives these GPUs up meanwhile.
    Mark,
    /// A pod holds the shared GPU.
    Reserve { group: String },
    /// The pod can read which devices are its own.
    ConfigMaps,
    /// The claim has a volume that the node can reach.
    Volume { claim: String },
    /// The device claim is allocated, and for this pod.
    Claim { claim: String, allocation: Value },
    /// There is a device claim for the pod's extended resources, allocated and for this pod.
    Extended { allocation: Value },
}

impl Step {
    /// What the step does, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Mark => "mark the pod",
            Step::Reserve { .. } => "reserve a GPU",
            Step::ConfigMaps => "tell the pod its devices",
            Step::Volume { .. } => "bind a volume",
            Step::Claim { .. } => "allocate a device claim",
            Step::Extended { .. } => "allocate extended resources",
        }
    }
}

/// The steps of an assignment, in order.
pub fn plan(assignment: &Assignment, pod: &Pod) -> Result<Vec<Step>, BindError> {
    let mut steps = Vec::new();
    if !mark::is_done(assignment, pod) {
        steps.push(Step::Mark);
    }
    steps.extend(assignment.gpu_groups.iter().map(|group| Step::Reserve { group: group.clone() }));
    if !assignment.gpu_groups.is_empty() {
        steps.push(Step::ConfigMaps);
    }
    steps.extend(volumes::claims_of(pod).map(|claim| Step::Volume { claim }));
    for (name, allocation) in &assignment.claims {
        if let Some(claim) = claims::claim_of(pod, name)? {
            steps.push(Step::Claim { claim, allocation: allocation.clone() });
        }
    }
    if let Some(allocation) = &assignment.extended {
        steps.push(Step::Extended { allocation: allocation.clone() });
    }
    Ok(steps)
}

/// What steps work with.
pub(crate) struct Work<'a> {
    pub api: &'a Api,
    pub options: &'a Options,
    pub locks: &'a Locks,
    pub assignment: &'a Assignment,
    pub pod: &'a Pod,
    /// Cancelled when what is being prepared is not wanted any more.
    pub stop: &'a CancellationToken,
}

impl Work<'_> {
    /// Carries out all steps.
    pub async fn perform(&self, steps: &[Step]) -> Result<(), BindError> {
        // In the order of the groups.
        let mut devices = Vec::new();
        for step in steps {
            if self.stop.is_cancelled() {
                return Err(BindError::retry("stopped"));
            }
            match step {
                Step::Mark => mark::perform(self).await?,
                Step::Reserve { group } => devices.push(reserve::perform(self, group).await?),
                Step::ConfigMaps => config_maps::perform(self, &devices).await?,
                Step::Volume { claim } => volumes::perform(self, claim).await?,
                Step::Claim { claim, allocation } => claims::perform(self, claim, allocation).await?,
                Step::Extended { allocation } => claims::perform_extended(self, allocation).await?,
            }
        }
        Ok(())
    }

    /// Takes all steps back, the last one first, as far as the API lets it. Out: what could not be taken back.
    pub async fn undo(&self, steps: &[Step]) -> Vec<BindError> {
        let mut failures = Vec::new();
        for step in steps.iter().rev() {
            let undone = match step {
                Step::Mark => mark::undo(self).await,
                // Who else uses the GPU is not known here: its keeper gives it up when nobody does.
                Step::Reserve { .. } => Ok(()),
                Step::ConfigMaps => config_maps::undo(self).await,
                Step::Volume { claim } => volumes::undo(self, claim).await,
                Step::Claim { claim, .. } => claims::undo(self, claim).await,
                Step::Extended { .. } => claims::undo_extended(self).await,
            };
            if let Err(error) = undone {
                tracing::warn!(pod = %self.assignment.pod, step = step.name(), %error, "a step was not undone");
                failures.push(error);
            }
        }
        failures
    }

    /// Waits a little before the cluster is looked at again: a tenth of the time waited so far, between 20 ms and 1 s.
    /// `false` when there is no more time, or no more reason, to wait.
    pub async fn pause(&self, since: Instant, limit: Duration) -> bool {
        let waited = since.elapsed();
        if waited >= limit {
            return false;
        }
        let pause =
            (waited / 10).clamp(Duration::from_millis(20), Duration::from_secs(1)).min(limit - waited);
        self.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::assignment::Received;

    #[track_caller]
    fn check(assignment: &Assignment, pod: Value, expected: &str) {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let shown = match plan(assignment, &pod) {
            Err(error) => error.to_string(),
            Ok(steps) => {
                let words: Vec<String> = steps
                    .iter()
                    .map(|step| match step {
                        Step::Mark => "mark".into(),
                        Step::Reserve { group } => format!("reserve({group})"),
                        Step::ConfigMaps => "config".into(),
                        Step::Volume { claim } => format!("volume({claim})"),
                        Step::Claim { claim, .. } => format!("claim({claim})"),
                        Step::Extended { .. } => "extended".into(),
                    })
                    .collect();
                words.join(" ")
            }
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn steps_in_order() {
        let plain = Assignment { node: "n".into(), ..Assignment::default() };
        check(&plain, json!({}), "");
        check(&plain, json!({"metadata": {"labels": {"runai-gpu-group": "of another attempt"}}}), "mark");
        let part = Assignment {
            kind: Received::Fraction,
            gpu_groups: vec!["g".into(), "h".into()],
            claims: vec![("gpu".into(), json!({}))],
            extended: Some(json!({})),
            ..plain.clone()
        };
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "b", "emptyDir": {}},
                    {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                ],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "big"}],
            },
        });
        check(&part, pod, "mark reserve(g) reserve(h) config volume(data) volume(p-c) claim(big) extended");
        check(
            &Assignment { claims: vec![("gpu".into(), json!({}))], ..plain.clone() },
            json!({}),
            "the pod has no device claim named gpu",
        );
        let template =
            json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}});
        let from_template = Assignment { claims: vec![("gpu".into(), json!({}))], ..plain };
        check(&from_template, template.clone(), "the device claim gpu of the pod is not created yet");
        let mut made = template.clone();
        made["status"] = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]});
        check(&from_template, made, "claim(p-gpu-x)");
        let mut none = template;
        none["status"] = json!({"resourceClaimStatuses": [{"name": "gpu"}]});
        check(&from_template, none, "");
    }
}
