//! Volcano's PodGroups as Volcano's own scheduler would write them: how far they have come, in its words; and the groups that its controller
//! makes for pods that name none.
//!
//! In: a gang, its pods, and what a cycle decided of it. Out: the status to write, if it differs from what is there; an object to create. Pure.

use muster_model::volcano::Phase;
use muster_model::{Gang, Pod, PodState, Reason, Refusal, Resource, Time};
use muster_scenario::words::time;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where Volcano's objects are named in the model.
pub const PREFIX: &str = "volcano/";
/// Where pods name their PodGroup.
pub const GROUP_ANNOTATIONS: [&str; 2] = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
/// The hypernode that a gang is in.
const DOMAIN: &str = "volcano.sh/job-allocated-hypernode";

/// How many pods of a gang are in which state.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Census {
    /// By Volcano's name of the state.
    states: BTreeMap<&'static str, u32>,
    /// Pods that count towards the minimum.
    ready: u32,
    /// Pods that are there at all.
    valid: u32,
    total: u32,
    min: u32,
}

impl Census {
    pub fn take<'a>(gang: &Gang, pods: impl Iterator<Item = &'a Arc<Pod>>) -> Self {
        let min = gang.volcano.as_ref().map_or(0, |group| group.min_member);
        let mut census = Self { min, ..Self::default() };
        for pod in pods {
            let state = match pod.state {
                PodState::Gated | PodState::Pending => "Pending",
                PodState::Binding => "Binding",
                PodState::Bound => "Bound",
                PodState::Running => "Running",
                PodState::Releasing | PodState::Stuck => "Releasing",
                PodState::Succeeded => "Succeeded",
                PodState::Failed => "Failed",
            };
            *census.states.entry(state).or_default() += 1;
            let waits = state == "Pending";
            let modest = || pod.shape.requests.iter().all(|(r, n)| *r == Resource::Pods || n == 0);
            let ready = pod.state.stays() || state == "Succeeded" || (waits && modest());
            census.ready += u32::from(ready);
            census.valid += u32::from(ready || waits);
            census.total += 1;
        }
        census
    }

    fn count(&self, state: &str) -> u32 {
        self.states.get(state).copied().unwrap_or(0)
    }

    pub fn is_ready(&self) -> bool {
        self.ready >= self.min
    }

    /// Why the gang does not start, as Volcano puts it. `why` says which of its pods found a place and which did not.
    pub fn headline(&self, why: Option<&Refusal>) -> String {
        if self.valid < self.min {
            return format!(
                "Not enough valid tasks for gang-scheduling, valid: {}, min: {}",
                self.valid, self.min
            );
        }
        let mut counts: Vec<String> = self.states.iter().map(|(state, n)| format!("{n} {state}")).collect();
        counts.push(format!("{} minAvailable", self.min));
        counts.sort();
        let pending = self.count("Pending");
        let tried = why.and_then(|refusal| {
            refusal.reasons.iter().find_map(|reason| match reason {
                Reason::NoNode { placed, .. } => Some((*placed).min(pending.saturating_sub(1))),
                _ => None,
            })
        });
        let mut parts: Vec<(u32, &str)> = match tried {
            Some(placed) => {
                vec![
                    (1, "Unschedulable"),
                    (placed, "Schedulable"),
                    (pending.saturating_sub(placed + 1), "Undetermined"),
                ]
            }
            None => vec![(pending, "Undetermined")],
        };
        parts.retain(|(n, _)| *n > 0);
        let mut parts: Vec<String> = parts.into_iter().map(|(n, word)| format!("{n} {word}")).collect();
        parts.sort();
        let parts = if parts.is_empty() { String::new() } else { format!("; Pending: {}", parts.join(", ")) };
        let lacking = self.min.saturating_sub(self.ready);
        format!(
            "{lacking}/{} tasks in gang unschedulable: pod group is not ready, {}{parts}",
            self.total,
            counts.join(", ")
        )
    }
}

/// What to write to a PodGroup whose object says `seen`, as a merge patch; `None` if it is there already.
pub fn patch(
    seen: &Value,
    phase: Phase,
    domain: Option<&str>,
    census: &Census,
    why: Option<&Refusal>,
    now: Time,
) -> Option<Value> {
    let status = &seen["status"];
    let mut changed = Map::new();
    if status["phase"].as_str() != Some(phase.name()) {
        changed.insert("phase".into(), json!(phase.name()));
    }
    for (field, state) in [("running", "Running"), ("succeeded", "Succeeded"), ("failed", "Failed")] {
        let n = census.count(state);
        if status[field].as_u64().unwrap_or(0) != u64::from(n) {
            changed.insert(field.into(), json!(n));
        }
    }
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted = condition(phase, census, why);
    if let Some((kind, reason, message)) = wanted {
        let is_same = |c: &Value| {
            c["type"] == kind
                && c["status"] == "True"
                && c["reason"] == reason
                && c["message"].as_str().unwrap_or("") == message
        };
        if !conditions.iter().any(is_same) {
            let mut entry = json!({
                "type": kind,
                "status": "True",
                "reason": reason,
                "lastTransitionTime": time(now),
                "transitionID": transition(now, seen["metadata"]["uid"].as_str().unwrap_or("")),
            });
            if !message.is_empty() {
                entry["message"] = json!(message);
            }
            let mut all: Vec<Value> = conditions.iter().filter(|c| c["type"] != kind).cloned().collect();
            all.push(entry);
            changed.insert("conditions".into(), json!(all));
        }
    }
    let mut patch = Map::new();
    if !changed.is_empty() {
        patch.insert("status".into(), Value::Object(changed));
    }
    if let Some(domain) = domain.filter(|d| seen["metadata"]["annotations"][DOMAIN].as_str() != Some(d)) {
        patch.insert("metadata".into(), json!({"annotations": {DOMAIN: domain}}));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The condition that a gang has now: type, reason, message.
fn condition(
    phase: Phase,
    census: &Census,
    why: Option<&Refusal>,
) -> Option<(&'static str, &'static str, String)> {
    if phase == Phase::Completed {
        return None;
    }
    if census.is_ready() {
        return Some(("Scheduled", "tasks in gang are ready to be scheduled", String::new()));
    }
    let reason = if census.valid < census.min { "NotEnoughTasks" } else { "NotEnoughResources" };
    Some(("Unschedulable", reason, census.headline(why)))
}

/// What tells one transition from another, in the form of a UUID: the moment, and whose it is.
fn transition(now: Time, uid: &str) -> String {
    let fold = |seed: u64, text: &str| {
        text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let high = fold(0xcbf2_9ce4_8422_2325, &now.0.to_string());
    let low = fold(high, uid);
    let digits = format!("{high:016x}{low:016x}");
    let (parts, _) = [8, 4, 4, 4, 12].iter().fold((Vec::new(), &*digits), |(mut parts, rest), n| {
        let (part, rest) = rest.split_at(*n);
        parts.push(part);
        (parts, rest)
    });
    parts.join("-")
}

/// The PodGroup of a pod that names none, given the object that controls it, the pod's own request, and the label of the pool that the pod is for.
pub fn group_for(
    pod: &Value,
    owner: Option<&Value>,
    request: &Value,
    pool: Option<&(String, String)>,
) -> Value {
    let controller = controller_of(pod);
    let own = json!({"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"], "controller": true});
    let mut reference = controller.cloned().unwrap_or(own);
    // Nobody's deletion waits for a group, and some clusters ask for rights on the owner from whoever says so.
    if let Some(fields) = reference.as_object_mut() {
        fields.remove("blockOwnerDeletion");
    }
    let mut annotations = Map::new();
    for source in owner.into_iter().chain([pod]) {
        for (key, value) in source["metadata"]["annotations"].as_object().into_iter().flatten() {
            if key.starts_with("volcano.sh/") {
                annotations.insert(key.clone(), value.clone());
            }
        }
    }
    let said = |object: &Value, key: &str| {
        object["metadata"]["annotations"][key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let by_both = |key: &str| said(pod, key).or_else(|| owner.and_then(|owner| said(owner, key)));
    let min = by_both("scheduling.volcano.sh/group-min-member").and_then(|text| text.parse::<u32>().ok());
    let min = min.filter(|n| *n > 0).unwrap_or(1);
    let mut spec = json!({
        "minMember": min,
        "queue": by_both("scheduling.volcano.sh/queue-name").unwrap_or_else(|| "default".into()),
        "minResources": request,
    });
    if let Some(class) = pod["spec"]["priorityClassName"].as_str() {
        spec["priorityClassName"] = json!(class);
    }
    let mut group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "namespace": pod["metadata"]["namespace"],
            "name": format!("podgroup-{}", reference["uid"].as_str().unwrap_or("")),
            "annotations": annotations,
            "ownerReferences": [reference],
        },
        "spec": spec,
    });
    if let Some((key, value)) = pool {
        group["metadata"]["labels"] = json!({key: value});
    }
    group
}

/// The reference to the object that controls a pod.
pub fn controller_of(pod: &Value) -> Option<&Value> {
    let references = pod["metadata"]["ownerReferences"].as_array()?;
    references.iter().find(|reference| reference["controller"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Tally;

    fn census(states: &[(&'static str, u32)], ready: u32, min: u32) -> Census {
        let total = states.iter().map(|(_, n)| n).sum();
        Census { states: states.iter().copied().collect(), ready, valid: total, total, min }
    }

    fn no_node(placed: u32) -> Refusal {
        Refusal {
            gang: muster_model::Key::new("ns", "volcano/g"),
            queue: "volcano/q".into(),
            placed: 0,
            waiting: 6,
            needed: 6,
            reasons: vec![Reason::NoNode { group: "".into(), placed, need: 6, tally: Vec::<Tally>::new() }],
            remedies: Vec::new(),
        }
    }

    #[test]
    fn a_gang_says_why_it_waits_in_volcanos_words() {
        assert_eq!(
            census(&[("Pending", 6)], 0, 6).headline(Some(&no_node(3))),
            "6/6 tasks in gang unschedulable: pod group is not ready, 6 Pending, 6 minAvailable; Pending: 1 Unschedulable, 2 Undetermined, 3 Schedulable"
        );
        assert_eq!(
            census(&[("Succeeded", 1), ("Releasing", 3)], 1, 4).headline(None),
            "3/4 tasks in gang unschedulable: pod group is not ready, 1 Succeeded, 3 Releasing, 4 minAvailable"
        );
        assert_eq!(
            census(&[("Pending", 2)], 0, 3).headline(None),
            "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"
        );
    }

    #[test]
    fn only_what_differs_is_written() {
        let seen = json!({"metadata": {"uid": "u"}, "status": {"phase": "Inqueue"}});
        let one =
            patch(&seen, Phase::Running, None, &census(&[("Running", 3)], 3, 3), None, Time(0)).unwrap();
        let condition = &one["status"]["conditions"][0];
        assert_eq!(
            (&one["status"]["phase"], &one["status"]["running"], &condition["type"], &condition["reason"]),
            (
                &json!("Running"),
                &json!(3),
                &json!("Scheduled"),
                &json!("tasks in gang are ready to be scheduled")
            )
        );
        assert_eq!(condition["transitionID"].as_str().map(str::len), Some(36));
        let mut after = seen;
        after["status"] = one["status"].clone();
        assert_eq!(
            patch(&after, Phase::Running, None, &census(&[("Running", 3)], 3, 3), None, Time(9)),
            None
        );
        let more = patch(&after, Phase::Running, Some("s0"), &census(&[("Running", 2)], 2, 2), None, Time(9));
        assert_eq!(
            more,
            Some(json!({"status": {"running": 2}, "metadata": {"annotations": {DOMAIN: "s0"}}}))
        );
    }

    #[test]
    fn a_pod_without_a_group_gets_the_one_that_volcanos_controller_makes() {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u1",
            "annotations": {"scheduling.volcano.sh/queue-name": "q", "volcano.sh/preemptable": "true", "x": "y"}},
            "spec": {"priorityClassName": "high"}});
        let made = group_for(&pod, None, &json!({"cpu": "1"}), None);
        assert_eq!(made["metadata"]["name"], "podgroup-u1");
        assert_eq!(made["metadata"]["annotations"], json!({"volcano.sh/preemptable": "true"}));
        assert_eq!(
            made["spec"],
            json!({"minMember": 1, "queue": "q", "priorityClassName": "high", "minResources": {"cpu": "1"}})
        );
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Pod");
        let owned = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u1", "ownerReferences": [
            {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "r", "uid": "u2", "controller": true}]}});
        let owner = json!({"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": "3"}}});
        let made = group_for(&owned, Some(&owner), &json!({}), Some(&("pool".into(), "a".into())));
        assert_eq!(made["metadata"]["labels"], json!({"pool": "a"}));
        assert_eq!(
            (&made["metadata"]["name"], &made["spec"]["minMember"]),
            (&json!("podgroup-u2"), &json!(3))
        );
    }
}
