//! How a claim becomes bound.
//!
//! In: a claim and the volumes. Out: what to write next. Must stay true: a volume is never given to two claims, and a
//! claim that names a volume gets that one or waits.

use std::sync::Arc;

use k8s_quantity::Quantity;
use serde_json::{Value, json};

use super::{Action, Claim, Volume};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";

pub fn plan(claim: &Claim, volumes: &[Arc<Volume>]) -> Vec<Action> {
    if claim.metadata.deleting() {
        return Vec::new();
    }
    let uid = &claim.metadata.uid;
    let claimed = volumes.iter().find(|v| v.spec.claim_ref.as_ref().is_some_and(|r| r.uid == *uid));
    let (name, volume) = if let Some(volume) = claimed {
        (volume.metadata.name.clone(), Some(volume))
    } else if !claim.spec.volume_name.is_empty() {
        let Some(volume) = volumes.iter().find(|v| v.metadata.name == claim.spec.volume_name) else {
            return Vec::new();
        };
        if volume.spec.claim_ref.as_ref().is_some_and(|r| !is_for(r, claim)) {
            return Vec::new();
        }
        (volume.metadata.name.clone(), Some(volume))
    } else if let Some(volume) = best_fit(claim, volumes) {
        (volume.metadata.name.clone(), Some(volume))
    } else if claim.spec.storage_class_name.as_deref() == Some("") {
        // No class means: only volumes that someone made by hand.
        return Vec::new();
    } else {
        (format!("pvc-{uid}"), None)
    };

    let mut actions = Vec::new();
    match volume {
        None => actions.push(Action::CreateVolume(new_volume(claim, &name))),
        Some(v) if v.spec.claim_ref.as_ref().is_none_or(|r| r.uid != *uid) => {
            actions.push(Action::TakeVolume {
                volume: name.clone(),
                patch: json!({
                    "metadata": {"annotations": {BOUND_BY: "yes"}},
                    "spec": {"claimRef": claim_ref(claim)},
                }),
            });
        }
        Some(_) => {}
    }
    if volume.is_none_or(|v| v.status.phase != "Bound") {
        actions.push(Action::VolumeStatus {
            volume: name.clone(),
            patch: json!({"status": {"phase": "Bound"}}),
        });
    }
    if claim.spec.volume_name != name || !claim.metadata.annotations.contains_key(BIND_COMPLETED) {
        actions.push(Action::BindClaim(json!({
            "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY: "yes"}},
            "spec": {"volumeName": name},
        })));
    }
    if claim.status.phase != "Bound" {
        let capacity = volume.map_or(&claim.spec.resources.requests, |v| &v.spec.capacity);
        actions.push(Action::ClaimStatus(json!({"status": {
            "phase": "Bound",
            "accessModes": claim.spec.access_modes,
            "capacity": {"storage": capacity.get("storage").map_or("1Gi", String::as_str)},
        }})));
    }
    actions
}

fn is_for(reference: &super::ClaimRef, claim: &Claim) -> bool {
    reference.namespace == claim.metadata.namespace
        && reference.name == claim.metadata.name
        && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
}

/// The smallest free volume of the same class that is large enough.
fn best_fit<'a>(claim: &Claim, volumes: &'a [Arc<Volume>]) -> Option<&'a Arc<Volume>> {
    let size = |q: Option<&String>| q.and_then(|t| t.parse::<Quantity>().ok()).map_or(0, Quantity::value);
    let want = size(claim.spec.resources.requests.get("storage"));
    let class = claim.spec.storage_class_name.as_deref().unwrap_or("");
    let reserved = volumes.iter().find(|v| v.spec.claim_ref.as_ref().is_some_and(|r| is_for(r, claim)));
    reserved.or_else(|| {
        volumes
            .iter()
            .filter(|v| v.spec.claim_ref.is_none() && !v.metadata.deleting())
            .filter(|v| v.spec.storage_class_name == class && size(v.spec.capacity.get("storage")) >= want)
            .filter(|v| claim.spec.access_modes.iter().all(|m| v.spec.access_modes.contains(m)))
            .min_by_key(|v| (size(v.spec.capacity.get("storage")), v.metadata.name.clone()))
    })
}

fn claim_ref(claim: &Claim) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    })
}

fn new_volume(claim: &Claim, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "sim.muster.dev"}},
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests.get("storage").map_or("1Gi", String::as_str)},
            "accessModes": claim.spec.access_modes,
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim.spec.storage_class_name.as_deref().unwrap_or(""),
            "volumeMode": if claim.spec.volume_mode.is_empty() { "Filesystem" } else { &claim.spec.volume_mode },
            "claimRef": claim_ref(claim),
            "hostPath": {"path": format!("/var/lib/sim/{name}")},
        },
    })
}

/// Volumes that the simulation made for claims that are gone.
pub fn abandoned(
    volumes: &[Arc<Volume>],
    claim_lives: impl Fn(&str, &str, &str) -> bool,
) -> Vec<Arc<Volume>> {
    volumes
        .iter()
        .filter(|v| v.spec.persistent_volume_reclaim_policy == "Delete" && !v.metadata.deleting())
        .filter(|v| v.metadata.annotations.contains_key("pv.kubernetes.io/provisioned-by"))
        .filter(|v| v.spec.claim_ref.as_ref().is_some_and(|r| !claim_lives(&r.namespace, &r.name, &r.uid)))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(spec: Value) -> Claim {
        serde_json::from_value(
            json!({"metadata": {"name": "c", "namespace": "ns", "uid": "cu"}, "spec": spec}),
        )
        .unwrap()
    }

    fn volume(name: &str, size: &str, claim: Option<&str>) -> Arc<Volume> {
        let mut v: Volume = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"capacity": {"storage": size}, "storageClassName": "fast"},
        }))
        .unwrap();
        v.spec.claim_ref = claim.map(|uid| super::super::ClaimRef {
            namespace: "ns".into(),
            name: "c".into(),
            uid: uid.into(),
        });
        Arc::new(v)
    }

    #[track_caller]
    fn check(claim: &Claim, volumes: &[Arc<Volume>], expected: &str) {
        let shown: Vec<String> = plan(claim, volumes)
            .iter()
            .map(|a| match a {
                Action::CreateVolume(v) => format!("create({})", v["metadata"]["name"].as_str().unwrap()),
                Action::TakeVolume { volume, .. } => format!("take({volume})"),
                Action::BindClaim(p) => format!("bind({})", p["spec"]["volumeName"].as_str().unwrap()),
                Action::ClaimStatus(_) => "bound".into(),
                Action::VolumeStatus { volume, .. } => format!("{volume}=bound"),
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn claims_are_bound() {
        let dynamic =
            claim(json!({"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}));
        check(&dynamic, &[], "create(pvc-cu) pvc-cu=bound bind(pvc-cu) bound");
        check(
            &dynamic,
            &[volume("big", "50Gi", None), volume("fit", "6Gi", None), volume("small", "1Gi", None)],
            "take(fit) fit=bound bind(fit) bound",
        );
        check(&dynamic, &[volume("mine", "5Gi", Some("cu"))], "mine=bound bind(mine) bound");
        check(
            &dynamic,
            &[volume("theirs", "5Gi", Some("other"))],
            "create(pvc-cu) pvc-cu=bound bind(pvc-cu) bound",
        );
        check(&claim(json!({"storageClassName": ""})), &[], "");
        check(&claim(json!({"volumeName": "v"})), &[], "");
        check(
            &claim(json!({"volumeName": "v"})),
            &[volume("v", "1Gi", None)],
            "take(v) v=bound bind(v) bound",
        );
        check(&claim(json!({"volumeName": "v"})), &[volume("v", "1Gi", Some("other"))], "");
    }

    #[test]
    fn volumes_go_with_their_claims() {
        let mut v = (*volume("v", "1Gi", Some("cu"))).clone();
        v.spec.persistent_volume_reclaim_policy = "Delete".into();
        v.metadata.annotations.insert("pv.kubernetes.io/provisioned-by".into(), "sim.muster.dev".into());
        let all = [Arc::new(v)];
        assert_eq!(abandoned(&all, |_, _, uid| uid == "cu").len(), 0);
        assert_eq!(abandoned(&all, |_, _, _| false).len(), 1);
    }
}
