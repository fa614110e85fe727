//! `scheduling.run.ai/v2alpha2` PodGroup, PriorityClass and Topology: what makes a gang.
//!
//! A group tree that cannot be trusted (a parent that is not there, a circle, a name twice) leaves the gang out: its running pods keep
//! their room, its waiting pods wait, and a diagnostic says why.

use crate::Settings;
use crate::read::{At, Object};
use muster_model::{
    Gang, Grace, Group, Key, Level, Min, Name, Preemptibility, Span, Time, Topology, TopologyRule,
};
use std::collections::{BTreeMap, BTreeSet};

/// The only leaf of a gang without inner groups.
pub(crate) const DEFAULT_GROUP: &str = "default";
/// Deeper trees mean nothing, and readers of the tree may recurse.
const MOST_LEVELS: u32 = 32;

const LAST_START: &str = "kai.scheduler/last-start-timestamp";
const LAST_EVICTION: &str = "kai.scheduler/last-eviction-timestamp";
const STALE_SINCE: &str = "kai.scheduler/stale-podgroup-timestamp";
const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
/// How many pods a group needs in all to be done.
const MEMBERS: &str = "muster.dev/members";
const STALENESS_GRACE: &str = "kai.scheduler/staleness-grace-period";
const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
const TOPOLOGY: &str = "kai.scheduler/topology";
const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";

/// A gang whose priority class and topology levels are still names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GangFacts {
    gang: Gang,
    class: Option<Name>,
    preemptibility: Option<Preemptibility>,
    /// The groups that pods can be in.
    leaves: BTreeSet<Name>,
    /// How many pods it needs in all to be done, where its owner says so.
    members: Option<u32>,
}

impl GangFacts {
    /// There is one group only that a pod can be in.
    pub(crate) fn only_leaf(&self) -> bool {
        self.leaves.len() == 1
    }

    pub(crate) fn has_leaf(&self, name: &str) -> bool {
        self.leaves.contains(name)
    }

    /// A gang without inner groups; what pods say about groups does not matter then.
    pub(crate) fn is_flat(&self) -> bool {
        self.gang.groups.len() == 1
    }

    /// The gang needs fewer pods when some of them are done.
    pub(crate) fn ends(&self) -> bool {
        self.members.is_some() && self.is_flat()
    }

    /// Lowers the minimum of the gang to what is left when so many of its pods have succeeded.
    pub(crate) fn lower(&self, gang: &mut Gang, n_succeeded: u32) {
        if let (Some(members), [Group { min: Min::Pods(min), .. }]) =
            (self.members, gang.groups.as_mut_slice())
        {
            *min = (*min).min(members.saturating_sub(n_succeeded).max(1));
        }
    }

    pub(crate) fn has_topology(&self) -> bool {
        self.gang.groups.iter().any(|group| group.topology.is_some())
    }

    /// The gang, given the priority classes and topologies there are.
    pub(crate) fn resolve(
        &self,
        classes: &BTreeMap<Name, PriorityClass>,
        topologies: &BTreeMap<Name, Topology>,
        settings: &Settings,
    ) -> Gang {
        let mut gang = self.gang.clone();
        gang.priority = priority(self.class.as_ref(), classes).unwrap_or(settings.default_priority);
        gang.preemptibility =
            self.preemptibility.unwrap_or(if gang.priority < settings.non_preemptible_from {
                Preemptibility::Preemptible
            } else {
                Preemptibility::NonPreemptible
            });
        for rule in gang.groups.iter_mut().filter_map(|group| group.topology.as_mut()) {
            let levels = topologies.get(&rule.topology).map_or(&[][..], |topology| &topology.levels);
            let resolve = |level: &mut Name| {
                if let Some(found) = levels.iter().find(|l| l.alias.as_ref() == Some(level)) {
                    *level = found.label.clone();
                }
            };
            rule.required.iter_mut().for_each(resolve);
            rule.preferred.iter_mut().for_each(resolve);
        }
        gang
    }
}

/// What a PodGroup becomes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodGroup {
    Gang(Box<GangFacts>),
    /// Its tree is broken; it was reported.
    Broken,
    /// Not to be tried again in this pool.
    GivenUp,
    /// Another shard's.
    Elsewhere,
}

impl PodGroup {
    pub(crate) fn is_here(&self) -> bool {
        !matches!(self, Self::Elsewhere)
    }
}

pub(crate) fn pod_group(object: &Object<'_>, settings: &Settings) -> PodGroup {
    if !settings.in_pool(object) {
        return PodGroup::Elsewhere;
    }
    if is_given_up(object, settings) {
        return PodGroup::GivenUp;
    }
    let spec = object.get("spec");
    let Some(groups) = groups(object, spec) else { return PodGroup::Broken };
    let preemptibility = spec.get("preemptibility");
    let annotated = |key: &str| object.get("metadata").get("annotations").get(key).time();
    PodGroup::Gang(Box::new(GangFacts {
        leaves: groups
            .iter()
            .filter(|group| matches!(group.min, Min::Pods(_)))
            .map(|leaf| leaf.name.clone())
            .collect(),
        members: object.annotation(MEMBERS).and_then(|text| text.parse().ok()),
        class: spec.get("priorityClassName").name(),
        preemptibility: preemptibility.word().and_then(|word| {
            preemptibility_of(word).or_else(|| {
                preemptibility.report("must be preemptible or non-preemptible; the priority decides");
                None
            })
        }),
        gang: Gang {
            key: object.key(),
            uid: object.uid(|| object.key().to_string()),
            queue: spec.get("queue").str().unwrap_or("").into(),
            priority: 0,
            preemptibility: Preemptibility::Preemptible,
            created: object.created(),
            groups,
            last_start: annotated(LAST_START),
            last_eviction: annotated(LAST_EVICTION),
            stale_since: annotated(STALE_SINCE),
            preemption_delay: delay(spec.get("preemptionDelay").duration()),
            staleness_grace: spec.get("stalenessGracePeriod").duration().map(grace),
            declared_end: None,
            volcano: None,
        },
    }))
}

/// The gang of a pod that belongs to none: as the pod grouper would make it.
pub(crate) fn gang_of_one(
    object: &Object<'_>,
    key: Key,
    uid: Name,
    created: Time,
    settings: &Settings,
) -> GangFacts {
    let annotation = |key: &str| object.get("metadata").get("annotations").get(key);
    let label = |key: &str| object.label(key).filter(|value| !value.is_empty());
    let queue = label(&settings.queue_label).map(Name::from).or_else(|| {
        let project = label("project")?;
        let pool = label(settings.pool_label());
        Some(pool.map_or_else(|| project.into(), |pool| format!("{project}-{pool}").into()))
    });
    let spec = object.get("spec");
    let class = label("priorityClassName").map(Name::from).or_else(|| spec.get("priorityClassName").name());
    let topology = annotation(TOPOLOGY).name().map(|topology| TopologyRule {
        topology,
        required: annotation(TOPOLOGY_REQUIRED).name(),
        preferred: annotation(TOPOLOGY_PREFERRED).name(),
    });
    GangFacts {
        leaves: [DEFAULT_GROUP.into()].into(),
        members: None,
        class,
        preemptibility: label(PREEMPTIBILITY).and_then(preemptibility_of),
        gang: Gang {
            key,
            uid,
            queue: queue.unwrap_or_else(|| settings.default_queue.clone()),
            priority: 0,
            preemptibility: Preemptibility::Preemptible,
            created,
            groups: vec![Group {
                name: DEFAULT_GROUP.into(),
                parent: None,
                min: Min::Pods(1),
                topology: topology.filter(constrains),
            }],
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: delay(annotation(PREEMPTION_DELAY).duration()),
            staleness_grace: annotation(STALENESS_GRACE).duration().map(grace),
            declared_end: None,
            volcano: None,
        },
    }
}

fn delay(span: Option<Span>) -> Span {
    span.unwrap_or_default().max(Span::ZERO)
}

fn grace(span: Span) -> Grace {
    if span < Span::ZERO { Grace::Forever } else { Grace::For(span) }
}

fn preemptibility_of(word: &str) -> Option<Preemptibility> {
    match word {
        "preemptible" => Some(Preemptibility::Preemptible),
        "non-preemptible" => Some(Preemptibility::NonPreemptible),
        _ => None,
    }
}

/// A group that wants one try per pool only, and had it in this one.
fn is_given_up(object: &Object<'_>, settings: &Settings) -> bool {
    if object.get("spec").get("schedulingBackoff").int() != Some(1) {
        return false;
    }
    let pool = settings.pool.value.as_deref().unwrap_or("default");
    let last = object.get("status").get("schedulingConditions").list().last();
    last.is_some_and(|condition| condition.get("nodePool").str() == Some(pool))
}

/// The tree, parents first; `None` if it is broken.
fn groups(object: &Object<'_>, spec: At<'_>) -> Option<Vec<Group>> {
    let given: Vec<Subgroup<'_>> = spec.get("subGroups").list().map(subgroup).collect();
    let min_members = spec.get("minMember");
    let min_children = spec.get("minSubGroup");
    if min_members.exists() && min_children.exists() {
        object.report("spec.minSubGroup", "stands beside minMember; write one of the two");
    }
    let topology = topology_rule(spec.get("topologyConstraint"));
    if given.is_empty() {
        if min_children.exists() {
            min_children.report("needs subGroups; it is ignored");
        }
        let min = Min::Pods(min_members.count().unwrap_or(1));
        return Some(vec![Group { name: DEFAULT_GROUP.into(), parent: None, min, topology }]);
    }

    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    let mut sound = true;
    for (i, group) in given.iter().enumerate() {
        if group.name.is_empty() {
            group.at.report("has no name; the PodGroup is left out until it has one");
            sound = false;
        } else if by_name.insert(group.name, i).is_some() {
            group.at.report(
                "has a name that another sub-group has; the PodGroup is left out until names are unique",
            );
            sound = false;
        }
    }
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); given.len()];
    let mut roots = Vec::new();
    for (i, group) in given.iter().enumerate() {
        match group.parent {
            None => roots.push(i),
            Some(parent) => match by_name.get(parent).and_then(|p| children.get_mut(*p)) {
                Some(siblings) => siblings.push(i),
                None => {
                    group.at.report("names a parent that is not there; the PodGroup is left out until it is");
                    sound = false;
                }
            },
        }
    }
    if !sound {
        return None;
    }

    let root_min = Min::Children(min_children.count());
    if let Min::Children(Some(min)) = root_min
        && min as usize > roots.len()
    {
        min_children.report(format!("{min} of {} sub-groups can never be; write at most that", roots.len()));
    }
    let mut tree = vec![Group { name: "".into(), parent: None, min: root_min, topology }];
    // Breadth first: parents come before children, and what is never reached hangs in a circle.
    let mut level: Vec<(usize, u32)> = roots.into_iter().map(|i| (i, 0)).collect();
    for _ in 0..MOST_LEVELS {
        let mut next = Vec::new();
        for (i, parent) in level {
            let (Some(group), Some(below)) = (given.get(i), children.get(i)) else { continue };
            let index = u32::try_from(tree.len()).unwrap_or(u32::MAX);
            next.extend(below.iter().map(|child| (*child, index)));
            tree.push(Group {
                name: group.name.into(),
                parent: Some(parent),
                min: group.min(below.len()),
                topology: topology_rule(group.at.get("topologyConstraint")),
            });
        }
        level = next;
    }
    if tree.len() <= given.len() {
        object.report(
            "spec.subGroups",
            format!("some hang in a circle of parents or deeper than {MOST_LEVELS} levels; the PodGroup is left out until they hang from a root"),
        );
        return None;
    }
    Some(tree)
}

struct Subgroup<'a> {
    at: At<'a>,
    name: &'a str,
    parent: Option<&'a str>,
}

fn subgroup(at: At<'_>) -> Subgroup<'_> {
    Subgroup { at, name: at.get("name").str().unwrap_or(""), parent: at.get("parent").word() }
}

impl Subgroup<'_> {
    fn min(&self, n_children: usize) -> Min {
        let members = self.at.get("minMember");
        let of_children = self.at.get("minSubGroup");
        if n_children == 0 {
            if of_children.exists() {
                of_children.report("is for groups with sub-groups; it is ignored, write minMember");
            }
            if !members.exists() {
                self.at.report("has no minMember and counts as 0, so nothing of it is needed; write how many pods it needs");
            }
            Min::Pods(members.count().unwrap_or(0))
        } else {
            if members.exists() {
                members.report("is for groups without sub-groups; it is ignored, write minSubGroup");
            }
            let min = of_children.count();
            if min.is_some_and(|min| min as usize > n_children) {
                of_children.report(format!("is more than its {n_children} sub-groups, which can never be"));
            }
            Min::Children(min)
        }
    }
}

fn topology_rule(at: At<'_>) -> Option<TopologyRule> {
    let rule = TopologyRule {
        topology: at.get("topology").str().unwrap_or("").into(),
        required: at.get("requiredTopologyLevel").name(),
        preferred: at.get("preferredTopologyLevel").name(),
    };
    (at.exists() && constrains(&rule)).then_some(rule)
}

/// A rule that names neither a topology nor a level asks for nothing.
fn constrains(rule: &TopologyRule) -> bool {
    rule.required.is_some() || rule.preferred.is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriorityClass {
    value: i32,
    global_default: bool,
}

pub(crate) fn priority_class(object: &Object<'_>) -> PriorityClass {
    let value = object.get("value").int().unwrap_or(0);
    PriorityClass {
        value: i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX }),
        global_default: object.get("globalDefault").bool().unwrap_or(false),
    }
}

pub(crate) fn priority(class: Option<&Name>, classes: &BTreeMap<Name, PriorityClass>) -> Option<i32> {
    if let Some(class) = class.and_then(|name| classes.get(name)) {
        return Some(class.value);
    }
    // Where several claim to be the default, Kubernetes takes the lowest.
    classes.values().filter(|class| class.global_default).map(|class| class.value).min()
}

pub(crate) fn topology(object: &Object<'_>) -> Topology {
    let levels = object
        .get("spec")
        .get("levels")
        .list()
        .filter_map(|level| {
            let label = level.get("nodeLabel").name();
            if label.is_none() {
                level.report("names no nodeLabel; the level is ignored");
            }
            Some(Level { label: label?, alias: level.get("alias").name() })
        })
        .collect();
    Topology { name: object.name().into(), levels, domains: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(spec: Value) -> (PodGroup, Vec<String>) {
        let value = json!({"metadata": {"name": "g", "namespace": "n"}, "spec": spec});
        let object = Object::new("PodGroup", &value);
        let group = pod_group(&object, &Settings::default());
        (group, object.into_diagnostics().iter().map(ToString::to_string).collect())
    }

    /// The tree as text: `name<parent>:pods` or `name<parent>(children)`.
    fn drawn(group: &PodGroup) -> String {
        let PodGroup::Gang(facts) = group else { return format!("{group:?}") };
        let draw = |g: &Group| {
            let min = match g.min {
                Min::Pods(n) => format!(":{n}"),
                Min::Children(None) => "(all)".to_owned(),
                Min::Children(Some(n)) => format!("({n})"),
                Min::Whole { pods } => format!("(all, {pods} pods)"),
            };
            format!("{}<{}>{min}", g.name, g.parent.map(|p| p.to_string()).unwrap_or_default())
        };
        facts.gang.groups.iter().map(draw).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(spec: Value, tree: &str, n_diagnostics: usize) {
        let (group, found) = read(spec);
        assert_eq!(drawn(&group), tree);
        assert_eq!(found.len(), n_diagnostics, "{found:?}");
    }

    #[test]
    fn group_trees() {
        check(json!({}), "default<>:1", 0);
        check(json!({"minMember": 0}), "default<>:0", 0);
        check(json!({"minMember": 4}), "default<>:4", 0);
        check(json!({"minMember": -4}), "default<>:1", 1);
        check(json!({"minMember": 10_u64.pow(18)}), "default<>:4294967295", 1);
        check(json!({"minMember": "4"}), "default<>:1", 1);
        let two = json!([{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]);
        check(json!({"subGroups": two}), "<>(all) a<0>:1 b<0>:2", 0);
        check(json!({"subGroups": two, "minMember": 3}), "<>(all) a<0>:1 b<0>:2", 0);
        check(json!({"subGroups": two, "minSubGroup": 1}), "<>(1) a<0>:1 b<0>:2", 0);
        check(json!({"subGroups": two, "minSubGroup": 3}), "<>(3) a<0>:1 b<0>:2", 1);
        check(json!({"subGroups": two, "minSubGroup": 1, "minMember": 1}), "<>(1) a<0>:1 b<0>:2", 1);
        check(
            json!({"subGroups": [{"name": "leaf", "minMember": 1, "parent": "top"}, {"name": "top", "minSubGroup": 1}]}),
            "<>(all) top<0>(1) leaf<1>:1",
            0,
        );
    }

    #[test]
    fn broken_trees_are_left_out() {
        check(
            json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]}),
            "Broken",
            1,
        );
        check(json!({"subGroups": [{"name": "a", "minMember": 1, "parent": "zz"}]}), "Broken", 1);
        check(
            json!({"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]}),
            "Broken",
            1,
        );
        check(json!({"subGroups": [{"name": "a", "parent": "a"}]}), "Broken", 1);
        check(json!({"subGroups": [{"minMember": 1}]}), "Broken", 1);
        let chain: Vec<Value> = (0..100_000)
            .map(|i| json!({"name": format!("g{i}"), "parent": (i > 0).then(|| format!("g{}", i - 1))}))
            .collect();
        let (group, found) = read(json!({"subGroups": chain}));
        assert_eq!(group, PodGroup::Broken);
        assert!(found.len() <= 20);
    }

    #[test]
    fn odd_minimums_are_reported_and_safe() {
        check(json!({"subGroups": [{"name": "a"}]}), "<>(all) a<0>:0", 1);
        check(json!({"subGroups": [{"name": "a", "minSubGroup": 1, "minMember": 2}]}), "<>(all) a<0>:2", 1);
        check(
            json!({"subGroups": [{"name": "p", "minMember": 2}, {"name": "a", "minMember": 1, "parent": "p"}]}),
            "<>(all) p<0>(all) a<1>:1",
            1,
        );
        check(json!({"minSubGroup": 1}), "default<>:1", 1);
    }

    #[track_caller]
    fn check_gang(spec: Value, classes: &[(&str, i32, bool)], priority: i32, preemptible: bool) {
        let (PodGroup::Gang(facts), _) = read(spec) else { panic!("left out") };
        let classes = classes
            .iter()
            .map(|(n, value, global_default)| {
                ((*n).into(), PriorityClass { value: *value, global_default: *global_default })
            })
            .collect();
        let gang = facts.resolve(&classes, &BTreeMap::new(), &Settings::default());
        assert_eq!(gang.priority, priority);
        assert_eq!(gang.preemptibility == Preemptibility::Preemptible, preemptible);
    }

    #[test]
    fn priority_and_preemptibility() {
        let classes = [("build", 100, false), ("train", 50, false)];
        check_gang(json!({"priorityClassName": "build"}), &classes, 100, false);
        check_gang(json!({"priorityClassName": "train"}), &classes, 50, true);
        check_gang(json!({"priorityClassName": "gone"}), &classes, 50, true);
        check_gang(json!({"priorityClassName": "gone"}), &[("d", 200, true), ("e", 150, true)], 150, false);
        check_gang(
            json!({"priorityClassName": "build", "preemptibility": "preemptible"}),
            &classes,
            100,
            true,
        );
        check_gang(
            json!({"priorityClassName": "train", "preemptibility": "non-preemptible"}),
            &classes,
            50,
            false,
        );
        check_gang(json!({"priorityClassName": "train", "preemptibility": "maybe"}), &classes, 50, true);
    }

    #[test]
    fn topology_aliases_become_labels() {
        let (PodGroup::Gang(facts), _) = read(json!({"topologyConstraint": {
            "topology": "t", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "kubernetes.io/hostname",
        }})) else {
            panic!("left out")
        };
        let levels = vec![Level { label: "x.y/rack".into(), alias: Some("rack".into()) }];
        let topologies = [("t".into(), Topology { name: "t".into(), levels, domains: Vec::new() })].into();
        let rule = facts.resolve(&BTreeMap::new(), &topologies, &Settings::default()).groups[0]
            .topology
            .clone()
            .unwrap();
        assert_eq!(rule.required.as_deref(), Some("x.y/rack"));
        assert_eq!(rule.preferred.as_deref(), Some("kubernetes.io/hostname"));
    }

    #[test]
    fn delays_and_graces() {
        let gang = |spec: Value| match read(spec).0 {
            PodGroup::Gang(facts) => facts.gang,
            other => panic!("{other:?}"),
        };
        assert_eq!(gang(json!({"stalenessGracePeriod": "-1s"})).staleness_grace, Some(Grace::Forever));
        assert_eq!(
            gang(json!({"stalenessGracePeriod": "5s"})).staleness_grace,
            Some(Grace::For(Span::seconds(5)))
        );
        assert_eq!(gang(json!({})).staleness_grace, None);
        assert_eq!(gang(json!({"preemptionDelay": "1m"})).preemption_delay, Span::seconds(60));
        assert_eq!(gang(json!({"preemptionDelay": "-1m"})).preemption_delay, Span::ZERO);
    }

    #[test]
    fn pools_and_backoff() {
        let read = |value: Value, pool: Option<&str>| {
            let mut settings = Settings::default();
            settings.pool.value = pool.map(Name::from);
            let object = Object::new("PodGroup", &value);
            pod_group(&object, &settings)
        };
        let labelled = json!({"metadata": {"name": "g", "labels": {"kai.scheduler/node-pool": "a"}}});
        assert!(matches!(read(labelled.clone(), Some("a")), PodGroup::Gang(_)));
        assert_eq!(read(labelled.clone(), Some("b")), PodGroup::Elsewhere);
        assert_eq!(read(labelled, None), PodGroup::Elsewhere);
        let tried = |backoff: i64, pool: &str| {
            json!({"metadata": {"name": "g"}, "spec": {"schedulingBackoff": backoff},
                "status": {"schedulingConditions": [{"nodePool": pool}]}})
        };
        assert_eq!(read(tried(1, "default"), None), PodGroup::GivenUp);
        assert_eq!(read(tried(1, "default"), Some("other")), PodGroup::Elsewhere);
        assert!(matches!(read(tried(1, "other"), None), PodGroup::Gang(_)));
        assert!(matches!(read(tried(-1, "default"), None), PodGroup::Gang(_)));
    }
}
