//! Writes of a status, of finalizers and owners, or of a pod's labels are done without looking at the rest of the object where nobody reviews them. Whether
//! they are or not makes no difference to any answer.

use crate::api::{Api, pod};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use muster_apiserver::admission::Hook;
use muster_apiserver::{ApiServer, Clock, Options};
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// Asks to see everything, and minds nothing.
struct Onlooker;

impl Hook for Onlooker {}

fn server(hooks: Vec<Arc<dyn Hook>>) -> Api {
    // Without background work, whose turns would differ.
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    Api(ApiServer::new(Options { hooks, seed: Some(7), clock, ..Options::default() }))
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What is sent to a pod or a job, at random: method, subresource, type of the body, and the body.
fn requests() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let container = |state: Value| json!([{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state}]);
    let finish = json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "succeeded": 1, "ready": 0,
        "conditions": [condition("SuccessCriteriaMet", "True"), condition("Complete", "True")]});
    let patches = [
        ("/status", MERGE, json!({"status": {"phase": "Running"}})),
        (
            "/status",
            MERGE,
            json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00.5Z"}}),
        ),
        (
            "/status",
            MERGE,
            json!({"status": {"phase": "Succeeded", "podIPs": [{"ip": "10.0.0.2"}], "conditions": []}}),
        ),
        (
            "/status",
            MERGE,
            json!({"status": {"conditions": [condition("Ready", "True"), condition("PodScheduled", "True")]}}),
        ),
        ("/status", STRATEGIC, json!({"status": {"conditions": [condition("Ready", "False")]}})),
        (
            "/status",
            STRATEGIC,
            json!({"status": {"conditions": [condition("Mine", "False")], "containerStatuses": container(json!({"running": {}}))}}),
        ),
        ("/status", STRATEGIC, json!({"status": {"$patch": "replace", "phase": "Failed"}})),
        ("/status", MERGE, json!({"status": {"nominatedNodeName": "n"}})),
        ("/status", MERGE, json!({"status": {"nominatedNodeName": "Not A Name"}})),
        ("/status", MERGE, json!({"status": {"qosClass": "Guaranteed"}})),
        ("/status", MERGE, json!({"status": {"phase": 7}})),
        ("/status", MERGE, json!({"status": {"unheard": "of"}})),
        ("/status", MERGE, json!({"status": null})),
        ("/status", MERGE, json!({"status": {"conditions": null, "phase": null}})),
        ("/status", MERGE, json!({"metadata": {"uid": "another"}, "status": {"phase": "Running"}})),
        ("/status", MERGE, json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}})),
        ("/status", MERGE, json!({"metadata": {"labels": {"l": "v"}}, "status": {"phase": "Running"}})),
        ("/status", MERGE, json!({"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}})),
        ("/status", MERGE, json!({"kind": "Other", "status": {}})),
        ("/status", MERGE, json!({"status": {"active": 1, "ready": 0}})),
        ("/status", MERGE, json!({"status": {"active": -1}})),
        ("/status", MERGE, json!({"status": finish})),
        ("/status", MERGE, json!({"status": {"uncountedTerminatedPods": {"succeeded": ["u"]}}})),
        ("", MERGE, json!({"metadata": {"finalizers": ["a.io/f", "b.io/f"]}})),
        ("", STRATEGIC, json!({"metadata": {"finalizers": ["c.io/f"]}})),
        (
            "",
            STRATEGIC,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/f"], "$setElementOrder/finalizers": ["b.io/f"]}}),
        ),
        ("", MERGE, json!({"metadata": {"finalizers": null}})),
        ("", MERGE, json!({"metadata": {"finalizers": ["not a finalizer"]}})),
        ("", MERGE, json!({"metadata": {"finalizers": "text"}})),
        (
            "",
            MERGE,
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}}),
        ),
        ("", MERGE, json!({"metadata": {"ownerReferences": [{"kind": "Node"}]}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": null}}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": "v", "m": "w"}}})),
        ("", STRATEGIC, json!({"metadata": {"labels": {"l": "x"}, "finalizers": ["c.io/f"]}})),
        ("", STRATEGIC, json!({"metadata": {"labels": {"$patch": "replace", "n": "y"}}})),
        ("", MERGE, json!({"metadata": {"labels": null}})),
        ("", MERGE, json!({"metadata": {"labels": {"not a key!": "v"}}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": "not a value!"}}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": 7}}})),
        ("", MERGE, json!({"metadata": {"labels": ["l"]}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": "v"}}, "spec": {"activeDeadlineSeconds": 9}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": "v"}, "resourceVersion": "1"}})),
        ("", MERGE, json!({"metadata": {"labels": {"l": "v"}, "generation": 7, "unheard": "of"}})),
        ("", MERGE, json!({"metadata": {"annotations": {"a": "1"}}})),
        ("", MERGE, json!({"metadata": {"annotations": {"a": "2", "b.io/c": "3"}, "labels": {"l": "z"}}})),
        ("", MERGE, json!({"metadata": {"annotations": null}})),
        (
            "",
            MERGE,
            json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "much"}}}),
        ),
        ("", MERGE, json!({"metadata": {"annotations": {"a": {"b": "c"}}}})),
        ("", MERGE, json!({"metadata": {"managedFields": []}})),
        ("", MERGE, json!({"metadata": {"name": "other"}})),
        ("", MERGE, json!({"metadata": null})),
        ("", MERGE, json!({})),
    ];
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x", "annotations": {"b": "1"}}, "target": {"name": "n"}});
    let others = [
        ("GET", "", "", Value::Null),
        ("POST", "/binding", "application/json", binding),
        ("DELETE", "", "application/json", Value::Null),
        ("DELETE", "", "application/json", json!({"gracePeriodSeconds": 30})),
    ];
    patches.into_iter().map(|(sub, kind, body)| ("PATCH", sub, kind, body)).chain(others).collect()
}

/// Programs in the server's own process are told the same but for the record of field managers, whichever way they ask.
async fn check_inside(api: &Api, collection: &str) {
    let outside = |path: String| async move {
        let request = http::Request::get(path).body(Full::new(Bytes::new())).unwrap();
        first_piece(api.0.clone().oneshot(request).await.unwrap()).await
    };
    let inside = |path: String| async move {
        let request = http::Request::get(path).body(Full::new(Bytes::new())).unwrap();
        first_piece(api.0.inside().oneshot(request).await.unwrap()).await
    };
    for way in ["/x", "", "?watch=1"] {
        let path = format!("{collection}{way}");
        let mut told = outside(path.clone()).await;
        for object in ["", "/items/0", "/object"] {
            let metadata = told.pointer_mut(&format!("{object}/metadata")).and_then(Value::as_object_mut);
            metadata.and_then(|metadata| metadata.remove("managedFields"));
        }
        assert_eq!(inside(path).await, told, "{way}");
    }
}

/// The first piece of an answer; nothing where a watch has nothing to tell.
async fn first_piece(response: http::Response<muster_apiserver::Body>) -> Value {
    let mut body = response.into_body();
    let piece = tokio::time::timeout(std::time::Duration::from_millis(1), body.frame()).await;
    let Ok(Some(Ok(frame))) = piece else { return Value::Null };
    serde_json::from_slice(frame.data_ref().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn reviewed_or_not_the_answers_are_the_same() {
    let (light, whole) = (server(Vec::new()), server(vec![Arc::new(Onlooker)]));
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "labels": {"app": "a"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let requests = requests();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut changed = 0;
    for step in 0..2_500 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (collection, object) = match random % 3 {
            0 => ("/apis/batch/v1/namespaces/default/jobs", job.clone()),
            _ => ("/api/v1/namespaces/default/pods", pod("x")),
        };
        let (method, sub, kind, body) = &requests[(random >> 8) as usize % requests.len()];
        let options =
            ["", "?fieldManager=m", "?dryRun=All", "?fieldValidation=Strict"][(random >> 40) as usize % 4];
        let line = format!("{method} {collection}/x{sub}{options}");
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        tokio::time::advance(std::time::Duration::from_millis(300)).await;
        let mut answers = Vec::new();
        for api in [&light, &whole] {
            // It is made anew once it is gone.
            api.send(&format!("POST {collection}"), object.clone()).await;
            let answer = api.send_as(&line, kind, &bytes).await;
            answers.push((answer, api.send(&format!("GET {collection}/x"), Value::Null).await));
        }
        if step % 5 == 0 {
            check_inside(&light, collection).await;
        }
        changed += usize::from(answers[0].0.0 == 200 && *method == "PATCH" && options != "?dryRun=All");
        assert_eq!(answers[0], answers[1], "step {step}: {line} {body}");
    }
    assert!(changed > 250, "{changed} changes");
}
