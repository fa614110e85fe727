//! The server on a socket: TLS, bearer token, kubeconfig. In: an [`ApiServer`] and an address on loopback. Out: a running
//! listener and what a client needs to reach it.
//!
//! Invariants: without the token every request but health checks is refused, unless access is enforced, when the server itself asks
//! who everybody is; the kubeconfig is readable by its owner only.

use crate::ApiServer;
use crate::access::{Peer, certificate};
use crate::identity::Identity;
use crate::paced::Paced;
use crate::reply::{Body, Reply};
use crate::status::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::TryFutureExt;
use http_body_util::Either;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// A POST here, with the token, ends the server: how `muster down` stops a cluster without knowing its process.
pub const SHUTDOWN_PATH: &str = "/muster/shutdown";

/// Why the listener could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Certificates could not be made.
    #[error("cannot make the server's certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS would not take them.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The authority of clients makes no sense.
    #[error("cannot use the certificate authority of clients: {0}")]
    ClientAuthority(String),
    /// The certificate or its key is not one.
    #[error("cannot read the server's certificate or its key")]
    Pem(#[from] rustls::pki_types::pem::Error),
}

/// How to reach a listening server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// The certificate authority to trust, PEM.
    pub ca_pem: String,
    /// The bearer token.
    pub token: String,
}

/// A listener that has its address but does not answer yet.
pub struct Listener {
    /// How to reach it.
    pub endpoint: Endpoint,
    listener: TcpListener,
    tls: tokio_rustls::TlsAcceptor,
    /// Whether requests are told whom they come from.
    identifies: bool,
}

/// Binds a port of 127.0.0.1 (0 for any free one) and makes certificates and a token for it.
pub async fn listen(port: u16) -> Result<Listener, ListenError> {
    listen_as(port, Identity::new()?, None).await
}

/// Binds a port of 127.0.0.1 (0 for any free one) as a server that clients may know already, for clients that may show certificates of an
/// authority (PEM).
pub async fn listen_as(
    port: u16,
    identity: Identity,
    client_ca: Option<&str>,
) -> Result<Listener, ListenError> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let bind = |source| ListenError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier(client_ca)?)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes())?],
            PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?,
        )?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Listener {
        endpoint: Endpoint { address, ca_pem: identity.ca_pem, token: identity.token },
        listener,
        tls: tokio_rustls::TlsAcceptor::from(Arc::new(config)),
        identifies: false,
    })
}

impl Listener {
    /// Answers requests to a server until cancelled, with the token as the price of admission.
    pub async fn serve(self, server: ApiServer, cancel: CancellationToken) {
        self.serve_through(server.clone(), server, cancel).await;
    }

    /// The same, with requests going through a service that stands before the server. One that fails breaks the connection off.
    pub async fn serve_through<S, R>(mut self, server: ApiServer, way: S, cancel: CancellationToken)
    where
        S: tower::Service<http::Request<hyper::body::Incoming>, Response = http::Response<R>>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError> + Send,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.identifies = server.is_guarded();
        let token: Arc<str> = self.endpoint.token.as_str().into();
        let stop = cancel.clone();
        let reply = |reply: Reply| {
            let (head, body) = reply.into_response().into_parts();
            Ok(http::Response::from_parts(head, Either::Left(body)))
        };
        let handle = move |request: http::Request<hyper::body::Incoming>| {
            let (server, mut way, token, stop) = (server.clone(), way.clone(), token.clone(), stop.clone());
            async move {
                let is_shutdown = request.method() == "POST" && request.uri().path() == SHUTDOWN_PATH;
                if !server.enforces_access() {
                    if !is_authorized(&request, &token) {
                        return reply(Reply::error(&ApiError::unauthorized()));
                    }
                } else if is_shutdown {
                    // Whoever may do this is asked about here; everything else is asked about by the server.
                    let (head, _) = request.into_parts();
                    if let Err(error) = server.check_access(&head) {
                        return reply(Reply::error(&error));
                    }
                    stop.cancel();
                    return reply(Reply::plain(202, "stopping\n"));
                }
                if is_shutdown {
                    stop.cancel();
                    return reply(Reply::plain(202, "stopping\n"));
                }
                std::future::poll_fn(|cx| way.poll_ready(cx)).await.map_err(Into::into)?;
                way.call(request).await.map(|response| response.map(Either::Right)).map_err(Into::into)
            }
        };
        self.serve_each(handle, cancel).await;
    }

    /// Answers requests by a function until cancelled.
    pub async fn serve_with<H, F>(self, handle: H, cancel: CancellationToken)
    where
        H: Fn(http::Request<hyper::body::Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = http::Response<Body>> + Send + 'static,
    {
        let handle = move |request| {
            let answer = handle(request);
            async move { Ok(answer.await) }
        };
        self.serve_each(handle, cancel).await;
    }

    /// Each connection is a task of its own; a broken one ends alone.
    async fn serve_each<H, F, R>(self, handle: H, cancel: CancellationToken)
    where
        H: Fn(http::Request<hyper::body::Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<http::Response<R>, BoxError>> + Send + 'static,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        loop {
            let (stream, from) = tokio::select! {
                () = cancel.cancelled() => return,
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Out of file descriptors, most likely: wait for some to come back.
                        tracing::warn!(%error, "connection not accepted");
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let _ = stream.set_nodelay(true);
            let (tls, handle, cancel) = (self.tls.clone(), handle.clone(), cancel.clone());
            let identifies = self.identifies;
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let shown = stream.get_ref().1.peer_certificates().and_then(|c| c.first());
                let user = shown.and_then(|c| certificate::user(c)).map(Arc::new);
                let peer = identifies.then(|| Peer { user, address: Some(from.ip()) });
                let service = hyper::service::service_fn(move |mut request: http::Request<_>| {
                    if let Some(peer) = &peer {
                        request.extensions_mut().insert(peer.clone());
                    }
                    handle(request).map_ok(|response| response.map(Paced::new))
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    () = cancel.cancelled() => {}
                    result = connection => {
                        if let Err(error) = result {
                            tracing::debug!(error, "connection ended");
                        }
                    }
                }
            });
        }
    }
}

/// Reads a whole JSON body, at most 16 MiB of it, and answers with what `answer` makes of it: how a webhook works.
pub async fn answer_json(
    request: http::Request<hyper::body::Incoming>,
    answer: impl FnOnce(serde_json::Value) -> Result<serde_json::Value, String>,
) -> http::Response<Body> {
    use http_body_util::BodyExt;
    let body = http_body_util::Limited::new(request.into_body(), 16 << 20).collect().await;
    let value = match body {
        Ok(body) => serde_json::from_slice(&body.to_bytes()).map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match value.and_then(answer) {
        Ok(value) => Reply::json(200, value).into_response(),
        Err(why) => Reply::error(&ApiError::bad_request(why)).into_response(),
    }
}

fn is_authorized<B>(request: &http::Request<B>, token: &str) -> bool {
    if matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz") {
        return true;
    }
    let given = request.headers().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
    given.strip_prefix("Bearer ").is_some_and(|given| is_same(given, token))
}

/// Compared in full whatever the first difference, so that timing tells nothing.
pub(crate) fn is_same(given: &str, token: &str) -> bool {
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

/// Takes certificates of the authority and lets everybody else come without one.
fn verifier(client_ca: Option<&str>) -> Result<Arc<dyn ClientCertVerifier>, ListenError> {
    let Some(pem) = client_ca else { return Ok(Arc::new(NoClientAuth)) };
    let bad = |e: &dyn std::fmt::Display| ListenError::ClientAuthority(e.to_string());
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.allow_unauthenticated().build().map_err(|e| bad(&e))
}

impl Endpoint {
    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate authority as kubeconfigs and webhook configurations carry it.
    pub fn ca_base64(&self) -> String {
        STANDARD.encode(&self.ca_pem)
    }

    /// A kubeconfig with one cluster, one user and one context, all named `muster`.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: muster\nclusters:\n- name: muster\n  cluster:\n    server: {}\n    certificate-authority-data: {}\nusers:\n- name: muster\n  user:\n    token: {}\ncontexts:\n- name: muster\n  context:\n    cluster: muster\n    user: muster\n",
            self.url(),
            self.ca_base64(),
            self.token
        )
    }

    /// Writes the kubeconfig, whole or not at all, readable by its owner only.
    pub fn write_kubeconfig(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let draft = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let mut file = options.open(&draft)?;
        file.write_all(self.kubeconfig().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    }
}
