//! Counts by domain, kept sparse: a gang's own rule concerns few of the many nodes.
//!
//! *Invariant:* zero is never stored, so adding and taking away leaves no trace.

use super::FxIndexMap;
use super::places::Domain;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    by_domain: FxIndexMap<Domain, i64>,
    total: i64,
}

impl Tally {
    #[inline]
    pub fn get(&self, domain: Domain) -> i64 {
        if self.by_domain.is_empty() { 0 } else { self.by_domain.get(&domain).copied().unwrap_or(0) }
    }

    /// Over all domains.
    #[inline]
    pub fn total(&self) -> i64 {
        self.total
    }

    /// How many domains have anything.
    #[inline]
    pub fn n_domains(&self) -> usize {
        self.by_domain.len()
    }

    /// Adds, and gives the amount before and after.
    pub fn add(&mut self, domain: Domain, amount: i64) -> (i64, i64) {
        let before = self.get(domain);
        let after = before + amount;
        self.total += amount;
        if after == 0 {
            self.by_domain.swap_remove(&domain);
        } else {
            self.by_domain.insert(domain, after);
        }
        (before, after)
    }
}

/// How many domains have which count, so that the smallest is at hand. Domains without anything are not held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels(BTreeMap<i64, u32>);

impl Levels {
    pub fn least(&self) -> Option<i64> {
        self.0.first_key_value().map(|(level, _)| *level)
    }

    pub fn shift(&mut self, (before, after): (i64, i64)) {
        if before == after {
            return;
        }
        if after != 0 {
            *self.0.entry(after).or_insert(0) += 1;
        }
        if before != 0
            && let Some(n) = self.0.get_mut(&before)
        {
            *n -= 1;
            if *n == 0 {
                self.0.remove(&before);
            }
        }
    }
}
