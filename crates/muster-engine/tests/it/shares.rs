//! Fair shares, level by level: nobody hands out more than there is, and nothing stays behind that somebody wants.

use muster_engine::divide::{Claimant, divide};
use muster_model::Bound;
use proptest::prelude::*;

/// A queue and those below it.
#[derive(Clone, Debug)]
struct Tree {
    queue: Claimant,
    below: Vec<Tree>,
}

fn claimant() -> impl Strategy<Value = Claimant> {
    let amount = || prop_oneof![Just(0_i64), 0..20_i64, 0..100_000_i64];
    let quota = prop_oneof![4 => amount().prop_map(Bound::At), 1 => Just(Bound::Unlimited)];
    let weight = prop_oneof![Just(0_i64), 1..5_i64, 1..10_000_i64];
    (quota, amount(), weight, 0..3, 0..2_000_000_i64).prop_map(|(quota, wants, weight, priority, usage)| {
        Claimant { quota, requestable: i128::from(wants), weight, priority, usage, age_rank: 0 }
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = claimant().prop_map(|queue| Tree { queue, below: Vec::new() });
    leaf.prop_recursive(3, 30, 5, |inner| {
        (claimant(), prop::collection::vec(inner, 1..5)).prop_map(|(queue, below)| Tree { queue, below })
    })
}

/// How the level is divided.
struct Rule {
    unit: i128,
    usage_weight: i64,
    /// Everybody wants everything.
    greedy: bool,
}

fn check(total: i128, level: &[Tree], rule: &Rule) -> Result<(), TestCaseError> {
    let claimants: Vec<Claimant> = level
        .iter()
        .zip(0..)
        .map(|(tree, age_rank)| {
            let requestable = if rule.greedy { total } else { tree.queue.requestable };
            Claimant { age_rank, requestable, ..tree.queue }
        })
        .collect();
    let division = divide(total, rule.unit, rule.usage_weight, &claimants);
    let guaranteed: i128 = claimants
        .iter()
        .map(|c| match c.quota {
            Bound::At(quota) => i128::from(quota).min(c.requestable),
            Bound::Unlimited => total.min(c.requestable),
        })
        .sum();
    let given: i128 = division.fair.iter().sum();
    prop_assert!(division.fair.iter().all(|fair| *fair >= 0));
    prop_assert_eq!(given + division.left, total.max(guaranteed), "all of it is accounted for");
    for (c, fair) in claimants.iter().zip(&division.fair) {
        prop_assert!(*fair < c.requestable.max(1) + rule.unit, "{:?} gets {}", c, fair);
    }
    let taker = claimants.iter().any(|c| c.weight > 0);
    if rule.greedy && taker && rule.usage_weight == 0 {
        prop_assert_eq!(division.left, 0, "somebody wants it");
    }
    let hungry =
        |(c, fair): (&Claimant, &i128)| c.weight > 0 && c.requestable > *fair && rule.usage_weight == 0;
    if division.left > 0 {
        prop_assert!(
            !claimants.iter().zip(&division.fair).any(hungry),
            "something is left and somebody wants"
        );
    }
    for (tree, fair) in level.iter().zip(division.fair) {
        if !tree.below.is_empty() {
            check(fair, &tree.below, rule)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fair_shares_sum_to_what_is_there(
        total in prop_oneof![0..50_i64, 0..200_000_i64],
        level in prop::collection::vec(tree(), 1..6),
        unit in prop_oneof![Just(1_i128), Just(1000)],
        usage_weight in prop_oneof![Just(0_i64), Just(1000)],
        greedy in any::<bool>(),
    ) {
        check(i128::from(total), &level, &Rule { unit, usage_weight, greedy })?;
    }
}
