//! Runs the simulation against the cluster of the kubeconfig, until interrupted.
//!
//! `cargo run -p muster-sim --example simulate -- 16 8` makes 16 nodes with 8 GPUs each. The cluster needs an API
//! server and nothing else; with a controller manager of its own, pass `nodes` as third argument, and only nodes and
//! kubelets are simulated.

use muster_sim::{Clock, Component, Fleet, Options};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u32| args.get(i).map_or(Ok(default), |text| text.parse());
    let fleet = Fleet::simple(usize::try_from(number(0, 4)?)?, number(1, 8)?)?;
    let components = match args.get(2).map(String::as_str) {
        Some("nodes") => [Component::Nodes, Component::Kubelet].into(),
        _ => Component::all(),
    };
    let client = kube::Client::try_default().await?;
    let cancel = CancellationToken::new();
    let interrupted = cancel.clone();
    tokio::spawn(async move {
        // Without a signal handler the process ends by itself, which is as good.
        let _ = tokio::signal::ctrl_c().await;
        interrupted.cancel();
    });
    muster_sim::run(client, Options { fleet, components, ..Options::default() }, Clock::system(), cancel)
        .await?;
    Ok(())
}
