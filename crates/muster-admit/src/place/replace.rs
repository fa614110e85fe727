//! Places for workloads that have some already: a node failed under them, or they grow or shrink.

use super::choose::Chosen;
use super::count::Scratch;
use super::tree::{DomainId, Places};
use super::{Ask, Look, NoPlace, TopologyAssignment};
use crate::spec::TopologyRequest;
use muster_model::Name;
use std::collections::BTreeMap;

impl Places {
    /// Keeps what is on healthy nodes and finds places for the rest. Returns everything, and the new places alone.
    pub(super) fn replace(
        &self,
        ask: &Ask<'_>,
        held: &TopologyAssignment,
        look: Look<'_>,
        scratch: &mut Scratch,
    ) -> Result<(TopologyAssignment, TopologyAssignment), NoPlace> {
        let failed = |values: &[Name]| values.last().is_some_and(|host| look.unhealthy.contains(host));
        let mut kept = held.clone();
        kept.domains.retain(|(values, _)| !failed(values));
        let lost = held.n_pods() - kept.n_pods();
        if let Some((values, _)) = kept.domains.iter().find(|(values, _)| self.leaf_at(values).is_none()) {
            return Err(NoPlace::Stale(values.first().cloned().unwrap_or_default()));
        }
        let (request, within) = self.part(ask, &kept, lost);
        let part = Ask { count: lost, request: request.as_ref().or(ask.request), ..*ask };
        let (new, _) = self.choose(&part, None, look, within, scratch)?;
        if new.domains.is_empty() {
            return Err(NoPlace::NoReplacement(look.unhealthy.first().cloned().unwrap_or_default()));
        }
        Ok((self.merged(&kept, &new), new))
    }

    /// The request for a part of the pods, and the domain that they must stay in.
    fn part(
        &self,
        ask: &Ask<'_>,
        kept: &TopologyAssignment,
        lost: i32,
    ) -> (Option<TopologyRequest>, Option<(usize, DomainId)>) {
        let Some(request) = ask.request.filter(|_| !kept.domains.is_empty()) else { return (None, None) };
        // A slice that lost some of its pods is made whole where it is; layers that are smaller than what was lost stay as they are.
        let mut broken = None;
        let mut left = request.clone();
        while let Some(layer) = left.slices.first() {
            let size = layer.size.unwrap_or(1).max(1);
            if lost % size == 0 {
                break;
            }
            broken = Some((layer.level.clone(), size));
            left.slices.remove(0);
        }
        if let Some((level, size)) = broken {
            let within = self.level(&level).and_then(|level| {
                let mut pods: BTreeMap<DomainId, i32> = BTreeMap::new();
                for (values, n) in &kept.domains {
                    if let Some(leaf) = self.leaf_at(values) {
                        *pods.entry(self.ancestor(leaf, level)).or_default() += n;
                    }
                }
                let domain = pods.iter().find(|(_, n)| (**n + lost) % size == 0)?;
                Some((level, *domain.0))
            });
            return if within.is_some() { (Some(left), within) } else { (None, None) };
        }
        let within = request.required.as_ref().and_then(|name| {
            let level = self.level(name)?;
            let leaf = self.leaf_at(&kept.domains.first()?.0)?;
            Some((level, self.ancestor(leaf, level)))
        });
        (None, within)
    }

    /// Places for a workload that takes over from another: pods that run stay. `None`: it must be placed anew.
    pub(super) fn grow(
        &self,
        workers: &Ask<'_>,
        leader: Option<&Ask<'_>>,
        look: Look<'_>,
        scratch: &mut Scratch,
    ) -> Option<Result<Chosen, NoPlace>> {
        let before = workers.previous?;
        let is_there = |places: &TopologyAssignment| {
            places.domains.iter().all(|(values, _)| self.leaf_at(values).is_some())
        };
        let leads = leader.and_then(|l| l.previous);
        if !is_there(before) || !leads.is_none_or(is_there) {
            return None;
        }
        let n = before.n_pods();
        let size = workers.request.and_then(|r| r.slices.first()?.size).unwrap_or(1).max(1);
        if n % size != 0 || workers.count % size != 0 {
            return None;
        }
        if workers.count <= n {
            let kept = truncated(before, workers.count);
            scratch.assume(self, &kept, workers);
            if let (Some(leader), Some(leads)) = (leader, leads) {
                scratch.assume(self, leads, leader);
            }
            return Some(Ok((kept, leads.cloned())));
        }
        scratch.assume(self, before, workers);
        let mut to_place = leader;
        if let (Some(leader), Some(leads)) = (leader, leads) {
            scratch.assume(self, leads, leader);
            to_place = None;
        }
        let more = Ask { count: workers.count - n, previous: None, ..*workers };
        let (new, its) = match self.choose(&more, to_place, look, None, scratch) {
            Ok(chosen) => chosen,
            Err(why) => return Some(Err(why)),
        };
        scratch.assume(self, &new, workers);
        if let (Some(leader), Some(its)) = (to_place, &its) {
            scratch.assume(self, its, leader);
        }
        Some(Ok((self.merged(before, &new), its.or_else(|| leads.cloned()))))
    }

    /// Both together, in the order of values.
    fn merged(&self, a: &TopologyAssignment, b: &TopologyAssignment) -> TopologyAssignment {
        let mut pods: BTreeMap<DomainId, i32> = BTreeMap::new();
        for (values, n) in a.domains.iter().chain(&b.domains) {
            if let Some(leaf) = self.leaf_at(values) {
                *pods.entry(self.leaves[leaf].domain).or_default() += n;
            }
        }
        self.written(pods.into_iter().collect())
    }
}

/// The first pods of an assignment.
fn truncated(places: &TopologyAssignment, count: i32) -> TopologyAssignment {
    let mut left = count;
    let mut kept = places.clone();
    for (_, n) in &mut kept.domains {
        *n = (*n).min(left);
        left -= *n;
    }
    kept.domains.retain(|(_, n)| *n > 0);
    kept
}
