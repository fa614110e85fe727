//! What a Deployment reports of itself.
//!
//! In: the Deployment and its ReplicaSets. Out: the status, and when to look again for the progress deadline.
//! Must stay true: `kubectl rollout status` reads from this when a rollout is done, stuck or on its way.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Deployment;
use super::plan::find_new;
use crate::clock::{later, until, whole};
use crate::object::{Condition, ReplicaSet, condition};

/// What just happened that the counts do not show.
#[derive(Debug, Clone, Default)]
pub struct News {
    pub created: Option<String>,
    pub failure: Option<(String, String)>,
    pub collided: bool,
    /// The revision that the Deployment is to be marked with.
    pub revision: Option<String>,
}

pub fn status(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    news: &News,
    now: Timestamp,
) -> (Value, Option<Duration>) {
    let now = whole(now);
    let new = find_new(deployment, sets);
    let sum = |field: &str| sets.iter().fold(0_i64, |sum, s| sum.saturating_add(s.count(field)));
    let spec_total = sets.iter().fold(0_i64, |sum, s| sum.saturating_add(s.replicas()));
    let old = |field: &str| deployment.status.get(field).and_then(Value::as_i64).unwrap_or(0);
    let counts = Counts {
        replicas: sum("replicas"),
        updated: new.map_or(0, |n| n.count("replicas")),
        ready: sum("readyReplicas"),
        available: sum("availableReplicas"),
    };
    let before = Counts {
        replicas: old("replicas"),
        updated: old("updatedReplicas"),
        ready: old("readyReplicas"),
        available: old("availableReplicas"),
    };
    let conditions: Vec<Condition> = deployment
        .status
        .get("conditions")
        .and_then(|c| serde_json::from_value(c.clone()).ok())
        .unwrap_or_default();

    let mut wanted: Vec<Condition> = Vec::new();
    let want = deployment.replicas();
    let (_, unavailable) = deployment.slack();
    let enough = counts.available >= want - unavailable;
    wanted.push(if enough {
        make("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.".into())
    } else {
        make(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.".into(),
        )
    });
    let (progress, wake) = progressing(deployment, new, counts, before, &conditions, news, now);
    wanted.extend(progress);
    if let Some((reason, message)) = &news.failure {
        wanted.push(make("ReplicaFailure", "True", reason, message.clone()));
    } else if let Some(failure) = sets.iter().find_map(|s| replica_failure(s)) {
        wanted.push(failure);
    }
    for condition in &mut wanted {
        stamp_condition(condition, &conditions, now);
    }

    let mut out = Map::new();
    out.insert("observedGeneration".into(), json!(deployment.metadata.generation));
    out.insert("replicas".into(), json!(counts.replicas));
    out.insert("updatedReplicas".into(), json!(counts.updated));
    out.insert("readyReplicas".into(), json!(counts.ready));
    out.insert("availableReplicas".into(), json!(counts.available));
    out.insert("unavailableReplicas".into(), json!((spec_total - counts.available).max(0)));
    out.insert("terminatingReplicas".into(), json!(sum("terminatingReplicas")));
    let collisions = old("collisionCount") + i64::from(news.collided);
    if collisions > 0 {
        out.insert("collisionCount".into(), json!(collisions));
    }
    out.insert("conditions".into(), json!(wanted));
    (Value::Object(out), wake)
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
}

fn progressing(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    counts: Counts,
    before: Counts,
    conditions: &[Condition],
    news: &News,
    now: Timestamp,
) -> (Option<Condition>, Option<Duration>) {
    let old = condition(conditions, "Progressing");
    let deadline = deployment.spec.progress_deadline_seconds.filter(|s| *s < i64::from(i32::MAX));
    if deployment.spec.paused {
        let paused = make("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused".into());
        return (deadline.map(|_| paused), None);
    }
    let Some(deadline) = deadline else { return (None, None) };
    let what = match (new, &news.created) {
        (Some(new), _) => format!("ReplicaSet \"{}\"", new.metadata.name),
        (None, Some(name)) => format!("ReplicaSet \"{name}\""),
        (None, None) => format!("Deployment \"{}\"", deployment.metadata.name),
    };
    if let Some(name) = &news.created {
        let made = make(
            "Progressing",
            "True",
            "NewReplicaSetCreated",
            format!("Created new replica set \"{name}\""),
        );
        return (Some(made), Some(deadline_in(now, now, deadline)));
    }
    let want = deployment.replicas();
    let complete = counts.updated == want && counts.replicas == want && counts.available == want;
    if complete && new.is_some() {
        let done = make(
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            format!("{what} has successfully progressed."),
        );
        return (Some(done), None);
    }
    // A rollout that was done stays done while single pods come and go.
    if let Some(old) = old
        && old.reason == "NewReplicaSetAvailable"
        && counts.replicas == counts.updated
    {
        return (Some(old.clone()), None);
    }
    let moved = counts.updated > before.updated
        || counts.replicas - counts.updated < before.replicas - before.updated
        || counts.ready > before.ready
        || counts.available > before.available;
    let resumed = old.is_some_and(|c| c.reason == "DeploymentPaused");
    if resumed {
        let going = make("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed".into());
        return (Some(going), Some(deadline_in(now, now, deadline)));
    }
    let since = old.and_then(|c| c.last_update_time.or(c.last_transition_time)).unwrap_or(now);
    let waited = now.duration_since(since).as_secs();
    if !moved && old.is_some_and(|c| c.reason == "ProgressDeadlineExceeded") {
        return (old.cloned(), None);
    }
    if !moved && old.is_some() && waited >= deadline {
        let stuck = make(
            "Progressing",
            "False",
            "ProgressDeadlineExceeded",
            format!("{what} has timed out progressing."),
        );
        return (Some(stuck), None);
    }
    if !moved && let Some(old) = old {
        let wake = deadline_in(now, since, deadline);
        // A new template begins a new rollout, whose deadline counts from now.
        if old.reason != "NewReplicaSetAvailable" {
            return (Some(old.clone()), Some(wake));
        }
    }
    let going = make("Progressing", "True", "ReplicaSetUpdated", format!("{what} is progressing."));
    let going = Condition { last_update_time: Some(now), ..going };
    (Some(going), Some(deadline_in(now, now, deadline)))
}

fn deadline_in(now: Timestamp, since: Timestamp, seconds: i64) -> Duration {
    let limit = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    until(now, later(since, limit)) + Duration::from_secs(1)
}

fn replica_failure(set: &ReplicaSet) -> Option<Condition> {
    let conditions: Vec<Condition> = serde_json::from_value(set.status.get("conditions")?.clone()).ok()?;
    let failure = condition(&conditions, "ReplicaFailure")?;
    Some(make("ReplicaFailure", &failure.status, &failure.reason, failure.message.clone()))
}

fn make(kind: &str, status: &str, reason: &str, message: String) -> Condition {
    Condition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        ..Condition::default()
    }
}

/// Times change only with what they time: the transition with the status, the update with any of it.
fn stamp_condition(new: &mut Condition, old: &[Condition], now: Timestamp) {
    let before = condition(old, &new.kind);
    let same_status = before.filter(|b| b.status == new.status);
    new.last_transition_time = Some(same_status.and_then(|b| b.last_transition_time).unwrap_or(now));
    if new.last_update_time.is_none() {
        let same = same_status.filter(|b| b.reason == new.reason && b.message == new.message);
        new.last_update_time = Some(same.and_then(|b| b.last_update_time).unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn set(name: &str, image: &str, spec: i64, ready: i64) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"replicas": spec, "template": {"spec": image}},
                "status": {"replicas": spec, "readyReplicas": ready, "availableReplicas": ready},
            }))
            .unwrap(),
        )
    }

    fn deployment(replicas: i64) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns", "generation": 2},
            "spec": {"replicas": replicas, "template": {"spec": "v1"}, "progressDeadlineSeconds": 60},
        }))
        .unwrap()
    }

    fn show(status: &Value) -> String {
        let conditions: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).unwrap();
        let shown: Vec<String> =
            conditions.iter().map(|c| format!("{}={}({})", c.kind, c.status, c.reason)).collect();
        format!(
            "{}/{}/{}/{} {}",
            status["replicas"],
            status["updatedReplicas"],
            status["availableReplicas"],
            status["unavailableReplicas"],
            shown.join(" ")
        )
    }

    /// Feeds each status back in, as the API does.
    #[track_caller]
    fn check(steps: &[(i64, i64, &str)]) {
        let mut d = deployment(2);
        for (seconds, ready, expected) in steps {
            let (status, _) = status(&d, &[set("s", "v1", 2, *ready)], &News::default(), at(*seconds));
            assert_eq!(show(&status), *expected, "at {seconds}");
            d.status = status;
        }
    }

    #[test]
    fn a_rollout_that_succeeds() {
        check(&[
            (0, 0, "2/2/0/2 Available=False(MinimumReplicasUnavailable) Progressing=True(ReplicaSetUpdated)"),
            (5, 1, "2/2/1/1 Available=False(MinimumReplicasUnavailable) Progressing=True(ReplicaSetUpdated)"),
            (
                9,
                2,
                "2/2/2/0 Available=True(MinimumReplicasAvailable) Progressing=True(NewReplicaSetAvailable)",
            ),
            (
                500,
                1,
                "2/2/1/1 Available=False(MinimumReplicasUnavailable) Progressing=True(NewReplicaSetAvailable)",
            ),
        ]);
    }

    #[test]
    fn a_rollout_that_is_stuck() {
        check(&[
            (0, 1, "2/2/1/1 Available=False(MinimumReplicasUnavailable) Progressing=True(ReplicaSetUpdated)"),
            (
                59,
                1,
                "2/2/1/1 Available=False(MinimumReplicasUnavailable) Progressing=True(ReplicaSetUpdated)",
            ),
            (
                60,
                1,
                "2/2/1/1 Available=False(MinimumReplicasUnavailable) Progressing=False(ProgressDeadlineExceeded)",
            ),
            (
                90,
                1,
                "2/2/1/1 Available=False(MinimumReplicasUnavailable) Progressing=False(ProgressDeadlineExceeded)",
            ),
            (
                99,
                2,
                "2/2/2/0 Available=True(MinimumReplicasAvailable) Progressing=True(NewReplicaSetAvailable)",
            ),
        ]);
    }

    #[test]
    fn a_settled_status_does_not_change() {
        let mut d = deployment(2);
        let sets = [set("s", "v1", 2, 2)];
        d.status = status(&d, &sets, &News::default(), at(0)).0;
        assert_eq!(status(&d, &sets, &News::default(), at(1000)).0, d.status);
    }

    #[test]
    fn a_deadline_wakes() {
        let d = deployment(2);
        let (_, wake) = status(&d, &[set("s", "v1", 2, 0)], &News::default(), at(0));
        assert_eq!(wake, Some(Duration::from_secs(61)));
    }
}
