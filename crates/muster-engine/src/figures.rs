//! The cluster in numbers, for those who watch over it: GPUs in use, how scattered the free ones are, what queues deserve and who waits in them.
//!
//! In: the state after a cycle and what was decided. Out: sums. Nothing here decides anything.

use crate::nodes::GPU_DIM;
use crate::state::State;
use muster_model::{Decisions, Name, Resource, Time};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// GPUs of nodes that can take pods, in thousandths.
    pub gpus: i128,
    /// Of these, what nobody holds.
    pub free_gpus: i128,
    /// Of the free ones, those on nodes where somebody holds others.
    pub free_in_pieces: i128,
    pub queues: BTreeMap<Name, QueueFigures>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// What people call it.
    pub display: Option<Name>,
    /// Thousandths of cores, bytes, thousandths of GPUs.
    pub fair_share: [i128; 3],
    /// What it used of the cluster in the accounting window, where somebody keeps account: millionths of cores, memory and GPUs.
    pub usage: [Option<i64>; 3],
    /// Gangs that have pods waiting.
    pub waiting: u32,
    /// When the oldest of them was created.
    pub oldest: Option<Time>,
}

impl State {
    pub fn figures(&self, decisions: &Decisions) -> Figures {
        let mut figures = Figures::default();
        for id in self.nodes.known() {
            if self.nodes.rows[id].model.as_ref().is_none_or(|node| !node.conditions.usable()) {
                continue;
            }
            let (all, left) = (self.nodes.cap(id, GPU_DIM), self.nodes.gpus_left(id).max(0));
            figures.gpus += i128::from(all);
            figures.free_gpus += i128::from(left);
            if left < all {
                figures.free_in_pieces += i128::from(left);
            }
        }
        for (_, row) in self.queues.rows.iter() {
            let Some(model) = &row.model else { continue };
            let figures = figures.queues.entry(row.name.clone()).or_default();
            figures.display = model.display.clone();
            figures.fair_share = row.fair;
            figures.usage =
                [Resource::Cpu, Resource::Memory, Resource::Gpu].map(|r| model.usage.get(&r).copied());
        }
        for refusal in &decisions.refusals {
            let gang = self.gangs.get(&refusal.gang).and_then(|id| self.gangs.rows[id].model.as_ref());
            let Some(gang) = gang else { continue };
            let queue = figures.queues.entry(gang.queue.clone()).or_default();
            queue.waiting += 1;
            queue.oldest = Some(queue.oldest.map_or(gang.created, |oldest| oldest.min(gang.created)));
        }
        figures
    }
}

/// How many rows there are in the tables that an engine keeps between cycles, free ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    pub gangs: usize,
    pub pods: usize,
    pub nodes: usize,
    /// Pods that ask for the same thing, what that says about nodes, and pods that are alike to others.
    pub classes: usize,
    pub rules: usize,
    pub guests: usize,
    pub claims: usize,
}
