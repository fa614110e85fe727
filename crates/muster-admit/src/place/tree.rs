//! The domains of one flavor's nodes, and what is free and used in the lowest of them.

use crate::ids::{Ids, ResourceId};
use crate::spec::{Flavor, Node, Topology};
use dense::{Id, IdVec, define_id};
use muster_model::{Labels, Name, Taint, Toleration};
use std::collections::BTreeMap;

define_id! {
    /// A domain of any level.
    pub struct DomainId;
    /// A domain of the lowest level.
    pub struct LeafId;
}

/// The label of the level at which every domain is one node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub parent: Option<DomainId>,
    pub children: Vec<DomainId>,
    pub values: Vec<Name>,
    pub leaf: Option<LeafId>,
}

/// The node of a lowest domain that is one.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub name: Name,
    pub labels: Labels,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub domain: DomainId,
    /// By resource: what the nodes have, less what other pods take.
    pub free: Vec<i64>,
    /// What admitted workloads take.
    pub used: Vec<i64>,
    pub host: Option<Host>,
}

/// The domains of a flavor.
#[derive(Clone, Debug)]
pub struct Places {
    pub topology: Name,
    pub(super) levels: Vec<Name>,
    pub(super) by_host: bool,
    pub(super) domains: IdVec<DomainId, Domain>,
    /// Domains of each level, in the order of their values.
    pub(super) by_level: Vec<Vec<DomainId>>,
    pub(super) leaves: IdVec<LeafId, Leaf>,
    by_id: BTreeMap<Name, LeafId>,
    by_node: BTreeMap<Name, LeafId>,
    pub(super) tolerations: Vec<Toleration>,
    /// Resources by name, so that ties are told the same way always.
    pub(super) names: Vec<Name>,
}

impl Places {
    /// The usable nodes that carry the flavor's labels and every level's.
    pub fn build<'a>(
        flavor: &Flavor,
        topology: &Topology,
        nodes: impl Iterator<Item = &'a Node>,
        ids: &mut Ids,
    ) -> Self {
        let by_host = topology.levels.last().is_some_and(|l| &**l == HOSTNAME);
        let mut paths: BTreeMap<Vec<Name>, Vec<&Node>> = BTreeMap::new();
        for node in nodes {
            let wanted = flavor.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
            if !node.usable || !wanted {
                continue;
            }
            let path: Option<Vec<Name>> =
                topology.levels.iter().map(|level| node.labels.get(level).cloned()).collect();
            if let Some(path) = path {
                paths.entry(path).or_default().push(node);
            }
        }
        let mut places = Self {
            topology: topology.name.clone(),
            levels: topology.levels.clone(),
            by_host,
            domains: IdVec::new(),
            by_level: vec![Vec::new(); topology.levels.len()],
            leaves: IdVec::new(),
            by_id: BTreeMap::new(),
            by_node: BTreeMap::new(),
            tolerations: flavor.tolerations.clone(),
            names: Vec::new(),
        };
        // Level by level, so that ids of a level follow the order of values.
        let mut known: BTreeMap<Vec<Name>, DomainId> = BTreeMap::new();
        for level in 0..places.levels.len() {
            for path in paths.keys() {
                let values = &path[..=level];
                if known.contains_key(values) {
                    continue;
                }
                let parent = known.get(&values[..level]).copied();
                let id = places.domains.push(Domain {
                    parent,
                    children: Vec::new(),
                    values: values.to_vec(),
                    leaf: None,
                });
                known.insert(values.to_vec(), id);
                places.by_level[level].push(id);
                if let Some(parent) = parent {
                    places.domains[parent].children.push(id);
                }
            }
        }
        for (path, nodes) in &paths {
            let Some(&domain) = known.get(path) else { continue };
            let host = nodes.first().filter(|_| by_host).map(|node| Host {
                name: node.name.clone(),
                labels: node.labels.clone(),
                taints: node.taints.clone(),
            });
            let leaf = places.leaves.push(Leaf { domain, free: Vec::new(), used: Vec::new(), host });
            places.domains[domain].leaf = Some(leaf);
            let id = places.id_of(path);
            places.by_id.entry(id).or_insert(leaf);
            for node in nodes {
                places.by_node.insert(node.name.clone(), leaf);
                for (resource, amount) in &node.allocatable {
                    add(&mut places.leaves[leaf].free, ids.resource(resource), *amount);
                }
            }
        }
        places.names =
            (0..ids.n_resources()).map(|i| ids.resource_name(ResourceId::from_index(i)).clone()).collect();
        places
    }

    /// How a lowest domain is known: by its host, or by all its values.
    fn id_of(&self, values: &[Name]) -> Name {
        match values.last() {
            Some(host) if self.by_host => host.clone(),
            _ => values.join(",").into(),
        }
    }

    pub fn levels(&self) -> &[Name] {
        &self.levels
    }

    pub fn level(&self, name: &str) -> Option<usize> {
        self.levels.iter().position(|l| &**l == name)
    }

    pub fn is_by_host(&self) -> bool {
        self.by_host
    }

    /// The lowest domain with these values, which may be those of the last level alone.
    pub fn leaf_at(&self, values: &[Name]) -> Option<LeafId> {
        self.leaf_of(&self.id_of(values))
    }

    pub fn leaf_of(&self, id: &str) -> Option<LeafId> {
        self.by_id.get(id).copied()
    }

    /// Lowest domains by how they are known.
    pub fn leaves(&self) -> impl Iterator<Item = (&Name, LeafId)> {
        self.by_id.iter().map(|(id, leaf)| (id, *leaf))
    }

    /// What other pods take on a node.
    pub fn take(&mut self, node: &str, resource: ResourceId, amount: i64) {
        if let Some(&leaf) = self.by_node.get(node) {
            add(&mut self.leaves[leaf].free, resource, amount.saturating_neg());
        }
    }

    pub fn set_free(&mut self, leaf: LeafId, resource: ResourceId, amount: i64) {
        let now = self.free(leaf, resource);
        add(&mut self.leaves[leaf].free, resource, amount.saturating_sub(now));
    }

    pub fn free(&self, leaf: LeafId, resource: ResourceId) -> i64 {
        self.leaves[leaf].free.get(resource.index()).copied().unwrap_or(0)
    }

    /// Adds pods of a workload to a lowest domain, or takes them away.
    pub fn use_leaf(&mut self, leaf: LeafId, per_pod: &[(ResourceId, i64)], pods: i64) {
        let used = &mut self.leaves[leaf].used;
        for &(resource, amount) in per_pod {
            add(used, resource, amount.saturating_mul(pods));
        }
        add(used, crate::ids::Ids::PODS, pods);
    }

    /// Usage that is known as a whole.
    pub fn use_amount(&mut self, leaf: LeafId, resource: ResourceId, amount: i64) {
        add(&mut self.leaves[leaf].used, resource, amount);
    }

    /// How many such pods still fit a lowest domain.
    pub fn room(&self, leaf: LeafId, per_pod: &[(ResourceId, i64)]) -> i64 {
        let leaf = &self.leaves[leaf];
        let left = |resource: ResourceId| {
            let at = resource.index();
            leaf.free.get(at).unwrap_or(&0).saturating_sub(*leaf.used.get(at).unwrap_or(&0))
        };
        per_pod
            .iter()
            .copied()
            .chain(std::iter::once((crate::ids::Ids::PODS, 1)))
            .filter(|(_, amount)| *amount > 0)
            .map(|(resource, amount)| left(resource).max(0) / amount)
            .min()
            .unwrap_or(0)
    }

    /// The domain of a level that a lowest domain lies in.
    pub(super) fn ancestor(&self, leaf: LeafId, level: usize) -> DomainId {
        let mut at = self.leaves[leaf].domain;
        while self.domains[at].values.len() > level + 1 {
            match self.domains[at].parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
        at
    }
}

fn add(amounts: &mut Vec<i64>, resource: ResourceId, amount: i64) {
    let at = resource.index();
    if amounts.len() <= at {
        amounts.resize(at + 1, 0);
    }
    amounts[at] = amounts[at].saturating_add(amount);
}
