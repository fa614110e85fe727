//! Runs the grouper: looks at each pod of ours when it comes or changes, or when an owner of it does.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures::future::Either;
use muster_runtime::api::Patch;
use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::follow::{Collection, Seen, follow};
use muster_runtime::json::stable_u64;
use muster_runtime::object::{Meta, Strings};
use muster_runtime::queue::{Next, Queue, work};
use muster_runtime::store::Change;
use muster_runtime::{ApiError, Context, Key, Object, Store};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Options;
use crate::chain::{End, Found, Owner, Reference, Walk, walk};
use crate::defaults::{Defaults, TYPES};
use crate::group::{Grouping, GroupingError, Leave, Want, World, group, left_alone};
use crate::keys;
use crate::kinds::lws::is_leader;
use crate::owners::{Fetched, Owners};
use crate::plan::{Step, membership, plan};

const WARNING: &str = "PodGrouperWarning";
/// More objects than any pod's grouping has to read.
const MOST_READS: usize = 64;
/// A refusal is looked at again now and then: what was wrong may be something that is not watched.
const REFUSED: Duration = Duration::from_secs(60);
/// How often a pod asks whether PodGangs are served by now.
const NO_GANGS: Duration = Duration::from_secs(30);
/// A group with more sub-groups than this is not compared again for each of its pods.
const LARGE: usize = 16;
/// So many large groups are remembered.
const MOST_LARGE: usize = 4096;
/// So many warnings are remembered, so that they are not said again for each pod.
const TOLD: usize = 8192;

#[derive(Deserialize, Default)]
#[serde(default)]
struct PriorityClass {
    metadata: Meta,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Namespace {
    metadata: Meta,
}

muster_runtime::kinds! {
    PriorityClass = "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses";
    Namespace = "" "v1" "Namespace" "namespaces";
}

/// Starts the grouper.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + 'static {
    start_with_foresight(cx, options).1
}

/// Starts the grouper, and also says of pods that are about to be created where they will belong.
pub fn start_with_foresight(
    cx: &Context,
    options: Options,
) -> (Foresight, impl Future<Output = ()> + Send + 'static) {
    let cx = cx.named("pod-grouper");
    let options = Arc::new(options);
    let pods = cx.stores.of::<Pod>();
    let groups = cx.stores.of::<PodGroup>();
    let classes = cx.stores.of::<PriorityClass>();
    let namespaces = (!options.namespace_labels.is_empty()).then(|| cx.stores.of::<Namespace>());
    let queue = Queue::new();
    let (owners, follow_owners) = Owners::new(&cx, pods.clone(), queue.clone());
    let lacking = Arc::<Mutex<Lacking>>::default();
    {
        let (owners, queue, options) = (owners.clone(), queue.clone(), options.clone());
        let lacking = lacking.clone();
        pods.observe(move |change| {
            if let (Some(old), None) = (change.old, change.new) {
                lock(&lacking).note(&old.key(), None);
            }
            note_pod(change, &options, &owners, &queue);
        });
    }
    {
        let (lacking, queue) = (lacking.clone(), queue.clone());
        classes.observe(move |change| {
            if let (None, Some(class)) = (change.old, change.new) {
                lock(&lacking).take(&class.metadata.name).into_iter().for_each(|pod| queue.add(pod));
            }
        });
    }
    if let Some(namespaces) = &namespaces {
        let (options, queue, pods) = (options.clone(), queue.clone(), pods.clone());
        namespaces.observe(move |change| note_namespace(change, &options, &pods, &queue));
    }
    {
        let (owners, queue, pods) = (owners.clone(), queue.clone(), pods.clone());
        groups.observe(move |change| note_group(change, &pods, &owners, &queue));
    }
    let (defaults, follow_defaults) = follow_defaults(&cx, &options);
    let grouper = Arc::new(Grouper {
        cx,
        options,
        pods,
        groups,
        classes,
        namespaces,
        owners,
        queue,
        defaults,
        lacking,
        turns: Turns::default(),
        told: Mutex::default(),
        sealed: Mutex::default(),
    });
    let foresight = Foresight(Arc::downgrade(&grouper));
    let service = async move {
        let serve = grouper.serve();
        tokio::join!(serve, follow_owners, follow_defaults);
    };
    (foresight, service)
}

/// Knows the groups of pods before they are there, so that they need not be written to once more. It knows as much as the running
/// service, and nothing once that has ended.
#[derive(Clone)]
pub struct Foresight(Weak<Grouper>);

/// Where a pod belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub group: String,
    pub subgroup: Option<String>,
}

impl Foresight {
    /// The group that this pod will be put into; `None` if that cannot be said yet.
    pub fn of(&self, pod: &Value) -> Option<Member> {
        let grouper = self.0.upgrade()?;
        let pod = Pod::deserialize(pod).ok()?;
        if pod.metadata.owner_references.is_empty() || !grouper.is_ours(&pod) {
            return None;
        }
        let namespace = pod.metadata.namespace.as_str();
        let find = |reference: &Reference| grouper.owners.find(reference, namespace);
        let Ok(Walk::Chain(chain, End::Top)) = walk(&pod, find) else { return None };
        let first = grouper.foresee(&named(&pod, "first"), &chain)?;
        // A group that depends on what the pod will be called is not known yet.
        let second = grouper.foresee(&named(&pod, "second"), &chain)?;
        (first == second).then_some(first)
    }
}

/// The pod under a name and a uid, which it has not got yet.
fn named(pod: &Pod, name: &str) -> Pod {
    let mut pod = pod.clone();
    (pod.metadata.name, pod.metadata.uid) = (name.to_owned(), name.to_owned());
    pod
}

/// Puts a pod into the queue if what happened to it can matter for its group.
fn note_pod(change: &Change<'_, Pod>, options: &Options, owners: &Owners, queue: &Queue<Key>) {
    let ours = |pod: &&Arc<Pod>| pod.spec.scheduler_name.is_in(&options.scheduler_names);
    let (old, new) = (change.old.filter(ours), change.new.filter(ours));
    owners.note_pod(old.map(|pod| &**pod), new.map(|pod| &**pod));
    let Some(new) = new else { return };
    if new.is_over() || new.metadata.deleting() {
        return;
    }
    if old.is_none_or(|old| matters(old, new)) {
        queue.add(new.key());
    }
}

fn matters(old: &Pod, new: &Pod) -> bool {
    let (a, b) = (&old.metadata, &new.metadata);
    // What the binder, the kubelet and this service itself write matters to nobody here. A group that appears is what
    // this service wrote, or what it will find when its turn comes.
    let appeared = |key: &str, a: &Strings, b: &Strings| !a.contains_key(key) && b.contains_key(key);
    let differ = |a: &Strings, b: &Strings, own: &str| {
        if a == b {
            return false;
        }
        let fresh = appeared(own, a, b);
        let a = a.iter().filter(|(key, _)| !is_noise(key));
        let b = b.iter().filter(|(key, _)| !(is_noise(key) || fresh && *key == own));
        !a.eq(b)
    };
    differ(&a.labels, &b.labels, keys::SUBGROUP)
        || differ(&a.annotations, &b.annotations, keys::GROUP)
        || a.owner_references != b.owner_references
        || a.uid != b.uid
        || (is_leader(new) && old.is_bound() != new.is_bound())
}

/// Labels and annotations that binding and running leave on pods.
fn is_noise(key: &str) -> bool {
    key == keys::NODE_POOL
        || key == "received-resource-type"
        || key.starts_with("runai")
        || key.starts_with("run.ai/")
        || key.starts_with("kai.scheduler/numa-placement-")
}

/// A group that is gone while its pods are not must come back.
fn note_group(change: &Change<'_, PodGroup>, pods: &Store<Pod>, owners: &Owners, queue: &Queue<Key>) {
    let (Some(old), None) = (change.old, change.new) else { return };
    let namespace = &old.metadata.namespace;
    let wake = |pod: &Pod| {
        if !pod.is_over()
            && !pod.metadata.deleting()
            && pod.metadata.annotation(keys::GROUP) == Some(&old.metadata.name)
        {
            queue.add(pod.key());
        }
    };
    for owner in &old.metadata.owner_references {
        if owner.kind == "Pod"
            && let Some(pod) = pods.get(&Key::new(namespace.clone(), owner.name.clone()))
        {
            wake(&pod);
        }
        owners.pods_below(&owner.uid).iter().for_each(|pod| wake(pod));
    }
}

/// Pods of a namespace that is looked after from now on are as good as new.
fn note_namespace(change: &Change<'_, Namespace>, options: &Options, pods: &Store<Pod>, queue: &Queue<Key>) {
    let is_in = |namespace: &&Arc<Namespace>| has_all(&namespace.metadata.labels, &options.namespace_labels);
    let (None, Some(namespace)) = (change.old.filter(is_in), change.new.filter(is_in)) else { return };
    for pod in pods.in_namespace(&namespace.metadata.name) {
        if pod.spec.scheduler_name.is_in(&options.scheduler_names) {
            queue.add(pod.key());
        }
    }
}

fn has_all(labels: &Strings, wanted: &Strings) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Pods whose workload names a PriorityClass that is not there, by class: they are looked at again when it comes.
#[derive(Default)]
struct Lacking {
    pods: HashMap<String, BTreeSet<Key>>,
    class_of: HashMap<Key, String>,
}

impl Lacking {
    /// Notes what a pod lacks now.
    fn note(&mut self, pod: &Key, class: Option<&str>) {
        if self.class_of.get(pod).map(String::as_str) == class {
            return;
        }
        if let Some(old) = self.class_of.remove(pod)
            && let Some(pods) = self.pods.get_mut(&old)
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(&old);
            }
        }
        if let Some(class) = class {
            self.class_of.insert(pod.clone(), class.to_owned());
            self.pods.entry(class.to_owned()).or_default().insert(pod.clone());
        }
    }

    /// Those that lack a class, which lack it no more.
    fn take(&mut self, class: &str) -> BTreeSet<Key> {
        let pods = self.pods.remove(class).unwrap_or_default();
        for pod in &pods {
            self.class_of.remove(pod);
        }
        pods
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Grouper {
    cx: Context,
    options: Arc<Options>,
    pods: Arc<Store<Pod>>,
    groups: Arc<Store<PodGroup>>,
    classes: Arc<Store<PriorityClass>>,
    namespaces: Option<Arc<Store<Namespace>>>,
    owners: Arc<Owners>,
    queue: Arc<Queue<Key>>,
    defaults: DefaultsNow,
    lacking: Arc<Mutex<Lacking>>,
    turns: Turns,
    told: Mutex<HashSet<u64>>,
    /// Large groups that were found right, and what they were like then.
    sealed: Mutex<HashMap<Key, Seal>>,
}

/// What a group was wanted to be, and which PodGroup was found to be so.
#[derive(Debug, Clone, PartialEq)]
struct Seal {
    wanted: u64,
    uid: String,
    generation: i64,
}

impl Seal {
    fn of(grouping: &Grouping, there: Option<&PodGroup>) -> Option<Self> {
        let there = there?;
        let mut hash = std::hash::DefaultHasher::new();
        grouping.hash_group(&mut hash);
        Some(Seal {
            wanted: std::hash::Hasher::finish(&hash),
            uid: there.metadata.uid.clone(),
            generation: there.metadata.generation,
        })
    }
}

/// What a pod's grouping came to.
enum Outcome {
    Grouped(Box<Grouping>),
    Wait(Duration),
    Nothing,
    Refused(GroupingError, Option<String>),
}

impl Grouper {
    /// The group of a pod by what is known already.
    fn foresee(&self, pod: &Pod, chain: &[Arc<Owner>]) -> Option<Member> {
        let defaults = self.defaults.now();
        let has_class = |name: &str| self.has_class(name);
        let has_group =
            |name: &str| self.groups.get(&Key::new(pod.metadata.namespace.clone(), name)).is_some();
        let world = World {
            options: &self.options,
            defaults: &defaults,
            has_class: &has_class,
            has_group: &has_group,
            also: &[],
            peers: None,
        };
        let grouping = group(pod, chain, &world).ok()?;
        Some(Member { group: grouping.name, subgroup: grouping.subgroup })
    }

    fn has_class(&self, name: &str) -> bool {
        self.classes.get(&Key::new("", name)).is_some()
    }

    async fn serve(self: Arc<Self>) {
        let synced = self.cx.synced([self.pods.synced()]).await.is_some()
            && self.cx.synced([self.groups.synced()]).await.is_some()
            && self.cx.synced([self.classes.synced()]).await.is_some();
        if !synced {
            return;
        }
        if let Some(namespaces) = &self.namespaces
            && self.cx.synced([namespaces.synced()]).await.is_none()
        {
            return;
        }
        if self.cx.cancel.run_until_cancelled(self.defaults.ready()).await.is_none() {
            return;
        }
        let n_workers = self.options.workers.max(1);
        work("pod-grouper", self.queue.clone(), n_workers, self.cx.cancel.clone(), |key| self.look(key))
            .await;
    }

    async fn look(&self, key: Key) -> Result<Next, ApiError> {
        let Some(pod) = self.pods.get(&key).filter(|pod| self.is_ours(pod)) else { return Ok(Next::Idle) };
        match self.grouping(&key, &pod).await? {
            Outcome::Nothing => Ok(Next::Idle),
            Outcome::Wait(wait) => Ok(Next::After(wait)),
            Outcome::Grouped(grouping) => {
                let missing = grouping.missing_class.as_deref();
                lock(&self.lacking).note(&key, missing);
                // It may have come between the look and the note.
                if missing.is_some_and(|class| self.has_class(class)) {
                    self.queue.add(key.clone());
                }
                self.apply(&key, &pod, &grouping).await
            }
            Outcome::Refused(error, workload) => {
                self.tell(&pod, workload.as_deref().unwrap_or(&pod.metadata.uid), &error.to_string());
                Ok(Next::After(REFUSED))
            }
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        pod.spec.scheduler_name.is_in(&self.options.scheduler_names)
            && !pod.is_over()
            && !pod.metadata.deleting()
            && left_alone(pod).is_none()
            && has_all(&pod.metadata.labels, &self.options.pod_labels)
            && self.namespaces.as_ref().is_none_or(|namespaces| {
                let namespace = namespaces.get(&Key::new("", pod.metadata.namespace.clone()));
                namespace.is_some_and(|ns| has_all(&ns.metadata.labels, &self.options.namespace_labels))
            })
    }

    /// Reads what must be read, and groups the pod.
    async fn grouping(&self, key: &Key, pod: &Pod) -> Result<Outcome, ApiError> {
        let namespace = key.namespace.as_str();
        let workload = pod.metadata.owner_references.first().map(|owner| owner.uid.clone());
        let mut read: Vec<(Reference, Found)> = Vec::new();
        let (chain, end) = loop {
            let find = |reference: &Reference| {
                let known = read.iter().find(|(known, _)| known == reference).map(|(_, found)| found.clone());
                known.or_else(|| self.owners.find(reference, namespace))
            };
            match walk(pod, find) {
                Err(error) => return Ok(Outcome::Refused(error, workload)),
                Ok(Walk::Chain(chain, end)) => break (chain, end),
                Ok(Walk::Unread(reference)) if read.len() < MOST_READS => {
                    match self.owners.fetch(&reference, namespace, key).await? {
                        Fetched::Found(found) => read.push((reference, found)),
                        Fetched::Wait(wait) => return Ok(Outcome::Wait(wait)),
                    }
                }
                Ok(Walk::Unread(_)) => return Ok(Outcome::Wait(REFUSED)),
            }
        };
        // Its owners are going, and soon it goes with them: it stays where it is.
        if end == End::Gone && pod.metadata.annotation(keys::GROUP).is_some() {
            return Ok(Outcome::Nothing);
        }
        let defaults = self.defaults.now();
        let has_class = |name: &str| self.has_class(name);
        let has_group = |name: &str| self.groups.get(&Key::new(namespace, name)).is_some();
        let mut also: Vec<(Reference, Option<Arc<Owner>>)> = Vec::new();
        let mut peers: Option<Vec<Arc<Pod>>> = None;
        loop {
            let world = World {
                options: &self.options,
                defaults: &defaults,
                has_class: &has_class,
                has_group: &has_group,
                also: &also,
                peers: peers.as_deref(),
            };
            match group(pod, &chain, &world) {
                // Owners that could be read once and cannot now are no reason to take a pod out of its group.
                Ok(grouping) if end == End::Closed && is_elsewhere(pod, &grouping) => {
                    return Ok(Outcome::Nothing);
                }
                Ok(grouping) => return Ok(Outcome::Grouped(Box::new(grouping))),
                Err(GroupingError::Missing(Want::Peers)) if peers.is_none() => {
                    let top = chain.last().map_or("", |owner| owner.uid.as_str());
                    let mut below = self.owners.pods_below(top);
                    // A uid can be written by anybody, in any namespace.
                    below.retain(|pod| pod.metadata.namespace == namespace);
                    peers = Some(below);
                }
                Err(GroupingError::Missing(Want::Object(reference)))
                    if also.len() < MOST_READS && !also.iter().any(|(known, _)| *known == reference) =>
                {
                    let found = match self.owners.find(&reference, namespace) {
                        Some(found) => found,
                        None => match self.owners.fetch(&reference, namespace, key).await? {
                            Fetched::Found(found) => found,
                            Fetched::Wait(wait) => return Ok(Outcome::Wait(wait)),
                        },
                    };
                    let object = match found {
                        Found::Known(owner) => Some(owner),
                        Found::Gone | Found::Closed => None,
                    };
                    also.push((reference, object));
                }
                Err(GroupingError::LeftAlone(Leave::NoPodGang(_))) => return Ok(Outcome::Wait(NO_GANGS)),
                Err(GroupingError::LeftAlone(_) | GroupingError::Missing(_)) => return Ok(Outcome::Nothing),
                // Whoever says so may well group the pods; whoever does not must learn why they wait.
                Err(error @ GroupingError::OwnerSaysSkip { .. }) => {
                    if pod.metadata.annotation(keys::GROUP).is_none() && !pod.is_bound() {
                        let workload = chain.last().map_or("", |owner| owner.uid.as_str());
                        self.tell(pod, workload, &error.to_string());
                    }
                    return Ok(Outcome::Nothing);
                }
                Err(error) => {
                    let workload = chain.last().map(|owner| owner.uid.clone()).or(workload);
                    return Ok(Outcome::Refused(error, workload));
                }
            }
        }
    }

    /// Writes what is missing: the group first, then the pod.
    async fn apply(&self, key: &Key, pod: &Pod, grouping: &Grouping) -> Result<Next, ApiError> {
        let group = Key::new(key.namespace.clone(), grouping.name.clone());
        let there = self.groups.get(&group);
        // Of a group with very many sub-groups, each pod would compare them all.
        let large = grouping.subgroups.len() > LARGE;
        let seen = large.then(|| Seal::of(grouping, there.as_deref())).flatten();
        if let Some(seal) = &seen
            && lock(&self.sealed).get(&group) == Some(seal)
        {
            return self.join(key, pod, grouping, membership(pod, grouping)).await;
        }
        let plan = plan(pod, grouping, there.as_deref(), &self.options);
        if let (Some(seal), Step::Nothing) = (seen, &plan.group) {
            let mut sealed = lock(&self.sealed);
            if sealed.len() >= MOST_LARGE {
                sealed.clear();
            }
            sealed.insert(group.clone(), seal);
        }
        if plan.group != Step::Nothing {
            match self.turns.take(&group, key) {
                Turn::Later(Some(wait)) => return Ok(Next::After(wait)),
                // Woken when the group is written.
                Turn::Later(None) => return Ok(Next::Idle),
                Turn::Mine => {}
            }
            let written = self.write_group(&group, plan.group).await;
            let (woken, wait) = self.turns.give_back(&group, written.is_ok());
            match wait {
                None => woken.into_iter().for_each(|pod| self.queue.add(pod)),
                Some(wait) => woken.into_iter().for_each(|pod| self.queue.add_after(pod, wait)),
            }
            match written {
                Ok(true) => {
                    for note in &grouping.notes {
                        self.tell(pod, &grouping.owner.uid, note);
                    }
                }
                // Another was first: what it wrote is looked at anew.
                Ok(false) => return Ok(Next::After(Duration::ZERO)),
                Err(error) => {
                    tracing::debug!(%group, %error, "a pod group was not written");
                    if is_refusal(&error) {
                        let message = format!("PodGroup {group} cannot be written: {}", error.message());
                        self.tell(pod, &grouping.owner.uid, &message);
                    }
                    return Ok(Next::After(wait.unwrap_or(REFUSED)));
                }
            }
        }
        self.join(key, pod, grouping, plan.pod).await
    }

    /// Makes the pod a member of its group, which is there.
    async fn join(
        &self,
        key: &Key,
        pod: &Pod,
        grouping: &Grouping,
        patch: Option<Value>,
    ) -> Result<Next, ApiError> {
        let Some(patch) = patch else { return Ok(Next::Idle) };
        match self.cx.api.patch::<Pod>(key, "", Patch::Merge, &patch).await {
            Ok(pod) => {
                self.pods.enter(pod);
                Ok(Next::Idle)
            }
            Err(error) if error.not_found() => Ok(Next::Idle),
            // Most often the name is another pod's by now, and then the watch says so.
            Err(error) if error.conflict() => Ok(Next::After(Duration::from_millis(100))),
            Err(error) => {
                if is_refusal(&error) {
                    let message = format!("the pod cannot be put into its PodGroup: {}", error.message());
                    self.tell(pod, &grouping.owner.uid, &message);
                }
                Err(error)
            }
        }
    }

    /// Out: `false` when another was first.
    async fn write_group(&self, group: &Key, step: Step) -> Result<bool, ApiError> {
        let (answer, fresh) = match step {
            Step::Nothing => return Ok(true),
            Step::Create(body) => match self.cx.api.create::<PodGroup>(&group.namespace, &body).await {
                Err(error) if error.already_exists() => (self.cx.api.get::<PodGroup>(group).await?, false),
                answer => (answer?, true),
            },
            Step::Patch(body) => (self.cx.api.patch::<PodGroup>(group, "", Patch::Merge, &body).await?, true),
        };
        self.groups.enter(answer);
        Ok(fresh)
    }

    /// Warns about a pod, once for all pods of its workload.
    fn tell(&self, pod: &Pod, workload: &str, message: &str) {
        let id = stable_u64(&format!("{workload} {message}"));
        let mut told = lock(&self.told);
        if told.len() >= TOLD {
            told.clear();
        }
        if told.insert(id) {
            self.cx.events.warning(pod, WARNING, message);
        }
    }
}

fn is_elsewhere(pod: &Pod, grouping: &Grouping) -> bool {
    pod.metadata.annotation(keys::GROUP).is_some_and(|name| name != grouping.name)
}

/// The server said no and will say no again.
fn is_refusal(error: &ApiError) -> bool {
    matches!(error.code(), 400 | 403 | 422) && !error.message().contains("being terminated")
}

/// Who writes a group. Many pods of a gang come at once and one of them writes; the others come again afterwards, and a
/// group that cannot be written is tried again after waits that grow, however many pods it has.
#[derive(Default)]
struct Turns {
    state: Mutex<HashMap<Key, Writing>>,
}

#[derive(Default)]
struct Writing {
    busy: bool,
    waiting: Vec<Key>,
    failures: u32,
    not_before: Option<Instant>,
}

enum Turn {
    Mine,
    Later(Option<Duration>),
}

impl Turns {
    fn take(&self, group: &Key, pod: &Key) -> Turn {
        let mut state = lock(&self.state);
        let writing = state.entry(group.clone()).or_default();
        if writing.busy {
            writing.waiting.push(pod.clone());
            return Turn::Later(None);
        }
        if let Some(wait) = writing.not_before.and_then(|at| at.checked_duration_since(Instant::now()))
            && !wait.is_zero()
        {
            return Turn::Later(Some(wait));
        }
        writing.busy = true;
        Turn::Mine
    }

    /// Out: who waited, and for how long all must wait after a failure.
    fn give_back(&self, group: &Key, ok: bool) -> (Vec<Key>, Option<Duration>) {
        let mut state = lock(&self.state);
        if ok {
            return (state.remove(group).map(|writing| writing.waiting).unwrap_or_default(), None);
        }
        let now = Instant::now();
        // Groups whose pods have gone are forgotten when their time is long over.
        if state.len() > TOLD {
            state.retain(|_, w| w.busy || w.not_before.is_some_and(|at| at + REFUSED > now));
        }
        let writing = state.entry(group.clone()).or_default();
        writing.busy = false;
        writing.failures = writing.failures.saturating_add(1);
        let wait = Duration::from_millis(200) * 2_u32.pow(writing.failures.min(9));
        let wait = wait.min(REFUSED);
        writing.not_before = Some(now + wait);
        (std::mem::take(&mut writing.waiting), Some(wait))
    }
}

/// The administrator's defaults as they are now.
struct DefaultsNow {
    current: Arc<RwLock<Arc<Defaults>>>,
    known: watch::Receiver<bool>,
}

impl DefaultsNow {
    fn now(&self) -> Arc<Defaults> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until they are read; for a ConfigMap that may not be read, not for ever.
    async fn ready(&self) {
        let mut known = self.known.clone();
        let wait = tokio::time::timeout(Duration::from_secs(5), known.wait_for(|known| *known));
        if wait.await.is_err() {
            tracing::warn!(
                "the ConfigMap with default priorities cannot be read: there are no such defaults"
            );
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigMap {
    data: BTreeMap<String, String>,
}

fn follow_defaults(
    cx: &Context,
    options: &Options,
) -> (DefaultsNow, impl Future<Output = ()> + Send + 'static + use<>) {
    let current: Arc<RwLock<Arc<Defaults>>> = Arc::default();
    let (tell, known) = watch::channel(options.default_priorities.is_none());
    let set = {
        let current = current.clone();
        move |defaults: Defaults| {
            *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(defaults)
        }
    };
    let work = match options.default_priorities.clone() {
        None => Either::Left(std::future::ready(())),
        Some((namespace, name)) => {
            let collection = Collection {
                path: format!("/api/v1/namespaces/{namespace}/configmaps"),
                query: format!("fieldSelector=metadata.name%3D{name}"),
            };
            Either::Right(follow(
                cx.api.clone(),
                collection,
                Duration::from_secs(300),
                cx.cancel.clone(),
                move |seen| match seen {
                    Seen::Put { text, .. } => match read_defaults(text) {
                        Ok(defaults) => set(defaults),
                        Err(error) => {
                            tracing::warn!(
                                namespace,
                                name,
                                error,
                                "the default priorities cannot be read; those from before hold"
                            );
                        }
                    },
                    Seen::Gone { .. } => set(Defaults::default()),
                    Seen::Synced | Seen::Absent => {
                        tell.send_replace(true);
                    }
                },
            ))
        }
    };
    (DefaultsNow { current, known }, work)
}

fn read_defaults(text: &str) -> Result<Defaults, String> {
    let map: ConfigMap = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let types = map.data.get(TYPES).ok_or_else(|| format!("data has no key {TYPES}"))?;
    Defaults::read(types).map_err(|error| format!("data.{TYPES}: {error}"))
}
