//! What local queues used, forgotten by halves: who used least goes first.
//!
//! Halving is the one thing here that whole numbers cannot say, so the factor is a float; amounts are kept in thousandths of their unit.

use crate::settings::UsageSharing;
use crate::spec::Weight;
use muster_model::{Key, Name, Span, Time};
use std::collections::BTreeMap;

/// What one local queue used.
#[derive(Clone, Debug, Default)]
struct Account {
    /// By resource, in thousandths.
    consumed: BTreeMap<Name, i64>,
    /// What was admitted since the last sample, as far as it counts.
    penalty: BTreeMap<Name, i64>,
    sampled: Option<Time>,
}

/// All accounts.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<Key, Account>,
}

/// The part of the past that is forgotten after a time.
fn forgotten(after: Span, half_life: Span) -> f64 {
    if half_life.0 <= 0 {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a life time are exact in a float")]
    let halves = after.0.max(0) as f64 / half_life.0 as f64;
    1.0 - 0.5_f64.powf(halves)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a part of an amount; casts hold at the ends of the range"
)]
fn part(amount: i64, factor: f64) -> i64 {
    (amount as f64 * factor).round() as i64
}

impl Ledger {
    /// What is known to be used, in thousandths.
    pub fn set(&mut self, queue: Key, consumed: BTreeMap<Name, i64>, at: Option<Time>) {
        let account = self.accounts.entry(queue).or_default();
        account.consumed = consumed;
        account.sampled = at;
    }

    /// What was used and is not forgotten, in thousandths; `None`: nothing is known of the queue.
    pub fn consumed(&self, queue: &Key) -> Option<&BTreeMap<Name, i64>> {
        self.accounts.get(queue).map(|account| &account.consumed)
    }

    pub fn forget(&mut self, queue: &Key) {
        self.accounts.remove(queue);
    }

    /// A workload got in: a part of what it asks for counts at once, so that a queue cannot send many between two samples.
    pub fn enter(&mut self, queue: &Key, asked: &BTreeMap<Name, i64>, sharing: &UsageSharing, times: i64) {
        let factor = forgotten(sharing.sampling, sharing.half_life);
        let account = self.accounts.entry(queue.clone()).or_default();
        for (resource, amount) in asked {
            let sum = account.penalty.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(part(*amount, factor).saturating_mul(times));
        }
    }

    /// Takes a sample of what runs: the past fades, the present comes in, and penalties are settled.
    pub fn sample(&mut self, queue: &Key, running: &BTreeMap<Name, i64>, now: Time, sharing: &UsageSharing) {
        let account = self.accounts.entry(queue.clone()).or_default();
        let since = account.sampled.replace(now).map_or(Span::ZERO, |before| now - before);
        account.penalty.clear();
        if sharing.half_life.0 <= 0 {
            account.consumed.clear();
            return;
        }
        let factor = forgotten(since, sharing.half_life);
        let mut consumed = BTreeMap::new();
        for resource in account.consumed.keys().chain(running.keys()) {
            let before = account.consumed.get(resource).copied().unwrap_or(0);
            let now = running.get(resource).copied().unwrap_or(0);
            consumed.insert(resource.clone(), part(before, 1.0 - factor).saturating_add(part(now, factor)));
        }
        account.consumed = consumed;
    }

    /// What orders queues: resources by their weights, over the weight of the queue.
    #[expect(clippy::cast_precision_loss, reason = "only compared")]
    pub fn usage(&self, queue: &Key, weight: Weight, sharing: &UsageSharing) -> f64 {
        if weight.0 <= 0 {
            return f64::INFINITY;
        }
        let Some(account) = self.accounts.get(queue) else { return 0.0 };
        let sum: f64 = account
            .consumed
            .iter()
            .chain(&account.penalty)
            .map(|(resource, amount)| {
                let weight = sharing.weights.get(resource).copied().unwrap_or(1000);
                *amount as f64 * weight as f64
            })
            .sum();
        // The empty sum is -0, which would come before 0.
        (sum + 0.0) / weight.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(half_life: i64) -> UsageSharing {
        UsageSharing {
            half_life: Span::seconds(half_life),
            sampling: Span::seconds(1),
            weights: BTreeMap::new(),
        }
    }

    fn cpu(amount: i64) -> BTreeMap<Name, i64> {
        [("cpu".into(), amount)].into()
    }

    #[test]
    fn half_is_forgotten_after_a_half_life() {
        let queue = Key::new("n", "q");
        let mut ledger = Ledger::default();
        ledger.set(queue.clone(), cpu(1000), Some(Time(0)));
        ledger.sample(&queue, &cpu(0), Time(10_000), &sharing(10));
        assert_eq!(ledger.accounts[&queue].consumed, cpu(500));
        ledger.sample(&queue, &cpu(1000), Time(20_000), &sharing(10));
        assert_eq!(ledger.accounts[&queue].consumed, cpu(750));
    }

    #[test]
    fn without_a_half_life_nothing_is_kept_and_nothing_is_charged() {
        let queue = Key::new("n", "q");
        let mut ledger = Ledger::default();
        ledger.set(queue.clone(), cpu(1000), Some(Time(0)));
        ledger.enter(&queue, &cpu(1000), &sharing(0), 1);
        ledger.sample(&queue, &cpu(1000), Time(10_000), &sharing(0));
        assert_eq!(
            ledger.usage(&queue, Weight::default(), &sharing(0)).total_cmp(&0.0),
            std::cmp::Ordering::Equal
        );
    }

    #[test]
    fn a_queue_without_weight_is_last() {
        let ledger = Ledger::default();
        assert!(ledger.usage(&Key::new("n", "q"), Weight(0), &sharing(1)).is_infinite());
    }
}
