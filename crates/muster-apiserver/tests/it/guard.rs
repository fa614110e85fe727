//! The audit log and the turns that users take.

use crate::access::{cluster_with, send};
use crate::api::map;
use muster_apiserver::Options;
use muster_apiserver::audit::{Log, Policy};
use muster_apiserver::fair::Limits;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A folder of this test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("muster-audit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn log(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }

    /// Events so far, once there are so many.
    async fn events(&self, wanted: usize) -> Vec<Value> {
        for _ in 0..500 {
            let text = std::fs::read_to_string(self.log()).unwrap_or_default();
            let events: Vec<Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
            if events.len() >= wanted {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{}", std::fs::read_to_string(self.log()).unwrap_or_default());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn audit(folder: &Folder, policy: Policy) -> Options {
    Options {
        audit: Some(Arc::new(Log::open(&folder.log(), policy, 100 << 20).unwrap())),
        ..Options::default()
    }
}

fn short(event: &Value) -> String {
    let text = |at: &str| event.pointer(at).map(|v| v.to_string().replace('"', "")).unwrap_or_default();
    format!(
        "{} {} {} {} {} {}",
        text("/stage"),
        text("/user/username"),
        text("/verb"),
        text("/requestURI"),
        text("/responseStatus/code"),
        text("/annotations/authorization.k8s.io~1decision")
    )
}

#[tokio::test]
async fn requests_are_written_down() {
    let folder = Folder::new("metadata");
    let api = cluster_with(audit(&folder, Policy::metadata())).await;
    send(&api, "alice-token", "GET /api/v1/namespaces/team-a/pods/p", &Value::Null, &[]).await;
    let (_, _, headers) =
        send(&api, "alice-token", "GET /api/v1/namespaces/team-b/pods/p", &Value::Null, &[]).await;
    send(&api, "nonsense", "GET /api", &Value::Null, &[]).await;
    send(&api, "alice-token", "POST /api/v1/namespaces/team-a/configmaps", &map("new"), &[]).await;
    send(
        &api,
        "root-token",
        "GET /api/v1/namespaces/team-a/configmaps",
        &Value::Null,
        &[("impersonate-user", "alice")],
    )
    .await;
    // A watch is told when it begins, and again when it ends: here at once, since nobody reads it.
    send(&api, "alice-token", "GET /api/v1/namespaces/team-a/pods?watch=1", &Value::Null, &[]).await;
    let events = folder.events(7).await;
    assert_eq!(
        events.iter().map(short).collect::<Vec<_>>(),
        [
            "ResponseComplete alice get /api/v1/namespaces/team-a/pods/p 200 allow",
            "ResponseComplete alice get /api/v1/namespaces/team-b/pods/p 403 forbid",
            "ResponseComplete  get /api 401 ",
            "ResponseComplete alice create /api/v1/namespaces/team-a/configmaps 201 allow",
            "ResponseComplete muster-admin list /api/v1/namespaces/team-a/configmaps 200 allow",
            "RequestReceived alice watch /api/v1/namespaces/team-a/pods?watch=1  ",
            "ResponseComplete alice watch /api/v1/namespaces/team-a/pods?watch=1 200 allow",
        ]
    );
    assert_eq!(events[1]["auditID"], headers["audit-id"].to_str().unwrap());
    assert_eq!(events[1]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(
        events[3]["objectRef"],
        json!({"resource": "configmaps", "namespace": "team-a", "name": "new", "apiVersion": "v1"})
    );
    assert_eq!(events[4]["impersonatedUser"]["username"], "alice");
    // The bodies are nobody's business at this level.
    assert!(events.iter().all(|e| e.get("requestObject").is_none() && e.get("responseObject").is_none()));
    assert!(events.iter().all(|e| e["apiVersion"] == "audit.k8s.io/v1" && e["level"] == "Metadata"));
}

#[tokio::test]
async fn a_policy_says_how_much() {
    let folder = Folder::new("policy");
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: None, verbs: [get]}\n- {level: RequestResponse, resources: [{group: '', resources: [configmaps]}]}\n";
    let api = cluster_with(audit(&folder, Policy::parse(policy).unwrap())).await;
    send(&api, "alice-token", "GET /api/v1/namespaces/team-a/pods/p", &Value::Null, &[]).await;
    send(&api, "alice-token", "POST /api/v1/namespaces/team-a/pods", &crate::api::pod("q"), &[]).await;
    send(&api, "alice-token", "POST /api/v1/namespaces/team-a/configmaps", &map("new"), &[]).await;
    let events = folder.events(1).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["requestObject"], map("new"));
    assert_eq!(events[0]["responseObject"]["metadata"]["name"], "new");
    assert_eq!(events[0]["responseObject"]["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn what_a_policy_in_cel_would_refuse_is_remarked() {
    let folder = Folder::new("cel");
    let api = cluster_with(audit(&folder, Policy::metadata())).await;
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]);
    api.ok(
        "POST /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        json!({"metadata": {"name": "warn"}, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "object.metadata.name.startsWith('w')"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}]}}),
    )
    .await;
    api.ok(
        "POST /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        json!({"metadata": {"name": "warn-b"},
        "spec": {"policyName": "warn", "validationActions": ["Warn", "Audit"]}}),
    )
    .await;
    let (code, _, headers) =
        send(&api, "alice-token", "POST /api/v1/namespaces/team-a/configmaps", &map("x"), &[]).await;
    assert_eq!(code, 201);
    assert_eq!(
        headers["warning"],
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'warn' with binding 'warn-b': failed expression: object.metadata.name.startsWith('w')\""
    );
    let events = folder.events(1).await;
    let remark: Value = serde_json::from_str(
        events[0]["annotations"]["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(
        remark,
        json!([{"message": "failed expression: object.metadata.name.startsWith('w')", "policy": "warn", "binding": "warn-b",
        "expressionIndex": 0, "validationActions": ["Warn", "Audit"]}])
    );
    assert_eq!(events[0]["annotations"]["warn/who"], "by alice");
}

#[tokio::test]
async fn a_log_that_grows_is_put_aside() {
    let folder = Folder::new("size");
    let log = Arc::new(Log::open(&folder.log(), Policy::metadata(), 4 << 10).unwrap());
    let api = cluster_with(Options { audit: Some(log.clone()), ..Options::default() }).await;
    for _ in 0..40 {
        send(&api, "alice-token", "GET /api/v1/namespaces/team-a/pods/p", &Value::Null, &[]).await;
    }
    for _ in 0..500 {
        // Between the two steps of putting it aside there is only the old one.
        if ["audit.jsonl", "audit.jsonl.1"].iter().all(|name| folder.0.join(name).exists()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for name in ["audit.jsonl", "audit.jsonl.1"] {
        let size = std::fs::metadata(folder.0.join(name)).unwrap().len();
        assert!(size <= 4 << 10, "{name}: {size}");
    }
    assert_eq!(log.lost(), 0);
}

/// A hook that makes every creation of a config map last.
struct Slow;

impl muster_apiserver::admission::Hook for Slow {
    fn validate(
        &self,
        review: &mut muster_apiserver::admission::Review,
        _: &Value,
    ) -> Result<(), muster_apiserver::status::ApiError> {
        if review.served.plural == "configmaps" && review.name.starts_with("slow") {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_by_one_user_leaves_the_others_answered() {
    let fair = Limits { seats: 4, queue: 16, ..Limits::default() };
    let api =
        Arc::new(cluster_with(Options { fair, hooks: vec![Arc::new(Slow)], ..Options::default() }).await);
    let flood: Vec<_> = (0..400)
        .map(|i| {
            let api = api.clone();
            tokio::spawn(async move {
                let line = "POST /api/v1/namespaces/team-a/configmaps?dryRun=All";
                let (code, answer, headers) =
                    send(&api, "alice-token", line, &map(&format!("slow-{i}")), &[]).await;
                (code, answer, headers.get("retry-after").cloned())
            })
        })
        .collect();
    // Somebody else comes in the middle of it, again and again, and is never turned away nor kept waiting behind all of it.
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        let (code, answer, _) = send(&api, "bob-token", "GET /apis", &Value::Null, &[]).await;
        assert_eq!(code, 200, "{answer}");
    }
    let others = begun.elapsed();
    let (mut done, mut turned_away) = (0, 0);
    for one in flood {
        match one.await.unwrap() {
            (201, ..) => done += 1,
            (429, answer, retry) => {
                turned_away += 1;
                assert_eq!(answer, "Too many requests, please try again later.\n");
                assert_eq!(retry.unwrap(), "1");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(done >= 4, "{done} done, {turned_away} turned away");
    assert!(turned_away > 0, "400 requests at once never filled a queue of 16");
    assert!(others < Duration::from_secs(15), "{others:?}");
}

#[tokio::test]
async fn the_administrator_and_this_process_wait_for_nobody() {
    let fair = Limits { seats: 1, queue: 0, ..Limits::default() };
    let api = Arc::new(cluster_with(Options { fair, ..Options::default() }).await);
    let many = async |token: &'static str| {
        let calls =
            (0..20).map(|_| send(&api, token, "GET /api/v1/namespaces/team-a/pods", &Value::Null, &[]));
        futures::future::join_all(calls).await.iter().filter(|(code, ..)| *code == 200).count()
    };
    assert_eq!(many("root-token").await, 20);
    assert!(many("alice-token").await >= 1);
}

#[tokio::test]
async fn watches_are_counted_apart() {
    let fair = Limits { seats: 2, long: 3, ..Limits::default() };
    let api = cluster_with(Options { fair, ..Options::default() }).await;
    let line = "/api/v1/namespaces/team-a/pods?watch=1";
    let mut open = Vec::new();
    for _ in 0..3 {
        let (code, body) = crate::access::open(&api, "alice-token", line).await;
        assert_eq!(code, 200);
        open.push(body);
    }
    assert_eq!(crate::access::open(&api, "alice-token", line).await.0, 429);
    // More watches than seats, and still there is room to ask; and one that ends makes room for another.
    assert_eq!(
        send(&api, "alice-token", "GET /api/v1/namespaces/team-a/pods", &Value::Null, &[]).await.0,
        200
    );
    open.pop();
    assert_eq!(crate::access::open(&api, "alice-token", line).await.0, 200);
}
