//! Gangs on a live cluster.

use crate::cluster::{cluster, cluster_without, pod};
use muster_scheduler::{Limits, Options};
use muster_sim::Component;
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn whole_or_not_at_all() {
    let cluster = cluster(2, 8).await;
    cluster.gang("a", "q", 3, 3, 4).await;
    cluster.eventually("a", "0 waiting, 0 bound, 3 running").await;
    // One fits and two do not: none is bound.
    cluster.gang("b", "q", 3, 3, 4).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.eventually("b", "3 waiting, 0 bound, 0 running").await;
    cluster.delete("/api/v1/namespaces/default/pods/a-0").await;
    cluster.delete("/api/v1/namespaces/default/pods/a-1").await;
    cluster.eventually("b", "0 waiting, 0 bound, 3 running").await;
}

#[tokio::test(start_paused = true)]
async fn one_write_per_pod() {
    let cluster = cluster(10, 8).await;
    for i in 0..10 {
        cluster.gang(&format!("g{i}"), "q", 8, 8, 1).await;
    }
    for i in 0..10 {
        cluster.eventually(&format!("g{i}"), "0 waiting, 0 bound, 8 running").await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = cluster.writes.lock().unwrap().clone();
    let total: u32 = writes.values().sum();
    assert_eq!(writes.get("POST pods/binding"), Some(&80), "{writes:?}");
    assert!(total <= 80 + 10, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_says_why() {
    let cluster = cluster(1, 8).await;
    cluster.gang("a", "q", 1, 1, 9).await;
    cluster.gang("b", "nowhere", 1, 1, 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let group = |name: &str| format!("/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups/{name}");
    let status = |group: serde_json::Value| group["status"]["schedulingConditions"][0].clone();
    let a = status(cluster.get(&group("a")).await);
    assert_eq!(a["type"], "UnschedulableOnNodePool", "{a}");
    let b = status(cluster.get(&group("b")).await);
    assert_eq!(b["reasons"][0]["reason"], "QueueDoesNotExist", "{b}");
    let pod = cluster.get("/api/v1/namespaces/default/pods/a-0").await;
    assert_eq!(pod["status"]["conditions"][0]["reason"], "Unschedulable", "{pod}");
    // Once there is room, the condition goes.
    cluster.queue("nowhere", "", -1.0).await;
    cluster.eventually("b", "0 waiting, 0 bound, 1 running").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.get(&group("b")).await["status"]["schedulingConditions"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_queue_takes_back_what_it_deserves() {
    let cluster = cluster(2, 8).await;
    cluster.queue("all", "", -1.0).await;
    cluster.queue("x", "all", 8.0).await;
    cluster.queue("y", "all", 8.0).await;
    for i in 0..4 {
        cluster.gang(&format!("x{i}"), "x", 1, 1, 4).await;
        cluster.eventually(&format!("x{i}"), "0 waiting, 0 bound, 1 running").await;
    }
    cluster.gang("y0", "y", 2, 2, 4).await;
    cluster.eventually("y0", "0 waiting, 0 bound, 2 running").await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_everything_again() {
    let cluster = cluster(2, 8).await;
    let first = cluster.schedule(Options::default());
    first.cancel();
    cluster.gang("a", "q", 2, 2, 8).await;
    cluster.eventually("a", "0 waiting, 0 bound, 2 running").await;
    cluster.schedule(Options::default());
    cluster.gang("b", "q", 1, 1, 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.eventually("a", "0 waiting, 0 bound, 2 running").await;
    cluster.eventually("b", "1 waiting, 0 bound, 0 running").await;
}

#[tokio::test(start_paused = true)]
async fn pods_whose_volumes_do_not_come_hold_nobody_up() {
    let limits = Limits { binds: 2, steps: 4, ..Limits::default() };
    let cluster =
        cluster_without(Some(Component::Volumes), 2, 8, Options { limits, ..Options::default() }).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "never"},
        "provisioner": "nobody.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create("/apis/storage.k8s.io/v1/storageclasses", class).await;
    cluster.group("v", "q", 1).await;
    for i in 0..6 {
        let name = format!("v-{i}");
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"storageClassName": "never", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
        let mut pod = pod(&name, "v", 1);
        pod["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": name}}]);
        cluster.create("/api/v1/namespaces/default/pods", pod).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begun = tokio::time::Instant::now();
    cluster.gang("a", "q", 2, 2, 1).await;
    cluster.eventually("a", "0 waiting, 0 bound, 2 running").await;
    assert!(begun.elapsed() < Duration::from_secs(10), "virtual time: far less than a volume may take");
    // Nor does it keep others from being told why they wait.
    cluster.gang("b", "q", 1, 1, 9).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let pod = cluster.get("/api/v1/namespaces/default/pods/b-0").await;
    assert_eq!(pod["status"]["conditions"][0]["reason"], "Unschedulable", "{pod}");
    cluster.eventually("v", "6 waiting, 0 bound, 0 running").await;
}
