//! Inputs to decisions to work: everything that the scheduler knows, and nothing of how it is told or how work is done.
//!
//! In: inputs in order, and the time. Out: the work that follows from a cycle. Must stay true: no I/O, no clock. What was
//! decided is taken for granted until the API server confirms it, the work fails, or it expires; a decision is made once.

use crate::hold::{self, Hold};
use crate::ingest::{Done, Failure, Input, Outcome};
use crate::slim;
use crate::volcano::{self, Census};
use muster_engine::{Engine, Figures};
use muster_model::{
    Action, Bind, Decisions, Diagnostic, GPU, Gang, GangPhase, Key, Name, Placement, Pod, PodState, Policy,
    Reason, Refusal, Resource, ShareSize, Span, Time,
};
use muster_scenario::words;
use muster_translate::{Kind, Settings, Translator};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What follows from a cycle, in the order in which it was decided.
#[derive(Debug, Default)]
pub struct Output {
    pub evictions: Vec<Eviction>,
    /// Gang by gang.
    pub placements: Vec<GangPlacement>,
    /// Gangs that wait, and why, where there is something new to say.
    pub waiting: Vec<Waiting>,
    /// Gangs about which something was said, by this process or one before it, and that no longer wait.
    pub placed: Vec<Placed>,
    /// BindRequests that a binder would try for ever, with their uids.
    pub hopeless: Vec<(Key, Name)>,
    /// Gangs that fell below their minimum, and since when; and gangs that have it again.
    pub stale: Vec<(GroupRef, Time)>,
    pub recovered: Vec<GroupRef>,
    /// Gangs that begin to run, where somebody's minimum runtime counts from that moment.
    pub started: Vec<GroupRef>,
    /// Gangs that lost pods, where their own delay before they may preempt counts from that moment.
    pub displaced: Vec<GroupRef>,
    /// Workloads that asked for a place, and whether it is held.
    pub held: Vec<(Key, Result<(), String>)>,
    /// Volcano's PodGroups that say something else than what is so.
    pub groups: Vec<GroupStatus>,
    /// Pods of Volcano's that name no PodGroup, and are to be given one.
    pub ungrouped: Vec<Key>,
    pub diagnostics: Vec<Diagnostic>,
    pub decisions: Decisions,
    pub counts: Counts,
}

/// What a cycle had before it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub inputs: usize,
    pub changes: usize,
    /// Promises that were given back because nobody confirmed them.
    pub expired: usize,
    /// Decisions that are on their way.
    pub in_flight: usize,
}

/// A PodGroup, or the lone pod that is a gang by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRef {
    pub key: Key,
    pub uid: Name,
    /// A pod without a PodGroup.
    pub lone: bool,
}

/// A gang that no longer waits.
#[derive(Debug)]
pub struct Placed {
    pub gang: GroupRef,
    /// Its group was given an entry that says why it waits, or is about to be.
    pub entry: bool,
    /// Its group shows one.
    pub seen: bool,
    /// What its group says of other pools.
    pub others: Vec<Value>,
}

#[derive(Debug)]
pub struct GangPlacement {
    pub gang: GroupRef,
    pub action: Action,
    /// With fewer of these pods bound the gang does not have its minimum.
    pub needed: usize,
    pub pods: Vec<PodPlacement>,
    /// What its minimum is, and what it had of it before.
    pub minimum: Minimum,
}

/// What a gang must have, and has without the pods that it gets now.
#[derive(Debug, Default)]
pub struct Minimum {
    gang: Option<Arc<Gang>>,
    stays: Vec<u32>,
}

impl Minimum {
    /// Whether the gang has all of its minimum that it would have with all these pods. In: the leaf of each, and whether it is bound.
    pub fn is_kept(&self, pods: impl Iterator<Item = (usize, bool)>) -> bool {
        let Some(gang) = &self.gang else { return true };
        let (mut with_all, mut with_bound) = (self.stays.clone(), self.stays.clone());
        for (leaf, bound) in pods {
            with_all.get_mut(leaf).into_iter().for_each(|n| *n += 1);
            with_bound.get_mut(leaf).into_iter().for_each(|n| *n += u32::from(bound));
        }
        let missing = |pods: &[u32]| gang.missing(|leaf| pods.get(leaf).copied().unwrap_or(0));
        missing(&with_bound) <= missing(&with_all)
    }
}

#[derive(Debug)]
pub struct PodPlacement {
    pub pod: Key,
    pub uid: Name,
    /// The index of its group in the gang.
    pub leaf: usize,
    pub created: Time,
    pub placement: Placement,
    pub received: Received,
    /// Allocations by the pod's names for its claims, as JSON.
    pub claims: Vec<(Name, Value)>,
    pub zones: Option<Value>,
    /// It has volumes that are bound once it has a node.
    pub volumes: bool,
}

/// What of GPUs a pod gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    Whole {
        count: u32,
    },
    /// `portion` in thousandths, of each of `count` devices.
    Part {
        count: u32,
        portion: i64,
    },
    Mig {
        count: u32,
    },
}

#[derive(Debug)]
pub struct Eviction {
    pub pod: Key,
    pub uid: Name,
    pub gang: GroupRef,
    pub action: Action,
    pub by: Option<Key>,
    pub moved: bool,
    /// It is given no time to end.
    pub forced: bool,
}

#[derive(Debug)]
pub struct Waiting {
    pub gang: GroupRef,
    pub refusal: Refusal,
    /// Pods that wait and are to be told so; none where nobody wants them marked.
    pub mark: Vec<Mark>,
    /// How the gang's own system puts it, if it has words of its own.
    pub headline: Option<String>,
    pub entry: Entry,
    /// The gang was told before; only pods have come that were not.
    pub only_marks: bool,
}

/// A pod that is to be told that it cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub pod: Key,
    pub uid: Name,
    /// It says so already, for another reason.
    pub again: bool,
}

/// What becomes of our entry among the conditions of a PodGroup that say why it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// There is none, and none is due.
    Absent,
    /// It is written, beside those of other pools.
    Write {
        others: Vec<Value>,
        transitions: u64,
        /// Since when one stands there.
        since: Option<String>,
    },
    /// It goes, and those of other pools stay.
    Remove { others: Vec<Value> },
}

/// What a Volcano PodGroup has to say.
#[derive(Debug)]
pub struct GroupStatus {
    pub gang: GroupRef,
    /// A merge patch of the object.
    pub patch: Value,
}

/// A place that is held for a workload.
#[derive(Debug, Default)]
struct Held {
    /// The stand-ins, with their nodes once they have them.
    pods: Vec<(Key, Option<Name>)>,
    answered: bool,
    /// Pods of the workload that are there.
    arrived: BTreeSet<Key>,
}

/// A Volcano PodGroup as far as its status goes.
#[derive(Debug)]
struct SeenGroup {
    seen: Value,
    /// What was told to be written since.
    sent: Option<Value>,
}

/// A decision that is not yet to be seen in the cluster.
#[derive(Debug)]
struct Flight {
    uid: Name,
    work: Work,
    /// When it is given back; `None` while somebody is at it, however long work waits for its turn: what is still to be sent must not be decided anew.
    until: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Bind,
    Evict,
}

/// What a PodGroup's `schedulingConditions` say.
#[derive(Debug)]
struct SeenConditions {
    /// The entry of our pool.
    ours: Option<SeenEntry>,
    others: Vec<Value>,
    transitions: u64,
}

#[derive(Debug)]
struct SeenEntry {
    message: String,
    since: Option<String>,
}

pub struct Core {
    translator: Translator,
    engine: Engine,
    flights: BTreeMap<Key, Flight>,
    /// How often work for a pod failed in a row.
    failures: BTreeMap<Key, (Name, u32)>,
    /// Groups that do not want their pods marked as unschedulable.
    unmarked: BTreeSet<Key>,
    /// Groups that want one try in each pool: what is written on them as the reason gives them up.
    once: BTreeSet<Key>,
    /// What was said about gangs that wait.
    told: BTreeMap<Key, Told>,
    /// Pods that say that they cannot be placed, or were just told to, by their uids.
    marked: BTreeSet<Name>,
    /// Pods that wait and came since it was last looked whether their gangs were told without them.
    fresh: BTreeSet<Key>,
    fresh_at: Time,
    /// What was told about gangs that lack their minimum or have it again, until their groups say so.
    staleness: BTreeMap<Key, ToldStale>,
    known: BTreeSet<Kind>,
    /// Volcano's PodGroups, by their gangs.
    groups: BTreeMap<Key, SeenGroup>,
    holds: BTreeMap<Key, Held>,
    /// What PodGroups say that they wait for, of those that say anything.
    conditions: BTreeMap<Key, SeenConditions>,
    /// BindRequests that failed and may be tried for ever, and whether they were told to go.
    hopeless: BTreeMap<Key, bool>,
    /// Pods that were found to be in no group; told once.
    ungrouped: BTreeSet<Key>,
    expiry: Span,
    /// The policy protects gangs for a while after they start; queues may, too.
    min_runtimes: bool,
    /// When a cycle runs even if nothing changes.
    next: Option<Time>,
    /// Something came to pass since the last cycle that could lead to a decision.
    changed: bool,
    /// What is wrong with objects, and not told yet.
    diagnostics: Vec<Diagnostic>,
}

struct Told {
    gang: GroupRef,
    since: Time,
    last: Option<(Time, Refusal)>,
    /// How often in a row nothing but numbers was new.
    n_numbers: u32,
    /// Its group was given an entry.
    entry: bool,
}

#[derive(Debug, Clone, Copy)]
struct ToldStale {
    stale: bool,
    since: Time,
    told: Time,
}

/// A gang that waits no longer than this is not worth a word.
const WORTH_A_WORD: Span = Span::seconds(1);
/// If only numbers changed, the news can wait: so long at first, and each time twice as long, so many times.
const NUMBERS_CHANGED: Span = Span::seconds(10);
const MOST_DOUBLINGS: u32 = 5;

/// How long the server's word is taken for granted; longer than it takes until everything is listed again.
const CONFIRMED: Span = Span::seconds(900);

/// How often a cycle runs while somebody waits for time to pass (grace periods, delays, minimum runtimes).
const LOOK_AGAIN: Span = Span::seconds(1);

/// What a condition calls the pool of what has no label.
pub(crate) const DEFAULT_POOL: &str = "default";

impl Core {
    pub fn new(settings: Settings, policy: Policy, expiry: Span) -> Self {
        let min_runtimes = policy.preempt_min_runtime > Span::ZERO || policy.reclaim_min_runtime > Span::ZERO;
        Self {
            min_runtimes,
            translator: Translator::new(settings),
            engine: Engine::new(policy),
            flights: BTreeMap::new(),
            failures: BTreeMap::new(),
            unmarked: BTreeSet::new(),
            once: BTreeSet::new(),
            told: BTreeMap::new(),
            marked: BTreeSet::new(),
            fresh: BTreeSet::new(),
            fresh_at: Time(0),
            staleness: BTreeMap::new(),
            known: BTreeSet::new(),
            groups: BTreeMap::new(),
            holds: BTreeMap::new(),
            conditions: BTreeMap::new(),
            hopeless: BTreeMap::new(),
            ungrouped: BTreeSet::new(),
            expiry,
            next: None,
            changed: false,
            diagnostics: Vec::new(),
        }
    }

    /// Every kind has been listed: decisions may be made.
    pub fn is_ready(&self) -> bool {
        self.known.len() == Kind::ALL.len()
    }

    /// The kinds that are not known yet.
    pub fn unknown(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.into_iter().filter(|kind| !self.known.contains(kind))
    }

    /// Takes inputs without deciding anything.
    pub fn take(&mut self, inputs: Vec<Input>, now: Time) {
        for input in inputs {
            match input {
                Input::Put(kind, value) => self.put(kind, &value),
                Input::Text(kind, key, text) => match slim::decode(kind, &text) {
                    Some(value) => self.put(kind, &value),
                    None => {
                        tracing::warn!(kind = kind.name(), object = %key, "cannot be read; it is left out");
                        self.gone(kind, &key);
                    }
                },
                Input::Gone(kind, key) => self.gone(kind, &key),
                Input::Known(kind) => drop(self.known.insert(kind)),
                Input::Volcano(config) => self.set_volcano(&config),
                Input::Hold(hold) => self.hold(&hold),
                Input::GiveBack(workload) => self.give_back(&workload),
                Input::Outcome(outcome) => self.outcome(outcome, now),
                Input::Unsaid(gang) => self.unsaid(&gang),
            }
        }
    }

    /// Takes inputs and runs a cycle; `None` if nothing came to pass that could lead to a decision.
    pub fn step(&mut self, inputs: Vec<Input>, now: Time) -> Option<Output> {
        let mut counts = Counts { inputs: inputs.len(), ..Counts::default() };
        self.take(inputs, now);
        counts.expired = self.expire(now);
        counts.changes = self.catch_up(now);
        let taken_over = self.take_over(now);
        let hopeless = self.give_up();
        let is_quiet = taken_over.is_empty() && hopeless.is_empty();
        if is_quiet && !self.changed && self.next.is_none_or(|next| now < next) {
            return None;
        }
        self.changed = false;
        let mut diagnostics = std::mem::take(&mut self.diagnostics);
        let mut decisions = self.engine.cycle(now);
        decisions.binds.splice(0..0, taken_over);
        let mut output = self.output(&decisions);
        output.hopeless = hopeless;
        output.held = self.answer_holds(&decisions);
        (output.stale, output.recovered) = self.staleness_news(&decisions, now);
        (output.waiting, output.placed) = self.news(&decisions.refusals, now);
        self.assume(&decisions);
        // The engine has taken its own decisions for granted; the translator must have handed them out too, or what is given back before
        // the next change would look as if it had never been decided.
        let (changes, more) = self.translator.drain();
        self.engine.apply(changes);
        diagnostics.extend(more);
        output.groups = self.group_statuses(&decisions, now);
        output.ungrouped = std::mem::take(&mut self.ungrouped).into_iter().collect();
        counts.in_flight = self.flights.len();
        let waits_for_time = !decisions.refusals.is_empty() || !decisions.newly_stale.is_empty();
        let expiry = self.flights.values().filter_map(|flight| flight.until).min();
        // Whoever has its minimum by decisions that are not confirmed yet is looked at again.
        let waits_for_time = waits_for_time || !decisions.recovered.is_empty();
        let again = waits_for_time.then_some(now + LOOK_AGAIN);
        // A grace may end although nobody waits.
        let by_itself = again.or_else(|| self.engine.next_moment(now));
        self.next = by_itself.into_iter().chain(expiry).min();
        output.diagnostics = diagnostics;
        output.decisions = decisions;
        output.counts = counts;
        Some(output)
    }

    /// When to run a cycle even if nothing changes.
    pub fn wake(&self) -> Option<Time> {
        self.next
    }

    /// Brings the engine up to date with what was taken, and decides nothing. Out: how much has changed.
    pub fn catch_up(&mut self, now: Time) -> usize {
        self.translator.set_now(now);
        let (changes, diagnostics) = self.translator.drain();
        let n = changes.len();
        self.engine.apply(changes);
        self.changed |= !self.translator.is_quiet();
        self.diagnostics.extend(diagnostics);
        n
    }

    /// Volcano's gangs go by another configuration from now on.
    fn set_volcano(&mut self, config: &Value) {
        let (conf, diagnostics) = muster_translate::volcano::conf::read(config);
        self.engine.set_volcano(Some(Arc::new(conf)));
        self.diagnostics.extend(diagnostics);
        self.changed = true;
    }

    /// Puts stand-ins for a workload's pods in line.
    fn hold(&mut self, hold: &Hold) {
        self.give_back(&hold.name);
        if self.holds.is_empty() {
            for queue in hold::queues(self.translator.settings()) {
                self.translator.put_as(Kind::Queue, &queue);
            }
        }
        let (group, pods) = hold::objects(hold, self.translator.settings());
        self.translator.put_as(Kind::PodGroup, &group);
        let mut held = Held::default();
        for pod in &pods {
            self.translator.put_as(Kind::Pod, pod);
            let name = pod["metadata"]["name"].as_str().unwrap_or("");
            held.pods.push((Key::new(hold.name.namespace.clone(), name), None));
        }
        self.holds.insert(hold.name.clone(), held);
        self.changed = true;
    }

    /// Takes the stand-ins of a workload away.
    fn give_back(&mut self, workload: &Key) {
        let Some(held) = self.holds.remove(workload) else { return };
        for (pod, _) in &held.pods {
            self.translator.delete_as(Kind::Pod, &pod.namespace, &pod.name);
        }
        let gang = hold::gang_of(workload);
        self.translator.delete_as(Kind::PodGroup, &gang.namespace, &gang.name);
        self.changed = true;
    }

    /// Who asked for a place has it, or is told why not and holds nothing.
    fn answer_holds(&mut self, decisions: &Decisions) -> Vec<(Key, Result<(), String>)> {
        if self.holds.is_empty() {
            return Vec::new();
        }
        let places: BTreeMap<&Key, &Name> =
            decisions.binds.iter().map(|bind| (&bind.pod, &bind.placement.node)).collect();
        let mut answers = Vec::new();
        for (workload, held) in &mut self.holds {
            for (pod, node) in &mut held.pods {
                if let Some(place) = places.get(pod) {
                    *node = Some((*place).clone());
                }
            }
            if std::mem::replace(&mut held.answered, true) {
                continue;
            }
            let whole = held.pods.iter().all(|(_, node)| node.is_some());
            let gang = hold::gang_of(workload);
            let why = || {
                let refusal = decisions.refusals.iter().find(|refusal| refusal.gang == gang);
                let reasons = refusal.map(|r| r.reasons.iter().map(words::reason).collect::<Vec<_>>());
                reasons.filter(|r| !r.is_empty()).map_or_else(|| "there is no room".into(), |r| r.join("; "))
            };
            answers.push((workload.clone(), if whole { Ok(()) } else { Err(why()) }));
        }
        for (workload, answer) in &answers {
            if answer.is_err() {
                self.give_back(workload);
            }
        }
        answers
    }

    /// A pod of a workload whose place is held is there.
    fn arrive(&mut self, value: &Value) {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let Some(workload) = value["metadata"]["annotations"][hold::WORKLOAD].as_str() else { return };
        let namespace: Name = text("/metadata/namespace").into();
        let workload = Key::new(namespace.clone(), workload);
        let Some(held) = self.holds.get_mut(&workload) else { return };
        held.arrived.insert(Key::new(namespace, text("/metadata/name")));
    }

    /// Once as many pods of a workload are there as are stood in for, and are in gangs, they take over, before it is anybody else's turn.
    fn take_over(&mut self, now: Time) -> Vec<Bind> {
        let gang_of = |pod: &Key| {
            let gang = self.translator.made_pod(pod)?.gang.clone()?;
            self.translator.made_gang(&gang).is_some().then_some(gang)
        };
        let mut complete: Vec<(Key, BTreeSet<Key>)> = Vec::new();
        for (workload, held) in self.holds.iter().filter(|(_, held)| held.arrived.len() >= held.pods.len()) {
            if let Some(gangs) = held.arrived.iter().map(gang_of).collect::<Option<BTreeSet<Key>>>() {
                complete.push((workload.clone(), gangs));
            }
        }
        let mut binds = Vec::new();
        for (workload, gangs) in complete {
            self.give_back(&workload);
            self.catch_up(now);
            for gang in gangs {
                binds.extend(self.engine.place_first(&gang, now).binds);
            }
        }
        binds
    }

    /// What Volcano's PodGroups have to say that they do not say yet.
    fn group_statuses(&mut self, decisions: &Decisions, now: Time) -> Vec<GroupStatus> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let phases: BTreeMap<&Key, &GangPhase> = decisions.phases.iter().map(|p| (&p.gang, p)).collect();
        let refusals: BTreeMap<&Key, &Refusal> = decisions.refusals.iter().map(|r| (&r.gang, r)).collect();
        let mut statuses = Vec::new();
        for (key, group) in &mut self.groups {
            let Some(gang) = self.translator.made_gang(key) else { continue };
            let Some(facts) = &gang.volcano else { continue };
            let decided = phases.get(key);
            let phase = decided.map_or(facts.phase, |decided| decided.phase);
            let domain = decided.and_then(|decided| decided.domain.as_deref());
            let census = Census::take(gang, self.translator.made_pods_of(key));
            let why = refusals.get(key).copied();
            let patch = volcano::patch(&group.seen, phase, domain, &census, why, now);
            // What was told before and has not come back yet need not be told again.
            let Some(patch) = patch.filter(|patch| group.sent.as_ref().is_none_or(|s| !is_same(s, patch)))
            else {
                continue;
            };
            group.sent = Some(patch.clone());
            let gang = GroupRef { key: key.clone(), uid: gang.uid.clone(), lone: false };
            statuses.push(GroupStatus { gang, patch });
        }
        statuses
    }

    /// Why a gang waits, in full.
    pub fn explain(&mut self, gang: &Key, now: Time) -> Option<Refusal> {
        self.engine.explain(gang, now)
    }

    /// The cluster in numbers, after a step that decided this.
    pub fn figures(&self, decisions: &Decisions) -> Figures {
        self.engine.figures(decisions)
    }

    /// The cluster as the engine sees it.
    pub fn cluster(&self) -> muster_model::Cluster {
        self.translator.made_cluster()
    }

    fn put(&mut self, kind: Kind, value: &Value) {
        self.translator.put_as(kind, value);
        let field = |pointer: &str| value.pointer(pointer);
        let text = |pointer: &str| field(pointer).and_then(Value::as_str).unwrap_or("");
        let key = || Key::new(text("/metadata/namespace"), text("/metadata/name"));
        match kind {
            Kind::Pod => {
                if !self.holds.is_empty() {
                    self.arrive(value);
                }
                let settings = self.translator.settings();
                let scheduler = text("/spec/schedulerName");
                if settings.volcano.iter().any(|name| **name == *scheduler)
                    && settings.scheduler_names.iter().any(|name| **name == *scheduler)
                {
                    let names_group = volcano::GROUP_ANNOTATIONS.iter().any(|annotation| {
                        value["metadata"]["annotations"][*annotation].as_str().is_some_and(|n| !n.is_empty())
                    });
                    // Pods of other shards are given their groups there.
                    let pool = settings.pool.label.as_ref().unwrap_or(&settings.node_pool_label);
                    let is_here =
                        value["metadata"]["labels"][&**pool].as_str() == settings.pool.value.as_deref();
                    match names_group || !is_here || !text("/spec/nodeName").is_empty() {
                        true => drop(self.ungrouped.remove(&key())),
                        false => drop(self.ungrouped.insert(key())),
                    }
                }
                let waits = text("/spec/nodeName").is_empty()
                    && field("/metadata/deletionTimestamp").is_none()
                    && matches!(text("/status/phase"), "" | "Pending");
                if waits {
                    if says_unschedulable(value) {
                        self.marked.insert(text("/metadata/uid").into());
                    } else if !self.marked.contains(text("/metadata/uid")) {
                        self.fresh.insert(key());
                    }
                } else if !self.marked.is_empty() {
                    self.marked.remove(text("/metadata/uid"));
                }
                // Most pods that come by are not in flight.
                if self.flights.is_empty() {
                    return;
                }
                let key = key();
                let settled = self.flights.get(&key).is_some_and(|flight| {
                    *flight.uid != *text("/metadata/uid")
                        || field("/metadata/deletionTimestamp").is_some()
                        || matches!(text("/status/phase"), "Succeeded" | "Failed")
                        // Who is evicted has had a node all along.
                        || (flight.work == Work::Bind && !text("/spec/nodeName").is_empty())
                });
                if settled {
                    self.flights.remove(&key);
                    self.failures.remove(&key);
                }
            }
            Kind::VolcanoPodGroup => {
                let gang = Key::new(
                    text("/metadata/namespace"),
                    format!("{}{}", volcano::PREFIX, text("/metadata/name")),
                );
                let metadata = &value["metadata"];
                let seen = json!({
                    "metadata": {"uid": metadata["uid"], "annotations": metadata["annotations"]},
                    "status": value["status"],
                });
                self.groups.insert(gang, SeenGroup { seen, sent: None });
            }
            Kind::BindRequest => self.see_request(key(), value),
            Kind::PodGroup => {
                self.see_conditions(key(), value);
                // Another group under this name has been told nothing.
                if let Some(told) = self.told.get_mut(&key())
                    && *told.gang.uid != *text("/metadata/uid")
                {
                    told.last = None;
                }
                if field("/spec/markUnschedulable") == Some(&Value::Bool(false)) {
                    self.unmarked.insert(key());
                } else if !self.unmarked.is_empty() {
                    self.unmarked.remove(&key());
                }
                if field("/spec/schedulingBackoff").and_then(Value::as_i64) == Some(1) {
                    self.once.insert(key());
                } else if !self.once.is_empty() {
                    self.once.remove(&key());
                }
            }
            _ => {}
        }
    }

    fn gone(&mut self, kind: Kind, key: &muster_runtime::Key) {
        self.translator.delete_as(kind, &key.namespace, &key.name);
        let key = Key::new(key.namespace.as_str(), key.name.as_str());
        match kind {
            Kind::Pod => {
                if let Some(pod) = self.translator.made_pod(&key).filter(|_| !self.marked.is_empty()) {
                    self.marked.remove(&pod.uid);
                }
                self.fresh.remove(&key);
                self.flights.remove(&key);
                self.failures.remove(&key);
                self.ungrouped.remove(&key);
                for held in self.holds.values_mut() {
                    held.arrived.remove(&key);
                }
            }
            Kind::VolcanoPodGroup => {
                let gang = Key::new(key.namespace.clone(), format!("{}{}", volcano::PREFIX, key.name));
                self.groups.remove(&gang);
            }
            Kind::PodGroup => {
                self.unmarked.remove(&key);
                self.once.remove(&key);
                self.conditions.remove(&key);
            }
            Kind::BindRequest => drop(self.hopeless.remove(&key)),
            _ => {}
        }
    }

    /// What a PodGroup says about why it waits, in this pool and in others.
    fn see_conditions(&mut self, key: Key, value: &Value) {
        let conditions = value.pointer("/status/schedulingConditions").and_then(Value::as_array);
        let Some(conditions) = conditions.filter(|conditions| !conditions.is_empty()) else {
            self.conditions.remove(&key);
            return;
        };
        let pool = self.translator.settings().pool.value.as_deref().unwrap_or(DEFAULT_POOL);
        let is_ours = |condition: &&Value| condition["nodePool"].as_str().unwrap_or(DEFAULT_POOL) == pool;
        let number = |condition: &Value| condition["transitionID"].as_str()?.parse().ok();
        let entry = |condition: &Value| SeenEntry {
            message: condition["message"].as_str().unwrap_or("").to_owned(),
            since: condition["lastTransitionTime"].as_str().map(str::to_owned),
        };
        let seen = SeenConditions {
            ours: conditions.iter().rev().find(is_ours).map(entry),
            others: conditions.iter().filter(|condition| !is_ours(condition)).cloned().collect(),
            transitions: conditions.iter().filter_map(number).max().unwrap_or(0),
        };
        self.conditions.insert(key, seen);
    }

    /// A binder's request, and whether it may be tried for ever.
    fn see_request(&mut self, key: Key, value: &Value) {
        if value["status"]["phase"] == "Failed" && value["spec"]["backoffLimit"].is_null() {
            // Told again whenever it is still to be seen: what took it away may have failed.
            self.hopeless.insert(key, false);
        } else {
            self.hopeless.remove(&key);
        }
    }

    /// Work that was done is taken for granted until the watch shows it; work that failed is given back, and not tried again and again.
    fn outcome(&mut self, outcome: Outcome, now: Time) {
        let Some(flight) = self.flights.get_mut(&outcome.pod).filter(|f| *f.uid == *outcome.uid) else {
            return;
        };
        let failure = match outcome.result {
            // The answer is the server's word. Only what nobody has answered may be given back before the watch tells what became of it,
            // which may take as long as a connection that is dead and does not say so.
            Ok(done) => {
                let wait = if done == Done::Bound { CONFIRMED } else { self.expiry };
                let until = flight.until.unwrap_or(now).max(now + wait);
                flight.until = Some(until);
                self.wake_at(until);
                return;
            }
            Err(failure) => failure,
        };
        let work = flight.work;
        let uid = flight.uid.clone();
        let entry = self.failures.entry(outcome.pod.clone()).or_insert_with(|| (uid.clone(), 0));
        let n = if entry.0 == uid { entry.1 } else { 0 };
        *entry = (uid, n.saturating_add(1));
        match failure {
            // The watch will tell, or has told already. If it does not, there is no sense in trying again and again without a pause.
            Failure::Overtaken if n == 0 => {
                self.flights.remove(&outcome.pod);
                self.translator.forget(&outcome.pod);
            }
            Failure::Overtaken => self.give_back_at(&outcome.pod, now + backoff(n - 1)),
            Failure::Refused => {
                // It has no place, and none is sought for it meanwhile: a gang that needs it must neither count it nor be placed without it.
                if work == Work::Bind {
                    self.translator.hold_back(&outcome.pod);
                }
                self.give_back_at(&outcome.pod, now + backoff(n));
            }
            // It may have its place, which nobody else must be given before the watch has had time to tell.
            Failure::Unanswered => self.give_back_at(&outcome.pod, now + self.expiry.max(backoff(n))),
        }
    }

    fn give_back_at(&mut self, pod: &Key, at: Time) {
        if let Some(flight) = self.flights.get_mut(pod) {
            flight.until = Some(at);
            self.wake_at(at);
        }
    }

    fn wake_at(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// What was to be told of a gang has not reached anybody.
    fn unsaid(&mut self, gang: &Key) {
        let Some(told) = self.told.get_mut(gang) else { return };
        told.last = None;
        for pod in self.translator.made_pods_of(gang) {
            self.marked.remove(&pod.uid);
        }
    }

    fn expire(&mut self, now: Time) -> usize {
        let over: Vec<Key> = self
            .flights
            .iter()
            .filter(|(_, f)| f.until.is_some_and(|u| u <= now))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &over {
            self.flights.remove(key);
            self.translator.forget(key);
        }
        over.len()
    }

    /// From now on the decisions count as carried out.
    fn assume(&mut self, decisions: &Decisions) {
        for bind in &decisions.binds {
            self.translator.assume_placed(&bind.pod, &bind.placement);
            // Nobody confirms a stand-in's place.
            if !hold::is_stand_in(&bind.gang) {
                self.fly(&bind.pod, Work::Bind);
            }
        }
        for evict in &decisions.evictions {
            self.translator.assume_leaving(&evict.pod);
            self.fly(&evict.pod, Work::Evict);
        }
        let promises = decisions.pipelined.iter();
        self.translator.nominate(promises.map(|p| (p.pod.clone(), p.placement.node.clone())));
    }

    fn fly(&mut self, pod: &Key, work: Work) {
        if let Some(made) = self.translator.made_pod(pod) {
            self.flights.insert(pod.clone(), Flight { uid: made.uid.clone(), work, until: None });
        }
    }

    /// BindRequests of our pods that a binder would try for ever.
    fn give_up(&mut self) -> Vec<(Key, Name)> {
        if self.hopeless.values().all(|told| *told) {
            return Vec::new();
        }
        let mut hopeless: Vec<(Key, Name)> = self.translator.hopeless_requests().collect();
        // Those that are not of our pods may become so: a pod may be told of after its request.
        hopeless
            .retain(|(key, _)| self.hopeless.get_mut(key).is_some_and(|told| !std::mem::replace(told, true)));
        hopeless
    }

    fn output(&self, decisions: &Decisions) -> Output {
        let mut placements: Vec<GangPlacement> = Vec::new();
        let mut of_gang: BTreeMap<&Key, usize> = BTreeMap::new();
        for bind in decisions.binds.iter().filter(|bind| !hold::is_stand_in(&bind.gang)) {
            let Some(pod) = self.translator.made_pod(&bind.pod) else { continue };
            let at = *of_gang.entry(&bind.gang).or_insert_with(|| {
                placements.push(GangPlacement {
                    gang: self.group_ref(&bind.gang),
                    action: bind.action,
                    needed: 0,
                    pods: Vec::new(),
                    minimum: Minimum::default(),
                });
                placements.len() - 1
            });
            if let Some(placed) = placements.get_mut(at) {
                let leaf =
                    self.translator.made_gang(&bind.gang).and_then(|gang| gang.leaf(pod.group.as_ref()));
                placed.pods.push(self.placement(bind, pod, leaf.unwrap_or(0)));
            }
        }
        for placed in &mut placements {
            let Some(gang) = self.translator.made_gang(&placed.gang.key) else { continue };
            let new = placed.pods.iter().map(|pod| &pod.pod).collect();
            let stays = self.stays(gang, &new);
            let missing = gang.missing(|leaf| stays.get(leaf).copied().unwrap_or(0)) as usize;
            placed.needed = missing.min(placed.pods.len());
            placed.minimum = Minimum { gang: Some(gang.clone()), stays };
        }
        let evictions = decisions.evictions.iter().filter_map(|evict| {
            Some(Eviction {
                pod: evict.pod.clone(),
                uid: self.translator.made_pod(&evict.pod)?.uid.clone(),
                gang: self.group_ref(&evict.gang),
                action: evict.action,
                by: evict.by.clone(),
                moved: evict.moved,
                forced: evict.forced,
            })
        });
        let timed = !placements.is_empty() && (self.min_runtimes || self.translator.has_min_runtimes());
        let starts = |gang: &&GangPlacement| timed && !gang.gang.lone && !self.runs(&gang.gang.key);
        let started = placements.iter().filter(starts).map(|gang| gang.gang.clone()).collect();
        let delays =
            |key: &Key| self.translator.made_gang(key).is_some_and(|g| g.preemption_delay > Span::ZERO);
        let mut displaced: Vec<GroupRef> = Vec::new();
        for evict in decisions.evictions.iter().filter(|evict| delays(&evict.gang)) {
            if !displaced.iter().any(|gang| gang.key == evict.gang) {
                displaced.push(self.group_ref(&evict.gang));
            }
        }
        displaced.retain(|gang| !gang.lone);
        Output { evictions: evictions.collect(), placements, started, displaced, ..Output::default() }
    }

    /// How many pods of each leaf of a gang stay, but for some.
    fn stays(&self, gang: &Gang, but: &BTreeSet<&Key>) -> Vec<u32> {
        let mut stays = vec![0; gang.groups.len()];
        for pod in self.staying(&gang.key).filter(|pod| !but.contains(&pod.key)) {
            if let Some(n) = gang.leaf(pod.group.as_ref()).and_then(|leaf| stays.get_mut(leaf)) {
                *n += 1;
            }
        }
        stays
    }

    fn staying(&self, gang: &Key) -> impl Iterator<Item = &Arc<Pod>> {
        self.translator.made_pods_of(gang).filter(|pod| pod.state.stays())
    }

    /// Whether some of it had a place before this cycle.
    fn runs(&self, gang: &Key) -> bool {
        self.staying(gang).next().is_some()
    }

    fn group_ref(&self, key: &Key) -> GroupRef {
        // A lone pod's gang has the pod's uid.
        let gang = self.translator.made_gang(key);
        let uid = gang.map_or_else(|| "".into(), |gang| gang.uid.clone());
        let lone = self.translator.made_pod(key).is_some_and(|pod| pod.uid == uid);
        GroupRef { key: key.clone(), uid, lone }
    }

    fn placement(&self, bind: &Bind, pod: &Pod, leaf: usize) -> PodPlacement {
        let shape = &pod.shape;
        let (claims, zones) = self.translator.placement_fields(&bind.pod, &bind.placement);
        let count = |thousandths: i64| u32::try_from(thousandths / GPU).unwrap_or(u32::MAX);
        let mig: i64 = shape
            .requests
            .iter()
            .filter(|(resource, _)| resource.mig_parts().is_some())
            .fold(0, |sum, (_, n)| sum.saturating_add(n));
        let received = match shape.gpu_share {
            Some(share) => Received::Part {
                count: share.devices,
                portion: bind.placement.gpu_portion.unwrap_or(match share.size {
                    ShareSize::Portion(portion) => portion,
                    ShareSize::Memory(_) => 0,
                }),
            },
            None if mig > 0 => Received::Mig { count: u32::try_from(mig).unwrap_or(u32::MAX) },
            None => Received::Whole { count: count(shape.requests.get(&Resource::Gpu)) },
        };
        PodPlacement {
            pod: bind.pod.clone(),
            uid: pod.uid.clone(),
            leaf,
            created: pod.created,
            placement: bind.placement.clone(),
            received,
            claims,
            zones,
            volumes: shape
                .volumes
                .iter()
                .any(|v| matches!(v.need, muster_model::VolumeNeed::WaitsForPod { .. })),
        }
    }

    /// Gangs that are to be told that they lack their minimum, and since when, or that they have it again. The engine says so in every cycle
    /// until the group itself does; that takes a while, and may fail.
    fn staleness_news(&mut self, decisions: &Decisions, now: Time) -> (Vec<(GroupRef, Time)>, Vec<GroupRef>) {
        if decisions.newly_stale.is_empty() && decisions.recovered.is_empty() {
            self.staleness.clear();
            return (Vec::new(), Vec::new());
        }
        let before = std::mem::take(&mut self.staleness);
        // A minimum that is only promised is none: the binding may be refused, and the time that the gang has must go on then.
        let is_promised = |gang: &Key| {
            self.translator.made_pods_of(gang).any(|pod| self.flights.contains_key(&pod.key))
                || decisions.binds.iter().any(|bind| bind.gang == *gang)
        };
        let recovered = decisions.recovered.iter().filter(|gang| !is_promised(gang));
        let all =
            decisions.newly_stale.iter().map(|gang| (gang, true)).chain(recovered.map(|gang| (gang, false)));
        let (mut stale, mut whole) = (Vec::new(), Vec::new());
        for (key, is_stale) in all {
            let was = before.get(key).copied().filter(|was| was.stale == is_stale);
            let is_told = was.is_some_and(|was| now - was.told < self.expiry);
            let since = was.map_or(now, |was| was.since);
            let told = was.filter(|_| is_told).map_or(now, |was| was.told);
            self.staleness.insert(key.clone(), ToldStale { stale: is_stale, since, told });
            let gang = self.group_ref(key);
            if is_told || gang.lone {
                continue;
            }
            match is_stale {
                true => stale.push((gang, since)),
                false => whole.push(gang),
            }
        }
        (stale, whole)
    }

    /// What is new about who waits, and why. Many gangs may wait for long; little of it is news.
    fn news(&mut self, refusals: &[Refusal], now: Time) -> (Vec<Waiting>, Vec<Placed>) {
        let mut waiting = Vec::new();
        let before = std::mem::take(&mut self.told);
        let held_back = self.held_back();
        let with_fresh = self.gangs_with_fresh_pods(now);
        let mut placed: Vec<(GroupRef, bool)> = Vec::new();
        // What an earlier process said counts as said, once it is known that the gang waits no longer.
        let mut marked: BTreeSet<Key> = self
            .conditions
            .iter()
            .filter(|(key, seen)| {
                seen.ours.is_some()
                    && !before.contains_key(key)
                    && !held_back.contains(*key)
                    && self.translator.made_gang(key).is_some()
            })
            .map(|(key, _)| key.clone())
            .collect();
        let mut before = before.into_iter().peekable();
        // Both are in order of gang.
        for refusal in refusals {
            marked.remove(&refusal.gang);
            while let Some((_, told)) = before.next_if(|(key, _)| *key < refusal.gang) {
                placed.extend(told.said());
            }
            let mut told = match before.next_if(|(key, _)| *key == refusal.gang) {
                Some((_, told)) => told,
                None => self.first_told(refusal, now),
            };
            let has_fresh = with_fresh.contains(&refusal.gang);
            // What was refused was told as it happened, and it has yet to be seen whether that lasts.
            if !held_back.contains(&refusal.gang) {
                waiting.extend(self.word(&mut told, refusal, has_fresh, now));
            }
            self.told.insert(refusal.gang.clone(), told);
        }
        placed.extend(before.filter_map(|(_, told)| told.said()));
        placed.extend(marked.iter().map(|key| (self.group_ref(key), true)));
        // Nothing is taken back of a group that is gone, or another shard's by now: that this pool had no room stays true.
        placed.retain(|(gang, _)| {
            self.translator.made_gang(&gang.key).is_some_and(|made| made.uid == gang.uid)
        });
        let placed = placed.into_iter().map(|(gang, entry)| match self.conditions.get_mut(&gang.key) {
            // Said once; the object will tell when it has changed.
            Some(seen) => {
                let seen_ours = seen.ours.take().is_some();
                Placed { gang, entry: entry || seen_ours, seen: seen_ours, others: seen.others.clone() }
            }
            None => Placed { gang, entry, seen: false, others: Vec::new() },
        });
        (waiting, placed.collect())
    }

    /// A gang that begins to wait. What an earlier process wrote about it counts as told if it is still so.
    fn first_told(&self, refusal: &Refusal, now: Time) -> Told {
        let ours = self.conditions.get(&refusal.gang).and_then(|seen| seen.ours.as_ref());
        let last = ours
            .filter(|entry| self.is_due(refusal) && entry.message == crate::words::waits(refusal))
            .map(|_| (now, refusal.clone()));
        Told { gang: self.group_ref(&refusal.gang), since: now, last, n_numbers: 0, entry: ours.is_some() }
    }

    /// Whether a group is to have an entry that says why it waits. One that wants a single try per pool is given up by it, so a place must have
    /// been looked for and not found; and what runs is not given up for its surplus.
    fn is_due(&self, refusal: &Refusal) -> bool {
        let is_tried =
            |reason: &Reason| !matches!(reason, Reason::NotReady { .. } | Reason::Pipelined { .. });
        !self.once.contains(&refusal.gang) || (refusal.placed == 0 && refusal.reasons.iter().all(is_tried))
    }

    /// What there is to say about a gang that waits, if anything. In: whether pods of it came lately.
    fn word(&mut self, told: &mut Told, refusal: &Refusal, has_fresh: bool, now: Time) -> Option<Waiting> {
        let is_news = told.is_news(refusal, now);
        if !is_news && !has_fresh {
            return None;
        }
        let gang = self.group_ref(&refusal.gang);
        if gang.uid != told.gang.uid {
            // Its group has come only now, or is another one.
            (told.last, told.entry) = (None, false);
        }
        let is_other = told.last.as_ref().is_none_or(|(_, last)| kind_of(last) != kind_of(refusal));
        told.gang = gang.clone();
        // Pods that say so are told again only when it is for another reason.
        let mut mark = Vec::new();
        if is_unschedulable(refusal) && (is_news || told.last.is_some()) {
            for (pod, uid) in self.waiting_pods(&gang) {
                let again = self.marked.contains(&uid);
                if (is_news && is_other) || !again {
                    self.marked.insert(uid.clone());
                    mark.push(Mark { pod, uid, again });
                }
            }
        }
        let mut entry = Entry::Absent;
        if is_news {
            told.n_numbers = if is_other { 0 } else { told.n_numbers.saturating_add(1) };
            told.last = Some((now, refusal.clone()));
            let seen = self.conditions.get(&refusal.gang);
            let others = || seen.map(|seen| seen.others.clone()).unwrap_or_default();
            let ours = seen.and_then(|seen| seen.ours.as_ref());
            if self.is_due(refusal) {
                let since = ours.and_then(|ours| ours.since.clone());
                let transitions = seen.map_or(0, |seen| seen.transitions);
                entry = Entry::Write { others: others(), transitions, since };
                told.entry = true;
            } else if ours.is_some() || std::mem::take(&mut told.entry) {
                entry = Entry::Remove { others: others() };
            }
        } else if mark.is_empty() {
            return None;
        }
        let headline = self.headline(refusal);
        Some(Waiting { gang, refusal: refusal.clone(), mark, headline, entry, only_marks: !is_news })
    }

    /// Gangs with a pod for which nothing is sought, because what was decided of it has just been refused.
    fn held_back(&self) -> BTreeSet<Key> {
        if self.failures.is_empty() {
            return BTreeSet::new();
        }
        let paused = self.flights.iter().filter(|(pod, flight)| {
            flight.work == Work::Bind && flight.until.is_some() && self.failures.contains_key(*pod)
        });
        paused.filter_map(|(pod, _)| self.translator.made_pod(pod)?.gang.clone()).collect()
    }

    /// Gangs of pods that came lately, wait and were told nothing; looked for now and then.
    fn gangs_with_fresh_pods(&mut self, now: Time) -> BTreeSet<Key> {
        if now - self.fresh_at < WORTH_A_WORD {
            return BTreeSet::new();
        }
        self.fresh_at = now;
        let fresh = std::mem::take(&mut self.fresh);
        let made = fresh.iter().filter_map(|key| self.translator.made_pod(key));
        let untold = made.filter(|pod| pod.state == PodState::Pending && !self.marked.contains(&pod.uid));
        untold.filter_map(|pod| pod.gang.clone()).collect()
    }

    /// What Volcano says of a gang of its own.
    fn headline(&self, refusal: &Refusal) -> Option<String> {
        let gang = self.translator.made_gang(&refusal.gang).filter(|gang| gang.volcano.is_some())?;
        Some(Census::take(gang, self.translator.made_pods_of(&refusal.gang)).headline(Some(refusal)))
    }

    /// The pods of a gang that wait for a place, unless the gang does not want them marked.
    fn waiting_pods(&self, gang: &GroupRef) -> Vec<(Key, Name)> {
        if self.unmarked.contains(&gang.key) {
            return Vec::new();
        }
        self.translator
            .made_pods_of(&gang.key)
            .filter(|pod| pod.state == PodState::Pending)
            .map(|pod| (pod.key.clone(), pod.uid.clone()))
            .collect()
    }
}

impl Told {
    fn is_news(&self, refusal: &Refusal, now: Time) -> bool {
        let Some((at, last)) = &self.last else { return now - self.since >= WORTH_A_WORD };
        if last == refusal {
            return false;
        }
        let patience = match kind_of(last) == kind_of(refusal) {
            true => Span(NUMBERS_CHANGED.0 << self.n_numbers.min(MOST_DOUBLINGS)),
            false => WORTH_A_WORD,
        };
        now - *at >= patience
    }

    /// The gang, if anything was said about it, and whether its group was given an entry.
    fn said(self) -> Option<(GroupRef, bool)> {
        self.last.is_some().then_some((self.gang, self.entry))
    }
}

fn kind_of(refusal: &Refusal) -> Option<std::mem::Discriminant<Reason>> {
    refusal.reasons.first().map(std::mem::discriminant)
}

/// A pod that was told that it cannot be placed.
fn says_unschedulable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "PodScheduled"
            && condition["status"] == "False"
            && condition["reason"] == "Unschedulable"
    })
}

/// Its pods are complete and cannot be placed, which autoscalers should know. Pods that wait for others of their gang, or for room
/// that is being released, need no new nodes.
fn is_unschedulable(refusal: &Refusal) -> bool {
    let helps = |reason: &Reason| {
        !matches!(reason, Reason::NotReady { .. } | Reason::Pipelined { .. } | Reason::QueueClosed { .. })
    };
    refusal.reasons.iter().all(helps)
}

/// Equal but for when and by which transition conditions came to be.
fn is_same(a: &Value, b: &Value) -> bool {
    let plain = |patch: &Value| {
        let mut patch = patch.clone();
        let conditions = patch.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.remove("lastTransitionTime");
            condition.remove("transitionID");
        }
        patch
    };
    plain(a) == plain(b)
}

/// 1 s, 2 s, 4 s, ... one minute.
fn backoff(failures: u32) -> Span {
    Span::seconds((1_i64 << failures.min(6)).min(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(kind: Kind, value: Value) -> Input {
        Input::Put(kind, value)
    }

    fn node(name: &str, gpus: u32) -> Input {
        put(
            Kind::Node,
            json!({"metadata": {"name": name}, "status": {
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()},
                "conditions": [{"type": "Ready", "status": "True"}],
            }}),
        )
    }

    fn group(name: &str, min: u32) -> Input {
        put(
            Kind::PodGroup,
            json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}")},
                "spec": {"minMember": min, "queue": "q"}}),
        )
    }

    fn pod_json(name: &str, group: &str, gpus: u32) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}"), "annotations": {"pod-group-name": group}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [
                {"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}, "limits": {"nvidia.com/gpu": gpus.to_string()}}}]},
            "status": {"phase": "Pending"}})
    }

    fn pod(name: &str, group: &str, gpus: u32) -> Input {
        put(Kind::Pod, pod_json(name, group, gpus))
    }

    /// A core that knows a queue and nothing else.
    fn core() -> Core {
        let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let queue = json!({"metadata": {"name": "q"},
            "spec": {"resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}}});
        let mut core = Core::new(Settings::default(), Policy::default(), Span::seconds(30));
        let known = Kind::ALL.into_iter().map(Input::Known);
        core.take([put(Kind::Queue, queue)].into_iter().chain(known).collect(), Time(0));
        assert!(core.is_ready());
        core
    }

    #[track_caller]
    fn check(core: &mut Core, now: i64, inputs: Vec<Input>, expected: &[&str]) {
        let output = core.step(inputs, Time(now));
        let mut got: Vec<String> = Vec::new();
        if let Some(output) = output {
            for gang in &output.placements {
                let pods: Vec<String> =
                    gang.pods.iter().map(|p| format!("{}@{}", p.pod.name, p.placement.node)).collect();
                got.push(format!("{}: {}", gang.gang.key.name, pods.join(" ")));
            }
            got.extend(output.evictions.iter().map(|e| format!("evict {}", e.pod.name)));
            got.extend(
                output.waiting.iter().map(|w| format!("{} waits, {} marked", w.gang.key.name, w.mark.len())),
            );
            got.extend(output.placed.iter().map(|p| format!("{} waits no longer", p.gang.key.name)));
            got.extend(output.started.iter().map(|g| format!("{} starts", g.key.name)));
            got.extend(output.displaced.iter().map(|g| format!("{} is displaced", g.key.name)));
        }
        assert_eq!(got, expected);
    }

    fn fails(name: &str, failure: Failure) -> Input {
        Input::Outcome(Outcome { pod: Key::new("ns", name), uid: format!("u-{name}"), result: Err(failure) })
    }

    #[test]
    fn a_gang_is_placed_when_it_is_complete() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 2), pod("a", "g", 4)], &[]);
        check(core, 2, vec![pod("b", "g", 4)], &["g: a@n b@n"]);
        check(core, 3, vec![group("h", 1), pod("c", "h", 1)], &[]);
        assert_eq!(core.flights.len(), 2);
    }

    #[test]
    fn what_was_decided_is_decided_once() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        // The pod changes before its binding is to be seen.
        let mut changed = pod_json("a", "g", 8);
        changed["metadata"]["labels"] = json!({"x": "y"});
        check(core, 2, vec![put(Kind::Pod, changed.clone())], &[]);
        changed["spec"]["nodeName"] = json!("n");
        check(core, 3, vec![put(Kind::Pod, changed)], &[]);
        assert!(core.flights.is_empty());
        check(core, 60_000, vec![], &[]);
    }

    #[test]
    fn a_promise_that_nobody_confirms_is_given_back() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        // However long it waits for its turn to be sent: two decisions must not be on their way.
        check(core, 100_000, vec![], &[]);
        let asked = Outcome { pod: Key::new("ns", "a"), uid: "u-a".to_owned(), result: Ok(Done::Asked) };
        check(core, 100_001, vec![Input::Outcome(asked)], &[]);
        check(core, 130_000, vec![], &[]);
        check(core, 130_001, vec![], &["g: a@n"]);
    }

    #[test]
    fn what_failed_is_tried_again_when_its_pause_is_over() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        for (at, until) in [(100, 1_100), (1_200, 3_200), (3_300, 7_300)] {
            check(core, at, vec![fails("a", Failure::Refused)], &[]);
            assert_eq!(core.wake(), Some(Time(until)));
            check(core, until, vec![], &["g: a@n"]);
        }
    }

    /// A BindRequest.
    fn request(pod: &str, phase: &str, attempts: i64, limit: Option<i64>) -> Input {
        put(
            Kind::BindRequest,
            json!({"metadata": {"namespace": "ns", "name": pod, "uid": format!("r-{pod}")},
                "spec": {"podName": pod, "selectedNode": "n", "backoffLimit": limit},
                "status": {"phase": phase, "failedAttempts": attempts, "reason": "no"}}),
        )
    }

    #[test]
    fn a_request_without_a_limit_is_taken_away_before_its_pod_is_decided_anew() {
        let core = &mut core();
        check(
            core,
            1,
            vec![node("n", 8), node("m", 8), group("g", 1), request("a", "Pending", 0, None)],
            &[],
        );
        check(core, 2, vec![pod("a", "g", 8)], &[]);
        let output = core.step(vec![request("a", "Failed", 1, None)], Time(3)).unwrap();
        assert_eq!(output.hopeless, [(Key::new("ns", "a"), Name::from("r-a"))]);
        assert!(output.placements.is_empty(), "the binder may still win");
        let gone = Input::Gone(Kind::BindRequest, muster_runtime::Key::new("ns", "a"));
        check(core, 4, vec![gone], &["g: a@m"]);
    }

    #[test]
    fn what_another_process_said_of_a_gang_is_taken_back() {
        let core = &mut core();
        let said = |pools: &[&str]| {
            let conditions: Vec<Value> = pools
                .iter()
                .map(|pool| json!({"nodePool": pool, "transitionID": "4", "lastTransitionTime": "then"}))
                .collect();
            put(
                Kind::PodGroup,
                json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u-g"},
                    "spec": {"minMember": 1, "queue": "q"}, "status": {"schedulingConditions": conditions}}),
            )
        };
        let arrive = vec![node("n", 8), said(&["default", "other"]), pod("a", "g", 9)];
        let output = core.step(arrive, Time(0)).unwrap();
        assert!(output.placed.is_empty(), "it still waits");
        let output = core.step(vec![], Time(1_000)).unwrap();
        let Entry::Write { others, transitions, since } = &output.waiting[0].entry else {
            panic!("an entry is due")
        };
        assert_eq!((*transitions, others.len(), since.as_deref()), (4, 1, Some("then")));
        let output = core.step(vec![node("m", 16)], Time(2_000)).unwrap();
        let placed: Vec<(&str, &Value)> =
            output.placed.iter().map(|p| (&*p.gang.key.name, &p.others[0]["nodePool"])).collect();
        assert_eq!(placed, [("g", &json!("other"))]);
        check(core, 3_000, vec![node("o", 1)], &[]);
    }

    #[test]
    fn what_is_given_back_at_once_is_decided_again() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        check(core, 2, vec![fails("a", Failure::Overtaken)], &["g: a@n"]);
    }

    #[test]
    fn the_word_of_the_server_does_not_expire() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        let done = Outcome { pod: Key::new("ns", "a"), uid: "u-a".to_owned(), result: Ok(Done::Bound) };
        check(core, 2, vec![Input::Outcome(done)], &[]);
        // The watch says nothing for a long time.
        check(core, 30_001, vec![group("h", 1), pod("b", "h", 8)], &[]);
        check(core, 300_000, vec![], &["h waits, 1 marked"]);
    }

    #[test]
    fn who_is_overtaken_again_and_again_waits() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        check(core, 2, vec![fails("a", Failure::Overtaken)], &["g: a@n"]);
        check(core, 3, vec![fails("a", Failure::Overtaken)], &[]);
        check(core, 1_002, vec![], &[]);
        check(core, 1_004, vec![], &["g: a@n"]);
        check(core, 1_005, vec![fails("a", Failure::Overtaken)], &[]);
        check(core, 3_004, vec![], &[]);
        check(core, 3_006, vec![], &["g: a@n"]);
    }

    #[test]
    fn work_that_failed_is_tried_again_later() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        check(core, 100, vec![fails("a", Failure::Refused)], &[]);
        check(core, 500, vec![], &[]);
        check(core, 1_101, vec![], &["g: a@n"]);
        check(core, 1_200, vec![fails("a", Failure::Refused)], &[]);
        // Meanwhile it holds no room: whoever comes has it.
        check(core, 2_000, vec![group("h", 1), pod("b", "h", 8)], &["h: b@n"]);
        check(core, 3_201, vec![], &[]);
        check(core, 4_202, vec![], &["g waits, 1 marked"]);
        let gone = Input::Gone(Kind::Pod, muster_runtime::Key::new("ns", "b"));
        check(core, 5_000, vec![gone], &["g: a@n", "g waits no longer"]);
    }

    #[test]
    fn a_start_is_remembered_where_it_protects() {
        let core = &mut core();
        let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let protected = json!({"metadata": {"name": "q"}, "spec": {"preemptMinRuntime": "5m",
            "resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}}});
        check(core, 1, vec![node("n", 8), group("f", 1), pod("z", "f", 1)], &["f: z@n"]);
        let arrive = vec![put(Kind::Queue, protected), group("g", 1), pod("a", "g", 1)];
        check(core, 2, arrive, &["g: a@n", "g starts"]);
        // It runs already; one more pod does not start it again.
        check(core, 3, vec![pod("b", "g", 1)], &["g: b@n"]);
    }

    #[test]
    fn who_waits_is_told_once() {
        let core = &mut core();
        check(core, 0, vec![node("n", 8), group("g", 1), pod("a", "g", 9)], &[]);
        check(core, 1_000, vec![], &["g waits, 1 marked"]);
        check(core, 2_000, vec![], &[]);
        check(core, 3_000, vec![node("m", 10)], &["g: a@m", "g waits no longer"]);
    }

    /// What an evicted pod says of itself meanwhile is no confirmation: it has had a node all along.
    #[test]
    fn an_eviction_that_fails_is_decided_again() {
        let core = &mut core();
        let mut low = pod_json("a", "g", 8);
        low["spec"]["nodeName"] = json!("n");
        low["status"] = json!({"phase": "Running"});
        let class = |name: &str, value: i64| {
            put(Kind::PriorityClass, json!({"metadata": {"name": name}, "value": value}))
        };
        let high = put(
            Kind::PodGroup,
            json!({"metadata": {"namespace": "ns", "name": "h", "uid": "u-h"},
                "spec": {"minMember": 1, "queue": "q", "priorityClassName": "high"}}),
        );
        let arrive = vec![node("n", 8), class("high", 90), group("g", 1), put(Kind::Pod, low.clone()), high];
        check(core, 1, arrive, &[]);
        check(core, 2, vec![pod("b", "h", 8)], &["evict a"]);
        low["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
        check(core, 3, vec![put(Kind::Pod, low)], &[]);
        check(core, 4, vec![fails("a", Failure::Refused)], &[]);
        check(core, 1_005, vec![], &["evict a", "h waits, 0 marked"]);
    }

    #[test]
    fn who_was_refused_is_not_counted_by_its_gang_until_it_is_tried_again() {
        let core = &mut core();
        check(
            core,
            1,
            vec![node("n", 8), group("g", 2), pod("a", "g", 4), pod("b", "g", 4)],
            &["g: a@n b@n"],
        );
        // The other was bound, was taken back because of this one, and comes again.
        let gone = Input::Gone(Kind::Pod, muster_runtime::Key::new("ns", "b"));
        check(core, 2, vec![fails("a", Failure::Refused), gone], &[]);
        check(core, 3, vec![pod("c", "g", 4)], &[]);
        check(core, 1_002, vec![], &["g: a@n c@n"]);
    }

    #[test]
    fn where_no_answer_came_the_place_stays_taken_until_the_watch_has_had_its_time() {
        let core = &mut core();
        check(core, 1, vec![node("n", 8), group("g", 1), pod("a", "g", 8)], &["g: a@n"]);
        check(core, 2, vec![fails("a", Failure::Unanswered), group("h", 1), pod("b", "h", 8)], &[]);
        check(core, 20_000, vec![], &["h waits, 1 marked"]);
        assert_eq!(core.wake(), Some(Time(21_000)), "somebody waits");
        check(core, 30_002, vec![], &["g: a@n"]);
    }

    #[test]
    fn a_pod_that_comes_later_is_marked_too() {
        let core = &mut core();
        check(core, 0, vec![node("n", 8), group("g", 1), pod("a", "g", 9), pod("b", "g", 9)], &[]);
        check(core, 1_000, vec![], &["g waits, 2 marked"]);
        // One is replaced by another; the numbers are the same.
        let gone = Input::Gone(Kind::Pod, muster_runtime::Key::new("ns", "b"));
        check(core, 2_000, vec![gone, pod("c", "g", 9)], &["g waits, 1 marked"]);
        check(core, 20_000, vec![], &[]);
    }

    #[test]
    fn who_could_not_be_told_is_told_again() {
        let core = &mut core();
        check(core, 0, vec![node("n", 8), group("g", 1), pod("a", "g", 9)], &[]);
        check(core, 1_000, vec![], &["g waits, 1 marked"]);
        check(core, 2_000, vec![Input::Unsaid(Key::new("ns", "g"))], &["g waits, 1 marked"]);
    }

    #[test]
    fn what_another_process_wrote_is_not_written_again() {
        let core = &mut core();
        let arrive = || vec![node("n", 8), group("g", 1), pod("a", "g", 9)];
        check(core, 0, arrive(), &[]);
        let output = core.step(vec![], Time(1_000)).unwrap();
        let message = crate::words::waits(&output.waiting[0].refusal);
        let ours = json!([{"nodePool": "default", "message": message, "transitionID": "1"}]);
        let said = |conditions: &Value| {
            put(
                Kind::PodGroup,
                json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u-g"},
                    "spec": {"minMember": 1, "queue": "q"}, "status": {"schedulingConditions": conditions}}),
            )
        };
        let mut marked = pod_json("a", "g", 9);
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        marked["status"]["conditions"] = json!([condition]);
        let next = &mut self::core();
        let mut inputs = arrive();
        inputs.extend([said(&ours), put(Kind::Pod, marked)]);
        check(next, 0, inputs, &[]);
        check(next, 1_000, vec![], &[]);
        check(next, 20_000, vec![], &[]);
        check(next, 21_000, vec![node("m", 16)], &["g: a@m", "g waits no longer"]);
    }

    #[test]
    fn a_gang_whose_group_comes_after_its_pods_is_told_by_its_own_name() {
        let core = &mut core();
        check(core, 0, vec![node("n", 8), pod("a", "g", 9), pod("b", "h", 9)], &[]);
        let output = core.step(vec![], Time(1_000)).unwrap();
        assert!(output.waiting.iter().all(|w| w.gang.uid.is_empty() && w.entry != Entry::Absent));
        let output = core.step(vec![group("g", 1), group("h", 1)], Time(2_001)).unwrap();
        let uids: Vec<&str> = output.waiting.iter().map(|w| &*w.gang.uid).collect();
        assert_eq!(uids, ["u-g", "u-h"]);
        // Another group of the same name knows nothing of it.
        let again = put(
            Kind::PodGroup,
            json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u-2"}, "spec": {"minMember": 1, "queue": "q"}}),
        );
        let output = core.step(vec![again], Time(4_000)).unwrap();
        let uids: Vec<&str> = output.waiting.iter().map(|w| &*w.gang.uid).collect();
        assert_eq!(uids, ["u-2"]);
    }

    #[test]
    fn who_wants_one_try_per_pool_is_not_given_up_before_it_had_it() {
        let core = &mut core();
        let once = |name: &str, min: u32| {
            put(
                Kind::PodGroup,
                json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}")},
                    "spec": {"minMember": min, "queue": "q", "schedulingBackoff": 1}}),
            )
        };
        let entries = |core: &mut Core, inputs: Vec<Input>, now: i64| -> Vec<bool> {
            let output = core.step(inputs, Time(now)).unwrap();
            output.waiting.iter().map(|w| matches!(w.entry, Entry::Write { .. })).collect()
        };
        // It lacks a pod; so does another, which may be told.
        entries(core, vec![node("n", 8), once("g", 2), pod("a", "g", 9), group("f", 2), pod("z", "f", 1)], 0);
        assert_eq!(entries(core, vec![], 1_000), [true, false]);
        assert_eq!(entries(core, vec![pod("b", "g", 9)], 3_000), [true]);
        // It runs, and its surplus waits.
        let output = core.step(vec![once("h", 1), pod("c", "h", 8), pod("d", "h", 8)], Time(4_000)).unwrap();
        assert_eq!(output.placements.len(), 1);
        assert_eq!(entries(core, vec![], 6_000), [false]);
    }

    /// A gang of two bare pods on an otherwise idle cluster, one of which fails.
    #[test]
    fn the_end_of_a_grace_needs_nobody_else() {
        let core = &mut core();
        let runs = |name: &str, phase: &str| {
            let mut pod = pod_json(name, "g", 1);
            pod["spec"]["nodeName"] = json!("n");
            pod["status"] = json!({"phase": phase});
            put(Kind::Pod, pod)
        };
        let stale = |since: Value| {
            put(
                Kind::PodGroup,
                json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u-g",
                    "annotations": {"kai.scheduler/stale-podgroup-timestamp": since}}, "spec": {"minMember": 2, "queue": "q"}}),
            )
        };
        let told = |output: Option<Output>| {
            output.map(|o| {
                o.stale.iter().map(|(gang, at)| (gang.key.name.to_string(), at.0)).collect::<Vec<_>>()
            })
        };
        core.step(vec![node("n", 8), group("g", 2), runs("a", "Running"), runs("b", "Running")], Time(1));
        let output = core.step(vec![runs("b", "Failed")], Time(1_000));
        assert_eq!(told(output), Some(vec![("g".into(), 1_000)]));
        // Said once, though the group does not say it yet; and again when that takes too long, since when it was so at first.
        assert_eq!(told(core.step(vec![node("m", 1)], Time(2_000))), Some(vec![]));
        assert_eq!(told(core.step(vec![node("m", 2)], Time(31_000))), Some(vec![("g".into(), 1_000)]));
        core.step(vec![stale(json!("1970-01-01T00:00:01Z"))], Time(32_000));
        assert_eq!(core.wake(), Some(Time(61_000)));
        check(core, 61_000, vec![], &["evict a"]);
    }

    #[test]
    fn pods_that_wait_for_others_of_their_gang_are_not_marked() {
        let core = &mut core();
        check(core, 0, vec![node("n", 8), group("g", 2), pod("a", "g", 1)], &[]);
        check(core, 1_000, vec![], &["g waits, 0 marked"]);
    }

    fn volcano_group(name: &str, min: u32, queue: &str) -> Input {
        put(
            Kind::VolcanoPodGroup,
            json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}")},
                "spec": {"minMember": min, "queue": queue}}),
        )
    }

    fn volcano_pod_json(name: &str, group: Option<&str>, cpu: u32) -> Value {
        let mut pod = json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}"), "annotations": {}},
            "spec": {"schedulerName": "volcano",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}]},
            "status": {"phase": "Pending"}});
        if let Some(group) = group {
            pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(group);
        }
        pod
    }

    fn volcano_pod(name: &str, group: &str, cpu: u32) -> Input {
        put(Kind::Pod, volcano_pod_json(name, Some(group), cpu))
    }

    fn volcano_queue(name: &str, spec: Value) -> Input {
        put(
            Kind::VolcanoQueue,
            json!({"metadata": {"name": name}, "spec": spec, "status": {"state": "Open"}}),
        )
    }

    /// A core that answers to Volcano's name too, by Volcano's default configuration, with a queue for each.
    fn core_of_both() -> Core {
        let setup = crate::record::Setup {
            scheduler_names: ["kai-scheduler", "volcano"].map(String::from).to_vec(),
            grouped: Vec::new(),
            ..crate::record::Setup::default()
        };
        let mut core = setup.core();
        let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let queue = json!({"metadata": {"name": "q"},
            "spec": {"resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}}});
        let known = Kind::ALL.into_iter().map(Input::Known);
        core.take([put(Kind::Queue, queue)].into_iter().chain(known).collect(), Time(0));
        core
    }

    /// The patches of a step: `name: phase, condition`.
    #[track_caller]
    fn check_groups(core: &mut Core, now: i64, inputs: Vec<Input>, binds: &[&str], expected: &[&str]) {
        let output = core.step(inputs, Time(now)).unwrap_or_default();
        let pods = output.placements.iter().flat_map(|gang| &gang.pods);
        let got: Vec<String> = pods.map(|p| format!("{}@{}", p.pod.name, p.placement.node)).collect();
        assert_eq!(got, binds);
        let told: Vec<String> = output
            .groups
            .iter()
            .map(|group| {
                let status = &group.patch["status"];
                let last = status["conditions"].as_array().and_then(|c| c.last());
                let words: Vec<String> = [
                    status["phase"].as_str().map(str::to_owned),
                    status["running"].as_u64().map(|n| format!("{n} running")),
                    last.and_then(|c| Some(format!("{} ({})", c["type"].as_str()?, c["reason"].as_str()?))),
                ]
                .into_iter()
                .flatten()
                .collect();
                format!("{}: {}", group.gang.key.own().name, words.join(", "))
            })
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_volcano_gang_is_bound_whole_and_its_group_says_so() {
        let core = &mut core_of_both();
        let guaranteed = json!({"weight": 1, "guarantee": {"resource": {"cpu": "3"}}});
        let arrive = vec![
            node("n", 0),
            volcano_queue("v", guaranteed),
            volcano_group("g", 3, "v"),
            volcano_pod("a", "g", 1),
            volcano_pod("b", "g", 1),
        ];
        check_groups(core, 1, arrive, &[], &["g: Inqueue, Unschedulable (NotEnoughTasks)"]);
        let third = vec![volcano_pod("c", "g", 1)];
        check_groups(
            core,
            2,
            third,
            &["a@n", "b@n", "c@n"],
            &["g: Inqueue, Scheduled (tasks in gang are ready to be scheduled)"],
        );
        // The pods run, and the object has come back as it was written.
        let mut inputs: Vec<Input> = ["a", "b", "c"]
            .map(|name| {
                let mut pod = volcano_pod_json(name, Some("g"), 1);
                pod["spec"]["nodeName"] = json!("n");
                pod["status"]["phase"] = json!("Running");
                put(Kind::Pod, pod)
            })
            .into();
        inputs.push(put(
            Kind::VolcanoPodGroup,
            json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u-g"},
                "spec": {"minMember": 3, "queue": "v"}, "status": {"phase": "Inqueue", "conditions": [
                    {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}]}}),
        ));
        check_groups(core, 3, inputs, &[], &["g: Running, 3 running"]);
        check_groups(core, 4, vec![node("m", 0)], &[], &[]);
    }

    #[test]
    fn two_dialects_share_nodes_and_nothing_else() {
        let core = &mut core_of_both();
        // The same names on both sides; the node has 64 cores, and eight GPUs for KAI.
        let inputs = vec![
            node("n", 8),
            volcano_queue("q", json!({"weight": 1})),
            group("g", 1),
            pod("a", "g", 8),
            volcano_group("g", 2, "q"),
            volcano_pod("v1", "g", 32),
            volcano_pod("v2", "g", 32),
        ];
        check_groups(
            core,
            1,
            inputs,
            &["a@n", "v1@n", "v2@n"],
            &["g: Inqueue, Scheduled (tasks in gang are ready to be scheduled)"],
        );
        // Nothing is left for a second gang of either.
        let more =
            vec![group("h", 1), pod("b", "h", 1), volcano_group("h", 1, "q"), volcano_pod("w", "h", 1)];
        check_groups(core, 2, more, &[], &["h: Inqueue, Unschedulable (NotEnoughResources)"]);
    }

    #[test]
    fn why_a_volcano_gang_waits_is_said_in_its_words() {
        let core = &mut core_of_both();
        let small = json!({"weight": 1, "capability": {"cpu": "2"}});
        let mut asking = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "u-g"},
            "spec": {"minMember": 1, "queue": "v", "minResources": {"cpu": "4"}}});
        let arrive = vec![
            node("n", 0),
            volcano_queue("v", small),
            put(Kind::VolcanoPodGroup, asking.clone()),
            volcano_pod("a", "g", 4),
        ];
        let output = core.step(arrive, Time(0)).unwrap();
        let refusal = &output.decisions.refusals[0];
        assert_eq!(
            muster_scenario::words::lines(refusal)[0],
            "it is not let into queue v: its minimum asks for 4 CPU, and proportion lets in 2 CPU, of which 0 are taken"
        );
        assert_eq!(refusal, &core.explain(&refusal.gang.clone(), Time(0)).unwrap());
        let told = core.step(vec![], Time(1_000)).unwrap();
        assert_eq!(
            told.waiting[0].headline.as_deref(),
            Some(
                "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 minAvailable; Pending: 1 Undetermined"
            )
        );
        // Let in, and too much for the queue all the same.
        asking["spec"]["minResources"] = json!({"cpu": "1"});
        let output = core.step(vec![put(Kind::VolcanoPodGroup, asking)], Time(2_000)).unwrap();
        assert_eq!(
            muster_scenario::words::lines(&output.decisions.refusals[0])[0],
            "queue v has what it deserves, 2 CPU: 0 in use, 4 asked for"
        );
        let closed =
            put(Kind::VolcanoQueue, json!({"metadata": {"name": "v"}, "status": {"state": "Closed"}}));
        let output = core.step(vec![closed], Time(3_000)).unwrap();
        assert_eq!(muster_scenario::words::lines(&output.decisions.refusals[0])[0], "queue v is closed");
    }

    #[test]
    fn a_pod_of_volcano_without_a_group_is_to_be_given_one() {
        let core = &mut core_of_both();
        let output =
            core.step(vec![node("n", 0), put(Kind::Pod, volcano_pod_json("p", None, 1))], Time(1)).unwrap();
        assert_eq!(output.ungrouped, [Key::new("ns", "p")]);
        assert!(output.placements.is_empty(), "it waits for its group");
        let made = vec![volcano_group("podgroup-u-p", 1, "default"), volcano_pod("p", "podgroup-u-p", 1)];
        check_groups(
            core,
            2,
            made,
            &["p@n"],
            &["podgroup-u-p: Inqueue, Scheduled (tasks in gang are ready to be scheduled)"],
        );
    }

    fn ask(name: &str, count: u32, gpus: u32) -> Input {
        let spec = pod_json("x", "y", gpus)["spec"].clone();
        let sets = vec![hold::HoldSet { count, template: json!({"spec": spec}) }];
        Input::Hold(Hold { name: Key::new("ns", name), uid: name.to_owned(), sets })
    }

    #[track_caller]
    fn check_holds(core: &mut Core, now: i64, inputs: Vec<Input>, expected: &[(&str, bool)], binds: &[&str]) {
        let output = core.step(inputs, Time(now)).unwrap_or_default();
        let got: Vec<(&str, bool)> =
            output.held.iter().map(|(w, answer)| (&*w.name, answer.is_ok())).collect();
        assert_eq!(got, expected);
        let pods = output.placements.iter().flat_map(|gang| &gang.pods);
        let got: Vec<String> = pods.map(|p| format!("{}@{}", p.pod.name, p.placement.node)).collect();
        assert_eq!(got, binds);
    }

    #[test]
    fn a_place_is_held_until_it_is_taken() {
        let core = &mut core();
        check_holds(core, 1, vec![node("n", 4), node("m", 4), ask("w", 2, 4)], &[("w", true)], &[]);
        // Nobody else gets it, however long it takes; and there is no room for another.
        check_holds(core, 2, vec![group("g", 1), pod("a", "g", 1), ask("v", 1, 1)], &[("v", false)], &[]);
        check_holds(core, 100_000, vec![], &[], &[]);
        // Half of the pods are no reason to give it up.
        let real = |name: &str| {
            let mut pod = pod_json(name, "w", 4);
            pod["metadata"]["annotations"][hold::WORKLOAD] = json!("w");
            put(Kind::Pod, pod)
        };
        check_holds(core, 100_001, vec![real("w1")], &[], &[]);
        check_holds(core, 100_002, vec![real("w2")], &[], &[]);
        // Nor are pods without their group; then they come before everybody else.
        let output = core.step(vec![group("w", 2)], Time(100_003)).unwrap();
        let bound: Vec<&str> = output.placements[0].pods.iter().map(|p| &*p.pod.name).collect();
        assert_eq!((bound, output.placements.len()), (vec!["w1", "w2"], 1));
        assert!(core.holds.is_empty());
    }

    #[test]
    fn a_place_that_is_given_back_is_free() {
        let core = &mut core();
        check_holds(core, 1, vec![node("n", 4), ask("w", 1, 4)], &[("w", true)], &[]);
        // Asked again, the new answer counts.
        check_holds(core, 2, vec![ask("w", 1, 2)], &[("w", true)], &[]);
        check_holds(core, 3, vec![group("g", 1), pod("a", "g", 4)], &[], &[]);
        check_holds(core, 4, vec![Input::GiveBack(Key::new("ns", "w"))], &[], &["a@n"]);
        check_holds(core, 5, vec![ask("w", 1, 1)], &[("w", false)], &[]);
        assert!(core.holds.is_empty(), "nothing is held for who was refused");
    }

    /// Admission implies placement: whatever else comes in between, of KAI's and of Volcano's, a workload that was told that there is a place for it
    /// is bound whole in the very step in which its pods are there, and no node is ever given more than it has.
    #[test]
    fn who_is_promised_a_place_gets_it() {
        const NODES: u64 = 3;
        const GPUS: i64 = 4;
        let mut kept = 0;
        let mut refused = 0;
        for seed in 1..60_u64 {
            let mut drawn = seed;
            let mut draw = |below: u64| {
                drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (drawn >> 33) % below
            };
            let core = &mut core_of_both();
            let mut inputs: Vec<Input> = (0..NODES).map(|i| node(&format!("n{i}"), GPUS as u32)).collect();
            inputs.push(volcano_queue("v", json!({"weight": 1})));
            // Workloads that have a place: how many pods, of how many GPUs.
            let mut promised: BTreeMap<String, (u32, u32)> = BTreeMap::new();
            let mut used: BTreeMap<String, i64> = BTreeMap::new();
            let mut expected: BTreeSet<String> = BTreeSet::new();
            for step in 0..25_i64 {
                let mut asked: BTreeMap<String, (u32, u32)> = BTreeMap::new();
                match draw(5) {
                    0 | 1 => {
                        let (name, count, gpus) =
                            (format!("w{step}"), 1 + draw(3) as u32, 1 + draw(3) as u32);
                        inputs.push(ask(&name, count, gpus));
                        asked.insert(name, (count, gpus));
                    }
                    2 => {
                        let name = format!("k{step}");
                        inputs
                            .extend([group(&name, 1), pod(&format!("{name}-0"), &name, 1 + draw(4) as u32)]);
                    }
                    3 => {
                        let name = format!("v{step}");
                        let mut pod = volcano_pod_json(&format!("{name}-0"), Some(&name), 1);
                        let gpus = (1 + draw(4)).to_string();
                        pod["spec"]["containers"][0]["resources"] =
                            json!({"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}});
                        inputs.extend([volcano_group(&name, 1, "v"), put(Kind::Pod, pod)]);
                    }
                    _ => {
                        if let Some((name, (count, gpus))) = promised.pop_first() {
                            inputs.push(group(&name, count));
                            for i in 0..count {
                                let own = format!("{name}-{i}");
                                let mut pod = pod_json(&own, &name, gpus);
                                pod["metadata"]["annotations"][hold::WORKLOAD] = json!(name);
                                inputs.push(put(Kind::Pod, pod));
                                expected.insert(own);
                            }
                        }
                    }
                }
                let now = Time(1 + step);
                let output = core.step(std::mem::take(&mut inputs), now).unwrap_or_default();
                for (workload, answer) in &output.held {
                    match (answer, asked.remove(&*workload.name)) {
                        (Ok(()), Some(shape)) => drop(promised.insert(workload.name.to_string(), shape)),
                        (Err(_), _) => refused += 1,
                        (Ok(()), None) => panic!("{workload} did not ask"),
                    }
                }
                for pod in output.placements.iter().flat_map(|gang| &gang.pods) {
                    let gpus = match pod.received {
                        Received::Whole { count } => i64::from(count),
                        other => panic!("{other:?}"),
                    };
                    *used.entry(pod.placement.node.to_string()).or_default() += gpus;
                    kept += usize::from(expected.remove(&*pod.pod.name));
                }
                assert!(expected.is_empty(), "seed {seed}, step {step}: {expected:?} were promised a place");
                assert!(used.values().all(|gpus| *gpus <= GPUS), "seed {seed}, step {step}: {used:?}");
            }
        }
        assert!(kept > 50 && refused > 50, "{kept} kept, {refused} refused");
    }

    #[test]
    fn another_configuration_counts_at_once() {
        let core = &mut core_of_both();
        let arrive = vec![node("n", 0), volcano_group("g", 1, "default"), volcano_pod("a", "g", 1)];
        let nothing = Input::Volcano(json!({"actions": "enqueue"}));
        let mut inputs = vec![nothing];
        inputs.extend(arrive);
        check_groups(core, 1, inputs, &[], &["g: Inqueue, Unschedulable (NotEnoughResources)"]);
        let all = Input::Volcano(json!({"actions": "enqueue, allocate"}));
        check_groups(
            core,
            2,
            vec![all],
            &["a@n"],
            &["g: Inqueue, Scheduled (tasks in gang are ready to be scheduled)"],
        );
    }
}
