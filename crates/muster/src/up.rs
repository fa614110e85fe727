//! `muster up` and `muster down`: the embedded cluster as one process.
//!
//! In: how many nodes, or a file that describes them. Out: an API server on 127.0.0.1, simulated nodes, a kubeconfig, and
//! what to type next. It ends on Ctrl-C, SIGTERM or `muster down`, and leaves no process behind. With a data folder, the cluster is
//! kept there and goes on from what it finds.

use crate::Exit;
use crate::admission::InProcess;
use crate::instance::{DEFAULT_PORT, Instance, default_kubeconfig};
use crate::services::{self, Admission, Component};
use anyhow::{Context, bail};
use clap::ValueEnum;
use muster_apiserver::http::{ListenError, listen_as};
use muster_apiserver::identity::Identity;
use muster_apiserver::store::Durable;
use muster_apiserver::store::disk::{Limits, OpenError};
use muster_apiserver::{ApiServer, KubeVersion, Options};
use muster_runtime::Client;
use muster_sim::{Fleet, Shape};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Layer;

/// How many nodes a new cluster has when nothing is said.
const DEFAULT_NODES: usize = 4;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster up                         4 nodes with 8 GPUs each\n  muster up --nodes 16 --gpus 8\n  muster up --file cluster.yaml     racks, GPU models, taints: see docs/simulated-cluster.md\n  muster up --port 0 --kubeconfig /tmp/k    any free port\n  muster up --data-dir ~/lab        kept on disk: the same command goes on where it stopped\n  muster up --chaos day.yaml        nodes fail, binds are slow, requests get errors, by a plan and a seed: see docs/chaos.md\n  muster up --rbac --token-auth-file users.csv --audit-log audit.jsonl\n      where a line of users.csv is token,user,uid,\"group1,group2\": see docs/embedded-api.md\n\nThen: export KUBECONFIG=~/.muster/kubeconfig; kubectl get nodes"
)]
pub struct Args {
    /// Number of simulated nodes [default: 4, or those of the data folder]; nodes that are there already stay
    #[arg(long, env = "MUSTER_NODES", conflicts_with = "file")]
    nodes: Option<usize>,
    /// GPUs on each node (also the default for nodes that someone creates with kubectl)
    #[arg(long, default_value_t = 8, env = "MUSTER_GPUS")]
    gpus: u32,
    /// A YAML file that describes the nodes
    #[arg(long, value_name = "FILE", env = "MUSTER_FILE")]
    file: Option<PathBuf>,
    /// Keep the cluster in this folder and go on from what is there; without it, everything is in memory
    #[arg(long, value_name = "DIR", env = "MUSTER_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Port on 127.0.0.1; 0 takes any free one [default: 16443, or that of the data folder]
    #[arg(long, env = "MUSTER_PORT")]
    port: Option<u16>,
    /// Where to write the kubeconfig [default: ~/.muster/kubeconfig]
    #[arg(long, value_name = "PATH", env = "MUSTER_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Install no CRDs
    #[arg(long, conflicts_with = "groups")]
    no_crds: bool,
    /// Install only the CRDs of these systems or API groups
    #[arg(long, value_name = "G,G", value_delimiter = ',', env = "MUSTER_GROUPS")]
    groups: Vec<String>,
    /// Which Kubernetes to resemble; 1.35 serves scheduling.k8s.io/v1alpha1, 1.36 serves v1alpha2
    #[arg(long, value_enum, default_value_t = Version::V1_36, env = "MUSTER_KUBE_VERSION")]
    kube_version: Version,
    /// Only the cluster: start none of Muster's services, so that others can
    #[arg(long)]
    no_services: bool,
    /// Start none of the controllers of Kubernetes (jobs, deployments, garbage collection, ..), so that kube-controller-manager can
    #[arg(long)]
    no_controllers: bool,
    /// A YAML file that says what goes wrong, and when: see docs/chaos.md
    #[arg(long, value_name = "FILE", env = "MUSTER_CHAOS")]
    chaos: Option<PathBuf>,
    /// Run no kubelets: pods that are bound to a node stay as they are, so that others (KWOK, say) can run them
    #[arg(long, conflicts_with = "chaos")]
    no_kubelets: bool,
    #[command(flatten)]
    guard: crate::guard::Args,
    /// What to print once the cluster is ready
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Version {
    #[value(name = "1.35")]
    V1_35,
    #[value(name = "1.36")]
    V1_36,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  muster down\n  muster down --port 7001\n  muster down --all")]
pub struct DownArgs {
    /// The port it listens on
    #[arg(long, default_value_t = DEFAULT_PORT, env = "MUSTER_PORT")]
    port: u16,
    /// Stop every cluster that `muster up` runs for this user
    #[arg(long, conflicts_with = "port")]
    all: bool,
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

pub fn up(args: Args) -> anyhow::Result<Exit> {
    runtime()?.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let crds = if args.no_crds { Vec::new() } else { crate::crds::select(&args.groups)? };
    let n_crds = crds.len();
    let chaos =
        args.chaos.as_deref().map(|file| crate::chaos::Plan::read(file, args.no_services)).transpose()?;
    let kube_version = match args.kube_version {
        Version::V1_35 => KubeVersion::V1_35,
        Version::V1_36 => KubeVersion::V1_36,
    };
    // The folder comes first: whoever has it may have the port, too, and is the better name for what is in the way.
    let kept = match &args.data_dir {
        Some(folder) => Some(Kept::open(folder, kube_version)?),
        None => None,
    };
    let resumed = kept.as_ref().is_some_and(|kept| kept.store.resumed().revision > 1);
    let fleet = match (&args.file, args.nodes) {
        (Some(file), _) => Fleet::read(file, args.gpus)?,
        // A cluster that is there has the nodes that it has.
        (None, None) if resumed => Fleet::default(),
        (None, n_nodes) => Fleet::simple(n_nodes.unwrap_or(DEFAULT_NODES), args.gpus)?,
    };
    let n_nodes = fleet.n_nodes();
    let (known, identity) = match &kept {
        Some(kept) => (kept.identity.port, kept.identity.clone()),
        None => (None, Identity::new().context("cannot make the server's certificate")?),
    };
    let signing_key = identity.signing_key.clone();
    let asked = args.port.or(known).unwrap_or(DEFAULT_PORT);
    let listener = match listen_as(asked, identity, args.guard.client_ca()?.as_deref()).await {
        Ok(listener) => listener,
        Err(error) => return taken(asked, error).await,
    };
    let endpoint = listener.endpoint.clone();
    let port = endpoint.address.port();
    if let (Some(folder), Some(kept)) = (&args.data_dir, &kept) {
        kept.identity.clone().on(port).keep(folder)?;
    }
    let kubeconfig = match &args.kubeconfig {
        Some(path) => std::path::absolute(path)?,
        None => default_kubeconfig(port)?,
    };

    let mut options = Options { kube_version, ..Options::default() };
    options.converters.insert("kueue.x-k8s.io".into(), muster_api::kueue::convert::to_api_version);
    let admission = Arc::new(InProcess::default());
    options.hooks.push(admission.clone());
    args.guard.put_into(&mut options, &endpoint.token, &signing_key)?;
    let roles = args.guard.roles(&crds);
    let server = match &kept {
        Some(kept) => ApiServer::with_store(options, kept.store.clone()),
        None => ApiServer::new(options),
    };
    server.install_crds(crds).map_err(|e| anyhow::anyhow!("a generated CRD was refused: {e}"))?;
    let cancel = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    match &chaos {
        Some(chaos) => {
            let way = chaos.gates.clients.layer(server.clone());
            tasks.spawn(listener.serve_through(server.clone(), way, cancel.clone()))
        }
        None => tasks.spawn(listener.serve(server.clone(), cancel.clone())),
    };
    if !args.no_controllers {
        let server = server.clone();
        tasks.spawn(async move { server.run().await });
    }
    endpoint
        .write_kubeconfig(&kubeconfig)
        .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let started = server.clock().rfc3339();
    let instance =
        Instance { version: 1, pid: std::process::id(), port, kubeconfig: kubeconfig.clone(), started };
    instance.write()?;
    let talk = args.output == Format::Text;
    if talk {
        eprintln!("api server   {}  ({n_crds} CRDs)", endpoint.url());
        if let (Some(folder), Some(kept)) = (&args.data_dir, &kept) {
            eprintln!("data         {}", kept.describe(folder));
        }
    }

    let client = kube::Client::new(server.inside(), "default");
    crate::guard::create_roles(&client, roles).await?;
    let simulation = muster_sim::run(
        chaos
            .as_ref()
            .map_or_else(|| Client::near(server.inside()), |chaos| through(&chaos.gates.simulation, &server)),
        muster_sim::Options {
            fleet,
            default_shape: Shape::with_gpus(args.gpus),
            root_certificate: endpoint.ca_pem.clone(),
            kubelet_version: match kube_version {
                KubeVersion::V1_35 => "v1.35.0".into(),
                KubeVersion::V1_36 => "v1.36.3".into(),
            },
            components: simulated(&args),
            ..Default::default()
        },
        muster_sim::Clock::system(),
        cancel.clone(),
    );
    let simulation = tokio::spawn(simulation);
    let services = start_services(&server, &args, chaos.as_ref(), admission, &cancel);
    let is_ready = CancellationToken::new();
    let trouble = chaos.as_ref().map(|chaos| chaos.start(&client, talk, is_ready.clone(), cancel.clone()));
    let ready = async {
        let n_nodes = wait_for_nodes(&client, n_nodes, resumed, talk).await?;
        if !args.no_services && !args.no_crds {
            services::create_defaults(client.clone()).await?;
        }
        match args.output {
            Format::Text => {
                let there = if resumed { "there" } else { "ready" };
                eprintln!("nodes        {n_nodes} {there} after {:.1} s", begun.elapsed().as_secs_f64());
                eprintln!("kubeconfig   {}", kubeconfig.display());
                eprintln!(
                    "\nIn another terminal:\n  export KUBECONFIG={}\n  kubectl get nodes",
                    kubeconfig.display()
                );
                eprintln!("\nCtrl-C or `muster down{}` ends it.", port_flag(port));
                if let Some(chaos) = &chaos {
                    chaos.announce();
                }
            }
            Format::Json => println!(
                "{}",
                serde_json::json!({
                    "server": endpoint.url(), "port": port, "kubeconfig": kubeconfig, "pid": std::process::id(),
                    "nodes": n_nodes, "crds": n_crds, "chaosSeed": chaos.as_ref().map(|chaos| chaos.seed),
                })
            ),
        }
        Ok::<(), anyhow::Error>(())
    };
    let outcome = tokio::select! {
        ended = async {
            ready.await?;
            is_ready.cancel();
            cancel.cancelled().await;
            Ok::<(), anyhow::Error>(())
        } => ended,
        () = interrupted() => Ok(()),
        ended = services => match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.context("Muster's services ended")),
            Err(error) => Err(anyhow::Error::new(error).context("Muster's services broke down")),
        },
        ended = simulation => match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(anyhow::Error::new(error).context("the simulated cluster ended")),
            Err(error) => Err(anyhow::Error::new(error).context("the simulated cluster broke down")),
        },
    };
    cancel.cancel();
    if let Some(trouble) = trouble {
        // What it broke is mended, so that a cluster that is kept is well when it is started again.
        let _ = tokio::time::timeout(muster_sim::chaos::run::LAST_CARE, trouble).await;
    }
    if let Some(kept) = kept {
        kept.store.close();
    }
    Instance::forget(port);
    if talk {
        eprintln!("stopped");
    }
    outcome.map(|()| Exit::Done)
}

/// What is simulated, beside nodes.
fn simulated(args: &Args) -> BTreeSet<muster_sim::Component> {
    use muster_sim::Component::{self, Kubelet, Nodes};
    let is_wanted = |component: &Component| match component {
        Nodes => true,
        Kubelet => !args.no_kubelets,
        _ => !args.no_controllers,
    };
    Component::all().into_iter().filter(is_wanted).collect()
}

/// A cluster in a folder.
struct Kept {
    store: Arc<Durable>,
    identity: Identity,
}

impl Kept {
    fn open(folder: &Path, kube_version: KubeVersion) -> anyhow::Result<Kept> {
        let version = match kube_version {
            KubeVersion::V1_35 => "1.35",
            KubeVersion::V1_36 => "1.36",
        };
        let store = Durable::open(folder, version, Limits::default()).map_err(|error| match error {
            OpenError::InUse { .. } => {
                anyhow::anyhow!("{error}\nhint: `muster down` stops it; or name another --data-dir")
            }
            OpenError::Kubernetes { ref made, .. } => {
                anyhow::anyhow!("{error}\nhint: --kube-version {made} goes on with it")
            }
            other => other.into(),
        })?;
        Ok(Kept { store: Arc::new(store), identity: Identity::of(folder)? })
    }

    fn describe(&self, folder: &Path) -> String {
        let resumed = self.store.resumed();
        let mut text = folder.display().to_string();
        if resumed.revision > 1 {
            text += &format!("  (goes on from version {})", resumed.revision);
        }
        if resumed.torn_bytes > 0 {
            text += &format!("; {} bytes of an unfinished write were dropped", resumed.torn_bytes);
        }
        text
    }
}

/// Muster's services in this process. They also answer to Kubernetes' own scheduler name, so that every pod runs.
fn start_services(
    server: &ApiServer,
    args: &Args,
    chaos: Option<&crate::chaos::Plan>,
    admission: Arc<InProcess>,
    cancel: &CancellationToken,
) -> tokio::task::JoinHandle<anyhow::Result<()>> {
    let (server, cancel) = (server.clone(), cancel.clone());
    if args.no_services {
        return tokio::spawn(async move {
            cancel.cancelled().await;
            Ok(())
        });
    }
    let mut wanted = services::Wanted::default();
    wanted.scheduler_names.push("default-scheduler".into());
    // The simulation has no controller of resource claims.
    wanted.protect_claims = false;
    wanted.admission = Some(Admission::InProcess(admission));
    if args.data_dir.is_some() {
        // One process has the folder, so leases that an earlier one left behind are ours, and there is no waiting for them.
        wanted.identity = "muster-up".into();
    }
    if args.no_crds {
        wanted.components = [Component::Scheduler].into();
    }
    match chaos {
        None => {
            let client = Client::near(server.inside());
            tokio::spawn(services::run(client, muster_runtime::Clock::system(), wanted, cancel))
        }
        Some(chaos) => tokio::spawn(crate::chaos::mortal(chaos.gates.clone(), server, wanted, cancel)),
    }
}

/// A client whose requests go through a gate.
pub(crate) fn through(gate: &muster_sim::chaos::Gate, server: &ApiServer) -> Client {
    Client::near(gate.layer(server.inside()))
}

fn port_flag(port: u16) -> String {
    if port == DEFAULT_PORT { String::new() } else { format!(" --port {port}") }
}

/// Says who has the port and what to do about it.
async fn taken(port: u16, error: ListenError) -> anyhow::Result<Exit> {
    if let Some(other) = Instance::read(port)
        && is_alive(&other).await
    {
        eprintln!(
            "muster is already running on port {port} (pid {}, since {})\n  kubeconfig   {}\nhint: `muster down{}` stops it; `muster up --port 0` starts another beside it",
            other.pid,
            other.started,
            other.kubeconfig.display(),
            port_flag(port),
        );
        return Ok(Exit::NotInThatState);
    }
    Err(anyhow::Error::new(error)
        .context("port is taken by another program\nhint: `muster up --port 0` takes any free one"))
}

async fn is_alive(instance: &Instance) -> bool {
    let ask = async { instance.client().await?.apiserver_version().await.map_err(anyhow::Error::from) };
    matches!(tokio::time::timeout(Duration::from_secs(2), ask).await, Ok(Ok(_)))
}

/// Waits until all nodes are there and Ready, telling how far it is when that takes a while. Out: how many there are. In a cluster that
/// was there before, nodes may have been made to fail, so it is enough that they are there.
async fn wait_for_nodes(
    client: &kube::Client,
    wanted: usize,
    resumed: bool,
    talk: bool,
) -> anyhow::Result<usize> {
    use k8s_openapi::api::core::v1::Node;
    let nodes: kube::Api<Node> = kube::Api::all(client.clone());
    let mut told = Instant::now();
    loop {
        let list = nodes.list(&kube::api::ListParams::default().match_any()).await?;
        let is_ready = |n: &&Node| {
            let conditions = n.status.as_ref().and_then(|s| s.conditions.as_ref());
            conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let n_nodes = list.items.len();
        let ready = list.items.iter().filter(is_ready).count();
        if ready >= wanted || (resumed && n_nodes >= wanted) {
            return Ok(n_nodes);
        }
        if talk && told.elapsed() > Duration::from_secs(1) {
            eprintln!("nodes        {ready} of {wanted} ready");
            told = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Completes on Ctrl-C or SIGTERM.
pub(crate) async fn interrupted() {
    let ctrl_c = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut term) => {
                tokio::select! {
                    _ = ctrl_c => {}
                    _ = term.recv() => {}
                }
            }
            Err(_) => {
                let _ = ctrl_c.await;
            }
        }
    }
    #[cfg(not(unix))]
    {
        let _ = ctrl_c.await;
    }
}

pub fn down(args: DownArgs) -> anyhow::Result<Exit> {
    runtime()?.block_on(async {
        let instances =
            if args.all { Instance::all() } else { Instance::read(args.port).into_iter().collect() };
        if instances.is_empty() {
            if args.all {
                eprintln!("nothing is running");
            } else {
                eprintln!("nothing that `muster up` started is running on port {}", args.port);
            }
            return Ok(Exit::NotInThatState);
        }
        let mut exit = Exit::Done;
        for instance in instances {
            if stop(&instance).await? {
                println!("stopped the cluster on port {}", instance.port);
            } else {
                eprintln!("the cluster on port {} is not running any more", instance.port);
                exit = Exit::NotInThatState;
            }
        }
        Ok(exit)
    })
}

/// Asks a cluster to end and waits until it has; false if it was gone already.
async fn stop(instance: &Instance) -> anyhow::Result<bool> {
    if !is_alive(instance).await {
        Instance::forget(instance.port);
        return Ok(false);
    }
    let request = http::Request::post("/muster/shutdown").body(Vec::new())?;
    // The answer may be cut off by the end it asks for.
    let _ = instance.client().await?.request_text(request).await;
    let patience = Instant::now() + Duration::from_secs(10);
    while is_alive(instance).await {
        if Instant::now() > patience {
            bail!(
                "the cluster on port {} (pid {}) does not stop\nhint: kill {}",
                instance.port,
                instance.pid,
                instance.pid
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(true)
}
