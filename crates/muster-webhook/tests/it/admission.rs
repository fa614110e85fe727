//! What a user of the cluster sees of admission.

use muster_webhook::{FailurePolicy, Home, Options};
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, open, pod, queue};

const PODS: &str = "POST /api/v1/namespaces/default/pods";
const QUEUES: &str = "POST /apis/scheduling.run.ai/v2/queues";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

fn options() -> Options {
    Options::local(0, false)
}

#[tokio::test]
async fn a_bad_pod_is_refused_with_the_fix_and_a_good_one_is_wired() {
    let cluster = Cluster::new().await;
    let admission = cluster.admit(options()).await;
    let bad = pod("bad", json!({"annotations": {"gpu-fraction": "1.5"}}), json!({}));
    let answer = cluster.send(PODS, bad).await;
    assert_eq!(
        (answer.code, answer.message()),
        (
            422,
            "admission webhook \"pods.admission.muster.dev\" denied the request: metadata.annotations[gpu-fraction]: \"1.5\" \
             is no number between 0 and 1; write for example \"0.5\", or remove it and ask for whole GPUs with the limit \
             nvidia.com/gpu"
        )
    );
    let limits = json!({"nvidia.com/gpu": "0.5"});
    let part = json!({"containers": [{"name": "main", "image": "app:1", "resources": {"limits": limits}}]});
    let answer = cluster.send(PODS, pod("part", json!({}), part)).await;
    assert!(
        answer.message().ends_with("remove this and use the annotation gpu-fraction: \"0.5\""),
        "our words come before the server's: {answer:?}"
    );
    let good = pod("good", json!({"annotations": {"gpu-fraction": "0.5"}}), json!({}));
    let made = cluster.ok(PODS, good).await.body;
    let prefix = made["metadata"]["annotations"]["runai/shared-gpu-configmap"].as_str().unwrap();
    assert_eq!(
        made["spec"]["containers"][0]["env"][0]["valueFrom"]["configMapKeyRef"]["name"],
        format!("{prefix}-0")
    );
    assert_eq!(made["spec"]["runtimeClassName"], Value::Null, "the cluster has no such class");
    let other =
        pod("other", json!({"annotations": {"gpu-fraction": "1.5"}}), json!({"schedulerName": "other"}));
    cluster.ok(PODS, other).await;
    admission.stop().await;
}

#[tokio::test]
async fn what_would_be_ignored_is_warned_about() {
    let cluster = Cluster::new().await;
    cluster.ok(QUEUES, queue("team-a", "", open())).await;
    let admission = cluster.admit(options()).await;
    let answer = cluster
        .ok(PODS, pod("p", json!({"annotations": {"kai.scheduler/queue": "team-a"}}), json!({})))
        .await;
    let place = "metadata.annotations[kai.scheduler/queue]: has no effect here; it is read from labels";
    assert!(answer.warnings.iter().any(|text| text.contains(place)), "{answer:?}");
    eventually("the queue is known", async || {
        let asked = pod("q", json!({"labels": {"kai.scheduler/queue": "team-b"}}), json!({}));
        let answer = cluster.dry(PODS, asked).await;
        answer.warnings.iter().any(|text| text.contains("there is no queue")).then_some(())
    })
    .await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"metadata": {"annotations": {"gpu-fraction": "2"}}, "spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}],
        }}},
    });
    let answer = cluster.ok("POST /apis/batch/v1/namespaces/default/jobs", job).await;
    assert!(answer.warnings.iter().any(|text| text.contains("its pods will be refused")), "{answer:?}");
    admission.stop().await;
}

#[tokio::test]
async fn queues_and_groups() {
    let cluster = Cluster::new().await;
    let admission = cluster.admit(options()).await;
    let answer = cluster.send(QUEUES, queue("bare", "", json!({}))).await;
    assert!(answer.code == 422 && answer.message().contains("spec.resources: is missing"), "{answer:?}");
    cluster.ok(QUEUES, queue("a", "", open())).await;
    cluster.ok(QUEUES, queue("b", "a", open())).await;
    eventually("the ring is seen", async || {
        let ring = json!({"spec": {"parentQueue": "b"}});
        let answer = cluster.dry("PATCH /apis/scheduling.run.ai/v2/queues/a", ring).await;
        answer.message().contains("would make a ring: a -> b -> a").then_some(())
    })
    .await;
    let answer = cluster.send("DELETE /apis/scheduling.run.ai/v2/queues/a", Value::Null).await;
    assert!(answer.message().contains("still has a queue below it (\"b\")"), "{answer:?}");
    cluster.ok("DELETE /apis/scheduling.run.ai/v2/queues/b", Value::Null).await;
    eventually("the parent can go", async || {
        let answer = cluster.send("DELETE /apis/scheduling.run.ai/v2/queues/a", Value::Null).await;
        (answer.code == 200).then_some(())
    })
    .await;
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"subGroups": [{"name": "a", "minMember": 1, "parent": "x"}]},
    });
    let answer =
        cluster.send("POST /apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups", group).await;
    assert!(answer.message().contains("spec.subGroups[0].parent: there is no sub-group \"x\""), "{answer:?}");
    let level = |label: &str| json!({"nodeLabel": label, "alias": "same"});
    let topology = json!({
        "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"},
        "spec": {"levels": [level("zone"), level("rack")]},
    });
    let answer = cluster.send("POST /apis/kai.scheduler/v1alpha1/topologies", topology).await;
    assert!(answer.message().contains("spec.levels[1].alias"), "{answer:?}");
    admission.stop().await;
}

#[tokio::test]
async fn a_webhook_that_is_down_blocks_neither_the_system_nor_muster() {
    let cluster = Cluster::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "muster-system"}});
    cluster.ok("POST /api/v1/namespaces", namespace).await;
    let mut options = options();
    options.registration.pods = Some(FailurePolicy::Fail);
    cluster.admit(options.clone()).await.kill().await;
    for namespace in ["kube-system", "kube-public", "kube-node-lease", "muster-system"] {
        cluster
            .ok(&format!("POST /api/v1/namespaces/{namespace}/pods"), pod("p", json!({}), json!({})))
            .await;
    }
    let answer = cluster.send(PODS, pod("p", json!({}), json!({}))).await;
    assert!(answer.code == 500 && answer.message().contains("failed calling webhook"), "{answer:?}");
    // The next start mends it, with another port and other certificates.
    let again = cluster.admit(options).await;
    cluster.ok(PODS, pod("p", json!({}), json!({}))).await;
    // In good order it takes its webhooks along.
    again.stop().await;
    cluster.ok(PODS, pod("p2", json!({}), json!({}))).await;
    let left = cluster.get(&format!("{WEBHOOKS}/validatingwebhookconfigurations")).await;
    assert_eq!(left["items"], json!([]));
}

#[tokio::test]
async fn a_namespace_gives_its_pods_a_scheduler_and_a_queue() {
    let cluster = Cluster::new().await;
    let labels = json!({"muster.dev/scheduler": "kai-scheduler", "muster.dev/queue": "team-a"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": labels}});
    cluster.ok("POST /api/v1/namespaces", namespace).await;
    let admission = cluster.admit(options()).await;
    let mut plain = pod("p", json!({}), json!({}));
    plain["spec"].as_object_mut().unwrap().remove("schedulerName");
    let shown = |pod: &Value| {
        format!("{} {}", pod["spec"]["schedulerName"], pod["metadata"]["labels"]["kai.scheduler/queue"])
    };
    eventually("the namespace is known", async || {
        let answer = cluster.dry("POST /api/v1/namespaces/team/pods", plain.clone()).await;
        (shown(&answer.body) == "\"kai-scheduler\" \"team-a\"").then_some(())
    })
    .await;
    assert_eq!(shown(&cluster.ok(PODS, plain).await.body), "\"default-scheduler\" null");
    admission.stop().await;
}

#[tokio::test]
async fn replicas_share_their_certificates() {
    let cluster = Cluster::new().await;
    let mut options = options();
    options.certificates = Home::Secret { namespace: "default".into(), name: "certs".into() };
    let ca = async || {
        let found =
            cluster.get(&format!("{WEBHOOKS}/validatingwebhookconfigurations/muster-admission")).await;
        found["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned()
    };
    let first = cluster.admit(options.clone()).await;
    let bundle = ca().await;
    let second = cluster.admit(options.clone()).await;
    assert_eq!(ca().await, bundle, "the second trusts what the first made");
    first.kill().await;
    second.kill().await;
    let third = cluster.admit(options).await;
    assert_eq!(ca().await, bundle, "and so does a restart");
    // What somebody broke is made anew.
    let broken = json!({"data": {"certificates.json": "bm9uc2Vuc2U="}});
    third.stop().await;
    cluster.ok("PATCH /api/v1/namespaces/default/secrets/certs", broken).await;
    let mut options = self::options();
    options.certificates = Home::Secret { namespace: "default".into(), name: "certs".into() };
    let fourth = cluster.admit(options).await;
    assert_ne!(ca().await, bundle);
    fourth.stop().await;
}
