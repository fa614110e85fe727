//! `muster install` and `muster uninstall`: Muster into a cluster, and out of it again.
//!
//! In: settings. Out: objects applied (or printed), in an order in which nothing waits for what comes later. Must stay true: installing
//! twice changes nothing; queues and priority classes that are there stay as they are; a namespace, a Config or a shard that somebody
//! else made is neither changed nor deleted; uninstalling finds what is installed, however that was done, and keeps what holds
//! people's settings and work (CRDs, queues, priority classes) unless told otherwise.

use crate::Exit;
use crate::live::{Target, list};
use crate::up::runtime;
use anyhow::{Context, bail};
use clap::ValueEnum;
use muster_install::settings::{WEBHOOKS, ports};
use muster_install::{
    CREATED_BY, Settings, is_marked, is_shared, marked, objects, objects_to_delete, operator, path,
    rewritten, webhooks,
};
use muster_runtime::Api;
use muster_runtime::api::{ApiError, Delete};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster install --image registry.example.com/muster:0.1.0\n  muster install --dry-run > muster.yaml               the manifests, to be reviewed and applied by others\n  muster install --scheduler-name kai-scheduler --take-over    in the place of a KAI scheduler that runs\n  muster install --operator                            only the operator, a Config and its shards\n\nIt makes a namespace, accounts with the least rights, Deployments, budgets, network policies, the default queues and priority\nclasses, and the CRDs of KAI and Grove. Installing again changes what differs. A namespace, a Config or a SchedulingShard that somebody\nelse made is used as it is. `muster uninstall` is the way back."
)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    choices: Choices,
    /// CRDs to install: systems (grove, kai, kueue, volcano, koordinator, t9k) or API groups
    #[arg(long, value_delimiter = ',', value_name = "G,G", default_value = "kai,grove")]
    groups: Vec<String>,
    /// Install no CRDs
    #[arg(long, conflicts_with = "groups")]
    no_crds: bool,
    /// Print what would be applied and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How to print with --dry-run
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

/// What both ways need to know.
#[derive(clap::Args)]
struct Choices {
    /// The namespace that Muster runs in
    #[arg(short, long, default_value = "muster-system")]
    namespace: String,
    /// The image of all components
    #[arg(long)]
    image: Option<String>,
    /// How many of each component
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10))]
    replicas: Option<u32>,
    /// Pods that name one of these schedulers are placed
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = ["muster-scheduler".to_owned(), "kai-scheduler".to_owned()])]
    scheduler_name: Vec<String>,
    /// Take the scheduler names from whoever answers to them, with one scheduler; it gets them back when Muster goes
    #[arg(long, conflicts_with = "operator")]
    take_over: bool,
    /// Only the operator, which makes the rest from a Config and its SchedulingShards
    #[arg(long)]
    operator: bool,
    /// ServiceMonitor, alert rules and a dashboard; needs the Prometheus operator
    #[arg(long)]
    monitoring: bool,
    /// No NetworkPolicies
    #[arg(long)]
    no_network_policies: bool,
    /// The ports of the API server, as pods see them, that the NetworkPolicies let out to
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = [443, 6443], conflicts_with = "no_network_policies")]
    api_server_ports: Vec<u16>,
    /// Where pods serve metrics, probes and webhooks; [::] where addresses are IPv6 alone
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0", value_parser = address)]
    listen: String,
    /// The priority class of Muster's pods; empty for none
    #[arg(long, value_name = "NAME", default_value = "system-cluster-critical")]
    priority_class: String,
    /// Leave it to the cluster whom the pods run as
    #[arg(long)]
    openshift: bool,
    /// Kueue's configuration, for the part of Muster that keeps Kueue's workloads
    #[arg(long, value_name = "FILE")]
    kueue_config: Option<PathBuf>,
    /// What the default queue deserves of every resource; -1 is unlimited
    #[arg(long, default_value_t = -1, allow_hyphen_values = true, value_name = "N")]
    default_quota: i64,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster uninstall                 all that runs; queues, priority classes and CRDs stay\n  muster uninstall --dry-run       what would be deleted, and what stays and why\n  muster uninstall --everything --yes    also queues, priority classes and CRDs, and with them every PodGroup\n\nIt finds what is installed, with or without --operator. What somebody else made under the same name stays: a namespace, a Config,\na SchedulingShard.\n\nPods that run go on running. Pods that wait wait until another scheduler answers to their scheduler name."
)]
pub struct UninstallArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    choices: Choices,
    /// Also queues, priority classes and the CRDs of KAI and Grove, and with them every object of those kinds
    #[arg(long, requires = "yes")]
    everything: bool,
    /// Yes, everything
    #[arg(long)]
    yes: bool,
    /// Only the webhooks, and admission, which would write them anew: before something else deletes the rest
    #[arg(long, conflicts_with = "everything")]
    only_webhooks: bool,
    /// Look at the cluster, say what would be deleted, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// An address in the way that a port can follow it.
fn address(text: &str) -> Result<String, String> {
    match text.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(address)) => Ok(address.to_string()),
        Ok(IpAddr::V6(address)) => Ok(format!("[{address}]")),
        Err(_) => Err("an address is needed, such as 0.0.0.0 or [::]".to_owned()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

impl Choices {
    fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            namespace: self.namespace.clone(),
            scheduler_names: self.scheduler_name.clone(),
            take_over: self.take_over,
            operator: self.operator,
            monitoring: self.monitoring,
            network_policies: !self.no_network_policies,
            default_quota: self.default_quota,
            api_ports: ports(&self.api_server_ports),
            listen: self.listen.clone(),
            priority_class: self.priority_class.clone(),
            ..Settings::default()
        };
        if self.openshift {
            settings.run_as = None;
        }
        if let Some(image) = &self.image {
            settings.image.clone_from(image);
        }
        if let Some(file) = &self.kueue_config {
            let said = || format!("configuration of Kueue {}", file.display());
            let text = std::fs::read_to_string(file).with_context(said)?;
            // What is wrong with it is said now, and not by a pod that does not start.
            let (_, warnings) = muster_kueue::Settings::read(&text).with_context(said)?;
            for warning in warnings {
                eprintln!("warning: configuration of Kueue: {warning}");
            }
            settings.kueue_config = serde_saphyr::from_str(&text).with_context(said)?;
        }
        Ok(match self.replicas {
            Some(replicas) => settings.with_replicas(replicas),
            None => settings,
        })
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub fn install(args: Args) -> anyhow::Result<Exit> {
    let crds = if args.no_crds { Vec::new() } else { crate::crds::select(&args.groups)? };
    let choices = &args.choices;
    let objects = objects(&choices.settings()?);
    if choices.take_over && choices.replicas != Some(1) {
        eprintln!("note: with --take-over one scheduler runs: several would take the names from each other");
    }
    if args.dry_run {
        let all: Vec<Value> = crds.into_iter().chain(objects).collect();
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        match args.output {
            Format::Yaml => write!(out, "{}", muster_install::yaml::documents(&all))?,
            Format::Json => {
                serde_json::to_writer_pretty(
                    &mut out,
                    &json!({"apiVersion": "v1", "kind": "List", "items": all}),
                )?;
                writeln!(out)?;
            }
        }
        out.flush()?;
        return Ok(Exit::Done);
    }
    runtime()?.block_on(async {
        let link = args.target.link().await?;
        let counts = apply_all(&link.api, &crds, &objects).await?;
        let said: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
        eprintln!("{}", said.join(", "));
        let namespace = &args.choices.namespace;
        println!("Muster is installed in {namespace}. What to do next:\n  kubectl -n {namespace} rollout status deployment\n  muster doctor\n  muster get queues");
        Ok(Exit::Done)
    })
}

/// What became of each object, by what was done: created, changed, unchanged, kept, left.
pub async fn apply_all(
    api: &Api,
    crds: &[Value],
    objects: &[Value],
) -> anyhow::Result<BTreeMap<&'static str, u32>> {
    let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
    let installed = list(api, CRDS).await.map_err(|error| refused("read", CRDS, &error))?;
    let mut fresh = Vec::new();
    for crd in crds {
        let name = crd["metadata"]["name"].as_str().context("a CRD without a name")?;
        let there = installed.iter().find(|other| other["metadata"]["name"] == name);
        // Somebody else's definition that has all that ours has is left alone.
        let done = match there {
            Some(there) if crate::doctor::lacks(crd, there).is_none() => "unchanged",
            _ => {
                let path = format!("{CRDS}/{name}");
                api.apply_path(&path, crd).await.map_err(|error| refused("apply", &title(crd), &error))?;
                fresh.push(name);
                if there.is_some() { "changed" } else { "created" }
            }
        };
        say(done, crd);
        *counts.entry(done).or_default() += 1;
    }
    established(api, &fresh).await?;
    for object in objects {
        let path = path(object).with_context(|| format!("{} has no place in the API", title(object)))?;
        let done = apply(api, &path, object).await?;
        say(done, object);
        *counts.entry(done).or_default() += 1;
    }
    Ok(counts)
}

fn say(done: &str, object: &Value) {
    let why = match (done, object["kind"].as_str()) {
        ("left", Some("Config")) => {
            ": it was there before; the operator works from it as it is, and the settings of this installation are not in it"
        }
        ("left", _) => ": it was there before, and is used as it is",
        _ => "",
    };
    if done != "unchanged" {
        eprintln!("{done:<9} {}{why}", title(object));
    }
}

async fn apply(api: &Api, path: &str, object: &Value) -> anyhow::Result<&'static str> {
    let name = title(object);
    let failed = |error: ApiError| refused("apply", &name, &error);
    let before = match api.get_path(path).await {
        Ok(before) => Some(before),
        Err(error) if error.not_found() => None,
        Err(error) => return Err(refused("read", &title(object), &error)),
    };
    // People change these, and their changes count.
    let theirs = matches!(object["kind"].as_str(), Some("Queue" | "PriorityClass"));
    if theirs && before.is_some() {
        return Ok("kept");
    }
    // What others may have made too is ours only if it was not there before us, and that is known at one moment: when it is created.
    let object = match &before {
        _ if !is_shared(object) => object.clone(),
        Some(found) if !is_marked(found) => return Ok("left"),
        Some(_) => marked(object),
        None => {
            let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
            match api.create_path(collection, &marked(object)).await {
                Ok(_) => marked(object),
                Err(error) if error.already_exists() => return Ok("left"),
                Err(error) => return Err(refused("create", &title(object), &error)),
            }
        }
    };
    let after = api.apply_path(path, &object).await.map_err(failed)?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    Ok(match before {
        None => "created",
        Some(before) if version(&before) == version(&after) => "unchanged",
        Some(_) => "changed",
    })
}

fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    match text("/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn refused(verb: &str, what: &str, error: &ApiError) -> anyhow::Error {
    let hint = match error.code() {
        403 => {
            "\nhint: installing needs the rights of cluster-admin; `muster install --dry-run` prints the manifests for somebody who has them"
        }
        404 => {
            "\nhint: the cluster does not serve this kind; leave out the flag that asks for it (--monitoring, --no-crds)"
        }
        0 => "\nhint: is the cluster up? --kubeconfig and --context choose another",
        _ => "",
    };
    anyhow::anyhow!("cannot {verb} {what}: {}{hint}", error.message())
}

/// A definition takes a moment until its objects can be made.
async fn established(api: &Api, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let mut looks = 0;
        loop {
            let crd = api
                .get_path(&format!("{CRDS}/{name}"))
                .await
                .map_err(|error| refused("read", name, &error))?;
            let conditions = crd["status"]["conditions"].as_array();
            if conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True") {
                break;
            }
            looks += 1;
            if looks > 300 {
                bail!(
                    "CustomResourceDefinition {name} is not established after 30 s\nhint: kubectl describe crd {name} says why"
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// What is deleted, in order, and what stays.
fn doomed(settings: &Settings, everything: bool) -> (Vec<Value>, Vec<Value>) {
    objects_to_delete(settings)
        .into_iter()
        .partition(|object| everything || !matches!(object["kind"].as_str(), Some("Queue" | "PriorityClass")))
}

/// What becomes of an object that an uninstallation found.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Goes,
    /// Why.
    Stays(String),
}

/// Why namespaces cannot go, by their names: what runs there is not ours to end.
type InUse = BTreeMap<String, String>;

fn fate(object: &Value, found: &Value, in_use: &InUse, everything: bool) -> Fate {
    let stays = |why: &str| Fate::Stays(why.to_owned());
    // It belongs to the Config, and goes with it in any case.
    if found["metadata"]["labels"][operator::MANAGED_BY.0] == operator::MANAGED_BY.1 {
        return Fate::Goes;
    }
    // These go with their CRDs, if they are to go.
    let by_crd = everything && matches!(object["kind"].as_str(), Some("Config" | "SchedulingShard"));
    if is_shared(object) && !is_marked(found) && !by_crd {
        return Fate::Stays(format!(
            "it has no label {}={}, so it was there before Muster, or an earlier version made it",
            CREATED_BY.0, CREATED_BY.1
        ));
    }
    let part_of = |object: &Value| object["metadata"]["labels"]["app.kubernetes.io/part-of"] == "muster";
    if part_of(object) && !part_of(found) {
        return stays("it has the name of one of ours, and no label app.kubernetes.io/part-of=muster");
    }
    let of_namespace = match object["kind"].as_str() {
        Some("Namespace") => object["metadata"]["name"].as_str(),
        // The account of pods that go on.
        _ if is_shared(object) => object["metadata"]["namespace"].as_str(),
        _ => None,
    };
    match of_namespace.and_then(|namespace| in_use.get(namespace)) {
        Some(why) => stays(why),
        None => Fate::Goes,
    }
}

/// Looks who is in the namespaces that may go. One that cannot be looked into counts as in use.
async fn in_use(api: &Api, settings: &Settings) -> InUse {
    let ours = |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "muster";
    let mut out = InUse::new();
    for (namespace, may_go_with_ours, why) in [
        (&settings.namespace, true, "pods that are not Muster's run in it"),
        (&settings.reservation_namespace, false, "pods there hold GPUs that others share"),
    ] {
        let why = match list(api, &format!("/api/v1/namespaces/{namespace}/pods")).await {
            Ok(pods) if pods.iter().all(|pod| may_go_with_ours && ours(pod)) => continue,
            Ok(_) => why.to_owned(),
            Err(error) => format!("whether somebody uses it is not known: {}", error.message()),
        };
        out.insert(namespace.clone(), why);
    }
    out
}

/// An object that is there and goes.
struct Doomed {
    object: Value,
    path: String,
    /// Of what others may have made: the very one that was looked at.
    uid: String,
}

/// Looks at what is there. Out: what goes, in order, and what stays, with why.
async fn look(
    api: &Api,
    settings: &Settings,
    everything: bool,
) -> anyhow::Result<(Vec<Doomed>, Vec<(String, String)>)> {
    let in_use = in_use(api, settings).await;
    look_at(api, doomed(settings, everything).0, &in_use, everything).await
}

async fn look_at(
    api: &Api,
    objects: Vec<Value>,
    in_use: &InUse,
    everything: bool,
) -> anyhow::Result<(Vec<Doomed>, Vec<(String, String)>)> {
    let (mut goes, mut stays) = (Vec::new(), Vec::new());
    for object in objects {
        let path = path(&object).with_context(|| format!("{} has no place in the API", title(&object)))?;
        let found = match api.get_path(&path).await {
            Ok(found) => found,
            Err(error) if error.not_found() => continue,
            Err(error) => return Err(refused("read", &title(&object), &error)),
        };
        match fate(&object, &found, in_use, everything) {
            Fate::Stays(why) => stays.push((title(&object), why)),
            Fate::Goes => {
                let uid = found["metadata"]["uid"].as_str().filter(|_| is_shared(&object));
                goes.push(Doomed { path, uid: uid.unwrap_or_default().to_owned(), object });
            }
        }
    }
    Ok((goes, stays))
}

/// What the operator made, wherever the Config told it to.
async fn made_by_operator(api: &Api) -> anyhow::Result<Vec<Doomed>> {
    let (made, _) =
        operator::made(api).await.map_err(|error| refused("read", "what the operator made", &error))?;
    // Deployments first: what runs must not make the rest anew.
    let (first, last): (Vec<_>, Vec<_>) =
        made.into_iter().partition(|(_, object)| object["kind"] == "Deployment");
    let doomed = |(path, object)| Doomed { object, path, uid: String::new() };
    Ok(first.into_iter().chain(last).map(doomed).collect())
}

pub fn uninstall(args: UninstallArgs) -> anyhow::Result<Exit> {
    let settings = args.choices.settings()?;
    let crds = if args.everything {
        crate::crds::select(&["kai".to_owned(), "grove".to_owned()])?
    } else {
        Vec::new()
    };
    runtime()?.block_on(async {
        let api = args.target.link().await?.api;
        if args.only_webhooks {
            return stop_admission(&api, &settings, args.dry_run).await;
        }
        let (goes, stays) = look(&api, &settings, args.everything).await?;
        let made = made_by_operator(&api).await?;
        if args.dry_run {
            let all: Vec<&Doomed> = goes.iter().chain(&made).collect();
            let mut known = BTreeSet::new();
            for doomed in all.into_iter().filter(|doomed| known.insert(&doomed.path)) {
                println!("would delete {}", title(&doomed.object));
            }
            for crd in &crds {
                println!("would delete {}", title(crd));
            }
            for (name, why) in &stays {
                println!("would keep   {name}: {why}");
            }
            for object in &doomed(&settings, args.everything).1 {
                println!("would keep   {}", title(object));
            }
            return Ok(Exit::Done);
        }
        let mut gone = 0;
        for doomed in &goes {
            gone += u32::from(delete(&api, doomed).await?);
        }
        // What belonged to the Config goes with it; what the Config of somebody else led to does not.
        for doomed in &made_by_operator(&api).await? {
            gone += u32::from(delete(&api, doomed).await?);
        }
        if gone > 0 {
            let deployments = goes.iter().chain(&made).filter(|d| d.object["kind"] == "Deployment");
            let namespaces: BTreeSet<&str> =
                deployments.filter_map(|d| d.object["metadata"]["namespace"].as_str()).collect();
            ended(&api, &namespaces, ("app.kubernetes.io/name", "muster")).await;
            // Until then they may have written again what was deleted.
            let again = rewritten(&settings).into_iter().filter_map(|object| {
                Some(Doomed { path: path(&object)?, uid: String::new(), object })
            });
            for doomed in again.chain(made_by_operator(&api).await?) {
                gone += u32::from(delete(&api, &doomed).await?);
            }
        }
        for crd in crds {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{CRDS}/{name}");
            gone += u32::from(delete(&api, &Doomed { path, uid: String::new(), object: crd }).await?);
        }
        eprintln!("{gone} objects deleted");
        if gone == 0 {
            eprintln!("hint: nothing of Muster was found; is {} its namespace? --namespace names another", settings.namespace);
            return Ok(Exit::NotInThatState);
        }
        for (name, why) in &stays {
            eprintln!("left      {name}: {why}");
        }
        if !args.everything {
            eprintln!("queues, priority classes and CRDs stay: `muster uninstall --everything --yes` deletes them too");
        }
        Ok(Exit::Done)
    })
}

/// Takes the webhooks away for good: they go, then who writes them anew, and what it wrote until it ended. That nothing is there is fine:
/// whoever asks for it asks again when something went wrong.
async fn stop_admission(api: &Api, settings: &Settings, dry_run: bool) -> anyhow::Result<Exit> {
    let look = async || look_at(api, webhooks(settings), &InUse::new(), false).await;
    let (goes, stays) = look().await?;
    for (name, why) in &stays {
        eprintln!("left      {name}: {why}");
    }
    if dry_run {
        goes.iter().for_each(|doomed| println!("would delete {}", title(&doomed.object)));
        return Ok(Exit::Done);
    }
    for doomed in &goes {
        delete(api, doomed).await?;
    }
    ended(api, &[settings.namespace.as_str()].into(), ("app.kubernetes.io/instance", WEBHOOKS)).await;
    for doomed in &look().await?.0 {
        delete(api, doomed).await?;
    }
    Ok(Exit::Done)
}

/// How often it is looked whether Muster's pods have ended, and how long at most: longer than the 30 s that a pod has for it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOKS: u32 = 80;

/// Waits until Muster's pods with this label have ended in these namespaces.
async fn ended(api: &Api, namespaces: &BTreeSet<&str>, (key, value): (&str, &str)) {
    for namespace in namespaces {
        let url = format!("/api/v1/namespaces/{namespace}/pods");
        let mut left = 0;
        for look in 0..LOOKS {
            // Who may delete Deployments and not read pods goes on without waiting.
            let pods = list(api, &url).await.unwrap_or_default();
            let ours = |pod: &&Value| pod["metadata"]["labels"][key] == value;
            left = pods.iter().filter(ours).count();
            if left == 0 {
                break;
            }
            if look == 0 {
                eprintln!("waiting   for {left} pods in {namespace} to end");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if left > 0 {
            eprintln!(
                "warning: {left} pods in {namespace} have not ended; once they have, `muster uninstall` again deletes what they may write until then"
            );
        }
    }
}

async fn delete(api: &Api, doomed: &Doomed) -> anyhow::Result<bool> {
    let options = Delete { propagation: Some("Background"), uid: &doomed.uid, ..Delete::default() };
    match api.delete_path(&doomed.path, options).await {
        Ok(was_there) => {
            if was_there {
                eprintln!("deleted   {}", title(&doomed.object));
            }
            Ok(was_there)
        }
        // Another of the name is there by now, and it is not the one that was looked at.
        Err(error) if error.conflict() && !doomed.uid.is_empty() => Ok(false),
        Err(error) => Err(refused("delete", &title(&doomed.object), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Choices {
        Choices {
            namespace: "elsewhere".into(),
            image: Some("r/muster:9".into()),
            replicas: Some(1),
            scheduler_name: vec!["kai-scheduler".into()],
            take_over: true,
            operator: false,
            monitoring: true,
            no_network_policies: true,
            api_server_ports: vec![443],
            listen: "0.0.0.0".into(),
            priority_class: "system-cluster-critical".into(),
            openshift: false,
            kueue_config: None,
            default_quota: 0,
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        choices: Choices,
    }

    /// In: a command line. Out: what is chosen, or a word of the refusal.
    #[track_caller]
    fn chosen(line: &[&str]) -> Result<Settings, String> {
        let line = clap::Parser::try_parse_from(["install"].iter().chain(line)).map_err(|e| e.to_string())?;
        let Line { choices } = line;
        Ok(choices.settings().unwrap())
    }

    #[test]
    fn what_reaches_nothing_is_refused() {
        let refused = |line: &[&str], word: &str| {
            let why = chosen(line).unwrap_err();
            assert!(why.contains(word), "{why}");
        };
        assert_eq!(chosen(&[]).unwrap(), Settings::default());
        // The operator starts schedulers by a Config, which has no word for it.
        refused(&["--operator", "--take-over"], "--operator");
        refused(&["--no-network-policies", "--api-server-ports=1"], "--no-network-policies");
        refused(&["--listen=here"], "0.0.0.0 or [::]");
        assert_eq!(chosen(&["--listen=::"]).unwrap().listen, "[::]");
        assert_eq!(chosen(&["--listen=[fd00::1]"]).unwrap().listen, "[fd00::1]");
        assert_eq!(chosen(&["--openshift"]).unwrap().run_as, None);
        assert_eq!(chosen(&["--priority-class="]).unwrap().priority_class, "");
        assert_eq!(chosen(&["--api-server-ports=443,16443"]).unwrap().api_ports, ports(&[443, 16443]));
        // The flags that are left reach what the operator works from.
        let config = |line: &[&str]| {
            let all = objects(&chosen(&[line, &["--operator"]].concat()).unwrap());
            all.into_iter().find(|o| o["kind"] == "Config").unwrap()
        };
        let without = config(&["--no-network-policies"]);
        assert_eq!(without["metadata"]["annotations"][operator::NETWORK], "false");
        assert_eq!(config(&["--listen=::"])["metadata"]["annotations"][operator::LISTEN], "[::]");
        assert_eq!(config(&["--openshift"])["spec"]["global"]["openshift"], true);
    }

    #[test]
    fn what_is_chosen_is_installed() {
        let all = objects(&choices().settings().unwrap());
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.contains("r/muster:9") && text.contains("--take-over") && text.contains("elsewhere"));
        assert!(all.iter().any(|o| o["kind"] == "ServiceMonitor"));
        assert!(!all.iter().any(|o| o["kind"] == "NetworkPolicy"));
        let deployments = all.iter().filter(|o| o["kind"] == "Deployment");
        assert!(deployments.map(|d| &d["spec"]["replicas"]).all(|n| *n == 1));
    }

    #[track_caller]
    fn check(kind: &str, found: &Value, in_use: &str, everything: bool, stays: &str) {
        let all = objects_to_delete(&Settings::default());
        let object = all.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] != "kai-scale-adjust");
        let why = (!in_use.is_empty()).then(|| in_use.to_owned());
        let spaces = ["muster-system", "kai-resource-reservation"];
        let in_use = why.iter().flat_map(|why| spaces.map(|name| (name.to_owned(), why.clone()))).collect();
        match fate(object.unwrap(), found, &in_use, everything) {
            Fate::Goes => assert_eq!(stays, "", "{kind} goes"),
            Fate::Stays(why) => assert!(!stays.is_empty() && why.contains(stays), "{why}"),
        }
    }

    #[test]
    fn what_others_made_stays() {
        let found = |labels: Value| json!({"metadata": {"labels": labels}});
        let foreign = found(json!({"team": "a"}));
        // Earlier versions wrote their labels on whatever was there.
        let labelled = found(json!({"app.kubernetes.io/part-of": "muster"}));
        let made = found(json!({"app.kubernetes.io/part-of": "muster", CREATED_BY.0: CREATED_BY.1}));
        for kind in ["Namespace", "Config", "SchedulingShard"] {
            check(kind, &foreign, "", false, "was there before Muster");
            check(kind, &labelled, "", false, "was there before Muster");
            check(kind, &made, "", false, "");
        }
        check("Namespace", &made, "GPUs", false, "GPUs");
        let account = found(json!({operator::MANAGED_BY.0: operator::MANAGED_BY.1}));
        check("ServiceAccount", &account, "GPUs", false, "");
        check("Namespace", &made, "GPUs", true, "GPUs");
        check("Namespace", &labelled, "", true, "was there before Muster");
        check("Config", &labelled, "", true, "");
        check("Deployment", &labelled, "", false, "");
        check("Deployment", &labelled, "GPUs", false, "");
        check("Deployment", &foreign, "", false, "the name of one of ours");
        check("Secret", &foreign, "", false, "");
        check("ValidatingWebhookConfiguration", &foreign, "", false, "");
    }

    struct Kube(Api);

    impl Kube {
        fn new() -> Kube {
            let server = muster_apiserver::ApiServer::new(muster_apiserver::Options::default());
            server.install_crds(crate::crds::select(&["kai".to_owned()]).unwrap()).unwrap();
            Kube(Api::new(kube::Client::new(server, "default"), "muster-cli"))
        }

        async fn get(&self, path: &str) -> Option<Value> {
            self.0.get_path(path).await.ok()
        }

        async fn install(&self, settings: &Settings) -> BTreeMap<&'static str, u32> {
            apply_all(&self.0, &[], &objects(settings)).await.unwrap()
        }

        async fn uninstall(&self) -> Vec<String> {
            let (goes, stays) = look(&self.0, &Settings::default(), false).await.unwrap();
            for doomed in &goes {
                delete(&self.0, doomed).await.unwrap();
            }
            stays.into_iter().map(|(name, _)| name).collect()
        }
    }

    const SPACES: [&str; 3] = ["muster-system", "kai-resource-reservation", "kai-scale-adjust"];
    const CONFIG: &str = "/apis/kai.scheduler/v1/configs/kai-config";
    const SHARD: &str = "/apis/kai.scheduler/v1/schedulingshards/default";

    #[tokio::test]
    async fn what_was_there_before_is_there_after() {
        let cluster = Kube::new();
        let operated = Settings { operator: true, ..Settings::default() };
        let account = "/api/v1/namespaces/kai-resource-reservation/serviceaccounts/kai-resource-reservation";
        let mut before = Vec::new();
        for name in SPACES {
            let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": "a"}}});
            before.push((format!("/api/v1/namespaces/{name}"), space));
        }
        before.push((account.into(), json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kai-resource-reservation"}})));
        let spec = json!({"namespace": "kai-scheduler"});
        before.push((CONFIG.into(), json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": spec})));
        let spec = json!({"placementStrategy": {"gpu": "spread"}});
        before.push((SHARD.into(), json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "default"}, "spec": spec})));
        for (path, object) in &mut before {
            let collection = path.rsplit_once('/').unwrap().0.to_owned();
            *object = cluster.0.create_path(&collection, object).await.unwrap();
        }
        for settings in [Settings::default(), operated] {
            for _ in 0..2 {
                let counts = cluster.install(&settings).await;
                assert_eq!(counts["left"], if settings.operator { 5 } else { 4 }, "{counts:?}");
                for (path, object) in &before {
                    assert_eq!(cluster.get(path).await.as_ref(), Some(object), "{path}");
                }
            }
        }
        assert_eq!(cluster.uninstall().await.len(), 6);
        for (path, object) in &before {
            assert_eq!(cluster.get(path).await.as_ref(), Some(object), "{path}");
        }
        assert_eq!(list(&cluster.0, "/apis/apps/v1/deployments").await.unwrap(), Vec::<Value>::new());
    }

    #[tokio::test]
    async fn what_an_installation_made_goes_after_any_number_of_them() {
        let operated = Settings { operator: true, monitoring: false, ..Settings::default() };
        for settings in [Settings::default(), operated] {
            let cluster = Kube::new();
            let first = cluster.install(&settings).await;
            assert!(!first.contains_key("left") && first["created"] > 20, "{first:?}");
            let second = cluster.install(&settings).await;
            assert!(!second.contains_key("changed") && !second.contains_key("left"), "{second:?}");
            // A newer version, with another image.
            let newer = Settings { image: "muster:next".into(), ..settings };
            let third = cluster.install(&newer).await;
            assert!(third["changed"] > 0 && !third.contains_key("left"), "{third:?}");
            // Told nothing of how it was installed.
            assert_eq!(cluster.uninstall().await, Vec::<String>::new());
            for name in SPACES {
                let space = cluster.get(&format!("/api/v1/namespaces/{name}")).await;
                assert!(space.is_none_or(|s| s["metadata"]["deletionTimestamp"].is_string()), "{name}");
            }
            for collection in [
                "/apis/apps/v1/deployments",
                "/apis/kai.scheduler/v1/configs",
                "/apis/kai.scheduler/v1/schedulingshards",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=app.kubernetes.io/part-of=muster",
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?labelSelector=app.kubernetes.io/part-of=muster",
            ] {
                let left = cluster.get(collection).await.unwrap();
                assert_eq!(left["items"], json!([]), "{collection}");
            }
        }
    }

    #[tokio::test]
    async fn namespaces_with_pods_of_others_stay() {
        let cluster = Kube::new();
        cluster.install(&Settings::default()).await;
        for name in ["kai-resource-reservation", "muster-system"] {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            cluster.0.create_path(&format!("/api/v1/namespaces/{name}/pods"), &pod).await.unwrap();
        }
        let stays = cluster.uninstall().await;
        let account = "kai-resource-reservation/kai-resource-reservation";
        assert_eq!(
            stays,
            [
                format!("RoleBinding {account}"),
                format!("Role {account}"),
                format!("ServiceAccount {account}"),
                "Namespace kai-resource-reservation".into(),
                "Namespace muster-system".into(),
            ]
        );
    }

    /// What Helm asks for before it deletes: the webhooks go and nothing else does; a second time there is nothing to do.
    #[tokio::test]
    async fn the_webhooks_go_alone() {
        let cluster = Kube::new();
        let settings = Settings::default();
        cluster.install(&settings).await;
        let hooks = webhooks(&settings);
        let labels = json!({"app.kubernetes.io/part-of": "muster"});
        for object in hooks.iter().filter(|o| o["kind"] != "Deployment") {
            let body = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": WEBHOOKS, "labels": labels}});
            let collection = path(object).unwrap().rsplit_once('/').unwrap().0.to_owned();
            cluster.0.create_path(&collection, &body).await.unwrap();
        }
        let deployments = async || list(&cluster.0, "/apis/apps/v1/deployments").await.unwrap().len();
        let before = deployments().await;
        stop_admission(&cluster.0, &settings, true).await.unwrap();
        assert_eq!(deployments().await, before);
        for _ in 0..2 {
            stop_admission(&cluster.0, &settings, false).await.unwrap();
            for object in &hooks {
                assert_eq!(cluster.get(&path(object).unwrap()).await, None, "{}", title(object));
            }
            assert_eq!(deployments().await, before - 1);
        }
    }

    /// Whether anybody holds GPUs there cannot be read, so somebody may.
    #[tokio::test]
    async fn a_list_that_fails_says_in_use() {
        let nobody = tower::service_fn(async |_: http::Request<kube::client::Body>| {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("gone"))
        });
        let api = Api::new(kube::Client::new(nobody, "default"), "muster-cli");
        let in_use = in_use(&api, &Settings::default()).await;
        assert_eq!(in_use.len(), 2);
        assert!(in_use.values().all(|why| why.contains("is not known")), "{in_use:?}");
    }

    #[test]
    fn people_keep_their_queues() {
        let (doomed_all, none) = doomed(&choices().settings().unwrap(), true);
        assert!(none.is_empty());
        let (gone, kept) = doomed(&choices().settings().unwrap(), false);
        assert_eq!(gone.len() + kept.len(), doomed_all.len());
        assert!(kept.iter().all(|o| o["kind"] == "Queue" || o["kind"] == "PriorityClass"));
        assert_eq!(kept.len(), 6, "two queues, four classes");
    }
}
