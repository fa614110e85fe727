//! Places: which domains of a topology the pods of a workload go to.
//!
//! In: the nodes of a flavor as a tree of domains, what is used there, and what is asked. Out: how many pods in which of the lowest domains, or
//! why not. `tree` holds the domains, `count` says how many pods fit below each, `choose` picks a level and goes down from it, `balanced` is
//! another way to pick, and `replace` is for workloads that have places already: a node was lost, or they grow or shrink.
//!
//! *Invariant:* a domain is known by its path and not by text that two domains could share a beginning of. Domains of a level are numbered in
//! the order of their values, so ties are broken by comparing ids.

mod balanced;
mod choose;
mod count;
mod replace;
mod tree;

pub use count::Excluded;
pub use tree::{DomainId, LeafId, Places};

use crate::ids::ResourceId;
use crate::settings::Gates;
use crate::spec::TopologyRequest;
use count::Scratch;
use muster_model::{Name, NodeRule, Toleration};

/// Where the pods of one set go: values of the levels, and how many pods there; in the order of the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyAssignment {
    pub levels: Vec<Name>,
    pub domains: Vec<(Vec<Name>, i32)>,
}

impl TopologyAssignment {
    pub fn n_pods(&self) -> i32 {
        self.domains.iter().map(|(_, n)| *n).sum()
    }
}

/// One set of pods that wants places.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub name: &'a Name,
    pub count: i32,
    /// What one pod takes, without the pod itself.
    pub per_pod: &'a [(ResourceId, i64)],
    pub rule: &'a NodeRule,
    pub tolerations: &'a [Toleration],
    pub request: Option<&'a TopologyRequest>,
    /// It says nothing about topology, but its queue has nothing else.
    pub implied: bool,
    /// The places of the workload that this one grows from.
    pub previous: Option<&'a TopologyAssignment>,
    /// The places it holds, some of them on nodes that failed.
    pub held: Option<&'a TopologyAssignment>,
}

impl Ask<'_> {
    fn group(&self) -> Option<&Name> {
        self.request.and_then(|r| r.group.as_ref())
    }

    fn is_required(&self) -> bool {
        self.request.is_some_and(|r| r.required.is_some())
    }

    fn only_slices(&self) -> bool {
        self.request.is_some_and(|r| r.required.is_none() && r.preferred.is_none() && !r.slices.is_empty())
    }

    fn is_unconstrained(&self) -> bool {
        self.implied || self.only_slices() || self.request.is_some_and(|r| r.unconstrained)
    }
}

/// How to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look<'a> {
    /// As if no workload had any place.
    pub empty: bool,
    pub gates: Gates,
    /// Nodes that failed under the workload: its other places stay.
    pub unhealthy: &'a [Name],
    /// What sets of the same workload take on nodes that other flavors have too, by lowest domain.
    pub taken: &'a [(Name, Vec<(ResourceId, i64)>)],
}

/// Why there is no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlace {
    LevelNotNamed,
    NoSuchLevel(Name),
    NoSuchSliceLevel(Name),
    NoSuchLayer(Name),
    /// Slices of the first would be larger than the whole, which is at the second.
    SlicesAbove(Name, Name),
    LayerNotBelow(Name, Name),
    LayerDoesNotDivide(i32, i32),
    NoSliceSize,
    NoDomains(Name),
    /// So many of so many fit; by slices of more than one pod, or by pods.
    TooFew {
        topology: Name,
        fit: i32,
        asked: i32,
        slices: bool,
        excluded: Excluded,
    },
    /// For each layer how many slices fit and how many are asked.
    TooFewLayers {
        topology: Name,
        layers: Vec<(Name, i32, i32)>,
        excluded: Excluded,
    },
    /// The places it holds are not all there any more.
    Stale(Name),
    NoReplacement(Name),
}

/// A set that has no place: which, why, and what those before it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub set: usize,
    pub why: NoPlace,
    pub found: Vec<Option<TopologyAssignment>>,
}

/// The result for several sets: the places of each, or the first that has none.
pub type Found = Result<Vec<Option<TopologyAssignment>>, Box<Failed>>;

impl Places {
    /// Finds places for sets of pods, one group after the other; what the first take the others no longer have.
    pub fn find(&self, asks: &[Ask<'_>], look: Look<'_>) -> Found {
        let mut scratch = Scratch::new(self);
        for (id, amounts) in look.taken {
            scratch.take(self, id, amounts);
        }
        let mut found: Vec<Option<TopologyAssignment>> = vec![None; asks.len()];
        let mut done = vec![false; asks.len()];
        for i in 0..asks.len() {
            if done[i] {
                continue;
            }
            let members: Vec<usize> = match asks[i].group() {
                None => vec![i],
                Some(group) => (i..asks.len()).filter(|j| asks[*j].group() == Some(group)).collect(),
            };
            members.iter().for_each(|j| done[*j] = true);
            if let Err((set, why)) = self.find_group(asks, &members, look, &mut scratch, &mut found) {
                return Err(Box::new(Failed { set, why, found }));
            }
        }
        Ok(found)
    }

    fn find_group(
        &self,
        asks: &[Ask<'_>],
        members: &[usize],
        look: Look<'_>,
        scratch: &mut Scratch,
        found: &mut [Option<TopologyAssignment>],
    ) -> Result<(), (usize, NoPlace)> {
        if !look.unhealthy.is_empty() {
            for &j in members {
                let Some(held) = asks[j].held else { continue };
                let (whole, new) = self.replace(&asks[j], held, look, scratch).map_err(|why| (j, why))?;
                scratch.assume(self, &new, &asks[j]);
                found[j] = Some(whole);
            }
            return Ok(());
        }
        let (leader, workers) = roles(asks, members);
        if look.gates.elastic_topology
            && let Some(result) = self.grow(&asks[workers], leader.map(|l| &asks[l]), look, scratch)
        {
            let (own, its) = result.map_err(|why| (workers, why))?;
            found[workers] = Some(own);
            if let Some(leader) = leader {
                found[leader] = its;
            }
            return Ok(());
        }
        let (own, its) = self
            .choose(&asks[workers], leader.map(|l| &asks[l]), look, None, scratch)
            .map_err(|why| (workers, why))?;
        scratch.assume(self, &own, &asks[workers]);
        found[workers] = Some(own);
        if let (Some(leader), Some(its)) = (leader, its) {
            scratch.assume(self, &its, &asks[leader]);
            found[leader] = Some(its);
        }
        Ok(())
    }
}

/// Who leads in a group of two: the smaller set.
fn roles(asks: &[Ask<'_>], members: &[usize]) -> (Option<usize>, usize) {
    match *members {
        [first, second, ..] if asks[second].count > asks[first].count => (Some(first), second),
        [first, second, ..] => (Some(second), first),
        [one] => (None, one),
        [] => (None, 0),
    }
}
