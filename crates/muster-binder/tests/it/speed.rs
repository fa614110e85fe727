//! What a plain bind costs.

use std::convert::Infallible;
use std::time::Instant;

use kube::client::Body;
use muster_binder::{Assignment, Binder};
use muster_runtime::Api;

use crate::cluster::{assignment, options, start};

/// How much of this process's time the machine has spent, in ticks of 10 ms.
fn cpu_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let read = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    read(11) + read(12)
}

/// Binds a gang and says what it cost.
async fn measure(what: &str, binder: &Binder, gang: &[Assignment]) {
    let (ticks, start) = (cpu_ticks(), Instant::now());
    let results = binder.bind_gang(gang, gang.len(), 64).await;
    let (took, ticks) = (start.elapsed(), cpu_ticks() - ticks);
    assert!(results.iter().all(Result::is_ok));
    let cpu = ticks as f64 * 10_000.0 / gang.len() as f64;
    println!("{} binds in {took:?}, {cpu:.0} µs of CPU each: {what}", gang.len());
    assert!(took.as_secs() < 60);
}

/// The binder and its client alone, with a server that says yes to everything.
#[tokio::test]
async fn a_bind_costs_little_here() {
    let yes = tower::service_fn(|_: http::Request<Body>| async {
        let status = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#;
        let mut response = http::Response::new(Body::from(status.to_vec()));
        *response.status_mut() = http::StatusCode::CREATED;
        Ok::<_, Infallible>(response)
    });
    let binder = Binder::new(Api::new(kube::Client::new(yes, "default"), "muster-binder"), options());
    let uid = "5e0f9c1a-7a44-4a0e-9d0a-0f7c6c6f1c11";
    let gang: Vec<Assignment> =
        (0..20_000).map(|i| assignment(&format!("worker-{i}"), uid, &format!("node-{}", i % 100))).collect();
    measure("binder and client only", &binder, &gang).await;
}

/// Prints figures; it fails only when a bind costs far more than it should, since tests run unoptimised and side by side.
#[tokio::test]
async fn plain_binds_are_cheap() {
    const N: usize = 2000;
    // Nobody but the server: it binds to nodes that it has never heard of.
    let c = start(0, 0, &[]).await;
    let mut gang = Vec::new();
    for i in 0..N {
        gang.push(c.plain(&format!("p{i}"), &format!("node-{}", i % 10)).await);
    }
    measure("server in the same process", &c.binder(None), &gang).await;
    assert_eq!(c.take_asked(), format!("POST pods/binding ×{N}"));
}
