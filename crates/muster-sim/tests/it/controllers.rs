//! Workload controllers: each kind's ordinary life.

use std::time::Duration;

use muster_sim::cronjob::CronJob;
use muster_sim::daemonset::DaemonSet;
use muster_sim::deployment::Deployment;
use muster_sim::hpa::Autoscaler;
use muster_sim::job::Job;
use muster_sim::object::{Pod, ReplicaSet};
use muster_sim::pdb::Budget;
use muster_sim::statefulset::StatefulSet;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster, conditions, deployment, job, phases, rollout, template};

const SOON: Duration = Duration::from_secs(2);
const MINUTES: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn a_deployment_rolls_out_updates_and_rolls_back() {
    let c = cluster(2, 0).await;
    c.apply::<Deployment>(deployment("web", 3)).await;
    c.until(SOON, "3/3/3 of 3", async |c| rollout(c, "web").await).await;
    c.until(SOON, "Running+×3", phases).await;

    let image =
        |v: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": v}]}}}});
    c.patch::<Deployment>("web", image("app:2")).await;
    c.until(MINUTES, "3/3/3 of 3 rev 2 [0 3]", async |c| {
        format!("{} {}", rollout(c, "web").await, sets(c).await)
    })
    .await;
    c.patch::<Deployment>("web", image("app:1")).await;
    c.until(MINUTES, "3/3/3 of 3 rev 3 [0 3]", async |c| {
        format!("{} {}", rollout(c, "web").await, sets(c).await)
    })
    .await;
    c.patch::<Deployment>("web", json!({"spec": {"replicas": 1}})).await;
    c.until(MINUTES, "Running+×1", phases).await;
    c.delete::<Deployment>("web").await;
    c.until(MINUTES, "", phases).await;
}

async fn sets(c: &Cluster) -> String {
    let revision = c.get::<Deployment>("web").await.unwrap();
    let revision =
        revision.metadata.annotation("deployment.kubernetes.io/revision").unwrap_or("-").to_owned();
    let mut sizes: Vec<i64> = c.list::<ReplicaSet>().await.iter().map(|s| s.replicas()).collect();
    sizes.sort_unstable();
    let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
    format!("rev {revision} [{}]", sizes.join(" "))
}

#[tokio::test(start_paused = true)]
async fn a_job_completes() {
    let c = cluster(2, 0).await;
    c.apply::<Job>(job("j", json!({"parallelism": 2, "completions": 4}))).await;
    c.until(SOON, "Running+×2", phases).await;
    c.until(MINUTES, "Complete+SuccessCriteriaMet ok 4 bad 0", async |c| conditions(c, "j").await).await;
    assert!(c.pods().await.iter().all(|p| p.metadata.finalizers.is_empty()));
    c.delete::<Job>("j").await;
    c.until(MINUTES, "", phases).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_after_its_retries() {
    let c = cluster(1, 0).await;
    let mut j = job("j", json!({"backoffLimit": 1}));
    j["spec"]["template"]["metadata"]["annotations"] = json!({"sim.muster.dev/crash-after": "1s"});
    c.apply::<Job>(j).await;
    c.until(MINUTES, "Failed+FailureTarget ok 0 bad 2", async |c| conditions(c, "j").await).await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_retries_until_it_succeeds() {
    let c = cluster(1, 0).await;
    let mut j = job("j", json!({"completionMode": "Indexed", "parallelism": 3, "completions": 3}));
    j["spec"]["template"]["metadata"]["annotations"] = json!({"sim.muster.dev/fail-attempts": "1"});
    c.apply::<Job>(j).await;
    c.until(MINUTES, "Complete+SuccessCriteriaMet ok 3 bad 3", async |c| conditions(c, "j").await).await;
    assert_eq!(c.get::<Job>("j").await.unwrap().status.completed_indexes, "0-2");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_suspended_resumed_and_expires() {
    let c = cluster(1, 0).await;
    c.apply::<Job>(job("j", json!({"parallelism": 2, "completions": 2, "ttlSecondsAfterFinished": 30})))
        .await;
    c.until(SOON, "Running+×2", phases).await;
    c.patch::<Job>("j", json!({"spec": {"suspend": true}})).await;
    c.until(SOON, "Suspended ok 0 bad 0", async |c| conditions(c, "j").await).await;
    c.until(MINUTES, "", phases).await;
    c.patch::<Job>("j", json!({"spec": {"suspend": false}})).await;
    c.until(SOON, "Running+×2", phases).await;
    c.until(MINUTES, "none", async |c| conditions(c, "j").await).await;
    c.until(MINUTES, "", phases).await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_comes_in_order_with_claims() {
    let c = cluster(1, 0).await;
    c.apply::<StatefulSet>(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": 3, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template(json!({"app": "db"}), json!({})),
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    }))
    .await;
    c.until(MINUTES, "Running+×3", phases).await;
    let mut pods = c.pods().await;
    pods.sort_by_key(|p| p.metadata.version());
    c.until(SOON, "data-db-0 data-db-1 data-db-2", async |c| {
        let claims = c.raw("/api/v1/namespaces/default/persistentvolumeclaims").await;
        let bound = claims["items"].as_array().cloned().unwrap_or_default();
        let bound = bound.iter().filter(|c| c["status"]["phase"] == "Bound");
        bound.map(|c| c["metadata"]["name"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>().join(" ")
    })
    .await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}});
    c.patch::<StatefulSet>("db", image).await;
    c.until(MINUTES, "app:2 app:2 app:2", async |c| {
        let images = c.pods().await.into_iter().map(|p| p.spec.containers[0].image.clone());
        images.collect::<Vec<_>>().join(" ")
    })
    .await;
    c.until(MINUTES, "same", async |c| {
        let set = c.get::<StatefulSet>("db").await.unwrap();
        if set.text("currentRevision") == set.text("updateRevision") {
            "same".into()
        } else {
            "not yet".into()
        }
    })
    .await;
    c.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    c.until(MINUTES, "db-0", async |c| {
        c.pods().await.into_iter().map(|p| p.metadata.name).collect::<Vec<_>>().join(" ")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_is_on_every_node() {
    let c = cluster(3, 0).await;
    c.apply::<DaemonSet>(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template(json!({"app": "a"}), json!({}))},
    }))
    .await;
    let on = async |c: &Cluster| {
        let mut nodes: Vec<String> =
            c.pods().await.into_iter().filter(Pod::ready).map(|p| p.spec.node_name).collect();
        nodes.sort();
        nodes.join(" ")
    };
    c.until(SOON, "node-0 node-1 node-2", on).await;
    c.apply::<muster_sim::object::Node>(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}}),
    )
    .await;
    c.until(SOON, "late node-0 node-1 node-2", on).await;
    c.until(SOON, "4", async |c| {
        c.get::<DaemonSet>("agent").await.unwrap().status["numberAvailable"].to_string()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_ticks() {
    let c = cluster(1, 0).await;
    c.apply::<CronJob>(json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "tick", "namespace": "default"},
        "spec": {"schedule": "*/2 * * * *", "jobTemplate": {"spec": job("x", json!({}))["spec"].clone()}},
    }))
    .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    c.until(MINUTES, "3", async |c| {
        let jobs: Vec<Job> = c.list().await;
        jobs.iter().filter(|j| j.ended().is_some()).count().to_string()
    })
    .await;
    assert!(c.get::<CronJob>("tick").await.unwrap().status["lastSuccessfulTime"].is_string());
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_follows_its_annotation() {
    let c = cluster(2, 0).await;
    c.apply::<Deployment>(deployment("web", 2)).await;
    c.apply::<Autoscaler>(json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default", "annotations": {"sim.muster.dev/metric-cpu": "100"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    }))
    .await;
    c.until(MINUTES, "Running+×5", phases).await;
    c.patch::<Autoscaler>("web", json!({"metadata": {"annotations": {"sim.muster.dev/metric-cpu": "10"}}}))
        .await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(phases(&c).await, "Running+×5", "a shrink waits for the window");
    c.until(MINUTES, "Running+×1", phases).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts() {
    let c = cluster(1, 0).await;
    c.apply::<Deployment>(deployment("web", 3)).await;
    c.apply::<Budget>(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .await;
    c.until(SOON, "1 of 3, 2 needed", async |c| {
        let s = c.get::<Budget>("web").await.unwrap().status;
        format!("{} of {}, {} needed", s["disruptionsAllowed"], s["expectedPods"], s["desiredHealthy"])
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_furnished() {
    let c = cluster(0, 0).await;
    let furnished = async |c: &Cluster| {
        let account = c.raw("/api/v1/namespaces/default/serviceaccounts/default").await;
        let certificate = c.raw("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").await;
        format!("{} {}", account.is_object(), certificate.is_object())
    };
    c.until(SOON, "true true", furnished).await;
    let _: Value = c.raw("/api/v1/namespaces/default").await;
}

/// The revision is written through the status endpoint, as the real controller does: it moves no generation, and it
/// belongs to the manager of the status.
#[tokio::test(start_paused = true)]
async fn a_new_deployment_stays_at_its_first_generation() {
    let c = cluster(1, 0).await;
    c.apply::<Deployment>(deployment("web", 2)).await;
    c.until(SOON, "2/2/2 of 2", async |c| rollout(c, "web").await).await;
    let web = c.raw("/apis/apps/v1/namespaces/default/deployments/web").await;
    assert_eq!(web["metadata"]["generation"], 1);
    assert_eq!(web["status"]["observedGeneration"], 1);
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let managers = web["metadata"]["managedFields"].as_array().unwrap();
    let owners: Vec<String> = managers
        .iter()
        .filter(|m| {
            !m["fieldsV1"]["f:metadata"]["f:annotations"]["f:deployment.kubernetes.io/revision"].is_null()
        })
        .map(|m| format!("{}/{}", m["manager"].as_str().unwrap(), m["subresource"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(owners, ["kube-controller-manager/status"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_reports_zeros() {
    let c = cluster(1, 0).await;
    c.apply::<Job>(job("j", json!({"suspend": true}))).await;
    c.until(SOON, "Suspended ok 0 bad 0", async |c| conditions(c, "j").await).await;
    let mut status = c.raw("/apis/batch/v1/namespaces/default/jobs/j").await["status"].take();
    status.as_object_mut().unwrap().remove("conditions");
    assert_eq!(status, json!({"ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}));
    c.patch::<Job>("j", json!({"spec": {"suspend": false}})).await;
    c.until(MINUTES, "Complete+SuccessCriteriaMet ok 1 bad 0", async |c| conditions(c, "j").await).await;
    let status = c.raw("/apis/batch/v1/namespaces/default/jobs/j").await["status"].take();
    let mut fields: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "completionTime",
        "conditions",
        "ready",
        "startTime",
        "succeeded",
        "terminating",
        "uncountedTerminatedPods",
    ];
    assert_eq!(fields, expected);
}
