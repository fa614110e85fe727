//! Decisions to API requests.
//!
//! In: what a cycle decided. Out: bindings, bind requests, evictions; and, when there is time, conditions and events that say
//! why. Must stay true: a pod is evicted only after the reason is on record; status and events yield to bindings; every failure
//! is told to the core, which gives the promise back.

use crate::core::{
    DEFAULT_POOL, Entry, Eviction, GangPlacement, GroupRef, GroupStatus, Mark, Output, Placed, PodPlacement,
    Received, Waiting,
};
use crate::ingest::{self, Done, Failure, Input, Outcome};
use crate::{volcano, words};
use futures::FutureExt;
use jiff::Timestamp;
use muster_binder::{Assignment, BindError, Binder};
use muster_model::{Key, Name, Reason, Time};
use muster_runtime::api::{Delete, Patch};
use muster_runtime::clock::stamp;
use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::object::{Meta, Object};
use muster_runtime::{Api, ApiError, Clock, Context, Events};
use muster_translate::{Kind, POD_GANG};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// So many requests are on their way at once.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub binds: usize,
    /// So many pods are prepared for (volumes, shared GPUs, device claims), which is mostly waiting.
    pub steps: usize,
    pub status: usize,
    /// How long status may be put off by bindings.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { binds: 64, steps: 1024, status: 8, patience: Duration::from_secs(5) }
    }
}

/// How a placement reaches the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindMode {
    /// This process posts bindings; only placements that take steps become bind requests.
    #[default]
    Inline,
    /// Every placement becomes a bind request, which a binder carries out.
    Service,
}

#[derive(Clone)]
pub struct Publisher {
    urgent: UnboundedSender<Urgent>,
    /// Gangs that take steps: others must not wait until these are prepared.
    slow: UnboundedSender<Urgent>,
    mode: BindMode,
    hopeless: UnboundedSender<(Key, Name)>,
    being_told: BeingTold,
    ungrouped: UnboundedSender<Key>,
    lanes: Lanes,
    busy: Arc<AtomicUsize>,
}

enum Urgent {
    Place(GangPlacement),
    Evict(Eviction),
}

impl Urgent {
    /// How many requests it is about.
    fn size(&self) -> usize {
        match self {
            Urgent::Place(gang) => gang.pods.len(),
            Urgent::Evict(_) => 1,
        }
    }

    /// The pods whose fate is to be told.
    fn pods(&self) -> Vec<(Key, Name)> {
        match self {
            Urgent::Place(gang) => gang.pods.iter().map(|pod| (pod.pod.clone(), pod.uid.clone())).collect(),
            Urgent::Evict(eviction) => vec![(eviction.pod.clone(), eviction.uid.clone())],
        }
    }
}

/// Gangs about whose pods it is being said that they wait, and whether they have been placed meanwhile. A pod that was just bound must not be marked.
#[derive(Clone, Default)]
struct BeingTold(Arc<Mutex<HashMap<Key, bool>>>);

impl BeingTold {
    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<Key, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, gang: &Key) {
        self.open().insert(gang.clone(), false);
    }

    fn end(&self, gang: &Key) {
        self.open().remove(gang);
    }

    /// From now on nothing more is said of it.
    fn is_placed(&self, gang: &Key) {
        if let Some(placed) = self.open().get_mut(gang) {
            *placed = true;
        }
    }

    fn goes_on(&self, gang: &Key) -> bool {
        self.open().get(gang).is_none_or(|placed| !placed)
    }

    /// Waits for the last word that is on its way; not for long, because a binding is worth more than a mark that is right.
    async fn silence(&self, gang: &Key) {
        for _ in 0..500 {
            if !self.open().contains_key(gang) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

enum Calm {
    Waits(Waiting),
    /// Nothing is left to say about why it waits.
    Placed(Placed),
    /// So many pods got a node; the first of them, and its node.
    Scheduled {
        gang: GroupRef,
        pods: usize,
        example: String,
    },
    /// It could not be bound whole.
    Failed {
        gang: GroupRef,
        message: String,
    },
    Evicted {
        gang: GroupRef,
        message: String,
    },
    /// It lacks its minimum since then, or has it again.
    Stale(GroupRef, Option<Time>),
    /// A Volcano PodGroup has come further.
    Status(GroupStatus),
    /// Something happened to it now that is remembered in this annotation.
    Stamp(GroupRef, &'static str),
}

const LAST_START: &str = "kai.scheduler/last-start-timestamp";
const LAST_EVICTION: &str = "kai.scheduler/last-eviction-timestamp";
/// So many failures of a binder, and the pod is decided anew. It must be said: of a request that says nothing the binder never lets go, while its pod
/// would count as waiting after the first failure, and what it was to have would be given to others.
const BINDER_TRIES: i32 = 3;

struct Desk {
    api: Api,
    binder: Binder,
    events: Events,
    clock: Clock,
    mode: BindMode,
    /// The label of the node pool that this is for, and its value.
    pool: Option<(String, String)>,
    limits: Limits,
    busy: Arc<AtomicUsize>,
    pace: Pace,
    outcomes: UnboundedSender<Input>,
    lanes: Lanes,
    being_told: BeingTold,
}

/// How much may be said about gangs that wait, while others are bound.
struct Pace {
    /// Bindings and evictions so far, and when the last of them ended.
    done: AtomicUsize,
    latest: Mutex<Instant>,
    /// Requests that told why gangs wait, while there was no calm.
    told: AtomicUsize,
}

impl Pace {
    /// Without bindings for so long there is calm.
    const CALM: Duration = Duration::from_millis(200);
    /// One request for so many bindings, and so many ahead of them.
    const SHARE: usize = 10;
    const AHEAD: usize = 20;

    fn new() -> Pace {
        Pace { done: AtomicUsize::new(0), latest: Mutex::new(Instant::now()), told: AtomicUsize::new(0) }
    }

    fn count(&self, requests: usize) {
        self.done.fetch_add(requests, Ordering::Relaxed);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether so many requests may be sent now; if so they count.
    fn allows(&self, requests: usize, busy: usize) -> bool {
        let latest = *self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if busy == 0 && latest.elapsed() >= Pace::CALM {
            return true;
        }
        let (done, told) = (self.done.load(Ordering::Relaxed), self.told.load(Ordering::Relaxed));
        let allowed = told + requests <= done / Pace::SHARE + Pace::AHEAD;
        if allowed {
            self.told.fetch_add(requests, Ordering::Relaxed);
        }
        allowed
    }
}

/// Words that wait to be said. Of what a gang waits for only the last counts, and nothing once it waits no longer.
#[derive(Default)]
struct Lane {
    words: VecDeque<(Instant, Calm)>,
    waits: VecDeque<Key>,
    why: HashMap<Key, Waiting>,
    /// Gangs of which it was said that they wait.
    said: HashSet<Key>,
}

impl Lane {
    fn add(&mut self, (since, word): (Instant, Calm)) {
        match word {
            Calm::Waits(mut waiting) => match self.why.get_mut(&waiting.gang.key) {
                None => {
                    self.waits.push_back(waiting.gang.key.clone());
                    self.why.insert(waiting.gang.key.clone(), waiting);
                }
                Some(before) if waiting.only_marks => before.mark.append(&mut waiting.mark),
                // Pods that were to be told with the word before are told with this one.
                Some(before) => {
                    let has = |mark: &Mark| waiting.mark.iter().any(|other| other.uid == mark.uid);
                    let left: Vec<Mark> = before.mark.drain(..).filter(|mark| !has(mark)).collect();
                    waiting.mark.extend(left);
                    *before = waiting;
                }
            },
            Calm::Placed(placed) => {
                let key = &placed.gang.key;
                if self.why.remove(key).is_some() && !self.said.contains(key) && !placed.seen {
                    return;
                }
                self.said.remove(key);
                self.words.push_back((since, Calm::Placed(placed)));
            }
            word => self.words.push_back((since, word)),
        }
    }

    /// The next gang that waits, if so much may be said about it.
    fn next_waiting(&mut self, allows: impl Fn(usize) -> bool) -> Option<Waiting> {
        while let Some(gang) = self.waits.front() {
            match self.why.get(gang) {
                None => drop(self.waits.pop_front()),
                Some(waiting) if !allows(1 + waiting.mark.len()) => return None,
                Some(_) => {
                    let gang = self.waits.pop_front()?;
                    let waiting = self.why.remove(&gang);
                    self.said.insert(gang);
                    return waiting;
                }
            }
        }
        None
    }
}

/// Where words that can wait are handed in.
#[derive(Clone)]
struct Lanes(Arc<[UnboundedSender<(Instant, Calm)>]>);

impl Lanes {
    fn send(&self, word: Calm) {
        let key = &word.gang().key;
        let bytes = key.namespace.bytes().chain(key.name.bytes());
        let sum = bytes.fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        if let Some(lane) = self.0.get(sum % self.0.len().max(1)) {
            // The receiver goes away only when everything ends.
            let _ = lane.send((Instant::now(), word));
        }
    }
}

impl Calm {
    fn gang(&self) -> &GroupRef {
        match self {
            Calm::Waits(waiting) => &waiting.gang,
            Calm::Placed(Placed { gang, .. })
            | Calm::Scheduled { gang, .. }
            | Calm::Failed { gang, .. }
            | Calm::Evicted { gang, .. }
            | Calm::Stale(gang, _)
            | Calm::Status(GroupStatus { gang, .. })
            | Calm::Stamp(gang, _) => gang,
        }
    }
}

impl Publisher {
    pub fn start(
        tasks: &mut JoinSet<()>,
        cx: &Context,
        binder: Binder,
        mode: BindMode,
        pool: Option<(String, String)>,
        limits: Limits,
        outcomes: UnboundedSender<Input>,
    ) -> Self {
        let (urgent, urgent_work) = unbounded_channel();
        let (slow, slow_work) = unbounded_channel();
        let (hopeless, hopeless_work) = unbounded_channel();
        let being_told = BeingTold::default();
        let (ungrouped, group_work) = unbounded_channel();
        let (senders, lane_work): (Vec<_>, Vec<_>) =
            (0..limits.status.max(1)).map(|_| unbounded_channel()).unzip();
        let lanes = Lanes(senders.into());
        let busy = Arc::new(AtomicUsize::new(0));
        let desk = Arc::new(Desk {
            api: cx.api.clone(),
            binder,
            events: cx.events.clone(),
            clock: cx.clock,
            mode,
            pool,
            limits,
            busy: busy.clone(),
            pace: Pace::new(),
            outcomes,
            lanes: lanes.clone(),
            being_told: being_told.clone(),
        });
        tasks.spawn(desk.clone().do_urgent(urgent_work, limits.binds, Some(busy.clone())));
        tasks.spawn(desk.clone().do_urgent(slow_work, limits.steps, None));
        tasks.spawn(desk.clone().do_hopeless(hopeless_work));
        tasks.spawn(desk.clone().do_ungrouped(group_work));
        for lane in lane_work {
            tasks.spawn(desk.clone().do_calm(lane));
        }
        Publisher { urgent, slow, mode, hopeless, being_told, ungrouped, lanes, busy }
    }

    /// How many bindings and evictions are waiting or on their way; those that are prepared for do not count.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Takes what a cycle decided. Nothing here waits; sending fails only when everything ends.
    pub fn publish(&self, output: &mut Output) {
        for eviction in output.evictions.drain(..) {
            self.busy.fetch_add(1, Ordering::Relaxed);
            let _ = self.urgent.send(Urgent::Evict(eviction));
        }
        for request in output.hopeless.drain(..) {
            let _ = self.hopeless.send(request);
        }
        let decided: Vec<Key> = output.placements.iter().map(|gang| gang.gang.key.clone()).collect();
        for gang in output.placements.drain(..) {
            self.being_told.is_placed(&gang.gang.key);
            if self.mode == BindMode::Inline && gang.pods.iter().any(takes_steps) {
                let _ = self.slow.send(Urgent::Place(gang));
            } else {
                self.busy.fetch_add(gang.pods.len(), Ordering::Relaxed);
                let _ = self.urgent.send(Urgent::Place(gang));
            }
        }
        for pod in output.ungrouped.drain(..) {
            let _ = self.ungrouped.send(pod);
        }
        for status in output.groups.drain(..) {
            self.lanes.send(Calm::Status(status));
        }
        let stale = output.stale.drain(..).map(|(gang, since)| Calm::Stale(gang, Some(since)));
        let recovered = output.recovered.drain(..).map(|gang| Calm::Stale(gang, None));
        let started = output.started.drain(..).map(|gang| Calm::Stamp(gang, LAST_START));
        let displaced = output.displaced.drain(..).map(|gang| Calm::Stamp(gang, LAST_EVICTION));
        let placed = output.placed.drain(..).map(Calm::Placed);
        let waits = output.waiting.drain(..).map(Calm::Waits);
        for word in stale.chain(recovered).chain(started).chain(displaced).chain(placed).chain(waits) {
            self.lanes.send(word);
        }
        // Somebody may have begun to speak of it before its lane was told that it waits no longer.
        decided.iter().for_each(|gang| self.being_told.is_placed(gang));
    }
}

impl Desk {
    /// Gangs are begun in the order in which they were decided, as many at a time as there is room for their requests.
    async fn do_urgent(
        self: Arc<Self>,
        mut work: UnboundedReceiver<Urgent>,
        limit: usize,
        busy: Option<Arc<AtomicUsize>>,
    ) {
        let room = Arc::new(Semaphore::new(limit));
        let mut under_way = JoinSet::new();
        while let Some(item) = work.recv().await {
            let n = item.size();
            let permits = u32::try_from(n.clamp(1, limit.max(1))).unwrap_or(u32::MAX);
            let Ok(held) = room.clone().acquire_many_owned(permits).await else { return };
            let (desk, busy) = (self.clone(), busy.clone());
            let in_flight = n.clamp(1, limit.max(1));
            under_way.spawn(async move {
                let pods = item.pods();
                let done = match item {
                    Urgent::Place(gang) => AssertUnwindSafe(desk.place(gang, in_flight)).catch_unwind().await,
                    Urgent::Evict(eviction) => AssertUnwindSafe(desk.evict(eviction)).catch_unwind().await,
                };
                if done.is_err() {
                    // Nobody would ever hear of these again.
                    pods.iter().for_each(|(pod, uid)| desk.tell(pod, uid, Err(Failure::Unanswered)));
                }
                desk.pace.count(n);
                if let Some(busy) = busy {
                    busy.fetch_sub(n, Ordering::Relaxed);
                }
                drop(held);
            });
            while under_way.try_join_next().is_some() {}
        }
    }

    async fn place(&self, placed: GangPlacement, in_flight: usize) {
        let GangPlacement { gang, needed, pods, action, minimum } = placed;
        self.being_told.silence(&gang.key).await;
        let assignments: Vec<Assignment> =
            pods.iter().map(|pod| Assignment { pool: self.pool.clone(), ..assignment(pod) }).collect();
        let results: Vec<Result<(), BindError>> = match self.mode {
            BindMode::Inline => {
                let results = self.binder.bind_gang(&assignments, needed, in_flight).await;
                results.into_iter().map(|result| result.map(|_| ())).collect()
            }
            BindMode::Service => self.binder.submit_gang(&assignments, needed, in_flight).await,
        };
        let n_bound = results.iter().filter(|result| result.is_ok()).count();
        let is_whole =
            minimum.is_kept(pods.iter().zip(&results).map(|(pod, result)| (pod.leaf, result.is_ok())));
        let refused = results.iter().zip(&assignments).find_map(|(result, assignment)| match result {
            Err(error @ (BindError::Refused { .. } | BindError::Retry { .. })) => {
                Some(format!("binding {} to {} failed: {error}", assignment.pod, assignment.node))
            }
            _ => None,
        });
        // A gang that lacks its minimum because of a refusal is of no use: what was bound makes way again.
        let rolled_back = refused.as_ref().filter(|_| !is_whole && self.mode == BindMode::Inline);
        for (result, pod) in results.iter().zip(&pods) {
            match (result, rolled_back) {
                (Ok(()), Some(why)) => {
                    let (pod, uid) = (pod.pod.clone(), pod.uid.clone());
                    let eviction = Eviction {
                        pod,
                        uid,
                        gang: gang.clone(),
                        action,
                        by: None,
                        moved: false,
                        forced: false,
                    };
                    self.evict_because(eviction, format!("rolled back: {why}")).await;
                }
                // A request for a bind is not a bind.
                (Ok(()), None) if self.mode == BindMode::Service => {
                    self.tell(&pod.pod, &pod.uid, Ok(Done::Asked));
                }
                (Ok(()), None) => self.tell(&pod.pod, &pod.uid, Ok(Done::Bound)),
                (Err(BindError::Gone | BindError::Elsewhere { .. }), _) => {
                    self.tell(&pod.pod, &pod.uid, Err(Failure::Overtaken));
                }
                // Whoever did not get an answer does not know.
                (Err(BindError::Retry { .. }), _) => {
                    self.tell(&pod.pod, &pod.uid, Err(Failure::Unanswered));
                }
                (Err(_), _) => self.tell(&pod.pod, &pod.uid, Err(Failure::Refused)),
            }
        }
        let example = pods.iter().zip(&results).find(|(_, result)| result.is_ok());
        if let Some((pod, _)) = example.filter(|_| rolled_back.is_none()) {
            let example = format!("{} to {}", pod.pod.name, pod.placement.node);
            self.lanes.send(Calm::Scheduled { gang: gang.clone(), pods: n_bound, example });
        }
        if let Some(message) = refused {
            tracing::warn!(gang = %gang.key, message, "a gang was not bound whole");
            self.lanes.send(Calm::Failed { gang, message });
        }
    }

    /// Takes requests away that a binder would try for ever. Only then their pods are decided anew: before, the binder might win.
    async fn do_hopeless(self: Arc<Self>, mut work: UnboundedReceiver<(Key, Name)>) {
        while let Some((request, uid)) = work.recv().await {
            let path = ingest::resource(Kind::BindRequest).path(&request.namespace, &request.name, "");
            let mut retries = Retries::default();
            let delete = || Delete { uid: &uid, ..Delete::default() };
            while let Err(error) = self.api.delete_path(&path, delete()).await {
                if error.not_found() || error.conflict() {
                    break;
                }
                match retries.next(is_retryable(&error)) {
                    Some(wait) => tokio::time::sleep(error.retry_after().unwrap_or(wait)).await,
                    None => {
                        tracing::warn!(%request, %error, "a bind request that failed for good was not deleted");
                        break;
                    }
                }
            }
        }
    }

    fn tell(&self, pod: &Key, uid: &str, result: Result<Done, Failure>) {
        let outcome = Outcome { pod: pod.clone(), uid: uid.to_owned(), result };
        let _ = self.outcomes.send(Input::Outcome(outcome));
    }

    /// The reason first, then the eviction: a pod never goes without a word.
    async fn evict(&self, eviction: Eviction) {
        let message = words::eviction(&eviction);
        self.evict_because(eviction, message).await;
    }

    async fn evict_because(&self, eviction: Eviction, message: String) {
        let pod = muster_runtime::Key::new(&*eviction.pod.namespace, &*eviction.pod.name);
        let (now, grace_seconds) = (self.clock.now(), eviction.forced.then_some(0));
        let mut retries = Retries::default();
        let failure = loop {
            match muster_binder::evict(&self.api, &pod, &eviction.uid, &message, now, grace_seconds).await {
                Ok(()) => break None,
                // Gone, or another pod under this name: there is nothing to evict.
                Err(error) if error.not_found() || error.conflict() => break Some(Failure::Overtaken),
                Err(error) => match retries.next(is_retryable(&error)) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => {
                        tracing::warn!(pod = %eviction.pod, %error, "an eviction failed");
                        break Some(Failure::Refused);
                    }
                },
            }
        };
        match failure {
            None => {
                self.tell(&eviction.pod, &eviction.uid, Ok(Done::Asked));
                self.lanes.send(Calm::Evicted { gang: eviction.gang, message });
            }
            Some(failure) => self.tell(&eviction.pod, &eviction.uid, Err(failure)),
        }
    }

    /// Gives pods that name no PodGroup the one that Volcano's controller would make: the group first, then its name on the pod.
    async fn do_ungrouped(self: Arc<Self>, mut work: UnboundedReceiver<Key>) {
        let room = Arc::new(Semaphore::new(self.limits.status.max(1)));
        let mut under_way = JoinSet::new();
        while let Some(pod) = work.recv().await {
            let Ok(held) = room.clone().acquire_owned().await else { return };
            let desk = self.clone();
            under_way.spawn(async move {
                let mut retries = Retries::default();
                while let Err(error) = desk.group(&pod).await {
                    match retries.next(is_retryable(&error)) {
                        Some(wait) => tokio::time::sleep(error.retry_after().unwrap_or(wait)).await,
                        None => {
                            tracing::warn!(%pod, %error, "a pod of Volcano's was given no group");
                            break;
                        }
                    }
                }
                drop(held);
            });
            while under_way.try_join_next().is_some() {}
        }
    }

    async fn group(&self, key: &Key) -> Result<(), ApiError> {
        let path = Pod::RESOURCE.path(&key.namespace, &key.name, "");
        let pod = match self.api.get_path(&path).await {
            Err(error) if error.not_found() => return Ok(()),
            other => other?,
        };
        let annotations = &pod["metadata"]["annotations"];
        if volcano::GROUP_ANNOTATIONS.iter().any(|annotation| annotations[*annotation].is_string()) {
            return Ok(());
        }
        let owner = match volcano::controller_of(&pod).and_then(|owner| owner_path(owner, &key.namespace)) {
            Some(path) => self.api.get_path(&path).await.ok(),
            None => None,
        };
        let request = muster_translate::volcano::request_of(&pod);
        let group = volcano::group_for(&pod, owner.as_ref(), &request, self.pool.as_ref());
        let groups = ingest::resource(Kind::VolcanoPodGroup).path(&key.namespace, "", "");
        match self.api.create_path(&groups, &group).await {
            Err(error) if error.conflict() => {}
            other => drop(other?),
        }
        let annotations = json!({volcano::GROUP_ANNOTATIONS[0]: group["metadata"]["name"]});
        let patch = json!({"metadata": {"uid": pod["metadata"]["uid"], "annotations": annotations}});
        match self.api.patch_path(&path, Patch::Merge, &patch).await {
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// One lane of what can wait. What concerns one gang is in one lane, so that the last word stays the last.
    async fn do_calm(self: Arc<Self>, mut work: UnboundedReceiver<(Instant, Calm)>) {
        let mut lane = Lane::default();
        loop {
            while let Ok(word) = work.try_recv() {
                lane.add(word);
            }
            if let Some((since, word)) = lane.words.pop_front() {
                self.wait_for_calm(since).await;
                self.say_surely(&word).await;
                continue;
            }
            let busy = self.busy.load(Ordering::Relaxed);
            if let Some(waiting) = lane.next_waiting(|requests| self.pace.allows(requests, busy)) {
                let gang = waiting.gang.key.clone();
                self.being_told.begin(&gang);
                let is_said = self.say_surely(&Calm::Waits(waiting)).await;
                self.being_told.end(&gang);
                if !is_said {
                    let _ = self.outcomes.send(Input::Unsaid(gang));
                }
                continue;
            }
            let next = match lane.waits.is_empty() {
                true => work.recv().await,
                false => match tokio::time::timeout(Duration::from_millis(20), work.recv()).await {
                    Ok(next) => next,
                    Err(_) => continue,
                },
            };
            match next {
                Some(word) => lane.add(word),
                None => return,
            }
        }
    }

    async fn say_surely(&self, word: &Calm) -> bool {
        let mut retries = Retries::default();
        while let Err(error) = self.say(word).await {
            match retries.next(is_retryable(&error)) {
                Some(wait) => tokio::time::sleep(error.retry_after().unwrap_or(wait)).await,
                None => {
                    tracing::debug!(%error, "a status was not written");
                    // What is refused once is refused again, and is not tried for ever.
                    return !is_retryable(&error);
                }
            }
        }
        true
    }

    /// Returns when no binding is waiting or on its way, or the word has waited long enough.
    async fn wait_for_calm(&self, since: Instant) {
        while self.busy.load(Ordering::Relaxed) > 0 && since.elapsed() < self.limits.patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn say(&self, word: &Calm) -> Result<(), ApiError> {
        match word {
            Calm::Scheduled { gang, pods, example } => {
                let more = if *pods > 1 { ", ..." } else { "" };
                let message = if gang.lone {
                    format!("Successfully assigned {}/{example}", gang.key.namespace)
                } else {
                    format!("{pods} {} placed: {example}{more}", if *pods == 1 { "pod" } else { "pods" })
                };
                self.event(gang, false, "Scheduled", message);
                Ok(())
            }
            Calm::Failed { gang, message } => {
                self.event(gang, true, "FailedBinding", message.clone());
                Ok(())
            }
            Calm::Evicted { gang, message } => {
                self.event(gang, false, "Evict", message.clone());
                Ok(())
            }
            Calm::Waits(waiting) => self.say_waits(waiting).await,
            Calm::Status(GroupStatus { gang, patch }) => self.patch_group(gang, patch, "").await,
            Calm::Placed(Placed { gang, entry, .. })
                if !entry || gang.lone || home(&gang.key).0 != Kind::PodGroup =>
            {
                Ok(())
            }
            Calm::Placed(Placed { gang, others, .. }) => {
                self.patch_group(gang, &json!({"status": {"schedulingConditions": others}}), "status").await
            }
            Calm::Stamp(gang, annotation) => {
                let annotations = json!({*annotation: stamp(self.clock.now())});
                self.patch_group(gang, &json!({"metadata": {"annotations": annotations}}), "").await
            }
            Calm::Stale(gang, since) => {
                let at = since.and_then(|since| Timestamp::from_millisecond(since.0).ok());
                let annotations = json!({"kai.scheduler/stale-podgroup-timestamp": at.map(stamp)});
                if since.is_some() {
                    let message =
                        "fewer pods run than its minimum; it is evicted unless the rest start in time";
                    self.event(gang, true, "StaleJob", message.to_owned());
                }
                self.patch_group(gang, &json!({"metadata": {"annotations": annotations}}), "").await
            }
        }
    }

    /// An event on the PodGroup, or on the lone pod.
    fn event(&self, gang: &GroupRef, warning: bool, reason: &'static str, message: String) {
        // The gang of a lone pod may be named aside; its object is the pod.
        let name = gang.key.name.strip_prefix("pod/").unwrap_or(&gang.key.name);
        let metadata = Meta {
            name: name.to_owned(),
            namespace: gang.key.namespace.to_string(),
            uid: gang.uid.to_string(),
            ..Meta::default()
        };
        let (kind, name) = home(&gang.key);
        let metadata_of_group = || Meta { name: name.to_owned(), ..metadata.clone() };
        macro_rules! say_of {
            ($type:ident) => {{
                let group = $type { metadata: metadata_of_group() };
                match warning {
                    true => self.events.warning(&group, reason, message),
                    false => self.events.normal(&group, reason, message),
                }
            }};
        }
        match kind {
            Kind::PodGang => return say_of!(PodGang),
            Kind::VolcanoPodGroup => return say_of!(VolcanoPodGroup),
            Kind::T9kPodGroup => return say_of!(T9kPodGroup),
            Kind::KoordinatorPodGroup => return say_of!(KoordinatorPodGroup),
            Kind::KubernetesPodGroup => return say_of!(KubernetesPodGroup),
            Kind::Workload => return say_of!(Workload),
            _ => {}
        }
        match (gang.lone, warning) {
            (true, true) => self.events.warning(&Pod { metadata, ..Pod::default() }, reason, message),
            (true, false) => self.events.normal(&Pod { metadata, ..Pod::default() }, reason, message),
            (false, true) => {
                self.events.warning(&PodGroup { metadata, ..PodGroup::default() }, reason, message)
            }
            (false, false) => {
                self.events.normal(&PodGroup { metadata, ..PodGroup::default() }, reason, message)
            }
        }
    }

    async fn patch_group(&self, gang: &GroupRef, patch: &Value, sub: &str) -> Result<(), ApiError> {
        let mut patch = patch.clone();
        patch["metadata"]["uid"] = json!(&*gang.uid);
        let path = match home(&gang.key) {
            (Kind::PodGroup, name) => PodGroup::RESOURCE.path(&gang.key.namespace, name, sub),
            // What KAI keeps in a PodGroup's status and annotations means nothing there: its status is Grove's to write, or a controller's.
            (kind, name) if matches!(kind, Kind::PodGang | Kind::VolcanoPodGroup) && sub != "status" => {
                ingest::resource(kind).path(&gang.key.namespace, name, sub)
            }
            _ => return Ok(()),
        };
        match self.api.patch_path(&path, Patch::Merge, &patch).await {
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    async fn say_waits(&self, waiting: &Waiting) -> Result<(), ApiError> {
        let now = stamp(self.clock.now());
        let pool = self.pool.as_ref().map_or(DEFAULT_POOL, |(_, value)| value);
        let message = if waiting.gang.lone {
            words::pod_waits(&waiting.refusal)
        } else {
            words::waits(&waiting.refusal)
        };
        let message = match &waiting.headline {
            Some(headline) => words::with_headline(headline, &waiting.refusal),
            None => message,
        };
        // A group that is not there can be told nothing; its pods can.
        let is_there = !waiting.gang.uid.is_empty();
        if waiting.only_marks || !is_there {
            // The rest was said before, or cannot be.
        } else if waiting.gang.lone {
            self.event(&waiting.gang, true, "FailedScheduling", message.clone());
        } else if waiting.headline.is_some() {
            // The condition is part of the group's status, which is written by itself.
            self.event(&waiting.gang, true, "Unschedulable", message.clone());
        } else {
            let ready = waiting.refusal.reasons.iter().all(|r| !matches!(r, Reason::NotReady { .. }));
            let reason = if ready { "Unschedulable" } else { "NotReady" };
            self.event(&waiting.gang, false, reason, message.clone());
            // A merge patch replaces the list; ours is the newest of it, so it is the last.
            let conditions = match &waiting.entry {
                Entry::Absent => None,
                Entry::Remove { others } => Some(others.clone()),
                Entry::Write { others, transitions, since } => {
                    let since = since.as_deref().unwrap_or(&now);
                    let transition = transitions.saturating_add(1);
                    let ours = words::scheduling_condition(&waiting.refusal, pool, since, transition);
                    Some(others.iter().cloned().chain([ours]).collect::<Vec<Value>>())
                }
            };
            if let Some(conditions) = conditions {
                let patch = json!({"status": {"schedulingConditions": conditions}});
                self.patch_group(&waiting.gang, &patch, "status").await?;
            }
        }
        let message = match (&waiting.headline, waiting.refusal.reasons.first()) {
            (Some(_), Some(Reason::NoNode { .. })) => words::pod_of_volcano_waits(&waiting.refusal),
            _ => message,
        };
        for Mark { pod, uid, again } in &waiting.mark {
            if !self.being_told.goes_on(&waiting.gang.key) {
                break;
            }
            let mut condition = json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            });
            // Since when it is so does not change with the reason.
            if !again {
                condition["lastTransitionTime"] = json!(now);
            }
            let patch = json!({"metadata": {"uid": &**uid}, "status": {"conditions": [condition]}});
            let path = Pod::RESOURCE.path(&pod.namespace, &pod.name, "status");
            match self.api.patch_path(&path, Patch::Strategic, &patch).await {
                Err(error) if error.not_found() || error.conflict() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

muster_runtime::kinds! {
    PodGang = "scheduler.grove.io" "v1alpha1" "PodGang" "podgangs";
    VolcanoPodGroup = "scheduling.volcano.sh" "v1beta1" "PodGroup" "podgroups";
    T9kPodGroup = "scheduler.tensorstack.dev" "v1beta1" "PodGroup" "podgroups";
    KoordinatorPodGroup = "scheduling.sigs.k8s.io" "v1alpha1" "PodGroup" "podgroups";
    KubernetesPodGroup = "scheduling.k8s.io" "v1alpha2" "PodGroup" "podgroups";
    Workload = "scheduling.k8s.io" "v1alpha1" "Workload" "workloads";
}

/// Groups of other systems, as far as events go.
macro_rules! groups {
    ($($type:ident)*) => {$(
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        struct $type {
            metadata: Meta,
        }
    )*};
}

groups! { PodGang VolcanoPodGroup T9kPodGroup KoordinatorPodGroup KubernetesPodGroup Workload }

/// The kind and the name of the object that a gang is made from.
fn home(gang: &Key) -> (Kind, &str) {
    let name: &str = &gang.name;
    let of = |prefix: &str, kind: Kind| name.strip_prefix(prefix).map(|name| (kind, name));
    let of_kubernetes = || {
        let (_, name) = of("kubernetes/", Kind::KubernetesPodGroup)?;
        // The gangs of a Workload are inside.
        Some(
            name.split_once('/').map_or((Kind::KubernetesPodGroup, name), |(name, _)| (Kind::Workload, name)),
        )
    };
    of(POD_GANG, Kind::PodGang)
        .or_else(|| of(volcano::PREFIX, Kind::VolcanoPodGroup))
        .or_else(|| of("t9k/", Kind::T9kPodGroup))
        .or_else(|| of("koordinator/", Kind::KoordinatorPodGroup))
        .or_else(of_kubernetes)
        .unwrap_or((Kind::PodGroup, name))
}

/// Whether a pod is prepared for before it is bound, which may take minutes.
fn takes_steps(pod: &PodPlacement) -> bool {
    let is_part = matches!(pod.received, Received::Part { .. }) || !pod.placement.gpu_groups.is_empty();
    is_part || !pod.claims.is_empty() || pod.volumes
}

fn assignment(pod: &PodPlacement) -> Assignment {
    let names = |names: &[muster_model::Name]| names.iter().map(|n| n.to_string()).collect();
    let (kind, gpu_count, gpu_portion_milli) = match pod.received {
        Received::Whole { count } => (muster_binder::Received::Regular, count, None),
        Received::Part { count, portion } => (muster_binder::Received::Fraction, count, Some(portion)),
        Received::Mig { count } => (muster_binder::Received::MigInstance, count, None),
    };
    Assignment {
        pod: muster_runtime::Key::new(&*pod.pod.namespace, &*pod.pod.name),
        pod_uid: pod.uid.to_string(),
        node: pod.placement.node.to_string(),
        kind,
        gpu_count,
        gpu_portion_milli,
        gpu_groups: names(&pod.placement.gpu_groups),
        claims: pod.claims.iter().map(|(name, allocation)| (name.to_string(), allocation.clone())).collect(),
        zones: pod.zones.clone(),
        volumes: pod.volumes,
        backoff_limit: Some(BINDER_TRIES),
        ..Assignment::default()
    }
}

/// Where the controller of a pod is, of the kinds whose annotations its pods' groups inherit.
fn owner_path(owner: &Value, namespace: &str) -> Option<String> {
    let plural = match owner["kind"].as_str()? {
        "ReplicaSet" => "replicasets",
        "StatefulSet" => "statefulsets",
        "DaemonSet" => "daemonsets",
        "Job" => "jobs",
        _ => return None,
    };
    let (version, name) = (owner["apiVersion"].as_str()?, owner["name"].as_str()?);
    version.contains('/').then(|| format!("/apis/{version}/namespaces/{namespace}/{plural}/{name}"))
}

fn is_retryable(error: &ApiError) -> bool {
    matches!(error.code(), 0 | 408 | 429 | 500..)
}

/// Waits between tries: 50 ms, 100 ms, ... at most 5 s; in all less than a promise lasts.
#[derive(Default)]
struct Retries(u32);

impl Retries {
    const MOST: u32 = 8;

    fn next(&mut self, worth_it: bool) -> Option<Duration> {
        self.0 += 1;
        (worth_it && self.0 <= Self::MOST)
            .then(|| Duration::from_millis(25 << self.0.min(8)).min(Duration::from_secs(5)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Refusal;

    fn gang(uid: &str) -> GroupRef {
        GroupRef { key: Key::new("n", uid), uid: uid.into(), lone: false }
    }

    fn waits(uid: &str, pods: u32) -> Calm {
        let refusal = Refusal {
            gang: Key::new("n", uid),
            queue: "q".into(),
            placed: 0,
            waiting: pods,
            needed: pods,
            reasons: Vec::new(),
            remedies: Vec::new(),
        };
        let mark = |n: u32| Mark {
            pod: Key::new("n", format!("{uid}-{n}")),
            uid: format!("u-{n}").into(),
            again: false,
        };
        Calm::Waits(Waiting {
            gang: gang(uid),
            refusal,
            mark: (0..pods).map(mark).collect(),
            headline: None,
            entry: Entry::Absent,
            only_marks: false,
        })
    }

    fn placed(uid: &str) -> Placed {
        Placed { gang: gang(uid), entry: true, seen: false, others: Vec::new() }
    }

    /// Without a limit the binder would try for ever what the scheduler has given to others after the first failure.
    #[test]
    fn a_request_says_after_how_many_failures_it_is_given_up() {
        let pod = PodPlacement {
            pod: Key::new("n", "p"),
            uid: "u".into(),
            leaf: 0,
            created: muster_model::Time(0),
            placement: muster_model::Placement {
                node: "a".into(),
                gpu_groups: Vec::new(),
                gpu_portion: None,
                gpus: Vec::new(),
                zones: Vec::new(),
                devices: Vec::new(),
            },
            received: Received::Whole { count: 1 },
            claims: Vec::new(),
            zones: None,
            volumes: false,
        };
        assert_eq!(assignment(&pod).backoff_limit, Some(BINDER_TRIES));
        assert!(!takes_steps(&pod) && !assignment(&pod).needs_steps());
        let shares = PodPlacement { received: Received::Part { count: 1, portion: 500 }, ..pod };
        assert!(takes_steps(&shares) && assignment(&shares).needs_steps());
    }

    #[test]
    fn of_what_a_gang_waits_for_the_last_word_counts_and_none_once_it_is_placed() {
        let mut lane = Lane::default();
        let now = Instant::now();
        for word in [waits("a", 1), waits("b", 1), waits("a", 2), waits("c", 1), Calm::Placed(placed("b"))] {
            lane.add((now, word));
        }
        assert!(lane.words.is_empty(), "nothing was said of b, so nothing is to be taken back");
        assert!(lane.next_waiting(|requests| requests < 3).is_none(), "a comes first, and asks for three");
        assert_eq!(lane.next_waiting(|_| true).map(|w| w.mark.len()), Some(2), "a, as it is now");
        assert_eq!(lane.next_waiting(|_| true).map(|w| w.gang.uid), Some("c".into()));
        assert!(lane.next_waiting(|_| true).is_none());
        lane.add((now, Calm::Placed(placed("a"))));
        assert!(matches!(lane.words.pop_front(), Some((_, Calm::Placed(_)))), "it was said of a");
        assert_eq!(lane.said.len(), 1, "c still waits");
    }

    #[tokio::test(start_paused = true)]
    async fn words_about_waiting_are_a_tenth_of_the_bindings_until_there_is_calm() {
        let pace = Pace::new();
        let allowed = |busy| (0..1_000).take_while(|_| pace.allows(9, busy)).count();
        assert_eq!(allowed(1), 2, "some ahead");
        pace.count(900);
        assert_eq!(allowed(1), 10);
        tokio::time::advance(Pace::CALM).await;
        assert_eq!(allowed(1), 0, "one is on its way");
        assert_eq!(allowed(0), 1_000, "calm");
        pace.count(1);
        assert_eq!(allowed(0), 0, "one has just been bound");
    }
}
