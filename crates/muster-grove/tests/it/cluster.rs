//! A cluster in one process: the embedded server, simulated nodes, Muster's scheduler, and Grove, on one virtual clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_api::crd::System;
use muster_apiserver::ApiServer;
use muster_grove::Options;
use muster_grove::object::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};
use muster_runtime::api::{Delete, Patch};
use muster_runtime::common::Pod;
use muster_runtime::object::{Object, is_true};
use muster_runtime::{Api, Clock, Context};
use muster_sim::Fleet;
use muster_sim::faults::FaultLayer;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};

pub const SETS: &str = "/apis/grove.io/v1alpha1/namespaces/default/podcliquesets";

pub struct Cluster {
    pub api: Api,
    server: ApiServer,
    clock: Clock,
    /// What Grove asked of the server, as `verb kind`.
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    cancel: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A cluster of so many nodes with one GPU each, with Grove on it.
pub async fn cluster(n_nodes: usize) -> Cluster {
    let cluster = bare(n_nodes).await;
    cluster.start(Options::default());
    cluster
}

/// The same without Grove.
pub async fn bare(n_nodes: usize) -> Cluster {
    bare_like(n_nodes, muster_apiserver::KubeVersion::V1_36).await
}

/// The same that resembles another Kubernetes.
pub async fn bare_like(n_nodes: usize, kube_version: muster_apiserver::KubeVersion) -> Cluster {
    let systems = [System::Kai, System::Grove, System::Volcano, System::Koordinator, System::T9k];
    bare_with(n_nodes, kube_version, muster_api::crd::crds(Some(&systems))).await
}

/// The same with these CRDs instead of Muster's own.
pub async fn bare_with(
    n_nodes: usize,
    kube_version: muster_apiserver::KubeVersion,
    crds: Vec<Value>,
) -> Cluster {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(base);
    let server = ApiServer::new(muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base),
        kube_version,
        ..muster_apiserver::Options::default()
    });
    server.install_crds(crds).unwrap();
    let cancel = CancellationToken::new();
    let background = server.clone();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    let client = kube::Client::new(server.clone(), "default");
    let fleet = Fleet::simple(n_nodes, 1).unwrap();
    let run = muster_sim::run(
        client.clone(),
        muster_sim::Options { fleet, ..muster_sim::Options::default() },
        clock,
        cancel.clone(),
    );
    tokio::spawn(async move { run.await.unwrap() });
    let (cx, events) = Context::new(client.clone(), "muster", clock, cancel.clone());
    let mut options = muster_scheduler::Options::default();
    options.settings.scheduler_names =
        ["default-scheduler", "kai-scheduler", "muster-scheduler"].map(Into::into).to_vec();
    options.settings.implicit_default_queue = true;
    tokio::spawn(events);
    tokio::spawn(muster_scheduler::start(&cx, options));
    let cluster = Cluster { api: Api::new(client, "test"), server, clock, asked: Arc::default(), cancel };
    for (name, value) in [("high-priority", 1000), ("inference", 125)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    }
    cluster
}

impl Cluster {
    /// Starts Grove; a second one after the first was cancelled is what a restart looks like.
    pub fn start(&self, options: Options) -> CancellationToken {
        self.start_through(options, FaultLayer::new(0, Vec::new()))
    }

    /// Grove that sees the server through faults.
    pub fn start_through(&self, options: Options, faults: FaultLayer) -> CancellationToken {
        let asked = self.asked.clone();
        let counted = self.server.clone().map_request(move |request: http::Request<kube::client::Body>| {
            let what = format!("{} {}", request.method(), kind_of(request.uri().path()));
            *asked.lock().unwrap().entry(what).or_default() += 1;
            request
        });
        let cancel = self.cancel.child_token();
        let client = kube::Client::new(faults.layer(counted), "default");
        let (cx, events) = Context::new(client, "grove", self.clock, cancel.clone());
        let service = muster_grove::start(&cx, options);
        let stop = cancel.clone();
        tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            tasks.spawn(events);
            tasks.spawn(service);
            cx.watch(&mut tasks);
            stop.cancelled().await;
        });
        cancel
    }

    pub async fn create(&self, path: &str, body: Value) -> Value {
        self.api.create_path(path, &body).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    /// Applies a set as admission would let it in.
    pub async fn apply(&self, mut set: Value) -> Value {
        muster_grove::defaults::set(&mut set);
        let options = Options::default();
        let world = muster_grove::validate::World {
            options: &options,
            binding: &|_| muster_grove::validate::Known::Unknown,
        };
        let findings = muster_grove::validate::set::create(&set, &world);
        assert!(findings.allows(), "{findings:?}");
        let namespace = set["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        self.create(&format!("/apis/grove.io/v1alpha1/namespaces/{namespace}/podcliquesets"), set).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        let patched = self.api.patch_path(path, Patch::Merge, &body).await;
        patched.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn delete(&self, path: &str) {
        let delete = Delete { propagation: Some("Background"), ..Delete::default() };
        assert!(self.api.delete_path(path, delete).await.unwrap(), "{path} was not there");
    }

    pub async fn get(&self, path: &str) -> Value {
        self.api.get_path(path).await.unwrap_or(Value::Null)
    }

    pub async fn list<T: Object>(&self) -> Vec<T> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page = self.api.list(&muster_runtime::api::Scope::default(), next.as_deref()).await.unwrap();
            all.extend(page.items);
            next = page.next;
            if next.is_none() {
                return all;
            }
        }
    }

    pub async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().cloned().unwrap_or_default()
    }

    pub async fn cordon(&self, n_first: usize, n: usize, on: bool) {
        let nodes: Vec<muster_runtime::common::Node> = self.list().await;
        for node in nodes.iter().skip(n_first).take(n) {
            let path = format!("/api/v1/nodes/{}", node.metadata.name);
            self.patch(&path, json!({"spec": {"unschedulable": on}})).await;
        }
    }

    /// Waits until `shown` gives `expected`, for at most five minutes of virtual time.
    pub async fn until(&self, expected: &str, shown: impl AsyncFn(&Cluster) -> String) {
        let end = tokio::time::Instant::now() + Duration::from_secs(300);
        loop {
            let now = shown(self).await;
            if now == expected {
                return;
            }
            if tokio::time::Instant::now() > end {
                let events = self.items("/api/v1/events").await;
                let warnings: Vec<String> = events
                    .iter()
                    .filter(|e| e["type"] == "Warning")
                    .map(|e| format!("{}: {}", e["reason"], e["message"]))
                    .collect();
                let sets = self.items("/apis/grove.io/v1alpha1/podcliquesets").await;
                let sets: Vec<String> = sets.iter().map(|set| set["status"].to_string()).collect();
                panic!("{now:?} instead of {expected:?}\n{}\n{}", warnings.join("\n"), sets.join("\n"));
            }
            // Whoever waits for long need not look so often.
            let since = Duration::from_secs(300) - end.saturating_duration_since(tokio::time::Instant::now());
            tokio::time::sleep((since / 20).clamp(Duration::from_millis(50), Duration::from_secs(1))).await;
        }
    }

    /// Lets everything come to rest.
    pub async fn rest(&self) {
        tokio::time::sleep(Duration::from_secs(30)).await;
    }

    pub async fn until_pods(&self, expected: &str) {
        self.until(expected, pods).await;
    }

    /// What Grove wrote since the last time.
    pub fn take_writes(&self) -> BTreeMap<String, usize> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.retain(|what, _| !what.starts_with("GET "));
        asked
    }
}

/// Pods as `state×n`: gated, pending, starting, ready, done, failed, leaving.
pub async fn pods(cluster: &Cluster) -> String {
    let pods: Vec<Pod> = cluster.list().await;
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &pods {
        *count.entry(state(pod)).or_default() += 1;
    }
    count.iter().map(|(state, n)| format!("{state}×{n}")).collect::<Vec<_>>().join(" ")
}

fn state(pod: &Pod) -> &'static str {
    if pod.metadata.deleting() {
        "leaving"
    } else if pod.status.phase == "Succeeded" {
        "done"
    } else if pod.status.phase == "Failed" {
        "failed"
    } else if !pod.spec.scheduling_gates.is_empty() {
        "gated"
    } else if !pod.is_bound() {
        "pending"
    } else if is_true(&pod.status.conditions, "Ready") {
        "ready"
    } else {
        "starting"
    }
}

/// The same by clique.
pub async fn by_clique(cluster: &Cluster) -> String {
    let pods: Vec<Pod> = cluster.list().await;
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.metadata.deleting()) {
        let clique = pod.metadata.labels.get("grove.io/podclique").cloned().unwrap_or_default();
        *count.entry(format!("{clique}:{}", state(pod))).or_default() += 1;
    }
    count.iter().map(|(what, n)| format!("{what}×{n}")).collect::<Vec<_>>().join(" ")
}

/// Gangs as `name phase`.
pub async fn gangs(cluster: &Cluster) -> String {
    let gangs: Vec<PodGang> = cluster.list().await;
    let shown: Vec<String> = gangs
        .iter()
        .map(|gang| format!("{} {}", gang.metadata.name, gang.status["phase"].as_str().unwrap_or("-")))
        .collect();
    shown.join(", ")
}

pub async fn ready(cluster: &Cluster) -> String {
    let sets: Vec<PodCliqueSet> = cluster.list().await;
    let shown: Vec<String> = sets
        .iter()
        .map(|set| format!("{} {}", set.metadata.name, set.status["ready"].as_str().unwrap_or("-")))
        .collect();
    shown.join(", ")
}

/// How many cliques, groups, gangs and pods there are.
pub async fn counts(cluster: &Cluster) -> String {
    let cliques: Vec<PodClique> = cluster.list().await;
    let groups: Vec<PodCliqueScalingGroup> = cluster.list().await;
    let gangs: Vec<PodGang> = cluster.list().await;
    let pods: Vec<Pod> = cluster.list().await;
    format!("{} {} {} {}", cliques.len(), groups.len(), pods.len(), gangs.len())
}

/// Uids of pods by clique, to see who was made anew.
pub async fn uids(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let pods: Vec<Pod> = cluster.list().await;
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.metadata.deleting()) {
        let clique = pod.metadata.labels.get("grove.io/podclique").cloned().unwrap_or_default();
        out.entry(clique).or_default().push(pod.metadata.uid.clone());
    }
    out.values_mut().for_each(|uids| uids.sort());
    out
}

/// The kind and the subresource that a path names.
fn kind_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = parts.get(if path.starts_with("/apis/") { 3 } else { 2 }..).unwrap_or_default();
    let rest = if rest.first() == Some(&"namespaces") && rest.len() > 2 { &rest[2..] } else { rest };
    let sub = rest.get(2).map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{}{sub}", rest.first().unwrap_or(&"?"))
}

/// A set in short: `name xN; clique replicas/min; ...; group xN/min: clique clique`. Every pod takes a GPU, so a node.
pub fn set(text: &str) -> Value {
    let mut parts = text.split(';').map(str::trim);
    let (name, replicas) = parts.next().unwrap().split_once(" x").unwrap();
    let (mut cliques, mut groups) = (Vec::new(), Vec::new());
    for part in parts.filter(|part| !part.is_empty()) {
        if let Some((head, members)) = part.split_once(':') {
            let (name, size) = head.split_once(" x").unwrap();
            let (replicas, min) = size.split_once('/').unwrap();
            groups.push(json!({
                "name": name, "replicas": replicas.parse::<i64>().unwrap(), "minAvailable": min.parse::<i64>().unwrap(),
                "cliqueNames": members.split_whitespace().collect::<Vec<_>>(),
            }));
        } else {
            let (name, size) = part.split_once(' ').unwrap();
            let (replicas, min) = size.split_once('/').unwrap();
            cliques.push(json!({
                "name": name,
                "spec": {
                    "replicas": replicas.parse::<i64>().unwrap(), "minAvailable": min.parse::<i64>().unwrap(),
                    "podSpec": {
                        "schedulerName": "kai-scheduler",
                        "containers": [{"name": "main", "image": "app:1",
                                        "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                    },
                },
            }));
        }
    }
    let mut template = json!({"cliques": cliques, "terminationDelay": "10s"});
    if !groups.is_empty() {
        template["podCliqueScalingGroups"] = json!(groups);
    }
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas.parse::<i64>().unwrap(), "template": template},
    })
}
