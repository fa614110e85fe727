//! Chaos in CI: a few seeds, hundreds of steps, on virtual time. A failure prints the seed and how to run it again, and running it again
//! fails again: one seed is one course.

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
                assert!(outcome.counts.bound > 30, "seed {seed} bound {} pods only", outcome.counts.bound);
            }
            Err(error) => panic!("{error:#}"),
        }
    }
}

#[test]
fn bindings_by_the_scheduler() {
    check(&[1, 205], 120, BindMode::Inline);
}

#[test]
fn bindings_by_a_service() {
    check(&[2, 202], 120, BindMode::Service);
}

/// A failure that cannot be had again is not worth much.
#[test]
fn one_seed_is_one_course() {
    let course = |mode| {
        let plan = Plan { seed: 3, steps: 40, mode, talk: false, trace: None };
        run(plan).unwrap_or_else(|error| panic!("{error:#}")).digest
    };
    assert_eq!(course(BindMode::Inline), course(BindMode::Inline));
    let by_service = course(BindMode::Service);
    assert_eq!(by_service, course(BindMode::Service));
    assert_ne!(by_service, course(BindMode::Inline));
}

/// The founding benchmark.
#[test]
fn a_thousand_mixes_of_gangs_of_64() {
    let (tally, wrong) = mixes::run(1, 1000, |_, _| {});
    eprintln!("{tally}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tally.is_good() && tally.mixes == 1000 && tally.of_64 > 2000, "{tally}");
}
