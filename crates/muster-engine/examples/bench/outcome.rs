//! What a benchmark found, and how it is told to `cargo xtask bench`.

use crate::meter::Cost;
use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub struct Outcome {
    pub figures: Vec<Figure>,
    pub facts: Vec<String>,
    /// What was decided and should not have been. Then the figures mean nothing.
    pub wrong: Vec<String>,
    pub peak_kib: u64,
}

pub struct Figure {
    pub label: &'static str,
    pub cost: Cost,
    pub target: Option<Duration>,
    /// What another system published for the same shape, end to end.
    pub theirs: Option<Duration>,
    /// How many pods were decided about.
    pub pods: Option<u32>,
}

impl Outcome {
    pub fn figure(&mut self, label: &'static str, cost: Cost) -> &mut Figure {
        self.figures.push(Figure { label, cost, target: None, theirs: None, pods: None });
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    pub fn fact(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }

    /// Notes a count that is not what it has to be.
    pub fn expect(&mut self, what: &str, found: usize, expected: usize) {
        if found != expected {
            self.wrong.push(format!("{what}: {found} instead of {expected}"));
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |n: Option<u128>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        for Figure { label, cost, target, theirs, pods } in &self.figures {
            let target = or_dash(target.map(|t| t.as_nanos()));
            let theirs = or_dash(theirs.map(|t| t.as_millis()));
            let pods = or_dash(pods.map(u128::from));
            writeln!(f, "figure\t{label}\t{}\t{}\t{target}\t{theirs}\t{pods}", cost.cpu, cost.wall)?;
        }
        for fact in &self.facts {
            writeln!(f, "fact\t{fact}")?;
        }
        for wrong in &self.wrong {
            writeln!(f, "wrong\t{wrong}")?;
        }
        writeln!(f, "peak\t{}", self.peak_kib)
    }
}
