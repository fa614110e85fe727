//! Time as an input. In: a base instant. Out: timestamps that advance with tokio's clock.
//!
//! Invariant: nothing else in this crate reads a clock, so a test that pauses tokio's time controls every
//! timestamp, grace period and bookmark interval.

use jiff::Timestamp;
use tokio::time::Instant;

/// A wall clock that moves with tokio's (possibly paused) time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
}

impl Clock {
    /// Starts at the machine's time.
    pub fn wall() -> Clock {
        Clock::starting_at(Timestamp::now())
    }

    /// Starts at a chosen time, for tests and replays.
    pub fn starting_at(base: Timestamp) -> Clock {
        Clock { base, start: Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.base.checked_add(jiff::SignedDuration::from_nanos(elapsed)).unwrap_or(self.base)
    }

    /// The time now as `metav1.Time` prints it: whole seconds, UTC.
    pub fn rfc3339(&self) -> String {
        seconds(self.now())
    }
}

/// A timestamp as `metav1.Time` prints it.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
