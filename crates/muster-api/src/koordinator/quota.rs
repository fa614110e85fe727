//! Koordinator's quota profiles, `quota.koordinator.sh/v1alpha1`.

use crate::common::meta::LabelSelector;
use crate::common::{Labels, ObjectMeta, Rest};
use muster_api_derive::Api;

/// A quota that follows the size of some nodes.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "quota.koordinator.sh", version = "v1alpha1", plural = "elasticquotaprofiles", short("eqp"))]
pub struct ElasticQuotaProfile {
    pub metadata: ObjectMeta,
    pub spec: Option<ElasticQuotaProfileSpec>,
    pub status: Option<ElasticQuotaProfileStatus>,
    pub rest: Rest,
}

/// Which nodes, and which quota.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ElasticQuotaProfileSpec {
    pub node_selector: LabelSelector,
    pub quota_labels: Option<Labels>,
    pub quota_name: String,
    pub resource_ratio: Option<String>,
    pub rest: Rest,
}

/// Nothing is reported.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ElasticQuotaProfileStatus {
    pub rest: Rest,
}
