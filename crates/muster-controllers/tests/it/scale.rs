//! Capacity is asked for while pods wait, and given back.

use std::time::Duration;

use muster_controllers::scale::{self, Options};
use serde_json::{Value, json};

use crate::cluster::{Cluster, GROUPS, PODS, cluster, group, member, pod};

const SOON: Duration = Duration::from_secs(5);
const SCALING: &str = "/api/v1/namespaces/kai-scale-adjust/pods";
const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";

async fn give_up_on(cluster: &Cluster, pod: &str) {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "lastTransitionTime": muster_runtime::clock::stamp(cluster.clock.now())});
    cluster.patch(&format!("{PODS}/{pod}/status"), json!({"status": {"conditions": [condition]}})).await;
}

async fn items(cluster: &Cluster, path: &str) -> Vec<Value> {
    cluster.get(path).await["items"].as_array().cloned().unwrap_or_default()
}

async fn count(cluster: &Cluster, path: &str) -> String {
    items(cluster, path).await.len().to_string()
}

#[tokio::test(start_paused = true)]
async fn fractions_become_whole_gpus() {
    let cluster = cluster().await;
    cluster.start(|cx| scale::start(cx, Options::default()));
    tokio::time::sleep(Duration::from_secs(61)).await;
    for name in ["a", "b", "c"] {
        cluster.post(PODS, pod(name, json!({"gpu-fraction": "0.5"}))).await;
        give_up_on(&cluster, name).await;
    }
    cluster.until(SOON, "2", async |c| count(c, SCALING).await).await;
    let made = items(&cluster, SCALING).await;
    assert_eq!(made[0]["status"]["conditions"][0]["reason"], "Unschedulable");
    assert_eq!(made[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1");

    // One has served: it goes, and nothing new is asked for while its node settles.
    let name = made[0]["metadata"]["name"].as_str().unwrap();
    cluster.patch(&format!("{SCALING}/{name}/status"), json!({"status": {"phase": "Succeeded"}})).await;
    cluster.until(SOON, "1", async |c| count(c, SCALING).await).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(count(&cluster, SCALING).await, "1", "it cools down");
    cluster.until(Duration::from_secs(20), "2", async |c| count(c, SCALING).await).await;

    for name in ["a", "b", "c"] {
        cluster.bind(name, "n1").await;
    }
    cluster.until(SOON, "0", async |c| count(c, SCALING).await).await;
    assert_eq!(cluster.count("GET provisioningrequests"), 0, "what is not served is not listed");
}

fn request_crd() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "provisioningrequests.autoscaling.x-k8s.io"},
        "spec": {
            "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ProvisioningRequest", "listKind": "ProvisioningRequestList",
                "plural": "provisioningrequests", "singular": "provisioningrequest"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_waits_has_one_request() {
    let cluster = cluster().await;
    let first = cluster.start(|cx| scale::start(cx, Options::default()));
    cluster.post(GROUPS, group("g", "team", 4)).await;
    for name in ["a", "b", "c", "d"] {
        cluster.post(PODS, member(name, "g")).await;
        give_up_on(&cluster, name).await;
    }
    tokio::time::sleep(SOON).await;
    // The API comes late, and is found.
    cluster.server.install_crds(vec![request_crd()]).unwrap();
    cluster.until(Duration::from_secs(90), "1", async |c| count(c, REQUESTS).await).await;
    let made = items(&cluster, REQUESTS).await;
    assert_eq!(made[0]["spec"]["podSets"][0]["count"], 4);
    assert_eq!(made[0]["spec"]["provisioningClassName"], "best-effort-atomic-scale-up.autoscaling.x-k8s.io");
    assert_eq!(made[0]["metadata"]["ownerReferences"][0]["kind"], "PodGroup");
    let template = items(&cluster, TEMPLATES).await;
    assert_eq!(template[0]["metadata"]["name"], made[0]["spec"]["podSets"][0]["podTemplateRef"]["name"]);
    assert_eq!(template[0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    let consumes = async |c: &Cluster| {
        let pod = c.get(&format!("{PODS}/d")).await;
        pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"].to_string()
    };
    cluster.until(SOON, &made[0]["metadata"]["name"].to_string(), consumes).await;

    // A restart in the middle changes nothing.
    first.cancel();
    cluster.asked.lock().unwrap().clear();
    cluster.start(|cx| scale::start(cx, Options::default()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.writes(), "");

    for name in ["a", "b", "c", "d"] {
        cluster.bind(name, "n1").await;
    }
    cluster.until(SOON, "0", async |c| count(c, REQUESTS).await).await;
    cluster.until(SOON, "0", async |c| count(c, TEMPLATES).await).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_are_asked_for_only_while_they_would_help() {
    let cluster = cluster().await;
    cluster.server.install_crds(vec![request_crd()]).unwrap();
    cluster.start(|cx| scale::start(cx, Options::default()));
    let waits_for = async |reason: &str| {
        let condition = json!({"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "message": "",
            "reason": reason, "transitionID": "0", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"schedulingConditions": [condition]}});
        cluster.patch(&format!("{GROUPS}/g/status"), status).await;
    };
    cluster.post(GROUPS, group("g", "nowhere", 2)).await;
    waits_for("QueueDoesNotExist").await;
    for name in ["a", "b"] {
        cluster.post(PODS, member(name, "g")).await;
        give_up_on(&cluster, name).await;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(count(&cluster, REQUESTS).await, "0", "there is no such queue");
    // The pods say the same as before: what the group waits for is enough.
    waits_for("PodSchedulingErrors").await;
    cluster.until(SOON, "1", async |c| count(c, REQUESTS).await).await;
    waits_for("OverLimit").await;
    cluster.until(SOON, "0", async |c| count(c, REQUESTS).await).await;
    cluster.until(SOON, "0", async |c| count(c, TEMPLATES).await).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_three_subgroups_is_asked_for() {
    let cluster = cluster().await;
    cluster.server.install_crds(vec![request_crd()]).unwrap();
    cluster.start(|cx| scale::start(cx, Options::default()));
    let mut gang = group("g", "team", 1);
    let leaf = |name: &str| json!({"name": name, "minMember": 1});
    gang["spec"] = json!({"queue": "team", "minSubGroup": 1, "subGroups": [leaf("x"), leaf("y"), leaf("z")]});
    cluster.post(GROUPS, gang).await;
    for name in ["x", "y", "z"] {
        let mut pod = member(name, "g");
        pod["metadata"]["labels"] = json!({"kai.scheduler/subgroup-name": name});
        cluster.post(PODS, pod).await;
        give_up_on(&cluster, name).await;
    }
    cluster.until(Duration::from_secs(90), "1", async |c| count(c, REQUESTS).await).await;
    let made = items(&cluster, REQUESTS).await;
    assert_eq!(made[0]["spec"]["podSets"][0]["count"], 1);
    assert_eq!(made[0]["spec"]["podSets"].as_array().unwrap().len(), 1);
}
