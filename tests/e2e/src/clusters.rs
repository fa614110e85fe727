//! The clusters of this test process: one real, one embedded, each started by the first test that asks.
//!
//! They are never dropped, because statics are not; the guard of their processes ends them when this process ends.

use anyhow::Result;
use muster_testkit::{Cluster, EmbeddedCluster, EmbeddedOptions, RealCluster, RealOptions, or_skip};
use tokio::sync::OnceCell;

/// How many nodes either cluster has. They are named `node-0` and so on.
pub const NODES: usize = 4;

static REAL: OnceCell<Result<RealCluster, String>> = OnceCell::const_new();
static EMBEDDED: OnceCell<Result<EmbeddedCluster, String>> = OnceCell::const_new();

/// The real cluster, or `None` after saying why the test is skipped.
///
/// # Errors
/// With `CI=true`, when it cannot be started.
pub async fn real() -> Result<Option<&'static Cluster>> {
    let options = RealOptions { nodes: NODES, ..RealOptions::default() };
    // One text for all tests: an error cannot be handed out twice.
    let started =
        REAL.get_or_init(async || RealCluster::start(options).await.map_err(|e| format!("{e:#}"))).await;
    match started {
        Ok(cluster) => Ok(Some(cluster)),
        Err(why) => or_skip(Err(anyhow::anyhow!("no real cluster: {why}"))),
    }
}

/// The embedded cluster. It needs nothing that a machine which builds this workspace lacks, so it is never skipped.
///
/// # Errors
/// When it cannot be started.
pub async fn embedded() -> Result<&'static Cluster> {
    // The CRDs are a part of what is tested: like a user of Kubernetes, the tests apply them.
    let args = vec!["--no-crds".to_owned()];
    let options = EmbeddedOptions { nodes: NODES, args, ..EmbeddedOptions::default() };
    let started = EMBEDDED
        .get_or_init(async || EmbeddedCluster::start(options).await.map_err(|e| format!("{e:#}")))
        .await;
    match started {
        Ok(cluster) => Ok(cluster),
        Err(why) => Err(anyhow::anyhow!("no embedded cluster: {why}")),
    }
}
