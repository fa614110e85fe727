//! Processes of a cluster that can be killed at any moment.
//!
//! In: a role, and the way to the API server. Out: a [`Process`] that does what `muster run` (or the simulation) does in its turn, until
//! it is killed: its tasks are dropped wherever they wait, nothing is let go, its lease stays, and nothing that it still has in its
//! hands reaches the server. Must stay true: two processes share nothing but the API.

use std::time::Duration;

use futures::future::BoxFuture;
use muster_runtime::lease::{self, Claim, Lease};
use muster_runtime::{Clock, Context, Key};
use muster_scheduler::BindMode;
use muster_scheduler::record::Setup;
use muster_sim::faults::{FaultLayer, Line};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// With a binder beside it, unless bindings go by requests only.
    Scheduler,
    /// By itself, where bindings go by requests.
    Binder,
    Grouper,
    /// Statuses of pod groups and queues, and asks to autoscalers.
    Controllers,
    /// Kubelets and the controllers of Kubernetes.
    Sim,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Scheduler => "scheduler",
            Role::Binder => "binder",
            Role::Grouper => "grouper",
            Role::Controllers => "controllers",
            Role::Sim => "sim",
        }
    }

    /// Those of Muster that run where bindings are made in this way.
    pub fn muster(mode: BindMode) -> &'static [Role] {
        match mode {
            BindMode::Inline => &[Role::Scheduler, Role::Grouper, Role::Controllers],
            BindMode::Service => &[Role::Scheduler, Role::Binder, Role::Grouper, Role::Controllers],
        }
    }
}

pub struct Process {
    pub role: Role,
    pub line: Line,
    pub faults: FaultLayer,
    root: JoinHandle<()>,
}

impl Process {
    pub fn start(
        role: Role,
        line: Line,
        faults: FaultLayer,
        root: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Process { role, line, faults, root: tokio::spawn(root) }
    }

    /// kill -9.
    pub fn kill(self) {
        drop(self);
    }

    /// It has ended by itself, which none of them may.
    pub fn has_ended(&self) -> bool {
        self.root.is_finished()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.line.sever();
        self.root.abort();
    }
}

/// The names that Muster answers to here; pods of all but the last are grouped.
pub const SCHEDULER_NAMES: [&str; 2] = ["kai-scheduler", "default-scheduler"];
const LEASES: &str = "muster-system";

/// What the scheduler is told.
pub fn setup() -> Setup {
    Setup {
        scheduler_names: SCHEDULER_NAMES.map(String::from).to_vec(),
        grouped: vec![SCHEDULER_NAMES[0].to_owned()],
        ..Setup::default()
    }
}

fn binder_options() -> muster_binder::Options {
    muster_binder::Options {
        owner: lease::lease_name(SCHEDULER_NAMES[0], ""),
        // The simulation has no controller of resource claims.
        protect_claims: false,
        ..muster_binder::Options::default()
    }
}

fn scheduler_options(mode: BindMode, same_thread: bool) -> muster_scheduler::Options {
    let (settings, policy, _) = setup().read();
    muster_scheduler::Options {
        settings,
        policy,
        mode,
        binder: binder_options(),
        same_thread,
        ..muster_scheduler::Options::default()
    }
}

type Service = BoxFuture<'static, ()>;

fn services(cx: &Context, role: Role, mode: BindMode, same_thread: bool) -> Vec<Service> {
    match role {
        Role::Scheduler => {
            let options = scheduler_options(mode, same_thread);
            let binder = muster_binder::Binder::new(cx.named("muster-scheduler").api, options.binder.clone());
            let mut all: Vec<Service> = Vec::new();
            if mode == BindMode::Inline {
                all.push(Box::pin(muster_binder::service::serve(cx, &binder)));
            }
            all.push(Box::pin(muster_scheduler::start_with(cx, options, binder)));
            all
        }
        Role::Binder => vec![Box::pin(muster_binder::start(cx, binder_options()))],
        Role::Grouper => {
            let scheduler_names = setup().grouped;
            let options = muster_grouper::Options { scheduler_names, ..muster_grouper::Options::default() };
            vec![Box::pin(muster_grouper::start(cx, options))]
        }
        Role::Controllers => {
            let scale = muster_controllers::scale::Options {
                scheduler_names: setup().scheduler_names,
                ..muster_controllers::scale::Options::default()
            };
            vec![
                Box::pin(muster_controllers::status::start(
                    cx,
                    muster_controllers::status::Options::default(),
                )),
                Box::pin(muster_controllers::scale::start(cx, scale)),
            ]
        }
        Role::Sim => Vec::new(),
    }
}

enum Held {
    Names(lease::Claimed),
    Group(Box<lease::Held>),
}

/// What a process of Muster does: it waits for its turn, works while it has it, and waits again when it is lost.
pub async fn run(
    client: kube::Client,
    clock: Clock,
    role: Role,
    mode: BindMode,
    identity: String,
    same_thread: bool,
) {
    let program = CancellationToken::new();
    let (outer, write_events) = Context::new(client.clone(), "muster", clock, program.clone());
    let mut background = JoinSet::new();
    background.spawn(write_events);
    loop {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}});
        // If it cannot be made, taking the lease says so.
        let _ = outer.api.create_path("/api/v1/namespaces", &body).await;
        let held = if role == Role::Scheduler {
            let claim = Claim {
                namespace: LEASES.into(),
                names: SCHEDULER_NAMES.map(String::from).to_vec(),
                shard: String::new(),
                identity: identity.clone(),
                take_over: false,
            };
            match lease::claim(&outer.api, clock, &claim).await {
                Ok(claimed) => Held::Names(claimed),
                Err(_) => {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    continue;
                }
            }
        } else {
            let key = Key::new(LEASES, format!("muster-{}", role.name()));
            let lease = Lease::new(outer.api.clone(), clock, key, identity.clone());
            Held::Group(Box::new(lease.acquire(false).await))
        };
        let term = program.child_token();
        let (cx, write_events) = Context::new(client.clone(), "muster", clock, term.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(write_events);
        for service in services(&cx, role, mode, same_thread) {
            tasks.spawn(service);
        }
        cx.watch(&mut tasks);
        let lost = async {
            match &held {
                Held::Names(claimed) => drop(claimed.lost().await),
                Held::Group(held) => drop(held.lost().await),
            }
        };
        tokio::select! {
            biased;
            () = lost => {}
            ended = tasks.join_next() => {
                // Nothing of Muster ends by itself: the world finds this process ended, and says so.
                eprintln!("a service of {} ended: {ended:?}", role.name());
                return;
            }
        }
        term.cancel();
        while tasks.join_next().await.is_some() {}
        let _ = match held {
            Held::Names(claimed) => claimed.release().await,
            Held::Group(held) => held.release().await,
        };
    }
}
