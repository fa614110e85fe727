//! A connection to an API server.
//!
//! In: a kubeconfig and a context, or neither: then `$KUBECONFIG`, `~/.kube/config`, and at last the service account of
//! the pod. Out: a `kube::Client` made for thousands of small requests per second to one server. Must stay true: only
//! this module builds a client; an error names the file and what to do about it; nothing here retries a request.
//!
//! kube's own stack is put together again by hand, without the layers that cost time on every request (spans, retries,
//! timers on each read and write), and over HTTP/2, which kube's does not speak: many requests then share one write and one
//! read of the socket. `cargo run --release -p muster-runtime --example requests` says what each way costs.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

/// How to reach a cluster.
#[derive(Debug, Clone, Default)]
pub struct Connect {
    /// This file and no other.
    pub kubeconfig: Option<PathBuf>,
    /// This context instead of the current one.
    pub context: Option<String>,
    pub protocol: Protocol,
    /// At most so many requests per second; without it the server's own priorities and fairness decide.
    pub qps: Option<NonZeroU32>,
}

/// How requests share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// One connection for reads and one for writes, so that a long list never stands in the way of a binding, and a few for watches.
    /// Where the server does not speak HTTP/2, as `Http1`.
    #[default]
    Http2,
    /// A connection for each request that is under way, kept for the next one.
    Http1,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "cannot read the kubeconfig {}; name another with --kubeconfig or KUBECONFIG, or start a cluster with `muster up`",
        path.display()
    )]
    Kubeconfig { path: PathBuf, source: Box<KubeconfigError> },
    #[error(
        "no cluster: there is no kubeconfig at {}, and this is no pod with a service account; \
         name a file with --kubeconfig or KUBECONFIG, or start a cluster with `muster up`",
        path.display()
    )]
    Nowhere { path: PathBuf, source: Box<InClusterError> },
    #[error("{} has no context {context}; it has {known}", path.display())]
    Context { path: PathBuf, context: String, known: String },
    #[error("{} has no current context; choose one with --context: {known}", path.display())]
    NoContext { path: PathBuf, known: String },
    #[error("context {context} of {} cannot be used", path.display())]
    Entry { path: PathBuf, context: String, source: Box<KubeconfigError> },
    #[error(
        "{from} asks for the proxy {proxy}, which is not supported; reach {server} directly or by a tunnel"
    )]
    Proxy { from: String, proxy: String, server: String },
    #[error("{from} has credentials or certificates for {server} that cannot be used")]
    Credentials { from: String, server: String, source: Box<kube::Error> },
    #[error("{from} names the server {server}, which is no usable address")]
    Server { from: String, server: String },
}

/// A client for the cluster that the options name. A server that does not answer yet is no error here.
pub async fn connect(options: Connect) -> Result<kube::Client, ConnectError> {
    let (config, from) = load(&options).await?;
    build(config, &from, options.protocol, options.qps).await
}

/// The settings that apply, and where they come from, in words.
pub async fn load(options: &Connect) -> Result<(kube::Config, String), ConnectError> {
    let path = match &options.kubeconfig {
        Some(path) => path.clone(),
        None => default_path(),
    };
    let loaded = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = match loaded {
        Ok(file) => file,
        // Only a file that nobody asked for may be absent.
        Err(error) if options.kubeconfig.is_none() && options.context.is_none() && absent(&error) => {
            let config = kube::Config::incluster()
                .map_err(|source| ConnectError::Nowhere { path, source: Box::new(source) })?;
            return Ok((config, "the pod's service account".to_owned()));
        }
        Err(source) => return Err(ConnectError::Kubeconfig { path, source: Box::new(source) }),
    };
    let known = || {
        let names: Vec<&str> = file.contexts.iter().map(|context| context.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let context = match options.context.clone().or_else(|| file.current_context.clone()) {
        Some(context) if !context.is_empty() => context,
        _ => return Err(ConnectError::NoContext { path, known: known() }),
    };
    if !file.contexts.iter().any(|known| known.name == context) {
        return Err(ConnectError::Context { path, context, known: known() });
    }
    let choice = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
    let from = format!("context {context} of {}", path.display());
    match kube::Config::from_custom_kubeconfig(file, &choice).await {
        Ok(config) => Ok((config, from)),
        Err(source) => Err(ConnectError::Entry { path, context, source: Box::new(source) }),
    }
}

/// A client for settings that are already loaded. `from` says in errors where they come from.
pub async fn build(
    config: kube::Config,
    from: &str,
    protocol: Protocol,
    qps: Option<NonZeroU32>,
) -> Result<kube::Client, ConnectError> {
    let server = config.cluster_url.to_string();
    if let Some(proxy) = &config.proxy_url {
        return Err(ConnectError::Proxy { from: from.to_owned(), proxy: proxy.to_string(), server });
    }
    let refused = |source| ConnectError::Credentials {
        from: from.to_owned(),
        server: server.clone(),
        source: Box::new(source),
    };
    let mut tls = config.rustls_client_config().map_err(refused)?;
    if protocol == Protocol::Http2 {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    let name = config.tls_server_name.clone().or_else(|| config.cluster_url.host().map(str::to_owned));
    // An address of IPv6 stands in brackets in a URL and without them in a certificate.
    let name = name.map(|name| name.trim_matches(['[', ']']).to_owned());
    let name = name
        .and_then(|name| ServerName::try_from(name).ok())
        .ok_or_else(|| ConnectError::Server { from: from.to_owned(), server: server.clone() })?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    // A server that has gone without a word is noticed within half a minute, even by a watch that only listens.
    tcp.set_keepalive(Some(Duration::from_secs(15)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_keepalive_retries(Some(3));
    let lines = Lines(Arc::new(Wires { tcp, tls: tokio_rustls::TlsConnector::from(Arc::new(tls)), name }));
    let only_http2 = protocol == Protocol::Http2 && lines.speaks_http2(config.cluster_url.clone()).await;
    let sender = || sender(lines.clone(), only_http2);
    // Over HTTP/1.1 every request has a connection of its own anyhow.
    let watches: Vec<Sender> = (0..WATCH_LINES).map(|_| sender()).collect();
    let senders =
        Senders { writes: sender(), reads: sender(), watches: watches.into(), n_watches: Arc::default() };
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(refused)?)
        .layer(config.extra_headers_layer().map_err(refused)?)
        .map_err(BoxError::from)
        .service(senders);
    Ok(match qps {
        None => kube::Client::new(stack, config.default_namespace),
        Some(qps) => {
            kube::Client::new(Paced { service: stack, pace: Pace::new(qps) }, config.default_namespace)
        }
    })
}

type Sender = legacy::Client<Lines, Body>;

/// `only_http2`: the server is known to speak it. Then requests wait for one connection instead of opening one each
/// while it is not known yet.
fn sender(lines: Lines, only_http2: bool) -> Sender {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MOST_IDLE)
        .http2_only(only_http2)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(Duration::from_secs(15))
        .http2_keep_alive_timeout(Duration::from_secs(15))
        .build(lines)
}

/// Sends reads one way, writes another, and watches on lines of their own: a server answers so many requests of one connection at a time, often a hundred,
/// and a watch is one for as long as it lasts. With a watch for each of many kinds nothing else would be answered any more.
#[derive(Clone)]
struct Senders {
    writes: Sender,
    reads: Sender,
    /// Taken in turns.
    watches: Arc<[Sender]>,
    n_watches: Arc<AtomicUsize>,
}

/// A connection is made when the first watch comes to it.
const WATCH_LINES: usize = 4;

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| matches!(part, "watch=true" | "watch=1")))
}

impl Service<Request<Body>> for Senders {
    type Response = Response<Incoming>;
    type Error = legacy::Error;
    type Future = legacy::ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), legacy::Error>> {
        // A sender is always ready: it queues by itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.method() == http::Method::GET {
            let line = match is_watch(request.uri()) {
                true => self.watches.get(self.n_watches.fetch_add(1, Ordering::Relaxed) % WATCH_LINES),
                false => None,
            };
            line.unwrap_or(&self.reads).request(request)
        } else {
            self.writes.request(request)
        }
    }
}

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Shorter than the idle limits that load balancers are known for.
const IDLE: Duration = Duration::from_secs(90);
/// As many requests as anybody has under way; beyond it connections are made and thrown away.
const MOST_IDLE: usize = 512;
/// A page of a thousand pods is some 5 MiB: it should not wait for a round trip every 64 KiB.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The file that is read when none is named.
fn default_path() -> PathBuf {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let home = || std::env::home_dir().unwrap_or_else(|| PathBuf::from("~"));
    named.map_or_else(|| home().join(".kube").join("config"), PathBuf::from)
}

fn absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(source, _) => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Opens connections: TCP, and TLS on it if the URL says so. Cloned for every request.
#[derive(Clone)]
struct Lines(Arc<Wires>);

struct Wires {
    tcp: HttpConnector,
    tls: tokio_rustls::TlsConnector,
    name: ServerName<'static>,
}

impl Lines {
    /// Asks the server; one that does not answer within a moment counts as not known to.
    async fn speaks_http2(&self, server: Uri) -> bool {
        let asked = tokio::time::timeout(Duration::from_secs(3), self.clone().call(server));
        matches!(asked.await, Ok(Ok(line)) if line.inner().negotiated_http2())
    }
}

impl Service<Uri> for Lines {
    type Response = TokioIo<Line>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let secure = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let wires = self.0.clone();
        Box::pin(async move {
            let tcp = wires.tcp.clone().oneshot(uri).await?.into_inner();
            if !secure {
                return Ok(TokioIo::new(Line::Plain(tcp)));
            }
            let hello = wires.tls.connect(wires.name.clone(), tcp);
            let line = tokio::time::timeout(CONNECT_LIMIT, hello).await??;
            Ok(TokioIo::new(Line::Tls(Box::new(line))))
        })
    }
}

enum Line {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Line {
    fn negotiated_http2(&self) -> bool {
        matches!(self, Line::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2"))
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        if self.negotiated_http2() { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Line::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Line::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Line::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Line::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Line::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Line::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Line::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Line::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

/// Lets requests through at a rate, with a second's worth at once after a pause.
#[derive(Clone)]
struct Paced<S> {
    service: S,
    pace: Arc<Pace>,
}

impl<S> Service<Request<Body>> for Paced<S>
where
    S: Service<Request<Body>, Response = Response<Incoming>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (service, turn) = (self.service.clone(), self.pace.turn(Instant::now()));
        Box::pin(async move {
            tokio::time::sleep_until(turn).await;
            service.oneshot(request).await
        })
    }
}

struct Pace {
    interval: Duration,
    /// When the next request would leave if there had never been a pause.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    fn new(qps: NonZeroU32) -> Arc<Self> {
        Arc::new(Pace { interval: Duration::from_secs(1) / qps.get(), next: Mutex::new(None) })
    }

    /// When a request that comes now may leave.
    fn turn(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let slot = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(slot + self.interval);
        slot.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("muster-connect-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    const GOOD: &str = "
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u, namespace: n}}, {name: two, context: {cluster: gone, user: u}}]
";

    #[track_caller]
    fn check(name: &str, text: &str, context: Option<&str>, expected: &str) {
        let path = file(name, text);
        let options = Connect {
            kubeconfig: Some(path.clone()),
            context: context.map(str::to_owned),
            ..Connect::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = match runtime.block_on(connect(options)) {
            Ok(client) => format!("ok {}", client.default_namespace()),
            Err(error) => error.to_string(),
        };
        let said = said.replace(&path.display().to_string(), "FILE");
        assert_eq!(said, expected);
    }

    #[test]
    fn says_what_is_wrong() {
        check("good", GOOD, Some("one"), "ok n");
        check("current", &format!("current-context: one{GOOD}"), None, "ok n");
        check("none", GOOD, None, "FILE has no current context; choose one with --context: one, two");
        check("other", GOOD, Some("three"), "FILE has no context three; it has one, two");
        check("broken", GOOD, Some("two"), "context two of FILE cannot be used");
        check("empty", "{}", Some("a"), "FILE has no context a; it has none");
        let unreadable = "cannot read the kubeconfig FILE; name another with --kubeconfig or KUBECONFIG, \
                          or start a cluster with `muster up`";
        check("junk", "a: [", None, unreadable);
        let proxied = GOOD.replace("server:", "proxy-url: 'http://p:1', server:");
        check(
            "proxied",
            &proxied,
            Some("one"),
            "context one of FILE asks for the proxy http://p:1/, which is not supported; reach https://127.0.0.1:1/ \
             directly or by a tunnel",
        );
    }

    #[tokio::test]
    async fn a_named_file_must_be_there() {
        let options = Connect { kubeconfig: Some("no/such/file".into()), ..Connect::default() };
        let error = connect(options).await.err().unwrap();
        assert!(error.to_string().starts_with("cannot read the kubeconfig no/such/file;"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_the_pace() {
        let pace = Pace::new(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        let waits = |n: usize| -> Vec<u128> {
            (0..n).map(|_| (pace.turn(Instant::now()) - Instant::now()).as_millis()).collect()
        };
        // A burst of a second's worth and the one that is due, then one each 100 ms.
        assert_eq!(waits(13), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(waits(12).iter().filter(|wait| **wait == 0).count(), 11);
        assert_eq!(start.elapsed().as_secs(), 60);
    }
}
