//! Whole cycles, as Kueue's scheduler steps: one head per queue and cycle, and nobody acts in between but the steps of the case.

use super::{World, words};
use muster_admit::reason::Waits;
use muster_admit::spec::{Delayed, Reservation};
use muster_admit::{Cycle, Recomputed};
use muster_model::{Key, Name};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What happened in all cycles of a run.
#[derive(Default)]
struct Course {
    admitted: BTreeMap<Key, Reservation>,
    reassigned: BTreeMap<Key, Reservation>,
    preempted: BTreeMap<Key, &'static str>,
    evicted: BTreeMap<Key, &'static str>,
    finished: BTreeMap<Key, &'static str>,
    skipped: BTreeMap<Name, u32>,
    recomputed: BTreeMap<Name, Map<String, Value>>,
    conditions: BTreeMap<Key, Map<String, Value>>,
    first: Option<(Vec<String>, Vec<String>)>,
}

pub(super) fn run(world: &mut World, case: &Value) -> Result<Value, String> {
    consumed(world);
    let mut course = Course::default();
    match case.get("steps").and_then(Value::as_array) {
        Some(steps) => {
            for step in steps {
                take(world, step, &mut course)?;
            }
        }
        None => {
            let cycles = case.get("cycles").and_then(Value::as_u64).unwrap_or(1).clamp(1, 1000);
            for _ in 0..cycles {
                cycle(world, &mut course);
            }
        }
    }
    Ok(written(world, &course))
}

/// What local queues used before the case began.
fn consumed(world: &mut World) {
    let given = world.given.get("localQueueConsumed").cloned().unwrap_or(Value::Null);
    for (queue, resources) in given.as_object().into_iter().flatten() {
        let Some((namespace, name)) = queue.split_once('/') else { continue };
        let amounts = resources.as_object().into_iter().flatten().filter_map(|(resource, amount)| {
            let quantity: k8s_quantity::Quantity = amount.as_str()?.parse().ok()?;
            Some((resource.as_str().into(), quantity.milli_value()))
        });
        let amounts = amounts.collect();
        world.state.ledger.set(Key::new(namespace, name), amounts, Some(world.now));
    }
}

fn take(world: &mut World, step: &Value, course: &mut Course) -> Result<(), String> {
    let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or("");
    let key = || match text("key").split_once('/') {
        Some((namespace, name)) => Key::new(namespace, name),
        None => Key::new("", text("key")),
    };
    match text("op") {
        "cycle" => cycle(world, course),
        "deleteWorkload" => {
            let queue = world.state.by_key.get(&key()).and_then(|id| world.state.wl(*id).queue);
            world.state.drop_workload(&key());
            if let Some(queue) = queue {
                world.state.wake(queue, world.now);
            }
            let gone = key();
            course.preempted.remove(&gone);
            course.admitted.remove(&gone);
            course.evicted.remove(&gone);
        }
        "requeueInadmissible" => {
            for queue in world.state.tree.queue_ids() {
                world.state.wake_queue(queue, world.now);
            }
        }
        "setNominalQuota" => {
            let quantity: k8s_quantity::Quantity = step
                .get("nominalQuota")
                .or_else(|| step.get("value"))
                .and_then(Value::as_str)
                .and_then(|q| q.parse().ok())
                .ok_or("steps: setNominalQuota needs a quantity")?;
            let amount = muster_translate::kueue::amount(text("resource"), quantity);
            let queue = world
                .state
                .queue_specs
                .get_mut(text("clusterQueue"))
                .ok_or("steps: setNominalQuota names no cluster queue")?;
            let quotas = queue.groups.iter_mut().flat_map(|g| &mut g.flavors);
            let quotas = quotas.filter(|f| &*f.flavor == text("flavor")).flat_map(|f| &mut f.quotas);
            quotas.filter(|q| &*q.resource == text("resource")).for_each(|q| q.nominal = amount);
            world.state.touch();
            world.state.settle(world.now);
        }
        // What the queues know they keep.
        "deleteApiObjectOnly" => {}
        other => return Err(format!("steps: {other:?} is no step")),
    }
    Ok(())
}

fn cycle(world: &mut World, course: &mut Course) {
    let mut cycle = world.state.cycle(world.now);
    if world.given.get("apiStatusWriteError").is_some() {
        for admitted in std::mem::take(&mut cycle.admitted) {
            world.state.roll_back(&admitted.key, world.now);
        }
        cycle.waiting.clear();
    }
    record(world, cycle, course);
}

fn record(world: &World, cycle: Cycle, course: &mut Course) {
    if course.first.is_none() {
        let keys = |keys: Vec<&Key>| keys.into_iter().map(ToString::to_string).collect();
        course.first = Some((
            keys(cycle.admitted.iter().map(|a| &a.key).collect()),
            keys(cycle.preempted.iter().map(|p| &p.key).collect()),
        ));
    }
    let set = |course: &mut Course, key: &Key, kind: &str, status: &str, reason: &str, message: String| {
        let value = json!({"status": status, "reason": reason, "message": message});
        course.conditions.entry(key.clone()).or_default().insert(kind.into(), value);
    };
    for admitted in cycle.admitted {
        let key = &admitted.key;
        let message = format!("Quota reserved in ClusterQueue {}", admitted.reservation.cluster_queue);
        set(course, key, "QuotaReserved", "True", "QuotaReserved", message);
        if admitted.reservation.admitted {
            set(course, key, "Admitted", "True", "Admitted", "The workload is admitted".into());
        } else {
            let message = "The workload has not all checks ready".into();
            set(course, key, "Admitted", "False", "UnsatisfiedAdmissionChecks", message);
        }
        let to = if admitted.again { &mut course.reassigned } else { &mut course.admitted };
        to.insert(admitted.key, admitted.reservation);
    }
    for preempted in cycle.preempted {
        let by = world.state.by_key.get(&preempted.by).map(|id| &world.state.wl(*id).spec);
        let (uid, job) = by.map_or(("", ""), |w| (&*w.uid, &*w.job_uid));
        let message = words::preemption_message(&preempted, uid, job);
        let cause = words::cause(preempted.cause);
        set(course, &preempted.key, "Evicted", "True", "Preempted", message.clone());
        set(course, &preempted.key, "Preempted", "True", cause, message);
        course.preempted.insert(preempted.key, cause);
    }
    for (key, why) in cycle.evicted {
        let message = words::eviction_message(&why, "");
        set(course, &key, "Evicted", "True", words::eviction(&why), message);
        course.evicted.insert(key, words::eviction(&why));
    }
    for (old, _) in cycle.replaced {
        course.finished.insert(old, "WorkloadSliceReplaced");
    }
    for waiting in &cycle.waiting {
        let message = "The workload has no reservation".into();
        set(course, &waiting.key, "Admitted", "False", "NoReservation", message);
        let (reason, message) = (words::waits(&waiting.why), words::message(waiting));
        if waiting.why == Waits::Gated {
            set(course, &waiting.key, "BlockedOnPreemptionGates", "True", "PreemptionGated", message.clone());
        }
        set(course, &waiting.key, "QuotaReserved", "False", reason, message);
    }
    for (queue, n) in cycle.skipped {
        *course.skipped.entry(queue).or_default() += n;
    }
    for ((queue, what), n) in cycle.recomputed {
        let what = match what {
            Recomputed::NewTargets => "new_targets",
            Recomputed::Deferred => "deferred_fit",
            Recomputed::NoTargets => "no_targets",
        };
        course.recomputed.entry(queue).or_default().insert(what.into(), json!(n));
    }
}

fn reservation(reservation: &Reservation) -> Value {
    let sets: Vec<Value> = reservation
        .pod_sets
        .iter()
        .map(|set| {
            let map = |names: &BTreeMap<Name, Name>| -> Map<String, Value> {
                names.iter().map(|(k, v)| (k.to_string(), json!(&**v))).collect()
            };
            let usage: Map<String, Value> =
                set.usage.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
            let mut value = json!({
                "name": &*set.name,
                "flavors": map(&set.flavors),
                "count": set.count,
                "resourceUsage": usage,
            });
            if let Some(places) = &set.topology {
                value["topologyAssignment"] = super::ops::topology(places);
            }
            if let Some(delayed) = set.delayed {
                value["delayedTopologyRequest"] = match delayed {
                    Delayed::Pending => json!("Pending"),
                    Delayed::Ready => json!("Ready"),
                };
            }
            value
        })
        .collect();
    let state = if reservation.admitted { "Admitted" } else { "QuotaReserved" };
    json!({"clusterQueue": &*reservation.cluster_queue, "podSets": sets, "state": state})
}

fn written(world: &World, course: &Course) -> Value {
    let state = &world.state;
    let reservations = |map: &BTreeMap<Key, Reservation>| -> Map<String, Value> {
        map.iter().map(|(key, r)| (key.to_string(), reservation(r))).collect()
    };
    let reasons = |map: &BTreeMap<Key, &'static str>| -> Map<String, Value> {
        map.iter().map(|(key, reason)| (key.to_string(), json!(reason))).collect()
    };
    let (mut pending, mut parked, mut queues) = (Vec::new(), Vec::new(), Map::new());
    for queue in state.tree.queue_ids() {
        let line = &state.queues[queue].line;
        let keys = |ids: Vec<muster_admit::ids::WorkloadId>| -> Vec<String> {
            let mut keys: Vec<String> = ids.iter().map(|id| state.wl(*id).spec.key.to_string()).collect();
            keys.sort();
            keys
        };
        let (waiting, aside) = (keys(line.waiting().collect()), keys(line.parked().collect()));
        if !waiting.is_empty() || !aside.is_empty() {
            let value = json!({"pending": waiting, "inadmissible": aside});
            queues.insert(state.tree.nodes[queue].name.to_string(), value);
        }
        pending.extend(waiting);
        parked.extend(aside);
    }
    let skipped: Map<String, Value> = state
        .tree
        .queue_ids()
        .map(|q| &state.tree.nodes[q].name)
        .map(|name| (name.to_string(), json!(course.skipped.get(name).copied().unwrap_or(0))))
        .collect();
    let recomputed: Map<String, Value> =
        course.recomputed.iter().map(|(q, m)| (q.to_string(), Value::Object(m.clone()))).collect();
    let conditions: Map<String, Value> =
        course.conditions.iter().map(|(key, m)| (key.to_string(), Value::Object(m.clone()))).collect();
    let waiting: Map<String, Value> = course
        .conditions
        .iter()
        .filter_map(|(key, conditions)| {
            let reserved = conditions.get("QuotaReserved")?;
            let waits = reserved.get("status").and_then(Value::as_str) == Some("False");
            waits.then(|| (key.to_string(), reserved["reason"].clone()))
        })
        .collect();
    let (admitted_first, preempted_first) = course.first.clone().unwrap_or_default();
    json!({
        "admitted": reservations(&course.admitted),
        "reassigned": reservations(&course.reassigned),
        "preempted": reasons(&course.preempted),
        "evicted": reasons(&course.evicted),
        "finished": reasons(&course.finished),
        "pending": pending,
        "inadmissible": parked,
        "queues": queues,
        "skippedPreemptions": skipped,
        "preemptionTargetRecomputations": recomputed,
        "conditions": conditions,
        "waiting": waiting,
        "admittedAfterFirstCycle": admitted_first,
        "preemptedAfterFirstCycle": preempted_first,
    })
}
