//! What is measured of scheduling: each cycle as it ends, and the cluster in numbers now and then.
//!
//! In: what a cycle decided, and the engine's figures. Out: numbers in the families of [`muster_runtime::metrics`].

use crate::core::Output;
use muster_engine::Figures;
use muster_model::{GPU, Span, Time};
use muster_runtime::metrics::Scheduler;
use std::time::Duration;

/// The figures are looked at by people and alerts, and cost a walk over nodes and queues.
pub const PERIOD: Duration = Duration::from_secs(2);

const GIGABYTE: f64 = 1e9;

pub fn count(families: &Scheduler, output: &Output, took: Duration, now: Time) {
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
            let labels = [&*gang.key.name, &*gang.key.namespace, &*gang.uid, "", action];
            families.evicted_pods.of(labels).inc();
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
        // KAI tells a queue's name apart from that of its object; there is one name here.
        let labels = [&**name, &**name, ""];
        let [cpu, memory, gpu] = queue.fair_share;
        families.queue_fair_share_cpu.of(labels).set(cpu as f64 / 1e3);
        families.queue_fair_share_memory.of(labels).set(memory as f64 / GIGABYTE);
        families.queue_fair_share_gpu.of(labels).set(gpus(gpu));
    }
    let there = |name: &str| figures.queues.contains_key(name);
    families.queue_pending_gangs.retain(|[name]| there(name));
    families.queue_oldest_pending.retain(|[name]| there(name));
    let shares =
        [&families.queue_fair_share_cpu, &families.queue_fair_share_memory, &families.queue_fair_share_gpu];
    for family in shares {
        family.retain(|[name, ..]| there(name));
    }
}

pub fn duration(span: Span) -> Duration {
    Duration::from_millis(u64::try_from(span.0).unwrap_or(0))
}
