//! The API server alone, on a socket: what `muster up --no-crds --no-services --no-controllers` is, built in a fraction of the time.
//!
//! In: the arguments of `muster up`, of which only `--kubeconfig FILE` matters. Out: a server that runs until it is ended.
//! `MUSTER_BIN=target/debug/examples/serve cargo test -p muster-e2e --test it random_sequences` compares it with Kubernetes.

use muster_apiserver::http::listen;
use muster_apiserver::{ApiServer, Options};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip_while(|arg| arg != "--kubeconfig").skip(1);
    let kubeconfig = args.next().ok_or("--kubeconfig FILE is missing")?;
    let listener = listen(0).await?;
    listener.endpoint.write_kubeconfig(std::path::Path::new(&kubeconfig))?;
    listener.serve(ApiServer::new(Options::default()), CancellationToken::new()).await;
    Ok(())
}
