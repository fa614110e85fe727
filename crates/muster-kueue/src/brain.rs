//! Everything that decisions hang on, and the decisions.
//!
//! In: objects as JSON as they come and go, and the time. Out: [`Decision`]s to write down; for everybody who waits the reason, in Kueue's words; and
//! what stands in the statuses of queues. No I/O: whoever calls writes decisions down, and says so if that failed. Must stay true: what is told is
//! what the objects say; a decision that was not written down is taken back before the next ones are made.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_admit::reason::{Inactive, Waits};
use muster_admit::spec::{Reservation, Stop, Workload};
use muster_admit::{Cycle, State};
use muster_model::{Key as ModelKey, Name, Time};
use muster_runtime::Key;
use muster_translate::kueue::words;
use muster_translate::kueue::{Context, Item, LimitRanges, object};
use serde_json::{Map, Value, json};

use crate::settings::Settings;

/// A kind of object that counts, in the order in which they are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Namespace,
    LimitRange,
    Topology,
    Flavor,
    Check,
    Cohort,
    ClusterQueue,
    LocalQueue,
    Node,
    Pod,
    Workload,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// It has quota. `again`: it had before, and has other places now.
    Admit { key: Key, reservation: Reservation, again: bool },
    /// It must go for another.
    Preempt { key: Key, cause: &'static str, message: String, by_queue: Name },
    /// It must go for another reason.
    Evict { key: Key, reason: &'static str, message: String },
    /// Another workload took over from it.
    Replaced { old: Key, new: Key },
}

/// Why a workload waits, for its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub reason: &'static str,
    pub message: String,
}

/// What one flavor of a queue comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorFacts {
    pub name: Name,
    /// Resource, total, borrowed.
    pub resources: Vec<(Name, i64, i64)>,
}

/// What stands in the status of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueFacts {
    pub pending: usize,
    /// Those of them that wait for something to change.
    pub inadmissible: usize,
    pub reserving: usize,
    pub admitted: usize,
    pub reservation: Vec<FlavorFacts>,
    pub usage: Vec<FlavorFacts>,
    /// Where shares count.
    pub share: Option<i64>,
}

pub struct Brain {
    pub state: State,
    context: Context,
    limits: BTreeMap<Key, Value>,
    told: BTreeMap<Key, Told>,
    /// Workloads that were told something new.
    news: BTreeSet<Key>,
    no_room: BTreeMap<ModelKey, Name>,
}

pub fn time(at: Timestamp) -> Time {
    Time(at.as_millisecond())
}

fn model_key(key: &Key) -> ModelKey {
    ModelKey::new(key.namespace.as_str(), key.name.as_str())
}

fn runtime_key(key: &ModelKey) -> Key {
    Key::new(&*key.namespace, &*key.name)
}

impl Brain {
    pub fn new(settings: &Settings) -> Self {
        Brain {
            state: State::new(settings.admit.clone()),
            context: settings.context.clone(),
            limits: BTreeMap::new(),
            told: BTreeMap::new(),
            news: BTreeSet::new(),
            no_room: BTreeMap::new(),
        }
    }

    /// Takes in an object, or a new version of one. Out: namespaces whose workloads must be taken in again.
    pub fn put(&mut self, kind: Kind, body: &Value, now: Time) -> Option<String> {
        if kind == Kind::LimitRange {
            let meta = |field: &str| body["metadata"][field].as_str().unwrap_or_default().to_owned();
            let key = Key::new(meta("namespace"), meta("name"));
            let namespace = key.namespace.clone();
            if self.limits.insert(key, body.clone()).as_ref().map(|old| &old["spec"]) == Some(&body["spec"]) {
                return None;
            }
            self.read_limits();
            return Some(namespace);
        }
        let (item, diagnostics) = object(body, &self.context);
        for diagnostic in diagnostics {
            tracing::debug!(%diagnostic, "an object that makes no sense");
        }
        let state = &mut self.state;
        let changed = match item {
            Some(Item::ClusterQueue(mut q)) => {
                // What is going takes nothing in.
                if !body["metadata"]["deletionTimestamp"].is_null() && q.stop == Stop::None {
                    q.stop = Stop::Hold;
                }
                renewed(&mut state.queue_specs, q.name.clone(), *q)
            }
            Some(Item::Cohort(c)) => renewed(&mut state.cohort_specs, c.name.clone(), c),
            Some(Item::LocalQueue(q)) => {
                recall(state, &q.key, body);
                renewed(&mut state.local_queues, q.key.clone(), q)
            }
            Some(Item::Flavor(f)) => renewed(&mut state.flavor_specs, f.name.clone(), f),
            Some(Item::Topology(t)) => renewed(&mut state.topologies, t.name.clone(), t),
            Some(Item::Check(c)) => renewed(&mut state.checks, c.name.clone(), c),
            Some(Item::Node(n)) => {
                // Without topologies nobody looks at nodes.
                renewed(&mut state.nodes, n.name.clone(), n) && !state.topologies.is_empty()
            }
            Some(Item::Namespace(name, labels)) => renewed(&mut state.namespaces, name, labels),
            Some(Item::Pod(pod)) => {
                if state.pods.get(&pod.key) != Some(&pod) {
                    state.put_pod(pod, now);
                }
                false
            }
            Some(Item::Workload(workload)) => {
                self.put_workload(*workload, now);
                return None;
            }
            // A pod that takes nothing, or no longer.
            None if kind == Kind::Pod => {
                let meta = |field: &str| body["metadata"][field].as_str().unwrap_or_default();
                state.drop_pod(&ModelKey::new(meta("namespace"), meta("name")), now);
                false
            }
            None => false,
        };
        if changed {
            self.state.touch();
        }
        None
    }

    /// An object is gone. Out: as with [`Brain::put`].
    pub fn drop(&mut self, kind: Kind, key: &Key, now: Time) -> Option<String> {
        let name: &str = &key.name;
        let state = &mut self.state;
        let changed = match kind {
            Kind::LimitRange => {
                self.limits.remove(key)?;
                self.read_limits();
                return Some(key.namespace.clone());
            }
            Kind::Namespace => state.namespaces.remove(name).is_some(),
            Kind::Topology => state.topologies.remove(name).is_some(),
            Kind::Flavor => state.flavor_specs.remove(name).is_some(),
            Kind::Check => state.checks.remove(name).is_some(),
            Kind::Cohort => state.cohort_specs.remove(name).is_some(),
            Kind::ClusterQueue => state.queue_specs.remove(name).is_some(),
            Kind::LocalQueue => {
                state.ledger.forget(&model_key(key));
                state.local_queues.remove(&model_key(key)).is_some()
            }
            Kind::Node => state.nodes.remove(name).is_some() && !state.topologies.is_empty(),
            Kind::Pod => {
                state.drop_pod(&model_key(key), now);
                false
            }
            Kind::Workload => {
                self.drop_workload(key, now);
                false
            }
        };
        if changed {
            self.state.touch();
        }
        None
    }

    fn read_limits(&mut self) {
        let mut limits = LimitRanges::default();
        self.limits.values().for_each(|range| limits.put(range));
        self.context.limits = limits;
    }

    /// The queue that a workload holds quota of, and how much of it.
    fn held(&self, key: &ModelKey) -> Option<(Name, muster_admit::ids::Usage)> {
        let wl = self.state.wl(*self.state.by_key.get(key)?);
        let hold = wl.hold.as_ref()?;
        Some((self.state.tree.nodes[hold.queue].name.clone(), hold.usage.clone()))
    }

    fn put_workload(&mut self, mut workload: Workload, now: Time) {
        let key = workload.key.clone();
        workload.no_room = self.no_room.get(&key).cloned();
        if workload.reservation.is_some() {
            self.told.remove(&runtime_key(&key));
        }
        self.state.settle(now);
        if let Some(id) = self.state.by_key.get(&key)
            && self.state.wl(*id).spec == workload
        {
            return;
        }
        let before = self.held(&key);
        self.state.put_workload(workload, now);
        let after = self.held(&key);
        if let Some((queue, usage)) = before
            && after.as_ref().is_none_or(|(name, now)| *name != queue || *now != usage)
        {
            self.wake(&queue, now);
        }
    }

    fn drop_workload(&mut self, key: &Key, now: Time) {
        let model = model_key(key);
        self.state.settle(now);
        let before = self.held(&model);
        self.told.remove(key);
        self.no_room.remove(&model);
        self.state.drop_workload(&model);
        if let Some((queue, _)) = before {
            self.wake(&queue, now);
        }
    }

    /// Whoever waits in the tree of a queue is in line again.
    fn wake(&mut self, queue: &str, now: Time) {
        if let Some(id) = self.state.tree.queue(queue) {
            self.state.wake(id, now);
        }
    }

    /// Decides all that can be decided now.
    pub fn decide(&mut self, now: Time) -> Vec<Decision> {
        let cycle = self.state.run(now);
        self.note(&cycle);
        let mut decisions = Vec::new();
        for (old, new) in cycle.replaced {
            decisions.push(Decision::Replaced { old: runtime_key(&old), new: runtime_key(&new) });
        }
        for admitted in cycle.admitted {
            decisions.push(Decision::Admit {
                key: runtime_key(&admitted.key),
                reservation: admitted.reservation,
                again: admitted.again,
            });
        }
        for preempted in cycle.preempted {
            let by = self.state.by_key.get(&preempted.by).map(|id| self.state.wl(*id));
            let by_queue = by.and_then(|w| Some(self.state.tree.nodes[w.queue?].name.clone()));
            let (uid, job) = by.map_or(("", ""), |w| (&*w.spec.uid, &*w.spec.job_uid));
            let message = words::preemption_message(&preempted, uid, job);
            decisions.push(Decision::Preempt {
                key: runtime_key(&preempted.key),
                cause: words::cause(preempted.cause),
                message,
                by_queue: by_queue.unwrap_or_default(),
            });
        }
        for (key, why) in cycle.evicted {
            let message = words::eviction_message(&why, "");
            decisions.push(Decision::Evict {
                key: runtime_key(&key),
                reason: words::eviction(&why),
                message,
            });
        }
        decisions
    }

    fn note(&mut self, cycle: &Cycle) {
        for admitted in &cycle.admitted {
            self.told.remove(&runtime_key(&admitted.key));
        }
        for waiting in &cycle.waiting {
            // A second pass is for those who have quota.
            if waiting.why == Waits::SecondPass {
                continue;
            }
            let told = Told { reason: words::waits(&waiting.why), message: words::message(waiting) };
            let key = runtime_key(&waiting.key);
            if self.told.get(&key) != Some(&told) {
                self.told.insert(key.clone(), told);
                self.news.insert(key);
            }
        }
    }

    /// Workloads that were told something new since the last time.
    pub fn take_news(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.news)
    }

    /// Cluster queues that take nothing in.
    pub fn inactive_queues(&self) -> BTreeSet<Name> {
        let tree = &self.state.tree;
        let ids = tree.queue_ids().filter(|id| self.state.queues[*id].inactive.is_some());
        ids.map(|id| tree.nodes[id].name.clone()).collect()
    }

    /// An admission could not be written down.
    pub fn take_back(&mut self, key: &Key, now: Time) {
        self.state.roll_back(&model_key(key), now);
    }

    /// There is quota for a workload, and no place: it steps aside until [`Brain::retry_rooms`].
    pub fn refuse_room(&mut self, key: &Key, why: &str, now: Time) {
        let model = model_key(key);
        let queue = self.held(&model).map(|(queue, _)| queue);
        self.no_room.insert(model.clone(), why.into());
        self.state.roll_back(&model, now);
        if let Some(id) = self.state.by_key.get(&model) {
            let mut spec = self.state.wl(*id).spec.clone();
            spec.no_room = Some(why.into());
            self.state.put_workload(spec, now);
        }
        // What it does not take others may have.
        if let Some(queue) = queue {
            self.wake(&queue, now);
        }
    }

    /// There may be more room: whoever had none is tried again. Whether there was anybody.
    pub fn retry_rooms(&mut self, now: Time) -> bool {
        let all = std::mem::take(&mut self.no_room);
        for key in all.keys() {
            if let Some(id) = self.state.by_key.get(key) {
                let mut spec = self.state.wl(*id).spec.clone();
                spec.no_room = None;
                self.state.put_workload(spec, now);
            }
        }
        !all.is_empty()
    }

    pub fn has_refused(&self) -> bool {
        !self.no_room.is_empty()
    }

    /// Why a workload waits, as far as it was looked at.
    pub fn told(&self, key: &Key) -> Option<&Told> {
        self.told.get(key)
    }

    /// What a workload asks quota for, by pod set.
    pub fn requests(&self, key: &Key) -> Option<Value> {
        let wl = self.state.wl(*self.state.by_key.get(&model_key(key))?);
        let sets: Vec<Value> = wl
            .spec
            .pod_sets
            .iter()
            .map(|set| {
                let resources: Map<String, Value> = set
                    .requests
                    .iter()
                    .map(|(name, amount)| {
                        let sum = amount.saturating_mul(i64::from(set.count));
                        (name.to_string(), json!(words::quantity(name, sum)))
                    })
                    .collect();
                json!({"name": &*set.name, "resources": resources})
            })
            .collect();
        Some(Value::Array(sets))
    }

    /// Why a cluster queue takes nothing in; `None`: it does, or is not known.
    pub fn inactive(&self, queue: &str) -> Option<&Inactive> {
        let id = self.state.tree.queue(queue)?;
        self.state.queues[id].inactive.as_ref()
    }

    /// Whether a cluster queue is known.
    pub fn knows(&self, queue: &str) -> bool {
        self.state.queue_specs.contains_key(queue)
    }

    pub fn cluster_queue(&mut self, name: &str, now: Time) -> Option<QueueFacts> {
        self.state.settle(now);
        let state = &self.state;
        let id = state.tree.queue(name)?;
        let queue = &state.queues[id];
        let has_cohort = state.tree.parent(id).is_some();
        let admitted: Vec<&muster_admit::state::Wl> =
            queue.members.iter().map(|id| state.wl(*id)).filter(|wl| is_admitted(wl)).collect();
        let facts =
            |total: &dyn Fn(muster_admit::ids::PairId) -> i64| flavor_facts(state, queue, has_cohort, total);
        Some(QueueFacts {
            pending: queue.line.waiting().count() + queue.line.parked().count(),
            inadmissible: queue.line.parked().count(),
            reserving: queue.members.len(),
            admitted: admitted.len(),
            reservation: facts(&|pair| state.tree.cell(id, pair).usage),
            usage: facts(&|pair| held(admitted.iter().copied(), pair)),
            share: state.settings.fair_sharing.is_some().then(|| state.tree.share(id).per_mille()),
        })
    }

    pub fn local_queue(&mut self, key: &Key, now: Time) -> Option<QueueFacts> {
        self.state.settle(now);
        let state = &self.state;
        let local = state.local_queues.get(&model_key(key))?;
        let Some(id) = state.tree.queue(&local.cluster_queue) else { return Some(QueueFacts::default()) };
        let queue = &state.queues[id];
        let ours = |id: &muster_admit::ids::WorkloadId| state.wl(*id).local == local.key;
        let members: Vec<&muster_admit::state::Wl> =
            queue.members.iter().filter(|id| ours(id)).map(|id| state.wl(*id)).collect();
        let admitted = || members.iter().copied().filter(|wl| is_admitted(wl));
        Some(QueueFacts {
            pending: queue.line.waiting().chain(queue.line.parked()).filter(|id| ours(id)).count(),
            inadmissible: queue.line.parked().filter(|id| ours(id)).count(),
            reserving: members.len(),
            admitted: admitted().count(),
            reservation: flavor_facts(state, queue, false, &|pair| held(members.iter().copied(), pair)),
            usage: flavor_facts(state, queue, false, &|pair| held(admitted(), pair)),
            share: None,
        })
    }

    /// Everybody who waits in a cluster queue, in the order of the line; parked ones too.
    pub fn line(&mut self, queue: &str, now: Time) -> Vec<Key> {
        self.state.settle(now);
        let state = &self.state;
        let Some(id) = state.tree.queue(queue) else { return Vec::new() };
        let line = &state.queues[id].line;
        let mut ranks: Vec<_> = line.waiting().chain(line.parked()).map(|id| state.wl(id).rank(id)).collect();
        ranks.sort();
        ranks.iter().map(|rank| runtime_key(&state.wl(rank.id).spec.key)).collect()
    }

    /// Counts what local queues use, where they take turns by that. Out: what each used, for its status.
    pub fn sample_usage(&mut self, now: Time) -> Vec<(Key, Value)> {
        self.state.settle(now);
        let state = &mut self.state;
        let Some(sharing) = state.settings.usage_sharing.clone() else { return Vec::new() };
        let mut running: BTreeMap<ModelKey, BTreeMap<Name, i64>> = BTreeMap::new();
        let by_usage = |q: &muster_admit::spec::LocalQueue| {
            state.queue_specs.get(&q.cluster_queue).is_some_and(|queue| queue.by_usage)
        };
        for key in state.local_queues.values().filter(|q| by_usage(q)).map(|q| q.key.clone()) {
            running.insert(key, BTreeMap::new());
        }
        for id in state.by_key.values() {
            let wl = state.wl(*id);
            let admitted = wl.spec.reservation.as_ref().is_some_and(|r| r.admitted);
            let (Some(hold), Some(sums)) = (&wl.hold, running.get_mut(&wl.local)) else { continue };
            if !admitted {
                continue;
            }
            for (resource, amount) in hold.sets.iter().flat_map(|set| &set.requests) {
                let name = state.ids.resource_name(*resource);
                let amount = if &**name == "cpu" { *amount } else { amount.saturating_mul(1000) };
                let sum = sums.entry(name.clone()).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        for (key, sums) in &running {
            state.ledger.sample(key, sums, now, &sharing);
        }
        running
            .keys()
            .map(|key| {
                let consumed = state.ledger.consumed(key).into_iter().flatten();
                let written: Map<String, Value> = consumed
                    .map(|(name, milli)| {
                        let amount = if &**name == "cpu" { *milli } else { milli / 1000 };
                        (name.to_string(), json!(words::quantity(name, amount)))
                    })
                    .collect();
                (runtime_key(key), Value::Object(written))
            })
            .collect()
    }

    /// The weighted share of a cohort, where shares count.
    pub fn cohort_share(&mut self, name: &str, now: Time) -> Option<i64> {
        self.state.settle(now);
        self.state.settings.fair_sharing.as_ref()?;
        let id = self.state.tree.cohort(name)?;
        Some(self.state.tree.share(id).per_mille())
    }

    /// Flavors that queues or cohorts name.
    pub fn flavors_in_use(&self) -> BTreeSet<Name> {
        let groups = self.state.queue_specs.values().flat_map(|q| &q.groups);
        let cohorts = self.state.cohort_specs.values().flat_map(|c| &c.groups);
        groups.chain(cohorts).flat_map(|g| &g.flavors).map(|f| f.flavor.clone()).collect()
    }
}

/// What a local queue used before we came.
fn recall(state: &mut State, key: &ModelKey, body: &Value) {
    let Some(past) = body.pointer("/status/fairSharing/admissionFairSharingStatus") else { return };
    if state.settings.usage_sharing.is_none() || state.ledger.consumed(key).is_some() {
        return;
    }
    let amounts = past.get("consumedResources").and_then(Value::as_object).into_iter().flatten();
    let consumed = amounts
        .filter_map(|(name, amount)| {
            let quantity: k8s_quantity::Quantity = amount.as_str()?.parse().ok()?;
            Some((Name::from(name.as_str()), quantity.milli_value()))
        })
        .collect();
    let at: Option<Timestamp> =
        past.get("lastUpdate").and_then(Value::as_str).and_then(|text| text.parse().ok());
    state.ledger.set(key.clone(), consumed, at.map(time));
}

/// Puts a value in; whether it is another than before.
fn renewed<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: V) -> bool {
    match map.entry(key) {
        std::collections::btree_map::Entry::Occupied(mut known) => {
            let other = *known.get() != value;
            if other {
                known.insert(value);
            }
            other
        }
        std::collections::btree_map::Entry::Vacant(free) => {
            free.insert(value);
            true
        }
    }
}

fn is_admitted(workload: &muster_admit::state::Wl) -> bool {
    workload.spec.reservation.as_ref().is_some_and(|reservation| reservation.admitted)
}

/// What workloads hold of one resource of one flavor.
fn held<'a>(
    workloads: impl Iterator<Item = &'a muster_admit::state::Wl>,
    pair: muster_admit::ids::PairId,
) -> i64 {
    let holds = workloads.filter_map(|workload| workload.hold.as_ref());
    holds.map(|hold| muster_admit::ids::usage_of(&hold.usage, pair)).fold(0, i64::saturating_add)
}

/// A queue's flavors in their order, with what `total` says of each resource; beyond the nominal quota it is borrowed, where there is a cohort.
fn flavor_facts(
    state: &muster_admit::State,
    queue: &muster_admit::state::Queue,
    has_cohort: bool,
    total: &dyn Fn(muster_admit::ids::PairId) -> i64,
) -> Vec<FlavorFacts> {
    let flavors = queue.spec.groups.iter().flat_map(|group| &group.flavors);
    let facts = flavors.map(|flavor| {
        let resources = flavor.quotas.iter().map(|quota| {
            let pair = state
                .ids
                .known_flavor(&flavor.flavor)
                .zip(state.ids.known_resource(&quota.resource))
                .and_then(|(flavor, resource)| state.ids.known_pair(flavor, resource));
            let total = pair.map_or(0, total);
            let borrowed = if has_cohort { total.saturating_sub(quota.nominal).max(0) } else { 0 };
            (quota.resource.clone(), total, borrowed)
        });
        FlavorFacts { name: flavor.flavor.clone(), resources: resources.collect() }
    });
    facts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    fn brain() -> Brain {
        let mut brain = Brain::new(&Settings::default());
        let put = |brain: &mut Brain, kind: Kind, body: Value| brain.put(kind, &body, NOW);
        put(&mut brain, Kind::Namespace, json!({"kind": "Namespace", "metadata": {"name": "ns"}}));
        put(&mut brain, Kind::Flavor, json!({"kind": "ResourceFlavor", "metadata": {"name": "f"}}));
        put(&mut brain, Kind::ClusterQueue, queue(4));
        put(
            &mut brain,
            Kind::LocalQueue,
            json!({"kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}),
        );
        brain
    }

    fn queue(nominal: i64) -> Value {
        json!({"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": nominal}]}]}]}})
    }

    fn workload(name: &str, cpu: i64, priority: i64) -> Value {
        json!({"kind": "Workload", "metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"queueName": "lq", "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}}]}})
    }

    fn shown(decisions: &[Decision]) -> String {
        let one = |decision: &Decision| match decision {
            Decision::Admit { key, .. } => format!("+{}", key.name),
            Decision::Preempt { key, cause, .. } => format!("-{} {cause}", key.name),
            Decision::Evict { key, reason, .. } => format!("-{} {reason}", key.name),
            Decision::Replaced { old, new } => format!("{}→{}", old.name, new.name),
        };
        decisions.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[test]
    fn who_gets_in_and_who_is_told_why_not() {
        let mut brain = brain();
        brain.put(Kind::Workload, &workload("a", 3, 0), NOW);
        brain.put(Kind::Workload, &workload("b", 3, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
        assert_eq!(brain.told(&key("b")).unwrap().reason, "WaitingForQuota");
        assert_eq!(brain.take_news().into_iter().map(|k| k.name).collect::<Vec<_>>(), ["b"]);
        let facts = brain.cluster_queue("cq", NOW).unwrap();
        assert_eq!((facts.pending, facts.reserving, facts.admitted), (1, 1, 1));
        assert_eq!(facts.usage[0].resources[0], ("cpu".into(), 3000, 0));
        assert_eq!(brain.local_queue(&key("lq"), NOW).unwrap().pending, 1);
        // The first one ends: what it leaves is enough.
        brain.drop(Kind::Workload, &key("a"), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+b");
        assert_eq!(shown(&brain.decide(NOW)), "");
        assert_eq!(brain.told(&key("b")), None);
    }

    #[test]
    fn more_quota_wakes_whoever_waits() {
        let mut brain = brain();
        brain.put(Kind::Workload, &workload("a", 5, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "");
        assert_eq!(brain.told(&key("a")).unwrap().reason, "ExceedsMaxQuota");
        brain.put(Kind::ClusterQueue, &queue(5), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
    }

    #[test]
    fn an_admission_that_was_not_written_is_taken_back() {
        let mut brain = brain();
        brain.put(Kind::Workload, &workload("a", 4, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
        brain.take_back(&key("a"), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
    }

    #[test]
    fn the_weaker_goes() {
        let mut brain = brain();
        brain.put(Kind::Workload, &workload("low", 4, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+low");
        brain.put(Kind::Workload, &workload("high", 4, 10), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "-low InClusterQueue");
        assert_eq!(brain.told(&key("high")).unwrap().reason, "WaitingForPreemptedWorkloads");
    }

    #[test]
    fn quota_without_a_place() {
        let mut brain = brain();
        brain.put(Kind::Workload, &workload("a", 4, 5), NOW);
        brain.put(Kind::Workload, &workload("b", 2, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
        brain.refuse_room(&key("a"), "no node has 4 cpu", NOW);
        // Others are not held up by it.
        assert_eq!(shown(&brain.decide(NOW)), "+b");
        let told = brain.told(&key("a")).unwrap();
        assert_eq!(
            (told.reason, told.message.as_str()),
            ("NoRoom", "There is quota, but no place for the pods: no node has 4 cpu")
        );
        // The same object again is still without a place.
        brain.put(Kind::Workload, &workload("a", 4, 5), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "");
        assert!(brain.has_refused());
        brain.drop(Kind::Workload, &key("b"), NOW);
        assert!(brain.retry_rooms(NOW));
        assert_eq!(shown(&brain.decide(NOW)), "+a");
        assert!(!brain.has_refused());
    }

    #[test]
    fn queues_that_take_nothing_in() {
        let mut brain = brain();
        brain.drop(Kind::Flavor, &Key::new("", "f"), NOW);
        brain.put(Kind::Workload, &workload("a", 1, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "");
        assert!(matches!(brain.inactive("cq"), Some(Inactive::NoFlavor(_))));
        assert_eq!(brain.inactive_queues().len(), 1);
        brain.put(Kind::Flavor, &json!({"kind": "ResourceFlavor", "metadata": {"name": "f"}}), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
    }

    #[test]
    fn limits_of_a_namespace() {
        let mut brain = brain();
        let range = json!({"kind": "LimitRange", "metadata": {"name": "l", "namespace": "ns"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
        assert_eq!(brain.put(Kind::LimitRange, &range, NOW), Some("ns".into()));
        assert_eq!(brain.put(Kind::LimitRange, &range, NOW), None);
        brain.put(Kind::Workload, &workload("a", 2, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "");
        assert_eq!(brain.told(&key("a")).unwrap().reason, "Misconfigured");
        assert_eq!(brain.drop(Kind::LimitRange, &key("l"), NOW), Some("ns".into()));
        brain.put(Kind::Workload, &workload("a", 2, 0), NOW);
        assert_eq!(shown(&brain.decide(NOW)), "+a");
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let mut brain = brain();
        for kind in [
            Kind::Namespace,
            Kind::LimitRange,
            Kind::Topology,
            Kind::Flavor,
            Kind::ClusterQueue,
            Kind::Pod,
            Kind::Workload,
        ] {
            for body in [
                json!(null),
                json!([]),
                json!({"kind": 3}),
                json!({"metadata": 1, "spec": "x", "status": []}),
            ] {
                brain.put(kind, &body, NOW);
            }
        }
        assert_eq!(shown(&brain.decide(NOW)), "");
    }
}
