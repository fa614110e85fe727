//! Admission and conversion webhooks, answered by a TLS server on loopback.

use crate::api::{Api, MAPS, map};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// A webhook server: where it is, and whom to trust.
struct Hooks {
    url: String,
    ca_bundle: String,
}

/// Starts a server that answers every review with what `answer` makes of its path and body.
async fn serve(answer: fn(&str, Value) -> Value) -> Hooks {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(leaf.der().to_vec())],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service =
                    hyper::service::service_fn(move |r: http::Request<hyper::body::Incoming>| async move {
                        let path = r.uri().path().to_string();
                        let body = r.into_body().collect().await.unwrap().to_bytes();
                        let review: Value = serde_json::from_slice(&body).unwrap();
                        let answer = answer(&path, review).to_string();
                        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(answer))))
                    });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Hooks { url, ca_bundle: STANDARD.encode(issuer.pem()) }
}

/// `/label` adds a label, `/no-object` and `/no-place` send patches of no use, `/deny` refuses, `/broken` answers nonsense.
fn admission(path: &str, review: Value) -> Value {
    let uid = &review["request"]["uid"];
    let patch = |patch: Value| {
        json!({
            "uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()),
            "warnings": ["looked at"],
        })
    };
    let response = match path {
        "/label" => patch(
            json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": review["request"]["operation"]}}]),
        ),
        "/no-object" => patch(json!([{"op": "replace", "path": "", "value": []}])),
        "/no-place" => patch(
            json!([{"op": "move", "from": "/data", "path": ""}, {"op": "move", "from": "/data", "path": "/metadata"}]),
        ),
        "/deny" => json!({"uid": uid, "allowed": false, "status": {"code": 422, "message": "not today"}}),
        _ => json!({}),
    };
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}

fn configuration(kind: &str, hooks: &Hooks, path: &str, extra: Value) -> Value {
    let mut webhook = json!({
        "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{}{path}", hooks.url), "caBundle": hooks.ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "DELETE"], "resources": ["configmaps"]}],
    });
    webhook.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hook"}, "webhooks": [webhook]})
}

const MUTATING: &str = "POST /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "POST /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_stored() {
    let (api, hooks) = (Api::new(), serve(admission).await);
    api.ok(MUTATING, configuration("MutatingWebhookConfiguration", &hooks, "/label", json!({}))).await;
    let made = api.ok(&format!("POST {MAPS}"), map("a")).await;
    assert_eq!(made["metadata"]["labels"], json!({"seen": "CREATE"}));
    // Other kinds and verbs are none of its business.
    let patched = api.ok(&format!("PATCH {MAPS}/a"), json!({"metadata": {"labels": {"seen": null}}})).await;
    assert_eq!(patched["metadata"].get("labels"), None);
}

#[tokio::test]
async fn a_patch_of_no_use_is_the_webhooks_fault() {
    for (path, why) in
        [("/no-object", "it leaves no object"), ("/no-place", "operation 0 of the patch does not apply")]
    {
        let (api, hooks) = (Api::new(), serve(admission).await);
        api.ok(MUTATING, configuration("MutatingWebhookConfiguration", &hooks, path, json!({}))).await;
        let (code, answer) = api.send(&format!("POST {MAPS}"), map("a")).await;
        let message =
            format!("Internal error occurred: webhook \"a.example.com\" sent an unusable patch: {why}");
        assert_eq!((code, answer["message"].as_str()), (500, Some(&*message)));
    }
}

#[tokio::test]
async fn a_validating_webhook_refuses_creation_and_deletion() {
    let (api, hooks) = (Api::new(), serve(admission).await);
    api.ok(&format!("POST {MAPS}"), map("a")).await;
    api.ok(VALIDATING, configuration("ValidatingWebhookConfiguration", &hooks, "/deny", json!({}))).await;
    let text = "admission webhook \"a.example.com\" denied the request: not today";
    for line in [format!("POST {MAPS}"), format!("DELETE {MAPS}/a")] {
        let body = if line.starts_with("POST") { map("b") } else { Value::Null };
        let (code, answer) = api.send(&line, body).await;
        assert_eq!((code, answer["message"].as_str()), (422, Some(text)), "{line}");
    }
}

#[tokio::test]
async fn selectors_decide_which_objects_a_webhook_sees() {
    let (api, hooks) = (Api::new(), serve(admission).await);
    let only = json!({"objectSelector": {"matchLabels": {"strict": "yes"}}});
    api.ok(VALIDATING, configuration("ValidatingWebhookConfiguration", &hooks, "/deny", only)).await;
    api.ok(&format!("POST {MAPS}"), map("a")).await;
    let mut strict = map("b");
    strict["metadata"]["labels"] = json!({"strict": "yes"});
    assert_eq!(api.send(&format!("POST {MAPS}"), strict).await.0, 422);
}

#[tokio::test]
async fn the_failure_policy_decides_when_a_webhook_is_broken() {
    for (policy, path, code) in [("Fail", "/broken", 500), ("Ignore", "/broken", 201)] {
        let (api, hooks) = (Api::new(), serve(admission).await);
        let config =
            configuration("ValidatingWebhookConfiguration", &hooks, path, json!({"failurePolicy": policy}));
        api.ok(VALIDATING, config).await;
        let (got, answer) = api.send(&format!("POST {MAPS}"), map("a")).await;
        assert_eq!(got, code, "{policy}: {answer}");
    }
    // Nobody listens there, and a service cannot be reached: both are failures that name the webhook.
    for client in
        [json!({"url": "https://127.0.0.1:1/x"}), json!({"service": {"namespace": "x", "name": "y"}})]
    {
        let api = Api::new();
        let hooks = Hooks { url: String::new(), ca_bundle: String::new() };
        let config =
            configuration("ValidatingWebhookConfiguration", &hooks, "/", json!({"clientConfig": client}));
        api.ok(VALIDATING, config).await;
        let (code, answer) = api.send(&format!("POST {MAPS}"), map("a")).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(code, 500, "{message}");
        assert!(message.contains("failed calling webhook \"a.example.com\""), "{message}");
    }
}

/// `spec.count` of v1 is `spec.size` of v2.
fn conversion(_: &str, review: Value) -> Value {
    let to = review["request"]["desiredAPIVersion"].clone();
    let (old, new) = if to == "example.com/v1" { ("size", "count") } else { ("count", "size") };
    let objects: Vec<Value> = review["request"]["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let mut object = object.clone();
            object["apiVersion"] = to.clone();
            let spec = object["spec"].as_object_mut().unwrap();
            if let Some(value) = spec.remove(old) {
                spec.insert(new.into(), value);
            }
            object
        })
        .collect();
    json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    })
}

/// A kind in two versions that `hooks` converts.
fn things(hooks: &Hooks, stored: &str) -> Value {
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "integer"}}}}}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("{}/convert", hooks.url), "caBundle": hooks.ca_bundle}}},
            "versions": [version("v1", "count"), version("v2", "size")],
        },
    })
}

fn thing(name: &str, version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/things";
const V2: &str = "/apis/example.com/v2/namespaces/default/things";

#[tokio::test]
async fn a_conversion_webhook_serves_both_versions() {
    let (api, hooks) = (Api::new(), serve(conversion).await);
    api.ok(&format!("POST {CRDS}"), things(&hooks, "v2")).await;
    api.ok(&format!("POST {V1}"), thing("t", "v1", json!({"count": 3}))).await;
    let other = api.ok(&format!("GET {V2}/t"), Value::Null).await;
    assert_eq!(other["spec"], json!({"size": 3}));
    let back = api.ok(&format!("GET {V1}/t"), Value::Null).await;
    assert_eq!(back["spec"], json!({"count": 3}));
}

#[tokio::test]
async fn the_stored_version_changes_even_where_the_webhook_is_down() {
    let (api, hooks) = (Api::new(), serve(conversion).await);
    api.ok(&format!("POST {CRDS}"), things(&hooks, "v1")).await;
    api.ok(&format!("POST {V1}"), thing("old", "v1", json!({"count": 3}))).await;
    // A port on which nobody answers.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let down = Hooks { url: format!("https://{nobody}"), ca_bundle: hooks.ca_bundle.clone() };
    let conversion = |hooks: &Hooks| json!({"spec": {"conversion": things(hooks, "v2")["spec"]["conversion"], "versions": things(hooks, "v2")["spec"]["versions"]}});
    let at = format!("PATCH {CRDS}/things.example.com");
    api.ok(&at, conversion(&down)).await;
    let crd = api.ok(&format!("GET {CRDS}/things.example.com"), Value::Null).await;
    assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
    // What needs no conversion is served; what does is an error about the one object.
    let old = api.ok(&format!("GET {V1}/old"), Value::Null).await;
    assert_eq!(old["spec"], json!({"count": 3}));
    let (code, answer) = api.send(&format!("GET {V2}/old"), Value::Null).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!(code, 500, "{answer}");
    assert!(message.contains("conversion webhook for example.com/v1, Kind=Thing failed: Post"), "{message}");
    api.ok(&format!("POST {V2}"), thing("new", "v2", json!({"size": 4}))).await;
    let new = api.ok(&format!("GET {V2}/new"), Value::Null).await;
    assert_eq!(new["spec"], json!({"size": 4}));
    // It goes without being converted.
    api.ok(&format!("POST {V2}"), thing("held", "v2", json!({"size": 5}))).await;
    api.ok(&format!("DELETE {V1}/old"), Value::Null).await;
    // Back to life, everything is read in both.
    api.ok(&at, conversion(&hooks)).await;
    for (path, field) in [(V1, "count"), (V2, "size")] {
        let list = api.ok(&format!("GET {path}"), Value::Null).await;
        let specs: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|i| &i["spec"]).collect();
        assert_eq!(specs, [&json!({field: 5}), &json!({field: 4})], "{path}");
    }
}

/// `/convert` converts; `/seven` makes what v1 counts seven; `/few` refuses more than nine of v1, and says what it was asked about.
fn versioned(path: &str, review: Value) -> Value {
    if path == "/convert" {
        return conversion(path, review);
    }
    let request = &review["request"];
    let uid = &request["uid"];
    let response = if path == "/seven" {
        let patch = json!([{"op": "replace", "path": "/spec/count", "value": 7}]);
        json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
    } else {
        let seen = format!(
            "{} for {}: {} was {}",
            request["kind"]["version"].as_str().unwrap(),
            request["requestKind"]["version"].as_str().unwrap(),
            request["object"]["spec"],
            request["oldObject"]["spec"],
        );
        let allowed = request["object"]["spec"]["count"].as_i64().is_some_and(|n| n < 9);
        json!({"uid": uid, "allowed": allowed, "status": {"message": seen}, "warnings": [seen]})
    };
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}

#[tokio::test]
async fn a_webhook_for_one_version_sees_requests_of_the_others() {
    let (api, hooks) = (Api::new(), serve(versioned).await);
    api.ok(&format!("POST {CRDS}"), things(&hooks, "v2")).await;
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["things"]}]);
    let exact = json!({"rules": rules, "matchPolicy": "Exact"});
    api.ok(MUTATING, configuration("MutatingWebhookConfiguration", &hooks, "/seven", exact.clone())).await;
    api.ok(VALIDATING, configuration("ValidatingWebhookConfiguration", &hooks, "/few", exact)).await;
    let other = api.ok(&format!("POST {V2}"), thing("a", "v2", json!({"size": 3}))).await;
    assert_eq!(other["spec"], json!({"size": 3}), "an exact rule is about its own version only");
    let own = api.ok(&format!("POST {V1}"), thing("b", "v1", json!({"count": 3}))).await;
    assert_eq!(own["spec"], json!({"count": 7}));

    let group = "/apis/admissionregistration.k8s.io/v1";
    api.ok(&format!("DELETE {group}/mutatingwebhookconfigurations/hook"), Value::Null).await;
    api.ok(&format!("DELETE {group}/validatingwebhookconfigurations/hook"), Value::Null).await;
    let equivalent = json!({"rules": rules});
    api.ok(MUTATING, configuration("MutatingWebhookConfiguration", &hooks, "/seven", equivalent.clone()))
        .await;
    api.ok(VALIDATING, configuration("ValidatingWebhookConfiguration", &hooks, "/few", equivalent)).await;
    let changed = api.ok(&format!("POST {V2}"), thing("c", "v2", json!({"size": 3}))).await;
    assert_eq!(changed["spec"], json!({"size": 7}), "changed in v1 and converted back");
    api.ok("DELETE /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hook", Value::Null)
        .await;
    let (code, answer) = api.send(&format!("PATCH {V2}/c"), json!({"spec": {"size": 12}})).await;
    let text =
        "admission webhook \"a.example.com\" denied the request: v1 for v2: {\"count\":12} was {\"count\":7}";
    assert_eq!((code, answer["message"].as_str()), (400, Some(text)), "{answer}");
    assert_eq!(answer.get("reason"), None, "the webhook gave none");
}
