//! A server whose store is in a folder: what it was told is there after it is started again, and it goes on with it.

use crate::api::{Api, MAPS, map};
use muster_apiserver::identity::Identity;
use muster_apiserver::store::Durable;
use muster_apiserver::store::disk::Limits;
use muster_apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that goes away with the test.
pub struct Temp(pub PathBuf);

impl Temp {
    pub fn new() -> Temp {
        static N: AtomicU64 = AtomicU64::new(0);
        let name = format!("muster-durable-{}-{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server in the folder, and its end: the folder is given free when everything that uses the server is gone.
struct Kept {
    api: Api,
    store: Arc<Durable>,
    background: tokio::task::JoinHandle<()>,
}

fn start(temp: &Temp, options: Options) -> Kept {
    let store = Arc::new(Durable::open(&temp.0, "1.36", Limits::default()).unwrap());
    let server = ApiServer::with_store(options, store.clone());
    let background = server.clone();
    let background = tokio::spawn(async move { background.run().await });
    Kept { api: Api(server), store, background }
}

impl Kept {
    async fn stop(self) {
        self.background.abort();
        let _ = self.background.await;
        self.store.close();
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let temp = Temp::new();
    let kept = start(&temp, Options::default());
    let api = &kept.api;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.e.com"},
        "spec": {
            "group": "e.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.colour"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"colour": {"type": "string"}}},
                }}},
            }],
        },
    });
    api.ok("POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    api.ok("POST /api/v1/namespaces", team).await;
    let widgets = "/apis/e.com/v1/namespaces/team/widgets";
    for colour in ["red", "blue"] {
        let widget = json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": colour}, "spec": {"colour": colour}});
        api.ok(&format!("POST {widgets}"), widget).await;
    }
    let made = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let changed = api.ok(&format!("PATCH {MAPS}/a"), json!({"data": {"k": "w"}})).await;
    api.ok(&format!("POST {MAPS}"), map("b")).await;
    let last = api.ok(&format!("DELETE {MAPS}/b"), Value::Null).await;
    assert_eq!(last["status"], "Success");
    let reads = [
        format!("GET {widgets}"),
        format!("GET {MAPS}"),
        "GET /api/v1/namespaces".into(),
        "GET /apis".into(),
    ];
    let mut before = Vec::new();
    for read in &reads {
        before.push(api.ok(read, Value::Null).await);
    }
    kept.stop().await;

    let kept = start(&temp, Options::default());
    let api = &kept.api;
    for (read, before) in reads.iter().zip(&before) {
        let now = api.ok(read, Value::Null).await;
        assert_eq!(now["items"], before["items"], "{read}");
        if now.get("items").is_some() {
            assert!(version(&now) >= version(before), "{read}");
        }
        assert_eq!(now["groups"], before["groups"], "{read}");
    }
    let red = api.ok(&format!("GET {widgets}?fieldSelector=spec.colour%3Dred"), Value::Null).await;
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    // A watch resumes from before the restart, and goes on with what happens now.
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&made))).await;
    for expected in ["MODIFIED a", "ADDED b", "DELETED b"] {
        assert_eq!(events.next().await.unwrap(), expected);
    }
    let new = api.ok(&format!("POST {MAPS}"), map("c")).await;
    assert!(version(&new) > version(&changed));
    assert_eq!(events.next().await.unwrap(), "ADDED c");
    // What was read before can be written now.
    let mut object = changed.clone();
    object["data"]["k"] = "x".into();
    api.ok(&format!("PUT {MAPS}/a"), object).await;
    kept.stop().await;
}

#[tokio::test]
async fn background_work_goes_on_after_a_restart() {
    let temp = Temp::new();
    let kept = start(&temp, Options::default());
    let owner = kept.api.ok(&format!("POST {MAPS}"), map("owner")).await;
    let mut owned = map("owned");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    kept.api.ok(&format!("POST {MAPS}"), owned).await;
    // The collector is gone before it can see this.
    kept.background.abort();
    kept.api.ok(&format!("DELETE {MAPS}/owner"), Value::Null).await;
    kept.stop().await;
    let kept = start(&temp, Options::default());
    kept.api.until(&format!("GET {MAPS}/owned"), 404).await;
    kept.stop().await;
}

#[tokio::test]
async fn uids_of_a_seed_are_not_given_twice() {
    let temp = Temp::new();
    let mut uids = std::collections::BTreeSet::new();
    for round in 0..3 {
        let kept = start(&temp, Options { seed: Some(7), ..Options::default() });
        for i in 0..5 {
            let made = kept.api.ok(&format!("POST {MAPS}"), map(&format!("m-{round}-{i}"))).await;
            assert!(uids.insert(made["metadata"]["uid"].to_string()));
        }
        kept.stop().await;
    }
}

#[test]
fn a_folder_keeps_its_identity() {
    let temp = Temp::new();
    std::fs::create_dir_all(&temp.0).unwrap();
    let made = Identity::of(&temp.0).unwrap();
    made.clone().on(1234).keep(&temp.0).unwrap();
    let again = Identity::of(&temp.0).unwrap();
    assert_eq!((made.token, made.ca_pem, made.key_pem), (again.token, again.ca_pem, again.key_pem));
    assert_eq!(again.port, Some(1234));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = temp.0.join("identity.json").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "its owner's only");
    }
    std::fs::write(temp.0.join("identity.json"), "{").unwrap();
    let Err(error) = Identity::of(&temp.0) else { panic!("it was read") };
    assert!(error.to_string().contains("identity.json"), "{error}");
}

#[tokio::test]
async fn the_versions_of_stored_objects_are_known_after_a_restart() {
    let temp = Temp::new();
    let kept = start(&temp, Options::default());
    let api = &kept.api;
    let version = |name: &str, stored: bool| json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let crd = |stored: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.e.com"},
            "spec": {
                "group": "e.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [version("v1", stored == "v1"), version("v2", stored == "v2")],
            },
        })
    };
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.ok(&format!("POST {crds}"), crd("v1")).await;
    let widgets = |version: &str| format!("/apis/e.com/{version}/namespaces/default/widgets");
    let widget = |name: &str, version: &str| json!({"apiVersion": format!("e.com/{version}"), "kind": "Widget", "metadata": {"name": name}});
    api.ok(&format!("POST {}", widgets("v1")), widget("old", "v1")).await;
    api.ok(&format!("PATCH {crds}/widgets.e.com"), json!({"spec": crd("v2")["spec"]})).await;
    api.ok(&format!("POST {}", widgets("v2")), widget("new", "v2")).await;
    kept.stop().await;

    /// What a converter was asked: it is asked only about objects of the other version.
    fn mark(object: &mut Value, to: &str) -> Result<(), String> {
        object["converted"] = format!("{} to {to}", object["apiVersion"].as_str().unwrap_or_default()).into();
        Ok(())
    }
    let mut options = Options::default();
    options.converters.insert("e.com".into(), mark);
    let kept = start(&temp, options);
    let list = kept.api.ok(&format!("GET {}", widgets("v2")), Value::Null).await;
    let shown: Vec<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| format!("{} {}", i["metadata"]["name"], i["converted"]))
        .collect();
    assert_eq!(shown, ["\"new\" null", "\"old\" \"e.com/v1 to e.com/v2\""]);
    kept.stop().await;
}

#[tokio::test]
async fn tokens_of_service_accounts_survive_a_restart() {
    use muster_apiserver::access::Config;
    let temp = Temp::new();
    // The folder comes first, then what is kept in it.
    start(&temp, Options::default()).stop().await;
    let options = |signing_key: &str| Options {
        access: Some(Config { signing_key: signing_key.into(), ..Config::default() }),
        ..Options::default()
    };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let review = |token: &Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviews = "POST /apis/authentication.k8s.io/v1/tokenreviews";

    let kept = start(&temp, options(&Identity::of(&temp.0).unwrap().signing_key));
    kept.api.ok("POST /api/v1/namespaces/default/serviceaccounts", account).await;
    let path = "POST /api/v1/namespaces/default/serviceaccounts/robot/token";
    let token = kept.api.ok(path, request).await["status"]["token"].clone();
    kept.stop().await;

    let kept = start(&temp, options(&Identity::of(&temp.0).unwrap().signing_key));
    let known = kept.api.ok(reviews, review(&token)).await;
    assert_eq!(known["status"]["user"]["username"], "system:serviceaccount:default:robot", "{known}");
    kept.stop().await;

    let kept = start(&temp, options("another key"));
    let unknown = kept.api.ok(reviews, review(&token)).await;
    assert_ne!(unknown["status"]["authenticated"], true, "{unknown}");
    kept.stop().await;
}
