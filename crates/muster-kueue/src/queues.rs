//! The statuses of queues and cohorts, and the finalizers of what is in use.
//!
//! In: an object and what the books say of it. Out: its new status, or the finalizers that it should have. The words are Kueue's.

use jiff::Timestamp;
use muster_admit::reason::Inactive;
use muster_runtime::object::Meta;
use muster_translate::kueue::words;
use serde_json::{Value, json};

use crate::brain::{FlavorFacts, QueueFacts};
use crate::keys::{self, condition as kind};
use crate::object::{ClusterQueue, LocalQueue, text};
use crate::status::Draft;

pub fn cluster_queue(
    queue: &ClusterQueue,
    facts: &QueueFacts,
    inactive: Option<&Inactive>,
    now: Timestamp,
) -> Value {
    let mut draft = Draft::new(queue.status(), queue.metadata.generation, now);
    let (is, reason, message) = if queue.metadata.deleting() {
        (false, "Terminating", "Can't admit new workloads; clusterQueue is terminating".to_owned())
    } else {
        match inactive {
            None => (true, "Ready", "Can admit new workloads".to_owned()),
            Some(why) => {
                let (reason, words) = why_not(why);
                (false, reason, format!("Can't admit new workloads: {words}."))
            }
        }
    };
    draft.condition(kind::ACTIVE, is, reason, &message);
    counts(&mut draft, facts, true);
    match facts.share {
        Some(share) => draft.set("fairSharing", json!({"weightedShare": share})),
        None => draft.remove("fairSharing"),
    }
    draft.status
}

fn why_not(why: &Inactive) -> (&'static str, String) {
    match why {
        Inactive::Stopped => ("Stopped", "is stopped".into()),
        Inactive::NoFlavor(names) => {
            ("FlavorNotFound", format!("references missing ResourceFlavor(s): {}", names.join(",")))
        }
        Inactive::NoCheck(names) => {
            ("AdmissionCheckNotFound", format!("references missing AdmissionCheck(s): {}", names.join(",")))
        }
        Inactive::CheckInactive(names) => {
            ("AdmissionCheckInactive", format!("references inactive AdmissionCheck(s): {}", names.join(",")))
        }
        Inactive::NoTopology(names) => {
            ("TopologyNotFound", format!("there is no Topology {}", names.join(",")))
        }
        Inactive::Cycle => ("Unknown", "its cohorts are in a cycle".into()),
    }
}

fn counts(draft: &mut Draft, facts: &QueueFacts, with_borrowed: bool) {
    draft.set("pendingWorkloads", json!(facts.pending));
    draft.set("reservingWorkloads", json!(facts.reserving));
    draft.set("admittedWorkloads", json!(facts.admitted));
    draft.set("flavorsReservation", flavors(&facts.reservation, with_borrowed));
    draft.set("flavorsUsage", flavors(&facts.usage, with_borrowed));
}

fn flavors(facts: &[FlavorFacts], with_borrowed: bool) -> Value {
    let one = |flavor: &FlavorFacts| {
        let resources: Vec<Value> = flavor
            .resources
            .iter()
            .map(|(name, total, borrowed)| {
                let mut value = json!({"name": &**name, "total": words::quantity(name, *total)});
                if with_borrowed {
                    value["borrowed"] = json!(words::quantity(name, *borrowed));
                }
                value
            })
            .collect();
        json!({"name": &*flavor.name, "resources": resources})
    };
    Value::Array(facts.iter().map(one).collect())
}

/// `cluster`: whether the cluster queue is there, and takes workloads in.
pub fn local_queue(queue: &LocalQueue, facts: &QueueFacts, cluster: Option<bool>, now: Timestamp) -> Value {
    let mut draft = Draft::new(queue.status(), queue.metadata.generation, now);
    let stopped = !matches!(text(queue.spec(), &["stopPolicy"]), "" | "None");
    let (is, reason, message) = match cluster {
        _ if stopped => (false, "Stopped", "LocalQueue is stopped"),
        None => (false, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"),
        Some(false) => (false, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"),
        Some(true) => (true, "Ready", "Can submit new workloads to localQueue"),
    };
    draft.condition(kind::ACTIVE, is, reason, message);
    counts(&mut draft, facts, false);
    draft.status
}

/// The finalizers that something should have; `None`: those that it has.
pub fn finalizers(meta: &Meta, in_use: bool) -> Option<Vec<String>> {
    let has = meta.finalizers.iter().any(|f| f == keys::IN_USE);
    if meta.deleting() {
        let free = has && !in_use;
        free.then(|| meta.finalizers.iter().filter(|f| *f != keys::IN_USE).cloned().collect())
    } else {
        (!has).then(|| meta.finalizers.iter().cloned().chain([keys::IN_USE.to_owned()]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{condition, list};

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[track_caller]
    fn check(inactive: Option<Inactive>, expected: (&str, &str)) {
        let status =
            cluster_queue(&ClusterQueue::default(), &QueueFacts::default(), inactive.as_ref(), now());
        let active = condition(&status, kind::ACTIVE).unwrap();
        assert_eq!((text(active, &["reason"]), text(active, &["message"])), expected);
    }

    #[test]
    fn why_a_queue_is_not_active() {
        check(None, ("Ready", "Can admit new workloads"));
        check(Some(Inactive::Stopped), ("Stopped", "Can't admit new workloads: is stopped."));
        check(
            Some(Inactive::NoFlavor(vec!["a".into(), "b".into()])),
            ("FlavorNotFound", "Can't admit new workloads: references missing ResourceFlavor(s): a,b."),
        );
        check(
            Some(Inactive::CheckInactive(vec!["c".into()])),
            (
                "AdmissionCheckInactive",
                "Can't admit new workloads: references inactive AdmissionCheck(s): c.",
            ),
        );
    }

    #[test]
    fn what_is_used_and_borrowed() {
        let flavor = FlavorFacts {
            name: "f".into(),
            resources: vec![("cpu".into(), 1500, 500), ("memory".into(), 1 << 30, 0)],
        };
        let facts = QueueFacts {
            pending: 1,
            reserving: 2,
            reservation: vec![flavor],
            share: Some(7),
            ..Default::default()
        };
        let status = cluster_queue(&ClusterQueue::default(), &facts, None, now());
        assert_eq!(
            list(&status, &["flavorsReservation"])[0],
            json!({"name": "f", "resources": [
                {"name": "cpu", "total": "1500m", "borrowed": "500m"},
                {"name": "memory", "total": "1Gi", "borrowed": "0"}]})
        );
        assert_eq!(
            (&status["pendingWorkloads"], &status["fairSharing"]["weightedShare"]),
            (&json!(1), &json!(7))
        );
    }

    #[track_caller]
    fn check_local(policy: &str, cluster: Option<bool>, expected: &str) {
        let queue = LocalQueue { body: json!({"spec": {"stopPolicy": policy}}), ..Default::default() };
        let status = local_queue(&queue, &QueueFacts::default(), cluster, now());
        assert_eq!(text(condition(&status, kind::ACTIVE).unwrap(), &["reason"]), expected);
    }

    #[test]
    fn local_queues() {
        check_local("None", Some(true), "Ready");
        check_local("", Some(false), "ClusterQueueIsInactive");
        check_local("", None, "ClusterQueueDoesNotExist");
        check_local("Hold", Some(true), "Stopped");
    }

    #[test]
    fn what_is_in_use_stays() {
        let meta = |deleting: bool, finalizers: &[&str]| Meta {
            deletion_timestamp: deleting.then(now),
            finalizers: finalizers.iter().map(|f| (*f).to_owned()).collect(),
            ..Meta::default()
        };
        assert_eq!(finalizers(&meta(false, &["x"]), false), Some(vec!["x".into(), keys::IN_USE.into()]));
        assert_eq!(finalizers(&meta(false, &[keys::IN_USE]), false), None);
        assert_eq!(finalizers(&meta(true, &[keys::IN_USE, "x"]), true), None);
        assert_eq!(finalizers(&meta(true, &[keys::IN_USE, "x"]), false), Some(vec!["x".into()]));
        assert_eq!(finalizers(&meta(true, &[]), false), None);
    }
}
