//! A whole cluster in one process: the embedded API server, simulated nodes and controllers, and Muster's services as processes
//! that can be killed, each behind a line that can be cut and faults of its own.
//!
//! In: a seed and the way of binding. Out: a [`World`]. Must stay true: whatever a process knows came over its own line; the world
//! itself looks and acts at the server directly, as users and the auditor do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use muster_apiserver::ApiServer;
use muster_apiserver::store::Memory;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::{Api, ApiError, Clock, Context};
use muster_scheduler::BindMode;
use muster_sim::Fleet;
use muster_sim::faults::{FaultLayer, Line, Rule};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::Layer;

use crate::admission::Admission;
use crate::front::{Front, Journal, USER};
use crate::process::{self, Process, Role};
use crate::random::Random;
use crate::turns::{Turned, Turns};

pub const NAMESPACE: &str = "chaos";

/// Eight nodes with four GPUs each in two racks, and two without.
const FLEET: &str = "
groups:
  - {name: gpu, count: 8, cpu: '32', memory: 256Gi, gpus: 4, topology: {nodesPerRack: 4, racksPerBlock: 2}}
  - {name: cpu, count: 2, cpu: '16', memory: 64Gi, gpus: 0}
";

/// Queue, parent, quota and limit of GPUs, weight over the quota.
pub const QUEUES: [(&str, &str, i64, i64, i64); 6] = [
    ("red", "", 16, 20, 1),
    ("red-a", "red", 8, 12, 1),
    ("red-b", "red", 8, -1, 2),
    ("blue", "", 12, -1, 1),
    ("blue-a", "blue", 12, -1, 1),
    ("blue-b", "blue", 0, -1, 1),
];

pub const RACK: &str = "cloud.provider.com/topology-rack";
pub const DRIVER: &str = "chaos.example.com";

pub struct World {
    pub server: ApiServer,
    pub api: Api,
    pub clock: Clock,
    pub journal: Journal,
    pub mode: BindMode,
    pub fleet: Fleet,
    pub processes: BTreeMap<Role, Process>,
    /// Everything is on one thread, on virtual time, and in turn.
    turns: Option<Turns>,
    n_started: u64,
    faults: Random,
    is_down: bool,
    /// In whose process admission runs.
    _inside: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self._inside.cancel();
        self.processes.clear();
    }
}

impl World {
    /// A cluster with nodes and queues, in which nothing of Muster runs yet. `same_thread`: on virtual time, and the same seed gives
    /// the same course.
    pub async fn new(seed: u64, mode: BindMode, same_thread: bool) -> Result<World> {
        World::with_fleet(seed, mode, same_thread, Fleet::parse("fleet", FLEET, 0)?).await
    }

    pub async fn with_fleet(seed: u64, mode: BindMode, same_thread: bool, fleet: Fleet) -> Result<World> {
        let base = if same_thread { "2026-01-01T00:00:00Z".parse()? } else { Clock::system().now() };
        let clock = Clock::starting_at(base);
        let admission = Arc::new(Admission::default());
        // On the wall clock memory is looked at, which must not take hours to become flat.
        let store = if same_thread { Memory::new() } else { Memory::remembering(1 << 20) };
        let options = muster_apiserver::Options {
            clock: muster_apiserver::Clock::starting_at(base),
            hooks: vec![admission.clone()],
            seed: same_thread.then_some(seed),
            ..muster_apiserver::Options::default()
        };
        let server = ApiServer::with_store(options, Arc::new(store));
        let kai = muster_api::crd::crds(Some(&[muster_api::crd::System::Kai]));
        server.install_crds(kai).map_err(|error| anyhow::anyhow!("a CRD was refused: {error:?}"))?;
        let inside = CancellationToken::new();
        let background = server.clone();
        tokio::spawn(inside.clone().run_until_cancelled_owned(async move { background.run().await }));

        let turns = same_thread.then(Turns::default);
        if let Some(turns) = turns.clone() {
            tokio::spawn(inside.clone().run_until_cancelled_owned(turns.serve()));
        }

        // Admission is part of the server here: it dies with it only.
        let inner = Turned { inner: server.clone(), who: "admission", turns: turns.clone() };
        let direct = kube::Client::new(inner, "default");
        let (cx, write_events) = Context::new(direct.clone(), "muster-admission", clock, inside.clone());
        let (judge, filled) = muster_webhook::Watched::new(&cx);
        let settings = muster_webhook::Settings {
            scheduler_names: process::setup().grouped,
            ..muster_webhook::Settings::default()
        };
        admission.begin(muster_webhook::Reviewer {
            settings: Arc::new(settings),
            world: judge,
            grouper: None,
        });
        tokio::spawn(write_events);
        tokio::spawn(filled);
        for watch in cx.stores.take_watches() {
            tokio::spawn(watch);
        }

        // A run on virtual time ends; one on the wall clock must not grow.
        let journal = Journal::new(if same_thread { 40_000 } else { 2_000 });
        let user = Front { server: server.clone(), journal: journal.clone(), who: USER, slow: false };
        let user = Turned { inner: user, who: USER, turns: turns.clone() };
        let mut world = World {
            server,
            api: Api::new(kube::Client::new(user, "default"), "chaos"),
            clock,
            journal,
            mode,
            fleet,
            processes: BTreeMap::new(),
            turns,
            n_started: 0,
            faults: Random::new(seed ^ 0xfa_17),
            is_down: false,
            _inside: inside,
        };
        world.furnish().await?;
        Ok(world)
    }

    /// What there is before anybody comes.
    async fn furnish(&mut self) -> Result<()> {
        for name in [NAMESPACE, "kai-resource-reservation", "kai-scale-adjust"] {
            self.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await?;
        }
        for object in muster_install::priority_classes().into_iter().chain(muster_install::default_queues(-1))
        {
            self.create(&object).await?;
        }
        for (name, parent, quota, limit, weight) in QUEUES {
            self.create(&queue(name, parent, quota, limit, weight)).await?;
        }
        self.create(
            &json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "racks"},
            "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]}}),
        )
        .await?;
        self.create(
            &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
            "provisioner": "sim.muster.dev/volumes", "volumeBindingMode": "WaitForFirstConsumer"}),
        )
        .await?;
        let expression = format!("device.driver == \"{DRIVER}\"");
        self.create(
            &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "chaos"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]}}),
        )
        .await?;
        for node in self.fleet.nodes() {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if name.starts_with("cpu") {
                self.create(&json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
                    "spec": {"driver": DRIVER, "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                        "devices": [{"name": "first"}, {"name": "second"}]}}))
                    .await?;
            }
        }
        self.start(Role::Sim);
        let wanted = self.fleet.n_nodes();
        for _ in 0..600 {
            let ready = self.list("/api/v1/nodes").await?.iter().filter(|node| is_ready(node)).count();
            if ready == wanted {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("the nodes are not ready after a minute")
    }

    /// Starts a process, unless it runs.
    pub fn start(&mut self, role: Role) {
        if self.processes.contains_key(&role) {
            return;
        }
        self.n_started += 1;
        let line = Line::default();
        if self.is_down {
            line.cut();
        }
        let faults = FaultLayer::new(self.faults.number(), Vec::new());
        let (who, slow) = (role.name(), self.turns.is_none());
        let front = Front { server: self.server.clone(), journal: self.journal.clone(), who, slow };
        let way = Turned { inner: faults.layer(line.layer(front)), who, turns: self.turns.clone() };
        let client = kube::Client::new(way, "default");
        let identity = format!("{}-{}", role.name(), self.n_started);
        let root: futures::future::BoxFuture<'static, ()> = if role == Role::Sim {
            let mut options =
                muster_sim::Options { fleet: self.fleet.clone(), ..muster_sim::Options::default() };
            if self.n_started > 1 {
                // Nodes that were deleted meanwhile come back when the world says so.
                options.components.remove(&muster_sim::Component::Nodes);
            }
            let run = muster_sim::run(client, options, self.clock, CancellationToken::new());
            Box::pin(async move {
                if let Err(error) = run.await {
                    eprintln!("the simulation ended: {error}");
                }
            })
        } else {
            Box::pin(process::run(client, self.clock, role, self.mode, identity, self.turns.is_some()))
        };
        self.processes.insert(role, Process::start(role, line, faults, root));
    }

    pub fn start_muster(&mut self) {
        for role in Role::muster(self.mode) {
            self.start(*role);
        }
    }

    /// kill -9; `false` if it does not run.
    pub fn kill(&mut self, role: Role) -> bool {
        self.processes.remove(&role).map(Process::kill).is_some()
    }

    /// The API server dies, and its database with it: nobody is served until [`World::recover`].
    pub fn crash_server(&mut self) {
        self.is_down = true;
        for process in self.processes.values() {
            process.line.cut();
        }
    }

    /// It is back, with everything that was written. `forgetful`: it no longer knows what happened before.
    pub async fn recover_server(&mut self, forgetful: bool) -> Result<()> {
        self.is_down = false;
        let oldest = if forgetful { self.version().await? } else { 0 };
        for process in self.processes.values() {
            process.line.restore(oldest);
        }
        Ok(())
    }

    pub fn server_is_down(&self) -> bool {
        self.is_down
    }

    pub fn reset_lines(&self) {
        for process in self.processes.values() {
            process.line.reset();
        }
    }

    pub fn set_faults(&self, role: Role, rules: Vec<Rule>) {
        if let Some(process) = self.processes.get(&role) {
            process.faults.set_rules(rules);
        }
    }

    /// Ends all faults, and starts whatever does not run.
    pub async fn calm(&mut self) -> Result<()> {
        if self.is_down {
            self.recover_server(false).await?;
        }
        self.start(Role::Sim);
        self.start_muster();
        for process in self.processes.values() {
            process.faults.calm();
        }
        Ok(())
    }

    /// No process may end by itself.
    pub fn check_processes(&self) -> Result<()> {
        for process in self.processes.values() {
            ensure!(!process.has_ended(), "{} has ended by itself", process.role.name());
        }
        Ok(())
    }

    async fn version(&self) -> Result<u64> {
        let list = self.api.get_path("/api/v1/namespaces?limit=1").await?;
        Ok(list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0))
    }

    /// Creates an object where its kind belongs.
    pub async fn create(&self, object: &Value) -> Result<Value> {
        let path = collection(object).context("an object of unknown kind")?;
        let made = self.api.create_path(&path, object).await;
        made.map_err(|error| {
            let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
            anyhow::anyhow!("cannot create {kind} {name}: {}", error.message())
        })
    }

    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        match self.api.get_path(path).await {
            Ok(mut list) => Ok(match list["items"].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            }),
            Err(error) if error.not_found() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes an object; `false` if it is not there.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<bool> {
        found(self.api.patch_path(path, Patch::Merge, patch).await.map(|_| ()))
    }

    /// Deletes an object as kubectl does; `false` if it is not there.
    pub async fn delete(&self, path: &str, at_once: bool) -> Result<bool> {
        let grace_seconds = at_once.then_some(0);
        let delete = Delete { propagation: Some("Background"), grace_seconds, ..Delete::default() };
        Ok(self.api.delete_path(path, delete).await?)
    }
}

fn found(result: Result<(), ApiError>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.not_found() => Ok(false),
        Err(error) => Err(anyhow::anyhow!("{error}: {}", error.message())),
    }
}

pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

pub fn queue(name: &str, parent: &str, quota: i64, limit: i64, weight: i64) -> Value {
    let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let mut queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": {"resources": {
        "cpu": any, "memory": any, "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": weight}}}});
    if !parent.is_empty() {
        queue["spec"]["parentQueue"] = json!(parent);
    }
    queue
}

/// Where objects of a kind are.
fn collection(object: &Value) -> Option<String> {
    let api_version = object["apiVersion"].as_str()?;
    let (plural, namespaced) = match object["kind"].as_str()? {
        "Namespace" => ("namespaces", false),
        "Node" => ("nodes", false),
        "Queue" => ("queues", false),
        "Topology" => ("topologies", false),
        "PriorityClass" => ("priorityclasses", false),
        "StorageClass" => ("storageclasses", false),
        "DeviceClass" => ("deviceclasses", false),
        "ResourceSlice" => ("resourceslices", false),
        "Pod" => ("pods", true),
        "PersistentVolumeClaim" => ("persistentvolumeclaims", true),
        "ResourceClaim" => ("resourceclaims", true),
        "Job" => ("jobs", true),
        "Deployment" => ("deployments", true),
        "StatefulSet" => ("statefulsets", true),
        "PodGroup" => ("podgroups", true),
        _ => return None,
    };
    let root = if api_version.contains('/') { "apis" } else { "api" };
    Some(match namespaced {
        true => format!("/{root}/{api_version}/namespaces/{NAMESPACE}/{plural}"),
        false => format!("/{root}/{api_version}/{plural}"),
    })
}
