//! Jobs: pods that are meant to end.
//!
//! - [`indexes`]: sets of completion indexes and their text form.
//! - [`policy`]: what a failed pod means, and which successes suffice.
//! - [`plan`]: what to create, delete, count and report.
//! - [`run`]: does it.

pub mod indexes;
pub mod plan;
pub mod policy;
pub mod run;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::stamp;
use crate::object::{Condition, Meta, Selector, kinds};

/// Holds a finished pod until it is counted.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Job {
    pub metadata: Meta,
    pub spec: JobSpec,
    pub status: JobStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    pub parallelism: Option<i64>,
    pub completions: Option<i64>,
    pub completion_mode: String,
    pub backoff_limit: Option<i64>,
    pub backoff_limit_per_index: Option<i64>,
    pub max_failed_indexes: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub ttl_seconds_after_finished: Option<i64>,
    pub suspend: bool,
    pub pod_replacement_policy: String,
    pub pod_failure_policy: Option<policy::FailurePolicy>,
    pub success_policy: Option<policy::SuccessPolicy>,
    pub managed_by: Option<String>,
    pub selector: Selector,
    pub template: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    pub active: i64,
    /// This and the next are written even when they are zero.
    pub ready: Option<i64>,
    pub terminating: Option<i64>,
    pub succeeded: i64,
    pub failed: i64,
    pub completed_indexes: String,
    pub failed_indexes: Option<String>,
    pub start_time: Option<Timestamp>,
    pub completion_time: Option<Timestamp>,
    pub conditions: Vec<Condition>,
    pub uncounted_terminated_pods: Option<Uncounted>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub succeeded: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub failed: BTreeSet<String>,
}

impl JobStatus {
    /// The status as Kubernetes writes it: counts only when they are not zero, but `ready`, `terminating` and
    /// `uncountedTerminatedPods` from the first look on.
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (field, n) in [("active", self.active), ("succeeded", self.succeeded), ("failed", self.failed)] {
            if n != 0 {
                out.insert(field.into(), json!(n));
            }
        }
        for (field, n) in [("ready", self.ready), ("terminating", self.terminating)] {
            out.extend(n.map(|n| (field.to_owned(), json!(n))));
        }
        if !self.completed_indexes.is_empty() {
            out.insert("completedIndexes".into(), json!(self.completed_indexes));
        }
        if let Some(failed) = &self.failed_indexes {
            out.insert("failedIndexes".into(), json!(failed));
        }
        for (field, time) in [("startTime", self.start_time), ("completionTime", self.completion_time)] {
            out.extend(time.map(|time| (field.to_owned(), json!(stamp(time)))));
        }
        if !self.conditions.is_empty() {
            out.insert("conditions".into(), json!(self.conditions));
        }
        if let Some(uncounted) = &self.uncounted_terminated_pods {
            out.insert("uncountedTerminatedPods".into(), json!(uncounted));
        }
        Value::Object(out)
    }
}

kinds! {
    Job = "batch" "v1" "Job" "jobs";
}

impl Job {
    pub fn indexed(&self) -> bool {
        self.spec.completion_mode == "Indexed"
    }

    pub fn parallelism(&self) -> i64 {
        self.spec.parallelism.unwrap_or(1).max(0)
    }

    /// Only pods that failed for good are replaced, not those that are still going.
    pub fn replaces_failed_only(&self) -> bool {
        self.spec.pod_replacement_policy == "Failed"
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        crate::object::condition(&self.status.conditions, kind).filter(|c| c.status == "True")
    }

    /// The condition that ended it.
    pub fn ended(&self) -> Option<&Condition> {
        self.condition("Complete").or_else(|| self.condition("Failed"))
    }
}
