//! Limits where what a pod costs depends on its node.

use crate::small::{NOON, amounts, gang, leaf, node, one_gpu, pod, queue};
use muster_engine::Engine;
use muster_engine::audit::audit;
use muster_model::{
    Bound, Cluster, GPU, GpuShare, Policy, Preemptibility, Reason, Resource, Share, ShareSize,
};
use std::sync::Arc;

/// A gang of a share of 5,000 MiB and a whole GPU, in a queue that has so many thousandths of a GPU as limit and quota.
/// The share is half of the first node's GPU; of the second's it would be a little.
fn mixed(has: i64, kind: Preemptibility) -> Cluster {
    let mut queue = queue("team", None);
    let share = Share { quota: Bound::At(has), limit: Bound::At(has), ..Share::default() };
    queue.shares.insert(Resource::Gpu, share);
    for resource in [Resource::Cpu, Resource::Memory] {
        queue.shares.insert(resource, Share { quota: Bound::Unlimited, ..Share::default() });
    }
    let nodes = [("a", 10_000), ("b", 80_000)].map(|(name, memory)| {
        let mut node = node(name, amounts(10_000, 1 << 30, GPU, 10));
        node.gpus.memory = Some(memory);
        Arc::new(node)
    });
    let mut by_memory = one_gpu();
    by_memory.requests.set(Resource::Gpu, 0);
    by_memory.gpu_share = Some(GpuShare { size: ShareSize::Memory(5_000), devices: 1 });
    let mut gang = gang("gang", vec![leaf(2)]);
    gang.preemptibility = kind;
    Cluster {
        now: NOON,
        nodes: nodes.into(),
        queues: vec![Arc::new(queue)],
        gangs: vec![Arc::new(gang)],
        pods: vec![Arc::new(pod("0", "gang", by_memory)), Arc::new(pod("1", "gang", one_gpu()))],
        ..Cluster::default()
    }
}

/// How many pods are bound, and what is asked for where that is too much.
#[track_caller]
fn check(cluster: Cluster, n_binds: usize, too_much: Option<i128>) {
    let policy = Policy::default();
    let decisions = Engine::build(cluster.clone(), policy.clone()).0.cycle(cluster.now);
    assert_eq!(audit(&cluster, &policy, &decisions), []);
    assert_eq!(decisions.binds.len(), n_binds);
    let said = decisions.refusals.iter().flat_map(|r| &r.reasons).find_map(|reason| match reason {
        Reason::OverLimit { used: 0, asked, .. } | Reason::OverQuota { used: 0, asked, .. } => Some(*asked),
        _ => None,
    });
    assert_eq!(said, too_much);
}

#[test]
fn shares_in_memory_count_as_on_their_nodes() {
    for kind in [Preemptibility::Preemptible, Preemptibility::NonPreemptible] {
        // Even on the largest GPU it would be too much; on the largest it would not; it is enough.
        check(mixed(1050, kind), 0, Some(1070));
        check(mixed(1200, kind), 0, Some(1500));
        check(mixed(1500, kind), 2, None);
    }
}
