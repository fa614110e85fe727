//! The same load on Muster and on its peers, each beside an API server of its own that begins empty.
//!
//! In: the load, and how many rounds. Out: for each system and round, how fast its pods were bound and what that cost. Must stay true: all systems are
//! treated alike. Their limits of requests are out of the way; pods and groups are there before the scheduler starts; what counts is what the API server
//! says, the number of writes, too.

use crate::load::{
    Load, System, check_spread, create_gangs, create_namespace, create_nodes, rate_of, wait_for, watch_binds,
};
use anyhow::{Context, Result};
use http::Request;
use muster_runtime::{Api, Connect, connect};
use muster_testkit::{Measured, Processors, Programs, RealCluster, RealOptions, Release, muster_binary};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const SYSTEMS: [System; 4] =
    [System::Muster, System::KubeScheduler, System::Volcano, System::KubeSchedulerGangs];
/// Nobody is to wait because of a limit of its own client.
const QPS: u32 = 10_000;

pub async fn run(load: Load, rounds: usize) -> Result<Value> {
    let mut runs: Vec<(System, Value)> = Vec::new();
    // In turns, so that a machine that gets slower or faster does so for all.
    for round in 1..=rounds {
        for system in SYSTEMS {
            eprintln!("round {round} of {rounds}: {}", system.name());
            let mut measured = measure(system, load).await.with_context(|| system.name())?;
            eprintln!("  {:.0} pods/s", measured["podsPerSecond"].as_f64().unwrap_or_default());
            measured["system"] = system.name().into();
            measured["round"] = round.into();
            runs.push((system, measured));
        }
    }
    let mean = |system: System, what: &str| {
        let of: Vec<f64> =
            runs.iter().filter(|run| run.0 == system).filter_map(|run| run.1[what].as_f64()).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    let ratios: serde_json::Map<String, Value> = SYSTEMS
        .into_iter()
        .filter(|system| *system != System::Muster)
        .map(|system| {
            let ratio = |what| mean(System::Muster, what) / mean(system, what);
            let ratios = json!({
                "podsPerSecond": ratio("podsPerSecond"),
                "podsPerSecondFromStart": ratio("podsPerSecondFromStart"),
                "cpuMsPerPod": ratio("cpuMsPerPod"),
                "writesPerPod": ratio("writesPerPod"),
                "memoryMiB": ratio("memoryMiB"),
            });
            (system.name().to_owned(), ratios)
        })
        .collect();
    Ok(json!({"runs": runs.into_iter().map(|run| run.1).collect::<Vec<_>>(), "musterToPeer": ratios}))
}

async fn measure(system: System, load: Load) -> Result<Value> {
    let real =
        RealCluster::start(RealOptions { with: Vec::new(), nodes: 0, ..RealOptions::default() }).await?;
    let client = connect(Connect { kubeconfig: Some(real.kubeconfig.clone()), ..Connect::default() }).await?;
    let api = Api::new(client.clone(), "peers");
    create_nodes(&api, load.nodes).await?;
    system.prepare(&api).await?;
    create_namespace(&api, "load").await?;
    create_gangs(&api, "load", system, load).await?;
    let mut seen = watch_binds(&client, "load").await?;
    let (config, path) = (real.logs().join("scheduler.json"), real.kubeconfig.clone());
    let mut command = tokio::task::spawn_blocking(move || command(system, &path, &config)).await??;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (before, writes_before, cpu_before) = (Processors::now()?, writes(&client).await?, real.cost()?.0);
    let started = Instant::now();
    let mut scheduler = Measured::start(&mut command)?;
    let times = wait_for(&mut seen, load.pods()).await?;
    let (cpu, memory) = (scheduler.cpu()?, scheduler.memory()?);
    let (server_cpu, writes) = (real.cost()?.0 - cpu_before, writes(&client).await? - writes_before);
    let (idle, stolen) = Processors::now()?.since(before);
    scheduler.stop();
    check_spread(&api, "load", load.nodes).await?;
    let pods = load.pods() as f64;
    let since_start = |time: Option<&Instant>| time.map_or(0.0, |time| (*time - started).as_secs_f64());
    let all_bound = since_start(times.last());
    Ok(json!({
        "firstBindAfterSeconds": since_start(times.first()),
        "allBoundAfterSeconds": all_bound,
        "podsPerSecond": rate_of(&times)?,
        "podsPerSecondFromStart": pods / all_bound,
        "cpuMsPerPod": cpu * 1e3 / pods,
        "serverCpuMsPerPod": server_cpu * 1e3 / pods,
        "writesPerPod": writes / pods,
        "memoryMiB": memory / 1048576.0,
        "processors": {"idle": idle, "takenByTheHost": stolen},
    }))
}

/// The scheduler of a system, as a process. `config` is where it may write a file.
fn command(system: System, kubeconfig: &Path, config: &Path) -> Result<Command> {
    Ok(match system {
        System::Nobody | System::Muster => {
            let mut command = Command::new(muster_binary()?);
            command.args(["run", "--components", "scheduler", "--scheduler-name", "kai-scheduler"]);
            command.args(["--metrics-address", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
            command
        }
        System::KubeScheduler | System::KubeSchedulerGangs => {
            // JSON is YAML.
            let settings = json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": false},
                "clientConnection": {"kubeconfig": kubeconfig, "qps": QPS, "burst": 2 * QPS,
                    "contentType": "application/vnd.kubernetes.protobuf"},
            });
            std::fs::write(config, settings.to_string())?;
            let mut command = Command::new(Programs::ensure()?.path("kube-scheduler"));
            command.arg("--config").arg(config).args(["--secure-port=0", "--bind-address=127.0.0.1"]);
            if system == System::KubeSchedulerGangs {
                command.arg(format!("--feature-gates={}", Release::default().gates()));
            }
            command
        }
        System::Volcano => {
            let mut command = Command::new(Programs::ensure_volcano()?.path("vc-scheduler"));
            command.arg("--kubeconfig").arg(kubeconfig).arg(format!("--kube-api-qps={QPS}"));
            command.arg(format!("--kube-api-burst={}", 2 * QPS)).args([
                "--scheduler-name=volcano",
                "--leader-elect=false",
                "--cache-dumper=false",
                "--enable-healthz=false",
                "--enable-metrics=false",
                "--schedule-period=1s",
            ]);
            command
        }
    })
}

/// Requests that change something, as the API server counts them.
async fn writes(client: &kube::Client) -> Result<f64> {
    let text = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
    let counted = |line: &str| {
        let (labels, value) = line.strip_prefix("apiserver_request_total{")?.split_once("} ")?;
        let is_write = ["POST", "PUT", "PATCH", "DELETE"]
            .iter()
            .any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
        is_write.then(|| value.trim().parse::<f64>().ok())?
    };
    Ok(text.lines().filter_map(counted).sum())
}
