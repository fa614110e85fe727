//! Makes sure that a device claim is allocated as decided, and for this pod.
//!
//! In: the claim's name and the allocation. Out: the claim's status says both. Must stay true: an allocation that is there
//! is never replaced; a claim that got other devices than decided is refused, since its devices may be on another node.
//! Writes carry the version that was read.

use muster_runtime::Key;
use muster_runtime::api::{Delete, Patch};
use serde_json::{Value, json};

use super::{Pod, Work};
use crate::error::{BindError, text_of};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// As many pods as may share a claim.
const MOST_CONSUMERS: usize = 256;
/// How often a write is tried again at once when another writer was first.
const CLASHES: usize = 5;

/// The claim behind a name in the pod's spec; `None` when the pod turned out to need none.
pub(crate) fn claim_of(pod: &Pod, name: &str) -> Result<Option<String>, BindError> {
    let named = |entry: &&Value| entry["name"].as_str() == Some(name);
    let Some(entry) = pod.spec.resource_claims.iter().find(named) else {
        return Err(BindError::refused(format!("the pod has no device claim named {name}")));
    };
    if let Some(claim) = entry["resourceClaimName"].as_str() {
        return Ok(Some(claim.to_owned()));
    }
    match pod.status.resource_claim_statuses.iter().find(named) {
        Some(status) => Ok(status["resourceClaimName"].as_str().map(str::to_owned)),
        None => Err(BindError::retry(format!("the device claim {name} of the pod is not created yet"))),
    }
}

/// What stands between a claim and an assignment.
#[derive(Debug, PartialEq)]
enum Gap {
    None,
    /// The new status.
    Write(Value),
    Refused(String),
}

/// In: the claim as it is. Out: what to write.
fn gap(claim: &Value, allocation: &Value, pod: &Pod) -> Gap {
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    let uid = &pod.metadata.uid;
    if claim["metadata"]["deletionTimestamp"].is_string() {
        return Gap::Refused(format!("device claim {name} is being deleted"));
    }
    let current = claim["status"].get("allocation").filter(|a| a.is_object());
    if let Some(current) = current
        && devices(current) != devices(allocation)
    {
        return Gap::Refused(format!("device claim {name} was allocated other devices than decided"));
    }
    let consumers = claim["status"]["reservedFor"].as_array().map_or(&[][..], Vec::as_slice);
    let ours = consumers.iter().any(|c| c["uid"].as_str() == Some(uid));
    if ours && current.is_some() {
        return Gap::None;
    }
    let mut status = json!({});
    if current.is_none() {
        status["allocation"] = allocation.clone();
    }
    if !ours {
        if consumers.len() >= MOST_CONSUMERS {
            return Gap::Refused(format!("device claim {name} already has {MOST_CONSUMERS} consumers"));
        }
        let mut all = consumers.to_vec();
        all.push(json!({"resource": "pods", "name": pod.metadata.name, "uid": uid}));
        status["reservedFor"] = json!(all);
    }
    Gap::Write(status)
}

/// Which devices an allocation gives, in any order.
fn devices(allocation: &Value) -> Vec<[&str; 4]> {
    let results = allocation["devices"]["results"].as_array().into_iter().flatten();
    let mut all: Vec<[&str; 4]> = results
        .map(|r| ["request", "driver", "pool", "device"].map(|field| r[field].as_str().unwrap_or_default()))
        .collect();
    all.sort_unstable();
    all
}

fn path(namespace: &str, name: &str, sub: &str) -> String {
    let tail = if sub.is_empty() { String::new() } else { format!("/{sub}") };
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}{tail}")
}

pub(crate) async fn perform(work: &Work<'_>, name: &str, allocation: &Value) -> Result<(), BindError> {
    let namespace = &work.assignment.pod.namespace;
    let mut clashes = 0;
    loop {
        let claim = match work.api.get_path(&path(namespace, name, "")).await {
            Ok(claim) => claim,
            Err(error) if error.not_found() => {
                return Err(BindError::refused(format!("device claim {name} does not exist")));
            }
            Err(error) => return Err(error.into()),
        };
        let status = match gap(&claim, allocation, work.pod) {
            Gap::None => return Ok(()),
            Gap::Refused(text) => return Err(BindError::Refused { text }),
            Gap::Write(status) => status,
        };
        let meta = &claim["metadata"];
        let finalizers = meta["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let protects = work.options.protect_claims && status.get("allocation").is_some();
        let answer = if protects && !finalizers.iter().any(|f| f == FINALIZER) {
            let mut all = finalizers.to_vec();
            all.push(json!(FINALIZER));
            let patch = json!({"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": all}});
            work.api.patch_path(&path(namespace, name, ""), Patch::Merge, &patch).await
        } else {
            let patch = json!({"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status});
            work.api.patch_path(&path(namespace, name, "status"), Patch::Merge, &patch).await
        };
        match answer {
            Ok(_) => {}
            Err(error) if error.conflict() && clashes < CLASHES => clashes += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The pod no longer uses the claim; if nobody else does, its devices are free again.
pub(crate) async fn undo(work: &Work<'_>, name: &str) -> Result<(), BindError> {
    let namespace = &work.assignment.pod.namespace;
    for _ in 0..CLASHES {
        let claim = match work.api.get_path(&path(namespace, name, "")).await {
            Ok(claim) => claim,
            Err(error) if error.not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Some(status) = without(&claim, &work.pod.metadata.uid) else { return Ok(()) };
        let version = &claim["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        match work.api.patch_path(&path(namespace, name, "status"), Patch::Merge, &patch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.conflict() => {}
            Err(error) if error.not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(BindError::retry(format!("device claim {name} changes too often to be given back")))
}

/// The change of status that takes a pod off a claim; `None` if it is not on it.
fn without(claim: &Value, uid: &str) -> Option<Value> {
    let consumers = claim["status"]["reservedFor"].as_array()?;
    let rest: Vec<&Value> = consumers.iter().filter(|c| c["uid"].as_str() != Some(uid)).collect();
    if rest.len() == consumers.len() {
        return None;
    }
    if rest.is_empty() {
        return Some(json!({"reservedFor": null, "allocation": null}));
    }
    Some(json!({"reservedFor": rest}))
}

/// The claim for a pod's extended resources: the same name for the same pod, so it is made once.
fn extended_name(pod: &Pod) -> String {
    let stem: String = pod.metadata.name.chars().take(200).collect();
    let tail: String = pod.metadata.uid.chars().filter(char::is_ascii_alphanumeric).take(10).collect();
    format!("{}-extended-resources-{tail}", stem.trim_end_matches(['-', '.']))
}

pub(crate) async fn perform_extended(work: &Work<'_>, given: &Value) -> Result<(), BindError> {
    let allocation = &given["allocation"];
    if !allocation.is_object() {
        return Err(BindError::refused("extendedResourceClaimAllocation has no allocation"));
    }
    let namespace = &work.assignment.pod.namespace;
    let meta = &work.pod.metadata;
    let name = extended_name(work.pod);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {EXTENDED: "true"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": true,
            }],
        },
        "spec": {"devices": {"requests": given["deviceRequests"]}},
    });
    let collection = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
    match work.api.create_path(&collection, &claim).await {
        Ok(_) => {}
        Err(error) if error.already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    perform(work, &name, allocation).await?;
    let mapped = given["containerMappings"].as_array().map_or(&[][..], Vec::as_slice);
    let status = json!({"resourceClaimName": name, "requestMappings": mapped});
    if work.pod.status.extended_resource_claim_status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": meta.uid}, "status": {"extendedResourceClaimStatus": status}});
    match work.api.patch::<Pod>(&work.assignment.pod, "status", Patch::Merge, &patch).await {
        Ok(_) => Ok(()),
        Err(error) if error.not_found() => Err(BindError::Gone),
        Err(error) => Err(BindError::Retry { text: text_of(&error), after: error.retry_after() }),
    }
}

pub(crate) async fn undo_extended(work: &Work<'_>) -> Result<(), BindError> {
    let name = extended_name(work.pod);
    undo(work, &name).await?;
    let namespace = &work.assignment.pod.namespace;
    work.api.delete_path(&path(namespace, &name, ""), Delete::default()).await?;
    let patch =
        json!({"metadata": {"uid": work.pod.metadata.uid}, "status": {"extendedResourceClaimStatus": null}});
    let key: &Key = &work.assignment.pod;
    match work.api.patch::<Pod>(key, "status", Patch::Merge, &patch).await {
        Ok(_) => Ok(()),
        Err(error) if error.not_found() || error.conflict() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}})).unwrap()
    }

    fn allocation(device: &str) -> Value {
        json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": device}]}})
    }

    #[track_caller]
    fn check(status: Value, expected: &str) {
        let claim = json!({"metadata": {"name": "c"}, "status": status});
        let shown = match gap(&claim, &allocation("gpu-0"), &pod()) {
            Gap::None => "nothing".to_owned(),
            Gap::Refused(text) => text,
            Gap::Write(status) => {
                let n = status["reservedFor"].as_array().map(Vec::len);
                format!("allocation {} consumers {n:?}", status.get("allocation").is_some())
            }
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn gaps() {
        let us = json!({"resource": "pods", "name": "p", "uid": "u"});
        let them = json!({"resource": "pods", "name": "q", "uid": "v"});
        check(Value::Null, "allocation true consumers Some(1)");
        check(json!({"allocation": allocation("gpu-0")}), "allocation false consumers Some(1)");
        check(json!({"allocation": allocation("gpu-0"), "reservedFor": [us]}), "nothing");
        check(
            json!({"allocation": allocation("gpu-0"), "reservedFor": [them]}),
            "allocation false consumers Some(2)",
        );
        check(
            json!({"allocation": allocation("gpu-1")}),
            "device claim c was allocated other devices than decided",
        );
        check(json!({"reservedFor": [us]}), "allocation true consumers None");
        let crowd: Vec<Value> = (0..256).map(|i| json!({"uid": format!("x{i}")})).collect();
        check(
            json!({"allocation": allocation("gpu-0"), "reservedFor": crowd}),
            "device claim c already has 256 consumers",
        );
    }

    #[test]
    fn taking_a_pod_off() {
        let of = |consumers: Value| json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers}});
        assert_eq!(without(&of(json!([])), "u"), None);
        assert_eq!(without(&json!({}), "u"), None);
        assert_eq!(
            without(&of(json!([{"uid": "u"}])), "u"),
            Some(json!({"reservedFor": null, "allocation": null}))
        );
        assert_eq!(
            without(&of(json!([{"uid": "u"}, {"uid": "v"}])), "u"),
            Some(json!({"reservedFor": [{"uid": "v"}]}))
        );
    }

    #[test]
    fn names_of_extended_claims() {
        let mut pod = pod();
        pod.metadata.uid = "0f1e2d3c-4b5a-6978".into();
        assert_eq!(extended_name(&pod), "p-extended-resources-0f1e2d3c4b");
        pod.metadata.name = "x".repeat(253);
        assert!(extended_name(&pod).len() <= 253);
    }
}
