//! Muster's services as a child process: `muster run` against a cluster that is there already.
//!
//! In: a cluster and arguments. Out: a running process that ends, without a chance to say good-bye, with the value: that is
//! also how a test kills it. Whether it has done anything yet is seen in the cluster, never here.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::embedded::muster_binary;
use crate::processes::Processes;

/// A running `muster run`.
#[derive(Debug)]
pub struct Services {
    processes: Processes,
}

const NAME: &str = "muster-run";

impl Services {
    /// Starts `muster run --kubeconfig <of the cluster>` with further arguments.
    ///
    /// # Errors
    /// When there is no binary or it cannot be started.
    pub async fn start(cluster: &Cluster, args: &[&str]) -> Result<Services> {
        let binary = tokio::task::spawn_blocking(muster_binary).await??;
        let mut processes = Processes::new("run", Duration::from_secs(2 * 60 * 60))?;
        let home = processes.dir().to_owned();
        processes.start(
            NAME,
            Command::new(binary)
                .args(["run", "--kubeconfig"])
                .arg(&cluster.kubeconfig)
                .args(args)
                .env("HOME", home),
        )?;
        Ok(Services { processes })
    }

    /// Fails when the process has ended; the message has its exit status and the end of its log.
    ///
    /// # Errors
    /// See above.
    pub fn check(&mut self) -> Result<()> {
        self.processes.check()
    }

    /// Ends it at once, as `kill -9` does: it lets go of nothing.
    pub fn kill(self) {}

    /// The same, to be followed by [`Services::again`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_for_now(&mut self) -> Result<()> {
        self.processes.kill(NAME)
    }

    /// Starts it once more, as it was started before.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    pub fn again(&mut self) -> Result<()> {
        self.processes.restart(NAME)
    }

    /// Asks it to end, as an orchestrator does, and waits until it has.
    ///
    /// # Errors
    /// When it has not ended after half a minute.
    pub fn stop(mut self) -> Result<()> {
        self.processes.terminate(Duration::from_secs(30))
    }

    /// CPU seconds so far, and the most memory that it had, in bytes.
    ///
    /// # Errors
    /// When it does not run, or the machine has no `/proc`.
    pub fn cost(&self) -> Result<(f64, f64)> {
        self.processes.cost()
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.processes.log_of(NAME)).unwrap_or_default()
    }
}
