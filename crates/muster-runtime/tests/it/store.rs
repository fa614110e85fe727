//! A store that writes: what an answer says about the object is known at once, whatever the watch has yet to say.

use muster_apiserver::{ApiServer, Options};
use muster_runtime::api::{Api, Delete, Scope};
use muster_runtime::object::Meta;
use muster_runtime::{Client, Object, Store};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize, Default)]
struct Pod {
    metadata: Meta,
}

/// A kind without a status.
#[derive(Debug, Deserialize, Default)]
struct ConfigMap {
    metadata: Meta,
}

muster_runtime::kinds! {
    Pod = "" "v1" "Pod" "pods";
    ConfigMap = "" "v1" "ConfigMap" "configmaps";
}

/// How many objects the store knows after a status was written of one that went away, came back under its name, or is there as it was.
async fn known_after<T: Object>(body: Value, goes: bool, comes_back: bool) -> usize {
    let api = Api::new(Client::near(ApiServer::new(Options::default())), "test");
    let path = T::RESOURCE.path("default", "", "");
    let store = Store::<T>::new(api.clone(), Scope::default());
    let text = api.create_path(&path, &body).await.unwrap().to_string();
    let object: T = serde_json::from_str(&text).unwrap();
    let key = object.key();
    store.enter(object);
    if goes {
        let now = Delete { grace_seconds: Some(0), ..Delete::default() };
        api.delete::<T>(&key, now).await.unwrap();
    }
    if comes_back {
        api.create_path(&path, &body).await.unwrap();
    }
    let object = store.get(&key).unwrap();
    let written = store.send_status(&api, &object, json!({"status": {"message": "well"}})).await;
    assert!(written.is_ok() || comes_back, "{written:?}");
    store.all().len()
}

#[tokio::test]
async fn what_a_write_finds_gone_is_forgotten() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(known_after::<Pod>(pod.clone(), false, false).await, 1);
    assert_eq!(known_after::<Pod>(pod.clone(), true, false).await, 0);
    // Another object of the same name refuses the write for its version; the watch says what became of the first.
    assert_eq!(known_after::<Pod>(pod, true, true).await, 1);
    assert_eq!(known_after::<ConfigMap>(map.clone(), false, false).await, 1);
    assert_eq!(known_after::<ConfigMap>(map.clone(), true, false).await, 0);
    assert_eq!(known_after::<ConfigMap>(map, true, true).await, 0);
}
