//! The engine's face: changes in, decisions out.

use crate::cycle::Ledger;
use crate::figures::{Figures, Tables};
use crate::state::State;
use muster_model::{Change, Cluster, Decisions, Diagnostic, Key, Policy, Refusal, Time};

pub struct Engine {
    state: State,
    quiet: Option<Quiet>,
}

/// A cycle that changed nothing: until something does, or a moment comes that matters, the next one decides the same.
struct Quiet {
    decisions: Decisions,
    at: Time,
    /// The next moment that matters, once somebody has asked.
    until: Option<Time>,
}

impl Engine {
    pub fn new(policy: Policy) -> Self {
        Self { state: State::new(policy), quiet: None }
    }

    /// An engine that knows this cluster.
    pub fn build(cluster: Cluster, policy: Policy) -> (Self, Vec<Diagnostic>) {
        let mut engine = Self::new(policy);
        let diagnostics = engine.apply(cluster.into_changes());
        (engine, diagnostics)
    }

    /// Takes changes in order.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Vec<Diagnostic> {
        let state = &mut self.state;
        for change in changes {
            self.quiet = None;
            match change {
                Change::PutNode(node) => state.put_node(&node.name.clone(), Some(node)),
                Change::DropNode(name) => state.put_node(&name, None),
                Change::PutPod(pod) => state.put_pod(pod),
                Change::DropPod(key) => state.drop_pod(&key),
                Change::PutGang(gang) => state.put_gang(&gang.key.clone(), Some(gang)),
                Change::DropGang(key) => state.put_gang(&key, None),
                Change::PutQueue(queue) => {
                    let id = state.queues.intern(&queue.name);
                    state.queues.set_model(id, Some(queue));
                }
                Change::DropQueue(name) => {
                    let id = state.queues.intern(&name);
                    state.queues.set_model(id, None);
                }
                Change::PutTopology(topology) => state.topologies.put(topology),
                Change::DropTopology(name) => state.topologies.drop(&name),
                Change::PutDevice(device) => state.put_device(device),
                Change::DropDevice(name) => state.drop_device(&name),
                Change::PutClaim(claim) => state.put_claim(claim),
                Change::DropClaim(key) => state.drop_claim(&key),
                Change::PutBudget(budget) => drop(state.budgets.insert(budget.key.clone(), budget)),
                Change::DropBudget(key) => drop(state.budgets.remove(&key)),
                Change::PutQuota(quota) => drop(state.allowances.insert(quota.key.clone(), quota)),
                Change::DropQuota(key) => drop(state.allowances.remove(&key)),
            }
        }
        Vec::new()
    }

    /// Runs the policy's actions once: KAI's over its gangs, then Volcano's over those of its own, on the same state. What was decided is assumed from then on: bound pods hold their room, evicted pods are releasing
    /// theirs; promises (pipelined pods) are not kept, the next cycle makes them anew.
    pub fn cycle(&mut self, now: Time) -> Decisions {
        if let Some(quiet) = &mut self.quiet {
            let until = *quiet.until.get_or_insert_with(|| self.state.next_moment(quiet.at));
            if (quiet.at..until).contains(&now) {
                return quiet.decisions.clone();
            }
        }
        self.state.now = now;
        self.state.begin_cycle();
        let mut ledger = Ledger::default();
        for action in self.state.policy.actions.clone() {
            self.state.run(action, &mut ledger);
        }
        crate::volcano::run(&mut self.state, &mut ledger);
        ledger.decisions.refusals = self.state.refusals(&ledger);
        self.state.settle(&ledger.changed);
        let Decisions { binds, evictions, .. } = &ledger.decisions;
        let is_quiet = binds.is_empty() && evictions.is_empty();
        self.quiet = is_quiet.then(|| Quiet { decisions: ledger.decisions.clone(), at: now, until: None });
        ledger.decisions
    }

    /// Places one gang of KAI's dialect before it is anybody's turn: for who takes over a place that was held for it. What was decided is assumed from
    /// then on, as after a cycle; only binds come of it.
    pub fn place_first(&mut self, gang: &Key, now: Time) -> Decisions {
        let Some(gang) = self.state.gangs.get(gang) else { return Decisions::default() };
        self.quiet = None;
        self.state.now = now;
        self.state.begin_cycle();
        let mut ledger = Ledger::default();
        self.state.allocate_one(gang, &mut ledger);
        self.state.settle(&ledger.changed);
        Decisions { binds: ledger.decisions.binds, ..Decisions::default() }
    }

    /// The first moment after this one at which a cycle may decide otherwise although nothing has changed: a delay, a grace or a protection ends, a
    /// zone opens or closes. `None`: time alone changes nothing. It walks through all gangs, so ask it once after a cycle.
    pub fn next_moment(&self, now: Time) -> Option<Time> {
        let next = self.state.next_moment(now);
        (next < Time(i64::MAX)).then_some(next)
    }

    /// From now on Volcano's gangs go by this.
    pub fn set_volcano(&mut self, conf: Option<std::sync::Arc<muster_model::volcano::Conf>>) {
        self.quiet = None;
        self.state.policy.volcano = conf;
    }

    /// What Volcano's plugins say to single questions; nothing is decided.
    pub fn ask_volcano(
        &mut self,
        questions: &[crate::volcano::probe::Question],
        now: Time,
    ) -> Vec<crate::volcano::probe::Answer> {
        self.quiet = None;
        self.state.now = now;
        self.state.begin_cycle();
        self.state.ask_volcano(questions)
    }

    /// The cluster in numbers, after a cycle that decided this.
    pub fn figures(&self, decisions: &Decisions) -> Figures {
        self.state.figures(decisions)
    }

    /// How much is kept from cycle to cycle: it follows from the most there ever was at a time, however much there was in all.
    pub fn tables(&self) -> Tables {
        self.state.tables()
    }

    /// Why the gang waits and what would help, in full; `None` if it is not known or has nothing waiting.
    pub fn explain(&mut self, gang: &Key, now: Time) -> Option<Refusal> {
        self.state.now = now;
        self.state.explain(gang)
    }
}
