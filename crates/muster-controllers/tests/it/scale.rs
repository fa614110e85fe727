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

/// What a pod says that it consumes.
async fn consumed(cluster: &Cluster, pod: &str) -> String {
    let pod = cluster.get(&format!("{PODS}/{pod}")).await;
    pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"].to_string()
}

/// The autoscaler says this of a request.
async fn say_of(cluster: &Cluster, request: &str, kind: &str) {
    let now = muster_runtime::clock::stamp(cluster.clock.now());
    let condition = json!({"type": kind, "status": "True", "lastTransitionTime": now});
    cluster
        .patch(&format!("{REQUESTS}/{request}/status"), json!({"status": {"conditions": [condition]}}))
        .await;
}

/// As many GPUs as there is room for in the quota of the scaling namespace; who asks for more than that is refused.
#[tokio::test(start_paused = true)]
async fn one_that_is_refused_lets_the_others_ask() {
    let cluster = cluster().await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kai-scale-adjust"}});
    cluster.post("/api/v1/namespaces", namespace).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "kai-scale-adjust"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}, "status": {"hard": {"requests.nvidia.com/gpu": "2"},
        "used": {"requests.nvidia.com/gpu": "0"}}});
    cluster.post("/api/v1/namespaces/kai-scale-adjust/resourcequotas", quota).await;
    tokio::time::sleep(SOON).await;
    cluster.start(|cx| scale::start(cx, Options { cooldown: Duration::ZERO, ..Options::default() }));
    for (name, devices) in [("a", "3"), ("b", "1"), ("c", "1")] {
        let annotations = json!({"gpu-fraction": "0.9", "gpu-fraction-num-devices": devices});
        cluster.post(PODS, pod(name, annotations)).await;
        give_up_on(&cluster, name).await;
    }
    let asking = async |c: &Cluster| {
        let of = |pod: &Value| {
            pod["metadata"]["annotations"]["shared-gpu-pod-name"].as_str().unwrap_or("?").to_owned()
        };
        items(c, SCALING).await.iter().map(of).collect::<Vec<_>>().join(" ")
    };
    cluster.until(SOON, "b c", asking).await;
}

/// The group is whole again without one of those that were marked; or it is gone.
#[tokio::test(start_paused = true)]
async fn marks_go_with_the_request() {
    let cluster = cluster().await;
    cluster.server.install_crds(vec![request_crd()]).unwrap();
    cluster.start(|cx| scale::start(cx, Options::default()));
    for gang in ["g", "h"] {
        cluster.post(GROUPS, group(gang, "team", 2)).await;
        for i in 0..3 {
            let name = format!("{gang}{i}");
            cluster.post(PODS, member(&name, gang)).await;
            give_up_on(&cluster, &name).await;
        }
    }
    cluster.until(Duration::from_secs(90), "2", async |c| count(c, REQUESTS).await).await;
    for request in items(&cluster, REQUESTS).await {
        say_of(&cluster, request["metadata"]["name"].as_str().unwrap(), "Accepted").await;
    }
    let says = async |c: &Cluster| {
        let mut all = String::new();
        for pod in ["g0", "g1", "g2", "h0", "h1", "h2"] {
            all.push(if consumed(c, pod).await == "null" { '.' } else { '+' });
        }
        all
    };
    cluster.until(SOON, "++.++.", says).await;
    for pod in ["g1", "g2"] {
        cluster.bind(pod, "n1").await;
    }
    // Who has a node may go on saying so.
    cluster.until(SOON, ".+.++.", says).await;
    cluster.delete(&format!("{GROUPS}/h")).await;
    cluster.until(SOON, ".+....", says).await;
}

/// Kueue asks for capacity of its own for the workloads that it admits.
#[tokio::test(start_paused = true)]
async fn a_gang_with_somebody_elses_request_is_left_alone() {
    let cluster = cluster().await;
    cluster.server.install_crds(vec![request_crd()]).unwrap();
    cluster.start(|cx| scale::start(cx, Options::default()));
    cluster.post(GROUPS, group("g", "team", 2)).await;
    for name in ["a", "b"] {
        let mut pod = member(name, "g");
        pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] =
            json!("wl-check-1");
        cluster.post(PODS, pod).await;
        give_up_on(&cluster, name).await;
    }
    cluster.asked.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.writes(), "");
}

#[tokio::test(start_paused = true)]
async fn a_request_outlives_a_pod_that_is_made_again() {
    let cluster = cluster().await;
    cluster.server.install_crds(vec![request_crd()]).unwrap();
    cluster.start(|cx| scale::start(cx, Options::default()));
    cluster.post(GROUPS, group("g", "team", 2)).await;
    for name in ["a", "b"] {
        cluster.post(PODS, member(name, "g")).await;
        give_up_on(&cluster, name).await;
    }
    cluster.until(Duration::from_secs(90), "1", async |c| count(c, REQUESTS).await).await;
    let uid = async |c: &Cluster| {
        items(c, REQUESTS)
            .await
            .iter()
            .map(|request| request["metadata"]["uid"].to_string())
            .collect::<String>()
    };
    let first = uid(&cluster).await;
    cluster.delete(&format!("{PODS}/b")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(uid(&cluster).await, first);
    cluster.post(PODS, member("b", "g")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(uid(&cluster).await, first);
    give_up_on(&cluster, "b").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(uid(&cluster).await, first, "it is what the gang lacks again");
    cluster.delete(&format!("{PODS}/b")).await;
    cluster.until(Duration::from_secs(65), "", uid).await;
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
    // Until an autoscaler has taken it, those that look at pods see them.
    let name = made[0]["metadata"]["name"].as_str().unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(consumed(&cluster, "d").await, "null");
    say_of(&cluster, name, "Accepted").await;
    cluster.until(SOON, &format!("{name:?}"), async |c| consumed(c, "d").await).await;

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
