//! NUMA zones of a node: would the kubelet's topology manager take the pod, and from which zones would it
//! serve it?
//!
//! In: the zones of a node with what each has and has left, and what a pod asks for. Out: what it takes from
//! which zone, and how many zones it spans; or why it would be refused. A dimension is a column of the
//! engine's node table; only dimensions that some zone reports are aligned here. CPU, memory and huge pages
//! are aligned for pinned pods only, devices for all.
//!
//! What is aligned as one: the pod (scope pod), or each container by itself (scope container); containers
//! that run together draw on the same zones one after the other, init containers come before them and find
//! the zones as they were.
//!
//! - single node: all from one zone, the first that has enough left.
//! - restricted: each dimension has a narrowest width, the fewest zones that would hold it if they were
//!   empty. All widths must agree; then the first zones (in the order of their lists of indices) of that
//!   width with enough left together.
//! - best effort: zones are added, the one that covers most of what is missing first, until nothing is
//!   missing. Nobody is refused; without enough room there is only no placement.
//! - none: no zone is chosen.
//!
//! Amounts are drawn from the chosen zones in order, from each as much as it has. A pod that is not aligned
//! here, and one whose zones are not known, takes nothing from any zone. An evicted pod gives back at once
//! what it held.
//!
//! *Invariant:* [`place`] changes nothing; [`Zones::hold`] and [`Zones::release`] of the same takes undo each
//! other.

use muster_model::{Numa, NumaPolicy, NumaScope, Resource};
use smallvec::SmallVec;

/// The zones of a node, with what is left of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    policy: NumaPolicy,
    scope: NumaScope,
    n_zones: usize,
    /// The dimensions that a zone reports, ascending.
    columns: Vec<Column>,
    /// What is left, zone by zone, in the order of `columns`. Below zero if pods hold more than there is.
    left: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    dim: usize,
    /// Aligned for pinned pods only.
    pinned_only: bool,
    /// What the one, two, three .. largest zones have together when they are empty.
    largest: Vec<i128>,
}

/// What a pod asks for, by dimension. A slice that ends early asks for nothing of the dimensions beyond.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Guaranteed quality of service with whole CPUs.
    pub pinned: bool,
    /// The pod as a whole.
    pub pod: &'a [i64],
    /// Each container that runs with the others; empty if one asks for everything.
    pub containers: &'a [Vec<i64>],
    /// Each init container that is over before the others start.
    pub init: &'a [Vec<i64>],
}

/// Where a pod would be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// By zone, ascending; empty if the pod is not aligned on this node.
    pub takes: Vec<Take>,
    /// How many zones it has to be expected to span, for [`score`]; 0: there is no telling, and the node is
    /// the last choice.
    pub span: u32,
}

/// What is taken from one zone: dimensions, ascending, and amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    pub zone: u32,
    pub amounts: Vec<(usize, i64)>,
}

/// Why the kubelet would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Of this dimension more is asked for than the zones that may serve it have when they are empty.
    TooBig { dim: usize, asked: i64, most: i128 },
    /// Two dimensions would need different numbers of zones.
    Widths { dims: (usize, usize), widths: (u32, u32) },
    /// The zones are large enough, but no choice of them has enough left.
    Full,
    /// There were too many choices to look at.
    SearchEnded,
}

/// Trial steps in the search for zones that are narrow enough: all ways to choose among 16.
const MOST_STEPS: u32 = 70_000;

type Needs = SmallVec<[(usize, i64); 6]>;
type Chosen = SmallVec<[usize; 8]>;

/// Where the pod would be served, or why it would be refused.
pub fn place(zones: &Zones, ask: &Ask<'_>) -> Result<Placed, Refused> {
    let n_zones = u32::try_from(zones.n_zones).unwrap_or(u32::MAX);
    if !zones.aligns(ask) {
        return Ok(Placed { takes: Vec::new(), span: n_zones });
    }
    let mut drawn: Vec<(usize, usize, i64)> = Vec::new();
    match zones.solve(ask, &mut drawn) {
        Ok(()) => {}
        Err(_) if zones.policy == NumaPolicy::BestEffort => return Ok(Placed::default()),
        Err(refused) => return Err(refused),
    }
    drawn.sort_unstable();
    let mut takes: Vec<Take> = Vec::new();
    for (zone, column, amount) in drawn {
        let zone = u32::try_from(zone).unwrap_or(u32::MAX);
        let dim = zones.columns[column].dim;
        match takes.last_mut() {
            Some(take) if take.zone == zone => match take.amounts.last_mut() {
                Some((last, sum)) if *last == dim => *sum = sum.saturating_add(amount),
                _ => take.amounts.push((dim, amount)),
            },
            _ => takes.push(Take { zone, amounts: vec![(dim, amount)] }),
        }
    }
    let span = u32::try_from(takes.len()).unwrap_or(u32::MAX).max(1);
    Ok(Placed { takes, span })
}

/// How much a node is liked for a span: the fewer zones the better. `best` is the score of one zone.
pub fn score(span: u32, best: i64) -> i64 {
    if span == 0 { 0 } else { best / i64::from(span) }
}

impl Zones {
    /// Zones with nothing taken yet, for an engine that knows of every pod where it is. `dim` gives the
    /// columns; resources without one are not aligned.
    pub fn empty(numa: &Numa, dim: impl FnMut(&Resource) -> Option<usize>) -> Self {
        Self::build(numa, dim, false)
    }

    /// Zones with what the node itself reports to be left.
    pub fn reported(numa: &Numa, dim: impl FnMut(&Resource) -> Option<usize>) -> Self {
        Self::build(numa, dim, true)
    }

    fn build(numa: &Numa, mut dim: impl FnMut(&Resource) -> Option<usize>, as_reported: bool) -> Self {
        let mut resources: Vec<(usize, &Resource)> = Vec::new();
        for zone in &numa.zones {
            for (resource, _) in zone.allocatable.iter() {
                if *resource != Resource::Pods && !resources.iter().any(|(_, known)| *known == resource) {
                    resources.extend(dim(resource).map(|dim| (dim, resource)));
                }
            }
        }
        resources.sort_unstable();
        resources.dedup_by_key(|(dim, _)| *dim);

        let column = |(dim, resource): &(usize, &Resource)| {
            let mut sizes: Vec<i64> = numa.zones.iter().map(|zone| zone.allocatable.get(resource)).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let sums = sizes.into_iter().scan(0_i128, |sum, size| {
                *sum += i128::from(size);
                Some(*sum)
            });
            Column { dim: *dim, pinned_only: is_pinned_only(resource), largest: sums.collect() }
        };
        let columns = resources.iter().map(column).collect();
        let amounts = |zone: &muster_model::Zone| {
            let amounts = if as_reported { &zone.available } else { &zone.allocatable };
            resources.iter().map(|(_, resource)| amounts.get(resource)).collect::<Vec<_>>()
        };
        let left = numa.zones.iter().flat_map(amounts).collect();
        Self { policy: numa.policy, scope: numa.scope, n_zones: numa.zones.len(), columns, left }
    }

    /// Whether the node's kubelet would align anything of this pod, so that it has a placement and a score of
    /// its own.
    pub fn aligns(&self, ask: &Ask<'_>) -> bool {
        self.policy != NumaPolicy::None && self.n_zones > 0 && (ask.pinned || self.asks_for_device(ask))
    }

    /// Whether the pod asks for a device that this node has in zones. A pod is scored on all nodes if it is
    /// pinned or if this is so on any of them.
    pub fn asks_for_device(&self, ask: &Ask<'_>) -> bool {
        self.columns.iter().any(|column| !column.pinned_only && amount(ask.pod, column.dim) > 0)
    }

    pub fn n_zones(&self) -> usize {
        self.n_zones
    }

    /// What a zone has left of a dimension; `None` if it is not one of the zones, or no zone reports the
    /// dimension.
    pub fn left(&self, zone: u32, dim: usize) -> Option<i64> {
        self.cell(zone, dim).map(|cell| self.left[cell])
    }

    /// A pod is there. Zones and dimensions that are not known here are passed over.
    pub fn hold(&mut self, takes: &[Take]) {
        self.change(takes, i64::saturating_sub);
    }

    /// The pod is gone, or going.
    pub fn release(&mut self, takes: &[Take]) {
        self.change(takes, i64::saturating_add);
    }

    fn change(&mut self, takes: &[Take], how: impl Fn(i64, i64) -> i64) {
        for take in takes {
            for (dim, amount) in &take.amounts {
                if let Some(cell) = self.cell(take.zone, *dim) {
                    self.left[cell] = how(self.left[cell], *amount);
                }
            }
        }
    }

    fn cell(&self, zone: u32, dim: usize) -> Option<usize> {
        let column = self.columns.binary_search_by_key(&dim, |column| column.dim).ok()?;
        let zone = usize::try_from(zone).ok().filter(|zone| *zone < self.n_zones)?;
        Some(zone * self.columns.len() + column)
    }

    /// Serves everything that is aligned as one, and says what is drawn: zone, column, amount.
    fn solve(&self, ask: &Ask<'_>, drawn: &mut Vec<(usize, usize, i64)>) -> Result<(), Refused> {
        if self.scope == NumaScope::Pod || ask.containers.is_empty() {
            self.serve(ask.pod, ask.pinned, drawn)?;
        }
        if self.scope == NumaScope::Container {
            for container in ask.containers {
                self.serve(container, ask.pinned, drawn)?;
            }
            for container in ask.init {
                self.serve(container, ask.pinned, &mut Vec::new())?;
            }
        }
        Ok(())
    }

    fn serve(
        &self,
        asked: &[i64],
        pinned: bool,
        drawn: &mut Vec<(usize, usize, i64)>,
    ) -> Result<(), Refused> {
        let needs: Needs = (self.columns.iter().enumerate())
            .filter(|(_, column)| pinned || !column.pinned_only)
            .map(|(idx, column)| (idx, amount(asked, column.dim)))
            .filter(|(_, need)| *need > 0)
            .collect();
        if needs.is_empty() {
            return Ok(());
        }
        // What is left for this one, zone by zone and in the order of `needs`.
        let mut left: SmallVec<[i64; 16]> = (0..self.n_zones)
            .flat_map(|zone| needs.iter().map(move |(column, _)| zone * self.columns.len() + column))
            .map(|cell| self.left[cell])
            .collect();
        for (zone, column, amount) in drawn.iter() {
            if let Some(i) = needs.iter().position(|(idx, _)| idx == column) {
                let cell = &mut left[zone * needs.len() + i];
                *cell = cell.saturating_sub(*amount);
            }
        }
        let chosen = match self.policy {
            NumaPolicy::SingleNode => self.one_zone(&needs, &left)?,
            NumaPolicy::Restricted => self.narrowest(&needs, &left)?,
            NumaPolicy::BestEffort | NumaPolicy::None => self.greedy(&needs, &left)?,
        };
        for (i, (column, need)) in needs.iter().enumerate() {
            let mut missing = *need;
            for zone in &chosen {
                let taken = left[zone * needs.len() + i].min(missing);
                if taken > 0 {
                    drawn.push((*zone, *column, taken));
                    missing -= taken;
                }
            }
        }
        Ok(())
    }

    fn one_zone(&self, needs: &Needs, left: &[i64]) -> Result<Chosen, Refused> {
        let fits = |row: &[i64]| row.iter().zip(needs).all(|(left, (_, need))| left >= need);
        match left.chunks_exact(needs.len()).position(fits) {
            Some(zone) => Ok(Chosen::from_slice(&[zone])),
            None => Err(self.too_big(needs, 1).unwrap_or(Refused::Full)),
        }
    }

    fn narrowest(&self, needs: &Needs, left: &[i64]) -> Result<Chosen, Refused> {
        if let Some(refused) = self.too_big(needs, self.n_zones) {
            return Err(refused);
        }
        let width = |(column, need): &(usize, i64)| {
            1 + self.columns[*column].largest.partition_point(|sum| *sum < i128::from(*need))
        };
        let common = width(&needs[0]);
        for need in needs.iter().skip(1) {
            if width(need) != common {
                let dims = (self.columns[needs[0].0].dim, self.columns[need.0].dim);
                let narrow = |width: usize| u32::try_from(width).unwrap_or(u32::MAX);
                return Err(Refused::Widths { dims, widths: (narrow(common), narrow(width(need))) });
            }
        }
        if common == 1 {
            return self.one_zone(needs, left);
        }
        first_of_width(common, needs, left)
    }

    fn greedy(&self, needs: &Needs, left: &[i64]) -> Result<Chosen, Refused> {
        let mut missing: SmallVec<[i64; 6]> = needs.iter().map(|(_, need)| *need).collect();
        let mut chosen = Chosen::new();
        while missing.iter().any(|missing| *missing > 0) {
            // In millionths of what is asked for, so that bytes do not outweigh devices.
            let cover = |zone: usize| -> i128 {
                let row = &left[zone * needs.len()..][..needs.len()];
                let part = |((left, missing), (_, need)): ((&i64, &i64), &(usize, i64))| {
                    i128::from((*left).min(*missing).max(0)) * 1_000_000 / i128::from(*need)
                };
                row.iter().zip(&missing).zip(needs).map(part).sum()
            };
            let best = (0..self.n_zones)
                .filter(|zone| !chosen.contains(zone))
                .map(|zone| (std::cmp::Reverse(cover(zone)), zone))
                .min();
            let Some((std::cmp::Reverse(1..), zone)) = best else {
                return Err(Refused::Full);
            };
            chosen.push(zone);
            for (i, missing) in missing.iter_mut().enumerate() {
                *missing = missing.saturating_sub(left[zone * needs.len() + i].max(0));
            }
        }
        Ok(chosen)
    }

    /// A need that no `width` zones hold even when they are empty.
    fn too_big(&self, needs: &Needs, width: usize) -> Option<Refused> {
        needs.iter().find_map(|(column, need)| {
            let column = &self.columns[*column];
            let most = column.largest.get(width - 1).copied().unwrap_or(0);
            let refused = Refused::TooBig { dim: column.dim, asked: *need, most };
            (i128::from(*need) > most).then_some(refused)
        })
    }
}

/// The first zones in the order of their lists of indices that have enough left together.
fn first_of_width(width: usize, needs: &Needs, left: &[i64]) -> Result<Chosen, Refused> {
    let n_needs = needs.len();
    let n_zones = left.len() / n_needs;
    // What the zones from `zone` on could add at the very most, if `more` of them may still be chosen.
    let most = |zone: usize, i: usize, more: usize| -> i128 {
        let mut rest: SmallVec<[i64; 16]> = (zone..n_zones).map(|z| left[z * n_needs + i]).collect();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        rest.into_iter().take(more).map(i128::from).sum()
    };
    let mut steps = 0;
    let mut chosen = Chosen::new();
    let mut next = 0;
    loop {
        let have = |i: usize| chosen.iter().map(|z| i128::from(left[z * n_needs + i])).sum::<i128>();
        let more = width - chosen.len();
        let possible = n_zones - next >= more
            && needs
                .iter()
                .enumerate()
                .all(|(i, (_, need))| have(i) + most(next, i, more) >= i128::from(*need));
        if possible && more == 0 {
            return Ok(chosen);
        }
        if possible {
            chosen.push(next);
            next += 1;
        } else {
            let Some(last) = chosen.pop() else {
                return Err(Refused::Full);
            };
            next = last + 1;
        }
        steps += 1;
        if steps > MOST_STEPS {
            return Err(Refused::SearchEnded);
        }
    }
}

fn is_pinned_only(resource: &Resource) -> bool {
    match resource {
        Resource::Cpu | Resource::Memory | Resource::Pods => true,
        Resource::Gpu => false,
        Resource::Other(name) => name.starts_with("hugepages-"),
    }
}

fn amount(asked: &[i64], dim: usize) -> i64 {
    asked.get(dim).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::{Amounts, Zone};
    use proptest::prelude::*;

    fn resource(name: &str) -> Resource {
        match name {
            "cpu" => Resource::Cpu,
            "memory" => Resource::Memory,
            "gpu" => Resource::Gpu,
            other => Resource::Other(other.into()),
        }
    }

    fn dim(resource: &Resource) -> Option<usize> {
        match resource {
            Resource::Cpu => Some(0),
            Resource::Memory => Some(1),
            Resource::Gpu => Some(2),
            Resource::Other(name) => [None, Some(4), Some(5)]
                [["secret", "nic", "hugepages-1Gi"].iter().position(|n| *n == &**name)?],
            Resource::Pods => None,
        }
    }

    /// `policy scope; zone; zone ..`, a zone being `cpu=4 gpu=2`, or `cpu=4:1` for 1 left of 4.
    fn zones(text: &str) -> Zones {
        let mut parts = text.split(';');
        let mut head = parts.next().unwrap().split_whitespace();
        let policy = match head.next().unwrap() {
            "single" => NumaPolicy::SingleNode,
            "restricted" => NumaPolicy::Restricted,
            "best" => NumaPolicy::BestEffort,
            "none" => NumaPolicy::None,
            other => panic!("{other}"),
        };
        let scope = match head.next() {
            None | Some("pod") => NumaScope::Pod,
            Some("container") => NumaScope::Container,
            other => panic!("{other:?}"),
        };
        let zone = |text: &str| {
            let (mut allocatable, mut available) = (Amounts::new(), Amounts::new());
            for word in text.split_whitespace() {
                let (name, amounts) = word.split_once('=').unwrap();
                let (has, left) = amounts.split_once(':').unwrap_or((amounts, amounts));
                allocatable.set(resource(name), has.parse().unwrap());
                available.set(resource(name), left.parse().unwrap());
            }
            Zone { name: "zone".into(), allocatable, available }
        };
        Zones::reported(&Numa { policy, scope, zones: parts.map(zone).collect() }, dim)
    }

    fn amounts(text: &str) -> Vec<i64> {
        let mut amounts = vec![0; 6];
        for word in text.split_whitespace() {
            let (name, amount) = word.split_once('=').unwrap();
            amounts[dim(&resource(name)).unwrap()] += amount.parse::<i64>().unwrap();
        }
        amounts
    }

    /// `pinned cpu=3 | cpu=1 ! cpu=2`: containers by `|`, init containers after `!`.
    fn solve(zones: &Zones, ask: &str) -> Result<Placed, Refused> {
        let (pinned, ask) = match ask.strip_prefix("pinned") {
            Some(rest) => (true, rest),
            None => (false, ask),
        };
        let (together, init) = ask.split_once('!').unwrap_or((ask, ""));
        let containers: Vec<Vec<i64>> = together.split('|').map(amounts).collect();
        let init: Vec<Vec<i64>> = init.split('!').filter(|text| !text.is_empty()).map(amounts).collect();
        let pod: Vec<i64> = (0..6).map(|d| containers.iter().map(|c| c[d]).sum()).collect();
        let containers = if containers.len() == 1 { vec![] } else { containers };
        place(zones, &Ask { pinned, pod: &pod, containers: &containers, init: &init })
    }

    fn show(placed: &Placed) -> String {
        let names = ["cpu", "memory", "gpu", "?", "nic", "huge"];
        let take = |take: &Take| {
            let amounts: Vec<String> =
                take.amounts.iter().map(|(dim, amount)| format!("{}={amount}", names[*dim])).collect();
            format!("{}: {}", take.zone, amounts.join(" "))
        };
        let takes: Vec<String> = placed.takes.iter().map(take).collect();
        format!("[{}] span {}", takes.join(", "), placed.span)
    }

    #[track_caller]
    fn check(table: &str, ask: &str, expected: &str) {
        let outcome = match solve(&zones(table), ask) {
            Ok(placed) => show(&placed),
            Err(refused) => format!("{refused:?}"),
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn single_node() {
        let two = "single; cpu=4; cpu=4";
        check(two, "pinned cpu=6 memory=1", "TooBig { dim: 0, asked: 6, most: 4 }");
        check(two, "pinned cpu=3 memory=1", "[0: cpu=3] span 1");
        check("single; cpu=2; cpu=2", "pinned cpu=3", "TooBig { dim: 0, asked: 3, most: 2 }");
        check("single; cpu=4:1; cpu=4", "pinned cpu=3", "[1: cpu=3] span 1");
        check("single; cpu=4:1; cpu=4:1", "pinned cpu=3", "Full");
        check("single; cpu=4:1; cpu=4:1", "pinned cpu=5", "TooBig { dim: 0, asked: 5, most: 4 }");
        // Each fits somewhere, but not in one place.
        check("single; cpu=4 gpu=2:0; cpu=4:0 gpu=2", "pinned cpu=1 gpu=1", "Full");
        check("single; cpu=4 gpu=2:0; cpu=4:1 gpu=2", "pinned cpu=1 gpu=1", "[1: cpu=1 gpu=1] span 1");
    }

    #[test]
    fn who_is_aligned() {
        let two = "single; cpu=4 gpu=1 hugepages-1Gi=1; cpu=4 gpu=1 hugepages-1Gi=1";
        // Not pinned: CPU, memory and huge pages may come from anywhere, and there is no placement.
        check(two, " cpu=6 hugepages-1Gi=2", "[] span 2");
        // Devices are aligned for everyone.
        check(two, " cpu=6 gpu=1", "[0: gpu=1] span 1");
        check(two, " cpu=6 gpu=2", "TooBig { dim: 2, asked: 2, most: 1 }");
        check(two, "pinned cpu=1 hugepages-1Gi=2", "TooBig { dim: 5, asked: 2, most: 1 }");
        // What no zone reports is aligned nowhere.
        check(two, "pinned nic=9", "[] span 1");
        check("single; secret=1", "pinned cpu=9", "[] span 1");
        check("none; cpu=4; cpu=4", "pinned cpu=6", "[] span 2");
        check("single", "pinned cpu=6", "[] span 0");
        check("single; cpu=4", "pinned", "[] span 1");
    }

    #[test]
    fn restricted() {
        let two = "restricted; cpu=4; cpu=4";
        check(two, "pinned cpu=6 memory=1", "[0: cpu=4, 1: cpu=2] span 2");
        check(two, "pinned cpu=3", "[0: cpu=3] span 1");
        check(two, "pinned cpu=9", "TooBig { dim: 0, asked: 9, most: 8 }");
        // As narrow as on an empty node, or not at all.
        check("restricted; cpu=4:2; cpu=4:2", "pinned cpu=3", "Full");
        check("restricted; cpu=4:2; cpu=4", "pinned cpu=6", "[0: cpu=2, 1: cpu=4] span 2");
        // Widths must agree.
        check(
            "restricted; cpu=4 gpu=1; cpu=4 gpu=1",
            "pinned cpu=3 gpu=2",
            "Widths { dims: (0, 2), widths: (1, 2) }",
        );
        check(
            "restricted; cpu=4 gpu=1; cpu=4 gpu=1",
            "pinned cpu=6 gpu=2",
            "[0: cpu=4 gpu=1, 1: cpu=2 gpu=1] span 2",
        );
        // The first zones that have enough together.
        check("restricted; cpu=4:0; cpu=4:1; cpu=4; cpu=4", "pinned cpu=5", "[1: cpu=1, 2: cpu=4] span 2");
        check(
            "restricted; cpu=4:1; cpu=4:1; cpu=4:3; cpu=4:2",
            "pinned cpu=5",
            "[2: cpu=3, 3: cpu=2] span 2",
        );
        check("restricted; cpu=4:1; cpu=4:1; cpu=4:3; cpu=4:1", "pinned cpu=5", "Full");
        // A zone in debt is no help, and takes nothing.
        check("restricted; cpu=4:-1; cpu=4; cpu=4:3", "pinned cpu=5", "[1: cpu=4, 2: cpu=1] span 2");
        // Uneven zones: one large one is enough.
        check("restricted; cpu=2; cpu=8", "pinned cpu=5", "[1: cpu=5] span 1");
    }

    #[test]
    fn best_effort() {
        check("best; cpu=4:1; cpu=4:3", "pinned cpu=3", "[1: cpu=3] span 1");
        check("best; cpu=4:1; cpu=4:3", "pinned cpu=4", "[0: cpu=1, 1: cpu=3] span 2");
        check("best; cpu=4; cpu=4", "pinned cpu=3", "[0: cpu=3] span 1");
        check("best; cpu=4 gpu=1:0; cpu=4 gpu=1", "pinned cpu=4 gpu=1", "[1: cpu=4 gpu=1] span 1");
        // Bytes do not outweigh devices.
        check(
            "best; memory=900 gpu=1:0; memory=800 gpu=1",
            "pinned memory=800 gpu=1",
            "[1: memory=800 gpu=1] span 1",
        );
        // Nobody is refused.
        check("best; cpu=4:1; cpu=4:1", "pinned cpu=9", "[] span 0");
        check("best; cpu=4", " cpu=9", "[] span 1");
    }

    #[test]
    fn containers_one_by_one() {
        let two = "single container; cpu=4; cpu=4";
        check(two, "pinned cpu=3|cpu=3", "[0: cpu=3, 1: cpu=3] span 2");
        check(two, "pinned cpu=2|cpu=2", "[0: cpu=4] span 1");
        check(two, "pinned cpu=3|cpu=3|cpu=3", "Full");
        check("single pod; cpu=4; cpu=4", "pinned cpu=3|cpu=3", "TooBig { dim: 0, asked: 6, most: 4 }");
        check(two, "pinned cpu=3", "[0: cpu=3] span 1");
        // An init container is over before the others start.
        check(two, "pinned cpu=4|cpu=4 ! cpu=4 ! cpu=3", "[0: cpu=4, 1: cpu=4] span 2");
        check(two, "pinned cpu=1|cpu=1 ! cpu=5", "TooBig { dim: 0, asked: 5, most: 4 }");
        check("single pod; cpu=4", "pinned cpu=1 ! cpu=5", "[0: cpu=1] span 1");
        check("restricted container; cpu=4; cpu=4", "pinned cpu=1|cpu=6", "[0: cpu=4, 1: cpu=3] span 2");
    }

    #[test]
    fn pods_come_and_go() {
        // Three pods of three CPUs want two zones of four: the third waits until one of the others is
        // evicted.
        let mut node = zones("single; cpu=4; cpu=4");
        let high = solve(&node, "pinned cpu=3").unwrap();
        node.hold(&high.takes);
        let mid = solve(&node, "pinned cpu=3").unwrap();
        node.hold(&mid.takes);
        assert_eq!((show(&high), show(&mid)), ("[0: cpu=3] span 1".into(), "[1: cpu=3] span 1".into()));
        assert_eq!(solve(&node, "pinned cpu=3"), Err(Refused::Full));
        assert_eq!((node.left(0, 0), node.left(1, 0)), (Some(1), Some(1)));

        // Evicting both makes room for a pod of three, but never for one of five.
        let before = node.clone();
        node.release(&high.takes);
        assert_eq!(show(&solve(&node, "pinned cpu=3").unwrap()), "[0: cpu=3] span 1");
        node.release(&mid.takes);
        assert!(matches!(solve(&node, "pinned cpu=5"), Err(Refused::TooBig { .. })));
        node.hold(&mid.takes);
        node.hold(&high.takes);
        assert_eq!(node, before);

        // Records that do not fit the node are passed over.
        node.hold(&[
            Take { zone: 7, amounts: vec![(0, 1)] },
            Take { zone: 0, amounts: vec![(1, 1), (9, 1)] },
        ]);
        assert_eq!(node, before);
        assert_eq!((node.left(2, 0), node.left(0, 1)), (None, None));
    }

    #[test]
    fn an_engine_that_knows_its_pods_starts_from_empty_zones() {
        let mut available = Amounts::new();
        available.set(Resource::Cpu, 1);
        let mut allocatable = Amounts::new();
        allocatable.set(Resource::Cpu, 4);
        let zone = Zone { name: "zone-0".into(), allocatable, available };
        let numa = Numa { policy: NumaPolicy::SingleNode, scope: NumaScope::Pod, zones: vec![zone] };
        assert_eq!(Zones::empty(&numa, dim).left(0, 0), Some(4));
        assert_eq!(Zones::reported(&numa, dim).left(0, 0), Some(1));
    }

    #[test]
    fn fewer_zones_are_better() {
        assert_eq!([1, 2, 3, 0].map(|span| score(span, 100)), [100, 50, 33, 0]);
    }

    #[test]
    fn a_search_has_an_end() {
        // 64 zones whose CPUs and memory pull apart: any 32 have enough of one, none of both.
        let zones: Vec<String> =
            (0..64).map(|i| format!("cpu=2:{} memory=2:{}", i % 2 * 2, (i + 1) % 2 * 2)).collect();
        let table = zones_of(&zones);
        let outcome = place(&table, &Ask { pinned: true, pod: &[63, 63], containers: &[], init: &[] });
        assert!(matches!(outcome, Err(Refused::SearchEnded | Refused::Full)), "{outcome:?}");
    }

    fn zones_of(rows: &[String]) -> Zones {
        zones(&format!("restricted; {}", rows.join(";")))
    }

    /// Every choice of zones in the order of their lists of indices.
    fn brute_force(left: &[(i64, i64)], width: usize, need: (i64, i64)) -> Option<Vec<usize>> {
        let mut choices: Vec<Vec<usize>> = (0..1_u32 << left.len())
            .filter(|mask| mask.count_ones() as usize == width)
            .map(|mask| (0..left.len()).filter(|z| mask >> z & 1 == 1).collect())
            .collect();
        choices.sort();
        choices.into_iter().find(|choice| {
            let sum = |of: fn(&(i64, i64)) -> i64| choice.iter().map(|z| of(&left[*z])).sum::<i64>();
            sum(|z| z.0) >= need.0 && sum(|z| z.1) >= need.1
        })
    }

    proptest! {
        #[test]
        fn the_search_finds_the_first_choice(
            left in prop::collection::vec((-1..5_i64, -1..5_i64), 1..8),
            width in 1..8_usize,
            need in (1..12_i64, 1..12_i64),
        ) {
            let width = width.min(left.len());
            let flat: Vec<i64> = left.iter().flat_map(|(a, b)| [*a, *b]).collect();
            let needs: Needs = [(0, need.0), (1, need.1)].into_iter().collect();
            let found = first_of_width(width, &needs, &flat).ok().map(|chosen| chosen.to_vec());
            prop_assert_eq!(found, brute_force(&left, width, need));
        }

        #[test]
        fn what_is_taken_was_asked_for_and_was_there(
            policy in prop::sample::select(vec!["single", "restricted", "best"]),
            rows in prop::collection::vec((0..6_i64, 0..6_i64, 0..4_i64, 0..4_i64), 1..6),
            (cpu, gpu) in (0..12_i64, 0..8_i64),
        ) {
            let rows: Vec<String> = rows
                .iter()
                .map(|(cpu, cpu_used, gpu, gpu_used)| {
                    format!("cpu={cpu}:{} gpu={gpu}:{}", cpu - cpu_used, gpu - gpu_used)
                })
                .collect();
            let mut node = zones(&format!("{policy}; {}", rows.join(";")));
            let placed = solve(&node, &format!("pinned cpu={cpu} gpu={gpu}"));
            if let Ok(placed) = placed && placed.span > 0 {
                let sum = |dim: usize| placed.takes.iter().flat_map(|t| &t.amounts).filter(|a| a.0 == dim).map(|a| a.1).sum::<i64>();
                let known = |dim| node.left(0, dim).is_some();
                prop_assert!(sum(0) == cpu || !known(0));
                prop_assert!(sum(2) == gpu || !known(2));
                prop_assert!(policy != "single" || placed.takes.len() <= 1);
                let before = node.clone();
                node.hold(&placed.takes);
                for take in &placed.takes {
                    prop_assert!(take.amounts.iter().all(|(dim, amount)| *amount > 0 && node.left(take.zone, *dim) >= Some(0)));
                }
                node.release(&placed.takes);
                prop_assert_eq!(node, before);
            }
        }
    }
}
