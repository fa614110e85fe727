//! Muster's services in one process.
//!
//! In: a client, and which services are wanted with what settings. Out: they run until cancelled. `muster run` starts them against any
//! cluster, `muster up` against the embedded one. Must stay true: a scheduler works only while it holds the leases of its names; one that
//! lost them stops deciding at once and waits for its next turn, and what it decided before is no longer written ([`lease::Fence`]). A lease is given up
//! when whoever worked under it has ended, and a service that breaks down by itself again and again has its next turn later and later.

use crate::admission::InProcess;
use crate::tuning::Tuning;
use anyhow::Context as _;
use clap::ValueEnum;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use muster_grove::BackendName;
use muster_runtime::health::{Pages, serve};
use muster_runtime::lease::{self, Claim, ClaimError, Fence, Lease};
use muster_runtime::{Client, Clock, Context, Health, Key, Metrics, metrics};
use muster_scheduler::BindMode;
use muster_scheduler::record::Setup;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A service by the name that `--components` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Component {
    /// Decides where pods go
    Scheduler,
    /// Carries out bind requests: shared GPUs, volumes, device claims
    Binder,
    /// Puts pods into pod groups by their owners
    Grouper,
    /// Keeps the status of pod groups
    Podgroups,
    /// Keeps the status of queues
    Queues,
    /// Checks and completes pods, queues, pod groups and topologies as they are created
    Admission,
    /// Asks autoscalers for what is missing
    ScaleAdjuster,
    /// Turns Config and SchedulingShard objects into Deployments
    Operator,
    /// Converts Kueue's two versions into each other
    Conversion,
    /// Admits Kueue's workloads, and keeps the jobs and pods that wait in its queues
    Kueue,
    /// Keeps PodCliqueSets: cliques, gangs and pods
    Grove,
    /// Tells KAI's scheduler of Grove's gangs
    BackendKai,
    /// Tells Kubernetes' own scheduler of Grove's gangs
    BackendDefault,
    /// Tells Koordinator's scheduler of Grove's gangs
    BackendKoordinator,
    /// Tells Volcano's scheduler of Grove's gangs
    BackendVolcano,
    /// Tells T9k's scheduler of Grove's gangs
    BackendT9k,
    /// Has Muster's scheduler read Grove's gangs
    BackendMuster,
}

impl Component {
    /// Those that one process at a time runs, under one lease.
    const CONTROLLERS: [Self; 6] =
        [Self::Binder, Self::Grouper, Self::Podgroups, Self::Queues, Self::ScaleAdjuster, Self::Operator];

    /// Grove and its backends: each has a lease of its own, so that each can run and be replaced by itself.
    const GROVE: [Self; 7] = [
        Self::Grove,
        Self::BackendKai,
        Self::BackendDefault,
        Self::BackendKoordinator,
        Self::BackendVolcano,
        Self::BackendT9k,
        Self::BackendMuster,
    ];

    /// What runs when nothing else is said.
    pub const DEFAULT: [Self; 15] = [
        Self::Scheduler,
        Self::Binder,
        Self::Grouper,
        Self::Podgroups,
        Self::Queues,
        Self::Admission,
        Self::ScaleAdjuster,
        Self::Kueue,
        Self::Grove,
        Self::BackendKai,
        Self::BackendDefault,
        Self::BackendKoordinator,
        Self::BackendVolcano,
        Self::BackendT9k,
        Self::BackendMuster,
    ];

    fn backend(self) -> Option<BackendName> {
        Some(match self {
            Self::BackendKai => BackendName::Kai,
            Self::BackendDefault => BackendName::Default,
            Self::BackendKoordinator => BackendName::Koordinator,
            Self::BackendVolcano => BackendName::Volcano,
            Self::BackendT9k => BackendName::T9k,
            Self::BackendMuster => BackendName::Muster,
            _ => return None,
        })
    }
}

/// How admission reaches the API server.
#[derive(Clone)]
pub enum Admission {
    /// Over HTTPS, as any webhook.
    Webhooks(Box<muster_webhook::Options>),
    /// By calls, in the embedded server's process.
    InProcess(Arc<InProcess>),
}

/// What to run, and how.
#[derive(Clone)]
pub struct Wanted {
    pub components: BTreeSet<Component>,
    /// Pods that name one of these are ours.
    pub scheduler_names: Vec<String>,
    /// Those of them whose pods are put into groups.
    pub grouped: Vec<String>,
    pub queue_label: String,
    pub node_pool_label: String,
    /// Only this pool; nodes without the label if absent.
    pub pool: Option<String>,
    pub default_queue: String,
    /// KAI's configuration file, or a SchedulingShard.
    pub scheduler_config: Option<Value>,
    /// Volcano's configuration file, for the gangs of its scheduler.
    pub volcano_config: Option<PathBuf>,
    pub bind: BindMode,
    /// Where leases live.
    pub namespace: String,
    pub take_over: bool,
    pub identity: String,
    pub admission: Option<Admission>,
    pub operator_image: String,
    pub reservation_namespace: String,
    pub reservation_service_account: Option<String>,
    pub reservation_image: Option<String>,
    pub reservation_args: Vec<String>,
    pub scale_namespace: String,
    pub scale_image: Option<String>,
    /// Where to write every cycle down.
    pub record: Option<PathBuf>,
    /// Claims in use are kept from being deleted; somebody must take the finalizer off again.
    pub protect_claims: bool,
    pub metrics_address: Option<SocketAddr>,
    pub health_address: Option<SocketAddr>,
    /// How Grove is kept; which backends run here is said by the components.
    pub grove: muster_grove::config::Config,
    pub kueue: muster_kueue::Settings,
    pub tuning: Tuning,
}

/// The name of a component on the command line.
pub fn name(component: Component) -> String {
    component.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl std::fmt::Display for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name(*self))
    }
}

impl Default for Wanted {
    fn default() -> Self {
        let names: Vec<String> = NAMES.map(String::from).into();
        Wanted {
            components: Component::DEFAULT.into(),
            grouped: grouped(&names),
            scheduler_names: names,
            queue_label: "kai.scheduler/queue".into(),
            node_pool_label: "kai.scheduler/node-pool".into(),
            pool: None,
            default_queue: "default-queue".into(),
            scheduler_config: None,
            volcano_config: None,
            bind: BindMode::Inline,
            namespace: "muster-system".into(),
            take_over: false,
            identity: lease::identity(),
            admission: None,
            operator_image: String::new(),
            reservation_namespace: "kai-resource-reservation".into(),
            reservation_service_account: None,
            reservation_image: None,
            reservation_args: vec!["reserve-gpu".into()],
            scale_namespace: "kai-scale-adjust".into(),
            scale_image: None,
            record: None,
            protect_claims: true,
            metrics_address: None,
            health_address: None,
            grove: Default::default(),
            // Nobody is admitted who could not be placed: the scheduler beside it knows.
            kueue: muster_kueue::Settings { require_placement: true, ..Default::default() },
            tuning: Tuning::default(),
        }
    }
}

/// The names that Muster answers to when nothing else is said.
pub const NAMES: [&str; 5] =
    ["muster-scheduler", "kai-scheduler", "volcano", "t9k-scheduler", "koord-scheduler"];

/// Those whose pods are put into KAI's groups. The others have groups of their own; Kubernetes' own scheduler knows none, so whoever
/// stands in for it makes none.
pub fn grouped(names: &[String]) -> Vec<String> {
    let others = ["volcano", "t9k-scheduler", "koord-scheduler", "default-scheduler"];
    names.iter().filter(|name| !others.contains(&name.as_str())).cloned().collect()
}

/// Others' schedulers are waited for so long: longer than a lease lasts that nobody renews.
const HEAD_START: Duration = Duration::from_secs(20);

/// The scheduler of this process as the one who knows whether there is room.
///
/// Where another process has the scheduler's turn, there is nobody to ask. Kueue's turn goes to whoever has the scheduler's if it can ([`Turn::Beside`]);
/// if it cannot, workloads are admitted by quota alone, as where no scheduler is of this process at all, for otherwise nobody would ever be admitted.
struct Beside {
    holds: muster_scheduler::Holds,
    /// Until then it is waited for.
    until: Instant,
    said: AtomicBool,
}

impl Beside {
    fn new(holds: muster_scheduler::Holds) -> Self {
        Beside { holds, until: Instant::now() + HEAD_START, said: AtomicBool::new(false) }
    }

    /// Whether the scheduler of this process works, once it had its time to begin. What changes is said.
    async fn is_here(&self) -> bool {
        let is_here = tokio::time::timeout_at(self.until, self.holds.working()).await.is_ok();
        let was_said = self.said.swap(!is_here, Ordering::Relaxed);
        match (is_here, was_said) {
            (false, false) => tracing::warn!(
                "the scheduler that works is in another process and cannot be asked for room: Kueue's workloads are admitted by quota alone"
            ),
            (true, true) => {
                tracing::info!("the scheduler is asked for room again before workloads are admitted")
            }
            _ => {}
        }
        is_here
    }
}

impl muster_kueue::Room for Beside {
    fn hold(
        &self,
        ask: muster_kueue::room::Ask,
    ) -> futures::future::BoxFuture<'_, muster_kueue::room::Answer> {
        let set = |set: muster_kueue::room::AskSet| muster_scheduler::HoldSet {
            count: u32::try_from(set.count).unwrap_or(u32::MAX),
            template: set.template,
        };
        let hold = muster_scheduler::Hold {
            name: model_key(&ask.workload),
            uid: ask.uid,
            sets: ask.sets.into_iter().map(set).collect(),
        };
        Box::pin(async move {
            if !self.is_here().await {
                return muster_kueue::room::Answer::Held;
            }
            match self.holds.hold(hold).await {
                Ok(()) => muster_kueue::room::Answer::Held,
                Err(why) => muster_kueue::room::Answer::Refused(why),
            }
        })
    }

    fn give_back(&self, workload: &Key) {
        self.holds.give_back(&model_key(workload));
    }

    fn changed(&self) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(self.holds.changed())
    }
}

fn model_key(key: &Key) -> muster_model::Key {
    muster_model::Key::new(key.namespace.as_str(), key.name.as_str())
}

/// Runs the services until cancelled, or until one cannot go on.
pub async fn run(
    client: impl Into<Client>,
    clock: Clock,
    wanted: Wanted,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let client = client.into();
    let cancel = cancel.child_token();
    let _ends_with_us = cancel.clone().drop_guard();
    let holds = muster_scheduler::Holds::default();
    let mut options = scheduler_options(&wanted);
    options.holds = Some(holds.clone());
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let metrics = Metrics::new(metrics::PREFIX, &families(&wanted.components));
    let health = Health::default();
    let (cx, write_events) =
        Context::reporting(client.clone(), "muster", clock, cancel.clone(), metrics.clone(), health.clone());
    for address in pages(&wanted) {
        let (at, server) =
            serve(address, Pages::new(health.clone(), metrics.clone()), cancel.clone()).await?;
        tracing::info!("metrics and probes at http://{at}");
        tasks.spawn(without_end(server));
    }
    tasks.spawn(without_end(write_events));
    let has = |component| wanted.components.contains(&component);
    let foresight = Foreseen::default();
    if has(Component::Admission)
        && let Some(admission) = wanted.admission.clone()
    {
        match admission {
            Admission::Webhooks(mut options) => {
                options.grouper = Some(grouper_at_admission(&foresight));
                options.settings = admission_settings(&wanted, options.settings);
                wanted.tuning.registration(&mut options.registration);
                drop(tasks.spawn(without_end(muster_webhook::start(&cx, *options))))
            }
            Admission::InProcess(hook) => {
                let settings = admission_settings(&wanted, muster_webhook::Settings::default());
                let (world, filled) = muster_webhook::Watched::with(&cx, &settings);
                let grouper = Some(grouper_at_admission(&foresight));
                hook.begin(muster_webhook::Reviewer { settings: Arc::new(settings), world, grouper });
                tasks.spawn(without_end(filled));
            }
        }
    }
    for watch in cx.stores.take_watches() {
        tasks.spawn(without_end(watch));
    }
    let mut controllers: BTreeSet<Component> =
        wanted.components.intersection(&Component::CONTROLLERS.into()).copied().collect();
    if has(Component::Scheduler) {
        let claim = Claim {
            namespace: wanted.namespace.clone(),
            names: wanted.scheduler_names.clone(),
            shard: wanted.pool.clone().unwrap_or_default(),
            identity: wanted.identity.clone(),
            take_over: wanted.take_over,
        };
        // A binder beside the scheduler knows what the scheduler is binding by itself.
        let serves = controllers.remove(&Component::Binder);
        let start: Start = Box::new(move |cx| {
            if let Some((file, _)) = &options.record {
                move_aside(file);
            }
            let binder = muster_binder::Binder::new(cx.named("muster-scheduler").api, options.binder.clone());
            let mut services: Vec<Service> = Vec::new();
            if serves {
                services.push(Box::pin(muster_binder::service::serve(cx, &binder)));
            } else {
                services.push(Box::pin(muster_binder::service::serve_own(cx, &binder)));
            }
            services.push(Box::pin(muster_scheduler::start_with(cx, options.clone(), binder)));
            services
        });
        tasks.spawn(in_turn(cx.clone(), client.clone(), Turn::Names(claim), start));
    }
    let grove: BTreeSet<Component> =
        wanted.components.intersection(&Component::GROVE.into()).copied().collect();
    if !grove.is_empty() {
        let leases = grove.iter().map(|component| {
            let key = Key::new(&wanted.namespace, format!("muster-{component}"));
            Lease::new(cx.api.clone(), clock, key, wanted.identity.clone())
        });
        let turn = Turn::Each(wanted.namespace.clone(), leases.collect());
        let options = grove_options(&wanted, &grove);
        let start: Start =
            Box::new(move |cx| vec![Box::pin(muster_grove::start(cx, options.clone())) as Service]);
        tasks.spawn(in_turn(cx.clone(), client.clone(), turn, start));
    }
    if has(Component::Kueue) {
        let key = Key::new(&wanted.namespace, "muster-kueue");
        let lease = Box::new(Lease::new(cx.api.clone(), clock, key, wanted.identity.clone()));
        let mut settings = wanted.kueue.clone();
        // Only a scheduler in this process can be asked.
        settings.require_placement &= has(Component::Scheduler);
        let turn =
            if settings.require_placement { Turn::Beside(lease, holds.clone()) } else { Turn::Group(lease) };
        let start: Start = Box::new(move |cx| {
            let room = Arc::new(Beside::new(holds.clone()));
            vec![Box::pin(muster_kueue::start(cx, settings.clone(), room)) as Service]
        });
        tasks.spawn(in_turn(cx.clone(), client.clone(), turn, start));
    }
    if !controllers.is_empty() {
        let names: Vec<String> = controllers.iter().map(|c| name(*c)).collect();
        let key = Key::new(&wanted.namespace, format!("muster-{}", names.join("-")));
        let lease = Lease::new(cx.api.clone(), clock, key, wanted.identity.clone());
        let start: Start = Box::new(move |cx| start_controllers(cx, &wanted, &controllers, &foresight));
        tasks.spawn(in_turn(cx.clone(), client, Turn::Group(Box::new(lease)), start));
    }
    loop {
        let too_long = async {
            cancel.cancelled().await;
            tokio::time::sleep(LETTING_GO).await;
        };
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => return Ok(()),
                Some(ended) => ended.context("a service broke down")??,
            },
            () = too_long => return Ok(()),
        }
    }
}

/// How long services have to let go of what they hold.
const LETTING_GO: Duration = Duration::from_secs(5);

/// What the grouper of this process knows of pods to come, while it is this process's turn.
type Foreseen = Arc<RwLock<Option<muster_grouper::Foresight>>>;

/// Puts pods into their groups as they are created, where the grouper runs in this process and knows them: one write less for each.
fn grouper_at_admission(foresight: &Foreseen) -> muster_webhook::Grouper {
    use muster_grouper::keys::{GROUP, SUBGROUP};
    let foresight = foresight.clone();
    Arc::new(move |pod| {
        let known = foresight.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let member = known.of(pod)?;
        let mut membership = muster_webhook::Membership::default();
        membership.annotations.insert(GROUP.to_owned(), member.group);
        membership.labels.extend(member.subgroup.map(|name| (SUBGROUP.to_owned(), name)));
        Some(membership)
    })
}

/// What admission is told, in whichever way it is asked. Pods of systems with rules of their own are not judged by KAI's.
fn admission_settings(wanted: &Wanted, base: muster_webhook::Settings) -> muster_webhook::Settings {
    let mut settings = muster_webhook::Settings {
        scheduler_names: wanted.grouped.clone(),
        queue_label: wanted.queue_label.clone(),
        grove: grove_rules(wanted),
        kueue: Some(wanted.kueue.managed.clone()),
        ..base
    };
    for own in [&wanted.namespace, &wanted.reservation_namespace, &wanted.scale_namespace] {
        if !settings.is_exempt(own) {
            settings.exempt_namespaces.push(own.clone());
        }
    }
    wanted.tuning.admission(&mut settings);
    settings
}

/// What admission knows of Grove's rules. Muster's own accounts may change what it made.
fn grove_rules(wanted: &Wanted) -> muster_webhook::Grove {
    let config = &wanted.grove;
    let mut users = config.exempt_users.clone();
    users.push(format!("system:serviceaccount:{}:*", wanted.namespace));
    muster_webhook::Grove { options: config.options.clone(), protect: config.protect, users }
}

fn grove_options(wanted: &Wanted, components: &BTreeSet<Component>) -> muster_grove::Options {
    let mut options = wanted.grove.options.clone();
    options.front = components.contains(&Component::Grove);
    let here = components.iter().filter_map(|component| component.backend());
    options.backends = here.filter(|name| options.enabled.contains(name)).collect();
    options
}

type Service = futures::future::BoxFuture<'static, ()>;
type Start = Box<dyn Fn(&Context) -> Vec<Service> + Send + Sync>;

async fn without_end(service: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
    service.await;
    Ok(())
}

/// The controllers of this process, on one set of stores.
fn start_controllers(
    cx: &Context,
    wanted: &Wanted,
    components: &BTreeSet<Component>,
    foresight: &Foreseen,
) -> Vec<Service> {
    let has = |component| components.contains(&component);
    let mut services: Vec<Service> = Vec::new();
    if has(Component::Grouper) {
        let mut options = muster_grouper::Options {
            scheduler_names: wanted.grouped.clone(),
            queue_label: wanted.queue_label.clone(),
            node_pool_label: wanted.node_pool_label.clone(),
            default_queue: wanted.default_queue.clone(),
            ..Default::default()
        };
        wanted.tuning.grouper(&mut options);
        let (known, service) = muster_grouper::start_with_foresight(cx, options);
        *foresight.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        services.push(Box::pin(service));
    }
    if has(Component::Binder) {
        services.push(Box::pin(muster_binder::start(cx, binder_options(wanted))));
    }
    if has(Component::Podgroups) || has(Component::Queues) {
        let options = muster_controllers::status::Options {
            podgroups: has(Component::Podgroups),
            queues: has(Component::Queues),
            ..Default::default()
        };
        services.push(Box::pin(muster_controllers::status::start(cx, options)));
        // Where the two are processes of their own, each writes what is its part.
        let options = muster_controllers::dialects::Options {
            scheduler_names: wanted.scheduler_names.clone(),
            groups: has(Component::Podgroups),
            queues: has(Component::Queues),
            ..Default::default()
        };
        services.push(Box::pin(muster_controllers::dialects::start(cx, options)));
    }
    if has(Component::ScaleAdjuster) {
        let mut options = muster_controllers::scale::Options {
            scheduler_names: wanted.scheduler_names.clone(),
            namespace: wanted.scale_namespace.clone(),
            ..Default::default()
        };
        if let Some(image) = &wanted.scale_image {
            options.image = image.clone();
        }
        wanted.tuning.scale(&mut options);
        services.push(Box::pin(muster_controllers::scale::start(cx, options)));
    }
    if has(Component::Operator) {
        let options = muster_install::operator::Options {
            image: wanted.operator_image.clone(),
            namespace: wanted.namespace.clone(),
        };
        services.push(Box::pin(muster_install::operator::start(cx, options)));
    }
    services
}

/// Whose turn it is to do something that one process at a time may do.
enum Turn {
    Names(Claim),
    Group(Box<Lease>),
    /// The same for those who ask the scheduler of this process: they begin when it works and end with it, so that the turn goes where the scheduler's
    /// went. When it does not begin to work for a while, they begin without it.
    Beside(Box<Lease>, muster_scheduler::Holds),
    /// A lease for each of several things that are done together, in this namespace.
    Each(String, Vec<Lease>),
}

enum Held {
    Names(lease::Claimed),
    Group(Box<lease::Held>),
    Beside(Box<lease::Held>, muster_scheduler::Holds),
    Each(Vec<lease::Held>),
}

impl Turn {
    fn namespace(&self) -> &str {
        match self {
            Turn::Names(claim) => &claim.namespace,
            Turn::Group(lease) | Turn::Beside(lease, _) => &lease.key.namespace,
            Turn::Each(namespace, _) => namespace,
        }
    }

    async fn take(&mut self, cx: &Context) -> Result<Held, ClaimError> {
        match self {
            Turn::Names(claim) => {
                let claimed = lease::claim(&cx.api, cx.clock, claim).await?;
                // Whoever takes the names over later keeps them until it lets go.
                claim.take_over = false;
                Ok(Held::Names(claimed))
            }
            Turn::Group(lease) => Ok(Held::Group(Box::new(lease.acquire(false).await))),
            Turn::Beside(lease, holds) => {
                // The process whose scheduler works comes first.
                let _ = tokio::time::timeout(HEAD_START, holds.working()).await;
                Ok(Held::Beside(Box::new(lease.acquire(false).await), holds.clone()))
            }
            Turn::Each(_, leases) => loop {
                if let Some(held) = take_all(leases).await {
                    return Ok(Held::Each(held));
                }
                // Others want some of the same: let them have all that they need.
                let sum = leases.iter().flat_map(|lease| lease.identity.bytes()).map(u64::from).sum::<u64>();
                tokio::time::sleep(Duration::from_millis(sum % 5000)).await;
            },
        }
    }
}

impl Held {
    /// For the client of those who work while it is held.
    fn fence(&self) -> Fence {
        match self {
            Held::Names(claimed) => claimed.fence(),
            Held::Group(held) | Held::Beside(held, _) => held.fence(),
            Held::Each(held) => Fence::all(held.iter().map(lease::Held::fence)),
        }
    }

    async fn lost(&self) -> String {
        match self {
            Held::Names(claimed) => claimed.lost().await.to_string(),
            Held::Group(held) => held.lost().await.to_string(),
            Held::Beside(held, holds) => tokio::select! {
                why = held.lost() => why.to_string(),
                () = holds.stopped() => "the scheduler beside it has stopped".to_owned(),
            },
            Held::Each(held) => {
                let (why, ..) =
                    futures::future::select_all(held.iter().map(|held| Box::pin(held.lost()))).await;
                why.to_string()
            }
        }
    }

    async fn release(self) {
        let released = match self {
            Held::Names(claimed) => claimed.release().await,
            Held::Group(held) | Held::Beside(held, _) => held.release().await,
            Held::Each(held) => {
                let released = futures::future::join_all(held.into_iter().map(lease::Held::release)).await;
                released.into_iter().collect()
            }
        };
        if let Err(error) = released {
            tracing::debug!(%error, "a lease was not released");
        }
    }
}

/// How long a process holds some of its leases while it waits for the others.
const HALF_WAY: Duration = Duration::from_secs(45);

/// Takes leases, all at a time: the leases of a process that died run out together. `None` when others have some of them and do not
/// let go; what was had is given back, since they may wait for just that.
async fn take_all(leases: &[Lease]) -> Option<Vec<lease::Held>> {
    let mut waiting: FuturesUnordered<_> = leases.iter().map(|lease| lease.acquire(false)).collect();
    let mut held: Vec<lease::Held> = Vec::new();
    held.extend(waiting.next().await);
    let until = Instant::now() + HALF_WAY;
    while let Ok(next) = tokio::time::timeout_at(until, waiting.next()).await {
        match next {
            Some(next) => held.push(next),
            None => return Some(held),
        }
    }
    for held in held {
        if let Err(error) = held.release().await {
            tracing::debug!(%error, "a lease was not released");
        }
    }
    None
}

/// Waits for its turn, works while it lasts, and waits for the next one when it is lost.
async fn in_turn(process: Context, client: Client, mut turn: Turn, start: Start) -> anyhow::Result<()> {
    let cancel = process.cancel.clone();
    let mut n_breakdowns = 0_u32;
    loop {
        // Somebody may have deleted the namespace with the leases in it.
        ensure_namespace(&process.api, turn.namespace()).await;
        let held = match cancel.run_until_cancelled(turn.take(&process)).await {
            None => return Ok(()),
            Some(Ok(held)) => held,
            Some(Err(error @ ClaimError::Answered(_))) => return Err(error.into()),
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot claim the scheduler's names yet");
                tokio::time::sleep(Duration::from_secs(2)).await;
                continue;
            }
        };
        let term = cancel.child_token();
        let begun = Instant::now();
        let metrics = process.metrics.for_term();
        let (cx, write_events) = Context::reporting(
            client.clone().fenced(held.fence()),
            "muster",
            process.clock,
            term.clone(),
            metrics.clone(),
            process.health.clone(),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(write_events);
        for service in start(&cx) {
            tasks.spawn(service);
        }
        cx.watch(&mut tasks);
        let ended = tokio::select! {
            // Services that end because everything does have not broken down.
            biased;
            () = cancel.cancelled() => None,
            why = held.lost() => Some((why, false)),
            broken = tasks.join_next() => Some(match broken {
                Some(Err(error)) => (format!("a service broke down: {error}"), true),
                _ => ("a service ended".to_owned(), true),
            }),
        };
        term.cancel();
        end(tasks).await;
        let Some((why, is_own_fault)) = ended else {
            // The next in line need not wait for the lease to run out.
            held.release().await;
            return Ok(());
        };
        // What this process knew of the cluster grows old from here on, and the next in line says it anew.
        metrics.end_term();
        tracing::error!("{why}; waiting for the next turn");
        held.release().await;
        if begun.elapsed() >= GOOD_TERM {
            n_breakdowns = 0;
        }
        if is_own_fault {
            let rest = rest(n_breakdowns);
            n_breakdowns = n_breakdowns.saturating_add(1);
            tracing::warn!("the next turn is claimed in {} s", rest.as_secs());
            if cancel.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                return Ok(());
            }
        }
    }
}

/// After a term of this length what ended the one before is forgotten.
const GOOD_TERM: Duration = Duration::from_secs(600);

/// How long after a term that ended by itself the next turn is claimed: 1 s, 2 s, ... 2 min. Others may take it meanwhile; and whatever broke the service will
/// often still be there.
fn rest(n_breakdowns: u32) -> Duration {
    Duration::from_secs(1 << n_breakdowns.min(7)).min(Duration::from_secs(120))
}

/// How long the tasks of a term have to end: less than [`LETTING_GO`], so that their leases are released all the same.
const ENDING: Duration = Duration::from_secs(3);

/// Waits until the tasks of a term have ended; those that do not end are cut off. (A thread that one of them blocks cannot be; whatever comes out of it later
/// the fence stops.)
async fn end(mut tasks: JoinSet<()>) {
    async fn all(tasks: &mut JoinSet<()>) {
        while tasks.join_next().await.is_some() {}
    }
    if tokio::time::timeout(ENDING, all(&mut tasks)).await.is_err() {
        tracing::warn!("{} tasks did not end in time and are cut off", tasks.len());
        tasks.abort_all();
        let _ = tokio::time::timeout(Duration::from_millis(500), all(&mut tasks)).await;
    }
}

/// A recording that is there is another term's, perhaps that of a scheduler that crashed: it gets the first free of the names FILE.1, FILE.2, ... What is not
/// a file (a pipe, a terminal) is written to as it is.
fn move_aside(file: &Path) {
    if !std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
        return;
    }
    let free = (1..=u32::MAX)
        .map(|n| {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".{n}"));
            PathBuf::from(name)
        })
        .find(|name| !name.exists());
    let moved = free.map(|free| std::fs::rename(file, &free).map(|()| free));
    match moved {
        Some(Ok(free)) => tracing::info!("the recording from before is kept as {}", free.display()),
        Some(Err(error)) => {
            tracing::error!(%error, "the recording from before cannot be kept: {}", file.display());
        }
        None => {}
    }
}

/// The families of metrics that these components have something to say in.
fn families(components: &BTreeSet<Component>) -> Vec<metrics::Service> {
    let mut families = vec![metrics::Service::Process];
    for component in components {
        families.extend_from_slice(match component {
            // It binds by itself.
            Component::Scheduler => &[metrics::Service::Scheduler, metrics::Service::Binder],
            Component::Binder => &[metrics::Service::Binder],
            Component::Queues => &[metrics::Service::Queues],
            Component::Kueue => &[metrics::Service::Kueue],
            other if Component::GROVE.contains(other) => &[metrics::Service::Grove],
            _ => &[],
        });
    }
    families
}

fn binder_options(wanted: &Wanted) -> muster_binder::Options {
    let shard = wanted.pool.as_deref().unwrap_or_default();
    let owner =
        wanted.scheduler_names.first().map_or_else(String::new, |name| lease::lease_name(name, shard));
    let mut options = muster_binder::Options {
        owner,
        protect_claims: wanted.protect_claims,
        pool_label: Some(wanted.node_pool_label.clone()),
        ..Default::default()
    };
    let reservation = &mut options.reservation;
    reservation.namespace = wanted.reservation_namespace.clone();
    if let Some(account) = &wanted.reservation_service_account {
        reservation.service_account = account.clone();
    }
    if let Some(image) = &wanted.reservation_image {
        reservation.image = image.clone();
        reservation.args = wanted.reservation_args.clone();
    }
    wanted.tuning.binder(&mut options);
    options
}

/// The settings and the policy of the scheduler; what makes no sense in a configuration file is said once.
fn scheduler_options(wanted: &Wanted) -> muster_scheduler::Options {
    let setup = Setup {
        scheduler_names: wanted.scheduler_names.clone(),
        grouped: wanted.grouped.clone(),
        queue_label: wanted.queue_label.clone(),
        node_pool_label: wanted.node_pool_label.clone(),
        pool: wanted.pool.clone(),
        default_queue: wanted.default_queue.clone(),
        config: wanted.scheduler_config.clone(),
        ..Setup::default()
    };
    let (settings, policy, diagnostics) = setup.read();
    for diagnostic in diagnostics {
        eprintln!("warning: {diagnostic}");
    }
    muster_scheduler::Options {
        settings,
        policy,
        mode: wanted.bind,
        binder: binder_options(wanted),
        volcano_config: wanted.volcano_config.clone(),
        record: wanted.record.clone().map(|file| (file, setup)),
        ..Default::default()
    }
}

/// Where metrics and probes are served; one server if both are at one address.
fn pages(wanted: &Wanted) -> BTreeSet<SocketAddr> {
    wanted.metrics_address.into_iter().chain(wanted.health_address).collect()
}

/// The namespace of the leases. Whoever may not create namespaces may still find it there; if not, taking the lease will say so.
async fn ensure_namespace(api: &muster_runtime::Api, name: &str) {
    let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    if let Err(error) = api.create_path("/api/v1/namespaces", &body).await
        && !error.already_exists()
    {
        tracing::debug!(%error, "namespace {name} was not created");
    }
}

/// Creates the queues and priority classes that work without more words needs; what is there stays as it is.
pub async fn create_defaults(client: impl Into<Client>) -> anyhow::Result<()> {
    let api = muster_runtime::Api::new(client, "muster");
    let create = async |collection: &str, object: &Value| match api.create_path(collection, object).await {
        Ok(_) => Ok(()),
        Err(error) if error.already_exists() => Ok(()),
        // The CRD of queues may have been left out.
        Err(error) if error.not_found() => Ok(()),
        Err(error) => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            Err(anyhow::anyhow!("cannot create {name}: {}", error.message()))
        }
    };
    // Volcano's scheduler makes this queue when it starts.
    let of_volcano = serde_json::json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"},
        "spec": {"weight": 1, "reclaimable": true},
    });
    create("/apis/scheduling.volcano.sh/v1beta1/queues", &of_volcano).await?;
    for object in muster_install::priority_classes().into_iter().chain(muster_install::default_queues(-1)) {
        let path = muster_install::path(&object).context("an object without a path")?;
        let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
        create(collection, &object).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_apiserver::ApiServer;
    use muster_runtime::Api;
    use serde_json::json;
    use std::sync::Mutex;

    fn server() -> ApiServer {
        let server = ApiServer::new(muster_apiserver::Options::default());
        server.install_crds(muster_api::crd::crds(None)).unwrap();
        server
    }

    fn context(server: &ApiServer) -> (Context, CancellationToken) {
        let cancel = CancellationToken::new();
        let (cx, _) = Context::new(Client::near(server.clone()), "test", Clock::system(), cancel.clone());
        (cx, cancel)
    }

    fn turn(cx: &Context) -> Turn {
        Turn::Group(Box::new(Lease::new(cx.api.clone(), cx.clock, Key::new("muster-system", "work"), "a")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_ends_again_and_again_begins_later_and_later() {
        let server = server();
        let (cx, cancel) = context(&server);
        let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let start: Start = {
            let begun = begun.clone();
            Box::new(move |_| {
                begun.lock().unwrap().push(Instant::now());
                vec![Box::pin(std::future::ready(())) as Service]
            })
        };
        let terms = tokio::spawn(in_turn(cx.clone(), Client::near(server), turn(&cx), start));
        tokio::time::sleep(Duration::from_secs(600)).await;
        let begun = begun.lock().unwrap().clone();
        let waits: Vec<u64> = begun.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
        cancel.cancel();
        terms.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_released_when_those_who_work_under_it_have_ended() {
        let server = server();
        // How long a service goes on after it is told to end, and how long its lease is held then.
        for (goes_on, expected) in [(0, 0), (2, 2), (60, 3)] {
            let (cx, cancel) = context(&server);
            let start: Start = Box::new(move |cx| {
                let ends = cx.cancel.clone();
                vec![Box::pin(async move {
                    ends.cancelled().await;
                    tokio::time::sleep(Duration::from_secs(goes_on)).await;
                }) as Service]
            });
            let terms = tokio::spawn(in_turn(cx.clone(), Client::near(server.clone()), turn(&cx), start));
            let lease = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/work";
            let holder = async || {
                let lease = cx.api.get_path(lease).await.unwrap();
                lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
            };
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(holder().await, "a");
            cancel.cancel();
            let told = Instant::now();
            while holder().await == "a" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(told.elapsed().as_secs(), expected, "{goes_on}");
            terms.await.unwrap().unwrap();
        }
    }

    /// The conditions of a workload that are true.
    async fn conditions(api: &Api, name: &str) -> Vec<String> {
        let path = format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/{name}");
        let workload = api.get_path(&path).await.unwrap();
        let all = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|c| c["status"] == "True").map(|c| c["type"].as_str().unwrap().to_owned()).collect()
    }

    async fn is_admitted_within(api: &Api, name: &str, limit: Duration) -> bool {
        let admitted = async {
            while !conditions(api, name).await.contains(&"Admitted".to_owned()) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(limit, admitted).await.is_ok()
    }

    async fn create_workload(api: &Api, name: &str, cpu: &str) {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i",
            "resources": {"requests": {"cpu": cpu}}}]});
        let workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
            "spec": {"queueName": "local", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}]}});
        api.create_path("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads", &workload)
            .await
            .unwrap();
    }

    /// A cluster with one node of four cores and quota for a hundred.
    async fn cluster() -> (ApiServer, Api) {
        let server = server();
        let background = server.clone();
        tokio::spawn(async move { background.run().await });
        let api = Api::new(Client::near(server.clone()), "test");
        let kueue = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "any",
            "resources": [{"name": "cpu", "nominalQuota": "100"}]}]}]);
        let group = "/apis/kueue.x-k8s.io/v1beta2";
        for (path, object) in [
            ("/api/v1/nodes".to_owned(), node),
            (format!("{group}/resourceflavors"), kueue("ResourceFlavor", "any", json!({}))),
            (
                format!("{group}/clusterqueues"),
                kueue("ClusterQueue", "cluster", json!({"namespaceSelector": {}, "resourceGroups": quota})),
            ),
            (
                format!("{group}/namespaces/default/localqueues"),
                kueue("LocalQueue", "local", json!({"clusterQueue": "cluster"})),
            ),
        ] {
            api.create_path(&path, &object).await.unwrap();
        }
        // New nodes are tainted until a controller finds them ready; there is none.
        let ready = json!({"spec": {"taints": null}});
        api.patch_path("/api/v1/nodes/n", muster_runtime::api::Patch::Merge, &ready).await.unwrap();
        (server, api)
    }

    fn start(server: &ApiServer, identity: &str, components: &[Component]) -> CancellationToken {
        let cancel = CancellationToken::new();
        let wanted = Wanted {
            components: components.iter().copied().collect(),
            identity: identity.into(),
            ..Wanted::default()
        };
        tokio::spawn(run(Client::near(server.clone()), Clock::system(), wanted, cancel.clone()));
        cancel
    }

    async fn await_holder(api: &Api, lease: &str, expected: &str) {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/{lease}");
        let is_held = async {
            while api.get_path(&path).await.unwrap_or_default()["spec"]["holderIdentity"] != expected {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_held).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn kueue_goes_where_the_scheduler_is() {
        let (server, api) = cluster().await;
        let both = [Component::Scheduler, Component::Kueue];
        let first = start(&server, "a", &both);
        create_workload(&api, "fits", "3").await;
        create_workload(&api, "too-big", "5").await;
        assert!(is_admitted_within(&api, "fits", Duration::from_secs(60)).await);
        let _second = start(&server, "b", &both);
        first.cancel();
        for lease in ["kai-scheduler", "muster-kueue"] {
            await_holder(&api, lease, "b").await;
        }
        create_workload(&api, "next", "1").await;
        assert!(is_admitted_within(&api, "next", Duration::from_secs(60)).await, "the other goes on with it");
        let too_big = conditions(&api, "too-big").await;
        assert!(!too_big.contains(&"QuotaReserved".to_owned()), "there is quota, and no place");
    }

    #[tokio::test(start_paused = true)]
    async fn kueue_admits_by_quota_where_another_process_has_the_scheduler() {
        let (server, api) = cluster().await;
        let _scheduler = start(&server, "a", &[Component::Scheduler]);
        await_holder(&api, "kai-scheduler", "a").await;
        let _kueue = start(&server, "b", &[Component::Scheduler, Component::Kueue]);
        create_workload(&api, "fits", "3").await;
        assert!(is_admitted_within(&api, "fits", Duration::from_secs(120)).await);
    }

    #[test]
    fn a_recording_from_before_is_kept() {
        let folder = std::env::temp_dir().join(format!("muster-aside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("cycles");
        move_aside(&file);
        for text in ["first", "", "second", "third"] {
            std::fs::write(&file, text).unwrap();
            move_aside(&file);
        }
        move_aside(Path::new("/dev/null"));
        let mut kept: Vec<(String, String)> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (path.file_name().unwrap().to_string_lossy().into(), std::fs::read_to_string(&path).unwrap())
            })
            .collect();
        kept.sort();
        let expected = [("cycles.1", "first"), ("cycles.2", "second"), ("cycles.3", "third")];
        assert_eq!(kept, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert!(Path::new("/dev/null").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_process_shows_what_its_components_measure() {
        let shown = |components: &[Component]| {
            Metrics::new(metrics::PREFIX, &families(&components.iter().copied().collect())).text()
        };
        let admission = shown(&[Component::Admission]);
        assert!(admission.contains("muster_build_info") && !admission.contains("muster_cycle_seconds"));
        let scheduler = shown(&[Component::Scheduler]);
        assert!(scheduler.contains("muster_cycle_seconds") && scheduler.contains("muster_bind_seconds"));
        let all = shown(&Component::DEFAULT);
        for line in Metrics::default().text().lines().filter(|line| line.starts_with("# TYPE")) {
            assert!(all.contains(line), "{line}");
        }
    }
}
