//! Leases: of many programs that could do a job, one does.
//!
//! In: the name of a `coordination.k8s.io/v1` Lease and who we are. Out: a [`Held`] when it is our turn, which renews the
//! lease and says when it is lost; and [`claim`], which takes the leases of all names that a scheduler answers to and
//! refuses a name that another scheduler answers to, wherever it keeps its lease.
//!
//! Must stay true: a holder that could not renew says so *before* anybody else may take the lease, since it counts from
//! when it sent its last renewal, and others count from when they saw it. Clocks of machines are never compared: a record
//! counts as live while it was seen unchanged for less than its duration, as in Kubernetes' own election. All time is
//! tokio's; the calendar is only written down. A process may be stopped for longer than a lease lasts and then go on where it was: what is done under a
//! lease is written by a client with its [`Fence`], which looks at the time before every write. (This is why kube-lease-manager, which reads the wall clock, is not used.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiError, Patch};
use crate::clock::{Clock, micro_stamp};
use crate::metrics::Gauge;
use crate::object::{Condition, Key, Meta};

/// Which scheduler name a lease stands for.
pub const SCHEDULER_NAME: &str = "muster.dev/scheduler-name";
/// The lease, as `namespace/name`, that the holder's installation has for this name and shard. It is another one than the
/// one that says so where that was taken over; where nothing is said it is that one. Whoever wants the same is a replica.
pub const HELD_FOR: &str = "muster.dev/held-for";
/// Who of us wrote the lease last. A lease whose holder is another one is not ours, whatever else it says.
pub const HELD_BY: &str = "muster.dev/held-by";

/// A lease that can be had.
#[derive(Clone)]
pub struct Lease {
    pub api: Api,
    pub clock: Clock,
    pub key: Key,
    /// Who we are; no two processes that run at the same time may have the same.
    pub identity: String,
    /// The name that is answered to by whoever holds the lease, if it stands for one.
    pub scheduler_name: String,
    /// The installation's own lease for that name; `key` itself unless `key` was another scheduler's.
    pub held_for: Key,
    /// Others wait for so long after the last renewal that they saw.
    pub duration: Duration,
    /// A holder that could not renew for so long gives up. Shorter than `duration`.
    pub deadline: Duration,
    /// How often to renew, and how often to look whether it is our turn.
    pub retry: Duration,
}

impl Lease {
    /// A lease with the times that Kubernetes' own components use: 15 s, 10 s, 2 s.
    pub fn new(api: Api, clock: Clock, key: Key, identity: impl Into<String>) -> Self {
        Lease {
            api,
            clock,
            held_for: key.clone(),
            key,
            identity: identity.into(),
            scheduler_name: String::new(),
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// Waits for our turn. With `take_over` a live holder is written over; then this also waits until that holder must have
    /// noticed, so that the two never work at the same time.
    pub async fn acquire(&self, take_over: bool) -> Held {
        self.acquire_since(None, take_over).await
    }

    /// What the lease says now, if it can be read: when it still says so later, its holder was silent all the while.
    async fn sighting(&self) -> Option<Sighting> {
        let found = tokio::time::timeout(self.attempt(), self.read()).await.ok()?.ok()?;
        Some(Sighting { record: found.spec, since: Instant::now() })
    }

    async fn acquire_since(&self, mut seen: Option<Sighting>, take_over: bool) -> Held {
        loop {
            let attempt = tokio::time::timeout(self.attempt(), self.look(&mut seen, take_over));
            let wait = match attempt.await {
                Ok(Ok(Look::Taken { version, sent, from })) => {
                    let held = Held::start(self.clone(), version, sent);
                    if let Some(from) = from {
                        tracing::warn!(lease = %self.key, %from.holder, "the lease was taken from a live holder");
                        let settled = tokio::time::sleep_until(sent + from.wait);
                        // Lost already: the caller sees so at once.
                        tokio::select! { () = settled => {} _ = held.lost() => {} }
                    }
                    return held;
                }
                Ok(Ok(Look::Wait(wait))) => wait.min(self.retry),
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.key, %error, reason = error.message(), "the lease cannot be read or written");
                    self.retry
                }
                Err(_) => Duration::ZERO,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// One look at the lease, which takes it if it may be taken.
    async fn look(&self, seen: &mut Option<Sighting>, take_over: bool) -> Result<Look, ApiError> {
        let sent = Instant::now();
        let found = match self.read().await {
            Ok(found) => found,
            Err(error) if error.not_found() => {
                let mut body = self.taken(&LeaseObject::default(), "");
                body["apiVersion"] = json!("coordination.k8s.io/v1");
                body["kind"] = json!("Lease");
                return match self.api.create_path(&path(&self.key.namespace, ""), &body).await {
                    Ok(made) => Ok(Look::Taken { version: version_of(&made), sent, from: None }),
                    Err(error) if error.already_exists() => Ok(Look::Wait(Duration::ZERO)),
                    Err(error) => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        if seen.as_ref().is_none_or(|seen| seen.record != found.spec) {
            *seen = Some(Sighting { record: found.spec.clone(), since: now });
        }
        let since = seen.as_ref().map_or(now, |seen| seen.since);
        let from = match found.spec.live_until(since, self.duration) {
            Some(until) if found.spec.holder_identity != self.identity && now < until => {
                if !take_over {
                    return Ok(Look::Wait(until - now));
                }
                Some(From {
                    holder: found.spec.holder_identity.clone(),
                    wait: found.spec.duration(self.duration),
                })
            }
            _ => None,
        };
        let sent = Instant::now();
        match self.write(&self.taken(&found, &found.metadata.resource_version)).await {
            Ok(version) => Ok(Look::Taken { version, sent, from }),
            // Another was first; its record is news.
            Err(error) if error.conflict() || error.not_found() => Ok(Look::Wait(Duration::ZERO)),
            Err(error) => Err(error),
        }
    }

    /// Renews once. `version` is that of our last write; a conflict with somebody who only wrote a label is none.
    async fn renew(&self, version: &mut String) -> Result<Renewal, ApiError> {
        let now = micro_stamp(self.clock.now());
        let mut body = json!({"spec": {"renewTime": now}});
        let mut n_conflicts = 0;
        loop {
            body["metadata"] = json!({"resourceVersion": version});
            match self.write(&body).await {
                Ok(written) => {
                    *version = written;
                    return Ok(Renewal::Done);
                }
                Err(error) if (error.conflict() || error.not_found()) && n_conflicts < 3 => n_conflicts += 1,
                Err(error) => return Err(error),
            }
            let found = match self.read().await {
                Ok(found) => found,
                Err(error) if error.not_found() => return Ok(Renewal::Gone),
                Err(error) => return Err(error),
            };
            if found.spec.holder_identity != self.identity {
                return Ok(Renewal::Taken { by: found.spec.holder_identity });
            }
            *version = found.metadata.resource_version;
        }
    }

    /// The record of us as a new holder, over what was found.
    fn taken(&self, found: &LeaseObject, version: &str) -> Value {
        let now = micro_stamp(self.clock.now());
        let same = found.spec.holder_identity == self.identity;
        let transitions = found.spec.lease_transitions.unwrap_or(0);
        let first = version.is_empty();
        let mut annotations = json!({HELD_BY: self.identity});
        if !self.scheduler_name.is_empty() {
            annotations[SCHEDULER_NAME] = json!(self.scheduler_name);
            annotations[HELD_FOR] = json!(self.held_for.to_string());
        }
        let mut metadata = json!({"annotations": annotations});
        if first {
            metadata["name"] = json!(self.key.name);
            metadata["namespace"] = json!(self.key.namespace);
        } else {
            metadata["resourceVersion"] = json!(version);
        }
        json!({
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.duration.as_secs().max(1),
                "acquireTime": found.spec.acquire_time.as_ref().filter(|_| same).unwrap_or(&now),
                "renewTime": now,
                "leaseTransitions": if same || first { transitions } else { transitions.saturating_add(1) },
            },
        })
    }

    async fn read(&self) -> Result<LeaseObject, ApiError> {
        read(&self.api, &self.key).await
    }

    /// Out: the version that was written.
    async fn write(&self, body: &Value) -> Result<String, ApiError> {
        let path = path(&self.key.namespace, &self.key.name);
        Ok(version_of(&self.api.patch_path(&path, Patch::Merge, body).await?))
    }

    /// A request that hangs must leave time for another one.
    fn attempt(&self) -> Duration {
        self.deadline / 2
    }
}

/// What one look at a lease ended with.
enum Look {
    Taken { version: String, sent: Instant, from: Option<From> },
    Wait(Duration),
}

/// A live holder that was written over, and how long it may take to notice.
struct From {
    holder: String,
    wait: Duration,
}

enum Renewal {
    Done,
    Taken { by: String },
    Gone,
}

/// Whether a lease is still held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// At least until then, and longer if it is renewed.
    Held {
        until: Instant,
    },
    Lost(Lost),
}

/// Why a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("{by} has taken the lease {lease}")]
    TakenBy { lease: Key, by: String },
    #[error("the lease {lease} was deleted")]
    Deleted { lease: Key },
    #[error("the lease {lease} could not be renewed in time: {why}")]
    NotRenewed { lease: Key, why: String },
    #[error("the lease {lease} is no longer renewed")]
    GivenUp { lease: Key },
}

/// A lease that is ours. It is renewed until it is dropped (then others must wait until it runs out) or released.
pub struct Held {
    lease: Lease,
    standing: watch::Receiver<Standing>,
    stop: CancellationToken,
    /// Out: the version of the last write.
    renewing: Option<JoinHandle<String>>,
}

impl Held {
    fn start(lease: Lease, version: String, sent: Instant) -> Self {
        let (sender, standing) = watch::channel(Standing::Held { until: sent + lease.deadline });
        let stop = CancellationToken::new();
        let renewing = tokio::spawn(keep(lease.clone(), version, sent, sender, stop.clone()));
        tracing::info!(lease = %lease.key, identity = lease.identity, "lease held");
        Held { lease, standing, stop, renewing: Some(renewing) }
    }

    pub fn key(&self) -> &Key {
        &self.lease.key
    }

    /// Whether it is held at this moment. To be asked before whatever only the holder may do: it is right even when the
    /// task that renews has not run for a while.
    pub fn is_held(&self) -> bool {
        stands(&self.standing)
    }

    /// For the clients of those who work while it is held.
    pub fn fence(&self) -> Fence {
        Fence([self.standing.clone()].into())
    }

    /// Tells when it is lost, to whoever asks.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Waits until it is lost.
    pub async fn lost(&self) -> Lost {
        let mut standing = self.standing.clone();
        match standing.wait_for(|standing| matches!(standing, Standing::Lost(_))).await.as_deref() {
            Ok(Standing::Lost(lost)) => lost.clone(),
            _ => Lost::GivenUp { lease: self.lease.key.clone() },
        }
    }

    /// Gives it up, so that the next one need not wait until it runs out. Whoever worked under it must have stopped.
    pub async fn release(mut self) -> Result<(), ApiError> {
        self.stop.cancel();
        let Some(renewing) = self.renewing.take() else { return Ok(()) };
        let Ok(mut version) = renewing.await else { return Ok(()) };
        if matches!(*self.standing.borrow(), Standing::Lost(_)) {
            return Ok(());
        }
        let lease = &self.lease;
        for _ in 0..3 {
            let body = json!({
                "metadata": {"resourceVersion": version},
                // The shortest duration: also for whoever does not know that an empty holder means free.
                "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_stamp(lease.clock.now())},
            });
            match lease.write(&body).await {
                Ok(_) => {
                    tracing::info!(lease = %lease.key, "lease released");
                    return Ok(());
                }
                Err(error) if error.not_found() => return Ok(()),
                Err(error) if !error.conflict() => return Err(error),
                Err(_) => {}
            }
            match lease.read().await {
                Ok(found) if found.spec.holder_identity == lease.identity => {
                    version = found.metadata.resource_version;
                }
                Ok(_) => return Ok(()),
                Err(error) if error.not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn stands(standing: &watch::Receiver<Standing>) -> bool {
    match &*standing.borrow() {
        Standing::Held { until } => Instant::now() < *until && standing.has_changed().is_ok(),
        Standing::Lost(_) => false,
    }
}

/// Open as long as leases are held: all of them, at the moment of asking. It costs a look at the clock.
#[derive(Clone)]
pub struct Fence(Arc<[watch::Receiver<Standing>]>);

impl Fence {
    /// Open as long as all of these are.
    pub fn all(fences: impl IntoIterator<Item = Fence>) -> Self {
        Fence(fences.into_iter().flat_map(|fence| fence.0.to_vec()).collect())
    }

    pub fn is_open(&self) -> bool {
        self.0.iter().all(stands)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(renewing) = &self.renewing {
            renewing.abort();
        }
    }
}

/// Shows that the lease is held for as long as this lives, however the holding ends.
struct Leading(Option<Gauge>);

impl Leading {
    fn begin(lease: &Lease) -> Self {
        let gauge = lease.api.metrics().map(|m| m.process.leading.of([lease.key.name.as_str()]));
        if let Some(gauge) = &gauge {
            gauge.set(1.0);
        }
        Leading(gauge)
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.set(0.0);
        }
    }
}

/// Renews until told to stop or lost.
async fn keep(
    lease: Lease,
    mut version: String,
    mut renewed: Instant,
    standing: watch::Sender<Standing>,
    stop: CancellationToken,
) -> String {
    let _leading = Leading::begin(&lease);
    let mut next = renewed + lease.retry;
    loop {
        if stop.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
            return version;
        }
        let deadline = renewed + lease.deadline;
        let sent = Instant::now();
        let limit = deadline.min(sent + lease.attempt());
        let attempt = tokio::time::timeout_at(limit, lease.renew(&mut version)).await;
        let lost = match attempt {
            Ok(Ok(Renewal::Done)) => {
                renewed = sent;
                standing.send_replace(Standing::Held { until: renewed + lease.deadline });
                next = sent + lease.retry;
                continue;
            }
            Ok(Ok(Renewal::Gone)) => Lost::Deleted { lease: lease.key.clone() },
            Ok(Ok(Renewal::Taken { by })) => Lost::TakenBy { lease: lease.key.clone(), by },
            failed => {
                let why = match failed {
                    Ok(Err(error)) => error.message(),
                    _ => "no answer".to_owned(),
                };
                next = Instant::now() + lease.retry;
                if next < deadline {
                    tracing::warn!(lease = %lease.key, why, "the lease was not renewed; trying again");
                    continue;
                }
                if stop.run_until_cancelled(tokio::time::sleep_until(deadline)).await.is_none() {
                    return version;
                }
                Lost::NotRenewed { lease: lease.key.clone(), why }
            }
        };
        tracing::error!(lease = %lease.key, why = %lost, "lease lost");
        standing.send_replace(Standing::Lost(lost));
        return version;
    }
}

/// A scheduler that is not ours and answers to a name of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherHolder {
    pub scheduler_name: String,
    pub lease: Key,
    pub holder: String,
}

/// The lease of one shard of a scheduler name, as KAI names it too.
pub fn lease_name(scheduler_name: &str, shard: &str) -> String {
    if shard.is_empty() { scheduler_name.to_owned() } else { format!("{scheduler_name}-{shard}") }
}

/// The leases under which schedulers that are known answer to a name, by what each uses when nothing else is set.
fn known_leases(scheduler_name: &str, shard: &str) -> Vec<Key> {
    let mut keys = vec![
        Key::new("kai-scheduler", lease_name(scheduler_name, shard)),
        Key::new("volcano-system", scheduler_name),
    ];
    match scheduler_name {
        "default-scheduler" => keys.push(Key::new("kube-system", "kube-scheduler")),
        // Before version 1.8.
        "volcano" => keys.push(Key::new("volcano-system", "vc-scheduler")),
        "koord-scheduler" => keys.push(Key::new("koordinator-system", "koord-scheduler")),
        _ => {}
    }
    keys
}

/// Looks for a live scheduler of another make that answers to one of the names, by the leases that are known. A lease
/// that nobody renews takes its duration to find out; where there is none, the answer comes at once.
pub async fn other_holder(api: &Api, names: &[String], shard: &str) -> Result<Option<OtherHolder>, ApiError> {
    let mut search = Search::new(api, names, shard, None);
    let suspects = search.of_known().await?;
    search.first_live(suspects, Duration::ZERO).await
}

/// The search for whoever else answers to names.
struct Search<'a> {
    api: &'a Api,
    names: BTreeSet<&'a str>,
    shard: &'a str,
    known: BTreeMap<Key, &'a str>,
    /// For whom is searched. Without it only schedulers of another make are found.
    claim: Option<&'a Claim>,
    /// Records that were seen to run out: what still says the same need not be watched again.
    dead: BTreeMap<Key, Record>,
}

/// Who may be another one, until it is known whether the lease is renewed.
struct Suspect<'a> {
    name: &'a str,
    sighting: Sighting,
    /// Whoever finds us in turn, and gives way to us.
    yields: bool,
}

/// How long one that has to give way may take: it looks at once, and sees us renew after two seconds. One that is still
/// there had looked before we were to be seen, and works.
const PATIENCE: Duration = Duration::from_secs(15);

impl<'a> Search<'a> {
    fn new(api: &'a Api, names: &'a [String], shard: &'a str, claim: Option<&'a Claim>) -> Self {
        let mut known = BTreeMap::new();
        for name in names {
            for key in known_leases(name, shard) {
                known.entry(key).or_insert(name.as_str());
            }
        }
        let names = names.iter().map(String::as_str).collect();
        Search { api, names, shard, known, claim, dead: BTreeMap::new() }
    }

    /// Those that hold one of the leases that are known.
    async fn of_known(&self) -> Result<BTreeMap<Key, Suspect<'a>>, ApiError> {
        let mut found = Vec::new();
        for key in self.known.keys() {
            found.extend(seen(self.api, key).await?.map(|lease| (key.clone(), lease)));
        }
        Ok(self.among(found))
    }

    /// Those that hold one of these leases.
    fn among(&self, leases: impl IntoIterator<Item = (Key, LeaseObject)>) -> BTreeMap<Key, Suspect<'a>> {
        let since = Instant::now();
        let suspect = |(key, lease): (Key, LeaseObject)| {
            let (name, yields) = self.answers(&key, &lease)?;
            let is_dead = self.dead.get(&key) == Some(&lease.spec);
            let sighting = Sighting { record: lease.spec, since };
            (!is_dead).then_some((key, Suspect { name, sighting, yields }))
        };
        leases.into_iter().filter_map(suspect).collect()
    }

    /// The name to which the holder of a lease answers, if it is one of ours and the holder is not of our installation;
    /// and whether it gives way to us where both begin at once.
    fn answers(&self, key: &Key, lease: &LeaseObject) -> Option<(&'a str, bool)> {
        let holder = &lease.spec.holder_identity;
        if holder.is_empty() {
            return None;
        }
        let is_muster = lease.is_of_muster();
        if !is_muster && let Some(name) = self.known.get(key) {
            return Some((name, false));
        }
        let claim = self.claim.filter(|claim| claim.identity != *holder)?;
        let name = *self.names.get(lease.metadata.annotation(SCHEDULER_NAME)?)?;
        // What another one finds on a lease of whom it is held for is not about itself.
        let home =
            Some(lease).filter(|_| is_muster).and_then(LeaseObject::held_for).unwrap_or_else(|| key.clone());
        let is_another = home.name == lease_name(name, self.shard) && home.namespace != claim.namespace;
        is_another.then_some((name, is_muster && home.namespace > claim.namespace))
    }

    /// Watches them until one of them renews its lease or none can be live any more. Those that give way may renew theirs
    /// for so long.
    async fn first_live(
        &mut self,
        mut suspects: BTreeMap<Key, Suspect<'a>>,
        patience: Duration,
    ) -> Result<Option<OtherHolder>, ApiError> {
        let begun = Instant::now();
        while !suspects.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let keys: Vec<Key> = suspects.keys().cloned().collect();
            for key in keys {
                let Some(mut suspect) = suspects.remove(&key) else { continue };
                let Some(lease) = seen(self.api, &key).await? else { continue };
                if self.answers(&key, &lease).is_none() {
                    continue;
                }
                if lease.spec != suspect.sighting.record {
                    if !suspect.yields || begun.elapsed() >= patience {
                        return Ok(Some(OtherHolder {
                            scheduler_name: suspect.name.to_owned(),
                            lease: key,
                            holder: lease.spec.holder_identity,
                        }));
                    }
                    suspect.sighting = Sighting { record: lease.spec, since: Instant::now() };
                }
                let Sighting { record, since } = &suspect.sighting;
                if record
                    .live_until(*since, Duration::from_secs(15))
                    .is_some_and(|until| Instant::now() < until)
                {
                    suspects.insert(key, suspect);
                } else {
                    self.dead.insert(key, suspect.sighting.record);
                }
            }
        }
        Ok(None)
    }
}

async fn exists(api: &Api, key: &Key) -> Result<bool, ApiError> {
    Ok(seen(api, key).await?.is_some())
}

/// A lease, if there is one that we may look at.
async fn seen(api: &Api, key: &Key) -> Result<Option<LeaseObject>, ApiError> {
    match read(api, key).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.not_found() => Ok(None),
        Err(error) if error.code() == 403 => {
            tracing::warn!(lease = %key, "not allowed to see whether another scheduler holds this lease");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The leases of all namespaces, if we may look at them.
async fn all_leases(api: &Api) -> Result<Option<Vec<(Key, LeaseObject)>>, ApiError> {
    // Each node has one in that namespace, which is all but a few of a large cluster's.
    const PATH: &str =
        "/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.namespace!=kube-node-lease";
    let Some(items) = items(api, PATH, "whether another Muster holds a lease for the same names").await?
    else {
        return Ok(None);
    };
    let keyed = |lease: LeaseObject| (Key::new(&lease.metadata.namespace, &lease.metadata.name), lease);
    Ok(Some(items.into_iter().map(|item| keyed(serde_json::from_value(item).unwrap_or_default())).collect()))
}

/// What a list has, if we may look at it; if not, `what` cannot be told.
async fn items(api: &Api, path: &str, what: &str) -> Result<Option<Vec<Value>>, ApiError> {
    match api.get_path(path).await {
        Ok(mut list) => match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(Some(items)),
            _ => Ok(Some(Vec::new())),
        },
        Err(error) if matches!(error.code(), 403 | 404) => {
            tracing::warn!(why = error.message(), "cannot see {what}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Where KAI is installed unless told otherwise.
const KAI_NAMESPACE: &str = "kai-scheduler";

/// A scheduler that answers to a name of ours and holds no lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherPod {
    pub scheduler_name: String,
    pub pod: Key,
    /// The command that stops it.
    pub fix: String,
}

/// Looks for a scheduler of KAI's that runs and answers to one of the names without a lease, as KAI's do by default.
async fn other_pod(api: &Api, names: &[String], shard: &str) -> Result<Option<OtherPod>, ApiError> {
    let path = format!("/api/v1/namespaces/{KAI_NAMESPACE}/pods");
    let found = items(api, &path, "whether a scheduler of KAI runs without a lease").await?;
    let pods: Vec<PodObject> = found
        .unwrap_or_default()
        .into_iter()
        .map(|item| serde_json::from_value(item).unwrap_or_default())
        .filter(|pod: &PodObject| !pod.is_ours())
        .collect();
    Ok(unled(&pods, names, shard))
}

/// The first of KAI's schedulers among these pods that is ready, answers to one of the names, and asks nobody for a turn.
fn unled(pods: &[PodObject], names: &[String], shard: &str) -> Option<OtherPod> {
    let ready = pods.iter().filter(|pod| pod.is_ready());
    let mut schedulers =
        ready.flat_map(|pod| pod.spec.containers.iter().filter_map(move |c| Some((pod, c.scheduler()?))));
    let (pod, (name, _)) =
        schedulers.find(|(_, (name, of))| *of == shard && names.iter().any(|wanted| wanted == name))?;
    // KAI's operator starts again what it finds stopped, so it has to be stopped, too.
    let operators =
        pods.iter().filter(|pod| pod.spec.containers.iter().any(|c| c.image_name() == "operator"));
    let fix = match pod.deployment() {
        Some(own) => {
            let all: BTreeSet<String> = operators.filter_map(PodObject::deployment).chain([own]).collect();
            let all: Vec<String> = all.iter().map(|name| format!("deployment/{name}")).collect();
            format!("kubectl -n {KAI_NAMESPACE} scale {} --replicas=0", all.join(" "))
        }
        None => format!("kubectl -n {KAI_NAMESPACE} delete pod {}", pod.metadata.name),
    };
    let pod = Key::new(KAI_NAMESPACE, &pod.metadata.name);
    Some(OtherPod { scheduler_name: name.to_owned(), pod, fix })
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodObject {
    metadata: Meta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Container {
    image: String,
    command: Vec<String>,
    args: Vec<String>,
}

impl PodObject {
    fn is_ours(&self) -> bool {
        let named = self.metadata.labels.get("app.kubernetes.io/name").is_some_and(|name| name == "muster");
        // Somebody's own manifest may lack the label; `muster run` has flags of the same names as KAI's scheduler.
        named || self.spec.containers.iter().any(|c| c.words().any(|word| word == "run"))
    }

    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
    }

    /// The deployment that it belongs to: that of its replica set, which has a hash at the end of its name.
    fn deployment(&self) -> Option<String> {
        let owner = self.metadata.controller().filter(|owner| owner.kind == "ReplicaSet")?;
        owner.name.rsplit_once('-').map(|(name, _)| name.to_owned())
    }
}

impl Container {
    /// The name and the shard that one of KAI's schedulers answers to, if this is one that works without a lease.
    fn scheduler(&self) -> Option<(&str, &str)> {
        // Others of KAI's programs are told the scheduler's name, too, but not these.
        let is_one = self.image_name() == "scheduler"
            || self.flag("scheduler-conf").is_some()
            || self.flag("partition-label-value").is_some();
        let elects = self.flag("leader-elect").is_some_and(|value| value != "false");
        let name = self.flag("scheduler-name").unwrap_or("kai-scheduler");
        (is_one && !elects).then(|| (name, self.flag("partition-label-value").unwrap_or_default()))
    }

    /// `scheduler` of `ghcr.io:443/kai-scheduler/kai-scheduler/scheduler:v0.17.0@sha256:..`.
    fn image_name(&self) -> &str {
        let last = self.image.rsplit_once('/').map_or(self.image.as_str(), |(_, last)| last);
        last.split([':', '@']).next().unwrap_or(last)
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.command.iter().chain(&self.args).map(String::as_str)
    }

    /// What a flag is set to, as `--flag=value` or `--flag value`; empty for a bare one. The last one counts.
    fn flag(&self, flag: &str) -> Option<&str> {
        let words: Vec<&str> = self.words().collect();
        words.iter().enumerate().rev().find_map(|(at, word)| {
            let rest = word.trim_start_matches('-').strip_prefix(flag).filter(|_| word.starts_with('-'))?;
            match rest.strip_prefix('=') {
                Some(value) => Some(value),
                None if rest.is_empty() => {
                    Some(words.get(at + 1).copied().filter(|next| !next.starts_with('-')).unwrap_or_default())
                }
                None => None,
            }
        })
    }
}

/// The names that a scheduler wants to answer to, in one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Where the leases live.
    pub namespace: String,
    pub names: Vec<String>,
    /// The shard, empty for the only one.
    pub shard: String,
    pub identity: String,
    /// Take the names from whoever answers to them. A scheduler of another make stops when its own lease is taken, and
    /// gets it back when the claim is released: that is the way back.
    pub take_over: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Answered(Other),
    #[error("cannot find out who answers to {names}")]
    Unknown { names: String, source: ApiError },
}

/// Who answers to a name already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Other {
    #[error(
        "pods for {} are already placed by {}, which holds the lease {}; stop it, leave the name out, or pass --take-over",
        .0.scheduler_name, .0.holder, .0.lease
    )]
    Holder(OtherHolder),
    #[error(
        "pods for {} are already placed by the pod {}, which holds no lease that could be taken over; stop it \
         ({}) or leave the name out", .0.scheduler_name, .0.pod, .0.fix
    )]
    Pod(OtherPod),
}

/// Names that are ours.
pub struct Claimed {
    held: Vec<Held>,
}

/// Waits for the leases of all names. Leases are taken in the order of their names, so that two that want the same names
/// never wait for each other.
///
/// Others are looked for before, and again once the leases are held: of two that begin in two namespaces at the same
/// moment at least one then sees the other's lease. That of the namespace that comes later in the alphabet gives way;
/// the other waits for that, and gives way itself to one that does not, since that one was not seen to begin.
pub async fn claim(api: &Api, clock: Clock, claim: &Claim) -> Result<Claimed, ClaimError> {
    let unknown = |source| ClaimError::Unknown { names: claim.names.join(", "), source };
    if let Some(other) = other_pod(api, &claim.names, &claim.shard).await.map_err(unknown)? {
        return Err(ClaimError::Answered(Other::Pod(other)));
    }
    let all = all_leases(api).await.map_err(unknown)?;
    let may_list = all.is_some();
    let mut search = Search::new(api, &claim.names, &claim.shard, may_list.then_some(claim));
    let own = |name: &str| Key::new(&claim.namespace, lease_name(name, &claim.shard));
    let mut wanted: BTreeMap<Key, &str> = search.names.iter().map(|name| (own(name), *name)).collect();
    if claim.take_over {
        wanted.extend(to_take(&search, all).await.map_err(unknown)?);
    } else {
        let suspects = match all {
            Some(all) => {
                // A Muster that has our own lease is waited for: a replica, or whoever took our names over.
                let ours: BTreeSet<String> = all
                    .iter()
                    .filter(|(key, lease)| wanted.contains_key(key) && lease.is_of_muster())
                    .map(|(_, lease)| lease.spec.holder_identity.clone())
                    .collect();
                search.among(all.into_iter().filter(|(_, lease)| !ours.contains(&lease.spec.holder_identity)))
            }
            None => search.of_known().await.map_err(unknown)?,
        };
        // Nobody gives way yet, since there is nothing of ours to be found.
        if let Some(other) = search.first_live(suspects, Duration::ZERO).await.map_err(unknown)? {
            return Err(ClaimError::Answered(Other::Holder(other)));
        }
    }
    let lease = |(key, scheduler_name): (Key, &str)| Lease {
        scheduler_name: scheduler_name.to_owned(),
        held_for: own(scheduler_name),
        ..Lease::new(api.clone(), clock, key, claim.identity.clone())
    };
    let claimed = acquire_all(wanted.into_iter().map(lease).collect(), claim.take_over).await;
    let others = if may_list { all_leases(api).await } else { Ok(None) };
    let found = match others {
        Ok(others) => {
            let suspects = search.among(others.unwrap_or_default());
            search.first_live(suspects, PATIENCE).await
        }
        Err(error) => Err(error),
    };
    let refusal = match found {
        Ok(None) => return Ok(claimed),
        Ok(Some(other)) => ClaimError::Answered(Other::Holder(other)),
        Err(error) => unknown(error),
    };
    if let Err(error) = claimed.release().await {
        tracing::debug!(%error, "a lease was not released");
    }
    Err(refusal)
}

/// The leases of others that stand for the names. Those that are known are taken dead or alive: whoever held one once may
/// come back while we are at it. A Muster looks for us itself when it comes back.
async fn to_take<'a>(
    search: &Search<'a>,
    all: Option<Vec<(Key, LeaseObject)>>,
) -> Result<BTreeMap<Key, &'a str>, ApiError> {
    let mut wanted = BTreeMap::new();
    let Some(all) = all else {
        for (key, name) in &search.known {
            if exists(search.api, key).await? {
                wanted.insert(key.clone(), *name);
            }
        }
        return Ok(wanted);
    };
    for (key, lease) in all {
        let answers = search.answers(&key, &lease).map(|(name, _)| name);
        if let Some(name) = search.known.get(&key).copied().or(answers) {
            wanted.insert(key, name);
        }
    }
    Ok(wanted)
}

async fn acquire_all(leases: Vec<Lease>, take_over: bool) -> Claimed {
    // The others are looked at while one is waited for: who died let go of all at once, and is waited for once.
    let mut seen: Vec<Option<Sighting>> = leases.iter().map(|_| None).collect();
    let mut held = Vec::with_capacity(leases.len());
    let (mut waiting, mut rest) = (leases.as_slice(), seen.as_mut_slice());
    while let (Some((lease, later)), Some((seen, others))) = (waiting.split_first(), rest.split_first_mut()) {
        tokio::select! {
            biased;
            mine = lease.acquire_since(seen.take(), take_over) => held.push(mine),
            () = keep_an_eye_on(later, others) => {}
        }
        (waiting, rest) = (later, others);
    }
    Claimed { held }
}

/// Notes for how long leases say what they say, without end.
async fn keep_an_eye_on(leases: &[Lease], seen: &mut [Option<Sighting>]) {
    loop {
        for (lease, seen) in leases.iter().zip(&mut *seen) {
            if let Some(now) = lease.sighting().await
                && seen.as_ref().is_none_or(|seen| seen.record != now.record)
            {
                *seen = Some(now);
            }
        }
        let pause = leases.first().map_or(Duration::MAX, |lease| 2 * lease.retry);
        tokio::time::sleep(pause).await;
    }
}

impl Claimed {
    /// Whether all are held at this moment.
    pub fn is_held(&self) -> bool {
        self.held.iter().all(Held::is_held)
    }

    /// For the clients of those who work while all are held.
    pub fn fence(&self) -> Fence {
        Fence::all(self.held.iter().map(Held::fence))
    }

    /// Waits until one is lost; then none may be used.
    pub async fn lost(&self) -> Lost {
        if self.held.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(self.held.iter().map(|held| Box::pin(held.lost()))).await.0
    }

    pub async fn release(self) -> Result<(), ApiError> {
        let released = futures::future::join_all(self.held.into_iter().map(Held::release)).await;
        released.into_iter().collect()
    }
}

/// A name for this process that no other has. In a pod (with `POD_NAME` and `POD_UID` in its environment) it is the
/// pod's, so that a container that starts again has its lease at once: a pod never runs two of the same.
pub fn identity() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let (Some(name), Some(uid)) = (variable("POD_NAME"), variable("POD_UID")) {
        return format!("{name}_{uid}");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| variable("HOSTNAME"));
    let host = host.as_deref().map_or("muster", str::trim);
    // The keys of the standard library's hasher are random in each process.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    format!("{host}_{random:016x}")
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct LeaseObject {
    metadata: Meta,
    spec: Record,
}

impl LeaseObject {
    /// Whether a Muster wrote what it says, and holds it.
    fn is_of_muster(&self) -> bool {
        let holder = &self.spec.holder_identity;
        !holder.is_empty() && self.metadata.annotation(HELD_BY) == Some(holder)
    }

    fn held_for(&self) -> Option<Key> {
        let (namespace, name) = self.metadata.annotation(HELD_FOR)?.split_once('/')?;
        Some(Key::new(namespace, name))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    #[serde(deserialize_with = "or_default")]
    holder_identity: String,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i64>,
}

/// `null` is what a server may say for what is not set.
fn or_default<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(from)?.unwrap_or_default())
}

impl Record {
    /// How long the holder asked others to wait. An hour is more than anybody means.
    fn duration(&self, otherwise: Duration) -> Duration {
        match self.lease_duration_seconds.map(u64::try_from) {
            Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds.min(3600)),
            _ => otherwise,
        }
    }

    /// Until when the record counts as live if it stays as it was first seen; `None` if nobody holds it.
    fn live_until(&self, since: Instant, otherwise: Duration) -> Option<Instant> {
        (!self.holder_identity.is_empty()).then(|| since + self.duration(otherwise))
    }
}

/// A record, and since when it is known to be as it is.
struct Sighting {
    record: Record,
    since: Instant,
}

fn path(namespace: &str, name: &str) -> String {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    if name.is_empty() { path } else { format!("{path}/{name}") }
}

async fn read(api: &Api, key: &Key) -> Result<LeaseObject, ApiError> {
    let found = api.get_path(&path(&key.namespace, &key.name)).await?;
    // A lease whose fields are of other types than a server allows counts as free.
    Ok(serde_json::from_value(found).unwrap_or_default())
}

fn version_of(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(holder: &str, seconds: Option<i64>, expected: Option<u64>) {
        let record =
            Record { holder_identity: holder.into(), lease_duration_seconds: seconds, ..Record::default() };
        let since = Instant::now();
        let until = record.live_until(since, Duration::from_secs(15));
        assert_eq!(until.map(|until| (until - since).as_secs()), expected, "{holder} {seconds:?}");
    }

    #[test]
    fn how_long_a_record_lives() {
        check("a", Some(40), Some(40));
        check("a", None, Some(15));
        check("a", Some(0), Some(15));
        check("a", Some(-3), Some(15));
        check("a", Some(i64::MAX), Some(3600));
        check("", Some(40), None);
    }

    #[test]
    fn where_other_schedulers_would_be() {
        let show =
            |name, shard| known_leases(name, shard).iter().map(Key::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(
            show("kai-scheduler", "west"),
            "kai-scheduler/kai-scheduler-west volcano-system/kai-scheduler"
        );
        assert_eq!(
            show("default-scheduler", ""),
            "kai-scheduler/default-scheduler volcano-system/default-scheduler kube-system/kube-scheduler"
        );
        assert_eq!(
            show("volcano", ""),
            "kai-scheduler/volcano volcano-system/volcano volcano-system/vc-scheduler"
        );
    }

    #[test]
    fn reads_what_servers_write() {
        let text = r#"{"metadata": {"name": "a"}, "spec": {"holderIdentity": null, "strategy": "x"}}"#;
        let lease: LeaseObject = serde_json::from_str(text).unwrap();
        assert_eq!(lease.spec, Record::default());
    }

    /// `name/deployment-hash image args`, and `-` for none.
    fn pod(text: &str) -> PodObject {
        let mut words = text.split(' ');
        let (name, set) = words.next().unwrap().split_once('/').unwrap();
        let owner = json!({"kind": "ReplicaSet", "name": set, "controller": true});
        let owners: Vec<&Value> = Some(&owner).filter(|_| set != "-").into_iter().collect();
        let image = words.next().unwrap();
        serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"containers": [{"image": "sidecar:1"}, {"image": image, "args": words.collect::<Vec<_>>()}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    /// Who answers to `kai-scheduler` or `team`, in the only shard: `name pod fix`.
    #[track_caller]
    fn check_pods(pods: &[&str], expected: Option<&str>) {
        let pods: Vec<PodObject> = pods.iter().map(|text| pod(text)).filter(|pod| !pod.is_ours()).collect();
        let names = ["kai-scheduler".to_owned(), "team".to_owned()];
        let found = unled(&pods, &names, "");
        let found = found.map(|other| format!("{} {} {}", other.scheduler_name, other.pod.name, other.fix));
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn which_pods_are_schedulers_without_a_lease() {
        let stop =
            "kai-scheduler p kubectl -n kai-scheduler scale deployment/kai-scheduler-default --replicas=0";
        let set = "p/kai-scheduler-default-6f7";
        check_pods(&[&format!("{set} r:443/kai/scheduler:v1")], Some(stop));
        check_pods(&[&format!("{set} kai/scheduler@sha256:00")], Some(stop));
        check_pods(&[&format!("{set} x --scheduler-conf=/c --scheduler-name=kai-scheduler")], Some(stop));
        check_pods(&[&format!("{set} x --scheduler-conf /c --scheduler-name kai-scheduler")], Some(stop));
        check_pods(&[&format!("{set} x --scheduler-conf=/c --partition-label-value=")], Some(stop));
        check_pods(&[&format!("{set} x --scheduler-conf=/c --leader-elect=false")], Some(stop));
        // What is said last counts.
        check_pods(
            &[&format!("{set} scheduler --scheduler-name=a --scheduler-name=kai-scheduler")],
            Some(stop),
        );
        check_pods(&[&format!("{set} scheduler --scheduler-name=kai-scheduler --scheduler-name=a")], None);
        check_pods(&[&format!("{set} scheduler --scheduler-names=a --x=kai-scheduler")], Some(stop));
        // Another shard; one that has a lease; KAI's other programs; Muster itself.
        check_pods(&[&format!("{set} scheduler --partition-label-value=west")], None);
        check_pods(&[&format!("{set} scheduler --leader-elect")], None);
        check_pods(&[&format!("{set} scheduler --leader-elect=true")], None);
        check_pods(&[&format!("{set} kai/pod-grouper:v1 --scheduler-name=kai-scheduler")], None);
        check_pods(
            &[&format!("{set} muster:1 run --scheduler-name=kai-scheduler --scheduler-conf=/c")],
            None,
        );
        // Whoever would start it again is stopped with it; a pod of nobody's is deleted.
        check_pods(
            &[
                "o/kai-operator-8b9 kai/operator:v1",
                "q/- kai/binder:v1",
                "p/t-1 scheduler --scheduler-name=team",
            ],
            Some("team p kubectl -n kai-scheduler scale deployment/kai-operator deployment/t --replicas=0"),
        );
        check_pods(&["q/- kai/scheduler:v1"], Some("kai-scheduler q kubectl -n kai-scheduler delete pod q"));
    }

    #[test]
    fn identities_differ() {
        assert_ne!(identity(), identity());
    }
}
