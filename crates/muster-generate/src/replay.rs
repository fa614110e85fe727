//! What a cluster looks like after changes and after decisions, done the plain way.
//!
//! An engine that keeps its own state must agree with one that is built anew from what these make.

use muster_model::{Allocation, Change, Cluster, Decisions, Key, Name, Pod, PodState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The cluster after the changes, in their order.
pub fn apply(cluster: &mut Cluster, changes: impl IntoIterator<Item = Change>) {
    for change in changes {
        match change {
            Change::PutNode(new) => put(&mut cluster.nodes, new, |node| node.name.clone()),
            Change::DropNode(name) => cluster.nodes.retain(|old| old.name != name),
            Change::PutPod(new) => put(&mut cluster.pods, new, |pod| pod.key.clone()),
            Change::DropPod(key) => cluster.pods.retain(|old| old.key != key),
            Change::PutGang(new) => put(&mut cluster.gangs, new, |gang| gang.key.clone()),
            Change::DropGang(key) => cluster.gangs.retain(|old| old.key != key),
            Change::PutQueue(new) => put(&mut cluster.queues, new, |queue| queue.name.clone()),
            Change::DropQueue(name) => cluster.queues.retain(|old| old.name != name),
            Change::PutTopology(new) => put(&mut cluster.topologies, new, |topology| topology.name.clone()),
            Change::DropTopology(name) => cluster.topologies.retain(|old| old.name != name),
            Change::PutDevice(new) => put(&mut cluster.devices, new, |device| device.name.clone()),
            Change::DropDevice(name) => cluster.devices.retain(|old| old.name != name),
            Change::PutClaim(new) => put(&mut cluster.claims, new, |claim| claim.key.clone()),
            Change::DropClaim(key) => cluster.claims.retain(|old| old.key != key),
            Change::PutBudget(new) => put(&mut cluster.budgets, new, |budget| budget.key.clone()),
            Change::DropBudget(key) => cluster.budgets.retain(|old| old.key != key),
            Change::PutQuota(new) => put(&mut cluster.quotas, new, |quota| quota.key.clone()),
            Change::DropQuota(key) => cluster.quotas.retain(|old| old.key != key),
        }
    }
}

/// Replaces the object of the same name where it stands, or adds it at the end.
fn put<T, K: PartialEq>(list: &mut Vec<Arc<T>>, new: Arc<T>, key: impl Fn(&T) -> K) {
    match list.iter_mut().find(|old| key(old) == key(&new)) {
        Some(old) => *old = new,
        None => list.push(new),
    }
}

/// The changes that make the decisions true: bound pods hold their places and devices, evicted pods are leaving, and their gangs
/// remember it. Promises leave no trace.
pub fn consequences(cluster: &Cluster, decisions: &Decisions) -> Vec<Change> {
    let pods: BTreeMap<&Key, &Arc<Pod>> = cluster.pods.iter().map(|pod| (&pod.key, pod)).collect();
    let mut changes = Vec::new();
    let mut gangs = BTreeMap::new();
    for gang in &cluster.gangs {
        gangs.insert(&gang.key, (**gang).clone());
    }
    let ran: Vec<&Key> =
        cluster.pods.iter().filter(|pod| pod.state.stays()).filter_map(|pod| pod.gang.as_ref()).collect();
    let ran: std::collections::BTreeSet<&Key> = ran.into_iter().collect();
    let mut touched = std::collections::BTreeSet::new();
    for bind in &decisions.binds {
        let Some(pod) = pods.get(&bind.pod) else { continue };
        let mut bound = (***pod).clone();
        bound.state = PodState::Bound;
        bound.node = Some(bind.placement.node.clone());
        bound.gpu_groups = bind.placement.gpu_groups.clone();
        bound.gpus = bind.placement.gpus.clone();
        bound.zones = bind.placement.zones.clone();
        changes.extend(claims(cluster, &bound, &bind.placement.devices));
        changes.push(Change::PutPod(Arc::new(bound)));
        if let Some(gang) = gangs.get_mut(&bind.gang).filter(|_| !ran.contains(&bind.gang)) {
            gang.last_start = Some(cluster.now);
            touched.insert(&bind.gang);
        }
    }
    for evict in &decisions.evictions {
        let Some(pod) = pods.get(&evict.pod) else { continue };
        changes.push(Change::PutPod(Arc::new(Pod { state: PodState::Releasing, ..(***pod).clone() })));
        if let Some(gang) = gangs.get_mut(&evict.gang) {
            gang.last_eviction = Some(cluster.now);
            touched.insert(&evict.gang);
        }
    }
    for phase in &decisions.phases {
        if let Some(gang) = gangs.get_mut(&phase.gang)
            && let Some(group) = &mut gang.volcano
        {
            Arc::make_mut(group).phase = phase.phase;
            touched.insert(&phase.gang);
        }
    }
    for key in &decisions.newly_stale {
        if let Some(gang) = gangs.get_mut(key) {
            gang.stale_since = Some(cluster.now);
            touched.insert(key);
        }
    }
    let touched = touched.into_iter().filter_map(|key| gangs.get(key).cloned());
    changes.extend(touched.map(|gang| Change::PutGang(Arc::new(gang))));
    changes
}

/// Claims that the pod's placement allocates, and those that it now holds.
fn claims(cluster: &Cluster, pod: &Pod, given: &[(Key, Name, muster_model::DeviceName)]) -> Vec<Change> {
    let uses = pod.shape.claims.iter().filter_map(|used| {
        let claim = cluster.claims.iter().find(|claim| claim.key == used.claim)?;
        let mut claim = (**claim).clone();
        let devices: Vec<_> = given
            .iter()
            .filter(|(key, ..)| *key == claim.key)
            .map(|(_, r, device)| (r.clone(), device.clone()))
            .collect();
        if claim.allocation.is_none() {
            claim.allocation = Some(Allocation { devices, nodes: Vec::new() });
        }
        claim.reserved_for.push(pod.uid.clone());
        Some(Change::PutClaim(Arc::new(claim)))
    });
    uses.collect()
}
