//! The founding documents' walk-through, step by step.

use muster_grove::object::{PodClique, PodGang};
use muster_runtime::common::{Pod, PodGroup};
use serde_json::{Value, json};

use crate::cluster::{Cluster, bare, cluster, counts, gangs, ready};

const SETS: &str = "/apis/grove.io/v1alpha1/namespaces/ml-workspace/podcliquesets";

fn ml_training() -> Value {
    let clique = |name: &str, container: &str, replicas: i64, min: i64, gpus: &str| {
        json!({"name": name, "spec": {
            "replicas": replicas, "minAvailable": min,
            "podSpec": {
                "schedulerName": "kai-scheduler", "priorityClassName": "high-priority",
                "containers": [{"name": container, "image": format!("training/{container}:v1.0"),
                                "resources": {"requests": {"nvidia.com/gpu": gpus, "cpu": "1"}, "limits": {"nvidia.com/gpu": gpus}}}],
            },
        }})
    };
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "ml-training", "namespace": "ml-workspace"},
        "spec": {"replicas": 2, "template": {"cliques": [
            clique("master", "master", 1, 1, "1"), clique("workers", "worker", 4, 3, "1"),
        ]}},
    })
}

async fn workspace(cluster: &Cluster, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.create("/api/v1/namespaces", namespace).await;
}

#[tokio::test(start_paused = true)]
async fn training() {
    let cluster = cluster(15).await;
    workspace(&cluster, "ml-workspace").await;
    cluster.apply(ml_training()).await;
    cluster.until_pods("ready×10").await;
    cluster.until("ml-training-0 Running, ml-training-1 Running", gangs).await;
    cluster.until("ml-training 2/2", ready).await;

    // PodGangs say what the documents say.
    let gang: Value =
        cluster.get("/apis/scheduler.grove.io/v1alpha1/namespaces/ml-workspace/podgangs/ml-training-0").await;
    let (meta, spec) = (&gang["metadata"], &gang["spec"]);
    for (key, value) in [
        ("app.kubernetes.io/managed-by", "grove-operator"),
        ("app.kubernetes.io/part-of", "ml-training"),
        ("app.kubernetes.io/component", "podgang"),
        ("grove.io/scheduler-backend", "kai"),
        ("grove.io/scheduler-name", "kai-scheduler"),
    ] {
        assert_eq!(meta["labels"][key], value, "{key}");
    }
    assert_eq!(meta["ownerReferences"][0]["kind"], "PodCliqueSet");
    assert_eq!(spec["priorityClassName"], "high-priority");
    let groups: Vec<(&str, i64, usize)> = spec["podgroups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| {
            let references = g["podReferences"].as_array().unwrap().len();
            (g["name"].as_str().unwrap(), g["minReplicas"].as_i64().unwrap(), references)
        })
        .collect();
    assert_eq!(groups, [("ml-training-0-master", 1, 1), ("ml-training-0-workers", 3, 4)]);
    let conditions: Vec<String> = gang["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        conditions,
        ["Initialized=True", "BackendAccepted=True", "Scheduled=True", "Ready=True", "Unhealthy=False"]
    );
    assert_eq!(gang["status"]["placementScore"], 1.0);

    // So does the PodGroup, which is named by the gang's uid.
    let uid = meta["uid"].as_str().unwrap();
    let name = format!("pg-ml-training-0-{uid}");
    let group = cluster
        .get(&format!("/apis/scheduling.run.ai/v2alpha2/namespaces/ml-workspace/podgroups/{name}"))
        .await;
    let (meta, spec) = (&group["metadata"], &group["spec"]);
    assert_eq!(
        meta["annotations"]["kai.scheduler/top-owner-metadata"],
        format!(
            "name: ml-training-0\nuid: {uid}\ngroup: scheduler.grove.io\nversion: v1alpha1\nkind: PodGang\n"
        )
    );
    assert_eq!(meta["labels"]["grove.io/scheduler-backend"], "kai");
    let owner = &meta["ownerReferences"][0];
    assert_eq!((owner["kind"].as_str(), owner["uid"].as_str()), (Some("PodGang"), Some(uid)));
    assert_eq!(spec["minMember"], 4);
    assert_eq!(spec["priorityClassName"], "high-priority");
    assert_eq!(spec["queue"], "default-queue");
    assert_eq!(
        spec["subGroups"],
        json!([{"name": "ml-training-0-master", "minMember": 1}, {"name": "ml-training-0-workers", "minMember": 3}])
    );
    assert_eq!(spec["topologyConstraint"], json!({}));

    // Pods name it, and are free of their gate.
    let pods: Vec<Pod> = cluster.list().await;
    for pod in pods.iter().filter(|pod| pod.metadata.labels["grove.io/podgang"] == "ml-training-0") {
        assert_eq!(pod.metadata.annotation("pod-group-name"), Some(name.as_str()));
        assert!(pod.spec.scheduling_gates.is_empty());
        assert!(pod.metadata.labels.contains_key("kai.scheduler/subgroup-name"));
    }

    // Scaled from two to three.
    cluster.patch(&format!("{SETS}/ml-training"), json!({"spec": {"replicas": 3}})).await;
    cluster.until_pods("ready×15").await;
    cluster.until("ml-training 3/3", ready).await;
    assert_eq!(counts(&cluster).await, "6 0 15 3");

    // And deleted, with everything that belongs to it.
    cluster.delete(&format!("{SETS}/ml-training")).await;
    cluster.until("0 0 0 0", counts).await;
    cluster.rest().await;
    assert_eq!(cluster.list::<PodGroup>().await.len(), 0);
    for path in [
        "/api/v1/namespaces/ml-workspace/services",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/ml-workspace/roles",
    ] {
        assert_eq!(cluster.items(path).await.len(), 0, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn inference_on_the_default_scheduler() {
    let cluster = cluster(3).await;
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "inference-service", "namespace": "default"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "servers", "spec": {"replicas": 3, "podSpec": {
            "schedulerName": "", "containers": [{"name": "server", "image": "inference/server:v1.0"}]}}}]}},
    });
    cluster.apply(set).await;
    cluster.until_pods("ready×3").await;
    cluster.until("inference-service 1/1", ready).await;
    let gangs: Vec<PodGang> = cluster.list().await;
    assert_eq!(gangs[0].metadata.labels["grove.io/scheduler-backend"], "default");
    let workload = cluster
        .get("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads/inference-service-0")
        .await;
    assert_eq!(workload["metadata"]["ownerReferences"][0]["kind"], "PodGang");
    assert_eq!(workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"], 3);
    let pods: Vec<Pod> = cluster.list().await;
    for pod in &pods {
        assert_eq!(pod.spec.scheduling_group, Some(json!({"podGroupName": "inference-service-0-servers"})));
    }
}

/// 1.35 has the first version of the gang API: a Workload alone, which pods name.
#[tokio::test(start_paused = true)]
async fn inference_on_an_older_server() {
    let cluster = crate::cluster::bare_like(3, muster_apiserver::KubeVersion::V1_35).await;
    cluster.start(muster_grove::Options::default());
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "inference-service", "namespace": "default"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "servers", "spec": {"replicas": 3, "podSpec": {
            "schedulerName": "", "containers": [{"name": "server", "image": "inference/server:v1.0"}]}}}]}},
    });
    cluster.apply(set).await;
    cluster.until_pods("ready×3").await;
    let workload = cluster
        .get("/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads/inference-service-0")
        .await;
    assert_eq!(workload["metadata"]["ownerReferences"][0]["kind"], "PodGang");
    assert_eq!(
        workload["spec"]["podGroups"],
        json!([{"name": "inference-service-0-servers", "policy": {"gang": {"minCount": 3}}}])
    );
    let pods: Vec<Pod> = cluster.list().await;
    for pod in &pods {
        let named = json!({"name": "inference-service-0", "podGroup": "inference-service-0-servers"});
        assert_eq!(pod.spec.workload_ref, Some(named));
    }
}

#[tokio::test(start_paused = true)]
async fn the_smallest() {
    let cluster = cluster(2).await;
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "test"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "workers", "spec": {
            "replicas": 2, "minAvailable": 2,
            "podSpec": {"schedulerName": "kai-scheduler", "containers": [{"name": "worker", "image": "busybox"}]}}}]}},
    });
    cluster.apply(set).await;
    cluster.until_pods("ready×2").await;
    let groups: Vec<PodGroup> = cluster.list().await;
    let gangs: Vec<PodGang> = cluster.list().await;
    assert_eq!(groups[0].metadata.name, format!("pg-test-0-{}", gangs[0].metadata.uid));
}

#[tokio::test(start_paused = true)]
async fn objects_made_without_webhooks_are_kept_all_the_same() {
    let cluster = cluster(2).await;
    let set = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "raw"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "w", "spec": {
            "replicas": 2, "podSpec": {"schedulerName": "kai-scheduler", "containers": [{"name": "m", "image": "i"}]}}}]}},
    });
    cluster.create(crate::cluster::SETS, set).await;
    cluster.until_pods("ready×2").await;
    let cliques: Vec<PodClique> = cluster.list().await;
    assert_eq!((cliques[0].spec.min_available, cliques[0].spec.role_name.as_str()), (Some(2), "w"));
}

#[tokio::test(start_paused = true)]
async fn each_backend_says_it_in_its_own_words() {
    for (scheduler, path, name) in [
        ("volcano", "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", "p-0"),
        ("koord-scheduler", "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups", "p-0-a"),
        ("t9k-scheduler", "/apis/scheduler.tensorstack.dev/v1beta1/namespaces/default/podgroups", "p-0"),
    ] {
        let cluster = bare(1).await;
        cluster.start(muster_grove::Options::default());
        let mut set = crate::cluster::set("p x1; a 2/1; b 1/1");
        for clique in set["spec"]["template"]["cliques"].as_array_mut().unwrap() {
            clique["spec"]["podSpec"]["schedulerName"] = json!(scheduler);
        }
        cluster.apply(set).await;
        // Nobody places them here, but they are told of and freed.
        cluster.until_pods("pending×3").await;
        let group = cluster.get(&format!("{path}/{name}")).await;
        assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "PodGang", "{scheduler}: {group}");
    }
}
