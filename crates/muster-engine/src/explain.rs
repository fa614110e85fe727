//! Why gangs wait: the binding constraint in numbers.

use crate::cycle::Ledger;
use crate::state::State;
use muster_model::{Key, Refusal};

impl State {
    pub fn refusals(&mut self, _ledger: &Ledger) -> Vec<Refusal> {
        Vec::new()
    }

    pub fn explain(&mut self, _gang: &Key) -> Option<Refusal> {
        None
    }
}
