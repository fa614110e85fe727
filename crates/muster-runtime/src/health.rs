//! What a process says about itself over HTTP: alive, ready, metrics, and pages that services add.
//!
//! In: an address, the checks that services keep up to date, further pages. Out: a small server of `/healthz`, `/readyz` and
//! `/metrics`, for probes and scrapers. Must stay true: only GET is answered; a slow or silent client costs one of a bounded
//! number of connections and no more; the address is this machine alone unless another one is asked for.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::{CONTENT_TYPE, Metrics};

/// Where a server listens when nothing is said: this machine alone.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// More clients than probes and scrapers ever are; the rest wait.
const MOST_CONNECTIONS: usize = 64;
/// A connection that says nothing for so long is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The checks of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Why each check fails; `None` when it passes.
    ready: BTreeMap<String, Option<String>>,
    /// The last sign of life of each loop, and how long it may be ago.
    pulses: BTreeMap<String, (Instant, Duration)>,
}

impl Health {
    /// A check that must pass before the process counts as ready. It fails until it is set.
    pub fn check(&self, name: impl Into<String>) -> Check {
        let check = Check { health: self.clone(), name: name.into() };
        check.failing("not yet");
        check
    }

    /// A loop that must give a sign of life at least every `within`, or the process counts as dead.
    pub fn pulse(&self, name: impl Into<String>, within: Duration) -> Pulse {
        let pulse = Pulse { health: self.clone(), name: name.into(), within };
        pulse.beat();
        pulse
    }

    pub fn is_ready(&self) -> bool {
        self.lock().ready.values().all(Option::is_none)
    }

    /// Whether every loop has given a sign of life in time.
    pub fn is_alive(&self) -> bool {
        self.lock().pulses.values().all(|(beat, within)| beat.elapsed() <= *within)
    }

    /// One line for each check, as Kubernetes' own components print it.
    fn readiness(&self) -> Answer {
        let lines: Vec<(String, Option<String>)> = self.lock().ready.clone().into_iter().collect();
        report("readyz", &lines)
    }

    fn liveness(&self) -> Answer {
        let late = |(name, (beat, within)): (&String, &(Instant, Duration))| {
            let ago = beat.elapsed();
            let why = (ago > *within).then(|| format!("no sign of life for {} s", ago.as_secs()));
            (name.clone(), why)
        };
        let lines: Vec<(String, Option<String>)> = self.lock().pulses.iter().map(late).collect();
        report("healthz", &lines)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A named condition of being ready.
#[derive(Clone, Debug)]
pub struct Check {
    health: Health,
    name: String,
}

impl Check {
    pub fn passing(&self) {
        self.health.lock().ready.insert(self.name.clone(), None);
    }

    pub fn failing(&self, why: impl Into<String>) {
        self.health.lock().ready.insert(self.name.clone(), Some(why.into()));
    }
}

/// Signs of life of a loop. Dropped, the loop no longer counts.
#[derive(Debug)]
pub struct Pulse {
    health: Health,
    name: String,
    within: Duration,
}

impl Pulse {
    pub fn beat(&self) {
        self.health.lock().pulses.insert(self.name.clone(), (Instant::now(), self.within));
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.health.lock().pulses.remove(&self.name);
    }
}

fn report(title: &str, lines: &[(String, Option<String>)]) -> Answer {
    let mut text = String::new();
    for (name, failure) in lines {
        match failure {
            None => text.push_str(&format!("[+]{name} ok\n")),
            Some(why) => text.push_str(&format!("[-]{name} failed: {why}\n")),
        }
    }
    let passed = lines.iter().all(|(_, failure)| failure.is_none());
    text.push_str(&format!("{title} check {}\n", if passed { "passed" } else { "failed" }));
    Answer { status: if passed { 200 } else { 503 }, ..Answer::text(text) }
}

/// What a page answers with.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Answer {
    pub fn text(body: impl Into<Bytes>) -> Self {
        Answer { status: 200, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    pub fn json(body: impl Into<Bytes>) -> Self {
        Answer { status: 200, content_type: "application/json", body: body.into() }
    }

    pub fn error(status: u16, why: impl Into<String>) -> Self {
        Answer { status, ..Answer::text(why.into() + "\n") }
    }
}

/// A page: the query of a request in (without the `?`), an answer out.
pub type Page = Arc<dyn Fn(String) -> BoxFuture<'static, Answer> + Send + Sync>;

/// What is served.
#[derive(Clone, Default)]
pub struct Pages {
    pub health: Health,
    pub metrics: Option<Metrics>,
    extra: BTreeMap<String, Page>,
}

impl Pages {
    pub fn new(health: Health, metrics: Metrics) -> Self {
        Pages { health, metrics: Some(metrics), extra: BTreeMap::new() }
    }

    /// Adds a page at a path such as `/get-snapshot`.
    pub fn with<F, Fut>(mut self, path: impl Into<String>, page: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        self.extra.insert(path.into(), Arc::new(move |query| Box::pin(page(query))));
        self
    }

    async fn answer(&self, path: &str, query: String) -> Answer {
        match path {
            "/healthz" | "/livez" => self.health.liveness(),
            "/readyz" => self.health.readiness(),
            "/metrics" => match &self.metrics {
                Some(metrics) => Answer { content_type: CONTENT_TYPE, ..Answer::text(metrics.text()) },
                None => Answer::error(404, "no metrics"),
            },
            "/" => {
                let own = ["/healthz", "/metrics", "/readyz"].into_iter();
                let all: Vec<&str> = own.chain(self.extra.keys().map(String::as_str)).collect();
                Answer::text(all.join("\n") + "\n")
            }
            other => match self.extra.get(other) {
                Some(page) => page(query).await,
                None => Answer::error(404, "no such page"),
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; is another process there? choose another address")]
pub struct ServeError {
    pub address: SocketAddr,
    pub source: std::io::Error,
}

/// Takes the address, and gives the server that answers there until cancelled, and the address itself (with the port that was
/// found when 0 was asked for).
pub async fn serve(
    address: SocketAddr,
    pages: Pages,
    cancel: CancellationToken,
) -> Result<(SocketAddr, impl Future<Output = ()> + Send + 'static), ServeError> {
    let failed = |source| ServeError { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let taken = listener.local_addr().map_err(failed)?;
    let server = async move {
        let serving = accept(listener, Arc::new(pages), cancel.clone());
        cancel.run_until_cancelled(serving).await;
    };
    Ok((taken, server))
}

async fn accept(listener: TcpListener, pages: Arc<Pages>, cancel: CancellationToken) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (pages, cancel) = (pages.clone(), cancel.clone());
        tokio::spawn(async move {
            let _place = place;
            let service = hyper::service::service_fn(move |request| {
                let pages = pages.clone();
                async move { Ok::<_, Infallible>(respond(&pages, request).await) }
            });
            // The wait for the first line of a request counts as well, so an idle connection ends.
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Some(Err(error)) = cancel.run_until_cancelled(connection).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

async fn respond(pages: &Pages, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let answer = if matches!(*request.method(), Method::GET | Method::HEAD) {
        let query = request.uri().query().unwrap_or_default().to_owned();
        pages.answer(request.uri().path(), query).await
    } else {
        Answer::error(405, "only GET is answered")
    };
    let response = Response::builder()
        .status(answer.status)
        .header(header::CONTENT_TYPE, answer.content_type)
        .header(header::CACHE_CONTROL, "no-store")
        .body(Full::new(answer.body));
    response.unwrap_or_else(|_| {
        let mut broken = Response::new(Full::new(Bytes::from_static(b"a page gave a status that is none\n")));
        *broken.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        broken
    })
}
