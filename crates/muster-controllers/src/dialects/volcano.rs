//! Volcano's Queues: their status. What only its scheduler knows (phases of groups) is read and never written here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Parts, VolcanoGroup, VolcanoQueue, changed_counts};
use crate::amounts::Amounts;
use crate::podgroups::plan::changed_lists;

/// How many groups of a queue are in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    pub pending: usize,
    pub inqueue: usize,
    pub running: usize,
    pub completed: usize,
    pub unknown: usize,
}

impl Phases {
    pub fn count<'a>(groups: impl Iterator<Item = &'a VolcanoGroup>) -> Self {
        let mut phases = Phases::default();
        for group in groups {
            match group.status.get("phase").and_then(Value::as_str).unwrap_or("") {
                "" | "Pending" => phases.pending += 1,
                "Inqueue" => phases.inqueue += 1,
                "Running" => phases.running += 1,
                "Completed" => phases.completed += 1,
                _ => phases.unknown += 1,
            }
        }
        phases
    }

    fn all(&self) -> usize {
        self.pending + self.inqueue + self.running + self.completed + self.unknown
    }
}

pub fn queue_of(group: &VolcanoGroup) -> &str {
    group.word("queue").unwrap_or("default")
}

/// The queue above; every queue but the root hangs below it at last.
pub fn parent_of(queue: &VolcanoQueue) -> Option<&str> {
    match queue.metadata.name.as_str() {
        "root" => None,
        _ => Some(queue.word("parent").unwrap_or("root")),
    }
}

/// A queue and those above it.
pub fn upwards<'a>(queues: &'a BTreeMap<String, String>, name: &'a str) -> BTreeSet<&'a str> {
    let mut way = BTreeSet::new();
    let mut at = Some(name);
    while let Some(name) = at.filter(|name| way.insert(*name)) {
        at = queues.get(name).map(String::as_str);
    }
    way
}

pub fn queue_patch(queue: &VolcanoQueue, phases: &Phases, allocated: &Amounts) -> Option<Value> {
    let counts = [
        ("pending", phases.pending),
        ("inqueue", phases.inqueue),
        ("running", phases.running),
        ("completed", phases.completed),
        ("unknown", phases.unknown),
    ];
    let mut status = changed_counts(&queue.status, &counts);
    let before = queue.status.get("state").and_then(Value::as_str).unwrap_or("");
    let state = match before {
        "" => "Open",
        // Closed once the last group has gone.
        "Closing" if phases.all() == 0 => "Closed",
        other => other,
    };
    if state != before {
        status.insert("state".to_owned(), json!(state));
    }
    let old = queue.status.get("allocated").map(|held| json!({"allocated": held}));
    if let Some(Value::Object(lists)) = changed_lists(old.as_ref(), &[("allocated", allocated)]) {
        status.extend(lists);
    }
    let reserved = queue.spec.get("guarantee").and_then(|guarantee| guarantee.get("resource"));
    let said = queue.status.get("reservation").and_then(|reservation| reservation.get("resource"));
    if let Some(reserved) = reserved.filter(|reserved| said != Some(*reserved)) {
        status.insert("reservation".to_owned(), json!({"resource": reserved}));
    }
    (!status.is_empty()).then(|| json!({"status": status}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: Value, status: Value, phases: &[&str], cpu: &str, expected: Value) {
        let queue: VolcanoQueue = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
        let groups: Vec<VolcanoGroup> = phases
            .iter()
            .map(|phase| serde_json::from_value(json!({"status": {"phase": phase}})).unwrap())
            .collect();
        let allocated = Amounts::read(&[("cpu".to_owned(), cpu.to_owned())].into());
        let patch = queue_patch(&queue, &Phases::count(groups.iter()), &allocated);
        assert_eq!(patch.unwrap_or_default(), expected);
    }

    #[test]
    fn queues() {
        check(json!({}), json!({}), &[], "0", json!({"status": {"state": "Open"}}));
        check(
            json!({"guarantee": {"resource": {"cpu": "2"}}}),
            json!({"state": "Open", "running": 5}),
            &["Running", "Inqueue", "", "Pending", "Completed", "Odd"],
            "3",
            json!({"status": {"running": 1, "inqueue": 1, "pending": 2, "completed": 1, "unknown": 1,
                              "allocated": {"cpu": "3"}, "reservation": {"resource": {"cpu": "2"}}}}),
        );
        check(json!({}), json!({"state": "Closing"}), &["Running"], "0", json!({"status": {"running": 1}}));
        check(json!({}), json!({"state": "Closing"}), &[], "0", json!({"status": {"state": "Closed"}}));
        check(json!({}), json!({"state": "Closed", "running": 0, "allocated": {}}), &[], "0", json!(null));
    }

    #[test]
    fn the_way_up_ends() {
        let queues =
            [("a", "b"), ("b", "a"), ("c", "root")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!(upwards(&queues, "c"), ["c", "root"].into());
        assert_eq!(upwards(&queues, "a"), ["a", "b"].into());
    }
}
