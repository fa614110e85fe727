//! What durability costs: pods are created by so many clients at once, in memory and in a folder, in one run.
//!
//! In: optionally a folder (on the disk that is meant). Out: a line for each; the ratio is what counts, since machines differ.
//! `cargo run --release -p muster-apiserver --example writes -- [FOLDER]`

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use muster_apiserver::store::Durable;
use muster_apiserver::store::disk::Limits;
use muster_apiserver::{ApiServer, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::ServiceExt;

const N_CLIENTS: [usize; 4] = [1, 8, 64, 256];

fn pod(i: usize) -> Vec<u8> {
    let env: Vec<_> = (0..10)
        .map(|i| serde_json::json!({"name": format!("VARIABLE_{i}"), "value": "some value"}))
        .collect();
    let container = serde_json::json!({
        "name": "main", "image": "registry/team/image:1", "env": env,
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}},
    });
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p-{i}"), "labels": {"app": "bench", "index": i.to_string()}},
        "spec": {"containers": [container]},
    });
    pod.to_string().into_bytes()
}

async fn create(server: &ApiServer, i: usize) -> usize {
    let request = http::Request::post("/api/v1/namespaces/default/pods")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(pod(i))))
        .expect("the request is well formed");
    let response = server.clone().oneshot(request).await.expect("the server always answers");
    let code = response.status();
    let body = response.into_body().collect().await.expect("the body is in memory").to_bytes();
    assert!(code == 201, "{code} {}", String::from_utf8_lossy(&body));
    body.len()
}

/// Processor time of this process so far, where the system tells.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    // A tick is a hundredth of a second wherever there is such a file.
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

async fn measure(label: &str, server: &ApiServer, n_clients: usize, from: &mut usize) {
    let (begun, cpu_before) = (Instant::now(), cpu());
    let patience = Duration::from_secs(4);
    let first = *from;
    let names = first..first + 40_000;
    let mut work =
        futures::stream::iter(names)
            .take_while(|_| std::future::ready(begun.elapsed() < patience))
            .map(|i| {
                let server = server.clone();
                async move {
                    tokio::spawn(async move { create(&server, i).await }).await.expect("no request panics")
                }
            })
            .buffer_unordered(n_clients);
    let (mut n, mut bytes) = (0usize, 0usize);
    while let Some(length) = work.next().await {
        (n, bytes) = (n + 1, bytes + length);
    }
    *from = first + 40_000;
    let (took, used) = (begun.elapsed().as_secs_f64(), (cpu() - cpu_before).as_secs_f64());
    let (each, size) = (used * 1e6 / n as f64, bytes / n.max(1));
    println!(
        "{label:8} {n_clients:4} clients  {:8.0} creates/s  {each:6.1} us of CPU each  ({n} of {size} bytes)",
        n as f64 / took
    );
}

fn main() {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let folder =
        given.unwrap_or_else(|| std::env::temp_dir().join(format!("muster-writes-{}", std::process::id())));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be had");
    runtime.block_on(run(&folder));
    let _ = std::fs::remove_dir_all(&folder);
}

async fn run(folder: &Path) {
    for n_clients in N_CLIENTS {
        // Each in turn, so that whatever else the machine does hits both.
        let memory = ApiServer::new(Options::default());
        measure("memory", &memory, n_clients, &mut 0).await;
        let path = folder.join(n_clients.to_string());
        let store = Durable::open(&path, "1.36", Limits::default()).expect("the folder can be used");
        let store = Arc::new(store);
        let kept = ApiServer::with_store(Options::default(), store.clone());
        measure("folder", &kept, n_clients, &mut 0).await;
        store.close();
        let begun = Instant::now();
        let again = Durable::open(&path, "1.36", Limits::default()).expect("the folder can be used");
        println!(
            "         opened again at version {} in {:.2} s",
            again.resumed().revision,
            begun.elapsed().as_secs_f64()
        );
        drop(again);
        let _ = std::fs::remove_dir_all(&path);
    }
}
