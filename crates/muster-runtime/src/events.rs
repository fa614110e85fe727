//! Events, as `kubectl describe` shows them.
//!
//! In: what happened to which object. Out: core/v1 Events; the same thing again raises the count of the first, and many
//! alike about one object become one "(combined from similar events)", as with Kubernetes' own recorder.
//! Must stay true: recording never waits and never fails; when very much happens at once, events are left out (the
//! chatty ones first), because they are for people and nobody reads ten thousand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
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
/// So many events of one reason about one object are written with their own messages; the rest share one.
const MOST_ALIKE: u32 = 10;
const COMBINED: &str = "(combined from similar events): ";
/// What every start of every container brings.
const CHATTER: [&str; 4] = ["Pulled", "Created", "Started", "Killing"];

#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Record>,
    room: Arc<Mutex<Room>>,
    program: &'static str,
    component: &'static str,
}

struct Record {
    program: &'static str,
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
        let room = Arc::new(Mutex::new(Room::new(Instant::now())));
        let events = Events { sender, room: room.clone(), program: "muster", component: "muster" };
        (events, write(api, clock, receiver, room, cancel))
    }

    /// The same recorder under the name of a component of a program.
    pub fn named(&self, program: &'static str, component: &'static str) -> Self {
        Events { program, component, ..self.clone() }
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
        // Asked before anything is made of it: on a busy cluster nearly all are left out.
        if !open(&self.room).has_room(warning, reason, Instant::now()) {
            return;
        }
        let record = Record {
            program: self.program,
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

/// How many events may be written now.
struct Room {
    tokens: f64,
    filled: Instant,
}

impl Room {
    fn new(now: Instant) -> Self {
        Room { tokens: BURST, filled: now }
    }

    /// Whether there is room for one more event now; if so, it is taken.
    fn has_room(&mut self, warning: bool, reason: &str, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled);
        self.filled = now;
        self.tokens = (self.tokens + passed.as_secs_f64() * PER_SECOND).min(BURST);
        // What says little must leave room for what says more.
        let least = if warning {
            1.0
        } else if CHATTER.contains(&reason) {
            BURST / 2.0
        } else {
            BURST / 4.0
        };
        let room = self.tokens >= least;
        if room {
            self.tokens -= 1.0;
        }
        room
    }

    fn give_back(&mut self) {
        self.tokens += 1.0;
    }
}

fn open(room: &Mutex<Room>) -> std::sync::MutexGuard<'_, Room> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decides what becomes of each record.
#[derive(Default)]
struct Desk {
    /// Events that were written, by object, reason and message.
    known: HashMap<(String, &'static str, String), (Key, u32)>,
    /// How many different messages an object has had for a reason.
    alike: HashMap<(String, &'static str), u32>,
}

impl Desk {
    /// The message to write: the record's own, or that of the many alike.
    fn message(&mut self, record: &Record) -> String {
        let own = (record.uid.clone(), record.reason, record.message.clone());
        if self.known.contains_key(&own) {
            return own.2;
        }
        if self.alike.len() >= REMEMBERED {
            self.alike.clear();
        }
        let n = self.alike.entry((own.0, own.1)).or_insert(0);
        *n = n.saturating_add(1);
        if *n > MOST_ALIKE { COMBINED.to_owned() + &record.message } else { own.2 }
    }

    /// Under what an event is remembered: all that are combined share one.
    fn id(record: &Record, message: &str) -> (String, &'static str, String) {
        let shown = if message.starts_with(COMBINED) { COMBINED } else { message };
        (record.uid.clone(), record.reason, shown.to_owned())
    }
}

async fn write(
    api: Api,
    clock: Clock,
    mut records: mpsc::Receiver<Record>,
    room: Arc<Mutex<Room>>,
    cancel: CancellationToken,
) {
    let mut desk = Desk::default();
    let mut serial = 0_u64;
    while let Some(Some(record)) = cancel.run_until_cancelled(records.recv()).await {
        let api = api.named(record.program);
        let now = stamp(clock.now());
        let message = desk.message(&record);
        let id = Desk::id(&record, &message);
        if let Some((key, count)) = desk.known.get_mut(&id) {
            *count += 1;
            // Of very many alike, only the order of magnitude is kept up to date.
            if id.2 == COMBINED && !count.is_power_of_two() {
                open(&room).give_back();
                continue;
            }
            let path = EVENTS.path(&key.namespace, &key.name, "");
            let patch = json!({"count": *count, "lastTimestamp": now, "message": message});
            if api.patch_path(&path, Patch::Merge, &patch).await.is_ok() {
                continue;
            }
            desk.known.remove(&id);
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
            "message": message,
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
        if desk.known.len() >= REMEMBERED {
            desk.known.clear();
        }
        desk.known.insert(id, (Key::new(record.namespace, name), 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str, reason: &'static str, message: &str) -> Record {
        Record {
            program: "x",
            component: "x",
            host: String::new(),
            warning: false,
            reason,
            message: message.into(),
            involved: Value::Null,
            namespace: String::new(),
            name: String::new(),
            uid: uid.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_alike_are_combined() {
        let mut desk = Desk::default();
        let mut ids = std::collections::BTreeSet::new();
        for i in 0..50 {
            let record = record("rs", "SuccessfulCreate", &format!("Created pod: {i}"));
            let message = desk.message(&record);
            assert_eq!(message.starts_with(COMBINED), i >= 10, "{message}");
            ids.insert(Desk::id(&record, &message));
        }
        assert_eq!(ids.len(), 11);
        assert_eq!(desk.message(&record("other", "SuccessfulCreate", "Created pod: 1")), "Created pod: 1");
    }

    #[tokio::test(start_paused = true)]
    async fn what_says_more_has_room_longer() {
        let mut room = Room::new(Instant::now());
        let mut count = |reason, warning| {
            (0..5000).take_while(|_| room.has_room(warning, reason, Instant::now())).count()
        };
        let written = [count("Pulled", false), count("Scheduled", false), count("FailedScheduling", true)];
        assert_eq!(written, [501, 250, 249]);
    }
}
