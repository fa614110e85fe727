//! `muster up --chaos`, as a person types it.

use crate::{Home, Up};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_bad_plan_is_refused_before_anything_starts() {
    let home = Home::new("bad-chaos");
    let file = home.0.join("day.yaml");
    let up = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let all: Vec<&str> =
            ["up", "--port", "0", "--chaos", file.to_str().unwrap()].iter().chain(more).copied().collect();
        let (code, out, err) = home.run(&all);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        err
    };
    let err = up("faults:\n- at: 1s\n  node: {stat: silent}\n", &[]);
    assert!(
        err.contains("day.yaml: line 3: unknown field `stat`") && err.contains("did you mean `state`?"),
        "{err}"
    );
    let err = up("faults:\n- {name: crash, services: killed}\n", &["--no-services"]);
    assert!(err.contains("crash is about Muster's services") && err.contains("hint:"), "{err}");
}

const DAY: &str = "
seed: 4
faults:
- {name: busy, for: 1h, api: {from: [clients], verbs: [list], resources: [configmaps], status: 403}}
- {name: power, at: 100ms, for: 1s, node: {state: notReady}}
- {name: crash, at: 300ms, services: killed}
- {name: reset, at: 500ms, server: dropsConnections}
";

/// Everything that `muster up` says of a day, by fault and event; and what a client gets meanwhile.
#[test]
fn a_plan_is_carried_out_and_told() {
    let home = Home::new("chaos");
    let file = home.0.join("day.yaml");
    std::fs::write(&file, DAY).unwrap();
    let mut command =
        home.muster(&["up", "-o", "json", "--port", "0", "--nodes", "3", "--no-crds", "--chaos"]);
    let child = command.arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut up = Up { child, said: Value::Null };
    let mut lines = BufReader::new(up.child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let ready = next();
    assert_eq!(ready["chaosSeed"], 4, "{ready}");
    let mut seen = Vec::new();
    let mut down = String::new();
    while seen.len() < 5 {
        let told = next()["chaos"].take();
        let text = |field: &str| told[field].as_str().unwrap_or_default().to_owned();
        if text("fault") == "power" {
            down = told["nodes"][0].as_str().unwrap().to_owned();
        }
        seen.push(format!("{} {} {}", text("after"), text("fault"), text("event")));
    }
    let expected = [
        "0s busy begins",
        "100ms power begins",
        "300ms crash begins",
        "500ms reset begins",
        "1.1s power ends",
    ];
    assert_eq!(seen, expected);
    assert!(down.starts_with("node-"), "{down}");

    // A client is turned away from what the plan says, and from nothing else.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let file = kube::config::Kubeconfig::read_from(ready["kubeconfig"].as_str().unwrap()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let get = async |path: &str| {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            match client.request_text(request).await {
                Ok(_) => 200,
                Err(kube::Error::Api(status)) => status.code,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(get("/api/v1/namespaces/default/configmaps").await, 403);
        assert_eq!(get("/api/v1/namespaces/default/secrets").await, 200);
        // The services are alive again: a pod is placed, once the leases of the dead have run out.
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let post =
            http::Request::post("/api/v1/namespaces/default/pods").header("content-type", "application/json");
        client.request_text(post.body(pod.to_string().into_bytes()).unwrap()).await.unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let request = http::Request::get("/api/v1/namespaces/default/pods/p").body(Vec::new()).unwrap();
            let pod: Value = client.request(request).await.unwrap();
            if pod["spec"]["nodeName"].is_string() {
                break;
            }
            assert!(Instant::now() < patience, "never placed: {pod}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let port = ready["port"].as_u64().unwrap().to_string();
    let (code, _, err) = home.run(&["down", "--port", &port]);
    assert_eq!(code, 0, "{err}");
    assert!(up.child.wait().unwrap().success());
    // What has no end ends with the cluster.
    let last = next()["chaos"]["what"].as_str().unwrap().to_owned();
    assert!(last.starts_with("over; ") && !last.contains(" 0 "), "{last}");
}
