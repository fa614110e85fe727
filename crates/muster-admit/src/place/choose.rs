//! Picks domains: a level first, then down from it to the lowest domains.
//!
//! Where pods must or should be together, the smallest domain that fits is taken, and a domain is filled before another is opened. Where it does
//! not matter, the fullest domains are taken first, so that whole ones stay whole.

use super::count::{Count, Scratch, Slicing};
use super::tree::{DomainId, Places};
use super::{Ask, Look, NoPlace, TopologyAssignment};
use std::cmp::Ordering;

/// What is sought, in numbers.
#[derive(Clone, Debug)]
pub(super) struct Seek {
    pub count: i32,
    pub leaders: i32,
    pub slicing: Slicing,
    pub level: usize,
    pub required: bool,
    /// Take the fullest domains first.
    pub least_free: bool,
    pub unconstrained: bool,
    /// Liking decides before room does.
    pub by_liking: bool,
    /// With several layers of slices: level and size of each.
    pub layers: Vec<(usize, i32)>,
}

impl Seek {
    fn slices(&self) -> i32 {
        self.count / self.slicing.size
    }
}

/// The places of the workers, and of their leader.
pub(super) type Chosen = (TopologyAssignment, Option<TopologyAssignment>);

impl Places {
    pub(super) fn choose(
        &self,
        workers: &Ask<'_>,
        leader: Option<&Ask<'_>>,
        look: Look<'_>,
        within: Option<(usize, DomainId)>,
        scratch: &mut Scratch,
    ) -> Result<Chosen, NoPlace> {
        let seek = self.seek(workers, leader, look)?;
        self.count(workers, leader, &seek.slicing, look, within, scratch);

        let mut balanced = None;
        if look.gates.balanced_placement && !seek.required && !seek.unconstrained {
            balanced = self.choose_balanced(&seek, &mut scratch.counts);
        }
        let is_balanced = balanced.is_some();
        let (mut level, domains) = match balanced {
            Some(found) => found,
            None => self.choose_level(&seek, scratch)?,
        };
        let size = seek.slicing.size;
        let counts = &mut scratch.counts;
        let short = || NoPlace::TooFew {
            topology: self.topology.clone(),
            fit: 0,
            asked: seek.slices(),
            slices: size > 1,
            excluded: scratch.excluded.clone(),
        };
        let mut chosen =
            spread(&seek, domains, seek.count, seek.leaders, Unit::Slices(size), counts).ok_or_else(short)?;
        let lowest = self.levels.len().saturating_sub(1);
        // Above the level of slices any child of the chosen ones will do.
        while level < lowest.min(seek.slicing.level) && !is_balanced {
            let mut below: Vec<DomainId> =
                chosen.iter().flat_map(|d| &self.domains[*d].children).copied().collect();
            sort(&seek, &mut below, counts);
            chosen = spread(&seek, below, seek.count, seek.leaders, Unit::Slices(size), counts)
                .ok_or_else(short)?;
            level += 1;
        }
        // From there on, what a domain was given stays in it.
        while level < lowest {
            let unit = if level < seek.slicing.level {
                size
            } else {
                seek.slicing.inner.get(level + 1).copied().flatten().unwrap_or(1)
            };
            let mut next = Vec::new();
            for domain in chosen {
                let given = counts[domain];
                let mut below = self.domains[domain].children.clone();
                let mut by = Unit::Pods;
                if unit > 1 {
                    by = Unit::Slices(unit);
                }
                sort(&seek, &mut below, counts);
                if unit > 1 {
                    for &child in &below {
                        let count = &mut counts[child];
                        count.slices = count.pods / unit;
                        count.slices_led = count.pods_led / unit;
                    }
                }
                next.extend(spread(&seek, below, given.pods, given.leaders, by, counts).ok_or_else(short)?);
            }
            chosen = next;
            level += 1;
        }
        let leaders: Vec<(DomainId, i32)> =
            chosen.iter().filter(|d| counts[**d].leaders > 0).map(|d| (*d, counts[*d].leaders)).collect();
        let workers: Vec<(DomainId, i32)> = chosen.iter().map(|d| (*d, counts[*d].pods)).collect();
        Ok((self.written(workers), leader.map(|_| self.written(leaders))))
    }

    /// Lowest domains and pods as an assignment.
    pub(super) fn written(&self, mut domains: Vec<(DomainId, i32)>) -> TopologyAssignment {
        domains.sort_unstable_by_key(|(domain, _)| *domain);
        let from = if self.by_host { self.levels.len().saturating_sub(1) } else { 0 };
        TopologyAssignment {
            levels: self.levels[from..].to_vec(),
            domains: domains
                .into_iter()
                .filter(|(_, pods)| *pods > 0)
                .map(|(domain, pods)| (self.domains[domain].values[from..].to_vec(), pods))
                .collect(),
        }
    }

    /// The request in numbers, or what is wrong with it.
    fn seek(&self, workers: &Ask<'_>, leader: Option<&Ask<'_>>, look: Look<'_>) -> Result<Seek, NoPlace> {
        let none = Default::default();
        let request = workers.request.unwrap_or(&none);
        // A topology without levels has no place for anybody.
        let lowest = self.levels.len().checked_sub(1).ok_or_else(|| NoPlace::NoDomains("".into()))?;
        let size = match request.slices.first() {
            None => 1,
            Some(layer) => layer.size.ok_or(NoPlace::NoSliceSize)?.max(1),
        };
        let named = request.required.as_ref().or(request.preferred.as_ref());
        let level = match named {
            Some(name) => self.level(name).ok_or_else(|| NoPlace::NoSuchLevel(name.clone()))?,
            None if workers.only_slices() => 0,
            None if request.unconstrained || workers.implied => lowest,
            None => return Err(NoPlace::LevelNotNamed),
        };
        let slice_level = match request.slices.first() {
            None => lowest,
            Some(layer) => {
                self.level(&layer.level).ok_or_else(|| NoPlace::NoSuchSliceLevel(layer.level.clone()))?
            }
        };
        if level > slice_level {
            return Err(NoPlace::SlicesAbove(self.levels[slice_level].clone(), self.levels[level].clone()));
        }
        let mut slicing = Slicing { size, level: slice_level, inner: vec![None; self.levels.len() + 1] };
        let mut layers = vec![(slice_level, size)];
        if look.gates.multi_layer {
            for layer in request.slices.iter().skip(1) {
                let (above, parent) = layers.last().copied().unwrap_or((slice_level, size));
                let at = self.level(&layer.level).ok_or_else(|| NoPlace::NoSuchLayer(layer.level.clone()))?;
                let inner = layer.size.ok_or(NoPlace::NoSliceSize)?.max(1);
                if at <= above {
                    return Err(NoPlace::LayerNotBelow(layer.level.clone(), self.levels[above].clone()));
                }
                if parent % inner != 0 {
                    return Err(NoPlace::LayerDoesNotDivide(inner, parent));
                }
                slicing.inner[above + 1..=at].fill(Some(inner));
                layers.push((at, inner));
            }
        }
        if layers.len() < 2 {
            layers.clear();
        }
        let unconstrained = workers.is_unconstrained();
        Ok(Seek {
            count: workers.count,
            leaders: i32::from(leader.is_some()),
            slicing,
            level,
            required: workers.is_required(),
            least_free: unconstrained && look.gates.mixed_profile,
            unconstrained,
            by_liking: look.gates.node_affinity_preferred,
            layers,
        })
    }

    /// The lowest level at or above the one asked for at which domains can hold everything, and these domains.
    fn choose_level(&self, seek: &Seek, scratch: &Scratch) -> Result<(usize, Vec<DomainId>), NoPlace> {
        let counts = &scratch.counts;
        let slices = seek.slices();
        let mut level = seek.level;
        loop {
            let mut domains = self.by_level[level].clone();
            sort_led(seek, &mut domains, counts);
            let Some(&first) = domains.first() else {
                return Err(NoPlace::NoDomains(self.levels[level].clone()));
            };
            let fits = |d: DomainId| counts[d].slices_led >= slices && counts[d].leaders >= seek.leaders;
            if seek.least_free {
                if let Some(&domain) = domains.iter().find(|d| fits(**d)) {
                    return Ok((level, vec![domain]));
                }
            } else if fits(first) {
                return Ok((level, vec![tightest(seek, &domains, slices, seek.leaders > 0, true, counts)]));
            }
            if seek.required {
                if seek.by_liking
                    && let Some(from) = domains.iter().position(|d| fits(*d))
                {
                    let rest = &domains[from..];
                    return Ok((level, vec![tightest(seek, rest, slices, seek.leaders > 0, true, counts)]));
                }
                let most = domains.iter().map(|d| counts[*d].slices).max().unwrap_or(0);
                let most = if seek.least_free { most } else { counts[first].slices };
                return Err(self.too_few(seek, level, most, scratch));
            }
            if level > 0 && !seek.unconstrained {
                level -= 1;
                continue;
            }
            return self.choose_several(seek, level, domains, scratch);
        }
    }

    /// As many domains as it takes; first those that can take a leader.
    fn choose_several(
        &self,
        seek: &Seek,
        level: usize,
        domains: Vec<DomainId>,
        scratch: &Scratch,
    ) -> Result<(usize, Vec<DomainId>), NoPlace> {
        let counts = &scratch.counts;
        let mut chosen = Vec::new();
        let mut slices = seek.slices();
        let mut leaders = seek.leaders;
        let mut rest = domains;
        while leaders > 0 && rest.first().is_some_and(|d| counts[*d].leaders > 0) {
            let mut domain = rest[0];
            if !seek.least_free && counts[domain].slices_led >= slices {
                domain = tightest(seek, &rest, slices, true, true, counts);
            } else {
                // The leader must not cost what the workers need.
                let room: i64 = rest.iter().map(|d| i64::from(counts[*d].slices)).sum();
                let leaves_enough = |d: &&DomainId| {
                    let count = &counts[**d];
                    count.leaders > 0
                        && room - i64::from(count.slices - count.slices_led) >= i64::from(slices)
                };
                domain = rest.iter().find(leaves_enough).copied().unwrap_or(domain);
            }
            rest.retain(|d| *d != domain);
            chosen.push(domain);
            leaders -= counts[domain].leaders;
            slices -= counts[domain].slices_led;
        }
        if leaders > 0 {
            return Err(self.too_few(seek, level, seek.leaders - leaders, scratch));
        }
        sort(seek, &mut rest, counts);
        let mut at = 0;
        while slices > 0 && at < rest.len() {
            let mut domain = rest[at];
            if !seek.least_free && counts[domain].slices >= slices {
                domain = tightest(seek, &rest[at..], slices, false, true, counts);
            }
            chosen.push(domain);
            slices -= counts[domain].slices;
            at += 1;
        }
        if slices > 0 {
            return Err(self.too_few(seek, level, seek.slices() - slices, scratch));
        }
        Ok((level, chosen))
    }

    fn too_few(&self, seek: &Seek, level: usize, fit: i32, scratch: &Scratch) -> NoPlace {
        let excluded = scratch.excluded.clone();
        if seek.layers.is_empty() {
            return NoPlace::TooFew {
                topology: self.topology.clone(),
                fit,
                asked: seek.slices(),
                slices: seek.slicing.size > 1,
                excluded,
            };
        }
        let most = |a: &&DomainId, b: &&DomainId| {
            scratch.counts[**a].slices.cmp(&scratch.counts[**b].slices).then_with(|| b.cmp(a))
        };
        let best = self.by_level[level].iter().max_by(most);
        let layers = seek.layers.iter().map(|&(at, size)| {
            let fit = best.map_or(0, |d| self.slices_below(*d, level, at, size, scratch));
            (self.levels[at].clone(), fit, seek.count / size)
        });
        NoPlace::TooFewLayers { topology: self.topology.clone(), layers: layers.collect(), excluded }
    }

    fn slices_below(&self, domain: DomainId, level: usize, at: usize, size: i32, scratch: &Scratch) -> i32 {
        if level >= at {
            return scratch.counts[domain].pods / size;
        }
        let below = self.domains[domain].children.iter();
        below.map(|child| self.slices_below(*child, level + 1, at, size, scratch)).sum()
    }
}

/// What is handed out: whole slices of a size, or single pods.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Slices(i32),
    Pods,
}

impl Unit {
    fn size(self) -> i32 {
        match self {
            Self::Slices(size) => size,
            Self::Pods => 1,
        }
    }

    fn room(self, count: &Count) -> i32 {
        match self {
            Self::Slices(_) => count.slices,
            Self::Pods => count.pods,
        }
    }

    fn room_led(self, count: &Count) -> i32 {
        match self {
            Self::Slices(_) => count.slices_led,
            Self::Pods => count.pods_led,
        }
    }

    /// Writes down what a domain was given.
    fn give(self, count: &mut Count, units: i32, leaders: i32) {
        count.pods = units * self.size();
        count.leaders = leaders;
        if let Self::Slices(_) = self {
            count.slices = units;
        }
    }
}

/// Hands pods and leaders out to domains in their order, as few as it takes; the last is the one that they fit best. `None`: it is not enough.
pub(super) fn spread(
    seek: &Seek,
    domains: Vec<DomainId>,
    count: i32,
    leaders: i32,
    unit: Unit,
    counts: &mut dense::IdVec<DomainId, Count>,
) -> Option<Vec<DomainId>> {
    let mut left = count / unit.size();
    let mut leaders = leaders;
    let mut rest = domains;
    let mut taken = Vec::new();
    let by_slices = matches!(unit, Unit::Slices(_));
    // What is left to take, and how many could still take a leader; only asked for while there is one.
    let mut all_room: i64 = rest.iter().map(|d| i64::from(unit.room(&counts[*d]))).sum();
    let mut elsewhere = rest.iter().filter(|d| counts[**d].leaders > 0).count();
    let mut at = 0;
    while at < rest.len() {
        let led = leaders > 0;
        let fits = |d: DomainId| {
            let count = &counts[d];
            if led {
                unit.room_led(count) >= left && count.leaders >= leaders
            } else {
                unit.room(count) >= left
            }
        };
        let mut domain = rest[at];
        if !seek.least_free && fits(domain) {
            domain = tightest(seek, &rest[at..], left, led, by_slices, counts);
        }
        taken.push(domain);
        if fits(domain) {
            unit.give(&mut counts[domain], left, leaders);
            return Some(taken);
        }
        let mut its = if led { counts[domain].leaders.min(leaders) } else { 0 };
        if its > 0 && elsewhere > 1 {
            // The leader must not cost what the workers need, if it can go elsewhere.
            let cost = unit.room(&counts[domain]) - unit.room_led(&counts[domain]);
            if all_room - i64::from(cost) < i64::from(left) {
                its = 0;
            }
        }
        if led {
            all_room -= i64::from(unit.room(&counts[domain]));
            elsewhere -= usize::from(counts[domain].leaders > 0);
        }
        let room = if its > 0 { unit.room_led(&counts[domain]) } else { unit.room(&counts[domain]) };
        let here = room.min(left);
        unit.give(&mut counts[domain], here, its);
        left -= here;
        leaders -= its;
        // A domain that was taken out of turn must not be taken again.
        if domain == rest[at] {
            at += 1;
        } else {
            rest.retain(|d| *d != domain);
        }
    }
    None
}

/// The domain with the least room that is still enough; the first if none is.
fn tightest(
    seek: &Seek,
    domains: &[DomainId],
    needed: i32,
    led: bool,
    by_slices: bool,
    counts: &dense::IdVec<DomainId, Count>,
) -> DomainId {
    let room = |d: DomainId| match (by_slices, led) {
        (true, true) => counts[d].slices_led,
        (true, false) => counts[d].slices,
        (false, true) => counts[d].pods_led,
        (false, false) => counts[d].pods,
    };
    let mut best = domains[0];
    for &domain in domains {
        // What is liked most comes first and is not given up for a better fit.
        if seek.by_liking && counts[domain].liking != counts[domains[0]].liking {
            break;
        }
        if room(domain) >= needed && room(domain) < room(best) {
            best = domain;
        }
    }
    best
}

fn by_liking(seek: &Seek, a: &Count, b: &Count) -> Ordering {
    if seek.by_liking { b.liking.cmp(&a.liking) } else { Ordering::Equal }
}

/// Most slices first (fewest where whole domains are spared), then the least that is left over, then by values.
pub(super) fn sort(seek: &Seek, domains: &mut [DomainId], counts: &dense::IdVec<DomainId, Count>) {
    domains.sort_unstable_by(|&x, &y| {
        let (a, b) = (&counts[x], &counts[y]);
        let slices = if seek.least_free { a.slices.cmp(&b.slices) } else { b.slices.cmp(&a.slices) };
        by_liking(seek, a, b).then(slices).then(a.pods.cmp(&b.pods)).then(x.cmp(&y))
    });
}

/// Likewise, with those that can take a leader first.
pub(super) fn sort_led(seek: &Seek, domains: &mut [DomainId], counts: &dense::IdVec<DomainId, Count>) {
    domains.sort_unstable_by(|&x, &y| {
        let (a, b) = (&counts[x], &counts[y]);
        let slices =
            if seek.least_free { a.slices_led.cmp(&b.slices_led) } else { b.slices_led.cmp(&a.slices_led) };
        let leaders = b.leaders.cmp(&a.leaders);
        leaders
            .then_with(|| by_liking(seek, a, b))
            .then(slices)
            .then(a.pods_led.cmp(&b.pods_led))
            .then(x.cmp(&y))
    });
}
