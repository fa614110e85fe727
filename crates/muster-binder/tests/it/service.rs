//! The service that carries out BindRequests.

use std::time::Duration;

use muster_binder::{Options, Received};
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::{Value, json};

use crate::cluster::{Cluster, MINUTE, SOON, assignment, cluster, options, requests_path};

#[tokio::test(start_paused = true)]
async fn requests_are_carried_out() {
    let c = cluster(1, 1).await;
    c.serve(None);
    let binder = c.binder(None);
    let plain = c.plain("plain", "node-0").await;
    let half = c.half("half", "node-0", &["g1"]).await;
    binder.submit(&plain).await.unwrap();
    binder.submit(&half).await.unwrap();
    binder.submit(&half).await.unwrap();
    for name in ["plain", "half"] {
        c.until(SOON, "Succeeded - -", async |c| c.request_status(name).await).await;
        assert_eq!(c.node_of(name).await, "node-0");
    }
    let request = c.request("half").await.unwrap();
    assert_eq!(request.metadata.labels["selected-node"], "node-0");
    // Requests go with their pods.
    c.delete("/api/v1/namespaces/default/pods/plain").await;
    c.until(MINUTE, "none", async |c| c.request_status("plain").await).await;
}

/// A scheduler that was killed left requests behind, and nobody runs a binder.
#[tokio::test(start_paused = true)]
async fn a_scheduler_alone_carries_on_what_it_began() {
    let c = cluster(1, 1).await;
    let half = c.half("half", "node-0", &["g1"]).await;
    let mut own = half.to_bind_request();
    own["metadata"]["annotations"] = json!({"muster.dev/bound-by": options().owner});
    c.create(&requests_path(), own).await;
    let other = c.plain("other", "node-0").await;
    c.binder(None).submit(&other).await.unwrap();
    c.serve_own();
    c.until(SOON, "Succeeded - -", async |c| c.request_status("half").await).await;
    assert_eq!(c.node_of("half").await, "node-0");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(c.request_status("other").await, "- - -", "that one is for a binder");
}

#[tokio::test(start_paused = true)]
async fn a_request_as_kai_writes_it() {
    let c = cluster(1, 1).await;
    c.serve(None);
    let half = c.half("half", "node-0", &["5e0f9c1a-7a44-4a0e-9d0a-0f7c6c6f1c11"]).await;
    assert_eq!(half.kind, Received::Fraction);
    c.create(
        &requests_path(),
        json!({
            "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {
                "name": "half", "namespace": "default", "labels": {"selected-node": "node-0"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "half", "uid": half.pod_uid}],
            },
            "spec": {
                "podName": "half", "selectedNode": "node-0", "receivedResourceType": "Fraction",
                "receivedGPU": {"count": 1, "portion": "0.50"},
                "selectedGPUGroups": ["5e0f9c1a-7a44-4a0e-9d0a-0f7c6c6f1c11"],
            },
        }),
    )
    .await;
    c.until(SOON, "Succeeded - -", async |c| c.request_status("half").await).await;
    assert_eq!(c.reservations().await, "5e0f9c1a-7a44-4a0e-9d0a-0f7c6c6f1c11@node-0 device");
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_counted() {
    let c = cluster(1, 0).await;
    let faults = FaultLayer::new(1, vec![Rule::on("create", "pods/binding").fault(Fault::Status(500))]);
    c.serve(Some(&faults));
    let mut a = c.plain("a", "node-0").await;
    a.backoff_limit = Some(3);
    c.binder(None).submit(&a).await.unwrap();
    let failures = async |c: &crate::cluster::Cluster| {
        c.request_status("a").await.split(' ').take(2).collect::<Vec<_>>().join(" ")
    };
    c.until(SOON, "Failed 1", failures).await;
    c.until(SOON, "Failed 2", failures).await;
    c.until(SOON, "Failed 3", failures).await;
    let tried = faults.n_faults();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((failures(&c).await.as_str(), faults.n_faults()), ("Failed 3", tried));
    let pod = c.raw("/api/v1/namespaces/default/pods/a").await;
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let bound = conditions.iter().find(|c| c["type"] == "PodBound").unwrap();
    assert_eq!((&bound["status"], &bound["reason"]), (&json!("False"), &json!("BindingError")));
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_it_is_tried_until_it_works() {
    let c = cluster(1, 0).await;
    // Each attempt sits out a moment of 2 s, in which the Binding is posted six times.
    let faults =
        FaultLayer::new(1, vec![Rule::on("create", "pods/binding").times(18).fault(Fault::Status(500))]);
    c.serve(Some(&faults));
    let a = c.plain("a", "node-0").await;
    let start = tokio::time::Instant::now();
    c.binder(None).submit(&a).await.unwrap();
    c.until(MINUTE, "Succeeded 3 -", async |c| c.request_status("a").await).await;
    // 1 + 2 + 4 s between the attempts, and 1.55 s within each of the three that failed.
    assert!((11..13).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    c.until(SOON, "True", async |c| {
        let pod = c.raw("/api/v1/namespaces/default/pods/a").await;
        let conditions = pod["status"]["conditions"].as_array().unwrap().clone();
        let bound = conditions.iter().find(|c| c["type"] == "PodBound").unwrap();
        bound["status"].as_str().unwrap().to_owned()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_can_never_work_is_given_back() {
    let c = cluster(1, 0).await;
    c.serve(None);
    let binder = c.binder(None);
    let mut nowhere = c.plain("nowhere", "node-9").await;
    nowhere.backoff_limit = Some(5);
    binder.submit(&nowhere).await.unwrap();
    c.until(SOON, "Failed 5 cannot be bound: node node-9 does not exist", async |c| {
        c.request_status("nowhere").await
    })
    .await;

    let taken = c.plain("taken", "node-0").await;
    binder.bind(&taken).await.unwrap();
    let mut elsewhere = taken.clone();
    elsewhere.node = "node-1".into();
    c.create("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}))
        .await;
    binder.submit(&elsewhere).await.unwrap();
    let reason = "Failed 1 cannot be bound: the pod is already bound to node node-0";
    c.until(SOON, reason, async |c| c.request_status("taken").await).await;

    c.pod("odd", json!({}), json!({})).await;
    c.create(&requests_path(), json!({
        "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
        "metadata": {"name": "odd", "namespace": "default"}, "spec": {"podName": "odd", "selectedNode": "../x"},
    }))
    .await;
    let reason = "Failed 1 cannot be bound: spec.selectedNode is \"../x\", which is no name";
    c.until(SOON, reason, async |c| c.request_status("odd").await).await;

    // A new decision replaces the old one.
    let mut again = nowhere.clone();
    again.node = "node-0".into();
    binder.submit(&again).await.unwrap();
    c.until(SOON, "Succeeded - -", async |c| c.request_status("nowhere").await).await;
    assert_eq!(c.node_of("nowhere").await, "node-0");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_binds_by_itself_is_left_alone() {
    let c = cluster(1, 1).await;
    let cancel = c.cancel.child_token();
    let (cx, events) = muster_runtime::Context::new(c.client(None), "muster", c.clock, cancel.clone());
    let binder = muster_binder::Binder::new(cx.api.named("muster"), crate::cluster::options());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(events);
    tasks.spawn(muster_binder::service::serve(&cx, &binder));
    cx.watch(&mut tasks);
    let half = c.half("half", "node-0", &["g1"]).await;
    binder.bind(&half).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let asked = c.take_asked();
    assert!(asked.contains("POST pods/binding ×1"), "{asked}");
    assert_eq!(c.request_status("half").await, "Succeeded - -");
    assert_eq!(c.reservations().await, "g1@node-0 device");

    // Its request is carried out if it dies before the end.
    let other = c.half("other", "node-0", &["g1"]).await;
    binder.submit(&other).await.unwrap();
    c.until(SOON, "Succeeded - -", async |c| c.request_status("other").await).await;
    assert_eq!(assignment("other", "", c.node_of("other").await.as_str()).node, "node-0");
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_scheduler_began_is_finished_by_others() {
    let c = cluster(1, 1).await;
    let half = c.half("half", "node-0", &["g1"]).await;
    // It dies after its request is written.
    let faults = FaultLayer::new(1, vec![Rule::on("", "pods").fault(Fault::Silence)]);
    let dying = c.binder(Some(&faults));
    let task = tokio::spawn(async move { dying.bind(&half).await });
    c.until(SOON, "- - -", async |c| c.request_status("half").await).await;
    task.abort();
    c.serve_as(None, Options { owner: "another".into(), ..options() });
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(c.request_status("half").await, "- - -");
    c.until(3 * MINUTE, "Succeeded - -", async |c| c.request_status("half").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_of_requests_is_bound_whole_or_given_back() {
    let c = cluster(1, 1).await;
    c.serve(None);
    let binder = c.binder(None);
    let gang = [c.plain("p0", "node-0").await, c.half("p1", "node-0", &["g1"]).await];
    assert!(binder.submit_gang(&gang, 2, 4).await.iter().all(Result::is_ok));
    for name in ["p0", "p1"] {
        c.until(SOON, "Succeeded - -", async |c| c.request_status(name).await).await;
    }

    // One of them asks for the impossible.
    let gang = [c.plain("q0", "node-0").await, c.half("q1", "node-0", &["g2"]).await];
    assert!(binder.submit_gang(&gang, 2, 4).await.iter().all(Result::is_ok));
    c.until(SOON, "Failed 1 cannot be bound: rolled back, because default/q1 of the same gang", async |c| {
        c.request_status("q0").await.split(" was").next().unwrap_or_default().to_owned()
    })
    .await;
    assert_eq!((c.node_of("q0").await.as_str(), c.node_of("q1").await.as_str()), ("", ""));

    // One of them never comes.
    let gang = [c.plain("r0", "node-0").await, c.plain("r1", "node-0").await, c.plain("r2", "node-0").await];
    let faults =
        FaultLayer::new(1, vec![Rule::on("create", "bindrequests").after(2).fault(Fault::Status(500))]);
    let written = c.binder(Some(&faults)).submit_gang(&gang, 3, 1).await;
    assert_eq!(written.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    let reason = "Failed 1 cannot be bound: only 2 of the 3 requests of its gang are there, 3 are needed";
    c.until(MINUTE, reason, async |c| c.request_status("r0").await).await;
}

/// Submits a gang of three pods, of which so many are needed. They stay to be seen when they are told to go.
async fn submit_three(c: &Cluster, name: &str, specs: [Value; 3], needed: usize) -> [String; 3] {
    let names = [format!("{name}0"), format!("{name}1"), format!("{name}2")];
    let mut gang = Vec::new();
    for (name, spec) in names.iter().zip(specs) {
        let uid = c.pod(name, json!({"finalizers": ["example.com/stay"]}), spec).await;
        gang.push(assignment(name, &uid, "node-0"));
    }
    assert!(c.binder(None).submit_gang(&gang, needed, 4).await.iter().all(Result::is_ok));
    names
}

/// Whether a pod was told to go, and for whom.
async fn goes_for(c: &Cluster, name: &str) -> String {
    let pod = c.raw(&format!("/api/v1/namespaces/default/pods/{name}")).await;
    let told = pod["status"]["conditions"].as_array().into_iter().flatten();
    let why = told.filter(|c| c["type"] == "DisruptionTarget").find_map(|c| c["message"].as_str());
    let goes = !pod["metadata"]["deletionTimestamp"].is_null();
    format!("{goes} {}", why.and_then(|why| why.split(" was").next()).unwrap_or("-"))
}

fn gated() -> Value {
    json!({"schedulingGates": [{"name": "example.com/wait"}]})
}

#[tokio::test(start_paused = true)]
async fn what_of_a_gang_is_bound_makes_way_when_the_rest_is_refused() {
    let c = cluster(1, 0).await;
    // Each word about it is lost once.
    let lost = Rule::on("patch", "bindrequests/status").after(3).times(2).fault(Fault::Status(500));
    c.serve(Some(&FaultLayer::new(1, vec![lost])));
    let [p0, p1, p2] = submit_three(&c, "p", [json!({}), json!({}), gated()], 3).await;
    for name in [&p0, &p1] {
        let told = "true rolled back, because default/p2 of the same gang";
        c.until(SOON, told, async |c| goes_for(c, name).await).await;
        let written = "Failed 1 cannot be bound: rolled back, because default/p2 of the same gang";
        let status = async |c: &Cluster| {
            c.request_status(name).await.split(" was").next().unwrap_or_default().to_owned()
        };
        c.until(MINUTE, written, status).await;
    }
    assert_eq!(goes_for(&c, &p2).await, "false -");
    // Two of three are enough.
    let enough = submit_three(&c, "q", [json!({}), json!({}), gated()], 2).await;
    tokio::time::sleep(2 * MINUTE).await;
    for (name, phase) in enough.iter().zip(["Succeeded", "Succeeded", "Failed"]) {
        assert_eq!(c.request_status(name).await.split(' ').next(), Some(phase), "{name}");
        assert_eq!(goes_for(&c, name).await, "false -", "{name}");
    }
}

/// A binder that was killed had bound two of three, and had written that the third cannot be; whose spec this is.
async fn check_taken_up(third: Value, expected: &str) {
    let c = cluster(2, 0).await;
    let there = json!({"nodeName": "node-0"});
    let names = submit_three(&c, "p", [there.clone(), there, third], 3).await;
    let failed = json!({"phase": "Failed", "reason": "cannot be bound: no", "failedAttempts": 1});
    let succeeded = json!({"phase": "Succeeded"});
    for (name, status) in names.iter().zip([&succeeded, &succeeded, &failed]) {
        c.patch(&format!("{}/{name}/status", requests_path()), json!({"status": status})).await;
    }
    c.serve(None);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(goes_for(&c, &names[0]).await, expected);
    assert_eq!(goes_for(&c, &names[1]).await, expected);
    assert_eq!(goes_for(&c, &names[2]).await, "false -");
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_binder_left_of_a_gang_makes_way() {
    check_taken_up(json!({}), "true rolled back, because default/p2 of the same gang").await;
    // The third has a node, if not from us: the gang is whole.
    check_taken_up(json!({"nodeName": "node-1"}), "false -").await;
}

/// The first of them speaks for all; when it is gone, another does.
#[tokio::test(start_paused = true)]
async fn a_gang_whose_first_pod_is_deleted_is_given_back() {
    let c = cluster(1, 1).await;
    c.serve(None);
    let gang = [c.plain("r0", "node-0").await, c.plain("r1", "node-0").await, c.plain("r2", "node-0").await];
    let faults =
        FaultLayer::new(1, vec![Rule::on("create", "bindrequests").after(2).fault(Fault::Status(500))]);
    c.binder(Some(&faults)).submit_gang(&gang, 3, 1).await;
    c.until(SOON, "- - -", async |c| c.request_status("r1").await).await;
    c.delete("/api/v1/namespaces/default/pods/r0").await;
    let reason = "Failed 1 cannot be bound: only 1 of the 3 requests of its gang are there, 3 are needed";
    c.until(MINUTE, reason, async |c| c.request_status("r1").await).await;
}

/// A status that could not be written is written later, whichever of the gang it is.
#[tokio::test(start_paused = true)]
async fn a_gang_of_requests_survives_conflicts() {
    let c = cluster(1, 1).await;
    let clash = Rule::on("patch", "bindrequests/status").after(1).times(2).fault(Fault::Status(409));
    c.serve(Some(&FaultLayer::new(1, vec![clash])));
    let gang = [c.plain("p0", "node-0").await, c.plain("p1", "node-0").await, c.plain("p2", "node-0").await];
    c.binder(None).submit_gang(&gang, 3, 4).await;
    for name in ["p0", "p1", "p2"] {
        c.until(MINUTE, "Succeeded - -", async |c| c.request_status(name).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_of_requests_is_tried_again_together() {
    let c = cluster(1, 1).await;
    let faults =
        FaultLayer::new(1, vec![Rule::on("create", "configmaps").times(2).fault(Fault::Status(500))]);
    c.serve(Some(&faults));
    let gang = [c.plain("p0", "node-0").await, c.half("p1", "node-0", &["g1"]).await];
    c.binder(None).submit_gang(&gang, 2, 4).await;
    for name in ["p0", "p1"] {
        c.until(MINUTE, "Succeeded 2 -", async |c| c.request_status(name).await).await;
    }
    assert_eq!((c.node_of("p0").await.as_str(), c.node_of("p1").await.as_str()), ("node-0", "node-0"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_withdrawn_does_not_come_true() {
    let c = cluster(1, 0).await;
    c.serve(None);
    c.storage_class("fast", "csi.example.com").await;
    c.volume_claim("data", "fast").await;
    let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("a", json!({}), spec).await;
    c.binder(None).submit(&assignment("a", &uid, "node-0")).await.unwrap();
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    let selected = async |c: &crate::cluster::Cluster| {
        c.raw(path).await["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].to_string()
    };
    c.until(SOON, "\"node-0\"", selected).await;
    c.delete(&format!("{}/a", requests_path())).await;
    // What was prepared is undone, and the pod waits for another decision.
    c.until(SOON, "null", selected).await;
    c.bind_volumes().await;
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(c.node_of("a").await, "");
}

/// A blink of the API while a gang is bound is none of the failures that count.
#[tokio::test(start_paused = true)]
async fn a_binding_is_tried_for_a_moment() {
    let c = cluster(1, 0).await;
    let busy = Rule::on("create", "pods/binding").times(1).fault(Fault::Status(503));
    let broken = Rule::on("create", "pods/binding").times(2).fault(Fault::Status(500));
    c.serve(Some(&FaultLayer::new(1, vec![busy, broken])));
    let mut a = c.plain("a", "node-0").await;
    a.backoff_limit = Some(1);
    c.binder(None).submit(&a).await.unwrap();
    c.until(SOON, "Succeeded - -", async |c| c.request_status("a").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_keeps_what_it_was_given_though_the_answer_was_lost() {
    let c = cluster(1, 1).await;
    let lost = Rule::on("create", "pods/binding").times(1).fault(Fault::LostAnswer);
    let down = Rule::on("create", "pods/binding").fault(Fault::Status(503));
    c.serve(Some(&FaultLayer::new(1, vec![lost, down])));
    let half = c.half("half", "node-0", &["g1"]).await;
    c.binder(None).submit(&half).await.unwrap();
    c.until(MINUTE, "Succeeded - -", async |c| c.request_status("half").await).await;
    assert_eq!(c.labels("half").await["runai-gpu-group"], "g1");
    assert_eq!(c.reservations().await, "g1@node-0 device");
}

/// What became of its requests last time says nothing of this time.
#[tokio::test(start_paused = true)]
async fn a_gang_may_be_decided_again_as_it_was() {
    let c = cluster(1, 0).await;
    c.serve(None);
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "dev"}]});
    let uid = c.pod("p1", json!({}), spec).await;
    let mut gang =
        [c.plain("p0", "node-0").await, assignment("p1", &uid, "node-0"), c.plain("p2", "node-0").await];
    gang[1].claims = vec![("gpu".into(), crate::cluster::allocation("gpu-0"))];
    let binder = c.binder(None);
    assert!(binder.submit_gang(&gang, 3, 1).await.iter().all(Result::is_ok));
    for name in ["p0", "p1", "p2"] {
        c.until(SOON, "Failed", async |c| c.request_status(name).await.split(' ').next().unwrap().to_owned())
            .await;
    }
    c.device_claim("dev").await;
    // Written one by one, and slowly: each time some of the old requests are still there.
    let slow = Rule::on("create", "bindrequests").fault(Fault::Delay(Duration::from_secs(1)));
    let binder = c.binder(Some(&FaultLayer::new(1, vec![slow])));
    assert!(binder.submit_gang(&gang, 3, 1).await.iter().all(Result::is_ok));
    for name in ["p0", "p1", "p2"] {
        c.until(SOON, "Succeeded - -", async |c| c.request_status(name).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_takes_long_keeps_nobody_waiting() {
    let c = cluster(1, 0).await;
    c.serve_as(None, Options { concurrency: 2, ..options() });
    c.storage_class("fast", "csi.example.com").await;
    c.volume_claim("data", "fast").await;
    let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("slow0", json!({}), spec).await;
    let mut gang = vec![assignment("slow0", &uid, "node-0")];
    for i in 1..6 {
        gang.push(c.plain(&format!("slow{i}"), "node-0").await);
    }
    let binder = c.binder(None);
    binder.submit_gang(&gang, 6, 1).await;
    tokio::time::sleep(SOON).await;
    binder.submit(&c.plain("quick", "node-0").await).await.unwrap();
    c.until(SOON, "Succeeded - -", async |c| c.request_status("quick").await).await;
    c.bind_volumes().await;
    for i in 0..6 {
        c.until(SOON, "Succeeded - -", async |c| c.request_status(&format!("slow{i}")).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_binder_prepared_is_taken_back_when_the_node_is_gone() {
    let c = cluster(2, 1).await;
    let half = c.half("half", "node-1", &["g1"]).await;
    // It dies before the Binding.
    let faults = FaultLayer::new(1, vec![Rule::on("create", "pods/binding").fault(Fault::Silence)]);
    let dying = c.binder(Some(&faults));
    let task = tokio::spawn(async move { dying.bind(&half).await });
    c.until(MINUTE, "1", async |_| faults.n_faults().to_string()).await;
    task.abort();
    assert_eq!(c.labels("half").await["runai-gpu-group"], "g1");
    c.delete("/api/v1/nodes/node-1").await;
    c.serve(None);
    let status = "Failed 1 cannot be bound: node node-1 does not exist";
    c.until(MINUTE, status, async |c| c.request_status("half").await).await;
    assert!(c.labels("half").await.is_empty());
    assert!(c.raw("/api/v1/namespaces/default/configmaps/half-shared-gpu-0").await.is_null());
    c.until(SOON, "", Cluster::reservations).await;
}

#[tokio::test(start_paused = true)]
async fn the_label_of_the_node_pool_is_that_of_the_request() {
    let c = cluster(1, 0).await;
    c.serve_as(None, Options { pool_label: Some("example.com/pool".into()), ..options() });
    let mut a = c.plain("a", "node-0").await;
    a.pool = Some(("example.com/pool".into(), "blue".into()));
    c.binder(None).submit(&a).await.unwrap();
    c.until(SOON, "Succeeded - -", async |c| c.request_status("a").await).await;
    assert_eq!(c.labels("a").await["example.com/pool"], "blue");
}
