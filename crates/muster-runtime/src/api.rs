//! Requests to an API server.
//!
//! In: a kind, a name, a body in JSON. Out: the slim object that the server answers with, or an error that says which
//! request failed. Must stay true: every request ends, at the latest after `REQUEST_LIMIT`; nothing here retries; nothing is written under a lease that is
//! no longer held, however long ago somebody decided to write it.

use std::time::Duration;

use http::{Method, Request, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{Client, Lines};
use crate::metrics::Metrics;
use crate::object::{Key, Object, Resource};

/// Longer than any answer takes that is still on its way.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("failed to {verb} {what}")]
    Request { verb: &'static str, what: String, source: Box<kube::Error> },
    #[error("no answer to {verb} {what} within {} s", REQUEST_LIMIT.as_secs())]
    TimedOut { verb: &'static str, what: String },
    #[error("did not {verb} {what}: the lease under which this would be done is no longer held")]
    Fenced { verb: &'static str, what: String },
    #[error("{what} cannot be addressed")]
    Address { what: String, source: http::Error },
}

impl ApiError {
    /// The HTTP status of a refusal; 0 when the server did not answer at all.
    pub fn code(&self) -> u16 {
        match self {
            ApiError::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.code,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Nothing was sent, since whoever wanted to write has lost its turn. Trying again is in vain.
    pub fn fenced(&self) -> bool {
        matches!(self, ApiError::Fenced { .. })
    }

    pub fn not_found(&self) -> bool {
        self.code() == 404
    }

    pub fn gone(&self) -> bool {
        self.code() == 410
    }

    /// Another writer was first, or the object is not the one that was meant.
    pub fn conflict(&self) -> bool {
        self.code() == 409 && !self.already_exists()
    }

    pub fn already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    pub fn reason(&self) -> &str {
        match self {
            ApiError::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => &status.reason,
                _ => "",
            },
            _ => "",
        }
    }

    /// The server's own words, for events and conditions.
    pub fn message(&self) -> String {
        match self {
            ApiError::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            },
            other => other.to_string(),
        }
    }

    /// How long the server asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        let ApiError::Request { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    Merge,
    Strategic,
    Json,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
            Patch::Json => "application/json-patch+json",
        }
    }
}

/// What a delete asks for.
#[derive(Debug, Clone, Default)]
pub struct Delete<'a> {
    /// Only this very object, not a later one of the same name.
    pub uid: &'a str,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<&'static str>,
}

impl Delete<'_> {
    fn body(&self) -> Value {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if !self.uid.is_empty() {
            body["preconditions"] = json!({"uid": self.uid});
        }
        if let Some(grace) = self.grace_seconds {
            body["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = json!(propagation);
        }
        body
    }
}

/// One page of a list.
pub struct Page<T> {
    pub items: Vec<T>,
    pub resource_version: String,
    pub next: Option<String>,
}

/// A client for slim kinds.
#[derive(Clone)]
pub struct Api {
    client: Client,
    pub(crate) manager: &'static str,
    metrics: Option<Metrics>,
}

impl Api {
    /// `manager` is the name of the program: the server writes it into `managedFields`.
    pub fn new(client: impl Into<Client>, manager: &'static str) -> Self {
        Api { client: client.into(), manager, metrics: None }
    }

    /// The same client, whose requests are counted.
    pub fn counted(self, metrics: Metrics) -> Self {
        Api { metrics: Some(metrics), ..self }
    }

    /// Where it counts, if anywhere.
    pub fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// The same client under the name of another program.
    pub fn named(&self, manager: &'static str) -> Self {
        Api { manager, ..self.clone() }
    }

    pub async fn create<T: Object>(&self, namespace: &str, body: &Value) -> Result<T, ApiError> {
        let path = T::RESOURCE.path(namespace, "", "");
        self.send("create", Method::POST, &path, "application/json", Some(body)).await
    }

    /// Creates a subresource such as a binding or an eviction.
    pub async fn create_sub<T: Object>(&self, key: &Key, sub: &str, body: &Value) -> Result<(), ApiError> {
        let path = T::RESOURCE.path(&key.namespace, &key.name, sub);
        let _: serde::de::IgnoredAny =
            self.send("create", Method::POST, &path, "application/json", Some(body)).await?;
        Ok(())
    }

    pub async fn get<T: Object>(&self, key: &Key) -> Result<T, ApiError> {
        let path = T::RESOURCE.path(&key.namespace, &key.name, "");
        self.send("get", Method::GET, &path, "application/json", None).await
    }

    /// The whole object, for callers that read fields no slim kind has.
    pub async fn get_path(&self, path: &str) -> Result<Value, ApiError> {
        self.send("get", Method::GET, path, "application/json", None).await
    }

    pub async fn patch_path(&self, path: &str, kind: Patch, body: &Value) -> Result<Value, ApiError> {
        self.send("patch", Method::PATCH, path, kind.content_type(), Some(body)).await
    }

    /// Replaces an object, which must carry the version that it replaces.
    pub async fn put_path(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.send("update", Method::PUT, path, "application/json", Some(body)).await
    }

    /// Server-side apply: the fields of `body` become this program's, whoever had them.
    pub async fn apply_path(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager={}&force=true", self.manager);
        self.send("apply", Method::PATCH, &path, "application/apply-patch+yaml", Some(body)).await
    }

    /// Deletes what is at a path; `false` if nothing was there. An empty `uid` means whichever object has the name.
    pub async fn delete_path(&self, path: &str, delete: Delete<'_>) -> Result<bool, ApiError> {
        let answer: Result<serde::de::IgnoredAny, ApiError> =
            self.send("delete", Method::DELETE, path, "application/json", Some(&delete.body())).await;
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub async fn create_path(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.send("create", Method::POST, path, "application/json", Some(body)).await
    }

    /// Posts a body that is already text: for requests so many that a tree of values would show.
    pub async fn post_text(&self, path: &str, body: String) -> Result<(), ApiError> {
        let _: serde::de::IgnoredAny =
            self.send_bytes("create", Method::POST, path, "application/json", body.into_bytes()).await?;
        Ok(())
    }

    /// Deletes at once, but only this very version of the object: whoever wrote to it since keeps it. Out: `false` if
    /// nothing was there.
    pub async fn delete_version(
        &self,
        path: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<bool, ApiError> {
        let body = json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        });
        let answer: Result<serde::de::IgnoredAny, ApiError> =
            self.send("delete", Method::DELETE, path, "application/json", Some(&body)).await;
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub async fn patch<T: Object>(
        &self,
        key: &Key,
        sub: &str,
        kind: Patch,
        body: &Value,
    ) -> Result<T, ApiError> {
        let path = T::RESOURCE.path(&key.namespace, &key.name, sub);
        self.send("patch", Method::PATCH, &path, kind.content_type(), Some(body)).await
    }

    /// Out: the object as it is while it goes, if the server answered with it.
    pub async fn delete<T: Object>(&self, key: &Key, delete: Delete<'_>) -> Result<Option<T>, ApiError> {
        let path = T::RESOURCE.path(&key.namespace, &key.name, "");
        let answer: Box<RawValue> =
            self.send("delete", Method::DELETE, &path, "application/json", Some(&delete.body())).await?;
        // The answer is a Status when the object is already gone; a Status has no uid.
        let object: Option<T> = serde_json::from_str(answer.get()).ok();
        Ok(object.filter(|o| !o.meta().uid.is_empty()))
    }

    /// One page of a list. An item that cannot be decoded is left out with a warning: one bad object must not stop
    /// everything else.
    pub async fn list<T: Object>(&self, scope: &Scope, next: Option<&str>) -> Result<Page<T>, ApiError> {
        let page = self.list_raw(&scope.url(&T::RESOURCE), next).await?;
        Ok(Page {
            items: page
                .items
                .iter()
                .filter(|item| scope.may_have(item.get()))
                .filter_map(|item| decode::<T>(item.get()))
                .collect(),
            resource_version: page.resource_version,
            next: page.next,
        })
    }

    /// One page of the list at a URL whose query has begun.
    pub async fn list_raw(&self, url: &str, next: Option<&str>) -> Result<Page<Box<RawValue>>, ApiError> {
        let mut path = format!("{url}&limit={PAGE}");
        if let Some(next) = next {
            path.push_str("&continue=");
            path.push_str(&escape(next));
        }
        let list: RawList = self.send("list", Method::GET, &path, "application/json", None).await?;
        Ok(Page {
            items: list.items,
            resource_version: list.metadata.resource_version,
            next: Some(list.metadata.continuation).filter(|c| !c.is_empty()),
        })
    }

    /// The lines of a watch at a URL whose query has begun.
    pub async fn watch_raw(
        &self,
        url: &str,
        resource_version: &str,
        limit: Duration,
    ) -> Result<Lines, ApiError> {
        let path = format!(
            "{url}&watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            limit.as_secs().max(1),
            escape(resource_version),
        );
        let request = Request::get(&path)
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, self.user_agent())
            .body(Vec::new())
            .map_err(|source| ApiError::Address { what: path.clone(), source })?;
        match tokio::time::timeout(REQUEST_LIMIT, self.client.request_lines(request)).await {
            Ok(Ok(lines)) => Ok(lines),
            Ok(Err(source)) => Err(ApiError::Request { verb: "watch", what: path, source: Box::new(source) }),
            Err(_) => Err(ApiError::TimedOut { verb: "watch", what: path }),
        }
    }

    fn user_agent(&self) -> String {
        format!("{}/{}", self.manager, env!("CARGO_PKG_VERSION"))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<T, ApiError> {
        let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        self.send_bytes(verb, method, path, content_type, bytes).await
    }

    async fn send_bytes<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        content_type: &str,
        bytes: Vec<u8>,
    ) -> Result<T, ApiError> {
        if method != Method::GET && !self.client.may_write() {
            return Err(ApiError::Fenced { verb, what: path.to_owned() });
        }
        // What we send is made by programs: nobody would read a warning about an unknown field, and the server need not look for one.
        let lenient = matches!(verb, "create" | "update" | "patch") && !path.contains("fieldValidation=");
        let join = if path.contains('?') { '&' } else { '?' };
        let uri = if lenient { format!("{path}{join}fieldValidation=Ignore") } else { path.to_owned() };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, self.user_agent())
            .body(bytes)
            .map_err(|source| ApiError::Address { what: path.to_owned(), source })?;
        let answer = match tokio::time::timeout(REQUEST_LIMIT, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => {
                Err(ApiError::Request { verb, what: path.to_owned(), source: Box::new(source) })
            }
            Err(_) => Err(ApiError::TimedOut { verb, what: path.to_owned() }),
        };
        if let Some(metrics) = &self.metrics {
            metrics.process.answered(verb, answer.as_ref().map_or_else(|error| error.code(), |_| 200));
        }
        answer
    }
}

/// Big enough that ten thousand pods are a few requests, small enough that no answer is huge.
const PAGE: usize = 1000;

/// Which part of a kind's collection to read; an empty namespace means all.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub namespace: String,
    /// Added to every list and watch: `labelSelector=...`, already escaped; may be empty.
    pub query: String,
    /// Only objects whose text has this in it; the rest is passed over unread. For what no selector can say: labels whose names only begin alike.
    pub mentions: &'static str,
}

impl Scope {
    /// The URL of a kind's collection, with the query begun.
    pub(crate) fn url(&self, resource: &Resource) -> String {
        format!("{}?{}", resource.path(&self.namespace, "", ""), self.query)
    }

    /// Whether an object may be one of those; its text is all that is looked at.
    pub(crate) fn may_have(&self, text: &str) -> bool {
        text.contains(self.mentions)
    }
}

#[derive(Deserialize)]
struct RawList {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    continuation: String,
}

/// One line of a watch.
pub struct WatchLine<'a> {
    pub kind: &'a str,
    /// The JSON text of the object.
    pub object: &'a str,
}

impl<'a> WatchLine<'a> {
    pub fn read(line: &'a str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        if let Some(line) = Self::written_plainly(line) {
            return Ok(line);
        }
        let Line { kind, object } = serde_json::from_str(line)?;
        Ok(WatchLine { kind, object: object.get() })
    }

    /// API servers write the type and then the object, without spaces; then the object need not be read to find its end.
    fn written_plainly(line: &'a str) -> Option<Self> {
        let (kind, rest) = line.trim_end().strip_prefix(r#"{"type":""#)?.split_once('"')?;
        let object = rest.strip_prefix(r#","object":"#)?.strip_suffix('}')?;
        (object.starts_with('{') && object.ends_with('}')).then_some(WatchLine { kind, object })
    }
}

/// Decodes one object; what cannot be decoded is reported and left out.
pub fn decode<T: Object>(text: &str) -> Option<T> {
    match serde_json::from_str(text) {
        Ok(object) => Some(object),
        Err(error) => {
            let start: String = text.chars().take(200).collect();
            tracing::warn!(kind = T::RESOURCE.kind, %error, %start, "an object that cannot be read is ignored");
            None
        }
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_lines() {
        let check = |line: &str, kind: &str, object: &str| {
            let read = WatchLine::read(line).unwrap();
            assert_eq!((read.kind, read.object), (kind, object), "{line}");
        };
        check("{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n", "ADDED", r#"{"a":1}"#);
        check(r#"{ "object": {"a": 1}, "type": "DELETED" }"#, "DELETED", r#"{"a": 1}"#);
        check(r#"{"type":"MODIFIED", "object":{}}"#, "MODIFIED", "{}");
        assert!(WatchLine::read("{\"type\":\"ADDED\"}").is_err());
        assert!(WatchLine::read("").is_err());
    }

    #[test]
    fn escapes_query_values() {
        assert_eq!(escape("aZ0-_.~"), "aZ0-_.~");
        assert_eq!(escape("a b&c=/"), "a%20b%26c%3D%2F");
    }

    #[test]
    fn a_bad_object_is_left_out() {
        assert!(decode::<crate::store::tests::Pod>(r#"{"metadata": 5}"#).is_none());
        assert!(decode::<crate::store::tests::Pod>(r#"{"metadata": {"name": "a"}, "extra": [1]}"#).is_some());
    }
}
