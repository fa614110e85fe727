//! Kinds of other projects: with their definitions there, their pods come in the gangs that these kinds mean. Nobody runs
//! their controllers here, so the scenario makes the pods as these would.

mod every;

pub use every::every_kind;

use crate::manifests::foreign_kind;
use crate::room::Room;
use anyhow::{Context, Result, ensure};
use serde_json::json;

/// Creates an object of a kind whose definition may be very fresh.
async fn object(room: &Room, manifest: &str) -> Result<String> {
    let made = room
        .until("the kind is served", async || {
            let answer = room.try_apply(manifest).await?;
            ensure!(answer.status == 201, "{} {}", answer.status, String::from_utf8_lossy(&answer.body));
            answer.json().context("an object is JSON")
        })
        .await?;
    Ok(made["metadata"]["uid"].as_str().context("an object has a uid")?.to_owned())
}

/// A pod as a controller makes it.
fn member(name: &str, owner: &str, labels: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{kai.scheduler/queue: default-queue, {labels}}}
  ownerReferences: [{{{owner}, controller: true}}]
spec:
  schedulerName: kai-scheduler
  containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"#
    )
}

/// One master and two workers: nobody starts before all three are there.
pub async fn pytorch_job(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    room.apply(&foreign_kind("kubeflow.org", "v1", "PyTorchJob")).await?;
    let uid = object(
        room,
        "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: torch}, spec: {pytorchReplicaSpecs: {Master: {replicas: \
         1, template: {}}, Worker: {replicas: 2, template: {}}}}}",
    )
    .await?;
    let owner = format!("apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: torch, uid: {uid}");
    let labels = |role: &str, n: u32| {
        format!(
            "job: torch, training.kubeflow.org/replica-type: {role}, training.kubeflow.org/replica-index: \"{n}\""
        )
    };
    room.apply(&member("torch-worker-0", &owner, &labels("worker", 0))).await?;
    room.apply(&member("torch-worker-1", &owner, &labels("worker", 1))).await?;
    room.until_group_waits("pg-torch").await?;
    ensure!(room.placed("job=torch").await? == (0, 2));
    room.apply(&member("torch-master-0", &owner, &labels("master", 0))).await?;
    room.until_placed("job=torch", 3, 3).await?;
    ensure!(room.groups().await?.len() == 1, "{:?}", room.group_minimums().await?);
    Ok(())
}

/// A head and two workers.
pub async fn ray_cluster(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    room.apply(&foreign_kind("ray.io", "v1", "RayCluster")).await?;
    let uid = object(
        room,
        "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: ray}, spec: {headGroupSpec: {template: {}}, workerGroupSpecs: \
         [{groupName: small, replicas: 2, minReplicas: 2, maxReplicas: 4, template: {}}]}}",
    )
    .await?;
    let owner = format!("apiVersion: ray.io/v1, kind: RayCluster, name: ray, uid: {uid}");
    let head = "job: ray, ray.io/node-type: head, ray.io/group: headgroup";
    let worker = "job: ray, ray.io/node-type: worker, ray.io/group: small";
    room.apply(&member("ray-head", &owner, head)).await?;
    room.apply(&member("ray-small-0", &owner, worker)).await?;
    room.until_group_waits("pg-ray").await?;
    ensure!(room.placed("job=ray").await? == (0, 2));
    room.apply(&member("ray-small-1", &owner, worker)).await?;
    room.until_placed("job=ray", 3, 3).await?;
    // Beyond its minimum it grows.
    room.apply(&member("ray-small-2", &owner, worker)).await?;
    room.until_placed("job=ray", 4, 4).await?;
    ensure!(room.groups().await?.len() == 1, "{:?}", room.group_minimums().await?);
    Ok(())
}

/// Each replica of a leader with its workers is a gang of its own.
pub async fn leader_worker_set(room: &Room) -> Result<()> {
    room.nodes(&[3], |_| json!({})).await?;
    room.apply(&foreign_kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")).await?;
    let uid = object(
        room,
        "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: lws}, spec: {replicas: 2, \
         leaderWorkerTemplate: {size: 2, workerTemplate: {}}}}",
    )
    .await?;
    let owner =
        format!("apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: lws, uid: {uid}");
    let labels = |group: u32, index: u32| {
        format!(
            "group: \"{group}\", leaderworkerset.sigs.k8s.io/name: lws, leaderworkerset.sigs.k8s.io/group-index: \"{group}\", \
             leaderworkerset.sigs.k8s.io/worker-index: \"{index}\""
        )
    };
    for (group, index) in [(0, 0), (0, 1)] {
        room.apply(&member(&format!("lws-{group}-{index}"), &owner, &labels(group, index))).await?;
    }
    room.until_placed("group=0", 2, 2).await?;
    for (group, index) in [(1, 0), (1, 1)] {
        room.apply(&member(&format!("lws-{group}-{index}"), &owner, &labels(group, index))).await?;
    }
    // One GPU is left, and a replica needs two.
    room.until_refused("group=1").await?;
    ensure!(room.placed("group=1").await? == (0, 2));
    ensure!(room.groups().await?.len() == 2, "{:?}", room.group_minimums().await?);
    Ok(())
}
