//! How fast statuses may be written.
//!
//! In: every change that scheduling makes to pods, and everybody who wants to write a status. Out: a turn.
//! Must stay true: while pods are being placed, statuses take a small part of what the API server can do; afterwards they
//! catch up. Nobody needs a status that is wrong again before it is read.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Writes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub per_second: u32,
    /// While pods change so often as `busy_from` says.
    pub busy_per_second: u32,
    /// Changes of pods per second.
    pub busy_from: u32,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { per_second: 100, busy_per_second: 20, busy_from: 100 }
    }
}

pub struct Pace {
    rates: Rates,
    state: Mutex<State>,
}

struct State {
    second: Instant,
    n_changes: u32,
    n_before: u32,
    last_turn: Option<Instant>,
}

const SECOND: Duration = Duration::from_secs(1);

impl Pace {
    pub fn new(rates: Rates) -> Self {
        let state = State { second: Instant::now(), n_changes: 0, n_before: 0, last_turn: None };
        Pace { rates, state: Mutex::new(state) }
    }

    /// A pod changed.
    pub fn note(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.roll(Instant::now());
        state.n_changes = state.n_changes.saturating_add(1);
    }

    /// Whether pods change so often that statuses should wait where they can.
    pub fn is_busy(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.roll(Instant::now());
        state.is_busy(&self.rates)
    }

    /// Waits for a turn.
    pub async fn turn(&self) {
        loop {
            let Some(at) = self.next_turn(Instant::now()) else { return };
            tokio::time::sleep_until(at).await;
        }
    }

    /// Takes a turn now, or says when to ask again.
    fn next_turn(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.roll(now);
        let rate =
            if state.is_busy(&self.rates) { self.rates.busy_per_second } else { self.rates.per_second };
        let gap = SECOND / rate.max(1);
        match state.last_turn.map(|last| last + gap) {
            Some(at) if at > now => Some(at),
            _ => {
                state.last_turn = Some(now);
                None
            }
        }
    }
}

impl State {
    fn is_busy(&self, rates: &Rates) -> bool {
        self.n_changes.max(self.n_before) >= rates.busy_from
    }

    fn roll(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.second);
        if passed >= SECOND {
            self.n_before = if passed < SECOND * 2 { self.n_changes } else { 0 };
            self.n_changes = 0;
            self.second = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn turns_in(pace: &Pace, span: Duration) -> usize {
        let end = Instant::now() + span;
        let mut n = 0;
        while tokio::time::timeout_at(end, pace.turn()).await.is_ok() && Instant::now() < end {
            n += 1;
        }
        n
    }

    #[tokio::test(start_paused = true)]
    async fn yields_while_pods_change() {
        let pace = Pace::new(Rates { per_second: 100, busy_per_second: 10, busy_from: 50 });
        assert!((99..=100).contains(&turns_in(&pace, SECOND).await));
        for _ in 0..50 {
            pace.note();
        }
        assert!((9..=10).contains(&turns_in(&pace, SECOND).await));
        assert!(turns_in(&pace, SECOND / 2).await <= 5, "the second after counts as busy too");
        tokio::time::advance(SECOND * 2).await;
        assert!(turns_in(&pace, SECOND).await >= 99);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_of_nothing_is_one() {
        let pace = Pace::new(Rates { per_second: 0, busy_per_second: 0, busy_from: 0 });
        assert!((2..=3).contains(&turns_in(&pace, SECOND * 3).await));
    }
}
