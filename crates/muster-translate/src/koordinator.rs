//! Koordinator's gangs and quotas, `scheduling.sigs.k8s.io/v1alpha1`, and what pods say to it.
//!
//! In: PodGroups, ElasticQuotas and pods. Out: gangs and queues. A gang is a PodGroup that pods name by label, or only annotations of its
//! pods. Gangs that name each other (`gang.scheduling.koordinator.sh/groups`) start together, so they are one gang of the model with a
//! leaf group for each. What the pods have done so far counts by the match policy: see [`Policy`].
//!
//! A quota's limit is its *runtime*: what it may use of the cluster right now, given what all quotas ask for ([`runtime`]). It is the
//! queue's limit only where it is less than what the quota asks for, so that queues change when it matters and not with every pod.
//!
//! Two of Koordinator's settings have nothing to set here: nothing is held for a gang that waits, so there is no waiting time, and a gang
//! is never placed in part, so `NonStrict` is as `Strict`.

use crate::dialects::{self, Priority};
use crate::gang::PriorityClass;
use crate::policies::{self, Policies};
use crate::read::{At, Object};
use crate::text::{self, Rounding};
use muster_model::{
    Amounts, Bound, Dialect, GPU, Gang, Group, Key, Min, Name, Preemptibility, Queue, Resource, Share, Time,
};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The beginning of the names of Koordinator's gangs and queues in the model.
pub(crate) const PREFIX: &str = "koordinator/";

/// The queues that need no object.
pub(crate) const BUILT_IN: [&str; 2] =
    ["koordinator/koordinator-default-quota", "koordinator/koordinator-system-quota"];

const GROUP: [&str; 2] = ["pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name"];
const NAME: &str = "gang.scheduling.koordinator.sh/name";
const MIN: &str = "gang.scheduling.koordinator.sh/min-available";
const MIN_LABEL: &str = "pod-group.scheduling.sigs.k8s.io/min-available";
const GROUPS: &str = "gang.scheduling.koordinator.sh/groups";
const POLICY: [&str; 2] =
    ["gang.scheduling.koordinator.sh/match-policy", "pod-group.scheduling.sigs.k8s.io/match-policy"];
const MODE: &str = "gang.scheduling.koordinator.sh/mode";

/// The label by which a pod names its quota.
pub const QUOTA: &str = "quota.scheduling.koordinator.sh/name";
const PREEMPTIBLE: &str = "quota.scheduling.koordinator.sh/preemptible";
const NEVER_PREEMPTED: &str = "scheduling.koordinator.sh/disable-preemptible";
const PARENT: &str = "quota.scheduling.koordinator.sh/parent";
const LENT: &str = "quota.scheduling.koordinator.sh/allow-lent-resource";
const TREE: &str = "quota.scheduling.koordinator.sh/tree-id";
const IS_ROOT: &str = "quota.scheduling.koordinator.sh/is-root";
const WEIGHT: &str = "quota.scheduling.koordinator.sh/shared-weight";
const NAMESPACES: &str = "quota.scheduling.koordinator.sh/namespaces";
const GUARANTEED: &str = "quota.scheduling.koordinator.sh/guaranteed";
const TOTAL: &str = "quota.scheduling.koordinator.sh/total-resource";

const ROOT_QUOTA: &str = "koordinator-root-quota";
const SYSTEM_QUOTA: &str = "koordinator-system-quota";
/// The quota of pods that are in no other.
pub const DEFAULT_QUOTA: &str = "koordinator-default-quota";
/// Where Koordinator keeps quotas of its own. Quotas are known by their names alone.
const HOME: &str = "koordinator-system";

/// Quotas are held against these; CPU in milli-cores, memory in bytes, GPUs in thousandths.
const RESOURCES: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Gpu];
/// What is divided, is divided in these.
const UNITS: [i128; 3] = [1, 1, GPU as i128];

type Trio = [i128; 3];

/// Which pods of a gang count for its minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Policy {
    /// Those that wait, until the gang (or one that it starts with) has started once; from then on none are needed.
    #[default]
    OnceSatisfied,
    /// Those that wait.
    OnlyWaiting,
    /// Those that wait and those that run.
    WaitingAndRunning,
}

/// What makes a gang.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    min: u32,
    policy: Policy,
    /// Itself and those that it starts with, in order.
    groups: Vec<Key>,
}

/// What a pod says to Koordinator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    /// Where no PodGroup says so.
    terms: Option<Terms>,
    quota: Option<Name>,
    preemptible: bool,
    priority: Priority,
}

/// A pod that is there.
#[derive(Clone, Copy)]
pub(crate) struct Noted<'a> {
    pub(crate) member: &'a Member,
    pub(crate) created: Time,
    /// By its own label it is of this shard.
    pub(crate) here: bool,
    /// What it asks for while it is not over.
    pub(crate) requests: Option<&'a Amounts>,
}

/// A pod of a gang, as far as the gang cares.
#[derive(Clone, Copy)]
pub(crate) struct Standing<'a> {
    pub(crate) key: &'a Key,
    pub(crate) member: &'a Member,
    /// It has a node.
    pub(crate) bound: bool,
    pub(crate) over: bool,
}

/// The gang that a pod names, and the rest of what it says.
pub(crate) fn of_pod(object: &Object<'_>) -> (Option<Key>, Member) {
    let label = |key: &str| object.label(key).filter(|text| !text.is_empty());
    let by_label = GROUP.iter().find_map(|key| label(key));
    let named = by_label.or_else(|| object.annotation(NAME));
    let own = named.map(|name| Key::new(object.namespace(), name));
    let terms = own.as_ref().filter(|_| by_label.is_none()).and_then(|own| {
        let (field, said) = match label(MIN_LABEL) {
            Some(said) => (format!("metadata.labels[{MIN_LABEL}]"), Some(said)),
            None => (format!("metadata.annotations[{MIN}]"), object.annotation(MIN)),
        };
        let min = said.and_then(|text| text.parse().ok());
        if min.is_none() {
            object.report(&field, "must be a whole number of pods; without it the gang does not start");
        }
        Some(terms(object, own, min?))
    });
    let member = Member {
        terms,
        quota: label(QUOTA).map(Name::from),
        preemptible: label(PREEMPTIBLE) != Some("false") && label(NEVER_PREEMPTED) != Some("true"),
        priority: Priority::of_pod(object),
    };
    (own.map(|own| key(&own)), member)
}

/// The key of the gang that a PodGroup or its like makes by itself.
fn key(own: &Key) -> Key {
    dialects::key(PREFIX, &own.namespace, &own.name)
}

fn terms(object: &Object<'_>, own: &Key, min: u32) -> Terms {
    let annotation =
        |key: &str| object.annotation(key).map(|text| (format!("metadata.annotations[{key}]"), text));
    let policy =
        POLICY.iter().find_map(|key| annotation(key)).map_or(Policy::default(), |(field, word)| match word {
            "once-satisfied" => Policy::OnceSatisfied,
            "only-waiting" => Policy::OnlyWaiting,
            "waiting-and-running" => Policy::WaitingAndRunning,
            _ => {
                object.report(
                    &field,
                    "must be once-satisfied, only-waiting or waiting-and-running; once-satisfied is assumed",
                );
                Policy::default()
            }
        });
    if let Some((field, word)) = annotation(MODE)
        && !matches!(word, "Strict" | "NonStrict")
    {
        object.report(&field, "must be Strict or NonStrict; Strict is assumed");
    }
    let mut groups = vec![own.clone()];
    if let Some((field, text)) = annotation(GROUPS) {
        let named: Option<Vec<String>> = serde_json::from_str(text).ok();
        let named = named.unwrap_or_else(|| {
            object.report(&field, "must be a list in JSON such as [\"ns/a\",\"ns/b\"]; it is ignored");
            Vec::new()
        });
        for name in named {
            match name.split_once('/') {
                Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                    groups.push(Key::new(namespace, name));
                }
                _ => object.report(&field, format!("{name:.60?} must be namespace/name; it is ignored")),
            }
        }
    }
    groups.sort();
    groups.dedup();
    Terms { min, policy, groups }
}

/// Without what the names of merged gangs are made with.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains([',', '/'])
}

/// The key of the gang that some gangs make together.
fn together(groups: &[Key]) -> Option<Key> {
    let first = groups.first()?;
    let shown = |group: &Key| match group.namespace == first.namespace {
        true => group.name.to_string(),
        false => group.to_string(),
    };
    let names: Vec<String> = groups.iter().map(shown).collect();
    Some(Key::new(first.namespace.clone(), format!("{PREFIX}{}", names.join(","))))
}

/// The gangs that make up a gang of the model, with the names of their leaf groups.
fn parts(gang: &Key) -> Vec<(Name, Key)> {
    let names = gang.name.strip_prefix(PREFIX).unwrap_or(&gang.name);
    let part = |name: &str| match name.split_once('/') {
        Some((namespace, rest)) => (name.into(), Key::new(namespace, rest)),
        None => (name.into(), Key::new(gang.namespace.clone(), name)),
    };
    names.split(',').map(part).collect()
}

#[derive(Clone, Debug, PartialEq)]
struct GroupFacts {
    uid: Name,
    created: Time,
    terms: Terms,
    /// Of this shard. One that is not may still decide on what starts together.
    here: bool,
}

fn pod_group(object: &Object<'_>, here: bool) -> GroupFacts {
    GroupFacts {
        here,
        uid: object.uid(|| object.key().to_string()),
        created: object.created(),
        terms: terms(object, &object.key(), object.get("spec").get("minMember").count().unwrap_or(0)),
    }
}

#[derive(Clone, Debug, PartialEq)]
struct QuotaFacts {
    uid: Name,
    created: Time,
    parent: Option<Name>,
    /// What it does not use, others may.
    lent: bool,
    tree: Name,
    is_root: bool,
    min: Trio,
    /// `None`: not bounded, and nobody asks.
    max: [Option<i128>; 3],
    weight: Trio,
    guaranteed: Trio,
    namespaces: Vec<Name>,
    /// Of a tree of its own: what there is to divide.
    total: Option<Trio>,
    policies: Policies,
}

/// The name of a quota's queue.
fn queue_name(quota: &str) -> Name {
    format!("{PREFIX}{quota}").into()
}

fn elastic_quota(object: &Object<'_>) -> QuotaFacts {
    let spec = object.get("spec");
    let label = |key: &str| object.label(key).filter(|text| !text.is_empty());
    let max = amounts(spec.get("max"), true);
    let bounds = RESOURCES.clone().map(|resource| max.get(&resource).copied());
    let annotated = |key: &str| -> Option<Trio> {
        let text = object.annotation(key)?;
        let field = format!("metadata.annotations[{key}]");
        match serde_json::from_str::<Value>(text) {
            Ok(value @ Value::Object(_)) => {
                let inner = Object::new("", &value);
                let found = trio(&amounts(inner.root(), false));
                for problem in inner.into_diagnostics() {
                    object.report(&format!("{field}.{}", problem.field), problem.message);
                }
                Some(found)
            }
            _ => {
                object.report(&field, "must be an object in JSON such as {\"cpu\":\"40\"}; it is ignored");
                None
            }
        }
    };
    let namespaces = object.annotation(NAMESPACES).map(|text| {
        serde_json::from_str::<Vec<String>>(text).unwrap_or_else(|_| {
            let field = format!("metadata.annotations[{NAMESPACES}]");
            object.report(&field, "must be a list in JSON such as [\"a\",\"b\"]; it is ignored");
            Vec::new()
        })
    });
    QuotaFacts {
        uid: object.uid(|| object.key().to_string()),
        created: object.created(),
        parent: label(PARENT).filter(|name| *name != ROOT_QUOTA).map(Name::from),
        lent: label(LENT) != Some("false"),
        tree: label(TREE).unwrap_or("").into(),
        is_root: label(IS_ROOT) == Some("true"),
        min: trio(&amounts(spec.get("min"), false)),
        weight: annotated(WEIGHT).unwrap_or(bounds.map(|bound| bound.unwrap_or(0))),
        max: bounds,
        guaranteed: annotated(GUARANTEED).unwrap_or_default(),
        namespaces: namespaces.into_iter().flatten().map(Name::from).collect(),
        total: annotated(TOTAL),
        policies: policies::read(object),
    }
}

/// What is named, by resource.
fn amounts(list: At<'_>, bounds: bool) -> BTreeMap<Resource, i128> {
    let mut found: BTreeMap<Resource, i128> = BTreeMap::new();
    for (name, at) in list.entries() {
        let resource = text::resource(name);
        let Some(quantity) = at.quantity() else { continue };
        if bounds && !RESOURCES.contains(&resource) {
            at.report("is not held against anyone: quotas are for cpu, memory and GPUs");
        }
        match text::amount(&resource, quantity, Rounding::Down) {
            Ok(amount) => *found.entry(resource).or_default() += i128::from(amount),
            // People write the largest number there is for "no bound".
            Err(_) if quantity.nano() > 0 => drop(found.insert(resource, i128::from(text::MOST))),
            Err(problem) => at.report(format!("{} {problem}; it counts as 0", at.quoted())),
        }
    }
    found
}

fn trio(amounts: &BTreeMap<Resource, i128>) -> Trio {
    RESOURCES.clone().map(|resource| amounts.get(&resource).copied().unwrap_or(0))
}

/// One quota's case in the division of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// What its pods ask for, within its maximum.
    pub request: i128,
    /// What it can count on.
    pub min: i128,
    /// What it was promised besides; the larger of the two counts.
    pub guaranteed: i128,
    pub weight: i128,
    /// What it does not use, others may.
    pub lent: bool,
}

/// What each quota may use of `total`, in the order given, which decides who gets the last parts: each what it can count on and asks for,
/// and the rest by weight to those who ask for more, in whole `unit`s.
pub fn runtime(total: i128, unit: i128, claims: &[Claim]) -> Vec<i128> {
    let assured = |claim: &Claim| claim.min.max(claim.guaranteed);
    let mut given: Vec<i128> = claims
        .iter()
        .map(|claim| match assured(claim) {
            assured if claim.request > assured || !claim.lent => assured,
            _ => claim.request,
        })
        .collect();
    let mut left = total - given.iter().sum::<i128>();
    let mut hungry: Vec<(usize, i128, i128)> = claims
        .iter()
        .enumerate()
        .map(|(i, claim)| (i, claim.request - assured(claim), claim.weight))
        .filter(|(_, lacks, weight)| *lacks > 0 && *weight > 0)
        .collect();
    // Whoever needs less than its part gets what it needs, and the others' parts grow.
    loop {
        let weights: i128 = hungry.iter().map(|(.., weight)| weight).sum();
        let full = |(_, lacks, weight): &(usize, i128, i128)| {
            lacks.saturating_mul(weights) <= left.saturating_mul(*weight)
        };
        let (done, rest): (Vec<_>, Vec<_>) = hungry.iter().partition(|claim| full(claim));
        if left <= 0 || done.is_empty() {
            break;
        }
        for (i, lacks, _) in done {
            add(&mut given, i, lacks);
            left -= lacks;
        }
        hungry = rest;
    }
    let weights: i128 = hungry.iter().map(|(.., weight)| weight).sum();
    if left <= 0 || weights == 0 {
        return given;
    }
    let unit = unit.max(1);
    let mut parts: Vec<(i128, usize, i128)> = Vec::new();
    let whole = left;
    for (i, lacks, weight) in hungry {
        let slice = whole.saturating_mul(weight) / weights;
        let part = slice - slice % unit;
        add(&mut given, i, part);
        left -= part;
        parts.push((whole.saturating_mul(weight) - part.saturating_mul(weights), i, lacks - part));
    }
    // What rounding left goes to those who lost most by it.
    parts.sort_by_key(|(lost, i, _)| (Reverse(*lost), *i));
    for (_, i, lacks) in parts {
        let more = unit.min(left).min(lacks);
        if more <= 0 {
            break;
        }
        add(&mut given, i, more);
        left -= more;
    }
    given
}

fn add(given: &mut [i128], i: usize, amount: i128) {
    if let Some(given) = given.get_mut(i) {
        *given += amount;
    }
}

/// The quotas of a cluster.
#[derive(Debug, Default)]
pub struct Quotas {
    /// By name and namespace.
    all: BTreeMap<Name, BTreeMap<Name, QuotaFacts>>,
}

/// What a quota asks for and what it may use: CPU in milli-cores, memory in bytes, GPUs in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub asked: [i128; 3],
    pub may: [i128; 3],
}

impl Quotas {
    /// Reads ElasticQuotas.
    pub fn read<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut quotas = Self::default();
        for value in objects {
            quotas.put(&Object::new("ElasticQuota", value));
        }
        quotas
    }

    /// True if the quotas are different now.
    fn put(&mut self, object: &Object<'_>) -> bool {
        let facts = elastic_quota(object);
        let of_name = self.all.entry(object.name().into()).or_default();
        of_name.insert(object.namespace().into(), facts.clone()) != Some(facts)
    }

    fn remove(&mut self, object: &Object<'_>) -> bool {
        let Some(of_name) = self.all.get_mut(object.name()) else { return false };
        let had = of_name.remove(object.namespace()).is_some();
        if of_name.is_empty() {
            self.all.remove(object.name());
        }
        had
    }

    fn get(&self, name: &str) -> Option<&QuotaFacts> {
        let of_name = self.all.get(name)?;
        of_name.get(HOME).or_else(|| of_name.values().next())
    }

    /// The quota of a pod, by its namespace and the quota that its label names. A name that is none means the default quota.
    pub fn of_pod(&self, namespace: &str, named: Option<&str>) -> Name {
        if let Some(name) = named {
            let known = self.all.contains_key(name) || matches!(name, SYSTEM_QUOTA | DEFAULT_QUOTA);
            return if known { name.into() } else { DEFAULT_QUOTA.into() };
        }
        if self.all.get(namespace).is_some_and(|of_name| of_name.contains_key(namespace)) {
            return namespace.into();
        }
        let lists = |name: &&Name| {
            self.get(name).is_some_and(|quota| quota.namespaces.iter().any(|of| &**of == namespace))
        };
        self.all.keys().find(lists).cloned().unwrap_or_else(|| DEFAULT_QUOTA.into())
    }

    fn is_parent(&self, quota: &str) -> bool {
        let mut all = self.all.keys().filter_map(|name| self.get(name));
        all.any(|facts| facts.parent.as_deref() == Some(quota))
    }

    /// The quotas above a quota, nearest first.
    pub fn above(&self, quota: &str) -> Vec<Name> {
        let mut above: Vec<Name> = Vec::new();
        let mut at = self.get(quota).and_then(|facts| facts.parent.clone());
        while let Some(name) = at.filter(|name| &**name != quota && !above.contains(name)) {
            at = self.get(&name).and_then(|facts| facts.parent.clone());
            above.push(name);
        }
        above
    }

    /// What each quota asks for, given what its own pods do, and what it may use of what the cluster has.
    pub fn divide(&self, demand: &BTreeMap<Name, [i128; 3]>, cluster: &[i128; 3]) -> BTreeMap<Name, Part> {
        let all: BTreeMap<&Name, &QuotaFacts> = self
            .all
            .keys()
            .filter(|name| !matches!(&***name, ROOT_QUOTA | SYSTEM_QUOTA | DEFAULT_QUOTA))
            .filter_map(|name| Some((name, self.get(name)?)))
            .collect();
        let mut children: BTreeMap<Option<&Name>, Vec<&Name>> = BTreeMap::new();
        for (name, facts) in &all {
            children.entry(facts.parent.as_ref().filter(|_| !facts.is_root)).or_default().push(name);
        }
        // From the top down; what hangs in a circle is never reached.
        let mut order: Vec<&Name> = children.get(&None).cloned().unwrap_or_default();
        let mut next = 0;
        while let Some(name) = order.get(next).copied() {
            order.extend(children.get(&Some(name)).into_iter().flatten());
            next += 1;
        }
        // What each asks for, from the bottom up.
        let mut asked: BTreeMap<&Name, Trio> = BTreeMap::new();
        for name in order.iter().rev() {
            let Some(facts) = all.get(name) else { continue };
            let mut sum = demand.get(*name).copied().unwrap_or_default();
            for child in children.get(&Some(*name)).into_iter().flatten() {
                let of_child = asked.get(child).copied().unwrap_or_default();
                sum = std::array::from_fn(|i| at(&sum, i) + at(&of_child, i));
            }
            let within: Trio = std::array::from_fn(|i| {
                let sum = if facts.lent { at(&sum, i) } else { at(&sum, i).max(at(&facts.min, i)) };
                facts.max.get(i).copied().flatten().map_or(sum, |max| sum.min(max))
            });
            asked.insert(name, within);
        }
        let built_in =
            [SYSTEM_QUOTA, DEFAULT_QUOTA].map(|name| demand.get(name).copied().unwrap_or_default());
        let rest: Trio = std::array::from_fn(|i| {
            (at(cluster, i) - built_in.iter().map(|used| at(used, i)).sum::<i128>()).max(0)
        });
        let mut may: BTreeMap<&Name, Trio> = BTreeMap::new();
        let mut trees: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
        for name in children.get(&None).into_iter().flatten() {
            if let Some(facts) = all.get(name) {
                trees.entry(&facts.tree).or_default().push(name);
            }
        }
        let tops = trees.values().map(|level| {
            let total = level.iter().find_map(|name| all.get(name)?.total).unwrap_or(rest);
            (total, level.clone())
        });
        let mut levels: Vec<(Trio, Vec<&Name>)> = tops.collect();
        while let Some((total, level)) = levels.pop() {
            for (i, unit) in UNITS.into_iter().enumerate() {
                let total = at(&total, i);
                let assured: i128 =
                    level.iter().filter_map(|name| all.get(name)).map(|facts| at(&facts.min, i)).sum();
                let claims: Vec<Claim> = level
                    .iter()
                    .filter_map(|name| Some((all.get(name)?, asked.get(name)?)))
                    .map(|(facts, asked)| Claim {
                        request: at(asked, i),
                        // Quotas that promise more than there is are scaled down together.
                        min: if assured > total {
                            at(&facts.min, i) * total / assured.max(1)
                        } else {
                            at(&facts.min, i)
                        },
                        guaranteed: at(&facts.guaranteed, i),
                        weight: at(&facts.weight, i),
                        lent: facts.lent,
                    })
                    .collect();
                for (name, amount) in level.iter().zip(runtime(total, unit, &claims)) {
                    if let Some(slot) = may.entry(name).or_default().get_mut(i) {
                        *slot = amount;
                    }
                }
            }
            for name in level {
                if let (Some(may), Some(below)) = (may.get(name), children.get(&Some(name))) {
                    levels.push((*may, below.clone()));
                }
            }
        }
        asked
            .into_iter()
            .map(|(name, asked)| {
                (name.clone(), Part { asked, may: may.get(name).copied().unwrap_or_default() })
            })
            .collect()
    }
}

/// What a pod says of its gang.
#[derive(Debug)]
struct Said {
    terms: Terms,
    created: Time,
    here: bool,
}

#[derive(Debug)]
struct Asking {
    member: Member,
    quota: Name,
    amounts: Trio,
    /// It is charged to the quota: it is of this shard.
    counts: bool,
}

/// What makes a gang, and of which age and shard it is.
struct Made<'a> {
    terms: &'a Terms,
    uid: Name,
    created: Time,
    here: bool,
}

/// Koordinator's objects, and what pods ask of its quotas.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// PodGroups by their own keys.
    groups: BTreeMap<Key, GroupFacts>,
    /// What pods say where no PodGroup does, by gang and pod.
    said: BTreeMap<Key, BTreeMap<Key, Said>>,
    quotas: Quotas,
    /// What each pod that is not over asks for, and what pods of this shard hold or ask for by quota.
    asking: BTreeMap<Key, Asking>,
    demand: BTreeMap<Name, Trio>,
    limits: BTreeMap<Name, Trio>,
    /// What asks has changed since limits were last made.
    stale: bool,
}

impl Objects {
    /// The gangs of the model that change with a PodGroup: before and after.
    pub(crate) fn put_group(&mut self, object: &Object<'_>, here: bool) -> BTreeSet<Key> {
        let facts = pod_group(object, here);
        let own = object.key();
        let mut touched = self.reach(&own);
        if self.groups.get(&own) == Some(&facts) {
            return BTreeSet::new();
        }
        self.groups.insert(own.clone(), facts);
        touched.append(&mut self.reach(&own));
        touched
    }

    pub(crate) fn drop_group(&mut self, object: &Object<'_>) -> BTreeSet<Key> {
        let own = object.key();
        let mut touched = self.reach(&own);
        self.groups.remove(&own);
        touched.append(&mut self.reach(&own));
        touched
    }

    fn reach(&self, own: &Key) -> BTreeSet<Key> {
        [key(own), self.gang_of(&key(own))].into()
    }

    /// True if the quotas are different now.
    pub(crate) fn put_quota(&mut self, object: &Object<'_>) -> bool {
        let new = self.quotas.put(object);
        if new {
            self.charge_anew();
        }
        new
    }

    pub(crate) fn drop_quota(&mut self, object: &Object<'_>) -> bool {
        let had = self.quotas.remove(object);
        if had {
            self.charge_anew();
        }
        had
    }

    fn quota_of(&self, namespace: &str, member: &Member) -> Name {
        self.quotas.of_pod(namespace, member.quota.as_deref())
    }

    /// A pod came, changed or went. What it asks for is charged once it is known to [count](Self::count).
    pub(crate) fn note_pod(&mut self, pod: &Key, group: Option<&Key>, member: Option<Noted<'_>>) {
        if let Some(group) = group {
            let said = self.said.entry(group.clone()).or_default();
            let says = |noted: &Noted<'_>| {
                let terms = noted.member.terms.clone()?;
                Some(Said { terms, created: noted.created, here: noted.here })
            };
            match member.as_ref().and_then(says) {
                Some(terms) => drop(said.insert(pod.clone(), terms)),
                None => drop(said.remove(pod)),
            }
            if said.is_empty() {
                self.said.remove(group);
            }
        }
        if let Some(Asking { quota, amounts, counts: true, .. }) = self.asking.remove(pod) {
            self.charge(&quota, &amounts, -1);
        }
        if let Some(Noted { member, requests: Some(requests), .. }) = member {
            let amounts = RESOURCES.clone().map(|resource| i128::from(requests.get(&resource)));
            let quota = self.quota_of(&pod.namespace, member);
            let asking = Asking { member: member.clone(), quota, amounts, counts: false };
            self.asking.insert(pod.clone(), asking);
        }
    }

    /// Says whether a pod is of this shard, whose quotas are divided without the others' pods. Until then it counts for nothing.
    pub(crate) fn count(&mut self, pod: &Key, here: bool) {
        let Some(asking) = self.asking.get_mut(pod).filter(|asking| asking.counts != here) else { return };
        asking.counts = here;
        let (quota, amounts) = (asking.quota.clone(), asking.amounts);
        self.charge(&quota, &amounts, if here { 1 } else { -1 });
    }

    fn charge(&mut self, quota: &Name, amounts: &Trio, sign: i128) {
        let demand = self.demand.entry(quota.clone()).or_default();
        for (sum, amount) in demand.iter_mut().zip(amounts) {
            *sum += amount * sign;
        }
        if *demand == Trio::default() {
            self.demand.remove(quota);
        }
        self.stale = true;
    }

    /// Quotas came or went, and pods may be of others now.
    fn charge_anew(&mut self) {
        let mut asking = std::mem::take(&mut self.asking);
        self.demand.clear();
        for (pod, asked) in &mut asking {
            asked.quota = self.quota_of(&pod.namespace, &asked.member);
            if asked.counts {
                self.charge(&asked.quota, &asked.amounts, 1);
            }
        }
        self.asking = asking;
        self.stale = true;
    }

    fn made(&self, own: &Key) -> Option<Made<'_>> {
        if let Some(GroupFacts { terms, uid, created, here }) = self.groups.get(own) {
            return Some(Made { terms, uid: uid.clone(), created: *created, here: *here });
        }
        let said = self.said.get(&key(own))?;
        let created = said.values().map(|said| said.created).min()?;
        let Said { terms, here, .. } = said.values().next()?;
        Some(Made { terms, uid: key(own).to_string().into(), created, here: *here })
    }

    /// The same, without its age, which all pods have a say in.
    fn terms(&self, own: &Key) -> Option<(&Terms, bool)> {
        if let Some(facts) = self.groups.get(own) {
            return Some((&facts.terms, facts.here));
        }
        self.said.get(&key(own))?.values().next().map(|said| (&said.terms, said.here))
    }

    /// Whether the gang of the model that a pod is in, from the one that it names, is this shard's; `None`: what it names is not there.
    /// Gangs that start together are of one shard, that of the first of them.
    pub(crate) fn is_here(&self, named: &Key) -> Option<bool> {
        let name = named.name.strip_prefix(PREFIX).unwrap_or(&named.name);
        let (own, here) = self.terms(&Key::new(named.namespace.clone(), name))?;
        let together = |group: &Key| {
            let (terms, here) = self.terms(group)?;
            (terms.groups == own.groups).then_some(here)
        };
        match own.groups.as_slice() {
            [] | [_] => Some(here),
            several => several.iter().find_map(together),
        }
    }

    /// The gang of the model that a pod is in, from the one that it names.
    pub(crate) fn gang_of(&self, named: &Key) -> Key {
        let name = named.name.strip_prefix(PREFIX).unwrap_or(&named.name);
        let own = Key::new(named.namespace.clone(), name);
        let groups = self.terms(&own).map_or(&[][..], |(terms, _)| &terms.groups);
        match groups {
            [] | [_] => named.clone(),
            several => together(several).unwrap_or_else(|| named.clone()),
        }
    }

    /// The leaf group of a pod that names this gang; `None`: the only one.
    pub(crate) fn leaf_of(&self, gang: &Key, named: &Key) -> Option<Name> {
        let parts = parts(gang);
        let leaf = parts.iter().find(|(_, own)| key(own) == *named).map(|(name, _)| name.clone());
        leaf.filter(|_| parts.len() > 1)
    }

    /// What pods of a gang of the model name.
    pub(crate) fn named_by_pods(&self, gang: &Key) -> Vec<Key> {
        parts(gang).iter().map(|(_, own)| key(own)).collect()
    }

    pub(crate) fn has_group(&self, named: &Key) -> bool {
        let name = named.name.strip_prefix(PREFIX).unwrap_or(&named.name);
        self.terms(&Key::new(named.namespace.clone(), name)).is_some()
    }

    /// All gangs of the model.
    pub(crate) fn gangs(&self) -> BTreeSet<Key> {
        let named = self.groups.keys().map(key).chain(self.said.keys().cloned());
        named.map(|named| self.gang_of(&named)).collect()
    }

    /// The gang, given the pods of each part of it (in the order of [`Self::named_by_pods`]).
    pub(crate) fn gang(
        &self,
        gang: &Key,
        pods: &[Vec<Standing<'_>>],
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Option<Gang> {
        let parts = parts(gang);
        let alone = parts.len() == 1;
        // A gang that is named and names others, or does not exist, is waited for and has no say.
        let is_in = |own: &Key| self.terms(own).is_some() && self.gang_of(&key(own)) == *gang;
        let of_parts =
            || pods.iter().zip(&parts).filter(|(_, (_, own))| is_in(own)).flat_map(|(pods, _)| pods);
        let has_started = of_parts().any(|pod| pod.bound);
        let mut leaves = Vec::new();
        let (mut first, mut created) = (None, Time(i64::MAX));
        for (i, (name, own)) in parts.iter().enumerate() {
            let of_part = pods.get(i).map_or(&[][..], Vec::as_slice);
            let n_bound = of_part.iter().filter(|pod| pod.bound && !pod.over).count();
            let min = match self.made(own).filter(|_| is_in(own)) {
                None if alone => return None,
                None => 1,
                Some(part) => {
                    first = first.or(Some((part.uid, part.here)));
                    created = created.min(part.created);
                    let terms = part.terms;
                    match terms.policy {
                        Policy::OnceSatisfied if has_started => 0,
                        Policy::OnceSatisfied | Policy::WaitingAndRunning => terms.min,
                        Policy::OnlyWaiting => {
                            terms.min.saturating_add(u32::try_from(n_bound).unwrap_or(u32::MAX))
                        }
                    }
                }
            };
            leaves.push((name.clone(), min));
        }
        let groups = match leaves.as_slice() {
            [(_, min)] => dialects::flat(*min),
            _ => {
                let root = Group { name: "".into(), parent: None, min: Min::Children(None), topology: None };
                let leaf = |(name, min)| Group { name, parent: Some(0), min: Min::Pods(min), topology: None };
                std::iter::once(root).chain(leaves.into_iter().map(leaf)).collect()
            }
        };
        let (uid, _) = first.filter(|(_, here)| *here)?;
        let made = dialects::gang(gang.clone(), uid, created, groups);
        Some(self.with_pods(made, of_parts().copied(), classes))
    }

    /// The gang of a pod without a group.
    pub(crate) fn gang_of_one(
        &self,
        gang: Key,
        uid: Name,
        created: Time,
        pod: Standing<'_>,
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Gang {
        let made = dialects::gang(gang, uid, created, dialects::flat(1));
        self.with_pods(made, std::iter::once(pod), classes)
    }

    fn with_pods<'a>(
        &self,
        mut gang: Gang,
        pods: impl Iterator<Item = Standing<'a>>,
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Gang {
        let mut quota: Option<(&Key, Name)> = None;
        let mut preemptible = true;
        let mut priority: Option<i32> = None;
        for pod in pods.filter(|pod| !pod.over) {
            preemptible &= pod.member.preemptible;
            priority = priority.max(Some(pod.member.priority.resolve(classes)));
            if quota.as_ref().is_none_or(|(first, _)| pod.key < *first) {
                quota = Some((pod.key, self.quota_of(&pod.key.namespace, pod.member)));
            }
        }
        let quota = quota.map_or_else(|| DEFAULT_QUOTA.into(), |(_, quota)| quota);
        gang.priority = priority.unwrap_or(0);
        if !preemptible || &*quota == DEFAULT_QUOTA {
            gang.preemptibility = Preemptibility::NonPreemptible;
        }
        gang.queue = queue_name(&quota);
        gang
    }

    pub(crate) fn queue_names(&self) -> impl Iterator<Item = Name> + '_ {
        self.quotas.all.keys().filter(|name| &***name != ROOT_QUOTA).map(|name| queue_name(name))
    }

    /// The queue of a name, if it is one of Koordinator's.
    pub(crate) fn queue(&self, name: &Name) -> Option<Queue> {
        let quota = name.strip_prefix(PREFIX)?;
        let facts = self.quotas.get(quota).filter(|_| quota != ROOT_QUOTA)?;
        let mut queue = dialects::queue(Dialect::Koordinator, name.clone());
        queue.uid = facts.uid.clone();
        queue.created = facts.created;
        queue.parent = facts.parent.as_ref().map(|parent| queue_name(parent));
        let is_parent = self.quotas.is_parent(quota);
        let limits = self.limits.get(quota);
        for (i, resource) in RESOURCES.iter().enumerate() {
            let at = |trio: &Trio| trio.get(i).copied().unwrap_or(0);
            let Some(max) = facts.max.get(i).copied().flatten() else { continue };
            let limit = limits.map_or(max, |limits| at(limits).min(max));
            let held = |amount: i128| Bound::At(i64::try_from(amount).unwrap_or(i64::MAX).max(0));
            let share = Share {
                quota: held(at(&facts.min)),
                // Only the quota of the pods themselves is asked.
                limit: if is_parent { Bound::Unlimited } else { held(limit) },
                weight: i64::try_from(at(&facts.weight)).unwrap_or(i64::MAX).clamp(0, text::MOST),
                ..Share::default()
            };
            queue.shares.insert(resource.clone(), share);
        }
        facts.policies.apply(&mut queue);
        Some(queue)
    }

    /// Makes the limits anew, given what the cluster has; says whether there was a reason to.
    pub(crate) fn divide(&mut self, cluster: impl FnOnce() -> Amounts, nodes_changed: bool) -> bool {
        if !std::mem::take(&mut self.stale) && !nodes_changed || self.quotas.all.is_empty() {
            return false;
        }
        let cluster = cluster();
        let cluster = RESOURCES.clone().map(|resource| i128::from(cluster.get(&resource)));
        let short = |part: &Part| {
            let limits: Trio = std::array::from_fn(|i| {
                if at(&part.may, i) < at(&part.asked, i) { at(&part.may, i) } else { i128::from(i64::MAX) }
            });
            limits.iter().any(|limit| *limit < i128::from(i64::MAX)).then_some(limits)
        };
        let parts = self.quotas.divide(&self.demand, &cluster);
        let limits = parts.iter().filter_map(|(name, part)| Some((name.clone(), short(part)?))).collect();
        let different = limits != self.limits;
        self.limits = limits;
        different
    }
}

fn at(trio: &Trio, i: usize) -> i128 {
    trio.get(i).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(weight: i128, request: i128, min: i128) -> Claim {
        Claim { request, min, guaranteed: 0, weight, lent: true }
    }

    #[track_caller]
    fn check_runtime(total: i128, claims: &[Claim], expected: &[i128]) {
        assert_eq!(runtime(total, 1, claims), expected);
    }

    #[test]
    fn what_is_left_is_shared_by_weight() {
        let (a, b, c, d) = (claim(40, 5, 10), claim(60, 20, 15), claim(50, 40, 20), claim(80, 70, 15));
        check_runtime(100, &[a, b, c, d], &[5, 20, 35, 40]);
        check_runtime(100, &[a, b, c, Claim { weight: 0, ..d }], &[5, 20, 40, 15]);
        check_runtime(100, &[a, b, c, Claim { weight: 0, guaranteed: 45, ..d }], &[5, 20, 30, 45]);
        check_runtime(100, &[Claim { lent: false, ..a }, b, c, d], &[10, 20, 33, 37]);
        check_runtime(10, &[claim(1, 100, 8), claim(1, 100, 8)], &[8, 8]);
        check_runtime(0, &[], &[]);
        check_runtime(100, &[claim(0, 100, 10)], &[10]);
    }

    #[test]
    fn whole_units_are_shared_to_the_last() {
        let mut claims = vec![claim(1, 0, 3)];
        claims.extend((0..10).map(|i| claim(1, 100, if i < 8 { 8 } else { 7 })));
        let given = runtime(81, 1, &claims);
        assert_eq!(given.iter().sum::<i128>(), 81);
        assert_eq!(given[0], 0);
        let given = runtime(5000, 1000, &[claim(1, 9000, 0), claim(1, 9000, 0)]);
        assert_eq!(given, [3000, 2000]);
    }

    fn put_group(objects: &mut Objects, name: &str, min: i64, groups: Option<&str>, policy: Option<&str>) {
        let mut annotations = serde_json::Map::new();
        annotations.extend(groups.map(|groups| (GROUPS.to_owned(), json!(groups))));
        annotations.extend(policy.map(|policy| (POLICY[0].to_owned(), json!(policy))));
        let value = json!({"metadata": {"name": name, "namespace": "n", "annotations": annotations}, "spec": {"minMember": min}});
        objects.put_group(&Object::new("PodGroup", &value), true);
    }

    fn member() -> Member {
        Member { terms: None, quota: None, preemptible: true, priority: Priority::default() }
    }

    /// The tree of a gang, with so many pods bound and waiting in each part.
    #[track_caller]
    fn check_gang(objects: &Objects, gang: &str, pods: &[(usize, usize)], expected: Option<&str>) {
        let (key, member) = (Key::new("n", "p"), member());
        let standing = |bound: bool| Standing { key: &key, member: &member, bound, over: false };
        let pods: Vec<Vec<Standing<'_>>> = pods
            .iter()
            .map(|(bound, waiting)| {
                std::iter::repeat_n(standing(true), *bound)
                    .chain(std::iter::repeat_n(standing(false), *waiting))
                    .collect()
            })
            .collect();
        let made = objects.gang(&Key::new("n", format!("{PREFIX}{gang}")), &pods, &BTreeMap::new());
        assert_eq!(made.map(|gang| dialects::drawn(&gang.groups)).as_deref(), expected);
    }

    #[test]
    fn match_policies_say_who_counts() {
        let mut objects = Objects::default();
        check_gang(&objects, "g", &[(0, 3)], None);
        put_group(&mut objects, "g", 3, None, None);
        check_gang(&objects, "g", &[(0, 3)], Some("default:3"));
        check_gang(&objects, "g", &[(1, 2)], Some("default:0"));
        put_group(&mut objects, "g", 3, None, Some("only-waiting"));
        check_gang(&objects, "g", &[(1, 2)], Some("default:4"));
        put_group(&mut objects, "g", 3, None, Some("waiting-and-running"));
        check_gang(&objects, "g", &[(1, 2)], Some("default:3"));
        put_group(&mut objects, "g", 3, None, Some("whenever"));
        check_gang(&objects, "g", &[(0, 2)], Some("default:3"));
    }

    #[test]
    fn gangs_that_name_each_other_are_one() {
        let mut objects = Objects::default();
        let both = r#"["n/b","n/a"]"#;
        put_group(&mut objects, "a", 1, Some(both), None);
        let together = Key::new("n", "koordinator/a,b");
        assert_eq!(objects.gang_of(&Key::new("n", "koordinator/a")), together);
        check_gang(&objects, "a,b", &[(0, 1), (0, 0)], Some("(all) a:1 b:1"));
        put_group(&mut objects, "b", 2, Some(both), None);
        check_gang(&objects, "a,b", &[(0, 1), (0, 2)], Some("(all) a:1 b:2"));
        check_gang(&objects, "a,b", &[(1, 0), (0, 2)], Some("(all) a:0 b:0"));
        assert_eq!(objects.leaf_of(&together, &Key::new("n", "koordinator/b")).as_deref(), Some("b"));
        assert_eq!(
            objects.named_by_pods(&together),
            [Key::new("n", "koordinator/a"), Key::new("n", "koordinator/b")]
        );
        // Each names itself, whatever it lists.
        put_group(&mut objects, "b", 2, Some("[]"), None);
        assert_eq!(objects.gang_of(&Key::new("n", "koordinator/b")), Key::new("n", "koordinator/b"));
    }

    #[track_caller]
    fn check_groups(text: &str, expected: &[&str], n_diagnostics: usize) {
        let value = json!({"metadata": {"name": "a", "namespace": "n", "annotations": {GROUPS: text}}});
        let object = Object::new("PodGroup", &value);
        let found: Vec<String> =
            terms(&object, &object.key(), 1).groups.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
        assert_eq!(object.into_diagnostics().len(), n_diagnostics);
    }

    #[test]
    fn groups_are_a_list_in_json() {
        check_groups(r#"["n/b","m/c"]"#, &["m/c", "n/a", "n/b"], 0);
        check_groups(r#"["n/a"]"#, &["n/a"], 0);
        check_groups("n/a,n/b", &["n/a"], 1);
        check_groups(r#"["b","n/b,c","/"]"#, &["n/a"], 3);
    }

    #[test]
    fn gangs_may_be_of_other_namespaces() {
        let groups = [Key::new("m", "c"), Key::new("n", "a")];
        let gang = together(&groups).unwrap();
        assert_eq!(gang, Key::new("m", "koordinator/c,n/a"));
        let parts: Vec<Key> = parts(&gang).into_iter().map(|(_, own)| own).collect();
        assert_eq!(parts, groups);
    }

    #[track_caller]
    fn check_pod(metadata: Value, expected: Option<(&str, Option<u32>)>, n_diagnostics: usize) {
        let mut metadata = metadata;
        metadata["name"] = json!("p");
        metadata["namespace"] = json!("n");
        let value = json!({"metadata": metadata});
        let object = Object::new("Pod", &value);
        let (key, member) = of_pod(&object);
        let found = key.as_ref().map(|key| (&*key.name, member.terms.as_ref().map(|terms| terms.min)));
        assert_eq!(found, expected);
        assert_eq!(object.into_diagnostics().len(), n_diagnostics);
    }

    #[test]
    fn the_label_wins_over_annotations() {
        check_pod(json!({}), None, 0);
        check_pod(json!({"labels": {GROUP[0]: "g"}}), Some(("koordinator/g", None)), 0);
        check_pod(json!({"labels": {GROUP[1]: "g"}}), Some(("koordinator/g", None)), 0);
        check_pod(json!({"annotations": {NAME: "g", MIN: "2"}}), Some(("koordinator/g", Some(2))), 0);
        check_pod(
            json!({"annotations": {NAME: "g", MIN: "2"}, "labels": {MIN_LABEL: "3"}}),
            Some(("koordinator/g", Some(3))),
            0,
        );
        check_pod(json!({"annotations": {NAME: "g"}}), Some(("koordinator/g", None)), 1);
        check_pod(
            json!({"annotations": {NAME: "x", MIN: "2"}, "labels": {GROUP[0]: "g"}}),
            Some(("koordinator/g", None)),
            0,
        );
    }

    fn put_quota(objects: &mut Objects, name: &str, labels: Value, annotations: Value, min: i64, max: i64) {
        let value = json!({
            "metadata": {"name": name, "namespace": "n", "labels": labels, "annotations": annotations},
            "spec": {"min": {"cpu": min}, "max": {"cpu": max}},
        });
        objects.put_quota(&Object::new("ElasticQuota", &value));
    }

    fn ask(objects: &mut Objects, pod: &str, quota: &str, cores: i64) {
        let mut requests = Amounts::new();
        requests.set(Resource::Cpu, cores * 1000);
        let member = Member { quota: Some(quota.into()), ..member() };
        let noted = Noted { member: &member, created: Time(0), here: true, requests: Some(&requests) };
        objects.note_pod(&Key::new("n", pod), None, Some(noted));
        objects.count(&Key::new("n", pod), true);
    }

    fn cores(n: i64) -> Amounts {
        let mut amounts = Amounts::new();
        amounts.set(Resource::Cpu, n * 1000);
        amounts
    }

    fn limit(objects: &Objects, quota: &str) -> Bound {
        objects.queue(&queue_name(quota)).unwrap().shares[&Resource::Cpu].limit
    }

    #[test]
    fn a_quota_that_asks_for_more_than_its_part_is_held_to_it() {
        let mut objects = Objects::default();
        put_quota(&mut objects, "a", json!({}), json!({WEIGHT: r#"{"cpu":"1"}"#}), 4, 10);
        put_quota(&mut objects, "b", json!({}), json!({WEIGHT: r#"{"cpu":"1"}"#}), 4, 10);
        ask(&mut objects, "p", "a", 8);
        assert!(!objects.divide(|| cores(10), true));
        assert_eq!(limit(&objects, "a"), Bound::At(10_000));
        ask(&mut objects, "q", "b", 8);
        assert!(objects.divide(|| cores(10), false));
        assert_eq!((limit(&objects, "a"), limit(&objects, "b")), (Bound::At(5000), Bound::At(5000)));
        // Nothing new was asked for.
        assert!(!objects.divide(|| cores(10), false));
        // Pods of no quota use what there is to divide.
        ask(&mut objects, "r", "nowhere", 1);
        assert!(objects.divide(|| cores(10), false));
        assert_eq!(limit(&objects, "a"), Bound::At(4500));
    }

    #[test]
    fn parents_bound_their_children() {
        let mut objects = Objects::default();
        let below = json!({PARENT: "p"});
        put_quota(&mut objects, "p", json!({}), json!({}), 4, 6);
        put_quota(&mut objects, "a", below.clone(), json!({}), 2, 10);
        put_quota(&mut objects, "b", below, json!({}), 2, 10);
        ask(&mut objects, "x", "a", 5);
        ask(&mut objects, "y", "b", 5);
        objects.divide(|| cores(100), true);
        assert_eq!((limit(&objects, "a"), limit(&objects, "b")), (Bound::At(3000), Bound::At(3000)));
        assert_eq!(limit(&objects, "p"), Bound::Unlimited);
        let queue = objects.queue(&queue_name("a")).unwrap();
        assert_eq!(queue.parent.as_deref(), Some("koordinator/p"));
        assert_eq!(queue.shares[&Resource::Cpu].quota, Bound::At(2000));
        assert_eq!(queue.shares[&Resource::Memory].limit, Bound::Unlimited);
    }

    #[test]
    fn minimums_beyond_the_cluster_are_scaled_down() {
        let mut objects = Objects::default();
        put_quota(&mut objects, "a", json!({}), json!({}), 30, 100);
        put_quota(&mut objects, "b", json!({}), json!({}), 10, 100);
        ask(&mut objects, "x", "a", 50);
        ask(&mut objects, "y", "b", 50);
        objects.divide(|| cores(20), true);
        assert_eq!((limit(&objects, "a"), limit(&objects, "b")), (Bound::At(15_000), Bound::At(5000)));
    }

    #[test]
    fn quotas_in_a_circle_are_no_trouble() {
        let mut objects = Objects::default();
        put_quota(&mut objects, "a", json!({PARENT: "b"}), json!({}), 1, 2);
        put_quota(&mut objects, "b", json!({PARENT: "a"}), json!({}), 1, 2);
        put_quota(&mut objects, "c", json!({PARENT: "c"}), json!({}), 1, 2);
        ask(&mut objects, "x", "a", 5);
        objects.divide(|| cores(20), true);
        assert!(objects.queue(&queue_name("a")).is_some());
    }

    #[track_caller]
    fn check_quota(objects: &Objects, namespace: &str, label: Option<&str>, expected: &str) {
        let member = Member { quota: label.map(Name::from), ..member() };
        assert_eq!(&*objects.quota_of(namespace, &member), expected);
    }

    #[test]
    fn a_pod_is_of_the_quota_that_it_names_or_of_its_namespace() {
        let mut objects = Objects::default();
        put_quota(&mut objects, "n", json!({}), json!({}), 1, 2);
        put_quota(&mut objects, "lists", json!({}), json!({NAMESPACES: r#"["m"]"#}), 1, 2);
        check_quota(&objects, "n", None, "n");
        check_quota(&objects, "m", None, "lists");
        check_quota(&objects, "other", None, DEFAULT_QUOTA);
        check_quota(&objects, "n", Some("lists"), "lists");
        check_quota(&objects, "n", Some("gone"), DEFAULT_QUOTA);
    }
}
