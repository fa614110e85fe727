//! Shared GPUs: parts of one GPU held by several pods.
//!
//! A shared GPU is known by an id that its pods carry. Amounts are thousandths of a MiB, so that a share given as a fraction and one given in
//! memory meet exactly. The first pod that holds a part takes the GPU as a whole from the node's idle ones; when every holder is being
//! released and nobody was promised a part, the GPU counts as one that is being released; a promise on a GPU that nobody holds
//! takes one from those.

use muster_model::Name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedGpu {
    pub id: Name,
    /// Pods that hold a part, the releasing ones among them, and pods that were promised one.
    pub holders: u32,
    pub releasing_holders: u32,
    pub promised: u32,
    pub held: i64,
    pub held_releasing: i64,
    pub held_promised: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Active,
    Releasing,
    Promised,
}

impl SharedGpu {
    pub fn new(id: Name) -> Self {
        Self {
            id,
            holders: 0,
            releasing_holders: 0,
            promised: 0,
            held: 0,
            held_releasing: 0,
            held_promised: 0,
        }
    }

    /// What it takes from the node's idle and adds to its releasing GPUs.
    pub fn takes(&self) -> (i64, i64) {
        if self.holders == 0 {
            return (0, if self.promised > 0 { -1 } else { 0 });
        }
        (-1, i64::from(self.releasing_holders == self.holders && self.promised == 0))
    }

    pub fn change(&mut self, hold: Hold, amount: i64, sign: i64) {
        let step = |n: &mut u32| *n = if sign > 0 { *n + 1 } else { n.saturating_sub(1) };
        match hold {
            Hold::Active => {
                step(&mut self.holders);
                self.held += sign * amount;
            }
            Hold::Releasing => {
                step(&mut self.holders);
                step(&mut self.releasing_holders);
                self.held += sign * amount;
                self.held_releasing += sign * amount;
            }
            Hold::Promised => {
                step(&mut self.promised);
                self.held_promised += sign * amount;
            }
        }
    }

    pub fn is_unused(&self) -> bool {
        self.holders == 0 && self.promised == 0
    }

    pub fn left_now(&self, size: i64) -> i64 {
        size - self.held
    }

    pub fn left_soon(&self, size: i64) -> i64 {
        size - self.held + self.held_releasing - self.held_promised
    }

    /// Its free part is not in the node's count of whole GPUs.
    pub fn counts_apart(&self) -> bool {
        self.takes() != (-1, 1)
    }
}
