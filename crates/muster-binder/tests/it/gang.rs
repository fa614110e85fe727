//! Gangs: everything is prepared before anything is bound.

use muster_binder::{Assignment, BindError, Bound};
use muster_runtime::Key;
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::json;

use crate::cluster::{Cluster, allocation, assignment, cluster};

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
