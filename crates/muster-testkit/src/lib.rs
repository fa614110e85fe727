//! The harness of Muster's end-to-end tests.
//!
//! In: nothing but a Go toolchain (for the real Kubernetes) or the `muster` binary (for the embedded cluster).
//! Out: a [`Cluster`], which is a kubeconfig, a base URL and a token, and the same type for both, so that one test runs
//! on either. [`RealCluster`] and [`EmbeddedCluster`] own the processes behind it; [`Services`] is `muster run` beside them.
//!
//! Invariants: only loopback addresses are opened; every process is started in its own group and ends with its owner,
//! even when the owner is killed; a test waits for a state with [`eventually`], never for a time.

mod cluster;
mod embedded;
mod eventually;
mod measured;
mod processes;
mod programs;
mod real;
mod services;

pub use cluster::{Cluster, Http, Request, Response, WatchEnd};
pub use embedded::{EmbeddedCluster, EmbeddedOptions, muster_binary};
pub use eventually::{Observed, eventually};
pub use measured::{Measured, Processors, memory_of, own_cpu};
pub use programs::{
    ETCD_VERSION, KUBERNETES_VERSION, KWOK_VERSION, Programs, Release, VOLCANO_API_VERSION, VOLCANO_VERSION,
    cache_dir, find_kubectl,
};
pub use real::{Component, RealCluster, RealOptions};
pub use services::Services;

/// What a test does about something that the machine does not have: with `CI=true` it fails, elsewhere it says
/// `skipped: <why>` and passes, so the answer `None` means "return".
///
/// # Errors
/// When `CI=true` and the prerequisite is missing.
pub fn or_skip<T>(prerequisite: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match prerequisite {
        Ok(ready) => Ok(Some(ready)),
        Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
            Err(why.context("a prerequisite of this test is missing, and CI=true makes that a failure"))
        }
        Err(why) => {
            eprintln!("skipped: {why:#}");
            Ok(None)
        }
    }
}
