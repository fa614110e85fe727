//! The HTTPS listener of the webhooks.
//!
//! In: connections. Out: an answer per review, at the paths of [`Hook`]; `/healthz` once it listens and `/readyz` once it
//! is registered. Must stay true: a broken or slow connection ends alone; nothing is read without bound.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::Standing;
use crate::certs::Holder;
use crate::review::{Hook, Reviewer};

/// A review holds an object twice, and an object has at most three megabytes.
const LONGEST_BODY: usize = 16 << 20;
/// An API server keeps a few connections open; a crowd of others must not use up the memory.
const MOST_CONNECTIONS: usize = 1024;
/// How long a client may take to shake hands, or to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long answers that are on their way may take after the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Answers until cancelled. Connections that are open then finish what they answer.
pub async fn serve(
    listener: TcpListener,
    holder: Arc<Holder>,
    reviewer: Reviewer,
    standing: Arc<Standing>,
    cancel: CancellationToken,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(holder);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let close = CancellationToken::new();
    let mut connections = JoinSet::new();
    let accept_all = async {
        loop {
            // Never closed, so a place comes sooner or later.
            let place = places.clone().acquire_owned().await;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: wait for some to come back.
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            while connections.try_join_next().is_some() {}
            let (tls, reviewer, standing) = (tls.clone(), reviewer.clone(), standing.clone());
            let close = close.clone();
            connections.spawn(async move {
                let _place = place;
                let shake = tokio::time::timeout(PATIENCE, tls.accept(stream));
                let Some(Ok(Ok(stream))) = close.run_until_cancelled(shake).await else { return };
                converse(stream, reviewer, standing, close).await;
            });
        }
    };
    tokio::select! {
        () = accept_all => {}
        () = cancel.cancelled() => {}
    }
    close.cancel();
    let finish = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, finish).await;
    Ok(())
}

/// Answers the requests of one connection.
async fn converse(
    stream: TlsStream<TcpStream>,
    reviewer: Reviewer,
    standing: Arc<Standing>,
    close: CancellationToken,
) {
    let service = hyper::service::service_fn(move |request| {
        let (reviewer, standing) = (reviewer.clone(), standing.clone());
        async move { Ok::<_, Infallible>(answer(request, &reviewer, &standing).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(60));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = close.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    reviewer: &Reviewer,
    standing: &Standing,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    match path {
        "/healthz" | "/livez" => return text(StatusCode::OK, "ok"),
        "/readyz" if standing.is_registered.load(Ordering::Acquire) => return text(StatusCode::OK, "ok"),
        "/readyz" => return text(StatusCode::SERVICE_UNAVAILABLE, "not registered yet"),
        _ => {}
    }
    let Some(hook) = Hook::at(path) else { return text(StatusCode::NOT_FOUND, "no such webhook") };
    standing.is_heard.store(true, Ordering::Release);
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are posted");
    }
    let collect = Limited::new(request.into_body(), LONGEST_BODY).collect();
    let body = match tokio::time::timeout(PATIENCE, collect).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return text(StatusCode::BAD_REQUEST, error.to_string()),
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
    };
    match reviewer.answer(hook, &body) {
        Ok(review) => {
            let mut response = Response::new(Full::new(Bytes::from(review.to_string())));
            response.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
            response
        }
        Err(error) => text(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
