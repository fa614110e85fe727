//! An hour of a large cluster in virtual time: does its memory stay where it is?
//!
//! In: how many nodes, running pods and changes an hour. Out: a line every five minutes of the cluster's time with the changes so far (each is an
//! event to every watcher), what there is, and the memory of this process, which is API server, kubelets and controllers in one. Ends with code 1 when
//! fewer changes came about than asked for.
//! `cargo run --release -p muster-sim --example hour -- 10000 100000 1000000`

use muster_apiserver::{ApiServer, Options};
use muster_runtime::Api;
use muster_sim::{Clock, Fleet};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// As the program has it: the memory of another allocator would say little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error>;

const REPLICAS: usize = 100;
/// Changes that one short job brings about, from its creation until nothing is left of it; the rate of jobs follows from it.
const CHANGES_PER_JOB: f64 = 10.0;
const HOUR: Duration = Duration::from_secs(3600);
const ROW_EVERY: Duration = Duration::from_secs(300);

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Failure> {
    let args: Vec<usize> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<_, _>>().map_err(|error| {
            format!("{error}\nusage: hour [NODES [PODS [CHANGES]]], such as: hour 10000 100000 1000000")
        })?;
    let number = |i: usize, default: usize| args.get(i).copied().unwrap_or(default);
    let (n_nodes, n_pods, n_changes) = (number(0, 1000), number(1, 10_000), number(2, 100_000));

    let base = "2026-01-01T00:00:00Z".parse()?;
    let clock = muster_apiserver::Clock::starting_at(base);
    let server = ApiServer::new(Options { clock, ..Options::default() });
    let cancel = CancellationToken::new();
    let background = server.clone();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    let client = kube::Client::new(server, "default");
    let options = muster_sim::Options { fleet: Fleet::simple(n_nodes, 0)?, ..muster_sim::Options::default() };
    let simulation = muster_sim::run(client.clone(), options, Clock::starting_at(base), cancel.clone());
    tokio::spawn(async move { simulation.await.map_err(|error| eprintln!("error: {error}")) });
    let api = Api::new(client, "hour");

    let begun = Instant::now();
    eprintln!("starting {n_nodes} nodes and {n_pods} pods");
    for n in 0..n_pods.div_ceil(REPLICAS) {
        let replicas = REPLICAS.min(n_pods - n * REPLICAS);
        api.create_path(
            "/apis/apps/v1/namespaces/default/deployments",
            &deployment(n, n % n_nodes, replicas),
        )
        .await?;
    }
    until_ready(&api, n_pods).await?;
    let start = changes(&api).await?;
    println!("minute  changes   jobs  pods     MiB  most MiB  real s");
    row(&api, 0, 0, begun).await?;

    // As many jobs at once as would be made in a second, so that the rate does not depend on how fast this machine is.
    let n_jobs = (n_changes as f64 / CHANGES_PER_JOB).ceil() as usize;
    let per_second = n_jobs.div_ceil(HOUR.as_secs() as usize);
    let mut made = 0;
    for second in 0..HOUR.as_secs() {
        for _ in 0..per_second {
            let node = made % n_nodes;
            api.create_path("/apis/batch/v1/namespaces/default/jobs", &job(made, node)).await?;
            made += 1;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if (second + 1).is_multiple_of(ROW_EVERY.as_secs()) {
            row(&api, (second + 1) / 60, changes(&api).await? - start, begun).await?;
        }
    }
    let total = changes(&api).await? - start;
    cancel.cancel();
    if total < n_changes as u64 {
        return Err(format!("{total} changes, {n_changes} were asked for").into());
    }
    Ok(())
}

fn deployment(n: usize, node: usize, replicas: usize) -> Value {
    let labels = json!({"app": format!("web-{n}")});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{n}")},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod(node, "Always")},
        },
    })
}

/// Runs for half a minute, and is gone a minute later.
fn job(n: usize, node: usize) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("job-{n}")},
        "spec": {
            "ttlSecondsAfterFinished": 60,
            "template": {
                "metadata": {"annotations": {"sim.muster.dev/duration": "30s"}},
                "spec": pod(node, "Never"),
            },
        },
    })
}

fn pod(node: usize, restart: &str) -> Value {
    json!({
        "nodeName": format!("node-{node}"), "restartPolicy": restart,
        "containers": [{"name": "main", "image": "example/main", "resources": {"requests": {"cpu": "10m"}}}],
    })
}

async fn until_ready(api: &Api, n_pods: usize) -> Result<(), Failure> {
    let path = "/apis/apps/v1/namespaces/default/deployments";
    for _ in 0..600 {
        let list = api.get_path(path).await?;
        let ready: u64 = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|deployment| deployment["status"]["readyReplicas"].as_u64())
            .sum();
        if ready >= n_pods as u64 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err("the pods were not ready after ten minutes".into())
}

/// How many changes there were: every write takes one number of the cluster.
async fn changes(api: &Api) -> Result<u64, Failure> {
    let list = api.get_path("/api/v1/namespaces?limit=1").await?;
    Ok(list["metadata"]["resourceVersion"].as_str().ok_or("a list without a version")?.parse()?)
}

async fn count(api: &Api, path: &str) -> Result<u64, Failure> {
    let list = api.get_path(&format!("{path}?limit=1")).await?;
    let shown = list["items"].as_array().map_or(0, Vec::len) as u64;
    Ok(shown + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
}

async fn row(api: &Api, minute: u64, n_changes: u64, begun: Instant) -> Result<(), Failure> {
    let jobs = count(api, "/apis/batch/v1/jobs").await?;
    let pods = count(api, "/api/v1/pods").await?;
    let (now, peak) = memory();
    let took = begun.elapsed().as_secs();
    println!("{minute:6} {n_changes:8} {jobs:6} {pods:6} {now:6} {peak:9} {took:7}");
    Ok(())
}

/// Resident memory of this process in MiB, now and at the most, where the system tells.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    (field("VmRSS:").unwrap_or(0) >> 10, field("VmHWM:").unwrap_or(0) >> 10)
}
