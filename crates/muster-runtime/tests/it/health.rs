//! Probes, metrics and pages over a socket.

use std::time::Duration;

use muster_runtime::health::{Answer, Health, Pages, serve};
use muster_runtime::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

struct Server {
    port: u16,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start(pages: Pages) -> Server {
    let cancel = CancellationToken::new();
    let (address, server) = serve("127.0.0.1:0".parse().unwrap(), pages, cancel.clone()).await.unwrap();
    assert!(address.ip().is_loopback());
    Server { port: address.port(), cancel, task: tokio::spawn(server) }
}

impl Server {
    /// Status and body.
    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn get(&self, path: &str) -> String {
        let (status, body) = self.ask("GET", path).await;
        format!("{status} {body}")
    }
}

#[tokio::test]
async fn says_how_it_is() {
    let health = Health::default();
    let metrics = Metrics::default();
    metrics.scheduler.pending_gangs.set(7.0);
    let pages = Pages::new(health.clone(), metrics)
        .with("/debug/cycles", |query| async move { Answer::json(format!("{{\"asked\":\"{query}\"}}")) });
    let server = start(pages).await;

    assert_eq!(server.get("/healthz").await, "200 healthz check passed\n");
    assert_eq!(server.get("/readyz").await, "200 readyz check passed\n");
    let stores = health.check("stores");
    let lease = health.check("lease");
    lease.passing();
    assert_eq!(
        server.get("/readyz").await,
        "503 [+]lease ok\n[-]stores failed: not yet\nreadyz check failed\n"
    );
    stores.passing();
    assert!(health.is_ready());
    assert_eq!(server.get("/readyz").await, "200 [+]lease ok\n[+]stores ok\nreadyz check passed\n");

    assert!(server.get("/metrics").await.contains("muster_pending_gangs 7.0\n"));
    assert_eq!(server.get("/debug/cycles?n=3").await, "200 {\"asked\":\"n=3\"}");
    assert_eq!(server.get("/").await, "200 /healthz\n/metrics\n/readyz\n/debug/cycles\n");
    assert_eq!(server.get("/nothing").await, "404 no such page\n");
    assert_eq!(server.ask("POST", "/healthz").await.0, 405);
    assert_eq!(server.ask("HEAD", "/readyz").await, (200, String::new()));

    server.cancel.cancel();
    server.task.await.unwrap();
    assert!(TcpStream::connect(("127.0.0.1", server.port)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_stands_still_is_dead() {
    let health = Health::default();
    let pulse = health.pulse("cycle", Duration::from_secs(60));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(health.is_alive());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!health.is_alive());
    pulse.beat();
    assert!(health.is_alive());
    tokio::time::advance(Duration::from_secs(61)).await;
    drop(pulse);
    assert!(health.is_alive(), "what has ended well is not late");
}

#[tokio::test]
async fn silent_clients_do_not_keep_others_out_of_the_process() {
    let server = start(Pages::default()).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(("127.0.0.1", server.port)).await.unwrap());
    }
    assert_eq!(server.get("/healthz").await, "200 healthz check passed\n");
    assert_eq!(server.get("/metrics").await, "404 no metrics\n");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let server = start(Pages::default()).await;
    let address = format!("127.0.0.1:{}", server.port).parse().unwrap();
    let error = serve(address, Pages::default(), CancellationToken::new()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("cannot listen on {address}; is another process there? choose another address")
    );
}
