//! Programs that chores run. In: a command. Out: that it succeeded, or what it was and how it ended.

use anyhow::{Context, Result, ensure};
use std::process::Command;

/// The cargo that runs this chore.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Runs a command to its end.
pub fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
