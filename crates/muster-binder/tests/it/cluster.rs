//! A whole cluster in one process: the embedded server with KAI's CRDs and simulated kubelets, on one virtual clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_apiserver::ApiServer;
use muster_binder::{Assignment, Binder, Options, Received};
use muster_runtime::api::{Delete, Patch};
use muster_runtime::common::{BindRequest, Pod};
use muster_runtime::object::Strings;
use muster_runtime::{Api, Clock, Context, Key, Object};
use muster_sim::faults::FaultLayer;
use muster_sim::{Component, Fleet};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::{Layer, ServiceExt};

pub const SOON: Duration = Duration::from_secs(5);
pub const MINUTE: Duration = Duration::from_secs(60);

/// Requests by verb and kind, such as `POST pods/binding`.
pub type Asked = Arc<Mutex<BTreeMap<String, usize>>>;

pub struct Cluster {
    pub api: Api,
    pub server: Server,
    pub clock: Clock,
    /// What binders asked for; the test's own requests do not count.
    pub asked: Asked,
    pub cancel: CancellationToken,
}

/// Who answers.
#[derive(Clone)]
pub enum Server {
    Embedded(ApiServer),
    /// A real one: nothing stands between it and its clients.
    Real(kube::Client),
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A cluster of so many nodes with so many GPUs each. Volumes are bound by nobody, unless the test does.
pub async fn cluster(nodes: usize, gpus: u32) -> Cluster {
    use Component::{Kubelet, Namespaces, Nodes};
    start(nodes, gpus, &[Nodes, Kubelet, Namespaces]).await
}

pub async fn start(nodes: usize, gpus: u32, components: &[Component]) -> Cluster {
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
    let client = kube::Client::new(server.clone(), "default");
    let options = muster_sim::Options {
        fleet: Fleet::simple(nodes, gpus).unwrap(),
        components: components.iter().copied().collect(),
        ..muster_sim::Options::default()
    };
    if !components.is_empty() {
        let run = muster_sim::run(client.clone(), options, clock, cancel.child_token());
        tokio::spawn(async move { run.await.unwrap() });
    }
    let c = Cluster {
        api: Api::new(client, "test"),
        server: Server::Embedded(server),
        clock,
        asked: Asked::default(),
        cancel,
    };
    c.await_nodes(if components.is_empty() { 0 } else { nodes }).await;
    c
}

/// The same on a real control plane, which must live as long as this; with simulated kubelets.
pub async fn real(client: kube::Client, nodes: usize, gpus: u32) -> Cluster {
    let clock = Clock::system();
    let cancel = CancellationToken::new();
    let options = muster_sim::Options {
        fleet: Fleet::simple(nodes, gpus).unwrap(),
        components: [Component::Nodes, Component::Kubelet].into(),
        ..muster_sim::Options::default()
    };
    let run = muster_sim::run(client.clone(), options, clock, cancel.child_token());
    tokio::spawn(async move { run.await.unwrap() });
    let c = Cluster {
        api: Api::new(client.clone(), "test"),
        server: Server::Real(client),
        clock,
        asked: Asked::default(),
        cancel,
    };
    for crd in muster_api::crd::crds(Some(&[muster_api::crd::System::Kai])) {
        c.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
    }
    c.await_nodes(nodes).await;
    c
}

impl Cluster {
    async fn await_nodes(&self, n: usize) {
        let expected = format!("{n} nodes");
        self.until(MINUTE, &expected, async |c| {
            let nodes = c.raw("/api/v1/nodes").await;
            let ready = |n: &&Value| {
                let conditions = n["status"]["conditions"].as_array();
                conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            format!("{} nodes", nodes["items"].as_array().map_or(0, |all| all.iter().filter(ready).count()))
        })
        .await;
    }
}

/// Options for a cluster without a claim controller.
pub fn options() -> Options {
    Options { protect_claims: false, ..Options::default() }
}

impl Cluster {
    pub fn client(&self, faults: Option<&FaultLayer>) -> kube::Client {
        let server = match &self.server {
            Server::Real(client) => return client.clone(),
            Server::Embedded(server) => server.clone(),
        };
        let asked = self.asked.clone();
        let counted = server.map_request(move |request: http::Request<kube::client::Body>| {
            let what = format!("{} {}", request.method(), kind_of(request.uri().path()));
            *asked.lock().unwrap().entry(what).or_default() += 1;
            request
        });
        match faults {
            Some(layer) => kube::Client::new(layer.layer(counted), "default"),
            None => kube::Client::new(counted, "default"),
        }
    }

    pub fn binder(&self, faults: Option<&FaultLayer>) -> Binder {
        Binder::new(Api::new(self.client(faults), "muster-binder"), options())
    }

    pub fn binder_with(&self, options: Options) -> Binder {
        Binder::new(Api::new(self.client(None), "muster-binder"), options)
    }

    /// Starts the service beside the binder of a scheduler; cancelling what this gives is what a crash looks like.
    pub fn serve(&self, faults: Option<&FaultLayer>) -> CancellationToken {
        self.serve_as(faults, options())
    }

    pub fn serve_as(&self, faults: Option<&FaultLayer>, options: Options) -> CancellationToken {
        self.run(faults, options, |cx, binder| muster_binder::service::serve(cx, binder).boxed())
    }

    /// The same where the scheduler has no binder beside it.
    pub fn serve_own(&self) -> CancellationToken {
        self.run(None, options(), |cx, binder| muster_binder::service::serve_own(cx, binder).boxed())
    }

    fn run(
        &self,
        faults: Option<&FaultLayer>,
        options: Options,
        service: impl FnOnce(&Context, &Binder) -> BoxFuture<'static, ()>,
    ) -> CancellationToken {
        let cancel = self.cancel.child_token();
        let (cx, events) = Context::new(self.client(faults), "muster", self.clock, cancel.clone());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(events);
        let binder = Binder::new(cx.api.named("muster-binder"), options);
        tasks.spawn(service(&cx, &binder));
        cx.watch(&mut tasks);
        let ended = cancel.clone();
        tokio::spawn(async move {
            ended.cancelled().await;
            tasks.abort_all();
        });
        cancel
    }

    pub fn take_asked(&self) -> String {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.iter().map(|(what, n)| format!("{what} ×{n}")).collect::<Vec<_>>().join(", ")
    }

    pub async fn create(&self, path: &str, body: Value) -> Value {
        self.api.create_path(path, &body).await.unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.api
            .patch_path(path, Patch::Merge, &body)
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", e.message()))
    }

    pub async fn delete(&self, path: &str) {
        self.api.delete_path(path, Delete { grace_seconds: Some(0), ..Delete::default() }).await.unwrap();
    }

    pub async fn raw(&self, path: &str) -> Value {
        self.api.get_path(path).await.unwrap_or(Value::Null)
    }

    /// A pod that waits for its binder. Out: its uid.
    pub async fn pod(&self, name: &str, meta: Value, spec: Value) -> String {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulerName": "muster", "containers": [{"name": "main", "image": "app:1"}]},
        });
        for (part, more) in [("metadata", meta), ("spec", spec)] {
            for (k, v) in more.as_object().unwrap() {
                pod[part][k] = v.clone();
            }
        }
        let made = self.create("/api/v1/namespaces/default/pods", pod).await;
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// A plain pod and where it goes.
    pub async fn plain(&self, name: &str, node: &str) -> Assignment {
        let uid = self.pod(name, json!({}), json!({})).await;
        assignment(name, &uid, node)
    }

    /// A pod with half of a GPU, and where it goes.
    pub async fn half(&self, name: &str, node: &str, groups: &[&str]) -> Assignment {
        let annotations =
            json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": format!("{name}-shared-gpu")});
        let uid = self.pod(name, json!({"annotations": annotations}), json!({})).await;
        Assignment {
            kind: Received::Fraction,
            gpu_count: u32::try_from(groups.len()).unwrap(),
            gpu_portion_milli: Some(500),
            gpu_groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..assignment(name, &uid, node)
        }
    }

    pub async fn node_of(&self, pod: &str) -> String {
        let pod = self.raw(&format!("/api/v1/namespaces/default/pods/{pod}")).await;
        pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned()
    }

    pub async fn request(&self, name: &str) -> Option<BindRequest> {
        self.api.get(&Key::new("default", name)).await.ok()
    }

    /// `phase failures reason` of a BindRequest.
    pub async fn request_status(&self, name: &str) -> String {
        let Some(request) = self.request(name).await else { return "none".into() };
        let field = |name: &str| match request.status.get(name) {
            None => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        format!("{} {} {}", field("phase"), field("failedAttempts"), field("reason"))
    }

    pub async fn labels(&self, pod: &str) -> Strings {
        match self.api.get::<Pod>(&Key::new("default", pod)).await {
            Ok(pod) => pod.metadata.labels,
            Err(_) => Strings::new(),
        }
    }

    /// The reservations: `group@node device`, sorted.
    pub async fn reservations(&self) -> String {
        let pods = self.raw("/api/v1/namespaces/kai-resource-reservation/pods").await;
        let mut all: Vec<String> = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|p| {
                let group = p["metadata"]["labels"]["runai-gpu-group"].as_str().unwrap_or("?");
                let device =
                    p["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"].as_str().unwrap_or("?");
                let device = if device == "?" { "?" } else { "device" };
                format!("{group}@{} {device}", p["spec"]["nodeName"].as_str().unwrap_or("?"))
            })
            .collect();
        all.sort();
        all.join(", ")
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

    /// Binds claims as the volume controller does: those with a volume that refers to them, and those with a node.
    pub async fn bind_volumes(&self) {
        let claims = self.raw("/api/v1/persistentvolumeclaims").await;
        let volumes = self.raw("/api/v1/persistentvolumes").await;
        for claim in claims["items"].as_array().unwrap() {
            if claim["status"]["phase"] == "Bound" {
                continue;
            }
            let name = claim["metadata"]["name"].as_str().unwrap();
            let by_hand = volumes["items"]
                .as_array()
                .unwrap()
                .iter()
                .find(|v| v["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]);
            let selected = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
            let volume = match by_hand {
                Some(volume) => volume["metadata"]["name"].as_str().unwrap().to_owned(),
                None if selected => {
                    let volume = format!("pv-of-{name}");
                    self.volume(&volume, &claim["spec"]["storageClassName"], json!({})).await;
                    volume
                }
                None => continue,
            };
            let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
            self.patch(&path, json!({"spec": {"volumeName": volume}})).await;
            self.patch(&format!("{path}/status"), json!({"status": {"phase": "Bound"}})).await;
        }
    }

    /// A volume of a class, with whatever else its spec says.
    pub async fn volume(&self, name: &str, class: &Value, more: Value) {
        let mut spec = json!({
            "storageClassName": class, "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/mnt/x"},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let volume =
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
        self.create("/api/v1/persistentvolumes", volume).await;
    }

    pub async fn storage_class(&self, name: &str, provisioner: &str) {
        self.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
            }),
        )
        .await;
    }

    pub async fn volume_claim(&self, name: &str, class: &str) {
        self.create(
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "5Gi"}},
                },
            }),
        )
        .await;
    }

    pub async fn device_claim(&self, name: &str) {
        self.create(
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
            }),
        )
        .await;
    }

    /// `devices for pods`.
    pub async fn device_claim_status(&self, name: &str) -> String {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}");
        let claim = self.raw(&path).await;
        let texts = |list: &Value, field: &str| {
            let all = list.as_array().into_iter().flatten().filter_map(|r| r[field].as_str());
            all.collect::<Vec<_>>().join("+")
        };
        let status = &claim["status"];
        format!(
            "{} for {}",
            texts(&status["allocation"]["devices"]["results"], "device"),
            texts(&status["reservedFor"], "name")
        )
    }
}

/// Where a volume can be reached from, for its spec.
pub fn only_from(node: &str) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}})
}

pub fn assignment(name: &str, uid: &str, node: &str) -> Assignment {
    Assignment {
        pod: Key::new("default", name),
        pod_uid: uid.to_owned(),
        node: node.to_owned(),
        ..Assignment::default()
    }
}

pub fn allocation(device: &str) -> Value {
    json!({"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "node-0", "device": device}]}})
}

/// The kind and the subresource that a path names.
fn kind_of(path: &str) -> String {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = parts.get(if path.starts_with("/apis/") { 3 } else { 2 }..).unwrap_or_default();
    let rest = if rest.first() == Some(&"namespaces") && rest.len() > 2 { &rest[2..] } else { rest };
    let sub = rest.get(2).map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{}{sub}", rest.first().unwrap_or(&"?"))
}

/// Where a BindRequest lives, for tests that write one by hand.
pub fn requests_path() -> String {
    BindRequest::RESOURCE.path("default", "", "")
}
