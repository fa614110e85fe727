//! The clock of the simulation.
//!
//! In: a base instant. Out: `now()`, the base plus what tokio says has passed, and the stamps that go into objects.
//! Must stay true: nothing in this crate reads another clock, so `tokio::time::pause` makes every wait and every
//! timestamp virtual at once.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Maps tokio's clock to calendar time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that reads `base` at this moment of tokio's time.
    pub fn starting_at(base: Timestamp) -> Self {
        Clock { base, start: Instant::now() }
    }

    /// A clock that follows the machine's wall clock as it was when this was called.
    pub fn system() -> Self {
        Clock::starting_at(Timestamp::now())
    }

    pub fn now(&self) -> Timestamp {
        later(self.base, self.start.elapsed())
    }
}

/// `time` plus `by`, held at the end of what a timestamp can say.
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// How long from `from` to `to`; zero when `to` is not later.
pub fn until(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

/// `time` without its fraction of a second, which a Kubernetes `Time` cannot carry.
pub fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The form of a Kubernetes `Time`: whole seconds.
pub fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The form of a Kubernetes `MicroTime`, which must have six digits.
pub fn micro_stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_virtual_time() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::advance(Duration::from_millis(90_500)).await;
        assert_eq!(stamp(clock.now()), "2026-01-01T00:01:30Z");
        assert_eq!(micro_stamp(clock.now()), "2026-01-01T00:01:30.500000Z");
    }

    #[test]
    fn never_overflows() {
        assert_eq!(later(Timestamp::MAX, Duration::MAX), Timestamp::MAX);
        assert_eq!(until(Timestamp::MAX, Timestamp::MIN), Duration::ZERO);
    }
}
