//! The server as a tower service. In: an HTTP request. Out: an HTTP response. `kube::Client::new` takes it as it is, so
//! controllers and tests run against it with no socket and on paused time.

use crate::access::{Peer, User};
use crate::audit::Notes;
use crate::discovery;
use crate::negotiate::{self, Encoding, Form};
use crate::openapi;
use crate::path::{self, ResourcePath, Target};
use crate::query::Query;
use crate::read::Filter;
use crate::registry::{Served, Source};
use crate::reply::{Body, Content, Reply};
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::store::Key;
use crate::strategy::Part;
use crate::write::Context;
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{self, Poll};

/// The largest body that is read: what etcd takes in one request, with room for base64.
const MAX_BODY: usize = 3 << 20;

impl<B> tower::Service<http::Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            if server.is_guarded() && head.extensions.get::<Peer>().is_some() {
                return Ok(server.answer_guarded(head, body).await);
            }
            let reply = match read_body(body).await {
                Ok(body) => server.answer_settled(&head, &body).await,
                Err(error) => Err(error),
            };
            let reply = reply.unwrap_or_else(|error| Reply::error(&error));
            Ok(reply.into_response())
        })
    }
}

/// The server for programs in its own process, which make and read objects by the thousand and never look at who manages their fields: what it tells
/// them lacks that record, a third of a pod's text. Everything else is as over a socket.
#[derive(Clone)]
pub struct Inside(ApiServer);

/// What marks their requests; it cannot come over a socket.
#[derive(Clone, Copy)]
struct FromInside;

impl ApiServer {
    /// The server as programs in its own process ask it.
    pub fn inside(&self) -> Inside {
        Inside(self.clone())
    }
}

impl<B> tower::Service<http::Request<B>> for Inside
where
    ApiServer: tower::Service<http::Request<B>>,
{
    type Response = <ApiServer as tower::Service<http::Request<B>>>::Response;
    type Error = <ApiServer as tower::Service<http::Request<B>>>::Error;
    type Future = <ApiServer as tower::Service<http::Request<B>>>::Future;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        request.extensions_mut().insert(FromInside);
        self.0.call(request)
    }
}

/// Reads a whole body, if it is not too large.
pub(crate) async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {MAX_BODY}"),
        )),
        Err(error) => Err(ApiError::bad_request(format!("unable to read the body: {error}"))),
    }
}

fn header<'a>(head: &'a http::request::Parts, name: &str) -> &'a str {
    head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

impl ApiServer {
    pub(crate) async fn answer_request(
        &self,
        head: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Reply, ApiError> {
        let target = path::parse(head.uri.path());
        let is_discovery = matches!(target, Target::LegacyVersions | Target::Groups);
        // Asked for by kubectl in a form of its own, and answered in that form whatever else is accepted.
        if head.uri.path() == "/openapi/v2" {
            return Ok(openapi::version_2());
        }
        let (mut form, encoding) = negotiate::accept(header(head, "accept"), is_discovery)?;
        if form == Form::Object && head.extensions.get::<FromInside>().is_some() {
            form = Form::Lean;
        }
        let reply = self.route(head, body, target, form).await?;
        Ok(if encoding == Encoding::Yaml { to_yaml(reply) } else { reply })
    }

    async fn route(
        &self,
        head: &http::request::Parts,
        body: &Bytes,
        target: Target,
        form: Form,
    ) -> Result<Reply, ApiError> {
        let registry = self.registry();
        let get = || if head.method == "GET" { Ok(()) } else { Err(ApiError::method_not_allowed()) };
        let address = header(head, "host");
        match target {
            Target::LegacyVersions => {
                get()?;
                Ok(match form {
                    Form::Discovery(v) => aggregated(discovery::aggregated(&registry, true, v), v),
                    _ => Reply::json(200, discovery::legacy_versions(address)),
                })
            }
            Target::Groups => {
                get()?;
                Ok(match form {
                    Form::Discovery(v) => aggregated(discovery::aggregated(&registry, false, v), v),
                    _ => Reply::json(200, discovery::groups(&registry)),
                })
            }
            Target::Group(group) => {
                get()?;
                let found = discovery::group(&registry, &group).ok_or_else(ApiError::no_such_path)?;
                Ok(Reply::json(200, found))
            }
            Target::GroupVersion { group, version } => {
                get()?;
                let found =
                    discovery::resources(&registry, &group, &version).ok_or_else(ApiError::no_such_path)?;
                Ok(Reply::json(200, found))
            }
            Target::Resource(path) => self.resource(head, body, path, form).await,
            Target::Other(path) => self.other(&path),
        }
    }

    fn other(&self, path: &str) -> Result<Reply, ApiError> {
        match path.trim_end_matches('/') {
            "/version" => Ok(Reply::json(200, self.version())),
            "/healthz" | "/livez" | "/readyz" => Ok(Reply::plain(200, "ok")),
            "/openapi/v3" => Ok(Reply::json(200, openapi::index(&self.registry()))),
            "" => {
                let mut paths: Vec<String> = vec!["/api".into(), "/api/v1".into(), "/apis".into()];
                for (group, versions) in self.registry().groups.iter().filter(|(g, _)| !g.is_empty()) {
                    paths.push(format!("/apis/{group}"));
                    paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
                }
                paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(String::from));
                Ok(Reply::json(200, serde_json::json!({"paths": paths})))
            }
            other => match other.strip_prefix("/openapi/v3/") {
                Some(document) => self.openapi_document(document),
                None => Err(ApiError::no_such_group()),
            },
        }
    }

    fn openapi_document(&self, path: &str) -> Result<Reply, ApiError> {
        let cached =
            self.inner.openapi.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(path).cloned();
        if let Some(text) = cached {
            return Ok(Reply::text(200, text.to_string()));
        }
        let (group, version) = match path.strip_prefix("apis/") {
            Some(rest) => rest.split_once('/').ok_or_else(ApiError::no_such_path)?,
            None => ("", path.strip_prefix("api/").ok_or_else(ApiError::no_such_path)?),
        };
        let document = openapi::document(&self.registry(), group, version)
            .ok_or_else(ApiError::no_such_path)?
            .to_string();
        let text: Arc<str> = document.as_str().into();
        self.inner
            .openapi
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(path.to_string(), text);
        Ok(Reply::text(200, document))
    }

    async fn resource(
        &self,
        head: &http::request::Parts,
        body: &Bytes,
        path: ResourcePath,
        form: Form,
    ) -> Result<Reply, ApiError> {
        let registry = self.registry();
        let served = match registry.find(&path.group, &path.version, &path.resource) {
            Some(served) => served.clone(),
            None if registry.is_builtin_group(&path.group) => return Err(ApiError::no_such_path()),
            None => return Err(ApiError::no_such_group()),
        };
        if path.namespace.is_some() && !served.namespaced {
            return Err(ApiError::no_such_path());
        }
        let options = match head.method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            "PATCH" => "PatchOptions",
            "DELETE" => "DeleteOptions",
            _ => "ListOptions",
        };
        let is_served = path.subresource.as_deref().is_none_or(|sub| served.subresource(sub).is_some());
        if head.method == "PATCH" && path.name.is_some() && is_served {
            // Before anything else about it, as on the real server.
            let media = header(head, "content-type").split(';').next().unwrap_or_default().trim();
            crate::write::check_patch_type(media, &served)?;
        }
        let mut query = Query::parse(head.uri.query().unwrap_or_default(), options)?;
        query.watch |= path.watch;
        let cx = Context {
            served: served.clone(),
            namespace: path.namespace.clone(),
            query,
            form,
            content_type: header(head, "content-type").to_string(),
            user_agent: header(head, "user-agent").to_string(),
            user: head.extensions.get::<Arc<User>>().cloned(),
            notes: head.extensions.get::<Notes>().cloned(),
        };
        let method = head.method.as_str();
        let outcome = match (&path.name, &path.subresource) {
            (None, _) => self.on_collection(&cx, method, body).await,
            (Some(name), None) => self.on_object(&cx, name, method, body).await,
            (Some(name), Some(sub)) => self.on_subresource(&cx, name, sub, method, body).await,
        };
        let Source::Custom(custom) = &served.source else { return outcome };
        let Some(text) = custom.version(&served.version).and_then(|v| v.deprecation.clone()) else {
            return outcome;
        };
        // Whether it went well or not, the client learns that this version is on its way out.
        match outcome {
            Ok(reply) => Ok(reply.warn(vec![text])),
            Err(mut error) => {
                error.warnings.push(text);
                Err(error)
            }
        }
    }

    async fn on_collection(&self, cx: &Context, method: &str, body: &Bytes) -> Result<Reply, ApiError> {
        let served = &cx.served;
        allow(served, method_verb(method, cx.query.watch, false)?)?;
        match method {
            "GET" => {
                let filter = Filter::new(served, cx.namespace.as_deref(), &cx.query)?;
                if cx.query.watch {
                    self.watch(served, filter, &cx.query, cx.form).await
                } else {
                    self.list(served, &filter, &cx.query, cx.form).await
                }
            }
            "POST" if served.is("", "bindings") => self.bind(cx, None, body).await,
            "POST" if !served.is_stored() => self.review(cx, body),
            "POST" => self.create(cx, body).await,
            _ => self.delete_collection(cx, body).await,
        }
    }

    async fn on_object(
        &self,
        cx: &Context,
        name: &str,
        method: &str,
        body: &Bytes,
    ) -> Result<Reply, ApiError> {
        let served = &cx.served;
        if served.namespaced && cx.namespace.is_none() {
            return Err(ApiError::no_such_path());
        }
        allow(served, method_verb(method, false, true)?)?;
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        match method {
            "GET" if cx.query.watch => {
                let mut filter = Filter::new(served, cx.namespace.as_deref(), &cx.query)?;
                filter.fields.0.push(crate::selector::FieldRequirement {
                    field: "metadata.name".into(),
                    value: name.into(),
                    equal: true,
                });
                self.watch(served, filter, &cx.query, cx.form).await
            }
            "GET" => self.get(served, &key, &cx.query, cx.form).await,
            "PUT" => self.update(cx, name, Part::Main, body).await,
            "PATCH" => self.patch(cx, name, Part::Main, body).await,
            _ => self.delete(cx, name, body).await,
        }
    }

    async fn on_subresource(
        &self,
        cx: &Context,
        name: &str,
        sub: &str,
        method: &str,
        body: &Bytes,
    ) -> Result<Reply, ApiError> {
        let served = &cx.served;
        if served.namespaced && cx.namespace.is_none() {
            return Err(ApiError::no_such_path());
        }
        let found = served.subresource(sub).ok_or_else(|| match served.source {
            Source::Builtin(_) => ApiError::no_such_path(),
            // Custom kinds have one handler for all subresources, which looks them up like objects.
            Source::Custom(_) => ApiError::not_found(&served.group_resource(), name),
        })?;
        let verb = match method {
            "POST" => "create",
            _ => method_verb(method, false, true)?,
        };
        if !found.verbs.iter().any(|v| v == verb) {
            return Err(ApiError::method_not_allowed());
        }
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        match (sub, method) {
            ("scale", _) => self.scale(cx, name, method, body).await,
            ("binding", "POST") => self.bind(cx, Some(name), body).await,
            ("eviction", "POST") => self.evict(cx, name, body).await,
            ("token", "POST") => self.token(cx, name, body),
            ("log", "GET") => self.log(cx, name, &cx.query),
            ("finalize", "PUT") => self.finalize(cx, name, body).await,
            ("status" | "approval" | "ephemeralcontainers" | "resize", _) => {
                let part = match sub {
                    "ephemeralcontainers" => Part::Ephemeral,
                    "resize" => Part::Resize,
                    _ => Part::Status,
                };
                match method {
                    "GET" => self.get(served, &key, &cx.query, cx.form).await,
                    "PUT" => self.update(cx, name, part, body).await,
                    _ => self.patch(cx, name, part, body).await,
                }
            }
            _ => Err(ApiError::bad_request(format!(
                "{}/{sub} needs running containers, and the embedded cluster only simulates them",
                served.plural
            ))),
        }
    }
}

fn method_verb(method: &str, watch: bool, named: bool) -> Result<&'static str, ApiError> {
    Ok(match (method, named) {
        ("GET", true) => "get",
        ("GET", false) if watch => "watch",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    })
}

fn allow(served: &Served, verb: &str) -> Result<(), ApiError> {
    if served.verbs.iter().any(|v| v == verb) { Ok(()) } else { Err(ApiError::method_not_allowed()) }
}

fn aggregated(document: Value, version: &str) -> Reply {
    let mut reply = Reply::json(200, document);
    reply.content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    reply
}

fn to_yaml(reply: Reply) -> Reply {
    if reply.content_type != "application/json" {
        return reply;
    }
    match &reply.content {
        Content::Whole(bytes) => {
            let text = serde_json::from_slice::<Value>(bytes)
                .ok()
                .and_then(|value| serde_saphyr::to_string(&value).ok());
            match text {
                Some(text) => {
                    Reply { content: Content::Whole(text.into()), content_type: "application/yaml", ..reply }
                }
                None => reply,
            }
        }
        Content::Stream(_) => reply,
    }
}
