//! What one request costs the embedded server, beside kube-apiserver and etcd under the same load.
//!
//! In: how many pods. Out: one JSON object: CPU milliseconds of the server's processes per request, list item and watch event, in memory
//! and on disk, and their ratio to the real ones'. The client is the same for all, speaks JSON over HTTPS, and is not counted. It starts
//! everything itself (`muster` by MUSTER_BIN). Run it by `cargo xtask bench apiserver`.

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use muster_testkit::{EmbeddedCluster, EmbeddedOptions, Http, RealCluster, RealOptions, Request};
use serde_json::{Value, json};
use std::ops::Range;

const IN_FLIGHT: usize = 32;
const NODES: usize = 100;
const LISTS: usize = 20;
const WATCHERS: usize = 20;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let pods = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(4000);
    let plain = ["--no-services", "--no-controllers", "--no-kubelets"].map(str::to_owned);
    let folder = std::env::temp_dir().join(format!("muster-servers-{}", std::process::id()));
    let mut on_disk = plain.to_vec();
    on_disk.extend(["--data-dir".to_owned(), folder.display().to_string()]);

    eprintln!("kube-apiserver and etcd");
    let theirs = {
        let real = RealCluster::start(RealOptions { with: Vec::new(), ..RealOptions::default() }).await?;
        measure(&real.http().await?, pods, || Ok(real.cost()?.0)).await?
    };
    eprintln!("the embedded server, in memory");
    let memory = embedded(plain.to_vec(), pods).await?;
    eprintln!("the embedded server, on disk");
    let disk = embedded(on_disk, pods).await;
    let _ = std::fs::remove_dir_all(&folder);
    let disk = disk?;

    let rows: Vec<Value> = theirs
        .iter()
        .zip(&memory)
        .zip(&disk)
        .map(|(((what, theirs), (_, memory)), (_, disk))| {
            json!({"what": what, "cpuMs": {"kubernetes": theirs, "memory": memory, "disk": disk},
                "ratio": {"memory": memory / theirs, "disk": disk / theirs}})
        })
        .collect();
    println!("{:#}", json!({"pods": pods, "nodes": NODES, "watchers": WATCHERS, "operations": rows}));
    Ok(())
}

async fn embedded(args: Vec<String>, pods: usize) -> Result<Vec<(&'static str, f64)>> {
    let server = EmbeddedCluster::start(EmbeddedOptions { args, ..EmbeddedOptions::default() }).await?;
    measure(&server.http().await?, pods, || Ok(server.cost()?.0)).await
}

/// CPU milliseconds per operation, by what it is.
async fn measure(
    http: &Http,
    pods: usize,
    cpu: impl Fn() -> Result<f64>,
) -> Result<Vec<(&'static str, f64)>> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}});
    send(http, "POST", "/api/v1/namespaces", "application/json", &namespace).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    // Where a controller makes it, it is there already.
    let _ = send(http, "POST", "/api/v1/namespaces/load/serviceaccounts", "application/json", &account).await;
    many(0..NODES, async |n| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{n}")}});
        send(http, "POST", "/api/v1/nodes", "application/json", &node).await
    })
    .await?;

    let mut figures = Vec::new();
    let mut note = |what, from: f64, to: f64, n: usize| figures.push((what, (to - from) * 1e3 / n as f64));

    let before = cpu()?;
    many(0..pods, async |n| {
        send(http, "POST", "/api/v1/namespaces/load/pods", "application/json", &pod(n)).await
    })
    .await?;
    note("create", before, cpu()?, pods);

    let before = cpu()?;
    many(0..pods, async |n| {
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": format!("node-{}", n % NODES)});
        let binding =
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name(n)}, "target": target});
        send(http, "POST", &format!("{}/binding", path(n)), "application/json", &binding).await
    })
    .await?;
    note("bind", before, cpu()?, pods);

    let before = cpu()?;
    many(0..pods, async |n| {
        let now = "2026-01-01T00:00:00Z";
        let patch = json!({"status": {"phase": "Running", "startTime": now, "podIP": "10.0.0.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": now}]}});
        send(http, "PATCH", &format!("{}/status", path(n)), "application/strategic-merge-patch+json", &patch).await
    })
    .await?;
    note("patch of a status", before, cpu()?, pods);

    let alone = label(http, pods, "alone", &cpu).await?;
    note("patch of a label", 0.0, alone, pods);

    let before = cpu()?;
    for _ in 0..LISTS {
        let answer = http.send(&Request::new("GET", "/api/v1/namespaces/load/pods")).await?;
        let list = answer.json().context("a list is JSON")?;
        ensure!(list["items"].as_array().is_some_and(|items| items.len() == pods), "a list is not whole");
    }
    note("list, per object", before, cpu()?, LISTS * pods);

    // What watchers cost is what the same patches cost more when they are there. A server gets quicker or slower as it goes, so each is
    // measured several times, in turn.
    let mut sums = [0.0; 3];
    for round in 0..ROUNDS {
        for (sum, watchers) in sums.iter_mut().zip([0, 1, WATCHERS]) {
            *sum += watched(http, pods, watchers, &format!("{round}-{watchers}"), &cpu).await?;
        }
    }
    let [none, one, many] = sums;
    note("watch event, one watcher", none, one, ROUNDS * pods);
    note("watch event, each of twenty watchers", none, many, ROUNDS * pods * WATCHERS);
    Ok(figures)
}

/// Labels every pod while so many watch. Out: the CPU seconds that it took until all of them have seen it.
async fn watched(
    http: &Http,
    pods: usize,
    watchers: usize,
    value: &str,
    cpu: impl Fn() -> Result<f64>,
) -> Result<f64> {
    let list = http.send(&Request::new("GET", "/api/v1/namespaces/load/pods?limit=1")).await?;
    let version = list.json().context("a list is JSON")?["metadata"]["resourceVersion"].clone();
    let version = version.as_str().context("a list has a version")?.to_owned();
    let url = format!("/api/v1/namespaces/load/pods?watch=true&resourceVersion={version}");
    let mut watches = Vec::new();
    for _ in 0..watchers {
        watches.push(http.count_events(&Request::new("GET", &url), pods).await?);
    }
    let before = cpu()?;
    label(http, pods, value, &cpu).await?;
    for watch in watches {
        watch.await??;
    }
    Ok(cpu()? - before)
}

/// Labels every pod. Out: the CPU seconds that it took.
async fn label(http: &Http, pods: usize, value: &str, cpu: impl Fn() -> Result<f64>) -> Result<f64> {
    let before = cpu()?;
    many(0..pods, async |n| {
        let patch = json!({"metadata": {"labels": {"load": value}}});
        send(http, "PATCH", &path(n), "application/merge-patch+json", &patch).await
    })
    .await?;
    Ok(cpu()? - before)
}

async fn many(which: Range<usize>, one: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
    let one = &one;
    let mut all =
        futures::stream::iter(which).map(|n| async move { one(n).await }).buffer_unordered(IN_FLIGHT);
    while let Some(result) = all.next().await {
        result?;
    }
    Ok(())
}

async fn send(http: &Http, method: &str, path: &str, kind: &str, body: &Value) -> Result<()> {
    let answer = http.send(&Request::new(method, path).header("content-type", kind).json(body)).await?;
    let text = || String::from_utf8_lossy(&answer.body).into_owned();
    ensure!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, text());
    Ok(())
}

fn name(n: usize) -> String {
    format!("worker-{n}")
}

fn path(n: usize) -> String {
    format!("/api/v1/namespaces/load/pods/{}", name(n))
}

fn pod(n: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name(n), "labels": {"app": "load", "gang": format!("gang-{}", n / 8)},
            "annotations": {"pod-group-name": format!("gang-{}", n / 8)}},
        "spec": {"schedulerName": "nobody", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox",
            "command": ["sleep", "60"], "env": [{"name": "RANK", "value": n.to_string()}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}}]}})
}
