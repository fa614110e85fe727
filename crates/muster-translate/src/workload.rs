//! Kubernetes' own gangs, `scheduling.k8s.io`: PodGroups of v1alpha2, and Workloads of v1alpha1 whose groups are inside.
//!
//! In: these objects, and pods that name them in their spec. Out: gangs. A `gang` policy is a minimum, a `basic` one has none, and both need
//! the object to be there. Kubernetes has no queues: its gangs share one that bounds nothing, unless the group or its pods carry the
//! label of a queue of KAI's. A topology key becomes a topology of one level ([`Objects::topology`]).
//!
//! In a Workload of v1alpha1 a gang is a group's pods with one replica key, so that the gangs there are is said by the pods.

use crate::dialects::{self, Priority};
use crate::gang::PriorityClass;
use crate::read::{At, Object};
use muster_model::{Gang, Key, Level, Name, Span, Time, Topology, TopologyRule};
use std::collections::BTreeMap;

/// The beginning of the names of Kubernetes' gangs, queues and topologies in the model.
pub(crate) const PREFIX: &str = "kubernetes/";
pub(crate) const QUEUE: &str = "kubernetes/default";

/// What a pod says besides the gang that it names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    priority: Priority,
    queue: Option<Name>,
    never_preempts: bool,
}

/// The gang that a pod names; `None`: it names none.
pub(crate) fn of_pod(object: &Object<'_>, queue_label: &str) -> Option<(Key, Member)> {
    let spec = object.get("spec");
    let group = spec.get("schedulingGroup").get("podGroupName").word();
    let reference = spec.get("workloadRef");
    let name = match (group, reference.get("name").word(), reference.get("podGroup").word()) {
        (Some(group), ..) => group.to_owned(),
        (None, Some(workload), Some(group)) => {
            let replica = reference.get("podGroupReplicaKey").word();
            let name = format!("{workload}/{group}");
            replica.map_or(name.clone(), |replica| format!("{name}/{replica}"))
        }
        _ => return None,
    };
    let member = Member {
        priority: Priority::of_pod(object),
        queue: object.label(queue_label).filter(|name| !name.is_empty()).map(Name::from),
        never_preempts: spec.get("preemptionPolicy").str() == Some("Never"),
    };
    Some((dialects::key(PREFIX, object.namespace(), &name), member))
}

#[derive(Clone, Debug, PartialEq)]
struct GroupFacts {
    uid: Name,
    created: Time,
    min: u32,
    priority: Priority,
    queue: Option<Name>,
    topology: Option<Name>,
}

/// The minimum that a policy asks for.
fn min(at: At<'_>) -> u32 {
    let (gang, basic) = (at.get("gang"), at.get("basic"));
    match (gang.exists(), basic.exists()) {
        (true, true) => at.report("must be one of gang and basic; gang is assumed"),
        (false, false) => at.report("must be gang or basic; basic is assumed"),
        _ => {}
    }
    gang.get("minCount").count().unwrap_or(u32::from(gang.exists()))
}

fn pod_group(object: &Object<'_>, queue_label: &str) -> GroupFacts {
    let spec = object.get("spec");
    let policy = spec.get("schedulingPolicy");
    if !policy.exists() {
        object.report("spec.schedulingPolicy", "is absent; write gang with a minCount, or basic");
    }
    let mut keys = spec.get("schedulingConstraints").get("topology").list();
    let topology = keys.next().and_then(|at| at.get("key").name());
    if let Some(further) = keys.next() {
        further.report("is ignored: there can be one topology key");
    }
    GroupFacts {
        uid: object.uid(|| object.key().to_string()),
        created: object.created(),
        min: if policy.exists() { min(policy) } else { 0 },
        priority: Priority::of_spec(spec),
        queue: object.label(queue_label).filter(|name| !name.is_empty()).map(Name::from),
        topology,
    }
}

/// A Workload of v1alpha1: the minimums of its groups.
#[derive(Clone, Debug, PartialEq)]
struct WorkloadFacts {
    uid: Name,
    created: Time,
    queue: Option<Name>,
    groups: BTreeMap<Name, u32>,
}

fn workload(object: &Object<'_>, queue_label: &str) -> WorkloadFacts {
    let groups = object.get("spec").get("podGroups").list().filter_map(|at| {
        let name = at.get("name").name();
        if name.is_none() {
            at.report("has no name; the group is ignored");
        }
        Some((name?, min(at.get("policy"))))
    });
    WorkloadFacts {
        uid: object.uid(|| object.key().to_string()),
        created: object.created(),
        queue: object.label(queue_label).filter(|name| !name.is_empty()).map(Name::from),
        groups: groups.collect(),
    }
}

/// Kubernetes' objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// By the keys of their gangs; `None`: another shard's.
    groups: BTreeMap<Key, Option<GroupFacts>>,
    /// By the keys that gangs' keys begin with; `None`: another shard's.
    workloads: BTreeMap<Key, Option<WorkloadFacts>>,
}

impl Objects {
    /// The gang that changes with a PodGroup, and the topologies that come or go with it; `None`: it says nothing new.
    pub(crate) fn put_group(
        &mut self,
        object: &Object<'_>,
        here: bool,
        queue_label: &str,
    ) -> Option<(Key, Vec<Name>)> {
        let key = dialects::key(PREFIX, object.namespace(), object.name());
        let facts = here.then(|| pod_group(object, queue_label));
        let before = self.groups.insert(key.clone(), facts.clone());
        if before.as_ref() == Some(&facts) {
            return None;
        }
        let keys = before.flatten().into_iter().chain(facts).filter_map(|facts| facts.topology);
        Some((key, keys.map(|key| topology_name(&key)).collect()))
    }

    pub(crate) fn drop_group(&mut self, object: &Object<'_>) -> Option<(Key, Vec<Name>)> {
        let key = dialects::key(PREFIX, object.namespace(), object.name());
        let before = self.groups.remove(&key)?;
        let level = before.and_then(|facts| facts.topology);
        Some((key, level.iter().map(|key| topology_name(key)).collect()))
    }

    /// The beginning of the keys of the gangs that change with a Workload; `None`: it says nothing new.
    pub(crate) fn put_workload(&mut self, object: &Object<'_>, here: bool, queue_label: &str) -> Option<Key> {
        let key = dialects::key(PREFIX, object.namespace(), object.name());
        let facts = here.then(|| workload(object, queue_label));
        let before = self.workloads.insert(key.clone(), facts.clone());
        (before != Some(facts)).then_some(key)
    }

    pub(crate) fn drop_workload(&mut self, object: &Object<'_>) -> Option<Key> {
        let key = dialects::key(PREFIX, object.namespace(), object.name());
        self.workloads.remove(&key).map(|_| key)
    }

    pub(crate) fn group_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.groups.keys().cloned()
    }

    /// Of a gang of a Workload: the Workload, and the minimum of its group.
    fn of_workload(&self, gang: &Key) -> Option<(&WorkloadFacts, u32)> {
        let (facts, group) = self.workload_of(gang)?;
        let facts = facts.as_ref()?;
        Some((facts, *facts.groups.get(group)?))
    }

    /// The Workload that a gang would be of, and the name of its group there.
    fn workload_of<'a>(&self, gang: &'a Key) -> Option<(&Option<WorkloadFacts>, &'a str)> {
        let (workload, rest) = gang.name.strip_prefix(PREFIX)?.split_once('/')?;
        let group = rest.split_once('/').map_or(rest, |(group, _)| group);
        Some((self.workloads.get(&dialects::key(PREFIX, &gang.namespace, workload))?, group))
    }

    pub(crate) fn has_group(&self, gang: &Key) -> bool {
        self.group(gang).is_some() || self.of_workload(gang).is_some()
    }

    /// Whether a gang is this shard's; `None`: neither its group nor its Workload is there.
    pub(crate) fn is_here(&self, gang: &Key) -> Option<bool> {
        let by_group = self.groups.get(gang).map(Option::is_some);
        by_group.or_else(|| Some(self.workload_of(gang)?.0.is_some()))
    }

    fn group(&self, gang: &Key) -> Option<&GroupFacts> {
        self.groups.get(gang)?.as_ref()
    }

    /// The gang, given its pods.
    pub(crate) fn gang<'a>(
        &self,
        key: &Key,
        pods: impl Iterator<Item = (&'a Member, Time)>,
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Option<Gang> {
        let mut priority: Option<i32> = None;
        let (mut queue, mut never, mut oldest) = (None, false, None);
        for (pod, created) in pods {
            priority = priority.max(Some(pod.priority.resolve(classes)));
            queue = queue.or_else(|| pod.queue.clone());
            never |= pod.never_preempts;
            oldest = Some(oldest.map_or(created, |oldest: Time| oldest.min(created)));
        }
        let mut gang = if let Some(facts) = self.group(key) {
            let mut groups = dialects::flat(facts.min);
            if let (Some(root), Some(level)) = (groups.first_mut(), &facts.topology) {
                let topology = topology_name(level);
                root.topology =
                    Some(TopologyRule { topology, required: Some(level.clone()), preferred: None });
            }
            queue = facts.queue.clone().or(queue);
            priority = facts.priority.said(classes).or(priority);
            dialects::gang(key.clone(), facts.uid.clone(), facts.created, groups)
        } else {
            let (facts, min) = self.of_workload(key)?;
            queue = facts.queue.clone().or(queue);
            let uid = format!("{}/{}", facts.uid, key.name).into();
            // Each replica of a group is as old as its pods, and is there while it has any.
            let created = oldest?.max(facts.created);
            dialects::gang(key.clone(), uid, created, dialects::flat(min))
        };
        gang.priority = priority.unwrap_or_else(|| Priority::default().resolve(classes));
        gang.queue = queue.unwrap_or_else(|| QUEUE.into());
        if never {
            gang.preemption_delay = Span(i64::MAX);
        }
        Some(gang)
    }

    /// The topology of one level that a group asks for, while one does.
    pub(crate) fn topology(&self, name: &Name) -> Option<Topology> {
        let label: Name = name.strip_prefix(PREFIX)?.into();
        let used = self.groups.values().flatten().any(|facts| facts.topology.as_ref() == Some(&label));
        let levels = vec![Level { label, alias: None }];
        used.then(|| Topology { name: name.clone(), levels, domains: Vec::new() })
    }
}

fn topology_name(label: &str) -> Name {
    format!("{PREFIX}{label}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::{Group, Min};
    use serde_json::{Value, json};

    const LABEL: &str = "kai.scheduler/queue";

    fn put(objects: &mut Objects, spec: Value) -> usize {
        let value = json!({"metadata": {"name": "g", "namespace": "n"}, "spec": spec});
        let object = Object::new("PodGroup", &value);
        objects.put_group(&object, true, LABEL);
        object.into_diagnostics().len()
    }

    #[track_caller]
    fn check(spec: Value, expected: u32, n_diagnostics: usize) {
        let mut objects = Objects::default();
        assert_eq!(put(&mut objects, spec), n_diagnostics);
        let gang =
            objects.gang(&Key::new("n", "kubernetes/g"), std::iter::empty(), &BTreeMap::new()).unwrap();
        assert_eq!(gang.groups[0].min, Min::Pods(expected));
    }

    #[test]
    fn a_policy_is_a_minimum_or_none() {
        check(json!({"schedulingPolicy": {"gang": {"minCount": 3}}}), 3, 0);
        check(json!({"schedulingPolicy": {"basic": {}}}), 0, 0);
        check(json!({"schedulingPolicy": {"basic": {}, "gang": {"minCount": 2}}}), 2, 1);
        check(json!({"schedulingPolicy": {}}), 0, 1);
        check(json!({}), 0, 1);
    }

    #[test]
    fn a_topology_key_is_a_topology_of_its_own_while_a_group_asks_for_it() {
        let mut objects = Objects::default();
        put(
            &mut objects,
            json!({"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}),
        );
        let topology = objects.topology(&"kubernetes/rack".into()).unwrap();
        assert_eq!(&*topology.levels[0].label, "rack");
        let gang =
            objects.gang(&Key::new("n", "kubernetes/g"), std::iter::empty(), &BTreeMap::new()).unwrap();
        let Group { topology: Some(rule), .. } = &gang.groups[0] else { panic!("no rule") };
        assert_eq!((&*rule.topology, rule.required.as_deref()), ("kubernetes/rack", Some("rack")));
        put(&mut objects, json!({"schedulingPolicy": {"basic": {}}}));
        assert_eq!(objects.topology(&"kubernetes/rack".into()), None);
    }

    #[test]
    fn pods_name_a_group_or_a_group_of_a_workload() {
        let named = |spec: Value| {
            let value = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
            of_pod(&Object::new("Pod", &value), LABEL).map(|(key, _)| key.to_string())
        };
        assert_eq!(
            named(json!({"schedulingGroup": {"podGroupName": "g"}})).as_deref(),
            Some("n/kubernetes/g")
        );
        assert_eq!(named(json!({"schedulingGroup": {}})), None);
        let reference = json!({"name": "w", "podGroup": "workers"});
        assert_eq!(named(json!({"workloadRef": reference})).as_deref(), Some("n/kubernetes/w/workers"));
        let reference = json!({"name": "w", "podGroup": "workers", "podGroupReplicaKey": "1"});
        assert_eq!(named(json!({"workloadRef": reference})).as_deref(), Some("n/kubernetes/w/workers/1"));
        assert_eq!(named(json!({})), None);
    }

    #[test]
    fn each_replica_of_a_group_of_a_workload_is_a_gang() {
        let mut objects = Objects::default();
        let value = json!({"metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": {"podGroups": [
            {"name": "workers", "policy": {"gang": {"minCount": 2}}}, {"name": "rest", "policy": {"basic": {}}},
        ]}});
        let object = Object::new("Workload", &value);
        assert_eq!(objects.put_workload(&object, true, LABEL), Some(Key::new("n", "kubernetes/w")));
        assert_eq!(objects.put_workload(&object, true, LABEL), None);
        let member = Member { priority: Priority::default(), queue: None, never_preempts: false };
        let pods = || [(&member, Time(0))].into_iter();
        let gang = |name: &str| objects.gang(&Key::new("n", name), pods(), &BTreeMap::new());
        let (zero, one) = (gang("kubernetes/w/workers/0").unwrap(), gang("kubernetes/w/workers/1").unwrap());
        assert_ne!(zero.uid, one.uid);
        assert_eq!(zero.groups[0].min, Min::Pods(2));
        assert_eq!(gang("kubernetes/w/rest").unwrap().groups[0].min, Min::Pods(0));
        assert!(gang("kubernetes/w/none").is_none());
        assert!(gang("kubernetes/w").is_none());
        let without = objects.gang(&Key::new("n", "kubernetes/w/rest"), std::iter::empty(), &BTreeMap::new());
        assert_eq!(without, None);
    }

    #[test]
    fn a_queue_label_makes_it_a_gang_of_that_queue() {
        let mut objects = Objects::default();
        put(&mut objects, json!({"schedulingPolicy": {"basic": {}}, "priority": 7}));
        let member = Member {
            priority: Priority { own: Some(9), class: None },
            queue: Some("research".into()),
            never_preempts: true,
        };
        let key = Key::new("n", "kubernetes/g");
        let gang = objects.gang(&key, [(&member, Time(0))].into_iter(), &BTreeMap::new()).unwrap();
        assert_eq!((&*gang.queue, gang.priority), ("research", 7));
        assert_eq!(gang.preemption_delay, Span(i64::MAX));
        let gang = objects.gang(&key, std::iter::empty(), &BTreeMap::new()).unwrap();
        assert_eq!(&*gang.queue, QUEUE);
    }
}
