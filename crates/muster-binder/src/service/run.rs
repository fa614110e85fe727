//! Tries BindRequests.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_runtime::api::Patch;
use muster_runtime::clock::{stamp, until};
use muster_runtime::common::{BindRequest, Node, Pod};
use muster_runtime::object::condition;
use muster_runtime::queue::{Next, Queue, work};
use muster_runtime::store::Store;
use muster_runtime::{ApiError, Context, Key, Object};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plan::{Todo, attempts, cause, failed, has_failed, has_succeeded, succeeded, todo};
use super::round::{Gathered, Round};
use crate::assignment::{Assignment, INLINE};
use crate::binder::Binder;
use crate::binding::standing;
use crate::error::{BindError, Bound};
use crate::evict::evict;

const POD_BOUND: &str = "PodBound";
/// How long one waits before one asks again whether others are done with a gang.
const ANOTHER_IS_AT_IT: Duration = Duration::from_millis(200);

struct Service {
    cx: Context,
    binder: Binder,
    requests: Arc<Store<BindRequest>>,
    /// Those that are known without asking.
    nodes: Option<Arc<Store<Node>>>,
    /// Only requests of this scheduler.
    own: Option<String>,
    queue: Arc<Queue<Key>>,
    /// What is being carried out, and how to stop it.
    running: Arc<Running>,
    /// The requests of each round.
    rounds: Arc<Mutex<HashMap<String, BTreeSet<Key>>>>,
    /// When a request that failed is tried again, by its name and uid.
    appointments: Mutex<HashMap<Key, (String, Instant)>>,
}

/// Which requests are carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    All,
    /// Those that a scheduler with our own name for leases has written to bind by itself.
    Own,
}

pub(super) fn start(cx: &Context, binder: &Binder, whose: Whose) -> impl Future<Output = ()> + Send + use<> {
    let cx = cx.named("muster-binder");
    let requests = cx.stores.of::<BindRequest>();
    // Few requests are left behind: their nodes are asked for one by one.
    let nodes = (whose == Whose::All).then(|| cx.stores.of::<Node>());
    let own = (whose == Whose::Own).then(|| binder.options().owner.clone());
    let queue: Arc<Queue<Key>> = Queue::new();
    let rounds: Arc<Mutex<HashMap<String, BTreeSet<Key>>>> = Arc::default();
    let running: Arc<Running> = Arc::default();
    {
        let (queue, rounds, running) = (queue.clone(), rounds.clone(), running.clone());
        let own = own.clone();
        requests.observe(move |change| {
            if !change.sides().any(|request| is_for(own.as_deref(), request)) {
                return;
            }
            if let Some(old) = change.old
                && change
                    .new
                    .is_none_or(|new| new.metadata.uid != old.metadata.uid || new.metadata.deleting())
            {
                running.stop(&old.key());
            }
            for (request, up) in
                change.old.map(|r| (r, false)).into_iter().chain(change.new.map(|r| (r, true)))
            {
                let Some(round) = Round::of(request) else { continue };
                let mut rounds = rounds.lock().unwrap_or_else(PoisonError::into_inner);
                let members = rounds.entry(round.id.clone()).or_default();
                if up {
                    members.insert(request.key())
                } else {
                    members.remove(&request.key())
                };
                // The first of them waits for the last.
                if change.old.is_none() && members.len() >= round.size {
                    members.first().into_iter().for_each(|first| queue.add(first.clone()));
                }
                // Whoever is gone may have been the one that spoke for all.
                if change.new.is_none() {
                    members.iter().for_each(|member| queue.add(member.clone()));
                }
                if members.is_empty() {
                    rounds.remove(&round.id);
                }
            }
            if let Some(request) = change.latest() {
                queue.add(request.key());
            }
        });
    }
    let service = Service {
        cx,
        binder: binder.clone(),
        requests,
        nodes,
        own,
        queue: queue.clone(),
        running,
        rounds,
        appointments: Mutex::default(),
    };
    async move {
        let cx = &service.cx;
        let synced = async {
            service.requests.synced().await;
            if let Some(nodes) = &service.nodes {
                nodes.synced().await;
            }
        };
        if cx.synced([synced]).await.is_none() {
            return;
        }
        let n_workers = service.binder.options().concurrency.max(1);
        work("binder", queue, n_workers, cx.cancel.clone(), |key| service.look(key)).await;
    }
}

/// Whether a request is to be carried out by who carries out all, or only those of one scheduler.
fn is_for(own: Option<&str>, request: &BindRequest) -> bool {
    own.is_none_or(|own| request.metadata.annotation(INLINE) == Some(own))
}

impl Service {
    async fn look(&self, key: Key) -> Result<Next, ApiError> {
        let Some(request) = self.requests.get(&key) else {
            self.lock().remove(&key);
            return Ok(Next::Idle);
        };
        if !is_for(self.own.as_deref(), &request) {
            return Ok(Next::Idle);
        }
        if self.binder.is_held(&key) {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let request = match self.appointment(&request) {
            Some(wait) if !wait.is_zero() => return Ok(Next::After(wait)),
            // It may be hours old; what a scheduler has replaced meanwhile must not be tried.
            Some(_) => match self.cx.api.get::<BindRequest>(&key).await {
                Ok(fresh) => Arc::new(fresh),
                Err(error) if error.not_found() => return Ok(Next::Idle),
                Err(error) => return Err(error),
            },
            None => request,
        };
        if let Some(round) = Round::of(&request) {
            return self.look_at_round(&key, &round).await;
        }
        match self.todo(&request) {
            Todo::Nothing => {
                self.lock().remove(&key);
                Ok(Next::Idle)
            }
            Todo::Wait(left) => Ok(Next::After(left)),
            Todo::Refuse(malformed) => {
                let error = BindError::refused(malformed.to_string());
                self.fail(&request, None, &error).await
            }
            Todo::Attempt(assignment) => {
                let stop = self.running.begin([&key]);
                let result = match self.check_node(&assignment).await {
                    Ok(()) => {
                        let gang = std::slice::from_ref(&*assignment);
                        self.binder.attempt(gang, 1, 1, stop.token.clone()).await.pop()
                    }
                    Err(error) => {
                        self.give_up(std::slice::from_ref(&*assignment), &error).await;
                        Some(Err(error))
                    }
                };
                self.end(&request, &assignment, result.unwrap_or(Err(BindError::Gone))).await
            }
        }
    }

    fn todo(&self, request: &BindRequest) -> Todo {
        let options = self.binder.options();
        match todo(request, &options.owner, options.courtesy, self.cx.clock.now()) {
            Todo::Attempt(mut assignment) => {
                assignment.pool = options.pool_of(request);
                Todo::Attempt(assignment)
            }
            other => other,
        }
    }

    /// Takes back what earlier attempts, or those of a binder that died, have prepared for what will not be tried again.
    async fn give_up(&self, gang: &[Assignment], error: &BindError) {
        if !error.retryable() {
            self.binder.take_back(gang, error).await;
        }
    }

    fn members(&self, round: &Round) -> Vec<Arc<BindRequest>> {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = rounds.get(&round.id).into_iter().flatten();
        keys.filter_map(|key| self.requests.get(key)).collect()
    }

    /// Looks at a round when the first of its open requests is looked at.
    async fn look_at_round(&self, key: &Key, round: &Round) -> Result<Next, ApiError> {
        // Most have nothing to say, and need not wait until who speaks for all is done: it may take minutes.
        let members = self.members(round);
        let is_open =
            |member: &&Arc<BindRequest>| !matches!(self.todo(member), Todo::Nothing | Todo::Wait(_));
        let is_first = members.iter().find(is_open).is_some_and(|first| first.key() == *key);
        if !is_first && !members.iter().any(|member| has_failed(member)) {
            return Ok(Next::Idle);
        }
        // Writing the first status makes another request the first open one; it has to wait for the last.
        let Some(_turn) = self.binder.locks().try_turn(&format!("round {}", round.id)) else {
            return Ok(Next::After(ANOTHER_IS_AT_IT));
        };
        let members = self.members(round);
        if let Some(why) = self.is_lost(round, &members).await? {
            self.take_back(&members, &why).await?;
            return Ok(Next::Idle);
        }
        let mut open: Vec<(Arc<BindRequest>, Assignment)> = Vec::new();
        let mut malformed: Option<String> = None;
        let mut first: Option<Key> = None;
        for member in &members {
            match self.todo(member) {
                Todo::Nothing | Todo::Wait(_) => continue,
                Todo::Refuse(why) => malformed = Some(why.to_string()),
                Todo::Attempt(assignment) => open.push((member.clone(), *assignment)),
            }
            first = first.or_else(|| Some(member.key()));
        }
        if first.as_ref() != Some(key) {
            return Ok(Next::Idle);
        }
        let waits = open.iter().filter_map(|(request, _)| self.appointment(request));
        if let Some(wait) = waits.max().filter(|wait| !wait.is_zero()) {
            return Ok(Next::After(wait));
        }
        let now = self.cx.clock.now();
        let age = members.iter().map(|m| until(m.metadata.created(), now)).max().unwrap_or_default();
        let too_few = || {
            let (n, size) = (members.len(), round.size);
            BindError::refused(format!(
                "only {n} of the {size} requests of its gang are there, {} are needed",
                round.needed
            ))
        };
        let stopped = match (malformed, round.gathered(members.len(), age)) {
            (Some(why), _) => {
                Some(BindError::refused(format!("a request of its gang makes no sense: {why}")))
            }
            (None, Gathered::Wait(left)) => return Ok(Next::After(left)),
            (None, Gathered::TooFew) => Some(too_few()),
            (None, Gathered::Go) => None,
        };
        let gang: Vec<Assignment> = open.iter().map(|(_, assignment)| assignment.clone()).collect();
        let keys: Vec<Key> = open.iter().map(|(request, _)| request.key()).collect();
        let stop = self.running.begin(&keys);
        // Those that are bound already count.
        let n_bound = members.iter().filter(|m| has_succeeded(m)).count();
        let stopped = match stopped {
            None => self.check_nodes(&gang).await.err(),
            stopped => stopped,
        };
        let results = match stopped {
            Some(error) => {
                self.give_up(&gang, &error).await;
                gang.iter().map(|_| Err(error.clone())).collect()
            }
            None => {
                let needed = round.needed.saturating_sub(n_bound);
                let in_flight = self.binder.options().concurrency;
                self.binder.attempt(&gang, needed, in_flight, stop.token.clone()).await
            }
        };
        let again = whole_again(&gang, &results);
        let mut next = Next::Idle;
        let mut unwritten: Option<ApiError> = None;
        for ((request, assignment), result) in open.iter().zip(results) {
            let result = result.map_err(|error| match error {
                // Whether it is worth another attempt is for its gang to say.
                BindError::RolledBack { .. } if again => BindError::retry(error.to_string()),
                other => other,
            });
            match self.end(request, assignment, result).await {
                Ok(then) => next = next.or(then),
                Err(error) => unwritten = Some(error),
            }
        }
        // Who came meanwhile was told that others speak for it.
        let late = self.members(round).into_iter().map(|member| member.key());
        late.filter(|key| !keys.contains(key)).for_each(|key| self.queue.add(key));
        if let Some(error) = unwritten {
            // Another of them may be the first open one now.
            open.iter().for_each(|(request, _)| self.queue.add(request.key()));
            return Err(error);
        }
        if let Next::After(wait) = next {
            for (request, _) in &open {
                self.queue.add_after(request.key(), wait);
            }
        }
        Ok(next)
    }

    /// Why a round that has something left to take back cannot become whole any more.
    async fn is_lost(
        &self,
        round: &Round,
        members: &[Arc<BindRequest>],
    ) -> Result<Option<BindError>, ApiError> {
        let failed: Vec<&Arc<BindRequest>> = members.iter().filter(|m| has_failed(m)).collect();
        if failed.len() == members.len() || !round.is_lost(failed.len()) {
            return Ok(None);
        }
        // A pod that is gone, or that somebody else has bound, was not refused.
        let mut refused: Vec<(Key, &str)> = Vec::new();
        for request in failed {
            let Ok(assignment) = Assignment::from_bind_request(request) else { continue };
            if self.pod(&assignment).await?.is_some_and(|(_, standing)| standing.is_none()) {
                refused.push((assignment.pod, cause(request)));
            }
        }
        let n = refused.len();
        // Of those that failed, the one that the others failed for.
        let culprit = refused.iter().position(|(_, why)| !BindError::tells_of_roll_back(why)).unwrap_or(0);
        let culprit = refused.into_iter().nth(culprit).filter(|_| round.is_lost(n));
        Ok(culprit.map(|(by, why)| BindError::RolledBack { by, text: why.to_owned() }))
    }

    /// Takes back what of a round is bound, and what is yet to be tried.
    async fn take_back(&self, members: &[Arc<BindRequest>], why: &BindError) -> Result<(), ApiError> {
        for request in members.iter().filter(|m| !has_failed(m)) {
            let Ok(assignment) = Assignment::from_bind_request(request) else { continue };
            if let Some((pod, Some(Ok(_)))) = self.pod(&assignment).await?
                && !pod.metadata.deleting()
                && !matches!(&*pod.status.phase, "Succeeded" | "Failed")
            {
                let now = self.cx.clock.now();
                match evict(&self.cx.api, &assignment.pod, &pod.metadata.uid, &why.to_string(), now, None)
                    .await
                {
                    Err(error) if !error.not_found() && !error.conflict() => return Err(error),
                    _ => tracing::info!(pod = %assignment.pod, %why, "a pod makes way"),
                }
            }
            self.give_up(std::slice::from_ref(&assignment), why).await;
            // Last, so that whoever dies in between does it again.
            self.fail(request, None, why).await?;
        }
        Ok(())
    }

    /// The pod of an assignment, and what it says about it; `None` if there is none.
    async fn pod(
        &self,
        assignment: &Assignment,
    ) -> Result<Option<(Pod, Option<Result<Bound, BindError>>)>, ApiError> {
        match self.cx.api.get::<Pod>(&assignment.pod).await {
            Ok(pod) => {
                let end = standing(&pod.metadata, &pod.spec.node_name, &pod.status.phase, assignment);
                Ok(Some((pod, end)))
            }
            Err(error) if error.not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes down how an attempt ended.
    async fn end(
        &self,
        request: &BindRequest,
        assignment: &Assignment,
        result: Result<Bound, BindError>,
    ) -> Result<Next, ApiError> {
        match result {
            Ok(_) => self.succeed(request, assignment).await,
            // Its owner takes the request along.
            Err(BindError::Gone) if !assignment.pod_uid.is_empty() => Ok(Next::Idle),
            Err(error) => self.fail(request, Some(assignment), &error).await,
        }
    }

    /// How long until the request may be tried; `None` if it did not fail here yet.
    fn appointment(&self, request: &BindRequest) -> Option<Duration> {
        let known = self.lock();
        let (uid, at) = known.get(&request.key())?;
        (*uid == request.metadata.uid).then(|| at.saturating_duration_since(Instant::now()))
    }

    /// The API binds to nodes that do not exist.
    async fn check_node(&self, assignment: &Assignment) -> Result<(), BindError> {
        let node = Key::new("", assignment.node.clone());
        if self.nodes.as_ref().is_some_and(|nodes| nodes.get(&node).is_some()) {
            return Ok(());
        }
        match self.cx.api.get::<Node>(&node).await {
            Ok(_) => Ok(()),
            Err(error) if error.not_found() => {
                Err(BindError::refused(format!("node {} does not exist", assignment.node)))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn check_nodes(&self, gang: &[Assignment]) -> Result<(), BindError> {
        for assignment in gang {
            self.check_node(assignment).await?;
        }
        Ok(())
    }

    async fn succeed(&self, request: &BindRequest, assignment: &Assignment) -> Result<Next, ApiError> {
        self.write(request, succeeded(request)).await?;
        self.lock().remove(&request.key());
        if attempts(request) > 0 {
            let message = format!("Pod bound successfully to node {}", assignment.node);
            self.write_condition(&assignment.pod, true, &message).await;
        }
        Ok(Next::Idle)
    }

    async fn fail(
        &self,
        request: &BindRequest,
        assignment: Option<&Assignment>,
        error: &BindError,
    ) -> Result<Next, ApiError> {
        let failure = failed(request, error);
        tracing::info!(request = %request.key(), %error, again = ?failure.again, "a pod was not bound");
        let at = Instant::now() + failure.again.unwrap_or_default();
        self.lock().insert(request.key(), (request.metadata.uid.clone(), at));
        self.write(request, failure.status).await?;
        if let Some(assignment) = assignment
            && !matches!(error, BindError::Gone | BindError::Elsewhere { .. })
        {
            let Key { namespace, name } = &assignment.pod;
            let message =
                format!("Failed to bind pod {namespace}/{name} to node {}: {error}", assignment.node);
            self.write_condition(&assignment.pod, false, &message).await;
        }
        Ok(failure.again.map_or(Next::Idle, Next::After))
    }

    async fn write(&self, request: &BindRequest, status: Value) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"uid": request.metadata.uid}, "status": status});
        match self.cx.api.patch::<BindRequest>(&request.key(), "status", Patch::Merge, &patch).await {
            Ok(answer) => {
                self.requests.enter(answer);
                Ok(())
            }
            Err(error) if error.not_found() => Ok(()),
            // It was replaced, or others wrote it at the same time: either way it is looked at again.
            Err(error) => Err(error),
        }
    }

    /// Says on the pod, and in an event, how binding it goes. Best effort: the request's status has it too.
    async fn write_condition(&self, key: &Key, bound: bool, message: &str) {
        let Ok(pod) = self.cx.api.get::<Pod>(key).await else { return };
        let (status, reason) = if bound { ("True", "Bound") } else { ("False", "BindingError") };
        if !bound {
            self.cx.events.warning(&pod, reason, message);
        }
        let known = condition(&pod.status.conditions, POD_BOUND);
        if known.is_some_and(|c| c.status == status && c.reason == reason && c.message == message) {
            return;
        }
        let now = stamp(self.cx.clock.now());
        let since = known.filter(|c| c.status == status).and_then(|c| c.last_transition_time).map(stamp);
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [{
            "type": POD_BOUND, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or(now),
        }]}});
        if let Err(error) = self.cx.api.patch::<Pod>(key, "status", Patch::Strategic, &patch).await {
            tracing::debug!(pod = %key, %error, "a condition was not written");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, (String, Instant)>> {
        self.appointments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attempts under way. A request that is withdrawn stops its attempt: its scheduler decides anew, and the old decision must
/// not come true after that.
#[derive(Default)]
struct Running(Mutex<HashMap<Key, CancellationToken>>);

/// An attempt under way.
struct Attempt {
    running: Arc<Running>,
    keys: Vec<Key>,
    token: CancellationToken,
}

impl Running {
    fn begin<'a>(self: &Arc<Self>, keys: impl IntoIterator<Item = &'a Key>) -> Attempt {
        let token = CancellationToken::new();
        let keys: Vec<Key> = keys.into_iter().cloned().collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(keys.iter().map(|key| (key.clone(), token.clone())));
        Attempt { running: self.clone(), keys, token }
    }

    fn stop(&self, key: &Key) {
        if let Some(token) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            token.cancel();
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut all = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            all.remove(key);
        }
    }
}

/// Whether another attempt at a gang makes sense: whoever stopped it may try again.
fn whole_again(gang: &[Assignment], results: &[Result<Bound, BindError>]) -> bool {
    let culprit = results.iter().find_map(|result| match result {
        Err(BindError::RolledBack { by, .. }) => Some(by),
        _ => None,
    });
    let Some(culprit) = culprit else { return false };
    gang.iter().zip(results).any(|(assignment, result)| {
        assignment.pod == *culprit && result.as_ref().is_err_and(BindError::retryable)
    })
}
