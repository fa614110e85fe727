//! Volcano's co-location settings, `config.volcano.sh/v1alpha1`.

use crate::common::meta::{Condition, LabelSelector};
use crate::common::{ObjectMeta, Rest};
use muster_api_derive::Api;

/// Memory protection for pods that share a node with others of less importance.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "config.volcano.sh", version = "v1alpha1", plural = "colocationconfigurations", status)]
pub struct ColocationConfiguration {
    pub metadata: ObjectMeta,
    pub spec: ColocationConfigurationSpec,
    pub status: Option<ColocationConfigurationStatus>,
    pub rest: Rest,
}

/// Which pods, and how much.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ColocationConfigurationSpec {
    pub memory_qos: Option<MemoryQos>,
    pub selector: Option<LabelSelector>,
    pub rest: Rest,
}

/// How memory is protected and throttled, in hundredths.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MemoryQos {
    #[api(default = 100, range(0..=100), unformatted)]
    pub high_ratio: Option<i64>,
    #[api(default = 0, range(0..=100), unformatted)]
    pub low_ratio: Option<i64>,
    #[api(default = 0, range(0..=100), unformatted)]
    pub min_ratio: Option<i64>,
    pub rest: Rest,
}

/// Whether the settings are in effect.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ColocationConfigurationStatus {
    #[api(list(map("type")))]
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}
