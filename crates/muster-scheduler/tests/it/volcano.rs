//! Volcano's objects on a live cluster, beside KAI's: gangs, what their groups say, and pods that name no group.

use crate::cluster::{Cluster, cluster_with};
use muster_api::crd::{System, crds};
use muster_scheduler::Options;
use muster_scheduler::record::Setup;
use serde_json::{Value, json};
use std::time::Duration;

const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";

/// A cluster whose scheduler answers to both names; Volcano's kinds are not there from the beginning.
async fn both(nodes: usize, gpus: u32) -> Cluster {
    let names = ["kai-scheduler", "volcano"].map(String::from).to_vec();
    let setup = Setup { scheduler_names: names, grouped: Vec::new(), ..Setup::default() };
    let (settings, policy, found) = setup.read();
    assert!(found.is_empty(), "{found:?}");
    let cluster = cluster_with(nodes, gpus, Options { settings, policy, ..Options::default() }).await;
    cluster.gang("before", "q", 1, 1, 1).await;
    cluster.eventually("before", "0 waiting, 0 bound, 1 running").await;
    cluster.server.install_crds(crds(Some(&[System::Volcano]))).unwrap();
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"},
        "spec": {"weight": 1, "guarantee": {"resource": {"nvidia.com/gpu": "2"}}}});
    cluster.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue).await;
    cluster
}

async fn group(cluster: &Cluster, name: &str, min: u32) {
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name}, "spec": {"minMember": min, "queue": "q"}});
    cluster.create(GROUPS, group).await;
}

async fn pod(cluster: &Cluster, name: &str, group: Option<&str>, gpus: u32) {
    let annotations = group.map_or_else(|| json!({}), |g| json!({"scheduling.k8s.io/group-name": g}));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "i",
            "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}});
    cluster.create("/api/v1/namespaces/default/pods", pod).await;
}

/// The group once its status holds.
#[track_caller]
fn eventually<'a>(
    cluster: &'a Cluster,
    name: &'a str,
    holds: impl Fn(&Value) -> bool + 'a,
) -> impl Future<Output = Value> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let mut last = Value::Null;
        for _ in 0..900 {
            last = cluster.api.get_path(&format!("{GROUPS}/{name}")).await.unwrap_or_default();
            if holds(&last["status"]) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("{caller}: {name} is {last}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_runs_whole_and_its_group_says_so() {
    let cluster = both(1, 8).await;
    group(&cluster, "g", 3).await;
    pod(&cluster, "g-0", Some("g"), 2).await;
    pod(&cluster, "g-1", Some("g"), 2).await;
    let waits = eventually(&cluster, "g", |status| status["conditions"][0]["type"] == "Unschedulable").await;
    assert_eq!(waits["status"]["phase"], "Inqueue", "{waits}");
    assert_eq!(waits["status"]["conditions"][0]["reason"], "NotEnoughTasks", "{waits}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let first = cluster.get("/api/v1/namespaces/default/pods/g-0").await;
    assert!(first["spec"]["nodeName"].is_null(), "below its minimum nothing starts: {first}");
    pod(&cluster, "g-2", Some("g"), 2).await;
    let runs = eventually(&cluster, "g", |s| s["phase"] == "Running" && s["running"] == 3).await;
    let scheduled =
        runs["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Scheduled");
    assert_eq!(scheduled.unwrap()["reason"], "tasks in gang are ready to be scheduled", "{runs}");
    // One GPU is KAI's and six are Volcano's: one is left, for whoever comes.
    group(&cluster, "late", 1).await;
    pod(&cluster, "late-0", Some("late"), 2).await;
    let why = eventually(&cluster, "late", |s| s["conditions"][0]["reason"] == "NotEnoughResources").await;
    let message = why["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending"),
        "{message}"
    );
    cluster.gang("kai", "q", 1, 1, 1).await;
    cluster.eventually("kai", "0 waiting, 0 bound, 1 running").await;
    // When KAI's gangs go, their room is Volcano's.
    cluster.delete("/api/v1/namespaces/default/pods/before-0").await;
    cluster.delete("/api/v1/namespaces/default/pods/kai-0").await;
    eventually(&cluster, "late", |s| s["phase"] == "Running").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_names_no_group_is_given_one() {
    let cluster = both(1, 8).await;
    pod(&cluster, "alone", None, 1).await;
    let uid = cluster.get("/api/v1/namespaces/default/pods/alone").await["metadata"]["uid"].clone();
    let name = format!("podgroup-{}", uid.as_str().unwrap());
    let group = eventually(&cluster, &name, |s| s["phase"] == "Running" && s["running"] == 1).await;
    assert_eq!(group["spec"]["minMember"], 1, "{group}");
    assert_eq!(group["spec"]["minResources"]["nvidia.com/gpu"], "1", "{group}");
    assert_eq!(group["metadata"]["ownerReferences"][0]["name"], "alone", "{group}");
    let pod = cluster.get("/api/v1/namespaces/default/pods/alone").await;
    assert_eq!(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], json!(name), "{pod}");
}
