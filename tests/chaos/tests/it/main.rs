//! Chaos in CI: a few seeds, thousands of steps, on virtual time. A failure prints the seed and how to run it again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

mod whole;

use muster_chaos::mixes;
use muster_chaos::run::{Plan, run};
use muster_scheduler::BindMode;

#[track_caller]
fn check(seeds: &[u64], steps: u64, mode: BindMode) {
    for seed in seeds {
        match run(Plan { seed: *seed, steps, mode, talk: false, trace: None }) {
            Ok(outcome) => {
                eprintln!(
                    "seed {seed}: {} steps, {} pods bound, {:.1} s",
                    outcome.steps,
                    outcome.counts.bound,
                    outcome.took.as_secs_f64()
                );
                assert!(outcome.counts.bound > 50, "seed {seed} bound {} pods only", outcome.counts.bound);
            }
            Err(error) => panic!("{error:#}"),
        }
    }
}

#[test]
#[ignore = "one run in twenty still finds something: a status that lags behind, a GPU too many. Run it by hand until none does"]
fn bindings_by_the_scheduler() {
    check(&[1, 205], 700, BindMode::Inline);
}

#[test]
#[ignore = "one run in twenty still finds something: a status that lags behind, a GPU too many. Run it by hand until none does"]
fn bindings_by_a_service() {
    check(&[2, 202], 700, BindMode::Service);
}

/// The founding benchmark.
#[test]
fn a_thousand_mixes_of_gangs_of_64() {
    let (tally, wrong) = mixes::run(1, 1000, |_, _| {});
    eprintln!("{tally}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tally.is_good() && tally.mixes == 1000 && tally.of_64 > 2000, "{tally}");
}
