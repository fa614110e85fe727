//! Simulated nodes and kubelets, the workload controllers, and faults: ordinary API clients of
//! whatever API server the client points at.
//!
//! In: a [`Client`], [`Options`], a [`Clock`]. Out: a cluster in which workloads run, until cancelled.
//! Must stay true: everything here goes through the API, so it can be replaced piece by piece by the real thing; all
//! time is tokio's, so a paused runtime makes it virtual; what a restart finds is adopted, not made again.
//!
//! Each controller is a folder: `plan` is pure (observed objects in, actions out), `run` is the thin rest.

pub mod fleet;
pub mod kubelet;
pub mod lifecycle;

pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod hpa;
pub mod job;
pub mod namespaces;
pub mod pdb;
pub mod replicaset;
pub mod statefulset;
pub mod volumes;

pub mod chaos;
pub mod faults;

pub mod context;
pub mod fit;
pub mod object;
mod podcontrol;
mod revisions;
mod yaml;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use muster_runtime::{Stores, api, clock, events, json, queue, store};

pub use chaos::Chaos;
pub use fleet::{Fleet, FleetError, Shape};
pub use kubelet::behaviour::Rules;
pub use muster_runtime::{Api, ApiError, Client, Clock};

use crate::context::Context;
use crate::events::Events;
use crate::object::Node;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// The nodes to create.
    pub fleet: Fleet,
    /// What a node gets that someone else creates without a status.
    pub default_shape: Shape,
    /// What pods do that say nothing.
    pub rules: Rules,
    pub components: BTreeSet<Component>,
    /// Namespaces whose pods report the GPU that they hold by annotation.
    pub reservation_namespaces: BTreeSet<String>,
    /// How long after the last sign of life a node counts as lost, at least.
    pub node_grace: Duration,
    /// Every store is listed again this often.
    pub resync: Duration,
    /// The version that the kubelets report.
    pub kubelet_version: String,
    /// The certificates (PEM) by which pods would know the API server; put into every namespace.
    pub root_certificate: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            fleet: Fleet::default(),
            default_shape: Shape::default(),
            rules: Rules::default(),
            components: Component::all(),
            reservation_namespaces: ["kai-resource-reservation".to_owned(), "runai-reservation".to_owned()]
                .into(),
            node_grace: Duration::from_secs(50),
            resync: muster_runtime::RESYNC,
            kubelet_version: "v1.36.3".into(),
            root_certificate: String::new(),
        }
    }
}

/// A part of the simulation that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    Nodes,
    Kubelet,
    NodeLifecycle,
    ReplicaSet,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    Namespaces,
    Volumes,
}

impl Component {
    pub fn all() -> BTreeSet<Component> {
        use Component::*;
        [
            Nodes,
            Kubelet,
            NodeLifecycle,
            ReplicaSet,
            Deployment,
            StatefulSet,
            DaemonSet,
            Job,
            CronJob,
            HorizontalPodAutoscaler,
            PodDisruptionBudget,
            Namespaces,
            Volumes,
        ]
        .into()
    }
}

/// Why the simulation ended before it was cancelled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the nodes could not be created")]
    Nodes(#[source] ApiError),
    #[error("a component stopped")]
    Component(#[source] tokio::task::JoinError),
}

/// Runs the simulation until cancelled. Nodes are created first; those that are there already are adopted.
pub async fn run(
    client: impl Into<Client>,
    options: Options,
    clock: Clock,
    cancel: CancellationToken,
) -> Result<(), Error> {
    // Whatever ends this function also ends every task it started.
    let cancel = cancel.child_token();
    let _ends_with_us = cancel.clone().drop_guard();
    let api = Api::new(client, "muster-sim");
    let options = Arc::new(options);
    let wanted = |component| options.components.contains(&component);

    let (events, write_events) = Events::start(api.clone(), clock, cancel.clone());
    let cx = Context::new(api.clone(), clock, events, options.clone(), cancel.clone());

    let mut tasks = JoinSet::new();
    tasks.spawn(write_events);
    macro_rules! start {
        ($($component:ident => $module:path),* $(,)?) => {$(
            if wanted(Component::$component) {
                use $module as module;
                tasks.spawn(module::start(&cx));
            }
        )*};
    }
    start! {
        Kubelet => kubelet::run,
        NodeLifecycle => lifecycle::run,
        ReplicaSet => replicaset::run,
        Deployment => deployment::run,
        StatefulSet => statefulset::run,
        DaemonSet => daemonset::run,
        Job => job::run,
        CronJob => cronjob::run,
        HorizontalPodAutoscaler => hpa::run,
        PodDisruptionBudget => pdb::run,
        Namespaces => namespaces::run,
        Volumes => volumes::run,
    }

    if wanted(Component::Nodes) {
        match cancel.run_until_cancelled(create_nodes(&api.named("kubelet"), &options, clock)).await {
            None => return Ok(()),
            Some(result) => result.map_err(Error::Nodes)?,
        }
    }
    // Nodes alone need nothing to be watched.
    if options.components.iter().any(|component| *component != Component::Nodes) {
        for watch in cx.take_watches() {
            tasks.spawn(watch);
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(Error::Component)?;
    }
    Ok(())
}

/// Creates the fleet's nodes, many at a time; one that exists is left as it is. They are created as a kubelet would
/// register them, with a status that is already complete, so that one write per node is enough.
async fn create_nodes(api: &Api, options: &Options, clock: Clock) -> Result<(), ApiError> {
    const AT_A_TIME: usize = 32;
    let complete = |mut body: serde_json::Value| {
        let node: Node = serde_json::from_value(body.clone()).unwrap_or_default();
        let (shape, version) = (&options.default_shape, &options.kubelet_version);
        let status = kubelet::node::status_patch(&node, shape, version, "", clock.now(), false);
        if let Some(serde_json::Value::Object(rest)) =
            status.and_then(|mut s| s.get_mut("status").map(|s| s.take()))
        {
            for (field, value) in rest {
                body["status"][field] = value;
            }
        }
        body
    };
    let mut results = futures::stream::iter(options.fleet.nodes())
        .map(complete)
        .map(|node| async move {
            let mut wait = Duration::from_millis(50);
            loop {
                match api.create::<Node>("", &node).await {
                    Ok(_) => return Ok(()),
                    Err(error) if error.already_exists() => return Ok(()),
                    // The server may still be starting, or may be busy; a refusal of the object itself is final.
                    Err(error) if matches!(error.code(), 400 | 401 | 403 | 404 | 405 | 422) => {
                        return Err(error);
                    }
                    Err(error) if wait > Duration::from_secs(20) => return Err(error),
                    Err(error) => {
                        tokio::time::sleep(error.retry_after().unwrap_or(wait)).await;
                        wait *= 2;
                    }
                }
            }
        })
        .buffer_unordered(AT_A_TIME);
    while let Some(result) = results.next().await {
        result?;
    }
    Ok(())
}
