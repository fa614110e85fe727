//! Pods for which something must be prepared.

use std::time::Duration;

use muster_binder::{Assignment, BindError, Bound, Options};
use muster_runtime::Key;
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SOON, allocation, assignment, cluster, options};

async fn config_map(c: &Cluster, name: &str) -> Value {
    c.raw(&format!("/api/v1/namespaces/default/configmaps/{name}")).await
}

#[tokio::test(start_paused = true)]
async fn halves_share_a_gpu() {
    let c = cluster(1, 2).await;
    let binder = c.binder(None);
    let a = c.half("a", "node-0", &["g1"]).await;
    assert_eq!(binder.bind(&a).await, Ok(Bound { already: false }));
    assert_eq!(c.reservations().await, "g1@node-0 device");
    assert_eq!(c.node_of("a").await, "node-0");
    assert_eq!(c.labels("a").await["runai-gpu-group"], "g1");
    let pod = c.raw("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(pod["metadata"]["annotations"]["received-resource-type"], "Fraction");
    let told = config_map(&c, "a-shared-gpu-0").await;
    assert_eq!(told["data"], json!({"RUNAI_NUM_OF_GPUS": "0.50", "GPU_PORTION": "0.50"}));
    assert_eq!(told["metadata"]["ownerReferences"][0]["name"], "a");
    let device = config_map(&c, "a-shared-gpu-0-evar").await["data"]["NVIDIA_VISIBLE_DEVICES"].clone();
    assert!(device.as_str().unwrap().starts_with("GPU-"), "{device}");
    assert_eq!(c.request_status("a").await, "Succeeded - -");

    // The second half joins; a third pod opens another GPU.
    let b = c.half("b", "node-0", &["g1"]).await;
    binder.bind(&b).await.unwrap();
    assert_eq!(config_map(&c, "b-shared-gpu-0-evar").await["data"]["NVIDIA_VISIBLE_DEVICES"], device);
    let d = c.half("d", "node-0", &["g2"]).await;
    binder.bind(&d).await.unwrap();
    assert_eq!(c.reservations().await, "g1@node-0 device, g2@node-0 device");
    let other = config_map(&c, "d-shared-gpu-0-evar").await["data"]["NVIDIA_VISIBLE_DEVICES"].clone();
    assert_ne!(other, device);
}

#[tokio::test(start_paused = true)]
async fn several_devices() {
    let c = cluster(1, 2).await;
    let a = c.half("a", "node-0", &["g1", "g2"]).await;
    c.binder(None).bind(&a).await.unwrap();
    let labels = c.labels("a").await;
    assert_eq!((labels["runai-gpu-group/g1"].as_str(), labels["runai-gpu-group/g2"].as_str()), ("g1", "g2"));
    assert!(!labels.contains_key("runai-gpu-group"));
    let devices = config_map(&c, "a-shared-gpu-0-evar").await["data"]["NVIDIA_VISIBLE_DEVICES"].clone();
    let devices: Vec<&str> = devices.as_str().unwrap().split(',').collect();
    assert!(devices.len() == 2 && devices[0] != devices[1], "{devices:?}");
}

#[tokio::test(start_paused = true)]
async fn no_gpu_to_reserve() {
    let c = cluster(1, 1).await;
    let uid = c
        .pod("whole", json!({}), json!({"containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}))
        .await;
    let binder = c.binder(None);
    binder.bind(&assignment("whole", &uid, "node-0")).await.unwrap();
    c.until(SOON, "Running", async |c| {
        c.raw("/api/v1/namespaces/default/pods/whole").await["status"]["phase"].as_str().unwrap_or("").into()
    })
    .await;
    let a = c.half("a", "node-0", &["g1"]).await;
    let refused = binder.bind(&a).await.unwrap_err();
    assert!(!refused.retryable() && refused.to_string().contains("OutOfnvidia.com/gpu"), "{refused}");
    // Nothing is left behind.
    assert_eq!(c.reservations().await, "");
    assert!(c.labels("a").await.is_empty());
    assert_eq!(c.node_of("a").await, "");
    assert!(c.request_status("a").await.starts_with("Failed 1 "));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_gets_no_reservation() {
    let c = cluster(1, 1).await;
    let a = c.half("a", "node-7", &["g1"]).await;
    let refused = c.binder(None).bind(&a).await.unwrap_err();
    assert_eq!(refused, BindError::Refused { text: "node node-7 is gone".into() });
    assert_eq!(c.reservations().await, "");
    assert!(c.labels("a").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_on_another_node() {
    let c = cluster(2, 1).await;
    let binder = c.binder(None);
    binder.bind(&c.half("a", "node-0", &["g1"]).await).await.unwrap();
    let refused = binder.bind(&c.half("b", "node-1", &["g1"]).await).await.unwrap_err();
    assert!(refused.to_string().contains("held on node node-0"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn without_a_webhook_a_part_of_a_gpu_is_refused() {
    let c = cluster(1, 1).await;
    let uid = c.pod("a", json!({"annotations": {"gpu-fraction": "0.5"}}), json!({})).await;
    let a = Assignment {
        kind: muster_binder::Received::Fraction,
        gpu_groups: vec!["g1".into()],
        ..assignment("a", &uid, "node-0")
    };
    let refused = c.binder(None).bind(&a).await.unwrap_err();
    assert!(refused.to_string().contains("runai/shared-gpu-configmap"), "{refused}");
    let lenient = c.binder_with(Options { require_config_map: false, ..options() });
    lenient.bind(&a).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_pod_takes_nothing_from_it() {
    let c = cluster(1, 1).await;
    let binder = c.binder(None);
    binder.bind(&c.half("a", "node-0", &["g1"]).await).await.unwrap();
    let told = config_map(&c, "a-shared-gpu-0").await;
    let annotations = json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "a-shared-gpu"});
    let uid = c.pod("b", json!({"annotations": annotations}), json!({})).await;
    let place = c.half("unused", "node-0", &["g1"]).await;
    let copy = Assignment { pod: Key::new("default", "b"), pod_uid: uid, ..place };
    let refused = binder.bind(&copy).await.unwrap_err();
    assert!(refused.to_string().contains("is that of pod default/a"), "{refused}");
    assert_eq!(config_map(&c, "a-shared-gpu-0").await, told);
    // Once that one is gone, nobody is told anything wrong.
    c.delete("/api/v1/namespaces/default/pods/a").await;
    binder.bind(&copy).await.unwrap();
    assert_eq!(config_map(&c, "a-shared-gpu-0").await["metadata"]["ownerReferences"][0]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn volumes_wait_for_their_consumer() {
    let c = cluster(1, 0).await;
    c.storage_class("fast", "csi.example.com").await;
    c.volume_claim("data", "fast").await;
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("a", json!({}), volumes).await;
    let a = Assignment { volumes: true, ..assignment("a", &uid, "node-0") };
    let binder = c.binder(None);
    let task = tokio::spawn(async move { binder.bind(&a).await });
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    c.until(SOON, "\"node-0\"", async |c| {
        c.raw(path).await["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].to_string()
    })
    .await;
    assert_eq!(c.node_of("a").await, "");
    tokio::time::sleep(Duration::from_secs(30)).await;
    c.bind_volumes().await;
    assert_eq!(task.await.unwrap(), Ok(Bound { already: false }));
    assert_eq!(c.node_of("a").await, "node-0");
}

#[tokio::test(start_paused = true)]
async fn a_volume_made_by_hand() {
    let c = cluster(2, 0).await;
    c.storage_class("local", "kubernetes.io/no-provisioner").await;
    for (name, node, size) in [("far", "node-0", "5Gi"), ("big", "node-1", "50Gi"), ("fit", "node-1", "6Gi")]
    {
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        c.create("/api/v1/persistentvolumes", json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "storageClassName": "local", "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/mnt/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }))
        .await;
    }
    c.volume_claim("data", "local").await;
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("a", json!({}), volumes.clone()).await;
    let a = Assignment { volumes: true, ..assignment("a", &uid, "node-1") };
    // All volumes are looked through once.
    let again = Rule::on("list", "persistentvolumes").after(1).fault(Fault::Status(403));
    let binder = c.binder(Some(&FaultLayer::new(1, vec![again])));
    let task = tokio::spawn(async move { binder.bind(&a).await });
    c.until(SOON, "\"data\"", async |c| {
        c.raw("/api/v1/persistentvolumes/fit").await["spec"]["claimRef"]["name"].to_string()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    c.bind_volumes().await;
    assert_eq!(task.await.unwrap(), Ok(Bound { already: false }));

    // Nothing on node-1 is left for another claim of that size but the big one; on node-0 none is large enough.
    c.volume_claim("more", "local").await;
    c.patch(
        "/api/v1/namespaces/default/persistentvolumeclaims/more",
        json!({"metadata": {"annotations": {"x": "y"}}}),
    )
    .await;
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "more"}}]});
    let uid = c.pod("b", json!({}), volumes).await;
    c.delete("/api/v1/persistentvolumes/far").await;
    let b = Assignment { volumes: true, ..assignment("b", &uid, "node-0") };
    let refused = c.binder(None).bind(&b).await.unwrap_err();
    assert_eq!(refused.to_string(), "no volume of class local that node node-0 can reach fits claim more");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_never_comes() {
    let c = cluster(1, 0).await;
    c.storage_class("fast", "csi.example.com").await;
    c.volume_claim("data", "fast").await;
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("a", json!({}), volumes).await;
    let a = Assignment { volumes: true, ..assignment("a", &uid, "node-0") };
    let start = tokio::time::Instant::now();
    let error = c.binder(None).bind(&a).await.unwrap_err();
    assert_eq!(error.to_string(), "volume claim data is not bound after 120 s");
    assert!(start.elapsed() < Duration::from_secs(125), "{:?}", start.elapsed());
    let claim = c.raw("/api/v1/namespaces/default/persistentvolumeclaims/data").await;
    assert!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null(), "{claim}");
}

#[tokio::test(start_paused = true)]
async fn device_claims() {
    let c = cluster(1, 0).await;
    c.device_claim("shared").await;
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]});
    let binder = c.binder(None);
    for name in ["a", "b"] {
        let uid = c.pod(name, json!({}), spec.clone()).await;
        let a = Assignment {
            claims: vec![("gpu".into(), allocation("gpu-0"))],
            ..assignment(name, &uid, "node-0")
        };
        assert_eq!(binder.bind(&a).await, Ok(Bound { already: false }));
    }
    assert_eq!(c.device_claim_status("shared").await, "gpu-0 for a+b");

    let uid = c.pod("other", json!({}), spec).await;
    let other = Assignment {
        claims: vec![("gpu".into(), allocation("gpu-1"))],
        ..assignment("other", &uid, "node-0")
    };
    let refused = binder.bind(&other).await.unwrap_err();
    assert_eq!(refused.to_string(), "device claim shared was allocated other devices than decided");
    assert_eq!(c.device_claim_status("shared").await, "gpu-0 for a+b");
}

#[tokio::test(start_paused = true)]
async fn claims_in_use_are_protected() {
    let c = cluster(1, 0).await;
    c.device_claim("mine").await;
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]});
    let uid = c.pod("a", json!({}), spec).await;
    let a =
        Assignment { claims: vec![("gpu".into(), allocation("gpu-0"))], ..assignment("a", &uid, "node-0") };
    c.binder_with(Options::default()).bind(&a).await.unwrap();
    let claim = c.raw("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/mine").await;
    assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert_eq!(c.device_claim_status("mine").await, "gpu-0 for a");
}

#[tokio::test(start_paused = true)]
async fn extended_resources() {
    let c = cluster(1, 0).await;
    let uid = c.pod("a", json!({}), json!({})).await;
    let extended = json!({
        "allocation": allocation("gpu-3"),
        "deviceRequests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}],
        "containerMappings": [{"containerName": "main", "requestName": "gpu", "resourceName": "example.com/gpu"}],
    });
    let a = Assignment { extended: Some(extended), ..assignment("a", &uid, "node-0") };
    assert_eq!(c.binder(None).bind(&a).await, Ok(Bound { already: false }));
    let pod = c.raw("/api/v1/namespaces/default/pods/a").await;
    let status = &pod["status"]["extendedResourceClaimStatus"];
    let name = status["resourceClaimName"].as_str().unwrap();
    assert!(name.starts_with("a-extended-resources-"), "{name}");
    assert_eq!(status["requestMappings"][0]["resourceName"], "example.com/gpu");
    assert_eq!(c.device_claim_status(name).await, "gpu-3 for a");
}
