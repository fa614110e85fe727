//! Watches. In: a kind, a filter and where to start. Out: a stream of event lines that ends with the timeout, the
//! kind, or the client.
//!
//! A watcher pulls: it keeps the revision up to which it has seen everything, sleeps until its table changes and reads the
//! history from there. So a slow client costs no memory; when it has fallen behind the history it gets a 410 and lists anew.

use crate::negotiate::Form;
use crate::query::Query;
use crate::read::{Filter, is_plain, parse_revision, splice};
use crate::registry::Served;
use crate::reply::Reply;
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::store::{Range, Revision, Stored};
use crate::table::{self, Include};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a quiet watch tells how far it has come, if the client asked for that.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long a watch lives when the client names no timeout; the real server picks 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Event lines are sent in pieces of about this size.
const CHUNK: usize = 64 << 10;

struct Feed {
    server: ApiServer,
    served: Arc<Served>,
    filter: Filter,
    form: Form,
    include: Include,
    bookmarks: bool,
    changed: tokio::sync::watch::Receiver<Revision>,
    seen: Revision,
    out: VecDeque<Bytes>,
    deadline: Instant,
    next_bookmark: Instant,
    header_sent: bool,
    ended: bool,
}

impl ApiServer {
    /// Answers a watch.
    pub(crate) async fn watch(
        &self,
        served: &Arc<Served>,
        filter: Filter,
        query: &Query,
        form: Form,
    ) -> Result<Reply, ApiError> {
        let initial = check(query)?;
        let store = self.store();
        let mut changed = store.subscribe(&served.table);
        changed.mark_unchanged();
        let now = Instant::now();
        let mut feed = Feed {
            server: self.clone(),
            served: served.clone(),
            filter,
            form,
            include: Include::parse(&query.include_object),
            bookmarks: query.bookmarks,
            changed,
            seen: 0,
            out: VecDeque::new(),
            deadline: now
                + query.timeout_seconds.filter(|s| *s > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            next_bookmark: now + BOOKMARK_PERIOD,
            header_sent: false,
            ended: false,
        };
        // No version, or 0: start with what is there, as added events. `sendInitialEvents` asks for that at any version.
        let from_state = matches!(query.resource_version.as_str(), "" | "0") || initial == Some(true);
        if !matches!(query.resource_version.as_str(), "" | "0") {
            feed.seen = parse_revision(&query.resource_version)?;
            if feed.seen > store.revision() && initial == Some(true) {
                return Err(ApiError::too_large_revision(feed.seen, store.revision()));
            }
        }
        if from_state && initial != Some(false) {
            let range = Range { namespace: feed.filter.namespace.as_deref(), ..Range::default() };
            let filter = feed.filter.clone();
            let page = store
                .list(&served.table, &range, &mut |o| filter.passes(o))
                .map_err(|e| ApiError::expired(e.to_string()))?;
            feed.seen = page.revision;
            let mut chunk = String::new();
            for object in &page.items {
                feed.event("ADDED", object, &mut chunk).await;
            }
            feed.flush(&mut chunk, true);
            if initial == Some(true) && query.bookmarks {
                feed.bookmark(true);
            }
        } else if from_state {
            feed.seen = store.revision();
        }
        let stream = futures::stream::unfold(feed, |mut feed| async move {
            let chunk = feed.next().await?;
            Some((chunk, feed))
        });
        Ok(Reply::stream(stream.boxed()))
    }
}

fn check(query: &Query) -> Result<Option<bool>, ApiError> {
    let forbid = |field: &str, why: &str| {
        let error = k8s_schema::FieldError::forbidden(field, why);
        Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]))
    };
    if query.send_initial_events.is_some() && query.resource_version_match != "NotOlderThan" {
        return forbid(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    if query.send_initial_events.is_none() && !query.resource_version_match.is_empty() {
        return forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    Ok(query.send_initial_events)
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.out.pop_front() {
                return Some(chunk);
            }
            if self.ended {
                return None;
            }
            self.pull().await;
            if !self.out.is_empty() || self.ended {
                continue;
            }
            let bookmark = self.next_bookmark;
            tokio::select! {
                biased;
                changed = self.changed.changed() => {
                    // The sender goes away with the kind. What happened last is still told.
                    if changed.is_err() {
                        self.pull().await;
                        self.ended = true;
                    }
                }
                () = tokio::time::sleep_until(bookmark), if self.bookmarks => self.bookmark(false),
                () = tokio::time::sleep_until(self.deadline) => self.ended = true,
            }
        }
    }

    /// Reads what has happened since and queues its events.
    async fn pull(&mut self) {
        let (changes, upto) = match self.server.store().changes(&self.served.table, self.seen) {
            Ok(found) => found,
            Err(gone) => {
                let error =
                    ApiError::expired(format!("too old resource version: {} ({})", self.seen, gone.oldest));
                self.line("ERROR", &error.to_status().to_string());
                self.ended = true;
                return;
            }
        };
        let mut chunk = String::new();
        for change in &changes {
            let was = change.previous.as_ref().is_some_and(|p| self.filter.passes(p));
            let is = !change.deleted && self.filter.passes(&change.object);
            match (was, is) {
                (false, true) => self.event("ADDED", &change.object, &mut chunk).await,
                (true, true) => self.event("MODIFIED", &change.object, &mut chunk).await,
                (true, false) if change.deleted => self.event("DELETED", &change.object, &mut chunk).await,
                (true, false) => {
                    // It no longer matches: gone for this watcher, shown as it last was but at the new version.
                    if let Some(left) = change.previous.as_ref().and_then(|p| restamped(p, change.revision)) {
                        self.event("DELETED", &left, &mut chunk).await;
                    }
                }
                (false, false) => {}
            }
        }
        self.seen = self.seen.max(upto);
        self.flush(&mut chunk, true);
    }

    async fn event(&mut self, kind: &str, object: &Stored, chunk: &mut String) {
        if is_plain(&self.served, self.form, object) {
            chunk.push_str("{\"type\":\"");
            chunk.push_str(kind);
            chunk.push_str("\",\"object\":");
            splice(&self.served, object, self.form, chunk);
            chunk.push_str("}\n");
        } else {
            let value = match self.server.read(object, &self.served).await {
                Ok(value) => self.dress(value),
                Err(error) => {
                    self.flush(chunk, true);
                    self.line("ERROR", &error.to_status().to_string());
                    self.ended = true;
                    return;
                }
            };
            chunk.push_str(&json!({"type": kind, "object": value}).to_string());
            chunk.push('\n');
        }
        self.flush(chunk, false);
    }

    fn dress(&mut self, object: Value) -> Value {
        match self.form {
            Form::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let header = !std::mem::replace(&mut self.header_sent, true);
                let now = self.server.clock().now();
                table::table(&self.served, &[object], self.include, now, metadata, header)
            }
            Form::Metadata => table::partial(&object),
            Form::Object | Form::Lean | Form::Discovery(_) => object,
        }
    }

    fn bookmark(&mut self, initial_end: bool) {
        self.next_bookmark = Instant::now() + BOOKMARK_PERIOD;
        let mut metadata = json!({"resourceVersion": self.seen.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": [], "rows": [],
            }),
            Form::Object | Form::Lean | Form::Discovery(_) => {
                json!({"kind": self.served.kind, "apiVersion": self.served.api_version(), "metadata": metadata})
            }
        };
        self.line("BOOKMARK", &object.to_string());
    }

    fn line(&mut self, kind: &str, object: &str) {
        self.out.push_back(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into());
    }

    fn flush(&mut self, chunk: &mut String, all: bool) {
        if chunk.len() >= CHUNK || (all && !chunk.is_empty()) {
            self.out.push_back(std::mem::take(chunk).into());
        }
    }
}

fn restamped(object: &Stored, revision: Revision) -> Option<Stored> {
    let mut value: Value = serde_json::from_str(&object.text).ok()?;
    value["metadata"]["resourceVersion"] = revision.to_string().into();
    // It is still stored in the version of its own revision.
    Some(Stored { text: value.to_string().into(), ..object.clone() })
}
