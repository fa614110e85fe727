//! The cycle: the first of every line is nominated, then all are gone through in order, and what cannot start goes back to its line.
//!
//! In: the state and the time. Out: a [`Cycle`]: who was admitted with what, who has to go for whom, and why the others wait. All heads are
//! nominated against the same state; what one of them takes or reserves the next ones no longer have.
//!
//! *Invariant:* what is only reserved for this cycle is given back at its end.

use crate::assign::{Assignment, How, Mode, Replaced, ReplacedSet};
use crate::fair::{Contender, Tournament};
use crate::ids::{Amounts, PairId, TreeId, Usage, WorkloadId};
use crate::line::ClassKey;
use crate::order::Turn;
use crate::reason::{Cause, Eviction, Fault, Reason, Waits};
use crate::reduce;
use crate::spec::{CheckState, Delayed, Marked, PodSetReservation, Reclaim, Reservation, Strategy};
use crate::state::{PlaceUse, State};
use crate::victims::{Search, Target};
use muster_model::{Key, Name, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A workload got quota, and perhaps places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub key: Key,
    pub reservation: Reservation,
    /// It had quota before, and was given other places.
    pub again: bool,
}

/// A workload has to go for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preempted {
    pub key: Key,
    pub cause: Cause,
    pub by: Key,
    /// From the root down: where the preemptor is, and where its victim.
    pub paths: (String, String),
}

/// A workload waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub key: Key,
    pub why: Waits,
    /// What was not to be had, by set.
    pub sets: Vec<(Name, Vec<Reason>, Option<Fault>)>,
}

/// What one cycle, or several, came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    pub admitted: Vec<Admitted>,
    pub preempted: Vec<Preempted>,
    pub evicted: Vec<(Key, Eviction)>,
    /// Workloads that others took the place of, and these.
    pub replaced: Vec<(Key, Key)>,
    pub waiting: Vec<Waiting>,
    /// Preemptions that came too late, by queue.
    pub skipped: BTreeMap<Name, u32>,
    /// Victims that were worked out again because others had taken them: by queue, with what came out.
    pub recomputed: BTreeMap<(Name, Recomputed), u32>,
    /// Something moved, so that another cycle may come to more.
    pub progress: bool,
}

/// What came of working out victims again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recomputed {
    NewTargets,
    Deferred,
    NoTargets,
}

/// How a head goes back to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    /// Nothing about it was decided.
    Generic,
    /// It was nominated and others were faster, or it waits for others to go.
    Next,
    /// Likewise, and it stays first.
    Sticky,
    NoFit,
    NoVictims,
    WrongNamespace,
    Gated,
}

struct Entry {
    id: WorkloadId,
    queue: TreeId,
    class: ClassKey,
    second: bool,
    assignment: Assignment,
    targets: Vec<Target>,
    replaces: Option<WorkloadId>,
}

/// What was set aside during a cycle.
#[derive(Default)]
struct Aside {
    usage: Vec<(TreeId, Usage)>,
    places: Vec<(Vec<PlaceUse>, Vec<Amounts>)>,
    victims: BTreeSet<WorkloadId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fits {
    Yes,
    NoQuota,
    NoPlace,
}

impl State {
    /// One cycle: at most one workload of every queue, and all that need a second pass.
    pub fn cycle(&mut self, now: Time) -> Cycle {
        self.settle(now);
        let mut cycle = Cycle::default();
        let mut aside = Aside::default();
        let mut entries: Vec<Entry> = Vec::new();
        for id in self.second.clone() {
            let Some(queue) = self.wl(id).queue else { continue };
            let class = self.wl(id).class;
            if let Some(entry) = self.nominate(id, queue, class, true, &mut cycle, now) {
                entries.push(entry);
            }
        }
        let heads = self.heads();
        for (id, queue, class) in heads {
            if let Some(entry) = self.nominate(id, queue, class, false, &mut cycle, now) {
                entries.push(entry);
            }
        }
        if self.settings.fair_sharing.is_some() {
            self.go_by_shares(entries, &mut aside, &mut cycle, now);
        } else {
            entries.sort_by_cached_key(|e| {
                let preempting = self.queues[e.queue].line.is_sticky(e.id);
                Turn::new(&self.wl(e.id).spec, e.assignment.borrows, preempting, &self.settings)
            });
            for entry in entries {
                self.process(entry, &mut aside, &mut cycle, now);
            }
        }
        self.lift(&aside);
        cycle
    }

    /// Cycles until nothing moves any more: what a live service does at once. Of those who wait, the last word counts.
    pub fn run(&mut self, now: Time) -> Cycle {
        let mut all = Cycle::default();
        // Every cycle that moves something admits, evicts or parks somebody, or goes on to another flavor.
        let flavors = self.queue_specs.values().flat_map(|q| &q.groups).map(|g| g.flavors.len()).max();
        let most = (self.by_key.len() + 1).saturating_mul(flavors.unwrap_or(0) + 3);
        for _ in 0..most {
            let cycle = self.cycle(now);
            all.admitted.extend(cycle.admitted);
            all.preempted.extend(cycle.preempted);
            all.evicted.extend(cycle.evicted);
            all.replaced.extend(cycle.replaced);
            for waiting in cycle.waiting {
                all.waiting.retain(|w| w.key != waiting.key);
                all.waiting.push(waiting);
            }
            for (queue, n) in cycle.skipped {
                *all.skipped.entry(queue).or_default() += n;
            }
            for (what, n) in cycle.recomputed {
                *all.recomputed.entry(what).or_default() += n;
            }
            all.progress |= cycle.progress;
            if !cycle.progress {
                break;
            }
        }
        let admitted: BTreeSet<&Key> = all.admitted.iter().map(|a| &a.key).collect();
        all.waiting.retain(|w| !admitted.contains(&w.key));
        all
    }

    fn go_by_shares(&mut self, entries: Vec<Entry>, aside: &mut Aside, cycle: &mut Cycle, now: Time) {
        let (second, first): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|e| e.second);
        for entry in second {
            self.process(entry, aside, cycle, now);
        }
        let contenders = first.iter().map(|e| Contender {
            queue: e.queue,
            usage: e.assignment.usage.clone(),
            priority: self.wl(e.id).priority,
            since: self.wl(e.id).since,
        });
        let contenders = contenders.collect();
        let mut tournament = Tournament::new(contenders, self);
        let mut entries: Vec<Option<Entry>> = first.into_iter().map(Some).collect();
        while let Some(i) = tournament.next(self) {
            let Some(entry) = entries.get_mut(i).and_then(Option::take) else { continue };
            let queue = entry.queue;
            self.process(entry, aside, cycle, now);
            tournament.changed(queue, self);
        }
    }

    /// Takes the first out of every line.
    fn heads(&mut self) -> Vec<(WorkloadId, TreeId, ClassKey)> {
        let mut heads = Vec::new();
        for queue in self.tree.queue_ids() {
            if self.queues[queue].inactive.is_some() || self.queues[queue].line.is_empty() {
                continue;
            }
            let mut line = std::mem::take(&mut self.queues[queue].line);
            let popped =
                line.pop(|local| self.locals.get(local as usize).map_or(0.0, |key| self.local_usage(key)));
            self.queues[queue].line = line;
            heads.extend(popped.map(|(rank, class)| (rank.id, queue, class)));
        }
        heads
    }

    /// Works out what a head could have. `None`: it is out of the question, and back in its line.
    fn nominate(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        class: ClassKey,
        second: bool,
        cycle: &mut Cycle,
        now: Time,
    ) -> Option<Entry> {
        let mut entry = Entry {
            id,
            queue,
            class,
            second,
            assignment: Assignment::default(),
            targets: Vec::new(),
            replaces: None,
        };
        if let Some((why, back)) = self.rules_out(id, queue) {
            self.go_back(entry, why, back, cycle, now);
            return None;
        }
        entry.replaces = self.replaces(id);
        self.work_out(&mut entry, None);
        self.wl_mut(id).bookmark = Some(entry.assignment.bookmark.clone());
        Some(entry)
    }

    fn rules_out(&self, id: WorkloadId, queue: TreeId) -> Option<(Waits, Back)> {
        let spec = &self.wl(id).spec;
        if spec.checks.iter().any(|c| matches!(c.state, CheckState::Retry | CheckState::Rejected)) {
            return Some((Waits::FailedChecks, Back::Generic));
        }
        if self.queues[queue].inactive.is_some() {
            return Some((Waits::Inactive(self.tree.nodes[queue].name.clone()), Back::Generic));
        }
        let Some(labels) = self.namespaces.get(&spec.key.namespace) else {
            return Some((Waits::NoNamespace, Back::Generic));
        };
        if !self.queues[queue].spec.namespaces.matches(labels) {
            return Some((Waits::Namespace, Back::WrongNamespace));
        }
        if let Some(why) = &spec.invalid {
            return Some((Waits::Invalid(why.clone()), Back::Generic));
        }
        spec.no_room.clone().map(|why| (Waits::NoRoom(why), Back::Generic))
    }

    /// The workload that this one grows from, while that holds anything.
    fn replaces(&self, id: WorkloadId) -> Option<WorkloadId> {
        let key = self.wl(id).spec.replaces.as_ref().filter(|_| self.settings.gates.elastic)?;
        let old = *self.by_key.get(key)?;
        self.wl(old).hold.is_some().then_some(old)
    }

    /// What a workload holds, for one that replaces it.
    pub fn replaced(&self, old: WorkloadId) -> Replaced {
        let wl = self.wl(old);
        let names = wl.spec.reservation.iter().flat_map(|r| &r.pod_sets).map(|s| s.name.clone());
        let held = wl.hold.iter().flat_map(|h| &h.sets);
        let sets = names.zip(held).map(|(name, held)| ReplacedSet {
            name,
            requests: held.requests.clone(),
            flavors: held.flavors.clone(),
            topology: held.topology.clone(),
        });
        Replaced { sets: sets.collect() }
    }

    /// Flavors, victims and places for an entry; with pins, within the flavors that it has.
    fn work_out(&mut self, entry: &mut Entry, pins: Option<&crate::assign::Pins>) {
        let replaced = entry.replaces.map(|old| self.replaced(old));
        let (mut assignment, targets) = self.nomination(entry.id, entry.queue, replaced.as_ref(), pins);
        self.place_after(entry.id, entry.queue, &mut assignment, &targets, replaced.as_ref());
        entry.assignment = assignment;
        entry.targets = targets;
    }

    fn nomination(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        replaced: Option<&Replaced>,
        pins: Option<&crate::assign::Pins>,
    ) -> (Assignment, Vec<Target>) {
        let how = How { replaced, pins, bookmark: pins.is_none(), ..How::default() };
        let full = self.assign(id, queue, how);
        match full.mode() {
            Mode::Fit | Mode::Deferred => return (full, Vec::new()),
            Mode::Preempt => {
                let targets = self.victims_for(id, queue, &full, replaced);
                if !targets.is_empty() {
                    return (full, targets);
                }
            }
            Mode::NoFit => {}
        }
        let wl = self.wl(id);
        let ranges: Vec<reduce::Range> =
            wl.sets.iter().map(|s| reduce::Range { count: s.count, min: s.min }).collect();
        if self.settings.gates.partial_admission && replaced.is_none() && wl.hold.is_none() {
            let found = reduce::search(&ranges, |counts| {
                let partial = self.assign(id, queue, How { counts: Some(counts), ..how });
                match partial.mode() {
                    Mode::Fit => Some((partial, Vec::new())),
                    Mode::Preempt => {
                        let targets = self.victims_for(id, queue, &partial, None);
                        (!targets.is_empty()).then_some((partial, targets))
                    }
                    _ => None,
                }
            });
            if let Some(found) = found {
                return found;
            }
        }
        (full, Vec::new())
    }

    /// Who has to go so that an assignment can be had.
    pub fn victims_for(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        assignment: &Assignment,
        replaced: Option<&Replaced>,
    ) -> Vec<Target> {
        // Whoever only looks for another node takes none from others.
        if self.wl(id).hold.is_some() {
            return Vec::new();
        }
        let mut copy = assignment.clone();
        let asks = self.place_asks(id, queue, &mut copy, replaced);
        let search = Search {
            id,
            queue,
            need: assignment.need(&self.ids),
            usage: assignment.usage.iter().filter(|(_, a)| *a != 0).copied().collect(),
            asks,
            assignment: Some(&copy),
            replaced,
        };
        search.targets(self)
    }

    /// The places that an entry will have when its victims are gone; without victims those of an empty cluster, to keep them from others.
    fn place_after(
        &mut self,
        id: WorkloadId,
        queue: TreeId,
        assignment: &mut Assignment,
        targets: &[Target],
        replaced: Option<&Replaced>,
    ) {
        let placed = (0..assignment.sets.len()).any(|i| self.is_placed(id, queue, i));
        if assignment.mode() != Mode::Preempt || !placed || self.wl(id).lost_a_node() {
            return;
        }
        let asks = self.place_asks(id, queue, assignment, replaced);
        targets.iter().for_each(|t| self.release(t.id));
        let found = self.find_places(id, assignment, &asks, replaced, targets.is_empty());
        targets.iter().for_each(|t| self.hold(t.id));
        if let Ok(found) = found {
            self.take_places(id, assignment, found);
        }
    }

    /// Whether an entry fits when everybody who was told to go, and its own victims, are gone.
    fn fits_now(&mut self, entry: &Entry, aside: &Aside) -> Fits {
        let gone: BTreeSet<WorkloadId> =
            aside.victims.iter().copied().chain(entry.targets.iter().map(|t| t.id)).collect();
        gone.iter().for_each(|id| self.release(*id));
        let fits = self.has_room(entry);
        gone.iter().for_each(|id| self.hold(*id));
        if fits != Fits::Yes || entry.assignment.mode() != Mode::Fit || aside.victims.is_empty() {
            return fits;
        }
        // It starts at once, while those who were told to go still hold what they have: it has to fit beside them too, where those for whom
        // they go have nothing yet. Kueue does not ask, and hands out more than there is until they are gone.
        self.lift(aside);
        let fits = self.has_room(entry);
        self.lay(aside);
        fits
    }

    /// Whether an entry fits beside everything that is held and set aside.
    fn has_room(&mut self, entry: &Entry) -> Fits {
        let has_quota = |&(pair, amount): &(PairId, i64)| amount <= self.tree.available(entry.queue, pair);
        if !entry.second && !entry.assignment.usage.iter().all(has_quota) {
            Fits::NoQuota
        } else if self.places_fit(entry) {
            Fits::Yes
        } else {
            Fits::NoPlace
        }
    }

    fn places_fit(&mut self, entry: &Entry) -> bool {
        let uses = entry.assignment.places.clone();
        let raws = self.raws(entry.id);
        let mut done = 0;
        // One after the other: two sets may share a node.
        let mut fits = true;
        for used in &uses {
            let room = raws
                .get(used.set)
                .and_then(|raw| Some(self.places(used.flavor)?.room(used.leaf, raw)))
                .unwrap_or(0);
            if room < used.pods {
                fits = false;
                break;
            }
            self.use_places(std::slice::from_ref(used), &raws, 1);
            done += 1;
        }
        self.use_places(&uses[..done], &raws, -1);
        fits
    }

    fn raws(&self, id: WorkloadId) -> Vec<Amounts> {
        self.wl(id).sets.iter().map(|s| s.raw.clone()).collect()
    }

    /// Gives back what was set aside.
    fn lift(&mut self, aside: &Aside) {
        aside.usage.iter().for_each(|(queue, usage)| self.tree.remove(*queue, usage));
        aside.places.iter().for_each(|(uses, raws)| self.use_places(uses, raws, -1));
    }

    /// Takes what was set aside once more, after [`State::lift`].
    fn lay(&mut self, aside: &Aside) {
        aside.usage.iter().for_each(|(queue, usage)| self.tree.add(*queue, usage));
        aside.places.iter().for_each(|(uses, raws)| self.use_places(uses, raws, 1));
    }

    /// Keeps what an entry asks for from others until the cycle is over.
    fn set_aside(&mut self, entry: &Entry, usage: Usage, aside: &mut Aside) {
        if !entry.second {
            self.tree.add(entry.queue, &usage);
            aside.usage.push((entry.queue, usage));
        }
        let raws = self.raws(entry.id);
        let uses = entry.assignment.places.clone();
        self.use_places(&uses, &raws, 1);
        aside.places.push((uses, raws));
    }

    fn process(&mut self, mut entry: Entry, aside: &mut Aside, cycle: &mut Cycle, now: Time) {
        let concurrent = self.settings.gates.concurrent_admission;
        if concurrent && self.sibling(&entry, true).is_some() {
            return self.skip(entry, Waits::BetterVariant, cycle, now);
        }
        let fits = self.refresh(&mut entry, aside, cycle);
        let mode = entry.assignment.mode();
        if entry.second
            && mode != Mode::Fit
            && self.settings.gates.replace_fail_fast
            && self.wl(entry.id).lost_a_node()
        {
            return self.evict_for_nodes(&entry, cycle, now);
        }
        match mode {
            Mode::NoFit => {
                let why = entry.assignment.missing().map_or(Waits::NoVictims, Waits::NoFit);
                return self.go_back(entry, why, Back::NoFit, cycle, now);
            }
            Mode::Preempt if entry.targets.is_empty() => {
                if self.queues[entry.queue].spec.preemption.within_cohort != Reclaim::Any {
                    let usage = self.to_reserve(entry.queue, &entry.assignment);
                    self.set_aside(&entry, usage, aside);
                }
                return self.go_back(entry, Waits::NoVictims, Back::NoVictims, cycle, now);
            }
            Mode::Preempt if self.is_gated(entry.id) => {
                self.wl_mut(entry.id).bookmark = None;
                return self.go_back(entry, Waits::Gated, Back::Gated, cycle, now);
            }
            _ => {}
        }
        let name = self.tree.nodes[entry.queue].name.clone();
        if entry.targets.iter().any(|t| aside.victims.contains(&t.id)) {
            *cycle.skipped.entry(name).or_default() += 1;
            return self.skip(entry, Waits::Overlap, cycle, now);
        }
        if fits != Fits::Yes {
            if mode == Mode::Preempt {
                *cycle.skipped.entry(name).or_default() += 1;
            }
            return self.skip(entry, Waits::NoLongerFits, cycle, now);
        }
        aside.victims.extend(entry.targets.iter().map(|t| t.id));
        match mode {
            Mode::Preempt => {
                let usage = entry.assignment.usage.clone();
                self.set_aside(&entry, usage, aside);
                self.preempt(&entry, cycle, now);
                let n = u32::try_from(entry.targets.len()).unwrap_or(u32::MAX);
                self.wl_mut(entry.id).bookmark = None;
                self.go_back(entry, Waits::Preempting(n), Back::Sticky, cycle, now);
            }
            Mode::Deferred => {
                let usage = entry.assignment.usage.clone();
                self.set_aside(&entry, usage, aside);
                self.skip(entry, Waits::Deferred, cycle, now);
            }
            _ => self.start(entry, aside, cycle, now),
        }
    }

    /// Works an entry out again if what happened since it was nominated asks for that.
    fn refresh(&mut self, entry: &mut Entry, aside: &Aside, cycle: &mut Cycle) -> Fits {
        let gates = self.settings.gates;
        let overlap = entry.targets.iter().any(|t| aside.victims.contains(&t.id));
        if overlap && gates.recompute_overlap {
            let pins = entry.assignment.pins();
            // Those who were told to go are gone: they hold nothing, and cannot be told again.
            aside.victims.iter().for_each(|id| self.leave_queue(*id));
            self.wl_mut(entry.id).bookmark = None;
            self.work_out(entry, Some(&pins));
            aside.victims.iter().for_each(|id| self.join_queue(*id));
            let result = match entry.assignment.mode() {
                Mode::Fit => {
                    entry.assignment.set_mode(Mode::Deferred);
                    Recomputed::Deferred
                }
                Mode::Preempt if !entry.targets.is_empty() => Recomputed::NewTargets,
                _ => Recomputed::NoTargets,
            };
            let name = self.tree.nodes[entry.queue].name.clone();
            *cycle.recomputed.entry((name, result)).or_default() += 1;
            self.wl_mut(entry.id).bookmark = Some(entry.assignment.bookmark.clone());
            return self.fits_now(entry, aside);
        }
        let fits = self.fits_now(entry, aside);
        if fits == Fits::NoPlace && gates.topology && gates.recompute_topology {
            let pins = entry.assignment.pins();
            self.wl_mut(entry.id).bookmark = None;
            self.work_out(entry, Some(&pins));
            self.wl_mut(entry.id).bookmark = Some(entry.assignment.bookmark.clone());
            return self.fits_now(entry, aside);
        }
        fits
    }

    fn leave_queue(&mut self, id: WorkloadId) {
        self.release(id);
        if let Some(queue) = self.wl(id).queue {
            self.queues[queue].members.remove(&id);
        }
    }

    fn join_queue(&mut self, id: WorkloadId) {
        self.hold(id);
        if let Some(queue) = self.wl(id).queue {
            self.queues[queue].members.insert(id);
        }
    }

    /// What to keep from others for an entry that cannot preempt: never more than it may have.
    pub fn to_reserve(&self, queue: TreeId, assignment: &Assignment) -> Usage {
        if assignment.mode() != Mode::Preempt {
            return assignment.usage.clone();
        }
        let keep = |&(pair, amount): &(PairId, i64)| {
            let cell = self.tree.cell(queue, pair);
            let kept = match (assignment.borrows > 0, cell.borrowing) {
                (true, None) => amount,
                (true, Some(limit)) => {
                    amount.min(cell.nominal.saturating_add(limit).saturating_sub(cell.usage))
                }
                (false, _) => amount.min(cell.nominal.saturating_sub(cell.usage)).max(0),
            };
            (pair, kept)
        };
        assignment.usage.iter().map(keep).collect()
    }

    fn is_gated(&self, id: WorkloadId) -> bool {
        let gates = self.settings.gates;
        (gates.concurrent_admission || gates.orchestrated_preemption) && self.wl(id).spec.preemption_gated
    }

    /// Another variant of the same workload that runs, with a better flavor or with a worse.
    fn sibling(&self, entry: &Entry, better: bool) -> Option<WorkloadId> {
        let wl = self.wl(entry.id);
        let parent = wl.spec.variant_of.as_ref()?;
        let own = self.preference(entry.queue, entry.id)?;
        self.queues[entry.queue].members.iter().copied().find(|id| {
            let other = self.wl(*id);
            let runs = other.spec.reservation.as_ref().is_some_and(|r| r.admitted);
            *id != entry.id
                && runs
                && other.spec.evicted.is_none()
                && other.spec.variant_of.as_ref() == Some(parent)
                && self
                    .preference(entry.queue, *id)
                    .is_some_and(|its| if better { its < own } else { its > own })
        })
    }

    /// The place of a variant's flavor among those of the queue.
    fn preference(&self, queue: TreeId, id: WorkloadId) -> Option<usize> {
        let flavor = self.wl(id).spec.allowed_flavors.as_ref()?.first()?;
        let flavors = &self.queues[queue].spec.groups.first()?.flavors;
        flavors.iter().position(|f| f.flavor == *flavor)
    }

    /// Starts an entry that fits.
    fn start(&mut self, entry: Entry, aside: &mut Aside, cycle: &mut Cycle, now: Time) {
        if self.settings.block_until_ready && !entry.second && !self.unready.is_empty() {
            return self.skip(entry, Waits::PodsReady, cycle, now);
        }
        if self.settings.gates.concurrent_admission
            && let Some(worse) = self.sibling(&entry, false)
        {
            let usage = entry.assignment.usage.clone();
            self.set_aside(&entry, usage, aside);
            if !self.may_migrate(&entry) {
                return self.go_back(entry, Waits::NotAcceptable, Back::Next, cycle, now);
            }
            self.mark(worse, "FlavorMigration", now);
            cycle.evicted.push((self.wl(worse).spec.key.clone(), Eviction::FlavorMigration));
            cycle.progress = true;
            self.wl_mut(entry.id).bookmark = None;
            return self.go_back(entry, Waits::Migrating, Back::Sticky, cycle, now);
        }
        self.admit(entry, aside, cycle, now);
    }

    fn may_migrate(&self, entry: &Entry) -> bool {
        let spec = &self.queues[entry.queue].spec;
        let Some(policy) = &spec.concurrent else { return true };
        if policy.retain_first {
            return false;
        }
        let Some(last) = &policy.last_acceptable else { return true };
        let flavors = spec.groups.first().map_or(&[][..], |g| &g.flavors);
        let limit = flavors.iter().position(|f| f.flavor == *last);
        match (self.preference(entry.queue, entry.id), limit) {
            (Some(own), Some(limit)) => own <= limit,
            _ => true,
        }
    }

    fn mark(&mut self, id: WorkloadId, reason: &str, now: Time) {
        self.wl_mut(id).spec.evicted = Some(Marked { reason: reason.into(), at: now });
        self.second.remove(&id);
    }

    fn evict_for_nodes(&mut self, entry: &Entry, cycle: &mut Cycle, now: Time) {
        self.mark(entry.id, "NodeFailures", now);
        let spec = &self.wl(entry.id).spec;
        cycle.evicted.push((spec.key.clone(), Eviction::NodeFailures(spec.unhealthy.clone())));
        cycle.progress = true;
    }

    /// Tells victims to go; those that were told before are not told again.
    fn preempt(&mut self, entry: &Entry, cycle: &mut Cycle, now: Time) {
        let by = self.wl(entry.id).spec.key.clone();
        let own = self.tree.path(entry.queue);
        for target in &entry.targets {
            let wl = self.wl(target.id);
            if wl.spec.evicted.is_some() {
                continue;
            }
            let (key, queue) = (wl.spec.key.clone(), wl.queue.unwrap_or(entry.queue));
            let paths = (own.clone(), self.tree.path(queue));
            self.mark(target.id, "Preempted", now);
            let reason = match target.cause {
                Cause::InQueue => "InClusterQueue",
                Cause::Reclaim => "InCohortReclamation",
                Cause::ReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
                Cause::FairSharing => "InCohortFairSharing",
            };
            self.wl_mut(target.id).spec.preempted = Some(Marked { reason: reason.into(), at: now });
            cycle.preempted.push(Preempted { key, cause: target.cause, by: by.clone(), paths });
            cycle.progress = true;
        }
    }

    /// Takes an entry in: from now on it holds what it was assigned.
    fn admit(&mut self, entry: Entry, aside: &mut Aside, cycle: &mut Cycle, now: Time) {
        let Entry { id, queue, assignment, second, replaces, .. } = entry;
        if let Some(old) = replaces {
            self.release(old);
            self.queues[queue].members.remove(&old);
            self.unready.remove(&old);
            self.second.remove(&old);
            let wl = self.wl_mut(old);
            wl.hold = None;
            wl.spec.finished = true;
            cycle.replaced.push((self.wl(old).spec.key.clone(), self.wl(id).spec.key.clone()));
        }
        let reservation = self.reservation(id, queue, &assignment, now);
        if second {
            // Its pods may still be where they were; nobody else gets these places in this cycle.
            let left = self.wl(id).hold.as_ref().map_or_else(Vec::new, |h| h.places.clone());
            let raws = self.raws(id);
            self.use_places(&left, &raws, 1);
            aside.places.push((left, raws));
            self.release(id);
        }
        let wl = self.workloads[id].take().expect("the entry is of a workload that is here");
        let hold = self.hold_of(&wl.sets, &reservation, queue, now);
        self.workloads[id] = Some(wl);
        let wl = self.wl_mut(id);
        wl.hold = Some(hold);
        wl.queue = Some(queue);
        wl.bookmark = None;
        wl.spec.reservation = Some(reservation.clone());
        wl.spec.unhealthy.clear();
        let key = wl.spec.key.clone();
        self.hold(id);
        self.queues[queue].members.insert(id);
        self.queues[queue].line.clear_sticky(id);
        self.second.remove(&id);
        if !self.wl(id).spec.pods_ready {
            self.unready.insert(id);
        }
        if !second {
            self.charge_entry(id, queue, 1);
        }
        cycle.admitted.push(Admitted { key, reservation, again: second });
        cycle.progress = true;
    }

    /// A local queue pays at once for what gets in.
    fn charge_entry(&mut self, id: WorkloadId, queue: TreeId, times: i64) {
        let Some(sharing) = self.settings.usage_sharing.clone() else { return };
        if !self.queues[queue].spec.by_usage {
            return;
        }
        let wl = self.wl(id);
        let mut asked: BTreeMap<Name, i64> = BTreeMap::new();
        for (resource, amount) in wl.hold.iter().flat_map(|h| &h.sets).flat_map(|s| &s.requests) {
            let name = self.ids.resource_name(*resource);
            // The ledger counts in thousandths.
            let amount = if &**name == "cpu" { *amount } else { amount.saturating_mul(1000) };
            let sum = asked.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount);
        }
        let local = wl.local.clone();
        self.ledger.enter(&local, &asked, &sharing, times);
    }

    fn reservation(&self, id: WorkloadId, queue: TreeId, assignment: &Assignment, now: Time) -> Reservation {
        let wl = self.wl(id);
        let sets: Vec<PodSetReservation> = assignment
            .sets
            .iter()
            .map(|set| PodSetReservation {
                name: set.name.clone(),
                count: set.count,
                flavors: set
                    .flavors
                    .iter()
                    .map(|c| {
                        (self.ids.resource_name(c.resource).clone(), self.ids.flavor_name(c.flavor).clone())
                    })
                    .collect(),
                usage: set
                    .flavors
                    .iter()
                    .map(|c| {
                        let amount = crate::ids::amount_of(&set.requests, c.resource);
                        (self.ids.resource_name(c.resource).clone(), amount)
                    })
                    .collect(),
                topology: set.topology.clone(),
                delayed: set.delayed,
            })
            .collect();
        let given: BTreeSet<&Name> = sets.iter().flat_map(|s| s.flavors.values()).collect();
        let passed = |rule: &crate::spec::CheckRule| {
            let applies = rule.on_flavors.is_empty() || rule.on_flavors.iter().any(|f| given.contains(f));
            !applies || wl.spec.checks.iter().any(|c| c.name == rule.check && c.state == CheckState::Ready)
        };
        let admitted = self.queues[queue].spec.checks.iter().all(passed)
            && wl.spec.checks.iter().all(|c| c.state == CheckState::Ready)
            && sets.iter().all(|s| s.delayed != Some(Delayed::Pending));
        let since = wl.spec.reservation.as_ref().and_then(|r| r.since).unwrap_or(now);
        Reservation {
            cluster_queue: self.tree.nodes[queue].name.clone(),
            pod_sets: sets,
            since: Some(since),
            admitted,
        }
    }

    /// Others were faster: it is tried again, from the first flavor.
    fn skip(&mut self, entry: Entry, why: Waits, cycle: &mut Cycle, now: Time) {
        self.wl_mut(entry.id).bookmark = None;
        self.go_back(entry, why, Back::Next, cycle, now);
    }

    /// Puts a head back: in line, or aside until something changes.
    fn go_back(&mut self, entry: Entry, why: Waits, back: Back, cycle: &mut Cycle, now: Time) {
        let Entry { id, queue, class, second, assignment, .. } = entry;
        let sets = assignment.sets.into_iter().map(|s| (s.name, s.reasons, s.fault)).collect();
        let key = self.wl(id).spec.key.clone();
        if second {
            cycle.waiting.push(Waiting { key, why: Waits::SecondPass, sets });
            return;
        }
        cycle.waiting.push(Waiting { key, why, sets });
        let rank = self.wl(id).rank(id);
        let best_effort = self.queues[queue].spec.strategy == Strategy::BestEffort;
        let untried = self.wl(id).bookmark.iter().flatten().flatten().any(|(_, tried)| *tried >= 0);
        let waits = self.backs_off(id, now);
        let equivalence = self.settings.gates.equivalence;
        let line = &mut self.queues[queue].line;
        match back {
            Back::Sticky if best_effort => line.set_sticky(id, class),
            Back::Sticky => {}
            _ => line.clear_sticky(id),
        }
        let at_once = if best_effort {
            matches!(back, Back::Next | Back::Sticky)
        } else {
            back != Back::WrongNamespace
        };
        if !waits && (at_once || untried) {
            cycle.progress |= untried && !at_once;
            line.push(rank, class);
            return;
        }
        line.park(rank, class);
        cycle.progress = true;
        if equivalence && best_effort && matches!(back, Back::NoFit | Back::NoVictims) {
            line.shut(class);
        }
    }

    /// Takes an admission back that could not be written down, and puts the workload in line again.
    pub fn roll_back(&mut self, key: &Key, now: Time) -> bool {
        let Some(&id) = self.by_key.get(key) else { return false };
        let Some(queue) = self.wl(id).queue.filter(|_| self.wl(id).hold.is_some()) else { return false };
        self.charge_entry(id, queue, -1);
        let mut spec = self.wl(id).spec.clone();
        spec.reservation = None;
        self.put_workload(spec, now);
        true
    }
}
