//! Where nodes are: the domain of each node by topology key, and the ground on which a spread rule counts.
//!
//! In: nodes with their labels and taints, as they come and go; topology keys and ground rules as they are first heard of.
//! Out: for a key and a node the number of its domain; for a ground which nodes belong to it and how many domains it has.
//!
//! *Invariant:* a domain exists while a present node is in it. Its number may be given to another value after that, so whoever counts
//! by domain takes a node's pods off before the node moves.

use super::{FxIndexMap, GroundId, KeyId};
use crate::ids::NodeId;
use dense::{IdSet, IdVec, Interner};
use muster_model::{Labels, Name, NodeRule, Taint, TaintEffect, Toleration};

/// The number of a domain within its key.
pub(super) type Domain = u32;

/// The domain of a node that does not have the label, or is not there.
pub(super) const NOWHERE: Domain = Domain::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    nodes: IdVec<NodeId, Option<Site>>,
    keys: Interner<KeyId, Name>,
    axes: IdVec<KeyId, Axis>,
    rules: Interner<GroundId, GroundRule>,
    grounds: IdVec<GroundId, Ground>,
}

/// Which nodes count for a spread rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroundRule {
    /// Those that have all of these labels; sorted.
    pub keys: Vec<KeyId>,
    /// Those that this allows, if it is honoured; without preferences.
    pub node: Option<NodeRule>,
    /// Those whose taints are tolerated, if that is honoured.
    pub tolerations: Option<Vec<Toleration>>,
}

#[derive(Clone, Debug)]
struct Site {
    name: Name,
    labels: Labels,
    taints: Vec<Taint>,
}

/// One topology key.
#[derive(Clone, Debug, Default)]
struct Axis {
    domains: FxIndexMap<Name, Domain>,
    /// How many nodes are in each domain.
    n_nodes: Vec<u32>,
    /// Numbers that no value has at the moment.
    free: Vec<Domain>,
    of_node: IdVec<NodeId, Domain>,
}

#[derive(Clone, Debug, Default)]
struct Ground {
    nodes: IdSet<NodeId>,
    /// For each of the rule's keys, the domains with the number of nodes that belong to the ground.
    domains: Vec<(KeyId, FxIndexMap<Domain, u32>)>,
}

impl Places {
    /// The nodes that are there, as they were put.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Name, &Labels, &[Taint])> {
        self.nodes.iter().filter_map(|(node, site)| {
            site.as_ref().map(|Site { name, labels, taints }| (node, name, labels, &taints[..]))
        })
    }

    /// Whether the node is there and is exactly so.
    pub fn is(&self, node: NodeId, name: &Name, labels: &Labels, taints: &[Taint]) -> bool {
        self.site(node).is_some_and(|s| s.name == *name && s.labels == *labels && s.taints == taints)
    }

    pub fn put(&mut self, node: NodeId, name: &Name, labels: &Labels, taints: &[Taint]) {
        self.drop(node);
        let site = Site { name: name.clone(), labels: labels.clone(), taints: taints.to_vec() };
        for (id, key) in self.keys.iter() {
            if let Some(value) = site.labels.get(key) {
                self.axes[id].enter(node, value);
            }
        }
        for (id, rule) in self.rules.iter() {
            if rule.holds(&site, node, &self.axes) {
                self.grounds[id].enter(node, &self.axes);
            }
        }
        *self.nodes.ensure(node) = Some(site);
    }

    pub fn drop(&mut self, node: NodeId) {
        let Some(site) = self.nodes.get_mut(node).and_then(Option::take) else { return };
        for ground in self.grounds.values_mut() {
            ground.leave(node, &self.axes);
        }
        for (id, key) in self.keys.iter() {
            if let Some(value) = site.labels.get(key) {
                self.axes[id].leave(node, value);
            }
        }
    }

    pub fn key(&mut self, name: &Name) -> KeyId {
        if let Some(id) = self.keys.get(name) {
            return id;
        }
        let mut axis = Axis::default();
        for (node, site) in self.nodes.iter() {
            if let Some(value) = site.as_ref().and_then(|s| s.labels.get(name)) {
                axis.enter(node, value);
            }
        }
        self.axes.push(axis);
        self.keys.intern(name.clone())
    }

    pub fn ground(&mut self, rule: GroundRule) -> GroundId {
        if let Some(id) = self.rules.get(&rule) {
            return id;
        }
        let domains = rule.keys.iter().map(|key| (*key, FxIndexMap::default())).collect();
        let mut ground = Ground { nodes: IdSet::new(), domains };
        for (node, site) in self.nodes.iter() {
            if site.as_ref().is_some_and(|s| rule.holds(s, node, &self.axes)) {
                ground.enter(node, &self.axes);
            }
        }
        self.grounds.push(ground);
        self.rules.intern(rule)
    }

    #[inline]
    pub fn domain(&self, key: KeyId, node: NodeId) -> Domain {
        self.axes[key].domain(node)
    }

    #[inline]
    pub fn is_on(&self, ground: GroundId, node: NodeId) -> bool {
        self.grounds[ground].nodes.contains(node)
    }

    /// How many domains of the key the ground has.
    pub fn n_domains(&self, ground: GroundId, key: KeyId) -> usize {
        self.grounds[ground].domains.iter().find(|(k, _)| *k == key).map_or(0, |(_, domains)| domains.len())
    }

    fn site(&self, node: NodeId) -> Option<&Site> {
        self.nodes.get(node).and_then(Option::as_ref)
    }
}

impl GroundRule {
    fn holds(&self, site: &Site, node: NodeId, axes: &IdVec<KeyId, Axis>) -> bool {
        self.keys.iter().all(|key| axes[*key].domain(node) != NOWHERE)
            && self.node.as_ref().is_none_or(|rule| rule.allows(&site.name, &site.labels))
            && self.tolerations.as_ref().is_none_or(|tolerations| {
                let repels = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule;
                site.taints.iter().filter(repels).all(|taint| tolerations.iter().any(|t| t.covers(taint)))
            })
    }
}

impl Axis {
    #[inline]
    fn domain(&self, node: NodeId) -> Domain {
        self.of_node.get(node).copied().unwrap_or(NOWHERE)
    }

    fn enter(&mut self, node: NodeId, value: &Name) {
        let domain = match self.domains.get(value) {
            Some(domain) => *domain,
            None => {
                let domain = self.free.pop().unwrap_or_else(|| {
                    self.n_nodes.push(0);
                    Domain::try_from(self.n_nodes.len() - 1)
                        .expect("there are fewer domains than nodes, whose ids fit 32 bits")
                });
                self.domains.insert(value.clone(), domain);
                domain
            }
        };
        self.n_nodes[domain as usize] += 1;
        if self.of_node.get(node).is_none() {
            self.of_node.resize(dense::Id::index(node) + 1, NOWHERE);
        }
        self.of_node[node] = domain;
    }

    fn leave(&mut self, node: NodeId, value: &Name) {
        let domain = self.domain(node);
        if domain == NOWHERE {
            return;
        }
        self.of_node[node] = NOWHERE;
        let n_nodes = &mut self.n_nodes[domain as usize];
        *n_nodes -= 1;
        if *n_nodes == 0 {
            self.domains.swap_remove(value);
            self.free.push(domain);
        }
    }
}

impl Ground {
    fn enter(&mut self, node: NodeId, axes: &IdVec<KeyId, Axis>) {
        if self.nodes.insert(node) {
            for (key, domains) in &mut self.domains {
                *domains.entry(axes[*key].domain(node)).or_insert(0) += 1;
            }
        }
    }

    fn leave(&mut self, node: NodeId, axes: &IdVec<KeyId, Axis>) {
        if !self.nodes.remove(node) {
            return;
        }
        for (key, domains) in &mut self.domains {
            let domain = axes[*key].domain(node);
            if let Some(n_nodes) = domains.get_mut(&domain) {
                *n_nodes -= 1;
                if *n_nodes == 0 {
                    domains.swap_remove(&domain);
                }
            }
        }
    }
}
