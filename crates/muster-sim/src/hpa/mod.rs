//! HorizontalPodAutoscalers: the effect on scale, from metrics that annotations make up.
//!
//! The value of a metric is read from the annotation `sim.muster.dev/metric-NAME` of the autoscaler, or else of its
//! target: for a resource with `averageUtilization` the percentage (`"80"`), for anything else a quantity. Without such
//! an annotation the metric is unknown, as on a cluster without a metrics server.

pub mod plan;
pub mod run;

use serde::Deserialize;
use serde_json::Value;

use crate::object::{Meta, kinds};

pub const METRIC: &str = "sim.muster.dev/metric-";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Autoscaler {
    pub metadata: Meta,
    pub spec: AutoscalerSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerSpec {
    pub scale_target_ref: TargetRef,
    pub min_replicas: Option<i64>,
    pub max_replicas: i64,
    pub metrics: Vec<Metric>,
    pub behavior: Behavior,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metric {
    #[serde(rename = "type")]
    pub kind: String,
    pub resource: Option<ResourceMetric>,
    pub container_resource: Option<ResourceMetric>,
    pub pods: Option<NamedMetric>,
    pub object: Option<NamedMetric>,
    pub external: Option<NamedMetric>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceMetric {
    pub name: String,
    pub target: MetricTarget,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NamedMetric {
    pub metric: crate::object::Named,
    pub target: MetricTarget,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricTarget {
    pub average_utilization: Option<i64>,
    pub average_value: Option<String>,
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Behavior {
    pub scale_up: Option<ScalingRules>,
    pub scale_down: Option<ScalingRules>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingRules {
    pub stabilization_window_seconds: Option<i64>,
    pub select_policy: Option<String>,
    pub policies: Vec<ScalingPolicy>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingPolicy {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: i64,
    pub period_seconds: i64,
}

kinds! {
    Autoscaler = "autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers";
}
