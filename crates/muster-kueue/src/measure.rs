//! What is measured, under Kueue's names.
//!
//! In: workloads as they were and as they are, and the facts of queues. Out: the numbers of `metrics.kueue`. Must stay true: a change is counted
//! when it is seen to happen, so what was so when we came is not counted; series of queues that are gone go with them.

use jiff::Timestamp;
use k8s_quantity::Quantity;
use muster_runtime::Key;
use muster_runtime::clock::until;
use muster_runtime::metrics::{By, Gauge, Kueue};
use serde_json::Value;

use crate::brain::{FlavorFacts, QueueFacts};
use crate::keys::condition as kind;
use crate::object::{ClusterQueue, Workload, at, condition, list, text, time};

/// A workload changed.
pub fn workload(metrics: &Kueue, old: &Workload, new: &Workload, now: Timestamp) {
    let became = |what: &str| new.holds(what) && !old.holds(what);
    let since = |from: Option<Timestamp>| until(from.unwrap_or(now), now);
    let changed_at = |of: &Workload, what: &str| {
        condition(of.status(), what).and_then(|found| time(found, &["lastTransitionTime"]))
    };
    let queue = match new.cluster_queue() {
        "" => old.cluster_queue(),
        queue => queue,
    };
    let queued = if new.holds(kind::REQUEUED) { changed_at(new, kind::REQUEUED) } else { None };
    let queued = Some(queued.unwrap_or(new.metadata.created()));
    if became(kind::QUOTA_RESERVED) {
        metrics.quota_reserved.of([queue]).inc();
        metrics.quota_reserved_wait.of([queue]).took(since(queued));
    }
    if became(kind::ADMITTED) {
        metrics.admitted.of([queue]).inc();
        metrics.admission_wait.of([queue]).took(since(queued));
        if !list(new.status(), &["admissionChecks"]).is_empty() {
            let reserved = changed_at(new, kind::QUOTA_RESERVED);
            metrics.checks_wait.of([queue]).took(since(reserved));
        }
    }
    if became(kind::PODS_READY) {
        metrics.ready_wait.of([queue]).took(since(queued));
        metrics.admitted_until_ready.of([queue]).took(since(changed_at(new, kind::ADMITTED)));
    }
    if became(kind::EVICTED) {
        let reason = condition(new.status(), kind::EVICTED).map_or("", |found| text(found, &["reason"]));
        metrics.evicted.of([queue, reason]).inc();
    }
    if became(kind::FINISHED) {
        metrics.finished.of([queue]).inc();
        if let Some(admitted) = changed_at(old, kind::ADMITTED).filter(|_| old.is_admitted()) {
            metrics.execution.of([queue]).took(since(Some(admitted)));
        }
    }
}

/// The statuses that a cluster queue may have.
const STATUSES: [&str; 3] = ["pending", "active", "terminating"];

/// What stands in the status of a cluster queue.
pub fn cluster_queue(metrics: &Kueue, queue: &ClusterQueue, facts: &QueueFacts, is_active: bool) {
    let name = queue.metadata.name.as_str();
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    metrics.pending.of([name, "active"]).set(count(facts.pending.saturating_sub(facts.inadmissible)));
    metrics.pending.of([name, "inadmissible"]).set(count(facts.inadmissible));
    metrics.reserving_active.of([name]).set(count(facts.reserving));
    metrics.admitted_active.of([name]).set(count(facts.admitted));
    let status = match (queue.metadata.deleting(), is_active) {
        (true, _) => "terminating",
        (false, true) => "active",
        (false, false) => "pending",
    };
    for known in STATUSES {
        metrics.cluster_queue_status.of([name, known]).set(f64::from(u8::from(known == status)));
    }
    if let Some(share) = facts.share {
        metrics.cluster_queue_share.of([name]).set(count(usize::try_from(share).unwrap_or(0)));
    }
    let cohort = text(queue.spec(), &["cohortName"]);
    held(&metrics.resource_reservation, [cohort, name], &facts.reservation);
    held(&metrics.resource_usage, [cohort, name], &facts.usage);
    for flavor in list(queue.spec(), &["resourceGroups"]).iter().flat_map(|group| list(group, &["flavors"])) {
        for resource in list(flavor, &["resources"]) {
            let labels = [cohort, name, text(flavor, &["name"]), text(resource, &["name"])];
            for (family, field) in [
                (&metrics.nominal_quota, "nominalQuota"),
                (&metrics.borrowing_limit, "borrowingLimit"),
                (&metrics.lending_limit, "lendingLimit"),
            ] {
                if let Some(amount) = amount(at(resource, &[field])) {
                    family.of(labels).set(amount);
                }
            }
        }
    }
}

fn held(family: &By<4, Gauge>, [cohort, name]: [&str; 2], flavors: &[FlavorFacts]) {
    for flavor in flavors {
        for (resource, total, _) in &flavor.resources {
            let unit = if &**resource == "cpu" { 1000.0 } else { 1.0 };
            #[expect(clippy::cast_precision_loss, reason = "for display; quota is counted in whole numbers")]
            let total = *total as f64 / unit;
            family.of([cohort, name, &flavor.name, resource]).set(total);
        }
    }
}

fn amount(value: &Value) -> Option<f64> {
    let quantity: Quantity = match value {
        Value::String(text) => text.parse().ok()?,
        Value::Number(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    #[expect(clippy::cast_precision_loss, reason = "for display; quota is counted in whole numbers")]
    Some(quantity.nano() as f64 / 1e9)
}

pub fn local_queue(metrics: &Kueue, key: &Key, facts: &QueueFacts) {
    let labels = [key.name.as_str(), key.namespace.as_str()];
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let [name, namespace] = labels;
    let active = facts.pending.saturating_sub(facts.inadmissible);
    metrics.local_pending.of([name, namespace, "active"]).set(count(active));
    metrics.local_pending.of([name, namespace, "inadmissible"]).set(count(facts.inadmissible));
    metrics.local_reserving.of(labels).set(count(facts.reserving));
    metrics.local_admitted.of(labels).set(count(facts.admitted));
}

/// A cluster queue is gone.
pub fn without_cluster_queue(metrics: &Kueue, name: &str) {
    metrics.pending.retain(|labels| &*labels[0] != name);
    metrics.cluster_queue_status.retain(|labels| &*labels[0] != name);
    for family in [&metrics.reserving_active, &metrics.admitted_active, &metrics.cluster_queue_share] {
        family.retain(|labels| &*labels[0] != name);
    }
    for family in [
        &metrics.resource_reservation,
        &metrics.resource_usage,
        &metrics.nominal_quota,
        &metrics.borrowing_limit,
        &metrics.lending_limit,
    ] {
        family.retain(|labels| &*labels[1] != name);
    }
}

/// A local queue is gone.
pub fn without_local_queue(metrics: &Kueue, key: &Key) {
    let is_other = |name: &str, namespace: &str| name != key.name || namespace != key.namespace;
    metrics.local_pending.retain(|labels| is_other(&labels[0], &labels[1]));
    for family in [&metrics.local_reserving, &metrics.local_admitted] {
        family.retain(|labels| is_other(&labels[0], &labels[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_runtime::Metrics;
    use serde_json::json;

    fn at_second(n: i64) -> Timestamp {
        Timestamp::from_second(n).unwrap()
    }

    /// A workload with these conditions, each since so many seconds.
    fn with(conditions: &[(&str, &str, i64)]) -> Workload {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, reason, since)| {
                json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at_second(*since).to_string()})
            })
            .collect();
        let created = at_second(0).to_string();
        serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns", "creationTimestamp": created}, "spec": {"queueName": "q"},
            "status": {"admission": {"clusterQueue": "cq"}, "conditions": conditions},
        }))
        .unwrap()
    }

    /// The lines of `/metrics` that tell of counters and sums of this name.
    fn shown(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.text();
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(name));
        lines.filter(|line| !line.contains("_bucket")).map(str::to_owned).collect()
    }

    #[test]
    fn what_becomes_of_a_workload() {
        let metrics = Metrics::default();
        let (quota, admitted) =
            ((kind::QUOTA_RESERVED, "QuotaReserved", 10), (kind::ADMITTED, "Admitted", 12));
        let steps = [
            with(&[]),
            with(&[quota]),
            with(&[quota, admitted]),
            with(&[quota, admitted, (kind::PODS_READY, "Started", 15)]),
            with(&[quota, admitted, (kind::EVICTED, "Preempted", 20)]),
            with(&[quota, admitted, (kind::FINISHED, "Succeeded", 30)]),
        ];
        for (i, pair) in steps.windows(2).enumerate() {
            workload(&metrics.kueue, &pair[0], &pair[1], at_second([10, 12, 15, 20, 30][i]));
        }
        // What does not change is not counted again.
        workload(&metrics.kueue, &steps[5], &steps[5], at_second(40));
        for (name, expected) in [
            (
                "kueue_quota_reserved_workloads_total",
                "kueue_quota_reserved_workloads_total{cluster_queue=\"cq\"} 1.0",
            ),
            ("kueue_admitted_workloads_total", "kueue_admitted_workloads_total{cluster_queue=\"cq\"} 1.0"),
            (
                "kueue_admission_wait_time_seconds_sum",
                "kueue_admission_wait_time_seconds_sum{cluster_queue=\"cq\"} 12.0",
            ),
            (
                "kueue_admitted_until_ready_wait_time_seconds_sum",
                "kueue_admitted_until_ready_wait_time_seconds_sum{cluster_queue=\"cq\"} 3.0",
            ),
            (
                "kueue_evicted_workloads_total",
                "kueue_evicted_workloads_total{cluster_queue=\"cq\",reason=\"Preempted\"} 1.0",
            ),
            ("kueue_finished_workloads_total", "kueue_finished_workloads_total{cluster_queue=\"cq\"} 1.0"),
            (
                "kueue_execution_time_seconds_sum",
                "kueue_execution_time_seconds_sum{cluster_queue=\"cq\"} 18.0",
            ),
        ] {
            assert_eq!(shown(&metrics, name), [expected]);
        }
    }

    #[test]
    fn what_queues_hold() {
        let metrics = Metrics::default();
        let queue: ClusterQueue = serde_json::from_value(json!({"metadata": {"name": "cq"}, "spec": {"cohortName": "c",
            "resourceGroups": [{"flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1500m", "lendingLimit": 1}]}]}]}}))
        .unwrap();
        let used = FlavorFacts { name: "f".into(), resources: vec![("cpu".into(), 500, 0)] };
        let facts = QueueFacts { pending: 3, inadmissible: 1, usage: vec![used], ..QueueFacts::default() };
        cluster_queue(&metrics.kueue, &queue, &facts, true);
        local_queue(&metrics.kueue, &Key::new("ns", "lq"), &facts);
        let labels = "cohort=\"c\",cluster_queue=\"cq\",flavor=\"f\",resource=\"cpu\"";
        assert_eq!(
            shown(&metrics, "kueue_cluster_queue_resource_usage"),
            [format!("kueue_cluster_queue_resource_usage{{{labels}}} 0.5")]
        );
        assert_eq!(
            shown(&metrics, "kueue_cluster_queue_nominal_quota"),
            [format!("kueue_cluster_queue_nominal_quota{{{labels}}} 1.5")]
        );
        assert_eq!(shown(&metrics, "kueue_cluster_queue_borrowing_limit"), Vec::<String>::new());
        assert_eq!(
            shown(&metrics, "kueue_pending_workloads"),
            [
                "kueue_pending_workloads{cluster_queue=\"cq\",status=\"active\"} 2.0",
                "kueue_pending_workloads{cluster_queue=\"cq\",status=\"inadmissible\"} 1.0"
            ]
        );
        assert!(shown(&metrics, "local_queue_pending").len() == 2);
        without_cluster_queue(&metrics.kueue, "cq");
        without_local_queue(&metrics.kueue, &Key::new("ns", "lq"));
        assert_eq!(shown(&metrics, "kueue_"), Vec::<String>::new());
    }
}
