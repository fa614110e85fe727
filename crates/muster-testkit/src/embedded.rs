//! The embedded cluster as a child process: `muster up`, as a user starts it.
//!
//! In: the `muster` binary. Out: a [`Cluster`] that answers `/readyz`, whose process ends with the value.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::{Cluster, Request};
use crate::eventually::eventually;
use crate::processes::Processes;
use crate::programs::{Programs, Release};
use crate::real::{ACCOUNT_KEY, CA_CERT, Component, write_private};

/// How the embedded cluster is started.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// How many simulated nodes it has.
    pub nodes: usize,
    /// Further arguments of `muster up`.
    pub args: Vec<String>,
    /// Kubernetes' own programs that run beside it, as its clients. (With the controller manager, `--no-controllers` is among the arguments.)
    pub with: Vec<Component>,
    /// When it ends at the latest.
    pub ttl: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            nodes: 0,
            args: Vec::new(),
            with: Vec::new(),
            ttl: Duration::from_secs(2 * 60 * 60),
        }
    }
}

/// A running `muster up`.
#[derive(Debug)]
pub struct EmbeddedCluster {
    cluster: Cluster,
    processes: Processes,
}

impl std::ops::Deref for EmbeddedCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl EmbeddedCluster {
    /// Starts `muster up` and waits until it is ready.
    ///
    /// # Errors
    /// When there is no binary, or it ends or is not ready in time; the message has the end of its log.
    pub async fn start(options: EmbeddedOptions) -> Result<EmbeddedCluster> {
        let binary = tokio::task::spawn_blocking(muster_binary).await??;
        let mut processes = Processes::new("up", options.ttl)?;
        let kubeconfig = processes.dir().join("kubeconfig");
        let home = processes.dir().to_owned();
        processes.start(
            "muster-up",
            Command::new(binary)
                .args(["up", "--port", "0", "--nodes", &options.nodes.to_string(), "--kubeconfig"])
                .arg(&kubeconfig)
                .args(&options.args)
                // What it remembers of itself goes with the test.
                .env("HOME", home),
        )?;
        let processes = std::cell::RefCell::new(processes);
        let ready = eventually("muster up is ready", Duration::from_secs(60), async || {
            let running = processes.borrow_mut().check();
            match running {
                Err(ended) => Ok(Err(ended)),
                Ok(()) => is_ready(&kubeconfig).await.map(Ok),
            }
        });
        let cluster = ready.await??;
        let mut processes = processes.into_inner();
        if !options.with.is_empty() {
            let programs = tokio::task::spawn_blocking(Programs::ensure).await??;
            let dir = processes.dir().to_owned();
            write_private(&dir.join(CA_CERT), &cluster.authority)?;
            write_private(&dir.join(ACCOUNT_KEY), &rcgen::KeyPair::generate()?.serialize_pem())?;
            for component in &options.with {
                let (name, mut command) = component.command(&programs, Release::default(), &dir, &kubeconfig);
                processes.start(name, &mut command)?;
            }
        }
        Ok(EmbeddedCluster { cluster, processes })
    }

    /// The folder with its log.
    pub fn logs(&self) -> &Path {
        self.processes.dir()
    }

    /// CPU seconds so far of all its processes, and the most memory that they had, in bytes.
    ///
    /// # Errors
    /// When one does not run, or the machine has no `/proc`.
    pub fn cost(&self) -> Result<(f64, f64)> {
        self.processes.cost()
    }
}

async fn is_ready(kubeconfig: &Path) -> Result<Cluster> {
    let cluster = Cluster::from_kubeconfig("embedded", kubeconfig)?;
    let answer = cluster.http().await?.send(&Request::new("GET", "/readyz")).await?;
    anyhow::ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    Ok(cluster)
}

/// The `muster` binary: `$MUSTER_BIN` as it is, else the one of this build's profile, brought up to date by
/// `cargo build -p muster`. (Cargo names another crate's binary to a test only under an unstable flag.)
///
/// # Errors
/// When `$MUSTER_BIN` is not there, or the build fails.
pub fn muster_binary() -> Result<PathBuf> {
    // Once per process: another build may have begun meanwhile, and every test would wait for it.
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|why| anyhow::anyhow!(why))
}

fn build() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("MUSTER_BIN").filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        anyhow::ensure!(named.is_file(), "MUSTER_BIN={}: no such file", named.display());
        return Ok(named);
    }
    let this = std::env::current_exe().context("the path of this test")?;
    // <target>/<profile>/deps/<test>, the same with examples, or <target>/<profile>/<program>.
    let profile_dir = this
        .ancestors()
        .skip(1)
        .find(|dir| dir.file_name().is_some_and(|name| name != "deps" && name != "examples"))
        .context("a test lives in a target folder")?;
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let target = profile_dir.parent().context("a profile folder lies in a target folder")?;
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "-p", "muster", "--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .context("start cargo")?;
    anyhow::ensure!(status.success(), "cargo build -p muster: {status}");
    let binary = profile_dir.join("muster");
    anyhow::ensure!(binary.is_file(), "cargo built no {}", binary.display());
    Ok(binary)
}
