//! Fair-share division: how much of one resource each queue of one level ought to have.
//!
//! In: what there is to divide, and of each queue what it deserves, wants, weighs and used before. Out: the
//! fair share of each, in the order given, and what nobody gets.
//!
//! 1. Every queue gets the smaller of its quota and what it can use; an unlimited quota is all there is.
//!    Quotas may promise more than there is: then the division ends here.
//! 2. What is left is offered to one priority after the other, the highest first, in rounds. In a round each
//!    queue that wants more has a slice by its weight, with its past usage held against it. It takes what it
//!    wants of the slice, or the slice rounded down to whole units, and then the part cut off is remembered.
//!    There is another round if somebody needed less than its slice and something is left.
//! 3. What rounding left over goes, before the next priority is looked at, one unit each to the queues with
//!    remembered parts, the largest part first. These units are not held against request or limit: a queue
//!    may get one more than it asked for.
//!
//! A level further down divides what its parent got here.
//!
//! *Invariant:* exact. Slices are fractions of whole numbers and are compared as such; there is no floating
//! point.
//! *Invariant:* the order of the claimants does not matter, as long as their ranks differ.

use muster_model::Bound;
use std::cmp::Ordering;

/// One queue's case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// What it deserves.
    pub quota: Bound,
    /// What it can use: the smaller of its limit and its demand.
    pub requestable: i128,
    /// Its weight in the surplus, in thousandths; none at zero or below.
    pub weight: i64,
    /// Higher is served first.
    pub priority: i32,
    /// Its share of the cluster in the past, in millionths.
    pub usage: i64,
    /// Its place among equals: the oldest first, then by uid.
    pub age_rank: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// By claimant, in the order given.
    pub fair: Vec<i128>,
    /// What nobody gets; never negative.
    pub left: i128,
}

/// Divides `total` between the queues of one level. Surplus is handed out in multiples of `unit`;
/// `usage_weight` says in thousandths how much past usage counts, zero or below: not at all.
pub fn divide(total: i128, unit: i128, usage_weight: i64, claimants: &[Claimant]) -> Division {
    let due = |c: &Claimant| {
        let quota = match c.quota {
            Bound::At(quota) => i128::from(quota),
            Bound::Unlimited => total,
        };
        quota.min(c.requestable).max(0)
    };
    let mut fair: Vec<i128> = claimants.iter().map(due).collect();
    let mut left = fair.iter().fold(total, |left, given| left.saturating_sub(*given));

    let mut order: Vec<usize> = (0..claimants.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(claimants[*i].priority), claimants[*i].age_rank));
    for bucket in order.chunk_by(|a, b| claimants[*a].priority == claimants[*b].priority) {
        if left <= 0 {
            break;
        }
        left = divide_bucket(left, unit.max(1), usage_weight, claimants, bucket, &mut fair);
    }
    Division { fair, left: left.max(0) }
}

/// What a queue may have before others may take it away: its limit if its quota is unlimited, otherwise the
/// larger of its quota and fair share within its limit. `None`: unlimited.
pub fn allocatable_share(quota: Bound, limit: Bound, fair: i128) -> Option<i128> {
    match (quota, limit) {
        (Bound::Unlimited, Bound::Unlimited) => None,
        (Bound::Unlimited, Bound::At(limit)) => Some(i128::from(limit)),
        (Bound::At(quota), limit) => Some(limit.cap(fair.max(i128::from(quota)))),
    }
}

/// A part of a unit that rounding cut off: `whole + above / below`, with `above < below`.
#[derive(Clone, Copy)]
struct Part {
    whole: u128,
    above: u128,
    below: u128,
}

/// Steps 2 and 3 for the queues of one priority, oldest first. Gives back what is left.
fn divide_bucket(
    mut left: i128,
    unit: i128,
    usage_weight: i64,
    claimants: &[Claimant],
    bucket: &[usize],
    fair: &mut [i128],
) -> i128 {
    let mut remembered: Vec<Option<Part>> = vec![None; bucket.len()];
    // Every round but the last satisfies a queue for good, so there are at most as many rounds as queues.
    loop {
        let wants = |i: usize, fair: &[i128]| claimants[i].requestable.saturating_sub(fair[i]);
        let hungry: Vec<usize> = (0..bucket.len()).filter(|b| wants(bucket[*b], fair) > 0).collect();
        let weights = share_weights(usage_weight, hungry.iter().map(|b| &claimants[bucket[*b]]));
        let sum: u128 = weights.iter().sum();
        if sum == 0 {
            break;
        }
        let offered = left.unsigned_abs();
        let mut again = false;
        for (b, weight) in hungry.into_iter().zip(weights) {
            let i = bucket[b];
            let wanted = wants(i, fair);
            let (slice, above) = multiply_divide(offered, weight, sum);
            let taken = if wanted.unsigned_abs() <= slice {
                remembered[b] = None;
                again |= wanted.unsigned_abs() < slice || above > 0;
                wanted
            } else {
                let whole = slice % unit.unsigned_abs();
                if whole > 0 || above > 0 {
                    remembered[b] = Some(Part { whole, above, below: sum });
                }
                // A slice is never more than what is offered, which was an i128.
                i128::try_from(slice - whole).unwrap_or(left)
            };
            fair[i] = fair[i].saturating_add(taken);
            left -= taken;
        }
        if !again || left <= 0 {
            break;
        }
    }

    let mut parts: Vec<(Part, usize)> =
        remembered.iter().zip(bucket).filter_map(|(part, i)| Some(((*part)?, *i))).collect();
    // The sort is stable and the bucket is in order of age, so equal parts go to the oldest first.
    parts.sort_by(|(a, _), (b, _)| compare(b, a));
    for (_, i) in parts {
        if left <= 0 {
            break;
        }
        let given = unit.min(left);
        fair[i] = fair[i].saturating_add(given);
        left -= given;
    }
    left
}

/// Numbers in proportion to n + k (n - usage), where n is the queue's part of all weights; at least zero.
///
/// Weights beyond 2^40 thousandths are scaled down together, and k and usage are taken as at most 2^30 of
/// their units: far beyond what makes sense, and then everything below fits 128 bits.
fn share_weights<'a>(usage_weight: i64, hungry: impl Iterator<Item = &'a Claimant> + Clone) -> Vec<u128> {
    const MOST_WEIGHT_BITS: u32 = 40;
    const MOST: i64 = 1 << 30;
    let largest = hungry.clone().map(|c| c.weight).max().unwrap_or(0).max(0);
    let excess = (i64::BITS - largest.leading_zeros()).saturating_sub(MOST_WEIGHT_BITS);
    let weight = |c: &Claimant| match c.weight {
        ..=0 => 0,
        some => i128::from(some >> excess).max(1),
    };
    let all: i128 = hungry.clone().map(weight).sum();
    let k = i128::from(usage_weight.clamp(0, MOST));
    hungry
        .map(|c| {
            let usage = i128::from(c.usage.clamp(0, MOST));
            // Over the common denominator 1000 (of k) * 1,000,000 (of usage) * all.
            let plain = weight(c) * 1_000_000_000;
            let history = k.saturating_mul((weight(c) * 1_000_000).saturating_sub(usage.saturating_mul(all)));
            if weight(c) == 0 { 0 } else { plain.saturating_add(history).max(0).unsigned_abs() }
        })
        .collect()
}

/// a * b / c and the remainder, exactly; for b <= c <= 2^125.
fn multiply_divide(a: u128, b: u128, c: u128) -> (u128, u128) {
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    // Bit by bit from the top: the remainder stays below c, so three times c is the most that is ever held.
    let (mut quotient, mut rest) = (0_u128, 0_u128);
    for bit in (0..u128::BITS - a.leading_zeros()).rev() {
        quotient <<= 1;
        rest <<= 1;
        if a >> bit & 1 == 1 {
            rest += b;
        }
        while rest >= c {
            rest -= c;
            quotient += 1;
        }
    }
    (quotient, rest)
}

fn compare(a: &Part, b: &Part) -> Ordering {
    a.whole.cmp(&b.whole).then_with(|| compare_fractions((a.above, a.below), (b.above, b.below)))
}

/// Compares two fractions without multiplying: by their whole parts, then by their rests turned upside down.
fn compare_fractions(mut a: (u128, u128), mut b: (u128, u128)) -> Ordering {
    loop {
        if a.1 == b.1 {
            return a.0.cmp(&b.0);
        }
        let whole = (a.0 / a.1).cmp(&(b.0 / b.1));
        if whole != Ordering::Equal {
            return whole;
        }
        let (rest_a, rest_b) = (a.0 % a.1, b.0 % b.1);
        if rest_a == 0 || rest_b == 0 {
            return rest_a.cmp(&rest_b);
        }
        // rest_a / a.1 against rest_b / b.1 is b.1 / rest_b against a.1 / rest_a.
        (a, b) = ((b.1, rest_b), (a.1, rest_a));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str, scale: f64) -> i64 {
        (text.parse::<f64>().unwrap() * scale).round() as i64
    }

    /// `quota request weight` in whole GPUs, then `p=` priority, `u=` usage, `limit=`; older queues first.
    fn parse(text: &str) -> Vec<Claimant> {
        let parse_one = |(rank, text): (usize, &str)| {
            let mut words = text.split_whitespace();
            let quota = match words.next().unwrap() {
                "-" => Bound::Unlimited,
                some => Bound::At(number(some, 1000.0)),
            };
            let mut claimant = Claimant {
                quota,
                requestable: number(words.next().unwrap(), 1000.0).into(),
                weight: number(words.next().unwrap(), 1000.0),
                priority: 0,
                usage: 0,
                age_rank: rank as u32,
            };
            for word in words {
                match word.split_once('=').unwrap() {
                    ("p", priority) => claimant.priority = priority.parse().unwrap(),
                    ("u", usage) => claimant.usage = number(usage, 1e6),
                    ("limit", limit) => {
                        claimant.requestable = claimant.requestable.min(number(limit, 1000.0).into());
                    }
                    ("rank", rank) => claimant.age_rank = rank.parse().unwrap(),
                    other => panic!("{other:?}"),
                }
            }
            claimant
        };
        text.split(';').enumerate().map(parse_one).collect()
    }

    fn gpus(amount: i128) -> String {
        format!("{}", amount as f64 / 1000.0)
    }

    #[track_caller]
    fn check(total: &str, k: &str, claimants: &str, expected: &str) {
        let division = divide(number(total, 1000.0).into(), 1000, number(k, 1000.0), &parse(claimants));
        let fair: Vec<String> = division.fair.iter().map(|amount| gpus(*amount)).collect();
        assert_eq!(format!("{} left {}", fair.join(" "), gpus(division.left)), expected);
    }

    #[test]
    fn one_level() {
        // Quotas, surplus by weight, limits.
        check("15", "0", "2 6 2; 2 6 2", "6 6 left 3");
        check("8", "0", "2 6 1; 2 6 3", "3 5 left 0");
        check("12", "0", "2 6 2 limit=5; 2 6 2", "5 6 left 1");
        // The larger cut-off part gets the unit, and among equals the older queue.
        check("11", "0", "2 10 1; 2 10 4", "3 8 left 0");
        check("11", "0", "2 6 2; 2 6 2", "6 5 left 0");
        check("11", "0", "2 6 2 rank=2; 2 6 2 rank=1", "5 6 left 0");
        // Priority beats weight.
        check("6", "0", "2 6 100 p=1; 2 6 1 p=2", "2 4 left 0");
        check("10", "0", "3 7 2 p=2; 2 7 1 p=2; 2 5 9 p=1", "5 3 2 left 0");
        // Quotas may promise more than there is.
        check("1", "0", "3 2 0", "2 left 0");
        check("4", "0", "3 9 1; 3 9 1", "3 3 left 0");
        // No weight, no surplus.
        check("10", "0", "0 5 0; 0 3 1", "0 3 left 7");
        // History.
        check("16", "1", "0 16 1 u=0.5; 0 16 1", "5 11 left 0");
        check("16", "1", "0 16 1 u=1.0; 0 16 1", "0 16 left 0");
        check("16", "0.5", "0 16 1 u=0.5; 0 16 1 u=0.1", "7 9 left 0");
        check("16", "3", "0 16 1; 0 16 3", "4 12 left 0");
        check("16", "-1", "0 16 1 u=0.5; 0 16 1", "8 8 left 0");
        check("16", "1", "0 16 1 u=1; 0 16 1 u=1", "0 0 left 16");
        // The unit left over goes beyond the request, but is never more than what is left.
        check("3", "0", "0 1.6 1; 0 1.6 1", "2 1 left 0");
        check("2.5", "0", "0 3 1; 0 3 1", "1.5 1 left 0");
        check("1.5", "0", "0 3 1", "1.5 left 0");
        // A second round.
        check("12", "0", "0 2 1; 0 20 1; 0 20 1", "2 5 5 left 0");
        check("10", "0", "0 1 1; 0 2 1; 0 20 1; 0 20 2", "1 2 2 5 left 0");
        // An unlimited quota is all there is.
        check("8", "0", "- 6 0; 2 6 1", "6 2 left 0");
        check("8", "0", "- 20 0; 2 6 1", "8 2 left 0");
        // Rounding is settled before the next priority is served.
        check("5", "0", "0 9 1 p=2; 0 9 1 p=2; 0 9 1 p=1", "3 2 0 left 0");
        check("5", "0", "0 2 1 p=2; 0 2 1 p=2; 0 9 1 p=1", "2 2 1 left 0");
        // Nothing to divide, nobody to divide it, nonsense.
        check("7", "0", "2 0 1", "0 left 7");
        check("-3", "0", "- 2 1; 1 2 1", "0 1 left 0");
        check("8", "0", "-3 2 -1; -1 4 1", "0 4 left 4");
        assert_eq!(divide(9, 1, 0, &[]), Division { fair: vec![], left: 9 });
    }

    /// Children divide what the parent got, which is bounded by its demand.
    #[track_caller]
    fn check_levels(total: i128, parents: &str, children: &[&str], expected: &[&[i128]]) {
        let parents = divide(total * 1000, 1000, 0, &parse(parents));
        let fair: Vec<Vec<i128>> = (parents.fair.iter().zip(children))
            .map(|(total, children)| divide(*total, 1000, 0, &parse(children)).fair)
            .map(|fair| fair.iter().map(|amount| amount / 1000).collect())
            .collect();
        assert_eq!(fair, expected);
    }

    #[test]
    fn several_levels() {
        check_levels(16, "4 16 1; 4 16 3", &["2 8 1; 2 8 1", "4 8 1; 0 8 1"], &[&[3, 3], &[7, 3]]);
        // The parent wants 6 only, so the child with a quota of 8 cannot have more.
        check_levels(16, "8 6 1; 8 16 1", &["- 6 1", "- 10 0; 4 6 1"], &[&[6], &[10, 4]]);
        // A parent without weight has its quota only.
        check_levels(10, "3 10 0; 0 10 1", &["0 5 1; 0 5 1", "0 9 1; 0 1 1"], &[&[2, 1], &[6, 1]]);
    }

    #[test]
    fn the_unit_is_the_resource_s_own() {
        let claimant = |weight, age_rank| Claimant {
            quota: Bound::At(0),
            requestable: 100,
            weight,
            priority: 0,
            usage: 0,
            age_rank,
        };
        assert_eq!(divide(10, 1, 0, &[claimant(1000, 0), claimant(2000, 1)]).fair, [3, 7]);
        assert_eq!(divide(10, 5, 0, &[claimant(1000, 0), claimant(2000, 1)]).fair, [5, 5]);
        assert_eq!(divide(10, 0, 0, &[claimant(1000, 0)]).fair, [10]);
    }

    #[test]
    fn allocatable() {
        use Bound::{At, Unlimited};
        let check = |quota, limit, fair, expected| {
            assert_eq!(allocatable_share(quota, limit, fair), expected);
        };
        check(At(4), Unlimited, 6, Some(6));
        check(At(4), Unlimited, 2, Some(4));
        check(At(4), At(5), 6, Some(5));
        check(At(4), At(3), 2, Some(3));
        check(Unlimited, At(3), 9, Some(3));
        check(Unlimited, Unlimited, 9, None);
    }

    #[test]
    fn absurd_numbers_are_no_panic() {
        let claimant = |age_rank| Claimant {
            quota: Bound::At(i64::MAX),
            requestable: i128::MAX,
            weight: i64::MAX,
            priority: i32::MAX,
            usage: i64::MAX,
            age_rank,
        };
        let small = Claimant { quota: Bound::At(0), weight: 1, ..claimant(9) };
        for total in [i128::MIN, -1, 0, 1, i128::MAX] {
            for k in [i64::MIN, 0, i64::MAX] {
                for unit in [i128::MIN, 0, 1, i128::MAX] {
                    divide(total, unit, k, &[claimant(0), claimant(1), small]);
                }
            }
        }
        let halves = divide(i128::MAX, 1, 0, &[claimant(0), claimant(1)]);
        assert_eq!(halves.fair, [i128::MAX / 2 + 1, i128::MAX / 2]);
        assert_eq!(halves.left, 0);
    }

    fn claimants(most: i128) -> impl Strategy<Value = Vec<Claimant>> {
        let one = (
            prop_oneof![4 => (0..20_i64).prop_map(Bound::At), 1 => Just(Bound::Unlimited)],
            prop_oneof![0..=most, 0..most * 3],
            prop_oneof![0..5_i64, 1..100_000_i64],
            0..3_i32,
            prop_oneof![Just(0), 0..1_000_000_i64],
        );
        prop::collection::vec(one, 0..7).prop_map(|all| {
            let claimant = |(rank, (quota, requestable, weight, priority, usage))| Claimant {
                quota,
                requestable,
                weight,
                priority,
                usage,
                age_rank: rank as u32,
            };
            all.into_iter().enumerate().map(claimant).collect()
        })
    }

    fn step_1(total: i128, c: &Claimant) -> i128 {
        match c.quota {
            Bound::At(quota) => c.requestable.min(quota.into()),
            Bound::Unlimited => c.requestable.min(total),
        }
    }

    proptest! {
        #[test]
        fn nobody_is_below_its_due_and_nothing_is_made_from_nothing(
            total in 0..200_i128, unit in 1..12_i128, k in 0..3000_i64, claimants in claimants(60),
        ) {
            let division = divide(total, unit, k, &claimants);
            let due: Vec<i128> = claimants.iter().map(|c| step_1(total, c)).collect();
            for (fair, due) in division.fair.iter().zip(&due) {
                prop_assert!(fair >= due);
            }
            let due: i128 = due.iter().sum();
            let given: i128 = division.fair.iter().sum();
            prop_assert!(given <= total.max(due));
            prop_assert_eq!(division.left, (total - given).max(0));
            // Beyond its request a queue gets less than a unit, and only from what was left over.
            for (fair, c) in division.fair.iter().zip(&claimants) {
                prop_assert!(*fair < c.requestable + unit);
                prop_assert!(c.weight > 0 || *fair == step_1(total, c));
            }
        }

        #[test]
        fn with_enough_demand_all_is_given(total in 0..200_i128, unit in 1..12_i128, claimants in claimants(60)) {
            let eager: Vec<Claimant> = claimants
                .iter()
                .map(|c| Claimant { requestable: 1000, weight: c.weight.max(1), quota: Bound::At(0), ..*c })
                .collect();
            let division = divide(total, unit, 0, &eager);
            let expected = if eager.is_empty() { 0 } else { total };
            prop_assert_eq!(division.fair.iter().sum::<i128>(), expected);
        }

        #[test]
        fn surplus_stays_while_a_weighty_queue_wants_it_only_by_rounding(
            total in 0..200_i128, claimants in claimants(60),
        ) {
            // Without history and with units of one nothing is left while somebody with a weight wants more.
            let division = divide(total, 1, 0, &claimants);
            let hungry = division.fair.iter().zip(&claimants).any(|(f, c)| *f < c.requestable && c.weight > 0);
            prop_assert!(division.left == 0 || !hungry);
        }

        #[test]
        fn a_lone_queue_never_gets_less_of_more(
            total in 0..200_i128, more in 0..50_i128, unit in 1..12_i128, claimants in claimants(60),
        ) {
            for c in &claimants {
                let lone = |total| divide(total, unit, 0, &[*c]).fair[0];
                prop_assert!(lone(total) <= lone(total + more));
            }
        }

        #[test]
        fn order_does_not_matter(
            total in 0..200_i128, unit in 1..12_i128, k in 0..3000_i64,
            (claimants, shuffled) in claimants(60).prop_flat_map(|c| {
                let order = Just((0..c.len()).collect::<Vec<_>>()).prop_shuffle();
                (Just(c), order)
            }),
        ) {
            let division = divide(total, unit, k, &claimants);
            let other: Vec<Claimant> = shuffled.iter().map(|i| claimants[*i]).collect();
            let other = divide(total, unit, k, &other);
            let back: Vec<i128> = shuffled.iter().map(|i| division.fair[*i]).collect();
            prop_assert_eq!(other.fair, back);
            prop_assert_eq!(other.left, division.left);
        }

        #[test]
        fn the_scale_of_weights_does_not_matter(total in 0..200_i128, claimants in claimants(60)) {
            let heavier = |c: &Claimant| Claimant { weight: c.weight << 30, ..*c };
            let heavier: Vec<Claimant> = claimants.iter().map(heavier).collect();
            let (a, b) = (divide(total, 1, 0, &claimants), divide(total, 1, 0, &heavier));
            prop_assert_eq!(a, b);
        }

        #[test]
        fn long_multiplication_agrees_with_short(a in any::<u64>(), b in any::<u32>(), c in 1..u64::MAX) {
            let (a, b, c) = (u128::from(a), u128::from(b).min(u128::from(c)), u128::from(c));
            let product = a * b;
            prop_assert_eq!(multiply_divide(a, b, c), (product / c, product % c));
            // Scaled so far that the short way overflows: two digits of 32 bits more.
            let first = (product << 32) / c;
            let rest = ((product << 32) % c) << 32;
            let (quotient, far) = multiply_divide(a << 64, b << 60, c << 60);
            prop_assert_eq!((quotient, far >> 60), ((first << 32) + rest / c, rest % c));
        }

        #[test]
        fn fractions_compare_as_by_cross_multiplication(
            a in 0..u128::from(u32::MAX), b in 1..u128::from(u32::MAX),
            c in 0..u128::from(u32::MAX), d in 1..u128::from(u32::MAX),
        ) {
            prop_assert_eq!(compare_fractions((a, b), (c, d)), (a * d).cmp(&(c * b)));
            prop_assert_eq!(compare_fractions((a, b), (a * 3, b * 3)), Ordering::Equal);
        }
    }
}
