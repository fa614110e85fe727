//! `cargo xtask kube`: a real Kubernetes control plane on the loopback, for the end-to-end suite and for trying things.
//!
//! `up` starts this program a second time as `serve`, in the background, which owns the processes. The state file in the
//! cache says where it listens; `serve` ends when that file is gone, when its time is over, or when a process of it ends.
//! So nothing is ever ended by a process id that may by then belong to somebody else.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use muster_testkit::{
    Cluster, Component, KUBERNETES_VERSION, Programs, RealCluster, RealOptions, Request, cache_dir,
};
use serde_json::{Value, json};

/// Build, start and stop a real Kubernetes control plane on this machine
#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask kube build                       build the pinned programs into the cache
  cargo xtask kube up --nodes 4                start everything, with four fake nodes
  cargo xtask kube up --with kcm --ttl 20m     only etcd, kube-apiserver and the controller manager
  eval \"$(cargo xtask kube env)\"               point kubectl at it
  cargo xtask kube down")]
pub struct Args {
    #[command(subcommand)]
    command: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Build etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok and Volcano's scheduler (needs Go)
    Build,
    /// Start the control plane in the background and print the path of its kubeconfig
    Up(Up),
    /// End it
    Down,
    /// Print the shell line that points kubectl at it
    Env,
    /// Own the processes of `up`
    #[command(hide = true)]
    Serve(Up),
}

#[derive(Parser, Clone)]
struct Up {
    /// What runs beside etcd and kube-apiserver
    #[arg(long, value_delimiter = ',', default_value = "kcm,scheduler,kwok")]
    with: Vec<With>,
    /// How many fake nodes to make
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// Where kube-apiserver listens on the loopback; 0 takes a free port
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// When it ends by itself: 90s, 20m, 2h
    #[arg(long, default_value = "2h", value_parser = parse_ttl)]
    ttl: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
enum With {
    Kcm,
    Scheduler,
    Kwok,
    /// Nothing
    None,
}

/// Runs one step.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Step::Build => {
            let programs = Programs::ensure()?;
            println!("{}", programs.dir().display());
            println!("{}", Programs::ensure_volcano()?.dir().display());
            Ok(())
        }
        Step::Up(up) => block_on(start(&up)),
        Step::Down => block_on(stop()),
        Step::Env => block_on(env()),
        Step::Serve(up) => block_on(serve(&up)),
    }
}

async fn start(up: &Up) -> Result<()> {
    if let Some(kubeconfig) = running().await {
        eprintln!("kube: already running");
        println!("{}", kubeconfig.display());
        return Ok(());
    }
    Programs::ensure()?;
    let state = state_file()?;
    let _ = std::fs::remove_file(&state);
    let log_file = state.with_extension("log");
    let log = std::fs::File::create(&log_file).with_context(|| format!("create {}", log_file.display()))?;
    let with: Vec<_> =
        up.with.iter().filter_map(|w| Some(w.to_possible_value()?.get_name().to_owned())).collect();
    let mut serving = Command::new(std::env::current_exe()?)
        .args(["kube", "serve", "--with", &with.join(",")])
        .args(["--nodes", &up.nodes.to_string(), "--port", &up.port.to_string()])
        .args(["--ttl", &format!("{}s", up.ttl.as_secs())])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("start the owner of the processes")?;
    eprintln!("kube: starting Kubernetes {KUBERNETES_VERSION}");
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        if let Some(kubeconfig) = running().await {
            println!("{}", kubeconfig.display());
            return Ok(());
        }
        if let Some(status) = serving.try_wait()? {
            let log = std::fs::read_to_string(&log_file).unwrap_or_default();
            anyhow::bail!("it ended with {status}:\n{log}");
        }
        anyhow::ensure!(Instant::now() < deadline, "not ready within 180 s; see {}", log_file.display());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn serve(up: &Up) -> Result<()> {
    let component = |with: &With| match with {
        With::Kcm => Some(Component::ControllerManager),
        With::Scheduler => Some(Component::Scheduler),
        With::Kwok => Some(Component::Kwok),
        With::None => None,
    };
    let with = up.with.iter().filter_map(component).collect();
    let end = Instant::now() + up.ttl;
    // The guard of the processes waits a little longer, so that it only acts when this program could not.
    let ttl = up.ttl + Duration::from_secs(60);
    let mut cluster = RealCluster::start(RealOptions {
        with,
        nodes: up.nodes,
        port: up.port,
        ttl,
        ..RealOptions::default()
    })
    .await?;
    let state = state_file()?;
    let said = json!({
        "kubeconfig": cluster.kubeconfig, "url": cluster.url, "logs": cluster.logs(), "pid": std::process::id(),
    });
    std::fs::write(&state, serde_json::to_string_pretty(&said)?)?;
    while Instant::now() < end && read_state(&state).as_ref() == Some(&said) {
        cluster.check()?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    if read_state(&state).as_ref() == Some(&said) {
        std::fs::remove_file(&state)?;
    }
    Ok(())
}

async fn stop() -> Result<()> {
    let state = state_file()?;
    let Some(said) = read_state(&state) else {
        eprintln!("kube: not running");
        return Ok(());
    };
    std::fs::remove_file(&state)?;
    let logs = said["logs"].as_str().map(PathBuf::from).context("the state file names the folder")?;
    // The folder goes last, after the processes.
    let deadline = Instant::now() + Duration::from_secs(30);
    while logs.exists() {
        anyhow::ensure!(Instant::now() < deadline, "{} is still there after 30 s", logs.display());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!("kube: ended");
    Ok(())
}

async fn env() -> Result<()> {
    let kubeconfig = running().await.context("not running: start it with `cargo xtask kube up`")?;
    println!("export KUBECONFIG={}", kubeconfig.display());
    Ok(())
}

/// The kubeconfig of the control plane that the state file names, if it answers.
async fn running() -> Option<PathBuf> {
    let said = read_state(&state_file().ok()?)?;
    let kubeconfig = PathBuf::from(said["kubeconfig"].as_str()?);
    let http = Cluster::from_kubeconfig("real", &kubeconfig).ok()?.http().await.ok()?;
    let answer = http.send(&Request::new("GET", "/readyz")).await.ok()?;
    (answer.status == 200).then_some(kubeconfig)
}

fn state_file() -> Result<PathBuf> {
    let dir = cache_dir()?;
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir.join("kube-running.json"))
}

fn read_state(file: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

fn parse_ttl(text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        other => anyhow::bail!("unknown unit {other:?}: use s, m or h"),
    };
    let number: u64 = number.parse().context("a duration begins with a whole number")?;
    Ok(Duration::from_secs(number.checked_mul(seconds).context("too long")?))
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(parse_ttl(text).ok().map(|d| d.as_secs()), expected, "{text:?}");
    }

    #[test]
    fn reads_durations() {
        check("90s", Some(90));
        check("90", Some(90));
        check("20m", Some(1200));
        check("2h", Some(7200));
        check("", None);
        check("h", None);
        check("2 days", None);
        check("18446744073709551615h", None);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
