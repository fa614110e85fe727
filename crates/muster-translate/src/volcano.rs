//! Volcano's objects and settings: PodGroup, Queue, HyperNode, what pods say to it, and its scheduler's configuration.
//!
//! In: objects as JSON. Out: gangs, queues and one topology of the model, with what only Volcano says in the `volcano` part of each.
//! Hypernodes become one [`Topology`] with listed domains ([`hypernodes`]); a pod group's leaf groups are the roles of its sub-groups.

pub mod conf;

pub use conf::{policy, tiers};

use crate::gang::{PriorityClass, priority};
use crate::policies;
use crate::read::{At, Object};
use crate::select;
use crate::text::{self, Rounding};
use muster_model::volcano::{
    Budget, DisruptionBudget, FitType, Group as Facts, Leaf, NamespaceQuota, NetworkTopology, NodeGroups,
    Phase, Portion, Queue as QueueFacts, SubGroup, SubGroupPolicy, Task, TaskTopology, Tier,
};
use muster_model::{
    Amounts, Domain, Gang, Group, Key, LabelSelector, Labels, Min, Name, Node, Preemptibility, Queue, Share,
    Span, Topology,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the names of Volcano's gangs and queues begin with in the model.
pub(crate) const PREFIX: &str = "volcano/";

/// The queue of those that name none; it is there even if nobody made it, and so is the one that all hang from.
const DEFAULT_QUEUE: &str = "default";
const ROOT_QUEUE: &str = "root";

/// Whether a text is a regular expression that hypernodes may select by.
pub fn is_pattern(text: &str) -> bool {
    regex::RegexBuilder::new(text).size_limit(1 << 20).build().is_ok()
}

/// The name of the topology that hypernodes make.
pub(crate) const HYPERNODES: &str = "hypernodes";

/// Trees of queues and hypernodes are no deeper than this.
const MOST_LEVELS: usize = 32;

const GROUP: [&str; 2] = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
const QUEUE: &str = "scheduling.volcano.sh/queue-name";
const MIN_MEMBER: &str = "scheduling.volcano.sh/group-min-member";
const ROLE: &str = "volcano.sh/task-spec";
const INDEX: &str = "volcano.sh/task-index";
const PRIORITY: &str = "volcano.sh/task-priority";
const PREEMPTABLE: &str = "volcano.sh/preemptable";
const COOLDOWN: &str = "volcano.sh/cooldown-time";
const ZONE: &str = "volcano.sh/revocable-zone";
const MIN_AVAILABLE: &str = "volcano.sh/jdb-min-available";
const MAX_UNAVAILABLE: &str = "volcano.sh/jdb-max-unavailable";
const WAITING: [&str; 2] = ["volcano.sh/sla-waiting-time", "sla-waiting-time"];
const DOMAIN: &str = "volcano.sh/job-allocated-hypernode";
const HIERARCHY: &str = "volcano.sh/hierarchy";
const HIERARCHY_WEIGHTS: &str = "volcano.sh/hierarchy-weights";
const GROUP_LIMITS: &str = "volcano.sh/nodegroup-resource-limits";
const TOGETHER: &str = "volcano.sh/task-topology-affinity";
const APART: &str = "volcano.sh/task-topology-anti-affinity";
const ORDER: &str = "volcano.sh/task-topology-task-order";
const FIT: &str = "volcano.sh/resource-strategy-scoring-type";
const FIT_WEIGHTS: &str = "volcano.sh/resource-strategy-weight";

/// A pod group whose priority class is still a name, and whose sub-groups are still rules about labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupFacts {
    gang: Gang,
    class: Option<Name>,
    facts: Facts,
    /// For each policy: which pods, and the labels that tell sub-groups apart.
    rules: Vec<(Option<LabelSelector>, Vec<Name>)>,
}

/// Where a pod is among the sub-groups: a policy, and the values of its labels.
type Place = (usize, Vec<Name>);

/// The key of a gang by its PodGroup's.
pub(crate) fn gang_key(object: &Object<'_>) -> Key {
    named(object.namespace(), object.name())
}

fn named(namespace: &str, name: &str) -> Key {
    Key::new(namespace, format!("{PREFIX}{name}"))
}

/// The name of a queue in the model.
pub(crate) fn queue_name(name: &str) -> Name {
    format!("{PREFIX}{name}").into()
}

/// The gang of the pod group that a pod names.
pub(crate) fn group_of(object: &Object<'_>) -> Option<Key> {
    let name = GROUP.iter().find_map(|key| object.annotation(key))?;
    Some(named(object.namespace(), name))
}

/// The gang of a pod that names no pod group, as Volcano's controller makes the group: one for all pods of an owner.
pub(crate) fn made_group(object: &Object<'_>, requests: &Amounts) -> (Key, GroupFacts) {
    let owners = object.get("metadata").get("ownerReferences");
    let controller = owners.list().find(|owner| owner.get("controller").bool() == Some(true));
    let owner = controller.and_then(|owner| owner.get("uid").word());
    let uid = owner.map_or_else(|| object.uid(|| object.name().to_owned()), Name::from);
    let key = named(object.namespace(), &format!("podgroup-{uid}"));
    let said = |key: &str| object.annotation(key);
    let min_member = said(MIN_MEMBER).and_then(|text| text.parse().ok()).filter(|n| *n > 0).unwrap_or(1);
    let min_resources =
        requests.iter().map(|(resource, n)| (resource.clone(), n.saturating_mul(i64::from(min_member))));
    let facts = Facts {
        min_member,
        min_resources: Some(min_resources.collect()),
        preemptable: said_bool(object, PREEMPTABLE),
        revocable: self::said(object, ZONE) == Some("*"),
        ..Facts::default()
    };
    let group = GroupFacts {
        gang: gang(
            key.clone(),
            key.to_string().into(),
            said(QUEUE).unwrap_or(DEFAULT_QUEUE),
            object.created(),
        ),
        class: object.get("spec").get("priorityClassName").name(),
        facts,
        rules: Vec::new(),
    };
    (key, group)
}

/// What a Pod asks for, as a PodGroup's `minResources` says it.
pub fn request_of(pod: &serde_json::Value) -> serde_json::Value {
    let object = Object::new("Pod", pod);
    let amounts = crate::request::request(&object, object.get("spec")).amounts;
    let shown = amounts.iter().filter(|(resource, n)| *n > 0 && **resource != muster_model::Resource::Pods);
    let entries = shown.map(|(resource, n)| match resource {
        muster_model::Resource::Cpu => ("cpu".to_owned(), format!("{n}m")),
        muster_model::Resource::Gpu => ("nvidia.com/gpu".to_owned(), (n / muster_model::GPU).to_string()),
        other => (other.to_string(), n.to_string()),
    });
    entries
        .map(|(name, text)| (name, serde_json::Value::String(text)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn gang(key: Key, uid: Name, queue: &str, created: muster_model::Time) -> Gang {
    Gang {
        key,
        uid,
        queue: queue_name(queue),
        priority: 0,
        preemptibility: Preemptibility::Preemptible,
        created,
        groups: Vec::new(),
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: Span::ZERO,
        staleness_grace: None,
        declared_end: None,
        volcano: None,
    }
}

/// An annotation, or a label of that name.
fn said<'a>(object: &Object<'a>, key: &str) -> Option<&'a str> {
    object.annotation(key).or_else(|| object.label(key)).filter(|text| !text.is_empty())
}

fn said_bool(object: &Object<'_>, key: &str) -> Option<bool> {
    let text = said(object, key)?;
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => {
            object.report(
                &format!("metadata.annotations[{key}]"),
                "must be \"true\" or \"false\"; it is ignored",
            );
            None
        }
    }
}

fn said_number(object: &Object<'_>, key: &str) -> Option<i64> {
    let text = said(object, key)?;
    let number = text.parse().ok();
    if number.is_none() {
        object.report(&format!("metadata.annotations[{key}]"), "must be a whole number; it is ignored");
    }
    number
}

fn said_span(object: &Object<'_>, key: &str) -> Option<Span> {
    let text = said(object, key)?;
    let span = text::duration(text);
    if span.is_none() {
        object.report(
            &format!("metadata.annotations[{key}]"),
            "must be a length of time such as 90s or 1h30m; it is ignored",
        );
    }
    span
}

/// What a pod says to Volcano.
pub(crate) fn task(object: &Object<'_>) -> Task {
    let spec = object.get("spec");
    let status = object.get("status");
    let own = spec.get("priority").int();
    let scheduled = status
        .get("conditions")
        .list()
        .find(|c| c.get("type").str() == Some("PodScheduled") && c.get("status").str() == Some("True"));
    let since = scheduled.and_then(|c| c.get("lastTransitionTime").time());
    let class = spec.get("priorityClassName").str().unwrap_or("");
    Task {
        role: said(object, ROLE).unwrap_or("").into(),
        priority: said_number(object, PRIORITY).or(own).unwrap_or(1),
        pod_priority: own.unwrap_or(0),
        index: said_number(object, INDEX),
        preemptable: said_bool(object, PREEMPTABLE).unwrap_or(true),
        never_preempts: spec.get("preemptionPolicy").str() == Some("Never"),
        revocable: said(object, ZONE) == Some("*"),
        cooldown_until: said_span(object, COOLDOWN).and_then(|span| Some(since? + span)),
        critical: object.namespace() == "kube-system"
            || class == "system-cluster-critical"
            || class == "system-node-critical",
        started: status.get("startTime").time(),
        devices: Vec::new(),
        fit: said(object, FIT).and_then(|word| match word {
            "MostAllocated" => Some(FitType::MostAllocated),
            "LeastAllocated" => Some(FitType::LeastAllocated),
            _ => {
                object.report(
                    &format!("metadata.annotations[{FIT}]"),
                    "must be MostAllocated or LeastAllocated; it is ignored",
                );
                None
            }
        }),
        fit_weights: fit_weights(object),
        images: images(spec),
    }
}

/// The images of a pod's containers, by the names that nodes report them by: with a tag.
fn images(spec: At<'_>) -> Vec<Name> {
    let containers = spec.get("initContainers").list().chain(spec.get("containers").list());
    let with_tag = |image: &str| {
        let last = image.rsplit('/').next().unwrap_or(image);
        if last.is_empty() || last.contains(':') { image.into() } else { format!("{image}:latest").into() }
    };
    containers.map(|container| with_tag(container.get("image").str().unwrap_or(""))).collect()
}

/// How much each resource counts when a node is chosen for a pod that says so itself.
fn fit_weights(object: &Object<'_>) -> Option<BTreeMap<Name, i64>> {
    let text = said(object, FIT_WEIGHTS)?;
    let weights: Option<BTreeMap<String, i64>> = serde_json::from_str(text).ok();
    if weights.is_none() {
        object.report(
            &format!("metadata.annotations[{FIT_WEIGHTS}]"),
            "must be JSON such as {\"cpu\": 2, \"nvidia.com/gpu\": 3}; it is ignored",
        );
    }
    Some(weights?.into_iter().map(|(name, weight)| (name.into(), weight.clamp(0, 1_000_000_000))).collect())
}

fn amounts(at: At<'_>) -> Amounts {
    let mut amounts = Amounts::new();
    for (name, value) in at.entries() {
        let resource = text::resource(name);
        if let Some(quantity) = value.quantity() {
            match text::amount(&resource, quantity, Rounding::Up) {
                Ok(amount) => amounts.add(resource, amount),
                Err(problem) => value.report(format!("{} {problem}; it counts as none", value.quoted())),
            }
        }
    }
    amounts
}

fn network(at: At<'_>) -> Option<NetworkTopology> {
    if !at.exists() {
        return None;
    }
    let mode = at.get("mode");
    let soft = match mode.str().unwrap_or("hard") {
        "soft" => true,
        "" | "hard" => false,
        _ => {
            mode.report("must be hard or soft; hard is assumed");
            false
        }
    };
    let allowed = at.get("highestTierAllowed");
    let named = at.get("highestTierName").name();
    if allowed.exists() && named.is_some() {
        allowed.report("stands beside highestTierName; write one of the two");
    }
    let highest = match (allowed.int(), named) {
        (Some(tier), _) => Tier::At(tier),
        (None, Some(name)) => Tier::Named(name),
        (None, None) => Tier::Top,
    };
    // A hard rule without a tier asks for nothing.
    (soft || highest != Tier::Top).then_some(NetworkTopology { soft, highest })
}

fn portion(object: &Object<'_>, key: &str) -> Option<Portion> {
    let text = said(object, key)?;
    let portion = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| (1..100).contains(p)).map(Portion::Percent),
        None => text.parse().ok().map(Portion::Number),
    };
    if portion.is_none() {
        object
            .report(&format!("metadata.annotations[{key}]"), "must be a number or 1% to 99%; it is ignored");
    }
    portion
}

fn role_sets(object: &Object<'_>, key: &str) -> Vec<Vec<Name>> {
    let sets = object.annotation(key).unwrap_or("").split(';');
    sets.map(roles).filter(|set| !set.is_empty()).collect()
}

fn roles(text: &str) -> Vec<Name> {
    text.split(',').map(str::trim).filter(|role| !role.is_empty()).map(Name::from).collect()
}

pub(crate) fn pod_group(object: &Object<'_>) -> GroupFacts {
    let spec = object.get("spec");
    let phase = object.get("status").get("phase");
    let min_member = spec.get("minMember").count().unwrap_or(0);
    let mut policies = Vec::new();
    let mut rules = Vec::new();
    for at in spec.get("subGroupPolicy").list() {
        policies.push(SubGroupPolicy {
            name: at.get("name").str().unwrap_or("").into(),
            size: at.get("subGroupSize").count().unwrap_or(1),
            min_groups: at.get("minSubGroups").count().unwrap_or(0),
            topology: network(at.get("networkTopology")),
        });
        let selector = at.get("labelSelector");
        let keys = at.get("matchLabelKeys").names();
        if keys.is_empty() {
            at.report(
                "has no matchLabelKeys, so it captures no pod; name the labels that tell its groups apart",
            );
        }
        rules.push((selector.exists().then(|| select::labels(selector)), keys));
    }
    let min_resources = spec.get("minResources");
    let facts = Facts {
        phase: match phase.str().unwrap_or("") {
            "" | "Pending" => Phase::Pending,
            word => Phase::ALL.into_iter().find(|p| p.name() == word).unwrap_or_else(|| {
                phase.report("must be Pending, Inqueue, Running, Unknown or Completed; Pending is assumed");
                Phase::Pending
            }),
        },
        min_member,
        roles: spec
            .get("minTaskMember")
            .entries()
            .filter_map(|(role, at)| Some((role.into(), at.count()?)))
            .collect(),
        min_resources: min_resources.exists().then(|| amounts(min_resources)),
        topology: network(spec.get("networkTopology")),
        policies,
        sub_groups: Vec::new(),
        leaves: Vec::new(),
        preemptable: said_bool(object, PREEMPTABLE),
        revocable: said(object, ZONE) == Some("*"),
        waiting: WAITING.iter().find_map(|key| said_span(object, key)),
        budget: Budget {
            min_available: portion(object, MIN_AVAILABLE),
            max_unavailable: portion(object, MAX_UNAVAILABLE),
        },
        allocated_domain: object.annotation(DOMAIN).map(Name::from),
        affinity: TaskTopology {
            together: role_sets(object, TOGETHER),
            apart: role_sets(object, APART),
            order: roles(object.annotation(ORDER).unwrap_or("")),
        },
    };
    GroupFacts {
        gang: gang(
            gang_key(object),
            object.uid(|| object.key().to_string()),
            spec.get("queue").word().unwrap_or(DEFAULT_QUEUE),
            object.created(),
        ),
        class: spec.get("priorityClassName").name(),
        facts,
        rules,
    }
}

impl GroupFacts {
    /// The sub-group that a pod is in: the policy, and what tells the group apart within it.
    fn sub_group(&self, labels: &Labels) -> Option<Place> {
        self.rules.iter().enumerate().find_map(|(i, (selector, keys))| {
            if selector.as_ref().is_some_and(|s| !s.matches(labels)) {
                return None;
            }
            let values: Option<Vec<Name>> =
                keys.iter().map(|key| labels.get(key).filter(|v| !v.is_empty()).cloned()).collect();
            values.filter(|v| !v.is_empty()).map(|values| (i, values))
        })
    }

    fn sub_name(&self, sub: Option<&Place>) -> Name {
        match sub {
            None => "".into(),
            Some((policy, values)) => {
                let name = self.facts.policies.get(*policy).map_or("", |p| &*p.name);
                let values: Vec<&str> = values.iter().map(|v| &**v).collect();
                format!("{name}-{}", values.join("-")).into()
            }
        }
    }

    /// The leaf group that a pod is in.
    pub(crate) fn leaf_of(&self, labels: &Labels, role: &str) -> Name {
        let sub = self.sub_group(labels);
        leaf_name(&self.sub_name(sub.as_ref()), role)
    }

    /// The gang, given its pods' labels and roles.
    pub(crate) fn resolve<'a>(
        &self,
        pods: impl Iterator<Item = (&'a Labels, &'a Name)>,
        classes: &BTreeMap<Name, PriorityClass>,
    ) -> Gang {
        let mut found: BTreeMap<(Name, Name), Option<Place>> = BTreeMap::new();
        for (labels, role) in pods {
            let sub = self.sub_group(labels);
            found.insert((self.sub_name(sub.as_ref()), role.clone()), sub);
        }
        let mut facts = self.facts.clone();
        let mut gang = self.gang.clone();
        gang.priority = priority(self.class.as_ref(), classes).unwrap_or(0);
        let sum: u64 = facts.roles.values().map(|n| u64::from(*n)).sum();
        let roles_count = u64::from(facts.min_member) >= sum;
        let alone = found.len() <= 1;
        if found.is_empty() {
            found.insert(("".into(), "".into()), None);
        }
        if !alone {
            gang.groups.push(Group {
                name: "".into(),
                parent: None,
                min: Min::Children(None),
                topology: None,
            });
        }
        for ((sub, role), place) in found {
            let at = match facts.sub_groups.iter().position(|s| s.id == sub) {
                Some(at) => at,
                None => {
                    let last = place.as_ref().and_then(|(_, values)| values.last()?.parse().ok());
                    facts.sub_groups.push(SubGroup {
                        id: sub.clone(),
                        policy: place.as_ref().map(|(policy, _)| u32::try_from(*policy).unwrap_or(u32::MAX)),
                        index: last.unwrap_or(0),
                    });
                    facts.sub_groups.len() - 1
                }
            };
            let min = match alone {
                true => facts.min_member,
                false if roles_count => facts.roles.get(&role).copied().unwrap_or(0),
                false => 0,
            };
            facts.leaves.push(Leaf {
                group: u32::try_from(gang.groups.len()).unwrap_or(u32::MAX),
                sub: u32::try_from(at).unwrap_or(u32::MAX),
                role: role.clone(),
            });
            gang.groups.push(Group {
                name: leaf_name(&sub, &role),
                parent: (!alone).then_some(0),
                min: Min::Pods(min),
                topology: None,
            });
        }
        gang.volcano = Some(Arc::new(facts));
        gang
    }
}

fn leaf_name(sub: &str, role: &str) -> Name {
    match (sub, role) {
        ("", "") => crate::gang::DEFAULT_GROUP.into(),
        ("", role) => role.into(),
        (sub, role) => format!("{sub}/{role}").into(),
    }
}

pub(crate) fn queue(object: &Object<'_>) -> Queue {
    let spec = object.get("spec");
    let state = object.get("status").get("state");
    let list =
        |at: At<'_>, rule: &str| at.get(&format!("{rule}DuringSchedulingIgnoredDuringExecution")).names();
    let affinity = spec.get("affinity");
    let node_groups = affinity.exists().then(|| {
        let (near, far) = (affinity.get("nodeGroupAffinity"), affinity.get("nodeGroupAntiAffinity"));
        NodeGroups {
            required: list(near, "required"),
            preferred: list(near, "preferred"),
            required_anti: list(far, "required"),
            preferred_anti: list(far, "preferred"),
        }
    });
    let policies = policies::read(object);
    let deserved = amounts(spec.get("deserved"));
    let mut capability = amounts(spec.get("capability"));
    for (resource, amount) in deserved.iter() {
        if let Some(most) = policies.times(amount) {
            let said = capability.get(resource);
            capability.set(resource.clone(), if said > 0 { said.min(most) } else { most });
        }
    }
    if policies.times(1).is_some() && deserved.iter().next().is_none() {
        object.report(
            "spec.deserved",
            "is absent, so a borrowing factor has nothing to multiply; write what the queue deserves",
        );
    }
    let facts = QueueFacts {
        weight: spec.get("weight").int().unwrap_or(0),
        // A queue that no controller has looked at yet is open.
        open: matches!(state.str().unwrap_or(""), "" | "Open"),
        reclaimable: spec.get("reclaimable").bool().unwrap_or(true),
        guarantee: amounts(spec.get("guarantee").get("resource")),
        deserved,
        capability,
        named: BTreeSet::new(),
        hierarchy: hierarchy(object),
        node_groups,
        group_limits: group_limits(object),
    };
    let mut shares: BTreeMap<muster_model::Resource, Share> = BTreeMap::new();
    for (resource, amount) in facts.deserved.iter() {
        shares.entry(resource.clone()).or_default().quota = muster_model::Bound::At(amount);
    }
    for (resource, amount) in facts.capability.iter() {
        shares.entry(resource.clone()).or_default().limit = muster_model::Bound::At(amount);
    }
    for (resource, amount) in facts.guarantee.iter() {
        shares.entry(resource.clone()).or_default().guarantee = amount;
    }
    let priority = spec.get("priority").int().unwrap_or(0);
    let mut queue = Queue {
        name: queue_name(object.name()),
        uid: object.uid(|| object.name().to_owned()),
        display: None,
        parent: spec.get("parent").word().map(queue_name),
        priority: i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX }),
        created: object.created(),
        shares,
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
        reclaim: muster_model::Reclaim::default(),
        usage: BTreeMap::new(),
        tree: muster_model::Dialect::Volcano,
        volcano: Some(Arc::new(facts)),
    };
    policies.apply(&mut queue);
    queue
}

/// The queues that are there even if nobody made them, by their names in the model.
pub(crate) fn implicit_queues() -> [Name; 2] {
    [DEFAULT_QUEUE, ROOT_QUEUE].map(queue_name)
}

/// Such a queue; `None`: somebody has to make it.
pub(crate) fn implicit_queue(name: &Name) -> Option<Queue> {
    let own = name.strip_prefix(PREFIX).filter(|own| [DEFAULT_QUEUE, ROOT_QUEUE].contains(own))?;
    let value = serde_json::json!({"metadata": {"name": own},
        "spec": {"weight": 1, "reclaimable": own == DEFAULT_QUEUE}});
    Some(queue(&Object::new("Queue", &value)))
}

/// What a queue may have of groups of nodes: `{"group": {"cpu": "4"}}`.
fn group_limits(object: &Object<'_>) -> BTreeMap<Name, Amounts> {
    let Some(text) = object.annotation(GROUP_LIMITS) else { return BTreeMap::new() };
    let field = format!("metadata.annotations[{GROUP_LIMITS}]");
    let Ok(value @ serde_json::Value::Object(_)) = serde_json::from_str::<serde_json::Value>(text) else {
        object.report(&field, "must be an object in JSON such as {\"group\":{\"cpu\":\"4\"}}; it is ignored");
        return BTreeMap::new();
    };
    let inner = Object::new("", &value);
    let limits = inner.root().entries().map(|(group, at)| (group.into(), amounts(at))).collect();
    for problem in inner.into_diagnostics() {
        object.report(&format!("{field}.{}", problem.field), problem.message);
    }
    limits
}

/// The path and the weights of a queue, from its annotations.
fn hierarchy(object: &Object<'_>) -> Vec<(Name, i64)> {
    let Some(path) = object.annotation(HIERARCHY) else { return Vec::new() };
    let weights: Vec<&str> = object.annotation(HIERARCHY_WEIGHTS).unwrap_or("").split('/').collect();
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() != weights.len() {
        object.report(
            &format!("metadata.annotations[{HIERARCHY_WEIGHTS}]"),
            format!("must have one weight for each of the {} parts of {HIERARCHY}; 1 is used", parts.len()),
        );
    }
    let weight = |i: usize| {
        let number = weights.get(i).and_then(|w| w.parse::<f64>().ok()).filter(|w| *w >= 1.0);
        number.map_or(1, |w| w as i64)
    };
    // Deeper paths mean nothing, and readers of the tree may recurse.
    parts.into_iter().take(MOST_LEVELS).enumerate().map(|(i, part)| (part.into(), weight(i))).collect()
}

/// One hypernode, its members still rules.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HyperNodeFacts {
    tier: i64,
    tier_name: Option<Name>,
    members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq)]
struct Member {
    is_node: bool,
    select: Select,
}

#[derive(Clone, Debug)]
enum Select {
    Exact(Name),
    Pattern(Name, regex::Regex),
    Labels(LabelSelector),
    Nothing,
}

impl PartialEq for Select {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => a == b,
            (Self::Pattern(a, _), Self::Pattern(b, _)) => a == b,
            (Self::Labels(a), Self::Labels(b)) => a == b,
            (Self::Nothing, Self::Nothing) => true,
            _ => false,
        }
    }
}

pub(crate) fn hyper_node(object: &Object<'_>) -> HyperNodeFacts {
    let spec = object.get("spec");
    let members = spec.get("members").list().map(|at| {
        let selector = at.get("selector");
        let pattern = selector.get("regexMatch").get("pattern");
        let select = if let Some(name) = selector.get("exactMatch").get("name").name() {
            Select::Exact(name)
        } else if let Some(text) = pattern.word() {
            match regex::RegexBuilder::new(text).size_limit(1 << 20).build() {
                Ok(regex) => Select::Pattern(text.into(), regex),
                Err(_) => {
                    pattern.report("is no regular expression; it matches nothing");
                    Select::Nothing
                }
            }
        } else if selector.get("labelMatch").exists() {
            Select::Labels(select::labels(selector.get("labelMatch")))
        } else {
            at.report("selects nothing; write exactMatch, regexMatch or labelMatch");
            Select::Nothing
        };
        Member { is_node: at.get("type").str() != Some("HyperNode"), select }
    });
    HyperNodeFacts {
        tier: spec.get("tier").int().unwrap_or(0),
        tier_name: spec.get("tierName").name(),
        members: members.collect(),
    }
}

impl Select {
    fn takes(&self, name: &str, labels: Option<&Labels>) -> bool {
        match self {
            Self::Exact(exact) => &**exact == name,
            Self::Pattern(_, regex) => regex.is_match(name),
            Self::Labels(selector) => labels.is_some_and(|labels| selector.matches(labels)),
            Self::Nothing => false,
        }
    }
}

/// All hypernodes as one topology; `None` if there are none. A hypernode that two others claim belongs to the first by name; one in a circle
/// belongs to nobody.
pub(crate) fn hypernodes<'a>(
    all: &BTreeMap<Name, HyperNodeFacts>,
    nodes: impl Iterator<Item = &'a Node>,
) -> Option<Topology> {
    if all.is_empty() {
        return None;
    }
    let names: Vec<&Name> = all.keys().collect();
    let mut parents: Vec<Option<usize>> = vec![None; names.len()];
    let mut own: Vec<BTreeSet<Name>> = Vec::with_capacity(names.len());
    let by_name: BTreeMap<&Name, &Node> = nodes.map(|node| (&node.name, node)).collect();
    let places: BTreeMap<&Name, usize> = names.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    for (i, facts) in all.values().enumerate() {
        let mut mine = BTreeSet::new();
        for member in &facts.members {
            match (&member.select, member.is_node) {
                (Select::Exact(name), true) => mine.extend(by_name.get(name).map(|node| node.name.clone())),
                (select, true) => mine.extend(
                    by_name
                        .values()
                        .filter(|node| select.takes(&node.name, Some(&node.labels)))
                        .map(|node| node.name.clone()),
                ),
                (Select::Exact(name), false) => {
                    if let Some(child) = places.get(name).filter(|child| **child != i) {
                        parents[*child].get_or_insert(i);
                    }
                }
                (select, false) => {
                    for (child, name) in names.iter().enumerate() {
                        if child != i && select.takes(name, None) {
                            parents[child].get_or_insert(i);
                        }
                    }
                }
            }
        }
        own.push(mine);
    }
    let depth = |mut at: usize| {
        let mut depth = 0;
        while let Some(parent) = parents[at] {
            depth += 1;
            if depth > MOST_LEVELS {
                return None;
            }
            at = parent;
        }
        Some(depth)
    };
    let mut order: Vec<(usize, usize)> = (0..names.len()).map(|i| (depth(i).unwrap_or(0), i)).collect();
    let sound: Vec<bool> = (0..names.len()).map(|i| depth(i).is_some()).collect();
    order.sort_unstable();
    let place: BTreeMap<usize, usize> = order.iter().enumerate().map(|(at, (_, i))| (*i, at)).collect();
    // Children before parents, so that a parent has everything below it.
    for (_, i) in order.iter().rev() {
        if let Some(parent) = parents[*i].filter(|_| sound[*i]) {
            let below = own[*i].clone();
            own[parent].extend(below);
        }
    }
    let domains = order
        .iter()
        .filter_map(|(_, i)| {
            let facts = all.get(names[*i])?;
            let parent = parents[*i].filter(|_| sound[*i]).and_then(|p| place.get(&p)).copied();
            Some(Domain {
                name: names[*i].clone(),
                tier: facts.tier,
                tier_name: facts.tier_name.clone(),
                parent: parent.and_then(|p| u32::try_from(p).ok()),
                nodes: own[*i].iter().cloned().collect(),
            })
        })
        .collect();
    Some(Topology { name: HYPERNODES.into(), levels: Vec::new(), domains })
}

pub(crate) fn disruption_budget(object: &Object<'_>) -> DisruptionBudget {
    DisruptionBudget {
        key: object.key(),
        selector: select::labels(object.get("spec").get("selector")),
        allowed: object.get("status").get("disruptionsAllowed").int().unwrap_or(0),
    }
}

pub(crate) fn namespace_quota(object: &Object<'_>) -> NamespaceQuota {
    let read = |at: At<'_>| {
        at.entries().filter_map(|(name, at)| Some((name.into(), at.quantity()?.nano() / 1_000_000))).collect()
    };
    let status = object.get("status");
    let hard = status.get("hard");
    let hard = if hard.exists() { hard } else { object.get("spec").get("hard") };
    NamespaceQuota { key: object.key(), hard: read(hard), used: read(status.get("used")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Settings, Translator};
    use muster_model::Change;
    use serde_json::{Value, json};

    fn settings() -> Settings {
        let names: Vec<Name> = vec!["kai-scheduler".into(), "volcano".into()];
        let volcano = vec!["volcano".into()];
        Settings { scheduler_names: names, volcano, implicit_default_queue: true, ..Settings::default() }
    }

    fn group(api: &str, name: &str) -> Value {
        json!({"apiVersion": api, "kind": "PodGroup", "metadata": {"namespace": "ns", "name": name},
            "spec": {"minMember": 2, "queue": "q"}})
    }

    fn pod(name: &str, scheduler: &str, annotations: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}"), "annotations": annotations},
            "spec": {"schedulerName": scheduler,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}})
    }

    #[test]
    fn groups_of_one_name_in_two_systems_are_two_gangs() {
        let objects = [
            group("scheduling.run.ai/v2alpha2", "g"),
            group("scheduling.volcano.sh/v1beta1", "g"),
            pod("a", "kai-scheduler", json!({"pod-group-name": "g"})),
            pod("b", "volcano", json!({"scheduling.k8s.io/group-name": "g"})),
        ];
        let (cluster, _) = crate::cluster(&objects, &settings());
        let gangs: Vec<String> = cluster.gangs.iter().map(|g| format!("{} in {}", g.key, g.queue)).collect();
        assert_eq!(gangs, ["ns/g in q", "ns/volcano/g in volcano/q"]);
        let of: Vec<String> =
            cluster.pods.iter().map(|p| p.gang.as_ref().map_or_else(String::new, Key::to_string)).collect();
        assert_eq!(of, ["ns/g", "ns/volcano/g"]);
    }

    #[test]
    fn a_pod_that_names_no_group_is_in_the_one_that_the_controller_makes() {
        let queue = json!({"scheduling.volcano.sh/queue-name": "q", "volcano.sh/preemptable": "false"});
        let lone = pod("p", "volcano", queue);
        let (cluster, _) = crate::cluster(std::slice::from_ref(&lone), &settings());
        let gang = &cluster.gangs[0];
        let facts = gang.volcano.as_ref().unwrap();
        assert_eq!((gang.key.to_string(), &*gang.queue), ("ns/volcano/podgroup-u-p".into(), "volcano/q"));
        assert_eq!((facts.min_member, facts.preemptable), (1, Some(false)));
        let cpu = muster_model::Resource::Cpu;
        assert_eq!(facts.min_resources.as_ref().map(|amounts| amounts.get(&cpu)), Some(2000));
        // Where somebody makes groups, the pod waits for its own.
        let grouped = Settings { grouped: vec!["volcano".into()], ..settings() };
        let (cluster, _) = crate::cluster(&[lone], &grouped);
        assert!(cluster.gangs.is_empty() && cluster.pods[0].gang.is_none());
    }

    #[test]
    fn the_default_queue_is_there_while_anything_is() {
        let mut translator = Translator::new(settings());
        let queues = |translator: &mut Translator| -> Vec<String> {
            let name = |change: &Change| match change {
                Change::PutQueue(queue) => Some(format!("+{}", queue.name)),
                Change::DropQueue(name) => Some(format!("-{name}")),
                _ => None,
            };
            translator.drain().0.iter().filter_map(name).collect()
        };
        assert_eq!(queues(&mut translator), ["+default-queue"]);
        translator.put_as(Kind::VolcanoPodGroup, &group("", "g"));
        assert_eq!(queues(&mut translator), ["+volcano/default", "+volcano/root"]);
        // One that somebody made counts, and does not go with the last group.
        let made = json!({"metadata": {"name": "default"}, "spec": {"weight": 3}});
        translator.put_as(Kind::VolcanoQueue, &made);
        assert_eq!(queues(&mut translator), ["+volcano/default"]);
        translator.delete_as(Kind::VolcanoPodGroup, "ns", "g");
        assert_eq!(queues(&mut translator), ["-volcano/root"]);
    }

    #[test]
    fn a_request_is_said_as_quantities() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources":
            {"requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}}}]}});
        assert_eq!(request_of(&pod), json!({"cpu": "1500m", "memory": "1073741824", "nvidia.com/gpu": "2"}));
    }
}
