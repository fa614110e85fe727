//! What is due when. Pure.
//!
//! In: the faults and a seed. Out: the beginnings and ends of their turns, one after the other. Must stay true: the same faults and
//! seed give the same agenda; what happens to one fault does not depend on the others.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Planned, When};
use crate::faults::Random;

/// Something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    pub at: Duration,
    pub act: Act,
    pub fault: usize,
    /// Which turn of the fault, from 0.
    pub turn: u32,
}

/// Ends come before beginnings of the same moment: what is mended then can suffer again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    End,
    Begin,
    /// A turn that chance left out.
    Spare,
}

/// The faults' turns in the order of time.
#[derive(Debug, Clone)]
pub struct Agenda<'a> {
    faults: &'a [Planned],
    seed: u64,
    due: BTreeSet<Due>,
}

impl<'a> Agenda<'a> {
    pub fn new(faults: &'a [Planned], seed: u64) -> Self {
        let mut agenda = Agenda { faults, seed, due: BTreeSet::new() };
        for (fault, planned) in faults.iter().enumerate() {
            agenda.plan(fault, &planned.when, 0);
        }
        agenda
    }

    fn plan(&mut self, fault: usize, when: &When, turn: u32) {
        if when.times.is_some_and(|times| turn >= times) || (turn > 0 && when.every.is_none()) {
            return;
        }
        let name = self.faults.get(fault).map_or("", |planned| &planned.name);
        let mut random = random(self.seed, name, turn);
        let act = if random.chance(when.chance) { Act::Begin } else { Act::Spare };
        let jitter = u64::try_from(when.jitter.as_millis()).unwrap_or(u64::MAX);
        let later = Duration::from_millis(random.below(jitter.saturating_add(1)));
        let at = when.at + when.every.unwrap_or_default().saturating_mul(turn) + later;
        self.due.insert(Due { at, act, fault, turn });
        if let (Act::Begin, Some(lasts)) = (act, when.lasts) {
            self.due.insert(Due { at: at + lasts, act: Act::End, fault, turn });
        }
    }
}

impl Iterator for Agenda<'_> {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let due = self.due.pop_first()?;
        if due.act != Act::End
            && let Some(planned) = self.faults.get(due.fault)
        {
            self.plan(due.fault, &planned.when, due.turn.saturating_add(1));
        }
        Some(due)
    }
}

/// The random numbers of one turn of the fault of this name. Other faults may come and go: its own stay the same.
pub(super) fn random(seed: u64, name: &str, turn: u32) -> Random {
    let start = name.bytes().fold(Random(seed).next(), |seed, byte| Random(seed ^ u64::from(byte)).next());
    Random(Random(start.wrapping_add(u64::from(turn))).next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chaos;

    #[track_caller]
    fn check(seed: u64, faults: &str, n: usize, expected: &str) {
        let chaos = Chaos::parse("c.yaml", &format!("faults:\n{faults}")).unwrap();
        let shown = Agenda::new(&chaos.faults, seed).take(n).map(|due| {
            let act = match due.act {
                Act::Begin => '+',
                Act::End => '-',
                Act::Spare => '.',
            };
            format!("{act}{}@{}", due.fault, due.at.as_secs_f64())
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn turns_come_in_the_order_of_time() {
        let once = "- {at: 30s, for: 2m, node: {state: silent}}";
        check(1, once, 9, "+0@30 -0@150");
        let two = "- {at: 10s, every: 20s, times: 2, for: 20s, server: down}\n- {at: 30s, server: dropsConnections}";
        check(1, two, 9, "+0@10 -0@30 +0@30 +1@30 -0@50");
        check(1, "- {every: 1h, server: dropsConnections}", 3, "+0@0 +0@3600 +0@7200");
    }

    #[test]
    fn chance_and_jitter_follow_the_seed() {
        let often = "- {every: 1m, probability: 0.5, server: dropsConnections}";
        check(1, often, 8, "+0@0 +0@60 .0@120 .0@180 +0@240 +0@300 +0@360 +0@420");
        check(2, often, 8, "+0@0 +0@60 .0@120 .0@180 .0@240 +0@300 +0@360 .0@420");
        let late = "- {name: a, at: 1m, jitter: 30s, server: dropsConnections}";
        check(1, late, 1, "+0@86.878");
        check(2, late, 1, "+0@69.199");
        // Another fault before it changes nothing about it.
        check(2, &format!("- {{at: 0s, server: dropsConnections}}\n{late}"), 2, "+0@0 +1@69.199");
    }
}
