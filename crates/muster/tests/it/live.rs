//! Commands on a live cluster, as a person types them.

use crate::Home;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Posts objects as JSON.
fn create(kubeconfig: &Path, objects: &[(&str, Value)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        for (path, object) in objects {
            let request = http::Request::post(*path)
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())
                .unwrap();
            client.request_text(request).await.unwrap();
        }
    });
}

fn pod(name: &str, gpus: u32) -> (&'static str, Value) {
    let container = json!({"name": "c", "image": "i", "env": [{"name": "TOKEN", "value": "hidden-text"}],
        "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}});
    ("/api/v1/namespaces/default/pods", pod)
}

struct Live {
    home: Home,
    kubeconfig: PathBuf,
    _up: crate::Up,
}

impl Live {
    fn new(name: &str, args: &[&str]) -> Live {
        let home = Home::new(name);
        let all: Vec<&str> = ["--port", "0"].iter().chain(args).copied().collect();
        let up = home.up(&all);
        let kubeconfig = PathBuf::from(up.said["kubeconfig"].as_str().unwrap());
        Live { home, kubeconfig, _up: up }
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let kubeconfig = self.kubeconfig.to_str().unwrap();
        let all: Vec<&str> = args.iter().copied().chain(["--kubeconfig", kubeconfig]).collect();
        self.home.run(&all)
    }

    fn json(&self, args: &[&str]) -> Value {
        let all: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        let (code, out, err) = self.run(&all);
        assert_eq!(code, 0, "{args:?}: {err}");
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    #[track_caller]
    fn says(&self, args: &[&str], expected: &[&str]) {
        let (code, out, err) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {out}{err}");
        for text in expected {
            assert!(out.contains(text), "{args:?} does not say {text:?}:\n{out}{err}");
        }
    }
}

#[test]
fn a_live_cluster_is_seen_as_its_scheduler_sees_it() {
    let live = Live::new("live", &["--nodes", "1", "--gpus", "2", "--groups", "kai"]);
    create(&live.kubeconfig, &[pod("small", 1), pod("big", 4)]);
    let begun = Instant::now();
    let gangs = loop {
        let gangs = live.json(&["get", "gangs"]);
        let small = gangs["items"].as_array().unwrap().iter().find(|g| g["name"] == "small").cloned();
        if small.is_some_and(|small| small["state"] == "Running") {
            break gangs;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{gangs:#}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let big = gangs["items"].as_array().unwrap().iter().find(|g| g["name"] == "big").unwrap();
    assert_eq!(
        (&big["state"], &big["reason"], &big["dialect"]),
        (&json!("Waiting"), &json!("NoNode"), &json!("pod"))
    );

    live.says(&["get", "gangs"], &["NAME", "small", "big", "NoNode"]);
    live.says(&["get", "nodes", "-o", "wide"], &["node-0", "1/2", "[#.]"]);
    live.says(&["get", "queues"], &["default-parent-queue", "\n  default-queue"]);
    live.says(&["explain", "pod/small"], &["default/small is placed\n  1 pod runs on node-0\n"]);
    live.says(
        &["explain", "pod/big"],
        &["default/big in queue default-queue waits", "too small even when empty, by 2 GPUs"],
    );
    live.says(
        &["explain", "queue/default-queue"],
        &["queue default-queue, below default-parent-queue", "default/big:"],
    );
    live.says(
        &["top", "--once"],
        &["GPUs 1/2 in use", "1 in pieces on 1 nodes (100 % fragmented)", "default/big"],
    );
    live.says(&["doctor"], &["all is well"]);
    live.says(&["simulate"], &["nothing is bound", "default/big in queue default-queue waits"]);
    assert_eq!(live.json(&["top"])["gangs"], json!({"all": 2, "running": 1, "waiting": 1}));

    let file = live.home.0.join("now.yaml");
    let path = file.to_str().unwrap();
    let (code, _, err) = live.run(&["snapshot", "--file", path]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("2 Pod") && err.contains("default-scheduler"), "{err}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("kind: Snapshot") && !text.contains("hidden-text") && !text.contains("managedFields")
    );
    for args in
        [&["explain", "-f", path, "big"][..], &["simulate", "-f", path], &["get", "gangs", "-f", path]]
    {
        let (code, out, err) = live.home.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        assert!(out.contains("big"), "{args:?}: {out}");
    }
    let (code, _, err) = live.run(&["explain", "job/none"]);
    assert_eq!(code, 1);
    assert!(err.contains("job/none") && err.contains("the gangs are default/big, default/small"), "{err}");
}

#[test]
fn what_is_installed_can_be_uninstalled() {
    let live = Live::new("install", &["--nodes", "0", "--no-services", "--no-crds"]);
    let (code, _, err) = live.run(&["uninstall"]);
    assert_eq!(code, 3, "{err}");
    let (code, _, err) = live.run(&["doctor"]);
    assert_eq!(code, 1, "{err}");
    let (code, out, err) = live.run(&["install", "--replicas", "1"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("created   Deployment muster-system/muster-scheduler"), "{err}");
    assert!(out.contains("muster doctor"), "{out}");
    let (code, _, err) = live.run(&["install", "--replicas", "1"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("6 kept") && !err.contains("created") && !err.contains("changed   "), "{err}");
    let (code, _, err) = live.run(&["uninstall"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("deleted   Deployment muster-system/muster-scheduler"), "{err}");
    assert!(!err.contains("deleted   Queue"), "{err}");
    let (code, out, _) = live.home.run(&["install", "--dry-run", "-o", "json"]);
    assert_eq!(code, 0);
    let list: Value = serde_json::from_str(&out).unwrap();
    assert!(list["items"].as_array().unwrap().iter().any(|o| o["kind"] == "CustomResourceDefinition"));
}

#[test]
fn the_demo_comes_to_its_end() {
    let (code, out, err) = Home::new("demo").run(&["demo", "--fast"]);
    assert_eq!(code, 0, "{out}{err}");
    for said in ["`train-a` runs: 8 on", "`train-b` is evicted", "`train-c` runs", "What to try next"] {
        assert!(out.contains(said), "{said:?} is missing:\n{out}");
    }
}

#[test]
fn a_cluster_that_is_not_there_is_named() {
    let (code, out, err) = Home::new("nowhere").run(&["get", "gangs", "--kubeconfig", "/nowhere/config"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("/nowhere/config") && err.contains("muster up"), "{err}");
}
