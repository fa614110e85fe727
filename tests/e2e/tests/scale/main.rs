//! What a large embedded cluster costs: 1,000 nodes and 10,000 running pods in one process.
//!
//! A binary of its own, so that it has the machine to itself: cargo runs test binaries one after the other.

use anyhow::{Context, Result, ensure};
use muster_testkit::{EmbeddedCluster, EmbeddedOptions, Request, eventually};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NODES: usize = 1_000;
const DEPLOYMENTS: usize = 10;
const REPLICAS: u64 = 1_000;
/// What the process may hold, in kibibytes.
const LIMIT_KIB: u64 = 300 << 10;

#[tokio::test]
async fn ten_thousand_pods_are_held_in_300_mib() -> Result<()> {
    if !Path::new("/proc/self/status").exists() {
        eprintln!("skipped: the memory of a process is read from /proc");
        return Ok(());
    }
    let cluster =
        EmbeddedCluster::start(EmbeddedOptions { nodes: NODES, ..EmbeddedOptions::default() }).await?;
    let http = cluster.http().await?;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    for i in 0..DEPLOYMENTS {
        let labels = json!({"app": format!("web-{i}")});
        let container = json!({"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{i}")},
            "spec": {
                "replicas": REPLICAS, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        });
        let answer = http.send(&Request::new("POST", path).json(&deployment)).await?;
        ensure!(answer.status == 201, "{i}: {} {:?}", answer.status, answer.json());
    }
    let wanted = DEPLOYMENTS as u64 * REPLICAS;
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
    let (now, peak) = memory(pid(cluster.logs())?)?;
    eprintln!("{NODES} nodes and {wanted} running pods: {} MiB, {} MiB at the most", now >> 10, peak >> 10);
    assert!(peak < LIMIT_KIB, "{peak} KiB at the most, the limit is {LIMIT_KIB}");
    Ok(())
}

/// The process id, as `muster up` remembers it in its home directory.
fn pid(home: &Path) -> Result<u64> {
    for entry in std::fs::read_dir(home.join(".muster"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            let instance: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
            return instance["pid"].as_u64().context("no pid in the instance file");
        }
    }
    anyhow::bail!("no instance file below {}", home.display())
}

/// Resident memory of a process, now and at the most, in kibibytes.
fn memory(pid: u64) -> Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find(|l| l.starts_with(name)).with_context(|| format!("no {name}"))?;
        Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}
