//! Even placement: as many pods in every domain that is used as can be, in as few domains as the greedy way would take.
//!
//! A threshold is sought first: the most slices that the domain with the fewest could have. Domains that cannot hold so many are left out, the
//! smallest set that holds everything is taken from the others, and the slices are handed out: the threshold to each, the rest in order.

use super::choose::{Seek, sort, sort_led};
use super::count::Count;
use super::tree::{DomainId, Places};
use dense::IdVec;
use std::cmp::Ordering;
use std::collections::BTreeMap;

type Counts = IdVec<DomainId, Count>;

/// What the greedy way would take: how many domains, and the last of them with a leader and without.
struct Greedy {
    n: i32,
    last_led: Option<DomainId>,
    last: Option<DomainId>,
}

impl Places {
    /// The level and the domains, with what each was given in `counts`; `None`: it cannot be even, and `counts` are as before.
    pub(super) fn choose_balanced(&self, seek: &Seek, counts: &mut Counts) -> Option<(usize, Vec<DomainId>)> {
        let plain = Seek { least_free: false, ..seek.clone() };
        let (threshold, domains, mut pruned) = self.threshold(&plain, counts)?;
        let slices = seek.count / seek.slicing.size;
        let (level, domains) = if seek.level < seek.slicing.level {
            let set = self.fewest(&plain, &domains, slices, &pruned, true)?;
            let below = set.iter().flat_map(|d| &self.domains[*d].children).copied().collect();
            (seek.level + 1, below)
        } else {
            (seek.level, domains)
        };
        let domains = self.hand_out(&plain, &domains, slices, threshold, &mut pruned)?;
        *counts = pruned;
        Some((level, domains))
    }

    /// The best threshold over all sets of siblings at the level asked for, and what is left of these.
    fn threshold(&self, seek: &Seek, counts: &Counts) -> Option<(i32, Vec<DomainId>, Counts)> {
        let slices = seek.count / seek.slicing.size;
        let families: Vec<&[DomainId]> = match seek.level {
            0 => vec![&self.by_level[0]],
            level => self.by_level[level - 1].iter().map(|d| &*self.domains[*d].children).collect(),
        };
        let mut best: Option<(i32, i32, Vec<DomainId>, Counts)> = None;
        for family in families {
            let below: Vec<DomainId> = if seek.level < seek.slicing.level {
                family.iter().flat_map(|d| &self.domains[*d].children).copied().collect()
            } else {
                family.to_vec()
            };
            let Some(greedy) = greedy(seek, &below, slices, counts) else { continue };
            let mut threshold = slices / greedy.n.max(1);
            if let Some(last) = greedy.last_led {
                threshold = threshold.min(counts[last].slices_led);
            }
            let mut reserved = None;
            if let Some(last) = greedy.last {
                threshold = threshold.min(counts[last].slices);
                if seek.leaders > 0 {
                    reserved = Some(threshold.min(counts[last].slices_led)).filter(|t| *t < threshold);
                }
            }
            for threshold in std::iter::once(threshold).chain(reserved) {
                let known = best.as_ref().map_or(0, |b| b.0);
                if threshold <= 0 || threshold < known {
                    break;
                }
                let pruned = self.pruned(seek, family, threshold, counts);
                let Some(fit) = self::greedy(seek, family, slices, &pruned) else { continue };
                let better = best.as_ref().is_none_or(|b| threshold > b.0 || fit.n < b.1);
                if better {
                    best = Some((threshold, fit.n, family.to_vec(), pruned));
                }
                break;
            }
        }
        best.map(|(threshold, _, domains, pruned)| (threshold, domains, pruned))
    }

    /// The counts without domains that hold less than the threshold.
    fn pruned(&self, seek: &Seek, family: &[DomainId], threshold: i32, counts: &Counts) -> Counts {
        let mut pruned = counts.clone();
        let led = seek.leaders > 0;
        for &domain in family {
            for &child in &self.domains[domain].children {
                self.prune(child, threshold, led, &mut pruned);
            }
            if !self.domains[domain].children.is_empty() {
                // Inner layers are not looked at here: the threshold counts slices.
                let slicing = super::count::Slicing { inner: Vec::new(), ..seek.slicing.clone() };
                self.roll_up(domain, seek.level, &slicing, led, &mut pruned);
            }
            self.prune(domain, threshold, led, &mut pruned);
        }
        pruned
    }

    fn prune(&self, domain: DomainId, threshold: i32, led: bool, counts: &mut Counts) {
        let count = counts[domain];
        let clear_all = count.slices < threshold;
        let no_leader = led && count.leaders > 0 && count.slices_led < threshold;
        if !clear_all && !no_leader {
            return;
        }
        let mut open = vec![domain];
        while let Some(at) = open.pop() {
            let liking = counts[at].liking;
            if clear_all {
                counts[at] = Count { liking, ..Count::default() };
            } else {
                counts[at] = Count { pods_led: 0, slices_led: 0, leaders: 0, ..counts[at] };
            }
            open.extend(&self.domains[at].children);
        }
    }

    /// The smallest set that holds everything, and of these the one with the least room.
    fn fewest(
        &self,
        seek: &Seek,
        domains: &[DomainId],
        slices: i32,
        counts: &Counts,
        by_evenness: bool,
    ) -> Option<Vec<DomainId>> {
        let n = usize::try_from(greedy(seek, domains, slices, counts)?.n).ok()?;
        let mut ordered = domains.to_vec();
        ordered.sort_unstable();
        if by_evenness {
            ordered.sort_by(|a, b| self.compare_evenness(*a, *b, counts));
        }
        // By number of domains: what is left to place (leaders, pods) and the first set that gets there.
        let mut sets: Vec<BTreeMap<(i32, i32), Vec<DomainId>>> = vec![BTreeMap::new(); n + 1];
        sets[0].insert((seek.leaders, slices * seek.slicing.size), Vec::new());
        for &domain in &ordered {
            let count = counts[domain];
            for i in (1..=n).rev() {
                let before: Vec<((i32, i32), Vec<DomainId>)> =
                    sets[i - 1].iter().map(|(k, v)| (*k, v.clone())).collect();
                for ((leaders, pods), set) in before {
                    if leaders <= 0 && pods <= 0 {
                        continue;
                    }
                    let mut with = set;
                    with.push(domain);
                    if leaders > 0 && count.leaders > 0 {
                        let left = (leaders - count.leaders, pods - count.pods_led);
                        sets[i].entry(left).or_insert_with(|| with.clone());
                    }
                    if count.slices > 0 {
                        sets[i].entry((leaders, pods - count.pods)).or_insert(with);
                    }
                }
            }
        }
        let done = sets[n].iter().filter(|((leaders, pods), _)| *leaders == 0 && *pods <= 0);
        done.max_by_key(|((_, pods), _)| *pods).map(|(_, set)| set.clone())
    }

    fn compare_evenness(&self, a: DomainId, b: DomainId, counts: &Counts) -> Ordering {
        let (x, y) = (&counts[a], &counts[b]);
        y.leaders
            .cmp(&x.leaders)
            .then(y.slices_led.cmp(&x.slices_led))
            .then_with(|| self.evenness(b, counts).total_cmp(&self.evenness(a, counts)))
            .then(a.cmp(&b))
    }

    /// The entropy of the room below a domain. Only compared, never added up: a last bit decides nothing but a tie.
    fn evenness(&self, domain: DomainId, counts: &Counts) -> f64 {
        let pods = || self.domains[domain].children.iter().map(|c| f64::from(counts[*c].pods));
        let all: f64 = pods().sum();
        if all <= 0.0 {
            return 0.0;
        }
        pods().filter(|n| *n > 0.0).map(|n| -(n / all) * (n / all).log2()).sum()
    }

    /// The threshold to each, the rest in order.
    fn hand_out(
        &self,
        seek: &Seek,
        domains: &[DomainId],
        slices: i32,
        threshold: i32,
        counts: &mut Counts,
    ) -> Option<Vec<DomainId>> {
        let mut set = self.fewest(seek, domains, slices, counts, false)?;
        let mut extra = slices - i32::try_from(set.len()).ok()?.saturating_mul(threshold);
        if extra < 0 {
            return None;
        }
        sort_led(seek, &mut set, counts);
        let mut leaders = seek.leaders;
        for &domain in &set {
            let count = &mut counts[domain];
            let mut more = 0;
            if leaders > 0 {
                more = (count.slices_led - threshold).min(extra);
                count.leaders = 1;
                leaders -= 1;
            } else {
                if extra > 0 {
                    more = (count.slices - threshold).min(extra);
                }
                count.leaders = 0;
            }
            count.slices = threshold + more;
            count.pods = count.slices * seek.slicing.size;
            count.slices_led = count.slices;
            count.pods_led = count.pods;
            extra -= more;
        }
        (extra <= 0 && leaders <= 0).then_some(set)
    }
}

/// The domains that the greedy way takes, the largest first; `None` if all are not enough.
fn greedy(seek: &Seek, domains: &[DomainId], slices: i32, counts: &Counts) -> Option<Greedy> {
    let mut rest = domains.to_vec();
    let mut result = Greedy { n: 0, last_led: None, last: None };
    let mut left = slices;
    let mut leaders = seek.leaders;
    if leaders > 0 {
        sort_led(seek, &mut rest, counts);
        let mut taken = 0;
        for &domain in &rest {
            if leaders <= 0 || counts[domain].leaders <= 0 {
                break;
            }
            taken += 1;
            result.last_led = Some(domain);
            leaders -= counts[domain].leaders;
            left -= counts[domain].slices_led;
        }
        result.n += i32::try_from(taken).unwrap_or(i32::MAX);
        rest.drain(..taken);
    }
    if leaders > 0 {
        return None;
    }
    sort(seek, &mut rest, counts);
    for &domain in &rest {
        if left <= 0 || counts[domain].slices <= 0 {
            break;
        }
        result.n += 1;
        result.last = Some(domain);
        left -= counts[domain].slices;
    }
    (left <= 0).then_some(result)
}
