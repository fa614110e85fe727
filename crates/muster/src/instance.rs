//! What is known of a running `muster up`: a small file beside its kubeconfig. In: a port. Out: who listens there.
//!
//! Invariant: the file is only a hint; whether the cluster lives is always asked of the cluster itself.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The port that `muster up` takes when none is named.
pub const DEFAULT_PORT: u16 = 16443;

/// A running cluster, as the file describes it. Stored, so it carries a version.
#[derive(Debug, Serialize, Deserialize)]
pub struct Instance {
    /// Format of the file.
    pub version: u32,
    /// Process id.
    pub pid: u32,
    /// Port on 127.0.0.1.
    pub port: u16,
    /// Where its kubeconfig was written.
    pub kubeconfig: PathBuf,
    /// When it was started.
    pub started: String,
}

/// Where Muster keeps what outlives a command: `$MUSTER_HOME`, or `.muster` in the home directory.
pub fn home() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("MUSTER_HOME") {
        return Ok(folder.into());
    }
    let home = std::env::home_dir().context("no home directory\nhint: set MUSTER_HOME to a folder")?;
    Ok(home.join(".muster"))
}

/// The kubeconfig that is written when none is named.
pub fn default_kubeconfig(port: u16) -> anyhow::Result<PathBuf> {
    let name = if port == DEFAULT_PORT { "kubeconfig".into() } else { format!("kubeconfig-{port}") };
    Ok(home()?.join(name))
}

fn file(port: u16) -> anyhow::Result<PathBuf> {
    Ok(home()?.join(format!("up-{port}.json")))
}

impl Instance {
    /// What the file of a port says, if there is one that can be read.
    pub fn read(port: u16) -> Option<Instance> {
        let text = std::fs::read_to_string(file(port).ok()?).ok()?;
        serde_json::from_str(&text).ok().filter(|i: &Instance| i.version == 1)
    }

    /// All instances that left a file.
    pub fn all() -> Vec<Instance> {
        let Ok(folder) = home().and_then(|h| Ok(std::fs::read_dir(h)?)) else { return Vec::new() };
        let mut ports: Vec<u16> = folder
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter_map(|n| n.strip_prefix("up-")?.strip_suffix(".json")?.parse().ok())
            .collect();
        ports.sort_unstable();
        ports.into_iter().filter_map(Instance::read).collect()
    }

    /// Writes the file.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = file(self.port)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(&path, serde_json::to_string_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the file.
    pub fn forget(port: u16) {
        if let Ok(path) = file(port) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// A client for it, by its kubeconfig.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        client(&self.kubeconfig).await
    }
}

/// A client by a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let text = kube::config::Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(text, &kube::config::KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use {}", kubeconfig.display()))?;
    Ok(kube::Client::try_from(config)?)
}
