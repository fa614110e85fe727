//! kill -9 for real: `muster run`, kube-apiserver and etcd are processes, and each is killed at moments that a seed gives, while gangs
//! come, run and go.
//!
//! In: a seed (`$MUSTER_SEED`, 1 if absent). Out: nothing, if all is well: at no look at the cluster was a device handed out twice, and in
//! the end every job is done, no gang is left in part, and nothing is left behind. Moments are on the wall clock, so the seed gives the
//! same kills in the same order and not the same course. The simulated kubelets live in this process, and live on.
//!
//! A binary of its own: it needs a cluster that nobody else leans on.

use anyhow::{Context, Result, bail, ensure};
use muster_e2e::crds;
use muster_testkit::{
    Cluster, Component, Http, RealCluster, RealOptions, Request, Services, eventually, or_skip,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const NODES: usize = 3;
const GPUS: u32 = 8;
const JOBS: u64 = 18;
/// Each victim is killed once, and then whoever the seed says, for so long. On a busy machine an API server needs half a minute to come
/// back, and Muster always waits for the lease of the one that was killed, 15 s.
const KILLING: Duration = Duration::from_secs(70);
/// From the first job to the last one done; starting a cluster comes before it, and clearing up after it.
const PATIENCE: Duration = Duration::from_secs(160);
const NAMESPACE: &str = "default";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Muster,
    ApiServer,
    Etcd,
    /// As when the machine of the control plane dies.
    ControlPlane,
}

impl Victim {
    fn processes(self) -> &'static [&'static str] {
        match self {
            Victim::Muster => &[],
            Victim::ApiServer => &["kube-apiserver"],
            Victim::Etcd => &["etcd"],
            Victim::ControlPlane => &["kube-apiserver", "etcd"],
        }
    }
}

/// splitmix64: the seed is all the state there is.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_everything_is_done_in_the_end() -> Result<()> {
    let seed = match std::env::var("MUSTER_SEED") {
        Ok(text) => text.parse().context("MUSTER_SEED is no number")?,
        Err(_) => 1,
    };
    let options = RealOptions { with: vec![Component::ControllerManager], ..RealOptions::default() };
    let Some(mut cluster) = or_skip(RealCluster::start(options).await)? else { return Ok(()) };
    let mut log = Vec::new();
    match course(&mut cluster, seed, &mut log).await {
        Ok(said) => {
            eprintln!("seed {seed}: {said}");
            Ok(())
        }
        Err(error) => {
            eprintln!("{}", log.join("\n"));
            Err(error.context(format!(
                "seed {seed}; again: MUSTER_SEED={seed} cargo test -p muster-e2e --test kill"
            )))
        }
    }
}

async fn course(cluster: &mut RealCluster, seed: u64, log: &mut Vec<String>) -> Result<String> {
    crds::apply(cluster, &["--group", "kai"]).await?;
    create_defaults(cluster).await?;
    let ends_with_us = CancellationToken::new();
    let _nodes = play_nodes((**cluster).clone(), &ends_with_us)?;
    let mut services = Services::start(cluster, &[]).await?;

    let begun = Instant::now();
    let mut random = Random(seed);
    let mut jobs: Vec<Value> = (0..JOBS).map(|n| job(&mut random, n)).collect();
    jobs.reverse();
    let mut victims = vec![Victim::Muster, Victim::ApiServer, Victim::Etcd, Victim::ControlPlane];
    for i in (1..victims.len()).rev() {
        victims.swap(i, random.below(i as u64 + 1) as usize);
    }
    let http = cluster.http().await?;
    let mut looks = 0_u32;
    let mut next_job = Instant::now();
    let mut next_kill = Instant::now() + random.millis(3_000, 6_000);
    let mut done = Vec::new();
    while !jobs.is_empty() || !victims.is_empty() || begun.elapsed() < KILLING {
        ensure!(begun.elapsed() < PATIENCE, "{} jobs and {} kills are left", jobs.len(), victims.len());
        if Instant::now() >= next_job
            && let Some(job) = jobs.last()
            && submit(&http, job).await
        {
            jobs.pop();
            next_job = Instant::now() + random.millis(500, 4_000);
        }
        if Instant::now() >= next_kill && (!victims.is_empty() || begun.elapsed() < KILLING) {
            let all = [Victim::Muster, Victim::ApiServer, Victim::Etcd, Victim::ControlPlane];
            let victim = victims.pop().unwrap_or(all[random.below(4) as usize]);
            let away = random.millis(1, 1_500);
            log.push(format!("{:.1} s: {victim:?} is killed for {away:?}", begun.elapsed().as_secs_f64()));
            kill(cluster, &mut services, victim, away).await?;
            done.push(victim);
            next_kill = Instant::now() + random.millis(1_000, 12_000);
        }
        looks += u32::from(look(&http).await?);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    ensure!(looks > 20, "the cluster was looked at {looks} times only");

    let left = PATIENCE.saturating_sub(begun.elapsed());
    let finished = eventually("every job is done", left, async || {
        let finding = look(&http).await.err();
        let open = open_jobs(&http).await;
        match (finding, open) {
            (Some(finding), _) => Ok(Err(finding)),
            (None, Ok(0)) => Ok(Ok(())),
            (None, Ok(n)) => Err(format!("{n} are not")),
            (None, Err(error)) => Err(format!("{error:#}")),
        }
    });
    if let Err(error) = finished.await.and_then(|ended| ended) {
        log.push(state(&http).await);
        log.push(services.log());
        return Err(error);
    }
    let took = begun.elapsed();
    clear(&http).await?;
    services.check()?;
    cluster.check()?;
    let said = services.log();
    ensure!(!said.contains("panicked"), "{said}");
    ends_with_us.cancel();
    Ok(format!("{JOBS} jobs done in {:.0} s, {looks} looks, killed {done:?}", took.as_secs_f64()))
}

/// Kills somebody, and starts them again after a while.
async fn kill(
    cluster: &mut RealCluster,
    services: &mut Services,
    victim: Victim,
    away: Duration,
) -> Result<()> {
    if victim == Victim::Muster {
        services.check()?;
        services.kill_for_now()?;
        tokio::time::sleep(away).await;
        return services.again();
    }
    cluster.check()?;
    for process in victim.processes() {
        cluster.kill(process)?;
    }
    tokio::time::sleep(away).await;
    // Whatever the others lean on comes first.
    for process in victim.processes().iter().rev() {
        cluster.restart(process)?;
    }
    let http = cluster.http().await?;
    eventually("the API server is ready", Duration::from_secs(60), async || {
        let answer = http.send(&Request::new("GET", "/readyz")).await?;
        ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    cluster.check()
}

/// A gang: whole GPUs or parts of them, for a few seconds.
fn job(random: &mut Random, number: u64) -> Value {
    let name = format!("w{number}");
    let pods = 2 + random.below(7);
    let labels = json!({"app": name, "kai.scheduler/queue": "default-queue"});
    let mut annotations = json!({"sim.muster.dev/duration": format!("{}s", 2 + random.below(8))});
    let mut resources = json!({"requests": {"cpu": "100m"}});
    if random.below(4) == 0 {
        annotations["gpu-fraction"] = json!(["0.25", "0.5"][random.below(2) as usize]);
    } else {
        resources["limits"] = json!({"nvidia.com/gpu": (1 + random.below(2)).to_string()});
    }
    json!({"apiVersion": "batch/v1", "kind": "Job",
    "metadata": {"name": name, "labels": labels, "annotations": {"kai.scheduler/batch-min-member": pods.to_string()}},
    "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "app:1", "resources": resources}]},
    }}})
}

/// Whether the job is there now. One whose answer was lost is there already the next time.
async fn submit(http: &Http, job: &Value) -> bool {
    let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs");
    match http.send(&Request::new("POST", &path).json(job)).await {
        Ok(answer) => answer.status == 201 || answer.status == 409,
        Err(_) => false,
    }
}

async fn list(http: &Http, path: &str) -> Result<Vec<Value>> {
    let answer = http.send(&Request::new("GET", path)).await?;
    ensure!(answer.status == 200, "{path}: {}", answer.status);
    let mut list = answer.json().context("no JSON")?;
    Ok(match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

/// What holds room on a node.
fn holds(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Looks at all pods at once: no device may be given twice. `false` if nobody answers.
async fn look(http: &Http) -> Result<bool> {
    let Ok(pods) = list(http, "/api/v1/pods").await else { return Ok(false) };
    let mut whole: BTreeMap<&str, (u64, Vec<String>)> = BTreeMap::new();
    let mut shared: BTreeMap<&str, (f64, Vec<String>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| holds(pod)) {
        let (name, node) = (pod["metadata"]["name"].to_string(), pod["spec"]["nodeName"].as_str());
        let asked = &pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"];
        if let (Some(n), Some(node)) = (asked.as_str().and_then(|n| n.parse::<u64>().ok()), node) {
            let (sum, names) = whole.entry(node).or_default();
            *sum += n;
            names.push(format!("{name} {n}"));
        }
        let part =
            pod["metadata"]["annotations"]["gpu-fraction"].as_str().and_then(|n| n.parse::<f64>().ok());
        if let (Some(part), Some(group)) = (part, pod["metadata"]["labels"]["runai-gpu-group"].as_str()) {
            let (sum, names) = shared.entry(group).or_default();
            *sum += part;
            names.push(format!("{name} {part}"));
        }
    }
    for (node, (sum, names)) in whole {
        ensure!(sum <= u64::from(GPUS), "{node} has {GPUS} GPUs and {sum} are given: {}", names.join(", "));
    }
    for (group, (sum, names)) in shared {
        ensure!(sum < 1.001, "shared GPU {group} is given {sum} times: {}", names.join(", "));
    }
    Ok(true)
}

async fn open_jobs(http: &Http) -> Result<usize> {
    let jobs = list(http, &format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs")).await?;
    ensure!(jobs.len() as u64 == JOBS, "{} jobs are there", jobs.len());
    let complete = |job: &&Value| {
        let conditions = job["status"]["conditions"].as_array();
        let says = conditions.into_iter().flatten().any(|c| c["type"] == "Complete" && c["status"] == "True");
        says && job["status"]["succeeded"] == job["spec"]["completions"]
    };
    Ok(jobs.len() - jobs.iter().filter(complete).count())
}

/// What is there, for the report of a failed run.
async fn state(http: &Http) -> String {
    let mut said = Vec::new();
    let pods = list(http, "/api/v1/pods").await.unwrap_or_default();
    for pod in pods.iter().filter(|pod| pod["status"]["phase"] != "Succeeded") {
        let (name, spec, status) = (&pod["metadata"]["name"], &pod["spec"], &pod["status"]);
        said.push(format!(
            "pod {name} on {} is {} {}",
            spec["nodeName"], status["phase"], status["conditions"]
        ));
    }
    for group in list(http, "/apis/scheduling.run.ai/v2alpha2/podgroups").await.unwrap_or_default() {
        said.push(format!(
            "group {} needs {}: {}",
            group["metadata"]["name"], group["spec"]["minMember"], group["status"]
        ));
    }
    said.join("\n")
}

/// Deletes the jobs; everything that was made for them must go.
async fn clear(http: &Http) -> Result<()> {
    let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs");
    let all = Request::new("DELETE", &path).json(&json!({"propagationPolicy": "Background"}));
    let answer = http.send(&all).await?;
    ensure!(answer.status == 200, "delete jobs: {}", answer.status);
    let kinds = [
        path.as_str(),
        "/api/v1/pods",
        "/apis/scheduling.run.ai/v2alpha2/podgroups",
        "/apis/scheduling.run.ai/v1alpha2/bindrequests",
    ];
    eventually("everything is gone", Duration::from_secs(60), async || {
        for path in kinds {
            let left = list(http, path).await?;
            if let Some(first) = left.first() {
                bail!("{} of {path} are left, {} among them", left.len(), first["metadata"]["name"]);
            }
        }
        Ok(())
    })
    .await
}

/// What `muster install` creates besides the services.
async fn create_defaults(cluster: &Cluster) -> Result<()> {
    let http = cluster.http().await?;
    for object in muster_install::priority_classes().into_iter().chain(muster_install::default_queues(-1)) {
        let path = muster_install::path(&object).context("an object without a path")?;
        let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
        let answer = http.send(&Request::new("POST", collection).json(&object)).await?;
        ensure!(answer.status == 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}

/// Simulated nodes and kubelets as clients of the cluster, in a task that ends with `cancel`.
fn play_nodes(cluster: Cluster, cancel: &CancellationToken) -> Result<tokio::task::JoinHandle<()>> {
    use muster_sim::{Clock, Component, Fleet, Options, Shape};
    let options = Options {
        fleet: Fleet::simple(NODES, GPUS)?,
        default_shape: Shape::with_gpus(GPUS),
        components: [Component::Nodes, Component::Kubelet].into(),
        ..Options::default()
    };
    let cancel = cancel.clone();
    Ok(tokio::spawn(async move {
        let ended = async {
            let client = cluster.client().await?;
            anyhow::Ok(muster_sim::run(client, options, Clock::system(), cancel).await?)
        };
        if let Err(error) = ended.await {
            eprintln!("the simulated nodes ended: {error:#}");
        }
    }))
}
