//! `muster run`: Muster's services against the cluster of the kubeconfig, or of the pod it runs in.
//!
//! In: a cluster, and which services. Out: they run until Ctrl-C or SIGTERM, and let go of their leases when they end.

use crate::Exit;
use crate::services::{self, Admission, Component, Wanted};
use crate::tuning::Tuning;
use crate::up::{interrupted, runtime};
use anyhow::Context;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use muster_api::{System, crds_with_conversion};
use muster_apiserver::http::{answer_json, listen};
use muster_runtime::connect::{Connect, connect};
use muster_runtime::lease;
use muster_scheduler::BindMode;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster run                                    everything but the operator\n  muster run --scheduler-name kai-scheduler     as a drop-in for KAI's scheduler\n  muster run --components scheduler,binder      only these; the rest runs elsewhere\n  muster run --components conversion            Kueue's v1beta1 and v1beta2 are converted without loss\n  muster run --components grove,backend-kai --grove-backends kai    PodCliqueSets, for KAI alone\n\nCRDs first: muster crds | kubectl apply --server-side -f -"
)]
pub struct Args {
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Component::DEFAULT, env = "MUSTER_COMPONENTS")]
    components: Vec<Component>,
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Pods that name one of these schedulers are placed
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = services::NAMES.map(String::from))]
    scheduler_name: Vec<String>,
    /// Volcano's scheduler configuration; read again when it changes
    #[arg(long, value_name = "FILE", env = "MUSTER_VOLCANO_CONFIG")]
    volcano_config: Option<PathBuf>,
    /// The label that divides nodes into pools
    #[arg(long, alias = "nodepool-label-key", default_value = "kai.scheduler/node-pool", value_name = "KEY")]
    node_pool_label_key: String,
    /// Only the pool with this value; without it, nodes that lack the label
    #[arg(long, value_name = "VALUE")]
    partition_label_value: Option<String>,
    /// The label that names a workload's queue
    #[arg(long, default_value = "kai.scheduler/queue", value_name = "KEY")]
    queue_label_key: String,
    /// The queue of workloads that name none
    #[arg(long, default_value = "default-queue", value_name = "NAME")]
    default_queue: String,
    /// KAI's scheduler configuration (actions, tiers), or a SchedulingShard
    #[arg(long, value_name = "FILE")]
    scheduler_conf: Option<PathBuf>,
    /// Who posts bindings: the scheduler itself, or a binder that follows bind requests
    #[arg(long, value_enum, default_value_t = Bind::Inline)]
    bind: Bind,
    /// The namespace of leases and of Muster's own objects
    #[arg(long, default_value = "muster-system", env = "POD_NAMESPACE")]
    namespace: String,
    /// Take scheduler names from whoever answers to them; it gets them back when this ends
    #[arg(long)]
    take_over: bool,
    /// Where pods live that hold shared GPUs
    #[arg(long, default_value = "kai-resource-reservation", value_name = "NAME")]
    reservation_namespace: String,
    /// The service account of such pods
    #[arg(long, value_name = "NAME")]
    reservation_service_account: Option<String>,
    /// The image of such pods
    #[arg(long, value_name = "IMAGE")]
    reservation_image: Option<String>,
    /// What that image is started with; empty for an image that is made for this alone
    #[arg(long, value_name = "A,A", value_delimiter = ',', default_value = "reserve-gpu")]
    reservation_args: Vec<String>,
    /// Where pods live that ask autoscalers for GPUs
    #[arg(long, default_value = "kai-scale-adjust", value_name = "NAME")]
    scale_namespace: String,
    /// The image of such pods
    #[arg(long, value_name = "IMAGE")]
    scale_image: Option<String>,
    /// The image that the operator's Deployments run
    #[arg(long, value_name = "IMAGE", default_value = "")]
    operator_image: String,
    /// Where webhooks listen [default: any port of 127.0.0.1; 0.0.0.0:9443 in a cluster]
    #[arg(long, value_name = "ADDRESS")]
    webhook_address: Option<SocketAddr>,
    /// Where the API server reaches webhooks, if that is not the address they listen on: https://HOST:PORT
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Grove's configuration: an OperatorConfiguration, with a section `muster` for what Grove has no word for
    #[arg(long, value_name = "FILE", env = "MUSTER_GROVE_CONFIG")]
    grove_config: Option<PathBuf>,
    /// The backends that some process runs; sets for others are refused [default: all]
    #[arg(long, value_delimiter = ',', value_name = "B,B", env = "MUSTER_GROVE_BACKENDS")]
    grove_backends: Vec<String>,
    /// Which backend a scheduler of another name is for
    #[arg(long, value_delimiter = ',', value_name = "SCHEDULER=BACKEND", env = "MUSTER_GROVE_ROUTES")]
    grove_route: Vec<String>,
    /// Keep what belongs to a PodCliqueSet from everybody but Muster
    #[arg(long)]
    grove_protect: bool,
    /// Kueue's configuration, with a section `muster` for what Kueue has no word for
    #[arg(long, value_name = "FILE", env = "MUSTER_KUEUE_CONFIG")]
    kueue_config: Option<PathBuf>,
    /// Write every cycle to this file, for `muster replay`; a recording that is there is kept as FILE.1, FILE.2, ...
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Where metrics are served
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// Where /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS")]
    health_address: Option<SocketAddr>,
    /// Write logs as JSON
    #[arg(long)]
    pub log_json: bool,
    /// Port of the conversion webhook on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    tuning: Tuning,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Bind {
    Inline,
    Service,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    runtime()?.block_on(async {
        let connection = Connect {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            ..Connect::default()
        };
        let client = connect(connection).await?;
        let cancel = CancellationToken::new();
        let mut wanted = wanted(&args)?;
        if wanted.components.remove(&Component::Conversion) {
            start_conversion(client.clone(), args.port, &cancel).await?;
        }
        if wanted.components.is_empty() {
            interrupted().await;
            cancel.cancel();
            return Ok(Exit::Done);
        }
        leave_to_others(&client, &mut wanted).await?;
        let names: Vec<String> = wanted.components.iter().map(|c| services::name(*c)).collect();
        eprintln!("running      {}", names.join(", "));
        eprintln!("schedulers   {}", wanted.scheduler_names.join(", "));
        let services = services::run(client, muster_runtime::Clock::wall(), wanted, cancel.clone());
        tokio::pin!(services);
        tokio::select! {
            ended = &mut services => {
                ended?;
                anyhow::bail!("the services ended by themselves");
            }
            () = interrupted() => {}
        }
        cancel.cancel();
        services.await?;
        Ok(Exit::Done)
    })
}

/// Where nobody said which names to answer to, a system that runs its own scheduler keeps it.
async fn leave_to_others(client: &kube::Client, wanted: &mut Wanted) -> anyhow::Result<()> {
    if wanted.take_over
        || !wanted.components.contains(&Component::Scheduler)
        || wanted.scheduler_names != services::NAMES
    {
        return Ok(());
    }
    let api = muster_runtime::Api::new(client.clone(), "muster");
    let ours = services::grouped(&wanted.scheduler_names);
    let theirs =
        wanted.scheduler_names.iter().filter(|name| !ours.contains(name)).cloned().collect::<Vec<_>>();
    for name in theirs {
        let shard = wanted.pool.as_deref().unwrap_or_default();
        let found = lease::other_holder(&api, std::slice::from_ref(&name), shard).await;
        if let Some(other) = found.context("cannot look for other schedulers")? {
            eprintln!(
                "note: {name} is left to {}, which holds the lease {}; --scheduler-name {name} --take-over takes it",
                other.holder, other.lease
            );
            wanted.scheduler_names.retain(|kept| *kept != name);
        }
    }
    Ok(())
}

fn wanted(args: &Args) -> anyhow::Result<Wanted> {
    let scheduler_config = match &args.scheduler_conf {
        Some(file) => {
            let said = || format!("scheduler configuration {}", file.display());
            let text = std::fs::read_to_string(file).with_context(said)?;
            Some(serde_saphyr::from_str::<Value>(&text).with_context(said)?)
        }
        None => None,
    };
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && args.kubeconfig.is_none();
    let mut admission = if in_cluster {
        muster_webhook::Options::in_cluster(&args.namespace)
    } else {
        muster_webhook::Options::local(0, true)
    };
    if let Some(address) = args.webhook_address {
        admission.listen = address;
    }
    if let Some(url) = &args.webhook_url {
        anyhow::ensure!(
            url.starts_with("https://"),
            "--webhook-url {url}: API servers call webhooks by HTTPS only; say https://HOST:PORT"
        );
        admission.registration.reach = muster_webhook::Reach::Url(Some(url.clone()));
    }
    Ok(Wanted {
        components: args.components.iter().copied().collect(),
        scheduler_names: args.scheduler_name.clone(),
        grouped: services::grouped(&args.scheduler_name),
        volcano_config: args.volcano_config.clone(),
        queue_label: args.queue_label_key.clone(),
        node_pool_label: args.node_pool_label_key.clone(),
        pool: args.partition_label_value.clone().filter(|value| !value.is_empty()),
        default_queue: args.default_queue.clone(),
        scheduler_config,
        bind: match args.bind {
            Bind::Inline => BindMode::Inline,
            Bind::Service => BindMode::Service,
        },
        namespace: args.namespace.clone(),
        take_over: args.take_over,
        admission: Some(Admission::Webhooks(Box::new(admission))),
        reservation_namespace: args.reservation_namespace.clone(),
        reservation_service_account: args.reservation_service_account.clone(),
        reservation_image: args.reservation_image.clone(),
        reservation_args: args.reservation_args.iter().filter(|arg| !arg.is_empty()).cloned().collect(),
        scale_namespace: args.scale_namespace.clone(),
        scale_image: args.scale_image.clone(),
        operator_image: args.operator_image.clone(),
        record: args.record.clone(),
        metrics_address: args.metrics_address,
        health_address: args.health_address,
        grove: grove(args)?,
        kueue: kueue(args)?,
        tuning: args.tuning.clone(),
        ..Wanted::default()
    })
}

/// What the file says, and the flags after it.
fn grove(args: &Args) -> anyhow::Result<muster_grove::config::Config> {
    use muster_grove::config;
    let file = match &args.grove_config {
        Some(file) => {
            let said = || format!("configuration of Grove {}", file.display());
            let text = std::fs::read_to_string(file).with_context(said)?;
            serde_saphyr::from_str::<Value>(&text).with_context(said)?
        }
        None => Value::Null,
    };
    let options = muster_grove::Options {
        kai_default_queue: args.default_queue.clone(),
        ..muster_grove::Options::default()
    };
    let (mut config, warnings) = config::read(&file, options).context("configuration of Grove")?;
    for warning in warnings {
        eprintln!("warning: configuration of Grove: {warning}");
    }
    if !args.grove_backends.is_empty() {
        let named = args.grove_backends.iter().map(|name| config::backend(name, "--grove-backends"));
        config.options.enabled = named.collect::<Result<_, _>>()?;
    }
    for route in &args.grove_route {
        let (scheduler, backend) = route
            .split_once('=')
            .with_context(|| format!("--grove-route: {route} is not SCHEDULER=BACKEND"))?;
        config.options.routes.insert(scheduler.to_owned(), config::backend(backend, "--grove-route")?);
    }
    config.protect |= args.grove_protect;
    Ok(config)
}

/// What Kueue's configuration file says; what it says in vain is said once.
fn kueue(args: &Args) -> anyhow::Result<muster_kueue::Settings> {
    let base = Wanted::default().kueue;
    let Some(file) = &args.kueue_config else { return Ok(base) };
    let said = || format!("configuration of Kueue {}", file.display());
    let text = std::fs::read_to_string(file).with_context(said)?;
    let (settings, warnings) = base.with(&text).with_context(said)?;
    for warning in warnings {
        eprintln!("warning: configuration of Kueue: {warning}");
    }
    Ok(settings)
}

/// Serves the webhook and points the cluster's Kueue CRDs at it.
async fn start_conversion(client: kube::Client, port: u16, cancel: &CancellationToken) -> anyhow::Result<()> {
    let listener = listen(port).await?;
    let url = format!("{}/convert", listener.endpoint.url());
    let config = json!({"url": url, "caBundle": listener.endpoint.ca_base64()});
    let handle = |request| answer_json(request, |review| Ok(muster_api::kueue::convert::review(&review)));
    tokio::spawn(listener.serve_with(handle, cancel.clone()));

    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let crds: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let (mut pointed, mut absent) = (0, 0);
    for crd in crds_with_conversion(Some(&[System::Kueue]), &config) {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_string();
        if crds.get_opt(&name).await.with_context(|| format!("cannot read CRD {name}"))?.is_none() {
            absent += 1;
            continue;
        }
        // Only the conversion is ours to write here; the rest of the CRD belongs to whoever installed it.
        let ours: Value = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}, "spec": {"conversion": crd["spec"]["conversion"]},
        });
        let params = PatchParams::apply("muster/conversion").force();
        crds.patch(&name, &params, &Patch::Apply(&ours))
            .await
            .with_context(|| format!("cannot point CRD {name} at the webhook"))?;
        pointed += 1;
    }
    eprintln!("conversion   {url}  ({pointed} CRDs of Kueue point at it)");
    if absent > 0 {
        eprintln!(
            "hint: {absent} CRDs of Kueue are not installed: muster crds --group kueue | kubectl apply --server-side -f -"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    /// Two spellings of one flag.
    #[test]
    fn flags_are_understood_as_kai_spells_them() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        for flag in ["--nodepool-label-key", "--node-pool-label-key"] {
            let line = <Line as clap::Parser>::try_parse_from(["run", flag, "pool"]).unwrap();
            assert_eq!(line.args.node_pool_label_key, "pool", "{flag}");
        }
    }

    /// What the manifests and the operator start `muster run` with.
    #[test]
    fn flags_of_manifests_are_there() {
        let command = Args::augment_args(clap::Command::new("run"));
        let here: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let of_config = muster_install::operator::CONFIG_FLAGS.iter().map(|(.., flag)| flag);
        for flag in muster_install::FLAGS.iter().chain(of_config) {
            assert!(here.contains(flag), "muster run has no --{flag}");
        }
    }
}
