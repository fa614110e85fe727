//! The listener as a client that is no API server meets it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_webhook::{Options, Reach};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::cluster::{Cluster, eventually, queue};

/// Where the registered webhooks are, and whom to trust.
async fn registered(cluster: &Cluster) -> (String, String) {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster-admission";
    let client = cluster.get(path).await["webhooks"][0]["clientConfig"].clone();
    let url = client["url"].as_str().unwrap().strip_prefix("https://").unwrap().to_owned();
    let bundle = STANDARD.decode(client["caBundle"].as_str().unwrap()).unwrap();
    (url.split('/').next().unwrap().to_owned(), String::from_utf8(bundle).unwrap())
}

async fn connect(address: &str, bundle: &str) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// The status line and the body of the answer to one request.
async fn ask(address: &str, bundle: &str, head: &str, body: &[u8]) -> String {
    let mut stream = connect(address, bundle).await;
    let head =
        format!("{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that has heard enough answers without reading on.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    format!("{} {body}", head.split(' ').nth(1).unwrap())
}

#[tokio::test]
async fn answers_or_says_why_not() {
    let cluster = Cluster::new().await;
    let admission = cluster.admit(Options::local(0, false)).await;
    let (address, bundle) = registered(&cluster).await;
    for (head, body, expected) in [
        ("GET /healthz", "", "200 ok"),
        ("GET /readyz", "", "200 ok"),
        ("GET /", "", "404 no such webhook"),
        ("GET /validate--v1-pod", "", "405 reviews are posted"),
        ("POST /validate--v1-pod", "nonsense", "400 the body is no AdmissionReview"),
        (
            "POST /validate--v1-pod",
            r#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}"#,
            "400 the review is AdmissionReview of admission.k8s.io/v1beta1 and not AdmissionReview of admission.k8s.io/v1",
        ),
    ] {
        assert_eq!(ask(&address, &bundle, head, body.as_bytes()).await, expected, "{head}");
    }
    // Deep nesting ends in an error, not in a full stack.
    let deep = "[".repeat(1 << 20);
    assert!(ask(&address, &bundle, "POST /mutate--v1-pod", deep.as_bytes()).await.starts_with("400"));
    admission.stop().await;
}

#[tokio::test]
async fn ends_although_a_client_stays_connected() {
    let cluster = Cluster::new().await;
    let admission = cluster.admit(Options::local(0, false)).await;
    let (address, bundle) = registered(&cluster).await;
    let mut idle = connect(&address, &bundle).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = [0_u8; 12];
    idle.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    // Connected, and silent for ever.
    let silent = TcpStream::connect(&address).await.unwrap();
    tokio::time::timeout(Duration::from_secs(8), admission.stop()).await.expect("it ends in good time");
    drop(silent);
}

/// What becomes of a request for a queue when nobody answers, as registered.
async fn policy(cluster: &Cluster) -> String {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster-admission";
    let found = cluster.get(path).await;
    let queues = |webhook: &&Value| webhook["name"].as_str().is_some_and(|name| name.starts_with("queues."));
    let queues = found["webhooks"].as_array().into_iter().flatten().find(queues);
    queues.map_or_else(|| "none".into(), |webhook| webhook["failurePolicy"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_server_that_does_not_reach_it_goes_on() {
    let cluster = Cluster::new().await;
    let mut options = Options::local(0, false);
    // Nobody listens there.
    options.registration.reach = Reach::Url(Some("https://127.0.0.1:1".into()));
    let admission = cluster.start(options);
    eventually("registered", async || (policy(&cluster).await != "none").then_some(())).await;
    // What admission would refuse: it has no resources.
    cluster.ok("POST /apis/scheduling.run.ai/v2/queues", queue("wrong", "", json!({}))).await;
    assert_eq!(policy(&cluster).await, "Ignore");
    admission.stop().await;
    let admission = cluster.admit(Options::local(0, false)).await;
    eventually("strict once it is heard", async || (policy(&cluster).await == "Fail").then_some(())).await;
    admission.stop().await;
}
