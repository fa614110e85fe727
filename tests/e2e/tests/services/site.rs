//! The clusters that scenarios run on, each started by the first test that asks for it.
//!
//! *Embedded* is `muster up`: API server, nodes and services in one process. *Real* is etcd, kube-apiserver, the controller
//! manager and kube-scheduler, with the simulated kubelets as an ordinary client, and `muster run` as a process of its own.
//! *Managed* is the embedded cluster with Kubernetes' own controller manager in the place of its controllers.
//! All have four nodes with 8 GPUs for whoever names no others, KAI's priority classes and the default queues.
//!
//! They are never dropped, because statics are not; the guard of their processes ends them when this process ends.

use anyhow::{Context, Result};
use muster_e2e::crds;
use muster_testkit::{
    Cluster, Component, EmbeddedCluster, EmbeddedOptions, RealCluster, RealOptions, Request, Services,
    or_skip,
};
use std::path::PathBuf;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

const NODES: usize = 4;
const GPUS: u32 = 8;

static REAL: OnceCell<Result<Real, String>> = OnceCell::const_new();
static EMBEDDED: OnceCell<Result<EmbeddedCluster, String>> = OnceCell::const_new();
static MANAGED: OnceCell<Result<EmbeddedCluster, String>> = OnceCell::const_new();

struct Real {
    cluster: RealCluster,
    services: Services,
}

/// A cluster on which Muster's services run.
#[derive(Clone, Copy)]
pub struct Site {
    pub cluster: &'static Cluster,
    services: Option<&'static Services>,
    folder: Option<&'static EmbeddedCluster>,
}

impl Site {
    /// What Muster's services have said, for the report of a failed test.
    pub fn log(&self) -> String {
        let file: Option<PathBuf> = self.folder.map(|embedded| embedded.logs().join("muster-up.log"));
        match (self.services, file) {
            (Some(services), _) => services.log(),
            (None, Some(file)) => std::fs::read_to_string(file).unwrap_or_default(),
            (None, None) => String::new(),
        }
    }
}

/// The embedded cluster with the real controller manager, or `None` after saying why the test is skipped.
pub async fn managed() -> Result<Option<Site>> {
    let options = EmbeddedOptions {
        nodes: NODES,
        args: vec!["--gpus".into(), GPUS.to_string(), "--no-controllers".into()],
        with: vec![Component::ControllerManager],
        ..EmbeddedOptions::default()
    };
    let started = MANAGED
        .get_or_init(async || EmbeddedCluster::start(options).await.map_err(|e| format!("{e:#}")))
        .await;
    match started {
        Ok(managed) => Ok(Some(Site { cluster: managed, services: None, folder: Some(managed) })),
        Err(why) => or_skip(Err(anyhow::anyhow!("no embedded cluster with a controller manager: {why}"))),
    }
}

/// The embedded cluster. It needs nothing that a machine which builds this workspace lacks, so it is never skipped.
pub async fn embedded() -> Result<Option<Site>> {
    let options = EmbeddedOptions {
        nodes: NODES,
        args: vec!["--gpus".into(), GPUS.to_string()],
        ..EmbeddedOptions::default()
    };
    let started = EMBEDDED
        .get_or_init(async || EmbeddedCluster::start(options).await.map_err(|e| format!("{e:#}")))
        .await;
    match started {
        Ok(embedded) => Ok(Some(Site { cluster: embedded, services: None, folder: Some(embedded) })),
        Err(why) => Err(anyhow::anyhow!("no embedded cluster: {why}")),
    }
}

/// The real cluster, or `None` after saying why the test is skipped.
pub async fn real() -> Result<Option<Site>> {
    let started = REAL.get_or_init(async || start_real().await.map_err(|e| format!("{e:#}"))).await;
    match started {
        Ok(real) => Ok(Some(Site { cluster: &real.cluster, services: Some(&real.services), folder: None })),
        Err(why) => or_skip(Err(anyhow::anyhow!("no real cluster: {why}"))),
    }
}

async fn start_real() -> Result<Real> {
    let with = vec![Component::ControllerManager, Component::Scheduler];
    let cluster = RealCluster::start(RealOptions { with, ..RealOptions::default() }).await?;
    crds::apply(&cluster, &["--group", "kai"]).await?;
    for group in ["grove", "volcano", "kueue", "koordinator", "t9k"] {
        crds::apply(&cluster, &["--group", group]).await?;
    }
    create_defaults(&cluster).await?;
    play_nodes((*cluster).clone())?;
    let services = Services::start(&cluster, &[]).await?;
    Ok(Real { cluster, services })
}

/// What `muster install` creates besides the services.
async fn create_defaults(cluster: &Cluster) -> Result<()> {
    let http = cluster.http().await?;
    for object in muster_install::priority_classes().into_iter().chain(muster_install::default_queues(-1)) {
        let path = muster_install::path(&object).context("an object without a path")?;
        let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
        let answer = http.send(&Request::new("POST", collection).json(&object)).await?;
        anyhow::ensure!(answer.status == 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}

/// Simulated nodes and kubelets as clients of the cluster, for as long as this process lives: each test has a runtime of
/// its own, so they need one too.
fn play_nodes(cluster: Cluster) -> Result<()> {
    use muster_sim::{Clock, Component, Fleet, Options, Shape};
    let options = Options {
        fleet: Fleet::simple(NODES, GPUS)?,
        default_shape: Shape::with_gpus(GPUS),
        components: [Component::Nodes, Component::Kubelet].into(),
        ..Options::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("nodes".into()).spawn(move || {
        let ended = runtime.block_on(async {
            let client = cluster.client().await?;
            anyhow::Ok(muster_sim::run(client, options, Clock::system(), CancellationToken::new()).await?)
        });
        eprintln!("the simulated nodes ended: {ended:?}");
    })?;
    Ok(())
}
