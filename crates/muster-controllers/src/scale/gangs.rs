//! One request for capacity per gang that waits.
//!
//! In: a group, its pods, the requests that are there for it. Out: requests to delete, at most one to make, which pods are to say
//! that they consume it, when to look again.
//! Must stay true: a gang has at most one request, for what is missing of its minimum; none once it is placed, and none while it
//! waits for something that nodes do not bring. The name of a request follows from what it asks for, so that making it twice makes
//! it once. Autoscalers look past every pod that says it consumes a request, whatever became of that: so pods say it only while an
//! autoscaler works on the request, and take it back with it. Gangs whose pods consume somebody else's request are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::Key;
use muster_runtime::clock::{later, until};
use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::object::{Object, controller_ref, is_true};
use serde_json::{Map, Value, json};

use super::shortfall::Shortfall;
use super::{Options, ProvisioningRequest, room_would_help, unschedulable, waits};
use crate::accounts::SUBGROUP;
use crate::accounts::plan::{GpuMemory, tally};
use crate::podgroups::plan::Gang;
use crate::request;

/// How many kinds of pods one request may have.
const MOST_POD_SETS: usize = 32;
const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// How long a request stays though it is not clear what the gang lacks: a pod is made again, others are just being bound.
const GAP: Duration = Duration::from_secs(60);
/// An autoscaler that takes requests has said something about one by then.
const ANSWER: Duration = Duration::from_secs(300);

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub delete: Vec<Arc<ProvisioningRequest>>,
    pub create: Option<Request>,
    /// Pods that are to say which request they consume, or that they consume none.
    pub marks: Vec<(Key, Option<String>)>,
    /// Nobody has said anything about this request for a while.
    pub unanswered: Option<Arc<ProvisioningRequest>>,
    /// What is there does not fit what the gang lacks, and stays for now.
    pub in_gap: bool,
    pub again: Option<Duration>,
}

/// A request to be made.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub name: String,
    /// For each kind of pod: one that stands for all of them, and how many.
    pub pod_sets: Vec<(Key, i64)>,
}

/// What a gang lacks.
enum Lack<'a> {
    /// Nothing that nodes would bring: it is placed, or waits for something else.
    Nothing,
    /// Somebody has not given up yet, or pods are missing.
    Unclear,
    Pods(Vec<&'a Arc<Pod>>),
}

/// `requests`: those that the group owns. `is_ours`: whether a request of this name is, or was, one of them. `gap`: how long [`Plan::in_gap`] has been so.
pub fn plan(
    group: &PodGroup,
    pods: &[Arc<Pod>],
    requests: &[Arc<ProvisioningRequest>],
    is_ours: impl Fn(&str) -> bool,
    gap: Duration,
    now: Timestamp,
    options: &Options,
) -> Plan {
    let live: Vec<&Arc<ProvisioningRequest>> = requests.iter().filter(|r| !r.metadata.deleting()).collect();
    let stay = || Plan { in_gap: true, again: Some(GAP.saturating_sub(gap)), ..Plan::default() };
    let nothing = |in_gap: bool| Plan {
        delete: live.iter().copied().cloned().collect(),
        marks: marks(pods, None, &is_ours),
        in_gap,
        ..Plan::default()
    };
    let missing = match lack(group, pods, &is_ours, options) {
        Lack::Nothing => return nothing(false),
        Lack::Unclear if !live.is_empty() && gap < GAP => return stay(),
        Lack::Unclear => return nothing(true),
        Lack::Pods(missing) => missing,
    };
    let pod_sets = pod_sets(&missing);
    if pod_sets.len() > MOST_POD_SETS {
        // More than a request can say; the autoscaler sees the pods one by one.
        return nothing(false);
    }
    let name = name_for(group, &pod_sets, options);
    let request = requests.iter().find(|r| r.metadata.name == name);
    if request.is_none() && !live.is_empty() && gap < GAP {
        return stay();
    }
    let mut plan = Plan {
        delete: live.into_iter().filter(|r| r.metadata.name != name).cloned().collect(),
        ..Plan::default()
    };
    let mut consumed = false;
    match request {
        Some(request) if request.metadata.deleting() => {}
        Some(request) => {
            let since = ended(request);
            consumed = since.is_none() && is_taken(request);
            if let Some(since) = since {
                let left = until(now, later(since, options.retry));
                if left.is_zero() {
                    plan.delete.push(request.clone());
                } else {
                    plan.again = Some(left);
                }
            } else if request.status.conditions.is_empty() {
                let made = request.metadata.creation_timestamp.unwrap_or(now);
                let left = until(now, later(made, ANSWER));
                if left.is_zero() {
                    plan.unanswered = Some(request.clone());
                } else {
                    plan.again = Some(left);
                }
            }
        }
        None => {
            let since = missing.iter().filter_map(|pod| unschedulable(pod)?.last_transition_time).max();
            let left = since.map_or(Duration::ZERO, |since| until(now, later(since, options.gang_wait)));
            if left.is_zero() {
                let pod_sets = pod_sets.into_values().map(|(pod, n)| (pod.key(), n)).collect();
                plan.create = Some(Request { name: name.clone(), pod_sets });
            } else {
                plan.again = Some(left);
            }
        }
    }
    plan.marks = marks(pods, consumed.then_some((&name[..], &missing[..])), &is_ours);
    plan
}

/// The pods of a gang that waits which are missing of its minimum.
fn lack<'a>(
    group: &PodGroup,
    pods: &'a [Arc<Pod>],
    is_ours: &impl Fn(&str) -> bool,
    options: &Options,
) -> Lack<'a> {
    let consumes_others =
        |pod: &Arc<Pod>| waits(pod) && pod.metadata.annotation(CONSUMES).is_some_and(|name| !is_ours(name));
    if group.metadata.deleting() || !room_would_help(group) || pods.iter().any(consumes_others) {
        return Lack::Nothing;
    }
    let gang = Gang::read(group);
    // Only the numbers of pods are looked at.
    let tally = tally(pods, &GpuMemory::default(), |_| None);
    if gang.is_met(&tally, |c| c.placed()) {
        return Lack::Nothing;
    }
    if !gang.is_met(&tally, |c| c.placed() + c.waiting) {
        return Lack::Unclear;
    }
    let mut short = Shortfall::read(group, &tally);
    let subgroup = |pod: &Pod| pod.metadata.labels.get(SUBGROUP).cloned().unwrap_or_default();
    let (needed, others): (Vec<&Arc<Pod>>, Vec<_>) =
        pods.iter().filter(|pod| waits(pod)).partition(|pod| short.take(&subgroup(pod)));
    let n_others = usize::try_from(short.of_any).unwrap_or(usize::MAX);
    let mut found: Vec<&Arc<Pod>> = Vec::new();
    let mut all_gave_up = true;
    for pod in needed.into_iter().chain(others.into_iter().take(n_others)) {
        // A fraction is not in the requests that an autoscaler sees; it has scaling pods.
        if request::share(&pod.metadata.annotations).is_some() {
            continue;
        }
        if !pod.spec.scheduler_name.is_in(&options.scheduler_names) {
            return Lack::Nothing;
        }
        all_gave_up &= unschedulable(pod).is_some();
        found.push(pod);
    }
    match (found.is_empty(), all_gave_up) {
        (true, _) => Lack::Nothing,
        (_, false) => Lack::Unclear,
        _ => Lack::Pods(found),
    }
}

/// What pods that wait have to say otherwise than they do: these consume the request of this name, all others none of ours.
pub fn marks(
    pods: &[Arc<Pod>],
    consumers: Option<(&str, &[&Arc<Pod>])>,
    is_ours: impl Fn(&str) -> bool,
) -> Vec<(Key, Option<String>)> {
    let (request, consumers) = consumers.unzip();
    let consumers: BTreeSet<&str> =
        consumers.into_iter().flatten().map(|pod| pod.metadata.name.as_str()).collect();
    let mark = |pod: &Arc<Pod>| {
        let wanted = request.filter(|_| consumers.contains(pod.metadata.name.as_str()));
        let said = pod.metadata.annotation(CONSUMES);
        let differs = said != wanted && said.is_none_or(&is_ours);
        differs.then(|| (pod.key(), wanted.map(str::to_owned)))
    };
    pods.iter().filter(|pod| waits(pod)).filter_map(mark).collect()
}

/// The annotations that say so.
pub fn mark_body(name: Option<&str>, options: &Options) -> Value {
    let class = name.map(|_| &options.provisioning_class);
    json!({"metadata": {"annotations": {CONSUMES: name, CLASS: class}}})
}

/// Pods that an autoscaler cannot tell apart, by what it looks at.
fn pod_sets<'a>(pods: &[&'a Arc<Pod>]) -> BTreeMap<String, (&'a Arc<Pod>, i64)> {
    let mut sets: BTreeMap<String, (&Arc<Pod>, i64)> = BTreeMap::new();
    for pod in pods {
        let spec = &pod.spec;
        let likeness = format!(
            "{:?}",
            (
                &spec.containers,
                &spec.init_containers,
                &spec.overhead,
                &spec.resources,
                &spec.node_selector,
                &spec.tolerations,
                &spec.affinity,
                &spec.priority_class_name,
            )
        );
        sets.entry(likeness).or_insert((pod, 0)).1 += 1;
    }
    sets
}

fn name_for(group: &PodGroup, sets: &BTreeMap<String, (&Arc<Pod>, i64)>, options: &Options) -> String {
    let asked: Vec<Value> = sets.iter().map(|(likeness, (_, n))| json!([likeness, n])).collect();
    let whole =
        json!([group.metadata.uid, asked, options.provisioning_class, options.provisioning_parameters]);
    let hash = muster_runtime::json::short_hash(&whole, 0);
    format!("{}{hash}", name_start(&group.metadata.name))
}

/// How the names of a group's requests begin. Templates are named after the request, and names that become labels have 63
/// characters at most.
fn name_start(group: &str) -> String {
    let mut start = group;
    while start.len() > 40 {
        let mut chars = start.chars();
        chars.next_back();
        start = chars.as_str();
    }
    format!("{}-", start.trim_end_matches(['-', '.']))
}

/// Whether a request that is gone was one of the group's, by its name.
pub fn may_have_made(group: &str, request: &str) -> bool {
    let hash = request.strip_prefix(&name_start(group));
    hash.is_some_and(|hash| !hash.is_empty() && hash.bytes().all(|c| c.is_ascii_alphanumeric()))
}

/// Whether it is one of some gang's, and somebody has it to work on.
pub fn is_live(request: &ProvisioningRequest) -> bool {
    let metadata = &request.metadata;
    metadata.labels.get(MANAGED_BY).is_some_and(|by| by == "muster")
        && metadata.controller().is_some_and(|owner| owner.kind == PodGroup::RESOURCE.kind)
        && !metadata.deleting()
        && ended(request).is_none()
}

/// An autoscaler works on it, or has done so: from here on it counts the pods with the request and not one by one.
fn is_taken(request: &ProvisioningRequest) -> bool {
    ["Accepted", "Provisioned"].iter().any(|kind| is_true(&request.status.conditions, kind))
}

/// Since when a request is of no use any more.
fn ended(request: &ProvisioningRequest) -> Option<Timestamp> {
    let conditions = &request.status.conditions;
    ["Failed", "BookingExpired", "CapacityRevoked"]
        .iter()
        .filter(|kind| is_true(conditions, kind))
        .filter_map(|kind| muster_runtime::object::condition(conditions, kind))
        .map(|c| c.last_transition_time.unwrap_or(Timestamp::MIN))
        .min()
}

pub fn template_name(request: &str, at: usize) -> String {
    format!("{request}-{at}")
}

/// The names of a request's templates.
pub fn templates_of(request: &ProvisioningRequest) -> Vec<String> {
    let sets = request.spec.get("podSets").and_then(Value::as_array).into_iter().flatten();
    sets.filter_map(|set| Some(set.pointer("/podTemplateRef/name")?.as_str()?.to_owned())).collect()
}

/// The request as an object.
pub fn request_body(group: &PodGroup, request: &Request, options: &Options) -> Value {
    let sets: Vec<Value> = request
        .pod_sets
        .iter()
        .enumerate()
        .map(|(at, (_, n))| json!({"count": n, "podTemplateRef": {"name": template_name(&request.name, at)}}))
        .collect();
    let mut spec = json!({"provisioningClassName": options.provisioning_class, "podSets": sets});
    if !options.provisioning_parameters.is_empty() {
        spec["parameters"] = json!(options.provisioning_parameters);
    }
    json!({
        "apiVersion": ProvisioningRequest::RESOURCE.api_version(),
        "kind": ProvisioningRequest::RESOURCE.kind,
        "metadata": metadata(group, &request.name),
        "spec": spec,
    })
}

/// A pod as a template: without what was decided about this one pod.
pub fn template_body(group: &PodGroup, name: &str, pod: &Value) -> Value {
    let empty = Map::new();
    let mut spec = pod.get("spec").and_then(Value::as_object).unwrap_or(&empty).clone();
    for field in
        ["nodeName", "priority", "preemptionPolicy", "ephemeralContainers", "schedulingGates", "hostname"]
    {
        spec.remove(field);
    }
    // The token that every pod gets of its own.
    let is_token = |value: &Value| {
        value.get("name").and_then(Value::as_str).is_some_and(|name| name.starts_with("kube-api-access-"))
    };
    let drop_tokens = |list: Option<&mut Value>| {
        if let Some(Value::Array(list)) = list {
            list.retain(|item| !is_token(item));
        }
    };
    drop_tokens(spec.get_mut("volumes"));
    for containers in ["containers", "initContainers"] {
        for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            drop_tokens(container.get_mut("volumeMounts"));
        }
    }
    let labels = pod.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": metadata(group, name),
        "template": {"metadata": {"labels": labels}, "spec": spec},
    })
}

fn metadata(group: &PodGroup, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": group.metadata.namespace,
        "labels": {MANAGED_BY: "muster"},
        "ownerReferences": [controller_ref(group)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::default()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn group(spec: Value) -> PodGroup {
        serde_json::from_value(
            json!({"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": spec}),
        )
        .unwrap()
    }

    /// `name:cpu` with a mark: `!` given up on, `?` not, `@` on a node. `sub/name` is in a subgroup.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let one = |word: &str| {
            let (word, state) = word.split_at(word.len() - 1);
            let (name, cpu) = word.split_once(':').unwrap();
            let (sub, name) = name.split_once('/').unwrap_or(("", name));
            let conditions = match state {
                "!" => json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
                _ => json!([]),
            };
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": name, "namespace": "ns", "labels": {SUBGROUP: sub}},
                    "spec": {"schedulerName": "kai-scheduler", "nodeName": if state == "@" { "n" } else { "" },
                        "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
                    "status": {"phase": "Pending", "conditions": conditions},
                }))
                .unwrap(),
            )
        };
        text.split_whitespace().map(one).collect()
    }

    /// As it is without a gap.
    fn planned(
        group: &PodGroup,
        pods: &[Arc<Pod>],
        requests: &[Arc<ProvisioningRequest>],
        now: Timestamp,
        options: &Options,
    ) -> Plan {
        after_gap(Duration::ZERO, group, pods, requests, now, options)
    }

    fn after_gap(
        gap: Duration,
        group: &PodGroup,
        pods: &[Arc<Pod>],
        requests: &[Arc<ProvisioningRequest>],
        now: Timestamp,
        options: &Options,
    ) -> Plan {
        plan(group, pods, requests, |name| may_have_made("g", name), gap, now, options)
    }

    /// The same pods, each saying that it consumes this.
    fn saying(pods: &[Arc<Pod>], request: &str) -> Vec<Arc<Pod>> {
        let say = |pod: &Arc<Pod>| {
            let mut pod = Pod::clone(pod);
            pod.metadata.annotations.insert(CONSUMES.into(), request.into());
            Arc::new(pod)
        };
        pods.iter().map(say).collect()
    }

    fn said(plan: &Plan) -> String {
        let mark = |(pod, name): &(Key, Option<String>)| {
            format!("{}{}", if name.is_some() { '+' } else { '-' }, pod.name)
        };
        plan.marks.iter().map(mark).collect::<Vec<_>>().join(" ")
    }

    fn existing(name: &str, conditions: Value) -> Arc<ProvisioningRequest> {
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "ns"}, "status": {"conditions": conditions}}),
            )
            .unwrap(),
        )
    }

    #[track_caller]
    fn check(spec: Value, text: &str, expected: &str) {
        let plan = planned(&group(spec), &pods(text), &[], now(), &options());
        let sets = plan.create.iter().flat_map(|r| &r.pod_sets).map(|(pod, n)| format!("{n}x{}", pod.name));
        assert_eq!(sets.collect::<Vec<_>>().join(" "), expected, "{text}");
    }

    #[test]
    fn what_is_missing_of_the_minimum() {
        let two = || json!({"minMember": 2});
        check(two(), "a:1! b:1!", "2xa");
        check(two(), "a:1! b:2!", "1xa 1xb");
        check(two(), "a:1! b:1! c:1!", "2xa");
        check(two(), "a:1@ b:1!", "1xb");
        check(two(), "a:1@ b:1@ c:1!", "");
        check(two(), "a:1!", "");
        check(two(), "a:1! b:1?", "");
        check(two(), "x/a:1! y/b:1!", "2xa");
        let parts = json!({"subGroups": [{"name": "m", "minMember": 1}, {"name": "w", "minMember": 2}]});
        check(parts.clone(), "m/a:4! w/b:1! w/c:1! w/d:1!", "2xb 1xa");
        check(parts.clone(), "m/a:4@ w/b:1@ w/c:1! w/d:1!", "1xc");
        // The whole gang needs more than its subgroups do.
        let mut more = parts;
        more["minMember"] = json!(4);
        check(more, "m/a:4! w/b:1! w/c:1! w/d:1! w/e:1!", "3xb 1xa");
    }

    #[test]
    fn one_of_three_subgroups_is_enough() {
        let leaves = |enough: i64| {
            let leaf = |name: &str| json!({"name": name, "minMember": 1});
            json!({"minSubGroup": enough, "subGroups": [leaf("x"), leaf("y"), leaf("z")]})
        };
        check(leaves(1), "x/a:1! y/b:1! z/c:1!", "1xa");
        check(leaves(2), "x/a:1! y/b:2! z/c:4!", "1xa 1xb");
        check(leaves(2), "x/a:1@ y/b:2! z/c:4!", "1xb");
        check(leaves(1), "x/a:1@ y/b:2! z/c:4!", "");
        check(leaves(3), "x/a:1! y/b:1! z/c:1!", "3xa");
    }

    #[test]
    fn who_waits_for_its_queue_has_no_request() {
        let waits_for = |reason: &str| {
            let conditions = json!([{"reason": reason}]);
            let status = [("schedulingConditions".to_owned(), conditions)].into();
            PodGroup { status, ..group(json!({"minMember": 2})) }
        };
        let waiting = pods("a:1! b:1!");
        let by_room = waits_for("PodSchedulingErrors");
        let name = planned(&by_room, &waiting, &[], now(), &options()).create.unwrap().name;
        let there = existing(&name, json!([]));
        for reason in
            ["OverLimit", "QueueDoesNotExist", "NonPreemptibleOverQuota", "PreemptionDelayNotElapsed"]
        {
            let group = waits_for(reason);
            assert_eq!(planned(&group, &waiting, &[], now(), &options()), Plan::default(), "{reason}");
            let late = planned(&group, &waiting, std::slice::from_ref(&there), now(), &options());
            assert_eq!((late.delete, late.create), (vec![there.clone()], None), "{reason}");
        }
    }

    #[test]
    fn fractions_and_strangers_are_left_out() {
        let mut waiting = pods("a:1! b:1!");
        let change = |pods: &mut Vec<Arc<Pod>>, change: fn(&mut Pod)| {
            let mut pod = Pod::clone(&pods[0]);
            change(&mut pod);
            pods[0] = Arc::new(pod);
        };
        change(&mut waiting, |p| drop(p.metadata.annotations.insert("gpu-fraction".into(), "0.5".into())));
        let created =
            planned(&group(json!({"minMember": 2})), &waiting, &[], now(), &options()).create.unwrap();
        assert_eq!(created.pod_sets, [(Key::new("ns", "b"), 1)]);
        change(&mut waiting, |p| {
            p.metadata.annotations.clear();
            p.spec.scheduler_name = "other".into();
        });
        assert_eq!(planned(&group(json!({"minMember": 2})), &waiting, &[], now(), &options()).create, None);
    }

    #[test]
    fn one_request_from_waiting_to_placed() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let early = "2026-01-01T00:00:04Z".parse().unwrap();
        assert_eq!(planned(&group, &waiting, &[], early, &options()).again, Some(Duration::from_secs(6)));
        let created = planned(&group, &waiting, &[], now(), &options()).create.unwrap();
        let again = planned(&group, &waiting, &[], now(), &options()).create.unwrap();
        assert_eq!(created.name, again.name);

        let there = existing(&created.name, json!([]));
        let steady = planned(&group, &waiting, std::slice::from_ref(&there), now(), &options());
        assert_eq!((steady.create, steady.delete.len()), (None, 0));

        let placed = planned(&group, &pods("a:1@ b:1@"), std::slice::from_ref(&there), now(), &options());
        assert_eq!(placed.delete, std::slice::from_ref(&there));
    }

    #[test]
    fn pods_say_what_they_consume_while_somebody_works_on_it() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1! c:1!");
        let name = planned(&group, &waiting, &[], now(), &options()).create.unwrap().name;
        let check = |waiting: &[Arc<Pod>], conditions: Value, expected: &str| {
            let there = existing(&name, conditions);
            let plan = planned(&group, waiting, &[there], now(), &options());
            assert_eq!(said(&plan), expected);
            assert!(plan.marks.iter().flat_map(|(_, said)| said).all(|said| *said == name));
        };
        let accepted = || json!({"type": "Accepted", "status": "True"});
        let since =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now()});
        check(&waiting, json!([]), "");
        check(&waiting, json!([since("Accepted", "False")]), "");
        check(&waiting, json!([accepted()]), "+a +b");
        check(&waiting, json!([accepted(), since("Provisioned", "True")]), "+a +b");
        let marked = saying(&waiting, &name);
        check(&marked, json!([accepted()]), "-c");
        check(&marked, json!([]), "-a -b -c");
        for end in ["Failed", "BookingExpired", "CapacityRevoked"] {
            check(&marked, json!([accepted(), since(end, "True")]), "-a -b -c");
        }
        // Those who were marked and did not get a place of the gang's minimum are shown to autoscalers again.
        let there = existing(&name, json!([accepted()]));
        let placed = saying(&pods("a:1! b:1@ c:1@"), &name);
        let plan = planned(&group, &placed, std::slice::from_ref(&there), now(), &options());
        assert_eq!((said(&plan), plan.delete), ("-a".to_owned(), vec![there]));
        assert_eq!(
            mark_body(None, &options()),
            json!({"metadata": {"annotations": {CONSUMES: null, CLASS: null}}})
        );
    }

    #[test]
    fn who_consumes_somebody_elses_request_is_left_alone() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let name = planned(&group, &waiting, &[], now(), &options()).create.unwrap().name;
        let there = existing(&name, json!([{"type": "Accepted", "status": "True"}]));
        let mut mixed = saying(&waiting[..1], "g-check-1");
        mixed.extend(saying(&waiting[1..], &name));
        let plan = planned(&group, &mixed, std::slice::from_ref(&there), now(), &options());
        assert_eq!((said(&plan), plan.delete), ("-b".to_owned(), vec![there]));
        assert_eq!(planned(&group, &saying(&waiting, "h-4567"), &[], now(), &options()), Plan::default());
        // What was ours and is gone is nobody's.
        let again = planned(&group, &saying(&waiting, "g-4567"), &[], now(), &options());
        assert_eq!((said(&again), again.create.is_some()), ("-a -b".to_owned(), true));
    }

    #[test]
    fn a_request_outlives_a_moment() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let name = planned(&group, &waiting, &[], now(), &options()).create.unwrap().name;
        let there = existing(&name, json!([{"type": "Accepted", "status": "True"}]));
        // One is made again, is gone, asks for something else, or is bound before the other.
        for text in ["a:1! b:1?", "a:1!", "a:1! b:2!", "a:1@ b:1!"] {
            let seen = saying(&pods(text), &name);
            let plan = |gap: u64| {
                let gap = Duration::from_secs(gap);
                after_gap(gap, &group, &seen, std::slice::from_ref(&there), now(), &options())
            };
            let stays = Plan { in_gap: true, again: Some(Duration::from_secs(40)), ..Plan::default() };
            assert_eq!(plan(20), stays, "{text}");
            let late = plan(60);
            assert_eq!(late.delete, std::slice::from_ref(&there), "{text}");
            assert!(late.marks.iter().all(|(_, said)| said.is_none()) && !late.marks.is_empty(), "{text}");
            assert_eq!(late.create.is_some(), !text.contains('?') && text != "a:1!", "{text}");
        }
    }

    #[test]
    fn a_request_that_nobody_answers_is_told_of() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let name = planned(&group, &waiting, &[], now(), &options()).create.unwrap().name;
        let check = |made: &str, conditions: Value, expected: Option<Duration>, told: bool| {
            let mut there = ProvisioningRequest::clone(&existing(&name, conditions));
            there.metadata.creation_timestamp = Some(made.parse().unwrap());
            let plan = planned(&group, &waiting, &[Arc::new(there)], now(), &options());
            assert_eq!((plan.again, plan.unanswered.is_some()), (expected, told), "{made}");
            assert_eq!(plan.delete, []);
        };
        check("2026-01-01T00:00:00Z", json!([]), Some(Duration::from_secs(240)), false);
        check("2025-12-31T00:00:00Z", json!([]), None, true);
        let waits =
            json!([{"type": "Accepted", "status": "True"}, {"type": "Provisioned", "status": "False"}]);
        check("2025-12-31T00:00:00Z", waits, None, false);
    }

    #[test]
    fn requests_of_others_take_no_places() {
        let ours = |kind: &str, label: &str, conditions: Value| {
            let owner = json!({"apiVersion": "v", "kind": kind, "name": "g", "uid": "u", "controller": true});
            let metadata = json!({"name": "r", "labels": {MANAGED_BY: label}, "ownerReferences": [owner]});
            is_live(
                &serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}}))
                    .unwrap(),
            )
        };
        assert!(ours("PodGroup", "muster", json!([])));
        assert!(!ours("PodGroup", "muster", json!([{"type": "Failed", "status": "True"}])));
        assert!(!ours("Workload", "muster", json!([])));
        assert!(!ours("PodGroup", "kueue", json!([])));
    }

    #[test]
    fn what_failed_is_made_anew_after_a_while() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let name = planned(&group, &waiting, &[], now(), &options()).create.unwrap().name;
        let failed = |at: &str| {
            existing(&name, json!([{"type": "Failed", "status": "True", "lastTransitionTime": at}]))
        };
        let fresh = planned(&group, &waiting, &[failed("2026-01-01T00:00:00Z")], now(), &options());
        assert_eq!((fresh.delete.len(), fresh.again), (0, Some(Duration::from_secs(240))));
        let old = planned(&group, &waiting, &[failed("2025-12-31T00:00:00Z")], now(), &options());
        assert_eq!((old.delete.len(), old.create), (1, None));
    }

    #[test]
    fn templates_have_nothing_of_the_one_pod() {
        let token = json!({"name": "kube-api-access-x"});
        let pod = json!({
            "metadata": {"name": "a", "labels": {"app": "x"}},
            "spec": {"nodeName": "n", "priority": 5, "volumes": [{"name": "data"}, token],
                "containers": [{"name": "c", "volumeMounts": [{"name": "data"}, token]}]},
        });
        let body = template_body(&group(json!({})), "t", &pod);
        assert_eq!(
            body["template"],
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumes": [{"name": "data"}],
                "containers": [{"name": "c", "volumeMounts": [{"name": "data"}]}]}}),
        );
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "u");
        template_body(&group(json!({})), "t", &json!(5));
    }

    #[test]
    fn names_fit() {
        let mut group = group(json!({"minMember": 1}));
        group.metadata.name = "ü".repeat(120);
        let name = planned(&group, &pods("a:1!"), &[], now(), &options()).create.unwrap().name;
        assert!(template_name(&name, 31).len() <= 63, "{name}");
    }
}
