//! The binder as a scheduler calls it.
//!
//! In: assignments, one by one or a gang at a time. Out: for each, whether it is bound. Must stay true: everything that
//! must be prepared for any pod of a gang is prepared before the first of them is bound; what was prepared for a pod that
//! is not bound is undone, and for one that is, or may be, it is left; whatever takes steps is on record as a BindRequest
//! before its first step.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::common::{self, BindRequest};
use muster_runtime::metrics::{self, Counter, Gauge, Seconds};
use muster_runtime::{Api, Clock, Key};
use ring::rand::SecureRandom;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::assignment::{Assignment, INLINE, Received};
use crate::binding;
use crate::error::{BindError, Bound};
use crate::options::Options;
use crate::reservations;
use crate::service::plan::given_up;
use crate::service::round::{GATHERING, Round};
use crate::steps::{self, Pod, Seat, Step, Work};

/// So many pods of a gang are prepared at a time. Most of that is waiting; the requests of it have the caller's limit.
const PREPARING: usize = 1024;
/// How long the service tries a Binding before it calls the attempt a failure: a blink of the API is none.
const MOMENT: Duration = Duration::from_secs(2);

/// Binds pods. Clones are cheap and are the same binder: they take turns at the same shared GPU.
#[derive(Clone)]
pub struct Binder {
    inner: Arc<Inner>,
}

struct Inner {
    api: Api,
    options: Options,
    locks: Locks,
    /// Pods that a scheduler in this process is binding: the service leaves their BindRequests alone.
    held: Mutex<HashSet<Key>>,
    /// Nodes with shared GPUs, as far as their keeper in this process knows.
    shared: RwLock<HashMap<String, usize>>,
    /// For what is said of pods that make way.
    clock: Clock,
    counts: Option<Counts>,
}

impl Binder {
    pub fn new(api: Api, options: Options) -> Self {
        Binder {
            inner: Arc::new(Inner {
                counts: api.metrics().map(|metrics| Counts::of(&metrics.binder)),
                api,
                options,
                locks: Locks::default(),
                held: Mutex::default(),
                shared: RwLock::default(),
                clock: Clock::system(),
            }),
        }
    }

    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.inner.locks
    }

    /// Binds one pod: the steps that it needs, then the Binding. While the API has a bad moment it is tried again, for
    /// [`Options::patience`].
    pub async fn bind(&self, assignment: &Assignment) -> Result<Bound, BindError> {
        if !assignment.needs_steps() {
            let until = Instant::now() + self.inner.options.patience;
            return self.post(assignment, until, &CancellationToken::new()).await;
        }
        let mut results = self.bind_gang(std::slice::from_ref(assignment), 1, 1).await;
        results.pop().unwrap_or(Err(BindError::Gone))
    }

    /// Binds one pod that needs no steps with one request, once. A pod that turns out to be on that node already counts
    /// as bound.
    pub async fn bind_plain(&self, assignment: &Assignment) -> Result<Bound, BindError> {
        self.settle(assignment).await?;
        binding::post(&self.inner.api, assignment).await
    }

    /// Binds a gang: first all steps of all its pods, then all its Bindings, at most `in_flight` requests at a time. Pods
    /// that only wait for a step, such as for a volume, keep nobody from theirs.
    ///
    /// `needed`: with so many of the pods the gang counts as whole; the length of `gang` if it must be all of them. When
    /// so many can no longer be bound, the rest is not tried and what was prepared for it is undone.
    ///
    /// Out: a result per assignment, in their order. A Binding cannot be taken back: if some results are `Ok` and too few
    /// of them, it is for the caller to decide what becomes of these pods.
    pub async fn bind_gang(
        &self,
        gang: &[Assignment],
        needed: usize,
        in_flight: usize,
    ) -> Vec<Result<Bound, BindError>> {
        let with_steps = gang.iter().filter(|assignment| assignment.needs_steps());
        let _held: Vec<Hold> = with_steps.map(|assignment| self.hold(assignment.pod.clone())).collect();
        self.carry_out(gang, needed, in_flight, Way::Inline, CancellationToken::new()).await
    }

    /// One attempt of the service. `stop` is cancelled when it is not wanted any more.
    pub(crate) async fn attempt(
        &self,
        gang: &[Assignment],
        needed: usize,
        in_flight: usize,
        stop: CancellationToken,
    ) -> Vec<Result<Bound, BindError>> {
        self.carry_out(gang, needed, in_flight, Way::Service, stop).await
    }

    async fn carry_out(
        &self,
        gang: &[Assignment],
        needed: usize,
        in_flight: usize,
        way: Way,
        stop: CancellationToken,
    ) -> Vec<Result<Bound, BindError>> {
        let patience = self.inner.options.patience;
        let (preparing, posting) = match way {
            Way::Inline => (patience, patience),
            Way::Service => (Duration::ZERO, patience.min(MOMENT)),
        };
        let _under_way = self.inner.counts.as_ref().map(|counts| counts.begin(gang.len()));
        let mut progress = Progress::new(gang, needed, stop.clone(), self.inner.counts.as_ref());
        let with_steps: Vec<usize> = (0..gang.len()).filter(|i| gang[*i].needs_steps()).collect();

        let mut prepared: Vec<Option<Box<Prepared>>> = gang.iter().map(|_| None).collect();
        let room = Arc::new(Semaphore::new(in_flight.max(1)));
        let attempts = with_steps.iter().map(|i| {
            let (assignment, stop, seat) = (&gang[*i], &stop, Seat::of(&room));
            async move {
                seat.take().await;
                if way == Way::Inline
                    && let Err(error) = self.record(assignment, stop).await
                {
                    return (*i, Err(error));
                }
                (*i, self.prepare(assignment, preparing, &seat, stop).await)
            }
        });
        each(PREPARING, attempts, |(i, result)| match result {
            Ok(Ready::Bound) => progress.enter(i, Ok(Bound { already: true })),
            Ok(Ready::Prepared(what)) => prepared[i] = Some(what),
            Err(error) => progress.enter(i, Err(error)),
        })
        .await;

        let open = (0..gang.len()).filter(|i| progress.results[*i].is_none()).collect::<Vec<usize>>();
        // Each has its own patience, however long the steps took, until it was in vain for one of them.
        let in_vain = AtomicBool::new(false);
        let posts = open.iter().map(|i| {
            let (assignment, stop, in_vain) = (&gang[*i], &stop, &in_vain);
            async move {
                // Not begun when it became pointless: left for the roll-back.
                if stop.is_cancelled() {
                    return (*i, None);
                }
                let patience = if in_vain.load(Ordering::Relaxed) { Duration::ZERO } else { posting };
                let result = self.post(assignment, Instant::now() + patience, stop).await;
                if result.as_ref().is_err_and(BindError::retryable) {
                    in_vain.store(true, Ordering::Relaxed);
                }
                (*i, Some(result))
            }
        });
        each(in_flight, posts, |(i, result)| {
            if let Some(result) = result {
                progress.enter(i, result);
            }
        })
        .await;

        let mut results = progress.finish();
        if !with_steps.is_empty() {
            let mut found_bound: Vec<usize> = Vec::new();
            let ends = with_steps.iter().map(|i| {
                let (assignment, result, prepared) = (&gang[*i], &results[*i], &prepared[*i]);
                async move {
                    let undone = match (result, prepared) {
                        (Err(error), Some(prepared)) => self.undo(assignment, prepared, error).await,
                        _ => Undone::Done,
                    };
                    let bound = Ok(Bound { already: true });
                    match (way, undone) {
                        (Way::Inline, Undone::Done) => self.close_record(assignment, result).await,
                        (Way::Inline, Undone::Bound) => self.close_record(assignment, &bound).await,
                        // Its record stays open, and the service finds out what became of it.
                        (Way::Inline, Undone::Unknown) | (Way::Service, _) => {}
                    }
                    (*i, undone)
                }
            });
            each(in_flight, ends, |(i, undone)| {
                if undone == Undone::Bound {
                    found_bound.push(i);
                }
            })
            .await;
            for i in found_bound {
                results[i] = Ok(Bound { already: true });
            }
        }
        results
    }

    /// Hands the assignment to the service: writes its BindRequest. One that is already there and says the same is left
    /// alone; one that says something else, or has failed for good, is replaced.
    pub async fn submit(&self, assignment: &Assignment) -> Result<(), BindError> {
        let until = Instant::now() + self.inner.options.patience;
        self.keep_writing(assignment, assignment.to_bind_request(), until, &CancellationToken::new()).await
    }

    /// Hands a whole gang to the service, which carries it out as [`Binder::bind_gang`] does. Out: a result per
    /// assignment. If some could not be written, the service gives the others back after a moment.
    pub async fn submit_gang(
        &self,
        gang: &[Assignment],
        needed: usize,
        in_flight: usize,
    ) -> Vec<Result<(), BindError>> {
        let round = Round::new(gang, needed, &some_name());
        // Later ones would come when the others have been given back.
        let until = Instant::now() + self.inner.options.patience.min(GATHERING / 2);
        let never = CancellationToken::new();
        let mut results: Vec<Result<(), BindError>> = gang.iter().map(|_| Ok(())).collect();
        let writes = gang.iter().enumerate().map(|(i, assignment)| {
            let mut body = assignment.to_bind_request();
            if gang.len() > 1 {
                body["metadata"]["annotations"] = round.annotations();
            }
            let never = &never;
            async move { (i, self.keep_writing(assignment, body, until, never).await) }
        });
        each(in_flight, writes, |(i, result)| results[i] = result).await;
        results
    }

    /// Writes a request; again while the API has a bad moment.
    async fn keep_writing(
        &self,
        assignment: &Assignment,
        body: Value,
        until: Instant,
        stop: &CancellationToken,
    ) -> Result<(), BindError> {
        let mut pauses = Pauses::default();
        loop {
            match self.write_request(assignment, &body).await {
                Err(error) if error.retryable() => {
                    if !pauses.wait(error.after(), until, stop).await {
                        return Err(error);
                    }
                }
                end => return end,
            }
        }
    }

    async fn write_request(&self, assignment: &Assignment, body: &Value) -> Result<(), BindError> {
        let key = &assignment.pod;
        // Twice: an old request may have to go first.
        for _ in 0..3 {
            let error = match self.inner.api.create::<BindRequest>(&key.namespace, body).await {
                Ok(_) => return Ok(()),
                Err(error) if error.already_exists() => error,
                Err(error) => return Err(error.into()),
            };
            let found: BindRequest = match self.inner.api.get(key).await {
                Ok(found) => found,
                Err(error) if error.not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            if same_request(&found, body) {
                return Ok(());
            }
            if found.metadata.deleting() {
                return Err(error.into());
            }
            let delete = Delete { uid: &found.metadata.uid, ..Delete::default() };
            match self.inner.api.delete::<BindRequest>(key, delete).await {
                Ok(_) => {}
                Err(error) if error.not_found() || error.conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(BindError::retry(format!("BindRequest {key} changes too often to be replaced")))
    }

    /// Carries out the steps. They are tried again for so long while the API has a bad moment; time in which they only
    /// waited does not count. If they fail they are undone.
    async fn prepare(
        &self,
        assignment: &Assignment,
        patience: Duration,
        seat: &Seat,
        stop: &CancellationToken,
    ) -> Result<Ready, BindError> {
        let options = &self.inner.options;
        let mut until = Instant::now() + patience;
        let last = until + options.volume_wait + options.reservation.wait;
        let mut pauses = Pauses::default();
        loop {
            let (error, undo) = match self.prepare_once(assignment, seat, stop).await {
                Ok(ready) => return Ok(ready),
                Err(failed) => failed,
            };
            let waited = seat.take_waited();
            until = (until + waited.how_long).min(last);
            if error.retryable() && !waited.in_vain && pauses.wait(error.after(), until, stop).await {
                continue;
            }
            if let Some(prepared) = undo
                && self.undo(assignment, &prepared, &error).await == Undone::Bound
            {
                return Ok(Ready::Bound);
            }
            return Err(error);
        }
    }

    async fn prepare_once(
        &self,
        assignment: &Assignment,
        seat: &Seat,
        stop: &CancellationToken,
    ) -> Result<Ready, (BindError, Option<Box<Prepared>>)> {
        let pod: Pod = match self.inner.api.get(&assignment.pod).await {
            Ok(pod) => pod,
            Err(error) if error.not_found() => return Err((BindError::Gone, None)),
            Err(error) => return Err((error.into(), None)),
        };
        match binding::standing(&pod.metadata, &pod.spec.node_name, &pod.status.phase, assignment) {
            Some(Ok(_)) => return Ok(Ready::Bound),
            Some(Err(error)) => return Err((error, None)),
            None => {}
        }
        let steps = match steps::plan(assignment, &pod) {
            Ok(steps) => steps,
            Err(error) => {
                // An earlier attempt may have gone further.
                let steps = steps::brought(assignment, &pod);
                return Err((error, Some(Box::new(Prepared { pod, steps }))));
            }
        };
        match self.work(assignment, &pod, seat, stop).perform(&steps).await {
            Ok(()) => Ok(Ready::Prepared(Box::new(Prepared { pod, steps }))),
            Err(error) => Err((error, Some(Box::new(Prepared { pod, steps })))),
        }
    }

    /// Takes back what was prepared, unless the pod is on its node after all: a Binding whose answer was lost is a Binding.
    /// It is tried again while the API has a bad moment.
    async fn undo(&self, assignment: &Assignment, prepared: &Prepared, error: &BindError) -> Undone {
        let elsewhere = match self.standing(assignment).await {
            Standing::Unknown => {
                tracing::warn!(pod = %assignment.pod, %error, "whether the pod is bound is not known; its steps are left");
                return Undone::Unknown;
            }
            Standing::End(Ok(_)) => return Undone::Bound,
            Standing::End(Err(end)) => matches!(end, BindError::Elsewhere { .. }),
            Standing::Free => false,
        };
        // Elsewhere it runs where another assignment put it, and uses what was prepared for that one.
        let mut steps = if elsewhere { vec![Step::Mark] } else { prepared.steps.clone() };
        let (seat, never) = (Seat::of(&Arc::new(Semaphore::new(1))), CancellationToken::new());
        let work = self.work(assignment, &prepared.pod, &seat, &never);
        let until = Instant::now() + self.inner.options.patience;
        let mut pauses = Pauses::default();
        loop {
            steps = work.undo(&steps).await;
            if steps.is_empty() || !pauses.wait(None, until, &never).await {
                return Undone::Done;
            }
        }
    }

    /// Takes back what earlier attempts may have prepared for assignments that are given up without another one.
    pub(crate) async fn take_back(&self, gang: &[Assignment], error: &BindError) {
        let all = gang.iter().map(|assignment| self.take_back_one(assignment, error));
        each(self.inner.options.concurrency, all, |()| {}).await;
    }

    async fn take_back_one(&self, assignment: &Assignment, error: &BindError) {
        if !assignment.needs_steps() {
            return;
        }
        match self.inner.api.get::<Pod>(&assignment.pod).await {
            Ok(pod) => {
                let steps = steps::brought(assignment, &pod);
                self.undo(assignment, &Prepared { pod, steps }, error).await;
            }
            Err(error) if error.not_found() => {}
            Err(error) => {
                tracing::warn!(pod = %assignment.pod, %error, "what was prepared was not taken back")
            }
        }
    }

    /// What the pod says about the assignment. It is asked again while the API has a bad moment.
    async fn standing(&self, assignment: &Assignment) -> Standing {
        let (until, never) = (Instant::now() + self.inner.options.patience, CancellationToken::new());
        let mut pauses = Pauses::default();
        loop {
            let error = match self.inner.api.get::<common::Pod>(&assignment.pod).await {
                Ok(pod) => {
                    let phase = pod.status.phase.as_str();
                    let end = binding::standing(&pod.metadata, &pod.spec.node_name, phase, assignment);
                    return end.map_or(Standing::Free, Standing::End);
                }
                Err(error) if error.not_found() => return Standing::End(Err(BindError::Gone)),
                Err(error) => BindError::from(error),
            };
            if !pauses.wait(error.after(), until, &never).await {
                return Standing::Unknown;
            }
        }
    }

    fn work<'a>(
        &'a self,
        assignment: &'a Assignment,
        pod: &'a Pod,
        seat: &'a Seat,
        stop: &'a CancellationToken,
    ) -> Work<'a> {
        let Inner { api, options, locks, clock, .. } = &*self.inner;
        Work { api, options, locks, clock: *clock, assignment, pod, seat, stop }
    }

    /// Posts the Binding until it works, cannot work, or the time is over. Then the pod tells whether one of them worked
    /// whose answer never came.
    async fn post(
        &self,
        assignment: &Assignment,
        until: Instant,
        stop: &CancellationToken,
    ) -> Result<Bound, BindError> {
        let mut pauses = Pauses::default();
        let mut in_doubt = false;
        let error = loop {
            match self.bind_plain(assignment).await {
                Err(error) if error.retryable() => {
                    in_doubt = true;
                    if !pauses.wait(error.after(), until, stop).await {
                        break error;
                    }
                }
                Err(error) if in_doubt => break error,
                end => return end,
            }
        };
        match self.standing(assignment).await {
            Standing::End(end) => end,
            Standing::Free | Standing::Unknown => Err(error),
        }
    }

    /// A GPU that was shared until a moment ago may still be held. Whoever gets whole GPUs of a node with shared ones has
    /// it tidied up first.
    async fn settle(&self, assignment: &Assignment) -> Result<(), BindError> {
        if assignment.gpu_count == 0 || assignment.kind != Received::Regular {
            return Ok(());
        }
        let shared = {
            let nodes = self.inner.shared.read().unwrap_or_else(PoisonError::into_inner);
            nodes.contains_key(&assignment.node)
        };
        if shared {
            reservations::settle(&self.inner.api, &self.inner.options, &assignment.node).await?;
        }
        Ok(())
    }

    /// Keeps count of the reservations of a node.
    pub(crate) fn count_shared(&self, node: &str, up: bool) {
        let mut nodes = self.inner.shared.write().unwrap_or_else(PoisonError::into_inner);
        if up {
            *nodes.entry(node.to_owned()).or_insert(0) += 1;
        } else if let Some(n) = nodes.get_mut(node) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                nodes.remove(node);
            }
        }
    }

    fn hold(&self, pod: Key) -> Hold {
        self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.clone());
        Hold { binder: self.clone(), pod }
    }

    /// Whether a scheduler in this process is binding the pod.
    pub(crate) fn is_held(&self, pod: &Key) -> bool {
        self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).contains(pod)
    }

    async fn record(&self, assignment: &Assignment, stop: &CancellationToken) -> Result<(), BindError> {
        let mut body = assignment.to_bind_request();
        body["metadata"]["annotations"] = json!({INLINE: self.inner.options.owner});
        let until = Instant::now() + self.inner.options.patience;
        self.keep_writing(assignment, body, until, stop).await
    }

    /// Writes the end of an assignment into its BindRequest. If that fails the service finds out by itself.
    async fn close_record(&self, assignment: &Assignment, result: &Result<Bound, BindError>) {
        let status = match result {
            Ok(_) => json!({"phase": "Succeeded", "reason": null}),
            Err(BindError::Gone) => return,
            Err(error) => given_up(assignment.backoff_limit, error),
        };
        let patch = json!({"status": status});
        if let Err(error) =
            self.inner.api.patch::<BindRequest>(&assignment.pod, "status", Patch::Merge, &patch).await
        {
            tracing::debug!(pod = %assignment.pod, %error, "the end of a bind was not written down");
        }
    }
}

/// Who carries out assignments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A scheduler by itself: what takes steps is written down first, and bad moments are sat out.
    Inline,
    /// The service: it is written down already, and every attempt counts.
    Service,
}

/// What became of a pod's preparation.
enum Ready {
    /// It is on its node already.
    Bound,
    Prepared(Box<Prepared>),
}

struct Prepared {
    pod: Pod,
    steps: Vec<Step>,
}

/// What the pod says about an assignment.
enum Standing {
    /// It waits for its node.
    Free,
    /// It is on a node, or gone.
    End(Result<Bound, BindError>),
    /// The API did not tell.
    Unknown,
}

/// What became of what was prepared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undone {
    /// It was taken back, as far as the API lets it.
    Done,
    /// It is in use: the pod is on its node.
    Bound,
    /// It was left, since the pod may be on its node.
    Unknown,
}

/// A gang on its way.
struct Progress<'a> {
    gang: &'a [Assignment],
    needed: usize,
    results: Vec<Option<Result<Bound, BindError>>>,
    n_failed: usize,
    /// Who made it pointless, and how.
    culprit: Option<(Key, String)>,
    stop: CancellationToken,
    begun: Instant,
    counts: Option<&'a Counts>,
}

impl<'a> Progress<'a> {
    fn new(
        gang: &'a [Assignment],
        needed: usize,
        stop: CancellationToken,
        counts: Option<&'a Counts>,
    ) -> Self {
        Progress {
            gang,
            needed: needed.min(gang.len()),
            results: gang.iter().map(|_| None).collect(),
            n_failed: 0,
            culprit: None,
            stop,
            begun: Instant::now(),
            counts,
        }
    }

    fn enter(&mut self, i: usize, result: Result<Bound, BindError>) {
        if let Err(error) = &result {
            self.n_failed += 1;
            if self.culprit.is_none() && self.gang.len() - self.n_failed < self.needed {
                self.culprit = Some((self.gang[i].pod.clone(), error.to_string()));
                self.stop.cancel();
            }
        }
        if let (Ok(_), Some(counts)) = (&result, self.counts) {
            counts.took.took(self.begun.elapsed());
        }
        self.results[i] = Some(result);
    }

    fn finish(self) -> Vec<Result<Bound, BindError>> {
        let stopped = match &self.culprit {
            Some((by, text)) => BindError::RolledBack { by: by.clone(), text: text.clone() },
            None => BindError::refused("its request, or another one of its gang, was withdrawn"),
        };
        let by_itself = |i: usize| self.culprit.as_ref().is_some_and(|(by, _)| *by == self.gang[i].pod);
        let results = self.results.into_iter().enumerate();
        let results: Vec<_> = results
            .map(|(i, result)| match result {
                // What was only interrupted has no reason of its own.
                Some(Err(BindError::Retry { .. })) if self.stop.is_cancelled() && !by_itself(i) => {
                    Err(stopped.clone())
                }
                Some(result) => result,
                None => Err(stopped.clone()),
            })
            .collect();
        if let Some(counts) = self.counts {
            results.iter().for_each(|result| counts.ended(result));
        }
        results
    }
}

/// What is counted of bindings, found once: the counters themselves are cheap, finding them is not.
struct Counts {
    took: Seconds,
    in_flight: Gauge,
    bound: Counter,
    failed: Counter,
    gone: Counter,
    rolled_back: Counter,
}

impl Counts {
    fn of(families: &metrics::Binder) -> Self {
        let binds = |result| families.binds.of([result]);
        Counts {
            took: families.bind.clone(),
            in_flight: families.in_flight.clone(),
            bound: binds("bound"),
            failed: binds("failed"),
            gone: binds("gone"),
            rolled_back: binds("rolled-back"),
        }
    }

    /// So many are under way for as long as the answer lives.
    fn begin(&self, n: usize) -> UnderWay {
        self.in_flight.add(n as f64);
        UnderWay { in_flight: self.in_flight.clone(), n }
    }

    fn ended(&self, result: &Result<Bound, BindError>) {
        match result {
            Ok(_) => &self.bound,
            Err(BindError::Gone) => &self.gone,
            Err(BindError::RolledBack { .. }) => &self.rolled_back,
            Err(BindError::Retry { .. } | BindError::Elsewhere { .. } | BindError::Refused { .. }) => {
                &self.failed
            }
        }
        .inc();
    }
}

struct UnderWay {
    in_flight: Gauge,
    n: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.in_flight.add(-(self.n as f64));
    }
}

/// Runs futures, so many at a time, and hands over what each gives.
async fn each<T, F: Future<Output = T>>(
    in_flight: usize,
    mut futures: impl Iterator<Item = F>,
    mut took: impl FnMut(T),
) {
    let mut running = FuturesUnordered::new();
    running.extend(futures.by_ref().take(in_flight.max(1)));
    while let Some(end) = running.next().await {
        took(end);
        running.extend(futures.next());
    }
}

/// Waits between attempts: 50 ms, 100 ms, ... 2 s, or as long as the server asked for.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    /// `false` when there is no time left, or no reason to go on.
    async fn wait(&mut self, asked: Option<Duration>, until: Instant, stop: &CancellationToken) -> bool {
        let pause = asked.unwrap_or(Duration::from_millis(50) * 2_u32.pow(self.0.min(5)));
        self.0 = self.0.saturating_add(1);
        let at = Instant::now() + pause.min(Duration::from_secs(60));
        at < until && stop.run_until_cancelled(tokio::time::sleep_until(at)).await.is_some()
    }
}

/// Whether a request that is there stands for the same bind, and may still bring it about.
fn same_request(found: &BindRequest, body: &Value) -> bool {
    let owner = |uid: Option<&str>| uid.unwrap_or_default().to_owned();
    let ours = owner(body["metadata"]["ownerReferences"][0]["uid"].as_str());
    let theirs = owner(found.metadata.owner_references.first().map(|o| o.uid.as_str()));
    let failed = found.status.get("phase").and_then(Value::as_str) == Some("Failed");
    // A request of an earlier round of the gang would wait for others of that round.
    let same_round = Round::id_of(&found.metadata) == Round::id_in(body);
    !found.metadata.deleting() && !failed && same_round && ours == theirs && json!(found.spec) == body["spec"]
}

/// A name that nobody has thought of yet.
fn some_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0_u8; 8];
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_err() {
        // Of this process alone, then.
        bytes = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// While this lives the service leaves the pod's BindRequest alone.
struct Hold {
    binder: Binder,
    pod: Key,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.binder.inner.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pod);
    }
}

/// Turns: one at a time per name.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Locks {
    pub async fn turn(&self, name: &str) -> tokio::sync::OwnedMutexGuard<()> {
        self.named(name).lock_owned().await
    }

    /// `None` if somebody else is at it.
    pub fn try_turn(&self, name: &str) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        self.named(name).try_lock_owned().ok()
    }

    fn named(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(name).and_then(Weak::upgrade) {
            Some(lock) => lock,
            None => {
                if known.len() >= 256 {
                    known.retain(|_, lock| lock.strong_count() > 0);
                }
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                known.insert(name.to_owned(), Arc::downgrade(&lock));
                lock
            }
        }
    }
}
