//! The metric targets of a horizontal pod autoscaler, as Grove's auto-scaling configuration embeds them.

use super::meta::LabelSelector;
use super::{Quantity, Rest};
use muster_api_derive::Api;

/// A metric to scale by; `type` says which of the other fields counts.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MetricSpec {
    pub r#type: String,
    pub container_resource: Option<ContainerResourceMetricSource>,
    pub external: Option<MetricSource>,
    pub object: Option<ObjectMetricSource>,
    pub pods: Option<MetricSource>,
    pub resource: Option<ResourceMetricSource>,
    pub rest: Rest,
}

/// A resource of one container in each pod.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ContainerResourceMetricSource {
    pub name: String,
    pub container: String,
    pub target: MetricTarget,
    pub rest: Rest,
}

/// The value that scaling aims for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MetricTarget {
    pub r#type: String,
    pub average_utilization: Option<i32>,
    pub average_value: Option<Quantity>,
    pub value: Option<Quantity>,
    pub rest: Rest,
}

/// A metric of the pods, or of something outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MetricSource {
    pub metric: MetricIdentifier,
    pub target: MetricTarget,
    pub rest: Rest,
}

/// A metric by name, and by labels.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MetricIdentifier {
    pub name: String,
    pub selector: Option<LabelSelector>,
    pub rest: Rest,
}

/// A metric of one Kubernetes object.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ObjectMetricSource {
    pub described_object: CrossVersionObjectReference,
    pub metric: MetricIdentifier,
    pub target: MetricTarget,
    pub rest: Rest,
}

/// The object that a metric describes.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CrossVersionObjectReference {
    pub name: String,
    pub api_version: Option<String>,
    pub kind: String,
    pub rest: Rest,
}

/// A resource of all containers of each pod.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceMetricSource {
    pub name: String,
    pub target: MetricTarget,
    pub rest: Rest,
}
