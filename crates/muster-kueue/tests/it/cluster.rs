//! A cluster in one process: the embedded server, simulated nodes, Muster's scheduler, and Kueue, on one virtual clock.

use std::sync::Arc;
use std::time::Duration;

use muster_api::crd::System;
use muster_apiserver::ApiServer;
use muster_kueue::{NoRoom, Room, Settings};
use muster_runtime::api::{Delete, Patch};
use muster_runtime::{Api, Clock, Context};
use muster_sim::Fleet;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub struct Cluster {
    pub api: Api,
    client: kube::Client,
    clock: Clock,
    cancel: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A cluster of so many nodes with Kueue on it.
pub async fn cluster(n_nodes: usize, settings: Settings) -> Cluster {
    let cluster = bare(n_nodes).await;
    cluster.start(settings, Arc::new(NoRoom));
    cluster
}

/// The same without Kueue.
pub async fn bare(n_nodes: usize) -> Cluster {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(base);
    let mut options = muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base),
        ..muster_apiserver::Options::default()
    };
    options.converters.insert("kueue.x-k8s.io".into(), muster_api::kueue::convert::to_api_version);
    let server = ApiServer::new(options);
    server.install_crds(muster_api::crd::crds(Some(&[System::Kai, System::Kueue]))).unwrap();
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
    tokio::spawn(cancel.clone().run_until_cancelled_owned(bind(Api::new(client.clone(), "binder"))));
    Cluster { api: Api::new(client.clone(), "test"), client, clock, cancel }
}

/// The least of a scheduler: pods without gates go to the emptiest node that their selector allows. What is decided on nodes is tested elsewhere.
async fn bind(api: Api) {
    loop {
        let items = async |path: &str| {
            let all = api.get_path(path).await.unwrap_or(Value::Null);
            all["items"].as_array().cloned().unwrap_or_default()
        };
        let (pods, nodes) = (items("/api/v1/pods").await, items("/api/v1/nodes").await);
        let mut count: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        for pod in &pods {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                *count.entry(node.to_owned()).or_default() += 1;
            }
        }
        for pod in &pods {
            let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
            if gated
                || pod["spec"]["nodeName"].is_string()
                || pod["metadata"]["deletionTimestamp"].is_string()
            {
                continue;
            }
            let fits = |node: &&Value| {
                let wanted = pod["spec"]["nodeSelector"].as_object();
                wanted.into_iter().flatten().all(|(key, value)| node["metadata"]["labels"][key] == *value)
            };
            let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
            let best = nodes
                .iter()
                .filter(fits)
                .map(name)
                .min_by_key(|name| (count.get(name).copied(), name.clone()));
            let Some(node) = best else { continue };
            *count.entry(node.clone()).or_default() += 1;
            let (namespace, pod) = (pod["metadata"]["namespace"].as_str().unwrap(), name(pod));
            let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
            if let Err(error) = api.create_path(&path, &body).await {
                tracing::debug!(%error, "not bound");
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl Cluster {
    /// Starts Kueue; a second one after the first was cancelled is what a restart looks like.
    pub fn start(&self, settings: Settings, room: Arc<dyn Room>) -> CancellationToken {
        let cancel = self.cancel.child_token();
        let (cx, events) = Context::new(self.client.clone(), "kueue", self.clock, cancel.clone());
        let service = muster_kueue::start(&cx, settings, room);
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

    pub async fn create(&self, body: Value) -> Value {
        let path = path(&body);
        self.api.create_path(&path, &body).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    /// Creates an object as admission would let it in.
    pub async fn submit(&self, mut body: Value) -> Value {
        let settings = Settings::default();
        let world = muster_kueue::defaults::World {
            managed: &settings.managed,
            namespace_labels: None,
            has_default_queue: false,
        };
        let found = match body["kind"].as_str().unwrap() {
            "Pod" => {
                muster_kueue::defaults::pod(&mut body, &world);
                muster_kueue::validate::pod::pod(&body, &Value::Null)
            }
            _ => {
                muster_kueue::defaults::job(&mut body, &world);
                muster_kueue::validate::job::job(&body, &Value::Null)
            }
        };
        assert!(found.allows(), "{found:?}");
        self.create(body).await
    }

    /// All documents of a YAML text, in order.
    pub async fn apply(&self, text: &str) {
        for document in text.split("\n---") {
            let value: Value = serde_saphyr::from_str(document).unwrap();
            if value.is_object() {
                self.create(value).await;
            }
        }
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

    pub async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().cloned().unwrap_or_default()
    }

    pub async fn job(&self, name: &str) -> Value {
        self.get(&format!("/apis/batch/v1/namespaces/default/jobs/{name}")).await
    }

    /// The workload of a job.
    pub async fn workload_of(&self, job: &str) -> Value {
        let all = self.items("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads").await;
        let is = |w: &Value| w["metadata"]["ownerReferences"][0]["name"] == job;
        all.into_iter().find(is).unwrap_or(Value::Null)
    }

    /// Waits until `shown` gives `expected`, for at most half an hour of virtual time.
    #[track_caller]
    pub fn until<'a>(
        &'a self,
        expected: &'a str,
        shown: impl AsyncFn(&Cluster) -> String + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let at = std::panic::Location::caller();
        async move {
            let end = tokio::time::Instant::now() + Duration::from_secs(1800);
            loop {
                let now = shown(self).await;
                if now == expected {
                    return;
                }
                if tokio::time::Instant::now() > end {
                    panic!("{at}: {now:?} instead of {expected:?}\n{}", self.talk().await);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }

    /// Everything that helps to see why.
    async fn talk(&self) -> String {
        let mut out = String::new();
        for event in self.items("/api/v1/events").await {
            let about = &event["involvedObject"];
            out +=
                &format!("{} {}: {} {}\n", about["kind"], about["name"], event["reason"], event["message"]);
        }
        for workload in self.items("/apis/kueue.x-k8s.io/v1beta2/workloads").await {
            out += &format!("{}\n", workload["status"]);
        }
        for job in self.items("/apis/batch/v1/jobs").await {
            out += &format!("{} {}\n", job["metadata"]["name"], job["status"]);
        }
        out
    }
}

/// The collection that an object is created in.
fn path(body: &Value) -> String {
    let (api, kind) = (body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap());
    let base = if api.contains('/') { format!("/apis/{api}") } else { format!("/api/{api}") };
    let plural = match kind {
        "Topology" => "topologies".to_owned(),
        "WorkloadPriorityClass" => "workloadpriorityclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let wide = [
        "ClusterQueue",
        "ResourceFlavor",
        "Cohort",
        "Topology",
        "WorkloadPriorityClass",
        "AdmissionCheck",
        "Namespace",
        "Node",
    ];
    if wide.contains(&kind) {
        return format!("{base}/{plural}");
    }
    let namespace = body["metadata"]["namespace"].as_str().unwrap_or("default");
    format!("{base}/namespaces/{namespace}/{plural}")
}

/// Conditions as `Type=Status(Reason)`, by name.
pub fn conditions(object: &Value) -> String {
    let mut all: Vec<String> = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            let text = |field: &str| c[field].as_str().unwrap_or("").to_owned();
            format!("{}={}({})", text("type"), text("status"), text("reason"))
        })
        .collect();
    all.sort();
    all.join(" ")
}

/// A Job in short.
pub fn job(name: &str, queue: &str, pods: i64, cpu: &str, seconds: i64) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "parallelism": pods, "completions": pods, "suspend": true,
            "template": {
                "metadata": {"annotations": {"sim.muster.dev/duration": format!("{seconds}s")}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        },
    })
}

/// Jobs as `name state`: waits, runs, done, failed.
pub async fn jobs(cluster: &Cluster) -> String {
    let jobs = cluster.items("/apis/batch/v1/jobs").await;
    let state = |job: &Value| {
        let is = |kind: &str| {
            job["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
        };
        if is("Complete") {
            "done"
        } else if is("Failed") {
            "failed"
        } else if job["spec"]["suspend"] == true {
            "waits"
        } else if job["status"]["ready"].as_i64().unwrap_or(0) > 0 {
            "runs"
        } else {
            "starts"
        }
    };
    let shown: Vec<String> = jobs
        .iter()
        .map(|job| format!("{} {}", job["metadata"]["name"].as_str().unwrap(), state(job)))
        .collect();
    shown.join(", ")
}
