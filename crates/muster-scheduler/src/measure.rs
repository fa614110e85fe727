//! What is measured of scheduling: each cycle as it ends, and the cluster in numbers now and then.
//!
//! In: what a cycle decided, and the engine's figures. Out: numbers in the families of [`muster_runtime::metrics`]. Must stay true: a queue
//! goes by the name of its object, and KAI's families that tell it by what people call it say both.

use crate::core::Output;
use muster_engine::{Figures, QueueFigures};
use muster_model::{Action, GPU, Key, Reason, Span, Time};
use muster_runtime::metrics::Scheduler;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The figures are looked at by people and alerts, and cost a walk over nodes and queues.
pub const PERIOD: Duration = Duration::from_secs(2);

const GIGABYTE: f64 = 1e9;

/// `shard`: the node pool that is scheduled; empty where it is the whole cluster.
pub fn count(families: &Scheduler, output: &Output, shard: &str, took: Duration, now: Time) {
    let decisions = &output.decisions;
    families.cycle_took(took);
    families.pending_gangs.set(decisions.refusals.len() as f64);
    let pods: u64 = decisions.refusals.iter().map(|refusal| u64::from(refusal.waiting)).sum();
    families.pending_pods.set(pods as f64);
    families.assumed_expired.add(output.counts.expired as f64);
    for eviction in &output.evictions {
        let action = eviction.action.name();
        families.evictions.of([action]).inc();
        if !eviction.gang.lone {
            let gang = &eviction.gang;
            let labels = [&*gang.key.name, &*gang.key.namespace, &*gang.uid, shard, action];
            families.evicted_pods.of(labels).inc();
        }
    }
    for (action, n) in tried(output) {
        families.gangs_tried.of([action.name()]).add(n);
        if matches!(action, Action::Preempt | Action::GangPreempt) {
            families.preemption_attempts.add(n);
        }
    }
    for gang in &output.placements {
        families.gangs_scheduled.of([gang.action.name()]).inc();
        let waited = |created: Time| duration(now - created);
        for pod in &gang.pods {
            families.task_scheduling_latency.took(waited(pod.created));
        }
        if let Some(last) = gang.pods.iter().map(|pod| pod.created).max() {
            families.gang_wait.took(waited(last));
        }
    }
}

/// For how many gangs each action looked for places, or for victims, as far as what was decided says: with success, and without.
fn tried(output: &Output) -> BTreeMap<Action, u64> {
    let decisions = &output.decisions;
    // Who is moved has another place, and has not asked for it.
    let moved: BTreeSet<&Key> = decisions.evictions.iter().filter(|e| e.moved).map(|e| &e.gang).collect();
    let placed = output.placements.iter().map(|gang| (&gang.gang.key, gang.action));
    let promised = decisions.pipelined.iter().map(|promise| (&promise.gang, promise.action));
    let took = decisions.evictions.iter().filter_map(|evict| Some((evict.by.as_ref()?, evict.action)));
    let found: BTreeSet<(&Key, Action)> =
        placed.chain(promised).filter(|(gang, _)| !moved.contains(gang)).chain(took).collect();
    let mut tried: BTreeMap<Action, u64> = BTreeMap::new();
    let mut count = |action| *tried.entry(action).or_default() += 1;
    found.into_iter().for_each(|(_, action)| count(action));
    for refusal in &decisions.refusals {
        // A gang has few reasons.
        let actions: BTreeSet<Action> = refusal.reasons.iter().filter_map(searched).collect();
        actions.into_iter().for_each(&mut count);
    }
    tried
}

/// The action that found nothing, and therefore gave this reason.
fn searched(reason: &Reason) -> Option<Action> {
    match reason {
        Reason::NoVictims { action, .. } | Reason::SearchEnded { action, .. } => Some(*action),
        Reason::NoNode { .. }
        | Reason::NoDomain { .. }
        | Reason::OverLimit { .. }
        | Reason::OverQuota { .. } => Some(Action::Allocate),
        _ => None,
    }
}

pub fn show(families: &Scheduler, figures: &Figures, now: Time) {
    let gpus = |thousandths: i128| thousandths as f64 / GPU as f64;
    families.gpu_capacity.set(gpus(figures.gpus));
    families.gpu_allocated.set(gpus(figures.gpus - figures.free_gpus));
    let free = figures.free_gpus.max(1) as f64;
    families.gpu_fragmentation.set(figures.free_in_pieces as f64 / free);
    for (name, queue) in &figures.queues {
        families.queue_pending_gangs.of([name]).set(f64::from(queue.waiting));
        let oldest = queue.oldest.map_or(Duration::ZERO, |oldest| duration(now - oldest));
        families.queue_oldest_pending.of([name]).set(oldest.as_secs_f64());
        let labels = names(name, queue);
        let [cpu, memory, gpu] = queue.fair_share;
        families.queue_fair_share_cpu.of(labels).set(cpu as f64 / 1e3);
        families.queue_fair_share_memory.of(labels).set(memory as f64 / GIGABYTE);
        families.queue_fair_share_gpu.of(labels).set(gpus(gpu));
    }
    let usages = [&families.queue_usage_cpu, &families.queue_usage_memory, &families.queue_usage_gpu];
    for (at, family) in usages.into_iter().enumerate() {
        let used = |queue: &QueueFigures| queue.usage.get(at).copied().flatten();
        for (name, queue) in &figures.queues {
            if let Some(millionths) = used(queue) {
                family.of(names(name, queue)).set(millionths as f64 / 1e6);
            }
        }
        family.retain(|shown| named(figures, shown).is_some_and(|queue| used(queue).is_some()));
    }
    let there = |name: &str| figures.queues.contains_key(name);
    families.queue_pending_gangs.retain(|[name]| there(name));
    families.queue_oldest_pending.retain(|[name]| there(name));
    let shares =
        [&families.queue_fair_share_cpu, &families.queue_fair_share_memory, &families.queue_fair_share_gpu];
    for family in shares {
        family.retain(|shown| named(figures, shown).is_some());
    }
}

/// A queue as KAI names it: by what people call it, or its object's name; by its object's name; by what people call it, if anything.
fn names<'a>(name: &'a str, queue: &'a QueueFigures) -> [&'a str; 3] {
    let display = queue.display.as_deref().unwrap_or_default();
    [if display.is_empty() { name } else { display }, name, display]
}

/// The queue that still has these names.
fn named<'a>(figures: &'a Figures, shown: &[Arc<str>; 3]) -> Option<&'a QueueFigures> {
    let [_, name, _] = shown;
    let queue = figures.queues.get(&**name)?;
    shown.iter().map(|shown| &**shown).eq(names(name, queue)).then_some(queue)
}

pub fn duration(span: Span) -> Duration {
    Duration::from_millis(u64::try_from(span.0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{GangPlacement, GroupRef};
    use muster_model::{Decisions, Evict, Pipeline, Placement, Refusal, Resource};
    use muster_runtime::Metrics;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    fn refused(gang: &str, reasons: Vec<Reason>) -> Refusal {
        Refusal {
            gang: key(gang),
            queue: "q".into(),
            placed: 0,
            waiting: 2,
            needed: 2,
            reasons,
            remedies: Vec::new(),
        }
    }

    fn evict(pod: &str, gang: &str, action: Action, by: &str, moved: bool) -> Evict {
        Evict { pod: key(pod), gang: key(gang), action, by: Some(key(by)), moved, forced: false }
    }

    fn promise(pod: &str, gang: &str, action: Action) -> Pipeline {
        Pipeline { pod: key(pod), gang: key(gang), action, placement: Placement::default() }
    }

    #[test]
    fn gangs_count_once_for_each_action_that_tried() {
        let over =
            Reason::OverLimit { queue: "q".into(), resource: Resource::Gpu, used: 0, asked: 2, limit: 1 };
        let no_node = Reason::NoNode { group: "".into(), placed: 0, need: 2, tally: Vec::new() };
        let none = |action| Reason::NoVictims { action, candidates: 1, tried: 1 };
        let (preempt, consolidate) = (Action::Preempt, Action::Consolidate);
        let decisions = Decisions {
            evictions: vec![
                evict("v1", "victim", preempt, "taker", false),
                evict("v2", "victim", preempt, "taker", false),
                evict("m", "mover", consolidate, "big", true),
            ],
            pipelined: vec![
                promise("t", "taker", preempt),
                promise("m", "mover", consolidate),
                promise("b", "big", consolidate),
            ],
            refusals: vec![
                refused("limited", vec![over]),
                refused("waits", vec![no_node, none(Action::Reclaim), none(preempt)]),
                refused("early", vec![Reason::NotReady { group: "".into(), have: 1, need: 2 }]),
            ],
            ..Decisions::default()
        };
        let gang = GroupRef { key: key("placed"), uid: "u".into(), lone: false };
        let placed = GangPlacement {
            gang,
            action: Action::Allocate,
            needed: 0,
            pods: Vec::new(),
            minimum: Default::default(),
        };
        let output = Output { decisions, placements: vec![placed], ..Output::default() };
        let metrics = Metrics::default();
        let families = &metrics.scheduler;
        count(families, &output, "", Duration::ZERO, Time(0));
        let tries = |action| families.gangs_tried.of([action]).get();
        assert_eq!(["allocate", "reclaim", "preempt", "consolidation"].map(tries), [3, 1, 2, 1]);
        assert_eq!(families.preemption_attempts.get(), 2);
    }

    #[test]
    fn evicted_pods_say_of_which_pool() {
        let gang = GroupRef { key: key("victim"), uid: "u".into(), lone: false };
        let gone = crate::core::Eviction {
            pod: key("v"),
            uid: "u-v".into(),
            gang,
            action: Action::Preempt,
            by: None,
            moved: false,
            forced: false,
        };
        let metrics = Metrics::default();
        let output = Output { evictions: vec![gone], ..Output::default() };
        count(&metrics.scheduler, &output, "a100", Duration::ZERO, Time(0));
        let labels = ["victim", "ns", "u", "a100", "preempt"];
        assert_eq!(metrics.scheduler.evicted_pods.of(labels).get(), 1.0);
    }

    #[test]
    fn queues_are_shown_by_all_their_names() {
        let figures = |display: Option<&str>, usage| {
            let fair_share = [1000, 2_000_000_000, 3000];
            let display = display.map(Into::into);
            let queue = QueueFigures { display, fair_share, usage, ..QueueFigures::default() };
            Figures { queues: [("q".into(), queue)].into(), ..Figures::default() }
        };
        let metrics = Metrics::default();
        let families = &metrics.scheduler;
        let lines = |family: &str| {
            let text = metrics.text();
            let lines = text.lines().filter(|line| line.starts_with(&format!("kai_{family}{{")));
            lines.map(|line| line.trim_start_matches("kai_").to_owned()).collect::<Vec<_>>().join(" ")
        };
        let plain = r#"{queue_name="q",queue_metadata_name="q",queue_display_name=""}"#;
        let display = r#"{queue_name="Team Q",queue_metadata_name="q",queue_display_name="Team Q"}"#;
        show(families, &figures(None, [None; 3]), Time(0));
        assert_eq!(lines("queue_fair_share_gpu"), format!("queue_fair_share_gpu{plain} 3.0"));
        assert_eq!(lines("queue_gpu_usage"), "");
        // What was shown under another name goes.
        show(families, &figures(Some("Team Q"), [None, None, Some(250_000)]), Time(0));
        assert_eq!(lines("queue_fair_share_gpu"), format!("queue_fair_share_gpu{display} 3.0"));
        assert_eq!(lines("queue_gpu_usage"), format!("queue_gpu_usage{display} 0.25"));
        assert_eq!(lines("queue_cpu_usage"), "");
        assert_eq!(families.queue_pending_gangs.of(["q"]).get(), 0.0);
        show(families, &figures(Some("Team Q"), [None; 3]), Time(0));
        assert_eq!(lines("queue_gpu_usage"), "");
        show(families, &Figures::default(), Time(0));
        assert_eq!(lines("queue_fair_share_gpu"), "");
    }
}
