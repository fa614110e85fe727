//! Kubernetes' own PodGroups: whether enough of their pods are placed. Once they were, it is never said again that they are not.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::KubernetesGroup;
use super::books::Totals;
use crate::conditions::{self, Wanted};

const SCHEDULED: &str = "PodGroupScheduled";

pub fn group_patch(group: &KubernetesGroup, totals: &Totals, now: Timestamp) -> Option<Value> {
    let old = group.status.get("conditions");
    let all = totals.all();
    if conditions::holds(old, SCHEDULED) || all.all() == 0 {
        return None;
    }
    let policy = group.spec.get("schedulingPolicy");
    let min = policy.and_then(|policy| policy.get("gang")?.get("minCount")?.as_i64()).unwrap_or(1);
    let min = usize::try_from(min.max(1)).unwrap_or(usize::MAX);
    let placed = all.placed();
    let wanted = match placed >= min {
        true => Wanted {
            kind: SCHEDULED,
            holds: true,
            reason: "Scheduled",
            message: "All required pods have been successfully scheduled".to_owned(),
        },
        // Before enough pods have come there is nothing to schedule.
        false if all.all() - all.leaving < min => return None,
        false => Wanted {
            kind: SCHEDULED,
            holds: false,
            reason: "Unschedulable",
            message: format!("{placed} of {min} required pods have a node"),
        },
    };
    let list = conditions::merged(old, &[wanted], now)?;
    let mut patch = json!({"status": {"conditions": list}});
    if conditions::has_others(old, &[SCHEDULED]) {
        // The list is written whole, so it must not be older than what somebody else wrote into it.
        patch["metadata"] = json!({"resourceVersion": group.metadata.resource_version});
    }
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::plan::Counts;

    #[track_caller]
    fn check(policy: Value, said: Option<&str>, waiting: usize, running: usize, expected: Option<&str>) {
        let conditions: Vec<Value> =
            said.into_iter().map(|status| json!({"type": SCHEDULED, "status": status})).collect();
        let group: KubernetesGroup = serde_json::from_value(
            json!({"spec": {"schedulingPolicy": policy}, "status": {"conditions": conditions}}),
        )
        .unwrap();
        let counts = Counts { waiting, running, ..Counts::default() };
        let totals = Totals { roles: [(String::new(), counts)].into(), ..Totals::default() };
        let patch = group_patch(&group, &totals, "2026-01-01T00:00:00Z".parse().unwrap());
        let reason = patch.as_ref().and_then(|patch| patch.pointer("/status/conditions/0/reason")?.as_str());
        assert_eq!(reason, expected);
    }

    #[test]
    fn scheduled_is_for_good() {
        let gang = json!({"gang": {"minCount": 2}});
        check(gang.clone(), None, 0, 0, None);
        check(gang.clone(), None, 1, 0, None);
        check(gang.clone(), None, 2, 0, Some("Unschedulable"));
        check(gang.clone(), None, 1, 2, Some("Scheduled"));
        check(gang.clone(), Some("False"), 0, 2, Some("Scheduled"));
        check(gang, Some("True"), 2, 0, None);
        check(json!({"basic": {}}), None, 5, 1, Some("Scheduled"));
        check(json!({"basic": {}}), None, 5, 0, Some("Unschedulable"));
    }
}
