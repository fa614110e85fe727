//! Why gangs wait: the binding constraint in numbers, and the smallest change that would help.
//!
//! After a cycle every waiting gang gets its reasons from what the cycle found out ([`State::refusals`]). [`State::explain`] looks at one gang
//! in full: it tries on the spot what would place it (other queues' room, victims, declared ends) and takes every trial back.

use crate::cycle::Ledger;
use crate::ids::{ClassId, GangId, NodeId, PodId};
use crate::nodes::{GPU_DIM, amount_of};
use crate::place::{Failure, Mode, count_soon, resource_of};
use crate::solve::{Clearing, Found};
use crate::state::{St, State};
use indexmap::IndexMap;
use muster_model::{Action, Key, Min, Name, NodeReason, Reason, Refusal, Remedy, Resource, Tally, Time};
use rustc_hash::FxBuildHasher;
use std::collections::BTreeMap;

/// So many classes are counted node by node after a cycle; who waits for the same reason shares the count.
const MOST_TALLIES: usize = 256;
/// Pods that an explanation may move on trial in search of victims.
const TRIALS: u64 = 20_000;
/// Victims are proposed from so many nodes at most; who needs more is not helped by a list.
const MOST_NODES: usize = 256;
/// So many running gangs with a declared end are looked at.
const MOST_ENDS: usize = 4_096;

type Tallies = IndexMap<ClassId, Vec<Tally>, FxBuildHasher>;

impl State {
    /// Everyone who waits after a cycle, and why. Sorted by gang.
    pub fn refusals(&mut self, ledger: &Ledger) -> Vec<Refusal> {
        let mut gangs: Vec<GangId> = self.waiting.iter().collect();
        gangs.extend(ledger.changed.iter().filter_map(|p| {
            let row = self.pods.row(*p);
            (row.spot.st == St::Pipelined && row.origin.node.is_none()).then_some(row.gang)?
        }));
        gangs.sort_unstable();
        gangs.dedup();
        let mut tallies = Tallies::default();
        let mut refusals: Vec<Refusal> = Vec::with_capacity(gangs.len());
        for gang in gangs {
            let mut refusal = self.refusal(gang);
            refusal.reasons = self.standing_reasons(gang);
            if refusal.reasons.is_empty() {
                match ledger.failures.get(&gang) {
                    Some(Failure::Known(reason)) => refusal.reasons.push(reason.clone()),
                    Some(Failure::NoNode { pod, placed }) => {
                        refusal.reasons.push(self.no_node(gang, *pod, *placed, &mut tallies));
                    }
                    None => {}
                }
                refusal.reasons.extend(ledger.searches.get(&gang).into_iter().flatten().cloned());
                if refusal.reasons.is_empty()
                    && let Some((action, depth)) =
                        self.policy.queue_depth.iter().find(|(action, _)| **action == Action::Allocate)
                {
                    refusal.reasons.push(Reason::BeyondQueueDepth { action: *action, depth: *depth as u64 });
                }
            }
            refusal.remedies = plain_remedies(&refusal.reasons);
            refusals.push(refusal);
        }
        refusals.sort_by(|a, b| a.gang.cmp(&b.gang));
        refusals
    }

    fn refusal(&self, gang: GangId) -> Refusal {
        let row = &self.gangs.rows[gang];
        Refusal {
            gang: row.key.clone(),
            queue: row.model.as_ref().map_or_else(|| Name::from(""), |m| m.queue.clone()),
            placed: row.leaves().map(|(_, g)| g.active() - g.count(St::Pipelined)).sum(),
            waiting: row.n_pending + row.leaves().map(|(_, g)| g.count(St::Pipelined)).sum::<u32>(),
            needed: row.n_needed(0),
            reasons: Vec::new(),
            remedies: Vec::new(),
        }
    }

    /// Reasons that no cycle can overcome, and promises.
    fn standing_reasons(&self, gang: GangId) -> Vec<Reason> {
        let row = &self.gangs.rows[gang];
        let Some(model) = &row.model else {
            return vec![Reason::Missing { what: row.key.to_string().into() }];
        };
        let mut reasons = Vec::new();
        let is_volcano = self.volcano_gangs.contains(gang);
        match row.queue {
            Some(queue) if is_volcano && self.queues.rows[queue].is_volcano() => {}
            Some(queue) if self.queues.is_sound_leaf(queue) => {}
            Some(queue) if !self.queues.rows[queue].path.is_empty() => {
                reasons.push(Reason::QueueNotLeaf { queue: model.queue.clone() });
            }
            _ => reasons.push(Reason::QueueMissing { queue: model.queue.clone() }),
        }
        if !row.ready() && !is_volcano {
            for (leaf, g) in row.leaves() {
                let Min::Pods(need) = g.min else { continue };
                let have = g.active() + g.count(St::Pending);
                if have < need {
                    reasons.push(Reason::NotReady { group: self.group_name(gang, leaf), have, need });
                }
            }
            let there = |g: &crate::gangs::Group| g.active() + g.count(St::Pending);
            for (i, g) in row.groups.iter().enumerate() {
                if let Min::Whole { pods: need } = g.min
                    && !row.has_total(i, &there)
                {
                    let have = row.below(i, &there);
                    reasons.push(Reason::NotReady { group: self.group_name(gang, i), have, need });
                }
            }
        }
        let mut missing: Vec<Name> = row
            .pods()
            .filter(|p| self.pods.row(*p).spot.st == St::Pending)
            .flat_map(|p| self.classes.rows[self.pods.row(p).class].shape.missing.iter().cloned())
            .collect();
        missing.sort();
        missing.dedup();
        reasons.extend(missing.into_iter().map(|what| Reason::Missing { what }));
        let promised: u32 = row.leaves().map(|(_, g)| g.count(St::Pipelined)).sum();
        if promised > 0 && reasons.is_empty() {
            reasons.push(Reason::Pipelined { pods: promised });
        }
        reasons
    }

    fn no_node(&mut self, gang: GangId, pod: PodId, placed: u32, tallies: &mut Tallies) -> Reason {
        let (class, leaf) = (self.pods.row(pod).class, self.pods.row(pod).leaf as usize);
        // What neighbours say differs from pod to pod; all else is the same for a class.
        let alike = self.company.is_silent(self.pods.row(pod).guest);
        let tally = match tallies.get(&class).filter(|_| alike) {
            Some(tally) => tally.clone(),
            None if tallies.len() >= MOST_TALLIES => Vec::new(),
            None => {
                let tally = self.tally(pod);
                tallies.insert(class, tally.clone());
                tally
            }
        };
        // Before any of the gang has a place, none can be in the way; and Volcano's plugins have reasons of their own.
        let is_known = placed > 0 && !self.volcano_gangs.contains(gang);
        let tally = tally.into_iter().filter(|t| is_known || t.reason != NodeReason::Taken).collect();
        Reason::NoNode {
            group: self.group_name(gang, leaf),
            placed,
            need: self.gangs.rows[gang].n_needed(0),
            tally,
        }
    }

    /// How many nodes refuse a pod for which reason; the reason of most nodes first.
    fn tally(&self, pod: PodId) -> Vec<Tally> {
        let mut counts: BTreeMap<NodeReason, (u32, i64, Option<NodeId>)> = BTreeMap::new();
        for node in self.nodes.known() {
            let (reason, missing) = self.why_not(pod, node).unwrap_or((NodeReason::Taken, 0));
            let entry = counts.entry(reason).or_insert((0, i64::MAX, None));
            entry.0 += 1;
            let rank = |n: NodeId| self.nodes.rows[n].rank;
            if missing < entry.1 || (missing == entry.1 && entry.2.is_none_or(|n| rank(node) < rank(n))) {
                (entry.1, entry.2) = (missing, Some(node));
            }
        }
        let mut tally: Vec<Tally> = counts
            .into_iter()
            .map(|(reason, (nodes, missing, example))| Tally {
                reason: match reason {
                    NodeReason::Short { resource, .. } => NodeReason::Short { resource, missing },
                    NodeReason::TooBig { resource, .. } => NodeReason::TooBig { resource, missing },
                    other => other,
                },
                nodes,
                example: example.map(|n| self.nodes.rows[n].name.clone()),
            })
            .collect();
        tally.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.reason.cmp(&b.reason)));
        tally
    }

    /// Why a pod cannot be on a node, and how much is missing.
    fn why_not(&self, pod: PodId, node: NodeId) -> Option<(NodeReason, i64)> {
        let class = &self.classes.rows[self.pods.row(pod).class];
        let model = self.nodes.rows[node].model.as_ref()?;
        if let Some(reason) = self.classes.why_not(class.rule, model) {
            let is_elsewhere =
                reason == NodeReason::NodeAffinity && self.is_of_other_pool(pod, &model.labels);
            return Some((if is_elsewhere { NodeReason::OtherPool } else { reason }, 0));
        }
        for &(dim, amount) in &class.need {
            let cap = self.nodes.cap(node, dim as usize);
            if amount > cap {
                let resource = resource_of(&self.nodes, dim);
                return Some((NodeReason::TooBig { resource, missing: 0 }, amount - cap));
            }
        }
        for &(dim, amount) in &class.need {
            let free = self.nodes.coming(node, dim as usize);
            if amount > free {
                let resource = resource_of(&self.nodes, dim);
                return Some((NodeReason::Short { resource, missing: 0 }, amount - free));
            }
        }
        if class.share.is_some_and(|share| self.share_is_refused(node, share)) {
            return Some((NodeReason::GpuShare, 0));
        }
        self.refused(pod, class, node).map(|reason| (reason, 0))
    }

    /// A node that is not for the pod's tree of queues.
    fn is_of_other_pool(&self, pod: PodId, labels: &muster_model::Labels) -> bool {
        let queue = self.pods.row(pod).gang.and_then(|gang| self.gangs.rows[gang].queue);
        let tree = queue.map(|queue| self.queues.rows[queue].tree());
        self.policy.has_pools() && tree.is_some_and(|tree| !self.policy.may_use(tree, labels))
    }

    /// One gang in full.
    pub fn explain(&mut self, key: &Key) -> Option<Refusal> {
        let gang = self.gangs.get(key)?;
        self.begin_cycle();
        self.gangs.rows[gang].sort(&mut self.pods);
        let row = &self.gangs.rows[gang];
        if row.n_pending == 0 && row.leaves().all(|(_, g)| g.count(St::Gated) == 0) {
            return None;
        }
        let mut refusal = self.refusal(gang);
        refusal.reasons = self.standing_reasons(gang);
        let pods = self.gangs.rows[gang].to_place(&self.pods, false);
        if refusal.reasons.is_empty() && self.volcano_gangs.contains(gang) {
            self.explain_by_session(gang, &pods, &mut refusal);
        } else if refusal.reasons.is_empty() && !pods.is_empty() {
            self.explain_placement(gang, &pods, &mut refusal);
        }
        let mut remedies = plain_remedies(&refusal.reasons);
        remedies.append(&mut refusal.remedies);
        refusal.remedies = remedies;
        Some(refusal)
    }

    /// What a session of Volcano's would find out about one of its gangs; nothing is left of the session.
    fn explain_by_session(&mut self, gang: GangId, pods: &[PodId], refusal: &mut Refusal) {
        let mark = self.mark();
        let mut ledger = Ledger::default();
        crate::volcano::run(self, &mut ledger);
        let promised: u32 = self.gangs.rows[gang].leaves().map(|(_, g)| g.count(St::Pipelined)).sum();
        for pod in &ledger.changed {
            self.pods.withdraw(*pod);
        }
        self.roll_back(mark);
        if promised > 0 {
            refusal.reasons.push(Reason::Pipelined { pods: promised });
            return;
        }
        if let Some(Failure::NoNode { pod, placed }) = ledger.failures.get(&gang) {
            let reason = self.no_node(gang, *pod, *placed, &mut Tallies::default());
            refusal.reasons.push(reason);
            if !pods.is_empty() {
                self.settle_rules(pods);
                refusal.remedies.extend(self.more_capacity(pods, &refusal.reasons));
                refusal.remedies.extend(self.when_others_end(gang, pods));
            }
        }
        refusal.reasons.extend(ledger.searches.swap_remove(&gang).into_iter().flatten());
    }

    fn explain_placement(&mut self, gang: GangId, pods: &[PodId], refusal: &mut Refusal) {
        let mark = self.mark();
        let outcome = self.place(gang, pods, Mode::Allocate);
        let promised = pods.iter().filter(|p| self.pods.row(**p).spot.st == St::Pipelined).count();
        self.roll_back(mark);
        let failure = match outcome {
            Ok(()) => {
                if promised > 0 {
                    refusal.reasons.push(Reason::Pipelined { pods: promised as u32 });
                }
                return;
            }
            Err(failure) => failure,
        };
        let by_room = match failure {
            Failure::Known(reason) => {
                let by_room = matches!(reason, Reason::NoDomain { .. });
                refusal.reasons.push(reason);
                by_room
            }
            Failure::NoNode { pod, placed } => {
                let reason = self.no_node(gang, pod, placed, &mut Tallies::default());
                refusal.reasons.push(reason);
                true
            }
        };
        self.explain_searches(gang, pods, refusal);
        if by_room {
            self.settle_rules(pods);
            refusal.remedies.extend(self.more_capacity(pods, &refusal.reasons));
            refusal.remedies.extend(self.victims_that_would_do(gang, pods));
            refusal.remedies.extend(self.when_others_end(gang, pods));
        }
    }

    /// What the actions that take from others would find.
    fn explain_searches(&mut self, gang: GangId, pods: &[PodId], refusal: &mut Refusal) {
        if let Some(until) = self.delayed_until(gang) {
            refusal.reasons.push(Reason::PreemptionDelay { until });
            return;
        }
        let need = self.demand_of(pods);
        self.line_up();
        for action in self.policy.actions.clone() {
            if !matches!(action, Action::Consolidate | Action::Reclaim | Action::Preempt)
                || !self.may_search(action, gang, pods, &need)
            {
                continue;
            }
            let mark = self.mark();
            let (found, _) = self.search(action, gang, TRIALS);
            self.roll_back(mark);
            match found {
                Found::Solution => {}
                Found::Nothing { candidates, tried } => {
                    let until = self.next_turn(gang).filter(|_| action == Action::Reclaim);
                    refusal.reasons.extend(until.map(|until| Reason::PreemptionDelay { until }));
                    refusal.reasons.push(Reason::NoVictims { action, candidates, tried });
                }
                Found::Unknown { tried } => refusal.reasons.push(Reason::SearchEnded { action, tried }),
            }
        }
    }

    /// How much more would be enough, in the resource that is short.
    fn more_capacity(&self, pods: &[PodId], reasons: &[Reason]) -> Option<Remedy> {
        let first = self.pods.row(*pods.first()?).class;
        let class = &self.classes.rows[first];
        let gpus = amount_of(&class.need, GPU_DIM);
        for reason in reasons {
            match reason {
                Reason::NoDomain { best, best_fits, need, .. } => {
                    let pods_short = i64::from(need.saturating_sub(*best_fits));
                    let (resource, amount) = match gpus {
                        Some(amount) => (Resource::Gpu, amount),
                        None => (Resource::Pods, 1),
                    };
                    return (pods_short > 0).then(|| Remedy::MoreCapacity {
                        resource,
                        by: amount.saturating_mul(pods_short),
                        within: best.clone(),
                    });
                }
                Reason::NoNode { tally, .. } => {
                    // The node that lacks the least for one more pod.
                    let one_more = || match gpus {
                        Some(amount) => (Resource::Gpu, amount),
                        None => class.need.first().map_or((Resource::Pods, 1), |(dim, amount)| {
                            (resource_of(&self.nodes, *dim), *amount)
                        }),
                    };
                    let short = tally.iter().find_map(|t| match &t.reason {
                        NodeReason::Short { resource, missing } => {
                            Some((resource.clone(), *missing, t.example.clone()))
                        }
                        _ => None,
                    });
                    let taken = tally.iter().find(|t| t.reason == NodeReason::Taken);
                    let nearest = short.or_else(|| {
                        let (resource, amount) = one_more();
                        Some((resource, amount, taken?.example.clone()))
                    })?;
                    let wanted = pods.iter().filter(|p| self.pods.row(**p).class == first).count() as i64;
                    let allowed = self.classes.allowed(class.rule)?;
                    let fits: i64 = allowed
                        .iter()
                        .map(|n| count_soon(&self.classes, &self.nodes, first, n, wanted))
                        .sum();
                    let short = wanted - fits;
                    if short <= 1 {
                        return Some(Remedy::MoreCapacity {
                            resource: nearest.0,
                            by: nearest.1,
                            within: nearest.2,
                        });
                    }
                    let amount = match (&nearest.0, gpus) {
                        (Resource::Gpu, Some(amount)) => amount,
                        (resource, _) => class.shape.requests.get(resource),
                    };
                    return Some(Remedy::MoreCapacity {
                        resource: nearest.0,
                        by: amount.saturating_mul(short),
                        within: None,
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Which gangs would have to go, whoever may decide that: those of as few nodes as possible, where the fewest gangs are.
    fn victims_that_would_do(&mut self, gang: GangId, pods: &[PodId]) -> Option<Remedy> {
        let class = self.pods.row(*pods.first()?).class;
        let rule = self.classes.rows[class].rule;
        let mut here: Vec<GangId> = Vec::new();
        let mut nodes: Vec<(usize, u32, NodeId)> = Vec::new();
        for node in self.classes.allowed(rule)?.iter() {
            here.clear();
            here.extend(self.could_leave(gang, node));
            here.sort_unstable();
            here.dedup();
            if !here.is_empty() {
                nodes.push((here.len(), self.nodes.rows[node].rank, node));
            }
        }
        nodes.sort_unstable();
        let leaving = |state: &Self, n: usize| -> (Vec<GangId>, Vec<PodId>) {
            let mut gangs: Vec<GangId> =
                nodes[..n].iter().flat_map(|(_, _, node)| state.could_leave(gang, *node)).collect();
            gangs.sort_unstable();
            gangs.dedup();
            let pods = gangs.iter().flat_map(|g| state.gangs.rows[*g].pods());
            let pods = pods.filter(|p| state.is_evictable(*p)).collect();
            (gangs, pods)
        };
        let most = nodes.len().min(MOST_NODES);
        let mut clearing = Clearing::new(self, pods);
        clearing.free(self, leaving(self, most).1.into_iter());
        if !clearing.has_room(self, gang) {
            return None;
        }
        let would_do = |state: &mut Self, n: usize| -> Option<Vec<GangId>> {
            let (gangs, leaving) = leaving(state, n);
            let mark = state.mark();
            for pod in leaving {
                state.evict_on_trial(pod);
            }
            let fits = state.place(gang, pods, Mode::PromiseOnly).is_ok();
            state.roll_back(mark);
            fits.then_some(gangs)
        };
        // Doubling, then bisecting: more leaving only makes more room.
        let mut n = 1;
        let mut found = loop {
            if n > most {
                return None;
            }
            match would_do(self, n) {
                Some(gangs) => break gangs,
                None if n == most => return None,
                None => n = (2 * n).min(most),
            }
        };
        let (mut lo, mut hi) = (n / 2, n);
        while hi - lo > 1 {
            let mid = lo.midpoint(hi);
            match would_do(self, mid) {
                Some(gangs) => (hi, found) = (mid, gangs),
                None => lo = mid,
            }
        }
        let mut gangs: Vec<Key> = found.into_iter().map(|g| self.gangs.rows[g].key.clone()).collect();
        gangs.sort();
        Some(Remedy::Evict { gangs })
    }

    /// The gangs on a node that could be let go for another one; some more than once.
    fn could_leave(&self, taker: GangId, node: NodeId) -> impl Iterator<Item = GangId> {
        let pods = self.nodes.rows[node].pods.iter().filter(|p| self.is_evictable(**p));
        let gangs = pods.filter_map(|p| self.pods.row(*p).gang);
        gangs.filter(move |g| *g != taker && self.gangs.rows[*g].preemptible())
    }

    /// The first moment at which enough running gangs have ended by their own declaration.
    fn when_others_end(&mut self, gang: GangId, pods: &[PodId]) -> Option<Remedy> {
        let mut ends: Vec<(Time, GangId)> = self
            .gangs
            .rows
            .iter()
            .filter(|(id, row)| *id != gang && row.n_active() > 0)
            .filter_map(|(id, row)| Some((row.model.as_ref()?.declared_end?, id)))
            .filter(|(end, _)| *end > self.now)
            .collect();
        ends.sort_unstable();
        ends.truncate(MOST_ENDS);
        let leaving = |state: &Self, n: usize| -> Vec<PodId> {
            let pods = ends[..n].iter().flat_map(|(_, g)| state.gangs.rows[*g].pods());
            pods.filter(|p| state.is_evictable(*p)).collect()
        };
        let works = |state: &mut Self, n: usize| {
            let leaving = leaving(state, n);
            let mark = state.mark();
            for pod in leaving {
                state.evict_on_trial(pod);
            }
            let fits = state.place(gang, pods, Mode::PromiseOnly).is_ok();
            state.roll_back(mark);
            fits
        };
        if ends.is_empty() {
            return None;
        }
        let mut clearing = Clearing::new(self, pods);
        clearing.free(self, leaving(self, ends.len()).into_iter());
        if !clearing.has_room(self, gang) || !works(self, ends.len()) {
            return None;
        }
        // More endings only make more room.
        let (mut lo, mut hi) = (0, ends.len());
        while hi - lo > 1 {
            let mid = lo.midpoint(hi);
            if works(self, mid) {
                hi = mid;
            } else {
                lo = mid;
            }
        }
        let (until, last) = ends[hi - 1];
        Some(Remedy::Wait { until, gang: self.gangs.rows[last].key.clone() })
    }
}

/// What the reasons themselves say.
fn plain_remedies(reasons: &[Reason]) -> Vec<Remedy> {
    reasons
        .iter()
        .filter_map(|reason| match reason {
            Reason::OverLimit { queue, resource, used, asked, limit } => Some(Remedy::RaiseLimit {
                queue: queue.clone(),
                resource: resource.clone(),
                by: used + asked - limit,
            }),
            Reason::OverShare { queue, resource, used, asked, share } => Some(Remedy::RaiseQuota {
                queue: queue.clone(),
                resource: resource.clone(),
                by: used + asked - share,
            }),
            Reason::OverQuota { queue, resource, used, asked, quota } => Some(Remedy::RaiseQuota {
                queue: queue.clone(),
                resource: resource.clone(),
                by: used + asked - quota,
            }),
            Reason::NotReady { group, have, need } => {
                Some(Remedy::MorePods { group: group.clone(), by: need - have })
            }
            Reason::QueueMissing { queue } => Some(Remedy::Create { what: format!("queue {queue}").into() }),
            Reason::Missing { what } => Some(Remedy::Create { what: what.clone() }),
            Reason::TopologyUnknown { topology, level: None } => {
                Some(Remedy::Create { what: format!("topology {topology}").into() })
            }
            _ => None,
        })
        .collect()
}
