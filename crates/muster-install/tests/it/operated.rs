//! The operator on a cluster, on virtual time.

use std::time::Duration;

use muster_install::operator;
use muster_runtime::{Clock, Context};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, base, cluster};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kai-scheduler/deployments";
const CONFIG: &str = "/apis/kai.scheduler/v1/configs/kai-config";

fn operate(cluster: &Cluster) -> JoinSet<()> {
    let clock = Clock::starting_at(base());
    let (cx, events) = Context::new(cluster.client.clone(), "muster", clock, cluster.cancel.clone());
    let options = operator::Options { image: "team/muster:1".into(), namespace: "muster-system".into() };
    let mut tasks = JoinSet::new();
    tasks.spawn(events);
    tasks.spawn(operator::start(&cx, options));
    cx.watch(&mut tasks);
    tasks
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}");
}

async fn names(cluster: &Cluster) -> String {
    let list = cluster.get(DEPLOYMENTS).await.unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect();
    names.join(" ")
}

/// The conditions that are true.
async fn conditions(cluster: &Cluster, path: &str) -> String {
    let object = cluster.get(path).await.unwrap_or_default();
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let on: Vec<&str> =
        list.iter().filter(|c| c["status"] == "True").map(|c| c["type"].as_str().unwrap()).collect();
    on.join(" ")
}

fn shard(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name}, "spec": spec})
}

async fn make_available(cluster: &Cluster) {
    let list = cluster.get(DEPLOYMENTS).await.unwrap();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        let status = json!({"status": {
            "observedGeneration": item["metadata"]["generation"], "replicas": 1, "availableReplicas": 1, "readyReplicas": 1,
            "conditions": [{"type": "Available", "status": "True"}],
        }});
        cluster.ask("PATCH", &format!("{DEPLOYMENTS}/{name}/status"), &status).await.unwrap();
    }
}

const ALL: &str =
    "muster-admission muster-binder muster-grouper muster-podgroups muster-queues muster-scale-adjuster";

#[tokio::test(start_paused = true)]
async fn a_config_becomes_a_running_system() {
    let cluster = cluster(false);
    let _tasks = operate(&cluster);

    // Without a Config nothing happens, shards or not.
    cluster.apply(&shard("default", json!({})), false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(names(&cluster).await, "");
    assert!(cluster.get("/api/v1/namespaces/kai-scheduler").await.is_none());

    let config = json!({
        "apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": {},
    });
    cluster.apply(&config, false).await.unwrap();
    until("all Deployments", async || names(&cluster).await == format!("{ALL} muster-scheduler-default"))
        .await;
    until("deployed", async || conditions(&cluster, CONFIG).await == "Deployed DependenciesFulfilled").await;
    make_available(&cluster).await;
    let ready = "Deployed Available DependenciesFulfilled Ready";
    until("ready", async || conditions(&cluster, CONFIG).await == ready).await;
    let shard_path = "/apis/kai.scheduler/v1/schedulingshards/default";
    until("the shard too", async || conditions(&cluster, shard_path).await == ready).await;

    // All is as it should be, so nothing is written, however long it goes on.
    let version = cluster.get(DEPLOYMENTS).await.unwrap()["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(Duration::from_secs(1200)).await;
    let later = cluster.get(DEPLOYMENTS).await.unwrap()["metadata"]["resourceVersion"].clone();
    assert_eq!(later, version, "something was written");

    // A second shard, with an argument that nobody knows.
    let spec = json!({"partitionLabelValue": "a", "args": {"nonsense": "1"}});
    cluster.apply(&shard("a", spec), false).await.unwrap();
    until("a second scheduler", async || names(&cluster).await.contains("muster-scheduler-a ")).await;
    let shard_a = "/apis/kai.scheduler/v1/schedulingshards/a";
    until("a warning", async || conditions(&cluster, shard_a).await.contains("Warnings")).await;

    // What somebody broke is mended.
    let broken = json!({"spec": {"replicas": 7}});
    cluster.ask("PATCH", &format!("{DEPLOYMENTS}/muster-binder"), &broken).await.unwrap();
    until("mended", async || {
        cluster.get(&format!("{DEPLOYMENTS}/muster-binder")).await.unwrap()["spec"]["replicas"] == 1
    })
    .await;

    // What is taken out of the Config is taken out of what runs.
    let config_with = |spec: Value| json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": spec});
    let selector = async || {
        let binder = cluster.get(&format!("{DEPLOYMENTS}/muster-binder")).await.unwrap();
        binder["spec"]["template"]["spec"]["nodeSelector"]["pool"].clone()
    };
    cluster.apply(&config_with(json!({"global": {"nodeSelector": {"pool": "x"}}})), false).await.unwrap();
    until("a node selector", async || selector().await == "x").await;
    cluster.apply(&config_with(json!({})), false).await.unwrap();
    until("no node selector", async || selector().await.is_null()).await;

    // A shard that goes takes its scheduler along, and nothing else.
    cluster.ask("DELETE", shard_a, &Value::Null).await.unwrap();
    until("gone", async || names(&cluster).await == format!("{ALL} muster-scheduler-default")).await;

    // A service that is turned off goes.
    let config = json!({
        "apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"},
        "spec": {"nodeScaleAdjuster": {"service": {"enabled": false}}},
    });
    cluster.apply(&config, false).await.unwrap();
    until("off", async || !names(&cluster).await.contains("scale-adjuster")).await;

    // And with the Config goes everything but the namespaces.
    cluster.ask("DELETE", CONFIG, &Value::Null).await.unwrap();
    until("all gone", async || names(&cluster).await.is_empty()).await;
    assert!(cluster.get("/api/v1/namespaces/kai-scheduler").await.is_some());
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/muster-scheduler";
    until("roles gone", async || cluster.get(roles).await.is_none()).await;
}

/// What somebody else made under a name of ours serves as it is, and outlives the Config.
#[tokio::test(start_paused = true)]
async fn what_others_made_stays() {
    let cluster = cluster(false);
    let space = "/api/v1/namespaces/kai-resource-reservation";
    let account = format!("{space}/serviceaccounts/kai-resource-reservation");
    let name = json!({"name": "kai-resource-reservation", "labels": {"team": "a"}});
    let spaces = "/api/v1/namespaces";
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": name});
    let space_before = cluster.ask("POST", spaces, &body).await.unwrap();
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name});
    let before = cluster.ask("POST", &format!("{space}/serviceaccounts"), &body).await.unwrap();

    let _tasks = operate(&cluster);
    cluster.apply(&shard("default", json!({})), false).await.unwrap();
    let config = json!({
        "apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": {},
    });
    cluster.apply(&config, false).await.unwrap();
    until("deployed", async || conditions(&cluster, CONFIG).await.starts_with("Deployed")).await;
    assert_eq!(cluster.get(&account).await.as_ref(), Some(&before));
    assert_eq!(cluster.get(space).await.as_ref(), Some(&space_before));
    // What it made itself says so, for an uninstallation to find.
    for made in ["kai-scheduler", "kai-scale-adjust"] {
        let found = cluster.get(&format!("{spaces}/{made}")).await.unwrap();
        assert!(muster_install::is_marked(&found), "{found}");
    }

    cluster.ask("DELETE", CONFIG, &Value::Null).await.unwrap();
    until("all gone", async || names(&cluster).await.is_empty()).await;
    let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/kai-resource-reservation/roles/kai-resource-reservation";
    until("its role is gone", async || cluster.get(role).await.is_none()).await;
    assert_eq!(cluster.get(&account).await.as_ref(), Some(&before));
}

#[tokio::test(start_paused = true)]
async fn monitoring_needs_its_kinds() {
    for served in [false, true] {
        let cluster = cluster(served);
        let _tasks = operate(&cluster);
        let config = json!({
            "apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"},
            "spec": {"prometheus": {"serviceMonitor": {"enabled": true}}},
        });
        cluster.apply(&config, false).await.unwrap();
        let monitor = "/apis/monitoring.coreos.com/v1/namespaces/kai-scheduler/servicemonitors/muster";
        if served {
            until("a monitor", async || cluster.get(monitor).await.is_some()).await;
        } else {
            until("deployed without", async || conditions(&cluster, CONFIG).await.contains("Deployed")).await;
            assert!(!conditions(&cluster, CONFIG).await.contains("DependenciesFulfilled"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_config_does_not_count() {
    let cluster = cluster(false);
    let _tasks = operate(&cluster);
    let config = json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "other"}, "spec": {}});
    cluster.apply(&config, false).await.unwrap();
    let path = "/apis/kai.scheduler/v1/configs/other";
    until("told so", async || {
        let object = cluster.get(path).await.unwrap();
        object["status"]["conditions"][0]["message"].as_str().is_some_and(|m| m.contains("kai-config"))
    })
    .await;
    assert_eq!(names(&cluster).await, "");
}
