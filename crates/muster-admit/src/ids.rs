//! Dense ids and the names behind them.
//!
//! In: names of resources and flavors, as they are met. Out: one small id each, and one for every pair of a flavor and a resource that is ever
//! used together: quota, usage and requests are all kept by such pairs.

use dense::{Interner, define_id};
use muster_model::Name;

define_id! {
    /// A resource by its full name, such as `cpu` or `example.com/gpu`.
    pub struct ResourceId;
    /// A resource flavor.
    pub struct FlavorId;
    /// A flavor and a resource: the unit in which quota is counted.
    pub struct PairId;
    /// A cluster queue or a cohort.
    pub struct TreeId;
    /// A workload.
    pub struct WorkloadId;
}

/// What a resource or a pair amounts to. In milli-units for `cpu`, in base units for everything else.
pub type Amounts = Vec<(ResourceId, i64)>;

/// Usage by pairs.
pub type Usage = Vec<(PairId, i64)>;

/// The one resource that every pod asks one of.
pub const PODS: &str = "pods";

/// Names to ids.
#[derive(Clone)]
pub struct Ids {
    resources: Interner<ResourceId, Name>,
    flavors: Interner<FlavorId, Name>,
    pairs: Interner<PairId, (FlavorId, ResourceId)>,
}

impl Default for Ids {
    fn default() -> Self {
        let mut ids = Self { resources: Interner::new(), flavors: Interner::new(), pairs: Interner::new() };
        ids.resource(PODS);
        ids
    }
}

impl Ids {
    /// The id of `pods`, which is always known.
    pub const PODS: ResourceId = ResourceId::new(0);

    pub fn resource(&mut self, name: &str) -> ResourceId {
        match self.resources.get(name) {
            Some(id) => id,
            None => self.resources.intern(name.into()),
        }
    }

    pub fn flavor(&mut self, name: &str) -> FlavorId {
        match self.flavors.get(name) {
            Some(id) => id,
            None => self.flavors.intern(name.into()),
        }
    }

    pub fn pair(&mut self, flavor: FlavorId, resource: ResourceId) -> PairId {
        self.pairs.intern((flavor, resource))
    }

    /// The pair, if quota or usage was ever written for it.
    pub fn known_pair(&self, flavor: FlavorId, resource: ResourceId) -> Option<PairId> {
        self.pairs.get(&(flavor, resource))
    }

    pub fn known_flavor(&self, name: &str) -> Option<FlavorId> {
        self.flavors.get(name)
    }

    pub fn known_resource(&self, name: &str) -> Option<ResourceId> {
        self.resources.get(name)
    }

    pub fn resource_name(&self, id: ResourceId) -> &Name {
        &self.resources[id]
    }

    pub fn flavor_name(&self, id: FlavorId) -> &Name {
        &self.flavors[id]
    }

    pub fn split(&self, pair: PairId) -> (FlavorId, ResourceId) {
        self.pairs[pair]
    }

    pub fn n_pairs(&self) -> usize {
        self.pairs.len()
    }

    pub fn n_resources(&self) -> usize {
        self.resources.len()
    }

    /// Resources by name, which is the order in which everything is looked at and told.
    pub fn sort(&self, amounts: &mut Amounts) {
        amounts.sort_by(|a, b| self.resource_name(a.0).cmp(self.resource_name(b.0)));
    }
}

/// The amount of one resource; none is zero.
pub fn amount_of(amounts: &[(ResourceId, i64)], resource: ResourceId) -> i64 {
    amounts.iter().find(|(id, _)| *id == resource).map_or(0, |(_, amount)| *amount)
}

/// Adds to the amount of one pair.
pub fn add_usage(usage: &mut Usage, pair: PairId, amount: i64) {
    match usage.iter_mut().find(|(id, _)| *id == pair) {
        Some((_, sum)) => *sum = sum.saturating_add(amount),
        None => usage.push((pair, amount)),
    }
}

/// The amount of one pair; none is zero.
pub fn usage_of(usage: &[(PairId, i64)], pair: PairId) -> i64 {
    usage.iter().find(|(id, _)| *id == pair).map_or(0, |(_, amount)| *amount)
}
