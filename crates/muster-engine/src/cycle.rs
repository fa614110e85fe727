//! A cycle: the policy's actions in order, each deciding gang by gang.
//!
//! What an action decides is committed at once and counts for the next. Every gang is placed whole or not at all.

use crate::ids::{GangId, PodId};
use crate::order::{Entry, Lineup};
use crate::place::{Failure, Mode};
use crate::queues::{Trio, plus};
use crate::rights::waits_since;
use crate::solve::Found;
use crate::state::{Extra, Spot, St, State};
use dense::Mark;
use indexmap::IndexMap;
use muster_model::{
    Action, Bind, Conditions, Decisions, Dialect, Evict, GPU, Grace, MigStrategy, Min, Pipeline, Placement,
    Reach, Reason, Span, Time, ZoneUse,
};
use rustc_hash::FxBuildHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Trees that may have nodes of their own.
const TREES: [Dialect; 5] =
    [Dialect::Kai, Dialect::Volcano, Dialect::T9k, Dialect::Koordinator, Dialect::Kubernetes];

type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

/// What a cycle keeps track of besides the state.
#[derive(Default)]
pub struct Ledger {
    pub decisions: Decisions,
    /// Every pod whose place was decided.
    pub changed: Vec<PodId>,
    /// Why gangs were not placed, by gang: of the placement, and of the searches for victims.
    pub failures: Map<GangId, Failure>,
    pub searches: Map<GangId, Vec<Reason>>,
}

/// Gangs that nothing but their names tells apart, as far as placing them goes.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Signature {
    queue: crate::ids::QueueId,
    firm: bool,
    priority: i32,
    rule: Option<(muster_model::Name, Option<muster_model::Name>, Option<muster_model::Name>)>,
    classes: Vec<((crate::ids::ClassId, Option<crate::company::GuestId>), u32)>,
}

impl State {
    /// Brings everything that is kept between cycles up to date.
    pub fn begin_cycle(&mut self) {
        self.forget_the_past();
        self.favoured.clear();
        self.company_made = false;
        if self.queues.refresh() {
            self.standing.dissolve();
        }
        let ranks_changed = self.nodes.refresh_ranks();
        self.topologies.refresh(&self.nodes, ranks_changed);
        self.settle_indexes(ranks_changed);
        self.set_total();
        for gang in self.waiting.iter().collect::<Vec<_>>() {
            self.gangs.rows[gang].sort(&mut self.pods);
        }
        if self.policy.quotas {
            let total = self.total;
            self.queues.set_fair_shares(&total, &self.of_pools, self.policy.usage_weight);
        }
        self.epoch += 1;
    }

    fn set_total(&mut self) {
        let mut total: Trio = [0; 3];
        let pools: Vec<Dialect> = TREES
            .into_iter()
            .filter(|tree| matches!(self.policy.trees.get(tree), Some(Reach::Nodes { .. })))
            .collect();
        let mut of_pools: BTreeMap<Dialect, Trio> = pools.iter().map(|tree| (*tree, [0; 3])).collect();
        let mut memory: (Option<i64>, Option<i64>) = (None, None);
        for id in self.nodes.known() {
            let row = &self.nodes.rows[id];
            let Some(node) = &row.model else { continue };
            if let Some(mib) = self.nodes.gpu_memory(id).filter(|_| self.nodes.has_gpus(id)) {
                memory.0 = Some(memory.0.map_or(mib, |m| m.min(mib)));
                memory.1 = Some(memory.1.map_or(mib, |m| m.max(mib)));
            }
            if !Conditions::usable(node.conditions) {
                continue;
            }
            let mut here: Trio = [0, 1, 2].map(|dim| i128::from(self.nodes.cap(id, dim)) - row.foreign[dim]);
            if node.gpus.mig != MigStrategy::None {
                here[2] += node
                    .allocatable
                    .iter()
                    .map(|(r, n)| i128::from(r.mig_parts().unwrap_or(0) * GPU) * i128::from(n))
                    .sum::<i128>();
            }
            let owner = pools.iter().find(|tree| self.policy.may_use(**tree, &node.labels));
            let sum = owner.and_then(|tree| of_pools.get_mut(tree)).unwrap_or(&mut total);
            *sum = plus(sum, &here);
        }
        self.total = total;
        self.of_pools = of_pools;
        if memory != self.gpu_memory {
            self.recount_demand(memory);
        }
    }

    /// Shares in memory are worth another part of a GPU now: what waiting pods ask for is counted anew.
    fn recount_demand(&mut self, memory: (Option<i64>, Option<i64>)) {
        let asking: Vec<PodId> = self
            .pods
            .iter()
            .filter(|(_, row)| row.gang.is_some() && self.classes.rows[row.class].share.is_some())
            .map(|(id, _)| id)
            .collect();
        for pod in &asking {
            self.lift(*pod);
        }
        self.gpu_memory = memory;
        self.standing.dissolve();
        for pod in asking {
            self.lower(pod);
        }
    }

    pub fn run(&mut self, action: Action, ledger: &mut Ledger) {
        match action {
            Action::Allocate => self.allocate(ledger),
            Action::Consolidate | Action::Reclaim | Action::Preempt => self.take(action, ledger),
            Action::EvictStaleGangs => self.evict_stale_gangs(ledger),
            // Only Volcano's dialect has these.
            Action::Enqueue
            | Action::Backfill
            | Action::GangPreempt
            | Action::GangReclaim
            | Action::Shuffle => {}
        }
    }

    /// Gangs that could be placed, in line, at most so many of each queue.
    fn lineup(&mut self, action: Action) -> Lineup {
        let mut entries: Vec<Entry> = Vec::new();
        for gang in self.waiting.iter() {
            let row = &self.gangs.rows[gang];
            if row.queue.is_some_and(|q| self.queues.is_sound_leaf(q)) && !row.is_volcano() && row.ready() {
                let pods = row.to_place(&self.pods, false);
                if !pods.is_empty() {
                    entries.push(Entry::asking(self, gang, &pods));
                }
            }
        }
        let mut line = Lineup::new(false);
        line.extend(self, entries);
        if let Some(depth) = self.policy.queue_depth.get(&action) {
            line.keep_first(*depth);
        }
        line
    }

    fn allocate(&mut self, ledger: &mut Ledger) {
        let mut line = self.lineup(Action::Allocate);
        // Within this action room only shrinks, so what failed once fails again.
        let mut failed: BTreeMap<Signature, Failure> = BTreeMap::new();
        while let Some(entry) = line.pop(self) {
            let gang = entry.gang;
            let pods = self.gangs.rows[gang].to_place(&self.pods, false);
            if pods.is_empty() {
                continue;
            }
            let signature = self.signature(gang, &pods);
            if let Some(failure) = signature.as_ref().and_then(|s| failed.get(s)) {
                let mut failure = failure.clone();
                if let Failure::NoNode { pod, .. } = &mut failure {
                    *pod = pods[0];
                }
                ledger.failures.insert(gang, failure);
                continue;
            }
            let mark = self.mark();
            match self.place_some_way(gang, &pods) {
                Ok(()) => {
                    self.promise_whole(gang, false);
                    self.commit(mark, Action::Allocate, None, ledger);
                    ledger.failures.swap_remove(&gang);
                    let again = self.gangs.rows[gang].to_place(&self.pods, false);
                    if !again.is_empty() {
                        let entry = Entry::asking(self, gang, &again);
                        line.push(self, entry);
                    }
                }
                Err(failure) => {
                    self.roll_back(mark);
                    if let Some(signature) = signature {
                        failed.insert(signature, failure.clone());
                    }
                    ledger.failures.insert(gang, failure);
                }
            }
        }
    }

    /// Places one gang out of turn, as far as there is room for it.
    pub fn allocate_one(&mut self, gang: GangId, ledger: &mut Ledger) {
        loop {
            self.sort_gang(gang);
            let row = &self.gangs.rows[gang];
            let may =
                row.queue.is_some_and(|q| self.queues.is_sound_leaf(q)) && !row.is_volcano() && row.ready();
            let pods = row.to_place(&self.pods, false);
            if !may || pods.is_empty() {
                return;
            }
            let mark = self.mark();
            if self.place_some_way(gang, &pods).is_err() {
                self.roll_back(mark);
                return;
            }
            self.promise_whole(gang, false);
            self.commit(mark, Action::Allocate, None, ledger);
        }
    }

    /// Places a gang; where it can do without the group that found no room, others of its groups are tried.
    fn place_some_way(&mut self, gang: GangId, pods: &[PodId]) -> Result<(), Failure> {
        let first = match self.place(gang, pods, Mode::Allocate) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let mut failure = first.clone();
        let mut without: Vec<usize> = Vec::new();
        loop {
            let row = &self.gangs.rows[gang];
            let group = match &failure {
                Failure::NoNode { pod, .. } => Some(self.pods.row(*pod).leaf as usize),
                Failure::Known(Reason::NoDomain { group, .. }) => {
                    row.model.as_ref().and_then(|m| m.groups.iter().position(|g| g.name == *group))
                }
                Failure::Known(_) => None,
            };
            let Some(spare) = group.and_then(|g| row.dispensable(g, &without)) else { return Err(first) };
            without.push(spare);
            let others = row.to_place_without(&self.pods, false, &without);
            if others.is_empty() {
                return Err(first);
            }
            match self.place(gang, &others, Mode::Allocate) {
                Ok(()) => return Ok(()),
                Err(next) => failure = next,
            }
        }
    }

    /// What tells gangs apart; `None` if more than this does.
    fn signature(&self, gang: GangId, pods: &[PodId]) -> Option<Signature> {
        let row = &self.gangs.rows[gang];
        let model = row.model.as_ref()?;
        if row.groups.len() != 1 || row.n_active() > 0 {
            return None;
        }
        let mut classes: BTreeMap<_, u32> = BTreeMap::new();
        for pod in pods {
            let p = self.pods.row(*pod);
            // Who needs company may find it later.
            let rules = &self.classes.rows[p.class].shape.pods;
            if rules.need_others() || p.model.nominated.is_some() {
                return None;
            }
            let guest = (!self.company.is_silent(p.guest)).then_some(p.guest);
            *classes.entry((p.class, guest)).or_default() += 1;
        }
        Some(Signature {
            queue: row.queue?,
            firm: !row.preemptible(),
            priority: row.priority(),
            rule: model.groups[0]
                .topology
                .as_ref()
                .map(|t| (t.topology.clone(), t.required.clone(), t.preferred.clone())),
            classes: classes.into_iter().collect(),
        })
    }

    /// A gang that has its minimum only together with promises is promised everything: nothing of it is bound alone.
    /// `all`: what was bound earlier in this cycle too.
    fn promise_whole(&mut self, gang: GangId, all: bool) {
        let row = &self.gangs.rows[gang];
        let lacks = |g: &crate::gangs::Group| {
            let Min::Pods(min) = g.min else { return false };
            g.active() - g.count(St::Pipelined) < min
        };
        let firm = |g: &crate::gangs::Group| g.active() - g.count(St::Pipelined);
        let lacks_in_all = |leaf: usize| row.upwards(leaf).any(|group| !row.has_total(group, &firm));
        let lacking: Vec<usize> = row
            .leaves()
            .filter(|(leaf, g)| g.count(St::Pipelined) > 0 && (lacks(g) || lacks_in_all(*leaf)))
            .map(|(leaf, _)| leaf)
            .collect();
        if lacking.is_empty() {
            return;
        }
        // A gang that is whole without the promises keeps what it has; only the largest group that is not waits for its promises.
        let promised = |p: PodId| self.pods.row(p).spot.st == St::Pipelined;
        let is_broken = |group: &usize| !row.whole_without(*group, &self.pods, &promised);
        let everything = !all || is_broken(&0);
        let broken: Vec<usize> =
            lacking.into_iter().filter_map(|leaf| row.upwards(leaf).take_while(is_broken).last()).collect();
        let waits = |leaf: usize| row.upwards(leaf).any(|group| broken.contains(&group));
        let placed: Vec<PodId> = row
            .pods()
            .filter(|p| {
                let row = self.pods.row(*p);
                row.spot.st == St::Allocated
                    && (all || !row.committed)
                    && (everything || waits(row.leaf as usize))
            })
            .collect();
        for pod in placed {
            let row = self.pods.row(pod);
            let mut spot = Spot { st: St::Pipelined, ..row.spot.clone() };
            // Which GPUs it gets is decided when it gets them.
            spot.extra = spot.extra.map(|e| Arc::new(Extra { gpus: 0, ..Extra::clone(&e) }));
            self.move_pod(pod, spot);
        }
    }

    /// Makes a trial a decision.
    fn commit(&mut self, mark: Mark, action: Action, by: Option<GangId>, ledger: &mut Ledger) {
        let changed = self.changed_since(&mark);
        self.log.commit(mark);
        self.epoch += 1;
        let gangs = self.gangs_of(&changed);
        let taker = by;
        let by = by.map(|g| self.gangs.rows[g].key.clone());
        let mut withdrawn: BTreeSet<GangId> = BTreeSet::new();
        let mut moved: BTreeSet<GangId> = BTreeSet::new();
        for pod in changed {
            let row = self.pods.row(pod);
            let Some(id) = row.gang else { continue };
            let gang = self.gangs.rows[id].key.clone();
            let key = row.model.key.clone();
            let was_there = row.origin.node.is_some();
            // Sent away and back again: what was decided stands.
            if row.decided.as_ref() == Some(&row.spot) {
                continue;
            }
            if row.committed && !was_there {
                // What was decided before is no longer so.
                ledger.decisions.binds.retain(|b| b.pod != key);
                ledger.decisions.pipelined.retain(|p| p.pod != key);
            }
            let decided = match row.spot.st {
                St::Allocated if !was_there => {
                    let placement = self.placement(pod);
                    ledger.decisions.binds.push(Bind { pod: key, gang, action, placement });
                    true
                }
                St::Pipelined => {
                    let placement = self.placement(pod);
                    if was_there {
                        moved.insert(id);
                        let forced = self.forces(action, id);
                        ledger.decisions.evictions.push(Evict {
                            pod: key.clone(),
                            gang: gang.clone(),
                            action,
                            by: by.clone(),
                            moved: true,
                            forced,
                        });
                    }
                    ledger.decisions.pipelined.push(Pipeline { pod: key, gang, action, placement });
                    true
                }
                // A place or a promise of this cycle that someone else needs more.
                St::Pending if row.spot.on_trial => {
                    self.move_pod(pod, Spot::waiting());
                    self.pods.withdraw(pod);
                    withdrawn.insert(id);
                    false
                }
                St::Releasing if row.spot.on_trial => {
                    let forced = self.forces(action, id);
                    ledger.decisions.evictions.push(Evict {
                        pod: key,
                        gang,
                        action,
                        by: by.clone(),
                        moved: false,
                        forced,
                    });
                    let spot = Spot { on_trial: false, ..row.spot.clone() };
                    self.move_pod(pod, spot);
                    true
                }
                _ => false,
            };
            if decided {
                let rules = &self.classes.rows[self.pods.row(pod).class].shape.pods;
                self.company_made |= rules.need_others();
                self.pods.set_committed(pod);
                ledger.changed.push(pod);
            }
        }
        for gang in gangs {
            self.standing.gang_changed(gang);
        }
        // Whoever takes over a promise takes over what was evicted for it.
        let keys: Vec<&muster_model::Key> = withdrawn.iter().map(|g| &self.gangs.rows[*g].key).collect();
        for evict in ledger
            .decisions
            .evictions
            .iter_mut()
            .filter(|e| e.by.as_ref().is_some_and(|by| keys.contains(&by)))
        {
            evict.by.clone_from(&by);
        }
        let Some(taker) = taker else { return };
        if action != Action::Consolidate {
            moved.clear();
        }
        for gang in &withdrawn {
            if let Some(favour) = self.favoured.get_mut(gang) {
                moved.append(&mut favour.moved);
            }
        }
        let favour = self.favoured.entry(taker).or_default();
        favour.cost |= action != Action::Consolidate;
        favour.moved.append(&mut moved);
    }

    pub fn placement(&self, pod: PodId) -> Placement {
        let row = self.pods.row(pod);
        let Some(node) = row.spot.node else { return Placement::default() };
        let mut placement = Placement { node: self.nodes.rows[node].name.clone(), ..Placement::default() };
        let class = &self.classes.rows[row.class];
        if let Some(share) = class.share {
            let charge = self.charge(row.class, self.nodes.gpu_memory(node))[2];
            placement.gpu_portion = Some((charge / i128::from(share.devices.max(1))) as i64);
        }
        if let Some(extra) = &row.spot.extra {
            placement.gpu_groups = extra.gpu_groups.to_vec();
            placement.gpus = (0..64).filter(|i| extra.gpus >> i & 1 == 1).collect();
            placement.zones = extra
                .zones
                .iter()
                .map(|take| ZoneUse {
                    zone: take.zone,
                    amounts: take
                        .amounts
                        .iter()
                        .map(|(dim, n)| (crate::place::resource_of(&self.nodes, *dim as u32), *n))
                        .collect(),
                })
                .collect();
            placement.devices = extra
                .devices
                .iter()
                .filter(|g| !g.shared)
                .map(|g| (g.claim.clone(), g.request.clone(), self.device_name(g.device)))
                .collect();
        }
        placement
    }

    /// Consolidation, reclaim, preemption: gangs that found no room look for victims.
    fn take(&mut self, action: Action, ledger: &mut Ledger) {
        if action == Action::Consolidate && self.policy.max_consolidation_victims == Some(0) {
            return;
        }
        let mut line = self.lineup(action);
        let mut failed: BTreeMap<Signature, (u64, Reason)> = BTreeMap::new();
        let mut left = self.policy.action_search_budget.unwrap_or(u64::MAX);
        // Where others let them wait, gangs that are alike in all else differ in how long they have waited.
        let by_age = action == Action::Reclaim && self.queues.let_wait();
        while let Some(entry) = line.pop(self) {
            let gang = entry.gang;
            let pods = self.gangs.rows[gang].to_place(&self.pods, false);
            if let Some(until) = self.delayed_until(gang) {
                ledger.searches.entry(gang).or_default().push(Reason::PreemptionDelay { until });
                continue;
            }
            let need = self.demand_of(&pods);
            if pods.is_empty() || !self.may_search(action, gang, &pods, &need) {
                continue;
            }
            self.line_up();
            let signature = if by_age { None } else { self.signature(gang, &pods) };
            if let Some((epoch, reason)) = signature.as_ref().and_then(|s| failed.get(s))
                && *epoch == self.epoch
            {
                ledger.searches.entry(gang).or_default().push(reason.clone());
                continue;
            }
            let budget = self.policy.gang_search_budget.unwrap_or(u64::MAX).min(left);
            let mark = self.mark();
            let (found, spent) = self.search(action, gang, budget);
            left = left.saturating_sub(spent);
            let reason = match found {
                Found::Solution => {
                    // Victims that were bound in this cycle may have got some of their places back, and promises for the rest.
                    for gang in self.gangs_of(&self.changed_since(&mark)) {
                        self.promise_whole(gang, true);
                    }
                    self.commit(mark, action, Some(gang), ledger);
                    ledger.failures.swap_remove(&gang);
                    continue;
                }
                Found::Nothing { candidates, tried } => {
                    let until = self.next_turn(gang).filter(|_| action == Action::Reclaim);
                    let delayed = until.map(|until| Reason::PreemptionDelay { until });
                    ledger.searches.entry(gang).or_default().extend(delayed);
                    Reason::NoVictims { action, candidates, tried }
                }
                Found::Unknown { tried } => Reason::SearchEnded { action, tried },
            };
            self.roll_back(mark);
            if let Some(signature) = signature {
                failed.insert(signature, (self.epoch, reason.clone()));
            }
            ledger.searches.entry(gang).or_default().push(reason);
        }
    }

    /// Until when a gang may not cause evictions, if that is still to come.
    pub fn delayed_until(&self, gang: GangId) -> Option<Time> {
        let model = self.gangs.rows[gang].model.as_ref()?;
        let until = waits_since(model) + model.preemption_delay;
        (model.preemption_delay > Span::ZERO && until > self.now).then_some(until)
    }

    /// When a gang may first take from a queue that lets others wait for it, if that is still to come.
    pub fn next_turn(&self, gang: GangId) -> Option<Time> {
        let taker = self.gangs.rows[gang].queue?;
        let need = self.demand_of(&self.gangs.rows[gang].to_place(&self.pods, false));
        let lines = self.standing.victims.iter().filter(|(_, line)| !line.is_empty());
        let victims = lines.map(|(queue, _)| *queue);
        let turns = victims.filter(|victim| self.is_candidate_queue(Action::Reclaim, taker, *victim, &need));
        turns.map(|victim| self.may_take_from(gang, victim)).filter(|turn| *turn > self.now).min()
    }

    /// The first moment after this one at which a delay, a grace or a protection ends: time alone changes nothing before.
    pub fn next_moment(&self, after: Time) -> Time {
        let mut next = Time(i64::MAX);
        let mut note = |moment: Time| {
            if moment > after {
                next = next.min(moment);
            }
        };
        // Delays are of those who wait, and protections matter to nobody else.
        if !self.waiting.is_empty() {
            let queues = || self.queues.rows.values().filter_map(|row| row.model.as_ref());
            let mut protections: Vec<Span> =
                queues().flat_map(|q| [q.preempt_min_runtime, q.reclaim_min_runtime]).flatten().collect();
            protections.extend([self.policy.preempt_min_runtime, self.policy.reclaim_min_runtime]);
            protections.sort_unstable();
            protections.dedup();
            let mut delays: Vec<Span> = queues().filter_map(|queue| queue.reclaim.after).collect();
            delays.sort_unstable();
            delays.dedup();
            for model in self.waiting.iter().filter_map(|gang| self.gangs.rows[gang].model.as_ref()) {
                note(waits_since(model) + model.preemption_delay);
                delays.iter().for_each(|span| note(waits_since(model) + *span));
            }
            for start in self.gangs.rows.values().filter_map(|row| row.model.as_ref()?.last_start) {
                protections.iter().for_each(|span| note(start + *span));
            }
        }
        if self.policy.actions.contains(&Action::EvictStaleGangs) {
            // Whose record is yet to come is taken to have fallen below its minimum just now.
            for model in
                self.gangs.rows.values().filter(|row| self.is_stale(row)).filter_map(|r| r.model.as_ref())
            {
                if let Grace::For(grace) = model.staleness_grace.unwrap_or(self.policy.staleness_grace) {
                    note(model.stale_since.unwrap_or(after) + grace);
                }
            }
        }
        next.min(crate::volcano::moments::next(self, after))
    }

    /// Whether a gang may look for victims by this action at all.
    pub fn may_search(&mut self, action: Action, gang: GangId, pods: &[PodId], need: &Trio) -> bool {
        let row = &self.gangs.rows[gang];
        match action {
            // Moving others frees no quota, and no GPU.
            Action::Consolidate => {
                row.preemptible()
                    && self.over_capacity(gang, pods).is_none()
                    && (need[2] == 0 || self.free()[2] >= need[2] || self.has_shares(pods))
            }
            Action::Reclaim => self.can_reclaim(gang, need),
            Action::Preempt => {
                row.preemptible()
                    || !self.policy.quotas
                    || row.queue.is_some_and(|q| self.queues.over_quota(q, need).is_none())
            }
            _ => false,
        }
    }

    fn has_shares(&self, pods: &[PodId]) -> bool {
        pods.iter().any(|p| self.classes.rows[self.pods.row(*p).class].share.is_some())
    }

    /// Only KAI evicts gangs for having fallen below their minimum.
    fn goes_stale(&self, row: &crate::gangs::Row) -> bool {
        row.queue.is_none_or(|queue| self.queues.rows[queue].tree() == Dialect::Kai)
    }

    /// Whether a gang runs below its minimum, and must not for long.
    fn is_stale(&self, row: &crate::gangs::Row) -> bool {
        let has_active = || row.leaves().any(|(_, g)| g.active() > g.count(St::Pipelined));
        let succeeded = || row.leaves().any(|(_, g)| g.count(St::Succeeded) > 0);
        !row.has_minimum_in_use() && has_active() && !succeeded() && !row.is_volcano() && self.goes_stale(row)
    }

    /// Gangs that have run below their minimum for too long make room.
    fn evict_stale_gangs(&mut self, ledger: &mut Ledger) {
        let mut stale: Vec<GangId> = Vec::new();
        for (id, row) in self.gangs.rows.iter() {
            if row.has_minimum_in_use() {
                if row.stale_on_record {
                    ledger.decisions.recovered.push(row.key.clone());
                }
            } else if self.is_stale(row) {
                stale.push(id);
            }
        }
        ledger.decisions.recovered.sort();
        stale.sort_by(|a, b| self.gangs.rows[*a].key.cmp(&self.gangs.rows[*b].key));
        for gang in stale {
            self.gangs.rows[gang].sort(&mut self.pods);
            let row = &self.gangs.rows[gang];
            let Some(model) = row.model.clone() else { continue };
            if model.stale_since.is_none() {
                ledger.decisions.newly_stale.push(row.key.clone());
            }
            let grace = match model.staleness_grace.unwrap_or(self.policy.staleness_grace) {
                Grace::Forever => continue,
                Grace::For(span) => span,
            };
            if self.now - model.stale_since.unwrap_or(self.now) < grace {
                continue;
            }
            let pods: Vec<PodId> = row.pods().filter(|p| self.is_evictable(*p)).collect();
            let mark = self.mark();
            for pod in pods {
                self.evict_on_trial(pod);
            }
            self.commit(mark, Action::EvictStaleGangs, None, ledger);
        }
        ledger.decisions.newly_stale.sort();
    }
}
