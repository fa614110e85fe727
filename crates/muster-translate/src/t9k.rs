//! T9k's gangs and queues, `scheduler.tensorstack.dev/v1beta1`, and what pods say to it in labels.
//!
//! In: PodGroups, Queues and pods. Out: gangs whose roles are leaf groups, and queues whose quota is a ceiling. What T9k's scheduler has
//! no object for is here as it behaves: a pod without a group is a gang of one, and the queue `default` is there whether or not
//! somebody made it.
//!
//! A queue also bounds where its pods may go, whether others may take from them, and whether anything new starts. Gangs and pods are
//! therefore made anew when their queue changes ([`Objects`] says which).

use crate::dialects;
use crate::gang::DEFAULT_GROUP;
use crate::policies;
use crate::read::{At, Object};
use crate::select;
use crate::text::{self, Rounding};
use muster_model::{
    Bound, Dialect, Expr, Gang, Group, Key, Min, Name, Preemptibility, Queue, Share, Span, Time,
};
use std::collections::BTreeMap;

/// The beginning of the names of T9k's gangs and queues in the model.
pub(crate) const PREFIX: &str = "t9k/";

/// The queue that is always there.
pub(crate) const DEFAULT: &str = "t9k/default";

const GROUP: &str = "scheduler.tensorstack.dev/group-name";
const ROLE: &str = "scheduler.tensorstack.dev/role";
const QUEUE: &str = "scheduler.tensorstack.dev/queue";
const DEFAULT_QUEUE: &str = "default";
/// Where T9k keeps its queues. A queue of the same name elsewhere is none, as long as there is one here.
const HOME: &str = "t9k-system";
const PRIORITIES: std::ops::RangeInclusive<i64> = 0..=100;

/// What a pod says to T9k.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    role: Option<Name>,
    /// Of a pod without a group.
    queue: Name,
}

/// The group that a pod names, and the rest of what it says.
pub(crate) fn of_pod(object: &Object<'_>) -> (Option<Key>, Member) {
    let label = |key: &str| object.label(key).filter(|text| !text.is_empty());
    let group = label(GROUP).map(|name| key(object.namespace(), name));
    (group, Member { role: label(ROLE).map(Name::from), queue: queue_name(label(QUEUE)) })
}

/// The key of the gang of a PodGroup.
pub(crate) fn key(namespace: &str, name: &str) -> Key {
    dialects::key(PREFIX, namespace, name)
}

fn queue_name(name: Option<&str>) -> Name {
    format!("{PREFIX}{}", name.unwrap_or(DEFAULT_QUEUE)).into()
}

/// A PodGroup, without what its pods add to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupFacts {
    uid: Name,
    created: Time,
    queue: Name,
    priority: i32,
    min: u32,
    roles: BTreeMap<Name, u32>,
}

pub(crate) fn pod_group(object: &Object<'_>) -> GroupFacts {
    let spec = object.get("spec");
    let mut roles: BTreeMap<Name, u32> = BTreeMap::new();
    for at in spec.get("roles").list() {
        let Some(name) = at.get("name").name() else {
            at.report("has no name; the role is ignored");
            continue;
        };
        let min = at.get("minMember").count().unwrap_or(0);
        let known = roles.entry(name);
        if matches!(known, std::collections::btree_map::Entry::Occupied(_)) {
            at.report("has a name that another role has; the larger minimum counts");
        }
        let known = known.or_default();
        *known = min.max(*known);
    }
    GroupFacts {
        uid: object.uid(|| object.key().to_string()),
        created: object.created(),
        queue: queue_name(spec.get("queue").word()),
        priority: priority(spec.get("priority")),
        min: spec.get("minMember").count().unwrap_or(u32::from(roles.is_empty())),
        roles,
    }
}

/// From 0 to 100; what is outside holds at the end.
fn priority(at: At<'_>) -> i32 {
    let said = at.int().unwrap_or(0);
    if !PRIORITIES.contains(&said) {
        at.report("must be from 0 to 100; the nearest of them is used");
    }
    i32::try_from(said.clamp(*PRIORITIES.start(), *PRIORITIES.end())).unwrap_or(0)
}

impl GroupFacts {
    /// The leaf group that a pod is in; `None`: the only one.
    fn leaf_of(&self, role: Option<&Name>) -> Option<Name> {
        (!self.roles.is_empty()).then(|| role.cloned().unwrap_or_else(|| DEFAULT_GROUP.into()))
    }

    /// The groups, given the roles of the pods there are. A role that only pods name has a leaf too, and no minimum.
    fn groups<'a>(&self, of_pods: impl Iterator<Item = Option<&'a Name>>) -> Vec<Group> {
        if self.roles.is_empty() {
            return dialects::flat(self.min);
        }
        let mut leaves = self.roles.clone();
        for role in of_pods {
            leaves.entry(self.leaf_of(role).unwrap_or_else(|| DEFAULT_GROUP.into())).or_default();
        }
        let of_roles = leaves.values().fold(0_u32, |sum, min| sum.saturating_add(*min));
        let min = match self.min {
            pods if pods > of_roles => Min::Whole { pods },
            _ => Min::Children(None),
        };
        let root = Group { name: "".into(), parent: None, min, topology: None };
        let leaf = |(name, min)| Group { name, parent: Some(0), min: Min::Pods(min), topology: None };
        std::iter::once(root).chain(leaves.into_iter().map(leaf)).collect()
    }
}

/// A Queue: what the model holds of it, and what it asks of pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueFacts {
    queue: Queue,
    preemptible: bool,
    closed: bool,
    /// Only these nodes; empty: all.
    nodes: Vec<Expr>,
    /// How long after its creation a pod may be there.
    longest: Option<Span>,
}

pub(crate) fn queue(object: &Object<'_>) -> QueueFacts {
    let spec = object.get("spec");
    let quota = spec.get("quota").get("requests");
    if spec.get("requests").exists() {
        object.report("spec.requests", "is of an older version and is ignored; write spec.quota.requests");
    }
    let policies = policies::read(object);
    let mut shares = dialects::unbounded();
    for (name, at) in quota.entries() {
        let resource = text::resource(name);
        let Some(quantity) = at.quantity() else { continue };
        let amount = match text::amount(&resource, quantity, Rounding::Down) {
            Ok(amount) => amount,
            Err(problem) => {
                at.report(format!("{} {problem}; it bounds nothing", at.quoted()));
                continue;
            }
        };
        match shares.get_mut(&resource) {
            // What a queue may use and what it counts on are the same, unless it is told how much it may borrow.
            Some(share) => {
                *share = Share {
                    quota: Bound::At(amount),
                    limit: Bound::At(policies.times(amount).unwrap_or(amount)),
                    weight: 0,
                    ..Share::default()
                };
            }
            None => at.report("is not held against anyone: quotas are for cpu, memory and GPUs"),
        }
    }
    let selector = spec.get("nodeSelector");
    let longest = spec.get("maxDuration");
    let mut queue = Queue {
        priority: priority(spec.get("priority")),
        shares,
        uid: object.uid(|| object.key().to_string()),
        created: object.created(),
        ..dialects::queue(Dialect::T9k, queue_name(Some(object.name())))
    };
    policies.apply(&mut queue);
    QueueFacts {
        queue,
        preemptible: spec.get("preemptible").bool().unwrap_or(true),
        closed: spec.get("closed").bool().unwrap_or(false),
        nodes: if selector.exists() { select::labels(selector).all } else { Vec::new() },
        longest: longest.word().and_then(|text| {
            let span = long_duration(text);
            if span.is_none() {
                longest.report("is no length of time; write one like 1d12h or 90m");
            }
            span.filter(|span| *span > Span::ZERO)
        }),
    }
}

/// `1y2w3d4h5m6s7ms`: each unit at most once, the larger first; `0` is none.
fn long_duration(text: &str) -> Option<Span> {
    const UNITS: [(&str, i64); 7] = [
        ("y", 365 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    if text == "0" {
        return Some(Span::ZERO);
    }
    let (mut rest, mut next, mut sum) = (text, 0, 0_i64);
    while !rest.is_empty() {
        let (number, tail) = rest.split_at_checked(rest.find(|c: char| !c.is_ascii_digit())?)?;
        let (unit, tail) =
            tail.split_at_checked(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()))?;
        let at = UNITS.iter().position(|(name, _)| *name == unit).filter(|at| *at >= next)?;
        let amount = number.parse::<i64>().unwrap_or(if number.is_empty() { return None } else { i64::MAX });
        sum = sum.saturating_add(amount.saturating_mul(UNITS.get(at)?.1));
        (rest, next) = (tail, at + 1);
    }
    Some(Span(sum))
}

/// T9k's objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// `None`: another shard's.
    groups: BTreeMap<Key, Option<GroupFacts>>,
    /// By name and namespace.
    queues: BTreeMap<Name, BTreeMap<Name, QueueFacts>>,
}

impl Objects {
    /// True if the object says something new.
    pub(crate) fn put_group(&mut self, object: &Object<'_>, here: bool) -> bool {
        let facts = here.then(|| pod_group(object));
        let before = self.groups.insert(key(object.namespace(), object.name()), facts.clone());
        before != Some(facts)
    }

    pub(crate) fn drop_group(&mut self, object: &Object<'_>) -> bool {
        self.groups.remove(&key(object.namespace(), object.name())).is_some()
    }

    pub(crate) fn put_queue(&mut self, object: &Object<'_>) -> bool {
        let facts = queue(object);
        let of_name = self.queues.entry(facts.queue.name.clone()).or_default();
        of_name.insert(object.namespace().into(), facts.clone()) != Some(facts)
    }

    pub(crate) fn drop_queue(&mut self, object: &Object<'_>) -> bool {
        let name = queue_name(Some(object.name()));
        let Some(of_name) = self.queues.get_mut(&name) else { return false };
        let had = of_name.remove(object.namespace()).is_some();
        if of_name.is_empty() {
            self.queues.remove(&name);
        }
        had
    }

    fn queue_facts(&self, name: &str) -> Option<&QueueFacts> {
        let of_name = self.queues.get(name)?;
        of_name.get(HOME).or_else(|| of_name.values().next())
    }

    /// The queue of a name, if it is one of T9k's.
    pub(crate) fn queue(&self, name: &Name) -> Option<Queue> {
        self.queue_facts(name).map(|facts| facts.queue.clone())
    }

    pub(crate) fn queue_names(&self) -> impl Iterator<Item = Name> + '_ {
        self.queues.keys().cloned()
    }

    pub(crate) fn group_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.groups.keys().cloned()
    }

    /// Whether a group is this shard's; `None`: it is not there.
    pub(crate) fn is_here(&self, key: &Key) -> Option<bool> {
        self.groups.get(key).map(Option::is_some)
    }

    fn group(&self, key: &Key) -> Option<&GroupFacts> {
        self.groups.get(key)?.as_ref()
    }

    pub(crate) fn leaf_of(&self, gang: &Key, pod: &Member) -> Option<Name> {
        self.group(gang)?.leaf_of(pod.role.as_ref())
    }

    /// The gang of a group, given its pods.
    pub(crate) fn gang<'a>(&self, key: &Key, pods: impl Iterator<Item = &'a Member>) -> Option<Gang> {
        let facts = self.group(key)?;
        let groups = facts.groups(pods.map(|pod| pod.role.as_ref()));
        let mut gang = dialects::gang(key.clone(), facts.uid.clone(), facts.created, groups);
        gang.queue = facts.queue.clone();
        gang.priority = facts.priority;
        Some(self.in_queue(gang))
    }

    /// The gang of a pod without a group.
    pub(crate) fn gang_of_one(&self, key: Key, uid: Name, created: Time, pod: &Member) -> Gang {
        let mut gang = dialects::gang(key, uid, created, dialects::flat(1));
        gang.queue = pod.queue.clone();
        self.in_queue(gang)
    }

    fn in_queue(&self, mut gang: Gang) -> Gang {
        if let Some(facts) = self.queue_facts(&gang.queue) {
            if !facts.preemptible {
                gang.preemptibility = Preemptibility::NonPreemptible;
            }
            gang.declared_end = facts.longest.map(|span| gang.created + span);
        }
        gang
    }

    /// The queue of a pod, with its group's taken if it has one.
    fn queue_of<'a>(&'a self, group: Option<&Key>, pod: &'a Member) -> Option<&'a Name> {
        match group {
            Some(group) => self.group(group).map(|facts| &facts.queue),
            None => Some(&pod.queue),
        }
    }

    /// Where a pod may go by its queue's rules, and what keeps it from starting.
    pub(crate) fn rules(&self, group: Option<&Key>, pod: &Member) -> (&[Expr], Option<Name>) {
        let facts = self.queue_of(group, pod).and_then(|name| self.queue_facts(name));
        let Some(facts) = facts else { return (&[], None) };
        let shown = facts.queue.name.strip_prefix(PREFIX).unwrap_or(&facts.queue.name);
        (&facts.nodes, facts.closed.then(|| format!("the queue {shown} to be opened; it is closed").into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Resource;
    use serde_json::{Value, json};

    fn group(spec: Value) -> (GroupFacts, usize) {
        let value = json!({"metadata": {"name": "g", "namespace": "n"}, "spec": spec});
        let object = Object::new("PodGroup", &value);
        let facts = pod_group(&object);
        (facts, object.into_diagnostics().len())
    }

    #[track_caller]
    fn check(spec: Value, pods: &[Option<&str>], expected: &str, n_diagnostics: usize) {
        let (facts, found) = group(spec);
        let roles: Vec<Option<Name>> = pods.iter().map(|role| role.map(Name::from)).collect();
        assert_eq!(dialects::drawn(&facts.groups(roles.iter().map(Option::as_ref))), expected);
        assert_eq!(found, n_diagnostics);
    }

    #[test]
    fn roles_are_leaves_and_the_total_stands_above_them() {
        check(json!({"minMember": 2}), &[None, None], "default:2", 0);
        check(json!({}), &[], "default:1", 0);
        check(json!({"minMember": 2}), &[Some("master")], "default:2", 0);
        let roles = json!([{"name": "master", "minMember": 1}, {"name": "worker", "minMember": 1}]);
        let three = json!({"minMember": 3, "roles": roles});
        check(three.clone(), &[Some("master"), Some("worker")], "(all, 3 pods) master:1 worker:1", 0);
        check(three, &[Some("master"), Some("x"), None], "(all, 3 pods) default:0 master:1 worker:1 x:0", 0);
        check(json!({"minMember": 2, "roles": roles}), &[], "(all) master:1 worker:1", 0);
        check(json!({"roles": roles}), &[], "(all) master:1 worker:1", 0);
        check(
            json!({"roles": [{"minMember": 1}, {"name": "a", "minMember": 2}, {"name": "a"}]}),
            &[],
            "(all) a:2",
            2,
        );
    }

    #[test]
    fn priorities_are_from_0_to_100() {
        for (said, expected, n) in
            [(json!(50), 50, 0), (json!(-1), 0, 1), (json!(101), 100, 1), (json!(null), 0, 0)]
        {
            let (facts, found) = group(json!({"priority": said}));
            assert_eq!((facts.priority, found), (expected, n), "{said}");
        }
    }

    #[test]
    fn the_queue_of_a_group_is_default_unless_it_says_otherwise() {
        assert_eq!(&*group(json!({})).0.queue, "t9k/default");
        assert_eq!(&*group(json!({"queue": "gpu"})).0.queue, "t9k/gpu");
    }

    fn read_queue(spec: Value) -> (QueueFacts, Vec<String>) {
        let value = json!({"metadata": {"name": "q", "namespace": HOME}, "spec": spec});
        let object = Object::new("Queue", &value);
        let facts = queue(&object);
        (facts, object.into_diagnostics().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_quota_is_a_ceiling_over_what_it_names() {
        let (facts, found) = read_queue(json!({
            "priority": 7, "quota": {"requests": {"cpu": "2", "nvidia.com/gpu": "4", "nvidia.com/gpu.shared": "8"}},
        }));
        let share = |resource| facts.queue.shares[&resource];
        assert_eq!(
            (share(Resource::Cpu).quota, share(Resource::Cpu).limit),
            (Bound::At(2000), Bound::At(2000))
        );
        assert_eq!(share(Resource::Gpu).limit, Bound::At(4000));
        assert_eq!(share(Resource::Memory).limit, Bound::Unlimited);
        assert_eq!(facts.queue.priority, 7);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("gpu.shared"), "{found:?}");
        let (_, found) = read_queue(json!({"requests": {"cpu": "2"}}));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn nodes_of_a_queue_are_all_unless_it_selects_some() {
        assert_eq!(read_queue(json!({})).0.nodes, []);
        assert_eq!(read_queue(json!({"nodeSelector": {}})).0.nodes, []);
        assert_eq!(read_queue(json!({"nodeSelector": {"matchLabels": {"gpu": "a100"}}})).0.nodes.len(), 1);
    }

    #[track_caller]
    fn check_duration(text: &str, seconds: Option<i64>) {
        assert_eq!(long_duration(text), seconds.map(Span::seconds), "{text}");
    }

    #[test]
    fn long_durations_have_days_weeks_and_years() {
        check_duration("0", Some(0));
        check_duration("10s", Some(10));
        check_duration("1d12h", Some(129_600));
        check_duration("1y", Some(31_536_000));
        assert_eq!(long_duration("2w1ms"), Some(Span(1_209_600_001)));
        check_duration("1m1h", None);
        check_duration("1h1h", None);
        check_duration("h", None);
        check_duration("5", None);
        check_duration("soon", None);
    }

    #[test]
    fn pods_name_their_group_role_and_queue_by_labels() {
        let value =
            json!({"metadata": {"name": "p", "namespace": "n", "labels": {GROUP: "g", ROLE: "worker"}}});
        let (key, member) = of_pod(&Object::new("Pod", &value));
        assert_eq!(key, Some(Key::new("n", "t9k/g")));
        assert_eq!(member, Member { role: Some("worker".into()), queue: "t9k/default".into() });
        let value = json!({"metadata": {"name": "p", "labels": {QUEUE: "q", GROUP: ""}}});
        let (key, member) = of_pod(&Object::new("Pod", &value));
        assert_eq!(key, None);
        assert_eq!(&*member.queue, "t9k/q");
    }

    #[test]
    fn a_queue_at_home_is_the_one_that_counts() {
        let mut objects = Objects::default();
        let mut put = |namespace: &str, priority: i64| {
            let value =
                json!({"metadata": {"name": "q", "namespace": namespace}, "spec": {"priority": priority}});
            objects.put_queue(&Object::new("Queue", &value))
        };
        assert!(put("a", 1));
        assert!(put(HOME, 2));
        assert!(!put("a", 1));
        assert_eq!(objects.queue(&"t9k/q".into()).unwrap().priority, 2);
        let value = json!({"metadata": {"name": "q", "namespace": HOME}});
        assert!(objects.drop_queue(&Object::new("Queue", &value)));
        assert_eq!(objects.queue(&"t9k/q".into()).unwrap().priority, 1);
        assert!(objects.queue(&"t9k/other".into()).is_none());
    }
}
