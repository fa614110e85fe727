//! Waiting for a state.
//!
//! In: a probe that is asked again and again. Out: what it saw once the state is there, or an error that says what was
//! waited for and what was there instead. A probe must look at level state, never at an event that may already be over.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// How often a probe is asked. Small beside everything that a cluster does, large beside a loopback request.
const PAUSE: Duration = Duration::from_millis(50);

/// What one look at the state gives: the value, or why it is not there yet.
pub trait Observed<T> {
    /// The value, or a few words about what was seen instead.
    fn observed(self) -> Result<T, String>;
}

impl<T> Observed<T> for Option<T> {
    fn observed(self) -> Result<T, String> {
        self.ok_or_else(|| "not there yet".to_owned())
    }
}

impl<T, E: Display + Debug> Observed<T> for Result<T, E> {
    fn observed(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:#}"))
    }
}

/// Asks `probe` until it answers `Some` or `Ok`, for at most `timeout`.
///
/// # Errors
/// When the time is over; the message has `what` and the last answer.
pub async fn eventually<T, O, F, Fut>(what: &str, timeout: Duration, mut probe: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = O>,
    O: Observed<T>,
{
    let start = Instant::now();
    loop {
        match probe().await.observed() {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= timeout => {
                anyhow::bail!("{what}: not within {} s; last seen: {last}", timeout.as_secs_f32())
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_until_the_state_is_there() {
        let mut asked = 0;
        let got = eventually("the third look", Duration::from_secs(1), || {
            asked += 1;
            let seen = (asked == 3).then_some(asked);
            async move { seen }
        });
        assert_eq!(got.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn says_what_was_there_instead() {
        let probe = || async { Err::<(), _>(anyhow::anyhow!("phase is Pending").context("pod a")) };
        let error = eventually("pod a runs", Duration::from_secs(2), probe).await.unwrap_err();
        assert_eq!(error.to_string(), "pod a runs: not within 2 s; last seen: pod a: phase is Pending");
    }
}
