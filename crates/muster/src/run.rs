//! `muster run`: Muster's services against the cluster of the kubeconfig. Today there is one, the conversion of Kueue's two
//! versions; the others join it as they are built.
//!
//! In: a cluster. Out: an HTTPS webhook, and Kueue's CRDs in the cluster pointed at it, until Ctrl-C.

use crate::Exit;
use crate::up::{interrupted, runtime};
use anyhow::Context;
use clap::ValueEnum;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use muster_api::{System, crds_with_conversion};
use muster_apiserver::http::{answer_json, listen};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  muster crds --group kueue | kubectl apply --server-side -f -\n  muster run --components conversion      until Ctrl-C: Kueue's v1beta1 and v1beta2 are converted without loss\n\nThe webhook listens on 127.0.0.1, so it serves API servers on this machine. The form for running inside a cluster comes\nwith the other services."
)]
pub struct Args {
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "conversion")]
    components: Vec<Component>,
    /// Port of the webhook on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Component {
    /// The conversion webhook of Kueue's two versions
    Conversion,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    runtime()?.block_on(async {
        let Args { components, port } = args;
        let cancel = CancellationToken::new();
        for component in components {
            match component {
                Component::Conversion => start_conversion(port, &cancel).await?,
            }
        }
        interrupted().await;
        cancel.cancel();
        Ok(Exit::Done)
    })
}

/// Serves the webhook and points the cluster's Kueue CRDs at it.
async fn start_conversion(port: u16, cancel: &CancellationToken) -> anyhow::Result<()> {
    let client = kube::Client::try_default().await.context("no cluster\nhint: set KUBECONFIG")?;
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
