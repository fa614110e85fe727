//! Other systems' groups and queues on the embedded server: what their statuses say as pods come and run.

use std::time::Duration;

use muster_api::crd::System;
use muster_controllers::dialects::{self, Options};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PODS, cluster};

const SOON: Duration = Duration::from_secs(5);
const T9K: &str = "/apis/scheduler.tensorstack.dev/v1beta1/namespaces";
const SIGS: &str = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default";
const VOLCANO: &str = "/apis/scheduling.volcano.sh/v1beta1";

async fn others() -> Cluster {
    let cluster = cluster().await;
    let systems = [System::T9k, System::Koordinator, System::Volcano];
    cluster.server.install_crds(muster_api::crd::crds(Some(&systems))).unwrap();
    cluster
}

fn options() -> Options {
    let names = ["t9k-scheduler", "koord-scheduler", "volcano"];
    Options { scheduler_names: names.map(str::to_owned).to_vec(), ..Options::default() }
}

fn pod(name: &str, scheduler: &str, labels: Value, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "app:1",
            "resources": {"requests": {"cpu": "1"}}}]},
    })
}

fn object(api: &str, kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Some fields of an object, one after the other.
async fn shown(cluster: &Cluster, path: &str, fields: &[&str]) -> String {
    let object = cluster.get(path).await;
    let text = |field: &&str| match object.pointer(field) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    };
    fields.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn groups_and_queues_of_t9k() {
    let cluster = others().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t9k-system"}});
    cluster.post("/api/v1/namespaces", namespace).await;
    let api = "scheduler.tensorstack.dev/v1beta1";
    let spec = json!({"quota": {"requests": {"cpu": "2"}}});
    cluster
        .post(&format!("{T9K}/t9k-system/queues"), object(api, "Queue", "t9k-system", "default", spec))
        .await;
    let groups = format!("{T9K}/default/podgroups");
    cluster.post(&groups, object(api, "PodGroup", "default", "dance", json!({"minMember": 2}))).await;
    cluster.start(|cx| dialects::start(cx, options()));
    let dance = format!("{groups}/dance");
    let fields =
        ["/status/pending", "/status/running", "/status/conditions/0/status", "/status/conditions/1/status"];
    for name in ["test1", "test2"] {
        let label = json!({"scheduler.tensorstack.dev/group-name": "dance"});
        cluster.post(PODS, pod(name, "t9k-scheduler", label, json!({}))).await;
    }
    cluster.until(SOON, "2 - True False", async |c| shown(c, &dance, &fields).await).await;
    for name in ["test1", "test2"] {
        cluster.bind(name, "n1").await;
        cluster.phase(name, "Running").await;
    }
    cluster.until(SOON, "0 2 True True", async |c| shown(c, &dance, &fields).await).await;
    let queue = format!("{T9K}/t9k-system/queues/default");
    let of_queue = [
        "/status/pods/running",
        "/status/podGroups/total",
        "/status/allocated/cpu",
        "/status/conditions/1/status",
    ];
    cluster.until(SOON, "2 1 2 True", async |c| shown(c, &queue, &of_queue).await).await;

    // What is so is not written again.
    tokio::time::sleep(SOON).await;
    let before = cluster.writes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.writes(), before);
}

#[tokio::test(start_paused = true)]
async fn gangs_and_quotas_of_koordinator() {
    let cluster = others().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}});
    cluster.post("/api/v1/nodes", node).await;
    cluster.patch("/api/v1/nodes/n1/status", json!({"status": {"allocatable": {"cpu": "4"}}})).await;
    let api = "scheduling.sigs.k8s.io/v1alpha1";
    let spec = json!({"min": {"cpu": 1}, "max": {"cpu": 8}});
    cluster
        .post(&format!("{SIGS}/elasticquotas"), object(api, "ElasticQuota", "default", "team", spec))
        .await;
    cluster
        .post(&format!("{SIGS}/podgroups"), object(api, "PodGroup", "default", "g", json!({"minMember": 2})))
        .await;
    cluster.start(|cx| dialects::start(cx, options()));
    let group = format!("{SIGS}/podgroups/g");
    let fields = ["/status/phase", "/status/scheduled", "/status/running"];
    cluster.until(SOON, "Pending - -", async |c| shown(c, &group, &fields).await).await;
    let labels =
        json!({"pod-group.scheduling.sigs.k8s.io": "g", "quota.scheduling.koordinator.sh/name": "team"});
    for name in ["a", "b"] {
        cluster.post(PODS, pod(name, "koord-scheduler", labels.clone(), json!({}))).await;
    }
    cluster.until(SOON, "PreScheduling - -", async |c| shown(c, &group, &fields).await).await;
    for name in ["a", "b"] {
        cluster.bind(name, "n1").await;
    }
    cluster.until(SOON, "Scheduled 2 -", async |c| shown(c, &group, &fields).await).await;
    cluster.phase("a", "Running").await;
    cluster.phase("b", "Running").await;
    cluster.until(SOON, "Running 2 2", async |c| shown(c, &group, &fields).await).await;
    let quota = format!("{SIGS}/elasticquotas/team");
    let of_quota = [
        "/status/used/cpu",
        "/metadata/annotations/quota.scheduling.koordinator.sh~1request",
        "/metadata/annotations/quota.scheduling.koordinator.sh~1runtime",
    ];
    let expected = r#"2 {"cpu":"2"} {"cpu":"2"}"#;
    cluster.until(SOON, expected, async |c| shown(c, &quota, &of_quota).await).await;
    for i in 0..4 {
        let labels = json!({"quota.scheduling.koordinator.sh/name": "team"});
        cluster.post(PODS, pod(&format!("more-{i}"), "koord-scheduler", labels, json!({}))).await;
    }
    // Six cores are asked for, and the cluster has four.
    let expected = r#"2 {"cpu":"6"} {"cpu":"4"}"#;
    cluster.until(SOON, expected, async |c| shown(c, &quota, &of_quota).await).await;
}

#[tokio::test(start_paused = true)]
async fn queues_of_volcano() {
    let cluster = others().await;
    let api = "scheduling.volcano.sh/v1beta1";
    for (name, parent) in [("root", ""), ("dept", "root"), ("team", "dept")] {
        let spec = if parent.is_empty() { json!({}) } else { json!({"parent": parent}) };
        cluster.post(&format!("{VOLCANO}/queues"), object(api, "Queue", "", name, spec)).await;
    }
    let group = object(api, "PodGroup", "default", "g", json!({"minMember": 1, "queue": "team"}));
    cluster.post(&format!("{VOLCANO}/namespaces/default/podgroups"), group).await;
    cluster.start(|cx| dialects::start(cx, options()));
    let annotations = json!({"scheduling.k8s.io/group-name": "g"});
    cluster.post(PODS, pod("p", "volcano", json!({}), annotations)).await;
    cluster.bind("p", "n1").await;
    let fields = ["/status/state", "/status/pending", "/status/allocated/cpu"];
    for (name, expected) in [("team", "Open 1 1"), ("dept", "Open - 1"), ("root", "Open - 1")] {
        let path = format!("{VOLCANO}/queues/{name}");
        cluster.until(SOON, expected, async |c| shown(c, &path, &fields).await).await;
    }
    // The group has no status of its own in the API.
    let group = format!("{VOLCANO}/namespaces/default/podgroups/g");
    cluster.patch(&group, json!({"status": {"phase": "Running"}})).await;
    let path = format!("{VOLCANO}/queues/team");
    let fields = ["/status/pending", "/status/running"];
    cluster.until(SOON, "0 1", async |c| shown(c, &path, &fields).await).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_installed_costs_next_to_nothing() {
    let cluster = cluster().await;
    cluster.start(|cx| dialects::start(cx, options()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.writes(), "");
    let asked: usize = cluster.asked.lock().unwrap().values().sum();
    assert!(asked < 150, "{asked} requests in ten minutes");
}

/// Two processes share the work.
#[tokio::test(start_paused = true)]
async fn who_writes_queues_need_not_write_groups() {
    let cluster = others().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t9k-system"}});
    cluster.post("/api/v1/namespaces", namespace).await;
    let api = "scheduler.tensorstack.dev/v1beta1";
    let queue = object(api, "Queue", "t9k-system", "default", json!({}));
    cluster.post(&format!("{T9K}/t9k-system/queues"), queue).await;
    let group = object(api, "PodGroup", "default", "dance", json!({"minMember": 1}));
    cluster.post(&format!("{T9K}/default/podgroups"), group).await;
    let label = json!({"scheduler.tensorstack.dev/group-name": "dance"});
    cluster.post(PODS, pod("test", "t9k-scheduler", label, json!({}))).await;
    let (queue, group) =
        (format!("{T9K}/t9k-system/queues/default"), format!("{T9K}/default/podgroups/dance"));
    let of_queue = ["/status/pods/pending", "/status/podGroups/total"];
    cluster.start(|cx| dialects::start(cx, Options { groups: false, ..options() }));
    cluster.until(SOON, "1 1", async |c| shown(c, &queue, &of_queue).await).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(cluster.writes(), "PATCH queues/status 1");
    cluster.asked.lock().unwrap().clear();
    cluster.start(|cx| dialects::start(cx, Options { queues: false, ..options() }));
    cluster.until(SOON, "1", async |c| shown(c, &group, &["/status/pending"]).await).await;
    assert_eq!(cluster.writes(), "PATCH podgroups/status 1");
    assert_eq!(cluster.count("GET queues"), 0);
}
