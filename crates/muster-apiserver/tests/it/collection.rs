//! Garbage collection: owners, finalizers, namespaces.

use crate::api::{Api, MAPS, map, pod};
use serde_json::{Value, json};

async fn owned(api: &Api, name: &str, owner: &Value, blocks: bool) -> Value {
    let mut object = map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }]);
    api.ok(&format!("POST {MAPS}"), object).await
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_to_any_depth() {
    let api = Api::new();
    let a = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let b = owned(&api, "b", &a, false).await;
    owned(&api, "c", &b, false).await;
    api.ok(&format!("DELETE {MAPS}/a?propagationPolicy=Background"), Value::Null).await;
    api.until(&format!("GET {MAPS}/c"), 404).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_with_another_living_owner_stays() {
    let api = Api::new();
    let a = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let b = api.ok(&format!("POST {MAPS}"), map("b")).await;
    let mut child = map("c");
    let owner = |o: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]});
    child["metadata"]["ownerReferences"] = json!([owner(&a), owner(&b)]);
    api.ok(&format!("POST {MAPS}"), child).await;
    api.ok(&format!("DELETE {MAPS}/a"), Value::Null).await;
    for _ in 0..100 {
        let child = api.ok(&format!("GET {MAPS}/c"), Value::Null).await;
        if child["metadata"]["ownerReferences"].as_array().unwrap().len() == 1 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("the reference to the deleted owner stayed");
}

#[tokio::test(start_paused = true)]
async fn in_foreground_the_owner_goes_last() {
    let api = Api::new();
    let a = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let mut child = owned(&api, "b", &a, true).await;
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.ok(&format!("PUT {MAPS}/b"), child).await;
    api.ok(&format!("DELETE {MAPS}/a?propagationPolicy=Foreground"), Value::Null).await;
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        api.ok(&format!("GET {MAPS}/a"), Value::Null).await;
    }
    api.ok(&format!("PATCH {MAPS}/b"), json!({"metadata": {"finalizers": null}})).await;
    api.until(&format!("GET {MAPS}/b"), 404).await;
    api.until(&format!("GET {MAPS}/a"), 404).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_without_their_owner() {
    let api = Api::new();
    let a = api.ok(&format!("POST {MAPS}"), map("a")).await;
    owned(&api, "b", &a, false).await;
    api.ok(&format!("DELETE {MAPS}/a?propagationPolicy=Orphan"), Value::Null).await;
    api.until(&format!("GET {MAPS}/a"), 404).await;
    let child = api.ok(&format!("GET {MAPS}/b"), Value::Null).await;
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_its_content_along() {
    let api = Api::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    api.ok("POST /api/v1/namespaces", namespace).await;
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.ok("POST /api/v1/namespaces/x/configmaps", held).await;
    api.ok("POST /api/v1/namespaces/x/pods", pod("p")).await;
    let going = api.ok("DELETE /api/v1/namespaces/x", Value::Null).await;
    assert_eq!(going["status"]["phase"], "Terminating");
    let (code, refusal) = api.send("POST /api/v1/namespaces/x/configmaps", map("late")).await;
    assert_eq!(
        (code, refusal["details"]["causes"][0]["reason"].as_str()),
        (403, Some("NamespaceTerminating"))
    );
    api.until("GET /api/v1/namespaces/x/pods/p", 404).await;
    api.ok("GET /api/v1/namespaces/x", Value::Null).await;
    api.ok("PATCH /api/v1/namespaces/x/configmaps/held", json!({"metadata": {"finalizers": null}})).await;
    api.until("GET /api/v1/namespaces/x", 404).await;
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_waits_for_its_kubelet() {
    let api = Api::new();
    let pods = "/api/v1/namespaces/default/pods";
    api.ok(&format!("POST {pods}"), pod("p")).await;
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}});
    api.ok(&format!("POST {pods}/p/binding"), binding.clone()).await;
    assert_eq!(api.send(&format!("POST {pods}/p/binding"), binding).await.0, 409);
    let going = api.ok(&format!("DELETE {pods}/p"), Value::Null).await;
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    api.ok(&format!("GET {pods}/p"), Value::Null).await;
    api.ok(&format!("DELETE {pods}/p?gracePeriodSeconds=0"), Value::Null).await;
    api.until(&format!("GET {pods}/p"), 404).await;
}
