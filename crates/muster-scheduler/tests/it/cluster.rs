//! A cluster in one process: the embedded server, simulated nodes without a scheduler, and Muster's.

use muster_api::crd::{System, crds};
use muster_apiserver::ApiServer;
use muster_runtime::api::Delete;
use muster_runtime::{Api, Clock, Context};
use muster_scheduler::Options;
use muster_sim::Component;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub struct Cluster {
    pub api: Api,
    pub server: ApiServer,
    pub clock: Clock,
    /// Requests of the scheduler that change something, by verb and kind.
    pub writes: Arc<Mutex<BTreeMap<String, u32>>>,
    cancel: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

pub async fn cluster(nodes: usize, gpus: u32) -> Cluster {
    cluster_with(nodes, gpus, Options::default()).await
}

pub async fn cluster_with(nodes: usize, gpus: u32, scheduling: Options) -> Cluster {
    cluster_without(None, nodes, gpus, scheduling).await
}

/// With all simulated controllers but one.
pub async fn cluster_without(
    absent: Option<Component>,
    nodes: usize,
    gpus: u32,
    scheduling: Options,
) -> Cluster {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(base);
    let server = ApiServer::new(muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base),
        ..muster_apiserver::Options::default()
    });
    server.install_crds(crds(Some(&[System::Kai]))).unwrap();
    let cancel = CancellationToken::new();
    let background = server.clone();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    let api = Api::new(kube::Client::new(server.clone(), "default"), "test");
    let options = muster_sim::Options {
        fleet: muster_sim::Fleet::simple(nodes, gpus).unwrap(),
        components: Component::all().into_iter().filter(|component| Some(*component) != absent).collect(),
        ..muster_sim::Options::default()
    };
    let client = kube::Client::new(server.clone(), "default");
    tokio::spawn(muster_sim::run(client, options, clock, cancel.clone()));
    let cluster = Cluster { api, server, clock, writes: Arc::default(), cancel };
    cluster.queue("q", "", -1.0).await;
    cluster.schedule(scheduling);
    cluster
}

impl Cluster {
    /// Starts a scheduler; dropping the token's guard is what a crash looks like.
    pub fn schedule(&self, options: Options) -> CancellationToken {
        let writes = self.writes.clone();
        let counted = self.server.clone().map_request(move |request: http::Request<kube::client::Body>| {
            if request.method() != "GET" {
                let kind = request.uri().path().split('/').filter(|p| !p.is_empty()).collect::<Vec<_>>();
                let plural =
                    if kind.len() > 5 && kind[0] == "api" { kind[4..].join("/") } else { kind.join("/") };
                let plural: String =
                    plural.split('/').filter(|p| !p.contains('-')).collect::<Vec<_>>().join("/");
                *writes.lock().unwrap().entry(format!("{} {plural}", request.method())).or_default() += 1;
            }
            request
        });
        let client = kube::Client::new(counted, "default");
        let cancel = self.cancel.child_token();
        let (cx, write_events) = Context::new(client, "muster", self.clock, cancel.clone());
        let service = muster_scheduler::start(&cx, options);
        tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            tasks.spawn(write_events);
            tasks.spawn(service);
            cx.watch(&mut tasks);
            while tasks.join_next().await.is_some() {}
        });
        cancel
    }

    pub async fn create(&self, path: &str, body: Value) -> Value {
        self.api.create_path(path, &body).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn queue(&self, name: &str, parent: &str, gpus: f64) {
        let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let mut spec = json!({"resources": {"cpu": any, "memory": any,
            "gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}}});
        if !parent.is_empty() {
            spec["parentQueue"] = json!(parent);
        }
        let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
        self.create("/apis/scheduling.run.ai/v2/queues", queue).await;
    }

    pub async fn group(&self, name: &str, queue: &str, min: u32) {
        let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": name}, "spec": {"minMember": min, "queue": queue}});
        self.create("/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups", group).await;
    }

    pub async fn pods(&self, group: &str, count: u32, gpus: u32) {
        for i in 0..count {
            self.create("/api/v1/namespaces/default/pods", pod(&format!("{group}-{i}"), group, gpus)).await;
        }
    }

    /// A gang of pods that run until they are deleted.
    pub async fn gang(&self, name: &str, queue: &str, min: u32, count: u32, gpus: u32) {
        self.group(name, queue, min).await;
        self.pods(name, count, gpus).await;
    }

    pub async fn get(&self, path: &str) -> Value {
        self.api.get_path(path).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn delete(&self, path: &str) {
        self.api.delete_path(path, Delete { grace_seconds: Some(0), ..Delete::default() }).await.unwrap();
    }

    /// The pods of a group: how many wait, have a node, run.
    pub async fn state(&self, group: &str) -> String {
        let list = self.get("/api/v1/namespaces/default/pods?labelSelector=").await;
        let mut counts = [0; 3];
        for pod in list["items"].as_array().into_iter().flatten() {
            if pod["metadata"]["annotations"]["pod-group-name"] != group {
                continue;
            }
            let bound = pod["spec"]["nodeName"].is_string();
            let running =
                pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
            counts[if running { 2 } else { usize::from(bound) }] += 1;
        }
        format!("{} waiting, {} bound, {} running", counts[0], counts[1], counts[2])
    }

    #[track_caller]
    pub fn eventually<'a>(&'a self, group: &'a str, expected: &'a str) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let mut last = String::new();
            for _ in 0..600 {
                last = self.state(group).await;
                if last == expected {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            panic!("{caller}: {group} is {last}, not {expected}");
        }
    }
}

pub fn pod(name: &str, group: &str, gpus: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"pod-group-name": group}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i",
            "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}})
}
