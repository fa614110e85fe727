//! StatefulSets: pods with a number and a volume of their own.
//!
//! `plan` says which ordinal to create or delete next; `run` does it, with revisions and claims.

pub mod plan;
pub mod run;

use serde::Deserialize;
use serde_json::Value;

use crate::object::{IntOrPercent, Meta, Selector, kinds};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    pub metadata: Meta,
    pub spec: StatefulSetSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    pub replicas: Option<i64>,
    pub selector: Selector,
    pub template: Value,
    pub service_name: String,
    pub pod_management_policy: String,
    pub update_strategy: UpdateStrategy,
    pub volume_claim_templates: Vec<Value>,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub ordinals: Ordinals,
    pub persistent_volume_claim_retention_policy: Retention,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: StatefulRolling,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulRolling {
    pub partition: Option<i64>,
    pub max_unavailable: Option<IntOrPercent>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    pub start: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retention {
    pub when_deleted: String,
    pub when_scaled: String,
}

kinds! {
    StatefulSet = "apps" "v1" "StatefulSet" "statefulsets";
}

impl StatefulSet {
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    pub fn text(&self, field: &str) -> &str {
        self.status.get(field).and_then(Value::as_str).unwrap_or("")
    }

    pub fn number(&self, field: &str) -> i64 {
        self.status.get(field).and_then(Value::as_i64).unwrap_or(0)
    }
}
