//! The upkeep of shared GPUs.

use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::json;

use crate::cluster::{Cluster, MINUTE, SOON, assignment, cluster, options};

async fn phase(c: &Cluster, pod: &str) -> String {
    let pod = c.raw(&format!("/api/v1/namespaces/default/pods/{pod}")).await;
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "going".into();
    }
    pod["status"]["phase"].as_str().unwrap_or("gone").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_gpu_goes_with_its_last_user() {
    let c = cluster(1, 2).await;
    c.serve(None);
    let binder = c.binder(None);
    for name in ["a", "b"] {
        binder.submit(&c.half(name, "node-0", &["g1"]).await).await.unwrap();
        c.until(SOON, "Succeeded - -", async |c| c.request_status(name).await).await;
    }
    binder.submit(&c.half("multi", "node-0", &["g1", "g2"]).await).await.unwrap();
    c.until(SOON, "Running", async |c| phase(c, "multi").await).await;
    c.delete("/api/v1/namespaces/default/pods/a").await;
    c.delete("/api/v1/namespaces/default/pods/b").await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(c.reservations().await, "g1@node-0 device, g2@node-0 device");
    c.delete("/api/v1/namespaces/default/pods/multi").await;
    c.until(SOON, "", Cluster::reservations).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_a_gpu_that_nobody_holds() {
    let c = cluster(1, 2).await;
    c.serve(None);
    let binder = c.binder(None);
    for (name, group) in [("a", "g1"), ("b", "g2")] {
        binder.submit(&c.half(name, "node-0", &[group]).await).await.unwrap();
        c.until(SOON, "Running", async |c| phase(c, name).await).await;
    }
    let reservation = muster_binder::steps::reserve::name("node-0", "g1");
    c.delete(&format!("/api/v1/namespaces/kai-resource-reservation/pods/{reservation}")).await;
    c.until(MINUTE, "gone", async |c| phase(c, "a").await).await;
    assert_eq!(phase(&c, "b").await, "Running");
    let events = c.raw("/api/v1/namespaces/default/events").await;
    let told =
        events["items"].as_array().unwrap().iter().find(|e| e["reason"] == "GpuReservationLost").unwrap();
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("group g1 on node node-0"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn no_reservation_outlives_its_node() {
    let c = cluster(2, 1).await;
    c.serve(None);
    let binder = c.binder(None);
    binder.submit(&c.half("a", "node-0", &["g1"]).await).await.unwrap();
    binder.submit(&c.half("b", "node-1", &["g2"]).await).await.unwrap();
    for name in ["a", "b"] {
        c.until(SOON, "Running", async |c| phase(c, name).await).await;
    }
    c.delete("/api/v1/nodes/node-0").await;
    c.until(SOON, "g2@node-1 device", Cluster::reservations).await;
}

#[tokio::test(start_paused = true)]
async fn left_overs_are_found_after_a_restart() {
    let c = cluster(1, 2).await;
    let binder = c.binder(None);
    binder.bind(&c.half("a", "node-0", &["g1"]).await).await.unwrap();
    binder.bind(&c.half("b", "node-0", &["g2"]).await).await.unwrap();
    c.delete("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(c.reservations().await, "g1@node-0 device, g2@node-0 device");
    c.serve(None);
    c.until(SOON, "g2@node-0 device", Cluster::reservations).await;
}

#[tokio::test(start_paused = true)]
async fn whole_gpus_are_not_given_while_shared_ones_linger() {
    let c = cluster(1, 1).await;
    let cancel = c.cancel.child_token();
    let (cx, events) = muster_runtime::Context::new(c.client(None), "muster", c.clock, cancel.clone());
    let binder = muster_binder::Binder::new(cx.api.named("muster"), crate::cluster::options());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(events);
    tasks.spawn(muster_binder::service::serve(&cx, &binder));
    cx.watch(&mut tasks);
    binder.bind(&c.half("half", "node-0", &["g1"]).await).await.unwrap();
    c.until(SOON, "Running", async |c| phase(c, "half").await).await;
    let limits = json!({"containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    let uid = c.pod("whole", json!({}), limits).await;
    let mut whole = assignment("whole", &uid, "node-0");
    whole.gpu_count = 1;
    // The scheduler sees the half go, and is quicker than the keeper of its GPU.
    c.delete("/api/v1/namespaces/default/pods/half").await;
    binder.bind(&whole).await.unwrap();
    assert_eq!(c.reservations().await, "");
    c.until(SOON, "Running", async |c| phase(c, "whole").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_nobody_shares_any_more_is_taken_back_when_needed() {
    let c = cluster(1, 1).await;
    let binder = c.binder(None);
    binder.bind(&c.half("a", "node-0", &["g1"]).await).await.unwrap();
    c.until(SOON, "Running", async |c| phase(c, "a").await).await;
    c.delete("/api/v1/namespaces/default/pods/a").await;
    // No keeper runs; a new GPU is opened where an old one lingers.
    binder.bind(&c.half("b", "node-0", &["g2"]).await).await.unwrap();
    assert_eq!(c.reservations().await, "g2@node-0 device");
}

#[tokio::test(start_paused = true)]
async fn reservations_of_another_namespace_count() {
    let c = cluster(1, 2).await;
    c.binder(None).bind(&c.half("a", "node-0", &["g1"]).await).await.unwrap();
    c.until(SOON, "Running", async |c| phase(c, "a").await).await;
    // This keeper looks in the wrong place, and must not take that for a loss.
    let mut wrong = options();
    wrong.reservation.namespace = "elsewhere".into();
    c.serve_as(None, wrong);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(phase(&c, "a").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_make_room_for_reservations_says_what_is_missing() {
    let c = cluster(1, 1).await;
    let half = c.half("a", "node-0", &["g1"]).await;
    let denied = Rule::on("create", "namespaces").times(1).fault(Fault::Status(403));
    let binder = c.binder(Some(&FaultLayer::new(1, vec![denied])));
    let error = binder.bind(&half).await.unwrap_err();
    assert!(!error.retryable(), "{error}");
    let said = error.to_string();
    assert!(said.contains(r#"namespaces "kai-resource-reservation" not found; create Namespace"#), "{said}");
    binder.bind(&half).await.unwrap();
}

/// Nobody keeps shared GPUs here but the binder itself.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_vanished_is_not_made_anew_under_running_pods() {
    let c = cluster(1, 2).await;
    let binder = c.binder(None);
    for (name, groups) in [("a", &["g1"][..]), ("several", &["g1", "g2"]), ("other", &["g2"])] {
        binder.bind(&c.half(name, "node-0", groups).await).await.unwrap();
        c.until(SOON, "Running", async |c| phase(c, name).await).await;
    }
    let reservation = muster_binder::steps::reserve::name("node-0", "g1");
    c.delete(&format!("/api/v1/namespaces/kai-resource-reservation/pods/{reservation}")).await;
    binder.bind(&c.half("b", "node-0", &["g1"]).await).await.unwrap();
    for (name, expected) in [("a", "gone"), ("several", "gone"), ("other", "Running")] {
        assert_eq!(phase(&c, name).await, expected, "{name}");
    }
    assert_eq!(c.reservations().await, "g1@node-0 device, g2@node-0 device");
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_a_gpu_that_its_group_is_no_more() {
    let c = cluster(1, 2).await;
    c.serve(None);
    let binder = c.binder(None);
    for (name, group) in [("a", "g1"), ("b", "g2")] {
        binder.submit(&c.half(name, "node-0", &[group]).await).await.unwrap();
        c.until(SOON, "Running", async |c| phase(c, name).await).await;
    }
    let reservation = muster_binder::steps::reserve::name("node-0", "g1");
    let path = format!("/api/v1/namespaces/kai-resource-reservation/pods/{reservation}");
    c.patch(&path, json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-another"}}}))
        .await;
    c.until(MINUTE, "gone", async |c| phase(c, "a").await).await;
    assert_eq!(phase(&c, "b").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_label_that_was_left_over_keeps_no_gpu() {
    let c = cluster(1, 1).await;
    let half = c.half("a", "node-0", &["g1"]).await;
    // A binder died after the last step, and a scheduler has given the request up.
    let faults = FaultLayer::new(1, vec![Rule::on("create", "pods/binding").fault(Fault::Silence)]);
    let dying = c.binder(Some(&faults));
    let begun = half.clone();
    let task = tokio::spawn(async move { dying.bind(&begun).await });
    c.until(MINUTE, "1", async |_| faults.n_faults().to_string()).await;
    task.abort();
    let failed = json!({"phase": "Failed", "reason": "cannot be bound: no", "failedAttempts": 1});
    c.patch(&format!("{}/a/status", crate::cluster::requests_path()), json!({"status": failed})).await;
    assert_eq!(c.reservations().await, "g1@node-0 device");
    c.serve(None);
    c.until(SOON, "", Cluster::reservations).await;
}
