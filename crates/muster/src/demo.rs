//! `muster demo`: a tour of Muster in a terminal, in under a minute.
//!
//! In: nothing. Out: a cluster in this process, some workloads, and a commentary on what happens to them. Must stay true: nothing is left
//! behind; what is told is read from the cluster, never assumed; a step that does not come to pass ends the tour with a failure.

use crate::Exit;
use crate::admission::InProcess;
use crate::live::{self, Link, Schedulers};
use crate::services::{self, Admission, Wanted};
use crate::up::{interrupted, runtime};
use crate::view::{self, NodeRow};
use anyhow::{Context, bail};
use muster_apiserver::ApiServer;
use muster_runtime::{Api, Client, Clock};
use muster_scenario::words;
use muster_sim::Fleet;
use muster_translate::Kind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  muster demo              about 25 seconds\n  muster demo --fast       without pauses for reading\n\nIt starts a cluster of two simulated nodes with 8 GPUs each in this process, and ends it again. `muster up` starts one that stays."
)]
pub struct Args {
    /// No pauses for reading
    #[arg(long)]
    fast: bool,
}

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const A_SECOND_LATER: Duration = Duration::from_millis(1100);
const NODES: usize = 2;
const GPUS: u32 = 8;

pub fn run(args: Args) -> anyhow::Result<Exit> {
    runtime()?.block_on(async {
        let cancel = CancellationToken::new();
        let _ends_with_us = cancel.clone().drop_guard();
        tokio::select! {
            ended = tour(&args, &cancel) => ended.map(|()| Exit::Done),
            () = interrupted() => {
                eprintln!("stopped");
                Ok(Exit::Done)
            }
        }
    })
}

struct Tour {
    begun: Instant,
    link: Link,
    pause: Duration,
}

async fn tour(args: &Args, cancel: &CancellationToken) -> anyhow::Result<()> {
    let begun = Instant::now();
    let client = start(cancel)?;
    let link = Link { api: Api::new(client.clone(), "muster-demo"), namespace: "default".into() };
    let pause = if args.fast { Duration::ZERO } else { Duration::from_millis(1300) };
    let tour = Tour { begun, link, pause };
    tour.say(&format!("A cluster of {NODES} nodes with {GPUS} GPUs each, in this process."));
    tour.until("all nodes are ready", async |t: &Tour| {
        let nodes = live::list(&t.link.api, "/api/v1/nodes").await.unwrap_or_default();
        Ok(nodes.len() == NODES && nodes.iter().all(is_ready))
    })
    .await?;
    services::create_defaults(client).await?;
    tour.say("Two queues below one: research and production deserve 8 GPUs each.");
    tour.create(QUEUES, queue("company", "", 16)).await?;
    tour.create(QUEUES, queue("research", "company", 8)).await?;
    tour.create(QUEUES, queue("production", "company", 8)).await?;
    tour.rest().await;

    tour.say("A plain Deployment, `web`, 3 pods: Muster also stands in for Kubernetes' own scheduler.");
    tour.create("/apis/apps/v1/namespaces/default/deployments", deployment("web", 3)).await?;
    tour.until_running("web", 3).await?;

    tour.say("A Job of one pod, `hello`, for Muster's own scheduler name and in no particular queue.");
    tour.create(JOBS, job("hello", "default-queue", 1, "1s")).await?;
    tour.until("hello is done", async |t: &Tour| Ok(t.succeeded("hello").await? == 1)).await?;
    tour.say("`hello` is done.");

    tour.say("A gang, Job `train-a`, 8 pods with a GPU each in research: all of them start, or none.");
    tour.create(JOBS, job("train-a", "research", 8, "13s")).await?;
    tour.until_running("train-a", 8).await?;

    tour.say("Two pods that share one GPU, half each: `half-0` and `half-1`.");
    for name in ["half-0", "half-1"] {
        tour.create("/api/v1/namespaces/default/pods", half(name, "research")).await?;
    }
    tour.until_running("half-0", 1).await?;
    tour.until_running("half-1", 1).await?;
    tour.nodes().await?;

    // Ages are told apart by the second, and the younger gang is to be the one that goes.
    tokio::time::sleep(A_SECOND_LATER).await;
    tour.say("Job `train-b`, 7 GPUs in research: more than its quota, but production's share is idle, so it is lent.");
    tour.create(JOBS, job("train-b", "research", 7, "9s")).await?;
    tour.until_running("train-b", 7).await?;

    tour.say("Job `train-c`, 4 GPUs in research: there is no room, so the gang waits whole. `muster explain job/train-c` says:");
    tour.create(JOBS, job("train-c", "research", 4, "20s")).await?;
    tour.until("train-c waits", async |t: &Tour| Ok(t.why("train-c").await?.is_some())).await?;
    for line in tour.why("train-c").await?.unwrap_or_default() {
        println!("           | {line}");
    }
    tour.rest().await;

    tour.say("Job `serve`, 7 GPUs in production, which asks for its own: Muster reclaims what was lent, a whole gang at once.");
    tour.create(JOBS, job("serve", "production", 7, "8s")).await?;
    tour.until("train-b is evicted", async |t: &Tour| {
        Ok(t.running("train-b").await? < 7 && t.succeeded("train-b").await? == 0)
    })
    .await?;
    tour.say("`train-b` is evicted: it had more than its queue deserves, and waits again.");
    tour.until_running("serve", 7).await?;
    tour.nodes().await?;
    tour.queues().await?;

    tour.say("Now to wait: `train-a` and `serve` finish, and those that waited come up.");
    tour.until("train-a is done", async |t: &Tour| Ok(t.succeeded("train-a").await? == 8)).await?;
    tour.say("`train-a` is done.");
    tour.until_running("train-b", 7).await?;
    tour.until_running("train-c", 4).await?;
    tour.nodes().await?;

    tour.say("And the manifests of other systems, as their users write them, on the same cluster and the same engine:");
    for (path, object) in dialects() {
        tour.create(path, object).await?;
    }
    for (of, what, pods) in DIALECTS {
        tour.until(&format!("{what} runs"), async |t: &Tour| Ok(t.running(of).await? >= pods)).await?;
        println!("           | {what}: {pods} of {pods} pods run");
    }
    tour.rest().await;
    tour.say("That was: gangs whole or not at all, shared GPUs, idle quota lent and taken back, a reason for every wait, and one engine for all of it.");
    println!(
        "\nWhat to try next:\n  muster up                      a cluster that stays; then: export KUBECONFIG=~/.muster/kubeconfig\n  muster get gangs -A            what waits, and why, in a word; `muster explain` has all of it\n  muster top                     queues and nodes by use\n  muster install --dry-run       the manifests for a cluster of your own"
    );
    Ok(())
}

/// The embedded cluster: server, nodes, controllers and Muster's services, until cancelled.
fn start(cancel: &CancellationToken) -> anyhow::Result<Client> {
    let admission = Arc::new(InProcess::default());
    let mut options = muster_apiserver::Options::default();
    options.hooks.push(admission.clone());
    let server = ApiServer::new(options);
    server
        .install_crds(crate::crds::select(&[])?)
        .map_err(|error| anyhow::anyhow!("a generated CRD was refused: {error}"))?;
    let background = server.clone();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    let client = Client::near(server.inside());
    let simulated = muster_sim::Options { fleet: Fleet::simple(NODES, GPUS)?, ..Default::default() };
    tokio::spawn(muster_sim::run(client.clone(), simulated, muster_sim::Clock::system(), cancel.clone()));
    let mut wanted = Wanted { admission: Some(Admission::InProcess(admission)), ..Wanted::default() };
    wanted.scheduler_names.push("default-scheduler".into());
    tokio::spawn(services::run(client.clone(), Clock::system(), wanted, cancel.clone()));
    Ok(client)
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

const QUEUES: &str = "/apis/scheduling.run.ai/v2/queues";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn queue(name: &str, parent: &str, gpus: u32) -> Value {
    let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let mut queue = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
        "spec": {"resources": {"cpu": any, "memory": any, "gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}}},
    });
    if !parent.is_empty() {
        queue["spec"]["parentQueue"] = json!(parent);
    }
    queue
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"demo": name}}, "template": {
            "metadata": {"labels": {"demo": name}},
            "spec": {"containers": [{"name": "c", "image": "web", "resources": {"requests": {"cpu": "100m"}}}]},
        }},
    })
}

fn job(name: &str, queue: &str, pods: u32, duration: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": queue},
            "annotations": {"kai.scheduler/batch-min-member": pods.to_string()}},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 100, "template": {
            "metadata": {"labels": {"demo": name, "kai.scheduler/queue": queue},
                "annotations": {"sim.muster.dev/duration": duration, "sim.muster.dev/stop-delay": "200ms"}},
            "spec": {"schedulerName": "muster-scheduler", "restartPolicy": "Never", "containers": [
                {"name": "c", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        }},
    })
}

fn half(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"demo": name, "kai.scheduler/queue": queue},
            "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"schedulerName": "muster-scheduler", "containers": [{"name": "c", "image": "notebook"}]},
    })
}

/// One workload of each of the other systems: the label of its pods, what it is, and how many pods there are.
const DIALECTS: [(&str, &str, usize); 6] = [
    ("volcano", "Volcano, a PodGroup in a Queue", 2),
    ("kueue", "Kueue, a Job in a LocalQueue, admitted when quota and nodes have room", 2),
    ("t9k", "T9k, a PodGroup with roles", 2),
    ("koordinator", "Koordinator, a PodGroup", 2),
    ("kubernetes", "Kubernetes' own gang API, a PodGroup", 2),
    ("grove", "Grove, a PodCliqueSet of two cliques", 2),
];

/// What a user of each system applies for it, and where.
fn dialects() -> Vec<(&'static str, Value)> {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let container = json!([{"name": "c", "image": "train", "resources": {"requests": {"cpu": "100m"}}}]);
    let pod = |of: &str, n: u32, scheduler: &str, metadata: Value, spec: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{of}-{n}"), "labels": {"demo": of}},
            "spec": {"schedulerName": scheduler, "containers": container}});
        json_patch::merge(&mut pod["metadata"], &metadata);
        json_patch::merge(&mut pod["spec"], &spec);
        (PODS, pod)
    };
    let cluster_queue = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": "demo", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]});
    let kueue_job = json!({"parallelism": 2, "completions": 2, "template": {
        "metadata": {"labels": {"demo": "kueue"}, "annotations": {"sim.muster.dev/duration": "60s"}},
        "spec": {"schedulerName": "muster-scheduler", "restartPolicy": "Never", "containers": container}}});
    let clique = |name: &str| {
        json!({"name": name, "labels": {"demo": "grove"}, "spec": {"roleName": name, "replicas": 1,
            "podSpec": {"schedulerName": "muster-scheduler", "containers": container}}})
    };
    let object = |api_version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let mut all = vec![
        (
            "/apis/scheduling.volcano.sh/v1beta1/queues",
            object("scheduling.volcano.sh/v1beta1", "Queue", "team", json!({"weight": 1})),
        ),
        (
            "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
            object("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "demo", json!({})),
        ),
        (
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
            object("kueue.x-k8s.io/v1beta2", "ClusterQueue", "team", cluster_queue),
        ),
        (
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues",
            object("kueue.x-k8s.io/v1beta2", "LocalQueue", "team", json!({"clusterQueue": "team"})),
        ),
        (
            "/apis/scheduler.tensorstack.dev/v1beta1/namespaces/default/podgroups",
            object(
                "scheduler.tensorstack.dev/v1beta1",
                "PodGroup",
                "train",
                json!({"minMember": 2, "roles": [{"name": "master", "minMember": 1}, {"name": "worker", "minMember": 1}]}),
            ),
        ),
        (
            "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups",
            object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "train", json!({"minMember": 2})),
        ),
        (
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
            object(
                "scheduling.k8s.io/v1alpha2",
                "PodGroup",
                "train",
                json!({"schedulingPolicy": {"gang": {"minCount": 2}}}),
            ),
        ),
        (
            "/apis/grove.io/v1alpha1/namespaces/default/podcliquesets",
            object(
                "grove.io/v1alpha1",
                "PodCliqueSet",
                "serve-llm",
                json!({"replicas": 1, "template": {"cliques": [clique("prefill"), clique("decode")]}}),
            ),
        ),
    ];
    let mut job = object("batch/v1", "Job", "kueue", kueue_job);
    job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team"});
    all.push((JOBS, job));
    // Admission learns of a queue by a watch, and refuses a group of a queue that it does not know: the group comes last.
    all.push((
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
        object(
            "scheduling.volcano.sh/v1beta1",
            "PodGroup",
            "train",
            json!({"minMember": 2, "queue": "team"}),
        ),
    ));
    for (n, role) in [(0, "master"), (1, "worker")] {
        let named = json!({"annotations": {"scheduling.k8s.io/group-name": "train"}});
        all.push(pod("volcano", n, "volcano", named, json!({})));
        let named = json!({"labels": {"scheduler.tensorstack.dev/group-name": "train", "scheduler.tensorstack.dev/role": role}});
        all.push(pod("t9k", n, "t9k-scheduler", named, json!({})));
        let named = json!({"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}});
        all.push(pod("koordinator", n, "koord-scheduler", named, json!({})));
        let group = json!({"schedulingGroup": {"podGroupName": "train"}});
        all.push(pod("kubernetes", n, "default-scheduler", json!({}), group));
    }
    all
}

impl Tour {
    fn say(&self, text: &str) {
        println!("{:>6.1} s   {text}", self.begun.elapsed().as_secs_f64());
    }

    async fn rest(&self) {
        tokio::time::sleep(self.pause).await;
    }

    async fn create(&self, path: &str, object: Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let made = self.link.api.create_path(path, &object).await;
        made.map(drop)
            .map_err(|error| anyhow::anyhow!("cannot create {} {name}: {}", object["kind"], error.message()))
    }

    /// Looks again and again until something holds.
    async fn until(
        &self,
        what: &str,
        holds: impl AsyncFn(&Tour) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !holds(self).await? {
            if begun.elapsed() > PATIENCE {
                self.nodes().await?;
                self.gangs().await?;
                bail!(
                    "the tour ends here: {what} did not come to pass within {} s\nhint: MUSTER_LOG=info muster demo says more",
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn pods(&self, of: &str) -> anyhow::Result<Vec<Value>> {
        let pods = live::list(&self.link.api, "/api/v1/namespaces/default/pods")
            .await
            .context("cannot list pods")?;
        Ok(pods.into_iter().filter(|pod| pod["metadata"]["labels"]["demo"] == of).collect())
    }

    async fn running(&self, of: &str) -> anyhow::Result<usize> {
        let is_running = |pod: &&Value| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].as_str().is_none()
        };
        Ok(self.pods(of).await?.iter().filter(is_running).count())
    }

    async fn succeeded(&self, of: &str) -> anyhow::Result<usize> {
        Ok(self.pods(of).await?.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count())
    }

    /// Waits until so many pods run, and says where.
    async fn until_running(&self, of: &str, n: usize) -> anyhow::Result<()> {
        self.until(&format!("{of} runs"), async |t: &Tour| Ok(t.running(of).await? >= n)).await?;
        let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
        for pod in self.pods(of).await? {
            if let Some(node) =
                pod["spec"]["nodeName"].as_str().filter(|_| pod["status"]["phase"] == "Running")
            {
                *nodes.entry(node.to_owned()).or_default() += 1;
            }
        }
        let places: Vec<String> = nodes.iter().map(|(node, n)| format!("{n} on {node}")).collect();
        self.say(&format!("`{of}` runs: {}", places.join(", ")));
        self.rest().await;
        Ok(())
    }

    /// Why the gang of a Job waits, in lines; `None` if it does not, or has no group yet.
    async fn why(&self, job: &str) -> anyhow::Result<Option<Vec<String>>> {
        let snapshot = live::snapshot(&self.link, &Schedulers::default()).await?;
        let of_job = |group: &&Value| {
            let owners = group["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|owner| owner["name"] == job)
        };
        let Some(group) = snapshot.of(Kind::PodGroup).find(of_job) else { return Ok(None) };
        let key = view::key_of(group);
        let mut seen = snapshot.decide();
        let Some(refusal) = seen.explain(&key).filter(|r| r.waiting >= r.needed) else { return Ok(None) };
        let lines =
            std::iter::once(words::headline(&refusal)).chain(words::lines(&refusal).into_iter().take(3));
        Ok(Some(lines.collect()))
    }

    async fn nodes(&self) -> anyhow::Result<()> {
        let snapshot = live::snapshot(&self.link, &Schedulers::default()).await?;
        for node in view::nodes(&snapshot, &snapshot.decide()) {
            println!("           | {} {} {}", node.name, node.bar(), in_use(&node));
        }
        Ok(())
    }

    async fn gangs(&self) -> anyhow::Result<()> {
        let snapshot = live::snapshot(&self.link, &Schedulers::default()).await?;
        for gang in view::gangs(&snapshot, &snapshot.decide()) {
            let why = gang.reason.map_or_else(String::new, |(_, why)| format!(": {why}"));
            println!(
                "           | {} {}/{}/{} {:?}{why}",
                gang.key, gang.placed, gang.needed, gang.total, gang.state
            );
        }
        Ok(())
    }

    async fn queues(&self) -> anyhow::Result<()> {
        let snapshot = live::snapshot(&self.link, &Schedulers::default()).await?;
        let seen = snapshot.decide();
        for queue in view::queues(&seen, &view::gangs(&snapshot, &seen)) {
            if matches!(&*queue.name, "research" | "production") {
                let gpus = |n: i128| words::thousandths(n);
                println!(
                    "           | queue {}: {} GPUs in use, {} asked for, fair share {}",
                    queue.name,
                    gpus(queue.allocated[view::GPUS]),
                    gpus(queue.requested[view::GPUS]),
                    gpus(queue.fair[view::GPUS])
                );
            }
        }
        self.rest().await;
        Ok(())
    }
}

fn in_use(node: &NodeRow) -> String {
    let shared = if node.shared > 0 { format!(", {} of them shared", node.shared) } else { String::new() };
    format!("{} of {} GPUs in use{shared}", node.whole + node.shared, node.gpus)
}
