//! Pods: how they run, end, crash and go.

use std::time::Duration;

use muster_sim::object::Pod;
use serde_json::json;

use crate::cluster::{cluster, phases, pod};

const SOON: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_pod_runs_and_is_deleted_gracefully() {
    let c = cluster(1, 0).await;
    c.apply::<Pod>(pod("a", json!({"sim.muster.dev/stop-delay": "5s"}), json!({}))).await;
    c.until(SOON, "Running+×1", phases).await;
    let running = c.get::<Pod>("a").await.unwrap();
    assert_eq!(running.spec.node_name, "node-0");
    assert!(running.status.pod_ip.starts_with("10."));
    let before = tokio::time::Instant::now();
    c.delete::<Pod>("a").await;
    c.until(SOON, "Going×1", async |c| phases(c).await.replace('+', "")).await;
    c.until(MINUTE, "", phases).await;
    let took = before.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(7)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_end_as_they_say() {
    let c = cluster(1, 0).await;
    let never = json!({"restartPolicy": "Never"});
    c.apply::<Pod>(pod("good", json!({"sim.muster.dev/duration": "3s"}), never.clone())).await;
    c.apply::<Pod>(pod(
        "bad",
        json!({"sim.muster.dev/duration": "3s", "sim.muster.dev/exit-code": "3"}),
        never,
    ))
    .await;
    c.until(SOON, "Running+×2", phases).await;
    c.until(MINUTE, "Failed×1 Succeeded×1", phases).await;
    let bad = c.get::<Pod>("bad").await.unwrap();
    assert_eq!(bad.status.container_statuses[0].state.terminated.as_ref().unwrap().exit_code, 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_crashes_and_comes_back() {
    let c = cluster(1, 0).await;
    let twice = json!({"sim.muster.dev/fail-attempts": "2", "sim.muster.dev/duration": "forever"});
    c.apply::<Pod>(pod("a", twice, json!({}))).await;
    let state = async |c: &crate::cluster::Cluster| {
        let Some(pod) = c.get::<Pod>("a").await else { return String::new() };
        let Some(status) = pod.status.container_statuses.first() else { return String::new() };
        let waiting = status.state.waiting.as_ref().map_or("", |w| w.reason.as_str());
        format!("{}{waiting}", status.restart_count)
    };
    c.until(MINUTE, "1CrashLoopBackOff", state).await;
    c.until(MINUTE, "2", state).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(state(&c).await, "2");
}

#[tokio::test(start_paused = true)]
async fn gpus_are_given_out_once_and_reservations_are_answered() {
    let c = cluster(1, 2).await;
    let gpu = |n: &str| json!({"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": n}}}]});
    c.apply::<Pod>(pod("a", json!({}), gpu("1"))).await;
    c.until(SOON, "Running+×1", phases).await;
    // Bound by hand to a full node: the kubelet refuses it.
    let mut greedy = pod("b", json!({}), gpu("2"));
    greedy["spec"]["nodeName"] = json!("node-0");
    c.apply::<Pod>(greedy).await;
    c.until(SOON, "Failed×1 Running+×1", phases).await;
    assert_eq!(c.get::<Pod>("b").await.unwrap().status.reason, "OutOfnvidia.com/gpu");

    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kai-resource-reservation"}});
    c.apply::<muster_sim::object::Namespace>(namespace).await;
    let mut reservation = pod("r", json!({}), gpu("1"));
    reservation["metadata"]["namespace"] = json!("kai-resource-reservation");
    reservation["spec"]["nodeName"] = json!("node-0");
    c.apply::<Pod>(reservation).await;
    c.until(SOON, "answered", async |c| {
        let pods = c.pods().await;
        let r = pods.iter().find(|p| p.metadata.name == "r").unwrap();
        let device = r.metadata.annotation("run.ai/reserve_for_gpu_index").unwrap_or("");
        if device.starts_with("GPU-") { "answered".into() } else { device.to_owned() }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_and_says_why() {
    let c = cluster(2, 0).await;
    let big =
        json!({"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "90"}}}]});
    for name in ["a", "b", "c"] {
        c.apply::<Pod>(pod(name, json!({}), big.clone())).await;
    }
    c.until(SOON, "Pending×1 Running+×2", phases).await;
    c.until(SOON, "0/2 nodes are available: 2 Insufficient cpu.", async |c| {
        let pods = c.raw("/api/v1/namespaces/default/pods").await;
        let waiting = pods["items"].as_array().unwrap().iter().find(|p| p["spec"]["nodeName"].is_null());
        let conditions = waiting.and_then(|p| p["status"]["conditions"].as_array()).into_iter().flatten();
        let mut messages = conditions.filter(|c| c["type"] == "PodScheduled").map(|c| &c["message"]);
        messages.next().and_then(|message| message.as_str()).unwrap_or_default().to_owned()
    })
    .await;
    let running = c.pods().await.into_iter().find(|p| !p.spec.node_name.is_empty()).unwrap();
    c.delete::<Pod>(&running.metadata.name).await;
    c.until(SOON, "Running+×2", phases).await;
}

/// A pod that does not stop when asked to is killed at the end of its grace period.
#[tokio::test(start_paused = true)]
async fn the_grace_period_ends_the_wait() {
    let c = cluster(1, 0).await;
    let slow = json!({"sim.muster.dev/stop-delay": "1h"});
    c.apply::<Pod>(pod("a", slow, json!({"terminationGracePeriodSeconds": 7}))).await;
    c.until(SOON, "Running+×1", phases).await;
    let before = tokio::time::Instant::now();
    c.delete::<Pod>("a").await;
    c.until(MINUTE, "", phases).await;
    let took = before.elapsed();
    assert!((Duration::from_secs(7)..Duration::from_secs(9)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn broken_gpus_are_given_to_nobody() {
    let c = cluster(1, 3).await;
    let gpu = |n: &str| json!({"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": n}}}]});
    let health = async |c: &crate::cluster::Cluster, name: &str| {
        let pod = c.get::<Pod>(name).await.unwrap();
        let devices = pod.status.container_statuses.iter().flat_map(|s| s.allocated_resources_status.clone());
        devices.flat_map(|d| d.resources).map(|d| d.health).collect::<Vec<_>>().join(" ")
    };
    c.apply::<Pod>(pod("a", json!({}), gpu("1"))).await;
    c.until(SOON, "Healthy", async |c| health(c, "a").await).await;
    let broken = |slots: &str| json!({"metadata": {"annotations": {"sim.muster.dev/unhealthy-gpus": slots}}});
    c.patch::<muster_sim::object::Node>("node-0", broken("0,1")).await;
    c.until(SOON, "Unhealthy", async |c| health(c, "a").await).await;
    c.delete::<Pod>("a").await;
    c.until(SOON, "", phases).await;
    c.apply::<Pod>(pod("b", json!({}), gpu("1"))).await;
    c.apply::<Pod>(pod("c", json!({}), gpu("1"))).await;
    c.until(SOON, "Pending×1 Running+×1", phases).await;
    // Both are of one age, and either may be first.
    assert_eq!(health(&c, "b").await + &health(&c, "c").await, "Healthy");
    c.patch::<muster_sim::object::Node>("node-0", broken("")).await;
    c.until(SOON, "Running+×2", phases).await;
}
