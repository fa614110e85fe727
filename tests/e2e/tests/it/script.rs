//! The kubectl script on either server.

use anyhow::Result;
use muster_e2e::clusters;
use muster_e2e::script::{Shell, has_kubectl, run, script};
use muster_testkit::Cluster;

#[tokio::test]
async fn kubectl_script_real() -> Result<()> {
    match clusters::real().await? {
        Some(real) => check(real).await,
        None => Ok(()),
    }
}

#[tokio::test]
async fn kubectl_script_embedded() -> Result<()> {
    check(clusters::embedded().await?).await
}

async fn check(cluster: &'static Cluster) -> Result<()> {
    if !has_kubectl().await? {
        return Ok(());
    }
    let steps = script()?;
    let failures = tokio::task::spawn_blocking(move || {
        let shell = Shell::new(cluster, "script")?;
        run(&steps, &shell)
    })
    .await??;
    assert!(
        failures.is_empty(),
        "{} steps failed on {}:\n{}",
        failures.len(),
        cluster.name,
        failures.join("\n")
    );
    Ok(())
}
