//! The status of a budget.
//!
//! In: the budget, the pods it selects, how many their owners want. Out: the status and when to look again.
//! Must stay true: what the budget allows never takes the healthy pods below what it demands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Budget;
use crate::clock::{stamp, whole};
use crate::object::{Condition, Pod, condition};

/// An eviction that was granted counts for this long, unless the pod is seen to go.
const GRANTED_FOR: Duration = Duration::from_secs(120);

/// `wanted`: how many pods the owners of these pods want in all.
pub fn status(budget: &Budget, pods: &[Arc<Pod>], wanted: i64, now: Timestamp) -> (Value, Option<Duration>) {
    let now = whole(now);
    let mut disrupted: BTreeMap<String, String> = BTreeMap::new();
    let mut wake = None;
    for (name, at) in budget.disrupted() {
        let still_there = pods.iter().any(|p| p.metadata.name == name && !p.metadata.deleting());
        let left = crate::clock::until(now, crate::clock::later(at, GRANTED_FOR));
        if still_there && !left.is_zero() {
            disrupted.insert(name, stamp(at));
            wake = Some(wake.map_or(left, |w: Duration| w.min(left)));
        }
    }
    let live: Vec<&Arc<Pod>> = pods.iter().filter(|p| p.active()).collect();
    let n_live = i64::try_from(live.len()).unwrap_or(i64::MAX);
    let healthy = live.iter().filter(|p| p.ready() && !disrupted.contains_key(&p.metadata.name)).count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let (expected, demanded) = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(most), _) => (wanted, (wanted - most.of(wanted, true)).max(0)),
        (None, Some(crate::object::IntOrPercent::Int(n))) => (n_live, *n),
        (None, Some(percent)) => (wanted, percent.of(wanted, true)),
        (None, None) => (n_live, 1),
    };
    let allowed = if expected <= 0 { 0 } else { (healthy - demanded).max(0) };
    let old: Vec<Condition> = budget
        .status
        .get("conditions")
        .and_then(|c| serde_json::from_value(c.clone()).ok())
        .unwrap_or_default();
    let (text, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let since = condition(&old, "DisruptionAllowed")
        .filter(|c| c.status == text)
        .and_then(|c| c.last_transition_time)
        .unwrap_or(now);
    let mut status = json!({
        "observedGeneration": budget.metadata.generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": demanded,
        "expectedPods": expected,
        "conditions": [{
            "type": "DisruptionAllowed",
            "status": text,
            "reason": reason,
            "message": "",
            "observedGeneration": budget.metadata.generation,
            "lastTransitionTime": stamp(since),
        }],
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = json!(disrupted);
    }
    (status, wake)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn pod(name: &str, ready: bool) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
            }))
            .unwrap(),
        )
    }

    /// Expected as `allowed/healthy/demanded/expected`.
    #[track_caller]
    fn check(spec: Value, status_before: Value, ready: usize, unready: usize, wanted: i64, expected: &str) {
        let budget: Budget = serde_json::from_value(json!({"spec": spec, "status": status_before})).unwrap();
        let pods: Vec<Arc<Pod>> = (0..ready + unready).map(|i| pod(&format!("p{i}"), i < ready)).collect();
        let (s, _) = status(&budget, &pods, wanted, now());
        let shown = format!(
            "{}/{}/{}/{}",
            s["disruptionsAllowed"], s["currentHealthy"], s["desiredHealthy"], s["expectedPods"]
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn budgets() {
        check(json!({"minAvailable": 2}), json!({}), 3, 0, 3, "1/3/2/3");
        check(json!({"minAvailable": 2}), json!({}), 2, 1, 3, "0/2/2/3");
        check(json!({"minAvailable": "50%"}), json!({}), 3, 0, 5, "0/3/3/5");
        check(json!({"maxUnavailable": 1}), json!({}), 4, 0, 4, "1/4/3/4");
        check(json!({"maxUnavailable": "50%"}), json!({}), 4, 0, 5, "2/4/2/5");
        check(json!({"maxUnavailable": 1}), json!({}), 0, 0, 0, "0/0/0/0");
        let granted = json!({"disruptedPods": {"p0": stamp(now())}});
        check(json!({"minAvailable": 1}), granted, 3, 0, 3, "1/2/1/3");
        let stale = json!({"disruptedPods": {"p0": "2020-01-01T00:00:00Z", "gone": stamp(now())}});
        check(json!({"minAvailable": 1}), stale, 3, 0, 3, "2/3/1/3");
    }
}
