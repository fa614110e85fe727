//! Telling a pod to go.
//!
//! In: a pod, and why. Out: it has a deletion timestamp. Must stay true: the reason first, then the deletion: a pod never goes without a
//! word; only the very pod that was meant goes, not a later one of its name.

use jiff::Timestamp;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::clock::stamp;
use muster_runtime::common::Pod;
use muster_runtime::{Api, ApiError, Key, Object};
use serde_json::json;

/// Marks the pod as disrupted, and deletes it. `grace_seconds`: how long it is given to end; by itself, as long as it asks for.
pub async fn evict(
    api: &Api,
    pod: &Key,
    uid: &str,
    message: &str,
    now: Timestamp,
    grace_seconds: Option<i64>,
) -> Result<(), ApiError> {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": message,
        "lastTransitionTime": stamp(now),
    });
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    let path = Pod::RESOURCE.path(&pod.namespace, &pod.name, "");
    api.patch_path(&format!("{path}/status"), Patch::Strategic, &patch).await?;
    api.delete_path(&path, Delete { uid, grace_seconds, ..Delete::default() }).await?;
    Ok(())
}
