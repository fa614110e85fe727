//! How fast pods are bound on a real API server, beside a bare loop that posts the same bindings; and beside other schedulers.
//!
//! In: how many nodes and gangs, and how many rounds with the peers. Out: one JSON object with what was measured. It starts etcd and
//! kube-apiserver, and `muster run` as a process of its own (release build, named by MUSTER_BIN). Run it by `cargo xtask bench services`.

mod load;
mod peers;

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::Client;
use load::{
    IN_FLIGHT, Load, System, at_once, check_spread, create_gang, create_gangs, create_namespace,
    create_nodes, rate_of, wait_for, watch_binds, watch_idly,
};
use muster_binder::{Assignment, Binder};
use muster_runtime::{Api, Connect, Key, connect};
use muster_testkit::{Measured, Processors, RealCluster, RealOptions, muster_binary, own_cpu};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() -> Result<()> {
    let number =
        |n: usize, default: usize| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let load = Load { nodes: number(1, 500), gangs: number(2, 500), size: number(3, 8) };
    let outcome = match number(4, 0) {
        0 => alone(load).await?,
        rounds => peers::run(load, rounds).await?,
    };
    println!("{outcome:#}");
    Ok(())
}

async fn alone(load: Load) -> Result<Value> {
    let pods = load.pods();
    eprintln!("starting etcd and kube-apiserver");
    let real =
        RealCluster::start(RealOptions { with: Vec::new(), nodes: 0, ..RealOptions::default() }).await?;
    let client = connect(Connect { kubeconfig: Some(real.kubeconfig.clone()), ..Connect::default() }).await?;
    let api = Api::new(client.clone(), "rate");
    create_nodes(&api, load.nodes).await?;
    System::Muster.prepare(&api).await?;

    let before = Processors::now()?;
    let bare_before = bare_loop(&client, "before", load).await?;

    eprintln!("muster: creating {pods} pods");
    create_namespace(&api, "placed").await?;
    create_gangs(&api, "placed", System::Muster, load).await?;
    let mut seen = watch_binds(&client, "placed").await?;
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
    let times = wait_for(&mut seen, pods).await?;
    let (cpu, memory) = (muster.cpu()?, muster.memory()?);
    let (idle, stolen) = Processors::now()?.since(before);
    let writes = writes(port).await?;
    // Status and events come after the binds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (cpu_in_all, writes_in_all) = (muster.cpu()?, self::writes(port).await?);
    check_spread(&api, "placed", load.nodes).await?;

    // The nodes are full; latency is measured on an idle cluster.
    api.delete_path("/api/v1/namespaces/placed/pods", at_once()).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;

    eprintln!("latency: one gang at a time");
    create_namespace(&api, "alone").await?;
    let latency = latencies(&client, load.size, 30, System::Muster).await?;
    muster.stop();
    let own = latencies(&client, load.size, 30, System::Nobody).await?;

    // A server slows down as it ages, so what is compared stands between two of what it is compared with.
    let bare_after = bare_loop(&client, "after", load).await?;
    let bare = Bare::mean(bare_before, bare_after);

    let rate = rate_of(&times)?;
    let first = times.first().context("no pods")?;
    Ok(json!({
        "nodes": load.nodes, "gangs": load.gangs, "podsPerGang": load.size,
        "processors": {"idle": idle, "takenByTheHost": stolen},
        "bare": {
            "podsPerSecond": bare.rate, "before": bare_before.rate, "after": bare_after.rate,
            "clientCpuMsPerPod": bare.cpu_ms,
        },
        "muster": {
            "podsPerSecond": rate,
            "ratioToBare": rate / bare.rate,
            "firstBindAfterSeconds": first.duration_since(started).as_secs_f64(),
            "cpuMsPerPod": cpu * 1e3 / pods as f64,
            "cpuMsPerPodInAll": cpu_in_all * 1e3 / pods as f64,
            "writesPerPodUntilLastBind": writes / pods as f64,
            "writesPerPodInAll": writes_in_all / pods as f64,
            "memoryMiB": memory / 1048576.0,
        },
        "gangLatencyMs": {"muster": latency, "bare": own},
    }))
}

/// What the bare loop reaches: pods per second, and CPU of this process per pod.
#[derive(Clone, Copy)]
struct Bare {
    rate: f64,
    cpu_ms: f64,
}

impl Bare {
    fn mean(one: Bare, other: Bare) -> Bare {
        Bare { rate: f64::midpoint(one.rate, other.rate), cpu_ms: f64::midpoint(one.cpu_ms, other.cpu_ms) }
    }
}

/// Posts the bindings of all pods of a new namespace, many at a time, while one client watches the pods.
async fn bare_loop(client: &Client, namespace: &str, load: Load) -> Result<Bare> {
    let api = Api::new(client.clone(), "rate");
    eprintln!("bare loop: creating {} pods", load.pods());
    create_namespace(&api, namespace).await?;
    create_gangs(&api, namespace, System::Nobody, load).await?;
    let mut seen = watch_binds(client, namespace).await?;
    let _watches = watch_idly(&api).await?;
    let binder = Binder::new(api.clone(), muster_binder::Options::default());
    let cpu = own_cpu()?;
    let all = futures::stream::iter(0..load.pods()).map(|n| {
        let assignment = Assignment {
            pod: Key::new(namespace, format!("gang-{}-{}", n / load.size, n % load.size)),
            node: format!("node-{}", (n / 8) % load.nodes),
            ..Assignment::default()
        };
        let binder = binder.clone();
        async move { binder.bind_plain(&assignment).await }
    });
    let results: Vec<_> = all.buffer_unordered(IN_FLIGHT).collect().await;
    for result in results {
        result?;
    }
    let times = wait_for(&mut seen, load.pods()).await?;
    let cpu = own_cpu()? - cpu;
    // Pods that are only there for this loop must not fill the nodes.
    api.delete_path(&format!("/api/v1/namespaces/{namespace}/pods"), at_once()).await?;
    Ok(Bare { rate: rate_of(&times)?, cpu_ms: cpu * 1e3 / load.pods() as f64 })
}

/// From the creation of the last pod of a gang to its last binding, in milliseconds: median and worst of `rounds`. Pods that nobody places are bound here.
async fn latencies(client: &Client, size: usize, rounds: usize, system: System) -> Result<Value> {
    let api = &Api::new(client.clone(), "rate");
    let binder = Binder::new(api.clone(), muster_binder::Options::default());
    let mut took = Vec::new();
    let mut seen = watch_binds(client, "alone").await?;
    for round in 0..rounds {
        let gang = format!("{}-{round}", system.name());
        create_gang(api, "alone", system, &gang, size).await?;
        let begun = Instant::now();
        if system == System::Nobody {
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
        wait_for(&mut seen, size).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        let all = format!("/api/v1/namespaces/alone/pods?labelSelector=app%3D{gang}");
        api.delete_path(&all, at_once()).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    took.sort_by(f64::total_cmp);
    Ok(json!({"median": took[took.len() / 2], "worst": took[took.len() - 1]}))
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
