//! `cargo xtask test`: everything that must hold before a change lands, in one command; CI runs the same.
//!
//! Steps: formatting, lints, all tests, and beside them every fuzz target for a minute; CRD coverage where upstream's CRDs are at hand. The
//! tests' own output is passed through; the last line is the sum over all of them, a fuzz target counting as a test.

use crate::command::cargo;
use crate::fuzz;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test\n  cargo xtask test --quick     without lints and without the suite on real clusters"
)]
pub struct Args {
    /// Only formatting and the tests that need no cluster
    #[arg(long)]
    quick: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    step("formatting", cargo(&["fmt", "--all", "--check"]))?;
    if !args.quick {
        step("lints", cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
        // The suite drives the binary as a user would.
        step("the muster binary", cargo(&["build", "--quiet", "--package", "muster"]))?;
    }
    // Many tests wait for something; whatever is left of the processors goes to fuzzing.
    let missing = fuzz::missing();
    let fuzzing = (!args.quick && missing.is_none()).then(|| fuzz::beside(FUZZ_SECONDS));
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    if args.quick {
        tests.args(["--exclude", "muster-e2e"]);
    }
    // What passing tests print is shown, so that nobody overlooks what was skipped.
    tests.args(["--", "--show-output"]);
    let (ok, mut sum) = count(tests)?;
    if !args.quick {
        take_in(fuzzing, missing, &mut sum);
    }
    let coverage = Path::new("../shared/crds");
    let covered = if coverage.is_dir() {
        step(
            "CRD coverage",
            cargo(&["run", "--quiet", "--package", "xtask", "--", "crd-coverage", "../shared/crds"]),
        )
    } else {
        eprintln!("==> CRD coverage: skipped, no {}", coverage.display());
        Ok(())
    };
    if !sum.failures.is_empty() {
        // Again, where it is found: the output above is long.
        println!("==> what failed");
        for line in &sum.failures {
            println!("{line}");
        }
    }
    let passed = sum.passed.saturating_sub(sum.said_skipped);
    println!("{passed} passed, {} failed, {} skipped", sum.failed, sum.skipped);
    covered?;
    if !ok || sum.failed > 0 {
        bail!("some tests failed");
    }
    Ok(())
}

/// How long each fuzz target runs.
const FUZZ_SECONDS: u32 = 60;

type Fuzzing = std::thread::JoinHandle<anyhow::Result<(Vec<String>, fuzz::Outcome)>>;

/// Waits for the fuzz targets and adds up how they fared.
fn take_in(fuzzing: Option<Fuzzing>, missing: Option<String>, sum: &mut Sum) {
    eprintln!("==> fuzz targets");
    let mut fail = |why: String| {
        println!("{why}");
        sum.failed += 1;
        sum.failures.push(why);
    };
    let Some(fuzzing) = fuzzing else {
        let why = format!("fuzz targets: {}", missing.unwrap_or_default());
        if std::env::var("CI").is_ok_and(|ci| ci == "true") {
            fail(why);
        } else {
            println!("skipped: {why}");
            sum.skipped += 1;
        }
        return;
    };
    match fuzzing.join() {
        Ok(Ok((said, outcome))) => {
            for line in &said {
                println!("{line}");
            }
            sum.passed += outcome.passed.len() as u64;
            sum.failed += outcome.failed.len() as u64;
            if !outcome.failed.is_empty() {
                // What is said of them is short.
                sum.failures.extend(said);
            }
        }
        Ok(Err(error)) => fail(format!("fuzz targets: {error:#}")),
        Err(_) => fail("fuzz targets: the thread that runs them broke down".into()),
    }
}

fn step(what: &str, mut command: Command) -> anyhow::Result<()> {
    eprintln!("==> {what}");
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{what}: failed");
    }
    Ok(())
}

#[derive(Default)]
struct Sum {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Those of the skipped that cargo counts as passed.
    said_skipped: u64,
    /// What the failed tests said, the first lines of it.
    failures: Vec<String>,
}

/// How a test says that it lacked something.
const SKIPPED: &str = "skipped: ";

/// Enough to see what went wrong, few enough to be read.
const MOST_FAILURE_LINES: usize = 200;

/// Runs the tests, passing on what they print, and adds up what they report. A test that prints `skipped:` counts as
/// passed for cargo; it is told apart here. Of what passing tests print, only that is passed on: a panic that a test
/// provokes on purpose would hide the one that nobody wanted.
fn count(mut command: Command) -> anyhow::Result<(bool, Sum)> {
    eprintln!("==> tests");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {command:?}"))?;
    let mut sum = Sum::default();
    let output = child.stdout.take().context("the tests' output was piped")?;
    let mut in_failures = false;
    let mut in_successes = false;
    for line in BufReader::new(output).lines() {
        let line = line?;
        let is_result = line.starts_with("test result: ");
        in_successes = (in_successes || line == "successes:") && line != "failures:" && !is_result;
        if !in_successes || line.starts_with(SKIPPED) {
            println!("{line}");
        }
        in_failures = (in_failures || line == "failures:") && !is_result;
        // Frames of a backtrace say less than what they take.
        let is_frame = line.trim_start().starts_with("at ")
            || line.trim_start().split_once(": ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        if in_failures && !is_frame && sum.failures.len() < MOST_FAILURE_LINES {
            sum.failures.push(line.clone());
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| -> u64 {
                result
                    .split([';', '.'])
                    .filter_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
                    .next()
                    .unwrap_or(0)
            };
            sum.passed += number("passed");
            sum.failed += number("failed");
            sum.skipped += number("ignored");
        } else if line.starts_with(SKIPPED) {
            sum.skipped += 1;
            sum.said_skipped += 1;
        }
    }
    Ok((child.wait()?.success(), sum))
}
