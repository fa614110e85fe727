//! Faults for tests: a tower layer in front of any API service.
//!
//! In: requests and rules. Out: what the service answers, or what a bad day answers: conflicts, `410 Gone`, `429`,
//! server errors, silence, delay, lost answers, watches that are cut, lose events or say them twice; and a [`Line`] that breaks.
//! Must stay true: the same seed and the same requests in the same order give the same faults; a request that no rule
//! matches passes untouched.
//!
//! ```
//! use muster_sim::faults::{Fault, FaultLayer, Rule};
//! let layer = FaultLayer::new(7, vec![
//!     Rule::on("patch", "pods").chance(200).fault(Fault::Status(409)),
//!     Rule::on("watch", "").after(3).times(1).fault(Fault::CutWatch { after: 5 }),
//! ]);
//! # let _ = layer;
//! ```

mod line;
mod request;
mod service;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use line::{Line, LineService};
pub use request::Target;
pub use service::{FaultBody, FaultService};

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server refuses with this code; 429 and 503 come with `Retry-After: 1`.
    Status(u16),
    /// No answer ever comes.
    Silence,
    /// The answer comes late.
    Delay(Duration),
    /// The request is carried out, but its answer is lost and an error comes instead.
    LostAnswer,
    /// Each event of a watch is left out with this chance in a thousand.
    DropEvents(u16),
    /// Each event of a watch comes twice with this chance in a thousand.
    RepeatEvents(u16),
    /// A watch ends after so many events.
    CutWatch { after: u32 },
    /// A watch says `410 Gone` after so many events.
    ExpireWatch { after: u32 },
    /// A watch says nothing more after so many events, and stays open: a connection that nobody has told that it is dead.
    StallWatch { after: u32 },
}

/// When something goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    verb: String,
    resource: String,
    name: String,
    after: u32,
    times: Option<u32>,
    chance: u16,
    fault: Fault,
}

impl Rule {
    /// A rule for a verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`) and a resource (`pods`,
    /// `pods/status`); an empty text matches all.
    pub fn on(verb: &str, resource: &str) -> Self {
        Rule {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: String::new(),
            after: 0,
            times: None,
            chance: 1000,
            fault: Fault::Status(500),
        }
    }

    /// Only objects of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Only after so many matching requests.
    pub fn after(mut self, n: u32) -> Self {
        self.after = n;
        self
    }

    /// At most so many times.
    pub fn times(mut self, n: u32) -> Self {
        self.times = Some(n);
        self
    }

    /// With this chance in a thousand.
    pub fn chance(mut self, per_thousand: u16) -> Self {
        self.chance = per_thousand;
        self
    }

    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    fn matches(&self, target: &Target) -> bool {
        let fits = |wanted: &str, have: &str| wanted.is_empty() || wanted == have;
        fits(&self.verb, &target.verb)
            && fits(&self.resource, &target.resource)
            && fits(&self.name, &target.name)
    }
}

/// The layer; clones share their counters, so one set of rules holds for all clients that it is put in front of.
#[derive(Debug, Clone)]
pub struct FaultLayer {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    random: Random,
    rules: Vec<(Rule, Counter)>,
    n_rules: u64,
    n_faults: u64,
    calm: bool,
}

#[derive(Debug, Default)]
struct Counter {
    id: RuleId,
    seen: u32,
    done: u32,
}

/// A rule that stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleId(u64);

impl FaultLayer {
    pub fn new(seed: u64, rules: Vec<Rule>) -> Self {
        let rules = rules.into_iter().map(|rule| (rule, Counter::default())).collect();
        let state = State { random: Random(seed), rules, n_rules: 0, n_faults: 0, calm: false };
        FaultLayer { state: Arc::new(Mutex::new(state)) }
    }

    /// One rule more, after those that stand.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.n_rules += 1;
        let id = RuleId(state.n_rules);
        state.rules.push((rule, Counter { id, ..Counter::default() }));
        id
    }

    /// Takes a rule away that was added. Out: how often it struck.
    pub fn remove(&self, id: RuleId) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = state.rules.extract_if(.., |(_, counter)| counter.id == id);
        gone.map(|(_, counter)| u64::from(counter.done)).sum()
    }

    /// Ends all faults; what is under way stays as it is.
    pub fn calm(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calm = true;
    }

    /// From now on these rules hold, and no others; counting starts again.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.rules = rules.into_iter().map(|rule| (rule, Counter::default())).collect();
        state.calm = false;
    }

    /// How many faults there were.
    pub fn n_faults(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).n_faults
    }

    /// The fault for a request: the first rule that matches and is due decides.
    fn decide(&self, target: &Target) -> Option<(Fault, Random)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.calm {
            return None;
        }
        let State { random, rules, n_faults, .. } = &mut *state;
        for (rule, counter) in rules.iter_mut().filter(|(rule, _)| rule.matches(target)) {
            counter.seen = counter.seen.saturating_add(1);
            let due = counter.seen > rule.after && rule.times.is_none_or(|times| counter.done < times);
            if due && random.chance(rule.chance) {
                counter.done = counter.done.saturating_add(1);
                *n_faults += 1;
                return Some((rule.fault.clone(), Random(random.next())));
            }
        }
        None
    }
}

/// A small generator of numbers that look random; the seed is all its state.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `n`; 0 if there is none.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }

    pub(crate) fn chance(&mut self, per_thousand: u16) -> bool {
        per_thousand >= 1000 || self.next() % 1000 < u64::from(per_thousand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(verb: &str, resource: &str, name: &str) -> Target {
        Target { verb: verb.into(), resource: resource.into(), name: name.into() }
    }

    fn faults(layer: &FaultLayer, target: &Target, n: usize) -> String {
        (0..n).map(|_| if layer.decide(target).is_some() { 'x' } else { '.' }).collect()
    }

    #[test]
    fn rules_count() {
        let layer = FaultLayer::new(1, vec![Rule::on("patch", "pods").after(2).times(3)]);
        assert_eq!(faults(&layer, &target("get", "pods", "a"), 3), "...");
        assert_eq!(faults(&layer, &target("patch", "pods", "a"), 8), "..xxx...");
        assert_eq!(layer.n_faults(), 3);
        let layer = FaultLayer::new(1, vec![Rule::on("", "").named("a")]);
        assert_eq!(faults(&layer, &target("get", "pods", "b"), 1), ".");
        assert_eq!(faults(&layer, &target("get", "pods", "a"), 1), "x");
        layer.calm();
        assert_eq!(faults(&layer, &target("get", "pods", "a"), 1), ".");
    }

    #[test]
    fn rules_come_and_go() {
        let layer = FaultLayer::new(1, Vec::new());
        let (pods, nodes) = (layer.add(Rule::on("get", "pods")), layer.add(Rule::on("get", "nodes")));
        assert_eq!(faults(&layer, &target("get", "pods", "a"), 3), "xxx");
        assert_eq!(layer.remove(pods), 3);
        assert_eq!(layer.remove(pods), 0);
        assert_eq!(faults(&layer, &target("get", "pods", "a"), 1), ".");
        assert_eq!(faults(&layer, &target("get", "nodes", "a"), 1), "x");
        assert_eq!(layer.remove(nodes), 1);
    }

    #[test]
    fn a_seed_decides() {
        let run = |seed| {
            faults(&FaultLayer::new(seed, vec![Rule::on("", "").chance(300)]), &target("get", "", ""), 60)
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let n = run(7).matches('x').count();
        assert!((5..35).contains(&n), "{n} of 60");
    }
}
