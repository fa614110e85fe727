//! Many clients at once: nothing is lost, nothing is handed out twice.

use crate::api::{Api, MAPS, map, pod};
use futures::future::join_all;
use serde_json::{Value, json};

#[tokio::test]
async fn concurrent_patches_all_take_effect() {
    let api = Api::new();
    api.ok(&format!("POST {MAPS}"), map("a")).await;
    let line = format!("PATCH {MAPS}/a");
    let patches = (0..20).map(|i| api.ok(&line, json!({"data": {format!("k{i}"): "v"}})));
    join_all(patches).await;
    let found = api.ok(&format!("GET {MAPS}/a"), Value::Null).await;
    assert_eq!(found["data"].as_object().unwrap().len(), 21);
}

#[tokio::test]
async fn one_of_two_updates_of_the_same_version_wins() {
    let api = Api::new();
    let made = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let line = format!("PUT {MAPS}/a");
    let updates = (0..8).map(|i| {
        let mut object = made.clone();
        object["data"]["k"] = i.to_string().into();
        api.send(&line, object)
    });
    let codes: Vec<u16> = join_all(updates).await.into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes.iter().filter(|c| **c == 200).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|c| **c == 409).count(), 7, "{codes:?}");
}

#[tokio::test]
async fn a_quota_is_never_exceeded() {
    let api = Api::new();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}},
    });
    api.ok("POST /api/v1/namespaces/default/resourcequotas", quota).await;
    let creations = (0..20)
        .map(|i| async move { format!("p{i}") })
        .map(|name| async { api.send("POST /api/v1/namespaces/default/pods", pod(&name.await)).await });
    let answers = join_all(creations).await;
    let made = answers.iter().filter(|(code, _)| *code == 201).count();
    assert_eq!(made, 5);
    let refusal = answers.iter().find(|(code, _)| *code == 403).unwrap();
    assert!(
        refusal.1["message"]
            .as_str()
            .unwrap()
            .contains("exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5")
    );
}

#[tokio::test]
async fn generated_names_never_collide() {
    let api = Api::new();
    let mut object = map("");
    object["metadata"] = json!({"generateName": "x-"});
    let line = format!("POST {MAPS}");
    let made = join_all((0..200).map(|_| api.ok(&line, object.clone()))).await;
    let names: std::collections::BTreeSet<&str> =
        made.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 200);
}

#[tokio::test]
async fn a_disruption_budget_is_spent_once() {
    let api = Api::new();
    let pods = "/api/v1/namespaces/default/pods";
    for i in 0..4 {
        api.ok(&format!("POST {pods}"), pod(&format!("p{i}"))).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": format!("p{i}")}, "target": {"name": "n"}});
        api.ok(&format!("POST {pods}/p{i}/binding"), binding).await;
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        api.ok(&format!("PATCH {pods}/p{i}/status"), status).await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "a"}}},
    });
    api.ok(&format!("POST {budgets}"), budget).await;
    let counted = json!({"status": {
        "disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3, "expectedPods": 4, "observedGeneration": 1,
    }});
    api.ok(&format!("PATCH {budgets}/b/status"), counted).await;
    let lines: Vec<String> = (0..4).map(|i| format!("POST {pods}/p{i}/eviction")).collect();
    let evictions = lines.iter().enumerate().map(|(i, line)| {
        let body =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": format!("p{i}")}});
        api.send(line, body)
    });
    let codes: Vec<u16> = join_all(evictions).await.into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes.iter().filter(|c| **c == 201).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|c| **c == 429).count(), 3, "{codes:?}");
}
