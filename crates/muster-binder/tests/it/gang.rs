//! Gangs: everything is prepared before anything is bound.

use muster_binder::{Assignment, BindError, Bound};
use muster_runtime::Key;
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::json;

use crate::cluster::{Cluster, SOON, allocation, assignment, cluster, only_from};

async fn bound(c: &Cluster, names: &[&str]) -> String {
    let mut all = Vec::new();
    for name in names {
        all.push(format!("{name}@{}", c.node_of(name).await));
    }
    all.join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_plain_gang_costs_a_request_per_pod() {
    let c = cluster(4, 0).await;
    let mut gang = Vec::new();
    for i in 0..8 {
        gang.push(c.plain(&format!("p{i}"), &format!("node-{}", i % 4)).await);
    }
    let binder = c.binder(None);
    // On a task of its own, as the scheduler does it.
    let results = tokio::spawn(async move { binder.bind_gang(&gang, 8, 4).await }).await.unwrap();
    assert!(results.iter().all(|r| *r == Ok(Bound { already: false })), "{results:?}");
    assert_eq!(c.take_asked(), "POST pods/binding ×8");
    assert_eq!(bound(&c, &["p0", "p5"]).await, "p0@node-0 p5@node-1");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_keeps_all_from_being_bound() {
    let c = cluster(1, 1).await;
    let plain = c.plain("plain", "node-0").await;
    let half = c.half("half", "node-0", &["g1"]).await;
    c.device_claim("dev").await;
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "dev"}]});
    let uid = c.pod("dra", json!({}), spec).await;
    let dra =
        Assignment { claims: vec![("gpu".into(), allocation("gpu-0"))], ..assignment("dra", &uid, "node-0") };
    let uid = c
        .pod("bad", json!({}), json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "absent"}]}))
        .await;
    let bad =
        Assignment { claims: vec![("gpu".into(), allocation("gpu-1"))], ..assignment("bad", &uid, "node-0") };

    let gang = [plain, half, dra, bad];
    let results = c.binder(None).bind_gang(&gang, 4, 8).await;
    let why = "device claim absent does not exist";
    assert_eq!(results[3], Err(BindError::Refused { text: why.into() }));
    for result in &results[..3] {
        assert_eq!(*result, Err(BindError::RolledBack { by: Key::new("default", "bad"), text: why.into() }));
    }
    assert_eq!(bound(&c, &["plain", "half", "dra", "bad"]).await, "plain@ half@ dra@ bad@");
    assert!(c.labels("half").await.is_empty());
    assert_eq!(c.device_claim_status("dev").await, " for ");
    assert!(
        c.request_status("dra")
            .await
            .starts_with("Failed 1 cannot be bound: rolled back, because default/bad")
    );
    assert_eq!(c.request_status("plain").await, "none");

    // With less needed, the others are bound.
    let results = c.binder(None).bind_gang(&gang, 3, 8).await;
    assert_eq!(bound(&c, &["plain", "half", "dra", "bad"]).await, "plain@node-0 half@node-0 dra@node-0 bad@");
    assert!(!results[3].as_ref().unwrap_err().retryable());
    assert_eq!(c.request_status("half").await, "Succeeded - -");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_fails_stops_the_rest() {
    let c = cluster(1, 0).await;
    let mut gang = Vec::new();
    for i in 0..6 {
        gang.push(c.plain(&format!("p{i}"), "node-0").await);
    }
    c.delete("/api/v1/namespaces/default/pods/p2").await;
    let results = c.binder(None).bind_gang(&gang, 6, 1).await;
    assert_eq!(results[1], Ok(Bound { already: false }));
    assert_eq!(results[2], Err(BindError::Gone));
    assert_eq!(
        results[3],
        Err(BindError::RolledBack { by: Key::new("default", "p2"), text: "the pod is gone".into() })
    );
    assert_eq!(c.take_asked(), "POST pods/binding ×3");
}

#[tokio::test(start_paused = true)]
async fn bad_moments_are_sat_out() {
    let c = cluster(1, 0).await;
    let mut gang = Vec::new();
    for i in 0..6 {
        gang.push(c.plain(&format!("p{i}"), "node-0").await);
    }
    let faults = FaultLayer::new(
        3,
        vec![
            Rule::on("create", "pods/binding").times(2).fault(Fault::Status(429)),
            Rule::on("create", "pods/binding").times(2).fault(Fault::LostAnswer),
            Rule::on("create", "pods/binding").times(2).fault(Fault::Status(500)),
        ],
    );
    let results = c.binder(Some(&faults)).bind_gang(&gang, 6, 2).await;
    assert_eq!(faults.n_faults(), 6);
    assert!(results.iter().all(Result::is_ok), "{results:?}");

    // But not for ever.
    let a = c.plain("a", "node-0").await;
    let silent = FaultLayer::new(3, vec![Rule::on("create", "pods/binding").fault(Fault::Status(503))]);
    let start = tokio::time::Instant::now();
    let error = c.binder(Some(&silent)).bind_gang(&[a], 1, 2).await.remove(0).unwrap_err();
    assert!(error.retryable());
    assert!(start.elapsed().as_secs() <= 10, "{:?}", start.elapsed());
}

fn selected(claim: &str) -> impl AsyncFn(&Cluster) -> String {
    let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{claim}");
    async move |c: &Cluster| {
        let claim = c.raw(&path).await;
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    }
}

fn mounts(claims: &[&str]) -> serde_json::Value {
    let volumes = claims.iter().map(|c| json!({"name": c, "persistentVolumeClaim": {"claimName": c}}));
    json!({"volumes": volumes.collect::<Vec<_>>()})
}

/// Two pods on two nodes with one claim between them.
async fn sharers(c: &Cluster) -> [Assignment; 2] {
    c.storage_class("fast", "csi.example.com").await;
    c.volume_claim("data", "fast").await;
    let mut gang = Vec::new();
    for i in 0..2 {
        let uid = c.pod(&format!("p{i}"), json!({}), mounts(&["data"])).await;
        let on = assignment(&format!("p{i}"), &uid, &format!("node-{i}"));
        gang.push(Assignment { volumes: true, ..on });
    }
    gang.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_gang_shares() {
    let c = cluster(2, 0).await;
    let gang = sharers(&c).await;
    let binder = c.binder(None);
    let task = tokio::spawn(async move { binder.bind_gang(&gang, 2, 8).await });
    tokio::time::sleep(SOON).await;
    assert!(!selected("data")(&c).await.is_empty());
    c.bind_volumes().await;
    assert_eq!(task.await.unwrap(), [Ok(Bound { already: false }), Ok(Bound { already: false })]);
    assert_eq!(bound(&c, &["p0", "p1"]).await, "p0@node-0 p1@node-1");
}

#[tokio::test(start_paused = true)]
async fn a_shared_volume_that_only_one_node_reaches() {
    let c = cluster(2, 0).await;
    let gang = sharers(&c).await;
    c.volume("disk", &json!("fast"), only_from("node-0")).await;
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    c.patch(path, json!({"spec": {"volumeName": "disk"}})).await;
    c.patch(&format!("{path}/status"), json!({"status": {"phase": "Bound"}})).await;
    let results = c.binder(None).bind_gang(&gang, 2, 8).await;
    let text = "node node-1 cannot reach volume disk of claim data".to_owned();
    assert_eq!(results[1], Err(BindError::Refused { text }));
    assert_eq!(bound(&c, &["p0", "p1"]).await, "p0@ p1@");
    let results = c.binder(None).bind_gang(&gang, 1, 8).await;
    assert_eq!(results[0], Ok(Bound { already: false }));
    assert_eq!(bound(&c, &["p0", "p1"]).await, "p0@node-0 p1@");
}

/// Volumes are made at the same time, for all claims of a pod and for all pods, however few requests may be under way.
#[tokio::test(start_paused = true)]
async fn waiting_for_volumes_takes_no_turns() {
    let c = cluster(1, 0).await;
    c.storage_class("fast", "csi.example.com").await;
    let mut gang = Vec::new();
    let mut claims = Vec::new();
    for i in 0..4 {
        let pair = [format!("a{i}"), format!("b{i}")];
        for claim in &pair {
            c.volume_claim(claim, "fast").await;
        }
        let uid = c.pod(&format!("p{i}"), json!({}), mounts(&[&pair[0], &pair[1]])).await;
        gang.push(Assignment { volumes: true, ..assignment(&format!("p{i}"), &uid, "node-0") });
        claims.extend(pair);
    }
    let binder = c.binder(None);
    let task = tokio::spawn(async move { binder.bind_gang(&gang, 4, 1).await });
    for claim in &claims {
        c.until(SOON, "node-0", selected(claim)).await;
    }
    c.bind_volumes().await;
    let results = task.await.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}
