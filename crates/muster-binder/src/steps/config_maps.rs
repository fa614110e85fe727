//! Tells the pod which devices are its own.
//!
//! The admission webhook gave the pod the name of two ConfigMaps that do not exist yet (annotation
//! `runai/shared-gpu-configmap`): one whose keys the container's environment refers to, and `...-evar`, which it takes in
//! whole. In: the devices. Out: both ConfigMaps, owned by the pod. Must stay true: whatever key the environment refers to
//! is there, so that the container can start.

use muster_runtime::Object;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::json::merge_patch;
use muster_runtime::object::{Meta, Strings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Pod, Work};
use crate::assignment::Assignment;
use crate::error::BindError;

pub const CONFIG_MAP: &str = "runai/shared-gpu-configmap";
const CONTAINER: &str = "gpu-fraction-container-name";
const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
const NUM_OF_GPUS: &str = "RUNAI_NUM_OF_GPUS";
const PORTION: &str = "GPU_PORTION";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: Meta,
    data: Strings,
}

muster_runtime::kinds! {
    ConfigMap = "" "v1" "ConfigMap" "configmaps";
}

impl ConfigMap {
    fn is_of(&self, pod: &Pod) -> bool {
        self.metadata.owner_references.iter().any(|o| o.uid == pod.metadata.uid)
    }
}

/// A ConfigMap that must be there.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    name: String,
    data: Strings,
}

/// In: the pod and its devices. Out: the two ConfigMaps; none if the pod has no name for them.
fn wanted(assignment: &Assignment, pod: &Pod, devices: &str) -> Result<Vec<Wanted>, BindError> {
    let Some(stem) = pod.metadata.annotation(CONFIG_MAP).filter(|s| !s.is_empty()) else {
        return Ok(Vec::new());
    };
    // Users can write annotations, so this may be anything.
    if !stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.') {
        return Err(BindError::refused(format!("annotation {CONFIG_MAP} is no name of a ConfigMap")));
    }
    let (index, container) = container_of(pod)?;
    let name = format!("{stem}-{index}");
    let portion = assignment.portion();
    let mut keys: Strings =
        [(NUM_OF_GPUS.to_owned(), portion.clone()), (PORTION.to_owned(), portion.clone())].into();
    let mut whole = Strings::new();
    let mut refers = false;
    for variable in container["env"].as_array().into_iter().flatten() {
        let reference = &variable["valueFrom"]["configMapKeyRef"];
        if reference["name"].as_str() != Some(&name) {
            continue;
        }
        let Some(key) = reference["key"].as_str() else { continue };
        match variable["name"].as_str() {
            Some(VISIBLE_DEVICES) => {
                refers = true;
                keys.insert(key.to_owned(), devices.to_owned());
                keys.insert(VISIBLE_DEVICES.to_owned(), devices.to_owned());
            }
            Some(NUM_OF_GPUS | PORTION) => {
                keys.insert(key.to_owned(), portion.clone());
            }
            _ => {}
        }
    }
    if !refers {
        whole.insert(VISIBLE_DEVICES.to_owned(), devices.to_owned());
    }
    let evar = format!("{name}-evar");
    Ok(vec![Wanted { name, data: keys }, Wanted { name: evar, data: whole }])
}

/// The container that uses the GPU, and how ConfigMaps number it: `0`, or `i0` for an init container.
fn container_of(pod: &Pod) -> Result<(String, &Value), BindError> {
    let Some(name) = pod.metadata.annotation(CONTAINER).filter(|n| !n.is_empty()) else {
        let first = pod.spec.containers.first();
        return Ok(("0".to_owned(), first.unwrap_or(&Value::Null)));
    };
    let find = |list: &[Value]| list.iter().position(|c| c["name"].as_str() == Some(name));
    if let Some(i) = find(&pod.spec.containers) {
        return Ok((i.to_string(), &pod.spec.containers[i]));
    }
    if let Some(i) = find(&pod.spec.init_containers) {
        return Ok((format!("i{i}"), &pod.spec.init_containers[i]));
    }
    Err(BindError::refused(format!(
        "annotation {CONTAINER} names {name:?}, and the pod has no such container"
    )))
}

pub(crate) async fn perform(work: &Work<'_>, devices: &[String]) -> Result<(), BindError> {
    let named = |device: &String| {
        if work.options.reservation.cdi {
            format!("k8s.device-plugin.nvidia.com/gpu={device}")
        } else {
            device.clone()
        }
    };
    let devices: Vec<String> = devices.iter().map(named).collect();
    let wanted = wanted(work.assignment, work.pod, &devices.join(","))?;
    if wanted.is_empty() && work.options.require_config_map {
        return Err(BindError::refused(format!(
            "the pod has no annotation {CONFIG_MAP}, so it would see every GPU of its node: \
             the admission webhook was not there when it was created; create it again"
        )));
    }
    for config_map in &wanted {
        upsert(work, config_map).await?;
    }
    Ok(())
}

async fn upsert(work: &Work<'_>, wanted: &Wanted) -> Result<(), BindError> {
    let namespace = &work.assignment.pod.namespace;
    let meta = &work.pod.metadata;
    let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}]);
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": wanted.name, "namespace": namespace, "ownerReferences": owners},
        "data": wanted.data,
    });
    match work.api.create::<ConfigMap>(namespace, &body).await {
        Ok(_) => return Ok(()),
        Err(error) if error.already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    let key = muster_runtime::Key::new(namespace.clone(), wanted.name.clone());
    let found: ConfigMap = work.api.get(&key).await?;
    let owned = found.is_of(work.pod);
    if !owned {
        check_left_over(work, &key, &found).await?;
    }
    let mut patch = serde_json::Map::new();
    if let Some(change) = merge_patch(&json!(found.data), &json!(wanted.data)) {
        patch.insert("data".into(), change);
    }
    if !owned {
        patch.insert("metadata".into(), json!({"ownerReferences": owners}));
    }
    if !patch.is_empty() {
        work.api.patch::<ConfigMap>(&key, "", Patch::Merge, &Value::Object(patch)).await?;
    }
    Ok(())
}

/// Whether a ConfigMap of somebody else may be taken: it was made for a pod that is gone, an earlier one of this name most likely. A copy of a pod that
/// lives names that one's, and would change under it which GPU it has.
async fn check_left_over(
    work: &Work<'_>,
    key: &muster_runtime::Key,
    found: &ConfigMap,
) -> Result<(), BindError> {
    let pods = || found.metadata.owner_references.iter().filter(|owner| owner.kind == "Pod");
    if pods().next().is_none() {
        return Err(BindError::refused(format!(
            "ConfigMap {key}, which annotation {CONFIG_MAP} names, exists and was not made for a pod"
        )));
    }
    for owner in pods() {
        let pod = muster_runtime::Key::new(key.namespace.clone(), owner.name.clone());
        match work.api.get::<Pod>(&pod).await {
            Ok(other) if other.metadata.uid == owner.uid => {
                return Err(BindError::refused(format!(
                    "ConfigMap {key}, which annotation {CONFIG_MAP} names, is that of pod {pod}: \
                     a pod that is made from another must not have its annotation; remove it and create this pod again"
                )));
            }
            Ok(_) => {}
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(crate) async fn undo(work: &Work<'_>) -> Result<(), BindError> {
    for config_map in wanted(work.assignment, work.pod, "")? {
        let key = muster_runtime::Key::new(work.assignment.pod.namespace.clone(), config_map.name);
        let found: ConfigMap = match work.api.get(&key).await {
            Ok(found) => found,
            Err(error) if error.not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        if found.is_of(work.pod) {
            let delete = Delete { uid: &found.metadata.uid, ..Delete::default() };
            work.api.delete_path(&ConfigMap::RESOURCE.path(&key.namespace, &key.name, ""), delete).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: Value, expected: Value) {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let assignment = Assignment { gpu_portion_milli: Some(500), gpu_count: 1, ..Assignment::default() };
        let shown = match wanted(&assignment, &pod, "GPU-1") {
            Ok(all) => {
                all.into_iter().map(|w| (w.name, json!(w.data))).collect::<serde_json::Map<_, _>>().into()
            }
            Err(error) => json!(error.to_string()),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_the_pod_refers_to() {
        let half = json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50"});
        check(json!({"spec": {"containers": [{"name": "c"}]}}), json!({}));
        check(
            json!({"metadata": {"annotations": {CONFIG_MAP: "x-shared-gpu"}}, "spec": {"containers": [{"name": "c"}]}}),
            json!({"x-shared-gpu-0": half, "x-shared-gpu-0-evar": {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}}),
        );
        let reference = |name: &str, key: &str, of: &str| json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": of, "key": key}}});
        check(
            json!({
                "metadata": {"annotations": {CONFIG_MAP: "x", CONTAINER: "two"}},
                "spec": {"containers": [{"name": "one"}, {"name": "two", "env": [
                    reference("NVIDIA_VISIBLE_DEVICES", "RUNAI-VISIBLE-DEVICES", "x-1"),
                    reference("RUNAI_NUM_OF_GPUS", "N", "x-1"),
                    reference("OTHER", "K", "y"),
                ]}]},
            }),
            json!({
                "x-1": {"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50", "N": "0.50",
                    "RUNAI-VISIBLE-DEVICES": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1"},
                "x-1-evar": {},
            }),
        );
        check(
            json!({
                "metadata": {"annotations": {CONFIG_MAP: "x", CONTAINER: "pre"}},
                "spec": {"containers": [{"name": "one"}], "initContainers": [{"name": "pre"}]},
            }),
            json!({"x-i0": half, "x-i0-evar": {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}}),
        );
        check(
            json!({"metadata": {"annotations": {CONFIG_MAP: "../secrets/x"}}}),
            json!("annotation runai/shared-gpu-configmap is no name of a ConfigMap"),
        );
        check(
            json!({"metadata": {"annotations": {CONFIG_MAP: "x", CONTAINER: "three"}}}),
            json!(
                "annotation gpu-fraction-container-name names \"three\", and the pod has no such container"
            ),
        );
    }
}
