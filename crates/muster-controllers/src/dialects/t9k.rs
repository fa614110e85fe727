//! T9k's PodGroups and Queues: their statuses.
//!
//! In: an object and the totals of its pods. Out: the patch that makes its status true, or nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_quantity::Quantity;
use serde_json::{Map, Value, json};

use super::books::Totals;
use super::{Parts, T9kGroup, T9kQueue, changed_counts};
use crate::accounts::plan::Counts;
use crate::amounts::Amounts;
use crate::conditions::{self, Wanted};
use crate::podgroups::plan::changed_lists;

const ENOUGH: &str = "SufficientGroupMember";
const SCHEDULED: &str = "GroupScheduled";
const CLOSED: &str = "QueueClosed";
const PRESSURE: &str = "ResourcePressure";

/// The queue of a group.
pub fn queue_of(group: &T9kGroup) -> &str {
    group.word("queue").unwrap_or("default")
}

pub fn group_patch(group: &T9kGroup, totals: &Totals, now: Timestamp) -> Option<Value> {
    let all = totals.all();
    let untold = group.status.is_empty() && all.all() == 0;
    if untold {
        return None;
    }
    let mut status = changed_counts(&group.status, &by_phase(&all, totals.unknown));
    let joined = |counts: &Counts| counts.all() - counts.leaving - counts.failed;
    let enough = is_met(group, totals, joined);
    let scheduled = is_met(group, totals, Counts::placed);
    let message = |said: &str| said.to_owned();
    let wanted = [
        match enough {
            true => {
                condition(ENOUGH, true, "SufficientMemberPods", message("enough pods have joined the group"))
            }
            false => condition(ENOUGH, false, "InsufficientMemberPods", lacking(group, totals, joined)),
        },
        match scheduled {
            true => condition(
                SCHEDULED,
                true,
                "PodGroupScheduled",
                message("Resources have been allocated to PodGroup"),
            ),
            false => {
                condition(SCHEDULED, false, "PodGroupNotScheduled", lacking(group, totals, Counts::placed))
            }
        },
    ];
    finish(&mut status, &group.status, &totals.allocated, &wanted, now)
}

/// The totals of a queue are those of its groups and of its pods without one; each such pod counts as a group.
pub fn queue_patch(queue: &T9kQueue, totals: &Totals, n_groups: usize, now: Timestamp) -> Option<Value> {
    let all = totals.all();
    let mut status = Map::new();
    let number = |of: &str, name: &str| queue.status.get(of)?.get(name)?.as_u64();
    let pods: Map<String, Value> = by_phase(&all, totals.unknown)
        .into_iter()
        .filter(|(name, n)| number("pods", name).unwrap_or(0) != *n as u64)
        .map(|(name, n)| (name.to_owned(), json!(n)))
        .collect();
    if !pods.is_empty() {
        status.insert("pods".to_owned(), Value::Object(pods));
    }
    if number("podGroups", "total").unwrap_or(0) != n_groups as u64 {
        status.insert("podGroups".to_owned(), json!({"total": n_groups}));
    }
    let closed = queue.spec.get("closed").and_then(Value::as_bool).unwrap_or(false);
    let pressed =
        under_pressure(queue.spec.get("quota").and_then(|quota| quota.get("requests")), &totals.allocated);
    let wanted = [
        condition(CLOSED, closed, if closed { "QueueClosed" } else { "QueueOpen" }, String::new()),
        condition(
            PRESSURE,
            !pressed.is_empty(),
            if pressed.is_empty() { "SufficientResources" } else { "ResourcesNearlyUsedUp" },
            pressed.join(", "),
        ),
    ];
    finish(&mut status, &queue.status, &totals.allocated, &wanted, now)
}

fn finish(
    status: &mut Map<String, Value>,
    old: &BTreeMap<String, Value>,
    allocated: &Amounts,
    wanted: &[Wanted],
    now: Timestamp,
) -> Option<Value> {
    let held = old.get("allocated").map(|held| json!({"allocated": held}));
    if let Some(Value::Object(lists)) = changed_lists(held.as_ref(), &[("allocated", allocated)]) {
        status.extend(lists);
    }
    if let Some(list) = conditions::merged(old.get("conditions"), wanted, now) {
        status.insert("conditions".to_owned(), list);
    }
    (!status.is_empty()).then(|| json!({"status": status}))
}

fn condition(kind: &'static str, holds: bool, reason: &'static str, message: String) -> Wanted {
    Wanted { kind, holds, reason, message }
}

fn by_phase(counts: &Counts, unknown: usize) -> [(&'static str, usize); 5] {
    [
        ("pending", counts.waiting + counts.starting),
        ("running", (counts.running + counts.leaving).saturating_sub(unknown)),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("unknown", unknown),
    ]
}

/// The minimums of a group: of each role, and under the empty name of all.
fn minimums(group: &T9kGroup) -> Vec<(&str, usize)> {
    let roles = group.spec.get("roles").and_then(Value::as_array).into_iter().flatten().filter_map(|role| {
        let min = role.get("minMember").and_then(Value::as_i64).unwrap_or(0).max(0);
        Some((role.get("name")?.as_str()?, usize::try_from(min).unwrap_or(0)))
    });
    let of_all = group.count("minMember").unwrap_or(1);
    roles.chain([("", of_all)]).collect()
}

/// Of a role, or of all, as `count` reads them.
fn there(totals: &Totals, role: &str, count: impl Fn(&Counts) -> usize) -> usize {
    match role {
        "" => totals.roles.values().map(count).sum(),
        role => totals.roles.get(role).map_or(0, count),
    }
}

fn is_met(group: &T9kGroup, totals: &Totals, count: impl Fn(&Counts) -> usize + Copy) -> bool {
    minimums(group).iter().all(|(role, min)| there(totals, role, count) >= *min)
}

fn lacking(group: &T9kGroup, totals: &Totals, count: impl Fn(&Counts) -> usize + Copy) -> String {
    let said = minimums(group).into_iter().filter_map(|(role, min)| {
        let n = there(totals, role, count);
        let of = if role.is_empty() { String::new() } else { format!(" of role {role}") };
        (n < min).then(|| format!("{n} of {min} pods{of}"))
    });
    said.collect::<Vec<_>>().join(", ")
}

/// What is more than nine tenths used.
fn under_pressure(quota: Option<&Value>, held: &Amounts) -> Vec<String> {
    let quota = quota.and_then(Value::as_object).into_iter().flatten();
    let mut pressed = Vec::new();
    for (name, value) in quota {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let Ok(most) = text.parse::<Quantity>() else { continue };
        let held = held.get(name);
        if held.nano().saturating_mul(10) > most.nano().saturating_mul(9) {
            pressed.push(format!("{name} {held} of {most}"));
        }
    }
    pressed
}

#[cfg(test)]
mod tests {
    use muster_runtime::common::Pod;

    use super::*;
    use crate::dialects::books::{Books, Schedulers, Subject};

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    /// `worker running` and so on.
    fn totals(pods: &[&str]) -> Totals {
        let mut books = Books::default();
        let schedulers = Schedulers::among(&["t9k-scheduler".to_owned()]);
        for (i, said) in pods.iter().enumerate() {
            let (role, state) = said.split_once(' ').unwrap();
            let (node, phase) = match state {
                "waiting" => ("", "Pending"),
                "starting" => ("n", "Pending"),
                "running" => ("n", "Running"),
                "unknown" => ("n", "Unknown"),
                "succeeded" => ("n", "Succeeded"),
                _ => ("n", "Failed"),
            };
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": i.to_string(), "labels": {"scheduler.tensorstack.dev/role": role}},
                "spec": {"schedulerName": "t9k-scheduler", "nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": phase},
            }))
            .unwrap();
            books.note(&muster_runtime::Key::new("", i.to_string()), Some(&pod), &schedulers);
        }
        books.of(&Subject::T9kQueue("default".into()))
    }

    fn shown(patch: Option<Value>) -> Value {
        let mut shown = patch.unwrap_or_default();
        if let Some(list) = shown.pointer_mut("/status/conditions") {
            let said = list.as_array().unwrap().iter().map(|c| {
                format!("{} {} {}: {}", c["type"], c["status"], c["reason"], c["message"]).replace('"', "")
            });
            *list = json!(said.collect::<Vec<_>>());
        }
        shown
    }

    #[track_caller]
    fn check_group(spec: Value, status: Value, pods: &[&str], expected: Value) {
        let group: T9kGroup = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
        assert_eq!(shown(group_patch(&group, &totals(pods), now())), expected);
    }

    #[test]
    fn groups() {
        let roles =
            json!({"minMember": 3, "roles": [{"name": "m", "minMember": 1}, {"name": "w", "minMember": 1}]});
        check_group(json!({"minMember": 2}), json!({}), &[], json!(null));
        check_group(
            roles.clone(),
            json!({}),
            &["m waiting", "w waiting"],
            json!({"status": {"pending": 2, "conditions": [
                "SufficientGroupMember False InsufficientMemberPods: 2 of 3 pods",
                "GroupScheduled False PodGroupNotScheduled: 0 of 1 pods of role m, 0 of 1 pods of role w, 0 of 3 pods",
            ]}}),
        );
        let running = json!({"status": {"running": 2, "pending": 1, "allocated": {"cpu": "3"}, "conditions": [
            "SufficientGroupMember True SufficientMemberPods: enough pods have joined the group",
            "GroupScheduled True PodGroupScheduled: Resources have been allocated to PodGroup",
        ]}});
        check_group(roles.clone(), json!({}), &["m running", "w running", "w starting"], running);
        let said = json!({"running": 2, "pending": 1, "allocated": {"cpu": "3000m"}, "conditions": [
            {"type": "SufficientGroupMember", "status": "True", "reason": "SufficientMemberPods", "message": "enough pods have joined the group"},
            {"type": "GroupScheduled", "status": "True", "reason": "PodGroupScheduled", "message": "Resources have been allocated to PodGroup"},
        ]});
        check_group(roles.clone(), said.clone(), &["m running", "w running", "w starting"], json!(null));
        check_group(
            roles,
            said,
            &["m running", "w succeeded", "w succeeded"],
            json!({"status": {"running": 1, "pending": 0, "succeeded": 2, "allocated": {"cpu": "1"}}}),
        );
    }

    #[track_caller]
    fn check_queue(spec: Value, pods: &[&str], expected: Value) {
        let queue: T9kQueue = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(shown(queue_patch(&queue, &totals(pods), 1, now())), expected);
    }

    #[test]
    fn queues() {
        let quota = |cpu: i64| json!({"quota": {"requests": {"cpu": cpu}}});
        check_queue(
            quota(3),
            &["w running", "w waiting", "w unknown"],
            json!({"status": {
                "allocated": {"cpu": "2"},
                "podGroups": {"total": 1},
                "pods": {"pending": 1, "running": 1, "unknown": 1},
                "conditions": ["QueueClosed False QueueOpen: ", "ResourcePressure False SufficientResources: "],
            }}),
        );
        check_queue(
            json!({"closed": true, "quota": {"requests": {"cpu": "2", "memory": "x"}}}),
            &["w running", "w failed", "w unknown"],
            json!({"status": {
                "allocated": {"cpu": "2"},
                "podGroups": {"total": 1},
                "pods": {"running": 1, "failed": 1, "unknown": 1},
                "conditions": ["QueueClosed True QueueClosed: ", "ResourcePressure True ResourcesNearlyUsedUp: cpu 2 of 2"],
            }}),
        );
    }
}
