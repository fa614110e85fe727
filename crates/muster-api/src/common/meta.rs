//! The parts of Kubernetes' object metadata that API structs embed: conditions, selectors, references.

use super::{Labels, Rest, Time, string_enum};
use muster_api_derive::Api;

/// Which objects are meant, by their labels; all parts must hold. An empty selector means all objects.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct LabelSelector {
    #[api(list(atomic))]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
    /// Labels that must have exactly these values.
    pub match_labels: Option<Labels>,
    pub rest: Rest,
}

/// One condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LabelSelectorRequirement {
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[api(list(atomic))]
    pub values: Option<Vec<String>>,
    pub rest: Rest,
}

/// One aspect of an object's state.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Condition {
    #[api(label_key)]
    pub r#type: String,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// Why, as a sentence for people.
    #[api(len(..=32768))]
    pub message: String,
    /// The generation of the object that this speaks of.
    #[api(range(0..))]
    pub observed_generation: Option<i64>,
    /// Why, as one word for programs.
    #[api(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", len(1..=1024))]
    pub reason: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    pub rest: Rest,
}

string_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus { True, False, Unknown }
}

/// The metadata that objects made from a template get.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct EmbeddedMetadata {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub annotations: Option<Labels>,
    pub finalizers: Option<Vec<String>>,
    pub labels: Option<Labels>,
    pub rest: Rest,
}

/// Another object.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct ObjectReference {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub api_version: Option<String>,
    pub field_path: Option<String>,
    pub kind: Option<String>,
    pub resource_version: Option<String>,
    pub uid: Option<String>,
    pub rest: Rest,
}

/// An object by its identity, as owners are named.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct OwnerReference {
    pub name: String,
    pub api_version: String,
    pub block_owner_deletion: Option<bool>,
    pub controller: Option<bool>,
    pub kind: String,
    pub uid: String,
    pub rest: Rest,
}
