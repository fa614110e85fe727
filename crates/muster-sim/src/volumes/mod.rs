//! Volumes: every claim is given a volume at once.
//!
//! `plan` decides; `run` creates the volume, binds both sides, and takes volumes away whose claims are gone.

pub mod plan;
pub mod run;

use serde::Deserialize;
use serde_json::Value;

use crate::object::{Meta, Phase, Strings, kinds, quantities};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: Meta,
    pub spec: ClaimSpec,
    pub status: Phase,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    pub access_modes: Vec<String>,
    pub volume_name: String,
    pub volume_mode: String,
    pub storage_class_name: Option<String>,
    pub resources: ClaimResources,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimResources {
    #[serde(deserialize_with = "quantities")]
    pub requests: Strings,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: Meta,
    pub spec: VolumeSpec,
    pub status: Phase,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    pub claim_ref: Option<ClaimRef>,
    pub persistent_volume_reclaim_policy: String,
    #[serde(deserialize_with = "quantities")]
    pub capacity: Strings,
    pub access_modes: Vec<String>,
    pub storage_class_name: String,
    pub volume_mode: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

kinds! {
    Claim = "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims";
    Volume = "" "v1" "PersistentVolume" "persistentvolumes";
}

/// What must be written, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    CreateVolume(Value),
    /// Give an existing volume to the claim.
    TakeVolume {
        volume: String,
        patch: Value,
    },
    BindClaim(Value),
    ClaimStatus(Value),
    VolumeStatus {
        volume: String,
        patch: Value,
    },
}
