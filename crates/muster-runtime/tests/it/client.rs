//! The two ways to a server: whoever asks cannot tell them apart.

use std::time::Duration;

use muster_apiserver::{ApiServer, Clock, Options};
use muster_runtime::api::{Delete, Patch};
use muster_runtime::{Api, ApiError, Client};
use serde_json::{Value, json};

/// A server whose answers depend on nothing but what it is asked.
fn server() -> ApiServer {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    ApiServer::new(Options { seed: Some(7), clock, ..Options::default() })
}

fn outcome(answer: Result<Value, ApiError>) -> Value {
    match answer {
        Ok(object) => object,
        Err(error) => json!({"code": error.code(), "reason": error.reason(), "message": error.message(),
            "wait": error.retry_after().map(|wait| wait.as_secs())}),
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// One request of each sort, refusals with and without a status among them.
async fn ask(api: &Api) -> Vec<Value> {
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let one = format!("{MAPS}/a");
    let mut said = vec![
        outcome(api.create_path(MAPS, &map("a")).await),
        outcome(api.create_path(MAPS, &map("a")).await),
        outcome(api.create_path(MAPS, &map("Not A Name")).await),
        outcome(api.create_path(MAPS, &json!("no object")).await),
        outcome(api.get_path(&one).await),
        outcome(api.get_path(&format!("{MAPS}/none")).await),
        outcome(api.get_path("/apis/no.such.group/v1/things").await),
        outcome(api.patch_path(&one, Patch::Merge, &json!({"data": {"k": "v"}})).await),
        outcome(api.patch_path(&one, Patch::Strategic, &json!({"metadata": {"resourceVersion": "1"}})).await),
        outcome(
            api.apply_path(&one, &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "w"}})).await,
        ),
        outcome(api.put_path(&one, &map("a")).await),
    ];
    let deleted = api.delete_path(&one, Delete::default()).await;
    said.push(outcome(deleted.map(Value::from)));
    said.push(outcome(api.delete_path(&one, Delete::default()).await.map(Value::from)));
    said
}

#[tokio::test]
async fn answers_are_the_same() {
    let far = Api::new(kube::Client::new(server(), "default"), "test");
    let near = Api::new(Client::near(server()), "test");
    let (far, near) = (ask(&far).await, ask(&near).await);
    assert_eq!(near, far);
    let codes: Vec<u64> = near.iter().filter_map(|said| said["code"].as_u64()).collect();
    assert_eq!(codes, [409, 422, 400, 404, 404, 409], "{near:#?}");
}

#[tokio::test]
async fn watches_are_the_same() {
    let mut told = Vec::new();
    let here = server();
    for client in [Client::from(kube::Client::new(here.clone(), "default")), Client::near(here)] {
        let api = Api::new(client, "test");
        let name = format!("w{}", told.len());
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let version = api.list_raw(&format!("{MAPS}?"), None).await.unwrap().resource_version;
        let mut lines = api.watch_raw(&format!("{MAPS}?"), &version, Duration::from_secs(60)).await.unwrap();
        api.create_path(MAPS, &body).await.unwrap();
        let event: Value = serde_json::from_str(lines.next().await.unwrap().unwrap()).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
        told.push(event);
    }
    let gone =
        Api::new(Client::near(server()), "test").watch_raw("/apis/a.b/v1/cs?", "1", Duration::ZERO).await;
    assert!(gone.is_err_and(|error| error.not_found()));
}

/// A server that is called never makes anybody wait, and yet one thread serves several.
#[tokio::test]
async fn somebody_with_many_requests_lets_others_go_on() {
    let api = Api::new(Client::near(server()), "test");
    let busy = tokio::spawn(async move {
        loop {
            let _ = api.get_path(&format!("{MAPS}/none")).await;
        }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    busy.abort();
    assert!(busy.await.is_err_and(|error| error.is_cancelled()));
}
