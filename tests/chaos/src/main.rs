//! `cargo run -p muster-chaos`: chaos from the command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use muster_chaos::run::{Plan, run};
use muster_chaos::{mixes, soak};
use muster_scheduler::BindMode;

/// Runs a cluster through a seeded bad day and audits what is really bound
#[derive(Parser)]
#[command(
    name = "muster-chaos",
    after_help = "Examples:\n  cargo run -p muster-chaos -- --seed 7 --steps 1000\n  cargo run -p muster-chaos -- --seed 100 --seeds 20 --steps 500\n  cargo run -p muster-chaos -- --seed 7 --steps 500 --bind service --log muster_scheduler=debug\n  cargo run -p muster-chaos -- --mixes 1000\n  cargo run -p muster-chaos -- --wall 3600"
)]
struct Args {
    /// Where random numbers start; the same seed takes the same course
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps per seed
    #[arg(long, default_value_t = 500)]
    steps: u64,
    /// So many seeds, one after the other
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Who makes bindings; by turns if absent
    #[arg(long, value_enum)]
    bind: Option<Bind>,
    /// Instead of chaos: so many mixes of gangs of 64 and others on a cluster too small for all, each placed whole or not at all
    #[arg(long, value_name = "N", conflicts_with = "steps")]
    mixes: Option<u64>,
    /// Instead of virtual time: on the wall clock for so many seconds, telling how much memory is in use
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["steps", "mixes"])]
    wall: Option<u64>,
    /// Where to write everything that was written to the server, for comparing two runs of a seed
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// What the services say, by the rules of RUST_LOG
    #[arg(long)]
    log: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bind {
    /// The scheduler itself
    Inline,
    /// A binder, by bind requests
    Service,
}

impl Bind {
    fn mode(self) -> BindMode {
        match self {
            Bind::Inline => BindMode::Inline,
            Bind::Service => BindMode::Service,
        }
    }
}

fn play_mixes(seed: u64, n: u64) -> ExitCode {
    let begun = Instant::now();
    let mut told = begun;
    let (tally, wrong) = mixes::run(seed, n, |_, so_far| {
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            eprintln!("{so_far}");
        }
    });
    println!("{tally}, in {:.1} s", begun.elapsed().as_secs_f64());
    for what in wrong.iter().take(20) {
        println!("  * {what}");
    }
    if let Some(mix) = wrong.first().and_then(|what| what.split([' ', ':']).nth(1)) {
        println!("again: cargo run -p muster-chaos -- --seed {mix} --mixes 1");
    }
    if tally.is_good() && wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(filter) = &args.log {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    if let Some(n) = args.mixes {
        return play_mixes(args.seed, n);
    }
    if let Some(seconds) = args.wall {
        let mode = args.bind.map_or(BindMode::Inline, Bind::mode);
        return match soak::run(args.seed, mode, Duration::from_secs(seconds)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let mut failed = 0;
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let mode = match args.bind {
            Some(bind) => bind.mode(),
            None if seed % 2 == 0 => BindMode::Service,
            None => BindMode::Inline,
        };
        match run(Plan { seed, steps: args.steps, mode, talk: true, trace: args.trace.clone() }) {
            Ok(outcome) => println!(
                "seed {seed}: {} steps, {:.0} s of virtual time in {:.1} s, {} pods bound, {} gangs fell below their minimum and {} had it \
                 again, course {:016x}",
                outcome.steps,
                outcome.lasted.as_secs_f64(),
                outcome.took.as_secs_f64(),
                outcome.counts.bound,
                outcome.counts.partial,
                outcome.counts.whole,
                outcome.digest,
            ),
            Err(error) => {
                failed += 1;
                println!("{error:#}");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
