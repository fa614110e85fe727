//! What a large embedded cluster costs: 1,000 nodes and 10,000 running pods in one process, with Muster's services and without; and ten times that,
//! which takes minutes and is asked for: `MUSTER_BIN=target/release/muster cargo test -p muster-e2e --test scale -- --ignored --nocapture`.
//!
//! A binary of its own, so that it has the machine to itself: cargo runs test binaries one after the other.

use anyhow::{Context, Result, ensure};
use muster_testkit::{EmbeddedCluster, EmbeddedOptions, Request, eventually, memory_of};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const REPLICAS: usize = 100;

struct Size {
    nodes: usize,
    pods: usize,
}

const LARGE: Size = Size { nodes: 1_000, pods: 10_000 };
const HUGE: Size = Size { nodes: 10_000, pods: 100_000 };

/// One after the other: memory is measured best on a quiet machine.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// API server, nodes and controllers. Each deployment names the node of its pods, since nobody else would.
#[tokio::test]
async fn a_cluster_of_ten_thousand_pods_is_held_in_300_mib() -> Result<()> {
    check(LARGE, &["--no-services"], |n| json!({"nodeName": format!("node-{n}")}), 300).await
}

/// The same and all of Muster's services, which place the pods.
#[tokio::test]
async fn with_the_services_it_is_held_in_600_mib() -> Result<()> {
    check(LARGE, &[], |_| json!({}), 600).await
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn a_hundred_thousand_pods_are_held_in_1_5_gib() -> Result<()> {
    check(HUGE, &["--no-services"], |n| json!({"nodeName": format!("node-{n}")}), 1536).await
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn with_the_services_a_hundred_thousand_are_held_in_2_gib() -> Result<()> {
    check(HUGE, &[], |_| json!({}), 2048).await
}

async fn check(size: Size, args: &[&str], place: impl Fn(usize) -> Value, limit_mib: u64) -> Result<()> {
    if !Path::new("/proc/self/status").exists() {
        eprintln!("skipped: the memory of a process is read from /proc");
        return Ok(());
    }
    let _alone = ALONE.lock().await;
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let options = EmbeddedOptions { nodes: size.nodes, args, ..EmbeddedOptions::default() };
    let cluster = EmbeddedCluster::start(options).await?;
    let http = cluster.http().await?;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    for i in 0..size.pods / REPLICAS {
        let labels = json!({"app": format!("web-{i}")});
        let mut pod = place(i);
        pod["containers"] =
            json!([{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}]);
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{i}")},
            "spec": {
                "replicas": REPLICAS, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        });
        let answer = http.send(&Request::new("POST", path).json(&deployment)).await?;
        ensure!(answer.status == 201, "{i}: {} {:?}", answer.status, answer.json());
    }
    let wanted = size.pods as u64;
    eventually("all pods are ready", Duration::from_secs(600), async || {
        let list = http.send(&Request::new("GET", path)).await?.json().context("no JSON")?;
        let ready: u64 = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|d| d["status"]["readyReplicas"].as_u64())
            .sum();
        ensure!(ready == wanted, "{ready} of {wanted} ready");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let (now, peak) = memory_of(pid(cluster.logs())?)?;
    let nodes = size.nodes;
    eprintln!("{nodes} nodes and {wanted} running pods: {} MiB, {} MiB at the most", now >> 10, peak >> 10);
    assert!(peak >> 10 < limit_mib, "{} MiB at the most, the limit is {limit_mib}", peak >> 10);
    Ok(())
}

/// The process id, as `muster up` remembers it in its home directory.
fn pid(home: &Path) -> Result<u32> {
    for entry in std::fs::read_dir(home.join(".muster"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            let instance: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
            return Ok(instance["pid"].as_u64().context("no pid in the instance file")?.try_into()?);
        }
    }
    anyhow::bail!("no instance file below {}", home.display())
}
