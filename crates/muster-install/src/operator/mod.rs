//! The operator: a `kai.scheduler/v1` Config and its SchedulingShards become everything that runs.
//!
//! Acts only where a Config called `kai-config` exists; without one it does nothing at all.

pub mod plan;
pub mod run;

use muster_runtime::object::Meta;
use serde::Deserialize;
use serde_json::Value;

pub use plan::CONFIG_FLAGS;
pub use run::{Options, made, start};

/// The Config that counts. There is one per cluster.
pub const CONFIG: &str = "kai-config";

/// On a Config: which of Grove's components the operator deploys, by their names, or `true` for all of them. KAI's Config has no field
/// for them, and where it is not there another Grove operator may be at work.
pub const GROVE: &str = "muster.dev/grove";

/// On a Config: `true`, or a Configuration of Kueue's as JSON, where the operator deploys what keeps Kueue's workloads.
pub const KUEUE: &str = "muster.dev/kueue";

/// On a Config: `false` for no NetworkPolicies, or the ports of the API server with commas between them.
pub const NETWORK: &str = "muster.dev/network-policies";

/// On a Config: the address of its own at which a pod serves, such as `[::]`.
pub const LISTEN: &str = "muster.dev/listen";

/// On what the operator makes: a sum of all that it wanted when it wrote it, so that what it wants no more is noticed.
pub const WANTED: &str = "muster.dev/wanted";

/// The label of everything that the operator makes.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "muster-operator");

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulingShard {
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
}

muster_runtime::kinds! {
    Config = "kai.scheduler" "v1" "Config" "configs";
    SchedulingShard = "kai.scheduler" "v1" "SchedulingShard" "schedulingshards";
}
