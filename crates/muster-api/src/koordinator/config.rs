//! Koordinator's co-location profiles, `config.koordinator.sh/v1alpha1`.

use crate::common::meta::LabelSelector;
use crate::common::{IntOrString, Labels, ObjectMeta, Open, Rest, string_enum};
use muster_api_derive::Api;

/// What the webhook adds to pods when they are made.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "config.koordinator.sh",
    version = "v1alpha1",
    plural = "clustercolocationprofiles",
    cluster,
    status
)]
pub struct ClusterColocationProfile {
    pub metadata: ObjectMeta,
    pub spec: Option<ClusterColocationProfileSpec>,
    pub status: Option<ClusterColocationProfileStatus>,
    pub rest: Rest,
}

/// Which pods, and what they get.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterColocationProfileSpec {
    pub annotation_keys_mapping: Option<Labels>,
    pub annotations: Option<Labels>,
    /// Priority within the class.
    pub koordinator_priority: Option<i32>,
    pub label_keys_mapping: Option<Labels>,
    pub label_suffixes: Option<Labels>,
    pub labels: Option<Labels>,
    pub namespace_selector: Option<LabelSelector>,
    /// A merge patch for the pods.
    #[api(untyped)]
    pub patch: Option<Open>,
    /// Priority class of the pods.
    pub priority_class_name: Option<String>,
    /// How many of the matching pods: a number from 0 to 100, or a percentage.
    pub probability: Option<IntOrString>,
    /// Quality of service of the pods.
    pub qos_class: Option<QosClass>,
    pub scheduler_name: Option<String>,
    pub selector: Option<LabelSelector>,
    pub rest: Rest,
}

string_enum! {
    /// Quality of service, from dedicated cores (`LSE`) to best effort (`BE`).
    pub enum QosClass { LSE, LSR, LS, BE, SYSTEM }
}

/// Nothing is reported.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterColocationProfileStatus {
    pub rest: Rest,
}
