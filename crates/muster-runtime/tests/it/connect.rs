//! Clients of every kind against a listening server, over TLS.

use std::path::PathBuf;
use std::time::Duration;

use muster_apiserver::ApiServer;
use muster_runtime::Api;
use muster_runtime::connect::{Connect, Protocol, connect};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// A server on a free port; the file is its kubeconfig.
async fn server(name: &str, cancel: &CancellationToken) -> PathBuf {
    let server = ApiServer::new(muster_apiserver::Options::default());
    let listener = muster_apiserver::http::listen(0).await.unwrap();
    let path = std::env::temp_dir().join(format!("muster-connect-{}-{name}", std::process::id()));
    listener.endpoint.write_kubeconfig(&path).unwrap();
    tokio::spawn(listener.serve(server, cancel.clone()));
    path
}

async fn uses(protocol: Protocol, name: &str) {
    let cancel = CancellationToken::new();
    let path = server(name, &cancel).await;
    let options = Connect { kubeconfig: Some(path.clone()), protocol, ..Connect::default() };
    let api = Api::new(connect(options).await.unwrap(), "test");
    let watch = api.watch_raw("/api/v1/namespaces/default/configmaps?", "0", Duration::from_secs(60));
    let mut lines = watch.await.unwrap();
    let made = (0..200).map(|i| {
        let body = json!({"metadata": {"name": format!("c{i}")}});
        let api = &api;
        async move { api.create_path("/api/v1/namespaces/default/configmaps", &body).await }
    });
    for made in futures::future::join_all(made).await {
        made.unwrap();
    }
    let mut n_seen = 0;
    while n_seen < 200 {
        let line = lines.next().await.unwrap().unwrap().to_owned();
        n_seen += usize::from(line.contains("ADDED"));
    }
    cancel.cancel();
    let _ = std::fs::remove_file(path);
}

#[tokio::test]
async fn over_http2() {
    uses(Protocol::Http2, "http2").await;
}

#[tokio::test]
async fn over_http1() {
    uses(Protocol::Http1, "http1").await;
}

/// A server answers so many requests of one connection at a time (this one 200), and watches last.
#[tokio::test]
async fn watches_leave_room_for_everything_else() {
    let cancel = CancellationToken::new();
    let path = server("watches", &cancel).await;
    let options = Connect { kubeconfig: Some(path.clone()), ..Connect::default() };
    let api = Api::new(connect(options).await.unwrap(), "test");
    let watch = || api.watch_raw("/api/v1/namespaces/default/configmaps?", "0", Duration::from_secs(60));
    let watches = futures::future::join_all((0..300).map(|_| watch()));
    let watches = tokio::time::timeout(Duration::from_secs(30), watches).await.unwrap();
    assert!(watches.iter().all(Result::is_ok));
    let answered = tokio::time::timeout(Duration::from_secs(10), api.get_path("/version")).await;
    assert!(answered.unwrap().is_ok());
    cancel.cancel();
    let _ = std::fs::remove_file(path);
}

#[tokio::test]
async fn a_server_that_is_away_is_found_when_it_comes_back() {
    let cancel = CancellationToken::new();
    let path = server("away", &cancel).await;
    let text = std::fs::read_to_string(&path).unwrap();
    let port: u16 =
        text.split("127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let options = Connect { kubeconfig: Some(path.clone()), ..Connect::default() };
    let api = Api::new(connect(options.clone()).await.unwrap(), "test");
    api.get_path("/version").await.unwrap();
    cancel.cancel();
    // The listener goes with its task; a request meanwhile fails and does not hang.
    let failed = async {
        while api.get_path("/version").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), failed).await.unwrap();
    // Nothing to speak to: still a client, for when there is.
    let early = Api::new(connect(options).await.unwrap(), "test");
    assert_eq!(early.get_path("/version").await.err().unwrap().code(), 0);

    // One that speaks in plain text only, on the same port: the client gets an answer, if not the one it wants.
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let heard = tokio::spawn(async move { listener.accept().await.is_ok() });
    assert!(api.get_path("/version").await.is_err());
    assert!(heard.await.unwrap(), "it connects again");
    let _ = std::fs::remove_file(path);
}
