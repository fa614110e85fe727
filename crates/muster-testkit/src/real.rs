//! A real Kubernetes control plane on the loopback: etcd and kube-apiserver, and, as asked for, the controller manager,
//! the scheduler and KWOK, which plays the kubelets of nodes that exist only as objects.
//!
//! In: options. Out: a [`Cluster`] that answers `/readyz`, whose processes end with the value. The gates of Kubernetes'
//! own gang API are on, so that the suite can use it. Authentication is one bearer token of `system:masters`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use serde_json::json;

use crate::cluster::{Cluster, Request};
use crate::eventually::eventually;
use crate::processes::{Processes, free_ports};
use crate::programs::{Programs, Release};

/// Files that programs beside an API server read.
pub(crate) const CA_CERT: &str = "ca.crt";
pub(crate) const ACCOUNT_KEY: &str = "account.key";

/// What may run beside etcd and kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// kube-controller-manager
    ControllerManager,
    /// kube-scheduler
    Scheduler,
    /// KWOK, over all nodes
    Kwok,
}

/// How the control plane is started.
#[derive(Clone, Debug)]
pub struct RealOptions {
    /// Of which Kubernetes.
    pub release: Release,
    /// What runs beside etcd and kube-apiserver.
    pub with: Vec<Component>,
    /// How many fake nodes are made, named `node-0` and so on.
    pub nodes: usize,
    /// Where kube-apiserver listens; 0 takes a free port.
    pub port: u16,
    /// Pods need service accounts although no controller makes any: whoever makes a namespace makes its account.
    pub accounts_by_hand: bool,
    /// Old versions are never thrown away. Otherwise they are every few minutes, and then a request for one of them is refused.
    pub keeps_history: bool,
    /// When everything ends at the latest.
    pub ttl: Duration,
}

impl Default for RealOptions {
    fn default() -> RealOptions {
        RealOptions {
            release: Release::default(),
            with: vec![Component::ControllerManager, Component::Scheduler, Component::Kwok],
            nodes: 0,
            port: 0,
            accounts_by_hand: false,
            keeps_history: false,
            ttl: Duration::from_secs(2 * 60 * 60),
        }
    }
}

/// A running control plane.
#[derive(Debug)]
pub struct RealCluster {
    cluster: Cluster,
    processes: Processes,
}

impl std::ops::Deref for RealCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl RealCluster {
    /// Starts the control plane and waits until it is ready. Builds the programs first if the cache lacks them.
    ///
    /// # Errors
    /// When the programs cannot be built, or one of them ends or is not ready in time; the message has the end of its log.
    pub async fn start(options: RealOptions) -> Result<RealCluster> {
        let release = options.release;
        let programs = tokio::task::spawn_blocking(move || Programs::ensure_release(release)).await??;
        // Somebody else may take a free port between our look and the bind, so a failed start is tried again.
        let mut attempt = 1;
        loop {
            match Self::start_once(&programs, &options).await {
                Err(error) if attempt < 3 && format!("{error:#}").contains("address already in use") => {
                    attempt += 1
                }
                done => return done,
            }
        }
    }

    /// The folder with the log of each process.
    pub fn logs(&self) -> &Path {
        self.processes.dir()
    }

    /// Fails when one of the processes has ended.
    ///
    /// # Errors
    /// The message has the end of its log.
    pub fn check(&mut self) -> Result<()> {
        self.processes.check()
    }

    /// CPU seconds so far of all its processes, and the most memory that they had, in bytes.
    ///
    /// # Errors
    /// When one does not run, or the machine has no `/proc`.
    pub fn cost(&self) -> Result<(f64, f64)> {
        self.processes.cost()
    }

    /// Starts a program beside the others; it ends with them, and its output is in [`RealCluster::log`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_beside(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        self.processes.start(name, command)
    }

    /// What one of the processes has said so far.
    pub fn log(&self, process: &str) -> String {
        std::fs::read_to_string(self.processes.log_of(process)).unwrap_or_default()
    }

    /// Ends one of the processes (`etcd`, `kube-apiserver`, `kube-controller-manager`, ...) as `kill -9` does. Its data stays.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, process: &str) -> Result<()> {
        self.processes.kill(process)
    }

    /// Starts a process that was killed, on the data that it left. Whether it is ready yet is for the caller to see.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    pub fn restart(&mut self, process: &str) -> Result<()> {
        self.processes.restart(process)
    }

    async fn start_once(programs: &Programs, options: &RealOptions) -> Result<RealCluster> {
        let mut processes = Processes::new("kube", options.ttl)?;
        let dir = processes.dir().to_owned();
        let [etcd_client, etcd_peer, free] = free_ports()?;
        let port = if options.port == 0 { free } else { options.port };
        let files = Files::write(&dir, port)?;

        let client_url = format!("http://127.0.0.1:{etcd_client}");
        let peer_url = format!("http://127.0.0.1:{etcd_peer}");
        processes.start(
            "etcd",
            Command::new(programs.path("etcd"))
                .arg(format!("--data-dir={}", dir.join("etcd").display()))
                .args([
                    format!("--listen-client-urls={client_url}"),
                    format!("--advertise-client-urls={client_url}"),
                ])
                .args([
                    format!("--listen-peer-urls={peer_url}"),
                    format!("--initial-advertise-peer-urls={peer_url}"),
                ])
                .arg(format!("--initial-cluster=default={peer_url}"))
                // The data is thrown away: no disk is worth waiting for.
                .args(["--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=4294967296"]),
        )?;
        processes.start("kube-apiserver", &mut apiserver(programs, options, &files, port, &client_url))?;

        let cluster = Cluster::from_kubeconfig("real", &files.kubeconfig)?;
        let http = cluster.http().await?;
        let ready = Request::new("GET", "/readyz");
        wait("kube-apiserver is ready", &mut processes, async || {
            let answer = http.send(&ready).await?;
            anyhow::ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
            Ok(())
        })
        .await?;

        for component in &options.with {
            let (name, mut command) =
                component.command(programs, options.release, &files.dir, &files.kubeconfig);
            processes.start(name, &mut command)?;
        }
        for n in 0..options.nodes {
            let answer = http.send(&Request::new("POST", "/api/v1/nodes").json(&fake_node(n))).await?;
            anyhow::ensure!(answer.status == 201, "node-{n}: {}", String::from_utf8_lossy(&answer.body));
        }
        if options.with.contains(&Component::ControllerManager) {
            // Pods are refused until the controller has made the namespace's service account.
            let account = Request::new("GET", "/api/v1/namespaces/default/serviceaccounts/default");
            wait("the default service account is there", &mut processes, async || {
                let answer = http.send(&account).await?;
                anyhow::ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
                Ok(())
            })
            .await?;
        }
        if options.with.contains(&Component::Kwok) && options.nodes > 0 {
            let last = Request::new("GET", &format!("/api/v1/nodes/node-{}", options.nodes - 1));
            wait("the last node is ready", &mut processes, async || {
                let node = http.send(&last).await?.json().unwrap_or_default();
                let conditions = node.pointer("/status/conditions").and_then(|c| c.as_array()).cloned();
                let ready = |c: &serde_json::Value| c["type"] == "Ready" && c["status"] == "True";
                anyhow::ensure!(conditions.unwrap_or_default().iter().any(ready), "{node}");
                Ok(())
            })
            .await?;
        }
        Ok(RealCluster { cluster, processes })
    }
}

/// Waits for `probe`, and gives up at once when a process has ended.
async fn wait(what: &str, processes: &mut Processes, probe: impl AsyncFn() -> Result<()>) -> Result<()> {
    let processes = std::cell::RefCell::new(processes);
    let ended = eventually(what, Duration::from_secs(120), async || {
        let running = processes.borrow_mut().check();
        match running {
            Err(ended) => Ok(Err(ended)),
            Ok(()) => probe().await.map(Ok),
        }
    });
    ended.await?
}

/// Without a token only the health checks are answered, as on a hardened cluster and on the embedded one.
const ANONYMOUS_HEALTH_CHECKS: &str = r#"{
  "apiVersion": "apiserver.config.k8s.io/v1beta1",
  "kind": "AuthenticationConfiguration",
  "anonymous": {"enabled": true, "conditions": [{"path": "/healthz"}, {"path": "/livez"}, {"path": "/readyz"}]}
}
"#;

fn apiserver(programs: &Programs, options: &RealOptions, files: &Files, port: u16, etcd: &str) -> Command {
    let mut command = Command::new(programs.path("kube-apiserver"));
    command
        .arg(format!("--etcd-servers={etcd}"))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--tls-cert-file={}", files.server_cert.display()))
        .arg(format!("--tls-private-key-file={}", files.server_key.display()))
        .arg(format!("--cert-dir={}", files.dir.join("certs").display()))
        .arg(format!("--token-auth-file={}", files.tokens.display()))
        .arg(format!("--authentication-config={}", files.authentication.display()))
        .args([
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.0.0.0/16",
        ])
        .args(["--service-account-issuer=https://kubernetes.default.svc"])
        .arg(format!("--service-account-signing-key-file={}", files.account_key.display()))
        .arg(format!("--service-account-key-file={}", files.account_public.display()))
        .arg(format!("--runtime-config=scheduling.k8s.io/{}=true", options.release.gang_api()))
        .arg(format!("--feature-gates={}", options.release.gates()))
        // The loopback is refused as the address of the `kubernetes` service's endpoint.
        .arg("--endpoint-reconciler-type=none");
    if !options.with.contains(&Component::ControllerManager) && !options.accounts_by_hand {
        // Nobody makes service accounts, so pods must not need one.
        command.arg("--disable-admission-plugins=ServiceAccount");
    }
    if options.keeps_history {
        command.arg("--etcd-compaction-interval=0");
    }
    command
}

impl Component {
    /// The program with its arguments, for the cluster of a kubeconfig. `dir` has the authority's certificate and the key of accounts.
    pub(crate) fn command(
        self,
        programs: &Programs,
        release: Release,
        dir: &Path,
        kubeconfig: &Path,
    ) -> (&'static str, Command) {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let gates = format!("--feature-gates={}", release.gates());
        match self {
            Component::ControllerManager => {
                let mut command = Command::new(programs.path("kube-controller-manager"));
                command
                    .args([kubeconfig, gates])
                    .args(["--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1"])
                    // Its own limit of 20 requests per second is what most tests would otherwise wait for.
                    .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
                    .arg(format!("--service-account-private-key-file={}", dir.join(ACCOUNT_KEY).display()))
                    .arg(format!("--root-ca-file={}", dir.join(CA_CERT).display()))
                    .arg(format!("--cert-dir={}", dir.join("certs").display()));
                ("kube-controller-manager", command)
            }
            Component::Scheduler => {
                let mut command = Command::new(programs.path("kube-scheduler"));
                command
                    .args([kubeconfig, gates])
                    .args(["--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1"])
                    .arg(format!("--cert-dir={}", dir.join("certs").display()));
                ("kube-scheduler", command)
            }
            Component::Kwok => {
                let mut command = Command::new(programs.path("kwok"));
                command.args([kubeconfig, "--manage-all-nodes=true".to_owned()]).env("HOME", dir);
                ("kwok", command)
            }
        }
    }
}

fn fake_node(n: usize) -> serde_json::Value {
    let name = format!("node-{n}");
    let sizes = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": format!("zone-{}", n % 2),
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": sizes, "allocatable": sizes},
    })
}

/// The files that the processes read.
struct Files {
    dir: PathBuf,
    ca_cert: PathBuf,
    server_cert: PathBuf,
    server_key: PathBuf,
    account_key: PathBuf,
    account_public: PathBuf,
    tokens: PathBuf,
    authentication: PathBuf,
    kubeconfig: PathBuf,
}

impl Files {
    fn write(dir: &Path, port: u16) -> Result<Files> {
        let files = Files {
            dir: dir.to_owned(),
            ca_cert: dir.join(CA_CERT),
            server_cert: dir.join("server.crt"),
            server_key: dir.join("server.key"),
            account_key: dir.join(ACCOUNT_KEY),
            account_public: dir.join("account.pub"),
            tokens: dir.join("tokens.csv"),
            authentication: dir.join("authentication.json"),
            kubeconfig: dir.join("kubeconfig"),
        };
        let mut authority = rcgen::CertificateParams::new(Vec::new())?;
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "muster test authority");
        authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let authority_key = rcgen::KeyPair::generate()?;
        let authority_cert = authority.self_signed(&authority_key)?;
        let issuer = rcgen::Issuer::new(authority, authority_key);

        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let server = rcgen::CertificateParams::new(names)?;
        let server_key = rcgen::KeyPair::generate()?;
        let server_cert = server.signed_by(&server_key, &issuer)?;

        // Random enough for a token of a loopback server that lives for hours: a fresh key's public half.
        let account_key = rcgen::KeyPair::generate()?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(
            rcgen::KeyPair::generate()?.public_key_raw().get(1..33).context("a P-256 key has 65 bytes")?,
        );

        write_private(&files.ca_cert, &authority_cert.pem())?;
        write_private(&files.server_cert, &server_cert.pem())?;
        write_private(&files.server_key, &server_key.serialize_pem())?;
        write_private(&files.account_key, &account_key.serialize_pem())?;
        write_private(&files.account_public, &account_key.public_key_pem())?;
        write_private(&files.authentication, ANONYMOUS_HEALTH_CHECKS)?;
        write_private(&files.tokens, &format!("{token},admin,admin,\"system:masters\"\n"))?;
        let ca = base64::engine::general_purpose::STANDARD.encode(authority_cert.pem());
        // JSON is YAML, and every reader of kubeconfigs takes it.
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "muster-kube",
            "clusters": [{"name": "muster-kube", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": ca}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "muster-kube", "context": {"cluster": "muster-kube", "user": "admin"}}],
        });
        write_private(&files.kubeconfig, &serde_json::to_string_pretty(&kubeconfig)?)?;
        Ok(files)
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let said = || format!("write {}", path.display());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(said)?;
    file.write_all(text.as_bytes()).with_context(said)
}
