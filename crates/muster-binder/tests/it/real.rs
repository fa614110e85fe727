//! The same on a real API server: what preconditions, patches and controllers really do.

use std::time::Duration;

use muster_binder::{Assignment, BindError, Bound, Options};
use muster_testkit::{Component, RealCluster, RealOptions, or_skip};
use serde_json::json;

use crate::cluster::{Cluster, MINUTE, allocation, assignment, real};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_server() {
    let options = RealOptions {
        with: vec![Component::ControllerManager],
        nodes: 0,
        port: 0,
        ttl: Duration::from_secs(300),
        ..RealOptions::default()
    };
    let Some(plane) = or_skip(RealCluster::start(options).await).unwrap() else { return };
    let c = real(plane.client().await.unwrap(), 2, 2).await;
    c.until(MINUTE, "default", async |c| {
        c.raw("/api/v1/namespaces/default/serviceaccounts/default").await["metadata"]["name"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    })
    .await;
    let binder = c.binder_with(Options::default());
    parts_of_gpus(&c, &binder).await;
    devices_and_roll_back(&c, &binder).await;
    volumes(&c, &binder).await;
    requests(&c, &binder).await;
}

async fn parts_of_gpus(c: &Cluster, binder: &muster_binder::Binder) {
    let mut a = c.half("a", "node-0", &["g1"]).await;
    a.pool = Some(("example.com/pool".into(), "blue".into()));
    assert_eq!(binder.bind(&a).await, Ok(Bound { already: false }));
    assert_eq!(binder.bind(&a).await, Ok(Bound { already: true }));
    assert_eq!(c.reservations().await, "g1@node-0 device");
    let labels = c.labels("a").await;
    assert_eq!((labels["runai-gpu-group"].as_str(), labels["example.com/pool"].as_str()), ("g1", "blue"));
    let pod = c.raw("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(pod["metadata"]["annotations"]["received-resource-type"], "Fraction");
    let told = c.raw("/api/v1/namespaces/default/configmaps/a-shared-gpu-0-evar").await;
    assert!(told["data"]["NVIDIA_VISIBLE_DEVICES"].as_str().unwrap().starts_with("GPU-"), "{told}");
    assert_eq!(c.request_status("a").await, "Succeeded - -");

    let elsewhere = Assignment { node: "node-1".into(), ..a.clone() };
    assert_eq!(binder.bind_plain(&elsewhere).await, Err(BindError::Elsewhere { node: "node-0".into() }));
    let another = Assignment { pod_uid: "00000000-0000-0000-0000-000000000000".into(), ..a };
    assert_eq!(binder.bind_plain(&another).await, Err(BindError::Gone));
    // The second half joins.
    binder.bind(&c.half("b", "node-0", &["g1"]).await).await.unwrap();
}

async fn devices_and_roll_back(c: &Cluster, binder: &muster_binder::Binder) {
    let mut gang = vec![c.half("half", "node-1", &["g9"]).await];
    for (pod, claim) in [("dra", "dev"), ("bad", "absent")] {
        let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]});
        let uid = c.pod(pod, json!({}), spec).await;
        let claims = vec![("gpu".to_owned(), allocation("gpu-0"))];
        gang.push(Assignment { claims, ..assignment(pod, &uid, "node-1") });
    }
    c.device_claim("dev").await;
    let results = binder.bind_gang(&gang, 3, 8).await;
    assert_eq!(results[2], Err(BindError::Refused { text: "device claim absent does not exist".into() }));
    assert!(matches!(results[0], Err(BindError::RolledBack { .. })), "{results:?}");
    assert!(matches!(results[1], Err(BindError::RolledBack { .. })), "{results:?}");
    assert!(c.labels("half").await.is_empty());
    assert_eq!(c.device_claim_status("dev").await, " for ");
    assert!(c.raw("/api/v1/namespaces/default/configmaps/half-shared-gpu-0").await.is_null());

    gang.pop();
    assert!(binder.bind_gang(&gang, 2, 8).await.iter().all(Result::is_ok));
    assert_eq!(c.device_claim_status("dev").await, "gpu-0 for dra");
}

async fn volumes(c: &Cluster, binder: &muster_binder::Binder) {
    c.storage_class("local", "kubernetes.io/no-provisioner").await;
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]);
    c.create(
        "/api/v1/persistentvolumes",
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
            "spec": {
                "storageClassName": "local", "capacity": {"storage": "6Gi"}, "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/mnt/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }),
    )
    .await;
    c.volume_claim("data", "local").await;
    let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("v", json!({}), spec).await;
    let v = Assignment { volumes: true, ..assignment("v", &uid, "node-0") };
    let refused = binder.bind(&v).await.unwrap_err();
    assert_eq!(refused.to_string(), "no volume of class local that node node-0 can reach fits claim data");
    // The volume controller of the real control plane does its part.
    let v = Assignment { node: "node-1".into(), ..v };
    assert_eq!(binder.bind(&v).await, Ok(Bound { already: false }));
    let claim = c.raw("/api/v1/namespaces/default/persistentvolumeclaims/data").await;
    assert_eq!((&claim["status"]["phase"], &claim["spec"]["volumeName"]), (&json!("Bound"), &json!("disk")));
}

async fn requests(c: &Cluster, binder: &muster_binder::Binder) {
    c.serve(None);
    let gang = [c.plain("s0", "node-0").await, c.half("s1", "node-0", &["g2"]).await];
    assert!(binder.submit_gang(&gang, 2, 4).await.iter().all(Result::is_ok));
    for name in ["s0", "s1"] {
        c.until(MINUTE, "Succeeded - -", async |c| c.request_status(name).await).await;
    }
    let mut nowhere = c.plain("nowhere", "node-9").await;
    nowhere.backoff_limit = Some(4);
    binder.submit(&nowhere).await.unwrap();
    let given_back = "Failed 4 cannot be bound: node node-9 does not exist";
    c.until(MINUTE, given_back, async |c| c.request_status("nowhere").await).await;
    // Shared GPUs go with their last users.
    for name in ["a", "b", "half"] {
        c.delete(&format!("/api/v1/namespaces/default/pods/{name}")).await;
    }
    c.until(MINUTE, "g2@node-0 device", Cluster::reservations).await;
}
