//! Koordinator's PodGroups and ElasticQuotas: their statuses. Neither has a status of its own in the API: it is patched as a part of the
//! object, so that nobody's spec is ever written back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_quantity::{Format, Quantity};
use muster_runtime::clock::stamp;
use muster_translate::koordinator::{Part, Quotas};
use serde_json::{Map, Value, json};

use super::books::Totals;
use super::{ElasticQuota, KoordinatorGroup, Parts, changed_counts};
use crate::accounts::plan::Counts;
use crate::amounts::Amounts;
use crate::podgroups::plan::changed_lists;

const REQUEST: &str = "quota.scheduling.koordinator.sh/request";
const RUNTIME: &str = "quota.scheduling.koordinator.sh/runtime";

pub fn group_patch(group: &KoordinatorGroup, totals: &Totals, now: Timestamp) -> Option<Value> {
    let all = totals.all();
    let text = |field: &str| group.status.get(field).and_then(Value::as_str).unwrap_or("");
    let before = text("phase");
    let counts = [
        ("scheduled", all.starting + all.running),
        ("running", all.running),
        ("succeeded", all.succeeded),
        ("failed", all.failed),
    ];
    let mut status = changed_counts(&group.status, &counts);
    let phase = phase(before, group.count("minMember").unwrap_or(0), &all);
    if phase != before {
        status.insert("phase".to_owned(), json!(phase));
    }
    let owners = totals.owners.keys().map(String::as_str).collect::<Vec<_>>().join(",");
    if all.all() > 0 && owners != text("occupiedBy") {
        status.insert("occupiedBy".to_owned(), json!(owners));
    }
    let begins = matches!(phase, "PreScheduling" | "Scheduling") && matches!(before, "" | "Pending");
    if begins || (text("scheduleStartTime").is_empty() && all.placed() > 0) {
        status.insert("scheduleStartTime".to_owned(), json!(stamp(now)));
    }
    (!status.is_empty()).then(|| json!({"status": status}))
}

/// Where a group is in its life. What has ended stays so.
fn phase<'a>(before: &'a str, min: usize, counts: &Counts) -> &'a str {
    let done = counts.running + counts.succeeded;
    match before {
        "Finished" | "Failed" => before,
        _ if counts.all() == 0 => "Pending",
        _ if counts.failed > 0 && counts.failed + done >= min => "Failed",
        _ if counts.succeeded > 0 && counts.succeeded >= min => "Finished",
        _ if done > 0 && done >= min => "Running",
        _ if counts.placed() > 0 && counts.placed() >= min => "Scheduled",
        _ if counts.placed() > 0 => "Scheduling",
        _ if counts.all() - counts.leaving >= min => "PreScheduling",
        _ => "Pending",
    }
}

/// What every quota asks for, may use and uses, from what pods say of quotas and what the cluster has.
pub fn shares<'a>(
    quotas: &Quotas,
    pods: impl Iterator<Item = (&'a str, Option<&'a str>, &'a Totals)>,
    cluster: &Amounts,
) -> BTreeMap<String, Share> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    let mut demand = BTreeMap::new();
    for (namespace, named, totals) in pods {
        let quota = quotas.of_pod(namespace, named);
        let asked: &mut [i128; 3] = demand.entry(quota.clone()).or_default();
        for (sum, amount) in asked.iter_mut().zip(trio(&totals.requested)) {
            *sum += amount;
        }
        // What is used below a quota is used of it.
        for name in std::iter::once(quota.clone()).chain(quotas.above(&quota)) {
            shares.entry(name.to_string()).or_default().used.add_all(&totals.allocated);
        }
    }
    for (name, part) in quotas.divide(&demand, &trio(cluster)) {
        shares.entry(name.to_string()).or_default().part = Some(part);
    }
    shares
}

/// CPU in milli-cores, memory in bytes, GPUs in thousandths.
fn trio(amounts: &Amounts) -> [i128; 3] {
    let milli = |quantity: Quantity| quantity.nano() / 1_000_000;
    [milli(amounts.get("cpu")), amounts.get("memory").nano() / 1_000_000_000, milli(amounts.gpus())]
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Share {
    pub used: Amounts,
    /// Of quotas that take part in the division.
    pub part: Option<Part>,
}

pub fn quota_patch(quota: &ElasticQuota, share: &Share) -> Option<Value> {
    let mut patch = Map::new();
    let max = quota.spec.get("max").and_then(Value::as_object);
    let bounded = |name: &str| max.is_some_and(|max| max.contains_key(name));
    let mut used = share.used.clone();
    used.retain(bounded);
    let old = quota.status.get("used").map(|used| json!({"used": used}));
    if let Some(lists) = changed_lists(old.as_ref(), &[("used", &used)]) {
        patch.insert("status".to_owned(), lists);
    }
    let mut annotations = Map::new();
    if let Some(part) = &share.part {
        for (key, amounts) in [(REQUEST, &part.asked), (RUNTIME, &part.may)] {
            let names = max.into_iter().flatten().map(|(name, _)| name.as_str());
            let list: Amounts = listed(names, amounts);
            let said =
                quota.metadata.annotation(key).and_then(|text| serde_json::from_str::<Value>(text).ok());
            if said.is_none() || !list.same_as(said.as_ref()) {
                annotations.insert(key.to_owned(), json!(list.to_json().to_string()));
            }
        }
    }
    if !annotations.is_empty() {
        patch.insert("metadata".to_owned(), json!({"annotations": annotations}));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The amounts of those resources that are named.
fn listed<'a>(names: impl Iterator<Item = &'a str>, [cpu, memory, gpu]: &[i128; 3]) -> Amounts {
    let mut list = Amounts::new();
    for name in names {
        let nano = match name {
            "cpu" => cpu.saturating_mul(1_000_000),
            "memory" => memory.saturating_mul(1_000_000_000),
            name if name.ends_with("gpu") && name != "koordinator.sh/gpu" => gpu.saturating_mul(1_000_000),
            _ => continue,
        };
        list.set(name, Quantity::from_nano(nano, Format::DecimalSi));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn counts(set: impl FnOnce(&mut Counts)) -> Counts {
        let mut counts = Counts::default();
        set(&mut counts);
        counts
    }

    #[track_caller]
    fn check_phase(before: &str, min: usize, set: impl FnOnce(&mut Counts), expected: &str) {
        assert_eq!(phase(before, min, &counts(set)), expected);
    }

    #[test]
    fn phases() {
        check_phase("", 2, |_| (), "Pending");
        check_phase("Running", 2, |_| (), "Pending");
        check_phase("Pending", 2, |c| c.waiting = 1, "Pending");
        check_phase("Pending", 2, |c| c.waiting = 2, "PreScheduling");
        check_phase("PreScheduling", 2, |c| (c.starting, c.waiting) = (1, 1), "Scheduling");
        check_phase("Scheduling", 2, |c| c.starting = 2, "Scheduled");
        check_phase("Scheduled", 2, |c| (c.starting, c.running) = (1, 1), "Scheduled");
        check_phase("Scheduled", 2, |c| c.running = 2, "Running");
        check_phase("Running", 2, |c| (c.running, c.succeeded) = (1, 1), "Running");
        check_phase("Running", 2, |c| c.succeeded = 2, "Finished");
        check_phase("Running", 2, |c| (c.running, c.failed) = (1, 1), "Failed");
        check_phase("Finished", 2, |c| c.waiting = 2, "Finished");
        check_phase("Pending", 0, |c| c.waiting = 1, "PreScheduling");
    }

    #[test]
    fn groups() {
        let group: KoordinatorGroup = serde_json::from_value(json!({"spec": {"minMember": 1}})).unwrap();
        let totals = Totals {
            roles: [(String::new(), counts(|c| c.running = 1))].into(),
            owners: [("n/job".to_owned(), 1)].into(),
            ..Totals::default()
        };
        let patch = group_patch(&group, &totals, now()).unwrap();
        assert_eq!(
            patch,
            json!({"status": {"phase": "Running", "scheduled": 1, "running": 1, "occupiedBy": "n/job",
                              "scheduleStartTime": "2026-01-01T00:00:00Z"}})
        );
        let said: KoordinatorGroup =
            serde_json::from_value(json!({"spec": {"minMember": 1}, "status": patch["status"]})).unwrap();
        assert_eq!(group_patch(&said, &totals, now()), None);
    }

    #[test]
    fn quotas() {
        let objects = [
            json!({"metadata": {"name": "a", "annotations": {"quota.scheduling.koordinator.sh/shared-weight": "{\"cpu\":\"1\"}"}},
                   "spec": {"min": {"cpu": 1}, "max": {"cpu": 10, "memory": "1Gi"}}}),
            json!({"metadata": {"name": "b", "annotations": {"quota.scheduling.koordinator.sh/shared-weight": "{\"cpu\":\"1\"}"}},
                   "spec": {"min": {"cpu": 1}, "max": {"cpu": 10}}}),
        ];
        let amounts = |cpu: &str| Amounts::read(&[("cpu".to_owned(), cpu.to_owned())].into());
        let totals = |asked: &str, held: &str| Totals {
            requested: amounts(asked),
            allocated: amounts(held),
            ..Totals::default()
        };
        let (a, b) = (totals("8", "500m"), totals("8", "0"));
        let pods = [("n", Some("a"), &a), ("n", Some("b"), &b)];
        let shares = shares(&Quotas::read(&objects), pods.into_iter(), &amounts("10"));
        let quota: ElasticQuota = serde_json::from_value(objects[0].clone()).unwrap();
        let patch = quota_patch(&quota, &shares["a"]).unwrap();
        assert_eq!(
            patch,
            json!({"status": {"used": {"cpu": "500m"}}, "metadata": {"annotations": {
                REQUEST: "{\"cpu\":\"8\"}", RUNTIME: "{\"cpu\":\"5\"}",
            }}})
        );
        let mut told = quota.clone();
        for (key, text) in patch["metadata"]["annotations"].as_object().unwrap() {
            told.metadata.annotations.insert(key.clone(), text.as_str().unwrap().to_owned());
        }
        told.status.insert("used".into(), json!({"cpu": "0.5"}));
        assert_eq!(quota_patch(&told, &shares["a"]), None);
    }
}
