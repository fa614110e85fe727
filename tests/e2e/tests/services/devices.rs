//! What a pod needs besides a node with room: a rack, a part of a GPU, a volume, a device by claim.

use crate::manifests::{gang_with, pod};
use crate::room::{Room, items, list_of};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeSet;

const RACK: &str = "e2e.example.com/rack";

/// Gangs that must be in one rack are in one, or wait, however many GPUs there are elsewhere.
pub async fn a_gang_stays_in_its_rack(room: &Room) -> Result<()> {
    room.nodes(&[2, 2, 2, 2], |n| json!({RACK: format!("rack-{}", n / 2)})).await?;
    room.apply(&format!(
        "{{apiVersion: kai.scheduler/v1alpha1, kind: Topology, metadata: {{name: $NS}}, spec: {{levels: [{{nodeLabel: {RACK}}}, \
         {{nodeLabel: kubernetes.io/hostname}}]}}}}"
    ))
    .await?;
    let here = "nodeSelector: {kubernetes.io/hostname: $NS-0}";
    room.apply(&pod("stone", 1, "kai.scheduler/queue: default-queue", "", here)).await?;
    room.until_placed("app=stone", 1, 1).await?;
    let in_a_rack = format!("kai.scheduler/topology: $NS, kai.scheduler/topology-required-placement: {RACK}");
    // Rack 0 has three GPUs left, rack 1 has four.
    room.apply(&gang_with("four", 4, 4, &in_a_rack)).await?;
    room.until_placed("app=four", 4, 4).await?;
    let nodes: BTreeSet<String> = [2, 3].map(|n| format!("{}-{n}", room.ns)).into();
    let seen = room.nodes_of("app=four").await?;
    ensure!(seen == nodes, "{seen:?}");
    room.apply(&gang_with("two", 2, 2, &in_a_rack)).await?;
    room.until_placed("app=two", 2, 2).await?;
    room.apply(&gang_with("late", 2, 2, &in_a_rack)).await?;
    room.until_refused("app=late").await?;
    ensure!(room.placed("app=late").await? == (0, 2));
    Ok(())
}

/// Two halves share the one GPU, a third has to wait; the pod that holds the GPU comes and goes with them.
pub async fn parts_of_a_gpu(room: &Room) -> Result<()> {
    room.nodes(&[1], |_| json!({})).await?;
    let half = |name: &str| {
        pod(name, 0, "part: half, kai.scheduler/queue: default-queue", "gpu-fraction: \"0.5\"", "")
    };
    room.apply(&half("left")).await?;
    room.apply(&half("right")).await?;
    room.until("both run on the one GPU", async || {
        let mut groups = BTreeSet::new();
        for pod in room.pods("part=half").await? {
            ensure!(pod.phase == "Running", "{} is {}", pod.name, pod.phase);
            let label = pod.all["metadata"]["labels"]["runai-gpu-group"].as_str();
            groups.insert(label.context("no GPU group")?.to_owned());
        }
        ensure!(groups.len() == 1, "{groups:?}");
        Ok(())
    })
    .await?;
    let held = async || -> Result<usize> {
        let pods = room.get("/api/v1/namespaces/kai-resource-reservation/pods").await?;
        let node = format!("{}-0", room.ns);
        Ok(items(&pods).filter(|pod| pod["spec"]["nodeName"] == node.as_str()).count())
    };
    ensure!(held().await? == 1, "{} pods hold the GPU", held().await?);
    room.apply(&half("third")).await?;
    room.until_refused("app=third").await?;
    room.delete("/api/v1/namespaces/$NS/pods/left").await?;
    room.until_placed("app=third", 1, 1).await?;
    ensure!(held().await? == 1, "{} pods hold the GPU", held().await?);
    room.delete("/api/v1/namespaces/$NS/pods/right").await?;
    room.delete("/api/v1/namespaces/$NS/pods/third").await?;
    room.until("nobody holds the GPU", async || {
        let pods = held().await?;
        ensure!(pods == 0, "{pods}");
        Ok(())
    })
    .await?;
    // And a pod that wants it whole gets it.
    room.apply(&pod("whole", 1, "kai.scheduler/queue: default-queue", "", "")).await?;
    room.until_placed("app=whole", 1, 1).await
}

/// A claim of a class that waits for its first consumer is told the node, and the pod follows when the volume is there.
/// The scenario plays the provisioner.
pub async fn a_volume_follows_its_pod(room: &Room) -> Result<()> {
    room.nodes(&[0, 0], |_| json!({})).await?;
    room.apply(
        r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: $NS}
provisioner: e2e.example.com/by-hand
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: $NS, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#,
    )
    .await?;
    let mounted = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]";
    room.apply(&pod("reader", 0, "kai.scheduler/queue: default-queue", "", mounted)).await?;
    let claim = "/api/v1/namespaces/$NS/persistentvolumeclaims/data";
    let node = room
        .until("the claim is told its node, or has a volume", async || {
            let claim = room.get(claim).await?;
            if claim["spec"]["volumeName"].is_string() {
                return Ok(None);
            }
            let node = claim.pointer("/metadata/annotations/volume.kubernetes.io~1selected-node");
            Ok(Some(node.and_then(|node| node.as_str()).context("no node yet")?.to_owned()))
        })
        .await?;
    if let Some(node) = node {
        ensure!(node.starts_with(&room.ns), "{node} is no node of this room");
        let uid = room.get(claim).await?;
        let uid = uid["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        room.apply(&format!(
            r#"
apiVersion: v1
kind: PersistentVolume
metadata: {{name: $NS, annotations: {{pv.kubernetes.io/provisioned-by: e2e.example.com/by-hand}}}}
spec:
  storageClassName: $NS
  accessModes: [ReadWriteOnce]
  capacity: {{storage: 1Gi}}
  persistentVolumeReclaimPolicy: Retain
  claimRef: {{apiVersion: v1, kind: PersistentVolumeClaim, namespace: $NS, name: data, uid: {uid}}}
  hostPath: {{path: /tmp/x}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]}}]}}}}
"#
        ))
        .await?;
        room.until_placed("app=reader", 1, 1).await?;
        let seen = room.nodes_of("app=reader").await?;
        ensure!(seen.contains(&node), "{seen:?} instead of {node}");
    }
    room.until("the pod runs", async || {
        let pods = room.pods("app=reader").await?;
        ensure!(
            pods.iter().all(|pod| pod.phase == "Running") && pods.len() == 1,
            "{:?}",
            pods.first().map(|p| &p.phase)
        );
        Ok(())
    })
    .await
}

/// Two devices and three claims: two pods run, each with a device of its own.
pub async fn devices_by_claim(room: &Room) -> Result<()> {
    room.nodes(&[0], |_| json!({})).await?;
    room.apply(
        r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: $NS}
spec: {selectors: [{cel: {expression: 'device.driver == "$NS.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: $NS}
spec:
  driver: $NS.example.com
  nodeName: $NS-0
  pool: {name: $NS-0, generation: 1, resourceSliceCount: 1}
  devices: [{name: first}, {name: second}]
"#,
    )
    .await?;
    for n in 0..3 {
        room.apply(&format!(
            "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: claim-{n}}}, spec: {{devices: {{requests: \
             [{{name: one, exactly: {{deviceClassName: $NS}}}}]}}}}}}"
        ))
        .await?;
        let claimed = format!("resourceClaims: [{{name: one, resourceClaimName: claim-{n}}}]");
        let manifest =
            pod(&format!("user-{n}"), 0, "role: user, kai.scheduler/queue: default-queue", "", &claimed);
        room.apply(&manifest.replace("resources: {limits: {}}", "resources: {claims: [{name: one}]}"))
            .await?;
    }
    room.until_placed("role=user", 2, 3).await?;
    room.until_refused("role=user").await?;
    let claims = room.get("/apis/resource.k8s.io/v1/namespaces/$NS/resourceclaims").await?;
    let devices: Vec<&str> = items(&claims)
        .flat_map(|claim| list_of(claim, "/status/allocation/devices/results"))
        .filter_map(|result| result["device"].as_str())
        .collect();
    let distinct: BTreeSet<&&str> = devices.iter().collect();
    ensure!(devices.len() == 2 && distinct.len() == 2, "{devices:?}");
    let reserved = items(&claims).filter(|claim| list_of(claim, "/status/reservedFor").count() == 1).count();
    ensure!(reserved == 2, "{reserved} claims are reserved");
    Ok(())
}
