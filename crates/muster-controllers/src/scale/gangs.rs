//! One request for capacity per gang that waits.
//!
//! In: a group, its pods, the requests that are there for it. Out: requests to delete, at most one to make, pods to mark as its
//! consumers, when to look again.
//! Must stay true: a gang has at most one request, for what is missing of its minimum; none once it is placed, and none while it
//! waits for something that nodes do not bring. The name of a request follows from what it asks for, so that making it twice makes
//! it once.

use std::collections::BTreeMap;
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
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub delete: Vec<Arc<ProvisioningRequest>>,
    pub create: Option<Request>,
    /// Pods that do not say yet that they consume the request.
    pub mark: Vec<Key>,
    /// The annotations that say so.
    pub marks: Value,
    pub again: Option<Duration>,
}

/// A request to be made.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub name: String,
    /// For each kind of pod: one that stands for all of them, and how many.
    pub pod_sets: Vec<(Key, i64)>,
}

pub fn plan(
    group: &PodGroup,
    pods: &[Arc<Pod>],
    requests: &[Arc<ProvisioningRequest>],
    now: Timestamp,
    options: &Options,
) -> Plan {
    let live = || requests.iter().filter(|r| !r.metadata.deleting());
    let missing = missing(group, pods, options);
    if missing.is_empty() {
        return Plan { delete: live().cloned().collect(), ..Plan::default() };
    }
    let pod_sets = pod_sets(&missing);
    if pod_sets.len() > MOST_POD_SETS {
        // More than a request can say; the autoscaler sees the pods one by one.
        return Plan { delete: live().cloned().collect(), ..Plan::default() };
    }
    let name = name_for(group, &pod_sets, options);
    let mut plan = Plan {
        delete: live().filter(|r| r.metadata.name != name).cloned().collect(),
        marks: json!({CONSUMES: name, CLASS: options.provisioning_class}),
        ..Plan::default()
    };
    match requests.iter().find(|r| r.metadata.name == name) {
        Some(request) if request.metadata.deleting() => {}
        Some(request) => {
            plan.mark = missing
                .iter()
                .filter(|pod| pod.metadata.annotation(CONSUMES) != Some(&name))
                .map(|pod| pod.key())
                .collect();
            if let Some(since) = ended(request) {
                let left = until(now, later(since, options.retry));
                if left.is_zero() {
                    plan.delete.push(request.clone());
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
                plan.create = Some(Request { name, pod_sets });
            } else {
                plan.again = Some(left);
            }
        }
    }
    plan
}

/// The pods that are missing of the minimum of a gang that waits; none when it is placed, when nodes would not help it, or when
/// somebody has not given up on it.
fn missing<'a>(group: &PodGroup, pods: &'a [Arc<Pod>], options: &Options) -> Vec<&'a Arc<Pod>> {
    if group.metadata.deleting() || !room_would_help(group) {
        return Vec::new();
    }
    let gang = Gang::read(group);
    // Only the numbers of pods are looked at.
    let tally = tally(pods, &GpuMemory::default(), |_| None);
    if gang.is_met(&tally, |c| c.placed()) || !gang.is_met(&tally, |c| c.placed() + c.waiting) {
        return Vec::new();
    }
    let mut short = Shortfall::read(group, &tally);
    let subgroup = |pod: &Pod| pod.metadata.labels.get(SUBGROUP).cloned().unwrap_or_default();
    let (needed, others): (Vec<&Arc<Pod>>, Vec<_>) =
        pods.iter().filter(|pod| waits(pod)).partition(|pod| short.take(&subgroup(pod)));
    let n_others = usize::try_from(short.of_any).unwrap_or(usize::MAX);
    let mut found: Vec<&Arc<Pod>> = Vec::new();
    for pod in needed.into_iter().chain(others.into_iter().take(n_others)) {
        // A fraction is not in the requests that an autoscaler sees; it has scaling pods.
        if request::share(&pod.metadata.annotations).is_some() {
            continue;
        }
        if unschedulable(pod).is_none() || !pod.spec.scheduler_name.is_in(&options.scheduler_names) {
            return Vec::new();
        }
        found.push(pod);
    }
    found
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
    // Templates are named after the request, and names that become labels have 63 characters at most.
    let mut start = group.metadata.name.as_str();
    while start.len() > 40 {
        let mut chars = start.chars();
        chars.next_back();
        start = chars.as_str();
    }
    format!("{}-{hash}", start.trim_end_matches(['-', '.']))
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
        "labels": {"app.kubernetes.io/managed-by": "muster"},
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
        let plan = plan(&group(spec), &pods(text), &[], now(), &options());
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
        let name = plan(&by_room, &waiting, &[], now(), &options()).create.unwrap().name;
        let there = existing(&name, json!([]));
        for reason in
            ["OverLimit", "QueueDoesNotExist", "NonPreemptibleOverQuota", "PreemptionDelayNotElapsed"]
        {
            let group = waits_for(reason);
            assert_eq!(plan(&group, &waiting, &[], now(), &options()), Plan::default(), "{reason}");
            let late = plan(&group, &waiting, std::slice::from_ref(&there), now(), &options());
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
        let created = plan(&group(json!({"minMember": 2})), &waiting, &[], now(), &options()).create.unwrap();
        assert_eq!(created.pod_sets, [(Key::new("ns", "b"), 1)]);
        change(&mut waiting, |p| {
            p.metadata.annotations.clear();
            p.spec.scheduler_name = "other".into();
        });
        assert_eq!(plan(&group(json!({"minMember": 2})), &waiting, &[], now(), &options()).create, None);
    }

    #[test]
    fn one_request_from_waiting_to_placed() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let early = "2026-01-01T00:00:04Z".parse().unwrap();
        assert_eq!(plan(&group, &waiting, &[], early, &options()).again, Some(Duration::from_secs(6)));
        let created = plan(&group, &waiting, &[], now(), &options()).create.unwrap();
        let again = plan(&group, &waiting, &[], now(), &options()).create.unwrap();
        assert_eq!(created.name, again.name);

        let there = existing(&created.name, json!([]));
        let steady = plan(&group, &waiting, std::slice::from_ref(&there), now(), &options());
        assert_eq!((steady.create, steady.delete.len(), steady.mark.len()), (None, 0, 2));
        assert_eq!(steady.marks[CONSUMES], created.name.as_str());

        let placed = plan(&group, &pods("a:1@ b:1@"), std::slice::from_ref(&there), now(), &options());
        assert_eq!(placed.delete, std::slice::from_ref(&there));
        let other = plan(&group, &pods("a:2! b:2!"), std::slice::from_ref(&there), now(), &options());
        assert_eq!(
            (other.delete, other.create.is_some()),
            (vec![there], true),
            "another wish, another request"
        );
    }

    #[test]
    fn what_failed_is_made_anew_after_a_while() {
        let group = group(json!({"minMember": 2}));
        let waiting = pods("a:1! b:1!");
        let name = plan(&group, &waiting, &[], now(), &options()).create.unwrap().name;
        let failed = |at: &str| {
            existing(&name, json!([{"type": "Failed", "status": "True", "lastTransitionTime": at}]))
        };
        let fresh = plan(&group, &waiting, &[failed("2026-01-01T00:00:00Z")], now(), &options());
        assert_eq!((fresh.delete.len(), fresh.again), (0, Some(Duration::from_secs(240))));
        let old = plan(&group, &waiting, &[failed("2025-12-31T00:00:00Z")], now(), &options());
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
        let name = plan(&group, &pods("a:1!"), &[], now(), &options()).create.unwrap().name;
        assert!(template_name(&name, 31).len() <= 63, "{name}");
    }
}
