//! `muster up --chaos FILE`: a cluster on a bad day of one's own making.
//!
//! In: a plan (`muster_sim::chaos`). Out: the plan carried out once the cluster is ready, and a line about everything that is done, on
//! stderr or as JSON on stdout. Must stay true: a plan that cannot be carried out is refused before anything starts.

use crate::services::{self, Wanted};
use crate::up::through;
use muster_apiserver::ApiServer;
use muster_runtime::{Api, Clock, lease};
use muster_sim::Chaos;
use muster_sim::chaos::{Gates, Told};
use std::io::Write;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A plan that a cluster is about to go through.
pub struct Plan {
    file: PathBuf,
    chaos: Chaos,
    pub seed: u64,
    pub gates: Gates,
}

impl Plan {
    pub fn read(file: &Path, no_services: bool) -> anyhow::Result<Plan> {
        let chaos = Chaos::read(file)?;
        if no_services && let Some(fault) = chaos.needs_services() {
            anyhow::bail!(
                "{}: {fault} is about Muster's services, and there are none\nhint: leave --no-services out, or the fault",
                file.display()
            );
        }
        // Short enough to be typed again.
        let any = || u64::from(uuid::Uuid::new_v4().as_fields().0 % 1_000_000);
        let seed = chaos.seed.unwrap_or_else(any);
        Ok(Plan { file: file.to_owned(), chaos, seed, gates: Gates::new(seed) })
    }

    /// Says what is going to happen.
    pub fn announce(&self) {
        let again =
            if self.chaos.seed.is_some() { "" } else { "; write it into the file to have the same again" };
        eprintln!("\nchaos        {} from now on, seed {}{again}", self.file.display(), self.seed);
        for line in self.chaos.describe() {
            eprintln!("  {line}");
        }
    }

    /// Carries the plan out as soon as the cluster is ready, and mends what is broken when it is cancelled.
    pub fn start(
        &self,
        client: &kube::Client,
        talk: bool,
        ready: CancellationToken,
        cancel: CancellationToken,
    ) -> JoinHandle<()> {
        let (chaos, seed, gates) = (self.chaos.clone(), self.seed, self.gates.clone());
        let api = Api::new(client.clone(), "muster-chaos");
        tokio::spawn(async move {
            if cancel.run_until_cancelled(ready.cancelled()).await.is_some() {
                muster_sim::chaos::run(&chaos, seed, api, gates, |told| say(told, talk), cancel).await;
            }
        })
    }
}

fn say(told: &Told, talk: bool) {
    if talk {
        eprintln!("chaos        {told}");
    } else {
        // Whoever started the cluster may have read the first line and gone.
        let _ = writeln!(std::io::stdout(), "{}", serde_json::json!({"chaos": told}));
    }
}

/// Muster's services, killed and started again as the plan wants it. A successor waits for the leases of the dead, as it would in any
/// cluster.
pub async fn mortal(
    gates: Gates,
    server: ApiServer,
    mut wanted: Wanted,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let run = |n_kills| {
        if n_kills > 0 {
            wanted.identity = lease::identity();
        }
        services::run(through(&gates.services, &server), Clock::system(), wanted.clone(), cancel.clone())
    };
    gates.mortal(&cancel, run).await.unwrap_or(Ok(()))
}
