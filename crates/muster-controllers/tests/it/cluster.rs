//! The embedded server with KAI's CRDs, and services on it that can be stopped and started.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_apiserver::ApiServer;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::common::Pod;
use muster_runtime::object::Object;
use muster_runtime::{Api, Clock, Context, Key};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub struct Cluster {
    pub api: Api,
    pub server: ApiServer,
    pub clock: Clock,
    /// What the services asked of the server; the test's own requests do not count.
    pub asked: Arc<Mutex<BTreeMap<String, usize>>>,
    cancel: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

pub async fn cluster() -> Cluster {
    let base = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::starting_at(base);
    let server = ApiServer::new(muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base),
        ..muster_apiserver::Options::default()
    });
    server.install_crds(muster_api::crd::crds(Some(&[muster_api::crd::System::Kai]))).unwrap();
    let cancel = CancellationToken::new();
    let background = server.clone();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    let api = Api::new(kube::Client::new(server.clone(), "default"), "test");
    Cluster { api, server, clock, asked: Arc::default(), cancel }
}

impl Cluster {
    /// Starts services; cancelling the token is what a crash looks like.
    pub fn start<F>(&self, service: impl FnOnce(&Context) -> F) -> CancellationToken
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let asked = self.asked.clone();
        let counted = self.server.clone().map_request(move |request: http::Request<kube::client::Body>| {
            let what = format!("{} {}", request.method(), kind_of(request.uri().path()));
            *asked.lock().unwrap().entry(what).or_default() += 1;
            request
        });
        let cancel = self.cancel.child_token();
        let client = kube::Client::new(counted, "default");
        let (cx, events) = Context::new(client, "muster", self.clock, cancel.clone());
        let service = service(&cx);
        let mut tasks = JoinSet::new();
        tasks.spawn(events);
        tasks.spawn(service);
        cx.watch(&mut tasks);
        tokio::spawn(async move { while tasks.join_next().await.is_some() {} });
        cancel
    }

    pub fn writes(&self) -> String {
        let asked = self.asked.lock().unwrap();
        let writes = asked.iter().filter(|(what, _)| !what.starts_with("GET"));
        writes.map(|(what, n)| format!("{what} {n}")).collect::<Vec<_>>().join(", ")
    }

    pub fn count(&self, what: &str) -> usize {
        self.asked.lock().unwrap().get(what).copied().unwrap_or(0)
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.api.create_path(path, &body).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.api
            .patch_path(path, Patch::Merge, &body)
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn get(&self, path: &str) -> Value {
        self.api.get_path(path).await.unwrap_or(Value::Null)
    }

    pub async fn delete(&self, path: &str) {
        let delete = Delete { grace_seconds: Some(0), ..Delete::default() };
        assert!(self.api.delete_path(path, delete).await.unwrap(), "{path}");
    }

    pub async fn bind(&self, pod: &str, node: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node}});
        self.api.create_sub::<Pod>(&Key::new("default", pod), "binding", &body).await.unwrap();
    }

    pub async fn phase(&self, pod: &str, phase: &str) {
        let path = Pod::RESOURCE.path("default", pod, "status");
        self.patch(&path, json!({"status": {"phase": phase}})).await;
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

pub const GROUPS: &str = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups";
pub const QUEUES: &str = "/apis/scheduling.run.ai/v2/queues";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

pub fn queue(name: &str, parent: &str) -> Value {
    let open = json!({"quota": 1, "limit": -1, "overQuotaWeight": 1});
    let mut spec = json!({"resources": {"gpu": open, "cpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
        "memory": {"quota": -1, "limit": -1, "overQuotaWeight": 1}}});
    if !parent.is_empty() {
        spec["parentQueue"] = json!(parent);
    }
    json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

pub fn group(name: &str, queue: &str, min: i64) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"queue": queue, "minMember": min}})
}

pub fn pod(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "app:1",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
    })
}

pub fn member(name: &str, group: &str) -> Value {
    pod(name, json!({"pod-group-name": group}))
}
