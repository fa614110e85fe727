//! A cluster in one process: the embedded server, the simulated controllers, and the grouper on one virtual clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_apiserver::ApiServer;
use muster_grouper::Options;
use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::{Api, Clock, Context, Object};
use muster_sim::faults::FaultLayer;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};

pub struct Cluster {
    pub api: Api,
    pub server: ApiServer,
    clock: Clock,
    /// What groupers asked of the server, as `verb kind`.
    pub asked: Asked,
    cancel: CancellationToken,
}

pub type Asked = Arc<Mutex<BTreeMap<String, usize>>>;

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A cluster with KAI's kinds, its priority classes, and controllers, without a grouper yet.
pub async fn cluster() -> Cluster {
    start(true).await
}

/// The same, where nothing is deleted because its owner is missing.
pub async fn cluster_without_collector() -> Cluster {
    start(false).await
}

async fn start(collector: bool) -> Cluster {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(base);
    let server = ApiServer::new(muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base),
        ..muster_apiserver::Options::default()
    });
    let systems = [muster_api::crd::System::Kai, muster_api::crd::System::Grove];
    server.install_crds(muster_api::crd::crds(Some(&systems))).unwrap();
    let cancel = CancellationToken::new();
    if collector {
        let background = server.clone();
        tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    }
    let client = kube::Client::new(server.clone(), "default");
    let run = muster_sim::run(client.clone(), simulated(), clock, cancel.clone());
    tokio::spawn(async move { run.await.unwrap() });
    let cluster = Cluster { api: Api::new(client, "test"), server, clock, asked: Asked::default(), cancel };
    for (name, value) in [("train", 50), ("build", 100), ("inference", 125)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    }
    cluster
}

fn simulated() -> muster_sim::Options {
    muster_sim::Options { fleet: muster_sim::Fleet::simple(1, 0).unwrap(), ..muster_sim::Options::default() }
}

impl Cluster {
    /// Starts a grouper; a second one after the first was cancelled is what a restart looks like.
    pub fn group(&self, options: Options) -> CancellationToken {
        self.group_through(options, FaultLayer::new(0, Vec::new()))
    }

    /// A grouper that sees the server through faults.
    pub fn group_through(&self, options: Options, faults: FaultLayer) -> CancellationToken {
        let asked = self.asked.clone();
        let counted = self.server.clone().map_request(move |request: http::Request<kube::client::Body>| {
            let what = format!("{} {}", request.method(), kind_of(request.uri().path()));
            *asked.lock().unwrap().entry(what).or_default() += 1;
            request
        });
        let cancel = self.cancel.child_token();
        let client = kube::Client::new(faults.layer(counted), "default");
        let (cx, events) = Context::new(client, "grouper", self.clock, cancel.clone());
        let service = muster_grouper::start(&cx, options);
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

    pub async fn list<T: Object>(&self) -> Vec<T> {
        self.api.list(&muster_runtime::api::Scope::default(), None).await.unwrap().items
    }

    /// The groups and how many pods each has, as `name min ×pods`; uids are left out.
    pub async fn groups(&self) -> String {
        let pods: Vec<Pod> = self.list().await;
        let groups: Vec<PodGroup> = self.list().await;
        let mut lines: Vec<String> = groups
            .iter()
            .map(|group| {
                let name = &group.metadata.name;
                let members =
                    pods.iter().filter(|pod| pod.metadata.annotation("pod-group-name") == Some(name));
                let min = |field: &str| group.spec.get(field).map(Value::to_string);
                let min =
                    min("minMember").or(min("minSubGroup").map(|n| format!("/{n}"))).unwrap_or_default();
                let owner = group.metadata.owner_references.first().map_or("?", |owner| &owner.uid);
                format!("{} {min} ×{}", name.replace(&format!("-{owner}"), ""), members.count())
            })
            .collect();
        lines.sort();
        let alone = pods.iter().filter(|pod| pod.metadata.annotation("pod-group-name").is_none()).count();
        if alone > 0 {
            lines.push(format!("none ×{alone}"));
        }
        lines.join(", ")
    }

    /// Waits until `shown` gives `expected`, for at most three minutes of virtual time.
    pub async fn until(&self, expected: &str, shown: impl AsyncFn(&Cluster) -> String) {
        let end = tokio::time::Instant::now() + Duration::from_secs(180);
        loop {
            let now = shown(self).await;
            if now == expected {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{now:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn until_groups(&self, expected: &str) {
        self.until(expected, Cluster::groups).await;
    }

    /// Lets everything come to rest.
    pub async fn rest(&self) {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }

    /// What was asked since the last time, writes and reads of single objects only.
    pub fn take_asked(&self) -> String {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let shown: Vec<String> = asked
            .iter()
            .filter(|(what, _)| !what.starts_with("GET "))
            .map(|(what, n)| format!("{what} ×{n}"))
            .collect();
        shown.join(", ")
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

pub fn template(spec: Value) -> Value {
    let mut pod =
        json!({"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "app:1"}]});
    for (key, value) in spec.as_object().unwrap() {
        pod[key] = value.clone();
    }
    json!({"metadata": {"labels": {"app": "a"}}, "spec": pod})
}

pub fn job(name: &str, n_pods: i64, annotations: Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "parallelism": n_pods, "completions": n_pods,
            "template": template(json!({"restartPolicy": "Never"})),
        },
    })
}
