//! One story for each thing that Kueue's users may ask of a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use muster_kueue::room::{Answer, Ask};
use muster_kueue::{NoRoom, Room, Settings};
use muster_runtime::Key;
use serde_json::{Value, json};

use crate::cluster::{Cluster, bare, cluster, conditions, job, jobs};

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const CLUSTER_QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";

/// A flavor, a cluster queue `cq` with so many CPUs, and a local queue `lq`.
async fn one_queue(cluster: &Cluster, cpus: i64, more: Value) {
    cluster
        .create(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}))
        .await;
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    cluster
        .create(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec}))
        .await;
    cluster
        .create(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"}}))
        .await;
}

async fn workload_path(cluster: &Cluster, job: &str) -> String {
    let workload = cluster.workload_of(job).await;
    format!("{WORKLOADS}/{}", workload["metadata"]["name"].as_str().unwrap())
}

/// One condition of the workload of a job.
async fn said(cluster: &Cluster, job: &str, kind: &str) -> String {
    let all = conditions(&cluster.workload_of(job).await);
    all.split(' ').find(|c| c.starts_with(&format!("{kind}="))).unwrap_or("").to_owned()
}

fn plain_pod(name: &str, cpu: &str, group: Option<(&str, usize)>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"sim.muster.dev/duration": "30s"}},
        "spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}]},
    });
    if let Some((group, n)) = group {
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!(group);
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!(n.to_string());
    }
    pod
}

/// Pods as `name state`: gated, runs, done, failed.
async fn pods(cluster: &Cluster) -> String {
    let state = |pod: &Value| {
        let phase = pod["status"]["phase"].as_str().unwrap_or("");
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            "gated"
        } else {
            match phase {
                "Succeeded" => "done",
                "Failed" => "failed",
                "Running" => "runs",
                _ => "pending",
            }
        }
    };
    let all = cluster.items("/api/v1/namespaces/default/pods").await;
    let shown: Vec<String> = all
        .iter()
        .map(|pod| format!("{} {}", pod["metadata"]["name"].as_str().unwrap(), state(pod)))
        .collect();
    shown.join(", ")
}

#[tokio::test(start_paused = true)]
async fn plain_pods_wait_at_their_gate() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 3, Value::Null).await;
    cluster.submit(plain_pod("a", "3", None)).await;
    cluster.until("a runs", pods).await;
    cluster.submit(plain_pod("b", "2", None)).await;
    cluster.until("a done, b runs", pods).await;
    cluster.until("a done, b done", pods).await;
    let pod = cluster.get("/api/v1/namespaces/default/pods/a").await;
    assert_eq!(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "main");
    // Nothing holds them any more.
    cluster
        .until("null null", async |c| {
            let a = c.get("/api/v1/namespaces/default/pods/a").await;
            let b = c.get("/api/v1/namespaces/default/pods/b").await;
            format!("{} {}", a["metadata"]["finalizers"], b["metadata"]["finalizers"])
        })
        .await;
    for pod in ["a", "b"] {
        cluster.delete(&format!("/api/v1/namespaces/default/pods/{pod}")).await;
    }
    cluster.until("0", async |c| c.items(WORKLOADS).await.len().to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_of_pods_starts_together() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 6, Value::Null).await;
    cluster.submit(plain_pod("leader", "3", Some(("group", 2)))).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(pods(&cluster).await, "leader gated");
    cluster.submit(plain_pod("worker", "2", Some(("group", 2)))).await;
    cluster.until("leader runs, worker runs", pods).await;
    let group = cluster.get(&format!("{WORKLOADS}/group")).await;
    assert_eq!(group["spec"]["podSets"].as_array().unwrap().len(), 2, "two roles");
    assert_eq!(group["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    cluster.until("leader done, worker done", pods).await;
    cluster
        .until("true", async |c| {
            conditions(&c.get(&format!("{WORKLOADS}/group")).await)
                .contains("Finished=True(Succeeded)")
                .to_string()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn fewer_pods_where_fewer_will_do() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 9, Value::Null).await;
    let mut wide = job("wide", "lq", 20, "1", 10);
    wide["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "5"});
    cluster.create(wide).await;
    cluster.until("wide runs", jobs).await;
    assert_eq!(cluster.job("wide").await["spec"]["parallelism"], 9);
    cluster.until("wide done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn queues_are_stopped_and_go_on() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 4, Value::Null).await;
    cluster.create(job("a", "lq", 2, "1", 600)).await;
    cluster.until("a runs", jobs).await;
    let path = format!("{CLUSTER_QUEUES}/cq");
    cluster.patch(&path, json!({"spec": {"stopPolicy": "Hold"}})).await;
    cluster.create(job("b", "lq", 1, "1", 600)).await;
    cluster.until("QuotaReserved=False(Suspended)", async |c| said(c, "b", "QuotaReserved").await).await;
    assert_eq!(jobs(&cluster).await, "a runs, b waits");
    cluster.until("Active=False(Stopped)", async |c| conditions(&c.get(&path).await)).await;
    cluster.patch(&path, json!({"spec": {"stopPolicy": "HoldAndDrain"}})).await;
    cluster.until("a waits, b waits", jobs).await;
    cluster.until("Requeued=False(ClusterQueueStopped)", async |c| said(c, "a", "Requeued").await).await;
    cluster.patch(&path, json!({"spec": {"stopPolicy": "None"}})).await;
    cluster.until("a runs, b runs", jobs).await;
    let local = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/lq";
    cluster.patch(local, json!({"spec": {"stopPolicy": "HoldAndDrain"}})).await;
    cluster.until("a waits, b waits", jobs).await;
    cluster.patch(local, json!({"spec": {"stopPolicy": "None"}})).await;
    cluster.until("a done, b done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn checks_stand_between_quota_and_admission() {
    let cluster = cluster(4, Settings::default()).await;
    let check = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "audit"},
        "spec": {"controllerName": "example.com/audit"}});
    cluster.create(check).await;
    one_queue(&cluster, 4, json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "audit"}]}}))
        .await;
    cluster.create(job("a", "lq", 1, "1", 30)).await;
    let queue = format!("{CLUSTER_QUEUES}/cq");
    cluster.until("Active=False(AdmissionCheckInactive)", async |c| conditions(&c.get(&queue).await)).await;
    let now = "2026-01-01T00:00:00Z";
    let active = json!({"status": {"conditions": [{"type": "Active", "status": "True", "reason": "R", "message": "", "lastTransitionTime": now}]}});
    cluster.patch("/apis/kueue.x-k8s.io/v1beta2/admissionchecks/audit/status", active).await;
    cluster.until("QuotaReserved=True(QuotaReserved)", async |c| said(c, "a", "QuotaReserved").await).await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(jobs(&cluster).await, "a waits");
    let path = workload_path(&cluster, "a").await;
    let state = |state: &str, more: Value| {
        let mut check = json!({"name": "audit", "state": state, "message": "m", "lastTransitionTime": now});
        for (key, value) in more.as_object().into_iter().flatten() {
            check[key] = value.clone();
        }
        json!({"status": {"admissionChecks": [check]}})
    };
    // Once more, later.
    cluster.patch(&format!("{path}/status"), state("Retry", json!({"requeueAfterSeconds": 60}))).await;
    cluster.until("Requeued=False(AdmissionCheck)", async |c| said(c, "a", "Requeued").await).await;
    cluster.until("Requeued=True(BackoffFinished)", async |c| said(c, "a", "Requeued").await).await;
    cluster.until("QuotaReserved=True(QuotaReserved)", async |c| said(c, "a", "QuotaReserved").await).await;
    let updates = json!({"podSetUpdates": [{"name": "main", "annotations": {"audited": "yes"}}]});
    cluster.patch(&format!("{path}/status"), state("Ready", updates)).await;
    cluster.until("a runs", jobs).await;
    assert_eq!(cluster.job("a").await["spec"]["template"]["metadata"]["annotations"]["audited"], "yes");
    cluster.until("a done", jobs).await;
    // And one that is turned down for good.
    cluster.create(job("b", "lq", 1, "1", 30)).await;
    cluster.until("QuotaReserved=True(QuotaReserved)", async |c| said(c, "b", "QuotaReserved").await).await;
    let path = workload_path(&cluster, "b").await;
    cluster.patch(&format!("{path}/status"), state("Rejected", Value::Null)).await;
    cluster
        .until("Evicted=True(DeactivatedDueToAdmissionCheck)", async |c| said(c, "b", "Evicted").await)
        .await;
    assert_eq!(cluster.get(&path).await["spec"]["active"], false);
}

#[tokio::test(start_paused = true)]
async fn work_is_put_aside_and_taken_up_again() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 4, Value::Null).await;
    cluster.create(job("a", "lq", 2, "1", 60)).await;
    cluster.until("a runs", jobs).await;
    let path = workload_path(&cluster, "a").await;
    cluster.patch(&path, json!({"spec": {"active": false}})).await;
    cluster.until("a waits", jobs).await;
    cluster.until("Requeued=False(Deactivated)", async |c| said(c, "a", "Requeued").await).await;
    cluster.patch(&path, json!({"spec": {"active": true}})).await;
    cluster.until("a done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_never_get_ready_are_given_up() {
    let (settings, warnings) = Settings::read(
        "waitForPodsReady: {timeout: 1m, requeuingStrategy: {backoffLimitCount: 2, backoffBaseSeconds: 10}}",
    )
    .unwrap();
    assert!(warnings.is_empty());
    let cluster = cluster(4, settings).await;
    one_queue(&cluster, 4, Value::Null).await;
    let mut never = job("never", "lq", 1, "1", 6000);
    never["spec"]["template"]["metadata"]["annotations"]["sim.muster.dev/never-ready"] = json!("true");
    cluster.create(never).await;
    cluster.until("Evicted=True(PodsReadyTimeout)", async |c| said(c, "never", "Evicted").await).await;
    cluster.until("Requeued=True(BackoffFinished)", async |c| said(c, "never", "Requeued").await).await;
    cluster
        .until("Evicted=True(DeactivatedDueToRequeuingLimitExceeded)", async |c| {
            said(c, "never", "Evicted").await
        })
        .await;
    cluster.until("never waits", jobs).await;
    let workload = cluster.workload_of("never").await;
    let evictions = workload["status"]["schedulingStats"]["evictions"].clone();
    assert_eq!(
        evictions[0],
        json!({"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 2})
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_runs_too_long_is_ended() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 4, Value::Null).await;
    let mut long = job("long", "lq", 1, "1", 6000);
    long["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("120");
    cluster.create(long).await;
    cluster.until("long runs", jobs).await;
    cluster
        .until("Evicted=True(DeactivatedDueToMaximumExecutionTimeExceeded)", async |c| {
            said(c, "long", "Evicted").await
        })
        .await;
    cluster.until("long waits", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn a_stronger_workload_takes_the_place_of_a_weaker() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 4, json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    for (name, value) in [("low", 1), ("high", 10)] {
        let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
        cluster.create(class).await;
    }
    let with = |name: &str, class: &str, seconds: i64| {
        let mut job = job(name, "lq", 4, "1", seconds);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        job
    };
    cluster.create(with("a", "low", 300)).await;
    cluster.until("a runs", jobs).await;
    cluster.create(with("b", "high", 30)).await;
    cluster.until("a waits, b runs", jobs).await;
    assert_eq!(said(&cluster, "a", "Preempted").await, "Preempted=True(InClusterQueue)");
    assert_eq!(cluster.workload_of("b").await["spec"]["priority"], 10);
    cluster.until("a done, b done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn credits_stand_for_cpus_of_any_flavor() {
    let (settings, _) = Settings::read(
        "resources: {transformations: [{input: cpu, strategy: Retain, outputs: {cpu_credits: 1}}]}",
    )
    .unwrap();
    let cluster = cluster(4, settings).await;
    one_queue(&cluster, 9, json!({"resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 9}]}]},
        {"coveredResources": ["cpu_credits"], "flavors": [{"name": "credits", "resources": [{"name": "cpu_credits", "nominalQuota": 5}]}]}]})).await;
    cluster
        .create(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "credits"}}))
        .await;
    cluster.create(job("a", "lq", 1, "3", 30)).await;
    cluster.until("a runs", jobs).await;
    cluster.create(job("b", "lq", 1, "3", 30)).await;
    cluster
        .until("QuotaReserved=False(WaitingForQuota)", async |c| said(c, "b", "QuotaReserved").await)
        .await;
    cluster.until("a done, b done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_to_the_domains_that_were_chosen() {
    let cluster = cluster(4, Settings::default()).await;
    let nodes = cluster.items("/api/v1/nodes").await;
    for (i, node) in nodes.iter().enumerate() {
        let name = node["metadata"]["name"].as_str().unwrap();
        let labels = json!({"metadata": {"labels": {"rack": format!("r{}", i / 2), "tas": "yes"}}});
        cluster.patch(&format!("/api/v1/nodes/{name}"), labels).await;
    }
    cluster
        .apply(
            r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: tas}
spec: {nodeLabels: {tas: "yes"}, topologyName: racks}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: tas
      resources: [{name: cpu, nominalQuota: 100}, {name: nvidia.com/gpu, nominalQuota: 100}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
"#,
        )
        .await;
    let mut ranked = job("ranked", "lq", 2, "1", 60);
    ranked["spec"]["completionMode"] = json!("Indexed");
    let template = &mut ranked["spec"]["template"];
    template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = json!("rack");
    template["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}});
    cluster.create(ranked.clone()).await;
    cluster.until("ranked runs", jobs).await;
    let workload = cluster.workload_of("ranked").await;
    let places = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    assert_eq!(places["levels"], json!(["kubernetes.io/hostname"]), "{workload}");
    let pods = cluster.items("/api/v1/namespaces/default/pods").await;
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"], pod["spec"]["nodeName"], "{pod}");
    }
    // Another two fit the other rack, and a third pair waits for a place although there is quota.
    ranked["metadata"]["name"] = json!("second");
    cluster.create(ranked.clone()).await;
    cluster.until("ranked runs, second runs", jobs).await;
    ranked["metadata"]["name"] = json!("third");
    cluster.create(ranked).await;
    let words =
        r#"couldn't assign flavors to pod set main: topology "racks" doesn't allow to fit any of 2 pod(s)"#;
    cluster
        .until("true", async |c| {
            let conditions = c.workload_of("third").await["status"]["conditions"].clone();
            conditions[0]["message"].as_str().is_some_and(|message| message.starts_with(words)).to_string()
        })
        .await;
    cluster.until("ranked done, second done, third done", jobs).await;
}

/// Says no until it is told otherwise.
struct Full {
    open: AtomicBool,
    opened: tokio::sync::Notify,
    returned: std::sync::Mutex<Vec<Key>>,
}

impl Room for Full {
    fn hold(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        let is_big = ask.sets[0].count > 1;
        assert!(ask.sets[0].template["spec"]["containers"].is_array());
        let yes = !is_big || self.open.load(Ordering::Acquire);
        let answer = if yes { Answer::Held } else { Answer::Refused("the nodes are full".into()) };
        Box::pin(std::future::ready(answer))
    }

    fn give_back(&self, workload: &Key) {
        self.returned.lock().unwrap().push(workload.clone());
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.opened.notified())
    }
}

#[tokio::test(start_paused = true)]
async fn quota_alone_does_not_admit_where_a_place_is_required() {
    let cluster = bare(4).await;
    let full = Arc::new(Full {
        open: AtomicBool::new(false),
        opened: tokio::sync::Notify::new(),
        returned: Default::default(),
    });
    cluster.start(Settings { require_placement: true, ..Settings::default() }, full.clone());
    one_queue(&cluster, 4, Value::Null).await;
    cluster.create(job("big", "lq", 2, "1", 60)).await;
    cluster.until("QuotaReserved=False(NoRoom)", async |c| said(c, "big", "QuotaReserved").await).await;
    let message = cluster.workload_of("big").await["status"]["conditions"][0]["message"].clone();
    assert_eq!(message, "There is quota, but no place for the pods: the nodes are full");
    // Others are not held up.
    cluster.create(job("small", "lq", 1, "3", 60)).await;
    cluster.until("big waits, small runs", jobs).await;
    full.open.store(true, Ordering::Release);
    full.opened.notify_one();
    cluster.until("big done, small done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_where_it_was() {
    let cluster = bare(4).await;
    let first = cluster.start(Settings::default(), Arc::new(NoRoom));
    one_queue(&cluster, 4, Value::Null).await;
    cluster.create(job("a", "lq", 4, "1", 120)).await;
    // Of two that came within one second, either may be first.
    cluster.until("a runs", jobs).await;
    cluster.create(job("b", "lq", 4, "1", 60)).await;
    cluster.until("a runs, b waits", jobs).await;
    first.cancel();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let before = cluster.workload_of("a").await["metadata"]["resourceVersion"].clone();
    cluster.start(Settings::default(), Arc::new(NoRoom));
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(
        cluster.workload_of("a").await["metadata"]["resourceVersion"],
        before,
        "nothing is written twice"
    );
    cluster.until("a done, b done", jobs).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_in_use_is_not_deleted() {
    let cluster = cluster(4, Settings::default()).await;
    one_queue(&cluster, 4, Value::Null).await;
    cluster.create(job("a", "lq", 1, "1", 60)).await;
    cluster.until("a runs", jobs).await;
    let (queue, flavor) =
        (format!("{CLUSTER_QUEUES}/cq"), "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/f".to_owned());
    cluster.delete(&queue).await;
    cluster.delete(&flavor).await;
    cluster.until("Active=False(Terminating)", async |c| conditions(&c.get(&queue).await)).await;
    assert!(cluster.get(&flavor).await["metadata"]["deletionTimestamp"].is_string());
    cluster.until("a done", jobs).await;
    cluster.until("null null", async |c| format!("{} {}", c.get(&queue).await, c.get(&flavor).await)).await;
}
