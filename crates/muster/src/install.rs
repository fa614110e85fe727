//! `muster install` and `muster uninstall`: Muster into a cluster, and out of it again.
//!
//! In: settings. Out: objects applied (or printed), in an order in which nothing waits for what comes later. Must stay true: installing
//! twice changes nothing; queues and priority classes that are there stay as they are; uninstalling keeps what holds people's
//! settings and work (CRDs, queues, priority classes) unless told otherwise.

use crate::Exit;
use crate::live::{Target, list};
use crate::up::runtime;
use anyhow::{Context, bail};
use clap::ValueEnum;
use muster_install::{Settings, objects, objects_to_delete, path};
use muster_runtime::Api;
use muster_runtime::api::{ApiError, Delete};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster install --image registry.example.com/muster:0.1.0\n  muster install --dry-run > muster.yaml               the manifests, to be reviewed and applied by others\n  muster install --scheduler-name kai-scheduler --take-over    in the place of a KAI scheduler that runs\n  muster install --operator                            only the operator, a Config and its shards\n\nIt makes a namespace, accounts with the least rights, Deployments, budgets, network policies, the default queues and priority\nclasses, and the CRDs of KAI and Grove. Installing again changes what differs. `muster uninstall` is the way back."
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
    /// Take the scheduler names from whoever answers to them; it gets them back when Muster goes
    #[arg(long)]
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
    /// Kueue's configuration, for the part of Muster that keeps Kueue's workloads
    #[arg(long, value_name = "FILE")]
    kueue_config: Option<PathBuf>,
    /// What the default queue deserves of every resource; -1 is unlimited
    #[arg(long, default_value_t = -1, allow_hyphen_values = true, value_name = "N")]
    default_quota: i64,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster uninstall                 all that runs; queues, priority classes and CRDs stay\n  muster uninstall --dry-run       what would be deleted\n  muster uninstall --everything --yes    also queues, priority classes and CRDs, and with them every PodGroup\n\nPods that run go on running. Pods that wait wait until another scheduler answers to their scheduler name."
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
    /// Say what would be deleted and change nothing
    #[arg(long)]
    dry_run: bool,
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
            ..Settings::default()
        };
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
    let objects = objects(&args.choices.settings()?);
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

/// What became of each object, by what was done: created, changed, unchanged, kept.
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
    if done != "unchanged" {
        eprintln!("{done:<9} {}", title(object));
    }
}

async fn apply(api: &Api, path: &str, object: &Value) -> anyhow::Result<&'static str> {
    let failed = |error: ApiError| refused("apply", &title(object), &error);
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
    let after = api.apply_path(path, object).await.map_err(failed)?;
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

pub fn uninstall(args: UninstallArgs) -> anyhow::Result<Exit> {
    let settings = args.choices.settings()?;
    let (doomed, kept) = doomed(&settings, args.everything);
    let crds = if args.everything {
        crate::crds::select(&["kai".to_owned(), "grove".to_owned()])?
    } else {
        Vec::new()
    };
    if args.dry_run {
        for object in doomed.iter().chain(&crds) {
            println!("would delete {}", title(object));
        }
        for object in &kept {
            println!("would keep   {}", title(object));
        }
        return Ok(Exit::Done);
    }
    runtime()?.block_on(async {
        let api = args.target.link().await?.api;
        let mut gone = 0;
        let held = list(&api, &format!("/api/v1/namespaces/{}/pods", settings.reservation_namespace)).await;
        let in_use = held.is_ok_and(|pods| !pods.is_empty());
        for object in &doomed {
            let is_reservations =
                object["kind"] == "Namespace" && object["metadata"]["name"] == settings.reservation_namespace.as_str();
            if is_reservations && in_use {
                eprintln!("kept      {}: its pods hold GPUs that others share", title(object));
                continue;
            }
            let path = path(object).with_context(|| format!("{} has no place in the API", title(object)))?;
            gone += u32::from(delete(&api, &path, object).await?);
        }
        for crd in &crds {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default();
            gone += u32::from(delete(&api, &format!("{CRDS}/{name}"), crd).await?);
        }
        eprintln!("{gone} objects deleted");
        if gone == 0 {
            eprintln!("hint: nothing of Muster was found; is {} its namespace? --namespace names another", settings.namespace);
            return Ok(Exit::NotInThatState);
        }
        if !args.everything {
            eprintln!("queues, priority classes and CRDs stay: `muster uninstall --everything --yes` deletes them too");
        }
        Ok(Exit::Done)
    })
}

async fn delete(api: &Api, path: &str, object: &Value) -> anyhow::Result<bool> {
    let options = Delete { propagation: Some("Background"), ..Delete::default() };
    let was_there =
        api.delete_path(path, options).await.map_err(|error| refused("delete", &title(object), &error))?;
    if was_there {
        eprintln!("deleted   {}", title(object));
    }
    Ok(was_there)
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
            kueue_config: None,
            default_quota: 0,
        }
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
