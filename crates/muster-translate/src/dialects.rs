//! The small dialects as the translator sees them: T9k's, Koordinator's and Kubernetes' own.
//!
//! In: their objects, and what pods say to them ([`Member`]). Out: the gangs, queues and topologies that they make, under names that no
//! object can have (`t9k/…`, `koordinator/…`, `kubernetes/…`), so that no two systems' objects are taken for each other. [`Touched`] says what has to
//! be made anew; the translator does it.
//!
//! Their gangs live by KAI's mechanism with rules of their own where they differ; [`Dialect`] tells the engine which.

use crate::gang::{DEFAULT_GROUP, PriorityClass, priority};
use crate::pod::PodFacts;
use crate::read::{At, Object};
use crate::{Settings, koordinator, t9k, workload};
use muster_model::{
    Amounts, Bound, Dialect, Expr, Gang, Grace, Group, Key, Min, Name, Preemptibility, Queue, Resource,
    Share, Span, Time, Topology,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a pod says to one of these systems.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Member {
    T9k(t9k::Member),
    Koordinator(koordinator::Member),
    Kubernetes(workload::Member),
}

impl Member {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::T9k(_) => Dialect::T9k,
            Self::Koordinator(_) => Dialect::Koordinator,
            Self::Kubernetes(_) => Dialect::Kubernetes,
        }
    }

    /// The group that a pod of a dialect names, and what else it says; `None`: it is none of these dialects'.
    pub(crate) fn of_pod(
        object: &Object<'_>,
        dialect: Dialect,
        queue_label: &str,
    ) -> Option<(Option<Key>, Self)> {
        match dialect {
            Dialect::T9k => {
                let (group, member) = t9k::of_pod(object);
                Some((group, Self::T9k(member)))
            }
            Dialect::Koordinator => {
                let (group, member) = koordinator::of_pod(object);
                Some((group, Self::Koordinator(member)))
            }
            Dialect::Kai | Dialect::Kubernetes => {
                let (group, member) = workload::of_pod(object, queue_label)?;
                Some((Some(group), Self::Kubernetes(member)))
            }
            Dialect::Volcano => None,
        }
    }
}

/// The priority that an object has, or the class that says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Priority {
    pub(crate) own: Option<i32>,
    pub(crate) class: Option<Name>,
}

impl Priority {
    pub(crate) fn of_pod(object: &Object<'_>) -> Self {
        Self::of_spec(object.get("spec"))
    }

    pub(crate) fn of_spec(spec: At<'_>) -> Self {
        let own = spec.get("priority").int();
        let own = own.map(|own| i32::try_from(own).unwrap_or(if own < 0 { i32::MIN } else { i32::MAX }));
        Self { own, class: spec.get("priorityClassName").name() }
    }

    /// What it says, if it says anything.
    pub(crate) fn said(&self, classes: &BTreeMap<Name, PriorityClass>) -> Option<i32> {
        let by_class = || self.class.as_ref().and_then(|class| priority(Some(class), classes));
        self.own.or_else(by_class)
    }

    /// As Kubernetes has it: its own, its class's, the default class's, or 0.
    pub(crate) fn resolve(&self, classes: &BTreeMap<Name, PriorityClass>) -> i32 {
        self.own.or_else(|| priority(self.class.as_ref(), classes)).unwrap_or(0)
    }
}

/// What has to be made anew.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) gangs: BTreeSet<Key>,
    /// Groups as pods name them: their pods too.
    pub(crate) groups: BTreeSet<Key>,
    /// Groups whose names begin so.
    pub(crate) begins: Option<Key>,
    pub(crate) queues: BTreeSet<Name>,
    pub(crate) topologies: BTreeSet<Name>,
    /// Everything of a dialect.
    pub(crate) all: Option<Dialect>,
}

/// The kinds of these systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    T9kPodGroup,
    T9kQueue,
    KoordinatorPodGroup,
    ElasticQuota,
    PodGroup,
    Workload,
}

#[derive(Debug, Default)]
pub(crate) struct Dialects {
    t9k: t9k::Objects,
    koordinator: koordinator::Objects,
    kubernetes: workload::Objects,
    /// Pods of each dialect: their default queues are there while there are any.
    n_pods: BTreeMap<Dialect, usize>,
}

impl Dialects {
    /// Takes an object, or forgets it.
    pub(crate) fn take(
        &mut self,
        kind: Kind,
        object: &Object<'_>,
        present: bool,
        settings: &Settings,
    ) -> Touched {
        let mut touched = Touched::default();
        let (here, queue_label) = (settings.in_pool(object), &*settings.queue_label);
        match kind {
            Kind::T9kPodGroup => {
                let new = match present {
                    true => self.t9k.put_group(object, here),
                    false => self.t9k.drop_group(object),
                };
                touched.groups.extend(new.then(|| t9k::key(object.namespace(), object.name())));
            }
            Kind::T9kQueue => {
                let new = if present { self.t9k.put_queue(object) } else { self.t9k.drop_queue(object) };
                if new {
                    touched.queues.insert(format!("{}{}", t9k::PREFIX, object.name()).into());
                    touched.all = Some(Dialect::T9k);
                }
            }
            Kind::KoordinatorPodGroup => {
                let groups = match present {
                    true => self.koordinator.put_group(object, here),
                    false => self.koordinator.drop_group(object),
                };
                for gang in groups {
                    touched.groups.extend(self.koordinator.named_by_pods(&gang));
                    touched.gangs.insert(gang);
                }
            }
            Kind::ElasticQuota => {
                let new = match present {
                    true => self.koordinator.put_quota(object),
                    false => self.koordinator.drop_quota(object),
                };
                if new {
                    touched.queues.insert(format!("{}{}", koordinator::PREFIX, object.name()).into());
                    touched.all = Some(Dialect::Koordinator);
                }
            }
            Kind::PodGroup => {
                let new = match present {
                    true => self.kubernetes.put_group(object, here, queue_label),
                    false => self.kubernetes.drop_group(object),
                };
                if let Some((gang, topologies)) = new {
                    touched.groups.insert(gang);
                    touched.topologies.extend(topologies);
                }
            }
            Kind::Workload => {
                touched.begins = match present {
                    true => self.kubernetes.put_workload(object, here, queue_label),
                    false => self.kubernetes.drop_workload(object),
                };
            }
        }
        touched
    }

    /// A pod came, changed or went (`facts` are the old ones then). Its gang is to be made anew.
    pub(crate) fn note_pod(&mut self, facts: &PodFacts, present: bool) -> Vec<Key> {
        let Some(member) = &facts.member else { return Vec::new() };
        let n = self.n_pods.entry(member.dialect()).or_default();
        *n = if present { *n + 1 } else { n.saturating_sub(1) };
        let Some(group) = &facts.group else {
            if let Member::Koordinator(member) = &**member {
                self.note_koordinator(facts, member, present);
            }
            return Vec::new();
        };
        let Member::Koordinator(member) = &**member else { return vec![group.clone()] };
        // Pods may say which gangs start together.
        let before = self.koordinator.gang_of(group);
        self.note_koordinator(facts, member, present);
        vec![before, self.koordinator.gang_of(group)]
    }

    fn note_koordinator(&mut self, facts: &PodFacts, member: &koordinator::Member, present: bool) {
        let requests = (!facts.is_over()).then_some(&facts.shape.requests);
        let (created, here) = (facts.created, facts.in_pool);
        let noted = present.then_some(koordinator::Noted { member, created, here, requests });
        self.koordinator.note_pod(&facts.key, facts.group.as_ref(), noted);
    }

    /// There are pods whose number and requests decide on what quotas may use.
    pub(crate) fn counts_pods(&self) -> bool {
        self.n_pods.get(&Dialect::Koordinator).is_some_and(|n| *n > 0)
    }

    /// Says whether a pod is this shard's.
    pub(crate) fn count(&mut self, pod: &Key, here: bool) {
        self.koordinator.count(pod, here);
    }

    /// Whether the gang that a pod is in is this shard's; `None`: it names no group, or one that is not there.
    pub(crate) fn is_here(&self, pod: &PodFacts) -> Option<bool> {
        let group = pod.group.as_ref()?;
        match &**pod.member.as_ref()? {
            Member::T9k(_) => self.t9k.is_here(group),
            Member::Koordinator(_) => self.koordinator.is_here(group),
            Member::Kubernetes(_) => self.kubernetes.is_here(group),
        }
    }

    /// The gang of the model that a pod is in, from the group that it names.
    pub(crate) fn gang_of(&self, pod: &PodFacts) -> Option<Key> {
        let group = pod.group.as_ref()?;
        match &**pod.member.as_ref()? {
            Member::Koordinator(_) => Some(self.koordinator.gang_of(group)),
            Member::T9k(_) | Member::Kubernetes(_) => Some(group.clone()),
        }
    }

    /// What the pods of a gang of the model name.
    pub(crate) fn named_by_pods(&self, gang: &Key) -> Vec<Key> {
        match is_of(gang) {
            Some(Dialect::Koordinator) => self.koordinator.named_by_pods(gang),
            _ => vec![gang.clone()],
        }
    }

    /// The leaf group that a pod is in (`None`: the only one), or that its group is not there.
    pub(crate) fn leaf_of(&self, pod: &PodFacts, gang: &Key) -> Result<Option<Name>, GroupMissing> {
        let (Some(group), Some(member)) = (&pod.group, &pod.member) else { return Ok(None) };
        let (there, leaf) = match &**member {
            Member::T9k(member) => (self.t9k.is_here(group).is_some(), self.t9k.leaf_of(gang, member)),
            Member::Koordinator(_) => {
                (self.koordinator.has_group(group), self.koordinator.leaf_of(gang, group))
            }
            Member::Kubernetes(_) => (self.kubernetes.has_group(group), None),
        };
        if there { Ok(leaf) } else { Err(GroupMissing) }
    }

    /// The gang, given the pods that name each of its parts.
    pub(crate) fn gang(
        &self,
        key: &Key,
        pods: &[Vec<&PodFacts>],
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Option<Gang> {
        let all = || pods.iter().flatten().copied();
        match is_of(key)? {
            Dialect::T9k => self.t9k.gang(key, all().filter_map(as_t9k)),
            Dialect::Koordinator => {
                let standings: Vec<Vec<_>> = pods
                    .iter()
                    .map(|part| part.iter().filter_map(|pod| as_koordinator(pod)).collect())
                    .collect();
                self.koordinator.gang(key, &standings, classes)
            }
            _ => self.kubernetes.gang(key, all().filter_map(as_kubernetes), classes),
        }
    }

    /// The gang of a pod that names no group; `None`: it is none of these dialects'.
    pub(crate) fn gang_of_one(
        &self,
        key: &Key,
        pod: &PodFacts,
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Option<Gang> {
        let (uid, created) = (pod.uid.clone(), pod.created);
        match &**pod.member.as_ref()? {
            Member::T9k(member) => Some(self.t9k.gang_of_one(key.clone(), uid, created, member)),
            Member::Koordinator(_) => {
                let standing = as_koordinator(pod)?;
                Some(self.koordinator.gang_of_one(key.clone(), uid, created, standing, classes))
            }
            Member::Kubernetes(_) => None,
        }
    }

    /// The queues that are there whether or not somebody made them, while there are pods that may need them: those that a pod brings
    /// as the first or takes away as the last.
    pub(crate) fn brought_by(&self, pod: &PodFacts) -> Vec<Name> {
        match pod
            .member
            .as_deref()
            .map(Member::dialect)
            .filter(|of| self.n_pods.get(of).is_none_or(|n| *n <= 1))
        {
            Some(dialect) => built_in(dialect).iter().map(|name| Name::from(*name)).collect(),
            None => Vec::new(),
        }
    }

    /// Where else a pod may not go, and what keeps it from starting, by what its queue says.
    pub(crate) fn rules(&self, pod: &PodFacts) -> (&[Expr], Option<Name>) {
        match pod.member.as_deref() {
            Some(Member::T9k(member)) => self.t9k.rules(pod.group.as_ref(), member),
            _ => (&[], None),
        }
    }

    /// A queue by its name in the model.
    pub(crate) fn queue(&self, name: &Name) -> Option<Queue> {
        let made = self.t9k.queue(name).or_else(|| self.koordinator.queue(name));
        made.or_else(|| {
            let dialect = [Dialect::T9k, Dialect::Koordinator, Dialect::Kubernetes]
                .into_iter()
                .find(|dialect| built_in(*dialect).contains(&&**name))?;
            let needed = self.n_pods.get(&dialect).is_some_and(|n| *n > 0);
            needed.then(|| queue(dialect, name.clone()))
        })
    }

    pub(crate) fn queue_names(&self, dialect: Dialect) -> Vec<Name> {
        match dialect {
            Dialect::T9k => self.t9k.queue_names().collect(),
            Dialect::Koordinator => self.koordinator.queue_names().collect(),
            Dialect::Kubernetes | Dialect::Kai | Dialect::Volcano => Vec::new(),
        }
    }

    pub(crate) fn gangs(&self, dialect: Dialect) -> Vec<Key> {
        match dialect {
            Dialect::T9k => self.t9k.group_keys().collect(),
            Dialect::Koordinator => self.koordinator.gangs().into_iter().collect(),
            Dialect::Kubernetes => self.kubernetes.group_keys().collect(),
            Dialect::Kai | Dialect::Volcano => Vec::new(),
        }
    }

    pub(crate) fn topology(&self, name: &Name) -> Option<Topology> {
        self.kubernetes.topology(name)
    }

    /// What quotas may use depends on what there is and what is asked for: the queues that are different now.
    pub(crate) fn divide(&mut self, cluster: impl FnOnce() -> Amounts, nodes_changed: bool) -> Vec<Name> {
        match self.koordinator.divide(cluster, nodes_changed) {
            true => self.koordinator.queue_names().collect(),
            false => Vec::new(),
        }
    }
}

/// The queues that a dialect has without an object.
fn built_in(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::T9k => &[t9k::DEFAULT],
        Dialect::Koordinator => &koordinator::BUILT_IN,
        Dialect::Kubernetes => &[workload::QUEUE],
        Dialect::Kai | Dialect::Volcano => &[],
    }
}

/// The group that a pod names is not there.
pub(crate) struct GroupMissing;

fn as_t9k(pod: &PodFacts) -> Option<&t9k::Member> {
    match &**pod.member.as_ref()? {
        Member::T9k(member) => Some(member),
        _ => None,
    }
}

fn as_koordinator(pod: &PodFacts) -> Option<koordinator::Standing<'_>> {
    match &**pod.member.as_ref()? {
        Member::Koordinator(member) => Some(koordinator::Standing {
            key: &pod.key,
            member,
            bound: pod.node.is_some(),
            over: pod.is_over(),
        }),
        _ => None,
    }
}

fn as_kubernetes(pod: &PodFacts) -> Option<(&workload::Member, Time)> {
    match &**pod.member.as_ref()? {
        Member::Kubernetes(member) => Some((member, pod.created)),
        _ => None,
    }
}

/// Whose gang or queue this is, of these systems.
pub(crate) fn is_of(key: &Key) -> Option<Dialect> {
    let begins = |prefix: &str| key.name.starts_with(prefix);
    [
        (t9k::PREFIX, Dialect::T9k),
        (koordinator::PREFIX, Dialect::Koordinator),
        (workload::PREFIX, Dialect::Kubernetes),
    ]
    .into_iter()
    .find_map(|(prefix, dialect)| begins(prefix).then_some(dialect))
}

/// The name of an object as its system has it.
pub(crate) fn shown(name: &str) -> &str {
    [t9k::PREFIX, koordinator::PREFIX, workload::PREFIX]
        .into_iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
}

pub(crate) fn key(prefix: &str, namespace: &str, name: &str) -> Key {
    Key::new(namespace, format!("{prefix}{name}"))
}

/// The tree of a gang without inner groups.
pub(crate) fn flat(min: u32) -> Vec<Group> {
    vec![Group { name: DEFAULT_GROUP.into(), parent: None, min: Min::Pods(min), topology: None }]
}

/// Nothing bounded, and everything deserved.
pub(crate) fn unbounded() -> BTreeMap<Resource, Share> {
    let share = Share { quota: Bound::Unlimited, weight: 1000, ..Share::default() };
    [Resource::Gpu, Resource::Cpu, Resource::Memory].map(|resource| (resource, share)).into()
}

/// A queue that bounds nothing.
pub(crate) fn queue(dialect: Dialect, name: Name) -> Queue {
    Queue {
        uid: name.clone(),
        name,
        tree: dialect,
        display: None,
        parent: None,
        priority: 0,
        created: Time::default(),
        shares: unbounded(),
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
        reclaim: muster_model::Reclaim::default(),
        usage: BTreeMap::new(),
        volcano: None,
    }
}

/// A gang whose queue and priority are still to be said. None of these systems evicts a gang for having fallen below its minimum.
pub(crate) fn gang(key: Key, uid: Name, created: Time, groups: Vec<Group>) -> Gang {
    Gang {
        key,
        uid,
        queue: "".into(),
        priority: 0,
        preemptibility: Preemptibility::Preemptible,
        created,
        groups,
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: Span::ZERO,
        staleness_grace: Some(Grace::Forever),
        declared_end: None,
        volcano: None,
    }
}

/// A tree of two levels as text.
#[cfg(test)]
pub(crate) fn drawn(groups: &[Group]) -> String {
    let draw = |group: &Group| match group.min {
        Min::Pods(n) => format!("{}:{n}", group.name),
        Min::Children(None) => format!("{}(all)", group.name),
        Min::Children(Some(n)) => format!("{}({n})", group.name),
        Min::Whole { pods } => format!("{}(all, {pods} pods)", group.name),
    };
    groups.iter().map(draw).collect::<Vec<_>>().join(" ")
}
