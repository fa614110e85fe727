//! Resources and amounts of them, as integers in one fixed unit per resource.
//!
//! Units: CPU in milli-cores, memory in bytes, GPUs in thousandths of a device, pods in pods; every other resource in its
//! own whole unit (bytes, devices), rounded up where a manifest had a fraction.

use crate::Name;
use std::collections::BTreeMap;
use std::fmt;

/// One whole GPU, in the unit of [`Resource::Gpu`].
pub const GPU: i64 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Milli-cores.
    Cpu,
    /// Bytes.
    Memory,
    /// Thousandths of a GPU, of whatever vendor.
    Gpu,
    /// Places for pods.
    Pods,
    /// Any other resource by its Kubernetes name; MIG profiles and huge pages are here.
    Other(Name),
}

impl Resource {
    /// MIG profiles are resources of this name and a profile.
    pub const MIG_PREFIX: &str = "nvidia.com/mig-";

    /// Of a MIG profile: how many compute parts it has, the number before the `g`. A profile that is not exactly `<parts>g.<memory>gb` has none.
    pub fn mig_parts(&self) -> Option<i64> {
        let Self::Other(name) = self else { return None };
        let profile = name.strip_prefix(Self::MIG_PREFIX)?;
        let digits =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u8>().ok())?;
        let parts = || {
            let (parts, memory) = profile.split_once("g.")?;
            digits(memory.strip_suffix("gb")?)?;
            digits(parts)
        };
        Some(parts().map_or(0, i64::from))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
            Self::Pods => "pods",
            Self::Other(name) => name,
        })
    }
}

/// Amounts by resource. Absent and zero are the same; zero is never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amounts(BTreeMap<Resource, i64>);

impl Amounts {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, resource: &Resource) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    pub fn set(&mut self, resource: Resource, amount: i64) {
        if amount == 0 {
            self.0.remove(&resource);
        } else {
            self.0.insert(resource, amount);
        }
    }

    /// Adds, holding at the ends of the range: an absurd sum stays absurd and never wraps around.
    pub fn add(&mut self, resource: Resource, amount: i64) {
        let sum = self.get(&resource).saturating_add(amount);
        self.set(resource, sum);
    }

    pub fn add_all(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            self.add(resource.clone(), amount);
        }
    }

    /// Raises every amount to at least the other's.
    pub fn raise_to(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            if amount > self.get(resource) {
                self.set(resource.clone(), amount);
            }
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Resource, i64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Resource, i64)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (Resource, i64)>>(items: T) -> Self {
        let mut amounts = Self::new();
        for (resource, amount) in items {
            amounts.add(resource, amount);
        }
        amounts
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (resource, amount)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{resource}={amount}")?;
        }
        Ok(())
    }
}
