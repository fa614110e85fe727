//! The time of day.
//!
//! In: a base instant, or the machine's wall clock. Out: `now()` and the stamps that go into objects. Must stay true: nothing in this crate reads another
//! clock, so `tokio::time::pause` makes every wait and every timestamp virtual at once, also of a clock that follows the machine's. How long something
//! lasts is never told by this clock, which may be set, but by tokio's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Maps tokio's clock to calendar time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
    /// Time that nobody made virtual is the machine's.
    follows_wall: bool,
}

impl Clock {
    /// A clock that reads `base` at this moment of tokio's time.
    pub fn starting_at(base: Timestamp) -> Self {
        Clock { base, start: Instant::now(), follows_wall: false }
    }

    /// A clock that goes on from the machine's wall clock as it is when this is called: for whoever lives with a server in the same process, whose clock does
    /// the same.
    pub fn system() -> Self {
        Clock::starting_at(Timestamp::now())
    }

    /// The machine's wall clock: also after it was set, and after the machine slept. For whoever meets others who look at theirs.
    pub fn wall() -> Self {
        Clock { follows_wall: true, ..Clock::system() }
    }

    pub fn now(&self) -> Timestamp {
        if self.follows_wall && is_real() { Timestamp::now() } else { later(self.base, self.start.elapsed()) }
    }
}

/// Whether tokio's time is the machine's. Time that was ever made virtual stands still, or is beside it for good.
fn is_real() -> bool {
    let before = std::time::Instant::now();
    let tokio = Instant::now().into_std();
    (before..=std::time::Instant::now()).contains(&tokio)
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

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_follows_the_wall_is_virtual_too() {
        let clock = Clock::wall();
        let first = clock.now();
        assert_eq!(clock.now(), first, "time stands still");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), later(first, Duration::from_secs(3600)));
        tokio::time::resume();
        assert!(until(first, clock.now()) >= Duration::from_secs(3600), "it never goes back to the wall");
    }

    #[tokio::test]
    async fn the_wall_is_read_anew() {
        // As if the machine had been set a day forward since the clock was made.
        let was = later(Timestamp::now(), Duration::ZERO) - SignedDuration::from_hours(24);
        let clock = Clock { base: was, ..Clock::wall() };
        let off = Timestamp::now().duration_since(clock.now()).unsigned_abs();
        assert!(off < Duration::from_secs(60), "{off:?}");
        assert!(until(Clock::starting_at(was).now(), Timestamp::now()) > Duration::from_secs(80_000));
    }

    #[test]
    fn never_overflows() {
        assert_eq!(later(Timestamp::MAX, Duration::MAX), Timestamp::MAX);
        assert_eq!(until(Timestamp::MAX, Timestamp::MIN), Duration::ZERO);
    }
}
