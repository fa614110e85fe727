//! The way to an API server: over the network, or by a call where the server is in this process.
//!
//! In: requests. Out: answers, whole or piece by piece. Must stay true: whoever asks cannot tell the two ways apart but by their cost. A client may be
//! fenced: then it knows whether its user may still write. A client of the network hands every request to a task of its own and waits to be woken, which costs as much as many an answer of a server that only has to be called.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::io::AsyncBufRead;
use futures::{AsyncBufReadExt, FutureExt, TryStreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, Full};
use kube::core::Status;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use crate::lease::Fence;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;
type Call =
    dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Result<Response<Body>, BoxError>> + Send + Sync;

#[derive(Clone)]
pub struct Client {
    way: Way,
    fence: Option<Fence>,
}

#[derive(Clone)]
enum Way {
    Far(kube::Client),
    Near(Arc<Call>),
}

impl From<kube::Client> for Client {
    fn from(client: kube::Client) -> Self {
        Client { way: Way::Far(client), fence: None }
    }
}

impl Client {
    /// A client of a server in this process. A request is answered in the task that makes it.
    pub fn near<S, B>(server: S) -> Self
    where
        S: tower::Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let call: Arc<Call> = Arc::new(move |request| {
            let answer = server.clone().oneshot(request);
            async move {
                // Such a server never makes anybody wait, so somebody with many requests would have the thread to himself.
                tokio::task::coop::consume_budget().await;
                let answer = answer.await.map_err(Into::into)?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            .boxed()
        });
        Client { way: Way::Near(call), fence: None }
    }

    /// The same client for those who work under leases: from when one of these is no longer held, nothing is written by it.
    #[must_use]
    pub fn fenced(self, fence: Fence) -> Self {
        Client { fence: Some(fence), ..self }
    }

    /// Whether whoever has this client may still write.
    pub(crate) fn may_write(&self) -> bool {
        self.fence.as_ref().is_none_or(Fence::is_open)
    }

    /// The object that the server answers with.
    pub(crate) async fn request<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> kube::Result<T> {
        match &self.way {
            Way::Far(client) => client.request(request).await,
            Way::Near(call) => {
                let answer = ask(call, request).await?;
                serde_json::from_slice(&whole(answer).await?).map_err(kube::Error::SerdeError)
            }
        }
    }

    /// The lines of an answer as they come.
    pub(crate) async fn request_lines(&self, request: Request<Vec<u8>>) -> kube::Result<Lines> {
        let from = match &self.way {
            Way::Far(client) => Source::Read(Box::pin(client.request_stream(request).await?)),
            Way::Near(call) => Source::Pieces(ask(call, request).await?.into_body().into_data_stream()),
        };
        Ok(Lines { from, text: String::new(), at: 0 })
    }
}

/// The lines of an answer.
pub struct Lines {
    from: Source,
    /// What has come and was not handed out before.
    text: String,
    /// So much of it was handed out.
    at: usize,
}

enum Source {
    Read(Pin<Box<dyn AsyncBufRead + Send>>),
    /// Many lines at a time, as a server in this process has them in its hands: none is copied.
    Pieces(BodyDataStream<Body>),
}

impl Lines {
    /// The next line, with its end; `None` after the last one.
    pub async fn next(&mut self) -> std::io::Result<Option<&str>> {
        let begin = match &mut self.from {
            Source::Read(read) => {
                self.text.clear();
                self.at = read.read_line(&mut self.text).await?;
                0
            }
            Source::Pieces(pieces) => {
                loop {
                    let begin = self.at;
                    if let Some(end) = self.text[begin..].find('\n') {
                        self.at += end + 1;
                        break begin;
                    }
                    let Some(piece) = pieces.try_next().await.map_err(std::io::Error::other)? else {
                        self.at = self.text.len();
                        break begin;
                    };
                    let piece = String::from_utf8(piece.into()).map_err(std::io::Error::other)?;
                    self.text.drain(..std::mem::take(&mut self.at));
                    // Most pieces end with a line.
                    if self.text.is_empty() { self.text = piece } else { self.text += &piece }
                }
            }
        };
        Ok(Some(&self.text[begin..self.at]).filter(|line| !line.is_empty()))
    }
}

/// Asks; a refusal is an error, as a client of the network has it.
async fn ask(call: &Arc<Call>, request: Request<Vec<u8>>) -> kube::Result<Response<Body>> {
    let answer = call(request.map(Into::into)).await.map_err(kube::Error::Service)?;
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(answer);
    }
    let text = whole(answer).await?;
    let status = serde_json::from_slice(&text).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&text);
        Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    Err(kube::Error::Api(status.boxed()))
}

async fn whole(answer: Response<Body>) -> kube::Result<Bytes> {
    Ok(answer.into_body().collect().await.map_err(kube::Error::Service)?.to_bytes())
}
