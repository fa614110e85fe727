//! Versions of custom kinds: Kueue's two on a real API server, converted by the webhook of `muster run`; and a stored version that changes
//! while there are objects, on both servers.

use anyhow::{Context, Result, ensure};
use muster_apiserver::http::{answer_json, listen};
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

/// `spec.count` of v1 is `spec.size` of v2. Admission refuses more than nine of v1, and says what it was asked about.
fn review(path: &str, review: &Value) -> Value {
    let request = &review["request"];
    if path != "/convert" {
        let version = |field: &str| request[field]["version"].as_str().unwrap_or_default().to_owned();
        let said = format!(
            "{} for {}: {} was {}",
            version("kind"),
            version("requestKind"),
            request["object"]["spec"],
            request["oldObject"]["spec"]
        );
        let allowed = request["object"]["spec"]["count"].as_i64().is_some_and(|n| n <= 9);
        let response = json!({"uid": request["uid"], "allowed": allowed, "status": {"message": said}});
        return json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    }
    let to = &request["desiredAPIVersion"];
    let (old, new) = if to == "eras.example.com/v1" { ("size", "count") } else { ("count", "size") };
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = to.clone();
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(old)) {
            object["spec"][new] = value;
        }
        object
    };
    let objects: Vec<Value> = request["objects"].as_array().into_iter().flatten().map(convert).collect();
    let result = json!({"status": "Success"});
    let response = json!({"uid": request["uid"], "result": result, "convertedObjects": objects});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

fn crd(url: &str, ca: &str, stored: &str) -> Value {
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}}}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.eras.example.com"},
        "spec": {
            "group": "eras.example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": format!("{url}/convert"), "caBundle": ca}}},
            "versions": [version("v1", "count"), version("v2", "size")],
        },
    })
}

/// What happens on a server while the stored version changes, a line for each thing that is seen.
///
/// While the webhook is gone only single objects are asked for, which are read from the store and converted then and there. What a list or a watch says
/// meanwhile depends on the copies that the real server keeps of each version, and on when they were made.
async fn story(http: &Http) -> Result<Vec<String>> {
    let listener = listen(0).await?;
    let (url, ca) = (listener.endpoint.url(), listener.endpoint.ca_base64());
    let stop = tokio_util::sync::CancellationToken::new();
    let _ends_with_us = stop.clone().drop_guard();
    tokio::spawn(listener.serve_with(
        |request| async move {
            let path = request.uri().path().to_owned();
            answer_json(request, move |body| Ok(review(&path, &body))).await
        },
        stop.clone(),
    ));
    // A port on which nobody answers.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let down = format!("https://{nobody}");

    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let at = format!("{crds}/things.eras.example.com");
    let things = |version: &str, rest: &str| format!("/apis/eras.example.com/{version}/things{rest}");
    let thing = |version: &str, name: &str, spec: Value| json!({"apiVersion": format!("eras.example.com/{version}"), "kind": "Thing", "metadata": {"name": name}, "spec": spec});
    let patch = |path: &str, body: &Value| {
        Request::new("PATCH", path).header("content-type", "application/merge-patch+json").json(body)
    };
    let mut seen: Vec<String> = Vec::new();
    let patience = Duration::from_secs(30);

    ok(http, Request::new("POST", crds).json(&crd(&url, &ca, "v1"))).await?;
    let old = eventually("the kind is served", patience, async || {
        ok(http, Request::new("POST", &things("v1", "")).json(&thing("v1", "old", json!({"count": 3})))).await
    })
    .await?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();

    // The stored version changes, and the webhook is down.
    ok(http, patch(&at, &json!({"spec": crd(&down, &ca, "v2")["spec"]}))).await?;
    let answer = eventually("the change has arrived", patience, async || {
        let answer = http.send(&Request::new("GET", &things("v2", "/old"))).await?;
        let is_webhook = String::from_utf8_lossy(&answer.body).contains("conversion webhook");
        ensure!(answer.status == 500 && is_webhook, "{}", answer.status);
        Ok::<_, anyhow::Error>(answer)
    })
    .await?;
    let stored = ok(http, Request::new("GET", &at)).await?["status"]["storedVersions"].clone();
    seen.push(format!("stored {stored}"));
    // Why nobody could be reached, every program says in its own words.
    let text = answer.json().unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned();
    let whose = text.split_once("conversion webhook").and_then(|(_, rest)| rest.split_once(" failed"));
    seen.push(format!("v2{}", whose.map_or(text.as_str(), |(whose, _)| whose)));
    let own = ok(http, Request::new("GET", &things("v1", "/old"))).await?;
    seen.push(format!("v1 {} {}", own["spec"], version(&own) == version(&old)));
    let new = ok(http, Request::new("POST", &things("v2", "")).json(&thing("v2", "new", json!({"size": 4}))))
        .await?;
    seen.push(format!("new {}", new["spec"]));

    // It is up again.
    ok(http, patch(&at, &json!({"spec": crd(&url, &ca, "v2")["spec"]}))).await?;
    let converted = eventually("the webhook is asked again", patience, async || {
        ok(http, Request::new("GET", &things("v2", "/old"))).await
    })
    .await?;
    seen.push(format!("v2 {} {}", converted["spec"], version(&converted) == version(&old)));
    for of in ["v1", "v2"] {
        // What the server keeps of a version comes back when the webhook does.
        let list = eventually("both versions are listed", patience, async || {
            ok(http, Request::new("GET", &things(of, ""))).await
        })
        .await?;
        let specs: Vec<&Value> =
            list["items"].as_array().into_iter().flatten().map(|item| &item["spec"]).collect();
        seen.push(format!("list {of} {}", json!(specs)));
    }
    // A write that changes nothing brings an object into the stored version, once.
    let same = ok(http, Request::new("PUT", &things("v2", "/old")).json(&converted)).await?;
    seen.push(format!("written {}", version(&same) != version(&converted)));
    let again = ok(http, Request::new("PUT", &things("v2", "/old")).json(&same)).await?;
    seen.push(format!("written again {}", version(&again) != version(&same)));

    // Admission for one version sees the other.
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({"metadata": {"name": "eras"}, "webhooks": [{
        "name": "few.eras.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{url}/few"), "caBundle": ca},
        "rules": [{"apiGroups": ["eras.example.com"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["things"]}]}]});
    ok(http, Request::new("POST", webhooks).json(&hook)).await?;
    let size = std::cell::Cell::new(20);
    let refused = eventually("the admission webhook is asked", patience, async || {
        size.set(size.get() + 1);
        let answer = http.send(&patch(&things("v2", "/new"), &json!({"spec": {"size": size.get()}}))).await?;
        ensure!(answer.status != 200, "let through");
        Ok::<_, anyhow::Error>(answer)
    })
    .await?;
    let text = refused.json().unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned();
    let text: String =
        text.chars().map(|c| if c.is_ascii_digit() && c != '1' && c != '2' { '_' } else { c }).collect();
    seen.push(format!("admission {} {}", refused.status, text.split(": {").next().unwrap_or_default()));
    ok(http, Request::new("DELETE", &format!("{webhooks}/eras"))).await?;

    // A version stays for as long as something may be stored in it.
    let only = json!({"spec": {"versions": [crd(&url, &ca, "v2")["spec"]["versions"][1]]}});
    let answer = http.send(&patch(&at, &only)).await?;
    let text = answer.json().unwrap_or_default()["message"].clone();
    seen.push(format!("without v1 {} {text}", answer.status));
    ok(http, patch(&format!("{at}/status"), &json!({"status": {"storedVersions": ["v2"]}}))).await?;
    let answer = http.send(&patch(&at, &only)).await?;
    seen.push(format!("without v1 {}", answer.status));
    ok(http, Request::new("DELETE", &at)).await?;
    Ok(seen)
}

#[tokio::test]
async fn the_stored_version_changes_alike_real_and_embedded() -> Result<()> {
    let embedded = story(&clusters::embedded().await?.http().await?).await?;
    let Some(real) = clusters::real().await? else { return Ok(()) };
    assert_eq!(embedded, story(&real.http().await?).await?);
    Ok(())
}
