//! The room that is left on nodes while a cluster is being made, so that whoever is said to run does fit.

use muster_model::{
    Cluster, GPU, MigStrategy, Name, Node, Pod, Resource, Shape, ShareSize, TaintEffect, ZoneUse,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What each node has left.
#[derive(Clone)]
pub(crate) struct Room {
    nodes: Vec<NodeRoom>,
}

#[derive(Clone)]
struct NodeRoom {
    node: Arc<Node>,
    free: BTreeMap<Resource, i64>,
    /// Shared GPUs and what is left of each, in thousandths of a MiB.
    shared: Vec<(Name, i128)>,
    /// GPUs by index, where the node's links are known.
    indices: Vec<u32>,
    zones: Vec<BTreeMap<Resource, i64>>,
    ports: Vec<muster_model::HostPort>,
    attached: BTreeMap<Name, u32>,
}

impl Room {
    pub(crate) fn of(nodes: &[Arc<Node>]) -> Self {
        Self { nodes: nodes.iter().map(NodeRoom::of).collect() }
    }

    /// What is left beside the pods that hold room.
    pub(crate) fn beside(cluster: &Cluster) -> Self {
        let mut room = Self::of(&cluster.nodes);
        let index: BTreeMap<&str, usize> =
            cluster.nodes.iter().enumerate().map(|(i, node)| (&*node.name, i)).collect();
        for pod in cluster.pods.iter().filter(|pod| pod.state.holds_room()) {
            if let Some(node) = pod.node.as_ref().and_then(|name| index.get(&**name)) {
                room.nodes[*node].hold(pod);
            }
        }
        room
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, node: usize) -> &Arc<Node> {
        &self.nodes[node].node
    }

    /// Whether the pod would be seated there.
    pub(crate) fn fits(&self, node: usize, pod: &Pod) -> bool {
        let room = &self.nodes[node];
        // The cheap question first; most nodes are full.
        let enough =
            pod.shape.requests.iter().all(|(r, amount)| amount <= room.free.get(r).copied().unwrap_or(0));
        enough && allowed(&room.node, &pod.shape) && room.clone().take(&mut pod.clone())
    }

    /// Puts the pod on the node, if it fits and is allowed there.
    pub(crate) fn seat(&mut self, node: usize, pod: &mut Pod) -> bool {
        let room = &mut self.nodes[node];
        let fits = allowed(&room.node, &pod.shape) && room.take(pod);
        if fits {
            pod.node = Some(room.node.name.clone());
        }
        fits
    }

    /// Whether nothing is used beyond what there is.
    #[cfg(test)]
    pub(crate) fn is_sound(&self) -> bool {
        self.nodes.iter().all(|room| {
            room.free.values().all(|free| *free >= 0)
                && room.shared.iter().all(|(_, free)| *free >= 0)
                && room.zones.iter().flat_map(BTreeMap::values).all(|free| *free >= 0)
        })
    }
}

impl NodeRoom {
    fn of(node: &Arc<Node>) -> Self {
        let gpus = node.gpus.links.as_ref().map_or(0, |links| links.gpus);
        let zones = node.numa.iter().flat_map(|numa| &numa.zones);
        Self {
            node: node.clone(),
            free: node.allocatable.iter().map(|(resource, amount)| (resource.clone(), amount)).collect(),
            shared: Vec::new(),
            indices: (0..gpus).collect(),
            zones: zones
                .map(|z| z.allocatable.iter().map(|(r, amount)| (r.clone(), amount)).collect())
                .collect(),
            ports: Vec::new(),
            attached: BTreeMap::new(),
        }
    }

    fn gpu_memory(&self) -> i128 {
        i128::from(self.node.gpus.memory.unwrap_or(100)) * 1000
    }

    fn share(&self, shape: &Shape) -> Option<(i128, u32)> {
        let share = shape.gpu_share?;
        let size = match share.size {
            ShareSize::Portion(portion) => i128::from(portion) * self.gpu_memory() / 1000,
            ShareSize::Memory(memory) => i128::from(memory) * 1000,
        };
        Some((size, share.devices))
    }

    /// Takes the room of a pod that has not been seated yet, and notes where in the node it sits.
    fn take(&mut self, pod: &mut Pod) -> bool {
        let shape = pod.shape.clone();
        let free = |resource: &Resource| self.free.get(resource).copied().unwrap_or(0);
        let fits = shape.requests.iter().all(|(resource, amount)| amount <= free(resource));
        let clashes = shape.ports.iter().any(|port| self.ports.iter().any(|taken| taken.clashes(port)));
        let attachable = shape.volumes.iter().filter_map(|volume| volume.driver.as_ref()).all(|driver| {
            let limit = self.node.attach_limits.get(driver).copied().unwrap_or(u32::MAX);
            self.attached.get(driver).copied().unwrap_or(0) < limit
        });
        let zone = self.zone_for(&shape);
        if !fits || clashes || !attachable || (zone.is_none() && shape.pinned && !self.zones.is_empty()) {
            return false;
        }
        if let Some((size, devices)) = self.share(&shape) {
            let unknown = matches!(shape.gpu_share, Some(s) if matches!(s.size, ShareSize::Memory(_)))
                && self.node.gpus.memory.is_none();
            let open = self.shared.iter().filter(|(_, free)| *free >= size).count() as i64;
            let new = (i64::from(devices) - open).max(0);
            if unknown || size > self.gpu_memory() || new * GPU > free(&Resource::Gpu) {
                return false;
            }
            let name = &self.node.name;
            let mut groups: Vec<Name> = self
                .shared
                .iter()
                .filter(|(_, free)| *free >= size)
                .take(devices as usize)
                .map(|(group, _)| group.clone())
                .collect();
            let unused = (0..).map(|i| Name::from(format!("{name}-gpu-{i}")));
            let unused = unused.filter(|group| !self.shared.iter().any(|(taken, _)| taken == group));
            groups.extend(unused.take(new as usize));
            pod.gpu_groups = groups;
        }
        let n_whole = (shape.requests.get(&Resource::Gpu) / GPU) as usize;
        if n_whole > 0 && self.indices.len() >= n_whole {
            pod.gpus = self.indices[..n_whole].to_vec();
        }
        if let Some(zone) = zone {
            let pinned = shape.requests.iter().filter(|(r, _)| matches!(r, Resource::Cpu | Resource::Memory));
            let amounts = pinned.map(|(resource, amount)| (resource.clone(), amount)).collect();
            pod.zones = vec![ZoneUse { zone: zone as u32, amounts }];
        }
        self.hold(pod);
        true
    }

    /// A zone where all of a pinned pod fits.
    fn zone_for(&self, shape: &Shape) -> Option<usize> {
        let fits = |zone: &BTreeMap<Resource, i64>| {
            [Resource::Cpu, Resource::Memory]
                .iter()
                .all(|resource| zone.get(resource).copied().unwrap_or(0) >= shape.requests.get(resource))
        };
        self.zones.iter().position(fits).filter(|_| shape.pinned)
    }

    /// Takes away what a pod holds.
    fn hold(&mut self, pod: &Pod) {
        for (resource, amount) in pod.shape.requests.iter() {
            let free = self.free.entry(resource.clone()).or_default();
            *free = free.saturating_sub(amount);
        }
        if let Some((size, _)) = self.share(&pod.shape) {
            for group in &pod.gpu_groups {
                if let Some((_, free)) = self.shared.iter_mut().find(|(name, _)| name == group) {
                    *free -= size;
                } else {
                    self.shared.push((group.clone(), self.gpu_memory() - size));
                    let free = self.free.entry(Resource::Gpu).or_default();
                    *free = free.saturating_sub(GPU);
                }
            }
            // A whole GPU less to give by index.
            let whole_left = self.free.get(&Resource::Gpu).copied().unwrap_or(0).max(0) / GPU;
            self.indices.truncate(whole_left as usize);
        }
        self.indices.retain(|gpu| !pod.gpus.contains(gpu));
        for zone in &pod.zones {
            if let Some(free) = self.zones.get_mut(zone.zone as usize) {
                for (resource, amount) in zone.amounts.iter() {
                    *free.entry(resource.clone()).or_default() -= amount;
                }
            }
        }
        self.ports.extend(pod.shape.ports.iter().cloned());
        for driver in pod.shape.volumes.iter().filter_map(|volume| volume.driver.as_ref()) {
            *self.attached.entry(driver.clone()).or_default() += 1;
        }
    }
}

/// Whether the node's own rules and the pod's let them meet, room aside.
pub(crate) fn allowed(node: &Node, shape: &Shape) -> bool {
    let tolerated = node.taints.iter().all(|taint| {
        taint.effect == TaintEffect::PreferNoSchedule || shape.tolerations.iter().any(|t| t.covers(taint))
    });
    let whole = shape.requests.get(&Resource::Gpu) > 0;
    let share = shape.gpu_share.is_some();
    let mig = shape.requests.iter().any(|(resource, _)| resource.mig_parts().is_some());
    let gpus = match node.gpus.mig {
        MigStrategy::None => !mig,
        MigStrategy::Single => !mig && !share,
        MigStrategy::Mixed => !whole && !share,
    };
    tolerated
        && gpus
        && !(share && node.gpus.dra)
        && node.conditions.usable()
        && shape.node.allows(&node.name, &node.labels)
        && shape.missing.is_empty()
        && shape.only_node.as_ref().is_none_or(|only| *only == node.name)
}
