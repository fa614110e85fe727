//! What stands before a request from outside this process, where something was asked to: who it is from, whether they may, whether it is
//! their turn, and the audit log. In: a request that carries a [`Peer`]. Out: its answer, or a refusal.
//!
//! Order: identity, access, body, turn, answer. A refusal is made before anything is read of the body or the store. Requests of this
//! process itself never come here.

use crate::access::{Attributes, Caller, Peer, User};
use crate::audit::{Entry, Stage};
use crate::reply::{Body, Content, Reply};
use crate::server::ApiServer;
use crate::status::ApiError;
use bytes::Bytes;
use futures::StreamExt;
use http::request::Parts;
use std::sync::Arc;

impl ApiServer {
    /// Whether requests from outside are looked at in any way.
    pub(crate) fn is_guarded(&self) -> bool {
        self.inner.access.is_some() || self.inner.options.audit.is_some()
    }

    /// Whether RBAC decides about requests from outside.
    pub(crate) fn enforces_access(&self) -> bool {
        self.inner.access.is_some()
    }

    /// Refuses a request that its sender may not make.
    pub(crate) fn check_access(&self, head: &Parts) -> Result<(), ApiError> {
        let Some(access) = &self.inner.access else { return Ok(()) };
        let caller = self.identify(access, head)?;
        let asked = Attributes::of(&head.method, &head.uri);
        let decision = self.decide(access, &caller.user, &asked);
        if decision.allowed { Ok(()) } else { Err(asked.refusal(&caller.user.name, &decision.reason)) }
    }

    /// Answers a request from outside.
    pub(crate) async fn answer_guarded<B>(&self, mut head: Parts, body: B) -> http::Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let asked = Attributes::of(&head.method, &head.uri);
        let identified = match &self.inner.access {
            Some(access) => self.identify(access, &head),
            None => {
                let admin = Arc::new(User::master(&self.inner.options.user));
                Ok(Caller { shown: admin.clone(), user: admin })
            }
        };
        let address = head.extensions.get::<Peer>().and_then(|p| p.address);
        let log = self.inner.options.audit.as_ref();
        let mut entry = log.and_then(|log| {
            Entry::begin(log, self.clock(), &head, &asked, identified.as_ref().ok(), address)
        });
        if let Some(entry) = &mut entry {
            entry.tell(Stage::RequestReceived);
            head.extensions.insert(entry.notes.clone());
        }
        let reply = match identified {
            Err(error) => Err(error),
            Ok(caller) => self.answer_known(&mut head, body, &asked, &caller, entry.as_mut()).await,
        };
        let reply = reply.unwrap_or_else(|error| Reply::error(&error));
        let id = entry.as_ref().and_then(|e| http::HeaderValue::from_str(e.id()).ok());
        let mut response = match entry {
            Some(entry) => audited(reply, entry).into_response(),
            None => reply.into_response(),
        };
        if let Some(id) = id {
            response.headers_mut().insert("audit-id", id);
        }
        response
    }

    async fn answer_known<B>(
        &self,
        head: &mut Parts,
        body: B,
        asked: &Attributes,
        caller: &Caller,
        mut entry: Option<&mut Entry>,
    ) -> Result<Reply, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Some(access) = &self.inner.access {
            let decision = self.decide(access, &caller.user, asked);
            if let Some(entry) = &mut entry {
                entry.decided(decision.allowed, &decision.reason);
            }
            if !decision.allowed {
                return Err(asked.refusal(&caller.user.name, &decision.reason));
            }
            head.extensions.insert(caller.user.clone());
        }
        let body = crate::service::read_body(body).await?;
        if let Some(entry) = &mut entry {
            entry.request(&body);
        }
        // The administrator waits for nobody.
        let fair = self.inner.fair.as_ref().filter(|_| !caller.shown.is_master());
        let Some(fair) = fair else { return self.answer_settled(head, &body).await };
        let flow = caller.user.name.as_str();
        let long = match asked.is_long_running().then(|| fair.begin_long(flow)) {
            Some(Err(_)) => return Ok(too_many()),
            Some(Ok(long)) => Some(long),
            None => None,
        };
        let Ok(seat) = fair.enter(flow).await else { return Ok(too_many()) };
        let mut reply = self.answer_settled(head, &body).await?;
        drop(seat);
        if let (Some(long), Content::Stream(stream)) = (long, &mut reply.content) {
            let inner = std::mem::replace(stream, futures::stream::empty().boxed());
            *stream = inner
                .inspect(move |_| {
                    let _ = &long;
                })
                .boxed();
        }
        Ok(reply)
    }
}

/// In the words of the real server, which has no Status for this.
fn too_many() -> Reply {
    Reply { retry_after: Some(1), ..Reply::plain(429, "Too many requests, please try again later.\n") }
}

/// Tells the log of the answer: at once, or when its stream has ended.
fn audited(mut reply: Reply, mut entry: Entry) -> Reply {
    match &mut reply.content {
        Content::Whole(bytes) => {
            entry.response(reply.code, Some(bytes));
            entry.tell(Stage::ResponseComplete);
        }
        Content::Stream(stream) => {
            entry.response(reply.code, None);
            entry.tell(Stage::ResponseStarted);
            let end = AtEnd(entry);
            let inner = std::mem::replace(stream, futures::stream::empty().boxed());
            *stream = inner
                .inspect(move |_| {
                    let _ = &end;
                })
                .boxed();
        }
    }
    reply
}

/// Tells the log when it is dropped, which is when the stream that holds it ends.
struct AtEnd(Entry);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.tell(Stage::ResponseComplete);
    }
}
