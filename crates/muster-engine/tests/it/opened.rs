//! Names of the shared GPUs that a placement opens: nobody mistakes one for another.

use crate::small::{NOON, amounts, asking, gang, leaf, node, pod, queue};
use muster_engine::Engine;
use muster_model::{Cluster, GPU, GpuShare, Name, PodState, Policy, ShareSize};
use std::sync::Arc;

/// A pod that wants half of a GPU, and these nodes of two GPUs each; on the first, another pod uses part of a GPU of this name.
fn halves(nodes: &[&str], in_use: Option<Name>) -> Cluster {
    let mut half = asking(amounts(100, 1 << 20, 0, 1));
    half.gpu_share = Some(GpuShare { size: ShareSize::Portion(500), devices: 1 });
    let mut cluster = Cluster {
        now: NOON,
        nodes: nodes.iter().map(|name| Arc::new(node(name, amounts(10_000, 1 << 30, 2 * GPU, 10)))).collect(),
        queues: vec![Arc::new(queue("team", None))],
        gangs: vec![Arc::new(gang("gang", vec![leaf(1)])), Arc::new(gang("other", vec![leaf(1)]))],
        pods: vec![Arc::new(pod("pod", "gang", half.clone()))],
        ..Cluster::default()
    };
    if let Some(name) = in_use {
        let mut other = pod("other", "other", half);
        other.shape = Arc::new({
            let mut most = (*other.shape).clone();
            most.gpu_share = Some(GpuShare { size: ShareSize::Portion(700), devices: 1 });
            most
        });
        other.state = PodState::Running;
        other.node = nodes.first().map(|name| Name::from(*name));
        other.gpu_groups = vec![name];
        cluster.pods.push(Arc::new(other));
    }
    cluster
}

fn opened(cluster: Cluster) -> Name {
    let decisions = Engine::build(cluster, Policy::default()).0.cycle(NOON);
    let placed: Vec<Name> =
        decisions.binds.iter().flat_map(|bind| bind.placement.gpu_groups.clone()).collect();
    assert_eq!(placed.len(), 1, "one pod on one GPU, not {placed:?}");
    placed[0].clone()
}

#[test]
fn the_same_decision_has_the_same_name() {
    assert_eq!(opened(halves(&["a"], None)), opened(halves(&["a"], None)));
}

/// It was to run on a node that went, and others who were to share its GPU there still say so.
#[test]
fn a_gpu_of_another_node_has_another_name() {
    assert_ne!(opened(halves(&["a"], None)), opened(halves(&["b"], None)));
}

#[test]
fn another_gpu_of_the_node_has_another_name() {
    let first = opened(halves(&["a"], None));
    assert_ne!(opened(halves(&["a"], Some(first.clone()))), first);
}

#[test]
fn a_name_is_a_label() {
    let name = opened(halves(&[&"n".repeat(253)], None));
    assert!(name.len() <= 63, "{name}");
}
