//! Turns: what happens in one millisecond happens in one order, whoever was woken first.
//!
//! In: requests, answers and watch events, each with a name. Out: the same, a millisecond later, one after the other, those of one
//! millisecond in the order of their names. Must stay true: with turns, one seed is one course. tokio wakes those who wait for one thing in
//! an order that it draws at random (`tokio::sync::watch`), so without them two runs of a seed part sooner or later.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tower::{BoxError, Service};

/// How long everything takes, and the finest that tokio's clock can tell apart.
const TICK: Duration = Duration::from_millis(1);

/// Who waits for a turn; clones are the same.
#[derive(Clone, Default)]
pub struct Turns {
    waiting: Arc<Mutex<Waiting>>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct Waiting {
    /// By when and by name; the number is for those of one name.
    all: BTreeMap<(Instant, String, u64), oneshot::Sender<Turn>>,
    n: u64,
}

/// While it is held, nobody else's turn comes.
struct Turn {
    _over: oneshot::Sender<()>,
}

impl Turns {
    /// Gives everybody their turn, for ever.
    pub async fn serve(self) {
        loop {
            let first = self.with(|waiting| waiting.all.keys().next().map(|(at, ..)| *at));
            match first {
                None => self.news.notified().await,
                Some(at) if at > Instant::now() => {
                    // Nobody who comes meanwhile is earlier, but whoever was first may have gone.
                    tokio::time::sleep_until(at).await;
                }
                Some(_) => {
                    let Some((_, next)) = self.with(|waiting| waiting.all.pop_first()) else { continue };
                    let (over, is_over) = oneshot::channel();
                    if next.send(Turn { _over: over }).is_ok() {
                        // It ends when the turn is dropped.
                        let _ = is_over.await;
                    }
                }
            }
        }
    }

    async fn wait(&self, name: String) -> Option<Turn> {
        let (give, given) = oneshot::channel();
        self.with(|waiting| {
            waiting.n += 1;
            waiting.all.insert((Instant::now() + TICK, name, waiting.n), give);
        });
        self.news.notify_one();
        given.await.ok()
    }

    fn with<R>(&self, look: impl FnOnce(&mut Waiting) -> R) -> R {
        look(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A way to the server on which everything waits for its turn, if there are turns.
#[derive(Clone)]
pub struct Turned<S> {
    pub inner: S,
    pub who: &'static str,
    pub turns: Option<Turns>,
}

type TurnedBody = UnsyncBoxBody<Bytes, BoxError>;

impl<S, R> Service<Request<Body>> for Turned<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<TurnedBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The service that was made ready is the one to call; its clone takes its place.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let who = self.who;
        let Some(turns) = self.turns.clone() else {
            let answer = inner.call(request);
            return Box::pin(async move {
                Ok(answer.await.map_err(Into::into)?.map(|body| body.map_err(Into::into).boxed_unsync()))
            });
        };
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let name = format!("{who} {} {} {}", parts.method, parts.uri, String::from_utf8_lossy(&bytes));
            let turn = turns.wait(name.clone()).await;
            let answer = inner.call(Request::from_parts(parts, Body::from(bytes.to_vec())));
            drop(turn);
            let answer = answer.await;
            // How it ended comes in turn too: when a line is cut, many requests fail at once.
            drop(turns.wait(name.clone()).await);
            Ok(answer.map_err(Into::into)?.map(|body| in_turn(body, turns, name)))
        })
    }
}

/// A body whose parts come in turn. Those that are there as a whole have had theirs.
fn in_turn<R>(body: R, turns: Turns, name: String) -> TurnedBody
where
    R: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    if body.size_hint().exact().is_some() {
        return body.map_err(Into::into).boxed_unsync();
    }
    let parts = futures::stream::unfold((body, turns, name), |(mut body, turns, name)| async move {
        let part = body.frame().await.map(|part| part.map_err(Into::into));
        drop(turns.wait(name.clone()).await);
        part.map(|part| (part, (body, turns, name)))
    });
    BodyExt::boxed_unsync(StreamBody::new(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks that come at these milliseconds by these names; out: in which order their turns come.
    async fn order(comers: &[(u64, &str)]) -> String {
        let turns = Turns::default();
        tokio::spawn(turns.clone().serve());
        let said = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = comers
            .iter()
            .map(|(at, name)| {
                let (at, name, turns, said) =
                    (Duration::from_millis(*at), (*name).to_owned(), turns.clone(), said.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(at).await;
                    let turn = turns.wait(name.clone()).await;
                    tokio::task::yield_now().await;
                    said.lock().unwrap().push(name);
                    drop(turn);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let said = said.lock().unwrap();
        said.join(" ")
    }

    #[tokio::test(start_paused = true)]
    async fn time_decides_then_the_name() {
        assert_eq!(order(&[(5, "b"), (5, "c"), (5, "a"), (4, "z"), (9, "0")]).await, "z a b c 0");
        assert_eq!(order(&[(0, "b"), (1, "a"), (0, "c")]).await, "b c a");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_stops_nobody() {
        let turns = Turns::default();
        tokio::spawn(turns.clone().serve());
        let (other, gives_up) = (turns.clone(), turns.clone());
        let gone = tokio::spawn(async move { drop(gives_up.wait("a".into()).await) });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(other.wait("b".into()).await.is_some());
    }
}
