//! The line between a program and its API server, which can be cut.
//!
//! In: requests. Out: answers, while the line is up. A server that dies cuts all its lines at once: watches end, requests on
//! their way get an error though they may have been carried out, new ones are refused; after that, watches from before may be
//! told that their version is too old. A program that dies sends nothing more. Must stay true: what has reached the server is
//! carried out, whatever becomes of whoever asked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

use super::Target;
use super::service::{FaultBody, plain, refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    standing: Standing,
    /// How often it was cut.
    n_cuts: u64,
    /// Watches from before this version are told that it is too old.
    oldest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Up,
    /// Nobody listens at the other end.
    Down,
    /// Nobody speaks at this end any more.
    Severed,
}

/// One program's line; clones are the same line.
#[derive(Debug, Clone)]
pub struct Line {
    state: Arc<watch::Sender<State>>,
}

impl Default for Line {
    fn default() -> Self {
        let up = State { standing: Standing::Up, n_cuts: 0, oldest: 0 };
        Line { state: Arc::new(watch::Sender::new(up)) }
    }
}

impl Line {
    /// The server is gone: everything on its way fails, and so does everything new, until [`Line::restore`].
    pub fn cut(&self) {
        self.change(|state| {
            state.standing = Standing::Down;
            state.n_cuts += 1;
        });
    }

    /// Every connection breaks, and new ones can be made at once.
    pub fn reset(&self) {
        self.change(|state| state.n_cuts += 1);
    }

    /// The server is back. Watches that ask to go on from before `oldest` are refused.
    pub fn restore(&self, oldest: u64) {
        self.change(|state| {
            state.standing = Standing::Up;
            state.oldest = oldest;
        });
    }

    /// The program is gone: it sends nothing more, and is told nothing more.
    pub fn sever(&self) {
        self.state.send_modify(|state| {
            state.standing = Standing::Severed;
            state.n_cuts += 1;
        });
    }

    /// The line of a program that takes this one's place: as up or down as this one is.
    pub fn successor(&self) -> Line {
        Line { state: Arc::new(watch::Sender::new(*self.state.borrow())) }
    }

    /// A program that is gone stays gone.
    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(|state| {
            if state.standing != Standing::Severed {
                change(state);
            }
        });
    }
}

impl<S> Layer<S> for Line {
    type Service = LineService<S>;

    fn layer(&self, inner: S) -> LineService<S> {
        LineService { inner, line: self.clone() }
    }
}

/// The service that a line makes.
#[derive(Debug, Clone)]
pub struct LineService<S> {
    inner: S,
    line: Line,
}

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("connection refused")]
    Refused,
    #[error("connection reset by peer")]
    Reset,
    #[error("the server broke down")]
    Server(#[source] tokio::task::JoinError),
}

impl<S, B, R> Service<Request<B>> for LineService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<FaultBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was made ready is the one to call; its clone takes its place.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let state = *self.line.state.borrow();
        let mut cuts = self.line.state.subscribe();
        let target = Target::of(request.method(), request.uri().path(), request.uri().query().unwrap_or(""));
        let watches = target.verb == "watch";
        let from = from_version(request.uri().query().unwrap_or(""));
        Box::pin(async move {
            match state.standing {
                Standing::Severed => return std::future::pending().await,
                Standing::Down => return Err(Broken::Refused.into()),
                Standing::Up => {}
            }
            if watches && from.is_some_and(|from| from < state.oldest) {
                return Ok(refusal(410, &target));
            }
            // In a task of its own: the server carries out what has reached it.
            let mut answer = tokio::spawn(async move { inner.call(request).await.map_err(Into::into) });
            let mut cut = Box::pin(async move {
                let cut = cuts.wait_for(|now| now.n_cuts != state.n_cuts).await.map(|now| now.standing);
                if !matches!(cut, Ok(Standing::Up | Standing::Down)) {
                    std::future::pending().await
                }
            });
            let response = tokio::select! {
                biased;
                response = &mut answer => response.map_err(Broken::Server)??,
                () = &mut cut => return Err(Broken::Reset.into()),
            };
            if !watches {
                return Ok(plain(response));
            }
            Ok(response.map(|body| Cuttable { inner: body, cut }.boxed_unsync()))
        })
    }
}

/// The version that a watch goes on from.
fn from_version(query: &str) -> Option<u64> {
    query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")?.parse().ok())
}

/// A body that breaks off when the line is cut.
struct Cuttable<B> {
    inner: B,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<B> Body for Cuttable<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            // Polled again it would be asked again; an error ends a body.
            self.cut = Box::pin(std::future::ready(()));
            return Poll::Ready(Some(Err(Broken::Reset.into())));
        }
        Pin::new(&mut self.inner).poll_frame(cx).map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http_body_util::Full;
    use tower::ServiceExt;

    use super::*;

    /// A server that takes a second for every answer, and counts what it has carried out.
    async fn ask(line: &Line, uri: &str, done: &Arc<std::sync::atomic::AtomicU32>) -> String {
        let done = done.clone();
        let service = tower::service_fn(move |_: Request<()>| {
            let done = done.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            }
        });
        let request = Request::get(uri).body(()).unwrap();
        match line.layer(service).oneshot(request).await {
            Ok(response) => response.status().as_u16().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_dies() {
        let (line, done) = (Line::default(), Arc::default());
        assert_eq!(ask(&line, "/api/v1/pods", &done).await, "200");
        let cut = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            line.cut();
        };
        let (answer, ()) = tokio::join!(ask(&line, "/api/v1/pods", &done), cut);
        assert_eq!(answer, "connection reset by peer");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(done.load(std::sync::atomic::Ordering::Relaxed), 2, "it was carried out all the same");
        assert_eq!(ask(&line, "/api/v1/pods", &done).await, "connection refused");
        line.restore(7);
        assert_eq!(ask(&line, "/api/v1/pods?watch=true&resourceVersion=6", &done).await, "410");
        assert_eq!(ask(&line, "/api/v1/pods?watch=true&resourceVersion=7", &done).await, "200");
        assert_eq!(ask(&line, "/api/v1/pods?resourceVersion=6", &done).await, "200");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_dies() {
        let (line, done) = (Line::default(), Arc::default());
        line.sever();
        line.restore(0);
        let asked = tokio::time::timeout(Duration::from_secs(99), ask(&line, "/api/v1/pods", &done));
        assert!(asked.await.is_err(), "no answer ever comes");
        assert_eq!(done.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_breaks_off() {
        let line = Line::default();
        let service = tower::service_fn(|_: Request<()>| async {
            let never = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
            Ok::<_, Infallible>(Response::new(http_body_util::StreamBody::new(never)))
        });
        let request = Request::get("/api/v1/pods?watch=true").body(()).unwrap();
        let body = line.layer(service).oneshot(request).await.unwrap().into_body();
        let cut = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            line.reset();
        };
        let (read, ()) = tokio::join!(body.collect(), cut);
        assert_eq!(read.unwrap_err().to_string(), "connection reset by peer");
    }
}
