//! DaemonSets: one pod per eligible node.

pub mod plan;
pub mod run;

use serde::Deserialize;
use serde_json::Value;

use crate::object::{IntOrPercent, Meta, Selector, kinds};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    pub metadata: Meta,
    pub spec: DaemonSetSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    pub selector: Selector,
    pub template: Value,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub update_strategy: DaemonUpdate,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonUpdate {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: DaemonRolling,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonRolling {
    pub max_unavailable: Option<IntOrPercent>,
    pub max_surge: Option<IntOrPercent>,
}

kinds! {
    DaemonSet = "apps" "v1" "DaemonSet" "daemonsets";
}
