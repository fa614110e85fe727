//! `cargo xtask fuzz`: the parsers that read what clients send, under random input that coverage steers.
//!
//! The targets are in `fuzz/targets`, one file each; what they found interesting before, where it is text, is in `fuzz/seeds`. libFuzzer comes from its crate, and the
//! compiler's coverage pass is there in stable releases, so neither a nightly compiler nor cargo-fuzz is needed. As many targets run beside each other
//! as there are processors. An input that fails is kept in `target/fuzz/failures`, and said; run a target on it by `--input FILE`.

use crate::command::cargo;
use anyhow::{Context, bail};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// One input that takes longer than this is a finding; far above what any takes on a busy machine.
const SLOW_SECONDS: u32 = 20;
const MEMORY_MIB: u32 = 2048;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask fuzz                            every target for a minute\n  cargo xtask fuzz patch cel --seconds 600\n  cargo xtask fuzz patch --input target/fuzz/failures/patch-crash-1234"
)]
pub struct Args {
    /// Which targets; all of them if none is named
    targets: Vec<String>,
    /// How long each of them runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// How many of them at a time [default: as many as there are processors]
    #[arg(long)]
    jobs: Option<usize>,
    /// Run one target on this file only
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let known = known()?;
    if let Some(unknown) = args.targets.iter().find(|target| !known.contains(target)) {
        bail!("there is no target {unknown}: the targets are {}", known.join(", "));
    }
    let targets = if args.targets.is_empty() { known } else { args.targets };
    if let Some(input) = &args.input {
        let [target] = targets.as_slice() else { bail!("an input is of one target: name it") };
        build(&[])?;
        let status = Command::new(binary(target)).arg(input).status()?;
        anyhow::ensure!(status.success(), "{target} fails on {}", input.display());
        return Ok(());
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let beside = args.jobs.unwrap_or(processors).max(1);
    build(&[])?;
    let outcome = play(targets, args.seconds, beside, &[], &mut |line| eprintln!("{line}"))?;
    anyhow::ensure!(outcome.failed.is_empty(), "fuzzing found something in {}", outcome.failed.join(", "));
    Ok(())
}

/// How targets fared.
#[derive(Default)]
pub struct Outcome {
    pub passed: Vec<String>,
    pub failed: Vec<String>,
}

/// Why the suite does without fuzzing, if it does: libFuzzer is in C++.
pub fn missing() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let found = Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => None,
        _ => Some(format!("no C++ compiler ({compiler}), which libFuzzer needs: apt-get install g++")),
    }
}

/// All targets for a minute each, beside other work: one at a time, and whoever else wants the processors has them first. Out: what there is
/// to say, and how they fared.
pub fn beside(seconds: u32) -> std::thread::JoinHandle<anyhow::Result<(Vec<String>, Outcome)>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let kindly = ["nice", "-n", "10"];
        build(&kindly)?;
        let outcome = play(known()?, seconds, 1, &kindly, &mut |line| said.push(line.to_owned()))?;
        Ok((said, outcome))
    })
}

/// Runs targets for so long each, some beside each other.
fn play(
    targets: Vec<String>,
    seconds: u32,
    beside: usize,
    prefix: &[&str],
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Outcome> {
    let mut waiting: VecDeque<String> = targets.into();
    let mut running: VecDeque<(String, Child)> = VecDeque::new();
    let mut outcome = Outcome::default();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < beside
            && let Some(target) = waiting.pop_front()
        {
            say(&format!("==> fuzz {target} for {seconds} s"));
            let child = start(&target, seconds, prefix)?;
            running.push_back((target, child));
        }
        if let Some((target, mut child)) = running.pop_front() {
            let status = child.wait()?;
            let said = std::fs::read(log(&target))?;
            let said = String::from_utf8_lossy(&said);
            let done = said.lines().rev().find(|line| line.starts_with("Done")).unwrap_or("stopped early");
            say(&format!("==> fuzz {target}: {done}"));
            if status.success() {
                outcome.passed.push(target);
            } else {
                let from = said.find("ERROR").or_else(|| said.find("panicked")).unwrap_or(0);
                say(said.get(from..).unwrap_or_default());
                outcome.failed.push(target);
            }
        }
    }
    Ok(outcome)
}

/// The targets there are, by the files in their folder.
fn known() -> anyhow::Result<Vec<String>> {
    let folder = Path::new("fuzz/targets");
    let files = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// `prefix`: a command that cargo is run by.
fn build(prefix: &[&str]) -> anyhow::Result<()> {
    eprintln!("==> the fuzz targets");
    let how = [
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        TRIPLE,
    ];
    let status = prefixed(prefix, cargo(&how))
        .arg("--target-dir")
        .arg(folder())
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()?;
    anyhow::ensure!(
        status.success(),
        "the fuzz targets do not build: the error is above (beside Rust they need a C++ compiler: apt-get install g++)"
    );
    Ok(())
}

/// The machine's own; named, so that build scripts and derives are built without the flags.
#[cfg(target_arch = "aarch64")]
const TRIPLE: &str = "aarch64-unknown-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("fuzz")
}

fn binary(target: &str) -> PathBuf {
    folder().join(TRIPLE).join("release").join(target)
}

fn log(target: &str) -> PathBuf {
    folder().join("logs").join(format!("{target}.log"))
}

/// The same command, run by another.
fn prefixed(prefix: &[&str], command: Command) -> Command {
    let Some((by, arguments)) = prefix.split_first() else { return command };
    let mut whole = Command::new(by);
    whole.args(arguments).arg(command.get_program()).args(command.get_args());
    whole
}

/// Starts a target, whose new inputs go to a folder of its own beside the seeds.
fn start(target: &str, seconds: u32, prefix: &[&str]) -> anyhow::Result<Child> {
    let corpus = folder().join("corpus").join(target);
    let failures = folder().join("failures");
    let log = log(target);
    std::fs::create_dir_all(log.parent().unwrap_or(Path::new(".")))?;
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&failures)?;
    // A target may have no seeds.
    let seeds = Some(Path::new("fuzz/seeds").join(target)).filter(|seeds| seeds.is_dir());
    prefixed(prefix, Command::new(binary(target)))
        .arg(corpus)
        .args(seeds)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={SLOW_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-artifact_prefix={}/{target}-", failures.display()))
        .arg("-print_final_stats=0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // A file, not a pipe: nobody reads while others are waited for, and what is said is long.
        .stderr(std::fs::File::create(&log).with_context(|| format!("{}", log.display()))?)
        .spawn()
        .with_context(|| format!("{target} cannot be started"))
}
