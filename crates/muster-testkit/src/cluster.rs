//! One API server seen from outside: the same value for the real one and for the embedded one.
//!
//! In: a kubeconfig. Out: a typed client, or raw requests whose status, headers and bytes come back untouched, since a
//! test of a server must see what was really said. Nothing here retries.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// Where a cluster is and how to speak to it.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `real` or `embedded`: what a message about it says.
    pub name: &'static str,
    /// A kubeconfig with one context, readable by its owner only.
    pub kubeconfig: PathBuf,
    /// `https://127.0.0.1:<port>`
    pub url: String,
    /// The bearer token of the administrator.
    pub token: String,
    /// The certificate of its authority, in PEM.
    pub authority: String,
}

/// A raw request: what is not named is not sent, so a test says all that matters.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST`, ...
    pub method: String,
    /// The path with its query, from `/`.
    pub path: String,
    /// Header names and values. `authorization` is added unless `anonymous` is set or it is among these.
    pub headers: Vec<(String, String)>,
    /// The body as it goes out.
    pub body: Vec<u8>,
    /// Send no token.
    pub anonymous: bool,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub body: Bytes,
}

/// Why a watch was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// As many events as were asked for have come.
    Enough,
    /// The server closed the stream.
    Closed,
    /// Nothing more came within the time given.
    Timeout,
}

/// A connection pool for raw requests. It belongs to the runtime that made it: make one per test.
#[derive(Clone)]
pub struct Http {
    client: kube::Client,
    authorization: String,
}

impl Cluster {
    /// Reads a kubeconfig with a bearer token.
    ///
    /// # Errors
    /// When the file cannot be read or lacks the server or the token.
    pub fn from_kubeconfig(name: &'static str, path: &Path) -> Result<Cluster> {
        let said = || format!("kubeconfig {}", path.display());
        let text = std::fs::read_to_string(path).with_context(said)?;
        let config: Value = serde_saphyr::from_str(&text).with_context(said)?;
        let string = |pointer| config.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let (url, token) = (string("/clusters/0/cluster/server"), string("/users/0/user/token"));
        let authority = string("/clusters/0/cluster/certificate-authority-data").unwrap_or_default();
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).with_context(said)?;
        Ok(Cluster {
            name,
            kubeconfig: path.to_owned(),
            url: url.with_context(|| format!("{}: names no server", said()))?,
            token: token.with_context(|| format!("{}: has no token", said()))?,
            authority: String::from_utf8(authority).with_context(said)?,
        })
    }

    /// A typed client of the calling runtime.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Ok(kube::Client::try_from(config)?)
    }

    /// A client for raw requests of the calling runtime.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn http(&self) -> Result<Http> {
        let mut config = self.config().await?;
        config.auth_info = kube::config::AuthInfo::default();
        config.default_retry = false;
        config.read_timeout = None;
        Ok(Http { client: kube::Client::try_from(config)?, authorization: format!("Bearer {}", self.token) })
    }

    async fn config(&self) -> Result<kube::Config> {
        let file = Kubeconfig::read_from(&self.kubeconfig)?;
        Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
    }
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: &str, path: &str) -> Request {
        Request { method: method.to_owned(), path: path.to_owned(), ..Request::default() }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a JSON body and, unless one is set, its content type.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Request {
        self.body = body.to_string().into_bytes();
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            self.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        self
    }
}

impl Response {
    /// The body as JSON, if it is JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// All values of one header, in order.
    pub fn header(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter();
        values.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    }
}

impl Http {
    /// Sends one request and reads the whole answer.
    ///
    /// # Errors
    /// When the connection fails; an error status is an answer, not an error.
    pub async fn send(&self, request: &Request) -> Result<Response> {
        let said = || format!("{} {}", request.method, request.path);
        let answer = self.client.send(self.build(request)?).await.with_context(said)?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.with_context(said)?.to_bytes();
        Ok(Response { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Sends a watch and reads events until there are `enough`, the server ends it, or nothing comes for `quiet`.
    /// An answer that is not 200 comes back as the response, without events.
    ///
    /// # Errors
    /// When the connection fails or a line is not JSON.
    pub async fn watch(
        &self,
        request: &Request,
        enough: usize,
        quiet: Duration,
    ) -> Result<(Response, Vec<Value>, WatchEnd)> {
        let said = || format!("{} {}", request.method, request.path);
        let answer = self.client.send(self.build(request)?).await.with_context(said)?;
        let (head, mut body) = answer.into_parts();
        let mut response =
            Response { status: head.status.as_u16(), headers: head.headers, body: Bytes::new() };
        if response.status != 200 {
            response.body = body.collect().await.with_context(said)?.to_bytes();
            return Ok((response, Vec::new(), WatchEnd::Closed));
        }
        let mut events = Vec::new();
        let mut rest: Vec<u8> = Vec::new();
        loop {
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                events.push(serde_json::from_slice(&line).with_context(said)?);
            }
            if events.len() >= enough {
                return Ok((response, events, WatchEnd::Enough));
            }
            match tokio::time::timeout(quiet, body.frame()).await {
                Err(_) => return Ok((response, events, WatchEnd::Timeout)),
                Ok(None) => return Ok((response, events, WatchEnd::Closed)),
                Ok(Some(frame)) => {
                    if let Ok(data) = frame.with_context(said)?.into_data() {
                        rest.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// Opens a watch and counts its events without reading them, until there are `enough`. Out: a task that ends then; the watch is
    /// open when this returns.
    ///
    /// # Errors
    /// When the connection fails or the answer is not 200; the task fails when the watch ends before.
    pub async fn count_events(
        &self,
        request: &Request,
        enough: usize,
    ) -> Result<tokio::task::JoinHandle<Result<()>>> {
        let said = format!("{} {}", request.method, request.path);
        let answer = self.client.send(self.build(request)?).await.with_context(|| said.clone())?;
        anyhow::ensure!(answer.status() == 200, "{said}: {}", answer.status());
        let mut body = answer.into_body();
        Ok(tokio::spawn(async move {
            let mut seen = 0;
            while seen < enough {
                let frame =
                    body.frame().await.with_context(|| format!("{said}: ended after {seen} events"))?;
                if let Ok(data) = frame?.into_data() {
                    // Objects have no line breaks inside, so each ends an event.
                    seen += data.iter().filter(|b| **b == b'\n').count();
                }
            }
            Ok(())
        }))
    }

    fn build(&self, request: &Request) -> Result<http::Request<Body>> {
        let mut built = http::Request::builder().method(request.method.as_str()).uri(&request.path);
        let named = request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if !request.anonymous && !named {
            built = built.header("authorization", &self.authorization);
        }
        for (name, value) in &request.headers {
            built = built.header(name, value);
        }
        Ok(built.body(Body::from(request.body.clone()))?)
    }
}
