//! Amounts of every resource, by dimension of the node table. What is not there is zero.

use crate::nodes::{Need, PODS_DIM};
use crate::state::State;
use muster_model::Amounts;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Res(pub Vec<i128>);

/// A bound per dimension; where there is none, there is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps(pub Vec<Option<i128>>);

impl Res {
    pub fn of(state: &mut State, amounts: &Amounts) -> Self {
        let mut res = Self::default();
        for (resource, amount) in amounts.iter() {
            let dim = state.nodes.dim(resource);
            res.add(dim, i128::from(amount));
        }
        res
    }

    pub fn of_need(need: &Need) -> Self {
        let mut res = Self::default();
        res.add_need(need, 1);
        res
    }

    pub fn get(&self, dim: usize) -> i128 {
        self.0.get(dim).copied().unwrap_or(0)
    }

    pub fn set(&mut self, dim: usize, amount: i128) {
        if self.0.len() <= dim {
            self.0.resize(dim + 1, 0);
        }
        self.0[dim] = amount;
    }

    pub fn add(&mut self, dim: usize, amount: i128) {
        let sum = self.get(dim) + amount;
        self.set(dim, sum);
    }

    pub fn add_need(&mut self, need: &Need, times: i128) {
        for (dim, amount) in need {
            self.add(*dim as usize, i128::from(*amount) * times);
        }
    }

    pub fn add_all(&mut self, other: &Self) {
        for (dim, amount) in other.0.iter().enumerate() {
            self.add(dim, *amount);
        }
    }

    pub fn sub_all(&mut self, other: &Self) {
        for (dim, amount) in other.0.iter().enumerate() {
            self.add(dim, -*amount);
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add_all(other);
        sum
    }

    /// What is beyond the other; never negative.
    pub fn beyond(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.sub_all(other);
        rest.0.iter_mut().for_each(|n| *n = (*n).max(0));
        rest
    }

    /// The dimensions that are not zero.
    pub fn names(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(|(_, n)| **n > 0).map(|(dim, _)| dim)
    }

    /// Nothing but places for pods.
    pub fn is_empty(&self) -> bool {
        self.names().all(|dim| dim == PODS_DIM)
    }

    /// In every dimension at most the other's.
    pub fn fits(&self, other: &Self) -> bool {
        self.names().all(|dim| self.get(dim) <= other.get(dim))
    }
}

impl Caps {
    pub fn unlimited() -> Self {
        Self::default()
    }

    pub fn get(&self, dim: usize) -> Option<i128> {
        self.0.get(dim).copied().flatten()
    }

    pub fn set(&mut self, dim: usize, bound: Option<i128>) {
        if self.0.len() <= dim {
            self.0.resize(dim + 1, None);
        }
        self.0[dim] = bound;
    }

    /// The same bounds where both have one, the tighter one; otherwise the one that there is.
    pub fn tighten(&mut self, other: &Self) {
        for dim in 0..other.0.len() {
            let bound = match (self.get(dim), other.get(dim)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            self.set(dim, bound);
        }
    }

    /// Whether an amount is within the bounds, in the dimensions that are asked about. Places for pods are never counted.
    pub fn allow(&self, amount: &Res, asked: &Res) -> bool {
        asked
            .names()
            .filter(|dim| *dim != PODS_DIM)
            .all(|dim| self.get(dim).is_none_or(|cap| amount.get(dim) <= cap))
    }
}
