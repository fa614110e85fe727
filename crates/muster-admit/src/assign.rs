//! Flavors for a workload: for every resource of every set of pods, the first flavor that will do, or the best that could.
//!
//! In: a workload, its queue and what is used. Out: an [`Assignment`]: flavors with how they can be had (now, by preemption, not at all), how far
//! up it borrows, where the search stopped, and reasons. Sets of one group get one flavor, and so do all resources of one resource group.

use crate::ids::{
    Amounts, FlavorId, PairId, ResourceId, TreeId, Usage, WorkloadId, add_usage, amount_of, usage_of,
};
use crate::place::{Ask, Found, Look, NoPlace, TopologyAssignment};
use crate::reason::{Fault, Missing, Reason};
use crate::spec::{Delayed, Flavor};
use crate::state::{Bookmark, Group, PlaceUse, State};
use crate::{ids, victims};
use muster_model::{Name, NodeRule, NodeTerm, TaintEffect, Toleration};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// How something can be had, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    NoFit,
    Preempt,
    /// It will fit when others that were told to go are gone.
    Deferred,
    Fit,
}

/// What a search for victims came to for one flavor and resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Possibility {
    NoCandidates,
    /// Somebody of its own queue has to go.
    Preempt,
    /// Only others have to go, who borrowed.
    Reclaim,
}

/// How a flavor can be had, in detail; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    NoFit,
    NoCandidates,
    Preempt,
    Reclaim,
    Fit,
}

impl Grade {
    fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }
}

/// A flavor for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub resource: ResourceId,
    pub flavor: FlavorId,
    pub mode: Mode,
    /// The last flavor that was looked at; -1: all were.
    pub tried: i32,
    /// How high above the queue the quota comes from.
    pub borrows: u32,
}

#[derive(Clone, Debug, Default)]
pub struct SetAssignment {
    pub name: Name,
    pub count: i32,
    pub requests: Amounts,
    pub flavors: Vec<Choice>,
    pub reasons: Vec<Reason>,
    pub fault: Option<Fault>,
    pub topology: Option<TopologyAssignment>,
    pub delayed: Option<Delayed>,
    /// Flavors that will not do, by resource group, and what is missing there.
    missing: Vec<(usize, FlavorId, Missing)>,
    /// A resource that no group has.
    uncovered: bool,
}

impl SetAssignment {
    pub fn mode(&self) -> Mode {
        if self.fault.is_some() {
            return Mode::NoFit;
        }
        if self.reasons.is_empty() {
            return Mode::Fit;
        }
        self.flavors.iter().map(|c| c.mode).min().unwrap_or(Mode::NoFit)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Assignment {
    pub sets: Vec<SetAssignment>,
    /// The highest that any of its quota comes from; 0: its own.
    pub borrows: u32,
    /// What it will use beyond what it holds.
    pub usage: Usage,
    /// The places it will take, and what one pod of each set takes there.
    pub places: Vec<PlaceUse>,
    pub bookmark: Bookmark,
    mode: Option<Mode>,
}

impl Assignment {
    pub fn mode(&self) -> Mode {
        let worst = || self.sets.iter().map(SetAssignment::mode).min().unwrap_or(Mode::NoFit);
        self.mode.unwrap_or_else(worst)
    }

    /// Says how all of it can be had.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(mode);
        self.sets.iter_mut().for_each(|s| s.flavors.iter_mut().for_each(|c| c.mode = mode));
    }

    fn set_mode_of(&mut self, set: usize, mode: Mode) {
        self.mode = Some(mode);
        if let Some(set) = self.sets.get_mut(set) {
            set.flavors.iter_mut().for_each(|c| c.mode = mode);
        }
    }

    /// Pairs that somebody has to be preempted for.
    pub fn need(&self, ids: &ids::Ids) -> Vec<PairId> {
        let mut need: Vec<PairId> = self
            .sets
            .iter()
            .flat_map(|s| &s.flavors)
            .filter(|c| c.mode == Mode::Preempt)
            .filter_map(|c| ids.known_pair(c.flavor, c.resource))
            .collect();
        need.sort_unstable();
        need.dedup();
        need
    }

    /// What is missing, if anything is: the least of the flavors of each group, the most of the groups and sets.
    pub fn missing(&self) -> Option<Missing> {
        if self.mode() != Mode::NoFit {
            return None;
        }
        let of_set = |set: &SetAssignment| {
            if set.missing.is_empty() {
                return Missing::Flavor;
            }
            let mut groups: BTreeMap<usize, Missing> = BTreeMap::new();
            for &(group, _, missing) in &set.missing {
                groups.entry(group).and_modify(|m| *m = (*m).min(missing)).or_insert(missing);
            }
            let most = groups.values().max().copied().unwrap_or(Missing::Flavor);
            if set.uncovered { Missing::Flavor } else { most }
        };
        self.sets.iter().filter(|s| s.mode() == Mode::NoFit).map(of_set).max()
    }

    /// Flavors by set and resource, to stay with them when things are worked out again.
    pub fn pins(&self) -> Pins {
        self.sets.iter().map(|s| s.flavors.iter().map(|c| (c.resource, c.flavor)).collect()).collect()
    }
}

/// A set, its flavor and its places.
pub type Placed = (usize, FlavorId, TopologyAssignment);

/// By set: the flavor that each resource must have.
pub type Pins = Vec<Vec<(ResourceId, FlavorId)>>;

/// What a workload that is replaced holds.
#[derive(Clone, Debug, Default)]
pub struct Replaced {
    pub sets: Vec<ReplacedSet>,
}

#[derive(Clone, Debug, Default)]
pub struct ReplacedSet {
    pub name: Name,
    pub requests: Amounts,
    pub flavors: Vec<(ResourceId, FlavorId)>,
    pub topology: Option<TopologyAssignment>,
}

/// Who says whether preemption would help.
#[derive(Clone, Copy)]
pub enum Oracle<'a> {
    /// A search for victims.
    Search,
    Told(&'a dyn Fn(FlavorId, ResourceId) -> (Possibility, u32)),
}

/// How to assign.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub oracle: Oracle<'a>,
    pub replaced: Option<&'a Replaced>,
    pub pins: Option<&'a Pins>,
    /// Go on from where the last search stopped.
    pub bookmark: bool,
    /// Fewer pods than asked for, by set.
    pub counts: Option<&'a [i32]>,
}

impl Default for How<'_> {
    fn default() -> Self {
        Self { oracle: Oracle::Search, replaced: None, pins: None, bookmark: true, counts: None }
    }
}

/// A set as it is assigned.
struct Wanted {
    set: SetAssignment,
    /// Which of the workload's sets it is.
    index: usize,
}

impl State {
    pub fn assign(&mut self, id: WorkloadId, queue: TreeId, how: How<'_>) -> Assignment {
        let mut assignment = Assignment::default();
        for (group, mut wanted) in self.wanted(id, queue, how.counts) {
            let failed = self.assign_group(id, queue, how, &group, &mut wanted, &assignment.usage);
            for Wanted { set, .. } in wanted {
                self.append(&mut assignment, set, how.replaced);
            }
            if failed {
                return assignment;
            }
        }
        if assignment.mode() != Mode::NoFit && self.settings.gates.topology {
            self.assign_places(id, queue, how, &mut assignment);
        }
        assignment
    }

    /// The sets of a workload by their groups, each with what it asks for in all.
    fn wanted(
        &self,
        id: WorkloadId,
        queue: TreeId,
        counts: Option<&[i32]>,
    ) -> Vec<(Vec<usize>, Vec<Wanted>)> {
        let wl = self.wl(id);
        let covers_pods = self.queues[queue].group_of(ids::Ids::PODS).is_some();
        let mut groups: Vec<(Option<Name>, Vec<usize>, Vec<Wanted>)> = Vec::new();
        for (i, own) in wl.sets.iter().enumerate() {
            let held = wl.hold.as_ref().and_then(|h| h.sets.get(i));
            let count = counts.and_then(|c| c.get(i)).copied().unwrap_or(held.map_or(own.count, |h| h.count));
            let mut set = SetAssignment { name: own.name.clone(), count, ..SetAssignment::default() };
            match held {
                Some(held) => {
                    set.requests.clone_from(&held.requests);
                    if self.settings.gates.topology {
                        set.delayed = held.delayed;
                        set.topology.clone_from(&held.topology);
                        set.flavors = held
                            .flavors
                            .iter()
                            .map(|&(resource, flavor)| Choice {
                                resource,
                                flavor,
                                mode: Mode::Fit,
                                tried: 0,
                                borrows: 0,
                            })
                            .collect();
                    }
                }
                None => {
                    let times = i64::from(count);
                    set.requests = own.per_pod.iter().map(|(r, a)| (*r, a.saturating_mul(times))).collect();
                }
            }
            if covers_pods {
                set.requests.retain(|(r, _)| *r != ids::Ids::PODS);
                set.requests.push((ids::Ids::PODS, i64::from(count)));
                self.ids.sort(&mut set.requests);
            }
            let group = wl.spec.pod_sets.get(i).and_then(|s| s.topology.as_ref()?.group.clone());
            let wanted = Wanted { set, index: i };
            match groups.iter_mut().find(|(name, ..)| name.is_some() && *name == group) {
                Some((_, members, sets)) => {
                    members.push(i);
                    sets.push(wanted);
                }
                None => groups.push((group, vec![i], vec![wanted])),
            }
        }
        groups.into_iter().map(|(_, members, sets)| (members, sets)).collect()
    }

    /// One flavor for each resource group, for all sets of a group of sets. Whether that failed.
    fn assign_group(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        how: How<'_>,
        members: &[usize],
        wanted: &mut [Wanted],
        used: &Usage,
    ) -> bool {
        let mut requests: Amounts = Vec::new();
        for (resource, amount) in wanted.iter().flat_map(|w| &w.set.requests) {
            match requests.iter_mut().find(|(r, _)| r == resource) {
                Some((_, sum)) => *sum = sum.saturating_add(*amount),
                None => requests.push((*resource, *amount)),
            }
        }
        self.ids.sort(&mut requests);
        let mut found: Vec<Choice> = wanted.iter().flat_map(|w| w.set.flavors.iter().copied()).collect();
        let mut outcome = SetAssignment::default();
        let mut failed = false;
        // From the last name to the first: whoever fails first is told.
        for &(resource, amount) in requests.iter().rev() {
            let covered = self.queues[queue].groups.iter().rposition(|g| g.resources.contains(&resource));
            let Some(group) = covered else {
                if amount == 0 || self.settings.ignore_undeclared {
                    continue;
                }
                if found.iter().any(|c| c.resource == resource) {
                    continue;
                }
                let resource = self.ids.resource_name(resource).clone();
                outcome.reasons = vec![Reason::NotCovered { resource }];
                outcome.uncovered = true;
                failed = true;
                break;
            };
            if found.iter().any(|c| c.resource == resource) {
                continue;
            }
            let result = self.find_flavor(
                id,
                queue,
                how,
                members,
                group,
                resource,
                &requests,
                used,
                &mut outcome.missing,
            );
            match result {
                Ok((choices, reasons)) => {
                    found.extend(choices);
                    outcome.reasons.extend(reasons);
                }
                Err(reasons) => {
                    outcome.reasons = reasons;
                    failed = true;
                    break;
                }
            }
        }
        if failed {
            found.clear();
        }
        for Wanted { set, index } in wanted {
            let asks = |c: &&Choice| set.requests.iter().any(|(r, _)| *r == c.resource);
            let mut own: Vec<Choice> = found.iter().filter(asks).copied().collect();
            if set.requests.is_empty() {
                // It asks for nothing itself, yet goes where its group goes.
                let grouped = self
                    .wl(id)
                    .spec
                    .pod_sets
                    .get(*index)
                    .is_some_and(|s| s.topology.as_ref().is_some_and(|t| t.group.is_some()));
                if grouped {
                    own = found.iter().filter(|c| self.places(c.flavor).is_some()).copied().collect();
                }
            }
            own.sort_by(|a, b| self.ids.resource_name(a.resource).cmp(self.ids.resource_name(b.resource)));
            own.dedup_by_key(|c| c.resource);
            set.flavors = own;
            set.reasons.clone_from(&outcome.reasons);
            set.missing.clone_from(&outcome.missing);
            set.uncovered = outcome.uncovered;
        }
        failed
    }

    /// Adds a set to what is assigned.
    fn append(&mut self, assignment: &mut Assignment, set: SetAssignment, replaced: Option<&Replaced>) {
        let mut tried = Vec::with_capacity(set.flavors.len());
        for choice in &set.flavors {
            assignment.borrows = assignment.borrows.max(choice.borrows);
            let mut amount = amount_of(&set.requests, choice.resource);
            if let Some(old) = replaced.and_then(|r| r.sets.iter().find(|s| s.name == set.name)) {
                amount = amount.saturating_sub(amount_of(&old.requests, choice.resource));
            }
            let pair = self.ids.pair(choice.flavor, choice.resource);
            add_usage(&mut assignment.usage, pair, amount);
            tried.push((choice.resource, choice.tried));
        }
        assignment.bookmark.push(tried);
        assignment.sets.push(set);
    }

    /// The flavor for the resources of one resource group: choices and reasons for what is not to be had at once, or why there is none.
    #[expect(clippy::too_many_arguments, reason = "a step of one search, which is one function cut in two")]
    fn find_flavor(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        how: How<'_>,
        members: &[usize],
        group_at: usize,
        resource: ResourceId,
        requests: &Amounts,
        used: &Usage,
        missing: &mut Vec<(usize, FlavorId, Missing)>,
    ) -> Result<(Vec<Choice>, Vec<Reason>), Vec<Reason>> {
        let Group { resources, flavors } = self.queues[queue].groups[group_at].clone();
        let fungibility = self.queues[queue].spec.fungibility;
        let covered: Vec<(ResourceId, i64)> =
            requests.iter().filter(|(r, _)| resources.contains(r)).copied().collect();
        let mut reasons = Vec::new();
        let mut best: Option<(Grade, u32, Vec<Choice>)> = None;
        let start = match (&self.wl(id).bookmark, members.first()) {
            (Some(bookmark), Some(set)) if how.bookmark => bookmark
                .get(*set)
                .and_then(|s| s.iter().find(|(r, _)| *r == resource))
                .map_or(0, |(_, tried)| usize::try_from(tried + 1).unwrap_or(0)),
            _ => 0,
        };
        let mut last = -1_i32;
        for (i, &flavor) in flavors.iter().enumerate().skip(start) {
            last = i32::try_from(i).unwrap_or(i32::MAX);
            if let Some(pins) = how.pins {
                let pinned = |set: &usize| pins.get(*set).is_some_and(|p| p.contains(&(resource, flavor)));
                if !members.iter().any(pinned) {
                    reasons.push(Reason::NotNominated {
                        flavor: self.ids.flavor_name(flavor).clone(),
                        resource: self.ids.resource_name(resource).clone(),
                    });
                    continue;
                }
            }
            if let Some(reason) = self.variant_forbids(id, flavor) {
                reasons.push(reason);
                continue;
            }
            if let Some(reason) = self.flavor_forbids(id, queue, flavor, members, &resources) {
                reasons.push(reason);
                missing.push((group_at, flavor, Missing::Flavor));
                continue;
            }
            let mut choices = Vec::with_capacity(covered.len());
            let mut worst = (Grade::Fit, 0);
            let mut lacks = None;
            for &(resource, amount) in &covered {
                let mut amount = amount;
                if let Some(replaced) = how.replaced {
                    match self.beyond(replaced, members, id, flavor, resource, amount) {
                        Ok(more) => amount = more,
                        Err(reason) => {
                            reasons.push(reason);
                            lacks = lacks.max(Some(Missing::Flavor));
                            worst = (Grade::NoFit, u32::MAX);
                            continue;
                        }
                    }
                }
                let pair = self.ids.pair(flavor, resource);
                let before = usage_of(used, pair);
                let (grade, borrows, reason, lack) = self.fits(id, queue, how.oracle, pair, before, amount);
                reasons.extend(reason);
                lacks = lacks.max(lack);
                if prefers(worst, (grade, borrows), fungibility.preempt_over_borrow) {
                    worst = (grade, borrows);
                }
                if worst.0 != Grade::NoFit {
                    choices.push(Choice { resource, flavor, mode: grade.mode(), tried: 0, borrows });
                }
            }
            if worst.0 == Grade::NoFit {
                missing.push((group_at, flavor, lacks.unwrap_or(Missing::Quota)));
            }
            let go_on = match worst.0 {
                Grade::NoFit | Grade::NoCandidates => true,
                Grade::Preempt | Grade::Reclaim if !fungibility.stop_at_preemption => true,
                _ => worst.1 > 0 && fungibility.next_before_borrowing,
            };
            let go_on = if self.settings.gates.flavor_fungibility { go_on } else { worst.0 != Grade::Fit };
            let better = best.as_ref().is_none_or(|(grade, borrows, _)| {
                prefers(worst, (*grade, *borrows), fungibility.preempt_over_borrow)
            });
            if worst.0 != Grade::NoFit && (better || !go_on) {
                best = Some((worst.0, worst.1, choices));
            }
            if !go_on {
                break;
            }
        }
        let Some((grade, _, mut choices)) = best else { return Err(reasons) };
        let all = usize::try_from(last + 1).is_ok_and(|n| n == flavors.len());
        choices.iter_mut().for_each(|c| c.tried = if all { -1 } else { last });
        if grade == Grade::Fit {
            reasons.clear();
        }
        Ok((choices, reasons))
    }

    /// How one resource of one flavor can be had.
    fn fits(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        oracle: Oracle<'_>,
        pair: PairId,
        before: i64,
        amount: i64,
    ) -> (Grade, u32, Option<Reason>, Option<Missing>) {
        let total = before.saturating_add(amount);
        let (flavor, resource) = self.ids.split(pair);
        let names = |s: &Self| (s.ids.resource_name(resource).clone(), s.ids.flavor_name(flavor).clone());
        let most = self.tree.potential(queue, pair);
        if total > most {
            let (resource, flavor) = names(self);
            let reason = Reason::ExceedsMax { resource, flavor, before, asked: amount, most };
            return (Grade::NoFit, 0, Some(reason), Some(Missing::MaxQuota));
        }
        let (borrows, more_above) = self.tree.lowest_fit(queue, pair, total);
        let available = self.tree.available(queue, pair);
        if total <= available {
            return (Grade::Fit, borrows, None, None);
        }
        let reason = {
            let (resource, flavor) = names(self);
            Some(Reason::Short { resource, flavor, by: total.saturating_sub(available) })
        };
        let policy = self.queues[queue].spec.preemption;
        let while_borrowing = policy.while_borrowing.is_some()
            || (self.settings.fair_sharing.is_some() && policy.within_cohort != crate::spec::Reclaim::Never);
        if self.tree.cell(queue, pair).nominal < total && !more_above && !while_borrowing {
            return (Grade::NoFit, borrows, reason, Some(Missing::Quota));
        }
        let (possibility, borrows) = match oracle {
            Oracle::Told(tell) => tell(flavor, resource),
            Oracle::Search => victims::simulate(self, id, queue, pair, total),
        };
        let grade = match possibility {
            Possibility::NoCandidates => Grade::NoCandidates,
            Possibility::Preempt => Grade::Preempt,
            Possibility::Reclaim => Grade::Reclaim,
        };
        (grade, borrows, reason, None)
    }

    /// What a growing workload asks for beyond what it has; it must stay in its flavor.
    fn beyond(
        &self,
        replaced: &Replaced,
        members: &[usize],
        id: WorkloadId,
        flavor: FlavorId,
        resource: ResourceId,
        amount: i64,
    ) -> Result<i64, Reason> {
        let mut more = amount;
        for &set in members {
            let Some(name) = self.wl(id).sets.get(set).map(|s| &s.name) else { continue };
            let Some(old) = replaced.sets.iter().find(|s| s.name == *name) else { continue };
            let has = old.flavors.iter().find(|(r, _)| *r == resource).map(|(_, f)| *f);
            if has != Some(flavor) {
                return Err(Reason::GrowsElsewhere {
                    flavor: self.ids.flavor_name(flavor).clone(),
                    has: has.map_or_else(Name::default, |f| self.ids.flavor_name(f).clone()),
                });
            }
            more = more.saturating_sub(amount_of(&old.requests, resource));
        }
        Ok(more)
    }

    fn variant_forbids(&self, id: WorkloadId, flavor: FlavorId) -> Option<Reason> {
        let allowed = self.wl(id).spec.allowed_flavors.as_ref()?;
        let name = self.ids.flavor_name(flavor);
        (self.settings.gates.concurrent_admission && !allowed.contains(name))
            .then(|| Reason::NotAllowed { flavor: name.clone() })
    }

    /// Why these sets cannot have a flavor, whatever its quota.
    fn flavor_forbids(
        &self,
        id: WorkloadId,
        queue: TreeId,
        flavor: FlavorId,
        members: &[usize],
        resources: &[ResourceId],
    ) -> Option<Reason> {
        let name = self.ids.flavor_name(flavor);
        let Some(spec) = self.flavor_specs.get(name) else {
            return Some(Reason::NoSuchFlavor { flavor: name.clone() });
        };
        let wl = self.wl(id);
        for &i in members {
            let Some(set) = wl.spec.pod_sets.get(i) else { continue };
            if self.settings.gates.topology
                && let Some(reason) = self.topology_forbids(wl, queue, flavor, spec, i, resources)
            {
                return Some(reason);
            }
            if let Some(taint) = spec.taints.iter().find(|t| {
                t.effect != TaintEffect::PreferNoSchedule
                    && !set.tolerations.iter().chain(&spec.tolerations).any(|own| own.covers(t))
            }) {
                return Some(Reason::Untolerated { flavor: name.clone(), taint: taint.clone() });
            }
            if !rule_allows(&set.rule, spec) {
                return Some(Reason::NodeRule { flavor: name.clone() });
            }
        }
        None
    }

    fn topology_forbids(
        &self,
        wl: &crate::state::Wl,
        queue: TreeId,
        flavor: FlavorId,
        spec: &Flavor,
        set: usize,
        resources: &[ResourceId],
    ) -> Option<Reason> {
        let flavor_name = || self.ids.flavor_name(flavor).clone();
        let request = wl.spec.pod_sets.get(set)?.topology.as_ref().filter(|t| t.is_explicit());
        let Some(request) = request else {
            if self.queues[queue].only_topology || spec.topology.is_none() {
                return None;
            }
            return Some(Reason::OnlyTopology { flavor: flavor_name() });
        };
        if spec.topology.is_none() {
            // Resources that no pod asks for as such are only counted, and have no place.
            let placed = wl.sets[set].raw.iter().any(|(r, _)| resources.contains(r));
            return placed.then(|| Reason::NoTopology { flavor: flavor_name() });
        }
        let Some(places) = self.places(flavor) else {
            return Some(Reason::UnknownTopology { flavor: flavor_name() });
        };
        let named = request.required.iter().chain(&request.preferred);
        let layers = if self.settings.gates.multi_layer { request.slices.len() } else { 1 };
        let layers = request.slices.iter().take(layers).map(|l| &l.level);
        let known = named.chain(layers).all(|level| places.level(level).is_some());
        (!known).then(|| Reason::NoLevel { flavor: flavor_name() })
    }

    /// Whether a set is to be placed: it says so, or its queue has nothing else.
    pub fn is_placed(&self, id: WorkloadId, queue: TreeId, set: usize) -> bool {
        let spec = &self.wl(id).spec;
        let explicit =
            spec.pod_sets.get(set).is_some_and(|s| s.topology.as_ref().is_some_and(|t| t.is_explicit()));
        self.settings.gates.topology && (explicit || self.queues[queue].only_topology)
    }

    /// Finds places for what has quota. What has quota and no place must preempt; what has no place even in an empty cluster cannot be had.
    fn assign_places(&mut self, id: WorkloadId, queue: TreeId, how: How<'_>, assignment: &mut Assignment) {
        let asks = self.place_asks(id, queue, assignment, how.replaced);
        if assignment.mode() == Mode::Fit {
            match self.find_places(id, assignment, &asks, how.replaced, false) {
                Ok(found) => self.take_places(id, assignment, found),
                Err((set, why)) => {
                    assignment.sets[set].reasons.push(Reason::NoPlace(why));
                    assignment.set_mode_of(set, Mode::Preempt);
                }
            }
        }
        if assignment.mode() == Mode::Preempt && self.wl(id).spec.unhealthy.is_empty() {
            match self.find_places(id, assignment, &asks, how.replaced, true) {
                Ok(_) => {
                    for &(set, _) in &asks {
                        assignment.set_mode_of(set, Mode::Preempt);
                    }
                }
                Err((set, why)) => {
                    let flavor = asks.iter().find(|(s, _)| *s == set).map(|(_, f)| *f);
                    let groups = &self.queues[queue].groups;
                    let at = groups.iter().position(|g| flavor.is_some_and(|f| g.flavors.contains(&f)));
                    let own = &mut assignment.sets[set];
                    if own.reasons.is_empty() {
                        own.reasons.push(Reason::NoPlace(why));
                    }
                    own.missing.extend(flavor.map(|f| (at.unwrap_or(usize::MAX), f, Missing::Place)));
                    assignment.set_mode_of(set, Mode::NoFit);
                }
            }
        }
    }

    /// The sets that want places, and the flavor of each. Marks those that cannot have any, and those whose turn comes later.
    pub fn place_asks(
        &self,
        id: WorkloadId,
        queue: TreeId,
        assignment: &mut Assignment,
        replaced: Option<&Replaced>,
    ) -> Vec<(usize, FlavorId)> {
        let mut asks = Vec::new();
        let wl = self.wl(id);
        for (i, set) in assignment.sets.iter_mut().enumerate() {
            let lost = set.topology.as_ref().is_some_and(|t| {
                t.domains.iter().any(|(v, _)| v.last().is_some_and(|v| wl.spec.unhealthy.contains(v)))
            });
            if !self.is_placed(id, queue, i)
                || set.fault.is_some()
                || set.count == 0
                || (set.topology.is_some() && !lost)
            {
                continue;
            }
            let request = wl.spec.pod_sets.get(i).and_then(|s| s.topology.as_ref());
            if wl.spec.elastic
                && self.settings.gates.elastic_topology
                && replaced.is_some()
                && request.is_some_and(|r| r.required.is_some())
            {
                set.fault = Some(Fault::ElasticRequired);
                assignment.mode = None;
                continue;
            }
            if self.places.iter().all(Option::is_none) {
                set.fault = Some(Fault::NoTopologies);
                assignment.mode = None;
                continue;
            }
            let flavors: BTreeSet<&Name> = set
                .flavors
                .iter()
                .filter(|c| self.places(c.flavor).is_some())
                .map(|c| self.ids.flavor_name(c.flavor))
                .collect();
            let mut names = flavors.into_iter();
            let (first, second) = (names.next(), names.next());
            let flavor = first.and_then(|name| self.ids.known_flavor(name));
            let fault = match (flavor, second) {
                (Some(_), None) => None,
                (None, _) => Some(Fault::NoTopologyFlavor),
                (Some(_), Some(second)) => {
                    let all = first.into_iter().chain([second]).chain(names).cloned().collect();
                    Some(Fault::SeveralTopologyFlavors(all))
                }
            };
            if fault.is_some() {
                set.fault = fault;
                assignment.mode = None;
                continue;
            }
            let Some(flavor) = flavor else { continue };
            let own = &self.queues[queue];
            if own.multikueue || (wl.hold.is_none() && own.provisions(flavor)) {
                set.delayed = Some(Delayed::Pending);
                continue;
            }
            asks.push((i, flavor));
        }
        asks
    }

    /// Places for sets, flavor by flavor; in a cluster that is as it is, or empty.
    pub fn find_places(
        &self,
        id: WorkloadId,
        assignment: &Assignment,
        asks: &[(usize, FlavorId)],
        replaced: Option<&Replaced>,
        empty: bool,
    ) -> Result<Vec<Placed>, (usize, NoPlace)> {
        let wl = self.wl(id);
        let mut flavors: Vec<FlavorId> = asks.iter().map(|(_, f)| *f).collect();
        flavors.sort_unstable();
        flavors.dedup();
        let mut all: Vec<Placed> = Vec::new();
        for flavor in flavors {
            let Some(places) = self.places(flavor) else { continue };
            let own: Vec<usize> = asks.iter().filter(|(_, f)| *f == flavor).map(|(i, _)| *i).collect();
            // Checks that passed may have something to say about the nodes.
            let added: Vec<Option<(NodeRule, Vec<Toleration>)>> =
                own.iter().map(|i| self.with_updates(id, *i)).collect();
            let asked: Vec<Ask<'_>> = own
                .iter()
                .zip(&added)
                .map(|(&i, added)| {
                    let (spec, set) = (&wl.spec.pod_sets[i], &assignment.sets[i]);
                    let request = spec.topology.as_ref();
                    Ask {
                        name: &set.name,
                        count: set.count,
                        per_pod: &wl.sets[i].raw,
                        rule: added.as_ref().map_or(&spec.rule, |(rule, _)| rule),
                        tolerations: added.as_ref().map_or(&spec.tolerations, |(_, t)| t),
                        request,
                        implied: !request.is_some_and(|r| r.is_explicit()),
                        previous: replaced
                            .and_then(|r| r.sets.iter().find(|s| s.name == set.name)?.topology.as_ref()),
                        held: set.topology.as_ref(),
                    }
                })
                .collect();
            let unhealthy: &[Name] = if wl.hold.is_some() { &wl.spec.unhealthy } else { &[] };
            let taken = if self.settings.gates.overlapping_flavors && places.is_by_host() {
                self.taken(id, &all)
            } else {
                Vec::new()
            };
            let look = Look { empty, gates: self.settings.gates, unhealthy, taken: &taken };
            let found: Found = places.find(&asked, look);
            match found {
                Ok(found) => {
                    for (&i, topology) in own.iter().zip(found) {
                        all.extend(topology.map(|t| (i, flavor, t)));
                    }
                }
                Err(failed) => return Err((own.get(failed.set).copied().unwrap_or(0), failed.why)),
            }
        }
        Ok(all)
    }

    /// What sets take on nodes, for flavors that have the same nodes.
    fn taken(&self, id: WorkloadId, found: &[Placed]) -> Vec<(Name, Vec<(ResourceId, i64)>)> {
        let wl = self.wl(id);
        let mut taken: BTreeMap<Name, Amounts> = BTreeMap::new();
        for (set, flavor, topology) in found {
            if !self.places(*flavor).is_some_and(crate::place::Places::is_by_host) {
                continue;
            }
            for (values, pods) in &topology.domains {
                let Some(host) = values.last() else { continue };
                let sums = taken.entry(host.clone()).or_default();
                let pods = i64::from(*pods);
                for &(resource, amount) in wl.sets[*set].raw.iter().chain(&[(ids::Ids::PODS, 1)]) {
                    let amount = amount.saturating_mul(pods);
                    match sums.iter_mut().find(|(r, _)| *r == resource) {
                        Some((_, sum)) => *sum = sum.saturating_add(amount),
                        None => sums.push((resource, amount)),
                    }
                }
            }
        }
        taken.into_iter().collect()
    }

    fn with_updates(&self, id: WorkloadId, set: usize) -> Option<(NodeRule, Vec<Toleration>)> {
        let spec = &self.wl(id).spec;
        let own = spec.pod_sets.get(set)?;
        let mut changed = None;
        let ready = spec.checks.iter().filter(|c| c.state == crate::spec::CheckState::Ready);
        for update in ready.flat_map(|c| &c.updates).filter(|u| u.pod_set == own.name) {
            let (rule, tolerations) =
                changed.get_or_insert_with(|| (own.rule.clone(), own.tolerations.clone()));
            rule.all.extend(update.node_selector.iter().map(|(key, value)| muster_model::Expr {
                key: key.clone(),
                op: muster_model::Op::In(vec![value.clone()]),
            }));
            tolerations.extend(update.tolerations.iter().cloned());
        }
        changed
    }

    /// Writes places into an assignment.
    pub fn take_places(&self, id: WorkloadId, assignment: &mut Assignment, found: Vec<Placed>) {
        for (set, _, topology) in found {
            let set = &mut assignment.sets[set];
            set.topology = Some(topology);
            if set.delayed.is_some() {
                set.delayed = Some(Delayed::Ready);
            }
        }
        self.count_places(id, assignment);
    }

    /// The places that come on top of what the workload holds.
    fn count_places(&self, id: WorkloadId, assignment: &mut Assignment) {
        assignment.places.clear();
        let hold = self.wl(id).hold.as_ref();
        for (i, set) in assignment.sets.iter().enumerate() {
            let Some(topology) = &set.topology else { continue };
            let Some((flavor, places)) =
                set.flavors.iter().find_map(|c| Some((c.flavor, self.places(c.flavor)?)))
            else {
                continue;
            };
            for (values, pods) in &topology.domains {
                let Some(leaf) = places.leaf_at(values) else { continue };
                let has: i64 = hold
                    .iter()
                    .flat_map(|h| &h.places)
                    .filter(|p| p.set == i && p.flavor == flavor && p.leaf == leaf)
                    .map(|p| p.pods)
                    .sum();
                let more = i64::from(*pods) - has;
                if more > 0 {
                    assignment.places.push(PlaceUse { flavor, leaf, set: i, pods: more });
                }
            }
        }
    }
}

/// Whether the first is better than the second.
fn prefers(a: (Grade, u32), b: (Grade, u32), preempt_over_borrow: bool) -> bool {
    if a.0 == Grade::NoFit || b.0 == Grade::NoFit {
        return a.0 != Grade::NoFit;
    }
    let hopeless = |g: Grade| g == Grade::NoCandidates;
    if hopeless(a.0) != hopeless(b.0) {
        return hopeless(b.0);
    }
    let by_grade = a.0.cmp(&b.0);
    let by_level = b.1.cmp(&a.1);
    let order = if preempt_over_borrow { by_level.then(by_grade) } else { by_grade.then(by_level) };
    order == Ordering::Greater
}

/// Whether a pod's node rule allows a flavor, as far as labels are concerned that the flavor has.
fn rule_allows(rule: &NodeRule, flavor: &Flavor) -> bool {
    let labels = &flavor.labels;
    let relevant = |e: &&muster_model::Expr| labels.contains_key(&e.key);
    let holds = |e: &muster_model::Expr| e.holds(labels.get(&e.key).map(|v| &**v));
    if !rule.all.iter().filter(relevant).all(holds) {
        return false;
    }
    let Some(terms) = &rule.any else { return true };
    // A term that says nothing about the flavor's labels holds, and one is enough.
    let term_holds = |term: &NodeTerm| term.labels.iter().filter(relevant).all(holds);
    terms.is_empty() || terms.iter().any(term_holds)
}
