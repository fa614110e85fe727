//! Pods that need nothing but their Binding.

use muster_binder::{BindError, Binder, Bound};
use muster_runtime::{Api, Metrics};
use serde_json::json;

use crate::cluster::{SOON, assignment, cluster, options};

#[tokio::test(start_paused = true)]
async fn one_request_is_all() {
    let c = cluster(2, 0).await;
    let a = c.plain("a", "node-1").await;
    let binder = c.binder(None);
    assert_eq!(binder.bind_plain(&a).await, Ok(Bound { already: false }));
    assert_eq!(c.take_asked(), "POST pods/binding ×1");
    assert_eq!(c.node_of("a").await, "node-1");
    // Once more, as after a lost answer.
    assert_eq!(binder.bind_plain(&a).await, Ok(Bound { already: true }));
    assert_eq!(c.take_asked(), "GET pods ×1, POST pods/binding ×1");
    c.until(SOON, "Running", async |c| {
        c.raw("/api/v1/namespaces/default/pods/a").await["status"]["phase"].as_str().unwrap_or("").into()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_the_way() {
    let c = cluster(2, 0).await;
    let binder = c.binder(None);
    let a = c.plain("a", "node-0").await;
    binder.bind(&a).await.unwrap();

    let mut elsewhere = a.clone();
    elsewhere.node = "node-1".into();
    assert_eq!(binder.bind(&elsewhere).await, Err(BindError::Elsewhere { node: "node-0".into() }));

    let mut another = a.clone();
    another.pod_uid = "not-the-one".into();
    assert_eq!(binder.bind(&another).await, Err(BindError::Gone));
    assert_eq!(binder.bind(&assignment("nobody", "", "node-0")).await, Err(BindError::Gone));

    let uid = c.pod("gated", json!({}), json!({"schedulingGates": [{"name": "later"}]})).await;
    let gated = binder.bind(&assignment("gated", &uid, "node-0")).await.unwrap_err();
    assert!(!gated.retryable() && gated.to_string().contains("schedulingGates"), "{gated}");
}

#[tokio::test(start_paused = true)]
async fn annotations_come_with_the_binding() {
    let c = cluster(1, 0).await;
    let mut a = c.plain("a", "node-0").await;
    a.zones = Some(json!([{"zone": "0", "amount": {"cpu": "2"}}]));
    c.binder(None).bind(&a).await.unwrap();
    let pod = c.raw("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(
        pod["metadata"]["annotations"]["kai.scheduler/numa-placement-predicted"],
        r#"[{"amount":{"cpu":"2"},"zone":"0"}]"#
    );
    assert_eq!(c.take_asked(), "POST pods/binding ×1");
}

#[tokio::test(start_paused = true)]
async fn bindings_are_counted_by_how_they_ended() {
    let c = cluster(2, 0).await;
    let metrics = Metrics::default();
    let binder = Binder::new(Api::new(c.client(None), "muster-binder").counted(metrics.clone()), options());
    let gang = [c.plain("a", "node-0").await, c.plain("b", "node-1").await];
    binder.bind_gang(&gang, 2, 8).await;
    binder.bind_gang(&[assignment("nobody", "", "node-0")], 1, 8).await;
    let ended = |how| metrics.binder.binds.of([how]).get();
    assert_eq!(["bound", "gone", "failed"].map(ended), [2.0, 1.0, 0.0]);
    assert_eq!(metrics.binder.in_flight.get(), 0.0);
    assert!(metrics.text().contains("muster_bind_seconds_count 2\n"), "{}", metrics.text());
}

#[tokio::test(start_paused = true)]
async fn the_label_of_the_node_pool_comes_with_the_binding() {
    let c = cluster(1, 0).await;
    let uid = c.pod("a", json!({"labels": {"app": "x", "example.com/pool": "red"}}), json!({})).await;
    let mut a = assignment("a", &uid, "node-0");
    a.pool = Some(("example.com/pool".into(), "blue".into()));
    c.binder(None).bind(&a).await.unwrap();
    let labels = c.labels("a").await;
    assert_eq!((labels["app"].as_str(), labels["example.com/pool"].as_str()), ("x", "blue"));
    let found = c.raw("/api/v1/pods?labelSelector=example.com%2Fpool%3Dblue").await;
    assert_eq!(found["items"][0]["metadata"]["name"], "a");
    assert_eq!(c.take_asked(), "POST pods/binding ×1");
}
