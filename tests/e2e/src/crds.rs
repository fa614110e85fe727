//! Muster's CRDs on a cluster, once per cluster and test process.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use muster_testkit::{Cluster, muster_binary};
use tokio::sync::OnceCell;

use crate::script::Shell;

static REAL: OnceCell<Result<(), String>> = OnceCell::const_new();
static EMBEDDED: OnceCell<Result<(), String>> = OnceCell::const_new();

/// Applies `muster crds` as a user does, `muster crds | kubectl apply --server-side -f -`, and waits until all are established.
/// `$MUSTER_E2E_CRDS` names a folder or file of CRDs to use instead, to compare with upstream's.
///
/// # Errors
/// When there is no binary, or a CRD is refused.
pub async fn install(cluster: &'static Cluster) -> Result<()> {
    let once = if cluster.name == "real" { &REAL } else { &EMBEDDED };
    let done =
        once.get_or_init(async || apply(cluster, &[]).await.map_err(|error| format!("{error:#}"))).await;
    done.clone().map_err(|why| anyhow::anyhow!("CRDs on {}: {why}", cluster.name))
}

/// The same for what `muster crds` prints with these arguments, every time it is called.
///
/// # Errors
/// When there is no binary, or a CRD is refused.
pub async fn apply(cluster: &Cluster, args: &[&str]) -> Result<()> {
    let (cluster, args) = (cluster.clone(), args.iter().map(|arg| (*arg).to_owned()).collect());
    tokio::task::spawn_blocking(move || apply_here(&cluster, args)).await?
}

fn apply_here(cluster: &Cluster, args: Vec<String>) -> Result<()> {
    let shell = Shell::new(cluster, "crds")?;
    let said = match std::env::var_os("MUSTER_E2E_CRDS").map(PathBuf::from) {
        Some(other) => shell.run(&format!("kubectl apply --server-side -R -f '{}'", other.display()), "")?,
        None => {
            let printed =
                Command::new(muster_binary()?).arg("crds").args(args).output().context("muster crds")?;
            anyhow::ensure!(
                printed.status.success(),
                "muster crds: {}",
                String::from_utf8_lossy(&printed.stderr)
            );
            shell.run("kubectl apply --server-side -f -", &String::from_utf8_lossy(&printed.stdout))?
        }
    };
    anyhow::ensure!(said.exit == 0, "kubectl apply: {}", said.err);
    let said = shell.run("kubectl wait --for=condition=Established crd --all --timeout=60s", "")?;
    anyhow::ensure!(said.exit == 0, "kubectl wait: {}{}", said.out, said.err);
    Ok(())
}
