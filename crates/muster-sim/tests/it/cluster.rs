//! A whole cluster in one process: the embedded server and the simulation, on one virtual clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_apiserver::ApiServer;
use muster_runtime::Context;
use muster_runtime::api::{Delete, Patch};
use muster_sim::Chaos;
use muster_sim::chaos::{Gates, Told};
use muster_sim::deployment::Deployment;
use muster_sim::faults::FaultLayer;
use muster_sim::job::Job;
use muster_sim::object::{Key, Node, Object, Pod};
use muster_sim::{Api, Clock, Fleet, Options};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};

pub struct Cluster {
    pub api: Api,
    pub server: ApiServer,
    pub clock: Clock,
    /// What the simulation asked of the server, as `verb kind`; the test's own requests do not count.
    pub asked: Asked,
    cancel: CancellationToken,
}

/// Requests by verb and kind, such as `PATCH pods/status`.
pub type Asked = Arc<Mutex<BTreeMap<String, usize>>>;

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A cluster of so many nodes with so many GPUs each.
pub async fn cluster(nodes: usize, gpus: u32) -> Cluster {
    start(Options { fleet: Fleet::simple(nodes, gpus).unwrap(), ..Options::default() }, None).await
}

/// A cluster whose simulation sees the server through faults; the test itself does not.
pub async fn start(options: Options, faults: Option<FaultLayer>) -> Cluster {
    let cluster = bare();
    cluster.simulate(options, faults);
    cluster.schedule();
    cluster
}

/// A cluster whose scheduler and simulation are behind gates, and a plan that is carried out from the moment the nodes are ready. Out:
/// also what is told of it.
pub async fn on_a_bad_day(options: Options, chaos: &Chaos, seed: u64) -> (Cluster, Arc<Mutex<Vec<Told>>>) {
    let cluster = bare();
    let gates = Gates::new(seed);
    let n_nodes = options.fleet.n_nodes();
    let way = gates.simulation.layer(cluster.server.clone());
    let run =
        muster_sim::run(kube::Client::new(way, "default"), options, cluster.clock, cluster.cancel.clone());
    tokio::spawn(async move { run.await.unwrap() });
    let (behind, server, clock, cancel) =
        (gates.clone(), cluster.server.clone(), cluster.clock, cluster.cancel.clone());
    tokio::spawn(async move {
        let scheduler = |_| {
            let client = kube::Client::new(behind.services.layer(server.clone()), "default");
            let life = cancel.child_token();
            let (cx, write_events) = Context::new(client, "muster", clock, life.clone());
            let scheduler: futures::future::BoxFuture<'static, ()> =
                Box::pin(muster_scheduler::start(&cx, scheduler_options()));
            async move {
                let _ends_with_us = life.drop_guard();
                tokio::join!(write_events, scheduler);
            }
        };
        behind.mortal(&cancel, scheduler).await;
    });
    let all_ready = format!("{n_nodes} of {n_nodes} ready, 0 tainted");
    cluster.until(Duration::from_secs(60), &all_ready, async |c| ready_nodes(c).await).await;
    let told: Arc<Mutex<Vec<Told>>> = Arc::default();
    let (chaos, api, cancel, hears) =
        (chaos.clone(), cluster.api.clone(), cluster.cancel.clone(), told.clone());
    tokio::spawn(async move {
        muster_sim::chaos::run(
            &chaos,
            seed,
            api,
            gates,
            |what| hears.lock().unwrap().push(what.clone()),
            cancel,
        )
        .await;
    });
    (cluster, told)
}

fn scheduler_options() -> muster_scheduler::Options {
    let mut options = muster_scheduler::Options::default();
    options.settings.scheduler_names = vec!["default-scheduler".into()];
    options.settings.implicit_default_queue = true;
    options
}

/// A server with nothing beside it.
fn bare() -> Cluster {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(base);
    let server = ApiServer::new(muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base),
        ..muster_apiserver::Options::default()
    });
    let background = server.clone();
    let cancel = CancellationToken::new();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    let api = Api::new(kube::Client::new(server.clone(), "default"), "test");
    Cluster { api, server, clock, asked: Asked::default(), cancel }
}

impl Cluster {
    /// Muster's scheduler, in place of Kubernetes' own.
    fn schedule(&self) {
        let client = kube::Client::new(self.server.clone(), "default");
        let (cx, write_events) = Context::new(client, "muster", self.clock, self.cancel.clone());
        tokio::spawn(write_events);
        tokio::spawn(muster_scheduler::start(&cx, scheduler_options()));
    }

    /// Starts one simulation; a second one is what a restart looks like.
    pub fn simulate(&self, options: Options, faults: Option<FaultLayer>) -> CancellationToken {
        let asked = self.asked.clone();
        let counted = self.server.clone().map_request(move |request: http::Request<kube::client::Body>| {
            let what = format!("{} {}", request.method(), kind_of(request.uri().path()));
            *asked.lock().unwrap().entry(what).or_default() += 1;
            request
        });
        let client = match faults {
            Some(layer) => kube::Client::new(layer.layer(counted), "default"),
            None => kube::Client::new(counted, "default"),
        };
        let cancel = self.cancel.child_token();
        let run = muster_sim::run(client, options, self.clock, cancel.clone());
        tokio::spawn(async move { run.await.unwrap() });
        cancel
    }

    pub async fn apply<T: Object>(&self, body: Value) -> T {
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
        self.api.create(&namespace, &body).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn patch<T: Object>(&self, name: &str, patch: Value) -> T {
        let namespace = if T::RESOURCE.kind == "Node" { "" } else { "default" };
        let key = Key::new(namespace, name);
        self.api
            .patch(&key, "", Patch::Merge, &patch)
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn delete<T: Object>(&self, name: &str) {
        let namespace = if T::RESOURCE.kind == "Node" { "" } else { "default" };
        // As kubectl does; a bare delete of a Job would leave its pods.
        let delete = Delete { propagation: Some("Background"), ..Delete::default() };
        self.api.delete::<T>(&Key::new(namespace, name), delete).await.unwrap();
    }

    pub async fn get<T: Object>(&self, name: &str) -> Option<T> {
        let namespace = if T::RESOURCE.kind == "Node" { "" } else { "default" };
        self.api.get(&Key::new(namespace, name)).await.ok()
    }

    pub async fn list<T: Object>(&self) -> Vec<T> {
        self.api.list(&muster_runtime::api::Scope::default(), None).await.unwrap().items
    }

    pub async fn pods(&self) -> Vec<Pod> {
        self.list().await
    }

    pub async fn raw(&self, path: &str) -> Value {
        self.api.get_path(path).await.unwrap_or(Value::Null)
    }

    /// Waits until `shown` gives `expected`, for at most `limit` of virtual time.
    pub async fn until(&self, limit: Duration, expected: &str, shown: impl AsyncFn(&Cluster) -> String) {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let now = shown(self).await;
            if now == expected {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "after {limit:?}: {now:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The kind and the subresource that a path names.
fn kind_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = parts.get(if path.starts_with("/apis/") { 3 } else { 2 }..).unwrap_or_default();
    let rest = if rest.first() == Some(&"namespaces") && rest.len() > 2 { &rest[2..] } else { rest };
    let sub = rest.get(2).map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{}{sub}", rest.first().unwrap_or(&"?"))
}

/// Pods as `phase×count`, sorted.
pub async fn phases(cluster: &Cluster) -> String {
    let mut count: std::collections::BTreeMap<String, usize> = Default::default();
    for pod in cluster.pods().await {
        let phase = if pod.metadata.deleting() { "Going" } else { &pod.status.phase };
        *count.entry(format!("{phase}{}", if pod.ready() { "+" } else { "" })).or_default() += 1;
    }
    count.iter().map(|(phase, n)| format!("{phase}×{n}")).collect::<Vec<_>>().join(" ")
}

pub fn template(labels: Value, spec: Value) -> Value {
    let mut pod = json!({"containers": [{"name": "main", "image": "app:1"}]});
    for (k, v) in spec.as_object().unwrap() {
        pod[k] = v.clone();
    }
    json!({"metadata": {"labels": labels}, "spec": pod})
}

pub fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(json!({"app": name}), json!({})),
        },
    })
}

pub fn job(name: &str, spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template(json!({}), json!({"restartPolicy": "Never"}))},
    });
    for (k, v) in spec.as_object().unwrap() {
        job["spec"][k] = v.clone();
    }
    job
}

pub fn pod(name: &str, annotations: Value, spec: Value) -> Value {
    let mut pod = template(json!({}), spec);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({"name": name, "namespace": "default", "annotations": annotations});
    pod
}

pub async fn rollout(cluster: &Cluster, name: &str) -> String {
    let Some(d) = cluster.get::<Deployment>(name).await else { return "none".into() };
    let n = |field: &str| d.status.get(field).and_then(Value::as_i64).unwrap_or(0);
    format!("{}/{}/{} of {}", n("updatedReplicas"), n("availableReplicas"), n("replicas"), d.replicas())
}

pub async fn conditions(cluster: &Cluster, job: &str) -> String {
    let Some(job) = cluster.get::<Job>(job).await else { return "none".into() };
    let on = job.status.conditions.iter().filter(|c| c.status == "True").map(|c| c.kind.as_str());
    let mut on: Vec<&str> = on.collect();
    on.sort_unstable();
    format!("{} ok {} bad {}", on.join("+"), job.status.succeeded, job.status.failed)
}

pub async fn ready_nodes(cluster: &Cluster) -> String {
    let nodes: Vec<Node> = cluster.list().await;
    let ready = |n: &&Node| n.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
    let tainted = nodes.iter().filter(|n| !n.spec.taints.is_empty()).count();
    format!("{} of {} ready, {tainted} tainted", nodes.iter().filter(ready).count(), nodes.len())
}
