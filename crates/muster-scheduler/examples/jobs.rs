//! How many jobs per minute an embedded cluster carries through the whole pipeline, from the Job to its completion.
//!
//! In: how many nodes, jobs and pods per job, and where the services run. Out: one JSON object with what was measured. It starts `muster up`
//! as a process of its own (release build, named by MUSTER_BIN) and speaks HTTPS to it, as any client. Run it by `cargo xtask bench jobs`.

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use muster_runtime::{Api, Connect, connect};
use muster_testkit::{Measured, Processors, muster_binary, own_cpu};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const IN_FLIGHT: usize = 64;
/// Nothing completes for so long: it has fallen over.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<()> {
    let number =
        |n: usize, default: usize| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (nodes, jobs, size) = (number(1, 1000), number(2, 10_000), number(3, 8));
    let apart = std::env::args().nth(4).as_deref() == Some("apart");
    let folder = std::env::temp_dir().join(format!("muster-jobs-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = measure(&folder, nodes, jobs, size, apart).await;
    let _ = std::fs::remove_dir_all(&folder);
    println!("{:#}", outcome?);
    Ok(())
}

async fn measure(folder: &Path, nodes: usize, jobs: usize, size: usize, apart: bool) -> Result<Value> {
    let kubeconfig = folder.join("kubeconfig");
    let binary = tokio::task::spawn_blocking(muster_binary).await??;
    eprintln!("starting {nodes} nodes");
    let mut command = Command::new(&binary);
    command.args(["up", "--port", "0", "--nodes", &nodes.to_string(), "-o", "json", "--kubeconfig"]);
    command.arg(&kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped());
    if apart {
        command.arg("--no-services");
    }
    let mut cluster = Measured::start(&mut command)?;
    cluster.first_line()?;
    let client = connect(Connect { kubeconfig: Some(kubeconfig.clone()), ..Connect::default() }).await?;
    let api = Api::new(client, "jobs");
    let services = match apart {
        true => Some(Measured::start(
            Command::new(&binary).arg("run").arg("--kubeconfig").arg(&kubeconfig).stdin(Stdio::null()),
        )?),
        false => None,
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "load"}});
    api.create_path("/api/v1/namespaces", &namespace).await?;
    // One job by itself shows that all services are there.
    let mut done = watch_done(&api).await?;
    let alone = Instant::now();
    submit(&api, 0..1, size).await?;
    let (done_at, _) = next(&mut done).await?;
    eprintln!("the first job alone took {:.2} s; submitting {jobs}", (done_at - alone).as_secs_f64());

    let (begun, before) = (Instant::now(), Processors::now()?);
    let cpu = (cluster.cpu()?, services.as_ref().map_or(Ok(0.0), Measured::cpu)?, own_cpu()?);
    let submitting = tokio::spawn({
        let api = api.clone();
        async move { submit(&api, 1..jobs + 1, size).await.map(|()| begun.elapsed().as_secs_f64()) }
    });
    let mut told = Instant::now();
    for n in 0..jobs {
        let (_, succeeded) = next(&mut done).await.with_context(|| format!("after {n} jobs"))?;
        ensure!(succeeded == size as u64, "a job completed with {succeeded} pods, not {size}");
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            eprintln!("{n} of {jobs} jobs after {:.0} s", begun.elapsed().as_secs_f64());
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let submitted = submitting.await??;
    let per_job = |from: f64, to: f64| (to - from) * 1e3 / jobs as f64;
    let memory = cluster.memory()?;
    let (idle, stolen) = Processors::now()?.since(before);
    Ok(json!({
        "nodes": nodes, "jobs": jobs, "podsPerJob": size, "services": if apart { "apart" } else { "in the cluster's process" },
        "processors": {"idle": idle, "takenByTheHost": stolen},
        "seconds": took, "submittedAfterSeconds": submitted,
        "jobsPerMinute": jobs as f64 * 60.0 / took,
        "cpuMsPerJob": {
            "cluster": per_job(cpu.0, cluster.cpu()?),
            "services": services.as_ref().map(Measured::cpu).transpose()?.map(|now| per_job(cpu.1, now)),
            "client": per_job(cpu.2, own_cpu()?),
        },
        "memoryMiB": {
            "cluster": memory / 1048576.0,
            "services": services.as_ref().map(Measured::memory).transpose()?.map(|bytes| bytes / 1048576.0),
        },
    }))
}

fn job(n: usize, size: usize) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": format!("job-{n}"), "labels": {"kai.scheduler/queue": "default-queue"},
            "annotations": {"kai.scheduler/batch-min-member": size.to_string()}},
        "spec": {"parallelism": size, "completions": size, "template": {
            "metadata": {"labels": {"kai.scheduler/queue": "default-queue"}, "annotations": {"sim.muster.dev/duration": "1s"}},
            "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}}]}}}})
}

async fn submit(api: &Api, which: std::ops::Range<usize>, size: usize) -> Result<()> {
    let all = futures::stream::iter(which).map(|n| async move {
        api.create_path("/apis/batch/v1/namespaces/load/jobs", &job(n, size)).await.map(drop)
    });
    let mut all = all.buffer_unordered(IN_FLIGHT);
    while let Some(result) = all.next().await {
        result?;
    }
    Ok(())
}

async fn next(done: &mut mpsc::UnboundedReceiver<(Instant, u64)>) -> Result<(Instant, u64)> {
    let next =
        tokio::time::timeout(PATIENCE, done.recv()).await.context("no job completed for two minutes")?;
    next.context("the watch of jobs ended")
}

/// When each job is seen to be complete, and with how many pods.
async fn watch_done(api: &Api) -> Result<mpsc::UnboundedReceiver<(Instant, u64)>> {
    let url = "/apis/batch/v1/namespaces/load/jobs?";
    let mut version = api.list_raw(url, None).await?.resource_version;
    let (api, (sender, receiver)) = (api.clone(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        let mut take = |job: &Value| {
            let complete = job["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|c| c["type"] == "Complete" && c["status"] == "True"));
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            if complete && seen.insert(name.to_owned()) {
                let _ = sender.send((Instant::now(), job["status"]["succeeded"].as_u64().unwrap_or(0)));
            }
        };
        while let Ok(mut lines) = api.watch_raw(url, &version, Duration::from_secs(600)).await {
            while let Ok(Some(line)) = lines.next().await {
                let Ok(event) = serde_json::from_str::<Value>(line) else { break };
                if event["type"] == "ERROR" {
                    // More happened than the server remembers: what was missed is in a list.
                    eprintln!("the watch of jobs fell behind");
                    let mut next: Option<String> = None;
                    while let Ok(page) = api.list_raw(url, next.as_deref()).await {
                        let jobs = page.items.iter().filter_map(|job| serde_json::from_str(job.get()).ok());
                        jobs.for_each(|job: Value| take(&job));
                        version = page.resource_version;
                        next = page.next;
                        if next.is_none() {
                            break;
                        }
                    }
                    break;
                }
                let object = &event["object"];
                if let Some(at) = object["metadata"]["resourceVersion"].as_str() {
                    version = at.to_owned();
                }
                take(object);
            }
        }
    });
    Ok(receiver)
}
