//! An embedded server in this process, and admission in front of it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use muster_api::System;
use muster_apiserver::ApiServer;
use muster_runtime::{Clock, Context};
use muster_webhook::Options;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub struct Cluster {
    pub server: ApiServer,
    cancel: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// What a request was answered with.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Answer {
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// An instance of admission.
pub struct Admission {
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl Admission {
    /// As Ctrl-C does: it leaves in good order.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// As kill -9 does: nothing is tidied up.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
        self.cancel.cancel();
    }
}

impl Cluster {
    pub async fn new() -> Cluster {
        Self::with(&[System::Kai]).await
    }

    /// With the kinds of these systems.
    pub async fn with(systems: &[System]) -> Cluster {
        let mut options = muster_apiserver::Options::default();
        options.converters.insert("kueue.x-k8s.io".into(), muster_api::kueue::convert::to_api_version);
        let server = ApiServer::new(options);
        server.install_crds(muster_api::crds(Some(systems))).unwrap();
        let background = server.clone();
        let cancel = CancellationToken::new();
        tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
        Cluster { server, cancel }
    }

    /// Starts admission and waits until it is registered and asked.
    pub async fn admit(&self, options: Options) -> Admission {
        let admission = self.start(options);
        eventually("registered and asked", async || {
            // Refused only once admission is in front.
            let probe =
                self.dry("POST /apis/scheduling.run.ai/v2/queues", queue("probe", "", json!({}))).await;
            probe.message().contains("admission webhook").then_some(())
        })
        .await;
        admission
    }

    /// Starts admission.
    pub fn start(&self, options: Options) -> Admission {
        let cancel = self.cancel.child_token();
        let client = kube::Client::new(self.server.clone(), "default");
        let (cx, events) = Context::new(client, "test", Clock::system(), cancel.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(events);
        tasks.spawn(muster_webhook::start(&cx, options));
        cx.watch(&mut tasks);
        Admission { cancel, tasks }
    }

    pub async fn send(&self, line: &str, body: Value) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Full::new(Bytes::from(bytes)))
            .unwrap();
        let response = self.server.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings =
            response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    pub async fn dry(&self, line: &str, body: Value) -> Answer {
        self.send(&format!("{line}?dryRun=All"), body).await
    }

    #[track_caller]
    pub fn ok<'a>(&'a self, line: &'a str, body: Value) -> impl Future<Output = Answer> + 'a {
        let at = std::panic::Location::caller();
        async move {
            let answer = self.send(line, body).await;
            assert!((200..300).contains(&answer.code), "{at}: {line}: {answer:?}");
            answer
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        self.send(&format!("GET {path}"), Value::Null).await.body
    }
}

/// Waits for a state, on the wall clock: these tests use real sockets.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never {what}");
}

pub fn queue(name: &str, parent: &str, spec: Value) -> Value {
    let mut queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
    if !parent.is_empty() {
        queue["spec"]["parentQueue"] = json!(parent);
    }
    queue
}

/// The resources of a queue without limits.
pub fn open() -> Value {
    let all = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
    json!({"resources": {"gpu": all, "cpu": all, "memory": all}})
}

pub fn pod(name: &str, metadata: Value, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "app:1"}]},
    });
    for (part, value) in [("metadata", metadata), ("spec", spec)] {
        for (key, value) in value.as_object().unwrap() {
            pod[part][key] = value.clone();
        }
    }
    pod
}
