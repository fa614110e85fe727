//! Kubernetes 1.35, whose gang API is another: its own kube-scheduler places the gangs of the `default` backend, whole or not at all.
//! Ignored, since it builds that release first (some minutes): `cargo test -p muster-e2e --test grove release_before -- --ignored`.

use crate::volcano::{add_node, get, send};
use anyhow::{Context, Result, ensure};
use muster_e2e::crds;
use muster_testkit::{Component, RealCluster, RealOptions, Release, Services, eventually, or_skip};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
#[ignore = "builds Kubernetes 1.35 first"]
async fn the_release_before_places_its_gangs() -> Result<()> {
    let _alone = crate::ALONE.lock().await;
    let with = vec![Component::Scheduler];
    let options = RealOptions { release: Release::V1_35, with, ..RealOptions::default() };
    let Some(cluster) = or_skip(RealCluster::start(options).await)? else { return Ok(()) };
    let http = cluster.http().await?;
    let version = get(&http, "/version").await?;
    ensure!(version["gitVersion"] == "v1.35.4", "{version}");
    crds::apply(&cluster, &["--group", "grove"]).await?;
    for name in ["n0", "n1"] {
        add_node(&http, name).await?;
    }
    let args = ["--components", "grove,backend-default", "--grove-backends", "default"];
    let mut services = Services::start(&cluster, &args).await?;
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "old"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "a", "spec": {
            "roleName": "a", "replicas": 3, "minAvailable": 3, "podSpec": {"schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "900m"}}}]}}}]}},
    });
    send(&http, "POST", "/apis/grove.io/v1alpha1/namespaces/default/podcliquesets", &set).await?;
    let pods = async || -> Result<Vec<Value>> {
        let list = get(&http, "/api/v1/namespaces/default/pods").await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    };
    let placed = |pods: &[Value]| pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    eventually("three pods are free and name their gang", Duration::from_secs(90), async || {
        let pods = pods().await?;
        let is_free = |pod: &&Value| pod["spec"].get("schedulingGates").is_none();
        let free: Vec<&Value> = pods.iter().filter(is_free).collect();
        ensure!(free.len() == 3, "{} of {}", free.len(), pods.len());
        let wanted = json!({"name": "old-0", "podGroup": "old-0-a"});
        ensure!(free.iter().all(|pod| pod["spec"]["workloadRef"] == wanted), "{}", free[0]["spec"]);
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let workload = get(&http, "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads/old-0").await?;
    let groups = json!([{"name": "old-0-a", "policy": {"gang": {"minCount": 3}}}]);
    ensure!(workload["spec"]["podGroups"] == groups, "{}", workload["spec"]);
    // Two nodes hold two pods, and the gang needs three: kube-scheduler says so of every one.
    eventually("kube-scheduler says that it cannot be placed", Duration::from_secs(90), async || {
        let refused = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|c| c["reason"] == "Unschedulable"))
        };
        let pods = pods().await?;
        ensure!(pods.iter().any(refused), "{}", pods[0]["status"]);
        Ok::<_, anyhow::Error>(())
    })
    .await
    .with_context(|| cluster.log("kube-scheduler"))?;
    let n = placed(&pods().await?);
    ensure!(n == 0, "{n} pods of a gang without room were placed");
    add_node(&http, "n2").await?;
    eventually("kube-scheduler places all of it", Duration::from_secs(400), async || {
        let n = placed(&pods().await?);
        ensure!(n == 3, "{n}");
        Ok::<_, anyhow::Error>(())
    })
    .await
    .with_context(|| cluster.log("kube-scheduler"))?;
    services.check()
}
