//! What a request costs: CPU per POST of this process and of the server, for each way to connect.
//!
//! `cargo run --release -p muster-runtime --example requests` starts an embedded cluster; `--server real` a real
//! Kubernetes. `--kubeconfig FILE` measures on one that runs (with `--server-pid PID` for the CPU of its server). `--n` says how
//! many pods are created and bound for each way, `--in-flight` how many requests are under way at once, `--threads` how many
//! threads the client has, `--ways` which ways, and in what order.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use muster_runtime::common::Pod;
use muster_runtime::connect::{Connect, Protocol, build, load};
use muster_runtime::{Api, Key};
use muster_testkit::{EmbeddedCluster, EmbeddedOptions, RealCluster, RealOptions};
use serde_json::json;

struct Args {
    kubeconfig: Option<PathBuf>,
    real: bool,
    server_pids: Vec<u32>,
    n: usize,
    in_flight: usize,
    threads: usize,
    ways: Vec<String>,
}

fn args() -> Result<Args> {
    let ways = ["kube", "http1", "http2"].map(str::to_owned).to_vec();
    let mut args = Args {
        kubeconfig: None,
        real: false,
        server_pids: Vec::new(),
        n: 5000,
        in_flight: 64,
        threads: 2,
        ways,
    };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let value = given.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--kubeconfig" => args.kubeconfig = Some(value.into()),
            "--server" => args.real = value == "real",
            "--server-pid" => args.server_pids.push(value.parse()?),
            "--n" => args.n = value.parse()?,
            "--in-flight" => args.in_flight = value.parse()?,
            "--threads" => args.threads = value.parse()?,
            "--ways" => args.ways = value.split(',').map(str::to_owned).collect(),
            _ => bail!("unknown flag {flag}"),
        }
    }
    Ok(args)
}

fn main() -> Result<()> {
    let args = args()?;
    let runtime = if args.threads == 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads).enable_all().build()?
    };
    runtime.block_on(measure(args))
}

async fn measure(args: Args) -> Result<()> {
    let mut pids = args.server_pids.clone();
    let (mut embedded, mut real) = (None, None);
    let kubeconfig = match &args.kubeconfig {
        Some(path) => path.clone(),
        None if args.real => {
            let options = RealOptions { with: Vec::new(), ..RealOptions::default() };
            real.insert(RealCluster::start(options).await?).kubeconfig.clone()
        }
        None => embedded.insert(EmbeddedCluster::start(EmbeddedOptions::default()).await?).kubeconfig.clone(),
    };
    pids.extend(descendants(std::process::id()));
    println!("{} requests, {} in flight, {} threads", args.n, args.in_flight, args.threads);
    println!("way    verb     req/s   client µs CPU/req   server µs CPU/req");
    for (round, way) in args.ways.iter().enumerate() {
        let options = Connect { kubeconfig: Some(kubeconfig.clone()), ..Connect::default() };
        let (config, from) = load(&options).await?;
        let client = match way.as_str() {
            "kube" => kube::Client::try_from(config)?,
            "http1" => build(config, &from, Protocol::Http1, None).await?,
            "http2" => build(config, &from, Protocol::Http2, None).await?,
            other => bail!("no such way: {other}"),
        };
        let api = Api::new(client, "requests");
        let namespace = format!("requests-{}-{round}-{way}", std::process::id());
        api.create_path("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        api.create_path(
            &format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            &json!({"metadata": {"name": "default"}}),
        )
        .await
        .ok();
        // The first requests open the connections.
        run(args.in_flight * 2, args.in_flight, |_| api.get_path("/version")).await?;

        let pod = |i: usize| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{i}")},
                "spec": {"schedulerName": "nobody", "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "app:1",
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}})
        };
        let bodies: Vec<_> = (0..args.n).map(pod).collect();
        let before = Usage::now(&pids);
        run(args.n, args.in_flight, |i| api.create::<Pod>(&namespace, &bodies[i])).await?;
        before.report(way, "create", args.n, &pids);

        let keys: Vec<Key> = (0..args.n).map(|i| Key::new(namespace.clone(), format!("p{i}"))).collect();
        let binding = |i: usize| {
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": keys[i].name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"}})
        };
        let bindings: Vec<_> = (0..args.n).map(binding).collect();
        let before = Usage::now(&pids);
        run(args.n, args.in_flight, |i| api.create_sub::<Pod>(&keys[i], "binding", &bindings[i])).await?;
        before.report(way, "bind", args.n, &pids);
    }
    Ok(())
}

async fn run<T, E, F>(n: usize, in_flight: usize, request: impl Fn(usize) -> F) -> Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
    F: Future<Output = Result<T, E>>,
{
    let requests = futures::stream::iter(0..n).map(request).buffer_unordered(in_flight);
    requests.try_for_each(|_| async { Ok(()) }).await.map_err(anyhow::Error::from)
}

struct Usage {
    at: Instant,
    own: Duration,
    server: Duration,
}

impl Usage {
    fn now(pids: &[u32]) -> Usage {
        Usage {
            at: Instant::now(),
            own: cpu(std::process::id()),
            server: pids.iter().map(|pid| cpu(*pid)).sum(),
        }
    }

    fn report(&self, way: &str, verb: &str, n: usize, pids: &[u32]) {
        let now = Usage::now(pids);
        let each = |from: Duration, to: Duration| (to - from).as_secs_f64() * 1e6 / n as f64;
        println!(
            "{way:6} {verb:6} {:7.0} {:19.1} {:19.1}",
            n as f64 / (now.at - self.at).as_secs_f64(),
            each(self.own, now.own),
            each(self.server, now.server),
        );
    }
}

/// CPU time of all threads of a process, to the nanosecond.
fn cpu(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = |dir: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(dir.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(spent).sum())
}

/// The processes that this one started, and theirs.
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in text.split_whitespace().filter_map(|text| text.parse().ok()) {
            all.push(child);
            all.extend(descendants(child));
        }
    }
    all
}
