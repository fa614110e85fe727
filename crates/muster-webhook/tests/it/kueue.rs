//! Jobs, pods and queues of Kueue's, as their senders see admission.

use muster_api::System;
use muster_webhook::{Options, Settings};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, pod};

const JOBS: &str = "POST /apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "POST /api/v1/namespaces/default/pods";
const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster-admission";

fn options() -> Options {
    let mut options = Options::local(0, false);
    options.settings = Settings { kueue: Some(Default::default()), ..Settings::default() };
    options
}

fn job(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}},
    })
}

fn local_queue(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": "cq"}})
}

async fn has_kueue(cluster: &Cluster) -> bool {
    let found = cluster.get(WEBHOOKS).await;
    let all = found["webhooks"].as_array().cloned().unwrap_or_default();
    all.iter().any(|webhook| webhook["name"] == "kueue-jobs.admission.muster.dev")
}

#[tokio::test]
async fn a_job_with_a_queue_is_born_suspended() {
    let cluster = Cluster::with(&[System::Kai, System::Kueue]).await;
    let admission = cluster.admit(options()).await;
    eventually("Kueue is asked about", async || has_kueue(&cluster).await.then_some(())).await;
    let made = cluster.ok(JOBS, job("queued", json!({QUEUE: "user"}))).await;
    assert_eq!(made.body["spec"]["suspend"], true);
    let words =
        "there is no LocalQueue \\\"user\\\" in the namespace default; the job waits until there is one";
    assert!(made.warnings.iter().any(|text| text.contains(words)), "{made:?}");
    let made = cluster.ok(JOBS, job("plain", json!({}))).await.body;
    assert_eq!(made["spec"]["suspend"], false);
    // A queue for those that name none.
    cluster.ok(&format!("POST {KUEUE}/namespaces/default/localqueues"), local_queue("default")).await;
    eventually("jobs get the queue of their namespace", async || {
        let answer = cluster.dry(JOBS, job("next", json!({}))).await.body;
        (answer["spec"]["suspend"] == true && answer["metadata"]["labels"][QUEUE] == "default").then_some(())
    })
    .await;
    let answer = cluster.send(JOBS, job("odd", json!({QUEUE: "My_Queue"}))).await;
    let words =
        "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"My_Queue\": is no name of a LocalQueue";
    assert!(answer.code == 422 && answer.message().contains(words), "{answer:?}");
    admission.stop().await;
}

#[tokio::test]
async fn a_bad_queue_is_refused_with_words() {
    let cluster = Cluster::with(&[System::Kai, System::Kueue]).await;
    let admission = cluster.admit(options()).await;
    eventually("Kueue is asked about", async || has_kueue(&cluster).await.then_some(())).await;
    let queue = |limits: Value, cohort: Value| {
        let mut resource = json!({"name": "cpu", "nominalQuota": "4"});
        for (key, value) in limits.as_object().unwrap() {
            resource[key] = value.clone();
        }
        let mut spec = json!({"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}]});
        for (key, value) in cohort.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec})
    };
    let queues = format!("POST {KUEUE}/clusterqueues");
    let answer = cluster.send(&queues, queue(json!({"lendingLimit": "5"}), json!({"cohortName": "c"}))).await;
    let words = "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"5\": must be less than or \
                 equal to the nominalQuota";
    assert!(answer.code == 422 && answer.message().contains(words), "{answer:?}");
    cluster.ok(&queues, queue(json!({"lendingLimit": "3"}), json!({"cohortName": "c"}))).await;
    let made = cluster.get(&format!("{KUEUE}/clusterqueues/cq")).await;
    assert_eq!(made["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    admission.stop().await;
}

/// What KAI's rules and Kueue's do to one pod is done both, and a pod of a group waits.
#[tokio::test]
async fn a_pod_of_a_group_is_gated_and_wired() {
    let cluster = Cluster::with(&[System::Kai, System::Kueue]).await;
    let admission = cluster.admit(options()).await;
    eventually("Kueue is asked about", async || has_kueue(&cluster).await.then_some(())).await;
    let labels = json!({QUEUE: "user", "kueue.x-k8s.io/pod-group-name": "g"});
    let annotations = json!({"kueue.x-k8s.io/pod-group-total-count": "2", "gpu-fraction": "0.5"});
    let made = cluster
        .ok(PODS, pod("a", json!({"labels": labels, "annotations": annotations}), json!({})))
        .await
        .body;
    assert_eq!(made["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/admission"}]));
    assert_eq!(made["metadata"]["labels"]["kueue.x-k8s.io/managed"], "true");
    assert!(made["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].is_string(), "{made}");
    assert!(made["metadata"]["annotations"]["runai/shared-gpu-configmap"].is_string(), "{made}");
    let answer = cluster.send(PODS, pod("b", json!({"labels": labels}), json!({}))).await;
    let words = "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Required value";
    assert!(answer.code == 422 && answer.message().contains(words), "{answer:?}");
    let plain = cluster.ok(PODS, pod("plain", json!({}), json!({}))).await.body;
    assert_eq!(plain["spec"]["schedulingGates"], Value::Null);
    admission.stop().await;
}

#[tokio::test]
async fn nothing_is_asked_where_kueue_is_not_or_works_itself() {
    let cluster = Cluster::new().await;
    let admission = cluster.admit(options()).await;
    assert!(!has_kueue(&cluster).await);
    let made = cluster.ok(JOBS, job("queued", json!({QUEUE: "user"}))).await.body;
    assert_eq!(made["spec"]["suspend"], false);
    admission.stop().await;

    let cluster = Cluster::with(&[System::Kai, System::Kueue]).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}});
    cluster.ok("POST /api/v1/namespaces", namespace).await;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io"},
        "spec": {"holderIdentity": "kueue-1", "leaseDurationSeconds": 15, "renewTime": now}});
    cluster.ok("POST /apis/coordination.k8s.io/v1/namespaces/kueue-system/leases", lease).await;
    let admission = cluster.admit(options()).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!has_kueue(&cluster).await);
    admission.stop().await;
}
