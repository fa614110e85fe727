//! Kueue's two versions on a real API server, converted by the webhook of `muster run`.

use anyhow::{Context, Result, ensure};
use muster_e2e::clusters;
use muster_testkit::{Http, RealCluster, RealOptions, Request, eventually, muster_binary};
use serde_json::{Value, json};
use std::process::{Child, Command};
use std::time::Duration;

/// Ends the process with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ok(http: &Http, request: Request) -> Result<Value> {
    let answer = http.send(&request).await?;
    let body = answer.json().unwrap_or_default();
    ensure!(
        (200..300).contains(&answer.status),
        "{} {}: {} {body}",
        request.method,
        request.path,
        answer.status
    );
    Ok(body)
}

/// A cluster of its own: the CRDs of the shared one must not point at a webhook that ends with this test.
#[tokio::test]
async fn kueue_versions_are_converted_without_loss_real() -> Result<()> {
    // The shared cluster first: it says why there is none, and its programs are built once.
    if clusters::real().await?.is_none() {
        return Ok(());
    }
    let real = RealCluster::start(RealOptions { with: Vec::new(), ..RealOptions::default() }).await?;
    let binary = tokio::task::spawn_blocking(muster_binary).await??;
    let http = real.http().await?;
    let printed = Command::new(&binary).args(["crds", "--group", "kueue", "-o", "json"]).output()?;
    let list: Value = serde_json::from_slice(&printed.stdout)?;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for crd in list["items"].as_array().context("no list")? {
        ok(&http, Request::new("POST", crds).json(crd)).await?;
    }
    let mut command = Command::new(&binary);
    command.args(["run", "--components", "conversion"]).env("KUBECONFIG", &real.kubeconfig);
    let _webhook = Running(command.spawn()?);

    // Webhook strategy and both versions served: only then are requests converted.
    let queues = |version: &str| format!("/apis/kueue.x-k8s.io/{version}/clusterqueues");
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "probe"},
        "spec": {
            "cohort": "team", "admissionChecks": ["check"], "namespaceSelector": {},
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}],
        },
    });
    eventually("the API server converts by the webhook", Duration::from_secs(60), async || {
        let _ = http.send(&Request::new("DELETE", &format!("{}/probe", queues("v1beta1")))).await?;
        ok(&http, Request::new("POST", &queues("v1beta1")).json(&old)).await?;
        let new = ok(&http, Request::new("GET", &format!("{}/probe", queues("v1beta2")))).await?;
        ensure!(new["spec"]["cohortName"] == "team", "still as it was written: {}", new["spec"]);
        Ok::<_, anyhow::Error>(())
    })
    .await?;

    let new = ok(&http, Request::new("GET", &format!("{}/probe", queues("v1beta2")))).await?;
    let spec = &new["spec"];
    assert_eq!(spec["admissionChecksStrategy"]["admissionChecks"], json!([{"name": "check"}]));
    assert_eq!(
        (&spec["flavorFungibility"]["whenCanBorrow"], &spec["flavorFungibility"]["whenCanPreempt"]),
        (&json!("MayStopSearch"), &json!("MayStopSearch"))
    );
    assert_eq!(spec.get("cohort"), None);
    // An edit through the new version is seen through the old one, with its words.
    let patch = Request::new("PATCH", &format!("{}/probe", queues("v1beta2")))
        .header("content-type", "application/merge-patch+json")
        .json(&json!({"spec": {"cohortName": "other"}}));
    ok(&http, patch).await?;
    let back = ok(&http, Request::new("GET", &format!("{}/probe", queues("v1beta1")))).await?;
    assert_eq!(back["spec"]["cohort"], "other");
    assert_eq!(back["spec"]["admissionChecks"], json!(["check"]));
    assert_eq!(back["spec"]["flavorFungibility"], old["spec"]["flavorFungibility"]);
    Ok(())
}
