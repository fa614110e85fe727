//! Events, as `kubectl describe` shows them.
//!
//! In: what happened to which object. Out: core/v1 Events; the same thing again raises the count of the first.
//! Must stay true: recording never waits and never fails; when very much happens at once, events are left out, because
//! they are for people and nobody reads ten thousand.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Patch};
use crate::clock::{Clock, stamp};
use crate::object::{Key, Meta, Object, Resource};

/// The kind that events are written as; nothing reads them back.
const EVENTS: Resource = Resource { group: "", version: "v1", kind: "Event", plural: "events" };

/// Room for the burst of a workload of a few hundred pods.
const BURST: f64 = 1000.0;
const PER_SECOND: f64 = 50.0;
const REMEMBERED: usize = 2048;

#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Record>,
    component: &'static str,
}

struct Record {
    component: &'static str,
    host: String,
    warning: bool,
    reason: &'static str,
    message: String,
    involved: Value,
    namespace: String,
    name: String,
    uid: String,
}

impl Events {
    /// The recorder, and the task that writes what it records.
    pub fn start(api: Api, clock: Clock, cancel: CancellationToken) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(2048);
        (Events { sender, component: "muster-sim" }, write(api, clock, receiver, cancel))
    }

    /// The same recorder under the name of a component.
    pub fn named(&self, component: &'static str) -> Self {
        Events { sender: self.sender.clone(), component }
    }

    pub fn normal<T: Object>(&self, object: &T, reason: &'static str, message: impl Into<String>) {
        self.record::<T>(object.meta(), "", false, reason, message.into());
    }

    pub fn warning<T: Object>(&self, object: &T, reason: &'static str, message: impl Into<String>) {
        self.record::<T>(object.meta(), "", true, reason, message.into());
    }

    /// An event of the kubelet of `host`.
    pub fn on_host<T: Object>(
        &self,
        host: &str,
        object: &T,
        warning: bool,
        reason: &'static str,
        message: String,
    ) {
        self.record::<T>(object.meta(), host, warning, reason, message);
    }

    fn record<T: Object>(
        &self,
        meta: &Meta,
        host: &str,
        warning: bool,
        reason: &'static str,
        message: String,
    ) {
        let record = Record {
            component: self.component,
            host: host.to_owned(),
            warning,
            reason,
            message,
            involved: json!({
                "apiVersion": T::RESOURCE.api_version(),
                "kind": T::RESOURCE.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            }),
            namespace: if meta.namespace.is_empty() { "default".to_owned() } else { meta.namespace.clone() },
            name: meta.name.clone(),
            uid: meta.uid.clone(),
        };
        // A full channel means that more happens than people read.
        let _ = self.sender.try_send(record);
    }
}

async fn write(api: Api, clock: Clock, mut records: mpsc::Receiver<Record>, cancel: CancellationToken) {
    let mut known: HashMap<(String, &'static str, String), (Key, u32)> = HashMap::new();
    let mut tokens = BURST;
    let mut filled = tokio::time::Instant::now();
    let mut serial = 0_u64;
    while let Some(Some(record)) = cancel.run_until_cancelled(records.recv()).await {
        let passed: Duration = filled.elapsed();
        filled = tokio::time::Instant::now();
        tokens = (tokens + passed.as_secs_f64() * PER_SECOND).min(BURST);
        if tokens < 1.0 {
            continue;
        }
        tokens -= 1.0;
        let now = stamp(clock.now());
        let id = (record.uid.clone(), record.reason, record.message.clone());
        if let Some((key, count)) = known.get_mut(&id) {
            *count += 1;
            let path = EVENTS.path(&key.namespace, &key.name, "");
            let patch = json!({"count": *count, "lastTimestamp": now});
            if api.patch_path(&path, Patch::Merge, &patch).await.is_ok() {
                continue;
            }
            known.remove(&id);
        }
        serial += 1;
        let clock_part = clock.now().as_nanosecond().unsigned_abs();
        // Names have a limit that an object's own name may already reach.
        let stem: String = record.name.chars().take(200).collect();
        let name = format!("{}.{:x}{:x}", stem.trim_end_matches(['-', '.']), clock_part, serial);
        let mut source = json!({"component": record.component});
        if !record.host.is_empty() {
            source["host"] = json!(record.host);
        }
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": record.namespace},
            "involvedObject": record.involved,
            "type": if record.warning { "Warning" } else { "Normal" },
            "reason": record.reason,
            "message": record.message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": source,
            "reportingComponent": record.component,
            "reportingInstance": record.host,
        });
        if let Err(error) = api.create_path(&EVENTS.path(&record.namespace, "", ""), &event).await {
            tracing::debug!(%error, "an event was not written");
            continue;
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(id, (Key::new(record.namespace, name), 1));
    }
}
