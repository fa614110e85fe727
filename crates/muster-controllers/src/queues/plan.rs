//! The status of one queue.
//!
//! In: the queue as it is, the sums of its subtree. Out: the patch that makes its status true, or nothing.
//! Must stay true: fields that others write stay; a status that says the same in another spelling or order is left alone.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_quantity::Quantity;
use muster_runtime::common::Queue;
use serde_json::{Map, Value, json};

use crate::accounts::run::QueueFacts;
use crate::amounts::Amounts;
use crate::conditions::{self, Wanted};
use crate::podgroups::plan::changed_lists;

const ORPHAN: &str = "Orphan";
const OVER_QUOTA: &str = "OverQuota";

pub fn patch(queue: &Queue, facts: &QueueFacts, now: Timestamp) -> Option<Value> {
    let old = Value::Object(
        ["requested", "allocated", "allocatedNonPreemptible"]
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), queue.status.get(*name)?.clone())))
            .collect(),
    );
    let sums = &facts.sums;
    let lists = [
        ("requested", &sums.requested),
        ("allocated", &sums.allocated),
        ("allocatedNonPreemptible", &sums.fixed),
    ];
    let mut status = match changed_lists(Some(&old), &lists) {
        Some(Value::Object(lists)) => lists,
        _ => Map::new(),
    };
    if !same_children(queue.status.get("childQueues"), &facts.children) {
        status.insert("childQueues".to_owned(), json!(facts.children));
    }
    let old = queue.status.get("conditions");
    let mut wanted = wanted(queue, facts);
    wanted.retain(|c| c.holds || conditions::find(old, c.kind).is_some());
    if let Some(list) = conditions::merged(old, &wanted, now) {
        status.insert("conditions".to_owned(), list);
    }
    if status.is_empty() {
        return None;
    }
    let mut patch = json!({"status": status});
    if patch["status"].get("conditions").is_some() && conditions::has_others(old, &[ORPHAN, OVER_QUOTA]) {
        // The list is written whole, so it must not be older than what somebody else wrote into it.
        patch["metadata"] = json!({"resourceVersion": queue.metadata.resource_version});
    }
    Some(patch)
}

fn same_children(said: Option<&Value>, children: &[String]) -> bool {
    let Some(said) = said else { return children.is_empty() };
    let Some(said) = said.as_array() else { return false };
    let names: BTreeSet<&str> = said.iter().filter_map(Value::as_str).collect();
    said.len() == children.len() && children.iter().all(|child| names.contains(child.as_str()))
}

fn wanted(queue: &Queue, facts: &QueueFacts) -> Vec<Wanted> {
    let parent = &facts.parent;
    let (orphan, reason, message) = if facts.in_circle {
        (true, "ParentCycle", format!("the queues above lead back to this one; change parentQueue {parent}"))
    } else if !parent.is_empty() && !facts.parent_exists {
        (true, "ParentMissing", format!("there is no queue {parent}; create it or change parentQueue"))
    } else {
        (false, "ParentFound", String::new())
    };
    let mut wanted = vec![Wanted { kind: ORPHAN, holds: orphan, reason, message }];
    if let Some(resources) = queue.spec.get("resources").filter(|r| r.is_object()) {
        let over = over_quota(resources, &facts.sums.allocated);
        let reason = if over.is_empty() { "WithinQuota" } else { "OverQuota" };
        let message = over.join(", ");
        wanted.push(Wanted { kind: OVER_QUOTA, holds: !over.is_empty(), reason, message });
    }
    wanted
}

/// What the queue holds more of than its quota. Units differ: devices, thousandths of a core, millions of bytes; a resource that
/// is left out has a quota of none, and `-1` is no bound.
fn over_quota(resources: &Value, held: &Amounts) -> Vec<String> {
    let billion = 1_000_000_000_i128;
    let each = [
        ("gpu", held.gpus(), billion),
        ("cpu", held.get("cpu"), billion / 1000),
        ("memory", held.get("memory"), billion * 1_000_000),
    ];
    let mut over = Vec::new();
    for (name, held, unit) in each {
        let quota = match resources.get(name).and_then(|r| r.get("quota")) {
            Some(Value::Number(number)) => number.to_string().parse::<Quantity>().unwrap_or_default(),
            _ => Quantity::ZERO,
        };
        if quota < Quantity::ZERO {
            continue;
        }
        // Exact: thousandths of what the quota is written in.
        let allowed = (quota.nano() / 1_000_000).saturating_mul(unit / 1000);
        let allowed = Quantity::from_nano(allowed, held.format());
        if held > allowed {
            over.push(format!("{name} {held} of {allowed}"));
        }
    }
    over
}

#[cfg(test)]
mod tests {
    use muster_runtime::object::Strings;

    use super::*;
    use crate::accounts::Sums;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn amounts(text: &str) -> Amounts {
        let list: Strings = text
            .split_terminator(' ')
            .filter_map(|p| p.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        Amounts::read(&list)
    }

    fn facts(held: &str, children: &[&str]) -> QueueFacts {
        let sums = Sums { requested: amounts(held), allocated: amounts(held), fixed: amounts("") };
        QueueFacts {
            sums,
            children: children.iter().map(|c| (*c).to_owned()).collect(),
            ..QueueFacts::default()
        }
    }

    #[track_caller]
    fn check(spec: Value, status: Value, facts: &QueueFacts, expected: Value) {
        let queue: Queue = serde_json::from_value(
            json!({"metadata": {"resourceVersion": "7"}, "spec": spec, "status": status}),
        )
        .unwrap();
        let mut shown = patch(&queue, facts, now()).unwrap_or_default();
        if let Some(list) = shown.pointer_mut("/status/conditions") {
            let said = list.as_array().unwrap().iter().map(|c| {
                format!("{} {} {} {}", c["type"], c["status"], c["reason"], c["message"]).replace('"', "")
            });
            *list = json!(said.collect::<Vec<_>>());
        }
        assert_eq!(shown, expected);
    }

    #[test]
    fn sums_and_children() {
        check(json!({}), json!({}), &facts("", &[]), json!(null));
        check(
            json!({}),
            json!({}),
            &facts("cpu=2", &["a"]),
            json!({"status": {"requested": {"cpu": "2"}, "allocated": {"cpu": "2"}, "childQueues": ["a"]}}),
        );
        let same = json!({"requested": {"cpu": 2}, "allocated": {"cpu": "2000m"}, "childQueues": ["b", "a"]});
        check(json!({}), same.clone(), &facts("cpu=2", &["a", "b"]), json!(null));
        check(
            json!({}),
            same,
            &facts("", &[]),
            json!({"status": {"requested": {"cpu": null}, "allocated": {"cpu": null}, "childQueues": []}}),
        );
    }

    #[test]
    fn odd_parents() {
        let mut lost = facts("", &[]);
        lost.parent = "gone".into();
        let said = "Orphan True ParentMissing there is no queue gone; create it or change parentQueue";
        check(json!({}), json!({}), &lost, json!({"status": {"conditions": [said]}}));
        let mut found = lost.clone();
        found.parent_exists = true;
        check(json!({}), json!({}), &found, json!(null));
        let was = json!({"conditions": [{"type": "Orphan", "status": "True"}]});
        check(json!({}), was, &found, json!({"status": {"conditions": ["Orphan False ParentFound "]}}));
        found.in_circle = true;
        let said = "Orphan True ParentCycle the queues above lead back to this one; change parentQueue gone";
        let others =
            json!({"conditions": [{"type": "Other", "status": "True", "reason": "r", "message": "m"}]});
        check(
            json!({}),
            others,
            &found,
            json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": ["Other True r m", said]}}),
        );
    }

    #[track_caller]
    fn check_over(resources: Value, held: &str, expected: &str) {
        assert_eq!(over_quota(&resources, &amounts(held)).join(", "), expected, "{resources}");
    }

    #[test]
    fn quotas_have_their_own_units() {
        let quota = |gpu: Value, cpu: Value, memory: Value| json!({"gpu": {"quota": gpu}, "cpu": {"quota": cpu}, "memory": {"quota": memory}});
        check_over(quota(json!(8), json!(4000), json!(1000)), "nvidia.com/gpu=8 cpu=4 memory=1G", "");
        check_over(
            quota(json!(0.7), json!(1500), json!(1)),
            "nvidia.com/gpu=800m cpu=1501m memory=1000001",
            "gpu 800m of 700m, cpu 1501m of 1500m, memory 1000001 of 1M",
        );
        check_over(quota(json!(0.7), json!(-1), json!(-1)), "nvidia.com/gpu=700m cpu=9k memory=1T", "");
        check_over(json!({}), "cpu=1", "cpu 1 of 0");
        check_over(quota(json!("8"), json!(null), json!(1e300)), "nvidia.com/gpu=1", "gpu 1 of 0");
    }

    #[test]
    fn over_quota_is_said() {
        let spec = json!({"resources": {"gpu": {"quota": 1}, "cpu": {"quota": -1}, "memory": {"quota": -1}}});
        let quiet = json!({"requested": {"nvidia.com/gpu": 1}, "allocated": {"nvidia.com/gpu": 1}});
        check(spec.clone(), quiet, &facts("nvidia.com/gpu=1", &[]), json!(null));
        let over = json!({"requested": {"nvidia.com/gpu": 2}, "allocated": {"nvidia.com/gpu": 2}});
        check(
            spec,
            over,
            &facts("nvidia.com/gpu=2", &[]),
            json!({"status": {"conditions": ["OverQuota True OverQuota gpu 2 of 1"]}}),
        );
    }
}
