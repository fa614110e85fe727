//! Deployments: roll from one ReplicaSet to the next.
//!
//! `plan` holds the arithmetic (surge, unavailability, proportional scaling, history); `status` what is reported;
//! `run` carries out.

pub mod plan;
pub mod run;
pub mod status;

use serde::Deserialize;
use serde_json::Value;

use crate::object::{IntOrPercent, Meta, Selector, kinds};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Deployment {
    pub metadata: Meta,
    pub spec: DeploymentSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    pub replicas: Option<i64>,
    pub selector: Selector,
    pub template: Value,
    pub strategy: Strategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub paused: bool,
    pub progress_deadline_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: RollingUpdate,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    pub max_surge: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
}

kinds! {
    Deployment = "apps" "v1" "Deployment" "deployments";
}

impl Deployment {
    pub fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    pub fn recreates(&self) -> bool {
        self.spec.strategy.kind == "Recreate"
    }

    /// How many pods may be there above, and be missing below, the wanted number. Both cannot be nothing.
    pub fn slack(&self) -> (i64, i64) {
        if self.recreates() {
            return (0, 0);
        }
        let quarter = IntOrPercent::Text("25%".into());
        let rolling = &self.spec.strategy.rolling_update;
        let surge = rolling.max_surge.as_ref().unwrap_or(&quarter).of(self.replicas(), true).max(0);
        let unavailable =
            rolling.max_unavailable.as_ref().unwrap_or(&quarter).of(self.replicas(), false).max(0);
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(self.replicas())) }
    }
}
