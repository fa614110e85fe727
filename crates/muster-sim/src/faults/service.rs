//! The service that the layer makes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tower::{BoxError, Layer, Service};

use super::watch::FaultyLines;
use super::{Fault, FaultLayer, Target};

/// The body of an answer that may have suffered.
pub type FaultBody = UnsyncBoxBody<Bytes, BoxError>;

#[derive(Debug, Clone)]
pub struct FaultService<S> {
    inner: S,
    layer: FaultLayer,
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { inner, layer: self.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for FaultService<S>
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
        let uri = request.uri();
        let target = Target::of(request.method(), uri.path(), uri.query().unwrap_or(""));
        let fault = self.layer.decide(&target);
        // The service that was made ready is the one to call; its clone takes its place.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let Some((fault, random)) = fault else {
                return Ok(plain(inner.call(request).await.map_err(Into::into)?));
            };
            match fault {
                Fault::Status(code) => Ok(refusal(code, &target)),
                Fault::Silence => std::future::pending().await,
                Fault::Delay(wait) => {
                    tokio::time::sleep(wait).await;
                    Ok(plain(inner.call(request).await.map_err(Into::into)?))
                }
                Fault::LostAnswer => {
                    inner.call(request).await.map_err(Into::into)?;
                    Ok(refusal(504, &target))
                }
                on_lines => {
                    let response = inner.call(request).await.map_err(Into::into)?;
                    if target.verb != "watch" {
                        return Ok(plain(response));
                    }
                    Ok(response.map(|body| {
                        FaultyLines::new(body, on_lines, random).map_err(Into::into).boxed_unsync()
                    }))
                }
            }
        })
    }
}

pub(super) fn plain<R>(response: Response<R>) -> Response<FaultBody>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// A refusal in the words of an API server.
pub(super) fn refusal(code: u16, target: &Target) -> Response<FaultBody> {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let retry = matches!(code, 429 | 503);
    let mut status = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("a made-up fault on {} {} {}", target.verb, target.resource, target.name),
        "reason": reason,
        "code": code,
    });
    if retry {
        status["details"] = serde_json::json!({"retryAfterSeconds": 1});
    }
    let mut response = Response::new(
        Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync(),
    );
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if retry {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use tower::ServiceExt;

    use super::*;
    use crate::faults::Rule;

    async fn ask(layer: &FaultLayer, uri: &str) -> (u16, String) {
        let service = tower::service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"one\ntwo\n"))))
        });
        let request = Request::get(uri).body(()).unwrap();
        let response = layer.layer(service).oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn answers() {
        let layer = FaultLayer::new(
            1,
            vec![
                Rule::on("get", "pods").named("a").fault(Fault::Status(429)),
                Rule::on("get", "pods").named("b").fault(Fault::Delay(Duration::from_secs(9))),
                Rule::on("get", "pods").named("c").fault(Fault::LostAnswer),
                Rule::on("watch", "pods").fault(Fault::CutWatch { after: 1 }),
            ],
        );
        let (code, body) = ask(&layer, "/api/v1/namespaces/n/pods/a").await;
        assert_eq!(code, 429);
        assert!(body.contains("retryAfterSeconds"));
        let before = tokio::time::Instant::now();
        assert_eq!(ask(&layer, "/api/v1/namespaces/n/pods/b").await.0, 200);
        assert_eq!(before.elapsed(), Duration::from_secs(9));
        assert_eq!(ask(&layer, "/api/v1/namespaces/n/pods/c").await.0, 504);
        assert_eq!(ask(&layer, "/api/v1/pods?watch=true").await, (200, "one\n".into()));
        assert_eq!(ask(&layer, "/api/v1/pods").await, (200, "one\ntwo\n".into()));
    }
}
