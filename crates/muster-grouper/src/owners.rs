//! What is known of owners: kinds found out at run time, each followed from the moment a pod of ours is owned by one.
//!
//! In: references to objects. Out: the objects, as far as known; pods that waited are put back into the queue, and so are
//! the pods below an object that changed. Must stay true: a kind is followed once; what a followed kind says is never
//! older than what a single read said; a read that is refused ends a chain and stops nothing else.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_runtime::common::Pod;
use muster_runtime::follow::{Collection, Seen, follow};
use muster_runtime::queue::Queue;
use muster_runtime::{Api, ApiError, Context, Key, RESYNC, Store};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::chain::{Found, MOST_OWNERS, Owner, Reference, group_of, version_of};
use crate::keys;
use crate::kinds;

/// A collection that was just found is usually listed within this time; later, objects are read one by one.
const LIST_TIME: Duration = Duration::from_secs(2);
/// Owners are there before their pods, so a watch that lacks one is only late.
const LATE: Duration = Duration::from_millis(50);
/// How long what was read by hand is good.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// How long a kind stays closed after it was refused or not served.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The kind that pods name by label.
const GANG: &str = "PodGang";
/// So many owners that are gone are remembered.
const MOST_GONE: usize = 8192;

pub struct Owners {
    api: Api,
    pods: Arc<Store<Pod>>,
    queue: Arc<Queue<Key>>,
    state: Mutex<State>,
    begin: mpsc::UnboundedSender<(Kind, Collection)>,
}

/// An `apiVersion` and a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    api_version: String,
    kind: String,
}

#[derive(Default)]
struct State {
    kinds: HashMap<Kind, Followed>,
    /// Owners below an owner, by its uid: their uids.
    below: HashMap<String, HashSet<String>>,
    /// Pods whose first owner is not their controller, by its uid. The store of pods knows controllers only.
    odd: HashMap<String, BTreeSet<Key>>,
    /// Pods by the PodGang that they name.
    of_gang: HashMap<Key, BTreeSet<Key>>,
    gone: Gone,
}

/// Owners that are gone: they never come back, and their pods need not ask one by one. A uid alone would not do: anybody
/// can write the uid of another's owner beside a name that is not there.
#[derive(Default)]
struct Gone {
    known: HashSet<(Kind, Key, String)>,
    order: VecDeque<(Kind, Key, String)>,
}

impl Gone {
    fn add(&mut self, kind: &Kind, key: &Key, uid: &str) {
        let one = (kind.clone(), key.clone(), uid.to_owned());
        if uid.is_empty() || !self.known.insert(one.clone()) {
            return;
        }
        self.order.push_back(one);
        if self.order.len() > MOST_GONE
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

enum Phase {
    /// Somebody is asking the server what the kind is.
    Asking,
    /// Not served, or not to be read.
    Closed(Instant),
    Served {
        path: String,
        namespaced: bool,
        since: Instant,
        listed: bool,
    },
}

struct Followed {
    phase: Phase,
    objects: HashMap<Key, Arc<Owner>>,
    /// Read by hand, because the watch did not have it.
    read: HashMap<Key, (Arc<Owner>, Instant)>,
    /// Namespaces in which it may not be read, and until when that is believed.
    refused: HashMap<String, Instant>,
    /// Pods that wait for an object, and since when.
    waiting: HashMap<Key, (Instant, BTreeSet<Key>)>,
    /// Pods that wait for the kind.
    waiting_for_all: BTreeSet<Key>,
}

/// What came of an attempt to read an object.
pub enum Fetched {
    Found(Found),
    /// Look again then, or when woken.
    Wait(Duration),
}

impl Owners {
    /// The book, and the task that follows the kinds in it.
    pub fn new(
        cx: &Context,
        pods: Arc<Store<Pod>>,
        queue: Arc<Queue<Key>>,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let (begin, begun) = mpsc::unbounded_channel();
        let owners = Arc::new(Owners { api: cx.api.clone(), pods, queue, state: Mutex::default(), begin });
        (owners.clone(), follow_all(cx.clone(), Arc::downgrade(&owners), begun))
    }

    /// Keeps the indexes of pods; called for every change of a pod of ours.
    pub fn note_pod(&self, old: Option<&Pod>, new: Option<&Pod>) {
        let odd = |pod: &Pod| {
            let first = pod.metadata.owner_references.first()?;
            (!first.controller).then(|| first.uid.clone())
        };
        let gang = |pod: &Pod| {
            let gang = pod.metadata.labels.get(keys::PODGANG)?;
            Some(Key::new(pod.metadata.namespace.clone(), gang.clone()))
        };
        let (odd_old, odd_new) = (old.and_then(odd), new.and_then(odd));
        let (gang_old, gang_new) = (old.and_then(gang), new.and_then(gang));
        let Some(pod) = new.or(old) else { return };
        if odd_old == odd_new && gang_old == gang_new {
            return;
        }
        let key = Key::new(pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let mut state = self.lock();
        swap(&mut state.odd, odd_old, odd_new, &key);
        swap(&mut state.of_gang, gang_old, gang_new, &key);
    }

    /// What is known of an object without asking; `None` if it must be fetched.
    pub fn find(&self, reference: &Reference, namespace: &str) -> Option<Found> {
        if is_pod(reference) {
            let pod = self.pods.get(&Key::new(namespace, reference.name.as_str()));
            let pod = pod.filter(|pod| reference.uid.is_empty() || pod.metadata.uid == reference.uid);
            return Some(pod.map_or(Found::Gone, |pod| Found::Known(Arc::new(Owner::of_pod(&pod.metadata)))));
        }
        let mut state = self.lock();
        let kind = Kind::of(reference);
        let State { kinds, gone, .. } = &mut *state;
        let followed = kinds.get_mut(&kind)?;
        let namespaced = match &followed.phase {
            Phase::Asking => return None,
            Phase::Closed(until) => return (Instant::now() < *until).then_some(Found::Closed),
            Phase::Served { namespaced, .. } => *namespaced,
        };
        let key = Key::new(if namespaced { namespace } else { "" }, reference.name.as_str());
        let meant = |owner: &Arc<Owner>| reference.uid.is_empty() || owner.uid == reference.uid;
        if let Some(owner) = followed.objects.get(&key).filter(|owner| meant(owner)) {
            return Some(Found::Known(owner.clone()));
        }
        if followed.refused.get(&key.namespace).is_some_and(|until| Instant::now() < *until) {
            return Some(Found::Closed);
        }
        match followed.read.get(&key) {
            Some((owner, until)) if Instant::now() < *until && meant(owner) => {
                return Some(Found::Known(owner.clone()));
            }
            Some(_) => {
                followed.read.remove(&key);
            }
            None => {}
        }
        gone.known.contains(&(kind, key, reference.uid.clone())).then_some(Found::Gone)
    }

    /// Reads an object for a pod, or says when it will be known.
    pub async fn fetch(
        &self,
        reference: &Reference,
        namespace: &str,
        pod: &Key,
    ) -> Result<Fetched, ApiError> {
        if !is_name(&reference.name) {
            return Ok(Fetched::Found(Found::Gone));
        }
        let kind = Kind::of(reference);
        let now = Instant::now();
        let path = {
            let mut state = self.lock();
            let followed = state.kinds.entry(kind.clone()).or_insert_with(|| Followed::open_from(now));
            match &followed.phase {
                Phase::Closed(until) if now < *until => return Ok(Fetched::Found(Found::Closed)),
                Phase::Closed(_) => {
                    followed.phase = Phase::Asking;
                    None
                }
                Phase::Asking => {
                    followed.waiting_for_all.insert(pod.clone());
                    return Ok(Fetched::Wait(LIST_TIME));
                }
                Phase::Served { since, listed: false, .. } if now < *since + LIST_TIME => {
                    let wait = *since + LIST_TIME - now;
                    followed.waiting_for_all.insert(pod.clone());
                    return Ok(Fetched::Wait(wait));
                }
                Phase::Served { path, namespaced, listed, .. } => {
                    let within = if *namespaced { namespace } else { "" };
                    let (path, listed) = (path.clone(), *listed);
                    let key = Key::new(within, reference.name.as_str());
                    let (since, pods) =
                        followed.waiting.entry(key.clone()).or_insert_with(|| (now, BTreeSet::new()));
                    pods.insert(pod.clone());
                    if listed && now < *since + LATE {
                        return Ok(Fetched::Wait(*since + LATE - now));
                    }
                    Some((path, key))
                }
            }
        };
        match path {
            Some((path, key)) => self.read(&kind, reference, &path, key).await,
            None => self.discover(&kind, pod).await,
        }
    }

    /// Asks the server what a kind is called in paths, and has it followed.
    async fn discover(&self, kind: &Kind, pod: &Key) -> Result<Fetched, ApiError> {
        let (group, version) = (group_of(&kind.api_version), version_of(&kind.api_version));
        let base =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let answer = if is_path_part(group, true) && is_path_part(version, false) {
            self.api.get_path(&base).await
        } else {
            // Such a version cannot be served, so nothing needs to be asked.
            Ok(Value::Null)
        };
        let mut state = self.lock();
        let Some(followed) = state.kinds.get_mut(kind) else { return Ok(Fetched::Wait(LIST_TIME)) };
        let woken = std::mem::take(&mut followed.waiting_for_all);
        let served = match &answer {
            Ok(list) => find_resource(list, &kind.kind),
            Err(error) if error.not_found() || error.code() == 403 => None,
            Err(_) => {
                // Whoever comes next asks again.
                followed.phase = Phase::Closed(Instant::now());
                drop(state);
                woken.into_iter().for_each(|pod| self.queue.add(pod));
                return answer.map(|_| Fetched::Wait(LIST_TIME));
            }
        };
        let Some((plural, namespaced)) = served else {
            followed.phase = Phase::Closed(Instant::now() + ASK_AGAIN);
            drop(state);
            woken.into_iter().for_each(|pod| self.queue.add(pod));
            return Ok(Fetched::Found(Found::Closed));
        };
        let path = format!("{base}/{plural}");
        followed.phase =
            Phase::Served { path: path.clone(), namespaced, since: Instant::now(), listed: false };
        followed.waiting_for_all = woken;
        followed.waiting_for_all.insert(pod.clone());
        drop(state);
        // The task ends only with the service.
        let _ = self.begin.send((kind.clone(), Collection::new(path)));
        Ok(Fetched::Wait(LIST_TIME))
    }

    async fn read(
        &self,
        kind: &Kind,
        reference: &Reference,
        path: &str,
        key: Key,
    ) -> Result<Fetched, ApiError> {
        let answer = self.api.get_path(&object_path(path, &key)).await;
        let found = match answer {
            Ok(object) => {
                let keep = kinds::keep(group_of(&kind.api_version), &kind.kind);
                let owner = Owner::read(&kind.api_version, &kind.kind, &object.to_string(), keep);
                let owner = owner.filter(|o| reference.uid.is_empty() || o.uid == reference.uid);
                owner.map_or(Found::Gone, |owner| Found::Known(Arc::new(owner)))
            }
            // A kind that is not served any more is answered in the same way, without the name of the object.
            Err(error) if error.not_found() && error.message().contains(&format!("{:?}", key.name)) => {
                Found::Gone
            }
            Err(error) if error.not_found() || error.code() == 403 => Found::Closed,
            Err(error) => return Err(error),
        };
        let mut state = self.lock();
        if found == Found::Gone {
            state.gone.add(kind, &key, &reference.uid);
        }
        if let Some(followed) = state.kinds.get_mut(kind) {
            // Who waits for an object by name is woken when it comes (those of gangs by another index); an owner that is
            // gone never comes again.
            if !reference.uid.is_empty() || matches!(found, Found::Known(_)) || kind.kind == GANG {
                followed.waiting.remove(&key);
            }
            if found == Found::Closed {
                followed.refused.insert(key.namespace.clone(), Instant::now() + ASK_AGAIN);
            }
            if let Found::Known(owner) = &found {
                if followed.read.len() > 4096 {
                    let now = Instant::now();
                    followed.read.retain(|_, (_, until)| now < *until);
                }
                followed.read.insert(key, (owner.clone(), Instant::now() + READ_AGAIN));
            }
        }
        Ok(Fetched::Found(found))
    }

    /// All pods below an owner.
    pub fn pods_below(&self, uid: &str) -> Vec<Arc<Pod>> {
        let (uids, odd) = {
            let state = self.lock();
            let uids = state.below(uid);
            let odd: Vec<Key> = uids.iter().filter_map(|uid| state.odd.get(uid)).flatten().cloned().collect();
            (uids, odd)
        };
        let mut pods: Vec<Arc<Pod>> = uids.iter().flat_map(|uid| self.pods.owned_by(uid)).collect();
        pods.extend(odd.iter().filter_map(|key| self.pods.get(key)));
        pods
    }

    /// Takes what a followed kind says.
    fn see(&self, kind: &Kind, seen: Seen<'_>) {
        match seen {
            Seen::Put { key, text } => {
                let keep = kinds::keep(group_of(&kind.api_version), &kind.kind);
                if let Some(owner) = Owner::read(&kind.api_version, &kind.kind, text, keep) {
                    self.put(kind, key, owner);
                }
            }
            Seen::Gone { key, uid } => {
                let mut state = self.lock();
                state.gone.add(kind, key, uid);
                let old = state.kinds.get_mut(kind).and_then(|followed| {
                    followed.read.remove(key);
                    followed.objects.remove(key)
                });
                if let Some(old) = old {
                    state.unlink(&old);
                }
            }
            Seen::Synced => {
                let mut state = self.lock();
                let Some(followed) = state.kinds.get_mut(kind) else { return };
                if let Phase::Served { listed, .. } = &mut followed.phase {
                    *listed = true;
                }
                let woken = std::mem::take(&mut followed.waiting_for_all);
                drop(state);
                woken.into_iter().for_each(|pod| self.queue.add(pod));
            }
            Seen::Absent => {
                let mut state = self.lock();
                let Some(followed) = state.kinds.get_mut(kind) else { return };
                if let Phase::Served { listed, since, .. } = &mut followed.phase {
                    *listed = false;
                    *since = Instant::now();
                }
            }
        }
    }

    fn put(&self, kind: &Kind, key: &Key, owner: Owner) {
        let owner = Arc::new(owner);
        let mut state = self.lock();
        let Some(followed) = state.kinds.get_mut(kind) else { return };
        let waited = followed.waiting.remove(key).map(|(_, pods)| pods).unwrap_or_default();
        let read = followed.read.remove(key).map(|(owner, _)| owner);
        let old = followed.objects.get(key).cloned();
        if old.as_ref() == Some(&owner) {
            drop(state);
            waited.into_iter().for_each(|pod| self.queue.add(pod));
            return;
        }
        followed.objects.insert(key.clone(), owner.clone());
        if let Some(old) = &old {
            state.unlink(old);
        }
        state.link(&owner);
        let by_name = if kind.kind == GANG { state.of_gang.get(key).cloned() } else { None };
        // Nobody below an object can have been grouped by it before it was known.
        let changed = old.is_some() || read.is_some_and(|read| read != owner);
        drop(state);
        waited.into_iter().chain(by_name.unwrap_or_default()).for_each(|pod| self.queue.add(pod));
        if changed {
            for pod in self.pods_below(&owner.uid) {
                self.queue.add(muster_runtime::Object::key(&*pod));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn of(reference: &Reference) -> Self {
        Kind { api_version: reference.api_version.clone(), kind: reference.kind.clone() }
    }
}

impl Followed {
    /// A kind that may be asked for from this moment on. The moment is the caller's: one that is read later would be in its future.
    fn open_from(now: Instant) -> Self {
        Followed {
            phase: Phase::Closed(now),
            objects: HashMap::new(),
            read: HashMap::new(),
            refused: HashMap::new(),
            waiting: HashMap::new(),
            waiting_for_all: BTreeSet::new(),
        }
    }
}

impl State {
    fn link(&mut self, owner: &Owner) {
        if let Some(above) = owner.owners.first() {
            self.below.entry(above.uid.clone()).or_default().insert(owner.uid.clone());
        }
    }

    fn unlink(&mut self, owner: &Owner) {
        if let Some(above) = owner.owners.first()
            && let Some(below) = self.below.get_mut(&above.uid)
        {
            below.remove(&owner.uid);
            if below.is_empty() {
                self.below.remove(&above.uid);
            }
        }
    }

    /// The uid and those of all owners below it.
    fn below(&self, uid: &str) -> HashSet<String> {
        let mut all = HashSet::from([uid.to_owned()]);
        let mut level = vec![uid.to_owned()];
        for _ in 0..MOST_OWNERS {
            let next: Vec<String> =
                level.iter().filter_map(|uid| self.below.get(uid)).flatten().cloned().collect();
            level = next.into_iter().filter(|uid| all.insert(uid.clone())).collect();
            if level.is_empty() {
                break;
            }
        }
        all
    }
}

/// Follows each kind as it is found, until cancelled.
async fn follow_all(
    cx: Context,
    owners: std::sync::Weak<Owners>,
    mut begun: mpsc::UnboundedReceiver<(Kind, Collection)>,
) {
    let mut followers = JoinSet::new();
    while let Some(Some((kind, collection))) = cx.cancel.run_until_cancelled(begun.recv()).await {
        tracing::info!(kind = kind.kind, api = kind.api_version, "following a kind of owner");
        let owners = owners.clone();
        followers.spawn(follow(cx.api.clone(), collection, RESYNC, cx.cancel.clone(), move |seen| {
            if let Some(owners) = owners.upgrade() {
                owners.see(&kind, seen);
            }
        }));
    }
}

fn swap<K: std::hash::Hash + Eq>(
    index: &mut HashMap<K, BTreeSet<Key>>,
    old: Option<K>,
    new: Option<K>,
    pod: &Key,
) {
    if let Some(old) = old
        && let Some(pods) = index.get_mut(&old)
    {
        pods.remove(pod);
        if pods.is_empty() {
            index.remove(&old);
        }
    }
    if let Some(new) = new {
        index.entry(new).or_default().insert(pod.clone());
    }
}

fn is_pod(reference: &Reference) -> bool {
    reference.kind == "Pod" && reference.api_version == "v1"
}

/// The plural of a kind in an answer of discovery, and whether its objects are in namespaces.
fn find_resource(list: &Value, kind: &str) -> Option<(String, bool)> {
    let resources = list.get("resources")?.as_array()?;
    let found = resources.iter().find(|resource| {
        resource.get("kind").and_then(Value::as_str) == Some(kind)
            && resource.get("name").and_then(Value::as_str).is_some_and(|name| !name.contains('/'))
    })?;
    let plural = found.get("name")?.as_str().filter(|name| is_path_part(name, false))?;
    Some((plural.to_owned(), found.get("namespaced").and_then(Value::as_bool).unwrap_or(false)))
}

/// Owner references are written by anybody: what is no name must not become part of a path.
fn is_path_part(text: &str, may_be_empty: bool) -> bool {
    (may_be_empty || !text.is_empty())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
        && !text.starts_with('.')
}

/// Whether an object can have this name at all.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    !text.is_empty() && text.chars().all(fits) && text != "." && text != ".."
}

/// The path of one object of a collection.
fn object_path(collection: &str, key: &Key) -> String {
    let Key { namespace, name } = key;
    match collection.rsplit_once('/') {
        Some((base, plural)) if !namespace.is_empty() => {
            format!("{base}/namespaces/{namespace}/{plural}/{name}")
        }
        _ => format!("{collection}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        assert_eq!(object_path("/apis/g/v1/as", &Key::new("ns", "a")), "/apis/g/v1/namespaces/ns/as/a");
        assert_eq!(object_path("/api/v1/nodes", &Key::new("", "a")), "/api/v1/nodes/a");
        assert!(is_name("a:b_C.d") && !is_name("a/b") && !is_name("..") && !is_name("") && !is_name("a b"));
    }

    #[test]
    fn resources() {
        let list = json!({"resources": [
            {"name": "jobs/status", "kind": "Job", "namespaced": true},
            {"name": "jobs", "kind": "Job", "namespaced": true},
            {"name": "a/b", "kind": "Odd"},
        ]});
        assert_eq!(find_resource(&list, "Job"), Some(("jobs".into(), true)));
        assert_eq!(find_resource(&list, "Odd"), None);
        assert_eq!(find_resource(&Value::Null, "Job"), None);
        assert!(!is_path_part("a/b", false) && !is_path_part("", false) && is_path_part("", true));
        assert!(!is_path_part("..", false));
    }
}
