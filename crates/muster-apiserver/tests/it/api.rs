//! A server to send requests to, and waiting for what its background work brings about.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use muster_apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

pub struct Api(pub ApiServer);

impl Api {
    /// A server with its background work running.
    pub fn new() -> Api {
        Api::with(Options::default())
    }

    pub fn with(options: Options) -> Api {
        let server = ApiServer::new(options);
        let background = server.clone();
        tokio::spawn(async move { background.run().await });
        Api(server)
    }

    /// Sends `METHOD PATH` with a JSON body; null for none.
    pub async fn send(&self, line: &str, body: Value) -> (u16, Value) {
        let kind =
            if line.starts_with("PATCH") { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send_as(line, kind, &bytes).await
    }

    pub async fn send_as(&self, line: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
        let (method, path) = line.split_once(' ').expect("a line is METHOD PATH");
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("user-agent", "test/1")
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// As `send`, and the code must be a success.
    #[track_caller]
    pub fn ok<'a>(&'a self, line: &'a str, body: Value) -> impl Future<Output = Value> + 'a {
        let at = std::panic::Location::caller();
        async move {
            let (code, answer) = self.send(line, body).await;
            assert!((200..300).contains(&code), "{at}: {line}: {code} {answer}");
            answer
        }
    }

    /// A stream of watch events.
    pub async fn watch(&self, path: &str) -> Events {
        let request = http::Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        Events { body: response.into_body(), text: String::new() }
    }

    /// Waits until a path answers with a code.
    #[track_caller]
    pub fn until<'a>(&'a self, line: &'a str, wanted: u16) -> impl Future<Output = Value> + 'a {
        let at = std::panic::Location::caller();
        async move {
            for _ in 0..500 {
                let (code, answer) = self.send(line, Value::Null).await;
                if code == wanted {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            panic!("{at}: {line} never answered {wanted}");
        }
    }
}

pub struct Events {
    body: muster_apiserver::Body,
    text: String,
}

impl Events {
    /// The next event, as `TYPE name`; none when the stream has ended.
    pub async fn next(&mut self) -> Option<String> {
        let event = self.next_event().await?;
        Some(format!(
            "{} {}",
            event["type"].as_str().unwrap_or_default(),
            event["object"]["metadata"]["name"].as_str().unwrap_or_default()
        ))
    }

    pub async fn next_event(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.text = rest.to_string();
                return Some(event);
            }
            let frame = self.body.frame().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}
