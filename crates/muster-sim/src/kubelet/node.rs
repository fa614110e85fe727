//! What a simulated node says of itself.
//!
//! In: a Node as it is, the default shape, the time. Out: the patch of its metadata, the patch of its status, or
//! nothing when all is as it should be.
//! Must stay true: what someone wrote into a node stays, and only what is missing is filled in; save that allocatable
//! GPUs (`*/gpu`) are always the capacity less the unhealthy ones.
//!
//! | annotation | meaning |
//! |---|---|
//! | `sim.muster.dev/fail` | `"true"`: the machine is silent. No heartbeats, no pod changes; what ran goes on unseen |
//! | `sim.muster.dev/not-ready` | the kubelet reports itself not ready, with this text as message; `"false"`: it does not |
//! | `sim.muster.dev/unhealthy-gpus` | `"0,3"`: these are not allocatable and are given to no pod |
//! | `sim.muster.dev/drain` | `"true"`: the node is cordoned and its pods are evicted (see the lifecycle controller) |

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock::stamp;
use crate::fit::Amounts;
use crate::fleet::Shape;
use crate::object::{Node, Strings, condition};

pub const FAIL: &str = "sim.muster.dev/fail";
pub const NOT_READY: &str = "sim.muster.dev/not-ready";
pub const UNHEALTHY_GPUS: &str = "sim.muster.dev/unhealthy-gpus";
pub const DRAIN: &str = "sim.muster.dev/drain";

/// True when the machine is silent.
pub fn failed(node: &Node) -> bool {
    node.metadata.annotation(FAIL).is_some_and(|v| v != "false")
}

/// What the node says is wrong with it, if anything.
fn not_ready(node: &Node) -> Option<&str> {
    node.metadata.annotation(NOT_READY).filter(|text| *text != "false")
}

/// The slots of the GPUs that are broken; what is no number is left out.
pub fn unhealthy_gpus(node: &Node) -> BTreeSet<u32> {
    let text = node.metadata.annotation(UNHEALTHY_GPUS).unwrap_or_default();
    text.split(',').filter_map(|slot| slot.trim().parse().ok()).collect()
}

/// Labels and annotations that are missing.
pub fn metadata_patch(node: &Node, shape: &Shape) -> Option<Value> {
    let mut labels = Map::new();
    let mut want = |name: &str, value: &str| {
        if !node.metadata.labels.contains_key(name) {
            labels.insert(name.to_owned(), json!(value));
        }
    };
    want("kubernetes.io/hostname", &node.metadata.name);
    want("kubernetes.io/os", "linux");
    want("kubernetes.io/arch", "amd64");
    // The default GPUs are added only to a node that came without any capacity.
    if node.status.capacity.is_empty() && shape.gpus > 0 {
        for (name, value) in crate::fleet::gpu_labels(shape.gpus, &shape.gpu.product, &shape.gpu.memory) {
            want(&name, &value);
        }
    }
    (!labels.is_empty()).then(|| json!({"metadata": {"labels": labels}}))
}

/// The status that a live node lacks. `version`: of the kubelet. `heartbeat`: the times are due even if nothing else
/// is.
pub fn status_patch(
    node: &Node,
    shape: &Shape,
    version: &str,
    address: &str,
    now: Timestamp,
    heartbeat: bool,
) -> Option<Value> {
    let mut status = Map::new();
    let capacity = wanted_capacity(node, shape);
    if capacity != node.status.capacity {
        status.insert("capacity".into(), json!(capacity));
    }
    let allocatable = wanted_allocatable(node, &capacity);
    if !same_amounts(&allocatable, &node.status.allocatable) {
        status.insert("allocatable".into(), json!(allocatable));
    }
    let has = |kind: &str| node.status.addresses.iter().any(|a| a.kind == kind && !a.address.is_empty());
    if !has("InternalIP") || !has("Hostname") {
        let ip =
            node.status.addresses.iter().find(|a| a.kind == "InternalIP").map_or(address, |a| &a.address);
        status.insert(
            "addresses".into(),
            json!([{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": node.metadata.name}]),
        );
    }
    if node.status.node_info.kubelet_version.is_empty() {
        status.insert("nodeInfo".into(), node_info(&node.metadata.name, version));
    }
    let conditions = wanted_conditions(node, now, heartbeat);
    if !conditions.is_empty() {
        status.insert("conditions".into(), Value::Array(conditions));
    }
    (!status.is_empty()).then(|| json!({"status": status}))
}

fn wanted_capacity(node: &Node, shape: &Shape) -> Strings {
    let mut capacity = node.status.capacity.clone();
    let bare = capacity.is_empty();
    let mut fill = |name: &str, value: String| {
        capacity.add(name, value);
    };
    fill("cpu", shape.cpu.clone());
    fill("memory", shape.memory.clone());
    fill("pods", shape.pods.to_string());
    fill("ephemeral-storage", "1Ti".into());
    if bare && shape.gpus > 0 {
        fill(&shape.gpu.resource, shape.gpus.to_string());
    }
    capacity
}

/// Allocatable is the capacity where nothing was said, less the GPUs that are unhealthy.
fn wanted_allocatable(node: &Node, capacity: &Strings) -> Strings {
    let mut allocatable = node.status.allocatable.clone();
    for (name, value) in capacity {
        allocatable.add(name, value.as_str());
    }
    let unhealthy = unhealthy_gpus(node);
    let amounts = Amounts::read(capacity);
    for (name, value) in allocatable.iter_mut().filter(|(name, _)| name.ends_with("/gpu")) {
        let n_gpus = amounts.get(name);
        let n_bad = unhealthy.iter().filter(|slot| i64::from(**slot) < n_gpus).count();
        *value = n_gpus.saturating_sub(i64::try_from(n_bad).unwrap_or(i64::MAX)).max(0).to_string();
    }
    allocatable
}

fn same_amounts(a: &Strings, b: &Strings) -> bool {
    a.keys().eq(b.keys()) && Amounts::read(a) == Amounts::read(b)
}

fn wanted_conditions(node: &Node, now: Timestamp, heartbeat: bool) -> Vec<Value> {
    let ready = match not_ready(node) {
        Some(text) => ("Ready", "False", "KubeletNotReady", text.to_owned()),
        None => ("Ready", "True", "KubeletReady", "kubelet is posting ready status".to_owned()),
    };
    let good = |kind, reason, message: &str| (kind, "False", reason, message.to_owned());
    let rows = [
        good("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        good("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        good("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ready,
    ];
    let mut patches = Vec::new();
    for (kind, status, reason, message) in rows {
        let old = condition(&node.status.conditions, kind);
        let flips = old.is_none_or(|c| c.status != status);
        let differs = flips || old.is_none_or(|c| c.reason != reason || c.message != message);
        if !differs && !heartbeat {
            continue;
        }
        let since = old.filter(|_| !flips).and_then(|c| c.last_transition_time).unwrap_or(now);
        patches.push(json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp(now),
            "lastTransitionTime": stamp(since),
        }));
    }
    patches
}

fn node_info(name: &str, version: &str) -> Value {
    let id = format!("{:016x}", crate::json::stable_u64(name));
    json!({
        "architecture": "amd64",
        "operatingSystem": "linux",
        "osImage": "Muster simulated node",
        "kernelVersion": "6.12.0-sim",
        "containerRuntimeVersion": "sim://1.0.0",
        "kubeletVersion": version,
        "kubeProxyVersion": "",
        "bootID": id,
        "machineID": id,
        "systemUUID": id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    /// Applies a status patch the way the server would, as far as these tests need it.
    fn applied(node: &Node, patch: &Value) -> Node {
        let mut out = node.clone();
        let status = &patch["status"];
        if let Some(c) = status.get("capacity") {
            out.status.capacity = serde_json::from_value(c.clone()).unwrap();
        }
        if let Some(c) = status.get("allocatable") {
            out.status.allocatable = serde_json::from_value(c.clone()).unwrap();
        }
        if let Some(c) = status.get("addresses") {
            out.status.addresses = serde_json::from_value(c.clone()).unwrap();
        }
        if status.get("nodeInfo").is_some() {
            out.status.node_info.kubelet_version = "v1".into();
        }
        for c in status.get("conditions").and_then(Value::as_array).into_iter().flatten() {
            let c: crate::object::Condition = serde_json::from_value(c.clone()).unwrap();
            out.status.conditions.retain(|o| o.kind != c.kind);
            out.status.conditions.push(c);
        }
        out
    }

    #[test]
    fn a_bare_node_is_filled_in_once() {
        let bare = node(json!({"metadata": {"name": "n"}}));
        let shape = Shape::with_gpus(8);
        let patch = status_patch(&bare, &shape, "v1", "10.128.0.7", now(), false).unwrap();
        assert_eq!(patch["status"]["capacity"]["nvidia.com/gpu"], "8");
        assert_eq!(patch["status"]["allocatable"]["cpu"], "96");
        assert_eq!(patch["status"]["addresses"][0]["address"], "10.128.0.7");
        assert_eq!(patch["status"]["conditions"][3]["status"], "True");
        let full = applied(&bare, &patch);
        assert_eq!(
            status_patch(&full, &shape, "v1", "x", now(), false),
            None,
            "a second look changes nothing"
        );
        let beat = status_patch(&full, &shape, "v1", "x", now(), true).unwrap();
        assert_eq!(beat["status"].as_object().unwrap().len(), 1, "a heartbeat is only conditions");
    }

    #[test]
    fn what_was_written_stays() {
        let own = node(json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}));
        let patch = status_patch(&own, &Shape::with_gpus(8), "v1", "", now(), false).unwrap();
        assert_eq!(patch["status"]["capacity"]["cpu"], "4");
        assert_eq!(patch["status"]["capacity"]["memory"], "768Gi");
        assert_eq!(
            patch["status"]["capacity"].get("nvidia.com/gpu"),
            None,
            "no GPUs where capacity was given"
        );
    }

    #[test]
    fn annotations_change_the_status() {
        let shape = Shape::with_gpus(4);
        let bare = node(json!({"metadata": {"name": "n"}}));
        let mut full = applied(&bare, &status_patch(&bare, &shape, "v1", "a", now(), false).unwrap());
        full.metadata.annotations.insert(UNHEALTHY_GPUS.into(), "0, 3,3,x,99".into());
        let patch = status_patch(&full, &shape, "v1", "a", now(), false).unwrap();
        assert_eq!(patch["status"]["allocatable"]["nvidia.com/gpu"], "2");
        full.metadata.annotations.clear();
        full.metadata.annotations.insert(NOT_READY.into(), "disk on fire".into());
        let patch = status_patch(&full, &shape, "v1", "a", now(), false).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["reason"], "KubeletNotReady");
        assert_eq!(patch["status"]["conditions"][0]["message"], "disk on fire");
        full.metadata.annotations.insert(NOT_READY.into(), "false".into());
        assert_eq!(status_patch(&full, &shape, "v1", "a", now(), false), None);
        full.metadata.annotations = [(FAIL.to_owned(), "true".to_owned())].into();
        assert!(failed(&full));
    }

    #[test]
    fn labels_are_added_not_changed() {
        let bare = node(json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": "plan9"}}}));
        let patch = metadata_patch(&bare, &Shape::with_gpus(2)).unwrap();
        assert_eq!(patch["metadata"]["labels"].get("kubernetes.io/os"), None);
        assert_eq!(patch["metadata"]["labels"]["nvidia.com/gpu.count"], "2");
    }
}
