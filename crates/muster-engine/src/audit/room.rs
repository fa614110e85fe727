//! Room on nodes: amounts, shared and whole GPUs, MIG, NUMA zones.
//!
//! Only nodes that got somebody new are looked at, and of them only what the newcomers ask for: a node that was too full before, for
//! its size shrank or somebody else filled it, is not the decisions' fault.

use super::{Finding, Scene, Seat, When, World};
use muster_model::{
    GPU, GpuShare, MigStrategy, Node, NodeReason, Numa, NumaPolicy, NumaScope, Pod, Resource, ShareSize,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for (i, seats) in scene.seats.iter().enumerate() {
        if seats.iter().any(|seat| seat.fresh) {
            let node = world.node(i);
            amounts(world, scene, node, seats, findings);
            shared_gpus(world, scene, node, seats, findings);
            whole_gpus(world, scene, node, seats, findings);
            if let Some(numa) = node.numa.as_ref().filter(|_| world.policy.numa) {
                zones(world, scene, node, numa, seats, findings);
            }
        }
    }
}

/// Memory of each GPU of the node in MiB; where it is not known any number will do, for then there are only portions.
fn gpu_memory(node: &Node) -> i128 {
    i128::from(node.gpus.memory.unwrap_or(100).max(1))
}

/// What a share takes of one GPU, in thousandths of a MiB: all of it where memory is asked for and the GPU's is not known.
fn share_memory(node: &Node, share: &GpuShare) -> i128 {
    match share.size {
        ShareSize::Portion(portion) => i128::from(portion.max(0)) * gpu_memory(node),
        ShareSize::Memory(_) if node.gpus.memory.is_none() => gpu_memory(node) * 1000,
        ShareSize::Memory(memory) => i128::from(memory.max(0)) * 1000,
    }
}

fn amounts(
    world: &World<'_>,
    scene: &Scene<'_>,
    node: &Node,
    seats: &[Seat<'_>],
    findings: &mut Vec<Finding>,
) {
    let mut used: BTreeMap<&Resource, i128> = BTreeMap::new();
    let mut asked: BTreeSet<&Resource> = BTreeSet::new();
    let mut groups: BTreeSet<&str> = BTreeSet::new();
    let mut unnamed: i128 = 0;
    // Who was there comes first, so that a newcomer's group is seen to be open already.
    for fresh in [false, true] {
        for seat in seats.iter().filter(|seat| seat.fresh == fresh) {
            let pod = world.pod(seat.pod);
            for (resource, amount) in pod.shape.requests.iter().filter(|(_, amount)| *amount > 0) {
                if node.allocatable.get(resource) > 0 {
                    *used.entry(resource).or_default() += i128::from(amount);
                    if fresh {
                        asked.insert(resource);
                    }
                } else if fresh && !through_devices(pod, resource) {
                    let (pod, node) = (pod.key.clone(), node.name.clone());
                    findings.push(Finding::NotOffered { pod, node, resource: resource.clone() });
                }
            }
            if let Some(share) = &pod.shape.gpu_share {
                let named = seat.gpu_groups(pod);
                for group in named {
                    if groups.insert(group) && fresh {
                        asked.insert(&Resource::Gpu);
                    }
                }
                // A share whose GPU nobody names still sits on some GPU.
                if named.is_empty() {
                    unnamed += i128::from(share.devices);
                }
            }
        }
    }
    let opened = groups.len() as i128 + unnamed;
    *used.entry(&Resource::Gpu).or_default() += opened * i128::from(GPU);
    for resource in asked {
        let allocatable = node.allocatable.get(resource);
        let used = used.get(resource).copied().unwrap_or(0);
        if used > i128::from(allocatable) {
            findings.push(Finding::OverCapacity {
                node: node.name.clone(),
                resource: resource.clone(),
                used,
                allocatable,
                when: scene.when,
            });
        }
    }
}

/// Whether claimed devices may stand for the resource, so that a node that has none of it will do.
fn through_devices(pod: &Pod, resource: &Resource) -> bool {
    matches!(resource, Resource::Gpu | Resource::Other(_)) && !pod.shape.claims.is_empty()
}

fn shared_gpus(
    world: &World<'_>,
    scene: &Scene<'_>,
    node: &Node,
    seats: &[Seat<'_>],
    findings: &mut Vec<Finding>,
) {
    let forbid = |pod: &Pod, reason: NodeReason| Finding::Forbidden {
        pod: pod.key.clone(),
        node: node.name.clone(),
        reason,
        other: None,
    };
    let mut used: BTreeMap<&str, i128> = BTreeMap::new();
    let mut touched: BTreeSet<&str> = BTreeSet::new();
    for seat in seats {
        let pod = world.pod(seat.pod);
        let groups = seat.gpu_groups(pod);
        if let Some(share) = &pod.shape.gpu_share {
            for group in groups {
                *used.entry(group).or_default() += share_memory(node, share);
                if seat.fresh {
                    touched.insert(group);
                }
            }
        }
        let (Some(placement), true) = (seat.placement, seat.fresh) else { continue };
        let mig =
            pod.shape.requests.iter().any(|(resource, amount)| amount > 0 && resource.mig_parts().is_some());
        let whole = pod.shape.requests.get(&Resource::Gpu) > 0;
        let share = pod.shape.gpu_share.as_ref();
        let allowed = match node.gpus.mig {
            MigStrategy::None => !mig,
            MigStrategy::Single => !mig && share.is_none(),
            MigStrategy::Mixed => !whole && share.is_none(),
        };
        if !allowed {
            findings.push(forbid(pod, NodeReason::MigMode));
        }
        let wanted = share.map_or(0, |share| share.devices);
        let distinct = groups.iter().collect::<BTreeSet<_>>().len();
        if distinct != groups.len() || distinct != wanted as usize {
            findings.push(Finding::WrongShares { pod: pod.key.clone(), wanted, got: distinct });
        }
        let Some(share) = share else { continue };
        if node.gpus.dra {
            findings.push(forbid(pod, NodeReason::GpuShare));
        }
        if node.gpus.memory.is_none() && matches!(share.size, ShareSize::Memory(_)) {
            findings.push(forbid(pod, NodeReason::GpuMemoryUnknown));
            continue;
        }
        let right = match (share.size, placement.gpu_portion) {
            (ShareSize::Portion(asked), Some(portion)) => portion == asked,
            (ShareSize::Memory(_), Some(portion)) => {
                portion <= GPU && i128::from(portion) * gpu_memory(node) >= share_memory(node, share)
            }
            (_, None) => false,
        };
        if !right {
            findings.push(Finding::WrongPortion { pod: pod.key.clone(), portion: placement.gpu_portion });
        }
    }
    let memory = gpu_memory(node) * 1000;
    for group in touched {
        let used = used.get(group).copied().unwrap_or(0);
        if used > memory {
            let (node, group) = (node.name.clone(), group.into());
            findings.push(Finding::SharedGpuOverfull { node, group, used, memory, when: scene.when });
        }
    }
}

fn whole_gpus(
    world: &World<'_>,
    scene: &Scene<'_>,
    node: &Node,
    seats: &[Seat<'_>],
    findings: &mut Vec<Finding>,
) {
    let gpus =
        node.gpus.links.as_ref().map_or(node.allocatable.get(&Resource::Gpu) / GPU, |l| i64::from(l.gpus));
    let mut holder: BTreeMap<u32, &Pod> = BTreeMap::new();
    for fresh in [false, true] {
        for seat in seats.iter().filter(|seat| seat.fresh == fresh) {
            let pod = world.pod(seat.pod);
            let held = seat.gpus(pod);
            let wanted = pod.shape.requests.get(&Resource::Gpu) / GPU;
            if fresh && !held.is_empty() && held.len() as i64 != wanted {
                findings.push(Finding::WrongGpuCount { pod: pod.key.clone(), wanted, got: held.len() });
            }
            for gpu in held {
                if fresh && i64::from(*gpu) >= gpus {
                    let (pod, node) = (pod.key.clone(), node.name.clone());
                    findings.push(Finding::UnknownGpu { pod, node, gpu: *gpu, gpus });
                }
                if let Some(other) = holder.insert(*gpu, pod)
                    && fresh
                {
                    findings.push(Finding::GpuHeldTwice {
                        node: node.name.clone(),
                        gpu: *gpu,
                        pods: [other.key.clone(), pod.key.clone()],
                        when: scene.when,
                    });
                }
            }
        }
    }
}

fn zones(
    world: &World<'_>,
    scene: &Scene<'_>,
    node: &Node,
    numa: &Numa,
    seats: &[Seat<'_>],
    findings: &mut Vec<Finding>,
) {
    let mut used: BTreeMap<(u32, &Resource), i128> = BTreeMap::new();
    let mut asked: BTreeSet<(u32, &Resource)> = BTreeSet::new();
    for seat in seats {
        let pod = world.pod(seat.pod);
        let held = seat.zones(pod);
        if seat.fresh {
            placed_in_zones(node, numa, pod, held, findings);
        }
        // Reported availability has the old pods in it already.
        if seat.placement.is_some() || !world.policy.trust_reported_zones {
            for zone in held {
                for (resource, amount) in zone.amounts.iter().filter(|(_, amount)| *amount > 0) {
                    *used.entry((zone.zone, resource)).or_default() += i128::from(amount);
                    if seat.fresh {
                        asked.insert((zone.zone, resource));
                    }
                }
            }
        }
    }
    if world.policy.trust_reported_zones && scene.when == When::Later {
        give_back(world, scene, node, &mut used);
    }
    for (zone, resource) in asked {
        let Some(has) = numa.zones.get(zone as usize) else { continue };
        let has = if world.policy.trust_reported_zones { &has.available } else { &has.allocatable };
        let allocatable = has.get(resource);
        let used = used.get(&(zone, resource)).copied().unwrap_or(0);
        if used > i128::from(allocatable) {
            let (node, resource, when) = (node.name.clone(), resource.clone(), scene.when);
            findings.push(Finding::ZoneOverCapacity { node, zone, resource, used, allocatable, when });
        }
    }
}

/// Whoever was counted in the reported availability and leaves gives its zones back.
fn give_back<'a>(
    world: &World<'a>,
    scene: &Scene<'_>,
    node: &Node,
    used: &mut BTreeMap<(u32, &'a Resource), i128>,
) {
    let Some(here) = world.nodes.get(&*node.name).copied() else { return };
    let stays: BTreeSet<usize> = scene.seats[here].iter().filter(|s| !s.fresh).map(|s| s.pod).collect();
    for pod in world.old_seats[here].iter().filter(|pod| !stays.contains(pod)) {
        for zone in &world.pod(*pod).zones {
            for (resource, amount) in zone.amounts.iter() {
                *used.entry((zone.zone, resource)).or_default() -= i128::from(amount);
            }
        }
    }
}

fn placed_in_zones(
    node: &Node,
    numa: &Numa,
    pod: &Pod,
    held: &[muster_model::ZoneUse],
    findings: &mut Vec<Finding>,
) {
    for zone in held.iter().filter(|zone| zone.zone as usize >= numa.zones.len()) {
        findings.push(Finding::UnknownZone {
            pod: pod.key.clone(),
            node: node.name.clone(),
            zone: zone.zone,
        });
    }
    let aligned = matches!(numa.policy, NumaPolicy::Restricted | NumaPolicy::SingleNode);
    let spanned = held.iter().map(|zone| zone.zone).collect::<BTreeSet<_>>().len();
    // By container, each container has its own zone, and which is whose is not said.
    if numa.policy == NumaPolicy::SingleNode && numa.scope == NumaScope::Pod && spanned > 1 {
        findings.push(Finding::ZonesSpanned {
            pod: pod.key.clone(),
            node: node.name.clone(),
            zones: spanned,
        });
    }
    let mut given: BTreeMap<&Resource, i128> = BTreeMap::new();
    for (resource, amount) in held.iter().flat_map(|zone| zone.amounts.iter()) {
        *given.entry(resource).or_default() += i128::from(amount);
    }
    let by_zone = |resource: &Resource| numa.zones.iter().any(|zone| zone.allocatable.get(resource) > 0);
    let mut wrong = |resource: &Resource, wanted: i64, got: i128| {
        findings.push(Finding::WrongZones {
            pod: pod.key.clone(),
            node: node.name.clone(),
            resource: resource.clone(),
            wanted,
            got,
        });
    };
    for (resource, got) in &given {
        let wanted = pod.shape.requests.get(resource);
        if *got > i128::from(wanted) {
            wrong(resource, wanted, *got);
        }
    }
    if aligned && held.is_empty() && pod.shape.pinned {
        for (resource, wanted) in pod.shape.requests.iter() {
            if matches!(resource, Resource::Cpu | Resource::Memory) && by_zone(resource) {
                wrong(resource, wanted, 0);
            }
        }
    }
}
