//! `scheduling.run.ai/v2` Queue.
//!
//! Units on the wire: GPUs as devices (0.7 is allowed), CPU in milli-cores, memory in 10^6 bytes; -1 is unlimited. What is
//! omitted is 0, so a queue that only speaks of GPUs can run nothing that asks for CPU.

use crate::policies;
use crate::read::{At, Object, quote};
use crate::text::{MOST, thousandths};
use muster_model::{Bound, Name, Queue, Resource, Share, Time};
use std::collections::BTreeMap;

/// Quotas are only compared and summed in wide integers, and people write large ones for "plenty".
const LARGEST: i64 = 1 << 62;
const NANO: i128 = 1_000_000_000;
/// What KAI uses for a queue that names no priority.
const DEFAULT_PRIORITY: i32 = 100;

/// A queue that bounds nothing and deserves everything.
pub(crate) fn unlimited(name: &Name) -> Queue {
    let share = Share { quota: Bound::Unlimited, weight: 1000, ..Share::default() };
    Queue {
        name: name.clone(),
        uid: name.clone(),
        display: None,
        parent: None,
        priority: DEFAULT_PRIORITY,
        created: Time::default(),
        shares: [Resource::Gpu, Resource::Cpu, Resource::Memory].map(|resource| (resource, share)).into(),
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
        reclaim: muster_model::Reclaim::default(),
        usage: BTreeMap::new(),
        tree: muster_model::Dialect::Kai,
        volcano: None,
    }
}

pub(crate) fn queue(object: &Object<'_>) -> Queue {
    let spec = object.get("spec");
    let resources = spec.get("resources");
    if !resources.exists() {
        object.report(
            "spec.resources",
            "is absent, so every quota and limit is 0 and nothing can run; write quota and limit (-1: unlimited) for gpu, cpu and memory",
        );
    }
    let shares =
        [(Resource::Gpu, "gpu", 1000), (Resource::Cpu, "cpu", 1), (Resource::Memory, "memory", 1_000_000)]
            .into_iter()
            .map(|(resource, field, unit)| (resource, share(resources.get(field), unit)))
            .collect();
    let mut queue = Queue {
        name: object.name().into(),
        uid: object.uid(|| object.name().to_owned()),
        display: spec.get("displayName").name(),
        parent: spec.get("parentQueue").name(),
        priority: spec.get("priority").int().map_or(DEFAULT_PRIORITY, clamp),
        created: object.created(),
        shares,
        preempt_min_runtime: spec.get("preemptMinRuntime").duration(),
        reclaim_min_runtime: spec.get("reclaimMinRuntime").duration(),
        reclaim: muster_model::Reclaim::default(),
        usage: usage(object),
        tree: muster_model::Dialect::Kai,
        volcano: None,
    };
    policies::read(object).apply(&mut queue);
    queue
}

/// What the queue used of the cluster in the accounting window, from annotations (`muster.dev/usage-gpu: "0.25"`): whoever keeps the history
/// writes them. In millionths.
fn usage(object: &Object<'_>) -> BTreeMap<Resource, i64> {
    let mut usage = BTreeMap::new();
    for (resource, name) in [(Resource::Gpu, "gpu"), (Resource::Cpu, "cpu"), (Resource::Memory, "memory")] {
        let key = format!("muster.dev/usage-{name}");
        let Some(text) = object.annotation(&key) else { continue };
        match thousandths(text).filter(|part| *part >= 0) {
            Some(part) => {
                usage.insert(resource, part.min(MOST / 1000) * 1000);
            }
            None => object.report(
                &format!("metadata.annotations[{key}]"),
                format!(
                    "{} is no share; write a decimal such as \"0.25\", a quarter of the cluster",
                    quote(text)
                ),
            ),
        }
    }
    usage
}

fn share(at: At<'_>, unit: i128) -> Share {
    Share {
        quota: bound(at.get("quota"), unit),
        limit: bound(at.get("limit"), unit),
        weight: weight(at.get("overQuotaWeight")),
        ..Share::default()
    }
}

fn bound(at: At<'_>, unit: i128) -> Bound {
    let Some(nano) = at.nano() else { return Bound::At(0) };
    if nano < 0 {
        if nano != -NANO {
            at.report("is negative and counts as unlimited; write -1 for unlimited, or 0 or more");
        }
        return Bound::Unlimited;
    }
    scaled(nano, unit).map_or_else(
        || {
            at.report("is more than 2^62 units and counts as unlimited; write -1 for unlimited");
            Bound::Unlimited
        },
        Bound::At,
    )
}

/// In thousandths.
fn weight(at: At<'_>) -> i64 {
    let Some(nano) = at.nano() else { return 0 };
    if nano < 0 {
        at.report("is negative and counts as 0; write 0 or more");
        return 0;
    }
    scaled(nano, 1000).filter(|weight| *weight <= MOST).unwrap_or_else(|| {
        at.report("is too large for a weight; 2^53 thousandths are used");
        MOST
    })
}

/// So many units, to the nearest; `None` beyond all bounds.
fn scaled(nano: i128, unit: i128) -> Option<i64> {
    let amount = (nano.saturating_mul(unit).saturating_add(NANO / 2)) / NANO;
    i64::try_from(amount).ok().filter(|amount| *amount <= LARGEST)
}

fn clamp(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Span;
    use serde_json::{Value, json};

    fn read(spec: Value) -> (Queue, Vec<String>) {
        let value = json!({"metadata": {"name": "q"}, "spec": spec});
        let object = Object::new("Queue", &value);
        let queue = queue(&object);
        (queue, object.into_diagnostics().iter().map(ToString::to_string).collect())
    }

    #[track_caller]
    fn check(spec: Value, resource: Resource, quota: Bound, limit: Bound, weight: i64, n_diagnostics: usize) {
        let (queue, found) = read(spec);
        let share = queue.shares[&resource];
        assert_eq!((share.quota, share.limit, share.weight), (quota, limit, weight), "{resource}");
        assert_eq!(found.len(), n_diagnostics, "{found:?}");
    }

    #[test]
    fn shares_are_in_the_units_of_the_model() {
        let spec = json!({"resources": {
            "gpu": {"quota": 0.7, "limit": -1, "overQuotaWeight": 1.5},
            "cpu": {"quota": 4000, "limit": 8000, "overQuotaWeight": 1},
            "memory": {"quota": 2, "limit": -1, "overQuotaWeight": 0},
        }});
        check(spec.clone(), Resource::Gpu, Bound::At(700), Bound::Unlimited, 1500, 0);
        check(spec.clone(), Resource::Cpu, Bound::At(4000), Bound::At(8000), 1000, 0);
        check(spec, Resource::Memory, Bound::At(2_000_000), Bound::Unlimited, 0, 0);
    }

    #[test]
    fn what_is_omitted_is_zero() {
        check(json!({"resources": {"gpu": {"quota": 1}}}), Resource::Cpu, Bound::At(0), Bound::At(0), 0, 0);
        check(
            json!({"resources": {"gpu": {"quota": 1}}}),
            Resource::Gpu,
            Bound::At(1000),
            Bound::At(0),
            0,
            0,
        );
        check(json!({}), Resource::Gpu, Bound::At(0), Bound::At(0), 0, 1);
    }

    #[test]
    fn absurd_numbers_are_reported() {
        let gpu = |quota: Value| json!({"resources": {"gpu": {"quota": quota, "limit": -1}}});
        check(gpu(json!(-7)), Resource::Gpu, Bound::Unlimited, Bound::Unlimited, 0, 1);
        check(gpu(json!(1e300)), Resource::Gpu, Bound::Unlimited, Bound::Unlimited, 0, 1);
        check(gpu(json!(1e13)), Resource::Gpu, Bound::At(10_i64.pow(16)), Bound::Unlimited, 0, 0);
        check(gpu(json!("all")), Resource::Gpu, Bound::At(0), Bound::Unlimited, 0, 1);
        check(
            json!({"resources": {"gpu": {"overQuotaWeight": -1}}}),
            Resource::Gpu,
            Bound::At(0),
            Bound::At(0),
            0,
            1,
        );
    }

    #[test]
    fn usage_is_read_from_annotations() {
        let value = json!({
            "metadata": {"name": "q", "annotations": {"muster.dev/usage-gpu": "0.25", "muster.dev/usage-cpu": "most"}},
            "spec": {"resources": {}},
        });
        let object = Object::new("Queue", &value);
        assert_eq!(queue(&object).usage, BTreeMap::from([(Resource::Gpu, 250_000)]));
        let found: Vec<String> = object.into_diagnostics().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("usage-cpu"), "{found:?}");
    }

    #[test]
    fn the_rest() {
        let (queue, found) = read(json!({
            "displayName": "Research", "parentQueue": "root", "priority": 7,
            "preemptMinRuntime": "1m", "reclaimMinRuntime": "soon", "resources": {},
        }));
        assert_eq!(queue.display.as_deref(), Some("Research"));
        assert_eq!(queue.parent.as_deref(), Some("root"));
        assert_eq!(queue.priority, 7);
        assert_eq!(queue.preempt_min_runtime, Some(Span::seconds(60)));
        assert_eq!(queue.reclaim_min_runtime, None);
        assert_eq!(
            found,
            ["Queue q: spec.reclaimMinRuntime: \"soon\" is no length of time; write one like 90s or 1h30m"]
        );
        assert_eq!(read(json!({"resources": {}})).0.priority, 100);
        assert_eq!(read(json!({"resources": {}, "parentQueue": ""})).0.parent, None);
    }
}
