//! How many pods, slices and leaders fit below every domain.
//!
//! Hot path: one pass over the lowest domains and one over all of them for every set that asks.

use super::tree::{DomainId, Leaf, LeafId, Places};
use super::{Ask, Look, TopologyAssignment};
use crate::ids::{Ids, ResourceId};
use dense::{Id, IdVec};
use muster_model::{Name, TaintEffect};
use std::collections::BTreeMap;

/// What a domain has room for; later, what it was given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub pods: i32,
    pub slices: i32,
    /// The same beside a leader.
    pub pods_led: i32,
    pub slices_led: i32,
    pub leaders: i32,
    pub liking: i64,
}

/// Why nodes were left out, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    pub nodes: u32,
    pub selector: u32,
    pub affinity: u32,
    pub domain: u32,
    /// By taint, written `key=value:Effect`.
    pub taints: BTreeMap<Name, u32>,
    /// By the resource that ran out first.
    pub resources: BTreeMap<Name, u32>,
}

impl Excluded {
    pub fn is_empty(&self) -> bool {
        self.selector == 0
            && self.affinity == 0
            && self.domain == 0
            && self.taints.is_empty()
            && self.resources.is_empty()
    }
}

/// Slices of a request: the size of the outermost, its level, and the sizes at the levels below.
#[derive(Clone, Debug, Default)]
pub(super) struct Slicing {
    pub size: i32,
    pub level: usize,
    pub inner: Vec<Option<i32>>,
}

/// What is worked on while places are sought.
pub(super) struct Scratch {
    pub counts: IdVec<DomainId, Count>,
    /// What earlier sets of the same workload take.
    assumed: BTreeMap<LeafId, Vec<(ResourceId, i64)>>,
    pub excluded: Excluded,
}

impl Scratch {
    pub fn new(places: &Places) -> Self {
        Self {
            counts: IdVec::from_elem(Count::default(), places.domains.len()),
            assumed: BTreeMap::new(),
            excluded: Excluded::default(),
        }
    }

    /// What is taken of a lowest domain that another flavor has too.
    pub fn take(&mut self, places: &Places, id: &str, amounts: &[(ResourceId, i64)]) {
        if let Some(leaf) = places.leaf_of(id) {
            self.assumed.entry(leaf).or_default().extend_from_slice(amounts);
        }
    }

    /// Places that a set takes are gone for the sets after it.
    pub fn assume(&mut self, places: &Places, taken: &TopologyAssignment, ask: &Ask<'_>) {
        for (values, pods) in &taken.domains {
            let Some(leaf) = places.leaf_at(values) else { continue };
            let sums = self.assumed.entry(leaf).or_default();
            let pods = i64::from(*pods);
            for &(resource, amount) in ask.per_pod.iter().chain(&[(Ids::PODS, 1)]) {
                let amount = amount.saturating_mul(pods);
                match sums.iter_mut().find(|(r, _)| *r == resource) {
                    Some((_, sum)) => *sum = sum.saturating_add(amount),
                    None => sums.push((resource, amount)),
                }
            }
        }
    }
}

impl Places {
    /// Counts what fits. `within`: only the lowest domains below this one.
    pub(super) fn count(
        &self,
        workers: &Ask<'_>,
        leader: Option<&Ask<'_>>,
        slicing: &Slicing,
        look: Look<'_>,
        within: Option<(usize, DomainId)>,
        scratch: &mut Scratch,
    ) {
        scratch.excluded = Excluded::default();
        scratch.counts.fill(Count::default());
        for (id, leaf) in self.leaves.iter() {
            if let Some(host) = &leaf.host
                && !look.unhealthy.is_empty()
                && look
                    .unhealthy
                    .iter()
                    .any(|u| *u == host.name || Some(u) == self.domains[leaf.domain].values.last())
            {
                continue;
            }
            scratch.excluded.nodes += 1;
            let Some(liking) = self.allows(leaf, workers, look, &mut scratch.excluded) else { continue };
            if let Some((level, domain)) = within
                && self.ancestor(id, level) != domain
            {
                scratch.excluded.domain += 1;
                continue;
            }
            let assumed = scratch.assumed.get(&id).map_or(&[][..], Vec::as_slice);
            let mut count = Count { liking, ..Count::default() };
            let (pods, short) = self.fit(leaf, assumed, None, workers.per_pod, look.empty);
            count.pods = pods;
            if pods == 0
                && let Some(resource) = short
            {
                let name = self.names.get(resource.index()).cloned().unwrap_or_default();
                *scratch.excluded.resources.entry(name).or_default() += 1;
            }
            count.pods_led = count.pods;
            if let Some(leader) = leader
                && self.fit(leaf, assumed, None, leader.per_pod, look.empty).0 > 0
            {
                count.leaders = 1;
                count.pods_led = self.fit(leaf, assumed, Some(leader.per_pod), workers.per_pod, look.empty).0;
            }
            scratch.counts[leaf.domain] = count;
        }
        for level in (0..self.levels.len()).rev() {
            for &domain in &self.by_level[level] {
                self.roll_up(domain, level, slicing, leader.is_some(), &mut scratch.counts);
            }
        }
    }

    /// Whether pods may go there, and how well they like it.
    fn allows(&self, leaf: &Leaf, ask: &Ask<'_>, look: Look<'_>, excluded: &mut Excluded) -> Option<i64> {
        // Only a domain that is one node can be asked for labels and taints.
        let Some(host) = &leaf.host else { return Some(0) };
        let untolerated = host.taints.iter().find(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !ask.tolerations.iter().chain(&self.tolerations).any(|t| t.covers(taint))
        });
        if let Some(taint) = untolerated {
            *excluded.taints.entry(taint_text(taint).into()).or_default() += 1;
            return None;
        }
        if !ask.rule.all.iter().all(|e| e.holds(host.labels.get(&e.key).map(|v| &**v))) {
            excluded.selector += 1;
            return None;
        }
        if let Some(terms) = &ask.rule.any
            && !terms.iter().any(|t| t.holds(&host.name, &host.labels))
        {
            excluded.affinity += 1;
            return None;
        }
        if !look.gates.node_affinity_preferred {
            return Some(0);
        }
        let liked = ask.rule.preferred.iter().filter(|(_, term)| term.holds(&host.name, &host.labels));
        Some(liked.map(|(weight, _)| i64::from(*weight)).sum())
    }

    /// How many pods fit beside what is there, and which resource ends it.
    fn fit(
        &self,
        leaf: &Leaf,
        assumed: &[(ResourceId, i64)],
        beside: Option<&[(ResourceId, i64)]>,
        per_pod: &[(ResourceId, i64)],
        empty: bool,
    ) -> (i32, Option<ResourceId>) {
        let at = |amounts: &[i64], resource: ResourceId| amounts.get(resource.index()).copied().unwrap_or(0);
        let mut least: Option<(i64, ResourceId)> = None;
        for &(resource, amount) in per_pod.iter().chain(&[(Ids::PODS, 1)]) {
            if amount <= 0 {
                continue;
            }
            let mut left = at(&leaf.free, resource);
            if !empty {
                left = left.saturating_sub(at(&leaf.used, resource));
            }
            left = left.saturating_sub(crate::ids::amount_of(assumed, resource));
            if let Some(beside) = beside {
                left = left.saturating_sub(crate::ids::amount_of(beside, resource));
                left = left.saturating_sub(i64::from(resource == Ids::PODS));
            }
            let fit = left.max(0) / amount;
            let fewer = least.is_none_or(|(known, other)| {
                fit < known
                    || (fit == known && self.names.get(resource.index()) < self.names.get(other.index()))
            });
            if fewer {
                least = Some((fit, resource));
            }
        }
        match least {
            Some((fit, resource)) => (i32::try_from(fit).unwrap_or(i32::MAX), Some(resource)),
            None => (0, None),
        }
    }

    /// Fills in one domain from those below it.
    pub(super) fn roll_up(
        &self,
        domain: DomainId,
        level: usize,
        slicing: &Slicing,
        led: bool,
        counts: &mut IdVec<DomainId, Count>,
    ) {
        let children = &self.domains[domain].children;
        if children.is_empty() {
            if level == slicing.level {
                let count = &mut counts[domain];
                count.slices = count.pods / slicing.size;
                count.slices_led = count.pods_led / slicing.size;
            }
            return;
        }
        let inner = slicing.inner.get(level + 1).copied().flatten();
        let mut sum = Count::default();
        // What a leader costs where it costs least.
        let mut costs: Option<(i32, i32)> = None;
        for &child in children {
            let child = counts[child];
            let whole = |pods: i32| inner.map_or(pods, |size| pods / size * size);
            let (pods, pods_led) = (whole(child.pods), whole(child.pods_led));
            sum.pods = sum.pods.saturating_add(pods);
            sum.slices = sum.slices.saturating_add(child.slices);
            if !led || child.leaders > 0 {
                let (by_pods, by_slices) = costs.unwrap_or((i32::MAX, i32::MAX));
                costs = Some((
                    by_pods.min(pods.saturating_sub(pods_led)),
                    by_slices.min(child.slices.saturating_sub(child.slices_led)),
                ));
            }
            sum.leaders = sum.leaders.max(child.leaders);
            sum.liking = sum.liking.saturating_add(child.liking);
        }
        if let Some((pods, slices)) = costs {
            sum.pods_led = sum.pods.saturating_sub(pods);
            sum.slices_led = sum.slices.saturating_sub(slices);
        }
        if level == slicing.level {
            sum.slices = sum.pods / slicing.size;
            sum.slices_led = sum.pods_led / slicing.size;
        }
        counts[domain] = sum;
    }
}

fn taint_text(taint: &muster_model::Taint) -> String {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    if taint.value.is_empty() {
        format!("{}:{effect}", taint.key)
    } else {
        format!("{}={}:{effect}", taint.key, taint.value)
    }
}
