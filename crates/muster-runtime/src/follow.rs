//! A collection followed from outside a [`crate::Store`]: every object as it comes, for those who keep their own books.
//!
//! In: where the collection is. Out: each object as the text that the server sent, then what changes, in the server's
//! order; after a gap, what the new list no longer has is reported as gone. Must stay true: what was handed out and not
//! reported as gone is there, as far as the server said; nothing is handed out twice in a row unchanged after a gap.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError, WatchLine};
use crate::object::Key;
use crate::store::Pause;

/// Where a collection lives; unlike [`crate::object::Resource`] it may be known at run time only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    /// `/api/v1/pods`, `/apis/batch/v1/namespaces/a/jobs`.
    pub path: String,
    /// Added to every list and watch: `fieldSelector=...`, already escaped; may be empty.
    pub query: String,
}

impl Collection {
    pub fn new(path: impl Into<String>) -> Self {
        Collection { path: path.into(), query: String::new() }
    }

    /// Its URL, with the query begun.
    fn url(&self) -> String {
        format!("{}?{}", self.path, self.query)
    }
}

/// What a follower sees.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// An object is new or has changed: the JSON that the server sent. Items of lists lack `kind` and `apiVersion`.
    Put { key: &'a Key, text: &'a str },
    /// It is gone.
    Gone { key: &'a Key, uid: &'a str },
    /// A list is in: what came so far is everything that was there at its moment.
    Synced,
    /// The collection is not served at all (its CRD is not installed), or we may not know. Asked again after a while, and said again only after a list was in.
    Absent,
}

/// What tells an object from others, and its version.
#[derive(Default)]
struct Head {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

impl Head {
    /// Reads the head of an object, and nothing behind it: whoever the object is for reads the rest. `None` if there is no metadata to be read.
    fn of(text: &str) -> Option<Head> {
        let (mut head, mut has_metadata) = (Head::default(), false);
        let mut from = serde_json::Deserializer::from_str(text);
        // To the parser it is an error to have stopped half way, so what was found tells more than its answer.
        let _ = TopSeed(&mut head, &mut has_metadata).deserialize(&mut from);
        (has_metadata || head.is_whole()).then_some(head)
    }

    fn is_whole(&self) -> bool {
        ![&self.name, &self.namespace, &self.uid, &self.resource_version].into_iter().any(String::is_empty)
    }
}

/// The members of an object, up to its metadata; and whether that was read to its end.
struct TopSeed<'a>(&'a mut Head, &'a mut bool);

/// The members of metadata, until the head is whole.
struct MetaSeed<'a>(&'a mut Head);

impl<'de> DeserializeSeed<'de> for TopSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if name == "metadata" {
                map.next_value_seed(MetaSeed(self.0))?;
                *self.1 = true;
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for MetaSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetaSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match &*name {
                "name" => self.0.name = map.next_value()?,
                "namespace" => self.0.namespace = map.next_value()?,
                "uid" => self.0.uid = map.next_value()?,
                "resourceVersion" => self.0.resource_version = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            }
            if self.0.is_whole() {
                break;
            }
        }
        Ok(())
    }
}

/// What was handed out.
#[derive(Default)]
struct Known {
    /// That the collection is not served was the last that was said about it.
    is_absent: bool,
    objects: HashMap<Key, (String, String)>,
}

/// How long after a collection was found absent, or was refused, it is asked for again; twice as long each time, for most of what is absent stays so, and
/// a cluster at rest should not be asked for it all day.
const ABSENT: Duration = Duration::from_secs(10);
/// Not longer, though: so long a kind that was just installed may be unknown.
const LONG_ABSENT: Duration = Duration::from_secs(120);

/// A watch that says nothing for so long is asked for again, from where it was. Servers send a bookmark every minute or so.
const QUIET: Duration = Duration::from_secs(150);

/// Follows a collection until cancelled. Every `resync` it is listed anew. Whoever may not list it waits, and says so in the log.
pub async fn follow(
    api: Api,
    collection: Collection,
    resync: Duration,
    cancel: CancellationToken,
    sink: impl FnMut(Seen<'_>) + Send,
) {
    follow_until(api, collection, resync, cancel, sink, false).await;
}

/// The same for a collection that one can do without: if the server refuses to list it, that is said in the log, and the collection counts as absent. A server
/// asks for rights before it asks what exists, so that a kind that is not installed is refused too where nobody gave rights to it.
pub async fn follow_optional(
    api: Api,
    collection: Collection,
    resync: Duration,
    cancel: CancellationToken,
    sink: impl FnMut(Seen<'_>) + Send,
) {
    follow_until(api, collection, resync, cancel, sink, true).await;
}

async fn follow_until(
    api: Api,
    collection: Collection,
    resync: Duration,
    cancel: CancellationToken,
    mut sink: impl FnMut(Seen<'_>) + Send,
    is_optional: bool,
) {
    let mut known = Known::default();
    let mut pause = Pause::default();
    let (mut n_absent, mut longer) = (0_u32, ABSENT);
    loop {
        let attempt = list_and_watch(&api, &collection, resync, &mut known, &mut pause, &mut sink);
        let wait = match cancel.run_until_cancelled(attempt).await {
            None => return,
            Some(Ok(())) => {
                (n_absent, longer) = (0, ABSENT);
                continue;
            }
            Some(Err(error)) if error.not_found() => {
                n_absent = n_absent.saturating_add(1);
                // A server that has just begun may not know all its kinds yet; that everything is gone is believed when it says so twice.
                if known.objects.is_empty() || n_absent > 1 {
                    known.clear(&mut sink);
                    known.absent(&mut sink);
                    twice(&mut longer)
                } else {
                    ABSENT
                }
            }
            Some(Err(error)) => {
                let wait = pause.failed(&collection.path, &error);
                if is_optional && error.code() == 403 {
                    // What is known stays: it is not gone because we may no longer look at it.
                    if known.objects.is_empty() {
                        known.absent(&mut sink);
                    }
                    twice(&mut longer)
                } else {
                    wait
                }
            }
        };
        if cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

/// A wait, and the next one twice as long.
fn twice(wait: &mut Duration) -> Duration {
    std::mem::replace(wait, (*wait * 2).min(LONG_ABSENT))
}

async fn list_and_watch(
    api: &Api,
    collection: &Collection,
    resync: Duration,
    known: &mut Known,
    pause: &mut Pause,
    sink: &mut (impl FnMut(Seen<'_>) + Send),
) -> Result<(), ApiError> {
    let mut listed: HashSet<Key> = HashSet::new();
    let mut next: Option<String> = None;
    let mut version;
    loop {
        let page = api.list_raw(&collection.url(), next.as_deref()).await?;
        for item in &page.items {
            if let Some(key) = known.put(item.get(), sink) {
                listed.insert(key);
            }
        }
        version = page.resource_version;
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    let lost: Vec<Key> = known.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
    for key in lost {
        known.gone(&key, sink);
    }
    drop(listed);
    known.is_absent = false;
    sink(Seen::Synced);
    pause.listed();

    watch_on(api, &collection.url(), version, resync, pause, |line| known.take(line, sink)).await;
    Ok(())
}

/// The watches that follow a list of `version`, until it is time to list again: after `resync`, when the server says so, or when `take`
/// has no version to go on from, which is counted under the collection's name. `take` is given each line.
pub(crate) async fn watch_on(
    api: &Api,
    url: &str,
    mut version: String,
    resync: Duration,
    pause: &mut Pause,
    mut take: impl FnMut(&str) -> Option<String>,
) {
    let path = url.split('?').next().unwrap_or_default();
    let broke_off = || {
        let Some(metrics) = api.metrics() else { return };
        metrics.process.watch_restarts.of([path.rsplit('/').next().unwrap_or_default()]).inc();
    };
    let list_again = Instant::now() + spread(resync, (api.manager, url));
    while Instant::now() < list_again {
        let mut lines = match api.watch_raw(url, &version, list_again - Instant::now()).await {
            Ok(lines) => lines,
            Err(error) if error.gone() || error.not_found() => {
                broke_off();
                return tokio::time::sleep(pause.next()).await;
            }
            Err(error) => {
                tokio::time::sleep(pause.failed(path, &error)).await;
                continue;
            }
        };
        let mut n_lines = 0_u32;
        loop {
            // A connection that died without a word looks like one on which nothing happens, but for the bookmarks.
            let patience = list_again.min(Instant::now() + QUIET);
            let Ok(Ok(Some(line))) = tokio::time::timeout_at(patience, lines.next()).await else { break };
            if line.trim_end().is_empty() {
                continue;
            }
            match take(line) {
                Some(seen) => version = seen,
                None => {
                    broke_off();
                    // Where no watch gets anywhere, lists must not follow each other without end.
                    if n_lines == 0 {
                        tokio::time::sleep(pause.next()).await;
                    }
                    return;
                }
            }
            n_lines += 1;
            pause.reset();
        }
        if n_lines == 0 {
            tokio::time::sleep(pause.next()).await;
        }
    }
}

/// Between three quarters of a time and all of it, by whose time it is: so that not everybody lists everything at once.
fn spread(time: Duration, of: impl Hash) -> Duration {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 256).unwrap_or(0);
    time - time / 1024 * part
}

impl Known {
    /// Takes one watch line. Out: the version to go on from, or `None` when the list must be read again.
    fn take(&mut self, line: &str, sink: &mut impl FnMut(Seen<'_>)) -> Option<String> {
        let line = WatchLine::read(line).ok()?;
        let head = Head::of(line.object)?;
        let version = head.resource_version.clone();
        match line.kind {
            "ADDED" | "MODIFIED" => {
                self.enter(head, line.object, sink);
            }
            "DELETED" => {
                let key = Key::new(head.namespace, head.name);
                self.gone(&key, sink);
            }
            "BOOKMARK" => {}
            // An error: most often 410, the version is too old to go on from.
            _ => return None,
        }
        (!version.is_empty()).then_some(version)
    }

    fn put(&mut self, text: &str, sink: &mut impl FnMut(Seen<'_>)) -> Option<Key> {
        let head = Head::of(text)?;
        Some(self.enter(head, text, sink))
    }

    fn enter(&mut self, head: Head, text: &str, sink: &mut impl FnMut(Seen<'_>)) -> Key {
        let Head { name, namespace, uid, resource_version } = head;
        let key = Key::new(namespace, name);
        if let Some((old_uid, old_version)) = self.objects.get(&key) {
            if *old_uid == uid && *old_version == resource_version {
                return key;
            }
            // Another object under the same name: the first is gone, whether or not anybody said so.
            if *old_uid != uid {
                sink(Seen::Gone { key: &key, uid: old_uid });
            }
        }
        sink(Seen::Put { key: &key, text });
        self.objects.insert(key.clone(), (uid, resource_version));
        key
    }

    fn gone(&mut self, key: &Key, sink: &mut impl FnMut(Seen<'_>)) {
        if let Some((uid, _)) = self.objects.remove(key) {
            sink(Seen::Gone { key, uid: &uid });
        }
    }

    fn absent(&mut self, sink: &mut impl FnMut(Seen<'_>)) {
        if !std::mem::replace(&mut self.is_absent, true) {
            sink(Seen::Absent);
        }
    }

    fn clear(&mut self, sink: &mut impl FnMut(Seen<'_>)) {
        for (key, (uid, _)) in std::mem::take(&mut self.objects) {
            sink(Seen::Gone { key: &key, uid: &uid });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, uid: &str, version: u64) -> String {
        format!(
            r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        )
    }

    fn line(kind: &str, object: &str) -> String {
        format!(r#"{{"type":"{kind}","object":{object}}}"#)
    }

    #[track_caller]
    fn check(known: &mut Known, line: &str, version: Option<&str>, expected: &[&str]) {
        let mut seen = Vec::new();
        let got = known.take(line, &mut |s: Seen<'_>| {
            seen.push(match s {
                Seen::Put { key, .. } => format!("put {key}"),
                Seen::Gone { key, uid } => format!("gone {key} {uid}"),
                Seen::Synced | Seen::Absent => "other".to_owned(),
            });
        });
        assert_eq!(got.as_deref(), version);
        assert_eq!(seen, expected);
    }

    #[test]
    fn says_what_changed() {
        let known = &mut Known::default();
        check(known, &line("ADDED", &object("a", "1", 3)), Some("3"), &["put ns/a"]);
        check(known, &line("ADDED", &object("a", "1", 3)), Some("3"), &[]);
        check(known, &line("BOOKMARK", &object("", "", 7)), Some("7"), &[]);
        check(known, &line("MODIFIED", &object("a", "1", 8)), Some("8"), &["put ns/a"]);
        check(known, &line("ADDED", &object("a", "2", 9)), Some("9"), &["gone ns/a 1", "put ns/a"]);
        check(known, &line("DELETED", &object("a", "2", 10)), Some("10"), &["gone ns/a 2"]);
        check(known, &line("DELETED", &object("a", "2", 10)), Some("10"), &[]);
        check(known, &line("ERROR", r#"{"code":410,"metadata":{}}"#), None, &[]);
        check(known, "{nonsense", None, &[]);
    }

    #[test]
    fn heads_are_read_and_nothing_behind_them() {
        let check = |text: &str, expected: Option<[&str; 4]>| {
            let got = Head::of(text).map(|h| [h.namespace, h.name, h.uid, h.resource_version]);
            assert_eq!(got, expected.map(|e| e.map(str::to_owned)), "{text}");
        };
        check(&object("a", "1", 3), Some(["ns", "a", "1", "3"]));
        // Whatever the order, and with other metadata before.
        check(
            r#"{"spec":{"metadata":{"name":"no"}},"metadata":{"labels":{"name":"no"},"uid":"1","resourceVersion":"3","name":"a","namespace":"n\u0073"}}"#,
            Some(["ns", "a", "1", "3"]),
        );
        check(
            r#"{"metadata":{"name":"node","uid":"1","resourceVersion":"3"},"spec":{}}"#,
            Some(["", "node", "1", "3"]),
        );
        check(r#"{"code":410,"metadata":{}}"#, Some(["", "", "", ""]));
        for nothing in [
            "{}",
            "[]",
            r#"{"metadata":7}"#,
            r#"{"metadata":{"name":7}}"#,
            r#"{"metadata":"#,
            r#"{"metadata":{"resourceVersion":"3","name":7}}"#,
        ] {
            check(nothing, None);
        }
    }
}
