//! A copy of one kind's objects, kept true by a watch.
//!
//! In: lists and watch lines of a server, and the answers to our own writes. Out: the objects, by key and by
//! controller; and one call to every observer for each change.
//! Must stay true: a store never goes back to an older version of an object, and never brings back one that is known
//! to be gone. Because our own writes enter the store at once, a controller that looks twice never creates twice.
//!
//! The list and watch loop is our own rather than kube-runtime's, because it decodes into slim kinds, and because
//! entering our own writes needs the version of each list.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError, Patch, Scope, WatchLine, decode};
use crate::follow::watch_on;
use crate::json::{merge_patch, same_but_zeros};
use crate::object::{Key, Meta, Object};
use crate::objects::Objects;

/// What happened to one object.
pub struct Change<'a, T> {
    pub old: Option<&'a Arc<T>>,
    pub new: Option<&'a Arc<T>>,
}

impl<'a, T> Change<'a, T> {
    /// The object as it is, or as it last was.
    pub fn latest(&self) -> Option<&'a Arc<T>> {
        self.new.or(self.old)
    }

    /// Both sides, for observers that must wake whoever owned it before and whoever owns it now.
    pub fn sides(&self) -> impl Iterator<Item = &'a Arc<T>> {
        self.old.into_iter().chain(self.new)
    }
}

type Observer<T> = Box<dyn Fn(&Change<'_, T>) + Send + Sync>;

/// So many own writes may be waited for; beyond that their echoes are read like any other. A watch that is behind by more than that is
/// behind by minutes.
const OWN: usize = 1 << 18;

/// The version of an object whose text begins with its kind and, first in its metadata, the version: the embedded server writes so.
fn first_version(text: &str) -> Option<&str> {
    let (head, rest) = text.split_once(r#""metadata":{"resourceVersion":""#)?;
    let plain = head.len() < 256 && head.strip_prefix('{').is_some_and(|inner| !inner.contains(['{', '[']));
    plain.then(|| rest.split_once('"').map(|(version, _)| version)).flatten()
}

/// How many deleted objects are remembered, so that an answer that comes late does not bring one back. An answer is
/// late by the length of one request, in which far fewer objects go.
const TOMBSTONES: usize = 8192;

pub struct Store<T> {
    api: Api,
    scope: Scope,
    state: RwLock<State<T>>,
    observers: RwLock<Vec<Observer<T>>>,
    synced: watch::Sender<bool>,
}

struct State<T> {
    objects: Objects<T>,
    gone: HashSet<Arc<str>>,
    gone_order: VecDeque<Arc<str>>,
    /// Versions of our own writes whose answers were entered, until the watch tells of them too.
    own: HashSet<u64>,
}

impl<T: Object> Store<T> {
    pub fn new(api: Api, scope: Scope) -> Arc<Self> {
        Arc::new(Store {
            api,
            scope,
            state: RwLock::new(State {
                objects: Objects::default(),
                gone: HashSet::new(),
                gone_order: VecDeque::new(),
                own: HashSet::new(),
            }),
            observers: RwLock::default(),
            synced: watch::Sender::new(false),
        })
    }

    /// Adds an observer. Observers are added before `run` starts; they only put keys into queues, so they are quick
    /// and may run in any order.
    pub fn observe(&self, observer: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        self.observers.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(observer));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.read(|state| state.objects.get(key).cloned())
    }

    /// All objects in the order of their keys, which costs sorting them.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read(|state| state.objects.sorted())
    }

    /// The keys of all objects, in order.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.read(|state| state.objects.iter().map(|object| object.key()).collect());
        keys.sort_unstable();
        keys
    }

    /// The objects of a namespace, in order of name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.read(|state| state.objects.in_namespace(namespace))
    }

    /// The objects that the owner with this uid controls, in order of name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<T>> {
        self.read(|state| state.objects.owned_by(uid).cloned().collect())
    }

    /// The objects of a namespace that nobody controls.
    pub fn orphans_in(&self, namespace: &str) -> Vec<Arc<T>> {
        self.read(|state| state.objects.orphans_in(namespace).cloned().collect())
    }

    pub fn is_empty(&self) -> bool {
        self.read(|state| state.objects.is_empty())
    }

    pub fn len(&self) -> usize {
        self.read(|state| state.objects.len())
    }

    /// Enters the answer to one of our own writes, unless the watch is already further.
    pub fn enter(&self, object: T) {
        self.take_in(object, true);
    }

    /// Enters an object if it is news; `own`: the watch has yet to tell of it.
    fn take_in(&self, object: T, own: bool) {
        let object = Arc::new(object);
        let old = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let Some(old) = state.enter(object.clone()) else { return };
            if own {
                if state.own.len() >= OWN {
                    state.own.clear();
                }
                state.own.insert(object.meta().version());
            }
            old
        };
        self.tell(old.as_ref(), Some(&object));
    }

    /// The version of a write whose answer was entered already, if that is what a watch tells of. Said only where it can be seen without
    /// reading the object, since reading it would come to the same.
    fn own_echo(&self, text: &str) -> Option<String> {
        let version = first_version(text)?;
        let number: u64 = version.parse().ok()?;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.own.remove(&number).then(|| version.to_owned())
    }

    /// Enters that an object is gone: the watch said so, or a delete found nothing.
    pub fn remove(&self, key: &Key, uid: &str) {
        let old = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.remove(key, uid)
        };
        if let Some(old) = old {
            self.tell(Some(&old), None);
        }
    }

    /// Enters that an object is not one of those that are kept; it may become one again.
    fn pass_over(&self, meta: &Meta) {
        let key = Key::new(meta.namespace.clone(), meta.name.clone());
        let old = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let newer = |old: &Arc<T>| old.meta().version() < meta.version();
            if state.objects.get(&key).is_some_and(newer) { state.objects.remove(&key) } else { None }
        };
        if let Some(old) = old {
            self.tell(Some(&old), None);
        }
    }

    /// Writes a status if it differs. The version makes sure that it is about the object that was looked at.
    pub async fn write_status(
        &self,
        api: &Api,
        object: &T,
        old: &Value,
        new: &Value,
    ) -> Result<(), ApiError> {
        if same_but_zeros(old, new) {
            return Ok(());
        }
        let Some(change) = merge_patch(old, new) else { return Ok(()) };
        self.send_status(api, object, json!({"status": change})).await
    }

    /// Sends a patch of the status subresource, for the version that was looked at. An object that is gone needs none.
    pub async fn send_status(&self, api: &Api, object: &T, mut patch: Value) -> Result<(), ApiError> {
        patch["metadata"]["resourceVersion"] = json!(object.meta().resource_version);
        match api.patch::<T>(&object.key(), "status", Patch::Merge, &patch).await {
            Ok(written) => {
                self.enter(written);
                Ok(())
            }
            Err(error) if error.not_found() => {
                // Either the object is gone or its kind has no status. One that is gone is forgotten now: a watch that is behind may
                // take minutes to say so, and whoever looks at the object again would go on working for it.
                let uid = &object.meta().uid;
                match api.get::<T>(&object.key()).await {
                    Ok(now) if now.meta().uid == *uid => {}
                    Ok(_) => self.remove(&object.key(), uid),
                    Err(error) if error.not_found() => self.remove(&object.key(), uid),
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the first list is in.
    pub async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Lists and watches until cancelled. Every `resync` the collection is listed again, so that even a watch that
    /// loses an event in silence is set right.
    pub async fn run(self: Arc<Self>, resync: Duration, cancel: CancellationToken) {
        let _forgets = Forgets(&self);
        let mut pause = Pause::default();
        loop {
            let attempt = cancel.run_until_cancelled(self.list_and_watch(resync, &mut pause));
            match attempt.await {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let wait = pause.failed(T::RESOURCE.plural, &error);
                    if cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// One list and the watches that follow it. Ends well when it is time to list again.
    async fn list_and_watch(&self, resync: Duration, pause: &mut Pause) -> Result<(), ApiError> {
        let mut items: Vec<Arc<T>> = Vec::new();
        let mut next: Option<String> = None;
        let mut version;
        loop {
            let page = self.api.list::<T>(&self.scope, next.as_deref()).await?;
            items.extend(page.items.into_iter().map(|item| self.known_as(item)));
            version = page.resource_version;
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        self.replace(items, version.parse().unwrap_or(0));
        self.synced.send_replace(true);
        pause.listed();

        let url = self.scope.url(&T::RESOURCE);
        watch_on(&self.api, &url, version, resync, pause, |line| self.take(line)).await;
        Ok(())
    }

    /// A listed object, as it is known already if it has not changed: two of each would be kept until the last page is read.
    fn known_as(&self, listed: T) -> Arc<T> {
        let is_same = |known: &Arc<T>| {
            let (known, listed) = (known.meta(), listed.meta());
            known.resource_version == listed.resource_version && known.uid == listed.uid
        };
        let known = self.get(&listed.key()).filter(is_same);
        known.unwrap_or_else(|| Arc::new(listed))
    }

    /// Takes one watch line. Out: the version to go on from, or `None` when the list must be read again.
    fn take(&self, line: &str) -> Option<String> {
        let line = match WatchLine::read(line) {
            Ok(line) => line,
            Err(error) => {
                tracing::debug!(kind = T::RESOURCE.kind, %error, "a watch line that cannot be read");
                return None;
            }
        };
        let version = || {
            serde_json::from_str::<OnlyMeta>(line.object)
                .ok()
                .map(|o| o.metadata.resource_version)
                .filter(|v| !v.is_empty())
        };
        match line.kind {
            "ADDED" | "MODIFIED" if !self.scope.may_have(line.object) => {
                // Where nothing is kept, nothing can have left.
                if let (true, Some(version)) = (self.is_empty(), first_version(line.object)) {
                    return Some(version.to_owned());
                }
                let object: OnlyMeta = serde_json::from_str(line.object).ok()?;
                self.pass_over(&object.metadata);
                Some(object.metadata.resource_version)
            }
            "ADDED" | "MODIFIED" => match self.own_echo(line.object) {
                Some(version) => Some(version),
                None => match decode::<T>(line.object) {
                    Some(object) => {
                        let version = object.meta().resource_version.clone();
                        self.take_in(object, false);
                        Some(version)
                    }
                    None => version(),
                },
            },
            "DELETED" => {
                let object: OnlyMeta = serde_json::from_str(line.object).ok()?;
                let meta = object.metadata;
                self.remove(&Key::new(meta.namespace, meta.name), &meta.uid);
                Some(meta.resource_version)
            }
            "BOOKMARK" => version(),
            // An error: most often 410, the version is too old to go on from.
            _ => None,
        }
    }

    /// Makes the store what a list of this version says, save what is newer than the list.
    fn replace(&self, items: Vec<Arc<T>>, version: u64) {
        let mut gone: Vec<Arc<T>> = Vec::new();
        let mut came: Vec<(Option<Arc<T>>, Arc<T>)> = Vec::new();
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let listed: HashSet<Key> = items.iter().map(|item| item.key()).collect();
            let mut lost: Vec<(Key, String)> = state
                .objects
                .iter()
                .filter(|object| object.meta().version() <= version)
                .map(|object| (object.key(), object.meta().uid.clone()))
                .filter(|(key, _)| !listed.contains(key))
                .collect();
            // Observers hear of them in the order of their names.
            lost.sort_unstable();
            for (key, uid) in lost {
                if let Some(old) = state.remove(&key, &uid) {
                    gone.push(old);
                }
            }
            for item in items {
                if let Some(old) = state.enter(item.clone()) {
                    came.push((old, item));
                }
            }
        }
        for old in &gone {
            self.tell(Some(old), None);
        }
        for (old, new) in &came {
            self.tell(old.as_ref(), Some(new));
        }
    }

    fn tell(&self, old: Option<&Arc<T>>, new: Option<&Arc<T>>) {
        let change = Change { old, new };
        for observer in self.observers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            observer(&change);
        }
    }

    fn read<R>(&self, look: impl FnOnce(&State<T>) -> R) -> R {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Observers hold whoever they tell, who hold the store: without this, a store would never be freed, and a service that loses its lease and
/// gets it back would keep all stores that it ever had.
struct Forgets<'a, T>(&'a Store<T>);

impl<T> Drop for Forgets<'_, T> {
    fn drop(&mut self) {
        self.0.observers.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl<T: Object> State<T> {
    /// Enters an object if it is news. Out: `Some` of what was there before, or `None` when nothing changed.
    fn enter(&mut self, object: Arc<T>) -> Option<Option<Arc<T>>> {
        let meta = object.meta();
        if self.gone.contains(&*meta.uid) {
            return None;
        }
        if let Some(old) = self.objects.get(&object.key()) {
            let same = old.meta().uid == meta.uid;
            // Versions grow over the whole collection, so this also holds between an object and its successor.
            if meta.version() <= old.meta().version() && (same || meta.version() != 0) {
                return None;
            }
        }
        Some(self.objects.insert(object))
    }

    fn remove(&mut self, key: &Key, uid: &str) -> Option<Arc<T>> {
        let grave: Arc<str> = uid.into();
        if !uid.is_empty() && self.gone.insert(grave.clone()) {
            self.gone_order.push_back(grave);
            if self.gone_order.len() > TOMBSTONES
                && let Some(oldest) = self.gone_order.pop_front()
            {
                self.gone.remove(&oldest);
            }
        }
        if self.objects.get(key)?.meta().uid != uid {
            return None;
        }
        self.objects.remove(key)
    }
}

#[derive(Deserialize)]
struct OnlyMeta {
    metadata: Meta,
}

/// Waits that double: 100 ms, 200 ms, ... 10 s; and what was said about why.
#[derive(Default)]
pub(crate) struct Pause {
    n_waits: u32,
    n_failures: u32,
    /// The answer about which people were told.
    said: Option<u16>,
}

/// So many failures in a row are no bad moment any more: half a minute has passed.
const LASTING: u32 = 9;

impl Pause {
    pub(crate) fn next(&mut self) -> Duration {
        let wait = Duration::from_millis(100) * 2_u32.pow(self.n_waits.min(7));
        self.n_waits = self.n_waits.saturating_add(1);
        wait.min(Duration::from_secs(10))
    }

    /// How long to wait after a request about a collection failed. What people may have to mend is said once: a refusal at once, the rest when it lasts.
    pub(crate) fn failed(&mut self, collection: &str, error: &ApiError) -> Duration {
        let wait = error.retry_after().unwrap_or_else(|| self.next());
        if self.is_news(error.code()) {
            let why = error.message();
            tracing::warn!(collection, %error, why, "cannot be listed and watched; trying again and again");
        } else {
            tracing::debug!(collection, %error, ?wait, "list and watch starts again");
        }
        wait
    }

    /// Counts a failure. Out: whether people should hear of it, and have not.
    fn is_news(&mut self, code: u16) -> bool {
        self.n_failures = self.n_failures.saturating_add(1);
        // A kind that is not served is no failure, however long that lasts.
        let passes = !(400..500).contains(&code) || matches!(code, 408..=410 | 429);
        let is_worth_it = code != 404 && (!passes || self.n_failures >= LASTING);
        is_worth_it && self.said.replace(code) != Some(code)
    }

    /// The list is in.
    pub(crate) fn listed(&mut self) {
        self.n_failures = 0;
        self.said = None;
    }

    pub(crate) fn reset(&mut self) {
        *self = Pause::default();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::object::OwnerRef;

    #[derive(Deserialize, Default)]
    pub(crate) struct Pod {
        metadata: Meta,
    }
    crate::kinds! {
        Pod = "" "v1" "Pod" "pods";
    }

    pub(crate) fn pod(name: &str, uid: &str, version: u64, owner: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = "ns".into();
        pod.metadata.name = name.into();
        pod.metadata.uid = uid.into();
        pod.metadata.resource_version = version.to_string();
        if !owner.is_empty() {
            pod.metadata.owner_references =
                vec![OwnerRef { uid: owner.into(), controller: true, ..OwnerRef::default() }];
        }
        pod
    }

    #[test]
    fn versions_that_are_seen_without_reading() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(first_version(text), expected, "{text}");
        check(r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"a"}}"#, Some("7"));
        check(r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}"#, None);
        // Not the object's own metadata.
        check(r#"{"template":{"metadata":{"resourceVersion":"7"}},"metadata":{"name":"a"}}"#, None);
        check("{}", None);
    }

    #[test]
    fn what_people_may_have_to_mend_is_said_once() {
        let check = |codes: &[u16], expected: &str| {
            let mut pause = Pause::default();
            let hear = |code: &u16| match code {
                0 => {
                    pause.listed();
                    '-'
                }
                code if pause.is_news(*code) => '!',
                _ => '.',
            };
            assert_eq!(codes.iter().map(hear).collect::<String>(), expected, "{codes:?}");
        };
        check(&[403, 403, 403], "!..");
        check(&[403, 401, 401, 0, 401], "!!.-!");
        check(&[500; 10], "........!.");
        check(&[410; 10], "........!.");
        check(&[500, 500, 500, 500, 0, 500, 500, 500, 500, 500], "....-.....");
        check(&[404; 20], "....................");
    }

    /// A store whose client never answers; these tests only enter and remove.
    fn store() -> Arc<Store<Pod>> {
        store_of(Scope::default())
    }

    fn store_of(scope: Scope) -> Arc<Store<Pod>> {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
                .await
        });
        Store::new(Api::new(kube::Client::new(service, "default"), "test"), scope)
    }

    fn show(store: &Store<Pod>) -> String {
        let all = store.all();
        let text: Vec<String> = all
            .iter()
            .map(|p| format!("{}:{}@{}", p.metadata.name, p.metadata.uid, p.metadata.resource_version))
            .collect();
        text.join(" ")
    }

    #[tokio::test]
    async fn never_goes_back() {
        let store = store();
        store.enter(pod("a", "1", 5, ""));
        store.enter(pod("a", "1", 4, ""));
        assert_eq!(show(&store), "a:1@5");
        store.remove(&Key::new("ns", "a"), "1");
        store.enter(pod("a", "1", 9, ""));
        assert_eq!(show(&store), "", "a late answer does not bring back what is gone");
        store.enter(pod("a", "2", 10, ""));
        store.remove(&Key::new("ns", "a"), "1");
        assert_eq!(show(&store), "a:2@10", "the successor is another object");
    }

    #[tokio::test]
    async fn a_list_keeps_what_is_newer() {
        let store = store();
        store.enter(pod("old", "1", 5, ""));
        store.enter(pod("mine", "2", 12, ""));
        store.replace(vec![Arc::new(pod("listed", "3", 7, ""))], 10);
        assert_eq!(show(&store), "listed:3@7 mine:2@12");
    }

    #[tokio::test]
    async fn what_a_list_says_again_is_not_kept_twice() {
        let store = store();
        store.enter(pod("a", "1", 5, ""));
        let known = store.get(&Key::new("ns", "a")).unwrap();
        assert!(Arc::ptr_eq(&store.known_as(pod("a", "1", 5, "")), &known));
        for other in [pod("a", "1", 6, ""), pod("a", "2", 5, ""), pod("b", "1", 5, "")] {
            assert!(!Arc::ptr_eq(&store.known_as(other), &known));
        }
    }

    #[tokio::test]
    async fn owners_and_orphans() {
        let store = store();
        let names = |pods: Vec<Arc<Pod>>| pods.iter().map(|p| p.metadata.name.clone()).collect::<Vec<_>>();
        store.enter(pod("a", "1", 1, "o"));
        store.enter(pod("b", "2", 2, ""));
        assert_eq!(names(store.owned_by("o")), ["a"]);
        assert_eq!(names(store.orphans_in("ns")), ["b"]);
        store.enter(pod("b", "2", 3, "o"));
        store.enter(pod("a", "1", 4, ""));
        assert_eq!(names(store.owned_by("o")), ["b"]);
        assert_eq!(names(store.orphans_in("ns")), ["a"]);
        assert!(store.orphans_in("other").is_empty());
    }

    #[tokio::test]
    async fn keeps_only_what_mentions_the_word() {
        let store = store_of(Scope { mentions: "word", ..Scope::default() });
        let line = |kind: &str, name: &str, label: &str, version: u64| {
            format!(
                r#"{{"type":"{kind}","object":{{"kind":"Pod","metadata":{{"resourceVersion":"{version}","namespace":"ns","name":"{name}","uid":"{name}","labels":{{"{label}":""}}}}}}}}"#
            )
        };
        assert_eq!(store.take(&line("ADDED", "a", "other", 3)).as_deref(), Some("3"));
        assert_eq!(show(&store), "");
        store.take(&line("ADDED", "b", "word/1", 4));
        store.take(&line("ADDED", "c", "word", 5));
        assert_eq!(show(&store), "b:b@4 c:c@5");
        assert_eq!(store.take(&line("MODIFIED", "b", "other", 6)).as_deref(), Some("6"));
        assert_eq!(show(&store), "c:c@5", "it has left");
        store.take(&line("MODIFIED", "b", "word", 7));
        assert_eq!(show(&store), "b:b@7 c:c@5", "and is back");
        store.take(&line("MODIFIED", "b", "other", 6));
        assert_eq!(show(&store), "b:b@7 c:c@5", "an old state does not count");
    }

    #[tokio::test]
    async fn takes_watch_lines() {
        let store = store();
        let line = |kind: &str, version: u64| {
            format!(
                r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"ns","name":"a","uid":"1","resourceVersion":"{version}"}}}}}}"#
            )
        };
        assert_eq!(store.take(&line("ADDED", 3)).as_deref(), Some("3"));
        assert_eq!(store.take(&line("BOOKMARK", 8)).as_deref(), Some("8"));
        assert_eq!(store.take(&line("ADDED", 3)).as_deref(), Some("3"), "a duplicate is harmless");
        assert_eq!(store.take(&line("DELETED", 9)).as_deref(), Some("9"));
        assert_eq!(store.len(), 0);
        assert_eq!(store.take(&line("ERROR", 0)), None);
        assert_eq!(store.take("junk"), None);
    }
}
