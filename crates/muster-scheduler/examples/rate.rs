//! How fast pods are bound on a real API server, beside a bare loop that posts the same bindings.
//!
//! In: how many nodes and gangs. Out: one JSON object with what was measured. It starts etcd and kube-apiserver, and `muster run` as a
//! process of its own (release build, named by MUSTER_BIN). Run it by `cargo xtask bench services`.

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use muster_api::crd::{System, crds};
use muster_binder::{Assignment, Binder};
use muster_runtime::api::Delete;
use muster_runtime::{Api, Connect, Key, connect};
use muster_testkit::{Measured, Processors, RealCluster, RealOptions, muster_binary, own_cpu};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const IN_FLIGHT: usize = 64;
const LIMIT: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<()> {
    let number =
        |n: usize, default: usize| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (nodes, gangs, size) = (number(1, 500), number(2, 500), number(3, 8));
    let pods = gangs * size;
    eprintln!("starting etcd and kube-apiserver");
    let real =
        RealCluster::start(RealOptions { with: Vec::new(), nodes: 0, ..RealOptions::default() }).await?;
    let client = connect(Connect { kubeconfig: Some(real.kubeconfig.clone()), ..Connect::default() }).await?;
    let api = Api::new(client, "rate");
    prepare(&api, nodes).await?;

    eprintln!("bare loop: creating {pods} pods");
    create_namespace(&api, "bare").await?;
    create_gangs(&api, "bare", "nobody", gangs, size).await?;
    let before = Processors::now()?;
    let bare = bare_loop(&api, nodes, gangs, size).await?;

    eprintln!("muster: creating {pods} pods");
    create_namespace(&api, "placed").await?;
    create_gangs(&api, "placed", "kai-scheduler", gangs, size).await?;
    let mut seen = watch_binds(&api, "placed").await?;
    let port = muster_port()?;
    let binary = tokio::task::spawn_blocking(muster_binary).await??;
    let started = Instant::now();
    let mut muster = Measured::start(
        Command::new(&binary)
            .args(["run", "--components", "scheduler", "--scheduler-name", "kai-scheduler"])
            .arg("--kubeconfig")
            .arg(&real.kubeconfig)
            .args(["--metrics-address", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null()),
    )?;
    let mut times = Vec::with_capacity(pods);
    while times.len() < pods {
        let next = tokio::time::timeout(LIMIT, seen.recv()).await.context("binds stopped coming")?;
        times.push(next.context("the watch ended")?);
    }
    let (first, last) = (times.first().context("no pods")?, times.last().context("no pods")?);
    let span = last.duration_since(*first).as_secs_f64();
    let (cpu, memory) = (muster.cpu()?, muster.memory()?);
    let (idle, stolen) = Processors::now()?.since(before);
    let writes = writes(port).await?;
    // Status and events come after the binds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (cpu_in_all, writes_in_all) = (muster.cpu()?, self::writes(port).await?);
    check_spread(&api, nodes).await?;

    // The nodes are full; latency is measured on an idle cluster.
    api.delete_path("/api/v1/namespaces/placed/pods", at_once()).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;

    eprintln!("latency: one gang at a time");
    create_namespace(&api, "alone").await?;
    let latency = latencies(&api, size, 30, false).await?;
    muster.stop();
    let own = latencies(&api, size, 30, true).await?;

    let rate = (pods - 1) as f64 / span;
    println!(
        "{:#}",
        json!({
            "nodes": nodes, "gangs": gangs, "podsPerGang": size,
            "processors": {"idle": idle, "takenByTheHost": stolen},
            "bare": {"podsPerSecond": bare.0, "clientCpuMsPerPod": bare.1},
            "muster": {
                "podsPerSecond": rate,
                "ratioToBare": rate / bare.0,
                "firstBindAfterSeconds": first.duration_since(started).as_secs_f64(),
                "cpuMsPerPod": cpu * 1e3 / pods as f64,
                "cpuMsPerPodInAll": cpu_in_all * 1e3 / pods as f64,
                "writesPerPodUntilLastBind": writes / pods as f64,
                "writesPerPodInAll": writes_in_all / pods as f64,
                "memoryMiB": memory / 1048576.0,
            },
            "gangLatencyMs": {"muster": latency, "bare": own},
        })
    );
    Ok(())
}

async fn prepare(api: &Api, nodes: usize) -> Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for crd in crds(Some(&[System::Kai])) {
        api.create_path(path, &crd).await?;
    }
    let sizes = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"});
    let all = futures::stream::iter(0..nodes).map(|n| {
        let sizes = sizes.clone();
        async move {
            let name = format!("node-{n}");
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"capacity": sizes, "allocatable": sizes, "conditions": [{"type": "Ready", "status": "True"}]}});
            api.create_path("/api/v1/nodes", &node).await?;
            // The server taints every new node; who reports it ready takes the taint away.
            let patch = json!({"spec": {"taints": null}});
            api.patch_path(&format!("/api/v1/nodes/{name}"), muster_runtime::api::Patch::Merge, &patch).await
        }
    });
    let results: Vec<_> = all.buffer_unordered(IN_FLIGHT).collect().await;
    results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"},
        "spec": {"resources": {"gpu": any, "cpu": any, "memory": any}}});
    for _ in 0..100 {
        if api.create_path("/apis/scheduling.run.ai/v2/queues", &queue).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("queues are not served")
}

async fn create_namespace(api: &Api, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    api.create_path("/api/v1/namespaces", &body).await?;
    Ok(())
}

fn pod(gang: &str, i: usize, scheduler: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{gang}-{i}"), "annotations": {"pod-group-name": gang}, "labels": {"app": gang}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}}]}})
}

async fn create_group(api: &Api, namespace: &str, gang: &str, size: usize) -> Result<()> {
    let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": gang},
        "spec": {"minMember": size, "queue": "team"}});
    api.create_path(&format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups"), &group)
        .await?;
    Ok(())
}

async fn create_gangs(api: &Api, namespace: &str, scheduler: &str, gangs: usize, size: usize) -> Result<()> {
    let all = futures::stream::iter(0..gangs).map(|g| async move {
        let gang = format!("gang-{g}");
        if scheduler != "nobody" {
            create_group(api, namespace, &gang, size).await?;
        }
        for i in 0..size {
            api.create_path(&format!("/api/v1/namespaces/{namespace}/pods"), &pod(&gang, i, scheduler))
                .await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let results: Vec<_> = all.buffer_unordered(IN_FLIGHT / 2).collect().await;
    results.into_iter().collect()
}

/// The moments at which pods of a namespace are seen to have a node.
async fn watch_binds(api: &Api, namespace: &str) -> Result<mpsc::UnboundedReceiver<Instant>> {
    let url = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D");
    let list = api.list_raw(&url, None).await?;
    let (api, mut version) = (api.clone(), list.resource_version);
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(mut lines) = api.watch_raw(&url, &version, LIMIT).await {
            while let Ok(Some(line)) = lines.next().await {
                if line.starts_with(r#"{"type":"DELETED""#) && sender.send(Instant::now()).is_err() {
                    return;
                }
                // A watch that the server ends goes on from the last version.
                if let Some(at) = line.find(r#""resourceVersion":""#) {
                    version = line[at + 19..].chars().take_while(char::is_ascii_digit).collect();
                }
            }
        }
    });
    Ok(receiver)
}

/// Posts the bindings of all pods, many at a time, beside one watch of pods. Out: pods per second, and CPU of this process per pod.
async fn bare_loop(api: &Api, nodes: usize, gangs: usize, size: usize) -> Result<(f64, f64)> {
    let mut seen = watch_binds(api, "bare").await?;
    let binder = Binder::new(api.clone(), muster_binder::Options::default());
    let cpu = own_cpu()?;
    let begun = Instant::now();
    let all = futures::stream::iter(0..gangs * size).map(|n| {
        let assignment = Assignment {
            pod: Key::new("bare", format!("gang-{}-{}", n / size, n % size)),
            node: format!("node-{}", (n / 8) % nodes),
            ..Assignment::default()
        };
        let binder = binder.clone();
        async move { binder.bind_plain(&assignment).await }
    });
    let results: Vec<_> = all.buffer_unordered(IN_FLIGHT).collect().await;
    for result in results {
        result?;
    }
    let mut times = Vec::new();
    while times.len() < gangs * size {
        times.push(seen.recv().await.context("the watch ended")?);
    }
    let (first, last) = (times.first().copied().unwrap_or(begun), times.last().copied().unwrap_or(begun));
    let cpu = own_cpu()? - cpu;
    let n = times.len() as f64;
    // Pods that are only there for this loop must not fill the nodes.
    api.delete_path("/api/v1/namespaces/bare/pods", at_once()).await?;
    Ok(((n - 1.0) / last.duration_since(first).as_secs_f64(), cpu * 1e3 / n))
}

/// From the creation of the last pod of a gang to its last binding, in milliseconds: median and worst of `rounds`.
async fn latencies(api: &Api, size: usize, rounds: usize, bare: bool) -> Result<Value> {
    let binder = Binder::new(api.clone(), muster_binder::Options::default());
    let mut took = Vec::new();
    let mut seen = watch_binds(api, "alone").await?;
    for round in 0..rounds {
        let gang = format!("{}-{round}", if bare { "bare" } else { "one" });
        let scheduler = if bare { "nobody" } else { "kai-scheduler" };
        create_group(api, "alone", &gang, size).await?;
        for i in 0..size {
            api.create_path("/api/v1/namespaces/alone/pods", &pod(&gang, i, scheduler)).await?;
        }
        let begun = Instant::now();
        if bare {
            let binds = (0..size).map(|i| {
                let assignment = Assignment {
                    pod: Key::new("alone", format!("{gang}-{i}")),
                    node: "node-0".into(),
                    ..Assignment::default()
                };
                let binder = binder.clone();
                async move { binder.bind_plain(&assignment).await }
            });
            for result in futures::future::join_all(binds).await {
                result?;
            }
        }
        for _ in 0..size {
            tokio::time::timeout(Duration::from_secs(60), seen.recv())
                .await
                .context("a gang was not bound")?;
        }
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        let all = format!("/api/v1/namespaces/alone/pods?labelSelector=app%3D{gang}");
        api.delete_path(&all, at_once()).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    took.sort_by(f64::total_cmp);
    Ok(json!({"median": took[took.len() / 2], "worst": took[took.len() - 1]}))
}

/// No node has more than its GPUs.
async fn check_spread(api: &Api, nodes: usize) -> Result<()> {
    let mut held = vec![0; nodes];
    let mut next = None;
    loop {
        let page = api.list_raw("/api/v1/namespaces/placed/pods?", next.as_deref()).await?;
        for item in &page.items {
            let pod: Value = serde_json::from_str(item.get())?;
            let node = pod["spec"]["nodeName"].as_str().context("a pod without a node")?;
            let n: usize = node.trim_start_matches("node-").parse()?;
            *held.get_mut(n).context("a node that nobody made")? += 1;
        }
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    ensure!(held.iter().all(|n| *n <= 8), "a node has more pods than GPUs");
    Ok(())
}

fn at_once() -> Delete<'static> {
    Delete { grace_seconds: Some(0), ..Delete::default() }
}

fn muster_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Requests that change something, as the process counts them.
async fn writes(port: u16) -> Result<f64> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let counted = |line: &str| {
        let rest = line.strip_prefix("muster_api_requests_total{")?;
        let (labels, value) = rest.split_once("} ")?;
        let reads = ["get", "list", "watch"].iter().any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
        (!reads).then(|| value.trim().parse::<f64>().ok())?
    };
    Ok(text.lines().filter_map(counted).sum())
}
