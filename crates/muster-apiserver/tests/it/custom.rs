//! CRDs created at run time: defaulting, pruning, rules, several versions, and their end.

use crate::api::Api;
use muster_apiserver::Options;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn schema(field: &str) -> Value {
    json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            field: {"type": "integer", "default": 1, "minimum": 0},
            "max": {"type": "integer"},
            "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
        },
        "x-kubernetes-validations": [{"rule": format!("!has(self.max) || self.{field} <= self.max"), "message": "too many"}],
    }}}})
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": false, "schema": schema("count")},
                {"name": "v2", "served": true, "storage": true, "schema": schema("size")},
            ],
        },
    })
}

/// `count` in v1 is `size` in v2.
fn rename(object: &mut Value, to: &str) -> Result<(), String> {
    let (old, new) = if to.ends_with("/v1") { ("size", "count") } else { ("count", "size") };
    let spec = object["spec"].as_object_mut().ok_or("no spec")?;
    if let Some(value) = spec.remove(old) {
        spec.insert(new.into(), value);
    }
    Ok(())
}

async fn api() -> Api {
    let mut options = Options::default();
    options.converters.insert("example.com".into(), rename);
    let api = Api::with(options);
    api.ok(&format!("POST {CRDS}"), crd()).await;
    let found = api.ok(&format!("GET {CRDS}/widgets.example.com"), Value::Null).await;
    let established = found["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|c| c["type"] == "Established" && c["status"] == "True");
    assert!(established, "{found}");
    api
}

fn widgets(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/widgets")
}

fn widget(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn objects_are_defaulted_pruned_and_judged() {
    let api = api().await;
    let made =
        api.ok(&format!("POST {}", widgets("v2")), widget("v2", json!({"colour": 1, "fixed": "a"}))).await;
    assert_eq!(made["spec"], json!({"size": 1, "fixed": "a"}));
    assert_eq!(made["metadata"]["generation"], 1);
    let at = format!("PATCH {}/w", widgets("v2"));
    for (patch, code, text) in [
        (json!({"spec": {"size": 5, "max": 3}}), 422, "too many"),
        (json!({"spec": {"fixed": "b"}}), 422, "fixed is immutable"),
        (json!({"spec": {"size": -1}}), 422, "greater than or equal to 0"),
        (json!({"spec": {"size": "x"}}), 422, "must be of type integer"),
        (json!({"spec": {"size": 2}}), 200, ""),
    ] {
        let (got, answer) = api.send(&at, patch.clone()).await;
        assert_eq!(got, code, "{patch}: {answer}");
        assert!(text.is_empty() || answer["message"].as_str().unwrap().contains(text), "{patch}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn versions_are_converted_on_every_path() {
    let api = api().await;
    let v1 = widgets("v1");
    let made = api.ok(&format!("POST {v1}"), widget("v1", json!({"count": 3}))).await;
    assert_eq!((made["apiVersion"].as_str(), &made["spec"]), (Some("example.com/v1"), &json!({"count": 3})));
    let other = api.ok(&format!("GET {}/w", widgets("v2")), Value::Null).await;
    assert_eq!((other["apiVersion"].as_str(), &other["spec"]), (Some("example.com/v2"), &json!({"size": 3})));
    let list = api.ok(&format!("GET {v1}"), Value::Null).await;
    assert_eq!(list["items"][0]["spec"], json!({"count": 3}));
    let patched = api.ok(&format!("PATCH {v1}/w"), json!({"spec": {"count": 4}})).await;
    assert_eq!(patched["spec"], json!({"count": 4}));
    let mut events = api.watch(&format!("{v1}?watch=1")).await;
    assert_eq!(events.next_event().await.unwrap()["object"]["spec"], json!({"count": 4}));
}

#[tokio::test(start_paused = true)]
async fn a_crd_takes_its_objects_along_and_its_watches_end() {
    let api = api().await;
    let at = widgets("v2");
    api.ok(&format!("POST {at}"), widget("v2", json!({}))).await;
    let mut events = api.watch(&format!("{at}?watch=1")).await;
    assert_eq!(events.next().await.unwrap(), "ADDED w");
    api.ok(&format!("DELETE {CRDS}/widgets.example.com"), Value::Null).await;
    api.until(&format!("GET {CRDS}/widgets.example.com"), 404).await;
    assert_eq!(events.next().await.unwrap(), "DELETED w");
    assert_eq!(events.next().await, None);
    assert_eq!(api.send(&format!("GET {at}"), Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn names_that_are_taken_are_not_served() {
    let api = api().await;
    let mut second = crd();
    second["metadata"]["name"] = "gadgets.example.com".into();
    second["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget"});
    api.ok(&format!("POST {CRDS}"), second).await;
    let found = api.ok(&format!("GET {CRDS}/gadgets.example.com"), Value::Null).await;
    let reasons: Vec<&str> = found["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["ListKindConflict", "NotAccepted"]);
    assert_eq!(api.send("GET /apis/example.com/v2/namespaces/default/gadgets", Value::Null).await.0, 404);
}

/// Which version is stored, as a patch.
fn storing(stored: &str) -> Value {
    let version = |name: &str, field: &str| json!({"name": name, "served": true, "storage": name == stored, "schema": schema(field)});
    json!({"spec": {"versions": [version("v1", "count"), version("v2", "size")]}})
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_in_the_version_it_was_stored_in_until_it_is_written() {
    let api = api().await;
    let (at, v1, v2) = (format!("{CRDS}/widgets.example.com"), widgets("v1"), widgets("v2"));
    let named = |name: &str, n: i64| {
        let mut widget = widget("v2", json!({"size": n}));
        widget["metadata"]["name"] = name.into();
        widget
    };
    let first = api.ok(&format!("POST {v2}"), named("a", 1)).await;
    api.ok(&format!("POST {v2}"), named("b", 2)).await;
    let seen = api.ok(&format!("PATCH {at}"), storing("v1")).await;
    assert_eq!(seen["status"]["storedVersions"], json!(["v2", "v1"]));
    // What is there is read in both versions as before, and nothing was written.
    for (path, field) in [(&v1, "count"), (&v2, "size")] {
        let list = api.ok(&format!("GET {path}"), Value::Null).await;
        let specs: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|i| &i["spec"]).collect();
        assert_eq!(specs, [&json!({field: 1}), &json!({field: 2})], "{path}");
        let one = api.ok(&format!("GET {path}/a"), Value::Null).await;
        assert_eq!(one["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        assert_eq!(one["spec"], json!({field: 1}));
        let from = &first["metadata"]["resourceVersion"].as_str().unwrap();
        let mut events = api.watch(&format!("{path}?watch=1&resourceVersion={from}")).await;
        let event = events.next_event().await.unwrap();
        assert_eq!(
            (&event["object"]["metadata"]["name"], &event["object"]["spec"]),
            (&json!("b"), &json!({field: 2}))
        );
    }
    // A write that changes nothing brings the object into the new version, once.
    let same = api.ok(&format!("PUT {v2}/a"), first.clone()).await;
    assert_ne!(same["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let again = api.ok(&format!("PUT {v2}/a"), same.clone()).await;
    assert_eq!(again["metadata"]["resourceVersion"], same["metadata"]["resourceVersion"]);
    // And back: objects of three times stand beside each other.
    api.ok(&format!("POST {v1}"), json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "c"}, "spec": {"count": 3}})).await;
    api.ok(&format!("PATCH {at}"), storing("v2")).await;
    api.ok(&format!("POST {v2}"), named("d", 4)).await;
    let list = api.ok(&format!("GET {v2}"), Value::Null).await;
    let sizes: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|i| &i["spec"]["size"]).collect();
    assert_eq!(sizes, [1, 2, 3, 4]);
    let patched = api.ok(&format!("PATCH {v1}/b"), json!({"spec": {"max": 9}})).await;
    assert_eq!(patched["spec"], json!({"count": 2, "max": 9}));
    // Begins to go, and goes, in whatever version it is.
    api.ok(&format!("PATCH {v2}/c"), json!({"metadata": {"finalizers": ["example.com/f"]}})).await;
    api.ok(&format!("PATCH {at}"), storing("v1")).await;
    api.ok(&format!("DELETE {v2}/c"), Value::Null).await;
    let going = api.ok(&format!("GET {v2}/c"), Value::Null).await;
    assert_eq!(going["spec"], json!({"size": 3}));
    let gone = api.ok(&format!("PATCH {v2}/c"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(gone["spec"], json!({"size": 3}));
    // A version is kept for as long as something may be stored in it.
    let only = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": schema("count")}]}});
    let (code, refused) = api.send(&format!("PATCH {at}"), only.clone()).await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("status.storedVersions[0]"), "{refused}");
    api.ok(&format!("PATCH {at}/status"), json!({"status": {"storedVersions": ["v1"]}})).await;
    api.ok(&format!("PATCH {at}"), only).await;
}
