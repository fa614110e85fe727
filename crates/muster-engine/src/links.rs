//! Hot path: which GPUs of a node, by how they are joined.
//!
//! In: the node's links, its free GPUs and how many are wanted. Out: the set to take.
//!
//! The measure. A tier of [`Links`] is a list of disjoint sets of GPUs; two GPUs are joined at a tier if one
//! of its sets has both. The [`Score`] of some GPUs is, tier by tier and the fastest first, how many pairs of
//! them are joined there; the first tier that differs decides. Of all ways to take `k` free GPUs, [`choose`]
//! takes
//!
//! 1. the one with the highest score;
//! 2. among equals, the one that leaves free GPUs of the highest score: pairs grow with the square of a set's
//!    size, so large whole sets are kept for a later pod, and sets that are broken already are used up first;
//! 3. among equals, the lowest indices: the set whose smallest index that the other lacks is smaller.
//!
//! Where sets are nested (each set lies within one set of every slower tier, as real machines are built, as
//! far as free GPUs go) the answer is exact. It is put together from the best answers for 0, 1, .. k GPUs of
//! each set: the measure of disjoint sets adds up, tie-breaks included. Where sets cross and there are few
//! ways to choose, all are tried; otherwise a slower set is taken to reach as far as the faster sets that it
//! touches.
//!
//! Tiers that cannot tell two choices apart (they join all free GPUs, none, or those of the tier before) are
//! skipped; of the others, and in a score, the eleven fastest count.

use muster_model::Links;
use smallvec::SmallVec;

/// How well GPUs are joined; more is better. The score of no GPUs, or of a node whose links are not known, is
/// the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(u128);

/// Pairs of up to 64 GPUs: at most 2016, so eleven bits.
const FIELD_BITS: u32 = 11;
const MOST_TIERS: usize = (u128::BITS / FIELD_BITS) as usize;

/// Where sets cross: up to this many ways all are tried. All ways to take 8 of 16 are 12,870.
const MOST_TRIES: u64 = 13_000;

/// The free GPUs to take, bit i for GPU i; `None` if fewer than `k` are free.
pub fn choose(links: &Links, free: u64, k: u32) -> Option<u64> {
    let free = free & lowest(u64::MAX, links.gpus);
    if k > free.count_ones() {
        return None;
    }
    let tiers = telling_tiers(links, free);
    if tiers.is_empty() || k == 0 || k == free.count_ones() {
        return Some(lowest(free, k));
    }
    let chosen = match assemble(&tiers, free, k, false) {
        Some(chosen) => chosen,
        None if ways(free.count_ones(), k) <= MOST_TRIES => try_all(&tiers, free, k),
        None => assemble(&tiers, free, k, true).unwrap_or_else(|| lowest(free, k)),
    };
    Some(chosen)
}

/// How well these GPUs are joined.
pub fn score(links: &Links, chosen: u64) -> Score {
    let chosen = chosen & lowest(u64::MAX, links.gpus);
    let mut fields = 0;
    for (tier, sets) in links.tiers.iter().take(MOST_TIERS).enumerate() {
        let mut rest = chosen;
        let mut joined = 0;
        for set in sets {
            joined += pairs((rest & set).count_ones());
            rest &= !set;
        }
        fields |= field(tier, joined);
    }
    Score(fields)
}

/// Sets of the free GPUs, two or more in each.
type Tier = SmallVec<[u64; 8]>;
type Tiers = SmallVec<[Tier; 4]>;

/// The tiers that can tell choices apart, as far as free GPUs go.
fn telling_tiers(links: &Links, free: u64) -> Tiers {
    let mut tiers = Tiers::new();
    for sets in &links.tiers {
        // A set that names a GPU again, against the rules, has lost it to the first.
        let mut rest = free;
        let mut tier = Tier::new();
        for set in sets {
            let members = set & rest;
            rest &= !set;
            if members.count_ones() > 1 {
                tier.push(members);
            }
        }
        tier.sort_unstable();
        let tells = !tier.is_empty() && tier[0] != free && tiers.last() != Some(&tier);
        if tells && tiers.len() < MOST_TIERS {
            tiers.push(tier);
        }
    }
    tiers
}

/// The measure of a choice within some GPUs, as numbers that add up over disjoint GPUs and compare in this
/// order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    taken: u128,
    kept: u128,
    /// The GPUs taken, GPU 0 at the top, so that of two sets the larger number has the smaller index first.
    mirrored: u64,
}

impl Worth {
    fn plus(self, other: Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            kept: self.kept + other.kept,
            mirrored: self.mirrored | other.mirrored,
        }
    }
}

/// Some GPUs, with the best choice of 0, 1, 2, .. of them.
struct Part {
    gpus: u64,
    best: SmallVec<[Worth; 9]>,
}

/// Puts the best choice together from the fastest sets to the slowest. `None` if sets cross, unless
/// `crossing` ones may be widened to all that they touch.
fn assemble(tiers: &[Tier], free: u64, k: u32, crossing: bool) -> Option<u64> {
    let mut parts: SmallVec<[Part; 16]> = SmallVec::new();
    let mut lone = free;
    for set in &tiers[0] {
        lone &= !set;
        parts.push(whole(*set, k));
    }
    parts.iter_mut().for_each(|part| count_pairs(part, 0));
    while lone != 0 {
        parts.push(whole(lowest(lone, 1), k));
        lone &= lone - 1;
    }
    for (tier, sets) in tiers.iter().enumerate().skip(1) {
        let mut joined = 0;
        for set in sets {
            if !crossing && parts.iter().any(|part| part.gpus & set != 0 && part.gpus & !set != 0) {
                return None;
            }
            let all = merge(&mut parts, |part| part.gpus & set != 0, k);
            joined |= all.gpus;
            parts.push(all);
        }
        // Only now, because a set that crosses may have joined a part that another set had made.
        parts.iter_mut().filter(|part| part.gpus & joined != 0).for_each(|part| count_pairs(part, tier));
    }
    let all = merge(&mut parts, |_| true, k);
    all.best.get(k as usize).map(|worth| worth.mirrored.reverse_bits())
}

/// GPUs that nothing tells apart: the lowest are taken first.
fn whole(gpus: u64, k: u32) -> Part {
    let best = (0..=k.min(gpus.count_ones()))
        .map(|n| Worth { mirrored: lowest(gpus, n).reverse_bits(), ..Worth::default() })
        .collect();
    Part { gpus, best }
}

/// Adds the pairs that a set of this tier joins.
fn count_pairs(part: &mut Part, tier: usize) {
    let size = part.gpus.count_ones();
    for (n, worth) in (0..).zip(&mut part.best) {
        worth.taken += field(tier, pairs(n));
        worth.kept += field(tier, pairs(size - n));
    }
}

/// Takes the parts out and makes one of them: for each number the best way to share it out.
fn merge(parts: &mut SmallVec<[Part; 16]>, concerned: impl Fn(&Part) -> bool, k: u32) -> Part {
    let mut all = whole(0, 0);
    parts.retain(|part| {
        let mine = concerned(part);
        if mine {
            let most = (k as usize).min(all.best.len() + part.best.len() - 2);
            let mut best: SmallVec<[Worth; 9]> = SmallVec::from_elem(Worth::default(), most + 1);
            for (n, one) in all.best.iter().enumerate() {
                for (total, other) in (n..=most).zip(&part.best) {
                    best[total] = best[total].max(one.plus(*other));
                }
            }
            all = Part { gpus: all.gpus | part.gpus, best };
        }
        !mine
    });
    all
}

/// The best of all choices.
fn try_all(tiers: &[Tier], free: u64, k: u32) -> u64 {
    let measure = |gpus: u64| {
        let joined = |(tier, sets): (usize, &Tier)| {
            field(tier, sets.iter().map(|set| pairs((gpus & set).count_ones())).sum())
        };
        tiers.iter().enumerate().map(joined).sum::<u128>()
    };
    let worth = |chosen: u64| Worth {
        taken: measure(chosen),
        kept: measure(free & !chosen),
        mirrored: chosen.reverse_bits(),
    };
    let n = free.count_ones();
    let mut best = worth(lowest(free, k));
    // Choices as numbers with k of the n lowest bits set, each from the one before (the next larger such
    // number).
    let mut ranks = lowest(u64::MAX, k);
    loop {
        let low = ranks & ranks.wrapping_neg();
        let Some(carried) = ranks.checked_add(low) else { break };
        ranks = carried | (((carried ^ ranks) >> 2) / low);
        if ranks & !lowest(u64::MAX, n) != 0 {
            break;
        }
        best = best.max(worth(deposit(ranks, free)));
    }
    best.mirrored.reverse_bits()
}

/// The members of `set` at these ranks: bit i of `ranks` stands for the i-th lowest member.
fn deposit(ranks: u64, set: u64) -> u64 {
    let (mut result, mut rest, mut ranks) = (0, set, ranks);
    while ranks != 0 && rest != 0 {
        if ranks & 1 == 1 {
            result |= rest & rest.wrapping_neg();
        }
        rest &= rest - 1;
        ranks >>= 1;
    }
    result
}

/// The `n` lowest members, or all.
fn lowest(set: u64, n: u32) -> u64 {
    if set == u64::MAX {
        return if n >= u64::BITS { set } else { (1 << n) - 1 };
    }
    let mut rest = set;
    for _ in 0..n {
        rest &= rest.wrapping_sub(1);
    }
    set & !rest
}

fn pairs(n: u32) -> u128 {
    u128::from(n * n.saturating_sub(1) / 2)
}

/// A number of pairs in the place of its tier, the fastest at the top.
fn field(tier: usize, pairs: u128) -> u128 {
    pairs << (FIELD_BITS as usize * (MOST_TIERS - 1 - tier.min(MOST_TIERS - 1)))
}

/// How many ways there are to take k of n, or more than can be counted.
fn ways(n: u32, k: u32) -> u64 {
    let mut ways = 1_u64;
    for i in 0..k.min(n - k.min(n)) {
        ways = match ways.checked_mul(u64::from(n - i)) {
            Some(product) => product / u64::from(i + 1),
            None => return u64::MAX,
        };
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    fn set(text: &str) -> u64 {
        let mut set = 0;
        for word in text.split_whitespace() {
            let (from, to) = word.split_once('-').unwrap_or((word, word));
            for i in from.parse::<u32>().unwrap()..=to.parse().unwrap() {
                set |= 1 << i;
            }
        }
        set
    }

    fn indices(set: u64) -> Vec<u32> {
        (0..64).filter(|i| set >> i & 1 == 1).collect()
    }

    /// Tiers by `;`, sets by `,`, members as numbers and ranges.
    fn links(gpus: u32, text: &str) -> Links {
        let tier = |text: &str| text.split(',').map(set).filter(|set| *set != 0).collect();
        Links { gpus, tiers: text.split(';').map(tier).collect() }
    }

    #[track_caller]
    fn check(joined: &Links, free: &str, k: u32, expected: &str) {
        let chosen = choose(joined, set(free), k).map(indices);
        assert_eq!(chosen, Some(indices(set(expected))));
    }

    #[test]
    fn one_switch_joins_all() {
        let links = links(8, "0-7");
        check(&links, "0-7", 3, "0 1 2");
        check(&links, "1 3 5 7", 2, "1 3");
        check(&links, "0-7", 0, "");
        check(&links, "0-7", 8, "0-7");
        assert_eq!(choose(&links, set("0 1"), 3), None);
        assert_eq!(choose(&links, u64::MAX, 9), None);
    }

    #[test]
    fn pairs_within_sockets() {
        let links = links(8, "0 1, 2 3, 4 5, 6 7; 0-3, 4-7");
        check(&links, "0-7", 2, "0 1");
        check(&links, "0-7", 4, "0-3");
        check(&links, "2-7", 4, "4-7");
        // A pair that is joined is better than two of one socket.
        check(&links, "0 2 5 6 7", 2, "6 7");
        // A single GPU breaks no pair if it need not, and no socket.
        check(&links, "0 2-7", 1, "0");
        check(&links, "0 1 4-7", 1, "0");
        check(&links, "0 1 4-7", 2, "0 1");
        check(&links, "0 1 4 6", 2, "0 1");
        check(&links, "0 1 4 6", 3, "0 1 4");
        check(&links, "0 2 4 5", 3, "0 4 5");
        check(&links, "1 3 4 6", 2, "1 3");
        check(&links, "0-7", 6, "0-5");
        // Three: a pair and a neighbour of the same socket.
        check(&links, "1 4 5 7", 3, "4 5 7");
        check(&links, "0 1 5 6", 3, "0 1 5");
    }

    #[test]
    fn large_sets_are_kept_whole() {
        let links = links(8, "0-5, 6 7");
        check(&links, "0-7", 2, "6 7");
        check(&links, "0-7", 1, "6");
        check(&links, "0-7", 3, "0-2");
        check(&links, "0-3 6 7", 2, "6 7");
        check(&links, "0 1 6 7", 2, "0 1");
    }

    #[test]
    fn no_links_no_matter() {
        check(&links(4, ""), "1-3", 2, "1 2");
        check(&Links { gpus: 4, tiers: vec![] }, "1-3", 2, "1 2");
        assert_eq!(score(&links(4, ""), 0b11), Score::default());
    }

    #[test]
    fn sets_that_cross() {
        // A ring of joined pairs, as two tiers that cross: any two neighbours are joined.
        let ring = links(4, "0 1, 2 3; 1 2, 0 3");
        check(&ring, "0-3", 2, "0 1");
        check(&ring, "0 2 3", 2, "2 3");
        check(&ring, "1 2", 2, "1 2");
        // Too many ways to try them all.
        let wide = links(64, "0-9, 10-19, 20-63; 5-14, 15-24");
        assert_eq!(choose(&wide, u64::MAX, 20).map(u64::count_ones), Some(20));
        check(&wide, "0-63", 44, "20-63");
    }

    #[test]
    fn scores_compare_nodes() {
        let links = links(8, "0 1, 2 3, 4 5, 6 7; 0-3, 4-7");
        let of = |text| score(&links, set(text));
        assert!(of("0 1") > of("0 2"));
        assert!(of("0 2") > of("0 4"));
        assert!(of("0 1 2") > of("0 1 4"));
        assert_eq!(of("0 1"), of("6 7"));
        assert_eq!(of("0 4"), Score::default());
        assert!(of("0-3") > of("0 1 4 5"));
    }

    #[test]
    fn against_the_rules() {
        // A GPU in two sets of one tier belongs to the first; indices beyond the number of GPUs do not exist.
        let links = links(4, "0 1, 1 2, 1 2; 2 3 60");
        assert_eq!(score(&links, set("1 2")), Score::default());
        check(&links, "1-3 60", 2, "2 3");
        assert_eq!(choose(&links, set("60"), 1), None);
    }

    /// Everything of one size, sorted by the words of the module's documentation.
    fn brute_force(links: &Links, free: u64, k: u32) -> Option<u64> {
        (0..1_u64 << links.gpus).filter(|chosen| chosen & !free == 0 && chosen.count_ones() == k).min_by_key(
            |chosen| {
                (Reverse(score(links, *chosen)), Reverse(score(links, free & !chosen)), indices(*chosen))
            },
        )
    }

    /// A tier as a colour of each GPU; colour 0 is in no set.
    fn tier(colours: &[u8]) -> Vec<u64> {
        let of =
            |colour| (0..).zip(colours).filter(|(_, c)| **c == colour).fold(0, |set, (i, _)| set | 1 << i);
        (1..8).map(of).filter(|set: &u64| *set != 0).collect()
    }

    fn any_links() -> impl Strategy<Value = Links> {
        let crossing = (2..=10_usize).prop_flat_map(|gpus| {
            (Just(gpus), prop::collection::vec(prop::collection::vec(0..4_u8, gpus), 0..4))
        });
        let nested =
            (2..=10_usize, prop::collection::vec(1..5_u8, 10), 1..3_u8).prop_map(|(gpus, ends, most)| {
                // Runs of random lengths; each slower tier joins runs of the one before.
                let mut colours: Vec<u8> = ends
                    .iter()
                    .enumerate()
                    .flat_map(|(i, n)| vec![i as u8; (*n).into()])
                    .take(gpus)
                    .collect();
                colours.resize(gpus, 0);
                let mut tiers = vec![];
                for _ in 0..=most {
                    tiers.push(colours.iter().map(|c| c + 1).collect());
                    colours.iter_mut().for_each(|c| *c /= 2);
                }
                (gpus, tiers)
            });
        prop_oneof![crossing, nested].prop_map(|(gpus, tiers)| Links {
            gpus: gpus as u32,
            tiers: tiers.iter().map(|colours: &Vec<u8>| tier(colours)).collect(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn it_is_the_best_of_all(links in any_links(), free in 0..1024_u64, k in 0..11_u32) {
            let free = free & lowest(u64::MAX, links.gpus);
            prop_assert_eq!(choose(&links, free, k), brute_force(&links, free, k));
        }

        #[test]
        fn trying_all_and_putting_together_agree(links in any_links(), free in 0..1024_u64, k in 0..11_u32) {
            let free = free & lowest(u64::MAX, links.gpus);
            let tiers = telling_tiers(&links, free);
            if !tiers.is_empty() && k <= free.count_ones() && k > 0
                && let Some(chosen) = assemble(&tiers, free, k, false)
            {
                prop_assert_eq!(chosen, try_all(&tiers, free, k));
                prop_assert_eq!(Some(chosen), assemble(&tiers, free, k, true));
            }
        }

        #[test]
        fn anything_goes(
            gpus in 0..100_u32, free in any::<u64>(), k in 0..70_u32,
            tiers in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..6), 0..14),
        ) {
            let links = Links { gpus, tiers };
            let usable = free & lowest(u64::MAX, gpus);
            let chosen = choose(&links, free, k);
            prop_assert_eq!(chosen.is_some(), k <= usable.count_ones());
            if let Some(chosen) = chosen {
                prop_assert_eq!(chosen & !usable, 0);
                prop_assert_eq!(chosen.count_ones(), k);
            }
        }
    }
}
