//! PodDisruptionBudgets: how many pods may be evicted now.

pub mod plan;
pub mod run;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::object::{IntOrPercent, Meta, Selector, kinds};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Budget {
    pub metadata: Meta,
    pub spec: BudgetSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    pub min_available: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
    pub selector: Option<Selector>,
}

kinds! {
    Budget = "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets";
}

impl Budget {
    /// Pods that the server has let go and that may still be seen, by name.
    pub fn disrupted(&self) -> BTreeMap<String, Timestamp> {
        self.status
            .get("disruptedPods")
            .and_then(|d| serde_json::from_value(d.clone()).ok())
            .unwrap_or_default()
    }
}
