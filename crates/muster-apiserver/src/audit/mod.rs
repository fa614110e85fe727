//! The audit log: who asked for what, and what came of it, as lines of JSON (`audit.k8s.io/v1` Event).
//!
//! `policy` says what of a request is told (pure); `log` writes lines without ever making a request wait. This file makes the events. In:
//! a request, its sender and its answer. Out: events.

mod log;
mod policy;

pub use log::{Log, OpenError};
pub use policy::{Level, Policy, PolicyError, Stage};

use crate::access::{Attributes, Caller};
use crate::clock::Clock;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Remarks about a request that its answer does not show, such as what a policy would have refused.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<(String, String)>>>);

impl Notes {
    pub fn add(&self, key: &str, value: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((key.into(), value));
    }
}

/// One request on its way into the log.
pub(crate) struct Entry {
    log: Arc<Log>,
    clock: Clock,
    level: Level,
    omit: Vec<Stage>,
    omit_managed: bool,
    event: Map<String, Value>,
    pub notes: Notes,
}

fn time(clock: Clock) -> Value {
    clock.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into()
}

impl Entry {
    /// Begins an event; `None` if the policy does not want it.
    pub fn begin(
        log: &Arc<Log>,
        clock: Clock,
        head: &http::request::Parts,
        asked: &Attributes,
        caller: Option<&Caller>,
        address: Option<std::net::IpAddr>,
    ) -> Option<Entry> {
        let decided = log.policy.decide(asked, caller.map(|c| &*c.shown));
        if decided.level == Level::None {
            return None;
        }
        let mut event = Map::new();
        let received = time(clock);
        for (key, value) in
            [("kind", "Event"), ("apiVersion", "audit.k8s.io/v1"), ("level", decided.level.name())]
        {
            event.insert(key.into(), value.into());
        }
        event.insert("auditID".into(), uuid::Uuid::new_v4().to_string().into());
        event.insert("stage".into(), Value::Null);
        event.insert("requestURI".into(), head.uri.path_and_query().map_or("/", |p| p.as_str()).into());
        event.insert("verb".into(), asked.verb.as_str().into());
        event.insert("user".into(), caller.map_or_else(|| json!({}), |c| c.shown.to_info()));
        if let Some(caller) = caller.filter(|c| !Arc::ptr_eq(&c.shown, &c.user)) {
            event.insert("impersonatedUser".into(), caller.user.to_info());
        }
        event.insert("sourceIPs".into(), address.iter().map(ToString::to_string).collect());
        if let Some(agent) = head.headers.get("user-agent").and_then(|v| v.to_str().ok()) {
            event.insert("userAgent".into(), agent.chars().take(1024).collect::<String>().into());
        }
        if asked.is_resource() {
            let mut object = Map::new();
            for (key, value) in [
                ("resource", &asked.resource),
                ("namespace", &asked.namespace),
                ("name", &asked.name),
                ("apiGroup", &asked.group),
                ("apiVersion", &asked.version),
                ("subresource", &asked.subresource),
            ] {
                if !value.is_empty() {
                    object.insert(key.into(), value.as_str().into());
                }
            }
            event.insert("objectRef".into(), object.into());
        }
        event.insert("requestReceivedTimestamp".into(), received);
        Some(Entry {
            log: log.clone(),
            clock,
            level: decided.level,
            omit: decided.omit_stages,
            omit_managed: decided.omit_managed_fields,
            event,
            notes: Notes::default(),
        })
    }

    /// The name under which answers and other logs can speak of it.
    pub fn id(&self) -> &str {
        self.event["auditID"].as_str().unwrap_or_default()
    }

    /// What the answer to the question of access was.
    pub fn decided(&mut self, allowed: bool, reason: &str) {
        let decision = if allowed { "allow" } else { "forbid" };
        self.annotate("authorization.k8s.io/decision", decision);
        self.annotate("authorization.k8s.io/reason", reason);
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let slot = self.event.entry("annotations").or_insert_with(|| json!({}));
        slot[key] = value.into();
    }

    /// The body that came.
    pub fn request(&mut self, body: &[u8]) {
        let unnamed = self.event["verb"] == "create"
            && self.event.get("objectRef").is_some_and(|o| o.get("name").is_none());
        if self.level < Level::Request && !unnamed {
            return;
        }
        let Some(object) = self.object(body) else { return };
        if let (true, Some(name)) = (unnamed, object["metadata"]["name"].as_str()) {
            self.event["objectRef"]["name"] = name.into();
        }
        if self.level >= Level::Request {
            self.event.insert("requestObject".into(), object);
        }
    }

    /// The answer: its code, and its body where it is whole.
    pub fn response(&mut self, code: u16, body: Option<&[u8]>) {
        let mut status = json!({"metadata": {}});
        if let Some(error) = body.filter(|_| code >= 400).and_then(|b| self.object(b))
            && error["kind"] == "Status"
        {
            for field in ["status", "message", "reason", "details"] {
                if let Some(value) = error.get(field) {
                    status[field] = value.clone();
                }
            }
        }
        status["code"] = code.into();
        self.event.insert("responseStatus".into(), status);
        if self.level >= Level::RequestResponse
            && let Some(object) = body.and_then(|b| self.object(b))
        {
            self.event.insert("responseObject".into(), object);
        }
    }

    fn object(&self, body: &[u8]) -> Option<Value> {
        let mut object: Value = serde_json::from_slice(body).ok()?;
        if self.omit_managed
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("managedFields");
        }
        Some(object)
    }

    /// Tells the log how far the request is.
    pub fn tell(&mut self, stage: Stage) {
        if self.omit.contains(&stage) {
            return;
        }
        let notes = std::mem::take(&mut *self.notes.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (key, value) in notes {
            self.annotate(&key, &value);
        }
        self.event.insert("stage".into(), stage.name().into());
        self.event.insert("stageTimestamp".into(), time(self.clock));
        self.log.write(&self.event);
    }
}
