//! The status of a workload as a value that is changed step by step: conditions, quota, checks, evictions.
//!
//! In: the status as it is, and the time. Out: the status as it shall be. Must stay true: a condition that keeps its status keeps its time; what
//! nobody here knows stays as it is; the words are Kueue's.

use jiff::Timestamp;
use muster_runtime::clock::stamp;
use serde_json::{Map, Value, json};

use crate::keys::{condition as kind, evicted};
use crate::object::{condition, holds, int, list, text, time};

/// Longer messages are cut, as the API asks for.
const LONGEST: usize = 32 * 1024;

/// A status that is being changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub status: Value,
    generation: i64,
    now: Timestamp,
}

impl Draft {
    pub fn new(status: &Value, generation: i64, now: Timestamp) -> Self {
        let status = if status.is_object() { status.clone() } else { json!({}) };
        Draft { status, generation, now }
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn set(&mut self, field: &str, value: Value) {
        if let Some(map) = self.map() {
            map.insert(field.to_owned(), value);
        }
    }

    pub fn remove(&mut self, field: &str) {
        if let Some(map) = self.map() {
            map.remove(field);
        }
    }

    fn map(&mut self) -> Option<&mut Map<String, Value>> {
        self.status.as_object_mut()
    }

    fn conditions(&mut self) -> Option<&mut Vec<Value>> {
        self.map()?.entry("conditions").or_insert_with(|| json!([])).as_array_mut()
    }

    pub fn holds(&self, kind: &str) -> bool {
        holds(&self.status, kind)
    }

    /// Sets a condition.
    pub fn condition(&mut self, kind: &str, is: bool, reason: &str, message: &str) {
        let word = if is { "True" } else { "False" };
        let since = condition(&self.status, kind)
            .filter(|c| text(c, &["status"]) == word)
            .map(|c| text(c, &["lastTransitionTime"]).to_owned())
            .filter(|since| !since.is_empty())
            .unwrap_or_else(|| stamp(self.now));
        let new = json!({
            "type": kind,
            "status": word,
            "reason": reason,
            "message": cut(message),
            "observedGeneration": self.generation,
            "lastTransitionTime": since,
        });
        let Some(conditions) = self.conditions() else { return };
        match conditions.iter_mut().find(|c| text(c, &["type"]) == kind) {
            Some(known) => {
                // Another generation alone is no news.
                let told = |c: &Value| {
                    (
                        text(c, &["status"]).to_owned(),
                        text(c, &["reason"]).to_owned(),
                        text(c, &["message"]).to_owned(),
                    )
                };
                if told(known) != told(&new) {
                    *known = new;
                }
            }
            None => conditions.push(new),
        }
    }

    pub fn without(&mut self, kind: &str) {
        if let Some(conditions) = self.conditions() {
            conditions.retain(|c| text(c, &["type"]) != kind);
        }
    }

    /// It has quota, and is admitted unless checks are open. What it was evicted for before is past.
    pub fn reserve(&mut self, admission: Value, cluster_queue: &str, admitted: bool) {
        self.set("admission", admission);
        self.remove("resourceRequests");
        let message = format!("Quota reserved in ClusterQueue {cluster_queue}");
        self.condition(kind::QUOTA_RESERVED, true, "QuotaReserved", &message);
        for past in [kind::EVICTED, kind::PREEMPTED] {
            if self.holds(past) {
                let before = condition(&self.status, past).map_or("", |c| text(c, &["message"]));
                let message = format!("Previously: {before}");
                self.condition(past, false, "QuotaReserved", &message);
            }
        }
        if admitted {
            self.admit();
        }
    }

    pub fn admit(&mut self) {
        self.condition(kind::ADMITTED, true, "Admitted", "The workload is admitted");
    }

    /// Its quota is given back. Whether it had any, or the words are new.
    pub fn release(&mut self, reason: &str, message: &str) {
        self.remove("admission");
        self.condition(kind::QUOTA_RESERVED, false, reason, message);
        if self.holds(kind::ADMITTED) {
            self.count_run();
            self.condition(kind::ADMITTED, false, "NoReservation", "The workload has no reservation");
        }
    }

    /// Adds the run that ends to the time that it ran before.
    fn count_run(&mut self) {
        let Some(since) =
            condition(&self.status, kind::ADMITTED).and_then(|c| time(c, &["lastTransitionTime"]))
        else {
            return;
        };
        let ran = self.now.duration_since(since).as_secs().max(0);
        let before = int(&self.status, &["accumulatedPastExecutionTimeSeconds"]).unwrap_or(0);
        let sum = before.saturating_add(ran).min(i64::from(i32::MAX));
        if sum > 0 {
            self.set("accumulatedPastExecutionTimeSeconds", json!(sum));
        }
    }

    /// It has to stop. Checks begin anew, and whoever counts is told.
    pub fn evict(&mut self, reason: &str, message: &str, cause: &str) {
        self.condition(kind::EVICTED, true, reason, message);
        if reason == evicted::ADMISSION_CHECK {
            self.wait_for_checks();
        }
        self.reset_checks();
        self.remove("unhealthyNodes");
        self.remove("nominatedClusterNames");
        let stamp = stamp(self.now);
        if let Some(Value::Array(gates)) = self.status.get_mut("preemptionGates") {
            for gate in gates.iter_mut().filter(|gate| text(gate, &["position"]) == "Open") {
                gate["position"] = json!("Closed");
                gate["lastTransitionTime"] = json!(stamp);
            }
        }
        self.count_eviction(reason, cause);
    }

    /// Checks that want to be asked again later say when.
    fn wait_for_checks(&mut self) {
        let after = list(&self.status, &["admissionChecks"])
            .iter()
            .filter(|c| text(c, &["state"]) == "Retry")
            .filter_map(|c| int(c, &["requeueAfterSeconds"]))
            .max();
        if let Some(after) = after.filter(|after| *after > 0) {
            let at = self.now.checked_add(jiff::SignedDuration::from_secs(after)).unwrap_or(Timestamp::MAX);
            let mut state =
                self.status.get("requeueState").cloned().filter(Value::is_object).unwrap_or(json!({}));
            state["requeueAt"] = json!(stamp(at));
            self.set("requeueState", state);
        }
    }

    pub fn reset_checks(&mut self) {
        let stamp = stamp(self.now);
        let Some(Value::Array(checks)) = self.status.get_mut("admissionChecks") else { return };
        for check in checks.iter_mut() {
            let was = text(check, &["state"]).to_owned();
            if was == "Pending" || !check.is_object() {
                continue;
            }
            if was == "Retry" {
                let n = int(check, &["retryCount"]).unwrap_or(0).saturating_add(1);
                check["retryCount"] = json!(n);
            }
            check["state"] = json!("Pending");
            check["message"] = json!(format!("Reset to Pending after eviction. Previously: {was}"));
            check["lastTransitionTime"] = json!(stamp);
            if let Some(check) = check.as_object_mut() {
                check.remove("podSetUpdates");
                check.remove("requeueAfterSeconds");
            }
        }
    }

    fn count_eviction(&mut self, reason: &str, cause: &str) {
        let mut stats =
            self.status.get("schedulingStats").cloned().filter(Value::is_object).unwrap_or(json!({}));
        let mut evictions = list(&stats, &["evictions"]).to_vec();
        let same = |e: &&mut Value| text(e, &["reason"]) == reason && text(e, &["underlyingCause"]) == cause;
        match evictions.iter_mut().find(same) {
            Some(known) => {
                let n = int(known, &["count"]).unwrap_or(0).saturating_add(1);
                known["count"] = json!(n);
            }
            None => evictions.push(json!({"reason": reason, "underlyingCause": cause, "count": 1})),
        }
        stats["evictions"] = json!(evictions);
        self.set("schedulingStats", stats);
    }

    /// What was evicted has stopped: its quota is given back, and it waits in line again or for whoever keeps it.
    pub fn end_eviction(&mut self) {
        let Some(evicted) = condition(&self.status, kind::EVICTED).filter(|c| text(c, &["status"]) == "True")
        else {
            return;
        };
        let (reason, message) =
            (text(evicted, &["reason"]).to_owned(), text(evicted, &["message"]).to_owned());
        let at_once = matches!(reason.as_str(), evicted::PREEMPTED | evicted::NODE_FAILURES);
        self.condition(kind::REQUEUED, at_once, &reason, &message);
        self.release("Pending", &message);
    }
}

fn cut(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let end = (0..=LONGEST - 3).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
    format!("{}...", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Conditions by words: `Type`, `!Type`, with `:Reason`.
    pub(crate) fn conditions(words: &str) -> Vec<Value> {
        let condition = |word: &str| {
            let (name, reason) = word.split_once(':').unwrap_or((word, "R"));
            let is = if name.starts_with('!') { "False" } else { "True" };
            let message = match reason {
                "WaitForStart" => "Not all pods are ready or succeeded",
                "Started" => "All pods reached readiness and the workload is running",
                _ => "m",
            };
            json!({"type": name.trim_start_matches('!'), "status": is, "reason": reason, "message": message,
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        words.split_whitespace().map(condition).collect()
    }

    fn now(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn shown(draft: &Draft) -> String {
        let mut out: Vec<String> = list(&draft.status, &["conditions"])
            .iter()
            .map(|c| {
                format!(
                    "{}={} {} @{}",
                    text(c, &["type"]),
                    text(c, &["status"]),
                    text(c, &["reason"]),
                    &text(c, &["lastTransitionTime"])[14..19]
                )
            })
            .collect();
        out.sort();
        out.join("; ")
    }

    #[test]
    fn a_life_from_quota_to_eviction_and_back() {
        let mut draft = Draft::new(&Value::Null, 1, now("2026-01-01T00:00:00Z"));
        draft.reserve(json!({"clusterQueue": "q"}), "q", true);
        assert_eq!(shown(&draft), "Admitted=True Admitted @00:00; QuotaReserved=True QuotaReserved @00:00");
        let mut draft = Draft::new(&draft.status, 1, now("2026-01-01T00:01:00Z"));
        draft.evict("Preempted", "for another", "");
        draft.condition(kind::PREEMPTED, true, "InClusterQueue", "for another");
        draft.end_eviction();
        assert_eq!(
            shown(&draft),
            "Admitted=False NoReservation @01:00; Evicted=True Preempted @01:00; \
             Preempted=True InClusterQueue @01:00; QuotaReserved=False Pending @01:00; Requeued=True Preempted @01:00"
        );
        assert_eq!(draft.status["accumulatedPastExecutionTimeSeconds"], 60);
        assert_eq!(
            draft.status["schedulingStats"],
            json!({"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]})
        );
        assert_eq!(draft.status.get("admission"), None);
        let mut draft = Draft::new(&draft.status, 2, now("2026-01-01T00:02:00Z"));
        draft.reserve(json!({"clusterQueue": "q"}), "q", false);
        assert_eq!(
            shown(&draft),
            "Admitted=False NoReservation @01:00; Evicted=False QuotaReserved @02:00; \
             Preempted=False QuotaReserved @02:00; QuotaReserved=True QuotaReserved @02:00; Requeued=True Preempted @01:00"
        );
        let words = condition(&draft.status, kind::EVICTED).map(|c| text(c, &["message"]));
        assert_eq!(words, Some("Previously: for another"));
    }

    #[test]
    fn checks_begin_anew() {
        let status = json!({"admissionChecks": [
            {"name": "a", "state": "Ready", "podSetUpdates": [{}]},
            {"name": "b", "state": "Retry", "requeueAfterSeconds": 30, "retryCount": 2},
            {"name": "c", "state": "Pending", "message": "m"},
        ]});
        let mut draft = Draft::new(&status, 1, now("2026-01-01T00:00:00Z"));
        draft.evict("AdmissionCheck", "m", "");
        let states: Vec<String> = list(&draft.status, &["admissionChecks"])
            .iter()
            .map(|c| format!("{} {} {}", text(c, &["state"]), text(c, &["message"]), c["retryCount"]))
            .collect();
        assert_eq!(
            states,
            [
                "Pending Reset to Pending after eviction. Previously: Ready null",
                "Pending Reset to Pending after eviction. Previously: Retry 3",
                "Pending m null"
            ]
        );
        assert_eq!(draft.status["requeueState"]["requeueAt"], "2026-01-01T00:00:30Z");
    }

    #[test]
    fn the_same_again_is_no_change() {
        let mut draft = Draft::new(&Value::Null, 1, now("2026-01-01T00:00:00Z"));
        draft.condition("A", true, "R", "m");
        let before = draft.status.clone();
        let mut again = Draft::new(&before, 2, now("2026-01-01T00:05:00Z"));
        again.condition("A", true, "R", "m");
        assert_eq!(again.status, before);
        again.condition("A", true, "R", &"é".repeat(40_000));
        assert!(text(condition(&again.status, "A").unwrap(), &["message"]).len() <= LONGEST);
    }
}
