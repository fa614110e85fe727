//! `muster doctor`: finds what operators hunt for by hand.
//!
//! In: a snapshot, and what else tells whether Muster's components are well (leases, webhook configurations, CRDs). Out: findings, each
//! with a stable id, a severity, the object, what is wrong and a command that mends it. Must stay true: looking changes nothing; `--fix`
//! deletes only what nobody uses, and only the very object that was seen; what may be a matter of a moment is looked at twice; what may
//! not be read is neither well nor wrong, and is said.

use crate::Exit;
use crate::live::{self, Format, LeftOut, Link, Schedulers, Seen, Snapshot, Target, list};
use crate::system;
use crate::up::runtime;
use crate::view::{self, GPUS, RESOURCES, State, Trio, key_of};
use jiff::{SignedDuration, Timestamp};
use k8s_quantity::Quantity;
use muster_api::crd;
use muster_grouper::keys::TOP_OWNER;
use muster_model::{Bound, Dialect, Grace, Key, Name, PodState, Reason, Resource, Span};
use muster_runtime::Api;
use muster_runtime::api::Delete;
use muster_runtime::lease::{HELD_BY, SCHEDULER_NAME, lease_name};
use muster_scenario::words;
use muster_scheduler::ingest::resource;
use muster_translate::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster doctor                    what is wrong, and how to mend it\n  muster doctor --fix              also delete what nobody uses: bind requests, pod groups, reservation pods\n  muster doctor --list             every check, by its id\n  muster doctor -o json | jq '.findings[].check'\n\nExit code: 0 if every check was looked at and there are no errors (there may be warnings), 1 otherwise. The ClusterRole\nmuster-platform-admin lets one look at everything."
)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    /// Delete what nobody uses any more, saying so
    #[arg(long)]
    fix: bool,
    /// Only these checks
    #[arg(long, value_delimiter = ',', value_name = "ID,ID")]
    check: Vec<String>,
    /// List the checks and end
    #[arg(long)]
    list: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something does not work, and will not by itself.
    Error,
    /// Something looks wrong, or is about to be.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// Every check: its id, which never changes, and what it finds.
pub const CHECKS: &[(&str, &str)] = &[
    ("scheduler-absent", "pods wait for a scheduler name that nobody holds a lease for"),
    (
        "component-unavailable",
        "a Deployment of Muster has fewer replicas available than it wants, or wants none",
    ),
    ("lease-stale", "a component of Muster holds a lease and has stopped renewing it"),
    ("webhook-unreachable", "a webhook configuration of Muster points at a service that is not there"),
    ("crd-missing", "a kind that Muster needs is not installed"),
    ("crd-outdated", "an installed kind lacks versions or fields that this Muster has"),
    ("queue-missing", "a gang waits in a queue that does not exist"),
    ("queue-not-leaf", "a gang waits in a queue that has queues below it"),
    ("queue-orphan", "a queue hangs from a parent that does not exist, or in a circle"),
    ("queue-quota", "the queues below one deserve more together than it does"),
    ("queue-status", "the status of a queue says something else than its pods"),
    ("podgroup-missing", "a pod waits for a PodGroup that does not exist"),
    ("pod-ungrouped", "a pod waits to be put into a group, and nobody does"),
    ("pod-terminating", "a pod should have been gone for long"),
    ("pod-gated", "a scheduling gate has held a pod back for long"),
    ("gang-below-minimum", "a gang runs with fewer pods than its minimum beyond its grace"),
    ("gang-incomplete", "a gang has waited for long for pods that nobody makes"),
    ("bind-failed", "a bind request has failed for good"),
    ("bind-pending", "a bind request is not done after two minutes"),
    ("bind-orphan", "a bind request is for a pod that is gone or over"),
    ("podgroup-orphan", "a pod group has no pods and no owner"),
    ("reservation-unused", "a reservation pod holds a GPU that nobody shares"),
    ("reservation-missing", "a pod shares a GPU that no reservation pod holds"),
    ("object-invalid", "an object says something that makes no sense"),
];

/// The lists that a check looks at, as `kubectl api-resources` names them. Without one of them it says nothing.
const LISTS: &[(&str, &[&str])] = &[
    ("scheduler-absent", &[LEASES, "pods"]),
    ("component-unavailable", &[DEPLOYMENTS]),
    ("lease-stale", &[LEASES]),
    ("webhook-unreachable", &[VALIDATING, MUTATING, "services", SLICES]),
    ("crd-missing", &[DEFINITIONS]),
    ("crd-outdated", &[DEFINITIONS]),
    ("queue-missing", &["pods", "nodes", PODGROUPS, QUEUES]),
    ("queue-not-leaf", &["pods", "nodes", PODGROUPS, QUEUES]),
    ("queue-orphan", &[QUEUES]),
    ("queue-quota", &[QUEUES]),
    ("queue-status", &["pods", "nodes", PODGROUPS, QUEUES]),
    ("podgroup-missing", &["pods", PODGROUPS]),
    ("pod-ungrouped", &["pods"]),
    ("pod-terminating", &["pods", "nodes"]),
    ("pod-gated", &["pods"]),
    ("gang-below-minimum", &["pods", "nodes", PODGROUPS]),
    ("gang-incomplete", &["pods", "nodes", PODGROUPS]),
    ("bind-failed", &["pods", BINDREQUESTS]),
    ("bind-pending", &["pods", BINDREQUESTS]),
    ("bind-orphan", &["pods", BINDREQUESTS]),
    ("podgroup-orphan", &["pods", PODGROUPS]),
    ("reservation-unused", &["pods", BINDREQUESTS]),
    ("reservation-missing", &["pods"]),
    ("object-invalid", &["pods", "nodes", PODGROUPS, QUEUES, BINDREQUESTS, TOPOLOGIES]),
];

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const LEASES: &str = "leases.coordination.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const DEPLOYMENTS: &str = "deployments.apps";
const QUEUES: &str = "queues.scheduling.run.ai";
const PODGROUPS: &str = "podgroups.scheduling.run.ai";
const BINDREQUESTS: &str = "bindrequests.scheduling.run.ai";
const TOPOLOGIES: &str = "topologies.kai.scheduler";

/// The ClusterRole that lets one read all of it.
const ROLE: &str = "muster-platform-admin";

/// A check that was not looked at, and why.
type Gap = (&'static str, String);

/// What came of a look: of the checks that were asked for.
struct Looked {
    found: Vec<Finding>,
    gaps: Vec<Gap>,
    n_checks: usize,
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    /// `Queue research`, `Pod ml/train-0`.
    pub object: String,
    pub what: String,
    /// A command, or what to do.
    pub fix: String,
    /// What `--fix` deletes.
    delete: Option<Doomed>,
    /// It may be over in a moment: it is not if the second look finds it again and this still stands as it did.
    passing: Option<String>,
}

#[derive(Clone, Debug)]
struct Doomed {
    path: String,
    uid: String,
}

/// What else is looked at.
#[derive(Default)]
pub struct Surroundings {
    leases: Vec<Value>,
    /// Both kinds.
    webhooks: Vec<Value>,
    services: Vec<Value>,
    slices: Vec<Value>,
    crds: Vec<Value>,
    deployments: Vec<Value>,
    /// Addresses of webhooks on this machine at which nobody listens.
    deaf: BTreeSet<String>,
}

/// How long after the first look those findings are looked at again that may be over in a moment.
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// Beyond its grace a gang has so many milliseconds until it should be gone.
const A_WHILE: i64 = 30_000;
const A_MINUTE: SignedDuration = SignedDuration::from_secs(60);
const TWO_MINUTES: SignedDuration = SignedDuration::from_secs(120);
const FIVE_MINUTES: SignedDuration = SignedDuration::from_secs(300);
const TEN_MINUTES: SignedDuration = SignedDuration::from_secs(600);

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if args.list {
        let value: Value = CHECKS.iter().map(|(id, what)| json!({"check": id, "finds": what})).collect();
        live::print(args.output, &value, |_| {
            CHECKS.iter().map(|(id, what)| format!("{id:<21} {what}\n")).collect()
        })?;
        return Ok(Exit::Done);
    }
    if let Some(unknown) = args.check.iter().find(|id| !CHECKS.iter().any(|(known, _)| known == id)) {
        anyhow::bail!("there is no check {unknown}\nhint: `muster doctor --list` names them");
    }
    runtime()?.block_on(async {
        let link = args.target.link().await?;
        let mut looked = look(&link, &args).await?;
        let found = &mut looked.found;
        if found.iter().any(|f| f.passing.is_some()) {
            tokio::time::sleep(SECOND_LOOK).await;
            let again = look(&link, &args).await?.found;
            keep_lasting(found, &again);
        }
        let mended = if args.fix { mend(&link.api, &looked.found).await } else { BTreeMap::new() };
        live::print(args.output, &as_json(&looked, &mended), |_| as_text(&looked, &mended))?;
        let left = looked
            .found
            .iter()
            .enumerate()
            .any(|(i, f)| f.severity == Severity::Error && !mended.get(&i).is_some_and(Result::is_ok));
        Ok(if left || !looked.gaps.is_empty() { Exit::Failed } else { Exit::Done })
    })
}

/// Leaves out what the second look no longer finds as it was.
fn keep_lasting(found: &mut Vec<Finding>, again: &[Finding]) {
    found.retain_mut(|f| {
        let Some(stood) = &f.passing else { return true };
        let is_it =
            |a: &&Finding| a.check == f.check && a.object == f.object && a.passing.as_ref() == Some(stood);
        let Some(still) = again.iter().find(is_it) else { return false };
        // What may not be deleted any more is not.
        if still.delete.is_none() {
            f.delete = None;
        }
        true
    });
}

/// Why lists were not read, by their names.
#[derive(Default)]
struct Unreadable(BTreeMap<String, String>);

impl Unreadable {
    fn forbidden(&mut self, list: &str) {
        let why = format!("needs the right to list {list}, which the ClusterRole {ROLE} has");
        self.0.insert(list.to_owned(), why);
    }

    fn absent(&mut self, list: &str) {
        self.0.insert(list.to_owned(), format!("the cluster does not serve {list}"));
    }

    /// A list, empty where it may not be read.
    fn take(
        &mut self,
        name: &str,
        listed: Result<Vec<Value>, muster_runtime::ApiError>,
    ) -> anyhow::Result<Vec<Value>> {
        match listed {
            Ok(items) => return Ok(items),
            Err(error) if error.code() == 403 => self.forbidden(name),
            Err(error) if error.not_found() => self.absent(name),
            Err(error) => return Err(live::Unread::new(&error).with(ROLE)),
        }
        Ok(Vec::new())
    }

    /// The checks that say nothing for want of a list.
    fn gaps(&self) -> Vec<Gap> {
        let gap = |(check, lists): &(&'static str, &[&str])| {
            Some((*check, self.0.get(*lists.iter().find(|l| self.0.contains_key(**l))?)?.clone()))
        };
        LISTS.iter().filter_map(gap).collect()
    }
}

async fn look(link: &Link, args: &Args) -> anyhow::Result<Looked> {
    let api = &link.api;
    let path = |name: &str, version: &str| {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        if group.is_empty() {
            format!("/api/{version}/{plural}")
        } else {
            format!("/apis/{group}/{version}/{plural}")
        }
    };
    let paths =
        [DEFINITIONS, VALIDATING, MUTATING, "services", SLICES, DEPLOYMENTS].map(|name| path(name, "v1"));
    let [definitions, validating, mutating, services, slices, deployments] = &paths;
    let (read, crds, validating, mutating, services, slices, deployments) = tokio::join!(
        live::read(link, &args.schedulers),
        list(api, definitions),
        list(api, validating),
        list(api, mutating),
        list(api, services),
        list(api, slices),
        list(api, deployments),
    );
    let read = read.map_err(|unread| unread.with(ROLE))?;
    let mut unreadable = Unreadable::default();
    let crds = unreadable.take(DEFINITIONS, crds)?;
    let mut webhooks = Vec::new();
    for (kind, name, listed) in [
        ("ValidatingWebhookConfiguration", VALIDATING, validating),
        ("MutatingWebhookConfiguration", MUTATING, mutating),
    ] {
        webhooks.extend(unreadable.take(name, listed)?.into_iter().map(|mut item| {
            item["kind"] = json!(kind);
            item
        }));
    }
    let around = Surroundings {
        leases: read.leases,
        deaf: deaf(&webhooks).await,
        webhooks,
        deployments: unreadable.take(DEPLOYMENTS, deployments)?,
        services: unreadable.take("services", services)?,
        slices: unreadable.take(SLICES, slices)?,
        crds,
    };
    if read.no_leases {
        unreadable.forbidden(LEASES);
    }
    for (kind, left_out) in &read.snapshot.left_out {
        let (group, _, plural) = kind.resource();
        let name = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        match left_out {
            LeftOut::NotServed => unreadable.absent(&name),
            LeftOut::Forbidden(_) => unreadable.forbidden(&name),
        }
    }
    let seen = read.snapshot.decide();
    let mut found = findings(&read.snapshot, &seen, &around);
    found.extend(crd_missing(&around.crds));
    Ok(judged(found, unreadable.gaps(), &args.check))
}

/// What was found and what was not looked at, of the checks that are asked for; none means all. A check without its lists finds nothing.
fn judged(mut found: Vec<Finding>, mut gaps: Vec<Gap>, asked: &[String]) -> Looked {
    let is_asked = |check: &str| asked.is_empty() || asked.iter().any(|id| id == check);
    gaps.retain(|(check, _)| is_asked(check));
    found.retain(|f| is_asked(f.check) && !gaps.iter().any(|(check, _)| *check == f.check));
    found.sort_by(|a, b| (a.severity, a.check, &a.object).cmp(&(b.severity, b.check, &b.object)));
    let n_checks = CHECKS.iter().filter(|(id, _)| is_asked(id)).count();
    Looked { found, gaps, n_checks }
}

/// Addresses of Muster's webhooks on this machine at which nobody listens.
async fn deaf(webhooks: &[Value]) -> BTreeSet<String> {
    let mut deaf = BTreeSet::new();
    let ours = webhooks.iter().filter(|w| w["metadata"]["name"] == muster_install::settings::WEBHOOKS);
    for hook in ours.flat_map(|w| w["webhooks"].as_array().into_iter().flatten()) {
        let Some(address) = hook["clientConfig"]["url"].as_str().and_then(local_address) else { continue };
        let heard = tokio::time::timeout(SECOND_LOOK, tokio::net::TcpStream::connect(address)).await;
        if !matches!(heard, Ok(Ok(_))) {
            deaf.insert(address.to_owned());
        }
    }
    deaf
}

/// `127.0.0.1:8443` of a URL there; whatever is elsewhere may be out of our reach and well all the same.
fn local_address(url: &str) -> Option<&str> {
    let address = url.strip_prefix("https://")?.split('/').next()?;
    address.starts_with("127.").then_some(address)
}

/// Everything that is wrong, the worst first.
pub fn findings(snapshot: &Snapshot, seen: &Seen, around: &Surroundings) -> Vec<Finding> {
    let ward = Ward { snapshot, seen, around, found: Vec::new() };
    let mut found = ward.examine();
    found.sort_by(|a, b| (a.severity, a.check, &a.object).cmp(&(b.severity, b.check, &b.object)));
    found.dedup_by(|a, b| a.check == b.check && a.object == b.object && a.what == b.what);
    found
}

struct Ward<'a> {
    snapshot: &'a Snapshot,
    seen: &'a Seen,
    around: &'a Surroundings,
    found: Vec<Finding>,
}

fn finding(check: &'static str, severity: Severity, object: String, what: String, fix: String) -> Finding {
    Finding { check, severity, object, what, fix, delete: None, passing: None }
}

impl Finding {
    fn passing(self) -> Self {
        self.while_it_says("")
    }

    /// It is over when this changes.
    fn while_it_says(mut self, stands: impl Into<String>) -> Self {
        self.passing = Some(stands.into());
        self
    }

    fn deleting(mut self, kind: Kind, object: &Value) -> Self {
        let Key { namespace, name } = key_of(object);
        self.delete = Some(Doomed {
            path: resource(kind).path(&namespace, &name, ""),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        });
        self
    }
}

fn titled(kind: &str, object: &Value) -> String {
    let Key { namespace, name } = key_of(object);
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

fn time_of(object: &Value, pointer: &str) -> Option<Timestamp> {
    k8s_table::parse_time(object.pointer(pointer)?.as_str()?)
}

/// The node pool that an object says it is for; empty for those of none.
fn pool_of<'a>(snapshot: &Snapshot, object: &'a Value) -> &'a str {
    object["metadata"]["labels"][&*snapshot.setup.node_pool_label].as_str().unwrap_or_default()
}

/// Gangs go by the pool of their group.
fn pools_of_groups(snapshot: &Snapshot) -> BTreeMap<Key, &str> {
    system::group_kinds()
        .flat_map(|kind| snapshot.of(kind).map(move |group| (kind, group)))
        .map(|(kind, group)| (system::gang_of(kind, group), pool_of(snapshot, group)))
        .collect()
}

impl Ward<'_> {
    fn examine(mut self) -> Vec<Finding> {
        self.components();
        self.crds_outdated();
        self.gangs();
        self.queues();
        self.pods();
        self.binds();
        self.reservations();
        let invalid = self.seen.diagnostics.iter().map(|d| {
            let what =
                if d.field.is_empty() { d.message.clone() } else { format!("{}: {}", d.field, d.message) };
            let fix = "correct the field with kubectl edit, or in whatever makes the object".to_owned();
            finding("object-invalid", Severity::Warning, d.object.clone(), what, fix)
        });
        self.found.extend(invalid);
        self.found
    }

    fn now(&self) -> Timestamp {
        self.snapshot.taken
    }

    fn older(&self, object: &Value, than: SignedDuration) -> bool {
        time_of(object, "/metadata/creationTimestamp").is_some_and(|at| self.now().duration_since(at) > than)
    }

    fn is_ours(&self, pod: &Value) -> bool {
        let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
        self.snapshot.setup.scheduler_names.iter().any(|ours| ours == scheduler)
    }

    fn components(&mut self) {
        let now = self.now();
        // The leases, by their names, whose holders are at work, and when those that are silent were renewed.
        let mut answered: BTreeSet<&str> = BTreeSet::new();
        let mut renewed: BTreeMap<&str, &str> = BTreeMap::new();
        let mut ours: BTreeSet<&str> =
            self.snapshot.setup.scheduler_names.iter().map(String::as_str).collect();
        for lease in &self.around.leases {
            let annotations = &lease["metadata"]["annotations"];
            ours.extend(annotations[SCHEDULER_NAME].as_str());
            let lease_name = lease["metadata"]["name"].as_str().unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            if let Some((silent, seconds)) = live::silence(lease, now) {
                let at = lease["spec"]["renewTime"].as_str().unwrap_or_default();
                renewed.insert(lease_name, at);
                let Key { namespace, name } = key_of(lease);
                let what = format!(
                    "{holder} holds it and renewed it last {} ago, where {seconds} s are allowed",
                    k8s_table::human_duration(silent)
                );
                let fix = format!(
                    "start it again (kubectl -n {namespace} get pods, or `muster run`); kubectl -n {namespace} delete lease {name} lets another take over"
                );
                // Clocks differ; one that is renewed between two looks is alive, whatever the time is.
                self.found.push(
                    finding("lease-stale", Severity::Error, titled("Lease", lease), what, fix)
                        .while_it_says(at),
                );
            } else if annotations[SCHEDULER_NAME].is_string()
                && annotations[HELD_BY] == holder
                && !holder.is_empty()
            {
                answered.insert(lease_name);
            }
        }
        let pools = pools_of_groups(self.snapshot);
        let mut waiting: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for pod in self.snapshot.of(Kind::Pod) {
            let pending = pod["status"]["phase"] == "Pending" && pod["spec"]["nodeName"].as_str().is_none();
            let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
            // What is held back waits for nobody yet.
            let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
            if pending && !gated && ours.contains(scheduler) && self.older(pod, A_MINUTE) {
                let group = system::group_of_pod(pod, system::dialect(&self.snapshot.setup, scheduler));
                let by_group = group.and_then(|group| pools.get(&group.gang).copied());
                *waiting
                    .entry((scheduler, by_group.unwrap_or_else(|| pool_of(self.snapshot, pod))))
                    .or_default() += 1;
            }
        }
        for ((name, pool), n) in waiting {
            let lease = lease_name(name, pool);
            if answered.contains(lease.as_str()) {
                continue;
            }
            let of_pool = if pool.is_empty() { String::new() } else { format!(" in node pool {pool}") };
            let what = format!(
                "{n} pods wait for it{of_pool}, and no lease {lease} in the cluster says that somebody answers to it there"
            );
            let fix = if pool.is_empty() {
                format!("muster run --scheduler-name {name}, or `muster install`")
            } else {
                format!(
                    "muster run --scheduler-name {name} --partition-label-value {pool}, or a SchedulingShard for {pool}; or take the label {} off the pods",
                    self.snapshot.setup.node_pool_label
                )
            };
            let stands = renewed.get(lease.as_str()).copied().unwrap_or_default();
            self.found.push(
                finding("scheduler-absent", Severity::Error, format!("scheduler {name}{of_pool}"), what, fix)
                    .while_it_says(stands),
            );
        }
        for deployment in &self.around.deployments {
            let ours = deployment["metadata"]["labels"]["app.kubernetes.io/part-of"] == "muster";
            let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
            let there = deployment["status"]["availableReplicas"].as_i64().unwrap_or(0);
            if ours && wanted == 0 {
                let Key { namespace, name } = key_of(deployment);
                let what = "it is scaled to no replicas, so its components do nothing".to_owned();
                let fix = format!("kubectl -n {namespace} scale deployment {name} --replicas=2");
                let object = titled("Deployment", deployment);
                self.found.push(finding("component-unavailable", Severity::Warning, object, what, fix));
            }
            if ours && there < wanted {
                let Key { namespace, name } = key_of(deployment);
                let severity = if there == 0 { Severity::Error } else { Severity::Warning };
                let what = format!("{there} of {wanted} replicas are available");
                let fix = format!(
                    "kubectl -n {namespace} describe deployment {name}; kubectl -n {namespace} get pods"
                );
                let object = titled("Deployment", deployment);
                self.found.push(finding("component-unavailable", severity, object, what, fix).passing());
            }
        }
        self.webhooks();
    }

    fn webhooks(&mut self) {
        for configuration in &self.around.webhooks {
            let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
            if name != muster_install::settings::WEBHOOKS {
                continue;
            }
            let kind = configuration["kind"].as_str().unwrap_or_default();
            for hook in configuration["webhooks"].as_array().into_iter().flatten() {
                let fails = hook["failurePolicy"] == "Fail";
                let then = if fails {
                    "until it answers, such requests are refused"
                } else {
                    "until it answers, nothing is checked"
                };
                let severity = if fails { Severity::Error } else { Severity::Warning };
                let hook_name = hook["name"].as_str().unwrap_or_default();
                let anew = format!("kubectl delete {} {name} (it is made anew)", kind.to_lowercase());
                let address = hook["clientConfig"]["url"].as_str().and_then(local_address);
                if let Some(address) = address.filter(|address| self.around.deaf.contains(*address)) {
                    let what = format!("webhook {hook_name} asks {address}, where nobody listens; {then}");
                    let fix = format!("start `muster run` again, or {anew}");
                    let object = format!("{kind} {name}");
                    self.found.push(finding("webhook-unreachable", severity, object, what, fix).passing());
                    break;
                }
                let service = &hook["clientConfig"]["service"];
                let (Some(namespace), Some(of)) = (service["namespace"].as_str(), service["name"].as_str())
                else {
                    continue;
                };
                let there = self.around.services.iter().any(|s| key_of(s) == Key::new(namespace, of));
                let ready = self.around.slices.iter().any(|slice| {
                    slice["metadata"]["namespace"] == namespace
                        && slice["metadata"]["labels"]["kubernetes.io/service-name"] == of
                        && slice["endpoints"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .any(|e| e["conditions"]["ready"] != false)
                });
                if there && ready {
                    continue;
                }
                let what = format!(
                    "webhook {hook_name} asks the service {namespace}/{of}, which {}; {then}",
                    if there { "has no endpoint that is ready" } else { "does not exist" },
                );
                let fix = format!("kubectl -n {namespace} get pods; {anew}");
                self.found.push(
                    finding("webhook-unreachable", severity, format!("{kind} {name}"), what, fix).passing(),
                );
                break;
            }
        }
    }

    fn crds_outdated(&mut self) {
        let installed: BTreeMap<&str, &Value> = self
            .around
            .crds
            .iter()
            .filter_map(|crd| Some((crd["metadata"]["name"].as_str()?, crd)))
            .collect();
        for ours in crd::crds(None) {
            let Some(name) = ours["metadata"]["name"].as_str() else { continue };
            let Some(theirs) = installed.get(name) else { continue };
            if let Some(lacks) = lacks(&ours, theirs) {
                let fix = format!(
                    "muster crds --group {} | kubectl apply --server-side --force-conflicts -f -",
                    ours["spec"]["group"].as_str().unwrap_or_default()
                );
                let object = format!("CustomResourceDefinition {name}");
                self.found.push(finding(
                    "crd-outdated",
                    Severity::Warning,
                    object,
                    format!("it lacks {lacks}"),
                    fix,
                ));
            }
        }
    }

    fn gangs(&mut self) {
        let (_, policy, _) = self.snapshot.setup.read();
        let rows = view::gangs(self.snapshot, self.seen);
        let gangs: BTreeMap<&Key, _> = self.seen.cluster.gangs.iter().map(|g| (&g.key, g)).collect();
        let groups: BTreeMap<Key, &Value> =
            self.snapshot.of(Kind::PodGroup).map(|g| (key_of(g), g)).collect();
        for row in &rows {
            let group = groups.get(&row.key);
            let title = match row.dialect {
                "pod" => "Pod",
                "grove" => "PodGang",
                _ => "PodGroup",
            };
            let object = format!("{title} {}", row.key);
            let refusal = self.seen.refusals.get(&row.key);
            match refusal.and_then(|r| r.reasons.first()) {
                Some(reason @ Reason::QueueMissing { queue }) => {
                    let label = &self.snapshot.setup.queue_label;
                    let fix = if !matches!(row.dialect, "kai" | "pod" | "grove") {
                        format!(
                            "create the queue in {}, or name one in the PodGroup that is there: muster get queues",
                            row.dialect
                        )
                    } else if queue.is_empty() {
                        format!("set the label {label} on the workload to one of: kubectl get queues")
                    } else {
                        format!(
                            "create queue {queue}, or set the label {label} on the workload to one of: kubectl get queues"
                        )
                    };
                    self.found.push(
                        finding("queue-missing", Severity::Error, object.clone(), words::reason(reason), fix)
                            .passing(),
                    );
                }
                Some(reason @ Reason::QueueNotLeaf { .. }) => {
                    let fix = "name a queue at the bottom of the tree: muster get queues".to_owned();
                    self.found.push(
                        finding(
                            "queue-not-leaf",
                            Severity::Error,
                            object.clone(),
                            words::reason(reason),
                            fix,
                        )
                        .passing(),
                    );
                }
                _ => {}
            }
            if let Some(group) = group
                && row.state == State::Incomplete
                && self.older(group, FIVE_MINUTES)
            {
                let owners = owners_of(group);
                let strays: Vec<String> = self
                    .snapshot
                    .of(Kind::Pod)
                    .filter(|pod| {
                        let other = pod["metadata"]["annotations"]["pod-group-name"].as_str();
                        let there = key_of(pod).namespace == row.key.namespace;
                        there
                            && other.is_some_and(|other| *other != *row.key.name)
                            && owners_of(pod).iter().any(|uid| owners.contains(uid))
                    })
                    .map(|pod| key_of(pod).name.to_string())
                    .collect();
                let why = row.reason.as_ref().map_or("", |(_, why)| why);
                let (what, fix) = if strays.is_empty() {
                    (why.to_owned(), "look at what makes the pods: quota of the namespace, a controller that does not run, a minimum that is too high".to_owned())
                } else {
                    let names = strays.join(" ");
                    (
                        format!("{why}; pods of the same owner are in other groups: {}", strays.join(", ")),
                        format!(
                            "kubectl -n {} delete pod {names}: they are made anew and grouped right",
                            row.key.namespace
                        ),
                    )
                };
                self.found.push(finding("gang-incomplete", Severity::Warning, object.clone(), what, fix));
            }
            let gang = gangs.get(&row.key);
            let stale = gang.filter(|_| row.state == State::Partial).and_then(|g| Some((g, g.stale_since?)));
            if let Some((gang, since)) = stale
                && let Grace::For(grace) = gang.staleness_grace.unwrap_or(policy.staleness_grace)
                && self.snapshot.now() - since > Span(grace.0.saturating_add(A_WHILE))
            {
                let what = format!(
                    "{} of {} pods hold a place, {} are needed, since {}; its grace is {} s, and it was neither completed nor evicted",
                    row.placed,
                    row.total,
                    row.needed,
                    words::time(since),
                    grace.0 / 1000
                );
                let fix = format!(
                    "muster explain podgroup/{} -n {}; is the scheduler at work? see lease-stale",
                    row.key.name, row.key.namespace
                );
                self.found.push(finding("gang-below-minimum", Severity::Error, object, what, fix));
            }
        }
        let peopled: BTreeSet<Key> = self
            .snapshot
            .of(Kind::Pod)
            .filter_map(|pod| {
                let group = pod["metadata"]["annotations"]["pod-group-name"].as_str()?;
                Some(Key::new(key_of(pod).namespace, group))
            })
            .collect();
        for (key, group) in groups {
            let owned = group["metadata"]["ownerReferences"].as_array().is_some_and(|o| !o.is_empty());
            if !owned && !peopled.contains(&key) && self.older(group, TEN_MINUTES) {
                let delete =
                    format!("kubectl -n {} delete podgroup.scheduling.run.ai {}", key.namespace, key.name);
                let object = format!("PodGroup {key}");
                // A group that somebody made by hand may be meant for pods that are yet to come.
                let is_made_by_grouper = group["metadata"]["annotations"][TOP_OWNER].is_string();
                self.found.push(if is_made_by_grouper {
                    let what = "it has had no pods for long, and no owner that would make any".to_owned();
                    finding("podgroup-orphan", Severity::Warning, object, what, delete)
                        .passing()
                        .deleting(Kind::PodGroup, group)
                } else {
                    let what = "no pod names it; somebody made it by hand, so it may wait for pods to come"
                        .to_owned();
                    let fix = format!("if no pods are to come: {delete}");
                    finding("podgroup-orphan", Severity::Warning, object, what, fix).passing()
                });
            }
        }
    }

    fn queues(&mut self) {
        let rows = view::queues(self.seen, &[]);
        for row in &rows {
            let object = format!("Queue {}", row.name);
            let edit = format!("kubectl edit {}", system::queue_for_kubectl(row.tree, &row.name));
            if let Some(why) = &row.broken {
                let what = format!("{why}; nothing in it is scheduled");
                let field = match row.tree {
                    Dialect::Volcano => "spec.parent",
                    Dialect::Koordinator => "its label quota.scheduling.koordinator.sh/parent",
                    Dialect::Kai | Dialect::T9k | Dialect::Kubernetes => "spec.parentQueue",
                };
                let fix = format!("{edit}: change {field}");
                self.found.push(finding("queue-orphan", Severity::Error, object, what, fix));
                continue;
            }
            // Volcano's root is no promise: what it deserves is what the cluster has.
            if row.tree == Dialect::Volcano && row.parent.is_none() {
                continue;
            }
            let field = match row.tree {
                Dialect::Volcano => "spec.deserved",
                Dialect::Koordinator => "spec.min",
                Dialect::Kai | Dialect::T9k | Dialect::Kubernetes => "spec.resources",
            };
            for (r, resource) in RESOURCES.iter().enumerate() {
                let Bound::At(own) = row.shares[r].quota else { continue };
                let mut sum: i128 = 0;
                let mut unlimited = false;
                let children: Vec<&view::QueueRow> =
                    rows.iter().filter(|c| c.parent.as_ref() == Some(&row.name)).collect();
                for child in &children {
                    match child.shares[r].quota {
                        Bound::At(n) => sum = sum.saturating_add(n.into()),
                        Bound::Unlimited => unlimited = true,
                    }
                }
                if children.is_empty() || (!unlimited && sum <= i128::from(own)) {
                    continue;
                }
                let together =
                    if unlimited { "without bound".to_owned() } else { words::amount(resource, sum) };
                let what = format!(
                    "{field}{}: it deserves {}, the {} queues below it together {together}; they cannot all have what they deserve",
                    if row.tree == Dialect::Kai {
                        format!(".{resource}.quota")
                    } else {
                        format!(" of {resource}")
                    },
                    words::amount(resource, own.into()),
                    children.len()
                );
                let fix = format!("{edit}: raise its quota, or lower those below it");
                self.found.push(finding("queue-quota", Severity::Warning, object.clone(), what, fix));
            }
        }
        self.queue_status();
    }

    /// What the queue controller should have counted: pods of pod groups that are on a node.
    fn queue_status(&mut self) {
        let groups: BTreeSet<Key> = self.snapshot.of(Kind::PodGroup).map(key_of).collect();
        let cluster = &self.seen.cluster;
        let memory: BTreeMap<&Name, i64> =
            cluster.nodes.iter().filter_map(|n| Some((&n.name, n.gpus.memory.filter(|m| *m > 0)?))).collect();
        let parents: BTreeMap<&Name, Option<&Name>> =
            cluster.queues.iter().map(|q| (&q.name, q.parent.as_ref())).collect();
        let queue_of: BTreeMap<&Key, &Name> = cluster.gangs.iter().map(|g| (&g.key, &g.queue)).collect();
        let mut held: BTreeMap<&Name, Trio> = BTreeMap::new();
        for pod in &cluster.pods {
            let bound = matches!(
                pod.state,
                PodState::Bound | PodState::Running | PodState::Releasing | PodState::Stuck
            );
            let Some(gang) = pod.gang.as_ref().filter(|g| bound && pod.node.is_some() && groups.contains(*g))
            else {
                continue;
            };
            let charge = view::charge(pod, &memory);
            let mut at = queue_of.get(gang).copied();
            // A circle ends here too.
            for _ in 0..parents.len() {
                let Some(queue) = at else { break };
                let sum = held.entry(queue).or_default();
                for (sum, own) in sum.iter_mut().zip(charge) {
                    *sum = sum.saturating_add(own);
                }
                at = parents.get(queue).copied().flatten();
            }
        }
        for queue in self.snapshot.of(Kind::Queue) {
            let name: Name = queue["metadata"]["name"].as_str().unwrap_or_default().into();
            if !parents.contains_key(&name) {
                continue;
            }
            let counted = held.get(&name).copied().unwrap_or_default();
            let said = said_amounts(&queue["status"]["allocated"]);
            let wrong: Vec<String> = RESOURCES
                .iter()
                .enumerate()
                .filter(|(r, _)| said[*r] != counted[*r])
                .map(|(r, resource)| {
                    format!(
                        "{} where its pods hold {}",
                        words::amount(resource, said[r]),
                        words::amount(resource, counted[r])
                    )
                })
                .collect();
            if !wrong.is_empty() {
                let what = format!("status.allocated says {}", wrong.join(", "));
                let fix = "is the component queues at work? `muster run --components queues` counts anew"
                    .to_owned();
                self.found.push(
                    // Where pods come and go it is a moment behind; one that moves is looked after.
                    finding("queue-status", Severity::Warning, format!("Queue {name}"), what, fix)
                        .while_it_says(queue["status"]["allocated"].to_string()),
                );
            }
        }
    }

    fn pods(&mut self) {
        let groups: BTreeSet<Key> = self.snapshot.of(Kind::PodGroup).map(key_of).collect();
        let nodes: BTreeSet<&str> =
            self.snapshot.of(Kind::Node).filter_map(|n| n["metadata"]["name"].as_str()).collect();
        let now = self.now();
        let mut found = Vec::new();
        let mut gated: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
        for pod in self.snapshot.of(Kind::Pod) {
            let key = key_of(pod);
            let object = format!("Pod {key}");
            let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
            let over = matches!(phase, "Succeeded" | "Failed");
            if let Some(at) = time_of(pod, "/metadata/deletionTimestamp") {
                let late = now.duration_since(at);
                if late > TWO_MINUTES {
                    let node = pod["spec"]["nodeName"].as_str();
                    let why = match node {
                        Some(node) if !nodes.contains(node) => format!("its node {node} is gone"),
                        Some(node) => format!("its node {node} has not let go of it"),
                        None if pod["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) => {
                            format!("finalizers hold it: {}", pod["metadata"]["finalizers"])
                        }
                        None => "nobody removes it".into(),
                    };
                    let what = format!(
                        "it should have been gone {} ago: {why}; its room is not given to others",
                        k8s_table::human_duration(late)
                    );
                    let fix = format!(
                        "make sure that it does not run any more, then: kubectl -n {} delete pod {} --force --grace-period=0",
                        key.namespace, key.name
                    );
                    found.push(finding("pod-terminating", Severity::Error, object, what, fix));
                }
                continue;
            }
            if over || pod["spec"]["nodeName"].as_str().is_some() || !self.is_ours(pod) {
                continue;
            }
            let gates = pod["spec"]["schedulingGates"].as_array().map_or(&[][..], Vec::as_slice);
            if self.older(pod, TEN_MINUTES) {
                for gate in gates.iter().filter_map(|gate| gate["name"].as_str()) {
                    gated.entry(gate).or_default().push(key.clone());
                }
            }
            if !gates.is_empty() {
                continue;
            }
            match pod["metadata"]["annotations"]["pod-group-name"].as_str() {
                Some(group) => {
                    if !groups.contains(&Key::new(key.namespace.clone(), group)) && self.older(pod, A_MINUTE)
                    {
                        let what = format!(
                            "annotation pod-group-name: there is no PodGroup {group} in {}",
                            key.namespace
                        );
                        let fix = "create the PodGroup, or make the pod anew without the annotation: the grouper then finds its group".to_owned();
                        found.push(finding("podgroup-missing", Severity::Error, object, what, fix));
                    }
                }
                None => {
                    let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
                    let grouped = self.snapshot.setup.grouped.iter().any(|name| name == scheduler);
                    let skips = pod["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] == "true";
                    if grouped && !skips && self.older(pod, A_MINUTE) {
                        let what =
                            "it has waited for more than a minute to be put into a pod group".to_owned();
                        let fix = "is the component grouper at work? kubectl -n muster-system get pods, or `muster run --components grouper`".to_owned();
                        found.push(finding("pod-ungrouped", Severity::Error, object, what, fix));
                    }
                }
            }
        }
        found.extend(gated.into_iter().map(|(gate, mut pods)| {
            pods.sort();
            let (who, fix) = lifter(gate);
            let first = pods.first().map(Key::to_string).unwrap_or_default();
            let held = match pods.len() {
                1 => format!("it holds the pod {first} back"),
                n => format!("it holds {n} pods back, such as {first},"),
            };
            let what = format!("{held} for more than ten minutes: {who}");
            finding("pod-gated", Severity::Warning, format!("scheduling gate {gate}"), what, fix.to_owned())
        }));
        self.found.extend(found);
    }

    fn binds(&mut self) {
        let pods: BTreeMap<Key, &Value> = self.snapshot.of(Kind::Pod).map(|p| (key_of(p), p)).collect();
        let mut found = Vec::new();
        for request in self.snapshot.of(Kind::BindRequest) {
            let key = key_of(request);
            let object = format!("BindRequest {key}");
            let name = request["spec"]["podName"].as_str().unwrap_or_default();
            let pod = pods.get(&Key::new(key.namespace.clone(), name));
            let phase = request["status"]["phase"].as_str().unwrap_or("Pending");
            let delete = format!("kubectl -n {} delete bindrequest {}", key.namespace, key.name);
            let over =
                pod.is_some_and(|p| matches!(p["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
            if pod.is_none() || over {
                if self.older(request, A_MINUTE) {
                    let what = format!(
                        "the pod {name} that it is for {}",
                        if over { "is over" } else { "does not exist" }
                    );
                    let one = finding("bind-orphan", Severity::Warning, object, what, delete);
                    found.push(one.deleting(Kind::BindRequest, request));
                }
            } else if phase == "Failed" {
                let reason = request["status"]["reason"].as_str().unwrap_or("it does not say why");
                let what = format!(
                    "pod {name} was not bound to {} after {} attempts: {reason}",
                    request["spec"]["selectedNode"].as_str().unwrap_or("its node"),
                    request["status"]["failedAttempts"].as_i64().unwrap_or(1)
                );
                let fix = format!("mend what the reason names; {delete} has the pod scheduled anew");
                found.push(finding("bind-failed", Severity::Error, object, what, fix).passing());
            } else if phase != "Succeeded" && self.older(request, TWO_MINUTES) {
                let what = format!("pod {name} waits to be bound for more than two minutes");
                let fix = format!(
                    "is the component binder at work? kubectl -n muster-system get pods; {delete} has the pod scheduled anew"
                );
                found.push(finding("bind-pending", Severity::Error, object, what, fix));
            }
        }
        self.found.extend(found);
    }

    fn reservations(&mut self) {
        let over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let mut held: BTreeSet<String> = BTreeSet::new();
        let mut used: BTreeSet<String> = BTreeSet::new();
        for pod in self.snapshot.of(Kind::Pod).filter(|pod| !over(pod)) {
            if is_reservation(pod) { &mut held } else { &mut used }.extend(groups_of(pod));
        }
        for request in self.snapshot.of(Kind::BindRequest) {
            let groups = request["spec"]["selectedGPUGroups"].as_array();
            used.extend(groups.into_iter().flatten().filter_map(|g| g.as_str().map(str::to_owned)));
        }
        let mut found = Vec::new();
        for pod in self.snapshot.of(Kind::Pod).filter(|pod| !over(pod)) {
            let key = key_of(pod);
            let leaving = pod["metadata"]["deletionTimestamp"].as_str().is_some();
            for group in groups_of(pod) {
                if is_reservation(pod) && !used.contains(&group) && !leaving && self.older(pod, A_MINUTE) {
                    let what = format!(
                        "it holds a GPU of {} for the group {group}, which no pod is in",
                        pod["spec"]["nodeName"].as_str().unwrap_or("no node")
                    );
                    let fix = format!("kubectl -n {} delete pod {}", key.namespace, key.name);
                    let one =
                        finding("reservation-unused", Severity::Warning, format!("Pod {key}"), what, fix);
                    found.push(one.passing().deleting(Kind::Pod, pod));
                } else if !is_reservation(pod)
                    && !held.contains(&group)
                    && pod["spec"]["nodeName"].as_str().is_some()
                    && !leaving
                {
                    let what = format!(
                        "it shares the GPU {group}, which no reservation pod holds: others may be given the same device"
                    );
                    let fix = format!(
                        "kubectl -n {} delete pod {} (its owner makes it anew); is the component binder at work?",
                        key.namespace, key.name
                    );
                    found.push(
                        finding("reservation-missing", Severity::Error, format!("Pod {key}"), what, fix)
                            .passing(),
                    );
                }
            }
        }
        self.found.extend(found);
    }
}

/// Who lifts a gate, as far as that is known, and what to look at.
pub fn lifter(gate: &str) -> (&'static str, &'static str) {
    match gate {
        gate if gate.contains("kueue.x-k8s.io") => (
            "Kueue lifts it when the workload is admitted, which may take as long as there is no quota",
            "muster explain workload/NAME -n NAMESPACE says what it waits for; if no workload is ever admitted, see whether Kueue runs (here: the component kueue)",
        ),
        gate if gate.contains("grove.io") => (
            "Grove lifts it when its PodGang is complete, and that of scaled cliques when their base gang runs",
            "muster explain gang/NAME -n NAMESPACE; if none ever starts, see whether Grove runs (here: the component grove)",
        ),
        gate if gate.contains("volcano.sh") => (
            "Volcano lifts it when the queue has room",
            "kubectl describe podgroup.scheduling.volcano.sh; see whether Volcano's webhook and scheduler run",
        ),
        gate if gate.contains("jobset.x-k8s.io") => (
            "JobSet lifts it when the leader of the domain has its place",
            "see whether JobSet's controller runs",
        ),
        _ => (
            "nobody known here lifts it",
            "find out which controller set it, and whether that runs; it is lifted by taking it out of spec.schedulingGates",
        ),
    }
}

/// A pod that holds a GPU for those who share it, whatever --reservation-app-label calls it.
fn is_reservation(pod: &Value) -> bool {
    let meta = &pod["metadata"];
    meta["labels"]["app"] == "kai-resource-reservation"
        || meta["annotations"]["run.ai/reserve_for_gpu_index"].is_string()
        || pod["spec"]["containers"][0]["name"] == "resource-reservation"
}

fn owners_of(object: &Value) -> Vec<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str()).collect()
}

/// The shared GPUs that a pod's labels name.
fn groups_of(pod: &Value) -> Vec<String> {
    let labels = pod["metadata"]["labels"].as_object();
    let named = labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key == "runai-gpu-group" || key.starts_with("runai-gpu-group/"));
    named.filter_map(|(_, group)| group.as_str()).filter(|g| !g.is_empty()).map(str::to_owned).collect()
}

/// CPU, memory and GPUs of a list of quantities, in the model's units.
fn said_amounts(list: &Value) -> Trio {
    let mut said = Trio::default();
    for (name, amount) in list.as_object().into_iter().flatten() {
        let Some(quantity) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()) else { continue };
        let nano = quantity.nano();
        match name.as_str() {
            "cpu" => said[0] += nano / 1_000_000,
            "memory" => said[1] += nano / 1_000_000_000,
            name => {
                let parts = Resource::Other(name.into()).mig_parts();
                if let Some(parts) = parts {
                    said[GPUS] += nano / 1_000_000 * i128::from(parts);
                } else if name.ends_with("gpu") || (name.contains("gpu") && !name.contains('/')) {
                    said[GPUS] += nano / 1_000_000;
                }
            }
        }
    }
    said
}

fn crd_missing(installed: &[Value]) -> Vec<Finding> {
    let names: BTreeSet<&str> = installed.iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
    [Kind::Queue, Kind::PodGroup, Kind::BindRequest, Kind::Topology]
        .into_iter()
        .filter_map(|kind| {
            let (group, _, plural) = kind.resource();
            let name = format!("{plural}.{group}");
            (!names.contains(name.as_str())).then(|| {
                let what = "it is not installed, and Muster keeps its state in it".to_owned();
                let fix = "muster crds --group kai | kubectl apply --server-side -f -".to_owned();
                finding("crd-missing", Severity::Error, format!("CustomResourceDefinition {name}"), what, fix)
            })
        })
        .collect()
}

/// What of our definition the installed one does not have.
pub fn lacks(ours: &Value, theirs: &Value) -> Option<String> {
    let versions =
        |crd: &Value| -> Vec<Value> { crd["spec"]["versions"].as_array().cloned().unwrap_or_default() };
    for version in versions(ours) {
        let name = version["name"].as_str().unwrap_or_default();
        let Some(installed) = versions(theirs).into_iter().find(|v| v["name"] == version["name"]) else {
            return Some(format!("version {name}"));
        };
        let (own, other) = (&version["schema"]["openAPIV3Schema"], &installed["schema"]["openAPIV3Schema"]);
        if let Some(field) = missing_field(own, other, "", 0) {
            return Some(format!("the field {field} of {name}"));
        }
    }
    None
}

/// No definition is nested deeper.
const DEEPEST: usize = 40;

/// The first field of a schema that another does not have.
fn missing_field(own: &Value, other: &Value, at: &str, depth: usize) -> Option<String> {
    if depth > DEEPEST || other["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    for (name, schema) in own["properties"].as_object().into_iter().flatten() {
        // What is built in is described or not, as it pleases.
        if at.is_empty() && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match other["properties"].get(name) {
            None => return Some(path),
            Some(there) => {
                if let Some(field) = missing_field(schema, there, &path, depth + 1) {
                    return Some(field);
                }
            }
        }
    }
    let inner = |field: &str| {
        let (own, other) = (own.get(field)?, other.get(field)?);
        (own.is_object() && other.is_object())
            .then(|| missing_field(own, other, &format!("{at}[]"), depth + 1))?
    };
    inner("items").or_else(|| inner("additionalProperties"))
}

/// Deletes what may be deleted; out: how it went, by the number of the finding.
async fn mend(api: &Api, found: &[Finding]) -> BTreeMap<usize, Result<(), String>> {
    let mut mended = BTreeMap::new();
    for (i, finding) in found.iter().enumerate() {
        let Some(Doomed { path, uid }) = &finding.delete else { continue };
        eprintln!("deleting     {} ({})", finding.object, finding.check);
        let deleted = api.delete_path(path, Delete { uid, ..Delete::default() }).await;
        mended.insert(i, deleted.map(drop).map_err(|error| error.message()));
    }
    mended
}

fn as_json(looked: &Looked, mended: &BTreeMap<usize, Result<(), String>>) -> Value {
    let Looked { found, gaps, .. } = looked;
    let rows: Vec<Value> = found
        .iter()
        .enumerate()
        .map(|(i, f)| {
            let mut row = json!({
                "check": f.check, "severity": f.severity.name(), "object": f.object, "what": f.what, "fix": f.fix,
                "fixable": f.delete.is_some(),
            });
            match mended.get(&i) {
                Some(Ok(())) => row["fixed"] = json!(true),
                Some(Err(why)) => row["fixFailed"] = json!(why),
                None => {}
            }
            row
        })
        .collect();
    let gaps: Vec<Value> = gaps.iter().map(|(check, why)| json!({"check": check, "why": why})).collect();
    json!({"findings": rows, "notLookedAt": gaps})
}

fn as_text(looked: &Looked, mended: &BTreeMap<usize, Result<(), String>>) -> String {
    let Looked { found, gaps, n_checks } = looked;
    if found.is_empty() && gaps.is_empty() {
        return format!("all is well: {n_checks} checks, no findings\n");
    }
    let mut text = String::new();
    for (i, f) in found.iter().enumerate() {
        text.push_str(&format!("{:<8} {}: {}\n", f.severity.name(), f.check, f.object));
        text.push_str(&format!("         {}\n", f.what));
        match mended.get(&i) {
            Some(Ok(())) => text.push_str("         fixed: deleted\n"),
            Some(Err(why)) => text.push_str(&format!("         not fixed: {why}\n         fix: {}\n", f.fix)),
            None => text.push_str(&format!("         fix: {}\n", f.fix)),
        }
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (check, why) in gaps {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, checks)) => checks.push(check),
            None => reasons.push((why, vec![check])),
        }
    }
    for (why, checks) in reasons {
        text.push_str(&format!("not looked at: {}\n         {why}\n", checks.join(", ")));
    }
    let n = |severity| found.iter().filter(|f| f.severity == severity).count();
    text.push_str(&format!("\n{} errors, {} warnings", n(Severity::Error), n(Severity::Warning)));
    if !gaps.is_empty() {
        text.push_str(&format!("; {} of {n_checks} checks were not looked at", gaps.len()));
    }
    let fixable =
        found.iter().enumerate().filter(|(i, f)| f.delete.is_some() && !mended.contains_key(i)).count();
    if fixable > 0 {
        text.push_str(&format!("; `muster doctor --fix` mends {fixable} of them"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER, of_yaml};

    /// What is found in a cluster with some documents more, beside what is found without them.
    fn found(documents: &str, around: &Surroundings) -> Vec<Finding> {
        let snapshot = of_yaml(&format!("{CLUSTER}---\n{documents}"));
        findings(&snapshot, &snapshot.decide(), around)
    }

    #[track_caller]
    fn check(documents: &str, id: &str, object: &str, says: &str) -> Finding {
        assert!(CHECKS.iter().any(|(known, _)| *known == id), "{id} is not on the list");
        let found = found(documents, &Surroundings::default());
        let one = found.iter().find(|f| f.check == id && f.object == object);
        let one = one.unwrap_or_else(|| panic!("not found among {found:#?}"));
        assert!(one.what.contains(says), "{}", one.what);
        one.clone()
    }

    #[track_caller]
    fn check_none(documents: &str, id: &str) {
        let found = found(documents, &Surroundings::default());
        assert!(!found.iter().any(|f| f.check == id), "{found:#?}");
    }

    fn pod(name: &str, meta: &str, spec: &str, phase: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: d, uid: u-{name}, creationTimestamp: '2026-01-01T11:00:00Z'{meta}}}, spec: {{schedulerName: kai-scheduler, containers: []{spec}}}, status: {{phase: {phase}}}}}\n---\n"
        )
    }

    fn queue(name: &str, spec: &str) -> String {
        format!(
            "{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n---\n"
        )
    }

    fn bind(name: &str, status: &str, created: &str) -> String {
        format!(
            "{{apiVersion: scheduling.run.ai/v1alpha2, kind: BindRequest, metadata: {{name: {name}, namespace: d, uid: b1, creationTimestamp: '2026-01-01T{created}Z'}}, spec: {{podName: {name}, selectedNode: a}}, status: {status}}}\n---\n"
        )
    }

    #[test]
    fn queues() {
        check("", "queue-missing", "PodGroup other/lost", "queue nowhere does not exist");
        check(&queue("x", "parentQueue: gone"), "queue-orphan", "Queue x", "no queue gone");
        check(&queue("x", "parentQueue: x"), "queue-orphan", "Queue x", "lead back");
        let child = queue("second", "parentQueue: top, resources: {gpu: {quota: 2}}");
        check(
            &child,
            "queue-quota",
            "Queue top",
            "gpu.quota: it deserves 4 GPUs, the 2 queues below it together 5 GPUs",
        );
        check("", "queue-status", "Queue team", "says 0 CPU where its pods hold 1 CPU");
        let said = "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: team, uid: q1}, spec: {parentQueue: top, resources: {gpu: {quota: 3, limit: 4}}}, status: {allocated: {cpu: '1', memory: 1Gi, nvidia.com/gpu: '2'}}}\n";
        let right = of_yaml(&CLUSTER.replace("metadata: {name: team", "metadata: {name: was")).documents();
        let text = muster_install::yaml::documents(&right[1..]);
        let snapshot = of_yaml(&format!("{text}---\n{said}"));
        let all = findings(&snapshot, &snapshot.decide(), &Surroundings::default());
        assert!(!all.iter().any(|f| f.check == "queue-status" && f.object == "Queue team"), "{all:#?}");
    }

    #[test]
    fn pods() {
        let gone = pod("x", ", annotations: {pod-group-name: gone}", "", "Pending");
        check(&gone, "podgroup-missing", "Pod d/x", "no PodGroup gone in d");
        let late = pod("x", ", deletionTimestamp: '2026-01-01T11:50:00Z'", ", nodeName: b", "Running");
        check(&late, "pod-terminating", "Pod d/x", "10m ago: its node b has not let go");
        let nowhere = pod("x", ", deletionTimestamp: '2026-01-01T11:50:00Z'", ", nodeName: z", "Running");
        check(&nowhere, "pod-terminating", "Pod d/x", "its node z is gone");
        check_none(
            &pod("x", ", deletionTimestamp: '2026-01-01T11:59:50Z'", ", nodeName: b", "Running"),
            "pod-terminating",
        );
        let gated = |name: &str, gate: &str| {
            pod(name, "", &format!(", schedulingGates: [{{name: {gate}}}]"), "Pending")
        };
        let gate = "scheduling gate example.com/never";
        let says = "it holds the pod d/x back for more than ten minutes: nobody known here lifts it";
        check(&gated("x", "example.com/never"), "pod-gated", gate, says);
        let kueue = "kueue.x-k8s.io/admission";
        let two = gated("x", kueue) + &gated("y", kueue);
        let waits = check(
            &two,
            "pod-gated",
            &format!("scheduling gate {kueue}"),
            "it holds 2 pods back, such as d/x,",
        );
        assert!(waits.fix.contains("muster explain workload/") && !waits.fix.contains("schedulingGates"));
        // In these tests nobody is grouped.
        check_none(&pod("x", "", "", "Pending"), "pod-ungrouped");
    }

    #[test]
    fn a_pod_that_nobody_groups() {
        let mut snapshot = of_yaml(&pod("x", "", "", "Pending"));
        snapshot.setup.grouped = vec!["kai-scheduler".into()];
        let all = findings(&snapshot, &snapshot.decide(), &Surroundings::default());
        assert!(all.iter().any(|f| f.check == "pod-ungrouped"), "{all:#?}");
    }

    #[test]
    fn binds() {
        let orphan = check(
            &bind("x", "{}", "11:00:00"),
            "bind-orphan",
            "BindRequest d/x",
            "pod x that it is for does not exist",
        );
        let doomed = orphan.delete.unwrap();
        assert_eq!(doomed.path, "/apis/scheduling.run.ai/v1alpha2/namespaces/d/bindrequests/x");
        assert_eq!(doomed.uid, "b1");
        let there = pod("x", "", "", "Pending");
        let failed = format!(
            "{there}{}",
            bind("x", "{phase: Failed, reason: no such device, failedAttempts: 3}", "11:59:59")
        );
        check(&failed, "bind-failed", "BindRequest d/x", "to a after 3 attempts: no such device");
        check(
            &format!("{there}{}", bind("x", "{}", "11:50:00")),
            "bind-pending",
            "BindRequest d/x",
            "two minutes",
        );
        check_none(&format!("{there}{}", bind("x", "{}", "11:59:50")), "bind-pending");
        check_none(&format!("{there}{}", bind("x", "{phase: Succeeded}", "11:50:00")), "bind-pending");
    }

    #[test]
    fn reservations() {
        let holder = pod(
            "r",
            ", labels: {app: kai-resource-reservation, runai-gpu-group: g}",
            ", nodeName: a",
            "Running",
        );
        let user = pod("x", ", labels: {runai-gpu-group: g}", ", nodeName: a", "Running");
        assert!(
            check(&holder, "reservation-unused", "Pod d/r", "group g, which no pod is in").delete.is_some()
        );
        check(&user, "reservation-missing", "Pod d/x", "shares the GPU g");
        check_none(&format!("{holder}{user}"), "reservation-unused");
        check_none(&format!("{holder}{user}"), "reservation-missing");
    }

    #[test]
    fn pod_groups() {
        let group = |created: &str, owner: &str| {
            format!(
                "{{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {{name: g, namespace: d, uid: u1, creationTimestamp: '2026-01-01T{created}Z'{owner}}}, spec: {{minMember: 1, queue: team}}}}\n"
            )
        };
        let grouped = ", annotations: {kai.scheduler/top-owner-metadata: 'kind: Job'}";
        let orphan = check(&group("11:00:00", grouped), "podgroup-orphan", "PodGroup d/g", "no owner");
        assert!(orphan.delete.is_some() && orphan.passing.is_some());
        check_none(&group("11:55:00", ""), "podgroup-orphan");
        check_none(&group("11:00:00", ", ownerReferences: [{kind: Job, name: j}]"), "podgroup-orphan");
        let stale = "{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g, namespace: d, uid: u1, annotations: {kai.scheduler/stale-podgroup-timestamp: '2026-01-01T11:50:00Z'}}, spec: {minMember: 2, queue: team}}\n---\n";
        let member = pod("x", ", annotations: {pod-group-name: g}", ", nodeName: b", "Running");
        let few = "{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g, namespace: d, uid: u1, creationTimestamp: '2026-01-01T11:00:00Z', ownerReferences: [{kind: Job, name: j, uid: o}]}, spec: {minMember: 2, queue: team}}\n---\n";
        let waits =
            pod("x", ", annotations: {pod-group-name: g}, ownerReferences: [{uid: o}]", "", "Pending");
        let stray = pod(
            "y",
            ", annotations: {pod-group-name: other}, ownerReferences: [{uid: o}]",
            ", nodeName: b",
            "Running",
        );
        check(&format!("{few}{waits}"), "gang-incomplete", "PodGroup d/g", "only 1 of the 2 pods");
        check(&format!("{few}{waits}{stray}"), "gang-incomplete", "PodGroup d/g", "in other groups: y");
        check(
            &format!("{stale}{member}"),
            "gang-below-minimum",
            "PodGroup d/g",
            "1 of 1 pods hold a place, 2 are needed",
        );
    }

    #[test]
    fn a_group_that_somebody_made_by_hand_stays() {
        let by_hand = "{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g, namespace: d, uid: u1, creationTimestamp: '2026-01-01T11:00:00Z'}, spec: {minMember: 1, queue: team}}\n";
        let orphan = check(by_hand, "podgroup-orphan", "PodGroup d/g", "somebody made it by hand");
        assert!(orphan.delete.is_none() && orphan.passing.is_some());
        assert!(orphan.fix.starts_with("if no pods are to come: kubectl -n d delete"), "{}", orphan.fix);
    }

    #[test]
    fn what_moves_between_two_looks_is_no_finding() {
        let one = |object: &str, stands: &str| {
            finding("queue-status", Severity::Warning, object.into(), String::new(), String::new())
                .while_it_says(stands)
        };
        let mut found = vec![
            one("stands", "1"),
            one("moves", "1"),
            one("gone", "1"),
            finding("bind-pending", Severity::Error, "always".into(), String::new(), String::new()),
        ];
        let doomed = Doomed { path: "/p".into(), uid: "u".into() };
        found[0].delete = Some(doomed);
        keep_lasting(&mut found, &[one("stands", "1"), one("moves", "2")]);
        let left: Vec<&str> = found.iter().map(|f| f.object.as_str()).collect();
        assert_eq!(left, ["stands", "always"]);
        assert!(found[0].delete.is_none(), "the second look saw somebody use it");
    }

    #[test]
    fn reservations_go_by_any_label() {
        let meta =
            ", labels: {app: own, runai-gpu-group: g}, annotations: {run.ai/reserve_for_gpu_index: '0'}";
        let holder = pod("r", meta, ", nodeName: a", "Running");
        let user = pod("x", ", labels: {runai-gpu-group: g}", ", nodeName: a", "Running");
        check_none(&format!("{holder}{user}"), "reservation-missing");
        check_none(&format!("{holder}{user}"), "reservation-unused");
        assert!(check(&holder, "reservation-unused", "Pod d/r", "group g").delete.is_some());
    }

    #[test]
    fn what_hangs_from_volcanos_root_is_within_it() {
        let volcano = |name: &str| {
            format!(
                "{{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: {name}}}, spec: {{parent: root, deserved: {{cpu: 4}}}}}}\n---\n"
            )
        };
        check_none(&[volcano("a"), volcano("b")].concat(), "queue-quota");
    }

    #[test]
    fn objects_that_make_no_sense() {
        check(
            &queue("x", "resources: {gpu: {quota: lots}}"),
            "object-invalid",
            "Queue x",
            "spec.resources.gpu.quota",
        );
    }

    fn lease(renewed: &str, held_by: &str) -> Value {
        json!({"metadata": {"name": "kai-scheduler", "namespace": "m", "annotations": {HELD_BY: held_by, SCHEDULER_NAME: "kai-scheduler"}},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": renewed}})
    }

    #[track_caller]
    fn check_lease(lease: Value, expected: &[&str]) {
        let around = Surroundings { leases: vec![lease], ..Surroundings::default() };
        let waiting = pod("x", "", "", "Pending");
        let all = found(&waiting, &around);
        let ids: Vec<&str> = all
            .iter()
            .map(|f| f.check)
            .filter(|id| id.starts_with("lease") || id.starts_with("scheduler"))
            .collect();
        assert_eq!(ids, expected, "{all:#?}");
    }

    #[test]
    fn leases() {
        check_lease(lease("2026-01-01T11:59:58.000000Z", "me"), &[]);
        check_lease(lease("2026-01-01T11:59:00.000000Z", "me"), &["lease-stale", "scheduler-absent"]);
        check_lease(lease("2026-01-01T11:59:58.000000Z", "other"), &["scheduler-absent"]);
        // Let go of by whoever held it: its name is still known to be ours.
        let mut released = lease("2026-01-01T11:59:58.000000Z", "");
        released["spec"]["holderIdentity"] = json!("");
        check_lease(released, &["scheduler-absent"]);
        // That of another node pool's scheduler.
        let mut other = lease("2026-01-01T11:59:58.000000Z", "me");
        other["metadata"]["name"] = json!("kai-scheduler-a");
        check_lease(other, &["scheduler-absent"]);
    }

    #[test]
    fn a_name_is_answered_to_pool_by_pool() {
        let around = Surroundings {
            leases: vec![lease("2026-01-01T11:59:58.000000Z", "me")],
            ..Surroundings::default()
        };
        let of_pool = pod("x", ", labels: {kai.scheduler/node-pool: a}", "", "Pending");
        let all = found(&of_pool, &around);
        let absent = all.iter().find(|f| f.check == "scheduler-absent").unwrap();
        assert_eq!(absent.object, "scheduler kai-scheduler in node pool a");
        assert!(
            absent.what.contains("1 pods wait for it in node pool a, and no lease kai-scheduler-a"),
            "{}",
            absent.what
        );
    }

    #[test]
    fn a_lease_is_silent_only_if_two_looks_say_the_same() {
        let stale = |renewed: &str| {
            let around = Surroundings { leases: vec![lease(renewed, "me")], ..Surroundings::default() };
            found("{}", &around).into_iter().filter(|f| f.check == "lease-stale").collect::<Vec<_>>()
        };
        // By a clock that is an hour ahead.
        let first = stale("2026-01-01T10:59:58.000000Z");
        let (mut same, mut moved) = (first.clone(), first);
        keep_lasting(&mut same, &stale("2026-01-01T10:59:58.000000Z"));
        keep_lasting(&mut moved, &stale("2026-01-01T11:00:01.000000Z"));
        assert_eq!((same.len(), moved.len()), (1, 0));
    }

    #[test]
    fn webhooks() {
        let hook = |policy: &str| {
            json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "muster-admission"}, "webhooks": [
                {"name": "pods.muster.dev", "failurePolicy": policy, "clientConfig": {"service": {"namespace": "m", "name": "s"}}}]})
        };
        let service = json!({"metadata": {"namespace": "m", "name": "s"}});
        let slice = json!({"metadata": {"namespace": "m", "labels": {"kubernetes.io/service-name": "s"}}, "endpoints": [{"conditions": {"ready": true}}]});
        let severity = |around: Surroundings| {
            found("{}", &around)
                .into_iter()
                .find(|f| f.check == "webhook-unreachable")
                .map(|f| (f.severity, f.what))
        };
        let (error, what) =
            severity(Surroundings { webhooks: vec![hook("Fail")], ..Surroundings::default() }).unwrap();
        assert_eq!(error, Severity::Error);
        assert!(what.contains("service m/s, which does not exist"), "{what}");
        let (warning, what) = severity(Surroundings {
            webhooks: vec![hook("Ignore")],
            services: vec![service.clone()],
            ..Surroundings::default()
        })
        .unwrap();
        assert_eq!(warning, Severity::Warning);
        assert!(what.contains("no endpoint that is ready"), "{what}");
        let well = Surroundings {
            webhooks: vec![hook("Fail")],
            services: vec![service],
            slices: vec![slice],
            ..Surroundings::default()
        };
        assert!(severity(well).is_none());
        let mut local = hook("Fail");
        local["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:9/pods"});
        let reached = Surroundings { webhooks: vec![local.clone()], ..Surroundings::default() };
        assert!(severity(reached).is_none());
        let deaf = Surroundings {
            webhooks: vec![local],
            deaf: ["127.0.0.1:9".into()].into(),
            ..Surroundings::default()
        };
        assert!(severity(deaf).unwrap().1.contains("asks 127.0.0.1:9, where nobody listens"));
        assert_eq!(local_address("https://example.com:1/x"), None);
    }

    #[test]
    fn deployments() {
        let scaled = |wanted: i64, available: i64, part: &str| {
            json!({"metadata": {"name": "d", "namespace": "m", "labels": {"app.kubernetes.io/part-of": part}},
                "spec": {"replicas": wanted}, "status": {"availableReplicas": available}})
        };
        let deployment = |available: i64, part: &str| scaled(2, available, part);
        let severity = |deployment: Value| {
            let around = Surroundings { deployments: vec![deployment], ..Surroundings::default() };
            found("{}", &around).into_iter().find(|f| f.check == "component-unavailable").map(|f| f.severity)
        };
        assert_eq!(severity(deployment(2, "muster")), None);
        assert_eq!(severity(deployment(1, "muster")), Some(Severity::Warning));
        assert_eq!(severity(deployment(0, "muster")), Some(Severity::Error));
        assert_eq!(severity(deployment(0, "other")), None);
        assert_eq!(severity(scaled(0, 0, "muster")), Some(Severity::Warning));
        assert_eq!(severity(scaled(0, 0, "other")), None);
    }

    #[test]
    fn definitions() {
        assert_eq!(crd_missing(&[]).len(), 4);
        let all = crd::crds(None);
        assert!(crd_missing(&all).is_empty());
        for crd in &all {
            assert_eq!(lacks(crd, crd), None);
        }
        let mut old =
            all.iter().find(|c| c["metadata"]["name"] == "queues.scheduling.run.ai").unwrap().clone();
        let new = old.clone();
        let properties =
            &mut old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        properties.as_object_mut().unwrap().remove("parentQueue");
        assert_eq!(lacks(&new, &old).unwrap(), "the field spec.parentQueue of v2");
        old["spec"]["versions"] = json!([]);
        assert_eq!(lacks(&new, &old).unwrap(), "version v2");
    }

    #[test]
    fn text_names_the_fix() {
        let all = |found| Looked { found, gaps: Vec::new(), n_checks: CHECKS.len() };
        let text = as_text(&all(found("{}", &Surroundings::default())), &BTreeMap::new());
        assert!(
            text.contains(
                "error    queue-missing: PodGroup other/lost\n         queue nowhere does not exist"
            ),
            "{text}"
        );
        assert!(text.contains("         fix: create queue nowhere, or set the label"), "{text}");
        assert!(as_text(&all(Vec::new()), &BTreeMap::new()).starts_with("all is well"));
    }

    #[test]
    fn every_check_has_its_lists() {
        let with_lists: Vec<&str> = LISTS.iter().map(|(id, _)| *id).collect();
        let all: Vec<&str> = CHECKS.iter().map(|(id, _)| *id).collect();
        assert_eq!(with_lists, all);
    }

    /// One list that may not be read, or is not served: what is not looked at, and what is said of it.
    #[track_caller]
    fn check_gaps(refuse: impl Fn(&mut Unreadable), asked: &[&str], silent: &[&str], says: &str) {
        let mut unreadable = Unreadable::default();
        refuse(&mut unreadable);
        let asked: Vec<String> = asked.iter().map(|id| id.to_string()).collect();
        let mut found = found("{}", &Surroundings::default());
        found.extend(crd_missing(&[]));
        let looked = judged(found, unreadable.gaps(), &asked);
        let gaps: Vec<&str> = looked.gaps.iter().map(|(check, _)| *check).collect();
        assert_eq!(gaps, silent);
        assert!(!looked.found.iter().any(|f| silent.contains(&f.check)), "{:?}", looked.found);
        let text = as_text(&looked, &BTreeMap::new());
        assert!(text.contains(says), "{text}");
        assert_eq!(text.contains("all is well"), gaps.is_empty() && looked.found.is_empty(), "{text}");
        assert_eq!(as_json(&looked, &BTreeMap::new())["notLookedAt"].as_array().unwrap().len(), gaps.len());
    }

    #[test]
    fn what_may_not_be_read_is_neither_well_nor_wrong() {
        let no_crds = |u: &mut Unreadable| u.forbidden(DEFINITIONS);
        let crds = ["crd-missing", "crd-outdated"];
        check_gaps(
            no_crds,
            &[],
            &crds,
            "needs the right to list customresourcedefinitions.apiextensions.k8s.io",
        );
        check_gaps(no_crds, &["crd-missing"], &["crd-missing"], "1 of 1 checks were not looked at");
        check_gaps(no_crds, &["lease-stale"], &[], "all is well: 1 checks");
        check_gaps(|_| {}, &["lease-stale"], &[], "all is well: 1 checks");
        check_gaps(|_| {}, &["crd-missing"], &[], "4 errors");
        let leases = ["scheduler-absent", "lease-stale"];
        check_gaps(|u| u.forbidden(LEASES), &[], &leases, "list leases.coordination.k8s.io");
        check_gaps(|u| u.forbidden("services"), &[], &["webhook-unreachable"], "list services");
        check_gaps(|u| u.forbidden(SLICES), &[], &["webhook-unreachable"], "list endpointslices.discovery");
        check_gaps(|u| u.forbidden(MUTATING), &[], &["webhook-unreachable"], "list mutatingwebhook");
        check_gaps(|u| u.forbidden(DEPLOYMENTS), &[], &["component-unavailable"], "list deployments.apps");
        // A reservation may be for a bind request that is not seen: it must not be deleted.
        let binds = ["bind-failed", "bind-pending", "bind-orphan", "reservation-unused", "object-invalid"];
        check_gaps(|u| u.forbidden(BINDREQUESTS), &[], &binds, "list bindrequests.scheduling.run.ai");
        check_gaps(|u| u.absent(QUEUES), &["queue-quota"], &["queue-quota"], "does not serve queues");
    }

    /// Whatever the server says, or does not say: what `look` makes of it.
    async fn looked(code: u16) -> anyhow::Result<Looked> {
        let answer = tower::service_fn(move |_: http::Request<kube::client::Body>| async move {
            if code == 0 {
                return Err(std::io::Error::other("connection refused"));
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "x",
                "message": "the server's words"});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            Ok(http::Response::builder().status(code).body(body).unwrap())
        });
        let api = Api::new(kube::Client::new(answer, "default"), "test");
        let link = Link { api, namespace: "default".into() };
        let args = Args {
            target: Target::default(),
            schedulers: Schedulers::default(),
            fix: false,
            check: Vec::new(),
            list: false,
            output: Format::Table,
        };
        look(&link, &args).await
    }

    #[tokio::test]
    async fn a_cluster_that_does_not_answer_is_an_error() {
        for (code, hint) in [(0, "is the cluster up?"), (401, "credentials"), (500, "")] {
            let said = format!("{:#}", looked(code).await.err().unwrap());
            let words = if code == 0 { "connection refused" } else { "the server's words" };
            assert_eq!(said.matches(words).count(), 1, "{said}");
            assert!(said.contains(hint) && !said.contains("CustomResourceDefinition"), "{said}");
        }
        let forbidden = looked(403).await.unwrap();
        assert!(forbidden.found.is_empty(), "{:?}", forbidden.found);
        assert_eq!(forbidden.gaps.len(), CHECKS.len());
    }

    #[tokio::test]
    async fn what_is_mended_is_gone_and_nothing_else() {
        let server = muster_apiserver::ApiServer::new(muster_apiserver::Options::default());
        server.install_crds(crate::crds::select(&["kai".to_owned()]).unwrap()).unwrap();
        let api = Api::new(kube::Client::new(server, "default"), "test");
        let requests = "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests";
        let mut found = Vec::new();
        for name in ["a", "b"] {
            let body = json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "metadata": {"name": name},
                "spec": {"podName": name, "selectedNode": "n", "receivedResourceType": "Regular"}});
            let made = api.create_path(requests, &body).await.unwrap();
            found.push(
                finding("bind-orphan", Severity::Warning, name.into(), String::new(), String::new())
                    .deleting(Kind::BindRequest, &made),
            );
        }
        // Somebody made another of the same name meanwhile.
        found[1].delete.as_mut().unwrap().uid = "another".into();
        let mended = mend(&api, &found).await;
        assert!(mended[&0].is_ok() && mended[&1].is_err(), "{mended:?}");
        assert_eq!(list(&api, requests).await.unwrap().len(), 1);
        assert!(as_text(&Looked { found, gaps: Vec::new(), n_checks: 1 }, &mended).contains("not fixed: "));
    }
}
