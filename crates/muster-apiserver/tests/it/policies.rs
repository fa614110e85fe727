//! ValidatingAdmissionPolicy: what is refused, warned of and let through, in the words of kube-apiserver 1.36.3.

use crate::api::{Api, map};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn policy(name: &str, resource: &str, spec: Value) -> Value {
    let mut whole = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}]},
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": whole})
}

async fn bind(api: &Api, policy: &str, spec: Value) {
    let mut whole = json!({"policyName": policy, "validationActions": ["Deny"]});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let binding = json!({"metadata": {"name": format!("{policy}-b")}, "spec": whole});
    api.ok(&format!("POST {GROUP}/validatingadmissionpolicybindings"), binding).await;
}

async fn put(api: &Api, policy: Value) {
    api.ok(&format!("POST {GROUP}/validatingadmissionpolicies"), policy).await;
}

async fn cluster() -> Api {
    let api = Api::new();
    for (name, labels) in [("team-a", json!({})), ("team-b", json!({"env": "prod"}))] {
        api.ok("POST /api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}})).await;
    }
    api
}

fn with(name: &str, keys: &[&str]) -> Value {
    let data: serde_json::Map<String, Value> = keys.iter().map(|k| ((*k).to_string(), json!("v"))).collect();
    json!({"metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn a_policy_with_parameters_and_variables() {
    let api = cluster().await;
    put(&api, policy("limit", "configmaps", json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "n", "expression": "has(object.data) ? size(object.data) : 0"}],
        "matchConditions": [{"name": "written", "expression": "request.operation != 'DELETE'"}],
        "validations": [
            {"expression": "variables.n <= int(params.data.max)", "messageExpression": "\"has \" + string(variables.n) + \" keys, \" + params.data.max + \" allowed\""},
            {"expression": "object.metadata.name != \"bad\""},
            {"expression": "object.metadata.name != \"bad2\"", "message": "bad2 is bad", "reason": "Forbidden"},
        ],
    }))).await;
    bind(
        &api,
        "limit",
        json!({
            "paramRef": {"name": "param", "namespace": "default", "parameterNotFoundAction": "Deny"},
            "matchResources": {"namespaceSelector": {"matchLabels": {"env": "prod"}}},
        }),
    )
    .await;
    let maps = "/api/v1/namespaces/team-b/configmaps";
    let head = "ValidatingAdmissionPolicy 'limit' with binding 'limit-b' denied request:";
    let check = async |line: String, body: Value, expected: (u16, &str)| {
        let (code, answer) = api.send(&line, body).await;
        let message = answer["message"].as_str().unwrap_or_default();
        let text = if expected.1.is_empty() { String::new() } else { format!("{head} {}", expected.1) };
        let found = message.split_once(" is forbidden: ").map_or("", |(_, text)| text);
        assert_eq!((code, found), (expected.0, text.as_str()), "{line}: {answer}");
        if !text.is_empty() {
            assert_eq!(answer["details"]["causes"], json!([{"message": text}]));
            assert_eq!(answer["reason"], if code == 403 { "Forbidden" } else { "Invalid" });
        }
    };
    let post = || format!("POST {maps}");
    check(post(), with("wa", &["a"]), (422, "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")).await;
    api.ok(
        "POST /api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "param"}, "data": {"max": "1"}}),
    )
    .await;
    check(post(), with("wa", &["a"]), (201, "")).await;
    check(post(), with("wb", &["a", "b"]), (422, "has 2 keys, 1 allowed")).await;
    check(post(), with("bad", &["a"]), (422, "failed expression: object.metadata.name != \"bad\"")).await;
    check(post(), with("bad", &["a", "b"]), (422, "has 2 keys, 1 allowed")).await;
    check(post(), with("bad2", &["a"]), (403, "bad2 is bad")).await;
    check(format!("PATCH {maps}/wa"), json!({"data": {"c": "3"}}), (422, "has 2 keys, 1 allowed")).await;
    // Elsewhere, for other kinds and for what its conditions leave out, it says nothing.
    check("POST /api/v1/namespaces/team-a/configmaps".into(), with("bad", &["a", "b"]), (201, "")).await;
    check("POST /api/v1/namespaces/team-b/secrets".into(), json!({"metadata": {"name": "bad"}}), (201, ""))
        .await;
    check(format!("DELETE {maps}/wa"), Value::Null, (200, "")).await;
    // A changed parameter, and a policy that is gone, count at once.
    api.ok("PATCH /api/v1/namespaces/default/configmaps/param", json!({"data": {"max": "5"}})).await;
    check(post(), with("wb", &["a", "b"]), (201, "")).await;
    api.ok(&format!("DELETE {GROUP}/validatingadmissionpolicies/limit"), Value::Null).await;
    check(post(), with("bad", &["a"]), (201, "")).await;
}

#[tokio::test]
async fn what_cannot_be_said_is_decided_by_the_failure_policy() {
    for (failure, code, text) in [
        (
            "Fail",
            422,
            "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'broken' with binding 'broken-b' denied request: expression 'object.nope.x == 1' resulted in error: no such key: nope",
        ),
        ("Ignore", 201, ""),
    ] {
        let api = cluster().await;
        put(
            &api,
            policy(
                "broken",
                "secrets",
                json!({"failurePolicy": failure, "validations": [{"expression": "object.nope.x == 1"}]}),
            ),
        )
        .await;
        bind(&api, "broken", json!({})).await;
        let (got, answer) =
            api.send("POST /api/v1/namespaces/team-a/secrets", json!({"metadata": {"name": "s"}})).await;
        assert_eq!((got, answer["message"].as_str().unwrap_or_default()), (code, text));
    }
}

#[tokio::test]
async fn deletion_status_and_selectors() {
    let api = cluster().await;
    put(&api, policy("keep", "configmaps", json!({"validations": [
        {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "message": "keep it"},
        {"expression": "object == null || namespaceObject.metadata.name != 'team-b' || !has(object.data)"}]}))).await;
    bind(&api, "keep", json!({"matchResources": {"objectSelector": {"matchLabels": {"strict": "yes"}}}}))
        .await;
    let maps = "/api/v1/namespaces/team-a/configmaps";
    let mut kept = map("kept");
    api.ok(&format!("POST {maps}"), kept.clone()).await;
    api.ok(&format!("DELETE {maps}/kept"), Value::Null).await;
    kept["metadata"]["labels"] = json!({"strict": "yes"});
    api.ok(&format!("POST {maps}"), kept.clone()).await;
    let (code, answer) = api.send(&format!("DELETE {maps}/kept"), Value::Null).await;
    assert_eq!(code, 422, "{answer}");
    assert!(answer["message"].as_str().unwrap().ends_with("denied request: keep it"));
    assert_eq!(api.send("POST /api/v1/namespaces/team-b/configmaps", kept).await.0, 422);
    // Writes of a status are judged, too, where a policy asks for them.
    let pod = crate::api::pod("p");
    api.ok("POST /api/v1/namespaces/team-a/pods", pod).await;
    put(
        &api,
        policy(
            "phase",
            "pods/status",
            json!({"validations": [{"expression": "object.status.phase != 'Failed'"}]}),
        ),
    )
    .await;
    bind(&api, "phase", json!({})).await;
    let patch = |phase: &str| json!({"status": {"phase": phase}});
    assert_eq!(api.send("PATCH /api/v1/namespaces/team-a/pods/p/status", patch("Failed")).await.0, 422);
    assert_eq!(api.send("PATCH /api/v1/namespaces/team-a/pods/p/status", patch("Running")).await.0, 200);
}

#[tokio::test]
async fn parameters_by_selector() {
    let api = cluster().await;
    for (name, word) in [("one", "a"), ("two", "b")] {
        let mut param = map(name);
        param["metadata"]["labels"] = json!({"param": "yes"});
        param["data"] = json!({"word": word});
        api.ok("POST /api/v1/namespaces/team-a/configmaps", param).await;
    }
    put(
        &api,
        policy(
            "words",
            "secrets",
            json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.metadata.name != params.data.word"}]}),
        ),
    )
    .await;
    bind(&api, "words", json!({"paramRef": {"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Allow"}})).await;
    for (ns, name, code) in
        [("team-a", "a", 422), ("team-a", "b", 422), ("team-a", "c", 201), ("team-b", "a", 201)]
    {
        let (got, answer) = api
            .send(&format!("POST /api/v1/namespaces/{ns}/secrets"), json!({"metadata": {"name": name}}))
            .await;
        assert_eq!(got, code, "{ns} {name}: {answer}");
    }
}

#[tokio::test]
async fn a_policy_that_makes_no_sense_is_refused() {
    let api = Api::new();
    let check = async |spec: Value, expected: &str| {
        let body = if spec == json!({}) {
            json!({"metadata": {"name": "x"}, "spec": {}})
        } else {
            policy("x", "secrets", spec)
        };
        let (code, answer) = api.send(&format!("POST {GROUP}/validatingadmissionpolicies"), body).await;
        let text =
            format!("ValidatingAdmissionPolicy.admissionregistration.k8s.io \"x\" is invalid: {expected}");
        assert_eq!((code, answer["message"].as_str().unwrap_or_default()), (422, text.as_str()), "{answer}");
    };
    check(json!({}), "[spec.matchConstraints: Required value, spec.validations: Required value: validations or auditAnnotations must contain at least one item, spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]").await;
    check(
        json!({"validations": [{"expression": "nosuch == 1"}, {"expression": "1 + 1"}]}),
        "[spec.validations[0].expression: Invalid value: \"nosuch == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nosuch' (in container '')\n | nosuch == 1\n | ^, spec.validations[1].expression: Invalid value: \"1 + 1\": must evaluate to bool but got int]",
    )
    .await;
    check(
        json!({"validations": [{"expression": "object.nope.x =="}]}),
        "spec.validations[0].expression: Invalid value: \"object.nope.x ==\": compilation failed: ERROR: <input>:1:17: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | object.nope.x ==\n | ................^",
    )
    .await;
    let binding = json!({"metadata": {"name": "x"}, "spec": {"policyName": "p", "validationActions": ["Deny", "Warn"]}});
    assert_eq!(api.send(&format!("POST {GROUP}/validatingadmissionpolicybindings"), binding).await.0, 422);
}

#[tokio::test]
async fn a_policy_for_one_version_judges_requests_of_the_others() {
    let api = cluster().await;
    let of_v1 = |policy: Value| {
        json!({"matchConstraints": {"matchPolicy": policy, "resourceRules": [{
            "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["horizontalpodautoscalers"]}]},
            "validations": [{"expression": "object.spec.targetCPUUtilizationPercentage < 90", "messageExpression": "request.kind.version + ' for ' + request.requestKind.version"}]})
    };
    let scaler = |name: &str, percent: i64| {
        json!({"metadata": {"name": name}, "spec": {
            "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}],
        }})
    };
    let post = "POST /apis/autoscaling/v2/namespaces/team-a/horizontalpodautoscalers";
    put(&api, policy("cpu", "pods", of_v1(json!("Exact")))).await;
    bind(&api, "cpu", json!({})).await;
    api.ok(post, scaler("a", 95)).await;
    let at = format!("{GROUP}/validatingadmissionpolicies/cpu");
    api.ok(&format!("PATCH {at}"), json!({"spec": {"matchConstraints": {"matchPolicy": "Equivalent"}}}))
        .await;
    api.ok(post, scaler("b", 80)).await;
    let (code, answer) = api.send(post, scaler("c", 95)).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!(code, 422, "{answer}");
    assert!(message.ends_with("'cpu' with binding 'cpu-b' denied request: v1 for v2"), "{message}");
}
