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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_runtime::object::{Meta, tight};
use muster_runtime::{Api, Clock};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
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
    /// Each claim has a volume that the node can reach. Together, so that their volumes are made at the same time.
    Volumes { claims: Vec<String> },
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
            Step::Volumes { .. } => "bind volumes",
            Step::Claim { .. } => "allocate a device claim",
            Step::Extended { .. } => "allocate extended resources",
        }
    }
}

/// The steps of an assignment, in order.
pub fn plan(assignment: &Assignment, pod: &Pod) -> Result<Vec<Step>, BindError> {
    let mut steps = before_claims(assignment, pod);
    for (name, allocation) in &assignment.claims {
        if let Some(claim) = claims::claim_of(pod, name)? {
            steps.push(Step::Claim { claim, allocation: allocation.clone() });
        }
    }
    steps.extend(after_claims(assignment));
    Ok(steps)
}

/// What attempts at an assignment may have brought, for taking it back: as far as the pod tells.
pub fn brought(assignment: &Assignment, pod: &Pod) -> Vec<Step> {
    let mut steps = before_claims(assignment, pod);
    let claims = assignment.claims.iter().filter_map(|(name, allocation)| {
        let claim = claims::claim_of(pod, name).ok()??;
        Some(Step::Claim { claim, allocation: allocation.clone() })
    });
    steps.extend(claims);
    steps.extend(after_claims(assignment));
    steps
}

fn before_claims(assignment: &Assignment, pod: &Pod) -> Vec<Step> {
    let mut steps = Vec::new();
    // Labels that are there already may be left over from an attempt that died: they too go if this one fails.
    if !assignment.gpu_groups.is_empty() || !mark::is_done(assignment, pod) {
        steps.push(Step::Mark);
    }
    steps.extend(assignment.gpu_groups.iter().map(|group| Step::Reserve { group: group.clone() }));
    if !assignment.gpu_groups.is_empty() {
        steps.push(Step::ConfigMaps);
    }
    let claims: Vec<String> = volumes::claims_of(pod).collect();
    if !claims.is_empty() {
        steps.push(Step::Volumes { claims });
    }
    steps
}

fn after_claims(assignment: &Assignment) -> Option<Step> {
    assignment.extended.as_ref().map(|allocation| Step::Extended { allocation: allocation.clone() })
}

/// What steps work with.
pub(crate) struct Work<'a> {
    pub api: &'a Api,
    pub options: &'a Options,
    pub locks: &'a Locks,
    pub clock: Clock,
    pub assignment: &'a Assignment,
    pub pod: &'a Pod,
    pub seat: &'a Seat,
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
                Step::Volumes { claims } => volumes::perform(self, claims).await?,
                Step::Claim { claim, allocation } => claims::perform(self, claim, allocation).await?,
                Step::Extended { allocation } => claims::perform_extended(self, allocation).await?,
            }
        }
        Ok(())
    }

    /// Takes all steps back, the last one first. Out: those that are worth another try.
    pub async fn undo(&self, steps: &[Step]) -> Vec<Step> {
        let mut left = Vec::new();
        for step in steps.iter().rev() {
            let undone = match step {
                Step::Mark => mark::undo(self).await,
                // Who else uses the GPU is not known here: its keeper gives it up when nobody does.
                Step::Reserve { .. } => Ok(()),
                Step::ConfigMaps => config_maps::undo(self).await,
                Step::Volumes { claims } => volumes::undo(self, claims).await,
                Step::Claim { claim, .. } => claims::undo(self, claim).await,
                Step::Extended { .. } => claims::undo_extended(self).await,
            };
            if let Err(error) = undone {
                tracing::warn!(pod = %self.assignment.pod, step = step.name(), %error, "a step was not undone");
                if error.retryable() {
                    left.push(step.clone());
                }
            }
        }
        left.reverse();
        left
    }

    /// Waits a little before the cluster is looked at again: a tenth of the time waited so far, between 20 ms and 1 s.
    /// `false` when there is no more time, or no more reason, to wait.
    pub async fn pause(&self, since: Instant, limit: Duration) -> bool {
        let waited = since.elapsed();
        if waited >= limit {
            self.seat.waited().in_vain = true;
            return false;
        }
        let pause =
            (waited / 10).clamp(Duration::from_millis(20), Duration::from_secs(1)).min(limit - waited);
        self.seat.away(self.stop.run_until_cancelled(tokio::time::sleep(pause))).await.is_some()
    }

    /// Waits until nobody else in this process is at that shared GPU.
    pub async fn turn(&self, group: &str) -> OwnedMutexGuard<()> {
        self.seat.away(self.locks.turn(group)).await
    }
}

/// A seat among the few who may send requests at a time. Who only waits leaves it to others.
pub(crate) struct Seat {
    room: Arc<Semaphore>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
    waited: Mutex<Waited>,
}

/// How a preparation has waited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waited {
    pub how_long: Duration,
    /// What was waited for did not come in time: waiting again would take as long.
    pub in_vain: bool,
}

impl Seat {
    pub fn of(room: &Arc<Semaphore>) -> Self {
        Seat { room: room.clone(), held: Mutex::default(), waited: Mutex::default() }
    }

    pub async fn take(&self) {
        // Nobody closes the room.
        let permit = self.room.clone().acquire_owned().await.ok();
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Leaves the seat for as long as something else takes.
    async fn away<T>(&self, something: impl Future<Output = T>) -> T {
        let left = Instant::now();
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
        let end = something.await;
        self.take().await;
        self.waited().how_long += left.elapsed();
        end
    }

    /// How it waited since it was last asked.
    pub fn take_waited(&self) -> Waited {
        std::mem::take(&mut *self.waited())
    }

    fn waited(&self) -> MutexGuard<'_, Waited> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
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
                        Step::Volumes { claims } => format!("volumes({})", claims.join("+")),
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
        check(&part, pod.clone(), "mark reserve(g) reserve(h) config volumes(data+p-c) claim(big) extended");
        // Its labels are there, from an attempt that died: they are still this one's to take away.
        let mut marked = pod.clone();
        marked["metadata"]["labels"] = json!({"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"});
        check(&part, marked, "mark reserve(g) reserve(h) config volumes(data+p-c) claim(big) extended");
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
    /// What can be told of it is taken back even if the rest cannot.
    #[test]
    fn what_was_brought() {
        let assignment = Assignment {
            gpu_groups: vec!["g".into()],
            claims: vec![("gone".into(), json!({})), ("gpu".into(), json!({}))],
            ..Assignment::default()
        };
        let pod = json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "big"}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert!(plan(&assignment, &pod).is_err());
        let steps = brought(&assignment, &pod);
        let names: Vec<&str> = steps.iter().map(Step::name).collect();
        assert_eq!(
            names,
            ["mark the pod", "reserve a GPU", "tell the pod its devices", "allocate a device claim"]
        );
    }
}
