//! The `muster` command. In: arguments. Out: data on stdout, talk on stderr, an exit code.
//!
//! Each command is a file: `up` (and `down`), `demo`, `run`, `install`, `crds`; `get`, `top`, `explain`, `doctor`, `snapshot` on a live cluster
//! (`live` reads it, `view` counts it); `test`, `simulate`, `replay`, `convert` on files. This file only parses, dispatches and words failures.

mod admission;
mod chaos;
mod convert;
mod crds;
mod demo;
mod doctor;
mod explain;
mod get;
mod guard;
mod install;
mod instance;
mod live;
mod replay;
mod reserve;
mod run;
mod services;
mod simulate;
mod snapshot;
mod subject;
mod system;
mod test;
mod top;
mod tuning;
mod unfold;
mod up;
mod view;

use clap::{Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Servers and services live on many small, short-lived values: a third of their time went into the system's allocator.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "muster",
    version,
    about = "One scheduling platform for AI and batch work on Kubernetes",
    after_help = "Start here:\n  muster demo                      a tour, in under a minute\n  muster up --nodes 4 --gpus 8     a cluster with GPU nodes, on this machine\n  muster get gangs -A; muster explain job/NAME; muster doctor      on any cluster\n  muster crds | kubectl apply --server-side -f -     every workload and queue API, on any cluster"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A tour of Muster in this terminal, in under a minute
    Demo(demo::Args),
    /// Start a cluster with simulated nodes in this process, until Ctrl-C
    Up(up::Args),
    /// Stop a cluster that `muster up` runs
    Down(up::DownArgs),
    /// Print the CRDs of every API that Muster speaks
    Crds(crds::Args),
    /// Run Muster's services against the cluster of the kubeconfig
    Run(Box<run::Args>),
    /// Install Muster into the cluster of the kubeconfig
    Install(install::Args),
    /// Take Muster out of the cluster again
    Uninstall(install::UninstallArgs),
    /// Run scenario files: a cluster, some cycles and what must come out
    Test(test::Args),
    /// Say what would be bound, evicted and promised, from manifests or on the live cluster
    Simulate(simulate::Args),
    /// Say why a gang waits and what would help, or where it is placed
    Explain(explain::Args),
    /// List gangs, queues or nodes as Muster sees them
    Get(get::Args),
    /// Show queues and nodes by use, fragmentation, and who waits
    Top(top::Args),
    /// Find what is stuck, wrong or orphaned, and say how to mend it
    Doctor(doctor::Args),
    /// Write what scheduling looks at into a file
    Snapshot(snapshot::Args),
    /// Write a workload of one dialect as one of another
    Convert(convert::Args),
    /// Run a recording of the scheduler again
    Replay(replay::Args),
    /// Hold one GPU for pods that share it; runs in the pods that the binder makes
    ReserveGpu(reserve::Args),
}

/// Exit codes that scripts can rely on. Clap itself ends with 2 when the arguments make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It went as asked.
    Done = 0,
    /// It did not.
    Failed = 1,
    /// What should be started is running already, or what should be stopped is not.
    NotInThatState = 3,
}

/// Services log what they do; commands say themselves what matters, and log warnings only.
fn start_logs(command: &Command) -> anyhow::Result<()> {
    if let Command::Run(args) = command {
        muster_runtime::logs::start(muster_runtime::logs::Logs { json: args.log_json, verbosity: 0 })?;
        return Ok(());
    }
    // The client library reports every refused connection as an error of its own.
    let filter = tracing_subscriber::EnvFilter::try_from_env(muster_runtime::logs::VARIABLE)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,kube_client=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}

/// Many small values keep a little of each huge page in use: a scheduler with 15 MiB in use took 70, and a fifth of its time went into
/// zeroing them. A kernel that does not know the call has no huge pages to give.
fn spare_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn main() -> ExitCode {
    spare_huge_pages();
    let command = Cli::parse().command;
    if let Err(error) = start_logs(&command) {
        eprintln!("error: {error:#}");
        return ExitCode::from(Exit::Failed as u8);
    }
    let outcome = match command {
        Command::Demo(args) => demo::run(args),
        Command::ReserveGpu(args) => reserve::run(args),
        Command::Up(args) => up::up(args),
        Command::Down(args) => up::down(args),
        Command::Crds(args) => crds::print(args),
        Command::Run(args) => run::run(*args),
        Command::Install(args) => install::install(args),
        Command::Uninstall(args) => install::uninstall(args),
        Command::Test(args) => test::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Get(args) => get::run(args),
        Command::Top(args) => top::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Replay(args) => replay::run(args),
    };
    let exit = outcome.unwrap_or_else(|error| {
        // A reader that went away (`muster crds | head`) is no failure worth a word.
        let broken_pipe = error
            .chain()
            .filter_map(|e| e.downcast_ref::<std::io::Error>())
            .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe);
        if !broken_pipe {
            eprintln!("error: {error:#}");
        }
        Exit::Failed
    });
    ExitCode::from(exit as u8)
}
