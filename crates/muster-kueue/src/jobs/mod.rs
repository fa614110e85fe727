//! Jobs of any kind: what has to be known of a kind so that its jobs can wait in a queue.
//!
//! [`Job`] is all that a kind says of itself, a file each; [`plan`](mod@plan) decides for all kinds alike.

pub mod batch;
pub mod plan;

use serde_json::Value;

use muster_runtime::Object;

use crate::podset::{Clash, Info};

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub success: bool,
    pub message: String,
}

/// A kind of job that can be suspended.
pub trait Job: Object {
    /// As the configuration names it, such as `batch/job`.
    const FRAMEWORK: &'static str;

    fn body(&self) -> &Value;

    fn is_suspended(&self) -> bool;

    /// Whether any of its pods run or may.
    fn is_active(&self) -> bool;

    fn ended(&self) -> Option<Ended>;

    /// Whether all pods that it needs are ready or done.
    fn pods_ready(&self) -> bool;

    /// Its pods, as sets of a workload.
    fn pod_sets(&self) -> Vec<Value>;

    /// Pods that are done for good, by set.
    fn reclaimable(&self) -> Vec<(String, i64)> {
        Vec::new()
    }

    /// The object once it is started with what was admitted.
    fn started(&self, infos: &[Info]) -> Result<Value, Clash>;

    /// The object, suspended, with its pods as the sets of a workload have them; as it is but suspended where there are none.
    fn stopped(&self, sets: &[Value]) -> Value;

    /// What has to be written into the status of a suspended job before its template may be set back.
    fn settle(&self) -> Option<Value> {
        None
    }
}
