//! What Kueue's users count on, one story each.

use muster_kueue::Settings;
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster, conditions, job, jobs};

const QUICK_START: &str = r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cluster-queue}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: default-flavor
      resources:
      - {name: cpu, nominalQuota: 9}
      - {name: memory, nominalQuota: 9Gi}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: user-queue, namespace: default}
spec: {clusterQueue: cluster-queue}
"#;

/// Counts of a queue: pending, reserving, admitted.
async fn counts(cluster: &Cluster, path: &str) -> String {
    let status = cluster.get(path).await["status"].clone();
    format!("{} {} {}", status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"])
}

const QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cluster-queue";
const LOCAL: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/user-queue";

#[tokio::test(start_paused = true)]
async fn the_quick_start() {
    let cluster = cluster(4, Settings::default()).await;
    cluster.apply(QUICK_START).await;
    // As it is in the documents: not suspended, which is noticed.
    let mut sample = job("sample-job", "user-queue", 3, "1", 30);
    sample["spec"].as_object_mut().unwrap().remove("suspend");
    cluster.create(sample).await;
    cluster.until("sample-job runs", jobs).await;
    let workload = cluster.workload_of("sample-job").await;
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("job-sample-job-"), "{workload}");
    assert_eq!(workload["spec"]["queueName"], "user-queue");
    assert_eq!(workload["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    assert_eq!(
        workload["status"]["admission"],
        json!({"clusterQueue": "cluster-queue", "podSetAssignments": [
            {"name": "main", "count": 3, "flavors": {"cpu": "default-flavor"}, "resourceUsage": {"cpu": "3"}}]})
    );
    cluster
        .until(
            "Admitted=True(Admitted) PodsReady=True(Started) QuotaReserved=True(QuotaReserved)",
            async |c| conditions(&c.workload_of("sample-job").await),
        )
        .await;
    // The second asks for more than is left, and waits.
    cluster.create(job("second", "user-queue", 3, "3", 30)).await;
    cluster
        .until("QuotaReserved=False(WaitingForQuota)", async |c| conditions(&c.workload_of("second").await))
        .await;
    let waiting = cluster.workload_of("second").await;
    assert_eq!(
        waiting["status"]["conditions"][0]["message"],
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default-flavor, 3 more needed"
    );
    assert_eq!(waiting["status"]["resourceRequests"], json!([{"name": "main", "resources": {"cpu": "9"}}]));
    cluster.until("1 1 1", async |c| counts(c, QUEUE).await).await;
    cluster.until("1 1 1", async |c| counts(c, LOCAL).await).await;
    cluster.until("sample-job done, second runs", jobs).await;
    cluster.until("sample-job done, second done", jobs).await;
    cluster.until("0 0 0", async |c| counts(c, QUEUE).await).await;
    let done = cluster.workload_of("sample-job").await;
    assert!(conditions(&done).contains("Finished=True(Succeeded)"), "{done}");
    let queue = cluster.get(QUEUE).await;
    assert_eq!(conditions(&queue), "Active=True(Ready)");
    assert_eq!(queue["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    assert_eq!(conditions(&cluster.get(LOCAL).await), "Active=True(Ready)");
    // A job that goes takes its workload along.
    cluster.delete("/apis/batch/v1/namespaces/default/jobs/second").await;
    cluster.until("null", async |c| c.workload_of("second").await.to_string()).await;
}

fn cohort_queue(name: &str, nominal: i64) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {}, "cohortName": "all",
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "default-flavor", "resources": [{"name": "cpu", "nominalQuota": nominal}]}]}],
        },
    })
}

async fn two_teams(cluster: &Cluster) {
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default-flavor"},
        "spec": {"nodeLabels": {"kubernetes.io/os": "linux"}}});
    cluster.create(flavor).await;
    for team in ["team-a", "team-b"] {
        cluster.create(cohort_queue(team, 4)).await;
        let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": team, "namespace": "default"}, "spec": {"clusterQueue": team}});
        cluster.create(local).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_borrower_gives_back_and_finishes_later() {
    let cluster = cluster(4, Settings::default()).await;
    two_teams(&cluster).await;
    cluster.create(job("a-big", "team-a", 6, "1", 120)).await;
    cluster.until("a-big runs", jobs).await;
    let status = async |c: &Cluster| {
        let queue = c.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team-a").await;
        queue["status"]["flavorsUsage"][0]["resources"][0].to_string()
    };
    cluster.until(r#"{"borrowed":"2","name":"cpu","total":"6"}"#, status).await;
    let template = cluster.job("a-big").await["spec"]["template"].clone();
    assert_eq!(template["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "main");
    // What the other team owns it gets back.
    cluster.create(job("b", "team-b", 4, "1", 30)).await;
    cluster.until("a-big waits, b runs", jobs).await;
    let evicted = cluster.workload_of("a-big").await;
    let words = conditions(&evicted);
    for part in [
        "Admitted=False(NoReservation)",
        "Evicted=True(Preempted)",
        "Preempted=True(InCohortReclamation)",
        "Requeued=True(Preempted)",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let message = evicted["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Preempted")
        .unwrap();
    let message = message["message"].as_str().unwrap();
    assert!(message.starts_with("Preempted to accommodate a workload (UID: "), "{message}");
    assert!(message.ends_with("preemptor path: /all/team-b; preemptee path: /all/team-a"), "{message}");
    // Its template is as the user wrote it.
    let template = cluster.job("a-big").await["spec"]["template"].clone();
    assert_eq!(template["spec"].get("nodeSelector"), None, "{template}");
    assert_eq!(template["metadata"]["labels"].get("kueue.x-k8s.io/podset"), None);
    cluster.until("a-big runs, b done", jobs).await;
    cluster.until("a-big done, b done", jobs).await;
    let done = conditions(&cluster.workload_of("a-big").await);
    assert!(
        done.contains("Evicted=False(QuotaReserved)") && done.contains("Finished=True(Succeeded)"),
        "{done}"
    );
}
