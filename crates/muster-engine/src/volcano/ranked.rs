//! Nodes in the order of their scores for pods of one class, kept current by the journal of node changes. Hot path: the benchmark of gang
//! shapes guards it.
//!
//! A pod whose score and filters depend on nothing but its class and the node itself needs no scan: the first node of the order is the one.
//! Placing a pod changes one node, so one node is scored anew.

use super::Session;
use crate::company::GuestId;
use crate::ids::{ClassId, NodeId, PodId};
use crate::nodes::FreeIndex;
use indexmap::IndexMap;
use muster_model::TaintEffect;
use muster_model::volcano::{Hook, PluginKind};
use rustc_hash::FxBuildHasher;

/// By class: nodes with room now, and nodes with room soon.
#[derive(Default)]
pub struct Ranked {
    by_class: IndexMap<ClassId, [FreeIndex; 2], FxBuildHasher>,
    /// Whether the plugins allow it at all, once asked.
    allowed: Option<bool>,
    plain: IndexMap<(ClassId, GuestId), bool, FxBuildHasher>,
}

impl Session<'_> {
    /// The best node for a pod in the whole cluster, if its order of nodes is kept; `None`: it must be searched for.
    pub fn best_ranked(&mut self, pod: PodId) -> Option<Option<NodeId>> {
        if !self.is_plain(pod) {
            return None;
        }
        let class = self.st.pods.row(pod).class;
        let mut ranked = std::mem::take(&mut self.ranked);
        let orders = ranked.by_class.entry(class).or_default();
        for (order, now) in orders.iter_mut().zip([true, false]) {
            let key = |_: &crate::nodes::Nodes, node: NodeId| self.rank(pod, node, now);
            if order.is_built() {
                order.refresh(&self.st.nodes, key);
            } else {
                order.build(&self.st.nodes, key);
            }
        }
        let found = orders.iter().find_map(|order| order.from(i64::MIN).next());
        self.ranked = ranked;
        Some(found)
    }

    /// Where a node stands: the higher its score, the sooner. Only nodes that will do have a place.
    fn rank(&self, pod: PodId, node: NodeId, now: bool) -> Option<i64> {
        // The filters alone say which nodes will do, so that those who are searched for get the same answer.
        if !self.domains.rows[self.domains.top()].set.contains(node) {
            return None;
        }
        // What is idle may be promised to somebody who came before.
        let fits = self.fits_soon(pod, node) && (!now || self.fits_now(pod, node));
        if !fits || self.predicate(pod, node).is_err() {
            return None;
        }
        let score = self.scores(pod, None, &[node]).first().copied().unwrap_or(0.0);
        Some(!ordered(score))
    }

    fn is_plain(&mut self, pod: PodId) -> bool {
        if self.shard.is_some() || self.st.pods.row(pod).model.nominated.is_some() {
            return false;
        }
        let allowed = match self.ranked.allowed {
            Some(allowed) => allowed,
            None => {
                let allowed = self.scores_by_node_alone();
                self.ranked.allowed = Some(allowed);
                allowed
            }
        };
        // Images are no part of a class.
        if self.looks_at_images(pod) {
            return false;
        }
        let row = self.st.pods.row(pod);
        let key = (row.class, row.guest);
        if let Some(plain) = self.ranked.plain.get(&key) {
            return allowed && *plain;
        }
        let class = &self.st.classes.rows[row.class];
        let company = &self.st.company;
        let plain = company.is_silent(row.guest)
            && company.is_indifferent(row.guest)
            && !company.likes_to_spread(row.guest)
            && !class.has_claims
            && !class.has_ports
            && !class.has_attachments
            && class.share.is_none()
            && class.shape.node.preferred.is_empty();
        self.ranked.plain.insert(key, plain);
        allowed && plain
    }

    /// Whether no plugin looks at other nodes, at the job or at the clock when it judges a node.
    fn scores_by_node_alone(&self) -> bool {
        let judges = |hook: Hook| self.voters(hook).flatten();
        let disliked = |n: &&NodeId| {
            self.st.nodes.rows[**n]
                .model
                .as_ref()
                .is_some_and(|m| m.taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule))
        };
        let by_score = judges(Hook::NodeOrder).all(|kind| match kind {
            PluginKind::Tdm(_)
            | PluginKind::NodeGroup { .. }
            | PluginKind::Usage(_)
            | PluginKind::TaskTopology { .. } => false,
            PluginKind::NetworkTopology(_) => self.domains.is_flat(),
            _ => true,
        });
        let by_filter = judges(Hook::Predicate).all(|kind| {
            !matches!(
                kind,
                PluginKind::Tdm(_)
                    | PluginKind::NodeGroup { .. }
                    | PluginKind::Usage(_)
                    | PluginKind::ResourceStrategyFit(_)
            )
        });
        let hard_shard = self.conf.shard.is_some();
        by_score && by_filter && !hard_shard && !self.nodes.iter().any(|n| disliked(&n))
    }
}

/// Floats as integers of the same order.
fn ordered(score: f64) -> i64 {
    let bits = score.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_of_floats_is_kept(a in -1e6_f64..1e6, b in -1e6_f64..1e6) {
            prop_assert_eq!(a.total_cmp(&b), ordered(a).cmp(&ordered(b)));
        }
    }
}
