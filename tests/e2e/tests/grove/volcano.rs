//! The real Volcano places the gangs of the `volcano` backend: whole or not at all. Its scheduler is built from its Go module, on API
//! types of a release before it ([`Programs::ensure_volcano`]).

use anyhow::{Context, Result, ensure};
use muster_e2e::crds;
use muster_testkit::{Http, Programs, RealCluster, RealOptions, Request, Services, eventually, or_skip};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

pub async fn send(http: &Http, verb: &str, path: &str, body: &Value) -> Result<Value> {
    let mut request = Request::new(verb, path);
    if verb == "PATCH" {
        request = request.header("content-type", "application/merge-patch+json");
    }
    let answer = http.send(&request.json(body)).await?;
    let said = || String::from_utf8_lossy(&answer.body).into_owned();
    ensure!((200..300).contains(&answer.status), "{verb} {path}: {} {}", answer.status, said());
    answer.json().context("an answer is JSON")
}

pub async fn get(http: &Http, path: &str) -> Result<Value> {
    let answer = http.send(&Request::new("GET", path)).await?;
    ensure!(answer.status == 200, "GET {path}: {}", answer.status);
    answer.json().context("an answer is JSON")
}

pub async fn add_node(http: &Http, name: &str) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    send(http, "POST", "/api/v1/nodes", &node).await?;
    let sizes = json!({"cpu": "1", "memory": "8Gi", "pods": "10"});
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = json!({"status": {"capacity": sizes, "allocatable": sizes, "conditions": ready}});
    send(http, "PATCH", &format!("/api/v1/nodes/{name}/status"), &status).await?;
    // Nobody is there who would take the taint of a new node away.
    send(http, "PATCH", &format!("/api/v1/nodes/{name}"), &json!({"spec": {"taints": null}})).await?;
    Ok(())
}

#[tokio::test]
async fn volcano_places_its_gangs() -> Result<()> {
    let Some(programs) = or_skip(tokio::task::spawn_blocking(Programs::ensure_volcano).await?)? else {
        return Ok(());
    };
    let _alone = crate::ALONE.lock().await;
    let Some(mut cluster) =
        or_skip(RealCluster::start(RealOptions { with: Vec::new(), ..RealOptions::default() }).await)?
    else {
        return Ok(());
    };
    for group in ["grove", "volcano"] {
        crds::apply(&cluster, &["--group", group]).await?;
    }
    let http = cluster.http().await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    send(&http, "POST", "/api/v1/namespaces/default/serviceaccounts", &account).await?;
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1, "reclaimable": true}});
    send(&http, "POST", "/apis/scheduling.volcano.sh/v1beta1/queues", &queue).await?;
    // Nothing is placed from a queue that is not open, and its own controller is not here.
    send(
        &http,
        "PATCH",
        "/apis/scheduling.volcano.sh/v1beta1/queues/default/status",
        &json!({"status": {"state": "Open"}}),
    )
    .await?;
    for name in ["n0", "n1", "n2"] {
        add_node(&http, name).await?;
    }
    let kubeconfig = cluster.kubeconfig.clone();
    cluster.start_beside(
        "vc-scheduler",
        Command::new(programs.path("vc-scheduler"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--scheduler-name=volcano", "--leader-elect=false", "--cache-dumper=false"])
            .args(["--enable-healthz=false", "--enable-metrics=false"])
            .args(["--schedule-period=500ms", "-v=3"]),
    )?;
    let args = ["--components", "grove,backend-volcano", "--grove-backends", "volcano"];
    let mut services = Services::start(&cluster, &args).await?;
    let clique = |name: &str, pods: u32| {
        json!({"name": name, "spec": {"roleName": name, "replicas": pods, "minAvailable": pods, "podSpec": {
            "schedulerName": "volcano", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "900m"}}}]}}})
    };
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "vc"},
        "spec": {"replicas": 1, "template": {"cliques": [clique("a", 1), clique("b", 3)]}},
    });
    send(&http, "POST", "/apis/grove.io/v1alpha1/namespaces/default/podcliquesets", &set).await?;
    let placed = async || -> Result<(usize, usize)> {
        let list = get(&http, "/api/v1/namespaces/default/pods").await?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let free = pods.iter().filter(|pod| pod["spec"].get("schedulingGates").is_none()).count();
        Ok((pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count(), free))
    };
    let told = || {
        let log = cluster.log("vc-scheduler");
        log.lines().rev().take(20).collect::<Vec<_>>().join("\n")
    };
    eventually("four pods are freed", Duration::from_secs(90), async || {
        let (_, free) = placed().await?;
        ensure!(free == 4, "{free}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    // Three nodes hold three pods, and the gang needs four: Volcano has looked at it, and says so.
    eventually("Volcano says that it cannot be placed", Duration::from_secs(90), async || {
        let groups = get(&http, "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups").await?;
        let group = groups["items"].get(0).cloned().unwrap_or_default();
        let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(
            conditions.iter().any(|c| c["type"] == "Unschedulable" && c["status"] == "True"),
            "{}",
            group["status"]
        );
        Ok::<_, anyhow::Error>(())
    })
    .await
    .with_context(told)?;
    let (n, _) = placed().await?;
    ensure!(n == 0, "{n} pods of a gang without room were placed\n{}", told());
    add_node(&http, "n3").await?;
    eventually("Volcano places all of it", Duration::from_secs(90), async || {
        let (n, _) = placed().await?;
        ensure!(n == 4, "{n}");
        Ok::<_, anyhow::Error>(())
    })
    .await
    .with_context(told)?;
    eventually("the gang says so", Duration::from_secs(60), async || {
        let path = "/apis/scheduler.grove.io/v1alpha1/namespaces/default/podgangs/vc-0";
        let gang = get(&http, path).await?;
        let conditions = gang["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(
            conditions.iter().any(|c| c["type"] == "Scheduled" && c["status"] == "True"),
            "{}",
            gang["status"]
        );
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    services.check()
}
