//! `cargo xtask fuzz`: the parsers that read what clients send, under random input that coverage steers.
//!
//! The targets are in `fuzz/targets`, one file each; what they found interesting before is in `fuzz/seeds`. libFuzzer comes from its crate, and the
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
    build()?;
    if let Some(input) = &args.input {
        let [target] = targets.as_slice() else { bail!("an input is of one target: name it") };
        let status = Command::new(binary(target)).arg(input).status()?;
        anyhow::ensure!(status.success(), "{target} fails on {}", input.display());
        return Ok(());
    }
    let mut waiting: VecDeque<String> = targets.into();
    let mut running: VecDeque<(String, Child)> = VecDeque::new();
    let mut failed = Vec::new();
    let beside = std::thread::available_parallelism().map_or(1, usize::from);
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < beside
            && let Some(target) = waiting.pop_front()
        {
            eprintln!("==> fuzz {target} for {} s", args.seconds);
            let child = start(&target, args.seconds)?;
            running.push_back((target, child));
        }
        if let Some((target, child)) = running.pop_front() {
            let output = child.wait_with_output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            let done = said.lines().rev().find(|line| line.starts_with("Done")).unwrap_or("stopped early");
            eprintln!("==> fuzz {target}: {done}");
            if !output.status.success() {
                let from = said.find("ERROR").or_else(|| said.find("panicked")).unwrap_or(0);
                eprintln!("{}", said.get(from..).unwrap_or_default());
                failed.push(target);
            }
        }
    }
    anyhow::ensure!(failed.is_empty(), "fuzzing found something in {}", failed.join(", "));
    Ok(())
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

fn build() -> anyhow::Result<()> {
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
    let status = cargo(&how)
        .arg("--target-dir")
        .arg(folder())
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()?;
    anyhow::ensure!(
        status.success(),
        "the fuzz targets do not build (they need a C++ compiler: apt-get install g++)"
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

/// Starts a target, whose new inputs go to a folder of its own beside the seeds.
fn start(target: &str, seconds: u32) -> anyhow::Result<Child> {
    let corpus = folder().join("corpus").join(target);
    let failures = folder().join("failures");
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&failures)?;
    Command::new(binary(target))
        .arg(corpus)
        .arg(Path::new("fuzz/seeds").join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={SLOW_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-artifact_prefix={}/{target}-", failures.display()))
        .arg("-print_final_stats=0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{target} cannot be started"))
}
