//! Answers on their way out. In: a code and a body. Out: an HTTP response.

use crate::status::ApiError;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;
use std::convert::Infallible;

/// Body of every response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub struct Reply {
    /// HTTP status.
    pub code: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// What is sent.
    pub content: Content,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
}

/// What is sent.
pub enum Content {
    /// All of it at once.
    Whole(Bytes),
    /// Piece by piece, until the client has had enough.
    Stream(BoxStream<'static, Bytes>),
}

impl Reply {
    /// A JSON value.
    pub fn json(code: u16, value: Value) -> Reply {
        Reply::text(code, value.to_string())
    }

    /// JSON text.
    pub fn text(code: u16, text: String) -> Reply {
        Reply {
            code,
            content_type: "application/json",
            content: Content::Whole(text.into()),
            warnings: Vec::new(),
            retry_after: None,
        }
    }

    /// Plain text.
    pub fn plain(code: u16, text: impl Into<String>) -> Reply {
        Reply { content_type: "text/plain; charset=utf-8", ..Reply::text(code, text.into()) }
    }

    /// A stream of JSON lines.
    pub fn stream(stream: BoxStream<'static, Bytes>) -> Reply {
        Reply {
            code: 200,
            content_type: "application/json",
            content: Content::Stream(stream),
            warnings: Vec::new(),
            retry_after: None,
        }
    }

    /// A refusal.
    pub fn error(error: &ApiError) -> Reply {
        if error.code == 404 && error.reason.is_empty() {
            return Reply::plain(404, error.message.clone());
        }
        let retry_after = error.details.get("retryAfterSeconds").and_then(Value::as_u64);
        Reply { retry_after, warnings: error.warnings.clone(), ..Reply::json(error.code, error.to_status()) }
    }

    /// With warnings for the client.
    pub fn warn(mut self, warnings: Vec<String>) -> Reply {
        self.warnings.extend(warnings);
        self
    }

    /// The HTTP response.
    pub fn into_response(self) -> http::Response<Body> {
        let mut builder = http::Response::builder()
            .status(self.code)
            .header("content-type", self.content_type)
            .header("cache-control", "no-cache, private");
        if let Some(seconds) = self.retry_after {
            builder = builder.header("retry-after", seconds);
        }
        let mut said = std::collections::BTreeSet::new();
        // Nothing is said twice.
        for warning in self.warnings.iter().filter(|warning| said.insert(warning.as_str())) {
            // Agent and code as Kubernetes sends them; quotes inside are escaped by the header's grammar.
            let text: String = warning.chars().filter(|c| !c.is_control()).collect();
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = http::HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
                builder = builder.header("warning", value);
            }
        }
        let body = match self.content {
            Content::Whole(bytes) => Full::new(bytes).boxed_unsync(),
            Content::Stream(stream) => StreamBody::new(stream.map(|b| Ok(Frame::data(b)))).boxed_unsync(),
        };
        builder.body(body).unwrap_or_else(|_| http::Response::new(Full::new(Bytes::new()).boxed_unsync()))
    }
}
