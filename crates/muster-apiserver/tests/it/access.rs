//! RBAC: a tenant sees its namespaces and nothing else, by no verb and by no detour.

use crate::api::{Api, map, pod};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use muster_apiserver::Options;
use muster_apiserver::access::{Config, Peer, token::Tokens};
use serde_json::{Value, json};
use tower::ServiceExt;

const TOKENS: &str = "alice-token,alice,7,\"team-a\"\nbob-token,bob,8\nops-token,ops,9,\"system:masters\"\n";

/// A server that enforces access, with the namespaces `team-a` and `team-b`, and things in both.
async fn cluster() -> Api {
    cluster_with(Options::default()).await
}

pub async fn cluster_with(options: Options) -> Api {
    let tokens = Tokens::parse(TOKENS).unwrap();
    let access = Some(Config { admin_token: "root-token".into(), tokens, ..Config::default() });
    let api = Api::with(Options { access, ..options });
    for ns in ["team-a", "team-b"] {
        api.ok("POST /api/v1/namespaces", json!({"metadata": {"name": ns}})).await;
        api.ok(&format!("POST /api/v1/namespaces/{ns}/configmaps"), map("c")).await;
        api.ok(&format!("POST /api/v1/namespaces/{ns}/pods"), pod("p")).await;
        api.ok(&format!("POST /api/v1/namespaces/{ns}/secrets"), json!({"metadata": {"name": "s"}})).await;
        let deployment = json!({"metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}}});
        api.ok(&format!("POST /apis/apps/v1/namespaces/{ns}/deployments"), deployment).await;
    }
    api.ok(
        "POST /api/v1/namespaces/team-b/events",
        json!({"metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "team-b"}}),
    )
    .await;
    // Alice is the administrator of her own namespace, which is as much as a tenant ever gets.
    bind(&api, "team-a", "tenant", "ClusterRole", "admin", "alice").await;
    api
}

async fn bind(api: &Api, namespace: &str, name: &str, kind: &str, role: &str, user: &str) {
    let subject = json!({"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"});
    api.ok(
        &format!("POST /apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"),
        json!({"metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}}),
    )
    .await;
}

/// Begins an answer that goes on.
pub async fn open(api: &Api, token: &str, path: &str) -> (u16, muster_apiserver::Body) {
    let request = http::Request::get(path).header("authorization", format!("Bearer {token}"));
    let mut request = request.body(Full::new(Bytes::new())).unwrap();
    request.extensions_mut().insert(Peer::default());
    let response = api.0.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.into_body())
}

/// Sends a request as somebody from outside; the token is empty for nobody.
pub async fn send(
    api: &Api,
    token: &str,
    line: &str,
    body: &Value,
    headers: &[(&str, &str)],
) -> (u16, Value, http::HeaderMap) {
    let (method, path) = line.split_once(' ').unwrap();
    let (method, kind) = match method {
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "PATCH" => ("PATCH", "application/merge-patch+json"),
        other => (other, "application/json"),
    };
    let mut request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let mut request = request.body(Full::new(Bytes::from(bytes))).unwrap();
    request.extensions_mut().insert(Peer::default());
    let response = api.0.clone().oneshot(request).await.unwrap();
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    // An answer that goes on is not waited for: that it began is enough.
    if code == 200 && path.contains("watch") {
        return (code, Value::Null, headers);
    }
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)), headers)
}

const ALICE: &str = "alice-token";

/// What a tenant may not do in another's namespace, verb by verb: `VERB resource METHOD path body`.
fn attempts() -> Vec<(&'static str, &'static str, String, Value)> {
    let ns = "/api/v1/namespaces/team-b";
    let apps = "/apis/apps/v1/namespaces/team-b";
    let eviction = json!({"metadata": {"name": "p"}});
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let none = Value::Null;
    vec![
        ("get", "pods", format!("GET {ns}/pods/p"), none.clone()),
        ("get", "secrets", format!("GET {ns}/secrets/s"), none.clone()),
        ("list", "pods", format!("GET {ns}/pods"), none.clone()),
        ("list", "pods", format!("GET {ns}/pods?limit=1"), none.clone()),
        ("list", "pods", format!("GET {ns}/pods?labelSelector=app%3Da"), none.clone()),
        ("list", "pods", format!("GET {ns}/pods?fieldSelector=metadata.name%3Dp"), none.clone()),
        ("list", "pods", format!("GET {ns}/pods?fieldSelector=metadata.namespace%3Dteam-a"), none.clone()),
        ("list", "pods", format!("GET {ns}/pods?resourceVersion=1&resourceVersionMatch=Exact"), none.clone()),
        ("watch", "pods", format!("GET {ns}/pods?watch=1"), none.clone()),
        ("watch", "pods", format!("GET {ns}/pods?watch=0&watch=true"), none.clone()),
        ("watch", "pods", format!("GET {ns}/pods/p?watch=1"), none.clone()),
        ("watch", "pods", "GET /api/v1/watch/namespaces/team-b/pods".into(), none.clone()),
        ("watch", "pods", "GET /api/v1/watch/namespaces/team-b/pods/p".into(), none.clone()),
        ("create", "configmaps", format!("POST {ns}/configmaps"), map("mine")),
        ("create", "configmaps", format!("POST {ns}/configmaps?dryRun=All"), map("c")),
        ("update", "configmaps", format!("PUT {ns}/configmaps/c"), map("c")),
        ("patch", "configmaps", format!("PATCH {ns}/configmaps/c"), json!({"data": {"a": "b"}})),
        ("patch", "configmaps", format!("APPLY {ns}/configmaps/c?fieldManager=m&force=true"), map("c")),
        ("delete", "configmaps", format!("DELETE {ns}/configmaps/c"), none.clone()),
        ("deletecollection", "configmaps", format!("DELETE {ns}/configmaps"), none.clone()),
        ("get", "pods/log", format!("GET {ns}/pods/p/log"), none.clone()),
        ("get", "pods/status", format!("GET {ns}/pods/p/status"), none.clone()),
        ("patch", "pods/status", format!("PATCH {ns}/pods/p/status"), json!({"status": {"phase": "Failed"}})),
        ("create", "pods/exec", format!("POST {ns}/pods/p/exec?command=sh"), none.clone()),
        ("get", "pods/exec", format!("GET {ns}/pods/p/exec?command=sh"), none.clone()),
        ("create", "pods/attach", format!("POST {ns}/pods/p/attach"), none.clone()),
        ("create", "pods/portforward", format!("POST {ns}/pods/p/portforward"), none.clone()),
        ("get", "pods/proxy", format!("GET {ns}/pods/p/proxy/etc/passwd"), none.clone()),
        ("create", "pods/eviction", format!("POST {ns}/pods/p/eviction"), eviction),
        ("create", "pods/binding", format!("POST {ns}/pods/p/binding"), binding.clone()),
        ("create", "bindings", format!("POST {ns}/bindings"), binding),
        ("update", "pods/ephemeralcontainers", format!("PUT {ns}/pods/p/ephemeralcontainers"), pod("p")),
        ("patch", "pods/resize", format!("PATCH {ns}/pods/p/resize"), json!({})),
        ("get", "deployments/scale", format!("GET {apps}/deployments/d/scale"), none.clone()),
        (
            "patch",
            "deployments/scale",
            format!("PATCH {apps}/deployments/d/scale"),
            json!({"spec": {"replicas": 0}}),
        ),
        (
            "create",
            "serviceaccounts/token",
            format!("POST {ns}/serviceaccounts/default/token"),
            json!({"spec": {}}),
        ),
        ("get", "namespaces", format!("GET {ns}"), none.clone()),
        ("delete", "namespaces", format!("DELETE {ns}"), none.clone()),
        (
            "update",
            "namespaces/finalize",
            format!("PUT {ns}/finalize"),
            json!({"metadata": {"name": "team-b"}}),
        ),
        ("list", "events", format!("GET {ns}/events"), none.clone()),
        ("get", "events", format!("GET {ns}/events/e"), none.clone()),
        ("list", "events", "GET /apis/events.k8s.io/v1/namespaces/team-b/events".into(), none.clone()),
        (
            "create",
            "rolebindings",
            "POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-b/rolebindings".into(),
            json!({}),
        ),
        (
            "create",
            "localsubjectaccessreviews",
            "POST /apis/authorization.k8s.io/v1/namespaces/team-b/localsubjectaccessreviews".into(),
            json!({}),
        ),
        ("list", "things", "GET /apis/nowhere.example.com/v1/namespaces/team-b/things".into(), none),
    ]
}

#[tokio::test]
async fn a_tenant_can_do_nothing_in_another_namespace() {
    let api = cluster().await;
    let before = api.ok("GET /api/v1/namespaces/team-b/configmaps/c", Value::Null).await;
    for (verb, resource, line, body) in attempts() {
        for accept in [
            "application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/yaml",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ] {
            let (code, answer, _) = send(&api, ALICE, &line, &body, &[("accept", accept)]).await;
            assert_eq!(code, 403, "{line}: {answer}");
            assert_eq!(answer["reason"], "Forbidden", "{line}: {answer}");
            let group = if line.contains("/apis/") { line.split('/').nth(2).unwrap() } else { "" };
            let text = format!(
                "User \"alice\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"team-b\""
            );
            assert!(answer["message"].as_str().unwrap().ends_with(&text), "{line}: {answer}");
        }
    }
    assert_eq!(api.ok("GET /api/v1/namespaces/team-b/configmaps/c", Value::Null).await, before);
}

#[tokio::test]
async fn what_exists_and_what_does_not_are_refused_alike() {
    let api = cluster().await;
    for (_, _, line, body) in attempts() {
        let (_, there, there_headers) = send(&api, ALICE, &line, &body, &[]).await;
        // The same in a namespace that nobody made, of objects that nobody made.
        let absent = line.replace("team-b", "team-z").replace("pods/p", "pods/q");
        let (_, gone, gone_headers) = send(&api, ALICE, &absent, &body, &[]).await;
        let plain = |v: &Value| {
            v.to_string()
                .replace("team-b", "team-z")
                .replace("\\\"p\\\"", "\\\"q\\\"")
                .replace("\"p\"", "\"q\"")
        };
        assert_eq!(plain(&there), plain(&gone), "{line}");
        let names = |h: &http::HeaderMap| h.keys().map(|k| k.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&there_headers), names(&gone_headers));
    }
}

#[tokio::test]
async fn nothing_is_seen_across_namespaces() {
    let api = cluster().await;
    let cluster_wide = [
        "GET /api/v1/pods",
        "GET /api/v1/secrets",
        "GET /api/v1/events",
        "GET /api/v1/namespaces",
        "GET /api/v1/nodes",
        "GET /api/v1/pods?labelSelector=app%3Da",
        "GET /api/v1/pods?fieldSelector=metadata.namespace%3Dteam-a",
        "GET /api/v1/pods?fieldSelector=metadata.namespace%3Dteam-b",
        "GET /api/v1/pods?fieldSelector=metadata.name%3Dp",
        "GET /api/v1/pods?watch=1",
        "GET /api/v1/watch/pods",
        "GET /apis/apps/v1/deployments",
        "GET /api/v1/namespaces?labelSelector=kubernetes.io/metadata.name%3Dteam-b",
        "GET /api/v1/namespaces?fieldSelector=metadata.name%3Dteam-a&watch=1",
        "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "GET /metrics",
        "GET /",
        "GET /apis/rbac.authorization.k8s.io/v1/clusterroles",
        "GET /apis/rbac.authorization.k8s.io/v1/rolebindings",
    ];
    for line in cluster_wide {
        let (code, answer, _) = send(&api, ALICE, line, &Value::Null, &[]).await;
        assert_eq!(code, 403, "{line}: {answer}");
    }
    // A page token names a place in the whole table; the namespace of the path still holds.
    for ns in ["team-b", "team-a"] {
        let token = base64::Engine::encode(
            &base64::engine::general_purpose::URL_SAFE_NO_PAD,
            json!({"v": "meta.k8s.io/v1", "rv": -1, "ns": ns, "name": "a"}).to_string(),
        );
        let line = format!("GET /api/v1/namespaces/team-a/configmaps?limit=9&continue={token}");
        let (code, answer, _) = send(&api, ALICE, &line, &Value::Null, &[]).await;
        assert_eq!(code, 200, "{answer}");
        for item in answer["items"].as_array().unwrap() {
            assert_eq!(item["metadata"]["namespace"], "team-a");
        }
    }
    // A body cannot say another namespace than the path.
    let mut elsewhere = map("x");
    elsewhere["metadata"]["namespace"] = "team-b".into();
    let (code, _, _) = send(&api, ALICE, "POST /api/v1/namespaces/team-a/configmaps", &elsewhere, &[]).await;
    assert_eq!(code, 400);
    // Oddly written paths name the same thing to the question and to the answer.
    for path in [
        "//api/v1//namespaces/team-b/pods",
        "/api/v1/namespaces/team-b/pods/",
        "/api/v1/namespaces/%74eam-b/pods",
        "/api/v1/./namespaces/team-b/pods",
        "/api/v1/namespaces/team-a/../team-b/pods",
        "/api/v1/namespaces/team-a%2F..%2Fteam-b/pods",
    ] {
        let (code, answer, _) = send(&api, ALICE, &format!("GET {path}"), &Value::Null, &[]).await;
        assert!(code == 403 || code == 404, "{path}: {code} {answer}");
    }
}

#[tokio::test]
async fn an_owner_in_another_namespace_tells_nothing() {
    let api = cluster().await;
    let theirs = api.ok("GET /api/v1/namespaces/team-b/pods/p", Value::Null).await;
    // Two objects whose owners are said to be pods: one of another namespace, one that never was. Both go the same way.
    for (name, uid) in [
        ("guess-right", theirs["metadata"]["uid"].as_str().unwrap()),
        ("guess-wrong", "00000000-0000-4000-8000-000000000000"),
    ] {
        let mut object = map(name);
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]);
        let (code, answer, _) =
            send(&api, ALICE, "POST /api/v1/namespaces/team-a/configmaps", &object, &[]).await;
        assert_eq!(code, 201, "{answer}");
    }
    for name in ["guess-right", "guess-wrong"] {
        api.until(&format!("GET /api/v1/namespaces/team-a/configmaps/{name}"), 404).await;
    }
}

#[tokio::test]
async fn a_tenant_is_at_home_in_its_own_namespace() {
    let api = cluster().await;
    let ns = "/api/v1/namespaces/team-a";
    for (line, body, expected) in [
        (format!("GET {ns}/pods"), Value::Null, 200),
        (format!("GET {ns}/pods/p"), Value::Null, 200),
        (format!("GET {ns}/pods/nope"), Value::Null, 404),
        (format!("GET {ns}/pods?watch=1&timeoutSeconds=1"), Value::Null, 200),
        (format!("GET {ns}"), Value::Null, 200),
        (format!("POST {ns}/configmaps"), map("new"), 201),
        (format!("APPLY {ns}/configmaps/applied?fieldManager=m"), map("applied"), 201),
        (format!("PATCH {ns}/configmaps/new"), json!({"data": {"x": "y"}}), 200),
        (format!("DELETE {ns}/configmaps/new"), Value::Null, 200),
        (format!("GET {ns}/pods/p/log"), Value::Null, 200),
        (format!("POST {ns}/pods/p/eviction"), json!({"metadata": {"name": "p"}}), 201),
        ("GET /apis".into(), Value::Null, 200),
        ("GET /api/v1".into(), Value::Null, 200),
        ("GET /openapi/v3".into(), Value::Null, 200),
        ("GET /version".into(), Value::Null, 200),
    ] {
        let (code, answer, _) = send(&api, ALICE, &line, &body, &[]).await;
        assert_eq!(code, expected, "{line}: {answer}");
    }
}

#[tokio::test]
async fn who_somebody_is() {
    let api = cluster().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let line = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
    let whoami = async |token: &str, headers: &[(&str, &str)]| {
        let (code, answer, _) = send(&api, token, line, &review, headers).await;
        if code == 201 { answer["status"]["userInfo"].clone() } else { json!([code, answer["message"]]) }
    };
    assert_eq!(
        whoami(ALICE, &[]).await,
        json!({"username": "alice", "uid": "7", "groups": ["team-a", "system:authenticated"]})
    );
    assert_eq!(
        whoami("root-token", &[]).await,
        json!({"username": "muster-admin", "groups": ["system:masters", "system:authenticated"]})
    );
    assert_eq!(whoami("nonsense", &[]).await, json!([401, "Unauthorized"]));
    let text = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:anonymous\" cannot create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope";
    assert_eq!(whoami("", &[]).await, json!([403, text]));
    // Acting as somebody else.
    assert_eq!(
        whoami(
            "root-token",
            &[
                ("impersonate-user", "carol"),
                ("impersonate-group", "g1"),
                ("impersonate-uid", "77"),
                ("impersonate-extra-scopes", "s1")
            ]
        )
        .await,
        json!({"username": "carol", "uid": "77", "groups": ["g1", "system:authenticated"], "extra": {"scopes": ["s1"]}})
    );
    assert_eq!(
        whoami("root-token", &[("impersonate-user", "system:serviceaccount:team-a:sa")]).await,
        json!({"username": "system:serviceaccount:team-a:sa", "groups": ["system:serviceaccounts", "system:serviceaccounts:team-a", "system:authenticated"]})
    );
    assert_eq!(
        whoami(ALICE, &[("impersonate-user", "ops")]).await,
        json!([
            403,
            "users \"ops\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
        ])
    );
    assert_eq!(
        whoami(ALICE, &[("impersonate-user", "system:serviceaccount:team-b:x")]).await,
        json!([
            403,
            "serviceaccounts \"x\" is forbidden: User \"alice\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"team-b\""
        ])
    );
    // As a group alone nobody can act, and nobody becomes a master by asking.
    assert_eq!(whoami("root-token", &[("impersonate-group", "g1")]).await[0], 400);
    assert_eq!(
        whoami(
            ALICE,
            &[
                ("impersonate-user", "system:serviceaccount:team-a:x"),
                ("impersonate-group", "system:masters")
            ]
        )
        .await[0],
        403
    );
    // Health and version are for everybody.
    for (path, code) in
        [("/healthz", 200), ("/version", 200), ("/api", 403), ("/api/v1/namespaces/team-a/pods", 403)]
    {
        assert_eq!(send(&api, "", &format!("GET {path}"), &Value::Null, &[]).await.0, code, "{path}");
    }
}

#[tokio::test]
async fn tokens_of_service_accounts() {
    let api = cluster().await;
    let accounts = "/api/v1/namespaces/team-a/serviceaccounts";
    api.ok(&format!("POST {accounts}"), json!({"metadata": {"name": "robot"}})).await;
    let subject = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "team-a"});
    api.ok(
        "POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings",
        json!({"metadata": {"name": "robot"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}),
    )
    .await;
    let (code, answer, _) =
        send(&api, ALICE, &format!("POST {accounts}/robot/token"), &json!({"spec": {}}), &[]).await;
    assert_eq!(code, 201, "{answer}");
    let token = answer["status"]["token"].as_str().unwrap().to_string();
    assert_eq!(token.split('.').count(), 3);
    let read = async |token: &str, ns: &str| {
        send(&api, token, &format!("GET /api/v1/namespaces/{ns}/pods"), &Value::Null, &[]).await.0
    };
    assert_eq!((read(&token, "team-a").await, read(&token, "team-b").await), (200, 403));
    let reviewed = async |token: &str| {
        let line = "POST /apis/authentication.k8s.io/v1/tokenreviews";
        send(&api, "root-token", line, &json!({"spec": {"token": token}}), &[]).await.1["status"].clone()
    };
    let status = reviewed(&token).await;
    assert_eq!(
        (&status["authenticated"], &status["user"]["username"]),
        (&json!(true), &json!("system:serviceaccount:team-a:robot"))
    );
    assert_eq!(reviewed("nonsense").await, json!({"user": {}, "error": "invalid bearer token"}));
    // A token for somebody else's ears opens nothing here.
    let other = json!({"spec": {"audiences": ["vault"]}});
    let (_, answer, _) = send(&api, ALICE, &format!("POST {accounts}/robot/token"), &other, &[]).await;
    assert_eq!(read(answer["status"]["token"].as_str().unwrap(), "team-a").await, 401);
    // One that is bound to a pod ends with it, and all end with the account.
    let bound = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let (_, answer, _) = send(&api, ALICE, &format!("POST {accounts}/robot/token"), &bound, &[]).await;
    let bound = answer["status"]["token"].as_str().unwrap().to_string();
    assert_eq!(read(&bound, "team-a").await, 200);
    api.ok("DELETE /api/v1/namespaces/team-a/pods/p?gracePeriodSeconds=0", Value::Null).await;
    assert_eq!((read(&bound, "team-a").await, read(&token, "team-a").await), (401, 200));
    api.ok(&format!("DELETE {accounts}/robot"), Value::Null).await;
    api.ok(&format!("POST {accounts}"), json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(read(&token, "team-a").await, 401);
}

#[tokio::test]
async fn rights_count_from_the_next_request_on() {
    let api = cluster().await;
    let read = async || {
        send(&api, "bob-token", "GET /api/v1/namespaces/team-a/configmaps/c", &Value::Null, &[]).await.0
    };
    assert_eq!(read().await, 403);
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles";
    let role = |names: Value| json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get"]}]});
    api.ok(&format!("POST {roles}"), role(json!(["c"]))).await;
    bind(&api, "team-a", "bob", "Role", "r", "bob").await;
    assert_eq!(read().await, 200);
    api.ok(&format!("PUT {roles}/r"), role(json!(["other"]))).await;
    assert_eq!(read().await, 403);
    api.ok(&format!("PUT {roles}/r"), role(json!(["c"]))).await;
    assert_eq!(read().await, 200);
    api.ok("DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings/bob", Value::Null).await;
    assert_eq!(read().await, 403);
    // A ClusterRole for a new kind joins `view` by its label, at once.
    bind(&api, "team-a", "bob-views", "ClusterRole", "view", "bob").await;
    let look = async || {
        send(&api, "bob-token", "GET /apis/example.com/v1/namespaces/team-a/things", &Value::Null, &[])
            .await
            .0
    };
    assert_eq!(look().await, 403);
    let cluster_roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    api.ok(
        &format!("POST {cluster_roles}"),
        json!({"metadata": {"name": "things", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["list"]}]}),
    )
    .await;
    // Allowed, though there is no such kind.
    assert_eq!(look().await, 404);
    let admin = api.ok(&format!("GET {cluster_roles}/admin"), Value::Null).await;
    assert!(admin["rules"].as_array().unwrap().iter().any(|r| r["apiGroups"] == json!(["example.com"])));
    api.ok(&format!("DELETE {cluster_roles}/things"), Value::Null).await;
    assert_eq!(look().await, 403);
}

#[tokio::test]
async fn nobody_hands_out_what_they_do_not_have() {
    let api = cluster().await;
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let roles = format!("POST {group}/namespaces/team-a/roles");
    let role = |name: &str, resource: &str, verbs: &[&str]| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]});
    // What `admin` holds can be handed on.
    assert_eq!(send(&api, ALICE, &roles, &role("fine", "pods", &["get", "delete"]), &[]).await.0, 201);
    let (code, answer, _) = send(&api, ALICE, &roles, &role("more", "nodes", &["get", "list"]), &[]).await;
    let text = "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"alice\" (groups=[\"team-a\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}";
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, text));
    // Nor by changing a role, nor by applying one.
    let wider = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    assert_eq!(
        send(&api, ALICE, &format!("PATCH {group}/namespaces/team-a/roles/fine"), &wider, &[]).await.0,
        403
    );
    let mut applied = role("applied", "nodes", &["get"]);
    applied["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    applied["kind"] = "Role".into();
    assert_eq!(
        send(
            &api,
            ALICE,
            &format!("APPLY {group}/namespaces/team-a/roles/applied?fieldManager=m"),
            &applied,
            &[]
        )
        .await
        .0,
        403
    );
    // Nor by binding a role that holds more.
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
    };
    let bindings = format!("POST {group}/namespaces/team-a/rolebindings");
    for (name, kind, role, expected) in [
        ("a", "ClusterRole", "cluster-admin", 403),
        ("b", "ClusterRole", "view", 201),
        ("c", "Role", "fine", 201),
        ("d", "Role", "nowhere", 404),
    ] {
        let (code, answer, _) = send(&api, ALICE, &bindings, &binding(name, kind, role), &[]).await;
        assert_eq!(code, expected, "{role}: {answer}");
    }
    // The right to bind one role, by name, is enough for that role.
    api.ok(&roles, json!({"metadata": {"name": "binder"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["cluster-admin"], "verbs": ["bind"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": ["wide"], "verbs": ["escalate"]}]})).await;
    bind(&api, "team-a", "binder", "Role", "binder", "alice").await;
    assert_eq!(send(&api, ALICE, &bindings, &binding("e", "ClusterRole", "cluster-admin"), &[]).await.0, 201);
    assert_eq!(send(&api, ALICE, &roles, &role("wide", "nodes", &["get"]), &[]).await.0, 201);
    // A role that gathers others could come to hold anything.
    api.ok(&format!("POST {group}/clusterroles"), json!({"metadata": {"name": "roler"}, "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]}]})).await;
    api.ok(&format!("POST {group}/clusterrolebindings"), binding("roler", "ClusterRole", "roler")).await;
    let gathers = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}, "rules": []});
    let (code, answer, _) =
        send(&api, "bob-token", &format!("POST {group}/clusterroles"), &gathers, &[]).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "clusterroles.rbac.authorization.k8s.io \"all\" is forbidden: must have cluster-admin privileges to use the aggregationRule"
        )
    );
    // Finalizers and owners may be changed by whoever may change the role.
    bind(&api, "team-a", "bob-e", "ClusterRole", "cluster-admin", "ops").await;
    assert_eq!(
        send(
            &api,
            ALICE,
            &format!("PATCH {group}/namespaces/team-a/rolebindings/bob-e"),
            &json!({"metadata": {"finalizers": []}}),
            &[]
        )
        .await
        .0,
        200
    );
}

#[tokio::test]
async fn writing_what_is_not_there_is_creating_it() {
    let api = cluster().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles";
    api.ok(&format!("POST {roles}"), json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": ["patch", "update", "get"]}]})).await;
    bind(&api, "team-a", "bob", "Role", "r", "bob").await;
    let text = "configmaps \"new\" is forbidden: User \"bob\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"team-a\"";
    let (code, answer, _) = send(
        &api,
        "bob-token",
        "APPLY /api/v1/namespaces/team-a/configmaps/new?fieldManager=m",
        &map("new"),
        &[],
    )
    .await;
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, text));
    assert_eq!(
        send(
            &api,
            "bob-token",
            "APPLY /api/v1/namespaces/team-a/configmaps/c?fieldManager=m&force=true",
            &map("c"),
            &[]
        )
        .await
        .0,
        200
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    assert_eq!(
        send(&api, "bob-token", "PUT /apis/coordination.k8s.io/v1/namespaces/team-a/leases/l", &lease, &[])
            .await
            .0,
        403
    );
}

#[tokio::test]
async fn whoever_may_ask_is_told() {
    let api = cluster().await;
    let ask = async |token: &str, kind: &str, spec: Value| {
        let path = match kind {
            "localsubjectaccessreviews" => {
                "/apis/authorization.k8s.io/v1/namespaces/team-a/localsubjectaccessreviews".to_string()
            }
            kind => format!("/apis/authorization.k8s.io/v1/{kind}"),
        };
        let (code, answer, _) =
            send(&api, token, &format!("POST {path}"), &json!({"metadata": {}, "spec": spec}), &[]).await;
        if code == 201 { answer["status"].clone() } else { json!([code, answer["message"]]) }
    };
    let pods = |ns: &str| json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": ns}});
    let own = "selfsubjectaccessreviews";
    assert_eq!(
        ask(ALICE, own, pods("team-a")).await,
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"tenant/team-a\" of ClusterRole \"admin\" to User \"alice\""})
    );
    assert_eq!(ask(ALICE, own, pods("team-b")).await, json!({"allowed": false}));
    assert_eq!(ask("root-token", own, pods("team-b")).await, json!({"allowed": true}));
    assert_eq!(
        ask(ALICE, own, json!({"nonResourceAttributes": {"verb": "get", "path": "/api"}})).await["allowed"],
        true
    );
    assert_eq!(
        ask(ALICE, own, json!({})).await,
        json!([
            422,
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        ])
    );
    let of = |user: &str, ns: &str| json!({"user": user, "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": ns}});
    // About others only whoever may know; in one's own namespace, about that namespace.
    assert_eq!(ask(ALICE, "subjectaccessreviews", of("bob", "team-a")).await[0], 403);
    assert_eq!(ask("root-token", "subjectaccessreviews", of("alice", "team-a")).await["allowed"], true);
    assert_eq!(ask("root-token", "subjectaccessreviews", of("alice", "team-b")).await["allowed"], false);
    assert_eq!(
        ask("root-token", "subjectaccessreviews", pods("team-a")).await[1],
        ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified"
    );
    assert_eq!(ask(ALICE, "localsubjectaccessreviews", of("bob", "team-a")).await, json!({"allowed": false}));
    assert_eq!(
        ask(ALICE, "localsubjectaccessreviews", of("alice", "team-b")).await[1],
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"team-b\": must match metadata.namespace"
    );
    let rules = ask(ALICE, "selfsubjectrulesreviews", json!({"namespace": "team-b"})).await;
    let resources: Vec<&str> = rules["resourceRules"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|r| r["resources"].as_array().unwrap())
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(resources, ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"]);
    let rules = ask(ALICE, "selfsubjectrulesreviews", json!({"namespace": "team-a"})).await;
    assert!(rules["resourceRules"].as_array().unwrap().len() > 20 && rules["incomplete"] == false);
    assert_eq!(
        ask(ALICE, "selfsubjectrulesreviews", json!({})).await,
        json!([400, "no namespace on request"])
    );
}

#[tokio::test]
async fn without_it_everything_is_as_before() {
    let api = Api::new();
    for token in ["", "whatever"] {
        let (code, _, _) =
            send(&api, token, "GET /api/v1/nodes", &Value::Null, &[("impersonate-user", "x")]).await;
        assert_eq!(code, 200);
    }
    assert_eq!(
        api.ok("GET /apis/rbac.authorization.k8s.io/v1/clusterroles", Value::Null).await["items"],
        json!([])
    );
}
