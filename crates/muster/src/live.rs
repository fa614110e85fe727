//! A live cluster as the scheduler sees it.
//!
//! In: which cluster, and what its scheduler is set to (found in its leases where nobody says). Out: a [`Snapshot`] of every object that
//! scheduling looks at, and [`Seen`]: what a scheduler with these settings would decide now, and why the rest waits. Must stay true:
//! nothing is changed; a kind that the cluster does not serve is left out and said; what no decision needs and nobody wants in a file
//! (values of environment variables, data of ConfigMaps) is not kept.

use anyhow::{Context, bail};
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use muster_model::{Cluster, Decisions, Diagnostic, Key, Refusal, Time};
use muster_runtime::Api;
use muster_runtime::connect::{Connect, connect};
use muster_runtime::lease::{HELD_BY, SCHEDULER_NAME};
use muster_scheduler::core::Core;
use muster_scheduler::ingest::{Input, resource};
use muster_scheduler::record::Setup;
use muster_translate::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Which cluster.
#[derive(clap::Args, Clone, Default)]
pub struct Target {
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, or that of `muster up`]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// What its scheduler is set to, where that cannot be found out.
#[derive(clap::Args, Clone, Default)]
pub struct Schedulers {
    /// The scheduler names that Muster answers to [default: those whose leases it holds]
    #[arg(long, value_delimiter = ',', value_name = "N,N")]
    pub scheduler_name: Vec<String>,
    /// The node pool of the scheduler that is meant; without it, the one for nodes without a pool
    #[arg(long, value_name = "VALUE")]
    pub pool: Option<String>,
}

/// Whose namespaces are shown.
#[derive(clap::Args, Clone, Default)]
pub struct Namespaces {
    /// Only this namespace [default: that of the kubeconfig]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

impl Namespaces {
    /// The only namespace to show, if there is one.
    pub fn only(&self, link: &Link) -> Option<String> {
        if self.all_namespaces {
            return None;
        }
        Some(self.namespace.clone().unwrap_or_else(|| link.namespace.clone()))
    }
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

/// Prints a value as JSON or YAML; the text otherwise.
pub fn print(format: Format, value: &Value, text: impl FnOnce(bool) -> String) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, value)?;
            writeln!(out)?;
        }
        Format::Yaml => write!(out, "{}", muster_install::yaml::document(value))?,
        Format::Table => write!(out, "{}", text(false))?,
        Format::Wide => write!(out, "{}", text(true))?,
    }
    out.flush()?;
    Ok(())
}

/// A connection.
pub struct Link {
    pub api: Api,
    /// The namespace that the kubeconfig names.
    pub namespace: String,
}

impl Target {
    pub async fn link(&self) -> anyhow::Result<Link> {
        let mut options = Connect {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            ..Connect::default()
        };
        if options.kubeconfig.is_none() && options.context.is_none() {
            options.kubeconfig = of_muster_up();
        }
        let client = connect(options).await?;
        Ok(Link { namespace: client.default_namespace().to_owned(), api: Api::new(client, "muster-cli") })
    }
}

/// The kubeconfig of `muster up`, where nobody says anything else: no variable, no file, no pod around us.
fn of_muster_up() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let usual = std::env::home_dir()?.join(".kube").join("config");
    if set("KUBECONFIG") || set("KUBERNETES_SERVICE_HOST") || usual.exists() {
        return None;
    }
    crate::instance::default_kubeconfig(crate::instance::DEFAULT_PORT).ok().filter(|path| path.exists())
}

/// What scheduling looks at, at one moment.
pub struct Snapshot {
    pub taken: Timestamp,
    pub setup: Setup,
    /// By kind, in the order of [`Kind::ALL`].
    pub objects: Vec<(Kind, Vec<Value>)>,
    /// Kinds that were not read.
    pub left_out: Vec<(Kind, LeftOut)>,
    /// Kueue's objects and configuration, and what its decisions hang on besides; empty unless asked for ([`add_kueue`]).
    pub kueue: Vec<Value>,
    /// What of that was not read, by its name in paths.
    pub kueue_left_out: Vec<(String, LeftOut)>,
    /// Scheduler names among the settings' that nobody answers to at the moment; none in a file, which does not know.
    pub unanswered: Vec<String>,
}

/// A list that could not be read.
#[derive(Debug)]
pub struct Unread {
    /// The HTTP status; 0 when there was no answer.
    pub code: u16,
    what: String,
}

impl Unread {
    pub fn new(error: &muster_runtime::ApiError) -> Self {
        let what = match error.code() {
            // The server's own words say it all.
            1.. => error.message(),
            0 => without_repeats(error),
        };
        Unread { code: error.code(), what }
    }

    /// For people who read what scheduling looks at.
    fn for_readers(&self) -> anyhow::Error {
        self.with("muster-cluster-view")
    }

    /// `role`: the ClusterRole that lets one read it.
    pub fn with(&self, role: &str) -> anyhow::Error {
        let hint = match self.code {
            403 => format!(
                "\nhint: the ClusterRole {role} (made by `muster install`), given by a ClusterRoleBinding, lets one read what is needed"
            ),
            401 => "\nhint: the cluster does not know these credentials; --kubeconfig and --context choose others".into(),
            0 => "\nhint: is the cluster up? `muster up` starts one; --kubeconfig names another".into(),
            _ => String::new(),
        };
        anyhow::anyhow!("{}{hint}", self.what)
    }
}

/// An error and what led to it, where errors quote their causes or not as they please.
fn without_repeats(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(&format!(": {said}"));
        }
        next = cause.source();
    }
    text
}

/// Why a kind was not read.
#[derive(Debug)]
pub enum LeftOut {
    NotServed,
    /// In the server's words.
    Forbidden(String),
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LeftOut::NotServed => f.write_str("is not served"),
            LeftOut::Forbidden(why) => f.write_str(why),
        }
    }
}

/// Reads everything.
pub async fn snapshot(link: &Link, schedulers: &Schedulers) -> anyhow::Result<Snapshot> {
    let read = read(link, schedulers).await.map_err(|unread| unread.for_readers())?;
    match read.forbidden {
        None => Ok(read.snapshot),
        Some(unread) => Err(unread.for_readers()),
    }
}

/// What could be read.
pub struct Read {
    pub snapshot: Snapshot,
    /// One of the kinds without which there is nothing to say about scheduling may not be read.
    pub forbidden: Option<Unread>,
    pub leases: Vec<Value>,
    /// Leases may not be read: which names are answered to is not known.
    pub no_leases: bool,
}

/// Reads everything that may be read. Lists of several kinds are under way at the same time.
pub async fn read(link: &Link, schedulers: &Schedulers) -> Result<Read, Unread> {
    let lists =
        Kind::ALL.map(|kind| async move { (kind, list(&link.api, &resource(kind).path("", "", "")).await) });
    let leases = list(&link.api, "/apis/coordination.k8s.io/v1/leases");
    let (lists, leases) = tokio::join!(futures::future::join_all(lists), leases);
    let mut snapshot = Snapshot {
        taken: Timestamp::now(),
        setup: Setup::default(),
        objects: Vec::new(),
        left_out: Vec::new(),
        kueue: Vec::new(),
        kueue_left_out: Vec::new(),
        unanswered: Vec::new(),
    };
    let mut conf_maps = Vec::new();
    let mut forbidden = None;
    for (kind, listed) in lists {
        match listed {
            Ok(mut items) => {
                if kind == Kind::ConfigMap {
                    conf_maps = items.iter().filter(|i| conf_of(i).is_some()).cloned().collect();
                }
                items.iter_mut().for_each(|item| trim(kind, item));
                snapshot.objects.push((kind, items));
            }
            Err(error) if error.not_found() => snapshot.left_out.push((kind, LeftOut::NotServed)),
            Err(error) if error.code() == 403 => {
                snapshot.left_out.push((kind, LeftOut::Forbidden(error.message())));
                if is_needed(kind) && forbidden.is_none() {
                    forbidden = Some(Unread::new(&error));
                }
            }
            Err(error) => return Err(Unread::new(&error)),
        }
    }
    // Who may not read leases says the names by --scheduler-name, and is not told who answers to them.
    snapshot.setup = setup_of(leases.as_deref().unwrap_or_default(), &conf_maps, schedulers);
    if let Ok(leases) = &leases {
        snapshot.unanswered = unanswered(leases, &snapshot.setup, snapshot.taken);
    }
    let (leases, no_leases) = match leases {
        Ok(leases) => (leases, false),
        Err(error) if matches!(error.code(), 403 | 404) => (Vec::new(), true),
        Err(error) => return Err(Unread::new(&error)),
    };
    Ok(Read { snapshot, forbidden, leases, no_leases })
}

/// Kueue's kinds: what they are called in paths and in objects.
const OF_KUEUE: [(&str, &str); 7] = [
    ("topologies", "Topology"),
    ("resourceflavors", "ResourceFlavor"),
    ("admissionchecks", "AdmissionCheck"),
    ("cohorts", "Cohort"),
    ("clusterqueues", "ClusterQueue"),
    ("localqueues", "LocalQueue"),
    ("workloads", "Workload"),
];

const KUEUE: &str = "kueue.x-k8s.io";
/// The versions that Kueue's kinds have had, the newest first. A cluster with an older Kueue serves the older one only.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// One of Kueue's lists, in the version that the cluster serves.
async fn kueue_list(api: &Api, plural: &str) -> Result<(String, Vec<Value>), muster_runtime::ApiError> {
    let mut refused = None;
    for version in VERSIONS {
        let version = format!("{KUEUE}/{version}");
        match list(api, &format!("/apis/{version}/{plural}")).await {
            Ok(items) => return Ok((version, items)),
            Err(error) if error.not_found() => refused = refused.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => Ok((String::new(), Vec::new())),
    }
}

/// Reads Kueue's objects too, as far as the cluster has them and we may.
pub async fn add_kueue(link: &Link, snapshot: &mut Snapshot) -> anyhow::Result<()> {
    let lists =
        OF_KUEUE.map(|(plural, kind)| async move { (plural, kind, kueue_list(&link.api, plural).await) });
    let limits = async {
        let listed = list(&link.api, "/api/v1/limitranges").await;
        ("limitranges", "LimitRange", listed.map(|items| ("v1".to_owned(), items)))
    };
    let (lists, limits) = tokio::join!(futures::future::join_all(lists), limits);
    for (plural, kind, listed) in lists.into_iter().chain([limits]) {
        let name = if kind == "LimitRange" { plural.to_owned() } else { format!("{plural}.{KUEUE}") };
        let (version, items) = match listed {
            Ok(listed) => listed,
            Err(error) if error.not_found() => {
                snapshot.kueue_left_out.push((name, LeftOut::NotServed));
                continue;
            }
            Err(error) if error.code() == 403 => {
                snapshot.kueue_left_out.push((name, LeftOut::Forbidden(error.message())));
                continue;
            }
            Err(error) => return Err(Unread::new(&error).for_readers()),
        };
        for mut item in items {
            let Value::Object(fields) = &mut item else { continue };
            fields.insert("apiVersion".into(), json!(version));
            fields.insert("kind".into(), json!(kind));
            if let Some(Value::Object(meta)) = fields.get_mut("metadata") {
                meta.remove("managedFields");
                if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
                    annotations.remove(LAST_APPLIED);
                }
            }
            snapshot.kueue.push(if version.ends_with(VERSIONS[1]) { as_newest(item) } else { item });
        }
    }
    let home = "/api/v1/namespaces/muster-system/configmaps/muster-kueue";
    let file = match link.api.get_path(home).await {
        Ok(map) => Some(map),
        // An installation without Kueue, or another's Kueue.
        Err(error) if error.not_found() => None,
        Err(error) if error.code() == 403 => {
            let name = "configmap muster-system/muster-kueue, so Kueue's default settings are assumed";
            snapshot.kueue_left_out.push((name.to_owned(), LeftOut::Forbidden(error.message())));
            None
        }
        Err(error) => return Err(Unread::new(&error).for_readers()),
    };
    let file = file.as_ref().and_then(|map| map["data"][muster_install::settings::KUEUE_FILE].as_str());
    if let Some(mut config) = file.and_then(|text| serde_saphyr::from_str::<Value>(text).ok())
        && config.is_object()
    {
        config["apiVersion"] = json!(KUEUE_CONFIG.0);
        config["kind"] = json!(KUEUE_CONFIG.1);
        snapshot.kueue.push(config);
    }
    Ok(())
}

/// What Kueue's configuration is, among other objects.
const KUEUE_CONFIG: (&str, &str) = ("config.kueue.x-k8s.io/v1beta2", "Configuration");

/// Objects that only Kueue's decisions hang on.
fn is_of_kueue(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.starts_with("kueue.x-k8s.io/")
        || version.starts_with("config.kueue.x-k8s.io/")
        || (version == "v1" && object["kind"] == "LimitRange")
}

/// What Kueue would decide about these objects.
pub fn kueue_of<'a>(
    objects: impl IntoIterator<Item = &'a Value> + Clone,
    now: Timestamp,
) -> muster_kueue::explain::Scene {
    let config =
        objects.clone().into_iter().find(|object| object["kind"] == KUEUE_CONFIG.1 && is_of_kueue(object));
    let read = config.and_then(|config| muster_kueue::Settings::read(&config.to_string()).ok());
    let settings = read.map(|(settings, _)| settings).unwrap_or_default();
    muster_kueue::explain::Scene::new(objects, &settings, now)
}

/// An object of Kueue's in the newest version, which decisions are made from.
fn as_newest(mut object: Value) -> Value {
    let before = object.clone();
    match muster_api::kueue::convert::to_v1beta2(&mut object) {
        Ok(()) => object,
        // It is seen as it is, and whoever reads it says what is wrong with it.
        Err(_) => before,
    }
}

/// Without these there is nothing to say about scheduling.
fn is_needed(kind: Kind) -> bool {
    matches!(kind, Kind::Node | Kind::Pod | Kind::Queue | Kind::PodGroup)
}

/// A list that takes longer than its pages are kept begins again, so often.
const TRIES: usize = 3;

/// All objects of a collection, page by page.
pub async fn list(api: &Api, path: &str) -> Result<Vec<Value>, muster_runtime::ApiError> {
    let url = format!("{path}?");
    let mut tries = 1;
    'anew: loop {
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page = match api.list_raw(&url, next.as_deref()).await {
                Ok(page) => page,
                Err(error) if error.gone() && tries < TRIES => {
                    tries += 1;
                    continue 'anew;
                }
                Err(error) => return Err(error),
            };
            items.extend(page.items.iter().filter_map(|item| serde_json::from_str::<Value>(item.get()).ok()));
            next = page.next;
            if next.is_none() {
                return Ok(items);
            }
        }
    }
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object as it stands in a file: with its kind, without who wrote which field and what is nobody's business.
fn trim(kind: Kind, object: &mut Value) {
    let Value::Object(fields) = object else { return };
    fields.insert("apiVersion".into(), json!(resource(kind).api_version()));
    fields.insert("kind".into(), json!(kind.name()));
    if let Some(Value::Object(meta)) = fields.get_mut("metadata") {
        meta.remove("managedFields");
        if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
        }
    }
    match kind {
        Kind::ConfigMap => {
            let says_links = fields.get("metadata").is_some_and(|m| m["name"] == "gpu-topology");
            if !says_links {
                fields.remove("data");
                fields.remove("binaryData");
            }
        }
        Kind::Pod => {
            for list in ["containers", "initContainers", "ephemeralContainers"] {
                let containers = fields.get_mut("spec").and_then(|spec| spec.get_mut(list));
                for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
                    for variable in
                        container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten()
                    {
                        if let Value::Object(variable) = variable {
                            variable.remove("value");
                        }
                    }
                }
            }
        }
        Kind::Node => {
            if let Some(Value::Object(status)) = fields.get_mut("status") {
                status.remove("images");
            }
        }
        _ => {}
    }
}

/// The scheduler's configuration file in a ConfigMap, where there is one.
fn conf_of(map: &Value) -> Option<&str> {
    map["data"][muster_install::settings::CONF_FILE].as_str()
}

/// What a scheduler is set to, by what it leaves in the cluster: a lease for each name that it answers to, and the ConfigMap that an
/// installation gives it.
fn setup_of(leases: &[Value], conf_maps: &[Value], told: &Schedulers) -> Setup {
    let mut setup = Setup::default();
    let shard = told.pool.clone().unwrap_or_default();
    let held = leases.iter().filter_map(|lease| {
        let name = lease["metadata"]["annotations"][SCHEDULER_NAME].as_str()?;
        let own = muster_runtime::lease::lease_name(name, &shard);
        let is_held = lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
        (lease["metadata"]["name"] == own.as_str() && is_held).then_some((name, lease))
    });
    let mut held: BTreeMap<&str, &Value> = held.collect();
    if held.is_empty() {
        // A scheduler that was stopped has let go of its leases, which still say which names it answered to.
        let released = leases.iter().filter_map(|lease| {
            let name = lease["metadata"]["annotations"][SCHEDULER_NAME].as_str()?;
            let own = muster_runtime::lease::lease_name(name, &shard);
            (lease["metadata"]["name"] == own.as_str()).then_some((name, lease))
        });
        held = released.collect();
    }
    if !told.scheduler_name.is_empty() {
        setup.scheduler_names.clone_from(&told.scheduler_name);
    } else if !held.is_empty() {
        setup.scheduler_names = held.keys().map(|name| (*name).to_owned()).collect();
    }
    setup.grouped = crate::services::grouped(&setup.scheduler_names);
    setup.pool = told.pool.clone().filter(|pool| !pool.is_empty());
    let home = held.values().next().map(|lease| &lease["metadata"]["namespace"]);
    let name = muster_runtime::lease::lease_name("muster-scheduler", &shard);
    let conf = conf_maps.iter().find(|map| {
        let meta = &map["metadata"];
        meta["name"] == name.as_str() && home.is_none_or(|home| meta["namespace"] == *home)
    });
    setup.config = conf.and_then(conf_of).and_then(|text| serde_saphyr::from_str(text).ok());
    setup
}

/// How long a lease that is held was not renewed, if it is one of ours and longer than it may be; `None`: all is well, or it is none of ours.
pub fn silence(lease: &Value, now: Timestamp) -> Option<(SignedDuration, i64)> {
    let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    // A lease that somebody else holds by now is theirs to keep.
    if lease["metadata"]["annotations"][HELD_BY] != holder {
        return None;
    }
    let seconds = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(15);
    let renewed: Option<Timestamp> = lease["spec"]["renewTime"].as_str().and_then(|text| text.parse().ok());
    let silent = renewed.map_or(SignedDuration::MAX, |at| now.duration_since(at));
    (silent > SignedDuration::from_secs(seconds.saturating_mul(2))).then_some((silent, seconds))
}

/// Scheduler names for which no lease is held and renewed.
fn unanswered(leases: &[Value], setup: &Setup, now: Timestamp) -> Vec<String> {
    let shard = setup.pool.clone().unwrap_or_default();
    let answers = |name: &String| {
        let own = muster_runtime::lease::lease_name(name, &shard);
        leases.iter().any(|lease| {
            let meta = &lease["metadata"];
            let held = lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
            meta["annotations"][SCHEDULER_NAME] == name.as_str()
                && meta["name"] == own.as_str()
                && held
                && silence(lease, now).is_none()
        })
    };
    setup.scheduler_names.iter().filter(|name| !answers(name)).cloned().collect()
}

impl Snapshot {
    /// What may not be read, a line per kind on stderr: what is said besides is said without it.
    pub fn say_left_out(&self) {
        let objects = self.left_out.iter().map(|(kind, why)| {
            let (group, _, plural) = kind.resource();
            let dot = if group.is_empty() { "" } else { "." };
            (format!("{plural}{dot}{group}"), why)
        });
        for (name, why) in objects.chain(self.kueue_left_out.iter().map(|(name, why)| (name.clone(), why))) {
            if let LeftOut::Forbidden(why) = why {
                eprintln!("note: without {name}, which may not be read: {why}");
            }
        }
    }

    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(k, _)| *k == kind).flat_map(|(_, items)| items)
    }

    /// What Kueue would decide.
    pub fn kueue(&self) -> muster_kueue::explain::Scene {
        let around = [Kind::Namespace, Kind::Node, Kind::Pod].into_iter().flat_map(|kind| self.of(kind));
        let all: Vec<&Value> = around.chain(&self.kueue).collect();
        kueue_of(all.iter().copied(), self.taken)
    }

    pub fn now(&self) -> Time {
        Time(self.taken.as_millisecond())
    }

    /// Objects for a file, with a first one that says when and for which scheduler they were read. Readers that do not know it pass over it.
    pub fn documents(&self) -> Vec<Value> {
        let objects = self.left_out.iter().map(|(kind, why)| (kind.id(), why));
        let kueue = self.kueue_left_out.iter().map(|(name, why)| (name.clone(), why));
        let left_out: Map<String, Value> =
            objects.chain(kueue).map(|(name, why)| (name, json!(why.to_string()))).collect();
        let head = json!({
            "apiVersion": SNAPSHOT.0, "kind": SNAPSHOT.1,
            "metadata": {"name": "snapshot"},
            "taken": self.taken.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            "settings": self.setup,
            "leftOut": left_out,
        });
        std::iter::once(head)
            .chain(self.objects.iter().flat_map(|(_, items)| items.iter().cloned()))
            .chain(self.kueue.iter().cloned())
            .collect()
    }

    /// What a snapshot among some objects says of itself: what the scheduler was set to, and when it was taken. `None`: there is none.
    pub fn head(documents: &[Value]) -> anyhow::Result<Option<(Setup, Timestamp)>> {
        let is_head = |o: &&Value| o["apiVersion"] == SNAPSHOT.0 && o["kind"] == SNAPSHOT.1;
        let heads: Vec<&Value> = documents.iter().filter(is_head).collect();
        let head = match heads.as_slice() {
            [] => return Ok(None),
            [head] => head,
            _ => {
                bail!("there are several snapshots among the files\nhint: give one, and manifests beside it")
            }
        };
        let setup: Setup = serde_json::from_value(head["settings"].clone()).context(
            "the settings of the snapshot cannot be read: field settings of the document Snapshot",
        )?;
        let taken = head["taken"].as_str().and_then(k8s_table::parse_time).context(
            "the snapshot does not say when it was taken: field taken of the document Snapshot, such as 2026-01-01T12:00:00Z",
        )?;
        Ok(Some((setup, taken)))
    }

    /// The objects of a file; `None` if it is no snapshot but somebody's manifests.
    pub fn of_documents(documents: &[Value]) -> anyhow::Result<Option<Snapshot>> {
        let Some((setup, taken)) = Snapshot::head(documents)? else { return Ok(None) };
        let objects = Kind::ALL.map(|kind| {
            let (group, _, _) = kind.resource();
            let ours = documents.iter().filter(|object| {
                let version = object["apiVersion"].as_str().unwrap_or_default();
                object["kind"] == kind.name() && version.split_once('/').map_or("", |(g, _)| g) == group
            });
            (kind, ours.cloned().collect())
        });
        Ok(Some(Snapshot {
            taken,
            setup,
            objects: objects.into(),
            left_out: Vec::new(),
            kueue: documents.iter().filter(|object| is_of_kueue(object)).cloned().collect(),
            kueue_left_out: Vec::new(),
            unanswered: Vec::new(),
        }))
    }

    /// What a scheduler that knows just this would decide now.
    pub fn decide(&self) -> Seen {
        let (_, _, mut diagnostics) = self.setup.read();
        let mut core = self.setup.core();
        let now = self.now();
        // One by one: all of them a second time would be a lot of memory.
        for (kind, items) in &self.objects {
            items.iter().for_each(|object| core.take(vec![Input::Put(*kind, object.clone())], now));
        }
        core.take(Kind::ALL.into_iter().map(Input::Known).collect(), now);
        core.catch_up(now);
        let cluster = core.cluster();
        let output = core.step(Vec::new(), now).unwrap_or_default();
        let figures = core.figures(&output.decisions);
        diagnostics.extend(output.diagnostics);
        let refusals = output.decisions.refusals.iter().map(|r| (r.gang.clone(), r.clone())).collect();
        Seen { cluster, decisions: output.decisions, figures, refusals, diagnostics, core, now }
    }
}

/// What marks the first document of a snapshot.
const SNAPSHOT: (&str, &str) = ("muster.dev/v1", "Snapshot");

/// A cluster, and what would be decided about it.
pub struct Seen {
    /// As it is, before what is decided.
    pub cluster: Cluster,
    pub decisions: Decisions,
    /// What queues deserve, as the engine divided it.
    pub figures: muster_engine::Figures,
    pub refusals: BTreeMap<Key, Refusal>,
    pub diagnostics: Vec<Diagnostic>,
    core: Core,
    now: Time,
}

impl Seen {
    /// Why a gang waits, in full.
    pub fn explain(&mut self, gang: &Key) -> Option<Refusal> {
        self.core.explain(gang, self.now).or_else(|| self.refusals.get(gang).cloned())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A snapshot of objects, at noon.
    pub fn of_objects(objects: Vec<Value>) -> Snapshot {
        let head = json!({
            "apiVersion": "muster.dev/v1", "kind": "Snapshot", "taken": "2026-01-01T12:00:00Z",
            "settings": {"schedulerNames": ["kai-scheduler"], "grouped": []},
        });
        let all: Vec<Value> = std::iter::once(head).chain(objects).collect();
        Snapshot::of_documents(&all).unwrap().unwrap()
    }

    /// The same, from YAML documents.
    pub fn of_yaml(text: &str) -> Snapshot {
        of_objects(muster_scenario::objects_of(text).unwrap())
    }

    /// Whoever is given a role for the cluster can read what the commands list.
    #[test]
    fn roles_let_people_look() {
        let all = muster_install::groups::roles(&json!({}));
        for role in ["muster-cluster-view", "muster-queue-admin", "muster-platform-admin"] {
            let role = all.iter().find(|r| r["metadata"]["name"] == role).unwrap();
            let may_list = |group: &str, plural: &str| {
                let has = |list: &Value, wanted: &str| list.as_array().unwrap().iter().any(|v| v == wanted);
                let rules = role["rules"].as_array().unwrap();
                assert!(
                    rules.iter().any(|rule| has(&rule["apiGroups"], group)
                        && has(&rule["resources"], plural)
                        && has(&rule["verbs"], "list")),
                    "{}: {group}/{plural}",
                    role["metadata"]["name"]
                );
            };
            for kind in Kind::ALL {
                let (group, _, plural) = kind.resource();
                may_list(group, plural);
            }
            may_list("coordination.k8s.io", "leases");
            OF_KUEUE.iter().for_each(|(plural, _)| may_list("kueue.x-k8s.io", plural));
            may_list("", "limitranges");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_said_once_and_with_a_hint() {
        let answer = tower::service_fn(async |request: http::Request<kube::client::Body>| {
            let (code, body) = match request.uri().path() {
                "/api/v1/nodes" => {
                    let message = "nodes is forbidden: User \"eve\" cannot list resource \"nodes\"";
                    (
                        403,
                        json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403}),
                    )
                }
                _ => (200, json!({"kind": "List", "items": []})),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        });
        let api = Api::new(kube::Client::new(answer, "default"), "test");
        let link = Link { api, namespace: "default".into() };
        let error = snapshot(&link, &Schedulers::default()).await.err().unwrap();
        assert_eq!(
            format!("{error:#}"),
            "nodes is forbidden: User \"eve\" cannot list resource \"nodes\"\nhint: the ClusterRole muster-cluster-view \
             (made by `muster install`), given by a ClusterRoleBinding, lets one read what is needed"
        );
    }

    /// What is read of Kueue where `workloads` may not be read and everything is served in one version.
    async fn of_kueue(served: &'static str) -> Snapshot {
        let answer = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
            let path = request.uri().path().to_owned();
            let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
            let (code, body) = if path.contains("/kueue.x-k8s.io/") && !path.contains(served) {
                (
                    404,
                    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404}),
                )
            } else if plural == "workloads" {
                (
                    403,
                    json!({"kind": "Status", "status": "Failure", "message": "workloads is forbidden", "reason": "Forbidden", "code": 403}),
                )
            } else if plural == "localqueues" {
                let queue =
                    json!({"metadata": {"name": "lq", "namespace": "n"}, "spec": {"clusterQueue": "cq"}});
                (200, json!({"kind": "List", "items": [queue]}))
            } else {
                (200, json!({"kind": "List", "items": []}))
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        });
        let api = Api::new(kube::Client::new(answer, "default"), "test");
        let mut snapshot = of_yaml("{}");
        add_kueue(&Link { api, namespace: "default".into() }, &mut snapshot).await.unwrap();
        snapshot
    }

    #[tokio::test]
    async fn of_kueue_what_is_not_read_is_said() {
        for served in VERSIONS {
            let snapshot = of_kueue(served).await;
            let left_out: Vec<(&str, String)> =
                snapshot.kueue_left_out.iter().map(|(name, why)| (name.as_str(), why.to_string())).collect();
            assert_eq!(left_out, [("workloads.kueue.x-k8s.io", "workloads is forbidden".to_owned())]);
            assert_eq!(snapshot.kueue[0]["apiVersion"], "kueue.x-k8s.io/v1beta2", "{served}");
            assert_eq!(snapshot.kueue[0]["metadata"]["name"], "lq");
            assert_eq!(
                snapshot.documents()[0]["leftOut"]["workloads.kueue.x-k8s.io"],
                "workloads is forbidden"
            );
        }
        let gone = of_kueue("v9").await;
        assert_eq!(gone.kueue_left_out.len(), OF_KUEUE.len());
        assert!(gone.kueue_left_out.iter().all(|(_, why)| matches!(why, LeftOut::NotServed)));
    }

    #[test]
    fn a_snapshot_reads_back_as_itself() {
        let snapshot = of_yaml(CLUSTER);
        let text = muster_install::yaml::documents(&snapshot.documents());
        let again = Snapshot::of_documents(&muster_scenario::objects_of(&text).unwrap()).unwrap().unwrap();
        assert_eq!(again.setup, snapshot.setup);
        assert_eq!(again.taken, snapshot.taken);
        assert_eq!(again.objects, snapshot.objects);
        assert_eq!(again.documents(), snapshot.documents());
    }

    #[test]
    fn what_is_nobodys_business_is_left_out() {
        let mut pod = json!({"metadata": {"name": "a", "managedFields": [1], "annotations": {LAST_APPLIED: "x", "k": "v"}},
            "spec": {"containers": [{"env": [{"name": "TOKEN", "value": "s"}, {"name": "B", "valueFrom": {}}]}]}});
        trim(Kind::Pod, &mut pod);
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"k": "v"}},
            "spec": {"containers": [{"env": [{"name": "TOKEN"}, {"name": "B", "valueFrom": {}}]}]}});
        assert_eq!(pod, expected);
        let mut map = json!({"metadata": {"name": "a"}, "data": {"password": "s"}});
        trim(Kind::ConfigMap, &mut map);
        assert!(map.get("data").is_none());
        let mut links = json!({"metadata": {"name": "gpu-topology"}, "data": {"a": "b"}});
        trim(Kind::ConfigMap, &mut links);
        assert_eq!(links["data"], json!({"a": "b"}));
    }

    fn lease(name: &str, scheduler: &str, holder: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "muster-system", "annotations": {SCHEDULER_NAME: scheduler}},
            "spec": {"holderIdentity": holder}})
    }

    #[track_caller]
    fn check(leases: &[Value], told: &Schedulers, names: &[&str], grouped: &[&str]) {
        let setup = setup_of(leases, &[], told);
        assert_eq!(
            (setup.scheduler_names, setup.grouped),
            (names.iter().map(|n| n.to_string()).collect(), grouped.iter().map(|n| n.to_string()).collect())
        );
    }

    #[test]
    fn leases_say_which_names_are_ours() {
        let nobody = Schedulers::default();
        let both = ["muster-scheduler", "kai-scheduler"];
        check(&[], &nobody, &both, &both);
        let up = [
            lease("kai-scheduler", "kai-scheduler", "me"),
            lease("default-scheduler", "default-scheduler", "me"),
            lease("other", "other", ""),
            lease("kai-scheduler-a", "kai-scheduler", "me"),
        ];
        check(&up, &nobody, &["default-scheduler", "kai-scheduler"], &["kai-scheduler"]);
        let pool = Schedulers { pool: Some("a".into()), ..Schedulers::default() };
        check(&up, &pool, &["kai-scheduler"], &["kai-scheduler"]);
        let told = Schedulers { scheduler_name: vec!["x".into()], ..Schedulers::default() };
        check(&up, &told, &["x"], &["x"]);
        // A scheduler that was stopped let go of its leases.
        check(&up[2..3], &nobody, &["other"], &["other"]);
        check(&[lease("other-a", "other", "")], &nobody, &both, &both);
    }

    #[test]
    fn a_name_whose_lease_is_not_renewed_is_not_answered_to() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let renewed = |at: &str| {
            let mut lease = lease("kai-scheduler", "kai-scheduler", "me");
            lease["metadata"]["annotations"][HELD_BY] = json!("me");
            lease["spec"]["renewTime"] = json!(at);
            lease
        };
        let setup = Setup { scheduler_names: vec!["kai-scheduler".into()], ..Setup::default() };
        let none = |leases: &[Value]| unanswered(leases, &setup, now).is_empty();
        assert!(none(&[renewed("2026-01-01T11:59:50.123456Z")]));
        assert!(!none(&[renewed("2026-01-01T11:59:20Z")]));
        assert!(!none(&[lease("kai-scheduler", "kai-scheduler", "")]));
        assert!(!none(&[]));
    }

    #[test]
    fn the_settings_of_an_installation_are_found() {
        let map = json!({"metadata": {"name": "muster-scheduler", "namespace": "muster-system"},
            "data": {"scheduler.yaml": "kind: SchedulingShard\nspec: {placementStrategy: {gpu: spread}}\n"}});
        let setup =
            setup_of(&[lease("kai-scheduler", "kai-scheduler", "me")], &[map], &Schedulers::default());
        assert_eq!(setup.config.unwrap()["spec"]["placementStrategy"]["gpu"], "spread");
    }

    /// Two nodes of two GPUs. `run` runs, `wait` does not fit, `lost` names a queue that is not there.
    pub const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: a, labels: {rack: r1}}
status: {allocatable: {cpu: '8', memory: 16Gi, pods: '110', nvidia.com/gpu: '2'}, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Node
metadata: {name: b}
status: {allocatable: {cpu: '8', memory: 16Gi, pods: '110', nvidia.com/gpu: '2'}, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: top, uid: q0}
spec: {resources: {gpu: {quota: 4, limit: -1, overQuotaWeight: 1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team, uid: q1}
spec: {parentQueue: top, resources: {gpu: {quota: 3, limit: 4, overQuotaWeight: 1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: run, namespace: ml, uid: g1, creationTimestamp: '2026-01-01T11:00:00Z'}
spec: {minMember: 1, queue: team}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: wait, namespace: ml, uid: g2, creationTimestamp: '2026-01-01T11:58:00Z'}
spec: {minMember: 2, queue: team}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: lost, namespace: other, uid: g3, creationTimestamp: '2026-01-01T11:59:50Z'}
spec: {minMember: 1, queue: nowhere}
---
apiVersion: v1
kind: Pod
metadata: {name: run-0, namespace: ml, uid: p1, annotations: {pod-group-name: run}}
spec: {schedulerName: kai-scheduler, nodeName: a, containers: [{name: c, resources: {requests: {cpu: '1', memory: 1Gi, nvidia.com/gpu: '2'}, limits: {nvidia.com/gpu: '2'}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: wait-0, namespace: ml, uid: p2, annotations: {pod-group-name: wait}, ownerReferences: [{kind: Job, name: big}]}
spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {requests: {nvidia.com/gpu: '2'}, limits: {nvidia.com/gpu: '2'}}}]}
status: {phase: Pending}
---
apiVersion: v1
kind: Pod
metadata: {name: wait-1, namespace: ml, uid: p3, annotations: {pod-group-name: wait}, ownerReferences: [{kind: Job, name: big}]}
spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {requests: {nvidia.com/gpu: '2'}, limits: {nvidia.com/gpu: '2'}}}]}
status: {phase: Pending}
---
apiVersion: v1
kind: Pod
metadata: {name: lost-0, namespace: other, uid: p4, annotations: {pod-group-name: lost}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}
status: {phase: Pending}
";
}
